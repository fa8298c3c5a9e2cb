/* SPDX-License-Identifier: Apache-2.0 */
/* The life of sandboxes on a fake provider: pauses, deadlines, deaths, recreation, events, restarts of the service. */
#include "sandbox_rig.h"

/* ---- pause, resume, update ------------------------------------------------------------------------------ */

static void pause_and_resume(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct got got = {0}, other = {0};

    assert_int_equal(sbox_pause(sbox, &rig->caller, got_sbox, &got, NULL), 0);
    assert_int_equal(sbox->state, SBOX_PAUSING);
    assert_null(sbox->link);
    /* a losing race is told what it lost against */
    struct brig_err err = {0};
    assert_true(sbox_pause(sbox, &rig->caller, got_sbox, &other, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    assert_non_null(strstr(err.message, "is pausing: it cannot become pausing"));
    assert_true(sbox_resume(sbox, &rig->caller, got_sbox, &other, &err) < 0);
    RIG_UNTIL(rig, got.n);
    assert_false(got.failed);
    assert_int_equal(sbox->state, SBOX_PAUSED);
    assert_true(rig_box(sbox)->frozen);
    assert_true(rig_audited(rig, "sandbox.pause|key-1|"));
    got.n = 0;
    assert_int_equal(sbox_resume(sbox, &rig->caller, got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    assert_int_equal(sbox->state, SBOX_RUNNING);
    assert_non_null(sbox->link);
    assert_false(rig_box(sbox)->frozen);

    rig->fake.fail_freeze = true;
    got.n = 0;
    assert_int_equal(sbox_pause(sbox, &rig->caller, got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    assert_true(got.failed);
    assert_int_equal(sbox->state, SBOX_RUNNING);
}

static void end_beats_pause(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct got paused = {0}, ended = {0}, again = {0};
    struct brig_err err = {0};

    rig->fake.hold_freeze = true;
    assert_int_equal(sbox_pause(sbox, &rig->caller, got_sbox, &paused, NULL), 0);
    assert_int_equal(sbox_end(sbox, &rig->caller, "deleted", got_sbox, &ended, NULL), 0);
    assert_true(sbox_end(sbox, &rig->caller, "deleted", got_sbox, &again, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    assert_non_null(strstr(err.message, "is stopping: it cannot become stopping"));
    RIG_UNTIL(rig, paused.n && ended.n);
    assert_true(paused.failed);
    assert_int_equal(paused.err.code, BRIG_E_CONFLICT);
    assert_false(ended.failed);
}

static void update(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"metadata\":{\"a\":\"b\"}}");
    const struct sbox_pair pairs[] = {{"c", "d"}, {"e", "f"}}, bad[] = {{"c", "d\n"}};
    struct got got = {0};
    struct brig_err err = {0};

    assert_int_equal(sbox_update(sbox, &rig->caller, 60000, pairs, 2, got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    assert_int_equal(sbox->spec.n_metadata, 2);
    assert_string_equal(sbox->spec.metadata[1].value, "f");
    assert_true(sbox->ends_at_boot_ns > sandbox_boot_ns() + 50 * NS_PER_SEC);
    assert_true(sbox_update(sbox, &rig->caller, UINT64_MAX, bad, 1, got_sbox, &got, &err) < 0);
    assert_int_equal(err.code, BRIG_E_USAGE);
    assert_string_equal(sbox->spec.metadata[1].value, "f");
    got.n = 0;
    assert_int_equal(sbox_update(sbox, &rig->caller, 0, NULL, 0, got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    assert_int_equal(sbox->ends_at_boot_ns, 0);
    assert_int_equal(sbox->spec.n_metadata, 2);
    assert_true(rig_audited(rig, "sandbox.update|key-1|"));
}

static void got_stats(void *ctx, const struct box_stats *stats, const struct brig_err *err)
{
    struct got *got = ctx;

    got->n++;
    got->failed = err != NULL;
    if (stats)
        got->stats = *stats;
}

static void statistics(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct got got = {0};

    rig->fake.stats_are.memory_bytes = 77;
    assert_int_equal(sbox_stats(sbox, got_stats, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    assert_int_equal(got.stats.memory_bytes, 77);
    /* asked, and then it ends */
    assert_int_equal(sbox_stats(sbox, got_stats, &got, NULL), 0);
    rig_end(rig, sbox);
    assert_int_equal(got.n, 2);
}

/* ---- age and idleness ----------------------------------------------------------------------------------- */

static void ages(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"timeout\":0.05}");
    char id[32];
    unsigned n = 0;

    snprintf(id, sizeof id, "%s", sbox->id);
    RIG_UNTIL(rig, !manager_first(rig->manager));
    char *cert = rig_find(rig, true, id, NULL, &n);
    assert_non_null(strstr(cert, "\"cause\":\"timeout\""));
    assert_non_null(strstr(cert, "\"ended_by\":\"timeout\""));
    free(cert);
    assert_true(rig_audited(rig, "sandbox.timeout|system|"));

    sbox = rig_sandbox(rig, "{\"timeout\":0.05,\"on_timeout\":\"pause\"}");
    RIG_UNTIL(rig, sbox->state == SBOX_PAUSED);
    struct got got = {0};
    assert_int_equal(sbox_resume(sbox, &rig->caller, got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    assert_int_equal(sbox->state, SBOX_RUNNING);
    assert_true(sbox->ends_at_boot_ns > 0); /* its time anew */
    RIG_UNTIL(rig, sbox->state == SBOX_PAUSED);
}

static void idles(void **state)
{
    struct rig *rig = *state;
    struct sbox *idle = rig_sandbox(rig, "{\"idle_timeout\":0.1}"),
                *held = rig_sandbox(rig, "{\"idle_timeout\":0.1,\"name\":\"held\"}");
    struct manager_stats stats;
    char id[32];

    snprintf(id, sizeof id, "%s", idle->id);
    sbox_hold(held);
    RIG_UNTIL(rig, !manager_find(rig->manager, &rig->caller, id));
    for (uint64_t until = clock_mono_ns() + 200 * NS_PER_MS; clock_mono_ns() < until;)
        assert_int_equal(loop_run_once(rig->loop, 20, NULL), 0);
    assert_non_null(manager_find(rig->manager, &rig->caller, "held"));
    manager_stats(rig->manager, &stats);
    assert_int_equal(stats.idle_reaped, 1);
    char *cert = rig_find(rig, true, id, NULL, NULL);
    assert_non_null(strstr(cert, "\"cause\":\"idle\""));
    free(cert);
    uint64_t released = sandbox_boot_ns();
    sbox_release(held);
    RIG_UNTIL(rig, !manager_find(rig->manager, &rig->caller, "held"));
    assert_true(sandbox_boot_ns() - released >= 100 * NS_PER_MS);
    assert_true(rig_audited(rig, "sandbox.idle|system|"));
}

/* The wall clock is display; a machine that slept has aged; the pass finds what late timers missed. */
static void clock_jumps(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"timeout\":1000}");

    rig_run(rig, 20);
    assert_int_equal(sbox->state, SBOX_RUNNING);
    sandbox_clock_skew = 1001 * NS_PER_SEC;
    rig_run(rig, 20);
    assert_int_equal(sbox->state, SBOX_RUNNING); /* nobody has looked */
    idle_start(rig->manager);
    RIG_UNTIL(rig, !manager_first(rig->manager));
}

/* ---- deaths --------------------------------------------------------------------------------------------- */

struct watcher {
    struct sbox_watch watch;
    unsigned told;
};

static void on_watch(void *ctx, struct sbox *sbox UNUSED)
{
    ((struct watcher *)ctx)->told++;
}

static void dies_by_itself(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct watcher a = {.watch = {.ended = on_watch, .ctx = &a}}, b = {.watch = {.ended = on_watch, .ctx = &b}};
    char id[32];

    snprintf(id, sizeof id, "%s", sbox->id);
    sbox_watch(sbox, &a.watch);
    sbox_watch(sbox, &b.watch);
    sbox_unwatch(sbox, &b.watch);
    fake_die(rig_box(sbox), BRIG_CAUSE_OOM, "it used too much");
    RIG_UNTIL(rig, !manager_first(rig->manager));
    assert_int_equal(a.told, 1);
    assert_int_equal(b.told, 0);
    char *cert = rig_find(rig, true, id, NULL, NULL);
    assert_non_null(strstr(cert, "\"cause\":\"oom\""));
    assert_non_null(strstr(cert, "\"ended_by\":\"sandbox\""));
    assert_non_null(strstr(cert, "it used too much"));
    free(cert);
}

/* brig-init breaks the protocol: the sandbox cannot be trusted any more. */
static void link_breaks(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    char id[32];

    snprintf(id, sizeof id, "%s", sbox->id);
    rig_run(rig, 5);
    peer_frame(rig_peer(sbox), SVC_DATA, 12345, 1, "x", 1);
    RIG_UNTIL(rig, !manager_first(rig->manager));
    char *cert = rig_find(rig, true, id, NULL, NULL);
    assert_non_null(strstr(cert, "\"cause\":\"sandbox-gone\""));
    assert_non_null(strstr(cert, "broke the protocol"));
    free(cert);
}

static void recreated(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"on_death\":\"recreate\"}");
    char id[32], boot[32], box[32];

    snprintf(id, sizeof id, "%s", sbox->id);
    snprintf(boot, sizeof boot, "%s", sbox->boot_id);
    snprintf(box, sizeof box, "%s", sbox->priv->box_id);
    fake_die(rig_box(sbox), BRIG_CAUSE_SANDBOX_GONE, "pid 1 died");
    RIG_UNTIL(rig, sbox->state == SBOX_CREATING);
    RIG_UNTIL(rig, sbox->state == SBOX_RUNNING);
    assert_string_equal(sbox->id, id);
    assert_string_not_equal(sbox->boot_id, boot);
    assert_string_not_equal(sbox->priv->box_id, box);
    assert_non_null(sbox->link);
    assert_true(rig_audited(rig, "sandbox.recreate|system|"));
    /* not for ever */
    unsigned deaths = 1;
    while (manager_first(rig->manager)) {
        if (sbox->state == SBOX_RUNNING) {
            fake_die(rig_box(sbox), BRIG_CAUSE_SANDBOX_GONE, "again");
            deaths++;
            RIG_UNTIL(rig, !manager_first(rig->manager) || sbox->state != SBOX_RUNNING);
        }
        assert_int_equal(loop_run_once(rig->loop, 20, NULL), 0);
    }
    assert_int_equal(deaths, RECREATE_MAX);
    char *cert = rig_find(rig, true, id, NULL, NULL);
    assert_non_null(strstr(cert, "\"recreated\":4"));
    free(cert);
}

/* Between two lives it can be deleted. */
static void end_while_recreating(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"on_death\":\"recreate\"}");

    fake_die(rig_box(sbox), BRIG_CAUSE_SANDBOX_GONE, "pid 1 died");
    RIG_UNTIL(rig, sbox->state == SBOX_CREATING && !sbox->priv->box);
    rig_end(rig, sbox);
    assert_null(manager_first(rig->manager));
    assert_int_equal(rig->fake.n_boxes, 0);
}

static void ephemeral(void **state)
{
    struct rig *rig = *state;
    struct sbox_spec spec;
    struct got got = {0};
    char id[32];
    unsigned n = 9;

    assert_int_equal(rig_spec(rig, "{}", &spec, NULL), 0);
    spec.ephemeral = true;
    assert_int_equal(manager_create_sandbox(rig->manager, &rig->caller, &spec, NULL, NULL, got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    snprintf(id, sizeof id, "%s", got.sbox->id);
    rig_end(rig, got.sbox);
    free(rig_find(rig, true, id, NULL, &n));
    assert_int_equal(n, 0);
    assert_null(manager_first(rig->manager));
}

/* ---- events --------------------------------------------------------------------------------------------- */

struct heard {
    struct manager_listener listener;
    struct manager *manager;
    unsigned n, leave_at;
    uint64_t seq;
    char last[1024];
};

static void on_heard(void *ctx, const char *org_id, uint64_t seq, const char *json, size_t len)
{
    struct heard *heard = ctx;

    assert_string_equal(org_id, ORG);
    assert_true(seq > heard->seq);
    heard->seq = seq;
    snprintf(heard->last, sizeof heard->last, "%.*s", (int)len, json);
    if (++heard->n == heard->leave_at)
        manager_unlisten(heard->manager, &heard->listener);
}

static void events(void **state)
{
    struct rig *rig = *state;
    struct heard a = {.manager = rig->manager, .listener = {.event = on_heard, .ctx = &a}},
                 b = {.manager = rig->manager, .listener = {.event = on_heard, .ctx = &b}, .leave_at = 1};

    manager_listen(rig->manager, &a.listener);
    manager_listen(rig->manager, &b.listener);
    struct sbox *sbox = rig_sandbox(rig, "{\"name\":\"x\"}");
    assert_int_equal(a.n, 1);
    assert_non_null(strstr(a.last, "\"type\":\"sandbox.create\""));
    assert_non_null(strstr(a.last, "\"name\":\"x\""));
    rig_end(rig, sbox);
    assert_int_equal(a.n, 2);
    assert_int_equal(b.n, 1);
    /* those who come back */
    struct heard c = {.manager = rig->manager, .listener = {.event = on_heard, .ctx = &c}};
    manager_listen_since(rig->manager, &c.listener, 0);
    assert_int_equal(c.n, 2);
    assert_int_equal(c.seq, a.seq);
    struct heard d = {.manager = rig->manager, .listener = {.event = on_heard, .ctx = &d}, .leave_at = 1};
    manager_listen_since(rig->manager, &d.listener, 0);
    assert_int_equal(d.n, 1);
    struct heard e = {.manager = rig->manager, .listener = {.event = on_heard, .ctx = &e}};
    manager_listen_since(rig->manager, &e.listener, UINT64_MAX);
    assert_int_equal(e.n, 0);
    manager_unlisten(rig->manager, &a.listener);
    manager_unlisten(rig->manager, &c.listener);
    manager_unlisten(rig->manager, &e.listener);
}

/* A number that counts would tell each organisation how many events the others had. */
static void an_events_number_is_its_time(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct heard a = {.manager = rig->manager, .listener = {.event = on_heard, .ctx = &a}};
    uint64_t before = (uint64_t)clock_real_ns() / 1000;

    manager_listen(rig->manager, &a.listener);
    sandbox_event(sbox, "test", NULL);
    assert_true(a.seq >= before && a.seq <= (uint64_t)clock_real_ns() / 1000 + 1);
    rig->manager->event_seq = a.seq + 1000000; /* a clock that was set back */
    sandbox_event(sbox, "test", NULL);
    assert_int_equal(a.seq, rig->manager->event_seq);
    assert_true(a.seq > before + 1000000);
    manager_unlisten(rig->manager, &a.listener);
}

/* The ring is bounded: what is older is gone, and the numbers say so. */
static void events_are_bounded(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct heard a = {.manager = rig->manager, .listener = {.event = on_heard, .ctx = &a}};

    for (unsigned i = 0; i < 2 * EVENTS_MAX; i++)
        sandbox_event(sbox, "test", NULL);
    assert_int_equal(rig->manager->n_events, EVENTS_MAX);
    manager_listen_since(rig->manager, &a.listener, 0);
    assert_int_equal(a.n, EVENTS_MAX);
    manager_unlisten(rig->manager, &a.listener);
}

/* Another organisation's flood pushes out its own events, never this one's. */
static void events_of_one_do_not_push_out_anothers(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    size_t mine = rig->manager->n_events;

    assert_true(mine > 0);
    snprintf(sbox->org_id, sizeof sbox->org_id, "org-of-a-flood");
    for (unsigned i = 0; i < 3 * EVENTS_MAX; i++)
        sandbox_event(sbox, "test", NULL);
    assert_int_equal(rig->manager->n_events, EVENTS_MAX);
    for (size_t i = 0; i < mine; i++)
        assert_string_not_equal(rig->manager->events[i].org_id, "org-of-a-flood");
    for (size_t i = 1; i < EVENTS_MAX; i++)
        assert_true(rig->manager->events[i].seq > rig->manager->events[i - 1].seq);
}

static void as_json(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(
        rig, "{\"name\":\"x\",\"env\":{\"SECRET\":\"hunter2\"},\"metadata\":{\"k\":\"v\"},\"timeout\":100}");
    struct buf buf = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&buf);

    sbox_json(sbox, &json);
    assert_int_equal(json_finish(&json), 0);
    assert_non_null(strstr(buf.data, "\"state\":\"running\""));
    assert_non_null(strstr(buf.data, "\"env\":[\"SECRET\"]"));
    assert_null(strstr(buf.data, "hunter2"));
    assert_non_null(strstr(buf.data, "\"ends_at\":\"20"));
    assert_non_null(strstr(buf.data, "\"protection\":{\"complete\":true"));
    struct json_doc *doc = rig_json(buf.data);
    assert_non_null(json_get(json_root(doc), "limits"));
    json_doc_free(doc);
    buf_done(&buf);
    assert_false(rig_audited(rig, "hunter2"));
}

/* ---- starts and ends of the service --------------------------------------------------------------------- */

static void shuts_down_done(void *ctx)
{
    *(bool *)ctx = true;
}

static void shuts_down(void **state)
{
    struct rig *rig = *state;
    struct got got = {0}, late = {0};
    bool done = false;
    char id[32];

    snprintf(id, sizeof id, "%s", rig_sandbox(rig, "{}")->id);
    rig_sandbox(rig, "{}");
    rig->fake.hold_up = true;
    assert_int_equal(rig_ask(rig, "{}", NULL, 0, &got), 0);
    manager_shut_down(rig->manager, shuts_down_done, &done);
    assert_true(rig_ask(rig, "{}", NULL, 0, &late) < 0);
    assert_int_equal(late.err.code, BRIG_E_BUSY);
    RIG_UNTIL(rig, done);
    assert_int_equal(rig->fake.n_boxes, 0);
    assert_true(got.failed);
    char *cert = rig_find(rig, true, id, NULL, NULL);
    assert_non_null(strstr(cert, "\"cause\":\"shutdown\""));
    free(cert);
}

static void shuts_down_and_keeps(void **state)
{
    struct rig *rig = *state;
    bool done = false;

    rig->config.on_shutdown = (char *)(uintptr_t) "keep";
    rig_sandbox(rig, "{}");
    manager_shut_down(rig->manager, shuts_down_done, &done);
    RIG_UNTIL(rig, done);
    assert_int_equal(rig->fake.n_boxes, 1);
}

static void recovers(void **state)
{
    struct rig *rig = *state;
    struct sbox *a =
        rig_sandbox(rig, "{\"name\":\"lives\",\"timeout\":1000,\"env\":{\"A\":\"b\"},\"limits\":{\"memory\":\"64m\"},"
                         "\"metadata\":{\"k\":\"v\"}}");
    struct sbox *b = rig_sandbox(rig, "{\"name\":\"dies\"}"), *c = rig_sandbox(rig, "{\"name\":\"paused\"}");
    uint64_t ends = a->ends_at_boot_ns;
    char ids[3][32], boot[32];
    struct got got = {0};
    struct manager_stats stats;

    snprintf(ids[0], 32, "%s", a->id);
    snprintf(ids[1], 32, "%s", b->id);
    snprintf(ids[2], 32, "%s", c->id);
    snprintf(boot, sizeof boot, "%s", a->boot_id);
    assert_int_equal(sbox_pause(c, &rig->caller, got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    rig_flush(rig);
    struct fake_box *dead = rig_box(b);
    rig_stop_manager(rig);
    fake_free(dead);
    fake_add(&rig->fake, NULL); /* a create that was never committed */
    rig_start(rig);

    a = manager_find(rig->manager, &rig->caller, "lives");
    assert_non_null(a);
    assert_string_equal(a->id, ids[0]);
    assert_string_equal(a->boot_id, boot);
    assert_int_equal(a->state, SBOX_RUNNING);
    assert_non_null(a->link);
    assert_int_equal(a->ends_at_boot_ns, ends);
    assert_string_equal(a->spec.env[0].value, "b");
    assert_string_equal(a->spec.metadata[0].value, "v");
    assert_int_equal(a->spec.limits.memory, 64u << 20);
    assert_int_equal(a->next_proc, 1 + PROC_RESERVE);
    assert_null(manager_find(rig->manager, &rig->caller, "dies"));
    char *cert = rig_find(rig, true, ids[1], NULL, NULL);
    assert_non_null(strstr(cert, "\"cause\":\"sandbox-gone\""));
    free(cert);
    c = manager_find(rig->manager, &rig->caller, ids[2]);
    assert_int_equal(c->state, SBOX_PAUSED);
    assert_null(c->link);
    assert_true(rig_box(c)->frozen);
    assert_int_equal(rig->fake.orphans_ended, 1);
    manager_stats(rig->manager, &stats);
    assert_int_equal(stats.orphans, 1);
    assert_int_equal(stats.recovered, 2);
    got.n = 0;
    assert_int_equal(sbox_resume(c, &rig->caller, got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    assert_false(got.failed);
    assert_non_null(c->link);
}

/* Destroyed in the middle of everything: nobody is called, nothing is touched afterwards (ASan watches). */
static void destroyed_in_between(void **state)
{
    struct rig *rig = *state;
    struct got got[5] = {0};
    struct sbox *a = rig_sandbox(rig, "{}"), *b = rig_sandbox(rig, "{}"), *c = rig_sandbox(rig, "{}");

    assert_int_equal(rig_ask(rig, "{}", "k", 1, &got[0]), 0);
    RIG_UNTIL(rig, rig->manager->ops != NULL || got[0].n); /* up, and on its way to the store */
    assert_int_equal(sbox_pause(a, &rig->caller, got_sbox, &got[1], NULL), 0);
    assert_int_equal(sbox_end(b, &rig->caller, "deleted", got_sbox, &got[2], NULL), 0);
    assert_int_equal(sbox_update(c, &rig->caller, 5000, NULL, 0, got_sbox, &got[3], NULL), 0);
    assert_int_equal(sbox_stats(c, got_stats, &got[4], NULL), 0);
    rig_stop_manager(rig);
    while (rig->fake.boxes)
        fake_free(rig->fake.boxes);
    store_close(rig->store);
    rig_run(rig, 5);
    for (size_t i = 1; i < 5; i++)
        assert_int_equal(got[i].n, 0);
    rig_open_store(rig);
    rig_start(rig);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(pause_and_resume),
        CASE(end_beats_pause),
        CASE(update),
        CASE(statistics),
        CASE(ages),
        CASE(idles),
        CASE(clock_jumps),
        CASE(dies_by_itself),
        CASE(link_breaks),
        CASE(recreated),
        CASE(end_while_recreating),
        CASE(ephemeral),
        CASE(events),
        CASE(an_events_number_is_its_time),
        CASE(events_are_bounded),
        CASE(events_of_one_do_not_push_out_anothers),
        CASE(as_json),
        CASE(shuts_down),
        CASE(shuts_down_and_keeps),
        CASE(recovers),
        CASE(destroyed_in_between),
    };

    return cmocka_run_group_tests_name("manager_life", cases, NULL, NULL);
}
