/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dockerfile_expand.c: replaces the variables of one word, as a shell would, and removes its quotes.
 *
 * Single quotes keep everything. Double quotes keep everything but variables and the escape character, which takes its
 * meaning from " $ and itself. Outside quotes the escape character keeps the next character. In the text of a
 * here-document quotes mean nothing, and the escape character is one only before $ and itself.
 */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "codec/dockerfile/dockerfile_priv.h"

#define EXPAND_DEPTH 32u /* ${A:-${B:-${C}}} */
#define WORD_MAX (1u << 20)

struct expander {
    const char *at;
    const struct dockerfile_scope *scope;
    unsigned depth;
    bool unused; /* The text is only read: nothing is looked up, copied or told. */
    struct brig_err *err;
};

static int expand_until(struct expander *x, char stop, struct buf *out);

static int put(struct expander *x, const char *text, size_t len, struct buf *out)
{
    return !x->unused && buf_append(out, text, len) < 0 ? err_set(x->err, BRIG_E_TOO_LARGE, 0, "the text is too long")
                                                        : 0;
}

static size_t name_length(const char *at)
{
    size_t n = 0;

    if (isdigit((unsigned char)*at) || (*at && strchr("@*#?!-$", *at)))
        return 1; /* the shell's own; none of them is set in a build */
    while (at[n] == '_' || isalpha((unsigned char)at[n]) || (n > 0 && isdigit((unsigned char)at[n])))
        n++;
    return n;
}

static const char *look_up(struct expander *x, const char *name, size_t len)
{
    return x->scope->lookup && !x->unused ? x->scope->lookup(x->scope->ctx, name, len) : NULL;
}

/* What stands behind the name in braces: a modifier and its word, up to the closing brace. */
static int modifier(struct expander *x, const char *name, size_t len, const char *value, struct buf *out)
{
    bool colon = *x->at == ':';
    char kind = x->at[colon ? 1 : 0];
    bool set = value && (*value || !colon), unused = x->unused;
    AUTO_BUF struct buf word = BUF_INIT(WORD_MAX);

    if (!kind || !strchr("-+?", kind))
        return err_usage(x->err, "${%.*s%.*s: expected }, or one of :- :+ :? - + ? behind the name",
                         (int)(len < 64 ? len : 64), name, 8, x->at);
    x->at += colon ? 2 : 1;
    x->unused = unused || (kind == '+') != set;
    int r = expand_until(x, '}', &word);
    x->unused = unused;
    if (r < 0)
        return r;
    x->at++;
    if (kind == '+')
        return set ? put(x, word.len ? word.data : "", word.len, out) : 0;
    if (set)
        return put(x, value, strlen(value), out);
    if (kind == '?' && !unused)
        return err_usage(x->err, "%.*s: %.128s", (int)(len < 64 ? len : 64), name,
                         word.len ? word.data : "it is not set");
    return put(x, word.len ? word.data : "", word.len, out);
}

static int in_braces(struct expander *x, struct buf *out)
{
    const char *name = x->at;
    size_t len = name_length(name);

    if (len == 0)
        return err_usage(x->err, "${%.8s: expected the name of a variable", name);
    x->at += len;
    const char *value = look_up(x, name, len);
    if (*x->at == '}') {
        x->at++;
        return value ? put(x, value, strlen(value), out) : 0;
    }
    if (!*x->at)
        return err_usage(x->err, "${%.*s: the } is missing", (int)(len < 64 ? len : 64), name);
    if (x->depth == EXPAND_DEPTH)
        return err_usage(x->err, "variables are nested more than %u deep", EXPAND_DEPTH);
    x->depth++;
    int r = modifier(x, name, len, value, out);
    x->depth--;
    return r;
}

static int dollar(struct expander *x, struct buf *out)
{
    if (*++x->at == '{') {
        x->at++;
        return in_braces(x, out);
    }
    size_t len = name_length(x->at);
    if (len == 0)
        return put(x, "$", 1, out);
    const char *value = look_up(x, x->at, len);
    x->at += len;
    return value ? put(x, value, strlen(value), out) : 0;
}

static int single_quotes(struct expander *x, struct buf *out)
{
    const char *begin = x->at + 1, *end = strchr(begin, '\'');

    if (!end)
        return err_usage(x->err, "the ' that ends %.32s is missing", x->at);
    x->at = end + 1;
    return put(x, begin, (size_t)(end - begin), out);
}

static int double_quotes(struct expander *x, struct buf *out)
{
    const char *begin = x->at++;
    int r = 0;

    while (r == 0 && *x->at && *x->at != '"') {
        if (*x->at == '$') {
            r = dollar(x, out);
            continue;
        }
        if (*x->at == x->scope->escape && x->at[1] &&
            (x->at[1] == '"' || x->at[1] == '$' || x->at[1] == x->scope->escape))
            x->at++;
        r = put(x, x->at++, 1, out);
    }
    if (r == 0 && *x->at++ != '"')
        return err_usage(x->err, "the \" that ends %.32s is missing", begin);
    return r;
}

/* The escape character and what it keeps. */
static int escaped(struct expander *x, struct buf *out)
{
    char next = x->at[1];
    bool here = x->scope->keep_quotes;

    if (here && next != '$' && next != x->scope->escape)
        return put(x, x->at++, 1, out);
    x->at++;
    return next ? put(x, x->at++, 1, out) : 0;
}

static int expand_until(struct expander *x, char stop, struct buf *out)
{
    bool quotes = !x->scope->keep_quotes;
    const char *begin = x->at;
    int r = 0;

    while (r == 0 && *x->at && *x->at != stop) {
        if (*x->at == '$')
            r = dollar(x, out);
        else if (quotes && *x->at == '\'')
            r = single_quotes(x, out);
        else if (quotes && *x->at == '"')
            r = double_quotes(x, out);
        else if (*x->at == x->scope->escape)
            r = escaped(x, out);
        else
            r = put(x, x->at++, 1, out);
    }
    if (r == 0 && stop && !*x->at)
        return err_usage(x->err, "the %c behind %.32s is missing", stop, begin);
    return r;
}

int dockerfile_expand(const char *text, const struct dockerfile_scope *scope, struct buf *out, struct brig_err *err)
{
    struct expander x = {.at = text, .scope = scope, .err = err};

    return expand_until(&x, '\0', out);
}
