/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rootfs.c: unpacks a root file system that is given as a tar. The host's tar does it once, inside a sandbox of its
 * own, because an archive is untrusted input and unpackers have a history of holes. The result lies in the cache
 * directory under a name that is made from the file's identity, and is then a directory like any other. Device nodes
 * and set-id bits are left out: /dev is the sandbox's own, and no program may use set-id bits.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/str.h"
#include "engine/engine.h"
#include "host/dirs.h"

#define UNPACK_DEPTH 512u
#define UNPACK_TIMEOUT_MS (10u * 60u * 1000u)

/* The name changes whenever the file does. */
static int unpacked_name(const struct stat *st, char *out, size_t size)
{
    return str_format(out, size, "%" PRIx64 "-%" PRIx64 "-%" PRIx64 "-%" PRIx64 "%09ld", (uint64_t)st->st_dev,
                      (uint64_t)st->st_ino, (uint64_t)st->st_size, (uint64_t)st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
}

static int unpack(struct brig_engine *engine, const char *tar, const char *directory, struct brig_err *err)
{
    const char *const argv[] = {"tar",
                                "--extract",
                                "--file=/archive",
                                "--directory=/unpacked",
                                "--no-same-owner",
                                "--no-same-permissions",
                                "--delay-directory-restore",
                                "--exclude=./dev/*",
                                "--exclude=dev/*",
                                NULL};
    const struct brig_bind binds[] = {{.source = tar, .target = "/archive", .read_only = true},
                                      {.source = directory, .target = "/unpacked"}};
    struct brig_spec spec = {.size = sizeof spec,
                             .argv = argv,
                             .binds = binds,
                             .n_binds = ARRAY_SIZE(binds),
                             .flags = BRIG_RUN_KEEP_OUTPUT,
                             .limits = {.timeout = UNPACK_TIMEOUT_MS, .cpus = 2000}};
    struct brig_run *run;
    int r = brig_run_start(engine, &spec, &run, err);

    if (r == 0)
        r = brig_run_wait(run, err);
    if (r < 0)
        return r;
    const struct brig_receipt *receipt = brig_run_receipt(run);
    if (receipt->cause != BRIG_CAUSE_EXITED || receipt->exit_code != 0) {
        const char *said = receipt->output[BRIG_STDERR] ? receipt->output[BRIG_STDERR] : receipt->detail;
        size_t len = receipt->output[BRIG_STDERR] ? strcspn(said, "\n") : strlen(said);
        r = err_usage(err, "rootfs %s: not unpacked: %s, %.*s", tar, brig_cause_name(receipt->cause),
                      (int)(len < 120 ? len : 120), said);
    }
    brig_run_destroy(run);
    return r;
}

/* cache/rootfs/NAME.new is filled, then renamed: a half-unpacked one is never taken for a whole. */
static int unpack_into_cache(struct brig_engine *engine, const char *tar, const char *name, char *out, size_t size,
                             struct brig_err *err)
{
    char top[3072], fresh[3300];
    int r = dirs_path(BRIG_DIR_CACHE, top, sizeof top, err);
    AUTO_FD int cache = r < 0 ? r : dirs_open(BRIG_DIR_CACHE, err);

    if (cache < 0)
        return cache;
    if (str_format(out, size, "%s/rootfs/%s", top, name) < 0 ||
        str_format(fresh, sizeof fresh, "%s/rootfs/%s.%d", top, name, (int)getpid()) < 0)
        return err_usage(err, "rootfs %s: the cache directory's path is too long", tar);
    if (access(out, F_OK) == 0)
        return 0;
    if (mkdirat(cache, "rootfs", 0700) < 0 && errno != EEXIST)
        return err_host(err, "%s/rootfs", top);
    if (mkdir(fresh, 0755) < 0)
        return err_host(err, "%s", fresh);
    r = unpack(engine, tar, fresh, err);
    if (r == 0 && rename(fresh, out) == 0)
        return 0;
    if (r == 0 && errno != EEXIST && errno != ENOTEMPTY) /* else somebody else was first */
        r = err_host(err, "%s", out);
    AUTO_FD int left = open(fresh, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (left >= 0)
        dirs_remove_content(left, UNPACK_DEPTH);
    rmdir(fresh);
    return r;
}

int engine_rootfs(struct brig_engine *engine, const char *path, char *out, size_t size, struct brig_err *err)
{
    struct stat st;
    char name[128];

    if (path[0] != '/')
        return err_usage(err, "rootfs %s: must be absolute", path);
    if (stat(path, &st) < 0)
        return err_usage(err, "rootfs %s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return str_copy(out, size, path) < 0 ? err_usage(err, "rootfs %.64s...: path too long", path) : 0;
    if (!S_ISREG(st.st_mode))
        return err_usage(err, "rootfs %s: must be a directory or a tar file", path);
    if (unpacked_name(&st, name, sizeof name) < 0)
        return err_usage(err, "rootfs %s: name too long", path);
    return unpack_into_cache(engine, path, name, out, size, err);
}
