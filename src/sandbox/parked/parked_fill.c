/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parked_fill.c: makes parked sandboxes, and ends those that are stale or in the way of others.
 *
 * Every fill first asks what each entry means now: the template is looked up and its spec is made as for a create that
 * names the template alone, by a user key of its organisation. If the shape is another one, all that were made before
 * are ended. Then the entry that lacks most gets one more, until nothing is missing or there is no room: parked
 * sandboxes count in `[manager] max_sandboxes`, and none is made while the host has less memory than `[pool] keep_free`
 * and a quarter. Real creates come first: a fill waits a moment for those under way. An entry whose services take long,
 * or never come up, holds only its own places: the others go on without it.
 *
 * Room that is needed is given back at once: a create beyond `max_sandboxes` ends one parked sandbox, that of the entry
 * which was used longest ago, and too little memory ends all of them.
 */
#include <fcntl.h>
#include <inttypes.h>

#include "base/fd.h"
#include "base/list.h"
#include "base/parse.h"
#include "sandbox/parked/parked_priv.h"

void parked_fill_at(struct parked *parked, uint64_t at_ns)
{
    if (parked->fill_at_ns && parked->fill_at_ns <= at_ns)
        return;                                                                 /* it comes sooner */
    if (loop_timer_set(parked->manager->loop, &parked->fill, at_ns, NULL) == 0) /* else the next look does it */
        parked->fill_at_ns = at_ns;
}

/* ---- room ---------------------------------------------------------------------------------------------------- */

/* What the host could give to programs; UINT64_MAX if it does not say. */
static uint64_t memory_available(void)
{
    char text[4096];
    uint64_t kib;

    if (fd_read_file(AT_FDCWD, "/proc/meminfo", text, sizeof text) < 0)
        return UINT64_MAX;
    const char *at = strstr(text, "MemAvailable:");
    return at && parse_fields(at + strlen("MemAvailable:"), &kib, 1) == 1 ? kib << 10 : UINT64_MAX;
}

static bool has_memory(const struct parked *parked, bool for_more)
{
    uint64_t keep = parked->manager->config->pool_keep_free;

    return keep == 0 || memory_available() >= keep + (for_more ? keep / 4 : 0);
}

static bool has_room(const struct manager *manager)
{
    return manager->count + manager->n_parked < manager->config->max_sandboxes;
}

void parked_give_way(struct manager *manager)
{
    struct parked *parked = manager->parked;

    while (parked && parked->waiting + parked->making > 0 &&
           manager->count + parked->waiting + parked->making >= manager->config->max_sandboxes) {
        struct parked_group *oldest = NULL;
        for (struct parked_group *group = parked->groups; group; group = group->next)
            if (group->first && (!oldest || group->last_used_ns < oldest->last_used_ns))
                oldest = group;
        if (!oldest)
            return;
        parked_end(oldest->first, "unused");
    }
}

void parked_on_look(struct loop_timer *timer)
{
    struct parked *parked = timer->ctx;

    if (!parked->groups)
        return;
    if (!has_memory(parked, false))
        for (struct parked_group *group = parked->groups; group; group = group->next)
            parked_drop(group, "unused");
    parked_fill_at(parked, loop_now_ns());
    (void)!loop_timer_set(parked->manager->loop, timer, loop_now_ns() + PARKED_LOOK_NS, NULL);
}

/* ---- what an entry means ------------------------------------------------------------------------------------- */

static int read_spec(const struct parked_group *group, struct sbox_spec *ret, struct brig_err *err)
{
    struct manager *manager = group->parked->manager;
    struct caller caller = {.role = STORE_ROLE_USER, .actor = "system"};
    AUTO_BUF struct buf text = BUF_INIT(1024);
    AUTO_JSON struct json_doc *doc = NULL;
    struct json json = JSON_INIT(&text);

    json_object(&json);
    json_key_string(&json, "template", group->name);
    json_end(&json);
    str_assign(caller.org_id, group->org);
    int r = json_finish(&json) < 0 ? err_nomem(err) : json_read(text.data, text.len, JSON_READ_VALUES, &doc, err);
    r = r < 0 ? r : sbox_spec_parse(json_root(doc), manager->config, manager->templates, &caller, ret, err);
    if (r == 0 && (r = parked_can(ret, err)) < 0)
        sbox_spec_done(ret);
    return r;
}

