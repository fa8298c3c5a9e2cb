/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounts.c: builds the root file system of one sandbox in its own mount namespace, before the user namespace exists.
 *
 * The inherited tree is the spawner's minimal one (host_tree.c):
 *
 *     /r /r2 /s /x   places to attach what is being built     /t/usr ...  the template's host directories
 *     /etc-skel      the generated /etc (etc_template.c)       /proc       one full procfs (needed to mount ours)
 *     /empty         nothing, to look at                       /old        the host's tree, until the first clone
 *     /trust         CA bundles of sandboxes (trust.c)         /n          a sudo that says that there is none
 *
 * The new root is a tmpfs at /r with directories and links. /usr and /etc are overlays without an upper layer, one per
 * sandbox and never a shared bind: with a bind, file locks on /usr would be a channel between sandboxes. With another
 * root file system, the tmpfs becomes the top layer of an overlay over it, so that our real /dev, /proc and /tmp hide
 * whatever links the image has there.
 */
#include <stdio.h>
#include <string.h>

#include "gate/address.h"
#include "jail/plan.h"
#include "jail/sys.h"

#define RO_ATTR (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define RW_ATTR (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

static int make_dirs(struct enter *e)
{
    static const char *const dirs[] = {"proc",    "dev", "etc",  "tmp",       "var",
                                       "var/tmp", "run", "home", "home/user", "workspace"};
    /* A directory of ours hides the mode and owner that the layers have for it: where those count, only these three. */
    const size_t n = e->plan->raw_upper ? 3 : ARRAY_SIZE(dirs);

    for (size_t i = 0; i < n; i++)
        TRY(e, dirs[i], SYS(mkdirat(e->root_fd, dirs[i], 0755)));
    if (e->plan->root_inside && !e->plan->raw_upper)
        TRY(e, "root", SYS(mkdirat(e->root_fd, "root", 0700)));
    return 0;
}

static int write_file(struct enter *e, const char *path, const char *text)
{
    AUTO_FD int fd = SYS(openat(e->root_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));

    TRY(e, path, fd);
    TRY(e, path, SYS(write(fd, text, strlen(text))));
    return 0;
}

/* /etc/hostname and /etc/hosts differ by sandbox; they lie under the overlay that brings the rest. */
static int write_names(struct enter *e)
{
    char text[256];

    snprintf(text, sizeof text, "%s\n", e->plan->hostname);
    int r = write_file(e, "etc/hostname", text);
    if (r < 0)
        return r;
    snprintf(text, sizeof text, "127.0.0.1 localhost %s\n::1 localhost ip6-localhost ip6-loopback\n",
             e->plan->hostname);
    r = write_file(e, "etc/hosts", text);
    return r < 0 || !e->plan->raw_upper
               ? r
               : write_file(e, "etc/resolv.conf", "nameserver " GATE_RESOLVER_V4 "\noptions timeout:2 attempts:1\n");
}

int enter_root(struct enter *e)
{
    struct mount_option options[] = {{"mode", "755"}, {"size", e->plan->sudo ? "5m" : "1m"}, {"nr_inodes", "512"}};
    bool loose = plan_off(e->plan, BRIG_LAYER_ROOT_READONLY);

    e->root_fd = mount_make("tmpfs", options, ARRAY_SIZE(options), RW_ATTR);
    TRY(e, "tmpfs", e->root_fd);
    TRY(e, "/r", mount_attach(e->root_fd, AT_FDCWD, "/r"));
    int r = make_dirs(e);
    if (r == 0)
        r = write_names(e);
    if (r == 0 && loose)
        TRY(e, "chmod", SYS(fchmodat(e->root_fd, "etc", 0777, 0)));
    return r;
}

/*
 * Mounts an overlay over `lower` at `path` of the new root: read-only without an upper layer, else with one in the
 * store under `name`. Without an upper layer the kernel wants two lower layers.
 */
