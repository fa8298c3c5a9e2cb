/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn_broker.c: hands a connection over to the broker, and gives the slot what comes from there: bytes, decisions, the
 * end.
 */
#include "egress/egress_priv.h"

bool conn_brokered(const struct conn *conn)
{
    return conn->slot->broker && conn->name && broker_covers(conn->slot->broker, conn->name, conn->port);
}

static bool broker_charge(void *ctx, uint64_t in, uint64_t out)
{
    struct conn *conn = ctx;
    struct slot *slot = conn->slot;

    budget_charge(conn, true, (size_t)in);
    budget_charge(conn, false, (size_t)out);
    bool over_in = slot->limits.bytes_in > 0 && slot->counts.bytes_in >= slot->limits.bytes_in;
    bool over_out = slot->limits.bytes_out > 0 && slot->counts.bytes_out >= slot->limits.bytes_out;
    budget_note_over(slot, true, over_in);
    budget_note_over(slot, false, over_out);
    return !over_in && !over_out; /* this one ends; the next is denied */
}

static void broker_event(void *ctx, enum gate_verdict verdict, const struct policy_answer *answer,
                         const struct gate_addr *dialled, const char *secret)
{
    struct conn *conn = ctx;

    if (dialled)
        conn->dialled = *dialled;
    if (secret && secret[0] != '\0') {
        if (verdict == GATE_ALLOWED)
            conn->slot->counts.substituted++;
        else if (verdict == GATE_DENIED)
            conn->slot->counts.foreign_placeholders++;
    }
    conn_tell(conn, verdict, answer, secret);
}

static void broker_scrubbed(void *ctx, uint64_t n)
{
    struct conn *conn = ctx;

    conn->slot->counts.scrubbed += n;
}

static void broker_done(void *ctx, const char *why)
{
    struct conn *conn = ctx;

    conn->broker = NULL;
    conn_end(conn, why);
}

void conn_to_broker(struct conn *conn, bool plain)
{
    struct brig_err err = {0};
    struct broker_start start = {.slot = conn->slot,
                                 .broker = conn->slot->broker,
                                 .name = conn->name,
                                 .wanted = conn->wanted,
                                 .port = conn->port,
                                 .plain = plain,
                                 .first = (const uint8_t *)conn->first.data,
                                 .first_len = conn->first.len,
                                 .charge = broker_charge,
                                 .event = broker_event,
                                 .scrubbed = broker_scrubbed,
                                 .done = broker_done,
                                 .ctx = conn};

    conn->stage = CONN_BROKER;
    loop_remove(conn->slot->egress->loop, &conn->client.source);
    start.fd = take_fd(&conn->client.fd);
    if (!conn_arm(conn, CONN_IDLE_NS))
        return;
    if (broker_start(&start, &conn->broker, &err) < 0) {
        conn_fail(conn, err.message);
        return;
    }
    buf_done(&conn->first);
    conn->first = BUF_INIT(EGRESS_FIRST_MAX);
}
