/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PostgreSQL behind the store, by libpq. Text goes as text, hashes as binary, results come binary (so bytes need no
 * escaping and integers no parsing), row by row.
 *
 * One brigd at a time: a session-level advisory lock, held by the very connection that writes, so that whoever lost the
 * lock has also lost the ability to write. A session whose client vanished is found dead by TCP within half a minute;
 * our own dead one, after the network broke, is known by its application_name and is ended by us. Both need a session
 * that is ours from begin to end: a pooler in transaction mode cannot be used.
 *
 * When the server goes away every call fails with `lost` set; connecting again is the caller's business
 * (store_writer.c).
 */
#include <endian.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/store_ops.h"

#define SQL_TEXT_MAX 4096u
#define SERVER_MIN 120000
#define OID_BYTEA 17u
#define OID_INT8 20u
#define OID_INT4 23u
/* hashtext(): two stores in two schemas of one data base do not meet. */
#define LOCK_KEY "1651665255, hashtext(current_schema())"
#define LOCK_HOLDER                                                                                         \
    " FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid WHERE l.locktype = 'advisory' AND l.granted" \
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"                    \
    " AND l.classid = 1651665255 AND l.objid::bigint = hashtext(current_schema())::bigint & 4294967295"

struct pg_conn {
    struct store_conn base;
    PGconn *pg;
    bool prepared[SQL_MAX];
};

/* Who we are to the server and to the next brigd: one name per process. */
static const char *own_name(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char name[64];
    static pid_t made_by;
    char host[24] = "", unique[ID_SANDBOX_SIZE] = "";

    pthread_mutex_lock(&lock);
    if (made_by != getpid() && id_sandbox(unique) == 0) {
        gethostname(host, sizeof host - 1);
        if (str_format(name, sizeof name, "brigd/%d@%s/%.12s", (int)getpid(), host, unique) > 0)
            made_by = getpid();
    }
    pthread_mutex_unlock(&lock);
    return name;
}

/* ---- errors ------------------------------------------------------------------------------------------- */

/* One line: libpq's end with a newline, and some have details below. */
static int said(struct brig_err *err, enum brig_code code, int errnum, const char *text)
{
    while (*text == ' ' || *text == '\n')
        text++;
    return err_set(err, code, errnum, "database: %.*s", (int)strcspn(text, "\n"), text);
}

static const struct {
    const char *state; /* a prefix of SQLSTATE */
    enum brig_code code;
    int errnum;
    bool lost;
} states[] = {
    {"08", BRIG_E_BUSY, ENOTCONN, true},       {"57P01", BRIG_E_BUSY, ENOTCONN, true},
    {"57P02", BRIG_E_BUSY, ENOTCONN, true},    {"57P03", BRIG_E_BUSY, ENOTCONN, true},
    {"57P05", BRIG_E_BUSY, ENOTCONN, true},    {"25006", BRIG_E_BUSY, EROFS, true},
    {"22", BRIG_E_USAGE, EINVAL, false},       {"23", BRIG_E_CONFLICT, EEXIST, false},
    {"53100", BRIG_E_HOST, ENOSPC, false},     {"53200", BRIG_E_NOMEM, ENOMEM, false},
    {"53", BRIG_E_BUSY, EBUSY, false},         {"40", BRIG_E_BUSY, EBUSY, false},
    {"55P03", BRIG_E_BUSY, EBUSY, false},      {"57014", BRIG_E_TIMEOUT, ETIMEDOUT, false},
    {"54000", BRIG_E_TOO_LARGE, EFBIG, false}, {"58030", BRIG_E_HOST, EIO, false},
    {"28", BRIG_E_HOST, EACCES, false},        {"42501", BRIG_E_HOST, EACCES, false},
};

static int failed(struct pg_conn *conn, const PGresult *result, struct brig_err *err)
{
    const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    const char *text = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;

    if (PQstatus(conn->pg) == CONNECTION_BAD)
        conn->base.lost = true;
    if (!text)
        text = result && *PQresultErrorMessage(result) ? PQresultErrorMessage(result) : PQerrorMessage(conn->pg);
    for (size_t i = 0; state && i < ARRAY_SIZE(states); i++) {
        if (str_starts(state, states[i].state)) {
            conn->base.lost = conn->base.lost || states[i].lost;
            return said(err, states[i].code, states[i].errnum, text);
        }
    }
    return conn->base.lost ? said(err, BRIG_E_BUSY, ENOTCONN, text) : said(err, BRIG_E_HOST, EIO, text);
}

static void clear_result(PGresult **result)
{
    PQclear(*result);
}
#define AUTO_RESULT __attribute__((cleanup(clear_result)))

/* ---- statements --------------------------------------------------------------------------------------- */

