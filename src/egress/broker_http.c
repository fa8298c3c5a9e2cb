/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_http.c: writes the heads of brokered requests again. No bytes of a client's head are passed on: the parts that
 * the strict parser understood are put together with framing of the broker's own, so the upstream reads exactly what
 * was judged. broker_reply_head.c does the same for replies.
 *
 * A placeholder becomes the value only in the one position that its rule names: a header, a query parameter, one half
 * of basic authentication, a signature. Anywhere else it stays and is reported. A value with control bytes never gets
 * into a head.
 *
 * Compression would hide an echo, so the upstream is asked for `identity`, and an encoded reply is refused. A
 * connection may be upgraded only to a WebSocket, without extensions; anything else, h2c above all, would carry
 * requests that nobody judges.
 */
#include <inttypes.h>
#include <strings.h>

#include "base/base64.h"
#include "base/err.h"
#include "base/str.h"
#include "codec/http/http_chars.h"
#include "crypto/crypto.h"
#include "egress/broker_priv.h"

/* Not passed on: of one hop, or written by us. */
static const char *const request_drops[] = {
    "host",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "content-length",
    "upgrade",
    "accept-encoding",
    "expect",
    "http2-settings",
    "sec-websocket-extensions",
};

bool broker_listed(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcasecmp(names[i], name) == 0)
            return true;
    }
    return false;
}

/* Does a comma-separated list have this word? */
static bool list_has(const char *list, const char *word, size_t len)
{
    while (*list) {
        list += strspn(list, " \t,");
        size_t n = strcspn(list, " \t,");
        if (n == len && strncasecmp(list, word, len) == 0)
            return true;
        list += n;
    }
    return false;
}

/* RFC 9110, 7.6.1: what Connection names is of this hop too. */
bool broker_of_this_hop(const struct http_head *head, const struct http_field *field)
{
    for (size_t i = 0; i < head->n_fields; i++) {
        if (strcasecmp(head->fields[i].name, "connection") == 0 &&
            list_has(head->fields[i].value, field->name, field->name_len))
            return true;
    }
    return false;
}

bool broker_wants_websocket(const struct http_head *head)
{
    const char *upgrade = http_field(head, "upgrade");

    return head->upgrade && head->body == HTTP_BODY_NONE && upgrade && strcasecmp(upgrade, "websocket") == 0;
}

int broker_check_host(const struct http_head *head, const char *name, uint16_t port, uint16_t default_port,
                      struct brig_err *err)
{
    const char *host = http_field(head, "host");
    char text[8];

    if (!host) {
        err_usage(err, "Host is missing");
        return -400;
    }
    size_t n = strcspn(host, ":"), len = n;
    if (len > 0 && host[len - 1] == '.')
        len--;
    const char *said = host[n] == ':' ? host + n + 1 : "";
    bool port_ok = str_format(text, sizeof(text), "%u", port) > 0 &&
                   (str_eq(said, text) || (*said == '\0' && (host[n] == '\0' || port == default_port)));
    if (len != strlen(name) || strncasecmp(host, name, len) != 0 || !port_ok) {
        err_usage(err, "Host is not %s, which this connection is for", name);
        return -421;
    }
    return 0;
}

/* ---- substitution --------------------------------------------------------------------------------------- */

struct work {
    const struct rewrite *rewrite;
    struct wbuf *out;
    struct rewrite_report *report;
    struct brig_err *err;
    const struct value *signer; /* the secret that signs this request, or NULL */
    struct sigv4_scope scope;
};

static int refuse(struct work *work, unsigned status, const char *message)
{
    work->report->status = status;
    err_set(work->err, BRIG_E_REFUSED, 0, "%s", message);
    return -EPERM;
}

static void note(const struct broker_secret **list, size_t *n, const struct broker_secret *secret)
{
    for (size_t i = 0; i < *n; i++) {
        if (list[i] == secret)
            return;
    }
    if (*n < SLOT_SECRETS_MAX)
        list[(*n)++] = secret;
}

static void note_used(struct work *work, const struct broker_secret *secret)
{
    note(work->report->used, &work->report->n_used, secret);
}

static const struct value *value_of(const struct values *values, const char *placeholder)
{
    for (size_t i = 0; i < values->n; i++) {
        if (memcmp(values->items[i].secret->placeholder, placeholder, PLACEHOLDER_LEN) == 0)
            return &values->items[i];
    }
    return NULL;
}

