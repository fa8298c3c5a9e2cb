/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_orders.c: judges what the engine asks for: names, sizes, and whether a disk is there and unused. It comes from a
 * process that may have been taken over, so nothing in it is believed.
 */
#include <signal.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "host/limits.h"
#include "spawner/disk_jobs.h"

#define DISKS_MAX 4096u /* the list is searched from its start, and listed as a whole */

/* ---- orders -------------------------------------------------------------------------------------------- */

/* Whether another order uses it, or is about to. */
static bool ordered(const struct disk_job *job, const char *name, bool for_writing)
{
    bool writes = false;

    if (!job->judged)
        return false;
    if (job->run && run_uses_disk(job->run, name, &writes) && (writes || for_writing))
        return true;
    return (for_writing && str_eq(disk_job_shares(job), name)) ||
           (job->task == TASK_REMOVE && str_eq(job->name, name)) || str_eq(disk_job_makes(job), name);
}

static int check_unused(const struct spawner *spawner, const char *name, bool for_writing, struct brig_err *err)
{
    struct disk_users users = disk_users(spawner, name);

    if (users.writers > 0 || (for_writing && users.readers > 0))
        return err_set(err, BRIG_E_CONFLICT, 0, "disk %s: sandbox %s uses it", name, users.who);
    for (const struct disk_job *job = spawner->disks.jobs; job; job = job->next)
        if (ordered(job, name, for_writing))
            return err_set(err, BRIG_E_CONFLICT, 0, "disk %s: another order works on it", name);
    return 0;
}

/* Enters a new disk in the list. */
static int claim(struct disk_job *job, const char *name, uint64_t bytes, struct brig_err *err)
{
    struct disk_facts facts = {.bytes = bytes};

    if (disk_entry_find(job->spawner, name))
        return err_set(err, BRIG_E_CONFLICT, 0, "disk %s: it is there already", name);
    if (job->spawner->disks.n_entries >= DISKS_MAX)
        return err_set(err, BRIG_E_LIMIT, 0, "disks: there are %u, and more than %u cannot be",
                       job->spawner->disks.n_entries, DISKS_MAX);
    (void)!str_copy(facts.name, sizeof facts.name, name);
    int r = disk_entry_add(job->spawner, &facts, true, err);
    job->claimed = r == 0;
    return r;
}

static int check_source(const struct spawner *spawner, const char *name, uint64_t *ret_bytes, struct brig_err *err)
{
    const struct disk_entry *entry = disk_entry_find(spawner, name);

    if (!entry || entry->pending || entry->taken)
        return err_set(err, BRIG_E_NOT_FOUND, 0, "disk %s: not there", name);
    *ret_bytes = entry->facts.bytes;
    return check_unused(spawner, name, false, err);
}

/* A disk has the ids that a whole range has inside, and rules of its own for sizes. */
static int check_memory(const struct sandbox *box, struct brig_err *err)
{
    if (box->spawner->host.ids_kind != IDS_RANGE)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "its store is in memory, which only a service of root can copy");
    return limits_check_image(&box->limits, err);
}

static int judge_snap(struct disk_job *job, struct brig_err *err)
{
    const struct sandbox *box = sandbox_by_run(job->spawner, job->box);

    if (!box || !box->service || box->state != SANDBOX_RUNNING || !box->started || box->verdict.cause != BRIG_CAUSE_MAX)
        return err_set(err, BRIG_E_CONFLICT, 0, "the sandbox is not up");
    int r = box->store == STORE_MEMORY ? check_memory(box, err) : 0;
    if (r < 0)
        return r;
    if (box->store_fd < 0)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "its store cannot be copied");
    (void)!str_copy(job->from, sizeof job->from, box->run->disk ? box->run->disk : "");
    bool shared = box->run->disk && job->spawner->host.disks.kind != DISKS_COPIES;
    return claim(job, job->name, shared ? 0 : disk_bytes(box->limits.disk, box->limits.inodes), err);
}

static int judge_run(struct disk_job *job, struct brig_err *err)
{
    const struct run_spec *run = job->run;
    uint64_t bytes = disk_bytes(run->limits.disk, run->limits.inodes);
    int r = run->disk_from ? check_source(job->spawner, run->disk_from, &bytes, err) : 0;

    for (unsigned i = 0; r == 0 && i < run->n_volumes; i++) {
        const struct disk_entry *entry = disk_entry_find(job->spawner, run->volumes[i].disk);
        if (!entry || entry->pending)
            r = err_set(err, BRIG_E_NOT_FOUND, 0, "disk %s: not there", run->volumes[i].disk);
        else
            r = check_unused(job->spawner, run->volumes[i].disk, !run->volumes[i].read_only, err);
    }
    if (r == 0 && run->disk)
        r = claim(job, run->disk, bytes, err);
    struct disk_entry *from = r == 0 && run->disk_from ? disk_entry_find(job->spawner, run->disk_from) : NULL;
    if (from && from->uses > 0 && --from->uses == 0)
        job->takes = from->taken = true;
    return r;
}

