/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawner_wire.h: the messages between an engine and its spawner (docs/PROTOCOL.md, "Spawner messages").
 *
 * One SOCK_SEQPACKET packet is one fixed-size struct that starts with struct wire_head, with at most
 * WIRE_FDS descriptors beside it. Strings of a run (argv, environment, paths) travel in a sealed memfd, so
 * that the packet stays fixed. The spawner trusts nothing in it: it checks every limit, count, string and
 * path again (run_spec.c), because the engine side may be an unprivileged daemon that has been taken over.
 */
#ifndef BRIG_SPAWNER_SPAWNER_WIRE_H
#define BRIG_SPAWNER_SPAWNER_WIRE_H

#include <brig.h>

#include "codec/wire/guest_msg.h"
#include "gate/gate_wire.h"
#include "host/netgate.h"

#define WIRE_MAGIC 0x67697262u /* "brig" */
#define WIRE_VERSION 1u
#define WIRE_FDS 80 /* GATE_OPEN has the most: its listeners. */
#define WIRE_STRINGS_MAX (GUEST_STRINGS_MAX + 65536u)
#define WIRE_BINDS_MAX 32u
#define WIRE_TMPFS_MAX 16u
#define WIRE_ZYGOTE_KEY_MAX 128u /* This includes the NUL. */
#define WIRE_LAYER_NAME 72u      /* The name of a template layer and its NUL fit. */
#define WIRE_DISK_NAME 32u       /* The name of a disk and its NUL fit. */
#define WIRE_VOLUMES_MAX 16u

enum wire_type {
    WIRE_READY = 1, /* spawner: set-up done, or why not */
    WIRE_RUN,       /* engine: a run; fds: strings, [stdin], stdout, stderr */
    WIRE_STARTED,   /* spawner: the program is about to execute; fds: [PTY master] */
    WIRE_DONE,      /* spawner: how it ended; nothing of the sandbox is left */
    WIRE_KILL,      /* engine: end it, for a cause the engine measured */
    WIRE_SIGNAL,    /* engine: signal the main process */
    WIRE_POOL,      /* engine: keep this many sandboxes ready */
    WIRE_POOL_FULL, /* spawner: they are */

    /*
     * Long-lived sandboxes. A RUN with WIRE_RUN_SERVICE has no program and no timeout. It is STARTED with one
     * descriptor beside it, a stream to its brig-init (codec/wire/guest_svc.h), and DONE when it has ended.
     */
    WIRE_ATTACH,    /* engine: a new stream for this run, which replaces the last */
    WIRE_ATTACHED,  /* spawner: struct wire_answer; fds: the stream */
    WIRE_FREEZE,    /* engine: struct wire_freeze */
    WIRE_FROZEN,    /* spawner: struct wire_answer */
    WIRE_STATS,     /* engine: head only */
    WIRE_STATS_ARE, /* spawner: struct wire_stats */
    WIRE_LIST,      /* engine: head only; asked once by an engine that took the socket over. head.run is any number. */
    WIRE_LISTED,    /* spawner: struct wire_started of a live service, without a descriptor (ATTACH gives one) */
    /* spawner: struct wire_ready, which the engine may have missed; head.run is the highest number ever seen */
    WIRE_LIST_END,

    /*
     * A sandbox with a network (host/netgate.c). With wire_run.gate.on the spawner makes routes and listeners before
     * the program starts, and says GATE_OPEN before STARTED. WIRE_GATE asks later (brig-egress or brigd is new, or the
     * policy has more ports) for the existing listeners and the new ones.
     */
    WIRE_GATE,      /* engine: struct wire_gate */
    WIRE_GATE_OPEN, /* spawner: struct wire_gate_open; fds: the listeners */

    /*
     * Sandboxes that outlive their supervisor (spawner/spawner_keep.c). KEPT and TAKE travel on a connection to the
     * listener that came with KEEP.
     */
    WIRE_KEEP, /* supervisor: head only; fds: enum wire_keep_fd */
    WIRE_KEPT, /* spawner: struct wire_kept; fds: the engine's end, the text, a pidfd of itself */
    WIRE_TAKE, /* the next supervisor: head only */

