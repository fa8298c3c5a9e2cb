/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proxy.c: the explicit proxy, for programs that want one: HTTP CONNECT, http:// requests, SOCKS5. It only finds out
 * the destination. Every decision is the same as for a direct connection, and what goes through a tunnel is looked at
 * as well. Nobody is authenticated: the listener is inside one sandbox and decides by that sandbox's policy.
 */
#include <strings.h>
#include <sys/epoll.h>

#include "base/mem.h"
#include "base/str.h"
#include "codec/socks.h"
#include "egress/egress_priv.h"

void proxy_start(struct conn *conn)
{
    conn->stage = CONN_PROXY;
    if (conn_arm(conn, CONN_SNIFF_NS) && side_watch(conn, &conn->client, EPOLLIN) < 0)
        conn_reset(conn, "out of memory");
}

static int set_target(struct conn *conn, const struct authority *authority, uint16_t port)
{
    static const struct gate_addr nowhere;
    AUTO_FREE char *name = NULL;

    if (authority->name[0] != '\0') {
        name = mem_strdup(authority->name);
        if (!name)
            return -ENOMEM;
    }
    mem_free(conn->name);
    conn->name = take_ptr(&name);
    conn->wanted = conn->name ? nowhere : authority->addr;
    conn->wanted.port = port;
    conn->port = port;
    conn->dialled = nowhere;
    return 0;
}

static void refuse(struct conn *conn, unsigned status, const char *why)
{
    struct policy_answer answer;

    judge_deny(&answer, "%s", why);
    conn_refuse_http(conn, status, &answer);
}

/* ---- HTTP ----------------------------------------------------------------------------------------------- */

/*
 * A Host beside CONNECT's target must say the same (RFC 9112, 3.2); otherwise it would depend on the reader which of
 * the two is meant.
 */
static bool host_agrees(const struct http_head *head, const struct authority *target)
{
    const char *host = http_field(head, "host");
    struct authority said;

    if (!host || host[0] == '\0')
        return true;
    return authority_parse(host, strlen(host), &said) == 0 && (said.port == 0 || said.port == target->port) &&
           str_eq(said.name, target->name) && gate_addr_equal(&said.addr, &target->addr);
}

static void on_connect(struct conn *conn, const struct http_head *head, size_t took)
{
    static const char ok[] = "HTTP/1.1 200 Connection established\r\n\r\n";
    struct authority authority;
    struct policy_answer answer;

    if (authority_parse(head->target, strlen(head->target), &authority) < 0 || authority.port == 0) {
        refuse(conn, 400, "CONNECT wants host:port");
        return;
    }
    if (!host_agrees(head, &authority)) {
        refuse(conn, 400, "Host is not CONNECT's target");
        return;
    }
    if (set_target(conn, &authority, authority.port) < 0) {
        conn_reset(conn, "out of memory");
        return;
    }
    if (!judge_wanted(conn, &answer)) {
        conn_refuse_http(conn, 403, &answer);
        return;
    }
    buf_consume(&conn->first, took);
    conn->spoken = true;
    if (side_put(conn, &conn->client, ok, sizeof ok - 1) < 0)
        conn_reset(conn, "the client has gone");
    else
        conn_proceed(conn);
}

static void on_http(struct conn *conn)
{
    struct http_head head;
    struct brig_err err = {0};
    size_t scanned = 0;
    AUTO_FREE char *copy = mem_alloc(conn->first.len); /* whoever serves the request parses it again */

    if (!copy) {
        conn_reset(conn, "out of memory");
        return;
    }
    memcpy(copy, conn->first.data, conn->first.len);
    int took = http_request_parse(copy, conn->first.len, NULL, &scanned, &head, &err);
    if (took == 0)
        return;
    if (took < 0)
        refuse(conn, (unsigned)-took, err.message);
    else if (http_field(&head, "x-unix-socket"))
        refuse(conn, 400, "x-unix-socket");
    else if (str_eq(head.method, "CONNECT"))
        on_connect(conn, &head, (size_t)took);
    else if (plain_start(conn) < 0)
        conn_reset(conn, "out of memory");
}

