/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading connections, and what is read at the start, on the caller's thread (pages for requests: store_find.c). Two
 * connections are shared by whoever reads; one that was lost is opened again, once, before a read is failed.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/str.h"
#include "store/store_private.h"

/* ---- connections -------------------------------------------------------------------------------------- */

/* One of the pool, perhaps not open yet; -1 when the store closes. */
static int take_reader(struct store *store)
{
    int found = -1;

    pthread_mutex_lock(&store->lock);
    while (found < 0 && !store->stopping) {
        for (unsigned i = 0; found < 0 && i < STORE_READERS; i++)
            if (!store->reader_busy[i])
                found = (int)i;
        if (found < 0)
            pthread_cond_wait(&store->readers_changed, &store->lock);
    }
    if (found >= 0)
        store->reader_busy[found] = true;
    pthread_mutex_unlock(&store->lock);
    return found;
}

static void give_reader(struct store *store, int reader)
{
    pthread_mutex_lock(&store->lock);
    store->reader_busy[reader] = false;
    pthread_cond_broadcast(&store->readers_changed);
    pthread_mutex_unlock(&store->lock);
}

int with_reader(struct store *store, read_fn *fn, void (*reset)(void *ctx), void *ctx, struct brig_err *err)
{
    int at = take_reader(store), r;

    if (at < 0)
        return err_set(err, BRIG_E_BUSY, 0, "the store is closing");
    struct store_conn **conn = &store->readers[at];
    for (int attempt = 0;; attempt++) {
        const bool fresh = !*conn;
        r = fresh ? store->ops->open(store->url, false, conn, err) : 0;
        if (r == 0)
            r = fn(store->ops, *conn, ctx, err);
        bool lost = *conn && (*conn)->lost;
        if (lost) {
            store->ops->close(*conn);
            *conn = NULL;
        }
        if (r >= 0 || !lost || fresh || attempt > 0)
            break;
        reset(ctx);
    }
    give_reader(store, at);
    return r;
}

/* ---- at the start ------------------------------------------------------------------------------------- */

struct each {
    enum store_sql sql;
    int (*row)(const struct each *each, const struct store_value *row, struct brig_err *err);
    union {
        int (*org)(void *ctx, const struct store_org *org);
        int (*key)(void *ctx, const struct store_key *key);
        int (*sandbox)(void *ctx, const struct store_sandbox *sandbox);
        int (*idempotency)(void *ctx, const struct store_idempotency *row);
        int (*object)(void *ctx, const struct store_object *object);
    } fn;
    void *ctx;
    struct store_value arg; /* STORE_NULL: none */
    bool told;              /* the caller has seen rows: no second attempt */
};

/* Columns into the record. A field that does not fit was not written by us. */
static int take_text(char *out, size_t size, const struct store_value *value, struct brig_err *err)
{
    if (value->type != STORE_TEXT || str_copy(out, size, value->data) < 0)
        return err_set(err, BRIG_E_HOST, EBADMSG, "database: a column has the wrong type or is too long");
    return 0;
}
#define TAKE_TEXT(array, value, err) take_text(array, sizeof(array), value, err)

static int take_hash(uint8_t out[32], const struct store_value *value, struct brig_err *err)
{
    if (value->type != STORE_BLOB || value->len != 32)
        return err_set(err, BRIG_E_HOST, EBADMSG, "database: a hash is not one");
    memcpy(out, value->data, 32);
    return 0;
}

static int org_row(const struct each *each, const struct store_value *row, struct brig_err *err)
{
    struct store_org org = {.created_at_ns = row[2].number, .doc = row[3].data};

    if (TAKE_TEXT(org.id, &row[0], err) < 0 || TAKE_TEXT(org.name, &row[1], err) < 0)
        return -EBADMSG;
    return each->fn.org(each->ctx, &org);
}

