/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h: the internal structures of libbrig. An engine is one socket to its spawner and a loop; a run is its pipes,
 * its kept output and its receipt. Everything that needs privileges is on the other side of the socket.
 */
#ifndef BRIG_ENGINE_ENGINE_H
#define BRIG_ENGINE_ENGINE_H

#include <brig.h>
#include <sys/types.h>

#include "base/buf.h"
#include "loop/loop.h"
#include "loop/pump.h"
#include "spawner/spawner_wire.h"

struct brig_engine {
    struct loop *loop;
    int spawner_fd;
    struct loop_source on_spawner;
    struct brig_run *runs;
    uint64_t next_number;
    bool ready, gone, pool_full;
    unsigned pool;
    struct brig_err gone_why, pool_err;
    struct wire_ready facts;
    char *chunk;                    /* The pumps of all runs read into this. */
    pid_t forked;                   /* The spawner if it is our child, else 0. */
    char *helper_dir;               /* The directory in the options, or NULL. */
    struct engine_gate *gate;       /* brig-egress, once a run has a network. */
    struct engine_gate *lost_gates; /* Those that died. They are freed when none of their callbacks can be running. */
    unsigned depth;                 /* The depth of brig_engine_dispatch(). */
};

#define ENGINE_CHUNK 65536u
#define STRUCT_SIZE_MAX 65536u /* The largest struct of a caller. A larger one is a mistake, not a newer header. */

enum run_state { RUN_WAITING, RUN_STARTED, RUN_DONE };

struct brig_run {
    struct brig_engine *engine;
    struct brig_run *next, *prev;
    uint64_t number;
    enum run_state state;
    unsigned flags;
    uint64_t output_limit, output_seen;
    bool kill_sent, cancelled;
    void (*on_output)(void *ctx, struct brig_run *run, enum brig_stream stream, const void *data, size_t len);
    void (*on_done)(void *ctx, struct brig_run *run);
    void *ctx;
    int stdin_fd;     /* Our end, or a duplicate of the PTY master for writing; or -1. */
    int output_fd[3]; /* Our ends. A PTY master is output_fd[1]. */
    struct pump pump[3];
    struct buf kept[3];
    size_t pulled[3]; /* BRIG_RUN_PULL: the bytes that were read so far. */
    uint16_t rows, cols;
    struct brig_receipt receipt;
    char *strings; /* The names of the environment and argv, for the receipt. */
    const char **lists;
    struct run_gate *gate; /* NULL without a network. */
};

/* spawn.c: starts the spawner; *ret_fd is our end of its socket. */
/* Finds the directory of brig-init, brig-spawner and brigd. */
int engine_find_helpers(const struct brig_engine_options *options, char *out, size_t size,
                        struct brig_err *err) MUST_CHECK;
/*
 * Executes a helper with fd as its descriptor 3; it is not our child. bare: it gets neither our environment nor our
 * other descriptors, and 0 and 1 are /dev/null. ret_pidfd may be NULL.
 */
int engine_execute(const char *path, char *const argv[], int fd, bool bare, int *ret_pidfd,
                   struct brig_err *err) MUST_CHECK;
int engine_spawn(const struct brig_engine_options *options, int *ret_fd, pid_t *ret_forked,
                 struct brig_err *err) MUST_CHECK;
/* spec.c: turns a caller's struct of any version into ours; members that it does not have are zero. */
int spec_read(const struct brig_spec *spec, struct brig_spec *ret, struct brig_err *err) MUST_CHECK;
/* Checks a spec and turns it into the message and the sealed strings. Fills the receipt's static parts. */
int engine_spec(struct brig_run *run, const struct brig_spec *spec, struct wire_run *msg, int *ret_strings_fd,
                struct brig_err *err) MUST_CHECK;
/* What only a long-lived sandbox can have. All of it may be zero. */
struct spec_more {
    const char *zygote;        /* The key of its zygote. */
    const char *image;         /* The name of an engine's image. */
    const char *const *layers; /* The names of template layers, lowest first. */
    size_t n_layers;
    const char *new_layer;        /* The name of a layer that is made in it. */
    bool raw_upper;               /* The upper of its root is shown to root inside. */
    bool any_user;                /* Its programs may have any id of the sandbox. */
    bool sudo;                    /* Its user has sudo. */
    bool kvm;                     /* It has /dev/kvm. */
    const char *disk, *disk_from; /* The disk of its store, and the one that it is a copy of. */
    const struct spec_volume {
        const char *disk, *target;
        bool read_only;
    } * volumes;
    size_t n_volumes;
    uint32_t binds_inside; /* One bit per bind: what the layers have at its target, read-only. */
};
/*
 * The same for a long-lived sandbox, which has no program. images: this host can have image stores. The spawner looks
 * at the files, and at the names of layers.
 */
int spec_service(const struct brig_spec *spec, const struct spec_more *more, bool images, struct wire_run *msg,
                 int *ret_strings_fd, struct brig_err *err) MUST_CHECK;
/*
 * rootfs.c: finds the directory behind spec->rootfs. A tar is unpacked into the cache first, and the call waits for
 * that.
 */
int engine_rootfs(struct brig_engine *engine, const char *path, char *out, size_t size,
                  struct brig_err *err) MUST_CHECK;
/* engine_run.c: handle the spawner's messages. */
void run_on_started(struct brig_run *run, const struct wire_started *msg, int *fds, size_t n_fds);
void run_on_done(struct brig_run *run, const struct wire_done *msg);
void run_on_gone(struct brig_run *run, const struct brig_err *why);
/* Sends RUN. The caller still owns the descriptors. */
int run_ask(struct brig_run *run, const struct wire_run *msg, const int *fds, size_t n_fds,
            struct brig_err *err) MUST_CHECK;
void run_finish(struct brig_run *run); /* The receipt is complete except for the output. */

/* engine_gate.c, run_gate.c: the network, for runs that have one. */
void engine_gate_tend(struct brig_engine *engine); /* Cleans up after a brig-egress that died. */
void engine_gate_destroy(struct brig_engine *engine);
/* Replaces run_ask(), which follows when brig-egress has accepted the policy. */
int run_gate_start(struct brig_run *run, const struct brig_spec *spec, const struct wire_run *msg, const int *fds,
                   size_t n_fds, struct brig_err *err) MUST_CHECK;
void run_on_gate_open(struct brig_run *run, const struct wire_gate_open *msg, const int *fds, size_t n_fds);
/* The sandbox is gone. Returns true if run_finish() follows with the counts. */
bool run_gate_end(struct brig_run *run);
void run_gate_abandon(struct brig_run *run); /* Stops waiting for it. */
void run_gate_free(struct brig_run *run);
/* spec.c: the environment of every program of the user, or of root inside, that is given no other; ends with NULL. */
const char *const *engine_base_env(bool root);
void run_readings(struct brig_receipt *receipt, const struct reading readings[BRIG_LAYER_MAX]);

#endif
