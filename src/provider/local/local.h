/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local.h: the structures of the provider `local`: sandboxes of this machine's spawner. local.c has the boxes and their
 * lives, local_ask.c the questions about them, local_question.c the questions about anything else, local_layers.c
 * those about template layers, local_disks.c those about disks, local_io.c the socket. A runner (src/runner/) speaks
 * the same messages, so the providers of runners are instances of this one, which outlive their runner (local_renew.c).
 */
#ifndef BRIG_PROVIDER_LOCAL_LOCAL_H
#define BRIG_PROVIDER_LOCAL_LOCAL_H

#include "provider/provider.h"
#include "spawner/spawner_wire.h"

#define LOCAL_BUCKETS 1024u

struct local;
struct queued;

/* One question about a box that is not answered yet. Questions of one kind are answered in order. */
struct question {
    struct question *next;
    enum wire_type answer; /* WIRE_ATTACHED, WIRE_FROZEN, WIRE_STATS_ARE, WIRE_GATE_OPEN or WIRE_LIMITS_ARE */
    union {
        void (*attach)(void *ctx, int fd, const struct brig_err *err);
        void (*freeze)(void *ctx, const struct brig_err *err);
        void (*stats)(void *ctx, const struct box_stats *stats, const struct brig_err *err);
        void (*gate)(void *ctx, struct box_listeners *listeners, const struct brig_err *err);
        void (*limits)(void *ctx, const struct brig_limits *limits, const struct brig_err *err);
    } done;
    void *ctx;
    struct netgate_want want; /* WIRE_GATE_OPEN: a runner that is new is asked again. */
};

/* One question about layers or disks that is not answered yet. They are answered in any order, by their number. */
struct local_question {
    struct local_question *next;
    uint64_t number;
    enum wire_type answer; /* WIRE_LAYER_DONE, WIRE_LAYERS_ARE, WIRE_DISK_DONE or WIRE_DISKS_ARE */
    union {
        void (*layer)(void *ctx, const struct brig_err *err);
        void (*layers)(void *ctx, const char *const *names, size_t n, const struct brig_err *err);
        void (*disk)(void *ctx, const struct disk_info *info, const struct brig_err *err);
        void (*disks)(void *ctx, const struct disk_info *disks, size_t n, const struct disk_space *space,
                      const struct brig_err *err);
    } done;
    void (*progress)(void *ctx, uint64_t at, uint64_t of); /* Tells how far the copy of a disk is; or NULL. */
    bool remove;                                           /* The disk is gone when it is answered. */
    void *ctx;
};

struct local_box {
    struct box box;
    struct local_box *next, *prev; /* all boxes */
    struct local_box *same_bucket;
    struct local_box *kill_next; /* The next one in local->kills. */
    uint64_t number;
    bool up;                         /* events.up was called, or it was recovered. */
    bool ending;                     /* end() was called. */
    bool kill_owed;                  /* in local->kills */
    bool gate;                       /* A network was asked for: it is not up without listeners. */
    struct box_listeners *listeners; /* The listeners that came before it is up. */
    struct question *questions;
};

struct local {
    struct provider provider;
    struct provider_ops ops; /* What this host's spawner can do. */
    int fd;                  /* The spawner's socket, which we do not close. */
    struct loop_source on_spawner;
    uint32_t events;
    struct queued *queue, **queue_end; /* What the socket would not take. */
    unsigned n_queued;
    /* The boxes that must still get KILL. It is sent whatever else fails, so it waits in the box itself. */
    struct local_box *kills;
    struct local_box *boxes;
    struct local_box *buckets[LOCAL_BUCKETS];
    uint64_t next_number;
    struct local_question *questions;
    uint64_t next_question;
    bool recovered; /* LIST was answered: numbers are known, and boxes may be made. */
    bool gone;
    struct brig_err gone_why;
    /* The next four are for a runner, which may be replaced while we live (provider_runner_create()). */
    bool renews;
    struct loop_timer on_silent; /* Nobody waits for its first LIST_END for ever (local_renew.c). */
    struct brig_err broken;      /* Why it can make nothing; the code is BRIG_E_NONE if it can. */
    char version[64];            /* What makes the boxes has it. */
    struct {
        uint64_t list; /* The number of our LIST; 0 if it was not sent. */
        struct wire_started *found;
        size_t n, room;
        bool failed; /* Memory was short on the way. */
        bool (*each)(void *ctx, struct box *box, const struct box_up *up, struct box_events *ret);
        void (*done)(void *ctx);
        void *ctx;
    } recovery;
};

static inline struct local *local_of(struct provider *provider)
{
    return (struct local *)provider;
}

/* ---- local_io.c ------------------------------------------------------------------------------------ */

#define LOCAL_FDS 2 /* The strings and the CA bundle of RUN. */
/*
 * Owns the descriptors, also on failure. Returns 0, -EBUSY (too much waits already) or -ENOMEM. A dead spawner is no
 * error here.
 */
int local_send(struct local *local, const void *msg, int *fds, size_t n_fds, struct brig_err *err) MUST_CHECK;
void local_kill(struct local_box *box); /* It never fails, and is called once. */
void local_forget_kill(struct local_box *box);
void local_io_done(struct local *local);
void local_on_spawner(struct loop_source *source, uint32_t events);

/* ---- local_ask.c ------------------------------------------------------------------------------------ */

int local_attach(struct box *box, void (*done)(void *ctx, int fd, const struct brig_err *err), void *ctx,
                 struct brig_err *err) MUST_CHECK;
