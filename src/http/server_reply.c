/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers. A complete one is a head and a body in one call to the kernel. For a streamed one the head waits for the
 * first piece, at most until the end of the round; small pieces of one round go out together, large ones straight away.
 *
 * Whether the connection can be used again is decided when the head is written: not after a client that said close, not
 * while draining, and not while a part of the request's body is still to come (an early answer).
 */
#include "http/server_conn.h"

#include <strings.h>
#include <time.h>

#include "base/err.h"
#include "codec/json/json.h"
#include "http/errors.h"

#define COPY_MAX 2048u

/* ---- the head ----------------------------------------------------------------------------------- */

static int put_number_field(struct buf *out, const char *name, uint64_t value)
{
    char digits[24];
    size_t at = sizeof(digits);

    digits[--at] = '\0';
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    return http_put_field(out, name, digits + at);
}

/* Once a second. */
static void update_date(struct server *server)
{
    struct timespec ts = {0};
    struct tm tm;

    clock_gettime(CLOCK_REALTIME_COARSE, &ts);
    if (ts.tv_sec == server->date_of && server->date_len > 0)
        return;
    server->date_of = ts.tv_sec;
    gmtime_r(&ts.tv_sec, &tm);
    server->date_len = strftime(server->date, sizeof(server->date), "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &tm);
}

static int put_connection(struct exchange *x, struct buf *out)
{
    if (x->conn->close)
        return http_put_field(out, "Connection", "close");
    return x->head.minor == 0 ? http_put_field(out, "Connection", "keep-alive") : 0;
}

static int put_cors(struct exchange *x, struct buf *out)
{
    if (!x->cors_origin)
        return 0;
    int r = http_put_field(out, "Access-Control-Allow-Origin", x->cors_origin);
    if (r == 0)
        r = http_put_field(out, "Access-Control-Expose-Headers", "X-Request-Id");
    return r < 0 ? r : http_put_field(out, "Vary", "Origin");
}

/* Into server->head. length: UINT64_MAX is unknown. complete: nobody will read what is left of the request. */
static int build_head(struct exchange *x, unsigned status, const char *content_type, uint64_t length, bool complete)
{
    struct server *server = x->conn->server;
    struct buf *out = &server->head;
    bool bodiless = status < 200 || status == 204 || status == 304;

    out->len = 0;
    x->status = status;
    x->begun = true;
    x->no_body = bodiless || strcmp(x->head.method, "HEAD") == 0;
    x->chunked = !x->no_body && length == UINT64_MAX && x->head.minor == 1;
    x->until_close = !x->no_body && length == UINT64_MAX && x->head.minor == 0;
    x->conn->close =
        !x->head.keep_alive || server->draining || x->until_close || !(complete ? body_skip_buffered(x) : x->body_end);
    update_date(server);
    int r = http_put_status(out, status);
    if (r == 0)
        r = buf_append(out, server->date, server->date_len);
    if (r == 0 && content_type)
        r = http_put_field(out, "Content-Type", content_type);
    if (r == 0 && !bodiless && length != UINT64_MAX)
        r = put_number_field(out, "Content-Length", length);
    if (r == 0 && x->chunked)
        r = http_put_field(out, "Transfer-Encoding", "chunked");
    if (r == 0)
        r = http_put_field(out, "X-Request-Id", exchange_id(x));
    if (r == 0)
        r = buf_append(out, x->fields.data, x->fields.len);
    if (r == 0)
        r = put_connection(x, out);
    if (r == 0)
        r = put_cors(x, out);
    return r < 0 ? r : http_put_end(out);
}

int exchange_add_field(struct exchange *x, const char *name, const char *value)
{
    /* The server's own: a second one would change where the message ends or how long the connection lives. */
    static const char *const own[] = {"content-length", "transfer-encoding", "connection", "keep-alive",
                                      "date",           "x-request-id"};

    for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
        if (strcasecmp(name, own[i]) == 0)
            return -EINVAL;
    }
    return http_put_field(&x->fields, name, value);
}

