/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sealed_value.c: values in documents: sealed before they are written down, opened into wiping memory. The
 * organisation, the owner and the name are bound into the seal, so that a value does not open in another's row. What
 * Letta stored opens with its password and becomes ours when it is next written.
 */
#include "records/sealed_value.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "crypto/legacy.h"

int sealer_check(const struct sealer *sealer, struct brig_err *err)
{
    if (sealer->ring || sealer->plain)
        return 0;
    return err_set(
        err, BRIG_E_CONFLICT, 0,
        "no key to seal values with: `brig secret keygen > FILE`, then key_file = \"FILE\" in [secrets] of config.toml "
        "(or key_env, "
        "key_command), and restart the service");
}

int sealed_context(const char *org, const char *owner, const char *name, char out[SEALED_CONTEXT])
{
    int r = str_format(out, SEALED_CONTEXT, "%s\n%s\n%s", org, owner, name);

    return r < 0 ? r : 0;
}

int sealer_seal(const struct sealer *sealer, const char *context, const void *value, size_t len, struct sealed *ret,
                struct brig_err *err)
{
    int r = sealer_check(sealer, err);

    if (r < 0)
        return r;
    *ret = (struct sealed){0};
    if (sealer->ring) {
        r = keyring_seal(sealer->ring, context, value, len, ret);
        return r < 0 ? err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_HOST, -r, "seal the value") : 0;
    }
    ret->data = mem_alloc(len + 1);
    if (!ret->data)
        return err_nomem(err);
    memcpy(ret->data, value, len);
    ret->len = len;
    memcpy(ret->key_id, KEY_ID_PLAIN, sizeof KEY_ID_PLAIN);
    return 0;
}

void sealed_wipe(struct sealed *sealed)
{
    if (sealed->data)
        crypto_wipe(sealed->data, sealed->len);
    sealed_done(sealed);
}

void sealed_put(const struct sealed *sealed, struct json *json)
{
    json_key_string(json, "key_id", sealed->key_id);
    json_key(json, "nonce"), json_base64(json, sealed->nonce, SEAL_NONCE);
    json_key(json, "sealed"), json_base64(json, sealed->data, sealed->len);
}

int sealed_value_put(const struct sealer *sealer, const char *context, const void *value, size_t len, struct json *json,
                     struct brig_err *err)
{
    struct sealed sealed = {0};
    int r = sealer_seal(sealer, context, value, len, &sealed, err);

    if (r < 0)
        return r;
    json_object(json);
    sealed_put(&sealed, json);
    json_end(json);
    sealed_wipe(&sealed);
    return 0;
}

static bool is_text(const struct json_value *value)
{
    return value && value->type == JSON_STRING && strlen(value->string) == value->len;
}

bool sealed_value_ok(const struct json_value *sealed)
{
    const struct json_value *key_id = json_get(sealed, "key_id");

    return is_text(json_get(sealed, "legacy")) ||
           (is_text(key_id) && key_id->len < KEY_ID_MAX && is_text(json_get(sealed, "nonce")) &&
            is_text(json_get(sealed, "sealed")));
}

static bool is_stale(const struct sealer *sealer, const char *key_id)
{
    return !str_eq(key_id, sealer->ring ? keyring_current(sealer->ring) : KEY_ID_PLAIN);
}

bool sealed_stale(const struct sealer *sealer, const struct sealed *sealed)
{
    return is_stale(sealer, sealed->key_id);
}

bool sealed_value_stale(const struct sealer *sealer, const struct json_value *sealed)
{
    const struct json_value *key_id = json_get(sealed, "key_id");

    return !key_id || is_stale(sealer, key_id->string);
}

int sealed_read(const struct json_value *json, struct sealed *ret)
{
    const struct json_value *key_id = json_get(json, "key_id"), *nonce = json_get(json, "nonce"),
                            *data = json_get(json, "sealed");
    size_t n = 0;

    *ret = (struct sealed){0};
    if (!is_text(key_id) || !is_text(nonce) || !is_text(data) ||
        str_copy(ret->key_id, sizeof ret->key_id, key_id->string) < 0 ||
        crypto_unbase64(nonce->string, nonce->len, ret->nonce, SEAL_NONCE, &n) < 0 || n != SEAL_NONCE)
        return -EBADMSG;
    ret->data = mem_alloc(data->len + 1);
    if (!ret->data)
        return -ENOMEM;
    if (crypto_unbase64(data->string, data->len, ret->data, data->len, &ret->len) == 0)
        return 0;
    ret->len = 0;
    sealed_wipe(ret);
    return -EBADMSG;
}

