/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * A connection from its acceptance to its end; the stages are those of egress.h. Each stage has the client's readable event for itself:
 *
 *     PROXY ──┐                      ┌─> REFUSE ─> LINGER ─┐
 *             ├─> (judge) ─> SNIFF ──┼─> DIAL ─> RELAY ────┼─> dead
 *   accepted ─┘        └─ raw ──────>┤   └ PLAIN ──────────┤
 *                                    └─> BROKER ───────────┘
 *
 * Nothing is sent to a server before the decision about the first bytes was made. Every decision is told (conn_tell) before its
 * effect; when it cannot be told, it does not happen. A struct conn is small and has memory for bytes only while some are pending: idle connections are
 * cheap. conn_end() and conn_reset() may be called at any moment; what is left is freed between two rounds of the loop.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "egress/egress_priv.h"

#define PATIENCE_CLIENT_NS (500 * NS_PER_MS) /* for first bytes where the client speaks first, by custom */
#define PATIENCE_SERVER_NS (50 * NS_PER_MS)  /* and elsewhere */
#define ORIGINAL_DST 80 /* SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST: the netfilter headers do not mix with libc's */

/* ---- telling ---------------------------------------------------------------------------------------------------- */

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
    if ((conn->name && str_copy(event.name, sizeof event.name, conn->name) < 0) || (secret && str_copy(event.secret, sizeof event.secret, secret) < 0))
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
        snprintf(answer.why, sizeof answer.why, "%s", why);
        conn_tell(conn, GATE_CLOSED, &answer, NULL); /* out of memory: the counts have the bytes */
    }
    conn->stage = CONN_DEAD;
    if (conn->dial)
        dial_cancel(take_ptr(&conn->dial));
    if (conn->broker)
        broker_stop(take_ptr(&conn->broker));
    budget_leave(conn);
    loop_timer_clear(egress->loop, &conn->timer);
    side_close(conn, &conn->client, reset);
    side_close(conn, &conn->server, reset);
    if (conn->prev)
        conn->prev->next = conn->next;
    else
        slot->conns = conn->next;
    if (conn->next)
        conn->next->prev = conn->prev;
    slot->counts.open--;
    conn->prev = NULL;
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
        judge_deny(&answer, conn->first.len > 0 ? "its first bytes are incomplete" : "it sent nothing, and no rule with protocol tcp lets the server speak first");
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
    conn->next = slot->conns;
    if (conn->next)
        conn->next->prev = conn;
    slot->conns = conn;
    slot->counts.open++;
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

void conn_judge_wanted(struct conn *conn)
{
    struct policy_answer answer;

    if (judge_wanted(conn, &answer))
        conn_proceed(conn);
    else
        conn_refuse(conn, &answer);
}

bool conn_brokered(const struct conn *conn)
{
    return conn->slot->broker && conn->name && broker_covers(conn->slot->broker, conn->name, conn->port);
}

/*
 * Bytes of any kind. A rule with protocol tcp means: whatever it is, it is not looked at. Where only the default allows, TLS and HTTP are held to what they
 * say about themselves (a rule may deny another name), and everything else goes through; a server may speak first as well, so we
 * wait for the client's first bytes only a moment, and look at them later if they come later.
 */
static bool any_bytes(struct conn *conn, bool *ret_by_rule)
{
    const struct policy *policy = conn->slot->policy;
    const struct policy_question question = {.name = conn->name, .addr = conn->name ? NULL : &conn->wanted, .port = conn->port, .seen = POLICY_SEEN_OTHER};
    struct policy_answer answer;

    if (conn_brokered(conn) || !policy_raw(policy, conn->name, question.addr, conn->port))
        return false;
    policy_judge(policy, &question, &answer);
    *ret_by_rule = answer.rule >= 0;
    return answer.allow;
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

static void on_first(struct conn *conn)
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

void conn_sniff(struct conn *conn)
{
    uint64_t patience = !conn->open ? CONN_SNIFF_NS : conn->port == 443 || conn->port == 80 ? PATIENCE_CLIENT_NS : PATIENCE_SERVER_NS;

    conn->stage = CONN_SNIFF;
    if (!conn_arm(conn, patience))
        return;
    if (side_watch(conn, &conn->client, EPOLLIN) < 0) {
        conn_reset(conn, "out of memory");
        return;
    }
    on_first(conn);
}

/* ---- out -------------------------------------------------------------------------------------------------------- */

static void on_dialled(void *ctx, int fd, const struct gate_addr *to, const struct policy_answer *answer, const struct brig_err *err)
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
    /* A request's method and path were judged by name; its address is judged by the dial, and the request again with that address. */
    enum policy_seen seen = conn->seen == POLICY_SEEN_HTTP ? POLICY_SEEN_NOTHING : (enum policy_seen)conn->seen;
    struct brig_err err = {0};

    conn->stage = CONN_DIAL;
    if (side_watch(conn, &conn->client, 0) < 0 || !conn_arm(conn, CONN_IDLE_NS))
        return;
    if (dial_start(conn->slot, conn->name, &conn->wanted, conn->port, seen, on_dialled, conn, &conn->dial, &err) < 0)
        conn_fail(conn, err.message);
}

/* ---- to the broker ---------------------------------------------------------------------------------------------- */

static bool broker_charge(void *ctx, uint64_t in, uint64_t out)
{
    struct conn *conn = ctx;
    const struct slot *slot = conn->slot;

    budget_charge(conn, true, (size_t)in);
    budget_charge(conn, false, (size_t)out);
    return (slot->limits.bytes_in == 0 || slot->counts.bytes_in <= slot->limits.bytes_in) &&
           (slot->limits.bytes_out == 0 || slot->counts.bytes_out <= slot->limits.bytes_out);
}

static void broker_event(void *ctx, enum gate_verdict verdict, const struct policy_answer *answer, const struct gate_addr *dialled, const char *secret)
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
    struct broker_start start = {.slot = conn->slot, .broker = conn->slot->broker, .name = conn->name, .wanted = conn->wanted, .port = conn->port,
                                 .plain = plain, .first = (const uint8_t *)conn->first.data, .first_len = conn->first.len, .charge = broker_charge,
                                 .event = broker_event, .scrubbed = broker_scrubbed, .done = broker_done, .ctx = conn};

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

/* ---- events of the loop ----------------------------------------------------------------------------------------- */

static void dispatch(struct conn *conn, struct side *side, uint32_t events)
{
    switch ((enum conn_stage)conn->stage) {
    case CONN_PROXY: proxy_io(conn); break;
    case CONN_SNIFF:
        if (conn_read_first(conn, EGRESS_FIRST_MAX) > 0)
            on_first(conn);
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

void conn_io(struct loop_source *source, uint32_t events)
{
    struct conn *conn = source->ctx;

    dispatch(conn, source == &conn->client.source ? &conn->client : &conn->server, events);
}

void conn_resume(struct conn *conn)
{
    if (conn->stage == CONN_PLAIN || conn->stage == CONN_RELAY) {
        relay_io(conn, &conn->client, EPOLLIN);
        if (conn->stage == CONN_PLAIN || conn->stage == CONN_RELAY)
            relay_io(conn, &conn->server, EPOLLIN);
        return;
    }
    if (conn->stage != CONN_SNIFF && conn->stage != CONN_PROXY)
        return;
    if (side_watch(conn, &conn->client, EPOLLIN) < 0)
        conn_reset(conn, "out of memory");
    else
        dispatch(conn, &conn->client, EPOLLIN);
}
