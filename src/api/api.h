/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api.h: the inside of brigd above its rooms: the daemon's parts, a request on its way, and the table of routes.
 *
 * A request is made when its head has come and freed when it has been answered, or its client has left and nobody
 * works for it any more. A handler that answers at once calls one request_ function and returns; one that waits keeps
 * the pointer, sets `left` to hear of a client that leaves, and answers later. After any of the answering functions
 * the request is gone.
 */
#ifndef BRIG_API_API_H
#define BRIG_API_API_H

#include <brig.h>
#include <stdarg.h>

#include "api/trace.h"
#include "audit/audit.h"
#include "audit/suspicion.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "codec/json/json_read.h"
#include "config/config.h"
#include "http/server.h"
#include "loop/workers.h"
#include "base/arena.h"
#include "provider/providers.h"
#include "records/accounts.h"
#include "records/policies.h"
#include "records/secrets.h"
#include "records/templates.h"
#include "sandbox/manager.h"
#include "sandbox/process.h"
#include "store/store.h"

#define API_ANSWER_MAX (256u << 20) /* of a JSON answer; receipts with output are the largest */

struct objects;
struct configs;
struct agents;
struct rates;
struct approvals;
struct webhook;
struct sets;
struct pool;
struct executor;
struct keyring;
struct tickets;
struct library;
struct registries;
struct volumes;
struct snapshots;
struct builds;
struct build_steps;

struct api {
    struct loop *loop;
    struct workers *workers;
    struct config_loaded *config;
    struct store *store;
    struct audit *audit;
    struct crypto_signer *signer;
    struct providers *providers;
    struct provider *provider; /* The one of the list that makes sandboxes. */
    struct manager *manager;
    struct policies *policies;
    struct templates *templates;
    struct library *library; /* makes them */
    struct volumes *volumes;
    struct snapshots *snapshots;
    struct registries *registries;
    struct build_steps *build_steps;
    struct builds *builds;
    struct server *server;
    const struct route_table *const *tables; /* one for each interface that is served; NULL ends them */
    struct accounts *accounts;
    struct suspicion *suspicion;
    struct trace *trace; /* NULL: off */
    struct secrets *secrets;
    /* tools (tools.c) */
    struct objects *registry;
    struct configs *configs;
    struct agents *agents;
    struct rates *rates;
    struct approvals *approvals;
    struct webhook *webhook; /* NULL: none */
    struct sets *sets;
    struct pool *pool;
    struct executor *executor;
    int sets_dir_fd, artifacts_fd;
    char *sets_path;
    uint8_t token_key[32];   /* signs the tokens of previews */
    struct tickets *tickets; /* and their single-use ones; NULL until there is one */
    int supervisor_fd;
    struct request *reloading; /* who waits for the answer to a reload */
    bool ready, draining, drained;
    int audit_dir_fd;
    uint64_t started_ns;
    struct api_counters {
        uint64_t requests[6]; /* by hundreds of the status */
        uint64_t denials, failures, bytes_out;
    } counters;
};

struct request;
typedef void route_fn(struct request *rq);

/* flags of a route */
#define ROUTE_JSON (1u << 0)      /* has a JSON body (an object): rq->json */
#define ROUTE_SANDBOX (1u << 1)   /* {id} is a sandbox of the caller: rq->sbox, held until the answer */
#define ROUTE_WRITE (1u << 2)     /* not for read-only keys */
#define ROUTE_ADMIN (1u << 3)     /* role admin, or the socket */
#define ROUTE_SOCKET (1u << 4)    /* the socket's administrator only */
#define ROUTE_OPEN (1u << 5)      /* no key needed */
#define ROUTE_PROCESS (1u << 6)   /* {n} is a process of it: rq->process */
#define ROUTE_RUNNING (1u << 7)   /* and the sandbox must be running (else 409) */
#define ROUTE_BODY (1u << 8)      /* reads its body itself */
#define ROUTE_SECRET (1u << 10)   /* the body is wiped wherever it was, as soon as it has been read */
#define ROUTE_EMPTY_OK (1u << 9)  /* with ROUTE_JSON: no body at all is {} */
#define ROUTE_INSIDE (1u << 11)   /* shows what runs in the sandbox: for those who may use it */
#define ROUTE_OWN_CODE (1u << 12) /* brings a program of the caller's own: lists of tools judge it as `run` */

struct route {
    const char *method;  /* "*": any */
    const char *pattern; /* "/v1/sandboxes/{id}/run"; a last part "..." takes all the rest */
    const char *query;   /* the query parameters it knows, space-separated; a name ending in "." is a prefix */
    unsigned flags;
    route_fn *fn;
};

