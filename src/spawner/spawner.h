/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawner.h: the inside of the spawner process: the runs it was asked for, and the sandboxes it owns. What it holds of
 * the machine is in host/host.h.
 *
 * The spawner is single-threaded and small, because every sandbox is cloned from it. It lives in a mount
 * namespace of a handful of mounts (host_tree.c), speaks fixed-size messages with one engine (spawner_wire.h), and
 * when that engine goes away it kills everything and ends.
 */
#ifndef BRIG_SPAWNER_SPAWNER_H
#define BRIG_SPAWNER_SPAWNER_H

#include <brig.h>
#include <sys/types.h>

#include "codec/wire/frame.h"
#include "host/host.h"
#include "host/netgate.h"
#include "jail/plan.h"
#include "loop/loop.h"
#include "receipt/receipt.h"
#include "spawner/reaper.h"
#include "spawner/spawner_wire.h"
#include "spawner/zygote.h"

/* The whole process. engine_fd: SOCK_SEQPACKET. helper_dir: where brig-init is. Returns an exit status. */
int spawner_main(int engine_fd, const char *helper_dir);

/* ---- a run as asked for (run_spec.c) --------------------------------------------------------------- */

struct run_spec {
    uint64_t number;
    uint32_t flags;
    enum brig_profile profile;
    uint64_t require;
    struct brig_limits limits;
    bool image; /* its store is one */
    uint16_t rows, cols;
    char *strings; /* owned; everything below points into it */
    size_t strings_len;
    const char *workdir, *name, *rootfs; /* name, rootfs: NULL when empty */
    const char *rootfs_below;            /* see run_spec_check_roots(); NULL: anywhere */
    const char *zygote;                  /* its key; NULL: none */
    unsigned n_binds, n_tmpfs;
    struct {
        const char *source, *target, *below;
        bool read_only, overlay;
    } binds[WIRE_BINDS_MAX];
    struct plan_tmpfs tmpfs[WIRE_TMPFS_MAX];
    uint32_t n_argv, n_env;
    const char *argv; /* n_argv + n_env strings, one after the other, to the end of strings */
    int stdio[3];     /* -1 where not given */
    struct netgate_want gate;
    int trust_fd; /* a CA bundle, sealed; -1: none */
};

/* Takes the descriptors over, whatever happens. image: images can be had here. A bad message is -EPROTO, a bad value a
 * usage error. */
int run_spec_parse(struct run_spec *spec, const struct wire_run *msg, bool image, int *fds, size_t n_fds,
                   struct brig_err *err) MUST_CHECK;
/* Of a service: every directory of the host lies in what the administrator shares, and is to be opened within it. */
int run_spec_check_roots(struct run_spec *spec, const struct roots *binds, const struct roots *rootfs,
                         struct brig_err *err) MUST_CHECK;
void run_spec_done(struct run_spec *spec);

/* ---- sandboxes (sandbox_*.c) ------------------------------------------------------------- */

enum sandbox_state { SANDBOX_BUILDING, SANDBOX_PARKED, SANDBOX_RUNNING, SANDBOX_DEAD, SANDBOX_STATE_MAX };

/*
 * A sandbox's own descriptors are kept at or above this. What a new child needs is then below, and its table stays as
 * small as that however many sandboxes there are (the kernel never shrinks one: 128 KiB each at 9,000 descriptors).
 */
#define SANDBOX_FD_MIN 256
#define SANDBOX_LENT (3 + WIRE_BINDS_MAX) /* both sockets, a root, binds */
#define MANY_SANDBOXES 32                 /* what they share is looked up more slowly than made anew */
#define RUN_BUCKETS 1024u

struct spawner;