/* Whether it can be done, by what is there. Nothing is known of that before the place of disks is open. */
int disk_job_judge(struct disk_job *job, struct brig_err *err)
{
    struct spawner *spawner = job->spawner;
    int r;

    switch (job->task) {
    case TASK_MAKE: r = claim(job, job->name, disk_bytes(job->size, job->inodes), err); break;
    case TASK_SNAP: r = judge_snap(job, err); break;
    case TASK_RUN: r = judge_run(job, err); break;
    case TASK_REMOVE:
        r = disk_entry_find(spawner, job->name) ? 0
                                                : err_set(err, BRIG_E_NOT_FOUND, 0, "disk %s: not there", job->name);
        if (r == 0)
            r = check_unused(spawner, job->name, true, err);
        break;
    default: r = 0;
    }
    job->judged = r == 0;
    return r;
}

static int check_size(uint64_t size, uint64_t inodes, struct brig_err *err)
{
    struct brig_limits limits = {.disk = size, .inodes = inodes};

    if (size == 0 || inodes == 0)
        return err_usage(err, "disk: its size and inodes must be given");
    limits_fill(&limits, true);
    int r = limits_check(&limits, err);
    return r < 0 ? r : limits_check_image(&limits, err);
}

static int check_order(const struct wire_disk *msg, struct brig_err *err)
{
    bool volume = disk_name_ok(msg->name, DISK_PRE_VOLUME), snap = disk_name_ok(msg->name, DISK_PRE_SNAP);
    bool good = msg->op == WIRE_DISK_MAKE ? volume : msg->op == WIRE_DISK_SNAP ? snap : volume || snap;

    if (!good)
        return err_usage(err, "disk %s: not the name of one", msg->name);
    return msg->op == WIRE_DISK_MAKE ? check_size(msg->size, msg->inodes, err) : 0;
}

static int check_store(const struct spawner *spawner, struct brig_err *err)
{
    const struct disk_store *store = &spawner->host.disks;

    return store->dir_fd < 0 ? err_set(err, BRIG_E_UNSUPPORTED, 0, "disks: %s", store->why) : 0;
}

static int obey(struct spawner *spawner, const struct wire_disk *msg, struct brig_err *err)
{
    static const enum disk_task tasks[] = {
        [WIRE_DISK_MAKE] = TASK_MAKE, [WIRE_DISK_SNAP] = TASK_SNAP, [WIRE_DISK_REMOVE] = TASK_REMOVE};
    int r = check_order(msg, err);

    if (r == 0)
        r = check_store(spawner, err);
    if (r < 0)
        return r;
    struct disk_job *job = disk_job_add(spawner, tasks[msg->op], msg->head.run, false, err);
    if (!job)
        return -EAGAIN;
    job->box = msg->box;
    job->uses = msg->op == WIRE_DISK_SNAP ? msg->uses : 0;
    job->size = msg->size;
    job->inodes = msg->inodes;
    str_assign(job->name, msg->name);
    disks_go(spawner);
    return 0;
}

void disk_obey(struct spawner *spawner, const struct wire_disk *msg)
{
    struct brig_err err;
    bool good = msg->head.run != 0 && msg->op < WIRE_DISK_OP_MAX && memchr(msg->name, '\0', sizeof msg->name);
    int r = good ? obey(spawner, msg, &err) : err_set(&err, BRIG_E_HOST, EPROTO, "message about a disk");

    if (r < 0)
        disk_answer(spawner, msg->head.run, NULL, &err);
}

void disks_tell(struct spawner *spawner, uint64_t number)
{
    struct brig_err err = {.code = BRIG_E_NONE};
    int r = number == 0 ? err_set(&err, BRIG_E_HOST, EPROTO, "message about disks") : check_store(spawner, &err);

    if (r == 0 && spawner->host.disks.kind == DISKS_CLOSED && !disks_kept(&spawner->host.disks)) {
        disks_answer(spawner, number, NULL); /* nothing is made only to be looked at */
        return;
    }
    if (r == 0 && !disk_job_add(spawner, TASK_MEASURE, number, false, &err))
        r = -EAGAIN;
    if (r < 0)
        disks_answer(spawner, number, &err);
    else
        disks_go(spawner);
}

/* ---- runs ---------------------------------------------------------------------------------------------- */

int disk_run(struct spawner *spawner, struct run_spec *run, struct brig_err *err)
{
    int r = check_store(spawner, err);

    if (r == 0 && run->disk)
        r = limits_check_image(&run->limits, err);
    if (r < 0)
        return r;
    struct disk_job *job = disk_job_add(spawner, TASK_RUN, run->number, false, err);
    if (!job)
        return -EAGAIN;
    job->run = run;
    disks_go(spawner);
    return 0;
}

static struct disk_job *job_of_run(const struct spawner *spawner, uint64_t number)
{
    struct disk_job *job = spawner->disks.jobs;

    while (job && !(job->run && job->run->number == number))
        job = job->next;
    return job;
}

bool disk_run_is(const struct spawner *spawner, uint64_t number)
{
    return job_of_run(spawner, number) != NULL;
}

void disk_run_kill(struct spawner *spawner, uint64_t number)
{
    struct disk_job *job = job_of_run(spawner, number);

    if (!job)
        return;
    job->cancelled = true;
    if (job->running)
        kill(job->pid, SIGKILL);
    else
        disks_go(spawner);
}

void disk_run_gone(struct spawner *spawner, const struct run_spec *run)
{
    struct disk_job *job =
        run->disk && disk_entry_find(spawner, run->disk) ? disk_job_add(spawner, TASK_REMOVE, 0, false, NULL) : NULL;

    if (!job)
        return; /* without memory it stays until the next start, and is accounted for */
    (void)!str_copy(job->name, sizeof job->name, run->disk);
    job->judged = true;
    disks_go(spawner);
}
