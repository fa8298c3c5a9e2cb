/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_env.c: reads the environment that the user adds with -e and --env-file. The program's environment is built from
 * nothing: no flag copies a variable of the caller, because the caller of an agent's tool holds keys. An environment
 * file is data: no quoting, no expansion, no export.
 */
#include <fcntl.h>
#include <string.h>

#include "base/ascii.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/flags.h"
#include "cli/run/run.h"

#define ENV_FILE_MAX ((size_t)1 << 20)

static int list_add(struct run_list *list, const char *item, struct brig_err *err)
{
    if (MEM_GROW(list->items, list->n + 1, list->cap) < 0)
        return err_nomem(err);
    list->items[list->n++] = item;
    list->items[list->n] = NULL;
    return 0;
}

int run_env_flag(void *ctx, const struct flag *flag UNUSED, const char *given, char *value, struct brig_err *err)
{
    struct run_options *options = ctx;
    const char *equals = strchr(value, '=');
    if (!equals)
        return flag_refuse(err, given, value, "must be K=V; no variable is taken from your environment");
    if (equals == value)
        return flag_refuse(err, given, value, "must be K=V; the name is empty");
    return list_add(&options->env_flag, value, err);
}

static int add_line(struct run_options *options, const char *path, unsigned line, char *text, size_t len,
                    struct brig_err *err)
{
    size_t blank = strspn(text, " \t");
    if (text[blank] == '\0' && blank == len)
        return 0;
    if (text[blank] == '#')
        return 0;
    if (strlen(text) != len)
        return err_usage(err, "--env-file %.80s: line %u: has a NUL byte", path, line);
    if (text[len - 1] == '\r')
        return err_usage(err, "--env-file %.80s: line %u: ends with a carriage return", path, line);
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return err_usage(err, "--env-file %.80s: line %u: %.60s: must be K=V", path, line, text);
    return list_add(&options->env_file, text, err);
}

/* The whole file with a NUL after it. A pipe will do. */
static int read_file(struct run_options *options, const char *path, char **ret, size_t *ret_len, struct brig_err *err)
{
    char *text = run_options_alloc(options, ENV_FILE_MAX + 1);

    if (!text)
        return err_nomem(err);
    ssize_t len = fd_read_file(AT_FDCWD, path, text, ENV_FILE_MAX + 1);
    if (len == -EFBIG)
        return err_usage(err, "--env-file %.120s: larger than 1 MiB", path);
    if (len < 0)
        return err_set(err, BRIG_E_USAGE, (int)-len, "--env-file %.120s", path);
    *ret = text;
    *ret_len = (size_t)len;
    return 0;
}

int run_env_file(void *ctx, const struct flag *flag UNUSED, const char *given, char *value, struct brig_err *err)
{
    struct run_options *options = ctx;
    char *text = NULL;
    size_t len = 0;
    if (*value == '\0')
        return flag_refuse(err, given, value, "the value is empty");
    int r = read_file(options, value, &text, &len, err);
    for (unsigned line = 1; r == 0 && len > 0; line++) {
        char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t)(end - text) : len;
        text[n] = '\0';
        r = n > 0 ? add_line(options, value, line, text, n, err) : 0;
        n += end != NULL;
        text += n;
        len -= n;
    }
    return r;
}

/* It names a file of the terminfo data base inside. */
const char *run_env_terminal(void)
{
    const char *type = getenv("TERM");

    return type && str_is_name(type, 64, ASCII_ALNUM "-_.+", ASCII_ALNUM "-_.+") ? type : "xterm";
}

int run_env_finish(struct run_options *options, struct brig_err *err)
{
    struct run_list *list = &options->env_file;
    if (options->tty) {
        const char *type = run_env_terminal();
        size_t size = strlen("TERM=") + strlen(type) + 1;
        char *entry = run_options_alloc(options, size);
        if (!entry)
            return err_nomem(err);
        snprintf(entry, size, "TERM=%s", type);
        /* First of all, so that both --env-file and -e can say otherwise. */
        int r = list_add(list, entry, err);
        if (r < 0)
            return r;
        memmove(list->items + 1, list->items, (list->n - 1) * sizeof(*list->items));
        list->items[0] = entry;
    }
    for (size_t i = 0; i < options->env_flag.n; i++) {
        int r = list_add(list, options->env_flag.items[i], err);
        if (r < 0)
            return r;
    }
    options->spec.env = list->items;
    return 0;
}
