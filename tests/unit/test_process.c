/* SPDX-License-Identifier: Apache-2.0 */
/* Processes, their receipts and shells, against a brig-init that the test plays. */
#include "process_kit.h"

/* ---- receipts -------------------------------------------------------------------------------------------------- */

static void run_and_receipt(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"name\":\"box\",\"env\":{\"A\":\"1\",\"B\":\"2\"}}");
    const char *const argv[] = {"echo", "hello", NULL}, *const env[] = {"B=3", "C=4", NULL};
    struct json_doc *doc = run_spec(rig, sbox, &(struct process_spec){.argv = argv, .env = env, .timeout_ms = 5000});

    assert_true(str_starts(text_at(doc, "id", NULL), "run-"));
    assert_string_equal(text_at(doc, "kind", NULL), "command");
    assert_string_equal(text_at(doc, "via", NULL), "daemon");
    assert_string_equal(text_at(doc, "organization_id", NULL), ORG);
    assert_string_equal(text_at(doc, "sandbox_id", NULL), sbox->id);
    assert_string_equal(text_at(doc, "name", NULL), "box");
    assert_string_equal(text_at(doc, "provider", NULL), "fake");
    assert_int_equal(number_at(doc, "process", NULL), 1);
    assert_string_equal(text_at(doc, "outcome", "cause"), "exited");
    assert_int_equal(number_at(doc, "outcome", "exit_code"), 0);
    assert_string_equal(text_at(doc, "stdout", NULL), "hello");
    assert_string_equal(text_at(doc, "stdout_encoding", NULL), "utf-8");
    assert_string_equal(text_at(doc, "stderr", NULL), "");
    assert_int_equal(number_at(doc, "limits", "timeout"), 5);
    assert_int_equal(number_at(doc, "limits", "output"), 10 << 20);
    assert_int_equal(number_at(doc, "usage", "cpu_ms"), 3);
    assert_int_equal(number_at(doc, "usage", "memory_peak_bytes"), 4096);
    assert_true(at(doc, "protection", "complete")->boolean);
    assert_string_equal(text_at(doc, "environment", "PATH"), "base");
    assert_string_equal(text_at(doc, "environment", "A"), "sandbox");
    assert_string_equal(text_at(doc, "environment", "B"), "run");
    assert_string_equal(text_at(doc, "environment", "C"), "run");
    assert_true(number_at(doc, "audit_seq", NULL) > 0);
    assert_true(str_starts(text_at(doc, "started_at", NULL), "20"));
    /* one write for all of it, and nothing is left */
    assert_int_equal(sbox->processes, 0);
    assert_null(process_each(sbox, NULL));
    RIG_UNTIL(rig, rig_peer(sbox)->opens[SVC_PROC_FORGET] == 1);
    assert_int_equal(rig_peer(sbox)->n_procs, 0);
    rig_flush(rig);
    char *stored = rig_find(rig, false, sbox->id, NULL, NULL);
    assert_non_null(strstr(stored, "\"stdout\":\"hello\""));
    free(stored);
    assert_true(rig_audited(rig, "process.start|key-1|"));
    assert_true(rig_audited(rig, "process.exit|key-1|"));
    assert_false(rig_audited(rig, "hello")); /* no content */
    json_doc_free(doc);
}

static void environment_of_a_process(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"env\":{\"A\":\"1\",\"PATH\":\"/x\"},\"workdir\":\"/w\"}");
    const char *const argv[] = {"sleep", NULL}, *const env[] = {"A=2", "A=3", NULL};

    start_spec(rig, sbox, &(struct process_spec){.argv = argv, .env = env});
    const struct peer_proc *proc = &rig_peer(sbox)->procs[0];
    assert_string_equal(proc->env, "HOME=/home/user;USER=user;LOGNAME=user;LANG=C.UTF-8;TMPDIR=/tmp;PATH=/x;A=3;");
    assert_string_equal(proc->cwd, "/w");
    start_spec(rig, sbox, &(struct process_spec){.argv = argv, .workdir = "/elsewhere"});
    assert_string_equal(rig_peer(sbox)->procs[1].cwd, "/elsewhere");
}

