/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dial.c: makes a connection out. The name is looked up now, each of its addresses is judged, and the socket is
 * connected to exactly the sockaddr that was judged: there is no second look-up that could answer differently. IPv4
 * comes first, because a host without a route for IPv6 is more common than one without IPv4. Each address has 2 s
 * unless it is the last; all together have 10 s.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "egress/egress_priv.h"

#define DIAL_ADDRESSES 4u
#define ONE_NS (2 * NS_PER_SEC)
#define ALL_NS (10 * NS_PER_SEC)

struct dial {
    struct slot *slot;
    struct loop *loop;
    char *name;
    struct gate_addr to[DIAL_ADDRESSES];
    struct policy_answer answer;
    size_t n, at;
    enum policy_seen seen;
    uint16_t port;
    int fd;
    int error; /* of the last attempt */
    uint64_t until_ns;
    struct loop_source source;
    struct loop_timer timer;
    struct lookup *lookup;
    struct brig_err err; /* set: only to be told */
    dial_fn *done;
    void *ctx;
};

static void dial_free(struct dial *dial)
{
    if (dial->lookup) {
        dial->slot->lookups--;
        share_give(dial->slot, SHARE_LOOKUPS, 1);
        lookup_cancel(dial->lookup);
    }
    loop_remove(dial->loop, &dial->source);
    loop_timer_clear(dial->loop, &dial->timer);
    base_close_fd(&dial->fd);
    mem_free(dial->name);
    mem_free(dial);
}

void dial_cancel(struct dial *dial)
{
    dial_free(dial);
}

static void finish(struct dial *dial, int fd)
{
    struct dial *gone = dial; /* freed before the call: who is called may end everything */
    struct gate_addr to = fd >= 0 ? dial->to[dial->at] : (struct gate_addr){0};
    struct policy_answer answer = dial->answer;
    struct brig_err err = dial->err;
    dial_fn *done = dial->done;
    void *ctx = dial->ctx;

    dial_free(gone);
    done(ctx, fd, &to, &answer, fd >= 0 ? NULL : &err);
}

static void fail(struct dial *dial, enum brig_code code, int errnum, const char *why)
{
    memset(&dial->err, 0, sizeof dial->err);
    err_set(&dial->err, code, errnum, "%s", why);
    finish(dial, -1);
}

/* ---- judging -------------------------------------------------------------------------------------------- */

/* Appends it when the policy lets it through; else the first refusal is what is told if none is left. */
static void consider(struct dial *dial, const struct gate_addr *address)
{
    struct gate_addr addr = *address;
    struct policy_question question = {.name = dial->name, .addr = &addr, .port = dial->port, .seen = dial->seen};
    struct policy_answer answer;

    addr.port = dial->port;
    question.own = own_ask(dial->slot->egress, &addr);
    policy_judge(dial->slot->policy, &question, &answer);
    if (!answer.allow) {
        if (dial->n == 0 && dial->answer.why[0] == '\0')
            dial->answer = answer;
        return;
    }
    if (dial->n == 0)
        dial->answer = answer;
    if (dial->n < DIAL_ADDRESSES)
        dial->to[dial->n++] = addr;
}

/* ---- connecting ----------------------------------------------------------------------------------------- */

/* 1: connected; 0: under way; or a negative errno. */
static int attempt(struct dial *dial)
{
    const struct gate_addr *to = &dial->to[dial->at];
    sa_family_t family = gate_addr_is_v4(to) ? AF_INET : AF_INET6;
    struct sockaddr_storage addr;
    socklen_t len = gate_addr_to(to, family, &addr);
    int on = 1;

    dial->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (dial->fd < 0)
        return -errno;
    setsockopt(dial->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(dial->fd, (struct sockaddr *)&addr, len) == 0)
        return 1;
    if (errno != EINPROGRESS)
        return -errno;
    return loop_add(dial->loop, &dial->source, dial->fd, EPOLLOUT, NULL);
}

