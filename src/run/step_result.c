/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_result.c: the sixth step makes the result of a run. An answer counts only if the run ended with it; everything
 * else (a time-out, a kill, an exit without an answer) is an error with a type and a sentence that users of Letta know.
 * Then the agent's state is applied, secrets are removed, and the result is cut: in this order, so that no part of a
 * secret escapes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "run/run_priv.h"

#define MESSAGE_MAX (256u << 10)
#define TRACEBACK_MAX (1u << 20)

void outcome_done(struct outcome *o)
{
    for (int i = 0; i < 3; i++)
        buf_done(&o->out[i]);
    buf_done(&o->func_return);
    buf_done(&o->text);
    buf_done(&o->error_message);
    buf_done(&o->traceback);
    buf_done(&o->state);
    buf_done(&o->state_diff);
    buf_done(&o->learned);
    buf_done(&o->described);
    frame_answer_done(&o->answer);
}

static struct outcome *outcome_begin(struct run *run)
{
    struct outcome *o = run->outcome = &run->outcome_memory;

    *o = (struct outcome){.exit_code = -1,
                          .func_return = BUF_INIT(TEXT_MAX),
                          .text = BUF_INIT(TEXT_MAX),
                          .error_message = BUF_INIT(TEXT_MAX),
                          .traceback = BUF_INIT(TEXT_MAX),
                          .state = BUF_INIT(TEXT_MAX),
                          .state_diff = BUF_INIT(TEXT_MAX),
                          .learned = BUF_INIT(TEXT_MAX),
                          .described = BUF_INIT(RUN_DESCRIBED_MAX)};
    for (int i = 0; i < 3; i++)
        o->out[i] = BUF_INIT(TEXT_MAX);
    o->r = (struct brig_receipt){.size = sizeof o->r};
    str_assign(o->r.id, run->id);
    return o;
}

/* Without what must not leave. */
static int clean(struct run *run, const char *data, size_t len, struct buf *out)
{
    return run->scrub ? scrub_text(run->scrub, data, len, out) : len ? buf_append(out, data, len) : 0;
}

/* Output that was cut: its last bytes may be the first of a secret. */
static int clean_cut(struct run *run, const char *data, size_t len, bool cut, struct buf *out)
{
    return run->scrub && cut ? scrub_text_cut(run->scrub, data, len, out) : clean(run, data, len, out);
}

/* At most so many bytes of it, whole code points: the first, or the last. */
static void keep_first(struct buf *text, size_t max)
{
    if (text->len <= max)
        return;
    while (max > 0 && ((unsigned char)text->data[max] & 0xc0) == 0x80)
        max--;
    text->len = max;
    text->data[max] = '\0';
}

static void keep_last(struct buf *text, size_t max)
{
    size_t from = text->len > max ? text->len - max : 0;

    while (from > 0 && from < text->len && ((unsigned char)text->data[from] & 0xc0) == 0x80)
        from++;
    if (from > 0)
        buf_consume(text, from);
}

static int json_text(const struct buf *text, struct buf *out)
{
    struct json json = JSON_INIT(out);

    out->len = 0;
    json_string_n(&json, text->data ? text->data : "", text->len);
    return json_finish(&json);
}

/* ---- errors --------------------------------------------------------------------------------------------- */

/* A runtime may have printed it already. */
static bool ends_with(const struct buf *text, const struct buf *end)
{
    size_t n = end->len, len = text->len;

    while (n > 0 && end->data[n - 1] == '\n')
        n--;
    while (len > 0 && text->data[len - 1] == '\n')
        len--;
    return n > 0 && len >= n && memcmp(text->data + len - n, end->data, n) == 0;
}

