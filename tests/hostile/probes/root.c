/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the root shows and lets change: whiteouts, mount tables, procfs, sysfs, cgroups, devices, the read-only base
 * (F15 to F25, F34, F45, F46). Nothing here writes a value that was not there before.
 */
#include "probe.h"

#include <dirent.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define PROC_MAGIC 0x9fa0

static void f15_overlay_whiteout(int argc, char **argv)
{
    char path[PATH_MAX], other[PATH_MAX];
    (void)argc, (void)argv;

    for (const char *const *d = writable_dirs; *d; d++) {
        snprintf(path, sizeof(path), "%s/whiteout-%d", *d, getpid());
        if (access(*d, W_OK) < 0)
            continue;
        REFUSED(nm("mknod-%s", *d), mknod(path, S_IFCHR | 0600, makedev(0, 0)), EPERM);
        unlink(path);
        REFUSED(nm("mknodat-%s", *d), mknodat(AT_FDCWD, path, S_IFCHR | 0600, 0), EPERM);
        unlink(path);
    }
    snprintf(path, sizeof(path), "%s/w", scratch());
    snprintf(other, sizeof(other), "%s/x", scratch());
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    /* Linux 5.8 lets everyone make a whiteout by renaming; it must then be just a dead name. */
    if (syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, other, 4 /* RENAME_WHITEOUT */) < 0)
        judge_refused("rename-whiteout", -1, errno, ERRS(EPERM, EINVAL, EACCES));
    else
        REFUSED("rename-whiteout", open(path, O_RDWR), ENOENT, ENXIO, EACCES, EPERM);
    const char *target = access(other, F_OK) == 0 ? other : path;
    static const char *const trusted[] = {"trusted.overlay.opaque", "trusted.overlay.redirect",
                                          "trusted.overlay.metacopy", "trusted.x"};
    for (size_t i = 0; i < ARRAY_LEN(trusted); i++)
        REFUSED(nm("setxattr-%s", trusted[i]), setxattr(target, trusted[i], "y", 1, 0), EPERM, EOPNOTSUPP);
    /*
     * user.overlay.* is anyone's to set; only the upper directory of an overlay mounted with userxattr listens to it.
     */
    static const char *const user[] = {"user.overlay.opaque", "user.overlay.redirect", "user.overlay.whiteout"};
    bool writable = given("HOSTILE_WRITABLE_ROOT") != NULL;
    for (size_t i = 0; i < ARRAY_LEN(user); i++) {
        int rc = setxattr("/usr", user[i], "y", 1, 0);
        if (rc < 0 || !writable)
            judge_refused(nm("setxattr-usr-%s", user[i]), rc, errno, ERRS(EROFS, EPERM, EACCES, EOPNOTSUPP));
        else
            expect(access("/usr/bin/env", X_OK) == 0, nm("setxattr-usr-%s", user[i]), "changed what /usr shows");
    }
}

struct mount_line {
    char *root, *point, *options, *propagation, *type, *source, *super;
};

/* Splits one line of mountinfo in place; the optional fields end at " - ". */
static bool parse_mount(char *line, struct mount_line *m)
{
    char *fields[6], *save = NULL, *dash = strstr(line, " - ");

    if (!dash)
        return false;
    *dash = 0;
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        if (!(fields[i] = strtok_r(i ? NULL : line, " ", &save)))
            return false;
    }
    m->root = fields[3], m->point = fields[4], m->options = fields[5];
    m->propagation = save ? save : dash;
    m->type = strtok_r(dash + 3, " ", &save);
    m->source = strtok_r(NULL, " ", &save);
    m->super = strtok_r(NULL, "", &save);
    return m->type && m->source && m->super;
}

/* Binds the harness declared show their source; the kernel leaves no choice. */
static bool is_declared_bind(const char *point)
{
    return strncmp(point, "/probe", 6) == 0 || strncmp(point, "/shared", 7) == 0;
}

static void try_overlay_dirs(const char *super)
{
    char copy[4096], path[PATH_MAX];

    snprintf(copy, sizeof(copy), "%s", super);
    for (char *save = NULL, *o = strtok_r(copy, ",", &save); o; o = strtok_r(NULL, ",", &save)) {
        char *value = strchr(o, '=');
        if (!value || (strncmp(o, "upperdir", 8) != 0 && strncmp(o, "workdir", 7) != 0))
            continue;
        snprintf(path, sizeof(path), "%s", value + 1);
        if (path[0] == '/' && strlen(path) > 1)
            REFUSED(nm("reach-%.8s", o), open(path, O_RDONLY | O_DIRECTORY), ENOENT, EACCES);
    }
}

