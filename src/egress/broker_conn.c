/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_conn.c: one brokered connection on the loop.
 *
 * Theory of operation. There are two sides, a client and an upstream. Between them is the flow of broker_flow.c, which
 * consists of steps. Each step looks at the state, does what can be done without waiting, and says whether anything
 * moved. A round runs all steps until nothing moves any more. A call that would have waited has set want_in or want_out
 * of its side, and the loop watches that. So backpressure needs no code of its own: a step without room does not read,
 * and nobody watches for what nobody reads.
 *
 * A step only notes the end (bconn_end()). The object is freed after the round, so that no step meets a freed one.
 * Decrypted bytes that wait inside OpenSSL make no event, so a timer continues a round that was cut short for fairness.
 */
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "egress/broker_priv.h"

#define ROUNDS 32u
#define PAUSE_NS (200 * NS_PER_MS)

void bconn_end(struct broker_conn *conn, const char *why)
{
    if (conn->over)
        return;
    conn->over = true;
    snprintf(conn->why, sizeof(conn->why), "%.*s", (int)sizeof(conn->why) - 1, why);
}

void bconn_event(struct broker_conn *conn, enum gate_verdict verdict, const char *why, const char *secret)
{
    struct policy_answer answer = conn->answer;

    if (why)
        snprintf(answer.why, sizeof(answer.why), "%.*s", (int)sizeof(answer.why) - 1, why);
    conn->start.event(conn->start.ctx, verdict, &answer, conn->up.fd >= 0 ? &conn->dialled : NULL, secret);
}

void bconn_drop_up(struct broker_conn *conn)
{
    if (conn->up.fd < 0)
        return;
    bside_keep_session(&conn->up, conn->start.broker, conn->name, conn->start.port);
    bside_shutdown(&conn->up);
    bside_close(&conn->up, conn->loop);
    conn->up_used = false;
}

static void destroy(struct broker_conn *conn)
{
    if (conn->dial)
        dial_cancel(conn->dial);
    loop_timer_clear(conn->loop, &conn->kick);
    loop_timer_clear(conn->loop, &conn->idle);
    loop_timer_clear(conn->loop, &conn->pause);
    bconn_drop_up(conn);
    bside_close(&conn->client, conn->loop);
    flow_over(conn);
    scan_done(&conn->scan);
    wbuf_done(&conn->from_up);
    wbuf_done(&conn->up_head);
    buf_done(&conn->in);
    buf_done(&conn->head_memory);
    buf_done(&conn->spool);
    buf_done(&conn->to_up);
    buf_done(&conn->to_client);
    mem_free(conn);
}

/* ---- rounds --------------------------------------------------------------------------------------------- */

static void charge(struct broker_conn *conn)
{
    uint64_t in = conn->client.bytes_out - conn->charged_in, out = conn->client.bytes_in - conn->charged_out;

    conn->charged_in += in;
    conn->charged_out += out;
    if ((in | out) != 0 && !conn->start.charge(conn->start.ctx, in, out))
        bconn_end(conn, "the budget is used up");
}

static bool flush_up(struct broker_conn *conn)
{
    if (conn->to_up.len == 0 || conn->up.fd < 0 || conn->request < REQUEST_BODY)
        return false;
    ssize_t n = bside_write(&conn->up, conn->to_up.data, conn->to_up.len);
    if (n == -EAGAIN)
        return false;
    if (n < 0) {
        /* It may have answered already, and does not want the rest. */
        buf_consume(&conn->to_up, conn->to_up.len);
        if (conn->request == REQUEST_TUNNEL)
            bconn_end(conn, "the upstream left");
        conn->close_client = conn->close_up = true;
        conn->request = REQUEST_SENT;
        return true;
    }
    buf_consume(&conn->to_up, (size_t)n);
    return true;
}

static bool flush_client(struct broker_conn *conn)
{
    if (conn->to_client.len == 0 || !conn->client.ready)
        return false;
    ssize_t n = bside_write(&conn->client, conn->to_client.data, conn->to_client.len);
    if (n == -EAGAIN)
        return false;
    if (n < 0) {
        bconn_end(conn, "the client left");
        return false;
    }
    buf_consume(&conn->to_client, (size_t)n);
    return true;
}

static void on_side(struct loop_source *source, uint32_t events);

