/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sigv4.c: AWS Signature Version 4 ("Authenticating Requests", AWS General Reference). A program signs with its
 * placeholder. That signature is worthless, but its Authorization names region and service, so the request can be
 * signed again with the real key.
 *
 *   canonical request   METHOD \n path \n query (sorted) \n name:value \n ... \n \n signed names \n payload hash
 *   string to sign      AWS4-HMAC-SHA256 \n date \n scope \n sha256(canonical request)
 *   key                 HMAC chain of "AWS4" SECRET over day, region, service, "aws4_request"
 *
 * The path is encoded once more than it was sent, except for S3, which signs it as it is. Keys derived on the way are
 * wiped.
 */
#include <strings.h>

#include "base/ascii.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "egress/broker_priv.h"

#define ALGORITHM "AWS4-HMAC-SHA256"
#define CANONICAL_MAX (256u << 10)
#define QUERY_MAX 128u
#define SECRET_KEY_MAX 256u

/* ---- what the client said ------------------------------------------------------------------------------- */

static int copy_part(char *out, size_t size, const char *from, size_t len, const char *allowed)
{
    if (len == 0 || len >= size || strspn(from, allowed) < len)
        return -EINVAL;
    memcpy(out, from, len);
    out[len] = '\0';
    return 0;
}

/* The value of "Name=" in "A=x, B=y"; its length, or 0. */
static size_t find_part(const char *text, const char *name, const char **ret)
{
    size_t name_len = strlen(name);

    while (*text) {
        text += strspn(text, " ,\t");
        size_t n = strcspn(text, ", \t");
        if (n > name_len && strncmp(text, name, name_len) == 0 && text[name_len] == '=') {
            *ret = text + name_len + 1;
            return n - name_len - 1;
        }
        text += n;
    }
    return 0;
}

int sigv4_parse(const char *authorization, const char *placeholder, struct sigv4_scope *ret)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const char *credential, *names;
    size_t n_placeholder = strlen(placeholder);

    if (strncmp(authorization, "AWS4-", 5) != 0)
        return -ENOENT;
    const char *rest = authorization + strcspn(authorization, " ");
    size_t n = find_part(rest, "Credential", &credential), n_names = find_part(rest, "SignedHeaders", &names);
    if (n <= n_placeholder || strncmp(credential, placeholder, n_placeholder) != 0 || credential[n_placeholder] != '/')
        return -ENOENT;
    if ((size_t)(rest - authorization) != sizeof(ALGORITHM) - 1 ||
        strncmp(authorization, ALGORITHM, sizeof(ALGORITHM) - 1) != 0)
        return -EINVAL;
    const char *day = credential + n_placeholder + 1;
    size_t n_day = strcspn(day, "/, ");
    if (copy_part(ret->date, sizeof(ret->date), day, n_day, "0123456789") < 0 || n_day != 8 || day[n_day] != '/')
        return -EINVAL;
    const char *region = day + n_day + 1;
    size_t n_region = strcspn(region, "/, ");
    if (copy_part(ret->region, sizeof(ret->region), region, n_region, word) < 0 || region[n_region] != '/')
        return -EINVAL;
    const char *service = region + n_region + 1;
    size_t n_service = strcspn(service, "/, ");
    if (copy_part(ret->service, sizeof(ret->service), service, n_service, word) < 0)
        return -EINVAL;
    const char *end = service + n_service;
    if ((size_t)(credential + n - end) != sizeof("/aws4_request") - 1 ||
        strncmp(end, "/aws4_request", sizeof("/aws4_request") - 1) != 0)
        return -EINVAL;
    return copy_part(ret->signed_headers, sizeof(ret->signed_headers), names, n_names,
                     "abcdefghijklmnopqrstuvwxyz0123456789-_.;!#$%&'*+^`|~");
}

int sigv4_split(const uint8_t *value, size_t len, struct sigv4_keys *ret)
{
    const char *text = (const char *)value, *end = text + len;
    const char *colon = memchr(text, ':', len);

    if (!colon || colon == text)
        return -EINVAL;
    *ret = (struct sigv4_keys){.key_id = text, .key_id_len = (size_t)(colon - text), .secret = colon + 1, .token = end};
    const char *second = memchr(colon + 1, ':', (size_t)(end - colon - 1));
    ret->secret_len = (size_t)((second ? second : end) - ret->secret);
    if (second) {
        ret->token = second + 1;
        ret->token_len = (size_t)(end - ret->token);
        if (ret->token_len == 0)
            return -EINVAL;
    }
    return ret->secret_len > 0 && ret->secret_len <= SECRET_KEY_MAX ? 0 : -EINVAL;
}

