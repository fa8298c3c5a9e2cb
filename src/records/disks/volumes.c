/* SPDX-License-Identifier: Apache-2.0 */
/* volumes.c: the volumes of organisations: a kind of records (objects.h) whose key is the name. */
#include "records/disks/volumes.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "host/limits.h"

struct volumes {
    struct objects *objects;
};

static int on_loaded(void *ctx UNUSED, struct object *object, struct brig_err *err)
{
    struct volume *volume = mem_zalloc(sizeof *volume);

    if (!volume)
        return err_nomem(err);
    volume->size = json_get_u64(object->json, "size");
    volume->inodes = json_get_u64(object->json, "inodes");
    if (str_copy(volume->name, sizeof volume->name, json_get_text(object->json, "name", "")) < 0 ||
        str_copy(volume->key_id, sizeof volume->key_id, json_get_text(object->json, "key_id", "")) < 0 ||
        !volume->name[0] || volume->size == 0) {
        mem_free(volume);
        return err_set(err, BRIG_E_INVALID, 0, "volume: needs `name` and `size`");
    }
    str_cut(volume->created_by, sizeof volume->created_by, json_get_text(object->json, "created_by", ""));
    object->extra = volume;
    return 0;
}

static const char *key_of_volume(void *ctx UNUSED, const struct object *object)
{
    return volume_of(object)->name;
}

int volumes_create(struct store *store, struct volumes **ret, struct brig_err *err)
{
    static const struct objects_kind kind = {.kind = "volume",
                                             .many = "volumes",
                                             .per_org = VOLUMES_PER_ORG,
                                             .no_json = true,
                                             .loaded = on_loaded,
                                             .key = key_of_volume};
    struct volumes *volumes = mem_zalloc(sizeof *volumes);

    if (!volumes)
        return err_nomem(err);
    int r = objects_create(store, &kind, &volumes->objects, err);
    if (r < 0)
        mem_free(volumes);
    else
        *ret = volumes;
    return r;
}

void volumes_destroy(struct volumes *volumes)
{
    if (!volumes)
        return;
    objects_destroy(volumes->objects);
    mem_free(volumes);
}

struct objects *volumes_objects(struct volumes *volumes)
{
    return volumes->objects;
}

const struct object *volumes_find(const struct volumes *volumes, const char *org, const char *name)
{
    const struct object *object = objects_by_key(volumes->objects, org, name);

    return object ? object : objects_find(volumes->objects, org, name);
}

bool volume_is_cache(const struct object *object)
{
    return str_starts(volume_of(object)->name, VOLUME_CACHE);
}

int volumes_put(struct volumes *volumes, const char *org, const char *id, const struct volume *volume,
                objects_done_fn *done, void *ctx, struct brig_err *err)
{
    AUTO_BUF struct buf doc = BUF_INIT(4096);
    struct json json = JSON_INIT(&doc);

    json_object(&json);
    json_key_string(&json, "name", volume->name);
    json_key_string(&json, "key_id", volume->key_id);
    json_key_string(&json, "created_by", volume->created_by);
    json_key_u64(&json, "size", volume->size);
    json_key_u64(&json, "inodes", volume->inodes);
    json_end(&json);
    if (json_finish(&json) < 0)
        return err_nomem(err);
    return objects_put(volumes->objects, org, id, doc.data, doc.len, OBJECTS_NEW, done, ctx, err);
}

int disk_label_check(const char *what, const char *name, struct brig_err *err)
{
    struct brig_err why;

    if (check_name(name, &why) < 0)
        return err_usage(err,
                         "%s %.80s: a name has 1 to 63 of letters, digits, \"_\", \".\" and \"-\", and begins with "
                         "a letter or digit",
                         what, name);
    if (str_starts(name, "vol-") || str_starts(name, "snap-"))
        return err_usage(err, "%s %s: names that begin with \"vol-\" or \"snap-\" are ids", what, name);
    return 0;
}
