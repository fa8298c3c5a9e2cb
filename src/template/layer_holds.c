/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_holds.c: copies of what is wanted, who holds which layer, and the collecting of those that nobody needs. A
 * layer is needed by a template, a sandbox, a making, or an organisation that is about to make a template of it.
 */
#include <string.h>

#include "template/layer_priv.h"

/* ---- wants -------------------------------------------------------------------------------------------- */

void want_free(struct want *want)
{
    if (!want)
        return;
    mem_free(want->below);
    mem_free(want->list);
    mem_free(want);
}

static int copy_text(char *out, size_t size, const char *text, const char **ret)
{
    *ret = text ? out : NULL;
    return text ? str_copy(out, size, text) : 0;
}

int want_copy(const struct layer_want *from, struct want **ret, struct brig_err *err)
{
    struct want *want = mem_zalloc(sizeof *want);

    if (!want)
        return err_nomem(err);
    want->is = *from;
    want->below = mem_zalloc((from->n_below + 1) * sizeof *want->below);
    want->list = mem_zalloc((from->n_below + 1) * sizeof *want->list);
    if (!want->below || !want->list) {
        want_free(want);
        return err_nomem(err);
    }
    int r = copy_text(want->org, sizeof want->org, from->org, &want->is.org);
    r = r < 0 ? r : copy_text(want->name, sizeof want->name, from->name, &want->is.name);
    r = r < 0 ? r : copy_text(want->diff_id, sizeof want->diff_id, from->diff_id, &want->is.diff_id);
    r = r < 0 ? r : copy_text(want->format, sizeof want->format, from->format, &want->is.format);
    r = r < 0 ? r : copy_text(want->blob, sizeof want->blob, from->blob, &want->is.blob);
    for (size_t i = 0; r >= 0 && i < from->n_below; i++) {
        r = str_copy(want->below[i], sizeof want->below[i], from->below[i]);
        want->list[i] = want->below[i];
    }
    want->is.below = want->list;
    if (r < 0) {
        want_free(want);
        return err_usage(err, "layer: a name or path is too long");
    }
    *ret = want;
    return 0;
}

/* ---- what is there ------------------------------------------------------------------------------------ */

/* The hold of this organisation (NULL: of any) on a layer; *ret is NULL if there is none. */
static struct hold **hold_find(struct maker *maker, const char *org, const char *name)
{
    struct hold **at = &maker->holds;

    while (*at && !((!org || str_eq((*at)->org, org)) && str_eq((*at)->name, name)))
        at = &(*at)->next;
    return at;
}

int hold_add(struct maker *maker, const char *org, const struct layer_made *made)
{
    struct hold **at = hold_find(maker, org, made->name);

    if (!*at) {
        *at = mem_zalloc(sizeof **at);
        if (!*at)
            return -ENOMEM;
        (*at)->bytes = made->bytes;
        (*at)->files = made->files;
        if (str_copy((*at)->org, sizeof(*at)->org, org) < 0 ||
            str_copy((*at)->name, sizeof(*at)->name, made->name) < 0 ||
            str_copy((*at)->diff_id, sizeof(*at)->diff_id, made->diff_id) < 0) {
            mem_free(take_ptr(at));
            return -ENAMETOOLONG;
        }
    }
    (*at)->count++;
    return 0;
}

void maker_release(struct maker *maker, const char *org, const char *name)
{
    struct hold **at = hold_find(maker, org, name), *hold = *at;

    if (!hold || --hold->count > 0)
        return;
    *at = hold->next;
    mem_free(hold);
}

bool hold_or_template(struct maker *maker, const char *org, const char *name, struct layer_made *ret)
{
    const struct hold *hold = *hold_find(maker, org, name);
    size_t i = 0;

    if (hold) {
        *ret = (struct layer_made){hold->name, hold->diff_id, hold->bytes, hold->files, true};
        return true;
    }
    const struct object *object = templates_with_layer(maker->o.templates, org, name, &i);
    const struct build_step_info *step = object ? NULL : build_steps_with_layer(maker->o.steps, org, name);
    if (step)
        *ret = (struct layer_made){step->layer, step->diff_id, step->bytes, step->files, true};
    if (!object)
        return step;
    const struct template_info *info = template_of(object);
    *ret = (struct layer_made){info->layers[i], info->diff_ids[i], info->sizes[i], 0, true};
    return true;
}