static int take_shape(struct parked_group *group, const struct sbox_spec *spec, struct brig_err *err)
{
    AUTO_BUF struct buf shape = BUF_INIT(PARKED_SHAPE_MAX);

    if (parked_shape(spec, &shape) < 0)
        return err_nomem(err);
    if (group->shape && str_eq(group->shape, shape.data))
        return 0;
    parked_drop(group, "unused");
    mem_free(group->shape);
    group->shape = mem_strdup(shape.data);
    str_assign(group->image_org, spec->image->org);
    str_assign(group->image_name, spec->image->name);
    group->failures = 0;
    group->not_before_ns = 0;
    group->why[0] = '\0';
    return group->shape ? 0 : err_nomem(err);
}

/* Ends what does not mean the same any more. The caller frees *ret if this returns 0. */
static int look_up(struct parked_group *group, struct sbox_spec *ret, struct brig_err *err)
{
    int r = read_spec(group, ret, err);

    if (r == 0 && (r = take_shape(group, ret, err)) < 0)
        sbox_spec_done(ret);
    if (r == 0)
        return 0;
    parked_drop(group, "unused");
    mem_free(take_ptr(&group->shape));
    str_cut(group->why, sizeof group->why, err->message);
    return r;
}

/* ---- making -------------------------------------------------------------------------------------------------- */

static void failed(struct parked_group *group, const struct brig_err *why)
{
    struct parked *parked = group->parked;
    unsigned n = group->failures < PARKED_PAUSES_MAX ? group->failures : PARKED_PAUSES_MAX;

    if (parked->manager->shutting_down)
        return;
    if (group->failures++ == 0) /* once for all that follow */
        sandbox_audit(parked->manager, NULL, group->org, "pool.fill", group->name, "failed", why->message, false);
    parked->failures++;
    str_cut(group->why, sizeof group->why, why->message);
    group->not_before_ns = loop_now_ns() + (PARKED_PAUSE_NS << n);
    parked_fill_at(parked, group->not_before_ns);
}

/* It died while it waited. */
static void on_gone(void *ctx, struct sbox *sbox UNUSED)
{
    struct parked_one *one = ctx;
    struct parked_group *group = one->group;
    struct brig_err err = {0};

    (void)err_set(&err, BRIG_E_GONE, 0, "template %s: a sandbox that was kept ready has ended by itself", group->name);
    parked_free_one(one);
    failed(group, &err);
}

static void on_made(void *ctx, struct sbox *sbox, const struct brig_err *err)
{
    struct parked_one *one = ctx;
    struct parked_group *group = one->group;

    if (err) {
        parked_free_one(one);
        failed(group, err);
        return;
    }
    one->waits = true;
    group->making--;
    group->waiting++;
    group->parked->making--;
    group->parked->waiting++;
    group->failures = 0;
    group->why[0] = '\0';
    one->watch = (struct sbox_watch){.ended = on_gone, .ctx = one};
    sbox_watch(sbox, &one->watch);
    parked_look(group->parked->manager);
}

/* It takes the spec over. */
static int make(struct parked_group *group, struct sbox_spec *spec, struct brig_err *err)
{
    struct parked *parked = group->parked;
    struct caller caller = {.role = STORE_ROLE_USER, .actor = "system"}; /* of no organisation */
    struct parked_one *one = mem_zalloc(sizeof *one);

    if (!one) {
        sbox_spec_done(spec);
        return err_nomem(err);
    }
    spec->internal = spec->parked = spec->ephemeral = true;
    spec->timeout_ms = spec->idle_timeout_ms = 0;
    int r = manager_create_internal(parked->manager, &caller, spec, on_made, one, &one->sbox, err);
    if (r < 0) {
        mem_free(one);
        return r;
    }
    one->group = group;
    one->since_ns = loop_now_ns();
    list_append(&group->first, &group->last, one);
    group->making++;
    parked->making++;
    return 0;
}

