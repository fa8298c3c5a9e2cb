/* SPDX-License-Identifier: Apache-2.0 */
/*
 * egress_child.c: the supervisor's third child, brig-egress. It is started with an id of its own and an empty
 * environment. It gets the host's files (again when they change), and one end of a control socket whose other end brigd
 * has; there is a new pair whenever either of the two is new.
 *
 * Without it the service still serves: sandboxes without a network do not need it, and brigd refuses the others by
 * name. So nothing here is fatal: a failure is reported once, and tried again ever more slowly. The spawner holds the
 * sockets into sandboxes too, so a brig-egress that died is replaced with the same listeners.
 */
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "supervisor/supervisor.h"

#define LOOK_NS (5 * NS_PER_SEC)  /* between two looks at the host's files, and two pings */
#define SILENT_MAX 6u             /* pings without an answer; then it hangs */
#define CONTROL_BUFFER (4u << 20) /* events wait here while brigd is busy */

static void gate_later(struct sup_gate *gate);

static void forget_egress(struct sup_gate *gate)
{
    loop_remove(gate->loop, &gate->on_end);
    loop_remove(gate->loop, &gate->on_socket);
    loop_timer_clear(gate->loop, &gate->on_look);
}

/* ---- what it is given ------------------------------------------------------------------------------------ */

static void give_files(struct sup_gate *gate)
{
    struct brig_err err;

    if (gate_host_files_send(&gate->files, gate->egress.socket, gate->config->gate_resolvers,
                             gate->config->gate_ca_bundle, &err) < 0 &&
        !gate->complained) {
        gate->complained = true;
        gate->say("%s", err.message);
    }
}

static void give_keys(struct sup_gate *gate)
{
    struct gate_file msg = {.head = {.magic = GATE_MAGIC, .version = GATE_VERSION, .type = GATE_FILE}, .name = "keys"};

    if (gate->keys_fd >= 0 && gate_send(gate->egress.socket, &msg, &gate->keys_fd, 1) < 0)
        gate->say("brig-egress does not take the keys of secrets");
}

static int control_pair(int pair[2])
{
    int size = (int)CONTROL_BUFFER;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -errno;
    for (int i = 0; i < 2; i++) /* as much as we may; more where we are root */
        if (setsockopt(pair[i], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size) < 0)
            (void)!setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    return 0;
}

int sup_gate_connect(struct sup_gate *gate, int brigd_sock)
{
    const struct gate_plain msg = {.head = {.magic = GATE_MAGIC, .version = GATE_VERSION, .type = GATE_CONTROL}};
    int pair[2];

    if (gate->egress.pid == 0 || brigd_sock < 0)
        return 0; /* whoever comes second makes it */
    int r = control_pair(pair);
    if (r < 0)
        return r;
    AUTO_FD int theirs = pair[0];
    AUTO_FD int brigds = pair[1];
    r = gate_send(gate->egress.socket, &msg, &theirs, 1);
    return r < 0 ? r : sup_send(brigd_sock, SUP_FD, "gate", brigds);
}

/* ---- its life -------------------------------------------------------------------------------------------- */

static void on_socket(struct loop_source *source, uint32_t events UNUSED)
{
    struct sup_gate *gate = source->ctx;
    union gate_any msg;
    int fds[1] = {-1};
    size_t n_fds = 1;
    int r = gate_receive(source->fd, &msg, fds, &n_fds);

    fd_close_all(fds, r == 0 ? n_fds : 0);
    if (r == -EAGAIN)
        return;
    if (r < 0) {
        loop_remove(gate->loop, source); /* it is ending; its pidfd tells how */
        return;
    }
    if (msg.head.type == GATE_PONG || msg.head.type == GATE_READY)
        gate->silent = 0;
    if (msg.head.type == GATE_READY)
        gate->complained = false;
}

