/* SPDX-License-Identifier: Apache-2.0 */
/* Single-use interpreters (sandbox/child/child.h) on a provider and a brig-init that the tests play. */
#include "sandbox_rig.h"

#include "sandbox/child/child.h"
#include "sandbox/child/child_private.h"

static struct {
    unsigned parked, lost, done, answers, streamed;
    struct child *child;
    char why[256];
    struct child_done how;
    char answer[128], out[128], err[128], detail[256];
    bool release;
} seen;

static void on_parked(void *ctx UNUSED, struct child *child)
{
    seen.parked++;
    assert_int_equal(child_state(child), CHILD_PARKED);
}

static void on_lost(void *ctx UNUSED, struct child *child UNUSED, const struct brig_err *why)
{
    seen.lost++;
    snprintf(seen.why, sizeof seen.why, "%s", why->message);
}

static void on_answer(void *ctx UNUSED, const struct child_done *done)
{
    assert_int_equal(seen.done, 0);
    assert_int_equal(done->cause, BRIG_CAUSE_EXITED);
    seen.answers++;
    snprintf(seen.answer, sizeof seen.answer, "%.*s", (int)done->answer_len, done->answer);
}

static void on_done(void *ctx UNUSED, const struct child_done *done)
{
    seen.done++;
    seen.how = *done;
    snprintf(seen.answer, sizeof seen.answer, "%.*s", (int)done->answer_len, done->answer ? done->answer : "");
    snprintf(seen.out, sizeof seen.out, "%.*s", (int)done->output_len[1], done->output[1]);
    snprintf(seen.err, sizeof seen.err, "%.*s", (int)done->output_len[2], done->output[2]);
    snprintf(seen.detail, sizeof seen.detail, "%s", done->detail);
    if (seen.release)
        child_release(seen.child);
}

static void on_output(void *ctx UNUSED, unsigned stream UNUSED, const uint8_t *data UNUSED, size_t len)
{
    seen.streamed += (unsigned)len;
}

static int setup(void **state)
{
    struct rig *rig = rig_create();

    memset(&seen, 0, sizeof seen);
    rig->config.tools_max_runs = 3;
    rig->config.max_sandboxes = 1;
    rig->config.create_queue = 1;
    rig->fake.stats_are = (struct box_stats){.cpu_ns = 5000000,
                                             .memory_bytes = 7u << 20,
                                             .memory_peak_bytes = 9u << 20,
                                             .pids_peak = 3,
                                             .disk_bytes = 4096,
                                             .disk_peak_bytes = BRIG_USAGE_UNKNOWN};
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_done(*state);
    return 0;
}

static int make(struct rig *rig, const char *word, struct child **ret, struct brig_err *err)
{
    const char *const argv[] = {word, "x", NULL}, *const env[] = {"A=b", NULL};
    const struct brig_bind bind = {.source = "/srv/set", .target = "/mnt", .read_only = true};
    struct child_spec spec = {
        .org_id = ORG, .argv = argv, .env = env, .binds = &bind, .n_binds = 1, .limits = {.memory = 100u << 20}};
    const struct child_events events = {on_parked, on_lost, NULL};

    return child_create(rig->manager, &spec, &events, ret, err);
}

static struct child *park(struct rig *rig)
{
    struct child *child = NULL;
    unsigned before = seen.parked;

    assert_int_equal(make(rig, "sleep", &child, NULL), 0);
    assert_int_equal(child_state(child), CHILD_MAKING);
    RIG_UNTIL(rig, seen.parked == before + 1);
    seen.child = child;
    return child;
}

static struct buf request; /* The next claim takes it. */

static void fill_request(size_t len)
{
    buf_done(&request);
    request = BUF_INIT(CHILD_FRAME_HEAD + CHILD_FRAME_MAX + 1);
    assert_int_equal(buf_reserve(&request, CHILD_FRAME_HEAD + len), 0);
    le_put_u32((uint8_t *)request.data, (uint32_t)len);
    memset(request.data + CHILD_FRAME_HEAD, 'r', len);
    buf_commit(&request, CHILD_FRAME_HEAD + len);
}

static struct child_claim plain(void)
{
    fill_request(2);
    return (struct child_claim){.request = &request, .timeout_ms = 60000, .done = on_done, .output_data = on_output};
}

static struct child *claimed(struct rig *rig, const struct child_claim *claim)
{
    struct child *child = park(rig);