static bool lacks(const struct parked_group *group, uint64_t now)
{
    return group->shape && group->waiting + group->making < group->target && group->making < PARKED_MAKING_MAX &&
           now >= group->not_before_ns;
}

/* Is there a place for one more to be made? Else the next one is free at *ret_at_ns, unless one is made before. */
static bool has_place(const struct parked *parked, uint64_t now, uint64_t *ret_at_ns)
{
    unsigned taken = 0;

    *ret_at_ns = UINT64_MAX;
    for (const struct parked_group *group = parked->groups; group; group = group->next)
        for (const struct parked_one *one = group->first; one; one = one->next)
            if (!one->waits && now < one->since_ns + PARKED_PLACE_NS) {
                taken++;
                if (one->since_ns + PARKED_PLACE_NS < *ret_at_ns)
                    *ret_at_ns = one->since_ns + PARKED_PLACE_NS;
            }
    return taken < PARKED_MAKING_MAX;
}

/* Returns the one that lacks most, in parts of what it should have; or NULL if none lacks any. */
static struct parked_group *next_group(const struct parked *parked, uint64_t now)
{
    struct parked_group *best = NULL;

    for (struct parked_group *group = parked->groups; group; group = group->next)
        if (lacks(group, now) &&
            (!best || (group->waiting + group->making) * best->target < (best->waiting + best->making) * group->target))
            best = group;
    return best;
}

static void make_one(struct parked_group *group)
{
    struct sbox_spec *spec = mem_zalloc(sizeof *spec);
    struct brig_err err = {0};

    if (!spec)
        return;
    if (look_up(group, spec, &err) == 0 && make(group, spec, &err) < 0)
        failed(group, &err);
    mem_free(spec);
}

static void look_up_all(struct parked *parked)
{
    struct sbox_spec *spec = mem_zalloc(sizeof *spec);

    for (struct parked_group *group = parked->groups; spec && group; group = group->next) {
        struct brig_err err = {0};
        if (look_up(group, spec, &err) == 0)
            sbox_spec_done(spec);
    }
    mem_free(spec);
}

/* Creates go first, but not for ever. */
static bool must_wait(struct parked *parked, uint64_t now)
{
    if (parked->manager->creating == 0) {
        parked->held_since_ns = 0;
        return false;
    }
    if (!parked->held_since_ns)
        parked->held_since_ns = now;
    return now - parked->held_since_ns < PARKED_HELD_NS;
}

void parked_on_fill(struct loop_timer *timer)
{
    struct parked *parked = timer->ctx;
    struct manager *manager = parked->manager;
    uint64_t now = loop_now_ns(), free_at_ns;

    parked->fill_at_ns = 0;
    if (!manager->is_ready || manager->shutting_down)
        return;
    look_up_all(parked);
    for (;;) {
        struct parked_group *group = next_group(parked, now);
        if (!group)
            return;
        if (!has_place(parked, now, &free_at_ns)) {
            parked_fill_at(parked, free_at_ns);
            return;
        }
        if (must_wait(parked, now)) {
            parked_fill_at(parked, now + 5 * PARKED_QUIET_NS);
            return;
        }
        if (!has_room(manager)) {
            str_assign(group->why, "[manager] max_sandboxes has no room for more");
            return;
        }
        if (!has_memory(parked, true)) {
            str_assign(group->why, "the host has too little memory ([pool] keep_free)");
            return;
        }
        parked->held_since_ns = 0;
        make_one(group);
    }
}
