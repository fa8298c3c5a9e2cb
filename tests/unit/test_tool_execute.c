/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs from the request to the receipt, with providers of the narrow form that the test adds to the list: one that
 * refuses, one that dies before it starts, one that dies after, one that answers. The answers are made with the key of
 * the request, as a runtime would.
 */
#include "audit_rig.h"

#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "codec/json/json.h"
#include "codec/wire/le.h"
#include "config/config.h"
#include "run/execute.h"

#define ORG "org-00000000-0000-4000-8000-000000000000"

enum how { ANSWERS, REFUSES, BUSY, DIES_BEFORE, DIES_AFTER, HANGS };

struct double_ {
    struct provider provider;
    struct provider_ops ops;
    struct test *test;
    enum how how;
    unsigned starts, cancels;
    const char *answer; /* payload; sealed with the run's key */
    const char *out, *err;
    struct child_done done; /* over what the case says */
    bool wrong_key, early;  /* early: the answer is told before its numbers */
    struct child_claim claim;
    char *request_text;
    uint8_t key[FRAME_KEY];
    struct loop_timer timer;
};

struct test {
    struct rig *rig;
    struct config_loaded *loaded;
    struct config config;
    struct providers *providers;
    struct executor *executor;
    struct rates *rates;
    struct approvals *approvals;
    struct double_ local, other;
    /* what came of it */
    unsigned n_done;
    bool has_result, ok;
    char func_return[8192], text[8192], out[3][8192], receipt[65536], state[4096], fingerprint[128], streamed[3][8192];
    struct brig_err refused;
    uint64_t retry_s;
};

/* ---- doubles -------------------------------------------------------------------------------------------- */

static void finish(struct double_ *d)
{
    struct child_done done = d->done;
    static char frame[65536];
    uint8_t code[SHA256_SIZE];

    done.started = d->how != DIES_BEFORE;
    if (d->how == DIES_BEFORE || d->how == DIES_AFTER) {
        done.cause = BRIG_CAUSE_SANDBOX_GONE;
        done.detail = "it fell over";
    } else if (d->answer) {
        if (d->wrong_key)
            d->key[0] ^= 1;
        assert_int_equal(crypto_hmac_sha256(d->key, FRAME_KEY, d->answer, strlen(d->answer), code), 0);
        crypto_hex(code, sizeof code, frame);
        snprintf(frame + 64, sizeof frame - 64, "\n%s", d->answer);
        done.answer = frame;
        done.answer_len = strlen(frame);
    }
    done.output[1] = d->out;
    done.output_len[1] = d->out ? strlen(d->out) : 0;
    done.output[2] = d->err;
    done.output_len[2] = d->err ? strlen(d->err) : 0;
    if (d->claim.output_data && d->out)
        for (size_t i = 0; i < strlen(d->out); i++) /* byte by byte: nothing may hide at a border */
            d->claim.output_data(d->claim.ctx, 1, (const uint8_t *)d->out + i, 1);
    struct child_done said = done;
    said.usage.cpu_ms = 0;
    if (d->early)
        d->claim.answered(d->claim.ctx, &said);
    assert_false(d->early && d->test->n_done); /* it is nobody's yet */
    d->claim.done(d->claim.ctx, &done);
}

static void on_timer(struct loop_timer *timer)
{
    finish(timer->ctx);
}

