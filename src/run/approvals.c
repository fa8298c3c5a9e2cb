/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approvals.c: runs that wait for an approval. An entry lives from approvals_ask() until the loop has called its owner
 * with the verdict, or until its run is withdrawn. Its one timer is armed all the time: first for the end of the wait,
 * and once somebody has decided for at once, so that no memory is needed then. A decided entry is not shown and cannot
 * be decided again. Each organisation has a bound, so none fills the room of the others.
 */
#include "run/approvals.h"

#include "base/err.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/str.h"

#define MAX_WAITING 4096u
#define MAX_WAITING_ORG 256u
#define MAX_ARGUMENTS 32768u /* whoever decides sees all of it, or the call is refused */
#define MILLISECOND UINT64_C(1000000)

struct entry {
    struct approval ask; /* arguments: ours */
    struct approvals *approvals;
    struct entry *prev, *next;
    struct loop_timer timer;
    approval_fn *decided;
    void *ctx;
    enum verdict verdict;
    bool told; /* decided, and on its way */
    char by[80], reason[256];
};

struct approvals {
    struct loop *loop;
    struct entry *first, *last; /* the oldest first */
    size_t n;
};

int approvals_create(struct loop *loop, struct approvals **ret, struct brig_err *err)
{
    struct approvals *approvals = mem_zalloc(sizeof(*approvals));

    if (!approvals)
        return err_nomem(err);
    approvals->loop = loop;
    *ret = approvals;
    return 0;
}

static void unlink_entry(struct entry *entry)
{
    struct approvals *approvals = entry->approvals;

    list_take(&approvals->first, &approvals->last, entry);
    approvals->n--;
    loop_timer_clear(approvals->loop, &entry->timer);
}

static void free_entry(struct entry *entry)
{
    char *arguments = (char *)entry->ask.arguments;

    if (arguments) {
        explicit_bzero(arguments, strlen(arguments)); /* whatever the model put there */
        mem_free(arguments);
    }
    mem_free(entry);
}

void approvals_destroy(struct approvals *approvals)
{
    if (!approvals)
        return;
    for (struct entry *entry = approvals->first, *next; entry; entry = next) {
        next = entry->next;
        loop_timer_clear(approvals->loop, &entry->timer);
        free_entry(entry);
    }
    mem_free(approvals);
}

static void on_timer(struct loop_timer *timer)
{
    struct entry *entry = timer->ctx;

    unlink_entry(entry); /* before the call: it may ask anew, or destroy us */
    entry->decided(entry->ctx, entry->told ? entry->verdict : VERDICT_EXPIRED, entry->by, entry->reason);
    free_entry(entry);
}

static struct entry *find(const struct approvals *approvals, const char *run_id)
{
    for (struct entry *entry = approvals->first; entry; entry = entry->next)
        if (str_eq(entry->ask.run_id, run_id))
            return entry;
    return NULL;
}

static int check_room(const struct approvals *approvals, const struct approval *ask, struct brig_err *err)
{
    size_t n = 0;

    if (find(approvals, ask->run_id))
        return err_set(err, BRIG_E_CONFLICT, 0, "run %s waits already", ask->run_id);
    for (const struct entry *entry = approvals->first; entry; entry = entry->next)
        n += str_eq(entry->ask.org_id, ask->org_id);
    if (ask->arguments && strlen(ask->arguments) > MAX_ARGUMENTS)
        return err_set(
            err, BRIG_E_TOO_LARGE, 0,
            "arguments: %zu bytes; a call that waits for an approval has at most %u, so that whoever decides "
            "sees all of them",
            strlen(ask->arguments), MAX_ARGUMENTS);
    if (approvals->n >= MAX_WAITING || n >= MAX_WAITING_ORG)
        return err_set(err, BRIG_E_LIMIT, 0, "%zu runs wait for approval already", n);
    return 0;
}

static struct entry *new_entry(struct approvals *approvals, const struct approval *ask, uint64_t wait_ms)
{
    struct entry *entry = mem_zalloc(sizeof(*entry));
    const char *given = ask->arguments ? ask->arguments : "";
    char *arguments = mem_alloc(strlen(given) + 1);
    int64_t wait_ns;

    if (!entry || !arguments) {
        mem_free(entry);
        mem_free(arguments);
        return NULL;
    }
    memcpy(arguments, given, strlen(given) + 1);
    entry->ask = *ask;
    entry->ask.arguments = arguments;
    if (__builtin_mul_overflow(wait_ms, MILLISECOND, &wait_ns) ||
        __builtin_add_overflow(ask->asked_at_ns, wait_ns, &entry->ask.expires_at_ns))
        entry->ask.expires_at_ns = INT64_MAX;
    entry->approvals = approvals;
    return entry;
}

int approvals_ask(struct approvals *approvals, const struct approval *ask, uint64_t wait_ms, approval_fn *decided,
                  void *ctx, struct brig_err *err)
{
    uint64_t at_ns;
    int r = check_room(approvals, ask, err);

    if (r < 0)
        return r;
    struct entry *entry = new_entry(approvals, ask, wait_ms);
    if (!entry)
        return err_nomem(err);
    entry->decided = decided;
    entry->ctx = ctx;
    entry->timer = (struct loop_timer){.fn = on_timer, .ctx = entry};
    if (__builtin_mul_overflow(wait_ms, MILLISECOND, &at_ns) || __builtin_add_overflow(at_ns, loop_now_ns(), &at_ns))
        at_ns = INT64_MAX;
    r = loop_timer_set(approvals->loop, &entry->timer, at_ns, err);
    if (r < 0) {
        free_entry(entry);
        return r;
    }
    list_append(&approvals->first, &approvals->last, entry);
    approvals->n++;
    return 0;
}

void approvals_withdraw(struct approvals *approvals, const char *run_id)
{
    struct entry *entry = find(approvals, run_id);

    if (!entry)
        return;
    unlink_entry(entry);
    free_entry(entry);
}

int approvals_decide(struct approvals *approvals, const char *org, const char *run_id, bool yes, const char *by,
                     const char *reason, struct brig_err *err)
{
    struct entry *entry = find(approvals, run_id);

    if (!entry || entry->told || (*org && !str_eq(entry->ask.org_id, org)))
        return err_set(err, BRIG_E_NOT_FOUND, 0, "no run %.64s waits for approval", run_id);
    int r = loop_timer_set(approvals->loop, &entry->timer, loop_now_ns(), err);
    if (r < 0) {
        /* The timer is gone with it: the run must not wait for ever, nor start. Its owner hears nothing, and its own
         * time-out ends it. */
        unlink_entry(entry);
        free_entry(entry);
        return r;
    }
    entry->told = true;
    entry->verdict = yes ? VERDICT_APPROVED : VERDICT_DENIED;
    str_cut(entry->by, sizeof(entry->by), by ? by : "");
    str_cut(entry->reason, sizeof(entry->reason), reason ? reason : "");
    return 0;
}

void approvals_each(const struct approvals *approvals, const char *org,
                    bool (*each)(void *ctx, const struct approval *approval), void *ctx)
{
    for (const struct entry *entry = approvals->first; entry; entry = entry->next)
        if (!entry->told && (!*org || str_eq(entry->ask.org_id, org)) && !each(ctx, &entry->ask))
            return;
}
