/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_owner.c: makes the files of a sandbox with root inside belong to its own ids.
 *
 * The set-up runs with the file system ids of the sandbox's root, so that whatever it makes (directories of the root,
 * device nodes, work directories of overlays) belongs to id 0 inside. The template belongs to ids of the host that the
 * sandbox does not map, so each lower layer is covered by an idmapped copy of itself, in this mount namespace only. The
 * overlays take private copies of those.
 *
 * An overlay makes its work directory and its whiteouts with the file system ids of the process that mounts it. If the
 * upper layer is idmapped and does not map those ids, the mount succeeds but is read-only, and only the kernel's log
 * says so. For that reason mount_is_writable() looks at every overlay that has an upper.
 */
#include <linux/capability.h>
#include <sys/fsuid.h>

#include "base/fd.h"
#include "jail/plan.h"
#include "jail/sys.h"

int owner_raise_effective(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];

    if (syscall(SYS_capget, &header, data) < 0)
        return -1;
    data[0].effective = data[0].permitted;
    data[1].effective = data[1].permitted;
    return (int)SYS(syscall(SYS_capset, &header, data));
}

int enter_owner(struct enter *e)
{
    const struct jail_plan *p = e->plan;

    if (!plan_owns(p))
        return 0;
    (void)setfsgid(p->outer_root_gid);
    (void)setfsuid(p->outer_root);
    /* They do not say whether they worked; a call that changes nothing tells the present id. */
    if ((uid_t)setfsuid((uid_t)-1) != p->outer_root || (gid_t)setfsgid((gid_t)-1) != p->outer_root_gid) {
        errno = EPERM;
        TRY(e, "owner", -1);
    }
    TRY(e, "capabilities", owner_raise_effective());
    return 0;
}

int owner_map(const struct jail_plan *plan, int mount_fd)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (__u64)plan->ids_fd};

    return plan->ids_fd < 0 ? 0 : SYS(mount_setattr(mount_fd, "", AT_EMPTY_PATH, &attr, sizeof attr));
}

int owner_map_disk(const struct jail_plan *plan, int mount_fd)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (__u64)plan->disk_ids_fd};

    if (plan->disk_ids_fd < 0)
        return owner_map(plan, mount_fd);
    return SYS(mount_setattr(mount_fd, "", AT_EMPTY_PATH, &attr, sizeof attr));
}

int owner_map_place(const struct jail_plan *plan, const char *path)
{
    if (plan->ids_fd < 0)
        return 0;
    AUTO_FD int fd = SYS(open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
    return fd < 0 || owner_map(plan, fd) < 0 ? -1 : mount_attach(fd, AT_FDCWD, path);
}
