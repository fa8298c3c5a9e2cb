/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.c: a request from its head to its handler: route, caller, role, sandbox, body; and the ways to answer.
 *
 * The order is the law of what an unknown caller can learn: without a key every path answers 401 (but the open ones),
 * so routes and ids cannot be told apart; another organisation's sandbox is not found.
 */
#include "api/api.h"
#include "api/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/str.h"
#include "records/rules.h"

/* ---- routes ---------------------------------------------------------------------------------------------- */

/* One pattern against the parts of a path. On a match the braces are in rq. */
static bool matches(const char *pattern, const struct http_target *target, struct request *rq)
{
    size_t part = 0;

    rq->n_args = 0;
    for (const char *at = pattern + 1; *at; part++) {
        size_t len = strcspn(at, "/");

        if (len == 3 && memcmp(at, "...", 3) == 0) {
            rq->rest_part = part;
            return true;
        }
        if (part >= target->n_parts)
            return false;
        if (at[0] == '{')
            rq->arg[rq->n_args++] = target->parts[part];
        else if (target->part_len[part] != len || memcmp(at, target->parts[part], len) != 0)
            return false;
        if (at[len] == '/' && at[len + 1] == '\0') /* a collection: "/v1/tools/" */
            return part + 2 == target->n_parts && target->part_len[part + 1] == 0;
        at += len + (at[len] == '/');
    }
    return part == target->n_parts;
}

static const struct route *find_in(struct request *rq, const struct route_table *table, const struct http_head *head,
                                   const struct http_target *target, char *allow, size_t allow_size)
{
    for (size_t i = 0; i < table->n_routes; i++) {
        const struct route *route = &table->routes[i];

        if (!matches(route->pattern, target, rq))
            continue;
        if (route->method[0] == '*' || strcmp(route->method, head->method) == 0)
            return route;
        size_t used = strlen(allow);
        snprintf(allow + used, allow_size - used, "%s%s", used ? ", " : "", route->method);
    }
    return NULL;
}

/* allow: the methods that the path takes, where it takes others than the request's. */
static const struct route *find_route(struct request *rq, const struct http_head *head,
                                      const struct http_target *target, const struct adapter **ret_adapter, char *allow,
                                      size_t allow_size)
{
    allow[0] = '\0';
    for (const struct route_table *const *table = rq->api->tables; *table; table++) {
        const struct route *route = find_in(rq, *table, head, target, allow, allow_size);

        if (route) {
            *ret_adapter = (*table)->adapter;
            return route;
        }
    }
    return NULL;
}

static bool knows_query(const char *known, const char *name)
{
    size_t len = strlen(name);

    for (const char *at = known; *at;) {
        size_t n = strcspn(at, " ");
        if (n == 1 && at[0] == '*')
            return true;
        if ((n == len && memcmp(at, name, n) == 0) || (at[n - 1] == '.' && len > n && memcmp(at, name, n) == 0))
            return true;
        at += n + (at[n] == ' ');
    }
    return false;
}

/*
 * Some frameworks answer "/v1/tools" with a redirection to "/v1/tools/", and "/v1/tools/run/" with one to
 * "/v1/tools/run", and their clients rely on it. 307 keeps method and body. True: it has been answered.
 */
static bool redirect(struct request *rq, const struct http_head *head, const struct http_target *target)
{
    struct http_target other = *target;
    const char *query = strchr(head->target, '?');
    const size_t len = query ? (size_t)(query - head->target) : strlen(head->target);
    const bool slash = target->n_parts > 0 && target->part_len[target->n_parts - 1] == 0;
    const struct adapter *adapter = NULL;
    char allow[128];

    if (head->target[0] != '/' || target->n_parts < 2 || target->n_parts == HTTP_PARTS_MAX)
        return false;
    if (slash) {
        other.n_parts--;
    } else {
        other.parts[other.n_parts] = (char *)(uintptr_t) "";
        other.part_len[other.n_parts++] = 0;
    }
    if (!find_route(rq, head, &other, &adapter, allow, sizeof allow) || !adapter->slashes)
        return false;
    AUTO_BUF struct buf to = BUF_INIT(64u << 10);
    if (buf_append(&to, head->target, slash ? len - 1 : len) < 0 || (!slash && buf_append(&to, "/", 1) < 0) ||
        (query && buf_append_str(&to, query) < 0) || buf_append(&to, "", 1) < 0 ||
        exchange_add_field(rq->x, "Location", to.data) < 0)
        return false;
    request_status(rq, 307);
    return true;
}

