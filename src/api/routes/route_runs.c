/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_runs.c: receipts of runs and certificates of sandboxes; and runs that bring their own sandbox: made for the
 * run, ended with it, kept nowhere. Such a sandbox is not written to the store: after a crash it is an orphan, and
 * ended.
 */
#include <string.h>

#include "api/api.h"
#include "api/socket.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "receipt/receipt.h"
#include "run/execute.h"

/* ---- reading --------------------------------------------------------------------------------------------- */

/* If a run had what only an administrator may give, its output counts as such a thing too (sandbox/access.c). */
static bool may_read(const struct request *rq, const char *doc)
{
    return caller_is_admin(&rq->caller) || receipt_is_for(doc, rq->caller.key_id);
}

void runs_answer_one(void *ctx, const char *const *docs, const char *const *ids UNUSED, size_t n, bool more UNUSED,
                     const struct brig_err *err)
{
    struct request *rq = ctx;

    if (err)
        request_fail(rq, err);
    else if (n == 0)
        /* the argument went with the client */
        request_refuse(rq, BRIG_E_NOT_FOUND, "%.64s not found", rq->x ? rq->arg[0] : "");
    else
        request_text(rq, 200, "application/json", docs[0], strlen(docs[0]));
}

static void on_many(void *ctx, const char *const *docs, const char *const *ids, size_t n, bool more,
                    const struct brig_err *err)
{
    struct request *rq = ctx;
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    int r = 0;

    if (err)
        return request_fail(rq, err);
    r = buf_printf(&out, "{\"%s\":[", (const char *)rq->state);
    for (size_t i = 0; r == 0 && i < n; i++) {
        if (!may_read(rq, docs[i]))
            continue;
        r = out.data[out.len - 1] != '[' ? buf_append(&out, ",", 1) : 0;
        if (r == 0)
            r = buf_append_str(&out, docs[i]);
    }
    if (r == 0)
        r = more && n > 0 ? buf_printf(&out, "],\"next_cursor\":\"%s\"}", ids[n - 1])
                          : buf_append_str(&out, "],\"next_cursor\":null}");
    if (r < 0)
        request_refuse(rq, BRIG_E_TOO_LARGE, "the page is too large; ask for fewer with limit=");
    else
        request_text(rq, 200, "application/json", out.data, out.len);
}

/* "2026-01-31T12:00:00Z", or seconds since 1970. */
static bool read_time(struct request *rq, const char *name, int64_t *ret)
{
    const char *text = request_query(rq, name);
    struct tm tm = {0};

    if (!text)
        return true;
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    uint64_t seconds = 0;
    if (end && *end == '\0') {
        *ret = (int64_t)timegm(&tm) * 1000000000;
        return true;
    }
    if (!request_query_u64(rq, name, 0, 9000000000u, &seconds))
        return false;
    *ret = (int64_t)seconds * 1000000000;
    return true;
}

static bool read_page(struct request *rq, struct store_query *query)
{
    uint64_t limit = 100;

    if (!request_query_u64(rq, "limit", 1, 1000, &limit) || !read_time(rq, "since", &query->since_ns) ||
        !read_time(rq, "until", &query->until_ns))
        return false;
    query->org_id = request_scope(rq);
    query->limit = (unsigned)limit;
    query->after = request_query(rq, "cursor");
    query->cause = request_query(rq, "cause");
    query->sandbox_id = request_query(rq, "sandbox");
    return true;
}

typedef int find_fn(struct store *store, const struct store_query *query, store_rows_fn *done, void *ctx,
                    struct brig_err *err);

static void list(struct request *rq, find_fn *find, const char *name)
{
    struct store_query query = {0};
    struct brig_err err;

    if (!read_page(rq, &query))
        return;
    rq->state = (void *)(uintptr_t)name;
    if (find(rq->api->store, &query, on_many, rq, &err) < 0)
        request_fail(rq, &err);
}

void route_runs_list(struct request *rq)
{
    list(rq, store_find_runs, "runs");
}

/* A receipt that was written a moment ago waits for its group: it is committed before it is looked for, so that whoever
 * has the answer of a run finds its receipt. */
struct looking {
    struct request *rq;
    receipt_fn *found;
};

