/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dev.c: makes a minimal /dev: six harmless nodes, links, and a devpts of its own; for a monitor of virtual machines
 * also /dev/kvm. Where nodes can be made (root) they
 * are the sandbox's own inodes, so that not even a lock on /dev/null is shared. Without root they are bound from the
 * host one by one, never /dev as a whole.
 */
#include <stdio.h>
#include <sys/sysmacros.h>

#include "jail/plan.h"
#include "jail/sys.h"

#define KVM_MAJOR 10
#define KVM_MINOR 232

static const struct {
    const char *name;
    unsigned major, minor;
} nodes[] = {{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};

static int bind_node(int dev, const char *name)
{
    char source[32];

    snprintf(source, sizeof source, "/d/%s", name);
    AUTO_FD int made = SYS(openat(dev, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (made < 0)
        return -1;
    AUTO_FD int fd = SYS(open_tree(AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
    if (fd < 0 || mount_attributes(fd, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, false) < 0)
        return -1;
    return mount_attach(fd, dev, name);
}

static int make_nodes(struct enter *e, int dev)
{
    for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
        if (e->plan->mknod_devices)
            TRY(e, nodes[i].name,
                SYS(mknodat(dev, nodes[i].name, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor))));
        else
            TRY(e, nodes[i].name, bind_node(dev, nodes[i].name));
    }
    return 0;
}

/* A node proves nothing: the kernel may have no KVM, or the machine no extensions for it. */
static int make_kvm(struct enter *e, int dev)
{
    TRY(e, "kvm", SYS(mknodat(dev, "kvm", S_IFCHR | 0666, makedev(KVM_MAJOR, KVM_MINOR))));
    AUTO_FD int fd = SYS(openat(dev, "kvm", O_RDWR | O_CLOEXEC));
    TRY(e, "/dev/kvm", fd);
    return 0;
}

static int make_links(struct enter *e, int dev)
{
    static const char *const links[][2] = {
        {"/proc/self/fd", "fd"},       {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
        {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(links); i++)
        TRY(e, links[i][1], SYS(symlinkat(links[i][0], dev, links[i][1])));
    return 0;
}

/*
 * The tmpfs of the root is mounted again with nodes allowed, which saves a file system. The kernel keeps a map of the
 * shrinkers of all file systems in each memory cgroup, so every file system makes every memory cgroup of the host
 * larger: 30 KiB at two thousand sandboxes.
 */
static int on_the_roots(struct enter *e)
{
    struct mount_attr attr = {
        .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, .attr_clr = MOUNT_ATTR_NODEV, .propagation = MS_PRIVATE};
    AUTO_FD int dev = SYS(open_tree(e->root_fd, "dev", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));

    if (dev < 0 || SYS(mount_setattr(dev, "", AT_EMPTY_PATH, &attr, sizeof attr)) < 0)
        return -1;
    return take_fd(&dev);
}

int enter_dev(struct enter *e)
{
    static const struct mount_option options[] = {{"mode", "755"}, {"size", "4k"}, {"nr_inodes", "32"}};
    static const struct mount_option pts_options[] = {
        {"ptmxmode", "0666"}, {"mode", "0620"}, {"max", "64"}}; /* their number is the host's */
    bool plain = !plan_other_root(e->plan);                     /* else the root is an overlay that nobody writes to */

    AUTO_FD int dev = plain ? on_the_roots(e)
                            : mount_make("tmpfs", options, ARRAY_SIZE(options), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    TRY(e, "tmpfs", dev);
    TRY(e, "/dev", mount_attach(dev, e->root_fd, "dev"));
    int r = make_nodes(e, dev);
    if (r == 0 && e->plan->kvm)
        r = make_kvm(e, dev);
    if (r == 0)
        r = make_links(e, dev);
    if (r < 0)
        return r;
    TRY(e, "pts", SYS(mkdirat(dev, "pts", 0755)));
    TRY(e, "shm", SYS(mkdirat(dev, "shm", 0755)));
    AUTO_FD int pts = mount_make("devpts", pts_options, ARRAY_SIZE(pts_options), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    TRY(e, "devpts", pts);
    TRY(e, "/dev/pts", mount_attach(pts, dev, "pts"));
    /* Read-only for names; nodes stay usable. */
    TRY(e, "/dev", mount_attributes(dev, MOUNT_ATTR_RDONLY, false));
    return 0;
}