/* As a runtime finds it: {"v":1,"key":"64 hex digits",... */
static void read_key(struct double_ *d)
{
    const char *at = strstr(d->request_text, "\"key\":\"");

    assert_non_null(at);
    for (size_t i = 0; i < sizeof d->key; i++) {
        const char digits[3] = {at[7 + 2 * i], at[8 + 2 * i], '\0'};
        d->key[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
}

static int start(struct provider *provider, const struct child_claim *claim, void **ret_run, struct brig_err *err)
{
    struct double_ *d = (struct double_ *)provider;

    d->starts++;
    if (d->how == REFUSES)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "not today");
    if (d->how == BUSY)
        return err_set(err, BRIG_E_BUSY, 0, "all lines are busy");
    d->claim = *claim;
    free(d->request_text);
    d->request_text = strdup(claim->request->data + CHILD_FRAME_HEAD);
    assert_int_equal(strlen(d->request_text), le_get_u32((const uint8_t *)claim->request->data));
    read_key(d);
    *ret_run = d;
    if (d->how != HANGS)
        assert_int_equal(loop_timer_set(d->test->rig->loop, &d->timer, loop_now_ns(), NULL), 0);
    return 0;
}

static void cancel(struct provider *provider, void *run)
{
    struct double_ *d = (struct double_ *)provider;

    assert_ptr_equal(run, d);
    d->cancels++;
    d->done.cause = BRIG_CAUSE_CANCELLED;
    d->answer = NULL;
    assert_int_equal(loop_timer_set(d->test->rig->loop, &d->timer, loop_now_ns(), NULL), 0);
}

static void destroy(struct provider *provider UNUSED)
{
}

static void double_init(struct test *t, struct double_ *d)
{
    *d = (struct double_){
        .test = t,
        .how = ANSWERS,
        .answer = "{\"status\":\"ok\",\"result\":5}",
        .timer = {.fn = on_timer, .ctx = d},
        .done = {.cause = BRIG_CAUSE_EXITED, .sandbox_id = "abc", .started_at_ns = 1, .ended_at_ns = 2}};
}

static void provide(struct test *t, const char *name, struct double_ *d)
{
    d->ops = (struct provider_ops){.name = name, .destroy = destroy, .run = start, .cancel = cancel};
    d->provider = (struct provider){.ops = &d->ops, .loop = t->rig->loop};
    assert_int_equal(providers_add(t->providers, &d->provider, NULL), 0);
}

/* ---- a test --------------------------------------------------------------------------------------------- */

static int set_up(void **state)
{
    static char *none[] = {NULL};
    struct test *t = calloc(1, sizeof *t);
    void *rig = NULL;

    assert_non_null(t);
    assert_int_equal(rig_set_up(&rig), 0);
    t->rig = rig;
    rig_open(t->rig, NULL);
    assert_int_equal(config_load_text("", NULL, 0, none, &t->loaded, NULL), 0);
    t->config = *config_get(t->loaded);
    assert_int_equal(rates_create(&t->rates, NULL), 0);
    assert_int_equal(approvals_create(t->rig->loop, &t->approvals, NULL), 0);
    assert_int_equal(providers_create(&t->config, &t->providers, NULL), 0);
    const struct executor_options options = {.loop = t->rig->loop,
                                             .providers = t->providers,
                                             .audit = t->rig->audit,
                                             .config = &t->config,
                                             .rates = t->rates,
                                             .approvals = t->approvals,
                                             .artifacts_fd = -1,
                                             .requests_max = 8u << 20};
    assert_int_equal(executor_create(&options, &t->executor, NULL), 0);
    double_init(t, &t->local);
    double_init(t, &t->other);
    provide(t, "local", &t->local);
    *state = t;
    return 0;
}

static int tear_down(void **state)
{
    struct test *t = *state;
    void *rig = t->rig;

    executor_destroy(t->executor);
    providers_destroy(t->providers);
    approvals_destroy(t->approvals);
    rates_destroy(t->rates);
    config_free(t->loaded);
    free(t->local.request_text);
    free(t->other.request_text);
    rig_tear_down(&rig);
    free(t);
    return 0;
}

static void on_output(void *ctx, unsigned stream, const char *data, size_t len)
{
    struct test *t = ctx;
    size_t at = strlen(t->streamed[stream]);

    assert_true(at + len < sizeof t->streamed[stream]);
    memcpy(t->streamed[stream] + at, data, len);
}

static void on_done(void *ctx, const struct run_result *result, const struct brig_err *refused, uint64_t retry_s)
{
    struct test *t = ctx;

    t->n_done++;
    t->retry_s = retry_s;
    t->has_result = result != NULL;
    if (refused)
        t->refused = *refused;
    if (!result)
        return;
    t->ok = result->ok;
    snprintf(t->func_return, sizeof t->func_return, "%.*s", (int)result->func_return_len, result->func_return);
    snprintf(t->text, sizeof t->text, "%.*s", (int)result->text_len, result->text);
    for (int i = 1; i < 3; i++)
        snprintf(t->out[i], sizeof t->out[i], "%.*s", (int)result->out_len[i], result->out[i]);
    snprintf(t->receipt, sizeof t->receipt, "%.*s", (int)result->receipt_len, result->receipt);
    snprintf(t->state, sizeof t->state, "%s", result->agent_state ? result->agent_state : "");
}

static const struct caller caller = {.org_id = ORG, .actor = "key-1", .key_id = "key-1", .role = STORE_ROLE_USER};

static struct tool add_tool(void)
{
    static const char source[] = "def add(a, b):\n    return a + b\n";

    return (struct tool){.id = "tool-1",
                         .name = "add",
                         .source = source,
                         .source_len = sizeof source - 1,
                         .version = 3,
                         .language = TOOL_PYTHON,
                         .return_limit = 50000};
}

static struct run *begin(struct test *t, const struct run_ask *ask)
{
    const struct run_events events = {.output = on_output, .done = on_done, .ctx = t};
    struct run *run = NULL;
    struct brig_err err;

    memset(t->streamed, 0, sizeof t->streamed);
    t->n_done = 0;
    t->refused = (struct brig_err){0};
    assert_int_equal(executor_run(t->executor, ask, &events, &run, &err), 0);
    assert_int_equal(t->n_done, 0); /* never from within */
    return run;
}

static void run_to_end(struct test *t, const struct run_ask *ask)
{
    (void)begin(t, ask);
    while (t->n_done == 0)
        assert_int_equal(loop_run_once(t->rig->loop, 5000, NULL), 0);
    assert_int_equal(t->n_done, 1);
}

static struct json_doc *json_of(const char *text)
{
    struct json_doc *doc = NULL;
    struct brig_err err = {0};

    if (json_read(text, strlen(text), 10000, &doc, &err) < 0)
        fail_msg("%s: %s", err.message, text);
    return doc;
}

static unsigned count_in_log(struct test *t, const char *text)
{
    char path[128];
    static char log[262144];
    unsigned n = 0;

    audit_settle(t->rig->audit);
    snprintf(path, sizeof path, "%s/audit.jsonl", t->rig->dir);
    ssize_t len = fd_read_file(AT_FDCWD, path, log, sizeof log);
    assert_true(len > 0);
    for (const char *at = log; (at = strstr(at, text)); at++)
        n++;
    return n;
}

/* ---- results -------------------------------------------------------------------------------------------- */

static void a_run_and_its_receipt(void **state)
{
    struct test *t = *state;
    struct tool tool = add_tool();
    struct json_doc *args = json_of("{\"a\":2,\"b\":3}"), *receipt;
    const struct run_ask ask = {
        .caller = &caller, .tool = &tool, .args = "{\"a\":2,\"b\":3}", .args_len = 13, .args_json = json_root(args)};

    t->local.out = "hello\n";
    run_to_end(t, &ask);
    json_doc_free(args);
    assert_true(t->ok);
    assert_string_equal(t->func_return, "5");
    assert_string_equal(t->text, "5");
    assert_string_equal(t->out[1], "hello\n");
    assert_string_equal(t->streamed[1], "hello\n");
    assert_int_equal(t->local.starts, 1);
    assert_int_equal(t->local.claim.timeout_ms, 180000);
    assert_non_null(strstr(t->local.request_text, "\"args\":{\"a\":2,\"b\":3}"));
    assert_non_null(strstr(t->local.request_text, "\"LETTA_TOOL_ID\":\"tool-1\""));
    assert_non_null(strstr(t->local.request_text, "\"BRIG_RUN_ID\":\"run-"));
    receipt = json_of(t->receipt);
    const struct json_value *root = json_root(receipt);
    assert_string_equal(json_get(root, "kind")->string, "tool");
    assert_string_equal(json_get(root, "provider")->string, "local");
    assert_string_equal(json_get(json_get(root, "tool"), "name")->string, "add");
    assert_int_equal(json_get(json_get(root, "tool"), "version")->i64, 3);
    assert_int_equal(json_get(root, "result")->i64, 5);
    assert_int_equal(json_get(root, "scrubbed")->i64, 0);
    assert_int_equal(json_get(root, "providers_tried")->count, 0);
    assert_string_equal(json_get(json_get(root, "environment"), "LETTA_TOOL_ID")->string, "forced");
    assert_string_equal(json_get(json_get(root, "outcome"), "cause")->string, "exited");
    assert_true(json_get(root, "audit_seq")->i64 > 0);
    json_doc_free(receipt);
    assert_int_equal(count_in_log(t, "\"action\":\"tool.run\""), 1);
    assert_int_equal(count_in_log(t, "version 3"), 1);
}

static void errors_are_friendly(void **state)
{
    struct test *t = *state;
    struct tool tool = add_tool();
    const struct run_ask ask = {.caller = &caller, .tool = &tool};

    t->local.answer = "{\"status\":\"error\",\"error\":{\"type\":\"ZeroDivisionError\",\"message\":\"weird\","
                      "\"traceback\":\"Traceback ...\\nZeroDivisionError: weird\\n\"}}";
    t->local.err = "warned";
    run_to_end(t, &ask);
    assert_false(t->ok);
    assert_string_equal(t->text, "Error executing function add: ZeroDivisionError: weird");
    assert_string_equal(t->func_return, "\"Error executing function add: ZeroDivisionError: weird\"");
    assert_string_equal(t->out[2], "warned\nTraceback ...\nZeroDivisionError: weird\n");
    assert_non_null(
        strstr(t->receipt, "\"error\":{\"type\":\"ZeroDivisionError\",\"message\":\"weird\",\"traceback\":"));
    assert_null(strstr(t->receipt, "\"result\":"));
}

/* However a program ends without a word, the text says how. */
static void ends_without_an_answer(void **state)
{
    static const struct {
        struct child_done done;
        const char *text;
    } cases[] = {
        {{.cause = BRIG_CAUSE_EXITED, .exit_code = 3},
         "RuntimeError: the program ended without an answer: exit code 3"},
        {{.cause = BRIG_CAUSE_SIGNALLED, .signal = 9}, "RuntimeError: the program was killed by signal 9"},
        {{.cause = BRIG_CAUSE_TIMEOUT, .signal = 9}, "TimeoutError: Executing tool add timed out after 180.0 seconds."},
        {{.cause = BRIG_CAUSE_OOM, .signal = 9, .limits = {.memory = 64u << 20}},
         "MemoryError: the program used more memory than its limit of 64 MiB"},
        {{.cause = BRIG_CAUSE_EXITED, .answer_too_large = true},
         "RuntimeError: the result is too large: at most 16 MiB"},
        {{.cause = BRIG_CAUSE_EXITED, .answer_broken = true}, "RuntimeError: the answer is not what the protocol says"},
        {{.cause = BRIG_CAUSE_HOST_ERROR, .detail = "the disk is gone"}, "RuntimeError: the disk is gone"},
    };
    struct test *t = *state;
    struct tool tool = add_tool();
    const struct run_ask ask = {.caller = &caller, .tool = &tool};
    char expected[256];

    t->local.answer = NULL;
    t->local.out = "so far";
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        t->local.done = cases[i].done;
        run_to_end(t, &ask);
        assert_false(t->ok);
        snprintf(expected, sizeof expected, "Error executing function add: %s", cases[i].text);
        assert_string_equal(t->text, expected);
        assert_non_null(strstr(t->out[2], cases[i].text)); /* and stderr has the line */
        assert_string_equal(t->out[1], "so far");
    }
    t->local.done = (struct child_done){.cause = BRIG_CAUSE_EXITED};
    t->local.answer = "{\"status\":\"ok\",\"result\":\"forged\"}";
    t->local.wrong_key = true;
    run_to_end(t, &ask);
    assert_false(t->ok);
    assert_null(strstr(t->receipt, "forged"));
    assert_non_null(strstr(t->text, "does not carry the code of this run"));
}

