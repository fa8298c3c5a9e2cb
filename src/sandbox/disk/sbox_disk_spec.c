/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_disk_spec.c: what a sandbox asks of the provider's disks, and the spec of a new sandbox that has the files of
 * another one. The latter goes through the same text as a row of the store (row.c): it is written, read again, and
 * judged for whoever gets the new sandbox.
 */
#include "receipt/receipt.h"
#include "sandbox/disk/sbox_disks_priv.h"

/* ---- what a create asks for ---------------------------------------------------------------------------- */

const char *spec_disk_from(const struct sbox_spec *spec)
{
    return spec->disk_from[0] ? spec->disk_from : spec->image ? spec->image->info.disk : "";
}

bool spec_has_disk(const struct sbox_spec *spec)
{
    return (spec->forkable && !spec->ephemeral && !spec->reuse[0]) || spec_disk_from(spec)[0];
}

int disk_want(const struct sbox_spec *spec, struct disk_wanted *wanted, struct provider_spec *asked,
              struct brig_err *err)
{
    const char *from = spec_disk_from(spec);

    if (spec_has_disk(spec)) {
        int r = disk_new_name("box", wanted->disk, err);
        if (r < 0)
            return r;
        asked->disk = wanted->disk;
        asked->disk_from = from[0] ? from : NULL;
    }
    for (size_t i = 0; i < spec->n_volumes; i++)
        wanted->volumes[i] = (struct provider_volume){
            .disk = spec->volumes[i].disk, .target = spec->volumes[i].target, .read_only = spec->volumes[i].read_only};
    asked->volumes = wanted->volumes;
    asked->n_volumes = spec->n_volumes;
    return 0;
}

/* ---- what is kept of a sandbox -------------------------------------------------------------------------- */

int kept_check(const struct sbox *sbox, struct brig_err *err)
{
    const struct sbox_spec *spec = &sbox->spec;
    int r = disks_can(sbox->manager, err);

    if (r == 0 && sbox->priv->provider != sbox->manager->provider)
        r = err_set(err, BRIG_E_UNSUPPORTED, 0, "the provider %s has no disks that can be kept", sbox_ops(sbox)->name);
    if (r < 0)
        return r;
    if (spec->reuse[0] || spec->ephemeral || spec->service || sbox->priv->internal)
        return err_set(err, BRIG_E_CONFLICT, 0, "sandbox %s was made for runs: it cannot be kept or copied",
                       sbox_label(sbox));
    if ((sbox->state != SBOX_RUNNING && sbox->state != SBOX_PAUSED) || !sbox->priv->box)
        return err_set(err, BRIG_E_CONFLICT, 0, "sandbox %s is %s: only a running or paused one can be copied",
                       sbox_label(sbox), sbox_state_name(sbox->state));
    return 0;
}

void kept_put(const struct sbox *sbox, struct json *json)
{
    json_key_object(json, "spec");
    json_spec(json, &sbox->spec, true);
    receipt_put_limits(json, &sbox->spec.limits);
    json_end(json);
    if (sbox->spec.image)
        json_key(json, "image"), template_copy_put(sbox->spec.image, json);
}

struct caller caller_weaker(const struct caller *caller, enum standing as)
{
    struct caller ret = *caller;
    enum standing weaker = standing_weaker(caller_standing(caller), as);

    ret.socket = weaker == STANDING_SOCKET;
    ret.role = weaker >= STANDING_ADMIN  ? STORE_ROLE_ADMIN
               : weaker == STANDING_USER ? STORE_ROLE_USER
                                         : STORE_ROLE_READ_ONLY;
    return ret;
}

int kept_spec(const struct manager *manager, const struct json_value *spec, const struct json_value *image,
              const struct caller *as, uint64_t size, uint64_t inodes, struct sbox_spec *ret, struct brig_err *err)
{
    int r = spec_parse_stored(spec, manager->config, as, ret, err);

    if (r < 0)
        return r;
    if (image)
        r = template_copy_read(image, &ret->image, err);
    if (r == 0)
        r = spec_check_use(ret, ret->n_binds > 0, "its sandbox", as, manager->config, err);
    if (r == 0)
        r = sbox_spec_check_binds(ret, err);
    if (r < 0) {
        sbox_spec_done(ret);
        return r;
    }
    for (size_t i = 0; i < ret->n_volumes; i++)
        ret->volumes[i].disk[0] = '\0';
    ret->forkable = true;
    ret->limits.disk = size;
    ret->limits.inodes = inodes;
    ret->name[0] = '\0';
    return 0;
}

int kept_change(struct sbox_spec *spec, const struct disk_copy_want *want, unsigned number, struct brig_err *err)
{
    int r = 0;

    if (want->no_volumes)
        spec->n_volumes = 0;
    if (!want->name || !want->name[0])
        return 0;
    r = number ? str_format(spec->name, sizeof spec->name, "%s-%u", want->name, number)
               : str_copy(spec->name, sizeof spec->name, want->name);
    return r < 0 ? err_usage(err, "name %.64s: too long", want->name) : spec_name_check(spec->name, err);
}
