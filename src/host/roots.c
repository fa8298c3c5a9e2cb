/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roots.c: reads the lists of directories that may be shared (roots.h). A list that is wrong anywhere ends the start:
 * half of it is not what the administrator meant.
 */
#include "host/roots.h"

#include <string.h>

#include "base/err.h"
#include "base/str.h"

static bool is_plain(const char *path)
{
    return path[0] == '/' && !strstr(path, "/../") && !strstr(path, "/./") && !strstr(path, "//");
}

int roots_init(struct roots *roots, const char *name, const char *list, struct brig_err *err)
{
    char *save = NULL;

    *roots = (struct roots){0};
    if (!list || !list[0])
        return 0;
    if (str_copy(roots->text, sizeof roots->text, list) < 0)
        return err_usage(err, "%s: longer than %zu bytes", name, sizeof roots->text - 1);
    for (char *path = strtok_r(roots->text, ":", &save); path; path = strtok_r(NULL, ":", &save)) {
        size_t len = strlen(path);
        if (!is_plain(path) || (len >= 3 && strcmp(path + len - 3, "/..") == 0) ||
            (len >= 2 && strcmp(path + len - 2, "/.") == 0))
            return err_usage(err, "%s, %s: must be an absolute path without \".\" and \"..\"", name, path);
        if (roots->n == ROOTS_MAX)
            return err_usage(err, "%s: more than %u directories", name, ROOTS_MAX);
        if (path[len - 1] == '/')
            path[len - 1] = '\0';
        roots->paths[roots->n++] = path;
    }
    return 0;
}

const char *roots_find(const struct roots *roots, const char *path)
{
    const char *best = NULL;

    for (unsigned i = 0; i < roots->n; i++) {
        size_t len = strlen(roots->paths[i]);
        bool inside = strncmp(path, roots->paths[i], len) == 0 && (path[len] == '/' || path[len] == '\0');
        if (inside && (!best || len > strlen(best)))
            best = roots->paths[i];
    }
    return best;
}
