/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_answer.c: shows one run of a service: first what the program prints as it comes, then its result or its end. For
 * a tool, stdout has the result and nothing else; for a snippet, stdout and stderr are the program's own. On a
 * terminal, everything that strangers could have chosen is escaped.
 *
 * A run is asked for as a stream of events if the route has one. What came as events is not printed again with the
 * answer; what is only in the answer (the last output of a run that was ended) is.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "cli/attach.h"
#include "cli/run/run.h"
#include "cli/verbs/tool.h"

#define EXIT_TOOL_FAILED 1
#define ANSWER_MAX ((size_t)256 << 20)

struct shown { /* one stream of the program */
    int fd;
    bool terminal;
    struct escape escape;
    size_t n; /* bytes so far */
};

struct asking {
    const struct tool_show *how;
    struct sse sse;
    struct shown out[3]; /* [1], [2] */
    struct json_doc *answer;
    char error[512];
    int failed; /* of our own stdout or stderr */
};

static void show(struct asking *asking, unsigned stream, const char *data, size_t len)
{
    struct shown *out = &asking->out[stream];
    AUTO_BUF struct buf text = BUF_INIT(ANSWER_MAX);
    int r = 0;

    out->n += len;
    if (len == 0 || asking->how->json || (asking->how->quiet && !asking->how->program) || asking->failed)
        return;
    if (!out->terminal)
        r = cli_write(out->fd, data, len);
    else if ((r = escape_append(&out->escape, data, len, &text)) == 0)
        r = cli_write(out->fd, text.data, text.len);
    if (r < 0)
        asking->failed = r;
}

/* ---- events ---------------------------------------------------------------------------------------------- */

static int on_event(void *ctx, const char *event, const char *id UNUSED, const char *data, size_t len,
                    struct brig_err *err)
{
    struct asking *asking = ctx;
    AUTO_JSON struct json_doc *doc = NULL;
    AUTO_BUF struct buf bytes = BUF_INIT(ANSWER_MAX);
    int r = json_read(data, len, (size_t)1 << 22, &doc, err);

    if (r < 0)
        return r;
    if (str_eq(event, "stdout") || str_eq(event, "stderr")) {
        if (service_get_bytes(json_root(doc), "data", "encoding", &bytes) == 0)
            show(asking, str_eq(event, "stderr") ? 2 : 1, bytes.data, bytes.len);
        return asking->failed;
    }
    if (str_eq(event, "waiting")) {
        const char *run = get_text(json_root(doc), "id", "");
        if (!asking->how->quiet)
            cli_error("waiting for approval: brig approve %s, or brig deny %s", run, run);
    } else if (str_eq(event, "error")) {
        str_cut(asking->error, sizeof asking->error, get_text(json_root(doc), "error", "the run was refused"));
    } else if (str_eq(event, "result")) {
        json_doc_free(asking->answer);
        asking->answer = take_ptr(&doc);
    }
    return 0;
}

static int feed(void *ctx, const void *data, size_t len, struct brig_err *err)
{
    struct asking *asking = ctx;

    return sse_feed(&asking->sse, data, len, err);
}

/* ---- the answer ------------------------------------------------------------------------------------------ */

/* What events have not brought. Returns whether the error's message is in it, or was. */
static bool show_rest(struct asking *asking, const struct json_value *receipt, const char *message)
{
    static const char *const names[] = {NULL, "stdout", "stderr"}, *const encodings[] = {NULL, "stdout_encoding",
                                                                                         "stderr_encoding"};
    bool said = false;

    for (unsigned i = 1; i <= 2; i++) {
        AUTO_BUF struct buf bytes = BUF_INIT(ANSWER_MAX);
        if (service_get_bytes(receipt, names[i], encodings[i], &bytes) < 0 || bytes.len == 0)
            continue;
        said = said || memmem(bytes.data, bytes.len, message, strcspn(message, "\n"));
        if (bytes.len > asking->out[i].n)
            show(asking, i, bytes.data + asking->out[i].n, bytes.len - asking->out[i].n);
    }
    return said && !asking->how->quiet;
}

/* Whose fault it was: a tool that failed is 1, however it did that. */
static int exit_status(const struct brig_receipt *receipt, bool failed, bool program)
{
    if (!program && receipt->cause == BRIG_CAUSE_EXITED)
        return failed || receipt->exit_code != 0 ? EXIT_TOOL_FAILED : 0;
    return brig_exit_status(receipt);
}

