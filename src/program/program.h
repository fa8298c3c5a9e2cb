/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.h: one life of a program in a box: it is started, its output is counted, its clocks run, it is told to go and
 * killed, and its end is judged. Whoever embeds it decides what is started and who is told.
 *
 *     STARTING --> RUNNING --deadline--> TERM_SENT --> KILL_SENT --deaf--> JUDGING --> ENDED
 *         \____________\_____________________\_____________\____ended____/
 *
 * A kill by somebody else's word leads from any of the first three to KILL_SENT. The clock is one timer: the deadline,
 * then PROGRAM_KILL_NS, then PROGRAM_DEAF_NS; program_arm() sets it for the state that the program is in.
 *
 * START, ATTACH, CHANNEL and WAIT may leave in one go, because the number of the program is ours to choose; it is over
 * when all that were asked have been answered.
 */
#ifndef BRIG_PROGRAM_PROGRAM_H
#define BRIG_PROGRAM_PROGRAM_H

#include "base/buf.h"
#include "codec/wire/guest_svc.h"
#include "link/link.h"
#include "loop/loop.h"
#include "provider/provider.h"
#include "receipt/receipt.h"

#define PROGRAM_OUTPUT_DEFAULT (10u << 20)

enum program_state {
    PROGRAM_STARTING,
    PROGRAM_RUNNING,
    PROGRAM_TERM_SENT,
    PROGRAM_KILL_SENT, /* brig-init has to say that it is gone */
    PROGRAM_JUDGING,   /* what is still to come are numbers */
    PROGRAM_ENDED
};

struct program;
struct program_events {
    void (*answered)(struct program *program, uint32_t errnum); /* one of its calls, which is NULL now */
    void (*started)(struct program *program, const struct svc_proc_started *msg); /* may be NULL */
    void (*output)(struct program *program, unsigned stream, const uint8_t *data, size_t len);
    void (*said)(struct program *program, const uint8_t *data, size_t len); /* on its channel; may be NULL */
    void (*writable)(struct program *program);                              /* the channel; may be NULL */
    void (*clock)(struct program *program); /* the timer: program_tick() is the rest of the ladder */
    void (*over)(struct program *program);  /* brig-init does not answer: nothing more will come */
};

struct program {
    struct loop *loop;
    struct link *const *link; /* of its box; may change, and be NULL for a while */
    const struct program_events *events;
    void *owner;
    uint32_t number;
    enum program_state state;
    struct call *start, *attach, *channel, *wait;

    struct loop_timer timer;
    uint64_t sent_ns, deadline_ns; /* CLOCK_MONOTONIC; no deadline: 0 */
    uint64_t timeout_ms;

    uint64_t output_max, output_seen; /* both streams together */
    struct buf kept[3];
    bool truncated[3];

    uint32_t start_errnum, start_stage; /* it did not start */
    bool has_exit;
    struct svc_proc_exit exit;
    struct end_verdict verdict; /* ours */
    uint32_t limits_hit;
    char detail[256];
};

void program_init(struct program *program, struct loop *loop, struct link *const *link,
                  const struct program_events *events, void *owner);
void program_done(struct program *program); /* its calls are dropped and its clock stands; kept[] is the owner's */

/* The calls. Each is in its member until it is answered. */
int program_start(struct program *program, struct svc_proc_start *msg, struct brig_err *err) MUST_CHECK; /* its proc */
int program_attach(struct program *program, struct brig_err *err) MUST_CHECK;
int program_channel(struct program *program, uint32_t frames, struct brig_err *err) MUST_CHECK;
int program_wait(struct program *program, struct link *link, struct brig_err *err) MUST_CHECK;
void program_drop_calls(struct program *program);
bool program_waits(const struct program *program); /* not all have been answered */
/* events: who waits for the answer; may be NULL. Flags that there are not: EINVAL. */
int program_signal(struct program *program, int signum, uint32_t flags, const struct call_events *events,
                   struct brig_err *err) MUST_CHECK;

/* How many of these bytes may be kept; what may not is said in truncated and limits_hit. */
size_t program_count_output(struct program *program, unsigned stream, size_t len);

/* false: there is one already, or it is over. */
bool program_verdict(struct program *program, enum brig_cause cause, const char *detail);
bool program_time_out(struct program *program); /* SIGTERM, and the verdict: as program_verdict() */
void program_kill(struct program *program);     /* everything it has, unless that was done */
void program_at(struct program *program, uint64_t at_ns);
void program_arm(struct program *program);
void program_tick(struct program *program); /* of TERM_SENT and KILL_SENT */

/* Limits that were reached, whoever ended it. What its leaf cannot know is in `stats`, if they were asked for. */
uint32_t program_limits(const struct program *program, const struct box_stats *stats);
/*
 * Why it ended, with limits_hit and detail. stats NULL: the counters of its leaf only. They are the whole box's, so
 * what has risen since `seen` is put down to this program, and seen is moved on.
 */
enum brig_cause program_cause(struct program *program, const struct box_stats *stats, struct box_stats *seen,
                              uint64_t memory_limit);
/* The box took it along. why: it was told to end, and for this; "": unasked. */
enum brig_cause program_gone(struct program *program, const char *why, const struct box_end *end);
bool program_ended_by_itself(const struct program *program);
int program_exit_code(const struct program *program);
int program_exit_signal(const struct program *program);
/* By its leaf's counters. wall_ms is not its business. */
void program_usage(const struct program *program, struct brig_usage *ret);

#endif
