/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.c: the exporter of spans. A state machine on one non-blocking connection:
 *
 *     IDLE -(spans, timer)-> CONNECTING -> SENDING -> READING -> IDLE
 *
 * READING takes the answer's head and body; then the connection is kept open for the next batch.
 *
 * Whatever goes wrong closes the connection and drops the batch, and the next one waits for RETRY_NS.
 */
#include "api/trace.h"

#include <inttypes.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/sockaddr.h"
#include "base/str.h"
#include "codec/http/http.h"
#include "codec/json/json.h"
#include "crypto/crypto.h"

#define BATCH_NS (1 * NS_PER_SEC)
#define RETRY_NS (10 * NS_PER_SEC)
#define ANSWER_NS (5 * NS_PER_SEC)
#define BODY_MAX (8u << 20)
#define ANSWER_MAX 16384u

enum state { IDLE, CONNECTING, SENDING, READING };

struct trace {
    struct loop *loop;
    struct loop_source source;
    struct loop_timer timer;
    int fd;
    enum state state;
    union sock_addr to;
    socklen_t to_len;
    char host[80], path[256];
    struct buf spans; /* "{...},{...}" of those that wait */
    unsigned n_spans, n_flying;
    struct buf out;
    size_t sent_bytes;
    char answer[ANSWER_MAX];
    size_t answer_len;
    uint64_t sent, dropped;
};

static void on_timer(struct loop_timer *timer);
static void on_io(struct loop_source *source, uint32_t events);

/* ---- the endpoint ----------------------------------------------------------------------------------------------- */

static int read_address(struct trace *trace, const char *host, const char *port, struct brig_err *err)
{
    uint32_t number;

    if (parse_u32(port, &number) < 0 || number == 0 || number > UINT16_MAX)
        return err_usage(err, "otlp_endpoint: `%s` is no port", port);
    trace->to_len = sock_addr_parse(str_eq(host, "localhost") ? "127.0.0.1" : host, (uint16_t)number, &trace->to);
    if (trace->to_len > 0)
        return 0;
    return err_usage(err, "otlp_endpoint: `%s` is no address; names are not looked up here", host);
}

static int read_endpoint(struct trace *trace, const char *endpoint, struct brig_err *err)
{
    char text[320];
    const char *start = str_starts(endpoint, "http://") ? endpoint + 7 : NULL;

    if (!start || str_format(text, sizeof text, "%s", start) < 0)
        return err_usage(err, "otlp_endpoint: must be http://ADDRESS:PORT");
    char *slash = strchr(text, '/');
    if (str_format(trace->path, sizeof trace->path, "%s", slash && slash[1] ? slash : "/v1/traces") < 0)
        return err_usage(err, "otlp_endpoint: its path is too long");
    if (slash)
        *slash = '\0';
    if (str_format(trace->host, sizeof trace->host, "%s", text) < 0)
        return err_usage(err, "otlp_endpoint: must be http://ADDRESS:PORT");
    char *colon = strrchr(text, ':');
    if (!colon || colon == text)
        return err_usage(err, "otlp_endpoint: must be http://ADDRESS:PORT");
    *colon = '\0';
    return read_address(trace, text, colon + 1, err);
}

int trace_create(struct loop *loop, const char *endpoint, struct trace **ret, struct brig_err *err)
{
    struct trace *trace = mem_zalloc(sizeof *trace);

    if (!trace)
        return err_nomem(err);
    trace->loop = loop;
    trace->fd = -1;
    trace->source = (struct loop_source){.fd = -1, .fn = on_io, .ctx = trace};
    trace->timer = (struct loop_timer){.fn = on_timer, .ctx = trace};
    trace->spans = (struct buf)BUF_INIT(BODY_MAX);
    trace->out = (struct buf)BUF_INIT(BODY_MAX);
    int r = read_endpoint(trace, endpoint, err);
    if (r < 0)
        trace_destroy(trace);
    else
        *ret = trace;
    return r;
}

static void disconnect(struct trace *trace)
{
    loop_remove(trace->loop, &trace->source);
    base_close_fd(&trace->fd);
    trace->state = IDLE;
}

void trace_destroy(struct trace *trace)
{
    if (!trace)
        return;
    loop_timer_clear(trace->loop, &trace->timer);
    disconnect(trace);
    buf_done(&trace->spans);
    buf_done(&trace->out);
    mem_free(trace);
}

uint64_t trace_dropped(const struct trace *trace)
{
    return trace ? trace->dropped : 0;
}

uint64_t trace_sent(const struct trace *trace)
{
    return trace ? trace->sent : 0;
}

/* ---- spans ------------------------------------------------------------------------------------------------------ */

