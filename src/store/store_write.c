/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From records to queued writes, and from a write to its statements. Everything is checked before it is queued:
 * PostgreSQL takes neither bytes that are not UTF-8 nor NULs, SQLite takes anything; here both refuse the same, with
 * the name of the field. A write owns a copy of all its strings, in one allocation.
 */
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "codec/json/json.h"
#include "store/store_private.h"

#define DOC_MAX (64u << 20) /* a receipt with the largest output there may be */

const char *const store_role_names[] = {
    [STORE_ROLE_ADMIN] = "admin", [STORE_ROLE_USER] = "user", [STORE_ROLE_READ_ONLY] = "read-only"};
_Static_assert(ARRAY_SIZE(store_role_names) == STORE_ROLE_MAX, "a name for every role");

/* ---- drafts: values on their way to a write ----------------------------------------------------------- */

struct draft {
    struct store_value values[STORE_COLS_MAX]; /* pointing at the caller's */
    size_t n, bytes;
    int error; /* the first; later fields do nothing */
    bool patient;
    struct brig_err *err;
};

static void put_text(struct draft *draft, const char *what, const char *text, size_t len)
{
    if (draft->error < 0)
        return;
    if (!json_utf8_valid(text, len)) {
        draft->error = err_usage(draft->err, "%s: not UTF-8", what);
        return;
    }
    draft->values[draft->n++] = (struct store_value){.type = STORE_TEXT, .data = text, .len = len};
    draft->bytes += len + 1;
}

/* A char array of the record. */
static void put_array(struct draft *draft, const char *what, const char *text, size_t size)
{
    size_t len = strnlen(text, size);

    if (draft->error == 0 && len == size)
        draft->error = err_usage(draft->err, "%s: does not end", what);
    put_text(draft, what, text, len);
}
#define PUT_ARRAY(draft, what, array) put_array(draft, what, array, sizeof(array))

static void put_id(struct draft *draft, const char *what, const char *text, size_t size)
{
    if (draft->error == 0 && text[0] == '\0')
        draft->error = err_usage(draft->err, "%s: is empty", what);
    put_array(draft, what, text, size);
}
#define PUT_ID(draft, what, array) put_id(draft, what, array, sizeof(array))

static void put_int(struct draft *draft, int64_t number)
{
    if (draft->error == 0)
        draft->values[draft->n++] = (struct store_value){.type = STORE_INT, .number = number};
}

static void put_hash(struct draft *draft, const uint8_t hash[32])
{
    if (draft->error < 0)
        return;
    draft->values[draft->n++] = (struct store_value){.type = STORE_BLOB, .data = hash, .len = 32};
    draft->bytes += 32 + 1;
}

static void put_doc(struct draft *draft, const char *what, const char *doc, bool with_length)
{
    const char *text = doc ? doc : "{}";
    size_t len = strlen(text);

    if (draft->error == 0 && len > DOC_MAX)
        draft->error = err_set(draft->err, BRIG_E_TOO_LARGE, 0, "%s: the document has %zu bytes, at most %u are kept",
                               what, len, DOC_MAX);
    if (with_length)
        put_int(draft, (int64_t)len);
    put_text(draft, what, text, len);
}

static int add(struct store *store, enum write_kind kind, const struct draft *draft, store_done_fn *done, void *ctx,
               struct brig_err *err)
{
    if (draft->error < 0)
        return draft->error;
    size_t bytes = sizeof(struct write) + draft->bytes;
    struct write *write = mem_alloc(bytes);
    if (!write)
        return err_nomem(err);
    *write = (struct write){.kind = kind,
                            .done = done,
                            .ctx = ctx,
                            .queued_at_ns = clock_mono_ns(),
                            .bytes = bytes,
                            .patient = draft->patient,
                            .n = draft->n};
    char *at = write->data;
    for (size_t i = 0; i < draft->n; i++) {
        write->values[i] = draft->values[i];
        if (draft->values[i].type == STORE_INT)
            continue;
        memcpy(at, draft->values[i].data, draft->values[i].len);
        at[draft->values[i].len] = '\0';
        write->values[i].data = at;
        at += draft->values[i].len + 1;
    }
    int r = writer_add(store, write, err);
    if (r < 0)
        mem_free(write);
    return r;
}

