/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate_client.c: sends requests to brig-egress over its control socket (gate/gate_wire.h), on the loop.
 *
 * Theory of operation. A request is one packet with its descriptors and the type of the answer that it waits for. All
 * requests are in one list, in the order in which they were made. Those that found the socket full stand at its end,
 * and are sent in order when there is room again. brig-egress answers the requests of one slot and type in the order in
 * which it got them, so an answer belongs to the first request of its type and slot.
 *
 * No function calls its caller back. When the socket dies, also in the middle of a call, its requests move to a second
 * list. A timer that is due at once then tells their owners, then calls `lost` and, when there is a new socket,
 * `on_sync`. A callback may destroy the client; `gone` on the stack of the caller says so.
 */
#include "gate/gate_client.h"

#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/str.h"

#define CA_MAX (64u << 10)
#define BUSY_NS (10 * NS_PER_MS)
#define READ_ROUND 64u /* packets in one round of the loop: others have their turn */

struct request {
    struct request *next, *prev;
    uint16_t answer; /* type waited for; 0: none (SYNC, SYNCED), gone once it is sent */
    bool sent;
    union {
        gate_prepared_fn *prepared;
        gate_done_fn *done;
        gate_counts_fn *counts;
    } fn;
    bool cancelled;
    void *ctx;
    size_t n_fds;
    int fds[GATE_LISTENERS_MAX]; /* until it is sent */
    union gate_any msg;
};

struct gate_client {
    struct loop *loop;
    struct gate_client_events events;
    struct loop_source source;
    struct loop_timer tell, resume;
    int sock;                     /* -1: none */
    bool writing;                 /* EPOLLOUT is asked for */
    bool waits;                   /* EPOLLIN is not */
    bool lost, sync;              /* to be told */
    struct request *first, *last; /* of this socket */
    struct request *dead;         /* of sockets that died */
    bool *gone;                   /* set when the client is destroyed below a callback */
};

static void request_free(struct request *request)
{
    fd_close_all(request->fds, request->n_fds);
    mem_free(request);
}

static void tell_soon(struct gate_client *client)
{
    /* The loop has room for the timer it had before; what cannot be told now is told with the next event. */
    (void)!loop_timer_set(client->loop, &client->tell, clock_mono_ns(), NULL);
}

static void socket_close(struct gate_client *client)
{
    if (client->sock < 0)
        return;
    loop_remove(client->loop, &client->source);
    base_close_fd(&client->sock);
    client->writing = client->waits = false;
    loop_timer_clear(client->loop, &client->resume);
    client->sync = false;
    struct request **end = &client->dead;
    while (*end)
        end = &(*end)->next;
    *end = client->first;
    client->first = client->last = NULL;
    tell_soon(client);
}

static void socket_lost(struct gate_client *client)
{
    if (client->sock < 0)
        return;
    socket_close(client);
    client->lost = true;
}

/* ---- sending ------------------------------------------------------------------------------------------- */

static uint32_t wanted(const struct gate_client *client)
{
    return (client->waits ? 0u : EPOLLIN) | (client->writing ? EPOLLOUT : 0u);
}

static int want_writing(struct gate_client *client, bool on)
{
    if (client->writing == on)
        return 0;
    client->writing = on;
    return loop_modify(client->loop, &client->source, wanted(client), NULL);
}

/* Sends what has not been sent, in order, until the socket is full. */
static void flush(struct gate_client *client)
{
    struct request *request = client->first;

    while (request && request->sent)
        request = request->next;
    while (request) {
        struct request *next = request->next;
        int r = gate_send(client->sock, &request->msg, request->fds, request->n_fds);
        if (r == -EAGAIN) {
            if (want_writing(client, true) < 0)
                socket_lost(client);
            return;
        }
        if (r < 0) {
            socket_lost(client);
            return;
        }
        fd_close_all(request->fds, request->n_fds);
        request->n_fds = 0;
        request->sent = true;
        if (request->answer == 0) {
            list_take(&client->first, &client->last, request);
            request_free(request);
        }
        request = next;
    }
    if (want_writing(client, false) < 0)
        socket_lost(client);
}

