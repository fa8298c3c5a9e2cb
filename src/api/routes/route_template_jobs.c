/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_template_jobs.c: makes templates from images. The answer is a stream of JSON lines: progress, and at the end
 * {"template": ..} or {"error": ..}. It begins with the first progress, so an image that is refused before any layer is
 * unpacked is an ordinary answer with its status. A client that leaves ends the job.
 */
#include <string.h>

#include "api/template_answers.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "http/errors.h"
#include "template/library.h"

#define LINE_MAX_BYTES (16u << 20)

struct making {
    struct request *rq;
    struct library_job *job;
    const char *action; /* for the audit */
    bool begun, full, over;
    char what[256]; /* a reference, or the name that was asked for */
};

static void making_left(struct request *rq)
{
    struct making *making = rq->state;

    if (making->job)
        library_cancel(making->job);
    mem_free(making);
    request_free(rq);
}

static void on_drained(void *ctx, struct exchange *x UNUSED)
{
    struct making *making = ctx;

    making->full = false;
}

static void begin(struct making *making)
{
    if (making->begun)
        return;
    making->begun = true;
    exchange_begin(making->rq->x, 200, "application/x-ndjson", UINT64_MAX);
    exchange_on_drained(making->rq->x, on_drained, making);
}

/* Writes one line. Progress that a slow client has no room for is left out. */
static void send_line(struct making *making, struct json *json)
{
    json_end(json);
    if (json_finish(json) < 0 || buf_append_str(json->out, "\n") < 0)
        return;
    begin(making);
    if (!exchange_write(making->rq->x, json->out->data, json->out->len))
        making->full = true;
}

static void on_progress(void *ctx, const struct library_progress *progress)
{
    struct making *making = ctx;
    AUTO_BUF struct buf out = BUF_INIT(4096);
    struct json json = JSON_INIT(&out);

    if (making->full || !making->rq->x)
        return;
    json_object(&json);
    json_key_string(&json, "step", progress->step);
    json_key_string(&json, "layer", progress->layer);
    json_key_u64(&json, "number", progress->number);
    json_key_u64(&json, "count", progress->of);
    json_key_u64(&json, "at", progress->at);
    json_key_u64(&json, "of", progress->size);
    send_line(making, &json);
}

static void end_stream(struct making *making)
{
    struct request *rq = making->rq;

    exchange_on_drained(rq->x, NULL, NULL);
    exchange_on_gone(rq->x, NULL, NULL);
    exchange_end(take_ptr(&rq->x));
    mem_free(making);
    request_free(rq);
}

static void fail(struct making *making, const struct brig_err *err)
{
    struct request *rq = making->rq;
    AUTO_BUF struct buf out = BUF_INIT(16384);
    struct json json = JSON_INIT(&out);

    rq->left = NULL;
    request_audit_sync(rq, making->action, NULL, making->what, "failed", err->message);
    if (!making->begun) {
        mem_free(making);
        request_fail(rq, err);
        return;
    }
    json_object(&json);
    json_key_object(&json, "error");
    json_key_string(&json, "code", error_code(err->code));
    json_key_string(&json, "message", err->message);
    json_end(&json);
    send_line(making, &json);
    end_stream(making);
}

static void on_done(void *ctx, const struct object *object, const struct brig_err *err)
{
    struct making *making = ctx;
    struct request *rq = making->rq;
    AUTO_BUF struct buf out = BUF_INIT(LINE_MAX_BYTES);
    struct json json = JSON_INIT(&out);

    making->job = NULL;
    if (err) {
        fail(making, err);
        return;
    }
    rq->left = NULL;
    request_audit_sync(rq, making->action, NULL, object->id, "ok", making->what);
    json_object(&json);
    json_key(&json, "template"), template_answer_put(rq, &json, object);
    send_line(making, &json);
    end_stream(making);
}

static struct making *making_create(struct request *rq, const char *action, const char *what)
{
    struct making *making = mem_zalloc(sizeof *making);

    if (!making) {
        request_refuse(rq, BRIG_E_NOMEM, "out of memory");
        return NULL;
    }
    *making = (struct making){.rq = rq, .action = action};
    str_cut(making->what, sizeof making->what, what);
    return making;
}

