/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli_policy.c: `brig policy set|ls|show|rm|check`: named network policies (docs/NETWORK.md). This code knows nothing
 * about policies: files go to the daemon as they are, and it says what is wrong with them; check asks the code that
 * enforces them.
 */
#include <string.h>

#include "base/parse.h"
#include "base/str.h"
#include "cli/listing.h"

#define FILE_LIMIT ((size_t)256 << 10) /* as the daemon takes it */
#define EXIT_DENIED 1

struct policy_options {
    const char *method, *path, *protocol, *address;
    bool json, quiet;
};

#define AT(field) offsetof(struct policy_options, field)

static const struct flag set_flags[] = {
    FLAG_QUIET("say nothing", AT(quiet)),
    FLAG_TABLE(AT(json)),
};
static const struct flag show_flags[] = {
    {NULL, "FORMAT", "json: with version and times", flag_set_table, AT(json), 'o'},
};
static const struct flag check_flags[] = {
    {"method", "METHOD", "of an HTTP request, such as GET", flag_set_text, AT(method), 0},
    {"path", "PATH", "of an HTTP request, such as /v1/models", flag_set_text, AT(path), 0},
    {"protocol", "WHAT", "tls, http or tcp (default: whether any would do)", flag_set_text, AT(protocol), 0},
    {"address", "IP", "what the name resolves to", flag_set_text, AT(address), 0},
    FLAG_QUIET("only the exit status", AT(quiet)),
    FLAG_TABLE(AT(json)),
};

static const struct flag_table set_table = {
    .usage = "brig policy set [-q] [-o FORMAT] NAME FILE|-",
    .purpose =
        "Makes a policy, or replaces it: sandboxes that use it by name follow at once, and connections it forbids are "
        "cut.\n\n"
        "  echo '{\"rules\": [{\"action\": \"allow\", \"domain\": \"api.example.com\"}]}' | brig policy set web -",
    FLAGS(set_flags),
};
static const struct flag_table show_table = {
    .usage = "brig policy show [-o json] NAME",
    .purpose = "Prints a policy, or a preset, with everything written out: what `brig policy set` takes.",
    FLAGS(show_flags),
};
static const struct removal removal = {
    .words = {"brig policy rm [-q] NAME...", "Removes policies. Sandboxes that run with one keep what it said last.",
              FLAGS(listing_rm)},
    .word = "policy",
    .path = "/v1/policies/%s",
};
static const struct flag_table check_table = {
    .usage = "brig policy check NAME|FILE|- HOST[:PORT] [flags]",
    .purpose =
        "Says what a policy would say, and which rule decides. A word with a slash or ending in .json is a file, - is "
        "stdin;\n"
        "others are names of policies and presets. The port is 443 when none is given. Exit status: 0 allowed, 1 "
        "denied.\n\n"
        "  brig policy check packages pypi.org:443\n"
        "  brig policy check ./web.json api.example.com --method GET --path /v1/models",
    FLAGS(check_flags),
};

/* ---- files -------------------------------------------------------------------------------------------- */

/* JSON text that another will be built around: it must be one value. */
static bool is_json(const char *path, const struct buf *text)
{
    AUTO_JSON struct json_doc *doc = NULL;
    struct brig_err err;

    if (json_read(text->data ? text->data : "", text->len, JSON_READ_VALUES, &doc, &err) == 0)
        return true;
    return cli_error("%s: %s", path, err.message), false;
}

/* ---- set, ls, show, rm -------------------------------------------------------------------------------- */

static int set(int argc, char **argv)
{
    struct policy_options options = {0};
    AUTO_BUF struct buf body = BUF_INIT(FILE_LIMIT + 65536);
    AUTO_JSON struct json_doc *doc = NULL;
    int rest, status;

    if (!service_parse(&set_table, argc, argv, &options, 2, 2, "NAME FILE", &rest, &status))
        return status;
    if (!service_read_file(argv[rest + 1], &body) || !is_json(argv[rest + 1], &body) ||
        !service_call(NULL, "PUT", &body, &doc, "/v1/policies/%s", argv[rest]))
        return CLI_FAILED;
    if (options.json)
        return service_print_json(doc);
    return options.quiet ? 0 : service_say("%s", get_text(json_root(doc), "name", argv[rest]));
}

static const struct listing policies = {
    .words = {"brig policy ls [-q] [-o FORMAT]",
              "Lists policies. The presets none, packages and open are always there and not listed.", listing_names,
              ARRAY_SIZE(listing_names), 0},
    .path = "/v1/policies",
    .member = "policies",
    .columns = {COLUMN("NAME", "name"), COLUMN(">VERSION", "version", .kind = COLUMN_NUMBER),
                COLUMN(">AGE", "created_at", .kind = COLUMN_AGE), COLUMN(">CHANGED", "updated_at", .kind = COLUMN_AGE)},
};

