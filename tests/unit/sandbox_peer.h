/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_peer.h: a brig-init that the tests play, on one end of a socket pair and on the tests' own loop. Its programs
 * are words:
 *
 *     true, false     exit at once with 0 or 1               echo TEXT    prints TEXT, exits 0
 *     sleep           until a signal                          stubborn     until SIGKILL
 *     deaf            until the test says so                  flood N      prints N bytes, exits 0
 *     cat             prints its stdin, exits at its end      oom, pids    die of a limit, says their leaf
 *     missing         cannot be executed (ENOENT)             nodir        has no working directory
 *
 * One with a channel says READY as soon as that is opened, unless its word is `sullen`.
 */
#ifndef BRIG_TESTS_SANDBOX_PEER_H
#define BRIG_TESTS_SANDBOX_PEER_H

#include "unit.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/parse.h"
#include "base/str.h"
#include "codec/wire/guest_msg.h"
#include "codec/wire/guest_svc.h"
#include "codec/wire/le.h"
#include "loop/loop.h"

#define PEER_PROCS 512
#define PEER_CALLS 1024

struct peer_proc {
    uint32_t number, flags;
    bool running, ended;
    char word[64], cwd[256];
    char *env; /* joined with ; */
    struct buf out[3];
    struct svc_proc_exit exit;
    struct buf asked; /* on its channel */
    bool spoke;
};
struct peer_call {
    uint32_t request, type, proc;
    uint64_t sent[3];
    uint32_t credit[3];
};
struct peer {
    struct loop *loop;
    struct loop_source source;
    int fd;
    struct buf in, open, send;
    struct peer_proc procs[PEER_PROCS];
    unsigned n_procs;
    struct peer_call calls[PEER_CALLS]; /* open ones: request not 0 */
    unsigned opens[SVC_TYPE_MAX], cancels, credits;
    uint32_t last_signal, last_signal_flags;
    uint16_t rows, cols;
    bool mute; /* answers nothing */
    bool hold; /* keeps processes from being reported as ended */
    bool shell_hang;
    bool forgets; /* its rings: who attaches later finds only what comes from then on */
    uint32_t mkdir_errnum;
    char mkdir_path[256];
    char shell_cwd[256];
};

static inline void peer_flush(struct peer *peer)
{
    ssize_t n = send(peer->fd, peer->send.data, peer->send.len, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n > 0)
        buf_consume(&peer->send, (size_t)n);
    if (peer->source.slot)
        (void)!loop_modify(peer->loop, &peer->source, EPOLLIN | (peer->send.len ? (uint32_t)EPOLLOUT : 0), NULL);
}

static inline void peer_frame(struct peer *peer, unsigned type, uint32_t request, uint32_t stream, const void *payload,
                              size_t len)
{
    uint8_t head[FRAME_HEADER];
    const struct frame frame = {.type = (uint16_t)type, .request = request, .stream = stream, .length = (uint32_t)len};

    if (peer->fd < 0)
        return;
    frame_put_header(head, &frame);
    assert_int_equal(buf_append(&peer->send, head, sizeof head), 0);
    if (len > 0)
        assert_int_equal(buf_append(&peer->send, payload, len), 0);
    peer_flush(peer);
}

static inline struct peer_call *peer_call(struct peer *peer, uint32_t request)
{
    for (size_t i = 0; i < PEER_CALLS; i++)
        if (peer->calls[i].request == request)
            return &peer->calls[i];
    return NULL;
}

static inline void peer_reply(struct peer *peer, uint32_t request, uint32_t errnum, uint32_t stage, const void *data,
                              size_t len)
{
    uint8_t wire[8192];
    struct peer_call *call = peer_call(peer, request);

    le_put_u32(wire, errnum);
    le_put_u32(wire + 4, stage);
    if (len > 0)
        memcpy(wire + 8, data, len);
    if (call)
        *call = (struct peer_call){0};
    peer_frame(peer, SVC_REPLY, request, 0, wire, 8 + len);
}

