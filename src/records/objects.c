/* SPDX-License-Identifier: Apache-2.0 */
/*
 * objects.c: documents per organisation: in memory as the store has them.
 *
 *     orgs: org-a -> first <-> ... <-> last   (created_at, id), or by id where the kind says so
 *     by_id, by_key: (organisation, id or key) -> node
 *
 * Invariants. What is in the lists is committed (objects_change.c puts it there), parsed and approved by its kind, and
 * never changes: a new version is a new node in the old one's place, so that a run may hold on to the tool it began
 * with. A row that does not load stops the start with its name: a tool that is there must not become one that is not
 * because a program is older than its data. Only a kind with a table of its own can leave rows out
 * (objects_table.take).
 */
#include "base/list.h"
#include "records/objects.h"

#include <string.h>

#include "base/err.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "records/objects_priv.h"

/* ---- one of them -------------------------------------------------------------------------------------- */

struct node *node_find(const struct objects *objects, const char *org, const char *id)
{
    return table_find(&objects->by_id, objects_scope(objects, org), id);
}

void node_release(struct node *node)
{
    if (!node || --node->refs > 0)
        return;
    if (node->public.extra && node->objects->kind.unloaded)
        node->objects->kind.unloaded(node->objects->kind.ctx, &node->public);
    else
        mem_free(node->public.extra);
    json_doc_free(node->doc);
    if (node->objects->kind.secret && node->text)
        crypto_wipe(node->text, node->public.len);
    mem_free(node->text);
    mem_free(node);
}

int node_create(struct objects *objects, const struct object *like, char *text, size_t len, struct node **ret,
                struct brig_err *err)
{
    size_t columns = objects->kind.table ? objects->kind.table->columns : 0;
    struct node *node = mem_zalloc(sizeof *node + columns);
    int r = 0;

    if (!node)
        return err_nomem(err);
    *node = (struct node){.objects = objects, .refs = 1, .public = *like};
    node->public.text = text;
    node->public.len = len;
    if (columns)
        node->public.columns = memcpy(node + 1, like->columns, columns);
    if (!columns || !str_eq(text, "{}")) {
        r = json_read(text, len, JSON_READ_VALUES, &node->doc, err);
        if (r == 0 && json_root(node->doc)->type != JSON_OBJECT)
            r = err_usage(err, "%s: must be an object", objects->kind.kind);
        if (r == 0)
            node->public.json = json_root(node->doc);
    }
    if (r == 0 && objects->kind.loaded)
        r = objects->kind.loaded(objects->kind.ctx, &node->public, err);
    if (objects->kind.no_json) {
        node->public.json = NULL;
        json_doc_free(take_ptr(&node->doc));
    }
    if (r < 0)
        return node_release(node), r;
    node->text = text;
    node->key = objects->kind.key ? objects->kind.key(objects->kind.ctx, &node->public) : NULL;
    *ret = node;
    return 0;
}

const struct object *object_hold(const struct object *object)
{
    ((struct node *)(uintptr_t)object)->refs++; /* every object is the first member of its node */
    return object;
}

void object_release(const struct object *object)
{
    node_release((struct node *)(uintptr_t)object);
}

/* ---- the lists ---------------------------------------------------------------------------------------- */

/* or NULL */
static struct objects_org *objects_org_find(const struct objects *objects, const char *id)
{
    return table_find(&objects->orgs, id, "");
}

int objects_org_get(struct objects *objects, const char *id, struct objects_org **ret)
{
    struct objects_org *org = objects_org_find(objects, id);

    if (!org) {
        org = mem_zalloc(sizeof *org);
        if (!org)
            return -ENOMEM;
        if (str_copy(org->id, sizeof org->id, id) < 0) {
            mem_free(org);
            return -ENAMETOOLONG;
        }
        table_add(&objects->orgs, &org->link, org->id, "", org);
    }
    *ret = org;
    return 0;
}

static bool is_before(const struct objects *objects, const struct object *a, const struct object *b)
{
    if (objects->kind.by_id)
        return strcmp(a->id, b->id) < 0;
    return a->created_at_ns != b->created_at_ns ? a->created_at_ns < b->created_at_ns : strcmp(a->id, b->id) < 0;
}

static void put_behind(struct objects_org *org, struct object *object, struct object *before)
{
    object->prev = before;
    object->next = before ? before->next : org->first;
    *(object->next ? &object->next->prev : &org->last) = object;
    *(before ? &before->next : &org->first) = object;
    org->count++;
    org->bytes += object->len;
}

void node_unlink(struct node *node)
{
    struct object *object = &node->public;

    list_take(&node->org->first, &node->org->last, object);
    object->next = object->prev = NULL;
    node->org->count--;
    node->org->bytes -= object->len;
    node->org = NULL;
    table_remove(&node->objects->by_id, &node->by_id);
    table_remove(&node->objects->by_key, &node->by_key);
}

