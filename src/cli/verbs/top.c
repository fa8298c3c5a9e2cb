/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top.c: `brig top`: lists the processes that were started in a sandbox, with the numbers by which other verbs know
 * them.
 */
#include "cli/listing.h"

static const struct flag top_flags[] = {
    {"all", NULL, "those that have ended, too", flag_set_true, offsetof(struct listing_options, all), 'a'},
    FLAG_QUIET("print only their numbers", offsetof(struct listing_options, quiet)),
    FLAG_TABLE(offsetof(struct listing_options, json)),
};

static int put_command(struct buf *out, const struct json_value *process)
{
    const struct json_value *argv = json_get(process, "argv");
    int r = 0;

    for (const struct json_value *word = argv ? argv->first : NULL; r == 0 && word; word = word->next) {
        if (word->type != JSON_STRING)
            continue;
        r = out->len > 0 ? buf_append(out, " ", 1) : 0;
        if (r == 0)
            r = buf_append(out, word->string, word->len);
    }
    return r;
}

static int put_state(struct buf *out, const struct json_value *process)
{
    const struct json_value *outcome = json_get(process, "outcome");
    const char *cause = get_text(outcome, "cause", "ended");
    int64_t code = get_i64(outcome, "exit_code", -1), signum = get_i64(outcome, "signal", -1);

    if (json_get_bool(process, "running"))
        return buf_append_str(out, "running");
    if (signum <= 0 && code < 0)
        return buf_append_str(out, cause);
    return buf_printf(out, "%s %lld", cause, (long long)(signum > 0 ? signum : code));
}

static bool has_ended(const struct json_value *process)
{
    return !json_get_bool(process, "running");
}

static const struct listing processes = {
    .words = {"brig top [-a] [-q] [-o FORMAT] SANDBOX",
              "Lists what was started in the sandbox by exec, shell or the API, each with its number.\n"
              "What those started in turn is seen from inside: brig exec SANDBOX ps.",
              top_flags, ARRAY_SIZE(top_flags), 0},
    .path = "/v1/sandboxes/%s/processes",
    .word = "sandbox",
    .member = "processes",
    .hidden = has_ended,
    .columns = {COLUMN(">NUMBER", "number", .kind = COLUMN_NUMBER), COLUMN(">PID", "pid", .kind = COLUMN_NUMBER),
                COLUMN("STATE", "outcome", .put = put_state), COLUMN("TTY", "tty", .kind = COLUMN_YES, .yes = "yes"),
                COLUMN(">AGE", "started_at", .kind = COLUMN_AGE), COLUMN("*COMMAND", "argv", .put = put_command)},
};

const struct cli_verb cli_verb_top = {"top", "processes of a sandbox", .list = &processes};
