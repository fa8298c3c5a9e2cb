/* SPDX-License-Identifier: Apache-2.0 */
/* Pools with children of the test's own: who gets which child, how many there are, and what happens when none can be
 * made. */
#include "unit.h"

#include <sys/sysinfo.h>

#include "base/err.h"
#include "base/mem.h"
#include "config/config.h"
#include "config/config_keys.h"
#include "config/provider_names.h"
#include "pool/pool_priv.h"

#define ORG "org-1"

/* ---- children ------------------------------------------------------------------------------------------- */

struct child {
    struct child *next;
    struct child_events events;
    char org[64], zygote[64];
    size_t n_binds;
    bool overlay, network;
    enum child_state state;
};

static struct child *made; /* newest first */
static unsigned n_made, n_ended, n_alive;
static bool refuse;
static uint64_t weight = 3u << 20;

int child_create(struct manager *manager UNUSED, const struct child_spec *spec, const struct child_events *events,
                 struct child **ret, struct brig_err *err)
{
    if (refuse)
        return err_set(err, BRIG_E_BUSY, 0, "no slots");
    struct child *c = calloc(1, sizeof *c);
    assert_non_null(c);
    assert_non_null(spec->argv);
    c->events = *events;
    c->n_binds = spec->n_binds;
    c->overlay = spec->n_binds && spec->binds[0].overlay;
    c->network = spec->network;
    snprintf(c->org, sizeof c->org, "%s", spec->org_id);
    snprintf(c->zygote, sizeof c->zygote, "%s", spec->zygote ? spec->zygote : "");
    c->next = made;
    made = c;
    n_made++;
    n_alive++;
    *ret = c;
    return 0;
}

static void forget(struct child *child)
{
    for (struct child **at = &made; *at; at = &(*at)->next)
        if (*at == child) {
            *at = child->next;
            break;
        }
    free(child);
    n_alive--;
}

void child_end(struct child *child)
{
    if (!child)
        return;
    n_ended++;
    forget(child);
}

enum child_state child_state(const struct child *child)
{
    return child->state;
}

uint64_t child_memory(const struct child *child UNUSED)
{
    return weight;
}

bool child_of_zygote(const struct child *child)
{
    return child->zygote[0] != '\0';
}

static void park_all(void)
{
    for (bool more = true; more;) {
        more = false;
        for (struct child *c = made; c; c = c->next)
            if (c->state == CHILD_MAKING) {
                c->state = CHILD_PARKED;
                c->events.parked(c->events.ctx, c);
                more = true;
                break; /* the list may be another by now */
            }
    }
}

/* ---- sets ---- */

static int n_held;
static const struct set *last_held, *last_released;

void set_hold(struct sets *sets UNUSED, const struct set *set)
{
    n_held++;
    last_held = set;
}

void set_release(struct sets *sets UNUSED, const struct set *set)
{
    n_held--;
    last_released = set;
}

/* ---- a pool --------------------------------------------------------------------------------------------- */

struct test {
    struct loop *loop;
    struct config_loaded *loaded;
    struct config config;
    struct pool *pool;
    struct child *given[64];
    unsigned n_given, n_failed;
    int order[64];
    struct brig_err why;
};

struct taker {
    struct test *test;
    int number;
};

static int set_up(void **state)
{
    static char *none[] = {NULL};
    struct test *t = calloc(1, sizeof *t);

    assert_non_null(t);
    made = NULL;
    n_made = n_ended = n_alive = 0;
    refuse = false;
    weight = 3u << 20;
    assert_int_equal(loop_create(&t->loop, NULL), 0);
    assert_int_equal(config_load_text("", NULL, 0, none, &t->loaded, NULL), 0);
    t->config = *config_get(t->loaded);
    const struct pool_options options = {.loop = t->loop, .config = &t->config};
    assert_int_equal(pool_create(&options, &t->pool, NULL), 0);
    *state = t;
    return 0;
}

