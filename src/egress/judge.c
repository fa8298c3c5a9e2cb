/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge.c: judges a connection. The policy answers about names, addresses, ports and requests. This file checks what
 * must hold before the policy is asked: a connection must say the same thing everywhere (the address that it connected
 * to, its SNI, its Host, its target), so that what was judged is what is meant.
 */
#include <netinet/in.h>
#include <stdarg.h>
#include <strings.h>

#include "base/mem.h"
#include "base/str.h"
#include "egress/egress_priv.h"

void judge_deny(struct policy_answer *ret, const char *format, ...)
{
    va_list args;

    ret->allow = false;
    ret->rule = -2;
    va_start(args, format);
    vsnprintf(ret->why, sizeof ret->why, format, args); /* cut off where it is too long: for people */
    va_end(args);
}

static bool ask(const struct conn *conn, const struct policy_question *question, struct policy_answer *ret)
{
    policy_judge(conn->slot->policy, question, ret);
    return ret->allow;
}

/* ---- where to -------------------------------------------------------------------------------------------------- */

static bool is_loopback(const struct gate_addr *addr)
{
    static const uint8_t zero[16];
    struct in6_addr in6;

    if (gate_addr_is_v4(addr))
        return addr->ip[12] == 127 || addr->ip[12] == 0;
    memcpy(&in6, addr->ip, sizeof in6);
    return IN6_IS_ADDR_LOOPBACK(&in6) || memcmp(addr->ip, zero, sizeof zero) == 0;
}

bool judge_wanted(struct conn *conn, struct policy_answer *ret)
{
    struct slot *slot = conn->slot;
    uint32_t number;

    if (!conn->name && gate_fake_number(&conn->wanted, &number)) {
        const char *name = names_find(slot->names, number);
        if (!name) {
            judge_deny(ret, "this address stands for no name here");
            return false;
        }
        conn->name = mem_strdup(name);
        if (!conn->name) {
            judge_deny(ret, "out of memory");
            return false;
        }
    }
    /* Its own loopback is inside; here it would be the host's. */
    if (!conn->name && !conn->proxied && is_loopback(&conn->wanted)) {
        judge_deny(ret, "loopback: a port that the gate serves");
        return false;
    }
    if (slot->over_in || slot->over_out) {
        judge_deny(ret, slot->over_in ? "net_bytes_in is used up" : "net_bytes_out is used up");
        return false;
    }
    const struct policy_question question = {
        .name = conn->name, .addr = conn->name ? NULL : &conn->wanted, .port = conn->port, .seen = POLICY_SEEN_NOTHING};
    return ask(conn, &question, ret);
}

/* A name inside a connection to an address: it may be any, but none that a rule denies. */
static bool name_not_denied(struct conn *conn, const char *name, enum policy_seen seen, const char *method,
                            const char *path, struct policy_answer *ret)
{
    const struct policy_question question = {
        .name = name, .addr = &conn->wanted, .port = conn->port, .seen = seen, .method = method, .path = path};

    return ask(conn, &question, ret) || ret->rule < 0;
}

bool judge_hello(struct conn *conn, const struct tls_hello *hello, struct policy_answer *ret)
{
    const struct policy *policy = conn->slot->policy;
    const struct policy_question question = {
        .name = conn->name, .addr = conn->name ? NULL : &conn->wanted, .port = conn->port, .seen = POLICY_SEEN_TLS};

    if (hello->ech && !policy_allows_ech(policy)) {
        judge_deny(ret, "the ClientHello is encrypted (ECH), and the policy does not allow that");
        return false;
    }
    if (conn->name && !hello->has_name && !policy_allows_no_sni(policy)) {
        judge_deny(ret, "the ClientHello has no server name, and the policy does not allow that");
        return false;
    }
    /* With ECH the outer name is the provider's: who allows it cannot have it compared. */
    if (conn->name && hello->has_name && !hello->ech && !str_eq(hello->name, conn->name)) {
        judge_deny(ret, "the ClientHello names %.80s", hello->name);
        return false;
    }
    if (!conn->name && hello->has_name && !name_not_denied(conn, hello->name, POLICY_SEEN_TLS, NULL, NULL, ret))
        return false;
    conn->ech = hello->ech;
    conn->no_sni = conn->name && !hello->has_name;
    return ask(conn, &question, ret);
}