static bool all_hex(const char *text, size_t len)
{
    bool zero = true;

    for (size_t i = 0; i < len; i++) {
        if (!strchr("0123456789abcdef", text[i]) || !text[i])
            return false;
        zero = zero && text[i] == '0';
    }
    return !zero;
}

/* W3C trace context, version 00: the ids are the client's to choose, but they must look like some. */
static bool valid_parent(const char *text)
{
    return strlen(text) == TRACE_PARENT - 1 && str_starts(text, "00-") && text[35] == '-' && text[52] == '-' &&
           all_hex(text + 3, 32) && all_hex(text + 36, 16);
}

static void put_attribute(struct json *json, const char *key, const char *text, uint64_t number)
{
    json_object(json);
    json_key_string(json, "key", key);
    json_key_object(json, "value");
    if (text)
        json_key_string(json, "stringValue", text);
    else
        json_key_u64(json, "intValue", number);
    json_end(json);
    json_end(json);
}

static void put_ns(struct json *json, const char *key, uint64_t ns)
{
    char text[24]; /* 64-bit numbers are strings in OTLP's JSON */

    snprintf(text, sizeof text, "%" PRIu64, ns);
    json_key_string(json, key, text);
}

static int put_span(struct buf *out, const struct trace_span *span)
{
    struct json json = JSON_INIT(out);
    uint8_t random[24];
    char ids[49], name[192], trace_id[33], parent_id[17] = "";
    uint64_t now = (uint64_t)clock_real_ns();

    if (crypto_random(random, sizeof random) < 0)
        return -EIO;
    crypto_hex(random, sizeof random, ids);
    snprintf(trace_id, sizeof trace_id, "%.32s", ids + 16);
    if (valid_parent(span->parent)) {
        snprintf(trace_id, sizeof trace_id, "%.32s", span->parent + 3);
        snprintf(parent_id, sizeof parent_id, "%.16s", span->parent + 36);
    }
    ids[16] = '\0';
    snprintf(name, sizeof name, "%s %s", span->method, span->route);
    json_object(&json);
    json_key_string(&json, "traceId", trace_id);
    json_key_string(&json, "spanId", ids);
    if (parent_id[0])
        json_key_string(&json, "parentSpanId", parent_id);
    json_key_string(&json, "name", name);
    json_key_u64(&json, "kind", 2); /* SERVER */
    put_ns(&json, "startTimeUnixNano", now - span->duration_ns);
    put_ns(&json, "endTimeUnixNano", now);
    json_key_array(&json, "attributes");
    put_attribute(&json, "http.request.method", span->method, 0);
    put_attribute(&json, "http.route", span->route, 0);
    put_attribute(&json, "http.response.status_code", NULL, span->status);
    put_attribute(&json, "http.response.body.size", NULL, span->bytes);
    put_attribute(&json, "client.address", span->peer, 0);
    put_attribute(&json, "brig.request_id", span->request_id, 0);
    json_end(&json);
    json_key_object(&json, "status");
    if (span->status >= 500)
        json_key_u64(&json, "code", 2); /* ERROR */
    json_end(&json);
    json_end(&json);
    return json_finish(&json);
}

void trace_add(struct trace *trace, const struct trace_span *span)
{
    size_t before = trace->spans.len;
    bool first = trace->n_spans == 0;

    if (trace->n_spans >= TRACE_QUEUE_MAX || (!first && buf_append(&trace->spans, ",", 1) < 0) ||
        put_span(&trace->spans, span) < 0) {
        trace->spans.len = before;
        trace->dropped++;
        return;
    }
    trace->n_spans++;
    if (first && trace->state == IDLE && trace->timer.pos == 0 &&
        loop_timer_set(trace->loop, &trace->timer, loop_now_ns() + BATCH_NS, NULL) < 0)
        trace->n_spans = 0, trace->spans.len = 0, trace->dropped++;
}

/* ---- sending ---------------------------------------------------------------------------------------------------- */

static int put_batch(struct trace *trace)
{
    static const char before[] =
        "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"service.name\",\"value\":{\"stringValue\":"
        "\"brigd\"}}]},"
        "\"scopeSpans\":[{\"scope\":{\"name\":\"brig\"},\"spans\":[";
    static const char after[] = "]}]}]}";
    char length[24];

    trace->out.len = 0;
    snprintf(length, sizeof length, "%zu", sizeof before - 1 + trace->spans.len + sizeof after - 1);
    int r = http_put_request(&trace->out, "POST", trace->path);
    if (r == 0)
        r = http_put_field(&trace->out, "Host", trace->host);
    if (r == 0)
        r = http_put_field(&trace->out, "Content-Type", "application/json");
    if (r == 0)
        r = http_put_field(&trace->out, "Content-Length", length);
    if (r == 0)
        r = http_put_end(&trace->out);
    if (r == 0)
        r = buf_append(&trace->out, before, sizeof before - 1);
    if (r == 0)
        r = buf_append(&trace->out, trace->spans.data, trace->spans.len);
    return r == 0 ? buf_append(&trace->out, after, sizeof after - 1) : r;
}

