/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program tries that is root inside: uid 0 of the sandbox with seven capabilities, in a writable root (U01 to
 * U21). inside_more.c has the rest of the group.
 *
 * Each names the errno that is promised. Where the filter answers, that is its answer; where the kernel does, it is
 * because the user namespace owns neither the mounts nor the network, or because the capability is not among the seven.
 */
#include "probe.h"

#include <grp.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/xattr.h>

#define SEVEN                                                                                                    \
    (1ull << CAP_CHOWN | 1ull << CAP_DAC_OVERRIDE | 1ull << CAP_FOWNER | 1ull << CAP_FSETID | 1ull << CAP_KILL | \
     1ull << CAP_SETGID | 1ull << CAP_SETUID)

/* ---- mounts ------------------------------------------------------------------------------------------ */

static void u01_mount(int argc, char **argv)
{
    (void)argc, (void)argv;
    REFUSED("tmpfs", mount("none", "/mnt", "tmpfs", 0, NULL), EPERM);
    REFUSED("proc", mount("proc", "/proc", "proc", 0, NULL), EPERM);
    REFUSED("sysfs", mount("sysfs", "/tmp", "sysfs", 0, NULL), EPERM);
    REFUSED("cgroup", mount("cgroup2", "/tmp", "cgroup2", 0, NULL), EPERM);
    REFUSED("overlay", mount("overlay", "/tmp", "overlay", 0, "lowerdir=/:/usr"), EPERM);
    REFUSED("ext4", mount("/dev/loop0", "/tmp", "ext4", 0, NULL), EPERM);
    REFUSED("bind", mount("/", "/tmp", NULL, MS_BIND | MS_REC, NULL), EPERM);
    REFUSED("move", mount("/proc", "/tmp", NULL, MS_MOVE, NULL), EPERM);
    REFUSED("shared", mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL), EPERM);
    REFUSED("umount", syscall(SYS_umount2, "/proc", 0), EPERM);
    REFUSED("umount-detach", syscall(SYS_umount2, "/dev", MNT_DETACH), EPERM);
}

static void u02_remount(int argc, char **argv)
{
    static const char *const places[] = {"/", "/usr", "/etc", "/dev", "/proc", "/probe", "/workspace"};
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        REFUSED(nm("suid-%s", places[i]), mount(NULL, places[i], NULL, MS_REMOUNT | MS_BIND, NULL), EPERM);
        REFUSED(nm("rw-%s", places[i]), mount(NULL, places[i], NULL, MS_REMOUNT, "rw"), EPERM);
    }
}

static void u03_new_mount_api(int argc, char **argv)
{
    char attr[32] = {0};
    (void)argc, (void)argv;

    REFUSED("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", 1), ENOSYS);
    REFUSED("fsopen", syscall(SYS_fsopen, "tmpfs", 0), ENOSYS);
    REFUSED("fsopen-overlay", syscall(SYS_fsopen, "overlay", 0), ENOSYS);
    REFUSED("fsconfig", syscall(SYS_fsconfig, 0, 0, "a", "b", 0), ENOSYS);
    REFUSED("fsmount", syscall(SYS_fsmount, 0, 0, 0), ENOSYS);
    REFUSED("fspick", syscall(SYS_fspick, AT_FDCWD, "/", 0), ENOSYS);
    REFUSED("move_mount", syscall(SYS_move_mount, AT_FDCWD, "/", AT_FDCWD, "/tmp", 0), ENOSYS);
    REFUSED("mount_setattr", syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, attr, sizeof(attr)), ENOSYS);
    REFUSED("open_tree_attr", syscall(NR_open_tree_attr, AT_FDCWD, "/", 1, attr, sizeof(attr)), ENOSYS);
}

static void u04_chroot(int argc, char **argv)
{
    (void)argc, (void)argv;
    (void)!mkdir("/tmp/jail", 0755);
    REFUSED("chroot", chroot("/tmp/jail"), EPERM);
    REFUSED("chroot-root", chroot("/"), EPERM);
    REFUSED("pivot_root", syscall(SYS_pivot_root, "/", "/tmp/jail"), EPERM);
    REFUSED("pivot_root-dot", syscall(SYS_pivot_root, ".", "."), EPERM);
}

