/* SPDX-License-Identifier: Apache-2.0 */
/*
 * port.c: `brig port`: shows where programs in a sandbox listen, and an address with a token that lets a browser in for
 * a while.
 */

#include "base/parse.h"
#include "cli/listing.h"

struct port_options {
    const char *expires;
    struct listing_options list;
};

static const struct flag port_flags[] = {
    {"expires", "TIME", "how long the preview's token is good for (default 1h)", flag_set_text,
     offsetof(struct port_options, expires), 0},
    FLAG_QUIET("print only the ports", offsetof(struct port_options, list.quiet)),
    FLAG_TABLE(offsetof(struct port_options, list.json)),
};

static const struct flag_table port_table = {
    .usage = "brig port [flags] SANDBOX [PORT]",
    .purpose =
        "Lists the ports that programs in the sandbox listen on, and those that its image exposes. With PORT: prints\n"
        "an address at which a browser sees it, on a host name of its own; whoever has the address has the port,\n"
        "until it expires.\n\n"
        "  brig port build\n"
        "  xdg-open \"$(brig port build 8000)\"",
    FLAGS(port_flags),
};

static const struct listing ports = {
    .member = "ports",
    .columns = {COLUMN(">PORT", "port", .kind = COLUMN_NUMBER), COLUMN("FAMILY", "family"),
                COLUMN("LISTENS ON", "loopback", .kind = COLUMN_YES, .yes = "loopback", .otherwise = "all addresses")},
};

static int preview(const struct port_options *options, const char *sandbox, uint64_t port)
{
    AUTO_BUF struct buf body = BUF_INIT(4096);
    AUTO_JSON struct json_doc *doc = NULL;
    struct json json = JSON_INIT(&body);

    json_object(&json);
    service_put_text(&json, "expires", options->expires);
    json_end(&json);
    if (json_finish(&json) < 0)
        return cli_error("out of memory");
    if (!service_call(NULL, "POST", &body, &doc, "/v1/sandboxes/%s/ports/%u/token", sandbox, port))
        return CLI_FAILED;
    if (options->list.json)
        return service_print_json(doc);
    const char *url = get_text(json_root(doc), "url", "");
    if (*url == '\0')
        cli_error("the daemon listens on its socket only (server.listen): this is the path");
    return service_say("%s", *url ? url : get_text(json_root(doc), "path", ""));
}

/* What the image says that its programs listen on, whether they do or not. */
static int say_exposed(const char *sandbox)
{
    AUTO_JSON struct json_doc *doc = NULL;
    AUTO_BUF struct buf line = BUF_INIT(65536);

    if (!service_call(NULL, "GET", NULL, &doc, "/v1/sandboxes/%s/ports", sandbox))
        return CLI_FAILED;
    const struct json_value *list = doc ? json_get(json_root(doc), "exposed") : NULL;
    for (const struct json_value *port = list ? list->first : NULL; port; port = port->next)
        if (port->type != JSON_STRING || buf_append(&line, " ", 1) < 0 ||
            buf_append(&line, port->string, port->len) < 0)
            return cli_error("%s: not an answer of brig", "ports");
    if (line.len == 0)
        return 0;
    return buf_append(&line, "", 1) < 0 ? cli_error("out of memory") : service_say("the image exposes:%s", line.data);
}

static int port_main(int argc, char **argv)
{
    struct port_options options = {0};
    AUTO_BUF struct buf target = BUF_INIT(4096);
    uint32_t port = 0;
    int rest, status;

    if (!service_parse(&port_table, argc, argv, &options, 1, 2, "sandbox", &rest, &status))
        return status;
    if (rest + 1 < argc && (parse_u32(argv[rest + 1], &port) < 0 || port == 0 || port > UINT16_MAX))
        return cli_error("%s: a port is a number from 1 to 65535", argv[rest + 1]);
    if (port != 0)
        return preview(&options, argv[rest], port);
    if (!service_target(&target, "/v1/sandboxes/%s/ports", argv[rest]))
        return CLI_FAILED;
    status = listing_show(&ports, &target, &options.list);
    return status != 0 || options.list.json || options.list.quiet ? status : say_exposed(argv[rest]);
}

const struct cli_verb cli_verb_port = {"port", "listening ports of a sandbox, and previews of them", .main = port_main};
