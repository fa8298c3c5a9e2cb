/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawner.h: the structures of the spawner process: the runs that it was asked for, and the sandboxes that it owns.
 * host/host.h has what it holds of the machine.
 *
 * The spawner is single-threaded and small, because every sandbox is cloned from it. It lives in a mount namespace of a
 * handful of mounts (host_tree.c), speaks fixed-size messages with one engine (spawner_wire.h), and when that engine is
 * gone it kills everything and ends.
 */
#ifndef BRIG_SPAWNER_SPAWNER_H
#define BRIG_SPAWNER_SPAWNER_H

#include <brig.h>
#include <sys/types.h>

#include "codec/wire/frame.h"
#include "host/host.h"
#include "host/layers.h"
#include "host/netgate.h"
#include "jail/plan.h"
#include "loop/loop.h"
#include "receipt/receipt.h"
#include "spawner/reaper.h"
#include "spawner/spawner_wire.h"
#include "spawner/zygote.h"

/*
 * Runs the whole process. engine_fd is a SOCK_SEQPACKET; helper_dir is the directory of brig-init. Returns an exit
 * status.
 */
int spawner_main(int engine_fd, const char *helper_dir);

/* ---- a run as asked for (run_spec.c) --------------------------------------------------------------- */

struct run_spec {
    uint64_t number;
    uint32_t flags;
    enum brig_profile profile;
    uint64_t require;
    struct brig_limits limits;
    bool image; /* Its store is an image. */
    uint16_t rows, cols;
    char *strings; /* It is owned; everything below points into it. */
    size_t strings_len;
    const char *workdir, *name, *rootfs; /* name and rootfs are NULL if they are empty. */
    const char *engine_image;            /* The name of an engine's image, or NULL. */
    const char *rootfs_below;            /* See run_spec_check_roots(); NULL means anywhere. */
    const char *layers;                  /* The names of n_layers template layers, one after the other, lowest first. */
    unsigned n_layers;
    const char *new_layer; /* The name of the new layer, or NULL. */
    const char *disk;      /* The disk of its store, or NULL. */
    const char *disk_from; /* The one that it is a copy of, or NULL. */
    unsigned n_volumes;
    struct run_volume {
        const char *disk, *target;
        bool read_only;
    } volumes[WIRE_VOLUMES_MAX];
    const char *zygote; /* The key of its zygote, or NULL. */
    unsigned n_binds, n_tmpfs;
    struct {
        const char *source, *target, *below;
        bool read_only, overlay, inside;
    } binds[WIRE_BINDS_MAX];
    struct plan_tmpfs tmpfs[WIRE_TMPFS_MAX];
    uint32_t n_argv, n_env;
    const char *argv; /* n_argv + n_env strings, one after the other, to the end of strings. */
    int stdio[3];     /* -1 if it was not given. */
    struct netgate_want gate;
    int trust_fd; /* A sealed CA bundle; -1 if there is none. */
};

/*
 * Owns the descriptors, also on failure. image: images are possible here. A bad message is -EPROTO, a bad value a usage
 * error.
 */
int run_spec_parse(struct run_spec *spec, const struct wire_run *msg, bool image, int *fds, size_t n_fds,
                   struct brig_err *err) MUST_CHECK;
/*
 * For a service: checks that every directory of the host lies in what the administrator shares; it must be opened
 * within that.
 */
int run_spec_check_roots(struct run_spec *spec, const struct roots *binds, const struct roots *rootfs,
                         struct brig_err *err) MUST_CHECK;
/*
 * Whether the run may have /dev/kvm, if it asks for it. allowed: the supervisor has said that a monitor of this service
 * needs it, and device nodes can be made.
 */
int run_spec_check_kvm(const struct run_spec *spec, bool allowed, struct brig_err *err) MUST_CHECK;
void run_spec_done(struct run_spec *spec);
static inline bool run_has_layers(const struct run_spec *run)
{
    return run && (run->n_layers > 0 || run->new_layer);
}