static void note_foreign(struct work *work, const char *placeholder)
{
    const struct broker *broker = work->rewrite->broker;

    for (size_t i = 0; i < broker->n_secrets; i++) {
        if (memcmp(broker->secrets[i].placeholder, placeholder, PLACEHOLDER_LEN) == 0)
            note(work->report->foreign, &work->report->n_foreign, &broker->secrets[i]);
    }
}

static int put_escaped(struct wbuf *out, const uint8_t *data, size_t len)
{
    static const char hex[] = "0123456789ABCDEF";
    int r = 0;

    for (size_t i = 0; i < len && r == 0; i++) {
        char code[3] = {'%', hex[data[i] >> 4], hex[data[i] & 15]};
        r = http_is((char)data[i], HTTP_PLAIN) ? wbuf_append(out, &data[i], 1) : wbuf_append(out, code, 3);
    }
    return r;
}

/* A value as it stands in a header: no byte that could end the line. */
static int put_header_value(struct work *work, const struct value *value)
{
    for (size_t i = 0; i < value->len; i++) {
        if (!http_is((char)value->data[i], HTTP_VALUE))
            return refuse(work, 502, "the value of the secret cannot be a header");
    }
    return wbuf_append(work->out, value->data, value->len);
}

static int put_value(struct work *work, enum broker_where where, const struct value *value)
{
    note_used(work, value->secret);
    switch (where) {
    case BROKER_HEADER: return put_header_value(work, value);
    case BROKER_QUERY: return put_escaped(work->out, value->data, value->len);
    case BROKER_BASIC_USER:
        if (memchr(value->data, ':', value->len))
            return refuse(work, 502, "the value of the secret cannot be a user name");
        return wbuf_append(work->out, value->data, value->len);
    case BROKER_BASIC_PASSWORD: return wbuf_append(work->out, value->data, value->len);
    case BROKER_SIGV4:
    case BROKER_WHERE_MAX:
    default: return -EINVAL;
    }
}

/*
 * Returns the value that the text of one position asks for. The text must be exactly the rule's format around the
 * placeholder, or the placeholder alone. With any other text around it, the program would choose what stands beside a
 * value that may be shown in part. *ret_before is the number of bytes before it.
 */
static const struct value *value_asked(struct work *work, enum broker_where where, const char *field, const char *text,
                                       size_t len, size_t *ret_before)
{
    for (size_t i = 0; i < work->rewrite->values->n; i++) {
        const struct value *value = &work->rewrite->values->items[i];
        const struct broker_rule *rule = &value->secret->rule;
        const char *mark = where == BROKER_HEADER ? strstr(rule->format, "%s") : NULL;
        size_t before = mark ? (size_t)(mark - rule->format) : 0, after = mark ? strlen(mark + 2) : 0;

        if (rule->where != where || (where == BROKER_HEADER && strcasecmp(rule->field, field) != 0) ||
            (where == BROKER_QUERY && strcmp(rule->field, field) != 0))
            continue;
        if (len != before + PLACEHOLDER_LEN + after || strncasecmp(text, rule->format, before) != 0 ||
            memcmp(text + before, value->secret->placeholder, PLACEHOLDER_LEN) != 0 ||
            (after > 0 && memcmp(text + before + PLACEHOLDER_LEN, mark + 2, after) != 0))
            continue;
        *ret_before = before;
        return value;
    }
    return NULL;
}

/* Once in a request: a second place would only serve to see more of it. */
static bool first_use(const struct work *work, const struct value *value)
{
    for (size_t i = 0; i < work->report->n_used; i++) {
        if (work->report->used[i] == value->secret)
            return false;
    }
    return true;
}

/* Text of one position: a placeholder that is for it becomes the value, others stay and are told. BROKER_WHERE_MAX: it
 * is for none. */
static int put_text(struct work *work, enum broker_where where, const char *field, const char *text, size_t len)
{
    const char *end = text + len;
    size_t before = 0;
    const struct value *value = where == BROKER_WHERE_MAX ? NULL : value_asked(work, where, field, text, len, &before);

    if (value && first_use(work, value)) {
        int r = wbuf_append(work->out, text, before);
        if (r == 0)
            r = put_value(work, where, value);
        return r == 0 ? wbuf_append(work->out, text + before + PLACEHOLDER_LEN, len - before - PLACEHOLDER_LEN) : r;
    }
    for (const char *at = text;
         (at = memmem(at, (size_t)(end - at), PLACEHOLDER_PREFIX, sizeof(PLACEHOLDER_PREFIX) - 1)); at++) {
        if ((size_t)(end - at) >= PLACEHOLDER_LEN)
            note_foreign(work, at);
    }
    return wbuf_append(work->out, text, len);
}