static void on_receipt(void *ctx, const char *const *docs, const char *const *ids UNUSED, size_t n, bool more UNUSED,
                       const struct brig_err *err)
{
    struct looking *looking = ctx;
    struct request *rq = looking->rq;
    receipt_fn *found = looking->found;

    mem_free(looking);
    if (err)
        request_fail(rq, err);
    else if (n == 0 || !rq->x) /* the argument went with the client */
        request_refuse(rq, BRIG_E_NOT_FOUND, "%.64s not found", rq->x ? rq->arg[0] : "");
    else if (!may_read(rq, docs[0]))
        request_refuse(rq, BRIG_E_FORBIDDEN,
                       "%.64s had what only an administrator may give; "
                       "only an administrator or the key that ran it may read what it said",
                       rq->arg[0]);
    else
        found(rq, docs[0]);
}

/* Also when the store could not write: what it has is told. */
static void on_settled(void *ctx, const struct brig_err *failed UNUSED)
{
    struct looking *looking = ctx;
    struct request *rq = looking->rq;
    const struct store_query query = {.org_id = request_scope(rq), .id = rq->x ? rq->arg[0] : "", .limit = 1};
    struct brig_err err;

    if (store_find_runs(rq->api->store, &query, on_receipt, looking, &err) == 0)
        return;
    mem_free(looking);
    request_fail(rq, &err);
}

void runs_find(struct request *rq, receipt_fn *found)
{
    struct looking *looking = request_alloc(rq, sizeof *looking);

    if (!looking)
        return;
    looking->rq = rq;
    looking->found = found;
    if (store_settle(rq->api->store, on_settled, looking, NULL) < 0)
        on_settled(looking, NULL);
}

static void answer_receipt(struct request *rq, const char *doc)
{
    request_text(rq, 200, "application/json", doc, strlen(doc));
}

/* One that goes on has no receipt yet: its state is told instead. */
void route_runs_get(struct request *rq)
{
    const struct run *run = executor_find(rq->api->executor, request_scope(rq), rq->arg[0]);
    AUTO_BUF struct buf out = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&out);

    if (!run)
        return runs_find(rq, answer_receipt);
    run_json(run, &json);
    request_json(rq, 200, &json);
}

void route_certificates_list(struct request *rq)
{
    list(rq, store_find_certificates, "certificates");
}

void route_certificates_get(struct request *rq)
{
    const struct store_query query = {.org_id = request_scope(rq), .id = rq->arg[0], .limit = 1};
    struct brig_err err;

    if (store_find_certificates(rq->api->store, &query, runs_answer_one, rq, &err) < 0)
        request_fail(rq, &err);
}

/* ---- a run with its own sandbox -------------------------------------------------------------------------- */

/*
 * made -> running -> ending -> answered. Three things may end it early: the sandbox (a fault), the client, the program.
 * The struct lives until the sandbox is gone and the client has its answer or has left.
 */
struct oneshot {
    struct api *api;
    struct caller caller;
    struct request *rq;    /* waiting for the receipt; NULL over a WebSocket, or when it has left */
    struct reader *socket; /* or NULL */
    struct arena *arena;   /* has the process part of the request, until it has started */
    const struct json_value *json;
    struct sbox *sbox;
    struct sbox_watch watch;
    struct process_run *run;
    char *receipt;
    size_t receipt_len;
    bool creating, ending, left, sent;
};

static void oneshot_free(struct oneshot *shot)
{
    arena_destroy(shot->arena);
    mem_free(shot->receipt);
    mem_free(shot);
}

static void oneshot_settle(struct oneshot *shot)
{
    if (!shot->sbox && !shot->creating && !shot->ending && !shot->rq && !shot->socket)
        oneshot_free(shot);
}

static void answer(struct oneshot *shot, const struct brig_err *err)
{
    struct request *rq = shot->rq;

    shot->sent = true;
    shot->rq = NULL;
    if (rq) {
        rq->left = NULL;
        if (shot->receipt)
            request_text(rq, 200, "application/json", shot->receipt, shot->receipt_len);
        else
            request_fail(rq, err);
    } else if (shot->socket) {
        socket_end(shot->socket, shot->receipt, shot->receipt_len);
    }
}

