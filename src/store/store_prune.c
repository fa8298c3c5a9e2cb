/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes of many steps. Pruning deletes a batch per transaction and asks to be called again (write->again): other
 * writes go in between, and nothing holds the data base for long. Closing runs is all or nothing: it belongs to the
 * start, and a second batch later might meet runs that are new.
 *
 * How much there is: store->doc_bytes is never too low. Each write adds its size and nothing looks for what it
 * replaced; once the sum is over the limit it is computed again from an index, and only then anything is deleted. The
 * writer takes it back when a transaction fails (store_writer.c).
 *
 * Whose: the organisation that has the most loses its oldest, so nobody's evidence goes because somebody else writes
 * much.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/store_private.h"

#define CLOSE_BATCH 64u
#define DOC_ROOM (80u << 20)

static struct store_value number(int64_t value)
{
    return (struct store_value){.type = STORE_INT, .number = value};
}

static struct store_value text(const char *value)
{
    return (struct store_value){.type = STORE_TEXT, .data = value, .len = strlen(value)};
}

/* ---- pruning ------------------------------------------------------------------------------------------ */

struct deleted {
    uint64_t rows, bytes;
};

static int count_deleted(void *ctx, const struct store_value *row, size_t n UNUSED, struct brig_err *err UNUSED)
{
    struct deleted *deleted = ctx;

    deleted->rows++;
    deleted->bytes += (uint64_t)row[0].number;
    return 0;
}

static int delete_rows(struct store *store, enum store_sql sql, const struct store_value *args, size_t n,
                       struct deleted *sum, struct brig_err *err)
{
    struct deleted deleted = {0};
    int r = store->ops->run(store->conn, sql, args, n, count_deleted, &deleted, err);

    store->doc_bytes -= deleted.bytes < store->doc_bytes ? deleted.bytes : store->doc_bytes;
    sum->rows += deleted.rows;
    sum->bytes += deleted.bytes;
    return r;
}

static int take_bytes(void *ctx, const struct store_value *row, size_t n UNUSED, struct brig_err *err UNUSED)
{
    *(uint64_t *)ctx = (uint64_t)row[0].number;
    return 1;
}

static int count_bytes(struct store *store, struct brig_err *err)
{
    int r = store->ops->run(store->conn, SQL_DOC_BYTES, NULL, 0, take_bytes, &store->doc_bytes, err);

    store->doc_bytes_known = r == 0;
    return r;
}

struct old {
    int64_t time;
    char id[64];
    uint64_t bytes;
};
struct oldest {
    struct old rows[STORE_PRUNE_BATCH];
    size_t n;
};

static int take_old(void *ctx, const struct store_value *row, size_t n, struct brig_err *err)
{
    struct oldest *oldest = ctx;
    struct old *old = &oldest->rows[oldest->n];

    (void)n;
    if (oldest->n == STORE_PRUNE_BATCH)
        return 1;
    old->time = row[0].number;
    old->bytes = (uint64_t)row[2].number;
    if (str_copy(old->id, sizeof old->id, row[1].data) < 0)
        return err_set(err, BRIG_E_HOST, EBADMSG, "database: an id is too long");
    oldest->n++;
    return 0;
}

static bool is_older(const struct old *a, const struct old *b)
{
    return a->time != b->time ? a->time < b->time : strcmp(a->id, b->id) < 0;
}

/* The oldest of both lists that together free `excess`, or a batch of them: all up to and with the returned row. */
static const struct old *find_cut(const struct oldest *runs, const struct oldest *certificates, uint64_t excess)
{
    const struct old *cut = NULL;
    uint64_t freed = 0;

    for (size_t i = 0, j = 0; i + j < STORE_PRUNE_BATCH && freed < excess && (i < runs->n || j < certificates->n);) {
        if (j == certificates->n || (i < runs->n && is_older(&runs->rows[i], &certificates->rows[j])))
            cut = &runs->rows[i++];
        else
            cut = &certificates->rows[j++];
        freed += cut->bytes;
    }
    return cut;
}

static int take_org(void *ctx, const struct store_value *row, size_t n UNUSED, struct brig_err *err)
{
    if (str_copy(ctx, sizeof((struct store_run *)NULL)->org_id, row[0].data) < 0)
        return err_set(err, BRIG_E_HOST, EBADMSG, "database: an id is too long");
    return 1;
}

