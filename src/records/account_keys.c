/* SPDX-License-Identifier: Apache-2.0 */
/*
 * account_keys.c: keys. A key is `e2b_` and 40 hexadecimal digits (160 bits), shown once; only its SHA-256 is kept, and
 * a key is found by it. So the lookup leaks nothing about other keys: nobody can choose a hash.
 *
 * A change is in force only after the store has committed it. A revocation is in force at once as well, and stays so
 * whatever the store says: it is noted in the version that is there, every later version takes it over, and so does one
 * that was on its way (on_key_changed()). Room is asked for before the write, so nothing is stored that is refused.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "records/accounts_priv.h"

#define KEYS_MAX 100000u    /* all organisations together have no more */
#define KEYS_PER_ORG 10000u /* a start takes so many: the largest [manager] org_max_keys */
/* A key that is revoked or has expired is shown so long */
#define KEY_KEEP_NS (INT64_C(7) * 86400 * (int64_t)NS_PER_SEC)

#define EXPIRY_LOOK_NS (60 * NS_PER_SEC) /* at least so often: the wall clock may have been set */

#define KEY_PREFIX "e2b_"
#define KEY_RANDOM 20u
_Static_assert(KEY_TEXT == sizeof KEY_PREFIX - 1 + 2 * KEY_RANDOM, "the text of a key is its prefix and its digits");

/* ---- expiry ------------------------------------------------------------------------------------------- */

/* The timer rings when the next key expires. */
static void arm_expiry(struct accounts *accounts, int64_t next)
{
    int64_t now = clock_real_ns();
    uint64_t delay = next > now ? (uint64_t)(next - now) : 0;

    accounts->next_expiry_ns = next;
    (void)!loop_timer_set(accounts->options.loop, &accounts->on_expiry,
                          loop_now_ns() + (delay < EXPIRY_LOOK_NS ? delay : EXPIRY_LOOK_NS), NULL);
}

struct looking {
    struct accounts *accounts;
    int64_t now, next;
};

static bool look_at_expiry(void *ctx, const struct object *object)
{
    struct looking *looking = ctx;
    const struct accounts *accounts = looking->accounts;
    const struct key *key = key_of(object);

    if (key->expires_at_ns > looking->now && !key->revoked_at_ns && key->expires_at_ns < looking->next)
        looking->next = key->expires_at_ns;
    else if (key->expires_at_ns > accounts->expired_until_ns && key->expires_at_ns <= looking->now)
        accounts->options.over(accounts->options.ctx, object->id, false);
    return true;
}

/* A key that has expired takes its streams with it, as one that is revoked. */
static void on_expiry(struct loop_timer *timer)
{
    struct accounts *accounts = timer->ctx;
    struct looking looking = {.accounts = accounts, .now = clock_real_ns(), .next = INT64_MAX};

    objects_each(accounts->keys, look_at_expiry, &looking);
    accounts->expired_until_ns = looking.now;
    accounts->next_expiry_ns = INT64_MAX;
    if (looking.next != INT64_MAX)
        arm_expiry(accounts, looking.next);
}

/* ---- keys that are over ------------------------------------------------------------------------------- */

static bool is_over(const struct key *key, int64_t before_ns)
{
    return (key->revoked_at_ns && key->revoked_at_ns < before_ns) ||
           (key->expires_at_ns && key->expires_at_ns < before_ns);
}

struct forgetting {
    const struct accounts *accounts;
    int64_t before_ns;
};

static bool forget_over(void *ctx, const struct object *object)
{
    const struct forgetting *forgetting = ctx;
    const struct accounts_options *options = &forgetting->accounts->options;

    if (!is_over(key_of(object), forgetting->before_ns))
        return false;
    options->over(options->ctx, object->id, true); /* one that expired a moment ago may still have streams */
    return true;
}

/* Keys that were over before that time are removed, here and from the store. org "": of all. */
static int forget_keys(struct accounts *accounts, const char *org, int64_t before_ns, struct brig_err *err)
{
    struct forgetting forgetting = {accounts, before_ns};
    int r = store_forget_keys(accounts->options.store, org, before_ns, NULL, NULL, err);

    if (r == 0)
        objects_forget_if(accounts->keys, org, forget_over, &forgetting);
    return r;
}

int accounts_prune(struct accounts *accounts, struct brig_err *err)
{
    return forget_keys(accounts, "", clock_real_ns() - KEY_KEEP_NS, err);
}

/* ---- the table ---------------------------------------------------------------------------------------- */

