/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dockerignore.c: the patterns of .dockerignore (dockerignore.h), with the meaning that Docker gives them: a pattern is
 * cut into elements, and the set of places in the path that can be reached is moved over one element after the other.
 * The work is the product of both lengths at most, whatever the pattern.
 */
#include "codec/dockerfile/dockerignore.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/str.h"
#include "base/utf8.h"
#include "codec/dockerfile/path_match.h"

struct pattern {
    bool negated;
    bool is_end; /* `**` and a text without a wildcard or backslash */
    bool plain;  /* It has no wildcard and no backslash: only the text itself matches. */
    size_t stem; /* The bytes before its first wildcard or backslash. */
    char text[];
};

struct dockerignore {
    struct pattern **list;
    size_t n, cap, n_negated;
};

/* ---- one pattern ------------------------------------------------------------------------------------------ */

/* The places in a path, and the range in which any may be set. */
struct places {
    uint8_t set[DOCKERIGNORE_PATH_MAX + 1];
    size_t low, high; /* low > high: none */
};

static void places_add(struct places *places, size_t at)
{
    if (places->low > places->high)
        places->low = places->high = at;
    places->low = at < places->low ? at : places->low;
    places->high = at > places->high ? at : places->high;
    places->set[at] = 1;
}

/* `*`: from each place on to the next slash. */
static void pass_star(struct places *places, const char *path, size_t len)
{
    for (size_t at = places->low; at <= places->high && at < len; at++)
        if (places->set[at] && path[at] != '/')
            places_add(places, at + 1);
}

/* `**`: behind any slash that follows, or here. At the end of a pattern: to the end of the path. */
static void pass_directories(struct places *places, const char *path, size_t len, bool last)
{
    size_t from = places->low;

    if (last)
        places_add(places, len);
    else
        for (size_t at = from; at < len; at++)
            if (path[at] == '/')
                places_add(places, at + 1);
}

/*
 * Any other element matches one character, as path_match() has it. The places are gone through from the last one down,
 * so that those that are added are not looked at.
 */
static void pass_one(struct places *places, const char *path, const char *element, size_t len)
{
    const bool literal = !strchr("?[\\", *element);
    char pattern[DOCKERIGNORE_PATTERN_MAX];
    size_t low = places->low, high = places->high;

    memcpy(pattern, element, len);
    pattern[len] = '\0';
    places->low = 1, places->high = 0;
    for (size_t at = high + 1; at-- > low;) {
        char one[5] = {0};
        size_t n;

        if (!places->set[at])
            continue;
        places->set[at] = 0;
        if (path[at] == '\0')
            continue;
        n = utf8_sequence(path + at, strnlen(path + at, 4), NULL);
        n = n > 0 ? n : 1;
        memcpy(one, path + at, n);
        if (literal ? n == len && memcmp(one, element, n) == 0 : path_match(pattern, one))
            places_add(places, at + n);
    }
}

/* The length of an element that is no star: a class, an escaped character or a character. */
static size_t element_len(const char *at)
{
    size_t n;

    if (*at == '[') {
        const char *end = at + 1 + (at[1] == '^'); /* the pattern is valid, so it is not empty */
        do
            end += *end == '\\' ? 2 : 1;
        while (*end != ']');
        return (size_t)(end + 1 - at);
    }
    n = utf8_sequence(at + (*at == '\\'), strnlen(at + (*at == '\\'), 4), NULL);
    return (*at == '\\') + (n > 0 ? n : 1);
}

/* The pattern from `at` on, against the path from `from` on. */
static bool match_text(const char *at, const char *path, size_t from, size_t len)
{
    struct places places;

    memset(places.set, 0, len + 1);
    places.low = places.high = from;
    places.set[from] = 1;
    while (*at && places.low <= places.high) {
        if (at[0] == '*' && at[1] == '*') {
            at += 2;
            at += *at == '/';
            pass_directories(&places, path, len, *at == '\0');
        } else if (*at == '*') {
            pass_star(&places, path, len);
            at++;
        } else {
            size_t n = element_len(at);

            pass_one(&places, path, at, n);
            at += n;
        }
    }
    return places.low <= places.high && places.set[len];
}

/* Docker takes `**` and a plain text as the end of a path, also of a name. */
static bool match_end(const char *text, const char *path, size_t len)
{
    size_t n = strlen(text);

    return (n <= len && memcmp(path + len - n, text, n) == 0) ||
           (*text == '/' && n - 1 == len && memcmp(path, text + 1, len) == 0);
}

/* Does it match these bytes of the path? */
static bool match_part(const struct pattern *pattern, const char *path, size_t len)
{
    char part[DOCKERIGNORE_PATH_MAX + 1];

    if (strncmp(pattern->text, path, pattern->stem < len ? pattern->stem : len) != 0 || pattern->stem > len)
        return false;
    if (pattern->plain)
        return pattern->stem == len;
    memcpy(part, path, len);
    part[len] = '\0';
    if (pattern->is_end)
        return match_end(pattern->text + 2, part, len);
    return match_text(pattern->text + pattern->stem, part, pattern->stem, len);
}

/* The path itself, or a directory that it is in. */
static bool match_path(const struct pattern *pattern, const char *path)
{
    size_t len = strlen(path);

    for (size_t i = 1; i < len; i++)
        if (path[i] == '/' && match_part(pattern, path, i))
            return true;
    return match_part(pattern, path, len);
}

/* ---- all -------------------------------------------------------------------------------------------------- */

