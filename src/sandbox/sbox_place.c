/* SPDX-License-Identifier: Apache-2.0 */
/* sbox_place.c: finds the provider of a sandbox, the layers it needs, and what a box says of itself (sbox_place.h). */
#include "sandbox/sbox_place.h"

#include "provider/providers.h"

int place_find(const struct manager *manager, const char *name, struct provider **ret, struct brig_err *err)
{
    struct provider *found = manager->provider;
    int r = 0;

    if (name[0] && manager->providers)
        r = providers_find(manager->providers, name, &found, err);
    else if (name[0] && !str_eq(name, found->ops->name))
        r = err_set(err, BRIG_E_INVALID, 0, "provider %.31s: there is no such one", name);
    if (r == 0 && !found->ops->create)
        r = err_set(err, BRIG_E_UNSUPPORTED, 0, "the provider %s runs tools and has no sandboxes", found->ops->name);
    if (r == 0)
        *ret = found;
    return r;
}

struct provider *place_at(const struct manager *manager, size_t index)
{
    if (manager->providers)
        return providers_at(manager->providers, index);
    return index == 0 ? manager->provider : NULL;
}

void place_take(struct sbox *sbox, const struct box_up *up)
{
    sbox->limits = up->limits;
    sbox->limits.output = sbox->spec.limits.output; /* of each command: ours to enforce, the spawner knows none */
    memcpy(sbox->layers, up->layers, sizeof sbox->layers);
    sbox->protection_complete = up->protection_complete;
    for (unsigned i = 0; i < BRIG_LAYER_MAX; i++)
        if (up->word & BRIG_LAYER_BIT(i)) {
            sbox->layers[i] = (struct brig_layer_state){.by = "", .why = "it is the provider's word"};
            if (BRIG_REQUIRE_ALL & BRIG_LAYER_BIT(i))
                sbox->protection_complete = false;
        }
}

/* ---- the layers that a sandbox needs --------------------------------------------------------------------- */

static int add_layer(uint64_t *mask, const char *name, struct brig_err *err)
{
    int layer = brig_layer_parse(name);

    if (str_eq(name, "all"))
        *mask |= BRIG_REQUIRE_ALL;
    else if (layer < 0)
        return err_usage(err, "require %.64s: there is no such layer", name);
    else
        *mask |= BRIG_LAYER_BIT(layer);
    return 0;
}

/* Several with blanks or commas between. */
static int add_layers(uint64_t *mask, const char *text, struct brig_err *err)
{
    while (*(text += strspn(text, " ,"))) {
        char name[64];
        size_t len = strcspn(text, " ,");
        snprintf(name, sizeof name, "%.*s", len < sizeof name ? (int)len : (int)sizeof name - 1, text);
        int r = add_layer(mask, name, err);
        if (r < 0)
            return r;
        text += len;
    }
    return 0;
}

uint64_t sbox_required(const struct config *config)
{
    uint64_t mask = 0;

    /* The configuration was checked; should a name be unknown all the same, nothing runs with less than all. */
    return config->require && add_layers(&mask, config->require, NULL) < 0 ? BRIG_REQUIRE_ALL : mask;
}

int place_require(const struct json_value *v, uint64_t *mask, struct brig_err *err)
{
    const char *text;

    if (v->type == JSON_ARRAY) {
        for (const struct json_value *item = v->first; item; item = item->next) {
            int r = spec_string(item, "require", 64, false, &text, err);
            r = r < 0 ? r : add_layer(mask, text, err);
            if (r < 0)
                return r;
        }
        return 0;
    }
    int r = spec_string(v, "require", 1024, false, &text, err);
    return r < 0 ? r : add_layers(mask, text, err);
}

const char *sbox_provider(const struct sbox *sbox)
{
    return sbox_ops(sbox)->name;
}
