/* SPDX-License-Identifier: Apache-2.0 */
/*
 * provider.h: where sandboxes come from: one struct of functions per provider, and what is given to it and comes back.
 * providers.h has the list of all of them. A provider has one of two forms:
 *
 *   stream   create() hands out a byte stream to the sandbox's brig-init (box_up.stream_fd), and link/link.h talks over
 *            it: processes, files, ports, parked interpreters. The room `sandbox` knows nothing else of it. This is
 *            `local`; containers and virtual machines come here.
 *   narrow   only commands and files can be carried, as in most clouds: run() takes the claim of one tool run and
 *            answers with the same done as a parked child (claim.h). It has none of the other functions.
 *
 * All functions return at once. Work that takes time completes later on the loop, through the given callback. Every
 * callback is called exactly once, never from within the function that got it, and not after box_destroy() or
 * provider_destroy(). If the call itself fails (a negative return), the callback is not called.
 */
#ifndef BRIG_PROVIDER_PROVIDER_H
#define BRIG_PROVIDER_PROVIDER_H

#include <brig.h>

#include "base/base.h"
#include "gate/gate_wire.h"
#include "loop/loop.h"

struct provider;
struct box; /* One sandbox, from the provider's side. */
struct child_claim;

enum provider_cap {
    PROVIDER_PAUSE = 1 << 0,
    PROVIDER_BINDS = 1 << 1,
    PROVIDER_ROOTFS = 1 << 2,
    PROVIDER_WRITABLE_ROOT = 1 << 3,
    PROVIDER_RECOVER = 1 << 4, /* boxes outlive brigd and are listed at the next start */
    PROVIDER_POOL = 1 << 5,
    PROVIDER_GATE = 1 << 6,   /* our brig-egress serves the networks of its boxes */
    PROVIDER_ZYGOTE = 1 << 7, /* provider_spec.zygote */
    PROVIDER_ROOT_INSIDE = 1 << 8,
    PROVIDER_LAYERS = 1 << 9,      /* template layers: provider_spec.layers, ops.layer and ops.layers */
    PROVIDER_DISKS = 1 << 10,      /* provider_spec.disk and volumes, ops.disk and ops.disks */
    PROVIDER_IMAGE = 1 << 11,      /* provider_spec.image: images of an engine, by their names */
    PROVIDER_LIMITS = 1 << 12,     /* ops.limits: other limits for a live box */
    PROVIDER_OWN_KERNEL = 1 << 13, /* the layer own_kernel can be on */
    PROVIDER_REMOTE = 1 << 14,     /* its boxes are not on this machine: no binds, no cgroups and no gate of ours */
    PROVIDER_CAP_MAX = 1 << 15,
};

/*
 * A disk is a file system of a fixed size that can be copied and kept. Its name is one of these and an id of 26 of
 * [a-z0-9]; the first word says what it is for, and who removes it:
 *
 *     box-ID    the store of a box (provider_spec.disk). It is removed with the box.
 *     snap-ID   a copy of a box's store. It is never written to; boxes are made from copies of it.
 *     vol-ID    a volume. It is attached to boxes by provider_spec.volumes.
 */
#define DISK_NAME_SIZE 32u
#define PROVIDER_VOLUMES_MAX 16u

