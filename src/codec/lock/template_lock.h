/* SPDX-License-Identifier: Apache-2.0 */
/*
 * template_lock.h: the lock of a template: what a build was made of, and what came of it.
 *
 *     {"format": 1, "platform": "linux/amd64", "source_date_epoch": N,
 *      "bases": [{"from": "debian:12", "layers": ["sha256:HEX"]}],
 *      "packages": [{"name": "dash", "version": "0.5.12-2", "architecture": "amd64", "sha256": "HEX", "files": "HEX"}],
 *      "layers": ["sha256:HEX"],
 *      "paths": ["HASH /bin/sh"]}
 *
 * sha256   of the package's file, where FROM debian-mirror:SUITE took it; "" elsewhere, since dpkg keeps none
 * files    the SHA-256 of dpkg's own list of the package's files and their sums; "" if the package has no such list
 * paths    what is in the tree, each with 16 digits of a hash of its content, owner, mode, times and attributes. They
 *          only say which path differs; the digests of the layers are what a build is held to. [] for a large tree.
 *
 * Whoever builds sends the lock, so it is read strictly: a mistake is one line with the line of the lock and the rule.
 * The packages are in the order of their names, one on each line, for a version control system.
 */
#ifndef BRIG_CODEC_LOCK_TEMPLATE_LOCK_H
#define BRIG_CODEC_LOCK_TEMPLATE_LOCK_H

#include <brig.h>

#include "base/arena.h"
#include "codec/json/json_read.h"

#define LOCK_MAX (8u << 20)
#define LOCK_PACKAGES_MAX 20000u
#define LOCK_PATHS_MAX 65536u
#define LOCK_PATHS_BYTES (5u << 20)
#define LOCK_BASES_MAX 64u
#define LOCK_LAYERS_MAX 128u
#define LOCK_HASH 16u /* the digits before a path */

struct lock_package {
    const char *name, *version, *architecture, *sha256, *files; /* sha256, files: or "" */
};
bool lock_package_valid(const struct lock_package *package);
/* By name, then by architecture: the order of a lock; for qsort() and bsearch(). */
int lock_package_order(const void *a, const void *b);

struct template_lock {
    const char *platform;
    int64_t epoch;
    const struct json_value *bases;  /* a list: lock_base_from(), and "layers" of each */
    const struct json_value *layers; /* a list of texts */
    const struct json_value *paths;  /* the same */
    const struct lock_package *packages;
    size_t n_packages;
    const char *text; /* the lock itself, in the arena */
    size_t len;
};
/* Everything of it lives in the arena. BRIG_E_USAGE with the rule, BRIG_E_TOO_LARGE, BRIG_E_NOMEM. */
int template_lock_read(struct arena *arena, const char *text, size_t len, struct template_lock *ret,
                       struct brig_err *err) MUST_CHECK;

/* Does a path stand before another one, if each directory stands before what is in it? <0, 0, >0 */
int lock_path_order(const char *a, const char *b);

#endif
