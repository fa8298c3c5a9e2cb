/* SPDX-License-Identifier: Apache-2.0 */
/* build_words.c: texts and lists of a build, in its arena, and the variables of its steps. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "build/build_priv.h"
#include "template/platform.h"

const char *build_copy(struct build *build, const char *text, size_t len)
{
    return arena_copy(build->arena, text, len);
}

/* An array of its own, twice as long as what is there. */
static int make_room(struct build *build, struct build_list *list)
{
    size_t room = list->n * 2 + 4;
    const char **items = arena_alloc(build->arena, room * sizeof *items);

    if (!items)
        return -ENOMEM;
    if (list->n > 0)
        memcpy(items, list->items, list->n * sizeof *items);
    *list = (struct build_list){.items = items, .n = list->n, .room = room};
    return 0;
}

int list_add(struct build *build, struct build_list *list, const char *text)
{
    if (!text || (list->n == list->room || list->room == 0 ? make_room(build, list) : 0) < 0)
        return -ENOMEM;
    ((const char **)list->items)[list->n++] = text;
    return 0;
}

int list_put(struct build *build, struct build_list *list, size_t at, const char *text)
{
    if (list->room == 0 && make_room(build, list) < 0)
        return -ENOMEM;
    ((const char **)list->items)[at] = text;
    return 0;
}

int list_take(struct build *build, struct build_list *list, const char *const *items, size_t n)
{
    const char **copies = arena_alloc(build->arena, (n + 1) * sizeof *copies);

    if (!copies)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (!(copies[i] = build_keep(build, items[i])))
            return -ENOMEM;
    copies[n] = NULL;
    *list = (struct build_list){.items = copies, .n = n};
    return 0;
}

/* Where it is in the list, or n. */
static size_t place_of(const struct build_list *list, const char *name, size_t len)
{
    size_t i = list->n;

    while (i > 0 && !(strncmp(list->items[i - 1], name, len) == 0 && list->items[i - 1][len] == '='))
        i--;
    return i > 0 ? i - 1 : list->n;
}

const char *list_get(const struct build_list *list, const char *name, size_t len)
{
    size_t i = place_of(list, name, len);

    return i < list->n ? list->items[i] + len + 1 : NULL;
}

int list_set(struct build *build, struct build_list *list, const char *name, const char *value)
{
    size_t name_len = strlen(name), len = strlen(value), at = place_of(list, name, name_len);
    char *text = arena_alloc(build->arena, name_len + len + 2);

    if (!text)
        return -ENOMEM;
    memcpy(text, name, name_len);
    text[name_len] = '=';
    memcpy(text + name_len + 1, value, len + 1);
    return at == list->n ? list_add(build, list, text) : list_put(build, list, at, text);
}

int step_refuse(struct brig_err *err, const struct dockerfile_step *step, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args); /* a message: what does not fit is cut */
    va_end(args);
    return err_usage(err, "line %u: %s: %s", step->line, dockerfile_op_name(step->op), text);
}

static int count_names(struct build *build, const struct dockerfile_step *step, size_t n, struct brig_err *err)
{
    build->names += n;
    if (build->names <= BUILD_NAMES_MAX)
        return 0;
    return step_refuse(err, step, "the build sets and uses more than %u variables, labels, ports and volumes",
                       BUILD_NAMES_MAX);
}

int step_count(struct build *build, const struct dockerfile_step *step, struct brig_err *err)
{
    return count_names(build, step, step->n_pairs + step->n_words, err);
}

const char *step_flag(const struct dockerfile_step *step, const char *name)
{
    for (size_t i = step->n_flags; i-- > 0;)
        if (str_eq(step->flags[i].name, name))
            return step->flags[i].value ? step->flags[i].value : "";
    return NULL;
}

/* ---- variables ---------------------------------------- */

/* Arguments that every build has: what it is built for and on, which is one platform here. */
const char *platform_arg(const char *name, size_t len)
{
    static char texts[4][PLATFORM_TEXT];
    static const char *const names[] = {"PLATFORM", "OS", "ARCH", "VARIANT"};
    struct platform host;

    if (len < 6 || (strncmp(name, "TARGET", 6) != 0 && strncmp(name, "BUILD", 5) != 0))
        return NULL;
    size_t skip = *name == 'T' ? 6 : 5;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strlen(names[i]) != len - skip || strncmp(name + skip, names[i], len - skip) != 0)
            continue;
        platform_host(&host);
        if (i == 0)
            platform_text(&host, texts[0]);
        else
            str_cut(texts[i], sizeof texts[i], i == 1 ? host.os : i == 2 ? host.arch : host.variant);
        return texts[i];
    }
    return NULL;
}

/* Each is searched for in lists: past the bound nothing is, and expand() refuses the word. */
static bool may_look(struct build *build)
{
    return ++build->names <= BUILD_NAMES_MAX;
}

static const char *look_global(void *ctx, const char *name, size_t len)
{
    struct build *build = ctx;

    if (!may_look(build))
        return NULL;
    const char *value = list_get(&build->globals, name, len);

    return value ? value : platform_arg(name, len);
}

static const char *look_stage(void *ctx, const char *name, size_t len)
{
    const struct build_stage *stage = ctx;

    if (!may_look(stage->build))
        return NULL;
    const char *value = list_get(&stage->image.env, name, len); /* ENV counts more than ARG */

    return value ? value : list_get(&stage->image.args, name, len);
}

static int expand(struct build *build, const struct dockerfile_step *step, const char *text,
                  const struct dockerfile_scope *scope, const char **ret, struct brig_err *err)
{
    AUTO_BUF struct buf out = BUF_INIT(BUILD_WORD_MAX);
    struct brig_err why = {0};
    int r = dockerfile_expand(text, scope, &out, &why);

    if (r < 0)
        return why.code ? step_refuse(err, step, "%s", why.message) : err_nomem(err);
    r = count_names(build, step, 0, err);
    if (r < 0)
        return r;
    build->expanded += out.len;
    if (build->expanded > BUILD_EXPANDED_MAX)
        return step_refuse(err, step, "the words of the build have more than %u MiB with their variables replaced",
                           BUILD_EXPANDED_MAX >> 20);
    *ret = build_copy(build, out.len ? out.data : "", out.len);
    return *ret ? 0 : err_nomem(err);
}

int stage_expand(struct build_stage *stage, const struct dockerfile_step *step, const char *text, const char **ret,
                 struct brig_err *err)
{
    const struct dockerfile_scope scope = {
        .lookup = look_stage, .ctx = stage, .escape = dockerfile_escape(stage->build->file)};

    return expand(stage->build, step, text, &scope, ret, err);
}

int stage_expand_here(struct build_stage *stage, const struct dockerfile_step *step, const char *text, const char **ret,
                      struct brig_err *err)
{
    const struct dockerfile_scope scope = {
        .lookup = look_stage, .ctx = stage, .escape = dockerfile_escape(stage->build->file), .keep_quotes = true};

    return expand(stage->build, step, text, &scope, ret, err);
}

int build_expand_global(struct build *build, const struct dockerfile_step *step, const char *text, const char **ret,
                        struct brig_err *err)
{
    const struct dockerfile_scope scope = {
        .lookup = look_global, .ctx = build, .escape = dockerfile_escape(build->file)};

    return expand(build, step, text, &scope, ret, err);
}