static inline bool run_has_disks(const struct run_spec *run)
{
    return run && (run->disk || run->n_volumes > 0);
}

/* ---- sandboxes (sandbox_*.c) ------------------------------------------------------------- */

enum sandbox_state { SANDBOX_BUILDING, SANDBOX_PARKED, SANDBOX_RUNNING, SANDBOX_DEAD, SANDBOX_STATE_MAX };

/*
 * The descriptors of a sandbox are moved to or above this number. The descriptors that a new child needs are then below
 * it, and its table stays that small however many sandboxes there are (the kernel never shrinks one: 128 KiB each at
 * 9,000 descriptors).
 */
#define SANDBOX_FD_MIN 256
#define SANDBOX_LENT (4 + WIRE_BINDS_MAX) /* both sockets, a root, the map of its ids, binds */
/* From so many on, looking up what they share is slower than making it again. */
#define MANY_SANDBOXES 32
#define RUN_BUCKETS 1024u

struct spawner;

struct sandbox {
    struct spawner *spawner;
    struct sandbox *next, *prev; /* The neighbours in the list of the same state. */
    struct sandbox *same_bucket; /* The next one of the bucket, if it has a run. */
    enum sandbox_state state;
    char id[32];
    pid_t pid;
    int pidfd, control_fd, setup_fd, store_fd;
    struct netgate *gate; /* NULL without a network. */
    uint8_t own_kernel;   /* enum reading_by: another kernel than the host's answers it; else 0. */
    bool found;           /* An earlier process made it: its network may be open, and nobody here has the listeners. */
    int gate_ns_fd;       /* The gate namespace of a guest with a network stack of its own, else -1. */
    bool trust;           /* It has a CA bundle of its own. */
    int mnt_fd;           /* Its mount namespace; it is removed after the answer, not while pid 1 dies. */
    struct cg cg;
    struct ids_claim ids;
    struct image image;
    struct image volumes[WIRE_VOLUMES_MAX]; /* Attached until it has mounted them. */
    enum store_kind store;
    struct loop_source on_pidfd, on_control, on_setup, on_oom;
    struct loop_timer on_timeout, on_sample, on_oom_check;
    struct brig_limits limits; /* The limits that it was built with. */

    /*
     * The descriptors that the child got. They are open here until its first message, because it shares our table until
     * it has its own.
     */
    int lent[SANDBOX_LENT];
    unsigned n_lent;

    /*
     * If a zygote cloned it (zygote.h): its job, until pid is known. Then it is up when brig-init has said STARTED and
     * its own pid 2 has checked itself.
     */
    uint64_t job; /* 0 if none is open. */
    struct sandbox *next_job;
    bool adopt, wants_maps, checked, said_started;
    struct reading checked_readings[BRIG_LAYER_MAX];

    /* The run; NULL while it is parked. */
    struct run_spec *run;
    struct reading readings[BRIG_LAYER_MAX];
    bool for_pool;
    bool service; /* It has no program and lives until it is ended. In this room a service is nothing else. */
    bool busy;    /* It is counted in spawner->running. */
    bool started, exited;
    uint64_t started_ns;   /* monotonic */
    int64_t started_at_ns; /* CLOCK_REALTIME */
    int stream_fd;         /* For a service: the engine's end, from START to STARTED. */
    bool has_leaves;       /* For a service: brig-init may ask for cgroups. */
    bool counted;          /* For a service: COUNTED was sent. */
    struct leaf *leaves;
    unsigned n_leaves, leaf_ops;                /* leaf_ops: the requests that the mover has. */
    uint64_t leaf_oom_kills, leaf_pids_refused; /* The counters of the leaves that are gone. */
    bool freezing;                              /* FROZEN must still be sent. */
    bool frozen;                                /* The engine wants it to stand still. */
    bool snapping;                              /* A copy of its store is being made, for which it stands still. */
    uint32_t freeze_later; /* With snapping: 1 + what the engine has asked for since; 0: nothing. */
    uint64_t freeze_wait, freeze_until;
    struct loop_timer on_freeze;
    int wait_status;            /* The status of pid 1. */
    struct guest_exited exit;   /* This is valid if exited is set. */
    struct end_verdict verdict; /* Why we ended it. */
    struct brig_err failure;    /* The failure of the set-up, or of a check. */
    struct brig_usage usage;
    uint32_t store_now, store_seen; /* GUEST_STORE_*: at the last look, and ever. */
    bool grace;
    const char *over;         /* Why sandbox_watch.c has ended it, or NULL. */
    uint64_t neighbours_sent; /* The packets of IPv6 when its neighbours were last few. */
    uint32_t locks;           /* The locks of its processes at the last count; 0 for few. */
    uint32_t locks_over;      /* sandbox_watch.c has ended it because it had more locks than this; 0 if it has not. */
    bool watched;             /* For a service: its timer is set. */
    uint64_t watched_cpu_ns;  /* Its CPU time at the last look. */
    int pending_signal;       /* The signal that was asked for before START could be sent. */
    uint64_t disk_peak;
    uint8_t in[512];
    size_t in_len;
};