static void causes(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct json_doc *doc;

    doc = run(rig, sbox, "false", NULL);
    assert_string_equal(text_at(doc, "outcome", "cause"), "exited");
    assert_int_equal(number_at(doc, "outcome", "exit_code"), 1);
    json_doc_free(doc);

    doc = run(rig, sbox, "missing", NULL);
    assert_string_equal(text_at(doc, "outcome", "cause"), "exited");
    assert_int_equal(number_at(doc, "outcome", "exit_code"), 127);
    assert_string_equal(text_at(doc, "outcome", "detail"), "execute missing: No such file or directory");
    assert_string_equal(text_at(doc, "started_at", NULL), text_at(doc, "ended_at", NULL));
    json_doc_free(doc);

    doc = run(rig, sbox, "nodir", NULL);
    assert_string_equal(text_at(doc, "outcome", "cause"), "host-error");
    assert_string_equal(text_at(doc, "outcome", "detail"), "working directory /workspace: No such file or directory");
    json_doc_free(doc);

    rig->fake.stats_are.memory_peak_bytes = 512u << 20;
    doc = run(rig, sbox, "oom", NULL);
    assert_string_equal(text_at(doc, "outcome", "cause"), "oom");
    assert_int_equal(number_at(doc, "outcome", "signal"), 9);
    assert_true(hit(doc, "memory"));
    json_doc_free(doc);

    /* below the sandbox's own limit it was the host that ran out */
    rig->fake.stats_are.memory_peak_bytes = 1u << 20;
    doc = run(rig, sbox, "oom", NULL);
    assert_string_equal(text_at(doc, "outcome", "cause"), "host-error");
    json_doc_free(doc);

    doc = run(rig, sbox, "pids", NULL);
    assert_string_equal(text_at(doc, "outcome", "cause"), "pids-limit");
    assert_int_equal(number_at(doc, "outcome", "exit_code"), 1);
    json_doc_free(doc);

    doc = run(rig, sbox, "disk", "1");
    assert_string_equal(text_at(doc, "outcome", "cause"), "disk-limit");
    assert_true(hit(doc, "disk"));
    json_doc_free(doc);
    doc = run(rig, sbox, "disk", "0"); /* success is success, also on a full disk */
    assert_string_equal(text_at(doc, "outcome", "cause"), "exited");
    assert_true(hit(doc, "disk"));
    json_doc_free(doc);
    /* nearly full is not full: no threshold is guessed from the bytes in use */
    rig->fake.stats_are.disk_bytes = rig->fake.stats_are.disk_peak_bytes = (256u << 20) - 4096;
    doc = run(rig, sbox, "false", NULL);
    assert_string_equal(text_at(doc, "outcome", "cause"), "exited");
    json_doc_free(doc);
    rig->fake.stats_are.disk_bytes = rig->fake.stats_are.disk_peak_bytes = 0;

    /* refusals at the sandbox's own limit, which no leaf counts */
    rig->fake.stats_are.pids_refused = 5;
    doc = run(rig, sbox, "false", NULL);
    assert_string_equal(text_at(doc, "outcome", "cause"), "pids-limit");
    json_doc_free(doc);
    doc = run(rig, sbox, "false", NULL); /* no news since */
    assert_string_equal(text_at(doc, "outcome", "cause"), "exited");
    json_doc_free(doc);
}

