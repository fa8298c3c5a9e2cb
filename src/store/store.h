/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h: what must survive a restart: organisations, keys, sandboxes, runs, idempotency keys, death certificates, the
 * audit head. One interface, SQLite and PostgreSQL behind it (store_sqlite.c, store_pg.c over struct store_ops).
 *
 * Theory of operation. One writer thread owns the writing connection. A write is queued, and all that came within
 * STORE_GROUP_MS, or while the last commit ran, are one transaction; its callback comes on the loop after the commit.
 * Reads run on the worker pool with their own connection; small things that every request needs (keys) are
 * cached by the callers. Documents (`doc`) are JSON text written by us; columns are what is searched.
 * A failed commit fails every write in it with the same error (-ENOSPC, -EIO ...), and the store goes on.
 *
 * Every read that serves a request takes the organisation: another organisation's row is not found.
 */
#ifndef BRIG_STORE_STORE_H
#define BRIG_STORE_STORE_H

#include <brig.h>

#include "base/buf.h"
#include "loop/workers.h"

#define STORE_GROUP_MS 50
#define STORE_SCHEMA 3         /* the version this program writes; forward-only migrations in store_schema.c */
#define STORE_QUEUE_MAX 65536u /* writes waiting; past it -EAGAIN */

struct store;

/*
 * url: "sqlite:/path/file.db" or "postgresql://...". Opens, migrates (one transaction), refuses a newer schema, and a
 * data base that another brigd has open (BRIG_E_REFUSED, after STORE_LOCK_WAIT_MS for one that is about to leave).
 */
int store_open(struct loop *loop, struct workers *workers, const char *url, struct store **ret,
               struct brig_err *err) MUST_CHECK;
/* Writes what is queued and calls back for it; not from a callback of its own. Reads in flight are called back by the
 * workers. Takes NULL. */
void store_close(struct store *store);

typedef void store_done_fn(void *ctx, const struct brig_err *err); /* err NULL: committed */

/* ---- records; strings are copied by the store --------------------------------------------------------- */

struct store_org {
    char id[64]; /* org-<uuid4> */
    char name[128];
    int64_t created_at_ns;
    const char *doc; /* quotas and settings; JSON object */
};
enum store_role { STORE_ROLE_ADMIN, STORE_ROLE_USER, STORE_ROLE_READ_ONLY, STORE_ROLE_MAX };
extern const char *const store_role_names[]; /* as they stand in the data base */
struct store_key {
    char id[64]; /* key-<uuid4> */
    char org_id[64];
    char name[128];
    uint8_t hash[32]; /* SHA-256 of the key's text */
    char hint[16];    /* its last four characters */
    enum store_role role;
    int64_t created_at_ns, expires_at_ns, revoked_at_ns; /* 0: never */
    const char *doc;                                     /* quotas; JSON object */
};
struct store_sandbox {
    char id[32];
    char org_id[64], key_id[64], name[128], state[16], provider[32];
    int64_t created_at_ns, updated_at_ns;
    const char *doc; /* everything else: spec, metadata, deadlines ... */
};
struct store_run {
    char id[48];
    char org_id[64], sandbox_id[32], kind[16], cause[24]; /* cause "" while it runs */
    int64_t started_at_ns, ended_at_ns;
    const char *doc; /* the receipt; while it runs, what is known */
};
struct store_certificate { /* of a sandbox that has ended */
    char sandbox_id[32], org_id[64], cause[24];
    int64_t ended_at_ns;
    const char *doc;
};
struct store_idempotency {
    char org_id[64], key[256];
    uint8_t fingerprint[32]; /* of the request: the same key with another request is a 409 */
    int64_t created_at_ns;
    int status;
    const char *doc; /* the answer */
};

struct store_object { /* documents of the kinds of records/objects.h, which has all of them in memory */
    char kind[16], org_id[64], name[128];
    uint64_t version;
    int64_t created_at_ns, updated_at_ns;
    const char *doc;
    bool patient; /* Whoever waits for it can wait for company, as a write without done does. */
};

/* ---- writes: queued, committed in groups; done may be NULL -------------------------------------------- */
/*
 * -EAGAIN (queue full), -ENOMEM, or BRIG_E_USAGE (text that is not UTF-8 or has no end): nothing was queued and done is
 * not called. A write of another organisation's row is BRIG_E_CONFLICT. With done the commit comes at once; without,
 * within STORE_GROUP_MS, and where the data base fails (no space, no server) the write is kept and tried again. doc
 * NULL is "{}".
 */
int store_put_org(struct store *store, const struct store_org *org, store_done_fn *done, void *ctx,
                  struct brig_err *err) MUST_CHECK;
/* Deletes its keys, objects and idempotency rows too; its runs stay until they are old. BRIG_E_CONFLICT while it has
 * sandboxes. */
int store_delete_org(struct store *store, const char *id, store_done_fn *done, void *ctx,
                     struct brig_err *err) MUST_CHECK;
/* The organisation must be there: else BRIG_E_CONFLICT. */
int store_put_key(struct store *store, const struct store_key *key, store_done_fn *done, void *ctx,
                  struct brig_err *err) MUST_CHECK;