static void arm(struct trace *trace, uint64_t delay_ns)
{
    (void)!loop_timer_set(trace->loop, &trace->timer, loop_now_ns() + delay_ns, NULL);
}

static void fail(struct trace *trace)
{
    disconnect(trace);
    trace->dropped += trace->n_flying;
    trace->n_flying = 0;
    arm(trace, RETRY_NS);
}

static void watch(struct trace *trace, uint32_t events)
{
    int r = trace->source.slot ? loop_modify(trace->loop, &trace->source, events, NULL)
                               : loop_add(trace->loop, &trace->source, trace->fd, events, NULL);

    if (r < 0)
        fail(trace);
}

static void begin(struct trace *trace)
{
    trace->n_flying = trace->n_spans;
    int r = put_batch(trace);
    trace->n_spans = 0;
    trace->spans.len = 0;
    trace->sent_bytes = 0;
    trace->answer_len = 0;
    if (r < 0)
        return fail(trace);
    arm(trace, ANSWER_NS);
    trace->state = SENDING;
    if (trace->fd < 0) {
        trace->fd = socket(trace->to.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (trace->fd < 0 || (connect(trace->fd, &trace->to.any, trace->to_len) < 0 && errno != EINPROGRESS))
            return fail(trace);
        trace->state = CONNECTING;
    }
    watch(trace, EPOLLOUT);
}

static void on_timer(struct loop_timer *timer)
{
    struct trace *trace = timer->ctx;

    if (trace->state != IDLE)
        fail(trace); /* the collector took too long */
    else if (trace->n_spans > 0)
        begin(trace);
}

static void send_more(struct trace *trace)
{
    ssize_t n = send(trace->fd, trace->out.data + trace->sent_bytes, trace->out.len - trace->sent_bytes, MSG_NOSIGNAL);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0)
        return fail(trace);
    trace->sent_bytes += (size_t)n;
    if (trace->sent_bytes == trace->out.len) {
        trace->state = READING;
        watch(trace, EPOLLIN);
    }
}

/* 0: more is to come; 1: the whole answer is here, *ret_keep: the connection can be used again; -1: it is none. */
static int read_answer(struct trace *trace, bool *ret_keep)
{
    struct http_head head;
    struct http_body_reader body;
    size_t scanned = 0, at;
    const char *piece;
    size_t piece_len;
    bool end = false;
    char copy[ANSWER_MAX];

    memcpy(copy, trace->answer, trace->answer_len); /* parsing writes into it, and there may be more to come */
    int r = http_response_parse(copy, trace->answer_len, "POST", NULL, &scanned, &head, NULL);
    if (r <= 0)
        return r;
    if (head.status < 200 || head.status > 299 || head.body == HTTP_BODY_UNTIL_CLOSE)
        return -1;
    at = (size_t)r;
    http_body_init(&body, &head);
    do {
        r = http_body_take(&body, copy + at, trace->answer_len - at, &piece, &piece_len, &end);
        at += r > 0 ? (size_t)r : 0;
    } while (r > 0 && !end);
    *ret_keep = head.keep_alive;
    return r < 0 ? -1 : end;
}

static void on_answer(struct trace *trace)
{
    bool keep = false;
    ssize_t n = recv(trace->fd, trace->answer + trace->answer_len, ANSWER_MAX - trace->answer_len, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        trace->answer_len += (size_t)n;
    int r = n > 0 ? read_answer(trace, &keep) : -1;
    if (r == 0 && trace->answer_len < ANSWER_MAX)
        return;
    if (r <= 0)
        return fail(trace);
    trace->sent += trace->n_flying;
    trace->n_flying = 0;
    trace->state = IDLE;
    if (!keep)
        disconnect(trace);
    else
        watch(trace, EPOLLIN); /* to see it close */
    arm(trace, BATCH_NS);
}

static void on_io(struct loop_source *source, uint32_t events UNUSED)
{
    struct trace *trace = source->ctx;
    int error = 0;
    socklen_t len = sizeof error;

    switch (trace->state) {
    case CONNECTING:
        if (getsockopt(trace->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 || error)
            return fail(trace);
        trace->state = SENDING;
        send_more(trace);
        break;
    case SENDING: send_more(trace); break;
    case READING: on_answer(trace); break;
    case IDLE: disconnect(trace); break; /* it has closed, or says what nobody asked */
    }
}
