/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_fork.c: N sandboxes with the files of one (sbox_disks.h):
 *
 *     everything is judged for all of them -> one snapshot of the disk -> N creates from it, the last of which takes it
 *
 * A sandbox that may be made again needs the snapshot for that, so then it stays and lasts as long as they do.
 *
 * If one of the creates fails, those that were made are ended before the answer: there are all of them or none. The
 * processes of the sandbox are not copied.
 */
#include "sandbox/disk/sbox_disks_priv.h"

struct fork_job;
struct fork_one {
    struct fork_job *job;
    char id[32]; /* "" unless it was made */
};

struct fork_job {
    struct disk_job job;
    struct caller as;
    char sandbox_id[32];
    struct sbox_spec *specs;
    struct fork_one *ones; /* in the order of their names */
    unsigned count;
    unsigned waiting; /* callbacks that are to come, and one for whoever asks for them */
    struct brig_err err;
    forked_fn *done;
    void *ctx;
};

static void free_fork(struct disk_job *base)
{
    struct fork_job *job = (struct fork_job *)base;

    for (unsigned i = 0; job->specs && i < job->count; i++)
        sbox_spec_done(&job->specs[i]);
    mem_free(job->specs);
    mem_free(job->ones);
}

/* ---- the end -------------------------------------------------------------------------------------------- */

static void answer(struct fork_job *job)
{
    struct manager *manager = job->job.manager;
    struct sbox *forks[FORKS_MAX];
    char disk[DISK_NAME_SIZE];
    struct brig_err err = job->err;
    forked_fn *done = job->done;
    void *ctx = job->ctx;
    size_t n = 0;

    for (unsigned i = 0; !err.code && i < job->count; i++) {
        forks[n] = sbox_by_id(manager, job->ones[i].id);
        n += forks[n] != NULL;
    }
    manager->disks->forks += n;
    manager->disks->failures += err.code != 0;
    sandbox_audit(manager, &job->job.caller, NULL, "sandbox.fork", job->sandbox_id, err.code ? "failed" : "ok",
                  err.message, true);
    str_assign(disk, job->job.disk);
    disk_job_free(&job->job);
    if (!disk_is_needed(manager, disk))
        disk_drop(manager, disk);
    done(ctx, forks, n, err.code ? &err : NULL);
}

static void check_over(struct fork_job *job)
{
    if (--job->waiting == 0)
        answer(job);
}

static void on_undone(void *ctx, struct sbox *sbox UNUSED, const struct brig_err *err UNUSED)
{
    check_over(ctx);
}

/* All creates have been answered. If one failed, the others are ended. */
static void settle(struct fork_job *job)
{
    job->waiting = 1;
    for (unsigned i = 0; job->err.code && i < job->count; i++) {
        struct sbox *sbox = job->ones[i].id[0] ? sbox_by_id(job->job.manager, job->ones[i].id) : NULL;
        job->waiting++;
        if (!sbox || sbox_end(sbox, &job->as, "fork-failed", on_undone, job, NULL) < 0)
            job->waiting--;
    }
    check_over(job);
}

/* ---- making them ---------------------------------------------------------------------------------------- */

static void one_over(struct fork_job *job)
{
    if (--job->waiting == 0)
        settle(job);
}

static void on_created(void *ctx, struct sbox *sbox, const struct brig_err *err)
{
    struct fork_one *one = ctx;
    struct fork_job *job = one->job;

    if (err && !job->err.code)
        job->err = *err;
    if (!err)
        str_assign(one->id, sbox->id);
    one_over(job);
}

static void on_snapped(void *ctx, const struct disk_info *info, const struct brig_err *err)
{
    struct fork_job *job = ctx;
    struct manager *manager = job->job.manager;

    job->waiting = 1;
    if (err)
        job->err = *err;
    for (unsigned i = 0; !job->err.code && i < job->count; i++) {
        struct brig_err why = {0};
        job->specs[i].limits.disk = info->size;
        job->specs[i].limits.inodes = info->inodes;
        job->ones[i].job = job;
        job->waiting++;
        if (manager_create_sandbox(manager, &job->as, &job->specs[i], NULL, NULL, on_created, &job->ones[i], &why) <
            0) {
            job->waiting--;
            job->err = why;
        }
    }
    one_over(job);
}

