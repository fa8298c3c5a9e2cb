/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn.c: a connection from its acceptance to its end. Theory of operation:
 *
 * The stages are those of egress.h. Each stage has the client's readable event for itself:
 *
 *     PROXY ──┐                      ┌─> REFUSE ─> LINGER ─┐
 *             ├─> (judge) ─> SNIFF ──┼─> DIAL ─> RELAY ────┼─> dead
 *   accepted ─┘        └─ raw ──────>┤   └ PLAIN ──────────┤
 *                                    └─> BROKER ───────────┘
 *
 * Nothing is sent to a server before the decision about the first bytes was made. Every decision is reported
 * (conn_tell) before its effect; if it cannot be reported, it does not happen. A struct conn is small and has memory
 * for bytes only while some are pending, so idle connections are cheap. conn_end() and conn_reset() may be called at
 * any moment; what is left is freed between two rounds of the loop.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/str.h"
#include "egress/egress_priv.h"

#define KEPT_FREE 4096u /* bytes of one connection that count for nothing */
#define ORIGINAL_DST 80 /* SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST: the netfilter headers do not mix with libc's */

/* ---- telling ---------------------------------------------------------------------------------------------------- */

static void conn_io(struct loop_source *source, uint32_t events);

static void conn_judge_wanted(struct conn *conn);

bool conn_tell(struct conn *conn, enum gate_verdict verdict, const struct policy_answer *answer, const char *secret)
{
    struct slot *slot = conn->slot;
    struct gate_event event;

    memset(&event, 0, sizeof event);
    event.head = (struct gate_head){GATE_MAGIC, GATE_VERSION, GATE_EVENT, slot->number};
    event.policy_version = slot->version;
    event.connection = conn->id;
    event.verdict = verdict;
    event.rule = answer->rule;
    event.seen = conn->seen;
    event.wanted = conn->wanted;
    if (event.wanted.port == 0)
        event.wanted.port = conn->port;
    event.dialled = conn->dialled;
    event.bytes_in = conn->bytes_in;
    event.bytes_out = conn->bytes_out;
    memcpy(event.why, answer->why, sizeof event.why);
    event.why[sizeof event.why - 1] = '\0';
    if ((conn->name && str_copy(event.name, sizeof event.name, conn->name) < 0) ||
        (secret && str_copy(event.secret, sizeof event.secret, secret) < 0))
        return false;
    if (outbox_event(slot, &event) < 0)
        return false;
    if (verdict == GATE_ALLOWED) {
        slot->counts.allowed++;
        conn->announced = true;
    } else if (verdict == GATE_DENIED) {
        slot->counts.denied++;
    }
    return true;
}

