/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_kit.h: what the tests of the store share. Each case gets a loop, workers and an open store on an empty data
 * base: a file in a directory of its own, or a schema of its own in the PostgreSQL that BRIG_TEST_PG_URL names
 * (tests/e2e/pg.py starts one).
 */
#ifndef BRIG_TESTS_STORE_KIT_H
#define BRIG_TESTS_STORE_KIT_H

#include "unit.h"

#include <fcntl.h>
#include <libpq-fe.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/store_private.h"

#define SEC INT64_C(1000000000)

struct kit {
    bool pg;
    char dir[64], path[96]; /* SQLite's */
    char url[512];
    struct loop *loop;
    struct workers *workers;
    struct store *store;
};

/* ---- the data base behind the store's back ------------------------------------------------------------ */

static inline UNUSED void kit_pg_exec(const char *sql)
{
    PGconn *pg = PQconnectdb(getenv("BRIG_TEST_PG_URL"));
    PGresult *result = PQexec(pg, sql);
    ExecStatusType status = PQresultStatus(result);

    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        print_error("%s: %s\n", sql, PQerrorMessage(pg));
    PQclear(result);
    PQfinish(pg);
    assert_true(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK);
}

static inline UNUSED void kit_sqlite_exec(const struct kit *kit, const char *sql)
{
    sqlite3 *db;
    char *why = NULL;

    assert_int_equal(sqlite3_open(kit->path, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s", why);
    sqlite3_close(db);
}

static inline UNUSED void kit_exec(const struct kit *kit, const char *sql)
{
    AUTO_BUF struct buf text = BUF_INIT(1u << 20);

    if (!kit->pg) {
        kit_sqlite_exec(kit, sql);
        return;
    }
    assert_int_equal(
        buf_printf(&text, "SET client_min_messages = error; SET search_path = t%d; %s", (int)getpid(), sql), 0);
    kit_pg_exec(text.data);
}

static inline UNUSED void kit_read_file(const char *path, struct buf *out)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        fail_msg("%s: run the test from the top of the tree", path);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(buf_reserve(out, (size_t)st.st_size + 1), 0);
    ssize_t n = fd_read_all(fd, out->data, (size_t)st.st_size + 1);
    assert_int_equal(n, st.st_size);
    buf_commit(out, (size_t)n);
}

/* ---- life --------------------------------------------------------------------------------------------- */

static inline void kit_init(struct kit *kit, bool pg)
{
    *kit = (struct kit){.pg = pg};
    assert_int_equal(loop_create(&kit->loop, NULL), 0);
    assert_int_equal(workers_create(kit->loop, 3, &kit->workers, NULL), 0);
    if (pg) {
        const char *url = getenv("BRIG_TEST_PG_URL");
        char sql[128];
        snprintf(sql, sizeof sql,
                 "SET client_min_messages = error; DROP SCHEMA IF EXISTS t%d CASCADE; CREATE SCHEMA t%d", (int)getpid(),
                 (int)getpid());
        kit_pg_exec(sql);
        snprintf(kit->url, sizeof kit->url, "%s%coptions=-csearch_path%%3Dt%d", url, strchr(url, '?') ? '&' : '?',
                 (int)getpid());
    } else {
        snprintf(kit->dir, sizeof kit->dir, "/tmp/brig-store-XXXXXX");
        assert_non_null(mkdtemp(kit->dir));
        snprintf(kit->path, sizeof kit->path, "%s/brig.db", kit->dir);
        snprintf(kit->url, sizeof kit->url, "sqlite:%s", kit->path);
    }
}

static inline void kit_open(struct kit *kit)
{
    struct brig_err err = {0};

    if (store_open(kit->loop, kit->workers, kit->url, &kit->store, &err) < 0)
        fail_msg("%s", err.message);
}

static inline void kit_close(struct kit *kit)
{
    store_close(kit->store);
    kit->store = NULL;
}

static inline void kit_reopen(struct kit *kit)
{
    kit_close(kit);
    kit_open(kit);
}

static inline void kit_done(struct kit *kit)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-lock"};

    kit_close(kit);
    workers_destroy(kit->workers);
    loop_destroy(kit->loop);
    if (kit->pg) {
        char sql[128];
        snprintf(sql, sizeof sql, "SET client_min_messages = error; DROP SCHEMA IF EXISTS t%d CASCADE", (int)getpid());
        kit_pg_exec(sql);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s%s", kit->path, ends[i]);
        unlink(path);
    }
    rmdir(kit->dir);
}

/* cmocka's fixtures; the initial state says which data base, and the case finds its kit there. */
static inline UNUSED int kit_setup(void **state)
{
    static struct kit kit;

    kit_init(&kit, *state && str_eq(*state, "pg"));
    kit_open(&kit);
    *state = &kit;
    return 0;
}

static inline UNUSED int kit_teardown(void **state)
{
    kit_done(*state);
    return 0;
}

/* Every case on SQLite, then, where there is one, on PostgreSQL as pg_NAME. */
static inline UNUSED int kit_run(const char *group, const struct CMUnitTest *cases, size_t n, bool pg)
{
    AUTO_FREE struct CMUnitTest *all = calloc(2 * n, sizeof *all);
    AUTO_FREE char *names = calloc(n, 64);
    const bool has_pg = pg && getenv("BRIG_TEST_PG_URL");

    for (size_t i = 0; i < n; i++) {
        all[i] = all[n + i] = cases[i];
        snprintf(names + 64 * i, 64, "pg_%s", cases[i].name);
        all[n + i].name = names + 64 * i;
        all[n + i].initial_state = (void *)(uintptr_t) "pg";
    }
    return _cmocka_run_group_tests(group, all, has_pg ? 2 * n : n, NULL, NULL);
}
#define KIT_CASE(name)                             \
    {                                              \
#name, name, kit_setup, kit_teardown, NULL \
    }

