/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth.c: who is calling. Keys and organisations live in the store and, all of them, in memory: a request costs one hash
 * and one lookup. A key is `e2b_` and 40 hexadecimal digits (160 bits), shown once; only its SHA-256 is kept, so the
 * lookup by hash leaks nothing about other keys, and the compare that decides is in constant time.
 *
 * A change is in force here only after the store has committed it; a revocation is in force at once as well, and
 * stays so whatever the store says.
 */
#include <stdio.h>
#include <string.h>

#include "api/auth.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"

#define KEY_PREFIX "e2b_"
#define KEY_RANDOM 20u
#define KEY_TEXT (sizeof KEY_PREFIX - 1 + 2 * KEY_RANDOM)
#define KEYS_MAX 100000u

#define EXPIRY_LOOK_NS (60 * NS_PER_SEC) /* at least so often: the wall clock may have been set */

static const char *const role_names[STORE_ROLE_MAX] = {"admin", "user", "read-only"};

/* ---- the tables ------------------------------------------------------------------------------------------ */

int auth_grow(void **list, size_t n, size_t *cap, size_t size, size_t max, struct brig_err *err)
{
    if (n < *cap)
        return 0;
    if (n >= max)
        return err_set(err, BRIG_E_LIMIT, 0, "there are %zu already, and no more than that are kept", max);
    size_t want = *cap ? *cap * 2 : 16;
    void *more = mem_realloc_array(*list, want, size);
    if (!more)
        return err_nomem(err);
    *list = more;
    *cap = want;
    return 0;
}

struct store_key *auth_find_key(struct auth *auth, const char *id)
{
    for (size_t i = 0; i < auth->n_keys; i++)
        if (str_eq(auth->keys[i].id, id))
            return &auth->keys[i];
    return NULL;
}

struct store_org *auth_find_org(struct auth *auth, const char *id)
{
    for (size_t i = 0; i < auth->n_orgs; i++)
        if (str_eq(auth->orgs[i].id, id))
            return &auth->orgs[i];
    return NULL;
}

/* ---- expiry ---------------------------------------------------------------------------------------------- */

/* The timer rings when the next key expires. */
static void arm_expiry(struct auth *auth)
{
    int64_t now = clock_real_ns(), next = INT64_MAX;

    for (size_t i = 0; i < auth->n_keys; i++) {
        const struct store_key *key = &auth->keys[i];
        if (key->expires_at_ns > auth->expired_until_ns && !key->revoked_at_ns && key->expires_at_ns < next)
            next = key->expires_at_ns;
    }
    if (next == INT64_MAX)
        return;
    uint64_t delay = next > now ? (uint64_t)(next - now) : 0;
    (void)!loop_timer_set(auth->api->loop, &auth->on_expiry, loop_now_ns() + (delay < EXPIRY_LOOK_NS ? delay : EXPIRY_LOOK_NS), NULL);
}

/* A key that has expired takes its streams with it, as one that is revoked. */
static void on_expiry(struct loop_timer *timer)
{
    struct auth *auth = timer->ctx;
    int64_t now = clock_real_ns();

    for (size_t i = 0; i < auth->n_keys; i++)
        if (auth->keys[i].expires_at_ns > auth->expired_until_ns && auth->keys[i].expires_at_ns <= now)
            server_cut(auth->api->server, auth->keys[i].id, NULL);
    auth->expired_until_ns = now;
    arm_expiry(auth);
}

int auth_set_doc(const char **doc, const char *text, struct brig_err *err)
{
    char *copy = mem_strdup(text ? text : "{}");

    if (!copy)
        return err_nomem(err);
    mem_free((char *)(uintptr_t)*doc);
    *doc = copy;
    return 0;
}

static int add_key(struct auth *auth, const struct store_key *key, struct brig_err *err)
{
    int r = auth_grow((void **)&auth->keys, auth->n_keys, &auth->cap_keys, sizeof *auth->keys, KEYS_MAX, err);

    if (r == 0) {
        struct store_key *row = &auth->keys[auth->n_keys];
        *row = *key;
        row->doc = NULL;
        r = auth_set_doc(&row->doc, key->doc, err);
    }
    if (r == 0) {
        auth->n_keys++;
        if (key->expires_at_ns)
            arm_expiry(auth);
    }
    return r;
}

static int each_key(void *ctx, const struct store_key *key)
{
    return add_key(ctx, key, NULL);
}

static int each_org(void *ctx, const struct store_org *org)
{
    return auth_add_org(ctx, org, NULL);
}