static int set_error(struct run *run, const char *type, const char *message, const char *traceback)
{
    struct outcome *o = run->outcome;
    struct buf *err = &o->out[2];
    AUTO_BUF struct buf name = BUF_INIT(TEXT_MAX);
    int r;

    o->ok = false;
    o->has_error = true;
    r = clean(run, type, strlen(type), &name); /* a class may be called anything */
    keep_first(&name, sizeof o->error_type - 1);
    str_cut(o->error_type, sizeof o->error_type, name.data);
    o->error_message.len = 0;
    if (r == 0)
        r = clean(run, message, strlen(message), &o->error_message);
    if (r == 0)
        r = clean(run, traceback, strlen(traceback), &o->traceback);
    keep_first(&o->error_message, MESSAGE_MAX); /* our runtimes keep to these; what speaks for them may not */
    keep_last(&o->traceback, TRACEBACK_MAX);
    const char *text = o->error_message.data ? o->error_message.data : "";
    if (r == 0 && err->len && err->data[err->len - 1] != '\n')
        r = buf_append(err, "\n", 1);
    if (r == 0 && ends_with(err, &o->traceback))
        r = 0;
    else if (r == 0 && o->traceback.len)
        r = buf_append(err, o->traceback.data, o->traceback.len);
    else if (r == 0)
        r = buf_printf(err, "%s: %s\n", o->error_type, text);
    o->text.len = 0;
    if (r == 0 && run->kind == FRAME_TOOL)
        r = text_friendly(run->tool.name, o->error_type, text, &o->text);
    else if (r == 0)
        r = buf_printf(&o->text, "%s: %s", o->error_type, text);
    return r == 0 ? json_text(&o->text, &o->func_return) : r;
}

/* Seconds as Python prints a float: 180.0, 0.5, 1.25. */
static const char *seconds(uint64_t ms, char out[32])
{
    uint64_t rest = ms % 1000;

    if (rest % 100 == 0)
        snprintf(out, 32, "%" PRIu64 ".%" PRIu64, ms / 1000, rest / 100);
    else if (rest % 10 == 0)
        snprintf(out, 32, "%" PRIu64 ".%02" PRIu64, ms / 1000, rest / 10);
    else
        snprintf(out, 32, "%" PRIu64 ".%03" PRIu64, ms / 1000, rest);
    return out;
}

static const char *ended_by_limit(const struct child_done *done, const char **type, char *out, size_t size)
{
    *type = "RuntimeError";
    switch (done->cause) {
    case BRIG_CAUSE_OOM:
        *type = "MemoryError";
        snprintf(out, size, "the program used more memory than its limit of %" PRIu64 " MiB",
                 done->limits.memory >> 20);
        break;
    case BRIG_CAUSE_CPU_LIMIT:
        *type = "TimeoutError", snprintf(out, size, "the program used more CPU time than its limit");
        break;
    case BRIG_CAUSE_OUTPUT_LIMIT: snprintf(out, size, "the program wrote more than its output limit"); break;
    case BRIG_CAUSE_DISK_LIMIT:
        *type = "OSError", snprintf(out, size, "the program ended with its disk full: exit code %d", done->exit_code);
        break;
    case BRIG_CAUSE_PIDS_LIMIT:
        *type = "OSError",
        snprintf(out, size, "the program ended at its limit of processes: exit code %d", done->exit_code);
        break;
    case BRIG_CAUSE_CANCELLED:
        *type = "CancelledError",
        str_cut(out, size, done->detail && done->detail[0] ? done->detail : "the run was cancelled");
        break;
    case BRIG_CAUSE_POLICY:
        *type = "PermissionError", str_cut(out, size, done->detail ? done->detail : "a policy ended it");
        break;
    case BRIG_CAUSE_SIGNALLED: snprintf(out, size, "the program was killed by signal %d", done->signal); break;
    case BRIG_CAUSE_EXITED:
        snprintf(out, size, "the program ended without an answer: exit code %d", done->exit_code);
        break;
    default: str_cut(out, size, done->detail && done->detail[0] ? done->detail : "the sandbox was lost"); break;
    }
    return out;
}