static void on_ended(void *ctx, struct sbox *sbox UNUSED, const struct brig_err *err UNUSED)
{
    struct oneshot *shot = ctx;
    struct brig_err gone;

    shot->ending = false;
    (void)err_set(&gone, BRIG_E_GONE, 0, "the sandbox ended before its program");
    if (!shot->sent)
        answer(shot, &gone);
    oneshot_settle(shot);
}

/* Nothing outlives its run: the answer comes after the sandbox has gone. */
static void end_sandbox(struct oneshot *shot)
{
    struct sbox *sbox = shot->sbox;

    if (!sbox || shot->ending)
        return;
    shot->ending = true;
    sbox_unwatch(sbox, &shot->watch);
    shot->sbox = NULL;
    if (sbox_end(sbox, &shot->caller, "run ended", on_ended, shot, NULL) < 0)
        on_ended(shot, NULL, NULL);
}

static void on_sandbox_gone(void *ctx, struct sbox *sbox UNUSED)
{
    struct oneshot *shot = ctx;

    shot->sbox = NULL; /* its process has told its own end, or will not: then the answer is the fault */
    if (!shot->run && !shot->ending)
        on_ended(shot, NULL, NULL);
}

static void keep_receipt(struct oneshot *shot, const char *receipt, size_t len)
{
    shot->receipt = receipt ? mem_alloc(len + 1) : NULL;
    if (shot->receipt) {
        memcpy(shot->receipt, receipt, len);
        shot->receipt[len] = '\0';
        shot->receipt_len = len;
    }
}

static void on_run_done(void *ctx, const char *receipt, size_t len, const struct brig_err *err)
{
    struct oneshot *shot = ctx;

    shot->run = NULL;
    keep_receipt(shot, receipt, len);
    if (err && !shot->sent)
        answer(shot, err);
    if (shot->sbox)
        end_sandbox(shot);
    else if (!shot->ending)
        on_ended(shot, NULL, NULL);
}

static void refuse(struct oneshot *shot, const struct brig_err *err)
{
    if (shot->socket) {
        AUTO_BUF struct buf out = BUF_INIT(4096);
        struct json json = JSON_INIT(&out);
        json_object(&json);
        json_key_string(&json, "error", err->message);
        json_key_i64(&json, "code", err->code);
        json_end(&json);
        if (json_finish(&json) == 0)
            keep_receipt(shot, out.data, out.len);
    }
    answer(shot, err);
    if (shot->sbox)
        end_sandbox(shot);
}

static void on_started(void *ctx, struct process *process, const struct brig_err *failed)
{
    struct oneshot *shot = ctx;
    struct brig_err err;

    if (failed)
        refuse(shot, failed);
    else if (shot->left)
        end_sandbox(shot);
    else if (socket_attach(shot->socket, process, &err) < 0)
        refuse(shot, &err);
}

static void start(struct oneshot *shot)
{
    struct process_spec_parsed parsed;
    struct brig_err err;
    int r = process_spec_parse(shot->json, shot->sbox, &parsed, &err);

    if (r == 0) {
        parsed.spec.hold = shot->socket != NULL; /* the socket is attached in a moment */
        r = shot->socket ? process_start(shot->sbox, &shot->caller, &parsed.spec, on_started, shot, &err)
                         : process_run(shot->sbox, &shot->caller, &parsed.spec, on_run_done, shot, &shot->run, &err);
        process_spec_done(&parsed);
    }
    arena_destroy(take_ptr(&shot->arena));
    if (r < 0)
        refuse(shot, &err);
}

static void on_created(void *ctx, struct sbox *sbox, const struct brig_err *err)
{
    struct oneshot *shot = ctx;

    shot->creating = false;
    if (err) {
        if (!shot->left)
            refuse(shot, err);
        oneshot_settle(shot);
        return;
    }
    shot->sbox = sbox;
    shot->watch = (struct sbox_watch){.ended = on_sandbox_gone, .ctx = shot};
    sbox_watch(sbox, &shot->watch);
    if (shot->left)
        end_sandbox(shot);
    else
        start(shot);
}

