/* SPDX-License-Identifier: Apache-2.0 */
/*
 * template_pull.c: `brig template pull|rebuild|login`: images of registries. The daemon asks the registry; the
 * login that it uses is stored there, sealed.
 */
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "cli/secret_value.h"
#include "cli/template/template.h"

struct login_options {
    const char *user, *file, *variable, *docker;
    bool quiet;
};

#define AT(field) offsetof(struct login_options, field)

static const struct flag pull_flags[] = {TEMPLATE_IMAGE_FLAGS("the last part of the reference", "an image")};
static const struct flag rebuild_flags[] = {TEMPLATE_JOB_FLAGS};
static const struct flag login_flags[] = {
    {"user", "USER", "the name at the registry", flag_set_text, AT(user), 'u'},
    {"from-file", "FILE", "the password is in this file (default: stdin or the terminal)", flag_set_text, AT(file), 0},
    {"from-env", "NAME", "the password is in this variable", flag_set_text, AT(variable), 0},
    {"docker-config", "FILE", "the logins of Docker's config.json, or the one of HOST", flag_set_text, AT(docker), 0},
    FLAG_QUIET("say nothing", AT(quiet)),
};
static const struct flag_table pull_table = {
    .usage = "brig template pull [-n NAME] [flags] REFERENCE",
    .purpose = "Makes a template from an image of a registry. Pulling the same image again moves the name to what the "
               "registry has by now.\n\n"
               "  brig template pull debian:12",
    FLAGS(pull_flags),
};
static const struct flag_table rebuild_table = {
    .usage = "brig template rebuild [-q] [-o FORMAT] NAME",
    .purpose =
        "Repeats the pull that made a template, and moves the name to what it gives. Sandboxes keep what they have.",
    FLAGS(rebuild_flags),
};
static const struct flag_table login_table = {
    .usage =
        "brig template login -u USER [--from-file FILE] HOST\n       brig template login --docker-config FILE [HOST]",
    .purpose = "Stores a login at a registry for the organisation, sealed. No command shows the password again.\n\n"
               "  brig template login -u me registry.example < token\n"
               "  brig template login --docker-config ~/.docker/config.json",
    FLAGS(login_flags),
};
static int ask_stream(const struct buf *target, const struct buf *body, const struct template_options *options)
{
    struct template_stream stream = TEMPLATE_STREAM_INIT(options->quiet);
    AUTO_CLIENT struct client *client = NULL;
    struct brig_err err = {0};

    if (!service_open(&client))
        return CLI_FAILED;
    AUTO_FD int signals UNUSED = service_transfers(client);
    const struct client_request request = {
        .method = "POST",
        .target = target->data,
        .body = body->data,
        .body_len = body->len,
        .data = template_stream_data,
        .ctx = &stream,
        .timeout_ms = CLIENT_NO_TIMEOUT,
    };
    int r = client_call(client, &request, &err);
    return template_stream_end(&stream, r, &err, options->json);
}

int template_pull_main(int argc, char **argv)
{
    struct template_options options = {0};
    AUTO_BUF struct buf target = BUF_INIT(4096), body = BUF_INIT(16384);
    struct json json = JSON_INIT(&body);
    int rest, status;

    if (!service_parse(&pull_table, argc, argv, &options, 1, 1, "reference", &rest, &status))
        return status;
    json_object(&json);
    json_key_string(&json, "reference", argv[rest]);
    service_put_text(&json, "name", options.name);
    service_put_text(&json, "platform", options.platform);
    json_key_bool(&json, "replace", options.replace);
    json_key_bool(&json, "shared", options.shared);
    json_end(&json);
    if (json_finish(&json) < 0)
        return cli_error("%s: too long", argv[rest]);
    return service_target(&target, "/v1/templates/pull") ? ask_stream(&target, &body, &options) : CLI_FAILED;
}

int template_rebuild_main(int argc, char **argv)
{
    struct template_options options = {0};
    AUTO_BUF struct buf target = BUF_INIT(4096), body = BUF_INIT(1);
    int rest, status;

    if (!service_parse(&rebuild_table, argc, argv, &options, 1, 1, "template", &rest, &status))
        return status;
    return service_target(&target, "/v1/templates/%s/rebuild", argv[rest]) ? ask_stream(&target, &body, &options)
                                                                           : CLI_FAILED;
}

/* ---- logins -------------------------------------------------------------------------------------------- */

int template_send_login(const char *host, const char *user, const char *password, size_t len, bool quiet)
{
    AUTO_BUF struct buf body = BUF_INIT(8 * SECRET_VALUE_BYTES);
    AUTO_JSON struct json_doc *doc = NULL;
    struct json json = JSON_INIT(&body);

    json_object(&json);
    json_key_string(&json, "user", user);
    json_key(&json, "password"), json_string_n(&json, password, len);
    json_end(&json);
    int status = CLI_FAILED;
    if (json_finish(&json) < 0)
        cli_error("out of memory");
    else if (service_call(NULL, "PUT", &body, &doc, "/v1/registries/%s", host))
        status = quiet ? 0 : service_say("%s", host);
    if (body.data)
        explicit_bzero(body.data, body.len);
    return status;
}

int template_login_main(int argc, char **argv)
{
    static struct secret_value value;
    struct login_options options = {0};
    int rest, status;

    if (!service_parse(&login_table, argc, argv, &options, 0, 1, "registry", &rest, &status))
        return status;
    if (options.docker)
        return template_login_docker(options.docker, rest < argc ? argv[rest] : NULL, options.quiet);
    if (rest >= argc)
        return cli_error("no registry given: %s", login_table.usage);
    if (!options.user)
        return cli_error("template login: --user USER is needed");
    const struct value_source from = {options.file, options.variable};
    status = secret_value_read(&from, argv[rest], &value)
                 ? template_send_login(argv[rest], options.user, value.data, value.len, options.quiet)
                 : CLI_FAILED;
    explicit_bzero(&value, sizeof value);
    return status;
}