    if (!claim->request->data)
        fill_request(2);
    const size_t len = claim->request->len;
    assert_int_equal(child_claim(child, claim, NULL), 0);
    assert_null(claim->request->data); /* the child has it */
    assert_int_equal(seen.done, 0);
    RIG_UNTIL(rig, peer_proc(rig_peer(child_sbox(child)), 1)->asked.len == len);
    return child;
}

static void nobody_is_left(struct rig *rig)
{
    RIG_UNTIL(rig, rig->manager->n_children == 0 && rig->fake.n_boxes == 0);
    rig_run(rig, 3);
}

static void parked_claimed_gone(void **state)
{
    struct rig *rig = *state;
    struct child_claim claim = plain();
    uint64_t events = rig->manager->event_seq;
    struct child *child = claimed(rig, &claim);
    struct sbox *sbox = child_sbox(child);
    const struct peer_proc *proc = peer_proc(rig_peer(sbox), 1);

    /* As it was asked for; and nobody sees it. */
    assert_int_equal(proc->flags, SVC_PROC_CHANNEL | SVC_PROC_HOLD);
    assert_non_null(strstr(proc->env, "A=b;"));
    assert_int_equal(rig->fake.last.limits.memory, 100u << 20);
    assert_int_equal(child_memory(child), 7u << 20);
    assert_null(manager_first(rig->manager));
    assert_null(manager_find(rig->manager, &rig->caller, sbox->id));
    assert_int_equal(rig->manager->count, 0);
    assert_int_equal(rig->manager->event_seq, events);
    assert_memory_equal(proc->asked.data, "\2\0\0\0rr", 6);
    struct manager_stats stats;
    manager_stats(rig->manager, &stats);
    assert_int_equal(stats.sandboxes[SBOX_RUNNING] + stats.created, 0);

    rig->fake.stats_are.cpu_ns = 8000000;
    peer_write(rig_peer(sbox), 1, 1, "out", 3);
    peer_write(rig_peer(sbox), 1, 2, "err", 3);
    peer_say(rig_peer(sbox), 1, "answer", 6, true);
    RIG_UNTIL(rig, seen.done);
    assert_string_equal(seen.answer, "answer");
    assert_string_equal(seen.out, "out");
    assert_string_equal(seen.err, "err");
    assert_int_equal(seen.streamed, 6);
    assert_int_equal(seen.how.cause, BRIG_CAUSE_EXITED);
    assert_int_equal(seen.how.exit_code, 0);
    assert_true(seen.how.started);
    assert_int_equal(seen.how.usage.cpu_ms, 3); /* since it was parked */
    assert_int_equal(seen.how.usage.memory_peak_bytes, 9u << 20);
    nobody_is_left(rig);
    assert_int_equal(seen.done, 1);
    assert_int_equal(seen.lost, 0);
    manager_stats(rig->manager, &stats);
    assert_int_equal(stats.ended, 0);
    assert_null(rig->audit.text);
    assert_int_equal(rig->manager->event_seq, events);
}

static void counted(struct child *child, uint64_t cpu_ms, uint64_t age_ns)
{
    const struct fake_box *box = rig_box(child_sbox(child));
    const struct box_stats stats = {.cpu_ns = cpu_ms * NS_PER_MS, .at_ns = clock_mono_ns() - age_ns};

    box->box.events.counted(box->box.events.ctx, &stats);
}

/* What it used comes with the answer, in either order; what is too old or does not come is asked for. */
static void numbers_come_with_the_answer(void **state)
{
    struct rig *rig = *state;
    struct child_claim claim = plain();

    claim.answered = on_answer;
    struct child *child = claimed(rig, &claim);
    rig->fake.hold_stats = true; /* nobody who is asked answers */
    counted(child, 25, 0);
    assert_int_equal(seen.done, 0);
    peer_say(rig_peer(child_sbox(child)), 1, "a", 1, true);
    RIG_UNTIL(rig, seen.done == 1);
    assert_int_equal(seen.how.usage.cpu_ms, 20);
    assert_int_equal(seen.answers, 0); /* nothing was waited for */

    rig->fake.hold_stats = false;
    seen.done = 0;
    child = claimed(rig, &claim);
    rig_run(rig, 3);
    rig->fake.hold_stats = true;
    peer_say(rig_peer(child_sbox(child)), 1, "b", 1, true);
    RIG_UNTIL(rig, child->talk == CHILD_ANSWERED);
    assert_int_equal(seen.done, 0);
    assert_int_equal(seen.answers, 1); /* it is looked at while its numbers are under way */
    assert_string_equal(seen.answer, "b");
    counted(child, 35, 0);
    assert_int_equal(seen.done, 1);
    assert_int_equal(seen.answers, 1);
    assert_int_equal(seen.how.usage.cpu_ms, 30);

    rig->fake.hold_stats = false;
    for (int early = 0; early <= 1; early++) {
        rig->fake.stats_are.cpu_ns = 5 * NS_PER_MS;
        seen.done = 0;
        child = claimed(rig, &claim);
        rig_run(rig, 3);
        rig->fake.stats_are.cpu_ns = 45 * NS_PER_MS;
        if (early)
            counted(child, 6, NS_PER_SEC);
        peer_say(rig_peer(child_sbox(child)), 1, "c", 1, true);
        RIG_UNTIL(rig, seen.done == 1);
        assert_int_equal(seen.how.usage.cpu_ms, 40);
    }
    nobody_is_left(rig);
}

