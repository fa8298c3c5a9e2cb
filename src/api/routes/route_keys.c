/* SPDX-License-Identifier: Apache-2.0 */
/* route_keys.c: keys: made, listed and revoked by administrators. */

#include "api/api.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "crypto/crypto.h"

/* The object stays open. */
static void key_json(const struct object *object, struct json *json)
{
    const struct key *key = key_of(object);

    json_object(json);
    json_key_string(json, "id", object->id);
    json_key_string(json, "org", object->org_id);
    json_key_string(json, "name", key->name);
    json_key_string(json, "role", store_role_names[key->role]);
    json_key_string(json, "hint", key->hint);
    api_put_time(json, "created_at", object->created_at_ns);
    api_put_time(json, "expires_at", key->expires_at_ns);
    api_put_time(json, "revoked_at", key->revoked_at_ns);
}

/* A new key on its way to the store: the only place that has its text. */
struct new_key {
    struct request *rq;
    char text[KEY_TEXT + 1];
};

static void new_key_end(struct new_key *made)
{
    crypto_wipe(made, sizeof *made);
    mem_free(made);
}

static void on_key_stored(void *ctx, const struct object *object, const struct brig_err *failed)
{
    struct new_key *made = ctx;
    struct request *rq = made->rq;
    AUTO_BUF struct buf out = BUF_INIT(8192);
    struct json json = JSON_INIT(&out);

    if (failed) {
        request_fail(rq, failed);
    } else {
        request_audit_sync(rq, "key.create", object->org_id, object->id, "ok", store_role_names[key_of(object)->role]);
        key_json(object, &json);
        json_key_string(&json, "key", made->text);
        json_end(&json);
        request_json(rq, 201, &json);
    }
    new_key_end(made);
}

static bool read_key_role(struct request *rq, struct key *key)
{
    const struct json_value *role = json_get(rq->json, "role");

    key->role = STORE_ROLE_USER;
    for (int i = 0; role && role->type == JSON_STRING && i < STORE_ROLE_MAX; i++)
        if (str_eq(role->string, store_role_names[i])) {
            key->role = (enum store_role)i;
            return true;
        }
    if (role)
        request_refuse(rq, BRIG_E_USAGE, "role: must be admin, user or read-only");
    return !role;
}

/* Whose the key will be; NULL: the refusal was sent. */
static const char *read_key_org(struct request *rq)
{
    const struct json_value *org = json_get(rq->json, "org");
    const char *id = org && org->type == JSON_STRING ? org->string : rq->caller.org_id;
    bool other = !rq->caller.socket && !str_eq(id, rq->caller.org_id);

    if (!org || (org->type == JSON_STRING && org_find(rq->api->accounts, id) && !other))
        return id;
    if (org->type == JSON_STRING && org_find(rq->api->accounts, id))
        /* As if it were not there: whether it is, is nobody else's business. */
        api_denied_others(rq->api, &rq->caller, id, "key for another organisation");
    return request_refuse(rq, BRIG_E_NOT_FOUND, "org: there is no such organisation"), NULL;
}

static bool read_key_expiry(struct request *rq, struct key *key)
{
    const struct json_value *expires = json_get(rq->json, "expires");
    uint64_t ms = 0;

    if (!expires || expires->type == JSON_NULL)
        return true;
    if (api_duration(expires, &ms) < 0 || ms < 1000 || ms > UINT64_C(100) * 365 * 86400 * 1000) {
        request_refuse(rq, BRIG_E_USAGE, "expires: must be a duration of at least 1 s, such as \"30d\" or 3600");
        return false;
    }
    key->expires_at_ns = clock_real_ns() + (int64_t)(ms * NS_PER_MS);
    return true;
}

/*
 * What only the administrator on the socket can give, since it reaches beyond the key's organisation: user_ids (the
 * header user_id chooses the organisation) and metrics (the numbers of the whole service).
 */
static const char *const host_rights[] = {"user_ids", "metrics"};

static bool read_key_rights(struct request *rq, struct buf *doc)
{
    struct json json = JSON_INIT(doc);

    json_object(&json);
    for (size_t i = 0; i < ARRAY_SIZE(host_rights); i++) {
        bool right = false;
        if (!api_bool(rq, host_rights[i], &right))
            return false;
        if (!right)
            continue;
        if (!rq->caller.socket) {
            request_refuse(rq, BRIG_E_FORBIDDEN, "%s: only the administrator on the unix socket may do this",
                           host_rights[i]);
            return false;
        }
        json_key_bool(&json, host_rights[i], true);
    }
    json_end(&json);
    if (json_finish(&json) == 0)
        return true;
    return request_refuse(rq, BRIG_E_NOMEM, "out of memory"), false;
}

void route_key_create(struct request *rq)
{
    const struct json_value *name = json_get(rq->json, "name");
    struct brig_err err = {0};
    struct key key = {0};
    AUTO_BUF struct buf doc = BUF_INIT(256);

    if (!api_only_members(rq, "name role org expires user_ids metrics") ||
        (name && !api_name(rq, name, key.name, sizeof key.name)) || !read_key_role(rq, &key))
        return;
    const char *org = read_key_org(rq);
    if (!org || !read_key_expiry(rq, &key) || !read_key_rights(rq, &doc))
        return;
    struct new_key *made = request_alloc(rq, sizeof *made);
    if (!made)
        return;
    made->rq = rq;
    if (key_create(rq->api->accounts, org, &key, doc.data, config_get(rq->api->config)->org_max_keys, made->text,
                   on_key_stored, made, &err) < 0) {
        new_key_end(made);
        request_fail(rq, &err);
    }
}

/* The socket's administrator sees the keys of all organisations. */
void route_key_list(struct request *rq)
{
    const struct accounts *accounts = rq->api->accounts;
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    request_list_begin(&json, "keys");
    for (const struct object *org = org_first(accounts); org; org = org->next)
        if (api_visible(rq, org->id))
            for (const struct object *key = key_first(accounts, org->id); key; key = key->next)
                key_json(key, &json), json_end(&json);
    request_list_end(rq, &json);
}

const struct object *request_key(struct request *rq)
{
    const struct object *key = key_find(rq->api->accounts, rq->arg[0]);

    if (key && api_visible(rq, key->org_id))
        return key;
    if (key)
        api_denied_others(rq->api, &rq->caller, key->id, "another organisation's key");
    return request_refuse(rq, BRIG_E_NOT_FOUND, "key %.64s not found", rq->arg[0]), NULL;
}

static void on_revoked(void *ctx, const struct object *key UNUSED, const struct brig_err *err)
{
    request_done(ctx, err);
}

void route_key_revoke(struct request *rq)
{
    const struct object *key = request_key(rq);
    struct brig_err err;

    if (!key)
        return;
    int r = key_revoke(rq->api->accounts, key, on_revoked, rq, &err);
    request_audit_sync(rq, "key.revoke", key->org_id, key->id, "ok", "");
    server_cut(rq->api->server, key->id, rq->x);
    if (r < 0)
        request_fail(rq, &err);
}