static int pg_script(struct store_conn *base, const char *sql, struct brig_err *err)
{
    struct pg_conn *conn = (struct pg_conn *)base;
    AUTO_RESULT PGresult *result = PQexec(conn->pg, sql);
    ExecStatusType status = PQresultStatus(result);

    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ? 0 : failed(conn, result, err);
}

static int pg_commit(struct store_conn *base, struct brig_err *err)
{
    struct pg_conn *conn = (struct pg_conn *)base;
    AUTO_RESULT PGresult *result = PQexec(conn->pg, "COMMIT");

    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        return failed(conn, result, err);
    if (!str_eq(PQcmdStatus(result), "COMMIT")) /* a transaction that had failed answers ROLLBACK, without an error */
        return err_set(err, BRIG_E_HOST, EIO, "database: the server rolled the transaction back");
    return 0;
}

static void pg_rollback(struct store_conn *base)
{
    struct pg_conn *conn = (struct pg_conn *)base;

    if (PQstatus(conn->pg) != CONNECTION_OK || PQtransactionStatus(conn->pg) == PQTRANS_IDLE)
        return;
    PQclear(PQexec(conn->pg, "ROLLBACK"));
    if (PQtransactionStatus(conn->pg) != PQTRANS_IDLE)
        base->lost = true;
}

static int prepare(struct pg_conn *conn, unsigned sql, const char *name, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(SQL_TEXT_MAX);

    if (conn->prepared[sql])
        return 0;
    if (store_sql_text(STORE_DIALECT_PG, sql, &text) < 0)
        return err_nomem(err);
    AUTO_RESULT PGresult *result = PQprepare(conn->pg, name, text.data, 0, NULL);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        return failed(conn, result, err);
    conn->prepared[sql] = true;
    return 0;
}

static int send_query(struct pg_conn *conn, const char *name, const struct store_value *args, size_t n,
                      struct brig_err *err)
{
    const char *values[STORE_COLS_MAX];
    int lengths[STORE_COLS_MAX], formats[STORE_COLS_MAX];
    char numbers[STORE_COLS_MAX][24];

    for (size_t i = 0; i < n; i++) {
        values[i] = args[i].type == STORE_NULL ? NULL : args[i].data;
        if (args[i].type == STORE_INT) {
            snprintf(numbers[i], sizeof numbers[i], "%" PRId64, args[i].number);
            values[i] = numbers[i];
        }
        lengths[i] = (int)args[i].len;
        formats[i] = args[i].type == STORE_BLOB;
    }
    if (!PQsendQueryPrepared(conn->pg, name, (int)n, values, lengths, formats, 1))
        return failed(conn, NULL, err);
    return 0;
}

static int take_row(const PGresult *result, int at, store_row_fn *fn, void *ctx, struct brig_err *err)
{
    struct store_value row[STORE_COLS_MAX] = {0};
    int n = PQnfields(result);

    for (int i = 0; i < n && i < (int)STORE_COLS_MAX; i++) {
        const char *value = PQgetvalue(result, at, i);
        if (PQgetisnull(result, at, i))
            continue;
        row[i].len = (size_t)PQgetlength(result, at, i);
        row[i].data = value;
        row[i].type = PQftype(result, i) == OID_BYTEA ? STORE_BLOB : STORE_TEXT;
        if (PQftype(result, i) == OID_INT8 || PQftype(result, i) == OID_INT4) {
            uint64_t wide = 0;
            uint32_t narrow = 0;
            row[i].type = STORE_INT;
            if (row[i].len == sizeof wide) {
                memcpy(&wide, value, sizeof wide);
                row[i].number = (int64_t)be64toh(wide);
            } else {
                memcpy(&narrow, value, sizeof narrow);
                row[i].number = (int32_t)be32toh(narrow);
            }
        }
    }
    return fn(ctx, row, (size_t)n, err);
}

static int pg_run(struct store_conn *base, unsigned sql, const struct store_value *args, size_t n, store_row_fn *row,
                  void *ctx, struct brig_err *err)
{
    struct pg_conn *conn = (struct pg_conn *)base;
    char name[16];
    PGresult *result;

    snprintf(name, sizeof name, "s%u", sql);
    int r = prepare(conn, sql, name, err);
    if (r == 0)
        r = send_query(conn, name, args, n, err);
    if (r < 0)
        return r;
    if (row && !PQsetSingleRowMode(conn->pg))
        row = NULL, r = failed(conn, NULL, err);
    while ((result = PQgetResult(conn->pg))) { /* to the end, also after a failure: else the connection is not usable */
        ExecStatusType status = PQresultStatus(result);
        if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
            const char *count = PQcmdTuples(result);
            base->changed = strtoll(count, NULL, 10);
        } else if (status != PGRES_SINGLE_TUPLE && r == 0) {
            r = failed(conn, result, err);
        }
        for (int i = 0; row && r == 0 && i < PQntuples(result); i++) {
            int answer = take_row(result, i, row, ctx, err);
            if (answer != 0)
                row = NULL;
            if (answer < 0)
                r = answer;
        }
        PQclear(result);
        if (PQstatus(conn->pg) == CONNECTION_BAD) {
            base->lost = true;
            return r < 0 ? r : failed(conn, NULL, err);
        }
    }
    return r;
}