/* A provider that never sends them is asked when the answer is there: nobody waits for what does not come. */
static void numbers_are_asked_for(void **state)
{
    struct rig *rig = *state;
    struct child_claim claim = plain();

    rig->fake.provider.counts = false;
    rig->fake.stats_are.cpu_ns = 5 * NS_PER_MS;
    struct child *child = claimed(rig, &claim);
    rig_run(rig, 3);
    rig->fake.stats_are.cpu_ns = 45 * NS_PER_MS;
    rig->fake.hold_stats = true;
    peer_say(rig_peer(child_sbox(child)), 1, "a", 1, true);
    RIG_UNTIL(rig, child->talk == CHILD_ANSWERED);
    assert_false(child->expecting);
    assert_int_equal(child->waits, CHILD_WAITS_STATS);
    struct fake_box *box = rig_box(child_sbox(child));
    assert_non_null(box->stats_done);
    fake_soon(box, &box->stats, fake_stats_are);
    RIG_UNTIL(rig, seen.done == 1);
    assert_int_equal(seen.how.usage.cpu_ms, 40);
    nobody_is_left(rig);
}

static void max_runs_counts_them(void **state)
{
    struct rig *rig = *state;
    struct child *all[3], *more = NULL;
    struct brig_err err = {0};

    for (int i = 0; i < 3; i++)
        all[i] = park(rig);
    assert_true(make(rig, "sleep", &more, &err) < 0);
    assert_int_equal(err.code, BRIG_E_LIMIT);
    assert_string_equal(err.message, "Maximum number of runs (3) reached");
    rig_end(rig, rig_sandbox(rig, "{}")); /* a place of its own */
    child_end(all[0]);
    RIG_UNTIL(rig, rig->manager->n_children == 2);
    more = park(rig);
    child_end(more);
    child_end(all[1]);
    child_end(all[2]);
    child_end(NULL);
    nobody_is_left(rig);
    assert_int_equal(seen.lost + seen.done, 0);
}

static void ended_while_it_is_made(void **state)
{
    struct rig *rig = *state;
    struct child *child = NULL;

    rig->fake.hold_up = true;
    assert_int_equal(make(rig, "sleep", &child, NULL), 0);
    rig_run(rig, 3);
    child_end(child);
    nobody_is_left(rig);
    rig->fake.hold_up = false;
    assert_int_equal(make(rig, "sullen", &child, NULL), 0);
    RIG_UNTIL(rig, rig->fake.boxes && rig->fake.boxes->peer && rig->fake.boxes->peer->opens[SVC_CHANNEL]);
    child_end(child);
    nobody_is_left(rig);
    assert_int_equal(seen.lost + seen.parked, 0);
}

static void lost_ones(void **state)
{
    static const struct {
        const char *word, *says;
    } cases[] = {{"missing", "No such file"}, {"true", "ended by itself"}};
    struct rig *rig = *state;
    struct child *child = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(make(rig, cases[i].word, &child, NULL), 0);
        RIG_UNTIL(rig, seen.lost == i + 1);
        assert_non_null(strstr(seen.why, cases[i].says));
    }
    rig->fake.fail_up = "no room";
    assert_int_equal(make(rig, "sleep", &child, NULL), 0);
    RIG_UNTIL(rig, seen.lost == 3);
    assert_non_null(strstr(seen.why, "no room"));
    rig->fake.fail_up = NULL;
    seen.parked = 0;
    child = park(rig);
    peer_say(rig_peer(child_sbox(child)), 1, "?", 1, true);
    RIG_UNTIL(rig, seen.lost == 4);
    assert_non_null(strstr(seen.why, "without being asked"));
    child = park(rig);
    fake_die(rig_box(child_sbox(child)), BRIG_CAUSE_OOM, "too much");
    RIG_UNTIL(rig, seen.lost == 5);
    assert_non_null(strstr(seen.why, "too much"));
    nobody_is_left(rig);
    assert_int_equal(seen.done, 0);
}

