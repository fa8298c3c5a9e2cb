/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rogue_egress.c: a brig-egress that answers by the book, unless the policy's name says otherwise; for tests of whoever
 * drives it. It carries nothing. Names: refuse-policy, die-at-prepare, mute-at-prepare, die-at-listen, refuse-listen,
 * die-at-forget, mute-at-forget, count (10 bytes in, 20 out, 3 allowed, 2 denied, 1 name refused, a limit reached) and
 * learn (tells what was tried).
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "gate/gate_wire.h"

static char mode[64];
static int control = -1;

static void say(union gate_any *msg, uint16_t type, uint64_t slot)
{
    msg->head = (struct gate_head){GATE_MAGIC, GATE_VERSION, type, slot};
    if (gate_send(control, msg, NULL, 0) < 0)
        _exit(3);
}

static void mute(void)
{
    pause();
    _exit(4);
}

static void fail(struct brig_err *err, int code, const char *message)
{
    err->code = code;
    snprintf(err->message, sizeof err->message, "%s", message);
}

/* "name":"..." of the slot's description. */
static void read_mode(int fd)
{
    char *text = NULL;
    size_t len = 0;

    if (gate_memfd_read(fd, 1 << 20, &text, &len) < 0)
        _exit(5);
    char *at = strstr(text, "\"name\":\"");
    if (at)
        snprintf(mode, sizeof mode, "%.*s", (int)strcspn(at + 8, "\""), at + 8);
    mem_free(text);
}

static void on_prepare(uint64_t slot)
{
    union gate_any msg = {0};

    if (strcmp(mode, "die-at-prepare") == 0)
        _exit(0);
    if (strcmp(mode, "mute-at-prepare") == 0)
        mute();
    msg.prepared.policy_version = 1;
    msg.prepared.n_ports = 2;
    msg.prepared.ports[0] = 80;
    msg.prepared.ports[1] = 443;
    if (strcmp(mode, "refuse-policy") == 0)
        fail(&msg.prepared.err, BRIG_E_USAGE, "rules[0].domain: not to my taste");
    say(&msg, GATE_PREPARED, slot);
}

static void on_listen(uint64_t slot)
{
    union gate_any msg = {0};

    if (strcmp(mode, "die-at-listen") == 0)
        _exit(0);
    if (strcmp(mode, "refuse-listen") == 0)
        fail(&msg.answer.err, BRIG_E_HOST, "too many listeners");
    say(&msg, GATE_LISTENING, slot);
}

static void tell(uint64_t slot, uint32_t verdict, const char *name, uint16_t port)
{
    union gate_any msg = {0};

    msg.event.verdict = verdict;
    msg.event.wanted.port = port;
    msg.event.seen = POLICY_SEEN_TLS;
    snprintf(msg.event.name, sizeof msg.event.name, "%s", name);
    say(&msg, GATE_EVENT, slot);
}

static void on_forget(uint64_t slot)
{
    union gate_any msg = {0};

    if (strcmp(mode, "die-at-forget") == 0)
        _exit(0);
    if (strcmp(mode, "mute-at-forget") == 0)
        mute();
    if (strcmp(mode, "learn") == 0) {
        tell(slot, GATE_ALLOWED, "one.test", 443);
        tell(slot, GATE_DENIED, "never.test", 443);
        tell(slot, GATE_FAILED, "two.test", 8443);
        tell(slot + 1, GATE_ALLOWED, "of-another-run.test", 443);
    }
    if (strcmp(mode, "count") == 0)
        msg.counted.counts = (struct gate_counts){.bytes_in = 10,
                                                  .bytes_out = 20,
                                                  .allowed = 3,
                                                  .denied = 2,
                                                  .names_allowed = 9,
                                                  .names_refused = 1,
                                                  .limits_hit = 1u << BRIG_LIMIT_NET_BYTES_IN | 1u << 31};
    say(&msg, GATE_FORGOTTEN, slot);
}

static void on_control(void)
{
    union gate_any msg;
    int fds[GATE_LISTENERS_MAX];
    size_t n = GATE_LISTENERS_MAX;
    int r = gate_receive(control, &msg, fds, &n);

    if (r == -EAGAIN)
        return;
    if (r < 0)
        _exit(0);
    if (msg.head.type == GATE_PREPARE && n == 1)
        read_mode(fds[0]), on_prepare(msg.head.slot);
    else if (msg.head.type == GATE_LISTEN)
        on_listen(msg.head.slot);
    else if (msg.head.type == GATE_FORGET)
        on_forget(msg.head.slot);
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

static void on_parent(void)
{
    union gate_any msg;
    int fds[1] = {-1};
    size_t n = 1;
    int r = gate_receive(GATE_PARENT_FD, &msg, fds, &n);

    if (r == -EAGAIN)
        return;
    if (r < 0)
        _exit(0); /* whoever started us is gone */
    if (msg.head.type == GATE_CONTROL && n == 1)
        control = fds[0];
    else if (n == 1)
        close(fds[0]);
}

int main(void)
{
    extern char **environ;

    /* Nothing of the caller is to be here. */
    if (environ[0] || close(GATE_PARENT_FD + 1) == 0)
        return 6;
    for (;;) {
        struct pollfd fds[2] = {{GATE_PARENT_FD, POLLIN, 0}, {control, POLLIN, 0}};
        if (poll(fds, control >= 0 ? 2 : 1, -1) < 0)
            return 7;
        if (fds[0].revents)
            on_parent();
        if (control >= 0 && fds[1].revents)
            on_control();
    }
}