static inline struct peer_proc *peer_proc(struct peer *peer, uint32_t number)
{
    for (unsigned i = 0; i < peer->n_procs; i++)
        if (peer->procs[i].number == number)
            return &peer->procs[i];
    return NULL;
}

/* What an ATTACH still has to send, as far as its credit goes; its end when the process has ended. */
static inline void peer_pump(struct peer *peer, struct peer_call *call)
{
    struct peer_proc *proc = peer_proc(peer, call->proc);
    bool all = true;

    for (unsigned s = 1; s <= 2 && proc; s++) {
        while (call->sent[s] < proc->out[s].len && call->credit[s] > 0) {
            size_t n = proc->out[s].len - (size_t)call->sent[s];
            n = n < FRAME_PAYLOAD_MAX ? n : FRAME_PAYLOAD_MAX;
            n = n < call->credit[s] ? n : call->credit[s];
            peer_frame(peer, SVC_DATA, call->request, s, proc->out[s].data + call->sent[s], n);
            call->sent[s] += n;
            call->credit[s] -= (uint32_t)n;
        }
        all = all && call->sent[s] >= proc->out[s].len;
    }
    if (!proc || (all && proc->ended)) {
        peer_frame(peer, SVC_EOF, call->request, 1, NULL, 0);
        peer_frame(peer, SVC_EOF, call->request, 2, NULL, 0);
        peer_reply(peer, call->request, proc ? 0 : ESRCH, 0, NULL, 0);
    }
}

static inline void peer_pump_all(struct peer *peer, uint32_t number)
{
    for (size_t i = 0; i < PEER_CALLS; i++) {
        struct peer_call *call = &peer->calls[i];
        uint8_t wire[256];
        if (!call->request || call->proc != number)
            continue;
        struct peer_proc *proc = peer_proc(peer, number);
        if (call->type == SVC_PROC_ATTACH)
            peer_pump(peer, call);
        else if (call->type == SVC_PROC_WAIT && proc && proc->ended && !peer->hold) {
            int n = svc_proc_exit_put(wire, sizeof wire, &proc->exit);
            assert_true(n > 0);
            peer_reply(peer, call->request, 0, 0, wire, (size_t)n);
        } else if (call->type == SVC_CHANNEL && proc && proc->ended)
            peer_reply(peer, call->request, 0, 0, NULL, 0);
        else if (call->type == SVC_PROC_INPUT && proc && proc->ended)
            peer_reply(peer, call->request, EPIPE, 0, NULL, 0);
    }
}

static inline void peer_end(struct peer *peer, uint32_t number, uint32_t status)
{
    struct peer_proc *proc = peer_proc(peer, number);

    if (!proc || proc->ended)
        return;
    proc->ended = true;
    proc->running = false;
    proc->exit.status = status;
    proc->exit.ended_ns = clock_mono_ns();
    proc->exit.output[1] = proc->out[1].len;
    proc->exit.output[2] = proc->out[2].len;
    peer_pump_all(peer, number);
}

static inline void peer_write(struct peer *peer, uint32_t number, unsigned stream, const void *data, size_t len)
{
    struct peer_proc *proc = peer_proc(peer, number);

    assert_non_null(proc);
    assert_int_equal(buf_append(&proc->out[stream], data, len), 0);
    peer_pump_all(peer, number);
}

/* Bytes of the program on its channel; with a length before them: a frame. */
static inline void peer_say(struct peer *peer, uint32_t number, const void *data, size_t len, bool frame)
{
    uint8_t head[4];

    le_put_u32(head, (uint32_t)len);
    for (size_t i = 0; i < PEER_CALLS; i++)
        if (peer->calls[i].request && peer->calls[i].type == SVC_CHANNEL && peer->calls[i].proc == number) {
            if (frame)
                peer_frame(peer, SVC_DATA, peer->calls[i].request, 1, head, sizeof head);
            for (size_t at = 0; at < len; at += FRAME_PAYLOAD_MAX)
                peer_frame(peer, SVC_DATA, peer->calls[i].request, 1, (const uint8_t *)data + at,
                           len - at < FRAME_PAYLOAD_MAX ? len - at : FRAME_PAYLOAD_MAX);
            return;
        }
}