static int load_key(void *ctx, const struct store_key *row)
{
    struct key columns = {.role = row->role, .expires_at_ns = row->expires_at_ns, .revoked_at_ns = row->revoked_at_ns};
    struct object like = {.version = 1,
                          .created_at_ns = row->created_at_ns,
                          .updated_at_ns = row->created_at_ns,
                          .text = row->doc,
                          .columns = &columns};

    memcpy(like.id, row->id, sizeof row->id);
    memcpy(like.org_id, row->org_id, sizeof like.org_id);
    memcpy(columns.name, row->name, sizeof columns.name);
    memcpy(columns.hint, row->hint, sizeof columns.hint);
    crypto_hex(row->hash, sizeof row->hash, columns.hash);
    return objects_load(ctx, &like);
}

static int each_key(struct store *store, struct objects_loading *loading, struct brig_err *err)
{
    return store_each_key(store, load_key, loading, err);
}

static int put_key(struct store *store, const struct object *object, store_done_fn *done, void *ctx,
                   struct brig_err *err)
{
    const struct key *key = key_of(object);
    struct store_key row = {.role = key->role,
                            .created_at_ns = object->created_at_ns,
                            .expires_at_ns = key->expires_at_ns,
                            .revoked_at_ns = key->revoked_at_ns,
                            .doc = object->text};

    memcpy(row.org_id, object->org_id, sizeof row.org_id);
    memcpy(row.name, key->name, sizeof row.name);
    memcpy(row.hint, key->hint, sizeof row.hint);
    if (str_copy(row.id, sizeof row.id, object->id) < 0 ||
        crypto_unhex(key->hash, sizeof key->hash - 1, row.hash, sizeof row.hash) < 0)
        return err_set(err, BRIG_E_HOST, EBADMSG, "key %.64s: not an id or a hash", object->id);
    return store_put_key(store, &row, done, ctx, err);
}

static void tell_skipped(struct accounts *accounts)
{
    char text[256];

    if (accounts->loading.keys_skipped > 0) {
        snprintf(text, sizeof text,
                 "organisation %s: %zu of its keys are not taken, there is room for %u of one organisation and %u of "
                 "all; delete rows of the table `keys`",
                 accounts->loading.org_id, accounts->loading.keys_skipped, KEYS_PER_ORG, KEYS_MAX);
        accounts->options.log(accounts->options.ctx, text);
    }
    accounts->loading.keys_skipped = 0;
}

static bool take_key(void *ctx, const struct object *row, bool room)
{
    struct accounts *accounts = ctx;

    if (!str_eq(accounts->loading.org_id, row->org_id)) {
        tell_skipped(accounts);
        memcpy(accounts->loading.org_id, row->org_id, sizeof row->org_id);
    }
    if (is_over(key_of(row), accounts->loading.over_ns))
        return false; /* its row goes with the next look */
    if (room && org_find(accounts, row->org_id))
        return true;
    accounts->loading.keys_skipped++;
    return false;
}

static const char *hash_of(void *ctx UNUSED, const struct object *object)
{
    return key_of(object)->hash;
}

static void on_key_changed(void *ctx, const struct object *before, const struct object *after)
{
    struct accounts *accounts = ctx;
    struct key *key = after ? key_of(after) : NULL;

    if (before && key)
        key->revoked_at_ns = key_of(before)->revoked_at_ns;
    else if (key && key->expires_at_ns && key->expires_at_ns < accounts->next_expiry_ns)
        arm_expiry(accounts, key->expires_at_ns);
}

int keys_load(struct accounts *accounts, struct brig_err *err)
{
    static const struct objects_table table = {
        .columns = sizeof(struct key), .total = KEYS_MAX, .each = each_key, .put = put_key, .take = take_key};
    const struct objects_kind kind = {.kind = "key",
                                      .many = "keys",
                                      .per_org = KEYS_PER_ORG,
                                      .key = hash_of,
                                      .changed = on_key_changed,
                                      .ctx = accounts,
                                      .table = &table};
    const int64_t now = clock_real_ns();

    accounts->loading.over_ns = now - KEY_KEEP_NS;
    int r = objects_create(accounts->options.store, &kind, &accounts->keys, err);
    tell_skipped(accounts);
    if (r < 0)
        return r;
    accounts->on_expiry = (struct loop_timer){.fn = on_expiry, .ctx = accounts};
    accounts->expired_until_ns = now; /* what expired before we were here has no streams */
    on_expiry(&accounts->on_expiry);
    return 0;
}

/* ---- looking ------------------------------------------------------------------------------------------ */

const struct object *key_find(const struct accounts *accounts, const char *id)
{
    return objects_find(accounts->keys, "", id);
}

const struct object *key_first(const struct accounts *accounts, const char *org)
{
    return objects_first(accounts->keys, org);
}

const char *key_doc(const struct accounts *accounts, const char *id)
{
    const struct object *key = key_find(accounts, id);

    return key ? key->text : "{}";
}

