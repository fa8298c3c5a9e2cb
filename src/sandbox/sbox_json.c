/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_json.c: writes a sandbox as its owner sees it (schema Sandbox), and its spec as a create would ask for it.
 * Values of the environment go into the store, where a recreation needs them, and nowhere else.
 */
#include "receipt/receipt.h"
#include "sandbox/private.h"

void json_pairs(struct json *json, const struct sbox_pair *pairs, size_t n)
{
    json_object(json);
    for (size_t i = 0; i < n; i++)
        json_key_string(json, pairs[i].name, pairs[i].value);
    json_end(json);
}

static void put_span(struct json *json, const char *key, uint64_t ms)
{
    json_key(json, key);
    if (ms)
        json_thousandths(json, ms);
    else
        json_null(json);
}

static void put_require(struct json *json, uint64_t require)
{
    json_key_array(json, "require");
    for (int i = 0; i < BRIG_LAYER_MAX; i++)
        if (require & BRIG_LAYER_BIT(i))
            json_string(json, brig_layer_name((enum brig_layer)i));
    json_end(json);
}

static void put_binds(struct json *json, const struct sbox_spec *spec)
{
    json_key_array(json, "binds");
    for (size_t i = 0; i < spec->n_binds; i++) {
        json_object(json);
        json_key_string(json, "source", spec->binds[i].source);
        json_key_string(json, "target", spec->binds[i].target);
        json_key_bool(json, "read_only", spec->binds[i].read_only);
        if (spec->binds[i].overlay)
            json_key_bool(json, "overlay", true);
        json_end(json);
    }
    json_end(json);
}

static void put_volumes(struct json *json, const struct sbox_spec *spec, bool values)
{
    json_key_array(json, "volumes");
    for (size_t i = 0; i < spec->n_volumes; i++) {
        json_object(json);
        json_key_string(json, "name", spec->volumes[i].name);
        json_key_string(json, "target", spec->volumes[i].target);
        json_key_bool(json, "read_only", spec->volumes[i].read_only);
        if (values)
            json_key_string(json, "disk", spec->volumes[i].disk);
        json_end(json);
    }
    json_end(json);
}

static void put_secrets(struct json *json, const struct sbox_spec *spec)
{
    json_key_array(json, "secrets");
    for (size_t i = 0; i < spec->n_secrets; i++) {
        json_object(json);
        json_key_string(json, "name", spec->secrets[i].name);
        json_key_string(json, "env", spec->secrets[i].env);
        json_key_bool(json, "expose", spec->secrets[i].expose);
        json_end(json);
    }
    json_end(json);
}

/* The store has them as they were asked for; people see the names, and ask for the rest. */
static void put_services(struct json *json, const struct sbox_spec *spec, bool values)
{
    if (values) {
        json_key_raw(json, "services", spec->services, strlen(spec->services));
        return;
    }
    json_key_array(json, "services");
    for (const char *at = spec->service_names; *at;) {
        size_t len = strcspn(at, " ");
        json_string_n(json, at, len);
        at += len + (at[len] == ' ');
    }
    json_end(json);
}

void json_spec(struct json *json, const struct sbox_spec *spec, bool values)
{
    json_key_string(json, "template", spec->template_name);
    if (spec->engine_image[0])
        json_key_string(json, "image", spec->engine_image);
    if (values && spec->provider[0]) /* people are told which one has it */
        json_key_string(json, "provider", spec->provider);
    if (spec->name[0])
        json_key_string(json, "name", spec->name);
    json_key(json, "metadata"), json_pairs(json, spec->metadata, spec->n_metadata);
    json_key(json, "env");
    if (values) {
        json_pairs(json, spec->env, spec->n_env);
    } else { /* names only */
        json_array(json);
        for (size_t i = 0; i < spec->n_env; i++)
            json_string(json, spec->env[i].name);
        json_end(json);
    }
    put_require(json, spec->require);
    json_key_string(json, "profile", brig_profile_name(spec->profile));
    json_key_string(json, "workdir", spec->workdir);
    json_key_string(json, "user", spec->user);
    put_binds(json, spec);
    put_volumes(json, spec, values);
    json_key_bool(json, "forkable", spec_has_disk(spec));
    if (values) /* the store's; people are told what is in force (network_put()) */
        json_key_raw(json, "network", spec->network ? spec->network : "\"none\"",
                     spec->network ? strlen(spec->network) : 6);
    put_secrets(json, spec);
    put_span(json, "timeout", spec->timeout_ms);
    put_span(json, "idle_timeout", spec->idle_timeout_ms);
    json_key_string(json, "on_timeout", spec->on_timeout == SBOX_TIMEOUT_PAUSE ? "pause" : "kill");
    json_key_string(json, "on_death", spec->on_death == SBOX_DEATH_RECREATE ? "recreate" : "none");
    json_key_string(json, "idle_policy", spec->idle_ignores_processes ? "requests" : "activity");
    json_key_string(json, "confine", spec->confine ? "workdir" : "root");
    json_key_bool(json, "writable_root", spec->writable_root);
    json_key_bool(json, "sudo", spec->sudo);
    if (spec->services) {
        json_key_string(json, "on_service_failure", spec->services_keep ? "keep" : "end");
        put_services(json, spec, values);
    }
}

void sbox_json(const struct sbox *sbox, struct json *json)
{
    json_object(json);
    json_key(json, "id");
    if (sbox->id[0])
        json_string(json, sbox->id);
    else
        json_null(json); /* not up yet */
    json_key_string(json, "state", sbox_state_name(sbox->state));
    json_key_string(json, "organization_id", sbox->org_id);
    if (sbox->key_id[0])
        json_key_string(json, "key_id", sbox->key_id);
    json_key_string(json, "provider", sbox_ops(sbox)->name);
    json_key_string(json, "boot_id", sbox->boot_id);
    json_spec(json, &sbox->spec, false);
    network_put(json, sbox);
    receipt_put_limits(json, &sbox->limits);
    receipt_put_protection(json, sbox->layers, sbox->protection_complete);
    receipt_put_time(json, "created_at", sbox->created_at_ns);
    receipt_put_time(json, "updated_at", sbox->updated_at_ns);
    if (sbox->ends_at_boot_ns) {
        /* Wall time is display: from how far away it is now. */
        int64_t left = (int64_t)(sbox->ends_at_boot_ns - sandbox_boot_ns());
        receipt_put_time(json, "ends_at", clock_real_ns() + left);
    }
    json_key_u64(json, "processes", sbox->processes);
    json_key_bool(json, "pooled", sbox->priv->pooled);
    if (sbox->spec.forked_from[0])
        json_key_string(json, "forked_from", sbox->spec.forked_from);
    if (sbox->spec.restored_from[0])
        json_key_string(json, "restored_from", sbox->spec.restored_from);
    if (sbox->spec.image)
        template_image_put(&sbox->spec.image->info.image, json);
    if (sbox->spec.note[0])
        json_key_string(json, "note", sbox->spec.note);
    json_end(json);
}
