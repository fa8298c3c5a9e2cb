/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_volumes.c: volumes: made, attached to sandboxes, removed. Which sandbox has which volume is nowhere written down
 * but in the sandboxes themselves: a create walks the list of those that live.
 */
#include "host/limits.h"
#include "sandbox/disk/sbox_disks_priv.h"

#define VOLUME_MIN (UINT64_C(1) << 20)
#define VOLUME_MAX (UINT64_C(1) << 43)

/* ---- making --------------------------------------------------------------------------------------------- */

struct volume_job {
    struct disk_job job;
    char name[DISK_LABEL_SIZE];
    uint64_t size, inodes;
    objects_done_fn *done;
    void *ctx;
};

static void made(struct volume_job *job, const struct object *volume, const struct brig_err *err)
{
    struct manager *manager = job->job.manager;
    const struct volume_job copy = *job;

    if (manager) {
        manager->disks->failures += err != NULL;
        sandbox_audit(manager, &job->job.caller, NULL, "volume.create", job->name, err ? "failed" : "ok",
                      err ? err->message : job->job.disk, true);
    }
    disk_job_free(&job->job);
    copy.done(copy.ctx, volume, err);
}

static void on_recorded(void *ctx, const struct object *volume, const struct brig_err *err)
{
    struct volume_job *job = ctx;
    struct brig_err why = {0};

    job->job.in_store = false;
    if (!err && !volume)
        (void)err_set(&why, BRIG_E_CONFLICT, 0, "volume %s was removed meanwhile", job->name);
    else if (err)
        why = *err;
    if (why.code && job->job.manager)
        disk_drop(job->job.manager, job->job.disk);
    made(job, volume, why.code ? &why : NULL);
}

static void on_made(void *ctx, const struct disk_info *info, const struct brig_err *err)
{
    struct volume_job *job = ctx;
    struct manager *manager = job->job.manager;
    struct volume volume = {.size = job->size, .inodes = info ? info->inodes : 0};
    struct brig_err why = {0};

    if (err) {
        made(job, NULL, err);
        return;
    }
    str_assign(volume.name, job->name);
    str_assign(volume.key_id, job->job.caller.key_id);
    str_assign(volume.created_by, job->job.caller.actor);
    job->job.in_store = true;
    if (volumes_put(manager->volumes, job->job.caller.org_id, job->job.disk, &volume, on_recorded, job, &why) < 0) {
        job->job.in_store = false;
        disk_drop(manager, job->job.disk);
        made(job, NULL, &why);
    }
}

static int check_make(struct manager *manager, const struct caller *caller, const char *name, uint64_t size,
                      struct brig_err *err)
{
    int r = disks_can(manager, err);

    if (r < 0)
        return r;
    if (size < VOLUME_MIN || size > VOLUME_MAX)
        return err_usage(err, "size %llu: a volume has 1 MiB to 8 TiB", (unsigned long long)size);
    if (volumes_find(manager->volumes, caller->org_id, name))
        return err_set(err, BRIG_E_CONFLICT, 0, "volume %s: there is one of this name", name);
    return quota_check_disk(manager, caller, size, err);
}

static int make(struct manager *manager, const struct caller *caller, const char *name, uint64_t size, uint64_t inodes,
                objects_done_fn *done, void *ctx, struct brig_err *err)
{
    struct disk_job *base = NULL;
    int r = check_make(manager, caller, name, size, err);

    r = r < 0 ? r : disk_job_new(manager, caller, sizeof(struct volume_job), "vol", &base, err);
    if (r < 0)
        return r;
    struct volume_job *job = (struct volume_job *)base;
    struct brig_limits limits = {.disk = size, .inodes = inodes};
    limits_fill(&limits, true);
    base->bytes = job->size = size;
    job->inodes = limits.inodes;
    job->done = done;
    job->ctx = ctx;
    r = str_copy(job->name, sizeof job->name, name);
    const struct disk_order order = {.op = DISK_MAKE, .name = base->disk, .size = size, .inodes = job->inodes};
    r = r < 0 ? err_usage(err, "volume %.64s: too long", name)
              : manager->provider->ops->disk(manager->provider, &order, NULL, on_made, job, err);
    if (r < 0)
        disk_job_free(base);
    return r;
}

