/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_approvals.c: runs that wait for a yes. Who says it is an administrator or a user of the same organisation, and
 * not the one who asked by the same key unless it is an administrator's: an agent that could approve its own calls
 * would need no approval.
 */
#include <string.h>

#include "api/api.h"
#include "base/str.h"
#include "run/execute.h"

static bool put_one(void *ctx, const struct approval *approval)
{
    struct json *json = ctx;

    json_object(json);
    json_key_string(json, "run_id", approval->run_id);
    json_key_string(json, "organization_id", approval->org_id);
    json_key_string(json, "tool", approval->tool);
    json_key_text(json, "agent_id", approval->agent_id);
    json_key_string(json, "asked_by", approval->actor);
    json_key_string(json, "arguments", approval->arguments);
    api_put_time(json, "asked_at", approval->asked_at_ns);
    api_put_time(json, "expires_at", approval->expires_at_ns);
    json_end(json);
    return true;
}

void route_approval_list(struct request *rq)
{
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    request_list_begin(&json, "approvals");
    approvals_each(rq->api->approvals, request_scope(rq), put_one, &json);
    request_list_end(rq, &json);
}

struct asked {
    const char *run_id, *actor;
    bool same;
};

static bool find_actor(void *ctx, const struct approval *approval)
{
    struct asked *asked = ctx;

    if (!str_eq(approval->run_id, asked->run_id))
        return true;
    asked->same = str_eq(approval->actor, asked->actor);
    return false;
}

static void decide(struct request *rq, bool yes)
{
    const struct json_value *reason = json_get(rq->json, "reason");
    struct asked asked = {.run_id = rq->arg[0], .actor = rq->caller.actor};
    struct brig_err err = {0};

    if (!api_only_members(rq, "reason"))
        return;
    if (reason && (reason->type != JSON_STRING || reason->len > 1000 || memchr(reason->string, '\0', reason->len)))
        return request_refuse(rq, BRIG_E_USAGE, "reason: must be text of at most 1000 bytes");
    approvals_each(rq->api->approvals, request_scope(rq), find_actor, &asked);
    if (yes && asked.same && rq->caller.role != STORE_ROLE_ADMIN)
        return request_refuse(rq, BRIG_E_FORBIDDEN, "the key that asked cannot approve its own run");
    if (approvals_decide(rq->api->approvals, request_scope(rq), rq->arg[0], yes, rq->caller.actor,
                         reason ? reason->string : "", &err) < 0)
        return request_fail(rq, &err);
    request_audit_sync(rq, yes ? "run.approve" : "run.deny", NULL, rq->arg[0], "ok", reason ? reason->string : "");
    request_status(rq, 204);
}

void route_approval_approve(struct request *rq)
{
    decide(rq, true);
}

void route_approval_deny(struct request *rq)
{
    decide(rq, false);
}