static void results_are_cut(void **state)
{
    struct test *t = *state;
    struct tool tool = add_tool();
    const struct run_ask ask = {.caller = &caller, .tool = &tool};

    tool.return_limit = 4;
    t->local.answer = "{\"status\":\"ok\",\"result\":\"\\u00e9\\u00e9\\u00e9\\u00e9\"}";
    run_to_end(t, &ask);
    assert_string_equal(t->text, "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9");
    t->local.answer = "{\"status\":\"ok\",\"result\":\"\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\"}";
    run_to_end(t, &ask);
    assert_string_equal(
        t->text,
        "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9... [NOTE: function output was truncated since it exceeded the character "
        "limit: 5 > 4]");
    assert_true(t->ok);
    t->local.answer = "{\"status\":\"ok\",\"result\":{\"a\":1}}";
    run_to_end(t, &ask);
    assert_string_equal(
        t->func_return,
        "\"{\\\"a\\\"... [NOTE: function output was truncated since it exceeded the character limit: 7 > 4]\"");
    tool.return_limit = 7;
    run_to_end(t, &ask);
    assert_string_equal(t->func_return, "{\"a\":1}");
    assert_string_equal(t->text, "{'a': 1}");
}

/* ---- secrets -------------------------------------------------------------------------------------------- */

