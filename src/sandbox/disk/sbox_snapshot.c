/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_snapshot.c: snapshots (sbox_disks.h): a copy of a sandbox's files at one moment and a record of what the sandbox
 * was. A restore makes a new sandbox of both. What the record says is written down before the provider is asked,
 * because the sandbox may be gone when it answers.
 */
#include "sandbox/disk/sbox_disks_priv.h"

/* ---- taking one ----------------------------------------------------------------------------------------- */

struct snap_job {
    struct disk_job job;
    char org_id[64];
    char sandbox_id[32];
    struct buf doc;
    struct json json; /* of doc, open until the size is known */
    objects_done_fn *done;
    void *ctx;
};

static void free_snap(struct disk_job *job)
{
    buf_done(&((struct snap_job *)job)->doc);
}

static void taken(struct snap_job *job, const struct object *snapshot, const struct brig_err *err)
{
    struct manager *manager = job->job.manager;
    objects_done_fn *done = job->done;
    void *ctx = job->ctx;

    if (manager) {
        manager->disks->failures += err != NULL;
        sandbox_audit(manager, &job->job.caller, job->org_id, "snapshot.create", job->sandbox_id, err ? "failed" : "ok",
                      err ? err->message : job->job.disk, true);
    }
    disk_job_free(&job->job);
    done(ctx, snapshot, err);
}

static void on_recorded(void *ctx, const struct object *snapshot, const struct brig_err *err)
{
    struct snap_job *job = ctx;
    struct brig_err why = {0};

    job->job.in_store = false;
    if (!err && !snapshot)
        (void)err_set(&why, BRIG_E_CONFLICT, 0, "the snapshot was removed meanwhile");
    else if (err)
        why = *err;
    if (why.code && job->job.manager)
        disk_drop(job->job.manager, job->job.disk);
    taken(job, snapshot, why.code ? &why : NULL);
}

static void on_snapped(void *ctx, const struct disk_info *info, const struct brig_err *err)
{
    struct snap_job *job = ctx;
    struct manager *manager = job->job.manager;
    struct brig_err why = {0};

    if (err) {
        taken(job, NULL, err);
        return;
    }
    json_key_u64(&job->json, "size", info->size);
    json_key_u64(&job->json, "inodes", info->inodes);
    json_end(&job->json);
    int r = json_finish(&job->json);
    job->job.in_store = true;
    r = r == -EMSGSIZE ? err_set(&why, BRIG_E_TOO_LARGE, 0, "the sandbox's spec: more than %u bytes", ROW_MAX)
        : r < 0        ? err_nomem(&why)
                : snapshots_put(manager->snapshots, job->org_id, job->job.disk, &job->doc, on_recorded, job, &why);
    if (r < 0) {
        job->job.in_store = false;
        disk_drop(manager, job->job.disk);
        taken(job, NULL, &why);
    }
}

static void begin_doc(struct snap_job *job, const struct sbox *sbox, const struct caller *caller, const char *name)
{
    struct json *json = &job->json;
    enum standing as = standing_weaker(caller_standing(caller), caller_standing(&sbox->priv->creator));

    job->doc = BUF_INIT(ROW_MAX);
    *json = JSON_INIT(&job->doc);
    json_object(json);
    json_key_string(json, "name", name);
    json_key_string(json, "key_id", caller->key_id);
    json_key_string(json, "created_by", caller->actor);
    json_key_string(json, "created_as", standing_name(as));
    json_key_string(json, "sandbox_id", sbox->id);
    json_key_string(json, "sandbox_name", sbox->spec.name);
    kept_put(sbox, json);
}

int sbox_snapshot(struct sbox *sbox, const struct caller *caller, const char *name, objects_done_fn *done, void *ctx,
                  struct brig_err *err)
{
    struct manager *manager = sbox->manager;
    struct caller by = *caller;
    struct disk_job *base = NULL;
    int r = kept_check(sbox, err);

    str_assign(by.org_id, sbox->org_id);
    if (r == 0 && name[0])
        r = disk_label_check("snapshot", name, err);
    if (r == 0 && name[0] && snapshots_find(manager->snapshots, sbox->org_id, name))
        r = err_set(err, BRIG_E_CONFLICT, 0, "snapshot %s: there is one of this name", name);
    r = r < 0 ? r : quota_check_disk(manager, &by, sbox->limits.disk, err);
    r = r < 0 ? r : disk_job_new(manager, &by, sizeof(struct snap_job), "snap", &base, err);
    if (r < 0)
        return r;
    struct snap_job *job = (struct snap_job *)base;
    base->free = free_snap;
    base->bytes = sbox->limits.disk;
    str_assign(job->org_id, sbox->org_id);
    str_assign(job->sandbox_id, sbox->id);
    job->done = done;
    job->ctx = ctx;
    begin_doc(job, sbox, caller, name);
    const struct disk_order order = {.op = DISK_SNAP, .name = base->disk, .box = sbox->priv->box};
    r = manager->provider->ops->disk(manager->provider, &order, NULL, on_snapped, job, err);
    if (r < 0)
        disk_job_free(base);
    return r;
}

/* ---- who may -------------------------------------------------------------------------------------------- */

static int snapshot_check_use(struct manager *manager, const struct object *object, const struct caller *caller,
                              struct brig_err *err)
{
    /* what it may ask for was judged when its sandbox was made; here it is only looked at */
    static const struct caller all = {.role = STORE_ROLE_ADMIN, .socket = true};
    const struct snapshot *snapshot = snapshot_of(object);
    struct sbox_spec spec;
    int r = spec_parse_stored(snapshot->spec, manager->config, &all, &spec, err);

