/* SPDX-License-Identifier: Apache-2.0 */
/* Readers and writers of processes, and what becomes of everything when the sandbox or the service goes. */
#include "process_kit.h"

static void readers(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct process *process = start(rig, sbox, "sleep");
    struct reader a = {.consume = true}, b = {.consume = true}, c = {.consume = true}, gone = {.close_on_data = true};

    peer_write(rig_peer(sbox), 1, 1, "hello ", 6);
    reader_open(&a, process, 0, false);
    reader_open(&gone, process, 0, false);
    assert_int_equal(sbox->busy, 2);
    RIG_UNTIL(rig, a.got[1].len == 6 && !gone.output);
    assert_int_equal(a.begins, 1);
    assert_int_equal(sbox->busy, 1);
    peer_write(rig_peer(sbox), 1, 1, "world", 5);
    peer_write(rig_peer(sbox), 1, 2, "err", 3);
    RIG_UNTIL(rig, a.got[1].len == 11 && a.got[2].len == 3);
    /* comes back where it was */
    reader_open(&b, process, 6, false);
    RIG_UNTIL(rig, b.got[1].len == 5);
    assert_memory_equal(b.got[1].data, "world", 5);
    assert_int_equal(b.first[1], 6);
    assert_int_equal(a.ends, 0);
    peer_end(rig_peer(sbox), 1, 0);
    RIG_UNTIL(rig, a.ends && b.ends);
    assert_non_null(strstr(a.receipt, "\"cause\":\"exited\""));
    assert_int_equal(sbox->busy, 0);
    /* after the end, too */
    reader_open(&c, process, 0, false);
    RIG_UNTIL(rig, c.ends);
    assert_int_equal(c.got[1].len, 11);
    assert_string_equal(c.receipt, a.receipt);
    reader_done(&a);
    reader_done(&b);
    reader_done(&c);
    reader_done(&gone);
}

/* The first output is not lost while the first reader is on its way, whatever the ring forgets meanwhile. */
static void first_reader(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct process *process = start(rig, sbox, "sleep");
    struct reader a = {.consume = true}, b = {.consume = true}, c = {.consume = true};
    size_t size = 700000;
    char *text = malloc(size);

    assert_non_null(text);
    memset(text, 'e', size);
    rig_peer(sbox)->forgets = true;
    RIG_UNTIL(rig, rig_peer(sbox)->opens[SVC_PROC_ATTACH] == 1);
    peer_write(rig_peer(sbox), 1, 1, text, size);
    peer_write(rig_peer(sbox), 1, 2, "err", 3);
    RIG_UNTIL(rig, process->early->data[1].len == size);
    reader_open(&a, process, 0, false);
    assert_int_equal(a.begins, 0); /* never from within */
    reader_open(&b, process, 0, false);
    RIG_UNTIL(rig, a.got[1].len == size && a.got[2].len == 3 && b.begins);
    assert_int_equal(a.first[1], 0);
    assert_int_equal(b.first[1], size); /* late: it is told what it missed */
    assert_int_equal(rig->manager->n_early, 1);
    peer_write(rig_peer(sbox), 1, 1, "more", 4);
    RIG_UNTIL(rig, a.got[1].len == size + 4 && b.got[1].len == 4);
    peer_end(rig_peer(sbox), 1, 0);
    RIG_UNTIL(rig, a.ends && b.ends);
    assert_int_equal(rig->manager->n_early, 0);
    /* of one that has ended already */
    process = start(rig, sbox, "sleep");
    RIG_UNTIL(rig, rig_peer(sbox)->opens[SVC_PROC_ATTACH] == 3);
    peer_write(rig_peer(sbox), 2, 1, text, size);
    peer_end(rig_peer(sbox), 2, 0);
    RIG_UNTIL(rig, !process_running(process));
    reader_open(&c, process, 0, false);
    RIG_UNTIL(rig, c.ends);
    assert_int_equal(c.got[1].len, size);
    assert_non_null(c.receipt);
    assert_int_equal(rig->manager->n_early, 0);
    free(text);
    reader_done(&a);
    reader_done(&b);
    reader_done(&c);
}

