/* SPDX-License-Identifier: Apache-2.0 */
/* listing.c: asks for a list, page by page where it has pages, and prints it by its columns. */
#include "cli/listing.h"

#include <string.h>

#include "base/str.h"
#include "cli/escape.h"

#define AT(field) offsetof(struct listing_options, field)

const struct flag listing_names[] = {
    FLAG_QUIET("print only names", AT(quiet)),
    FLAG_TABLE(AT(json)),
};
const struct flag listing_ids[] = {
    FLAG_QUIET("print only ids", AT(quiet)),
    FLAG_TABLE(AT(json)),
};
const struct flag listing_rm[] = {
    FLAG_QUIET("say nothing", AT(quiet)),
};

#define JSON_MAX ((size_t)256 << 20) /* of all pages together */

/* ---- cells ---------------------------------------------------------------------------------------- */

static int put_text(struct buf *out, const struct column *column, const char *text)
{
    size_t len = strlen(text);

    if (column->most == 0 || len <= column->most)
        return buf_append(out, text, len);
    int r = buf_append(out, text, column->most);
    return r < 0 ? r : buf_printf(out, "... (%zu bytes; -o json shows all)", len);
}

static int put_cell(struct buf *out, const struct column *column, const struct json_value *row)
{
    const struct json_value *object = column->of ? json_get(row, column->of) : row, *array;
    const char *otherwise = column->otherwise ? column->otherwise : "-", *member = column->member;
    char text[SHOW_SIZE];

    out->len = 0;
    if (column->put)
        return column->put(out, row);
    switch (column->kind) {
    case COLUMN_NUMBER: return buf_printf(out, "%lld", (long long)get_i64(object, member, 0));
    case COLUMN_COUNT: array = json_get(object, member); return buf_printf(out, "%zu", array ? array->count : 0);
    case COLUMN_BYTES: return buf_append_str(out, show_bytes(text, get_i64(object, member, -1)));
    case COLUMN_DURATION: return buf_append_str(out, show_duration(text, get_i64(object, member, -1)));
    case COLUMN_AGE: return buf_append_str(out, show_age(text, get_text(object, member, "")));
    case COLUMN_UNTIL: return buf_append_str(out, show_until(text, get_text(object, member, "")));
    case COLUMN_YES: return buf_append_str(out, json_get_bool(object, member) ? column->yes : otherwise);
    case COLUMN_TEXT:
    case COLUMN_KIND_MAX: break;
    }
    return put_text(out, column, get_text(object, member, otherwise));
}

/* ---- rows ----------------------------------------------------------------------------------------- */

struct print {
    const struct listing *listing;
    const struct listing_options *options;
    const struct column *columns[TABLE_COLUMNS];
    size_t n_columns, n_rows;
    struct table table;
    struct buf cell, json;
};

static bool differs(const struct column *column, const struct json_value *rows)
{
    const struct json_value *first = rows ? rows->first : NULL;

    for (const struct json_value *row = first; row; row = row->next) {
        const struct json_value *a = json_get(row, column->member), *b = json_get(first, column->member);
        if (!str_eq(get_text(row, column->member, ""), get_text(first, column->member, "")) ||
            (a ? a->count : 0) != (b ? b->count : 0))
            return true;
    }
    return false;
}

static void choose_columns(struct print *print, const struct json_value *rows)
{
    const char *headers[TABLE_COLUMNS];

    for (const struct column *column = print->listing->columns; column->header; column++)
        if (!column->differs || differs(column, rows)) {
            headers[print->n_columns] = column->header;
            print->columns[print->n_columns++] = column;
        }
    table_init(&print->table, headers, print->n_columns);
}

static int print_row(struct print *print, const struct json_value *row)
{
    const size_t n = print->options->quiet ? 1 : print->n_columns;

    if (print->listing->hidden && !print->options->all && print->listing->hidden(row))
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (put_cell(&print->cell, print->columns[i], row) < 0)
            return cli_error("out of memory");
        const char *text = print->cell.len > 0 ? print->cell.data : "";
        if (print->options->quiet)
            return service_say("%s", text);
        table_cell(&print->table, "%s", text);
    }
    return 0;
}

static int print_sorted(struct print *print, const struct json_value *rows)
{
    AUTO_FREE const struct json_value **items = calloc(rows->count + 1, sizeof(*items));
    size_t n = 0;
    int status = 0;

    if (!items)
        return cli_error("out of memory");
    for (const struct json_value *row = rows->first; row; row = row->next)
        items[n++] = row;
    qsort(items, n, sizeof(*items), print->listing->order);
    for (size_t i = 0; status == 0 && i < n; i++)
        status = print_row(print, items[i]);
    return status;
}

