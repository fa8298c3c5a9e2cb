/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_events.c: sends lifecycle events of sandboxes to listeners, and keeps the last EVENTS_MAX of them for listeners
 * that come back. The number of an event is its time in microseconds, and rises: it says nothing about how many others
 * there were. When there is no room for a new event, the organisation that has the most loses its oldest one: an
 * organisation that makes many pushes out its own.
 */
#include "base/list.h"
#include "receipt/receipt.h"
#include "sandbox/private.h"

#define EVENT_MAX 8192u

static size_t count_of(const struct manager *manager, const char *org)
{
    size_t n = 0;

    for (size_t i = 0; i < manager->n_events; i++)
        n += str_eq(manager->events[i].org_id, org);
    return n;
}

/* The oldest event of the organisation that has the most. Each organisation is counted once: at its oldest event. */
static size_t victim(const struct manager *manager)
{
    size_t at = 0, most = 0, seen = 0;

    for (size_t i = 0; i < manager->n_events && most < manager->n_events - seen; i++) {
        bool counted = false;
        for (size_t j = 0; j < i && !counted; j++)
            counted = str_eq(manager->events[j].org_id, manager->events[i].org_id);
        if (counted)
            continue;
        size_t n = count_of(manager, manager->events[i].org_id);
        seen += n;
        if (n > most)
            at = i, most = n;
    }
    return at;
}

static void keep_event(struct manager *manager, const struct event_slot *event)
{
    if (manager->n_events == EVENTS_MAX) {
        size_t at = victim(manager);
        mem_free(manager->events[at].json);
        manager->n_events--;
        memmove(&manager->events[at], &manager->events[at + 1], (manager->n_events - at) * sizeof manager->events[0]);
    }
    manager->events[manager->n_events++] = *event;
}

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
    json_key_u64(&json, "seq", seq);
    receipt_put_time(&json, "time", clock_real_ns());
    json_key_string(&json, "type", type);
    json_key_string(&json, "sandbox_id", sbox->id);
    if (sbox->spec.name[0])
        json_key_string(&json, "name", sbox->spec.name);
    json_key_string(&json, "organization_id", sbox->org_id);
    json_key_string(&json, "state", sbox_state_name(sbox->state));
    json_key_string(&json, "boot_id", sbox->boot_id);
    if (detail && detail[0])
        json_key_string(&json, "detail", detail);
    json_end(&json);
    if (json_finish(&json) < 0) {
        buf_done(&buf);
        return;
    }
    struct event_slot event = {.seq = seq};
    memcpy(event.org_id, sbox->org_id, sizeof event.org_id);
    event.json = buf_take(&buf, &event.len);
    if (!event.json)
        return;
    keep_event(manager, &event);
    /* A listener may leave, and others with it, while it is told. */
    for (struct manager_listener *listener = manager->listeners; listener; listener = manager->listener_next) {
        manager->listener_next = listener->next;
        listener->event(listener->ctx, event.org_id, seq, event.json, event.len);
    }
    manager->listener_next = NULL;
}

void manager_listen(struct manager *manager, struct manager_listener *listener)
{
    list_push(&manager->listeners, listener);
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
    manager_listen(manager, listener);
    if (since == UINT64_MAX)
        return;
    manager->replaying = listener; /* NULL as soon as it leaves, which it may while it is told */
    for (size_t i = 0; i < manager->n_events && manager->replaying; i++) {
        const struct event_slot *slot = &manager->events[i];
        if (slot->seq > since)
            listener->event(listener->ctx, slot->org_id, slot->seq, slot->json, slot->len);
    }
    manager->replaying = NULL;
}

void events_done(struct manager *manager)
{
    for (size_t i = 0; i < manager->n_events; i++)
        mem_free(manager->events[i].json);
}
