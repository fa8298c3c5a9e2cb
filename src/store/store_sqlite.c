/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite behind the store. WAL, so that readers never wait for the writer; synchronous=FULL, so that what was committed
 * survives a power cut. The file is private to its owner from the first moment.
 *
 * One brigd at a time: a record lock on FILE-lock. Not flock(), which a forked child would go on holding, and not on
 * the data base itself, where closing any other descriptor would drop SQLite's own locks. fcntl() locks do not conflict
 * inside one process: two stores on one file in one process are not noticed.
 */
#include <fcntl.h>
#include <sqlite3.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/store_ops.h"

#define SQL_TEXT_MAX 4096u
#define BUSY_MS 5000

struct sqlite_conn {
    struct store_conn base;
    sqlite3 *db;
    int lock_fd; /* the writer's; else -1 */
    sqlite3_stmt *stmts[SQL_MAX];
};

/* What SQLite said, as ours. Extended codes are on, so the low byte is the family. */
static int failed(struct sqlite_conn *conn, const char *doing, struct brig_err *err)
{
    const int code = sqlite3_errcode(conn->db), os = sqlite3_system_errno(conn->db);
    const char *text = sqlite3_errmsg(conn->db);

    switch (code & 0xff) {
    case SQLITE_FULL: return err_set(err, BRIG_E_HOST, ENOSPC, "database: %s", doing);
    case SQLITE_NOMEM: return err_nomem(err);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set(err, BRIG_E_BUSY, EBUSY, "database: %s: another program holds a lock on it", doing);
    case SQLITE_READONLY: return err_set(err, BRIG_E_HOST, EROFS, "database: %s", doing);
    case SQLITE_CONSTRAINT: return err_set(err, BRIG_E_CONFLICT, EEXIST, "database: %s", text);
    case SQLITE_TOOBIG: return err_set(err, BRIG_E_TOO_LARGE, EFBIG, "database: %s", text);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return err_set(err, BRIG_E_HOST, EBADMSG, "database: %s: %s", doing, text);
    case SQLITE_IOERR:
        conn->base.lost = true; /* what its page cache believes is not worth a guess */
        return err_set(err, BRIG_E_HOST, os == ENOSPC || os == EDQUOT ? os : EIO, "database: %s: %s", doing, text);
    case SQLITE_CANTOPEN: return err_set(err, BRIG_E_HOST, os > 0 ? os : EIO, "database: %s: %s", doing, text);
    default: return err_set(err, BRIG_E_HOST, EIO, "database: %s: %s", doing, text);
    }
}

