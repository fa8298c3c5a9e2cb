/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rates.c: counts how often a tool was called lately. It is exact: each window has the time of every call in it, in a
 * ring that grows to at most the limit.
 *
 *     table of chains -> window {organisation, tool; ring of times, oldest first}
 *
 * The number of windows and the number of times in all of them are bounded, and an organisation has a share of both, so
 * none fills the room of the others. Where one is full a call is refused, not let through uncounted. A window whose
 * last call has left it is forgotten: each call looks at the next few chains, so no timer is needed and nothing of a
 * removed tool stays. A refused call does not count.
 */
#include "run/rates.h"

#include <sys/random.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

#define CHAINS 4096u
#define MAX_WINDOWS (1u << 16)
#define MAX_TIMES (1u << 20) /* 8 MiB */
#define SHARE 8u             /* an organisation has an eighth of either */
#define SWEEP 4u             /* chains per call: all of them in a thousand calls */
#define SECOND UINT64_C(1000000000)

/* What an organisation takes of the room; lives while it has windows. */
struct share {
    struct share *next;
    size_t n_windows, n_times;
    char org[];
};

struct window {
    struct window *next;
    struct share *share;
    uint64_t *times;
    size_t first, n, cap;
    uint64_t length_ns; /* as of the last call */
    char tool[];
};

struct rates {
    struct window *chains[CHAINS];
    struct share *shares[CHAINS];
    size_t n_windows, n_times; /* times: the room of all rings */
    size_t hand;
    uint64_t seed;
};

int rates_create(struct rates **ret, struct brig_err *err)
{
    struct rates *rates = mem_zalloc(sizeof(*rates));

    if (!rates)
        return err_nomem(err);
    if (getrandom(&rates->seed, sizeof(rates->seed), 0) != (ssize_t)sizeof(rates->seed)) {
        mem_free(rates);
        return err_host(err, "getrandom");
    }
    *ret = rates;
    return 0;
}

static struct share **find_share(struct rates *rates, const char *org)
{
    struct share **at = &rates->shares[str_hash_seeded(rates->seed, org) % CHAINS];

    while (*at && !str_eq((*at)->org, org))
        at = &(*at)->next;
    return at;
}

static void drop_share(struct rates *rates, struct share *share)
{
    if (share->n_windows > 0)
        return;
    *find_share(rates, share->org) = share->next;
    mem_free(share);
}

static void forget(struct rates *rates, struct window *window)
{
    rates->n_windows--;
    rates->n_times -= window->cap;
    window->share->n_windows--;
    window->share->n_times -= window->cap;
    drop_share(rates, window->share);
    mem_free(window->times);
    mem_free(window);
}

void rates_destroy(struct rates *rates)
{
    if (!rates)
        return;
    for (size_t i = 0; i < CHAINS; i++)
        for (struct window *window = rates->chains[i], *next; window; window = next) {
            next = window->next;
            forget(rates, window);
        }
    mem_free(rates);
}

static uint64_t time_at(const struct window *window, size_t i)
{
    return window->cap > 0 ? window->times[(window->first + i) % window->cap] : 0;
}

static bool has_left(uint64_t time, uint64_t now, uint64_t length)
{
    return now >= time && now - time >= length;
}

static void drop_old(struct window *window, uint64_t now)
{
    while (window->n > 0 && has_left(time_at(window, 0), now, window->length_ns)) {
        window->first = window->first + 1 < window->cap ? window->first + 1 : 0;
        window->n--;
    }
}

/* Forgets the windows of a chain in which nothing is left. */
static void sweep_chain(struct rates *rates, size_t chain, uint64_t now)
{
    for (struct window **at = &rates->chains[chain]; *at;) {
        struct window *window = *at;
        drop_old(window, now);
        if (window->n > 0) {
            at = &window->next;
            continue;
        }
        *at = window->next;
        forget(rates, window);
    }
}

static struct window *find(const struct rates *rates, size_t chain, const char *org, const char *tool)
{
    for (struct window *window = rates->chains[chain]; window; window = window->next)
        if (str_eq(window->share->org, org) && str_eq(window->tool, tool))
            return window;
    return NULL;
}