static int tear_down(void **state)
{
    struct test *t = *state;

    pool_destroy(t->pool);
    for (unsigned i = 0; i < t->n_given; i++)
        forget(t->given[i]);
    assert_int_equal(n_alive, 0); /* none is left behind */
    config_free(t->loaded);
    loop_destroy(t->loop);
    free(t);
    return 0;
}

static void turn(struct test *t)
{
    for (int i = 0; i < 4; i++)
        assert_int_equal(loop_run_once(t->loop, 0, NULL), 0);
}

static void on_given(void *ctx, struct child *child, const struct brig_err *err)
{
    struct taker *taker = ctx;
    struct test *t = taker->test;

    if (!child) {
        t->why = *err;
        t->n_failed++;
        return;
    }
    assert_int_equal(child->state, CHILD_PARKED);
    t->order[t->n_given] = taker->number;
    t->given[t->n_given++] = child;
}

static const struct pool_want python = {.org_id = ORG, .language = TOOL_PYTHON};

static struct pool_wait *take(struct test *t, const struct pool_want *want, struct taker *taker, int number)
{
    struct pool_wait *wait = NULL;

    *taker = (struct taker){t, number};
    assert_int_equal(pool_take(t->pool, want, on_given, taker, &wait, NULL), 0);
    return wait;
}

static void waiters_are_served_in_order(void **state)
{
    struct test *t = *state;
    struct taker takers[20];
    unsigned most = POOL_MAKING_PER_CORE * (unsigned)get_nprocs();

    for (int i = 0; i < 20; i++)
        (void)take(t, &python, &takers[i], i);
    assert_int_equal(t->n_given, 0);
    turn(t);
    assert_int_equal(n_made, most < 20 ? most : n_made); /* not all at once */
    while (t->n_given < 20) {
        park_all();
        turn(t);
    }
    for (int i = 0; i < 20; i++)
        assert_int_equal(t->order[i], i);
    assert_string_equal(t->given[0]->zygote, ORG "/python");
}

/* Children that never come up hold the places of their own organisation and provider, and of nobody else. */
static void slow_ones_are_in_nobodys_way(void **state)
{
    struct test *t = *state;
    struct taker takers[64];
    const struct pool_want other = {.org_id = "org-2", .language = TOOL_PYTHON};
    const struct pool_want machine = {.org_id = ORG, .language = TOOL_PYTHON, .provider = "vm"};
    const struct pool_want others_machine = {.org_id = "org-2", .language = TOOL_PYTHON, .provider = "vm"};
    const struct pool_want more = {.org_id = ORG, .language = TOOL_PYTHON, .limits.disk = 4096};

    t->pool->making_max = 8;
    t->pool->guests_max = 2;
    for (int i = 0; i < 30; i++)
        (void)take(t, &python, &takers[i], i);
    turn(t);
    assert_int_equal(n_made, 8);
    (void)take(t, &more, &takers[30], 30); /* another pool of the same organisation has no places of its own */
    turn(t);
    assert_int_equal(n_made, 8);
    (void)take(t, &other, &takers[31], 31);
    turn(t);
    assert_true(n_made > 8);
    assert_string_equal(made->org, "org-2");
    const unsigned before = n_made;
    for (int i = 32; i < 36; i++)
        (void)take(t, &machine, &takers[i], i);
    turn(t);
    assert_int_equal(n_made, before + 2);
    (void)take(t, &others_machine, &takers[36], 36);
    turn(t);
    assert_true(n_made > before + 2);
    assert_string_equal(made->org, "org-2");
    while (t->n_given < 37) {
        park_all();
        turn(t);
    }
}

