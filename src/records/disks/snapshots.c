/* SPDX-License-Identifier: Apache-2.0 */
/* snapshots.c: the snapshots of organisations: a kind of records (objects.h) whose key is the name, if there is one. */
#include "records/disks/snapshots.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

struct snapshots {
    struct objects *objects;
};

static int read_texts(const struct json_value *json, struct snapshot *ret)
{
    const struct {
        const char *key;
        char *out;
        size_t size;
    } texts[] = {
        {"name", ret->name, sizeof ret->name},
        {"key_id", ret->key_id, sizeof ret->key_id},
        {"created_by", ret->created_by, sizeof ret->created_by},
        {"created_as", ret->created_as, sizeof ret->created_as},
        {"sandbox_id", ret->sandbox_id, sizeof ret->sandbox_id},
        {"sandbox_name", ret->sandbox_name, sizeof ret->sandbox_name},
    };
    int r = 0;

    for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(texts); i++)
        r = str_copy(texts[i].out, texts[i].size, json_get_text(json, texts[i].key, ""));
    return r < 0 ? r : 0;
}

static int on_loaded(void *ctx UNUSED, struct object *object, struct brig_err *err)
{
    struct snapshot *snapshot = mem_zalloc(sizeof *snapshot);

    if (!snapshot)
        return err_nomem(err);
    snapshot->size = json_get_u64(object->json, "size");
    snapshot->inodes = json_get_u64(object->json, "inodes");
    snapshot->spec = json_get(object->json, "spec");
    snapshot->image = json_get(object->json, "image");
    if (read_texts(object->json, snapshot) < 0 || snapshot->size == 0 || !snapshot->spec ||
        snapshot->spec->type != JSON_OBJECT) {
        mem_free(snapshot);
        return err_set(err, BRIG_E_INVALID, 0, "snapshot: needs `size` and `spec`");
    }
    object->extra = snapshot;
    return 0;
}

static const char *key_of_snapshot(void *ctx UNUSED, const struct object *object)
{
    return snapshot_of(object)->name[0] ? snapshot_of(object)->name : NULL;
}

int snapshots_create(struct store *store, struct snapshots **ret, struct brig_err *err)
{
    static const struct objects_kind kind = {.kind = "snapshot",
                                             .many = "snapshots",
                                             .per_org = SNAPSHOTS_PER_ORG,
                                             .org_bytes = SNAPSHOTS_ORG_BYTES,
                                             .loaded = on_loaded,
                                             .key = key_of_snapshot};
    struct snapshots *snapshots = mem_zalloc(sizeof *snapshots);

    if (!snapshots)
        return err_nomem(err);
    int r = objects_create(store, &kind, &snapshots->objects, err);
    if (r < 0)
        mem_free(snapshots);
    else
        *ret = snapshots;
    return r;
}

void snapshots_destroy(struct snapshots *snapshots)
{
    if (!snapshots)
        return;
    objects_destroy(snapshots->objects);
    mem_free(snapshots);
}

struct objects *snapshots_objects(struct snapshots *snapshots)
{
    return snapshots->objects;
}

const struct object *snapshots_find(const struct snapshots *snapshots, const char *org, const char *name)
{
    const struct object *object = objects_by_key(snapshots->objects, org, name);

    return object ? object : objects_find(snapshots->objects, org, name);
}

int snapshots_put(struct snapshots *snapshots, const char *org, const char *id, const struct buf *doc,
                  objects_done_fn *done, void *ctx, struct brig_err *err)
{
    return objects_put(snapshots->objects, org, id, doc->data, doc->len, OBJECTS_NEW, done, ctx, err);
}

struct search {
    const char *layer;
    bool found;
};

static bool search_each(void *ctx, const struct object *object)
{
    struct search *search = ctx;
    const struct json_value *image = snapshot_of(object)->image;
    const struct json_value *layers = image ? json_get(json_get(image, "document"), "layers") : NULL;

    for (const struct json_value *at = layers && layers->type == JSON_ARRAY ? layers->first : NULL; at; at = at->next)
        if (at->type == JSON_STRING && str_eq(at->string, search->layer))
            search->found = true;
    return !search->found;
}

bool snapshots_have_layer(const struct snapshots *snapshots, const char *layer)
{
    struct search search = {.layer = layer};

    objects_each(snapshots->objects, search_each, &search);
    return search.found;
}
