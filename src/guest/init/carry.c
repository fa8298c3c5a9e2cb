/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carry.c: a brig-init that an engine, a runtime or the first stage of a virtual machine has started. docs/PROTOCOL.md,
 * "Carried", has the bytes; carry_words.c has the command line.
 *
 * Theory of operation. There is no spawner: brig-init holds both ends of the control socket itself, so that the parts
 * that speak on it do not change. The loop is that of a service from the first moment on. One connection at a time is
 * *opening*; when its ATTACH has come, or the START that makes the service, it becomes the connection of guest_conn.c.
 *
 *     wait --accepted, or bytes--> opening --START or ATTACH--> the service's stream --closed--> wait
 *                                     \--no opening, or refused: closed--> wait
 *
 * A listener accepts at any time: a new connection replaces one that is opening, and its ATTACH the one that is served.
 * A stream is the only one: when it ends, so does brig-init. A device is opened once. Reads give 0 while the host's
 * side is closed; that is the boundary between two connections. What follows a broken frame is thrown away up to that
 * boundary. A boundary that was too short to be seen is noticed when it fell between two frames (carry_stray), else the
 * host's side waits for an answer with its nonce in vain, and tries again.
 *
 * Invariants: nothing blocks, and nobody who connects can make it hold more than one opening. START comes once. The
 * layers are put on after START and before anything of the user's runs (jail/confine.h).
 */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "codec/wire/guest_carry.h"
#include "guest/init/guest_service.h"
#include "jail/confine.h"
#include "jail/rawcall.h"

#define CONTROL_OTHER (INIT_FD_CONTROL + 1) /* Our own end of the control socket. */

static bool carried, running, plain;
static enum carrier kind;
static int carrier_fd;
static int spare_fd = -1; /* With it a connection can be accepted when there is no descriptor left. */
static struct source listener = {.fd = -1}, opening = {.fd = -1};
static uint8_t buffer[CARRY_OPENING_MAX];
static size_t length;
static bool greeted;
static bool draining; /* A device: everything up to the next boundary is thrown away. */
static uint8_t started[FRAME_HEADER + GUEST_STARTED_SIZE];
static size_t started_len;

__attribute__((noreturn)) static void end(int status)
{
    /* Without a pid namespace of ours nobody else would kill what we started. */
    if (raw_call0(SYS_getpid) != 1)
        walk_strays(NULL, 0);
    guest_exit(status);
}

/* ---- bytes ------------------------------------------------------------------------------------------ */

static long receive(void)
{
    uint8_t *at = buffer + length;
    size_t room = sizeof(buffer) - length;

    return plain ? raw_call3(SYS_read, opening.fd, at, room)
                 : raw_call6(SYS_recvfrom, opening.fd, at, room, MSG_DONTWAIT, NULL, NULL);
}

/* An opening has a few hundred bytes for the other side: whoever has no room for them does not read. */
static bool say(const uint8_t *data, size_t len)
{
    long sent = plain ? raw_call3(SYS_write, opening.fd, data, len)
                      : raw_call6(SYS_sendto, opening.fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);

    return sent == (long)len;
}

static bool say_exited(const struct guest_exited *exited)
{
    const struct frame frame = {.type = FRAME_EXITED, .length = GUEST_EXITED_SIZE};
    uint8_t wire[FRAME_HEADER + GUEST_EXITED_SIZE];

    frame_put_header(wire, &frame);
    return guest_exited_put(wire + FRAME_HEADER, GUEST_EXITED_SIZE, exited) > 0 && say(wire, sizeof(wire));
}

static bool say_hello(uint64_t nonce)
{
    const struct carry_hello hello = {FRAME_VERSION,
                                      GUEST_CAP_SERVICE | GUEST_CAP_CARRIED | (running ? GUEST_CAP_RUNNING : 0), nonce};
    uint8_t wire[CARRY_HELLO_FRAME];
    int len = carry_hello_put(wire, sizeof(wire), &hello);

    return len > 0 && say(wire, (size_t)len);
}

/* ---- START ------------------------------------------------------------------------------------------ */

/* The probe said STARTED on the control socket. It is kept for every later ATTACH. */
static void take_started(void)
{
    long got = raw_call6(SYS_recvfrom, CONTROL_OTHER, started, sizeof(started), MSG_DONTWAIT, NULL, NULL);

    started_len = got > 0 ? (size_t)got : 0;
}

/* Returns only when the service is up. */
static void make_service(struct guest_start *start)
{
    static struct program program;
    int status = 0;
    long ret;

    program = (struct program){
        .kind = PROGRAM_PROBE, .start = start, .stage = STAGE_FORK, .landlock_probe_fd = jail_confine(start)};
    program.bounding = guest_bounding();
    const long pid = ret = program_start(&program);
    while (pid > 0 && (ret = raw_call4(SYS_wait4, pid, &status, 0, NULL)) == -EINTR)
        ;
    take_started();
    if (ret < 0)
        program.errnum = (int)-ret;
    if (ret > 0 && status == 0 && program.errnum == 0 && started_len > 0) {
        service_base(start, program.bounding);
        running = true;
        return;
    }
    const struct guest_exited exited = {.at_ns = guest_now_ns(),
                                        .status = (uint32_t)status,
                                        .failed = 1 + (uint32_t)program.stage,
                                        .errnum = (uint32_t)program.errnum};
    if (say(started, started_len))
        (void)!say_exited(&exited);
    end(GUEST_EXIT_DONE);
}

/* ---- the opening ------------------------------------------------------------------------------------ */

static void forget_opening(void)
{
    length = 0;
    greeted = false;
}

