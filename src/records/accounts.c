/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accounts.c: organisations, and the life of what callers are known by. All organisations and keys are in memory, so a
 * request costs one hash and two lookups.
 *
 * A start takes what fits and logs the rest: no organisation can fill a table so that the service does not start.
 */
#include "records/accounts.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "records/accounts_priv.h"

#define ORGS_MAX 10000u

/* ---- the table ---------------------------------------------------------------------------------------- */

struct orgs_loading {
    struct objects_loading *objects;
    bool has_default;
};

static int load_org(void *ctx, const struct store_org *row)
{
    struct orgs_loading *loading = ctx;
    struct org columns = {0};
    struct object like = {.version = 1,
                          .created_at_ns = row->created_at_ns,
                          .updated_at_ns = row->created_at_ns,
                          .text = row->doc,
                          .columns = &columns};

    loading->has_default |= str_eq(row->id, ACCOUNTS_DEFAULT_ORG);
    memcpy(like.id, row->id, sizeof row->id);
    memcpy(columns.name, row->name, sizeof columns.name);
    return objects_load(loading->objects, &like);
}

static int each_org(struct store *store, struct objects_loading *objects, struct brig_err *err)
{
    const struct store_org first = {
        .id = ACCOUNTS_DEFAULT_ORG, .name = "default", .created_at_ns = clock_real_ns(), .doc = "{}"};
    struct orgs_loading loading = {.objects = objects};
    int r = store_each_org(store, load_org, &loading, err);

    if (r < 0 || loading.has_default)
        return r;
    r = load_org(&loading, &first);
    return r < 0 ? r : store_put_org(store, &first, NULL, NULL, err);
}

static int put_org(struct store *store, const struct object *object, store_done_fn *done, void *ctx,
                   struct brig_err *err)
{
    struct store_org row = {.created_at_ns = object->created_at_ns, .doc = object->text};

    memcpy(row.name, org_of(object)->name, sizeof row.name);
    return str_copy(row.id, sizeof row.id, object->id) < 0 ? err_usage(err, "the organisation's id is too long")
                                                           : store_put_org(store, &row, done, ctx, err);
}

static bool take_org(void *ctx, const struct object *row UNUSED, bool room)
{
    struct accounts *accounts = ctx;

    accounts->loading.orgs_skipped += !room;
    return room;
}

/* A version that was on its way when the deletion began. */
static void on_org_changed(void *ctx UNUSED, const struct object *before, const struct object *after)
{
    if (before && after)
        org_of(after)->deleting = org_of(before)->deleting;
}

/* ---- life --------------------------------------------------------------------------------------------- */

static int load_orgs(struct accounts *accounts, struct brig_err *err)
{
    static const struct objects_table table = {.columns = sizeof(struct org),
                                               .total = ORGS_MAX,
                                               .each = each_org,
                                               .put = put_org,
                                               .remove = store_delete_org,
                                               .take = take_org};
    const struct objects_kind kind = {.kind = "organisation",
                                      .many = "organisations",
                                      .per_org = ORGS_MAX,
                                      .org_bytes = SIZE_MAX / 2, /* lists_put() bounds each */
                                      .changed = on_org_changed,
                                      .ctx = accounts,
                                      .table = &table};
    char text[128];
    int r = objects_create(accounts->options.store, &kind, &accounts->orgs, err);

    if (r == 0 && accounts->loading.orgs_skipped > 0) {
        snprintf(text, sizeof text,
                 "%zu organisations are not taken, there are too many; delete rows of the table `orgs`",
                 accounts->loading.orgs_skipped);
        accounts->options.log(accounts->options.ctx, text);
    }
    return r;
}

int accounts_create(const struct accounts_options *options, struct accounts **ret, struct brig_err *err)
{
    struct accounts *accounts = mem_zalloc(sizeof *accounts);

    if (!accounts)
        return err_nomem(err);
    accounts->options = *options;
    int r = load_orgs(accounts, err);
    if (r == 0)
        r = keys_load(accounts, err);
    if (r < 0)
        accounts_destroy(accounts);
    else
        *ret = accounts;
    return r;
}

void accounts_destroy(struct accounts *accounts)
{
    if (!accounts)
        return;
    loop_timer_clear(accounts->options.loop, &accounts->on_expiry);
    objects_destroy(accounts->keys);
    objects_destroy(accounts->orgs);
    mem_free(accounts);
}

/* ---- organisations ------------------------------------------------------------------------------------ */

const struct object *org_find(const struct accounts *accounts, const char *id)
{
    return objects_find(accounts->orgs, "", id);
}

const struct object *org_first(const struct accounts *accounts)
{
    return objects_first(accounts->orgs, "");
}

const char *org_doc(const struct accounts *accounts, const char *id)
{
    const struct object *org = org_find(accounts, id);

    return org ? org->text : "{}";
}

static int make_empty(void *make_ctx UNUSED, const struct object *current UNUSED, struct buf *doc, struct brig_err *err)
{
    return buf_append(doc, "{}", 2) < 0 ? err_nomem(err) : 0;
}

int org_create(struct accounts *accounts, const char *name, objects_done_fn *done, void *ctx, struct brig_err *err)
{
    struct org *columns = mem_zalloc(sizeof *columns);
    char id[128];

    if (!columns)
        return err_nomem(err);
    int r = objects_new_id("org", id);
    if (r == 0)
        r = str_copy(columns->name, sizeof columns->name, name);
    if (r < 0) {
        mem_free(columns);
        return err_set(err, BRIG_E_HOST, -r, "make an organisation");
    }
    const struct objects_change change = {.org = "",
                                          .id = id,
                                          .expect_version = OBJECTS_NEW,
                                          .columns = columns,
                                          .make = make_empty,
                                          .end = mem_free,
                                          .make_ctx = columns,
                                          .done = done,
                                          .ctx = ctx};
    return objects_change(accounts->orgs, &change, err);
}

/* A deletion on its way. */
struct deletion {
    struct accounts *accounts;
    char org_id[64];
    objects_done_fn *done;
    void *ctx;
};

static void on_deleted(void *ctx, const struct object *org, const struct brig_err *err)
{
    struct deletion *deletion = ctx;
    const struct object *stays = err ? org_find(deletion->accounts, deletion->org_id) : NULL;

    if (stays)
        org_of(stays)->deleting = false;
    deletion->done(deletion->ctx, org, err);
    mem_free(deletion);
}

int org_delete(struct accounts *accounts, const char *id, objects_done_fn *done, void *ctx, struct brig_err *err)
{
    struct deletion *deletion = mem_zalloc(sizeof *deletion);

    if (!deletion)
        return err_nomem(err);
    *deletion = (struct deletion){.accounts = accounts, .done = done, .ctx = ctx};
    int r = str_copy(deletion->org_id, sizeof deletion->org_id, id);
    r = r < 0 ? err_usage(err, "the organisation's id is too long")
              : objects_delete(accounts->orgs, "", id, on_deleted, deletion, err);
    if (r < 0) {
        mem_free(deletion);
        return r;
    }
    org_of(org_find(accounts, id))->deleting = true;
    return 0;
}

void org_forget(struct accounts *accounts, const char *id)
{
    objects_forget_org(accounts->keys, id);
}
