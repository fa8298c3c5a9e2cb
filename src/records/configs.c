/* SPDX-License-Identifier: Apache-2.0 */
/*
 * configs.c: sandbox configurations: one per organisation and type, which is their key. What is stored is complete
 * (config_fields.c), and the fingerprint over it is worked out once per version. A change tells the fingerprints before
 * and after: sandboxes kept under the old one are then retired.
 */
#include "records/configs.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "host/dirs.h"
#include "records/configs_priv.h"

#define CONFIG_MAX (1u << 20)

struct config_extra {
    const char *type;
    const struct json_value *content;
    char fingerprint[FINGERPRINT_MAX];
};

/* ---- the kind ----------------------------------------------------------------------------------------- */

static int on_loaded(void *ctx UNUSED, struct object *object, struct brig_err *err)
{
    const struct json_value *content = json_get(object->json, "config");
    const char *type = json_get_text(object->json, "type", NULL);

    if (!type || !config_type_ok(type) || !content || content->type != JSON_OBJECT)
        return err_set(err, BRIG_E_INVALID, 0, "config: needs `type` and `config`");
    struct config_extra *extra = mem_zalloc(sizeof *extra);
    if (!extra)
        return err_nomem(err);
    *extra = (struct config_extra){.type = type, .content = content};
    int r = config_fingerprint(extra->type, object->org_id, content, extra->fingerprint);
    if (r < 0) {
        mem_free(extra);
        return err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_HOST, -r, "config: the fingerprint");
    }
    object->extra = extra;
    return 0;
}

static const char *config_type(const struct object *config)
{
    return ((const struct config_extra *)config->extra)->type;
}

const struct json_value *config_content(const struct object *config)
{
    return ((const struct config_extra *)config->extra)->content;
}

const char *config_object_fingerprint(const struct object *config)
{
    return ((const struct config_extra *)config->extra)->fingerprint;
}

static const char *key_of(void *ctx UNUSED, const struct object *object)
{
    return config_type(object);
}

static void on_changed(void *ctx, const struct object *before, const struct object *after)
{
    struct configs *configs = ctx;
    const struct object *either = after ? after : before;

    if (!after) /* variables that came while it went */
        (void)!variables_drop(configs, before->org_id, before->id, NULL);
    if (configs->options.on_change)
        configs->options.on_change(configs->options.ctx, either->org_id, config_type(either), either->id,
                                   before ? config_object_fingerprint(before) : "",
                                   after ? config_object_fingerprint(after) : "");
}

/* ---- life --------------------------------------------------------------------------------------------- */

static int set_default_dir(struct configs *configs, struct brig_err *err)
{
    const char *given = configs->options.config->tools_exec_dir;
    char state[4000];
    int r;

    if (given && given[0]) {
        r = str_copy(configs->default_dir, sizeof configs->default_dir, given);
    } else {
        r = dirs_path(BRIG_DIR_STATE, state, sizeof state, err);
        if (r < 0)
            return r;
        r = str_format(configs->default_dir, sizeof configs->default_dir, "%s/tool_execution_dir", state);
    }
    return r < 0 ? err_usage(err, "[tools] exec_dir: the path is too long") : 0;
}

int configs_create(const struct configs_options *options, struct configs **ret, struct brig_err *err)
{
    struct configs *configs = mem_zalloc(sizeof *configs);

    if (!configs)
        return err_nomem(err);
    configs->options = *options;
    const struct objects_kind kind = {
        .kind = "config", .per_org = 100, .loaded = on_loaded, .key = key_of, .changed = on_changed, .ctx = configs};
    int r = set_default_dir(configs, err);
    if (r == 0)
        r = objects_create(options->store, &kind, &configs->objects, err);
    if (r == 0)
        r = variables_create(configs, err);
    if (r < 0)
        return configs_destroy(configs), r;
    *ret = configs;
    return 0;
}

void configs_destroy(struct configs *configs)
{
    if (!configs)
        return;
    objects_destroy(configs->variables);
    objects_destroy(configs->objects);
    mem_free(configs);
}

struct objects *configs_objects(struct configs *configs)
{
    return configs->objects;
}

struct objects *configs_variables(struct configs *configs)
{
    return configs->variables;
}

void configs_configure(struct configs *configs, const struct config *config)
{
    configs->options.config = config; /* exec_dir needs a restart, so the default directory stays */
}

const struct object *configs_by_type(const struct configs *configs, const char *org, const char *type)
{
    return objects_by_key(configs->objects, org, type);
}

/* ---- changing ----------------------------------------------------------------------------------------- */

struct config_put {
    struct configs *configs;
    char type[CONFIG_TYPE_MAX]; /* "": with an id: the stored one's, or what config says */
    char actor[128];
    enum standing as;
    bool by_id, default_only;
    char *text; /* the object that was given */
    size_t len;
};

static void put_end(void *make_ctx)
{
    struct config_put *put = make_ctx;

    mem_free(put->text);
    mem_free(put);
}

/* What a PATCH is for; see configs_put(). */
static int check_type(const struct config_put *put, const struct json_value *config, const char *stored,
                      struct brig_err *err)
{
    const struct json_value *given = json_get(config, "type");
    char type[CONFIG_TYPE_MAX];
    int r = 0;