    /* A long-lived sandbox gets other limits. Other builds know the numbers above, so new types go here. */
    WIRE_LIMITS,     /* engine: struct wire_limits */
    WIRE_LIMITS_ARE, /* spawner: struct wire_limits_are */
    WIRE_COUNTED,    /* spawner, once and unasked: struct wire_stats; brig-init has said COUNT */

    /* Template layers (spawner/layer_jobs.c). head.run is any number, which comes back in the answer. */
    WIRE_LAYER,      /* engine: struct wire_layer */
    WIRE_LAYER_DONE, /* spawner: struct wire_answer */
    WIRE_LAYERS,     /* engine: head only */
    WIRE_LAYERS_ARE, /* spawner: struct wire_layers_are; fds: a sealed memfd with the names, unless it failed */

    /* Disks that can be copied and kept (spawner/disk_jobs.c). head.run is any number, as above. */
    WIRE_DISK,          /* engine: struct wire_disk */
    WIRE_DISK_PROGRESS, /* spawner: struct wire_disk_progress, any number of times */
    WIRE_DISK_DONE,     /* spawner: struct wire_disk_done */
    WIRE_DISKS,         /* engine: head only */
    WIRE_DISKS_ARE,     /* spawner: struct wire_disks_are; fds: a sealed memfd with struct wire_disk_info of each */
    WIRE_TYPE_MAX
};

struct wire_head {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
    uint64_t run; /* The engine's number of the run; 0 if no run is meant. */
};

struct wire_ready {
    struct wire_head head;
    struct brig_err err;  /* The code is BRIG_E_NONE if it is ready. */
    uint32_t rootless;    /* 0 root, 1 one id, 2 subordinate ids */
    uint32_t cgroup;      /* enum reading_by of the limits; BY_NONE without any. */
    uint32_t image_store; /* Images are possible. */
    uint32_t landlock_abi;
    uint32_t zygotes; /* WIRE_RUN_ZYGOTE is possible. */
    uint32_t layers;  /* Template layers are possible. */
    uint32_t disks;   /* Disks are possible. */
    uint32_t unused;
    uint64_t list; /* LIST_END: the number of the LIST that it answers; 0 otherwise. */
};

/*
 * The strings are, in this order: workdir, name, rootfs, template layers (lowest first), with WIRE_RUN_NEW_LAYER the
 * name of the new layer, with WIRE_RUN_DISK the disk of its store and the one that it is a copy of (or an empty
 * string), volumes (disk, target), binds (source, target), tmpfs paths, with WIRE_RUN_ZYGOTE the key, argv,
 * environment.
 */
struct wire_run {
    struct wire_head head;
    uint32_t flags; /* BRIG_RUN_*, WIRE_RUN_SERVICE */
    uint32_t profile;
    uint64_t require;
    struct brig_limits limits; /* 0 is the default, which depends on the store. */
    uint16_t rows, cols;
    uint32_t n_binds, n_tmpfs, n_argv, n_env;
    uint32_t strings_len;
    uint32_t binds_ro; /* One bit per bind. */
    uint64_t tmpfs_size[WIRE_TMPFS_MAX];
    struct netgate_want gate;
    /* 1 if a last descriptor follows: a sealed memfd with the CA bundle (PEM) that replaces the template's. */
    uint32_t trust;
    uint32_t binds_overlay; /* One bit per bind; none that is in binds_ro. */
    uint32_t n_layers;      /* At most LAYERS_MAX; not with a rootfs. */
    uint32_t n_volumes;     /* At most WIRE_VOLUMES_MAX. */
    uint32_t volumes_ro;    /* One bit per volume. */
    uint32_t binds_inside;  /* One bit per bind, all of them in binds_ro: what layers have at its target, read-only. */
};

struct wire_gate {
    struct wire_head head;
    struct netgate_want want;
};

struct wire_gate_open {
    struct wire_head head;
    struct brig_err err; /* The code is BRIG_E_NONE if it is open. */
    uint32_t n;
    uint32_t unused;
    struct gate_listener listeners[GATE_LISTENERS_MAX];
};