static void refilled_by_demand(void **state)
{
    struct test *t = *state;
    struct taker taker;

    assert_null(pool_try(t->pool, &python));
    (void)take(t, &python, &taker, 0);
    for (int i = 0; i < 3; i++)
        turn(t), park_all();
    assert_int_equal(t->n_given, 1);
    struct child *next = pool_try(t->pool, &python);
    assert_non_null(next); /* there is one more before anybody asked */
    t->given[t->n_given++] = next;
    turn(t);
    assert_int_equal(n_made, t->n_given + 1); /* the run that took it has the processor for itself, until it is over */
    pool_breathe(t->pool);
    for (int i = 0; i < 3; i++)
        turn(t), park_all();
    assert_int_equal(n_alive - t->n_given, 3); /* two in this second: three */
}

/* While more than half of the children are there, whoever makes one call after the other is not disturbed. */
static void refilled_in_a_pause(void **state)
{
    struct test *t = *state;

    assert_int_equal(pool_prewarm(t->pool, &python, 8, NULL), 0);
    while (n_made < 8)
        turn(t), park_all();
    turn(t);
    for (int i = 0; i < 4; i++) {
        t->given[t->n_given++] = pool_try(t->pool, &python);
        assert_non_null(t->given[t->n_given - 1]);
        assert_true(t->pool->refilling && !t->pool->pausing); /* not before the run is over, at the latest later */
        pool_breathe(t->pool);
        assert_true(t->pool->refilling && t->pool->pausing);
    }
    t->given[t->n_given++] = pool_try(t->pool, &python);
    pool_breathe(t->pool);
    assert_true(t->pool->refilling && !t->pool->pausing); /* three of eight: now */
    turn(t);
    assert_true(n_made > 8);
    while (n_alive - t->n_given < group_target(t->pool->groups))
        turn(t), park_all();
    turn(t), park_all();
    const unsigned made_before = n_made;
    t->given[t->n_given++] = pool_try(t->pool, &python);
    pool_breathe(t->pool);
    assert_true(t->pool->pausing);
    while (n_made == made_before) /* the pause ends by itself */
        assert_int_equal(loop_run_once(t->loop, -1, NULL), 0);
}

static void prewarmed_and_bounded(void **state)
{
    struct test *t = *state;

    t->config.tools_pool_max = 6;
    assert_int_equal(pool_prewarm(t->pool, &python, 100, NULL), 0);
    for (int i = 0; i < 10; i++)
        turn(t), park_all();
    assert_int_equal(n_alive, 6);
    t->config.tools_pool_max = 100;
    t->config.tools_pool_memory = 8 * weight;
    for (int i = 0; i < 10; i++) {
        pool_refill_soon(t->pool);
        turn(t), park_all();
    }
    assert_in_range(n_alive, 6, 8);
    pool_retire(t->pool, "org-other");
    assert_in_range(n_alive, 6, 8);
    pool_retire(t->pool, ORG);
    assert_int_equal(n_alive, 0);
}

