/* SPDX-License-Identifier: Apache-2.0 */
/*
 * variables.c: environment variables of a sandbox configuration. The value is sealed before it is written down, with
 * organisation, configuration and name bound in: so a new name means a new seal. One without its configuration (a crash
 * between two deletions) goes when it is noticed: at the start, and after a commit.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "crypto/legacy.h"
#include "records/configs_priv.h"
#include "records/rotate.h"

#define PER_ORG 100000u
#define DESCRIPTION_MAX 4096u

struct variable_extra {
    const char *config_id, *key, *description; /* description: or NULL */
    const struct json_value *sealed;
    char unique[]; /* "<configuration>\n<key>" */
};

bool variable_name_ok(const char *name)
{
    return str_is_variable(name, 256);
}

static struct sealer configs_sealer(const struct configs *configs)
{
    return (struct sealer){.ring = configs->options.ring,
                           .plain = configs->options.plain,
                           .legacy_key = configs->options.config->tools_legacy_key};
}

static const struct variable_extra *extra_of(const struct object *variable)
{
    return variable->extra;
}

/* ---- the kind ----------------------------------------------------------------------------------------- */

static int on_loaded(void *ctx UNUSED, struct object *object, struct brig_err *err)
{
    const char *config_id = json_get_text(object->json, "config_id", NULL),
               *key = json_get_text(object->json, "key", NULL);
    const struct json_value *sealed = json_get(object->json, "sealed");

    if (!config_id || !key || !variable_name_ok(key) || !sealed_value_ok(sealed))
        return err_set(err, BRIG_E_INVALID, 0, "variable: needs `config_id`, `key` and `sealed`");
    size_t size = strlen(config_id) + strlen(key) + 2;
    struct variable_extra *extra = mem_zalloc(sizeof *extra + size);
    if (!extra)
        return err_nomem(err);
    *extra = (struct variable_extra){.config_id = config_id,
                                     .key = key,
                                     .description = json_get_text(object->json, "description", NULL),
                                     .sealed = sealed};
    (void)!str_format(extra->unique, size, "%s\n%s", config_id, key);
    object->extra = extra;
    return 0;
}

static const char *key_of(void *ctx UNUSED, const struct object *object)
{
    return extra_of(object)->unique;
}

static void on_changed(void *ctx, const struct object *before UNUSED, const struct object *after)
{
    struct configs *configs = ctx;

    if (after && !objects_find(configs->objects, after->org_id, extra_of(after)->config_id))
        (void)!objects_delete(configs->variables, after->org_id, after->id, NULL, NULL, NULL);
}

static bool find_orphan(void *ctx, const struct object *object)
{
    struct configs *configs = ctx;

    if (!objects_find(configs->objects, object->org_id, extra_of(object)->config_id))
        /* committed later: the walk is safe */
        (void)!objects_delete(configs->variables, object->org_id, object->id, NULL, NULL, NULL);
    return true;
}

int variables_create(struct configs *configs, struct brig_err *err)
{
    const struct objects_kind kind = {.kind = "variable",
                                      .per_org = PER_ORG,
                                      .secret = true,
                                      .loaded = on_loaded,
                                      .key = key_of,
                                      .changed = on_changed,
                                      .ctx = configs};
    int r = objects_create(configs->options.store, &kind, &configs->variables, err);

    if (r == 0)
        objects_each(configs->variables, find_orphan, configs);
    return r;
}

/* ---- looking ------------------------------------------------------------------------------------------ */

const struct object *variables_by_key(const struct configs *configs, const char *org, const char *config_id,
                                      const char *key)
{
    char unique[512];

    return str_format(unique, sizeof unique, "%s\n%s", config_id, key) < 0
               ? NULL
               : objects_by_key(configs->variables, org, unique);
}

