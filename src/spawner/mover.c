/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mover.c: the mover process (mover.h). It has the hierarchies from the fork and opens a sandbox's cgroups by name for
 * each request. If a cgroup is gone by then, its sandbox has ended; the request is answered all the same. Leaves that
 * are not empty yet are on a list that is looked at again and again, at first often.
 */
#include "spawner/mover.h"

#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "jail/sys.h"

#define LOOK_FIRST_MS 1
#define LOOK_LONGEST_MS 20

struct ending {
    struct ending *next;
    struct move_request request;
    bool silent; /* of an ENTER that failed: nobody waits for it */
    unsigned wait_ms;
    uint64_t at_ns;
};

struct mover {
    int sock, proc_fd;
    const struct cg_host *cg;
    struct ending *endings;
};

static void answer(struct mover *mover, const struct move_answer *msg)
{
    if (fd_send(mover->sock, msg, sizeof *msg, NULL, 0) < 0)
        _exit(0); /* the spawner is gone: the reaper does the rest */
}

/* true: nothing of it is left, and the counters are in *ret. */
static bool try_end(struct mover *mover, const struct move_request *request, bool kill, struct guest_leaf_gone *ret)
{
    struct cg cg;
    bool gone = true;

    *ret = (struct guest_leaf_gone){.leaf = request->leaf,
                                    .cpu_ns = BRIG_USAGE_UNKNOWN,
                                    .memory_peak = BRIG_USAGE_UNKNOWN,
                                    .pids_peak = BRIG_USAGE_UNKNOWN};
    if (cg_open(&cg, mover->cg, request->name, request->split) < 0)
        return true;
    if (cg_leaf_is_empty(&cg, request->leaf)) {
        cg_leaf_count(&cg, request->leaf, ret);
        gone = cg_leaf_remove(&cg, request->leaf) == 0;
    } else {
        if (kill)
            cg_leaf_kill(&cg, request->leaf);
        gone = false;
    }
    cg_forget(&cg);
    return gone;
}

static void end(struct mover *mover, const struct move_request *request, bool silent)
{
    struct move_answer msg = {.type = MOVE_END, .run = request->run};
    struct ending *ending = NULL;

    while (!try_end(mover, request, true, &msg.gone)) {
        ending = mem_zalloc(sizeof *ending);
        if (ending)
            break;
        nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL); /* no memory to remember it: stay with it */
    }
    if (ending) {
        *ending = (struct ending){mover->endings, *request, silent, LOOK_FIRST_MS,
                                  clock_mono_ns() + LOOK_FIRST_MS * NS_PER_MS};
        mover->endings = ending;
    } else if (!silent) {
        answer(mover, &msg);
    }
}

static void enter(struct mover *mover, const struct move_request *request)
{
    struct move_answer msg = {.type = MOVE_ENTER, .run = request->run, .gone = {.leaf = request->leaf}};
    struct cg cg;
    int r = cg_open(&cg, mover->cg, request->name, request->split);

    if (r == 0)
        r = cg_leaf_create(&cg, request->leaf, request->pids);
    if (r == 0 && (r = cg_leaf_enter(&cg, request->leaf, mover->proc_fd, request->pid, request->init)) < 0)
        end(mover, request, true); /* children of one that died meanwhile may be in it */
    cg_forget(&cg);
    msg.errnum = -r;
    answer(mover, &msg);
}

/* Returns how long to wait for the next look, -1: until somebody asks. */
static int look_again(struct mover *mover)
{
    uint64_t now = clock_mono_ns(), next = UINT64_MAX;

    for (struct ending **at = &mover->endings, *one; (one = *at) != NULL;) {
        struct move_answer msg = {.type = MOVE_END, .run = one->request.run};
        bool due = one->at_ns <= now;
        if (due && try_end(mover, &one->request, false, &msg.gone)) {
            *at = one->next;
            if (!one->silent)
                answer(mover, &msg);
            mem_free(one);
            continue;
        }
        if (due) {
            one->wait_ms = one->wait_ms * 2 > LOOK_LONGEST_MS ? LOOK_LONGEST_MS : one->wait_ms * 2;
            one->at_ns = now + one->wait_ms * NS_PER_MS;
        }
        next = one->at_ns < next ? one->at_ns : next;
        at = &one->next;
    }
    return next == UINT64_MAX ? -1 : next <= now ? 0 : (int)((next - now + NS_PER_MS - 1) / NS_PER_MS);
}

_Noreturn void mover_main(int sock, const struct cg_host *cg, int proc_fd)
{
    struct mover mover = {.sock = sock, .proc_fd = proc_fd, .cg = cg};
    struct pollfd look = {.fd = sock, .events = POLLIN};

    prctl(PR_SET_NAME, "brig-mover");
    for (;;) {
        struct move_request request;
        if (poll(&look, 1, look_again(&mover)) <= 0)
            continue;
        if (fd_recv(sock, &request, sizeof request, NULL, 0, NULL) != (ssize_t)sizeof request)
            _exit(0);
        if (request.type == MOVE_ENTER)
            enter(&mover, &request);
        else
            end(&mover, &request, false);
    }
}