/* A side nobody waits for is not watched at all: a hang-up could not be masked. */
static int watch(struct broker_conn *conn, struct bside *side, bool hangup, struct brig_err *err)
{
    uint32_t events = (side->want_in ? (uint32_t)EPOLLIN : 0) | (side->want_out ? (uint32_t)EPOLLOUT : 0);

    if (side->fd < 0)
        return 0;
    if (hangup && !side->want_in)
        events |= EPOLLRDHUP;
    if (events == side->events)
        return 0;
    int r = 0;
    if (events == 0) {
        loop_remove(conn->loop, &side->source);
    } else if (side->events == 0) {
        side->source.fn = on_side;
        side->source.ctx = conn;
        r = loop_add(conn->loop, &side->source, side->fd, events, err);
    } else {
        r = loop_modify(conn->loop, &side->source, events, err);
    }
    side->events = events;
    return r;
}

static uint64_t patience(const struct broker_conn *conn)
{
    switch (conn->request) {
    case REQUEST_HANDSHAKE: return 10 * NS_PER_SEC;
    case REQUEST_CONNECT: return 20 * NS_PER_SEC;
    case REQUEST_HEAD: return 120 * NS_PER_SEC;
    case REQUEST_LINGER: return 1 * NS_PER_SEC;
    case REQUEST_SPOOL:
    case REQUEST_SEND:
    case REQUEST_BODY:
    case REQUEST_SENT:
    case REQUEST_TUNNEL:
    case REQUEST_CLOSING:
    default: return 900 * NS_PER_SEC;
    }
}

static int arm(struct broker_conn *conn, bool again, struct brig_err *err)
{
    uint64_t now = loop_now_ns();
    /* TLS is not closed in halves by anyone who still waits for an answer */
    bool hangup =
        conn->client.ssl && conn->to_up.len == 0 && (conn->request == REQUEST_SENT || conn->request == REQUEST_CONNECT);
    int r = watch(conn, &conn->client, hangup, err);

    if (r == 0)
        r = watch(conn, &conn->up, false, err);
    if (r == 0)
        r = loop_timer_set(conn->loop, &conn->idle, now + patience(conn), err);
    if (r == 0 && again)
        r = loop_timer_set(conn->loop, &conn->kick, now, err);
    if (r == 0 && scan_holds(&conn->scan) && conn->up.want_in)
        return loop_timer_set(conn->loop, &conn->pause, now + PAUSE_NS, err);
    loop_timer_clear(conn->loop, &conn->pause);
    return r;
}

static void finish(struct broker_conn *conn)
{
    char why[sizeof(conn->why)];
    void (*done)(void *ctx, const char *why) = conn->start.done;
    void *ctx = conn->start.ctx;

    memcpy(why, conn->why, sizeof(why));
    destroy(conn);
    done(ctx, why);
}

/* The slot has used its bytes of this moment: nothing is read or written until it may again. */
static bool wait_for_bytes(struct broker_conn *conn)
{
    uint64_t wait = slot_wait_ns(conn->start.slot);
    struct brig_err err = {0};

    if (wait == 0 || conn->over)
        return false;
    conn->client.want_in = conn->client.want_out = conn->up.want_in = conn->up.want_out = false;
    if (arm(conn, false, &err) == 0 && loop_timer_set(conn->loop, &conn->kick, loop_now_ns() + wait, &err) == 0)
        return true;
    bconn_end(conn, err.message);
    return false;
}

static void run(struct broker_conn *conn)
{
    struct brig_err err = {0};
    unsigned rounds = 0;
    bool moved = true;

    if (conn->running || wait_for_bytes(conn))
        return;
    conn->running = true;
    conn->client.read_waits = conn->client.write_waits = conn->up.read_waits = conn->up.write_waits = WAIT_NOT;
    while (moved && !conn->over && rounds++ < ROUNDS && slot_wait_ns(conn->start.slot) == 0) {
        conn->client.want_in = conn->client.want_out = conn->up.want_in = conn->up.want_out = false;
        moved = request_step(conn);
        if (!conn->over && reply_step(conn))
            moved = true;
        /* Written when nothing more can be put together, or enough is there. */
        if (!conn->over && (!moved || conn->to_client.len >= BROKER_PIECE || conn->to_up.len >= BROKER_PIECE)) {
            if (flush_up(conn))
                moved = true;
            if (!conn->over && flush_client(conn))
                moved = true;
        }
        charge(conn);
    }
    conn->running = false;
    if (!conn->over && arm(conn, moved, &err) < 0)
        bconn_end(conn, err.message);
    if (conn->over)
        finish(conn);
}

static void on_side(struct loop_source *source, uint32_t events)
{
    struct broker_conn *conn = source->ctx;

    /* Where the side is read, reading tells. */
    if (source == &conn->client.source && (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) &&
        !(conn->client.events & EPOLLIN))
        bconn_end(conn, "the client left");
    run(conn);
}

static void on_kick(struct loop_timer *timer)
{
    run(timer->ctx);
}