/* ---- life ------------------------------------------------------------------------------------------------ */

static void drop_sandbox(struct request *rq)
{
    if (!rq->sbox)
        return;
    sbox_unwatch(rq->sbox, &rq->watch);
    sbox_release(rq->sbox);
    rq->sbox = NULL;
    rq->process = NULL;
}

static void on_sandbox_ended(void *ctx, struct sbox *sbox UNUSED)
{
    struct request *rq = ctx;

    rq->sbox = NULL;
    rq->process = NULL;
}

void request_use_sandbox(struct request *rq, struct sbox *sbox)
{
    rq->sbox = sbox;
    rq->watch = (struct sbox_watch){.ended = on_sandbox_ended, .ctx = rq};
    sbox_watch(sbox, &rq->watch);
    sbox_hold(sbox);
}

void request_free(struct request *rq)
{
    if (rq->x)
        exchange_on_gone(rq->x, NULL, NULL);
    drop_sandbox(rq);
    arena_destroy(rq->arena);
    mem_free(rq);
}

static void on_gone(void *ctx, struct exchange *x UNUSED)
{
    struct request *rq = ctx;

    rq->x = NULL;
    if (rq->left)
        rq->left(rq);
}

struct request *request_create(struct api *api, struct exchange *x)
{
    struct request *rq = mem_zalloc(sizeof *rq);

    if (!rq)
        return NULL;
    rq->api = api;
    rq->x = x;
    rq->adapter = &api_native;
    exchange_on_gone(x, on_gone, rq);
    (void)!str_copy(rq->caller.request_id, sizeof rq->caller.request_id, exchange_id(x)); /* "req-" and 26 letters */
    return rq;
}

void *request_alloc(struct request *rq, size_t size)
{
    void *made = mem_zalloc(size);

    if (!made)
        request_refuse(rq, BRIG_E_NOMEM, "out of memory");
    return made;
}

/* ---- answers --------------------------------------------------------------------------------------------- */

uint64_t request_audit(struct request *rq, const char *action, const char *object, const char *outcome,
                       const char *detail)
{
    const struct audit_event event = {.action = action,
                                      .actor = rq->caller.actor,
                                      .org = rq->caller.org_id,
                                      .object = object ? object : "",
                                      .outcome = outcome,
                                      .detail = detail ? detail : "",
                                      .request_id = rq->caller.request_id};

    return audit_add(rq->api->audit, &event, NULL, NULL);
}

static void native_fail(struct request *rq, const struct brig_err *err)
{
    if (err->code == BRIG_E_UNAUTHENTICATED || err->code == BRIG_E_FORBIDDEN)
        request_denied(rq, err->message);
    exchange_fail(rq->x, err);
    request_free(rq);
}

static void native_bad_body(struct request *rq, const struct brig_err *syntax)
{
    if (syntax)
        request_fail(rq, syntax);
    else
        request_refuse(rq, BRIG_E_USAGE, "the body must be a JSON object");
}

const struct adapter api_native = {.fail = native_fail, .bad_body = native_bad_body};

void request_fail(struct request *rq, const struct brig_err *err)
{
    if (rq->x)
        rq->adapter->fail(rq, err);
    else
        request_free(rq);
}

void request_error(struct brig_err *ret, enum brig_code code, const char *format, va_list args)
{
    char message[sizeof ret->message];

    vsnprintf(message, sizeof message, format, args);
    (void)err_set(ret, code, 0, "%s", message);
}