int volume_make(struct manager *manager, const struct caller *caller, const char *name, uint64_t size, uint64_t inodes,
                objects_done_fn *done, void *ctx, struct brig_err *err)
{
    int r = disks_can(manager, err);

    r = r < 0 ? r : disk_label_check("volume", name, err);
    return r < 0 ? r : make(manager, caller, name, size, inodes, done, ctx, err);
}

int volume_make_cache(struct manager *manager, const struct caller *caller, const char *name, uint64_t size,
                      objects_done_fn *done, void *ctx, struct brig_err *err)
{
    return make(manager, caller, name, size, 0, done, ctx, err);
}

/* ---- attaching ------------------------------------------------------------------------------------------ */

static const struct sbox_volume *has_volume(const struct sbox *sbox, const char *disk)
{
    for (size_t i = 0; i < sbox->spec.n_volumes; i++)
        if (str_eq(sbox->spec.volumes[i].disk, disk))
            return &sbox->spec.volumes[i];
    return NULL;
}

void volume_users(const struct manager *manager, const struct object *volume,
                  void (*each)(void *ctx, const struct sbox *sbox, bool read_only), void *ctx)
{
    for (const struct sbox *s = manager->first; s; s = s->next) {
        const struct sbox_volume *has = has_volume(s, volume->id);
        if (has)
            each(ctx, s, has->read_only);
    }
}

const struct object *volume_find_cache(const struct manager *manager, const char *org, const char *name, bool *ret_used)
{
    const struct object *object = manager->volumes ? volumes_find(manager->volumes, org, name) : NULL;

    *ret_used = false;
    if (!object || disk_is_going(manager, object->id) || volume_of(object)->look.lost)
        return NULL;
    for (const struct sbox *s = manager->first; s && !*ret_used; s = s->next)
        *ret_used = has_volume(s, object->id) != NULL;
    return object;
}

static int attach_one(struct manager *manager, const char *org, struct sbox_volume *volume, bool service,
                      const struct sbox *without, struct brig_err *err)
{
    if (service && volume->disk[0]) /* that of a template, which the service itself has named */
        return 0;
    const struct object *object = volumes_find(manager->volumes, org, volume->name);

    if (!object || disk_is_going(manager, object->id) || (volume_is_cache(object) && !service))
        return err_set(err, BRIG_E_NOT_FOUND, 0, "volume %s not found", volume->name);
    if (volume_of(object)->look.lost)
        return err_set(err, BRIG_E_GONE, 0, "volume %s: its disk is gone", volume->name);
    for (const struct sbox *s = manager->first; s; s = s->next) {
        const struct sbox_volume *has = has_volume(s, object->id);
        if (has && s != without && !(has->read_only && volume->read_only))
            return err_set(err, BRIG_E_CONFLICT, 0,
                           "volume %s: sandbox %s has it attached for %s; one sandbox may write to it, or any number "
                           "read it",
                           volume->name, sbox_label(s), has->read_only ? "reading" : "writing");
    }
    return str_copy(volume->disk, sizeof volume->disk, object->id) < 0
               ? err_set(err, BRIG_E_HOST, 0, "volume %s: its id is too long", volume->name)
               : 0;
}

int volumes_attach(struct manager *manager, const char *org, struct sbox_spec *spec, const struct sbox *without,
                   struct brig_err *err)
{
    int r = spec->n_volumes > 0 ? disks_can(manager, err) : 0;

    for (size_t i = 0; r == 0 && i < spec->n_volumes; i++) {
        r = attach_one(manager, org, &spec->volumes[i], spec->service, without, err);
        for (size_t k = 0; r == 0 && k < i; k++)
            if (str_eq(spec->volumes[k].disk, spec->volumes[i].disk))
                r = err_usage(err, "volumes: %s is named twice", spec->volumes[i].name);
    }
    return r;
}

