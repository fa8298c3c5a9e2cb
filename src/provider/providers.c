/* SPDX-License-Identifier: Apache-2.0 */
/* providers.c: the list of providers (providers.h): one entry per name of config/provider_names.h, whether it can be
 * used or not. */
#include "provider/providers.h"

#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "config/config.h"
#include "config/provider_names.h"

struct entry {
    const char *name;
    char off[80]; /* why it cannot be used; "": it can */
    struct provider *provider;
    bool unnamed; /* `[providers] only` has other names. */
};

struct providers {
    struct entry entries[PROVIDERS_MAX];
    size_t n;
};

static struct entry *find(const struct providers *providers, const char *name)
{
    name = provider_known_name(name);
    for (size_t i = 0; i < providers->n; i++)
        if (str_eq(providers->entries[i].name, name))
            return (struct entry *)&providers->entries[i];
    return NULL;
}

/* NULL: sandboxes may have it. */
static const char *why_off(const struct entry *entry)
{
    if (entry->unnamed)
        return "[providers] only does not name it";
    if (entry->provider)
        return entry->provider->off[0] ? entry->provider->off : NULL;
    return entry->off;
}

static const char *no_key(const char *name, const struct config *config)
{
    if (str_eq(name, "modal") && !(config->tools_modal_id[0] && config->tools_modal_secret[0]))
        return "no key: MODAL_TOKEN_ID, MODAL_TOKEN_SECRET";
    return str_eq(name, "e2b") && !config->tools_e2b_key[0] ? "no key: E2B_API_KEY" : NULL;
}

int providers_create(const struct config *config, struct providers **ret, struct brig_err *err)
{
    struct providers *providers = mem_zalloc(sizeof *providers);
    const struct provider_known *known;

    if (!providers)
        return err_nomem(err);
    while (providers->n < PROVIDERS_MAX && (known = provider_known_at(providers->n))) {
        const char *why = no_key(known->name, config);
        struct entry *entry = &providers->entries[providers->n++];
        entry->name = known->name;
        str_cut(entry->off, sizeof entry->off, why ? why : known->off);
        entry->unnamed = !provider_is_among(config->providers_only, known->name);
    }
    *ret = providers;
    return 0;
}

void providers_destroy(struct providers *providers)
{
    for (size_t i = 0; providers && i < providers->n; i++) {
        struct provider *provider = providers->entries[i].provider;
        if (!provider)
            continue;
        provider_attempt_drop(provider);
        provider->ops->destroy(provider);
    }
    mem_free(providers);
}

int providers_add(struct providers *providers, struct provider *provider, struct brig_err *err)
{
    struct entry *entry = find(providers, provider->ops->name);

    if (!entry && providers->n >= PROVIDERS_MAX)
        return err_set(err, BRIG_E_LIMIT, 0, "more than %u providers", PROVIDERS_MAX);
    if (!entry)
        entry = &providers->entries[providers->n++];
    if (entry->provider)
        return err_set(err, BRIG_E_CONFLICT, 0, "provider %s: there is one already", provider->ops->name);
    *entry = (struct entry){.name = provider->ops->name, .provider = provider, .unnamed = entry->unnamed};
    return 0;
}

int providers_find(const struct providers *providers, const char *name, struct provider **ret, struct brig_err *err)
{
    const struct entry *entry = find(providers, name);

    if (!entry)
        return err_set(err, BRIG_E_INVALID, 0, "provider %.31s: there is no such one", name);
    if (why_off(entry))
        return err_set(err, BRIG_E_OFF, 0, "provider %s: %s", entry->name, why_off(entry));
    *ret = entry->provider;
    return 0;
}

struct provider *providers_at(const struct providers *providers, size_t index)
{
    for (size_t i = 0; i < providers->n; i++)
        if (providers->entries[i].provider && index-- == 0)
            return providers->entries[i].provider;
    return NULL;
}

