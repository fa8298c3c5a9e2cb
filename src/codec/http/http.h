/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.h: HTTP/1.1 message heads and bodies (RFC 9110, 9112), strict. Pure: bytes in, structs out; no sockets.
 * Serves the API, its clients (src/client, the CLI), previews, and later the gate and Docker's hijacked streams.
 *
 * Refused, always (status in parentheses): bare LF or CR in a head, obs-fold, space before the colon, NUL or control
 * bytes in a value, an empty or repeated Host, Host missing in 1.1 (400); both Content-Length and Transfer-Encoding,
 * two Content-Lengths that differ, a Content-Length that is no number, a transfer coding that is not exactly "chunked"
 * once (400; unknown coding 501); chunk extensions are skipped but bounded; a chunk size over 16 hex digits (400);
 * trailers are parsed and dropped; a method or target with bytes outside its grammar (400); a version other than
 * 1.0 and 1.1 (505); more than the limits (431, target 414).
 */
#ifndef BRIG_CODEC_HTTP_HTTP_H
#define BRIG_CODEC_HTTP_HTTP_H

#include <brig.h>

#include "base/buf.h"

#define HTTP_HEADERS_MAX 100u
#define HTTP_TARGET_MAX 16384u

struct http_field {
    const char *name, *value; /* NUL-terminated, in the head's own buffer; value trimmed */
    size_t name_len, value_len;
};

struct http_limits {
    size_t head_bytes; /* 0: 32 KiB */
    size_t headers;    /* 0: HTTP_HEADERS_MAX; never more */
};

enum http_body {
    HTTP_BODY_NONE,
    HTTP_BODY_LENGTH,
    HTTP_BODY_CHUNKED,
    HTTP_BODY_UNTIL_CLOSE /* responses only */,
    HTTP_BODY_MAX
};

struct http_head {
    /* request */
    const char *method, *target; /* target as sent */
    /* response */
    unsigned status;
    const char *reason;
    /* both */
    unsigned minor; /* 0 or 1 */
    enum http_body body;
    uint64_t content_length;                   /* HTTP_BODY_LENGTH */
    bool keep_alive, expect_continue, upgrade; /* upgrade: Connection has it and there is an Upgrade field */
    struct http_field fields[HTTP_HEADERS_MAX];
    size_t n_fields;
};

/*
 * Parses a head at the start of data, writing NULs into it. Returns the bytes it took (> 0), 0 when more are needed, or
 * minus an HTTP status (-400, -414, -431, -501, -505), with err's message for the client. Calling again with more bytes
 * is cheap: *scanned (start with 0) remembers how far the end was looked for.
 */
int http_request_parse(char *data, size_t len, const struct http_limits *limits, size_t *scanned, struct http_head *ret,
                       struct brig_err *err) MUST_CHECK;
/* The same for a response to a request of this method (HEAD has no body). */
int http_response_parse(char *data, size_t len, const char *method, const struct http_limits *limits, size_t *scanned,
                        struct http_head *ret, struct brig_err *err) MUST_CHECK;
/* first of that name, case-insensitive; or NULL */
const char *http_field(const struct http_head *head, const char *name);

/* The body that follows a head. */
struct http_body_reader {
    enum http_body kind;
    uint64_t left;
    int state; /* private */
    unsigned digits, extra;
};
void http_body_init(struct http_body_reader *reader, const struct http_head *head);
/*
 * Consumes from data: returns how many bytes it took; *ret_at, *ret_len: a piece of content within data (may be empty).
 * *ret_end once the body is complete. -400 when it is malformed. Bytes after the end are left alone.
 */
int http_body_take(struct http_body_reader *reader, const char *data, size_t len, const char **ret_at, size_t *ret_len,
                   bool *ret_end) MUST_CHECK;

/* ---- targets ---------------------------------------------------------------------------------------- */

/*
 * "/v1/x%20y?a=b": the path split at "/" before decoding, each part decoded once. Refused (-400): an encoded NUL, a bad
 * escape, a part that is "." or ".." after decoding. Not UTF-8 is allowed: paths are bytes. Absolute-form
 * (http://host/path) is accepted.
 */
#define HTTP_PARTS_MAX 32u
#define HTTP_QUERY_MAX 64u
struct http_target {
    char *parts[HTTP_PARTS_MAX];
    size_t part_len[HTTP_PARTS_MAX]; /* a decoded %2F stays inside its part */
    size_t n_parts;
    const char *rest_raw;  /* undecoded path as sent (for previews) and */
    const char *query_raw; /* the undecoded query, "" when none */
    struct {
        char *name, *value;
        size_t value_len;
    } query[HTTP_QUERY_MAX];
    size_t n_query;
    char *memory; /* owned */
};
/*
 * "/" has no parts, "/a/" has "a" and an empty one, "//" two empty ones. In the query "+" is a space and a name without
 * "=" has the value "". "*" (of OPTIONS) counts as "/".
 */
/* 0, -400 or -ENOMEM */
int http_target_parse(const char *target, struct http_target *ret, struct brig_err *err) MUST_CHECK;
/* The same into memory that the caller keeps, of HTTP_TARGET_MEMORY(strlen(target)) bytes; nothing to be freed. */
#define HTTP_TARGET_MEMORY(len) (2 * (len) + 6)
int http_target_parse_in(const char *target, char *memory, struct http_target *ret, struct brig_err *err) MUST_CHECK;
void http_target_done(struct http_target *target);
const char *http_query(const struct http_target *target, const char *name); /* or NULL */

/* ---- writing ---------------------------------------------------------------------------------------- */

const char *http_reason(unsigned status);
/* A field value may not contain control bytes; then -EINVAL and nothing is written (header injection is impossible). */
int http_put_status(struct buf *out, unsigned status) MUST_CHECK;
int http_put_request(struct buf *out, const char *method, const char *target) MUST_CHECK; /* target: already encoded */
int http_put_field(struct buf *out, const char *name, const char *value) MUST_CHECK;
int http_put_end(struct buf *out) MUST_CHECK;                    /* the empty line */
int http_put_chunk_head(struct buf *out, size_t len) MUST_CHECK; /* "1a\r\n"; the data and "\r\n" follow */
/* percent-encoding; unreserved and keep stay */
int http_put_escaped(struct buf *out, const void *data, size_t len, const char *keep) MUST_CHECK;

#endif