/* ---- device nodes ------------------------------------------------------------------------------------- */

static void u05_mknod(int argc, char **argv)
{
    static const char *const places[] = {"/", "/tmp", "/workspace", "/root", "/dev/shm"};
    const struct {
        const char *name;
        mode_t type;
        dev_t dev;
    } nodes[] = {{"null", S_IFCHR, makedev(1, 3)},   {"mem", S_IFCHR, makedev(1, 1)},
                 {"kmsg", S_IFCHR, makedev(1, 11)},  {"whiteout", S_IFCHR, makedev(0, 0)},
                 {"sda", S_IFBLK, makedev(8, 0)},    {"loop", S_IFBLK, makedev(7, 0)},
                 {"fuse", S_IFCHR, makedev(10, 229)}};
    char path[64];
    (void)argc, (void)argv;

    for (size_t p = 0; p < ARRAY_LEN(places); p++)
        for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
            snprintf(path, sizeof(path), "%s/node-%s", places[p], nodes[i].name);
            REFUSED(nm("%s", path), mknod(path, nodes[i].type | 0666, nodes[i].dev), EPERM);
            REFUSED(nm("at-%s", path), mknodat(AT_FDCWD, path, nodes[i].type | 0666, nodes[i].dev), EPERM);
        }
}

static void u06_dev(int argc, char **argv)
{
    (void)argc, (void)argv;
    /* A plain user's are bound from the host, and belong to nobody here. */
    REFUSED("chmod", chmod("/dev/null", 0600), mode_is("root") ? EROFS : EPERM);
    REFUSED("chown", chown("/dev/null", 1000, 1000), mode_is("root") ? EROFS : EPERM);
    REFUSED("unlink", unlink("/dev/null"), EROFS);
    REFUSED("rename", rename("/dev/null", "/dev/zero"), EROFS);
    REFUSED("symlink", symlink("/proc/self/mem", "/dev/mem"), EROFS);
    REFUSED("create", open("/dev/sda", O_CREAT | O_WRONLY, 0600), EROFS, EACCES);
    REFUSED("mknod", mknod("/dev/kmsg", S_IFCHR | 0600, makedev(1, 11)), EPERM);
}

/* A whiteout by another name: what it leaves must be no way to the layers below. */
static void u07_rename_whiteout(int argc, char **argv)
{
    struct stat st;
    (void)argc, (void)argv;

    int fd = open("/white", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0) {
        untried("root", "%s", strerror(errno));
        return;
    }
    close(fd);
    REFUSED("root", syscall(SYS_renameat2, AT_FDCWD, "/white", AT_FDCWD, "/white2", 4), EINVAL);
    expect(stat("/white", &st) == 0 && S_ISREG(st.st_mode), "root-stays", "mode %o", st.st_mode);
    unlink("/white");
}

/* ---- namespaces --------------------------------------------------------------------------------------- */

static void u08_unshare(int argc, char **argv)
{
    static const struct {
        const char *name;
        unsigned long flag;
    } kinds[] = {{"user", 0x10000000}, {"mnt", 0x20000},   {"pid", 0x20000000},   {"net", 0x40000000},
                 {"ipc", 0x8000000},   {"uts", 0x4000000}, {"cgroup", 0x2000000}, {"time", 0x80}};
    char path[64];
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        REFUSED(nm("unshare-%s", kinds[i].name), syscall(SYS_unshare, kinds[i].flag), EPERM);
        long pid =
            REFUSED(nm("clone-%s", kinds[i].name), syscall(SYS_clone, kinds[i].flag | SIGCHLD, 0, 0, 0, 0), EPERM);
        if (pid == 0)
            _exit(0);
        snprintf(path, sizeof(path), "/proc/self/ns/%s", kinds[i].name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            REFUSED(nm("setns-%s", kinds[i].name), setns(fd, 0), EPERM);
            REFUSED(nm("userns-of-%s", kinds[i].name), ioctl(fd, 0xb701), EPERM);
            close(fd);
        }
    }
}

