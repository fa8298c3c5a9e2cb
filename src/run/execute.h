/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execute.h: one run of a tool, a piece of code or a command, from the request to the receipt. Each step happens once,
 * in this order, and the first refusal ends the run:
 *
 *     allowed -> rate -> arguments (schema, rules) -> approval -> credentials -> environment -> dependency set
 *             -> provider -> child -> request
 *             -> answer -> state -> scrub -> truncate -> receipt -> audit -> done
 *
 * Providers are tried in this order: the wish of the call and the tool, the organisation's configuration, what is
 * enabled. A failure that the provider calls transient is retried twice with a pause, and then the next provider is
 * tried. Once the request was sent (child_done.started) nothing is run a second time.
 */
#ifndef BRIG_RUN_EXECUTE_H
#define BRIG_RUN_EXECUTE_H

#include "audit/audit.h"
#include "deps/sets.h"
#include "pool/pool.h"
#include "provider/providers.h"
#include "records/agents.h"
#include "records/configs.h"
#include "records/registry.h"
#include "records/rules.h"
#include "run/approvals.h"
#include "run/environment.h"
#include "run/rates.h"
#include "run/runtime_frame.h"
#include "run/webhook.h"

struct accounts;
struct executor;
struct executor_options {
    struct loop *loop;
    struct manager *manager;
    struct providers *providers;
    struct store *store;
    struct audit *audit;
    const struct config *config;
    struct configs *configs;
    struct agents *agents;
    struct secrets *secrets;
    struct sets *sets;
    struct pool *pool;
    struct webhook *webhook; /* NULL if there is none. */
    struct rates *rates;
    struct approvals *approvals;
    const struct accounts *accounts; /* The organisations that share `[tools] max_runs`; NULL: there is only one. */
    /* <state>/artifacts, which belongs to us: the output files of runs are kept there; -1: they are not kept. */
    int artifacts_fd;
    size_t requests_max; /* The bytes of requests that all runs keep in memory; 0 for 2 GiB. */
};
int executor_create(const struct executor_options *options, struct executor **ret, struct brig_err *err) MUST_CHECK;
void executor_destroy(struct executor *executor);
void executor_configure(struct executor *executor, const struct config *config);
/*
 * The organisation's local configuration has another fingerprint now ("" for none): sandboxes that were kept for runs
 * with an earlier one end.
 */
void executor_retire(struct executor *executor, const char *org, const char *fingerprint);

/*
 * Everything it points to lies in the arena, lives longer than the run, or is held by it (tool_object, agent); but for
 * caller, tool, org_doc and key_doc, which are needed during executor_run() only.
 */
struct run_ask {
    struct arena **arena; /* taken over by the run; NULL: there is none */
    const struct caller *caller;
    const struct json_value *org_doc, *key_doc; /* The settings of both (lists of tools); or NULL. */
    enum frame_kind kind;
    const struct tool *tool;
    const struct object *tool_object; /* NULL for a tool that is not registered. */
    const struct object *agent;       /* or NULL */
    const char *args;                 /* The JSON text of an object, as it came. */
    size_t args_len;
    const struct json_value *args_json;
    const struct json_value *env_vars;                   /* The runtime variables, or NULL. */
    const struct json_value *limits, *network, *secrets; /* From the call; they win over the tool's; or NULL. */
    /* From the call; 0: the tool, the configuration, TOOL_SANDBOX_TIMEOUT. */
    uint64_t timeout_ms;
    const char *sandbox_id; /* Run in this live sandbox; or NULL. */
    enum { REUSE_NONE, REUSE_AGENT, REUSE_FINGERPRINT } reuse;
    const char *provider, *fallback; /* From the call, or NULL. */
    const char *template_name;       /* From the call, or NULL: the tool's, or host. */
    bool strict, background, no_schema_check;
    const struct json_value *files, *collect; /* POST /v1/run */
    const struct json_value *agent_state;     /* Given with the call (native runs without a stored agent); or NULL. */
};

/* The result of a run. It is valid during the call. */
struct run_result {
    const char *run_id;
    bool ok; /* The function returned. */
    /* Raw JSON, scrubbed and truncated (then it is a JSON string); on error the friendly message as a JSON string. */
    const char *func_return;
    size_t func_return_len;
    const char *text; /* tool_return: Python's str() of it; for an error the friendly message. */
    size_t text_len;
    const char *out[3]; /* [1] and [2], scrubbed. */
    size_t out_len[3];
    const char *agent_state; /* The JSON of the new state; NULL if it is unchanged or there is none. */
    const char *fingerprint; /* or NULL */
    const char *receipt;     /* JSON (docs/RECEIPT.md) */
    size_t receipt_len;
    const char *tool_name;          /* or NULL */
    const struct json_value *files; /* The collected files, or NULL. */
};
struct run;
struct run_events {
    void (*output)(void *ctx, unsigned stream, const char *data, size_t len); /* Scrubbed, as it comes; may be NULL. */
    /*
     * Called exactly once, with a result, or with a refusal before anything ran (403, 422, 429 with retry_s, 404 ...).
     */
    void (*done)(void *ctx, const struct run_result *result, const struct brig_err *refused, uint64_t retry_s);
    void *ctx;
};
/*
 * Never calls back from within. *ret is valid until done. background: the run goes on without a listener; its receipt
 * is in the store (GET /v1/runs/{id}).
 */
int executor_run(struct executor *executor, const struct run_ask *ask, const struct run_events *events,
                 struct run **ret, struct brig_err *err) MUST_CHECK;
const char *run_id(const struct run *run);
bool run_waits(const struct run *run);             /* It waits for an approval. */
bool run_is_refused(const struct run *run);        /* It was refused before anything began; its done follows. */
void run_detach(struct run *run);                  /* Nobody listens any more (background). */
void run_cancel(struct run *run, const char *why); /* done follows (unless detached) with the cause cancelled. */
/* Returns a run that goes on, or NULL. */
struct run *executor_find(struct executor *executor, const char *org, const char *run_id);
/* Writes {"id", "status": "queued|waiting_for_approval|installing|running", ...}. */
void run_json(const struct run *run, struct json *json);

/* Derives a schema from Python source, inside a sandbox. done gets the schema as JSON text, or BRIG_E_INVALID. */
int executor_schema(struct executor *executor, const struct caller *caller, const char *source, size_t len,
                    const char *language, const char *args_json_schema /* or NULL */,
                    void (*done)(void *ctx, const char *json, size_t len, const struct brig_err *err), void *ctx,
                    struct brig_err *err) MUST_CHECK;

/*
 * Opens the output files of a run (/workspace/out), which are kept as a tar below the state directory until retention
 * ends.
 */
int executor_artifact(struct executor *executor, const char *org, const char *run_id, int *ret_fd,
                      struct brig_err *err) MUST_CHECK;

#endif