/* A program's output begins when its START has been answered and those who came with it are attached. */
static inline void peer_start(struct peer *peer, uint32_t request, const uint8_t *data, size_t len)
{
    struct svc_proc_start msg;
    uint8_t wire[32];

    assert_int_equal(svc_proc_start_parse(data, len, &msg), 0);
    assert_null(peer_proc(peer, msg.proc));
    assert_true(peer->n_procs < PEER_PROCS);
    const char *word = (const char *)msg.strings, *arg = msg.n_argv > 1 ? word + strlen(word) + 1 : "";
    if (str_eq(word, "missing")) {
        peer_reply(peer, request, ENOENT, STAGE_EXEC, NULL, 0);
        return;
    }
    if (str_eq(word, "nodir")) {
        peer_reply(peer, request, ENOENT, STAGE_WORKDIR, NULL, 0);
        return;
    }
    struct peer_proc *proc = &peer->procs[peer->n_procs++];
    buf_done(&proc->out[1]);
    buf_done(&proc->out[2]);
    free(proc->env);
    buf_done(&proc->asked);
    *proc = (struct peer_proc){.number = msg.proc,
                               .flags = msg.flags,
                               .running = true,
                               .asked = BUF_INIT(128u << 20),
                               .out = {{0}, BUF_INIT(64u << 20), BUF_INIT(64u << 20)}};
    snprintf(proc->word, sizeof proc->word, "%s", word);
    snprintf(proc->cwd, sizeof proc->cwd, "%.*s", (int)msg.workdir.len, msg.workdir.data);
    struct buf env = BUF_INIT(1u << 20);
    const char *at = word;
    for (uint32_t i = 0; i < msg.n_argv + msg.n_env; i++, at += strlen(at) + 1)
        if (i >= msg.n_argv)
            assert_int_equal(buf_printf(&env, "%s;", at), 0);
    proc->env = buf_take(&env, NULL);
    uint64_t now = clock_mono_ns();
    proc->exit =
        (struct svc_proc_exit){.started_ns = now, .cpu_ns = 3000000, .memory_peak = 4096, .pids_peak = 1, .leaf = 1};
    int n = svc_proc_started_put(wire, sizeof wire, &(struct svc_proc_started){.pid = 100 + msg.proc, .at_ns = now});
    assert_true(n > 0);
    peer_reply(peer, request, 0, 0, wire, (size_t)n);
    uint64_t bytes = 0;
    if (str_eq(word, "true"))
        peer_end(peer, msg.proc, 0);
    else if (str_eq(word, "false"))
        peer_end(peer, msg.proc, 1 << 8);
    else if (str_eq(word, "echo")) {
        assert_int_equal(buf_append(&proc->out[1], arg, strlen(arg)), 0);
        peer_end(peer, msg.proc, 0);
    } else if (str_eq(word, "flood") && parse_u64(arg, &bytes) == 0) {
        assert_int_equal(buf_reserve(&proc->out[1], bytes), 0);
        memset(proc->out[1].data, 'x', bytes);
        buf_commit(&proc->out[1], bytes);
        peer_end(peer, msg.proc, 0);
    } else if (str_eq(word, "oom")) {
        proc->exit.oom_kills = 1;
        peer_end(peer, msg.proc, SIGKILL);
    } else if (str_eq(word, "disk") && parse_u64(arg, &bytes) == 0) { /* ends with this code, the store full */
        proc->exit.store = GUEST_STORE_FULL;
        peer_end(peer, msg.proc, (uint32_t)bytes << 8);
    } else if (str_eq(word, "pids")) {
        proc->exit.pids_refused = 2;
        peer_end(peer, msg.proc, 1 << 8);
    }
}

