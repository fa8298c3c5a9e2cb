/* SPDX-License-Identifier: Apache-2.0 */
/* Changing the mount tree, and gaining privileges through files: set-id bits and security attributes (F27 to F33). */
#include "probe.h"

#include <linux/mount.h>
#include <linux/openat2.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#ifndef MS_RDONLY
#include <sys/mount.h>
#endif
enum { BIND = 4096, REC = 16384, REMOUNT = 32, RDONLY = 1, MOVE = 8192, PRIVATE = 1 << 18, SHARED = 1 << 20 };

static long do_mount(const char *src, const char *dst, const char *type, unsigned long flags, const char *data)
{
    return syscall(SYS_mount, src, dst, type, flags, data);
}

static void f27_mount_all(int argc, char **argv)
{
    static const char *const types[] = {"tmpfs",   "proc",    "sysfs",      "overlay",     "devpts",
                                        "mqueue",  "cgroup",  "cgroup2",    "ramfs",       "devtmpfs",
                                        "debugfs", "tracefs", "securityfs", "bpf",         "fuse",
                                        "nfs",     "9p",      "ext4",       "binfmt_misc", "efivarfs"};
    static const char *const masks[] = {"/proc",      "/dev", "/dev/pts", "/dev/shm", "/tmp",
                                        "/workspace", "/usr", "/etc",     "/",        "/probe"};
    struct mount_attr attr = {.attr_clr = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    const char *dir = scratch();
    (void)argc, (void)argv;

    if (in_host_ns("mnt")) {
        breach("mount-namespace", "runs in the host's; nothing was tried");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (REFUSED(nm("mount-%s", types[i]), do_mount("none", dir, types[i], 0, NULL), EPERM, ENOSYS) == 0)
            syscall(SYS_umount2, dir, 2);
        REFUSED(nm("fsopen-%s", types[i]), syscall(SYS_fsopen, types[i], 0), EPERM, ENOSYS);
    }
    REFUSED("bind", do_mount("/usr", dir, NULL, BIND, NULL), EPERM, ENOSYS);
    REFUSED("rbind", do_mount("/", dir, NULL, BIND | REC, NULL), EPERM, ENOSYS);
    REFUSED("move", do_mount("/proc", dir, NULL, MOVE, NULL), EPERM, ENOSYS);
    REFUSED("shared", do_mount(NULL, "/", NULL, SHARED | REC, NULL), EPERM, ENOSYS);
    REFUSED("private", do_mount(NULL, "/", NULL, PRIVATE | REC, NULL), EPERM, ENOSYS);
    REFUSED("loop-ext4", do_mount("/dev/loop0", dir, "ext4", 0, NULL), EPERM, ENOSYS);
    REFUSED("wide-flags", do_mount("none", dir, "tmpfs", 0xC0ED0000UL << 32 | 0xC0ED0000UL, NULL), EPERM, ENOSYS);
    REFUSED("open-tree", syscall(SYS_open_tree, AT_FDCWD, "/usr", OPEN_TREE_CLONE | O_CLOEXEC), EPERM, ENOSYS);
    REFUSED("open-tree-attr", syscall(NR_open_tree_attr, AT_FDCWD, "/usr", OPEN_TREE_CLONE, &attr, sizeof(attr)), EPERM,
            ENOSYS);
    REFUSED("fspick", syscall(SYS_fspick, AT_FDCWD, "/proc", 0), EPERM, ENOSYS);
    REFUSED("fsconfig", syscall(SYS_fsconfig, 0, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0), EPERM, ENOSYS);
    REFUSED("fsmount", syscall(SYS_fsmount, 0, 0, 0), EPERM, ENOSYS);
    REFUSED("move-mount", syscall(SYS_move_mount, AT_FDCWD, "/proc", AT_FDCWD, dir, 0), EPERM, ENOSYS);
    REFUSED("mount-setattr", syscall(SYS_mount_setattr, AT_FDCWD, "/", 0x8000 /* AT_RECURSIVE */, &attr, sizeof(attr)),
            EPERM, ENOSYS);
    REFUSED("statmount", syscall(NR_statmount, NULL, NULL, 0, 0), EPERM, ENOSYS);
    REFUSED("listmount", syscall(NR_listmount, NULL, NULL, 0, 0), EPERM, ENOSYS);
    REFUSED("swapon", syscall(SYS_swapon, "/workspace/swap", 0), EPERM, ENOSYS);
    REFUSED("quotactl", syscall(SYS_quotactl, 0x800004 << 8, "/dev/loop0", 0, NULL), EPERM, ENOSYS);
    /* Only where mounting was refused: else these would really take things away. */
    for (size_t i = 0; i < ARRAY_LEN(masks) && probe_status() == 0; i++) {
        REFUSED(nm("umount-%s", masks[i]), syscall(SYS_umount2, masks[i], 2 /* MNT_DETACH */), EPERM, ENOSYS);
        REFUSED(nm("umount-force-%s", masks[i]), syscall(SYS_umount2, masks[i], 1), EPERM, ENOSYS);
    }
    /* Still in place after all that. */
    if (!gentle() && !given("HOSTILE_PROFILE")) {
        expect(access("/proc/self/status", R_OK) == 0, "proc-stays", "/proc is gone");
        expect(access("/proc/sys", F_OK) < 0, "proc-still-subset", "/proc/sys appeared");
        expect(access("/sys/kernel", F_OK) < 0, "no-sysfs", "/sys/kernel appeared");
    }
}

static void f28_remount_rw(int argc, char **argv)
{
    static char text[256 * 1024];
    struct mount_attr attr = {.attr_clr = MOUNT_ATTR_RDONLY};
    (void)argc, (void)argv;

    if (in_host_ns("mnt")) {
        breach("mount-namespace", "runs in the host's; nothing was tried");
        return;
    }
    if (slurp("/proc/self/mounts", text, sizeof(text)) < 0) {
        untried("mounts", "cannot read /proc/self/mounts");
        return;
    }
    for (char *save = NULL, *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        char *inner = NULL, *point;
        strtok_r(l, " ", &inner);
        if (!(point = strtok_r(NULL, " ", &inner)))
            continue;
        long rc = REFUSED(nm("bind-%s", point), do_mount(NULL, point, NULL, REMOUNT | BIND, NULL), EPERM);
        if (rc < 0 && !gentle()) /* where the first works, this would change the host's own file system */
            REFUSED(nm("super-%s", point), do_mount(NULL, point, NULL, REMOUNT, NULL), EPERM);
        REFUSED(nm("setattr-%s", point), syscall(SYS_mount_setattr, AT_FDCWD, point, 0, &attr, sizeof(attr)), EPERM,
                ENOSYS);
    }
}

static void f30_pivot(int argc, char **argv)
{
    (void)argc, (void)argv;
    REFUSED("pivot-root", syscall(SYS_pivot_root, ".", "."), EPERM);
    REFUSED("pivot-root-tmp", syscall(SYS_pivot_root, "/tmp", "/tmp"), EPERM);
    REFUSED("chroot-root", chroot("/"), EPERM);
    REFUSED("chroot-proc", chroot("/proc/self/cwd"), EPERM);
    if (!in_host_ns("mnt") || gentle())
        REFUSED("chroot-tmp", chroot("/tmp"), EPERM);
}

static long create_mode(const char *path, const char *how)
{
    struct open_how oh = {.flags = O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, .mode = 04755};

    unlink(path);
    if (strcmp(how, "creat") == 0)
        return syscall(SYS_creat, path, 04755);
    if (strcmp(how, "open") == 0)
        return syscall(SYS_open, path, O_CREAT | O_EXCL | O_WRONLY, 04755);
    if (strcmp(how, "openat") == 0)
        return syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_EXCL | O_WRONLY, 06755);
    if (strcmp(how, "tmpfile") == 0)
        return syscall(SYS_openat, AT_FDCWD, scratch(), O_TMPFILE | O_WRONLY, 04755);
    return syscall(SYS_openat2, AT_FDCWD, path, &oh, sizeof(oh));
}

