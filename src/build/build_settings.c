/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_settings.c: template.toml, which stands beside a Dockerfile: what sandboxes of the template have unless their
 * create says something else. user, workdir and env become a part of the image, as USER, WORKDIR and ENV would; limits,
 * profile, provider, sudo and services are the template's settings. Every member is judged by the reader of creates,
 * with the rights of whoever builds; a create judges it again with its own. What a create can have and a template
 * cannot (a network, a secret, a bind) is no member of this file.
 */
#include <stdio.h>
#include <string.h>

#include "build/build_priv.h"
#include "codec/toml/toml_json.h"
#include "codec/wire/guest_svc.h"

#define FILE_NAME "template.toml"
#define SETTINGS_MAX (4u << 20)

struct build_settings {
    const char *user; /* or NULL */
    const char *workdir[2];
    struct dockerfile_step make_workdir; /* If it is there. */
    struct build_list env_names, env_values;
    const char *json; /* {limits, profile, provider, sudo, services}, as far as they are there */
    struct build_list services;
    unsigned lines[SVC_UNITS_MAX]; /* The line where each service begins. */
};

static int refuse(struct brig_err *err, unsigned line, const char *message)
{
    return err_usage(err, FILE_NAME ":%u: %.200s", line, message);
}

/* ---- judging ---------------------------------------- */

/* What a create would say to it, whatever its template is: that of the configuration may be one of layers. */
static int judge(const struct build *build, struct json *json, const struct buf *text, struct brig_err *err)
{
    static char host[] = "host";
    AUTO_JSON struct json_doc *doc = NULL;
    struct config config = *build->builds->o.config;
    struct sbox_spec spec;
    int r = json_finish(json);

    config.image = host;
    if (r < 0)
        return r == -EMSGSIZE ? err_usage(err, "longer than %u bytes", SETTINGS_MAX) : err_nomem(err);
    r = json_read(text->data, text->len, JSON_READ_VALUES, &doc, err);
    if (r == 0)
        r = sbox_spec_parse(json_root(doc), &config, NULL, &build->caller, &spec, err);
    if (r == 0)
        sbox_spec_done(&spec);
    return r;
}

/* The line of the member of a table with which a message begins, after the prefix; else that of the table. */
static unsigned line_of(const struct toml_value *table, const char *prefix, const char *message)
{
    if (str_starts(message, prefix))
        message += strlen(prefix);
    for (const struct toml_value *m = table->type == TOML_TABLE ? table->first : NULL; m; m = m->next) {
        size_t len = strlen(m->key);
        if (len > 0 && strncmp(message, m->key, len) == 0 && strchr(" :.", message[len]))
            return m->line;
    }
    return table->line;
}

static int check_member(const struct build *build, const struct toml_value *v, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(SETTINGS_MAX);
    struct json json = JSON_INIT(&text);
    struct brig_err why = {0};

    json_object(&json);
    json_key(&json, v->key);
    toml_put_json(&json, v);
    json_end(&json);
    if (judge(build, &json, &text, &why) == 0)
        return 0;
    return refuse(err, line_of(v, str_eq(v->key, "limits") ? "limits." : "env ", why.message), why.message);
}

/* Without `after`: it may name services of the base. */
static int check_service(const struct build *build, const struct toml_value *v, struct brig_err *err)
{
    const struct toml_value *name = toml_get(v, "name");
    AUTO_BUF struct buf text = BUF_INIT(SETTINGS_MAX);
    struct json json = JSON_INIT(&text);
    struct brig_err why = {0};
    char prefix[96];

    if (v->type != TOML_TABLE)
        return refuse(err, v->line, "service: must be [[service]]");
    json_object(&json);
    json_key_array(&json, "services");
    json_object(&json);
    for (const struct toml_value *m = v->first; m; m = m->next)
        if (!str_eq(m->key, "after")) {
            json_key(&json, m->key);
            toml_put_json(&json, m);
        }
    json_end(&json);
    json_end(&json);
    json_end(&json);
    if (judge(build, &json, &text, &why) == 0)
        return 0;
    snprintf(prefix, sizeof prefix, "service %.64s: ", name && name->type == TOML_STRING ? name->string : "");
    return refuse(err, line_of(v, prefix, why.message), why.message);
}

static int check_services(const struct build *build, const struct toml_value *v, struct brig_err *err)
{
    char rule[64];
    int r = 0;

    if (v->type != TOML_ARRAY)
        return refuse(err, v->line, "service: must be [[service]]");
    snprintf(rule, sizeof rule, "service: %zu of them, at most %u", v->count, SVC_UNITS_MAX);
    if (v->count > SVC_UNITS_MAX)
        return refuse(err, v->line, rule);
    for (const struct toml_value *item = v->first; r == 0 && item; item = item->next)
        r = check_service(build, item, err);
    return r;
}

