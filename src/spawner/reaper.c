/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reaper.c: the reaper process (reaper.h). The child has the cgroup hierarchies from the fork. It gets a name when a
 * sandbox gets its cgroups, and again, with descriptors, when the sandbox is dead; closing the descriptors unmounts.
 * When the spawner's end of the socket closes, what is still on the list is removed too, and the child ends.
 */
#include "spawner/reaper.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "jail/sys.h"

#define PAUSE_NS 2000000   /* between tries */
#define TRIES 1000         /* two seconds: its processes are dead */
#define TRIES_KILLED 15000 /* they have yet to notice, or to come back from a long system call; nobody waits for us */

enum reap_type { REAP_BORN = 1, REAP_DEAD };

struct reap_msg {
    uint32_t type;
    char name[CG_NAME];
};

/* The cgroups that exist, in buckets: thousands may live while one dies. */
struct living {
    struct living *next;
    char name[CG_NAME];
};

#define BUCKETS 1024u
static struct living *living[BUCKETS]; /* of the child only */

static struct living **place_of(const char *name)
{
    uint32_t hash = 2166136261u; /* FNV-1a; the names are random already */

    for (const char *p = name; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    struct living **at = &living[hash % BUCKETS];
    while (*at && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

static void living_add(const char *name)
{
    struct living *one = mem_zalloc(sizeof *one);
    struct living **at = place_of(name);

    if (!one || str_copy(one->name, sizeof one->name, name) < 0) {
        mem_free(one);
        return; /* then a killed spawner leaves this one to its successor */
    }
    one->next = *at;
    *at = one;
}

static void living_remove(const char *name)
{
    struct living **at = place_of(name), *one = *at;

    if (one) {
        *at = one->next;
        mem_free(one);
    }
}

static bool remove_leaf(int parent, const char *name, int tries)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS};

    for (int i = 0; parent >= 0 && cg_remove(parent, name) < 0; i++) {
        if (i == tries)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

/* Whether nothing of it is left. */
static bool remove_leaves(const struct cg_host *cg, const char *name, int tries)
{
    bool all = remove_leaf(cg->v2_fd, name, tries);

    for (unsigned i = 0; i < cg->n_v1; i++)
        all = remove_leaf(cg->v1[i].fd, name, tries) && all;
    return all;
}

static void kill_leaves(const struct cg_host *cg, const char *name)
{
    cg_kill_named(cg->v2_fd, name);
    for (unsigned i = 0; i < cg->n_v1; i++)
        cg_kill_named(cg->v1[i].fd, name);
}

static _Noreturn void reaper_child(int fd, struct cg_host *cg, struct owner *owner)
{
    bool all = true;

    prctl(PR_SET_NAME, "brig-reaper");
    for (;;) {
        struct reap_msg msg;
        int fds[2];
        size_t n_fds = 0;
        if (fd_recv(fd, &msg, sizeof msg, fds, 2, &n_fds) != (ssize_t)sizeof msg)
            break;
        fd_close_all(fds, n_fds);
        msg.name[CG_NAME - 1] = '\0';
        if (msg.type == REAP_BORN)
            living_add(msg.name);
        else if (msg.name[0]) {
            all = remove_leaves(cg, msg.name, TRIES) && all;
            living_remove(msg.name);
        }
    }
    /* The spawner was killed; one that ends by itself has none left. */
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct living *one = living[i]; one; one = one->next)
            kill_leaves(cg, one->name);
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct living *one = living[i]; one; one = one->next)
            all = remove_leaves(cg, one->name, TRIES_KILLED) && all;
    if (all)
        owner_done(owner); /* else the next spawner finds the file, without a lock, and goes on */
    cg_host_done(cg);      /* back to the cgroup we came from; the last one there turns it off */
    _exit(0);
}

/* A control socket held here would keep a sandbox from noticing its end. */
void reaper_close_others(const struct cg_host *cg, const int *more, unsigned n_more)
{
    int keep[CG_HIERARCHIES + 8] = {cg->v2_fd, cg->v2_self_fd, cg->v2_leaf_fd};
    unsigned n = 3, at = 0;

    for (unsigned i = 0; i < n_more && n < 8; i++)
        keep[n++] = more[i];
    for (unsigned i = 0; i < cg->n_v1; i++)
        keep[n++] = cg->v1[i].fd;
    for (;;) {
        int next = INT_MAX;
        for (unsigned i = 0; i < n; i++)
            if (keep[i] >= (int)at && keep[i] < next)
                next = keep[i];
        if (next > (int)at)
            close_range(at, next == INT_MAX ? ~0u : (unsigned)next - 1, 0);
        if (next == INT_MAX)
            return;
        at = (unsigned)next + 1;
    }
}

static void reaper_start(struct reaper *reaper, const struct cg_host *cg, const struct owner *owner)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return;
    struct cg_host copy = *cg;
    struct owner same = *owner;
    pid_t pid = fork();
    if (pid == 0) {
        reaper_close_others(&copy, (const int[]){pair[1], same.dir_fd, same.lock_fd}, 3);
        reaper_child(pair[1], &copy, &same);
    }
    close(pair[1]);
    if (pid < 0)
        close(pair[0]);
    else
        *reaper = (struct reaper){.fd = pair[0], .pid = pid};
}

void reaper_born(struct reaper *reaper, const struct cg *cg, const struct owner *owner)
{
    struct reap_msg msg = {.type = REAP_BORN};

    if (!cg->host)
        return;
    if (reaper->fd < 0)
        reaper_start(reaper, cg->host, owner);
    str_assign(msg.name, cg->name);
    if (reaper->fd >= 0)
        (void)!fd_send(reaper->fd, &msg, sizeof msg, NULL, 0);
}

int reaper_take(struct reaper *reaper, struct remains *remains)
{
    struct reap_msg msg = {.type = REAP_DEAD};
    int fds[2];
    size_t n = 0;

    if (remains->mnt_fd >= 0)
        fds[n++] = remains->mnt_fd;
    if (remains->store_fd >= 0)
        fds[n++] = remains->store_fd;
    if (remains->cg.host)
        str_assign(msg.name, remains->cg.name);
    bool sent = reaper->fd >= 0 && fd_send(reaper->fd, &msg, sizeof msg, fds, n) == 0;
    base_close_fd(&remains->mnt_fd);
    base_close_fd(&remains->store_fd);
    if (!sent)
        return cg_destroy(&remains->cg);
    cg_forget(&remains->cg);
    return 0;
}

void reaper_done(struct reaper *reaper, struct owner *owner, bool wait)
{
    bool had = reaper->fd >= 0;

    if (!had)
        owner_done(owner);

    base_close_fd(&reaper->fd);
    if (had && wait)
        (void)RETRY(waitpid(reaper->pid, NULL, 0));
}
