/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secrets.c: named secrets per organisation: sorted in memory, written through to the store, sealed in both.
 *
 * Invariants. A value is in clear here only between secrets_put()'s first line and its seal, in the caller's memory,
 * and in what secrets_reveal() gives away. Memory follows the store: an entry appears, changes or goes when its write
 * is committed, in the order of the writes. A row names its key, and organisation and name are bound into the seal, so
 * a row that was moved, or changed, does not open. Without a key nothing is stored, unless the switch says so by its
 * name; a row that is not sealed is of no use when the switch is off again.
 */
#include "sandbox/secrets.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "sandbox/secrets_priv.h"

#define BROKERED_MIN 8u
#define KIND "secret"
#define DOC_MAX (SECRET_VALUE_MAX * 2 + 65536u)

/* ---- entries ------------------------------------------------------------------------------------------ */

static void entry_destroy(struct entry *entry)
{
    if (!entry)
        return;
    crypto_wipe(entry->sealed.data, entry->sealed.len);
    sealed_done(&entry->sealed);
    mem_free(entry);
}

static int compare(const struct secret_info *info, const char *org, const char *name)
{
    int order = strcmp(info->org_id, org);

    return order ? order : strcmp(info->name, name);
}

/* The first that is not before (org, name). */
static size_t place_of(const struct secrets *secrets, const char *org, const char *name)
{
    size_t low = 0, high = secrets->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare(&secrets->entries[middle]->info, org, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct entry *secrets_entry(const struct secrets *secrets, const char *org, const char *name)
{
    size_t at = place_of(secrets, org, name);

    return at < secrets->n && compare(&secrets->entries[at]->info, org, name) == 0 ? secrets->entries[at] : NULL;
}

/* So that a commit needs no memory. */
static int reserve(struct secrets *secrets)
{
    size_t want = secrets->n + secrets->pending + 1;

    if (want <= secrets->cap)
        return 0;
    struct entry **entries = mem_realloc_array(secrets->entries, want * 2, sizeof *entries);
    if (!entries)
        return -ENOMEM;
    secrets->entries = entries;
    secrets->cap = want * 2;
    return 0;
}

static void insert(struct secrets *secrets, struct entry *entry)
{
    size_t at = place_of(secrets, entry->info.org_id, entry->info.name);
    struct entry **slot = &secrets->entries[at];

    if (at < secrets->n && compare(&(*slot)->info, entry->info.org_id, entry->info.name) == 0) {
        entry->info.created_at_ns = (*slot)->info.created_at_ns; /* as the store keeps it */
        entry_destroy(*slot);
    } else {
        memmove(slot + 1, slot, (secrets->n - at) * sizeof(struct entry *));
        secrets->n++;
    }
    *slot = entry;
}

static void take_out(struct secrets *secrets, size_t at)
{
    entry_destroy(secrets->entries[at]);
    secrets->n--;
    memmove(&secrets->entries[at], &secrets->entries[at + 1], (secrets->n - at) * sizeof(struct entry *));
}

static int context_of(const struct secret_info *info, char *out, size_t size)
{
    return str_format(out, size, "%s\n%s", info->org_id, info->name);
}

/* ---- rows --------------------------------------------------------------------------------------------- */

static int row_text(const struct entry *entry, struct buf *out)
{
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key(&json, "key_id"), json_string(&json, entry->sealed.key_id);
    json_key(&json, "nonce"), json_base64(&json, entry->sealed.nonce, SEAL_NONCE);
    json_key(&json, "sealed"), json_base64(&json, entry->sealed.data, entry->sealed.len);
    json_key(&json, "broker");
    if (entry->info.brokered)
        broker_rule_put(&entry->info.rule, &json);
    else
        json_null(&json);
    json_key(&json, "size"), json_u64(&json, entry->info.size);
    json_end(&json);
    return json_finish(&json);
}

static bool is_text(const struct json_value *value)
{
    return value && value->type == JSON_STRING && strlen(value->string) == value->len;
}

static int damaged(const struct store_object *row, struct brig_err *err)
{
    (void)err_set(err, BRIG_E_HOST, 0, "the row of secret %s of %s is damaged", row->name, row->org_id);
    return -EBADMSG;
}

static int read_row(const struct json_value *doc, const struct store_object *row, struct entry *entry,
                    struct brig_err *err)
{
    const struct json_value *key_id = json_get(doc, "key_id"), *nonce = json_get(doc, "nonce"),
                            *data = json_get(doc, "sealed");
    const struct json_value *size = json_get(doc, "size"), *broker = json_get(doc, "broker");
    size_t n = 0;

    if (!is_text(key_id) || !is_text(nonce) || !is_text(data) || !size || !size->integer || size->i64 < 0 ||
        !secret_name_ok(row->name) || str_copy(entry->sealed.key_id, KEY_ID_MAX, key_id->string) < 0 ||
        crypto_unbase64(nonce->string, nonce->len, entry->sealed.nonce, SEAL_NONCE, &n) < 0 || n != SEAL_NONCE)
        return damaged(row, err);
    entry->sealed.data = mem_alloc(data->len + 1);
    if (!entry->sealed.data)
        return err_nomem(err);
    if (crypto_unbase64(data->string, data->len, entry->sealed.data, data->len, &entry->sealed.len) < 0)
        return damaged(row, err);
    entry->info.size = (uint64_t)size->i64;
    entry->info.brokered = broker && broker->type != JSON_NULL;
    if (entry->info.brokered && broker_rule_parse(broker, &entry->info.rule, err) < 0)
        return damaged(row, err);
    entry->info.created_at_ns = row->created_at_ns;
    entry->info.updated_at_ns = row->updated_at_ns;
    memcpy(entry->info.key_id, entry->sealed.key_id, KEY_ID_MAX);
    if (str_copy(entry->info.org_id, sizeof entry->info.org_id, row->org_id) < 0 ||
        str_copy(entry->info.name, sizeof entry->info.name, row->name) < 0)
        return damaged(row, err);
    return 0;
}

struct loading {
    struct secrets *secrets;
    struct brig_err *err;
};

static int load_row(void *ctx, const struct store_object *row)
{
    struct loading *loading = ctx;
    struct entry *entry = mem_zalloc(sizeof *entry);
    struct json_doc *doc = NULL;
    int r = entry && reserve(loading->secrets) == 0 ? 0 : err_nomem(loading->err);

    if (r == 0 && json_read(row->doc, strlen(row->doc), 4096, &doc, NULL) < 0)
        r = damaged(row, loading->err);
    if (r == 0)
        r = read_row(json_root(doc), row, entry, loading->err);
    json_doc_free(doc);
    if (r < 0)
        entry_destroy(entry);
    else
        insert(loading->secrets, entry);
    return r;
}

/* ---- life --------------------------------------------------------------------------------------------- */

int secrets_create(struct store *store, const struct keyring *ring, bool plain, struct secrets **ret,
                   struct brig_err *err)
{
    struct secrets *secrets = mem_zalloc(sizeof *secrets);

    if (!secrets)
        return err_nomem(err);
    *secrets = (struct secrets){.store = store, .ring = ring, .plain = plain};
    struct loading loading = {secrets, err};
    int r = store_each_object(store, KIND, load_row, &loading, err);
    if (r < 0) {
        secrets_destroy(secrets);
        return r;
    }
    *ret = secrets;
    return 0;
}

void secrets_destroy(struct secrets *secrets)
{
    if (!secrets)
        return;
    for (size_t i = 0; i < secrets->n; i++)
        entry_destroy(secrets->entries[i]);
    mem_free(secrets->entries);
    mem_free(secrets);
}

bool secrets_can_store(const struct secrets *secrets)
{
    return secrets->ring || secrets->plain;
}

const struct secret_info *secrets_find(const struct secrets *secrets, const char *org, const char *name)
{
    const struct entry *entry = secrets_entry(secrets, org, name);

    return entry ? &entry->info : NULL;
}

void secrets_each(const struct secrets *secrets, const char *org, const char *after,
                  bool (*each)(void *ctx, const struct secret_info *info), void *ctx)
{
    for (size_t at = place_of(secrets, org, after ? after : "");
         at < secrets->n && str_eq(secrets->entries[at]->info.org_id, org); at++) {
        if (after && str_eq(secrets->entries[at]->info.name, after))
            continue;
        if (!each(ctx, &secrets->entries[at]->info))
            return;
    }
}

void secrets_forget_org(struct secrets *secrets, const char *org)
{
    size_t at = place_of(secrets, org, "");

    while (at < secrets->n && str_eq(secrets->entries[at]->info.org_id, org))
        take_out(secrets, at);
}

/* ---- changing ----------------------------------------------------------------------------------------- */

static void change_add(struct secret_change *change)
{
    struct secrets *secrets = change->secrets;

    change->next = secrets->changes;
    if (change->next)
        change->next->prev = change;
    secrets->changes = change;
}

static void change_end(struct secret_change *change)
{
    *(change->prev ? &change->prev->next : &change->secrets->changes) = change->next;
    if (change->next)
        change->next->prev = change->prev;
    mem_free(change);
}

static void on_put(void *ctx, const struct brig_err *err)
{
    struct secret_change *change = ctx;

    change->secrets->pending--;
    if (err)
        entry_destroy(change->entry);
    else
        insert(change->secrets, change->entry);
    store_done_fn *done = change->done;
    void *done_ctx = change->ctx;
    change_end(change);
    if (done)
        done(done_ctx, err);
}

static void on_deleted(void *ctx, const struct brig_err *err)
{
    struct secret_change *change = ctx;
    size_t at = place_of(change->secrets, change->org_id, change->name);

    if (!err && at < change->secrets->n &&
        compare(&change->secrets->entries[at]->info, change->org_id, change->name) == 0)
        take_out(change->secrets, at);
    store_done_fn *done = change->done;
    void *done_ctx = change->ctx;
    change_end(change);
    if (done)
        done(done_ctx, err);
}

static size_t count_org(const struct secrets *secrets, const char *org)
{
    size_t n = 0;

    for (size_t at = place_of(secrets, org, ""); at < secrets->n && str_eq(secrets->entries[at]->info.org_id, org);
         at++)
        n++;
    return n;
}

/* A value that would be another header, another user, or no key pair, is refused while its owner still has it in hand.
 */
static int check_value(const struct broker_rule *rule, const uint8_t *value, size_t len, struct brig_err *err)
{
    if (len < BROKERED_MIN) /* shorter ones are in many an answer by chance, so that answers cannot be searched for them
                             */
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

static int check_put(const struct secrets *secrets, const char *org, const char *name, size_t len, struct brig_err *err)
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
    if (!secrets_entry(secrets, org, name) && count_org(secrets, org) + secrets->pending >= SECRETS_PER_ORG)
        return err_set(err, BRIG_E_LIMIT, 0, "an organisation has at most %u secrets", SECRETS_PER_ORG);
    return 0;
}

static int seal(const struct secrets *secrets, struct entry *entry, const void *value, size_t len, struct brig_err *err)
{
    char context[256];

    if (!secrets->ring) {
        entry->sealed.data = mem_alloc(len);
        if (!entry->sealed.data)
            return err_nomem(err);
        memcpy(entry->sealed.data, value, len);
        entry->sealed.len = len;
        memcpy(entry->sealed.key_id, KEY_ID_PLAIN, sizeof KEY_ID_PLAIN);
    } else {
        int r = context_of(&entry->info, context, sizeof context);
        if (r > 0)
            r = keyring_seal(secrets->ring, context, value, len, &entry->sealed);
        if (r < 0)
            return err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_HOST, -r, "seal the secret");
    }
    memcpy(entry->info.key_id, entry->sealed.key_id, KEY_ID_MAX);
    return 0;
}

static int write_row(struct secrets *secrets, struct secret_change *change, struct brig_err *err)
{
    const struct secret_info *info = &change->entry->info;
    struct store_object row = {
        .kind = KIND, .version = 1, .created_at_ns = info->created_at_ns, .updated_at_ns = info->updated_at_ns};
    AUTO_BUF struct buf doc = BUF_INIT(DOC_MAX);

    if (str_copy(row.org_id, sizeof row.org_id, info->org_id) < 0 ||
        str_copy(row.name, sizeof row.name, info->name) < 0)
        return err_usage(err, "secret: the name is too long");
    int r = row_text(change->entry, &doc);
    if (r < 0)
        return err_set(err, BRIG_E_NOMEM, -r, "write the secret down");
    row.doc = doc.data;
    r = store_put_object(secrets->store, &row, on_put, change, err);
    crypto_wipe(doc.data, doc.len); /* it may be a plain one */
    return r;
}

/* Takes both over, also when it fails. */
static int submit(struct secrets *secrets, struct entry *entry, struct secret_change *change, store_done_fn *done,
                  void *ctx, struct brig_err *err)
{
    *change = (struct secret_change){.secrets = secrets, .done = done, .ctx = ctx, .entry = entry};
    memcpy(change->org_id, entry->info.org_id, sizeof change->org_id);
    memcpy(change->name, entry->info.name, sizeof change->name);
    int r = write_row(secrets, change, err);
    if (r < 0) {
        entry_destroy(entry);
        mem_free(change);
        return r;
    }
    secrets->pending++;
    change_add(change);
    return 0;
}

int secrets_put(struct secrets *secrets, const char *org, const char *name, const void *value, size_t len,
                const struct json_value *broker, store_done_fn *done, void *ctx, struct brig_err *err)
{
    int r = check_put(secrets, org, name, len, err);

    if (r < 0)
        return r;
    struct entry *entry = mem_zalloc(sizeof *entry);
    struct secret_change *change = mem_zalloc(sizeof *change);
    if (!entry || !change || reserve(secrets) < 0)
        r = err_nomem(err);
    if (r == 0 && broker && broker->type != JSON_NULL) {
        entry->info.brokered = true;
        r = broker_rule_parse(broker, &entry->info.rule, err);
        if (r == 0)
            r = check_value(&entry->info.rule, value, len, err);
    }
    if (r == 0 && (str_copy(entry->info.org_id, sizeof entry->info.org_id, org) < 0 ||
                   str_copy(entry->info.name, sizeof entry->info.name, name) < 0))
        r = err_usage(err, "secret: the name is too long");
    if (r == 0) {
        entry->info.size = len;
        entry->info.created_at_ns = entry->info.updated_at_ns = clock_real_ns();
        r = seal(secrets, entry, value, len, err);
    }
    if (r < 0) {
        entry_destroy(entry);
        mem_free(change);
        return r;
    }
    return submit(secrets, entry, change, done, ctx, err);
}

int secrets_reseal(struct secrets *secrets, const char *org, const char *name, store_done_fn *done, void *ctx,
                   struct brig_err *err)
{
    const struct entry *old = secrets_entry(secrets, org, name);
    uint8_t *value = NULL;
    size_t len = 0;

    if (!old || str_eq(old->sealed.key_id, secrets->ring ? keyring_current(secrets->ring) : KEY_ID_PLAIN))
        return 1;
    for (const struct secret_change *change = secrets->changes; change; change = change->next)
        if (str_eq(change->org_id, org) && str_eq(change->name, name))
            return 1;
    int r = secrets_reveal(secrets, org, name, &value, &len, err);
    if (r < 0)
        return r;
    struct entry *entry = mem_zalloc(sizeof *entry);
    struct secret_change *change = mem_zalloc(sizeof *change);
    r = entry && change && reserve(secrets) == 0 ? 0 : err_nomem(err);
    if (r == 0) {
        entry->info = old->info;
        r = seal(secrets, entry, value, len, err);
    }
    crypto_secret_free(value, len);
    if (r < 0) {
        entry_destroy(entry);
        mem_free(change);
        return r;
    }
    return submit(secrets, entry, change, done, ctx, err);
}

int secrets_delete(struct secrets *secrets, const char *org, const char *name, store_done_fn *done, void *ctx,
                   struct brig_err *err)
{
    if (!secrets_entry(secrets, org, name))
        return err_set(err, BRIG_E_NOT_FOUND, 0, "secret %.64s not found", name);
    struct secret_change *change = mem_zalloc(sizeof *change);
    if (!change)
        return err_nomem(err);
    *change = (struct secret_change){.secrets = secrets, .done = done, .ctx = ctx};
    int r = str_copy(change->org_id, sizeof change->org_id, org);
    if (r == 0)
        r = str_copy(change->name, sizeof change->name, name);
    if (r == 0)
        r = store_delete_object(secrets->store, KIND, org, name, on_deleted, change, err);
    if (r < 0)
        mem_free(change);
    else
        change_add(change);
    return r;
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

/* Found, and openable as far as can be told without opening it. */
static int find_usable(const struct secrets *secrets, const char *org, const char *name, const struct entry **ret,
                       struct brig_err *err)
{
    const struct entry *entry = secrets_entry(secrets, org, name);

    if (!entry)
        return err_set(err, BRIG_E_NOT_FOUND, 0, "secret %.64s not found", name);
    if (str_eq(entry->sealed.key_id, KEY_ID_PLAIN)) {
        if (!secrets->plain) {
            (void)err_set(err, BRIG_E_REFUSED, 0,
                          "secret %s is stored without encryption, and insecure_plaintext is off: set it again", name);
            return -ENOKEY;
        }
    } else if (!secrets->ring || !keyring_has(secrets->ring, entry->sealed.key_id)) {
        (void)err_set(err, BRIG_E_REFUSED, 0, "secret %s was sealed with key %s, which the key ring does not have",
                      name, entry->sealed.key_id);
        return -ENOKEY;
    }
    *ret = entry;
    return 0;
}

int secrets_put_slot(const struct secrets *secrets, const char *org, const char *name, const char *placeholder,
                     struct json *json, struct brig_err *err)
{
    const struct entry *entry = NULL;
    char context[256];
    int r = find_usable(secrets, org, name, &entry, err);

    if (r < 0)
        return r;
    if (!entry->info.brokered)
        return err_set(
            err, BRIG_E_REFUSED, 0,
            "secret %s has no broker rule, so the sandbox would see its value: say --expose (\"expose\": true) if it may",
            name);
    if (context_of(&entry->info, context, sizeof context) < 0)
        return err_usage(err, "secret %s: the name is too long", name);
    json_object(json);
    json_key(json, "name"), json_string(json, name);
    json_key(json, "placeholder"), json_string(json, placeholder);
    json_key(json, "key_id"), json_string(json, entry->sealed.key_id);
    json_key(json, "nonce"), json_base64(json, entry->sealed.nonce, SEAL_NONCE);
    json_key(json, "sealed"), json_base64(json, entry->sealed.data, entry->sealed.len);
    json_key(json, "context"), json_string(json, context);
    json_key(json, "broker"), broker_rule_put(&entry->info.rule, json);
    json_end(json);
    return json->error < 0 ? err_set(err, BRIG_E_NOMEM, -json->error, "secret %s", name) : 0;
}

int secrets_reveal(const struct secrets *secrets, const char *org, const char *name, uint8_t **ret, size_t *ret_len,
                   struct brig_err *err)
{
    const struct entry *entry = NULL;
    char context[256];
    int r = find_usable(secrets, org, name, &entry, err);

    if (r < 0)
        return r;
    r = context_of(&entry->info, context, sizeof context);
    if (r > 0)
        r = keyring_open(secrets->ring, context, &entry->sealed, ret, ret_len);
    if (r == -EBADMSG) {
        (void)err_set(err, BRIG_E_REFUSED, 0,
                      "secret %s does not open: its row was changed or moved, or key %s is another one", name,
                      entry->sealed.key_id);
        return r;
    }
    return r < 0 ? err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_HOST, -r, "secret %s", name) : 0;
}
