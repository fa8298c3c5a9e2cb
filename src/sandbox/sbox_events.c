/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_events.c: the lifecycle of sandboxes for those who listen, and the last EVENTS_MAX of them for those who come
 * back. The number of an event is its time in microseconds, and rises: it says nothing about how many others there
 * were.
 */
#include "engine/engine.h"
#include "sandbox/private.h"

#define EVENT_MAX 8192u

void sandbox_event(struct sbox *sbox, const char *type, const char *detail)
{
    struct manager *manager = sbox->manager;
    struct buf buf = BUF_INIT(EVENT_MAX);
    struct json json = JSON_INIT(&buf);

    if (sbox->priv->internal)
        return;
    uint64_t now = (uint64_t)clock_real_ns() / 1000, seq = now > manager->event_seq ? now : manager->event_seq + 1;
    manager->event_seq = seq;

    json_object(&json);
    json_key(&json, "seq"), json_u64(&json, seq);
    receipt_put_time(&json, "time", clock_real_ns());
    json_key(&json, "type"), json_string(&json, type);
    json_key(&json, "sandbox_id"), json_string(&json, sbox->id);
    if (sbox->spec.name[0])
        json_key(&json, "name"), json_string(&json, sbox->spec.name);
    json_key(&json, "organization_id"), json_string(&json, sbox->org_id);
    json_key(&json, "state"), json_string(&json, sbox_state_name(sbox->state));
    json_key(&json, "boot_id"), json_string(&json, sbox->boot_id);
    if (detail && detail[0])
        json_key(&json, "detail"), json_string(&json, detail);
    json_end(&json);
    struct event_slot *slot = &manager->events[manager->n_events++ % EVENTS_MAX];
    mem_free(slot->json);
    *slot = (struct event_slot){0};
    if (json_finish(&json) < 0) {
        buf_done(&buf);
        return;
    }
    slot->seq = seq;
    snprintf(slot->org_id, sizeof slot->org_id, "%s", sbox->org_id);
    slot->json = buf_take(&buf, &slot->len);
    if (!slot->json)
        return;
    /* A listener may leave, and others with it, while it is told. */
    for (struct manager_listener *listener = manager->listeners; listener; listener = manager->listener_next) {
        manager->listener_next = listener->next;
        listener->event(listener->ctx, slot->org_id, seq, slot->json, slot->len);
    }
    manager->listener_next = NULL;
}

void manager_listen(struct manager *manager, struct manager_listener *listener)
{
    listener->prev = NULL;
    listener->next = manager->listeners;
    if (listener->next)
        listener->next->prev = listener;
    manager->listeners = listener;
}

void manager_unlisten(struct manager *manager, struct manager_listener *listener)
{
    if (manager->replaying == listener)
        manager->replaying = NULL;
    if (manager->listener_next == listener)
        manager->listener_next = listener->next;
    if (listener->prev)
        listener->prev->next = listener->next;
    else if (manager->listeners == listener)
        manager->listeners = listener->next;
    if (listener->next)
        listener->next->prev = listener->prev;
    listener->next = listener->prev = NULL;
}

void manager_listen_since(struct manager *manager, struct manager_listener *listener, uint64_t since)
{
    uint64_t first = manager->n_events > EVENTS_MAX ? manager->n_events - EVENTS_MAX : 0, end = manager->n_events;

    manager_listen(manager, listener);
    if (since == UINT64_MAX)
        return;
    manager->replaying = listener; /* NULL as soon as it leaves, which it may while it is told */
    for (uint64_t i = first; i < end && manager->replaying; i++) {
        const struct event_slot *slot = &manager->events[i % EVENTS_MAX];
        if (slot->seq > since && slot->json)
            listener->event(listener->ctx, slot->org_id, slot->seq, slot->json, slot->len);
    }
    manager->replaying = NULL;
}

void events_done(struct manager *manager)
{
    for (size_t i = 0; i < EVENTS_MAX; i++)
        mem_free(manager->events[i].json);
}
