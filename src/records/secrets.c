/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secrets.c: named secrets per organisation: a kind of records (objects.h), sealed in memory as in the store.
 *
 * Invariants. A value is in clear here only between secrets_put()'s first line and its seal, in the caller's memory,
 * and in what secrets_reveal() gives away. A row names its key, and organisation and name are bound into the seal, so
 * a row that was moved, or changed, does not open. Without a key nothing is stored, unless the switch says so by its
 * name; a row that is not sealed is of no use when the switch is off again.
 */
#include "records/secrets.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "records/rotate.h"
#include "records/sealed_value.h"
#include "records/secrets_priv.h"

#define BROKERED_MIN 8u
#define DOC_MAX (SECRET_VALUE_MAX * 2 + 65536u)
#define CONTEXT_MAX 256u

struct secrets {
    struct objects *objects;
    struct sealer sealer;
};

/* The extra of an object. */
struct secret {
    struct secret_info info;
    struct sealed sealed; /* of KEY_ID_PLAIN: the value itself */
};

static int context_of(const char *org, const char *name, char out[CONTEXT_MAX], struct brig_err *err)
{
    return str_format(out, CONTEXT_MAX, "%s\n%s", org, name) < 0 ? err_usage(err, "secret: the name is too long") : 0;
}

/* ---- documents ---------------------------------------------------------------------------------------- */

static void on_unloaded(void *ctx UNUSED, struct object *object)
{
    struct secret *secret = object->extra;

    sealed_wipe(&secret->sealed);
    mem_free(secret);
}

static int damaged(struct brig_err *err)
{
    (void)err_set(err, BRIG_E_HOST, 0, "it is damaged");
    return -EBADMSG;
}

static int read_doc(const struct object *object, struct secret *secret, struct brig_err *err)
{
    const struct json_value *size = json_get(object->json, "size"), *broker = json_get(object->json, "broker");
    struct secret_info *info = &secret->info;
    int r = sealed_read(object->json, &secret->sealed);

    if (r == -ENOMEM)
        return err_nomem(err);
    if (r < 0 || !size || !size->integer || size->i64 < 0 || !secret_name_ok(object->id) ||
        str_copy(info->name, sizeof info->name, object->id) < 0)
        return damaged(err);
    info->size = (uint64_t)size->i64;
    info->brokered = broker && broker->type != JSON_NULL;
    if (info->brokered && broker_rule_parse(broker, &info->rule, NULL) < 0)
        return damaged(err);
    info->created_at_ns = object->created_at_ns;
    info->updated_at_ns = object->updated_at_ns;
    memcpy(info->key_id, secret->sealed.key_id, KEY_ID_MAX);
    return 0;
}

static int on_loaded(void *ctx UNUSED, struct object *object, struct brig_err *err)
{
    struct secret *secret = mem_zalloc(sizeof *secret);

    object->extra = secret;
    return secret ? read_doc(object, secret, err) : err_nomem(err);
}

static int put_doc(const struct secrets *secrets, const char *org, const char *name, const void *value, size_t len,
                   const struct broker_rule *rule, struct buf *out, struct brig_err *err)
{
    struct json json = JSON_INIT(out);
    struct sealed sealed = {0};
    char context[CONTEXT_MAX];
    int r = context_of(org, name, context, err);

    if (r == 0)
        r = sealer_seal(&secrets->sealer, context, value, len, &sealed, err);
    if (r < 0)
        return r;
    json_object(&json);
    sealed_put(&sealed, &json);
    sealed_wipe(&sealed);
    json_key(&json, "broker");
    if (rule)
        broker_rule_put(rule, &json);
    else
        json_null(&json);
    json_key_u64(&json, "size", len);
    json_end(&json);
    r = json_finish(&json);
    return r < 0 ? err_set(err, BRIG_E_NOMEM, -r, "write the secret down") : 0;
}

/* ---- life --------------------------------------------------------------------------------------------- */

int secrets_create(struct store *store, const struct keyring *ring, bool plain, struct secrets **ret,
                   struct brig_err *err)
{
    static const struct objects_kind kind = {.kind = "secret",
                                             .many = "secrets",
                                             .per_org = SECRETS_PER_ORG,
                                             .secret = true,
                                             .by_id = true,
                                             .no_json = true,
                                             .loaded = on_loaded,
                                             .unloaded = on_unloaded};
    struct secrets *secrets = mem_zalloc(sizeof *secrets);

