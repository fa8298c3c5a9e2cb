/* SPDX-License-Identifier: Apache-2.0 */
/*
 * logs.c: `brig logs`: prints what the processes of a sandbox wrote, as far as the rings still hold it; with -f as they
 * write it.
 *
 * To follow, there is one child per process of the sandbox, each with a connection of its own, so a stream that stands
 * still delays no other. The parent looks for new processes every second and ends with the sandbox.
 */
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/parse.h"
#include "base/str.h"
#include "cli/escape.h"
#include "cli/service.h"

#define LOOK_MS 1000
#define PIECE_MAX ((size_t)16 << 20)

struct logs_options {
    bool follow;
    const char *service;
};

static const struct flag logs_flags[] = {
    {"follow", NULL, "go on until the sandbox (or the process) ends", flag_set_true,
     offsetof(struct logs_options, follow), 'f'},
    {"service", "NAME", "what this service of the sandbox wrote", flag_set_text, offsetof(struct logs_options, service),
     's'},
};

static const struct flag_table logs_table = {
    .usage = "brig logs [-f] SANDBOX [PROCESS] | brig logs [-f] -s SERVICE SANDBOX",
    .purpose =
        "Prints what the processes of a sandbox wrote, stdout on stdout and stderr on stderr. brig top shows their\n"
        "numbers. What a process wrote past its ring is gone.\n\n"
        "  brig logs build\n"
        "  brig logs -f build 3\n"
        "  brig logs -s db build",
    FLAGS(logs_flags),
};

/* ---- output --------------------------------------------------------------------------------------- */

struct printer {
    struct escape escape[3];
    bool terminal[3];
    struct buf bytes, shown, line;
    uint32_t only; /* this process, or 0 */
    struct sse sse;
};

static void printer_init(struct printer *printer)
{
    *printer =
        (struct printer){.bytes = BUF_INIT(PIECE_MAX), .shown = BUF_INIT(4 * PIECE_MAX), .line = BUF_INIT(PIECE_MAX)};
    for (int fd = 1; fd <= 2; fd++) {
        printer->escape[fd] = ESCAPE_INIT(ESCAPE_TERMINAL);
        printer->terminal[fd] = isatty(fd) == 1;
    }
}

static void printer_done(struct printer *printer)
{
    buf_done(&printer->bytes);
    buf_done(&printer->shown);
    buf_done(&printer->line);
}

static int print_data(struct printer *printer, const char *stream, const struct json_value *object,
                      struct brig_err *err)
{
    int fd = str_eq(stream, "stderr") ? STDERR_FILENO : STDOUT_FILENO;
    const struct buf *out = &printer->bytes;

    printer->bytes.len = printer->shown.len = 0;
    int r = service_get_bytes(object, "data", "encoding", &printer->bytes);
    if (r == 0 && printer->terminal[fd]) {
        r = escape_append(&printer->escape[fd], printer->bytes.data, printer->bytes.len, &printer->shown);
        out = &printer->shown;
    }
    if (r == 0 && out->len > 0)
        r = cli_write(fd, out->data, out->len);
    if (r < 0)
        *err = (struct brig_err){.code = BRIG_E_HOST, .errnum = -r, .message = "the output cannot be printed"};
    return r;
}

/* JSON lines, cut anywhere. */
static int take_lines(void *ctx, const void *data, size_t len, struct brig_err *err)
{
    struct printer *printer = ctx;
    const char *at = data, *end = at + len;

    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t n = newline ? (size_t)(newline - at) : (size_t)(end - at);
        int r = buf_append(&printer->line, at, n);
        at += n + (newline != NULL);
        if (r == 0 && newline) {
            AUTO_JSON struct json_doc *doc = NULL;
            r = json_read(printer->line.data, printer->line.len, 64, &doc, err);
            printer->line.len = 0;
            const struct json_value *root = r == 0 ? json_root(doc) : NULL;
            if (r == 0 && (printer->only == 0 || get_i64(root, "process", 0) == printer->only))
                r = print_data(printer, get_text(root, "stream", "stdout"), root, err);
        }
        if (r < 0)
            return r;
    }
    return 0;
}

