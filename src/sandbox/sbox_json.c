/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_json.c: a sandbox as its owner sees it (schema Sandbox), and its spec as a create would ask for it. Values of
 * the environment go into the store, where a recreation needs them, and into nothing else.
 */
#include "receipt/receipt.h"
#include "sandbox/private.h"

void json_pairs(struct json *json, const struct sbox_pair *pairs, size_t n)
{
    json_object(json);
    for (size_t i = 0; i < n; i++)
        json_key(json, pairs[i].name), json_string(json, pairs[i].value);
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
    json_key(json, "require");
    json_array(json);
    for (int i = 0; i < BRIG_LAYER_MAX; i++)
        if (require & BRIG_LAYER_BIT(i))
            json_string(json, brig_layer_name((enum brig_layer)i));
    json_end(json);
}

static void put_binds(struct json *json, const struct sbox_spec *spec)
{
    json_key(json, "binds");
    json_array(json);
    for (size_t i = 0; i < spec->n_binds; i++) {
        json_object(json);
        json_key(json, "source"), json_string(json, spec->binds[i].source);
        json_key(json, "target"), json_string(json, spec->binds[i].target);
        json_key(json, "read_only"), json_bool(json, spec->binds[i].read_only);
        if (spec->binds[i].overlay)
            json_key(json, "overlay"), json_bool(json, true);
        json_end(json);
    }
    json_end(json);
}

static void put_secrets(struct json *json, const struct sbox_spec *spec)
{
    json_key(json, "secrets");
    json_array(json);
    for (size_t i = 0; i < spec->n_secrets; i++) {
        json_object(json);
        json_key(json, "name"), json_string(json, spec->secrets[i].name);
        json_key(json, "env"), json_string(json, spec->secrets[i].env);
        json_key(json, "expose"), json_bool(json, spec->secrets[i].expose);
        json_end(json);
    }
    json_end(json);
}

void json_spec(struct json *json, const struct sbox_spec *spec, bool values)
{
    json_key(json, "template"), json_string(json, spec->template_name);
    if (spec->name[0])
        json_key(json, "name"), json_string(json, spec->name);
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
    json_key(json, "profile"), json_string(json, brig_profile_name(spec->profile));
    json_key(json, "workdir"), json_string(json, spec->workdir);
    json_key(json, "user"), json_string(json, spec->user);
    put_binds(json, spec);
    if (values) /* the store's; people are told what is in force (network_put()) */
        json_key(json, "network"),
            json_raw(json, spec->network ? spec->network : "\"none\"", spec->network ? strlen(spec->network) : 6);
    put_secrets(json, spec);
    put_span(json, "timeout", spec->timeout_ms);
    put_span(json, "idle_timeout", spec->idle_timeout_ms);
    json_key(json, "on_timeout"), json_string(json, spec->on_timeout == SBOX_TIMEOUT_PAUSE ? "pause" : "kill");
    json_key(json, "on_death"), json_string(json, spec->on_death == SBOX_DEATH_RECREATE ? "recreate" : "none");
    json_key(json, "idle_policy"), json_string(json, spec->idle_ignores_processes ? "requests" : "activity");
    json_key(json, "confine"), json_string(json, spec->confine ? "workdir" : "root");
    json_key(json, "writable_root"), json_bool(json, spec->writable_root);
}

void sbox_json(const struct sbox *sbox, struct json *json)
{
    json_object(json);
    json_key(json, "id");
    if (sbox->id[0])
        json_string(json, sbox->id);
    else
        json_null(json); /* not up yet */
    json_key(json, "state"), json_string(json, sbox_state_name(sbox->state));
    json_key(json, "organization_id"), json_string(json, sbox->org_id);
    if (sbox->key_id[0])
        json_key(json, "key_id"), json_string(json, sbox->key_id);
    json_key(json, "provider"), json_string(json, sbox_ops(sbox)->name);
    json_key(json, "boot_id"), json_string(json, sbox->boot_id);
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
    json_key(json, "processes"), json_u64(json, sbox->processes);
    if (sbox->spec.note[0])
        json_key(json, "note"), json_string(json, sbox->spec.note);
    json_end(json);
}
