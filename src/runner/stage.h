/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.h: the process that becomes a runtime. It builds the sandbox's file systems with the stages of the jail, brings
 * them into a private copy of the host's mount tree, and executes the runtime there, in the sandbox's cgroup and
 * network namespace:
 *
 *     /tmp                 a tmpfs of its own, which the runner has prepared and can still read
 *     /tmp/b/rootfs        the root
 *     /tmp/b/config.json   the bundle
 *     /tmp/rt              what the runtime keeps about it
 *     /sys/fs/cgroup       read-only: the runtime can make no cgroup, so everything stays in ours
 *
 * The whole of it goes away with the last process of the mount namespace: nothing has to be removed.
 */
#ifndef BRIG_RUNNER_STAGE_H
#define BRIG_RUNNER_STAGE_H

#include "runner/runner.h"

#define STAGE_BUNDLE "/tmp/b"
#define STAGE_ROOTFS "/tmp/b/rootfs"
#define STAGE_STATE "/tmp/rt"
#define STAGE_PID "/tmp/b/pid"
#define STAGE_LISTEN_FD 3
#define STAGE_GUEST_PLACE "/.brig/run"

struct stage {
    struct build build;
    int setup_fd;            /* our end of the report of the stages */
    int work_fd;             /* the tmpfs */
    const char *const *argv; /* the runtime, as it is executed in the host's tree */
    bool hide_v2;            /* In a hybrid tree of cgroups the v2 half is not mounted. */
    bool guest_dir;          /* box->guest_fd is mounted at /.brig/run, for the socket of brig-init. */
    int trust_fd;            /* A CA bundle (host/trust.h) for the root, where none can be put in later; else -1. */
};
#define STAGE_INIT ((struct stage){.build = BUILD_INIT, .setup_fd = -1, .work_fd = -1, .trust_fd = -1})

/* Plans the root, makes the tmpfs and the network namespace. */
int stage_prepare(struct carried *box, struct stage *stage, struct brig_err *err) MUST_CHECK;
/* Writes a file of the bundle. */
int stage_write(const struct stage *stage, const char *name, const void *data, size_t len,
                struct brig_err *err) MUST_CHECK;
/* Starts the process. box->child watches it; its done is the caller's. */
int stage_start(struct carried *box, struct stage *stage, struct brig_err *err) MUST_CHECK;
/*
 * After it has ended: takes the mount of the store, and says what failed, if that was before the runtime. Returns the
 * pid of the container, or a negative errno.
 */
pid_t stage_result(struct carried *box, struct stage *stage, int status, struct brig_err *err) MUST_CHECK;
/* Takes what the stages have reported: the mount of the store, or in err what failed. */
void stage_take_report(struct carried *box, struct stage *stage, struct brig_err *err);
void stage_done(struct stage *stage);
/* Makes a network namespace. */
int stage_make_netns(struct runner *runner, int *ret_fd, struct brig_err *err) MUST_CHECK;
/* Enters the host's tree of mounts, in a process that never comes back. */
int stage_enter_host(const struct host *host) MUST_CHECK;

#endif