static int attach_overlay(struct enter *e, const char *lower, const char *path, const char *name)
{
    char lowerdir[256], upper[64], work[64];
    struct mount_option options[5] = {{"lowerdir", lowerdir}};
    unsigned n = 1;
    bool writable = e->plan->writable_root;

    snprintf(lowerdir, sizeof lowerdir, writable || strchr(lower, ':') ? "%s" : "%s:/empty", lower);
    if (writable) {
        snprintf(upper, sizeof upper, "/s/upper/%s", name);
        snprintf(work, sizeof work, "/s/work/%s", name);
        bool kept = e->plan->disk_kept && SYS(faccessat(AT_FDCWD, upper, F_OK, 0)) == 0;
        TRY(e, upper, enter_store_dir(e, upper, 0755));
        TRY(e, work, enter_store_dir(e, work, 0755));
        if (!kept)
            TRY(e, upper,
                SYS(fchownat(AT_FDCWD, upper, plan_owner(e->plan), plan_owner(e->plan), AT_SYMLINK_NOFOLLOW)));
        options[n++] = (struct mount_option){"upperdir", upper};
        options[n++] = (struct mount_option){"workdir", work};
        if (e->plan->disk) /* a copy lies over another copy of the same lower layer */
            options[n++] = (struct mount_option){"index", "off"};
        if (e->plan->userxattr)
            options[n++] = (struct mount_option){"userxattr", NULL};
    }
    AUTO_FD int fd = mount_make("overlay", options, n, writable ? RW_ATTR : RO_ATTR);
    TRY(e, "overlay", fd);
    if (writable)
        TRY(e, "overlay", mount_is_writable(fd));
    if (strcmp(path, "/") == 0) {
        TRY(e, "/r2", mount_attach(fd, AT_FDCWD, "/r2"));
        close(e->root_fd);
        e->root_fd = take_fd(&fd);
        return 0;
    }
    TRY(e, path, mount_attach(fd, e->root_fd, path));
    return 0;
}

/* Places for binds and tmpfs that the other root does not have: in our layer, since the result cannot be written. */
static int make_missing(struct enter *e, int other_root, const char *path, bool is_dir)
{
    AUTO_FD int there = mount_target(other_root, path);

    if (there >= 0 || errno != ENOENT)
        return 0; /* what is wrong with it shows when it is mounted on */
    TRY(e, path, mount_make_target(e->root_fd, path, is_dir));
    return 0;
}

/*
 * Makes a place for a CA bundle. If a directory on the way is a link, nothing is made, because our directory would hide
 * it. Then the bundle cannot be attached, and the code that tries reports it.
 */
static int make_bundle_place(struct enter *e, int other_root)
{
    AUTO_FD int dir = SYS(sys_openat2(other_root, "etc/ssl/certs", O_PATH, 0, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS));

    return dir < 0 && errno == ELOOP ? 0 : make_missing(e, other_root, TRUST_PLACE, false);
}

int enter_missing(struct enter *e, int other_root)
{
    const struct jail_plan *p = e->plan;
    int r = 0;

    for (unsigned i = 0; r == 0 && i < p->n_binds; i++)
        if (p->binds[i].mount_fd >= 0)
            r = make_missing(e, other_root, p->binds[i].target, p->binds[i].is_dir);
    for (unsigned i = 0; r == 0 && i < p->n_tmpfs; i++)
        r = make_missing(e, other_root, p->tmpfs[i].path, true);
    for (unsigned i = 0; r == 0 && i < p->n_volumes; i++)
        r = make_missing(e, other_root, p->volumes[i].target, true);
    if (r == 0)
        r = enter_sudo(e, other_root);
    return r == 0 && p->trust ? make_bundle_place(e, other_root) : r;
}

/* Another root: our directories as top layer over it. */
static int template_rootfs(struct enter *e)
{
    int r = enter_missing(e, e->plan->rootfs_fd);

    if (r < 0)
        return r;
    AUTO_FD int place = SYS(sys_openat2(AT_FDCWD, "/x", O_PATH | O_DIRECTORY, 0, 0));

    TRY(e, "/x", place);
    TRY(e, "rootfs", mount_attributes(e->plan->rootfs_fd, RO_ATTR, true));
    TRY(e, "rootfs",
        SYS(move_mount(e->plan->rootfs_fd, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)));
    return attach_overlay(e, "/r:/x", "/", "root");
}

/*
 * The layers of a directory of the template host. What is in /r there is sudo, where the sandbox has it; elsewhere the
 * lowest layer has one that says so (host_tree.c), unless programs are root anyway.
 */
static void lower_layers(const struct jail_plan *p, const char *dir, char *out, size_t size)
{
    bool usr = strcmp(dir, "usr") == 0;

    snprintf(out, size, "%s/t/%s%s", usr && p->sudo ? "/r/usr:" : "", dir, usr && !p->root_inside ? ":/n" : "");
}

static int make_host_dirs(struct enter *e)
{
    const struct jail_plan *p = e->plan;

    for (unsigned i = 0; i < PLAN_LOWER_DIRS && p->lower_dirs[i]; i++)
        TRY(e, p->lower_dirs[i], SYS(mkdirat(e->root_fd, p->lower_dirs[i], 0755)));
    for (unsigned i = 0; i < PLAN_LOWER_DIRS && p->root_links[i][0]; i++)
        TRY(e, p->root_links[i][0], SYS(symlinkat(p->root_links[i][1], e->root_fd, p->root_links[i][0])));
    if (!p->sudo)
        return 0;
    AUTO_FD int template = SYS(open("/t", O_PATH | O_DIRECTORY | O_CLOEXEC));
    TRY(e, "/t", template);
    return enter_sudo(e, template);
}

