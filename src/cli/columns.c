/* SPDX-License-Identifier: Apache-2.0 */
/*
 * columns.c: prints tables for people. A column is as wide as its widest cell, with two blanks between columns. On a
 * terminal that is too narrow the marked columns are cut, and a cut text ends in "~"; in a pipe nothing is ever cut.
 * Widths count characters, not bytes.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "cli/escape.h"
#include "cli/service.h"

#define GAP 2u
#define LEAST 6u /* characters that a column keeps */

void table_init(struct table *table, const char *const *headers, size_t n)
{
    *table = (struct table){.text = BUF_INIT(64 << 20), .n_columns = n};
    for (size_t i = 0; i < n; i++)
        table->headers[i] = headers[i];
}

void table_cell(struct table *table, const char *format, ...)
{
    struct escape escape = ESCAPE_INIT(ESCAPE_LINE);
    AUTO_FREE char *text = NULL;
    va_list args;

    if (table->error < 0)
        return;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0) {
        text = NULL;
        table->error = -ENOMEM;
        return;
    }
    int r = escape_append(&escape, text, (size_t)n, &table->text);
    if (r == 0)
        r = escape_finish(&escape, &table->text);
    if (r == 0)
        r = buf_append(&table->text, "", 1);
    table->error = r;
    table->n_cells++;
}

static size_t characters(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static const char *header(const struct table *table, size_t column)
{
    const char *text = table->headers[column];
    return *text == '>' || *text == '*' ? text + 1 : text;
}

/* Characters of the terminal on stdout, or SIZE_MAX. */
static size_t room(void)
{
    struct winsize size;
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                                                    : SIZE_MAX;
}

static void measure(const struct table *table, size_t widths[TABLE_COLUMNS])
{
    const char *at = table->text.data;
    size_t sum = (table->n_columns - 1) * GAP, most = room();

    for (size_t i = 0; i < table->n_columns; i++)
        widths[i] = characters(header(table, i));
    for (size_t i = 0; i < table->n_cells; i++, at += strlen(at) + 1) {
        size_t n = characters(at);
        if (n > widths[i % table->n_columns])
            widths[i % table->n_columns] = n;
    }
    for (size_t i = 0; i < table->n_columns; i++)
        sum += widths[i];
    while (sum > most) {
        size_t widest = table->n_columns;
        for (size_t i = 0; i < table->n_columns; i++)
            if (table->headers[i][0] == '*' && widths[i] > LEAST &&
                (widest == table->n_columns || widths[i] > widths[widest]))
                widest = i;
        if (widest == table->n_columns)
            return;
        widths[widest]--;
        sum--;
    }
}

static int put_blanks(struct buf *out, size_t n)
{
    int r = 0;
    while (r == 0 && n-- > 0)
        r = buf_append(out, " ", 1);
    return r;
}

/* The first characters of text, all but the last of them where it does not fit. */
static int put_cut(struct buf *out, const char *text, size_t width)
{
    size_t n = characters(text), shown = 0;

    if (n <= width)
        return buf_append_str(out, text);
    const char *end = text;
    for (; *end != '\0'; end++) {
        if (((unsigned char)*end & 0xc0) != 0x80 && shown++ == width - 1)
            break;
    }
    int r = buf_append(out, text, (size_t)(end - text));
    return r < 0 ? r : buf_append(out, "~", 1);
}

static int put_cell(struct buf *out, const struct table *table, size_t column, const char *text, const size_t *widths)
{
    size_t n = characters(text), blanks = n < widths[column] ? widths[column] - n : 0;
    bool right = table->headers[column][0] == '>', last = column + 1 == table->n_columns;
    int r = right ? put_blanks(out, blanks) : 0;

    if (r == 0)
        r = put_cut(out, text, widths[column]);
    if (r == 0 && !last)
        r = put_blanks(out, (right ? 0 : blanks) + GAP);
    if (r == 0 && last) {
        while (out->len > 0 && out->data[out->len - 1] == ' ')
            out->len--;
        r = buf_append(out, "\n", 1);
    }
    return r;
}

int table_print(struct table *table)
{
    struct buf out = BUF_INIT(64 << 20);
    size_t widths[TABLE_COLUMNS];
    const char *at = table->text.data;
    int r = table->error;

    if (table->n_columns == 0)
        return 0;
    if (r == 0)
        measure(table, widths);
    for (size_t i = 0; r == 0 && i < table->n_columns; i++)
        r = put_cell(&out, table, i, header(table, i), widths);
    for (size_t i = 0; r == 0 && i < table->n_cells; i++, at += strlen(at) + 1)
        r = put_cell(&out, table, i % table->n_columns, at, widths);
    int status = r < 0 ? cli_error("out of memory") : cli_print(&out, 0);
    buf_done(&out);
    return status;
}

void table_done(struct table *table)
{
    buf_done(&table->text);
}