static void times_out(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    const char *const sleepy[] = {"sleep", NULL}, *const stubborn[] = {"stubborn", NULL};
    uint64_t began = clock_mono_ns();
    struct json_doc *doc = run_spec(rig, sbox, &(struct process_spec){.argv = sleepy, .timeout_ms = 50});

    assert_string_equal(text_at(doc, "outcome", "cause"), "timeout");
    assert_int_equal(number_at(doc, "outcome", "signal"), SIGTERM);
    assert_string_equal(text_at(doc, "outcome", "detail"), "after 50 ms");
    assert_true(hit(doc, "timeout"));
    json_doc_free(doc);
    assert_true(clock_mono_ns() - began < 400 * NS_PER_MS);
    assert_int_equal(rig_peer(sbox)->last_signal_flags, 0);

    doc = run_spec(rig, sbox, &(struct process_spec){.argv = stubborn, .timeout_ms = 50});
    assert_string_equal(text_at(doc, "outcome", "cause"), "timeout");
    assert_int_equal(number_at(doc, "outcome", "signal"), SIGKILL);
    assert_int_equal(rig_peer(sbox)->last_signal_flags, SVC_SIGNAL_ALL);
    json_doc_free(doc);
    assert_true(rig_audited(rig, "limit.kill|key-1|"));
}

/* A brig-init that never reports the end: the run ends all the same. */
static void deaf_init(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    const char *const argv[] = {"deaf", NULL};
    struct got got = {0};
    struct process_run *r = NULL;

    assert_int_equal(process_run(sbox, &rig->caller, &(struct process_spec){.argv = argv, .timeout_ms = 20}, got_text,
                                 &got, &r, NULL),
                     0);
    RIG_UNTIL(rig, rig_peer(sbox)->last_signal == SIGKILL);
    struct process *process = process_each(sbox, NULL);
    assert_int_equal(process->prog.state, PROGRAM_KILL_SENT);
    process->prog.timer.fn(&process->prog.timer); /* five seconds later */
    RIG_UNTIL(rig, got.n);
    struct json_doc *doc = rig_json(got.text);
    assert_string_equal(text_at(doc, "outcome", "cause"), "timeout");
    assert_string_equal(text_at(doc, "outcome", "detail"), "after 20 ms; brig-init does not answer");
    json_doc_free(doc);
    free(got.text);
}

static void output_limits(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    const char *const argv[] = {"flood", "3000000", NULL};
    struct json_doc *doc = run_spec(rig, sbox, &(struct process_spec){.argv = argv, .output = 1000});

    assert_string_equal(text_at(doc, "outcome", "cause"), "exited");
    assert_int_equal(at(doc, "stdout", NULL)->len, 1000);
    assert_true(at(doc, "truncated", "stdout")->boolean);
    assert_true(hit(doc, "output"));
    assert_true(rig_peer(sbox)->credits > 0); /* what was dropped was given back */
    json_doc_free(doc);

    const char *const deaf[] = {"deaf", NULL};
    struct got got = {0};
    struct process_run *r = NULL;
    assert_int_equal(process_run(sbox, &rig->caller,
                                 &(struct process_spec){.argv = deaf, .output = 10, .kill_on_output = true}, got_text,
                                 &got, &r, NULL),
                     0);
    uint32_t number = process_number(process_each(sbox, NULL));
    RIG_UNTIL(rig, peer_proc(rig_peer(sbox), number));
    peer_write(rig_peer(sbox), number, 2, "01234567890", 11);
    RIG_UNTIL(rig, rig_peer(sbox)->last_signal == SIGKILL);
    peer_end(rig_peer(sbox), number, SIGKILL);
    RIG_UNTIL(rig, got.n);
    doc = rig_json(got.text);
    free(got.text);
    assert_string_equal(text_at(doc, "outcome", "cause"), "output-limit");
    assert_string_equal(text_at(doc, "stderr", NULL), "0123456789");
    json_doc_free(doc);
}

static struct process_run *flood(struct rig *rig, struct sbox *sbox, struct got *got, size_t len)
{
    const char *const deaf[] = {"deaf", NULL};
    struct process_run *r = NULL;
    struct process *last = NULL;
    char text[1000];