static void secrets_do_not_leave(void **state)
{
    struct test *t = *state;
    struct tool tool = add_tool();
    struct json_doc *env = json_of("{\"TOKEN\":\"hunter2-hunter2\",\"PIN\":\"123456789\"}");
    const struct run_ask ask = {.caller = &caller, .tool = &tool, .env_vars = json_root(env)};

    t->local.out = "my token is hunter2-hunter2.";
    t->local.err = "aHVudGVyMi1odW50ZXIy";
    t->local.answer = "{\"status\":\"ok\",\"result\":{\"t\":\"hunter2-hunter2\",\"n\":1}}";
    t->local.done.usage.cpu_ms = 1234;
    run_to_end(t, &ask);
    char late[sizeof t->receipt];
    memcpy(late, t->receipt, sizeof late);
    t->local.early = true; /* here and in all that follows */
    run_to_end(t, &ask);
    assert_int_equal(strlen(late), strlen(t->receipt));
    assert_non_null(strstr(t->receipt, "\"cpu_ms\":1234"));
    assert_int_equal(count_in_log(t, "\"action\":\"tool.run\""), 2);
    assert_non_null(strstr(t->local.request_text, "\"TOKEN\":\"hunter2-hunter2\""));
    assert_string_equal(t->out[1], "my token is [secret].");
    assert_string_equal(t->streamed[1], "my token is [secret].");
    assert_null(strstr(t->out[2], "aHVudGVy"));
    assert_string_equal(t->func_return, "{\"t\":\"[secret]\",\"n\":1}");
    assert_null(strstr(t->receipt, "hunter2"));
    assert_non_null(strstr(t->receipt, "\"scrubbed\":3"));
    assert_non_null(strstr(t->receipt, "\"TOKEN\":\"runtime\""));
    /* A number that is a secret: what is left is no JSON any more, and is a string. */
    t->local.answer = "{\"status\":\"ok\",\"result\":[123456789]}";
    run_to_end(t, &ask);
    assert_string_equal(t->func_return, "\"[[secret]]\"");
    t->local.answer =
        "{\"status\":\"error\",\"error\":{\"type\":\"E\",\"message\":\"hunter2-hunter2\",\"traceback\":\"E: "
        "hunter2-hunter2\"}}";
    run_to_end(t, &ask);
    assert_null(strstr(t->text, "hunter2"));
    assert_null(strstr(t->out[2], "hunter2"));
    assert_null(strstr(t->receipt, "hunter2"));
    t->config.audit_payloads = true;
    run_to_end(t, &(struct run_ask){.caller = &caller,
                                    .tool = &tool,
                                    .env_vars = json_root(env),
                                    .args = "{\"x\":\"hunter2-hunter2\"}",
                                    .args_len = 23});
    assert_int_equal(count_in_log(t, "hunter2"), 0);
    assert_int_equal(count_in_log(t, "arguments={"), 1);
    json_doc_free(env);
}

