/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker.c: the brokered secrets of one slot. They stay sealed here; values_open() opens those for one host, for one
 * exchange. The sandbox knows only the placeholder, 128 random bits that mean nothing to anyone else.
 */
#include "base/base64.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "egress/broker_priv.h"

/* ---- reading the slot's spec ------------------------------------------------------------------------------------- */

static const char *text_member(const struct json_value *object, const char *key)
{
    const char *text = json_get_text(object, key, "");

    return text[0] ? text : NULL;
}

/*
 * A placeholder is PLACEHOLDER_PREFIX and 32 lower-case hexadecimal digits: it can be found in any text and mistaken
 * for nothing else.
 */
static bool placeholder_ok(const char *text)
{
    return strlen(text) == PLACEHOLDER_LEN && str_starts(text, PLACEHOLDER_PREFIX) &&
           strspn(text + sizeof(PLACEHOLDER_PREFIX) - 1, "0123456789abcdef") == 32;
}

static int read_sealed(const struct json_value *object, struct sealed *ret)
{
    const char *key_id = text_member(object, "key_id"), *nonce = text_member(object, "nonce"),
               *data = text_member(object, "sealed");
    uint8_t nonce_bytes[SEAL_NONCE];

    if (!key_id || !nonce || !data || str_copy(ret->key_id, sizeof(ret->key_id), key_id) < 0 || strlen(nonce) != 16 ||
        base64_decode_padded(nonce, 16, nonce_bytes, SEAL_NONCE) != SEAL_NONCE)
        return -EINVAL;
    memcpy(ret->nonce, nonce_bytes, SEAL_NONCE);
    size_t len = strlen(data);
    if (len > (SECRET_VALUE_MAX + SEAL_TAG) / 3 * 4 + 8)
        return -EINVAL;
    ret->data = mem_alloc(len / 4 * 3 + 1);
    if (!ret->data)
        return -ENOMEM;
    ssize_t n = base64_decode_padded(data, len, ret->data, len / 4 * 3);
    if (n < (str_eq(ret->key_id, KEY_ID_PLAIN) ? 1 : (ssize_t)SEAL_TAG))
        return -EINVAL;
    ret->len = (size_t)n;
    return 0;
}

/* Opened once at the start, so that a ring without the key is found before a sandbox runs. */
static int try_open(const struct broker *broker, const struct broker_secret *secret, struct brig_err *err)
{
    uint8_t *value;
    size_t len;
    int r = keyring_open(broker->keys, secret->context, &secret->sealed, &value, &len);

    if (r == -ENOKEY)
        return err_set(err, BRIG_E_REFUSED, 0, "secret %s: the key ring has no key %s", secret->name,
                       secret->sealed.key_id);
    if (r < 0)
        return err_set(err, BRIG_E_REFUSED, 0, "secret %s: cannot be opened", secret->name);
    crypto_secret_free(value, len);
    return 0;
}

static int read_secret(const struct broker *broker, const struct json_value *object, struct broker_secret *ret,
                       struct brig_err *err)
{
    const char *name = text_member(object, "name"), *placeholder = text_member(object, "placeholder"),
               *context = text_member(object, "context");

    if (!name || !secret_name_ok(name) || str_copy(ret->name, sizeof(ret->name), name) < 0)
        return err_usage(err, "secrets: a name is missing or malformed");
    if (!placeholder || !placeholder_ok(placeholder) ||
        str_copy(ret->placeholder, sizeof(ret->placeholder), placeholder) < 0)
        return err_usage(err, "secret %s: the placeholder is missing or malformed", name);
    if (!context)
        return err_usage(err, "secret %s: context is missing", name);
    ret->context = mem_strdup(context);
    if (!ret->context)
        return err_nomem(err);
    int r = read_sealed(object, &ret->sealed);
    if (r == -ENOMEM)
        return err_nomem(err);
    if (r < 0)
        return err_usage(err, "secret %s: key_id, nonce or sealed is missing or malformed", name);
    const struct json_value *rule = json_get(object, "broker");
    if (!rule)
        return err_usage(err, "secret %s: broker is missing", name);
    r = broker_rule_parse(rule, &ret->rule, err);
    return r < 0 ? r : try_open(broker, ret, err);
}

