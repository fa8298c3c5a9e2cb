/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requirement.c: requirements as tenants write them, judged before an installer sees them. pip and npm take far more
 * than names: options that move the index or the target, paths, URLs, git repositories, aliases. What runs in the
 * install sandbox is the installer with a network to package indexes only, so none of these would be an escape; but
 * they would fetch what no lock can name, and a set is read by every run that asks for the same words. So only names
 * with extras and versions pass, by an allow-list of characters, unless the administrator said otherwise ([tools]
 * allow_urls). Even then there is no control character: each requirement is one line of a file.
 *
 * Both installers guess: a word that ends in .whl or .tgz is a file to them, whatever stands before. Those are paths
 * here too.
 */
#include <string.h>

#include "base/ascii.h"
#include "base/str.h"
#include "base/utf8.h"
#include "records/requirement.h"

/* pip's ARCHIVE_EXTENSIONS; npm's are among them. */
static const char *const archives[] = {".zip", ".whl",    ".tar",     ".tgz",    ".tbz",    ".txz",
                                       ".tlz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.lz", ".tar.lzma"};

static bool is_one_of(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

static size_t span(const char *text, const char *also)
{
    size_t n = 0;

    while (ascii_is_alnum(text[n]) || is_one_of(text[n], also))
        n++;
    return n;
}

static const char *skip_blanks(const char *p)
{
    return p + strspn(p, " ");
}

static bool ends_as_archive(const char *text, size_t len)
{
    for (size_t i = 0; i < ARRAY_SIZE(archives); i++) {
        size_t n = strlen(archives[i]);
        if (len >= n && strncasecmp(text + len - n, archives[i], n) == 0)
            return true;
    }
    return false;
}

static int refuse(const char *text, const char *why, struct brig_err *err)
{
    return err_usage(err, "requirement \"%.120s\": %s", text, why);
}

/* What holds for every requirement, also where URLs are allowed. */
static int check_bytes(const char *text, size_t max, struct brig_err *err)
{
    size_t len = strnlen(text, max + 1);

    if (len == 0 || *skip_blanks(text) == '\0')
        return err_usage(err, "a requirement is empty");
    if (len > max)
        return err_usage(err, "requirement \"%.60s...\": at most %zu bytes", text, max);
    for (size_t i = 0; i < len;) {
        uint32_t point = 0;
        size_t n = utf8_sequence(text + i, len - i, &point);
        if (n == 0)
            return refuse(text, "not UTF-8", err);
        /* Python's splitlines() ends a line there too. */
        if (utf8_is_control(point) || point == 0x2028 || point == 0x2029)
            return refuse(text, "has a control character", err);
        i += n;
    }
    return 0;
}

/* Names the wrong thing where it can be told apart, for people. */
static int refuse_kind(const char *text, bool npm, struct brig_err *err)
{
    const char *p = skip_blanks(text);
    size_t len = strlen(p);

    if (*p == '-')
        return refuse(text, "options are not allowed", err);
    if (strstr(p, "://") || strncasecmp(p, "git+", 4) == 0 || strstr(p, "@git+") || strstr(p, "file:") ||
        strstr(p, "npm:") || strstr(p, "github:"))
        return refuse(text, "URLs are not allowed", err);
    if (*p == '.' || *p == '/' || *p == '~' || strchr(p, '\\') || ends_as_archive(p, len) ||
        (strchr(p, '/') && !(npm && *p == '@')))
        return refuse(text, "paths are not allowed", err);
    if (!npm && strchr(p, '@'))
        return refuse(text, "URLs are not allowed", err);
    if (!npm && strchr(p, ';'))
        return refuse(text, "markers are not allowed here", err);
    return refuse(text, npm ? "not a name with a version" : "not a name with extras and versions", err);
}

/* ---- pip -------------------------------------------------------------------------------------------------- */

/* PEP 508's name: letters, digits, and between them - _ . */
static const char *pip_name(const char *p)
{
    size_t n = span(p, "-_.");

    return n > 0 && ascii_is_alnum(p[0]) && ascii_is_alnum(p[n - 1]) && !ends_as_archive(p, n) ? p + n : NULL;
}

static const char *pip_extras(const char *p)
{
    if (*p != '[')
        return p;
    do {
        p = pip_name(skip_blanks(p + 1));
        if (!p)
            return NULL;
        p = skip_blanks(p);
    } while (*p == ',');
    return *p == ']' ? skip_blanks(p + 1) : NULL;
}

static const char *pip_clause(const char *p)
{
    static const char *const operators[] = {"===", "==", "~=", "!=", "<=", ">=", "<", ">"};

    for (size_t i = 0; i < ARRAY_SIZE(operators); i++) {
        if (!str_starts(p, operators[i]))
            continue;
        p = skip_blanks(p + strlen(operators[i]));
        size_t n = span(p, ".*+!-_");
        return n > 0 && ascii_is_alnum(p[0]) ? skip_blanks(p + n) : NULL;
    }
    return NULL;
}

/* Where name, extras and versions end, or NULL. */
static const char *pip_requirement(const char *text)
{
    const char *p = pip_name(skip_blanks(text));

    if (p)
        p = pip_extras(skip_blanks(p));
    if (!p || *p == '\0' || *p == ';' || str_starts(p, "--hash="))
        return p;
    for (;;) {
        p = pip_clause(p);
        if (!p || *p != ',')
            return p;
        p = skip_blanks(p + 1);
    }
}

/* ---- npm -------------------------------------------------------------------------------------------------- */

static size_t npm_part(const char *p)
{
    size_t n = span(p, "-_.~");

    return n > 0 && (ascii_is_alnum(p[0]) || p[0] == '~') ? n : 0;
}

/* A range or a tag: npm takes what begins with a dot, or ends as an archive, for a file. */
static bool npm_version(const char *p)
{
    size_t n = span(p, ".+-*^~<>=| ");

    return n > 0 && p[n] == '\0' && p[0] != '.' && p[0] != ' ' && p[0] != '-' && p[n - 1] != ' ' &&
           !ends_as_archive(p, n);
}

static bool npm_requirement(const char *text)
{
    const char *p = text;
    size_t n;

    if (*p == '@') {
        n = npm_part(p + 1);
        if (n == 0 || p[1 + n] != '/')
            return false;
        p += n + 2;
    }
    n = npm_part(p);
    if (n == 0 || (size_t)(p + n - text) > 214 || ends_as_archive(p, n) || *p == '~')
        return false;
    p += n;
    if (*p == '\0')
        return strcasecmp(text, "node_modules") != 0;
    return *p == '@' && npm_version(p + 1);
}

int requirement_ok(const char *text, bool npm, bool allow_urls, struct brig_err *err)
{
    int r = check_bytes(text, REQUIREMENT_MAX, err);

    if (r < 0)
        return r;
    if (allow_urls) /* a backslash at the end would join the next line to it, a # would cut it */
        return text[strlen(text) - 1] == '\\' ? refuse(text, "ends in a backslash", err) : 0;
    if (npm)
        return npm_requirement(text) ? 0 : refuse_kind(text, true, err);
    const char *end = pip_requirement(text);
    return end && *end == '\0' && !ends_as_archive(text, strlen(text)) ? 0 : refuse_kind(text, false, err);
}

/* ---- lines of a requirements.txt -------------------------------------------------------------------------------- */

/* Names, quoted strings, comparisons, and/or, parentheses. The installer reads it; nothing in it can name a file or a
 * place. */
static const char *marker(const char *p)
{
    for (;;) {
        p += span(p, " _.<>=!~()");
        if (*p != '"' && *p != '\'')
            return p;
        size_t n = span(p + 1, " _.-+*,#");
        if (p[1 + n] != *p)
            return p;
        p += n + 2;
    }
}

static const char *hashes(const char *p)
{
    while (str_starts(p, "--hash=")) {
        p += strlen("--hash=");
        if (!str_starts(p, "sha256:") && !str_starts(p, "sha384:") && !str_starts(p, "sha512:"))
            return NULL;
        p += strlen("sha256:");
        size_t n = strspn(p, "0123456789abcdef");
        if (n < 64)
            return NULL;
        p = skip_blanks(p + n);
    }
    return p;
}

int requirement_line_ok(const char *line, bool allow_urls, struct brig_err *err)
{
    int r = check_bytes(line, REQUIREMENT_LINE_MAX, err);

    if (r < 0 || allow_urls)
        return r;
    const char *p = pip_requirement(line);
    if (p && !ends_as_archive(line, (size_t)(p - line))) {
        if (*p == ';')
            p = marker(p + 1);
        p = hashes(skip_blanks(p));
        if (p && *p == '\0')
            return 0;
    }
    return refuse_kind(line, false, err);
}

bool requirement_pinned(const char *line)
{
    const char *p = pip_name(skip_blanks(line));

    if (p)
        p = pip_extras(skip_blanks(p));
    if (!p || !str_starts(p, "==") || p[2] == '=')
        return false;
    const char *end = pip_clause(p);
    if (!end || memchr(p, '*', (size_t)(end - p)))
        return false;
    if (*end == ';')
        end = marker(end + 1);
    const char *after = hashes(skip_blanks(end));
    return after && after > end && *after == '\0';
}

/* The next physical line is joined on where this one ends in a backslash; " #" begins a comment. Returns where the next
 * logical line begins. */
static const char *next_line(const char *text, char *out, size_t size, bool *ret_fits)
{
    size_t n = 0;

    *ret_fits = true;
    for (;;) {
        size_t len = strcspn(text, "\n"), used = len;
        while (used > 0 && (text[used - 1] == '\r' || text[used - 1] == ' ' || text[used - 1] == '\t'))
            used--;
        bool joined = used > 0 && text[used - 1] == '\\', comment = false;
        for (size_t i = 0; i < used - joined && !comment; i++) {
            comment = text[i] == '#' && (i == 0 || text[i - 1] == ' ' || text[i - 1] == '\t');
            if (!comment && n + 1 < size)
                out[n++] = text[i] == '\t' ? ' ' : text[i];
            else if (!comment)
                *ret_fits = false;
        }
        text += len + (text[len] == '\n');
        if (!joined || comment || *text == '\0')
            break;
    }
    while (n > 0 && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
    return text;
}

int requirements_read(const char *text, bool allow_urls, int (*put)(void *ctx, const char *line), void *ctx,
                      struct brig_err *err)
{
    char line[REQUIREMENT_LINE_MAX + 2];
    size_t count = 0;
    bool fits;

    if (strnlen(text, REQUIREMENTS_TXT_MAX + 1) > REQUIREMENTS_TXT_MAX)
        return err_usage(err, "requirements.txt: at most %u bytes", REQUIREMENTS_TXT_MAX);
    while (*text) {
        text = next_line(text, line, sizeof line, &fits);
        const char *p = skip_blanks(line);
        if (*p == '\0')
            continue;
        if (!fits)
            return err_usage(err, "requirements.txt: \"%.60s...\": at most %u bytes a line", p, REQUIREMENT_LINE_MAX);
        if (++count > REQUIREMENTS_MAX)
            return err_usage(err, "requirements.txt: at most %u requirements", REQUIREMENTS_MAX);
        int r = requirement_line_ok(p, allow_urls, err);
        if (r == 0)
            r = put(ctx, p);
        if (r < 0)
            return r;
    }
    return 0;
}
