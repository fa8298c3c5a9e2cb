/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every statement there is, in the SQL that SQLite and PostgreSQL share. Values come only as parameters; the text
 * of a search is put together from the constants below, never from what somebody asked for.
 *
 * Writing is upserting, so that a transaction of which nobody knows whether it was committed (the connection broke
 * during COMMIT) can simply be run again. A row never moves to another organisation, an ended run is never open again,
 * and the time a run started does not change, since pages are ordered by it.
 */
#include "store/store_ops.h"

/* clang-format off: columns */
static const char *const fixed[SQL_FIXED_MAX] = {
    [SQL_META_GET] = "SELECT value FROM meta WHERE key = $1",
    [SQL_META_PUT] =
        "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    [SQL_PROBE] = "UPDATE meta SET value = value WHERE key = 'schema'",

    [SQL_PUT_ORG] = "INSERT INTO orgs (id, name, created_at, doc) VALUES ($1, $2, $3, $4)"
                    " ON CONFLICT (id) DO UPDATE SET name = excluded.name, doc = excluded.doc",
    [SQL_ORG_SANDBOXES] = "SELECT count(*) FROM sandboxes WHERE org_id = $1",
    [SQL_DELETE_ORG_IDEMPOTENCY] = "DELETE FROM idempotency WHERE org_id = $1",
    [SQL_DELETE_ORG] = "DELETE FROM orgs WHERE id = $1",
    [SQL_PUT_KEY] =
        "INSERT INTO keys (id, org_id, name, hash, hint, role, created_at, expires_at, revoked_at, doc)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (id) DO UPDATE SET name = excluded.name, hash = "
        "excluded.hash,"
        " hint = excluded.hint, role = excluded.role, expires_at = excluded.expires_at, revoked_at = "
        "excluded.revoked_at, doc = excluded.doc"
        " WHERE keys.org_id = excluded.org_id",
    [SQL_FORGET_KEYS] =
        "DELETE FROM keys WHERE ($1 = '' OR org_id = $1) AND ((revoked_at <> 0 AND revoked_at < $2) OR (expires_at <> "
        "0 AND expires_at < $2))",
    [SQL_PUT_SANDBOX] =
        "INSERT INTO sandboxes (id, org_id, key_id, name, state, provider, created_at, updated_at, doc)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO UPDATE SET key_id = excluded.key_id, name = "
        "excluded.name,"
        " state = excluded.state, provider = excluded.provider, updated_at = excluded.updated_at, doc = excluded.doc"
        " WHERE sandboxes.org_id = excluded.org_id",
    [SQL_DELETE_SANDBOX] = "DELETE FROM sandboxes WHERE id = $1 AND org_id = $2",
    [SQL_PUT_CERTIFICATE] =
        "INSERT INTO certificates (sandbox_id, org_id, cause, ended_at, bytes, doc) VALUES ($1, $2, $3, $4, $5, $6)"
        " ON CONFLICT (sandbox_id) DO UPDATE SET cause = excluded.cause, ended_at = excluded.ended_at, bytes = "
        "excluded.bytes, doc = excluded.doc"
        " WHERE certificates.org_id = excluded.org_id",
    [SQL_PUT_RUN] =
        "INSERT INTO runs (id, org_id, sandbox_id, kind, cause, started_at, ended_at, bytes, doc)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, cause = "
        "excluded.cause,"
        " ended_at = excluded.ended_at, bytes = excluded.bytes, doc = excluded.doc"
        " WHERE runs.org_id = excluded.org_id AND (runs.ended_at = 0 OR excluded.ended_at <> 0)",
    [SQL_PUT_IDEMPOTENCY] =
        "INSERT INTO idempotency (org_id, key, fingerprint, created_at, status, doc) VALUES ($1, $2, $3, $4, $5, $6)"
        " ON CONFLICT (org_id, key) DO UPDATE SET fingerprint = excluded.fingerprint, created_at = excluded.created_at,"
        " status = excluded.status, doc = excluded.doc",
    [SQL_PUT_OBJECT] =
        "INSERT INTO objects (kind, org_id, name, version, created_at, updated_at, doc) VALUES ($1, $2, $3, $4, "
        "$5, $6, $7)"
        " ON CONFLICT (kind, org_id, name) DO UPDATE SET version = excluded.version, updated_at = excluded.updated_at, "
        "doc = excluded.doc",
    [SQL_DELETE_OBJECT] = "DELETE FROM objects WHERE kind = $1 AND org_id = $2 AND name = $3",
    [SQL_PUT_AUDIT_HEAD] =
        "INSERT INTO audit_head (one, seq, hash, time) VALUES (1, $1, $2, $3)"
        " ON CONFLICT (one) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, time = excluded.time",

    [SQL_DOC_BYTES] =
        "SELECT CAST((SELECT COALESCE(sum(bytes), 0) FROM runs) + (SELECT COALESCE(sum(bytes), 0) FROM certificates) "
        "AS BIGINT)",
    [SQL_PRUNE_IDEMPOTENCY] =
        "DELETE FROM idempotency WHERE (org_id, key) IN (SELECT org_id, key FROM idempotency WHERE created_at < $1 "
        "LIMIT $2)",
    /* What still runs stays, however old. */
    [SQL_PRUNE_RUNS] =
        "DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE started_at < $1 AND ended_at <> 0 AND ended_at < $1"
        " ORDER BY started_at, id LIMIT $2) RETURNING bytes",
    [SQL_PRUNE_CERTIFICATES] =
        "DELETE FROM certificates WHERE sandbox_id IN (SELECT sandbox_id FROM certificates WHERE ended_at < $1"
        " ORDER BY ended_at, sandbox_id LIMIT $2) RETURNING bytes",
    [SQL_HEAVIEST_ORG] = "SELECT org_id FROM (SELECT org_id, bytes FROM runs WHERE ended_at <> 0"
                         " UNION ALL SELECT org_id, bytes FROM certificates) AS docs"
                         " GROUP BY org_id ORDER BY sum(bytes) DESC, org_id LIMIT 1",
    /* Two statements, since only alone does each read no further in its index than the limit. */
    [SQL_OLDEST_RUNS] =
        "SELECT started_at, id, bytes FROM runs WHERE org_id = $1 AND ended_at <> 0 ORDER BY started_at, id LIMIT $2",
    [SQL_OLDEST_CERTIFICATES] =
        "SELECT ended_at, sandbox_id, bytes FROM certificates WHERE org_id = $1 ORDER BY ended_at, sandbox_id LIMIT $2",
    [SQL_CUT_RUNS] =
        "DELETE FROM runs WHERE org_id = $1 AND (started_at, id) <= ($2, $3) AND ended_at <> 0 RETURNING bytes",
    [SQL_CUT_CERTIFICATES] =
        "DELETE FROM certificates WHERE org_id = $1 AND (ended_at, sandbox_id) <= ($2, $3) RETURNING bytes",
    [SQL_OPEN_RUNS] = "SELECT id, doc FROM runs WHERE ended_at = 0 ORDER BY id LIMIT $1",
    [SQL_CLOSE_RUN] = "UPDATE runs SET cause = $2, ended_at = $3, bytes = $4, doc = $5 WHERE id = $1",

    [SQL_EACH_ORG] = "SELECT id, name, created_at, doc FROM orgs ORDER BY created_at, id",
    [SQL_EACH_KEY] =
        "SELECT id, org_id, name, hash, hint, role, created_at, expires_at, revoked_at, doc FROM keys ORDER BY org_id, "
        "created_at, id",
    [SQL_EACH_SANDBOX] =
        "SELECT id, org_id, key_id, name, state, provider, created_at, updated_at, doc FROM sandboxes ORDER BY "
        "created_at, id",
    [SQL_EACH_IDEMPOTENCY] =
        "SELECT org_id, key, fingerprint, created_at, status, doc FROM idempotency ORDER BY created_at, org_id, key",
    [SQL_EACH_OBJECT] =
        "SELECT kind, org_id, name, version, created_at, updated_at, doc FROM objects WHERE kind = $1 ORDER BY "
        "org_id, name",
    [SQL_AUDIT_HEAD] = "SELECT seq, hash, time FROM audit_head",
    [SQL_RUN_TIME] = "SELECT started_at FROM runs WHERE id = $1 AND ($2 = '' OR org_id = $2)",
    [SQL_CERTIFICATE_TIME] = "SELECT ended_at FROM certificates WHERE sandbox_id = $1 AND ($2 = '' OR org_id = $2)",
};
/* clang-format on */

