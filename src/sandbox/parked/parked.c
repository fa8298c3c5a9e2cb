/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parked.c: the entries of `[pool] templates`, and the creates that take their sandboxes (parked.h has the theory of
 * operation). parked_fill.c makes them, and ends those that are stale or in the way.
 *
 *     made -> waits -> taken: parked_take(), once
 *       \       \----> its template or a setting has changed, its sandbox has died, room is needed: ended
 *        \-----------> it did not come up: a pause that doubles
 */
#include "base/list.h"
#include "base/parse.h"
#include "sandbox/parked/parked_priv.h"
#include "sandbox/sbox_disks.h"

/* ---- one of them --------------------------------------------------------------------------------------------- */

void parked_free_one(struct parked_one *one)
{
    struct parked_group *group = one->group;

    list_take(&group->first, &group->last, one);
    if (one->waits) {
        group->waiting--;
        group->parked->waiting--;
    } else {
        group->making--;
        group->parked->making--;
    }
    mem_free(one);
}

void parked_end(struct parked_one *one, const char *why)
{
    struct sbox *sbox = one->sbox;

    if (one->waits)
        sbox_unwatch(sbox, &one->watch);
    sbox->priv->create_done = NULL;
    parked_free_one(one);
    (void)!sbox_end(sbox, NULL, why, NULL, NULL, NULL); /* unless it ends already */
}

void parked_drop(struct parked_group *group, const char *why)
{
    if (group->first)
        disks_collect(group->parked->manager); /* one in making may have been the last that needed a disk */
    while (group->first)
        parked_end(group->first, why);
}

/* ---- entries ------------------------------------------------------------------------------------------------- */

static void group_free(struct parked_group *group)
{
    list_remove(&group->parked->groups, group);
    mem_free(group->shape);
    mem_free(group);
}

static struct parked_group *group_find(const struct parked *parked, const char *org, const char *name)
{
    struct parked_group *group = parked->groups;

    while (group && !(str_eq(group->org, org) && str_eq(group->name, name)))
        group = group->next;
    return group;
}

/* [ORGANISATION/]NAME=COUNT, which the configuration has checked. */
static bool read_entry(const char *word, size_t len, const char *own, struct parked_group *ret)
{
    const char *slash = memchr(word, '/', len), *equals = memchr(word, '=', len);
    const char *name = slash ? slash + 1 : word;
    char count[16];

    return equals && equals > name &&
           str_format(ret->org, sizeof ret->org, "%.*s", slash ? (int)(slash - word) : (int)strlen(own),
                      slash ? word : own) >= 0 &&
           str_format(ret->name, sizeof ret->name, "%.*s", (int)(equals - name), name) >= 0 &&
           str_format(count, sizeof count, "%.*s", (int)(word + len - equals - 1), equals + 1) >= 0 &&
           parse_u64(count, &ret->target) == 0;
}

static void take_entry(struct parked *parked, const struct parked_group *entry)
{
    struct parked_group *group = group_find(parked, entry->org, entry->name);

    if (!group && (group = mem_zalloc(sizeof *group))) { /* without memory there is none, and everything works */
        *group = *entry;
        group->parked = parked;
        list_push(&parked->groups, group);
    }
    if (group)
        group->target = entry->target;
}

void parked_configure(struct manager *manager)
{
    struct parked *parked = manager->parked;
    const char *at = manager->config->pool_templates;

    if (!parked || !manager->templates)
        return;
    for (struct parked_group *group = parked->groups; group; group = group->next)
        group->target = 0;
    for (size_t len; at && *(at += strspn(at, " ")); at += len) {
        struct parked_group entry = {.parked = NULL};
        len = strcspn(at, " ");
        if (read_entry(at, len, templates_shared_org(manager->templates), &entry))
            take_entry(parked, &entry);
    }
    for (struct parked_group *group = parked->groups, *next; group; group = next) {
        next = group->next;
        group->not_before_ns = 0;
        while (group->first && group->waiting + group->making > group->target)
            parked_end(group->first, "unused");
        if (group->target == 0)
            group_free(group);
    }
    parked_on_look(&parked->look);
}

/* ---- their life ---------------------------------------------------------------------------------------------- */

void parked_look(struct manager *manager)
{
    if (manager->parked && manager->parked->groups)
        parked_fill_at(manager->parked, loop_now_ns());
}

static void on_template(void *ctx)
{
    parked_look(ctx);
}

