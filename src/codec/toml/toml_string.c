/* SPDX-License-Identifier: Apache-2.0 */
/*
 * toml_string.c: reads TOML's four kinds of string, and keys. Unescaping never makes a string longer, so the room for
 * it is its length in the document. Control characters and bad UTF-8 were refused before (toml.c). This file refuses a
 * newline where none may be, a bad escape and a missing end.
 */
#include "base/ascii.h"
#include "base/utf8.h"
#include "codec/toml/toml_priv.h"

/* \uXXXX and \UXXXXXXXX, after the letter. Four letters become at most three bytes, eight at most four. */
static int read_point(struct toml_reader *in, unsigned digits, char *out, size_t *len)
{
    uint32_t point = 0;

    for (unsigned i = 0; i < digits; i++, in->at++) {
        int digit = ascii_hex((char)toml_peek(in));
        if (digit < 0)
            return toml_fail(in, "\\%c needs %u hexadecimal digits", digits == 4 ? 'u' : 'U', digits);
        point = point << 4 | (uint32_t)digit;
    }
    if (point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
        return toml_fail(in, "U+%04X is no character", point);
    *len += utf8_put(out + *len, point);
    return 0;
}

/* A backslash at the end of a line: it and all white space and newlines after it mean nothing. */
static bool skip_line_end(struct toml_reader *in)
{
    const char *at = in->at;

    toml_blanks(in);
    if (!toml_newline(in)) {
        in->at = at;
        return false;
    }
    do
        toml_blanks(in);
    while (toml_newline(in));
    return true;
}

static int read_escape(struct toml_reader *in, bool multi_line, char *out, size_t *len)
{
    static const char letters[] = "btnfr\"\\", bytes[] = "\b\t\n\f\r\"\\";
    int c;

    if (multi_line && skip_line_end(in))
        return 0;
    c = toml_peek(in);
    if (c < 0)
        return toml_fail(in, "the string does not end");
    const char *letter = c == 0 ? NULL : strchr(letters, c);
    if (letter) {
        out[(*len)++] = bytes[letter - letters];
        in->at++;
        return 0;
    }
    if (c != 'u' && c != 'U')
        return toml_fail(in, "no such escape in a string (a literal one has single quotes)");
    in->at++;
    return read_point(in, c == 'u' ? 4 : 8, out, len);
}

/* Quotes at `at`: how many of them, up to five (three that end the string and two that belong to it). */
static unsigned count_quotes(const struct toml_reader *in, int quote)
{
    unsigned n = 0;

    while (n < 5 && in->end - in->at > n && in->at[n] == quote)
        n++;
    return n;
}

/* The body up to and with the closing quotes. */
static int read_body(struct toml_reader *in, int quote, bool multi_line, char *out, size_t *len)
{
    for (;;) {
        int c = toml_peek(in);
        if (c < 0)
            return toml_fail(in, "the string does not end");
        if (c == quote) {
            unsigned n = multi_line ? count_quotes(in, quote) : 1;
            in->at += n;
            if (!multi_line)
                return 0;
            for (unsigned i = n >= 3 ? 3 : 0; i < n; i++)
                out[(*len)++] = (char)quote;
            if (n >= 3)
                return 0;
        } else if (c == '\n' || c == '\r') {
            if (!multi_line)
                return toml_fail(in, "the string does not end on its line");
            toml_newline(in);
            out[(*len)++] = '\n';
        } else if (c == '\\' && quote == '"') {
            in->at++;
            int r = read_escape(in, multi_line, out, len);
            if (r < 0)
                return r;
        } else {
            out[(*len)++] = *in->at++;
        }
    }
}

/* An upper bound for the string that starts at `at`: the next quote that is not escaped, or three of them. */
static size_t body_bound(const struct toml_reader *in, int quote, bool multi_line)
{
    const char *at = in->at;

    for (; at < in->end; at++) {
        if (*at == '\\' && quote == '"') {
            at++;
        } else if (*at == quote && (!multi_line || (in->end - at >= 3 && at[1] == quote && at[2] == quote))) {
            return (size_t)(at - in->at) + 5;
        }
        if (at < in->end && *at == '\n' && !multi_line)
            break;
    }
    return (size_t)(in->end - in->at);
}

int toml_read_string(struct toml_reader *in, bool multi_line, struct toml_text *ret)
{
    unsigned line = in->line;
    int quote = toml_peek(in);
    size_t len = 0;

    multi_line = multi_line && toml_starts(in, quote == '"' ? "\"\"\"" : "'''");
    in->at += multi_line ? 3 : 1;
    if (multi_line)
        toml_newline(in); /* one right after the quotes does not count */
    char *out = toml_alloc(in, body_bound(in, quote, multi_line) + 1);
    if (!out)
        return err_nomem(in->err);
    int r = read_body(in, quote, multi_line, out, &len);
    if (r < 0 && in->at == in->end && multi_line) {
        in->line = line;
        return toml_fail(in, "the string that begins here does not end");
    }
    if (r < 0)
        return r;
    out[len] = '\0';
    *ret = (struct toml_text){out, len};
    return 0;
}

static bool is_bare(int c)
{
    return ascii_is_alnum((char)c) || c == '_' || c == '-';
}

int toml_read_key(struct toml_reader *in, struct toml_text *ret)
{
    const char *start = in->at;

    if (toml_peek(in) == '"' || toml_peek(in) == '\'') {
        if (toml_starts(in, "\"\"\"") || toml_starts(in, "'''"))
            return toml_fail(in, "a key is no multi-line string");
        return toml_read_string(in, false, ret);
    }
    while (is_bare(toml_peek(in)))
        in->at++;
    if (in->at == start)
        return toml_fail(in, "a key is missing (letters, digits, _ and -, or a string)");
    char *out = toml_alloc(in, (size_t)(in->at - start) + 1);
    if (!out)
        return err_nomem(in->err);
    memcpy(out, start, (size_t)(in->at - start));
    out[in->at - start] = '\0';
    *ret = (struct toml_text){out, (size_t)(in->at - start)};
    return 0;
}