const struct object *variables_next(const struct configs *configs, const char *org, const char *config_id,
                                    const struct object *after)
{
    const struct object *at = after ? after->next : objects_first(configs->variables, org);

    while (at && !str_eq(extra_of(at)->config_id, config_id))
        at = at->next;
    return at;
}

static size_t count_of(const struct configs *configs, const char *org, const char *config_id)
{
    size_t n = 0;

    for (const struct object *at = variables_next(configs, org, config_id, NULL); at;
         at = variables_next(configs, org, config_id, at))
        n++;
    return n;
}

static int context_of(const struct object *variable, char out[SEALED_CONTEXT])
{
    return sealed_context(variable->org_id, extra_of(variable)->config_id, extra_of(variable)->key, out);
}

int variable_reveal(const struct configs *configs, const struct object *variable, uint8_t **ret, size_t *ret_len,
                    struct brig_err *err)
{
    const struct sealer sealer = configs_sealer(configs);
    char context[SEALED_CONTEXT], what[300];

    if (context_of(variable, context) < 0 || str_format(what, sizeof what, "variable %s", extra_of(variable)->key) < 0)
        return err_usage(err, "variable: the name is too long");
    return sealed_value_open(&sealer, context, extra_of(variable)->sealed, what, ret, ret_len, err);
}

/* ---- changing ----------------------------------------------------------------------------------------- */

struct variable_put {
    struct configs *configs;
    char org[64], config_id[128], actor[128];
    bool by_id;
    char *key, *description; /* NULL: as it is */
    uint8_t *value;          /* wiping memory; NULL: as it is */
    size_t value_len;
};

static void put_end(void *make_ctx)
{
    struct variable_put *put = make_ctx;

    crypto_secret_free(put->value, put->value_len);
    mem_free(put->key);
    mem_free(put->description);
    mem_free(put);
}

static int put_value(const struct variable_put *put, const struct object *current, const char *config_id,
                     const char *key, struct json *json, struct brig_err *err)
{
    const struct sealer sealer = configs_sealer(put->configs);
    char context[SEALED_CONTEXT];
    uint8_t *value = NULL;
    size_t len = 0;

    if (sealed_context(put->org, config_id, key, context) < 0)
        return err_usage(err, "variable: the name is too long");
    if (put->value)
        return sealed_value_put(&sealer, context, put->value, put->value_len, json, err);
    if (str_eq(key, extra_of(current)->key))
        return sealed_value_renew(&sealer, context, extra_of(current)->sealed, key, false, json, err);
    int r = variable_reveal(put->configs, current, &value, &len, err);
    if (r == 0)
        r = sealed_value_put(&sealer, context, value, len, json, err);
    crypto_secret_free(value, len);
    return r;
}

static int check_put(const struct variable_put *put, const struct object *current, struct brig_err *err)
{
    if (put->by_id && !current)
        return err_set(err, BRIG_E_NOT_FOUND, 0, "variable not found");
    if (!current && !put->value)
        return err_set(err, BRIG_E_INVALID, 0, "value: is required");
    if (current)
        return 0;
    if (!objects_find(put->configs->objects, put->org, put->config_id))
        return err_set(err, BRIG_E_CONFLICT, 0, "config %.100s is not there", put->config_id);
    if (count_of(put->configs, put->org, put->config_id) >= VARIABLES_MAX)
        return err_set(err, BRIG_E_LIMIT, 0, "a configuration has at most %u variables", VARIABLES_MAX);
    return 0;
}

/* Whether it is another than it was. A value is compared in clear, in constant time. */
static bool is_same(const struct variable_put *put, const struct object *current)
{
    const char *description = extra_of(current)->description;
    const struct sealer sealer = configs_sealer(put->configs);
    uint8_t *value = NULL;
    size_t len = 0;
    bool same = (!put->key || str_eq(put->key, extra_of(current)->key)) &&
                (!put->description || str_eq(put->description, description ? description : "")) &&
                !sealed_value_stale(&sealer, extra_of(current)->sealed);

    if (!same || !put->value)
        return same;
    if (variable_reveal(put->configs, current, &value, &len, NULL) < 0)
        return false;
    same = len == put->value_len && crypto_equal(value, put->value, len);
    crypto_secret_free(value, len);
    return same;
}

