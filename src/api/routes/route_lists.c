/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_lists.c: which tools an organisation and a key may run: the member `tools` of their documents, read and written
 * by administrators. What a list means: records/rules.h.
 */
#include "api/api.h"

/* The one that the path names; NULL: the refusal was sent. Another organisation's is not there. */
static const struct object *request_org(struct request *rq)
{
    const struct object *org = org_find(rq->api->accounts, rq->arg[0]);

    if (org && api_visible(rq, org->id))
        return org;
    if (org)
        api_denied_others(rq->api, &rq->caller, org->id, "another organisation's lists");
    return request_refuse(rq, BRIG_E_NOT_FOUND, "organisation %.64s not found", rq->arg[0]), NULL;
}

static void answer_list(struct request *rq, const struct object *account)
{
    const struct json_value *tools = account ? json_get(account->json, "tools") : NULL;
    AUTO_BUF struct buf out = BUF_INIT(2u << 20);
    struct json json = JSON_INIT(&out);

    if (!account)
        return;
    if (tools) {
        json_raw(&json, tools->raw, tools->raw_len);
    } else {
        json_object(&json);
        json_end(&json);
    }
    request_json(rq, 200, &json);
}

void route_org_tools_get(struct request *rq)
{
    answer_list(rq, request_org(rq));
}

void route_key_tools_get(struct request *rq)
{
    answer_list(rq, request_key(rq));
}

static void on_stored(void *ctx, const struct object *account, const struct brig_err *err)
{
    struct request *rq = ctx;

    if (err) {
        request_fail(rq, err);
    } else if (!account) {
        request_refuse(rq, BRIG_E_NOT_FOUND, "it was removed meanwhile");
    } else {
        request_audit_sync(rq, "tools.lists", account->org_id[0] ? account->org_id : account->id, account->id, "ok",
                           "");
        if (rq->x)
            answer_list(rq, account);
        else
            request_free(rq);
    }
}

static void put_list(struct request *rq, const char *org, const char *key)
{
    struct brig_err err;

    if (api_only_members(rq, "allow deny default") &&
        (lists_check(rq->json, &err) < 0 || lists_put(rq->api->accounts, org, key, rq->json, on_stored, rq, &err) < 0))
        request_fail(rq, &err);
}

void route_org_tools_put(struct request *rq)
{
    const struct object *org = request_org(rq);

    if (org)
        put_list(rq, org->id, NULL);
}

void route_key_tools_put(struct request *rq)
{
    const struct object *key = request_key(rq);

    if (key)
        put_list(rq, key->org_id, key->id);
}
