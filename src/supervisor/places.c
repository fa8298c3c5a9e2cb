/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places.c: chooses brigd's user and makes its directories. If root starts it, brigd has an id of its own: the user
 * `brig` if the system has one, else an id that no package uses (in the range that systemd gives to such services).
 * brig-egress has another one (`brig-egress`), so that neither can signal or trace the other. brigd's directories
 * belong to it; their parents stay root's, and can be passed through but not read.
 */
#include <fcntl.h>
#include <pwd.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/err.h"
#include "base/str.h"
#include "engine/engine.h"
#include "host/dirs.h"
#include "supervisor/supervisor.h"

#define BRIGD_UID 62744
#define EGRESS_UID 62745

/* A directory below one of ours: brigd's own (0700), or one that stays ours. */
struct own_dir {
    enum brig_dir parent;
    const char *name;
    size_t path; /* where in struct places its path goes */
    mode_t ours; /* 0: it is brigd's; else its mode */
};

static const struct own_dir own_dirs[] = {
    {BRIG_DIR_STATE, "service", offsetof(struct places, service), 0},
    {BRIG_DIR_STATE, "audit", offsetof(struct places, audit), 0},
    {BRIG_DIR_STATE, "keys", offsetof(struct places, keys), 0},
    {BRIG_DIR_CACHE, "sets", offsetof(struct places, sets), 0},
    {BRIG_DIR_STATE, "templates", offsetof(struct places, templates), 0711},
    {BRIG_DIR_STATE, "templates/layers", offsetof(struct places, layers), 0700},
    {BRIG_DIR_STATE, "disks", offsetof(struct places, disks), 0700},
    {BRIG_DIR_STATE, "templates/blobs", offsetof(struct places, blobs), 0},
    {BRIG_DIR_STATE, "templates/work", offsetof(struct places, work), 0},
};

static int on_read_only(int fd)
{
    struct statvfs fs;

    if (fstatvfs(fd, &fs) < 0 || (fs.f_flag & ST_RDONLY) == 0)
        return 0;
    errno = EROFS;
    return 1;
}

/* make: it is made where it is missing, closed to others and given to its owner. Without, only what would stop that. */
static int own_dir(int parent, const struct own_dir *own, const char *path, const struct places *places, bool make,
                   struct brig_err *err)
{
    uid_t uid = own->ours ? geteuid() : places->uid;
    gid_t gid = own->ours ? getegid() : places->gid;
    struct stat st;

    if (make && mkdirat(parent, own->name, 0700) < 0 && errno != EEXIST)
        return err_host(err, "%s", path);
    AUTO_FD int fd = openat(parent, own->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && !make)
        return faccessat(parent, ".", W_OK | X_OK, AT_EACCESS) < 0 ? err_host(err, "%s", path) : 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_host(err, "%s", path);
    if (st.st_uid != geteuid() && st.st_uid != uid)
        return err_set(err, BRIG_E_REFUSED, EPERM, "%s: belongs to user %u, not to us", path, (unsigned)st.st_uid);
    if (on_read_only(fd))
        return err_host(err, "%s", path);
    if (make && (fchmod(fd, own->ours ? own->ours : 0700) < 0 || (st.st_uid != uid && fchown(fd, uid, gid) < 0)))
        return err_host(err, "%s", path);
    return 0;
}

static int choose_id(const char *name, uid_t fallback, uid_t *ret_uid, gid_t *ret_gid, struct brig_err *err)
{
    const struct passwd *user = getpwnam(name);

    *ret_uid = user ? user->pw_uid : fallback;
    *ret_gid = user ? user->pw_gid : fallback;
    if (*ret_uid == 0)
        return err_set(err, BRIG_E_REFUSED, EPERM, "the user %s has id 0: the service needs one without privileges",
                       name);
    return 0;
}

