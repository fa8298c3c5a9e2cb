/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_output.c: the output of a process from an offset: as server-sent events, as raw bytes of one stream, or over a
 * WebSocket with input beside it.
 *
 * Bytes are given back to brig-init (output_consumed) when the client's connection has taken them, so a slow client
 * holds its program back and nothing piles up here; a client that does not read at all is cut off by the server's time
 * limit.
 */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/socket.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/wire/le.h"

#define STDIN_MAX (4u << 20) /* waiting for a program that reads slowly; one message is at most 1 MiB */

enum form { FORM_EVENTS, FORM_BYTES, FORM_SOCKET };

struct reader {
    struct request *rq;               /* NULL: over a WebSocket, which has outlived it */
    const struct socket_owner *owner; /* FORM_SOCKET of a run that makes its own sandbox */
    void *owner_ctx;
    struct exchange *x;
    struct output *output;
    struct input *input;  /* FORM_SOCKET */
    struct caller caller; /* FORM_SOCKET: who sends signals */
    struct process *process;
    struct sbox *sbox;
    struct sbox_watch watch;
    enum form form;
    unsigned stream; /* FORM_BYTES */
    uint64_t next[3];
    size_t owed[3]; /* written to the connection, not yet given back */
    struct buf scratch, stdin_waiting;
    bool full, stdin_eof;
    bool now; /* only what there is: no receipt is no loss */
};

static void reader_free(struct reader *reader)
{
    if (reader->output)
        output_close(reader->output);
    if (reader->input)
        input_close(reader->input, false);
    if (reader->sbox) {
        sbox_unwatch(reader->sbox, &reader->watch);
        sbox_release(reader->sbox);
    }
    buf_done(&reader->scratch);
    buf_done(&reader->stdin_waiting);
    mem_free(reader);
}

/* ---- to the client --------------------------------------------------------------------------------------- */

static void give_back(struct reader *reader)
{
    for (unsigned stream = 1; stream <= 2; stream++)
        if (reader->owed[stream] > 0 && reader->output) {
            output_consumed(reader->output, stream, reader->owed[stream]);
            reader->owed[stream] = 0;
        }
}

static void on_drained(void *ctx, struct exchange *x UNUSED)
{
    struct reader *reader = ctx;

    reader->full = false;
    give_back(reader);
}

static bool send_event(struct reader *reader, const char *event, const char *id, const struct json *json)
{
    return exchange_sse(reader->x, event, id, json->out->data, json->out->len);
}

static bool send_as_event(struct reader *reader, unsigned stream, uint64_t offset, const uint8_t *data, size_t len)
{
    struct json json = JSON_INIT(&reader->scratch);
    char id[64];

    reader->scratch.len = 0;
    json_object(&json);
    api_put_bytes(&json, "data", "encoding", json_is_text(data, len), data, len);
    json_key_u64(&json, "offset", offset);
    json_end(&json);
    if (json_finish(&json) < 0)
        return false;
    snprintf(id, sizeof id, "%llu,%llu", (unsigned long long)reader->next[1], (unsigned long long)reader->next[2]);
    return send_event(reader, stream == 1 ? "stdout" : "stderr", id, &json);
}

static bool send_as_message(struct reader *reader, unsigned stream, uint64_t offset, const uint8_t *data, size_t len)
{
    uint8_t head[9] = {(uint8_t)stream};

    le_put_u64(head + 1, offset);
    reader->scratch.len = 0;
    if (buf_append(&reader->scratch, head, sizeof head) < 0 || buf_append(&reader->scratch, data, len) < 0)
        return false;
    return exchange_ws_send(reader->x, false, reader->scratch.data, reader->scratch.len);
}

static void on_data(void *ctx, unsigned stream, uint64_t offset, const uint8_t *data, size_t len)
{
    struct reader *reader = ctx;
    bool room = false;

    reader->next[stream] = offset + len;
    reader->owed[stream] += len;
    if (reader->form == FORM_EVENTS)
        room = send_as_event(reader, stream, offset, data, len);
    else if (reader->form == FORM_SOCKET)
        room = send_as_message(reader, stream, offset, data, len);
    else
        room = exchange_write(reader->x, data, len);
    if (!room)
        reader->full = true;
    if (!reader->full)
        give_back(reader);
}

