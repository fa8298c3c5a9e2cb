/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dock_http.c: one request to the engine on one connection, on the loop.
 *
 * Theory of operation. A call connects (to a unix socket that is done at once), sends the request, reads a head, and
 * reads the body until its end. It can only go forward:
 *
 *     SENDING -> HEAD -> BODY -> told
 *
 * Any failure leads straight to "told". A timer bounds the whole. The answer's bytes are the engine's, which we believe
 * as little as anybody's: the head is that of codec/http, the body is bounded, an end that comes too early is an error,
 * and a text for people is cut and cleaned.
 */
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/http/http.h"
#include "runner/engine/dock.h"

#define PIECE (64u << 10)
#define REQUEST_MAX (1u << 20)
#define HEAD_MAX (32u << 10)
#define WORDS_MAX 160u

enum state { SENDING, HEAD, BODY };

struct dock_call {
    struct dock *dock;
    struct dock_call *next, *prev;
    int fd;
    struct loop_source source;
    struct loop_timer timer;
    enum state state;
    struct buf out, in; /* in: the head, then the body or one line of it */
    size_t sent, scanned;
    struct http_body_reader reader;
    unsigned status;
    bool lines;
    size_t most;
    const char *method;
    struct brig_err refused; /* A line of the answer has said that it went wrong. */
    dock_done_fn *done;
    void *ctx;
};

void dock_init(struct dock *dock, struct loop *loop, int root_fd, const char *socket)
{
    *dock = (struct dock){.loop = loop, .root_fd = root_fd, .answer_ns = DOCK_ANSWER_NS};
    str_cut(dock->socket, sizeof dock->socket, socket);
}

void dock_done(struct dock *dock)
{
    while (dock->calls)
        dock_drop(dock->calls);
}

static void call_free(struct dock_call *call)
{
    if (call->out.data)
        explicit_bzero(call->out.data, call->out.cap); /* It may have a login. */
    buf_done(&call->out);
    buf_done(&call->in);
    if (call->fd >= 0)
        close(call->fd);
    mem_free(call);
}

/* From here on the loop and the list know nothing of it. */
static void call_leave(struct dock_call *call)
{
    loop_remove(call->dock->loop, &call->source);
    loop_timer_clear(call->dock->loop, &call->timer);
    list_remove(&call->dock->calls, call);
}

void dock_drop(struct dock_call *call)
{
    call_leave(call);
    call_free(call);
}

/* ---- what the caller is told ------------------------------------------------------------------------------- */

static void tell(struct dock_call *call, const struct dock_answer *answer, const struct brig_err *err)
{
    call_leave(call);
    call->done(call->ctx, err ? NULL : answer, err);
    call_free(call);
}

static void fail(struct dock_call *call, enum brig_code code, const char *why)
{
    struct brig_err err = {0};

    err_set(&err, code, 0, "%.100s: %s", call->dock->socket, why);
    tell(call, NULL, &err);
}

/* Copies the engine's words: one line, without what steers a terminal, cut between characters. */
static void clean(char out[WORDS_MAX], const char *text)
{
    str_cut(out, WORDS_MAX, text);
    for (unsigned char *at = (unsigned char *)out; *at; at++)
        if (*at < 0x20 || *at == 0x7f || (*at == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f))
            *at = ' ';
}

static enum brig_code code_of(unsigned status)
{
    switch (status) {
    case 400: return BRIG_E_INVALID;
    case 404: return BRIG_E_NOT_FOUND;
    case 409: return BRIG_E_CONFLICT;
    default: return BRIG_E_HOST;
    }
}

/* Docker says {message}; Podman {cause, message, response}, and its message is the whole. */
static void refused(struct dock_call *call, const struct json_value *json)
{
    char words[WORDS_MAX];
    struct brig_err err = {0};

    clean(words, json_get_text(json, "message", ""));
    err_set(&err, code_of(call->status), 0, "the engine answers %u%s%s", call->status, words[0] ? ": " : "", words);
    tell(call, NULL, &err);
}

