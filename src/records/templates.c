/* SPDX-License-Identifier: Apache-2.0 */
/*
 * templates.c: the templates of organisations: a kind of records (objects.h) whose id is the name. Here is who sees
 * which, and how a name is moved; template_doc.c reads and writes the document.
 */
#include "records/templates.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

#define NAME_PART 63u /* of a name, and of its tag */
#define USED_EVERY_NS (INT64_C(60) * (int64_t)NS_PER_SEC)

struct templates {
    struct objects *objects;
    char shared_org[64];
    void (*changed)(void *ctx);
    void *changed_ctx;
};

/* ---- its life ----------------------------------------------------------------------------------------- */

static int on_loaded(void *ctx UNUSED, struct object *object, struct brig_err *err)
{
    struct template_info *info = mem_zalloc(sizeof *info);

    if (!info)
        return err_nomem(err);
    int r = template_parse(object->json, info, err);
    if (r < 0) {
        mem_free(info);
        return r;
    }
    object->extra = info;
    return 0;
}

static void on_unloaded(void *ctx UNUSED, struct object *object)
{
    if (object->extra)
        template_done(object->extra);
    mem_free(object->extra);
    object->extra = NULL;
}

static void on_changed(void *ctx, const struct object *before UNUSED, const struct object *after UNUSED)
{
    struct templates *templates = ctx;

    if (templates->changed)
        templates->changed(templates->changed_ctx);
}

int templates_create(struct store *store, const char *shared_org, struct templates **ret, struct brig_err *err)
{
    struct templates *templates = mem_zalloc(sizeof *templates);

    if (!templates)
        return err_nomem(err);
    const struct objects_kind kind = {.kind = "template",
                                      .many = "templates",
                                      .per_org = TEMPLATES_PER_ORG,
                                      .org_bytes = TEMPLATES_ORG_BYTES,
                                      .by_id = true,
                                      .loaded = on_loaded,
                                      .unloaded = on_unloaded,
                                      .changed = on_changed,
                                      .ctx = templates};
    int r = str_copy(templates->shared_org, sizeof templates->shared_org, shared_org) < 0
                ? err_usage(err, "organisation: too long")
                : objects_create(store, &kind, &templates->objects, err);
    if (r < 0)
        mem_free(templates);
    else
        *ret = templates;
    return r;
}

void templates_destroy(struct templates *templates)
{
    if (!templates)
        return;
    objects_destroy(templates->objects);
    mem_free(templates);
}

struct objects *templates_objects(struct templates *templates)
{
    return templates->objects;
}

const char *templates_shared_org(const struct templates *templates)
{
    return templates->shared_org;
}

void templates_on_change(struct templates *templates, void (*changed)(void *ctx), void *ctx)
{
    templates->changed = changed;
    templates->changed_ctx = ctx;
}

/* ---- names -------------------------------------------------------------------------------------------- */

static bool is_alnum(char c, bool upper)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (upper && c >= 'A' && c <= 'Z');
}

/* 1 to 63 of letters, digits, ".", "_" and "-". It begins with a letter or digit, a tag also with "_". */
static bool part_ok(const char *text, size_t len, bool tag)
{
    if (len == 0 || len > NAME_PART || !(is_alnum(text[0], tag) || (tag && text[0] == '_')))
        return false;
    for (size_t i = 1; i < len; i++)
        if (!is_alnum(text[i], tag) && !strchr("._-", text[i]))
            return false;
    return true;
}

int template_name(const char *text, char out[TEMPLATE_NAME_MAX], struct brig_err *err)
{
    static const char *const taken[] = {"host", "scratch"};
    const char *colon = strchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : strlen(text);

    if (!part_ok(text, len, false) || (colon && !part_ok(colon + 1, strlen(colon + 1), true)))
        return err_usage(err,
                         "template %.80s: a name is NAME or NAME:TAG, each of 1 to 63 of a-z, 0-9, \".\", \"_\", \"-\" "
                         "(capital letters too in a tag), and begins with a letter or digit",
                         text);
    for (size_t i = 0; i < ARRAY_SIZE(taken); i++)
        if (strlen(taken[i]) == len && memcmp(taken[i], text, len) == 0)
            return err_usage(err, "template %s: this name means something already", text);
    if (colon && str_eq(colon, ":latest")) {
        memcpy(out, text, len);
        out[len] = '\0';
        return 0;
    }
    return str_copy(out, TEMPLATE_NAME_MAX, text) < 0 ? err_usage(err, "template %.80s: too long", text) : 0;
}