/* ---- load ---------------------------------------------------------------------------------------------- */

/* It failed before the body was all read: who sends it is told, and the connection ends. */
static void refuse_body(struct making *making, const struct brig_err *err)
{
    if (making->job)
        library_cancel(take_ptr(&making->job));
    fail(making, err);
}

static void on_ready(void *ctx)
{
    struct making *making = ctx;

    exchange_body_proceed(making->rq->x);
}

static void load_data(void *ctx, struct exchange *x UNUSED, const char *data, size_t len)
{
    struct making *making = ctx;
    struct brig_err err;

    if (library_load_data(making->job, data, len, on_ready, &err) < 0)
        refuse_body(making, &err);
}

static void load_end(void *ctx, struct exchange *x UNUSED)
{
    struct making *making = ctx;

    library_load_end(making->job);
}

void route_template_load(struct request *rq)
{
    const char *name = request_query(rq, "name"), *platform = request_query(rq, "platform");
    struct library_want want = {.name = name, .platform = platform};
    struct brig_err err;

    if (!request_query_bool(rq, "replace", &want.replace) || !request_query_bool(rq, "shared", &want.shared))
        return;
    struct making *making = making_create(rq, "template.load", name ? name : "");
    if (!making)
        return;
    const struct library_events events = {.progress = on_progress, .done = on_done, .ctx = making};
    const struct body_events body = {load_data, load_end, making};
    if (library_load(rq->api->library, &rq->caller, &want, &events, &making->job, &err) < 0) {
        fail(making, &err);
        return;
    }
    rq->state = making;
    rq->left = making_left;
    if (exchange_read(rq->x, &body, &err) < 0)
        refuse_body(making, &err);
}

/* ---- pull ---------------------------------------------------------------------------------------------- */

/* reference and want are copied by the library. */
static void pull(struct request *rq, const char *reference, const struct library_want *want)
{
    struct making *making = making_create(rq, "template.pull", reference);
    struct brig_err err;

    if (!making)
        return;
    const struct library_events events = {.progress = on_progress, .done = on_done, .ctx = making};
    if (library_pull(rq->api->library, &rq->caller, reference, want, &events, &making->job, &err) < 0) {
        fail(making, &err);
        return;
    }
    rq->state = making;
    rq->left = making_left;
}

void route_template_pull(struct request *rq)
{
    struct library_want want = {.name = NULL};
    const char *reference = NULL;

    if (!api_only_members(rq, "reference name platform replace shared") || !api_text(rq, "reference", &reference) ||
        !api_text(rq, "name", &want.name) || !api_text(rq, "platform", &want.platform) ||
        !api_bool(rq, "replace", &want.replace) || !api_bool(rq, "shared", &want.shared))
        return;
    if (!reference)
        request_refuse(rq, BRIG_E_USAGE, "reference: an image is needed, such as docker.io/library/debian:12");
    else
        pull(rq, reference, &want);
}

/* The same pull once more, for the same name. */
void route_template_rebuild(struct request *rq)
{
    const struct object *object = templates_find(rq->api->templates, rq->caller.org_id, rq->arg[0]);
    char name[TEMPLATE_NAME_MAX], reference[1024], platform[128];

    if (!object || !str_eq(object->org_id, rq->caller.org_id)) {
        request_refuse(rq, BRIG_E_NOT_FOUND, "template %.128s not found", rq->arg[0]);
        return;
    }
    const struct template_info *info = template_of(object);
    if (!str_eq(info->source, "pull")) {
        request_refuse(rq, BRIG_E_CONFLICT, "template %s: was made by %s; only a pull can be repeated", object->id,
                       info->source);
        return;
    }
    if (str_copy(name, sizeof name, object->id) < 0 || str_copy(reference, sizeof reference, info->reference) < 0 ||
        str_copy(platform, sizeof platform, info->image.platform) < 0) {
        request_refuse(rq, BRIG_E_HOST, "template %s: its reference is too long", object->id);
        return;
    }
    const struct library_want want = {
        .name = name, .platform = platform[0] ? platform : NULL, .replace = true, .shared = info->shared};
    pull(rq, reference, &want);
}