struct provider_spec {
    /* The provider chooses the id (struct box_up), because a prepared sandbox has its own already. */
    const char *rootfs; /* An absolute directory or tar; NULL means the template `host`. */
    const char *image;  /* An engine's image by name or digest (PROVIDER_IMAGE); NULL for all other roots. */
    bool writable_root;
    bool root_inside;          /* Its programs are uid 0 of the sandbox (BRIG_RUN_ROOT). Not with a zygote. */
    bool sudo;                 /* With root_inside and writable_root: the sandbox's user has sudo. */
    bool kvm;                  /* For a monitor of virtual machines (vm/): it has /dev/kvm. Only of `local`. */
    bool any_user;             /* Its programs have ids that only brig-init finds out: /workspace is open to all. */
    struct brig_limits limits; /* 0 is the default. timeout and output do not apply. */
    uint64_t require;          /* A mask of BRIG_LAYER_BIT(). */
    enum brig_profile profile;
    const struct brig_bind *binds;
    size_t n_binds;
    uint32_t binds_inside; /* A bit for each bind that is not its source, but the files of `layers` at its target. */
    /*
     * A key (spawner/zygote.h): the box comes up with process 1 in it, a Python that waits for its request on
     * descriptor 3. NULL for an empty box.
     */
    const char *zygote;
    /*
     * The names of template layers, lowest first: the root file system. Not with rootfs. A layer of a live box cannot
     * be removed.
     */
    const char *const *layers;
    size_t n_layers;
    const char *workdir; /* With layers: root makes this directory if they do not have it. NULL: none. */
    /*
     * The name of a new layer (LAYER_MAKE). The root is then the template host, and /layer is a merged view: an overlay
     * over `layers` (there may be none) whose upper is the new layer. It needs root inside. The program brig-layer is
     * /.brig/layer, which only root inside can execute.
     */
    const char *new_layer;
    /*
     * With layers and a writable root: root inside has the upper directory of its root, with whiteouts as devices 0:0,
     * read-only at /.brig/upper, and brig-layer at /.brig/layer. With layers and a new one: the same of the topmost of
     * `layers`.
     */
    bool raw_upper;
    const struct brig_tmpfs *tmpfs;
    size_t n_tmpfs;
    /*
     * With PROVIDER_DISKS: the store of the box is this new disk, of limits.disk and limits.inodes. NULL: its store
     * cannot be kept. disk_from: the new disk is a copy of this one and has its size; NULL: it is empty.
     */
    const char *disk, *disk_from;
    const struct provider_volume { /* A volume is attached to one box for writing, or to any number for reading. */
        const char *disk, *target;
        bool read_only;
    } * volumes;
    size_t n_volumes;
    struct provider_gate { /* All zero means no network. */
        bool on, any_port;
        size_t n_ports;
        uint16_t ports[POLICY_PORTS_MAX];
        int trust_fd; /* With `trust`: a sealed memfd with the CA bundle for inside; the caller still owns it. */
        bool trust;
    } gate;
};

/*
 * The listening sockets of a box with a network, for gate_client_listen(). The callee owns the descriptors that it sets
 * to -1; the rest is closed.
 */
struct box_listeners {
    size_t n;
    struct gate_listener what[GATE_LISTENERS_MAX];
    int fds[GATE_LISTENERS_MAX];
};

/* How a box came up. It is valid during the callback. */
struct box_up {
    const char *id;
    struct brig_limits limits; /* The limits as they are enforced. */
    struct brig_layer_state layers[BRIG_LAYER_MAX];
    bool protection_complete;
    /*
     * A mask of BRIG_LAYER_BIT(): what nobody has read back and only the provider says. These layers are off in the
     * statement, with that reason.
     */
    uint64_t word;
    int stream_fd;                   /* A byte stream to brig-init. The callee owns it and sets it to -1. */
    struct box_listeners *listeners; /* NULL without a network. */
};

/* How it ended, also if it ended unasked. */
struct box_end {
    /* BRIG_CAUSE_CANCELLED by box_destroy(); OOM, SANDBOX_GONE, HOST_ERROR, POLICY (refused) ... */
    enum brig_cause cause;
    enum brig_code code; /* Why it did not come up (BRIG_E_LIMIT, BRIG_E_CONFLICT ...); else BRIG_E_NONE. */
    bool distrust;       /* The provider says that no honest service asks for such a box. */
    uint32_t limits_hit;
    struct brig_usage usage; /* The usage of its whole life. */
    char detail[256];
    int64_t ended_at_ns;
};

struct box_stats { /* At this moment; BRIG_USAGE_UNKNOWN if it is not known. */
    uint64_t cpu_ns, memory_bytes, memory_peak_bytes, pids, pids_peak, disk_bytes, disk_peak_bytes, read_bytes,
        written_bytes;
    uint32_t oom_kills, pids_refused;
    uint32_t store; /* GUEST_STORE_*: what is full at this moment. */
    uint64_t at_ns; /* The moment, on CLOCK_MONOTONIC. */
    bool untouched; /* It has a raw_upper with nothing in it: no layer would come of the box. */
};

struct box_events {
    /*
     * After provider_create() exactly one of up and ended comes first. For a recovered box neither comes until it ends.
     */
    void (*up)(void *ctx, struct box_up *up);
    void (*ended)(void *ctx, const struct box_end *end); /* The last call for this box, which is freed afterwards. */
    void *ctx;
    /*
     * Called unasked and at most once: its brig-init has sent the last of the frames that a SVC_CHANNEL asked it to
     * count, and this is what the box had used then. NULL if nobody wants to know.
     */
    void (*counted)(void *ctx, const struct box_stats *stats);
};

/*
 * MAKE makes the empty layer `name`, which is "new-" and 26 of [a-z0-9]. COMMIT writes it to the disk and gives it the
 * name `to`, 64 hexadecimal digits; if there is a layer of that name, that one stays and the new one is removed. REMOVE
 * removes a layer of either kind. COMMIT and REMOVE fail with BRIG_E_CONFLICT while a box uses the layer. A new layer
 * that is not committed is removed at the next start of the provider's host.
 */