static int no_answer(struct run *run, const struct child_done *done, int why)
{
    char text[512], number[32];
    const char *type = "RuntimeError", *name = run->tool.name ? run->tool.name : "None";

    if (done->cause == BRIG_CAUSE_TIMEOUT) {
        snprintf(text, sizeof text, "%s %.128s timed out after %s seconds.",
                 run->kind == FRAME_TOOL ? "Executing tool" : "Executing", run->kind == FRAME_TOOL ? name : "code",
                 seconds(run->timeout_ms, number));
        return set_error(run, "TimeoutError", text, "");
    }
    if (done->answer_too_large || why == -EMSGSIZE)
        snprintf(text, sizeof text, "the result is too large: at most %u MiB", RESULT_MAX >> 20);
    else if (why == -EBADMSG)
        snprintf(text, sizeof text, "the answer does not carry the code of this run: it is not the runtime's");
    else if (done->answer_broken || why == -EPROTO)
        snprintf(text, sizeof text, "the answer is not what the protocol says");
    else
        ended_by_limit(done, &type, text, sizeof text);
    return set_error(run, type, text, "");
}

/* ---- results -------------------------------------------------------------------------------------------- */

static int clean_value(void *ctx, const char *data, size_t len, struct buf *out)
{
    return clean(ctx, data, len, out);
}

/* The agent's state as the tool gave it back. What is not allowed fails the run: its result may rest on it. */
static int take_state(struct run *run, const struct frame_answer *a)
{
    struct outcome *o = run->outcome;
    struct brig_err err = {0};
    const struct state_clean clean_it = {clean_value, run};

    if (!a->agent_state || !run->state)
        return 0;
    int r =
        state_apply_clean(run->state, a->agent_state, run->scrub ? &clean_it : NULL, &o->state, &o->state_diff, &err);
    if (r == -ENOMEM)
        return r;
    o->state_changed = r > 0;
    return r < 0 ? set_error(run, "ValueError", err.message, "") : 0;
}

/* A number that is a secret leaves no JSON behind: then the text is a string. */
static int scrubbed_value(struct run *run, const struct frame_answer *a, struct json_doc **ret_doc)
{
    struct outcome *o = run->outcome;
    uint64_t before = run->scrub ? scrub_count(run->scrub) : 0;
    int r = clean(run, a->result, a->result_len, &o->func_return);

    if (r < 0 || !run->scrub || scrub_count(run->scrub) == before)
        return r;
    r = json_read(o->func_return.data, o->func_return.len, ANSWER_VALUES, ret_doc, NULL);
    if (r == -ENOMEM || r == 0)
        return r;
    AUTO_BUF struct buf text = o->func_return;
    o->func_return = BUF_INIT(TEXT_MAX);
    r = json_text(&text, &o->func_return);
    return r == 0 ? json_read(o->func_return.data, o->func_return.len, 2, ret_doc, NULL) : r;
}

static int take_result(struct run *run, const struct frame_answer *a)
{
    static const struct json_value null = {.type = JSON_NULL};
    struct outcome *o = run->outcome;
    AUTO_JSON struct json_doc *doc = NULL;
    int r = scrubbed_value(run, a, &doc);
    const struct json_value *value = doc ? json_root(doc) : a->result_value ? a->result_value : &null;
    bool object = value->type == JSON_OBJECT;

    if (r == 0)
        r = text_python(value, &o->text);
    uint64_t limit = run->tool.return_limit ? run->tool.return_limit : UINT64_MAX;
    /* The length of an object is that of its JSON, of anything else that of its text. */
    const struct buf *measured = object ? &o->func_return : &o->text;
    if (r == 0 && measured->len > limit && text_length(measured->data, measured->len) > limit) {
        if (object) {
            o->text.len = 0;
            r = buf_append(&o->text, o->func_return.data, o->func_return.len);
        }
        if (r == 0 && text_truncate(&o->text, limit))
            r = json_text(&o->text, &o->func_return);
    }
    return r;
}

