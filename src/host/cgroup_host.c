/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup_host.c: finds the control groups that this process may use. It looks for hierarchies where every distribution
 * mounts them (/sys/fs/cgroup, or below it on hybrid hosts). It believes one only after it has checked its file system
 * magic, and only if it shows our own cgroup. What cannot be written is left out, and the statement then says so.
 */
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/vfs.h>
#include <time.h>

#include "base/dir.h"
#include "base/fd.h"
#include "base/mem.h"
#include "host/cgroup.h"
#include "jail/sys.h"

#define CGROUP_ROOT "/sys/fs/cgroup"
#define MOUNTS_MAX ((size_t)4 << 20)
#define SELF_LEAF "brig-self"
#define LEAVING_TRIES 250 /* half a second for a spawner on its way out */
#define LEAVING_PAUSE_NS 2000000

static const char *const controller_names[CG_MAX] = {"memory", "pids", "cpu", "cpuacct", "blkio", "freezer", "hugetlb"};

static bool has_word(const char *list, const char *word)
{
    size_t len = strlen(word);

    for (const char *p = list; (p = strstr(p, word)) != NULL; p += len) {
        bool starts = p == list || strchr(", \n", p[-1]);
        if (starts && (p[len] == '\0' || strchr(", \n", p[len])))
            return true;
    }
    return false;
}

static unsigned controllers_of(const char *list)
{
    unsigned mask = 0;

    for (unsigned i = 0; i < CG_MAX; i++)
        if (has_word(list, controller_names[i]))
            mask |= 1u << i;
    if (has_word(list, "io")) /* v2's name for it */
        mask |= 1u << CG_BLKIO;
    return mask;
}

/* The field `word` of a line of mountinfo, "36 35 98:0 /root /point ...", its octal escapes undone. */
static int mount_field(const char *line, unsigned word, char *out, size_t size)
{
    size_t len = 0;

    for (; word > 0 && *line && *line != '\n'; line++)
        word -= *line == ' ';
    for (; *line && *line != ' ' && *line != '\n'; line++, len++) {
        if (len + 1 >= size)
            return -ENAMETOOLONG;
        bool escape = line[0] == '\\' && strspn(line + 1, "01234567") >= 3;
        out[len] = escape ? (char)((line[1] - '0') << 6 | (line[2] - '0') << 3 | (line[3] - '0')) : *line;
        line += escape ? 3 : 0;
    }
    out[len] = '\0';
    return 0;
}

/* Which cgroup is the top of the mount that fd is in: of several that lie over each other, only one can be opened. */
static int top_of_mount(int fd, const char *mounts, char *out, size_t size)
{
    struct statx st;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0 || !(st.stx_mask & STATX_MNT_ID))
        return -ENOSYS;
    for (const char *line = mounts; line && *line; line = strchr(line, '\n'), line += line ? 1 : 0)
        if (strtoull(line, NULL, 10) == st.stx_mnt_id)
            return mount_field(line, 3, out, size);
    return -ENOENT;
}

/* What path has below top; NULL: it is not below it. A path that leaves our cgroup namespace is below nothing. */
static const char *below(const char *path, const char *top)
{
    size_t len = strcmp(top, "/") == 0 ? 0 : strlen(top);

    if (strncmp(path, top, len) != 0 || (path[len] != '\0' && path[len] != '/') || strncmp(path + len, "/..", 3) == 0)
        return NULL;
    return path + len;
}

/* "/..", "/../..": the top lies above our cgroup namespace, and so above us. */
static bool is_above(const char *top)
{
    while (strncmp(top, "/..", 3) == 0)
        top += 3;
    return *top == '\0';
}

/*
 * Finds our own cgroup below the mount. In a container the mount may begin at it, or below it. A mount of somebody
 * else's cgroups is of no use: what is made there escapes the limits that hold for us.
 */
static const char *own_below(int mount_fd, const char *path, const char *mounts)
{
    char top[512];

    if (top_of_mount(mount_fd, mounts, top, sizeof top) < 0)
        return faccessat(mount_fd, path[1] ? path + 1 : ".", F_OK, 0) == 0 ? path : ""; /* as far as can be told */
    const char *rest = below(path, top);
    if (!rest && (below(top, path) || is_above(top)))
        rest = "";
    return rest;
}