/* ---- answers ------------------------------------------------------------------------------------------ */

struct answer {
    unsigned n, failed;
    struct brig_err err; /* of the last that failed */
};

static inline UNUSED void on_done(void *ctx, const struct brig_err *err)
{
    struct answer *answer = ctx;

    answer->n++;
    if (err) {
        answer->failed++;
        answer->err = *err;
    }
}

static inline void kit_wait(struct kit *kit, const struct answer *answer, unsigned n)
{
    const uint64_t give_up = clock_mono_ns() + 60 * NS_PER_SEC;

    while (answer->n < n) {
        assert_true(clock_mono_ns() < give_up);
        assert_int_equal(loop_run_once(kit->loop, 1000, NULL), 0);
    }
}

static inline UNUSED void kit_wait_ok(struct kit *kit, const struct answer *answer, unsigned n)
{
    kit_wait(kit, answer, n);
    if (answer->failed)
        fail_msg("%s", answer->err.message);
}

/* ---- records ------------------------------------------------------------------------------------------ */

static inline UNUSED struct store_run kit_run_row(const char *id, const char *org, int64_t started_s, int64_t ended_s,
                                                  const char *doc)
{
    struct store_run run = {.started_at_ns = started_s * SEC, .ended_at_ns = ended_s * SEC, .doc = doc};

    snprintf(run.id, sizeof run.id, "%s", id);
    snprintf(run.org_id, sizeof run.org_id, "%s", org);
    snprintf(run.sandbox_id, sizeof run.sandbox_id, "box-%c", id[strlen(id) - 1] & 0x7f);
    snprintf(run.kind, sizeof run.kind, "command");
    snprintf(run.cause, sizeof run.cause, "%s", ended_s ? "exited" : "");
    return run;
}

static inline UNUSED void kit_put_run(struct kit *kit, const char *id, const char *org, int64_t started_s,
                                      int64_t ended_s, const char *doc)
{
    struct store_run run = kit_run_row(id, org, started_s, ended_s, doc);
    struct answer answer = {0};

    assert_int_equal(store_put_run(kit->store, &run, on_done, &answer, NULL), 0);
    kit_wait_ok(kit, &answer, 1);
}

static inline UNUSED void kit_put_org(struct kit *kit, const char *id)
{
    struct store_org org = {.name = "an org", .created_at_ns = 1, .doc = "{\"quota\":1}"};
    struct answer answer = {0};

    snprintf(org.id, sizeof org.id, "%s", id);
    assert_int_equal(store_put_org(kit->store, &org, on_done, &answer, NULL), 0);
    kit_wait_ok(kit, &answer, 1);
}

/* A page as text: "id id id", with a + behind it when there is more; the first document too. */
struct page {
    struct answer answer;
    char ids[16384];
    char last[64];
    char doc[4096];
    size_t n;
    bool more;
};

static inline UNUSED void on_rows(void *ctx, const char *const *docs, const char *const *ids, size_t n, bool more,
                                  const struct brig_err *err)
{
    struct page *page = ctx;
    size_t at = 0;

    page->ids[0] = page->doc[0] = '\0';
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(page->ids + at, sizeof page->ids - at, "%s%s", i ? " " : "", ids[i]);
    if (n)
        snprintf(page->doc, sizeof page->doc, "%s", docs[0]), snprintf(page->last, sizeof page->last, "%s", ids[n - 1]);
    if (more)
        snprintf(page->ids + at, sizeof page->ids - at, "+");
    page->n = n;
    page->more = more;
    on_done(&page->answer, err);
}

typedef int find_fn(struct store *store, const struct store_query *query, store_rows_fn *done, void *ctx,
                    struct brig_err *err);

static inline UNUSED const struct page *kit_find(struct kit *kit, find_fn *fn, struct store_query query)
{
    static struct page page;

    page.answer = (struct answer){0};
    if (!query.limit)
        query.limit = 100;
    assert_int_equal(fn(kit->store, &query, on_rows, &page, NULL), 0);
    kit_wait_ok(kit, &page.answer, 1);
    return &page;
}
#define FIND_RUNS(kit, ...) kit_find(kit, store_find_runs, (struct store_query){__VA_ARGS__})
#define FIND_CERTS(kit, ...) kit_find(kit, store_find_certificates, (struct store_query){__VA_ARGS__})

static inline UNUSED void kit_put_many(struct kit *kit, unsigned n, const char *doc)
{
    struct answer answer = {0};

    for (unsigned i = 0; i < n; i++) {
        char id[32];
        snprintf(id, sizeof id, "run-%05u", i);
        struct store_run run = kit_run_row(id, "org-1", 100 + i, 101 + i, doc);
        assert_int_equal(store_put_run(kit->store, &run, on_done, &answer, NULL), 0);
    }
    kit_wait_ok(kit, &answer, n);
}

static inline UNUSED void kit_prune(struct kit *kit, int64_t before_s, uint64_t max_bytes, int64_t keys_before_ns)
{
    struct answer answer = {0};

    assert_int_equal(store_prune(kit->store, before_s * SEC, max_bytes, keys_before_ns, on_done, &answer, NULL), 0);
    kit_wait_ok(kit, &answer, 1);
}

#endif