int parked_start(struct manager *manager, struct brig_err *err)
{
    struct parked *parked = mem_zalloc(sizeof *parked);

    if (!parked)
        return err_nomem(err);
    parked->manager = manager;
    parked->fill = (struct loop_timer){.fn = parked_on_fill, .ctx = parked};
    parked->look = (struct loop_timer){.fn = parked_on_look, .ctx = parked};
    manager->parked = parked;
    if (manager->templates)
        templates_on_change(manager->templates, on_template, manager);
    parked_configure(manager);
    return 0;
}

/* The sandboxes are the manager's, and it frees them. */
void parked_stop(struct manager *manager)
{
    struct parked *parked = manager->parked;

    if (!parked)
        return;
    if (manager->templates)
        templates_on_change(manager->templates, NULL, NULL);
    loop_timer_clear(manager->loop, &parked->fill);
    loop_timer_clear(manager->loop, &parked->look);
    while (parked->groups) {
        struct parked_group *group = parked->groups;
        while (group->first) {
            struct parked_one *one = group->first;
            if (one->waits)
                sbox_unwatch(one->sbox, &one->watch);
            parked_free_one(one);
        }
        group_free(group);
    }
    mem_free(take_ptr(&manager->parked));
}

/* ---- a create ------------------------------------------------------------------------------------------------ */

/* The entry whose sandboxes are what this spec asks for, or NULL. */
static struct parked_group *group_for(const struct parked *parked, const struct sbox_spec *spec)
{
    AUTO_BUF struct buf shape = BUF_INIT(PARKED_SHAPE_MAX);

    for (struct parked_group *group = parked->groups; group; group = group->next) {
        if (!group->shape || !str_eq(group->image_name, spec->image->name) ||
            !str_eq(group->image_org, spec->image->org))
            continue;
        if (shape.len == 0 && parked_shape(spec, &shape) < 0)
            return NULL;
        if (str_eq(group->shape, shape.data))
            return group;
    }
    return NULL;
}

static struct parked_one *one_of(const struct parked_group *group)
{
    struct parked_one *one = group->first;

    while (one && !(one->waits && one->sbox->link)) /* its stream may have ended a moment ago */
        one = one->next;
    return one;
}

struct sbox *parked_take(struct manager *manager, struct sbox_spec *spec)
{
    struct parked *parked = manager->parked;

    if (!parked || !parked->groups || spec->internal || parked_can(spec, NULL) < 0)
        return NULL;
    struct parked_group *group = group_for(parked, spec);
    if (!group)
        return NULL;
    struct parked_one *one = one_of(group);
    group->last_used_ns = loop_now_ns();
    if (!one) {
        group->misses++;
        parked->misses++;
        return NULL;
    }
    struct sbox *sbox = one->sbox;
    group->claims++;
    parked->claims++;
    sbox_unwatch(sbox, &one->watch);
    parked_free_one(one);
    /* What its making has found out: a working directory of the image that could not be made. */
    str_assign(spec->workdir, sbox->spec.workdir);
    str_assign(spec->note, sbox->spec.note);
    sbox_spec_done(&sbox->spec);
    sbox_adopt(sbox);
    parked_fill_at(parked, loop_now_ns() + PARKED_QUIET_NS);
    return sbox;
}

/* ---- for people ---------------------------------------------------------------------------------------------- */

void manager_parked_stats(const struct manager *manager, struct parked_stats *ret)
{
    const struct parked *parked = manager->parked;

    *ret = (struct parked_stats){parked->waiting, parked->making, parked->claims, parked->misses, parked->failures};
}

void manager_parked_json(const struct manager *manager, const char *org, struct json *json)
{
    for (const struct parked_group *group = manager->parked->groups; group; group = group->next) {
        if (org && !str_eq(org, group->org))
            continue;
        json_object(json);
        json_key_string(json, "kind", "sandbox");
        json_key_string(json, "organization_id", group->org);
        json_key_string(json, "template", group->name);
        json_key(json, "language"), json_null(json);
        json_key(json, "requirements"), json_null(json);
        json_key_u64(json, "parked", group->waiting);
        json_key_u64(json, "making", group->making);
        json_key_u64(json, "target", group->target);
        json_key_u64(json, "claims", group->claims);
        json_key_u64(json, "misses", group->misses);
        json_key_u64(json, "failures", group->failures);
        json_key_text(json, "error", group->why);
        json_end(json);
    }
}
