/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_disks.c: which disks there are and which are needed (sbox_disks.h). A look asks the provider for all of its
 * disks, and compares them with the records, the jobs under way and the sandboxes that live.
 */
#include "base/id.h"
#include "sandbox/disk/sbox_disks_priv.h"

#define COLLECT_NS (UINT64_C(300) * NS_PER_SEC)
#define SOON_NS (UINT64_C(100) * NS_PER_MS)

struct disks_wait {
    disks_seen_fn *seen;
    void *ctx;
    struct disks_wait *next;
};

/* ---- jobs ----------------------------------------------------------------------------------------------- */

int disks_can(const struct manager *manager, struct brig_err *err)
{
    const struct provider_ops *ops = manager->provider->ops;

    if ((ops->caps & PROVIDER_DISKS) && ops->disk && manager->volumes && manager->snapshots)
        return 0;
    return err_set(err, BRIG_E_UNSUPPORTED, 0, "the provider %s has no disks that can be kept", ops->name);
}

int disk_new_name(const char *prefix, char out[DISK_NAME_SIZE], struct brig_err *err)
{
    char id[ID_SANDBOX_SIZE];

    if (id_sandbox(id) < 0 || str_format(out, DISK_NAME_SIZE, "%s-%s", prefix, id) < 0)
        return err_set(err, BRIG_E_HOST, EIO, "random id");
    return 0;
}

int disk_job_new(struct manager *manager, const struct caller *caller, size_t size, const char *prefix,
                 struct disk_job **ret, struct brig_err *err)
{
    struct disk_job *job = mem_zalloc(size);

    if (!job)
        return err_nomem(err);
    *job = (struct disk_job){.manager = manager, .caller = *caller};
    int r = prefix ? disk_new_name(prefix, job->disk, err) : 0;
    if (r < 0) {
        mem_free(job);
        return r;
    }
    list_push(&manager->disks->jobs, job);
    *ret = job;
    return 0;
}

void disk_job_free(struct disk_job *job)
{
    if (job->manager)
        list_remove(&job->manager->disks->jobs, job);
    if (job->free)
        job->free(job);
    mem_free(job);
}

bool disk_is_going(const struct manager *manager, const char *disk)
{
    for (const struct disk_job *job = manager->disks->jobs; job; job = job->next)
        if (job->removing && str_eq(job->disk, disk))
            return true;
    return false;
}

static void on_dropped(void *ctx, const struct disk_info *info UNUSED, const struct brig_err *err)
{
    struct disks *disks = ctx;

    if (err && err->code != BRIG_E_NOT_FOUND && err->code != BRIG_E_CONFLICT)
        disks->failures++;
}

void disk_drop(struct manager *manager, const char *disk)
{
    const struct disk_order order = {.op = DISK_REMOVE, .name = disk};

    if (disks_can(manager, NULL) == 0)
        (void)!manager->provider->ops->disk(manager->provider, &order, NULL, on_dropped, manager->disks, NULL);
}

/* ---- what is needed ------------------------------------------------------------------------------------- */

struct search {
    const char *disk;
    bool found;
};

static bool is_id(void *ctx, const struct object *object)
{
    struct search *search = ctx;

    search->found = str_eq(object->id, search->disk);
    return !search->found;
}

static bool is_disk_of_template(void *ctx, const struct object *object)
{
    struct search *search = ctx;

    search->found = str_eq(template_of(object)->disk, search->disk);
    return !search->found;
}

/* A sandbox needs what it comes from until its own copy is made, or for good if it may be made again. */
static bool sandbox_needs(const struct sbox *first, const char *disk)
{
    for (const struct sbox *s = first; s; s = s->next)
        if ((s->state == SBOX_CREATING || s->spec.on_death == SBOX_DEATH_RECREATE) &&
            str_eq(spec_disk_from(&s->spec), disk))
            return true;
    return false;
}