void conn_peer_text(const struct conn *conn, char *out, size_t size)
{
    struct gate_addr addr = conn->wanted;
    char text[GATE_ADDR_TEXT];

    addr.port = conn->port;
    gate_addr_text(&addr, text);
    if ((conn->name ? str_format(out, size, "%s:%u", conn->name, conn->port) : str_format(out, size, "%s", text)) < 0)
        out[0] = '\0';
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

static void finish(struct conn *conn, const char *why, bool reset)
{
    struct slot *slot = conn->slot;
    struct egress *egress = slot->egress;

    if (conn->stage == CONN_DEAD)
        return;
    if (conn->announced) {
        struct policy_answer answer = {.allow = true, .rule = conn->rule};
        str_cut(answer.why, sizeof answer.why, why);
        conn_tell(conn, GATE_CLOSED, &answer, NULL); /* out of memory: the counts have the bytes */
    }
    conn->stage = CONN_DEAD;
    if (conn->dial)
        dial_cancel(take_ptr(&conn->dial));
    if (conn->broker)
        broker_stop(take_ptr(&conn->broker));
    budget_leave(conn);
    slot_give_memory(slot, conn->held);
    conn->held = 0;
    loop_timer_clear(egress->loop, &conn->timer);
    side_close(conn, &conn->client, reset);
    side_close(conn, &conn->server, reset);
    list_remove(&slot->conns, conn);
    slot->counts.open--;
    share_give(slot, SHARE_CONNECTIONS, CONN_DESCRIPTORS);
    conn->next = egress->dead;
    egress->dead = conn;
}

void conn_end(struct conn *conn, const char *why)
{
    finish(conn, why, false);
}

void conn_reset(struct conn *conn, const char *why)
{
    finish(conn, why, true);
}

void conn_free(struct conn *conn)
{
    plain_free(conn);
    buf_done(&conn->first);
    mem_free(conn->name);
    mem_free(conn->why);
    mem_free(conn);
}

/* ---- time ------------------------------------------------------------------------------------------------------- */

bool conn_arm(struct conn *conn, uint64_t after_ns)
{
    uint64_t at = loop_now_ns() + after_ns;

    if (at > conn->until_ns)
        at = conn->until_ns;
    if (loop_timer_set(conn->slot->egress->loop, &conn->timer, at, NULL) == 0)
        return true;
    conn_reset(conn, "out of memory");
    return false;
}

static void on_time(struct loop_timer *timer)
{
    struct conn *conn = timer->ctx;
    uint64_t now = loop_now_ns();
    struct policy_answer answer;

    if (now >= conn->until_ns) {
        conn_reset(conn, "limits.lifetime");
        return;
    }
    switch ((enum conn_stage)conn->stage) {
    case CONN_SNIFF:
        if (conn->open) {
            conn->looking = true;
            conn->seen = POLICY_SEEN_OTHER;
            conn_dial(conn);
            return;
        }
        judge_deny(&answer, conn->first.len > 0
                                ? "its first bytes are incomplete"
                                : "it sent nothing, and no rule with protocol tcp lets the server speak first");
        conn_tell(conn, GATE_DENIED, &answer, NULL);
        conn_reset(conn, "");
        return;
    case CONN_REFUSE: conn_refuse_late(conn); return;
    case CONN_PROXY: conn_reset(conn, ""); return;
    case CONN_LINGER: conn_end(conn, ""); return;
    case CONN_DIAL:
    case CONN_BROKER: conn_arm(conn, CONN_IDLE_NS); return;
    case CONN_PLAIN:
    case CONN_RELAY:
        if (now - conn->last_ns >= CONN_IDLE_NS)
            conn_reset(conn, "idle");
        else
            conn_arm(conn, CONN_IDLE_NS - (now - conn->last_ns));
        return;
    case CONN_DEAD: return;
    }
}

/* ---- the beginning ---------------------------------------------------------------------------------------------- */

static int wanted_of(int fd, enum gate_kind kind, struct gate_addr *ret)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof addr;

    if (getsockname(fd, (struct sockaddr *)&addr, &len) < 0)
        return -errno;
    int r = gate_addr_from(&addr, ret);
    if (r < 0 || kind != GATE_REDIRECT)
        return r;
    len = sizeof addr;
    bool v4 = gate_addr_is_v4(ret);
    if (getsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, ORIGINAL_DST, &addr, &len) < 0)
        return -errno;
    return gate_addr_from(&addr, ret);
}

static struct conn *conn_create(struct slot *slot, int fd)
{
    struct conn *conn = mem_zalloc(sizeof *conn);
    uint64_t now = loop_now_ns(), lifetime = slot->limits.lifetime_ms;

    if (!conn)
        return NULL;
    conn->slot = slot;
    conn->id = ++slot->egress->next_conn;
    conn->client.fd = fd;
    conn->server.fd = -1;
    conn->client.source = conn->server.source = (struct loop_source){.fd = -1, .fn = conn_io, .ctx = conn};
    conn->timer = (struct loop_timer){.fn = on_time, .ctx = conn};
    conn->last_ns = now;
    conn->until_ns = lifetime > 0 && lifetime < UINT64_MAX / (4 * NS_PER_MS) ? now + lifetime * NS_PER_MS : UINT64_MAX;
    conn->first = BUF_INIT(EGRESS_FIRST_MAX);
    list_push(&slot->conns, conn);
    slot->counts.open++;
    share_charge(slot, SHARE_CONNECTIONS, CONN_DESCRIPTORS); /* listener.c has asked */
    return conn;
}