/* It is taken over and closed, or the sandbox goes, in every order; nobody comes, and it is given up. */
static void first_reader_leaves(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct reader a = {.close_on_data = true}, b = {.consume = true}, c = {.consume = true};
    struct got ended = {0};

    struct process *one = start(rig, sbox, "sleep"), *two = start(rig, sbox, "sleep"),
                   *three = start(rig, sbox, "sleep"), *four = start(rig, sbox, "sleep");
    for (uint32_t i = 1; i <= 4; i++)
        peer_write(rig_peer(sbox), i, 1, "early", 5);
    RIG_UNTIL(rig, one->early->data[1].len == 5 && four->early->data[1].len == 5);
    assert_int_equal(rig->manager->n_early, 4);
    reader_open(&a, one, 0, false);
    RIG_UNTIL(rig, !a.output);
    assert_null(one->early);
    reader_open(&b, two, 0, false);
    output_close(take_ptr(&b.output)); /* before it was told anything */
    assert_null(two->early);
    four->early->timer.fn(&four->early->timer); /* two seconds later */
    assert_null(four->early);
    /* the sandbox goes between the taking over and the telling: everything is told in time */
    reader_open(&c, three, 0, false);
    assert_int_equal(sbox_end(sbox, &rig->caller, "deleted", got_sbox, &ended, NULL), 0);
    fake_ended(&rig_box(sbox)->end);
    assert_int_equal(c.ends, 1);
    assert_int_equal(c.got[1].len, 5);
    assert_int_equal(rig->manager->n_early, 0);
    RIG_UNTIL(rig, ended.n);
    reader_done(&a);
    reader_done(&b);
    reader_done(&c);
}

/* What nobody consumes is not sent: a slow reader costs a window, not memory. */
static void slow_reader(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    const char *const argv[] = {"flood", "5000000", NULL};
    struct process *process = start_spec(rig, sbox, &(struct process_spec){.argv = argv});
    struct reader a = {0};

    reader_open(&a, process, 0, false);
    RIG_UNTIL(rig, a.got[1].len == SVC_WINDOW);
    rig_run(rig, 50);
    assert_int_equal(a.got[1].len, SVC_WINDOW);
    assert_int_equal(a.ends, 0);
    a.consume = true;
    output_consumed(a.output, 1, SVC_WINDOW);
    RIG_UNTIL(rig, a.ends);
    assert_int_equal(a.got[1].len, 5000000);
    reader_done(&a);
}

static void up_to_now(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct process *process = start(rig, sbox, "sleep"), *silent = start(rig, sbox, "sleep");
    struct reader a = {.consume = true}, b = {.consume = true}, c = {.consume = true};

    peer_write(rig_peer(sbox), 1, 1, "hello", 5);
    reader_open(&a, process, 0, true);
    reader_open(&b, silent, 0, true);
    RIG_UNTIL(rig, a.ends && b.ends);
    assert_int_equal(a.got[1].len, 5);
    assert_null(a.receipt);
    assert_int_equal(b.got[1].len, 0);
    peer_end(rig_peer(sbox), 1, 0);
    RIG_UNTIL(rig, !process_running(process));
    reader_open(&c, process, 0, true);
    RIG_UNTIL(rig, c.ends);
    assert_non_null(c.receipt);
    reader_done(&a);
    reader_done(&b);
    reader_done(&c);
}