void node_link(struct node *node, struct objects_org *org, struct node *old)
{
    struct objects *objects = node->objects;
    struct object *before = old ? old->public.prev : org->last;

    if (old)
        node_unlink(old);
    else
        /* by making: only where a clock went back */
        while (before && is_before(objects, &node->public, before))
            before = before->prev;
    put_behind(org, &node->public, before);
    node->org = org;
    const char *scope = objects_scope(objects, node->public.org_id);
    table_add(&objects->by_id, &node->by_id, scope, node->public.id, node);
    if (node->key)
        table_add(&objects->by_key, &node->by_key, scope, node->key, node);
}

/* ---- life --------------------------------------------------------------------------------------------- */

struct objects_loading {
    struct objects *objects;
    struct brig_err *err;
    struct node **nodes;
    size_t n, cap;
};

/* A node that is loaded waits in the list until all are there and can be sorted. */
static int load_later(struct objects_loading *loading, struct node *node)
{
    if (MEM_GROW(loading->nodes, loading->n, loading->cap) < 0)
        return err_nomem(loading->err);
    loading->nodes[loading->n++] = node;
    return 0;
}

/* The rows of a table of its own come in their order, so nothing is kept of those that are not taken. */
static int load_now(struct objects_loading *loading, struct node *node)
{
    struct objects_org *org = NULL;
    int r = objects_org_get(loading->objects, node->public.org_id, &org);

    if (r < 0)
        return err_nomem(loading->err);
    node_link(node, org, NULL);
    return 0;
}

static bool take(const struct objects *objects, const struct object *row)
{
    const struct objects_kind *kind = &objects->kind;
    bool room = objects_count(objects, row->org_id) < kind->per_org && objects->by_id.n < kind->table->total;

    return kind->table->take(kind->ctx, row, room);
}

int objects_load(struct objects_loading *loading, const struct object *row)
{
    struct objects *objects = loading->objects;
    struct brig_err why = {0};
    struct node *node = NULL;

    if (objects->kind.table && !take(objects, row))
        return 0;
    char *text = mem_strdup(row->text);
    if (!text)
        return err_nomem(loading->err);
    int r = node_create(objects, row, text, strlen(text), &node, &why);
    if (r < 0) {
        mem_free(text);
        return err_set(loading->err, why.code == BRIG_E_NOMEM ? BRIG_E_NOMEM : BRIG_E_HOST, EBADMSG,
                       "the row of %s %s of %s: %.200s", objects->kind.kind, row->id, row->org_id, why.message);
    }
    r = objects->kind.table ? load_now(loading, node) : load_later(loading, node);
    if (r < 0)
        node_release(node);
    return r;
}

static int load_row(void *ctx, const struct store_object *row)
{
    struct objects_loading *loading = ctx;
    struct object like = {.version = row->version,
                          .created_at_ns = row->created_at_ns,
                          .updated_at_ns = row->updated_at_ns,
                          .text = row->doc};

    if (str_copy(like.org_id, sizeof like.org_id, row->org_id) < 0 || str_copy(like.id, sizeof like.id, row->name) < 0)
        return err_set(loading->err, BRIG_E_HOST, EBADMSG, "a row of %s has a name that is too long", row->kind);
    return objects_load(loading, &like);
}

/* The last first: they are taken from the end. */
static int from_the_last(const void *a, const void *b)
{
    const struct node *x = *(struct node *const *)a, *y = *(struct node *const *)b;

    return is_before(x->objects, &x->public, &y->public) ? 1 : is_before(x->objects, &y->public, &x->public) ? -1 : 0;
}

/* Two rows of one key cannot come from us: changes claim their keys. */
static int link_loaded(struct objects_loading *loading)
{
    struct objects *objects = loading->objects;

    if (loading->n)
        qsort(loading->nodes, loading->n, sizeof(struct node *), from_the_last);
    while (loading->n > 0) {
        struct node *node = loading->nodes[loading->n - 1];
        if (node->key && table_find(&objects->by_key, node->public.org_id, node->key))
            return err_set(loading->err, BRIG_E_HOST, EBADMSG, "%s %s of %s: another one has the same name",
                           objects->kind.kind, node->public.id, node->public.org_id);
        int r = load_now(loading, node);
        if (r < 0)
            return r;
        loading->n--;
    }
    return 0;
}

static int load(struct objects *objects, struct brig_err *err)
{
    struct objects_loading loading = {.objects = objects, .err = err};
    const struct objects_table *table = objects->kind.table;
    int r = table ? table->each(objects->store, &loading, err)
                  : store_each_object(objects->store, objects->kind.kind, load_row, &loading, err);

    if (r == 0)
        r = link_loaded(&loading);
    for (size_t i = 0; i < loading.n; i++)
        node_release(loading.nodes[i]);
    mem_free(loading.nodes);
    return r;
}

int objects_create(struct store *store, const struct objects_kind *kind, struct objects **ret, struct brig_err *err)
{
    struct objects *objects = mem_zalloc(sizeof *objects);

    if (!objects)
        return err_nomem(err);
    objects->store = store;
    objects->kind = *kind;
    if (objects->kind.org_bytes == 0)
        objects->kind.org_bytes = OBJECTS_ORG_BYTES;
    struct table *const tables[] = {&objects->orgs, &objects->by_id, &objects->by_key, &objects->active,
                                    &objects->claims};
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(tables) && r == 0; i++)
        r = table_init(tables[i]);
    r = r < 0 ? err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_HOST, -r, "%s: make the tables", kind->kind)
              : load(objects, err);
    if (r < 0)
        return objects_destroy(objects), r;
    *ret = objects;
    return 0;
}