/* ---- refusals ------------------------------------------------------------------------------------------- */

static void refused_before_anything_runs(void **state)
{
    struct test *t = *state;
    struct tool tool = add_tool();
    struct json_doc *org = json_of("{\"tools\":{\"deny\":[\"run\"]}}"), *bad = json_of("{\"2BAD\":\"x\"}"),
                    *limits = json_of("{\"memory\":\"tiny\"}");

    run_to_end(t, &(struct run_ask){.caller = &caller, .tool = &tool, .org_doc = json_root(org)});
    assert_false(t->has_result);
    assert_int_equal(t->refused.code, BRIG_E_FORBIDDEN);
    assert_string_equal(t->refused.message, "Tool 'run' not allowed"); /* it is not a registered one */
    assert_int_equal(count_in_log(t, "\"outcome\":\"denied\""), 1);
    run_to_end(t, &(struct run_ask){.caller = &caller, .tool = &tool, .env_vars = json_root(bad)});
    assert_int_equal(t->refused.code, BRIG_E_USAGE);
    run_to_end(t, &(struct run_ask){.caller = &caller, .tool = &tool, .limits = json_root(limits)});
    assert_int_equal(t->refused.code, BRIG_E_USAGE);
    tool.rate_max = 1;
    tool.rate_window_s = 60;
    run_to_end(t, &(struct run_ask){.caller = &caller, .tool = &tool});
    assert_true(t->has_result);
    run_to_end(t, &(struct run_ask){.caller = &caller, .tool = &tool});
    assert_int_equal(t->refused.code, BRIG_E_LIMIT);
    assert_string_equal(t->refused.message, "Rate limit exceeded for add");
    assert_true(t->retry_s >= 1);
    assert_int_equal(t->local.starts, 1);
    json_doc_free(org);
    json_doc_free(bad);
    json_doc_free(limits);
}

/* Wherever memory ends: a refusal is told once, by the loop or as the result of the call, and never from within. */
static void refused_without_memory(void **state)
{
    struct test *t = *state;
    struct tool tool = add_tool();
    struct json_doc *org = json_of("{\"tools\":{\"deny\":[\"run\"]}}");
    const struct run_ask ask = {.caller = &caller, .tool = &tool, .org_doc = json_root(org)};
    const struct run_events events = {.done = on_done, .ctx = t};
    static struct loop_timer others[40]; /* so that once the table of timers is full */

    for (size_t i = 0; i < 40; i++) {
        others[i].fn = on_timer;
        assert_int_equal(loop_timer_set(t->rig->loop, &others[i], loop_now_ns() + UINT64_C(3600000000000), NULL), 0);
        for (size_t n = 0, failed = 1; failed; n++) {
            struct run *run = NULL;
            t->n_done = 0;
            mem_fail_after(n);
            int r = executor_run(t->executor, &ask, &events, &run, NULL);
            failed = mem_has_failed();
            mem_fail_after(MEM_FAIL_NEVER);
            assert_int_equal(t->n_done, 0);
            while (r == 0 && t->n_done == 0)
                assert_int_equal(loop_run_once(t->rig->loop, 5000, NULL), 0);
            assert_int_equal(t->n_done, r == 0);
        }
        assert_int_equal(t->refused.code, BRIG_E_FORBIDDEN);
    }
    json_doc_free(org);
}

