/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_secrets.c: named secrets. A value goes in and never comes out: no route here answers with one, and no message,
 * log line or event has any part of it. The body that brought it is wiped as soon as it has been sealed, before the
 * store has been asked (ROUTE_SECRET wipes the connection's copy).
 */
#include <string.h>

#include "api/api.h"
#include "base/mem.h"
#include "base/str.h"

#define LIST_DEFAULT 100u
#define LIST_MAX 1000u

static void put_info(struct json *json, const struct secret_info *info)
{
    json_object(json);
    json_key_string(json, "name", info->name);
    json_key(json, "broker");
    if (info->brokered)
        broker_rule_put(&info->rule, json);
    else
        json_null(json);
    json_key_string(json, "key_id", info->key_id);
    json_key_u64(json, "size", info->size);
    api_put_time(json, "created_at", info->created_at_ns);
    api_put_time(json, "updated_at", info->updated_at_ns);
    json_end(json);
}

/* ---- reading --------------------------------------------------------------------------------------------- */

void route_secret_list(struct request *rq)
{
    const char *cursor = request_query(rq, "cursor");
    uint64_t limit = LIST_DEFAULT;
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    if (!request_query_u64(rq, "limit", 1, LIST_MAX, &limit))
        return;
    if (cursor && !secret_name_ok(cursor)) { /* the last name of the page before */
        request_refuse(rq, BRIG_E_USAGE, "cursor=%.64s: not one of ours", cursor);
        return;
    }
    const struct object *last = NULL,
                        *object = objects_after(secrets_objects(rq->api->secrets), rq->caller.org_id, cursor);
    request_list_begin(&json, "secrets");
    for (; object && limit > 0; limit--, last = object, object = object->next)
        put_info(&json, secret_info_of(object));
    request_page_end(rq, &json, object && last ? last->id : NULL);
}

static void answer_info(struct request *rq, const char *name, unsigned status)
{
    const struct secret_info *info = secrets_find(rq->api->secrets, rq->caller.org_id, name);
    AUTO_BUF struct buf out = BUF_INIT(64u << 10);
    struct json json = JSON_INIT(&out);

    if (!info)
        return request_refuse(rq, BRIG_E_NOT_FOUND, "secret %.64s not found", name);
    put_info(&json, info);
    request_json(rq, status, &json);
}

void route_secret_get(struct request *rq)
{
    answer_info(rq, rq->arg[0], 200);
}

/* ---- writing --------------------------------------------------------------------------------------------- */

struct writing {
    struct request *rq;
    const char *action;
    unsigned status;
    char name[SECRET_NAME_MAX];
};

static void on_written(void *ctx, const struct object *object UNUSED, const struct brig_err *err)
{
    struct writing *writing = ctx;
    struct request *rq = writing->rq;

    request_audit_sync(rq, writing->action, NULL, writing->name, err ? "failed" : "ok", "");
    if (err)
        request_fail(rq, err);
    else if (writing->status == 204)
        request_status(rq, 204);
    else
        answer_info(rq, writing->name, writing->status);
    mem_free(writing);
}

static struct writing *begin(struct request *rq, const char *action, unsigned status)
{
    struct writing *writing = mem_zalloc(sizeof *writing);

    if (!secret_name_ok(rq->arg[0])) {
        request_refuse(
            rq, BRIG_E_USAGE,
            "%.80s: a secret's name has 1 to %u letters, digits, '_', '.' or '-', and begins with a letter or '_'",
            rq->arg[0], SECRET_NAME_MAX - 1);
    } else if (!writing || str_copy(writing->name, sizeof writing->name, rq->arg[0]) < 0) {
        request_refuse(rq, BRIG_E_NOMEM, "out of memory");
    } else {
        writing->rq = rq;
        writing->action = action;
        writing->status = status;
        return writing;
    }
    mem_free(writing);
    return NULL;
}

/* The value as bytes in wiping memory; NULL: the refusal was sent. */
static uint8_t *read_value(struct request *rq, size_t *ret_len)
{
    const struct json_value *text = json_get(rq->json, "value"), *coded = json_get(rq->json, "value_base64"),
                            *value = text ? text : coded;

    if (!value || (text && coded) || value->type != JSON_STRING)
        return request_refuse(rq, BRIG_E_USAGE, "exactly one of value and value_base64 must be given, as text"), NULL;
    if (value->len > 2 * (size_t)SECRET_VALUE_MAX)
        return request_refuse(rq, BRIG_E_TOO_LARGE, "value: more than %u bytes", SECRET_VALUE_MAX), NULL;
    uint8_t *out = crypto_secret_alloc(value->len);
    int r = out ? 0 : -ENOMEM;
    *ret_len = value->len;
    if (r == 0 && text)
        memcpy(out, value->string, value->len);
    else if (r == 0)
        r = crypto_unbase64(value->string, value->len, out, value->len, ret_len);
    if (r == 0)
        return out;
    crypto_secret_free(out, value->len);
    if (r == -ENOMEM)
        request_refuse(rq, BRIG_E_NOMEM, "out of memory");
    else
        request_refuse(rq, BRIG_E_USAGE, "value_base64: is not base64");
    return NULL;
}

void route_secret_put(struct request *rq)
{
    struct secrets *secrets = rq->api->secrets;
    struct brig_err err = {0};
    size_t len = 0;

    if (!api_only_members(rq, "value value_base64 broker"))
        return;
    const bool is_new = !secrets_find(secrets, rq->caller.org_id, rq->arg[0]);
    struct writing *writing = begin(rq, "secret.set", is_new ? 201 : 200);
    if (!writing)
        return;
    uint8_t *value = read_value(rq, &len);
    if (!value) {
        mem_free(writing);
        return;
    }
    const struct json_value *text = json_get(rq->json, "value"),
                            *sent = text ? text : json_get(rq->json, "value_base64");
    const size_t room = sent->len;
    int r = secrets_put(secrets, rq->caller.org_id, writing->name, value, len, json_get(rq->json, "broker"), on_written,
                        writing, &err);
    crypto_secret_free(value, room);
    request_wipe_body(rq); /* not needed while the store writes */
    if (r < 0) {
        mem_free(writing);
        request_fail(rq, &err);
    }
}

void route_secret_delete(struct request *rq)
{
    struct writing *writing = begin(rq, "secret.delete", 204);
    struct brig_err err = {0};

    if (writing && objects_delete(secrets_objects(rq->api->secrets), rq->caller.org_id, writing->name, on_written,
                                  writing, &err) < 0) {
        mem_free(writing);
        request_fail(rq, &err);
    }
}
