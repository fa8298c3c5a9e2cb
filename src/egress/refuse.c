/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refuse.c: tells a program inside that a connection is refused. Over HTTP it gets a 403 whose body says what and why.
 * Everything else gets a reset: at once on 443, where TLS would follow, and after a second where the program may still
 * begin to speak HTTP.
 */
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "egress/egress_priv.h"

#define REFUSE_NS NS_PER_SEC /* to see whether it speaks HTTP */
#define LINGER_NS \
    (2 * NS_PER_SEC) /* to let it read the answer: closing with unread bytes is a reset that can overtake it */
#define DRAIN_MAX (1u << 20)
#define TEXT_MAX 1024u

bool http_begins(const uint8_t *data, size_t len, bool *ret_more)
{
    size_t n = 0;

    while (n < len && n < 20 && data[n] >= 'A' && data[n] <= 'Z')
        n++;
    *ret_more = n == len && n < 20;
    return n >= 3 && n < len && data[n] == ' ';
}

bool http_line(const uint8_t *data, size_t len, bool *ret_more)
{
    const uint8_t *end = memchr(data, '\n', len);

    *ret_more = false;
    if (!http_begins(data, len, ret_more))
        return false;
    if (!end) {
        *ret_more = len < HTTP_TARGET_MAX;
        return false;
    }
    size_t line = (size_t)(end - data);
    return line >= 10 && data[line - 1] == '\r' && memcmp(data + line - 10, " HTTP/1.", 8) == 0;
}

/* ---- answering --------------------------------------------------------------------------------------------------- */

static int put_answer(struct buf *out, unsigned status, const char *text)
{
    int r = http_put_status(out, status);

    if (r == 0)
        r = http_put_field(out, "Content-Type", "text/plain; charset=utf-8");
    if (r == 0)
        r = buf_printf(out, "Content-Length: %zu\r\n", strlen(text));
    if (r == 0)
        r = http_put_field(out, "Connection", "close");
    if (r == 0)
        r = http_put_end(out);
    return r == 0 ? buf_append_str(out, text) : r;
}

/* Reports nothing. */
static void conn_answer(struct conn *conn, unsigned status, const char *text)
{
    AUTO_BUF struct buf out = BUF_INIT(4096);

    side_close(conn, &conn->server, true);
    if (put_answer(&out, status, text) < 0 || side_put(conn, &conn->client, out.data, out.len) < 0) {
        conn_reset(conn, "");
        return;
    }
    budget_leave(conn);
    conn->stage = CONN_LINGER;
    side_shut(&conn->client);
    conn->until_ns = UINT64_MAX;
    if (conn_arm(conn, LINGER_NS) && side_watch(conn, &conn->client, EPOLLIN | (conn->client.pend ? EPOLLOUT : 0u)) < 0)
        conn_reset(conn, "");
}

static void explain(struct conn *conn, unsigned status, const char *how, const char *why)
{
    AUTO_BUF struct buf text = BUF_INIT(TEXT_MAX);
    char peer[DNS_NAME_MAX + 16];

    conn_peer_text(conn, peer, sizeof peer);
    if (buf_printf(&text, "brig: %s %s: %s\n", peer, how, why) < 0)
        conn_reset(conn, "");
    else
        conn_answer(conn, status, text.data);
}

void conn_linger_io(struct conn *conn)
{
    size_t drained = 0;
    ssize_t n;

    if (side_flush(conn, &conn->client) < 0) {
        conn_reset(conn, "");
        return;
    }
    while ((n = recv(conn->client.fd, conn->slot->egress->chunk, EGRESS_CHUNK, MSG_DONTWAIT)) > 0 &&
           drained < DRAIN_MAX)
        drained += (size_t)n;
    if (n >= 0 || (errno != EAGAIN && errno != EINTR)) {
        conn_end(conn, "");
        return;
    }
    if (side_watch(conn, &conn->client, EPOLLIN | (conn->client.pend ? EPOLLOUT : 0u)) < 0)
        conn_reset(conn, "");
}

/* ---- refusing ---------------------------------------------------------------------------------------------------- */

void conn_refuse_http(struct conn *conn, unsigned status, const struct policy_answer *answer)
{
    conn->seen = POLICY_SEEN_HTTP;
    conn_tell(conn, GATE_DENIED, answer, NULL);
    explain(conn, status, "is denied", answer->why);
}

static void wait_for_http(struct conn *conn, const struct policy_answer *answer)
{
    conn->why = mem_strdup(answer->why);
    conn->rule = answer->rule;
    conn->stage = CONN_REFUSE;
    if (!conn->why || side_watch(conn, &conn->client, EPOLLIN) < 0)
        conn_reset(conn, "");
    else
        conn_arm(conn, REFUSE_NS);
}

void conn_refuse(struct conn *conn, const struct policy_answer *answer)
{
    bool more = false, learns = (conn->slot->flags & GATE_LEARN) != 0,
         silent = conn->first.len == 0 && !conn->raw && conn->client.fd >= 0;

    if (conn->plain ||
        (conn->first.len > 0 && http_begins((const uint8_t *)conn->first.data, conn->first.len, &more))) {
        conn_refuse_http(conn, 403, answer);
        return;
    }
    /* Who learns wants to know what it would have been. */
    conn->untold = silent && learns;
    if (!conn->untold)
        conn_tell(conn, GATE_DENIED, answer, NULL);
    if (silent && (learns || conn->port != 443))
        wait_for_http(conn, answer);
    else
        conn_reset(conn, "");
}

static void tell_late(struct conn *conn, enum policy_seen seen)
{
    struct policy_answer answer = {.rule = conn->rule};

    if (!conn->untold)
        return;
    conn->untold = false;
    conn->seen = (uint8_t)seen;
    str_cut(answer.why, sizeof answer.why, conn->why);
    conn_tell(conn, GATE_DENIED, &answer, NULL);
}

void conn_refuse_late(struct conn *conn)
{
    tell_late(conn, conn->first.len > 0 ? POLICY_SEEN_OTHER : POLICY_SEEN_NOTHING);
    conn_reset(conn, "");
}

/* The decision is made: what comes now only changes the words. It is not charged: nothing of it goes anywhere. */
void conn_refuse_io(struct conn *conn)
{
    char data[1024];
    bool more = false;
    ssize_t n = recv(conn->client.fd, data, sizeof data, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || buf_append(&conn->first, data, (size_t)n) < 0) {
        conn_refuse_late(conn);
        return;
    }
    if (http_begins((const uint8_t *)conn->first.data, conn->first.len, &more)) {
        tell_late(conn, POLICY_SEEN_HTTP);
        explain(conn, 403, "is denied", conn->why);
    } else if (!more) {
        tell_late(conn, conn->first.data[0] == 0x16 ? POLICY_SEEN_TLS : POLICY_SEEN_OTHER);
        conn_reset(conn, "");
    }
}

void conn_fail(struct conn *conn, const char *why)
{
    struct policy_answer answer = {.allow = true, .rule = conn->rule};

    str_cut(answer.why, sizeof answer.why, why);
    conn_tell(conn, GATE_FAILED, &answer, NULL);
    if (conn->plain && conn->client.fd >= 0 && !plain_answering(conn))
        explain(conn, 502, "cannot be reached", answer.why);
    else
        conn_reset(conn, "");
}
