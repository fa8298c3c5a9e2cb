/* SPDX-License-Identifier: Apache-2.0 */
/* dpkg_status.c: which packages dpkg has installed. It reads line by line and keeps one paragraph. */
#include <string.h>

#include "base/ascii.h"
#include "base/err.h"
#include "codec/lock/dpkg_status.h"

#define INSTALLED " installed"

struct paragraph {
    struct dpkg_package package;
    bool installed;
};

bool dpkg_is_word(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] == '\0' || !strchr(ASCII_ALNUM ".+-~:_", text[i]))
            return false;
    return len > 0 && len < DPKG_VALUE;
}

/* Takes the value of a line if it has this name. */
static int take(const char *line, size_t len, const char *name, char out[DPKG_VALUE], struct brig_err *err)
{
    const size_t n = strlen(name);

    if (len < n || memcmp(line, name, n) != 0)
        return 0;
    for (line += n, len -= n; len > 0 && (*line == ' ' || *line == '\t'); len--)
        line++;
    while (len > 0 && (line[len - 1] == ' ' || line[len - 1] == '\t'))
        len--;
    if (!dpkg_is_word(line, len))
        return err_set(err, BRIG_E_INVALID, 0, "%s must have 1 to %u letters, digits or .+-~:_", name, DPKG_VALUE - 1);
    memcpy(out, line, len);
    out[len] = '\0';
    return 0;
}

static int take_line(const char *line, size_t len, struct paragraph *p, struct brig_err *err)
{
    static const char status[] = "Status:";
    const size_t end = strlen(INSTALLED);
    int r = take(line, len, "Package:", p->package.name, err);

    if (r == 0)
        r = take(line, len, "Version:", p->package.version, err);
    if (r == 0)
        r = take(line, len, "Architecture:", p->package.architecture, err);
    if (len > strlen(status) + end && memcmp(line, status, strlen(status)) == 0)
        p->installed = memcmp(line + len - end, INSTALLED, end) == 0;
    return r;
}

static int end_paragraph(struct paragraph *p, dpkg_each_fn *each, void *ctx, struct brig_err *err)
{
    const struct dpkg_package *package = &p->package;
    bool whole = p->installed && package->name[0] && package->version[0] && package->architecture[0];
    int r = whole ? each(ctx, package, err) : 0;

    *p = (struct paragraph){.installed = false};
    return r;
}

int dpkg_status_read(const char *text, size_t len, dpkg_each_fn *each, void *ctx, struct brig_err *err)
{
    struct paragraph p = {.installed = false};
    unsigned long number = 1;
    struct brig_err why = {0};

    for (size_t at = 0; at < len; number++) {
        const char *line = text + at, *newline = memchr(line, '\n', len - at);
        const size_t n = newline ? (size_t)(newline - line) : len - at;
        int r;

        if (n == 0) {
            if ((r = end_paragraph(&p, each, ctx, err)) < 0)
                return r;
        } else if ((r = take_line(line, n, &p, &why)) < 0) {
            return err_set(err, BRIG_E_INVALID, 0, "line %lu: %s", number, why.message);
        }
        at += n + (newline != NULL);
    }
    return end_paragraph(&p, each, ctx, err);
}
