/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk.c: finds processes in /proc, to signal everything that a process has started.
 *
 * A walk reads who is there, then signals through a pidfd after looking a second time, so that a number that was given
 * to somebody else in between is not hit. gVisor has no pidfds: there the second look is right before the signal, and
 * numbers are given out in a circle. With SIGKILL it is repeated until nobody is left alive: a process that was sent
 * one cannot fork any more, so only those that a walk did not see yet can add to them.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define TABLE_MAX 65536u
#define DENTS_SIZE 32768u
#define ROUNDS_MAX 16

struct row {
    pid_t pid, parent;
    bool hit;
};

struct kernel_dirent {
    uint64_t ino;
    int64_t off;
    unsigned short reclen;
    unsigned char type;
    char name[];
};

static pid_t number(const char *text)
{
    pid_t n = 0;

    for (; *text >= '0' && *text <= '9'; text++)
        n = n * 10 + (*text - '0');
    return *text == '\0' ? n : 0;
}

/* "PID/NAME" below /proc, NUL-terminated: its length, or a negative errno. */
static long read_of(int proc_fd, pid_t pid, const char *name, char *buf, size_t size)
{
    char path[32], digits[12];
    size_t n = 0, len = 0;

    for (unsigned left = (unsigned)pid; left > 0; left /= 10)
        digits[n++] = (char)('0' + left % 10);
    while (n > 0)
        path[len++] = digits[--n];
    path[len++] = '/';
    __builtin_memcpy(path + len, name, __builtin_strlen(name) + 1);
    long fd = raw_call4(SYS_openat, proc_fd, path, O_RDONLY | O_CLOEXEC, 0);
    if (raw_failed(fd))
        return fd;
    long got = raw_call3(SYS_read, fd, buf, size - 1);
    raw_call1(SYS_close, fd);
    if (got >= 0)
        buf[got] = '\0';
    return got;
}

/* The parent of a live process, and its state; 0 for one that is dead or gone. */
static pid_t parent_and_state(int proc_fd, pid_t pid, char *ret_state)
{
    char text[512], *at, *end = text;
    long len = read_of(proc_fd, pid, "stat", text, sizeof(text));

    for (at = text; at < text + len; at++) /* the name may hold anything, brackets too */
        if (*at == ')')
            end = at;
    if (end == text || end + 4 >= text + len || end[2] == 'Z' || end[2] == 'X')
        return 0;
    *ret_state = end[2];
    pid_t parent = 0;
    for (at = end + 4; *at >= '0' && *at <= '9'; at++)
        parent = parent * 10 + (*at - '0');
    return parent;
}

static pid_t parent_of(int proc_fd, pid_t pid)
{
    char state;

    return parent_and_state(proc_fd, pid, &state);
}

/* Calls visit for every process there is. Returns 0 or a negative errno. */
static long each_process(int proc_fd, void (*visit)(void *ctx, pid_t pid), void *ctx)
{
    char *dents = pages_map(DENTS_SIZE);
    long got = dents ? raw_call3(SYS_lseek, proc_fd, 0, SEEK_SET) : -ENOMEM;

    while (got >= 0 && (got = raw_call3(SYS_getdents64, proc_fd, dents, DENTS_SIZE)) > 0)
        for (long at = 0; at < got;) {
            const struct kernel_dirent *entry = (const struct kernel_dirent *)(const void *)(dents + at);
            pid_t pid = number(entry->name);

            if (pid > 0)
                visit(ctx, pid);
            at += entry->reclen;
        }
    pages_unmap(dents, DENTS_SIZE);
    return got;
}

/*
 * The process whose children are killed is stopped meanwhile, because otherwise what it starts next would be killed as
 * well. It is the caller's child and not reaped, so its number is its own. Returns whether it must go on afterwards.
 */
static bool hold(int proc_fd, pid_t pid, int signum)
{
    char state;

    if (pid <= 0 || signum != SIGKILL || parent_and_state(proc_fd, pid, &state) == 0 || state == 'T')
        return false;
    return raw_call2(SYS_kill, pid, SIGSTOP) == 0;
}

static void signal_checked(int proc_fd, pid_t pid, int signum, bool (*still)(void *ctx, int proc_fd, pid_t pid),
                           void *ctx)
{
    long fd = raw_call2(SYS_pidfd_open, pid, 0);

    if (fd == -ENOSYS && still(ctx, proc_fd, pid))
        raw_call2(SYS_kill, pid, signum);
    if (raw_failed(fd))
        return;
    if (still(ctx, proc_fd, pid))
        raw_call4(SYS_pidfd_send_signal, fd, signum, NULL, 0);
    raw_call1(SYS_close, fd);
}

/* ---- descendants ----------------------------------------------------------------------------------- */

struct tree {
    int proc_fd;
    struct row *rows; /* in the order of /proc, which is that of the numbers */
    unsigned n;
};

static void add_row(void *ctx, pid_t pid)
{
    struct tree *tree = ctx;
    pid_t parent = parent_of(tree->proc_fd, pid);

    if (parent > 0 && tree->n < TABLE_MAX)
        tree->rows[tree->n++] = (struct row){pid, parent, false};
}

