/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rotate.c: the names of what is stale are taken down once, then ROTATE_AT_ONCE changes are under way at any time, each
 * begun when another is committed. A change is made of what is there at its turn, so it cannot bring back what was
 * replaced meanwhile. One that fails does not stop the others.
 */
#include "records/rotate.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "records/objects_priv.h"

#define ROTATE_AT_ONCE 16u

struct name {
    char org[64], id[128];
};

struct rotation {
    struct objects *objects;
    struct rotate_kind kind;
    rotate_done_fn *done;
    void *ctx;
    struct name *names;
    size_t n, cap, next, under_way;
    uint64_t resealed, failed;
    struct brig_err first;
    bool nomem;
};

static void rotation_free(struct rotation *rotation)
{
    mem_free(rotation->names);
    mem_free(rotation);
}

static bool collect(void *ctx, const struct object *object)
{
    struct rotation *rotation = ctx;

    if (!rotation->kind.stale(rotation->kind.ctx, object))
        return true;
    if (MEM_GROW(rotation->names, rotation->n, rotation->cap) < 0) {
        rotation->nomem = true;
        return false;
    }
    struct name *name = &rotation->names[rotation->n++];
    memcpy(name->org, object->org_id, sizeof name->org);
    memcpy(name->id, object->id, sizeof name->id);
    return true;
}

static void end(struct rotation *rotation)
{
    struct brig_err err = {0};

    if (rotation->failed)
        (void)err_set(&err, (enum brig_code)rotation->first.code, 0, "%llu of %s could not be sealed again: %.300s",
                      (unsigned long long)rotation->failed, rotation->objects->kind.kind, rotation->first.message);
    rotation->done(rotation->ctx, rotation->resealed, rotation->failed ? &err : NULL);
    rotation_free(rotation);
}

static void count_failure(struct rotation *rotation, const struct brig_err *err)
{
    if (err->code == BRIG_E_NOT_FOUND)
        return;
    if (rotation->failed++ == 0)
        rotation->first = *err;
}

static void go_on(struct rotation *rotation);

static void on_resealed(void *ctx, const struct object *object UNUSED, const struct brig_err *err)
{
    struct rotation *rotation = ctx;

    rotation->under_way--;
    if (err)
        count_failure(rotation, err);
    else
        rotation->resealed++;
    go_on(rotation);
}

/* Gone meanwhile: it must not come back. Written meanwhile: it is under the current key, and not counted. */
static int make_if_there(void *make_ctx, const struct object *current, struct buf *doc, struct brig_err *err)
{
    struct rotation *rotation = make_ctx;

    if (!current)
        return err_set(err, BRIG_E_NOT_FOUND, 0, "gone");
    int r = rotation->kind.make(rotation->kind.ctx, current, doc, err);
    return r == 1 ? err_set(err, BRIG_E_NOT_FOUND, 0, "not stale") : r;
}

static void go_on(struct rotation *rotation)
{
    while (rotation->next < rotation->n && rotation->under_way < ROTATE_AT_ONCE) {
        const struct name *name = &rotation->names[rotation->next++];
        const struct objects_change change = {.org = name->org,
                                              .id = name->id,
                                              .make = make_if_there,
                                              .make_ctx = rotation,
                                              .keep_time = rotation->kind.keep_time,
                                              .done = on_resealed,
                                              .ctx = rotation};
        struct brig_err err = {0};
        if (objects_change(rotation->objects, &change, &err) < 0)
            count_failure(rotation, &err);
        else
            rotation->under_way++;
    }
    if (rotation->under_way == 0)
        end(rotation);
}

static void on_turn(void *ctx, const struct brig_err *err)
{
    (void)err; /* there was nothing to delete */
    go_on(ctx);
}

int rotate_objects(struct objects *objects, const struct rotate_kind *kind, rotate_done_fn *done, void *ctx,
                   struct brig_err *err)
{
    struct rotation *rotation = mem_zalloc(sizeof *rotation);

    if (!rotation)
        return err_nomem(err);
    *rotation = (struct rotation){.objects = objects, .kind = *kind, .done = done, .ctx = ctx};
    objects_each(objects, collect, rotation);
    /* nobody's: a turn of the loop */
    int r = rotation->nomem ? err_nomem(err)
                            : store_delete_object(objects->store, objects->kind.kind, "-", "-", on_turn, rotation, err);
    if (r < 0)
        rotation_free(rotation);
    return r;
}