static void how_it_ends_without_an_answer(void **state)
{
    struct rig *rig = *state;
    struct child_claim claim = plain();
    struct child *child = claimed(rig, &claim);

    peer_write(rig_peer(child_sbox(child)), 1, 1, "part", 4);
    peer_end(rig_peer(child_sbox(child)), 1, 3 << 8);
    RIG_UNTIL(rig, seen.done == 1);
    assert_int_equal(seen.how.cause, BRIG_CAUSE_EXITED);
    assert_int_equal(seen.how.exit_code, 3);
    assert_null(seen.how.answer);
    assert_string_equal(seen.out, "part");

    seen.done = 0;
    child = claimed(rig, &claim);
    peer_proc(rig_peer(child_sbox(child)), 1)->exit.oom_kills = 1;
    peer_end(rig_peer(child_sbox(child)), 1, SIGKILL);
    rig->fake.stats_are.memory_peak_bytes = 512u << 20;
    RIG_UNTIL(rig, seen.done == 1);
    assert_int_equal(seen.how.cause, BRIG_CAUSE_OOM);
    assert_int_equal(seen.how.limits_hit, 1u << BRIG_LIMIT_MEMORY);

    seen.done = 0;
    child = claimed(rig, &claim);
    child_cancel(child, "enough");
    assert_int_equal(seen.done, 0);
    RIG_UNTIL(rig, seen.done == 1);
    assert_int_equal(seen.how.cause, BRIG_CAUSE_CANCELLED);
    assert_string_equal(seen.detail, "enough");

    seen.done = 0;
    child = claimed(rig, &claim);
    fake_die(rig_box(child_sbox(child)), BRIG_CAUSE_SANDBOX_GONE, "broken");
    RIG_UNTIL(rig, seen.done == 1);
    assert_int_equal(seen.how.cause, BRIG_CAUSE_SANDBOX_GONE);
    assert_string_equal(seen.detail, "broken");

    seen.done = 0;
    claim.timeout_ms = 30;
    child = claimed(rig, &claim);
    RIG_UNTIL(rig, seen.done == 1);
    assert_int_equal(seen.how.cause, BRIG_CAUSE_TIMEOUT);
    assert_true(seen.how.limits_hit & 1u << BRIG_LIMIT_TIMEOUT);
    nobody_is_left(rig);
}

static void answers_that_are_none(void **state)
{
    struct rig *rig = *state;
    struct child_claim claim = plain();

    claim.answer_max = 10;
    struct child *child = claimed(rig, &claim);
    peer_say(rig_peer(child_sbox(child)), 1, "01234567890", 11, true);
    RIG_UNTIL(rig, seen.done == 1);
    assert_true(seen.how.answer_too_large && !seen.how.answer_broken && !seen.how.answer);

    seen.done = 0;
    child = claimed(rig, &claim);
    peer_say(rig_peer(child_sbox(child)), 1, "\1\0\0\0a\1\0\0\0b", 10, false);
    RIG_UNTIL(rig, seen.done == 1);
    assert_true(!seen.how.answer_too_large && seen.how.answer_broken && !seen.how.answer);

    seen.done = 0;
    child = claimed(rig, &claim);
    peer_say(rig_peer(child_sbox(child)), 1, "\2\0", 2, false);
    peer_end(rig_peer(child_sbox(child)), 1, 0);
    RIG_UNTIL(rig, seen.done == 1);
    assert_true(seen.how.answer_broken && !seen.how.answer);

    /* In as many pieces as it likes. */
    seen.done = 0;
    child = claimed(rig, &claim);
    for (const char *at = "\3\0\0\0abc", *end = at + 7; at < end; at++) {
        peer_say(rig_peer(child_sbox(child)), 1, at, 1, false);
        rig_run(rig, 2);
    }
    RIG_UNTIL(rig, seen.done == 1);
    assert_string_equal(seen.answer, "abc");
    nobody_is_left(rig);
}