/* Deletes the keys that were revoked or had expired before that time. org_id "": those of all organisations. */
int store_forget_keys(struct store *store, const char *org_id, int64_t before_ns, store_done_fn *done, void *ctx,
                      struct brig_err *err) MUST_CHECK;
int store_put_sandbox(struct store *store, const struct store_sandbox *sandbox, store_done_fn *done, void *ctx,
                      struct brig_err *err) MUST_CHECK;
/* The sandbox goes and its certificate comes, in one transaction. */
int store_end_sandbox(struct store *store, const struct store_certificate *cert, store_done_fn *done, void *ctx,
                      struct brig_err *err) MUST_CHECK;
/* An ended run stays ended: a row that still runs does not replace it. started_at_ns, org_id, sandbox_id: as first
 * written. */
int store_put_run(struct store *store, const struct store_run *run, store_done_fn *done, void *ctx,
                  struct brig_err *err) MUST_CHECK;
int store_put_idempotency(struct store *store, const struct store_idempotency *row, store_done_fn *done, void *ctx,
                          struct brig_err *err) MUST_CHECK;
/* The organisation must be there: else BRIG_E_CONFLICT. Deleting an organisation takes its objects along.
 * created_at_ns: as first written. */
int store_put_object(struct store *store, const struct store_object *object, store_done_fn *done, void *ctx,
                     struct brig_err *err) MUST_CHECK;
/* Deleting an object that is not there is no error. */
int store_delete_object(struct store *store, const char *kind, const char *org_id, const char *name,
                        store_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
int store_put_audit_head(struct store *store, uint64_t seq, const char *hash, int64_t time_ns, store_done_fn *done,
                         void *ctx, struct brig_err *err) MUST_CHECK;
/* Retention: runs and certificates older than before_ns, or the oldest until their docs take at most max_bytes
 * (0: no limit); idempotency rows before. What still runs stays. Deletes in batches, other writes go in between. */
int store_prune(struct store *store, int64_t before_ns, uint64_t max_bytes, int64_t idempotency_before_ns,
                store_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
/* After a crash: runs without an end are closed as cause at now, in the document too (outcome, ended_at). Before new
 * runs are written. */
int store_close_open_runs(struct store *store, const char *cause, int64_t now_ns, store_done_fn *done, void *ctx,
                          struct brig_err *err) MUST_CHECK;
/* Writes nothing: done comes when all that was queued before has been committed, or has failed. */
int store_settle(struct store *store, store_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;

/* ---- reads at start: synchronous, before the loop runs ------------------------------------------------- */
/*
 * each returns 0, or a negative errno that ends the reading with it. Keys come by organisation, the oldest of each
 * first.
 */
int store_each_org(struct store *store, int (*each)(void *ctx, const struct store_org *org), void *ctx,
                   struct brig_err *err) MUST_CHECK;
int store_each_key(struct store *store, int (*each)(void *ctx, const struct store_key *key), void *ctx,
                   struct brig_err *err) MUST_CHECK;
int store_each_sandbox(struct store *store, int (*each)(void *ctx, const struct store_sandbox *sandbox), void *ctx,
                       struct brig_err *err) MUST_CHECK;
int store_each_idempotency(struct store *store, int (*each)(void *ctx, const struct store_idempotency *row), void *ctx,
                           struct brig_err *err) MUST_CHECK;
int store_each_object(struct store *store, const char *kind, int (*each)(void *ctx, const struct store_object *object),
                      void *ctx, struct brig_err *err) MUST_CHECK;
int store_audit_head(struct store *store, uint64_t *ret_seq, char ret_hash[65], int64_t *ret_time_ns,
                     struct brig_err *err) MUST_CHECK; /* seq 0: none */

/*
 * The same of a data base that this process does not otherwise open, beside a daemon or without one: seq 0 when there
 * is none. BRIG_E_NOT_FOUND when there is no data base.
 */
int store_peek_audit_head(const char *url, uint64_t *ret_seq, char ret_hash[65], struct brig_err *err) MUST_CHECK;

/* ---- reads for requests: on the worker pool, the callback on the loop ---------------------------------- */

struct store_query {
    const char *org_id;         /* required; "" only for the administrator's view of all */
    const char *id;             /* one row, or NULL */
    const char *sandbox_id;     /* or NULL */
    const char *cause;          /* or NULL; "" is "still running" */
    int64_t since_ns, until_ns; /* since <= time < until; 0: no bound. A run's start, a certificate's end */
    const char *after;          /* the cursor: id of the last row of the page before, or NULL */
    unsigned limit;             /* 1 .. 1000; newest first */
};
/* rows: n documents (JSON objects), valid during the call; more: there is another page. err: then n is 0. */
typedef void store_rows_fn(void *ctx, const char *const *docs, const char *const *ids, size_t n, bool more,
                           const struct brig_err *err);
int store_find_runs(struct store *store, const struct store_query *query, store_rows_fn *done, void *ctx,
                    struct brig_err *err) MUST_CHECK;
int store_find_certificates(struct store *store, const struct store_query *query, store_rows_fn *done, void *ctx,
                            struct brig_err *err) MUST_CHECK;

/* For /metrics and /readyz. */
struct store_health {
    bool ok;
    unsigned queued;
    uint64_t commits, failures;
    char last_error[256];
};
void store_health(const struct store *store, struct store_health *ret);

#endif
