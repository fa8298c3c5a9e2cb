/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth.c: who is calling. Keys and organisations live in the store and, all of them, in memory: a request costs one
 * hash and one lookup. A key is `e2b_` and 40 hexadecimal digits (160 bits), shown once; only its SHA-256 is kept, so
 * the lookup by hash leaks nothing about other keys, and the compare that decides is in constant time.
 *
 * A change is in force here only after the store has committed it; a revocation is in force at once as well, and
 * stays so whatever the store says. Room is made before the write, so that nothing is stored that is refused. A start
 * takes what fits and logs the rest: no organisation can fill a table so that the service does not start.
 */
#include <stdio.h>
#include <string.h>

#include "api/auth.h"
#include "api/log.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

#define KEYS_MAX 100000u   /* all organisations together have no more */
#define KEYS_LOADED 10000u /* a start takes so many for one organisation: the largest [manager] org_max_keys */
/* A key that is revoked or has expired is shown so long */
#define KEY_KEEP_NS (INT64_C(7) * 86400 * (int64_t)NS_PER_SEC)

#define EXPIRY_LOOK_NS (60 * NS_PER_SEC) /* at least so often: the wall clock may have been set */

/* ---- the tables ------------------------------------------------------------------------------------------ */

int auth_grow(void **list, size_t n, size_t *cap, size_t size, struct brig_err *err)
{
    if (n < *cap)
        return 0;
    size_t want = n * 2 > 16 ? n * 2 : 16;
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
    (void)!loop_timer_set(auth->api->loop, &auth->on_expiry,
                          loop_now_ns() + (delay < EXPIRY_LOOK_NS ? delay : EXPIRY_LOOK_NS), NULL);
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

/*
 * Where this hash is (whole), or the free place after those that begin alike. The first bytes of a hash may be compared
 * in any time; whether the whole of it fits is told in constant time.
 */
static uint32_t *place_of(struct auth *auth, const uint8_t hash[SHA256_SIZE], bool whole)
{
    uint32_t at;

    memcpy(&at, hash, sizeof at); /* random: a key is made of random bytes */
    for (;; at++) {
        uint32_t *place = &auth->by_hash[at & (auth->n_by_hash - 1)];
        if (*place == 0 || (whole && crypto_equal(auth->keys[*place - 1].hash, hash, SHA256_SIZE)))
            return place;
    }
}

void auth_index_keys(struct auth *auth)
{
    memset(auth->by_hash, 0, auth->n_by_hash * sizeof *auth->by_hash);
    for (size_t i = 0; i < auth->n_keys; i++)
        *place_of(auth, auth->keys[i].hash, false) = (uint32_t)i + 1;
}

static int grow_index(struct auth *auth, struct brig_err *err)
{
    size_t n = auth->n_by_hash ? auth->n_by_hash : 64;

    while (n < 2 * auth->cap_keys)
        n *= 2;
    if (n == auth->n_by_hash)
        return 0;
    uint32_t *more = mem_zalloc(n * sizeof *more);
    if (!more)
        return err_nomem(err);
    mem_free(auth->by_hash);
    auth->by_hash = more;
    auth->n_by_hash = n;
    auth_index_keys(auth);
    return 0;
}

int auth_key_room(struct auth *auth, size_t coming, struct brig_err *err)
{
    if (auth->n_keys + coming >= KEYS_MAX)
        return err_set(err, BRIG_E_LIMIT, 0, "there are %u keys already, and no more than that are kept", KEYS_MAX);
    int r = auth_grow((void **)&auth->keys, auth->n_keys + coming, &auth->cap_keys, sizeof *auth->keys, err);
    return r == 0 ? grow_index(auth, err) : r;
}

void auth_add_key(struct auth *auth, const struct store_key *key)
{
    auth->keys[auth->n_keys++] = *key;
    *place_of(auth, key->hash, false) = (uint32_t)auth->n_keys;
    if (key->expires_at_ns)
        arm_expiry(auth);
}

/* ---- keys that are over ---------------------------------------------------------------------------------- */

static bool is_over(const struct store_key *key, int64_t before_ns)
{
    return (key->revoked_at_ns && key->revoked_at_ns < before_ns) ||
           (key->expires_at_ns && key->expires_at_ns < before_ns);
}

int auth_forget_keys(struct auth *auth, const char *org, int64_t before_ns, struct brig_err *err)
{
    size_t n = 0;
    int r = store_forget_keys(auth->api->store, org, before_ns, NULL, NULL, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < auth->n_keys; i++) {
        struct store_key *key = &auth->keys[i];
        if ((org[0] && !str_eq(key->org_id, org)) || !is_over(key, before_ns)) {
            auth->keys[n++] = *key;
            continue;
        }
        server_cut(auth->api->server, key->id, NULL); /* one that expired a moment ago may still have streams */
        (void)!manager_set_quota(auth->api->manager, key->id, NULL, NULL);
        mem_free((char *)(uintptr_t)key->doc);
    }
    auth->n_keys = n;
    if (auth->by_hash)
        auth_index_keys(auth);
    return 0;
}

int auth_prune(struct auth *auth, struct brig_err *err)
{
    return auth_forget_keys(auth, "", clock_real_ns() - KEY_KEEP_NS, err);
}

/* ---- loading --------------------------------------------------------------------------------------------- */

struct loading {
    struct auth *auth;
    struct brig_err *err;
    char org_id[64]; /* rows come by organisation */
    size_t taken, skipped, orgs_skipped;
    int64_t over_ns;
};

static void tell_skipped(struct loading *in)
{
    if (in->skipped > 0)
        log_line(
            LOG_ERROR, "keys",
            "organisation %s: %zu of its keys are not taken, there is room for %u of one organisation and %u of all; "
            "delete rows of the table `keys`",
            in->org_id, in->skipped, KEYS_LOADED, KEYS_MAX);
    in->taken = in->skipped = 0;
}

static int each_key(void *ctx, const struct store_key *key)
{
    struct loading *in = ctx;
    struct store_key row = *key;
    struct brig_err full = {0};

    if (!str_eq(in->org_id, key->org_id)) {
        tell_skipped(in);
        snprintf(in->org_id, sizeof in->org_id, "%s", key->org_id);
    }
    if (is_over(key, in->over_ns))
        return 0; /* its row goes with the next look */
    int r =
        in->taken >= KEYS_LOADED || !auth_find_org(in->auth, key->org_id) ? -EAGAIN : auth_key_room(in->auth, 0, &full);
    if (r < 0 && full.code == BRIG_E_NOMEM) {
        *in->err = full;
        return r;
    }
    if (r < 0) {
        in->skipped++;
        return 0;
    }
    row.doc = NULL;
    r = auth_set_doc(&row.doc, key->doc, in->err);
    if (r == 0) {
        in->taken++;
        auth_add_key(in->auth, &row);
    }
    return r;
}

static int each_org(void *ctx, const struct store_org *org)
{
    struct loading *in = ctx;
    struct store_org row = *org;
    struct brig_err full = {0};
    int r = auth_org_room(in->auth, 0, &full);

    if (r < 0 && full.code != BRIG_E_NOMEM) {
        in->orgs_skipped++;
        return 0;
    }
    row.doc = NULL;
    if (r == 0)
        r = auth_set_doc(&row.doc, org->doc, &full);
    if (r == 0)
        auth_add_org(in->auth, &row);
    else
        *in->err = full;
    return r;
}

static int load(struct auth *auth, struct brig_err *err)
{
    struct loading in = {.auth = auth, .err = err, .over_ns = clock_real_ns() - KEY_KEEP_NS};
    int r = store_each_org(auth->api->store, each_org, &in, err);

    if (r == 0 && in.orgs_skipped > 0)
        log_line(LOG_ERROR, "keys",
                 "%zu organisations are not taken, there are too many; delete rows of the table `orgs`",
                 in.orgs_skipped);
    if (r == 0)
        r = store_each_key(auth->api->store, each_key, &in, err);
    tell_skipped(&in);
    return r;
}

static int make_default_org(struct auth *auth, struct brig_err *err)
{
    struct store_org org = {.id = API_DEFAULT_ORG, .name = "default", .created_at_ns = clock_real_ns()};
    int r = auth_grow((void **)&auth->orgs, auth->n_orgs, &auth->cap_orgs, sizeof *auth->orgs, err);

    if (r == 0)
        r = auth_set_doc(&org.doc, "{}", err);
    if (r < 0)
        return r;
    auth_add_org(auth, &org);
    return store_put_org(auth->api->store, &org, NULL, NULL, err);
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
    r = load(auth, err);
    if (r == 0 && !auth_find_org(auth, API_DEFAULT_ORG))
        r = make_default_org(auth, err);
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
    mem_free(auth->by_hash);
    mem_free(auth->orgs);
    mem_free(auth);
}

/* ---- checking -------------------------------------------------------------------------------------------- */

static const struct store_key *look_up(struct auth *auth, const char *text)
{
    uint8_t hash[SHA256_SIZE];

    if (strlen(text) != AUTH_KEY_TEXT || !str_starts(text, AUTH_KEY_PREFIX) || auth->n_keys == 0 ||
        crypto_sha256(text, AUTH_KEY_TEXT, hash) < 0)
        return NULL;
    uint32_t place = *place_of(auth, hash, true);
    return place ? &auth->keys[place - 1] : NULL;
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
        return err_set(err, BRIG_E_UNAUTHENTICATED, 0,
                       "a key is needed: Authorization: Bearer KEY (brig key create makes one)");
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