static void mount_tables(bool overlay)
{
    static char text[256 * 1024];
    static const char *const files[] = {"/proc/self/mountinfo", "/proc/self/mounts", "/proc/self/mountstats",
                                        "/proc/thread-self/mountinfo"};
    const char *word;

    if (slurp(files[0], text, sizeof(text)) < 0) {
        judge_refused("mountinfo", -1, errno, ERRS(ENOENT, EACCES));
        return;
    }
    int lines = 0;
    for (char *save = NULL, *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save), lines++) {
        struct mount_line m;
        char whole[4096];

        snprintf(whole, sizeof(whole), "%s", l);
        if (!parse_mount(l, &m)) {
            untried("mountinfo", "cannot parse %s", whole);
            continue;
        }
        if (is_declared_bind(m.point))
            continue;
        if (overlay) {
            if (strcmp(m.type, "overlay") == 0)
                try_overlay_dirs(m.super);
            expect(!is_forbidden(whole, &word), nm("path-%s", m.point), "shows the host's %s", word);
            continue;
        }
        bool device = strncmp(m.source, "/dev/", 5) == 0 && strncmp(m.source, "/dev/loop", 9) != 0;
        expect(!device, nm("source-%s", m.point), "shows the host's device %s", m.source);
        bool tied = strstr(m.propagation, "shared:") || strstr(m.propagation, "master:");
        expect(!tied, nm("propagation-%s", m.point), "is tied to other mounts: %s", m.propagation);
        bool foreign = strcmp(m.type, "cgroup") == 0 || strcmp(m.type, "cgroup2") == 0 ||
                       strcmp(m.type, "sysfs") == 0 || strcmp(m.type, "debugfs") == 0 ||
                       strcmp(m.type, "tracefs") == 0 || strcmp(m.type, "bpf") == 0 ||
                       strcmp(m.type, "securityfs") == 0 || strcmp(m.type, "nsfs") == 0 || strcmp(m.type, "fuse") == 0;
        expect(!foreign, nm("type-%s", m.point), "is a %s", m.type);
    }
    expect(lines > 0 && lines < 64, "mount-count", "%d mounts", lines);
    if (overlay)
        return;
    for (size_t i = 1; i < ARRAY_LEN(files); i++) {
        if (slurp(files[i], text, sizeof(text)) >= 0)
            expect(!strstr(text, "cgroup") && !strstr(text, "sysfs"), nm("table-%s", files[i]),
                   "shows cgroup or sysfs mounts");
    }
}

static void f16_overlay_work(int argc, char **argv)
{
    (void)argc, (void)argv;
    mount_tables(true);
}

static void f18_mountinfo_leak(int argc, char **argv)
{
    (void)argc, (void)argv;
    mount_tables(false);
}

/* Writes back what is there, so that a success changes nothing. */
static void try_rewrite(const char *path)
{
    char value[4096];
    ssize_t n = slurp(path, value, sizeof(value));
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0) {
        judge_refused(nm("write-%s", path), -1, errno, ERRS(ENOENT, EROFS, EACCES, EPERM));
        return;
    }
    if (n <= 0) { /* write-only triggers: being able to open them is enough */
        breach(nm("write-%s", path), "opened for writing");
    } else {
        REFUSED(nm("write-%s", path), write(fd, value, (size_t)n), EROFS, EACCES, EPERM);
    }
    close(fd);
}

static void f19_proc_sys_write(int argc, char **argv)
{
    static const char *const files[] = {
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/domainname",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/hotplug",
        "/proc/sys/kernel/poweroff_cmd",
        "/proc/sys/kernel/usermodehelper/bset",
        "/proc/sys/kernel/ns_last_pid",
        "/proc/sys/kernel/randomize_va_space",
        "/proc/sys/kernel/unprivileged_bpf_disabled",
        "/proc/sys/kernel/keys/maxkeys",
        "/proc/sys/kernel/shmmax",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sys/vm/drop_caches",
        "/proc/sys/vm/panic_on_oom",
        "/proc/sys/vm/swappiness",
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sys/net/ipv4/ping_group_range",
        "/proc/sys/net/core/bpf_jit_enable",
        "/proc/sys/user/max_user_namespaces",
        "/proc/sys/user/max_net_namespaces",
        "/proc/sys/user/max_inotify_instances",
        "/proc/sys/fs/suid_dumpable",
        "/proc/sys/fs/protected_hardlinks",
        "/proc/sys/fs/binfmt_misc/register",
        "/proc/sys/fs/mqueue/queues_max",
        "/proc/sysrq-trigger",
        "/proc/irq/default_smp_affinity",
        "/proc/acpi/wakeup",
        "/proc/mtrr",
        "/proc/self/uid_map",
        "/proc/self/gid_map",
        "/proc/self/setgroups",
    };
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        try_rewrite(files[i]);
}

