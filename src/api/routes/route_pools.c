/* SPDX-License-Identifier: Apache-2.0 */
/* route_pools.c: what is kept warm, who runs tools, and secrets under a new key: for the one who looks after the
 * service. */

#include "api/api.h"
#include "base/err.h"
#include "base/mem.h"
#include "records/images/registries.h"
#include "run/execute.h"
#include "sandbox/parked/parked.h"

#define PREWARM_MAX 1000

void route_pool_list(struct request *rq)
{
    const char *org = rq->caller.socket ? NULL : rq->caller.org_id;
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    json_object(&json);
    json_key_array(&json, "pools");
    pool_json(rq->api->pool, org, &json);
    manager_parked_json(rq->api->manager, org, &json);
    json_end(&json);
    json_key(&json, "sets"), sets_json(rq->api->sets, rq->caller.org_id, &json);
    json_end(&json);
    request_json(rq, 200, &json);
}

void route_pool_prewarm(struct request *rq)
{
    const struct json_value *language = json_get(rq->json, "language"), *count = json_get(rq->json, "count"),
                            *template = json_get(rq->json, "template"), *provider = json_get(rq->json, "provider");
    struct provider *place = NULL;
    struct pool_want want = {.org_id = rq->caller.org_id,
                             .language = TOOL_PYTHON,
                             .template_name = template && template->type == JSON_STRING ? template->string : NULL};
    struct brig_err err = {0};

    if (!api_only_members(rq, "language count template strict network provider") ||
        !api_bool(rq, "strict", &want.strict) || !api_bool(rq, "network", &want.network))
        return;
    if (language && (language->type != JSON_STRING || tool_language_parse(language->string, &want.language) < 0))
        return request_refuse(rq, BRIG_E_USAGE, "language: must be python, javascript, typescript or bash");
    if (template && template->type != JSON_STRING)
        return request_refuse(rq, BRIG_E_USAGE, "template: must be a string");
    if (template &&
        sbox_template_check(template->string, config_get(rq->api->config), rq->api->templates, &rq->caller, &err) < 0)
        return request_fail(rq, &err);
    if (provider && provider->type != JSON_STRING)
        return request_refuse(rq, BRIG_E_USAGE, "provider: must be a string");
    if (provider && providers_find(rq->api->providers, provider->string, &place, &err) < 0)
        return request_fail(rq, &err);
    if (place && place->ops->run)
        return request_refuse(rq, BRIG_E_UNSUPPORTED, "provider %s: it keeps nothing ready", place->ops->name);
    want.provider = place ? place->ops->name : NULL;
    if (!count || !count->integer || count->i64 < 0 || count->i64 > PREWARM_MAX)
        return request_refuse(rq, BRIG_E_USAGE, "count: must be a number from 0 to %d", PREWARM_MAX);
    if (pool_prewarm(rq->api->pool, &want, (unsigned)count->i64, &err) < 0)
        return request_fail(rq, &err);
    request_audit(rq, "pool.prewarm", want.org_id, "ok", tool_language_name(want.language));
    route_pool_list(rq);
}

void route_provider_list(struct request *rq)
{
    AUTO_BUF struct buf out = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&out);

    json_object(&json);
    json_key(&json, "providers"), providers_json(rq->api->providers, &json);
    json_end(&json);
    request_json(rq, 200, &json);
}

/* ---- one real attempt at a provider ---------------------------------------------------------------------- */

static void on_checked(void *ctx, const struct provider_check *check)
{
    struct request *rq = ctx;
    const struct provider *provider = rq->state;
    AUTO_BUF struct buf out = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&out);

    request_audit(rq, "provider.check", provider->ops->name, check->usable ? "ok" : "failed", check->missing);
    provider_check_json(provider->ops, check, &json);
    request_json(rq, 200, &json);
}

void route_provider_check(struct request *rq)
{
    struct provider *provider = NULL;
    struct brig_err err = {0};
    int r = providers_find(rq->api->providers, rq->arg[0], &provider, &err);

    if (r == 0 && request_draining(rq))
        return;
    rq->state = provider;
    if (r == 0)
        r = provider->ops->check
                ? provider->ops->check(provider, on_checked, rq, &err)
                : err_set(&err, BRIG_E_UNSUPPORTED, 0, "the provider %s cannot be tried", provider->ops->name);
    if (r < 0)
        request_fail(rq, &err);
}

/* ---- rotation -------------------------------------------------------------------------------------------- */

/* Secrets, variables, agents, logins at registries, one after the other: each goes on in the background of the loop,
 * and the answer comes when all are done. */
struct rotating {
    struct request *rq;
    unsigned step;
    uint64_t resealed[4];
};

static void on_rotated(void *ctx, uint64_t resealed, const struct brig_err *err);

static int rotate_step(struct rotating *rotating, struct brig_err *err)
{
    const struct api *api = rotating->rq->api;

    switch (rotating->step) {
    case 0: return secrets_rotate(api->secrets, on_rotated, rotating, err);
    case 1: return configs_rotate(api->configs, on_rotated, rotating, err);
    case 2: return agents_rotate(api->agents, on_rotated, rotating, err);
    default: return registries_rotate(api->registries, on_rotated, rotating, err);
    }
}

static void rotated(struct rotating *rotating, const struct brig_err *err)
{
    static const char *const names[] = {"secrets", "variables", "agents", "registries"};
    _Static_assert(ARRAY_SIZE(names) == ARRAY_SIZE(rotating->resealed), "one name for each step");
    struct request *rq = rotating->rq;
    AUTO_BUF struct buf out = BUF_INIT(4096);
    struct json json = JSON_INIT(&out);

    request_audit_sync(rq, "secret.rotate", NULL, "", err ? "failed" : "ok", "");
    json_object(&json);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        json_key_u64(&json, names[i], rotating->resealed[i]);
    json_end(&json);
    mem_free(rotating);
    if (err)
        request_fail(rq, err);
    else
        request_json(rq, 200, &json);
}

static void on_rotated(void *ctx, uint64_t resealed, const struct brig_err *failed)
{
    struct rotating *rotating = ctx;
    struct brig_err err = {0};

    rotating->resealed[rotating->step++] = resealed;
    if (failed || rotating->step == ARRAY_SIZE(rotating->resealed))
        rotated(rotating, failed);
    else if (rotate_step(rotating, &err) < 0)
        rotated(rotating, &err);
}

/* This seals for all organisations: the keys are the service's, and the answer counts what all of them have. */
void route_secret_rotate(struct request *rq)
{
    struct rotating *rotating = request_alloc(rq, sizeof *rotating);
    struct brig_err err = {0};

    if (!rotating)
        return;
    rotating->rq = rq;
    if (rotate_step(rotating, &err) < 0) {
        mem_free(rotating);
        request_fail(rq, &err);
    }
}
