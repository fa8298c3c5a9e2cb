/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_spec.c: reads what a create asks for, from JSON into struct sbox_spec: one table of members, each with its
 * reader. A member that is not in the table is refused, and nothing of a spec is used unless all of it is good.
 */
#include <strings.h>

#include "host/limits.h"
#include "config/provider_names.h"
#include "sandbox/private.h"
#include "sandbox/sbox_place.h"
#include "sandbox/services/services.h"
#include "spawner/spawner_wire.h"

struct spec_in {
    const struct config *config;
    const struct caller *caller;
    struct spec_memory memory;
    struct sbox_spec *spec;
    bool stored; /* it was taken once: bounds that are younger do not end it */
    bool workdir_given, user_given, profile_given, writable_root_given, sudo_given, provider_given;
    const struct json_value *limits, *services; /* NULL: none are given */
};

typedef int member_fn(struct spec_in *in, const struct json_value *v, struct brig_err *err);

static int read_image(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    struct image_ref ref;
    const char *text;
    int r = spec_string(v, "image", IMAGE_REF_TEXT - 1, false, &text, err);

    if (r == 0)
        r = image_ref_parse(text, &ref, err);
    if (r == 0)
        image_ref_text(&ref, in->spec->engine_image);
    return r;
}

static int read_template(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    const char *text;
    int r = spec_string(v, "template", sizeof in->spec->template_name - 1, false, &text, err);

    if (r < 0)
        return r;
    return str_copy(in->spec->template_name, sizeof in->spec->template_name, text); /* spec_string() knows the length */
}

static int read_provider(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    const char *text;
    int r = spec_string(v, "provider", sizeof in->spec->provider - 1, false, &text, err);

    if (r < 0)
        return r;
    if (!provider_is_known(text))
        return err_set(err, BRIG_E_INVALID, 0, "provider %s: there is no such one", text);
    in->provider_given = true;
    return str_copy(in->spec->provider, sizeof in->spec->provider, provider_known_name(text));
}