static void limits_come_first(void **state)
{
    struct rig *rig = *state;
    struct child_claim claim = plain();
    struct brig_err err = {0};

    /* The same: nobody is asked. */
    claim.limits.memory = 0;
    struct child *child = claimed(rig, &claim);
    assert_int_equal(rig->fake.n_limits, 0);
    child_cancel(child, "");
    RIG_UNTIL(rig, seen.done == 1);

    seen.done = 0;
    claim.limits.memory = 33u << 20;
    rig->fake.hold_limits = true;
    child = park(rig);
    struct peer *peer = rig_peer(child_sbox(child));
    fill_request(2);
    assert_int_equal(child_claim(child, &claim, NULL), 0);
    rig_run(rig, 5);
    assert_int_equal(rig->fake.n_limits, 1);
    assert_int_equal(peer_proc(peer, 1)->asked.len, 0);
    struct fake_box *box = rig_box(child_sbox(child));
    fake_soon(box, &box->limiting, fake_limited);
    RIG_UNTIL(rig, peer_proc(peer, 1)->asked.len == 6);
    assert_int_equal(child_sbox(child)->limits.memory, 33u << 20);
    child_cancel(child, "");
    RIG_UNTIL(rig, seen.done == 1);

    /* They cannot be: nothing was sent. */
    seen.done = 0;
    rig->fake.hold_limits = false;
    rig->fake.fail_limits = true;
    child = park(rig);
    fill_request(2);
    assert_int_equal(child_claim(child, &claim, NULL), 0);
    RIG_UNTIL(rig, seen.done == 1);
    assert_int_equal(seen.how.cause, BRIG_CAUSE_HOST_ERROR);
    assert_false(seen.how.started);
    assert_string_equal(seen.detail, "no");

    /* What was made with it stays; a refused claim is the child's end. */
    claim.limits.disk = 1u << 30;
    child = park(rig);
    fill_request(2);
    assert_true(child_claim(child, &claim, &err) < 0);
    assert_non_null(strstr(err.message, "limits.disk"));
    nobody_is_left(rig);

    claim = plain();
    buf_done(&request);
    child = park(rig);
    assert_true(child_claim(child, &claim, &err) < 0);
    assert_string_equal(err.message, "the frame of the request has 0 bytes: at least 4, at most 67108868");
    nobody_is_left(rig);
    assert_int_equal(seen.done, 1);
}

static void files_are_kept(void **state)
{
    struct rig *rig = *state;
    struct child_claim claim = plain();

    claim.keep_files = true;
    struct child *child = claimed(rig, &claim);
    peer_say(rig_peer(child_sbox(child)), 1, "a", 1, true);
    RIG_UNTIL(rig, seen.done == 1);
    rig_run(rig, 5);
    assert_non_null(child_sbox(child));
    assert_int_equal(child_state(child), CHILD_ENDING);
    assert_int_equal(rig->fake.n_boxes, 1);
    assert_int_equal(rig_peer(child_sbox(child))->last_signal_flags, SVC_SIGNAL_ALL);
    child_release(child);
    nobody_is_left(rig);

    /* Released from within, and one whose sandbox goes meanwhile. */
    seen.done = 0;
    seen.release = true;
    child = claimed(rig, &claim);
    peer_say(rig_peer(child_sbox(child)), 1, "a", 1, true);
    RIG_UNTIL(rig, seen.done == 1);
    nobody_is_left(rig);
    seen.done = 0;
    seen.release = false;
    child = claimed(rig, &claim);
    peer_say(rig_peer(child_sbox(child)), 1, "a", 1, true);
    RIG_UNTIL(rig, seen.done == 1);
    fake_die(rig_box(child_sbox(child)), BRIG_CAUSE_SANDBOX_GONE, "broken");
    RIG_UNTIL(rig, !child_sbox(child));
    child_release(child);
    nobody_is_left(rig);
}

/* The answer is there, and what the sandbox has used is asked for: its end does not take the answer back. */
static void gone_while_it_is_counted(void **state)
{
    struct rig *rig = *state;
    struct child_claim claim = plain();
    struct child *child = claimed(rig, &claim);

    RIG_UNTIL(rig, child->parked.cpu_ns);
    rig->fake.hold_stats = true;
    peer_say(rig_peer(child_sbox(child)), 1, "a", 1, true);
    RIG_UNTIL(rig, child->prog.state == PROGRAM_JUDGING);
    assert_int_equal(seen.done, 0);
    fake_die(rig_box(child_sbox(child)), BRIG_CAUSE_SANDBOX_GONE, "broken");
    RIG_UNTIL(rig, seen.done == 1);
    assert_string_equal(seen.answer, "a");
    assert_int_equal(seen.how.cause, BRIG_CAUSE_EXITED);
    nobody_is_left(rig);
    /* And when it was asked what it has when it is parked. */
    child = park(rig);
    fake_die(rig_box(child_sbox(child)), BRIG_CAUSE_SANDBOX_GONE, "broken");
    RIG_UNTIL(rig, seen.lost == 1);
    nobody_is_left(rig);
}

