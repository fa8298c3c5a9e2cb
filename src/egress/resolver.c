/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolver.c: a stub resolver. It does not use getaddrinfo(), because that reads files and loads code, and this process
 * can do neither.
 *
 *   resolver --- tasks (one per name that is being resolved) --- lookups (one per caller that waits for it)
 *                  '-- two queries, A and AAAA
 *
 * A task that is answered from hosts or the cache has no queries: its timer is due at once, so that done is never
 * called from within resolver_lookup(). Answers with a TTL of 0 are not kept. The resolver only says what a name
 * resolves to; every address is judged when it is dialled.
 */
#include "base/list.h"
#include "egress/resolver_priv.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

#define TTL_MAX 30u /* seconds */
#define TTL_NEGATIVE 5u
#define TTL_HALF 5u /* of an answer of one family where the other's failed */

enum { FAMILY_V4, FAMILY_V6, FAMILIES };

struct lookup {
    struct task *task;
    struct lookup *prev, *next;
    lookup_fn *done;
    void *ctx;
};

struct task {
    struct resolver *resolver;
    struct task *prev, *next; /* all of them */
    struct lookup *lookups;
    bool joinable; /* being asked for: others may wait as well */
    bool delivering;
    struct loop_timer timer;
    struct query queries[FAMILIES];
    struct {
        bool done;
        int r;
        bool exists;
        uint32_t ttl;
        size_t n;
        struct gate_addr addresses[RESOLVER_ADDRESSES];
    } family[FAMILIES];
    size_t n;
    struct gate_addr addresses[RESOLVER_ADDRESSES];
    struct brig_err err; /* when n is 0 */
    char name[DNS_NAME_MAX];
};

struct resolver {
    struct loop *loop;
    struct resolver_config config;
    struct cache *cache;
    struct task *tasks;
    size_t n_lookups, turn;
};

int resolver_create(struct loop *loop, struct resolver **ret, struct brig_err *err)
{
    struct resolver *resolver = mem_zalloc(sizeof(*resolver));

    if (!resolver)
        return err_nomem(err);
    resolver->loop = loop;
    int r = cache_create(&resolver->cache);
    if (r < 0)
        err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_HOST, -r, "the resolver's cache");
    else
        r = resolver_config_read(NULL, NULL, &resolver->config, err);
    if (r < 0) {
        resolver_destroy(resolver);
        return r;
    }
    *ret = resolver;
    return 0;
}

static void task_free(struct task *task)
{
    struct resolver *resolver = task->resolver;

    for (size_t i = 0; i < FAMILIES; i++)
        query_cancel(&task->queries[i]);
    loop_timer_clear(resolver->loop, &task->timer);
    list_remove(&resolver->tasks, task);
    mem_free(task);
}

static void lookup_free(struct lookup *lookup)
{
    struct task *task = lookup->task;

    list_remove(&task->lookups, lookup);
    task->resolver->n_lookups--;
    mem_free(lookup);
}

void lookup_cancel(struct lookup *lookup)
{
    if (!lookup)
        return;
    struct task *task = lookup->task;
    lookup_free(lookup);
    if (!task->lookups && !task->delivering)
        task_free(task);
}

void resolver_destroy(struct resolver *resolver)
{
    if (!resolver)
        return;
    for (struct task *task = resolver->tasks, *next_task; task; task = next_task) {
        next_task = task->next;
        for (struct lookup *lookup = task->lookups, *next; lookup; lookup = next) {
            next = lookup->next;
            lookup_free(lookup);
        }
        task_free(task);
    }
    resolver_config_done(&resolver->config);
    cache_destroy(resolver->cache);
    mem_free(resolver);
}

int resolver_configure(struct resolver *resolver, const char *resolv_conf, const char *hosts, struct brig_err *err)
{
    struct resolver_config config;
    int r = resolver_config_read(resolv_conf, hosts, &config, err);

    if (r < 0)
        return r;
    resolver_config_done(&resolver->config);
    resolver->config = config;
    cache_clear(resolver->cache);
    return 0;
}

/* ---- the end of a task ------------------------------------------------------------------------------------- */

static void deliver(struct task *task)
{
    task->joinable = false;
    task->delivering = true;
    while (task->lookups) {
        struct lookup *lookup = task->lookups;
        lookup_fn *done = lookup->done;
        void *ctx = lookup->ctx;
        lookup_free(lookup);
        done(ctx, task->addresses, task->n, &task->err);
    }
    task_free(task);
}

static void on_due(struct loop_timer *timer)
{
    deliver(timer->ctx);
}

static void no_address(struct task *task, bool exists)
{
    err_set(&task->err, BRIG_E_NOT_FOUND, 0, exists ? "%.200s has no address" : "%.200s: no such name", task->name);
}

/* Both families in turn, IPv4 first: a few attempts at connecting should see both. */
static void merge_addresses(struct task *task)
{
    size_t at[FAMILIES] = {0};

    for (size_t turn = 0; task->n < RESOLVER_ADDRESSES; turn++) {
        bool left = false;
        for (size_t i = 0; i < FAMILIES; i++) {
            if (at[i] < task->family[i].n && task->n < RESOLVER_ADDRESSES)
                task->addresses[task->n++] = task->family[i].addresses[at[i]++];
            left |= at[i] < task->family[i].n;
        }
        if (!left)
            break;
    }
}