/* The mover (mover.h), from the first leaf on. */
struct movers {
    int fd;
    pid_t pid; /* 0 if there is none. */
    uint32_t events;
    struct loop_source on_answer;
    struct leaf_queued *queue, *queue_end; /* What its socket would not take. */
};

/* The state while there is no engine (spawner_keep.c). */
struct keep {
    int fds[WIRE_KEEP_FDS]; /* By enum wire_keep_fd; -1 while there is an engine. */
    int peer_fd;            /* The connection of the supervisor that may be the next. */
    struct loop_source on_listener, on_peer;
    struct loop_timer on_look;
};
#define KEEP_INIT \
    ((struct keep){.fds = {-1, -1, -1, -1}, .peer_fd = -1, .on_listener = {.fd = -1}, .on_peer = {.fd = -1}})

/* Disks (disk_jobs.c). */
struct disks {
    struct disk_entry *entries; /* Those that there are, and those that are being made. */
    struct disk_job *jobs;      /* The oldest is first. */
    struct ending *endings;     /* Processes of jobs that are done. */
    unsigned n_entries, n_jobs, n_running, n_endings;
    uint64_t stamp;             /* It counts measurements and copies, to tell which was first. */
    uint64_t measured_at;       /* The stamp of the last measurement that began. */
    uint64_t base, base_added;  /* See disk_jobs.c; and what was ever added to it. */
    bool keeping;               /* A process opens, measures or grows the place of disks. */
    bool going;                 /* disks_go() is at work. */
    struct loop_timer on_empty; /* Nothing lives in the pool any more. */
    uint64_t quiet_at;          /* Before that, disks are not made tidy (disk_tidies.c), */
    struct loop_timer on_quiet; /* and then they are looked at again. */
    uint64_t ahead;             /* A pool grows in quiet until there is so much room; 0: it has it. */
    bool ahead_measured;        /* Since it was asked for, all disks were measured. */
};

struct spawner {
    struct host host;
    struct netns_maker netns;
    struct reaper reaper;
    struct movers mover;
    struct loop *loop;
    int engine_fd;
    pid_t engine_pid; /* The process that made the socket or took it over. */
    struct keep keep;
    struct loop_source on_engine;
    uint32_t engine_events;
    struct wire_queued *queue, *queue_end; /* What the engine was too busy to take. */
    unsigned n_queued;
    struct wire_ready facts;
    uint64_t highest_run; /* The highest number ever seen. */
    struct loop_timer on_refill, on_remove;
    void (*forgotten)(struct sandbox *s); /* Called when nothing of it is left, its cgroups neither; or NULL. */
    struct sandbox *lists[SANDBOX_STATE_MAX];
    struct sandbox *runs[RUN_BUCKETS];
    unsigned n_sandboxes;
    unsigned parked, building_parked, pool, running, built;
    uint64_t quiet_ns; /* Nobody waits for us from this time on, unless somebody asks for something before. */
    uint64_t short_ns; /* Since when the pool is not full; 0 if it is. */
    bool pool_announced, stop;
    struct brig_err pool_err; /* Why the pool is smaller than asked for. */
    struct zygote *zygotes;   /* The newest is first. */
    struct layer_job *layer_jobs;
    struct disks disks;
    bool sweep_again;       /* More is gone since the sweep began. */
    uint64_t jobs;          /* The jobs that were ever given to them. */
    uint64_t locks_next_ns; /* There is no new count of file locks before that. */
    uint32_t locks_bound;   /* By the last count, a sandbox with more locks than this */
    uint32_t locks_least;   /* and with at least so many is ended. */
    uint64_t off;           /* The layers that are switched off; only in test builds. */
    bool host_ids;          /* Its sandboxes have no user namespace: their ids are the host's (runner/engine/). */
};

