/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets.h: dependency sets: the pip and npm packages of a run. They are installed once per (sorted list, interpreter,
 * platform) in an install sandbox with the gate's `packages` policy and without the run's secrets, and then mounted
 * read-only at the path at which they were built.
 *
 * A dependency set lives in <cache>/sets/<key>/: `root/` (mounted at SET_PATH), `lock.json` (resolved names, versions,
 * SHA-256 of every file), `used` (mtime: last use). <key>.lock is the same lock. It stays when the dependency set is
 * collected, so that the same words get the same packages again, verified by hash, until somebody asks for a rebuild.
 * The key is the hexadecimal SHA-256 of the organisation (unless `[tools] share_sets` and every version is pinned with
 * a hash), the interpreter and its version, the platform, the sorted requirements and the index. There is one build at
 * a time per key; others wait for it. A build that fails leaves nothing, and its error is the run's: the installer's
 * last lines, with Letta's sentence. Dependency sets are collected by size and age, never one in use.
 */
#ifndef BRIG_DEPS_SETS_H
#define BRIG_DEPS_SETS_H

#include "records/registry.h"
#include "records/requirement.h"
#include "sandbox/manager.h"

#define SET_PATH \
    "/opt/brig" /* Inside: SET_PATH/<venv name>/bin, lib/python3.x/site-packages; SET_PATH/npm/node_modules. */

struct sets;
struct sets_options {
    struct loop *loop;
    struct manager *manager;
    const struct config *config;
    int cache_dir_fd;       /* <cache>/sets, which belongs to us. */
    const char *cache_path; /* Its path, for binds; the supervisor gives it in BRIG_SETS_DIR (SETS_DIR_ENV). */
};
#define SETS_DIR_ENV "BRIG_SETS_DIR"
int sets_create(const struct sets_options *options, struct sets **ret, struct brig_err *err) MUST_CHECK;
void sets_destroy(struct sets *sets);

struct set_want {
    const char *org_id;
    /* "name==1.2" or "name", checked by requirement_ok(); sorted and unique after sets_key(). */
    const char *const *pip;
    size_t n_pip;
    /* So many at the front of pip belong to the configuration, the others to the tool: for the message of a failure. */
    size_t n_config_pip;
    const char *const *npm;
    size_t n_npm;
    const char *venv_name; /* "venv" */
    const char *python;    /* The interpreter inside: "/usr/bin/python3"; in a template "python3" of its PATH. */
    /* The template that it is for ("" or NULL: host), and what the name means now ("": it cannot change). */
    const char *template_name, *template_id;
    const char *requirements_txt; /* The text of the directory's file, or NULL. */
};
/* A built dependency set, held until set_release(). */
struct set {
    const char *key;       /* hex */
    const char *host_path; /* The path of `root`, for a read-only bind at SET_PATH. */
    const char *lock_hash; /* The hexadecimal SHA-256 of lock.json. */
    const char *venv;      /* SET_PATH "/venv", or NULL without pip */
    const char *node_path; /* SET_PATH "/npm/node_modules", or NULL without npm */
};
struct set_build;
/*
 * Calls done(set) on the next turn if it exists; with rebuild it is built even then. err is the run's error
 * (BRIG_E_INVALID), with the installer's lines.
 */
int sets_get(struct sets *sets, const struct caller *caller, const struct set_want *want, bool rebuild,
             void (*done)(void *ctx, const struct set *set, const struct brig_err *err), void *ctx,
             struct set_build **ret, struct brig_err *err) MUST_CHECK;
/* done is not called. The build goes on: what it makes is there for the next request. */
void set_build_cancel(struct set_build *build);
/*
 * During done() with an installer's err: returns all of it, several lines: Letta's sentence and the installer's last
 * lines. err has only the beginning.
 */
const char *set_build_error(const struct set_build *build);
void sets_configure(struct sets *sets, const struct config *config);
void set_hold(struct sets *sets, const struct set *set); /* Holds it once more; it needs one more set_release(). */
void set_release(struct sets *sets, const struct set *set);
/* For `brig pool`: keys, sizes, last use. */
void sets_json(const struct sets *sets, const char *org, struct json *json);

#endif