static void put_begin(struct reader *reader, struct json *json, const uint64_t first[3])
{
    json_key_u64(json, "stdout", first[1]);
    json_key_u64(json, "stderr", first[2]);
    json_key_bool(json, "truncated", first[1] > reader->next[1] || first[2] > reader->next[2]);
}

static void on_begin(void *ctx, const uint64_t first[3])
{
    struct reader *reader = ctx;
    struct json json = JSON_INIT(&reader->scratch);

    reader->scratch.len = 0;
    json_object(&json);
    if (reader->form == FORM_SOCKET)
        json_key_string(&json, "type", "begin");
    put_begin(reader, &json, first);
    json_end(&json);
    memcpy(reader->next, first, sizeof reader->next);
    if (json_finish(&json) < 0)
        return;
    if (reader->form == FORM_EVENTS)
        (void)!send_event(reader, "begin", NULL, &json);
    else if (reader->form == FORM_SOCKET)
        (void)!exchange_ws_send(reader->x, true, json.out->data, json.out->len);
}

void socket_end(struct reader *reader, const char *receipt, size_t len)
{
    static const char gone[] = "{\"type\":\"end\",\"receipt\":null}", head[] = "{\"type\":\"end\",\"receipt\":";

    reader->scratch.len = 0;
    if (!receipt)
        (void)!exchange_ws_send(reader->x, true, gone, sizeof gone - 1);
    else if (buf_append(&reader->scratch, head, sizeof head - 1) == 0 &&
             buf_append(&reader->scratch, receipt, len) == 0 && buf_append(&reader->scratch, "}", 1) == 0)
        (void)!exchange_ws_send(reader->x, true, reader->scratch.data, reader->scratch.len);
    exchange_ws_close(reader->x, 1000, "ended"); /* closed() follows, and frees */
}

static void on_end(void *ctx, const char *receipt, size_t len)
{
    struct reader *reader = ctx;
    struct request *rq = reader->rq;

    reader->output = NULL;
    if (reader->form == FORM_SOCKET) {
        if (reader->owner)
            reader->owner->ended(reader->owner_ctx, receipt, len);
        else
            socket_end(reader, receipt, len);
        return;
    }
    exchange_on_gone(reader->x, NULL, NULL);
    if (reader->form == FORM_EVENTS)
        (void)!exchange_sse(reader->x, "end", NULL, receipt ? receipt : "null", receipt ? len : 4);
    const bool whole = receipt || reader->now || reader->form == FORM_EVENTS;
    reader_free(reader);
    request_end(rq, whole);
}

static void on_left(struct request *rq)
{
    reader_free(rq->state);
    request_free(rq);
}

/* ---- opening --------------------------------------------------------------------------------------------- */

static void on_sandbox_ended(void *ctx, struct sbox *sbox UNUSED)
{
    struct reader *reader = ctx;

    reader->sbox = NULL;
    reader->process = NULL;
}

static struct reader *reader_create(struct request *rq, enum form form)
{
    struct reader *reader = request_alloc(rq, sizeof *reader);

    if (!reader)
        return NULL;
    *reader = (struct reader){.rq = rq,
                              .x = rq->x,
                              .form = form,
                              .caller = rq->caller,
                              .process = rq->process,
                              .sbox = rq->sbox,
                              .scratch = BUF_INIT(API_ANSWER_MAX),
                              .stdin_waiting = BUF_INIT(STDIN_MAX)};
    reader->watch = (struct sbox_watch){.ended = on_sandbox_ended, .ctx = reader};
    sbox_watch(rq->sbox, &reader->watch);
    sbox_hold(rq->sbox);
    return reader;
}

