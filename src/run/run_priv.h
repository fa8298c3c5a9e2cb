/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_priv.h: what the files of the executor share.
 *
 *   executor  It owns every run that goes on, and small caches.
 *   run       It lives from executor_run() until its done callback has returned. What it needs from its caller is
 *             copied into `chunks` (wiped): a run may wait for a person, a webhook, an installer or a child, and
 *             what was borrowed is gone by then. It waits for exactly one thing at a time (`step`).
 *   child     It belongs to the run from the claim until its done. If there are files to fetch it is handed to an
 *             artifact, which outlives the run.
 */
#ifndef BRIG_RUN_RUN_PRIV_H
#define BRIG_RUN_RUN_PRIV_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/text.h"
#include "crypto/crypto.h"
#include "receipt/receipt.h"
#include "run/execute.h"
#include "run/scrub.h"
#include "run/state.h"
#include "run/tool_rights.h"

#define TRIED_MAX 24u
#define ATTEMPTS_MAX 3u     /* One, and two more after failures that may pass. */
#define RETRY_FIRST_MS 100u /* Then four times as long. */
#define FINGERPRINTS 64u
#define DIR_LOOK_NS NS_PER_SEC /* How long it is believed that a directory is empty, or not. */
#define TEXT_MAX (SIZE_MAX / 4)
#define RUN_ARENA_MAX (256u << 20) /* of a run without a request */
#define WHY_MAX 200u
#define RUN_DESCRIBED_MAX 4096u

/* One file each: step_check.c ... */
enum run_step {
    STEP_CHECK,       /* allowed, rate, arguments, limits, network, secrets; then perhaps an approval */
    STEP_ENVIRONMENT, /* credentials of the webhook; variables of all layers */
    STEP_DEPS,        /* the dependency set */
    STEP_PLACE,       /* a provider, and a child or sandbox of it */
    STEP_SEND,        /* the request; the answer is waited for */
    STEP_RESULT,      /* the answer, scrubbed and cut; the agent's new state is on its way to the store */
    /* audit, receipt, store, and the caller's result; also a refusal that the caller does not know yet */
    STEP_RECEIPT,
    STEP_MAX
};

struct tried {
    char provider[CONFIG_TYPE_MAX], why[WHY_MAX];
};

/* How it ended, between the child's done and the answer; child_done is gone by then. */
struct outcome {
    bool ok;
    struct brig_receipt r; /* Its output points into out[]. */
    struct buf out[3], func_return, text, error_message, traceback, state, state_diff, learned;
    char error_type[128];
    bool has_error, of_zygote, here, state_changed;
    uint64_t scrubbed;
    const struct json_value *files;
    struct frame_answer answer;
    int exit_code;        /* as the answer says it; or -1 */
    int broken;           /* -ENOMEM: there is no memory for the result */
    struct buf described; /* the words of the audit event (run_describe) */
};

struct run {
    struct executor *executor;
    struct run *next, *prev;
    struct run_events events;
    char id[48];
    enum run_step step;
    bool entered; /* executor_run() has not returned yet: nobody is called. */
    bool stuck;   /* It ended meanwhile, and the loop cannot be asked to say so: executor_run() says it. */
    bool counted; /* in n_runs: it has not been refused */
    bool background, cancelled, strict, no_fallback, fallback_said, keep_files, released;
    struct loop_timer later; /* A refusal or a retry, from the loop. */
    uint64_t created_ns;     /* monotonic */
    int64_t created_at_ns;
    const struct run_ask *ask; /* The request; NULL after executor_run(). */
    struct caller caller;
    enum frame_kind kind;
    struct arena *arena; /* the request's, with its body; and all strings of the run */

    /* of the request */
    struct tool tool;                         /* as it was asked for; no schema, no rules */
    const struct object *tool_object, *agent; /* held; or NULL */
    const char *args;
    size_t args_len;
    const struct json_value *network, *files, *collect;
    struct sbox_secret *secrets;
    size_t n_secrets;
    char *secrets_memory;
    const struct json_value *secrets_json; /* Those that are brokered: they need a sandbox that is made for them. */
    bool of_row;                           /* The tool is a registered one. */
    bool row_secrets;                      /* The list of secrets is the tool's own: tool.registrant decided it. */
    /* It gets the value of a secret: no variables that user keys can write are put beside it. */
    bool exposes;
    enum standing needs; /* Who may give what it got; packages and directories of weaker ones stay out. */
    bool has_network;
    struct brig_limits limits;
    uint64_t timeout_ms;
    char agent_id[128], sandbox_id[64], wish[CONFIG_TYPE_MAX], org_wish[CONFIG_TYPE_MAX];
    /* What its interpreter and packages come from: "" for host. The id is the topmost layer, "" for a directory. */
    char template_name[TOOL_TEMPLATE_MAX + 1], template_id[TEMPLATE_LAYER_NAME];
    const char *project;
    uint64_t agent_version;         /* 0 if there is no stored agent. */
    const struct json_value *state; /* of the agent; or NULL */
    int reuse;