static void a_large_request_waits_for_credit(void **state)
{
    struct rig *rig = *state;
    struct child_claim claim = plain();
    const size_t len = 5u << 20;

    fill_request(len);
    struct child *child = claimed(rig, &claim);
    const struct peer_proc *proc = peer_proc(rig_peer(child_sbox(child)), 1);
    assert_int_equal(le_get_u32((const uint8_t *)proc->asked.data), len);
    for (size_t i = 0; i < len; i++)
        assert_int_equal(proc->asked.data[CHILD_FRAME_HEAD + i], 'r');
    assert_null(child->request); /* wiped and gone */
    child_cancel(child, "");
    RIG_UNTIL(rig, seen.done == 1);
    nobody_is_left(rig);
}

static void in_a_sandbox_that_stays(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    const char *const argv[] = {"sleep", NULL};
    const struct child_spec spec = {.org_id = ORG, .argv = argv};
    struct child_claim claim = plain();
    struct child *child = NULL;

    assert_int_equal(child_in_sandbox(sbox, &spec, &claim, &child, NULL), 0);
    RIG_UNTIL(rig, peer_proc(rig_peer(sbox), 1) && peer_proc(rig_peer(sbox), 1)->asked.len == 6);
    assert_int_equal(sbox->busy, 1);
    peer_say(rig_peer(sbox), 1, "yes", 3, true);
    RIG_UNTIL(rig, seen.done == 1);
    assert_string_equal(seen.answer, "yes");
    assert_int_equal(rig_peer(sbox)->last_signal_flags, SVC_SIGNAL_ALL);
    assert_int_equal(seen.how.usage.cpu_ms, 3); /* its leaf's */
    assert_int_equal(sbox->busy, 0);
    assert_int_equal(sbox->state, SBOX_RUNNING);

    /* One that cannot start is done, not lost; a second number. */
    seen.done = 0;
    const char *const none[] = {"missing", NULL};
    const struct child_spec bad = {.org_id = ORG, .argv = none};
    fill_request(2);
    assert_int_equal(child_in_sandbox(sbox, &bad, &claim, &child, NULL), 0);
    RIG_UNTIL(rig, seen.done == 1);
    assert_int_equal(seen.how.cause, BRIG_CAUSE_HOST_ERROR);
    assert_false(seen.how.started);

    /* Its sandbox is deleted under it. */
    seen.done = 0;
    fill_request(2);
    assert_int_equal(child_in_sandbox(sbox, &spec, &claim, &child, NULL), 0);
    rig_run(rig, 5);
    rig_end(rig, sbox);
    assert_int_equal(seen.done, 1);
    assert_int_equal(seen.how.cause, BRIG_CAUSE_CANCELLED);
    assert_int_equal(seen.lost + seen.parked, 0);
}

static void the_manager_goes_first(void **state)
{
    struct rig *rig = *state;
    struct child_claim claim = plain();
    struct child *child = NULL;

    park(rig);
    claimed(rig, &claim);
    assert_int_equal(make(rig, "sleep", &child, NULL), 0);
    rig_run(rig, 1);
    /* rig_done(): nobody is told, nothing leaks. */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(parked_claimed_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_come_with_the_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_are_asked_for, setup, teardown),
        cmocka_unit_test_setup_teardown(max_runs_counts_them, setup, teardown),
        cmocka_unit_test_setup_teardown(ended_while_it_is_made, setup, teardown),
        cmocka_unit_test_setup_teardown(lost_ones, setup, teardown),
        cmocka_unit_test_setup_teardown(how_it_ends_without_an_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(answers_that_are_none, setup, teardown),
        cmocka_unit_test_setup_teardown(limits_come_first, setup, teardown),
        cmocka_unit_test_setup_teardown(files_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(gone_while_it_is_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(a_large_request_waits_for_credit, setup, teardown),
        cmocka_unit_test_setup_teardown(in_a_sandbox_that_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(the_manager_goes_first, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