static inline void peer_signal(struct peer *peer, uint32_t request, const uint8_t *data, size_t len)
{
    struct svc_proc_signal msg;

    assert_int_equal(svc_proc_signal_parse(data, len, &msg), 0);
    struct peer_proc *proc = peer_proc(peer, msg.proc);
    peer->last_signal = msg.signum;
    peer->last_signal_flags = msg.flags;
    peer_reply(peer, request, proc && !proc->ended ? 0 : ESRCH, 0, NULL, 0);
    if (msg.signum == SVC_SHELL_STOP)
        return; /* the shell stays; its line ends with what it started */
    if (!proc || str_eq(proc->word, "deaf") || (str_eq(proc->word, "stubborn") && msg.signum != SIGKILL))
        return;
    if (msg.flags & SVC_SIGNAL_CHILDREN) { /* of a shell: its command goes, it stays */
        for (size_t i = 0; i < PEER_CALLS && !peer->shell_hang; i++)
            if (peer->calls[i].request && peer->calls[i].type == SVC_SHELL_RUN && peer->calls[i].proc == msg.proc) {
                uint8_t wire[300];
                int n = svc_shell_result_put(wire, sizeof wire,
                                             &(struct svc_shell_result){.status = 137, .cwd = {"/tmp", 4}});
                peer_reply(peer, peer->calls[i].request, 0, 0, wire, (size_t)n);
            }
        return;
    }
    peer_end(peer, msg.proc, msg.signum);
}

static inline void peer_shell(struct peer *peer, uint32_t request, uint32_t number, struct svc_bytes command)
{
    struct svc_shell_result result = {.cwd = {"/tmp", 4}};
    uint8_t wire[300];
    char text[256];

    snprintf(text, sizeof text, "%.*s", (int)command.len, command.data);
    peer_frame(peer, SVC_EVENT, request, 0, NULL, 0);
    if (str_eq(text, "hang"))
        return;
    if (str_starts(text, "exit ")) {
        uint32_t status = 0;
        assert_int_equal(parse_u32(text + 5, &status), 0);
        result = (struct svc_shell_result){.status = status << 8, .ended = 1};
    } else {
        peer_frame(peer, SVC_DATA, request, 1, text, strlen(text));
        peer_frame(peer, SVC_DATA, request, 2, "err", 3);
    }
    peer_frame(peer, SVC_EOF, request, 1, NULL, 0);
    peer_frame(peer, SVC_EOF, request, 2, NULL, 0);
    int n = svc_shell_result_put(wire, sizeof wire, &result);
    peer_reply(peer, request, 0, 0, wire, (size_t)n);
    if (result.ended)
        peer_end(peer, number, result.status);
}

static inline void peer_list(struct peer *peer, uint32_t request)
{
    for (unsigned i = 0; i < peer->n_procs; i++) {
        const struct peer_proc *p = &peer->procs[i];
        uint8_t wire[512];
        const struct svc_proc_info info = {.proc = p->number,
                                           .pid = 100 + p->number,
                                           .flags = p->flags,
                                           .running = !p->ended,
                                           .started_ns = p->exit.started_ns,
                                           .output = {0, p->out[1].len, p->out[2].len},
                                           .exit = p->exit,
                                           .command = {p->word, (uint32_t)strlen(p->word)}};
        int n = p->number ? svc_proc_info_put(wire, sizeof wire, &info) : 0;
        if (n > 0)
            peer_frame(peer, SVC_EVENT, request, 0, wire, (size_t)n);
    }
    peer_reply(peer, request, 0, 0, NULL, 0);
}