static void next(struct dial *dial)
{
    for (; dial->at < dial->n; dial->at++) {
        uint64_t now = loop_now_ns(), one = dial->at + 1 < dial->n ? now + ONE_NS : dial->until_ns;
        if (now >= dial->until_ns)
            break;
        loop_remove(dial->loop, &dial->source);
        base_close_fd(&dial->fd);
        int r = attempt(dial);
        if (r > 0) {
            finish(dial, take_fd(&dial->fd));
            return;
        }
        if (r == 0 && loop_timer_set(dial->loop, &dial->timer, one < dial->until_ns ? one : dial->until_ns, NULL) == 0)
            return;
        dial->error = r < 0 ? -r : ENOMEM;
    }
    fail(dial, BRIG_E_HOST, dial->error ? dial->error : ETIMEDOUT, "connect");
}

static void on_ready(struct loop_source *source, uint32_t events UNUSED)
{
    struct dial *dial = source->ctx;
    int error = 0;
    socklen_t len = sizeof error;

    if (getsockopt(dial->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        error = errno;
    if (error == 0) {
        loop_remove(dial->loop, &dial->source);
        finish(dial, take_fd(&dial->fd));
        return;
    }
    dial->error = error;
    dial->at++;
    next(dial);
}

static void on_timer(struct loop_timer *timer)
{
    struct dial *dial = timer->ctx;

    if (dial->err.code != BRIG_E_NONE) {
        finish(dial, -1);
        return;
    }
    if (dial->fd >= 0) {
        dial->error = ETIMEDOUT;
        dial->at++;
    }
    next(dial);
}

static void on_addresses(void *ctx, const struct gate_addr *addresses, size_t n, const struct brig_err *err)
{
    struct dial *dial = ctx;

    dial->lookup = NULL;
    dial->slot->lookups--;
    share_give(dial->slot, SHARE_LOOKUPS, 1);
    if (n == 0) {
        fail(dial, BRIG_E_HOST, err ? err->errnum : 0,
             err && err->message[0] ? err->message : "the name has no address");
        return;
    }
    for (int v4 = 1; v4 >= 0; v4--) {
        for (size_t i = 0; i < n; i++) {
            if (gate_addr_is_v4(&addresses[i]) == (v4 == 1))
                consider(dial, &addresses[i]);
        }
    }
    if (dial->n == 0)
        fail(dial, BRIG_E_REFUSED, EACCES, dial->answer.why);
    else
        next(dial);
}

/* An address needs no look-up; done is not called from within dial_start() all the same. */
static int start_address(struct dial *dial, const struct gate_addr *wanted, struct brig_err *err)
{
    consider(dial, wanted);
    if (dial->n == 0)
        err_set(&dial->err, BRIG_E_REFUSED, EACCES, "%s", dial->answer.why);
    return loop_timer_set(dial->loop, &dial->timer, loop_now_ns(), err);
}

int dial_start(struct slot *slot, const char *name, const struct gate_addr *wanted, uint16_t port,
               enum policy_seen seen, dial_fn *done, void *ctx, struct dial **ret, struct brig_err *err)
{
    struct dial *dial = mem_zalloc(sizeof *dial);
    int r;

    if (!dial)
        return err_nomem(err);
    dial->slot = slot;
    dial->loop = slot->egress->loop;
    dial->port = port;
    dial->seen = seen;
    dial->fd = -1;
    dial->done = done;
    dial->ctx = ctx;
    dial->until_ns = loop_now_ns() + ALL_NS;
    dial->source = (struct loop_source){.fd = -1, .fn = on_ready, .ctx = dial};
    dial->timer = (struct loop_timer){.fn = on_timer, .ctx = dial};
    dial->name = name ? mem_strdup(name) : NULL;
    if (name && !dial->name)
        r = err_nomem(err);
    else if (name && slot->lookups >= SLOT_LOOKUPS) /* the resolver is everybody's */
        r = err_set(err, BRIG_E_LIMIT, EAGAIN, "%u names of this sandbox are being resolved", SLOT_LOOKUPS);
    else if (name && !share_take(slot, SHARE_LOOKUPS, 1))
        r = err_set(err, BRIG_E_LIMIT, EAGAIN, "the organisation has its share of the names that are being resolved");
    else if (name) {
        r = resolver_lookup(slot->egress->resolver, name, on_addresses, dial, &dial->lookup, err);
        if (r == 0)
            slot->lookups++;
        else
            share_give(slot, SHARE_LOOKUPS, 1);
    } else
        r = start_address(dial, wanted, err);
    if (r < 0) {
        dial_free(dial);
        return r;
    }
    *ret = dial;
    return 0;
}