static int deliver(const struct tool_show *how, const struct json_value *receipt)
{
    AUTO_BUF struct buf text = BUF_INIT(ANSWER_MAX);
    struct brig_err err = {0};

    if (!how->receipt)
        return 0;
    if (json_print_line(receipt, &text) < 0 || buf_append(&text, "\n", 1) < 0)
        return cli_error("out of memory");
    return run_receipt_write(how->receipt, text.data, text.len, &err) < 0 ? cli_error("%s", err.message) : 0;
}

/* As every receipt of `brig run`. */
static int print_line(const struct json_value *receipt)
{
    AUTO_BUF struct buf text = BUF_INIT(ANSWER_MAX);
    struct brig_err err = {0};

    if (json_print_line(receipt, &text) < 0 || buf_append(&text, "\n", 1) < 0)
        return cli_error("out of memory");
    int r = run_receipt_print(text.data, text.len, &err);
    return r == -EPIPE ? CLI_SIGPIPE : r < 0 ? cli_error("%s", err.message) : 0;
}

static int print_answer(struct asking *asking)
{
    const struct tool_show *how = asking->how;
    const struct json_value *receipt = json_get(json_root(asking->answer), "receipt"),
                            *error = json_get(receipt, "error"), *result = json_get(receipt, "result");
    const bool failed = error && error->type == JSON_OBJECT;
    struct brig_receipt read;

    if (!receipt || receipt->type != JSON_OBJECT)
        return cli_error("the service's answer has no receipt");
    receipt_read(receipt, &read);
    int status = exit_status(&read, failed, how->program);
    if (deliver(how, receipt) != 0)
        return CLI_FAILED;
    if (how->json) {
        int r = how->program ? print_line(receipt) : service_print_value(receipt);
        return r != 0 ? r : status;
    }
    /* All that a snippet printed has come; what the answer adds to it are words for those who see no exit status. */
    bool said = how->program || show_rest(asking, receipt, failed ? get_text(error, "message", "") : "");
    if (asking->failed)
        return asking->failed == -EPIPE ? CLI_SIGPIPE : cli_error("standard output: %s", strerror(-asking->failed));
    if (status != 0 && read.cause != BRIG_CAUSE_EXITED)
        run_end_say(&read, how->quiet);
    else if (failed && !said && !how->program)
        cli_error("%s: %.*s", get_text(error, "type", "error"), (int)strcspn(get_text(error, "message", ""), "\n"),
                  get_text(error, "message", ""));
    if (status != 0 || how->program)
        return status;
    return result ? service_print_value(result) : service_say("null");
}

static struct shown shown_on(int fd)
{
    return (struct shown){.fd = fd, .terminal = isatty(fd), .escape = ESCAPE_INIT(ESCAPE_TERMINAL)};
}

int tool_ask(struct tool_service *service, const char *target, const struct buf *body, const struct tool_show *how)
{
    struct asking asking = {
        .how = how, .out = {{0}, shown_on(how->program ? STDOUT_FILENO : STDERR_FILENO), shown_on(STDERR_FILENO)}};
    struct client_request request = {.method = "POST",
                                     .target = target,
                                     .body = body->data,
                                     .body_len = body->len,
                                     .timeout_ms = CLIENT_NO_TIMEOUT,
                                     .max_reply = ANSWER_MAX,
                                     .ctx = &asking};
    struct brig_err err = {0};
    int status = CLI_FAILED, r;

    signal(SIGPIPE, SIG_IGN);
    asking.sse = SSE_INIT(on_event, &asking);
    asking.sse.line.max = asking.sse.data.max = ANSWER_MAX; /* the last event has all of the output once more */
    if (how->stream) {
        request.accept = "text/event-stream";
        request.data = feed;
        r = client_call(service->client, &request, &err);
    } else {
        r = client_json(service->client, &request, &asking.answer, &err);
    }
    if (asking.failed == -EPIPE)
        status = CLI_SIGPIPE;
    else if (r == -ECANCELED)
        status = tool_service_signal(service);
    else if (asking.error[0] || r < 0)
        status = cli_error("%s", asking.error[0] ? asking.error : err.message);
    else if (!asking.answer)
        status = cli_error("%s: it ended before the run did", client_where(service->client));
    else
        status = print_answer(&asking);
    sse_done(&asking.sse);
    json_doc_free(asking.answer);
    return status;
}
