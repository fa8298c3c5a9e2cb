/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_only.c: which paths of a tree `pack --only` writes: those that COPY --from needs to find its sources in the
 * archive as it would in the tree. These are the sources with all below them, the directories above them, and every
 * symbolic link on the way to them with what it leads to.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/path.h"
#include "base/str.h"
#include "codec/dockerfile/path_match.h"
#include "layer/layer.h"

/* ---- patterns ---------------------------------------------------------------------------------------------- */

/* The length of the directories of a path that come before the first one with a wildcard, or of all of it. */
static size_t fixed_part(const char *path)
{
    size_t fixed = 0;

    for (const char *part = path; *part;) {
        size_t len = strcspn(part, "/");

        if (path_has_wildcard(part, len))
            return fixed;
        part += len + (part[len] == '/');
        fixed = (size_t)(part - path);
    }
    return fixed;
}

/* Takes backslashes away from a path that has no other wildcards. */
static void unescape(char *path)
{
    char *out = path;

    for (const char *at = path; *at; at++) {
        at += *at == '\\' && at[1];
        *out++ = *at;
    }
    *out = '\0';
}

int pattern_split(const char *source, char fixed[TAR_NAME_MAX + 1], const char **ret_pattern,
                  char clean[TAR_NAME_MAX + 1], struct brig_err *err)
{
    int len = path_clean(source, clean, TAR_NAME_MAX + 1);
    size_t n;

    if (len < 0)
        return layer_fail(err, source, 0, "a path of more than %u bytes", TAR_NAME_MAX);
    n = fixed_part(clean);
    memcpy(fixed, clean, n);
    fixed[n] = '\0';
    *ret_pattern = clean + n;
    if (!path_pattern_valid(*ret_pattern))
        return layer_fail(err, source, 0, "the pattern is malformed");
    unescape(fixed);
    return 0;
}

/* ---- paths ------------------------------------------------------------------------------------------------- */

struct only {
    struct view view;
    struct layer_own *own;
};

/* A path and the directories above it; with `whole` all that is below it too. */
static int want(struct layer_own *own, const char *path, bool whole)
{
    char slash[TAR_NAME_MAX + 2];
    int len = str_format(slash, sizeof(slash), "%s/", path);

    for (int i = 0; i < len; i++)
        if (slash[i] == '/' && own_add(own, path, (size_t)i) < 0)
            return -ENOMEM;
    return len < 0 ? len : whole && own_add(own, slash, (size_t)len) < 0 ? -ENOMEM : 0;
}

static int passed(void *ctx, const char *path)
{
    return want(ctx, path, false);
}

static int want_path(struct only *only, const char *path, bool must, struct brig_err *err)
{
    struct view_path place;
    int r = view_resolve(&only->view, path, &place, err);

    if (r < 0)
        return r;
    if (place.kind == VIEW_MISSING)
        return must ? layer_fail(err, path, 0, "there is no such file") : 0;
    return want(only->own, place.path, true) < 0 ? err_nomem(err) : 0;
}

/* How deep below its first directory a pattern can match: only a slash and a class match a slash. */
static unsigned levels_of(const char *pattern)
{
    unsigned n = 0;

    if (strchr(pattern, '/'))
        for (; *pattern; pattern++)
            n += *pattern == '/' || *pattern == '[';
    return n;
}

/* What lies deeper than `levels` directories is not read. */
static int match_below(struct only *only, const char *dir, const char *pattern, const char *rel, unsigned levels,
                       struct brig_err *err)
{
    __attribute__((cleanup(names_done))) struct names names = {0};
    int fd = openat(only->view.root, *dir ? dir : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
        r = fd < 0 ? -errno : names_read(fd, &names);

    if (r < 0)
        return layer_fail(err, dir, -r, "it cannot be read");
    for (size_t i = 0; i < names.n && r == 0; i++) {
        char path[TAR_NAME_MAX + 1], below[TAR_NAME_MAX + 1];
        enum view_kind kind;

        if (str_format(path, sizeof(path), "%s%s%s", dir, *dir ? "/" : "", names.list[i]) < 0 ||
            str_format(below, sizeof(below), "%s%s%s", rel, *rel ? "/" : "", names.list[i]) < 0)
            continue; /* no archive could hold it */
        if (path_match(pattern, below)) {
            r = want_path(only, path, false, err);
        } else if (levels > 0) {
            r = view_look(only->view.root, path, &kind, err);
            if (r == 0 && kind == VIEW_DIR)
                r = match_below(only, path, pattern, below, levels - 1, err);
        }
    }
    return r;
}

static int want_pattern(struct only *only, const char *source, struct brig_err *err)
{
    char clean[TAR_NAME_MAX + 1], fixed[TAR_NAME_MAX + 1];
    const char *pattern;
    struct view_path place;
    int r = pattern_split(source, fixed, &pattern, clean, err);

    if (r < 0)
        return r;
    if (!*pattern)
        return want_path(only, fixed, true, err);
    const unsigned levels = levels_of(pattern);
    if (levels >= LAYER_DEPTH_MAX)
        return layer_fail(err, source, 0, "a pattern of more than %u directories", LAYER_DEPTH_MAX);
    r = view_resolve(&only->view, fixed, &place, err);
    return r < 0 || place.kind != VIEW_DIR ? r : match_below(only, place.path, pattern, "", levels, err);
}

int only_init(struct layer_own *own, int root, const struct layer_options *options, struct brig_err *err)
{
    struct only only = {.view = {.root = root, .passed = passed, .ctx = own}, .own = own};
    int r = own_init(own, err);

    for (size_t i = 0; i < options->n_list && r == 0; i++)
        r = want_pattern(&only, options->list[i], err);
    return r;
}