static void writers(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    const char *const argv[] = {"cat", NULL};
    struct process *process = start_spec(rig, sbox, &(struct process_spec){.argv = argv, .stdin_open = true}),
                   *closed = start(rig, sbox, "sleep");
    struct writer a = {.left = 3u << 20}, b = {0};
    const struct input_events ea = {writer_writable, writer_ended, &a}, eb = {writer_writable, writer_ended, &b};
    struct brig_err err = {0};

    assert_true(input_open(closed, &ea, &a.input, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    assert_int_equal(input_open(process, &ea, &a.input, NULL), 0);
    writer_writable(&a);
    assert_true(a.left > 0); /* a window is full */
    RIG_UNTIL(rig, a.left == 0);
    /* leaves without closing stdin: nothing is taken back */
    input_close(a.input, false);
    RIG_UNTIL(rig, rig_peer(sbox)->procs[0].out[1].len == 3u << 20);
    assert_int_equal(input_open(process, &eb, &b.input, NULL), 0);
    assert_int_equal(input_write(b.input, "end", 3), 3);
    input_close(b.input, true);
    RIG_UNTIL(rig, !process_running(process));
    assert_int_equal(process->prog.exit.output[1], (3u << 20) + 3);
    assert_int_equal(rig_peer(sbox)->opens[SVC_PROC_INPUT], 1); /* one call for both */
}

static void writer_of_the_dead(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    const char *const argv[] = {"sleep", NULL};
    struct process *process = start_spec(rig, sbox, &(struct process_spec){.argv = argv, .stdin_open = true});
    struct writer a = {0};
    const struct input_events ea = {writer_writable, writer_ended, &a};

    assert_int_equal(input_open(process, &ea, &a.input, NULL), 0);
    rig_run(rig, 5);
    peer_end(rig_peer(sbox), 1, 0);
    RIG_UNTIL(rig, a.ends);
    assert_int_equal(a.errnum, EPIPE);
    assert_int_equal(sbox->busy, 0);
}

/* ---- the sandbox goes ----------------------------------------------------------------------------------- */

struct all {
    struct got run, wait, wait2, open, shell, stats;
    struct process_run *r;
    struct process_wait *w, *w2;
    struct reader reader;
    struct writer writer;
    struct shell *sh;
};

/* One of everything in flight. */
static void busy_box(struct rig *rig, struct sbox *sbox, struct all *all)
{
    const char *const argv[] = {"sleep", NULL};
    struct process *p =
        start_spec(rig, sbox, &(struct process_spec){.argv = argv, .stdin_open = true, .timeout_ms = 60000});
    const struct input_events events = {writer_writable, writer_ended, &all->writer};

    start(rig, sbox, "true");
    assert_int_equal(process_wait(p, 0, got_text, &all->wait, &all->w, NULL), 0);
    assert_int_equal(process_wait(p, 50000, got_text, &all->wait2, &all->w2, NULL), 0);
    reader_open(&all->reader, p, 0, false);
    assert_int_equal(input_open(p, &events, &all->writer.input, NULL), 0);
    assert_int_equal(input_write(all->writer.input, "x", 1), 1);
    all->sh = open_shell(rig, sbox);
    assert_int_equal(shell_run(all->sh, &rig->caller, "hang", 4, 60000, got_text, &all->shell, NULL), 0);
    assert_int_equal(
        process_run(sbox, &rig->caller, &(struct process_spec){.argv = argv}, got_text, &all->run, &all->r, NULL), 0);
    rig_run(rig, 5);
    assert_int_equal(
        process_start(sbox, &rig->caller, &(struct process_spec){.argv = argv}, got_process, &all->open, NULL), 0);
}

static void all_told(struct rig *rig, struct all *all, const char *cause)
{
    char want[64];

    RIG_UNTIL(rig, all->run.n && all->wait.n && all->wait2.n && all->open.n && all->shell.n && all->reader.ends &&
                       all->writer.ends);
    snprintf(want, sizeof want, "\"cause\":\"%s\"", cause);
    assert_non_null(strstr(all->run.text, want));
    assert_non_null(strstr(all->wait.text, want));
    assert_non_null(strstr(all->reader.receipt, want));
    assert_true(all->shell.failed);
    free(all->run.text);
    free(all->wait.text);
    free(all->wait2.text);
    reader_done(&all->reader);
}

static void sandbox_deleted(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct all all = {0};
    struct got ended = {0};

    busy_box(rig, sbox, &all);
    assert_int_equal(sbox_end(sbox, &rig->caller, "deleted", got_sbox, &ended, NULL), 0);
    all_told(rig, &all, "cancelled");
    RIG_UNTIL(rig, ended.n);
    assert_int_equal(rig->manager->stats.processes, 0);
}

static void sandbox_dies(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct all all = {0};

    busy_box(rig, sbox, &all);
    fake_die(rig_box(sbox), BRIG_CAUSE_SANDBOX_GONE, "pid 1 died");
    all_told(rig, &all, "sandbox-gone");
    RIG_UNTIL(rig, !manager_first(rig->manager));
}

struct ender {
    struct rig *rig;
    struct sbox *sbox;
    struct got ended;
};

static void got_and_end(void *ctx, const char *receipt UNUSED, size_t len UNUSED, const struct brig_err *err UNUSED)
{
    struct ender *ender = ctx;

    assert_int_equal(sbox_end(ender->sbox, &ender->rig->caller, "deleted", got_sbox, &ender->ended, NULL), 0);
}

/* `brig run` deletes its sandbox as soon as the run is over; here the sandbox was over first. */
static void ended_by_one_who_is_told_that_it_died(void **state)
{
    struct rig *rig = *state;
    struct ender ender = {.rig = rig, .sbox = rig_sandbox(rig, "{}")};
    const char *const argv[] = {"sleep", NULL};
    struct process *p = start_spec(rig, ender.sbox, &(struct process_spec){.argv = argv, .timeout_ms = 60000});
    struct process_wait *wait;

    assert_int_equal(process_wait(p, 0, got_and_end, &ender, &wait, NULL), 0);
    fake_die(rig_box(ender.sbox), BRIG_CAUSE_OOM, "too much");
    RIG_UNTIL(rig, ender.ended.n);
    RIG_UNTIL(rig, !manager_first(rig->manager));
    assert_int_equal(rig->manager->stats.ended, 1);
}

static void link_dies(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct all all = {0};

    busy_box(rig, sbox, &all);
    rig_run(rig, 5);
    peer_close(rig_peer(sbox));
    all_told(rig, &all, "sandbox-gone");
    RIG_UNTIL(rig, !manager_first(rig->manager));
}

static void manager_destroyed(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct all all = {0};

    busy_box(rig, sbox, &all);
    rig_stop_manager(rig);
    assert_int_equal(all.run.n + all.wait.n + all.shell.n + all.reader.ends, 0);
    all.reader.output = NULL;
    reader_done(&all.reader);
    while (rig->fake.boxes)
        fake_free(rig->fake.boxes);
    rig_start(rig);
}

static void recreated_box(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"on_death\":\"recreate\"}");
    struct all all = {0};

    busy_box(rig, sbox, &all);
    fake_die(rig_box(sbox), BRIG_CAUSE_OOM, "too much");
    all_told(rig, &all, "oom");
    RIG_UNTIL(rig, sbox->state == SBOX_RUNNING);
    struct process *old = process_find(sbox, 1);
    assert_non_null(old);
    const uint64_t from[3] = {0};
    const struct output_events events = {reader_begin, reader_data, reader_end, NULL};
    struct output *output;
    struct brig_err err = {0};
    assert_true(output_open(old, 6, from, &events, &output, &err) < 0); /* its ring went with the box */
    assert_int_equal(err.code, BRIG_E_NOT_FOUND);
    struct json_doc *doc = run(rig, sbox, "echo", "again");
    assert_true(number_at(doc, "process", NULL) > 4); /* numbers are not used twice */
    json_doc_free(doc);
}

/* ---- a new brigd ---------------------------------------------------------------------------------------- */

static void runs_survive(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"name\":\"s\"}");
    const char *const argv[] = {"sleep", "100", NULL};
    struct process *lives =
        start_spec(rig, sbox, &(struct process_spec){.argv = argv, .timeout_ms = 100000, .stdin_open = true});
    struct process *ends = start(rig, sbox, "sleep"), *before = start(rig, sbox, "sleep"),
                   *lost = start(rig, sbox, "sleep");
    struct shell *shell = open_shell(rig, sbox);
    char ids[4][48], sandbox[32];
    unsigned n = 0;

    snprintf(ids[0], 48, "%s", process_run_id(lives));
    snprintf(ids[1], 48, "%s", process_run_id(ends));
    snprintf(ids[2], 48, "%s", process_run_id(before));
    snprintf(ids[3], 48, "%s", process_run_id(lost));
    snprintf(sandbox, sizeof sandbox, "%s", sbox->id);
    uint64_t deadline = lives->prog.deadline_ns;
    uint32_t shell_proc = 5;
    assert_int_equal(shell_number(shell), 1);
    struct peer *peer = rig_peer(sbox);
    peer_write(peer, 1, 1, "before ", 7);
    peer_end(peer, 3, 0);
    RIG_UNTIL(rig, !process_running(before));
    rig_flush(rig);
    rig_stop_manager(rig);
    /* meanwhile */
    peer_end(peer, 2, 7 << 8);
    peer_proc(peer, 4)->number = 4000; /* brig-init does not know 4 any more; 4000 is news to us */
    rig_start(rig);

    sbox = manager_find(rig->manager, &rig->caller, "s");
    lives = process_find(sbox, 1);
    assert_non_null(lives);
    assert_true(process_running(lives));
    assert_string_equal(process_run_id(lives), ids[0]);
    assert_int_equal(lives->prog.deadline_ns, deadline);
    assert_int_equal(process_pid(lives), 101);
    assert_string_equal(lives->argv[1], "100");
    assert_string_equal(lives->caller.actor, "key-1");
    ends = process_find(sbox, 2);
    assert_false(process_running(ends));
    assert_non_null(strstr(ends->receipt, "\"exit_code\":7"));
    assert_non_null(strstr(ends->receipt, ids[1]));
    assert_non_null(process_find(sbox, 3)); /* its output can still be read */
    assert_true(process_running(process_find(sbox, 4000)));
    assert_true(sbox->next_proc > 4000);
    shell = shell_find(sbox, 1);
    assert_non_null(shell);
    assert_non_null(process_find(sbox, shell_proc));

    rig_flush(rig);
    free(rig_find(rig, false, sandbox, "", &n));
    assert_int_equal(n, 3); /* 1, 4000 and the shell; the rest is closed */
    char *doc = rig_find(rig, false, sandbox, "host-error", &n);
    assert_int_equal(n, 1);
    assert_non_null(strstr(doc, ids[3]));
    free(doc);
    doc = rig_find(rig, false, sandbox, "exited", &n);
    assert_int_equal(n, 2);
    free(doc);

    /* and it goes on: output from where it was, input, shells, its end */
    struct reader reader = {.consume = true};
    reader_open(&reader, lives, 3, false);
    peer_write(rig_peer(sbox), 1, 1, "after", 5);
    RIG_UNTIL(rig, reader.got[1].len == 9);
    assert_memory_equal(reader.got[1].data, "ore after", 9);
    struct writer writer = {0};
    const struct input_events events = {writer_writable, writer_ended, &writer};
    assert_int_equal(input_open(lives, &events, &writer.input, NULL), 0);
    assert_int_equal(input_write(writer.input, "!", 1), 1);
    struct json_doc *result = shell_do(rig, shell, "still", 0);
    assert_string_equal(text_at(result, "stdout", NULL), "still");
    assert_false(at(result, "restarted", NULL)->boolean);
    json_doc_free(result);
    peer_end(rig_peer(sbox), 1, 0);
    RIG_UNTIL(rig, reader.ends && writer.ends);
    assert_non_null(strstr(reader.receipt, ids[0]));
    reader_done(&reader);
    rig_flush(rig);
    doc = rig_find(rig, false, sandbox, "exited", &n);
    assert_int_equal(n, 3);
    free(doc);
}