static int refuse(int r, const char *what, const char *why, struct brig_err *err)
{
    if (r == -ENOMEM)
        return err_nomem(err);
    (void)err_set(err, BRIG_E_REFUSED, 0, "%s %s", what, why);
    return r;
}

static int open_legacy(const struct sealer *sealer, const struct json_value *text, const char *what, uint8_t **ret,
                       size_t *ret_len, struct brig_err *err)
{
    int r = legacy_open(sealer->legacy_key ? sealer->legacy_key : "", text->string, text->len, ret, ret_len);

    if (r == -ENOKEY)
        return refuse(r, what, "is stored as Letta stores values, and [tools] legacy_key is not set", err);
    return r < 0 ? refuse(r, what, "is stored as Letta stores values, and does not open with [tools] legacy_key", err)
                 : 0;
}

int sealed_usable(const struct sealer *sealer, const struct sealed *sealed, const char *what, struct brig_err *err)
{
    char why[KEY_ID_MAX + 80];

    if (str_eq(sealed->key_id, KEY_ID_PLAIN))
        return sealer->plain ? 0
                             : refuse(-ENOKEY, what,
                                      "is stored without encryption, and insecure_plaintext is off: set it again", err);
    if (sealer->ring && keyring_has(sealer->ring, sealed->key_id))
        return 0;
    snprintf(why, sizeof why, "was sealed with key %s, which the key ring does not have", sealed->key_id);
    return refuse(-ENOKEY, what, why, err);
}

int sealed_open(const struct sealer *sealer, const char *context, const struct sealed *sealed, const char *what,
                uint8_t **ret, size_t *ret_len, struct brig_err *err)
{
    char why[KEY_ID_MAX + 80];
    int r = sealed_usable(sealer, sealed, what, err);

    if (r < 0)
        return r;
    r = keyring_open(sealer->ring, context, sealed, ret, ret_len);
    snprintf(why, sizeof why, "does not open: its row was changed or moved, or key %s is another one", sealed->key_id);
    return r < 0 ? refuse(r, what, why, err) : 0;
}

static int open_ours(const struct sealer *sealer, const char *context, const struct json_value *json, const char *what,
                     uint8_t **ret, size_t *ret_len, struct brig_err *err)
{
    struct sealed sealed = {0};
    int r = sealed_read(json, &sealed);

    r = r < 0 ? refuse(r, what, "is damaged", err) : sealed_open(sealer, context, &sealed, what, ret, ret_len, err);
    sealed_wipe(&sealed);
    return r;
}

int sealed_value_open(const struct sealer *sealer, const char *context, const struct json_value *sealed,
                      const char *what, uint8_t **ret, size_t *ret_len, struct brig_err *err)
{
    const struct json_value *legacy = json_get(sealed, "legacy");

    if (!sealed_value_ok(sealed))
        return refuse(-EBADMSG, what, "is damaged", err);
    return legacy ? open_legacy(sealer, legacy, what, ret, ret_len, err)
                  : open_ours(sealer, context, sealed, what, ret, ret_len, err);
}

int sealed_value_renew(const struct sealer *sealer, const char *context, const struct json_value *sealed,
                       const char *what, bool must_open, struct json *json, struct brig_err *err)
{
    uint8_t *value = NULL;
    size_t len = 0;

    if (!sealed_value_stale(sealer, sealed) || (!must_open && sealer_check(sealer, NULL) < 0)) {
        json_raw(json, sealed->raw, sealed->raw_len);
        return 0;
    }
    int r = sealed_value_open(sealer, context, sealed, what, &value, &len, err);
    if (r < 0) {
        if (must_open || r == -ENOMEM)
            return r;
        json_raw(json, sealed->raw, sealed->raw_len);
        return 0;
    }
    r = sealed_value_put(sealer, context, value, len, json, err);
    crypto_secret_free(value, len);
    return r;
}