/* sandbox_list.c: all of these take a few steps, however many sandboxes there are. */
void sandbox_list_add(struct spawner *spawner, struct sandbox *sandbox);
void sandbox_list_move(struct sandbox *sandbox, enum sandbox_state state);
void sandbox_list_remove(struct sandbox *sandbox);
void sandbox_set_run(struct sandbox *sandbox, struct run_spec *run);
struct run_spec *sandbox_take_run(struct sandbox *sandbox);
struct sandbox *sandbox_by_run(struct spawner *spawner, uint64_t number);

/* sandbox_build.c: makes the fields of a sandbox that is all zeroes, and adds it to the list of those being built. */
void sandbox_init(struct sandbox *s, struct spawner *spawner);
/* Clones and starts the set-up. run may be NULL (for the pool); on success the sandbox owns it. */
int sandbox_build(struct spawner *spawner, struct run_spec *run, struct brig_err *err) MUST_CHECK;
/* sandbox_setup.c: handle what comes on its sockets until brig-init runs, and its end. */
void sandbox_on_setup(struct loop_source *source, uint32_t events);
void sandbox_on_pidfd(struct loop_source *source, uint32_t events);
void sandbox_on_control(struct loop_source *source, uint32_t events);
void sandbox_move_up(int *fd); /* Moves a descriptor out of the numbers that children get a copy of. */
/* Its zygote has answered; the sandbox owns pidfd. sandbox_not_cloned(): it will not answer. */
void sandbox_cloned(struct sandbox *sandbox, pid_t pid, int pidfd);
void sandbox_not_cloned(struct sandbox *sandbox, const struct brig_err *err);
/* sandbox_run.c */
/* Does this parked sandbox fit this run? */
bool sandbox_fits(const struct sandbox *sandbox, const struct run_spec *run);
/* sandbox_outside.c */
uint64_t sandbox_outside(const struct sandbox *s); /* The mask of layers that only somebody outside can read. */
void sandbox_refuse_missing(struct sandbox *s, uint64_t missing);
/*
 * Reads the layers that only somebody outside can read, after the limits were set; and takes those that brig-init has
 * read. If a required one is not on, the sandbox is being ended, and they return false.
 */
bool sandbox_outside_holds(struct sandbox *s) MUST_CHECK;
bool sandbox_take_readings(struct sandbox *s, const struct guest_started *started) MUST_CHECK;
/* sandbox_watch.c: checks kernel memory that no cgroup counts. Returns false if the sandbox was ended for it. */
bool sandbox_watch(struct sandbox *sandbox) MUST_CHECK;
/*
 * sandbox_locks.c: counts file locks again, unless that was done just now. It sets locks* of the spawner and of each
 * sandbox.
 */