static int sqlite_script(struct store_conn *base, const char *sql, struct brig_err *err)
{
    struct sqlite_conn *conn = (struct sqlite_conn *)base;

    return sqlite3_exec(conn->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : failed(conn, "script", err);
}

static int sqlite_commit(struct store_conn *base, struct brig_err *err)
{
    struct sqlite_conn *conn = (struct sqlite_conn *)base;

    return sqlite3_exec(conn->db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK ? 0 : failed(conn, "commit", err);
}

static void sqlite_rollback(struct store_conn *base)
{
    struct sqlite_conn *conn = (struct sqlite_conn *)base;

    /* Some errors have rolled back by themselves. */
    if (!sqlite3_get_autocommit(conn->db) && sqlite3_exec(conn->db, "ROLLBACK", NULL, NULL, NULL) != SQLITE_OK)
        base->lost = true;
}

/* ---- statements --------------------------------------------------------------------------------------- */

static int prepare(struct sqlite_conn *conn, unsigned sql, sqlite3_stmt **ret, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(SQL_TEXT_MAX);

    if (!conn->stmts[sql]) {
        if (store_sql_text(STORE_DIALECT_SQLITE, sql, &text) < 0)
            return err_nomem(err);
        /* $7 would be a name to SQLite, counted by appearance; ?7 is the seventh parameter. */
        for (char *at = text.data; *at; at++)
            *at = *at == '$' ? '?' : *at;
        if (sqlite3_prepare_v3(conn->db, text.data, -1, SQLITE_PREPARE_PERSISTENT, &conn->stmts[sql], NULL) !=
            SQLITE_OK)
            return failed(conn, "prepare", err);
    }
    *ret = conn->stmts[sql];
    return 0;
}

static int bind(sqlite3_stmt *stmt, int at, const struct store_value *value)
{
    switch (value->type) {
    case STORE_INT: return sqlite3_bind_int64(stmt, at, value->number);
    case STORE_TEXT: return sqlite3_bind_text64(stmt, at, value->data, value->len, SQLITE_STATIC, SQLITE_UTF8);
    case STORE_BLOB: return sqlite3_bind_blob64(stmt, at, value->data, value->len, SQLITE_STATIC);
    default: return sqlite3_bind_null(stmt, at);
    }
}

static int take_row(struct sqlite_conn *conn, sqlite3_stmt *stmt, store_row_fn *fn, void *ctx, struct brig_err *err)
{
    struct store_value row[STORE_COLS_MAX] = {0};
    int n = sqlite3_column_count(stmt);

    for (int i = 0; i < n && i < (int)STORE_COLS_MAX; i++) {
        switch (sqlite3_column_type(stmt, i)) {
        case SQLITE_INTEGER:
            row[i].type = STORE_INT;
            row[i].number = sqlite3_column_int64(stmt, i);
            break;
        case SQLITE_TEXT:
            row[i].type = STORE_TEXT;
            row[i].data = sqlite3_column_text(stmt, i);
            break;
        case SQLITE_BLOB:
            row[i].type = STORE_BLOB;
            row[i].data = sqlite3_column_blob(stmt, i);
            break;
        default: break;
        }
        if (row[i].type == STORE_TEXT || row[i].type == STORE_BLOB) {
            row[i].len = (size_t)sqlite3_column_bytes(stmt, i);
            if (!row[i].data && sqlite3_errcode(conn->db) == SQLITE_NOMEM)
                return err_nomem(err);
        }
    }
    return fn(ctx, row, (size_t)n, err);
}

static int sqlite_run(struct store_conn *base, unsigned sql, const struct store_value *args, size_t n,
                      store_row_fn *row, void *ctx, struct brig_err *err)
{
    struct sqlite_conn *conn = (struct sqlite_conn *)base;
    sqlite3_stmt *stmt = NULL;
    int r = prepare(conn, sql, &stmt, err), code;

    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++)
        if (bind(stmt, (int)i + 1, &args[i]) != SQLITE_OK)
            r = failed(conn, "bind", err);
    bool wanted = row != NULL;
    while (r == 0 && (code = sqlite3_step(stmt)) != SQLITE_DONE) {
        if (code != SQLITE_ROW) {
            r = failed(conn, "statement", err);
            break;
        }
        int answer = wanted ? take_row(conn, stmt, row, ctx, err) : 0;
        if (answer < 0)
            r = answer;
        else if (answer > 0 && sqlite3_stmt_readonly(stmt))
            break;
        else if (answer > 0)
            wanted = false; /* a DELETE with RETURNING is carried to its end */
    }
    base->changed = sqlite3_changes64(conn->db);
    sqlite3_reset(stmt); /* repeats the error that was already told */
    sqlite3_clear_bindings(stmt);
    return r;
}

/* ---- connections -------------------------------------------------------------------------------------- */

static void sqlite_close(struct store_conn *base)
{
    struct sqlite_conn *conn = (struct sqlite_conn *)base;

    if (!conn)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(conn->stmts); i++)
        sqlite3_finalize(conn->stmts[i]);
    sqlite3_close(conn->db);
    base_close_fd(&conn->lock_fd);
    mem_free(conn);
}