/* ---- who sees which ----------------------------------------------------------------------------------- */

const struct object *templates_find(const struct templates *templates, const char *org, const char *name)
{
    char kept[TEMPLATE_NAME_MAX];

    if (template_name(name, kept, NULL) < 0)
        return NULL;
    const struct object *own = objects_find(templates->objects, org, kept);
    if (own || str_eq(org, templates->shared_org))
        return own;
    const struct object *other = objects_find(templates->objects, templates->shared_org, kept);
    return other && template_of(other)->shared ? other : NULL;
}

/* From here on in the shared list: one that is shared, and whose name the organisation does not have itself. */
static const struct object *next_shared(const struct templates *templates, const char *org, const struct object *at)
{
    while (at && (!template_of(at)->shared || objects_find(templates->objects, org, at->id)))
        at = at->next;
    return at;
}

static const struct object *first_shared(const struct templates *templates, const char *org)
{
    return str_eq(org, templates->shared_org)
               ? NULL
               : next_shared(templates, org, objects_first(templates->objects, templates->shared_org));
}

const struct object *templates_first(const struct templates *templates, const char *org)
{
    const struct object *own = objects_first(templates->objects, org);

    return own ? own : first_shared(templates, org);
}

const struct object *templates_next(const struct templates *templates, const char *org, const struct object *object)
{
    if (!str_eq(object->org_id, org))
        return next_shared(templates, org, object->next);
    return object->next ? object->next : first_shared(templates, org);
}

struct search {
    const char *layer;
    const struct object *found;
    size_t index;
};

static bool search_each(void *ctx, const struct object *object)
{
    struct search *search = ctx;
    const struct template_info *info = template_of(object);

    for (size_t i = 0; i < info->n_layers; i++)
        if (str_eq(info->layers[i], search->layer)) {
            search->found = object;
            search->index = i;
            return false;
        }
    return true;
}

const struct object *templates_with_layer(const struct templates *templates, const char *org, const char *layer,
                                          size_t *ret)
{
    struct search search = {.layer = layer};

    if (!org)
        objects_each(templates->objects, search_each, &search);
    for (const struct object *at = org ? templates_first(templates, org) : NULL; at && search_each(&search, at);)
        at = templates_next(templates, org, at);
    if (ret)
        *ret = search.index;
    return search.found;
}

/* ---- changes ------------------------------------------------------------------------------------------ */

int templates_put(struct templates *templates, const char *org, const char *name, const struct template_info *info,
                  bool replace, objects_done_fn *done, void *ctx, struct brig_err *err)
{
    AUTO_BUF struct buf doc = BUF_INIT(OBJECT_DOC_MAX);
    char kept[TEMPLATE_NAME_MAX];
    int r = template_name(name, kept, err);

    if (r == 0 && !replace && objects_find(templates->objects, org, kept))
        r = err_set(err, BRIG_E_CONFLICT, 0, "template %s: there is one of this name", kept);
    if (r == 0)
        r = template_write(info, &doc, err);
    return r < 0 ? r
                 : objects_put(templates->objects, org, kept, doc.data, doc.len, replace ? 0 : OBJECTS_NEW, done, ctx,
                               err);
}

int templates_delete(struct templates *templates, const char *org, const char *name, objects_done_fn *done, void *ctx,
                     struct brig_err *err)
{
    char kept[TEMPLATE_NAME_MAX];
    int r = template_name(name, kept, err);

    return r < 0 ? r : objects_delete(templates->objects, org, kept, done, ctx, err);
}

static int make_used(void *ctx UNUSED, const struct object *current, struct buf *doc, struct brig_err *err)
{
    if (!current)
        return 1;
    struct template_info info = *template_of(current);
    info.used_at_ns = clock_real_ns();
    return template_write(&info, doc, err);
}

void templates_used(struct templates *templates, const struct object *object)
{
    const struct objects_change change = {
        .org = object->org_id, .id = object->id, .keep_time = true, .make = make_used};

    if (clock_real_ns() - template_of(object)->used_at_ns >= USED_EVERY_NS)
        (void)!objects_change(templates->objects, &change, NULL);
}
