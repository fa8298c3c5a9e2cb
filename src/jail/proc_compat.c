/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc_compat.c: makes /proc of the profile `compat`, for programs that cannot live with `subset=pid`. It is a full
 * procfs of the sandbox's own pid namespace. Everything outside of the process directories is covered unless it is in
 * the table below. The table lists what stays, so a kernel with more files in /proc shows no more of them. (What a
 * module adds to /proc while the sandbox runs is not covered; `default` has no such gap.)
 *
 *     link       own link to something below self: already the sandbox's
 *     keep       as it is
 *     read-only  a read-only bind of itself
 *     generate   a file made from the limits: what a program may use, not what the machine has
 *     otherwise  an empty directory or file
 *
 * The covers come from a tmpfs of this sandbox alone, at /x2 of the inherited tree until the pivot. Binds of one file
 * for all sandboxes would do to hide things, but its locks and watches would be a channel between them.
 *
 * Every place is opened right below the procfs we have just made, without following links or crossing mounts, and
 * afterwards looked at again: CVE-2025-31133 was a mask put elsewhere, and made of something else.
 */
#include <dirent.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>
#include <time.h>

#include "base/str.h"
#include "jail/plan.h"
#include "jail/sys.h"

#define COVER_ATTR (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)
#define HERE_ONLY (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV)

#define EMPTY_DIR "d"
#define EMPTY_FILE "f"

enum treatment { TREAT_LINK, TREAT_KEEP, TREAT_READ_ONLY, TREAT_GENERATE, TREAT_COVER };

static const struct {
    const char *name;
    enum treatment treatment;
} entries[] = {
    {"self", TREAT_LINK},        {"thread-self", TREAT_LINK}, {"mounts", TREAT_LINK},   {"net", TREAT_LINK},
    {"filesystems", TREAT_KEEP}, {"version", TREAT_KEEP},     {"uptime", TREAT_KEEP},   {"sys", TREAT_READ_ONLY},
    {"meminfo", TREAT_GENERATE}, {"cpuinfo", TREAT_GENERATE}, {"stat", TREAT_GENERATE}, {"loadavg", TREAT_GENERATE},
};

/* The failure report outlives the directory buffer the name is in. One per process: we run in a child of our own. */
static char failed_at[52];

static const char *at(const char *name)
{
    if (str_format(failed_at, sizeof failed_at, "/proc/%.40s", name) < 0)
        return "/proc";
    return failed_at;
}

/* ---- generated files ------------------------------------------------------------------------------------ */

static int make_file(struct enter *e, int fs, const char *name)
{
    int fd = SYS(openat(fs, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444));

    TRY(e, at(name), fd);
    return fd;
}

static int append(struct enter *e, int fd, const char *name, const char *text, size_t len)
{
    ssize_t n = SYS(write(fd, text, len));

    if (n >= 0 && (size_t)n != len) {
        errno = ENOSPC;
        n = -1;
    }
    TRY(e, at(name), n);
    return 0;
}

static int write_text(struct enter *e, int fs, const char *name, const char *text, int len)
{
    AUTO_FD int fd = make_file(e, fs, name);

    if (fd < 0)
        return fd;
    if (len < 0) {
        errno = -len;
        TRY(e, at(name), -1);
    }
    return append(e, fd, name, text, (size_t)len);
}