/* ---- connections -------------------------------------------------------------------------------------- */

static void pg_close(struct store_conn *base)
{
    struct pg_conn *conn = (struct pg_conn *)base;

    if (!conn)
        return;
    PQfinish(conn->pg);
    mem_free(conn);
}

static void no_notice(void *arg, const char *message)
{
    (void)arg, (void)message; /* libpq would print it */
}

/* 1: it is ours, 0: another has it. */
static int try_lock(struct pg_conn *conn, struct brig_err *err)
{
    AUTO_RESULT PGresult *result = PQexec(conn->pg, "SELECT pg_try_advisory_lock(" LOCK_KEY ")");

    if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) != 1)
        return failed(conn, result, err);
    if (*PQgetvalue(result, 0, 0) == 't')
        return 1;
    const char *const us[] = {own_name()};
    PQclear(PQexecParams(conn->pg,
                         "SELECT pg_terminate_backend(a.pid)" LOCK_HOLDER
                         " AND a.application_name = $1 AND a.pid <> pg_backend_pid()",
                         1, NULL, us, NULL, NULL, 0));
    return 0;
}

static int take_lock(struct pg_conn *conn, struct brig_err *err)
{
    const uint64_t give_up = clock_mono_ns() + STORE_LOCK_WAIT_MS * NS_PER_MS;
    int r;

    while ((r = try_lock(conn, err)) == 0) {
        if (clock_mono_ns() > give_up) {
            AUTO_RESULT PGresult *who = PQexec(
                conn->pg, "SELECT a.application_name, coalesce(host(a.client_addr), 'its own machine')" LOCK_HOLDER);
            bool known = PQresultStatus(who) == PGRES_TUPLES_OK && PQntuples(who) > 0;
            return err_set(err, BRIG_E_REFUSED, 0, "the database is in use by another brigd (%s, connected from %s)",
                           known ? PQgetvalue(who, 0, 0) : "unknown", known ? PQgetvalue(who, 0, 1) : "unknown");
        }
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    }
    return r < 0 ? r : 0;
}

static int set_up(struct pg_conn *conn, bool writer, struct brig_err *err)
{
    const char *encoding = PQparameterStatus(conn->pg, "server_encoding");

    PQsetNoticeProcessor(conn->pg, no_notice, NULL);
    if (PQserverVersion(conn->pg) < SERVER_MIN)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "database: PostgreSQL %d is too old; 12 is the oldest",
                       PQserverVersion(conn->pg) / 10000);
    if (!encoding || !str_eq(encoding, "UTF8"))
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "database: its encoding is %s, it must be UTF8",
                       encoding ? encoding : "unknown");
    if (!writer)
        return pg_script(&conn->base, "SET default_transaction_read_only = on; SET statement_timeout = '30s'", err);
    /* lock_timeout: somebody's open transaction must not hold every request. The rest: a lock of the dead is found
     * soon. */
    int r = pg_script(
        &conn->base,
        "SET lock_timeout = '10s'; SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET "
        "tcp_keepalives_count = 3;"
        " SET tcp_user_timeout = '30s';"
        " SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
        err);
    return r < 0 ? r : take_lock(conn, err);
}

static int pg_open(const char *url, bool writer, struct store_conn **ret, struct brig_err *err)
{
    /* What stands before dbname are defaults that the URL may change; what follows it is not up for choice. */
    const char *const names[] = {"connect_timeout",  "keepalives_idle",  "keepalives_interval",
                                 "keepalives_count", "tcp_user_timeout", "dbname",
                                 "application_name", "client_encoding",  NULL};
    const char *const values[] = {"5", "10", "5", "3", "15000", url, own_name(), "UTF8", NULL};
    struct pg_conn *conn = mem_zalloc(sizeof *conn);
    int r;

    if (!conn)
        return err_nomem(err);
    conn->pg = PQconnectdbParams(names, values, 1);
    if (!conn->pg)
        r = err_nomem(err);
    else if (PQstatus(conn->pg) != CONNECTION_OK)
        r = said(err, BRIG_E_BUSY, ENOTCONN, PQerrorMessage(conn->pg));
    else
        r = set_up(conn, writer, err);
    if (r < 0)
        return pg_close(&conn->base), r;
    *ret = &conn->base;
    return 0;
}

const struct store_ops store_pg_ops = {
    .dialect = STORE_DIALECT_PG,
    .begin = "BEGIN",
    .ping_ms = 5000,
    .open = pg_open,
    .close = pg_close,
    .script = pg_script,
    .run = pg_run,
    .commit = pg_commit,
    .rollback = pg_rollback,
};