/* Runs of sandboxes that are gone are closed. */
static void runs_of_the_dead(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    char id[32];
    unsigned n = 0;

    start(rig, sbox, "sleep");
    snprintf(id, sizeof id, "%s", sbox->id);
    rig_flush(rig);
    rig_stop_manager(rig);
    while (rig->fake.boxes)
        fake_free(rig->fake.boxes);
    rig_start(rig);
    rig_flush(rig);
    free(rig_find(rig, false, id, "", &n));
    assert_int_equal(n, 0);
    free(rig_find(rig, false, id, "host-error", &n));
    assert_int_equal(n, 1);
}

/* A sandbox that does not answer does not keep the service from starting. */
static void deaf_sandbox(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    const struct manager_options options = {.loop = rig->loop,
                                            .provider = &rig->fake.provider,
                                            .store = rig->store,
                                            .audit = &rig->audit,
                                            .config = &rig->config};

    rig_peer(sbox)->mute = true;
    rig_flush(rig);
    rig_stop_manager(rig);
    rig->ready = false;
    assert_int_equal(manager_create(&options, rig_ready, rig, &rig->manager, NULL), 0);
    uint64_t until = clock_mono_ns() + 200 * NS_PER_MS;
    while (clock_mono_ns() < until)
        assert_int_equal(loop_run_once(rig->loop, 20, NULL), 0);
    assert_false(rig->ready);
    assert_non_null(rig->manager->recovery);
    recover_late(rig->manager); /* ten seconds later */
    RIG_UNTIL(rig, rig->ready);
    RIG_UNTIL(rig, !manager_first(rig->manager));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(readers),
        CASE(first_reader),
        CASE(first_reader_leaves),
        CASE(slow_reader),
        CASE(up_to_now),
        CASE(writers),
        CASE(writer_of_the_dead),
        CASE(sandbox_deleted),
        CASE(sandbox_dies),
        CASE(ended_by_one_who_is_told_that_it_died),
        CASE(link_dies),
        CASE(manager_destroyed),
        CASE(recreated_box),
        CASE(runs_survive),
        CASE(runs_of_the_dead),
        CASE(deaf_sandbox),
    };

    return cmocka_run_group_tests_name("process_io", cases, NULL, NULL);
}