/* At creation: nothing of the limit is used. A limit above what the machine has is worth what the machine has. */
static int write_meminfo(struct enter *e, int fs)
{
    struct sysinfo host;
    char text[2048];

    TRY(e, "sysinfo", SYS(sysinfo(&host)));
    uint64_t limit = e->plan->limits.memory;
    uint64_t machine = (uint64_t)host.totalram * host.mem_unit;
    unsigned long long kib = (limit && limit < machine ? limit : machine) / 1024;

    int len = str_format(text, sizeof text,
                         "MemTotal:       %8llu kB\n"
                         "MemFree:        %8llu kB\n"
                         "MemAvailable:   %8llu kB\n"
                         "Buffers:               0 kB\n"
                         "Cached:                0 kB\n"
                         "SwapCached:            0 kB\n"
                         "Active:                0 kB\n"
                         "Inactive:              0 kB\n"
                         "Active(anon):          0 kB\n"
                         "Inactive(anon):        0 kB\n"
                         "Active(file):          0 kB\n"
                         "Inactive(file):        0 kB\n"
                         "Unevictable:           0 kB\n"
                         "Mlocked:               0 kB\n"
                         "SwapTotal:             0 kB\n"
                         "SwapFree:              0 kB\n"
                         "Dirty:                 0 kB\n"
                         "Writeback:             0 kB\n"
                         "AnonPages:             0 kB\n"
                         "Mapped:                0 kB\n"
                         "Shmem:                 0 kB\n"
                         "KReclaimable:          0 kB\n"
                         "Slab:                  0 kB\n"
                         "SReclaimable:          0 kB\n"
                         "SUnreclaim:            0 kB\n"
                         "KernelStack:           0 kB\n"
                         "PageTables:            0 kB\n"
                         "CommitLimit:    %8llu kB\n"
                         "Committed_AS:          0 kB\n"
                         "HugePages_Total:       0\n"
                         "HugePages_Free:        0\n"
                         "HugePages_Rsvd:        0\n"
                         "HugePages_Surp:        0\n"
                         "Hugepagesize:       2048 kB\n",
                         kib, kib, kib, kib);
    return write_text(e, fs, "meminfo", text, len);
}

/*
 * Copies the first blocks of the host's cpuinfo, one per CPU that the limit allows at least in part. A block ends with
 * an empty line. *ret_cpus is how many there were: a machine may have fewer than the limit. It is streamed, because on
 * a machine with many CPUs it does not fit on the stack.
 */
static int write_cpuinfo(struct enter *e, int fs, unsigned *ret_cpus)
{
    uint64_t wanted = (e->plan->limits.cpus + 999) / 1000;
    unsigned cpus = 0;
    char text[16384];
    bool line_start = false;
    AUTO_FD int in = SYS(openat(e->plan->host_proc_fd, "cpuinfo", O_RDONLY | O_CLOEXEC));

    TRY(e, "host's /proc/cpuinfo", in);
    AUTO_FD int out = make_file(e, fs, "cpuinfo");
    if (out < 0)
        return out;
    while (wanted == 0 || cpus < wanted) {
        ssize_t n = SYS(read(in, text, sizeof text));
        size_t len = 0;

        TRY(e, "host's /proc/cpuinfo", n);
        if (n == 0)
            break;
        while (len < (size_t)n && (wanted == 0 || cpus < wanted)) {
            bool newline = text[len++] == '\n';
            if (newline && line_start)
                cpus++;
            line_start = newline;
        }
        int r = append(e, out, "cpuinfo", text, len);
        if (r < 0)
            return r;
    }
    *ret_cpus = cpus > 0 ? cpus : 1;
    return 0;
}

/* No CPU has done anything yet; when the machine was booted is true, because start times are counted from there. */
static int write_stat(struct enter *e, int fs, unsigned cpus)
{
    struct timespec now, since_boot;
    char text[160];

    TRY(e, "clock", SYS(clock_gettime(CLOCK_REALTIME, &now)));
    TRY(e, "clock", SYS(clock_gettime(CLOCK_BOOTTIME, &since_boot)));
    long long boot = (long long)now.tv_sec - since_boot.tv_sec;

    AUTO_FD int fd = make_file(e, fs, "stat");
    if (fd < 0)
        return fd;
    static const char all[] = "cpu  0 0 0 0 0 0 0 0 0 0\n";
    int r = append(e, fd, "stat", all, sizeof all - 1);
    for (unsigned i = 0; r == 0 && i < cpus; i++) {
        int len = str_format(text, sizeof text, "cpu%u 0 0 0 0 0 0 0 0 0 0\n", i);
        r = len < 0 ? len : append(e, fd, "stat", text, (size_t)len);
    }
    if (r < 0)
        return r;
    int len = str_format(text, sizeof text,
                         "intr 0\nctxt 0\nbtime %lld\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n"
                         "softirq 0 0 0 0 0 0 0 0 0 0 0\n",
                         boot);
    return len < 0 ? len : append(e, fd, "stat", text, (size_t)len);
}