static inline void peer_open(struct peer *peer, uint16_t type, uint32_t request, const uint8_t *data, size_t len)
{
    struct svc_reader in = {data, data + len, false};
    struct svc_proc_attach attach;
    struct peer_call *call = peer_call(peer, 0);
    uint8_t wire[64];

    assert_non_null(call);
    peer->opens[type]++;
    *call = (struct peer_call){.request = request, .type = type, .credit = {0, SVC_WINDOW, SVC_WINDOW}};
    if (peer->mute)
        return;
    switch (type) {
    case SVC_PROC_START: peer_start(peer, request, data, len); break;
    case SVC_PROC_ATTACH:
        assert_int_equal(svc_proc_attach_parse(data, len, &attach), 0);
        call->proc = attach.proc;
        for (unsigned s = 1; s <= 2; s++) {
            const struct peer_proc *p = peer_proc(peer, attach.proc);
            if (peer->forgets && p && attach.offset[s] < p->out[s].len)
                attach.offset[s] = p->out[s].len;
            call->sent[s] = attach.streams & 1u << s ? attach.offset[s] : p ? UINT64_MAX / 2 : 0;
        }
        int n = svc_attached_put(wire, sizeof wire,
                                 &(struct svc_attached){.first = {0, attach.offset[1], attach.offset[2]}});
        peer_frame(peer, SVC_EVENT, request, 0, wire, (size_t)n);
        peer_pump(peer, call);
        break;
    case SVC_PROC_INPUT:
    case SVC_PROC_WAIT:
        call->proc = svc_get_u32(&in);
        if (!peer_proc(peer, call->proc))
            peer_reply(peer, request, ESRCH, 0, NULL, 0);
        else
            peer_pump_all(peer, call->proc);
        break;
    case SVC_CHANNEL: {
        struct peer_proc *p = peer_proc(peer, call->proc = svc_get_u32(&in));
        if (!p)
            peer_reply(peer, request, ESRCH, 0, NULL, 0);
        else if (!p->spoke && !str_eq(p->word, "sullen"))
            peer_say(peer, p->number, "{\"ready\":1}", 11, true);
        if (p)
            p->spoke = true;
        break;
    }
    case SVC_PROC_SIGNAL: peer_signal(peer, request, data, len); break;
    case SVC_PROC_RESIZE:
        svc_get_u32(&in);
        peer->rows = svc_get_u16(&in);
        peer->cols = svc_get_u16(&in);
        peer_reply(peer, request, 0, 0, NULL, 0);
        break;
    case SVC_PROC_LIST: peer_list(peer, request); break;
    case SVC_PROC_FORGET: {
        struct peer_proc *p = peer_proc(peer, svc_get_u32(&in));
        peer_reply(peer, request, p ? (p->ended ? 0 : EBUSY) : ESRCH, 0, NULL, 0);
        if (p && p->ended) {
            buf_done(&p->out[1]);
            buf_done(&p->out[2]);
            buf_done(&p->asked);
            free(p->env);
            *p = peer->procs[--peer->n_procs];
            peer->procs[peer->n_procs] = (struct peer_proc){0};
        }
        break;
    }
    case SVC_SHELL_RUN:
        call->proc = svc_get_u32(&in);
        peer_shell(peer, request, call->proc, svc_get_bytes(&in));
        break;
    case SVC_FILE_MKDIR: {
        struct svc_path path = svc_get_path(&in);
        snprintf(peer->mkdir_path, sizeof peer->mkdir_path, "%.*s", (int)path.path.len, path.path.data);
        peer_reply(peer, request, peer->mkdir_errnum, 0, NULL, 0);
        break;
    }
    default: peer_reply(peer, request, ENOSYS, 0, NULL, 0);
    }
}