/* ---- judging -------------------------------------------------------------------------------------------- */

/* The specs of all of them, from the text that a snapshot would have. */
static int make_specs(struct fork_job *job, const struct sbox *sbox, const struct disk_copy_want *want,
                      struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(ROW_MAX);
    AUTO_JSON struct json_doc *doc = NULL;
    struct json json = JSON_INIT(&text);

    json_object(&json);
    kept_put(sbox, &json);
    json_end(&json);
    int r = json_finish(&json) < 0 ? err_nomem(err) : json_read(text.data, text.len, JSON_READ_VALUES, &doc, err);
    for (unsigned i = 0; r == 0 && i < job->count; i++) {
        struct sbox_spec *spec = &job->specs[i];
        r = kept_spec(sbox->manager, json_get(json_root(doc), "spec"), json_get(json_root(doc), "image"), &job->as,
                      sbox->limits.disk, sbox->limits.inodes, spec, err);
        if (r < 0)
            break;
        str_assign(spec->disk_from, job->job.disk);
        str_assign(spec->forked_from, sbox->id);
        r = kept_change(spec, want, job->count > 1 ? i + 1 : 0, err);
    }
    return r;
}

static int judge(struct fork_job *job, struct brig_err *err)
{
    struct manager *manager = job->job.manager;
    const struct sbox_spec *first = &job->specs[0];
    int r = quota_check(manager, &job->as, first, job->count, NULL, err);

    for (unsigned i = 0; r == 0 && i < job->count; i++) {
        const struct sbox *other =
            job->specs[i].name[0] ? sbox_by_name(manager, job->as.org_id, job->specs[i].name) : NULL;
        if (other)
            r = err_set(err, BRIG_E_CONFLICT, 0, "name %s: sandbox %s has it", job->specs[i].name, sbox_label(other));
        r = r < 0 ? r : volumes_attach(manager, job->as.org_id, &job->specs[i], NULL, err);
    }
    for (size_t i = 0; r == 0 && job->count > 1 && i < first->n_volumes; i++)
        if (!first->volumes[i].read_only)
            r = err_set(err, BRIG_E_CONFLICT, 0, "volume %s: only one of %u forks could write to it",
                        first->volumes[i].name, job->count);
    return r;
}

int sbox_fork(struct sbox *sbox, const struct caller *caller, const struct disk_copy_want *want, forked_fn *done,
              void *ctx, struct brig_err *err)
{
    struct manager *manager = sbox->manager;
    struct caller by = *caller;
    struct disk_job *base = NULL;
    int r = kept_check(sbox, err);

    if (r == 0 && (want->count < 1 || want->count > FORKS_MAX))
        r = err_usage(err, "count %u: must be 1 to %u", want->count, FORKS_MAX);
    str_assign(by.org_id, sbox->org_id);
    r = r < 0 ? r : disk_job_new(manager, &by, sizeof(struct fork_job), "snap", &base, err);
    if (r < 0)
        return r;
    struct fork_job *job = (struct fork_job *)base;
    base->free = free_fork;
    job->as = caller_weaker(&by, caller_standing(&sbox->priv->creator));
    job->count = want->count;
    job->done = done;
    job->ctx = ctx;
    str_assign(job->sandbox_id, sbox->id);
    job->specs = mem_zalloc(want->count * sizeof *job->specs);
    job->ones = mem_zalloc(want->count * sizeof *job->ones);
    r = !job->specs || !job->ones ? err_nomem(err) : make_specs(job, sbox, want, err);
    r = r < 0 ? r : judge(job, err);
    const struct disk_order order = {.op = DISK_SNAP,
                                     .name = base->disk,
                                     .box = sbox->priv->box,
                                     .uses = sbox->spec.on_death == SBOX_DEATH_RECREATE ? 0 : want->count};
    r = r < 0 ? r : manager->provider->ops->disk(manager->provider, &order, NULL, on_snapped, job, err);
    if (r < 0)
        disk_job_free(base);
    return r;
}