/* ---- the interface ------------------------------------------------------------------------------------ */

int store_put_org(struct store *store, const struct store_org *org, store_done_fn *done, void *ctx,
                  struct brig_err *err)
{
    struct draft draft = {.err = err};

    PUT_ID(&draft, "organisation's id", org->id);
    PUT_ARRAY(&draft, "organisation's name", org->name);
    put_int(&draft, org->created_at_ns);
    put_doc(&draft, "organisation", org->doc, false);
    return add(store, WRITE_PUT_ORG, &draft, done, ctx, err);
}

int store_delete_org(struct store *store, const char *id, store_done_fn *done, void *ctx, struct brig_err *err)
{
    struct draft draft = {.err = err};

    put_id(&draft, "organisation's id", id, sizeof((struct store_org *)NULL)->id);
    return add(store, WRITE_DELETE_ORG, &draft, done, ctx, err);
}

int store_put_key(struct store *store, const struct store_key *key, store_done_fn *done, void *ctx,
                  struct brig_err *err)
{
    struct draft draft = {.err = err};

    if ((unsigned)key->role >= STORE_ROLE_MAX)
        return err_usage(err, "key's role: %d is none", (int)key->role);
    PUT_ID(&draft, "key's id", key->id);
    PUT_ID(&draft, "key's organisation", key->org_id);
    PUT_ARRAY(&draft, "key's name", key->name);
    put_hash(&draft, key->hash);
    PUT_ARRAY(&draft, "key's hint", key->hint);
    put_text(&draft, "key's role", store_role_names[key->role], strlen(store_role_names[key->role]));
    put_int(&draft, key->created_at_ns);
    put_int(&draft, key->expires_at_ns);
    put_int(&draft, key->revoked_at_ns);
    put_doc(&draft, "key", key->doc, false);
    return add(store, WRITE_PUT_KEY, &draft, done, ctx, err);
}

int store_forget_keys(struct store *store, const char *org_id, int64_t before_ns, store_done_fn *done, void *ctx,
                      struct brig_err *err)
{
    struct draft draft = {.err = err};

    put_array(&draft, "organisation's id", org_id, sizeof((struct store_org *)NULL)->id);
    put_int(&draft, before_ns);
    return add(store, WRITE_FORGET_KEYS, &draft, done, ctx, err);
}

int store_put_sandbox(struct store *store, const struct store_sandbox *sandbox, store_done_fn *done, void *ctx,
                      struct brig_err *err)
{
    struct draft draft = {.err = err};

    PUT_ID(&draft, "sandbox's id", sandbox->id);
    PUT_ARRAY(&draft, "sandbox's organisation", sandbox->org_id);
    PUT_ARRAY(&draft, "sandbox's key", sandbox->key_id);
    PUT_ARRAY(&draft, "sandbox's name", sandbox->name);
    PUT_ARRAY(&draft, "sandbox's state", sandbox->state);
    PUT_ARRAY(&draft, "sandbox's provider", sandbox->provider);
    put_int(&draft, sandbox->created_at_ns);
    put_int(&draft, sandbox->updated_at_ns);
    put_doc(&draft, "sandbox", sandbox->doc, false);
    return add(store, WRITE_PUT_SANDBOX, &draft, done, ctx, err);
}

int store_end_sandbox(struct store *store, const struct store_certificate *cert, store_done_fn *done, void *ctx,
                      struct brig_err *err)
{
    struct draft draft = {.err = err};

    PUT_ID(&draft, "certificate's sandbox", cert->sandbox_id);
    PUT_ARRAY(&draft, "certificate's organisation", cert->org_id);
    PUT_ARRAY(&draft, "certificate's cause", cert->cause);
    put_int(&draft, cert->ended_at_ns);
    put_doc(&draft, "certificate", cert->doc, true);
    return add(store, WRITE_END_SANDBOX, &draft, done, ctx, err);
}