/* ---- the canonical request ------------------------------------------------------------------------------ */

/* Decoded once and encoded strictly, so that "~" and "%7E" are the same. '+' is a plus here. */
static int put_recoded(struct buf *out, const char *text, size_t len)
{
    int r = 0;

    for (size_t i = 0; i < len && r == 0; i++) {
        char c = text[i];
        if (c == '%' && i + 2 < len && ascii_hex(text[i + 1]) >= 0 && ascii_hex(text[i + 2]) >= 0) {
            c = (char)(ascii_hex(text[i + 1]) << 4 | ascii_hex(text[i + 2]));
            i += 2;
        }
        r = http_put_escaped(out, &c, 1, "");
    }
    return r;
}

struct parameter {
    size_t name, value; /* where they begin in the text; each NUL-terminated */
};

static int compare_parameters(const void *a, const void *b, void *text)
{
    const struct parameter *x = a, *y = b;
    const char *base = text;
    int order = strcmp(base + x->name, base + y->name);

    return order != 0 ? order : strcmp(base + x->value, base + y->value);
}

static int put_query(struct buf *out, const char *query)
{
    AUTO_BUF struct buf text = BUF_INIT(CANONICAL_MAX);
    struct parameter parameters[QUERY_MAX];
    size_t n = 0;
    int r = 0;

    while (*query && r == 0) {
        size_t len = strcspn(query, "&"), n_name = strcspn(query, "=&");
        if (len > 0 && n == QUERY_MAX)
            return -EMSGSIZE;
        if (len > 0) {
            parameters[n].name = text.len;
            r = put_recoded(&text, query, n_name);
            if (r == 0)
                r = buf_append(&text, "", 1);
            parameters[n].value = text.len;
            if (r == 0 && n_name < len)
                r = put_recoded(&text, query + n_name + 1, len - n_name - 1);
            if (r == 0)
                r = buf_append(&text, "", 1);
            n++;
        }
        query += len + (query[len] == '&');
    }
    if (r < 0 || n == 0)
        return r;
    qsort_r(parameters, n, sizeof(parameters[0]), compare_parameters, text.data);
    for (size_t i = 0; i < n && r == 0; i++)
        r = buf_printf(out, "%s%s=%s", i > 0 ? "&" : "", text.data + parameters[i].name,
                       text.data + parameters[i].value);
    return r;
}

static int compare_fields(const void *a, const void *b)
{
    return strcasecmp(((const struct sigv4_field *)a)->name, ((const struct sigv4_field *)b)->name);
}

static int put_lower(struct buf *out, const char *text)
{
    int r = 0;

    for (; *text && r == 0; text++) {
        char c = ascii_lower(*text);
        r = buf_append(out, &c, 1);
    }
    return r;
}

/* Runs of blanks become one. */
static int put_value(struct buf *out, const char *value)
{
    int r = 0;

    value += strspn(value, " \t");
    while (*value && r == 0) {
        size_t n = strcspn(value, " \t");
        r = buf_append(out, value, n);
        value += n;
        n = strspn(value, " \t");
        value += n;
        if (n > 0 && *value && r == 0)
            r = buf_append(out, " ", 1);
    }
    return r;
}

static int put_names(struct buf *out, const struct sigv4_request *request)
{
    int r = 0;

    for (size_t i = 0; i < request->n_fields && r == 0; i++) {
        r = i > 0 ? buf_append(out, ";", 1) : 0;
        if (r == 0)
            r = put_lower(out, request->fields[i].name);
    }
    return r;
}

static int put_path(struct buf *out, const char *path, size_t len, const char *service)
{
    if (len == 0)
        return buf_append(out, "/", 1);
    if (str_starts(service, "s3"))
        return buf_append(out, path, len);
    return http_put_escaped(out, path, len, "/");
}

