/* SPDX-License-Identifier: Apache-2.0 */
/* Processes, their output, input, receipts and shells, against a brig-init that the test plays. */
#include "sandbox_rig.h"

static const struct json_value *at(const struct json_doc *doc, const char *a, const char *b)
{
    const struct json_value *v = json_get(json_root(doc), a);

    return b ? json_get(v, b) : v;
}

static const char *text_at(const struct json_doc *doc, const char *a, const char *b)
{
    const struct json_value *v = at(doc, a, b);

    return v && v->type == JSON_STRING ? v->string : "(none)";
}

static int64_t number_at(const struct json_doc *doc, const char *a, const char *b)
{
    const struct json_value *v = at(doc, a, b);

    return v && v->type == JSON_NUMBER && v->integer ? v->i64 : -999;
}

static bool hit(const struct json_doc *doc, const char *limit)
{
    const struct json_value *list = at(doc, "outcome", "limits_hit");

    for (const struct json_value *v = list ? list->first : NULL; v; v = v->next)
        if (str_eq(v->string, limit))
            return true;
    return false;
}

/* Runs a word and returns its receipt. */
static struct json_doc *run_spec(struct rig *rig, struct sbox *sbox, const struct process_spec *spec)
{
    struct got got = {0};
    struct process_run *run = NULL;
    struct brig_err err = {0};