static int prune_size(struct store *store, uint64_t max_bytes, struct deleted *sum, struct brig_err *err)
{
    char org[sizeof((struct store_run *)NULL)->org_id] = "";
    AUTO_FREE struct oldest *found = mem_alloc(2 * sizeof *found);
    int r;

    if (!found)
        return err_nomem(err);
    found[0].n = found[1].n = 0;
    r = store->ops->run(store->conn, SQL_HEAVIEST_ORG, NULL, 0, take_org, org, err);
    const struct store_value whose[] = {text(org), number(STORE_PRUNE_BATCH)};
    if (r == 0)
        r = store->ops->run(store->conn, SQL_OLDEST_RUNS, whose, 2, take_old, &found[0], err);
    if (r == 0)
        r = store->ops->run(store->conn, SQL_OLDEST_CERTIFICATES, whose, 2, take_old, &found[1], err);
    if (r < 0)
        return r;
    const struct old *cut = find_cut(&found[0], &found[1], store->doc_bytes - max_bytes);
    if (!cut) /* only runs that have not ended are left */
        return 0;
    const struct store_value args[] = {text(org), number(cut->time), text(cut->id)};
    r = delete_rows(store, SQL_CUT_RUNS, args, ARRAY_SIZE(args), sum, err);
    return r < 0 ? r : delete_rows(store, SQL_CUT_CERTIFICATES, args, ARRAY_SIZE(args), sum, err);
}

int write_prune(struct store *store, struct write *write, struct brig_err *err)
{
    const struct store_value limit = number(STORE_PRUNE_BATCH);
    const struct store_value old[] = {write->values[0], limit}, old_keys[] = {write->values[2], limit};
    const uint64_t max_bytes = (uint64_t)write->values[1].number;
    struct deleted aged = {0}, cut = {0};
    int r = store->ops->run(store->conn, SQL_PRUNE_IDEMPOTENCY, old_keys, 2, NULL, NULL, err);

    store->keep_bytes = max_bytes;
    store->keep_since_ns = write->values[0].number;
    store->keep_keys_since_ns = write->values[2].number;
    if (r < 0)
        return r;
    write->again = store->conn->changed >= STORE_PRUNE_BATCH;
    r = delete_rows(store, SQL_PRUNE_RUNS, old, 2, &aged, err);
    if (r == 0)
        r = delete_rows(store, SQL_PRUNE_CERTIFICATES, old, 2, &aged, err);
    if (r < 0)
        return r;
    if (aged.rows >= STORE_PRUNE_BATCH) { /* first all that is too old, then see whether the rest fits */
        write->again = true;
        return 0;
    }
    if (max_bytes == 0)
        return 0;
    if (!store->doc_bytes_known || store->doc_bytes > max_bytes)
        r = count_bytes(store, err);
    if (r == 0 && store->doc_bytes > max_bytes) {
        r = prune_size(store, max_bytes, &cut, err);
        write->again = write->again || (cut.rows > 0 && store->doc_bytes > max_bytes);
    }
    return r;
}

/* ---- closing ------------------------------------------------------------------------------------------ */

struct open_run {
    char *id, *doc;
};
struct open_runs {
    struct open_run rows[CLOSE_BATCH];
    size_t n;
};

static int take_open(void *ctx, const struct store_value *row, size_t n, struct brig_err *err)
{
    struct open_runs *runs = ctx;
    struct open_run *run = &runs->rows[runs->n];

    (void)n;
    if (runs->n == CLOSE_BATCH)
        return 1;
    *run = (struct open_run){.id = mem_strdup(row[0].data), .doc = mem_strdup(row[1].data)};
    runs->n++;
    return run->id && run->doc ? 0 : err_nomem(err);
}

static int close_run(struct store *store, const struct open_run *run, const struct write *write, struct brig_err *err)
{
    AUTO_BUF struct buf doc = BUF_INIT(DOC_ROOM);

    if (store_doc_close(run->doc, write->values[0].data, write->values[1].number, &doc) < 0)
        return err_nomem(err);
    store->doc_bytes += doc.len;
    const struct store_value args[] = {text(run->id), write->values[0], write->values[1], number((int64_t)doc.len),
                                       text(doc.data)};
    return store->ops->run(store->conn, SQL_CLOSE_RUN, args, ARRAY_SIZE(args), NULL, NULL, err);
}

int write_close_runs(struct store *store, struct write *write, struct brig_err *err)
{
    const struct store_value limit = number(CLOSE_BATCH);
    struct open_runs runs;
    int r;

    do {
        runs.n = 0;
        r = store->ops->run(store->conn, SQL_OPEN_RUNS, &limit, 1, take_open, &runs, err);
        for (size_t i = 0; i < runs.n; i++) {
            if (r == 0)
                r = close_run(store, &runs.rows[i], write, err);
            mem_free(runs.rows[i].id);
            mem_free(runs.rows[i].doc);
        }
    } while (r == 0 && runs.n > 0);
    return r;
}