int auth_create(struct api *api, struct auth **ret, struct brig_err *err)
{
    struct auth *auth = mem_zalloc(sizeof *auth);
    int r = 0;

    if (!auth)
        return err_nomem(err);
    auth->api = api;
    auth->on_expiry = (struct loop_timer){.fn = on_expiry, .ctx = auth};
    auth->expired_until_ns = clock_real_ns(); /* what expired before we were here has no streams */
    r = store_each_org(api->store, each_org, auth, err);
    if (r == 0)
        r = store_each_key(api->store, each_key, auth, err);
    if (r == 0 && !auth_find_org(auth, API_DEFAULT_ORG)) {
        struct store_org org = {.id = API_DEFAULT_ORG, .name = "default", .created_at_ns = clock_real_ns(), .doc = "{}"};
        r = auth_add_org(auth, &org, err);
        if (r == 0)
            r = store_put_org(api->store, &org, NULL, NULL, err);
    }
    if (r < 0)
        auth_destroy(auth);
    else
        *ret = auth;
    return r;
}

void auth_destroy(struct auth *auth)
{
    if (!auth)
        return;
    loop_timer_clear(auth->api->loop, &auth->on_expiry);
    for (size_t i = 0; i < auth->n_keys; i++)
        mem_free((char *)(uintptr_t)auth->keys[i].doc);
    for (size_t i = 0; i < auth->n_orgs; i++)
        mem_free((char *)(uintptr_t)auth->orgs[i].doc);
    mem_free(auth->keys);
    mem_free(auth->orgs);
    mem_free(auth);
}

/* ---- checking -------------------------------------------------------------------------------------------- */

static const struct store_key *look_up(struct auth *auth, const char *text)
{
    uint8_t hash[SHA256_SIZE];
    const struct store_key *found = NULL;

    if (strlen(text) != KEY_TEXT || !str_starts(text, KEY_PREFIX) || crypto_sha256(text, KEY_TEXT, hash) < 0)
        return NULL;
    /* The first bytes of a hash may be compared in any time; whether the whole of it fits is told in constant time. */
    for (size_t i = 0; i < auth->n_keys; i++)
        if (memcmp(auth->keys[i].hash, hash, 4) == 0 && crypto_equal(auth->keys[i].hash, hash, sizeof hash))
            found = &auth->keys[i];
    return found;
}

int auth_check(struct auth *auth, const struct exchange *x, const char *text, struct caller *ret, struct brig_err *err)
{
    int64_t now = clock_real_ns();

    if (!text && exchange_is_unix(x)) {
        snprintf(ret->org_id, sizeof ret->org_id, "%s", API_DEFAULT_ORG);
        snprintf(ret->actor, sizeof ret->actor, "socket:%u", (unsigned)exchange_peer_uid(x));
        ret->role = STORE_ROLE_ADMIN;
        ret->socket = true;
        return 0;
    }
    ret->role = STORE_ROLE_READ_ONLY;
    snprintf(ret->actor, sizeof ret->actor, "anonymous:%s", exchange_peer(x));
    if (!text)
        return err_set(err, BRIG_E_UNAUTHENTICATED, 0, "a key is needed: Authorization: Bearer KEY (brig key create makes one)");
    const struct store_key *key = look_up(auth, text);
    if (!key)
        return err_set(err, BRIG_E_UNAUTHENTICATED, 0, "the key is not known");
    snprintf(ret->actor, sizeof ret->actor, "%s", key->id);
    snprintf(ret->org_id, sizeof ret->org_id, "%s", key->org_id);
    if (key->revoked_at_ns)
        return err_set(err, BRIG_E_UNAUTHENTICATED, 0, "the key was revoked");
    if (key->expires_at_ns && key->expires_at_ns <= now)
        return err_set(err, BRIG_E_UNAUTHENTICATED, 0, "the key has expired");
    snprintf(ret->key_id, sizeof ret->key_id, "%s", key->id);
    ret->role = key->role;
    return 0;
}

/* ---- keys ------------------------------------------------------------------------------------------------ */

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
    } times[] = {{"created_at", key->created_at_ns}, {"expires_at", key->expires_at_ns}, {"revoked_at", key->revoked_at_ns}};
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
    struct request *rq;
    struct store_key key;
    char text[KEY_TEXT + 1];
};

