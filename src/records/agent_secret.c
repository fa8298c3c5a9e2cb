/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_secret.c: one secret of an agent, set or removed, the others as they are: whoever sets one need not know the
 * values of the rest, as a PATCH of the whole set would. The value is copied into wiping memory and sealed when its
 * turn comes (objects_change()).
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "records/agents_priv.h"

#define DESCRIPTION_MAX 512u
#define KEY_MAX 256u /* variable_name_ok() */

#define invalid(err, ...) err_set(err, BRIG_E_INVALID, 0, __VA_ARGS__)

struct secret_put {
    struct agents *agents;
    char id[128], org[64], actor[128], key[KEY_MAX + 1];
    bool remove, described;
    char description[DESCRIPTION_MAX + 1];
    char *value; /* wiping memory */
    size_t len, size;
};

static const struct json_value *find(const struct object *agent, const char *key)
{
    const struct json_value *list = agent_secret_list(agent);

    for (const struct json_value *item = list ? list->first : NULL; item; item = item->next)
        if (str_eq(json_get(item, "key")->string, key))
            return item;
    return NULL;
}

static int write_secret(const struct secret_put *put, const struct json_value *old, struct json *json,
                        struct brig_err *err)
{
    const struct json_value *description = old ? json_get(old, "description") : NULL;
    char id[128], context[SEALED_CONTEXT];
    int r = old ? str_copy(id, sizeof id, json_get(old, "id")->string) : objects_new_id("agent-env", id);

    if (r == 0)
        r = sealed_context(put->org, put->id, put->key, context);
    if (r < 0)
        return err_set(err, BRIG_E_HOST, -r, "secrets: make an id");
    json_object(json);
    json_key_string(json, "id", id);
    json_key_string(json, "key", put->key);
    if (put->described)
        json_key_string(json, "description", put->description);
    else if (description)
        json_key_raw(json, "description", description->raw, description->raw_len);
    json_key(json, "sealed");
    r = sealed_value_put(&put->agents->sealer, context, put->value, put->len, json, err);
    json_end(json);
    return r;
}

/* The list in its order: what is new comes last. */
static int write_list(const struct secret_put *put, const struct object *current, struct json *json,
                      struct brig_err *err)
{
    const struct json_value *list = agent_secret_list(current), *old = find(current, put->key);
    int r = 0;

    json_key_array(json, "secrets");
    for (const struct json_value *item = list ? list->first : NULL; item && r == 0; item = item->next) {
        if (item != old)
            json_raw(json, item->raw, item->raw_len);
        else if (!put->remove)
            r = write_secret(put, old, json, err);
    }
    if (r == 0 && !old)
        r = write_secret(put, NULL, json, err);
    json_end(json);
    return r;
}

static int secret_make(void *make_ctx, const struct object *current, struct buf *doc, struct brig_err *err)
{
    const struct secret_put *put = make_ctx;
    struct json json = JSON_INIT(doc);

    if (!current)
        return err_set(err, BRIG_E_NOT_FOUND, 0, "agent %s not found", put->id);
    const struct json_value *list = agent_secret_list(current), *old = find(current, put->key);
    if (put->remove && !old)
        return err_set(err, BRIG_E_NOT_FOUND, 0, "agent %s has no secret %.100s", put->id, put->key);
    if (!put->remove && !old && list && list->count >= AGENT_SECRETS_MAX)
        return err_set(err, BRIG_E_LIMIT, 0, "secrets: at most %u", AGENT_SECRETS_MAX);
    json_object(&json);
    for (const struct json_value *item = current->json->first; item; item = item->next) {
        if (str_eq(item->key, "secrets"))
            continue;
        json_key(&json, item->key);
        if (put->actor[0] && str_eq(item->key, "last_updated_by_id"))
            json_string(&json, put->actor);
        else
            json_raw(&json, item->raw, item->raw_len);
    }
    int r = write_list(put, current, &json, err);
    if (r < 0)
        return r;
    json_end(&json);
    r = json_finish(&json);
    return r < 0 ? err_set(err, r == -EMSGSIZE ? BRIG_E_TOO_LARGE : BRIG_E_NOMEM, -r, "agent: write it down") : 0;
}

static void secret_end(void *make_ctx)
{
    struct secret_put *put = make_ctx;

    crypto_secret_free(put->value, put->size);
    mem_free(put);
}

static int check(const char *key, const struct agent_secret *secret, struct brig_err *err)
{
    if (!variable_name_ok(key))
        return invalid(
            err, "secrets: \"%.80s\" is no name of a variable: letters, digits and '_', no digit first, at most 256",
            key);
    if (secret && (memchr(secret->value, '\0', secret->len) || secret->len > VARIABLE_VALUE_MAX))
        return invalid(err, "secrets: %.80s: has a NUL in it, or more than %u bytes", key, VARIABLE_VALUE_MAX);
    if (secret && secret->description && strlen(secret->description) > DESCRIPTION_MAX)
        return invalid(err, "secrets: %.80s: a description has at most %u bytes", key, DESCRIPTION_MAX);
    return 0;
}

static int fill(struct secret_put *put, const char *org, const char *actor, const char *id, const char *key,
                const struct agent_secret *secret, struct brig_err *err)
{
    if (str_copy(put->org, sizeof put->org, org) < 0 || str_copy(put->id, sizeof put->id, id) < 0 ||
        str_copy(put->key, sizeof put->key, key) < 0 || str_copy(put->actor, sizeof put->actor, actor ? actor : "") < 0)
        return err_usage(err, "agent: an id is too long");
    if (!secret)
        return 0;
    put->described = secret->description != NULL;
    if (put->described && str_copy(put->description, sizeof put->description, secret->description) < 0)
        return err_usage(err, "secrets: the description is too long");
    put->size = secret->len + 1;
    put->value = crypto_secret_alloc(put->size);
    if (!put->value)
        return err_nomem(err);
    memcpy(put->value, secret->value, secret->len);
    put->len = secret->len;
    return 0;
}

int agents_set_secret(struct agents *agents, const char *org, const char *actor, const char *id, const char *key,
                      const struct agent_secret *secret, objects_done_fn *done, void *ctx, struct brig_err *err)
{
    int r = check(key, secret, err);

    if (r == 0 && secret)
        r = sealer_check(&agents->sealer, err);
    if (r < 0)
        return r;
    struct secret_put *put = mem_zalloc(sizeof *put);
    if (!put)
        return err_nomem(err);
    put->agents = agents;
    put->remove = !secret;
    r = fill(put, org, actor, id, key, secret, err);
    if (r < 0)
        return secret_end(put), r;
    const struct objects_change change = {.org = put->org,
                                          .id = put->id,
                                          .make = secret_make,
                                          .end = secret_end,
                                          .make_ctx = put,
                                          .done = done,
                                          .ctx = ctx};
    return objects_change(agents->objects, &change, err);
}