char *cg_read_mounts(void)
{
    char *mounts = mem_alloc(MOUNTS_MAX);

    if (mounts && fd_read_file(AT_FDCWD, "/proc/self/mountinfo", mounts, MOUNTS_MAX) < 0)
        mounts[0] = '\0';
    return mounts;
}

int cg_find_own(const char *mount, const char *path, const char *mounts)
{
    AUTO_FD int top = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const char *rest = top < 0 ? NULL : own_below(top, path, mounts);

    return rest ? openat(top, rest[0] && rest[1] ? rest + 1 : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

/* Our own cgroup there, if we may divide it. */
static int open_own(const char *mount, const char *path, const char *mounts, long magic)
{
    struct statfs fs;
    AUTO_FD int fd = cg_find_own(mount, path, mounts);

    if (fd < 0 || fstatfs(fd, &fs) < 0 || fs.f_type != magic)
        return -1;
    if (faccessat(fd, ".", W_OK, AT_EACCESS) < 0 || faccessat(fd, "cgroup.procs", W_OK, AT_EACCESS) < 0)
        return -1;
    return take_fd(&fd);
}

static unsigned enable_controllers(int fd)
{
    static const struct {
        const char *text;
        enum cg_controller controller;
    } wanted[] = {
        {"+memory", CG_MEMORY}, {"+pids", CG_PIDS}, {"+cpu", CG_CPU}, {"+io", CG_BLKIO}, {"+hugetlb", CG_HUGETLB}};
    char text[256];
    unsigned there = fd_read_file(fd, "cgroup.controllers", text, sizeof text) < 0 ? 0 : controllers_of(text);

    if (fd_read_file(fd, "cgroup.subtree_control", text, sizeof text) >= 0)
        there &= ~controllers_of(text); /* each write takes a lock of the whole kernel */
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
        if (there & (1u << wanted[i].controller))
            (void)!fd_write_file(fd, "cgroup.subtree_control", wanted[i].text); /* what failed is missing below */
    if (fd_read_file(fd, "cgroup.subtree_control", text, sizeof text) < 0)
        return 0;
    return controllers_of(text);
}

/* A spawner or one of its helpers; or gone by now. */
static bool is_leaving(long pid)
{
    char path[32], name[32];

    snprintf(path, sizeof path, "/proc/%ld/comm", pid);
    ssize_t n = fd_read_file(AT_FDCWD, path, name, sizeof name);
    return n == -ENOENT || n == -ESRCH ||
           (n > 0 && (strcmp(name, "brig-spawner\n") == 0 || strcmp(name, "brig-reaper\n") == 0 ||
                      strcmp(name, "brig-mover\n") == 0));
}

/* 0: nobody is here but we, our helper and the engine. -EAGAIN: only a spawner whose engine is gone, and that will be
 * too. */
static int only_ours(const struct cg_host *host)
{
    char text[4096];
    char *save = NULL;
    int r = 0;

    if (fd_read_file(host->v2_fd, "cgroup.procs", text, sizeof text) < 0)
        return -EACCES;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        long pid = strtol(line, NULL, 10); /* 0: of a pid namespace that is not ours to see */
        if (pid != 0 && (pid == getpid() || pid == host->engine_pid || pid == host->helper_pid))
            continue;
        if (pid == 0 || !is_leaving(pid))
            return -EBUSY;
        r = -EAGAIN;
    }
    return r;
}

static int move_to(int dir, pid_t pid)
{
    char text[24];

    snprintf(text, sizeof text, "%d", (int)pid);
    return fd_write_file(dir, "cgroup.procs", text);
}

static unsigned enter_leaf(struct cg_host *host)
{
    if (mkdirat(host->v2_fd, SELF_LEAF, 0755) < 0 && errno != EEXIST)
        return 0;
    AUTO_FD int leaf = openat(host->v2_fd, SELF_LEAF, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD int self = fcntl(host->v2_fd, F_DUPFD_CLOEXEC, 0);
    if (leaf < 0 || self < 0 || flock(leaf, LOCK_SH) < 0)
        return 0;
    host->v2_leaf_fd = take_fd(&leaf); /* from here on leave_leaf() undoes it */
    host->v2_self_fd = take_fd(&self);
    if (host->helper_pid > 0)
        (void)!move_to(host->v2_leaf_fd, host->helper_pid); /* it may be done */
    if (move_to(host->v2_leaf_fd, host->engine_pid) < 0 || move_to(host->v2_leaf_fd, getpid()) < 0)
        return 0;
    return enable_controllers(host->v2_fd);
}

/* Leaves a non-root v2 cgroup for a leaf of it, so that it may hand its controllers down. */
static unsigned move_into_leaf(struct cg_host *host)
{
    const struct timespec pause = {.tv_nsec = LEAVING_PAUSE_NS};
    unsigned got = 0;

    for (int i = 0; i < LEAVING_TRIES; i++) {
        if (flock(host->v2_fd, LOCK_EX) < 0)
            return 0;
        int r = only_ours(host);
        if (r == 0)
            got = enter_leaf(host);
        flock(host->v2_fd, LOCK_UN);
        if (r != -EAGAIN)
            break;
        nanosleep(&pause, NULL);
    }
    return got;
}

static void init_v2(struct cg_host *host, const char *mount, char *path, const char *mounts, bool privileged)
{
    char text[256];
    const unsigned needed = 1u << CG_MEMORY | 1u << CG_PIDS | 1u << CG_CPU;
    size_t len = strlen(path), tail = strlen("/" SELF_LEAF);

    /* Another engine of this process has moved us already (or one did that was killed). We divide what it divides. */
    if (len >= tail && strcmp(path + len - tail, "/" SELF_LEAF) == 0)
        path[len - tail] = '\0';
    host->v2_fd = open_own(mount, path, mounts, CGROUP2_SUPER_MAGIC);
    if (host->v2_fd < 0 || fd_read_file(host->v2_fd, "cgroup.controllers", text, sizeof text) < 0)
        return;
    bool top = faccessat(host->v2_fd, "cgroup.type", F_OK, 0) < 0; /* only the root cgroup has none */
    if ((controllers_of(text) & needed) == 0) { /* hybrid: a tree without controllers still counts and kills */
        host->v2_controllers = top ? enable_controllers(host->v2_fd) : 0;
        return;
    }
    host->v2_controllers = top ? enable_controllers(host->v2_fd) : move_into_leaf(host);
    if ((host->v2_controllers & needed) == needed || top || !privileged)
        return;
    AUTO_FD int root = open_own(mount, "/", mounts, CGROUP2_SUPER_MAGIC);
    if (root < 0 || faccessat(root, "cgroup.type", F_OK, 0) == 0)
        return;
    close(host->v2_fd);
    host->v2_fd = take_fd(&root);
    host->v2_controllers = enable_controllers(host->v2_fd);
}

static void init_v1(struct cg_host *host, const char *controllers, const char *path, const char *mounts)
{
    char mount[128];
    unsigned mask = controllers_of(controllers);

    if (mask == 0 || host->n_v1 == CG_HIERARCHIES)
        return;
    snprintf(mount, sizeof mount, CGROUP_ROOT "/%s", controllers);
    int fd = open_own(mount, path, mounts, CGROUP_SUPER_MAGIC);
    if (fd < 0)
        return;
    host->v1[host->n_v1].fd = fd;
    host->v1[host->n_v1++].controllers = mask;
}

/* "hugepages-2048kB" is 2MB to the controller. */
static void find_huge_sizes(struct cg_host *host)
{
    AUTO_DIR DIR *dir = dir_open(AT_FDCWD, "/sys/kernel/mm/hugepages");

    for (const struct dirent *entry; (entry = dir_next(dir)) && host->n_huge_sizes < CG_HUGE_SIZES;) {
        unsigned long kb;
        if (strncmp(entry->d_name, "hugepages-", 10) != 0 || (kb = strtoul(entry->d_name + 10, NULL, 10)) == 0)
            continue;
        char *name = host->huge_sizes[host->n_huge_sizes++];
        if (kb >= 1u << 20)
            snprintf(name, sizeof host->huge_sizes[0], "%luGB", kb >> 20 & 0xfff);
        else
            snprintf(name, sizeof host->huge_sizes[0], kb >= 1u << 10 ? "%luMB" : "%luKB",
                     kb >= 1u << 10 ? kb >> 10 : kb);
    }
}

void cg_host_init(struct cg_host *host, pid_t engine_pid, pid_t helper_pid, bool privileged)
{
    char text[4096];
    char *save = NULL;
    struct statfs fs;

    *host = (struct cg_host){
        .v2_fd = -1, .v2_self_fd = -1, .v2_leaf_fd = -1, .engine_pid = engine_pid, .helper_pid = helper_pid};
    if (fd_read_file(AT_FDCWD, "/proc/self/cgroup", text, sizeof text) < 0 || statfs(CGROUP_ROOT, &fs) < 0)
        return;
    AUTO_FREE char *mounts = cg_read_mounts();
    const char *v2_mount = fs.f_type == CGROUP2_SUPER_MAGIC ? CGROUP_ROOT : CGROUP_ROOT "/unified";
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        if (*++controllers == '\0')
            init_v2(host, v2_mount, path, mounts, privileged);
        else
            init_v1(host, controllers, path, mounts);
    }
    if (cg_host_by(host, CG_HUGETLB) != BY_NONE)
        find_huge_sizes(host);
    /* The v2 leaf counts CPU time and kills; v1's own hierarchies for that are then not worth an attach. */
    for (unsigned i = 0; host->v2_fd >= 0 && i < host->n_v1;) {
        if (host->v1[i].controllers & ~(1u << CG_CPUACCT | 1u << CG_FREEZER)) {
            i++;
            continue;
        }
        close(host->v1[i].fd);
        host->v1[i] = host->v1[--host->n_v1];
    }
}

static bool has_other_leaves(int fd)
{
    char text[512];
    const char *line;
    /* nr_descendants counts our SELF_LEAF as well. */
    if (fd_read_file(fd, "cgroup.stat", text, sizeof text) < 0 || !(line = strstr(text, "nr_descendants ")))
        return true;
    return strtol(line + strlen("nr_descendants "), NULL, 10) > 1;
}

/* Ourselves, the engine if it lives, and the children it has had since. */
static void move_all_back(const struct cg_host *host)
{
    char text[4096];

    if (fd_read_file(host->v2_leaf_fd, "cgroup.procs", text, sizeof text) < 0)
        return;
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) /* a line cut off waits for the
                                                                                         next look */
        (void)!move_to(host->v2_self_fd, (pid_t)strtol(line, NULL, 10));
}