static int key_row(const struct each *each, const struct store_value *row, struct brig_err *err)
{
    struct store_key key = {.role = STORE_ROLE_MAX,
                            .created_at_ns = row[6].number,
                            .expires_at_ns = row[7].number,
                            .revoked_at_ns = row[8].number,
                            .doc = row[9].data};
    char role[16];

    if (TAKE_TEXT(key.id, &row[0], err) < 0 || TAKE_TEXT(key.org_id, &row[1], err) < 0 ||
        TAKE_TEXT(key.name, &row[2], err) < 0 || take_hash(key.hash, &row[3], err) < 0 ||
        TAKE_TEXT(key.hint, &row[4], err) < 0 || TAKE_TEXT(role, &row[5], err) < 0)
        return -EBADMSG;
    for (unsigned i = 0; i < STORE_ROLE_MAX; i++)
        if (str_eq(role, store_role_names[i]))
            key.role = (enum store_role)i;
    if (key.role == STORE_ROLE_MAX)
        return err_set(err, BRIG_E_HOST, EBADMSG, "database: the role of key %s is unknown", key.id);
    return each->fn.key(each->ctx, &key);
}

static int sandbox_row(const struct each *each, const struct store_value *row, struct brig_err *err)
{
    struct store_sandbox box = {.created_at_ns = row[6].number, .updated_at_ns = row[7].number, .doc = row[8].data};

    if (TAKE_TEXT(box.id, &row[0], err) < 0 || TAKE_TEXT(box.org_id, &row[1], err) < 0 ||
        TAKE_TEXT(box.key_id, &row[2], err) < 0 || TAKE_TEXT(box.name, &row[3], err) < 0 ||
        TAKE_TEXT(box.state, &row[4], err) < 0 || TAKE_TEXT(box.provider, &row[5], err) < 0)
        return -EBADMSG;
    return each->fn.sandbox(each->ctx, &box);
}

static int idempotency_row(const struct each *each, const struct store_value *row, struct brig_err *err)
{
    struct store_idempotency out = {.created_at_ns = row[3].number, .status = (int)row[4].number, .doc = row[5].data};

    if (TAKE_TEXT(out.org_id, &row[0], err) < 0 || TAKE_TEXT(out.key, &row[1], err) < 0 ||
        take_hash(out.fingerprint, &row[2], err) < 0)
        return -EBADMSG;
    return each->fn.idempotency(each->ctx, &out);
}

static int object_row(const struct each *each, const struct store_value *row, struct brig_err *err)
{
    struct store_object out = {.version = (uint64_t)row[3].number,
                               .created_at_ns = row[4].number,
                               .updated_at_ns = row[5].number,
                               .doc = row[6].data};

    if (TAKE_TEXT(out.kind, &row[0], err) < 0 || TAKE_TEXT(out.org_id, &row[1], err) < 0 ||
        TAKE_TEXT(out.name, &row[2], err) < 0)
        return -EBADMSG;
    return each->fn.object(each->ctx, &out);
}

static int each_row(void *ctx, const struct store_value *row, size_t n UNUSED, struct brig_err *err)
{
    struct each *each = ctx;

    each->told = true;
    if (err)
        err->code = BRIG_E_NONE;
    int r = each->row(each, row, err);
    /* Whoever takes the row says why not, mostly in words of its own; a failure without any is one all the same. */
    if (r < 0 && err && err->code == BRIG_E_NONE)
        (void)err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_HOST, -r, "database: a row could not be taken");
    return r;
}

static int each_read(const struct store_ops *ops, struct store_conn *conn, void *ctx, struct brig_err *err)
{
    struct each *each = ctx;

    if (each->told)
        return err_set(err, BRIG_E_BUSY, 0, "database: the connection was lost while reading");
    return ops->run(conn, each->sql, &each->arg, each->arg.type != STORE_NULL, each_row, each, err);
}

static void each_reset(void *ctx)
{
    (void)ctx; /* `told` stays */
}

