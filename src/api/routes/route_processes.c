/* SPDX-License-Identifier: Apache-2.0 */
/* route_processes.c: programs in a sandbox: run and wait, start, list, signal, resize, wait, feed. Output:
 * route_output.c. */
#include <signal.h>

#include "api/api.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

/* ---- run and wait ---------------------------------------------------------------------------------------- */

/* Nobody waits for it any more: what it runs is ended, and the receipt says `cancelled`. */
static void run_left(struct request *rq)
{
    process_run_cancel(rq->state);
    request_free(rq);
}

void route_run(struct request *rq)
{
    struct process_spec_parsed parsed;
    struct process_run *run = NULL;
    struct brig_err err;

    if (process_spec_parse(rq->json, rq->sbox, &parsed, &err) < 0)
        return request_fail(rq, &err);
    if (parsed.spec.tty || parsed.spec.stdin_open) {
        process_spec_done(&parsed);
        request_refuse(rq, BRIG_E_USAGE,
                       "tty and stdin_open need a process that can be attached to: POST .../processes");
        return;
    }
    rq->left = run_left;
    int r = process_run(rq->sbox, &rq->caller, &parsed.spec, request_result, rq, &run, &err);
    process_spec_done(&parsed);
    if (r < 0)
        request_fail(rq, &err);
    else
        rq->state = run;
}

/* ---- start, list, inspect -------------------------------------------------------------------------------- */

static void answer_process(struct request *rq, unsigned status, const struct process *process)
{
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    process_json(process, &json);
    request_json(rq, status, &json);
}

static void on_started(void *ctx, struct process *process, const struct brig_err *err)
{
    struct request *rq = ctx;

    if (err)
        request_fail(rq, err);
    else
        answer_process(rq, 201, process);
}

void route_process_start(struct request *rq)
{
    struct process_spec_parsed parsed;
    struct brig_err err;

    if (process_spec_parse(rq->json, rq->sbox, &parsed, &err) < 0)
        return request_fail(rq, &err);
    int r = process_start(rq->sbox, &rq->caller, &parsed.spec, on_started, rq, &err);
    process_spec_done(&parsed);
    if (r < 0)
        request_fail(rq, &err);
}

void route_process_list(struct request *rq)
{
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    request_list_begin(&json, "processes");
    for (struct process *p = process_each(rq->sbox, NULL); p; p = process_each(rq->sbox, p))
        process_json(p, &json);
    request_list_end(rq, &json);
}

void route_process_get(struct request *rq)
{
    answer_process(rq, 200, rq->process);
}

/* ---- signal, kill, resize -------------------------------------------------------------------------------- */

void route_process_kill(struct request *rq)
{
    struct brig_err err;

    if (!process_running(rq->process))
        return request_status(rq, 204);
    if (process_signal(rq->process, &rq->caller, SIGKILL, SVC_SIGNAL_ALL, request_done, rq, &err) < 0)
        request_fail(rq, &err);
}