/* "123,45" of an event we sent, or the query's numbers. false: refused, and the reader is gone. */
static bool read_offsets(struct request *rq, struct reader *reader)
{
    const char *last = http_field(exchange_head(rq->x), "Last-Event-ID");
    uint64_t out = 0, err = 0;
    bool ok = request_query_u64(rq, "stdout", 0, UINT64_MAX - 1, &reader->next[1]);

    if (ok)
        ok = request_query_u64(rq, "stderr", 0, UINT64_MAX - 1, &reader->next[2]);
    const char *second = last ? api_number(last, ',', &out) : NULL;
    if (ok && second && api_number(second, '\0', &err)) {
        reader->next[1] = out;
        reader->next[2] = err;
    }
    if (!ok) {
        reader->rq = NULL;
        reader_free(reader);
    }
    return ok;
}

void route_process_output(struct request *rq)
{
    const char *stream = request_query(rq, "stream"), *accept = http_field(exchange_head(rq->x), "Accept");
    bool follow = true;
    bool bytes = stream || (accept && str_eq(accept, "application/octet-stream"));
    struct brig_err err;

    if (stream && !str_eq(stream, "stdout") && !str_eq(stream, "stderr"))
        return request_refuse(rq, BRIG_E_USAGE, "stream=%.32s: must be stdout or stderr", stream);
    if (!request_query_bool(rq, "follow", &follow))
        return;
    struct reader *reader = reader_create(rq, bytes ? FORM_BYTES : FORM_EVENTS);
    if (!reader || !read_offsets(rq, reader))
        return;
    reader->now = !follow;
    reader->stream = stream && str_eq(stream, "stderr") ? 2 : 1;
    const struct output_events events = {on_begin, on_data, on_end, reader};
    unsigned streams = bytes ? 1u << reader->stream : (1u << 1) | (1u << 2);
    uint64_t offset[3] = {0, reader->next[1], reader->next[2]};
    int r = follow ? output_open(rq->process, streams, offset, &events, &reader->output, &err)
                   : output_open_now(rq->process, streams, offset, &events, &reader->output, &err);
    if (r < 0) {
        reader_free(reader);
        request_fail(rq, &err);
        return;
    }
    rq->state = reader;
    rq->left = on_left;
    exchange_add_field(rq->x, "Cache-Control", "no-store");
    exchange_begin(rq->x, 200, bytes ? "application/octet-stream" : "text/event-stream", UINT64_MAX);
    exchange_on_drained(rq->x, on_drained, reader);
}

/* ---- attach: WebSocket ----------------------------------------------------------------------------------- */

static void push_stdin(struct reader *reader)
{
    ssize_t n = 0;

    if (!reader->input)
        return;
    if (reader->stdin_waiting.len > 0)
        n = input_write(reader->input, reader->stdin_waiting.data, reader->stdin_waiting.len);
    if (n < 0) { /* nobody reads: what comes is dropped, as a shell's pipe would */
        buf_done(&reader->stdin_waiting);
        return;
    }
    buf_consume(&reader->stdin_waiting, (size_t)n);
    exchange_ws_pause(reader->x, reader->stdin_waiting.len > 0);
    if (reader->stdin_waiting.len == 0 && reader->stdin_eof) {
        input_close(reader->input, true);
        reader->input = NULL;
    }
}

static void on_stdin_writable(void *ctx)
{
    push_stdin(ctx);
}

static void on_stdin_ended(void *ctx, int errnum UNUSED)
{
    struct reader *reader = ctx;

    reader->input = NULL;
    buf_done(&reader->stdin_waiting);
    reader->stdin_waiting = BUF_INIT(STDIN_MAX);
    exchange_ws_pause(reader->x, false);
}

