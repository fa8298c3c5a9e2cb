/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.c: parses the heads of HTTP messages. It looks for the end of the head first (an empty line; every line ends
 * with CR LF), then cuts the head into its parts in place. Where two readers could disagree about the end of a message
 * (RFC 9112 sections 6.3 and 11.2), the message is refused and never repaired: that is the whole defence against
 * request smuggling.
 *
 * struct http_head is large, so only the used part of it is written.
 */
#include "codec/http/http.h"

#include <strings.h>

#include "base/err.h"
#include "codec/http/http_chars.h"

#define HEAD_BYTES_DEFAULT (32u << 10)
#define METHOD_MAX 32u

#define T HTTP_TOKEN
#define V HTTP_VALUE
#define U HTTP_URI
#define P (HTTP_PLAIN | HTTP_TOKEN | HTTP_VALUE | HTTP_URI)
const uint8_t http_chars[256] = {
    ['\t'] = V,
    [' '] = V,
    ['!'] = T | V | U,
    ['"'] = V,
    ['#'] = T | V,
    ['$' ... '\''] = T | V | U,
    ['(' ... ')'] = V | U,
    ['*' ... '+'] = T | V | U,
    [','] = V | U,
    ['-' ... '.'] = P,
    ['/'] = V | U,
    ['0' ... '9'] = P,
    [':' ... ';'] = V | U,
    ['<'] = V,
    ['='] = V | U,
    ['>'] = V,
    ['?' ... '@'] = V | U,
    ['A' ... 'Z'] = P,
    ['[' ... ']'] = V | U,
    ['^'] = T | V | U,
    ['_'] = P,
    ['`'] = T | V | U,
    ['a' ... 'z'] = P,
    ['{'] = V | U,
    ['|'] = T | V | U,
    ['}'] = V | U,
    ['~'] = P,
    [0x80 ... 0xff] = V,
};
#undef T
#undef V
#undef U
#undef P

/* What the fields say about the message's shape, before it is judged as a whole. */
struct shape {
    unsigned n_host, n_length, n_coding;
    uint64_t length;
    bool close, keep_alive, upgrade, has_upgrade;
};

static int refuse(struct brig_err *err, int status, const char *message)
{
    err_set(err, BRIG_E_USAGE, 0, "%s", message);
    return -status;
}

/* ---- the end of the head ------------------------------------------------------------------------ */

/* Length of the head with its empty line; 0: not all there; or minus a status. */
static int find_end(const char *data, size_t len, size_t max, size_t *scanned, struct brig_err *err)
{
    size_t at = *scanned;
    const char *lf;

    while (at < len && (lf = memchr(data + at, '\n', len - at))) {
        size_t i = (size_t)(lf - data);
        if (i == 0 || data[i - 1] != '\r')
            return refuse(err, 400, "a line of the head does not end with CR LF");
        at = i + 1;
        if (at > max)
            break;
        if (i >= 3 && data[i - 2] == '\n')
            return (int)at;
    }
    if (at < len && at <= max)
        at = len;
    *scanned = at;
    if (len < max && at <= max)
        return 0;
    if (!memchr(data, '\n', max < len ? max : len))
        return refuse(err, 414, "the request line is too long");
    return refuse(err, 431, "the head is too long");
}

/* ---- fields ------------------------------------------------------------------------------------- */

static bool name_is(const struct http_field *field, const char *lower, size_t len)
{
    return field->name_len == len && strncasecmp(field->name, lower, len) == 0;
}
#define NAME_IS(field, literal) name_is(field, literal, sizeof(literal) - 1)

/* The next element of a comma-separated list; false at the end. Elements may be empty. */
static bool next_token(const char **at, const char **ret, size_t *ret_len)
{
    const char *p = *at;

    if (!p)
        return false;
    p += strspn(p, " \t");
    size_t n = strcspn(p, ",");
    *at = p[n] == ',' ? p + n + 1 : NULL;
    while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t'))
        n--;
    *ret = p;
    *ret_len = n;
    return true;
}

static bool token_is(const char *token, size_t len, const char *word)
{
    return len == strlen(word) && strncasecmp(token, word, len) == 0;
}

