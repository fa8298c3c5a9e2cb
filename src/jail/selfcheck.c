/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selfcheck.c: reads the protection statement, as far as it can be read from inside.
 *
 * Every reading asks the kernel about the calling process, or tries what the layer must refuse. The attempts change
 * nothing where the layer is off: unshare(0), an unknown keyctl operation, opening a directory, chmod of / to the mode
 * that it has. A reading that could not be taken is "off", never "on".
 *
 * What procfs says is believed only after fstatfs has shown that it is procfs. There is no allocation and no errno, and
 * the stack needs a few KiB: it runs in a child that shares its parent's memory (guest/init/program.c).
 * selfcheck_places.c has the file system layers.
 */
#include "jail/selfcheck.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "jail/rawcall.h"
#include "jail/selfcheck_parts.h"
#include "jail/user.h"

void check_put(struct check *check, enum brig_layer layer, bool on, struct reading detail)
{
    struct reading *reading = &check->readings[layer];
    bool skipped = (check->start->skip & BRIG_LAYER_BIT(layer)) != 0;

    *reading = (struct reading){.on = on, .value = detail.value};
    if (on)
        reading->by = detail.by;
    else
        reading->why = skipped ? WHY_SWITCHED_OFF : detail.why;
}

static void put_plain(struct check *check, enum brig_layer layer, bool on, long ret)
{
    check_put(check, layer, on, (struct reading){.why = WHY_READ_BACK, .value = on || ret >= 0 ? 0 : (uint32_t)-ret});
}

/* ---- namespaces ------------------------------------------------------------------------------------- */

/* "user:[4026531837]" -> 4026531837; 0 when it does not look like that. */
uint64_t check_ns_inode(const char *link, size_t len)
{
    uint64_t inode = 0;
    size_t i = 0;

    while (i < len && link[i] != '[')
        i++;
    for (i++; i < len && link[i] >= '0' && link[i] <= '9' && inode < UINT32_MAX; i++)
        inode = inode * 10 + (uint64_t)(link[i] - '0');
    return i + 1 == len && link[i] == ']' ? inode : 0;
}

static bool ids_are(uint32_t uid, uint32_t gid)
{
    uint32_t u[3] = {0}, g[3] = {0};

    return raw_call3(SYS_getresuid, &u[0], &u[1], &u[2]) == 0 && raw_call3(SYS_getresgid, &g[0], &g[1], &g[2]) == 0 &&
           u[0] == uid && u[1] == uid && u[2] == uid && g[0] == gid && g[1] == gid && g[2] == gid;
}

static void check_namespaces(struct check *check)
{
    static const struct {
        const char *link;
        enum guest_ns ns;
        enum brig_layer layer;
    } table[] = {
        {"ns/user", NS_USER, BRIG_LAYER_USER_NS},       {"ns/mnt", NS_MNT, BRIG_LAYER_MOUNT_NS},
        {"ns/pid", NS_PID, BRIG_LAYER_PID_NS},          {"ns/net", NS_NET, BRIG_LAYER_NET_NS},
        {"ns/ipc", NS_IPC, BRIG_LAYER_IPC_NS},          {"ns/uts", NS_UTS, BRIG_LAYER_UTS_NS},
        {"ns/cgroup", NS_CGROUP, BRIG_LAYER_CGROUP_NS}, {"ns/time", NS_TIME, BRIG_LAYER_TIME_NS},
    };
    char link[64] = {0};

    for (unsigned i = 0; i < ARRAY_SIZE(table); i++) {
        uint32_t host = check->start->ns_host[table[i].ns];
        long len = check->self_fd < 0 ? check->self_fd
                                      : raw_call4(SYS_readlinkat, check->self_fd, table[i].link, link, sizeof(link));
        uint64_t inode = len > 0 ? check_ns_inode(link, (size_t)len) : 0;
        bool on = inode != 0 && host != 0 && inode != host;
        enum reading_why why = WHY_READ_BACK;

        if (table[i].layer == BRIG_LAYER_USER_NS) /* in it as nobody else than the program's user */
            on = on && ids_are(check->start->uid, check->start->gid);
        if (table[i].layer == BRIG_LAYER_PID_NS) /* the process that made us is pid 1 of it */
            on = on && raw_call0(SYS_getppid) == 1;
        if (table[i].layer == BRIG_LAYER_TIME_NS && inode != 0 && inode == host)
            why = WHY_NOT_ASKED;
        if (len == -ENOENT && check->self_fd >= 0)
            why = WHY_KERNEL;
        check_put(check, table[i].layer, on,
                  (struct reading){.why = (uint16_t)why, .value = !on && len < 0 ? (uint32_t)-len : 0});
    }
}