    assert_int_equal(process_run(sbox, &rig->caller, &(struct process_spec){.argv = deaf}, got_text, got, &r, NULL), 0);
    for (struct process *p = process_each(sbox, NULL); p; p = process_each(sbox, p))
        last = p;
    RIG_UNTIL(rig, peer_proc(rig_peer(sbox), process_number(last)));
    memset(text, 'x', len);
    peer_write(rig_peer(sbox), process_number(last), 1, text, len);
    RIG_UNTIL(rig, last->prog.output_seen == len);
    return r;
}

static void ends_with(struct rig *rig, struct sbox *sbox, uint32_t number, struct got *got, size_t len, bool cut)
{
    peer_end(rig_peer(sbox), number, 0);
    RIG_UNTIL(rig, got->n);
    struct json_doc *doc = rig_json(got->text);
    assert_int_equal(at(doc, "stdout", NULL)->len, len);
    assert_int_equal(at(doc, "truncated", "stdout")->boolean, cut);
    json_doc_free(doc);
    free(got->text);
}

/* What all commands of an organisation make the service keep has a bound, and the receipt says what it cut. */
static void an_organisation_keeps_its_share(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct got a = {0}, b = {0}, c = {0};

    rig->manager->kept_pool = 1000;
    uint32_t first = process_number(flood(rig, sbox, &a, 400)->process);
    uint32_t second = process_number(flood(rig, sbox, &b, 200)->process); /* 400 are left */
    snprintf(rig->caller.org_id, sizeof rig->caller.org_id, ORG2);
    struct sbox *theirs = rig_sandbox(rig, "{}");
    uint32_t other = process_number(flood(rig, theirs, &c, 150)->process);
    snprintf(rig->caller.org_id, sizeof rig->caller.org_id, ORG);
    assert_int_equal(rig->manager->kept_bytes, 750);
    peer_write(rig_peer(sbox), second, 1, "more", 4);
    RIG_UNTIL(rig, process_find(sbox, second)->prog.output_seen == 204);
    assert_int_equal(rig->manager->kept_bytes, 750);
    ends_with(rig, theirs, other, &c, 150, false);
    ends_with(rig, sbox, second, &b, 200, true);
    ends_with(rig, sbox, first, &a, 400, false);
    assert_int_equal(rig->manager->kept_bytes, 0);
}

/* So has what programs have not read yet: input counts as output does, and a command whose input does not fit is
 * refused. */
static void input_counts_in_the_share(void **state)
{
    enum { KEPT = 2000, LEN = SVC_WINDOW + KEPT };
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    const char *const deaf[] = {"deaf", NULL};
    char *input = malloc(LEN);
    struct process_run *r = NULL;
    struct got got = {0};
    struct brig_err err = {0};

    assert_non_null(input);
    memset(input, 'i', LEN);
    const struct process_spec spec = {.argv = deaf, .input = input, .input_len = LEN};
    rig->manager->kept_pool = 2 * KEPT;
    assert_int_equal(process_run(sbox, &rig->caller, &spec, got_text, &got, &r, &err), 0);
    assert_int_equal(rig->manager->kept_bytes, KEPT);
    uint32_t number = process_number(r->process);
    assert_true(process_run(sbox, &rig->caller, &spec, got_text, &got, &r, &err) < 0);
    assert_int_equal(err.code, BRIG_E_LIMIT);
    assert_string_equal(err.message, "stdin: the organisation's commands keep their share of brigd's memory");
    assert_int_equal(rig->manager->kept_bytes, KEPT);
    RIG_UNTIL(rig, peer_proc(rig_peer(sbox), number));
    peer_end(rig_peer(sbox), number, 0);
    RIG_UNTIL(rig, got.n);
    RIG_UNTIL(rig, rig->manager->kept_bytes == 0);
    free(got.text);
    free(input);
}

static void bytes_are_kept(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct json_doc *doc = run(rig, sbox, "echo", "\xff\xfe");

    assert_string_equal(text_at(doc, "stdout_encoding", NULL), "base64");
    assert_string_equal(text_at(doc, "stdout", NULL), "//4=");
    json_doc_free(doc);
}