static void conclude(struct task *task)
{
    uint32_t ttl = TTL_MAX;
    int failed = 0;
    bool exists = false;

    merge_addresses(task);
    for (size_t i = 0; i < FAMILIES; i++) {
        if (task->family[i].r < 0)
            failed = task->family[i].r;
        else if (task->family[i].n > 0 && task->family[i].ttl < ttl)
            ttl = task->family[i].ttl;
        exists |= task->family[i].exists;
    }
    if (task->n > 0) {
        if (failed && ttl > TTL_HALF)
            ttl = TTL_HALF;
        if (ttl > 0)
            cache_put(task->resolver->cache, task->name, task->addresses, task->n, true, ttl * NS_PER_SEC);
    } else if (!failed) {
        no_address(task, exists);
        cache_put(task->resolver->cache, task->name, NULL, 0, exists, TTL_NEGATIVE * NS_PER_SEC);
    } else if (failed == -ENOMEM) {
        err_nomem(&task->err);
    } else {
        err_set(&task->err, failed == -ETIMEDOUT ? BRIG_E_TIMEOUT : BRIG_E_HOST, -failed,
                "%.180s: the name servers do not answer", task->name);
    }
    deliver(task);
}

static void family_done(struct task *task, size_t which, int r, const struct dns_reply *reply)
{
    task->family[which].done = true;
    task->family[which].r = r;
    if (r == 0) {
        task->family[which].exists = reply->rcode == DNS_NOERROR;
        task->family[which].ttl = reply->ttl;
        for (size_t i = 0; i < reply->n && i < RESOLVER_ADDRESSES; i++) {
            struct gate_addr *addr = &task->family[which].addresses[task->family[which].n++];
            if (which == FAMILY_V4)
                *addr = (struct gate_addr){.ip = {[10] = 0xff, [11] = 0xff}};
            memcpy(which == FAMILY_V4 ? addr->ip + 12 : addr->ip, reply->addresses[i], which == FAMILY_V4 ? 4 : 16);
        }
    }
    if (task->family[FAMILY_V4].done && task->family[FAMILY_V6].done)
        conclude(task);
}

static void v4_done(void *ctx, int r, const struct dns_reply *reply)
{
    family_done(ctx, FAMILY_V4, r, reply);
}

static void v6_done(void *ctx, int r, const struct dns_reply *reply)
{
    family_done(ctx, FAMILY_V6, r, reply);
}

/* ---- its beginning ----------------------------------------------------------------------------------------- */

static bool is_localhost(const char *name)
{
    size_t len = strlen(name);

    return str_eq(name, "localhost") || (len > 10 && str_eq(name + len - 10, ".localhost"));
}

/* Known without asking anybody? localhost is (RFC 6761, 6.3), also where hosts does not have it. */
static bool answer_at_hand(struct task *task)
{
    struct resolver *resolver = task->resolver;

    task->n = resolver_config_find(&resolver->config, task->name, task->addresses);
    if (task->n == 0 && is_localhost(task->name)) {
        task->addresses[0] = (struct gate_addr){.ip = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
        task->n = 1;
    }
    if (task->n > 0)
        return true;
    const struct cache_entry *entry = cache_find(resolver->cache, task->name);
    if (!entry)
        return false;
    task->n = entry->n;
    memcpy(task->addresses, entry->addresses, sizeof(task->addresses));
    if (entry->n == 0)
        no_address(task, entry->exists);
    return true;
}

static int task_start(struct task *task)
{
    struct resolver *resolver = task->resolver;
    const struct resolver_servers *servers = &resolver->config.servers;

    if (answer_at_hand(task)) {
        task->timer = (struct loop_timer){.fn = on_due, .ctx = task};
        return loop_timer_set(resolver->loop, &task->timer, loop_now_ns(), NULL);
    }
    size_t first = servers->rotate ? resolver->turn++ % servers->n : 0;
    int r = query_start(&task->queries[FAMILY_V4], resolver->loop, servers, first, task->name, DNS_A, v4_done, task);
    if (r == 0)
        r = query_start(&task->queries[FAMILY_V6], resolver->loop, servers, first, task->name, DNS_AAAA, v6_done, task);
    task->joinable = true;
    return r;
}

/* The task for this name: one that is being asked for already, or a new one. */
static int task_get(struct resolver *resolver, const char *name, struct task **ret)
{
    struct task *task = resolver->tasks;

    while (task && (!task->joinable || !str_eq(task->name, name)))
        task = task->next;
    if (task) {
        *ret = task;
        return 0;
    }
    task = mem_zalloc(sizeof(*task));
    if (!task)
        return -ENOMEM;
    task->resolver = resolver;
    list_push(&resolver->tasks, task);
    int r = str_copy(task->name, sizeof(task->name), name);
    if (r == 0)
        r = task_start(task);
    if (r < 0) {
        task_free(task);
        return r;
    }
    *ret = task;
    return 0;
}

int resolver_lookup(struct resolver *resolver, const char *name, lookup_fn *done, void *ctx, struct lookup **ret,
                    struct brig_err *err)
{
    char canonical[DNS_NAME_MAX];
    struct task *task;

    if (dns_name_canonical(name, strlen(name), canonical) < 0)
        return err_usage(err, "\"%.200s\" is not a host name", name);
    if (resolver->n_lookups == LOOKUPS_MAX)
        return err_set(err, BRIG_E_LIMIT, EAGAIN, "%u names are being resolved", LOOKUPS_MAX);
    AUTO_FREE struct lookup *lookup = mem_zalloc(sizeof(*lookup));
    if (!lookup)
        return err_nomem(err);
    int r = task_get(resolver, canonical, &task);
    if (r == -ENOMEM)
        return err_nomem(err);
    if (r < 0)
        return err_set(err, BRIG_E_HOST, -r, "resolve %.180s", canonical);
    *lookup = (struct lookup){.task = task, .done = done, .ctx = ctx};
    list_push(&task->lookups, lookup);
    resolver->n_lookups++;
    *ret = take_ptr(&lookup);
    return 0;
}