static int check(const struct build *build, const struct toml_value *root, struct brig_err *err)
{
    static const char *const members[] = {"user", "workdir", "profile", "provider", "sudo", "limits", "env"};
    char message[200];
    int r = 0;

    for (const struct toml_value *v = root->first; r == 0 && v; v = v->next) {
        size_t i = 0;
        while (i < ARRAY_SIZE(members) && !str_eq(members[i], v->key))
            i++;
        if (i < ARRAY_SIZE(members)) {
            r = check_member(build, v, err);
        } else if (str_eq(v->key, "service")) {
            r = check_services(build, v, err);
        } else {
            snprintf(message, sizeof message,
                     "%.64s: there is no such member (user, workdir, profile, provider, sudo, limits, env, service)",
                     v->key);
            r = refuse(err, v->line, message);
        }
    }
    return r;
}

/* ---- reading ---------------------------------------- */

static int take_text(struct build *build, const struct toml_value *v, const char **ret)
{
    *ret = v ? build_copy(build, v->string, v->len) : NULL;
    return v && !*ret ? -ENOMEM : 0;
}

static int take_workdir(struct build *build, const struct toml_value *v, struct build_settings *ret)
{
    char text[256];
    int r = take_text(build, v, &ret->workdir[0]);

    if (r < 0 || !v)
        return r;
    snprintf(text, sizeof text, FILE_NAME ": workdir %.200s", ret->workdir[0]);
    ret->make_workdir = (struct dockerfile_step){.op = DOCKERFILE_WORKDIR,
                                                 .line = v->line,
                                                 .written = build_keep(build, text),
                                                 .words = ret->workdir,
                                                 .n_words = 1};
    return ret->make_workdir.written ? 0 : -ENOMEM;
}

static int take_env(struct build *build, const struct toml_value *env, struct build_settings *ret)
{
    int r = 0;

    for (const struct toml_value *m = env ? env->first : NULL; r == 0 && m; m = m->next) {
        r = list_add(build, &ret->env_names, build_copy(build, m->key, m->key_len));
        if (r == 0)
            r = list_add(build, &ret->env_values, build_copy(build, m->string, m->len));
    }
    return r;
}

static int take_services(struct build *build, const struct toml_value *list, struct build_settings *ret)
{
    int r = 0;

    for (const struct toml_value *v = list ? list->first : NULL; r == 0 && v; v = v->next) {
        ret->lines[ret->services.n] = v->line;
        r = list_add(build, &ret->services, build_keep(build, toml_get(v, "name")->string));
    }
    return r;
}

static int take_json(struct build *build, const struct toml_value *root, struct build_settings *ret)
{
    static const char *const keys[][2] = {{"limits", "limits"},
                                          {"profile", "profile"},
                                          {"provider", "provider"},
                                          {"sudo", "sudo"},
                                          {"service", "services"}};
    AUTO_BUF struct buf text = BUF_INIT(SETTINGS_MAX);
    struct json json = JSON_INIT(&text);

    json_object(&json);
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        const struct toml_value *v = toml_get(root, keys[i][0]);
        if (!v)
            continue;
        json_key(&json, keys[i][1]);
        toml_put_json(&json, v);
    }
    json_end(&json);
    ret->json = json_finish(&json) < 0 ? NULL : build_copy(build, text.data, text.len);
    return ret->json ? 0 : -ENOMEM;
}

/* It was judged: every member has its type. */
static int take(struct build *build, const struct toml_value *root, struct brig_err *err)
{
    struct build_settings *settings = arena_alloc(build->arena, sizeof *settings);

    if (!settings)
        return err_nomem(err);
    *settings = (struct build_settings){.user = NULL};
    if (take_text(build, toml_get(root, "user"), &settings->user) < 0 ||
        take_workdir(build, toml_get(root, "workdir"), settings) < 0 ||
        take_env(build, toml_get(root, "env"), settings) < 0 ||
        take_services(build, toml_get(root, "service"), settings) < 0 || take_json(build, root, settings) < 0)
        return err_nomem(err);
    build->settings = settings;
    return 0;
}

int settings_read(struct build *build, const char *text, size_t len, struct brig_err *err)
{
    struct toml_doc *doc = NULL;
    struct brig_err why = {0};

    if (toml_read(text, len, &doc, &why) < 0)
        return err_set(err, (enum brig_code)why.code, why.errnum, FILE_NAME ": %.200s", why.message);
    int r = check(build, toml_root(doc), err);
    if (r == 0)
        r = take(build, toml_root(doc), err);
    toml_free(doc);
    return r;
}

