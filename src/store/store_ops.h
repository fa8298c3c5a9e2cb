/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_ops.h: the seam between the store and its two data bases. A back end opens connections and runs the statements
 * of store_sql.c, which both understand; what to write, when, in which transaction, is decided above (store_writer.c).
 *
 * A connection is used by one thread at a time. Statements are prepared when first used and kept. Every failure
 * is told as errno and brig_err, in two families:
 *   the row's    BRIG_E_CONFLICT, BRIG_E_USAGE, BRIG_E_TOO_LARGE: this write is at fault, others of its group are not
 *   the place's  everything else: -ENOSPC, -EIO, -EBUSY ...; `lost` tells that the connection is of no more use
 */
#ifndef BRIG_STORE_STORE_OPS_H
#define BRIG_STORE_STORE_OPS_H

#include <brig.h>

#include "base/buf.h"

#define STORE_COLS_MAX 12u
#define STORE_LOCK_WAIT_MS 2000 /* for a brigd that is on its way out */

enum store_type { STORE_NULL, STORE_INT, STORE_TEXT, STORE_BLOB, STORE_TYPE_MAX };
struct store_value {
    enum store_type type;
    int64_t number;
    const void *data; /* text: NUL-terminated */
    size_t len;
};

enum store_dialect { STORE_DIALECT_SQLITE, STORE_DIALECT_PG, STORE_DIALECT_MAX };

enum store_sql {
    SQL_HAS_META,
    SQL_META_GET,
    SQL_META_PUT,
    SQL_PROBE,
    SQL_PUT_ORG,
    SQL_ORG_SANDBOXES,
    SQL_DELETE_ORG_IDEMPOTENCY,
    SQL_DELETE_ORG,
    SQL_PUT_KEY,
    SQL_FORGET_KEYS,
    SQL_PUT_SANDBOX,
    SQL_DELETE_SANDBOX,
    SQL_PUT_CERTIFICATE,
    SQL_PUT_RUN,
    SQL_PUT_IDEMPOTENCY,
    SQL_PUT_OBJECT,
    SQL_DELETE_OBJECT,
    SQL_PUT_AUDIT_HEAD,
    SQL_DOC_BYTES,
    SQL_PRUNE_IDEMPOTENCY,
    SQL_PRUNE_RUNS,
    SQL_PRUNE_CERTIFICATES,
    SQL_HEAVIEST_ORG,
    SQL_OLDEST_RUNS,
    SQL_OLDEST_CERTIFICATES,
    SQL_CUT_RUNS,
    SQL_CUT_CERTIFICATES,
    SQL_OPEN_RUNS,
    SQL_CLOSE_RUN,
    SQL_EACH_ORG,
    SQL_EACH_KEY,
    SQL_EACH_SANDBOX,
    SQL_EACH_IDEMPOTENCY,
    SQL_EACH_OBJECT,
    SQL_AUDIT_HEAD,
    SQL_RUN_TIME,
    SQL_CERTIFICATE_TIME,
    SQL_FIXED_MAX,
    /* then one per combination of filters: SQL_FIND + bits */
    SQL_FIND = SQL_FIXED_MAX,
    SQL_MAX = SQL_FIND + 256
};
enum {
    FIND_ORG = 1,
    FIND_ID = 2,
    FIND_SANDBOX = 4,
    FIND_CAUSE = 8,
    FIND_SINCE = 16,
    FIND_UNTIL = 32,
    FIND_AFTER = 64,
    FIND_CERTIFICATES = 128
};

/* The statement's text with $1, $2 ... for its parameters. -ENOMEM. */
int store_sql_text(enum store_dialect dialect, unsigned sql, struct buf *out) MUST_CHECK;

/* 0: go on; 1: enough; negative: stop, and run() returns it. The row is valid during the call. */
typedef int store_row_fn(void *ctx, const struct store_value *row, size_t n, struct brig_err *err);

struct store_conn {  /* the back end's own follows */
    bool lost;       /* to be closed and opened again */
    int64_t changed; /* rows, by the last run() that gave none */
};

struct store_ops {
    enum store_dialect dialect;
    const char *begin; /* of a writing transaction */
    unsigned ping_ms;  /* how often an idle writer should look whether it is still connected; 0: never */
    /* The writer also takes the lock that makes it the only one: BRIG_E_REFUSED when another has it. */
    int (*open)(const char *url, bool writer, struct store_conn **ret, struct brig_err *err);
    void (*close)(struct store_conn *conn); /* takes NULL */
    /* our own text; no parameters, no rows */
    int (*script)(struct store_conn *conn, const char *sql, struct brig_err *err);
    int (*run)(struct store_conn *conn, unsigned sql, const struct store_value *args, size_t n, store_row_fn *row,
               void *ctx, struct brig_err *err);
    int (*commit)(struct store_conn *conn, struct brig_err *err);
    void (*rollback)(struct store_conn *conn); /* also when there is nothing to roll back */
};

extern const struct store_ops store_sqlite_ops, store_pg_ops;

static inline bool store_err_is_of_row(const struct brig_err *err)
{
    return err->code == BRIG_E_CONFLICT || err->code == BRIG_E_USAGE || err->code == BRIG_E_TOO_LARGE;
}

/* store_schema.c: brings the data base to STORE_SCHEMA in one transaction; refuses a newer one. */
int store_migrate(const struct store_ops *ops, struct store_conn *conn, struct brig_err *err) MUST_CHECK;

#ifdef BRIG_TEST
/* One step beyond what was released, so that tests see migrations that work and that fail. NULL: none. */
extern const char *store_test_migration;
#endif

#endif
