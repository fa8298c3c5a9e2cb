/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runner.h: the structures of brig-runner, one process for each provider whose sandboxes are made by a runtime or an
 * engine (carrier.h). brigd neither forks nor executes, and whoever speaks to an engine is root: so this process does.
 * It can make nothing privileged, whatever brigd asks: a run is what the spawner takes (spawner/run_spec.c), and there
 * is no word in it for a namespace of the host, a device, a capability or a path outside of the configured roots.
 *
 * A box outlives the runner: it is a directory in the run directory (box_state.c), and its brig-init listens there. The
 * supervisor keeps both ends of the runner's socket, so brigd learns of a new runner by its READY, and asks for the
 * list again.
 */
#ifndef BRIG_RUNNER_RUNNER_H
#define BRIG_RUNNER_RUNNER_H

#include "runner/opening.h"
#include "runner/runner_child.h"
#include "spawner/sandbox_plan.h"

struct carrier_ops;
struct runner;

enum carried_state {
    CARRIED_STARTING, /* start() is at work. */
    CARRIED_OPENING,  /* brig-init is being sent its START. */
    CARRIED_UP,
    CARRIED_REMOVING, /* Nothing of it lives; remove() is at work. */
};

struct carried {
    struct sandbox s; /* the first member: a sandbox of the spawner's kind, and freed as one */
    struct runner *runner;
    enum carried_state state;
    int dir_fd;    /* its directory, RUNNER->dir/ID, mode 0711 */
    int listen_fd; /* Listens on `s` there, until brig-init has it; else -1. */
    struct opening opening;
    struct loop_timer on_late;  /* start_timeout */
    struct loop_timer on_retry; /* brig-init does not listen yet */
    uint64_t open_by_ns;
    bool attaching;
    unsigned attach_more; /* ATTACH that wait for the present one */
    /* ---- the carrier's own ---- */
    struct runner_child child; /* the runtime while it is at work */
    int netns_fd;
    int guest_fd; /* runsc.c: the file system of the socket, which the guest has too; else -1. */
    bool sealed;  /* runsc.c: nothing can be made there any more. */
    void *own;    /* Anything else; freed by remove(). */
};

struct runner {
    struct spawner spawner; /* the first member: host, loop, socket, sandboxes */
    const struct carrier_ops *ops;
    pid_t pid;           /* our own */
    int dir_fd, lock_fd; /* RUN/runner-NAME */
    char dir[4096];      /* its path in the host's tree */
    char program[256];   /* the path of the runtime in the host's tree */
    char version[64];
    size_t platform; /* runsc.c */
    bool gofer_ns;   /* runsc.c: it has --gofer-network-namespace */
    uint64_t start_timeout_ns;
    bool listed; /* A LIST has come: what came before was for a predecessor. */
    bool broken; /* open() failed, with facts.err. */
};

static inline struct carried *carried_of(struct sandbox *s)
{
    return (struct carried *)s;
}

static inline struct host *carried_host(struct carried *box)
{
    return &box->runner->spawner.host;
}

/* ---- box.c: the life of a box ---- */

#define CARRIED_CGROUP "brig-%s" /* the name of its cgroup, by its id */

/* Makes a box of a checked run, which it owns, also on failure. */
void carried_run(struct runner *runner, struct run_spec *run);
/* brig-init waits for its START. pid is its pid 1 in our pid namespace. */
void carried_made(struct carried *box, pid_t pid);
void carried_failed(struct carried *box, const struct brig_err *err);
void carried_removed(struct carried *box);
void carried_forgotten(struct sandbox *s);              /* spawner.forgotten */
void carried_attach(struct carried *box);               /* Answers ATTACH. */
void carried_end(struct carried *box, enum brig_cause); /* DONE follows. */
/* Connects to a socket in the box's directory: a non-blocking stream, or a negative errno. */
int carried_connect(const struct carried *box, const char *name, struct brig_err *err) MUST_CHECK;
/* A box of an earlier runner, as box_state.c has read it: it lives, or what is left of it is removed. */
void carried_found(struct carried *box, pid_t pid);
struct carried *carried_alloc(struct runner *runner);

/* ---- box_state.c: the run directory ---- */

int state_open(struct runner *runner, struct brig_err *err) MUST_CHECK;
/* Makes the directory of a new box, and its listening socket. */
int state_make(struct carried *box, struct brig_err *err) MUST_CHECK;
int state_write(const struct carried *box, struct brig_err *err) MUST_CHECK;
void state_remove(struct carried *box);
void state_find_all(struct runner *runner); /* Calls carried_found() for each. */

/* runner_lockdown.c: gives up for good what neither a runner nor a runtime needs. */
int runner_lockdown(bool traces, struct brig_err *err) MUST_CHECK;

#endif