static void arguments_against_the_schema(void **state)
{
    struct test *t = *state;
    struct tool tool = add_tool();
    struct json_doc *schema = json_of(
                        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}"),
                    *args = json_of("{\"a\":\"x\"}");

    assert_int_equal(schema_compile(json_root(schema), 0, &tool.schema, NULL), 0);
    run_to_end(
        t, &(struct run_ask){
               .caller = &caller, .tool = &tool, .args = "{\"a\":\"x\"}", .args_len = 9, .args_json = json_root(args)});
    assert_int_equal(t->refused.code, BRIG_E_INVALID);
    assert_non_null(strstr(t->refused.message, "a: "));
    run_to_end(t, &(struct run_ask){.caller = &caller,
                                    .tool = &tool,
                                    .args = "{\"a\":\"x\"}",
                                    .args_len = 9,
                                    .args_json = json_root(args),
                                    .no_schema_check = true});
    assert_true(t->has_result);
    schema_free(tool.schema);
    json_doc_free(schema);
    json_doc_free(args);
}

static void at_most_so_many(void **state)
{
    struct test *t = *state;
    struct tool tool = add_tool();
    const struct run_ask ask = {.caller = &caller, .tool = &tool};
    const struct run_events nobody = {0};
    struct run *first = NULL;

    t->config.tools_max_runs = 1;
    t->local.how = HANGS;
    assert_int_equal(executor_run(t->executor, &ask, &nobody, &first, NULL), 0);
    run_to_end(t, &ask);
    assert_int_equal(t->refused.code, BRIG_E_LIMIT);
    assert_string_equal(t->refused.message, "Maximum number of runs (1) reached");
    assert_ptr_equal(executor_find(t->executor, ORG, run_id(first)), first);
    assert_null(executor_find(t->executor, "org-other", run_id(first)));
    assert_int_equal(executor_run(t->executor, &ask, &nobody, &first, NULL), 0); /* refused, which takes no place */
    t->config.tools_max_runs = 2;
    assert_true(executor_run(t->executor, &ask, &nobody, &first, NULL) == 0 && !run_is_refused(first));
}

/* What runs keep of their requests is bounded; an organisation has a share of it, small ones do not count. */
static void requests_that_are_kept(void **state)
{
    struct test *t = *state;
    struct tool tool = add_tool();
    struct caller other = caller, socket = caller;
    const struct caller *who[] = {&caller, &caller, &caller, &caller, &other, &other, &socket};
    const size_t kib[] = {2048, 2048, 2048, 100, 2048, 2048, 16384};

    str_assign(other.org_id, "org-2");
    socket.socket = true;
    t->local.how = HANGS;
    for (size_t i = 0; i < 7; i++) {
        struct arena *arena = arena_create(SIZE_MAX / 2);
        assert_true(arena && arena_alloc(arena, kib[i] << 10));
        struct run *run = begin(t, &(struct run_ask){.arena = &arena, .caller = who[i], .tool = &tool});
        assert_int_equal(run_is_refused(run), i == 2 || i == 5);
        while (t->n_done == 0 && run_is_refused(run))
            assert_int_equal(loop_run_once(t->rig->loop, 5000, NULL), 0);
        assert_int_equal(t->refused.code, i == 2 || i == 5 ? BRIG_E_LIMIT : BRIG_E_NONE);
    }
}

static void waits_for_a_yes(void **state)
{
    struct test *t = *state;
    struct tool tool = add_tool();
    const struct run_ask ask = {.caller = &caller, .tool = &tool};

    tool.requires_approval = true;
    struct run *run = begin(t, &ask);
    assert_int_equal(t->local.starts, 0);
    assert_int_equal(approvals_decide(t->approvals, ORG, run_id(run), true, "key-boss", "", NULL), 0);
    while (t->n_done == 0)
        assert_int_equal(loop_run_once(t->rig->loop, 5000, NULL), 0);
    assert_true(t->ok);
    assert_non_null(strstr(t->receipt, "approved by key-boss"));
    run = begin(t, &ask);
    assert_int_equal(approvals_decide(t->approvals, ORG, run_id(run), false, "key-boss", "no", NULL), 0);
    while (t->n_done == 0)
        assert_int_equal(loop_run_once(t->rig->loop, 5000, NULL), 0);
    assert_int_equal(t->refused.code, BRIG_E_FORBIDDEN);
    assert_int_equal(t->local.starts, 1);
    run = begin(t, &ask); /* one that is cancelled while it waits */
    run_cancel(run, "the caller left");
    while (t->n_done == 0)
        assert_int_equal(loop_run_once(t->rig->loop, 5000, NULL), 0);
    assert_true(t->has_result);
    assert_non_null(strstr(t->receipt, "\"cause\":\"cancelled\""));
    assert_int_equal(t->local.starts, 1);
}

/* ---- providers ------------------------------------------------------------------------------------------ */

