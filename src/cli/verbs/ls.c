/* SPDX-License-Identifier: Apache-2.0 */
/* ls.c: `brig ls`: files in a sandbox, as brig-init sees them from inside. */
#include <string.h>

#include "base/str.h"
#include "cli/service.h"

static int ls_main(int argc, char **argv);

const struct cli_verb cli_verb_ls = {
    .name = "ls",
    .summary = "list files in a sandbox",
    .main = ls_main,
};

struct ls_options {
    bool json, recursive, quiet;
    uint64_t depth;
};

static const struct flag ls_flags[] = {
    {"recursive", NULL, "everything below, too", flag_set_true, offsetof(struct ls_options, recursive), 'R'},
    {"depth", "N", "this many levels (default 1)", flag_set_count, offsetof(struct ls_options, depth), 0},
    {"quiet", NULL, "print only paths", flag_set_true, offsetof(struct ls_options, quiet), 'q'},
    {NULL, "FORMAT", "table (default) or json", flag_set_table, offsetof(struct ls_options, json), 'o'},
};

static const struct flag_table ls_table = {
    .usage = "brig ls [flags] SANDBOX[:PATH]",
    .purpose = "Lists PATH in the sandbox (default: its working directory).\n\n"
               "  brig ls build:/workspace\n"
               "  brig ls -R -q build:src",
    .flags = ls_flags,
    .n_flags = ARRAY_SIZE(ls_flags),
};

/* "drwxr-xr-x" */
static void show_mode(char out[11], const char *type, const char *mode)
{
    static const char *const types[] = {"directory", "symlink", "fifo", "socket", "char", "block"};
    static const char letters[] = "dlpscb";
    unsigned long bits = strtoul(mode, NULL, 8);

    out[0] = '-';
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (str_eq(types[i], type))
            out[0] = letters[i];
    for (unsigned i = 0; i < 9; i++)
        out[1 + i] = bits & (0400ul >> i) ? "rwx"[i % 3] : '-';
    out[10] = '\0';
}

/* A name that is not UTF-8 comes as base64; its bytes are shown escaped like all others. */
static const char *name_of(const struct json_value *entry, const char *key, const char *encoding_key, struct buf *out)
{
    out->len = 0;
    return service_get_bytes(entry, key, encoding_key, out) == 0 && out->data ? out->data : "?";
}

static void put_entry(struct table *table, const struct json_value *entry, struct buf *name, struct buf *link)
{
    char mode[11], when[SHOW_SIZE];
    const char *type = get_text(entry, "type", "-");
    const char *path = name_of(entry, "path", "path_encoding", name);

    show_mode(mode, type, get_text(entry, "mode", "0"));
    table_cell(table, "%s", mode);
    table_cell(table, "%lld", (long long)get_i64(entry, "size", 0));
    table_cell(table, "%s", show_time(when, get_text(entry, "mtime", "")));
    if (str_eq(type, "symlink"))
        table_cell(table, "%s -> %s", path, name_of(entry, "target", "target_encoding", link));
    else
        table_cell(table, "%s%s", path, str_eq(type, "directory") ? "/" : "");
}

static int by_path(const void *a, const void *b)
{
    const struct json_value *const *x = a, *const *y = b;
    return strcmp(get_text(*x, "path", ""), get_text(*y, "path", ""));
}

/* NULL-terminated; to be freed. */
static const struct json_value **sort(const struct json_value *entries)
{
    const struct json_value **items = calloc((entries ? entries->count : 0) + 1, sizeof(*items));
    size_t n = 0;

    for (const struct json_value *entry = items && entries ? entries->first : NULL; entry; entry = entry->next)
        items[n++] = entry;
    if (n > 1)
        qsort(items, n, sizeof(*items), by_path);
    return items;
}

static int show(const struct ls_options *options, const struct json_value *entries)
{
    static const char *const headers[] = {"MODE", ">SIZE", "MODIFIED", "*NAME"};
    AUTO_TABLE struct table table = {0};
    AUTO_BUF struct buf name = BUF_INIT(64 << 10), link = BUF_INIT(64 << 10);

    const struct json_value **sorted = sort(entries);
    int status = 0;

    if (!sorted)
        return cli_error("out of memory");
    table_init(&table, headers, ARRAY_SIZE(headers));
    for (size_t i = 0; status == 0 && sorted[i]; i++) {
        if (!options->quiet)
            put_entry(&table, sorted[i], &name, &link);
        else
            status = service_say("%s", name_of(sorted[i], "path", "path_encoding", &name));
    }
    free(sorted);
    return options->quiet ? status : table_print(&table);
}

static int ls_main(int argc, char **argv)
{
    struct ls_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf target = BUF_INIT(64 << 10);
    AUTO_DOC struct json_doc *doc = NULL;
    int rest, status;

    if (!service_parse(&ls_table, argc, argv, &options, 1, 1, "sandbox", &rest, &status))
        return status;
    char *colon = strchr(argv[rest], ':');
    const char *path = colon && colon[1] != '\0' ? colon + 1 : ".";
    if (colon)
        *colon = '\0';
    uint64_t depth = options.recursive ? 1000 : options.depth > 0 ? options.depth : 1;
    if (!service_open(&client) ||
        !service_target(&target, "/v1/sandboxes/%s/files/list?path=%s&depth=%u&limit=100000", argv[rest], path,
                        depth) ||
        !service_ask(client, "GET", &target, NULL, &doc))
        return CLI_FAILED;
    if (options.json)
        return service_print_json(doc);
    status = show(&options, json_get(json_root(doc), "entries"));
    if (status == 0 && get_bool(json_root(doc), "truncated"))
        cli_error("there are more than are listed here");
    return status;
}