/* Fills the tmpfs the covers are taken from, and makes it read-only: its clones are so as well. */
static int fill(struct enter *e, int fs)
{
    static const char loadavg[] = "0.00 0.00 0.00 1/1 1\n";
    unsigned cpus = 1;

    TRY(e, "mkdir", SYS(mkdirat(fs, EMPTY_DIR, 0555)));
    int r = write_text(e, fs, EMPTY_FILE, "", 0);
    if (r == 0)
        r = write_meminfo(e, fs);
    if (r == 0)
        r = write_cpuinfo(e, fs, &cpus);
    if (r == 0)
        r = write_stat(e, fs, cpus);
    if (r == 0)
        r = write_text(e, fs, "loadavg", loadavg, (int)sizeof loadavg - 1);
    if (r == 0)
        TRY(e, "read-only", mount_attributes(fs, COVER_ATTR, false));
    return r;
}

/* ---- covers --------------------------------------------------------------------------------------------- */

/* Puts a clone of `source` below source_fd over /proc/name, read-only, and sees that it is there. */
static int cover(struct enter *e, int proc_fd, const char *name, int source_fd, const char *source)
{
    const unsigned clone_flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW;
    const unsigned move_flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
    struct stat put, found;
    struct statfs flags;

    AUTO_FD int target = SYS(sys_openat2(proc_fd, name, O_PATH | O_NOFOLLOW, 0, HERE_ONLY));
    TRY(e, at(name), target);
    AUTO_FD int mount = SYS(open_tree(source_fd, source, clone_flags));
    TRY(e, at(name), mount);
    if (source_fd == proc_fd) /* the tmpfs is read-only already */
        TRY(e, at(name), mount_attributes(mount, COVER_ATTR, false));
    TRY(e, at(name), SYS(move_mount(mount, "", target, "", move_flags)));

    AUTO_FD int again = SYS(sys_openat2(proc_fd, name, O_PATH | O_NOFOLLOW, 0, HERE_ONLY & ~(uint64_t)RESOLVE_NO_XDEV));
    TRY(e, at(name), again);
    TRY(e, at(name), SYS(fstat(mount, &put)));
    TRY(e, at(name), SYS(fstat(again, &found)));
    TRY(e, at(name), SYS(fstatfs(again, &flags)));
    if (found.st_dev != put.st_dev || found.st_ino != put.st_ino || !(flags.f_flags & ST_RDONLY)) {
        errno = EXDEV;
        TRY(e, at(name), -1);
    }
    return 0;
}

static enum treatment treatment_of(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
        if (str_eq(entries[i].name, name))
            return entries[i].treatment;
    }
    return TREAT_COVER;
}

static int treat(struct enter *e, int proc_fd, int fs, const char *name)
{
    struct stat st;

    if (name[0] == '.' || (name[0] >= '0' && name[0] <= '9')) /* ".", "..", processes */
        return 0;
    switch (treatment_of(name)) {
    case TREAT_KEEP: return 0;
    case TREAT_READ_ONLY: return cover(e, proc_fd, name, proc_fd, name);
    case TREAT_GENERATE: return cover(e, proc_fd, name, fs, name);
    case TREAT_LINK:
    case TREAT_COVER: break;
    }
    TRY(e, at(name), SYS(fstatat(proc_fd, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT)));
    if (S_ISLNK(st.st_mode))
        return 0; /* also one we do not know: it leads to what is covered, or nowhere outside */
    return cover(e, proc_fd, name, fs, S_ISDIR(st.st_mode) ? EMPTY_DIR : EMPTY_FILE);
}

int enter_proc_compat(struct enter *e, int proc_fd)
{
    static const struct mount_option options[] = {{"mode", "555"}, {"size", "4m"}, {"nr_inodes", "16"}};
    _Alignas(struct dirent64) char buf[8192];
    AUTO_FD int fs = mount_make("tmpfs", options, ARRAY_SIZE(options), COVER_ATTR & ~MOUNT_ATTR_RDONLY);

    TRY(e, "tmpfs", fs);
    TRY(e, "/x2", mount_attach(fs, AT_FDCWD, "/x2"));
    int r = fill(e, fs);
    if (r < 0)
        return r;
    AUTO_FD int dir = SYS(openat(proc_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    TRY(e, "/proc", dir);
    for (;;) {
        ssize_t n = SYS(getdents64(dir, buf, sizeof buf));

        TRY(e, "/proc", n);
        if (n == 0)
            return 0;
        for (ssize_t pos = 0; pos < n;) {
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(buf + pos);
            r = treat(e, proc_fd, fs, entry->d_name);
            if (r < 0)
                return r;
            pos += entry->d_reclen;
        }
    }
}