/* ---- capabilities ------------------------------------------------------------------------------------- */

static unsigned long long status_caps(const char *which)
{
    char text[8192];
    const char *at = slurp("/proc/self/status", text, sizeof(text)) > 0 ? strstr(text, which) : NULL;

    return at ? strtoull(at + strlen(which) + 1, NULL, 16) : ~0ull;
}

static void u09_exactly_seven(int argc, char **argv)
{
    (void)argc, (void)argv;
    expect(status_caps("CapEff") == SEVEN, "effective", "%llx", status_caps("CapEff"));
    expect(status_caps("CapPrm") == SEVEN, "permitted", "%llx", status_caps("CapPrm"));
    expect(status_caps("CapBnd") == SEVEN, "bounding", "%llx", status_caps("CapBnd"));
    expect(status_caps("CapInh") == 0, "inheritable", "%llx", status_caps("CapInh"));
    expect(status_caps("CapAmb") == 0, "ambient", "%llx", status_caps("CapAmb"));
    expect(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1, "no_new_privs", "is off");
    expect(prctl(PR_GET_SECCOMP) == 2, "seccomp", "is off");
}

static void u10_capset(int argc, char **argv)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    (void)argc, (void)argv;

    for (unsigned cap = 0; cap <= CAP_LAST_CAP; cap++) {
        struct __user_cap_data_struct data[2];
        if (SEVEN & (1ull << cap))
            continue;
        syscall(SYS_capget, &head, data);
        data[cap / 32].permitted |= 1u << (cap % 32);
        REFUSED(nm("permitted-%u", cap), syscall(SYS_capset, &head, data), EPERM);
        syscall(SYS_capget, &head, data);
        data[cap / 32].effective |= 1u << (cap % 32);
        REFUSED(nm("effective-%u", cap), syscall(SYS_capset, &head, data), EPERM);
        syscall(SYS_capget, &head, data);
        data[cap / 32].inheritable |= 1u << (cap % 32);
        REFUSED(nm("inheritable-%u", cap), syscall(SYS_capset, &head, data), EPERM);
    }
    head.pid = 1;
    struct __user_cap_data_struct none[2] = {{0}};
    REFUSED("pid-1", syscall(SYS_capset, &head, none), EPERM);
}

/* What a program of root keeps over a change of ids is gone with the next execve. */
static void keep_and_exec(void *arg)
{
    (void)arg;
    (void)!prctl(PR_SET_KEEPCAPS, 1);
    if (setgroups(0, NULL) || setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000))
        return;
    execl("/proc/self/exe", "probe", "U15-inner", "keep-caps", (char *)NULL);
    breach("keep-caps", "%s", strerror(errno));
}

static void u11_securebits(int argc, char **argv)
{
    (void)argc, (void)argv;
    int bits = prctl(PR_GET_SECUREBITS);
    /* noroot and no_setuid_fixup locked as off; no ambient raise, locked. */
    expect(bits == 0xca, "bits", "%#x", (unsigned)bits);
    REFUSED("zero", prctl(PR_SET_SECUREBITS, 0), EPERM);
    REFUSED("noroot", prctl(PR_SET_SECUREBITS, bits | 1), EPERM);
    REFUSED("fixup", prctl(PR_SET_SECUREBITS, bits | 4), EPERM);
    in_child(keep_and_exec, NULL, 20);
}

static void u12_ambient(int argc, char **argv)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{SEVEN, SEVEN, SEVEN}, {0, 0, 0}};
    (void)argc, (void)argv;

    (void)!syscall(SYS_capset, &head, data); /* what is permitted may be inheritable; it must not become ambient */
    for (int cap = 0; cap <= CAP_LAST_CAP; cap++)
        REFUSED(nm("raise-%d", cap), prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0), EPERM);
}

