/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_priv.h: what the files of the executor share.
 *
 *   executor  owns every run that goes on, the providers, and small caches.
 *   run       from executor_run() until its done callback has returned. The arena of its request is its own from then
 *             on: a run may wait for a person, a webhook, an installer or a child. Exactly one thing is waited for at a
 *             time (`step`).
 *   child     the run's from the claim until its done; with files to be fetched it is handed to an artifact, which
 *             outlives the run.
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
#define ATTEMPTS_MAX 3u     /* one, and two more after failures that may pass */
#define RETRY_FIRST_MS 100u /* then four times as long */
#define FINGERPRINTS 64u
#define DIR_LOOK_NS NS_PER_SEC /* how long it is believed that a directory is empty, or not */
#define TEXT_MAX (SIZE_MAX / 4)
#define RUN_ARENA_MAX (256u << 20) /* of a run without a request */
#define WHY_MAX 200u

/* One file each: step_check.c ... */
enum run_step {
    STEP_CHECK,       /* allowed, rate, arguments, limits, network, secrets; then perhaps a person's yes */
    STEP_ENVIRONMENT, /* credentials of the webhook; variables of all layers */
    STEP_DEPS,        /* the dependency set */
    STEP_PLACE,       /* a provider, and a child or sandbox of it */
    STEP_SEND,        /* the request; the answer is waited for */
    STEP_RESULT,      /* the answer, scrubbed and cut; the agent's new state is on its way to the store */
    STEP_RECEIPT,     /* audit, receipt, store; the caller is told. Also a refusal that is yet to be told */
    STEP_MAX
};

struct tried {
    char provider[CONFIG_TYPE_MAX], why[WHY_MAX];
};

/* How it ended, between the child's done and the answer; child_done is gone by then. */
struct outcome {
    bool ok;
    struct brig_receipt r; /* its output points into out[] */
    struct buf out[3], func_return, text, error_message, traceback, state, state_diff, learned;
    char error_type[128];
    bool has_error, of_zygote, here, state_changed;
    uint64_t scrubbed;
    const struct json_value *files;
    struct frame_answer answer;
};

struct run {
    struct executor *executor;
    struct run *next, *prev;
    struct run_events events;
    char id[48];
    enum run_step step;
    bool entered; /* executor_run() has not returned yet: nobody is called */
    bool background, cancelled, strict, no_fallback, keep_files, released;
    struct loop_timer later; /* a refusal or a retry, from the loop */
    uint64_t created_ns;     /* monotonic */
    int64_t created_at_ns;
    const struct run_ask *ask; /* the request; NULL after executor_run() */
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
    const struct json_value *secrets_json; /* those that are brokered: they need a sandbox made for them */
    bool of_row;                           /* the tool is a registered one */
    bool row_secrets;                      /* the list of secrets is the tool's own: tool.registrant decided it */
    /* it gets the value of a secret: no variables that user keys can write are put beside it */
    bool exposes;
    enum standing needs; /* who may give what it was given; packages and directories of weaker ones stay out */
    bool has_network;
    struct brig_limits limits;
    uint64_t timeout_ms;
    char agent_id[128], sandbox_id[64], wish[CONFIG_TYPE_MAX], org_wish[CONFIG_TYPE_MAX];
    const char *project;
    uint64_t agent_version;         /* 0: no stored agent */
    const struct json_value *state; /* of the agent; or NULL */
    int reuse;

    /* on its way */
    struct environment *env;
    struct webhook_call *webhook;
    bool asked; /* approvals_ask() */
    struct set_build *build;
    const struct set *set;
    const char *workspace; /* a directory; or NULL */
    bool persist;
    char fingerprint[FINGERPRINT_MAX];
    struct pool_wait *wait;
    bool breathes; /* its child came from pool_try() */
    struct child *child;
    struct reuse_wait *reusing;
    struct sbox *live;    /* between STEP_PLACE and STEP_SEND only: the sandbox it goes to */
    char own_sandbox[32]; /* made for this run alone, to be ended with it */
    void *provider_run;
    struct provider *place;    /* the one that is tried */
    struct provider *provider; /* the one that has it; NULL: none yet */
    size_t at;                 /* in order */
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

struct left { /* what an organisation's runs have left since its files were last weighed */
    char org[64];
    uint64_t bytes;
};

struct executor {
    struct executor_options o;
    struct run *runs;
    size_t n_runs;
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
    uint64_t swept_ns; /* when old ones were last looked for */
    struct reuse_wait *reuses;
};

/* execute.c */
/* JSON text of mem_alloc(), which the arena takes over, and its value. */
int run_parse(struct run *run, char *text, size_t len, const struct json_value **ret) MUST_CHECK;
void run_advance(struct run *run);                            /* from run->step on */
void run_next(struct run *run);                               /* the step that waited is done: the next one */
void run_refuse(struct run *run, const struct brig_err *why); /* nothing has run */
void run_drop_waits(struct run *run);                         /* whatever it waits for does not call back any more */
void run_free(struct run *run);

/*
 * The steps, in order. The first five: 0 go on with the next, 1 something else goes on (run_next(), place_failed() or
 * step_result() follows, or has been called already: the run may be gone), negative: refused.
 */
int step_check(struct run *run, struct brig_err *err) MUST_CHECK;
int step_environment(struct run *run, struct brig_err *err) MUST_CHECK;
int step_deps(struct run *run, struct brig_err *err) MUST_CHECK;
int step_place(struct run *run, struct brig_err *err) MUST_CHECK;
int step_send(struct run *run, struct brig_err *err) MUST_CHECK;
void step_result(struct run *run, const struct child_done *done);
void step_receipt(struct run *run); /* run->outcome is complete: the run is gone afterwards */

/* check_bounds.c: with run->ask */
int check_limits(struct run *run, struct brig_err *err) MUST_CHECK;
int check_network(struct run *run, struct brig_err *err) MUST_CHECK; /* and secrets */
struct secret_use run_secret_use(const struct run *run, size_t i);
/* step_environment.c: what the call itself brings; with run->ask */
int environment_begin(struct run *run, struct brig_err *err) MUST_CHECK;
/* step_deps.c: what the organisation's local configuration says */
const struct json_value *run_config(const struct run *run); /* or NULL: none is stored */
void run_fingerprint(struct run *run);
/* step_place.c */
void place_order(struct run *run); /* with run->ask */
/* Nothing was sent: the same again after a pause, the next provider, or the run is refused. */
void place_failed(struct run *run, const struct brig_err *why, bool transient);
/* reuse.c: a sandbox that lives on, or one for this run alone: 0 it is run->live, 1 it is waited for */
int place_live(struct run *run, struct brig_err *err) MUST_CHECK;
void reuse_cancel(struct reuse_wait *wait);
/* step_result.c */
/* without a child; the run is told and gone (from the loop, within executor_run()) */
void run_result_error(struct run *run, enum brig_cause cause, const char *type, const char *message);
void run_over(struct run *run); /* run->outcome is complete: the agent's state, then step_receipt() */
void outcome_done(struct outcome *o);
/* step_receipt.c */
void run_store_refused(struct run *run);
void run_store_open(struct run *run); /* a background run has begun */
/* run_audit.c */
uint64_t run_audit(struct run *run);
void run_audit_refused(struct run *run);
/* derive_schema.c */
void schemas_free(struct executor *executor);
/* artifacts.c: takes the child over, and releases it */
void artifact_fetch(struct executor *executor, const char *org, const char *run_id, struct child *child);
void artifacts_free(struct executor *executor);

#endif
