/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dockerfile_lines.c: the lines of a Dockerfile: directives at the top, continued lines, comments, here-documents.
 *
 * A line that ends with the escape character, blanks behind it or not, goes on in the next one; two escape characters
 * do not. Between continued lines, comments and empty lines are left out.
 */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "codec/dockerfile/dockerfile_priv.h"

/* The next line, without its end. NULL at the end of the text. */
static const char *next_line(struct lines *lines, size_t *ret_len)
{
    const char *begin = lines->at, *end;

    if (begin == lines->end)
        return NULL;
    end = memchr(begin, '\n', (size_t)(lines->end - begin));
    lines->at = end ? end + 1 : lines->end;
    lines->line++;
    if (!end)
        end = lines->end;
    if (end > begin && end[-1] == '\r')
        end--;
    *ret_len = (size_t)(end - begin);
    return begin;
}

static size_t leading_blanks(const char *line, size_t len)
{
    size_t n = 0;

    while (n < len && is_blank(line[n]))
        n++;
    return n;
}

/* The length of the line without what continues it; the same length if nothing does. */
static size_t without_continuation(const char *line, size_t len, char escape)
{
    size_t end = len;

    while (end > 0 && is_blank(line[end - 1]))
        end--;
    if (end == 0 || line[end - 1] != escape || (end > 1 && line[end - 2] == escape))
        return len;
    return end - 1;
}

/* "# name = value": the value's place, if the line is a directive of this name. */
static const char *directive(const char *line, size_t len, const char *name, size_t *ret_len)
{
    size_t at = leading_blanks(line, len), n = strlen(name);

    if (at == len || line[at] != '#')
        return NULL;
    at++;
    at += leading_blanks(line + at, len - at);
    if (len - at < n || strncasecmp(line + at, name, n) != 0)
        return NULL;
    at += n;
    at += leading_blanks(line + at, len - at);
    if (at == len || line[at] != '=')
        return NULL;
    at++;
    at += leading_blanks(line + at, len - at);
    while (len > at && is_blank(line[len - 1]))
        len--;
    *ret_len = len - at;
    return line + at;
}

int lines_directives(struct lines *lines, struct brig_err *err)
{
    static const char *const others[] = {"syntax", "check"};

    lines->escape = '\\';
    for (bool escape_seen = false;;) {
        struct lines before = *lines;
        size_t len, value_len;
        const char *line = next_line(lines, &len), *value;
        bool other = false;

        for (size_t i = 0; line && i < ARRAY_SIZE(others); i++)
            other = other || directive(line, len, others[i], &value_len);
        if (other)
            continue;
        value = line ? directive(line, len, "escape", &value_len) : NULL;
        if (!value) {
            *lines = (struct lines){before.at, before.end, before.line, lines->escape};
            return 0;
        }
        if (value_len != 1 || (*value != '\\' && *value != '`'))
            return err_usage(err, "line %u: escape: must be \\ or `, not %.*s", lines->line,
                             (int)(value_len < 32 ? value_len : 32), value);
        if (escape_seen)
            return err_usage(err, "line %u: escape: it was set before", lines->line);
        escape_seen = true;
        lines->escape = *value;
    }
}

int lines_instruction(struct lines *lines, struct buf *out, unsigned *ret_line, struct brig_err *err)
{
    bool begun = false;
    const char *line;
    size_t len;

    while ((line = next_line(lines, &len))) {
        size_t blanks = leading_blanks(line, len), end;

        if (blanks == len || line[blanks] == '#')
            continue;
        if (memchr(line, '\0', len))
            return err_usage(err, "line %u: a NUL byte", lines->line);
        if (!begun) { /* blanks stay at the start of a continued line */
            line += blanks;
            len -= blanks;
            *ret_line = lines->line;
            begun = true;
        }
        end = without_continuation(line, len, lines->escape);
        if (buf_append(out, line, end) < 0)
            return err_nomem(err);
        if (end == len)
            break;
    }
    return begun ? 1 : 0;
}

int lines_here(struct lines *lines, const char *name, bool tabs, struct buf *out, struct brig_err *err)
{
    unsigned first = lines->line;
    const char *line;
    size_t len;

    while ((line = next_line(lines, &len))) {
        while (tabs && len > 0 && *line == '\t') {
            line++;
            len--;
        }
        if (len == strlen(name) && memcmp(line, name, len) == 0)
            return 0;
        if (buf_append(out, line, len) < 0 || buf_append(out, "\n", 1) < 0)
            return err_nomem(err);
    }
    return err_usage(err, "line %u: the here-document %s has no end", first, name);
}
