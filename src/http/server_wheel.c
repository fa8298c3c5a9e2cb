/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadlines. A wheel of lists, 50 ms each, and one timer of the loop for the first list that is not empty. A deadline
 * that moves back (the usual case: every request moves the idle deadline) costs one store: the connection stays in its
 * list and is put where it belongs when that list's time comes. One that moves forward is moved at once. Deadlines
 * beyond the wheel wait in its last list and are looked at again.
 */
#include "http/server_conn.h"

static void arm(struct server *server, uint64_t tick)
{
    struct wheel *wheel = &server->wheel;

    wheel->armed_tick = tick;
    /* Without memory for a timer, the next connection that is put in tries again. */
    if (loop_timer_set(server->loop, &wheel->timer, tick * WHEEL_TICK_MS * NS_PER_MS, NULL) < 0)
        wheel->armed_tick = 0;
}

static void arm_first(struct server *server)
{
    struct wheel *wheel = &server->wheel;

    for (uint64_t tick = wheel->next_tick; tick < wheel->next_tick + WHEEL_SLOTS; tick++) {
        if (wheel->slots[tick % WHEEL_SLOTS]) {
            arm(server, tick);
            return;
        }
    }
    wheel->armed_tick = 0;
}

void wheel_remove(struct conn *conn)
{
    if (conn->wheel_tick == 0)
        return;
    conn->wheel_tick = 0;
    *conn->wheel_prev = conn->wheel_next;
    if (conn->wheel_next)
        conn->wheel_next->wheel_prev = conn->wheel_prev;
}

void wheel_update(struct conn *conn)
{
    struct server *server = conn->server;
    struct wheel *wheel = &server->wheel;

    if (conn->deadline_ms == 0)
        return; /* seen when its list's time comes */
    uint64_t tick = conn->deadline_ms / WHEEL_TICK_MS + 1;
    if (conn->wheel_tick != 0 && conn->wheel_tick <= tick)
        return;
    if (tick < wheel->next_tick)
        tick = wheel->next_tick;
    if (tick > wheel->next_tick + WHEEL_SLOTS - 2)
        tick = wheel->next_tick + WHEEL_SLOTS - 2;
    if (conn->wheel_tick == tick)
        return;
    wheel_remove(conn);
    struct conn **slot = &wheel->slots[tick % WHEEL_SLOTS];
    conn->wheel_tick = tick;
    conn->wheel_prev = slot;
    conn->wheel_next = *slot;
    if (*slot)
        (*slot)->wheel_prev = &conn->wheel_next;
    *slot = conn;
    if (wheel->armed_tick == 0 || tick < wheel->armed_tick)
        arm(server, tick);
}

static void on_timer(struct loop_timer *timer)
{
    struct server *server = timer->ctx;
    struct wheel *wheel = &server->wheel;
    /* The loop's clock is finer than ours: what is due by its time is due. */
    uint64_t now = clock_mono_ns() / NS_PER_MS, now_tick = now / WHEEL_TICK_MS;

    server->now_ms = now;
    wheel->armed_tick = 1; /* in the past: it is set once, below */
    while (wheel->next_tick <= now_tick) {
        struct conn **slot = &wheel->slots[wheel->next_tick++ % WHEEL_SLOTS];
        while (*slot) {
            struct conn *conn = *slot;
            wheel_remove(conn);
            if (conn->deadline_ms != 0 && conn->deadline_ms <= now)
                conn_timeout(conn);
            else
                wheel_update(conn);
        }
        if (wheel->next_tick + WHEEL_SLOTS < now_tick) /* the machine slept: every list is looked at once */
            wheel->next_tick = now_tick - WHEEL_SLOTS;
    }
    arm_first(server);
}

void wheel_init(struct server *server)
{
    server->wheel.next_tick = server->now_ms / WHEEL_TICK_MS;
    server->wheel.timer = (struct loop_timer){.fn = on_timer, .ctx = server};
}