/*
 * What another interface (letta/) does in its own way. Each function that refuses sends the answer, and the request is
 * gone.
 */
struct adapter {
    void (*fail)(struct request *rq, const struct brig_err *err); /* answers with an error; rq->x is not NULL */
    /* The body cannot be used. syntax: why it is no JSON; NULL: it is JSON, but not an object. */
    void (*bad_body)(struct request *rq, const struct brig_err *syntax);
    /*
     * Called after role and lists were checked and before the body is read. It reads fields of the head that choose for
     * whom the caller acts, and checks what else there is to check. false: the refusal was sent. NULL: nothing to do.
     */
    bool (*begin)(struct request *rq);
    /* The text of a key in a field of this interface. It is asked if a request has no key in our field. NULL: none. */
    const char *(*key)(const struct http_head *head);
    bool slashes; /* a path with a slash too many or too few is redirected (307), not unknown */
};

/* The routes of one interface. Earlier tables, and earlier routes in a table, are looked at first. */
struct route_table {
    const struct route *routes;
    size_t n_routes;
    const struct adapter *adapter;
};

struct request {
    struct api *api;
    struct exchange *x; /* NULL once the client has left */
    const struct route *route;
    const struct adapter *adapter; /* its route's; the native one until a route is found */
    struct caller caller;
    const char *arg[4];       /* the parts in braces, in order; "..." is not one */
    size_t n_args, rest_part; /* rest_part: index of the first part of "..." */
    struct arena *arena; /* with ROUTE_JSON: has the next two, and what a handler puts there; a run takes it over */
    const struct json_value *json;
    const char *body; /* as it came, for fingerprints */
    size_t body_len;
    struct sbox *sbox;
    struct sbox_watch watch; /* a sandbox that ends takes rq->sbox with it */
    struct process *process;
    /* Called when the client has left. It ends what was begun; request_free() or an answer follows, now or later. */
    void (*left)(struct request *rq);
    void *state; /* the handler's own */
};

extern const struct route_table api_table; /* the native API */

/* request.c */
extern const struct adapter api_native;
void api_handle(void *ctx, struct exchange *x);
void api_log(void *ctx, const struct exchange *x, unsigned status, uint64_t duration_ns, uint64_t bytes);
struct request *request_create(struct api *api, struct exchange *x); /* or NULL */
/* Zeroed memory for what a handler keeps while it waits; NULL: the refusal was sent. */
void *request_alloc(struct request *rq, size_t size);
/* A sandbox of the caller's organisation by id or name, or NULL. Asking for another's counts as a denial. */
struct sbox *request_find(struct request *rq, const char *id);
/* Sets rq->sbox. The sandbox is not idle until the request is over. */
void request_use_sandbox(struct request *rq, struct sbox *sbox);
/* The connection counts as this organisation's from now on; false: the refusal was sent. */
bool request_join(struct request *rq, const char *org) MUST_CHECK;
struct arena *api_arena(size_t body_max); /* for a body of so many bytes and what comes of it; or NULL */
/* With what exchange_read_all() gave; -ENOMEM. rq->arena, rq->body */
int request_take_body(struct request *rq, struct exchange *x, char *data, size_t len) MUST_CHECK;
void request_wipe_body(struct request *rq); /* arena, json and body are gone: there was a secret in them */
void request_free(struct request *rq); /* without an answer: only when rq->x is NULL, or it has been answered by hand */
/* The end of an answer that exchange_begin() began. whole: false if it must not look complete. */
void request_end(struct request *rq, bool whole);
void request_fail(struct request *rq, const struct brig_err *err);
/* The error of a refusal, for functions that take a format themselves. */
void request_error(struct brig_err *ret, enum brig_code code, const char *format, va_list args) PRINTF_LIKE(3, 0);
void request_refuse(struct request *rq, enum brig_code code, const char *format, ...) PRINTF_LIKE(3, 4);
/* Whether the service takes nothing new any more; true: the refusal was sent. */
bool request_draining(struct request *rq) MUST_CHECK;
void request_status(struct request *rq, unsigned status); /* an empty answer */
void request_done(void *rq, const struct brig_err *err);  /* answers a write: 204, or why not */
void request_result(void *rq, const char *json, size_t len, const struct brig_err *err); /* 200 and it, or why not */
/* The JSON that was written; a failure of it is a 500. */
void request_json(struct request *rq, unsigned status, struct json *json);
/* A list is {member: [...]}; a page has next_cursor beside it, null (next is NULL) when it is the last one. */
void request_list_begin(struct json *json, const char *member);
void request_list_end(struct request *rq, struct json *json);
/* A list of objects, from the first of them. */
void request_list_objects(struct request *rq, const char *member, const struct object *first,
                          void (*put)(struct json *json, const struct object *object));