static void falls_back_and_says_why(void **state)
{
    struct test *t = *state;
    struct tool tool = add_tool();
    const struct run_ask ask = {.caller = &caller, .tool = &tool};

    tool.provider = "modal"; /* not there */
    run_to_end(t, &ask);
    assert_true(t->ok);
    assert_non_null(strstr(
        t->receipt, "\"providers_tried\":[{\"provider\":\"modal\",\"why\":\"provider modal: no key: MODAL_TOKEN_ID, "
                    "MODAL_TOKEN_SECRET\"}]"));
    provide(t, "modal", &t->other);
    t->other.how = REFUSES;
    run_to_end(t, &ask);
    assert_true(t->ok);
    assert_int_equal(t->other.starts, 1); /* what is final is not tried again */
    assert_non_null(strstr(
        t->receipt, "\"provider\":\"local\",\"providers_tried\":[{\"provider\":\"modal\",\"why\":\"not today\"}]"));
    tool.no_fallback = true;
    run_to_end(t, &ask);
    assert_int_equal(t->refused.code, BRIG_E_UNSUPPORTED);
    tool.no_fallback = false;
    t->other.how = ANSWERS;
    t->other.answer = "{\"status\":\"ok\",\"result\":\"remote\"}";
    run_to_end(t, &ask);
    assert_string_equal(t->func_return, "\"remote\"");
    assert_non_null(strstr(t->receipt, "\"provider\":\"modal\",\"providers_tried\":[]"));
    t->other.ops.protects = BRIG_LAYER_BIT(BRIG_LAYER_USER_NS), t->other.how = REFUSES; /* local has fewer layers */
    run_to_end(t, &ask);
    assert_int_equal(t->refused.code, BRIG_E_UNSUPPORTED);
    tool.provider = "gvisor"; /* off: its layers are not known, but that it has a kernel of its own */
    run_to_end(t, &ask);
    assert_int_equal(t->refused.code, BRIG_E_OFF);
    tool.provider = NULL; /* the wish of the call, and one that nobody has */
    run_to_end(t, &(struct run_ask){.caller = &caller, .tool = &tool, .provider = "nowhere", .fallback = "none"});
    assert_int_equal(t->refused.code, BRIG_E_INVALID);
}

static void transient_failures_are_tried_again(void **state)
{
    struct test *t = *state;
    struct tool tool = add_tool();

    tool.provider = "modal";
    provide(t, "modal", &t->other);
    t->other.how = BUSY;
    run_to_end(t, &(struct run_ask){.caller = &caller, .tool = &tool});
    assert_true(t->ok);
    assert_int_equal(t->other.starts, 3);
    assert_int_equal(t->local.starts, 1);
    t->other.starts = 0;
    t->other.how = DIES_BEFORE; /* user code has not begun */
    run_to_end(t, &(struct run_ask){.caller = &caller, .tool = &tool});
    assert_true(t->ok);
    assert_int_equal(t->other.starts, 3);
    assert_int_equal(t->local.starts, 2);
    assert_non_null(strstr(t->receipt, "it fell over"));
}

/* The boundary: once the request was sent, nobody runs it again. */
static void never_a_second_time(void **state)
{
    struct test *t = *state;
    struct tool tool = add_tool();

    tool.provider = "modal";
    provide(t, "modal", &t->other);
    t->other.how = DIES_AFTER;
    run_to_end(t, &(struct run_ask){.caller = &caller, .tool = &tool});
    assert_true(t->has_result);
    assert_false(t->ok);
    assert_int_equal(t->other.starts, 1);
    assert_int_equal(t->local.starts, 0);
    assert_non_null(strstr(t->receipt, "\"cause\":\"sandbox-gone\""));
    assert_non_null(strstr(t->receipt, "\"provider\":\"modal\""));
    assert_non_null(strstr(t->text, "it fell over"));
}

static void a_running_one_is_cancelled(void **state)
{
    struct test *t = *state;
    struct tool tool = add_tool();
    const struct run_ask ask = {.caller = &caller, .tool = &tool};

    t->local.how = HANGS;
    struct run *run = begin(t, &ask);
    run_cancel(run, "enough");
    run_cancel(run, "twice is once");
    while (t->n_done == 0)
        assert_int_equal(loop_run_once(t->rig->loop, 5000, NULL), 0);
    assert_int_equal(t->local.cancels, 1);
    assert_non_null(strstr(t->receipt, "\"cause\":\"cancelled\""));
}