static void fill_receipt(struct run *run, const struct child_done *done)
{
    struct brig_receipt *r = &run->outcome->r;

    r->cause = done->cause;
    r->exit_code = done->exit_code;
    r->signal = done->signal;
    r->started = done->started;
    r->limits_hit = done->limits_hit;
    str_cut(r->detail, sizeof r->detail, done->detail);
    (void)!str_copy(r->sandbox_id, sizeof r->sandbox_id, done->sandbox_id ? done->sandbox_id : "");
    r->limits = done->limits;
    r->limits.timeout = run->timeout_ms;
    r->usage = done->usage;
    if (done->layers)
        memcpy(r->layers, done->layers, sizeof r->layers);
    r->protection_complete = done->protection_complete;
    r->started_at_ns = done->started_at_ns ? done->started_at_ns : run->created_at_ns;
    r->ended_at_ns = done->ended_at_ns ? done->ended_at_ns : clock_real_ns();
    r->network = done->network;
    struct buf *learned = &run->outcome->learned;
    if (done->learned && buf_append(learned, done->learned, strlen(done->learned) + 1) == 0)
        r->learned = learned->data;
    for (int i = 1; i < 3; i++)
        r->truncated[i] = done->truncated[i];
}

static bool is_asked(const struct json_value *collect, const struct json_value *path)
{
    for (const struct json_value *want = collect->first; path && path->type == JSON_STRING && want; want = want->next)
        if (want->type == JSON_STRING && want->len == path->len && memcmp(want->string, path->string, path->len) == 0)
            return true;
    return false;
}

/* Only what was asked for, by the names it was asked by: who takes files out of an answer may write them where they
 * say. */
static int take_files(struct run *run, const struct json_value *files)
{
    if (!run->collect || !files)
        return 0;
    for (const struct json_value *file = files->first; file; file = file->next) {
        const struct json_value *base64 = json_get(file, "base64"), *error = json_get(file, "error");

        if (file->type != JSON_OBJECT || file->count != 2 || !is_asked(run->collect, json_get(file, "path")) ||
            (base64  ? base64
             : error ? error
                     : file)
                    ->type != JSON_STRING)
            return -EPROTO;
    }
    if (files->count > run->collect->count)
        return -EPROTO;
    run->outcome->files = files;
    return 0;
}

static int judge(struct run *run, const struct child_done *done)
{
    struct outcome *o = run->outcome;
    const char *text = done->answer;

    /* The files outlive the child's done, because the state is stored first. */
    if (text && run->agent_version && run->collect) {
        text = arena_copy(run->arena, text, done->answer_len);
        if (!text)
            return -ENOMEM;
    }
    int r = text && done->cause == BRIG_CAUSE_EXITED ? frame_answer_read(run->key, text, done->answer_len, &o->answer)
                                                     : -ENODATA;

    if (r == -ENOMEM)
        return r;
    if (r == 0 && o->answer.result_len > RESULT_MAX)
        r = -EMSGSIZE;
    if (r == 0)
        r = take_files(run, o->answer.files);
    if (r < 0)
        return no_answer(run, done, r);
    if (run->kind != FRAME_TOOL)
        o->exit_code = o->answer.exit_code;
    if (!o->answer.ok)
        return set_error(run, o->answer.error_type[0] ? o->answer.error_type : "Exception", o->answer.error_message,
                         o->answer.traceback);
    o->ok = true;
    r = take_state(run, &o->answer);
    return r == 0 && o->ok ? take_result(run, &o->answer) : r;
}

static void flush_output(struct run *run)
{
    for (unsigned i = 1; i < 3 && run->scrub && run->events.output; i++) {
        AUTO_BUF struct buf clean = BUF_INIT(TEXT_MAX);
        if (scrub_end(run->scrub, &run->streams[i], &clean) == 0 && clean.len)
            run->events.output(run->events.ctx, i, clean.data, clean.len);
    }
}