void request_refuse(struct request *rq, enum brig_code code, const char *format, ...)
{
    struct brig_err err;
    va_list args;

    va_start(args, format);
    request_error(&err, code, format, args);
    va_end(args);
    request_fail(rq, &err);
}

bool request_draining(struct request *rq)
{
    if (!rq->api->draining)
        return false;
    return request_refuse(rq, BRIG_E_BUSY, "the service is shutting down"), true;
}

void request_text(struct request *rq, unsigned status, const char *type, const char *text, size_t len)
{
    if (rq->x)
        exchange_reply(rq->x, status, type, text, len);
    request_free(rq);
}

void request_end(struct request *rq, bool whole)
{
    struct exchange *x = take_ptr(&rq->x);

    if (x) {
        exchange_on_gone(x, NULL, NULL);
        whole ? exchange_end(x) : exchange_abort(x);
    }
    request_free(rq);
}

void request_status(struct request *rq, unsigned status)
{
    request_text(rq, status, NULL, NULL, 0);
}

void request_done(void *rq, const struct brig_err *err)
{
    if (err)
        request_fail(rq, err);
    else
        request_status(rq, 204);
}

void request_json(struct request *rq, unsigned status, struct json *json)
{
    if (json_finish(json) < 0)
        request_refuse(rq, BRIG_E_NOMEM, "the answer does not fit into memory");
    else
        request_text(rq, status, "application/json", json->out->data, json->out->len);
}

void request_result(void *ctx, const char *json, size_t len, const struct brig_err *err)
{
    struct request *rq = ctx;

    rq->left = NULL;
    if (err)
        request_fail(rq, err);
    else
        request_text(rq, 200, "application/json", json, len);
}

void request_list_begin(struct json *json, const char *member)
{
    json_object(json);
    json_key_array(json, member);
}

void request_list_end(struct request *rq, struct json *json)
{
    json_end(json);
    json_end(json);
    request_json(rq, 200, json);
}

void request_page_end(struct request *rq, struct json *json, const char *next)
{
    json_end(json);
    json_key_string(json, "next_cursor", next);
    json_end(json);
    request_json(rq, 200, json);
}

/* ---- queries --------------------------------------------------------------------------------------------- */

const char *request_query(const struct request *rq, const char *name)
{
    return rq->x ? http_query(exchange_target(rq->x), name) : NULL;
}

bool request_query_u64(struct request *rq, const char *name, uint64_t min, uint64_t max, uint64_t *ret)
{
    const char *text = request_query(rq, name);
    uint64_t value = 0;

    if (!text)
        return true;
    if (parse_u64(text, &value) < 0 || value < min || value > max) {
        request_refuse(rq, BRIG_E_USAGE, "%s=%.64s: must be a number from %llu to %llu", name, text,
                       (unsigned long long)min, (unsigned long long)max);
        return false;
    }
    *ret = value;
    return true;
}

bool request_query_bool(struct request *rq, const char *name, bool *ret)
{
    const char *text = request_query(rq, name);

    if (!text)
        return true;
    bool yes = str_eq(text, "1") || str_eq(text, "true"), no = str_eq(text, "0") || str_eq(text, "false");
    if (!yes && !no)
        return request_refuse(rq, BRIG_E_USAGE, "%s=%.64s: must be 1 or 0", name, text), false;
    *ret = yes;
    return true;
}

/* ---- from head to handler -------------------------------------------------------------------------------- */

struct sbox *request_find(struct request *rq, const char *id)
{
    struct sbox *sbox = manager_find(rq->api->manager, &rq->caller, id);
    const struct sbox *other = sbox ? NULL : sbox_by_id(rq->api->manager, id);

    /* It belongs to another organisation; the manager has written the event. */
    if (other && !str_eq(sbox_org(other), rq->caller.org_id))
        api_count_denial(rq->api, &rq->caller, "", id);
    return sbox;
}