/* ---- complete answers --------------------------------------------------------------------------- */

/* The exchange's last word: nothing after it reaches the handler or the client. */
void exchange_over(struct exchange *x)
{
    x->over = true;
    x->gone = NULL;
    x->drained = NULL;
    x->input = INPUT_NONE;
    x->reading = READING_NOTHING;
    conn_touch(x->conn);
}

void exchange_reply(struct exchange *x, unsigned status, const char *content_type, const void *body, size_t len)
{
    if (x->over)
        return;
    if (x->begun)
        return exchange_abort(x);
    if (!body)
        len = 0;
    if (!share_owe(x->conn, len)) {
        struct brig_err err;
        (void)err_set(&err, BRIG_E_LIMIT, 0, "the organisation has its share of answers that wait to be read");
        exchange_fail(x, &err);
        return;
    }
    if (build_head(x, status, content_type, len, true) < 0) {
        x->conn->broken = true; /* no memory for an answer */
        exchange_over(x);
        return;
    }
    struct buf *head = &x->conn->server->head;
    if (x->no_body)
        len = 0;
    x->bytes = len;
    /* One small block is cheaper for the kernel than two. */
    if (len > 0 && len <= COPY_MAX && buf_append(head, body, len) == 0)
        len = 0;
    struct iovec iov[] = {{head->data, head->len}, {(void *)(uintptr_t)body, len}};
    conn_write(x->conn, iov, len > 0 ? 2 : 1, false);
    exchange_over(x);
}

void reply_error(struct exchange *x, unsigned status, const char *code, const char *message, const char *hint)
{
    struct buf *text = &x->conn->server->text;
    struct json json = JSON_INIT(text);

    text->len = 0;
    json_object(&json);
    json_key_object(&json, "error");
    json_key_string(&json, "code", code);
    json_key_string(&json, "message", message);
    json_key_string(&json, "hint", hint);
    json_key_string(&json, "request_id", exchange_id(x));
    json_end(&json);
    json_end(&json);
    if (json_finish(&json) < 0 || buf_append(text, "\n", 1) < 0)
        text->len = 0; /* the status says the most important */
    exchange_reply(x, status, "application/json", text->data, text->len);
}

void exchange_error(struct exchange *x, unsigned status, const char *code, const char *message, const char *hint)
{
    if (x->over)
        return;
    if (x->begun)
        exchange_abort(x);
    else
        reply_error(x, status, code, message, hint);
}

void exchange_fail(struct exchange *x, const struct brig_err *err)
{
    unsigned status = error_status(err->code);

    if (x->over)
        return;
    if (x->begun)
        return exchange_abort(x);
    if (err->code == BRIG_E_UNAUTHENTICATED)
        (void)exchange_add_field(x, "WWW-Authenticate", "Bearer");
    if (err->code == BRIG_E_LIMIT || err->code == BRIG_E_BUSY)
        (void)exchange_add_field(x, "Retry-After", "1");
    reply_error(x, status, error_code(err->code), err->message, error_hint(err));
}

/* ---- streamed answers --------------------------------------------------------------------------- */

void exchange_begin(struct exchange *x, unsigned status, const char *content_type, uint64_t length)
{
    if (x->over)
        return;
    if (x->begun)
        return exchange_abort(x);
    if (build_head(x, status, content_type, length, false) < 0) {
        x->conn->broken = true; /* no memory for an answer: gone() follows */
        conn_touch(x->conn);
        return;
    }
    x->length_left = length;
    const struct buf *head = &x->conn->server->head;
    conn_write(x->conn, &(struct iovec){head->data, head->len}, 1, true);
}

/*
 * A stream waits for its client when much waits to be read, or when its organisation has its share of such bytes. A
 * handler that goes on all the same, or writes much at once, loses its client over the share.
 */