static void try_setid_bits(void)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/suid", scratch());
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0755);
    static const mode_t modes[] = {04755, 02755, 06755, 04000};
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        REFUSED(nm("chmod-%o", modes[i]), chmod(path, modes[i]), EPERM);
        REFUSED(nm("fchmod-%o", modes[i]), fchmod(fd, modes[i]), EPERM);
        REFUSED(nm("fchmodat-%o", modes[i]), syscall(SYS_fchmodat, AT_FDCWD, path, modes[i]), EPERM);
        REFUSED(nm("fchmodat2-%o", modes[i]), syscall(NR_fchmodat2, AT_FDCWD, path, modes[i], 0), EPERM, ENOSYS);
    }
    /* The kernel cuts a mode to 16 bits: a filter that compares more would let this one pass. */
    REFUSED("chmod-wide", syscall(SYS_chmod, path, 0x100000000UL | 04755), EPERM);
    REFUSED("chmod-mode16", syscall(SYS_chmod, path, 0x10000UL | 04755), EPERM);
    unlink(path);
    REFUSED("mknod-regular", mknod(path, S_IFREG | 04755, 0), EPERM);
    unlink(path);
    /* `default` documents that creation (open, creat) can still ask for the bits; `paranoid` closes it. */
    if (given("HOSTILE_PROFILE") && strcmp(given("HOSTILE_PROFILE"), "paranoid") == 0) {
        static const char *const hows[] = {"creat", "open", "openat", "tmpfile", "openat2"};
        for (size_t i = 0; i < ARRAY_LEN(hows); i++)
            REFUSED(nm("create-%s", hows[i]), create_mode(path, hows[i]), EPERM, ENOSYS);
        unlink(path);
    }
    close(fd);
}

