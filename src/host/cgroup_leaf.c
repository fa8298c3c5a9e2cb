/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup_leaf.c: a cgroup for each process of a long-lived sandbox, below the sandbox's own. With it everything that
 * the process has started can be counted and killed, even daemons.
 *
 *     v2 alone                             hybrid
 *     brig-ID        limits                v2      brig-ID       pid 1     brig-ID/p7    kills, counts CPU time
 *     brig-ID/init   pid 1                 memory  brig-ID       limits    brig-ID/p7    counts
 *     brig-ID/p7     counts and kills      pids    brig-ID       limits    brig-ID/p7    counts
 *
 * The v2 tree is what makes a leaf (cgroup.kill, since Linux 5.14); where there is none, there are no leaves. The
 * leaves of v1 only count. A user who may not move a process there (v1 asks whose process it is) does without. Where v2
 * has the controllers, pid 1 must not sit beside its leaves; it is cloned into a leaf of its own from the start,
 * because moving it, or enabling a controller over it, waits for a grace period of RCU (10 ms and more).
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/dir.h"
#include "base/fd.h"
#include "base/str.h"
#include "host/cgroup.h"
#include "host/cgroup_parts.h"
#include "jail/sys.h"

#define COUNTED (1u << CG_MEMORY | 1u << CG_PIDS)
#define LEAF_FILE 48

static void leaf_file(char out[LEAF_FILE], uint32_t leaf, const char *file)
{
    snprintf(out, LEAF_FILE, "p%u%s%s", leaf, file[0] ? "/" : "", file);
}

/* The sandbox's directories that get leaves: v2's first. */
static unsigned leaf_dirs(const struct cg *cg, int dirs[1 + CG_HIERARCHIES])
{
    unsigned n = 0;

    dirs[n++] = cg->v2_fd;
    for (unsigned i = 0; !cg->no_v1_leaves && i < cg->host->n_v1; i++)
        if (cg->v1_fd[i] >= 0 && (cg->host->v1[i].controllers & COUNTED))
            dirs[n++] = cg->v1_fd[i];
    return n;
}

bool cg_has_leaves(const struct cg *cg)
{
    return cg->host && cg->v2_fd >= 0 && (cg->split || !(cg->host->v2_controllers & COUNTED)) &&
           faccessat(cg->v2_fd, "cgroup.kill", W_OK, AT_EACCESS) == 0;
}

int cg_split(struct cg *cg)
{
    if (cg->v2_fd < 0 || !(cg->host->v2_controllers & COUNTED))
        return -1;
    if ((cg->host->v2_controllers & (1u << CG_MEMORY) &&
         fd_write_file(cg->v2_fd, "cgroup.subtree_control", "+memory") < 0) ||
        (cg->host->v2_controllers & (1u << CG_PIDS) &&
         fd_write_file(cg->v2_fd, "cgroup.subtree_control", "+pids") < 0) ||
        mkdirat(cg->v2_fd, CG_INIT_LEAF, 0755) < 0) {
        (void)!fd_write_file(cg->v2_fd, "cgroup.subtree_control", "-memory");
        (void)!fd_write_file(cg->v2_fd, "cgroup.subtree_control", "-pids");
        return -1;
    }
    int fd = openat(cg->v2_fd, CG_INIT_LEAF, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cg->split = fd >= 0;
    return fd;
}

static int open_dirs(struct cg *cg, const struct cg_host *host, const char *name, unsigned v1)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

    *cg = CG_INIT;
    cg->host = host;
    int r = str_copy(cg->name, sizeof cg->name, name);
    if (r < 0)
        return r;
    cg->v2_fd = openat(host->v2_fd, name, flags);
    if (cg->v2_fd < 0 && host->v2_fd >= 0)
        return -errno;
    for (unsigned i = 0; i < host->n_v1; i++)
        if (host->v1[i].controllers & v1)
            cg->v1_fd[i] = openat(host->v1[i].fd, name, flags);
    return 0;
}

int cg_open(struct cg *cg, const struct cg_host *host, const char *name, bool split)
{
    int r = open_dirs(cg, host, name, COUNTED);

    cg->split = split;
    return r == 0 && cg->v2_fd < 0 ? -ENOENT : r;
}

