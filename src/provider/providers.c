/* SPDX-License-Identifier: Apache-2.0 */
/*
 * providers.c: the list of providers (providers.h). Names that are known and not built are in the list too, so that a
 * request for one gets the reason, and not "there is no such one".
 */
#include "provider/providers.h"

#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "config/config.h"

struct entry {
    const char *name;
    char off[80]; /* why it cannot be used; "": it can */
    struct provider *provider;
};

struct providers {
    struct entry entries[PROVIDERS_MAX];
    size_t n;
};

static struct entry *find(const struct providers *providers, const char *name)
{
    for (size_t i = 0; i < providers->n; i++)
        if (str_eq(providers->entries[i].name, name))
            return (struct entry *)&providers->entries[i];
    return NULL;
}

static void add_known(struct providers *providers, const char *name, const char *off)
{
    struct entry *entry = &providers->entries[providers->n++];

    entry->name = name;
    str_cut(entry->off, sizeof entry->off, off);
}

int providers_create(const struct config *config, struct providers **ret, struct brig_err *err)
{
    struct providers *providers = mem_zalloc(sizeof *providers);
    const bool modal = config->tools_modal_id[0] && config->tools_modal_secret[0], e2b = config->tools_e2b_key[0];

    if (!providers)
        return err_nomem(err);
    add_known(providers, "local", "there is no spawner");
    add_known(providers, "modal", modal ? "not built yet" : "no key: MODAL_TOKEN_ID, MODAL_TOKEN_SECRET");
    add_known(providers, "e2b", e2b ? "not built yet" : "no key: E2B_API_KEY");
    add_known(providers, "daytona", "not built yet");
    add_known(providers, "docker", "not built yet");
    *ret = providers;
    return 0;
}

void providers_destroy(struct providers *providers)
{
    for (size_t i = 0; providers && i < providers->n; i++)
        if (providers->entries[i].provider)
            providers->entries[i].provider->ops->destroy(providers->entries[i].provider);
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
    *entry = (struct entry){.name = provider->ops->name, .provider = provider};
    return 0;
}

int providers_find(const struct providers *providers, const char *name, struct provider **ret, struct brig_err *err)
{
    const struct entry *entry = find(providers, name);

    if (!entry)
        return err_set(err, BRIG_E_USAGE, 0, "provider %.31s: there is no such one", name);
    if (!entry->provider)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "provider %s: %s", name, entry->off);
    *ret = entry->provider;
    return 0;
}

void providers_json(const struct providers *providers, struct json *json)
{
    json_array(json);
    for (size_t i = 0; i < providers->n; i++) {
        const struct entry *entry = &providers->entries[i];
        json_object(json);
        json_key_string(json, "name", entry->name);
        json_key_bool(json, "enabled", entry->provider != NULL);
        json_key(json, "why"), entry->provider ? json_null(json) : json_string(json, entry->off);
        json_end(json);
    }
    json_end(json);
}

int provider_fits(const struct provider_ops *ops, const struct provider_spec *spec, struct brig_err *err)
{
    const struct {
        uint32_t cap;
        bool wanted;
        const char *what;
    } needs[] = {{PROVIDER_ROOTFS, spec->rootfs, "other roots"},
                 {PROVIDER_BINDS, spec->n_binds, "binds"},
                 {PROVIDER_WRITABLE_ROOT, spec->writable_root, "writable root"},
                 {PROVIDER_ROOT_INSIDE, spec->root_inside, "root inside"},
                 {PROVIDER_DISKS, spec->disk || spec->n_volumes > 0, "disks that can be kept"},
                 {PROVIDER_LAYERS, spec->n_layers > 0 || spec->new_layer, "template layers"}};

    for (size_t i = 0; i < ARRAY_SIZE(needs); i++)
        if (needs[i].wanted && !(ops->caps & needs[i].cap))
            return err_set(err, BRIG_E_UNSUPPORTED, 0, "the provider %s has no %s", ops->name, needs[i].what);
    for (unsigned i = 0; i < BRIG_LAYER_MAX; i++)
        if (spec->require & ~ops->protects & BRIG_LAYER_BIT(i))
            return err_set(err, BRIG_E_UNSUPPORTED, 0, "the provider %s cannot show the layer %s", ops->name,
                           brig_layer_name((enum brig_layer)i));
    return 0;
}
