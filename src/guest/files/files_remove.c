/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_remove.c: REMOVE. It follows nothing, whatever is swapped meanwhile: each name is unlinked in a directory that
 * was entered by descriptor. It removes trees of any depth: the walk keeps no paths, and a directory whose name was
 * forgotten on the way down is met again when its parent is read once more.
 *
 * If a program keeps making files in the tree, the call ends with ENOTEMPTY.
 */
#include <dirent.h>

#include "guest/files/files_int.h"

#define REMOVE_TURN 512 /* names */
#define AGAIN_MAX 1000  /* directories that were not empty after all */

struct removing {
    struct place place;
    unsigned again;
    struct walk walk;
};

static int unlink_at(int dir, const char *name, int flags)
{
    long ret = raw_call3(SYS_unlinkat, dir, name, flags);

    return ret == -ENOENT ? 0 : (int)ret;
}

static int remove_open(struct call *call, struct svc_reader *in)
{
    struct removing *removing = call->state;
    struct svc_path path = svc_get_path(in);
    uint32_t recursive = svc_get_u32(in);
    struct stat st = {0};
    int ret;

    removing->place.dir = -1;
    if (svc_done(in) < 0)
        return -EINVAL;
    if ((ret = path_find(&path, path.path, 0, &removing->place)) < 0 || (ret = place_stat(&removing->place, &st)) < 0)
        return ret;
    if (is_dots(removing->place.name)) /* base itself, or the root */
        return -EBUSY;
    ret =
        (int)raw_call3(SYS_unlinkat, removing->place.dir, removing->place.name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0);
    if (ret == 0)
        return CALL_DONE;
    if ((ret != -ENOTEMPTY && ret != -EEXIST) || !recursive)
        return ret;
    ret = place_open(&removing->place, O_RDONLY | O_DIRECTORY, &st);
    if (ret < 0)
        return ret;
    removing->walk.no_path = true;
    call->wait = CALL_WORK;
    return walk_init(&removing->walk, ret);
}

/* 0, or -ENOTEMPTY: must be entered. A mount point or a directory of somebody else says why it does not go. */
static int remove_one(const struct walk_entry *found)
{
    int ret = -EISDIR;

    if (found->type != DT_DIR)
        ret = unlink_at(found->dir, found->name, 0);
    if (ret == -EISDIR)
        ret = unlink_at(found->dir, found->name, AT_REMOVEDIR);
    if (ret == -ENOTDIR) /* it was a directory a moment ago */
        ret = unlink_at(found->dir, found->name, 0);
    return ret == -EEXIST ? -ENOTEMPTY : ret;
}

/* Its directory is done. When the name is not known any more, or it was filled again, its parent is read once more. */
static int remove_left(struct removing *removing, const struct walk_entry *found)
{
    int ret = found->name ? unlink_at(found->dir, found->name, AT_REMOVEDIR) : -ENOTEMPTY;

    if (ret != -ENOTEMPTY && ret != -EEXIST && ret != -ENOTDIR)
        return ret;
    if (found->name && ++removing->again > AGAIN_MAX)
        return -ENOTEMPTY;
    return walk_again(&removing->walk);
}

static int remove_step(struct call *call)
{
    struct removing *removing = call->state;
    struct walk_entry found;
    int ret = 0;

    for (int i = 0; i < REMOVE_TURN && ret == 0; i++) {
        int event = walk_next(&removing->walk, &found);

        if (event < 0)
            return event;
        if (event == WALK_LEAVE) {
            ret = remove_left(removing, &found);
        } else if (event == WALK_ENTRY) {
            ret = remove_one(&found);
            if (ret == -ENOTEMPTY)
                ret = walk_enter(&removing->walk);
            if (ret == -ENOENT || ret == -ENOTDIR) /* gone, or replaced: the next reading of its parent will tell */
                ret = 0;
        } else {
            ret = unlink_at(removing->place.dir, removing->place.name, AT_REMOVEDIR);
            if (ret == 0)
                return CALL_DONE;
            if ((ret == -ENOTEMPTY || ret == -EEXIST) && ++removing->again <= AGAIN_MAX)
                ret = walk_again(&removing->walk);
        }
    }
    return ret;
}

static void remove_close(struct call *call)
{
    struct removing *removing = call->state;

    walk_done(&removing->walk);
    place_done(&removing->place);
}

const struct call_ops files_remove_ops = {
    .state_size = sizeof(struct removing), .open = remove_open, .step = remove_step, .close = remove_close};