void sandbox_locks_count(struct spawner *spawner);
/* Checks each second, while a process runs in it. */
int sandbox_watch_service(struct sandbox *sandbox, struct brig_err *err) MUST_CHECK;
void sandbox_begin(struct sandbox *sandbox, struct run_spec *run); /* It has its ids, or was parked. */
/* For the pid 2 of a sandbox that a zygote cloned. */
void sandbox_checked(struct sandbox *sandbox, const struct setup_checked *msg);
/* Fills in what START says, with which the self-check of a process compares. */
void sandbox_start(const struct sandbox *sandbox, const struct run_spec *run, struct guest_start *ret);
void sandbox_end(struct sandbox *sandbox, enum brig_cause verdict); /* Kills it. */
/* Signals the main process, as soon as there is one. */
void sandbox_signal(struct sandbox *sandbox, int signum);
/*
 * Sends one small frame to brig-init, with a descriptor unless fd is NULL. It never blocks: -EAGAIN if brig-init does
 * not read.
 */
int sandbox_send_frame(struct sandbox *sandbox, enum frame_type type, const void *payload, size_t len,
                       const int *fd) MUST_CHECK;
/* from is the pid of the sender, or 0. */
void sandbox_on_frame(struct sandbox *sandbox, const struct frame *frame, int *fds, size_t n_fds, pid_t from);
void sandbox_broken(struct sandbox *sandbox);   /* Ends it, because its brig-init does not follow the protocol. */
void spawner_active(struct spawner *spawner);   /* Somebody waits: what can be done later is done later. */
void sandbox_not_busy(struct sandbox *sandbox); /* It does not count as running (any more). */
/* sandbox_end.c: everything of it is gone from the kernel. Reports and forgets it. */
void sandbox_finish(struct sandbox *sandbox);
/* Samples the store. Returns the bytes used, or BRIG_USAGE_UNKNOWN. */
uint64_t sandbox_measure(struct sandbox *sandbox);
/* The default limits of a pooled sandbox. */
void spawner_default_limits(struct brig_limits *limits);

/*
 * sandbox_service.c: a long-lived sandbox. service_begin(): *ret_stream goes beside START. The others answer the
 * engine.
 */
int service_begin(struct sandbox *sandbox, int *ret_stream, struct brig_err *err) MUST_CHECK;
void service_attach(struct sandbox *sandbox);
void service_freeze(struct sandbox *sandbox, bool on);
void service_limits(struct sandbox *s, const struct wire_limits *msg);
/* Sets the leaves' limit of pids to the sandbox's present one. */
void service_leaves_limit(struct sandbox *s);
void service_stats(struct sandbox *sandbox, enum wire_type type); /* type is STATS_ARE or COUNTED. */
int service_count(struct sandbox *sandbox) MUST_CHECK; /* Handles COUNT of brig-init; -EPROTO: not now, or not again. */
void service_list(struct spawner *spawner, uint64_t list);
void service_say_started(struct sandbox *sandbox, enum wire_type type, const int *fds, size_t n_fds);

/*
 * sandbox_gate.c: its network. sandbox_trust_begin() attaches its CA bundle. sandbox_gate_begin() makes routes and
 * listeners before a program starts (for a service: before STARTED is sent, which is before anything of the caller
 * runs), and sends GATE_OPEN. sandbox_gate_more() answers WIRE_GATE.
 */
int sandbox_trust_begin(struct sandbox *sandbox, struct brig_err *err) MUST_CHECK;
int sandbox_gate_begin(struct sandbox *sandbox, struct brig_err *err) MUST_CHECK;
void sandbox_gate_more(struct sandbox *sandbox, const struct netgate_want *want);
void sandbox_gate_done(struct sandbox *sandbox);

/*
 * sandbox_leaf.c: the cgroups of its processes. A negative errno means that brig-init has broken the protocol, or does
 * not read.
 */
ssize_t service_recv(int sock, void *data, size_t size, pid_t *ret_pid) MUST_CHECK;
int service_leaf(struct sandbox *sandbox, uint32_t number, pid_t pid) MUST_CHECK;
int service_leaf_end(struct sandbox *sandbox, uint32_t number) MUST_CHECK;
void service_leaves_done(struct sandbox *sandbox);
void service_mover_done(struct spawner *spawner);          /* Waits for its end. */
uint64_t service_oom_kills(const struct sandbox *sandbox); /* Leaves included, for any sandbox. */
uint64_t service_pids_refused(const struct sandbox *sandbox);

