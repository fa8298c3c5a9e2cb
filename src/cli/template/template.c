/* SPDX-License-Identifier: Apache-2.0 */
/*
 * template.c: `brig template`: templates that sandboxes are made from
 * (docs/TEMPLATES.md). The daemon does the work; this file asks and shows.
 */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "cli/listing.h"
#include "cli/template/template.h"

static const struct flag tag_flags[] = {
    TEMPLATE_REPLACE(TEMPLATE_AT(replace)),
    TEMPLATE_SHARED(TEMPLATE_AT(shared)),
    FLAG_QUIET("say nothing", TEMPLATE_AT(quiet)),
    FLAG_TABLE(TEMPLATE_AT(json)),
};
static const struct flag plain_flags[] = {
    FLAG_QUIET("say nothing", TEMPLATE_AT(quiet)),
    FLAG_TABLE(TEMPLATE_AT(json)),
};
static const struct flag_table inspect_table = {
    .usage = "brig template inspect NAME",
    .purpose = "Prints everything about a template: source, digest, layers, and what its image says.",
};
static const struct removal removal = {
    .words = {"brig template rm [-q] NAME...",
              "Removes templates. One that a sandbox uses stays, with a line that says so.", FLAGS(listing_rm)},
    .word = "template",
    .path = "/v1/templates/%s",
};
static const struct removal logout = {
    .words = {"brig template logout [-q] HOST...", "Removes logins at registries.", FLAGS(listing_rm)},
    .word = "registry",
    .path = "/v1/registries/%s",
};
static const struct flag_table tag_table = {
    .usage = "brig template tag [--replace] [--shared] NAME NEW",
    .purpose = "Gives a template a second name. The layers are shared.",
    FLAGS(tag_flags),
};
static const struct flag_table prune_table = {
    .usage = "brig template prune [-q] [-o FORMAT]",
    .purpose = "Removes layers that no template and no sandbox needs, and what was downloaded and not used.",
    FLAGS(plain_flags),
};
static const struct flag_table du_table = {
    .usage = "brig template du [-o FORMAT]",
    .purpose = "Says how much disk the templates need; layers that several have are counted once.",
    FLAGS(plain_flags),
};

/* ---- ls ------------------------------------------------------------------------------------------------ */

/* The reference of a pull, else how it was made. */
static int put_source(struct buf *out, const struct json_value *row)
{
    const char *reference = get_text(row, "reference", "");

    return buf_append_str(out, reference[0] ? reference : get_text(row, "source", "-"));
}

static int put_digest(struct buf *out, const struct json_value *row)
{
    const char *digest = get_text(row, "digest", "");
    const char *hex = strchr(digest, ':');

    return hex ? buf_printf(out, "%.12s", hex + 1) : buf_append_str(out, "-");
}

static int put_old(struct buf *out, const struct json_value *row)
{
    return buf_append_str(out, get_text(row, "warning", "")[0] ? "old" : "-");
}

static const struct listing templates = {
    .words = {"brig template ls [-q] [-o FORMAT]",
              "Lists the templates that sandboxes can be made from, beside `host`. OWN is what no other one shares.",
              listing_names, ARRAY_SIZE(listing_names), 0},
    .path = "/v1/templates",
    .member = "templates",
    .columns = {COLUMN("NAME", "name"), COLUMN("*SOURCE", "source", .put = put_source),
                COLUMN("DIGEST", "digest", .put = put_digest), COLUMN(">LAYERS", "layers", .kind = COLUMN_COUNT),
                COLUMN(">SIZE", "bytes", .kind = COLUMN_BYTES), COLUMN(">OWN", "own_bytes", .kind = COLUMN_BYTES),
                COLUMN(">AGE", "created_at", .kind = COLUMN_AGE), COLUMN(">USED", "used_at", .kind = COLUMN_AGE),
                COLUMN("SHARED", "shared", .kind = COLUMN_YES, .yes = "yes", .differs = true),
                COLUMN("NOTE", "warning", .put = put_old, .differs = true)},
};

/* ---- the others ---------------------------------------------------------------------------------------- */

