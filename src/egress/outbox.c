/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outbox.c: the answers and events for the controller, in the order in which they were made. Nothing here blocks and
 * nothing is dropped: while the controller does not read (or while there is none), packets wait. The sources of events
 * bound how many wait: a slot with SLOT_EVENTS of them, or whose organisation has its share of EGRESS_EVENTS, accepts
 * no connection. The open connections add at most a few events each.
 */
#include <sys/epoll.h>

#include "base/list.h"
#include "base/mem.h"
#include "egress/egress_priv.h"

#define ANSWERS_MAX 64u

struct outgoing {
    struct outgoing *next, *prev;
    struct slot *slot; /* an event of it; NULL: an answer, or its slot is gone */
    bool event;
    int fd;
    union gate_any msg; /* allocated only as far as the message goes */
};

static int put(struct egress *egress, const void *msg, int fd, struct slot *slot, bool event)
{
    const struct gate_head *head = msg;
    size_t len = gate_wire_size(head->type);
    struct outgoing *out = mem_alloc(offsetof(struct outgoing, msg) + len);

    if (!out) {
        base_close_fd(&fd);
        return -ENOMEM;
    }
    out->slot = slot;
    out->event = event;
    out->fd = fd;
    memcpy(&out->msg, msg, len);
    list_append(&egress->out_first, &egress->out_last, out);
    if (event) {
        share_charge(slot, SHARE_EVENTS, 1);
        slot->n_events++;
    } else {
        egress->n_answers++;
    }
    outbox_flush(egress);
    return 0;
}

int outbox_answer(struct egress *egress, const void *msg, int fd)
{
    return put(egress, msg, fd, NULL, false);
}

int outbox_event(struct slot *slot, const struct gate_event *event)
{
    return put(slot->egress, event, -1, slot, true);
}

bool outbox_full(const struct slot *slot)
{
    return slot->n_events >= SLOT_EVENTS || !share_has(slot, SHARE_EVENTS, 1);
}

static void drop(struct egress *egress, struct outgoing *out)
{
    list_take(&egress->out_first, &egress->out_last, out);
    if (out->event && out->slot) {
        share_give(out->slot, SHARE_EVENTS, 1);
        out->slot->n_events--;
    } else if (out->event) {
        egress->shared[SHARE_EVENTS]--;
    } else {
        egress->n_answers--;
    }
    base_close_fd(&out->fd);
    mem_free(out);
}

/* Those that stopped accepting go on at half of what stopped them: not one by one. */
static void resume(struct egress *egress)
{
    bool left = false;

    for (size_t i = 0; i < EGRESS_BUCKETS; i++) {
        for (struct slot *slot = egress->slots[i]; slot; slot = slot->next) {
            if (!slot->paused)
                continue;
            if (slot->n_events <= SLOT_EVENTS / 2 && share_has(slot, SHARE_EVENTS, EGRESS_EVENTS / 8))
                listeners_resume(slot);
            else
                left = true;
        }
    }
    egress->paused = left;
}

void outbox_flush(struct egress *egress)
{
    bool wait = false;

    if (egress->control < 0)
        return;
    while (egress->out_first) {
        struct outgoing *out = egress->out_first;
        int r = gate_send(egress->control, &out->msg, &out->fd, out->fd >= 0 ? 1 : 0);
        if (r == -EAGAIN || r == -ENOBUFS || r == -ENOMEM) {
            wait = true;
            break;
        }
        if (r == -EPIPE || r == -ENOTCONN)
            break; /* the loop will say so; what is left is for the next controller */
        drop(egress, out);
    }
    /* Who does not read its answers is not asked for more questions. */
    uint32_t events = (egress->n_answers < ANSWERS_MAX ? EPOLLIN : 0u) | (wait ? EPOLLOUT : 0u);
    if (egress->control_source.slot != 0 && loop_modify(egress->loop, &egress->control_source, events, NULL) < 0)
        return; /* kept as it was; the next flush tries again */
    if (egress->paused)
        resume(egress);
}

void outbox_forget(struct slot *slot)
{
    for (struct outgoing *out = slot->egress->out_first; out; out = out->next) {
        if (out->slot == slot)
            out->slot = NULL;
    }
    share_orphan(slot, SHARE_EVENTS, slot->n_events);
    slot->n_events = 0;
}

/* A new controller did not ask what the last one asked. */
static void drop_answers(struct egress *egress)
{
    for (struct outgoing *out = egress->out_first, *next; out; out = next) {
        next = out->next;
        if (!out->event)
            drop(egress, out);
    }
}

void outbox_clear(struct egress *egress)
{
    if (!egress->over) {
        drop_answers(egress);
        return;
    }
    while (egress->out_first)
        drop(egress, egress->out_first);
}
