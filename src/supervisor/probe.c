/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.c: checks whether a start would find what it needs, without making anything. `brig config check` and the start
 * call the same functions in the same order, so that both end with the same message: the key ring, the directories, the
 * files, what an earlier service left, the listeners. What brigd opens is tried as brigd's user; what the supervisor
 * reads is tried as our own.
 *
 * Only the start can find out whether a database server answers, whether another daemon has the socket or the port,
 * what a key command prints, and what is in the files (a certificate, a key ring, a database).
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "supervisor/supervisor.h"

#define SQLITE "sqlite:"

struct probe {
    const char *path;
    int flags;       /* of the file, if it is there */
    bool missing_ok; /* it is made by brigd, in its directory, or by root on the way to it */
};

/* Each directory on the way that is there can be passed. */
static int pass_through(const char *path)
{
    char dir[4096];

    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(dir, sizeof dir, "%.*s", (int)(slash - path), path);
        if (faccessat(AT_FDCWD, dir, X_OK, AT_EACCESS) < 0)
            return -errno;
    }
    return 0;
}

static int try_path(void *ctx, int *ret_fd UNUSED)
{
    const struct probe *probe = ctx;
    int r = pass_through(probe->path);
    AUTO_FD int fd = r == 0 ? open(probe->path, probe->flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) : -1;

    if (r == 0 && fd < 0)
        r = -errno;
    return r == -ENOENT && probe->missing_ok ? 0 : r;
}

/* The child's words do not reach us: where it failed is found by asking again for each directory. */
static int probe_as_brigd(const struct places *places, const char *what, const char *path, int flags,
                          struct brig_err *err)
{
    struct probe probe = {.path = path, .flags = flags, .missing_ok = true};
    int fd = -1; /* none comes: only log files are handed over */
    int r = places_try(places, try_path, &probe, &fd);

    if (r == 0)
        return 0;
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        char dir[4096];
        struct probe way = {.path = dir, .flags = O_PATH | O_DIRECTORY, .missing_ok = true};
        snprintf(dir, sizeof dir, "%.*s/.", (int)(slash - path), path);
        if (places_try(places, try_path, &way, &fd) < 0)
            return err_set(err, BRIG_E_REFUSED, -r, "%s %s: user %u, which brigd runs as, may not pass through %.*s",
                           what, path, (unsigned)places->uid, (int)(slash - path), path);
    }
    return err_set(err, BRIG_E_REFUSED, -r, "%s %s, opened by user %u, which brigd runs as", what, path,
                   (unsigned)places->uid);
}

static int probe_ours(const char *what, const char *path, struct brig_err *err)
{
    AUTO_FD int fd = path[0] ? open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) : -1;

    return path[0] && fd < 0 ? err_host(err, "%s %s", what, path) : 0;
}