int api_signal(const struct json_value *value)
{
    static const struct {
        const char *name;
        int number;
    } names[] = {{"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT},   {"ABRT", SIGABRT}, {"KILL", SIGKILL},
                 {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"PIPE", SIGPIPE},   {"ALRM", SIGALRM}, {"TERM", SIGTERM},
                 {"CHLD", SIGCHLD}, {"CONT", SIGCONT}, {"STOP", SIGSTOP},   {"TSTP", SIGTSTP}, {"TTIN", SIGTTIN},
                 {"TTOU", SIGTTOU}, {"URG", SIGURG},   {"WINCH", SIGWINCH}, {"SEGV", SIGSEGV}, {"BUS", SIGBUS},
                 {"FPE", SIGFPE},   {"ILL", SIGILL},   {"TRAP", SIGTRAP},   {"IO", SIGIO}};

    if (value && value->type == JSON_NUMBER && value->integer && value->i64 >= 1 && value->i64 <= 64)
        return (int)value->i64;
    if (!value || value->type != JSON_STRING)
        return -EINVAL;
    const char *name = str_starts(value->string, "SIG") ? value->string + 3 : value->string;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (str_eq(name, names[i].name))
            return names[i].number;
    return -EINVAL;
}

void route_process_signal(struct request *rq)
{
    bool group = false;
    int signum = api_signal(json_get(rq->json, "signal"));
    struct brig_err err;

    if (!api_only_members(rq, "signal group"))
        return;
    if (signum < 0)
        return request_refuse(rq, BRIG_E_USAGE, "signal: must be a name such as \"TERM\", or a number from 1 to 64");
    if (!api_bool(rq, "group", &group))
        return;
    if (!process_running(rq->process))
        return request_refuse(rq, BRIG_E_CONFLICT, "process %u has ended", process_number(rq->process));
    if (process_signal(rq->process, &rq->caller, signum, group ? SVC_SIGNAL_GROUP : 0, request_done, rq, &err) < 0)
        request_fail(rq, &err);
}

bool api_size(const struct json_value *object, const char *name, uint16_t *ret)
{
    const struct json_value *value = json_get(object, name);

    if (!value || value->type != JSON_NUMBER || !value->integer || value->i64 < 1 || value->i64 > UINT16_MAX)
        return false;
    *ret = (uint16_t)value->i64;
    return true;
}

void route_process_resize(struct request *rq)
{
    uint16_t rows = 0, cols = 0;
    struct brig_err err;

    if (!api_only_members(rq, "rows cols"))
        return;
    if (!api_size(rq->json, "rows", &rows) || !api_size(rq->json, "cols", &cols))
        return request_refuse(rq, BRIG_E_USAGE, "rows and cols: must be numbers from 1 to 65535");
    if (!process_has_tty(rq->process))
        return request_refuse(rq, BRIG_E_CONFLICT, "process %u has no terminal", process_number(rq->process));
    if (process_resize(rq->process, rows, cols, &err) < 0)
        request_fail(rq, &err);
    else
        request_status(rq, 204);
}

/* ---- wait ------------------------------------------------------------------------------------------------ */

static void wait_left(struct request *rq)
{
    process_wait_cancel(rq->state);
    request_free(rq);
}

void route_process_wait(struct request *rq)
{
    const char *timeout = request_query(rq, "timeout");
    struct process_wait *wait = NULL;
    uint64_t ms = 0;
    struct brig_err err;

    if (timeout && brig_parse_duration(timeout, &ms) < 0)
        return request_refuse(rq, BRIG_E_USAGE, "timeout=%.32s: must be a duration, such as 30 or 1.5s", timeout);
    rq->left = wait_left;
    if (process_wait(rq->process, ms, request_result, rq, &wait, &err) < 0)
        request_fail(rq, &err);
    else
        rq->state = wait;
}

/* ---- stdin ----------------------------------------------------------------------------------------------- */

/* The body goes into the program as fast as that reads; what it has not taken waits here, and the body with it. */
struct feeding {
    struct request *rq;
    struct input *input;
    struct buf waiting; /* at most one piece of body */
    bool eof, ended;
};

#define PIECE_MAX (1u << 20)

static void feed_free(struct feeding *feeding)
{
    buf_done(&feeding->waiting);
    mem_free(feeding);
}

static void feed_left(struct request *rq)
{
    struct feeding *feeding = rq->state;

    if (feeding->input)
        input_close(feeding->input, false);
    feed_free(feeding);
    request_free(rq);
}

static void feed_finish(struct feeding *feeding, const struct brig_err *err)
{
    struct request *rq = feeding->rq;

    if (feeding->input)
        input_close(feeding->input, feeding->eof && !err);
    rq->left = NULL;
    feed_free(feeding);
    request_done(rq, err);
}

/* Returns false when the request is over. */
static bool feed_more(struct feeding *feeding)
{
    ssize_t n = feeding->waiting.len > 0 ? input_write(feeding->input, feeding->waiting.data, feeding->waiting.len) : 0;
    struct brig_err err;

    if (n < 0) {
        (void)err_set(&err, BRIG_E_CONFLICT, (int)-n, "the program does not read its stdin any more");
        feed_finish(feeding, &err);
        return false;
    }
    buf_consume(&feeding->waiting, (size_t)n);
    if (feeding->waiting.len > 0)
        return true; /* on_writable() */
    if (feeding->ended)
        return feed_finish(feeding, NULL), false;
    exchange_body_proceed(feeding->rq->x);
    return true;
}

static void on_piece(void *ctx, struct exchange *x UNUSED, const char *data, size_t len)
{
    struct feeding *feeding = ctx;
    struct brig_err err;

    if (buf_append(&feeding->waiting, data, len) < 0) {
        (void)err_nomem(&err);
        feed_finish(feeding, &err);
        return;
    }
    (void)feed_more(feeding);
}

static void on_body_end(void *ctx, struct exchange *x UNUSED)
{
    struct feeding *feeding = ctx;

    feeding->ended = true;
    if (feeding->waiting.len == 0)
        feed_finish(feeding, NULL);
}

static void on_writable(void *ctx)
{
    (void)feed_more(ctx);
}

static void on_input_ended(void *ctx, int errnum)
{
    struct feeding *feeding = ctx;
    struct brig_err err;

    feeding->input = NULL;
    (void)err_set(&err, BRIG_E_CONFLICT, errnum, "the program does not read its stdin any more");
    feed_finish(feeding, &err);
}

void route_process_stdin(struct request *rq)
{
    struct brig_err err;
    bool eof = false;
    char process[32];

    if (!request_query_bool(rq, "eof", &eof) ||
        str_format(process, sizeof process, "process %u", process_number(rq->process)) < 0)
        return;
    struct feeding *feeding = request_alloc(rq, sizeof *feeding);
    if (!feeding)
        return;
    *feeding = (struct feeding){.rq = rq, .eof = eof, .waiting = BUF_INIT(PIECE_MAX)};
    const struct input_events events = {on_writable, on_input_ended, feeding};
    const struct body_events body = {on_piece, on_body_end, feeding};
    if (input_open(rq->process, &events, &feeding->input, &err) < 0) {
        feed_free(feeding);
        request_fail(rq, &err);
        return;
    }
    rq->state = feeding;
    rq->left = feed_left;
    request_audit(rq, "process.stdin", sbox_id(rq->sbox), "ok", process);
    if (exchange_read(rq->x, &body, &err) < 0)
        feed_finish(feeding, &err);
}