int cg_open_all(struct cg *cg, const struct cg_host *host, const char *name)
{
    return open_dirs(cg, host, name, ~0u);
}

/* The sandbox's limit again: since Linux 6.11 a refusal is counted where the limit is. */
void cg_leaf_limit(const struct cg *cg, uint32_t leaf, uint64_t pids)
{
    char name[LEAF_FILE], text[24];

    leaf_file(name, leaf, "pids.max");
    snprintf(text, sizeof text, "%llu", (unsigned long long)pids);
    if (cg_dir(cg, CG_PIDS) >= 0)
        (void)!fd_write_file(cg_dir(cg, CG_PIDS), name, text);
}

int cg_leaf_create(struct cg *cg, uint32_t leaf, uint64_t pids)
{
    int dirs[1 + CG_HIERARCHIES];
    unsigned n = leaf_dirs(cg, dirs);
    char name[LEAF_FILE];

    leaf_file(name, leaf, "");
    for (unsigned i = 0; i < n; i++)
        if (mkdirat(dirs[i], name, 0755) < 0) {
            int saved = errno;
            while (i-- > 0)
                unlinkat(dirs[i], name, AT_REMOVEDIR);
            return -saved;
        }
    /* All of a process goes when the kernel has to kill one of it, as a sandbox of one program would. */
    leaf_file(name, leaf, "memory.oom.group");
    if (cg_is_v2(cg, CG_MEMORY))
        (void)!fd_write_file(cg->v2_fd, name, "1");
    cg_leaf_limit(cg, leaf, pids);
    return 0;
}

/* What the kernel could have taken for the process that asked, which died and whose number was given again: out. */
static void put_out_strangers(const struct cg *cg, const char *procs, int proc_fd, pid_t init)
{
    int out = cg->host->v2_leaf_fd >= 0 ? cg->host->v2_leaf_fd : cg->host->v2_fd;
    char text[4096], path[32];
    struct stat ours, other;

    snprintf(path, sizeof path, "%d/ns/pid", (int)init);
    if (fstatat(proc_fd, path, &ours, 0) < 0 || fd_read_file(cg->v2_fd, procs, text, sizeof text) <= 0)
        return;
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        snprintf(path, sizeof path, "%.12s/ns/pid", line);
        if (fstatat(proc_fd, path, &other, 0) == 0 && other.st_ino == ours.st_ino)
            continue;
        (void)!fd_write_file(out, "cgroup.procs", line);
        for (unsigned i = 0; i < cg->host->n_v1; i++)
            (void)!fd_write_file(cg->host->v1[i].fd, "cgroup.procs", line);
    }
}

/* In the sandbox, and not in a leaf of it already. */
static bool is_in_base(const struct cg *cg, int proc_fd, pid_t pid)
{
    char path[32], text[4096], want[CG_NAME + 16];

    snprintf(path, sizeof path, "%d/cgroup", (int)pid);
    int len = snprintf(want, sizeof want, "/%s%s\n", cg->name, cg->split ? "/" CG_INIT_LEAF : "");
    if (fd_read_file(proc_fd, path, text, sizeof text) <= 0)
        return false;
    const char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    const char *end = line ? strchr(line + 1, '\n') : NULL;
    return end && end + 1 - line >= len && memcmp(end + 1 - len, want, (size_t)len) == 0;
}

static bool is_dead(int pidfd)
{
    struct pollfd look = {.fd = pidfd, .events = POLLIN};

    return poll(&look, 1, 0) != 0;
}

/*
 * pid is what the kernel said about the sender, and may belong to another process by now. The pidfd decides it: while
 * that process lives, its number is its own. If it has died when all is done, the processes in the leaf are looked at.
 */