static void take_connection(struct shape *shape, const char *value)
{
    const char *token;
    size_t len;

    while (next_token(&value, &token, &len)) {
        if (token_is(token, len, "close"))
            shape->close = true;
        else if (token_is(token, len, "keep-alive"))
            shape->keep_alive = true;
        else if (token_is(token, len, "upgrade"))
            shape->upgrade = true;
    }
}

static int take_length(struct shape *shape, const struct http_field *field, struct brig_err *err)
{
    uint64_t value = 0;

    if (field->value_len == 0)
        return refuse(err, 400, "Content-Length is empty");
    for (size_t i = 0; i < field->value_len; i++) {
        unsigned digit = (unsigned)(uint8_t)field->value[i] - '0';
        if (digit > 9 || __builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)digit, &value) || value > INT64_MAX)
            return refuse(err, 400, "Content-Length is not a number");
    }
    if (shape->n_length > 0 && shape->length != value)
        return refuse(err, 400, "two Content-Lengths differ");
    shape->n_length++;
    shape->length = value;
    return 0;
}

/* Only "chunked", once. Codings that are well-formed but not ours are 501, all else is 400. */
static int take_coding(struct shape *shape, const char *value, struct brig_err *err)
{
    const char *token;
    size_t len, others = 0;
    bool last_chunked = false;

    while (next_token(&value, &token, &len)) {
        for (size_t i = 0; i < len; i++) {
            if (!http_is(token[i], HTTP_TOKEN))
                return refuse(err, 400, "Transfer-Encoding is malformed");
        }
        if (len == 0)
            return refuse(err, 400, "Transfer-Encoding is malformed");
        last_chunked = token_is(token, len, "chunked");
        if (last_chunked)
            shape->n_coding++;
        else
            others++;
    }
    if (shape->n_coding > 1 || (shape->n_coding == 1 && !last_chunked))
        return refuse(err, 400, "Transfer-Encoding must end with chunked, once");
    if (others > 0)
        return refuse(err, 501, "the only transfer coding here is chunked");
    return 0;
}

/* uri-host [":" port]; an address in brackets is only looked at roughly, who compares it will see. */
static bool host_ok(const char *host)
{
    const char *p = host;

    if (*p == '[') {
        p += 1 + strspn(p + 1, "0123456789abcdefABCDEF:.");
        if (p - host < 3 || *p++ != ']')
            return false;
    } else {
        while (http_is(*p, HTTP_PLAIN))
            p++;
        if (p == host)
            return false;
    }
    if (*p == ':')
        p += 1 + strspn(p + 1, "0123456789");
    return *p == '\0';
}

static int take_field(struct http_head *head, struct shape *shape, const struct http_field *field, struct brig_err *err)
{
    switch (field->name_len) {
    case 4:
        if (NAME_IS(field, "host")) {
            if (!host_ok(field->value))
                return refuse(err, 400, "Host is malformed");
            shape->n_host++;
        }
        break;
    case 6:
        if (NAME_IS(field, "expect") && strcasecmp(field->value, "100-continue") == 0)
            head->expect_continue = true;
        break;
    case 7:
        if (NAME_IS(field, "upgrade"))
            shape->has_upgrade = true;
        break;
    case 10:
        if (NAME_IS(field, "connection"))
            take_connection(shape, field->value);
        break;
    case 14:
        if (NAME_IS(field, "content-length"))
            return take_length(shape, field, err);
        break;
    case 17:
        if (NAME_IS(field, "transfer-encoding"))
            return take_coding(shape, field->value, err);
        break;
    default: break;
    }
    return 0;
}

/* One line (without its CR LF) into a field. */
static int cut_field(char *line, char *end, struct http_field *ret, struct brig_err *err)
{
    char *p = line;

    while (p < end && http_is(*p, HTTP_TOKEN))
        p++;
    if (p == end || *p != ':' || p == line)
        return refuse(err, 400, *line == ' ' || *line == '\t' ? "a folded field" : "a malformed field name");
    ret->name = line;
    ret->name_len = (size_t)(p - line);
    *p++ = '\0';
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    for (const char *v = p; v < end; v++) {
        if (!http_is(*v, HTTP_VALUE))
            return refuse(err, 400, "a control byte in a field");
    }
    *end = '\0'; /* a blank, or the CR */
    ret->value = p;
    ret->value_len = (size_t)(end - p);
    return 0;
}