struct wire_started {
    struct wire_head head;
    int64_t at_ns; /* CLOCK_REALTIME */
    char sandbox_id[32];
    struct brig_limits limits; /* as enforced */
    struct reading readings[BRIG_LAYER_MAX];
};

struct wire_done {
    struct wire_head head;
    uint32_t cause; /* enum brig_cause */
    uint32_t started;
    int32_t exit_code, signal;
    uint32_t limits_hit;
    uint32_t refused; /* The failure is a refusal (BRIG_E_USAGE, _REFUSED, _UNSUPPORTED ...), not a fault. */
    int64_t ended_at_ns;
    struct brig_limits limits; /* as enforced */
    struct brig_usage usage;
    char sandbox_id[32];
    struct reading readings[BRIG_LAYER_MAX];
    uint32_t code;     /* enum brig_code of the failure, if it did not come up; else 0. */
    uint32_t distrust; /* 1: no honest engine asks for such a run. */
    char detail[256];
};

struct wire_kill {
    struct wire_head head;
    uint32_t cause; /* BRIG_CAUSE_CANCELLED or BRIG_CAUSE_OUTPUT_LIMIT */
    uint32_t unused;
};

struct wire_signal {
    struct wire_head head;
    uint32_t signum;
    uint32_t unused;
};

/* An internal flag of wire_run.flags, beside BRIG_RUN_*: a sandbox that waits for requests. */
#define WIRE_RUN_SERVICE (1u << 16)
/*
 * With WIRE_RUN_SERVICE: process 1 is there from the start, forked by a zygote (spawner/zygote.h). Only for the
 * template host.
 */
#define WIRE_RUN_ZYGOTE (1u << 17)

/*
 * With WIRE_RUN_SERVICE: the root is the template host, and /layer has the merged view of the layers, whose upper
 * directory is a new layer.
 */
#define WIRE_RUN_NEW_LAYER (1u << 18)
/* With layers and a writable root: the upper directory of the root is at /.brig/upper, read-only. */
#define WIRE_RUN_RAW_UPPER (1u << 19)
/* With WIRE_RUN_SERVICE: its programs have ids that are not known here, so everybody inside may write to /workspace. */
#define WIRE_RUN_ANY_USER (1u << 20)

/* With WIRE_RUN_SERVICE: its store is a new disk. */
#define WIRE_RUN_DISK (1u << 21)
/* With WIRE_RUN_SERVICE and BRIG_RUN_ROOT: its user has sudo. */
#define WIRE_RUN_SUDO (1u << 22)
/*
 * With WIRE_RUN_SERVICE: it has /dev/kvm, and the filter of a monitor. Only of the template host, for a user that is
 * not root inside, and only where the supervisor has said that there are such machines (BRIG_KVM).
 */
#define WIRE_RUN_KVM (1u << 24)
/* With WIRE_RUN_SERVICE: the string rootfs is the name of an engine's image. Only a runner of an engine takes it. */
#define WIRE_RUN_IMAGE (1u << 23)

struct wire_answer {
    struct wire_head head;
    struct brig_err err; /* The code is BRIG_E_NONE if it is done. */
};

enum wire_layer_op { WIRE_LAYER_MAKE, WIRE_LAYER_COMMIT, WIRE_LAYER_REMOVE, WIRE_LAYER_OP_MAX };

struct wire_layer {
    struct wire_head head;
    uint32_t op; /* enum wire_layer_op */
    uint32_t unused;
    char name[WIRE_LAYER_NAME]; /* MAKE, COMMIT: of a new layer. REMOVE: of any. */
    char to[WIRE_LAYER_NAME];   /* COMMIT: its final name; else empty. */
};

struct wire_layers_are {
    struct wire_head head;
    struct brig_err err; /* The code is BRIG_E_NONE if they are listed. */
    uint32_t len;        /* The bytes of all names, each with its NUL. */
    uint32_t unused;
};

enum wire_disk_op { WIRE_DISK_MAKE, WIRE_DISK_SNAP, WIRE_DISK_REMOVE, WIRE_DISK_OP_MAX };