int spec_name_check(const char *text, struct brig_err *err)
{
    static const char *const words[] = {"brig", "host"};
    static const char *const prefixes[] = {"brig-", "run-", "sandbox-", "org-", "key-"};
    int r = check_name(text, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (strcasecmp(text, words[i]) == 0)
            return err_usage(err, "name %s: is reserved", text);
    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
        if (strncasecmp(text, prefixes[i], strlen(prefixes[i])) == 0)
            return err_usage(err, "name %s: names that start with \"%s\" are reserved", text, prefixes[i]);
    /* Where an id is asked for a name will do, so none may look like one. */
    if (strlen(text) == 26 && strspn(text, "abcdefghijklmnopqrstuvwxyz234567") == 26)
        return err_usage(err, "name %s: has the form of an id", text);
    return 0;
}

static int read_name(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    const char *text;
    int r = spec_string(v, "name", sizeof in->spec->name - 1, false, &text, err);

    r = r < 0 ? r : spec_name_check(text, err);
    if (r < 0)
        return r;
    return str_copy(in->spec->name, sizeof in->spec->name, text); /* spec_string() knows the length */
}

static int read_metadata(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    return spec_pairs(v, "metadata", false, PAIRS_MAX, &in->memory, &in->spec->metadata, &in->spec->n_metadata, err);
}

static int read_env(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    size_t total = 0;

    for (const struct json_value *m = v->type == JSON_OBJECT ? v->first : NULL; m; m = m->next)
        total += m->key_len + (m->type == JSON_STRING ? m->len : 0) + 2;
    if (total > GUEST_STRINGS_MAX) /* no program of it could be started */
        return err_usage(err, "env: longer than %u bytes", GUEST_STRINGS_MAX);
    return spec_pairs(v, "env", true, ENV_MAX, &in->memory, &in->spec->env, &in->spec->n_env, err);
}

static int read_limits(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    int r = in->stored ? spec_limits(v, &in->spec->limits, err) : spec_limits_asked(v, &in->spec->limits, err);

    in->limits = v;
    return r < 0 ? r
                 : spec_connections((int64_t)in->spec->limits.connections, "limits.connections",
                                    caller_standing(in->caller), in->config, err);
}

static int read_require(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    return place_require(v, &in->spec->require, err);
}

static int read_profile(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    const char *words[BRIG_PROFILE_MAX + 1] = {NULL};

    for (int i = 0; i < BRIG_PROFILE_MAX; i++)
        words[i] = brig_profile_name((enum brig_profile)i);
    int r = spec_word(v, "profile", words, err);
    if (r < 0)
        return r;
    in->profile_given = true;
    in->spec->profile = (enum brig_profile)r;
    return 0;
}

static int read_workdir(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    const char *text;
    int r = spec_string(v, "workdir", sizeof in->spec->workdir - 1, false, &text, err);

    r = r < 0 ? r : check_inside_path("workdir", text, err);
    if (r < 0)
        return r;
    in->workdir_given = true;
    return str_copy(in->spec->workdir, sizeof in->spec->workdir, text); /* spec_string() knows the length */
}

static int read_user(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    const char *text;
    int r = spec_user(v, &text, err);

    in->user_given = true;
    return r < 0 ? r : str_copy(in->spec->user, sizeof in->spec->user, text); /* spec_user() knows the length */
}

static int read_network(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    return spec_network(v, caller_standing(in->caller), in->config, &in->spec->network, err);
}

static int read_secrets(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    int r = spec_secrets(v, &in->memory, &in->spec->secrets, &in->spec->n_secrets, err);

    /* Which secret it is, and whether it is there, is asked when the sandbox is made. */
    for (size_t i = 0; r == 0 && i < in->spec->n_secrets; i++) {
        const struct secret_use use = {.caller = in->caller, .name = in->spec->secrets[i].name, .object = ""};
        if (in->spec->secrets[i].expose)
            r = secrets_may_expose(NULL, &use, err);
    }
    return r;
}

static int read_binds(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    if (v->type != JSON_ARRAY)
        return err_usage(err, "binds: must be an array");
    if (v->count > WIRE_BINDS_MAX)
        return err_usage(err, "binds: %zu of them, at most %u", v->count, WIRE_BINDS_MAX);
    if (v->count > 0 && !caller_is_admin(in->caller))
        return err_set(err, BRIG_E_FORBIDDEN, 0, "binds: only for administrators");
    struct brig_bind *binds = spec_take(&in->memory, v->count * sizeof *binds, _Alignof(struct brig_bind));
    size_t n = 0;
    for (const struct json_value *item = v->first; item; item = item->next) {
        int r = spec_bind(&in->memory, item, &binds[n++], err);
        if (r < 0)
            return r;
    }
    in->spec->binds = binds;
    in->spec->n_binds = n;
    return 0;
}

static int read_volume(struct spec_in *in, const struct json_value *v, struct sbox_volume *ret, struct brig_err *err)
{
    const char *name = NULL, *target = NULL, *disk = "";
    int r = 0;

    *ret = (struct sbox_volume){.read_only = false};
    if (v->type != JSON_OBJECT)
        return err_usage(err, "volumes: each must be an object with name, target and read_only");
    for (const struct json_value *m = v->first; r == 0 && m; m = m->next) {
        if (str_eq(m->key, "name"))
            r = spec_string(m, "volumes.name", sizeof ret->name - 1, false, &name, err);
        else if (str_eq(m->key, "target"))
            r = spec_string(m, "volumes.target", 1023, false, &target, err);
        else if (str_eq(m->key, "read_only"))
            r = spec_bool(m, "volumes.read_only", &ret->read_only, err);
        else if (in->stored && str_eq(m->key, "disk"))
            r = spec_string(m, "volumes.disk", sizeof ret->disk - 1, false, &disk, err);
        else
            r = err_usage(err, "volumes.%.64s: there is no such member", m->key);
    }
    if (r == 0 && (!name || !target))
        r = err_usage(err, "volumes: each needs a name and a target");
    if (r == 0)
        r = check_mount_target("volumes.target", target, err);
    if (r < 0)
        return r;
    ret->target = spec_copy(&in->memory, target, strlen(target));
    r = str_copy(ret->name, sizeof ret->name, name);
    return r < 0 ? r : str_copy(ret->disk, sizeof ret->disk, disk); /* spec_string() knows the lengths */
}

static int read_volumes(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    if (v->type != JSON_ARRAY)
        return err_usage(err, "volumes: must be an array");
    if (v->count > PROVIDER_VOLUMES_MAX)
        return err_usage(err, "volumes: %zu of them, at most %u", v->count, PROVIDER_VOLUMES_MAX);
    struct sbox_volume *volumes = spec_take(&in->memory, v->count * sizeof *volumes, _Alignof(struct sbox_volume));
    size_t n = 0;
    for (const struct json_value *item = v->first; item; item = item->next, n++) {
        int r = read_volume(in, item, &volumes[n], err);
        for (size_t i = 0; r == 0 && i < n; i++)
            if (str_eq(volumes[i].target, volumes[n].target))
                r = err_usage(err, "volumes: two of them at %s", volumes[n].target);
        if (r < 0)
            return r;
    }
    in->spec->volumes = volumes;
    in->spec->n_volumes = n;
    return 0;
}

static int read_forkable(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    return spec_bool(v, "forkable", &in->spec->forkable, err);
}

/* null is "none" for these two, and only for these. */
static int read_span(const struct json_value *v, const char *key, uint64_t *ret, struct brig_err *err)
{
    if (v->type == JSON_NULL) {
        *ret = 0;
        return 0;
    }
    return spec_duration(v, key, ret, err);
}

static int read_timeout(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    return read_span(v, "timeout", &in->spec->timeout_ms, err);
}

static int read_idle_timeout(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    return read_span(v, "idle_timeout", &in->spec->idle_timeout_ms, err);
}

static int read_on_timeout(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    static const char *const words[] = {"kill", "pause", NULL};
    int r = spec_word(v, "on_timeout", words, err);

    if (r < 0)
        return r;
    in->spec->on_timeout = r ? SBOX_TIMEOUT_PAUSE : SBOX_TIMEOUT_KILL;
    return 0;
}

static int read_on_death(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    static const char *const words[] = {"none", "recreate", NULL};
    int r = spec_word(v, "on_death", words, err);

    if (r < 0)
        return r;
    in->spec->on_death = r ? SBOX_DEATH_RECREATE : SBOX_DEATH_NONE;
    return 0;
}

static int read_idle_policy(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    static const char *const words[] = {"activity", "requests", NULL};
    int r = spec_word(v, "idle_policy", words, err);

    if (r < 0)
        return r;
    in->spec->idle_ignores_processes = r == 1;
    return 0;
}

static int read_confine(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    static const char *const words[] = {"root", "workdir", NULL};
    int r = spec_word(v, "confine", words, err);

    if (r < 0)
        return r;
    in->spec->confine = r == 1;
    return 0;
}

static int read_writable_root(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    in->writable_root_given = true;
    return spec_bool(v, "writable_root", &in->spec->writable_root, err);
}

static int read_sudo(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    in->sudo_given = true;
    return spec_bool(v, "sudo", &in->spec->sudo, err);
}

static int read_services(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    if (v->type != JSON_ARRAY)
        return err_usage(err, "services: must be an array");
    in->services = v;
    return 0;
}

static int read_on_service_failure(struct spec_in *in, const struct json_value *v, struct brig_err *err)
{
    static const char *const words[] = {"end", "keep", NULL};
    int r = spec_word(v, "on_service_failure", words, err);

    in->spec->services_keep = r == 1;
    return r < 0 ? r : 0;
}

static char *join_names(const struct service_defs *defs)
{
    AUTO_BUF struct buf text = BUF_INIT((SVC_UNIT_NAME_MAX + 1) * SVC_UNITS_MAX + 1);

    for (unsigned i = 0; i < defs->n; i++)
        if (buf_printf(&text, "%s%s", i ? " " : "", defs->list[i].name) < 0)
            return NULL;
    return mem_strdup(text.data);
}

/* The limits of the template below those that were asked for. The caller must be allowed what comes out of it. */
static int take_limits(struct spec_in *in, const struct json_value *of_template, struct brig_err *err)
{
    struct brig_limits limits = in->config->limits;
    int r = spec_limits_asked(of_template, &limits, err);

    if (r == 0 && in->limits)
        r = spec_limits_asked(in->limits, &limits, err);
    in->spec->limits = limits;
    return r < 0 ? r
                 : spec_connections((int64_t)limits.connections, "limits.connections", caller_standing(in->caller),
                                    in->config, err);
}

/* Settings of the template (template.toml) where the request says nothing. They are judged as if it had said them. */
static int take_settings(struct spec_in *in, const struct json_value *settings, struct brig_err *err)
{
    const struct json_value *limits = json_get(settings, "limits"), *profile = json_get(settings, "profile");
    const struct json_value *sudo = json_get(settings, "sudo"), *provider = json_get(settings, "provider");
    struct brig_err why = {0};
    int r = limits ? take_limits(in, limits, &why) : 0;

    if (r == 0 && profile && !in->profile_given)
        r = read_profile(in, profile, &why);
    if (r == 0 && sudo && !in->sudo_given)
        r = read_sudo(in, sudo, &why);
    if (r == 0 && provider && !in->provider_given)
        r = read_provider(in, provider, &why);
    return r < 0 ? err_set(err, (enum brig_code)why.code, why.errnum, "template %s: %.180s", in->spec->template_name,
                           why.message)
                 : 0;
}

/* Those of the request over those of the template, judged together. */
static int take_services(struct spec_in *in, const struct json_value *of_template, struct brig_err *err)
{
    struct service_defs *defs = NULL;
    AUTO_BUF struct buf text = BUF_INIT(SVC_OPEN_MAX);
    struct json json = JSON_INIT(&text);

    if (!in->services && !of_template)
        return 0;
    defs = mem_alloc(sizeof *defs);
    if (!defs)
        return err_nomem(err);
    int r = service_defs_read(in->services, of_template, in->stored, defs, err);
    if (r == 0 && defs->n > 0) {
        service_defs_put(defs, true, &json);
        r = json_finish(&json);
        r = r == -EMSGSIZE ? err_usage(err, "services: longer than %u bytes", SVC_OPEN_MAX)
            : r < 0        ? err_nomem(err)
                           : 0;
        if (r == 0 && (!(in->spec->services = mem_strdup(text.data)) || !(in->spec->service_names = join_names(defs))))
            r = err_nomem(err);
    }
    mem_free(defs);
    return r;
}

static const struct {
    const char *key;
    member_fn *read;
} members[] = {
    {"template", read_template},
    {"image", read_image},
    {"provider", read_provider},
    {"name", read_name},
    {"metadata", read_metadata},
    {"env", read_env},
    {"limits", read_limits},
    {"require", read_require},
    {"profile", read_profile},
    {"workdir", read_workdir},
    {"user", read_user},
    {"binds", read_binds},
    {"volumes", read_volumes},
    {"forkable", read_forkable},
    {"network", read_network},
    {"secrets", read_secrets},
    {"timeout", read_timeout},
    {"idle_timeout", read_idle_timeout},
    {"on_timeout", read_on_timeout},
    {"on_death", read_on_death},
    {"idle_policy", read_idle_policy},
    {"confine", read_confine},
    {"writable_root", read_writable_root},
    {"sudo", read_sudo},
    {"services", read_services},
    {"on_service_failure", read_on_service_failure},
};

static int read_members(struct spec_in *in, const struct json_value *json, struct brig_err *err)
{
    for (const struct json_value *m = json->first; m; m = m->next) {
        size_t i = 0;
        while (i < ARRAY_SIZE(members) && !str_eq(members[i].key, m->key))
            i++;
        if (i == ARRAY_SIZE(members))
            return err_usage(err, "%.64s: there is no such member", m->key);
        int r = members[i].read(in, m, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int fill_defaults(struct sbox_spec *spec, const struct config *config, struct brig_err *err)
{
    if (str_copy(spec->template_name, sizeof spec->template_name,
                 config->image && config->image[0] ? config->image : "host") < 0 ||
        str_copy(spec->workdir, sizeof spec->workdir,
                 config->work_dir && config->work_dir[0] ? config->work_dir : "/workspace") < 0)
        return err_usage(err, "[sandbox] image or work_dir: too long");
    snprintf(spec->user, sizeof spec->user, "user");
    spec->limits = config->limits;
    spec->timeout_ms = config->max_age;
    spec->idle_timeout_ms = config->idle_timeout_s * 1000;
    spec->require = sbox_required(config);
    spec->forkable = config->sandbox_forkable;
    return 0;
}

enum spec_from { SPEC_ASKED, SPEC_OWN /* a sandbox of the service's own */, SPEC_STORED };

static int parse(const struct json_value *json, const struct config *config, const struct templates *templates,
                 const struct caller *caller, enum spec_from from, struct sbox_spec *ret, struct brig_err *err)
{
    const bool stored = from == SPEC_STORED;
    struct sbox_spec spec = {0};
    struct spec_in in = {.config = config, .caller = caller, .spec = &spec, .stored = stored};
    const struct json_value *settings = NULL;

    if (json->type != JSON_OBJECT)
        return err_usage(err, "the request must be a JSON object");
    int r = fill_defaults(&spec, config, err);
    if (r < 0)
        return r;
    if (stored) /* a row without the member is older than it */
        spec.forkable = false;
    if (from == SPEC_ASKED && config->provider)
        str_cut(spec.provider, sizeof spec.provider, provider_known_name(config->provider));
    if (spec_memory_init(&in.memory, json, 256 + PROVIDER_VOLUMES_MAX * sizeof(struct sbox_volume)) < 0)
        return err_nomem(err);
    r = read_members(&in, json, err);
    if (r == 0 && !spec.network)
        r = spec_network_default(config, &spec.network, err);
    if (r == 0)
        r = spec_secrets_check(&spec, err);
    if (r == 0 && !stored) /* one that runs already needs its template no more */
        r = spec_template_use(&spec, config, templates, caller, in.workdir_given, in.user_given, err);
    if (r == 0 && from == SPEC_ASKED && spec.image)
        settings = spec.image->info.settings;
    if (r == 0)
        r = take_settings(&in, settings, err);
    if (r == 0 && !stored && spec.image && spec.image->info.disk[0])
        r = spec_template_disk(&spec, json_get(in.limits, "disk"), in.writable_root_given, err);
    if (r == 0)
        r = spec_sudo_check(&spec, err);
    if (r == 0)
        r = take_services(&in, json_get(settings, "services"), err);
    if (r < 0) {
        mem_free(in.memory.base);
        mem_free(spec.network);
        mem_free(spec.services);
        mem_free(spec.service_names);
        template_copy_free(spec.image);
        return r;
    }
    spec.memory = in.memory.base;
    *ret = spec;
    return 0;
}

int spec_parse_stored(const struct json_value *json, const struct config *config, const struct caller *caller,
                      struct sbox_spec *ret, struct brig_err *err)
{
    return parse(json, config, NULL, caller, SPEC_STORED, ret, err);
}

static int parse_new(const struct json_value *json, const struct config *config, const struct templates *templates,
                     const struct caller *caller, enum spec_from from, struct sbox_spec *ret, struct brig_err *err)
{
    int r = parse(json, config, templates, caller, from, ret, err);

    /* A limit that nothing enforces is refused, not ignored. */
    if (r == 0 && ret->limits.cpu_time) {
        sbox_spec_done(ret);
        r = err_set(err, BRIG_E_UNSUPPORTED, 0,
                    "limits.cpu_time: nothing counts it in a long-lived sandbox; use cpus and timeout");
    }
    return r;
}

int sbox_spec_parse(const struct json_value *json, const struct config *config, const struct templates *templates,
                    const struct caller *caller, struct sbox_spec *ret, struct brig_err *err)
{
    return parse_new(json, config, templates, caller, SPEC_ASKED, ret, err);
}

int sbox_spec_parse_own(const struct json_value *json, const struct config *config, const struct templates *templates,
                        const struct caller *caller, struct sbox_spec *ret, struct brig_err *err)
{
    return parse_new(json, config, templates, caller, SPEC_OWN, ret, err);
}

void sbox_spec_done(struct sbox_spec *spec)
{
    if (!spec)
        return;
    mem_free(spec->memory);
    mem_free(spec->network);
    mem_free(spec->services);
    mem_free(spec->service_names);
    template_copy_free(spec->image);
    *spec = (struct sbox_spec){0};
}