bool exchange_goes_on(struct exchange *x)
{
    struct conn *conn = x->conn;
    const bool shared = share_owe_stream(conn);

    if (shared && conn_pending(conn) < OUT_HIGH)
        return true;
    x->want_drained = true;
    x->drain_at = shared ? OUT_HIGH / 2 : OUT_SMALL / 2;
    if (!shared && conn_pending(conn) > 2 * OUT_HIGH) {
        conn->broken = true; /* others of the organisation are read no faster */
        conn_touch(conn);
    }
    return false;
}

bool exchange_write(struct exchange *x, const void *data, size_t len)
{
    struct conn *conn = x->conn;
    char size[24];
    struct iovec iov[3];
    size_t n = 0;

    if (x->over || !x->begun || len == 0)
        return true;
    if (x->length_left != UINT64_MAX) {
        x->wrong_length = x->wrong_length || len > x->length_left;
        if (len > x->length_left)
            len = (size_t)x->length_left;
        x->length_left -= len;
    }
    if (x->no_body)
        return true;
    x->bytes += len;
    if (x->chunked)
        iov[n++] = (struct iovec){size, (size_t)snprintf(size, sizeof(size), "%zx\r\n", len)};
    iov[n++] = (struct iovec){(void *)(uintptr_t)data, len};
    if (x->chunked)
        iov[n++] = (struct iovec){(void *)(uintptr_t) "\r\n", 2};
    if (conn_pending(conn) > OUT_HARD) {
        conn->broken = true; /* false was returned many times */
        conn_touch(conn);
        return false;
    }
    conn_write(conn, iov, n, true);
    return exchange_goes_on(x);
}

void exchange_on_drained(struct exchange *x, void (*drained)(void *ctx, struct exchange *x), void *ctx)
{
    x->drained = drained;
    x->drained_ctx = ctx;
}

void exchange_end(struct exchange *x)
{
    if (x->over)
        return;
    bool complete = x->length_left == UINT64_MAX || x->no_body || (x->length_left == 0 && !x->wrong_length);
    if (!x->begun || !complete)
        return exchange_abort(x);
    if (x->chunked)
        conn_write(x->conn, &(struct iovec){(void *)(uintptr_t) "0\r\n\r\n", 5}, 1, false);
    exchange_over(x);
}

void exchange_abort(struct exchange *x)
{
    if (x->over)
        return;
    x->aborted = true;
    exchange_over(x);
}

/* ---- server-sent events ------------------------------------------------------------------------- */

static int put_line(struct buf *out, const char *name, const char *value, size_t len)
{
    int r = buf_append_str(out, name);

    if (r == 0)
        r = buf_append(out, value, len);
    return r < 0 ? r : buf_append(out, "\n", 1);
}

/* A line ends at LF, CR or CR LF, as for the reader of the stream. */
static int put_data(struct buf *out, const char *data, size_t len)
{
    size_t at = 0;
    int r;

    do {
        size_t end = at;
        while (end < len && data[end] != '\n' && data[end] != '\r')
            end++;
        r = put_line(out, "data: ", data + at, end - at);
        if (end < len && data[end] == '\r' && end + 1 < len && data[end + 1] == '\n')
            end++;
        at = end + 1;
    } while (r == 0 && at <= len);
    return r;
}

bool exchange_sse(struct exchange *x, const char *event, const char *id, const void *data, size_t len)
{
    struct buf *out = &x->conn->server->text;
    int r = 0;

    out->len = 0;
    if (event)
        r = put_line(out, "event: ", event, strcspn(event, "\r\n"));
    if (r == 0 && id)
        r = put_line(out, "id: ", id, strcspn(id, "\r\n"));
    if (r == 0)
        r = put_data(out, data, len);
    if (r == 0)
        r = buf_append(out, "\n", 1);
    if (r < 0) {
        x->conn->broken = true; /* an event is lost, so the client shall come again */
        conn_touch(x->conn);
        return false;
    }
    bool more = exchange_write(x, out->data, out->len);
    if (out->cap > (256u << 10))
        buf_done(out);
    return more;
}