    if (process_run(sbox, &rig->caller, spec, got_text, &got, &run, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(got.n, 0);
    RIG_UNTIL(rig, got.n);
    if (got.failed)
        fail_msg("%s", got.err.message);
    struct json_doc *doc = rig_json(got.text);
    free(got.text);
    return doc;
}

static struct json_doc *run(struct rig *rig, struct sbox *sbox, const char *word, const char *arg)
{
    const char *const argv[] = {word, arg, NULL};

    return run_spec(rig, sbox, &(struct process_spec){.argv = argv});
}

static void got_process(void *ctx, struct process *process, const struct brig_err *err)
{
    struct got *got = ctx;

    got->n++;
    got->process = process;
    got->failed = err != NULL;
    if (err)
        got->err = *err;
}

static struct process *start_spec(struct rig *rig, struct sbox *sbox, const struct process_spec *spec)
{
    struct got got = {0};
    struct brig_err err = {0};

    if (process_start(sbox, &rig->caller, spec, got_process, &got, &err) < 0)
        fail_msg("%s", err.message);
    RIG_UNTIL(rig, got.n);
    if (got.failed)
        fail_msg("%s", got.err.message);
    return got.process;
}

static struct process *start(struct rig *rig, struct sbox *sbox, const char *word)
{
    const char *const argv[] = {word, NULL};

    return start_spec(rig, sbox, &(struct process_spec){.argv = argv});
}

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

    rig->fake.stats_are.disk_bytes = (256u << 20) - 4096;
    doc = run(rig, sbox, "false", NULL);
    assert_string_equal(text_at(doc, "outcome", "cause"), "disk-limit");
    assert_true(hit(doc, "disk"));
    json_doc_free(doc);
    doc = run(rig, sbox, "true", NULL); /* success is success, also on a full disk */
    assert_string_equal(text_at(doc, "outcome", "cause"), "exited");
    json_doc_free(doc);
    rig->fake.stats_are.disk_bytes = 0;

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

    assert_int_equal(process_run(sbox, &rig->caller, &(struct process_spec){.argv = argv, .timeout_ms = 20}, got_text, &got, &r, NULL), 0);
    RIG_UNTIL(rig, rig_peer(sbox)->last_signal == SIGKILL);
    struct process *process = process_each(sbox, NULL);
    assert_int_equal(process->clock, CLOCK_KILL_SENT);
    process->timer.fn(&process->timer); /* five seconds later */
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
    assert_int_equal(process_run(sbox, &rig->caller, &(struct process_spec){.argv = deaf, .output = 10, .kill_on_output = true}, got_text, &got, &r, NULL), 0);
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

    assert_int_equal(process_run(sbox, &rig->caller, &(struct process_spec){.argv = argv}, got_text, &got, &r, NULL), 0);
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

/* ---- background ----------------------------------------------------------------------------------------------------- */

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
    assert_int_equal(process_signal(process, SIGUSR1, 0, NULL, NULL, NULL), 0);
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
    assert_true(process_signal(process, SIGTERM, 0, NULL, NULL, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
}

static void start_fails(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    const char *const missing[] = {"missing", NULL}, *const nodir[] = {"nodir", NULL}, *const none[] = {NULL};
    struct got got = {0};
    struct brig_err err = {0};

    assert_int_equal(process_start(sbox, &rig->caller, &(struct process_spec){.argv = missing}, got_process, &got, NULL), 0);
    RIG_UNTIL(rig, got.n);
    assert_int_equal(got.err.code, BRIG_E_USAGE);
    assert_string_equal(got.err.message, "execute missing: No such file or directory (status 127)");
    assert_int_equal(process_start(sbox, &rig->caller, &(struct process_spec){.argv = nodir}, got_process, &got, NULL), 0);
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
    assert_int_equal(process_signal(process, SIGKILL, SVC_SIGNAL_ALL, NULL, NULL, NULL), 0);
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
        assert_int_equal(process_start(sbox, &rig->caller, &(struct process_spec){.argv = sleepy}, got_process, &got, NULL), 0);
    assert_true(process_start(sbox, &rig->caller, &(struct process_spec){.argv = sleepy}, got_process, &got, &err) < 0);
    assert_int_equal(err.code, BRIG_E_LIMIT);
    RIG_UNTIL(rig, got.n == PROCESS_RUNNING_MAX);
    assert_int_equal(sbox->processes, PROCESS_RUNNING_MAX);
    for (struct process *p = process_each(sbox, NULL); p; p = process_each(sbox, p))
        assert_int_equal(process_signal(p, SIGTERM, 0, NULL, NULL, NULL), 0);
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
    struct process *tty = start_spec(rig, sbox, &(struct process_spec){.argv = argv, .tty = true, .rows = 24, .cols = 80}), *plain = start(rig, sbox, "sleep");
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
    struct sbox *active = rig_sandbox(rig, "{\"idle_timeout\":0.05,\"name\":\"a\"}"), *ignored = rig_sandbox(rig, "{\"idle_timeout\":0.05,\"name\":\"i\",\"idle_policy\":\"requests\"}");

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

/* ---- output --------------------------------------------------------------------------------------------------------- */

struct reader {
    struct output *output;
    unsigned begins, ends;
    uint64_t first[3], next[3];
    struct buf got[3];
    bool consume, close_on_data;
    char *receipt;
};

static void reader_begin(void *ctx, const uint64_t first[3])
{
    struct reader *reader = ctx;

    reader->begins++;
    memcpy(reader->first, first, sizeof reader->first);
    memcpy(reader->next, first, sizeof reader->next);
}

static void reader_data(void *ctx, unsigned stream, uint64_t offset, const uint8_t *data, size_t len)
{
    struct reader *reader = ctx;

    assert_int_equal(offset, reader->next[stream]);
    reader->next[stream] += len;
    assert_int_equal(buf_append(&reader->got[stream], data, len), 0);
    if (reader->consume)
        output_consumed(reader->output, stream, len);
    if (reader->close_on_data)
        output_close(take_ptr(&reader->output));
}

static void reader_end(void *ctx, const char *receipt, size_t len)
{
    struct reader *reader = ctx;

    reader->ends++;
    reader->output = NULL;
    reader->receipt = receipt ? strndup(receipt, len) : NULL;
}

static void reader_open(struct reader *reader, struct process *process, uint64_t out, bool now)
{
    const uint64_t from[3] = {0, out, 0};
    const struct output_events events = {reader_begin, reader_data, reader_end, reader};
    struct brig_err err = {0};

    reader->got[1] = reader->got[2] = BUF_INIT(64u << 20);
    int r = now ? output_open_now(process, 6, from, &events, &reader->output, &err) : output_open(process, 6, from, &events, &reader->output, &err);
    if (r < 0)
        fail_msg("%s", err.message);
}

static void reader_done(struct reader *reader)
{
    if (reader->output)
        output_close(reader->output);
    buf_done(&reader->got[1]);
    buf_done(&reader->got[2]);
    free(reader->receipt);
}

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

/* ---- input ---------------------------------------------------------------------------------------------------------- */

struct writer {
    struct input *input;
    unsigned writables, ends;
    int errnum;
    size_t left;
};

static void writer_writable(void *ctx)
{
    static char piece[65536];
    struct writer *writer = ctx;

    writer->writables++;
    while (writer->left > 0) {
        size_t want = writer->left < sizeof piece ? writer->left : sizeof piece;
        ssize_t n = input_write(writer->input, piece, want);
        assert_true(n >= 0);
        writer->left -= (size_t)n;
        if ((size_t)n < want)
            return;
    }
}

static void writer_ended(void *ctx, int errnum)
{
    struct writer *writer = ctx;

    writer->ends++;
    writer->errnum = errnum;
    writer->input = NULL;
}

static void writers(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{}");
    const char *const argv[] = {"cat", NULL};
    struct process *process = start_spec(rig, sbox, &(struct process_spec){.argv = argv, .stdin_open = true}), *closed = start(rig, sbox, "sleep");
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
    assert_int_equal(process->exit.output[1], (3u << 20) + 3);
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

/* ---- the sandbox goes ------------------------------------------------------------------------------------------------ */

struct all {
    struct got run, wait, wait2, open, shell, stats;
    struct process_run *r;
    struct process_wait *w, *w2;
    struct reader reader;
    struct writer writer;
    struct shell *sh;
};

static void got_shell(void *ctx, struct shell *shell, const struct brig_err *err)
{
    struct got *got = ctx;

    got->n++;
    got->shell = shell;
    got->failed = err != NULL;
    if (err)
        got->err = *err;
}

static struct shell *open_shell(struct rig *rig, struct sbox *sbox)
{
    struct got got = {0};
    struct brig_err err = {0};

    if (shell_open(sbox, &rig->caller, &(struct process_spec){0}, got_shell, &got, &err) < 0)
        fail_msg("%s", err.message);
    RIG_UNTIL(rig, got.n);
    if (got.failed)
        fail_msg("%s", got.err.message);
    return got.shell;
}

/* One of everything in flight. */
static void busy_box(struct rig *rig, struct sbox *sbox, struct all *all)
{
    const char *const argv[] = {"sleep", NULL};
    struct process *p = start_spec(rig, sbox, &(struct process_spec){.argv = argv, .stdin_open = true, .timeout_ms = 60000});
    const struct input_events events = {writer_writable, writer_ended, &all->writer};

    start(rig, sbox, "true");
    assert_int_equal(process_wait(p, 0, got_text, &all->wait, &all->w, NULL), 0);
    assert_int_equal(process_wait(p, 50000, got_text, &all->wait2, &all->w2, NULL), 0);
    reader_open(&all->reader, p, 0, false);
    assert_int_equal(input_open(p, &events, &all->writer.input, NULL), 0);
    assert_int_equal(input_write(all->writer.input, "x", 1), 1);
    all->sh = open_shell(rig, sbox);
    assert_int_equal(shell_run(all->sh, "hang", 4, 60000, got_text, &all->shell, NULL), 0);
    assert_int_equal(process_run(sbox, &rig->caller, &(struct process_spec){.argv = argv}, got_text, &all->run, &all->r, NULL), 0);
    rig_run(rig, 5);
    assert_int_equal(process_start(sbox, &rig->caller, &(struct process_spec){.argv = argv}, got_process, &all->open, NULL), 0);
}

static void all_told(struct rig *rig, struct all *all, const char *cause)
{
    char want[64];

    RIG_UNTIL(rig, all->run.n && all->wait.n && all->wait2.n && all->open.n && all->shell.n && all->reader.ends && all->writer.ends);
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

/* ---- shells --------------------------------------------------------------------------------------------------------- */

static struct json_doc *shell_do(struct rig *rig, struct shell *shell, const char *command, uint64_t timeout_ms)
{
    struct got got = {0};
    struct brig_err err = {0};

    if (shell_run(shell, command, strlen(command), timeout_ms, got_text, &got, &err) < 0)
        fail_msg("%s", err.message);
    RIG_UNTIL(rig, got.n);
    if (got.failed)
        fail_msg("%s", got.err.message);
    struct json_doc *doc = rig_json(got.text);
    free(got.text);
    return doc;
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
    assert_false(at(doc, "timed_out", NULL)->boolean || at(doc, "ended", NULL)->boolean || at(doc, "restarted", NULL)->boolean);
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
    assert_int_equal(shell_run(shell, "hang", 4, 60000, got_text, &hang, NULL), 0);
    assert_true(shell_run(shell, "x", 1, 0, got_text, &hang, &err) < 0);
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

/* ---- specs ---------------------------------------------------------------------------------------------------------- */

static void spec_refused(struct sbox *sbox, const char *text, const char *message)
{
    struct json_doc *doc = rig_json(text);
    struct process_spec_parsed parsed;
    struct brig_err err = {0};

    if (process_spec_parse(json_root(doc), sbox, &parsed, &err) == 0)
        fail_msg("%s was accepted", text);
    if (!strstr(err.message, message))
        fail_msg("%s: \"%s\" does not hold \"%s\"", text, err.message, message);
    assert_int_equal(err.code, BRIG_E_USAGE);
    json_doc_free(doc);
}

static void process_specs(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"workdir\":\"/w\"}");
    struct process_spec_parsed parsed;
    struct json_doc *doc;

    spec_refused(sbox, "[]", "must be a JSON object");
    spec_refused(sbox, "{}", "argv: must be given, or command");
    spec_refused(sbox, "{\"argv\":[]}", "argv: must be an array");
    spec_refused(sbox, "{\"argv\":[\"\"]}", "must not be empty");
    spec_refused(sbox, "{\"argv\":[\"a\\u0000b\"]}", "must not hold a NUL");
    spec_refused(sbox, "{\"argv\":[1]}", "argv 1: must be a string");
    spec_refused(sbox, "{\"argv\":[\"a\"],\"command\":\"b\"}", "only one of them");
    spec_refused(sbox, "{\"command\":\"\"}", "must not be empty");
    spec_refused(sbox, "{\"command\":\"a\",\"cwd\":\"../x\"}", "must not hold \"..\"");
    spec_refused(sbox, "{\"command\":\"a\",\"timeout\":0}", "timeout 0: must be between");
    spec_refused(sbox, "{\"command\":\"a\",\"timeout\":-1}", "must be between");
    spec_refused(sbox, "{\"command\":\"a\",\"output\":0}", "must be a positive number of bytes");
    spec_refused(sbox, "{\"command\":\"a\",\"on_output_limit\":\"x\"}", "must be one of drop, kill");
    spec_refused(sbox, "{\"command\":\"a\",\"rows\":70000}", "must be a whole number between 1 and 65535");
    spec_refused(sbox, "{\"command\":\"a\",\"ring\":1}", "ring: must be between");
    spec_refused(sbox, "{\"command\":\"a\",\"stdin\":\"?\",\"stdin_encoding\":\"base64\"}", "is not base64");
    spec_refused(sbox, "{\"command\":\"a\",\"stdin\":\"aa=a\",\"stdin_encoding\":\"base64\"}", "is not base64");
    spec_refused(sbox, "{\"command\":\"a\",\"stdin\":\"ab==\",\"stdin_encoding\":\"base64\"}", "is not base64");
    spec_refused(sbox, "{\"command\":\"a\",\"tty\":true,\"stdin\":\"x\"}", "not for a terminal");
    spec_refused(sbox, "{\"command\":\"a\",\"env\":{\"A\\nB\":\"\"}}", "must not hold control characters");
    spec_refused(sbox, "{\"command\":\"a\",\"x\":1}", "x: there is no such member");

    doc = rig_json("{\"command\":\"ls -l\",\"cwd\":\"sub\",\"env\":{\"A\":\"b=c\"},\"stdin\":\"/wA=\",\"stdin_encoding\":\"base64\",\"timeout\":\"1.5s\","
                   "\"output\":\"1k\",\"on_output_limit\":\"kill\",\"ring\":\"1m\",\"rows\":3,\"cols\":4,\"stdin_open\":true}");
    assert_int_equal(process_spec_parse(json_root(doc), sbox, &parsed, NULL), 0);
    json_doc_free(doc);
    assert_string_equal(parsed.spec.argv[0], "/bin/sh");
    assert_string_equal(parsed.spec.argv[2], "ls -l");
    assert_null(parsed.spec.argv[3]);
    assert_string_equal(parsed.spec.workdir, "/w/sub");
    assert_string_equal(parsed.spec.env[0], "A=b=c");
    assert_int_equal(parsed.spec.input_len, 2);
    assert_memory_equal(parsed.spec.input, "\xff\x00", 2);
    assert_int_equal(parsed.spec.timeout_ms, 1500);
    assert_int_equal(parsed.spec.output, 1024);
    assert_true(parsed.spec.kill_on_output && parsed.spec.stdin_open);
    assert_int_equal(parsed.spec.ring, 1u << 20);
    process_spec_done(&parsed);
    process_spec_done(&parsed);

    doc = rig_json("{\"env\":{\"A\":\"b\"},\"cwd\":\"/x\"}");
    assert_int_equal(process_spec_parse_shell(json_root(doc), sbox, &parsed, NULL), 0);
    assert_null(parsed.spec.argv);
    process_spec_done(&parsed);
    json_doc_free(doc);
    doc = rig_json("{\"argv\":[\"x\"]}");
    assert_true(process_spec_parse_shell(json_root(doc), sbox, &parsed, NULL) < 0);
    json_doc_free(doc);
    assert_int_equal(process_spec_parse_shell(NULL, sbox, &parsed, NULL), 0);
    process_spec_done(&parsed);
}

/* ---- a new brigd ---------------------------------------------------------------------------------------------------- */

static void runs_survive(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"name\":\"s\"}");
    const char *const argv[] = {"sleep", "100", NULL};
    struct process *lives = start_spec(rig, sbox, &(struct process_spec){.argv = argv, .timeout_ms = 100000, .stdin_open = true});
    struct process *ends = start(rig, sbox, "sleep"), *before = start(rig, sbox, "sleep"), *lost = start(rig, sbox, "sleep");
    struct shell *shell = open_shell(rig, sbox);
    char ids[4][48], sandbox[32];
    unsigned n = 0;

    snprintf(ids[0], 48, "%s", process_run_id(lives));
    snprintf(ids[1], 48, "%s", process_run_id(ends));
    snprintf(ids[2], 48, "%s", process_run_id(before));
    snprintf(ids[3], 48, "%s", process_run_id(lost));
    snprintf(sandbox, sizeof sandbox, "%s", sbox->id);
    uint64_t deadline = lives->deadline_ns;
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
    assert_int_equal(lives->deadline_ns, deadline);
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
    const struct manager_options options = {rig->loop, &rig->fake.provider, rig->store, &rig->audit, &rig->config};

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
        int e = process_run(sbox, &rig->caller, &(struct process_spec){.argv = argv, .input = "abc", .input_len = 3}, got_text, &got, &r, &err);
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
        CASE(readers),
        CASE(slow_reader),
        CASE(up_to_now),
        CASE(writers),
        CASE(writer_of_the_dead),
        CASE(sandbox_deleted),
        CASE(sandbox_dies),
        CASE(link_dies),
        CASE(manager_destroyed),
        CASE(recreated_box),
        CASE(shells),
        CASE(shell_times_out),
        CASE(process_specs),
        CASE(runs_survive),
        CASE(runs_of_the_dead),
        CASE(deaf_sandbox),
        CASE(run_without_memory),
    };

    return cmocka_run_group_tests_name("process", cases, NULL, NULL);
}
