/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker.c: pid 1's side of the file worker (files.h), which speaks the same frames on a socket of its own.
 *
 * The worker is a fork of pid 1 that has become the user, so what it may do to files is what the user may. It is made
 * with the first file call, and ended when it has had nothing to do for a while. Frames are passed on as they came: to
 * the worker straight from the buffer they were received in, those side by side in one write, from it straight out of
 * the one they arrived in; only what a socket does not take at once is copied. Where one side is full, the other is not
 * read.
 *
 * The user's programs can stop or kill it. If it is killed, or takes nothing for STUCK_MS, its calls are answered with
 * EIO and the next call makes a new one. It runs our code, but beside hostile files: pid 1 checks that each frame
 * belongs to one of its calls before it passes the frame on, because otherwise pid 1 would break the protocol.
 */
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "guest/files/files.h"
#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define BUFFER_SIZE (256u * 1024)
#define FRAME_MAX (FRAME_HEADER + FRAME_PAYLOAD_MAX)
#define STUCK_MS 10000u
#define IDLE_MS 5000u
#define MS 1000000u
#define WORKER_FD 3

static struct source sock = {.fd = -1};
static pid_t pid;
static unsigned n_open;
static uint32_t refused;   /* the request of an open that was answered before all of its pieces had come */
static uint64_t moved_ns;  /* when it last took or got something */
static uint8_t *to, *from; /* to: waits for the worker. from: [begin, whole) are frames for brigd, then a part of one */
static size_t to_begin, to_end, from_begin, from_whole, from_end;
static const uint8_t *held; /* frames that lie side by side where they came in, for one write */
static size_t held_len;

static void on_ready(struct source *source, uint32_t events);

static void worker_receive(void);

static void watch(void)
{
    uint32_t events = (from_end < BUFFER_SIZE ? EPOLLIN : 0) | (to_begin < to_end ? EPOLLOUT : 0);

    source_arm(&sock, events);
    conn_pause(BUFFER_SIZE - to_end - held_len < FRAME_MAX);
}

/* ---- its life --------------------------------------------------------------------------------------- */

__attribute__((noreturn)) static void be_the_worker(int fd)
{
    struct guest_start start;
    struct program program;

    service_program(&program, &start);
    raw_call5(SYS_prctl, PR_SET_NAME, "brig-files", 0, 0, 0);
    if (program_become_user(&program) != 0 || raw_failed(raw_call3(SYS_dup3, fd, WORKER_FD, O_CLOEXEC)) ||
        raw_close_from(WORKER_FD + 1, 0) != 0)
        guest_exit(GUEST_EXIT_BROKEN);
    raw_call1(SYS_umask, 022);
    raw_call1(SYS_chdir, "/");
    files_worker(WORKER_FD);
}