static int request_new(struct gate_client *client, uint16_t type, uint16_t answer, uint64_t slot, void *ctx,
                       struct request **ret, struct brig_err *err)
{
    if (client->sock < 0)
        return err_set(err, BRIG_E_BUSY, EAGAIN, "brig-egress is not running");
    struct request *request = mem_zalloc(sizeof *request);
    if (!request)
        return err_nomem(err);
    request->answer = answer;
    request->ctx = ctx;
    request->msg.head = (struct gate_head){.magic = GATE_MAGIC, .version = GATE_VERSION, .type = type, .slot = slot};
    *ret = request;
    return 0;
}

static void request_start(struct gate_client *client, struct request *request)
{
    list_append(&client->first, &client->last, request);
    if (!client->writing)
        flush(client);
}

/* A copy that lives until the packet is sent; the caller keeps its own. */
static int add_fd(struct request *request, int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

    if (copy < 0)
        return -errno;
    request->fds[request->n_fds++] = copy;
    return 0;
}

static int plain(struct gate_client *client, uint16_t type, struct brig_err *err)
{
    struct request *request = NULL;
    int r = request_new(client, type, 0, 0, NULL, &request, err);

    if (r == 0)
        request_start(client, request);
    return r;
}

/* ---- answers ------------------------------------------------------------------------------------------- */

static const struct brig_err *failure(const struct brig_err *err)
{
    return err->code == BRIG_E_NONE ? NULL : err;
}

static void call_prepared(const struct request *request, const struct gate_prepared *prepared, int ca_fd)
{
    AUTO_FREE char *ca = NULL;
    size_t len = 0;
    struct brig_err err = prepared->err;
    int r = err.code == BRIG_E_NONE && prepared->brokers
                ? (ca_fd < 0 ? -EBADMSG : gate_memfd_read(ca_fd, CA_MAX, &ca, &len))
                : 0;

    if (r < 0)
        err_set(&err, BRIG_E_HOST, -r, "the certificate authority of a sandbox");
    request->fn.prepared(request->ctx, failure(&err) ? NULL : prepared, ca, failure(&err));
}

static void call_back(const struct request *request, const union gate_any *msg, int fd)
{
    if (request->cancelled || request->answer == 0)
        return;
    if (request->answer == GATE_PREPARED)
        call_prepared(request, &msg->prepared, fd);
    else if (request->answer == GATE_LISTENING)
        request->fn.done(request->ctx, failure(&msg->answer.err));
    else
        request->fn.counts(request->ctx, failure(&msg->counted.err) ? NULL : &msg->counted.counts,
                           failure(&msg->counted.err));
}

static void call_failed(const struct request *request)
{
    union gate_any msg = {.head = {.type = request->answer}};

    _Static_assert(offsetof(struct gate_prepared, err) == offsetof(struct gate_answer, err) &&
                       offsetof(struct gate_counted, err) == offsetof(struct gate_answer, err),
                   "every answer has its error in one place");
    err_set(&msg.answer.err, BRIG_E_BUSY, EAGAIN, "brig-egress ended before it answered");
    call_back(request, &msg, -1);
}

static struct request *find_request(struct gate_client *client, const struct gate_head *head)
{
    for (struct request *request = client->first; request && request->sent; request = request->next)
        if (request->answer == head->type && request->msg.head.slot == head->slot)
            return request;
    return NULL;
}