/* "Basic " and base64 of user:password. -ENOENT: it is not that, or has no placeholder. */
static int put_basic(struct work *work, const struct http_field *field)
{
    const char *text = field->value;
    struct wbuf decoded = WBUF_INIT(BROKER_OUT_MAX), plain = WBUF_INIT(BROKER_OUT_MAX), *out = work->out;
    int r = -ENOENT;

    if (strncasecmp(text, "basic ", 6) != 0)
        return -ENOENT;
    text += 6 + strspn(text + 6, " ");
    size_t len = strlen(text);
    if (wbuf_reserve(&decoded, len + 4) < 0)
        return -ENOMEM;
    ssize_t n = base64_decode_padded(text, len, decoded.data, len);
    decoded.len = n > 0 ? (size_t)n : 0;
    if (n <= 0 || !memmem(decoded.data, decoded.len, PLACEHOLDER_PREFIX, sizeof(PLACEHOLDER_PREFIX) - 1))
        goto out;
    char *colon = memchr(decoded.data, ':', decoded.len);
    size_t user = colon ? (size_t)(colon - decoded.data) : decoded.len;
    work->out = &plain;
    r = put_text(work, BROKER_BASIC_USER, NULL, decoded.data, user);
    if (r == 0 && colon)
        r = wbuf_append(&plain, ":", 1);
    if (r == 0 && colon)
        r = put_text(work, BROKER_BASIC_PASSWORD, NULL, colon + 1, decoded.len - user - 1);
    work->out = out;
    if (r == 0)
        r = wbuf_append_str(out, "Basic ");
    if (r == 0)
        r = wbuf_reserve(out, (wbuf_size(&plain) + 2) / 3 * 4);
    if (r == 0)
        out->len += base64_encode(wbuf_at(&plain), wbuf_size(&plain), "+/", true, out->data + out->len);
out:
    wbuf_done(&decoded);
    wbuf_done(&plain);
    return r;
}

/* Exactly the placeholder, where the rule has a format: the format is ours to add. */
static int put_formatted(struct work *work, const struct http_field *field)
{
    const struct value *value =
        field->value_len == PLACEHOLDER_LEN ? value_of(work->rewrite->values, field->value) : NULL;

    if (!value || !first_use(work, value) || value->secret->rule.where != BROKER_HEADER ||
        strcasecmp(value->secret->rule.field, field->name) != 0)
        return -ENOENT;
    const char *format = value->secret->rule.format, *mark = strstr(format, "%s");
    if (!mark)
        return -ENOENT;
    int r = wbuf_append(work->out, format, (size_t)(mark - format));
    if (r == 0)
        r = put_value(work, BROKER_HEADER, value);
    return r == 0 ? wbuf_append_str(work->out, mark + 2) : r;
}

static int put_field(struct work *work, const struct http_field *field)
{
    int r = wbuf_append_all(work->out, field->name, ": ", NULL);

    if (r == 0) {
        r = strcasecmp(field->name, "authorization") == 0 ? put_basic(work, field) : -ENOENT;
        if (r == -ENOENT)
            r = put_formatted(work, field);
        if (r == -ENOENT)
            r = put_text(work, BROKER_HEADER, field->name, field->value, field->value_len);
    }
    return r == 0 ? wbuf_append(work->out, "\r\n", 2) : r;
}

static int put_target(struct work *work, const char *target)
{
    size_t n = strcspn(target, "?");
    int r = put_text(work, BROKER_WHERE_MAX, NULL, target, n);

    target += n;
    while (*target && r == 0) {
        r = wbuf_append(work->out, target++, 1); /* '?' or '&' */
        size_t len = strcspn(target, "&"), name_len = strcspn(target, "=&");
        char name[128];
        bool named = name_len < len && name_len < sizeof(name);
        if (named) {
            memcpy(name, target, name_len);
            name[name_len] = '\0';
        }
        size_t skip = name_len < len ? name_len + 1 : len;
        if (r == 0)
            r = put_text(work, BROKER_WHERE_MAX, NULL, target, skip);
        if (r == 0)
            r = put_text(work, named ? BROKER_QUERY : BROKER_WHERE_MAX, named ? name : NULL, target + skip, len - skip);
        target += len;
    }
    return r;
}

/* ---- signatures ----------------------------------------------------------------------------------------- */

static const struct value *find_signer(const struct rewrite *rewrite, const struct http_head *head,
                                       struct sigv4_scope *scope, int *ret_error)
{
    const char *authorization = http_field(head, "authorization");

