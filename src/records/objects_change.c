/* SPDX-License-Identifier: Apache-2.0 */
/*
 * objects_change.c: changes of objects. Theory of operation.
 *
 * At most one change of an id is with the store; those that came meanwhile wait behind it in their order. Each is made
 * (its document written, parsed, approved, its key claimed, its version given) when its turn comes, of what was
 * committed by then: so no change is lost to one that did not know of it, and one whose predecessor the store refused
 * does not carry what was refused. What is being written is in the tables `active` and `claims`; memory follows the
 * commit. Nothing is allocated between a commit and its place in memory.
 */
#include "records/objects.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "records/objects_priv.h"

#define WAITING_MAX 256u /* behind one object: somebody writes faster than the disk */

struct change {
    struct objects *objects;
    char org_id[64], id[128];
    uint64_t expect;
    bool keep_time;
    uint64_t after; /* of a new one: the version of the one whose deletion it waited for */
    const void *columns;
    objects_make_fn *make; /* NULL: a deletion */
    void (*end)(void *make_ctx);
    void *make_ctx;
    objects_done_fn *done;
    void *ctx;
    struct node *node;       /* what it will be; NULL: a deletion, or nothing to change */
    struct objects_org *org; /* where it is counted while it is being written */
    size_t bytes;            /* so many more than before */
    bool is_new;
    struct change *behind, *last; /* the one that is next, and the last in the row (of the active one) */
    size_t n_waiting;
    struct table_link link, claim;
};

static void change_free(struct change *change)
{
    if (change->end)
        change->end(change->make_ctx);
    mem_free(change);
}

/* ---- making ------------------------------------------------------------------------------------------- */

static int check_version(const struct change *change, const struct node *old, struct brig_err *err)
{
    const char *kind = change->objects->kind.kind;

    if (change->expect == 0)
        return 0;
    if (change->expect == OBJECTS_NEW)
        return old ? err_set(err, BRIG_E_CONFLICT, EEXIST, "%s %s is there already", kind, change->id) : 0;
    if (!old)
        return err_set(err, BRIG_E_CONFLICT, 0, "%s %s is gone", kind, change->id);
    if (old->public.version != change->expect)
        return err_set(err, BRIG_E_CONFLICT, 0, "%s %s is at version %llu by now, not %llu", kind, change->id,
                       (unsigned long long)old->public.version, (unsigned long long)change->expect);
    return 0;
}

static int check_key(const struct change *change, const struct node *node, struct brig_err *err)
{
    const struct objects *objects = change->objects;

    if (!node->key)
        return 0;
    const char *scope = objects_scope(objects, change->org_id);
    const struct node *other = table_find(&objects->by_key, scope, node->key);
    const struct change *coming = table_find(&objects->claims, scope, node->key);
    if ((other && !str_eq(other->public.id, change->id)) || (coming && coming != change))
        return err_set(err, BRIG_E_CONFLICT, EEXIST, "%s: %.120s is the name of another one", objects->kind.kind,
                       node->key);
    return 0;
}

static int check_count(const struct change *change, const struct objects_org *org, struct brig_err *err)
{
    const struct objects *objects = change->objects;
    const struct objects_kind *kind = &objects->kind;

    if (kind->table && objects->by_id.n + objects->coming >= kind->table->total)
        return err_set(err, BRIG_E_LIMIT, 0, "there are %zu %s already, and no more than that are kept",
                       kind->table->total, kind->many);
    if (org->count + org->coming < kind->per_org)
        return 0;
    return err_set(err, BRIG_E_LIMIT, 0, "an organisation has at most %zu %s%s", kind->per_org, kind->many ? "" : "of ",
                   kind->many ? kind->many : kind->kind);
}

/* What is being written counts: many changes at once make no room. One that gets no larger is always taken. */
static int check_bytes(const struct change *change, const struct objects_org *org, size_t more, struct brig_err *err)
{
    const struct objects_kind *kind = &change->objects->kind;

    if (more == 0 || org->bytes + org->bytes_coming + more <= kind->org_bytes)
        return 0;
    return err_set(err, BRIG_E_LIMIT, 0, "an organisation has at most %zu bytes of %s", kind->org_bytes,
                   kind->many ? kind->many : kind->kind);
}

/* The change takes its place in the counts of its organisation, if there is room. */
static int reserve(struct change *change, const struct node *old, size_t len, struct brig_err *err)
{
    size_t was = old ? old->public.len : 0, more = len > was ? len - was : 0;
    struct objects_org *org = old ? old->org : NULL;
    int r = org ? 0 : objects_org_get(change->objects, change->org_id, &org);

    if (r < 0)
        return err_nomem(err);
    r = check_bytes(change, org, more, err);
    if (r == 0 && !old)
        r = check_count(change, org, err);
    if (r < 0)
        return r;
    change->org = org;
    change->bytes = more;
    change->is_new = !old;
    org->changes++;
    org->bytes_coming += more;
    org->coming += change->is_new;
    change->objects->coming += change->is_new;
    return 0;
}