/* -ENOMEM, or -ENOSPC when there are enough. */
static int add(struct rates *rates, size_t chain, const char *org, const char *tool, struct window **ret)
{
    size_t org_size = strlen(org) + 1, tool_size = strlen(tool) + 1;
    struct share **share = find_share(rates, org);

    if (rates->n_windows == MAX_WINDOWS || (*share && (*share)->n_windows == MAX_WINDOWS / SHARE))
        return -ENOSPC;
    struct window *window = mem_zalloc(sizeof(*window) + tool_size);
    if (window && !*share) {
        *share = mem_zalloc(sizeof(**share) + org_size);
        if (*share)
            memcpy((*share)->org, org, org_size);
    }
    if (!window || !*share) {
        mem_free(window);
        return -ENOMEM;
    }
    window->share = *share;
    window->share->n_windows++;
    memcpy(window->tool, tool, tool_size);
    window->next = rates->chains[chain];
    rates->chains[chain] = window;
    rates->n_windows++;
    *ret = window;
    return 0;
}

/* Room for one time more: -ENOMEM, or -ENOSPC when all rings together have had enough. */
static int grow(struct rates *rates, struct window *window, uint64_t max)
{
    size_t cap = window->cap > 0 ? window->cap * 2 : 4;

    if (window->n < window->cap)
        return 0;
    if (cap > max)
        cap = max;
    if (rates->n_times + cap - window->cap > MAX_TIMES ||
        window->share->n_times + cap - window->cap > MAX_TIMES / SHARE)
        return -ENOSPC;
    uint64_t *times = mem_realloc_array(NULL, cap, sizeof(*times));
    if (!times)
        return -ENOMEM;
    for (size_t i = 0; i < window->n; i++)
        times[i] = time_at(window, i);
    mem_free(window->times);
    rates->n_times += cap - window->cap;
    window->share->n_times += cap - window->cap;
    window->times = times;
    window->first = 0;
    window->cap = cap;
    return 0;
}

static int refuse(const char *tool, uint64_t wait_ns, uint64_t *ret_retry_s, struct brig_err *err)
{
    uint64_t seconds = wait_ns / SECOND + (wait_ns % SECOND > 0);

    *ret_retry_s = seconds > 0 ? seconds : 1;
    return err_set(err, BRIG_E_LIMIT, 0, "Rate limit exceeded for %.64s", tool);
}

int rates_take(struct rates *rates, const char *org, const char *tool, uint64_t max, uint64_t window_s, uint64_t now_ns,
               uint64_t *ret_retry_s, struct brig_err *err)
{
    size_t chain = str_hash_seeded(str_hash_seeded(rates->seed, org), tool) % CHAINS;
    uint64_t length;

    if (__builtin_mul_overflow(window_s, SECOND, &length))
        length = UINT64_MAX;
    for (unsigned i = 0; i < SWEEP; i++)
        sweep_chain(rates, rates->hand++ % CHAINS, now_ns);
    if (max == 0)
        return refuse(tool, length, ret_retry_s, err);
    struct window *window = find(rates, chain, org, tool);
    int r = window ? 0 : add(rates, chain, org, tool, &window);
    if (r < 0)
        return r == -ENOMEM ? err_nomem(err) : refuse(tool, SECOND, ret_retry_s, err);
    window->length_ns = length;
    drop_old(window, now_ns);
    if (window->n >= max) { /* the limit may have been lowered: then more than the oldest must leave */
        uint64_t oldest = time_at(window, window->n - max), waited = now_ns > oldest ? now_ns - oldest : 0;
        return refuse(tool, length - waited, ret_retry_s, err);
    }
    r = grow(rates, window, max);
    if (r < 0)
        return r == -ENOMEM ? err_nomem(err) : refuse(tool, SECOND, ret_retry_s, err);
    window->times[(window->first + window->n++) % window->cap] = now_ns;
    return 0;
}