bool disk_is_needed(struct manager *manager, const char *disk)
{
    struct search search = {.disk = disk};

    for (const struct disk_job *job = manager->disks->jobs; job; job = job->next)
        if (str_eq(job->disk, disk))
            return true;
    if (str_starts(disk, "vol-")) {
        objects_each(volumes_objects(manager->volumes), is_id, &search);
        return search.found;
    }
    if (!str_starts(disk, "snap-"))
        return true; /* the store of a box: the provider removes it with the box */
    objects_each(snapshots_objects(manager->snapshots), is_id, &search);
    if (!search.found && manager->templates)
        objects_each(templates_objects(manager->templates), is_disk_of_template, &search);
    return search.found || sandbox_needs(manager->first, disk) || sandbox_needs(manager->children, disk);
}

/* ---- looking -------------------------------------------------------------------------------------------- */

struct seen {
    struct manager *manager;
    const struct disk_info *disks;
    size_t n;
    const char *what;
};

/* A disk that the list does not have is lost, unless its record is younger than the question. */
static void note(const struct seen *seen, const struct object *object, struct disk_look *look)
{
    size_t i = 0;

    while (i < seen->n && !str_eq(seen->disks[i].name, object->id))
        i++;
    if (i < seen->n) {
        *look = (struct disk_look){.known = true, .used = seen->disks[i].used, .own = seen->disks[i].own};
    } else if (!look->lost && object->created_at_ns < seen->manager->disks->asked_at_ns) {
        *look = (struct disk_look){.lost = true};
        sandbox_audit(seen->manager, NULL, object->org_id, seen->what, object->id, "failed",
                      "its disk is gone: there is only the record", false);
    }
}

static bool note_volume(void *ctx, const struct object *object)
{
    note(ctx, object, &volume_of(object)->look);
    return true;
}

static bool note_snapshot(void *ctx, const struct object *object)
{
    note(ctx, object, &snapshot_of(object)->look);
    return true;
}

static void tell(struct disks *disks, const struct disk_space *space)
{
    struct disks_wait *waits = take_ptr(&disks->waits);

    while (waits) {
        struct disks_wait *wait = waits;
        waits = wait->next;
        if (wait->seen)
            wait->seen(wait->ctx, space);
        mem_free(wait);
    }
}

static void on_disks(void *ctx, const struct disk_info *list, size_t n, const struct disk_space *space,
                     const struct brig_err *err)
{
    struct disks *disks = ctx;
    struct manager *manager = disks->manager;
    struct seen seen = {manager, list, n, "volume.lost"};

    disks->looking = false;
    disks->failures += err != NULL;
    if (!err) {
        disks->space = *space;
        disks->space.kind = NULL; /* it lives no longer than this call */
        objects_each(volumes_objects(manager->volumes), note_volume, &seen);
        seen.what = "snapshot.lost";
        objects_each(snapshots_objects(manager->snapshots), note_snapshot, &seen);
        for (size_t i = 0; manager_is_settled(manager) && i < n; i++)
            if (!disk_is_needed(manager, list[i].name))
                disk_drop(manager, list[i].name);
    }
    tell(disks, err ? NULL : space);
}

int disks_look(struct manager *manager, disks_seen_fn *seen, void *ctx, struct brig_err *err)
{
    struct disks *disks = manager->disks;
    struct disks_wait *wait = mem_alloc(sizeof *wait);
    int r = disks_can(manager, err);

    if (!wait)
        return err_nomem(err);
    if (r == 0 && !disks->looking) {
        disks->asked_at_ns = clock_real_ns();
        r = manager->provider->ops->disks(manager->provider, on_disks, disks, err);
    }
    if (r < 0) {
        mem_free(wait);
        return r;
    }
    disks->looking = true;
    *wait = (struct disks_wait){seen, ctx, disks->waits};
    disks->waits = wait;
    return 0;
}

static void on_collect(struct loop_timer *timer)
{
    struct disks *disks = timer->ctx;
    const bool settled = manager_is_settled(disks->manager);

    if (settled)
        (void)!disks_look(disks->manager, NULL, NULL, NULL);
    (void)!loop_timer_set(disks->manager->loop, timer, clock_mono_ns() + (settled ? COLLECT_NS : SOON_NS), NULL);
}

