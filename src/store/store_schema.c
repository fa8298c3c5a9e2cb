/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema, as steps from one version to the next. A step that was released is never changed: what a program
 * finds in the field was made by exactly these texts (tests/fixtures/store has each version as a dump, and the tests
 * compare). All steps that are missing run in one transaction, so a failure leaves the data base as it was. There is no
 * way back: an older program refuses a newer schema.
 *
 * Times are nanoseconds since 1970. `bytes` is the length of `doc`, kept beside it so that summing never reads
 * documents. Text compares by bytes in both data bases (COLLATE "C"), which the order of pages relies on. Rows of an
 * organisation that is gone keep its id; ids are random and are not given twice.
 */
#include "base/err.h"
#include "base/parse.h"
#include "store/store.h"
#include "store/store_ops.h"

#define SCHEMA_INDEXES                                                              \
    "CREATE INDEX keys_org ON keys (org_id);"                                       \
    "CREATE INDEX sandboxes_org ON sandboxes (org_id);"                             \
    "CREATE INDEX runs_org ON runs (org_id, started_at, id);"                       \
    "CREATE INDEX runs_time ON runs (started_at, id, ended_at, bytes);"             \
    "CREATE INDEX runs_sandbox ON runs (sandbox_id, started_at, id);"               \
    "CREATE INDEX runs_open ON runs (id) WHERE ended_at = 0;"                       \
    "CREATE INDEX certificates_org ON certificates (org_id, ended_at, sandbox_id);" \
    "CREATE INDEX certificates_time ON certificates (ended_at, sandbox_id, bytes);" \
    "CREATE INDEX idempotency_time ON idempotency (created_at);"

static const char sqlite_1[] =
    "CREATE TABLE meta (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT;"
    "CREATE TABLE orgs (id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, created_at INTEGER NOT NULL, doc TEXT NOT "
    "NULL) STRICT;"
    "CREATE TABLE keys (id TEXT NOT NULL PRIMARY KEY, org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,"
    " name TEXT NOT NULL, hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32), hint TEXT NOT NULL,"
    " role TEXT NOT NULL CHECK (role IN ('admin', 'user', 'read-only')), created_at INTEGER NOT NULL,"
    " expires_at INTEGER NOT NULL, revoked_at INTEGER NOT NULL, doc TEXT NOT NULL) STRICT;"
    "CREATE TABLE sandboxes (id TEXT NOT NULL PRIMARY KEY, org_id TEXT NOT NULL, key_id TEXT NOT NULL, name TEXT "
    "NOT NULL,"
    " state TEXT NOT NULL, provider TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, doc TEXT "
    "NOT NULL) STRICT;"
    "CREATE TABLE runs (id TEXT NOT NULL PRIMARY KEY, org_id TEXT NOT NULL, sandbox_id TEXT NOT NULL, kind TEXT "
    "NOT NULL,"
    " cause TEXT NOT NULL, started_at INTEGER NOT NULL, ended_at INTEGER NOT NULL, bytes INTEGER NOT NULL, doc TEXT "
    "NOT NULL) STRICT;"
    "CREATE TABLE certificates (sandbox_id TEXT NOT NULL PRIMARY KEY, org_id TEXT NOT NULL, cause TEXT NOT NULL,"
    " ended_at INTEGER NOT NULL, bytes INTEGER NOT NULL, doc TEXT NOT NULL) STRICT;"
    "CREATE TABLE idempotency (org_id TEXT NOT NULL, key TEXT NOT NULL, fingerprint BLOB NOT NULL CHECK "
    "(length(fingerprint) = 32),"
    " created_at INTEGER NOT NULL, status INTEGER NOT NULL, doc TEXT NOT NULL, PRIMARY KEY (org_id, key)) STRICT;"
    "CREATE TABLE audit_head (one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, hash TEXT "
    "NOT NULL,"
    " time INTEGER NOT NULL) STRICT;" SCHEMA_INDEXES;

#define PG_TEXT "TEXT COLLATE \"C\" NOT NULL"
static const char pg_1[] =
    "CREATE TABLE meta (key " PG_TEXT " PRIMARY KEY, value " PG_TEXT ");"
    "CREATE TABLE orgs (id " PG_TEXT " PRIMARY KEY, name " PG_TEXT ", created_at BIGINT NOT NULL, doc " PG_TEXT ");"
    "CREATE TABLE keys (id " PG_TEXT " PRIMARY KEY, org_id " PG_TEXT " REFERENCES orgs (id) ON DELETE CASCADE,"
    " name " PG_TEXT ", hash BYTEA NOT NULL UNIQUE CHECK (length(hash) = 32), hint " PG_TEXT ","
    " role " PG_TEXT " CHECK (role IN ('admin', 'user', 'read-only')), created_at BIGINT NOT NULL,"
    " expires_at BIGINT NOT NULL, revoked_at BIGINT NOT NULL, doc " PG_TEXT ");"
    "CREATE TABLE sandboxes (id " PG_TEXT " PRIMARY KEY, org_id " PG_TEXT ", key_id " PG_TEXT ", name " PG_TEXT ","
    " state " PG_TEXT ", provider " PG_TEXT ", created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, doc " PG_TEXT
    ");"
    "CREATE TABLE runs (id " PG_TEXT " PRIMARY KEY, org_id " PG_TEXT ", sandbox_id " PG_TEXT ", kind " PG_TEXT ","
    " cause " PG_TEXT ", started_at BIGINT NOT NULL, ended_at BIGINT NOT NULL, bytes BIGINT NOT NULL, doc " PG_TEXT ");"
    "CREATE TABLE certificates (sandbox_id " PG_TEXT " PRIMARY KEY, org_id " PG_TEXT ", cause " PG_TEXT ","
    " ended_at BIGINT NOT NULL, bytes BIGINT NOT NULL, doc " PG_TEXT ");"
    "CREATE TABLE idempotency (org_id " PG_TEXT ", key " PG_TEXT
    ", fingerprint BYTEA NOT NULL CHECK (length(fingerprint) = 32),"
    " created_at BIGINT NOT NULL, status BIGINT NOT NULL, doc " PG_TEXT ", PRIMARY KEY (org_id, key));"
    "CREATE TABLE audit_head (one BIGINT NOT NULL PRIMARY KEY CHECK (one = 1), seq BIGINT NOT NULL, hash " PG_TEXT ","
    " time BIGINT NOT NULL);" SCHEMA_INDEXES;