static int show(int argc, char **argv)
{
    struct policy_options options = {0};
    AUTO_BUF struct buf out = BUF_INIT(64u << 20);
    AUTO_JSON struct json_doc *doc = NULL;
    int rest, status;

    if (!service_parse(&show_table, argc, argv, &options, 1, 1, "policy", &rest, &status))
        return status;
    if (!service_call(NULL, "GET", NULL, &doc, "/v1/policies/%s", argv[rest]))
        return CLI_FAILED;
    if (options.json)
        return service_print_json(doc);
    const struct json_value *policy = json_get(json_root(doc), "policy");
    if (!policy || json_print(policy, &out) < 0 || buf_append_str(&out, "\n") < 0)
        return cli_error("out of memory");
    return cli_print(&out, 0);
}

/* ---- check -------------------------------------------------------------------------------------------- */

static bool is_file(const char *word)
{
    size_t len = strlen(word);

    return str_eq(word, "-") || strchr(word, '/') || (len > 5 && str_eq(word + len - 5, ".json"));
}

/* "host", "host:443", "1.2.3.4:443", "[::1]:443", "::1" */
static bool split_host(const char *text, char *host, size_t size, uint32_t *ret_port)
{
    const char *colon = strrchr(text, ':');
    size_t len = strlen(text);

    *ret_port = 443;
    if (colon && text[0] != '[' && strchr(text, ':') != colon)
        colon = NULL; /* an IPv6 address without brackets has no port */
    if (colon && text[0] == '[' && colon[-1] != ']')
        colon = NULL;
    if (colon) {
        len = (size_t)(colon - text);
        if (parse_u32(colon + 1, ret_port) < 0 || *ret_port == 0 || *ret_port > UINT16_MAX)
            return false;
    }
    if (len == 0 || len >= size)
        return false;
    memcpy(host, text, len);
    host[len] = '\0';
    return true;
}

/* {"network": NAME or the file, "host": .., ...}: the file's text is JSON by itself. */
static bool put_question(struct buf *body, const char *what, const char *host, uint32_t port,
                         const struct policy_options *options)
{
    AUTO_BUF struct buf rest = BUF_INIT(64 << 10), file = BUF_INIT(FILE_LIMIT + 65536);
    struct json json = JSON_INIT(&rest);
    bool is_name = !is_file(what);

    if (!is_name && (!service_read_file(what, &file) || !is_json(what, &file)))
        return false;
    json_object(&json);
    service_put_text(&json, "network", is_name ? what : NULL);
    service_put_text(&json, "host", host);
    json_key_u64(&json, "port", port);
    service_put_text(&json, "method", options->method);
    service_put_text(&json, "path", options->path);
    service_put_text(&json, "protocol", options->protocol);
    service_put_text(&json, "address", options->address);
    json_end(&json);
    int r = json_finish(&json);
    if (r == 0)
        r = buf_append(body, rest.data, rest.len - 1);
    if (r == 0 && !is_name)
        r = buf_printf(body, ",\"network\":%s", file.data);
    if (r == 0)
        r = buf_append_str(body, "}");
    if (r < 0)
        cli_error("out of memory");
    return r == 0;
}

static int check(int argc, char **argv)
{
    struct policy_options options = {0};
    AUTO_BUF struct buf body = BUF_INIT(1u << 20);
    AUTO_JSON struct json_doc *doc = NULL;
    char host[512];
    uint32_t port;
    int rest, status;

    if (!service_parse(&check_table, argc, argv, &options, 2, 2, "NAME HOST:PORT", &rest, &status))
        return status;
    if (!split_host(argv[rest + 1], host, sizeof host, &port))
        return cli_error("%s: must be HOST or HOST:PORT", argv[rest + 1]);
    if (!put_question(&body, argv[rest], host, port, &options) ||
        !service_call(NULL, "POST", &body, &doc, "/v1/policies/check"))
        return CLI_FAILED;
    bool allow = json_get_bool(json_root(doc), "allow");
    const char *note = get_text(json_root(doc), "note", "");
    status = 0;
    if (options.json) {
        status = service_print_json(doc);
    } else if (!options.quiet) {
        status = service_say("%s: %s", allow ? "allowed" : "denied", get_text(json_root(doc), "why", "-"));
        if (status == 0 && note[0])
            status = service_say("%s", note);
    }
    return status == 0 && !allow ? EXIT_DENIED : status;
}

static const struct cli_verb subs[] = {
    {"set", "make or replace a policy", .main = set},
    {"ls", "list policies", .list = &policies},
    {"show", "print a policy", .main = show},
    {"rm", "remove policies", .remove = &removal},
    {"check", "say what a policy would say, and which rule decides", .main = check},
};

const struct cli_verb cli_verb_policy = {"policy", "network policies: set, ls, show, rm, check", CLI_SUBS(subs)};