static void u13_bounding(int argc, char **argv)
{
    (void)argc, (void)argv;
    for (int cap = 0; cap <= CAP_LAST_CAP; cap++) {
        int there = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);
        expect(there == (int)(SEVEN >> cap & 1), nm("read-%d", cap), "%d", there);
        REFUSED(nm("drop-%d", cap), prctl(PR_CAPBSET_DROP, cap, 0, 0, 0), EPERM);
    }
}

/* A change to an ordinary user must leave nothing, whichever call makes it. */
static void drop_and_look(void *arg)
{
    uid_t id = *(uid_t *)arg;

    if (syscall(SYS_setgroups, 0, NULL) || syscall(SYS_setresgid, id, id, id) || syscall(SYS_setresuid, id, id, id)) {
        breach(nm("become-%u", id), "%s", strerror(errno));
        return;
    }
    expect(status_caps("CapEff") == 0 && status_caps("CapPrm") == 0 && status_caps("CapAmb") == 0,
           nm("nothing-left-%u", id), "%llx %llx", status_caps("CapEff"), status_caps("CapPrm"));
    REFUSED(nm("back-%u", id), syscall(SYS_setuid, 0), EPERM);
    REFUSED(nm("back-res-%u", id), syscall(SYS_setresuid, -1, 0, -1), EPERM);
    REFUSED(nm("groups-%u", id), syscall(SYS_setgroups, 1, &(gid_t){0}), EPERM);
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{SEVEN, SEVEN, 0}, {0, 0, 0}};
    REFUSED(nm("capset-%u", id), syscall(SYS_capset, &head, data), EPERM);
    REFUSED(nm("root-file-%u", id), open("/root/only-root", O_WRONLY | O_CREAT, 0600), EACCES);
}

static void u14_drop(int argc, char **argv)
{
    static uid_t ids[] = {1, 33, 1000, 65534, 65535};
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        in_child(drop_and_look, &ids[i], 20);
}

/* ---- set-id files and file capabilities ---------------------------------------------------------------- */

static bool copy_self(const char *to, mode_t mode)
{
    static char block[1 << 16];
    int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    ssize_t n = -1;

    while (in >= 0 && out >= 0 && (n = read(in, block, sizeof(block))) > 0)
        if (write(out, block, (size_t)n) != n)
            break;
    bool whole = n == 0 && fchmod(out, mode) == 0;
    close(in);
    close(out);
    return whole;
}

/* What the set-id copy finds out about itself. */
static void u15_inner(int argc, char **argv)
{
    (void)argc;
    expect(geteuid() == 1000 && getegid() == 1000, nm("exec-%s-ids", argv[1]), "euid %u egid %u", geteuid(), getegid());
    expect(status_caps("CapEff") == 0 && status_caps("CapPrm") == 0, nm("exec-%s-caps", argv[1]), "%llx",
           status_caps("CapEff"));
}

static void exec_as_user(void *arg)
{
    const char *path = arg;

    if (setgroups(0, NULL) || setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000))
        return;
    execl(path, path, "U15-inner", path, (char *)NULL);
    breach(nm("exec-%s", path), "%s", strerror(errno));
}

static void u15_set_id(int argc, char **argv)
{
    static const char *const places[] = {"/usr-suid", "/workspace/suid", "/tmp/suid"};
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        struct stat st;
        if (!copy_self(places[i], 06755)) {
            untried(nm("%s", places[i]), "%s", strerror(errno));
            continue;
        }
        expect(stat(places[i], &st) == 0 && st.st_uid == 0 && (st.st_mode & 07777) == 06755, nm("made-%s", places[i]),
               "uid %u mode %o", st.st_uid, st.st_mode);
        in_child(exec_as_user, (void *)(uintptr_t)places[i], 20);
        unlink(places[i]);
    }
}