static struct row *find_row(const struct tree *tree, pid_t pid)
{
    unsigned low = 0, high = tree->n;

    while (low < high) {
        unsigned mid = low + (high - low) / 2;

        if (tree->rows[mid].pid == pid)
            return &tree->rows[mid];
        if (tree->rows[mid].pid < pid)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

static bool same_parent(void *ctx, int proc_fd, pid_t pid)
{
    const struct row *row = ctx;

    return parent_of(proc_fd, pid) == row->parent;
}

static bool is_known(pid_t pid, const pid_t *known, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (known[i] == pid)
            return true;
    return false;
}

/*
 * Marks the descendants of root. Among its children, the known ones and their descendants are left out. Returns how
 * many.
 */
static unsigned mark(struct tree *tree, pid_t root, const pid_t *known, unsigned n_known)
{
    unsigned marked = 0;

    for (bool more = true; more;) {
        more = false;
        for (unsigned i = 0; i < tree->n; i++) {
            struct row *row = &tree->rows[i];
            const struct row *parent = row->hit ? NULL : find_row(tree, row->parent);

            if (row->hit || !((row->parent == root && !is_known(row->pid, known, n_known)) || (parent && parent->hit)))
                continue;
            row->hit = more = true;
            marked++;
        }
    }
    return marked;
}

struct walk {
    pid_t root, skip;
    int signum;
    const pid_t *known; /* children of root that are left alone */
    unsigned n_known;
};

static int walk_once(const struct walk *walk, int proc_fd, struct row *rows)
{
    struct tree tree = {.proc_fd = proc_fd, .rows = rows};
    long ret = each_process(proc_fd, add_row, &tree);
    int found = 0;

    if (ret < 0)
        return (int)ret;
    mark(&tree, walk->root, walk->known, walk->n_known);
    for (unsigned i = 0; i < tree.n; i++) {
        struct row *row = &tree.rows[i];

        if (!row->hit || row->pid == walk->skip)
            continue;
        found++;
        signal_checked(proc_fd, row->pid, walk->signum, same_parent, row);
    }
    return found;
}

static int walk_rounds(const struct walk *walk)
{
    long fd = raw_call4(SYS_openat, AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    struct row *rows = pages_map(TABLE_MAX * sizeof(struct row));
    bool held = !raw_failed(fd) && rows && hold((int)fd, walk->skip, walk->signum);
    int found = raw_failed(fd) ? (int)fd : rows ? walk_once(walk, (int)fd, rows) : -ENOMEM, first = found;

    for (int round = 1; found > 0 && walk->signum == SIGKILL && round < ROUNDS_MAX; round++) {
        raw_call0(SYS_sched_yield);
        found = walk_once(walk, (int)fd, rows);
    }
    if (held)
        raw_call2(SYS_kill, walk->skip, SIGCONT);
    pages_unmap(rows, TABLE_MAX * sizeof(struct row));
    if (!raw_failed(fd))
        raw_call1(SYS_close, fd);
    return first;
}

int walk_descendants(pid_t root, pid_t skip, int signum)
{
    return walk_rounds(&(struct walk){.root = root, .skip = skip, .signum = signum});
}

void walk_strays(const pid_t *known, unsigned n)
{
    walk_rounds(&(struct walk){.root = (pid_t)raw_call0(SYS_getpid), .signum = SIGKILL, .known = known, .n_known = n});
}

/* ---- a cgroup -------------------------------------------------------------------------------------- */

struct members {
    int proc_fd, signum, found;
    pid_t leader;
    long len;
    char path[4096]; /* the leader's /proc/PID/cgroup: whoever's is the same is in its leaf */
};

static bool is_member(void *ctx, int proc_fd, pid_t pid)
{
    const struct members *members = ctx;
    char text[sizeof(members->path)];
    long len = read_of(proc_fd, pid, "cgroup", text, sizeof(text));

    return len == members->len && __builtin_memcmp(text, members->path, (size_t)len) == 0 &&
           parent_of(proc_fd, pid) > 0;
}

static void visit_member(void *ctx, pid_t pid)
{
    struct members *members = ctx;

    if (pid == members->leader || pid == 1 || !is_member(members, members->proc_fd, pid))
        return;
    members->found++;
    signal_checked(members->proc_fd, pid, members->signum, is_member, members);
}

int walk_cgroup(pid_t leader, int signum)
{
    long fd = raw_call4(SYS_openat, AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    struct members members = {.proc_fd = (int)fd, .signum = signum, .leader = leader};
    long ret = raw_failed(fd) ? fd : read_of((int)fd, leader, "cgroup", members.path, sizeof(members.path));
    bool held = ret >= 0 && hold((int)fd, leader, signum);
    int first = 0;

    members.len = ret;
    for (int round = 0; ret >= 0 && round < ROUNDS_MAX; round++) {
        members.found = 0;
        ret = each_process((int)fd, visit_member, &members);
        first = round == 0 ? members.found : first;
        if (members.found == 0 || signum != SIGKILL)
            break;
        raw_call0(SYS_sched_yield);
    }
    if (held)
        raw_call2(SYS_kill, leader, SIGCONT);
    if (!raw_failed(fd))
        raw_call1(SYS_close, fd);
    return ret < 0 ? (int)ret : first;
}