static void on_look(struct loop_timer *timer)
{
    struct sup_gate *gate = timer->ctx;
    const struct gate_plain ping = {.head = {.magic = GATE_MAGIC, .version = GATE_VERSION, .type = GATE_PING}};

    give_files(gate);
    if (gate_send(gate->egress.socket, &ping, NULL, 0) < 0 || ++gate->silent > SILENT_MAX) {
        gate->silent++;
        if (gate->silent > SILENT_MAX && gate->egress.pid) {
            gate->say("brig-egress does not answer: killing it");
            kill(gate->egress.pid, SIGKILL);
        }
    }
    (void)!loop_timer_set(gate->loop, timer, clock_mono_ns() + LOOK_NS, NULL);
}

static void on_end(struct loop_source *source, uint32_t events UNUSED)
{
    struct sup_gate *gate = source->ctx;
    char how[128];

    forget_egress(gate);
    daemon_reap(&gate->egress, how, sizeof how);
    if (gate->stopping)
        return;
    if (!gate->complained || gate->egress.failures <= 1)
        gate->say("%s; starting it again, networks of sandboxes wait", how);
    gate->complained = gate->egress.failures > 1; /* one that ends again and again is not said again and again */
    gate_later(gate);
}

static int start(struct sup_gate *gate, struct brig_err *err)
{
    int r = daemon_start(&gate->egress, gate->places->helpers, NULL, gate->places->egress_uid, gate->places->egress_gid,
                         err);

    if (r < 0)
        return r;
    gate->files = (struct gate_host_files){0};
    gate->silent = 0;
    gate->on_end = (struct loop_source){.fd = -1, .fn = on_end, .ctx = gate};
    gate->on_socket = (struct loop_source){.fd = -1, .fn = on_socket, .ctx = gate};
    r = loop_add(gate->loop, &gate->on_end, gate->egress.pidfd, EPOLLIN, err);
    if (r == 0)
        r = loop_add(gate->loop, &gate->on_socket, gate->egress.socket, EPOLLIN, err);
    if (r == 0)
        r = loop_timer_set(gate->loop, &gate->on_look, clock_mono_ns() + LOOK_NS, err);
    if (r < 0) {
        char how[128];
        kill(gate->egress.pid, SIGKILL);
        forget_egress(gate);
        daemon_reap(&gate->egress, how, sizeof how);
        return r;
    }
    give_files(gate);
    give_keys(gate);
    return 0;
}

void sup_gate_start(struct sup_gate *gate)
{
    struct brig_err err;

    if (gate->egress.pid || gate->stopping)
        return;
    if (start(gate, &err) < 0) {
        if (!gate->complained)
            gate->say("%s; sandboxes with a network are refused until it is there", err.message);
        gate->complained = true;
        gate->egress.failures++;
        gate_later(gate);
        return;
    }
    if (sup_gate_connect(gate, *gate->brigd_sock) < 0)
        gate->say("brig-egress and brigd could not be connected");
}

static void on_restart(struct loop_timer *timer)
{
    sup_gate_start(timer->ctx);
}

static void gate_later(struct sup_gate *gate)
{
    (void)!loop_timer_set(gate->loop, &gate->on_restart, clock_mono_ns() + daemon_restart_delay_ns(&gate->egress),
                          NULL);
}

void sup_gate_init(struct sup_gate *gate)
{
    gate->egress = DAEMON_INIT("brig-egress", true);
    gate->egress.bare = true;
    gate->keys_fd = -1;
    gate->on_restart = (struct loop_timer){.fn = on_restart, .ctx = gate};
    gate->on_look = (struct loop_timer){.fn = on_look, .ctx = gate};
}

void sup_gate_set_keys(struct sup_gate *gate, int fd)
{
    base_close_fd(&gate->keys_fd);
    gate->keys_fd = fd;
    if (gate->egress.pid)
        give_keys(gate);
}

void sup_gate_stop(struct sup_gate *gate)
{
    char how[128];

    gate->stopping = true;
    base_close_fd(&gate->keys_fd);
    if (!gate->loop)
        return;
    loop_timer_clear(gate->loop, &gate->on_restart);
    forget_egress(gate);
    if (gate->egress.pid) {
        kill(gate->egress.pid, SIGKILL); /* nothing it has outlives it: no sandbox is left */
        daemon_reap(&gate->egress, how, sizeof how);
    }
}