/* ---- removing ------------------------------------------------------------------------------------------- */

struct removal_job {
    struct disk_job job;
    const char *action;
    char label[DISK_LABEL_SIZE];
    disk_done_fn *done;
    void *ctx;
};

static void removed(struct removal_job *job, const struct brig_err *err)
{
    struct manager *manager = job->job.manager;
    const struct removal_job copy = *job;

    if (manager)
        sandbox_audit(manager, &job->job.caller, NULL, job->action, job->label, err ? "failed" : "ok",
                      err ? err->message : job->job.disk, true);
    disk_job_free(&job->job);
    copy.done(copy.ctx, err);
}

/* The record is gone, and so is the disk for everybody who asks; if it still lies there, a look removes it. */
static void on_disk_removed(void *ctx, const struct disk_info *info UNUSED, const struct brig_err *err)
{
    struct removal_job *job = ctx;

    if (err && err->code != BRIG_E_NOT_FOUND)
        job->job.manager->disks->failures++;
    removed(job, NULL);
}

static void on_record_removed(void *ctx, const struct object *object UNUSED, const struct brig_err *err)
{
    struct removal_job *job = ctx;
    struct manager *manager = job->job.manager;
    const struct disk_order order = {.op = DISK_REMOVE, .name = job->job.disk};

    job->job.in_store = false;
    if (err || !manager || disks_can(manager, NULL) < 0 ||
        manager->provider->ops->disk(manager->provider, &order, NULL, on_disk_removed, job, NULL) < 0)
        removed(job, err);
}

int kept_remove(struct manager *manager, const struct caller *caller, struct objects *objects,
                const struct object *object, const char *action, const char *label, disk_done_fn *done, void *ctx,
                struct brig_err *err)
{
    struct disk_job *base = NULL;

    if (disk_is_going(manager, object->id))
        return err_set(err, BRIG_E_NOT_FOUND, 0, "%s is being removed", label);
    int r = disk_job_new(manager, caller, sizeof(struct removal_job), NULL, &base, err);
    if (r < 0)
        return r;
    struct removal_job *job = (struct removal_job *)base;
    str_cut(base->disk, sizeof base->disk, object->id);
    str_cut(job->label, sizeof job->label, label);
    base->removing = base->in_store = true;
    job->action = action;
    job->done = done;
    job->ctx = ctx;
    r = objects_delete(objects, object->org_id, object->id, on_record_removed, job, err);
    if (r < 0)
        disk_job_free(base);
    return r;
}

int volume_remove(struct manager *manager, const struct caller *caller, const struct object *volume, disk_done_fn *done,
                  void *ctx, struct brig_err *err)
{
    /* What is in a cache decides what a build gives, and whose builds have it is not to be seen from its name. */
    if (volume_is_cache(volume) && !caller_is_admin(caller) &&
        (!caller->key_id[0] || !str_eq(caller->key_id, volume_of(volume)->key_id)))
        return err_set(err, BRIG_E_FORBIDDEN, 0,
                       "volume %s: a cache of builds is removed by an administrator, or by the key that made it",
                       volume_of(volume)->name);
    for (const struct sbox *s = manager->first; s; s = s->next)
        if (has_volume(s, volume->id))
            return err_set(err, BRIG_E_CONFLICT, 0, "volume %s: sandbox %s has it attached", volume_of(volume)->name,
                           sbox_label(s));
    return kept_remove(manager, caller, volumes_objects(manager->volumes), volume, "volume.remove",
                       volume_of(volume)->name, done, ctx, err);
}

static void ignore_done(void *ctx UNUSED, const struct brig_err *err UNUSED)
{
}

size_t volume_prune_caches(struct manager *manager, const struct caller *caller)
{
    const struct object *next,
        *at = manager->volumes ? objects_first(volumes_objects(manager->volumes), caller->org_id) : NULL;
    size_t n = 0;

    for (; at; at = next) {
        next = at->next;
        if (volume_is_cache(at))
            n += volume_remove(manager, caller, at, ignore_done, NULL, NULL) == 0;
    }
    return n;
}
