/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of runs and certificates for requests, read on the worker pool. A job owns all it needs, the answer included,
 * so its callback does not look at the store, which may have been closed meanwhile.
 *
 * A page is ordered by (time, id), newest first, and its cursor is the id of the last row before it: the time is looked
 * up. A row that retention has taken meanwhile had nothing older behind it, so an unknown cursor is an empty page. The
 * organisation is part of every statement, the cursor's included.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "store/store_private.h"

#define PAGE_ROWS 1000u
#define PAGE_BYTES (32u << 20) /* a page of huge receipts ends early, with at least one */
#define TEXT_MAX (PAGE_BYTES + (96u << 20))
#define WORD_MAX 256u /* of an id, a cause: nothing that was stored is longer */

enum { WORD_ORG, WORD_ID, WORD_SANDBOX, WORD_CAUSE, WORD_AFTER, WORD_MAX_N };

struct place {
    size_t id, doc; /* in text */
};

struct find {
    struct job job;
    struct store *store; /* valid in work() */
    store_rows_fn *done;
    void *ctx;
    unsigned bits; /* FIND_... */
    unsigned limit;
    int64_t since_ns, until_ns;
    const char *words[WORD_MAX_N]; /* in data; "" when not asked for */
    /* the answer */
    struct buf text;
    struct place *places; /* limit of them; then two arrays of pointers for the callback */
    size_t n;
    bool more;
    struct brig_err err;
    char data[];
};

static void find_reset(void *ctx)
{
    struct find *find = ctx;

    find->n = 0;
    find->more = false;
    find->text.len = 0;
}

static int find_row(void *ctx, const struct store_value *row, size_t n, struct brig_err *err)
{
    struct find *find = ctx;
    struct place place = {.id = find->text.len};

    (void)n;
    if (find->n == find->limit || (find->n > 0 && find->text.len + row[1].len > PAGE_BYTES)) {
        find->more = true;
        return 1;
    }
    if (buf_append(&find->text, row[0].data, row[0].len + 1) < 0)
        return err_nomem(err);
    place.doc = find->text.len;
    if (buf_append(&find->text, row[1].data, row[1].len + 1) < 0)
        return err_nomem(err);
    find->places[find->n++] = place;
    return 0;
}

struct cursor {
    int64_t time_ns;
    bool found;
};

static int cursor_row(void *ctx, const struct store_value *row, size_t n UNUSED, struct brig_err *err UNUSED)
{
    *(struct cursor *)ctx = (struct cursor){.time_ns = row[0].number, .found = true};
    return 1;
}

static struct store_value word(const struct find *find, int at)
{
    return (struct store_value){.type = STORE_TEXT, .data = find->words[at], .len = strlen(find->words[at])};
}

static int find_read(const struct store_ops *ops, struct store_conn *conn, void *ctx, struct brig_err *err)
{
    struct find *find = ctx;
    struct store_value args[STORE_COLS_MAX];
    struct cursor cursor = {0};
    size_t n = 0;

    if (find->bits & FIND_AFTER) {
        const struct store_value at[] = {word(find, WORD_AFTER), word(find, WORD_ORG)};
        int r = ops->run(conn, find->bits & FIND_CERTIFICATES ? SQL_CERTIFICATE_TIME : SQL_RUN_TIME, at, 2, cursor_row,
                         &cursor, err);
        if (r < 0 || !cursor.found)
            return r;
    }
    for (int i = WORD_ORG; i <= WORD_CAUSE; i++) /* in the order of store_sql.c */
        if (find->bits & (unsigned)FIND_ORG << i)
            args[n++] = word(find, i);
    if (find->bits & FIND_SINCE)
        args[n++] = (struct store_value){.type = STORE_INT, .number = find->since_ns};
    if (find->bits & FIND_UNTIL)
        args[n++] = (struct store_value){.type = STORE_INT, .number = find->until_ns};
    if (find->bits & FIND_AFTER) {
        args[n++] = (struct store_value){.type = STORE_INT, .number = cursor.time_ns};
        args[n++] = word(find, WORD_AFTER);
    }
    args[n++] = (struct store_value){.type = STORE_INT, .number = (int64_t)find->limit + 1};
    return ops->run(conn, SQL_FIND + find->bits, args, n, find_row, find, err);
}

static void read_over(struct store *store)
{
    pthread_mutex_lock(&store->lock);
    store->reads--;
    pthread_cond_broadcast(&store->readers_changed);
    pthread_mutex_unlock(&store->lock);
}

static void find_work(struct job *job)
{
    struct find *find = (struct find *)job;
    struct store *store = find->store;

    struct brig_err err = {0};
    if (with_reader(store, find_read, find_reset, find, &err) < 0) { /* a failure of the first attempt only is none */
        find_reset(find);
        find->err = err;
    }
    read_over(store);
}

