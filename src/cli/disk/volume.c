/* SPDX-License-Identifier: Apache-2.0 */
/*
 * volume.c: `brig volume`: disks with a name that outlive sandboxes. `cp` makes a sandbox that has the volume, copies
 * through it as `brig cp` does, and ends it; should this program die in between, the sandbox's own clock ends it.
 */
#include <stdio.h>
#include <string.h>

#include "cli/listing.h"
#include "cli/verbs/cp.h"

#define PLACE "/volume"

struct volume_options {
    const char *size;
    uint64_t inodes;
    bool quiet, json;
};

#define AT(field) offsetof(struct volume_options, field)
/* clang-format off */
static const struct flag create_flags[] = {
    {"size", "SIZE", "what can be written to it, such as 10g", flag_set_text, AT(size), 's'},
    {"inodes", "N", "files and directories (default: as the size has room for)", flag_set_count, AT(inodes), 0},
    FLAG_QUIET("say nothing", AT(quiet)),
    FLAG_TABLE(AT(json)),
};
/* clang-format on */
static const struct flag_table create_table = {
    .usage = "brig volume create --size SIZE NAME",
    .purpose = "Makes an empty volume. Its size is a limit: a program that writes more gets \"no space left\".\n\n"
               "  brig volume create --size 10g data\n"
               "  brig create --name box -v data:/data",
    FLAGS(create_flags),
};
static const struct flag_table inspect_table = {
    .usage = "brig volume inspect NAME",
    .purpose = "Prints everything about a volume: size, what it has, and which sandboxes have it.",
};

/* ---- lists ---------------------------------------------------------------------------------------------- */

static int put_attached(struct buf *out, const struct json_value *row)
{
    const struct json_value *attached = json_get(row, "attached");
    const struct json_value *first = attached && attached->type == JSON_ARRAY ? attached->first : NULL;

    if (!first)
        return buf_append_str(out, "-");
    if (!json_get_bool(first, "read_only"))
        return buf_printf(out, "%s", get_text(first, "sandbox_id", ""));
    return buf_printf(out, "%zu reading", attached->count);
}

static const struct listing volumes = {
    .words = {"brig volume ls [-q] [-o FORMAT]", "Lists the volumes.", listing_names, ARRAY_SIZE(listing_names), 0},
    .path = "/v1/volumes",
    .member = "volumes",
    .columns = {COLUMN("NAME", "name"), COLUMN(">SIZE", "size", .kind = COLUMN_BYTES),
                COLUMN(">USED", "used_bytes", .kind = COLUMN_BYTES),
                COLUMN("*ATTACHED", "attached", .put = put_attached), COLUMN(">AGE", "created_at", .kind = COLUMN_AGE),
                COLUMN("STATE", "state", .differs = true)},
};
static const struct removal removal = {
    .words = {"brig volume rm [-q] NAME...",
              "Removes volumes with all that is in them. One that a sandbox has stays, with a line that says so.",
              FLAGS(listing_rm)},
    .word = "volume",
    .path = "/v1/volumes/%s",
};

/* ---- create, inspect ------------------------------------------------------------------------------------ */

static int create(int argc, char **argv)
{
    struct volume_options options = {0};
    AUTO_BUF struct buf body = BUF_INIT(4096);
    AUTO_JSON struct json_doc *doc = NULL;
    struct json json = JSON_INIT(&body);
    int rest, status;

    if (!service_parse(&create_table, argc, argv, &options, 1, 1, "volume", &rest, &status))
        return status;
    if (!options.size)
        return cli_error("volume create %s: --size is needed", argv[rest]);
    json_object(&json);
    json_key_string(&json, "name", argv[rest]);
    json_key_string(&json, "size", options.size);
    if (options.inodes)
        json_key_u64(&json, "inodes", options.inodes);
    json_end(&json);
    if (json_finish(&json) < 0)
        return cli_error("%s: too long", argv[rest]);
    if (!service_call(NULL, "POST", &body, &doc, "/v1/volumes"))
        return CLI_FAILED;
    if (options.json)
        return service_print_json(doc);
    return options.quiet ? 0 : service_say("%s", argv[rest]);
}

static int inspect(int argc, char **argv)
{
    struct volume_options options = {0};
    AUTO_JSON struct json_doc *doc = NULL;
    int rest, status;

    if (!service_parse(&inspect_table, argc, argv, &options, 1, 1, "volume", &rest, &status))
        return status;
    if (!service_call(NULL, "GET", NULL, &doc, "/v1/volumes/%s", argv[rest]))
        return CLI_FAILED;
    return service_print_json(doc);
}

/* ---- cp ------------------------------------------------------------------------------------------------- */

static bool make_box(struct client *client, const char *volume, bool read_only, struct json_doc **ret)
{
    AUTO_BUF struct buf body = BUF_INIT(4096);
    struct json json = JSON_INIT(&body);

    json_object(&json);
    json_key_array(&json, "volumes");
    json_object(&json);
    json_key_string(&json, "name", volume);
    json_key_string(&json, "target", PLACE);
    json_key_bool(&json, "read_only", read_only);
    json_end(&json);
    json_end(&json);
    json_key_string(&json, "network", "none");
    json_key_string(&json, "idle_timeout", "60s");
    json_end(&json);
    if (json_finish(&json) < 0)
        return cli_error("%s: too long", volume), false;
    return service_call(client, "POST", &body, ret, "/v1/sandboxes");
}

/* The path begins at the root of the volume, with or without a slash. */
static int copy(struct cp *cp, bool out)
{
    AUTO_JSON struct json_doc *box = NULL;
    char path[4096];
    int len = snprintf(path, sizeof path, PLACE "/%s", cp->path + strspn(cp->path, "/"));

    if (len < 0 || (size_t)len >= sizeof path)
        return cli_error("%.64s...: too long", cp->path);
    if (!make_box(cp->client, cp->sandbox, out, &box))
        return CLI_FAILED;
    cp->sandbox = get_text(json_root(box), "id", "");
    cp->path = path;
    int status = out ? cp_down(cp) : cp_up(cp);
    client_set_cancel(cp->client, -1);
    if (!service_call(NULL, "DELETE", NULL, NULL, "/v1/sandboxes/%s", cp->sandbox) && status == 0)
        status = CLI_FAILED;
    return status;
}

static const struct flag_table cp_table = {
    .usage = "brig volume cp [flags] SRC DST   (one of them VOLUME:PATH; - is stdin or stdout)",
    .purpose = "Copies files and trees into a volume or out of it, as brig cp does with a sandbox.\n\n"
               "  brig volume cp ./dataset data:/\n"
               "  brig volume cp data:/result.json -",
    FLAGS(cp_flags),
};
static const struct cp_verb cp_words = {
    .words = &cp_table,
    .usage = "brig volume cp SRC DST",
    .thing = "volume",
    .place = "VOLUME:PATH",
    .copy = copy,
};

static int cp(int argc, char **argv)
{
    return cp_verb_main(&cp_words, argc, argv);
}

static const struct cli_verb subs[] = {
    {"create", "make an empty volume", .main = create},       {"ls", "list volumes", .list = &volumes},
    {"inspect", "print a volume", .main = inspect},           {"rm", "remove volumes", .remove = &removal},
    {"cp", "copy files into or out of a volume", .main = cp},
};

const struct cli_verb cli_verb_volume = {"volume", "disks that outlive sandboxes: create, ls, inspect, rm, cp",
                                         CLI_SUBS(subs)};