static bool find_sandbox(struct request *rq)
{
    const struct route *route = rq->route;
    struct sbox *sbox = request_find(rq, rq->arg[0]);
    struct brig_err err;

    if (!sbox)
        return request_refuse(rq, BRIG_E_NOT_FOUND, "Sandbox %.64s not found", rq->arg[0]), false;
    if ((route->flags & ROUTE_RUNNING) && sbox_usable(sbox, &err) < 0)
        return request_fail(rq, &err), false;
    /* Every route but those that only show the sandbox: what runs in it, and what its files say, is what it holds. */
    if ((route->flags & (ROUTE_WRITE | ROUTE_RUNNING | ROUTE_PROCESS | ROUTE_INSIDE)) &&
        sbox_check_use(sbox, &rq->caller, &err) < 0)
        return request_fail(rq, &err), false;
    request_use_sandbox(rq, sbox);
    if (!(route->flags & ROUTE_PROCESS))
        return true;
    uint32_t number = 0;
    rq->process = parse_u32(rq->arg[1], &number) < 0 ? NULL : process_find(sbox, number);
    if (rq->process)
        return true;
    request_refuse(rq, BRIG_E_NOT_FOUND, "process %.32s of sandbox %s not found", rq->arg[1], sbox_id(sbox));
    return false;
}

static void run_handler(struct request *rq)
{
    if (!(rq->route->flags & ROUTE_SANDBOX) || find_sandbox(rq))
        rq->route->fn(rq);
}

static void on_body(void *ctx, struct exchange *x, char *data, size_t len)
{
    struct request *rq = ctx;
    struct brig_err err;

    rq->left = NULL;
    if (request_take_body(rq, x, data, len) < 0) {
        (void)err_nomem(&err);
        request_fail(rq, &err);
        return;
    }
    if (len == 0 && (rq->route->flags & ROUTE_EMPTY_OK)) {
        rq->body = "{}";
        rq->body_len = 2;
    }
    if (json_read_in(rq->arena, rq->body, rq->body_len, JSON_READ_VALUES, &rq->json, &err) < 0)
        return rq->adapter->bad_body(rq, &err);
    if (rq->json->type != JSON_OBJECT)
        rq->adapter->bad_body(rq, NULL);
    else
        run_handler(rq);
}

static bool check_query(struct request *rq, const struct http_target *target)
{
    for (size_t i = 0; i < target->n_query; i++)
        if (!knows_query(rq->route->query, target->query[i].name)) {
            request_refuse(rq, BRIG_E_USAGE, "query parameter %.64s: not known here%s%s", target->query[i].name,
                           rq->route->query[0] ? "; known: " : "", rq->route->query);
            return false;
        }
    return true;
}

static bool check_role(struct request *rq)
{
    unsigned flags = rq->route->flags;

    if ((flags & ROUTE_SOCKET) && !rq->caller.socket)
        request_refuse(rq, BRIG_E_FORBIDDEN, "only the administrator on the unix socket may do this");
    else if ((flags & ROUTE_ADMIN) && rq->caller.role != STORE_ROLE_ADMIN)
        request_refuse(rq, BRIG_E_FORBIDDEN, "only a key with the role admin may do this");
    else if ((flags & ROUTE_WRITE) && rq->caller.role == STORE_ROLE_READ_ONLY)
        request_refuse(rq, BRIG_E_FORBIDDEN, "this key is read-only");
    else
        return true;
    return false;
}

/* A key that may run only what is on a list does not run programs of its own by another door. */
static bool check_lists(struct request *rq)
{
    struct brig_err err;

    if (!(rq->route->flags & ROUTE_OWN_CODE) || auth_tool_allowed(rq->api, &rq->caller, TOOL_UNREGISTERED, &err) == 0)
        return true;
    return request_fail(rq, &err), false;
}

static const char *key_text(const struct api *api, const struct http_head *head)
{
    const char *field = http_field(head, "Authorization"), *key = NULL;

    if (field && strncasecmp(field, "Bearer ", 7) == 0)
        return field + 7;
    field = http_field(head, "X-API-Key");
    if (field)
        return field;
    for (const struct route_table *const *table = api->tables; *table && !key; table++)
        key = (*table)->adapter->key ? (*table)->adapter->key(head) : NULL;
    return key;
}