struct sandbox {
    struct spawner *spawner;
    struct sandbox *next, *prev; /* of the same state */
    struct sandbox *same_bucket; /* with a run */
    enum sandbox_state state;
    char id[32];
    pid_t pid;
    int pidfd, control_fd, setup_fd, store_fd;
    struct netgate *gate; /* NULL: no network */
    bool trust;           /* it has a CA bundle of its own */
    int mnt_fd;           /* its mount namespace: taken apart after the answer, not while pid 1 dies */
    struct cg cg;
    struct ids_claim ids;
    struct image image;
    enum store_kind store;
    struct loop_source on_pidfd, on_control, on_setup, on_oom;
    struct loop_timer on_timeout, on_sample, on_oom_check;
    struct brig_limits limits; /* built with */

    /* What the child was given, open here until its first message: it shares our table until it has its own. */
    int lent[SANDBOX_LENT];
    unsigned n_lent;

    /* Of a zygote's (zygote.h): its job, until pid is known. Then it is up when brig-init has said STARTED and its own
     * pid 2 has checked itself. */
    uint64_t job; /* 0: none is open */
    struct sandbox *next_job;
    bool adopt, wants_maps, checked, said_started;
    struct reading checked_readings[BRIG_LAYER_MAX];

    /* the run, NULL while parked */
    struct run_spec *run;
    struct reading readings[BRIG_LAYER_MAX];
    bool for_pool;
    bool service; /* without a program, until it is ended */
    bool busy;    /* counted in spawner->running */
    bool started, exited;
    uint64_t started_ns;   /* monotonic */
    int64_t started_at_ns; /* CLOCK_REALTIME */
    int stream_fd;         /* service: the engine's end, from START to STARTED */
    bool has_leaves;       /* service: brig-init was told that it may ask for cgroups */
    bool counted;          /* service: COUNTED was said */
    struct leaf *leaves;
    unsigned n_leaves, leaf_ops;                /* leaf_ops: with the mover */
    uint64_t leaf_oom_kills, leaf_pids_refused; /* of those that are gone */
    bool freezing;                              /* FROZEN is yet to be said */
    uint64_t freeze_wait, freeze_until;
    struct loop_timer on_freeze;
    int wait_status;            /* of pid 1 */
    struct guest_exited exit;   /* valid when exited */
    struct end_verdict verdict; /* why we ended it */
    struct brig_err failure;    /* of set-up, or of a check */
    struct brig_usage usage;
    uint32_t store_now, store_seen; /* GUEST_STORE_*: when it was last looked at, and ever */
    bool grace;
    const char *over;         /* sandbox_watch.c has ended it, and this is why; NULL: it has not */
    uint64_t neighbours_sent; /* packets of IPv6, when its neighbours were last few */
    uint32_t locks;           /* of its processes, at the last count; 0: few */
    uint32_t locks_over;      /* sandbox_watch.c has ended it, because it had more than so many; 0: it has not */
    bool watched;             /* a service's: its timer is set */
    uint64_t watched_cpu_ns;  /* when that last looked at it */
    int pending_signal;       /* asked for before START could be sent */
    uint64_t disk_peak;
    uint8_t in[512];
    size_t in_len;
};

/* The mover (mover.h), from the first leaf on. */
struct movers {
    int fd;
    pid_t pid; /* 0: none */
    uint32_t events;
    struct loop_source on_answer;
    struct leaf_queued *queue, *queue_end; /* what its socket would not take */
};

/* While there is no engine (spawner_keep.c). */
struct keep {
    int fds[WIRE_KEEP_FDS]; /* by enum wire_keep_fd; -1: there is one */
    int peer_fd;            /* who may be the next */
    struct loop_source on_listener, on_peer;
    struct loop_timer on_look;
};
#define KEEP_INIT \
    ((struct keep){.fds = {-1, -1, -1, -1}, .peer_fd = -1, .on_listener = {.fd = -1}, .on_peer = {.fd = -1}})