static void on_idle(struct loop_timer *timer)
{
    struct broker_conn *conn = timer->ctx;

    if (conn->request == REQUEST_CONNECT && conn->up.fd >= 0)
        flow_fail(conn, 504, "TLS with the upstream took too long");
    else
        bconn_end(conn,
                  conn->request == REQUEST_LINGER || conn->request == REQUEST_HEAD ? "" : "nothing moved for too long");
    run(conn);
}

static void on_pause(struct loop_timer *timer)
{
    flow_pause(timer->ctx);
    run(timer->ctx);
}

/* ---- dialling ------------------------------------------------------------------------------------------- */

static void on_dial(void *ctx, int fd, const struct gate_addr *to, const struct policy_answer *answer,
                    const struct brig_err *err)
{
    struct broker_conn *conn = ctx;
    struct brig_err failure = {0};

    conn->dial = NULL;
    conn->dialling = false;
    if (fd < 0) {
        if (answer && err->code == BRIG_E_REFUSED) {
            conn->answer = *answer;
            bconn_event(conn, GATE_DENIED, NULL, NULL);
            flow_answer(conn, 403, answer->why);
        } else {
            flow_fail(conn, 502, err->message);
        }
        run(conn);
        return;
    }
    bside_init(&conn->up, fd);
    conn->up.name = conn->name;
    conn->dialled = *to;
    conn->up_used = false;
    if (!conn->start.plain && bside_connect(&conn->up, conn->start.broker, conn->name, conn->start.port, &failure) < 0)
        flow_fail(conn, 502, failure.message);
    run(conn);
}

int bconn_dial(struct broker_conn *conn, struct brig_err *err)
{
    struct dial *dial = NULL;

    conn->dialling = true;
    /* Methods and paths were judged already; what is left to be judged is the address. */
    int r = dial_start(conn->start.slot, conn->name, &conn->start.wanted, conn->start.port, POLICY_SEEN_NOTHING,
                       on_dial, conn, &dial, err);
    if (r < 0)
        conn->dialling = false;
    else if (conn->dialling)
        conn->dial = dial;
    return r;
}

/* ---- beginning and end ---------------------------------------------------------------------------------- */

static int begin(struct broker_conn *conn, const struct broker_start *start, struct brig_err *err)
{
    if (str_copy(conn->name, sizeof(conn->name), start->name) < 0)
        return err_usage(err, "the name is too long");
    conn->start.name = conn->name;
    conn->start.first = NULL;
    conn->client.first_memory = mem_alloc(start->first_len + 1);
    if (!conn->client.first_memory)
        return err_nomem(err);
    if (start->first_len > 0)
        memcpy(conn->client.first_memory, start->first, start->first_len);
    conn->client.first = conn->client.first_memory;
    conn->client.first_len = start->first_len;
    if (!start->plain) {
        int r =
            bside_accept(&conn->client, start->broker, conn->name, policy_allows_no_sni(slot_policy(start->slot)), err);
        if (r < 0)
            return r;
    }
    conn->request = start->plain ? REQUEST_HEAD : REQUEST_HANDSHAKE;
    return loop_timer_set(conn->loop, &conn->kick, loop_now_ns(), err);
}

int broker_start(const struct broker_start *start, struct broker_conn **ret, struct brig_err *err)
{
    struct broker_conn *conn = mem_zalloc(sizeof(*conn));

    if (!conn)
        return err_nomem(err);
    conn->start = *start;
    conn->loop = egress_loop(slot_egress(start->slot));
    bside_init(&conn->client, start->fd);
    bside_init(&conn->up, -1);
    conn->kick = (struct loop_timer){.fn = on_kick, .ctx = conn};
    conn->idle = (struct loop_timer){.fn = on_idle, .ctx = conn};
    conn->pause = (struct loop_timer){.fn = on_pause, .ctx = conn};
    conn->in = BUF_INIT(BROKER_HEAD_MAX + BROKER_PIECE);
    conn->spool = BUF_INIT(BROKER_SPOOL_MAX);
    conn->to_up = BUF_INIT(BROKER_SPOOL_MAX + BROKER_HIGH);
    conn->to_client = BUF_INIT(4u << 20); /* far above BROKER_HIGH: a placeholder is longer than some values */
    conn->from_up = WBUF_INIT(BROKER_HEAD_MAX + BROKER_PIECE);
    conn->up_head = WBUF_INIT(BROKER_OUT_MAX);
    int r = begin(conn, start, err);
    if (r < 0) {
        destroy(conn);
        return r;
    }
    *ret = conn;
    return 0;
}

void broker_stop(struct broker_conn *conn)
{
    if (conn)
        destroy(conn);
}