bool maker_hold(struct maker *maker, const char *org, const char *name)
{
    struct layer_made made;

    return hold_or_template(maker, org, name, &made) && hold_add(maker, org, &made) == 0;
}

/* ---- collecting --------------------------------------------------------------------------------------- */

static bool is_needed(struct maker *maker, const char *name)
{
    bool fresh = str_starts(name, "new-");

    if (fresh && maker->o.is_busy(maker->o.ctx, name))
        return true;
    if (!fresh && (*hold_find(maker, NULL, name) || manager_uses_layer(maker->o.manager, name) ||
                   templates_with_layer(maker->o.templates, NULL, name, NULL) ||
                   build_steps_with_layer(maker->o.steps, NULL, name)))
        return true;
    for (const struct making *m = maker->makings; m; m = m->next) {
        if (str_eq(m->fresh, name) || (m->want->is.name && str_eq(m->want->name, name)))
            return true;
        for (size_t i = 0; i < m->want->is.n_below; i++)
            if (str_eq(m->want->below[i], name))
                return true;
    }
    return false;
}

static int collect(struct maker *maker, struct brig_err *err);

static void tell_collectors(struct collector *list, size_t removed, const struct brig_err *err)
{
    while (list) {
        struct collector *next = list->next;
        if (list->done)
            list->done(list->ctx, removed, err);
        mem_free(list);
        list = next;
    }
}

static void collection_check(struct collection *c)
{
    struct maker *maker = c->maker;
    struct collector *collectors = c->collectors;
    const size_t removed = c->removed;
    const struct brig_err why = c->err;
    struct brig_err err = {0};

    if (!c->listed || c->pending > 0)
        return;
    maker->collection = NULL;
    mem_free(c);
    if (maker->collect_again && collect(maker, &err) < 0)
        tell_collectors(take_ptr(&maker->collectors), 0, &err);
    tell_collectors(collectors, removed, why.code ? &why : NULL);
}

static void on_collected(void *ctx, const struct brig_err *err)
{
    struct collection *c = ctx;

    c->pending--;
    c->removed += !err; /* one that is used again by now stays, and that is no failure */
    collection_check(c);
}

static void on_listed(void *ctx, const char *const *names, size_t n, const struct brig_err *err)
{
    struct collection *c = ctx;
    struct provider *provider = c->maker->o.provider;

    if (err)
        c->err = *err;
    for (size_t i = 0; i < n; i++)
        if (!is_needed(c->maker, names[i]) &&
            provider->ops->layer(provider, LAYER_REMOVE, names[i], NULL, on_collected, c, NULL) == 0)
            c->pending++;
    c->listed = true;
    collection_check(c);
}

static int collect(struct maker *maker, struct brig_err *err)
{
    struct provider *provider = maker->o.provider;
    struct collection *c = mem_zalloc(sizeof *c);

    maker->collect_again = false;
    if (!c)
        return err_nomem(err);
    *c = (struct collection){.maker = maker, .collectors = take_ptr(&maker->collectors)};
    maker->collection = c;
    int r = provider->ops->layers(provider, on_listed, c, err);
    if (r < 0) {
        maker->collection = NULL;
        maker->collectors = c->collectors;
        mem_free(c);
    }
    return r;
}

int maker_collect(struct maker *maker, maker_collected_fn *done, void *ctx, struct brig_err *err)
{
    const struct provider_ops *ops = maker->o.provider->ops;
    struct collector *collector = mem_alloc(sizeof *collector);

    if (!collector)
        return err_nomem(err);
    if (!ops->layers) {
        mem_free(collector);
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "templates: the provider %s keeps no layers", ops->name);
    }
    *collector = (struct collector){.done = done, .ctx = ctx, .next = maker->collectors};
    maker->collectors = collector;
    maker->collect_again = true;
    if (maker->collection)
        return 0;
    int r = collect(maker, err);
    if (r < 0) {
        maker->collectors = collector->next;
        mem_free(collector);
    }
    return r;
}