int store_put_run(struct store *store, const struct store_run *run, store_done_fn *done, void *ctx,
                  struct brig_err *err)
{
    struct draft draft = {.err = err};

    PUT_ID(&draft, "run's id", run->id);
    PUT_ARRAY(&draft, "run's organisation", run->org_id);
    PUT_ARRAY(&draft, "run's sandbox", run->sandbox_id);
    PUT_ARRAY(&draft, "run's kind", run->kind);
    PUT_ARRAY(&draft, "run's cause", run->cause);
    put_int(&draft, run->started_at_ns);
    put_int(&draft, run->ended_at_ns);
    put_doc(&draft, "run", run->doc, true);
    return add(store, WRITE_PUT_RUN, &draft, done, ctx, err);
}

int store_put_idempotency(struct store *store, const struct store_idempotency *row, store_done_fn *done, void *ctx,
                          struct brig_err *err)
{
    struct draft draft = {.err = err};

    PUT_ARRAY(&draft, "idempotency key's organisation", row->org_id);
    PUT_ID(&draft, "idempotency key", row->key);
    put_hash(&draft, row->fingerprint);
    put_int(&draft, row->created_at_ns);
    put_int(&draft, row->status);
    put_doc(&draft, "idempotency key", row->doc, false);
    return add(store, WRITE_PUT_IDEMPOTENCY, &draft, done, ctx, err);
}

int store_put_object(struct store *store, const struct store_object *object, store_done_fn *done, void *ctx,
                     struct brig_err *err)
{
    struct draft draft = {.err = err};

    if (object->version > INT64_MAX)
        return err_usage(err, "object's version: too large");
    PUT_ID(&draft, "object's kind", object->kind);
    PUT_ID(&draft, "object's organisation", object->org_id);
    PUT_ID(&draft, "object's name", object->name);
    put_int(&draft, (int64_t)object->version);
    put_int(&draft, object->created_at_ns);
    put_int(&draft, object->updated_at_ns);
    put_doc(&draft, "object", object->doc, false);
    draft.patient = object->patient;
    return add(store, WRITE_PUT_OBJECT, &draft, done, ctx, err);
}

int store_delete_object(struct store *store, const char *kind, const char *org_id, const char *name,
                        store_done_fn *done, void *ctx, struct brig_err *err)
{
    struct draft draft = {.err = err};

    put_id(&draft, "object's kind", kind, sizeof((struct store_object *)NULL)->kind);
    put_id(&draft, "object's organisation", org_id, sizeof((struct store_object *)NULL)->org_id);
    put_id(&draft, "object's name", name, sizeof((struct store_object *)NULL)->name);
    return add(store, WRITE_DELETE_OBJECT, &draft, done, ctx, err);
}

int store_put_audit_head(struct store *store, uint64_t seq, const char *hash, int64_t time_ns, store_done_fn *done,
                         void *ctx, struct brig_err *err)
{
    struct draft draft = {.err = err};

    if (seq > INT64_MAX)
        return err_usage(err, "audit head: the sequence number is too large");
    put_int(&draft, (int64_t)seq);
    put_id(&draft, "audit head", hash, 65);
    put_int(&draft, time_ns);
    return add(store, WRITE_PUT_AUDIT_HEAD, &draft, done, ctx, err);
}

int store_prune(struct store *store, int64_t before_ns, uint64_t max_bytes, int64_t idempotency_before_ns,
                store_done_fn *done, void *ctx, struct brig_err *err)
{
    struct draft draft = {.err = err};

    put_int(&draft, before_ns);
    put_int(&draft, max_bytes > INT64_MAX ? INT64_MAX : (int64_t)max_bytes);
    put_int(&draft, idempotency_before_ns);
    return add(store, WRITE_PRUNE, &draft, done, ctx, err);
}

int store_close_open_runs(struct store *store, const char *cause, int64_t now_ns, store_done_fn *done, void *ctx,
                          struct brig_err *err)
{
    struct draft draft = {.err = err};

