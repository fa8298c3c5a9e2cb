/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_service.c: the loop of a brig-init that serves. brigd's requests come on a stream (codec/wire/guest_svc.h); the
 * spawner's control socket stays what it was, and hands over a new stream when the old one is lost (ATTACH).
 *
 * Theory of operation. One loop over epoll: the control socket, a signalfd for children, the stream, and the ends of
 * every process's pipes. A round handles what is ready, then conn_end_round() sends what that has made ready and closes
 * a stream that broke. Any handler may close a source; events that epoll has still reported for it are dropped.
 *
 * Invariants: nothing blocks but the wait for events and the short frames on the control socket. Processes outlive
 * connections; pid 1 outlives everything but the control socket. With nothing to do it waits without a timeout, and has
 * given back every buffer it used but a page of each.
 */
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define EVENTS_MAX 32
#define REAP_BATCH 64
#define REST_MS 100 /* without anything to do, before memory is given back */

static struct guest_start base;
static struct guest_user named_user; /* with has_user: whose processes and file calls are, unless they say otherwise */
static bool has_user;
static uint64_t bounding_set;
static int epoll_fd;
static struct source control, signals;
static struct epoll_event events[EVENTS_MAX];
static int n_events, at_event;
static bool reap_more;

/* ---- sources ---------------------------------------------------------------------------------------- */

int source_add(struct source *source, int fd, uint32_t wanted)
{
    struct epoll_event event = {.events = wanted, .data.ptr = source};
    long ret = raw_call4(SYS_epoll_ctl, epoll_fd, EPOLL_CTL_ADD, fd, &event);

    if (ret == 0) {
        source->fd = fd;
        source->armed = wanted;
    }
    return (int)ret;
}

void source_arm(struct source *source, uint32_t wanted)
{
    struct epoll_event event = {.events = wanted, .data.ptr = source};

    if (source->fd < 0 || (source->armed == wanted && !(wanted & EPOLLONESHOT)))
        return;
    source->armed = wanted;
    raw_call4(SYS_epoll_ctl, epoll_fd, EPOLL_CTL_MOD, source->fd, &event);
}