static void keys_do_not_mix(void **state)
{
    struct test *t = *state;
    const struct set set = {.key = "abc", .host_path = "/var/cache/sets/abc/root", .lock_hash = "1"},
                     newer = {.key = "abc", .host_path = "/var/cache/sets/abc/root", .lock_hash = "2"};
    const struct pool_want others[] = {
        {.org_id = "org-2", .language = TOOL_PYTHON},
        {.org_id = ORG, .language = TOOL_PYTHON, .strict = true},
        {.org_id = ORG, .language = TOOL_PYTHON, .network = true},
        {.org_id = ORG, .language = TOOL_PYTHON, .set = &set},
        {.org_id = ORG, .language = TOOL_PYTHON, .set = &newer},
        {.org_id = ORG, .language = TOOL_PYTHON, .workspace = "/srv/tools"},
        {.org_id = ORG, .language = TOOL_PYTHON, .workspace = "/srv/tools", .persist = true},
        {.org_id = ORG, .language = TOOL_PYTHON, .limits = {.disk = 1u << 20}},
        {.org_id = ORG, .language = TOOL_PYTHON, .template_name = "slim"},
        {.org_id = ORG, .language = TOOL_PYTHON, .provider = "runsc"},
        {.org_id = ORG, .language = TOOL_PYTHON, .provider = "vm"},
        {.org_id = ORG, .language = TOOL_PYTHON, .limits = {.memory = 256u << 20}},
        {.org_id = ORG, .language = TOOL_PYTHON, .limits = {.cpus = 2000}},
        {.org_id = ORG, .language = TOOL_PYTHON, .limits = {.pids = 64}},
    };

    assert_int_equal(pool_prewarm(t->pool, &python, 1, NULL), 0);
    for (int i = 0; i < 3; i++)
        turn(t), park_all();
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        struct child *c = pool_try(t->pool, &others[i]);
        assert_null(c);
        assert_int_equal(pool_prewarm(t->pool, &others[i], 1, NULL), 0);
        for (int k = 0; k < 3; k++)
            turn(t), park_all();
        c = pool_try(t->pool, &others[i]);
        assert_non_null(c);
        t->given[t->n_given++] = c;
        assert_string_equal(c->org, others[i].org_id);
        assert_int_equal(c->zygote[0] == '\0', others[i].strict);
        assert_int_equal(c->network, others[i].network);
        assert_int_equal(c->n_binds, others[i].set || others[i].workspace ? 1 : 0);
        assert_int_equal(c->overlay, others[i].workspace && !others[i].persist);
    }
    assert_non_null(t->given[t->n_given] = pool_try(t->pool, &python));
    t->n_given++;
}

/* As long as there may be children that mount it; one that was built again is another. */
static void sets_are_held(void **state)
{
    struct test *t = *state;
    const struct pool_options options = {.loop = t->loop, .config = &t->config, .sets = (struct sets *)t};
    const struct set old = {.key = "abc", .host_path = "/old", .lock_hash = "1"},
                     again = {.key = "abc", .host_path = "/new", .lock_hash = "1"};
    struct pool_want want = {.org_id = ORG, .language = TOOL_PYTHON, .set = &old};

    pool_destroy(t->pool);
    n_held = 0;
    assert_int_equal(pool_create(&options, &t->pool, NULL), 0);
    assert_null(pool_try(t->pool, &want));
    assert_int_equal(n_held, 0);
    assert_int_equal(pool_prewarm(t->pool, &want, 1, NULL), 0);
    assert_int_equal(pool_prewarm(t->pool, &want, 2, NULL), 0);
    assert_int_equal(n_held, 1);
    assert_ptr_equal(last_held, &old);
    for (int i = 0; i < 3; i++)
        turn(t), park_all();
    want.set = &again;
    assert_null(pool_try(t->pool, &want)); /* those that are parked have the old one */
    assert_int_equal(pool_prewarm(t->pool, &want, 1, NULL), 0);
    assert_int_equal(n_held, 2);
    for (struct group *g = t->pool->groups; g; g = g->next)
        if (g->held == &old)
            g->last_used_ns = loop_now_ns() - POOL_IDLE_NS - NS_PER_SEC;
    pool_tick(&t->pool->tick);
    assert_int_equal(n_held, 1);
    assert_ptr_equal(last_released, &old);
    pool_destroy(take_ptr(&t->pool));
    assert_int_equal(n_held, 0);
}

static void failures_are_told(void **state)
{
    struct test *t = *state;
    struct taker taker[2];

    refuse = true;
    (void)take(t, &python, &taker[0], 0);
    turn(t);
    assert_int_equal(t->n_failed, 1);
    assert_int_equal(t->why.code, BRIG_E_BUSY);
    refuse = false;
    (void)take(t, &python, &taker[1], 1);
    turn(t);
    assert_true(n_made >= 1);
    /* Those of a zygote are made once more, by executing an interpreter; each dies in its making. */
    for (int round = 0; round < 2; round++) {
        assert_non_null(made);
        while (made) {
            struct child *c = made;
            struct brig_err why = {.code = BRIG_E_GONE, .message = "it died"};
            assert_int_equal(c->zygote[0] == '\0', round);
            c->events.lost(c->events.ctx, c, &why);
            forget(c);
        }
        assert_int_equal(t->n_failed, 1);
        turn(t);
    }
    assert_int_equal(t->n_failed, 2);
    assert_string_equal(t->why.message, "it died");
}