static void whole_stdin(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    const char *const argv[] = {"cat", NULL};
    size_t len = 3u << 20; /* more than a window */
    char *input = malloc(len);

    assert_non_null(input);
    memset(input, 'i', len);
    struct json_doc *doc = run_spec(rig, sbox, &(struct process_spec){.argv = argv, .input = input, .input_len = len});
    free(input);
    assert_int_equal(at(doc, "stdout", NULL)->len, len);
    json_doc_free(doc);
    doc = run_spec(rig, sbox, &(struct process_spec){.argv = argv, .input = "", .input_len = 0});
    assert_int_equal(number_at(doc, "outcome", "exit_code"), 0);
    json_doc_free(doc);
}

static void run_cancelled(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    const char *const argv[] = {"sleep", NULL};
    struct got got = {0};
    struct process_run *r = NULL;

    assert_int_equal(process_run(sbox, &rig->caller, &(struct process_spec){.argv = argv}, got_text, &got, &r, NULL),
                     0);
    assert_int_equal(sbox->busy, 1);
    process_run_cancel(r);
    assert_int_equal(sbox->busy, 0);
    RIG_UNTIL(rig, !process_each(sbox, NULL));
    assert_int_equal(got.n, 0);
    rig_flush(rig);
    char *stored = rig_find(rig, false, sbox->id, "cancelled", NULL);
    assert_non_null(stored);
    free(stored);
}

/* ---- background ----------------------------------------------------------------------------------------- */