    /* While it is on its way: */
    struct environment *env;
    struct webhook_call *webhook;
    bool asked; /* approvals_ask() */
    struct set_build *build;
    const struct set *set;
    const char *workspace; /* A directory, or NULL. */
    bool persist;
    char fingerprint[FINGERPRINT_MAX];
    struct pool_wait *wait;
    bool breathes; /* Its child came from pool_try(). */
    struct child *child;
    struct reuse_wait *reusing;
    struct sbox *live;    /* Only between STEP_PLACE and STEP_SEND: the sandbox in which it runs. */
    char own_sandbox[32]; /* Made for this run alone; it is ended with it. */
    void *provider_run;
    struct provider *place;    /* The one that is tried. */
    struct provider *provider; /* The one that has it; NULL if none has yet. */
    size_t at;                 /* The place in order. */
    const char *order[PROVIDERS_MAX];
    size_t n_order;
    unsigned attempts;
    struct tried tried[TRIED_MAX];
    size_t n_tried;
    uint8_t key[FRAME_KEY];
    struct scrub *scrub;
    struct scrub_stream streams[3];
    char note[256];

    /* the end */
    struct brig_err refused;
    uint64_t retry_s;
    struct outcome *outcome; /* NULL until it has one; then: */
    struct outcome outcome_memory;
};

struct fingerprint_of {
    char org[64], text[FINGERPRINT_MAX];
    char id[128];
    uint64_t version;
};

struct schema_job;
struct artifact;

struct left { /* The bytes of output files of an organisation's runs since they were last weighed. */
    char org[64];
    uint64_t bytes;
};

struct executor {
    struct executor_options o;
    struct run *runs;
    size_t n_runs; /* Those that were not refused: an answer that is on its way takes no place. */
    struct fingerprint_of fingerprints[FINGERPRINTS];
    struct {
        char path[4096];
        uint64_t seen_ns;
        bool filled;
    } dir;
    struct schema_job *schemas;
    struct schema_cache *schema_cache;
    struct artifact *artifacts;
    struct left left[64];
    uint64_t swept_ns; /* When old ones were last looked for. */
    struct reuse_wait *reuses;
};

/* execute.c */
/* JSON text of mem_alloc(), which the arena takes over, and its value. */
int run_parse(struct run *run, char *text, size_t len, const struct json_value **ret) MUST_CHECK;
void run_advance(struct run *run); /* Goes on from run->step. */
/* The step that waited is done; goes on with the next one. */
void run_next(struct run *run);
void run_refuse(struct run *run, const struct brig_err *why); /* Nothing has run. */
void run_put_off(struct run *run);    /* Within executor_run(): its end is told from the loop. */
void run_drop_waits(struct run *run); /* What it waits for does not call back any more. */
void run_free(struct run *run);

/*
 * The steps, in order. The first five return 0 to go on with the next, 1 if something else goes on (run_next(),
 * place_failed() or step_result() follows, or has been called already: the run may be gone), or a negative errno if it
 * is refused.
 */
int step_check(struct run *run, struct brig_err *err) MUST_CHECK;
int step_environment(struct run *run, struct brig_err *err) MUST_CHECK;
int step_deps(struct run *run, struct brig_err *err) MUST_CHECK;
int step_place(struct run *run, struct brig_err *err) MUST_CHECK;
int step_send(struct run *run, struct brig_err *err) MUST_CHECK;
void step_result(struct run *run, const struct child_done *done);
void step_receipt(struct run *run); /* run->outcome is complete. The run is gone afterwards. */

/* check_bounds.c, with run->ask: */
int check_limits(struct run *run, struct brig_err *err) MUST_CHECK;
int check_network(struct run *run, struct brig_err *err) MUST_CHECK; /* Also checks the secrets. */
struct secret_use run_secret_use(const struct run *run, size_t i);
/* step_environment.c: adds what the call itself brings; with run->ask. */
int environment_begin(struct run *run, struct brig_err *err) MUST_CHECK;
/* step_deps.c: what the organisation's local configuration says. */
const struct json_value *run_config(const struct run *run); /* NULL if none is stored. */
void run_fingerprint(struct run *run);
/* step_place.c */
void place_order(struct run *run); /* Needs run->ask. */
/* Nothing was sent: tries the same again after a pause, or the next provider, or refuses the run. */
void place_failed(struct run *run, const struct brig_err *why, bool transient);
/*
 * reuse.c: finds a sandbox that lives on, or makes one for this run alone. Returns 0 if it is run->live, 1 if it is
 * waited for.
 */
int place_live(struct run *run, struct brig_err *err) MUST_CHECK;
void reuse_cancel(struct reuse_wait *wait);
/* step_result.c */
/* The answer is there, and only numbers are still to come: the part of step_result() that needs none is done. */
void run_answered(struct run *run, const struct child_done *done);
/* Ends a run without a child; its caller is called and the run is gone (from the loop, within executor_run()). */
void run_result_error(struct run *run, enum brig_cause cause, const char *type, const char *message);
void run_over(struct run *run); /* run->outcome is complete: stores the agent's state, then calls step_receipt(). */
void outcome_done(struct outcome *o);
/* step_receipt.c */
void run_store_refused(struct run *run);
void run_store_open(struct run *run); /* A background run has begun. */
/* Writes what a run is, as run_json() does; now: with its status, which holds at this moment only. */
void run_put(const struct run *run, bool now, struct json *json);
/* run_audit.c */
uint64_t run_audit(struct run *run);
void run_describe(struct run *run); /* Writes the words of that event ahead of it. */
void run_audit_refused(struct run *run);
/* derive_schema.c */
void schemas_free(struct executor *executor);
/* artifacts.c: owns the child, and releases it. */
void artifact_fetch(struct executor *executor, const char *org, const char *run_id, struct child *child);
void artifacts_free(struct executor *executor);

#endif
