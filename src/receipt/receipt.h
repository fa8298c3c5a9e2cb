/* SPDX-License-Identifier: Apache-2.0 */
/*
 * receipt.h: what a run reports and how that is decided (docs/RECEIPT.md), for everybody who ends a program: the
 * spawner, the engine and brigd. Nothing here asks anybody or keeps anything.
 */
#ifndef BRIG_RECEIPT_RECEIPT_H
#define BRIG_RECEIPT_RECEIPT_H

#include <brig.h>

#include "base/base.h"
#include "codec/wire/guest_msg.h"

/* ---- cause.c: the judge -------------------------------------------------------------------------------- */

/*
 * Two events compete for the end of a program: its own end, and a verdict of ours (a clock, a limit, a cancel). The
 * earlier one on the monotonic clock wins.
 */
struct end_verdict {
    enum brig_cause cause; /* BRIG_CAUSE_MAX if none was passed. */
    uint64_t at_ns;        /* CLOCK_MONOTONIC */
};
#define END_VERDICT_NONE ((struct end_verdict){.cause = BRIG_CAUSE_MAX})
/* Returns false if there is one already, which stays. */
bool verdict_pass(struct end_verdict *verdict, enum brig_cause cause);
/* Did it end before our verdict? */
bool verdict_came_late(const struct end_verdict *verdict, uint64_t ended_ns);

/* Returns what the kernel counted, as a mask for limits_hit; store is GUEST_STORE_*. */
uint32_t cause_limits(bool oom, bool pids, uint32_t store);
/* Returns the limit that this cause means, as a mask; 0 for none. */
uint32_t cause_limit(enum brig_cause cause);
/*
 * Judges a program that ended by itself, from its status as wait(2) gives it and the kernel's counters
 * (cause_limits()); nothing is guessed from a status alone. peak is BRIG_USAGE_UNKNOWN if it is not known; limit 0
 * means none. detail may be written, and stays as it was otherwise.
 */
enum brig_cause cause_of_exit(int status, uint32_t hit, uint64_t memory_peak, uint64_t memory_limit, char *detail,
                              size_t detail_size);
/* Did the kernel kill for our limit of memory? Below it, the host ran out of memory. */
bool cause_oom_is_ours(uint64_t memory_peak, uint64_t memory_limit);
/* Describes a program that was never executed: the stage that failed, and for what (may be ""). */
void cause_of_start(uint32_t stage, uint32_t errnum, const char *what, char *detail, size_t detail_size);
extern const char cause_host_oom[]; /* The text for it. */

/* Nothing is known; net is 0. */
#define USAGE_UNKNOWN                                                                                       \
    ((struct brig_usage){0, BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, \
                         BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, 0, 0})

/*
 * ---- receipt_json.c: write single members, for code that shows parts of a receipt: a key and its value into an open
 * object.
 */
struct json;
void receipt_put_time(struct json *json, const char *key, int64_t ns);
void receipt_put_limits(struct json *json, const struct brig_limits *limits);
void receipt_put_usage(struct json *json, const struct brig_usage *usage);
void receipt_put_protection(struct json *json, const struct brig_layer_state *layers, bool complete);
void receipt_put_outcome(struct json *json, const struct brig_receipt *receipt);

/* The members that only a run of the service has. */
struct receipt_service {
    const char *organization_id, *provider, *note;
    /* NULL for every key of the organisation; else only administrators and the key of this id may read it. */
    const char *readers;
    uint64_t audit_seq;  /* 0 if there is none. */
    uint32_t process;    /* The number of the process in the sandbox. */
    bool without_output; /* The output stayed in the sandbox; instead: */
    uint64_t written[3];
    /* Only for a run of a tool or of code: */
    const char *kind;  /* "tool" or "code"; NULL means "command". */
    bool of_tool_room; /* There is no process number and no command; the members below are written. */
    const char *tool_name, *agent_id, *fingerprint; /* or NULL */
    uint64_t tool_version;                          /* 0 if the tool is not registered. */
    const struct receipt_tried {
        const char *provider, *why;
    } * tried; /* The providers that were passed over. */
    size_t n_tried;
    const char *result; /* JSON, or NULL. */
    size_t result_len;
    const char *error_type, *error_message, *traceback; /* error_type is NULL without an error. */
    const char *state_diff;                             /* JSON, or NULL */
    const char *environment;                            /* A JSON object that replaces the receipt's lists. */
    uint64_t scrubbed;
    /* of_zygote: children of one zygote share what "shared" names. started_here: it is known which. */
    bool of_zygote, started_here;
};
/* Writes the whole object. service is NULL for a local run. */
void receipt_put(struct json *json, const struct brig_receipt *receipt, const struct receipt_service *service);
/*
 * Writes the member `readers`, right behind `id`. receipt_is_for() says whether a key that is no administrator's may
 * read it.
 */
void receipt_put_readers(struct json *json, const char *readers);
bool receipt_is_for(const char *text, const char *key_id);

#endif