static void exec_suid(void *path)
{
    execl(path, path, "whoami", NULL);
    _exit(errno == EACCES || errno == EPERM || errno == ENOENT ? 3 : 4);
}

static void f31_setuid_bin(int argc, char **argv)
{
    char status[4096], path[PATH_MAX];
    (void)argc, (void)argv;

    try_setid_bits();
    if (slurp("/proc/self/status", status, sizeof(status)) > 0)
        expect(strstr(status, "NoNewPrivs:\t1"), "no-new-privs", "is not 1");
    /* A copy of this program, set-uid root, planted by the harness on the host. */
    snprintf(path, sizeof(path), "%s/suid-probe",
             gentle() && given("HOSTILE_HOST_DIR") ? given("HOSTILE_HOST_DIR") : "/probe");
    if (access(path, X_OK) < 0) {
        untried("suid-exec", "no %s", path);
        return;
    }
    int st = in_child(exec_suid, path, 5);
    if (!WIFEXITED(st) || WEXITSTATUS(st) == 4)
        untried("suid-exec", "wait status %x", st);
    else
        expect(WEXITSTATUS(st) != 1, "suid-exec", "the effective id changed");
    /* The distribution's own set-uid programs: none may give another effective id; each is asked for its version. */
    static const char *const bins[] = {"/usr/bin/su",     "/usr/bin/passwd", "/usr/bin/mount",
                                       "/usr/bin/newgrp", "/usr/bin/chsh",   "/usr/bin/sudo"};
    for (size_t i = 0; i < ARRAY_LEN(bins); i++) {
        struct stat sb;
        if (stat(bins[i], &sb) == 0 && (sb.st_mode & 06000) != 0 && !gentle())
            expect(sb.st_uid != getuid(), nm("owner-%s", bins[i]), "is owned by us and set-uid");
    }
}