/* All pages become one array. */
static int add_json(struct print *print, const struct json_value *row)
{
    int r = buf_append_str(&print->json, print->n_rows++ > 0 ? ",\n" : "");

    if (r == 0)
        r = json_print(row, &print->json);
    return r < 0 ? cli_error("out of memory") : 0;
}

static int print_page(struct print *print, const struct json_value *root)
{
    const struct listing *listing = print->listing;
    const struct json_value *rows = listing->member ? json_get(root, listing->member) : root;
    int status = 0;

    if (print->options->json && listing->alone)
        return rows ? service_print_value(rows) : cli_error("the daemon's answer has no %s", listing->alone);
    if (print->options->json && !listing->paged)
        return service_print_value(root);
    if (print->n_columns == 0)
        choose_columns(print, rows);
    if (rows && listing->order)
        return print_sorted(print, rows);
    for (const struct json_value *row = rows ? rows->first : NULL; status == 0 && row; row = row->next)
        status = print->options->json ? add_json(print, row) : print_row(print, row);
    return status;
}

static int print_end(struct print *print)
{
    struct escape escape = ESCAPE_INIT(ESCAPE_JSON);
    AUTO_BUF struct buf out = BUF_INIT(6 * JSON_MAX); /* a byte becomes at most six */

    if (!print->options->json)
        return print->options->quiet ? 0 : table_print(&print->table);
    if (!print->listing->paged)
        return 0;
    if (buf_append_str(&out, "[") < 0 ||
        (print->json.len > 0 && escape_append(&escape, print->json.data, print->json.len, &out) < 0) ||
        buf_append_str(&out, "]\n") < 0)
        return cli_error("out of memory");
    return cli_print(&out, 0);
}

/* ---- the verb ------------------------------------------------------------------------------------- */

static int ask_pages(struct print *print, struct client *client, const struct buf *target)
{
    AUTO_BUF struct buf page = BUF_INIT(target->max + 4096);
    bool more = true, cut = false;

    if (buf_append(&page, target->data, target->len) < 0)
        return cli_error("out of memory");
    while (more) {
        AUTO_JSON struct json_doc *doc = NULL;
        if (!service_ask(client, page.data, &doc))
            return CLI_FAILED;
        int status = print_page(print, json_root(doc));
        if (status != 0)
            return status;
        const char *next = print->listing->paged ? get_text(json_root(doc), "next_cursor", "") : "";
        more = *next != '\0';
        cut = json_get_bool(json_root(doc), "truncated");
        page.len = target->len;
        if (more && !service_target(&page, "&cursor=%s", next))
            return CLI_FAILED;
    }
    int status = print_end(print);
    if (status == 0 && cut && !print->options->json)
        cli_error("there are more than are listed here");
    return status;
}

int listing_ask(const struct listing *listing, struct client *client, const struct buf *target,
                const struct listing_options *options)
{
    struct print print = {
        .listing = listing, .options = options, .cell = BUF_INIT(4u << 20), .json = BUF_INIT(JSON_MAX)};
    int status = ask_pages(&print, client, target);

    table_done(&print.table);
    buf_done(&print.cell);
    buf_done(&print.json);
    return status;
}

int listing_show(const struct listing *listing, const struct buf *target, const struct listing_options *options)
{
    AUTO_CLIENT struct client *client = NULL;

    return service_open(&client) ? listing_ask(listing, client, target, options) : CLI_FAILED;
}

int listing_main(const struct listing *listing, int argc, char **argv)
{
    struct listing_options options = {0};
    AUTO_BUF struct buf target = BUF_INIT(64 << 10);
    const char *what = listing->word ? listing->word : "";
    int rest, status, n = listing->word ? 1 : 0;

    if (!service_parse(&listing->words, argc, argv, &options, n, n, what, &rest, &status))
        return status;
    if (!service_target(&target, listing->path, argv[rest]))
        return CLI_FAILED;
    return listing_show(listing, &target, &options);
}

int listing_remove(const struct removal *removal, int argc, char **argv)
{
    struct listing_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    int rest, status = 0;

    if (!service_parse(&removal->words, argc, argv, &options, 1, -1, removal->word, &rest, &status))
        return status;
    if (!service_open(&client))
        return CLI_FAILED;
    for (; rest < argc; rest++)
        if (!service_call(client, "DELETE", NULL, NULL, removal->path, argv[rest]))
            status = CLI_FAILED;
        else if (!options.quiet && service_say("%s", argv[rest]) != 0)
            return CLI_FAILED;
    return status;
}