static int read_secrets(struct broker *broker, const struct json_value *secrets, struct brig_err *err)
{
    if (!secrets || secrets->type != JSON_ARRAY || secrets->count == 0 || secrets->count > SLOT_SECRETS_MAX)
        return err_usage(err, "secrets: an array of 1 to %u is wanted", SLOT_SECRETS_MAX);
    broker->secrets = mem_zalloc(secrets->count * sizeof(*broker->secrets));
    if (!broker->secrets)
        return err_nomem(err);
    for (const struct json_value *item = secrets->first; item; item = item->next) {
        struct broker_secret *secret = &broker->secrets[broker->n_secrets++];
        int r = read_secret(broker, item, secret, err);
        if (r < 0)
            return r;
        for (size_t i = 0; i + 1 < broker->n_secrets; i++) {
            if (str_eq(broker->secrets[i].placeholder, secret->placeholder))
                return err_usage(err, "secret %s: the placeholder is %s's", secret->name, broker->secrets[i].name);
        }
    }
    return 0;
}

/* ---- the object ----------------------------------------------------------------------------------------- */

/* From the key of the first secret and its placeholder, which is this sandbox's alone. A secret that is stored in the
 * clear has no key. */
static bool find_seed(const struct broker *broker, uint8_t seed[32])
{
    char context[64 + PLACEHOLDER_LEN];

    snprintf(context, sizeof(context), "brig-authority-v1\n%s", broker->secrets[0].placeholder);
    return keyring_derive(broker->keys, broker->secrets[0].sealed.key_id, context, seed) == 0;
}

static int make_authority(struct broker *broker, struct buf *ca, struct brig_err *err)
{
    uint8_t seed[32];
    AUTO_FREE const char **hosts = mem_zalloc(broker->n_secrets * BROKER_HOSTS_MAX * sizeof(*hosts));
    size_t n = 0;

    if (!hosts)
        return err_nomem(err);
    for (size_t i = 0; i < broker->n_secrets; i++) {
        const struct broker_rule *rule = &broker->secrets[i].rule;
        for (size_t k = 0; k < rule->n_hosts; k++)
            hosts[n++] = rule->hosts[k].name;
    }
    bool seeded = find_seed(broker, seed);
    int r = authority_create(hosts, n, seeded ? seed : NULL, &broker->authority, err);
    crypto_wipe(seed, sizeof(seed));
    if (r < 0)
        return r;
    return authority_put_pem(broker->authority, ca) < 0 ? err_nomem(err) : 0;
}

int broker_create(struct egress *egress, const struct json_value *secrets, const struct keyring *keys,
                  struct broker **ret, struct buf *ca, struct brig_err *err)
{
    struct broker *broker = mem_zalloc(sizeof(*broker));

    if (!broker)
        return err_nomem(err);
    broker->egress = egress;
    broker->keys = keys;
    int r = read_secrets(broker, secrets, err);
    if (r == 0)
        r = make_authority(broker, ca, err);
    if (r == 0)
        r = broker_tls_create(broker, err);
    if (r < 0) {
        broker_destroy(broker);
        return r;
    }
    *ret = broker;
    return 0;
}

void broker_destroy(struct broker *broker)
{
    if (!broker)
        return;
    broker_tls_destroy(broker);
    authority_destroy(broker->authority);
    for (size_t i = 0; i < broker->n_secrets; i++) {
        mem_free(broker->secrets[i].context);
        sealed_done(&broker->secrets[i].sealed);
    }
    mem_free(broker->secrets);
    mem_free(broker);
}

void broker_use_keys(struct broker *broker, const struct keyring *keys)
{
    broker->keys = keys;
}

