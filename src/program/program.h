/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.h: one life of a program in a box: it is started, its output is counted, its clocks run, it gets SIGTERM and
 * SIGKILL, and its end is judged. The code that embeds it decides what is started and who is called.
 *
 *     STARTING --> RUNNING --deadline--> TERM_SENT --> KILL_SENT --deaf--> JUDGING --> ENDED
 *         \____________\_____________________\_____________\____ended____/
 *
 * A kill for another reason leads from any of the first three to KILL_SENT. The clock is one timer: the deadline, then
 * PROGRAM_KILL_NS, then PROGRAM_DEAF_NS; program_arm() sets it for the present state.
 *
 * START, ATTACH, CHANNEL and WAIT may leave in one write, because we choose the number of the program. It is over when
 * all calls that were made have been answered.
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
    PROGRAM_KILL_SENT, /* brig-init must report that it is gone */
    PROGRAM_JUDGING,   /* only numbers are still to come */
    PROGRAM_ENDED
};

struct program;
struct program_events {
    void (*answered)(struct program *program, uint32_t errnum); /* One of its calls, which is NULL now, was answered. */
    void (*started)(struct program *program, const struct svc_proc_started *msg); /* may be NULL */
    void (*output)(struct program *program, unsigned stream, const uint8_t *data, size_t len);
    void (*said)(struct program *program, const uint8_t *data, size_t len); /* Bytes of its channel; may be NULL. */
    void (*writable)(struct program *program);                              /* The channel is writable; may be NULL. */
    void (*clock)(struct program *program); /* The timer; program_tick() does the rest. */
    void (*over)(struct program *program);  /* brig-init does not answer; nothing more will come. */
};

struct program {
    struct loop *loop;
    struct link *const *link; /* The link of its box. It may change, and be NULL for a while. */
    const struct program_events *events;
    void *owner;
    uint32_t number;
    enum program_state state;
    struct call *start, *attach, *channel, *wait;

    struct loop_timer timer;
    uint64_t sent_ns, deadline_ns; /* CLOCK_MONOTONIC; 0 for no deadline. */
    uint64_t timeout_ms;

    uint64_t output_max, output_seen; /* Both streams together. */
    struct buf kept[3];
    bool truncated[3];

    uint32_t start_errnum, start_stage; /* Why it did not start. */
    bool has_exit;
    struct svc_proc_exit exit;
    struct end_verdict verdict; /* Our verdict. */
    uint32_t limits_hit;
    char detail[256];
};

void program_init(struct program *program, struct loop *loop, struct link *const *link,
                  const struct program_events *events, void *owner);
void program_done(struct program *program); /* Drops its calls and stops its clock; the owner frees kept[]. */

/* The calls. Each is in its member until it is answered. */
/* It sets proc. */
int program_start(struct program *program, struct svc_proc_start *msg, struct brig_err *err) MUST_CHECK;
int program_attach(struct program *program, struct brig_err *err) MUST_CHECK;
int program_channel(struct program *program, uint32_t frames, struct brig_err *err) MUST_CHECK;
int program_wait(struct program *program, struct link *link, struct brig_err *err) MUST_CHECK;
void program_drop_calls(struct program *program);
bool program_waits(const struct program *program); /* Not all have been answered. */
/* events gets the answer; may be NULL. Unknown flags are EINVAL. */
int program_signal(struct program *program, int signum, uint32_t flags, const struct call_events *events,
                   struct brig_err *err) MUST_CHECK;

/* Returns how many of these bytes may be kept; truncated and limits_hit note the rest. */
size_t program_count_output(struct program *program, unsigned stream, size_t len);

/* Returns false if there is one already, or if it is over. */
bool program_verdict(struct program *program, enum brig_cause cause, const char *detail);
bool program_time_out(struct program *program); /* Sends SIGTERM and passes the verdict, as program_verdict() does. */
void program_kill(struct program *program);     /* Kills everything that it has, unless that was done. */
void program_at(struct program *program, uint64_t at_ns);
void program_arm(struct program *program);
void program_tick(struct program *program); /* For TERM_SENT and KILL_SENT. */

/*
 * Returns the limits that were reached, whatever ended it. What its leaf cannot know is in `stats`, if they were asked
 * for.
 */
uint32_t program_limits(const struct program *program, const struct box_stats *stats);
/*
 * Returns why it ended, with limits_hit and detail. If stats is NULL, only the counters of its leaf count. They are the
 * whole box's, so what has risen since `seen` is put down to this program, and seen is updated.
 */
enum brig_cause program_cause(struct program *program, const struct box_stats *stats, struct box_stats *seen,
                              uint64_t memory_limit);
/* It ended with the box. why says what ended the box on purpose; "" if it ended unasked. */
enum brig_cause program_gone(struct program *program, const char *why, const struct box_end *end);
bool program_ended_by_itself(const struct program *program);
int program_exit_code(const struct program *program);
/* Returns SIGKILL if its end was never told: its sandbox has ended it. */
int program_exit_signal(const struct program *program);
/* Reads the counters of its leaf. It does not set wall_ms. */
void program_usage(const struct program *program, struct brig_usage *ret);

#endif