static void lost_while_parked(void **state)
{
    struct test *t = *state;
    struct brig_err why = {.code = BRIG_E_GONE};

    assert_int_equal(pool_prewarm(t->pool, &python, 2, NULL), 0);
    for (int i = 0; i < 3; i++)
        turn(t), park_all();
    assert_int_equal(n_alive, 2);
    for (int i = 0; i < 2; i++) {
        struct child *c = made;
        c->events.lost(c->events.ctx, c, &why);
        forget(c);
    }
    assert_null(pool_try(t->pool, &python));
    for (int i = 0; i < 3; i++)
        turn(t), park_all();
    assert_int_equal(n_alive, 2); /* and are made again */
}

static void cancelled_ones_take_nothing(void **state)
{
    struct test *t = *state;
    struct taker takers[2];

    struct pool_wait *first = take(t, &python, &takers[0], 0);
    (void)take(t, &python, &takers[1], 1);
    pool_cancel(first);
    for (int i = 0; i < 3; i++)
        turn(t), park_all();
    assert_int_equal(t->n_given, 1);
    assert_int_equal(t->order[0], 1);
    struct pool_wait *told = take(t, &python, &takers[0], 2); /* has one, and is to be told */
    pool_cancel(told);
    turn(t);
    assert_int_equal(t->n_given, 1);
    assert_int_equal(n_ended, 1); /* what it was to have is nobody's */
}

/* For one who waits, the key that was used longest ago gives one up. */
static void memory_goes_to_who_waits(void **state)
{
    struct test *t = *state;
    const struct pool_want other = {.org_id = "org-2", .language = TOOL_PYTHON};
    struct taker taker;

    t->config.tools_pool_memory = 2 * weight + weight / 2;
    weight = 8u << 20;
    t->config.tools_pool_memory = 2 * weight;
    assert_int_equal(pool_prewarm(t->pool, &other, 2, NULL), 0);
    for (int i = 0; i < 3; i++)
        turn(t), park_all();
    assert_int_equal(n_alive, 2);
    (void)take(t, &python, &taker, 0);
    turn(t);
    assert_int_equal(n_ended, 1);
    park_all();
    turn(t);
    assert_int_equal(t->n_given, 1);
}

static size_t parked_of(struct test *t, const char *provider)
{
    return holder_find(t->pool, provider)->n_parked;
}

static void settle(struct test *t)
{
    for (int i = 0; i < 20; i++) {
        pool_refill_soon(t->pool);
        turn(t), park_all();
    }
}

/* `[pool] providers` bounds what all keys of a provider have together; local has no such bound. */
static void providers_are_bounded(void **state)
{
    struct test *t = *state;
    const struct pool_want gvisor = {.org_id = ORG, .language = TOOL_PYTHON, .provider = "runsc"},
                           other = {.org_id = "org-2", .language = TOOL_PYTHON, .provider = "runsc"},
                           engine = {.org_id = ORG, .language = TOOL_PYTHON, .provider = "docker"};
    struct taker taker;

    t->config.pool_providers = (char *)(uintptr_t) "gvisor=3 vm=1";
    settle(t);
    assert_int_equal(n_made, 0); /* nothing for whom nobody uses */
    assert_int_equal(pool_prewarm(t->pool, &gvisor, 10, NULL), 0);
    assert_int_equal(pool_prewarm(t->pool, &other, 10, NULL), 0);
    assert_int_equal(pool_prewarm(t->pool, &python, 10, NULL), 0);
    settle(t);
    assert_int_equal(parked_of(t, "runsc"), 3);
    assert_int_equal(parked_of(t, "local"), 10);
    (void)take(t, &engine, &taker, 0); /* it is not named: a run has its own, and nothing stays ready */
    settle(t);
    assert_int_equal(t->n_given, 1);
    assert_int_equal(parked_of(t, "docker"), 0);
    struct pool_stats stats = {0};
    for (size_t i = 0; pool_stats(t->pool, i, &stats) && strcmp(stats.provider, "docker") != 0; i++)
        ;
    assert_string_equal(stats.provider, "docker");
    assert_int_equal(stats.claims, 1);
    assert_int_equal(stats.misses, 1);
    t->config.pool_providers = (char *)(uintptr_t) "runsc=0";
    for (int i = 0; i < 8; i++)
        pool_tick(&t->pool->tick);
    assert_int_equal(parked_of(t, "runsc"), 0);
}