/* It is no opening, or was refused. Returns whether there is more to read. */
static bool drop(void)
{
    forget_opening();
    if (kind == CARRIER_STREAM)
        end(GUEST_EXIT_MALFORMED);
    if (kind == CARRIER_DEVICE) {
        draining = true;
        return true;
    }
    source_close(&opening);
    return false;
}

/* The other side has closed it. */
static void lost(void)
{
    forget_opening();
    draining = false;
    if (kind == CARRIER_STREAM)
        end(GUEST_EXIT_GONE);
    if (kind == CARRIER_LISTENER)
        source_close(&opening);
}

static bool refuse(int errnum)
{
    const struct guest_exited exited = {.at_ns = guest_now_ns(), .failed = 1 + STAGE_FORK, .errnum = (uint32_t)errnum};

    (void)!say_exited(&exited);
    return drop();
}

/* What follows the opening is the service's. */
static void hand_over(size_t used)
{
    conn_open(source_take(&opening), plain);
    conn_feed(buffer + used, length - used);
    forget_opening();
}

/* Takes what is whole. Returns whether there is more to read. */
static bool take_opening(void)
{
    struct carry_hello hello;
    struct carry_order order;
    int used;

    if (!greeted) {
        used = carry_hello_take(buffer, length, &hello);
        if (used == 0)
            return true;
        if (used < 0 || !say_hello(hello.nonce))
            return drop();
        greeted = true;
        length -= (size_t)used;
        __builtin_memmove(buffer, buffer + used, length);
    }
    used = carry_order_take(buffer, length, &order);
    if (used == 0)
        return true;
    if (used < 0)
        return drop();
    if (order.attach != running)
        return refuse(running ? EALREADY : ENOTCONN);
    if (!order.attach && carry_start_refusal(&order.start) != 0)
        return refuse(carry_start_refusal(&order.start));
    if (!order.attach)
        make_service(&order.start);
    if (!say(started, started_len))
        return drop();
    hand_over((size_t)used);
    return false;
}

static void on_opening(struct source *source, uint32_t events)
{
    long got;

    (void)source;
    (void)events;
    /* A device is watched for changes only, because a closed one is always ready: so everything is read. */
    do {
        got = receive();
        if (got == -EAGAIN || got == -EINTR)
            return;
        if (got <= 0) {
            lost();
            return;
        }
        length = draining ? 0 : length + (size_t)got;
    } while ((draining || take_opening()) && plain);
}

static void watch_device(void)
{
    long fd = raw_call3(SYS_fcntl, carrier_fd, F_DUPFD_CLOEXEC, 0);

    opening.ready = on_opening;
    if (raw_failed(fd) || source_add(&opening, (int)fd, EPOLLIN | EPOLLET) != 0)
        guest_exit(GUEST_EXIT_BROKEN);
}

void carry_stray(const uint8_t *data, size_t len)
{
    struct carry_hello hello;

    if (kind != CARRIER_DEVICE || !carried || len > sizeof(buffer) || carry_hello_take(data, len, &hello) < 0)
        return;
    __builtin_memcpy(buffer, data, len);
    length = len;
}

void carry_conn_closed(bool at_boundary)
{
    if (!carried || kind == CARRIER_LISTENER)
        return;
    if (kind == CARRIER_STREAM)
        end(at_boundary ? GUEST_EXIT_GONE : GUEST_EXIT_MALFORMED);
    draining = !at_boundary && length == 0;
    watch_device();
    if (length > 0)
        (void)take_opening();
}

/* ---- the listener ----------------------------------------------------------------------------------- */

static void keep_spare(void)
{
    if (spare_fd < 0)
        spare_fd = (int)raw_call3(SYS_fcntl, carrier_fd, F_DUPFD_CLOEXEC, 0);
}

/* Programs have other ids than we have; whoever is outside of our pid namespace has no number here. */
static bool peer_is_fine(int fd)
{
    struct ucred peer = {0};
    uint32_t size = sizeof(peer);

    return raw_call5(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.pid == 0 || peer.uid == (uint32_t)raw_call0(SYS_geteuid));
}

static long accept_one(void)
{
    return raw_call4(SYS_accept4, listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

static void on_listener(struct source *source, uint32_t events)
{
    long fd = accept_one();

    (void)source;
    (void)events;
    if ((fd == -EMFILE || fd == -ENFILE) && spare_fd >= 0) {
        raw_call1(SYS_close, spare_fd);
        spare_fd = -1;
        fd = accept_one();
    }
    if (raw_failed(fd))
        return;
    if (!peer_is_fine((int)fd)) {
        raw_call1(SYS_close, fd);
        keep_spare();
        return;
    }
    source_close(&opening);
    forget_opening();
    keep_spare();
    opening.ready = on_opening;
    if (source_add(&opening, (int)fd, EPOLLIN) != 0)
        raw_call1(SYS_close, fd);
}

/* ----------------------------------------------------------------------------------------------------- */

static long begin(void)
{
    switch (kind) {
    case CARRIER_LISTENER:
        keep_spare();
        listener.ready = on_listener;
        return source_add(&listener, carrier_fd, EPOLLIN);
    case CARRIER_STREAM: opening.ready = on_opening; return source_add(&opening, carrier_fd, EPOLLIN);
    default: watch_device(); return 0;
    }
}

__attribute__((noreturn)) void carry_serve(enum carrier what, int fd, bool is_plain)
{
    kind = what;
    carrier_fd = fd;
    plain = is_plain;
    carried = true;
    service_begin(guest_signals());
    if (begin() != 0)
        guest_exit(GUEST_EXIT_BROKEN);
    service_loop();
}