int local_freeze(struct box *box, bool on, void (*done)(void *ctx, const struct brig_err *err), void *ctx,
                 struct brig_err *err) MUST_CHECK;
int local_stats(struct box *box, void (*done)(void *ctx, const struct box_stats *stats, const struct brig_err *err),
                void *ctx, struct brig_err *err) MUST_CHECK;
int local_limits(struct box *box, const struct brig_limits *limits,
                 void (*done)(void *ctx, const struct brig_limits *limits, const struct brig_err *err), void *ctx,
                 struct brig_err *err) MUST_CHECK;
int local_gate(struct box *box, const struct provider_gate *want,
               void (*done)(void *ctx, struct box_listeners *listeners, const struct brig_err *err), void *ctx,
               struct brig_err *err) MUST_CHECK;
/* Makes the same checks as the spawner, so that a bad request never gets there. on may be false. */
int local_gate_want(const struct provider_gate *want, struct netgate_want *ret, struct brig_err *err) MUST_CHECK;
void local_on_answer(struct local_box *box, const struct wire_answer *msg, int *fds, size_t n_fds);
void local_on_stats(struct local_box *box, const struct wire_stats *msg);
void local_on_limits(struct local_box *box, const struct wire_limits_are *msg);
void local_on_gate(struct local_box *box, const struct wire_gate_open *msg, int *fds, size_t n_fds);
void local_fail_questions(struct local_box *box, const struct brig_err *err); /* All open questions fail. */
/* Its runner has died: all of them fail but those about its network, which local_ask_again() sends to the next one. */
void local_interrupt_questions(struct local_box *box, const struct brig_err *err);
void local_ask_again(struct local_box *box);
void local_drop_questions(struct local_box *box); /* Drops them without an answer. */
void local_drop_listeners(struct local_box *box);
void local_listeners_free(struct box_listeners *listeners); /* Closes the descriptors that were not taken. */

/* ---- local_question.c ------------------------------------------------------------------------------- */

/* Sends msg, whose number is the question's, and keeps a copy of the question until its answer comes. */
int local_question_ask(struct local *local, const void *msg, const struct local_question *asked,
                       struct brig_err *err) MUST_CHECK;
const struct local_question *local_question_find(struct local *local, uint64_t number, enum wire_type answer);
/* The question that this message answers, which is the caller's to free; NULL if nobody asked it. */
struct local_question *local_question_take(struct local *local, const struct wire_head *head);
void local_question_fail(const struct local_question *q, const struct brig_err *err);
void local_question_fail_all(struct local *local, const struct brig_err *err);
void local_question_drop_all(struct local *local); /* Drops them without an answer. */

/* ---- local_layers.c --------------------------------------------------------------------------------- */

int local_layer(struct provider *provider, enum layer_op op, const char *name, const char *to,
                void (*done)(void *ctx, const struct brig_err *err), void *ctx, struct brig_err *err) MUST_CHECK;
int local_layers(struct provider *provider,
                 void (*done)(void *ctx, const char *const *names, size_t n, const struct brig_err *err), void *ctx,
                 struct brig_err *err) MUST_CHECK;
void local_on_layer(struct local *local, const struct wire_answer *msg);
void local_on_layers(struct local *local, const struct wire_layers_are *msg, const int *fds, size_t n_fds);

/* ---- local_disks.c ---------------------------------------------------------------------------------- */

int local_disk(struct provider *provider, const struct disk_order *order,
               void (*progress)(void *ctx, uint64_t at, uint64_t of),
               void (*done)(void *ctx, const struct disk_info *info, const struct brig_err *err), void *ctx,
               struct brig_err *err) MUST_CHECK;
int local_disks(struct provider *provider,
                void (*done)(void *ctx, const struct disk_info *disks, size_t n, const struct disk_space *space,
                             const struct brig_err *err),
                void *ctx, struct brig_err *err) MUST_CHECK;
void local_on_disk_progress(struct local *local, const struct wire_disk_progress *msg);
void local_on_disk(struct local *local, const struct wire_disk_done *msg);
void local_on_disks(struct local *local, const struct wire_disks_are *msg, const int *fds, size_t n_fds);

/* ---- local_renew.c ---------------------------------------------------------------------------------- */

/* What READY and LIST_END of a runner say: that it can make nothing, or the version of its runtime. */
void local_take_facts(struct local *local, const struct wire_ready *msg);
/* A runner has said READY. If it is not the first, we ask again which boxes there are. */
void local_on_ready(struct local *local, const struct wire_ready *msg);
/* LIST_END of a runner that is new while we live: what it did not list is gone, what we do not know is ended. */
void local_renewed(struct local *local, const struct wire_started *found, size_t n);
/* If no LIST_END comes in time, the recovery is over without it. */
int local_wait_for_list(struct local *local, struct brig_err *err) MUST_CHECK;

/* ---- local.c --------------------------------------------------------------------------------------- */

struct local_box *local_box_find(struct local *local, uint64_t number);
void local_box_ended(struct local *local, struct local_box *box, const struct box_end *end); /* Tells, and frees it. */
void local_kill_number(struct local *local, uint64_t number);         /* Ends a box that nobody has. */
int local_list(struct local *local, struct brig_err *err) MUST_CHECK; /* Sends LIST with a new number. */
void local_on_message(struct local *local, const union wire_any *msg, int *fds, size_t n_fds);
/* The last call; the provider may be destroyed in it. */
void local_on_gone(struct local *local, const struct brig_err *why);

#endif
