/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selfcheck_places.c: checks the file system layers: a root that nobody can change, a /proc that says nothing about the
 * host, and one bounded store behind every place where a program may write.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include "jail/image_shape.h"
#include "jail/rawcall.h"
#include "jail/selfcheck_parts.h"

/* ---- root_readonly ----------------------------------------------------------------------------------- */

/*
 * chmod asks for write access to the mount before it looks at permissions and before Landlock is asked, so EROFS here
 * means exactly "read-only" for every user; creating a file would give EACCES in both cases. The mode is the one that /
 * has already.
 */
static long try_write_root(void)
{
    struct stat st = {0};
    long ret = raw_call2(SYS_stat, "/", &st);

    return ret != 0 ? ret : raw_call2(SYS_chmod, "/", st.st_mode & 01777);
}

void check_root(struct check *check)
{
    static const char *const places[] = {"/", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64"};
    struct reading detail = {.why = check->start->writable_root ? WHY_WRITABLE_ROOT : WHY_READ_BACK};
    bool on = true;

    for (unsigned i = 0; i < ARRAY_SIZE(places) && on; i++) {
        struct statfs fs = {0};
        long ret = raw_call2(SYS_statfs, places[i], &fs);

        if (ret == 0)
            on = (fs.f_flags & ST_RDONLY) != 0;
        else
            on = ret == -ENOENT && i > 0;
    }
    if (on)
        on = try_write_root() == -EROFS;
    check_put(check, BRIG_LAYER_ROOT_READONLY, on, detail);
}

/* ---- proc -------------------------------------------------------------------------------------------- */

static bool absent(const char *path)
{
    return raw_call3(SYS_faccessat, AT_FDCWD, path, F_OK) == -ENOENT;
}

/* What hidepid hides is ENOENT to look up; kernels before 6.? answer EPERM when the entry is still cached. */
static bool hidden(const char *path)
{
    long r = raw_call3(SYS_faccessat, AT_FDCWD, path, F_OK);

    return r == -ENOENT || r == -EPERM;
}

static bool subset_pid(void)
{
    return absent("/proc/sys") && absent("/proc/kcore") && absent("/proc/meminfo");
}

/*
 * In a full procfs the entry must be absent, covered by something that is not procfs, or (where reading is harmless)
 * read-only. A covered file may open: our own empty file lies over it.
 */
static bool masked(const char *path, dev_t proc_dev, bool readable)
{
    struct stat st = {0};
    struct statfs fs = {0};
    long ret = raw_call2(SYS_stat, path, &st);

    if (ret == -ENOENT || ret == -EACCES)
        return true;
    if (ret != 0)
        return false;
    if (st.st_dev != proc_dev)
        return true;
    return readable && raw_call2(SYS_statfs, path, &fs) == 0 && (fs.f_flags & ST_RDONLY) != 0;
}

static bool masked_full(void)
{
    static const char *const secret[] = {
        "/proc/kcore",      "/proc/keys",        "/proc/key-users", "/proc/kallsyms",      "/proc/kmsg",
        "/proc/timer_list", "/proc/sched_debug", "/proc/acpi",      "/proc/latency_stats", "/proc/scsi",
        "/proc/interrupts", "/proc/kpagecount",  "/proc/cmdline",   "/proc/meminfo",       "/proc/stat",
    };
    static const char *const fixed[] = {"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"};
    struct stat st = {0};
    bool fine = raw_call2(SYS_stat, "/proc", &st) == 0;

    for (unsigned i = 0; i < ARRAY_SIZE(secret) && fine; i++)
        fine = masked(secret[i], st.st_dev, false);
    for (unsigned i = 0; i < ARRAY_SIZE(fixed) && fine; i++)
        fine = masked(fixed[i], st.st_dev, true);
    return fine;
}

/* pid 1 is not dumpable and is no child of ours: with hidepid the kernel denies that it is there. */
void check_proc(struct check *check)
{
    struct statfs fs = {0};
    long ret = raw_call2(SYS_statfs, "/proc", &fs);
    bool compat = check->start->profile == BRIG_PROFILE_COMPAT;
    bool on = ret == 0 && fs.f_type == PROC_SUPER_MAGIC && hidden("/proc/1") && (compat ? masked_full() : subset_pid());

    check_put(check, BRIG_LAYER_PROC, on,
              (struct reading){.by = compat ? BY_MASKED : BY_SUBSET_PID,
                               .why = WHY_READ_BACK,
                               .value = !on && ret < 0 ? (uint32_t)-ret : 0});
}

/* ---- disk, inodes ------------------------------------------------------------------------------------ */

static bool within(uint64_t total, uint64_t unit, uint64_t limit)
{
    uint64_t bytes;

    /* tmpfs rounds its size up to pages */
    return total > 0 && unit > 0 && !__builtin_mul_overflow(total, unit, &bytes) &&
           (bytes <= limit || bytes - limit < unit);
}

/*
 * A place of its own is bounded too when it cannot be written, is a tmpfs (the user's) no larger than the limit, or is
 * an overlay whose upper is in the store: an overlay tells the size of its upper's file system.
 */
static bool bounded_place(const char *path, dev_t store_dev, const struct statfs *store, uint64_t disk)
{
    struct stat st = {0};
    struct statfs fs = {0};

    if (raw_call2(SYS_stat, path, &st) != 0)
        return false;
    if (st.st_dev == store_dev)
        return true;
    return raw_call2(SYS_statfs, path, &fs) == 0 &&
           ((fs.f_flags & ST_RDONLY) != 0 ||
            (fs.f_type == OVERLAYFS_SUPER_MAGIC && fs.f_blocks == store->f_blocks && fs.f_files == store->f_files) ||
            (fs.f_type == TMPFS_MAGIC && fs.f_files > 0 && within((uint64_t)fs.f_blocks, (uint64_t)fs.f_frsize, disk)));
}

void check_store(struct check *check)
{
    static const char *const places[] = GUEST_PLACES;
    const struct guest_start *start = check->start;
    struct reading detail = {.by = (uint8_t)start->store_by, .why = WHY_READ_BACK};
    struct statfs fs = {0};
    struct stat st = {0};
    /* nothing of the caller's can be mounted below /dev */
    bool all = raw_call2(SYS_statfs, "/dev/shm", &fs) == 0 && raw_call2(SYS_stat, "/dev/shm", &st) == 0;
    struct stat upper = {0};
    /* Where the upper of the root becomes a layer, the root and /dev/shm are all that can be written. */
    const bool bare = raw_call2(SYS_stat, "/.brig/upper", &upper) == 0 && upper.st_dev == st.st_dev;

    for (unsigned i = 0; i < ARRAY_SIZE(places) && all && !bare; i++)
        all = (start->flags & GUEST_START_VOLUME(i)) || bounded_place(places[i], st.st_dev, &fs, start->disk);
    uint64_t most = start->disk;
    if (start->store_by == BY_EXT4_IMAGE) { /* larger by what ext4 and the set-up need, and that is not to be had */
        struct image_shape shape;
        image_shape(start->disk, start->inodes, &shape);
        most = shape.blocks * IMAGE_BLOCK;
        all = all && (uint64_t)fs.f_bavail <= image_blocks(start->disk);
    }
    check_put(check, BRIG_LAYER_DISK, all && within((uint64_t)fs.f_blocks, (uint64_t)fs.f_frsize, most), detail);
    check_put(check, BRIG_LAYER_INODES, all && within((uint64_t)fs.f_files, 1, start->inodes), detail);
}