/* Ids, version and times of what it will be. */
static void describe(const struct change *change, const struct node *old, struct object *ret)
{
    int64_t now = clock_real_ns();

    memcpy(ret->org_id, change->org_id, sizeof ret->org_id);
    memcpy(ret->id, change->id, sizeof ret->id);
    if (old) {
        ret->version = old->public.version + 1;
        ret->created_at_ns = old->public.created_at_ns;
        ret->updated_at_ns = change->keep_time                 ? old->public.updated_at_ns
                             : now > old->public.updated_at_ns ? now
                                                               : old->public.updated_at_ns + 1;
        return;
    }
    const struct object *last = change->org->last;
    if (last && now <= last->created_at_ns) /* the order of a list is the order of making, whatever the clock does */
        now = last->created_at_ns + 1;
    ret->version = change->after + 1;
    ret->created_at_ns = ret->updated_at_ns = now;
}

static void leave(struct change *change)
{
    table_remove(&change->objects->claims, &change->claim);
    if (change->org) {
        change->org->changes--;
        change->org->bytes_coming -= change->bytes;
        change->org->coming -= change->is_new;
        change->objects->coming -= change->is_new;
    }
    change->org = NULL;
}

static void on_committed(void *ctx, const struct brig_err *err);

static int write_row(struct change *change, const struct object *object, struct brig_err *err)
{
    struct store_object row = {.version = object->version,
                               .created_at_ns = object->created_at_ns,
                               .updated_at_ns = object->updated_at_ns,
                               .doc = object->text,
                               .patient = change->objects->kind.patient};
    const struct objects_table *table = change->objects->kind.table;
    int r = str_copy(row.kind, sizeof row.kind, change->objects->kind.kind);

    if (table)
        return table->put(change->objects->store, object, on_committed, change, err);
    if (r == 0)
        r = str_copy(row.org_id, sizeof row.org_id, change->org_id);
    if (r == 0)
        r = str_copy(row.name, sizeof row.name, change->id);
    if (r < 0)
        return err_usage(err, "%s %.100s: the name is too long", change->objects->kind.kind, change->id);
    return store_put_object(change->objects->store, &row, on_committed, change, err);
}

/* 0 and *ret, or 1: nothing to change. */
static int make_node(struct change *change, struct node *old, struct node **ret, struct brig_err *err)
{
    AUTO_BUF struct buf doc = BUF_INIT(OBJECT_DOC_MAX);
    struct object like = {0};
    size_t len = 0;
    int r = change->make(change->make_ctx, old ? &old->public : NULL, &doc, err);

    if (r == 1 && old)
        return 1;
    if (r == 0)
        r = reserve(change, old, doc.len, err);
    if (r < 0)
        return r;
    describe(change, old, &like);
    like.columns = old ? old->public.columns : (void *)(uintptr_t)change->columns; /* copied */
    char *text = buf_take(&doc, &len);
    if (!text)
        return err_nomem(err);
    r = node_create(change->objects, &like, text, len, ret, err);
    if (r < 0)
        mem_free(text);
    return r;
}

/* Its turn. */
static int begin(struct change *change, struct brig_err *err)
{
    struct objects *objects = change->objects;
    struct node *old = node_find(objects, change->org_id, change->id), *node = NULL;

    if (!change->make) {
        if (!old)
            return err_set(err, BRIG_E_NOT_FOUND, 0, "%s %.100s not found", objects->kind.kind, change->id);
        int r = check_version(change, old, err);
        if (r < 0)
            return r;
        return objects->kind.table ? objects->kind.table->remove(objects->store, change->id, on_committed, change, err)
                                   : store_delete_object(objects->store, objects->kind.kind, change->org_id, change->id,
                                                         on_committed, change, err);
    }
    int r = check_version(change, old, err);
    if (r == 0)
        r = make_node(change, old, &node, err);
    if (r == 1) /* the row goes again, as it is, so that the answer comes in its order and from the loop */
        return write_row(change, &old->public, err);
    if (r == 0)
        r = check_key(change, node, err);
    if (r == 0) {
        if (node->key)
            table_add(&objects->claims, &change->claim, objects_scope(objects, change->org_id), node->key, change);
        r = write_row(change, &node->public, err);
    }
    if (r < 0) {
        leave(change);
        node_release(node);
        return r;
    }
    change->node = node;
    return 0;
}

/* ---- the commit --------------------------------------------------------------------------------------- */

/* Memory as the store now is, and whoever asked is told. */
static void settle(struct change *change, const struct brig_err *err)
{
    struct objects *objects = change->objects;
    struct node *old = node_find(objects, change->org_id, change->id);
    struct objects_org *org = old ? old->org : change->is_new ? change->org : NULL;
    /* without org: it was forgotten between the commit and now */
    struct node *node = err || !org ? NULL : change->node;
    bool gone = !err && !change->make && old;

    if (gone && change->behind)
        change->behind->after = old->public.version;
    leave(change);
    if (node)
        node_link(node, org, old);
    else if (gone)
        node_unlink(old);
    if ((node || gone) && objects->kind.changed)
        objects->kind.changed(objects->kind.ctx, old ? &old->public : NULL, node ? &node->public : NULL);
    if (change->done)
        change->done(change->ctx, err ? NULL : node ? &node->public : old ? &old->public : NULL, err);
    if (!node)
        node_release(change->node);
    if (node || gone)
        node_release(old);
}

