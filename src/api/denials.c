/* SPDX-License-Identifier: Apache-2.0 */
/* denials.c: changes and refusals as events of the audit log; many refusals of one actor are an event of their own. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/str.h"

#define OBJECT_MAX 255u /* of a path, in the audit log */

void request_audit_sync(const struct request *rq, const char *action, const char *org, const char *object,
                        const char *outcome, const char *detail)
{
    const struct audit_event event = {.action = action,
                                      .actor = rq->caller.actor,
                                      .org = org ? org : rq->caller.org_id,
                                      .object = object,
                                      .outcome = outcome,
                                      .detail = detail,
                                      .request_id = rq->caller.request_id,
                                      .sync = true};

    audit_add(rq->api->audit, &event, NULL, NULL);
}

void api_audit_system(struct api *api, const char *action, const char *org, const char *object, const char *detail)
{
    const struct audit_event event = {.action = action,
                                      .actor = "system",
                                      .org = org,
                                      .object = object,
                                      .outcome = "ok",
                                      .detail = detail,
                                      .request_id = "",
                                      .sync = true};

    audit_add(api->audit, &event, NULL, NULL);
}

void api_count_denial(struct api *api, const struct caller *caller, const char *org, const char *object)
{
    const struct config *config = config_get(api->config);
    const struct audit_event event = {.action = "suspicious",
                                      .actor = caller->actor,
                                      .org = org,
                                      .object = object,
                                      .outcome = "denied",
                                      .detail = "repeated denials",
                                      .request_id = caller->request_id,
                                      .sync = true,
                                      .any_object = true};

    api->counters.denials++;
    if (suspicion_note(api->suspicion, caller->actor, clock_mono_ns(), (unsigned)config->suspicious_count,
                       (unsigned)config->suspicious_seconds))
        audit_add(api->audit, &event, NULL, NULL);
}

/* kind NULL: the object is not the caller's to choose. */
static void deny(struct api *api, const struct caller *caller, const char *org, const char *kind, const char *object,
                 const char *detail)
{
    const struct audit_event event = {.action = "denied",
                                      .actor = caller->actor,
                                      .org = org,
                                      .object = object,
                                      .outcome = "denied",
                                      .detail = detail,
                                      .request_id = caller->request_id,
                                      .sync = true,
                                      .kind = kind,
                                      .any_object = kind != NULL};

    audit_add(api->audit, &event, NULL, NULL);
    api_count_denial(api, caller, org, object);
}

void api_denied(struct api *api, const struct caller *caller, const char *object, const char *detail)
{
    deny(api, caller, caller->org_id, NULL, object, detail);
}

void api_denied_others(struct api *api, const struct caller *caller, const char *object, const char *detail)
{
    deny(api, caller, "", NULL, object, detail);
}

/* What refused, as the first word of the message has it: of a fixed number, whatever names follow. */
static const char *rule_of(const char *message)
{
    static const char *const words[] = {"binds:",          "limits.connections", "network:", "only", "sandbox",
                                        "secrets.expose:", "template",           "this",     "tool", "Tool"};
    size_t len = strcspn(message, " ");

    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (strlen(words[i]) == len && memcmp(words[i], message, len) == 0)
            return words[i];
    return "other";
}

/* The object is the path without its query, which may carry a token: it has the name that the pattern has not. */
void request_denied(struct request *rq, const char *message)
{
    char kind[128], object[OBJECT_MAX + 1] = "";
    const char *target = exchange_head(rq->x)->target;

    if (rq->route) {
        snprintf(kind, sizeof kind, "%s %s, %s", rq->route->method, rq->route->pattern, rule_of(message));
        snprintf(object, sizeof object, "%.*s", (int)strcspn(target, "?"), target);
    } else {
        str_cut(kind, sizeof kind, rule_of(message));
    }
    deny(rq->api, &rq->caller, rq->caller.org_id, kind, object, message);
}
