/* SPDX-License-Identifier: Apache-2.0 */
/* auth_keys.c: keys: made, listed and revoked by administrators. The tables, and who is calling: auth.c. */
#include <stdio.h>
#include <string.h>

#include "api/auth.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"

#define KEY_RANDOM 20u
_Static_assert(AUTH_KEY_TEXT == sizeof AUTH_KEY_PREFIX - 1 + 2 * KEY_RANDOM,
               "the text of a key is its prefix and its digits");

static const char *const role_names[STORE_ROLE_MAX] = {"admin", "user", "read-only"};

static void key_json(const struct store_key *key, struct json *json)
{
    char time[48];

    json_object(json);
    json_key(json, "id");
    json_string(json, key->id);
    json_key(json, "org");
    json_string(json, key->org_id);
    json_key(json, "name");
    json_string(json, key->name);
    json_key(json, "role");
    json_string(json, role_names[key->role]);
    json_key(json, "hint");
    json_string(json, key->hint);
    const struct {
        const char *name;
        int64_t at;
    } times[] = {
        {"created_at", key->created_at_ns}, {"expires_at", key->expires_at_ns}, {"revoked_at", key->revoked_at_ns}};
    for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
        json_key(json, times[i].name);
        if (times[i].at && api_time(times[i].at, time, sizeof time) == 0)
            json_string(json, time);
        else
            json_null(json);
    }
}

/* A new key on its way to the store: the only place that has its text. */
struct new_key {
    struct auth *auth;
    struct new_key *next; /* the next one that is under way */
    struct request *rq;
    struct store_key key;
    char text[AUTH_KEY_TEXT + 1];
};

/* Wiped, and no longer under way. */
static void new_key_end(struct new_key *made)
{
    struct new_key **at = &made->auth->making;

    while (*at && *at != made)
        at = &(*at)->next;
    if (*at)
        *at = made->next;
    mem_free((char *)(uintptr_t)made->key.doc);
    crypto_wipe(made, sizeof *made);
    mem_free(made);
}

static void on_key_stored(void *ctx, const struct brig_err *failed)
{
    struct new_key *made = ctx;
    struct request *rq = made->rq;
    AUTO_BUF struct buf out = BUF_INIT(8192);
    struct json json = JSON_INIT(&out);

    if (failed) {
        request_fail(rq, failed);
    } else {
        const struct audit_event event = {.action = "key.create",
                                          .actor = rq->caller.actor,
                                          .org = made->key.org_id,
                                          .object = made->key.id,
                                          .outcome = "ok",
                                          .detail = role_names[made->key.role],
                                          .request_id = rq->caller.request_id,
                                          .sync = true};
        auth_add_key(rq->api->auth, &made->key); /* there is room: see check_room() */
        audit_add(rq->api->audit, &event, NULL, NULL);
        key_json(&made->key, &json);
        made->key.doc = NULL;
        json_key(&json, "key");
        json_string(&json, made->text);
        json_end(&json);
        request_json(rq, 201, &json);
    }
    new_key_end(made);
}

static bool read_key_name(struct request *rq, struct store_key *key)
{
    const struct json_value *name = json_get(rq->json, "name");

    if (!name)
        return true;
    if (name->type != JSON_STRING || name->len == 0 || name->len >= sizeof key->name ||
        memchr(name->string, '\0', name->len)) {
        request_refuse(rq, BRIG_E_USAGE, "name: must be text of 1 to %zu bytes", sizeof key->name - 1);
        return false;
    }
    memcpy(key->name, name->string, name->len);
    return true;
}

static bool read_key_role(struct request *rq, struct store_key *key)
{
    const struct json_value *role = json_get(rq->json, "role");

    key->role = STORE_ROLE_USER;
    for (int i = 0; role && role->type == JSON_STRING && i < STORE_ROLE_MAX; i++)
        if (str_eq(role->string, role_names[i])) {
            key->role = (enum store_role)i;
            return true;
        }
    if (role)
        request_refuse(rq, BRIG_E_USAGE, "role: must be admin, user or read-only");
    return !role;
}

static bool read_key_org(struct request *rq, struct store_key *key)
{
    const struct json_value *org = json_get(rq->json, "org");
    const char *id = org && org->type == JSON_STRING ? org->string : rq->caller.org_id;

    if (org && (org->type != JSON_STRING || !auth_find_org(rq->api->auth, id))) {
        request_refuse(rq, BRIG_E_NOT_FOUND, "org: there is no such organisation");
        return false;
    }
    if (!rq->caller.socket && !str_eq(id, rq->caller.org_id)) {
        /* As if it were not there: whether it is, is nobody else's business. */
        api_denied_others(rq->api, &rq->caller, id, "key for another organisation");
        request_refuse(rq, BRIG_E_NOT_FOUND, "org: there is no such organisation");
        return false;
    }
    snprintf(key->org_id, sizeof key->org_id, "%s", id);
    return true;
}

static bool read_key_expiry(struct request *rq, struct store_key *key)
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
        const struct json_value *right = json_get(rq->json, host_rights[i]);
        if (right && right->type != JSON_BOOL) {
            request_refuse(rq, BRIG_E_USAGE, "%s: must be true or false", host_rights[i]);
            return false;
        }
        if (!right || !right->boolean)
            continue;
        if (!rq->caller.socket) {
            request_refuse(rq, BRIG_E_FORBIDDEN, "%s: only the administrator on the unix socket may do this",
                           host_rights[i]);
            return false;
        }
        json_key(&json, host_rights[i]), json_bool(&json, true);
    }
    json_end(&json);
    if (json_finish(&json) == 0)
        return true;
    request_refuse(rq, BRIG_E_NOMEM, "out of memory");
    return false;
}