static long start_worker(void)
{
    int pair[2] = {-1, -1};
    long ret;

    if ((!to && !(to = pages_map(BUFFER_SIZE))) || (!from && !(from = pages_map(BUFFER_SIZE))))
        return -ENOMEM;
    ret = raw_call4(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
    if (ret != 0)
        return ret;
    ret = raw_call5(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (ret == 0)
        be_the_worker(pair[1]); /* never WORKER_FD itself: that is the control socket's number */
    raw_call1(SYS_close, pair[1]);
    if (ret > 0) {
        pid = (pid_t)ret;
        sock.ready = on_ready;
        ret = source_add(&sock, pair[0], EPOLLIN);
    }
    if (ret != 0)
        raw_call1(SYS_close, pair[0]);
    moved_ns = guest_now_ns();
    return ret;
}

/* Lets go of it: it sees the end of its socket, undoes what is half done, and exits. */
static void let_go(void)
{
    source_close(&sock);
    pid = 0;
    to_begin = to_end = from_begin = from_whole = from_end = held_len = 0;
    conn_pause(false);
}

/* It has gone, or was found wanting. What it said in whole is passed on; its calls have failed. */
static void lost(void)
{
    if (sock.fd < 0)
        return;
    if (from_whole > from_begin)
        send_raw(from + from_begin, from_whole - from_begin);
    let_go();
    calls_end_files(EIO);
}

bool worker_reaped(pid_t who)
{
    if (pid == 0 || who != pid)
        return false;
    /* What it had said is still in its socket. */
    worker_receive();
    lost();
    return true;
}

pid_t worker_pid(void)
{
    return pid;
}

void worker_close(void)
{
    bool busy = n_open > 0 || to_begin < to_end || from_begin < from_end;

    refused = 0;
    if (busy)
        let_go();
}

void worker_call_freed(void)
{
    n_open--;
    if (n_open == 0)
        moved_ns = guest_now_ns();
}

/* ---- to it ------------------------------------------------------------------------------------------ */

/* As much as the socket takes of these: how many bytes, or a negative errno. */
static long give(const uint8_t *data, size_t len)
{
    long sent = raw_call6(SYS_sendto, sock.fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);

    if (sent == -EAGAIN || sent == -EINTR)
        return 0;
    if (sent > 0)
        moved_ns = guest_now_ns();
    return sent;
}

void worker_flush(void)
{
    const uint8_t *data = held;
    size_t len = held_len;

    held_len = 0;
    if (len == 0 || sock.fd < 0)
        return;
    if (to_begin == to_end) {
        long took = give(data, len);

        if (took < 0) { /* its death will tell */
            lost();
            return;
        }
        data += took;
        len -= (size_t)took;
    }
    if (len > 0) { /* there is room: nothing is read while there might not be */
        if (to_begin == to_end)
            moved_ns = guest_now_ns();
        __builtin_memcpy(to + to_end, data, len);
        to_end += len;
    }
    watch();
}

/* Header and payload lie side by side in the buffer they came in, as does the next frame. */
static void forward(const struct frame *frame)
{
    const uint8_t *data = frame->payload - FRAME_HEADER;
    size_t len = FRAME_HEADER + frame->length;

    if (held_len > 0 && (data != held + held_len || len > BUFFER_SIZE - to_end - held_len))
        worker_flush();
    if (sock.fd < 0)
        return;
    if (held_len == 0)
        held = data;
    held_len += len;
    conn_pause(BUFFER_SIZE - to_end - held_len < FRAME_MAX);
}

static void drain(void)
{
    long took = give(to + to_begin, to_end - to_begin);

    if (took < 0) {
        lost();
        return;
    }
    to_begin += (size_t)took;
    if (to_begin == to_end || BUFFER_SIZE - to_end < FRAME_MAX) {
        __builtin_memmove(to, to + to_begin, to_end - to_begin);
        to_end -= to_begin;
        to_begin = 0;
    }
}

void worker_open_call(struct call *call, const struct frame *frame)
{
    bool more = (frame->flags & FRAME_MORE) != 0;
    long ret = 0;

    if (frame->request == refused) {
        refused = more ? refused : 0;
        return;
    }
    if (!call) {
        if (!(call = call_new(frame->request, frame->type, NULL))) {
            refused = more ? frame->request : 0;
            return;
        }
        n_open++;
    }
    call->opening = more;
    if (sock.fd < 0)
        ret = start_worker();
    if (ret != 0) {
        refused = more ? frame->request : 0;
        call_reply(call, (int)-ret, 0, NULL, 0);
        return;
    }
    forward(frame);
}

void worker_frame(const struct frame *frame)
{
    if (sock.fd >= 0)
        forward(frame);
}

/* ---- from it ---------------------------------------------------------------------------------------- */

/* Whether the frame is one that it may send; a REPLY ends its call. */
static bool check_frame(const struct frame *frame)
{
    struct call *call = call_find(frame->request);
    struct svc_reply reply;

    if (!call || call->type < SVC_FILE_MIN)
        return false;
    switch (frame->type) {
    case SVC_DATA: return frame->stream != 0 && frame->length > 0;
    case SVC_EOF: return frame->stream != 0 && frame->length == 0;
    case SVC_CREDIT: return frame->stream == 0 && frame->length == 4;
    case SVC_EVENT: return true;
    case SVC_REPLY:
        if (svc_reply_parse(frame->payload, frame->length, &reply) != 0)
            return false;
        call_free(call);
        return true;
    default: return false;
    }
}

/* Takes what there is, and checks what is whole. */
static void worker_receive(void)
{
    struct frame frame;
    int used;

    if (sock.fd < 0)
        return;
    if (from_begin == from_whole && from_begin > 0) {
        __builtin_memmove(from, from + from_begin, from_end - from_begin);
        from_end -= from_begin;
        from_begin = from_whole = 0;
    }
    if (from_end < BUFFER_SIZE) {
        long got = raw_call6(SYS_recvfrom, sock.fd, from + from_end, BUFFER_SIZE - from_end, MSG_DONTWAIT, NULL, NULL);

        if (got == -EAGAIN || got == -EINTR)
            return;
        if (got <= 0) {
            lost();
            return;
        }
        from_end += (size_t)got;
        moved_ns = guest_now_ns();
    }
    while ((used = svc_frame_parse(from + from_whole, from_end - from_whole, &frame)) > 0 && check_frame(&frame))
        from_whole += (size_t)used;
    if (used != 0) { /* not of its calls, or no frame at all */
        raw_call2(SYS_kill, pid, SIGKILL);
        lost();
        return;
    }
    watch();
}

static void on_ready(struct source *source, uint32_t events)
{
    (void)source;
    if (events & EPOLLOUT)
        drain();
    if (sock.fd >= 0 && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        worker_receive();
    if (sock.fd >= 0)
        watch();
}

size_t worker_peek(uint8_t **ret)
{
    *ret = from + from_begin;
    return from_whole - from_begin;
}

void worker_sent(size_t len)
{
    from_begin += len;
    if (from_begin == from_whole && sock.fd >= 0)
        worker_receive();
}

/* ---- time ------------------------------------------------------------------------------------------- */

int worker_timeout_ms(void)
{
    if (sock.fd < 0)
        return -1;
    return to_begin < to_end ? (int)STUCK_MS / 10 : n_open == 0 ? (int)IDLE_MS : -1;
}

void worker_check(void)
{
    uint64_t now;

    if (sock.fd < 0 || (to_begin == to_end && n_open > 0))
        return;
    now = guest_now_ns();
    if (to_begin < to_end && now - moved_ns > (uint64_t)STUCK_MS * MS) {
        raw_call2(SYS_kill, pid, SIGKILL);
        lost();
    } else if (n_open == 0 && from_begin == from_end && now - moved_ns > (uint64_t)IDLE_MS * MS) {
        let_go();
    }
}

void worker_trim(void)
{
    if (to_begin == to_end)
        pages_trim(to, BUFFER_SIZE);
    if (from_begin == from_end)
        pages_trim(from, BUFFER_SIZE);
}