static int put_make(void *make_ctx, const struct object *current, struct buf *doc, struct brig_err *err)
{
    struct variable_put *put = make_ctx;
    struct json json = JSON_INIT(doc);
    int r = check_put(put, current, err);

    if (r < 0)
        return r;
    if (current && is_same(put, current))
        return 1;
    const char *config_id = current ? extra_of(current)->config_id : put->config_id,
               *key = put->key ? put->key : extra_of(current)->key;
    json_object(&json);
    json_key_string(&json, "config_id", config_id);
    json_key_string(&json, "key", key);
    json_key_text(&json, "description",
                  put->description ? put->description
                  : current        ? extra_of(current)->description
                                   : NULL);
    json_key(&json, "sealed");
    r = put_value(put, current, config_id, key, &json, err);
    if (r < 0)
        return r;
    json_key_text(&json, "created_by_id", current ? json_get_text(current->json, "created_by_id", NULL) : put->actor);
    json_key_text(&json, "last_updated_by_id", put->actor);
    json_end(&json);
    r = json_finish(&json);
    return r < 0 ? err_set(err, BRIG_E_NOMEM, -r, "variable: write it down") : 0;
}

static int check_change(const struct variable_change *change, struct brig_err *err)
{
    if (change->key && !variable_name_ok(change->key))
        return err_set(err, BRIG_E_INVALID, 0,
                       "key: \"%.80s\" is no name of a variable: letters, digits and '_', no digit first, at most 256",
                       change->key);
    if (change->value && change->value_len > VARIABLE_VALUE_MAX)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "value: more than %u bytes", VARIABLE_VALUE_MAX);
    if (change->value && memchr(change->value, '\0', change->value_len))
        return err_set(err, BRIG_E_INVALID, 0, "value: has a NUL in it");
    if (change->description && strlen(change->description) > DESCRIPTION_MAX)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "description: more than %u bytes", DESCRIPTION_MAX);
    return 0;
}

/* As Letta stored it. Opened once, here: a wrong password is told to the one who still has the value. */
static int take_legacy(struct variable_put *put, const char *text, struct brig_err *err)
{
    const char *password = put->configs->options.config->tools_legacy_key;

    if (!password || !password[0])
        return err_set(err, BRIG_E_CONFLICT, 0, "value_enc: [tools] legacy_key is not set");
    int r = legacy_open(password, text, strlen(text), &put->value, &put->value_len);
    if (r == -ENOMEM)
        return err_nomem(err);
    if (r < 0)
        return err_set(err, BRIG_E_INVALID, 0, "value_enc: does not open with [tools] legacy_key");
    if (put->value_len > VARIABLE_VALUE_MAX || memchr(put->value, '\0', put->value_len))
        return err_set(err, BRIG_E_INVALID, 0, "value_enc: its value has a NUL in it, or more than %u bytes",
                       VARIABLE_VALUE_MAX);
    return 0;
}

static int take_change(struct variable_put *put, const struct variable_change *change, struct brig_err *err)
{
    if ((change->key && !(put->key = mem_strdup(change->key))) ||
        (change->description && !(put->description = mem_strdup(change->description))))
        return err_nomem(err);
    if (!change->value)
        return change->value_enc ? take_legacy(put, change->value_enc, err) : 0;
    put->value = crypto_secret_alloc(change->value_len);
    if (!put->value)
        return err_nomem(err);
    put->value_len = change->value_len;
    memcpy(put->value, change->value, change->value_len);
    return 0;
}

