/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mover.h: puts processes into leaf cgroups and ends them, beside the spawner. Moving a process waits for a grace
 * period of RCU if nobody has moved one for a while (5 to 15 ms, and on v2 there is no way around it), and leaves must
 * be watched until they are empty. A child of the spawner does both, one request after the other, while the spawner
 * goes on.
 */
#ifndef BRIG_SPAWNER_MOVER_H
#define BRIG_SPAWNER_MOVER_H

#include "host/cgroup.h"

enum move_type { MOVE_ENTER = 1, MOVE_END };

/* Sent to the child. A sandbox is known by its run's number, which comes back, and by the name of its cgroup. */
struct move_request {
    uint32_t type;
    uint32_t leaf;
    uint64_t run;
    char name[CG_NAME];
    uint32_t split;
    int32_t pid, init; /* ENTER: the process that asked, and pid 1. */
    uint64_t pids;     /* ENTER: the sandbox's limit. */
};

/* Sent by the child, exactly one for each request. */
struct move_answer {
    uint32_t type;
    int32_t errnum; /* ENTER: 0, or why not; then there is no such leaf. */
    uint64_t run;
    struct guest_leaf_gone gone; /* END; both types set .leaf. */
};

/* Runs the whole child, which ends when the socket closes. proc_fd is the full procfs. */
_Noreturn void mover_main(int sock, const struct cg_host *cg, int proc_fd);

#endif
