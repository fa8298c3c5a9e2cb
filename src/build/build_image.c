/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_image.c: what an image says about itself, as the steps of a stage change it: environment, user, command and so
 * on. These steps make no layer. At the end it becomes the record of the template.
 */
#include <string.h>

#include "base/clock.h"
#include "build/build_priv.h"
#include "template/platform.h"

#define EXTRAS_MAX (4u << 20)
#define HEALTH_MAX (1u << 20)

/* ---- from a template ---------------------------------------- */

static int take_list(struct build *build, const char *const *from, struct build_list *ret, bool *ret_has)
{
    size_t n = 0;

    if (ret_has)
        *ret_has = from;
    while (from && from[n])
        n++;
    return from ? list_take(build, ret, from, n) : 0;
}

static int take_labels(struct build *build, const struct json_value *labels, struct build_image *ret)
{
    int r = 0;

    for (const struct json_value *v = labels ? labels->first : NULL; r == 0 && v; v = v->next) {
        r = list_add(build, &ret->label_keys, build_copy(build, v->key, v->key_len));
        if (r == 0)
            r = list_add(build, &ret->label_values, build_keep(build, v->type == JSON_STRING ? v->string : ""));
    }
    return r;
}

/* A value of the template as a text of the build's own. */
static int take_json(struct build *build, const struct json_value *value, const char **ret)
{
    AUTO_BUF struct buf out = BUF_INIT(EXTRAS_MAX);
    struct json json = JSON_INIT(&out);

    if (!value)
        return 0;
    json_value_put(&json, value);
    if (json_finish(&json) < 0)
        return -ENOMEM;
    *ret = build_copy(build, out.data, out.len);
    return *ret ? 0 : -ENOMEM;
}

int image_from_template(struct build *build, const struct template_info *info, struct build_image *ret,
                        struct brig_err *err)
{
    const struct template_image *from = &info->image;

    *ret = (struct build_image){.user = build_keep(build, from->user),
                                .workdir = build_keep(build, from->workdir),
                                .stop_signal = build_keep(build, from->stop_signal),
                                .platform = build_keep(build, from->platform)};
    if (!ret->user || !ret->workdir || !ret->stop_signal || !ret->platform ||
        take_list(build, from->env, &ret->env, NULL) < 0 ||
        take_list(build, from->entrypoint, &ret->entrypoint, &ret->has_entrypoint) < 0 ||
        take_list(build, from->cmd, &ret->cmd, &ret->has_cmd) < 0 ||
        take_list(build, from->shell, &ret->shell, &ret->has_shell) < 0 ||
        take_list(build, from->exposed_ports, &ret->exposed, NULL) < 0 ||
        take_list(build, from->volumes, &ret->volumes, NULL) < 0 || take_labels(build, from->labels, ret) < 0 ||
        take_json(build, from->healthcheck, &ret->health) < 0 || take_json(build, info->settings, &ret->settings) < 0)
        return err_nomem(err);
    return 0;
}

/* ---- steps ---------------------------------------- */

/* All values are those from before the step, also where it sets several. */
static int apply_env(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    struct build_list env = list_share(&stage->image.env);

    for (size_t i = 0; i < step->n_pairs; i++) {
        const char *name, *value;
        int r = stage_expand(stage, step, step->pairs[i].name, &name, err);
        if (r == 0)
            r = stage_expand(stage, step, step->pairs[i].value, &value, err);
        if (r < 0)
            return r;
        if (!name[0] || strchr(name, '='))
            return step_refuse(err, step, "%.64s: expected a name", step->pairs[i].name);
        if (list_set(stage->build, &env, name, value) < 0)
            return err_nomem(err);
    }
    stage->image.env = env;
    return 0;
}

static int apply_arg(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    struct build *build = stage->build;

    for (size_t i = 0; i < step->n_pairs; i++) {
        const struct dockerfile_pair *pair = &step->pairs[i];
        const size_t len = strlen(pair->name);
        const char *value = list_get(&build->args, pair->name, len);

        if (value && list_add(build, &build->args_used, pair->name) < 0)
            return err_nomem(err);
        if (!value && pair->value) {
            int r = stage_expand(stage, step, pair->value, &value, err);
            if (r < 0)
                return r;
        }
        if (!value)
            value = list_get(&build->globals, pair->name, len);
        if (!value)
            value = platform_arg(pair->name, len);
        if (value && list_set(build, &stage->image.args, pair->name, value) < 0)
            return err_nomem(err);
    }
    return 0;
}