    if (now_ns == 0)
        return err_usage(err, "closing runs: a time of 0 would leave them open");
    put_id(&draft, "cause", cause, sizeof((struct store_run *)NULL)->cause);
    put_int(&draft, now_ns);
    return add(store, WRITE_CLOSE_RUNS, &draft, done, ctx, err);
}

int store_settle(struct store *store, store_done_fn *done, void *ctx, struct brig_err *err)
{
    const struct draft draft = {.err = err};

    return add(store, WRITE_NOTHING, &draft, done, ctx, err);
}

/* ---- statements --------------------------------------------------------------------------------------- */

static int run(struct store *store, enum store_sql sql, const struct write *write, size_t n, struct brig_err *err)
{
    return store->ops->run(store->conn, sql, write->values, n, NULL, NULL, err);
}

/* The row that must be there afterwards; an upsert that changed none met another organisation's. */
static int put(struct store *store, enum store_sql sql, const struct write *write, struct brig_err *err)
{
    int r = run(store, sql, write, write->n, err);

    if (r == 0 && store->conn->changed == 0)
        r = err_set(err, BRIG_E_CONFLICT, 0, "database: %s is another organisation's",
                    (const char *)write->values[0].data);
    return r;
}

static int take_number(void *ctx, const struct store_value *row, size_t n UNUSED, struct brig_err *err UNUSED)
{
    *(int64_t *)ctx = row[0].number;
    return 1;
}

static int delete_org(struct store *store, const struct write *write, struct brig_err *err)
{
    int64_t sandboxes = 0;
    int r = store->ops->run(store->conn, SQL_ORG_SANDBOXES, write->values, 1, take_number, &sandboxes, err);

    if (r == 0 && sandboxes > 0)
        r = err_set(err, BRIG_E_CONFLICT, 0, "the organisation still has %lld sandboxes", (long long)sandboxes);
    if (r == 0)
        r = run(store, SQL_DELETE_ORG_IDEMPOTENCY, write, 1, err);
    return r < 0 ? r : run(store, SQL_DELETE_ORG, write, 1, err); /* its keys and objects go with it */
}

int write_apply(struct store *store, struct write *write, struct brig_err *err)
{
    int r;

    if (write->kind == WRITE_PUT_RUN || write->kind == WRITE_END_SANDBOX)
        store->doc_bytes += write->values[write->n - 1].len;
    switch (write->kind) {
    case WRITE_PUT_ORG: return put(store, SQL_PUT_ORG, write, err);
    case WRITE_DELETE_ORG: return delete_org(store, write, err);
    case WRITE_PUT_KEY: return put(store, SQL_PUT_KEY, write, err);
    case WRITE_FORGET_KEYS: return run(store, SQL_FORGET_KEYS, write, write->n, err);
    case WRITE_PUT_SANDBOX: return put(store, SQL_PUT_SANDBOX, write, err);
    case WRITE_END_SANDBOX:
        r = run(store, SQL_DELETE_SANDBOX, write, 2, err);
        return r < 0 ? r : put(store, SQL_PUT_CERTIFICATE, write, err);
    case WRITE_PUT_RUN:
        return run(store, SQL_PUT_RUN, write, write->n, err); /* may change nothing: see the statement */
    case WRITE_PUT_IDEMPOTENCY: return put(store, SQL_PUT_IDEMPOTENCY, write, err);
    case WRITE_PUT_OBJECT: return put(store, SQL_PUT_OBJECT, write, err);
    case WRITE_DELETE_OBJECT: return run(store, SQL_DELETE_OBJECT, write, write->n, err);
    case WRITE_PUT_AUDIT_HEAD: return put(store, SQL_PUT_AUDIT_HEAD, write, err);
    case WRITE_PRUNE: return write_prune(store, write, err);
    case WRITE_CLOSE_RUNS: return write_close_runs(store, write, err);
    case WRITE_NOTHING: return 0;
    default: return err_set(err, BRIG_E_HOST, 0, "no such write: %d", (int)write->kind);
    }
}