    if (!secrets)
        return err_nomem(err);
    secrets->sealer = (struct sealer){.ring = ring, .plain = plain, .legacy_key = ""};
    int r = objects_create(store, &kind, &secrets->objects, err);
    if (r < 0)
        secrets_destroy(secrets);
    else
        *ret = secrets;
    return r;
}

void secrets_destroy(struct secrets *secrets)
{
    if (!secrets)
        return;
    objects_destroy(secrets->objects);
    mem_free(secrets);
}

bool secrets_can_store(const struct secrets *secrets)
{
    return secrets->sealer.ring || secrets->sealer.plain;
}

const struct secret_info *secret_info_of(const struct object *object)
{
    return &((const struct secret *)object->extra)->info;
}

const struct secret_info *secrets_find(const struct secrets *secrets, const char *org, const char *name)
{
    const struct object *object = objects_find(secrets->objects, org, name);

    return object ? secret_info_of(object) : NULL;
}

struct objects *secrets_objects(const struct secrets *secrets)
{
    return secrets->objects;
}

/* ---- changing ----------------------------------------------------------------------------------------- */

/*
 * A value that would be another header, another user, or no key pair, is refused while its owner still has it at hand.
 */
static int check_value(const struct broker_rule *rule, const uint8_t *value, size_t len, struct brig_err *err)
{
    /* A shorter value stands in many answers by chance, so that answers cannot be searched for it. */
    if (len < BROKERED_MIN)
        return err_usage(
            err, "value: a brokered secret has at least %u bytes; a shorter one could not be kept out of answers",
            BROKERED_MIN);
    for (size_t i = 0; i < len; i++)
        if (value[i] < 0x20 || value[i] == 0x7f)
            return err_usage(err, "value: a brokered secret cannot have control characters (a newline?) in it");
    if (rule->where == BROKER_BASIC_USER && memchr(value, ':', len))
        return err_usage(err, "value: a user name cannot have a colon in it");
    if (rule->where != BROKER_SIGV4)
        return 0;
    const uint8_t *colon = memchr(value, ':', len);
    const uint8_t *second = colon ? memchr(colon + 1, ':', len - (size_t)(colon + 1 - value)) : NULL;
    const uint8_t *end = second ? second : value + len;
    if (!colon || colon == value || end == colon + 1 || (second && second + 1 == value + len))
        return err_usage(err, "value: of aws-sigv4 it must be ACCESS_KEY_ID:SECRET_ACCESS_KEY[:SESSION_TOKEN]");
    return 0;
}

static int check_put(const struct secrets *secrets, const char *name, size_t len, struct brig_err *err)
{
    if (!secret_name_ok(name))
        return err_usage(
            err, "%.80s: a secret's name has 1 to %u letters, digits, '_', '.' or '-', and begins with a letter or '_'",
            name, SECRET_NAME_MAX - 1);
    if (len == 0)
        return err_usage(err, "value: is empty");
    if (len > SECRET_VALUE_MAX)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "value: more than %u bytes", SECRET_VALUE_MAX);
    if (!secrets_can_store(secrets))
        return err_set(
            err, BRIG_E_CONFLICT, 0,
            "no key to seal secrets with: `brig secret keygen > FILE`, then key_file = \"FILE\" in [secrets] of "
            "config.toml (or key_env, key_command), and restart the service");
    return 0;
}

int secrets_put(struct secrets *secrets, const char *org, const char *name, const void *value, size_t len,
                const struct json_value *broker, objects_done_fn *done, void *ctx, struct brig_err *err)
{
    const bool brokered = broker && broker->type != JSON_NULL;
    AUTO_BUF struct buf doc = BUF_INIT(DOC_MAX);
    struct broker_rule rule;
    int r = check_put(secrets, name, len, err);

    if (r == 0 && brokered)
        r = broker_rule_parse(broker, &rule, err);
    if (r == 0 && brokered)
        r = check_value(&rule, value, len, err);
    if (r == 0)
        r = put_doc(secrets, org, name, value, len, brokered ? &rule : NULL, &doc, err);
    if (r == 0)
        r = objects_put(secrets->objects, org, name, doc.data, doc.len, 0, done, ctx, err);
    if (doc.data)
        crypto_wipe(doc.data, doc.len); /* it may be a plain one */
    return r;
}

