/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot.c: `brig snapshot`, `brig restore`, `brig fork` and `brig commit`: the files of a sandbox kept, gone back
 * to, copied, and made a template (docs/TEMPLATES.md).
 */
#include <string.h>

#include "cli/listing.h"

struct disk_options {
    const char *name;
    uint64_t count;
    bool replace, no_volumes, quiet, json;
};

#define AT(field) offsetof(struct disk_options, field)
/* clang-format off */
#define NO_VOLUMES {"no-volumes", NULL, "without the volumes of the sandbox", flag_set_true, AT(no_volumes), 0}

static const struct flag snapshot_flags[] = {
    {"name", "NAME", "a name for it, usable instead of its id", flag_set_text, AT(name), 0},
    FLAG_QUIET("print only its id", AT(quiet)),
    FLAG_TABLE(AT(json)),
};
static const struct flag restore_flags[] = {
    {"name", "NAME", "the name of the new sandbox (default: that of the old one)", flag_set_text, AT(name), 0},
    {"replace", NULL, "end the sandbox that has the name", flag_set_true, AT(replace), 0},
    NO_VOLUMES,
    FLAG_QUIET("print only its id", AT(quiet)),
    FLAG_TABLE(AT(json)),
};
static const struct flag fork_flags[] = {
    {"count", "N", "so many (default 1)", flag_set_count, AT(count), 'n'},
    {"name", "NAME", "the name of the fork; of several, NAME-1, NAME-2, ...", flag_set_text, AT(name), 0},
    NO_VOLUMES,
    FLAG_QUIET("print only the ids", AT(quiet)),
    FLAG_TABLE(AT(json)),
};
static const struct flag commit_flags[] = {
    {"replace", NULL, "a template that has the name gives it up", flag_set_true, AT(replace), 0},
    FLAG_QUIET("say nothing", AT(quiet)),
    FLAG_TABLE(AT(json)),
};
/* clang-format on */

static const struct flag_table snapshot_table = {
    .usage = "brig snapshot [--name NAME] SANDBOX\n       brig snapshot ls [-q] [-o FORMAT]\n"
             "       brig snapshot rm [-q] SNAPSHOT...",
    .purpose = "Keeps the files of a sandbox as they are at one moment; the sandbox goes on. brig restore makes a\n"
               "sandbox of them, also when this one is gone. Processes and memory are not kept.\n\n"
               "  brig snapshot --name before-upgrade build\n"
               "  brig restore --replace before-upgrade",
    FLAGS(snapshot_flags),
};
static const struct flag_table restore_table = {
    .usage = "brig restore [flags] SNAPSHOT",
    .purpose = "Makes a new sandbox with the files of a snapshot, and with the limits, network, secrets and other\n"
               "settings that its sandbox had.\n\n"
               "  brig restore before-upgrade --name again\n"
               "  brig restore --replace before-upgrade",
    FLAGS(restore_flags),
};
static const struct flag_table fork_table = {
    .usage = "brig fork [-n N] [flags] SANDBOX",
    .purpose = "Makes sandboxes with the files of a sandbox, each on its own from then on. They have its limits,\n"
               "network and secrets, and no name unless one is given. Processes are not copied.\n\n"
               "  brig fork -n 3 build",
    FLAGS(fork_flags),
};
static const struct flag_table commit_table = {
    .usage = "brig commit [--replace] SANDBOX NAME",
    .purpose = "Makes a template of the files of a sandbox, which goes on. Variables, network, secrets and volumes\n"
               "of the sandbox are not part of it.\n\n"
               "  brig commit build build-ready:1\n"
               "  brig create --template build-ready:1",
    FLAGS(commit_flags),
};

/* ---- lists ---------------------------------------------------------------------------------------------- */

static int put_name(struct buf *out, const struct json_value *row)
{
    return buf_append_str(out, get_text(row, "name", "-"));
}

static int put_sandbox(struct buf *out, const struct json_value *row)
{
    return buf_append_str(out, get_text(row, "sandbox_name", get_text(row, "sandbox_id", "-")));
}

static const struct listing snapshots = {
    .words = {"brig snapshot ls [-q] [-o FORMAT]", "Lists the snapshots. OWN is what no other disk shares with it.",
              listing_ids, ARRAY_SIZE(listing_ids), 0},
    .path = "/v1/snapshots",
    .member = "snapshots",
    .columns = {COLUMN("ID", "id"), COLUMN("*NAME", "name", .put = put_name),
                COLUMN("*SANDBOX", "sandbox_id", .put = put_sandbox), COLUMN("*TEMPLATE", "template"),
                COLUMN(">SIZE", "size", .kind = COLUMN_BYTES), COLUMN(">USED", "used_bytes", .kind = COLUMN_BYTES),
                COLUMN(">OWN", "own_bytes", .kind = COLUMN_BYTES), COLUMN(">AGE", "created_at", .kind = COLUMN_AGE),
                COLUMN("STATE", "state", .differs = true)},
};
static const struct removal removal = {
    .words = {"brig snapshot rm [-q] SNAPSHOT...", "Removes snapshots.", FLAGS(listing_rm)},
    .word = "snapshot",
    .path = "/v1/snapshots/%s",
};

