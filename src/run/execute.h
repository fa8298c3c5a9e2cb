/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execute.h: one run of a tool, a piece of code or a command, from the request to the receipt. Each step once, in this
 * order, and the first refusal ends it:
 *
 *     allowed -> rate -> arguments (schema, rules) -> approval -> credentials -> environment -> requirement set ->
 * provider -> child -> request
 *             -> answer -> state -> scrub -> truncate -> receipt -> audit -> done
 *
 * Providers are tried in the order of the wish (tool), the organisation's configuration, and what is enabled; a failure
 * that the provider calls transient is retried twice with back-off, and falls back to the next; once the request was
 * sent (child_done.started) nothing is run a second time.
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

struct executor;
struct executor_options {
    struct loop *loop;
    struct manager *manager;
    struct providers *providers;
    struct store *store;
    struct audit *audit;
    const struct config *config;
    struct registry *registry;
    struct configs *configs;
    struct agents *agents;
    struct secrets *secrets;
    struct sets *sets;
    struct pool *pool;
    struct webhook *webhook; /* NULL: none */
    struct rates *rates;
    struct approvals *approvals;
    int artifacts_fd; /* <state>/artifacts, of ours: files that runs leave are kept there; -1: not kept */
};
int executor_create(const struct executor_options *options, struct executor **ret, struct brig_err *err) MUST_CHECK;
void executor_destroy(struct executor *executor);
void executor_configure(struct executor *executor, const struct config *config);
/* The organisation's local configuration has another fingerprint now ("": none): sandboxes that were kept for runs
 * under one before end. */
void executor_retire(struct executor *executor, const char *org, const char *fingerprint);

/*
 * Everything it points to lies in the arena, lives longer than the run, or is held by it (tool_object, agent); but for
 * caller, tool, org_doc and key_doc, which are needed during executor_run() only.
 */
struct run_ask {
    struct arena **arena; /* taken over by the run; NULL: there is none */
    const struct caller *caller;
    const struct json_value *org_doc, *key_doc; /* settings of both (lists of tools); NULL */
    enum frame_kind kind;
    const struct tool *tool;
    const struct object *tool_object; /* or NULL: floating */
    const struct object *agent;       /* or NULL */
    const char *args;                 /* JSON text of an object, as it came */
    size_t args_len;
    const struct json_value *args_json;
    const struct json_value *env_vars;                   /* runtime variables; or NULL */
    const struct json_value *limits, *network, *secrets; /* of the call; over the tool's; or NULL */
    uint64_t timeout_ms;                                 /* of the call; 0: tool, configuration, TOOL_SANDBOX_TIMEOUT */
    const char *sandbox_id;                              /* run in this live sandbox; NULL */
    enum { REUSE_NONE, REUSE_AGENT, REUSE_FINGERPRINT } reuse;
    const char *provider, *fallback; /* of the call; NULL */
    bool strict, background, no_schema_check;
    const struct json_value *files, *collect; /* POST /v1/run */
    const struct json_value *agent_state;     /* given with the call (native runs without a stored agent); or NULL */
};

/* What a run came to. Valid during the call. */
struct run_result {
    const char *run_id;
    bool ok; /* the function returned */
    /* raw JSON, scrubbed, truncated (then a JSON string); on error the friendly message as JSON string */
    const char *func_return;
    size_t func_return_len;
    const char *text; /* tool_return: Python's str() of it; of an error the friendly message */
    size_t text_len;
    const char *out[3]; /* [1], [2] scrubbed */
    size_t out_len[3];
    const char *agent_state; /* JSON of the new state, or NULL: unchanged or none */
    const char *fingerprint; /* or NULL */
    const char *receipt;     /* JSON (docs/RECEIPT.md) */
    size_t receipt_len;
    const char *tool_name;          /* or NULL */
    const struct json_value *files; /* collected; or NULL */
};
struct run;
struct run_events {
    void (*output)(void *ctx, unsigned stream, const char *data, size_t len); /* scrubbed, as it comes; may be NULL */
    /* Exactly once: result, or a refusal before anything ran (403, 422, 429 with retry_s, 404 ...). */
    void (*done)(void *ctx, const struct run_result *result, const struct brig_err *refused, uint64_t retry_s);
    void *ctx;
};
/* Never calls back from within. *ret: until done. background: the run goes on without a listener; its receipt is in the
 * store (GET /v1/runs/{id}). */
int executor_run(struct executor *executor, const struct run_ask *ask, const struct run_events *events,
                 struct run **ret, struct brig_err *err) MUST_CHECK;
const char *run_id(const struct run *run);
bool run_waits(const struct run *run);             /* for an approval */
bool run_is_refused(const struct run *run);        /* before anything began; its done follows */
void run_detach(struct run *run);                  /* nobody listens any more (background) */
void run_cancel(struct run *run, const char *why); /* done follows (unless detached) with cause cancelled */
/* one that goes on; or NULL */
struct run *executor_find(struct executor *executor, const char *org, const char *run_id);
/* {"id", "status": "queued|waiting_for_approval|installing|running", ...} */
void run_json(const struct run *run, struct json *json);

/* Derives a schema from Python source, inside a sandbox: done with the schema as JSON text, or BRIG_E_INVALID. */
int executor_schema(struct executor *executor, const struct caller *caller, const char *source, size_t len,
                    const char *language, const char *args_json_schema /* or NULL */,
                    void (*done)(void *ctx, const char *json, size_t len, const struct brig_err *err), void *ctx,
                    struct brig_err *err) MUST_CHECK;

/* Files a run left under /workspace/out: kept as a tar below the state directory until retention ends. */
int executor_artifact(struct executor *executor, const char *org, const char *run_id, int *ret_fd,
                      struct brig_err *err) MUST_CHECK;

#endif