int cg_leaf_enter(struct cg *cg, uint32_t leaf, int proc_fd, pid_t pid, pid_t init)
{
    int dirs[1 + CG_HIERARCHIES];
    unsigned n = leaf_dirs(cg, dirs);
    char name[LEAF_FILE], text[16];
    AUTO_FD int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (pidfd < 0 || !is_in_base(cg, proc_fd, pid) || is_dead(pidfd))
        return -ESRCH;
    leaf_file(name, leaf, "cgroup.procs");
    snprintf(text, sizeof text, "%d", (int)pid);
    int r = fd_write_file(dirs[0], name, text);
    for (unsigned i = 1; r == 0 && i < n; i++)
        if (fd_write_file(dirs[i], name, text) == -EACCES)
            cg->no_v1_leaves = true;
    for (unsigned i = 1; cg->no_v1_leaves && i < n; i++) {
        leaf_file(name, leaf, "");
        unlinkat(dirs[i], name, AT_REMOVEDIR);
        leaf_file(name, leaf, "cgroup.procs");
    }
    if (is_dead(pidfd)) {
        put_out_strangers(cg, name, proc_fd, init);
        return -ESRCH;
    }
    return r;
}

bool cg_leaf_is_empty(const struct cg *cg, uint32_t leaf)
{
    char name[LEAF_FILE];

    leaf_file(name, leaf, "cgroup.events");
    return cg_keyed(cg->v2_fd, name, "populated") != 1;
}

void cg_leaf_kill(const struct cg *cg, uint32_t leaf)
{
    char name[LEAF_FILE];

    leaf_file(name, leaf, "cgroup.kill");
    (void)!fd_write_file(cg->v2_fd, name, "1");
}

static uint64_t leaf_number(int dir, uint32_t leaf, const char *file)
{
    char name[LEAF_FILE];

    leaf_file(name, leaf, file);
    return cg_number(dir, name);
}

static uint32_t leaf_keyed(int dir, uint32_t leaf, const char *file, const char *key)
{
    char name[LEAF_FILE];

    leaf_file(name, leaf, file);
    uint64_t value = cg_keyed(dir, name, key);
    return value == BRIG_USAGE_UNKNOWN ? 0 : value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

void cg_leaf_count(const struct cg *cg, uint32_t leaf, struct guest_leaf_gone *ret)
{
    int memory = cg_dir(cg, CG_MEMORY), pids = cg_dir(cg, CG_PIDS);
    bool v2 = cg_is_v2(cg, CG_MEMORY);
    char name[LEAF_FILE];

    leaf_file(name, leaf, "cpu.stat");
    uint64_t us = cg_keyed(cg->v2_fd, name, "usage_usec");
    *ret = (struct guest_leaf_gone){
        .leaf = leaf,
        .cpu_ns = us == BRIG_USAGE_UNKNOWN ? us : us * 1000,
        .memory_peak = leaf_number(memory, leaf, v2 ? "memory.peak" : "memory.max_usage_in_bytes"),
        .pids_peak = leaf_number(pids, leaf, "pids.peak"),
        .oom_kills = leaf_keyed(memory, leaf, v2 ? "memory.events" : "memory.oom_control", "oom_kill"),
        .pids_refused = leaf_keyed(pids, leaf, "pids.events", "max"),
    };
}

int cg_leaf_remove(const struct cg *cg, uint32_t leaf)
{
    int dirs[1 + CG_HIERARCHIES], r = 0;
    unsigned n = leaf_dirs(cg, dirs);
    char name[LEAF_FILE];

    leaf_file(name, leaf, "");
    for (unsigned i = 0; i < n; i++)
        if (unlinkat(dirs[i], name, AT_REMOVEDIR) < 0 && errno != ENOENT)
            r = -EBUSY;
    return r;
}

/* One level: leaves have none of their own. */
static void remove_children(int parent, const char *name)
{
    AUTO_DIR DIR *dir = dir_open(parent, name);

    for (const struct dirent *entry; (entry = dir_next(dir));)
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
            unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
}

void cg_kill_named(int parent, const char *name)
{
    static const char *const files[][2] = {{"cgroup.kill", "1"}, {"cgroup.freeze", "0"}, {"freezer.state", "THAWED"}};
    AUTO_FD int dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    for (size_t i = 0; dir >= 0 && i < ARRAY_SIZE(files); i++)
        (void)!fd_write_file(dir, files[i][0], files[i][1]); /* each hierarchy has its own */
}

int cg_remove(int parent, const char *name)
{
    if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    remove_children(parent, name);
    return unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -EBUSY;
}