static const char *const has_meta[STORE_DIALECT_MAX] = {
    [STORE_DIALECT_SQLITE] = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'meta'",
    [STORE_DIALECT_PG] = "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'meta'",
};

/* Parameters are numbered in the order of the bits; the cursor takes two, the last is the limit (store_read.c binds
 * them so). */
static int find_text(unsigned bits, struct buf *out)
{
    const bool certificates = bits & FIND_CERTIFICATES;
    const char *const id = certificates ? "sandbox_id" : "id", *const time = certificates ? "ended_at" : "started_at";
    const struct {
        unsigned bit;
        const char *column, *op;
    } filters[] = {{FIND_ORG, "org_id", "="},  {FIND_ID, id, "="},       {FIND_SANDBOX, "sandbox_id", "="},
                   {FIND_CAUSE, "cause", "="}, {FIND_SINCE, time, ">="}, {FIND_UNTIL, time, "<"}};
    unsigned n = 0;
    int r = buf_printf(out, "SELECT %s, doc FROM %s WHERE true", id, certificates ? "certificates" : "runs");

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(filters); i++)
        if (bits & filters[i].bit)
            r = buf_printf(out, " AND %s %s $%u", filters[i].column, filters[i].op, ++n);
    if (r == 0 && bits & FIND_AFTER) {
        r = buf_printf(out, " AND (%s, %s) < ($%u, $%u)", time, id, n + 1, n + 2);
        n += 2;
    }
    if (r == 0)
        r = buf_printf(out, " ORDER BY %s DESC, %s DESC LIMIT $%u", time, id, n + 1);
    return r;
}

int store_sql_text(enum store_dialect dialect, unsigned sql, struct buf *out)
{
    if (sql >= SQL_FIND)
        return find_text(sql - SQL_FIND, out);
    return buf_append_str(out, sql == SQL_HAS_META ? has_meta[dialect] : fixed[sql]);
}
