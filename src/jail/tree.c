/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c: builds the file systems of a sandbox that a runtime will start: the same stages as enter.c, in the same
 * order, up to the pivot, which the runtime does. /proc is the runtime's too, unless this process is in the new pid
 * namespace already. The result is one detached tree, so that it can be attached in another mount namespace.
 */
#include <sys/fsuid.h>

#include "base/fd.h"
#include "jail/plan.h"
#include "jail/sys.h"

/* The places of brig-init and of a socket of its own. They lie in our own layer, so no root can have anything else
 * there. */
static int make_init_place(struct enter *e)
{
    TRY(e, ".brig", SYS(mkdirat(e->root_fd, ".brig", 0755)));
    TRY(e, ".brig/run", SYS(mkdirat(e->root_fd, ".brig/run", 0755)));
    AUTO_FD int fd = SYS(openat(e->root_fd, ".brig/init", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755));
    TRY(e, ".brig/init", fd);
    return 0;
}

static int mount_proc(struct enter *e)
{
    return e->plan->with_proc ? enter_proc(e) : 0;
}

static int close_root(struct enter *e)
{
    if (!e->plan->writable_root && !plan_off(e->plan, BRIG_LAYER_ROOT_READONLY))
        TRY(e, "read-only root", mount_attributes(e->root_fd, MOUNT_ATTR_RDONLY, false));
    return 0;
}

static const struct {
    enum setup_stage stage;
    int (*fn)(struct enter *e);
} stages[] = {
    {SETUP_IDS, enter_owner},        {SETUP_ROOT, enter_root},         {SETUP_ROOT, make_init_place},
    {SETUP_STORE, enter_store},      {SETUP_TEMPLATE, enter_template}, {SETUP_ETC, enter_etc},
    {SETUP_PROC, mount_proc},        {SETUP_DEV, enter_dev},           {SETUP_STORE, enter_store_places},
    {SETUP_TMPFS, enter_tmpfs},      {SETUP_BINDS, enter_binds},       {SETUP_VOLUMES, enter_volumes},
    {SETUP_STORE, enter_store_size}, {SETUP_PIVOT, close_root},
};

int jail_low_ports(const struct jail_plan *plan)
{
    struct enter e = {.plan = plan};

    e.sysctl_fd = SYS(openat(plan->host_proc_fd, "sys", O_PATH | O_DIRECTORY | O_CLOEXEC));
    int r = e.sysctl_fd < 0 ? -errno : enter_low_ports(&e);
    base_close_fd(&e.sysctl_fd);
    return r;
}

int jail_build_tree(const struct jail_plan *plan, int *ret_tree, int *ret_store)
{
    const unsigned flags = AT_EMPTY_PATH | AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC;
    struct enter e = {.plan = plan, .root_fd = -1, .store_fd = -1, .sysctl_fd = -1};

    umask(0);
    for (size_t i = 0; i < ARRAY_SIZE(stages); i++) {
        int r = stages[i].fn(&e);
        if (r < 0) {
            jail_report(plan, stages[i].stage, e.what, -r);
            return r;
        }
    }
    (void)setfsuid(geteuid());
    (void)setfsgid(getegid());
    int tree = SYS(open_tree(e.root_fd, "", flags));
    if (tree < 0) {
        int r = -errno;
        jail_report(plan, SETUP_PIVOT, "tree", -r);
        return r;
    }
    close(e.root_fd);
    *ret_tree = tree;
    *ret_store = e.store_fd;
    return 0;
}