static int take_event(void *ctx, const char *event, const char *id UNUSED, const char *data, size_t len,
                      struct brig_err *err)
{
    struct printer *printer = ctx;
    AUTO_JSON struct json_doc *doc = NULL;

    if (!str_eq(event, "stdout") && !str_eq(event, "stderr"))
        return 0;
    int r = json_read(data, len, 64, &doc, err);
    return r < 0 ? r : print_data(printer, event, json_root(doc), err);
}

static int take_stream(void *ctx, const void *data, size_t len, struct brig_err *err)
{
    struct printer *printer = ctx;
    return sse_feed(&printer->sse, data, len, err);
}

/* ---- one question each ---------------------------------------------------------------------------- */

/* A process that is not there has no lines either, which would look like one without output. */
static bool is_there(struct client *client, const char *sandbox, uint32_t number)
{
    AUTO_JSON struct json_doc *process = NULL;

    return service_call(client, "GET", NULL, &process, "/v1/sandboxes/%s/processes/%u", sandbox, (uint64_t)number);
}

static int print_now(struct client *client, const char *sandbox, uint32_t only)
{
    AUTO_BUF struct buf target = BUF_INIT(64 << 10);
    struct brig_err err = {0};
    struct printer printer;

    if (only && !is_there(client, sandbox, only))
        return CLI_FAILED;
    if (!service_target(&target, "/v1/sandboxes/%s/logs", sandbox))
        return CLI_FAILED;
    printer_init(&printer);
    printer.only = only;
    const struct client_request request = {.method = "GET", .target = target.data, .data = take_lines, .ctx = &printer};
    int r = client_call(client, &request, &err);
    printer_done(&printer);
    if (r == -EPIPE)
        return CLI_SIGPIPE;
    return r < 0 ? cli_error("%s", err.message) : 0;
}

static int follow_one(const char *sandbox, uint32_t number)
{
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf target = BUF_INIT(64 << 10);
    struct brig_err err = {0};
    struct printer printer;

    if (!service_open(&client) ||
        !service_target(&target, "/v1/sandboxes/%s/processes/%u/output?follow=1", sandbox, (uint64_t)number))
        return CLI_FAILED;
    printer_init(&printer);
    printer.sse = SSE_INIT(take_event, &printer);
    const struct client_request request = {
        .method = "GET",
        .target = target.data,
        .accept = "text/event-stream",
        .data = take_stream,
        .ctx = &printer,
        .timeout_ms = CLIENT_NO_TIMEOUT,
    };
    int r = client_call(client, &request, &err);
    sse_done(&printer.sse);
    printer_done(&printer);
    if (r == -EPIPE)
        return CLI_SIGPIPE;
    return r < 0 ? cli_error("%s", err.message) : 0;
}

/* ---- all of them ---------------------------------------------------------------------------------- */

static bool fork_follower(const char *sandbox, uint32_t number)
{
    pid_t parent = getpid(), pid = fork();

    if (pid < 0)
        return cli_error("fork: %s", strerror(errno)), false;
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent)
            _exit(CLI_FAILED);
        _exit(follow_one(sandbox, number));
    }
    return true;
}

/* Numbers only grow: all above the last one seen are new. false: the sandbox has gone, or something broke. */
static bool follow_new(struct client *client, const char *sandbox, int64_t *last, struct brig_err *err)
{
    AUTO_JSON struct json_doc *doc = NULL;
    int64_t highest = *last;

    if (service_try(client, "GET", NULL, &doc, err, "/v1/sandboxes/%s/processes", sandbox) < 0)
        return false;
    const struct json_value *list = doc ? json_get(json_root(doc), "processes") : NULL;
    for (const struct json_value *process = list ? list->first : NULL; process; process = process->next) {
        int64_t number = get_i64(process, "number", 0);
        if (number <= *last || number > UINT32_MAX)
            continue;
        if (!fork_follower(sandbox, (uint32_t)number))
            return false;
        highest = number > highest ? number : highest;
    }
    *last = highest;
    return true;
}

