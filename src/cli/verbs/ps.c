/* SPDX-License-Identifier: Apache-2.0 */
/* ps.c: `brig ps`: lists the sandboxes, newest first, page by page until all are listed. */
#include <string.h>

#include "cli/listing.h"

struct ps_options {
    const char *state, *name;
    struct words metadata;
    struct listing_options list;
};

#define AT(field) offsetof(struct ps_options, field)
static const struct flag ps_flags[] = {
    {"state", "STATE", "only those: creating, running, pausing, paused, resuming, stopping", flag_set_text, AT(state),
     0},
    {"name", "NAME", "only the one of this name", flag_set_text, AT(name), 0},
    {"metadata", "K=V", "only those with this note", flag_add_pair, AT(metadata), 0},
    FLAG_QUIET("print only ids", AT(list.quiet)),
    FLAG_TABLE(AT(list.json)),
};

static const struct flag_table ps_table = {
    .usage = "brig ps [flags]",
    .purpose = "Lists the sandboxes, newest first.\n\n"
               "  brig ps --state paused\n"
               "  brig ps -q --metadata team=web | xargs brig rm",
    FLAGS(ps_flags),
};

static bool put_target(struct buf *target, const struct ps_options *options)
{
    bool ok = service_target(target, "/v1/sandboxes?limit=1000");

    if (ok && options->state)
        ok = service_target(target, "&state=%s", options->state);
    if (ok && options->name)
        ok = service_target(target, "&name=%s", options->name);
    for (size_t i = 0; ok && i < options->metadata.n; i++) {
        AUTO_FREE char *key = strndup(options->metadata.items[i], strcspn(options->metadata.items[i], "="));
        ok = key && service_target(target, "&metadata.%s=%s", key, options->metadata.items[i] + strlen(key) + 1);
    }
    return ok;
}

static const struct listing boxes = {
    .member = "sandboxes",
    .paged = true,
    .columns = {COLUMN("ID", "id"), COLUMN("*NAME", "name"), COLUMN("STATE", "state"), COLUMN("*TEMPLATE", "template"),
                COLUMN(">PROCS", "processes", .kind = COLUMN_NUMBER),
                COLUMN(">SERVICES", "services", .kind = COLUMN_COUNT, .differs = true),
                COLUMN(">AGE", "created_at", .kind = COLUMN_AGE), COLUMN(">LEFT", "ends_at", .kind = COLUMN_UNTIL)},
};

static int ps_main(int argc, char **argv)
{
    AUTO_BUF struct buf target = BUF_INIT(64 << 10);
    struct ps_options options = {0};
    int rest, status;

    if (service_parse(&ps_table, argc, argv, &options, 0, 0, "", &rest, &status)) {
        options.list.json &= !options.list.quiet; /* -q wins */
        status = put_target(&target, &options) ? listing_show(&boxes, &target, &options.list) : CLI_FAILED;
    }
    words_done(&options.metadata);
    return status;
}

const struct cli_verb cli_verb_ps = {"ps", "list sandboxes", .main = ps_main};