static inline void peer_take(struct peer *peer, const struct frame *frame)
{
    struct peer_call *call = peer_call(peer, frame->request);
    uint8_t wire[32];

    switch (frame->type) {
    case SVC_HELLO: {
        int n = svc_hello_put(wire, sizeof wire, &(struct svc_hello){.version = SVC_VERSION, .boot = 7});
        peer_frame(peer, SVC_HELLO, 0, 0, wire, (size_t)n);
        break;
    }
    case SVC_CREDIT:
        peer->credits++;
        if (frame->request && call) {
            call->credit[frame->stream] += le_get_u32(frame->payload);
            peer_pump(peer, call);
        }
        break;
    case SVC_CANCEL:
        peer->cancels++;
        if (frame->request && call)
            peer_reply(peer, frame->request, ECANCELED, 0, NULL, 0);
        break;
    case SVC_DATA:
        if (frame->request && call && call->type == SVC_CHANNEL && peer_proc(peer, call->proc)) {
            assert_int_equal(buf_append(&peer_proc(peer, call->proc)->asked, frame->payload, frame->length), 0);
            le_put_u32(wire, frame->length);
            peer_frame(peer, SVC_CREDIT, frame->request, 0, wire, 4);
        }
        if (frame->request && call && call->type == SVC_PROC_INPUT && peer_proc(peer, call->proc)) {
            le_put_u32(wire, frame->length);
            if (!peer->mute)
                peer_frame(peer, SVC_CREDIT, frame->request, 0, wire, 4);
            peer_write(peer, call->proc, 1, frame->payload, frame->length);
        }
        break;
    case SVC_EOF:
        if (frame->request && call && call->type == SVC_PROC_INPUT) {
            uint32_t number = call->proc;
            peer_reply(peer, frame->request, 0, 0, NULL, 0);
            peer_end(peer, number, 0);
        }
        break;
    default:
        assert_int_equal(buf_append(&peer->open, frame->payload, frame->length), 0);
        if (!(frame->flags & FRAME_MORE)) {
            struct buf open = peer->open;
            peer->open = BUF_INIT(4u << 20);
            peer_open(peer, frame->type, frame->request, (const uint8_t *)(open.data ? open.data : ""), open.len);
            buf_done(&open);
        }
    }
}

static inline void peer_close(struct peer *peer)
{
    loop_remove(peer->loop, &peer->source);
    base_close_fd(&peer->fd);
}

static inline void peer_ready(struct loop_source *source, uint32_t events)
{
    struct peer *peer = source->ctx;

    if (events & EPOLLOUT)
        peer_flush(peer);
    assert_int_equal(buf_reserve(&peer->in, 1u << 20), 0);
    ssize_t n = recv(peer->fd, peer->in.data + peer->in.len, 1u << 20, MSG_DONTWAIT);
    if (n == 0) {
        peer_close(peer);
        return;
    }
    if (n > 0)
        buf_commit(&peer->in, (size_t)n);
    size_t at = 0;
    for (;;) {
        struct frame frame;
        int used = svc_frame_parse((const uint8_t *)peer->in.data + at, peer->in.len - at, &frame);
        assert_true(used >= 0);
        if (used == 0)
            break;
        peer_take(peer, &frame);
        at += (size_t)used;
    }
    buf_consume(&peer->in, at);
}

/* Takes fd. */
static inline void peer_init(struct peer *peer, struct loop *loop, int fd)
{
    peer->loop = loop;
    peer->fd = fd;
    peer->in = BUF_INIT(8u << 20);
    peer->open = BUF_INIT(4u << 20);
    peer->send = BUF_INIT(256u << 20);
    memset(peer->calls, 0, sizeof peer->calls);
    peer->source = (struct loop_source){.fd = -1, .fn = peer_ready, .ctx = peer};
    assert_int_equal(loop_add(loop, &peer->source, fd, EPOLLIN, NULL), 0);
}

static inline void peer_done(struct peer *peer)
{
    peer_close(peer);
    buf_done(&peer->in);
    buf_done(&peer->open);
    buf_done(&peer->send);
    for (unsigned i = 0; i < peer->n_procs; i++) {
        buf_done(&peer->procs[i].out[1]);
        buf_done(&peer->procs[i].out[2]);
        buf_done(&peer->procs[i].asked);
        free(peer->procs[i].env);
    }
    peer->n_procs = 0;
}

#endif
