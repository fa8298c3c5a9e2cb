/* SPDX-License-Identifier: Apache-2.0 */
/* ids.c: claims and releases ids by byte locks on one file. ids.h says why, and where the file lies. */
#include "host/ids.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/err.h"
#include "base/fd.h"
#include "jail/plan.h"
#include "jail/sys.h"

#define RANGE_BASE 0x70000000u

#define HOST_DIR "/run/brig"
#define FIRST_PID_NS "pid:[4026531836]" /* the kernel's own number for it, the same on every host */

static int open_file(int dir_fd, const char *name)
{
    struct stat st;
    AUTO_FD int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);

    if (fd < 0)
        return -errno;
    /* Somebody else's file could be locked by somebody else. */
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1 || (st.st_mode & 077))
        return -EPERM;
    return take_fd(&fd);
}

/* The first mount's number: it belongs to one mount of one namespace. 0 where it cannot be read. */
static unsigned long first_mount(const char *mountinfo)
{
    char text[32] = "";
    AUTO_FD int fd = fd_openat_read(AT_FDCWD, mountinfo);

    return fd >= 0 && read(fd, text, sizeof text - 1) > 0 ? strtoul(text, NULL, 10) : 0;
}

static bool sees_what_pid_1_sees(void)
{
    unsigned long ours = first_mount("/proc/self/mountinfo");

    return ours != 0 && ours == first_mount("/proc/1/mountinfo");
}

/* Whether our /run is the host's: that of the first process of the first pid namespace. */
static bool is_the_hosts(int fd)
{
    char link[sizeof FIRST_PID_NS];
    struct stat ours, theirs;
    ssize_t n = readlink("/proc/self/ns/pid", link, sizeof link);

    if (n != (ssize_t)sizeof link - 1 || memcmp(link, FIRST_PID_NS, (size_t)n) != 0)
        return false;
    /* Without CAP_SYS_PTRACE its root cannot be looked at. */
    return sees_what_pid_1_sees() || (fstat(fd, &ours) == 0 && stat("/proc/1/root" HOST_DIR "/ids", &theirs) == 0 &&
                                      ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino);
}

static int open_host(void)
{
    struct stat st;

    if (mkdir(HOST_DIR, 0755) < 0 && errno != EEXIST)
        return -errno;
    AUTO_FD int dir = open(HOST_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0 || fstat(dir, &st) < 0)
        return -errno;
    return st.st_uid != 0 || (st.st_mode & 022) ? -EPERM : open_file(dir, "ids");
}

int ids_open_user(const char *const *dirs, size_t n, uid_t uid)
{
    char name[32];
    struct stat st;

    snprintf(name, sizeof name, "brig-ids-%u", (unsigned)uid);
    for (size_t i = 0; i < n; i++) {
        AUTO_FD int dir = open(dirs[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        /*
         * Everybody may use this directory, and only root can rename what we put there. All services choose the first
         * such place.
         */
        if (dir >= 0 && fstat(dir, &st) == 0 && st.st_uid == 0 && (st.st_mode & 01002) == 01002)
            return open_file(dir, name);
    }
    return -ENOENT;
}

int ids_open(bool privileged, int run_fd, enum ids_scope *ret_scope, struct brig_err *err)
{
    static const char *const dirs[] = {"/run/lock", "/dev/shm"};
    int fd = privileged ? open_host() : ids_open_user(dirs, ARRAY_SIZE(dirs), geteuid());

    *ret_scope = fd < 0 ? IDS_RUN_DIR : !privileged || is_the_hosts(fd) ? IDS_HOST : IDS_CONTAINER;
    if (fd < 0 && run_fd >= 0)
        fd = open_file(run_fd, "ids");
    return fd < 0 ? err_set(err, BRIG_E_HOST, -fd, "lock file of the id ranges") : fd;
}

int ids_init(struct ids *ids, enum ids_kind kind, int *lock_fd, enum ids_scope scope, unsigned sub_ids,
             struct brig_err *err)
{
    *ids = (struct ids){.kind = kind,
                        .scope = scope,
                        .lock_fd = -1,
                        .proc_fd = -1,
                        .sub_ids = sub_ids,
                        .slots = kind == IDS_RANGE || sub_ids / 2 > IDS_SLOTS ? IDS_SLOTS : sub_ids / 2};
    if (kind == IDS_ONE)
        return 0;
    if (*lock_fd < 0)
        return err_set(err, BRIG_E_HOST, ENOENT, "lock file of the id ranges");
    ids->lock_fd = take_fd(lock_fd);
    ids->next = (unsigned)getpid() % ids->slots; /* neighbours start apart, so the first try mostly succeeds */
    return 0;
}

void ids_done(struct ids *ids)
{
    base_close_fd(&ids->lock_fd);
}

static int lock_slot(struct ids *ids, unsigned slot, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};

    return fcntl(ids->lock_fd, F_OFD_SETLK, &lock);
}

/* Open-file-description locks do not exclude their own description: what this spawner holds is kept in a bitmap. */
static bool is_held(const struct ids *ids, unsigned slot)
{
    return ids->held[slot / 64] & (1ULL << (slot % 64));
}

/* Whether this process of /proc has an id of the slot. Its directory belongs to its effective user. */
static bool has_id(const struct ids *ids, const char *pid, unsigned slot)
{
    struct stat st;

    return pid[0] >= '1' && pid[0] <= '9' && fstatat(ids->proc_fd, pid, &st, 0) == 0 &&
           st.st_uid >= RANGE_BASE + slot * INSIDE_RANGE &&
           st.st_uid - (RANGE_BASE + slot * INSIDE_RANGE) < INSIDE_RANGE;
}

/* A marked slot is one of a runner that has died, or of one that is about to release it. */
static bool is_outlived(const struct ids *ids, unsigned slot)
{
    char mark = 0;

    if (ids->proc_fd < 0 || ids->kind != IDS_RANGE || pread(ids->lock_fd, &mark, 1, slot) != 1 || mark == 0)
        return false;
    AUTO_DIR DIR *dir = dir_open(ids->proc_fd, ".");
    for (const struct dirent *entry; (entry = dir_next(dir));)
        if (has_id(ids, entry->d_name, slot))
            return true;
    if (!dir)
        return true; /* nobody could look */
    (void)!pwrite(ids->lock_fd, "", 1, slot);
    return false;
}

/* If it cannot be written, the slot is as safe as one of a spawner: as long as this process lives. */
static void mark_slot(const struct ids *ids, unsigned slot, char mark)
{
    if (ids->outlive)
        (void)!pwrite(ids->lock_fd, &mark, 1, slot);
}

static bool take_slot(struct ids *ids, unsigned slot)
{
    if (is_held(ids, slot) || lock_slot(ids, slot, F_WRLCK) < 0)
        return false;
    ids->held[slot / 64] |= 1ULL << (slot % 64);
    return true;
}

static void drop_slot(struct ids *ids, unsigned slot)
{
    ids->held[slot / 64] &= ~(1ULL << (slot % 64));
    (void)!lock_slot(ids, slot, F_UNLCK);
}

static int claim_shared(const struct ids *ids, struct ids_claim *ret, struct brig_err *err)
{
    if (ids->sub_ids < INSIDE_RANGE)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "user root: needs %u subordinate ids, and there are %u",
                       INSIDE_RANGE, ids->sub_ids);
    *ret = (struct ids_claim){
        .slot = -1, .root = IDS_SHARED_ROOT, .user = IDS_SHARED_ROOT + INSIDE_USER, .whole = true, .shared = true};
    return 0;
}

