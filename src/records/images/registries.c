/* SPDX-License-Identifier: Apache-2.0 */
/* registries.c: logins at image registries (registries.h): {"user", "password": sealed}. */
#include "records/images/registries.h"

#include <string.h>

#include "base/ascii.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/docker_login.h"
#include "crypto/crypto.h"
#include "records/sealed_value.h"

struct registries {
    struct objects *objects;
    struct sealer sealer;
};

static int on_loaded(void *ctx UNUSED, struct object *object, struct brig_err *err)
{
    const struct json_value *user = json_get(object->json, "user"), *password = json_get(object->json, "password");

    if (!user || user->type != JSON_STRING || user->len >= REGISTRY_USER_MAX || !password || !sealed_value_ok(password))
        return err_set(err, BRIG_E_INVALID, 0, "registry: needs `user` and a sealed `password`");
    return 0;
}

int registries_create(struct store *store, const struct keyring *ring, bool plain, struct registries **ret,
                      struct brig_err *err)
{
    static const struct objects_kind kind = {.kind = "registry",
                                             .many = "registries",
                                             .per_org = REGISTRIES_PER_ORG,
                                             .secret = true,
                                             .by_id = true,
                                             .loaded = on_loaded};
    struct registries *registries = mem_zalloc(sizeof *registries);

    if (!registries)
        return err_nomem(err);
    registries->sealer = (struct sealer){.ring = ring, .plain = plain, .legacy_key = ""};
    int r = objects_create(store, &kind, &registries->objects, err);
    if (r < 0)
        mem_free(registries);
    else
        *ret = registries;
    return r;
}

void registries_destroy(struct registries *registries)
{
    if (!registries)
        return;
    objects_destroy(registries->objects);
    mem_free(registries);
}

struct objects *registries_objects(struct registries *registries)
{
    return registries->objects;
}

const char *registry_user(const struct object *object)
{
    return json_get_text(object->json, "user", "");
}

/* HOST or HOST:PORT, in lower case, as references have it. */
static bool host_ok(const char *host)
{
    return str_is_name(host, REGISTRY_HOST_MAX - 1, ASCII_LOWER ASCII_DIGITS "[]", ASCII_LOWER ASCII_DIGITS ".-:[]");
}

static bool text_ok(const char *text, size_t max)
{
    size_t len = strlen(text);

    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return false;
    return len > 0 && len < max;
}

int registries_put(struct registries *registries, const char *org, const char *host, const char *user,
                   const char *password, objects_done_fn *done, void *ctx, struct brig_err *err)
{
    AUTO_BUF struct buf doc = BUF_INIT(4 * REGISTRY_PASSWORD_MAX);
    struct json json = JSON_INIT(&doc);
    char context[SEALED_CONTEXT];

    host = docker_login_host(host);
    if (!host_ok(host))
        return err_usage(err, "registry %.64s: must be HOST or HOST:PORT in lower case", host);
    if (!text_ok(user, REGISTRY_USER_MAX) || strchr(user, ':'))
        return err_usage(err, "user: must have 1 to %u characters, none of them a colon or control character",
                         REGISTRY_USER_MAX - 1);
    if (!text_ok(password, REGISTRY_PASSWORD_MAX))
        return err_usage(err, "password: must have 1 to %u characters, none of them a control character",
                         REGISTRY_PASSWORD_MAX - 1);
    int r = sealer_check(&registries->sealer, err);
    if (r == 0 && sealed_context(org, "registry", host, context) < 0)
        r = err_usage(err, "registry %.64s: too long", host);
    if (r < 0)
        return r;
    json_object(&json);
    json_key_string(&json, "user", user);
    json_key(&json, "password");
    r = sealed_value_put(&registries->sealer, context, password, strlen(password), &json, err);
    json_end(&json);
    if (r == 0 && json_finish(&json) < 0)
        r = err_nomem(err);
    return r < 0 ? r : objects_put(registries->objects, org, host, doc.data, doc.len, 0, done, ctx, err);
}

int registries_delete(struct registries *registries, const char *org, const char *host, objects_done_fn *done,
                      void *ctx, struct brig_err *err)
{
    return objects_delete(registries->objects, org, docker_login_host(host), done, ctx, err);
}

int registries_login(const struct registries *registries, const char *org, const char *host, struct registry_login *ret)
{
    const struct object *object =
        strlen(host) < REGISTRY_HOST_MAX ? objects_find(registries->objects, org, host) : NULL;
    char context[SEALED_CONTEXT], *text;
    uint8_t *value = NULL;
    size_t len = 0;

    if (!object)
        return 0;
    int r = sealed_context(org, "registry", host, context);
    if (r == 0)
        r = sealed_value_open(&registries->sealer, context, json_get(object->json, "password"), "registry login",
                              &value, &len, NULL);
    if (r < 0)
        return r;
    text = crypto_secret_alloc(len + 1);
    if (text) {
        memcpy(text, value, len);
        text[len] = '\0';
    }
    crypto_secret_free(value, len);
    if (!text)
        return -ENOMEM;
    *ret = (struct registry_login){.password = text, .len = len + 1};
    return str_copy(ret->user, sizeof ret->user, registry_user(object)) < 0 ? -EINVAL : 1;
}

static bool is_stale(void *ctx, const struct object *object)
{
    const struct registries *registries = ctx;

    return sealed_value_stale(&registries->sealer, json_get(object->json, "password"));
}

static int reseal(void *ctx, const struct object *current, struct buf *doc, struct brig_err *err)
{
    const struct registries *registries = ctx;
    struct json json = JSON_INIT(doc);
    char context[SEALED_CONTEXT];

    if (!is_stale(ctx, current))
        return 1;
    if (sealed_context(current->org_id, "registry", current->id, context) < 0)
        return err_usage(err, "registry %.64s: too long", current->id);
    json_object(&json);
    json_key_string(&json, "user", registry_user(current));
    json_key(&json, "password");
    int r = sealed_value_renew(&registries->sealer, context, json_get(current->json, "password"), "registry login",
                               true, &json, err);
    json_end(&json);
    return r == 0 && json_finish(&json) < 0 ? err_nomem(err) : r;
}

int registries_rotate(struct registries *registries, rotate_done_fn *done, void *ctx, struct brig_err *err)
{
    const struct rotate_kind kind = {.stale = is_stale, .make = reseal, .ctx = registries, .keep_time = true};
    int r = sealer_check(&registries->sealer, err);

    return r < 0 ? r : rotate_objects(registries->objects, &kind, done, ctx, err);
}

void registry_login_done(struct registry_login *login)
{
    if (login->password)
        crypto_secret_free(login->password, login->len);
    *login = (struct registry_login){.password = NULL};
}