    *ret_error = 0;
    for (size_t i = 0; authorization && i < rewrite->values->n; i++) {
        const struct value *value = &rewrite->values->items[i];
        if (value->secret->rule.where != BROKER_SIGV4)
            continue;
        int r = sigv4_parse(authorization, value->secret->placeholder, scope);
        if (r == -ENOENT)
            continue;
        *ret_error = r;
        return value;
    }
    return NULL;
}

bool rewrite_needs_body(const struct broker *broker, const char *name, uint16_t port, const struct http_head *head)
{
    const char *authorization = http_field(head, "authorization");
    struct sigv4_scope scope;

    if (head->body == HTTP_BODY_NONE || !authorization || http_field(head, "x-amz-content-sha256"))
        return false;
    for (size_t i = 0; i < broker->n_secrets; i++) {
        const struct broker_secret *secret = &broker->secrets[i];
        if (secret->rule.where == BROKER_SIGV4 && broker_rule_covers(&secret->rule, name, port) &&
            sigv4_parse(authorization, secret->placeholder, &scope) == 0)
            return true;
    }
    return false;
}

/* A presigned address, made with a placeholder. */
static bool presigned(const struct rewrite *rewrite, const struct http_head *head)
{
    const char *query = strchr(head->target, '?');
    const char *credential = query ? strcasestr(query, "x-amz-credential=") : NULL;

    if (!credential)
        return false;
    credential += sizeof("x-amz-credential=") - 1;
    const struct value *value = strlen(credential) >= PLACEHOLDER_LEN ? value_of(rewrite->values, credential) : NULL;
    return value && value->secret->rule.where == BROKER_SIGV4;
}

static int choose_signer(struct work *work, const struct http_head *head)
{
    const char *date = http_field(head, "x-amz-date"), *payload = http_field(head, "x-amz-content-sha256");
    int r;

    if (presigned(work->rewrite, head))
        return refuse(work, 403, "presigned addresses cannot be signed again; use the Authorization header");
    work->signer = find_signer(work->rewrite, head, &work->scope, &r);
    if (!work->signer)
        return 0;
    if (r < 0)
        return refuse(work, 403, "the Authorization header is not a signature of AWS4-HMAC-SHA256");
    if (!date || strlen(date) != 16 || strspn(date, "0123456789TZ") != 16 || strncmp(date, work->scope.date, 8) != 0)
        return refuse(work, 403, "X-Amz-Date is missing, or not of the signature's day");
    if (payload && str_starts(payload, "STREAMING-AWS4-"))
        return refuse(work, 403, "signed chunks cannot be signed again; use UNSIGNED-PAYLOAD");
    return 0;
}

static bool is_signed(const struct sigv4_scope *scope, const struct http_field *field)
{
    const char *at = scope->signed_headers;

    if (strncasecmp(field->name, "x-amz-", 6) == 0)
        return true;
    while (*at) {
        size_t n = strcspn(at, ";");
        if (n == field->name_len && strncasecmp(at, field->name, n) == 0)
            return true;
        at += n + (at[n] == ';');
    }
    return false;
}

static bool passes(const struct work *work, const struct http_head *head, const struct http_field *field)
{
    if (broker_listed(request_drops, ARRAY_SIZE(request_drops), field->name) || broker_of_this_hop(head, field))
        return false;
    /* Pieces of an answer would carry pieces of an echo, which nobody can recognise. A signature leaves nothing to be
     * echoed. */
    if (!work->signer && (strcasecmp(field->name, "range") == 0 || strcasecmp(field->name, "if-range") == 0))
        return false;
    return !work->signer ||
           (strcasecmp(field->name, "authorization") != 0 && strcasecmp(field->name, "x-amz-security-token") != 0);
}

