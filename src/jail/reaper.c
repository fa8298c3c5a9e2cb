/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reaper.c: see reaper.h. The child has the cgroup hierarchies from the fork and is told a name when a sandbox
 * gets its cgroups, and again, with descriptors, when it is dead; closing the descriptors is what unmounts. When
 * the spawner's end of the socket closes, what is still on the list is removed too, and the child ends.
 */
#include "jail/reaper.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "base/fd.h"
#include "base/mem.h"
#include "jail/sys.h"

#define PAUSE_NS 2000000 /* between tries */
#define TRIES 1000       /* two seconds: its processes are dead */
#define TRIES_KILLED 15000 /* they have yet to notice, or to come back from a long system call; nobody waits for us */

enum reap_type { REAP_BORN = 1, REAP_DEAD };

struct reap_msg {
    uint32_t type;
    char name[CG_NAME];
};

/* The cgroups that exist. */
struct living {
    char (*names)[CG_NAME];
    size_t n, room;
};

static void living_add(struct living *living, const char *name)
{
    if (living->n == living->room) {
        size_t room = living->room ? 2 * living->room : 64;
        void *names = mem_realloc_array(living->names, room, CG_NAME);
        if (!names)
            return; /* then a killed spawner leaves this one behind */
        living->names = names;
        living->room = room;
    }
    memcpy(living->names[living->n++], name, CG_NAME);
}

static void living_remove(struct living *living, const char *name)
{
    for (size_t i = 0; i < living->n; i++)
        if (strcmp(living->names[i], name) == 0) {
            memmove(living->names[i], living->names[--living->n], CG_NAME);
            return;
        }
}

static void remove_leaf(int parent, const char *name, int tries)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS};

    for (int i = 0; parent >= 0 && i < tries && cg_remove(parent, name) < 0; i++)
        nanosleep(&pause, NULL);
}

static void remove_leaves(const struct cg_host *cg, const char *name, int tries)
{
    remove_leaf(cg->v2_fd, name, tries);
    for (unsigned i = 0; i < cg->n_v1; i++)
        remove_leaf(cg->v1[i].fd, name, tries);
}

static _Noreturn void reaper_child(int fd, struct cg_host *cg)
{
    struct living living = {0};

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
            living_add(&living, msg.name);
        else if (msg.name[0]) {
            remove_leaves(cg, msg.name, TRIES);
            living_remove(&living, msg.name);
        }
    }
    while (living.n > 0) /* the spawner was killed; one that ends by itself has none left */
        remove_leaves(cg, living.names[--living.n], TRIES_KILLED);
    cg_host_done(cg); /* back to the cgroup we came from; the last one there turns it off */
    _exit(0);
}

/* Nothing of the spawner's but the hierarchies: a control socket held here would keep a sandbox from noticing its end. */
static void close_others(int fd, const struct cg_host *cg)
{
    int keep[CG_HIERARCHIES + 4] = {fd, cg->v2_fd, cg->v2_self_fd, cg->v2_leaf_fd};
    unsigned n = 4, at = 0;

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

static void reaper_start(struct reaper *reaper, const struct cg_host *cg)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return;
    struct cg_host copy = *cg;
    pid_t pid = fork();
    if (pid == 0) {
        close_others(pair[1], &copy);
        reaper_child(pair[1], &copy);
    }
    close(pair[1]);
    if (pid < 0)
        close(pair[0]);
    else
        *reaper = (struct reaper){.fd = pair[0], .pid = pid};
}

void reaper_born(struct reaper *reaper, const struct cg *cg)
{
    struct reap_msg msg = {.type = REAP_BORN};

    if (!cg->host)
        return;
    if (reaper->fd < 0)
        reaper_start(reaper, cg->host);
    snprintf(msg.name, sizeof msg.name, "%s", cg->name);
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
        snprintf(msg.name, sizeof msg.name, "%s", remains->cg.name);
    bool sent = reaper->fd >= 0 && fd_send(reaper->fd, &msg, sizeof msg, fds, n) == 0;
    base_close_fd(&remains->mnt_fd);
    base_close_fd(&remains->store_fd);
    if (!sent)
        return cg_destroy(&remains->cg);
    cg_forget(&remains->cg);
    return 0;
}

void reaper_done(struct reaper *reaper, bool wait)
{
    bool had = reaper->fd >= 0;

    base_close_fd(&reaper->fd);
    if (had && wait)
        while (waitpid(reaper->pid, NULL, 0) < 0 && errno == EINTR)
            ;
}