/* at: after the first line. end: after the empty line. */
static int cut_fields(char *at, char *end, size_t max, struct http_head *head, struct shape *shape,
                      struct brig_err *err)
{
    head->n_fields = 0;
    for (;;) {
        char *lf = memchr(at, '\n', (size_t)(end - at));
        if (lf == at + 1) /* the empty line; find_end() has seen it and that CRs come before LFs */
            return 0;
        if (head->n_fields == max)
            return refuse(err, 431, "too many fields");
        struct http_field *field = &head->fields[head->n_fields];
        int r = cut_field(at, lf - 1, field, err);
        if (r == 0)
            r = take_field(head, shape, field, err);
        if (r < 0)
            return r;
        head->n_fields++;
        at = lf + 1;
    }
}

/* What both kinds have in common once the fields are read. */
static int judge(struct http_head *head, const struct shape *shape, struct brig_err *err)
{
    if (shape->n_coding > 0 && shape->n_length > 0)
        return refuse(err, 400, "both Content-Length and Transfer-Encoding");
    if (shape->n_coding > 0 && head->minor == 0)
        return refuse(err, 400, "Transfer-Encoding in HTTP/1.0");
    head->keep_alive = !shape->close && (head->minor == 1 || shape->keep_alive);
    head->upgrade = shape->upgrade && shape->has_upgrade && head->minor == 1;
    head->content_length = shape->length;
    if (shape->n_coding > 0)
        head->body = HTTP_BODY_CHUNKED;
    else
        head->body = shape->n_length > 0 && shape->length > 0 ? HTTP_BODY_LENGTH : HTTP_BODY_NONE;
    return 0;
}

static void start(struct http_head *head)
{
    head->method = head->target = head->reason = "";
    head->status = 0;
    head->minor = 1;
    head->body = HTTP_BODY_NONE;
    head->content_length = 0;
    head->keep_alive = head->expect_continue = head->upgrade = false;
    head->n_fields = 0;
}

static void resolve(const struct http_limits *limits, size_t *ret_bytes, size_t *ret_fields)
{
    *ret_bytes = limits && limits->head_bytes > 0 ? limits->head_bytes : HEAD_BYTES_DEFAULT;
    *ret_fields = limits && limits->headers > 0 ? limits->headers : HTTP_HEADERS_MAX;
    if (*ret_bytes > INT32_MAX)
        *ret_bytes = INT32_MAX;
    if (*ret_fields > HTTP_HEADERS_MAX)
        *ret_fields = HTTP_HEADERS_MAX;
}

/* "HTTP/1.1" exactly. */
static int cut_version(const char *text, size_t len, unsigned *ret_minor, struct brig_err *err)
{
    if (len == 8 && memcmp(text, "HTTP/1.", 7) == 0 && (text[7] == '0' || text[7] == '1')) {
        *ret_minor = (unsigned)(text[7] - '0');
        return 0;
    }
    if (len == 8 && memcmp(text, "HTTP/", 5) == 0 && text[5] >= '0' && text[5] <= '9' && text[6] == '.' &&
        text[7] >= '0' && text[7] <= '9')
        return refuse(err, 505, "HTTP/1.0 and HTTP/1.1 are spoken here");
    return refuse(err, 400, "a malformed first line");
}

/* ---- requests ----------------------------------------------------------------------------------- */

/* origin-form, absolute-form, authority-form for CONNECT only, "*" for OPTIONS only */
static bool target_ok(const char *method, const char *target)
{
    if (strcmp(method, "CONNECT") == 0)
        return host_ok(target);
    if (target[0] == '*' && target[1] == '\0')
        return strcmp(method, "OPTIONS") == 0;
    if (target[0] == '/')
        return true;
    size_t skip = strncasecmp(target, "http://", 7) == 0 ? 7 : strncasecmp(target, "https://", 8) == 0 ? 8 : 0;
    return skip > 0 && target[skip] != '\0' && target[skip] != '/' && target[skip] != '?';
}

