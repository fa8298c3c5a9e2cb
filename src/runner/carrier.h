/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carrier.h: what one provider of the runner has to do: one struct of functions for runc and crun (oci.c), and one for
 * every other that starts brig-init carried (docs/PROTOCOL.md, "Carried").
 *
 * Theory of operation. A process brig-runner serves one provider. It is a spawner whose sandboxes are made by somebody
 * else: the messages are the spawner's (spawner/spawner_wire.h), and so are the checks of a run, the ids, the cgroup,
 * the limits, the counters, the gate and the verdict (struct sandbox). A carrier only brings a brig-init to life that
 * waits for its START, and takes away what the runtime left:
 *
 *     RUN --checked--> start() ... carried_made() --> the runner connects, sets the limits, sends START --> STARTED
 *                         \--- carried_failed() --> DONE
 *     live: connect() gives a new stream for ATTACH; FREEZE, STATS, LIMITS and GATE need nothing of the carrier
 *     KILL, or its pid 1 ends --> the pidfd tells --> remove() ... carried_removed() --> DONE
 *
 * Nothing here blocks for longer than a few system calls: what takes time is a child process (runner_child.c) or a
 * descriptor in the loop. A box is in the run directory from before start() to after remove(), so a runner that was
 * killed finds it again (find()).
 */
#ifndef BRIG_RUNNER_CARRIER_H
#define BRIG_RUNNER_CARRIER_H

#include "runner/runner.h"

struct carrier_ops {
    const char *name;              /* "runc": the provider's */
    bool images;                   /* It starts from images by name too. */
    bool traces;                   /* The runtime needs ptrace(2). */
    const struct oci_runtime *oci; /* If start is oci_start(). */
    /*
     * Called once, after the host is known and before READY. It finds the runtime or the engine and writes
     * runner->version. On failure err says what is missing and the line that installs it; READY carries it, and every
     * RUN is refused with it.
     */
    int (*open)(struct runner *runner, struct brig_err *err);
    /*
     * Makes the container of box->s.run, which is checked. s->cg is made, without limits: the runtime starts in it, and
     * they are set before START. Its own directory is box->dir_fd (mode 0711; RUNNER->dir/ID in the host's tree), and
     * box->listen_fd listens on the file `s` there. brig-init must become pid 1 with `carry --listen-fd N` and serve on
     * it, or with `carry --listen PATH` on a file `s` of a directory that replaces it. carrier_stage() builds a root
     * and starts a program in the cgroup. Returns at once. Later, and exactly once, it calls carried_made() or
     * carried_failed(). If it returns a negative errno, neither is called.
     */
    int (*start)(struct carried *box, struct brig_err *err);
    /*
     * The pid 1 of a box is known, of a new one and of one that was found. On failure the box is ended. NULL: nothing
     * to see.
     */
    int (*judge)(struct carried *box, struct brig_err *err);
    /*
     * Connects to brig-init: a non-blocking stream socket, or a negative errno; -ENOENT and -ECONNREFUSED mean that it
     * does not listen yet. NULL: carried_connect(), the file `s` of the box's directory.
     */
    int (*connect)(struct carried *box, struct brig_err *err);
    /*
     * Stops start() while it is at work; carried_failed() must follow. NULL: box->child is killed, and everything in
     * its cgroup. A box that was made is killed by its pid 1 and its cgroup, whatever the carrier.
     */
    void (*stop)(struct carried *box);
    /*
     * A box that was made is to end, and its processes have been killed. Whoever else holds it is told to let it go.
     * NULL: nobody does.
     */
    void (*release)(struct carried *box);
    /*
     * No process of it is left. Removes what the runtime or engine keeps about it, outside of the box's directory, and
     * calls carried_removed(), at once or later. NULL: there is nothing.
     */
    void (*remove)(struct carried *box);
    /*
     * A runner that was started again has found this box in the run directory, and its pid 1 lives in its cgroup.
     * Takes over what the carrier itself needs. On failure the box is ended. NULL: nothing.
     */
    int (*find)(struct carried *box, struct brig_err *err);
    /*
     * Called once at the start, after all boxes were found: removes what the runtime or engine has of this
     * installation and no box knows. NULL: nothing.
     */
    void (*sweep)(struct runner *runner);
};

extern const struct carrier_ops carrier_runc, carrier_crun; /* oci.c */
extern const struct carrier_ops carrier_docker;             /* engine/docker.c */
extern const struct carrier_ops carrier_runsc;              /* runsc.c */

#endif