/* One packet. false: nothing more to do here (the socket, or the client, is gone). */
static bool take_packet(struct gate_client *client, const union gate_any *msg, int fd)
{
    bool gone = false, *outer = client->gone;

    client->gone = &gone;
    if (msg->head.type == GATE_EVENT) {
        client->events.event(client->events.ctx, &msg->event);
    } else {
        struct request *request = find_request(client, &msg->head);
        if (!request) {
            client->gone = outer;
            socket_lost(client); /* an answer to nothing: one of us is confused */
            return false;
        }
        list_take(&client->first, &client->last, request);
        call_back(request, msg, fd);
        request_free(request);
    }
    if (gone) {
        if (outer)
            *outer = true;
        return false;
    }
    client->gone = outer;
    return client->sock >= 0;
}

/* Whoever takes the events is behind: brig-egress queues them meanwhile, and accepts nothing new when its queue is
 * full. */
static void wait_a_moment(struct gate_client *client)
{
    client->waits = loop_timer_set(client->loop, &client->resume, clock_mono_ns() + BUSY_NS, NULL) == 0;
    if (loop_modify(client->loop, &client->source, wanted(client), NULL) < 0)
        socket_lost(client);
}

static void on_resume(struct loop_timer *timer)
{
    struct gate_client *client = timer->ctx;

    client->waits = false;
    if (client->sock >= 0 && loop_modify(client->loop, &client->source, wanted(client), NULL) < 0)
        socket_lost(client);
}

static void on_socket(struct loop_source *source, uint32_t events)
{
    struct gate_client *client = source->ctx;

    if (events & EPOLLOUT)
        flush(client);
    for (unsigned i = 0; client->sock >= 0 && i < READ_ROUND; i++) {
        if (client->events.busy && !(events & (EPOLLHUP | EPOLLERR)) && client->events.busy(client->events.ctx)) {
            wait_a_moment(client);
            return;
        }
        union gate_any msg;
        int fds[1] = {-1}, sock = client->sock;
        size_t n_fds = 1;
        int r = gate_receive(sock, &msg, fds, &n_fds);
        if (r == -EAGAIN)
            return;
        AUTO_FD int fd = r == 0 && n_fds == 1 ? fds[0] : -1;
        if (r < 0) {
            socket_lost(client);
            return;
        }
        if (!take_packet(client, &msg, fd))
            return;
    }
}

static void on_tell(struct loop_timer *timer)
{
    struct gate_client *client = timer->ctx;
    bool gone = false, *outer = client->gone;

    client->gone = &gone;
    while (!gone && client->dead) {
        struct request *request = client->dead;
        client->dead = request->next;
        call_failed(request);
        request_free(request);
    }
    if (!gone && client->lost) {
        client->lost = false;
        client->events.lost(client->events.ctx);
    }
    if (!gone && client->sync) {
        client->sync = false;
        client->events.on_sync(client->events.ctx);
    }
    if (!gone)
        client->gone = outer;
    else if (outer)
        *outer = true;
}

/* ---- the interface ------------------------------------------------------------------------------------- */

int gate_client_create(struct loop *loop, const struct gate_client_events *events, struct gate_client **ret,
                       struct brig_err *err)
{
    struct gate_client *client = mem_zalloc(sizeof *client);

    if (!client)
        return err_nomem(err);
    client->loop = loop;
    client->events = *events;
    client->sock = -1;
    client->source = (struct loop_source){.fd = -1, .fn = on_socket, .ctx = client};
    client->tell = (struct loop_timer){.fn = on_tell, .ctx = client};
    client->resume = (struct loop_timer){.fn = on_resume, .ctx = client};
    *ret = client;
    return 0;
}

void gate_client_destroy(struct gate_client *client)
{
    if (!client)
        return;
    if (client->gone)
        *client->gone = true;
    socket_close(client);
    loop_timer_clear(client->loop, &client->resume);
    loop_timer_clear(client->loop, &client->tell);
    while (client->dead) {
        struct request *request = client->dead;
        client->dead = request->next;
        request_free(request);
    }
    mem_free(client);
}