void request_page_end(struct request *rq, struct json *json, const char *next);
void request_text(struct request *rq, unsigned status, const char *type, const char *text, size_t len);
const char *request_query(const struct request *rq, const char *name); /* or NULL */
/* Query parameters; false: the refusal was sent. Absent: the default stays in *ret. */
bool request_query_u64(struct request *rq, const char *name, uint64_t min, uint64_t max, uint64_t *ret) MUST_CHECK;
bool request_query_bool(struct request *rq, const char *name, bool *ret) MUST_CHECK;
/* An event of this request in the log. */
uint64_t request_audit(struct request *rq, const char *action, const char *object, const char *outcome,
                       const char *detail);
/* The same, about this organisation (NULL: the caller's), on its way to the disk before the answer is. */
void request_audit_sync(const struct request *rq, const char *action, const char *org, const char *object,
                        const char *outcome, const char *detail);
/* What the service did by itself. */
void api_audit_system(struct api *api, const char *action, const char *org, const char *object, const char *detail);
void request_denied(struct request *rq, const char *message); /* the audit's event; the client is still there */
/* Counts a denial whose event has been written. Many of them become an event of their own. */
void api_count_denial(struct api *api, const struct caller *caller, const char *org, const char *object);
void api_denied(struct api *api, const struct caller *caller, const char *object, const char *detail);
/* The same for another organisation's object: only the host's administrator sees the event, since the caller is told
 * that there is no such object. */
void api_denied_others(struct api *api, const struct caller *caller, const char *object, const char *detail);

/* values.c: what JSON members and times look like in this API */
#define API_TIME_DIGITS 3u /* milliseconds */
/* `key` as text or, where it is not text, as base64; `key_encoding` says which. */
void api_put_bytes(struct json *json, const char *key, const char *key_encoding, bool text, const void *data,
                   size_t len);
/* seconds, or "30s", "2m", "1h", "30d" */
int api_duration(const struct json_value *value, uint64_t *ret_ms) MUST_CHECK;
/* The first member of the body that is none of the words; or NULL */
const struct json_value *api_unknown_member(const struct request *rq, const char *known);
/* Every member of the body is one of the words; else the refusal was sent. */
bool api_only_members(struct request *rq, const char *known) MUST_CHECK;

/* The member `name`: text of at least one byte and no NUL; else, or without it (NULL), the refusal was sent. */
bool api_name(struct request *rq, const struct json_value *name, char *out, size_t size) MUST_CHECK;

/* A member of the body that is text; NULL if it is absent or null. False: the refusal was sent. */
bool api_text(struct request *rq, const char *key, const char **ret) MUST_CHECK;
/* A member of the body that is true or false; *ret stays if it is absent. False: the refusal was sent. */
bool api_bool(struct request *rq, const char *key, bool *ret) MUST_CHECK;

void api_put(struct json *json, const char *key, const struct json_value *value); /* NULL: null */
void api_put_time(struct json *json, const char *key, int64_t at_ns);             /* RFC 3339; 0: null */

/* "user-<uuid4>": who changes objects, in their documents. There is one per organisation, with its number. */
#define API_AUTHOR 64u
const char *api_author(const struct caller *caller, char out[API_AUTHOR]);

/* Reads a number that the separator ends, and returns what follows it; NULL if there is no number. */
const char *api_number(const char *text, char separator, uint64_t *ret);
int api_signal(const struct json_value *value) MUST_CHECK; /* "TERM", "SIGTERM", 15; or -EINVAL */
bool api_size(const struct json_value *object, const char *name, uint16_t *ret) MUST_CHECK; /* a member of 1 to 65535 */

/* auth.c: who sends a request. Keys and organisations: records/accounts.h. */
int auth_open(struct api *api, struct brig_err *err) MUST_CHECK; /* api->accounts */
/* Returns 0 and *ret, or BRIG_E_UNAUTHENTICATED. key: text of a key, or NULL. */
int auth_check(struct api *api, const struct exchange *x, const char *key, struct caller *ret,
               struct brig_err *err) MUST_CHECK;
/* Do the lists of the organisation and the key allow a tool of this name? BRIG_E_FORBIDDEN "Tool '<n>' not allowed". */
int auth_tool_allowed(struct api *api, const struct caller *caller, const char *name, struct brig_err *err) MUST_CHECK;
/* May the caller bring along what runs of tools execute: packages, a directory, variables? Administrators, who write
 * the lists, always; others if the lists allow `run`. */