bool proxy_target(struct conn *conn, const struct http_head *head)
{
    struct authority authority;
    struct policy_answer answer;

    if (http_field(head, "x-unix-socket") || strncasecmp(head->target, "http://", 7) != 0) {
        refuse(conn, 400, "this is a proxy: it wants an http:// target, or CONNECT");
        return false;
    }
    const char *at = head->target + 7;
    if (authority_parse(at, strcspn(at, "/?"), &authority) < 0) {
        refuse(conn, 400, "the target's host is none");
        return false;
    }
    uint16_t port = authority.port != 0 ? authority.port : 80;
    bool same = conn->port == port &&
                (authority.name[0] != '\0' ? conn->name && str_eq(conn->name, authority.name)
                                           : !conn->name && gate_addr_equal(&conn->wanted, &authority.addr));
    if (same)
        return true;
    side_close(conn, &conn->server, false); /* of the last request */
    if (set_target(conn, &authority, port) < 0) {
        conn_reset(conn, "out of memory");
        return false;
    }
    if (judge_wanted(conn, &answer))
        return true;
    conn_refuse_http(conn, 403, &answer);
    return false;
}

/* ---- SOCKS5 --------------------------------------------------------------------------------------------- */

static void socks_refuse(struct conn *conn, enum socks_reply reply, const struct policy_answer *answer)
{
    uint8_t out[10];

    conn_tell(conn, GATE_DENIED, answer, NULL);
    socks_put_reply(out, reply);
    if (side_put(conn, &conn->client, out, sizeof out) < 0)
        conn_reset(conn, "");
    else
        conn_end(conn, "");
}

static bool socks_greeting(struct conn *conn)
{
    uint8_t out[2];
    int took = socks_greeting_parse((const uint8_t *)conn->first.data, conn->first.len);

    if (took == 0)
        return false;
    socks_put_method(out, took > 0);
    if (side_put(conn, &conn->client, out, sizeof out) < 0) {
        conn_reset(conn, "");
        return false;
    }
    if (took < 0) {
        struct policy_answer answer;
        judge_deny(&answer, "SOCKS without \"no authentication\"");
        conn_tell(conn, GATE_DENIED, &answer, NULL);
        conn_end(conn, "");
        return false;
    }
    buf_consume(&conn->first, (size_t)took);
    conn->proxy_state = 1;
    return true;
}

static void socks_connect(struct conn *conn, const struct socks_request *request)
{
    struct authority authority = {0};
    struct policy_answer answer;
    uint8_t out[10];

    if (request->is_name) {
        if (str_copy(authority.name, sizeof authority.name, request->name) < 0)
            return;
    } else if (request->v6) {
        memcpy(authority.addr.ip, request->address, 16);
    } else {
        authority.addr.ip[10] = authority.addr.ip[11] = 0xff;
        memcpy(authority.addr.ip + 12, request->address, 4);
    }
    if (set_target(conn, &authority, request->port) < 0) {
        conn_reset(conn, "out of memory");
        return;
    }
    if (!judge_wanted(conn, &answer)) {
        socks_refuse(conn, SOCKS_NOT_ALLOWED, &answer);
        return;
    }
    socks_put_reply(out, SOCKS_OK);
    conn->spoken = true;
    if (side_put(conn, &conn->client, out, sizeof out) < 0)
        conn_reset(conn, "the client has gone");
    else
        conn_proceed(conn);
}

static void on_socks(struct conn *conn)
{
    struct socks_request request = {0};
    enum socks_reply reply = SOCKS_FAILURE;
    struct policy_answer answer;

    if (conn->proxy_state == 0 && !socks_greeting(conn))
        return;
    int took = socks_request_parse((const uint8_t *)conn->first.data, conn->first.len, &request, &reply);
    if (took == 0)
        return;
    if (took < 0) {
        judge_deny(&answer, took == -EOPNOTSUPP ? "SOCKS: only CONNECT to a name or an address"
                                                : "SOCKS: a malformed request or name");
        socks_refuse(conn, reply, &answer);
        return;
    }
    buf_consume(&conn->first, (size_t)took);
    socks_connect(conn, &request);
}

void proxy_io(struct conn *conn)
{
    if (conn_read_first(conn, EGRESS_FIRST_MAX) <= 0)
        return;
    if (conn->proxy_state == 1 || conn->first.data[0] == 5) {
        on_socks(conn);
    } else if (conn->first.data[0] >= 'A' && conn->first.data[0] <= 'z') {
        on_http(conn);
    } else {
        struct policy_answer answer;
        judge_deny(&answer,
                   conn->first.data[0] == 4 ? "SOCKS4: only version 5 is spoken here" : "neither SOCKS5 nor HTTP");
        conn_tell(conn, GATE_DENIED, &answer, NULL);
        conn_reset(conn, "");
    }
}