/* Small named things of an organisation, told apart by `kind`: policies, secrets. */
#define OBJECTS(text, number)                                                                                     \
    "CREATE TABLE objects (kind " text ", org_id " text " REFERENCES orgs (id) ON DELETE CASCADE, name " text "," \
    " version " number " NOT NULL, created_at " number " NOT NULL, updated_at " number " NOT NULL, doc " text "," \
    " PRIMARY KEY (kind, org_id, name))"

static const char sqlite_2[] =
    OBJECTS("TEXT NOT NULL", "INTEGER") " STRICT; CREATE INDEX objects_org ON objects (org_id);";
static const char pg_2[] = OBJECTS(PG_TEXT, "BIGINT") "; CREATE INDEX objects_org ON objects (org_id);";

/* Who has how much of the receipts and certificates is summed without reading them. */
static const char indexes_3[] = "DROP INDEX runs_org; DROP INDEX certificates_org;"
                                "CREATE INDEX runs_org ON runs (org_id, started_at, id, ended_at, bytes);"
                                "CREATE INDEX certificates_org ON certificates (org_id, ended_at, sandbox_id, bytes);";

/* steps[n] leads from version n to n + 1. */
static const char *const steps[][STORE_DIALECT_MAX] = {
    {[STORE_DIALECT_SQLITE] = sqlite_1, [STORE_DIALECT_PG] = pg_1},
    {[STORE_DIALECT_SQLITE] = sqlite_2, [STORE_DIALECT_PG] = pg_2},
    {[STORE_DIALECT_SQLITE] = indexes_3, [STORE_DIALECT_PG] = indexes_3},
};
_Static_assert(ARRAY_SIZE(steps) == STORE_SCHEMA, "one step per version");

#ifdef BRIG_TEST
const char *store_test_migration;
#endif

static unsigned newest(void)
{
#ifdef BRIG_TEST
    if (store_test_migration)
        return STORE_SCHEMA + 1;
#endif
    return STORE_SCHEMA;
}

static const char *step(const struct store_ops *ops, unsigned from)
{
#ifdef BRIG_TEST
    if (from == STORE_SCHEMA)
        return store_test_migration;
#endif
    return steps[from][ops->dialect];
}

static int take_number(void *ctx, const struct store_value *row, size_t n UNUSED, struct brig_err *err UNUSED)
{
    *(int64_t *)ctx = row[0].number;
    return 1;
}

static int take_version(void *ctx, const struct store_value *row, size_t n UNUSED, struct brig_err *err)
{
    if (row[0].type != STORE_TEXT || parse_u32(row[0].data, ctx) < 0)
        return err_set(err, BRIG_E_REFUSED, 0, "the database has a table `meta` that is not brig's");
    return 1;
}

static int read_version(const struct store_ops *ops, struct store_conn *conn, uint32_t *ret, struct brig_err *err)
{
    const struct store_value key = {.type = STORE_TEXT, .data = "schema", .len = 6};
    int64_t has_meta = 0;
    int r = ops->run(conn, SQL_HAS_META, NULL, 0, take_number, &has_meta, err);

    *ret = 0;
    if (r < 0 || !has_meta)
        return r;
    *ret = UINT32_MAX;
    r = ops->run(conn, SQL_META_GET, &key, 1, take_version, ret, err);
    if (r == 0 && *ret == UINT32_MAX)
        r = err_set(err, BRIG_E_REFUSED, 0, "the database has a table `meta` that is not brig's");
    return r;
}

static int run_steps(const struct store_ops *ops, struct store_conn *conn, struct brig_err *err)
{
    uint32_t version;
    int r = read_version(ops, conn, &version, err);

    if (r < 0)
        return r;
    if (version > newest())
        return err_set(err, BRIG_E_REFUSED, 0, "the database has schema %u, this program knows up to %u", version,
                       newest());
    if (version == newest())
        return 0;
    for (uint32_t at = version; r == 0 && at < newest(); at++)
        r = ops->script(conn, step(ops, at), err);
    if (r < 0)
        return r;
    char text[16];
    int len = snprintf(text, sizeof text, "%u", newest());
    const struct store_value row[] = {{.type = STORE_TEXT, .data = "schema", .len = 6},
                                      {.type = STORE_TEXT, .data = text, .len = (size_t)len}};
    return ops->run(conn, SQL_META_PUT, row, ARRAY_SIZE(row), NULL, NULL, err);
}

int store_migrate(const struct store_ops *ops, struct store_conn *conn, struct brig_err *err)
{
    int r = ops->script(conn, ops->begin, err);

    if (r == 0)
        r = run_steps(ops, conn, err);
    if (r == 0)
        r = ops->commit(conn, err);
    if (r < 0)
        ops->rollback(conn);
    return r;
}