void disks_collect(struct manager *manager)
{
    if (disks_can(manager, NULL) == 0)
        (void)!loop_timer_set(manager->loop, &manager->disks->collect, clock_mono_ns() + SOON_NS, NULL);
}

/* ---- life ----------------------------------------------------------------------------------------------- */

int disks_start(struct manager *manager, struct brig_err *err)
{
    manager->disks = mem_zalloc(sizeof *manager->disks);
    if (!manager->disks)
        return err_nomem(err);
    *manager->disks = (struct disks){.manager = manager, .collect = {.fn = on_collect, .ctx = manager->disks}};
    return 0;
}

void disks_stop(struct manager *manager)
{
    struct disks *disks = manager->disks;

    if (!disks)
        return;
    loop_timer_clear(manager->loop, &disks->collect);
    for (struct disk_job *job = disks->jobs, *next; job; job = next) {
        next = job->next;
        if (job->in_store)
            job->manager = NULL; /* its callback frees it */
        else
            disk_job_free(job);
    }
    while (disks->waits) {
        struct disks_wait *wait = disks->waits;
        disks->waits = wait->next;
        mem_free(wait);
    }
    mem_free(take_ptr(&manager->disks));
}

struct counting {
    uint64_t n, bytes;
};

static bool count_volume(void *ctx, const struct object *object)
{
    struct counting *counting = ctx;

    counting->n++;
    counting->bytes += volume_of(object)->size;
    return true;
}

static bool count_snapshot(void *ctx, const struct object *object)
{
    struct counting *counting = ctx;

    counting->n++;
    counting->bytes += snapshot_of(object)->size;
    return true;
}

void disks_stats(const struct manager *manager, struct disks_stats *ret)
{
    struct counting volumes = {0}, snapshots = {0};

    if (manager->volumes)
        objects_each(volumes_objects(manager->volumes), count_volume, &volumes);
    if (manager->snapshots)
        objects_each(snapshots_objects(manager->snapshots), count_snapshot, &snapshots);
    *ret = (struct disks_stats){.volumes = volumes.n,
                                .volume_bytes = volumes.bytes,
                                .snapshots = snapshots.n,
                                .snapshot_bytes = snapshots.bytes,
                                .forks = manager->disks->forks,
                                .failures = manager->disks->failures,
                                .space = manager->disks->space};
}

/* ---- what counts ---------------------------------------------------------------------------------------- */

/* key_id NULL: of all keys. */
static uint64_t counts(const char *key_id, const char *of, uint64_t bytes)
{
    return !key_id || str_eq(key_id, of) ? bytes : 0;
}

/* A disk that several names of templates have is counted with the first. */
static uint64_t template_bytes(const struct object *first)
{
    uint64_t bytes = 0;

    for (const struct object *o = first; o; o = o->next) {
        const struct object *before = first;
        while (template_of(o)->disk[0] && !str_eq(template_of(before)->disk, template_of(o)->disk))
            before = before->next;
        bytes += before == o ? template_of(o)->disk_size : 0;
    }
    return bytes;
}

uint64_t disks_bytes(const struct manager *manager, const char *org_id, const char *key_id)
{
    uint64_t bytes = 0;

    if (!manager->disks || !manager->volumes || !manager->snapshots)
        return 0;
    for (const struct object *o = objects_first(volumes_objects(manager->volumes), org_id); o; o = o->next)
        bytes += counts(key_id, volume_of(o)->key_id, volume_of(o)->size);
    for (const struct object *o = objects_first(snapshots_objects(manager->snapshots), org_id); o; o = o->next)
        bytes += counts(key_id, snapshot_of(o)->key_id, snapshot_of(o)->size);
    if (manager->templates && !key_id)
        bytes += template_bytes(objects_first(templates_objects(manager->templates), org_id));
    for (const struct disk_job *job = manager->disks->jobs; job; job = job->next)
        if (str_eq(job->caller.org_id, org_id))
            bytes += counts(key_id, job->caller.key_id, job->bytes);
    return bytes;
}