int store_each_org(struct store *store, int (*fn)(void *ctx, const struct store_org *org), void *ctx,
                   struct brig_err *err)
{
    struct each each = {.sql = SQL_EACH_ORG, .row = org_row, .fn.org = fn, .ctx = ctx};
    return with_reader(store, each_read, each_reset, &each, err);
}

int store_each_key(struct store *store, int (*fn)(void *ctx, const struct store_key *key), void *ctx,
                   struct brig_err *err)
{
    struct each each = {.sql = SQL_EACH_KEY, .row = key_row, .fn.key = fn, .ctx = ctx};
    return with_reader(store, each_read, each_reset, &each, err);
}

int store_each_sandbox(struct store *store, int (*fn)(void *ctx, const struct store_sandbox *sandbox), void *ctx,
                       struct brig_err *err)
{
    struct each each = {.sql = SQL_EACH_SANDBOX, .row = sandbox_row, .fn.sandbox = fn, .ctx = ctx};
    return with_reader(store, each_read, each_reset, &each, err);
}

int store_each_idempotency(struct store *store, int (*fn)(void *ctx, const struct store_idempotency *row), void *ctx,
                           struct brig_err *err)
{
    struct each each = {.sql = SQL_EACH_IDEMPOTENCY, .row = idempotency_row, .fn.idempotency = fn, .ctx = ctx};
    return with_reader(store, each_read, each_reset, &each, err);
}

int store_each_object(struct store *store, const char *kind, int (*fn)(void *ctx, const struct store_object *object),
                      void *ctx, struct brig_err *err)
{
    struct each each = {.sql = SQL_EACH_OBJECT, .row = object_row, .fn.object = fn, .ctx = ctx};

    each.arg = (struct store_value){.type = STORE_TEXT, .data = kind, .len = strlen(kind)};
    return with_reader(store, each_read, each_reset, &each, err);
}

struct head {
    uint64_t seq;
    char hash[65];
    int64_t time_ns;
};

static int head_row(void *ctx, const struct store_value *row, size_t n UNUSED, struct brig_err *err)
{
    struct head *head = ctx;

    head->seq = (uint64_t)row[0].number;
    head->time_ns = row[2].number;
    return TAKE_TEXT(head->hash, &row[1], err);
}

static int head_read(const struct store_ops *ops, struct store_conn *conn, void *ctx, struct brig_err *err)
{
    return ops->run(conn, SQL_AUDIT_HEAD, NULL, 0, head_row, ctx, err);
}

int store_audit_head(struct store *store, uint64_t *ret_seq, char ret_hash[65], int64_t *ret_time_ns,
                     struct brig_err *err)
{
    struct head head = {0};
    int r = with_reader(store, head_read, each_reset, &head, err);

    if (r < 0)
        return r;
    *ret_seq = head.seq;
    memcpy(ret_hash, head.hash, sizeof head.hash);
    *ret_time_ns = head.time_ns;
    return 0;
}

int store_peek_audit_head(const char *url, uint64_t *ret_seq, char ret_hash[65], struct brig_err *err)
{
    const struct store_ops *ops = store_ops_for(url);
    struct store_conn *conn = NULL;
    struct head head = {0};

    if (!ops)
        return err_usage(err, "database: must be sqlite:/path or postgresql://...");
    if (ops->dialect == STORE_DIALECT_SQLITE && access(strchr(url, ':') + 1, F_OK) < 0 && errno == ENOENT)
        return err_set(err, BRIG_E_NOT_FOUND, ENOENT, "%s", strchr(url, ':') + 1);
    int r = ops->open(url, false, &conn, err);
    if (r == 0)
        r = head_read(ops, conn, &head, err);
    ops->close(conn);
    if (r < 0)
        return r;
    *ret_seq = head.seq;
    memcpy(ret_hash, head.hash, sizeof head.hash);
    return 0;
}
