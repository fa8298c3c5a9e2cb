/* SPDX-License-Identifier: Apache-2.0 */
/* ls.c: `brig ls`: lists files in a sandbox, as brig-init sees them from inside. */
#include <string.h>

#include "base/str.h"
#include "cli/listing.h"

struct ls_options {
    struct listing_options list;
    bool recursive;
    uint64_t depth;
};

static const struct flag ls_flags[] = {
    {"recursive", NULL, "everything below, too", flag_set_true, offsetof(struct ls_options, recursive), 'R'},
    {"depth", "N", "this many levels (default 1)", flag_set_count, offsetof(struct ls_options, depth), 0},
    FLAG_QUIET("print only paths", offsetof(struct ls_options, list.quiet)),
    FLAG_TABLE(offsetof(struct ls_options, list.json)),
};

static const struct flag_table ls_table = {
    .usage = "brig ls [flags] SANDBOX[:PATH]",
    .purpose = "Lists PATH in the sandbox (default: its working directory).\n\n"
               "  brig ls build:/workspace\n"
               "  brig ls -R -q build:src",
    FLAGS(ls_flags),
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

static int put_mode(struct buf *out, const struct json_value *entry)
{
    char mode[11];

    show_mode(mode, get_text(entry, "type", "-"), get_text(entry, "mode", "0"));
    return buf_append_str(out, mode);
}

static int put_time(struct buf *out, const struct json_value *entry)
{
    char when[SHOW_SIZE];

    return buf_append_str(out, show_time(when, get_text(entry, "mtime", "")));
}

/* A name that is not UTF-8 comes as base64; its bytes are shown escaped like all others. */
static int put_bytes(struct buf *out, const struct json_value *entry, const char *key, const char *encoding_key)
{
    const size_t before = out->len;

    if (service_get_bytes(entry, key, encoding_key, out) == 0 && out->len > before)
        return 0;
    out->len = before;
    return buf_append_str(out, "?");
}

static int put_path(struct buf *out, const struct json_value *entry)
{
    return put_bytes(out, entry, "path", "path_encoding");
}

static int put_name(struct buf *out, const struct json_value *entry)
{
    const char *type = get_text(entry, "type", "-");
    int r = put_path(out, entry);

    if (r == 0 && str_eq(type, "directory"))
        r = buf_append(out, "/", 1);
    if (r == 0 && str_eq(type, "symlink"))
        r = buf_append_str(out, " -> ");
    return r == 0 && str_eq(type, "symlink") ? put_bytes(out, entry, "target", "target_encoding") : r;
}

static int by_path(const void *a, const void *b)
{
    const struct json_value *const *x = a, *const *y = b;
    return strcmp(get_text(*x, "path", ""), get_text(*y, "path", ""));
}

static const struct listing entries = {
    .member = "entries",
    .order = by_path,
    .columns = {COLUMN("MODE", "mode", .put = put_mode), COLUMN(">SIZE", "size", .kind = COLUMN_NUMBER),
                COLUMN("MODIFIED", "mtime", .put = put_time), COLUMN("*NAME", "path", .put = put_name)},
};
static const struct listing paths = {
    /* for -q */
    .member = "entries",
    .order = by_path,
    .columns = {COLUMN("*NAME", "path", .put = put_path)},
};

static int ls_main(int argc, char **argv)
{
    struct ls_options options = {0};
    AUTO_BUF struct buf target = BUF_INIT(64 << 10);
    int rest, status;

    if (!service_parse(&ls_table, argc, argv, &options, 1, 1, "sandbox", &rest, &status))
        return status;
    char *colon = strchr(argv[rest], ':');
    const char *path = colon && colon[1] != '\0' ? colon + 1 : ".";
    if (colon)
        *colon = '\0';
    uint64_t depth = options.recursive ? 1000 : options.depth > 0 ? options.depth : 1;
    if (!service_target(&target, "/v1/sandboxes/%s/files/list?path=%s&depth=%u&limit=100000", argv[rest], path, depth))
        return CLI_FAILED;
    return listing_show(options.list.quiet ? &paths : &entries, &target, &options.list);
}

const struct cli_verb cli_verb_ls = {"ls", "list files in a sandbox", .main = ls_main};