static int dir_of(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');

    return !slash ? -EINVAL : str_format(out, size, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

static int try_writing(void *ctx, int *ret_fd UNUSED)
{
    return faccessat(AT_FDCWD, ctx, W_OK | X_OK, AT_EACCESS) < 0 ? -errno : 0;
}

/* A file that brigd opens for writing, and makes where it is not. */
static int probe_written(const struct places *places, const char *what, const char *path, int flags,
                         struct brig_err *err)
{
    char dir[4096];
    int fd = -1, r = probe_as_brigd(places, what, path, flags, err);

    if (r < 0 || access(path, F_OK) == 0)
        return r;
    if (dir_of(path, dir, sizeof dir) < 0)
        return err_usage(err, "%s %s: must be an absolute path", what, path);
    r = places_try(places, try_writing, dir, &fd);
    if (r == 0)
        return 0;
    return err_set(err, BRIG_E_REFUSED, -r, "%s %s: user %u, which brigd runs as, cannot make a file in %s", what, path,
                   (unsigned)places->uid, dir);
}

/* The database and its lock, which is no link. */
static int probe_database(const struct places *places, const char *what, const char *path, struct brig_err *err)
{
    char lock[4096];
    int r = probe_written(places, what, path, O_RDWR, err);

    if (r == 0 && str_format(lock, sizeof lock, "%s-lock", path) < 0)
        r = err_usage(err, "%s %s: too long", what, path);
    return r < 0 ? r : probe_as_brigd(places, what, lock, O_RDWR | O_NOFOLLOW, err);
}

/* What is in brigd's own directories. One that is not there is made there by brigd. */
static const struct own_file {
    size_t dir; /* in struct places */
    const char *what, *name;
    int flags;
} own_files[] = {
    {offsetof(struct places, service), "the directory of artifacts", "artifacts", O_RDONLY | O_DIRECTORY | O_NOFOLLOW},
    {offsetof(struct places, audit), "the audit log", "audit.jsonl", O_WRONLY | O_APPEND | O_NOFOLLOW},
    {offsetof(struct places, audit), "the heads of the audit log", "heads.jsonl", O_WRONLY | O_APPEND | O_NOFOLLOW},
    {offsetof(struct places, keys), "the key of the audit log", "audit.pem", O_RDONLY | O_NOFOLLOW},
    {offsetof(struct places, keys), "the key of previews", "preview.key", O_RDONLY | O_NOFOLLOW},
};

/* Until the start has given a directory to brigd, brigd's user cannot look into it. */
static bool has_been_given(const struct places *places, char *dir)
{
    int fd = -1;

    return places_try(places, try_writing, dir, &fd) == 0;
}

static int probe_own_files(const struct places *places, struct brig_err *err)
{
    char path[4096];
    int r = 0;

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(own_files); i++) {
        const struct own_file *file = &own_files[i];
        char *dir = (char *)(uintptr_t)places + file->dir;
        if (str_format(path, sizeof path, "%s/%s", dir, file->name) < 0)
            r = err_usage(err, "%s/%s: too long", dir, file->name);
        else if (has_been_given(places, dir))
            r = probe_as_brigd(places, file->what, path, file->flags, err);
    }
    return r;
}

static int probe_store(const struct places *places, const struct config *config, struct brig_err *err)
{
    char path[4096];

    if (strncmp(config->database_url, SQLITE, strlen(SQLITE)) == 0)
        return probe_database(places, "store.database_url", config->database_url + strlen(SQLITE), err);
    if (config->database_url[0])
        return 0; /* a server, which is asked at the start */
    if (str_format(path, sizeof path, "%s/brig.db", places->service) < 0)
        return err_usage(err, "%s: too long", places->service);
    return has_been_given(places, (char *)(uintptr_t)places->service)
               ? probe_database(places, "the database", path, err)
               : 0;
}

/* Each directory of a list "a:b:c" that is there; brigd reads tools' requirements in them. */
static int probe_list(const struct places *places, const char *what, const char *list, struct brig_err *err)
{
    char path[4096];
    int r = 0;

    for (const char *at = list; r == 0 && *at; at += at[0] == ':') {
        size_t len = strcspn(at, ":");
        if (len > 0 && len < sizeof path) {
            snprintf(path, sizeof path, "%.*s", (int)len, at);
            r = probe_as_brigd(places, what, path, O_PATH, err);
        }
        at += len;
    }
    return r;
}

int probe_files(const struct places *places, const struct config *config, struct brig_err *err)
{
    int r = probe_as_brigd(places, "the state directory", places->state, O_PATH | O_DIRECTORY, err);

    if (r == 0)
        r = probe_as_brigd(places, "the directory of dependency sets", places->sets, O_PATH | O_DIRECTORY, err);
    if (r == 0)
        r = probe_store(places, config, err);
    if (r == 0)
        r = probe_own_files(places, err);
    if (r == 0 && config->log_file[0])
        r = probe_written(places, "log_file", config->log_file, O_WRONLY | O_APPEND | O_NOFOLLOW, err);
    if (r == 0)
        r = probe_ours("server.tls_cert", config->tls_cert, err);
    if (r == 0)
        r = probe_ours("server.tls_key", config->tls_key, err);
    if (r == 0)
        r = probe_ours("gate.ca_bundle", config->gate_ca_bundle, err);
    if (r == 0 && config->gate_ca_bundle[0])
        r = probe_as_brigd(places, "gate.ca_bundle", config->gate_ca_bundle, O_PATH, err);
    if (r == 0)
        r = probe_list(places, "tools.exec_dir", config->tools_exec_dir, err);
    if (r == 0)
        r = probe_list(places, "sandbox.allowed_dirs", config->allowed_dirs, err);
    return r < 0 ? r : keep_look(places, err);
}

int supervisor_probe(const struct config *config, struct brig_err *err)
{
    static struct places places; /* its paths are large */
    int r = supervisor_keys(config, NULL, err);

    if (r == 0)
        r = places_look(&places, err);
    if (r == 0)
        r = probe_files(&places, config, err);
    return r < 0 ? r : listen_look(config, &places, err);
}