    if (put->type[0])
        r = str_copy(type, sizeof type, put->type);
    else if ((given && given->type != JSON_NULL) ||
             (config->count > 0 && config_type_known(stored) && !config_has_field_of(config, stored)))
        r = config_resolve(config, type, err);
    else
        return 0;
    if (r == 0 && !str_eq(type, stored))
        r = err_usage(
            err,
            "Mismatched type for sandbox config update: tried to update sandbox_config of type %s with config "
            "of type %s",
            stored, type);
    return r;
}

enum standing config_written_as(const struct object *config)
{
    const char *as = json_get_text(config->json, "written_as", NULL);

    return as ? standing_parse(as) : STANDING_NONE;
}

/* Who answers for it afterwards: one who replaces it all, or of those whose parts are in it the weakest. */
static enum standing answers_for(const struct config_put *put, const struct object *current)
{
    return current && put->by_id ? standing_weaker(config_written_as(current), put->as) : put->as;
}

static int write_doc(const struct config_put *put, const struct object *current, const char *type,
                     const struct buf *content, struct buf *doc, struct brig_err *err)
{
    struct json json = JSON_INIT(doc);

    json_object(&json);
    json_key_string(&json, "type", type);
    json_key_raw(&json, "config", content->data, content->len);
    json_key_text(&json, "created_by_id", current ? json_get_text(current->json, "created_by_id", NULL) : put->actor);
    json_key_text(&json, "last_updated_by_id", put->actor);
    json_key_string(&json, "written_as", standing_name(answers_for(put, current)));
    json_end(&json);
    int r = json_finish(&json);
    return r < 0 ? err_set(err, BRIG_E_NOMEM, -r, "config: write it down") : 0;
}

static int put_make(void *make_ctx, const struct object *current, struct buf *doc, struct brig_err *err)
{
    struct config_put *put = make_ctx;
    AUTO_BUF struct buf content = BUF_INIT(CONFIG_MAX);
    struct json_doc *given = NULL;

    if (put->by_id && !current)
        return err_set(err, BRIG_E_NOT_FOUND, 0, "config not found");
    if (put->default_only && current)
        return 1;
    const char *type = current ? config_type(current) : put->type;
    int r = json_read(put->text, put->len, JSON_READ_VALUES, &given, err);
    if (r == 0 && put->by_id)
        r = check_type(put, json_root(given), type, err);
    if (r == 0)
        r = config_complete(put->configs, type, json_root(given), put->by_id ? config_content(current) : NULL, &content,
                            err);
    json_doc_free(given);
    if (r < 0)
        return r;
    const struct json_value *old = current ? config_content(current) : NULL;
    const bool same = old && old->raw_len == content.len && memcmp(old->raw, content.data, content.len) == 0;
    if (same && answers_for(put, current) <= config_written_as(current))
        return 1;
    return write_doc(put, current, type, &content, doc, err);
}

static int put_prepare(struct config_put *put, const char *actor, const char *type, const struct json_value *config,
                       struct brig_err *err)
{
    const bool given = config && config->raw; /* one made by hand is an empty object */
    const char *text = given ? config->raw : "{}";

    put->len = given ? config->raw_len : 2;
    put->text = mem_alloc(put->len + 1);
    if (!put->text)
        return err_nomem(err);
    memcpy(put->text, text, put->len);
    put->text[put->len] = '\0';
    if (config && config->type != JSON_OBJECT)
        return err_set(err, BRIG_E_INVALID, 0, "config: must be an object");
    if (type && (!config_type_ok(type) || str_copy(put->type, sizeof put->type, type) < 0))
        return err_set(err, BRIG_E_INVALID, 0, "type: \"%.40s\" is no name of a provider", type);
    if (!type && !put->by_id) {
        if (!config)
            return str_copy(put->type, sizeof put->type, "local");
        int r = config_resolve(config, put->type, err);
        if (r < 0)
            return r;
    }
    return str_copy(put->actor, sizeof put->actor, actor ? actor : "") < 0
               ? err_usage(err, "the actor's id is too long")
               : 0;
}

int configs_put(struct configs *configs, const char *org, const char *actor, enum standing as, const char *id,
                const char *type, const struct json_value *config, bool default_only, objects_done_fn *done, void *ctx,
                struct brig_err *err)
{
    struct config_put *put = mem_zalloc(sizeof *put);
    char new_id[128];

    if (!put)
        return err_nomem(err);
    *put = (struct config_put){.configs = configs, .as = as, .by_id = id != NULL, .default_only = default_only};
    int r = put_prepare(put, actor, type, config, err);
    if (r == 0 && !id)
        r = objects_id_for(configs->objects, org, put->type, "sandbox", new_id, err);
    if (r < 0)
        return put_end(put), r;
    const struct objects_change change = {.org = org,
                                          .id = id ? id : new_id,
                                          .make = put_make,
                                          .end = put_end,
                                          .make_ctx = put,
                                          .done = done,
                                          .ctx = ctx};
    return objects_change(configs->objects, &change, err);
}

int configs_delete(struct configs *configs, const char *org, const char *id, objects_done_fn *done, void *ctx,
                   struct brig_err *err)
{
    if (!objects_find(configs->objects, org, id))
        return err_set(err, BRIG_E_NOT_FOUND, 0, "config %.100s not found", id);
    int r = variables_drop(configs, org, id, err);
    return r < 0 ? r : objects_delete(configs->objects, org, id, done, ctx, err);
}