/* session tokens are among the fields, so the text is wiped by the caller */
static int put_canonical(struct buf *out, const struct sigv4_request *request, const char *names)
{
    size_t path_len = strcspn(request->target, "?");
    int r = buf_printf(out, "%s\n", request->method);

    if (r == 0)
        r = put_path(out, request->target, path_len, request->service);
    if (r == 0)
        r = buf_append(out, "\n", 1);
    if (r == 0 && request->target[path_len] == '?')
        r = put_query(out, request->target + path_len + 1);
    if (r == 0)
        r = buf_append(out, "\n", 1);
    for (size_t i = 0; i < request->n_fields && r == 0; i++) {
        r = put_lower(out, request->fields[i].name);
        if (r == 0)
            r = buf_append(out, ":", 1);
        if (r == 0)
            r = put_value(out, request->fields[i].value);
        if (r == 0)
            r = buf_append(out, "\n", 1);
    }
    return r == 0 ? buf_printf(out, "\n%s\n%s", names, request->payload) : r;
}

/* ---- signing -------------------------------------------------------------------------------------------- */

static int derive_key(const struct sigv4_request *request, uint8_t key[SHA256_SIZE])
{
    char first[4 + SECRET_KEY_MAX];
    uint8_t next[SHA256_SIZE];
    const char *steps[] = {request->region, request->service, "aws4_request"};

    if (request->secret_len > SECRET_KEY_MAX)
        return -EINVAL;
    memcpy(first, "AWS4", 4);
    memcpy(first + 4, request->secret, request->secret_len);
    int r = crypto_hmac_sha256(first, 4 + request->secret_len, request->amz_date, 8, key);
    for (size_t i = 0; i < ARRAY_SIZE(steps) && r == 0; i++) {
        r = crypto_hmac_sha256(key, SHA256_SIZE, steps[i], strlen(steps[i]), next);
        memcpy(key, next, SHA256_SIZE);
    }
    crypto_wipe(first, sizeof(first));
    crypto_wipe(next, sizeof(next));
    return r;
}

static int make_signature(const struct sigv4_request *request, const char *canonical, size_t len,
                          char signature[SHA256_HEX])
{
    uint8_t hash[SHA256_SIZE], key[SHA256_SIZE];
    char hex[SHA256_HEX], text[512];
    int r = crypto_sha256(canonical, len, hash);

    if (r < 0)
        return r;
    crypto_hex(hash, sizeof(hash), hex);
    int n = str_format(text, sizeof(text), ALGORITHM "\n%s\n%.8s/%s/%s/aws4_request\n%s", request->amz_date,
                       request->amz_date, request->region, request->service, hex);
    if (n < 0)
        return -EINVAL;
    r = derive_key(request, key);
    if (r == 0)
        r = crypto_hmac_sha256(key, sizeof(key), text, (size_t)n, hash);
    crypto_wipe(key, sizeof(key));
    if (r == 0)
        crypto_hex(hash, sizeof(hash), signature);
    return r;
}

static int put_authorization(const struct sigv4_request *request, const char *names, const char *signature,
                             struct wbuf *out)
{
    char scope[160];

    if (str_format(scope, sizeof(scope), "/%.8s/%s/%s/aws4_request", request->amz_date, request->region,
                   request->service) < 0)
        return -EINVAL;
    int r = wbuf_append_str(out, ALGORITHM " Credential=");
    if (r == 0)
        r = wbuf_append(out, request->key_id, request->key_id_len);
    return r == 0 ? wbuf_append_all(out, scope, ", SignedHeaders=", names, ", Signature=", signature, NULL) : r;
}

int sigv4_authorization(struct sigv4_request *request, struct wbuf *out)
{
    AUTO_BUF struct buf canonical = BUF_INIT(CANONICAL_MAX), names = BUF_INIT(CANONICAL_MAX);
    char signature[SHA256_HEX];

    if (request->n_fields == 0 || strlen(request->amz_date) != 16)
        return -EINVAL;
    qsort(request->fields, request->n_fields, sizeof(request->fields[0]), compare_fields);
    int r = put_names(&names, request);
    if (r == 0)
        r = buf_reserve(&canonical, CANONICAL_MAX); /* once: a block left behind while growing would not be wiped */
    if (r == 0)
        r = put_canonical(&canonical, request, names.data);
    if (r == 0)
        r = make_signature(request, canonical.data, canonical.len, signature);
    if (canonical.data)
        crypto_wipe(canonical.data, canonical.len);
    return r == 0 ? put_authorization(request, names.data, signature, out) : r;
}