struct wire_disk {
    struct wire_head head;
    uint32_t op;           /* enum wire_disk_op */
    uint32_t uses;         /* SNAP: how many runs are made of it, the last of which takes it over; 0: it stays. */
    uint64_t box;          /* SNAP: the number of its run; else 0. */
    uint64_t size, inodes; /* MAKE; else 0. */
    char name[WIRE_DISK_NAME];
};

struct wire_disk_info {
    char name[WIRE_DISK_NAME];
    uint64_t size, inodes, used, own;
    uint32_t writers, readers;
};

struct wire_disk_progress {
    struct wire_head head;
    uint64_t at, of;
};

struct wire_disk_done {
    struct wire_head head;
    struct brig_err err;        /* The code is BRIG_E_NONE if it is done. */
    struct wire_disk_info info; /* All zero after REMOVE. */
};

struct wire_disks_are {
    struct wire_head head;
    struct brig_err err; /* The code is BRIG_E_NONE if they are listed. */
    uint32_t n;
    uint32_t kind; /* enum disks_kind */
    uint64_t size, used, reserved;
};

struct wire_freeze {
    struct wire_head head;
    uint32_t on;
    uint32_t unused;
};

/* All three are set. The store and everything else stay as they were made. */
struct wire_limits {
    struct wire_head head;
    uint64_t memory, cpus, pids; /* As in struct brig_limits; none is 0. */
};

struct wire_limits_are {
    struct wire_head head;
    struct brig_err err; /* The code is BRIG_E_NONE if they are in force; else the former ones are. */
    uint64_t memory, cpus, pids;
};

struct wire_plain {
    struct wire_head head;
};

enum wire_keep_fd {
    WIRE_KEEP_END,      /* the engine's end of the spawner's socket */
    WIRE_KEEP_LISTENER, /* SOCK_SEQPACKET, in the run directory */
    WIRE_KEEP_FILE,     /* its file, O_PATH */
    /* sealed; what a supervisor must have in common with the last one. It means nothing to the spawner. */
    WIRE_KEEP_TEXT,
    WIRE_KEEP_FDS
};
#define WIRE_KEPT_FDS 3

/* A supervisor of another build must be able to read it, so it must never change. */
struct wire_kept {
    struct wire_head head;
    uint32_t pid;
    uint32_t unused;
    char build[64]; /* brig_version(), a space, and brig_commit(), which a build without git does not know. */
};

struct wire_stats {
    struct wire_head head;
    uint64_t cpu_ns, memory_bytes, memory_peak_bytes, pids, pids_peak, disk_bytes, disk_peak_bytes, read_bytes,
        written_bytes;
    uint32_t oom_kills, pids_refused;
    uint32_t store;     /* GUEST_STORE_* */
    uint32_t untouched; /* 1: it has a raw upper, and nothing is in there. 0: there is, or it is not known. */
    uint64_t at_ns;     /* CLOCK_MONOTONIC: when they were read */
};

struct wire_pool {
    struct wire_head head;
    uint32_t count;
    uint32_t unused;
    struct brig_err err; /* POOL_FULL: why there are not more. */
};

union wire_any {
    struct wire_head head;
    struct wire_ready ready;
    struct wire_run run;
    struct wire_started started;
    struct wire_done done;
    struct wire_kill kill;
    struct wire_signal signal;
    struct wire_pool pool;
    struct wire_answer answer;
    struct wire_freeze freeze;
    struct wire_plain plain;
    struct wire_stats stats;
    struct wire_gate gate;
    struct wire_gate_open gate_open;
    struct wire_kept kept;
    struct wire_limits limits;
    struct wire_limits_are limits_are;
    struct wire_layer layer;
    struct wire_layers_are layers_are;
    struct wire_disk disk;
    struct wire_disk_progress disk_progress;
    struct wire_disk_done disk_done;
    struct wire_disks_are disks_are;
};

/* Returns the exact size of a message of this type, or 0 for an unknown type. */
size_t wire_size(uint16_t type);
/* Returns 0, or -EPROTO if magic, version, type or size is wrong. */
int wire_check(const union wire_any *msg, size_t len) MUST_CHECK;

#endif