static void u16_file_caps(int argc, char **argv)
{
    struct vfs_cap_data v2 = {.magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE};
    struct vfs_ns_cap_data v3 = {.magic_etc = VFS_CAP_REVISION_3 | VFS_CAP_FLAGS_EFFECTIVE};
    (void)argc, (void)argv;

    v2.data[0].permitted = v3.data[0].permitted = ~0u;
    if (!copy_self("/workspace/caps", 0755)) {
        untried("copy", "%s", strerror(errno));
        return;
    }
    REFUSED("v2", setxattr("/workspace/caps", "security.capability", &v2, sizeof(v2), 0), EPERM);
    REFUSED("v3", setxattr("/workspace/caps", "security.capability", &v3, sizeof(v3), 0), EPERM);
    REFUSED("ima", setxattr("/workspace/caps", "security.ima", "a", 1, 0), EPERM, EOPNOTSUPP);
    REFUSED("trusted", setxattr("/workspace/caps", "trusted.x", "a", 1, 0), EPERM, EOPNOTSUPP);
}

/* ---- ids ----------------------------------------------------------------------------------------------- */

static void u17_unmapped(int argc, char **argv)
{
    static const uint32_t ids[] = {65536, 65537, 100000, 165536, 0x70000000u, 0x7fffffffu, 0xfffffffeu};
    const char *dir = scratch();
    char path[128];
    (void)argc, (void)argv;

    snprintf(path, sizeof(path), "%s/file", dir);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        REFUSED(nm("chown-%u", ids[i]), chown(path, ids[i], (gid_t)-1), EINVAL);
        REFUSED(nm("chgrp-%u", ids[i]), chown(path, (uid_t)-1, ids[i]), EINVAL);
        REFUSED(nm("setuid-%u", ids[i]), syscall(SYS_setuid, ids[i]), EINVAL);
        REFUSED(nm("setgid-%u", ids[i]), syscall(SYS_setgid, ids[i]), EINVAL);
        REFUSED(nm("setresuid-%u", ids[i]), syscall(SYS_setresuid, ids[i], ids[i], ids[i]), EINVAL);
        REFUSED(nm("setgroups-%u", ids[i]), syscall(SYS_setgroups, 1, &ids[i]), EINVAL);
    }
    REFUSED("setfsuid", syscall(SYS_setfsuid, 1000), EPERM);
    REFUSED("setfsgid", syscall(SYS_setfsgid, 1000), EPERM);
}

static void become_all(void *arg)
{
    (void)arg;
    unsigned wrong = 0;

    for (uint32_t id = 0; id <= 65535; id++)
        wrong += syscall(SYS_setresuid, -1, id, 0) != 0 || geteuid() != id || syscall(SYS_setresuid, -1, 0, 0) != 0;
    expect(wrong == 0, "all", "%u of 65,536 ids", wrong);
}

/* Every id of the range is the sandbox's own, so becoming each must work, and cost nobody else anything. */
static void u18_every_id(int argc, char **argv)
{
    (void)argc, (void)argv;
    in_child(become_all, NULL, 120);
    char text[256];
    expect(slurp("/proc/self/uid_map", text, sizeof(text)) > 0 && strstr(text, "65536") && !strchr(text, '\n')[1],
           "one-range", "%s", text);
    REFUSED("uid_map",
            open("/proc/self/uid_map", O_WRONLY) < 0 ? -1 : write(open("/proc/self/uid_map", O_WRONLY), "0 0 1", 5),
            EPERM, EACCES);
    REFUSED("setgroups",
            open("/proc/self/setgroups", O_WRONLY) < 0 ? -1 : write(open("/proc/self/setgroups", O_WRONLY), "deny", 4),
            EPERM, EACCES);
}

/* ---- pid 1 --------------------------------------------------------------------------------------------- */