enum layer_op { LAYER_MAKE, LAYER_COMMIT, LAYER_REMOVE };

/*
 * MAKE makes an empty disk (a volume). SNAP copies the store of a live box as it is at one moment, for which the box
 * stands still; programs in it notice nothing but that moment. REMOVE removes one that no box uses. What done() has
 * acknowledged survives a loss of power, except for a SNAP that has `uses`: so many boxes will be made of it, and the
 * last one has no copy of it, but the disk itself.
 * BRIG_E_CONFLICT: it is in use, or the name is taken; BRIG_E_NOT_FOUND; BRIG_E_LIMIT: there is no room for what the
 * disks may still write.
 */
enum disk_op { DISK_MAKE, DISK_SNAP, DISK_REMOVE };

struct disk_order {
    enum disk_op op;
    const char *name;
    struct box *box;       /* SNAP */
    unsigned uses;         /* SNAP: 0 if it is to last. */
    uint64_t size, inodes; /* MAKE: what can be written to it. */
};

struct disk_info {
    char name[DISK_NAME_SIZE];
    uint64_t size, inodes;
    uint64_t used;    /* the bytes of blocks that it has, shared ones too */
    uint64_t own;     /* those that no other disk shares; BRIG_USAGE_UNKNOWN */
    unsigned writers; /* 0 or 1 */
    unsigned readers;
};

struct disk_space {
    const char *kind; /* "pool", "shared blocks" (the host's file system can), "copies"; "" before there was any disk */
    uint64_t size;    /* what it may have at most */
    uint64_t used;    /* what its disks have */
    uint64_t reserved; /* what they may still write */
};

/* What one real attempt has shown. It is valid during the callback. */
struct provider_check {
    bool usable;
    char version[64];  /* What makes the boxes has it. */
    char missing[256]; /* why it cannot be used, or what a box of it lacks; "" if nothing */
    char install[160]; /* the line that installs what is missing; "" if nothing would help */
    uint64_t layers;   /* a mask: what was on in the box that was made */
    uint64_t took_ms;  /* until the box was up */
};
typedef void provider_checked_fn(void *ctx, const struct provider_check *check);

struct provider_ops {
    const char *name; /* "local" */
    uint32_t caps;    /* PROVIDER_* */
    /*
     * A mask of BRIG_LAYER_BIT(): the layers that it can put on and read back. Any other is only the provider's word:
     * it is off in the statement, and a sandbox that requires it is not made here.
     */
    uint64_t protects;
    void (*destroy)(struct provider *provider); /* Boxes of a provider that can recover them live on. */
    /*
     * Tries it, for real: done comes within PROVIDER_CHECK_NS. NULL if the provider cannot be tried. BRIG_E_BUSY: it is
     * being tried already.
     */
    int (*check)(struct provider *provider, provider_checked_fn *done, void *ctx, struct brig_err *err);
    /* ---- the narrow form ---- */
    /*
     * Runs one tool. claim is valid during the call; its done follows unless this fails. BRIG_E_BUSY: it may be tried
     * again.
     */
    int (*run)(struct provider *provider, const struct child_claim *claim, void **ret_run, struct brig_err *err);
    void (*cancel)(struct provider *provider, void *run); /* done follows with BRIG_CAUSE_CANCELLED. */
    /* ---- the stream form ---- */
    /* Checks everything first: if it fails, nothing was made. */
    int (*create)(struct provider *provider, const struct provider_spec *spec, const struct box_events *events,
                  struct box **ret, struct brig_err *err);
    /*
     * Makes a new stream to a live box; the old one is dead from then on. The callee owns fd; on failure it is -1 with
     * err.
     */
    int (*attach)(struct box *box, void (*done)(void *ctx, int fd, const struct brig_err *err), void *ctx,
                  struct brig_err *err);
    int (*freeze)(struct box *box, bool on, void (*done)(void *ctx, const struct brig_err *err), void *ctx,
                  struct brig_err *err); /* err is NULL if it is done. */
    int (*stats)(struct box *box, void (*done)(void *ctx, const struct box_stats *stats, const struct brig_err *err),
                 void *ctx, struct brig_err *err);
    void (*end)(struct box *box); /* Kills it; `ended` follows. A second call does nothing. */
    /*
     * Lists the boxes that live on from an earlier life of this process; once, before the first create. For each,
     * found() fills in the events of the box that it gets, or returns false: then the box is ended, and `ended` follows
     * when nothing of it lives any more (which may be after done()). done() is called at the end.
     */
    int (*recover)(struct provider *provider,
                   bool (*found)(void *ctx, struct box *box, const struct box_up *up, struct box_events *ret),
                   void (*done)(void *ctx), void *ctx, struct brig_err *err);
    int (*pool)(struct provider *provider, unsigned count, struct brig_err *err); /* Keeps so many ready. */
    /*
     * Only with PROVIDER_GATE, else NULL. Gives its listeners again, with those of new ports; NULL and err on failure.
     */
    int (*gate)(struct box *box, const struct provider_gate *want,
                void (*done)(void *ctx, struct box_listeners *listeners, const struct brig_err *err), void *ctx,
                struct brig_err *err);
    /*
     * Sets memory, cpus and pids of a live box (all three; the rest is not looked at). They are in force when done is
     * called, which gets those that are. NULL if the provider cannot do this.
     */
    int (*limits)(struct box *box, const struct brig_limits *limits,
                  void (*done)(void *ctx, const struct brig_limits *limits, const struct brig_err *err), void *ctx,
                  struct brig_err *err);
    /* Only with PROVIDER_LAYERS, else NULL. `to` is for LAYER_COMMIT, else NULL. done: err is NULL if it is done. */
    int (*layer)(struct provider *provider, enum layer_op op, const char *name, const char *to,
                 void (*done)(void *ctx, const struct brig_err *err), void *ctx, struct brig_err *err);
    /* Lists the names of all layers, new ones too, in no order. They are valid during done; NULL and err on failure. */
    int (*layers)(struct provider *provider,
                  void (*done)(void *ctx, const char *const *names, size_t n, const struct brig_err *err), void *ctx,
                  struct brig_err *err);
    /*
     * These two only with PROVIDER_DISKS, else NULL. done gets the disk that was made (NULL after REMOVE), or err.
     * progress (or NULL) is called while blocks are copied that cannot be shared.
     */
    int (*disk)(struct provider *provider, const struct disk_order *order,
                void (*progress)(void *ctx, uint64_t at, uint64_t of),
                void (*done)(void *ctx, const struct disk_info *info, const struct brig_err *err), void *ctx,
                struct brig_err *err);
    int (*disks)(struct provider *provider,
                 void (*done)(void *ctx, const struct disk_info *disks, size_t n, const struct disk_space *space,
                              const struct brig_err *err),
                 void *ctx, struct brig_err *err);
};