struct spawner {
    struct host host;
    struct netns_maker netns;
    struct reaper reaper;
    struct movers mover;
    struct loop *loop;
    int engine_fd;
    pid_t engine_pid; /* who made the socket, or took it over */
    struct keep keep;
    struct loop_source on_engine;
    uint32_t engine_events;
    struct wire_queued *queue, *queue_end; /* what the engine was too busy to take */
    unsigned n_queued;
    struct wire_ready facts;
    uint64_t highest_run; /* number ever seen */
    struct loop_timer on_refill, on_remove;
    struct sandbox *lists[SANDBOX_STATE_MAX];
    struct sandbox *runs[RUN_BUCKETS];
    unsigned n_sandboxes;
    unsigned parked, building_parked, pool, running, built;
    uint64_t quiet_ns; /* nobody waits for us from then on, unless somebody asks for something before */
    uint64_t short_ns; /* since when the pool is not full; 0: it is */
    bool pool_announced, stop;
    struct brig_err pool_err; /* why the pool is smaller than asked for */
    struct zygote *zygotes;   /* newest first */
    uint64_t jobs;            /* ever given to them */
    uint64_t locks_next_ns;   /* no new count of file locks before that */
    uint32_t locks_bound;     /* a sandbox with more than so many, by the last count, */
    uint32_t locks_least;     /* and with at least so many, is ended */
    uint64_t off;             /* layers switched off; test builds only */
};

/* sandbox_list.c: all of these take a few steps, however many sandboxes there are. */
void sandbox_list_add(struct spawner *spawner, struct sandbox *sandbox);
void sandbox_list_move(struct sandbox *sandbox, enum sandbox_state state);
void sandbox_list_remove(struct sandbox *sandbox);
void sandbox_set_run(struct sandbox *sandbox, struct run_spec *run);
struct run_spec *sandbox_take_run(struct sandbox *sandbox);
struct sandbox *sandbox_by_run(struct spawner *spawner, uint64_t number);

/* sandbox_build.c: clones and starts the set-up. run may be NULL (for the pool); it is taken over on success. */
int sandbox_build(struct spawner *spawner, struct run_spec *run, struct brig_err *err) MUST_CHECK;
/* sandbox_setup.c: what comes on its sockets until brig-init runs, and its end. */
void sandbox_on_setup(struct loop_source *source, uint32_t events);
void sandbox_on_pidfd(struct loop_source *source, uint32_t events);
void sandbox_move_up(int *fd); /* out of the numbers that children get a copy of */
/* Its zygote has answered: pidfd is taken over; or will not. */
void sandbox_cloned(struct sandbox *sandbox, pid_t pid, int pidfd);
void sandbox_not_cloned(struct sandbox *sandbox, const struct brig_err *err);
/* sandbox_run.c */
bool sandbox_fits(const struct sandbox *sandbox, const struct run_spec *run); /* a parked one for this run */
/* sandbox_watch.c: kernel memory that no cgroup counts. false: the sandbox was ended for it. */
bool sandbox_watch(struct sandbox *sandbox) MUST_CHECK;
/* sandbox_locks.c: counts file locks anew, unless that was done just now: locks* of both. */
void sandbox_locks_count(struct spawner *spawner);
/* Each second, while a process runs in it */
int sandbox_watch_service(struct sandbox *sandbox, struct brig_err *err) MUST_CHECK;
void sandbox_begin(struct sandbox *sandbox, struct run_spec *run);              /* it has its ids, or was parked */
void sandbox_checked(struct sandbox *sandbox, const struct setup_checked *msg); /* pid 2 of a zygote's */
/* What the self-check of a process in it compares with, and START says. */
void sandbox_start(const struct sandbox *sandbox, const struct run_spec *run, struct guest_start *ret);
void sandbox_end(struct sandbox *sandbox, enum brig_cause verdict); /* kills it */
void sandbox_signal(struct sandbox *sandbox, int signum);           /* for the main process, as soon as there is one */
/* One small frame to brig-init, with a descriptor unless fd is NULL. Never blocks: -EAGAIN when it does not read. */
int sandbox_send_frame(struct sandbox *sandbox, enum frame_type type, const void *payload, size_t len,
                       const int *fd) MUST_CHECK;
