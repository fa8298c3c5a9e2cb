/* SPDX-License-Identifier: Apache-2.0 */
/*
 * version.c: `brig version`: prints which build this is, for people and for programs that must agree with it, and which
 * build the daemon is, if one answers. A missing daemon is no error and is not mentioned.
 */
#include <string.h>

#include "cli/service.h"

struct version_options {
    bool json;
};

static const struct flag version_flags[] = {
    {NULL, "FORMAT", "text (default) or json", flag_set_format, offsetof(struct version_options, json), 'o'},
};

static const struct flag_table version_table = {
    .usage = "brig version [-o FORMAT]",
    .purpose = "Says which build this is, and which one the daemon is, if one answers.",
    FLAGS(version_flags),
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

static int put_json(struct buf *out, const struct json_value *daemon)
{
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_string(&json, "version", brig_version());
    json_key_string(&json, "commit", brig_commit());
    json_key_array(&json, "features");
    for (const char *at = brig_features(); *at != '\0';) {
        size_t len = strcspn(at, " ");
        if (len > 0)
            json_string_n(&json, at, len);
        at += len + (at[len] == ' ');
    }
    json_end(&json);
    json_key_u64(&json, "protocol", brig_protocol());
    if (daemon)
        json_key(&json, "daemon"), json_value_put(&json, daemon);
    json_end(&json);
    int r = json_finish(&json);
    return r < 0 ? r : buf_append(out, "\n", 1);
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
    int status;
    if (!flags_only(&version_table, argc, argv, &options, "version", &status))
        return status;

    AUTO_CLIENT struct client *client = NULL;
    AUTO_JSON struct json_doc *doc = ask_daemon(&client);
    const struct json_value *daemon = doc ? json_root(doc) : NULL;
    struct buf out = BUF_INIT(64 << 10);
    int r = options.json ? put_json(&out, daemon) : put_text(&out);
    status = r < 0 ? cli_error("version: %s", strerror(-r)) : cli_print(&out, 0);
    if (status == 0 && daemon && !options.json)
        status = say_daemon(client, daemon);
    buf_done(&out);
    return status;
}

const struct cli_verb cli_verb_version = {
    "version", "version, commit, features and protocol of this build, and of the daemon", .main = version_main};