/* The next of the row, in its place before anybody else can be. */
static struct change *pass_on(struct change *change)
{
    struct objects *objects = change->objects;
    struct change *next = change->behind;

    table_remove(&objects->active, &change->link);
    if (next) {
        next->last = next == change->last ? NULL : change->last;
        next->n_waiting = change->n_waiting - 1;
        table_add(&objects->active, &next->link, next->org_id, next->id, next);
    }
    return next;
}

static void on_committed(void *ctx, const struct brig_err *err)
{
    struct change *change = ctx;
    struct brig_err why = {0};

    for (;;) {
        struct change *next = pass_on(change);
        settle(change, err);
        change_free(change);
        if (!next || begin(next, &why) == 0)
            return;
        change = next;
        err = &why;
    }
}

/* ---- asking ------------------------------------------------------------------------------------------- */

static int submit(struct change *change, struct brig_err *err)
{
    struct objects *objects = change->objects;
    struct change *active = table_find(&objects->active, change->org_id, change->id);
    int r = 0;

    if (active && active->n_waiting >= WAITING_MAX) {
        r = err_set(err, BRIG_E_LIMIT, EAGAIN, "%s %s: %u changes wait already", objects->kind.kind, change->id,
                    WAITING_MAX);
    } else if (active) {
        *(active->last ? &active->last->behind : &active->behind) = change;
        active->last = change;
        active->n_waiting++;
    } else {
        r = begin(change, err);
        if (r == 0)
            table_add(&objects->active, &change->link, change->org_id, change->id, change);
    }
    if (r < 0)
        change_free(change);
    return r;
}

int objects_change(struct objects *objects, const struct objects_change *want, struct brig_err *err)
{
    struct change *change = mem_zalloc(sizeof *change);

    if (!change) {
        if (want->end)
            want->end(want->make_ctx);
        return err_nomem(err);
    }
    *change = (struct change){.objects = objects,
                              .expect = want->expect_version,
                              .keep_time = want->keep_time,
                              .columns = want->columns,
                              .make = want->make,
                              .end = want->end,
                              .make_ctx = want->make_ctx,
                              .done = want->done,
                              .ctx = want->ctx};
    if (str_copy(change->org_id, sizeof change->org_id, want->org) < 0 ||
        str_copy(change->id, sizeof change->id, want->id) < 0) {
        int r = err_usage(err, "%s %.100s: the id is too long", objects->kind.kind, want->id);
        change_free(change);
        return r;
    }
    return submit(change, err);
}

int objects_delete(struct objects *objects, const char *org, const char *id, objects_done_fn *done, void *ctx,
                   struct brig_err *err)
{
    const struct objects_change change = {.org = org, .id = id, .done = done, .ctx = ctx};

    return objects_change(objects, &change, err);
}

static int make_copy(void *make_ctx, const struct object *current UNUSED, struct buf *doc, struct brig_err *err)
{
    struct buf *text = make_ctx;

    *doc = *text;
    *text = BUF_INIT(0);
    return doc->len ? 0 : err_usage(err, "the document is empty");
}

static void end_copy(void *make_ctx)
{
    struct buf *text = make_ctx;

    if (text->data)
        crypto_wipe(text->data, text->len); /* it was not written */
    buf_done(text);
    mem_free(text);
}

int objects_put(struct objects *objects, const char *org, const char *id, const char *doc, size_t len,
                uint64_t expect_version, objects_done_fn *done, void *ctx, struct brig_err *err)
{
    struct buf *text = mem_alloc(sizeof *text);

    if (!text)
        return err_nomem(err);
    *text = BUF_INIT(OBJECT_DOC_MAX);
    int r = buf_append(text, doc, len);
    if (r < 0) {
        end_copy(text);
        return err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_TOO_LARGE, 0,
                       "%s: the document has %zu bytes, at most %u are kept", objects->kind.kind, len, OBJECT_DOC_MAX);
    }
    const struct objects_change change = {.org = org,
                                          .id = id,
                                          .expect_version = expect_version,
                                          .make = make_copy,
                                          .end = end_copy,
                                          .make_ctx = text,
                                          .done = done,
                                          .ctx = ctx};
    return objects_change(objects, &change, err);
}

static void on_hurried(void *ctx UNUSED, const struct brig_err *err UNUSED)
{
}

void objects_hurry(struct objects *objects)
{
    (void)!store_settle(objects->store, on_hurried, NULL, NULL); /* else they are written in a moment */
}

int objects_id_for(const struct objects *objects, const char *org, const char *key, const char *prefix, char out[128],
                   struct brig_err *err)
{
    const struct change *coming = table_find(&objects->claims, objects_scope(objects, org), key);
    const struct object *there = objects_by_key(objects, org, key);

    int r = coming || there ? str_copy(out, 128, coming ? coming->id : there->id) : objects_new_id(prefix, out);
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "make an id") : 0;
}