static void on_key_stored(void *ctx, const struct brig_err *failed)
{
    struct new_key *made = ctx;
    struct request *rq = made->rq;
    struct brig_err err;
    AUTO_BUF struct buf out = BUF_INIT(8192);
    struct json json = JSON_INIT(&out);

    if (failed) {
        request_fail(rq, failed);
    } else if (add_key(rq->api->auth, &made->key, &err) < 0) {
        request_fail(rq, &err);
    } else {
        const struct audit_event event = {.action = "key.create", .actor = rq->caller.actor, .org = made->key.org_id, .object = made->key.id,
                                          .outcome = "ok", .detail = role_names[made->key.role], .request_id = rq->caller.request_id, .sync = true};
        audit_add(rq->api->audit, &event, NULL, NULL);
        key_json(&made->key, &json);
        json_key(&json, "key");
        json_string(&json, made->text);
        json_end(&json);
        request_json(rq, 201, &json);
    }
    crypto_wipe(made, sizeof *made);
    mem_free(made);
}

static bool read_key_name(struct request *rq, struct store_key *key)
{
    const struct json_value *name = json_get(rq->json, "name");

    if (!name)
        return true;
    if (name->type != JSON_STRING || name->len == 0 || name->len >= sizeof key->name || memchr(name->string, '\0', name->len)) {
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
        api_denied(rq->api, &rq->caller, id, "key for another organisation");
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

/* Whether the header user_id may choose the organisation: only the administrator can say so, for it is a key to all of them. */
static bool read_key_users(struct request *rq, struct store_key *key)
{
    const struct json_value *users = json_get(rq->json, "user_ids");

    key->doc = "{}";
    if (!users || (users->type == JSON_BOOL && !users->boolean))
        return true;
    if (users->type != JSON_BOOL)
        request_refuse(rq, BRIG_E_USAGE, "user_ids: must be true or false");
    else if (!rq->caller.socket)
        request_refuse(rq, BRIG_E_FORBIDDEN, "user_ids: only the administrator on the unix socket may do this");
    else {
        key->doc = "{\"user_ids\":true}";
        return true;
    }
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
    memcpy(made->text, KEY_PREFIX, sizeof KEY_PREFIX - 1);
    crypto_hex(random, sizeof random, made->text + sizeof KEY_PREFIX - 1);
    crypto_wipe(random, sizeof random);
    snprintf(made->key.id, sizeof made->key.id, "key-%s", uuid + 4);
    snprintf(made->key.hint, sizeof made->key.hint, "%s", made->text + KEY_TEXT - 4);
    made->key.created_at_ns = clock_real_ns();
    return crypto_sha256(made->text, KEY_TEXT, made->key.hash);
}

void route_key_create(struct request *rq)
{
    static const char *const known[] = {"name", "role", "org", "expires", "user_ids", NULL};
    struct brig_err err;

    if (!api_only_members(rq, rq->json, known))
        return;
    struct new_key *made = mem_zalloc(sizeof *made);
    if (!made) {
        request_refuse(rq, BRIG_E_NOMEM, "out of memory");
        return;
    }
    made->rq = rq;
    if (!read_key_name(rq, &made->key) || !read_key_role(rq, &made->key) || !read_key_org(rq, &made->key) || !read_key_expiry(rq, &made->key) ||
        !read_key_users(rq, &made->key)) {
        mem_free(made);
        return;
    }
    int r = make_key(made);
    if (r < 0)
        (void)err_set(&err, BRIG_E_HOST, -r, "make a key");
    else
        r = store_put_key(rq->api->store, &made->key, on_key_stored, made, &err);
    if (r < 0) {
        crypto_wipe(made, sizeof *made);
        mem_free(made);
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

    json_object(&json);
    json_key(&json, "keys");
    json_array(&json);
    for (size_t i = 0; i < auth->n_keys; i++)
        if (auth_visible(rq, auth->keys[i].org_id)) {
            key_json(&auth->keys[i], &json);
            json_end(&json);
        }
    json_end(&json);
    json_end(&json);
    request_json(rq, 200, &json);
}

void route_key_revoke(struct request *rq)
{
    struct store_key *key = auth_find_key(rq->api->auth, rq->arg[0]);
    struct brig_err err;

    if (!key || !auth_visible(rq, key->org_id)) {
        if (key)
            api_denied(rq->api, &rq->caller, key->id, "another organisation's key");
        request_refuse(rq, BRIG_E_NOT_FOUND, "key %.64s not found", rq->arg[0]);
        return;
    }
    if (!key->revoked_at_ns)
        key->revoked_at_ns = clock_real_ns();
    const struct audit_event event = {.action = "key.revoke", .actor = rq->caller.actor, .org = key->org_id, .object = key->id, .outcome = "ok",
                                      .detail = "", .request_id = rq->caller.request_id, .sync = true};
    audit_add(rq->api->audit, &event, NULL, NULL);
    server_cut(rq->api->server, key->id, rq->x);
    if (store_put_key(rq->api->store, key, request_done, rq, &err) < 0)
        request_fail(rq, &err);
}
