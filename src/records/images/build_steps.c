/* SPDX-License-Identifier: Apache-2.0 */
/* build_steps.c: the cache of builds (build_steps.h): {"layer", "diff_id", "bytes", "files"}. */
#include "records/images/build_steps.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

#define FORGET_AT_ONCE 256u

struct build_steps {
    struct objects *objects;
};

struct step {
    struct build_step_info info; /* the object's extra */
    bool leaving;                /* its deletion is on its way */
};

static bool is_hex(const char *text, size_t digits)
{
    return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

static int on_loaded(void *ctx UNUSED, struct object *object, struct brig_err *err)
{
    struct step *step = mem_zalloc(sizeof *step);
    const char *diff = json_get_text(object->json, "diff_id", "");

    if (!step)
        return err_nomem(err);
    struct build_step_info *info = &step->info;
    const struct json_value *bytes = json_get(object->json, "bytes"), *files = json_get(object->json, "files");
    *info = (struct build_step_info){.layer = json_get_text(object->json, "layer", ""),
                                     .diff_id = diff,
                                     .bytes = bytes && bytes->type == JSON_NUMBER ? (uint64_t)bytes->i64 : 0,
                                     .files = files && files->type == JSON_NUMBER ? (uint64_t)files->i64 : 0};
    if (!is_hex(object->id, 64) || (info->layer[0] && (!is_hex(info->layer, 64) || !str_starts(diff, "sha256:")))) {
        mem_free(step);
        return err_set(err, BRIG_E_INVALID, 0, "build step: needs a key and a layer of 64 hexadecimal digits");
    }
    object->extra = step;
    return 0;
}

int build_steps_create(struct store *store, struct build_steps **ret, struct brig_err *err)
{
    static const struct objects_kind kind = {.kind = "build-step",
                                             .many = "build steps",
                                             .per_org = 2 * BUILD_STEPS_PER_ORG,
                                             .patient = true,
                                             .loaded = on_loaded};
    struct build_steps *steps = mem_zalloc(sizeof *steps);

    if (!steps)
        return err_nomem(err);
    int r = objects_create(store, &kind, &steps->objects, err);
    if (r < 0)
        mem_free(steps);
    else
        *ret = steps;
    return r;
}

void build_steps_destroy(struct build_steps *steps)
{
    if (!steps)
        return;
    objects_destroy(steps->objects);
    mem_free(steps);
}

struct objects *build_steps_objects(struct build_steps *steps)
{
    return steps->objects;
}

const struct build_step_info *build_steps_find(const struct build_steps *steps, const char *org, const char *key)
{
    const struct object *object = objects_find(steps->objects, org, key);

    return object && clock_real_ns() - object->created_at_ns < BUILD_STEP_OLD_NS ? object->extra : NULL;
}

struct putting {
    void (*done)(void *ctx);
    void *ctx;
};

static void on_done(void *ctx, const struct object *object UNUSED, const struct brig_err *err UNUSED)
{
    AUTO_FREE struct putting *putting = ctx;

    if (putting)
        putting->done(putting->ctx);
}

struct leaving {
    struct build_steps *steps;
    char org[64], key[128]; /* as an object has them */
};

/* The store may refuse it: then it is asked again when the next step needs a place. */
static void on_left(void *ctx, const struct object *object UNUSED, const struct brig_err *err)
{
    AUTO_FREE struct leaving *leaving = ctx;
    const struct object *kept = err ? objects_find(leaving->steps->objects, leaving->org, leaving->key) : NULL;

    if (kept)
        ((struct step *)kept->extra)->leaving = false;
}

static int leave(struct build_steps *steps, const struct object *object)
{
    AUTO_FREE struct leaving *leaving = mem_zalloc(sizeof *leaving);

    if (!leaving)
        return -ENOMEM;
    leaving->steps = steps;
    str_assign(leaving->org, object->org_id);
    str_assign(leaving->key, object->id);
    int r = objects_delete(steps->objects, object->org_id, object->id, on_left, leaving, NULL);
    if (r == 0)
        (void)take_ptr(&leaving);
    return r;
}

static void make_room(struct build_steps *steps, const char *org)
{
    const struct object *object = objects_first(steps->objects, org);
    size_t bytes, count = objects_expected(steps->objects, org, &bytes);

    /* The oldest are first. Those that leave already are still in the list. */
    for (; object && count >= BUILD_STEPS_PER_ORG; object = object->next, count--) {
        struct step *step = object->extra;
        if (!step->leaving && leave(steps, object) < 0)
            return;
        step->leaving = true;
    }
}

int build_steps_put(struct build_steps *steps, const char *org, const char *key, const struct build_step_info *info,
                    void (*done)(void *ctx), void *ctx, struct brig_err *err)
{
    AUTO_BUF struct buf doc = BUF_INIT(4096);
    AUTO_FREE struct putting *putting = mem_zalloc(sizeof *putting);
    struct json json = JSON_INIT(&doc);

    if (!putting)
        return err_nomem(err);
    *putting = (struct putting){.done = done, .ctx = ctx};

    if (!objects_find(steps->objects, org, key)) /* one that is there takes no new place */
        make_room(steps, org);
    json_object(&json);
    json_key_string(&json, "layer", info->layer);
    json_key_string(&json, "diff_id", info->diff_id);
    json_key_u64(&json, "bytes", info->bytes);
    json_key_u64(&json, "files", info->files);
    json_end(&json);
    if (json_finish(&json) < 0)
        return err_nomem(err);
    int r = objects_put(steps->objects, org, key, doc.data, doc.len, 0, on_done, putting, err);
    if (r == 0)
        (void)take_ptr(&putting);
    return r;
}

void build_steps_hurry(struct build_steps *steps)
{
    objects_hurry(steps->objects);
}

struct looking {
    const char *org, *layer;
    const struct build_step_info *found;
};

static bool look(void *ctx, const struct object *object)
{
    struct looking *looking = ctx;
    const struct build_step_info *info = object->extra;

    if ((!looking->org || str_eq(object->org_id, looking->org)) && str_eq(info->layer, looking->layer))
        looking->found = info;
    return !looking->found;
}

const struct build_step_info *build_steps_with_layer(const struct build_steps *steps, const char *org,
                                                     const char *layer)
{
    struct looking looking = {.org = org, .layer = layer};

    if (!layer[0])
        return NULL;
    objects_each(steps->objects, look, &looking);
    return looking.found;
}

struct forgetting {
    const char *org;
    bool all;
    size_t n, max, pending, removed;
    void (*done)(void *ctx, size_t removed);
    void *ctx;
    struct {
        char org[64], id[BUILD_STEP_KEY];
    } found[];
};

static bool gather(void *ctx, const struct object *object)
{
    struct forgetting *f = ctx;
    bool old = clock_real_ns() - object->created_at_ns >= BUILD_STEP_OLD_NS;

    if ((f->org && !str_eq(f->org, object->org_id)) || !(f->all || old))
        return true;
    if (str_copy(f->found[f->n].org, sizeof f->found[f->n].org, object->org_id) == 0 &&
        str_copy(f->found[f->n].id, sizeof f->found[f->n].id, object->id) == 0)
        f->n++;
    return f->n < f->max;
}

static void on_forgotten(void *ctx, const struct object *object UNUSED, const struct brig_err *err)
{
    struct forgetting *f = ctx;

    f->removed += !err;
    if (--f->pending > 0)
        return;
    if (f->done)
        f->done(f->ctx, f->removed);
    mem_free(f);
}

bool build_steps_forget(struct build_steps *steps, const char *org, bool all, void (*done)(void *ctx, size_t removed),
                        void *ctx)
{
    const size_t max = org ? objects_count(steps->objects, org) + 1 : FORGET_AT_ONCE;
    struct forgetting *f = mem_zalloc(sizeof *f + max * sizeof *f->found);

    if (!f)
        return false;
    *f = (struct forgetting){.org = org, .all = all, .max = max, .done = done, .ctx = ctx};
    objects_each(steps->objects, gather, f);
    for (size_t i = 0; i < f->n; i++)
        f->pending += objects_delete(steps->objects, f->found[i].org, f->found[i].id, on_forgotten, f, NULL) == 0;
    if (f->pending > 0)
        return true;
    mem_free(f);
    return false;
}
