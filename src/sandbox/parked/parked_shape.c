/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parked_shape.c: says what a sandbox is made of, so that a create can be compared with a parked one.
 *
 * The shape is written like the row of a sandbox, from all that a spec can say, without the few members that only brigd
 * reads and that the create brings itself. A member of a later day is therefore part of the shape until somebody
 * decides otherwise: then a create that names it is made the ordinary way, which is slower and never wrong.
 */
#include "sandbox/parked/parked.h"

#include "receipt/receipt.h"
#include "sandbox/private.h"

static void put_list(struct json *json, const char *key, const char *const *list, size_t n)
{
    json_key_array(json, key);
    for (size_t i = 0; i < n; i++)
        json_string(json, list[i]);
    json_end(json);
}

/* The files below it and the variables of its services; what else an image says is read from the create's own copy. */
static void put_image(struct json *json, const struct template_copy *image)
{
    size_t n_env = 0;

    while (image->info.image.env && image->info.image.env[n_env])
        n_env++;
    json_key_object(json, "image");
    json_key_string(json, "organization_id", image->org);
    json_key_string(json, "name", image->name);
    json_key_string(json, "content", template_content(&image->info));
    json_key_string(json, "disk", image->info.disk);
    json_key_string(json, "base", image->info.base);
    put_list(json, "layers", image->info.layers, image->info.n_layers);
    put_list(json, "env", image->info.image.env, n_env);
    json_end(json);
}

int parked_shape(const struct sbox_spec *spec, struct buf *out)
{
    struct sbox_spec *box = mem_alloc(sizeof *box);
    struct json json = JSON_INIT(out);

    if (!box)
        return -ENOMEM;
    *box = *spec; /* its strings are still the spec's */
    box->name[0] = '\0';
    box->n_metadata = 0;
    box->timeout_ms = box->idle_timeout_ms = 0;
    box->on_timeout = SBOX_TIMEOUT_KILL;
    box->on_death = SBOX_DEATH_NONE;
    box->idle_ignores_processes = false;
    box->services_keep = false;
    json_object(&json);
    json_spec(&json, box, true);
    receipt_put_limits(&json, &box->limits);
    json_key_bool(&json, "workdir_of_image", box->workdir_of_image);
    if (box->image)
        put_image(&json, box->image);
    json_end(&json);
    mem_free(box);
    return json_finish(&json);
}

/* One that is made for a purpose of its own, or is a copy of another. */
static bool is_special(const struct sbox_spec *spec)
{
    return spec->service || spec->reuse[0] || spec->zygote || spec->new_layer || spec->below || spec->raw_upper ||
           spec->n_tmpfs || spec->disk_from[0] || spec->forked_from[0] || spec->restored_from[0] || spec->any_port ||
           spec->proxy_port || spec->trust;
}

int parked_can(const struct sbox_spec *spec, struct brig_err *err)
{
    const char *why = NULL;

    if (!spec->image)
        why = "it is no template that was pulled, loaded, built or committed";
    else if (spec->image->info.base[0] && !str_eq(spec->image->info.base, "host"))
        why = "it was made from a sandbox of a directory of [sandbox] templates";
    else if (!slot_is_none(spec))
        why = "its sandboxes have a network or secrets";
    else if (spec->n_binds || spec->n_volumes || is_special(spec))
        why = "its sandboxes have directories, volumes or a purpose of their own";
    return why ? err_set(err, BRIG_E_UNSUPPORTED, 0, "template %s: no sandbox of it is kept ready: %s",
                         spec->template_name, why)
               : 0;
}
