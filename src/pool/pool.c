/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c: parked children by key, and the claims that wait for one.
 *
 * Theory of operation. A group is everything with one key. Each child in it is in making or parked; each waiting claim
 * is in the group's queue. When a child gets parked, the first claim of the queue gets it; if there is none, the child
 * stays in the group until a claim comes. If a child could not be made, the first claim of the queue fails, provided
 * that fewer are in making than wait; if none waits, only a pause follows, which doubles. pool_size.c decides how many
 * there should be, and which is made next.
 *
 * Invariants: a child belongs to the pool until it is given away, and is given away once. The pool never calls a caller
 * back from within its call. A group holds the dependency set that its children mount, so that it is not collected. A
 * dependency set that was built again is another one, and so another group: the address of a dependency set that is
 * held belongs to nobody else.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "base/err.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/config.h"
#include "config/provider_names.h"
#include "pool/pool_priv.h"

/* ---- lists ---------------------------------------------------------------------------------------------- */

static void unpark(struct group *group, struct member *m)
{
    list_take(&group->parked, &group->parked_last, m);
    group->n_parked--;
    group->holder->n_parked--;
    group->bytes -= m->bytes;
    group->pool->bytes -= m->bytes;
}

static void park(struct group *group, struct member *m)
{
    list_append(&group->parked, &group->parked_last, m);
    group->n_parked++;
    group->holder->n_parked++;
    m->parked = true;
    m->bytes = child_memory(m->child);
    group->bytes += m->bytes;
    group->pool->bytes += m->bytes;
}

void group_weigh(struct group *group)
{
    for (struct member *m = group->parked; m; m = m->next) {
        uint64_t now = child_memory(m->child);
        group->bytes += now - m->bytes;
        group->pool->bytes += now - m->bytes;
        m->bytes = now;
    }
}

static void made(struct group *group, struct member *m)
{
    list_remove(&group->making, m);
    group->n_making--;
    group->holder->n_making--;
    group->maker->n_making--;
    group->pool->n_making--;
}

/* ---- telling -------------------------------------------------------------------------------------------- */

static void on_tell(struct loop_timer *timer)
{
    struct pool *pool = timer->ctx;

    while (pool->told) {
        struct pool_wait wait = *pool->told;
        struct pool_wait *dead = pool->told;
        list_take(&pool->told, &pool->told_last, dead);
        mem_free(dead);
        if (wait.given)
            wait.given(wait.ctx, wait.child, wait.child ? NULL : &wait.why);
        else
            child_end(wait.child); /* cancelled meanwhile */
    }
}

static void tell_later(struct pool *pool, struct pool_wait *wait)
{
    wait->group = NULL;
    list_append(&pool->told, &pool->told_last, wait);
    if (loop_timer_set(pool->loop, &pool->tell, loop_now_ns(), NULL) < 0)
        on_tell(&pool->tell); /* no memory for a timer: better from within than never */
}

void group_fail_wait(struct group *group, const struct brig_err *why)
{
    struct pool_wait *wait = group->waits;

    if (!wait)
        return;
    list_take(&group->waits, &group->waits_last, wait);
    group->n_waits--;
    wait->why = *why;
    tell_later(group->pool, wait);
}

/* ---- children ------------------------------------------------------------------------------------------- */

static void on_parked(void *ctx, struct child *child UNUSED)
{
    struct member *m = ctx;
    struct group *group = m->group;

    made(group, m);
    group->failures = 0;
    pool_refill_soon(group->pool);
    struct pool_wait *wait = group->waits;
    if (!wait) {
        park(group, m);
        return;
    }
    list_take(&group->waits, &group->waits_last, wait);
    group->n_waits--;
    wait->group = NULL;
    struct pool_wait copy = *wait;
    struct child *mine = m->child;
    mem_free(wait);
    mem_free(m);
    copy.given(copy.ctx, mine, NULL); /* this is the loop's call, not the taker's */
}

static void on_lost(void *ctx, struct child *child UNUSED, const struct brig_err *why)
{
    struct member *m = ctx;
    struct group *group = m->group;

    if (m->parked) {
        unpark(group, m);
    } else if (m->forked) {
        made(group, m);
        group->exec_until_ns = loop_now_ns() + POOL_EXEC_NS; /* who waits gets one that was executed */
    } else {
        made(group, m);
        uint64_t pause = UINT64_C(50) * NS_PER_MS
                         << (group->failures < POOL_FAILURES_MAX ? group->failures : POOL_FAILURES_MAX);
        group->failures++;
        group->holder->failures++;
        group->not_before_ns = loop_now_ns() + pause;
        if (group->n_waits > group->n_making)
            group_fail_wait(group, why);
    }
    mem_free(m);
    pool_refill_soon(group->pool);
}