/* A control message; one that cannot be understood closes the connection with 1008. */
static bool control(struct reader *reader, const struct json_value *json)
{
    const struct json_value *type = json_get(json, "type");
    uint16_t rows = 0, cols = 0;

    if (!type || type->type != JSON_STRING || !reader->process)
        return false;
    if (str_eq(type->string, "eof")) {
        reader->stdin_eof = true;
        push_stdin(reader);
        return true;
    }
    if (str_eq(type->string, "resize")) {
        bool ok = api_size(json, "rows", &rows) && api_size(json, "cols", &cols);
        if (ok) /* one that has ended has no size any more */
            (void)!process_resize(reader->process, rows, cols, NULL);
        return ok;
    }
    if (str_eq(type->string, "signal")) {
        int signum = api_signal(json_get(json, "signal"));
        if (signum > 0 && process_running(reader->process))
            (void)!process_signal(reader->process, &reader->caller, signum, signum == 9 ? SVC_SIGNAL_ALL : 0, NULL,
                                  NULL, NULL);
        return signum > 0;
    }
    return false;
}

static void on_message(void *ctx, struct exchange *x, bool text, const void *data, size_t len)
{
    struct reader *reader = ctx;
    struct json_doc *doc = NULL;

    if (!text) {
        if (reader->input && !reader->stdin_eof && buf_append(&reader->stdin_waiting, data, len) == 0)
            push_stdin(reader);
        return;
    }
    bool ok = false;
    if (reader->owner && !reader->process)
        ok = reader->owner->message(reader->owner_ctx, data, len);
    else
        ok = json_read(data, len, 64, &doc, NULL) == 0 && control(reader, json_root(doc));
    json_doc_free(doc);
    if (!ok)
        exchange_ws_close(x, 1008, "not a control message");
}

static void on_closed(void *ctx, struct exchange *x UNUSED, unsigned code UNUSED)
{
    struct reader *reader = ctx;

    if (reader->owner)
        reader->owner->closed(reader->owner_ctx);
    reader_free(reader);
}

/* Output and input of the process start to flow over the socket. */
int socket_attach(struct reader *reader, struct process *process, struct brig_err *err)
{
    const struct output_events events = {on_begin, on_data, on_end, reader};
    const struct input_events input = {on_stdin_writable, on_stdin_ended, reader};
    uint64_t offset[3] = {0, reader->next[1], reader->next[2]};
    int r = output_open(process, (1u << 1) | (1u << 2), offset, &events, &reader->output, err);

    if (r < 0)
        return r;
    reader->process = process;
    if (process_running(process) && input_open(process, &input, &reader->input, NULL) < 0)
        reader->input = NULL; /* it has no stdin: what is sent is dropped */
    return 0;
}

int socket_open(struct exchange *x, const struct caller *caller, const struct socket_owner *owner, void *ctx,
                struct reader **ret, struct brig_err *err)
{
    struct reader *reader = mem_zalloc(sizeof *reader);

    if (!reader)
        return err_nomem(err);
    *reader = (struct reader){.x = x,
                              .form = FORM_SOCKET,
                              .caller = *caller,
                              .owner = owner,
                              .owner_ctx = ctx,
                              .scratch = BUF_INIT(API_ANSWER_MAX),
                              .stdin_waiting = BUF_INIT(STDIN_MAX)};
    const struct ws_events ws = {on_message, on_closed, on_drained, reader};
    int r = exchange_websocket(x, &ws, NULL, err);
    if (r < 0)
        mem_free(reader);
    else
        *ret = reader;
    return r;
}

void route_process_attach(struct request *rq)
{
    struct brig_err err;

    if (!exchange_wants_websocket(rq->x))
        return request_refuse(rq, BRIG_E_USAGE, "attach is a WebSocket: Upgrade is needed");
    struct reader *reader = reader_create(rq, FORM_SOCKET);
    if (!reader || !read_offsets(rq, reader))
        return;
    const struct ws_events ws = {on_message, on_closed, on_drained, reader};
    int r = socket_attach(reader, rq->process, &err);
    if (r == 0)
        r = exchange_websocket(rq->x, &ws, NULL, &err);
    if (r < 0) {
        reader_free(reader);
        request_fail(rq, &err);
        return;
    }
    request_audit(rq, "terminal.open", sbox_id(rq->sbox), "ok", NULL);
    reader->rq = NULL;
    exchange_on_gone(rq->x, NULL, NULL);
    rq->x = NULL; /* the WebSocket is the reader's now; closed() is the only end */
    request_free(rq);
}
