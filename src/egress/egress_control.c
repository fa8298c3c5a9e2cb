/* SPDX-License-Identifier: Apache-2.0 */
/*
 * egress_control.c: handles the controller's messages. gate_wire_check() has checked each of them. A message that makes
 * no sense closes the socket; a message that cannot be carried out is answered with the reason. When the socket closes,
 * slots and connections stay as they are.
 */
#include <sys/epoll.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/egress_priv.h"

#define BATCH 16 /* messages per round */

static struct gate_head head_of(enum gate_type type, uint64_t slot)
{
    return (struct gate_head){GATE_MAGIC, GATE_VERSION, (uint16_t)type, slot};
}

static void clear_err(struct brig_err *err)
{
    memset(err, 0, sizeof *err);
}

/* ---- PREPARE ------------------------------------------------------------------------------------------------- */

static int prepare(struct egress *egress, const struct gate_prepare *msg, int fd, struct slot **ret,
                   struct brig_err *err)
{
    char *text = NULL;
    size_t len = 0;

    if (fd < 0)
        return err_set(err, BRIG_E_HOST, EMFILE, "the specification did not arrive");
    int r = gate_memfd_read(fd, SLOT_SPEC_MAX, &text, &len);
    if (r < 0)
        return err_set(err, BRIG_E_USAGE, -r, "the specification");
    if (len == msg->spec_len) {
        const struct slot_spec_in in = {msg->head.slot, msg->policy_version, msg->flags, text, len};
        r = slot_prepare(egress, &in, ret, err);
    } else {
        r = err_usage(err, "the specification is not as long as was said");
    }
    explicit_bzero(text, len); /* secrets are sealed in it; placeholders are not */
    mem_free(text);
    return r;
}

static int on_prepare(struct egress *egress, const struct gate_prepare *msg, int fd)
{
    struct gate_prepared answer;
    struct slot *slot = NULL;
    bool any_port = false;
    AUTO_FD int ca = -1;

    memset(&answer, 0, sizeof answer);
    answer.head = head_of(GATE_PREPARED, msg->head.slot);
    answer.policy_version = msg->policy_version;
    if (prepare(egress, msg, fd, &slot, &answer.err) == 0) {
        clear_err(&answer.err);
        slot->mentioned = true;
        answer.policy_version = slot->version;
        answer.n_ports = (uint32_t)policy_ports(slot->policy, answer.ports, &any_port);
        answer.any_port = any_port;
        answer.listening = slot->n_listeners > 0;
        if (slot->broker && slot->ca.len > 0) {
            ca = gate_memfd("brig-ca", slot->ca.data, slot->ca.len);
            if (ca >= 0)
                answer.brokers = 1;
            else
                err_set(&answer.err, BRIG_E_HOST, -ca, "the authority's certificate");
        }
    }
    return outbox_answer(egress, &answer, take_fd(&ca));
}

/* ---- the others ---------------------------------------------------------------------------------------------- */

static int on_listen(struct egress *egress, const struct gate_listen *msg, int *fds, size_t n_fds)
{
    struct slot *slot = slot_find(egress, msg->head.slot);
    struct gate_answer answer;

    memset(&answer, 0, sizeof answer);
    answer.head = head_of(GATE_LISTENING, msg->head.slot);
    if (!slot) {
        err_set(&answer.err, BRIG_E_NOT_FOUND, ENOENT, "slot %016llx", (unsigned long long)msg->head.slot);
        fd_close_all(fds, n_fds);
    } else if (slot_listen(slot, msg, fds, n_fds, &answer.err) == 0) {
        clear_err(&answer.err);
    }
    return outbox_answer(egress, &answer, -1);
}

static int on_count(struct egress *egress, uint64_t number, bool forget)
{
    struct slot *slot = slot_find(egress, number);
    struct gate_counted answer;

    memset(&answer, 0, sizeof answer);
    answer.head = head_of(forget ? GATE_FORGOTTEN : GATE_COUNTED, number);
    if (!slot) {
        err_set(&answer.err, BRIG_E_NOT_FOUND, ENOENT, "slot %016llx", (unsigned long long)number);
        return outbox_answer(egress, &answer, -1);
    }
    if (forget)
        slot_forget(slot); /* its last events go before the answer */
    answer.counts = slot->counts;
    return outbox_answer(egress, &answer, -1);
}

static void on_sync(struct egress *egress, bool done)
{
    for (size_t i = 0; i < EGRESS_BUCKETS; i++) {
        struct slot *next;
        for (struct slot *slot = egress->slots[i]; slot; slot = next) {
            next = slot->next;
            if (!done)
                slot->mentioned = false;
            else if (!slot->mentioned)
                slot_forget(slot);
        }
    }
}

/* 0, or a negative errno: the socket is of no more use. */
static int handle(struct egress *egress, const union gate_any *msg, int *fds, size_t n_fds)
{
    switch ((enum gate_type)msg->head.type) {
    case GATE_PREPARE:
        if (n_fds > 1)
            return -EPROTO;
        return on_prepare(egress, &msg->prepare, n_fds == 1 ? fds[0] : -1);
    case GATE_LISTEN: return on_listen(egress, &msg->listen, fds, n_fds);
    case GATE_COUNT: return on_count(egress, msg->head.slot, false);
    case GATE_FORGET: return on_count(egress, msg->head.slot, true);
    case GATE_SYNC: on_sync(egress, false); return 0;
    case GATE_SYNCED: on_sync(egress, true); return 0;
    default: return -EPROTO;
    }
}

static void control_io(struct loop_source *source, uint32_t events)
{
    struct egress *egress = source->ctx;

    if (events & EPOLLOUT)
        outbox_flush(egress);
    for (int i = 0; i < BATCH && egress->control >= 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)); i++) {
        union gate_any msg;
        int fds[GATE_LISTENERS_MAX];
        size_t n_fds = GATE_LISTENERS_MAX;
        int r = gate_receive(egress->control, &msg, fds, &n_fds);
        if (r == -EAGAIN)
            return;
        if (r == 0) {
            r = handle(egress, &msg, fds, n_fds);
            if (msg.head.type != GATE_LISTEN)
                fd_close_all(fds, n_fds);
        }
        if (r < 0)
            control_close(egress);
    }
}

int control_take(struct egress *egress, int sock, struct brig_err *err)
{
    AUTO_FD int fd = sock;

    control_close(egress);
    egress->control_source = (struct loop_source){.fn = control_io, .ctx = egress};
    int r = fd_set_nonblock(fd);
    if (r < 0)
        return err_set(err, BRIG_E_HOST, -r, "the control socket");
    r = loop_add(egress->loop, &egress->control_source, fd, EPOLLIN, err);
    if (r < 0)
        return r;
    egress->control = take_fd(&fd);
    outbox_flush(egress);
    return 0;
}

void control_close(struct egress *egress)
{
    if (egress->control < 0)
        return;
    loop_remove(egress->loop, &egress->control_source);
    base_close_fd(&egress->control);
    outbox_clear(egress);
}
