/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reaper.c: the reaper process (reaper.h). The child has the cgroup hierarchies from the fork. It gets a name, with
 * descriptors, when a sandbox is dead; closing the descriptors unmounts. When the spawner's end of the socket closes
 * without a last word, every cgroup with the spawner's token is removed too, and the child ends.
 */
#include "spawner/reaper.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "base/fd.h"
#include "base/str.h"
#include "jail/sys.h"

#define PAUSE_NS 2000000   /* between tries */
#define TRIES 1000         /* two seconds: its processes are dead */
#define TRIES_KILLED 15000 /* they have yet to notice, or to come back from a long system call; nobody waits for us */

struct reap_msg {
    uint32_t last; /* The spawner ends by itself and has no cgroup left. */
    char name[CG_NAME];
};

static bool remove_leaf(int parent, const char *name)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS};

    for (int i = 0; parent >= 0 && cg_remove(parent, name) < 0; i++) {
        if (i == TRIES)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

/* Whether nothing of it is left. */
static bool remove_leaves(const struct cg_host *cg, const char *name)
{
    bool all = remove_leaf(cg->v2_fd, name);

    for (unsigned i = 0; i < cg->n_v1; i++)
        all = remove_leaf(cg->v1[i].fd, name) && all;
    return all;
}

static _Noreturn void reaper_child(int fd, struct cg_host *cg, struct owner *owner)
{
    bool all = true, last = false;
    struct reap_msg msg;
    int fds[2];
    size_t n_fds = 0;

    prctl(PR_SET_NAME, "brig-reaper");
    while (fd_recv(fd, &msg, sizeof msg, fds, 2, &n_fds) == (ssize_t)sizeof msg) {
        fd_close_all(fds, n_fds);
        msg.name[CG_NAME - 1] = '\0';
        if (msg.name[0])
            all = remove_leaves(cg, msg.name) && all;
        last = msg.last;
    }
    /* A spawner that was killed has told us of none of those that were alive, or half made. */
    if ((last && all) || owner_sweep(owner, cg, TRIES_KILLED))
        owner_done(owner); /* else the next spawner finds the file, without a lock, and goes on */
    cg_host_done(cg);      /* back to the cgroup we came from; the last one there turns it off */
    _exit(0);
}

/* A control socket held here would keep a sandbox from noticing its end. */
void reaper_close_others(const struct cg_host *cg, const int *more, unsigned n_more)
{
    int keep[CG_HIERARCHIES + 8] = {cg->v2_fd, cg->v2_self_fd, cg->v2_leaf_fd};
    unsigned n = 3;

    for (unsigned i = 0; i < n_more && n < 8; i++)
        keep[n++] = more[i];
    for (unsigned i = 0; i < cg->n_v1; i++)
        keep[n++] = cg->v1[i].fd;
    fd_keep_only(keep, n);
}

void reaper_start(struct reaper *reaper, const struct cg_host *cg, const struct owner *owner)
{
    int pair[2];

    if (reaper->fd >= 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
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

int reaper_take(struct reaper *reaper, struct remains *remains)
{
    struct reap_msg msg = {.last = false};
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

void reaper_done(struct reaper *reaper, struct owner *owner, bool none_left, bool wait)
{
    const struct reap_msg last = {.last = true};
    bool had = reaper->fd >= 0;

    if (!had)
        owner_done(owner);
    else if (none_left)
        (void)!fd_send(reaper->fd, &last, sizeof last, NULL, 0);
    base_close_fd(&reaper->fd);
    if (had && wait)
        (void)RETRY(waitpid(reaper->pid, NULL, 0));
}
