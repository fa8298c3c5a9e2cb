/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit_line.c: lines and heads as text, both ways. What is written is fixed to the byte (members, order, no blanks),
 * so the reader accepts nothing else; `prev` comes last and has a fixed length, so that the writer's thread can fill it
 * in.
 */
#include <inttypes.h>

#include "audit/audit_priv.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "codec/json/json_read.h"

/* A field, cut between two characters. */
static void put_field(struct json *json, const char *name, const char *text)
{
    char cut[AUDIT_FIELD_MAX + 1];

    str_cut(cut, sizeof cut, text);
    json_key_string(json, name, cut);
}

int audit_line_write(struct buf *out, uint64_t seq, int64_t time_ns, const struct audit_event *event)
{
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_u64(&json, "seq", seq);
    json_key_time(&json, "time", time_ns, AUDIT_TIME_DIGITS);
    put_field(&json, "actor", event->actor);
    put_field(&json, "org", event->org);
    put_field(&json, "action", event->action);
    put_field(&json, "object", event->object);
    put_field(&json, "outcome", event->outcome);
    put_field(&json, "detail", event->detail);
    put_field(&json, "request_id", event->request_id);
    json_key_string(&json, "prev", AUDIT_ZEROES);
    json_end(&json);
    return json_finish(&json);
}

static bool is_hash(const char *text, size_t len)
{
    return len == 64 && strspn(text, "0123456789abcdef") == 64;
}

static void copy_cut(char *out, size_t size, const struct json_value *value)
{
    size_t len = value->len < size ? value->len : size - 1;

    memcpy(out, value->string, len);
    out[len] = '\0';
}

static int take_line(const struct json_value *root, struct audit_line *ret)
{
    static const char *const names[] = {"seq",    "time",    "actor",  "org",        "action",
                                        "object", "outcome", "detail", "request_id", "prev"};
    size_t i = 0;

    if (root->type != JSON_OBJECT || root->count != ARRAY_SIZE(names))
        return -EBADMSG;
    for (const struct json_value *value = root->first; value; value = value->next, i++) {
        if (!str_eq(value->key, names[i]) || value->type != (i == 0 ? JSON_NUMBER : JSON_STRING))
            return -EBADMSG;
        if (i == 0 && (!value->integer || value->i64 < 1))
            return -EBADMSG;
        if (i == 0)
            ret->seq = (uint64_t)value->i64;
        else if (i == 3)
            copy_cut(ret->org, sizeof(ret->org), value);
        else if (i == 4)
            copy_cut(ret->action, sizeof(ret->action), value);
        else if (i == 5)
            copy_cut(ret->object, sizeof(ret->object), value);
        else if (i == 9 && !is_hash(value->string, value->len))
            return -EBADMSG;
        else if (i == 9)
            copy_cut(ret->prev, sizeof(ret->prev), value);
    }
    return 0;
}

int audit_line_parse(const char *line, size_t len, struct audit_line *ret)
{
    AUTO_JSON struct json_doc *doc = NULL;
    int r = json_read(line, len, 32, &doc, NULL);

    if (r < 0)
        return r == -ENOMEM ? r : -EBADMSG;
    return take_line(json_root(doc), ret);
}

uint64_t audit_line_seq(const char *line, size_t len)
{
    static const char start[] = "{\"seq\":";
    uint64_t seq = 0;
    size_t at = sizeof(start) - 1;

    if (len < at || memcmp(line, start, at) != 0)
        return 0;
    for (; at < len && at < 26 && line[at] >= '0' && line[at] <= '9'; at++)
        seq = seq * 10 + (uint64_t)(line[at] - '0');
    return at < len && line[at] == ',' ? seq : 0;
}

int audit_line_hash(const char *line, size_t len, char out[SHA256_HEX])
{
    uint8_t hash[SHA256_SIZE];
    int r = crypto_sha256(line, len, hash);

    if (r == 0)
        crypto_hex(hash, sizeof(hash), out);
    return r;
}

/* ---- heads -------------------------------------------------------------------------------------------------- */

void audit_key_id(const uint8_t public_key[ED25519_PUBLIC], char out[17])
{
    uint8_t hash[SHA256_SIZE] = {0};

    out[0] = '\0';
    if (crypto_sha256(public_key, ED25519_PUBLIC, hash) == 0)
        crypto_hex(hash, 8, out);
}

static int signed_text(const struct audit_head *head, char out[256])
{
    return str_format(out, 256, "brig-audit-head-v1\n%" PRIu64 "\n%s\n%s\n", head->seq, head->hash, head->time);
}

int audit_head_sign(struct audit_head *head, const struct crypto_signer *signer)
{
    uint8_t public_key[ED25519_PUBLIC];
    char text[256];
    int len = signed_text(head, text);

    if (len < 0)
        return len;
    crypto_signer_public(signer, public_key);
    audit_key_id(public_key, head->key);
    return crypto_sign(signer, text, (size_t)len, head->signature);
}

int audit_head_check(const struct audit_head *head, const uint8_t public_key[ED25519_PUBLIC])
{
    char text[256];
    int len = signed_text(head, text);

    return len < 0 ? len : crypto_verify(public_key, text, (size_t)len, head->signature);
}

int audit_head_write(struct buf *out, const struct audit_head *head)
{
    char signature[2 * ED25519_SIGNATURE + 1];

    crypto_hex(head->signature, ED25519_SIGNATURE, signature);
    return buf_printf(out, "{\"seq\":%" PRIu64 ",\"hash\":\"%s\",\"time\":\"%s\",\"key\":\"%s\",\"signature\":\"%s\"}",
                      head->seq, head->hash, head->time, head->key, signature);
}

static int take_head(const struct json_value *root, struct audit_head *ret)
{
    const struct json_value *seq = json_get(root, "seq"), *hash = json_get(root, "hash"),
                            *time = json_get(root, "time"), *key = json_get(root, "key"),
                            *signature = json_get(root, "signature");

    if (!seq || !hash || !time || !key || !signature || seq->type != JSON_NUMBER || !seq->integer || seq->i64 < 1 ||
        hash->type != JSON_STRING || time->type != JSON_STRING || key->type != JSON_STRING ||
        signature->type != JSON_STRING || !is_hash(hash->string, hash->len) || time->len >= sizeof(ret->time) ||
        key->len >= sizeof(ret->key))
        return -EBADMSG;
    ret->seq = (uint64_t)seq->i64;
    copy_cut(ret->hash, sizeof(ret->hash), hash);
    copy_cut(ret->time, sizeof(ret->time), time);
    copy_cut(ret->key, sizeof(ret->key), key);
    return crypto_unhex(signature->string, signature->len, ret->signature, sizeof(ret->signature)) < 0 ? -EBADMSG : 0;
}

int audit_head_parse(const char *line, size_t len, struct audit_head *ret)
{
    AUTO_BUF struct buf again = BUF_INIT(AUDIT_LINE_MAX);
    AUTO_JSON struct json_doc *doc = NULL;
    int r = json_read(line, len, 16, &doc, NULL);

    if (r < 0)
        return r == -ENOMEM ? r : -EBADMSG;
    r = take_head(json_root(doc), ret);
    if (r < 0)
        return r;
    /* One head has one spelling: then its signature says something about every byte of the line. */
    r = audit_head_write(&again, ret);
    if (r < 0)
        return r;
    return again.len == len && memcmp(again.data, line, len) == 0 ? 0 : -EBADMSG;
}