bool dockerignore_matches(const struct dockerignore *ignore, const char *path)
{
    bool matched = false;

    if (!ignore || *path == '\0' || strlen(path) > DOCKERIGNORE_PATH_MAX)
        return false;
    for (size_t i = 0; i < ignore->n; i++)
        if (ignore->list[i]->negated == matched && match_path(ignore->list[i], path))
            matched = !matched;
    return matched;
}

/* May the pattern match something below the directory? Only what precedes its first wildcard is compared. */
static bool may_match_below(const struct pattern *pattern, const char *path, size_t len)
{
    size_t n = pattern->stem < len ? pattern->stem : len;

    if (memcmp(pattern->text, path, n) != 0)
        return false;
    if (pattern->stem <= len) /* a wildcard may go on from here; a plain text must be a directory above */
        return !pattern->plain || pattern->stem == len || path[pattern->stem] == '/';
    return pattern->text[len] == '/';
}

bool dockerignore_prunes(const struct dockerignore *ignore, const char *path)
{
    if (!dockerignore_matches(ignore, path))
        return false;
    for (size_t i = 0; i < ignore->n && ignore->n_negated > 0; i++)
        if (ignore->list[i]->negated && may_match_below(ignore->list[i], path, strlen(path)))
            return false;
    return true;
}

int dockerignore_create(struct dockerignore **ret, struct brig_err *err)
{
    *ret = mem_zalloc(sizeof(**ret));
    return *ret ? 0 : err_nomem(err);
}

void dockerignore_free(struct dockerignore *ignore)
{
    if (!ignore)
        return;
    for (size_t i = 0; i < ignore->n; i++)
        mem_free(ignore->list[i]);
    mem_free(ignore->list);
    mem_free(ignore);
}

static int keep_pattern(struct dockerignore *ignore, const char *text, size_t len, bool negated, struct brig_err *err)
{
    struct pattern *pattern;

    if (ignore->n == ignore->cap) {
        size_t cap = ignore->cap * 2 + 16;
        struct pattern **list = mem_realloc_array(ignore->list, cap, sizeof(*list));
        if (!list)
            return err_nomem(err);
        ignore->list = list;
        ignore->cap = cap;
    }
    pattern = mem_alloc(sizeof(*pattern) + len + 1);
    if (!pattern)
        return err_nomem(err);
    memcpy(pattern->text, text, len + 1);
    pattern->negated = negated;
    pattern->stem = strcspn(text, "*?[\\");
    pattern->plain = pattern->stem == len;
    pattern->is_end = str_starts(text, "**") && !text[2 + strcspn(text + 2, "*?[]\\")];
    ignore->list[ignore->n++] = pattern;
    ignore->n_negated += negated;
    return 0;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static const char *trim(const char *text, size_t *len)
{
    while (*len > 0 && is_blank(*text))
        text++, --*len;
    while (*len > 0 && is_blank(text[*len - 1]))
        --*len;
    return text;
}

/* A pattern as it is written. */
static int add(struct dockerignore *ignore, const char *text, size_t len, struct brig_err *err)
{
    char written[DOCKERIGNORE_PATTERN_MAX], clean[DOCKERIGNORE_PATTERN_MAX];
    bool negated;
    int n;

    text = trim(text, &len);
    negated = len > 0 && *text == '!';
    if (negated) {
        len--;
        text = trim(text + 1, &len);
        if (len == 0)
            return err_set(err, BRIG_E_USAGE, 0, "!: a pattern must follow");
    }
    if (len == 0)
        return 0;
    if (len >= sizeof(written))
        return err_set(err, BRIG_E_USAGE, 0, "%.40s...: a pattern has at most %u bytes", text,
                       DOCKERIGNORE_PATTERN_MAX - 1);
    if (ignore->n == DOCKERIGNORE_MAX_PATTERNS)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "%.*s: more than %u patterns", (int)(len < 80 ? len : 80), text,
                       DOCKERIGNORE_MAX_PATTERNS);
    memcpy(written, text, len);
    written[len] = '\0';
    n = strlen(written) == len ? path_clean(written, clean, sizeof(clean)) : -EINVAL;
    if (n < 0 || !path_pattern_valid(clean))
        return err_set(err, BRIG_E_USAGE, 0, "%.80s: the pattern is malformed", written);
    return n == 0 ? 0 : keep_pattern(ignore, clean, (size_t)n, negated, err); /* nothing leaves the root out */
}

int dockerignore_add(struct dockerignore *ignore, const char *pattern, struct brig_err *err)
{
    return add(ignore, pattern, strlen(pattern), err);
}

static int read_lines(struct dockerignore *ignore, const char *text, size_t len, struct brig_err *err)
{
    const char *end = text + len;
    struct brig_err why = {0};

    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        text += 3;
    for (unsigned line = 1; text < end; line++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t n = newline ? (size_t)(newline - text) : (size_t)(end - text);
        int r = *text == '#' ? 0 : add(ignore, text, n, &why);

        if (r < 0)
            return err_set(err, (enum brig_code)why.code, 0, "line %u: %s", line, why.message);
        text += n + (newline != NULL);
    }
    return 0;
}

int dockerignore_read(const char *text, size_t len, struct dockerignore **ret, struct brig_err *err)
{
    struct dockerignore *ignore = NULL;
    int r;

    if (len > DOCKERIGNORE_MAX_BYTES)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "line 1: the file has more than %u bytes", DOCKERIGNORE_MAX_BYTES);
    r = dockerignore_create(&ignore, err);
    if (r == 0)
        r = read_lines(ignore, text, len, err);
    if (r < 0) {
        dockerignore_free(ignore);
        return r;
    }
    *ret = ignore;
    return 0;
}