/* Authorization, and the session's token where there is one. host: as it was written. */
static int put_signature(struct work *work, const struct http_head *head, const char *host)
{
    const char *payload = http_field(head, "x-amz-content-sha256");
    struct sigv4_keys keys;
    struct wbuf token = WBUF_INIT(SECRET_VALUE_MAX + 1);
    struct sigv4_request request = {
        .method = head->method,
        .target = head->target,
        .amz_date = http_field(head, "x-amz-date"),
        .region = work->scope.region,
        .service = work->scope.service,
        .fields = {{"host", host}},
        .n_fields = 1,
    };
    /* of the empty body */
    static const char nothing[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    for (size_t i = 0; i < work->signer->len; i++) {
        if (!http_is((char)work->signer->data[i], HTTP_VALUE))
            return refuse(work, 502, "the value of the secret cannot be a header");
    }
    if (sigv4_split(work->signer->data, work->signer->len, &keys) < 0)
        return refuse(work, 502, "the value of the secret is not KEY_ID:SECRET or KEY_ID:SECRET:TOKEN");
    request.payload = payload ? payload : work->rewrite->payload_sha256 ? work->rewrite->payload_sha256 : nothing;
    request.key_id = keys.key_id, request.key_id_len = keys.key_id_len;
    request.secret = keys.secret, request.secret_len = keys.secret_len;
    for (size_t i = 0; i < head->n_fields; i++) {
        const struct http_field *field = &head->fields[i];
        if (!passes(work, head, field) || !is_signed(&work->scope, field))
            continue;
        if (request.n_fields == SIGV4_FIELDS - 1)
            return refuse(work, 403, "too many signed headers");
        for (size_t k = 0; k < request.n_fields; k++) {
            if (strcasecmp(request.fields[k].name, field->name) == 0)
                return refuse(work, 403, "a signed header is repeated");
        }
        request.fields[request.n_fields++] = (struct sigv4_field){field->name, field->value};
    }
    int r = 0;
    if (keys.token_len > 0) {
        r = wbuf_append(&token, keys.token, keys.token_len);
        if (r == 0)
            r = wbuf_append(&token, "", 1);
        request.fields[request.n_fields++] = (struct sigv4_field){"x-amz-security-token", token.data};
        if (r == 0)
            r = wbuf_append_all(work->out, "X-Amz-Security-Token: ", token.data, "\r\n", NULL);
    }
    if (r == 0)
        r = wbuf_append_str(work->out, "Authorization: ");
    if (r == 0)
        r = sigv4_authorization(&request, work->out);
    if (r == 0)
        r = wbuf_append(work->out, "\r\n", 2);
    wbuf_done(&token);
    note_used(work, work->signer->secret);
    return r;
}

/* ---- the request's head --------------------------------------------------------------------------------- */

static int put_framing(struct work *work, const struct http_head *head)
{
    char line[64];
    bool spooled = work->rewrite->payload_sha256 != NULL;

    if (broker_wants_websocket(head))
        return wbuf_append_str(work->out, "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    if (!spooled && head->body == HTTP_BODY_CHUNKED)
        return wbuf_append_str(work->out, head->expect_continue
                                              ? "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
                                              : "Transfer-Encoding: chunked\r\n\r\n");
    if (!spooled && head->body == HTTP_BODY_NONE && !http_field(head, "content-length"))
        return wbuf_append_str(work->out, "\r\n");
    bool expect = !spooled && head->expect_continue && head->body != HTTP_BODY_NONE;
    if (str_format(line, sizeof(line), "Content-Length: %" PRIu64 "\r\n%s\r\n",
                   spooled ? work->rewrite->spooled : head->content_length,
                   expect ? "Expect: 100-continue\r\n" : "") < 0)
        return -EINVAL;
    return wbuf_append_str(work->out, line);
}

static int put_head(struct work *work, const struct http_head *head)
{
    const struct rewrite *rewrite = work->rewrite;
    char host[DNS_NAME_MAX + 8];

    if (str_format(host, sizeof(host), rewrite->port == rewrite->default_port ? "%s" : "%s:%u", rewrite->name,
                   rewrite->port) < 0)
        return -EINVAL;
    int r = wbuf_append_all(work->out, head->method, " ", NULL);
    if (r == 0)
        r = put_target(work, head->target);
    if (r == 0)
        r = wbuf_append_all(work->out, " HTTP/1.1\r\nHost: ", host, "\r\nAccept-Encoding: identity\r\n", NULL);
    for (size_t i = 0; i < head->n_fields && r == 0; i++) {
        if (passes(work, head, &head->fields[i]))
            r = put_field(work, &head->fields[i]);
    }
    if (r == 0 && work->signer)
        r = put_signature(work, head, host);
    return r == 0 ? put_framing(work, head) : r;
}

int rewrite_request(const struct rewrite *rewrite, const struct http_head *head, struct wbuf *out,
                    struct rewrite_report *report, struct brig_err *err)
{
    struct work work = {.rewrite = rewrite, .out = out, .report = report, .err = err};

    report->n_used = report->n_foreign = 0;
    report->status = 502;
    int r = choose_signer(&work, head);
    if (r == 0)
        r = put_head(&work, head);
    if (r < 0)
        wbuf_clear(out);
    if (r < 0 && r != -EPERM)
        err_set(err, BRIG_E_HOST, -r, "the request could not be written");
    return r;
}
