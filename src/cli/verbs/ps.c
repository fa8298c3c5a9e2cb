/* SPDX-License-Identifier: Apache-2.0 */
/* ps.c: `brig ps`: the sandboxes there are, newest first, page by page until all are listed. */
#include <string.h>

#include "cli/service.h"

static int ps_main(int argc, char **argv);

const struct cli_verb cli_verb_ps = {
    .name = "ps",
    .summary = "list sandboxes",
    .main = ps_main,
};

struct ps_options {
    const char *state, *name;
    struct words metadata;
    bool json, quiet;
};

#define AT(field) offsetof(struct ps_options, field)
static const struct flag ps_flags[] = {
    {"state", "STATE", "only those: creating, running, pausing, paused, resuming, stopping", flag_set_text, AT(state),
     0},
    {"name", "NAME", "only the one of this name", flag_set_text, AT(name), 0},
    {"metadata", "K=V", "only those with this note", flag_add_pair, AT(metadata), 0},
    {"quiet", NULL, "print only ids", flag_set_true, AT(quiet), 'q'},
    {NULL, "FORMAT", "table (default) or json", flag_set_table, AT(json), 'o'},
};

static const struct flag_table ps_table = {
    .usage = "brig ps [flags]",
    .purpose = "Lists the sandboxes, newest first.\n\n"
               "  brig ps --state paused\n"
               "  brig ps -q --metadata team=web | xargs brig rm",
    .flags = ps_flags,
    .n_flags = ARRAY_SIZE(ps_flags),
};

static bool put_target(struct buf *target, const struct ps_options *options, const char *cursor)
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
    if (ok && cursor)
        ok = service_target(target, "&cursor=%s", cursor);
    return ok;
}

static void put_row(struct table *table, const struct json_value *box)
{
    char age[SHOW_SIZE], left[SHOW_SIZE];

    table_cell(table, "%s", get_text(box, "id", "-"));
    table_cell(table, "%s", get_text(box, "name", "-"));
    table_cell(table, "%s", get_text(box, "state", "-"));
    table_cell(table, "%s", get_text(box, "template", "-"));
    table_cell(table, "%lld", (long long)get_i64(box, "processes", 0));
    table_cell(table, "%s", show_age(age, get_text(box, "created_at", "")));
    table_cell(table, "%s", show_until(left, get_text(box, "ends_at", "")));
}

static bool put_boxes(const struct json_value *boxes, const struct ps_options *options, struct table *table,
                      struct buf *plain, size_t *n)
{
    for (const struct json_value *box = boxes ? boxes->first : NULL; box; box = box->next) {
        int r = 0;
        if (options->quiet && service_say("%s", get_text(box, "id", "")) != 0)
            return false;
        if (options->quiet)
            continue;
        if (!options->json)
            put_row(table, box);
        else
            r = *n > 0 ? buf_append(plain, ",\n", 2) : 0;
        if (r == 0 && options->json)
            r = json_print(box, plain);
        if (r < 0) {
            cli_error("out of memory");
            return false;
        }
        (*n)++;
    }
    return true;
}

static int list(const struct ps_options *options)
{
    static const char *const headers[] = {"ID", "*NAME", "STATE", "*TEMPLATE", ">PROCS", ">AGE", ">LEFT"};
    AUTO_CLIENT struct client *client = NULL;
    AUTO_TABLE struct table table = {0};
    AUTO_BUF struct buf plain = BUF_INIT(256 << 20), cursor = BUF_INIT(4096);
    bool more = true, as_json = options->json && !options->quiet;
    size_t n = 0;

    table_init(&table, headers, ARRAY_SIZE(headers));
    if (!service_open(&client) || (as_json && buf_append_str(&plain, "[") < 0))
        return CLI_FAILED;
    while (more) {
        AUTO_DOC struct json_doc *doc = NULL;
        AUTO_BUF struct buf target = BUF_INIT(64 << 10);
        if (!put_target(&target, options, cursor.len > 0 ? cursor.data : NULL) ||
            !service_ask(client, "GET", &target, NULL, &doc) ||
            !put_boxes(json_get(json_root(doc), "sandboxes"), options, &table, &plain, &n))
            return CLI_FAILED;
        const char *next = get_text(json_root(doc), "next_cursor", "");
        cursor.len = 0;
        more = *next != '\0' && buf_append_str(&cursor, next) == 0;
    }
    if (!as_json && !options->quiet)
        return table_print(&table);
    if (as_json && buf_append_str(&plain, "]\n") < 0)
        return cli_error("out of memory");
    return plain.len > 0 ? cli_print(&plain, 0) : 0;
}

static int ps_main(int argc, char **argv)
{
    struct ps_options options = {0};
    int rest, status;

    if (service_parse(&ps_table, argc, argv, &options, 0, 0, "", &rest, &status))
        status = list(&options);
    words_done(&options.metadata);
    return status;
}
