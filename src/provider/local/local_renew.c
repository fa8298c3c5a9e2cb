/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_renew.c: a runner may die and be replaced while we live; its boxes live on, and so do ours. The supervisor
 * keeps both ends of the socket, so the first that we learn of it is another READY. What we have asked the one before
 * may have been read by nobody, and the new one drops everything until our next LIST. So at READY open questions fail,
 * boxes that were not up have ended, and LIST is sent again. What its answer does not name has ended meanwhile. Only
 * questions about networks are asked again: nobody else would ever serve the network that brig-egress has lost.
 *
 * A runner that cannot start must not keep the service from starting. After LIST_NS brigd goes on as if nothing of it
 * lived; what is found later is then ended.
 */
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "provider/local/local.h"

#define LIST_NS (60 * NS_PER_SEC)

static void on_silent(struct loop_timer *timer)
{
    struct local *local = timer->ctx;
    void (*done)(void *ctx) = local->recovery.done;

    local->recovery.done = NULL;
    done(local->recovery.ctx);
}

int local_wait_for_list(struct local *local, struct brig_err *err)
{
    const uint64_t most = local->provider.list_ns ? local->provider.list_ns : LIST_NS;

    local->on_silent = (struct loop_timer){.fn = on_silent, .ctx = local};
    int r = loop_timer_set(local->provider.loop, &local->on_silent, clock_mono_ns() + most, err);
    if (r < 0)
        local->recovery.done = NULL;
    return r;
}

static struct box_end end_of(enum brig_cause cause, const char *detail)
{
    struct box_end end = {.cause = cause,
                          .ended_at_ns = clock_real_ns(),
                          .usage = {BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN,
                                    BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, 0, 0}};

    str_cut(end.detail, sizeof end.detail, detail);
    return end;
}

static void fail_all(struct local *local)
{
    const struct box_end lost = end_of(BRIG_CAUSE_HOST_ERROR, "the runner died while it made the sandbox");
    struct brig_err err;

    (void)err_set(&err, BRIG_E_GONE, 0, "the runner died");
    for (struct local_box *box = local->boxes, *next; box; box = next) {
        next = box->next;
        if (box->up)
            local_interrupt_questions(box, &err);
        else
            local_box_ended(local, box, &lost);
    }
}

void local_take_facts(struct local *local, const struct wire_ready *msg)
{
    local->broken = msg->err;
    local->broken.message[sizeof local->broken.message - 1] = '\0';
    if (local->broken.code == BRIG_E_NONE) /* then the message is its version */
        str_cut(local->version, sizeof local->version, local->broken.message);
}

void local_on_ready(struct local *local, const struct wire_ready *msg)
{
    struct brig_err err;

    local_take_facts(local, msg);
    if (local->recovery.list == 0)
        return; /* we have asked nothing yet */
    bool again = local->recovered;
    local->recovered = false;
    if (again)
        fail_all(local);
    if (local_list(local, &err) < 0)
        local_on_gone(local, &err);
}

static bool is_listed(const struct wire_started *found, size_t n, uint64_t number)
{
    for (size_t i = 0; i < n; i++)
        if (found[i].head.run == number)
            return true;
    return false;
}

void local_renewed(struct local *local, const struct wire_started *found, size_t n)
{
    const struct box_end gone = end_of(BRIG_CAUSE_SANDBOX_GONE, "it ended while no runner watched it");

    for (size_t i = 0; i < n; i++) {
        struct local_box *box = local_box_find(local, found[i].head.run);
        if (!box || box->ending)
            local_kill_number(local, found[i].head.run);
    }
    for (struct local_box *box = local->boxes, *next; box; box = next) {
        next = box->next;
        if (!is_listed(found, n, box->number))
            local_box_ended(local, box, &gone);
        else
            local_ask_again(box);
    }
}
