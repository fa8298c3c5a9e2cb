/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.h: strict HTTP/1.1 message heads and bodies (RFC 9110, 9112). It turns bytes into structs and has no sockets.
 * The API's server, previews, the exporter of traces, the command line's client, and the proxy and broker of
 * brig-egress use it.
 *
 * These are always refused (status in parentheses): a bare LF or CR in a head, obs-fold, a space before the colon, a
 * NUL or a control byte in a value, an empty or repeated Host, no Host in 1.1 (400); Content-Length and
 * Transfer-Encoding together, two Content-Lengths that differ, a Content-Length that is no number, a transfer coding
 * that is not exactly one "chunked" (400; an unknown coding 501); a chunk size over 16 hexadecimal digits (400); a
 * method or target with bytes outside of its grammar (400); a version other than 1.0 and 1.1 (505); more than the
 * limits (431, for the target 414). Chunk extensions are skipped, up to a bound. Trailers are parsed and dropped.
 */
#ifndef BRIG_CODEC_HTTP_HTTP_H
#define BRIG_CODEC_HTTP_HTTP_H

#include <brig.h>

#include "base/buf.h"

#define HTTP_HEADERS_MAX 100u
#define HTTP_TARGET_MAX 16384u

struct http_field {
    const char *name, *value; /* Both end with a NUL and lie in the head's own buffer. The value is trimmed. */
    size_t name_len, value_len;
};

struct http_limits {
    size_t head_bytes; /* 0 means 32 KiB. */
    size_t headers;    /* 0 means HTTP_HEADERS_MAX, which is also the most. */
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
    const char *method, *target; /* The target is as it was sent. */
    /* response */
    unsigned status;
    const char *reason;
    /* both */
    unsigned minor; /* 0 or 1 */
    enum http_body body;
    uint64_t content_length;                   /* HTTP_BODY_LENGTH */
    bool keep_alive, expect_continue, upgrade; /* upgrade: Connection names it and there is an Upgrade field. */
    struct http_field fields[HTTP_HEADERS_MAX];
    size_t n_fields;
};

/*
 * Parses a head at the start of data and writes NULs into it. Returns the number of bytes that it took (> 0), 0 when
 * more are needed, or minus an HTTP status (-400, -414, -431, -501, -505); then err has the message for the client.
 * Calling again with more bytes is cheap: *scanned, which begins with 0, remembers how far the end was looked for.
 */
int http_request_parse(char *data, size_t len, const struct http_limits *limits, size_t *scanned, struct http_head *ret,
                       struct brig_err *err) MUST_CHECK;
/* The same for a response to a request of this method (HEAD has no body). */
int http_response_parse(char *data, size_t len, const char *method, const struct http_limits *limits, size_t *scanned,
                        struct http_head *ret, struct brig_err *err) MUST_CHECK;
/* Returns the value of the first field of that name, in any case of letters, or NULL. */
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
 * Returns how many bytes of data it took, or -400 if the body is malformed. *ret_at and *ret_len are a piece of content
 * within data, which may be empty. *ret_end is true once the body is complete. Bytes after the end are left alone.
 */
int http_body_take(struct http_body_reader *reader, const char *data, size_t len, const char **ret_at, size_t *ret_len,
                   bool *ret_end) MUST_CHECK;

/* ---- targets ---------------------------------------------------------------------------------------- */

/*
 * A target such as "/v1/x%20y?a=b". The path is split at "/" before it is decoded, and each part is decoded once. An
 * encoded NUL, a bad escape and a part that is "." or ".." after decoding are refused (-400). Paths are bytes and need
 * not be UTF-8. The absolute form (http://host/path) is accepted.
 */
#define HTTP_PARTS_MAX 32u
#define HTTP_QUERY_MAX 64u
struct http_target {
    char *parts[HTTP_PARTS_MAX];
    size_t part_len[HTTP_PARTS_MAX]; /* A decoded %2F stays inside its part. */
    size_t n_parts;
    const char *rest_raw;  /* The path as it was sent, not decoded (for previews). */
    const char *query_raw; /* The query as it was sent, or "". */
    struct {
        char *name, *value;
        size_t value_len;
    } query[HTTP_QUERY_MAX];
    size_t n_query;
    char *memory; /* This memory belongs to the target. */
};
/*
 * "/" has no parts, "/a/" has "a" and an empty one, "//" two empty ones. In the query "+" is a space, and a name
 * without "=" has the value "". The target "*" of OPTIONS counts as "/".
 */
/* Returns 0, -400 or -ENOMEM. */
int http_target_parse(const char *target, struct http_target *ret, struct brig_err *err) MUST_CHECK;
/*
 * Does the same in memory of the caller, which has HTTP_TARGET_MEMORY(strlen(target)) bytes. There is nothing to free.
 */
#define HTTP_TARGET_MEMORY(len) (2 * (len) + 6)
int http_target_parse_in(const char *target, char *memory, struct http_target *ret, struct brig_err *err) MUST_CHECK;
void http_target_done(struct http_target *target);
const char *http_query(const struct http_target *target, const char *name); /* or NULL */

/* ---- writing ---------------------------------------------------------------------------------------- */

const char *http_reason(unsigned status);
/* A value with control bytes is -EINVAL, and nothing is written: header injection is impossible. */
int http_put_status(struct buf *out, unsigned status) MUST_CHECK;
/* The target is encoded already. */
int http_put_request(struct buf *out, const char *method, const char *target) MUST_CHECK;
int http_put_field(struct buf *out, const char *name, const char *value) MUST_CHECK;
int http_put_end(struct buf *out) MUST_CHECK; /* Writes the empty line. */
/* Writes "1a\r\n"; the caller adds the data and "\r\n". */
int http_put_chunk_head(struct buf *out, size_t len) MUST_CHECK;
/* Writes data with percent-encoding. Unreserved characters and those in keep stay as they are. */
int http_put_escaped(struct buf *out, const void *data, size_t len, const char *keep) MUST_CHECK;

#endif
