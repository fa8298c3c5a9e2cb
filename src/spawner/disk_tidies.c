/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_tidies.c: when disks are made tidy (host/disk_tidy.c): after a copy that had too many extents, what was copied
 * and what came of it. It is work for an idle place of disks, one disk at a time. As soon as somebody wants something
 * else, the process is killed, which loses no more than the piece that it is at; the rest is done when all is quiet
 * again. A disk for which there is no room, or that is gone, stays as it is.
 */
#include <signal.h>

#include "base/err.h"
#include "base/str.h"
#include "spawner/disk_jobs.h"

static bool waits(const struct spawner *spawner, const char *name)
{
    for (const struct disk_job *job = spawner->disks.jobs; job; job = job->next)
        if (job->task == TASK_TIDY && str_eq(job->name, name))
            return true;
    return false;
}

/* The newest is the first: whoever made a copy goes on with it. Volumes are not copied often enough. */
static void later(struct spawner *spawner, const char *name, uint64_t extents)
{
    if (extents <= DISK_EXTENTS_MAX || disk_name_ok(name, DISK_PRE_VOLUME) || !disk_entry_find(spawner, name) ||
        waits(spawner, name))
        return;
    struct disk_job *job = disk_job_add(spawner, TASK_TIDY, 0, true, NULL);
    if (!job)
        return; /* without memory it stays as it is */
    (void)!str_copy(job->name, sizeof job->name, name);
    job->judged = true;
}

/* A copy has as many extents as what it is a copy of. */
void disk_tidy_after(const struct disk_job *job, const struct disk_facts *made)
{
    struct spawner *spawner = job->spawner;

    if (job->task == TASK_TIDY && job->again)
        later(spawner, job->name, UINT64_MAX);
    if (!made || !disk_job_shares(job)[0] || spawner->host.disks.kind == DISKS_COPIES)
        return;
    later(spawner, disk_job_shares(job), made->extents);
    if (job->uses == 0) /* else it is about to be taken */
        later(spawner, disk_job_makes(job), made->extents);
}

void disk_tidy_stop(struct spawner *spawner)
{
    for (struct disk_job *job = spawner->disks.jobs; job; job = job->next)
        if (job->task == TASK_TIDY && job->running && !job->again) {
            job->again = true;
            kill(job->pid, SIGKILL);
        }
}

bool disk_tidy_must_wait(const struct disk_job *job)
{
    for (const struct disk_job *other = job->spawner->disks.jobs; other; other = other->next)
        if (other != job && (other->task != TASK_TIDY || other->running))
            return true;
    return false;
}

/*
 * A writable disk was promised blocks for all of its length, so it only needs room for one piece more. A snapshot gets
 * blocks of its own that were shared before.
 */
int disk_tidy_check(struct disk_job *job, struct brig_err *err)
{
    struct spawner *spawner = job->spawner;
    const struct disk_entry *entry = disk_entry_find(spawner, job->name);
    struct disk_room room;

    if (!entry || entry->pending)
        return err_set(err, BRIG_E_NOT_FOUND, 0, "disk %s: not there", job->name);
    int r = disks_room(&spawner->host.disks, &room, err);
    if (r < 0)
        return r;
    uint64_t own = disk_is_writable(job->name) ? 0 : disk_used(&spawner->host.disks, job->name);
    if (disks_need(spawner, room.used) + own + DISK_PIECE > room.room)
        return err_set(err, BRIG_E_LIMIT, 0, "disk %s: no room to write it anew", job->name);
    job->shares = own; /* what the base grows by when it begins */
    return 0;
}
