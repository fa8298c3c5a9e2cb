/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events.c: `brig events`: prints what happens to sandboxes, as it happens. After a restart of the daemon it goes on
 * where it was.
 */
#include <signal.h>
#include <string.h>

#include "base/err.h"
#include "base/parse.h"
#include "base/str.h"
#include "cli/service.h"

#define AGAIN_MS 500
#define TRIES 60

struct events_options {
    const char *since;
    bool json;
};

static const struct flag events_flags[] = {
    {"since", "N", "begin after event number N; 0 is all that is still known", flag_set_text,
     offsetof(struct events_options, since), 0},
    {NULL, "FORMAT", "table (default): one line each; json: one object per line", flag_set_table,
     offsetof(struct events_options, json), 'o'},
};

static const struct flag_table events_table = {
    .usage = "brig events [--since N] [-o FORMAT]",
    .purpose = "Prints the lifecycle of sandboxes until interrupted: created, running, paused, ended and why.",
    FLAGS(events_flags),
};

struct watch {
    struct sse sse;
    bool json;
    char last[64]; /* id of the last event */
    bool got;      /* something since the last connection */
};

/* "2026-01-31 12:00:00  ID  sandbox.create  NAME  DETAIL", in UTC. */
static int say(const struct json_value *event)
{
    AUTO_BUF struct buf line = BUF_INIT(64 << 10);
    const char *time = get_text(event, "time", "-"), *name = get_text(event, "name", ""),
               *detail = get_text(event, "detail", "");
    int r = buf_printf(&line, "%-10.10s %-8.8s  %-26s  %s", time, strlen(time) > 11 ? time + 11 : "",
                       get_text(event, "sandbox_id", "-"), get_text(event, "type", "-"));

    if (r == 0 && *name != '\0')
        r = buf_printf(&line, "  %s", name);
    if (r == 0 && *detail != '\0')
        r = buf_printf(&line, "  %s", detail);
    return r < 0 ? cli_error("out of memory") : service_say("%s", line.data);
}

static int print_event(void *ctx, const char *event, const char *id, const char *data, size_t len, struct brig_err *err)
{
    struct watch *watch = ctx;
    AUTO_JSON struct json_doc *doc = NULL;
    int status;

    (void)event;
    int r = json_read(data, len, 4096, &doc, err);
    if (r < 0)
        return r;
    watch->got = true;
    if (str_copy(watch->last, sizeof(watch->last), id) < 0)
        return err_set(err, BRIG_E_HOST, EPROTO, "the id %.64s of an event", id);
    const struct json_value *root = json_root(doc);
    if (watch->json)
        status = service_say("%s", data); /* our writer leaves no newline in a JSON text */
    else
        status = say(root);
    if (status != 0) {
        *err = (struct brig_err){.code = BRIG_E_HOST, .message = "standard output"};
        return -EPIPE;
    }
    return 0;
}

static int feed(void *ctx, const void *data, size_t len, struct brig_err *err)
{
    struct watch *watch = ctx;
    return sse_feed(&watch->sse, data, len, err);
}

static int listen_once(struct client *client, struct watch *watch, const char *since, struct brig_err *err)
{
    AUTO_BUF struct buf target = BUF_INIT(4096);
    int r = client_target(&target, since && *watch->last == '\0' ? "/v1/events?since=%s" : "/v1/events", since);

    if (r < 0)
        return r;
    watch->sse = SSE_INIT(print_event, watch);
    const struct client_request request = {
        .method = "GET",
        .target = target.data,
        .accept = "text/event-stream",
        .last_event = watch->last,
        .data = feed,
        .ctx = watch,
        .timeout_ms = CLIENT_NO_TIMEOUT,
    };
    r = client_call(client, &request, err);
    sse_done(&watch->sse);
    return r;
}

static int events_main(int argc, char **argv)
{
    const struct timespec pause = {.tv_nsec = AGAIN_MS * 1000000L};
    struct events_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    struct brig_err err = {0};
    uint64_t number;
    int rest, status, tries = 0;

    if (!service_parse(&events_table, argc, argv, &options, 0, 0, "", &rest, &status))
        return status;
    if (options.since && parse_u64(options.since, &number) < 0)
        return cli_error("--since %s: must be the number of an event", options.since);
    signal(SIGPIPE, SIG_IGN);
    if (!service_open(&client))
        return CLI_FAILED;
    struct watch watch = {.json = options.json};
    for (;;) {
        watch.got = false;
        int r = listen_once(client, &watch, options.since, &err);
        if (r == -EPIPE)
            return CLI_SIGPIPE;
        if (r < 0 && client_status(client) >= 400 && client_status(client) < 500)
            return cli_error("%s", err.message);
        tries = watch.got ? 0 : tries + 1; /* a daemon that is being replaced comes back soon */
        if (tries > TRIES)
            return r < 0 ? cli_error("%s", err.message) : 0;
        nanosleep(&pause, NULL);
    }
}

const struct cli_verb cli_verb_events = {"events", "what happens to sandboxes, as it happens", .main = events_main};