bool request_join(struct request *rq, const char *org)
{
    /* The administrator's own is never too many: something can always be done about it. */
    if (rq->caller.socket || org[0] == '\0' || exchange_join(rq->x, org))
        return true;
    exchange_close_after(rq->x); /* else who is refused has one more connection all the same */
    return request_refuse(rq, BRIG_E_LIMIT, "the organisation has its share of the service's connections open"), false;
}

static void start(struct request *rq, const struct http_head *head, const struct http_target *target)
{
    struct brig_err err;
    char allow[128];

    rq->route = find_route(rq, head, target, &rq->adapter, allow, sizeof allow);
    bool open = rq->route && (rq->route->flags & ROUTE_OPEN);
    if (auth_check(rq->api, rq->x, key_text(rq->api, head), &rq->caller, &err) < 0 && !open)
        return request_fail(rq, &err);
    exchange_set_owner(rq->x, rq->caller.key_id);
    if (!request_join(rq, rq->caller.org_id))
        return;
    if (!rq->route && allow[0]) {
        exchange_add_field(rq->x, "Allow", allow);
        rq->api->counters.failures++;
        exchange_error(rq->x, 405, "method_not_allowed", "this path does not take that method",
                       "the field Allow has those that it takes");
        request_free(rq);
        return;
    }
    if (!rq->route && redirect(rq, head, target))
        return;
    if (!rq->route)
        return request_refuse(rq, BRIG_E_NOT_FOUND, "no such path; GET /v1/openapi.json lists them");
    exchange_set_data(rq->x, (void *)(uintptr_t)rq->route); /* for the log, which comes when the request is gone */
    if (!check_query(rq, target) || !check_role(rq) || !check_lists(rq) ||
        (rq->adapter->begin && !rq->adapter->begin(rq)))
        return;
    if (rq->route->flags & ROUTE_JSON) {
        rq->left = request_free;
        if (exchange_read_all(rq->x, (size_t)config_get(rq->api->config)->max_json, on_body, rq, &err) < 0)
            request_fail(rq, &err);
        return;
    }
    run_handler(rq);
}

void api_handle(void *ctx, struct exchange *x)
{
    struct api *api = ctx;
    const struct http_head *head = exchange_head(x);

    if (preview_handle(api, x))
        return;
    /* The one path that is called a hundred thousand times a second. */
    if (strcmp(head->target, "/healthz") == 0 && strcmp(head->method, "GET") == 0)
        return exchange_reply(x, 200, "text/plain", "ok\n", 3);
    if (api->trace) {
        const char *parent = http_field(head, "traceparent");
        exchange_keep(x, parent ? parent : "");
    }
    struct request *rq = request_create(api, x);
    if (rq)
        return start(rq, head, exchange_target(x));
    struct brig_err err;
    (void)err_nomem(&err);
    exchange_fail(x, &err);
}

/* The pattern of the route, not the path: ids are in the audit log, and queries may carry tokens. */
void api_log(void *ctx, const struct exchange *x, unsigned status, uint64_t duration_ns, uint64_t bytes)
{
    struct api *api = ctx;
    const struct route *route = exchange_data(x);

    api->counters.requests[status / 100 < 6 ? status / 100 : 0]++;
    api->counters.bytes_out += bytes;
    if (route && api->trace) {
        const struct trace_span span = {.method = exchange_head(x)->method,
                                        .route = route->pattern,
                                        .request_id = exchange_id(x),
                                        .peer = exchange_peer(x),
                                        .parent = exchange_kept(x),
                                        .status = status,
                                        .duration_ns = duration_ns,
                                        .bytes = bytes};
        trace_add(api->trace, &span);
    }
    if (route && log_wants_requests())
        log_request(exchange_id(x), route->method, route->pattern, exchange_peer(x), status, duration_ns, bytes);
}
