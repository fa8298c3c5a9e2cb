/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_request.c: sends a request. While a streamed body is sent, the other side is watched: if the daemon has
 * answered already (too large, no such sandbox), it does not want the rest, and its answer counts.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "client/internal.h"

#define HEAD_MAX ((size_t)64 << 10)
#define CHUNK_HEAD 20u /* room before a piece for its size, and behind for the line's end */

static int put_optional(struct buf *out, const char *name, const char *value)
{
    return value && *value ? http_put_field(out, name, value) : 0;
}

static int put_length(struct buf *out, const struct client_request *request)
{
    char text[24];
    uint64_t length = request->read ? request->length : request->body_len;

    if (length == CLIENT_LENGTH_UNKNOWN)
        return http_put_field(out, "Transfer-Encoding", "chunked");
    if (length == 0 && (strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0))
        return 0;
    snprintf(text, sizeof(text), "%" PRIu64, length);
    return http_put_field(out, "Content-Length", text);
}

int request_put_head(const struct client *client, const struct client_request *request, struct buf *out,
                     struct brig_err *err)
{
    bool has_body = request->read || request->body_len > 0;
    int r = http_put_request(out, request->method, request->target);

    if (r == 0)
        r = http_put_field(out, "Host", client->authority);
    if (r == 0)
        r = http_put_field(out, "User-Agent", "brig/" BRIG_VERSION);
    if (r == 0)
        r = put_optional(out, "X-API-Key", client->key);
    if (r == 0)
        r = put_optional(out, "Accept", request->accept);
    if (r == 0)
        r = put_optional(out, "Range", request->range);
    if (r == 0)
        r = put_optional(out, "Last-Event-ID", request->last_event);
    if (r == 0)
        r = put_optional(out, "Idempotency-Key", request->idempotency);
    if (r == 0 && has_body)
        r = http_put_field(out, "Content-Type", request->content_type ? request->content_type : "application/json");
    if (r == 0)
        r = put_length(out, request);
    if (r == -EINVAL)
        return err_usage(err, "a value of the request to %.100s has control bytes", request->target);
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "the request to %.100s", request->target) : 0;
}

/* One piece of the source, framed; in piece[*ret_at, +*ret_len). *ret_end: it was the last. */
static int next_piece(struct client *client, const struct client_request *request, uint64_t sent, size_t *ret_at,
                      size_t *ret_len, bool *ret_end, struct brig_err *err)
{
    bool chunked = request->length == CLIENT_LENGTH_UNKNOWN;
    size_t size = CLIENT_PIECE - 2 * CHUNK_HEAD;
    char *data = client->piece + CHUNK_HEAD;
    char head[CHUNK_HEAD];

    if (!chunked && size > request->length - sent)
        size = (size_t)(request->length - sent);
    ssize_t n = size > 0 ? request->read(request->ctx, data, size, err) : 0;
    if (n < 0)
        return (int)n;
    if (n == 0 && !chunked && sent < request->length)
        return err_set(err, BRIG_E_HOST, 0, "the source became shorter while it was sent");
    *ret_end = n == 0;
    *ret_at = CHUNK_HEAD;
    *ret_len = (size_t)n;
    if (!chunked)
        return 0;
    int len = snprintf(head, sizeof(head), "%zx\r\n", (size_t)n);
    memcpy(data - len, head, (size_t)len);
    data[n] = '\r';
    data[n + 1] = '\n';
    *ret_at -= (size_t)len;
    *ret_len += (size_t)len + 2;
    return 0;
}

/* Returns 1 when the daemon has answered before the end. */
static int send_stream(struct client *client, const struct client_request *request, struct brig_err *err)
{
    size_t at = 0, len = 0;
    uint64_t sent = 0;
    bool end = false;

    for (;;) {
        struct brig_err broken;
        /* With a known length the answer may come as soon as the last byte has gone. */
        if (len == 0 && (end || (request->length != CLIENT_LENGTH_UNKNOWN && sent == request->length)))
            return 0;
        int other = len == 0 ? request->read_fd : -1;
        int want = WIRE_READABLE | (len > 0 || other < 0 ? WIRE_WRITABLE : 0);
        int ready = wire_wait(client, want, other, err);
        if (ready < 0)
            return ready;
        if (ready & WIRE_READABLE)
            return 1;
        if (len == 0) {
            int r = next_piece(client, request, sent, &at, &len, &end, err);
            if (r < 0)
                return r;
            sent += len; /* only compared without chunks, where it is exact */
        }
        ssize_t n = len > 0 ? wire_send_some(client, client->piece + at, len, &broken) : 0;
        if (n < 0) /* it has closed its reading side; what it said before is still to be read */
            return 1;
        at += (size_t)n;
        len -= (size_t)n;
    }
}

static int send_head(struct client *client, const struct client_request *request, struct brig_err *err)
{
    struct buf head = BUF_INIT(HEAD_MAX);
    int r = request_put_head(client, request, &head, err);

    if (r == 0) {
        r = http_put_end(&head);
        /* A small body goes in the same packet. */
        if (r == 0 && !request->read && request->body_len > 0 && request->body_len < HEAD_MAX / 2)
            r = buf_append(&head, request->body, request->body_len);
        r = r < 0 ? err_nomem(err) : wire_send(client, head.data, head.len, err);
    }
    if (head.data)
        explicit_bzero(head.data, head.len); /* the key */
    buf_done(&head);
    if (r == 0 && !request->read && request->body_len >= HEAD_MAX / 2)
        r = wire_send(client, request->body, request->body_len, err);
    return r;
}

int request_send(struct client *client, const struct client_request *request, struct brig_err *err)
{
    if (!client->piece)
        client->piece = mem_alloc(CLIENT_PIECE);
    if (!client->piece)
        return err_nomem(err);
    int r = send_head(client, request, err);
    if (r == 0 && request->read)
        r = send_stream(client, request, err);
    return r;
}

/* ---- targets -------------------------------------------------------------------------------------- */

int client_target_args(struct buf *out, const char *format, va_list args)
{
    int r = 0;

    while (r == 0 && *format != '\0') {
        size_t plain = strcspn(format, "%");
        r = buf_append(out, format, plain);
        format += plain;
        if (r < 0 || *format == '\0')
            break;
        if (format[1] == 's') {
            const char *text = va_arg(args, const char *);
            r = http_put_escaped(out, text, strlen(text), "");
        } else if (format[1] == 'u') {
            r = buf_printf(out, "%" PRIu64, va_arg(args, uint64_t));
        } else {
            r = format[1] == '%' ? buf_append(out, "%", 1) : -EINVAL;
        }
        format += 2;
    }
    return r;
}

int client_target(struct buf *out, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int r = client_target_args(out, format, args);
    va_end(args);
    return r;
}
