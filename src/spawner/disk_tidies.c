/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_tidies.c: when disks are made tidy (host/disk/disk_tidy.c): after a copy that had too many extents, what was
 * copied and what came of it. It is work for an idle place of disks, one disk at a time. As soon as somebody wants
 * something else, the process is killed, which loses no more than the piece that it is at; the rest is done when all is
 * quiet again. A disk for which there is no room, or that is gone, stays as it is.
 *
 * Quiet is QUIET_NS without an order. A fork is several orders, and then a sandbox that reads its new disk while it
 * starts: a process that writes the same disk anew would make it wait for one piece after the other.
 *
 * A pool also grows when it is quiet, so that the next disk like the last one finds room: growing writes all that is
 * dirty of the pool, and a fork would wait for it. All disks are measured before, since the account is too high between
 * two measurements.
 */
#include <signal.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "spawner/disk_jobs.h"

#define QUIET_NS (50 * NS_PER_MS)

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

static bool is_busy(const struct spawner *spawner)
{
    for (const struct disk_job *job = spawner->disks.jobs; job; job = job->next)
        if (job->task != TASK_TIDY)
            return true;
    return false;
}

/* If this fails, whoever needs the room makes it. */
static void grow_ahead(struct spawner *spawner)
{
    struct disks *disks = &spawner->disks;
    struct disk_room room;

    if (disks->ahead == 0 || is_busy(spawner) || disks_room(&spawner->host.disks, &room, NULL) < 0)
        return;
    const uint64_t need = disks_need(spawner, room.used) + disks->ahead;
    const bool grow = disks->ahead_measured;
    if (need <= room.room || need > room.most) {
        disks->ahead = 0;
        return;
    }
    struct disk_job *job = disk_job_add(spawner, grow ? TASK_GROW : TASK_MEASURE, 0, true, NULL);
    if (!job)
        return;
    job->grow_to = need + need / 16;
    job->judged = true;
    disks->ahead_measured = true;
    if (grow)
        disks->ahead = 0;
}

static void on_quiet(struct loop_timer *timer)
{
    struct spawner *spawner = timer->ctx;

    if (spawner->host.disks.kind == DISKS_POOL)
        grow_ahead(spawner);
    disks_go(spawner);
}

/* Somebody wanted something, and may want more. */
static void wait_quiet(struct spawner *spawner, const struct disk_job *job, const struct disk_facts *made)
{
    struct disks *disks = &spawner->disks;

    if (made && disk_job_shares(job)[0]) {
        disks->ahead = made->bytes + made->used;
        disks->ahead_measured = false;
    }
    disks->quiet_at = clock_mono_ns() + QUIET_NS;
    disks->on_quiet.fn = on_quiet;
    disks->on_quiet.ctx = spawner;
    (void)!loop_timer_set(spawner->loop, &disks->on_quiet, disks->quiet_at, NULL);
}

/* A copy has as many extents as what it is a copy of. */
void disk_tidy_after(const struct disk_job *job, const struct disk_facts *made)
{
    struct spawner *spawner = job->spawner;

    if (job->task != TASK_TIDY)
        wait_quiet(spawner, job, made);
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

/* The timer looks again when it is quiet, and the end of every other job as well. */
bool disk_tidy_must_wait(const struct disk_job *job)
{
    for (const struct disk_job *other = job->spawner->disks.jobs; other; other = other->next)
        if (other != job && (other->task != TASK_TIDY || other->running))
            return true;
    return clock_mono_ns() < job->spawner->disks.quiet_at;
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
