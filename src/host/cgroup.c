/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup.c: makes, limits, reads back and removes the control groups of one sandbox. A limit is believed only after it
 * was read back from the file and the sandbox's pid 1 was found in the group.
 */
#include "host/cgroup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/parse.h"
#include "base/str.h"
#include "host/cgroup_parts.h"
#include "jail/sys.h"

/*
 * The periods are short. A sandbox with many threads may use up its quota on all CPUs at once, and is then stopped
 * until the period ends; in between its neighbours wait. 10 ms keeps that wait at a few milliseconds, the kernel's
 * usual 100 ms does not. The kernel's smallest quota is 1 ms, so small fractions of a CPU need the long period.
 */
static unsigned cpu_period(uint64_t cpus)
{
    return cpus >= 100 ? 10000 : 100000;
}

int cg_dir(const struct cg *cg, enum cg_controller controller)
{
    if (cg->v2_fd >= 0 && (cg->host->v2_controllers & (1u << controller)))
        return cg->v2_fd;
    for (unsigned i = 0; cg->host && i < cg->host->n_v1; i++)
        if (cg->host->v1[i].controllers & (1u << controller))
            return cg->v1_fd[i];
    return -1;
}

bool cg_is_v2(const struct cg *cg, enum cg_controller controller)
{
    return cg->v2_fd >= 0 && (cg->host->v2_controllers & (1u << controller));
}

static int make_dir(int parent, const char *name, struct brig_err *err)
{
    if (SYS(mkdirat(parent, name, 0755)) < 0)
        return err_host(err, "cgroup %s", name);
    int fd = SYS(openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0) {
        int saved = errno;
        unlinkat(parent, name, AT_REMOVEDIR);
        return err_set(err, BRIG_E_HOST, saved, "cgroup %s", name);
    }
    return fd;
}

int cg_create(struct cg *cg, const struct cg_host *host, const char *name, struct brig_err *err)
{
    *cg = CG_INIT;
    cg->host = host;
    if (str_copy(cg->name, sizeof cg->name, name) < 0)
        return err_set(err, BRIG_E_HOST, ENAMETOOLONG, "cgroup %s", name);
    int fd = host->v2_fd >= 0 ? make_dir(host->v2_fd, name, err) : -1;
    if (host->v2_fd >= 0 && fd < 0)
        return fd;
    cg->v2_fd = fd;
    return 0;
}

int cg_create_v1(struct cg *cg, bool io, struct brig_err *err)
{
    for (unsigned i = 0; i < cg->host->n_v1; i++) {
        if (cg->host->v1[i].controllers == 1u << CG_BLKIO && !io)
            continue; /* an attach nobody asked for */
        int fd = make_dir(cg->host->v1[i].fd, cg->name, err);
        if (fd < 0)
            return fd;
        cg->v1_fd[i] = fd;
    }
    return 0;
}

int cg_open_tasks(const struct cg *cg, int *fds, unsigned max, struct brig_err *err)
{
    unsigned n = 0;

    for (unsigned i = 0; cg->host && i < cg->host->n_v1; i++) {
        if (cg->v1_fd[i] < 0)
            continue;
        if (n == max || (fds[n] = SYS(openat(cg->v1_fd[i], "tasks", O_WRONLY | O_CLOEXEC))) < 0) {
            int saved = errno;
            fd_close_all(fds, n);
            return err_set(err, BRIG_E_HOST, saved, "cgroup tasks");
        }
        n++;
    }
    return (int)n;
}

static int put_number(int dir, const char *file, uint64_t value, struct brig_err *err)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRIu64, value);
    int r = SYS(fd_write_file(dir, file, text));
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "%s = %s", file, text) : 0;
}

/*
 * The whole of a file of counters, with a NUL, by one call: the kernel writes such a file at once and gives all of it
 * to a reader with room for it. Somebody waits for these numbers. False if it cannot be read or has no room.
 */
static bool read_counters(int dir, const char *file, char *text, size_t size)
{
    AUTO_FD int fd = dir < 0 ? -1 : fd_openat_read(dir, file);
    ssize_t n = fd < 0 ? -1 : SYS(read(fd, text, size));

    if (n <= 0 || (size_t)n == size)
        return false;
    text[n] = '\0';
    return true;
}

