/* SPDX-License-Identifier: Apache-2.0 */
/* path.c: paths as text, see path.h. It allocates nothing. */
#include "base/path.h"

#include <errno.h>
#include <string.h>

/* Goes on from the *used bytes that are in out. */
static int append(const char *path, char *out, size_t size, size_t *used)
{
    for (const char *part = path; *part;) {
        size_t n = strcspn(part, "/");

        if (n == 2 && part[0] == '.' && part[1] == '.') {
            while (*used > 0 && out[--*used] != '/')
                ;
        } else if (n > 0 && !(n == 1 && part[0] == '.')) {
            if (*used + (*used > 0) + n + 1 > size)
                return -ENAMETOOLONG;
            if (*used > 0)
                out[(*used)++] = '/';
            memcpy(out + *used, part, n);
            *used += n;
        }
        part += n + (part[n] == '/');
    }
    if (size == 0)
        return -ENAMETOOLONG;
    out[*used] = '\0';
    return (int)*used;
}

int path_clean(const char *path, char *out, size_t size)
{
    return path_clean_below("", path, out, size);
}

int path_clean_below(const char *base, const char *path, char *out, size_t size)
{
    size_t used = 0;
    int r = append(path[0] == '/' ? "" : base, out, size, &used);

    return r < 0 ? r : append(path, out, size, &used);
}

int path_clean_absolute(const char *base, const char *path, char *out, size_t size)
{
    int r = size < 2 ? -ENAMETOOLONG : path_clean_below(base, path, out + 1, size - 1);

    if (r < 0)
        return r;
    out[0] = '/';
    return r + 1;
}

bool path_is_in(const char *path, const char *dir)
{
    size_t len = strcmp(dir, "/") == 0 ? 0 : strlen(dir);

    return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}