static const char *cap_name(enum provider_cap cap)
{
    static const struct {
        enum provider_cap cap;
        const char *name;
    } names[] = {{PROVIDER_PAUSE, "pause"},
                 {PROVIDER_BINDS, "binds"},
                 {PROVIDER_ROOTFS, "rootfs"},
                 {PROVIDER_WRITABLE_ROOT, "writable_root"},
                 {PROVIDER_RECOVER, "recover"},
                 {PROVIDER_POOL, "pool"},
                 {PROVIDER_GATE, "gate"},
                 {PROVIDER_ZYGOTE, "zygote"},
                 {PROVIDER_ROOT_INSIDE, "root_inside"},
                 {PROVIDER_LAYERS, "layers"},
                 {PROVIDER_DISKS, "disks"},
                 {PROVIDER_IMAGE, "image"},
                 {PROVIDER_LIMITS, "limits"},
                 {PROVIDER_OWN_KERNEL, "own_kernel"},
                 {PROVIDER_REMOTE, "remote"}};
    _Static_assert(PROVIDER_CAP_MAX == 1 << ARRAY_SIZE(names), "a name for every capability");

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (names[i].cap == cap)
            return names[i].name;
    return "";
}

static void put_abilities(struct json *json, uint32_t caps, uint64_t layers)
{
    json_key_array(json, "can");
    for (uint32_t cap = 1; cap < PROVIDER_CAP_MAX; cap <<= 1)
        if (caps & cap)
            json_string(json, cap_name((enum provider_cap)cap));
    json_end(json);
    json_key_array(json, "layers");
    for (unsigned i = 0; i < BRIG_LAYER_MAX; i++)
        if (layers & BRIG_LAYER_BIT(i))
            json_string(json, brig_layer_name((enum brig_layer)i));
    json_end(json);
}

void providers_json(const struct providers *providers, struct json *json)
{
    json_array(json);
    for (size_t i = 0; i < providers->n; i++) {
        const struct entry *entry = &providers->entries[i];
        json_object(json);
        json_key_string(json, "name", entry->name);
        json_key_bool(json, "enabled", !why_off(entry));
        json_key(json, "why"), why_off(entry) ? json_string(json, why_off(entry)) : json_null(json);
        if (!why_off(entry))
            put_abilities(json, entry->provider->ops->caps, entry->provider->ops->protects);
        json_end(json);
    }
    json_end(json);
}

void provider_check_json(const struct provider_ops *ops, const struct provider_check *check, struct json *json)
{
    json_object(json);
    json_key_string(json, "name", ops->name);
    json_key_bool(json, "usable", check->usable);
    if (check->version[0])
        json_key_string(json, "version", check->version);
    if (check->missing[0])
        json_key_string(json, "missing", check->missing);
    if (check->install[0])
        json_key_string(json, "install", check->install);
    if (check->usable)
        json_key_u64(json, "took_ms", check->took_ms);
    put_abilities(json, ops->caps, check->layers);
    json_end(json);
}

int provider_fits(const struct provider_ops *ops, const struct provider_spec *spec, struct brig_err *err)
{
    const struct {
        uint32_t cap;
        bool wanted;
        const char *what;
    } needs[] = {{PROVIDER_ROOTFS, spec->rootfs, "other roots"},
                 {PROVIDER_IMAGE, spec->image, "images by name"},
                 {PROVIDER_BINDS, spec->n_binds, "binds"},
                 {PROVIDER_WRITABLE_ROOT, spec->writable_root, "writable root"},
                 {PROVIDER_ROOT_INSIDE, spec->root_inside, "root inside"},
                 {PROVIDER_DISKS, spec->disk || spec->n_volumes > 0, "disks that can be kept"},
                 {PROVIDER_LAYERS, spec->n_layers > 0 || spec->new_layer, "template layers"},
                 {PROVIDER_GATE, spec->gate.on, "network"}};

    for (size_t i = 0; i < ARRAY_SIZE(needs); i++)
        if (needs[i].wanted && !(ops->caps & needs[i].cap))
            return err_set(err, BRIG_E_UNSUPPORTED, 0, "the provider %s has no %s", ops->name, needs[i].what);
    for (unsigned i = 0; i < BRIG_LAYER_MAX; i++)
        if (spec->require & ~ops->protects & BRIG_LAYER_BIT(i))
            return err_set(err, BRIG_E_REFUSED, 0, "required layer %s: the provider %s cannot show it",
                           brig_layer_name((enum brig_layer)i), ops->name);
    return 0;
}