/* Masked means: absent, refused, or empty. */
static void expect_masked(const char *path)
{
    char buf[256];
    struct stat st;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        DIR *d = opendir(path);
        int entries = 0;
        if (!d) {
            judge_refused(nm("mask-%s", path), -1, errno, ERRS(ENOENT, EACCES, EPERM));
            return;
        }
        while (readdir(d))
            entries++;
        closedir(d);
        expect(entries <= 2, nm("mask-%s", path), "lists %d entries", entries - 2);
        return;
    }
    ssize_t n = slurp(path, buf, sizeof(buf));
    if (n < 0)
        judge_refused(nm("mask-%s", path), -1, errno, ERRS(ENOENT, EACCES, EPERM));
    else
        expect(n == 0, nm("mask-%s", path), "reads %zd bytes", n);
}

static void f21_proc_files(int argc, char **argv)
{
    static const char *const files[] = {
        "/proc/kcore",       "/proc/kmsg",          "/proc/keys",         "/proc/key-users",
        "/proc/timer_list",  "/proc/timer_stats",   "/proc/sched_debug",  "/proc/interrupts",
        "/proc/kpagecount",  "/proc/kpageflags",    "/proc/kpagecgroup",  "/proc/kallsyms",
        "/proc/modules",     "/proc/iomem",         "/proc/ioports",      "/proc/slabinfo",
        "/proc/vmallocinfo", "/proc/latency_stats", "/proc/acpi",         "/proc/asound",
        "/proc/scsi",        "/proc/bus",           "/proc/fs",           "/proc/irq",
        "/proc/tty",         "/proc/sysvipc",       "/proc/driver",       "/proc/locks",
        "/proc/cmdline",     "/proc/config.gz",     "/proc/diskstats",    "/proc/partitions",
        "/proc/mdstat",      "/proc/zoneinfo",      "/proc/pagetypeinfo", "/proc/buddyinfo",
        "/proc/softirqs",    "/proc/schedstat",     "/proc/pressure",     "/proc/swaps",
        "/proc/crypto",      "/proc/dynamic_debug", "/proc/allocinfo",
    };
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        expect_masked(files[i]);
    if (given("HOSTILE_PROFILE") && strcmp(given("HOSTILE_PROFILE"), "compat") == 0)
        return;
    expect_masked("/proc/sys");
    expect_masked("/proc/net");
    expect_masked("/proc/meminfo");
}

static void f22_sysfs(int argc, char **argv)
{
    static const char *const files[] = {"/sys",
                                        "/sys/kernel/uevent_helper",
                                        "/sys/kernel/security",
                                        "/sys/kernel/debug",
                                        "/sys/kernel/vmcoreinfo",
                                        "/sys/kernel/notes",
                                        "/sys/class/net",
                                        "/sys/class/block",
                                        "/sys/block",
                                        "/sys/fs/cgroup",
                                        "/sys/fs/bpf",
                                        "/sys/devices",
                                        "/sys/devices/virtual/powercap",
                                        "/sys/firmware",
                                        "/sys/module"};
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        expect_masked(files[i]);
}

static void try_cgroup_files(const char *dir)
{
    static const char *const files[] = {"cgroup.procs",      "tasks",       "memory.max",       "memory.limit_in_bytes",
                                        "pids.max",          "cpu.max",     "cpu.cfs_quota_us", "release_agent",
                                        "notify_on_release", "cgroup.kill", "cgroup.freeze",    "devices.allow"};
    char path[PATH_MAX];

    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
        int fd = (int)REFUSED(nm("open-%s-%s", dir, files[i]), open(path, O_WRONLY | O_CLOEXEC), ENOENT, ENOTDIR,
                              EACCES, EROFS, EPERM);
        if (fd >= 0)
            close(fd);
    }
}

