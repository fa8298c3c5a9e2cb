/* SPDX-License-Identifier: Apache-2.0 */
/*
 * template_recipes.c: the recipes that came with brig: directories of share/brig/templates beside the directory of this
 * program, each with a Dockerfile. `brig template build` takes one by its name.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ascii.h"
#include "base/dir.h"
#include "base/str.h"
#include "cli/template/template.h"

#define RECIPES_MAX 256u

static const struct flag_table recipes_table = {
    .usage = "brig template recipes",
    .purpose = "Lists the recipes that came with brig. `brig template build NAME` builds one.",
};

/* BIN/../share/brig/templates: the same for every prefix. */
static bool recipes_dir(char out[4096])
{
    char self[4096];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);

    if (len <= 0)
        return false;
    self[len] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(self, '/');
        if (!slash)
            return false;
        *slash = '\0';
    }
    return str_format(out, 4096, "%s/share/brig/templates", self) > 0;
}

bool template_recipe(const char *name, char out[4096])
{
    char top[4096], file[4200];

    return str_is_name(name, 63, ASCII_ALNUM, ASCII_ALNUM "_.-") && recipes_dir(top) &&
           str_format(out, 4096, "%s/%s", top, name) > 0 && str_format(file, sizeof file, "%s/Dockerfile", out) > 0 &&
           access(file, R_OK) == 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int template_recipes_main(int argc, char **argv)
{
    char top[4096], place[4096], *names[RECIPES_MAX];
    size_t n = 0;
    int rest, status;

    if (!service_parse(&recipes_table, argc, argv, NULL, 0, 0, "", &rest, &status))
        return status;
    AUTO_DIR DIR *dir = recipes_dir(top) ? dir_open(AT_FDCWD, top) : NULL;
    for (const struct dirent *entry; dir && n < RECIPES_MAX && (entry = dir_next(dir));)
        if (template_recipe(entry->d_name, place) && (names[n] = strdup(entry->d_name)))
            n++;
    qsort(names, n, sizeof *names, by_name);
    status = 0;
    for (size_t i = 0; i < n; i++) {
        if (status == 0)
            status = service_say("%s", names[i]);
        free(names[i]);
    }
    return status;
}