/*
 * layer_jobs.c: template layers. layer_jobs_start() removes what an earlier spawner has not finished; layer_jobs_done()
 * ends the processes. The other two answer the engine.
 */
void layer_jobs_start(struct spawner *spawner);
void layer_jobs_done(struct spawner *spawner);
void layer_obey(struct spawner *spawner, const struct wire_layer *msg);
/* Checks that the layers of a run are there, and that nobody else makes its new one. */
int layers_check(const struct spawner *spawner, const struct run_spec *run, struct brig_err *err) MUST_CHECK;
void layers_tell(struct spawner *spawner, uint64_t number);

/*
 * disk_jobs.c: disks. disk_obey() and disks_tell() answer the engine. A run that has disks is built by disk_run() when
 * they are there; until then disk_run_is() knows it by its number. disk_run_gone() removes the disk of a run that has
 * ended. disk_jobs_done() ends the processes.
 */
void disk_obey(struct spawner *spawner, const struct wire_disk *msg);
void disks_tell(struct spawner *spawner, uint64_t number);
int disk_run(struct spawner *spawner, struct run_spec *run, struct brig_err *err) MUST_CHECK;
bool disk_run_is(const struct spawner *spawner, uint64_t number);
void disk_run_kill(struct spawner *spawner, uint64_t number);
void disk_run_gone(struct spawner *spawner, const struct run_spec *run);
void disk_snaps_end(struct spawner *spawner); /* Copies of live stores that an engine which is gone has asked for. */
void disk_jobs_done(struct spawner *spawner);
/* disk_runs.c: attaches the disks of a run, which are there, to devices. */
int disks_attach(struct sandbox *sandbox, const struct run_spec *run, struct brig_err *err) MUST_CHECK;
void disks_release(struct sandbox *sandbox);
/* Who uses a disk, of the live sandboxes. */
struct disk_users {
    unsigned writers, readers;
    const char *who; /* the id of one of them */
};
struct disk_users disk_users(const struct spawner *spawner, const char *name);
bool run_uses_disk(const struct run_spec *run, const char *name, bool *ret_writes);
/* sandbox_service.c: the copy of its store is made, or has failed. */
void service_snapped(struct sandbox *sandbox);

/* spawner_out.c: messages to the engine */
bool spawner_may_read(const struct spawner *spawner); /* Returns false if the engine must listen first. */
void spawner_flush(struct spawner *spawner);
void spawner_drop_queue(struct spawner *spawner);
void spawner_send(struct spawner *spawner, const void *msg, const int *fds, size_t n_fds);
bool spawner_is_refusal(const struct brig_err *err); /* It is not a fault of this host. */
void spawner_fail(struct spawner *spawner, const struct run_spec *run, const struct brig_err *err);
/* The same for a run that no honest engine asks for. */
void spawner_refuse(struct spawner *spawner, const struct run_spec *run, const struct brig_err *err);

/* ---- spawner_in.c ---- */

/* Takes a message of the engine. It may take descriptors, which are then -1. */
typedef void spawner_message_fn(struct spawner *spawner, const union wire_any *msg, int *fds, size_t n_fds);
/* The engine's socket can be read or written to: at most one message is handed on. */
void spawner_receive(struct spawner *spawner, uint32_t events, spawner_message_fn *fn);
/* Returns the run of a message, checked, for run_spec_done(); or NULL with err, and the engine is told. */
struct run_spec *spawner_take_run(struct spawner *spawner, const struct wire_run *msg, int *fds, size_t n_fds,
                                  struct brig_err *err) MUST_CHECK;
/* spawner_keep.c: the supervisor ends and we do not. If a KEEP does not come from our supervisor, we end. */
void spawner_keep(struct spawner *spawner, int *fds, size_t n_fds);
void spawner_keep_done(struct spawner *spawner);
/* spawner.c */
void spawner_pool_changed(struct spawner *spawner);

#endif
