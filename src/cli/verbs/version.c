/* SPDX-License-Identifier: Apache-2.0 */
/*
 * version.c: `brig version`: which build this is, for people and for programs that have to agree with it; and which one
 * the daemon is, if one answers. None is no error, and no word is lost about it.
 */
#include <string.h>

#include "cli/service.h"

static int version_main(int argc, char **argv);

const struct cli_verb cli_verb_version = {
    .name = "version",
    .summary = "version, commit, features and protocol of this build, and of the daemon",
    .main = version_main,
};

struct version_options {
    bool json;
};

static const struct flag version_flags[] = {
    {.letter = 'o',
     .value = "FORMAT",
     .help = "text (default) or json",
     .apply = flag_set_format,
     .field = offsetof(struct version_options, json)},
};

static const struct flag_table version_table = {
    .usage = "brig version [-o FORMAT]",
    .purpose = "Says which build this is, and which one the daemon is, if one answers.",
    .flags = version_flags,
    .n_flags = ARRAY_SIZE(version_flags),
};

static int put_text(struct buf *out)
{
    return buf_printf(out, "brig %s (commit %s, protocol %u)\nfeatures: %s\n", brig_version(), brig_commit(),
                      brig_protocol(), brig_features());
}

static int say_daemon(const struct client *client, const struct json_value *daemon)
{
    return service_say("daemon %.40s (commit %.40s, protocol %lld) on %s", get_text(daemon, "version", "unknown"),
                       get_text(daemon, "commit", "unknown"), (long long)get_i64(daemon, "protocol", 0),
                       client_where(client));
}

static int put_features(struct buf *out)
{
    const char *at = brig_features();
    bool first = true;
    while (*at != '\0') {
        char name[64];
        size_t len = strcspn(at, " ");
        if (len > 0 && len < sizeof(name)) {
            memcpy(name, at, len);
            name[len] = '\0';
            int r = first ? 0 : buf_append(out, ",", 1);
            if (r == 0)
                r = cli_json_string(out, name);
            if (r < 0)
                return r;
            first = false;
        }
        at += len + (at[len] == ' ');
    }
    return 0;
}

static int put_json(struct buf *out, const struct json_value *daemon)
{
    int r = buf_append_str(out, "{\"version\":");
    if (r == 0)
        r = cli_json_string(out, brig_version());
    if (r == 0)
        r = buf_append_str(out, ",\"commit\":");
    if (r == 0)
        r = cli_json_string(out, brig_commit());
    if (r == 0)
        r = buf_append_str(out, ",\"features\":[");
    if (r == 0)
        r = put_features(out);
    if (r == 0)
        r = buf_printf(out, "],\"protocol\":%u", brig_protocol());
    if (r == 0 && daemon) {
        r = buf_append_str(out, ",\"daemon\":");
        if (r == 0)
            r = json_print_line(daemon, out);
    }
    return r < 0 ? r : buf_append_str(out, "}\n");
}

/* NULL when none answers soon. */
static struct json_doc *ask_daemon(struct client **ret)
{
    const struct client_request request = {.method = "GET", .target = "/v1/version", .timeout_ms = 2000};
    struct json_doc *doc = NULL;
    struct brig_err ignored;

    return client_open(ret, &ignored) == 0 && client_json(*ret, &request, &doc, &ignored) == 0 ? doc : NULL;
}

static int version_main(int argc, char **argv)
{
    struct version_options options = {0};
    struct brig_err err;
    int rest = 1;
    int r = flags_parse(&version_table, argc, argv, &options, &rest, &err);
    if (r < 0)
        return cli_error("%s", err.message);
    if (r == FLAGS_HELP)
        return flags_help(&version_table);
    if (rest < argc)
        return cli_error("%s: version takes no arguments", argv[rest]);

    AUTO_CLIENT struct client *client = NULL;
    AUTO_DOC struct json_doc *doc = ask_daemon(&client);
    const struct json_value *daemon = doc ? json_root(doc) : NULL;
    struct buf out = BUF_INIT(64 << 10);
    r = options.json ? put_json(&out, daemon) : put_text(&out);
    int status = r < 0 ? cli_error("version: %s", strerror(-r)) : cli_print(&out, 0);
    if (status == 0 && daemon && !options.json)
        status = say_daemon(client, daemon);
    buf_done(&out);
    return status;
}
