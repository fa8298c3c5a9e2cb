/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reaper.c: see reaper.h. The child has the cgroup hierarchies from the fork and gets a name and descriptors
 * per sandbox; closing the descriptors is what unmounts. It ends when the spawner's end of the socket closes.
 */
#include "jail/reaper.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#include "base/fd.h"
#include "jail/sys.h"

#define TRIES 500
#define PAUSE_NS 2000000 /* between tries: together a second */

struct reap_msg {
    char name[CG_NAME];
};

static void remove_leaf(int parent, const char *name)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS};

    for (int i = 0; parent >= 0 && i < TRIES && unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno == EBUSY; i++)
        nanosleep(&pause, NULL);
}

static _Noreturn void reaper_child(int fd, const struct cg_host *cg)
{
    prctl(PR_SET_NAME, "brig-reaper");
    for (;;) {
        struct reap_msg msg;
        int fds[2];
        size_t n_fds = 0;
        if (fd_recv(fd, &msg, sizeof msg, fds, 2, &n_fds) != (ssize_t)sizeof msg)
            _exit(0);
        fd_close_all(fds, n_fds);
        msg.name[CG_NAME - 1] = '\0';
        if (msg.name[0] == '\0')
            continue;
        remove_leaf(cg->v2_fd, msg.name);
        for (unsigned i = 0; i < cg->n_v1; i++)
            remove_leaf(cg->v1[i].fd, msg.name);
    }
}

void reaper_start(struct reaper *reaper, const struct cg_host *cg)
{
    int pair[2];

    if (reaper->fd >= 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        /* Nothing of the spawner's but the hierarchies: a control socket held here would keep a sandbox from noticing its end. */
        int keep[CG_HIERARCHIES + 2] = {pair[1], cg->v2_fd};
        unsigned n = 2, at = 0;
        for (unsigned i = 0; i < cg->n_v1; i++)
            keep[n++] = cg->v1[i].fd;
        for (int next; at < INT_MAX; at = (unsigned)next + 1) {
            next = INT_MAX;
            for (unsigned i = 0; i < n; i++)
                if (keep[i] >= (int)at && keep[i] < next)
                    next = keep[i];
            if (next > (int)at)
                close_range(at, next == INT_MAX ? ~0u : (unsigned)next - 1, 0);
            if (next == INT_MAX)
                break;
        }
        reaper_child(pair[1], cg);
    }
    close(pair[1]);
    if (pid < 0)
        close(pair[0]);
    else
        reaper->fd = pair[0];
}

int reaper_take(struct reaper *reaper, struct remains *remains)
{
    struct reap_msg msg = {.name = ""};
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

void reaper_done(struct reaper *reaper)
{
    base_close_fd(&reaper->fd);
}