static int apply_label(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    struct build_image *image = &stage->image;

    for (size_t i = 0; i < step->n_pairs; i++) {
        const char *key, *value;
        size_t at = 0;
        int r = stage_expand(stage, step, step->pairs[i].name, &key, err);
        if (r == 0)
            r = stage_expand(stage, step, step->pairs[i].value, &value, err);
        if (r < 0)
            return r;
        while (at < image->label_keys.n && !str_eq(image->label_keys.items[at], key))
            at++;
        if (at < image->label_keys.n) {
            r = list_put(stage->build, &image->label_values, at, value);
        } else {
            r = list_add(stage->build, &image->label_keys, key);
            if (r == 0)
                r = list_add(stage->build, &image->label_values, value);
        }
        if (r < 0)
            return err_nomem(err);
    }
    return 0;
}

/* Adds a word unless it is there. */
static int add_once(struct build *build, struct build_list *list, const char *text)
{
    for (size_t i = 0; i < list->n; i++)
        if (str_eq(list->items[i], text))
            return 0;
    return list_add(build, list, text);
}

static bool read_port(const char **at, unsigned *ret)
{
    size_t digits = strspn(*at, "0123456789");

    *ret = 0;
    for (size_t i = 0; i < digits && i < 6; i++)
        *ret = *ret * 10 + (unsigned)((*at)[i] - '0');
    *at += digits;
    return digits > 0 && digits < 6 && *ret > 0 && *ret < 65536;
}

/* PORT[-PORT][/tcp|udp|sctp] */
static int add_port(struct build_stage *stage, const struct dockerfile_step *step, const char *word,
                    struct brig_err *err)
{
    const char *at = word, *behind;
    unsigned first, last;
    char text[48];
    bool good = read_port(&at, &first), range = *at == '-';

    last = first;
    if (range) {
        at++;
        good = read_port(&at, &last) && good && last >= first;
    }
    behind = *at ? at : "/tcp";
    if (!good || (!str_eq(behind, "/tcp") && !str_eq(behind, "/udp") && !str_eq(behind, "/sctp")))
        return step_refuse(err, step, "%.64s: expected PORT, PORT-PORT, PORT/tcp or PORT/udp", word);
    int r = range ? str_format(text, sizeof text, "%u-%u%s", first, last, behind)
                  : str_format(text, sizeof text, "%u%s", first, behind);
    const char *kept = r < 0 ? NULL : build_keep(stage->build, text);
    return !kept || add_once(stage->build, &stage->image.exposed, kept) < 0 ? err_nomem(err) : 0;
}