int enter_template(struct enter *e)
{
    const struct jail_plan *p = e->plan;

    if (plan_other_root(p))
        return p->n_layers > 0 ? enter_layers(e) : template_rootfs(e);
    int r = make_host_dirs(e);
    if (r < 0)
        return r;
    if (p->writable_root) {
        r = attach_overlay(e, "/r", "/", "root");
        if (r < 0)
            return r;
    }
    for (unsigned i = 0; i < PLAN_LOWER_DIRS && p->lower_dirs[i]; i++) {
        char place[64], lower[96];
        snprintf(place, sizeof place, "/t/%s", p->lower_dirs[i]);
        TRY(e, "ids of the template", owner_map_place(p, place));
        lower_layers(p, p->lower_dirs[i], lower, sizeof lower);
        r = attach_overlay(e, lower, p->lower_dirs[i], p->lower_dirs[i]);
        if (r < 0)
            return r;
    }
    return enter_new_layer(e);
}

int enter_etc(struct enter *e)
{
    if (plan_other_root(e->plan))
        return 0; /* the image's own /etc, under our hosts and hostname */
    TRY(e, "ids of /etc", owner_map_place(e->plan, "/etc-skel"));
    return attach_overlay(e, "/r/etc:/etc-skel", "etc", "etc");
}

/*
 * Opens /proc/sys for enter_sysctl(). The host's would do, but the kernel keeps an entry of each name there for every
 * user namespace that has looked, in one chain: with thousands of sandboxes a look takes milliseconds. So where there
 * are many, each uses a procfs of its own, which is gone when the descriptor is closed.
 */