/* from: the pid of the sender, or 0. */
void sandbox_on_frame(struct sandbox *sandbox, const struct frame *frame, int *fds, size_t n_fds, pid_t from);
void sandbox_broken(struct sandbox *sandbox);   /* its brig-init does not keep to the protocol: ends it */
void spawner_active(struct spawner *spawner);   /* somebody waits: what can be done later is done later */
void sandbox_not_busy(struct sandbox *sandbox); /* does not count as running (any more) */
/* sandbox_end.c: everything of it is gone from the kernel; reports and forgets it. */
void sandbox_finish(struct sandbox *sandbox);
uint64_t sandbox_measure(struct sandbox *sandbox); /* samples the store: bytes used, or BRIG_USAGE_UNKNOWN */
/* Removes what dead sandboxes left: at once when nothing runs, else a little later. */
void sandbox_remove_dead(struct spawner *spawner);
/* The default limits of a pooled sandbox. */
void spawner_default_limits(struct brig_limits *limits);

/* sandbox_service.c: a long-lived sandbox. begin: *ret_stream goes beside START; the rest answers the engine. */
int service_begin(struct sandbox *sandbox, int *ret_stream, struct brig_err *err) MUST_CHECK;
void service_attach(struct sandbox *sandbox);
void service_freeze(struct sandbox *sandbox, bool on);
void service_limits(struct sandbox *s, const struct wire_limits *msg);
void service_leaves_limit(struct sandbox *s);                     /* of pids, as the sandbox's own is now */
void service_stats(struct sandbox *sandbox, enum wire_type type); /* STATS_ARE or COUNTED */
int service_count(struct sandbox *sandbox) MUST_CHECK; /* COUNT of brig-init; -EPROTO: not now, or not again */
void service_list(struct spawner *spawner, uint64_t list);
void service_say_started(struct sandbox *sandbox, enum wire_type type, const int *fds, size_t n_fds);

/* sandbox_gate.c: its network. trust_begin: its CA bundle; gate_begin: routes and listeners, before a program starts
 * (of a service: before STARTED is said, which is before anything of the caller runs); says GATE_OPEN. more: answers
 * WIRE_GATE. */
int sandbox_trust_begin(struct sandbox *sandbox, struct brig_err *err) MUST_CHECK;
int sandbox_gate_begin(struct sandbox *sandbox, struct brig_err *err) MUST_CHECK;
void sandbox_gate_more(struct sandbox *sandbox, const struct netgate_want *want);
void sandbox_gate_done(struct sandbox *sandbox);

/*
 * sandbox_leaf.c: cgroups of its processes. A negative errno: brig-init has broken the protocol, or does not read.
 */
ssize_t service_recv(int sock, void *data, size_t size, pid_t *ret_pid) MUST_CHECK;
int service_leaf(struct sandbox *sandbox, uint32_t number, pid_t pid) MUST_CHECK;
int service_leaf_end(struct sandbox *sandbox, uint32_t number) MUST_CHECK;
void service_leaves_done(struct sandbox *sandbox);
void service_mover_done(struct spawner *spawner);          /* waits for its end */
uint64_t service_oom_kills(const struct sandbox *sandbox); /* leaves included; of any sandbox */
uint64_t service_pids_refused(const struct sandbox *sandbox);

/* spawner_out.c: messages to the engine */
bool spawner_may_read(const struct spawner *spawner); /* false: it is to listen first */
void spawner_flush(struct spawner *spawner);
void spawner_drop_queue(struct spawner *spawner);
void spawner_send(struct spawner *spawner, const void *msg, const int *fds, size_t n_fds);
void spawner_fail(struct spawner *spawner, const struct run_spec *run, const struct brig_err *err);
/* spawner_keep.c: the supervisor ends, and we do not. A KEEP that is not its own ends us. */
void spawner_keep(struct spawner *spawner, int *fds, size_t n_fds);
void spawner_keep_done(struct spawner *spawner);
/* spawner.c */
void spawner_pool_changed(struct spawner *spawner);

#endif