bool judge_again(const struct conn *conn, struct policy_answer *ret)
{
    static const struct gate_addr nowhere;
    const struct policy *policy = conn->slot->policy;
    bool dialled = memcmp(&conn->dialled, &nowhere, sizeof nowhere) != 0;
    struct policy_question question = {.name = conn->name,
                                       .addr = dialled      ? &conn->dialled
                                               : conn->name ? NULL
                                                            : &conn->wanted,
                                       .port = conn->port,
                                       .seen = (enum policy_seen)conn->seen};

    ret->allow = true;
    if (conn->stage == CONN_PROXY || (conn->plain && conn->port == 0))
        return true; /* has said nothing yet */
    question.own = dialled ? own_ask(conn->slot->egress, &conn->dialled) : POLICY_OWN_NO;
    if (conn->stage == CONN_BROKER)
        question.seen = POLICY_SEEN_NOTHING; /* its requests are judged one by one */
    if (conn->seen == POLICY_SEEN_HTTP) {
        question.method = conn->plain ? plain_method(conn) : NULL;
        question.path = conn->plain ? plain_path(conn) : NULL;
        if (!question.path)
            question.seen = POLICY_SEEN_NOTHING;
    }
    if (conn->ech && !policy_allows_ech(policy))
        judge_deny(ret, "the policy does not allow ECH any more");
    else if (conn->no_sni && !policy_allows_no_sni(policy))
        judge_deny(ret, "the policy wants a server name now");
    else
        return ask(conn, &question, ret);
    return false;
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

int authority_parse(const char *text, size_t len, struct authority *ret)
{
    char host[GATE_ADDR_TEXT];
    const char *at = text, *end = text + len, *stop;

    memset(ret, 0, sizeof *ret);
    if (len > 0 && *at == '[') {
        stop = memchr(at, ']', len);
        if (!stop || (size_t)(stop - at) > sizeof host)
            return -EINVAL;
        memcpy(host, at + 1, (size_t)(stop - at) - 1);
        host[stop - at - 1] = '\0';
        if (!memchr(host, ':', (size_t)(stop - at) - 1) || gate_addr_parse(host, &ret->addr) < 0)
            return -EINVAL;
        stop++;
    } else {
        stop = memchr(at, ':', len);
        if (!stop)
            stop = end;
        size_t n = (size_t)(stop - at);
        bool address = false;
        if (n > 0 && n < sizeof host && !memchr(at, '\0', n)) {
            memcpy(host, at, n);
            host[n] = '\0';
            address = gate_addr_parse(host, &ret->addr) == 0;
        }
        if (!address && dns_name_canonical(at, n, ret->name) < 0)
            return -EINVAL;
    }
    if (stop == end)
        return 0;
    return *stop == ':' ? policy_port(stop + 1, (size_t)(end - stop) - 1, &ret->port) : -EINVAL;
}

/* Does this authority (of Host, or of an absolute target) mean where the connection goes? */
static bool authority_agrees(struct conn *conn, const char *what, const char *text, size_t len,
                             const struct http_head *head, struct policy_answer *ret)
{
    struct authority authority;

    if (authority_parse(text, len, &authority) < 0) {
        judge_deny(ret, "%s is not a host: %.60s", what, text);
        return false;
    }
    if (authority.port != 0 && authority.port != conn->port) {
        judge_deny(ret, "%s has port %u", what, authority.port);
        return false;
    }
    if (conn->name) {
        if (str_eq(authority.name, conn->name))
            return true;
        judge_deny(ret, "%s is %.80s", what, text);
        return false;
    }
    if (authority.name[0] == '\0') {
        if (gate_addr_equal(&authority.addr, &conn->wanted))
            return true;
        judge_deny(ret, "%s is %.80s", what, text);
        return false;
    }
    return name_not_denied(conn, authority.name, POLICY_SEEN_HTTP, head->method, plain_target_path(head->target), ret);
}

bool judge_method(const struct conn *conn, const struct policy *policy, const char *method, const char *path,
                  struct policy_answer *ret)
{
    static const struct gate_addr nowhere;
    bool dialled = memcmp(&conn->dialled, &nowhere, sizeof nowhere) != 0;
    const struct policy_question question = {.name = conn->name,
                                             .addr = dialled      ? &conn->dialled
                                                     : conn->name ? NULL
                                                                  : &conn->wanted,
                                             .port = conn->port,
                                             .seen = POLICY_SEEN_HTTP,
                                             .method = method,
                                             .path = path};

    policy_judge(policy, &question, ret);
    return ret->allow;
}

bool judge_request(struct conn *conn, const struct http_head *head, struct policy_answer *ret)
{
    const char *host = http_field(head, "host");
    char path[HTTP_TARGET_MAX + 1];

    if (str_eq(head->method, "CONNECT") && !conn->open) {
        judge_deny(ret, "CONNECT needs a rule with protocol tcp");
        return false;
    }
    if (head->upgrade && !plain_upgrade_is_h2c(head) && !conn->open) {
        judge_deny(ret, "an upgrade of HTTP needs a rule with protocol tcp");
        return false;
    }
    if (!host && conn->name) {
        judge_deny(ret, "Host is missing");
        return false;
    }
    if (host && !authority_agrees(conn, "Host", host, strlen(host), head, ret))
        return false;
    if (head->target[0] != '/' && head->target[0] != '*' && !str_eq(head->method, "CONNECT")) {
        if (strncasecmp(head->target, "http://", 7) != 0) {
            judge_deny(ret, "the target's scheme is not http");
            return false;
        }
        const char *authority = head->target + 7;
        if (!authority_agrees(conn, "the target", authority, strcspn(authority, "/?"), head, ret))
            return false;
    }
    const char *from = plain_target_path(head->target);
    size_t len = strcspn(from, "?");
    if (len > HTTP_TARGET_MAX)
        len = HTTP_TARGET_MAX;
    memcpy(path, len > 0 ? from : "/", len > 0 ? len : 1);
    path[len > 0 ? len : 1] = '\0';
    return judge_method(conn, conn->slot->policy, head->method, path, ret);
}