static void claim_slot(const struct ids *ids, unsigned slot, struct ids_claim *ret)
{
    bool range = ids->kind == IDS_RANGE;

    *ret = (struct ids_claim){
        .slot = (int)slot, .root = range ? RANGE_BASE + slot * INSIDE_RANGE : 1 + 2 * slot, .whole = range};
    ret->user = range ? ret->root + INSIDE_USER : ret->root + 1;
}

int ids_claim_again(struct ids *ids, int slot, struct ids_claim *ret)
{
    if (slot < 0 || (unsigned)slot >= ids->slots)
        return -EINVAL;
    if (!take_slot(ids, (unsigned)slot))
        return -EBUSY;
    claim_slot(ids, (unsigned)slot, ret);
    return 0;
}

int ids_claim(struct ids *ids, bool whole, struct ids_claim *ret, struct brig_err *err)
{
    if (ids->kind == IDS_ONE && whole)
        return err_set(err, BRIG_E_UNSUPPORTED, 0,
                       "user root: needs %u ids, and a plain user without subordinate ids has one (see `brig doctor`)",
                       INSIDE_RANGE);
    if (ids->kind == IDS_ONE) {
        *ret = (struct ids_claim){.slot = -1};
        return 0;
    }
    if (ids->kind == IDS_PAIR && whole)
        return claim_shared(ids, ret, err);
    for (unsigned tried = 0; tried < ids->slots; tried++) {
        unsigned slot = ids->next;
        ids->next = (ids->next + 1) % ids->slots;
        if (!take_slot(ids, slot))
            continue;
        if (is_outlived(ids, slot)) {
            drop_slot(ids, slot);
            continue;
        }
        mark_slot(ids, slot, 1);
        claim_slot(ids, slot, ret);
        return 0;
    }
    return err_set(err, BRIG_E_HOST, EAGAIN, "all %u id ranges are in use", ids->slots);
}

void ids_share(struct ids *ids, struct ids_claim *claim)
{
    ids_release(ids, claim);
    if (ids->kind == IDS_RANGE)
        *claim = (struct ids_claim){.slot = -1, .root = RANGE_BASE, .user = RANGE_BASE + INSIDE_USER, .whole = true};
}

void ids_release(struct ids *ids, struct ids_claim *claim)
{
    if (claim->slot < 0)
        return;
    mark_slot(ids, (unsigned)claim->slot, 0);
    drop_slot(ids, (unsigned)claim->slot);
    claim->slot = -1;
}

int ids_map(const struct ids *ids, const struct ids_claim *claim, char *out, size_t size)
{
    if (claim->whole || ids->kind == IDS_RANGE)
        return snprintf(out, size, "%u %u %u", INSIDE_ROOT, claim->root, INSIDE_RANGE);
    if (ids->kind == IDS_PAIR)
        return snprintf(out, size, "%u %u 1\n%u %u 1", INSIDE_ROOT, claim->root, INSIDE_USER, claim->user);
    return snprintf(out, size, "%u 0 1", INSIDE_USER);
}