int auth_may_bring(struct api *api, const struct caller *caller, struct brig_err *err) MUST_CHECK;
/* The key that the path names, if it is of an organisation that the caller sees; NULL: the refusal was sent. */
const struct object *request_key(struct request *rq);
route_fn route_key_create, route_key_list, route_key_revoke, route_org_create, route_org_list, route_org_delete;

/* Whose objects a caller sees: those of its organisation; the socket sees all. */
static inline bool api_visible(const struct request *rq, const char *org_id)
{
    return rq->caller.socket || str_eq(rq->caller.org_id, org_id);
}

/* The organisation to search; "" is all. */
static inline const char *request_scope(const struct request *rq)
{
    return rq->caller.socket ? "" : rq->caller.org_id;
}

/* route_*.c */
route_fn route_health, route_ready, route_metrics, route_version, route_openapi;
route_fn route_sandbox_create, route_sandbox_list, route_sandbox_get, route_sandbox_update, route_sandbox_delete,
    route_sandbox_pause, route_sandbox_resume, route_sandbox_stop, route_sandbox_metrics, route_sandbox_logs,
    route_prune;
route_fn route_run, route_process_start, route_process_list, route_process_get, route_process_kill,
    route_process_output, route_process_attach, route_process_stdin, route_process_signal, route_process_resize,
    route_process_wait;
route_fn route_shell_open, route_shell_run, route_shell_close;
route_fn route_service_list, route_service_start, route_service_stop, route_service_restart, route_service_log;
route_fn route_file_get, route_file_put, route_file_delete, route_file_stat, route_file_list, route_file_mkdir,
    route_file_move, route_file_watch, route_tar_get, route_tar_put;
route_fn route_port_list, route_port_token, route_proxy;
/* The receipt that the path names, if the caller may read it; otherwise the refusal is sent. */
typedef void receipt_fn(struct request *rq, const char *receipt);
void runs_find(struct request *rq, receipt_fn *found);
store_rows_fn runs_answer_one; /* 200 and the one document that the store found; ctx is the request */
route_fn route_runs_list, route_runs_get, route_runs_create, route_runs_attach, route_certificates_list,
    route_certificates_get;
route_fn route_policy_list, route_policy_get, route_policy_put, route_policy_delete, route_policy_check;
route_fn route_secret_list, route_secret_get, route_secret_put, route_secret_delete;
route_fn route_template_list, route_template_get, route_template_tag, route_template_delete, route_template_prune,
    route_template_du, route_template_export, route_template_load, route_template_pull, route_template_rebuild;
route_fn route_volume_list, route_volume_get, route_volume_create, route_volume_delete;
route_fn route_snapshot_list, route_snapshot_get, route_snapshot_delete, route_snapshot_restore, route_sandbox_snapshot,
    route_sandbox_fork, route_sandbox_commit;
route_fn route_build_create, route_build_list, route_build_get, route_build_context, route_build_log, route_build_lock,
    route_build_delete;
route_fn route_registry_list, route_registry_get, route_registry_put, route_registry_delete;
route_fn route_config_get, route_config_reload, route_events, route_audit;

/* tools, agents and configurations: what letta/ has no form for */
route_fn route_variable_reveal, route_agent_reveal, route_agent_secret_put, route_agent_secret_delete, route_tool_run;
route_fn route_run_once, route_run_cancel, route_run_files;
route_fn route_approval_list, route_approval_approve, route_approval_deny;
route_fn route_pool_list, route_pool_prewarm, route_provider_list, route_provider_check, route_secret_rotate;
route_fn route_org_tools_get, route_org_tools_put, route_key_tools_get, route_key_tools_put;

/* tools.c: the parts of tool execution, made before the service is locked down (what is kept) and after (what runs),
 * and ended around the store. */
int api_tools_open(struct api *api, const struct keyring *ring, const char *state_dir, struct brig_err *err) MUST_CHECK;
int api_tools_start(struct api *api, struct brig_err *err) MUST_CHECK; /* after the manager */
/* the manager is: the default configuration, what is to be warm */
int api_tools_ready(struct api *api, struct brig_err *err) MUST_CHECK;
void api_tools_configure(struct api *api, const struct config *config); /* of a reload */
void api_tools_stop(struct api *api);                                   /* before the manager goes */
void api_tools_close(struct api *api); /* after the store: what was on its way comes back */
void api_tools_forget_org(struct api *api, const char *org);

/* preview_admit.c: a request whose Host is <port>-<id>.<domain>: true when it was taken. */
bool preview_handle(struct api *api, struct exchange *x);

#endif
