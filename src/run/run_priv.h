/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_priv.h: what the files of the executor share.
 *
 *   executor  owns every run that goes on, the providers, and small caches.
 *   run       from executor_run() until its done callback has returned. What it needs of its caller's is copied into
 *             `chunks` (wiped): a run may wait for a person,
 *             a webhook, an installer or a child, and what was borrowed is gone by then. Exactly one thing is waited
 *             for at a time (`step`).
 *   child     the run's from the claim until its done; with files to be fetched it is handed to an artifact, which
 *             outlives the run.
 */
#ifndef BRIG_RUN_RUN_PRIV_H
#define BRIG_RUN_RUN_PRIV_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/text.h"
#include "crypto/crypto.h"
#include "engine/engine.h"
#include "run/execute.h"
#include "run/scrub.h"
#include "run/state.h"
#include "run/tool_rights.h"

#define PROVIDERS_MAX 16u
#define TRIED_MAX 24u
#define ATTEMPTS_MAX 3u     /* one, and two more after failures that may pass */
#define RETRY_FIRST_MS 100u /* then four times as long */
#define FINGERPRINTS 64u
#define DIR_LOOK_NS NS_PER_SEC /* how long it is believed that a directory is empty, or not */
#define TEXT_MAX (SIZE_MAX / 4)
#define WHY_MAX 200u

struct run_chunk {
    struct run_chunk *next;
    size_t used, size;
    char data[];
};

enum run_step {
    STEP_APPROVAL,
    STEP_CREDENTIALS,
    STEP_ENVIRONMENT,
    STEP_SET,
    STEP_PROVIDER,
    STEP_RUNNING, /* with a provider; the next is its done */
    STEP_STATE,   /* the agent's new state is on its way to the store */
    STEP_OVER,
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
    struct caller caller;
    enum frame_kind kind;
    struct run_chunk *chunks;
    struct json_doc *docs[8]; /* copies of JSON that was borrowed */
    size_t n_docs;

    /* of the request */
    struct tool tool; /* strings in chunks; no schema, no rules; requirements as given */
    const char *args, *schema;
    size_t args_len, schema_len;
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
    uint64_t agent_version;   /* 0: no stored agent */
    const char *state_before; /* JSON of the agent's state; or NULL */
    size_t state_before_len;
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
    struct sbox *live;    /* during run_request() only: the sandbox it goes to */
    char own_sandbox[32]; /* made for this run alone, to be ended with it */
    void *provider_run;
    const struct run_provider *provider; /* the one that has it; NULL: none yet */
    size_t at;                           /* place in order */
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
    struct run_provider providers[PROVIDERS_MAX];
    size_t n_providers;
    char why_off[PROVIDERS_MAX][80];
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
char *run_copy(struct run *run, const char *text, size_t len); /* or NULL */
static inline char *run_copy_text(struct run *run, const char *text)
{
    return run_copy(run, text, strlen(text));
}
/* a copy of its own */
int run_keep(struct run *run, const struct json_value *value, const struct json_value **ret) MUST_CHECK;
void run_advance(struct run *run);                                              /* from run->step on */
void run_refuse(struct run *run, const struct brig_err *why, uint64_t retry_s); /* nothing has run */
void run_over(struct run *run);       /* run->outcome is complete: receipt, audit, done; the run is gone */
void run_drop_waits(struct run *run); /* whatever it waits for does not call back any more */

/* step_check.c: 0 go on, 1 run_advance() follows, or an error: refused */
struct steps_ask {
    const struct run_ask *ask;
    uint64_t retry_s;
};
int step_checks(struct run *run, struct steps_ask *ask, struct brig_err *err) MUST_CHECK; /* allowed, rate, arguments */
int step_approval(struct run *run, struct brig_err *err) MUST_CHECK;
int step_credentials(struct run *run, struct brig_err *err) MUST_CHECK;
int step_set(struct run *run, struct brig_err *err) MUST_CHECK;
/* step_environment.c */
int step_environment(struct run *run, struct brig_err *err) MUST_CHECK;
int run_environment_begin(struct run *run, const struct run_ask *ask, struct brig_err *err) MUST_CHECK;
int run_scrub_make(struct run *run, struct brig_err *err) MUST_CHECK;
/* step_deps.c: what the organisation's local configuration says */
const struct json_value *run_config(const struct run *run); /* or NULL: none is stored */
void run_fingerprint(struct run *run);
int run_limits(struct run *run, const struct run_ask *ask, struct brig_err *err) MUST_CHECK;
struct secret_use run_secret_use(const struct run *run, size_t i);
int run_network(struct run *run, const struct run_ask *ask, struct brig_err *err) MUST_CHECK;
/* requirements: the text of its requirements.txt; or NULL */
int run_workspace(struct run *run, struct buf *requirements) MUST_CHECK;
/* step_place.c */
int providers_init(struct executor *executor, struct brig_err *err) MUST_CHECK;
int step_provider(struct run *run, struct brig_err *err) MUST_CHECK; /* 1, or an error: there is none left */
void provider_order(struct run *run, const struct run_ask *ask);
void provider_failed(struct run *run, const struct brig_err *why, bool transient); /* before the request was sent */
/* step_send.c */
int local_start(struct run *run, struct brig_err *err) MUST_CHECK; /* 0: it is on its way */
void run_claim(struct run *run, struct child_claim *ret, const struct buf *request);
int run_request(struct run *run, struct buf *out, struct frame_request *ret, struct brig_err *err) MUST_CHECK;
void run_child_done(void *ctx, const struct child_done *done);
/* step_result.c */
/* fills run->outcome; whether files may have been left */
bool run_result(struct run *run, const struct child_done *done);
void run_result_error(struct run *run, enum brig_cause cause, const char *type,
                      const char *message); /* without a child; run_over() with it */
void outcome_done(struct outcome *o);
/* step_receipt.c */
int run_receipt(struct run *run, uint64_t audit_seq, struct buf *out) MUST_CHECK;
void run_store(struct run *run, const char *receipt);
void run_store_open(struct run *run); /* a background run has begun */
/* run_audit.c */
uint64_t run_audit(struct run *run);
void run_audit_refused(struct run *run);
/* derive_schema.c */
void schemas_free(struct executor *executor);
/* artifacts.c: takes the child over, and releases it */
void artifact_fetch(struct executor *executor, const char *org, const char *run_id, struct child *child);
void artifacts_free(struct executor *executor);
/* reuse.c */
int reuse_start(struct run *run, struct brig_err *err) MUST_CHECK; /* 0: reuse_ready() follows, or provider_failed() */
void reuse_cancel(struct reuse_wait *wait);
int reuse_claim(struct run *run, struct sbox *sbox, struct brig_err *err) MUST_CHECK;

#endif
