/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.c: bounds how much a slot may move, and how fast.
 *
 * One token bucket of bytes per second serves all connections of the slot, both directions together. A connection asks
 * before it reads. When the bucket is empty the connection waits in a queue, and a timer serves the queue in turn with
 * equal parts of what has come in, so one connection with much data cannot starve the others. Nobody overtakes the
 * queue.
 *
 * Budgets are exact: a connection is never read past what is left, and the slot is cut off only when there is one byte
 * more.
 */
#include "base/clock.h"
#include "base/list.h"
#include "egress/egress_priv.h"

#define TURN_NS (10 * NS_PER_MS) /* how often the queue is served */
#define QUANTUM 2048.0           /* no smaller pieces than this, or the whole bucket */

void bucket_init(struct bucket *bucket, uint64_t rate, uint64_t burst, uint64_t now_ns)
{
    *bucket = (struct bucket){(double)rate, (double)burst, (double)burst, now_ns};
}

double bucket_level(struct bucket *bucket, uint64_t now_ns)
{
    if (now_ns > bucket->at_ns) {
        bucket->level += bucket->rate * (double)(now_ns - bucket->at_ns) / (double)NS_PER_SEC;
        bucket->at_ns = now_ns;
        if (bucket->level > bucket->burst)
            bucket->level = bucket->burst;
    }
    return bucket->level;
}

bool bucket_take(struct bucket *bucket, uint64_t now_ns, double n)
{
    if (bucket->rate <= 0)
        return true;
    if (bucket_level(bucket, now_ns) < n)
        return false;
    bucket->level -= n;
    return true;
}

void budget_limits(struct slot *slot, const struct policy_limits *limits)
{
    uint64_t now = loop_now_ns(), rate = limits->connections_per_second;
    uint64_t burst = limits->bps / 8; /* 125 ms: what a busy host may keep us waiting without loss */

    if (limits->bps != slot->limits.bps)
        bucket_init(&slot->bytes, limits->bps, burst < 4096 ? 4096 : burst, now);
    if (rate != slot->limits.connections_per_second)
        bucket_init(&slot->starts, rate, rate < 1 ? 1 : rate, now);
    slot->limits = *limits;
    slot->over_in = limits->bytes_in > 0 && slot->over_in && slot->counts.bytes_in >= limits->bytes_in;
    slot->over_out = limits->bytes_out > 0 && slot->over_out && slot->counts.bytes_out >= limits->bytes_out;
}

/* ---- the queue ----------------------------------------------------------------------------------------------- */

static struct conn *queue_pop(struct slot *slot)
{
    struct conn *conn = slot->wait_first;

    budget_leave(conn);
    return conn;
}

static void on_turn(struct loop_timer *timer)
{
    struct slot *slot = timer->ctx;
    size_t n = slot->n_waiting;

    slot->resuming = true;
    while (n-- > 0 && slot->n_waiting > 0 &&
           bucket_level(&slot->bytes, loop_now_ns()) >= (slot->bytes.burst < QUANTUM ? slot->bytes.burst : QUANTUM))
        conn_resume(queue_pop(slot)); /* which asks again, and may stand in the queue again */
    slot->resuming = false;
    if (slot->n_waiting > 0 && loop_timer_set(slot->egress->loop, timer, loop_now_ns() + TURN_NS, NULL) < 0) {
        while (slot->n_waiting > 0)
            conn_reset(queue_pop(slot), "out of memory");
    }
}

void budget_wait(struct conn *conn)
{
    struct slot *slot = conn->slot;

    if (conn->waiting)
        return;
    conn->waiting = true;
    list_append_by(&slot->wait_first, &slot->wait_last, conn, wait_next, wait_prev);
    if (slot->n_waiting++ == 0 && !slot->resuming) {
        slot->bytes_timer.fn = on_turn;
        slot->bytes_timer.ctx = slot;
        if (loop_timer_set(slot->egress->loop, &slot->bytes_timer, loop_now_ns() + TURN_NS, NULL) < 0)
            conn_reset(conn, "out of memory");
    }
}

void budget_leave(struct conn *conn)
{
    struct slot *slot = conn->slot;

    if (!conn->waiting)
        return;
    list_take_by(&slot->wait_first, &slot->wait_last, conn, wait_next, wait_prev);
    slot->n_waiting--;
    conn->waiting = false;
}

/* ---- grants -------------------------------------------------------------------------------------------------- */

enum grant budget_grant(struct conn *conn, bool in, size_t want, size_t *ret)
{
    struct slot *slot = conn->slot;
    uint64_t max = in ? slot->limits.bytes_in : slot->limits.bytes_out,
             used = in ? slot->counts.bytes_in : slot->counts.bytes_out;

    if (max > 0) {
        if (used >= max)
            return GRANT_OVER;
        if (want > max - used)
            want = (size_t)(max - used);
    }
    if (slot->limits.bps > 0) {
        double level = bucket_level(&slot->bytes, loop_now_ns()),
               least = slot->bytes.burst < QUANTUM ? slot->bytes.burst : QUANTUM;
        if ((slot->n_waiting > 0 && !slot->resuming) || level < least) {
            slot->counts.limits_hit |= 1u << BRIG_LIMIT_NET_BPS;
            return GRANT_WAIT;
        }
        double part = level / (double)(slot->n_waiting + 1);
        if (part < least)
            part = least;
        if ((double)want > part)
            want = (size_t)part;
    }
    *ret = want;
    return GRANT_SOME;
}

void budget_charge(struct conn *conn, bool in, size_t n)
{
    struct slot *slot = conn->slot;

    *(in ? &conn->bytes_in : &conn->bytes_out) += n;
    *(in ? &slot->counts.bytes_in : &slot->counts.bytes_out) += n;
    if (slot->limits.bps > 0)
        slot->bytes.level -= (double)n;
    conn->last_ns = loop_now_ns();
}

void budget_note_over(struct slot *slot, bool in, bool is)
{
    bool *over = in ? &slot->over_in : &slot->over_out;

    if (!is)
        return;
    slot->counts.limits_hit |= 1u << (in ? BRIG_LIMIT_NET_BYTES_IN : BRIG_LIMIT_NET_BYTES_OUT);
    if (!*over) {
        *over = true;
        slot_tell(slot, GATE_DENIED, in ? "net_bytes_in is used up" : "net_bytes_out is used up");
    }
}

void budget_over(struct slot *slot, bool in)
{
    const char *why = in ? "net_bytes_in is used up" : "net_bytes_out is used up";

    budget_note_over(slot, in, true);
    while (slot->conns)
        conn_reset(slot->conns, why);
}
