/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child_private.h: what the files behind child.h share. child.c has a child's life up to PARKED and its end,
 * child_frame.c the frames of the channel, child_run.c the run from the claim to done(), child_claim.c what a claim
 * changes before the request may go.
 *
 * Who frees: a child belongs to its creator until `lost`, child_end(), or done() (with keep_files: child_release());
 * its sandbox belongs to the manager, which outlives it. priv->children of the sandbox lists those in it, so that a
 * sandbox that ends (children_gone) or is freed with the manager (children_free) finds them.
 */
#ifndef BRIG_SANDBOX_CHILD_CHILD_PRIVATE_H
#define BRIG_SANDBOX_CHILD_CHILD_PRIVATE_H

#include "program/program.h"
#include "sandbox/child/child.h"
#include "sandbox/private.h"

#define CHILD_PROC 1u                   /* The number of the program in a sandbox of its own. */
#define CHILD_READY_MAX 65536u          /* The longest READY frame. */
#define CHILD_MEMORY_GUESS (12u << 20)  /* The assumed size of a child that was not measured yet. */
#define CHILD_PARK_NS (30 * NS_PER_SEC) /* An interpreter that is not ready by then never will be. */
#define CHILD_FRESH_NS (20 * NS_PER_MS) /* The time between an answer and the numbers that come with it. */
#define CHILD_COUNT_NS (20 * NS_PER_MS) /* The least time between two looks at its CPU time. */

/* Frames of the channel as they come: u32 length, payload. */
struct frames {
    uint8_t head[4];
    unsigned head_len;
    uint64_t len, max; /* The length of the frame that is coming, and the most that is allowed. */
    struct buf payload;
    bool complete, too_large, more; /* more: bytes came after the first frame. */
};
void frames_begin(struct frames *frames, uint64_t max);
int frames_take(struct frames *frames, const uint8_t *data, size_t len) MUST_CHECK; /* -ENOMEM */
void frames_done(struct frames *frames);

/*
 * What must still be answered before the request may be sent (child_claim.c), and before done() may be called
 * (child_run.c).
 */
#define CHILD_WAITS_LIMITS (1u << 0)
#define CHILD_WAITS_NETWORK (1u << 1)
#define CHILD_WAITS_STATS (1u << 2)
#define CHILD_WAITS_COUNTS (1u << 3)
#define CHILD_WAITS_MEASURE (1u << 4) /* whether its CPU time can be counted */

/* A question to brig-egress; its answer may come when the child is gone. */
struct child_ask {
    struct child *child; /* NULL if it is gone. */
};

/* What was said on the channel. */
enum child_talk {
    CHILD_SILENT,
    CHILD_READY,   /* READY has come */
    CHILD_ASKED,   /* the request was sent, or a part of it */
    CHILD_ANSWERED /* and answered: that is the end of the run */
};

struct child {
    struct manager *manager;
    struct sbox *sbox;
    struct child *next; /* The next child of the same sandbox. */
    bool guest;         /* child_in_sandbox(): the sandbox is not ours */
    bool zygote;
    bool network;
    enum child_state state;
    struct child_events events;
    const char **argv, **env; /* a block each */
    uint64_t memory;
    struct box_stats parked; /* What it had used when it was parked. */
    bool measuring;

    struct program prog; /* its clock is also that of parking */
    enum child_talk talk;
    struct frames frames;

    /* For a claim: */
    struct child_claim claim;
    struct caller caller;
    unsigned waits;
    char *request; /* It includes the head and is wiped. */
    size_t request_len, request_at;
    int64_t started_at_ns; /* of the claim, as prog.sent_ns */
    bool counting;         /* its CPU time is asked for */
    bool expecting;        /* Statistics come by themselves (child_is_counted). */
    bool unsupported;      /* Its limits are not possible on this host, now or later. */
    struct box_stats stats;
    bool has_stats;
    struct gate_counts net;     /* The counts when it was claimed. */
    struct brig_network policy; /* The name and version when its request was sent. */
    struct child_ask *network_ask, *counts_ask;
    bool telling, released; /* child_release() from within done() */
};

/* ---- child.c ---------------------------------------------------------------------------------------------- */
void child_free(struct child *child);                         /* Drops its calls; the sandbox is not touched. */
void child_end_sandbox(struct child *child, const char *why); /* Also forgets it. */
void child_forget_sandbox(struct child *child);
/* The provider says by itself what the child has used when it answers (SVC_CHANNEL); else it is asked. */
bool child_is_counted(const struct child *child);
/* Returns the child that asked, and frees ask; NULL if the child is gone. */
struct child *child_answered(struct child_ask *ask);
struct child_ask *child_ask_new(struct child *child); /* Returns NULL when memory is short. */

/* ---- child_spec.c ----------------------------------------------------------------------------------------- */
int child_sandbox_spec(struct manager *manager, const struct child_spec *spec, bool zygote, struct sbox_spec *ret,
                       struct brig_err *err) MUST_CHECK;
int child_copy_lists(struct child *child, const struct child_spec *spec, struct brig_err *err) MUST_CHECK;
int child_start(struct child *child, struct brig_err *err) MUST_CHECK;

/* ---- child_claim.c ---------------------------------------------------------------------------------------- */
int child_claim_begin(struct child *child, const struct child_claim *claim,
                      struct brig_err *err) MUST_CHECK; /* Copies the claim and notes the time. */
/* Sets limits and network; child_send() follows when nothing is waited for. */
int child_prepare(struct child *child, struct brig_err *err) MUST_CHECK;

/* ---- child_run.c ------------------------------------------------------------------------------------------ */
void child_send(struct child *child);     /* Sends the request, as far as possible now. */
void child_run_data(struct child *child); /* The frame has grown. */
void child_run_output(struct child *child, unsigned stream, const uint8_t *data, size_t len);
void child_run_over(struct child *child); /* decided, unless it was: what is still to come are numbers */
void child_run_clock(struct child *child);
/* Arms the wall clock, or the next look at its CPU time. */
void child_run_arm(struct child *child, uint64_t cpu_left_ms);
void child_run_gone(struct child *child);                                   /* It ended with the sandbox. */
void child_run_counted(struct child *child, const struct box_stats *stats); /* Called unasked, with its answer. */
void child_measured(struct child *child); /* The parked statistics are there, or will not come (child_claim.c). */
void child_verdict(struct child *child, enum brig_cause cause, const char *detail);

#endif