static int hash_text(const char *text, char hash[65])
{
    uint8_t bytes[SHA256_SIZE];
    int r = crypto_sha256(text, KEY_TEXT, bytes);

    if (r == 0)
        crypto_hex(bytes, sizeof bytes, hash);
    return r;
}

const struct object *key_by_text(const struct accounts *accounts, const char *text)
{
    char hash[65];

    if (strlen(text) != KEY_TEXT || !str_starts(text, KEY_PREFIX) || hash_text(text, hash) < 0)
        return NULL;
    const struct object *key = objects_by_key(accounts->keys, "", hash);
    return key && crypto_equal(key_of(key)->hash, hash, sizeof hash) ? key : NULL;
}

int key_check(const struct accounts *accounts, const struct object *key, struct brig_err *err)
{
    const struct object *org = org_find(accounts, key->org_id);

    if (key_of(key)->revoked_at_ns || !org || org_of(org)->deleting)
        return err_set(err, BRIG_E_UNAUTHENTICATED, 0, "the key was revoked");
    if (key_of(key)->expires_at_ns && key_of(key)->expires_at_ns <= clock_real_ns())
        return err_set(err, BRIG_E_UNAUTHENTICATED, 0, "the key has expired");
    return 0;
}

/* ---- making ------------------------------------------------------------------------------------------- */

/* A new key on its way to the store. */
struct making {
    struct key key;
    char *doc;
};

static int make_key(void *make_ctx, const struct object *current UNUSED, struct buf *doc, struct brig_err *err)
{
    const struct making *making = make_ctx;

    return buf_append(doc, making->doc, strlen(making->doc)) < 0 ? err_nomem(err) : 0;
}

static void end_making(void *make_ctx)
{
    struct making *making = make_ctx;

    mem_free(making->doc);
    mem_free(making);
}

static int check_room(struct accounts *accounts, const char *org, uint64_t max, struct brig_err *err)
{
    size_t bytes;
    int r = 0;

    if (objects_expected(accounts->keys, org, &bytes) >= max)
        r = forget_keys(accounts, org, clock_real_ns(), err);
    if (r == 0 && objects_expected(accounts->keys, org, &bytes) >= max)
        r = err_set(err, BRIG_E_LIMIT, 0, "an organisation has at most %llu keys ([manager] org_max_keys); revoke some",
                    (unsigned long long)max);
    return r;
}

static int make_text(char text[KEY_TEXT + 1], struct key *key)
{
    uint8_t random[KEY_RANDOM];
    int r = crypto_random(random, sizeof random);

    if (r < 0)
        return r;
    memcpy(text, KEY_PREFIX, sizeof KEY_PREFIX - 1);
    crypto_hex(random, sizeof random, text + sizeof KEY_PREFIX - 1);
    crypto_wipe(random, sizeof random);
    r = str_copy(key->hint, sizeof key->hint, text + KEY_TEXT - 4);
    if (r < 0)
        return r;
    return hash_text(text, key->hash);
}

int key_create(struct accounts *accounts, const char *org, const struct key *like, const char *doc, uint64_t max,
               char ret_text[KEY_TEXT + 1], objects_done_fn *done, void *ctx, struct brig_err *err)
{
    char id[128];
    int r = check_room(accounts, org, max, err);

    if (r < 0)
        return r;
    struct making *making = mem_zalloc(sizeof *making);
    if (!making)
        return err_nomem(err);
    making->key = *like;
    making->doc = mem_strdup(doc);
    r = making->doc ? objects_new_id("key", id) : -ENOMEM;
    if (r == 0)
        r = make_text(ret_text, &making->key);
    if (r < 0)
        return end_making(making), err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_HOST, -r, "make a key");
    const struct objects_change change = {.org = org,
                                          .id = id,
                                          .expect_version = OBJECTS_NEW,
                                          .columns = &making->key,
                                          .make = make_key,
                                          .end = end_making,
                                          .make_ctx = making,
                                          .done = done,
                                          .ctx = ctx};
    return objects_change(accounts->keys, &change, err);
}

/* The row is written as it is at its turn: the revocation is in its columns. */
static int make_revoked(void *make_ctx UNUSED, const struct object *current, struct buf *doc UNUSED,
                        struct brig_err *err)
{
    return current ? 1 : err_set(err, BRIG_E_NOT_FOUND, 0, "the key was removed meanwhile");
}

int key_revoke(struct accounts *accounts, const struct object *key, objects_done_fn *done, void *ctx,
               struct brig_err *err)
{
    const struct objects_change change = {
        .org = key->org_id, .id = key->id, .make = make_revoked, .done = done, .ctx = ctx};

    if (!key_of(key)->revoked_at_ns)
        key_of(key)->revoked_at_ns = clock_real_ns();
    return objects_change(accounts->keys, &change, err);
}