static const struct brig_bind *binds_of(const struct group *group, struct brig_bind out[2], size_t *ret_n)
{
    size_t n = 0;

    if (group->want.set) /* one that was replaced lies elsewhere now */
        out[n++] = (struct brig_bind){.source = group->held ? group->held->host_path : group->set.host_path,
                                      .target = SET_PATH,
                                      .read_only = true};
    if (group->want.workspace)
        out[n++] = (struct brig_bind){
            .source = group->want.workspace, .target = "/workspace", .overlay = !group->want.persist};
    *ret_n = n;
    return out;
}

int group_make(struct group *group, struct brig_err *err)
{
    struct brig_bind binds[2];
    bool forked = !group->want.strict && group->want.language == TOOL_PYTHON && loop_now_ns() >= group->exec_until_ns;
    struct child_spec spec = {.argv = runtime_argv(group->want.language, group->want.template_name != NULL),
                              .zygote = forked ? group->zygote : NULL,
                              .template_name = group->want.template_name,
                              .provider = group->want.provider,
                              .network = group->want.network,
                              .shape = group->want.shape,
                              .trust = group->want.trust,
                              .limits = group->want.limits};
    /* Else children of what the name means now would be taken for those of what it meant. */
    if (group->want.template_name && group->want.template_id &&
        !templates_stands(manager_templates(group->pool->manager), group->want.org_id, group->want.template_name,
                          group->want.template_id))
        return err_set(err, BRIG_E_BUSY, 0, "template %s: has been replaced meanwhile", group->want.template_name);
    struct member *m = mem_zalloc(sizeof *m);
    if (!m)
        return err_nomem(err);
    spec.binds = binds_of(group, binds, &spec.n_binds);
    m->group = group;
    const struct child_events events = {.parked = on_parked, .lost = on_lost, .ctx = m};
    int r = spec.argv ? str_copy(spec.org_id, sizeof spec.org_id, group->want.org_id)
                      : err_set(err, BRIG_E_UNSUPPORTED, 0, "%s: there is no runtime for it",
                                tool_language_name(group->want.language));
    if (r == 0)
        r = child_create(group->pool->manager, &spec, &events, &m->child, err);
    if (r < 0) {
        mem_free(m);
        return r;
    }
    m->forked = child_of_zygote(m->child);
    list_push(&group->making, m);
    group->n_making++;
    group->holder->n_making++;
    group->maker->n_making++;
    group->pool->n_making++;
    return 0;
}

void group_end_one(struct group *group)
{
    struct member *m = group->parked;

    if (!m)
        return;
    unpark(group, m);
    child_end(m->child);
    mem_free(m);
}

void group_free(struct group *group)
{
    struct pool *pool = group->pool;

    while (group->parked)
        group_end_one(group);
    while (group->making) {
        struct member *m = group->making;
        made(group, m);
        child_end(m->child);
        mem_free(m);
    }
    list_remove(&pool->groups, group);
    maker_leave(pool, group->maker);
    if (group->held)
        set_release(pool->sets, group->held);
    mem_free(group->key);
    mem_free(group);
}

/* ---- groups --------------------------------------------------------------------------------------------- */

/* JavaScript and TypeScript are one interpreter. */
static enum tool_language runtime_of(enum tool_language language)
{
    return language == TOOL_TYPESCRIPT && runtime_argv(TOOL_TYPESCRIPT, false) == runtime_argv(TOOL_JAVASCRIPT, false)
               ? TOOL_JAVASCRIPT
               : language;
}

/* A want that names no provider means the manager's own, which a run names. */
static const char *provider_of(const struct pool *pool, const struct pool_want *want)
{
    const char *name = want->provider ? want->provider : pool->config->provider;

    return name ? provider_known_name(name) : "local";
}

static int key_of(const struct pool *pool, const struct pool_want *want, char *out, size_t size)
{
    const struct brig_limits *l = &want->limits;

    return str_format(out, size,
                      "%s\n%s\n%s %s\n%s\n%s %s %p\n%d%d%d%d%d\n%" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64
                      " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64
                      " %" PRIx64 " %" PRIx64 "\n%s",
                      want->org_id, provider_of(pool, want), want->template_name ? want->template_name : "",
                      want->template_id ? want->template_id : "", tool_language_name(runtime_of(want->language)),
                      want->set ? want->set->key : "", want->set && want->set->lock_hash ? want->set->lock_hash : "",
                      pool->sets ? (const void *)want->set : NULL, want->strict, want->network, want->trust,
                      want->persist, want->shape, l->memory, l->cpus, l->pids, l->cpu_time, l->disk, l->inodes,
                      l->open_files, l->file_size, l->io_read_bps, l->io_write_bps, l->net_bytes_in, l->net_bytes_out,
                      l->net_bps, l->connections, want->workspace ? want->workspace : "");
}