static void u19_trace_init(int argc, char **argv)
{
    char word[8] = "";
    struct iovec here = {word, sizeof(word)}, there = {(void *)0x400000, sizeof(word)};
    (void)argc, (void)argv;

    REFUSED("attach", ptrace(PTRACE_ATTACH, 1, 0, 0), EPERM);
    REFUSED("seize", ptrace(PTRACE_SEIZE, 1, 0, 0), EPERM);
    REFUSED("vm_readv", syscall(SYS_process_vm_readv, 1, &here, 1, &there, 1, 0), EPERM);
    REFUSED("vm_writev", syscall(SYS_process_vm_writev, 1, &here, 1, &there, 1, 0), EPERM);
    REFUSED("kcmp", syscall(SYS_kcmp, 1, getpid(), 0, 0, 0), EPERM);
    int init = (int)syscall(SYS_pidfd_open, 1, 0);
    if (init >= 0)
        REFUSED("getfd", syscall(SYS_pidfd_getfd, init, 3, 0), EPERM);
    static const char *const files[] = {"mem", "root", "cwd", "exe", "fd", "environ", "maps", "ns/mnt", "status"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char path[64];
        snprintf(path, sizeof(path), "/proc/1/%s", files[i]);
        REFUSED(nm("proc-%s", files[i]), open(path, O_RDONLY | O_CLOEXEC), ENOENT, EACCES, EPERM);
    }
}

static void u20_kill_init(int argc, char **argv)
{
    (void)argc, (void)argv;
    if (in_host_ns("pid")) {
        untried("kill", "pid 1 is the host's");
        return;
    }
    for (int sig = 1; sig <= 64; sig++) {
        errno = 0;
        long rc = kill(1, sig);
        expect(rc == 0 || errno == EPERM || errno == EINVAL, nm("kill-%d", sig), "errno %d", errno);
    }
    int init = (int)syscall(SYS_pidfd_open, 1, 0);
    if (init >= 0)
        (void)!syscall(SYS_pidfd_send_signal, init, SIGKILL, NULL, 0);
    expect(kill(1, 0) == 0, "alive", "%s", strerror(errno));
}

static void u21_cripple_init(int argc, char **argv)
{
    cpu_set_t one;
    uint64_t limit[2] = {0, 0};
    (void)argc, (void)argv;

    CPU_ZERO(&one);
    CPU_SET(0, &one);
    REFUSED("prlimit", syscall(SYS_prlimit64, 1, 7, limit, NULL), EPERM);
    REFUSED("affinity", sched_setaffinity(1, sizeof(one), &one), EPERM);
    REFUSED("priority", syscall(SYS_setpriority, 0, 1, 19), EPERM);
    REFUSED("priority-user", syscall(SYS_setpriority, 2, 0, 19), EPERM);
    REFUSED("ioprio", syscall(SYS_ioprio_set, 1, 1, 3 << 13), EPERM);
    REFUSED("scheduler", syscall(SYS_sched_setscheduler, 1, 5, &(int){0}), EPERM);
    REFUSED("migrate", syscall(SYS_migrate_pages, 1, 0, NULL, NULL), EPERM);
    REFUSED("move", syscall(SYS_move_pages, 1, 0, NULL, NULL, NULL, 0), EPERM);
    REFUSED("setpgid", setpgid(1, getpid()), EPERM, EACCES, ESRCH);
}

const struct probe_case inside_cases[] = {
    {"U01", u01_mount},
    {"U02", u02_remount},
    {"U03", u03_new_mount_api},
    {"U04", u04_chroot},
    {"U05", u05_mknod},
    {"U06", u06_dev},
    {"U07", u07_rename_whiteout},
    {"U08", u08_unshare},
    {"U09", u09_exactly_seven},
    {"U10", u10_capset},
    {"U11", u11_securebits},
    {"U12", u12_ambient},
    {"U13", u13_bounding},
    {"U14", u14_drop},
    {"U15", u15_set_id},
    {"U15-inner", u15_inner},
    {"U16", u16_file_caps},
    {"U17", u17_unmapped},
    {"U18", u18_every_id},
    {"U19", u19_trace_init},
    {"U20", u20_kill_init},
    {"U21", u21_cripple_init},
    {NULL, NULL},
};
