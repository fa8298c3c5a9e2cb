/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sniff.c: finds out what a connection says it is. Its first bytes are a ClientHello, the head of a request, or
 * something else. The decision is made before any byte is passed on. Nothing here waits: what is not complete yet is
 * looked at again when more has come.
 */
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/str.h"
#include "egress/egress_priv.h"

#define PATIENCE_CLIENT_NS (500 * NS_PER_MS) /* for first bytes where the client speaks first, by custom */
#define PATIENCE_SERVER_NS (50 * NS_PER_MS)  /* and elsewhere */

static void conn_sniff(struct conn *conn);

/*
 * Bytes of any kind. A rule with the protocol tcp means that nothing is looked at. Where only the default allows, TLS
 * and HTTP must be what they say about themselves (a rule may deny another name), and everything else passes. A server
 * may speak first, so the gate waits only a moment for the client's first bytes, and looks at them later if they come
 * later.
 */
static bool any_bytes(struct conn *conn, bool *ret_by_rule)
{
    const struct policy *policy = conn->slot->policy;
    const struct policy_question question = {
        .name = conn->name, .addr = conn->name ? NULL : &conn->wanted, .port = conn->port, .seen = POLICY_SEEN_OTHER};
    struct policy_answer answer;

    if (conn_brokered(conn) || !policy_raw(policy, conn->name, question.addr, conn->port))
        return false;
    policy_judge(policy, &question, &answer);
    *ret_by_rule = answer.rule >= 0;
    return answer.allow;
}

void sniff_refresh(struct conn *conn)
{
    bool by_rule;

    conn->open = conn->open && any_bytes(conn, &by_rule);
}

void conn_proceed(struct conn *conn)
{
    bool by_rule = false;

    conn->open = any_bytes(conn, &by_rule);
    if (conn->open && by_rule) {
        conn->open = false;
        conn->raw = true;
        conn->seen = POLICY_SEEN_OTHER;
        conn_dial(conn);
    } else {
        conn_sniff(conn);
    }
}

/* ---- the first bytes -------------------------------------------------------------------------------------------- */

ssize_t conn_read_first(struct conn *conn, size_t max)
{
    char *chunk = conn->slot->egress->chunk;
    size_t want = max - conn->first.len, room = 0;

    if (want == 0)
        return 0;
    enum grant grant = budget_grant(conn, false, want < EGRESS_CHUNK ? want : EGRESS_CHUNK, &room);
    if (grant == GRANT_WAIT) {
        if (side_watch(conn, &conn->client, 0) < 0)
            conn_reset(conn, "out of memory");
        else
            budget_wait(conn);
        return 0;
    }
    if (grant == GRANT_OVER) {
        budget_over(conn->slot, false);
        return 0;
    }
    ssize_t n = recv(conn->client.fd, chunk, room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) {
        conn_end(conn, "");
        return 0;
    }
    budget_charge(conn, false, (size_t)n);
    if (buf_append(&conn->first, chunk, (size_t)n) < 0) {
        conn_reset(conn, "out of memory");
        return 0;
    }
    return n;
}

static void refuse_bytes(struct conn *conn, const char *why)
{
    struct policy_answer answer;

    judge_deny(&answer, "%s", why);
    conn_refuse(conn, &answer);
}

static void on_hello(struct conn *conn, const struct tls_hello *hello)
{
    struct policy_answer answer;

    conn->seen = POLICY_SEEN_TLS;
    if (conn_brokered(conn)) {
        /* The broker judges requests; whether the hello fits the name is still our question. */
        if (hello->has_name && !hello->ech && str_eq(hello->name, conn->name)) {
            conn_to_broker(conn, false);
        } else {
            refuse_bytes(conn, "the ClientHello does not name the brokered host");
        }
        return;
    }
    if (judge_hello(conn, hello, &answer))
        conn_dial(conn);
    else
        conn_refuse(conn, &answer);
}

static void on_http(struct conn *conn)
{
    conn->seen = POLICY_SEEN_HTTP;
    if (conn_brokered(conn)) {
        conn_to_broker(conn, true);
        return;
    }
    if (plain_start(conn) < 0)
        conn_reset(conn, "out of memory");
}

enum look { LOOK_MORE, LOOK_TLS, LOOK_HTTP, LOOK_OTHER, LOOK_LONG, LOOK_BAD };

static enum look look(const struct conn *conn, struct tls_hello *hello)
{
    const uint8_t *data = (const uint8_t *)conn->first.data;
    size_t len = conn->first.len;
    bool more = false;

    if (len == 0)
        return LOOK_MORE;
    int r = tls_hello_parse(data, len, hello);
    if (r > 0)
        return LOOK_TLS;
    if (r == 0)
        return len >= EGRESS_FIRST_MAX ? LOOK_LONG : LOOK_MORE;
    if (r != -EPROTO)
        return LOOK_BAD;
    /* Where other protocols may be spoken, "EHLO x" must not be taken for a request. */
    if (conn->open ? http_line(data, len, &more) : http_begins(data, len, &more))
        return LOOK_HTTP;
    return more ? LOOK_MORE : LOOK_OTHER;
}

void sniff_look(struct conn *conn)
{
    struct tls_hello hello;

    switch (look(conn, &hello)) {
    case LOOK_MORE: return;
    case LOOK_TLS: on_hello(conn, &hello); return;
    case LOOK_HTTP: on_http(conn); return;
    case LOOK_LONG:
    case LOOK_BAD:
        conn->seen = POLICY_SEEN_TLS;
        refuse_bytes(conn, "the ClientHello is malformed, or too long");
        return;
    case LOOK_OTHER:
        conn->seen = POLICY_SEEN_OTHER;
        if (conn->open)
            conn_dial(conn);
        else
            refuse_bytes(conn, "neither TLS nor HTTP, and no rule with protocol tcp");
        return;
    }
}

/* The first bytes come after the dial: they are held back until it is clear what they are. */
void conn_look_late(struct conn *conn)
{
    struct tls_hello hello;
    struct policy_answer answer;
    enum look what = look(conn, &hello);

    if (what == LOOK_MORE && !conn->client.eof)
        return;
    conn->looking = false;
    if (what == LOOK_TLS || what == LOOK_LONG || what == LOOK_BAD)
        conn->seen = POLICY_SEEN_TLS;
    if (what == LOOK_LONG || what == LOOK_BAD) {
        refuse_bytes(conn, "the ClientHello is malformed, or too long");
    } else if (what == LOOK_HTTP) {
        on_http(conn);
        if (conn->client.eof && conn->plain && conn->stage == CONN_PLAIN)
            plain_eof(conn, &conn->client);
    } else if (what == LOOK_TLS && !judge_hello(conn, &hello, &answer)) {
        conn_refuse(conn, &answer);
    } else {
        relay_first(conn);
    }
}

/* Begins; first may have bytes already. */
static void conn_sniff(struct conn *conn)
{
    uint64_t patience = !conn->open                             ? CONN_SNIFF_NS
                        : conn->port == 443 || conn->port == 80 ? PATIENCE_CLIENT_NS
                                                                : PATIENCE_SERVER_NS;

    conn->stage = CONN_SNIFF;
    if (!conn_arm(conn, patience))
        return;
    if (side_watch(conn, &conn->client, EPOLLIN) < 0) {
        conn_reset(conn, "out of memory");
        return;
    }
    sniff_look(conn);
}