static void f24_cgroup_escape(int argc, char **argv)
{
    static const char *const trees[] = {"",        "/memory",  "/pids",    "/cpu",     "/cpuacct",
                                        "/cpuset", "/devices", "/freezer", "/systemd", "/unified"};
    char text[8192], dir[64];
    const char *word;
    (void)argc, (void)argv;

    if (slurp("/proc/self/cgroup", text, sizeof(text)) < 0) {
        judge_refused("own-cgroup", -1, errno, ERRS(ENOENT, EACCES));
        text[0] = 0;
    }
    for (char *save = NULL, *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        char *path = strrchr(l, ':');
        path = path ? path + 1 : l;
        /* Hierarchies we do not use may show where the host's own processes are ("/..", "/"), never a name of ours. */
        expect(!is_forbidden(path, &word) && !strstr(path, "brig") && !strstr(path, "hostile"), nm("name-%s", l),
               "shows %s", path);
    }
    for (size_t i = 0; i < ARRAY_LEN(trees); i++) {
        snprintf(dir, sizeof(dir), "/sys/fs/cgroup%s", trees[i]);
        try_cgroup_files(dir);
    }
    REFUSED("mkdir-cgroup", mkdir("/sys/fs/cgroup/hostile-x", 0755), ENOENT, EACCES, EROFS, EPERM);
    rmdir("/sys/fs/cgroup/hostile-x");
}

static void f25_mknod_disk(int argc, char **argv)
{
    static const struct {
        const char *name;
        mode_t type;
        unsigned major, minor;
    } nodes[] = {
        {"vda", S_IFBLK, 254, 0},    {"sda", S_IFBLK, 8, 0},    {"loop0", S_IFBLK, 7, 0}, {"mem", S_IFCHR, 1, 1},
        {"kmem", S_IFCHR, 1, 2},     {"port", S_IFCHR, 1, 4},   {"kmsg", S_IFCHR, 1, 11}, {"fuse", S_IFCHR, 10, 229},
        {"kvm", S_IFCHR, 10, 232},   {"tun", S_IFCHR, 10, 200}, {"tty0", S_IFCHR, 4, 0},  {"console", S_IFCHR, 5, 1},
        {"vsock", S_IFCHR, 10, 121}, {"null", S_IFCHR, 1, 3},
    };
    static const char *const allowed[] = {".",       "..",     "null",   "zero",    "full",   "random",
                                          "urandom", "tty",    "ptmx",   "pts",     "shm",    "fd",
                                          "stdin",   "stdout", "stderr", "console", "mqueue", "core"};
    char path[PATH_MAX];
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
        snprintf(path, sizeof(path), "%s/%s", scratch(), nodes[i].name);
        if (REFUSED(nm("mknod-%s", nodes[i].name),
                    mknod(path, nodes[i].type | 0666, makedev(nodes[i].major, nodes[i].minor)), EPERM) == 0)
            REFUSED(nm("open-%s", nodes[i].name), open(path, O_RDONLY | O_NONBLOCK), EPERM, EACCES, ENXIO);
        unlink(path);
    }
    /* High bits of mode and the third argument's upper half must not confuse the filter. */
    snprintf(path, sizeof(path), "%s/wide", scratch());
    REFUSED("mknod-wide", syscall(SYS_mknod, path, 0x100000000UL | S_IFBLK | 0666, makedev(254, 0)), EPERM);
    unlink(path);
    REFUSED("mknod-mode16", syscall(SYS_mknod, path, 0x10000UL | S_IFBLK | 0666, makedev(254, 0)), EPERM);
    unlink(path);
    DIR *d = opendir("/dev");
    for (struct dirent *e; d && (e = readdir(d));) {
        bool known = false;
        for (size_t i = 0; i < ARRAY_LEN(allowed); i++)
            known = known || strcmp(e->d_name, allowed[i]) == 0;
        struct stat st;
        expect(known, nm("dev-%s", e->d_name), "exists");
        if (fstatat(dirfd(d), e->d_name, &st, 0) == 0)
            expect(!S_ISBLK(st.st_mode), nm("dev-%s-type", e->d_name), "is a block device");
    }
    if (d)
        closedir(d);
}

