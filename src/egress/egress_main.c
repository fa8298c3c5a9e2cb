/* SPDX-License-Identifier: Apache-2.0 */
/*
 * egress_main.c: brig-egress. Descriptor 3 is its parent, and nothing else comes from outside: no arguments, no
 * environment, no files. It locks itself down, says GATE_READY, and serves until the parent is gone. A control socket
 * that closes is not an end: brigd is being restarted, and the parent passes the next one.
 */
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/fd.h"
#include "egress/egress_priv.h"

static int say(struct egress *egress, enum gate_type type)
{
    const struct gate_plain msg = {.head = {GATE_MAGIC, GATE_VERSION, (uint16_t)type, 0}};

    return gate_send(egress->parent, &msg, NULL, 0);
}

static int on_parent_message(struct egress *egress, const union gate_any *msg, int *fd)
{
    struct brig_err err = {0};

    switch (msg->head.type) {
    case GATE_FILE:
        /* A text that makes no sense leaves the last one in force; the parent has checked it already. */
        if (*fd >= 0 && egress_file(egress, msg->file.name, *fd, &err) < 0)
            fprintf(stderr, "brig-egress: %s: %s\n", msg->file.name, err.message);
        return 0;
    case GATE_CONTROL:
        if (*fd < 0)
            return 0;
        if (control_take(egress, take_fd(fd), &err) < 0)
            fprintf(stderr, "brig-egress: %s\n", err.message);
        return 0;
    case GATE_PING: return say(egress, GATE_PONG) == -EPIPE ? -EPIPE : 0;
    default: return -EPROTO;
    }
}

static void parent_io(struct loop_source *source, uint32_t events UNUSED)
{
    struct egress *egress = source->ctx;

    for (;;) {
        union gate_any msg;
        AUTO_FD int fd = -1;
        size_t n_fds = 1;
        int r = gate_receive(egress->parent, &msg, &fd, &n_fds);
        if (r == -EAGAIN)
            return;
        if (r == 0)
            r = on_parent_message(egress, &msg, &fd);
        if (r < 0) {
            egress->over = true;
            return;
        }
    }
}

/* Libraries read files when they are first used: now or never. */
static int warm_up(struct brig_err *err)
{
    if (OPENSSL_init_ssl(OPENSSL_INIT_LOAD_SSL_STRINGS | OPENSSL_INIT_LOAD_CRYPTO_STRINGS |
                             OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT,
                         NULL) != 1)
        return err_set(err, BRIG_E_HOST, 0, "OpenSSL");
    return 0;
}

/* Before anything else could become descriptor 3. */
static int check_parent(struct brig_err *err)
{
    int type = 0;
    socklen_t len = sizeof type;

    if (getsockopt(GATE_PARENT_FD, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_SEQPACKET)
        return err_usage(err, "descriptor %d is not a socket to a parent: brig-egress is started by brig, not by hand",
                         GATE_PARENT_FD);
    return 0;
}

static int serve(struct egress *egress, struct brig_err *err)
{
    egress->parent = GATE_PARENT_FD;
    egress->parent_source = (struct loop_source){.fn = parent_io, .ctx = egress};
    int r = fd_set_nonblock(egress->parent);
    if (r < 0)
        return err_set(err, BRIG_E_HOST, -r, "descriptor %d", GATE_PARENT_FD);
    r = loop_add(egress->loop, &egress->parent_source, egress->parent, EPOLLIN, err);
    if (r == 0)
        r = warm_up(err);
    if (r == 0)
        r = lockdown_serve(err);
    if (r == 0 && (r = say(egress, GATE_READY)) < 0)
        err_set(err, BRIG_E_HOST, -r, "the parent");
    while (r == 0 && !egress->over) {
        r = loop_run_once(egress->loop, -1, err);
        egress_reap(egress);
    }
    return r;
}

int main(void)
{
    static struct egress egress;
    struct brig_err err = {0};

    prctl(PR_SET_NAME, "brig-egress");
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN); /* a terminal's signals are for whoever has the terminal; that one's end is ours */
    signal(SIGHUP, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    int r = check_parent(&err);
    if (r < 0) {
        fprintf(stderr, "brig-egress: %s\n", err.message);
        return 1;
    }
    r = lockdown_begin(&err);
    if (r == 0)
        r = egress_init(&egress, &err);
    if (r == 0)
        r = serve(&egress, &err);
    if (r < 0)
        fprintf(stderr, "brig-egress: %s\n", err.message);
    egress_done(&egress);
    return r < 0;
}