/* Holds FILE-lock as long as the descriptor is open. */
static int take_lock(const char *path, int *ret, struct brig_err *err)
{
    char name[4096];
    const uint64_t give_up = clock_mono_ns() + STORE_LOCK_WAIT_MS * NS_PER_MS;

    if (str_format(name, sizeof name, "%s-lock", path) < 0)
        return err_usage(err, "database: the path is too long");
    AUTO_FD int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
    if (fd < 0)
        return err_host(err, "database: %s", name);
    for (;;) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET}, holder = lock;
        if (fcntl(fd, F_SETLK, &lock) == 0)
            break;
        if (errno != EAGAIN && errno != EACCES)
            return err_host(err, "database: lock %s", name);
        if (clock_mono_ns() > give_up) {
            if (fcntl(fd, F_GETLK, &holder) < 0 || holder.l_type == F_UNLCK)
                holder.l_pid = 0;
            return err_set(err, BRIG_E_REFUSED, 0, "the database %s is in use by another brigd (process %d)", path,
                           (int)holder.l_pid);
        }
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    }
    *ret = take_fd(&fd);
    return 0;
}

static int take_mode(void *ctx, int n, char **columns, char **names UNUSED)
{
    *(bool *)ctx = n == 1 && columns[0] && str_eq(columns[0], "wal");
    return 0;
}

static int set_up(struct sqlite_conn *conn, const char *path, bool writer, struct brig_err *err)
{
    bool wal = false;

    sqlite3_extended_result_codes(conn->db, 1);
    sqlite3_busy_timeout(conn->db, BUSY_MS);
    sqlite3_db_config(conn->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(conn->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    if (sqlite3_exec(conn->db, "PRAGMA journal_mode = WAL", take_mode, &wal, NULL) != SQLITE_OK)
        return failed(conn, path, err);
    if (!wal)
        return err_set(err, BRIG_E_UNSUPPORTED, 0,
                       "database %s: SQLite cannot use a write-ahead log on this file system", path);
    if (sqlite3_exec(conn->db,
                     "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY; PRAGMA "
                     "journal_size_limit = 67108864",
                     NULL, NULL, NULL) != SQLITE_OK)
        return failed(conn, path, err);
    return writer ? 0 : sqlite_script(&conn->base, "PRAGMA query_only = ON", err);
}

/*
 * SQLite would make the file readable by everybody; its log takes the mode from here. Only a file that is not there yet
 * is opened: closing another descriptor of it would drop the locks of our own readers.
 */
static int make_file(const char *path, struct brig_err *err)
{
    AUTO_FD int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0600);

    return fd >= 0 || errno == EEXIST ? 0 : err_host(err, "database: %s", path);
}

static int sqlite_open(const char *url, bool writer, struct store_conn **ret, struct brig_err *err)
{
    const char *path = strchr(url, ':') + 1;
    int r = 0;

    if (path[0] != '/')
        return err_usage(err, "database: sqlite:%s: the path must be absolute", path);
    if (sqlite3_threadsafe() == 0)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "database: this SQLite was built without threads");
    struct sqlite_conn *conn = mem_zalloc(sizeof *conn);
    if (!conn)
        return err_nomem(err);
    conn->lock_fd = -1;
    if (writer)
        r = take_lock(path, &conn->lock_fd, err);
    if (r == 0 && writer)
        r = make_file(path, err);
    if (r == 0 &&
        sqlite3_open_v2(path, &conn->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
                        NULL) != SQLITE_OK)
        r = conn->db ? failed(conn, path, err) : err_nomem(err);
    if (r == 0)
        r = set_up(conn, path, writer, err);
    if (r < 0)
        return sqlite_close(&conn->base), r;
    *ret = &conn->base;
    return 0;
}

const struct store_ops store_sqlite_ops = {
    .dialect = STORE_DIALECT_SQLITE,
    .begin = "BEGIN IMMEDIATE",
    .open = sqlite_open,
    .close = sqlite_close,
    .script = sqlite_script,
    .run = sqlite_run,
    .commit = sqlite_commit,
    .rollback = sqlite_rollback,
};