static int make_key(struct new_key *made)
{
    uint8_t random[KEY_RANDOM];
    char uuid[ID_RUN_SIZE];
    int r = crypto_random(random, sizeof random);

    if (r == 0)
        r = id_run(uuid);
    if (r < 0)
        return r;
    memcpy(made->text, AUTH_KEY_PREFIX, sizeof AUTH_KEY_PREFIX - 1);
    crypto_hex(random, sizeof random, made->text + sizeof AUTH_KEY_PREFIX - 1);
    crypto_wipe(random, sizeof random);
    snprintf(made->key.id, sizeof made->key.id, "key-%s", uuid + 4);
    snprintf(made->key.hint, sizeof made->key.hint, "%s", made->text + AUTH_KEY_TEXT - 4);
    made->key.created_at_ns = clock_real_ns();
    return crypto_sha256(made->text, AUTH_KEY_TEXT, made->key.hash);
}

static size_t count_org(const struct auth *auth, const char *org)
{
    size_t n = 0;

    for (size_t i = 0; i < auth->n_keys; i++)
        n += str_eq(auth->keys[i].org_id, org);
    for (const struct new_key *made = auth->making; made; made = made->next)
        n += str_eq(made->key.org_id, org);
    return n;
}

/*
 * Before the write: nothing is stored that is refused. An organisation that is full first loses its keys that are over.
 */
static int check_room(struct auth *auth, const char *org, struct brig_err *err)
{
    const uint64_t max = config_get(auth->api->config)->org_max_keys;
    size_t coming = 0;
    int r = 0;

    if (count_org(auth, org) >= max)
        r = auth_forget_keys(auth, org, clock_real_ns(), err);
    if (r == 0 && count_org(auth, org) >= max)
        return err_set(err, BRIG_E_LIMIT, 0,
                       "an organisation has at most %llu keys ([manager] org_max_keys); revoke some",
                       (unsigned long long)max);
    for (const struct new_key *made = auth->making; made; made = made->next)
        coming++;
    return r < 0 ? r : auth_key_room(auth, coming, err);
}

static int submit(struct request *rq, struct new_key *made, const char *doc, struct brig_err *err)
{
    struct auth *auth = rq->api->auth;
    int r = check_room(auth, made->key.org_id, err);

    if (r == 0)
        r = auth_set_doc(&made->key.doc, doc, err);
    if (r == 0 && (r = make_key(made)) < 0)
        r = err_set(err, BRIG_E_HOST, -r, "make a key");
    if (r == 0)
        r = store_put_key(rq->api->store, &made->key, on_key_stored, made, err);
    if (r == 0) {
        made->next = auth->making;
        auth->making = made;
    }
    return r;
}

void route_key_create(struct request *rq)
{
    static const char *const known[] = {"name", "role", "org", "expires", "user_ids", "metrics", NULL};
    struct brig_err err = {0};
    AUTO_BUF struct buf doc = BUF_INIT(256);

    if (!api_only_members(rq, rq->json, known))
        return;
    struct new_key *made = mem_zalloc(sizeof *made);
    if (!made) {
        request_refuse(rq, BRIG_E_NOMEM, "out of memory");
        return;
    }
    made->auth = rq->api->auth;
    made->rq = rq;
    if (!read_key_name(rq, &made->key) || !read_key_role(rq, &made->key) || !read_key_org(rq, &made->key) ||
        !read_key_expiry(rq, &made->key) || !read_key_rights(rq, &doc)) {
        mem_free(made);
        return;
    }
    if (submit(rq, made, doc.data, &err) < 0) {
        new_key_end(made);
        request_fail(rq, &err);
    }
}

bool auth_visible(const struct request *rq, const char *org_id)
{
    return rq->caller.socket || str_eq(rq->caller.org_id, org_id);
}

void route_key_list(struct request *rq)
{
    const struct auth *auth = rq->api->auth;
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    request_list_begin(&json, "keys");
    for (size_t i = 0; i < auth->n_keys; i++)
        if (auth_visible(rq, auth->keys[i].org_id)) {
            key_json(&auth->keys[i], &json);
            json_end(&json);
        }
    request_list_end(rq, &json);
}

void route_key_revoke(struct request *rq)
{
    struct store_key *key = auth_find_key(rq->api->auth, rq->arg[0]);
    struct brig_err err;

    if (!key || !auth_visible(rq, key->org_id)) {
        if (key)
            api_denied_others(rq->api, &rq->caller, key->id, "another organisation's key");
        request_refuse(rq, BRIG_E_NOT_FOUND, "key %.64s not found", rq->arg[0]);
        return;
    }
    if (!key->revoked_at_ns)
        key->revoked_at_ns = clock_real_ns();
    const struct audit_event event = {.action = "key.revoke",
                                      .actor = rq->caller.actor,
                                      .org = key->org_id,
                                      .object = key->id,
                                      .outcome = "ok",
                                      .detail = "",
                                      .request_id = rq->caller.request_id,
                                      .sync = true};
    audit_add(rq->api->audit, &event, NULL, NULL);
    server_cut(rq->api->server, key->id, rq->x);
    if (store_put_key(rq->api->store, key, request_done, rq, &err) < 0)
        request_fail(rq, &err);
}