/* The request is {"sandbox": {...}, "process": {...}}: each part is judged by its own rules. */
static int begin(struct oneshot *shot, const struct json_value *json, struct brig_err *err)
{
    static const uint8_t no_fingerprint[SHA256_SIZE];
    const struct json_value *sandbox = json_get(json, "sandbox");
    struct sbox_spec spec;

    shot->json = json_get(json, "process");
    for (const struct json_value *m = json->type == JSON_OBJECT ? json->first : NULL; m; m = m->next)
        if (!str_eq(m->key, "sandbox") && !str_eq(m->key, "process"))
            return err_usage(err, "%.64s: not a member of this request", m->key);
    if (!shot->json || shot->json->type != JSON_OBJECT)
        return err_usage(err, "process: must be an object, with argv or command");
    static const struct json_value none = {.type = JSON_OBJECT};
    int r = sbox_spec_parse(sandbox ? sandbox : &none, config_get(shot->api->config), shot->api->templates,
                            &shot->caller, &spec, err);
    if (r < 0)
        return r;
    r = sbox_spec_check_binds(&spec, err);
    if (r < 0)
        return sbox_spec_done(&spec), r;
    spec.ephemeral = true;
    shot->creating = true;
    r = manager_create_sandbox(shot->api->manager, &shot->caller, &spec, NULL, no_fingerprint, on_created, shot, err);
    if (r < 0)
        shot->creating = false;
    return r;
}

static struct oneshot *oneshot_create(struct request *rq)
{
    struct oneshot *shot = request_alloc(rq, sizeof *shot);

    if (shot)
        *shot = (struct oneshot){.api = rq->api, .caller = rq->caller};
    return shot;
}

static void request_left(struct request *rq)
{
    struct oneshot *shot = rq->state;

    shot->rq = NULL;
    shot->left = true;
    request_free(rq);
    if (shot->run)
        process_run_cancel(shot->run);
    shot->run = NULL;
    end_sandbox(shot);
    oneshot_settle(shot);
}

void route_runs_create(struct request *rq)
{
    struct brig_err err;

    if (request_draining(rq))
        return;
    struct oneshot *shot = oneshot_create(rq);
    if (!shot)
        return;
    shot->rq = rq;
    shot->arena = take_ptr(&rq->arena);
    rq->state = shot;
    rq->left = request_left;
    if (begin(shot, rq->json, &err) < 0) {
        answer(shot, &err);
        oneshot_settle(shot);
    }
}

/* ---- over a WebSocket ------------------------------------------------------------------------------------ */

/* The first text message. What is wrong with it is told as an end with an error, then the socket is closed. */
static bool on_spec(void *ctx, const char *text, size_t len)
{
    struct oneshot *shot = ctx;
    const struct json_value *json = NULL;
    struct brig_err err;

    if (shot->creating || shot->sbox || shot->ending || shot->sent)
        return false;
    shot->arena = api_arena(len);
    if (!shot->arena)
        (void)err_nomem(&err);
    if (!shot->arena || json_read_in(shot->arena, text, len, JSON_READ_VALUES, &json, &err) < 0 ||
        begin(shot, json, &err) < 0)
        refuse(shot, &err);
    return true;
}

static void on_socket_ended(void *ctx, const char *receipt, size_t len)
{
    struct oneshot *shot = ctx;

    keep_receipt(shot, receipt, len);
    if (shot->sbox)
        end_sandbox(shot);
    else if (!shot->ending)
        on_ended(shot, NULL, NULL);
}

static void on_socket_closed(void *ctx)
{
    struct oneshot *shot = ctx;

    shot->socket = NULL;
    shot->left = true;
    end_sandbox(shot);
    oneshot_settle(shot);
}

void route_runs_attach(struct request *rq)
{
    static const struct socket_owner owner = {on_spec, on_socket_ended, on_socket_closed};
    struct brig_err err;

    if (!exchange_wants_websocket(rq->x))
        return request_refuse(rq, BRIG_E_USAGE, "attach is a WebSocket: Upgrade is needed");
    struct oneshot *shot = oneshot_create(rq);
    if (!shot)
        return;
    if (socket_open(rq->x, &rq->caller, &owner, shot, &shot->socket, &err) < 0) {
        oneshot_free(shot);
        request_fail(rq, &err);
        return;
    }
    exchange_on_gone(rq->x, NULL, NULL);
    rq->x = NULL;
    request_free(rq);
}