uint64_t cg_number(int dir, const char *file)
{
    char text[64];

    if (!read_counters(dir, file, text, sizeof text) || text[0] < '0' || text[0] > '9')
        return BRIG_USAGE_UNKNOWN;
    return strtoull(text, NULL, 10);
}

uint64_t cg_keyed(int dir, const char *file, const char *key)
{
    char text[4096];
    size_t len = strlen(key);

    if (!read_counters(dir, file, text, sizeof text))
        return BRIG_USAGE_UNKNOWN;
    for (char *p = text; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        if (strncmp(p, key, len) == 0 && p[len] == ' ')
            return strtoull(p + len + 1, NULL, 10);
    return BRIG_USAGE_UNKNOWN;
}

static int limit_memory(struct cg *cg, uint64_t bytes, struct brig_err *err)
{
    int dir = cg_dir(cg, CG_MEMORY);

    if (dir < 0)
        return 0;
    if (!cg_is_v2(cg, CG_MEMORY)) {
        bool swap = faccessat(dir, "memory.memsw.limit_in_bytes", W_OK, AT_EACCESS) == 0;
        uint64_t both = swap ? cg_number(dir, "memory.memsw.limit_in_bytes") : BRIG_USAGE_UNKNOWN;
        /* Memory is never more than both together, also between the two writes. */
        int r = swap && both < bytes ? put_number(dir, "memory.memsw.limit_in_bytes", bytes, err) : 0;
        if (r == 0)
            r = put_number(dir, "memory.limit_in_bytes", bytes, err);
        if (r == 0 && swap && both >= bytes)
            r = put_number(dir, "memory.memsw.limit_in_bytes", bytes, err);
        /* v1 counts socket buffers apart, and only where it is told to. */
        if (r == 0 && faccessat(dir, "memory.kmem.tcp.limit_in_bytes", W_OK, AT_EACCESS) == 0)
            r = put_number(dir, "memory.kmem.tcp.limit_in_bytes", bytes / 2, err);
        return r;
    }
    int r = put_number(dir, "memory.max", bytes, err);
    if (r == 0)
        r = put_number(dir, "memory.oom.group", !cg->oom_one, err);
    if (r == 0 && faccessat(dir, "memory.swap.max", W_OK, AT_EACCESS) == 0)
        r = put_number(dir, "memory.swap.max", 0, err);
    return r;
}

static uint64_t cpu_quota(uint64_t cpus)
{
    uint64_t quota = cpus * cpu_period(cpus) / 1000;

    return quota < 1000 ? 1000 : quota; /* the kernel's smallest */
}

static int limit_cpu(struct cg *cg, uint64_t cpus, struct brig_err *err)
{
    int dir = cg_dir(cg, CG_CPU);
    char text[64];

    if (dir < 0)
        return 0;
    if (!cg_is_v2(cg, CG_CPU)) {
        int r = put_number(dir, "cpu.cfs_period_us", cpu_period(cpus), err);
        return r < 0 ? r : put_number(dir, "cpu.cfs_quota_us", cpu_quota(cpus), err);
    }
    snprintf(text, sizeof text, "%" PRIu64 " %u", cpu_quota(cpus), cpu_period(cpus));
    int r = SYS(fd_write_file(dir, "cpu.max", text));
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "cpu.max = %s", text) : 0;
}

static int limit_io(struct cg *cg, const struct brig_limits *l, const char *device, struct brig_err *err)
{
    int dir = cg_dir(cg, CG_BLKIO);
    char text[96];
    int r = 0;

    if (!l->io_read_bps && !l->io_write_bps)
        return 0;
    if (!device || dir < 0)
        return err_set(err, BRIG_E_UNSUPPORTED, EOPNOTSUPP, "io_read_bps, io_write_bps: %s",
                       device ? "no io controller to enforce them" : "the store is memory-backed, nothing to throttle");
    for (int write = 0; r == 0 && write < 2; write++) {
        uint64_t bps = write ? l->io_write_bps : l->io_read_bps;
        const char *file = cg_is_v2(cg, CG_BLKIO) ? "io.max"
                           : write                ? "blkio.throttle.write_bps_device"
                                                  : "blkio.throttle.read_bps_device";
        if (bps == 0)
            continue;
        if (cg_is_v2(cg, CG_BLKIO))
            snprintf(text, sizeof text, "%s %s=%" PRIu64, device, write ? "wbps" : "rbps", bps);
        else
            snprintf(text, sizeof text, "%s %" PRIu64, device, bps);
        r = SYS(fd_write_file(dir, file, text));
        if (r < 0)
            return err_set(err, BRIG_E_HOST, -r, "%s = %s", file, text);
    }
    return 0;
}