static int cut_request_line(char *line, char *end, struct http_head *head, struct brig_err *err)
{
    char *p = line;

    while (p < end && http_is(*p, HTTP_TOKEN))
        p++;
    if (p == line || p == end || *p != ' ' || (size_t)(p - line) > METHOD_MAX)
        return refuse(err, 400, "a malformed method");
    *p++ = '\0';
    char *target = p;
    while (p < end && http_is(*p, HTTP_URI))
        p++;
    if (p == target || p == end || *p != ' ')
        return refuse(err, 400, "a malformed request target");
    if ((size_t)(p - target) > HTTP_TARGET_MAX)
        return refuse(err, 414, "the request target is too long");
    *p++ = '\0';
    head->method = line;
    head->target = target;
    int r = cut_version(p, (size_t)(end - p), &head->minor, err);
    if (r < 0)
        return r;
    return target_ok(line, target) ? 0 : refuse(err, 400, "a malformed request target");
}

int http_request_parse(char *data, size_t len, const struct http_limits *limits, size_t *scanned, struct http_head *ret,
                       struct brig_err *err)
{
    struct shape shape = {0};
    size_t max_bytes, max_fields, skip = 0;

    start(ret);
    resolve(limits, &max_bytes, &max_fields);
    /* One empty line before a request is forgiven (RFC 9112, 2.2). */
    if (len >= 2 && data[0] == '\r' && data[1] == '\n')
        skip = 2;
    if (*scanned < skip)
        *scanned = skip;
    size_t from = *scanned - skip;
    int total = find_end(data + skip, len - skip, max_bytes, &from, err);
    *scanned = from + skip;
    if (total <= 0)
        return total;

    char *line = data + skip, *end = line + total;
    char *lf = memchr(line, '\n', (size_t)total);
    int r = cut_request_line(line, lf - 1, ret, err);
    if (r == 0)
        r = cut_fields(lf + 1, end, max_fields, ret, &shape, err);
    if (r == 0)
        r = judge(ret, &shape, err);
    if (r < 0)
        return r;
    if (shape.n_host > 1)
        return refuse(err, 400, "two Host fields");
    if (shape.n_host == 0 && ret->minor == 1)
        return refuse(err, 400, "Host is missing");
    return (int)skip + total;
}

/* ---- responses ---------------------------------------------------------------------------------- */

static int cut_status_line(char *line, char *end, struct http_head *head, struct brig_err *err)
{
    if (end - line < 12 || line[8] != ' ')
        return refuse(err, 400, "a malformed status line");
    int r = cut_version(line, 8, &head->minor, err);
    if (r < 0)
        return r;
    for (int i = 9; i < 12; i++) {
        if (line[i] < '0' || line[i] > '9')
            return refuse(err, 400, "a malformed status");
        head->status = head->status * 10 + (unsigned)(line[i] - '0');
    }
    char *reason = line + 12;
    if (reason < end && *reason++ != ' ')
        return refuse(err, 400, "a malformed status");
    if (head->status < 100 || head->status > 599)
        return refuse(err, 400, "a malformed status");
    for (const char *p = reason; p < end; p++) {
        if (!http_is(*p, HTTP_VALUE))
            return refuse(err, 400, "a control byte in the status line");
    }
    *end = '\0';
    head->reason = reason;
    return 0;
}

int http_response_parse(char *data, size_t len, const char *method, const struct http_limits *limits, size_t *scanned,
                        struct http_head *ret, struct brig_err *err)
{
    struct shape shape = {0};
    size_t max_bytes, max_fields;

    start(ret);
    resolve(limits, &max_bytes, &max_fields);
    int total = find_end(data, len, max_bytes, scanned, err);
    if (total <= 0)
        return total == -414 ? -431 : total;
    char *lf = memchr(data, '\n', (size_t)total);
    int r = cut_status_line(data, lf - 1, ret, err);
    if (r == 0)
        r = cut_fields(lf + 1, data + total, max_fields, ret, &shape, err);
    if (r == 0)
        r = judge(ret, &shape, err);
    if (r < 0)
        return r;
    if (strcmp(method, "HEAD") == 0 || ret->status < 200 || ret->status == 204 || ret->status == 304 ||
        (strcmp(method, "CONNECT") == 0 && ret->status < 300))
        ret->body = HTTP_BODY_NONE;
    else if (ret->body == HTTP_BODY_NONE && shape.n_length == 0)
        ret->body = HTTP_BODY_UNTIL_CLOSE;
    if (ret->body == HTTP_BODY_UNTIL_CLOSE)
        ret->keep_alive = false;
    return total;
}

const char *http_field(const struct http_head *head, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < head->n_fields; i++) {
        if (name_is(&head->fields[i], name, len))
            return head->fields[i].value;
    }
    return NULL;
}