/* Run as the set-uid copy: did the id change? */
static void whoami(int argc, char **argv)
{
    (void)argc, (void)argv;
    if (geteuid() != getuid() || getegid() != getgid())
        breach("whoami", "uid %d euid %d gid %d egid %d", getuid(), geteuid(), getgid(), getegid());
    else
        held("whoami");
}

static void f33_xattr_security(int argc, char **argv)
{
    static const char *const names[] = {"security.capability", "security.ima", "security.evm", "security.SMACK64",
                                        "trusted.hostile"};
    /* VFS_CAP_REVISION_2 with every capability. */
    static const uint32_t all_caps[5] = {0x02000001, 0xffffffff, 0, 0xffffffff, 0};
    static const unsigned char acl[] = {2, 0, 0,    0,    1,    0,    6,    0, 0xff, 0xff, 0xff, 0xff, 4,    0,
                                        4, 0, 0xff, 0xff, 0xff, 0xff, 0x20, 0, 4,    0,    0xff, 0xff, 0xff, 0xff};
    struct {
        uint64_t value;
        uint32_t size, flags;
    } args = {.value = (uintptr_t)all_caps, .size = sizeof(all_caps)};
    char path[PATH_MAX], value[3000];
    (void)argc, (void)argv;

    snprintf(path, sizeof(path), "%s/x", scratch());
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0755);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        REFUSED(nm("set-%s", names[i]), setxattr(path, names[i], all_caps, sizeof(all_caps), 0), EPERM, EOPNOTSUPP);
        REFUSED(nm("fset-%s", names[i]), fsetxattr(fd, names[i], all_caps, sizeof(all_caps), 0), EPERM, EOPNOTSUPP);
        REFUSED(nm("lset-%s", names[i]), lsetxattr(path, names[i], all_caps, sizeof(all_caps), 0), EPERM, EOPNOTSUPP);
        REFUSED(nm("setat-%s", names[i]), syscall(NR_setxattrat, AT_FDCWD, path, 0, names[i], &args, sizeof(args)),
                EPERM, EOPNOTSUPP, ENOSYS);
        REFUSED(nm("remove-%s", names[i]), removexattr(path, names[i]), EPERM, EOPNOTSUPP, ENODATA);
    }
    /* SELinux without a policy lets an owner label its files; the label is inert. */
    if (setxattr(path, "security.selinux", "u:r:t:s0", 9, 0) < 0)
        judge_refused("set-security.selinux", -1, errno, ERRS(EPERM, EOPNOTSUPP, EINVAL));
    else
        held("set-security.selinux");
    /* An access list gives rights to others, who do not exist here: harmless, but it must not be a kernel surprise. */
    if (setxattr(path, "system.posix_acl_access", acl, sizeof(acl), 0) < 0)
        judge_refused("posix-acl", -1, errno, ERRS(EPERM, EOPNOTSUPP, EINVAL));
    else
        held("posix-acl");
    /*
     * Attributes take space of the store: many of them must end in ENOSPC (or the per-file limit), not in free space.
     */
    memset(value, 'x', sizeof(value));
    for (int i = 0; i < 4096; i++) {
        if (fsetxattr(fd, nm("user.hostile%d", i), value, sizeof(value), 0) < 0) {
            judge_refused("user-xattr-bounded", -1, errno, ERRS(ENOSPC, E2BIG, EOPNOTSUPP, EPERM, EDQUOT, ENOMEM));
            close(fd);
            return;
        }
    }
    if (gentle())
        untried("user-xattr-bounded", "4096 attributes were stored");
    else
        breach("user-xattr-bounded", "4096 attributes of 3000 bytes on one file");
    close(fd);
}

const struct probe_case mount_cases[] = {
    {"F27", f27_mount_all}, {"F28", f28_remount_rw},     {"F30", f30_pivot}, {"F31", f31_setuid_bin},
    {"whoami", whoami},     {"F33", f33_xattr_security}, {NULL, NULL},
};