/* Goes back to the cgroup we came from, if no other brig lives below it. */
static void leave_leaf(struct cg_host *host)
{
    static const char *const all[] = {"-hugetlb", "-io", "-cpu", "-pids", "-memory"};

    if (flock(host->v2_self_fd, LOCK_EX) == 0 && flock(host->v2_leaf_fd, LOCK_EX | LOCK_NB) == 0 &&
        !has_other_leaves(host->v2_self_fd)) {
        for (size_t i = 0; i < ARRAY_SIZE(all); i++)
            (void)!fd_write_file(host->v2_self_fd, "cgroup.subtree_control", all[i]);
        for (int i = 0; i < LEAVING_TRIES && unlinkat(host->v2_self_fd, SELF_LEAF, AT_REMOVEDIR) < 0 && errno == EBUSY;
             i++)
            move_all_back(host);
    }
    base_close_fd(&host->v2_leaf_fd);
    base_close_fd(&host->v2_self_fd);
}

void cg_host_done(struct cg_host *host)
{
    if (host->v2_self_fd >= 0)
        leave_leaf(host);
    base_close_fd(&host->v2_fd);
    for (unsigned i = 0; i < host->n_v1; i++)
        base_close_fd(&host->v1[i].fd);
    host->n_v1 = 0;
}

enum reading_by cg_host_by(const struct cg_host *host, enum cg_controller controller)
{
    if (host->v2_fd >= 0 && (host->v2_controllers & (1u << controller)))
        return BY_CGROUP_V2;
    for (unsigned i = 0; i < host->n_v1; i++)
        if (host->v1[i].controllers & (1u << controller))
            return BY_CGROUP_V1;
    return BY_NONE;
}
