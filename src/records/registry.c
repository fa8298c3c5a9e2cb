/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry.c: the tools of organisations: objects whose documents are parsed once, when they are read or written, so
 * that a run finds its schema compiled. A row that no longer parses stops the start (objects.c); nothing is written
 * that does not parse.
 */
#include "records/registry.h"

#include "base/err.h"
#include "base/mem.h"

static int on_loaded(void *ctx UNUSED, struct object *object, struct brig_err *err)
{
    struct tool *tool = mem_zalloc(sizeof *tool);

    if (!tool)
        return err_nomem(err);
    int r = tool_parse(object->json, tool, err);
    if (r < 0) {
        mem_free(tool);
        return r;
    }
    tool->id = object->id;
    tool->version = object->version;
    object->extra = tool;
    return 0;
}

static void on_unloaded(void *ctx UNUSED, struct object *object)
{
    tool_done(object->extra);
    mem_free(object->extra);
    object->extra = NULL;
}

static const char *key_of(void *ctx UNUSED, const struct object *object)
{
    return tool_of(object)->name;
}

int registry_create(struct store *store, struct objects **ret, struct brig_err *err)
{
    static const struct objects_kind kind = {
        .kind = "tool", .per_org = TOOLS_PER_ORG, .loaded = on_loaded, .unloaded = on_unloaded, .key = key_of};

    return objects_create(store, &kind, ret, err);
}

int registry_upsert(struct objects *registry, const char *org, const struct object *old, const char *doc, size_t len,
                    objects_done_fn *done, void *ctx, struct brig_err *err)
{
    struct json_doc *json = NULL;
    struct tool tool = {0};
    char id[128];
    int r = json_read(doc, len, JSON_READ_VALUES, &json, err);

    if (r == 0)
        r = tool_parse(json_root(json), &tool, err);
    if (r == 0) {
        r = objects_id_for(registry, org, tool.name, "tool", id, err);
        tool_done(&tool);
    }
    json_doc_free(json);
    return r < 0 ? r : objects_put(registry, org, id, doc, len, old ? old->version : OBJECTS_NEW, done, ctx, err);
}