static void org_empty(struct objects_org *org, bool (*over)(void *ctx, const struct object *object), void *ctx)
{
    for (struct object *object = org->first, *next; object; object = next) {
        struct node *node = (struct node *)object;
        next = object->next;
        if (over && !over(ctx, object))
            continue;
        node_unlink(node);
        node_release(node);
    }
}

void objects_destroy(struct objects *objects)
{
    if (!objects)
        return;
    for (size_t i = 0; objects->orgs.slots && i < objects->orgs.n_slots; i++)
        while (objects->orgs.slots[i]) {
            struct objects_org *org = objects->orgs.slots[i]->thing;
            org_empty(org, NULL, NULL);
            table_remove(&objects->orgs, &org->link);
            mem_free(org);
        }
    table_done(&objects->orgs);
    table_done(&objects->by_id);
    table_done(&objects->by_key);
    table_done(&objects->active);
    table_done(&objects->claims);
    mem_free(objects);
}

void objects_forget_org(struct objects *objects, const char *org_id)
{
    struct objects_org *org = objects_org_find(objects, org_id);

    if (!org)
        return;
    org_empty(org, NULL, NULL);
    if (org->changes == 0) { /* else a write that the store refuses for want of the organisation comes back to it */
        table_remove(&objects->orgs, &org->link);
        mem_free(org);
    }
}

void objects_forget_if(struct objects *objects, const char *org_id,
                       bool (*over)(void *ctx, const struct object *object), void *ctx)
{
    for (size_t i = 0; i < objects->orgs.n_slots; i++)
        for (const struct table_link *link = objects->orgs.slots[i]; link; link = link->next)
            if (!org_id[0] || str_eq(link->first, org_id))
                org_empty(link->thing, over, ctx);
}

/* ---- looking ------------------------------------------------------------------------------------------ */

const struct object *objects_find(const struct objects *objects, const char *org, const char *id)
{
    const struct node *node = node_find(objects, org, id);

    return node ? &node->public : NULL;
}

const struct object *objects_by_key(const struct objects *objects, const char *org, const char *key)
{
    const struct node *node = table_find(&objects->by_key, objects_scope(objects, org), key);

    return node ? &node->public : NULL;
}

const struct object *objects_first(const struct objects *objects, const char *org)
{
    const struct objects_org *found = objects_org_find(objects, org);

    return found ? found->first : NULL;
}

const struct object *objects_after(const struct objects *objects, const char *org, const char *after)
{
    const struct object *object = objects_first(objects, org);

    while (object && after && strcmp(object->id, after) <= 0)
        object = object->next;
    return object;
}

const struct object *objects_last(const struct objects *objects, const char *org)
{
    const struct objects_org *found = objects_org_find(objects, org);

    return found ? found->last : NULL;
}

size_t objects_count(const struct objects *objects, const char *org)
{
    const struct objects_org *found = objects_org_find(objects, org);

    return found ? found->count : 0;
}

size_t objects_expected(const struct objects *objects, const char *org, size_t *ret_bytes)
{
    const struct objects_org *found = objects_org_find(objects, org);

    *ret_bytes = found ? found->bytes + found->bytes_coming : 0;
    return found ? found->count + found->coming : 0;
}

void objects_each(const struct objects *objects, bool (*each)(void *ctx, const struct object *object), void *ctx)
{
    for (size_t i = 0; i < objects->orgs.n_slots; i++)
        for (const struct table_link *link = objects->orgs.slots[i]; link; link = link->next)
            for (const struct object *object = ((struct objects_org *)link->thing)->first; object;
                 object = object->next)
                if (!each(ctx, object))
                    return;
}

/* ---- ids ---------------------------------------------------------------------------------------------- */

int objects_new_id(const char *prefix, char out[128])
{
    char run[ID_RUN_SIZE];
    int r = id_run(run);

    if (r < 0)
        return r;
    r = str_format(out, 128, "%s-%s", prefix, run + sizeof "run-" - 1);
    return r < 0 ? r : 0;
}

bool objects_id_ok(const char *prefix, const char *id)
{
    static const char shape[] = "hhhhhhhh-hhhh-4hhh-vhhh-hhhhhhhhhhhh";
    size_t len = strlen(prefix);

    if (strncmp(id, prefix, len) != 0 || id[len] != '-')
        return false;
    id += len + 1;
    for (size_t i = 0; i < sizeof shape - 1; i++) {
        const char *set = shape[i] == 'h' ? "0123456789abcdef" : shape[i] == 'v' ? "89ab" : NULL;
        if (id[i] == '\0' || (set ? !strchr(set, id[i]) : id[i] != shape[i]))
            return false;
    }
    return id[sizeof shape - 1] == '\0';
}
