/* SPDX-License-Identifier: Apache-2.0 */
/*
 * volume_mount.c: mounts the volumes of a sandbox: file systems of their own size that are kept when it ends. What is
 * acknowledged there must survive a loss of power, so unlike the store they have barriers. One that is attached for
 * reading only may be so in many sandboxes at once, each with a device and a mount of its own; nobody replays a journal
 * then (the spawner has done it).
 */
#include "jail/plan.h"
#include "jail/sys.h"

static int mount_volume(const struct plan_volume *volume)
{
    const struct mount_option writable[] = {
        {"source", volume->device}, {"noinit_itable", NULL}, {"errors", "remount-ro"}, {"data_err", "abort"}};
    const struct mount_option read_only[] = {{"source", volume->device}, {"ro", NULL}, {"noload", NULL}};
    unsigned attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME;

    return volume->read_only ? mount_make("ext4", read_only, ARRAY_SIZE(read_only), attributes | MOUNT_ATTR_RDONLY)
                             : mount_make("ext4", writable, ARRAY_SIZE(writable), attributes);
}

/*
 * The root of a new volume belongs to the programs of its first sandbox. mkfs.ext4 leaves a lost+found there; once that
 * is gone, the volume is not new any more.
 */
static int take_over(struct enter *e, int mount_fd)
{
    uid_t owner = plan_owner(e->plan);

    if (SYS(unlinkat(mount_fd, "lost+found", AT_REMOVEDIR)) < 0)
        return 0;
    TRY(e, "volume", SYS(fchownat(mount_fd, "", owner, owner, AT_EMPTY_PATH)));
    return 0;
}

int enter_volumes(struct enter *e)
{
    for (unsigned i = 0; i < e->plan->n_volumes; i++) {
        const struct plan_volume *volume = &e->plan->volumes[i];
        AUTO_FD int fd = mount_volume(volume);

        TRY(e, volume->target, fd);
        TRY(e, "ids of a volume", owner_map_disk(e->plan, fd));
        int r = volume->read_only ? 0 : take_over(e, fd);
        if (r == 0)
            r = enter_attach(e, fd, volume->target, true);
        if (r < 0)
            return r;
    }
    return 0;
}