/* One block: the key, then what the want points to. */
static int copy_want(struct group *group, const struct pool_want *want, const char *key)
{
    const char *const texts[] = {key,
                                 want->org_id,
                                 want->template_name,
                                 want->workspace,
                                 want->set ? want->set->key : NULL,
                                 want->set ? want->set->host_path : NULL,
                                 want->template_id,
                                 want->provider};
    const char *copies[ARRAY_SIZE(texts)] = {0};
    size_t size = 0;

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        size += texts[i] ? strlen(texts[i]) + 1 : 0;
    char *at = group->key = mem_alloc(size);
    if (!at)
        return -ENOMEM;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        if (texts[i]) {
            size_t len = strlen(texts[i]) + 1;
            memcpy(at, texts[i], len);
            copies[i] = at;
            at += len;
        }
    group->want = *want;
    group->want.org_id = copies[1];
    group->want.template_name = copies[2];
    group->want.workspace = copies[3];
    group->want.template_id = copies[6];
    group->want.provider = copies[7];
    group->want.language = runtime_of(want->language);
    group->set = (struct set){.key = copies[4], .host_path = copies[5]};
    group->want.set = want->set ? &group->set : NULL;
    return 0;
}

static struct group *find(const struct pool *pool, const char *key)
{
    for (struct group *g = pool->groups; g; g = g->next)
        if (str_eq(g->key, key))
            return g;
    return NULL;
}

static struct group *group_of(struct pool *pool, const struct pool_want *want, struct brig_err *err)
{
    char key[8192];

    if (key_of(pool, want, key, sizeof key) < 0) {
        (void)err_set(err, BRIG_E_TOO_LARGE, 0, "a path is too long");
        return NULL;
    }
    struct group *group = find(pool, key);
    if (group)
        return group;
    struct holder *holder = holder_find(pool, provider_of(pool, want));
    if (!holder) {
        (void)err_usage(err, "provider %.31s: there is no such one", provider_of(pool, want));
        return NULL;
    }
    group = mem_zalloc(sizeof *group);
    if (!group || copy_want(group, want, key) < 0 || !(group->maker = maker_join(pool, holder, want->org_id))) {
        if (group)
            mem_free(group->key);
        mem_free(group);
        (void)err_nomem(err);
        return NULL;
    }
    group->pool = pool;
    group->holder = holder;
    if (pool->sets && want->set) {
        group->held = want->set;
        set_hold(pool->sets, group->held);
    }
    snprintf(group->zygote, sizeof group->zygote, "%s/%s", group->want.org_id,
             tool_language_name(group->want.language));
    group->last_used_ns = loop_now_ns();
    list_push(&pool->groups, group);
    if (!pool->ticking)
        pool->ticking = loop_timer_set(pool->loop, &pool->tick, loop_now_ns() + NS_PER_SEC, NULL) == 0;
    return group;
}

/* The longest parked goes first, so that none gets old. */
static struct child *claim_parked(struct group *group)
{
    struct member *m = group->parked;

    if (!m)
        return NULL;
    struct child *child = m->child;
    unpark(group, m);
    mem_free(m);
    return child;
}

struct child *pool_try(struct pool *pool, const struct pool_want *want)
{
    char key[8192];
    struct group *group = key_of(pool, want, key, sizeof key) < 0 ? NULL : find(pool, key);
    struct child *child = group && !group->waits ? claim_parked(group) : NULL;

    if (child) {
        group_count(group);
        pool_refill_later(pool);
    }
    return child;
}

int pool_take(struct pool *pool, const struct pool_want *want,
              void (*given)(void *ctx, struct child *child, const struct brig_err *err), void *ctx,
              struct pool_wait **ret, struct brig_err *err)
{
    struct group *group = group_of(pool, want, err);
    struct pool_wait *wait = group ? mem_zalloc(sizeof *wait) : NULL;

    if (!group)
        return err && err->code == BRIG_E_NOMEM ? -ENOMEM : -EINVAL;
    if (!wait)
        return err_nomem(err);
    *wait = (struct pool_wait){.group = group, .given = given, .ctx = ctx};
    group_count(group);
    wait->child = group->waits ? NULL : claim_parked(group);
    if (wait->child) {
        tell_later(pool, wait);
    } else {
        group->misses++;
        group->holder->misses++;
        list_append(&group->waits, &group->waits_last, wait);
        group->n_waits++;
    }
    pool_refill_soon(pool);
    *ret = wait;
    return 0;
}