/* ---- /proc/self/status: capabilities, no_new_privs, seccomp ----------------------------------------- */

/* The value of one "Name:\tvalue" line; false unless it is there, whole, and a number in that base. */
bool check_status_field(const char *text, size_t len, const char *name, unsigned base, uint64_t *ret)
{
    size_t name_len = __builtin_strlen(name);

    for (size_t at = 0; at < len;) {
        size_t end = at, digits = 0;
        uint64_t value = 0;

        while (end < len && text[end] != '\n')
            end++;
        if (end == len) /* the last line may be cut off */
            return false;
        if (end - at > name_len + 2 && __builtin_memcmp(text + at, name, name_len) == 0 && text[at + name_len] == ':' &&
            text[at + name_len + 1] == '\t') {
            for (at += name_len + 2; at < end; at++, digits++) {
                char c = text[at];
                unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                                 : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                        : 16;

                if (digit >= base || digits == 16)
                    return false;
                value = value * base + digit;
            }
            *ret = value;
            return true;
        }
        at = end + 1;
    }
    return false;
}

/* A line that is not there counts as empty only where the kernel says that it has no ambient set (gVisor of 2022). */
static bool no_such_set(const char *name)
{
    return __builtin_memcmp(name, "CapAmb", sizeof("CapAmb")) == 0 &&
           raw_call5(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 0, 0, 0) == -EINVAL;
}