static int find_id(struct variable_put *put, const struct variable_change *change, char out[128], struct brig_err *err)
{
    char unique[512];

    if (!change->key)
        return err_set(err, BRIG_E_INVALID, 0, "key: is required");
    int r = str_format(unique, sizeof unique, "%s\n%s", put->config_id, change->key);
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "make an id")
                 : objects_id_for(put->configs->variables, put->org, unique, "sandbox-env", out, err);
}

int variables_put(struct configs *configs, const char *org, const char *actor, const char *config_id, const char *id,
                  const struct variable_change *change, objects_done_fn *done, void *ctx, struct brig_err *err)
{
    const struct sealer sealer = configs_sealer(configs);
    struct variable_put *put = NULL;
    char new_id[128];
    int r = check_change(change, err);

    if (r == 0 && (change->value || change->value_enc))
        r = sealer_check(&sealer, err);
    if (r < 0)
        return r;
    put = mem_zalloc(sizeof *put);
    if (!put)
        return err_nomem(err);
    *put = (struct variable_put){.configs = configs, .by_id = id != NULL};
    if (str_copy(put->org, sizeof put->org, org) < 0 ||
        (!id && str_copy(put->config_id, sizeof put->config_id, config_id) < 0) ||
        str_copy(put->actor, sizeof put->actor, actor ? actor : "") < 0)
        r = err_usage(err, "variable: an id is too long");
    if (r == 0)
        r = take_change(put, change, err);
    if (r == 0 && !id)
        r = find_id(put, change, new_id, err);
    if (r < 0)
        return put_end(put), r;
    const struct objects_change write = {.org = org,
                                         .id = id ? id : new_id,
                                         .make = put_make,
                                         .end = put_end,
                                         .make_ctx = put,
                                         .done = done,
                                         .ctx = ctx};
    return objects_change(configs->variables, &write, err);
}

int variables_drop(struct configs *configs, const char *org, const char *config_id, struct brig_err *err)
{
    int r = 0;

    for (const struct object *at = variables_next(configs, org, config_id, NULL); at && r == 0;
         at = variables_next(configs, org, config_id, at))
        r = objects_delete(configs->variables, org, at->id, NULL, NULL, err);
    return r;
}

/* ---- rotation ----------------------------------------------------------------------------------------- */

static bool is_stale(void *ctx, const struct object *object)
{
    const struct sealer sealer = configs_sealer(ctx);

    return sealed_value_stale(&sealer, extra_of(object)->sealed);
}

/* The document with everything but its seal as it was. */
static int reseal(void *ctx, const struct object *current, struct buf *doc, struct brig_err *err)
{
    const struct sealer sealer = configs_sealer(ctx);
    struct json json = JSON_INIT(doc);
    char context[SEALED_CONTEXT], what[300];
    int r = 0;

    if (!is_stale(ctx, current))
        return 1;
    if (context_of(current, context) < 0 ||
        str_format(what, sizeof what, "variable %s of %s", extra_of(current)->key, extra_of(current)->config_id) < 0)
        return err_usage(err, "variable: the name is too long");
    json_object(&json);
    for (const struct json_value *item = current->json->first; item && r == 0; item = item->next) {
        json_key(&json, item->key);
        if (str_eq(item->key, "sealed"))
            r = sealed_value_renew(&sealer, context, item, what, true, &json, err);
        else
            json_raw(&json, item->raw, item->raw_len);
    }
    if (r < 0)
        return r;
    json_end(&json);
    r = json_finish(&json);
    return r < 0 ? err_set(err, BRIG_E_NOMEM, -r, "variable: write it down") : 0;
}

int configs_rotate(struct configs *configs, void (*done)(void *ctx, uint64_t resealed, const struct brig_err *err),
                   void *ctx, struct brig_err *err)
{
    const struct sealer sealer = configs_sealer(configs);
    const struct rotate_kind kind = {.stale = is_stale, .make = reseal, .ctx = configs};
    int r = sealer_check(&sealer, err);

    return r < 0 ? r : rotate_objects(configs->variables, &kind, done, ctx, err);
}