int settings_from_context(struct build *build, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(0);
    const char *slash = strrchr(build->path, '/');
    struct brig_err why = {0};
    char path[4096];
    int r = str_format(path, sizeof path, "%.*s" FILE_NAME, slash ? (int)(slash - build->path + 1) : 0, build->path);

    if (r < 0)
        return err_usage(err, "path: too long");
    r = context_read(build, path, TOML_MAX_BYTES, &text, &why);
    if (r < 0 && why.code == BRIG_E_NOT_FOUND)
        return 0;
    if (r < 0)
        *err = why;
    if (r == 0)
        r = settings_read(build, text.len ? text.data : "", text.len, err);
    if (r == 0)
        settings_plan(build);
    return r;
}

void settings_plan(struct build *build)
{
    struct build_stage *goal = &build->stages[build->goal];

    if (!build->settings || !build->settings->workdir[0])
        return;
    goal->last = &build->settings->make_workdir;
    build->n_steps++;
}

/* ---- over an image ---------------------------------------- */

static void put_members(struct json *json, const struct json_value *object, const struct json_value *without)
{
    for (const struct json_value *m = object ? object->first : NULL; m; m = m->next)
        if (!json_get(without, m->key)) {
            json_key(json, m->key);
            json_value_put(json, m);
        }
}

static bool is_own(const struct build_settings *settings, const char *service)
{
    for (size_t i = 0; i < settings->services.n; i++)
        if (str_eq(settings->services.items[i], service))
            return true;
    return false;
}

/* A limit, the profile, provider, sudo and a service of a name take the place of the base's; the rest of the base
 * stays. */
static void put_merged(struct json *json, const struct build_settings *settings, const struct json_value *own,
                       const struct json_value *base)
{
    static const char *const plain[] = {"profile", "provider", "sudo"};
    const struct json_value *services = json_get(base, "services");

    json_object(json);
    if (json_get(own, "limits") || json_get(base, "limits")) {
        json_key_object(json, "limits");
        put_members(json, json_get(base, "limits"), json_get(own, "limits"));
        put_members(json, json_get(own, "limits"), NULL);
        json_end(json);
    }
    for (size_t i = 0; i < ARRAY_SIZE(plain); i++) {
        const struct json_value *v = json_get(own, plain[i]);
        if (!v)
            v = json_get(base, plain[i]);
        if (v) {
            json_key(json, plain[i]);
            json_value_put(json, v);
        }
    }
    if (services || json_get(own, "services")) {
        json_key_array(json, "services");
        for (const struct json_value *v = services ? services->first : NULL; v; v = v->next)
            if (!is_own(settings, json_get_text(v, "name", "")))
                json_value_put(json, v);
        services = json_get(own, "services");
        for (const struct json_value *v = services ? services->first : NULL; v; v = v->next)
            json_value_put(json, v);
        json_end(json);
    }
    json_end(json);
}

/* The line of the service that a message is about. */
static unsigned service_line(const struct build_settings *settings, const char *message)
{
    const char *last = strrchr(message, ' ');
    char prefix[96];

    for (size_t i = settings->services.n; i-- > 0;) {
        snprintf(prefix, sizeof prefix, "service %s: ", settings->services.items[i]);
        if (str_starts(message, prefix) || (last && str_eq(last + 1, settings->services.items[i])))
            return settings->lines[i];
    }
    return settings->services.n > 0 ? settings->lines[0] : 1;
}

static int merge(struct build_stage *stage, const struct build_settings *settings, struct brig_err *err)
{
    AUTO_JSON struct json_doc *own = NULL, *base = NULL;
    AUTO_BUF struct buf text = BUF_INIT(SETTINGS_MAX);
    struct json json = JSON_INIT(&text);
    const char *below = stage->image.settings ? stage->image.settings : "{}";
    struct brig_err why = {0};
    int r = json_read(settings->json, strlen(settings->json), JSON_READ_VALUES, &own, err);

    if (r == 0)
        r = json_read(below, strlen(below), JSON_READ_VALUES, &base, err);
    if (r < 0)
        return r;
    put_merged(&json, settings, json_root(own), json_root(base));
    if (judge(stage->build, &json, &text, &why) < 0)
        return refuse(err, service_line(settings, why.message), why.message);
    if (str_eq(text.data, "{}"))
        return 0;
    stage->image.settings = build_copy(stage->build, text.data, text.len);
    return stage->image.settings ? 0 : err_nomem(err);
}

int settings_apply(struct build_stage *stage, struct brig_err *err)
{
    const struct build_settings *settings = stage->build->settings;

    if (!settings)
        return 0;
    if (settings->user)
        stage->image.user = settings->user;
    for (size_t i = 0; i < settings->env_names.n; i++)
        if (list_set(stage->build, &stage->image.env, settings->env_names.items[i], settings->env_values.items[i]) < 0)
            return err_nomem(err);
    return merge(stage, settings, err);
}