static void answered(struct dock_call *call)
{
    AUTO_JSON struct json_doc *doc = NULL;
    struct brig_err err = {0};
    const bool good = call->status >= 200 && call->status <= 299;

    if (call->lines && good) {
        struct dock_answer answer = {.status = call->status};
        tell(call, &answer, call->refused.code ? &call->refused : NULL);
        return;
    }
    int r = call->in.len ? json_read(call->in.data, call->in.len, JSON_READ_VALUES, &doc, &err) : 0;
    if (r < 0 && good) {
        fail(call, BRIG_E_HOST, "its answer is no JSON");
    } else if (!good) {
        refused(call, doc ? json_root(doc) : NULL);
    } else {
        struct dock_answer answer = {.status = call->status, .json = doc ? json_root(doc) : NULL};
        tell(call, &answer, NULL);
    }
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

static void line_take(struct dock_call *call, const char *line, size_t len)
{
    AUTO_JSON struct json_doc *doc = NULL;
    struct brig_err err = {0};
    char words[WORDS_MAX];

    if (json_read(line, len, JSON_READ_VALUES, &doc, &err) < 0)
        return; /* a blank line, or one that says nothing that we know */
    const char *text = json_get_text(json_root(doc), "error", NULL);
    if (!text)
        return;
    clean(words, text);
    err_set(&call->refused, BRIG_E_HOST, 0, "the engine says: %s", words);
}

static void lines_take(struct dock_call *call, bool all)
{
    size_t at = 0;

    for (;;) {
        const char *end = at < call->in.len ? memchr(call->in.data + at, '\n', call->in.len - at) : NULL;
        if (!end)
            break;
        line_take(call, call->in.data + at, (size_t)(end - call->in.data) - at);
        at = (size_t)(end - call->in.data) + 1;
    }
    if (all && at < call->in.len)
        line_take(call, call->in.data + at, call->in.len - at);
    buf_consume(&call->in, all ? call->in.len : at);
}

/* Returns false if the call is over. */
static bool body_take(struct dock_call *call, const char *data, size_t len)
{
    bool end = false;

    while (!end) {
        const char *at;
        size_t n;
        int took = http_body_take(&call->reader, data, len, &at, &n, &end);
        if (took < 0 || (n > 0 && (call->in.len + n > call->most || buf_append(&call->in, at, n) < 0))) {
            fail(call, BRIG_E_HOST, took < 0 ? "its answer breaks HTTP" : "its answer is too long");
            return false;
        }
        if (call->lines && call->status == 200)
            lines_take(call, end);
        data += took;
        len -= (size_t)took;
        if (len == 0 && !end)
            return true;
    }
    answered(call);
    return false;
}

/* Returns false if the call is over. */
static bool head_take(struct dock_call *call)
{
    const struct http_limits limits = {.head_bytes = HEAD_MAX};
    struct http_head head;
    struct brig_err err = {0};
    int n = http_response_parse(call->in.data, call->in.len, call->method, &limits, &call->scanned, &head, &err);

    if (n < 0) {
        fail(call, BRIG_E_HOST, "its answer breaks HTTP");
        return false;
    }
    if (n == 0)
        return true;
    call->status = head.status;
    call->state = BODY;
    http_body_init(&call->reader, &head);
    AUTO_BUF struct buf rest = BUF_INIT(HEAD_MAX + PIECE);
    if (buf_append(&rest, call->in.data + n, call->in.len - (size_t)n) < 0) {
        fail(call, BRIG_E_NOMEM, "out of memory");
        return false;
    }
    call->in.len = 0;
    call->in.max = call->most + 1;
    return head.body == HTTP_BODY_NONE ? (answered(call), false)
                                       : body_take(call, rest.data ? rest.data : "", rest.len);
}

static void on_end(struct dock_call *call)
{
    if (call->state == BODY && call->reader.kind == HTTP_BODY_UNTIL_CLOSE) {
        if (call->lines)
            lines_take(call, true);
        answered(call);
    } else {
        fail(call, BRIG_E_BUSY, "the engine ended the connection before the end of its answer");
    }
}

static void receive(struct dock_call *call)
{
    static char piece[PIECE]; /* One thread, and nobody keeps a pointer into it. */

    for (unsigned rounds = 0; rounds < 16; rounds++) {
        ssize_t n = recv(call->fd, piece, sizeof piece, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            on_end(call);
            return;
        }
        if (call->state == BODY) {
            if (!body_take(call, piece, (size_t)n))
                return;
        } else if (buf_append(&call->in, piece, (size_t)n) < 0) {
            fail(call, BRIG_E_HOST, "its answer breaks HTTP");
            return;
        } else if (!head_take(call)) {
            return;
        }
    }
}

/* ---- sending ------------------------------------------------------------------------------------------------ */

static void send_rest(struct dock_call *call)
{
    while (call->sent < call->out.len) {
        ssize_t n =
            send(call->fd, call->out.data + call->sent, call->out.len - call->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            break; /* It may have answered before: reading says. */
        call->sent += (size_t)n;
    }
    explicit_bzero(call->out.data, call->out.len);
    call->state = HEAD;
    if (loop_modify(call->dock->loop, &call->source, EPOLLIN, NULL) < 0)
        fail(call, BRIG_E_NOMEM, "out of memory");
}

static void on_ready(struct loop_source *source, uint32_t events UNUSED)
{
    struct dock_call *call = source->ctx;

    if (call->state == SENDING)
        send_rest(call);
    else
        receive(call);
}

static void on_time(struct loop_timer *timer)
{
    struct dock_call *call = timer->ctx;

    fail(call, BRIG_E_TIMEOUT, "the engine gave no whole answer in time");
}

/* The socket may lie in another tree than ours, and links in its path mean that one. */
static int find_socket(const struct dock *dock, struct brig_err *err)
{
    const struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                                 .resolve = dock->root_fd < 0 ? 0 : RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int fd = (int)syscall(SYS_openat2, dock->root_fd, dock->socket, &how, sizeof how);

    return fd < 0 ? err_set(err, BRIG_E_BUSY, errno, "no engine answers at %.100s", dock->socket) : fd;
}

static int connect_to(const struct dock *dock, struct brig_err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    AUTO_FD int place = find_socket(dock, err);
    AUTO_FD int fd = -1;

    if (place < 0)
        return place;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_host(err, "socket");
    (void)!str_format(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d", place);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return take_fd(&fd);
    if (errno == EACCES || errno == EPERM)
        return err_set(err, BRIG_E_OFF, errno, "the engine's socket %.100s may not be used by this user", dock->socket);
    return err_set(err, BRIG_E_BUSY, errno, "no engine answers at %.100s", dock->socket);
}

static int put_request(struct dock_call *call, const struct dock_request *request)
{
    char target[DOCK_TARGET_MAX + 16], length[24];
    const char *api = call->dock->api;
    const char *data = request->tar ? request->tar : request->body;
    const size_t body = request->tar ? request->tar_len : data ? strlen(data) : 0;
    struct buf *out = &call->out;
    int r = str_format(target, sizeof target, "%s%s%s", api[0] ? "/v" : "", api, request->target);

    if (r >= 0)
        r = http_put_request(out, request->method, target);
    if (r == 0)
        r = http_put_field(out, "Host", "docker");
    if (r == 0)
        r = http_put_field(out, "Connection", "close");
    if (r == 0 && body > 0)
        r = http_put_field(out, "Content-Type", request->tar ? "application/x-tar" : "application/json");
    if (r == 0 && !str_eq(request->method, "GET"))
        r = str_format(length, sizeof length, "%zu", body) < 0 ? -EINVAL
                                                               : http_put_field(out, "Content-Length", length);
    if (r == 0)
        r = http_put_end(out);
    if (r == 0 && body > 0)
        r = buf_append(out, data, body);
    return r;
}

int dock_ask(struct dock *dock, const struct dock_request *request, struct dock_call **ret, struct brig_err *err)
{
    struct dock_call *call = mem_zalloc(sizeof *call);

    if (!call)
        return err_nomem(err);
    *call = (struct dock_call){.dock = dock,
                               .fd = connect_to(dock, err),
                               .source = {.fd = -1, .fn = on_ready, .ctx = call},
                               .timer = {.fn = on_time, .ctx = call},
                               .out = BUF_INIT(REQUEST_MAX),
                               .in = BUF_INIT(HEAD_MAX + PIECE),
                               .lines = request->lines,
                               .most = request->most ? request->most : DOCK_ANSWER_MAX,
                               .method = request->method,
                               .done = request->done,
                               .ctx = request->ctx};
    list_push(&dock->calls, call);
    int r = call->fd < 0 ? call->fd : put_request(call, request);
    if (r < 0 && call->fd >= 0)
        err_set(err, BRIG_E_INVALID, -r, "%.100s: it cannot be asked", request->target);
    if (r == 0)
        r = loop_add(dock->loop, &call->source, call->fd, EPOLLOUT, err);
    if (r == 0)
        r = loop_timer_set(dock->loop, &call->timer,
                           loop_now_ns() + (request->timeout_ns ? request->timeout_ns : dock->answer_ns), err);
    if (r < 0) {
        dock_drop(call);
        return r;
    }
    if (ret)
        *ret = call;
    return 0;
}