static void background(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct process *process = start(rig, sbox, "sleep");
    struct got waited = {0}, late = {0}, again = {0};
    struct process_wait *wait = NULL;
    struct buf buf = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&buf);
    unsigned n = 0;

    assert_int_equal(process_number(process), 1);
    assert_int_equal(process_pid(process), 101);
    assert_true(process_running(process));
    assert_int_equal(sbox->processes, 1);
    assert_ptr_equal(process_find(sbox, 1), process);
    assert_null(process_find(sbox, 2));
    process_json(process, &json);
    assert_int_equal(json_finish(&json), 0);
    assert_non_null(strstr(buf.data, "\"argv\":[\"sleep\"],\"running\":true,\"tty\":false"));
    buf_done(&buf);
    rig_flush(rig);
    char *open = rig_find(rig, false, sbox->id, "", &n);
    assert_int_equal(n, 1); /* a row while it runs */
    free(open);

    assert_int_equal(process_wait(process, 20, got_text, &late, &wait, NULL), 0);
    RIG_UNTIL(rig, late.n);
    assert_int_equal(late.err.code, BRIG_E_TIMEOUT);
    assert_int_equal(process_wait(process, 0, got_text, &waited, &wait, NULL), 0);
    struct got signalled = {0};
    assert_int_equal(process_signal(process, &process->caller, SIGUSR1, 0, NULL, NULL, NULL), 0);
    (void)signalled;
    RIG_UNTIL(rig, waited.n);
    struct json_doc *doc = rig_json(waited.text);
    assert_string_equal(text_at(doc, "outcome", "cause"), "signalled");
    assert_int_equal(number_at(doc, "outcome", "signal"), SIGUSR1);
    assert_int_equal(number_at(doc, "output", "stdout"), 0);
    assert_null(at(doc, "stdout", NULL));
    json_doc_free(doc);
    free(waited.text);
    assert_false(process_running(process));
    assert_int_equal(sbox->processes, 0);
    /* now, for it has ended; but not from within */
    assert_int_equal(process_wait(process, 0, got_text, &again, &wait, NULL), 0);
    assert_int_equal(again.n, 0);
    RIG_UNTIL(rig, again.n);
    assert_false(again.failed);
    free(again.text);
    assert_true(rig_audited(rig, "process.signal|key-1|"));
    struct brig_err err = {0};
    assert_true(process_signal(process, &process->caller, SIGTERM, 0, NULL, NULL, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
}

static void start_fails(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    const char *const missing[] = {"missing", NULL}, *const nodir[] = {"nodir", NULL}, *const none[] = {NULL};
    struct got got = {0};
    struct brig_err err = {0};

    assert_int_equal(
        process_start(sbox, &rig->caller, &(struct process_spec){.argv = missing}, got_process, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    assert_int_equal(got.err.code, BRIG_E_USAGE);
    assert_string_equal(got.err.message, "execute missing: No such file or directory (status 127)");
    assert_int_equal(process_start(sbox, &rig->caller, &(struct process_spec){.argv = nodir}, got_process, &got, NULL),
                     0);
    RIG_UNTIL(rig, got.n == 2);
    assert_string_equal(got.err.message, "working directory /workspace: No such file or directory");
    assert_null(process_each(sbox, NULL));
    assert_true(process_start(sbox, &rig->caller, &(struct process_spec){.argv = none}, got_process, &got, &err) < 0);
    assert_int_equal(err.code, BRIG_E_USAGE);
}

static void killed_by_request(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct process *process = start(rig, sbox, "stubborn");
    struct got waited = {0};
    struct process_wait *wait = NULL;

    assert_int_equal(process_wait(process, 0, got_text, &waited, &wait, NULL), 0);
    assert_int_equal(process_signal(process, &process->caller, SIGKILL, SVC_SIGNAL_ALL, NULL, NULL, NULL), 0);
    RIG_UNTIL(rig, waited.n);
    assert_non_null(strstr(waited.text, "\"cause\":\"cancelled\""));
    free(waited.text);
}

static void bounded(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    const char *const sleepy[] = {"sleep", NULL}, *const quick[] = {"true", NULL};
    struct got got = {0};
    struct brig_err err = {0};

    for (unsigned i = 0; i < PROCESS_RUNNING_MAX; i++)
        assert_int_equal(
            process_start(sbox, &rig->caller, &(struct process_spec){.argv = sleepy}, got_process, &got, NULL), 0);
    assert_true(process_start(sbox, &rig->caller, &(struct process_spec){.argv = sleepy}, got_process, &got, &err) < 0);
    assert_int_equal(err.code, BRIG_E_LIMIT);
    RIG_UNTIL(rig, got.n == PROCESS_RUNNING_MAX);
    assert_int_equal(sbox->processes, PROCESS_RUNNING_MAX);
    for (struct process *p = process_each(sbox, NULL); p; p = process_each(sbox, p))
        assert_int_equal(process_signal(p, &p->caller, SIGTERM, 0, NULL, NULL, NULL), 0);
    RIG_UNTIL(rig, sbox->processes == 0);
    unsigned n = 0;
    for (struct process *p = process_each(sbox, NULL); p; p = process_each(sbox, p))
        n++;
    assert_int_equal(n, PROCESS_KEEP);
    RIG_UNTIL(rig, rig_peer(sbox)->n_procs == PROCESS_KEEP);
    (void)quick;
}

static void resize(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    const char *const argv[] = {"sleep", NULL};
    struct process *tty =
                       start_spec(rig, sbox, &(struct process_spec){.argv = argv, .tty = true, .rows = 24, .cols = 80}),
                   *plain = start(rig, sbox, "sleep");
    struct brig_err err = {0};

    assert_true(process_has_tty(tty));
    assert_int_equal(process_resize(tty, 50, 132, NULL), 0);
    RIG_UNTIL(rig, rig_peer(sbox)->rows == 50 && rig_peer(sbox)->cols == 132);
    assert_true(process_resize(tty, 0, 132, &err) < 0);
    assert_true(process_resize(plain, 50, 132, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
}

/* A pause stops the clock of a command. */
static void paused_clock(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    const char *const argv[] = {"sleep", NULL};
    struct process *process = start_spec(rig, sbox, &(struct process_spec){.argv = argv, .timeout_ms = 100});
    struct got got = {0};

    assert_int_equal(sbox_pause(sbox, &rig->caller, got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    struct brig_err err = {0};
    struct process_run *r = NULL;
    assert_true(process_run(sbox, &rig->caller, &(struct process_spec){.argv = argv}, got_text, &got, &r, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    assert_non_null(strstr(err.message, "is paused"));
    uint64_t until = clock_mono_ns() + 300 * NS_PER_MS;
    while (clock_mono_ns() < until)
        assert_int_equal(loop_run_once(rig->loop, 20, NULL), 0);
    assert_true(process_running(process));
    got.n = 0;
    assert_int_equal(sbox_resume(sbox, &rig->caller, got_sbox, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    assert_true(process_running(process));
    RIG_UNTIL(rig, !process_running(process));
    assert_int_equal(process->cause, BRIG_CAUSE_TIMEOUT);
}

/* A running process, an open reader: not idle; with idle_policy requests only readers and requests count. */
static void idleness(void **state)
{
    struct rig *rig = *state;
    struct sbox *active = rig_sandbox(rig, "{\"idle_timeout\":0.05,\"name\":\"a\"}"),
                *ignored = rig_sandbox(rig, "{\"idle_timeout\":0.05,\"name\":\"i\",\"idle_policy\":\"requests\"}");

    start(rig, active, "sleep");
    start(rig, ignored, "sleep");
    RIG_UNTIL(rig, !manager_find(rig->manager, &rig->caller, "i"));
    assert_non_null(manager_find(rig->manager, &rig->caller, "a"));
    uint64_t until = clock_mono_ns() + 150 * NS_PER_MS;
    while (clock_mono_ns() < until)
        assert_int_equal(loop_run_once(rig->loop, 20, NULL), 0);
    assert_non_null(manager_find(rig->manager, &rig->caller, "a"));
    peer_end(rig_peer(active), 1, 0);
    RIG_UNTIL(rig, !manager_find(rig->manager, &rig->caller, "a"));
}

static void shells(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct shell *shell = open_shell(rig, sbox);

    assert_int_equal(shell_number(shell), 1);
    assert_ptr_equal(shell_find(sbox, 1), shell);
    assert_string_equal(rig_peer(sbox)->procs[0].word, "bash");
    assert_true(rig_peer(sbox)->procs[0].flags & SVC_PROC_SHELL);
    struct json_doc *doc = shell_do(rig, shell, "123\n\n4", 0);
    assert_string_equal(text_at(doc, "stdout", NULL), "123\n\n4");
    assert_string_equal(text_at(doc, "stderr", NULL), "err");
    assert_int_equal(number_at(doc, "exit_code", NULL), 0);
    assert_string_equal(text_at(doc, "cwd", NULL), "/tmp");
    assert_false(at(doc, "timed_out", NULL)->boolean || at(doc, "ended", NULL)->boolean ||
                 at(doc, "restarted", NULL)->boolean);
    json_doc_free(doc);
    assert_int_equal(sbox->busy, 0);
    assert_int_equal(sbox->processes, 0); /* a waiting shell does not keep its sandbox */

    doc = shell_do(rig, shell, "exit 3", 0);
    assert_true(at(doc, "ended", NULL)->boolean);
    assert_int_equal(number_at(doc, "exit_code", NULL), 3);
    json_doc_free(doc);
    doc = shell_do(rig, shell, "x", 0); /* a new one, where the last one was */
    assert_true(at(doc, "restarted", NULL)->boolean);
    assert_string_equal(text_at(doc, "stdout", NULL), "x");
    json_doc_free(doc);
    unsigned last = rig_peer(sbox)->n_procs - 1;
    assert_string_equal(rig_peer(sbox)->procs[last].cwd, "/tmp");
    doc = shell_do(rig, shell, "y", 0);
    assert_false(at(doc, "restarted", NULL)->boolean);
    json_doc_free(doc);
    assert_int_equal(shell_close(shell, NULL), 0);
    assert_null(shell_find(sbox, 1));
    RIG_UNTIL(rig, sbox->priv->running == 0);
}

static void shell_times_out(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    struct shell *shell = open_shell(rig, sbox);
    struct json_doc *doc = shell_do(rig, shell, "hang", 50);

    assert_true(at(doc, "timed_out", NULL)->boolean);
    assert_int_equal(rig_peer(sbox)->last_signal_flags, SVC_SIGNAL_CHILDREN);
    assert_false(at(doc, "ended", NULL)->boolean);
    json_doc_free(doc);
    doc = shell_do(rig, shell, "after", 0); /* never wedged */
    assert_string_equal(text_at(doc, "stdout", NULL), "after");
    assert_false(at(doc, "restarted", NULL)->boolean);
    json_doc_free(doc);

    /* one command at a time */
    struct got hang = {0};
    struct brig_err err = {0};
    assert_int_equal(shell_run(shell, &rig->caller, "hang", 4, 60000, got_text, &hang, NULL), 0);
    assert_true(shell_run(shell, &rig->caller, "x", 1, 0, got_text, &hang, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    assert_true(shell_close(shell, &err) < 0);
    rig_run(rig, 5);
    shell_cancel(shell);
    RIG_UNTIL(rig, hang.n);
    assert_non_null(strstr(hang.text, "\"timed_out\":true"));
    free(hang.text);

    /* a shell that does not come back at all is left behind */
    rig_peer(sbox)->shell_hang = true;
    doc = shell_do(rig, shell, "hang", 20);
    assert_true(at(doc, "timed_out", NULL)->boolean && at(doc, "ended", NULL)->boolean);
    json_doc_free(doc);
    RIG_UNTIL(rig, rig_peer(sbox)->last_signal_flags == SVC_SIGNAL_ALL);
    rig_peer(sbox)->shell_hang = false;
    doc = shell_do(rig, shell, "back", 0);
    assert_true(at(doc, "restarted", NULL)->boolean);
    assert_string_equal(text_at(doc, "stdout", NULL), "back");
    json_doc_free(doc);
}

/* Every allocation of a run fails once. */
static void run_without_memory(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"env\":{\"A\":\"1\"}}");
    const char *const argv[] = {"echo", "x", NULL};

    for (size_t n = 0; n < 300; n++) {
        struct got got = {0};
        struct process_run *r = NULL;
        struct brig_err err = {0};
        mem_fail_after(n);
        int e = process_run(sbox, &rig->caller, &(struct process_spec){.argv = argv, .input = "abc", .input_len = 3},
                            got_text, &got, &r, &err);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        if (e == 0) {
            RIG_UNTIL(rig, got.n);
            assert_false(got.failed);
        }
        free(got.text);
        RIG_UNTIL(rig, sbox->processes == 0 && sbox->busy == 0);
        rig_run(rig, 5);
        for (unsigned i = 0; i < rig_peer(sbox)->n_procs; i++)
            peer_end(rig_peer(sbox), rig_peer(sbox)->procs[i].number, 0);
        if (!failed)
            return;
    }
    fail_msg("still failing");
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(run_and_receipt),
        CASE(environment_of_a_process),
        CASE(causes),
        CASE(times_out),
        CASE(deaf_init),
        CASE(output_limits),
        CASE(an_organisation_keeps_its_share),
        CASE(input_counts_in_the_share),
        CASE(bytes_are_kept),
        CASE(whole_stdin),
        CASE(run_cancelled),
        CASE(background),
        CASE(start_fails),
        CASE(killed_by_request),
        CASE(bounded),
        CASE(resize),
        CASE(paused_clock),
        CASE(idleness),
        CASE(shells),
        CASE(shell_times_out),
        CASE(run_without_memory),
    };

    return cmocka_run_group_tests_name("process", cases, NULL, NULL);
}