/* v1 tells of an OOM kill through an eventfd registered with the group; v2 kills the group itself (oom.group). */
static int watch_oom(struct cg *cg, struct brig_err *err)
{
    int dir = cg_dir(cg, CG_MEMORY);
    char text[48];

    if (cg->oom_one)
        base_close_fd(&cg->oom_event_fd);
    if (dir < 0 || cg_is_v2(cg, CG_MEMORY) || cg->oom_event_fd >= 0 || cg->oom_one)
        return 0;
    AUTO_FD int event = SYS(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    AUTO_FD int control = SYS(openat(dir, "memory.oom_control", O_RDONLY | O_CLOEXEC));
    if (event < 0 || control < 0)
        return err_host(err, "memory.oom_control");
    snprintf(text, sizeof text, "%d %d", event, control);
    int r = SYS(fd_write_file(dir, "cgroup.event_control", text));
    if (r < 0)
        return err_set(err, BRIG_E_HOST, -r, "cgroup.event_control");
    cg->oom_event_fd = take_fd(&event);
    return 0;
}

/*
 * No huge pages are allowed: they come from a pool that memory limits do not count. What was reserved counts too, so
 * that mmap is refused and not the first touch.
 */
static int limit_huge_pages(struct cg *cg, struct brig_err *err)
{
    int dir = cg_dir(cg, CG_HUGETLB), r = 0;
    const char *limit = cg_is_v2(cg, CG_HUGETLB) ? "max" : "limit_in_bytes";

    for (unsigned i = 0; dir >= 0 && r == 0 && i < cg->host->n_huge_sizes; i++) {
        char file[40];
        for (int reserved = 0; r == 0 && reserved < 2; reserved++) {
            snprintf(file, sizeof file, "hugetlb.%s.%s%s", cg->host->huge_sizes[i], reserved ? "rsvd." : "", limit);
            if (!reserved || faccessat(dir, file, W_OK, AT_EACCESS) == 0) /* reservations: since Linux 5.7 */
                r = put_number(dir, file, 0, err);
        }
    }
    return r;
}

int cg_set_limits(struct cg *cg, const struct brig_limits *l, const struct brig_limits *was, const char *device,
                  uint64_t off, struct brig_err *err)
{
    /* On v2, memory has more to set than the limit. */
    bool memory = !was || was->memory != l->memory || cg_is_v2(cg, CG_MEMORY), cpus = !was || was->cpus != l->cpus,
         pids = !was || was->pids != l->pids;
    int r = 0;

    if (memory && !(off & BRIG_LAYER_BIT(BRIG_LAYER_MEMORY)))
        r = limit_memory(cg, l->memory, err);
    if (r == 0 && !was && !(off & BRIG_LAYER_BIT(BRIG_LAYER_MEMORY)))
        r = limit_huge_pages(cg, err);
    if (r == 0)
        r = watch_oom(cg, err);
    if (r == 0 && cpus && !(off & BRIG_LAYER_BIT(BRIG_LAYER_CPU)))
        r = limit_cpu(cg, l->cpus, err);
    if (r == 0 && pids && !(off & BRIG_LAYER_BIT(BRIG_LAYER_PIDS)) && cg_dir(cg, CG_PIDS) >= 0)
        r = put_number(cg_dir(cg, CG_PIDS), "pids.max", l->pids + 1, err); /* pid 1 is ours, not the program's */
    if (r == 0)
        r = limit_io(cg, l, device, err);
    return r;
}

static int can_change(const struct cg *cg, const struct brig_limits *l, const struct brig_limits *was,
                      struct brig_err *err)
{
    const struct {
        const char *name;
        uint64_t now, was;
        enum cg_controller controller;
    } all[] = {{"memory", l->memory, was->memory, CG_MEMORY},
               {"cpus", l->cpus, was->cpus, CG_CPU},
               {"pids", l->pids, was->pids, CG_PIDS}};

    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        if (all[i].now != all[i].was && cg_dir(cg, all[i].controller) < 0)
            return err_set(err, BRIG_E_UNSUPPORTED, EOPNOTSUPP, "limits.%s: no cgroup to change it in", all[i].name);
    uint64_t used = l->memory < was->memory ? cg_memory_bytes(cg) : 0;
    if (used != BRIG_USAGE_UNKNOWN && used > l->memory) /* v1 refuses it, v2 would kill for it */
        return err_set(err, BRIG_E_CONFLICT, EBUSY, "limits.memory %" PRIu64 ": %" PRIu64 " bytes are in use",
                       l->memory, used);
    return 0;
}

int cg_change_limits(struct cg *cg, const struct brig_limits *l, const struct brig_limits *was, uint64_t off,
                     struct brig_err *err)
{
    struct brig_limits now = {.memory = l->memory, .cpus = l->cpus, .pids = l->pids},
                       before = {.memory = was->memory, .cpus = was->cpus, .pids = was->pids};
    int r = can_change(cg, l, was, err);

    if (r < 0)
        return r;
    r = cg_set_limits(cg, &now, &before, NULL, off, err);
    if (r < 0)
        (void)!cg_set_limits(cg, &before, NULL, NULL, off, NULL);
    return r;
}

/* Does a path have these parts, one after the other? What follows them is a cgroup below, and has the same limits. */
static bool is_below(const char *path, size_t len, const char *name, size_t name_len)
{
    for (const char *at = path; len > name_len && (at = memmem(at, len - (size_t)(at - path), name, name_len)); at++)
        if (at > path && at[-1] == '/' && (at + name_len == path + len || at[name_len] == '/'))
            return true;
    return false;
}

/* Is pid in our leaf of the hierarchy that has this controller? One line of /proc/PID/cgroup per hierarchy. */
static bool is_member(const struct cg *cg, const char *text, enum cg_controller controller)
{
    static const char *const names[CG_MAX] = {"memory", "pids", "cpu", "cpuacct", "blkio", "freezer", "hugetlb"};
    char name[CG_NAME + 16];
    size_t name_len = (size_t)snprintf(name, sizeof name, "%s%s", cg->name,
                                       cg->split && cg_is_v2(cg, controller) ? "/" CG_INIT_LEAF : "");

    for (const char *line = text; line && *line;) {
        const char *end = strchr(line, '\n');
        size_t len = end ? (size_t)(end - line) : strlen(line);
        const char *first = memchr(line, ':', len);
        const char *second = first ? memchr(first + 1, ':', len - (size_t)(first + 1 - line)) : NULL;
        if (second) {
            size_t list = (size_t)(second - first - 1);
            bool match = cg_is_v2(cg, controller)
                             ? list == 0
                             : memmem(first + 1, list, names[controller], strlen(names[controller])) != NULL;
            if (match && is_below(second + 1, len - (size_t)(second + 1 - line), name, name_len))
                return true;
        }
        line = end ? end + 1 : NULL;
    }
    return false;
}

static void put_reading(struct reading *out, const struct cg *cg, const char *members, enum cg_controller controller,
                        bool same)
{
    if (cg_dir(cg, controller) < 0) {
        *out = (struct reading){.why = WHY_NO_DELEGATION};
        return;
    }
    bool on = same && is_member(cg, members, controller);
    *out = (struct reading){
        .on = on, .by = cg_is_v2(cg, controller) ? BY_CGROUP_V2 : BY_CGROUP_V1, .why = on ? WHY_NONE : WHY_READ_BACK};
}

static bool cpu_is(const struct cg *cg, uint64_t cpus)
{
    int dir = cg_dir(cg, CG_CPU);
    char text[64];
    uint64_t fields[2]; /* quota, period */

    if (dir < 0)
        return false;
    if (!cg_is_v2(cg, CG_CPU))
        return cg_number(dir, "cpu.cfs_quota_us") == cpu_quota(cpus) &&
               cg_number(dir, "cpu.cfs_period_us") == cpu_period(cpus);
    if (fd_read_file(dir, "cpu.max", text, sizeof text) <= 0 || parse_fields(text, fields, 2) != 2)
        return false;
    return fields[0] == cpu_quota(cpus) && fields[1] == cpu_period(cpus);
}

/* "7:3 rbps=4096 wbps=max ..." (v2), "7:3 4096" (v1, a file each way) */
static bool io_is(const struct cg *cg, const char *device, uint64_t bps, bool write)
{
    char text[4096], want[48];
    bool v2 = cg_is_v2(cg, CG_BLKIO);
    const char *file = v2 ? "io.max" : write ? "blkio.throttle.write_bps_device" : "blkio.throttle.read_bps_device";

    if (bps == 0)
        return true;
    if (fd_read_file(cg_dir(cg, CG_BLKIO), file, text, sizeof text) <= 0)
        return false;
    const char *line = strstr(text, device);
    if (!line || line[strlen(device)] != ' ')
        return false;
    snprintf(want, sizeof want, v2 ? (write ? "wbps=%" PRIu64 : "rbps=%" PRIu64) : " %" PRIu64, bps);
    const char *found = strstr(line, want), *end = strchr(line, '\n');
    return found && (!end || found < end) && strchr(" \n", found[strlen(want)]);
}

void cg_read_back(const struct cg *cg, const struct brig_limits *l, const char *device, int proc_fd, pid_t pid,
                  struct reading readings[BRIG_LAYER_MAX])
{
    char path[32], members[4096] = "";
    int memory = cg_dir(cg, CG_MEMORY);

    snprintf(path, sizeof path, "%d/cgroup", (int)pid);
    if (fd_read_file(proc_fd, path, members, sizeof members) < 0)
        members[0] = '\0';
    uint64_t limit = cg_number(memory, cg_is_v2(cg, CG_MEMORY) ? "memory.max" : "memory.limit_in_bytes");
    put_reading(&readings[BRIG_LAYER_MEMORY], cg, members, CG_MEMORY, limit <= l->memory);
    put_reading(&readings[BRIG_LAYER_CPU], cg, members, CG_CPU, cpu_is(cg, l->cpus));
    put_reading(&readings[BRIG_LAYER_PIDS], cg, members, CG_PIDS,
                cg_number(cg_dir(cg, CG_PIDS), "pids.max") == l->pids + 1);
    if (!l->io_read_bps && !l->io_write_bps)
        readings[BRIG_LAYER_IO] = (struct reading){.why = WHY_NOT_ASKED};
    else if (!device)
        readings[BRIG_LAYER_IO] = (struct reading){.why = WHY_NO_DEVICE};
    else
        put_reading(&readings[BRIG_LAYER_IO], cg, members, CG_BLKIO,
                    io_is(cg, device, l->io_read_bps, false) && io_is(cg, device, l->io_write_bps, true));
}

int cg_enter(const struct cg *cg, pid_t pid)
{
    char text[16];
    int r = 0;

    snprintf(text, sizeof text, "%d", (int)pid);
    if (cg->v2_fd >= 0)
        r = fd_write_file(cg->v2_fd, "cgroup.procs", text);
    for (unsigned i = 0; r == 0 && i < cg->host->n_v1; i++)
        if (cg->v1_fd[i] >= 0)
            r = fd_write_file(cg->v1_fd[i], "cgroup.procs", text);
    return r;
}

bool cg_holds(const struct cg *cg, int proc_fd, pid_t pid)
{
    static const enum cg_controller limits[] = {CG_MEMORY, CG_PIDS, CG_CPU};
    char path[32], members[4096];

    snprintf(path, sizeof path, "%d/cgroup", (int)pid);
    if (fd_read_file(proc_fd, path, members, sizeof members) < 0)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
        if (cg_dir(cg, limits[i]) >= 0 && !is_member(cg, members, limits[i]))
            return false;
    return true;
}

void cg_forget(struct cg *cg)
{
    base_close_fd(&cg->oom_event_fd);
    base_close_fd(&cg->v2_fd);
    fd_close_all(cg->v1_fd, CG_HIERARCHIES);
    cg->host = NULL;
}

static int remove_dir(int parent, const char *name, int *fd)
{
    if (*fd < 0)
        return 0;
    if (cg_remove(parent, name) < 0)
        return -EBUSY;
    base_close_fd(fd);
    return 0;
}

int cg_destroy(struct cg *cg)
{
    int r = 0;

    if (!cg->host)
        return 0;
    base_close_fd(&cg->oom_event_fd);
    if (remove_dir(cg->host->v2_fd, cg->name, &cg->v2_fd) < 0)
        r = -EBUSY;
    for (unsigned i = 0; i < cg->host->n_v1; i++)
        if (remove_dir(cg->host->v1[i].fd, cg->name, &cg->v1_fd[i]) < 0)
            r = -EBUSY;
    return r;
}