/* All of run->outcome that the answer decides. */
static void take_said(struct run *run, const struct child_done *done)
{
    flush_output(run);
    struct outcome *o = outcome_begin(run);
    uint64_t before = run->scrub ? scrub_count(run->scrub) : 0;
    int r = 0;

    for (int i = 1; i < 3 && r == 0; i++)
        r = clean_cut(run, done->output[i] ? done->output[i] : "", done->output[i] ? done->output_len[i] : 0,
                      done->truncated[i], &o->out[i]);
    o->broken = r == 0 ? judge(run, done) : r;
    o->scrubbed = run->scrub ? scrub_count(run->scrub) - before : 0;
}

void run_answered(struct run *run, const struct child_done *done)
{
    take_said(run, done);
    run_describe(run);
}

/* Completes run->outcome; whether files may have been left. */
static bool take_outcome(struct run *run, const struct child_done *done)
{
    if (!run->outcome)
        take_said(run, done);
    struct outcome *o = run->outcome;

    fill_receipt(run, done);
    if (o->exit_code >= 0)
        o->r.exit_code = o->exit_code;
    o->here = run->child != NULL;
    o->of_zygote = run->child && child_of_zygote(run->child);
    if (o->broken < 0) { /* what cannot be cleaned is not shown */
        for (int i = 1; i < 3; i++)
            o->out[i].len = 0;
        o->ok = o->state_changed = false;
        o->func_return.len = o->text.len = o->described.len = 0;
        o->r.cause = BRIG_CAUSE_HOST_ERROR;
        snprintf(o->r.detail, sizeof o->r.detail, "out of memory for the result");
        (void)!buf_append_str(&o->func_return, "null");
    }
    return done->started && !o->answer.nothing_left;
}

/* ---- the end of the step -------------------------------------------------------------------------------- */

static void on_state(void *ctx, const struct object *object UNUSED, const struct brig_err *err)
{
    struct run *run = ctx;

    if (!run->executor) { /* the run was dropped with its executor */
        mem_free(run);
        return;
    }
    if (err)
        snprintf(run->note, sizeof run->note, "the agent's state was not stored: %.200s", err->message);
    step_receipt(run);
}

void run_over(struct run *run)
{
    struct outcome *o = run->outcome;
    struct executor_options *opt = &run->executor->o;
    struct brig_err err = {0};

    run_drop_waits(run);
    if (run->entered) {
        run_put_off(run);
        return;
    }
    if (o->ok && o->state_changed && run->agent_version && opt->agents) {
        if (agents_set_state(opt->agents, run->caller.org_id, run->agent_id, run->agent_version, o->state.data,
                             o->state.len, on_state, run, &err) == 0)
            return;
        snprintf(run->note, sizeof run->note, "the agent's state was not stored: %.200s", err.message);
    }
    step_receipt(run);
}

void step_result(struct run *run, const struct child_done *done)
{
    struct executor *executor = run->executor;
    struct child *child = run->child; /* its sandbox and its zygote are looked at */
    const bool keep = run->keep_files;
    char org[64], id[48];

    run->step = STEP_RESULT;
    str_assign(org, run->caller.org_id);
    str_assign(id, run->id);
    const bool look = take_outcome(run, done) && keep;
    run->child = NULL;
    struct sbox *own = run->own_sandbox[0] ? sbox_by_id(executor->o.manager, run->own_sandbox) : NULL;
    run_over(run); /* the answer first: files can wait */
    if (own)
        (void)!sbox_end(own, NULL, "over", NULL, NULL, NULL);
    if (child && look)
        artifact_fetch(executor, org, id, child);
    else if (child && keep)
        child_release(child);
}

void run_result_error(struct run *run, enum brig_cause cause, const char *type, const char *message)
{
    struct outcome *o = outcome_begin(run);

    o->r.cause = cause;
    o->r.started_at_ns = run->created_at_ns;
    o->r.ended_at_ns = clock_real_ns();
    str_cut(o->r.detail, sizeof o->r.detail, message);
    if (set_error(run, type, message, "") < 0)
        o->func_return.len = o->text.len = 0;
    run_over(run);
}