static int inspect(int argc, char **argv)
{
    struct template_options options = {0};
    AUTO_JSON struct json_doc *doc = NULL;
    int rest, status;

    if (!service_parse(&inspect_table, argc, argv, &options, 1, 1, "template", &rest, &status))
        return status;
    if (!service_call(NULL, "GET", NULL, &doc, "/v1/templates/%s", argv[rest]))
        return CLI_FAILED;
    return service_print_json(doc);
}

static int tag(int argc, char **argv)
{
    struct template_options options = {0};
    AUTO_BUF struct buf body = BUF_INIT(4096);
    AUTO_JSON struct json_doc *doc = NULL;
    struct json json = JSON_INIT(&body);
    int rest, status;

    if (!service_parse(&tag_table, argc, argv, &options, 2, 2, "NAME NEW", &rest, &status))
        return status;
    json_object(&json);
    json_key_string(&json, "name", argv[rest + 1]);
    if (options.replace)
        json_key_bool(&json, "replace", true);
    if (options.shared)
        json_key_bool(&json, "shared", true);
    json_end(&json);
    if (json_finish(&json) < 0)
        return cli_error("%s: too long", argv[rest + 1]);
    if (!service_call(NULL, "POST", &body, &doc, "/v1/templates/%s/tag", argv[rest]))
        return CLI_FAILED;
    if (options.json)
        return service_print_json(doc);
    return options.quiet ? 0 : service_say("%s", get_text(json_root(doc), "name", argv[rest + 1]));
}

/* Asks for one object. *ret_status is the exit status if it is over. */
static struct json_doc *ask_one(const struct flag_table *table, const char *method, const char *path, int argc,
                                char **argv, struct template_options *options, int *ret_status)
{
    struct json_doc *doc = NULL;
    int rest;

    if (!service_parse(table, argc, argv, options, 0, 0, "words", &rest, ret_status))
        return NULL;
    *ret_status = CLI_FAILED;
    return service_call(NULL, method, NULL, &doc, path) ? doc : NULL;
}

static int prune(int argc, char **argv)
{
    struct template_options options = {0};
    int status;
    AUTO_JSON struct json_doc *doc =
        ask_one(&prune_table, "POST", "/v1/templates/prune", argc, argv, &options, &status);

    if (!doc)
        return status;
    if (options.json)
        return service_print_json(doc);
    long long layers = (long long)get_i64(json_root(doc), "layers", 0);
    return options.quiet ? 0 : service_say("%lld layer%s removed", layers, layers == 1 ? "" : "s");
}

static int du(int argc, char **argv)
{
    struct template_options options = {0};
    char bytes[SHOW_SIZE], saved[SHOW_SIZE];
    int status;
    AUTO_JSON struct json_doc *doc = ask_one(&du_table, "GET", "/v1/templates/du", argc, argv, &options, &status);

    if (!doc)
        return status;
    if (options.json)
        return service_print_json(doc);
    const struct json_value *root = json_root(doc);
    return service_say("%lld templates, %lld layers, %s (%s saved by sharing)",
                       (long long)get_i64(root, "templates", 0), (long long)get_i64(root, "layers", 0),
                       show_bytes(bytes, get_i64(root, "bytes", 0)),
                       show_bytes(saved, get_i64(root, "saved_bytes", 0)));
}

static const struct cli_verb subs[] = {
    {"pull", "make a template from an image of a registry", .main = template_pull_main},
    {"load", "make a template from an archive or a directory", .main = template_load_main},
    {"build", "build a template from a Dockerfile", .main = template_build_main},
    {"recipes", "list the recipes that came with brig", .main = template_recipes_main},
    {"export", "write a template as the archive of an image", .main = template_export_main},
    {"ls", "list templates", .list = &templates},
    {"inspect", "print a template", .main = inspect},
    {"rm", "remove templates", .remove = &removal},
    {"tag", "give a template a second name", .main = tag},
    {"prune", "remove layers that nothing needs", .main = prune},
    {"du", "say how much disk templates need", .main = du},
    {"rebuild", "repeat a pull, and move the name to what it gives", .main = template_rebuild_main},
    {"login", "store a login at a registry", .main = template_login_main},
    {"logout", "remove logins at registries", .remove = &logout},
};

const struct cli_verb cli_verb_template = {
    "template",
    "templates of sandboxes: pull, load, build, export, ls, inspect, rm, tag, prune, du, rebuild, login, logout",
    CLI_SUBS(subs)};