/* ---- verbs ---------------------------------------------------------------------------------------------- */

static bool put_body(const struct disk_options *o, const char *name, struct buf *out)
{
    struct json json = JSON_INIT(out);

    json_object(&json);
    service_put_text(&json, "name", name ? name : o->name);
    if (o->count)
        json_key_u64(&json, "count", o->count);
    if (o->replace)
        json_key_bool(&json, "replace", true);
    if (o->no_volumes)
        json_key_bool(&json, "volumes", false);
    json_end(&json);
    if (json_finish(&json) < 0)
        return cli_error("the name is too long"), false;
    return true;
}

/* One POST with the options as its body. NULL: it is over, and a line says why. */
static struct json_doc *ask(const struct disk_options *o, const char *name, const char *path, const char *word)
{
    AUTO_BUF struct buf body = BUF_INIT(4096);
    struct json_doc *doc = NULL;

    if (!put_body(o, name, &body) || !service_call(NULL, "POST", &body, &doc, path, word))
        return NULL;
    if (!doc)
        cli_error("an empty answer");
    return doc;
}

static int snapshot_main(int argc, char **argv)
{
    struct disk_options options = {0};
    int rest, status;

    if (!service_parse(&snapshot_table, argc, argv, &options, 1, 1, "sandbox", &rest, &status))
        return status;
    AUTO_JSON struct json_doc *doc = ask(&options, NULL, "/v1/sandboxes/%s/snapshot", argv[rest]);
    if (!doc)
        return CLI_FAILED;
    return options.json ? service_print_json(doc) : service_say("%s", get_text(json_root(doc), "id", ""));
}

static int restore_main(int argc, char **argv)
{
    struct disk_options options = {0};
    int rest, status;

    if (!service_parse(&restore_table, argc, argv, &options, 1, 1, "snapshot", &rest, &status))
        return status;
    AUTO_JSON struct json_doc *doc = ask(&options, NULL, "/v1/snapshots/%s/restore", argv[rest]);
    if (!doc)
        return CLI_FAILED;
    return options.json ? service_print_json(doc) : service_say("%s", get_text(json_root(doc), "id", ""));
}

static int fork_main(int argc, char **argv)
{
    struct disk_options options = {0};
    int rest, status;

    if (!service_parse(&fork_table, argc, argv, &options, 1, 1, "sandbox", &rest, &status))
        return status;
    AUTO_JSON struct json_doc *doc = ask(&options, NULL, "/v1/sandboxes/%s/fork", argv[rest]);
    if (!doc)
        return CLI_FAILED;
    if (options.json)
        return service_print_json(doc);
    if (!options.quiet)
        cli_error("note: processes are not copied");
    const struct json_value *forks = json_get(json_root(doc), "sandboxes");
    for (const struct json_value *at = forks ? forks->first : NULL; at && status == 0; at = at->next)
        status = service_say("%s", get_text(at, "id", ""));
    return status;
}

static int commit_main(int argc, char **argv)
{
    struct disk_options options = {0};
    int rest, status;

    if (!service_parse(&commit_table, argc, argv, &options, 2, 2, "SANDBOX NAME", &rest, &status))
        return status;
    AUTO_JSON struct json_doc *doc = ask(&options, argv[rest + 1], "/v1/sandboxes/%s/commit", argv[rest]);
    if (!doc)
        return CLI_FAILED;
    if (options.json)
        return service_print_json(doc);
    return options.quiet ? 0 : service_say("%s", get_text(json_root(doc), "name", argv[rest + 1]));
}

static const struct cli_verb subs[] = {
    {"ls", "list snapshots", .list = &snapshots},
    {"rm", "remove snapshots", .remove = &removal},
};

const struct cli_verb cli_verb_snapshot = {"snapshot", "keep the files of a sandbox; ls, rm", .main = snapshot_main,
                                           CLI_SUBS(subs)};
const struct cli_verb cli_verb_restore = {"restore", "make a sandbox from a snapshot", .main = restore_main};
const struct cli_verb cli_verb_fork = {"fork", "make sandboxes with the files of one", .main = fork_main};
const struct cli_verb cli_verb_commit = {"commit", "make a template from a sandbox", .main = commit_main};