static int apply_words(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    for (size_t i = 0; i < step->n_words; i++) {
        const char *word;
        int r = stage_expand(stage, step, step->words[i], &word, err);

        if (r < 0)
            return r;
        if (step->op == DOCKERFILE_EXPOSE)
            r = add_port(stage, step, word, err);
        else if (word[0] != '/')
            r = step_refuse(err, step, "%.64s: expected an absolute path", word);
        else if (add_once(stage->build, &stage->image.volumes, word) < 0)
            r = err_nomem(err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The words of a command: as they are, or the text behind the shell. */
static int command_of(struct build_stage *stage, const struct dockerfile_step *step, struct build_list *ret)
{
    static const char *const shell[] = {"/bin/sh", "-c"};
    struct build *build = stage->build;

    *ret = (struct build_list){.items = NULL};
    if (step->exec_form || step->n_words == 0)
        return list_take(build, ret, step->words, step->n_words);
    *ret = stage->image.has_shell ? list_share(&stage->image.shell)
                                  : (struct build_list){.items = shell, .n = ARRAY_SIZE(shell)};
    return list_add(build, ret, step->words[0]);
}

static int apply_command(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    struct build_image *image = &stage->image;
    struct build_list words;

    if (command_of(stage, step, &words) < 0)
        return err_nomem(err);
    if (step->op == DOCKERFILE_CMD) {
        image->cmd = words;
        image->has_cmd = image->cmd_is_own = true;
        return 0;
    }
    image->entrypoint = words;
    image->has_entrypoint = true;
    if (!image->cmd_is_own) { /* arguments that were meant for another program */
        image->has_cmd = false;
        image->cmd = (struct build_list){.items = NULL};
    }
    return 0;
}

/* "30s", "1m30s", "500ms" as milliseconds. */
static bool read_duration(const char *text, uint64_t *ret)
{
    static const struct {
        const char *unit;
        uint64_t ms;
    } units[] = {{"ms", 1}, {"h", 3600000}, {"m", 60000}, {"s", 1000}};
    uint64_t sum = 0;

    for (bool first = true; *text || first; first = false) {
        size_t digits = strspn(text, "0123456789"), i = 0;
        uint64_t value = 0;
        if (digits == 0 || digits > 9)
            return false;
        for (size_t k = 0; k < digits; k++)
            value = value * 10 + (uint64_t)(text[k] - '0');
        text += digits;
        while (i < ARRAY_SIZE(units) && !str_starts(text, units[i].unit))
            i++;
        if (i == ARRAY_SIZE(units))
            return false;
        sum += value * units[i].ms;
        text += strlen(units[i].unit);
    }
    *ret = sum;
    return true;
}

static int put_times(struct json *json, const struct dockerfile_step *step, struct brig_err *err)
{
    static const char *const names[][2] = {
        {"interval", "interval_ms"}, {"timeout", "timeout_ms"}, {"start-period", "start_period_ms"}};
    const char *retries = step_flag(step, "retries");
    uint64_t value;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const char *text = step_flag(step, names[i][0]);
        value = 0;
        if (text && !read_duration(text, &value))
            return step_refuse(err, step, "--%s=%.32s: expected a time such as 30s or 1m30s", names[i][0], text);
        json_key_u64(json, names[i][1], value);
    }
    value = 0;
    for (const char *c = retries; c && *c; c++) {
        if (*c < '0' || *c > '9' || value > 100000)
            return step_refuse(err, step, "--retries=%.32s: expected a number", retries);
        value = value * 10 + (uint64_t)(*c - '0');
    }
    json_key_u64(json, "retries", value);
    return 0;
}

static int apply_health(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    AUTO_BUF struct buf out = BUF_INIT(HEALTH_MAX);
    struct json json = JSON_INIT(&out);
    bool shell = !step->exec_form && step->n_words > 1;

    json_object(&json);
    json_key_array(&json, "test");
    json_string(&json, shell ? "CMD-SHELL" : step->words[0]);
    for (size_t i = 1; i < step->n_words; i++)
        json_string(&json, step->words[i]);
    json_end(&json);
    int r = put_times(&json, step, err);
    json_end(&json);
    if (r < 0)
        return r;
    stage->image.health = json_finish(&json) < 0 ? NULL : build_copy(stage->build, out.data, out.len);
    return stage->image.health ? 0 : err_nomem(err);
}

static int apply_text(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    const char *text;
    int r = stage_expand(stage, step, step->words[0], &text, err);

    if (r < 0)
        return r;
    if (!text[0])
        return step_refuse(err, step, "%.64s: expected a word, but it is empty", step->words[0]);
    if (step->op == DOCKERFILE_USER)
        stage->image.user = text;
    else if (strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+") != strlen(text) || strlen(text) > 16)
        return step_refuse(err, step, "%.64s: expected a signal, such as SIGTERM", text);
    else
        stage->image.stop_signal = text;
    return 0;
}

static int apply(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    switch (step->op) {
    case DOCKERFILE_ENV: return apply_env(stage, step, err);
    case DOCKERFILE_ARG: return apply_arg(stage, step, err);
    case DOCKERFILE_LABEL: return apply_label(stage, step, err);
    case DOCKERFILE_EXPOSE:
    case DOCKERFILE_VOLUME: return apply_words(stage, step, err);
    case DOCKERFILE_ENTRYPOINT:
    case DOCKERFILE_CMD: return apply_command(stage, step, err);
    case DOCKERFILE_SHELL:
        stage->image.has_shell = true;
        return list_take(stage->build, &stage->image.shell, step->words, step->n_words) < 0 ? err_nomem(err) : 0;
    case DOCKERFILE_HEALTHCHECK: return apply_health(stage, step, err);
    case DOCKERFILE_USER:
    case DOCKERFILE_STOPSIGNAL: return apply_text(stage, step, err);
    default: return step_refuse(err, step, "is not supported");
    }
}

static size_t bytes_of(const struct build_list *list)
{
    size_t sum = 0;

    for (size_t i = 0; i < list->n; i++)
        sum += strlen(list->items[i]);
    return sum;
}

/* What no record of a template could have is refused at the step that says it, not when everything has been built. */
static int check_size(const struct build_image *image, const struct dockerfile_step *step, struct brig_err *err)
{
    const struct build_list *const lists[] = {&image->env,        &image->entrypoint,  &image->cmd,
                                              &image->shell,      &image->exposed,     &image->volumes,
                                              &image->label_keys, &image->label_values};
    size_t sum = strlen(image->user) + (image->health ? strlen(image->health) : 0), most = image->args.n;

    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        sum += bytes_of(lists[i]);
        most = lists[i]->n > most ? lists[i]->n : most;
    }
    if (most > TEMPLATE_ENV_MAX)
        return step_refuse(err, step, "%zu of them, and at most %u are allowed", most, TEMPLATE_ENV_MAX);
    if (sum > TEMPLATE_IMAGE_MAX)
        return step_refuse(err, step, "what the image says about itself takes %zu bytes, and at most %u are allowed",
                           sum, TEMPLATE_IMAGE_MAX);
    return 0;
}

int image_apply(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    int r = step_count(stage->build, step, err);

    if (r == 0)
        r = apply(stage, step, err);
    return r < 0 ? r : check_size(&stage->image, step, err);
}

/* ---- the record ---------------------------------------- */

static int put_extras(const struct build *build, const struct build_image *image, struct buf *out)
{
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_object(&json, "labels");
    for (size_t i = 0; i < image->label_keys.n; i++) {
        size_t k = 0;
        while (k < build->label_keys.n && !str_eq(build->label_keys.items[k], image->label_keys.items[i]))
            k++;
        if (k == build->label_keys.n) /* else the request says another */
            json_key_string(&json, image->label_keys.items[i], image->label_values.items[i]);
    }
    for (size_t i = 0; i < build->label_keys.n; i++)
        json_key_string(&json, build->label_keys.items[i], build->label_values.items[i]);
    json_end(&json);
    if (image->health)
        json_key_raw(&json, "healthcheck", image->health, strlen(image->health));
    if (image->settings)
        json_key_raw(&json, "settings", image->settings, strlen(image->settings));
    json_end(&json);
    return json_finish(&json);
}

/* A list with NULL at its end; NULL on failure. */
static const char *const *ended(struct build *build, const struct build_list *list)
{
    const char **items = arena_alloc(build->arena, (list->n + 1) * sizeof *items);

    if (!items)
        return NULL;
    if (list->n > 0)
        memcpy(items, list->items, list->n * sizeof *items);
    items[list->n] = NULL;
    return items;
}

static int put(struct build_stage *stage, const struct json_value *extras, objects_done_fn *done, void *ctx,
               struct brig_err *err)
{
    struct build *build = stage->build;
    const struct build_image *image = &stage->image;
    const char *names[TEMPLATE_LAYERS_MAX], *diff_ids[TEMPLATE_LAYERS_MAX];
    uint64_t sizes[TEMPLATE_LAYERS_MAX];

    for (size_t i = 0; i < stage->n_layers; i++) {
        names[i] = stage->layers[i].name;
        diff_ids[i] = stage->layers[i].diff_id;
        sizes[i] = stage->layers[i].bytes;
    }
    const struct template_info info = {
        .source = "build",
        .reference = "",
        .digest = "",
        .disk = "",
        .base = "",
        .n_layers = stage->n_layers,
        .layers = names,
        .diff_ids = diff_ids,
        .sizes = sizes,
        .image = {.env = ended(build, &image->env),
                  .user = image->user,
                  .workdir = image->workdir,
                  .entrypoint = image->has_entrypoint ? ended(build, &image->entrypoint) : NULL,
                  .cmd = image->has_cmd ? ended(build, &image->cmd) : NULL,
                  .shell = image->has_shell ? ended(build, &image->shell) : NULL,
                  .exposed_ports = ended(build, &image->exposed),
                  .volumes = ended(build, &image->volumes),
                  .stop_signal = image->stop_signal,
                  .platform = image->platform,
                  .labels = json_get(extras, "labels"),
                  .healthcheck = json_get(extras, "healthcheck")},
        .settings = json_get(extras, "settings"),
        .made_at_ns = clock_real_ns(),
        .shared = build->shared};
    if (!info.image.env || !info.image.exposed_ports || !info.image.volumes)
        return err_nomem(err);
    /* A user key replaces nothing; OBJECTS_NEW also sees a record that is on its way. */
    return templates_put(build->builds->o.templates, build->caller.org_id, build->name, &info,
                         build->replace && caller_is_admin(&build->caller), done, ctx, err);
}

int image_record(struct build_stage *stage, objects_done_fn *done, void *ctx, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(EXTRAS_MAX);
    struct json_doc *extras = NULL;

    if (stage->n_layers == 0)
        return err_set(err, BRIG_E_INVALID, 0, "the image has no files: a template needs at least one layer");
    int r = settings_apply(stage, err);
    if (r == 0)
        r = put_extras(stage->build, &stage->image, &text) < 0 ? err_nomem(err)
                                                               : json_read(text.data, text.len, 65536, &extras, err);
    if (r == 0)
        r = put(stage, json_root(extras), done, ctx, err);
    json_doc_free(extras);
    return r;
}