void pool_cancel(struct pool_wait *wait)
{
    struct group *group = wait->group;

    if (!group) { /* it is about to be told */
        wait->given = NULL;
        return;
    }
    list_take(&group->waits, &group->waits_last, wait);
    group->n_waits--;
    mem_free(wait);
}

int pool_prewarm(struct pool *pool, const struct pool_want *want, unsigned count, struct brig_err *err)
{
    struct group *group = group_of(pool, want, err);

    if (!group)
        return err && err->code == BRIG_E_NOMEM ? -ENOMEM : -EINVAL;
    group->prewarm = count;
    group->want.keep = want->keep;
    group->last_used_ns = loop_now_ns();
    pool_refill_soon(pool);
    return 0;
}

/* Those who wait go on waiting: what they get is made from now on. */
void pool_retire(struct pool *pool, const char *org)
{
    for (struct group *g = pool->groups; g; g = g->next) {
        if (org && !str_eq(g->want.org_id, org))
            continue;
        while (g->parked)
            group_end_one(g);
        while (g->making) {
            struct member *m = g->making;
            made(g, m);
            child_end(m->child);
            mem_free(m);
        }
    }
    pool_refill_soon(pool);
}

/* ---- the pool ------------------------------------------------------------------------------------------- */

int pool_create(const struct pool_options *options, struct pool **ret, struct brig_err *err)
{
    struct pool *pool = mem_zalloc(sizeof *pool);
    int cores = get_nprocs();

    if (!pool)
        return err_nomem(err);
    *pool = (struct pool){.loop = options->loop,
                          .manager = options->manager,
                          .config = options->config,
                          .required = sbox_required(options->config),
                          .sets = options->sets,
                          .making_max = POOL_MAKING_PER_CORE * (size_t)(cores > 0 ? cores : 1),
                          .guests_max = POOL_GUESTS_PER_CORE * (size_t)(cores > 0 ? cores : 1)};
    holders_init(pool);
    pool->refill = (struct loop_timer){.fn = pool_refill, .ctx = pool};
    pool->tick = (struct loop_timer){.fn = pool_tick, .ctx = pool};
    pool->tell = (struct loop_timer){.fn = on_tell, .ctx = pool};
    *ret = pool;
    return 0;
}

void pool_destroy(struct pool *pool)
{
    if (!pool)
        return;
    for (struct pool_wait *w = pool->told, *next; w; w = next) {
        next = w->next;
        if (w->child)
            child_end(w->child);
        mem_free(w);
    }
    while (pool->groups) {
        struct group *g = pool->groups;
        for (struct pool_wait *w = g->waits, *next; w; w = next) {
            next = w->next;
            mem_free(w);
        }
        group_free(g);
    }
    loop_timer_clear(pool->loop, &pool->refill);
    loop_timer_clear(pool->loop, &pool->tick);
    loop_timer_clear(pool->loop, &pool->tell);
    mem_free(pool);
}

void pool_configure(struct pool *pool, const struct config *config)
{
    const uint64_t required = sbox_required(config);

    pool->config = config;
    if (required & ~pool->required) /* what is parked was not asked for them */
        pool_retire(pool, NULL);
    pool->required = required;
}

void pool_json(const struct pool *pool, const char *org, struct json *json)
{
    for (const struct group *g = pool->groups; g; g = g->next) {
        if (org && !str_eq(org, g->want.org_id))
            continue;
        json_object(json);
        json_key_string(json, "kind", "interpreter");
        json_key_string(json, "organization_id", g->want.org_id);
        json_key_string(json, "template", g->want.template_name ? g->want.template_name : "host");
        json_key_string(json, "provider", provider_of(pool, &g->want));
        json_key_string(json, "language", tool_language_name(g->want.language));
        json_key(json, "requirements"), g->want.set ? json_string(json, g->set.key) : json_null(json);
        json_key_bool(json, "strict", g->want.strict);
        json_key_bool(json, "network", g->want.network);
        json_key_bool(json, "workspace", g->want.workspace != NULL);
        json_key_u64(json, "parked", g->n_parked);
        json_key_u64(json, "making", g->n_making);
        json_key_u64(json, "waiting", g->n_waits);
        json_key_u64(json, "target", group_target(g));
        json_key_u64(json, "claims", g->claims);
        json_key_u64(json, "misses", g->misses);
        json_key_u64(json, "bytes", g->bytes);
        json_end(json);
    }
}