static void check_privileges(struct check *check, const char *status, size_t len)
{
    static const char *const sets[] = {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"};
    /* A program of root has some, so the layer is off; that it has no others is read back all the same. */
    bool root = (check->start->flags & GUEST_START_ROOT) && check->start->uid == 0, caps = true;
    const uint64_t has = root ? ROOT_INSIDE_CAPS : 0, want[] = {0, has, has, has, 0};
    uint64_t value = 0;
    long probe, keys;

    for (unsigned i = 0; i < ARRAY_SIZE(sets); i++)
        caps = (check_status_field(status, len, sets[i], 16, &value) ? value == want[i] : no_such_set(sets[i])) && caps;
    check_put(check, BRIG_LAYER_CAPS, caps && !root,
              (struct reading){.why = caps && root ? WHY_ROOT_INSIDE : WHY_READ_BACK});
    if (!check_status_field(status, len, "NoNewPrivs", 10, &value)) /* gVisor of 2022 has no such line */
        value = (uint64_t)raw_call5(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
    put_plain(check, BRIG_LAYER_NO_NEW_PRIVS, value == 1, 0);

    /*
     * A filter is there, and it is ours: without it unshare(0) succeeds, the keyctl is EOPNOTSUPP and the socket option
     * EBADF. The last tells it from the profile of an engine, which has no rules about arguments.
     */
    probe = raw_call1(SYS_unshare, 0);
    keys = raw_call5(SYS_keyctl, ~0u, 0, 0, 0, 0);
    put_plain(check, BRIG_LAYER_SECCOMP,
              check_status_field(status, len, "Seccomp", 10, &value) && value == 2 && probe == -EPERM &&
                  keys == -ENOSYS && raw_call5(SYS_setsockopt, -1, SOL_SOCKET, SO_BINDTODEVICE, 0, 0) == -EPERM,
              probe);
}

/* ---- Landlock ---------------------------------------------------------------------------------------- */

/*
 * No rule can allow a directory on a mount that is attached nowhere, so a domain that handles reading directories
 * refuses it. Everything else allows it, provided that its mode does.
 */
static long try_directory(int probe_fd, bool *ret_fair)
{
    struct stat st = {0};
    long ret = raw_call2(SYS_fstat, probe_fd, &st);

    *ret_fair = ret == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 0555) == 0555;
    return ret == 0 ? raw_call4(SYS_openat, probe_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0) : ret;
}

/*
 * Where there is no such directory: no domain of ours allows to write anything in /proc, and without one a process may
 * open its own name for writing. The file is the process's only while it can be dumped; nothing of the user's has run
 * yet.
 */
static long try_own_comm(const struct check *check, bool *ret_fair)
{
    struct stat st = {0};
    long ret = raw_call5(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);

    if (ret == 0)
        ret = raw_call4(SYS_newfstatat, check->self_fd, "comm", &st, 0);
    *ret_fair = ret == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0200) && raw_call0(SYS_geteuid) == st.st_uid;
    if (ret == 0)
        ret = raw_call4(SYS_openat, check->self_fd, "comm", O_WRONLY | O_CLOEXEC, 0);
    if (raw_call5(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        *ret_fair = false;
    return ret;
}

static void check_landlock(struct check *check, int probe_fd)
{
    uint32_t abi = check->start->landlock_abi;
    bool fair = false;
    long ret = probe_fd >= 0                    ? try_directory(probe_fd, &fair)
               : probe_fd == SELFCHECK_NO_PROBE ? -ENOENT
               : check->self_fd < 0             ? check->self_fd
                                                : try_own_comm(check, &fair);

    if (ret >= 0)
        raw_call1(SYS_close, ret);
    if (fair && ret == -EACCES && abi > 0)
        check_put(check, BRIG_LAYER_LANDLOCK, true, (struct reading){.value = abi});
    else
        check_put(
            check, BRIG_LAYER_LANDLOCK, false,
            (struct reading){.why = abi == 0 ? WHY_KERNEL : WHY_READ_BACK, .value = ret < 0 ? (uint32_t)-ret : 0});
}

/* ---- descriptors ------------------------------------------------------------------------------------- */

/*
 * Checks the descriptors that the program will find: only the declared ones, and none of them a directory (a way out,
 * CVE-2024-21626). Asking for each number below the size of our table is cheaper than reading /proc/self/fd, which
 * makes an inode for each; poll() for all of them at once would not see O_PATH descriptors. fstat comes first because
 * the filter lets it pass without looking at arguments.
 */
static bool fd_is_fine(int fd, int max_fd)
{
    struct stat st = {0};
    long ret = raw_call2(SYS_fstat, fd, &st);

    if (ret == -EBADF)
        return true;
    if (fd > max_fd)
        return (raw_call3(SYS_fcntl, fd, F_GETFD, 0) & FD_CLOEXEC) != 0;
    return ret == 0 && !S_ISDIR(st.st_mode);
}

static void check_fds(struct check *check, const char *status, size_t len, int max_fd)
{
    uint64_t size = 0;
    bool fine = check_status_field(status, len, "FDSize", 10, &size) && size > 0 && size <= INT32_MAX;

    for (int fd = 0; fine && fd < (int)size; fd++)
        fine = fd_is_fine(fd, max_fd);
    put_plain(check, BRIG_LAYER_FDS, fine, 0);
}

/* ------------------------------------------------------------------------------------------------------- */

/* Returns the bytes read, 0 when nothing could be. */
static size_t read_status(const struct check *check, char *text, size_t size)
{
    long fd = raw_call4(SYS_openat, check->self_fd, "status", O_RDONLY | O_CLOEXEC, 0), len;

    if (raw_failed(fd))
        return 0;
    len = raw_call3(SYS_read, fd, text, size);
    raw_call1(SYS_close, fd);
    return len > 0 ? (size_t)len : 0;
}

/* /proc/self, if that is what it is. */
static long open_self(void)
{
    struct statfs fs = {0};
    long fd = raw_call4(SYS_openat, AT_FDCWD, "/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC, 0), ret;

    if (raw_failed(fd))
        return fd;
    ret = raw_call2(SYS_fstatfs, fd, &fs);
    if (ret == 0 && fs.f_type == PROC_SUPER_MAGIC)
        return fd;
    raw_call1(SYS_close, fd);
    return ret != 0 ? ret : -ENODEV;
}

void jail_selfcheck(const struct selfcheck_plan *plan, struct reading readings[BRIG_LAYER_MAX])
{
    struct check check = {.start = plan->start, .readings = readings, .self_fd = open_self()};
    char status[2048]; /* the fields stand in the first kilobyte; what follows is of variable length */
    size_t len = check.self_fd < 0 ? 0 : read_status(&check, status, sizeof(status));

    check_namespaces(&check);
    check_privileges(&check, status, len);
    check_landlock(&check, plan->landlock_probe_fd);
    check_root(&check);
    check_proc(&check);
    check_fds(&check, status, len, plan->max_fd);
    check_store(&check);
    if (check.self_fd >= 0)
        raw_call1(SYS_close, check.self_fd);
}