static int open_sysctl(struct enter *e)
{
    if (!e->plan->own_sysctl)
        return 0;
    AUTO_FD int proc = mount_make("proc", NULL, 0, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    TRY(e, "proc for sysctl", proc);
    int fd = SYS(openat(proc, "sys", O_PATH | O_DIRECTORY | O_CLOEXEC));
    TRY(e, "proc for sysctl", fd);
    close(e->sysctl_fd);
    e->sysctl_fd = fd;
    return 0;
}

int enter_proc(struct enter *e)
{
    static const struct mount_option options[] = {{"hidepid", "ptraceable"}, {"subset", "pid"}};
    bool compat = e->plan->profile == BRIG_PROFILE_COMPAT;
    bool loose = plan_off(e->plan, BRIG_LAYER_PROC);
    unsigned n = loose ? 0 : compat ? 1 : 2;

    AUTO_FD int fd = mount_make("proc", options, n, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    TRY(e, "proc", fd);
    TRY(e, "/proc", mount_attach(fd, e->root_fd, "proc"));
    int r = open_sysctl(e);
    if (r < 0)
        return r;
    return compat && !loose ? enter_proc_compat(e, fd) : 0;
}

/* Makes the place for a bind or tmpfs where the root does not have it: only in what we build ourselves. */
static int ensure_target(struct enter *e, const char *path, bool is_dir)
{
    AUTO_FD int there = mount_target(e->root_fd, path);

    if (there >= 0 || errno != ENOENT)
        return there < 0 ? -1 : 0;
    return mount_make_target(e->root_fd, path, is_dir);
}

/*
 * Opens a target that the caller named, in the tree that we built. It follows no symbolic link, because an earlier run
 * may have left one in a writable bind. In another root its own links (/var/run) are followed inside it.
 */
static int attach_at(struct enter *e, int mount_fd, const char *path)
{
    uint64_t links = plan_other_root(e->plan) ? 0 : RESOLVE_NO_SYMLINKS;
    AUTO_FD int target = SYS(sys_openat2(e->root_fd, path, O_PATH, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | links));

    if (target < 0)
        return -1;
    return SYS(move_mount(mount_fd, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
}

int enter_attach(struct enter *e, int mount_fd, const char *path, bool is_dir)
{
    TRY(e, path, ensure_target(e, path, is_dir));
    TRY(e, path, attach_at(e, mount_fd, path));
    return 0;
}

/*
 * Mounts an overlay over the source of bind number i. The upper and work directories lie in the store; the source is
 * attached read-only at a place of the store that no program ever sees. The overlay keeps a private copy of that mount,
 * with its map of ids (5.19), so the place can be removed with the old root. If the upper has no xattrs, an overlay
 * would work until the first directory that hides a lower one; so it is refused before that.
 */
static int make_overlay(struct enter *e, unsigned i)
{
    const struct jail_plan *p = e->plan;
    char lower[32], upper[32], work[32];
    struct mount_option options[] = {{"lowerdir", lower}, {"upperdir", upper}, {"workdir", work}, {"userxattr", NULL}};

    snprintf(lower, sizeof lower, "/s/" STORE_LOWER "/%u", i);
    snprintf(upper, sizeof upper, "/s/upper/bind%u", i);
    snprintf(work, sizeof work, "/s/work/bind%u", i);
    TRY(e, lower, enter_store_dir(e, lower, 0700));
    TRY(e, upper, enter_store_dir(e, upper, 0755));
    TRY(e, work, enter_store_dir(e, work, 0700));
    TRY(e, upper, SYS(fchownat(AT_FDCWD, upper, plan_owner(p), plan_owner(p), AT_SYMLINK_NOFOLLOW)));
    TRY(e, lower, mount_attributes(p->binds[i].mount_fd, RO_ATTR, true));
    TRY(e, lower, mount_attach(p->binds[i].mount_fd, AT_FDCWD, lower));
    int fd = mount_make("overlay", options, p->userxattr ? 4 : 3, RW_ATTR);
    TRY(e, "overlay", fd);
    return fd;
}

/*
 * What the root itself has at a path can be written to no more. Its own links are followed inside it. A link may lead
 * to where our own mounts are, so these come along and are not covered.
 */
static int attach_read_only(struct enter *e, const char *path)
{
    const unsigned flags = AT_EMPTY_PATH | AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC;
    AUTO_FD int at = SYS(sys_openat2(e->root_fd, path, O_PATH, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS));
    AUTO_FD int copy = at < 0 ? -1 : SYS(open_tree(at, "", flags));

    if (copy < 0 || mount_attributes(copy, RO_ATTR, false) < 0)
        return -1;
    return SYS(move_mount(copy, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
}

int enter_binds(struct enter *e)
{
    for (unsigned i = 0; i < e->plan->n_binds; i++) {
        const struct plan_bind *bind = &e->plan->binds[i];
        if (bind->mount_fd < 0) {
            TRY(e, bind->target, attach_read_only(e, bind->target));
            continue;
        }
        uint64_t attr = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (bind->read_only ? MOUNT_ATTR_RDONLY : 0);
        AUTO_FD int overlay = bind->overlay ? make_overlay(e, i) : -1;

        if (bind->overlay && overlay < 0)
            return -1;
        if (!bind->overlay)
            TRY(e, bind->target, mount_attributes(bind->mount_fd, attr, true));
        TRY(e, bind->target, ensure_target(e, bind->target, bind->is_dir));
        TRY(e, bind->target, attach_at(e, bind->overlay ? overlay : bind->mount_fd, bind->target));
    }
    return 0;
}

int enter_tmpfs(struct enter *e)
{
    for (unsigned i = 0; i < e->plan->n_tmpfs; i++) {
        char size[32], uid[16], gid[16];
        struct mount_option options[] = {
            {"size", size}, {"mode", "755"}, {"uid", uid}, {"gid", gid}, {"nr_inodes", "65536"}};

        snprintf(size, sizeof size, "%llu", (unsigned long long)e->plan->tmpfs[i].size);
        snprintf(uid, sizeof uid, "%u", plan_owner(e->plan));
        snprintf(gid, sizeof gid, "%u", plan_owner(e->plan));
        AUTO_FD int fd = mount_make("tmpfs", options, ARRAY_SIZE(options), RW_ATTR);
        TRY(e, "tmpfs", fd);
        TRY(e, e->plan->tmpfs[i].path, ensure_target(e, e->plan->tmpfs[i].path, true));
        TRY(e, e->plan->tmpfs[i].path, attach_at(e, fd, e->plan->tmpfs[i].path));
    }
    return 0;
}

int enter_pivot(struct enter *e)
{
    if (!e->plan->writable_root && !plan_off(e->plan, BRIG_LAYER_ROOT_READONLY))
        TRY(e, "read-only root", mount_attributes(e->root_fd, MOUNT_ATTR_RDONLY, false));
    TRY(e, "fchdir", SYS(fchdir(e->root_fd)));
    TRY(e, "pivot_root", SYS(sys_pivot_root(".", ".")));
    TRY(e, "old root", SYS(umount2(".", MNT_DETACH)));
    TRY(e, "chdir", SYS(chdir("/")));
    close(e->root_fd);
    e->root_fd = -1;
    return 0;
}