bool broker_covers(const struct broker *broker, const char *name, uint16_t port)
{
    for (size_t i = 0; i < broker->n_secrets; i++) {
        if (broker_rule_covers(&broker->secrets[i].rule, name, port))
            return true;
    }
    return false;
}

static const struct broker_secret *find_placeholder(const struct broker *broker, const char *text)
{
    for (size_t i = 0; i < broker->n_secrets; i++) {
        if (memcmp(broker->secrets[i].placeholder, text, PLACEHOLDER_LEN) == 0)
            return &broker->secrets[i];
    }
    return NULL;
}

const char *broker_finds_placeholder(const struct broker *broker, const char *data, size_t len)
{
    const char *at = data, *end = data + len;

    while ((size_t)(end - at) >= PLACEHOLDER_LEN &&
           (at = memmem(at, (size_t)(end - at), PLACEHOLDER_PREFIX, sizeof(PLACEHOLDER_PREFIX) - 1)) &&
           (size_t)(end - at) >= PLACEHOLDER_LEN) {
        const struct broker_secret *secret = find_placeholder(broker, at);
        if (secret)
            return secret->name;
        at++;
    }
    return NULL;
}

/* ---- values --------------------------------------------------------------------------------------------- */

int values_open(const struct broker *broker, const char *name, uint16_t port, struct values *ret, struct brig_err *err)
{
    ret->n = 0;
    for (size_t i = 0; i < broker->n_secrets; i++) {
        const struct broker_secret *secret = &broker->secrets[i];
        if (!broker_rule_covers(&secret->rule, name, port))
            continue;
        struct value *value = &ret->items[ret->n];
        if (keyring_open(broker->keys, secret->context, &secret->sealed, &value->data, &value->len) < 0) {
            values_close(ret);
            return err_set(err, BRIG_E_REFUSED, 0, "secret %s cannot be opened", secret->name);
        }
        value->secret = secret;
        ret->n++;
    }
    return 0;
}

void values_close(struct values *values)
{
    for (size_t i = 0; i < values->n; i++)
        crypto_secret_free(values->items[i].data, values->items[i].len);
    values->n = 0;
}

/* ---- placeholders on their way out ---------------------------------------------------------------------- */

static void look(struct placeholder_search *search, const struct broker *broker, const char *data, size_t len,
                 void (*found)(void *ctx, const struct broker_secret *secret), void *ctx)
{
    const char *at = data, *end = data + len;

    while ((at = memmem(at, (size_t)(end - at), PLACEHOLDER_PREFIX, sizeof(PLACEHOLDER_PREFIX) - 1)) &&
           (size_t)(end - at) >= PLACEHOLDER_LEN) {
        const struct broker_secret *secret = find_placeholder(broker, at);
        if (secret && !search->seen[secret - broker->secrets]) {
            search->seen[secret - broker->secrets] = true;
            found(ctx, secret);
        }
        at++;
    }
}

/* tail: the last bytes of what came before, at most one less than a placeholder has. */
void placeholder_feed(struct placeholder_search *search, const struct broker *broker, const char *data, size_t len,
                      void (*found)(void *ctx, const struct broker_secret *secret), void *ctx)
{
    char seam[2 * PLACEHOLDER_LEN];
    const size_t keep = PLACEHOLDER_LEN - 1;
    size_t head = len < keep ? len : keep;

    if (search->len > 0) {
        memcpy(seam, search->tail, search->len);
        memcpy(seam + search->len, data, head);
        look(search, broker, seam, search->len + head, found, ctx);
    }
    look(search, broker, data, len, found, ctx);
    if (len >= keep) {
        memcpy(search->tail, data + len - keep, keep);
        search->len = keep;
        return;
    }
    size_t old = search->len + len > keep ? keep - len : search->len;
    memmove(search->tail, search->tail + search->len - old, old);
    memcpy(search->tail + old, data, len);
    search->len = old + len;
}
