/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_commit.c: the files of a sandbox become a template (sbox_disks.h): a snapshot of its disk, and a record that
 * names the disk beside the layers of the template that the sandbox was made from. Variables, network, secrets, binds
 * and volumes of the sandbox are not part of it. The record is written out before the provider is asked, because the
 * sandbox may be gone when it answers.
 */
#include "sandbox/disk/sbox_disks_priv.h"

struct commit_job {
    struct disk_job job;
    char name[TEMPLATE_NAME_MAX];
    char sandbox_id[32];
    bool replace;
    struct buf text; /* the document without the disk's real size */
    struct json_doc *doc;
    struct template_info info;
    objects_done_fn *done;
    void *ctx;
};

static void free_commit(struct disk_job *base)
{
    struct commit_job *job = (struct commit_job *)base;

    template_done(&job->info);
    json_doc_free(job->doc);
    buf_done(&job->text);
}

static void committed(struct commit_job *job, const struct object *object, const struct brig_err *err)
{
    struct manager *manager = job->job.manager;
    objects_done_fn *done = job->done;
    void *ctx = job->ctx;

    if (manager) {
        manager->disks->failures += err != NULL;
        sandbox_audit(manager, &job->job.caller, NULL, "template.commit", job->name, err ? "failed" : "ok",
                      err ? err->message : job->sandbox_id, true);
    }
    disk_job_free(&job->job);
    if (manager)
        disks_collect(manager); /* what had the name before may have had a disk */
    done(ctx, object, err);
}

static void on_recorded(void *ctx, const struct object *object, const struct brig_err *err)
{
    struct commit_job *job = ctx;
    struct brig_err why = {0};

    job->job.in_store = false;
    if (!err && !object)
        (void)err_set(&why, BRIG_E_CONFLICT, 0, "template %s was removed meanwhile", job->name);
    else if (err)
        why = *err;
    if (why.code && job->job.manager)
        disk_drop(job->job.manager, job->job.disk);
    committed(job, object, why.code ? &why : NULL);
}

static void on_snapped(void *ctx, const struct disk_info *info, const struct brig_err *err)
{
    struct commit_job *job = ctx;
    struct manager *manager = job->job.manager;
    struct brig_err why = {0};

    if (err) {
        committed(job, NULL, err);
        return;
    }
    job->info.disk_size = info->size;
    job->info.disk_inodes = info->inodes;
    job->info.made_at_ns = clock_real_ns();
    job->job.in_store = true;
    if (templates_put(manager->templates, job->job.caller.org_id, job->name, &job->info, job->replace, on_recorded, job,
                      &why) < 0) {
        job->job.in_store = false;
        disk_drop(manager, job->job.disk);
        committed(job, NULL, &why);
    }
}

/* What the new template says, with a memory of its own. */
static int make_info(struct commit_job *job, const struct sbox *sbox, struct brig_err *err)
{
    const struct sbox_spec *spec = &sbox->spec;
    struct template_info info = {.source = "commit"};

    if (spec->image)
        info = spec->image->info;
    else
        info.base = spec->template_name;
    info.source = "commit";
    info.reference = info.digest = "";
    info.disk = job->job.disk;
    info.disk_size = sbox->limits.disk;
    info.writable_root = spec->writable_root;
    info.made_at_ns = info.used_at_ns = 0;
    info.shared = false;
    if (spec_has_root(spec))
        info.image.user = "root";
    info.image.workdir = spec->workdir;
    job->text = BUF_INIT(OBJECT_DOC_MAX);
    int r = template_write(&info, &job->text, err);
    r = r < 0 ? r : json_read(job->text.data, job->text.len, JSON_READ_VALUES, &job->doc, err);
    return r < 0 ? r : template_parse(json_root(job->doc), &job->info, err);
}

static int check(const struct sbox *sbox, const struct caller *by, const char *name, bool replace,
                 char out[TEMPLATE_NAME_MAX], struct brig_err *err)
{
    struct manager *manager = sbox->manager;
    int r = kept_check(sbox, err);

    if (r == 0 && !manager->templates)
        r = err_set(err, BRIG_E_UNSUPPORTED, 0, "this service has no templates");
    if (r == 0 && sbox->spec.template_name[0] == '/')
        r = err_set(err, BRIG_E_UNSUPPORTED, 0,
                    "sandbox %s: its root is a directory of the host named by its path; no template can stand on that",
                    sbox_label(sbox));
    r = r < 0 ? r : template_name(name, out, err);
    if (r == 0 && !replace && objects_find(templates_objects(manager->templates), by->org_id, out))
        r = err_set(err, BRIG_E_CONFLICT, 0, "template %s: there is one of this name; replace it, or choose another",
                    out);
    /* Administrators use names too, with directories and secrets that a user key may not have. */
    if (r == 0 && !caller_is_admin(by) && sbox_template_check(out, manager->config, manager->templates, by, NULL) == 0)
        r = err_set(err, BRIG_E_FORBIDDEN, 0,
                    "template %s: the name means something already; only an administrator changes that", out);
    return r < 0 ? r : quota_check_disk(manager, by, sbox->limits.disk, err);
}

int sbox_commit(struct sbox *sbox, const struct caller *caller, const char *name, bool replace, objects_done_fn *done,
                void *ctx, struct brig_err *err)
{
    struct manager *manager = sbox->manager;
    struct caller by = *caller;
    struct disk_job *base = NULL;
    char kept[TEMPLATE_NAME_MAX];

    str_assign(by.org_id, sbox->org_id);
    int r = check(sbox, &by, name, replace, kept, err);
    r = r < 0 ? r : disk_job_new(manager, &by, sizeof(struct commit_job), "snap", &base, err);
    if (r < 0)
        return r;
    struct commit_job *job = (struct commit_job *)base;
    base->free = free_commit;
    base->bytes = sbox->limits.disk;
    str_assign(job->name, kept);
    str_assign(job->sandbox_id, sbox->id);
    job->replace = replace;
    job->done = done;
    job->ctx = ctx;
    r = make_info(job, sbox, err);
    const struct disk_order order = {.op = DISK_SNAP, .name = base->disk, .box = sbox->priv->box};
    r = r < 0 ? r : manager->provider->ops->disk(manager->provider, &order, NULL, on_snapped, job, err);
    if (r < 0)
        disk_job_free(base);
    return r;
}