static int follow_all(struct client *client, const char *sandbox)
{
    const struct timespec pause = {.tv_sec = LOOK_MS / 1000, .tv_nsec = LOOK_MS % 1000 * 1000000L};
    struct brig_err err = {0};
    int64_t last = 0;
    bool seen = false;
    int status = 0, child;

    while (follow_new(client, sandbox, &last, &err)) {
        seen = true;
        nanosleep(&pause, NULL);
        while (waitpid(-1, &child, WNOHANG) > 0)
            if (WIFEXITED(child) && WEXITSTATUS(child) == CLI_SIGPIPE)
                return CLI_SIGPIPE;
    }
    if (!seen || client_status(client) != 404) /* its end is no error */
        status = cli_error("%s", err.message);
    while (waitpid(-1, &child, 0) > 0 || errno == EINTR)
        ;
    return status;
}

/* ---- a service ------------------------------------------------------------------------------------ */

/* Both of its outputs are one stream, as they are in the sandbox. */
static int take_bytes(void *ctx, const void *data, size_t len, struct brig_err *err)
{
    struct printer *printer = ctx;
    int r = 0;

    printer->shown.len = 0;
    if (!printer->terminal[STDOUT_FILENO])
        r = cli_write(STDOUT_FILENO, data, len);
    else if ((r = escape_append(&printer->escape[STDOUT_FILENO], data, len, &printer->shown)) == 0)
        r = cli_write(STDOUT_FILENO, printer->shown.data, printer->shown.len);
    if (r < 0)
        *err = (struct brig_err){.code = BRIG_E_HOST, .errnum = -r, .message = "the output cannot be printed"};
    return r;
}

static int print_service(const char *sandbox, const char *service, bool follow)
{
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf target = BUF_INIT(64 << 10);
    struct brig_err err = {0};
    struct printer printer;

    if (!service_open(&client) ||
        !service_target(&target, "/v1/sandboxes/%s/services/%s/log?follow=%s", sandbox, service, follow ? "1" : "0"))
        return CLI_FAILED;
    printer_init(&printer);
    const struct client_request request = {.method = "GET",
                                           .target = target.data,
                                           .data = take_bytes,
                                           .ctx = &printer,
                                           .timeout_ms = follow ? CLIENT_NO_TIMEOUT : 0};
    int r = client_call(client, &request, &err);
    printer_done(&printer);
    if (r == -EPIPE)
        return CLI_SIGPIPE;
    return r < 0 ? cli_error("%s", err.message) : 0;
}

static int logs_main(int argc, char **argv)
{
    struct logs_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    uint32_t only = 0;
    int rest, status;

    if (!service_parse(&logs_table, argc, argv, &options, 1, 2, "sandbox", &rest, &status))
        return status;
    if (rest + 1 < argc && (parse_u32(argv[rest + 1], &only) < 0 || only == 0))
        return cli_error("%s: a process is a number; brig top shows them", argv[rest + 1]);
    signal(SIGPIPE, SIG_IGN);
    if (options.service && rest + 1 < argc)
        return cli_error("--service %s: not with a process", options.service);
    if (options.service)
        return print_service(argv[rest], options.service, options.follow);
    if (options.follow && only != 0)
        return follow_one(argv[rest], only);
    if (!service_open(&client))
        return CLI_FAILED;
    return options.follow ? follow_all(client, argv[rest]) : print_now(client, argv[rest], only);
}

const struct cli_verb cli_verb_logs = {"logs", "output of a sandbox's processes", .main = logs_main};