/* Every attempt either fails or leaves things as they were. */
static void try_change_dir(const char *dir)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/hostile-%d", strcmp(dir, "/") == 0 ? "" : dir, getpid());
    /* mkdir asks the mount first: this one is exact. */
    if (REFUSED(nm("mkdir-%s", dir), mkdir(path, 0755), EROFS) == 0)
        rmdir(path);
    if (REFUSED(nm("create-%s", dir), open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600), EROFS, EACCES,
                EPERM) >= 0)
        unlink(path);
    if (REFUSED(nm("symlink-%s", dir), symlink("x", path), EROFS, EACCES, EPERM) == 0)
        unlink(path);
    REFUSED(nm("tmpfile-%s", dir), open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), EROFS, EACCES, EPERM, EOPNOTSUPP);
    struct stat st;
    if (stat(dir, &st) == 0)
        REFUSED(nm("chmod-%s", dir), chmod(dir, st.st_mode & 0777), EROFS, EACCES, EPERM);
    REFUSED(nm("utimes-%s", dir), utimensat(AT_FDCWD, dir, (struct timespec[]){{0, UTIME_OMIT}, {0, UTIME_NOW}}, 0),
            EROFS, EACCES, EPERM);
}

static void try_change_file(const char *file)
{
    char path[PATH_MAX];
    struct stat st;

    if (stat(file, &st) < 0)
        return;
    REFUSED(nm("write-%s", file), open(file, O_WRONLY | O_CLOEXEC), EROFS, EACCES, EPERM, ETXTBSY);
    REFUSED(nm("append-%s", file), open(file, O_WRONLY | O_APPEND | O_CLOEXEC), EROFS, EACCES, EPERM, ETXTBSY);
    REFUSED(nm("truncate-%s", file), truncate(file, st.st_size), EROFS, EACCES, EPERM, ETXTBSY);
    snprintf(path, sizeof(path), "%s.hostile", file);
    if (REFUSED(nm("rename-%s", file), rename(file, path), EROFS, EACCES, EPERM, EBUSY) == 0)
        rename(path, file);
    else
        REFUSED(nm("unlink-%s", file), unlink(file), EROFS, EACCES, EPERM, EBUSY);
    if (REFUSED(nm("link-%s", file), link(file, path), EROFS, EACCES, EPERM, EXDEV) == 0)
        unlink(path);
}

static void f34_ro_base_write(int argc, char **argv)
{
    static const char *const dirs[] = {"/",     "/usr", "/usr/bin", "/usr/lib", "/bin",
                                       "/sbin", "/lib", "/etc",     "/home",    "/var"};
    static const char *const files[] = {"/usr/bin/env", "/bin/sh",          "/etc/passwd",     "/etc/group",
                                        "/etc/hosts",   "/etc/resolv.conf", "/etc/ld.so.cache"};
    (void)argc, (void)argv;

    if (in_host_ns("mnt")) {
        breach("mount-namespace", "runs in the host's; nothing was tried");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        if (access(dirs[i], F_OK) == 0)
            try_change_dir(dirs[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        try_change_file(files[i]);
}

/* F46 and F45 from the inside: procfs is procfs, /dev is ours, and nothing leads out. */
static void f46_procfs_real(int argc, char **argv)
{
    struct statfs fs;
    struct stat st;
    (void)argc, (void)argv;

    if (statfs("/proc", &fs) < 0)
        breach("proc", "is not there");
    else
        expect(fs.f_type == PROC_MAGIC, "proc-magic", "f_type %lx", (unsigned long)fs.f_type);
    expect(access("/proc/self/hostile-fake", F_OK) < 0, "proc-fake", "the root's own /proc shows");
    if (stat("/dev/null", &st) == 0)
        expect(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3), "dev-null", "mode %o rdev %lx", st.st_mode,
               (unsigned long)st.st_rdev);
    else
        breach("dev-null", "is not there");
    if (given("HOSTILE_CANARY_PATH"))
        try_read("canary", AT_FDCWD, given("HOSTILE_CANARY_PATH"));
    if (given("HOSTILE_HOST_DIR"))
        REFUSED("host-dir", open(given("HOSTILE_HOST_DIR"), O_RDONLY | O_DIRECTORY), ENOENT, EACCES);
}

const struct probe_case root_cases[] = {
    {"F15", f15_overlay_whiteout},
    {"F16", f16_overlay_work},
    {"F18", f18_mountinfo_leak},
    {"F19", f19_proc_sys_write},
    {"F21", f21_proc_files},
    {"F22", f22_sysfs},
    {"F24", f24_cgroup_escape},
    {"F25", f25_mknod_disk},
    {"F34", f34_ro_base_write},
    {"F46", f46_procfs_real},
    {NULL, NULL},
};
