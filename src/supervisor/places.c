/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places.c: who brigd is and where it may write. Started by root, brigd has an id of its own: user `brig` where the
 * system has one, else an id that no package uses (in the range that systemd gives to such services); and brig-egress another (`brig-egress`),
 * so that neither can signal or trace the other. brigd's four
 * directories belong to it; their parent stays root's, and can be passed through but not read.
 */
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/str.h"
#include "engine/engine.h"
#include "jail/dirs.h"
#include "supervisor/supervisor.h"

#define BRIGD_UID 62744
#define EGRESS_UID 62745

static int make_dir(int parent, const char *parent_path, const char *name, char *out, size_t size, const struct places *places, struct brig_err *err)
{
    struct stat st;

    if (str_format(out, size, "%s/%s", parent_path, name) < 0)
        return err_usage(err, "%s/%s: too long", parent_path, name);
    if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
        return err_host(err, "%s", out);
    AUTO_FD int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_host(err, "%s", out);
    if (st.st_uid != geteuid() && st.st_uid != places->uid)
        return err_set(err, BRIG_E_REFUSED, EPERM, "%s: belongs to user %u, not to us", out, (unsigned)st.st_uid);
    if (fchmod(fd, 0700) < 0 || (st.st_uid != places->uid && fchown(fd, places->uid, places->gid) < 0))
        return err_host(err, "%s", out);
    return 0;
}

static int choose_id(const char *name, uid_t fallback, uid_t *ret_uid, gid_t *ret_gid, struct brig_err *err)
{
    const struct passwd *user = getpwnam(name);

    *ret_uid = user ? user->pw_uid : fallback;
    *ret_gid = user ? user->pw_gid : fallback;
    if (*ret_uid == 0)
        return err_set(err, BRIG_E_REFUSED, EPERM, "the user %s has id 0: the service needs one without privileges", name);
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

static int make_sets(struct places *ret, struct brig_err *err)
{
    char cache[sizeof ret->sets];
    AUTO_FD int fd = dirs_open(BRIG_DIR_CACHE, err);

    if (fd < 0)
        return fd;
    int r = dirs_path(BRIG_DIR_CACHE, cache, sizeof cache, err);
    return r < 0 ? r : make_dir(fd, cache, "sets", ret->sets, sizeof ret->sets, ret, err);
}

int places_find(struct places *ret, struct brig_err *err)
{
    int r = choose_ids(ret, err);

    if (r == 0)
        r = engine_find_helpers(NULL, ret->helpers, sizeof ret->helpers, err);
    if (r == 0)
        r = dirs_path(BRIG_DIR_STATE, ret->state, sizeof ret->state, err);
    return r < 0 ? r : dirs_path(BRIG_DIR_RUN, ret->run, sizeof ret->run, err);
}

int places_make(struct places *ret, struct brig_err *err)
{
    int r = places_find(ret, err);

    if (r < 0)
        return r;
    AUTO_FD int state = dirs_open(BRIG_DIR_STATE, err);
    AUTO_FD int run = state < 0 ? -1 : dirs_open(BRIG_DIR_RUN, err);
    if (state < 0 || run < 0)
        return state < 0 ? state : run;
    if (geteuid() == 0 && fchmod(state, 0711) < 0)
        return err_host(err, "%s", ret->state);
    r = make_dir(state, ret->state, "service", ret->service, sizeof ret->service, ret, err);
    if (r == 0)
        r = make_dir(state, ret->state, "audit", ret->audit, sizeof ret->audit, ret, err);
    if (r == 0)
        r = make_dir(state, ret->state, "keys", ret->keys, sizeof ret->keys, ret, err);
    if (r == 0)
        r = make_sets(ret, err);
    /* The default directory of tools: the administrator puts files there, runs see them. */
    if (r == 0 && mkdirat(state, "tool_execution_dir", 0755) < 0 && errno != EEXIST)
        r = err_host(err, "%s/tool_execution_dir", ret->state);
    return r;
}

int supervisor_own_roots(const struct places *places, const struct config *config, struct buf *out)
{
    const char *const more[] = {config->tools_find_links, config->tools_exec_dir, config->allowed_dirs};
    int r = buf_printf(out, "%s:%s/tool_execution_dir", places->sets, places->state);

    for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(more); i++)
        if (more[i][0])
            r = buf_printf(out, ":%s", more[i]);
    return r < 0 ? r : 0;
}