#define PROVIDER_CHECK_NS (UINT64_C(10) * 1000 * 1000 * 1000)

struct provider_attempt; /* attempt.c */

struct provider {
    const struct provider_ops *ops;
    struct loop *loop;
    struct provider_attempt *attempt; /* A check that is under way, or NULL. */
    uint64_t check_ns;                /* The time for one; 0 means PROVIDER_CHECK_NS. */
    uint64_t list_ns;                 /* The time for a runner's list of boxes; 0 means 60 s. */
    uint64_t around;                  /* Bytes of memory that a box needs beside its limit; quotas count them. */
    uint64_t end_ns;                  /* Whoever waits longer for the end of a box is told so; 0: there is no bound. */
    /*
     * A provider that makes its own boxes out of this one's. It is asked about each box of an earlier life before
     * found() is: true means that the box is its own, and its events are filled in. box is NULL after the last one.
     */
    bool (*claim)(void *ctx, struct box *box, const struct box_up *up, struct box_events *ret);
    void *claim_ctx;
    /* Called once when the provider itself is gone (the spawner died). Every box has been ended() by then. */
    void (*gone)(void *ctx, const struct brig_err *why);
    void *ctx;
    char off[192]; /* Why it cannot be used although it was added; "" if it can. */
    /* Facts, for statements and `brig inspect`: */
    unsigned rootless; /* 0 root, 1 one id, 2 subordinate ids */
    bool image_store;
    bool counts; /* box_events.counted comes by itself; without it, what a box has used must be asked for. */
};

struct box {
    struct provider *provider;
    struct box_events events;
};

/*
 * attempt.c: makes a box with the defaults, and ends it when it is up: what check() of a provider of the stream form
 * does. version is that of what makes the boxes.
 */
int provider_attempt(struct provider *provider, const char *version, provider_checked_fn *done, void *ctx,
                     struct brig_err *err) MUST_CHECK;
void provider_attempt_drop(struct provider *provider); /* Before it is destroyed: nobody is told any more. */

/* local/local.c: spawner_fd is the engine's end of a spawner's socket (spawner/spawner_wire.h); it is not owned. */
int provider_local_create(struct loop *loop, int spawner_fd, struct provider **ret, struct brig_err *err) MUST_CHECK;

/*
 * The same for a runner (src/runner/): its boxes outlive it, and so do ours. name is the provider's; runner_fd is not
 * owned.
 */
int provider_runner_create(struct loop *loop, int runner_fd, const char *name, struct provider **ret,
                           struct brig_err *err) MUST_CHECK;

#endif