static int choose_ids(struct places *ret, struct brig_err *err)
{
    *ret = (struct places){.uid = geteuid(), .gid = getegid(), .egress_uid = geteuid(), .egress_gid = getegid()};
    if (geteuid() != 0)
        return 0;
    int r = choose_id("brig", BRIGD_UID, &ret->uid, &ret->gid, err);
    if (r == 0)
        r = choose_id("brig-egress", EGRESS_UID, &ret->egress_uid, &ret->egress_gid, err);
    if (r == 0 && ret->egress_uid == ret->uid)
        r = err_set(err, BRIG_E_REFUSED, EPERM, "the users brig and brig-egress have the same id: each needs its own");
    return r;
}

static int places_find(struct places *ret, struct brig_err *err)
{
    int r = choose_ids(ret, err);

    if (r == 0)
        r = engine_find_helpers(NULL, ret->helpers, sizeof ret->helpers, err);
    if (r == 0)
        r = dirs_path(BRIG_DIR_STATE, ret->state, sizeof ret->state, err);
    if (r == 0)
        r = dirs_path(BRIG_DIR_CACHE, ret->cache, sizeof ret->cache, err);
    return r < 0 ? r : dirs_path(BRIG_DIR_RUN, ret->run, sizeof ret->run, err);
}

static int open_tops(const struct places *places, bool make, int tops[BRIG_DIR_MAX], struct brig_err *err)
{
    int r = 0;

    for (int i = 0; r == 0 && i < BRIG_DIR_MAX; i++) {
        r = make ? (tops[i] = dirs_open((enum brig_dir)i, err)) : dirs_look((enum brig_dir)i, &tops[i], err);
        r = r < 0 ? r : 0;
    }
    if (r == 0 && make && geteuid() == 0 && fchmod(tops[BRIG_DIR_STATE], 0711) < 0)
        r = err_host(err, "%s", places->state);
    return r;
}

/* The one walk of the start and of `brig config check`. */
static int walk(struct places *ret, bool make, struct brig_err *err)
{
    int tops[BRIG_DIR_MAX] = {-1, -1, -1};
    int r = places_find(ret, err);

    if (r == 0)
        r = open_tops(ret, make, tops, err);
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(own_dirs); i++) {
        const struct own_dir *own = &own_dirs[i];
        char *path = (char *)ret + own->path;
        const char *top = own->parent == BRIG_DIR_CACHE ? ret->cache : ret->state;
        if (str_format(path, sizeof ret->sets, "%s/%s", top, own->name) < 0)
            r = err_usage(err, "%s/%s: too long", top, own->name);
        else if (tops[own->parent] >= 0)
            r = own_dir(tops[own->parent], own, path, ret, make, err);
    }
    /* The default directory of tools: the administrator puts files there, runs see them. */
    if (r == 0 && make && mkdirat(tops[BRIG_DIR_STATE], "tool_execution_dir", 0755) < 0 && errno != EEXIST)
        r = err_host(err, "%s/tool_execution_dir", ret->state);
    for (int i = 0; i < BRIG_DIR_MAX; i++)
        base_close_fd(&tops[i]);
    return r;
}

int places_make(struct places *ret, struct brig_err *err)
{
    return walk(ret, true, err);
}

int places_look(struct places *ret, struct brig_err *err)
{
    return walk(ret, false, err);
}

int supervisor_own_roots(const struct places *places, const struct config *config, struct buf *out)
{
    const char *const more[] = {config->tools_find_links, config->tools_exec_dir, config->allowed_dirs};
    const char *const files[] = {config->vm_kernel, config->vm_root, config->firecracker_path,
                                 config->firecracker_kernel};
    int r = buf_printf(out, "%s:%s:%s:%s/tool_execution_dir", places->sets, places->blobs, places->work, places->state);

    for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(more); i++)
        if (more[i][0])
            r = buf_printf(out, ":%s", more[i]);
    for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(files); i++)
        if (files[i][0]) /* An absolute path. A root is a directory: the file's. */
            r = buf_printf(out, ":%.*s", (int)(strrchr(files[i], '/') - files[i]), files[i]);
    if (r >= 0 && config->vm_kernel[0])
        r = buf_printf(out, ":%s/vm/boot:%s/vm/snapshots", places->service, places->service);
    return r < 0 ? r : 0;
}