static void find_destroy(struct find *find)
{
    buf_done(&find->text);
    mem_free(find->places);
    mem_free(find);
}

static void find_done(struct job *job)
{
    struct find *find = (struct find *)job;
    const char **ids = (const char **)(find->places + find->limit), **docs = ids + find->limit;

    for (size_t i = 0; i < find->n; i++) {
        ids[i] = find->text.data + find->places[i].id;
        docs[i] = find->text.data + find->places[i].doc;
    }
    find->done(find->ctx, docs, ids, find->n, find->more, find->err.code == BRIG_E_NONE ? NULL : &find->err);
    find_destroy(find);
}

static int check_word(const char *what, const char *text, struct brig_err *err)
{
    if (!text)
        return 0;
    if (strnlen(text, WORD_MAX) == WORD_MAX)
        return err_usage(err, "%s: too long", what);
    return json_utf8_valid(text, strlen(text)) ? 0 : err_usage(err, "%s: not UTF-8", what);
}

static int check_query(const struct store_query *query, struct brig_err *err)
{
    int r = query->org_id ? 0 : err_usage(err, "a query needs an organisation");

    if (r == 0 && (query->limit < 1 || query->limit > PAGE_ROWS))
        r = err_usage(err, "limit: %u is not between 1 and %u", query->limit, PAGE_ROWS);
    if (r == 0)
        r = check_word("organisation", query->org_id, err);
    if (r == 0)
        r = check_word("id", query->id, err);
    if (r == 0)
        r = check_word("sandbox", query->sandbox_id, err);
    if (r == 0)
        r = check_word("cause", query->cause, err);
    return r < 0 ? r : check_word("cursor", query->after, err);
}

static struct find *make_find(struct store *store, const struct store_query *query, unsigned bits)
{
    const char *const words[WORD_MAX_N] = {[WORD_ORG] = query->org_id,
                                           [WORD_ID] = query->id,
                                           [WORD_SANDBOX] = query->sandbox_id,
                                           [WORD_CAUSE] = query->cause,
                                           [WORD_AFTER] = query->after};
    size_t bytes = 0;

    for (size_t i = 0; i < WORD_MAX_N; i++)
        bytes += words[i] ? strlen(words[i]) + 1 : 1;
    struct find *find = mem_alloc(sizeof *find + bytes);
    if (!find)
        return NULL;
    *find = (struct find){.job = {.work = find_work, .done = find_done},
                          .store = store,
                          .limit = query->limit,
                          .text = BUF_INIT(TEXT_MAX),
                          .since_ns = query->since_ns,
                          .until_ns = query->until_ns};
    find->bits = bits | (*query->org_id ? FIND_ORG : 0u) | (query->id ? FIND_ID : 0u) |
                 (query->sandbox_id ? FIND_SANDBOX : 0u) | (query->cause ? FIND_CAUSE : 0u) |
                 (query->since_ns ? FIND_SINCE : 0u) | (query->until_ns ? FIND_UNTIL : 0u) |
                 (query->after ? FIND_AFTER : 0u);
    char *at = find->data;
    for (size_t i = 0; i < WORD_MAX_N; i++) {
        const char *from = words[i] ? words[i] : "";
        memcpy(at, from, strlen(from) + 1);
        find->words[i] = at;
        at += strlen(from) + 1;
    }
    find->places = mem_alloc(find->limit * (sizeof *find->places + 2 * sizeof(char *)));
    if (!find->places)
        return find_destroy(find), NULL;
    return find;
}

static int start(struct store *store, const struct store_query *query, unsigned bits, store_rows_fn *done, void *ctx,
                 struct brig_err *err)
{
    int r = check_query(query, err);

    if (r < 0)
        return r;
    struct find *find = make_find(store, query, bits);
    if (!find)
        return err_nomem(err);
    find->done = done;
    find->ctx = ctx;
    pthread_mutex_lock(&store->lock);
    store->reads++;
    pthread_mutex_unlock(&store->lock);
    r = workers_add_for(store->workers, workers_owner(query->org_id), &find->job);
    if (r == 0)
        return 0;
    read_over(store);
    find_destroy(find);
    return err_set(err, BRIG_E_LIMIT, 0, "%u questions of the organisation wait for the store already",
                   WORKERS_WAITING);
}

int store_find_runs(struct store *store, const struct store_query *query, store_rows_fn *done, void *ctx,
                    struct brig_err *err)
{
    return start(store, query, 0, done, ctx, err);
}

int store_find_certificates(struct store *store, const struct store_query *query, store_rows_fn *done, void *ctx,
                            struct brig_err *err)
{
    return start(store, query, FIND_CERTIFICATES, done, ctx, err);
}