int gate_client_connect(struct gate_client *client, int sock, struct brig_err *err)
{
    AUTO_FD int fd = sock;
    int r = fd_set_nonblock(fd);

    if (r < 0)
        return err_set(err, BRIG_E_HOST, -r, "control socket of brig-egress");
    socket_close(client);
    if ((r = loop_add(client->loop, &client->source, fd, EPOLLIN, err)) < 0)
        return r;
    client->sock = take_fd(&fd);
    client->lost = false;
    client->sync = true;
    if ((r = plain(client, GATE_SYNC, err)) < 0)
        return r;
    tell_soon(client);
    return 0;
}

bool gate_client_connected(const struct gate_client *client)
{
    return client->sock >= 0;
}

int gate_client_synced(struct gate_client *client, struct brig_err *err)
{
    return plain(client, GATE_SYNCED, err);
}

int gate_client_prepare(struct gate_client *client, uint64_t slot, uint64_t version, uint32_t flags, const char *spec,
                        size_t spec_len, gate_prepared_fn *done, void *ctx, struct brig_err *err)
{
    struct request *request = NULL;
    int r = request_new(client, GATE_PREPARE, GATE_PREPARED, slot, ctx, &request, err);

    if (r < 0)
        return r;
    request->fn.prepared = done;
    request->msg.prepare.policy_version = version;
    request->msg.prepare.flags = flags;
    request->msg.prepare.spec_len = (uint32_t)spec_len;
    int fd = gate_memfd("slot", spec, spec_len);
    if (fd < 0) {
        request_free(request);
        return err_set(err, BRIG_E_HOST, -fd, "the policy for brig-egress");
    }
    request->fds[request->n_fds++] = fd;
    request_start(client, request);
    return 0;
}

int gate_client_listen(struct gate_client *client, uint64_t slot, const char *sandbox_id,
                       const struct gate_listener *listeners, const int *fds, size_t n, gate_done_fn *done, void *ctx,
                       struct brig_err *err)
{
    struct request *request = NULL;

    if (n == 0 || n > GATE_LISTENERS_MAX)
        return err_set(err, BRIG_E_USAGE, 0, "%zu listeners: must be 1 to %u", n, GATE_LISTENERS_MAX);
    int r = request_new(client, GATE_LISTEN, GATE_LISTENING, slot, ctx, &request, err);
    if (r < 0)
        return r;
    request->fn.done = done;
    request->msg.listen.n = (uint32_t)n;
    memcpy(request->msg.listen.listeners, listeners, n * sizeof *listeners);
    r = str_copy(request->msg.listen.sandbox_id, sizeof request->msg.listen.sandbox_id, sandbox_id);
    for (size_t i = 0; r == 0 && i < n; i++)
        r = add_fd(request, fds[i]);
    if (r < 0) {
        request_free(request);
        return err_set(err, BRIG_E_HOST, -r, "listeners for brig-egress");
    }
    request_start(client, request);
    return 0;
}

static int counts(struct gate_client *client, uint16_t type, uint16_t answer, uint64_t slot, gate_counts_fn *done,
                  void *ctx, struct brig_err *err)
{
    struct request *request = NULL;
    int r = request_new(client, type, answer, slot, ctx, &request, err);

    if (r < 0)
        return r;
    request->fn.counts = done;
    request_start(client, request);
    return 0;
}

int gate_client_count(struct gate_client *client, uint64_t slot, gate_counts_fn *done, void *ctx, struct brig_err *err)
{
    return counts(client, GATE_COUNT, GATE_COUNTED, slot, done, ctx, err);
}

int gate_client_forget(struct gate_client *client, uint64_t slot, gate_counts_fn *done, void *ctx, struct brig_err *err)
{
    return counts(client, GATE_FORGET, GATE_FORGOTTEN, slot, done, ctx, err);
}

void gate_client_cancel(struct gate_client *client, void *ctx)
{
    for (struct request *request = client->first; request; request = request->next)
        request->cancelled = request->cancelled || request->ctx == ctx;
    for (struct request *request = client->dead; request; request = request->next)
        request->cancelled = request->cancelled || request->ctx == ctx;
}