void conn_accept(struct slot *slot, int sock, enum gate_kind kind)
{
    AUTO_FD int fd = sock;
    struct gate_addr wanted;
    int on = 1;

    if (wanted_of(fd, kind, &wanted) < 0)
        return;
    struct conn *conn = conn_create(slot, fd);
    if (!conn)
        return;
    take_fd(&fd);
    setsockopt(conn->client.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (kind == GATE_PROXY) {
        conn->proxied = true;
        proxy_start(conn);
        return;
    }
    conn->wanted = wanted;
    conn->port = wanted.port;
    conn_judge_wanted(conn);
}

/* wanted and port (or name) are set. It refuses, sniffs or dials. */
static void conn_judge_wanted(struct conn *conn)
{
    struct policy_answer answer;

    if (judge_wanted(conn, &answer))
        conn_proceed(conn);
    else
        conn_refuse(conn, &answer);
}

/* ---- out -------------------------------------------------------------------------------------------------------- */

static void on_dialled(void *ctx, int fd, const struct gate_addr *to, const struct policy_answer *answer,
                       const struct brig_err *err)
{
    struct conn *conn = ctx;

    conn->dial = NULL;
    if (fd < 0) {
        if (err->code == BRIG_E_REFUSED)
            conn_refuse(conn, answer);
        else
            conn_fail(conn, err->message);
        return;
    }
    conn->server.fd = fd;
    conn->dialled = *to;
    conn->rule = answer->rule;
    conn->last_ns = loop_now_ns();
    /* The policy may have been replaced after the address was judged. */
    struct policy_answer again;
    if (conn->version != conn->slot->version && !judge_again(conn, &again)) {
        conn_refuse(conn, &again);
        return;
    }
    if (conn->plain) {
        conn->stage = CONN_PLAIN;
        plain_dialled(conn);
    } else if (conn_tell(conn, GATE_ALLOWED, answer, NULL)) {
        relay_start(conn);
    } else {
        conn_reset(conn, "out of memory");
    }
}

void conn_dial(struct conn *conn)
{
    /* A request's method and path were judged by name; its address is judged by the dial, and the request again with
     * that address. */
    enum policy_seen seen = conn->seen == POLICY_SEEN_HTTP ? POLICY_SEEN_NOTHING : (enum policy_seen)conn->seen;
    struct brig_err err = {0};

    conn->stage = CONN_DIAL;
    conn->version = conn->slot->version;
    if (side_watch(conn, &conn->client, 0) < 0 || !conn_arm(conn, CONN_IDLE_NS))
        return;
    if (dial_start(conn->slot, conn->name, &conn->wanted, conn->port, seen, on_dialled, conn, &conn->dial, &err) < 0)
        conn_fail(conn, err.message);
}

/* ---- events of the loop ----------------------------------------------------------------------------------------- */

static void dispatch(struct conn *conn, struct side *side, uint32_t events)
{
    switch ((enum conn_stage)conn->stage) {
    case CONN_PROXY: proxy_io(conn); break;
    case CONN_SNIFF:
        if (conn_read_first(conn, EGRESS_FIRST_MAX) > 0)
            sniff_look(conn);
        break;
    case CONN_REFUSE: conn_refuse_io(conn); break;
    case CONN_LINGER: conn_linger_io(conn); break;
    case CONN_PLAIN:
    case CONN_RELAY: relay_io(conn, side, events); break;
    case CONN_DIAL:
    case CONN_BROKER:
    case CONN_DEAD: break;
    }
}

/*
 * Bytes that are kept because their message is not complete count as those that wait for slow readers do. A connection
 * with few of them counts by its descriptors only.
 */
static void count_kept(struct conn *conn)
{
    struct slot *slot = conn->slot;
    struct policy_answer answer;

    if (conn->stage == CONN_DEAD)
        return;
    size_t kept = conn->first.cap + (conn->plain ? plain_kept(conn) : 0), count = kept > KEPT_FREE ? kept : 0;
    if (count > conn->held && !slot_take_memory(slot, count - conn->held)) {
        judge_deny(&answer, "too many bytes of messages that are not complete");
        conn_tell(conn, GATE_DENIED, &answer, NULL);
        conn_reset(conn, answer.why);
        return;
    }
    if (count < conn->held)
        slot_give_memory(slot, conn->held - count);
    conn->held = count;
}

static void conn_io(struct loop_source *source, uint32_t events)
{
    struct conn *conn = source->ctx;

    dispatch(conn, source == &conn->client.source ? &conn->client : &conn->server, events);
    count_kept(conn);
}

void conn_resume(struct conn *conn)
{
    if (conn->stage == CONN_PLAIN || conn->stage == CONN_RELAY) {
        relay_io(conn, &conn->client, EPOLLIN);
        if (conn->stage == CONN_PLAIN || conn->stage == CONN_RELAY)
            relay_io(conn, &conn->server, EPOLLIN);
    } else if (conn->stage != CONN_SNIFF && conn->stage != CONN_PROXY) {
        return;
    } else if (side_watch(conn, &conn->client, EPOLLIN) < 0) {
        conn_reset(conn, "out of memory");
    } else {
        dispatch(conn, &conn->client, EPOLLIN);
    }
    count_kept(conn);
}