static bool is_stale(void *ctx, const struct object *object)
{
    const struct secrets *secrets = ctx;

    return sealed_stale(&secrets->sealer, &((const struct secret *)object->extra)->sealed);
}

/* The same value and rule under the current key. */
static int reseal(void *ctx, const struct object *object, struct buf *doc, struct brig_err *err)
{
    const struct secrets *secrets = ctx;
    const struct secret_info *info = secret_info_of(object);
    uint8_t *value = NULL;
    size_t len = 0;

    if (!is_stale(ctx, object))
        return 1;
    int r = secrets_reveal(secrets, object->org_id, object->id, &value, &len, err);
    if (r == 0)
        r = put_doc(secrets, object->org_id, object->id, value, len, info->brokered ? &info->rule : NULL, doc, err);
    crypto_secret_free(value, len);
    return r;
}

int secrets_rotate(struct secrets *secrets, rotate_done_fn *done, void *ctx, struct brig_err *err)
{
    const struct rotate_kind kind = {.stale = is_stale, .make = reseal, .ctx = secrets, .keep_time = true};

    if (!secrets_can_store(secrets))
        return err_set(err, BRIG_E_CONFLICT, 0, "no key to seal secrets with");
    return rotate_objects(secrets->objects, &kind, done, ctx, err);
}

/* ---- using -------------------------------------------------------------------------------------------- */

void secrets_placeholder(char out[PLACEHOLDER_LEN + 1])
{
    uint8_t random[16];

    if (crypto_random(random, sizeof random) < 0) /* getrandom(2) does not fail; a guessable placeholder would be worse
                                                     than none */
        abort();
    memcpy(out, PLACEHOLDER_PREFIX, sizeof PLACEHOLDER_PREFIX - 1);
    crypto_hex(random, sizeof random, out + sizeof PLACEHOLDER_PREFIX - 1);
}

static int find(const struct secrets *secrets, const char *org, const char *name, const struct secret **ret,
                struct brig_err *err)
{
    const struct object *object = objects_find(secrets->objects, org, name);

    if (!object)
        return err_set(err, BRIG_E_NOT_FOUND, 0, "secret %.64s not found", name);
    *ret = object->extra;
    return 0;
}

int secrets_put_slot(const struct secrets *secrets, const char *org, const char *name, const char *placeholder,
                     struct json *json, struct brig_err *err)
{
    const struct secret *secret = NULL;
    char context[CONTEXT_MAX], what[SECRET_NAME_MAX + 8];
    int r = find(secrets, org, name, &secret, err);

    if (r < 0)
        return r;
    snprintf(what, sizeof what, "secret %s", secret->info.name);
    r = sealed_usable(&secrets->sealer, &secret->sealed, what, err);
    if (r < 0)
        return r;
    if (!secret->info.brokered)
        return err_set(
            err, BRIG_E_REFUSED, 0,
            "secret %s has no broker rule, so the sandbox would see its value: say --expose (\"expose\": true) "
            "if it may",
            name);
    r = context_of(org, name, context, err);
    if (r < 0)
        return r;
    json_object(json);
    json_key_string(json, "name", name);
    json_key_string(json, "placeholder", placeholder);
    sealed_put(&secret->sealed, json);
    json_key_string(json, "context", context);
    json_key(json, "broker"), broker_rule_put(&secret->info.rule, json);
    json_end(json);
    return json->error < 0 ? err_set(err, BRIG_E_NOMEM, -json->error, "secret %s", name) : 0;
}

int secrets_reveal(const struct secrets *secrets, const char *org, const char *name, uint8_t **ret, size_t *ret_len,
                   struct brig_err *err)
{
    const struct secret *secret = NULL;
    char context[CONTEXT_MAX], what[SECRET_NAME_MAX + 8];
    int r = find(secrets, org, name, &secret, err);

    if (r == 0)
        r = context_of(org, name, context, err);
    if (r < 0)
        return r;
    snprintf(what, sizeof what, "secret %s", secret->info.name);
    return sealed_open(&secrets->sealer, context, &secret->sealed, what, ret, ret_len, err);
}