static void providers_say_why_they_are_off(void **state)
{
    struct test *t = *state;
    struct buf out = BUF_INIT(65536);
    struct json json = JSON_INIT(&out);

    providers_json(t->providers, &json);
    assert_int_equal(json_finish(&json), 0);
    assert_non_null(strstr(out.data, "[{\"name\":\"local\",\"enabled\":true,\"why\":null,\"can\":[],\"layers\":["));
    assert_non_null(strstr(out.data, "{\"name\":\"e2b\",\"enabled\":false,\"why\":\"no key: E2B_API_KEY\"}"));
    assert_non_null(strstr(out.data, "{\"name\":\"daytona\",\"enabled\":false,\"why\":\"this version of brig"));
    buf_done(&out);
    /* a name is one provider's */
    assert_true(providers_add(t->providers, &t->local.provider, NULL) < 0);
}

/* E2B comes before local where it can be used, and nobody says otherwise. */
static void e2b_before_local(void **state)
{
    struct test *t = *state;
    struct tool tool = add_tool();

    provide(t, "e2b", &t->other);
    run_to_end(t, &(struct run_ask){.caller = &caller, .tool = &tool});
    assert_int_equal(t->other.starts, 1);
    assert_int_equal(t->local.starts, 0);
    assert_non_null(strstr(t->receipt, "\"provider\":\"e2b\",\"providers_tried\":[]"));
}

/* ---- wall clock and state ------------------------------------------------------------------------------- */

static void whose_time_counts(void **state)
{
    struct test *t = *state;
    struct tool tool = add_tool();
    struct json_doc *of_tool = json_of("{\"timeout\":20,\"memory\":\"64m\"}"),
                    *of_call = json_of("{\"timeout\":\"5s\"}");

    tool.limits = json_root(of_tool);
    run_to_end(t, &(struct run_ask){.caller = &caller, .tool = &tool});
    assert_int_equal(t->local.claim.timeout_ms, 20000);
    assert_int_equal(t->local.claim.limits.memory, 64u << 20);
    run_to_end(t, &(struct run_ask){.caller = &caller, .tool = &tool, .limits = json_root(of_call)});
    assert_int_equal(t->local.claim.timeout_ms, 5000);
    assert_int_equal(t->local.claim.limits.memory, 64u << 20);
    run_to_end(t, &(struct run_ask){.caller = &caller, .tool = &tool, .timeout_ms = 1500});
    assert_int_equal(t->local.claim.timeout_ms, 1500);
    t->config.tools_max_timeout = 1000;
    run_to_end(t, &(struct run_ask){.caller = &caller, .tool = &tool, .timeout_ms = 1500});
    assert_int_equal(t->local.claim.timeout_ms, 1000);
    json_doc_free(of_tool);
    json_doc_free(of_call);
}

static void only_block_values_change(void **state)
{
    struct test *t = *state;
    struct tool tool = add_tool();
    struct json_doc *before =
        json_of("{\"memory\":{\"blocks\":[{\"label\":\"human\",\"value\":\"a\",\"limit\":10}]},\"name\":\"x\"}");
    const struct run_ask ask = {.caller = &caller, .tool = &tool, .agent_state = json_root(before)};

    t->local.answer =
        "{\"status\":\"ok\",\"result\":1,\"agent_state\":{\"memory\":{\"blocks\":[{\"label\":\"human\",\"value\":\"b\","
        "\"limit\":10}]},\"name\":\"x\"}}";
    run_to_end(t, &ask);
    assert_true(t->ok);
    assert_non_null(strstr(t->state, "\"value\":\"b\""));
    assert_non_null(strstr(t->receipt, "\"agent_state\":{\"blocks\":{\"human\":"));
    t->local.answer =
        "{\"status\":\"ok\",\"result\":1,\"agent_state\":{\"memory\":{\"blocks\":[{\"label\":\"human\",\"value\":\"a\","
        "\"limit\":10}]},\"name\":\"x\"}}";
    run_to_end(t, &ask);
    assert_true(t->ok);
    assert_string_equal(t->state, "");
    t->local.answer =
        "{\"status\":\"ok\",\"result\":1,\"agent_state\":{\"memory\":{\"blocks\":[{\"label\":\"human\",\"value\":\"a\","
        "\"limit\":99}]},\"name\":\"x\"}}";
    run_to_end(t, &ask);
    assert_false(t->ok);
    assert_string_equal(t->state, "");
    json_doc_free(before);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_run_and_its_receipt),
        CASE(errors_are_friendly),
        CASE(ends_without_an_answer),
        CASE(results_are_cut),
        CASE(secrets_do_not_leave),
        CASE(refused_before_anything_runs),
        CASE(refused_without_memory),
        CASE(arguments_against_the_schema),
        CASE(at_most_so_many),
        CASE(requests_that_are_kept),
        CASE(waits_for_a_yes),
        CASE(falls_back_and_says_why),
        CASE(transient_failures_are_tried_again),
        CASE(never_a_second_time),
        CASE(a_running_one_is_cancelled),
        CASE(providers_say_why_they_are_off),
        CASE(e2b_before_local),
        CASE(whose_time_counts),
        CASE(only_block_values_change),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