int source_take(struct source *source)
{
    int fd = source->fd;

    /* A child may still hold a copy, so closing alone would not do. */
    raw_call4(SYS_epoll_ctl, epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    source->fd = -1;
    for (int i = at_event; i < n_events; i++)
        if (events[i].data.ptr == source)
            events[i].data.ptr = NULL;
    return fd;
}

void source_close(struct source *source)
{
    if (source->fd >= 0)
        raw_call1(SYS_close, source_take(source));
}

/* ---- children --------------------------------------------------------------------------------------- */

bool service_has_leaves(void)
{
    return (base.flags & GUEST_START_LEAVES) != 0;
}

static bool has_root(void)
{
    return (base.flags & GUEST_START_ROOT) != 0;
}

bool service_may_sudo(uint32_t uid)
{
    return uid == INSIDE_ROOT || (has_user && uid == named_user.uid);
}

void service_program(struct program *program, struct guest_start *start)
{
    *start = base;
    *program = (struct program){.kind = PROGRAM_SERVICE,
                                .start = start,
                                .user = has_user ? &named_user : NULL,
                                .bounding = bounding_set,
                                .report_fd = -1};
    program->shell_fds[0] = program->shell_fds[1] = program->channel_fd = program->sudo_fd = -1;
}

void service_user(uint32_t request, const uint8_t *payload, size_t len)
{
    struct svc_reader in = {payload, payload + len, false};
    struct svc_bytes text = svc_get_bytes(&in);
    struct guest_user found;
    long ret = svc_done(&in) != 0 ? -EINVAL : worker_pid() != 0 || proc_next(NULL) ? -EBUSY : 0;

    if (ret == 0)
        ret = who_find(text.data, text.len, has_root(), &found);
    if (ret == 0) {
        named_user = found;
        has_user = true;
    }
    send_reply(request, (int)-ret, 0, NULL, 0);
}

/* At most a batch: a storm of orphans must not keep frames waiting. Stopped children are not reported. */
static void reap(void)
{
    reap_more = false;
    for (int i = 0; i < REAP_BATCH; i++) {
        int status = 0;
        struct rusage usage;
        long pid = raw_call4(SYS_wait4, -1, &status, WNOHANG, &usage);

        if (pid <= 0)
            return;
        if (!worker_reaped((pid_t)pid))
            proc_reaped((pid_t)pid, status, &usage);
        sudo_retry();
    }
    reap_more = true;
}

static void on_signal(struct source *source, uint32_t ready)
{
    struct signalfd_siginfo info;

    (void)ready;
    /* Drained before reaping: a child that dies in between makes it readable again. */
    raw_call3(SYS_read, source->fd, &info, sizeof(info));
    reap_more = true;
}

/* ---- the control socket ------------------------------------------------------------------------------ */

static void take_stream(void)
{
    int fds[GUEST_STDIO_MAX];

    if (control_take_fds(fds) != 1)
        guest_exit(GUEST_EXIT_MALFORMED);
    conn_open(fds[0], false);
}

static void obey(const struct frame *frame)
{
    struct guest_leaf_ready ready;
    struct guest_leaf_gone gone;
    bool ok = false;

    switch (frame->type) {
    case FRAME_ATTACH:
        ok = frame->length == 0;
        if (ok)
            take_stream();
        break;
    case FRAME_LEAF_READY:
        ok = guest_leaf_ready_parse(frame->payload, frame->length, &ready) == 0;
        if (ok)
            proc_leaf_ready(&ready);
        break;
    case FRAME_LEAF_GONE:
        ok = guest_leaf_gone_parse(frame->payload, frame->length, &gone) == 0;
        if (ok)
            proc_leaf_gone(&gone);
        break;
    case FRAME_SIGNAL: /* there is no main process */ ok = true; break;
    default: break;
    }
    if (!ok)
        guest_exit(GUEST_EXIT_MALFORMED);
}

static void take_control(void)
{
    struct frame frame;
    int got;

    while ((got = control_next(&frame)) > 0)
        obey(&frame);
    if (got < 0)
        guest_exit(GUEST_EXIT_MALFORMED);
}

static void on_control(struct source *source, uint32_t ready)
{
    int ret = control_receive();

    (void)source;
    (void)ready;
    if (ret != 0)
        guest_exit(ret == -EPROTO ? GUEST_EXIT_MALFORMED : GUEST_EXIT_GONE);
    take_control();
}

/* ---- the loop ---------------------------------------------------------------------------------------- */

static long wait_for_events(int timeout)
{
    long n = raw_call4(SYS_epoll_wait, epoll_fd, events, EVENTS_MAX, timeout);

    if (n < 0 && n != -EINTR)
        guest_exit(GUEST_EXIT_BROKEN);
    return n < 0 ? 0 : n;
}

/* -1 is never. */
static int sooner(int a, int b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* Waits; after a rest it gives memory back, and then waits for ever. */
static void wait_for_work(void)
{
    static bool worked;
    int timeout = sooner(worked ? REST_MS : worker_timeout_ms(), units_timeout_ms());

    n_events = (int)wait_for_events(reap_more ? 0 : timeout);
    if (n_events > 0 || reap_more) {
        worked = true;
    } else if (worked) {
        conn_trim();
        send_trim();
        worker_trim();
        worked = false;
    }
}

void service_begin(int signal_fd)
{
    long fd = raw_call1(SYS_epoll_create1, EPOLL_CLOEXEC);

    if (raw_failed(fd))
        guest_exit(GUEST_EXIT_BROKEN);
    epoll_fd = (int)fd;
    signals.ready = on_signal;
    if (source_add(&signals, signal_fd, EPOLLIN) != 0)
        guest_exit(GUEST_EXIT_BROKEN);
}

void service_base(const struct guest_start *start, uint64_t bounding)
{
    base = *start;
    base.workdir = base.strings = NULL;
    bounding_set = bounding;
}

__attribute__((noreturn)) void service_main(const struct guest_start *start, uint64_t bounding, int signal_fd)
{
    service_base(start, bounding);
    service_begin(signal_fd);
    control.ready = on_control;
    if (source_add(&control, INIT_FD_CONTROL, EPOLLIN) != 0)
        guest_exit(GUEST_EXIT_BROKEN);
    if (base.flags & GUEST_START_ADOPT && channel_adopt() != 0)
        guest_exit(GUEST_EXIT_BROKEN);
    if (base.flags & GUEST_START_SUDO)
        sudo_listen();
    conn_open(SERVICE_FD_STREAM, false);
    take_control(); /* what came with START */
    service_loop();
}

__attribute__((noreturn)) void service_loop(void)
{
    for (;;) {
        conn_end_round();
        wait_for_work();
        for (at_event = 0; at_event < n_events; at_event++) {
            struct source *source = events[at_event].data.ptr;

            if (source)
                source->ready(source, events[at_event].events);
        }
        if (reap_more)
            reap();
        worker_check();
        units_check();
    }
}