    if (r < 0)
        return r;
    r = spec_check_use(&spec, spec.n_binds > 0, object->id, caller, manager->config, err);
    sbox_spec_done(&spec);
    return r;
}

int snapshot_remove(struct manager *manager, const struct caller *caller, const struct object *snapshot,
                    disk_done_fn *done, void *ctx, struct brig_err *err)
{
    int r = snapshot_check_use(manager, snapshot, caller, err);

    return r < 0 ? r
                 : kept_remove(manager, caller, snapshots_objects(manager->snapshots), snapshot, "snapshot.remove",
                               snapshot_of(snapshot)->name[0] ? snapshot_of(snapshot)->name : snapshot->id, done, ctx,
                               err);
}

/* ---- restoring ------------------------------------------------------------------------------------------ */

struct restore_job {
    struct disk_job job; /* its disk is the snapshot's: it stays while this lasts */
    struct sbox_spec spec;
    struct caller as;
    char *key; /* Idempotency-Key, or NULL */
    uint8_t fingerprint[32];
    sbox_done_fn *done;
    void *ctx;
};

static void free_restore(struct disk_job *base)
{
    struct restore_job *job = (struct restore_job *)base;

    sbox_spec_done(&job->spec);
    mem_free(job->key);
}

static void on_restored(void *ctx, struct sbox *sbox, const struct brig_err *err)
{
    struct restore_job *job = ctx;
    struct manager *manager = job->job.manager;
    sbox_done_fn *done = job->done;
    void *done_ctx = job->ctx;

    sandbox_audit(manager, &job->job.caller, NULL, "snapshot.restore", job->job.disk, err ? "failed" : "ok",
                  err ? err->message : sbox_id(sbox), true);
    disk_job_free(&job->job);
    done(done_ctx, sbox, err);
}

static int make(struct restore_job *job, struct brig_err *err)
{
    return manager_create_sandbox(job->job.manager, &job->as, &job->spec, job->key, job->fingerprint, on_restored, job,
                                  err);
}

static void on_replaced(void *ctx, struct sbox *sbox UNUSED, const struct brig_err *failed)
{
    struct restore_job *job = ctx;
    struct brig_err err = {0};

    if (failed || make(job, &err) < 0)
        on_restored(job, NULL, failed ? failed : &err);
}

/* A sandbox that has the name is ended first, if that is wanted. What can be judged before is judged before. */
static int make_room(struct restore_job *job, const struct caller *caller, bool replace, struct brig_err *err)
{
    struct manager *manager = job->job.manager;
    struct sbox *other = job->spec.name[0] ? sbox_by_name(manager, job->as.org_id, job->spec.name) : NULL;

    /* who repeats a request gets its answer: what has the name now is what it made */
    if (!other || (job->key && idem_is_known(manager, &job->as, job->key)))
        return make(job, err);
    if (!replace)
        return err_set(err, BRIG_E_CONFLICT, 0, "name %s: sandbox %s has it; give another name, or replace it",
                       job->spec.name, sbox_label(other));
    int r = sbox_check_use(other, caller, err);
    r = r < 0 ? r : volumes_attach(manager, job->as.org_id, &job->spec, other, err);
    r = r < 0 ? r : quota_check(manager, &job->as, &job->spec, 1, other, err);
    return r < 0 ? r : sbox_end(other, caller, "replaced", on_replaced, job, err);
}

static int fill(struct restore_job *job, const struct object *object, const struct disk_copy_want *want,
                struct brig_err *err)
{
    const struct snapshot *snapshot = snapshot_of(object);
    struct disk_copy_want change = *want;

    if (!change.name)
        change.name = snapshot->sandbox_name;
    if (want->idempotency_key) {
        job->key = mem_strdup(want->idempotency_key);
        if (!job->key)
            return err_nomem(err);
        memcpy(job->fingerprint, want->fingerprint, sizeof job->fingerprint);
    }
    int r = kept_spec(job->job.manager, snapshot->spec, snapshot->image, &job->as, snapshot->size, snapshot->inodes,
                      &job->spec, err);
    if (r < 0)
        return r;
    str_assign(job->spec.disk_from, job->job.disk);
    str_assign(job->spec.restored_from, job->job.disk);
    return kept_change(&job->spec, &change, 0, err);
}

int snapshot_restore(struct manager *manager, const struct caller *caller, const struct object *object,
                     const struct disk_copy_want *want, sbox_done_fn *done, void *ctx, struct brig_err *err)
{
    const struct snapshot *snapshot = snapshot_of(object);
    struct disk_job *base = NULL;
    int r = disks_can(manager, err);

    r = r < 0 ? r : snapshot_check_use(manager, object, caller, err);
    if (r == 0 && disk_is_going(manager, object->id))
        r = err_set(err, BRIG_E_NOT_FOUND, 0, "snapshot %s is being removed", object->id);
    if (r == 0 && snapshot->look.lost)
        r = err_set(err, BRIG_E_GONE, 0, "snapshot %s: its disk is gone", object->id);
    r = r < 0 ? r : disk_job_new(manager, caller, sizeof(struct restore_job), NULL, &base, err);
    if (r < 0)
        return r;
    struct restore_job *job = (struct restore_job *)base;
    base->free = free_restore;
    str_cut(base->disk, sizeof base->disk, object->id);
    str_assign(base->caller.org_id, object->org_id);
    job->as = caller_weaker(&base->caller, standing_parse(snapshot->created_as));
    job->done = done;
    job->ctx = ctx;
    r = fill(job, object, want, err);
    r = r < 0 ? r : make_room(job, caller, want->replace, err);
    if (r < 0)
        disk_job_free(base);
    return r;
}