/* One of them takes long to make: a key that was used keeps one ready until it is unused for a minute. */
static void one_stays_for_a_minute(void **state)
{
    struct test *t = *state;
    const struct pool_want gvisor = {.org_id = ORG, .language = TOOL_PYTHON, .provider = "runsc"};
    struct taker taker[2];

    (void)take(t, &gvisor, &taker[0], 0);
    (void)take(t, &python, &taker[1], 1);
    settle(t);
    for (unsigned i = 0; i < 3 * POOL_SECONDS; i++)
        pool_tick(&t->pool->tick);
    assert_int_equal(parked_of(t, "runsc"), 1);
    assert_int_equal(parked_of(t, "local"), 0);
    for (struct group *g = t->pool->groups; g; g = g->next)
        g->last_used_ns = loop_now_ns() - POOL_IDLE_NS - NS_PER_SEC;
    pool_tick(&t->pool->tick);
    assert_null(t->pool->groups);
    assert_int_equal(n_alive, t->n_given);
}

/* Their starts take the processor: few are made at once, and of those that nobody waits for fewer still. */
static void few_are_made_at_once(void **state)
{
    struct test *t = *state;
    const struct pool_want machine = {.org_id = ORG, .language = TOOL_PYTHON, .provider = "runsc"};
    struct taker takers[40];

    t->pool->guests_max = 4;
    t->pool->making_max = 16;
    assert_int_equal(pool_prewarm(t->pool, &machine, 8, NULL), 0);
    turn(t);
    assert_int_equal(n_made, 1);
    for (int i = 0; i < 40; i++)
        (void)take(t, &machine, &takers[i], i);
    turn(t);
    assert_int_equal(n_made, 4);
    while (t->n_given < 40)
        park_all(), turn(t);
}

static void counts_of_providers(void **state UNUSED)
{
    uint64_t count = 7;

    assert_true(provider_count("runc=16 gvisor=8", "runsc", &count));
    assert_int_equal(count, 8);
    assert_false(provider_count("runc=16", "vm", &count));
    assert_null(config_rule_provider_counts(""));
    assert_null(config_rule_provider_counts("gvisor=8  vm=0"));
    assert_non_null(config_rule_provider_counts("gvisor"));
    assert_non_null(config_rule_provider_counts("chroot=1"));
    assert_non_null(config_rule_provider_counts("vm=1001"));
    assert_non_null(config_rule_provider_counts("vm=x"));
    assert_non_null(config_rule_provider_counts("vm=-1"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(waiters_are_served_in_order),
        CASE(slow_ones_are_in_nobodys_way),
        CASE(refilled_by_demand),
        CASE(refilled_in_a_pause),
        CASE(prewarmed_and_bounded),
        CASE(keys_do_not_mix),
        CASE(sets_are_held),
        CASE(failures_are_told),
        CASE(lost_while_parked),
        CASE(cancelled_ones_take_nothing),
        CASE(memory_goes_to_who_waits),
        CASE(providers_are_bounded),
        CASE(one_stays_for_a_minute),
        CASE(few_are_made_at_once),
        CASE(counts_of_providers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
