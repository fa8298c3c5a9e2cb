/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_jobs.c: what the engine asks about disks, and runs that have some. Names, sizes and who uses what are checked
 * here; processes of their own do the work (disk_work.h), and answers come when they have ended.
 *
 * Theory of operation. The list of disks is in memory, with those that are being made. Jobs wait in their order until
 * the place of disks is open and there is room for what they may take. Room is an account:
 *
 *     blocks in use + what each writable disk may still write + what is asked for  <=  what there is
 *
 * What a disk may still write is its whole length, except for the blocks that it has and shares with nobody. So
 * that is the same as
 *
 *     the base + the length of each writable disk + what is asked for  <=  what there is
 *
 * where the base is all that no writable disk has for itself: snapshots, shared blocks, and the tables of the pool. A
 * measurement finds it. Since then it can only have become less (shared blocks are written anew), except for jobs:
 * a copy makes its source's own blocks part of it. So an old base may refuse too early, never too late, and before a
 * job is refused all disks are measured again, and a pool grows. The base is not worked out from the blocks in use and
 * an old measurement of who owns them: a disk may give blocks back (zeros become holes), and could fill them again
 * after somebody else was promised the room. But if that gives a larger base, it counts. A disk that is being made
 * counts in full, and one whose sandbox has ended counts until its file is gone. So the place of disks never runs full
 * under a disk, where writes would be lost that the programs in it believe to be done.
 *
 * A sandbox stands still while its store is copied. The process that copies thaws it; if that process dies or hangs,
 * the spawner does.
 */
#include "spawner/disk_jobs.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "jail/sys.h"

#define JOBS_MAX 1024u
#define RUNNING_MAX 24u /* processes, with those that only end */
#define REMOVE_TRIES 4u
#define EMPTY_NS (5 * NS_PER_SEC)          /* before an empty pool is removed: the next order may be on its way */
#define SNAP_PATIENCE_NS (60 * NS_PER_SEC) /* without a word of the process, while a sandbox stands still for it */

/* ---- jobs ---------------------------------------------------------------------------------------------- */

struct disk_job *disk_job_add(struct spawner *spawner, enum disk_task task, uint64_t number, bool first,
                              struct brig_err *err)
{
    struct disk_job **at = &spawner->disks.jobs;
    loop_timer_clear(spawner->loop, &spawner->disks.on_empty);
    if (task != TASK_TIDY)
        disk_tidy_stop(spawner);
    struct disk_job *job = spawner->disks.n_jobs < JOBS_MAX || number == 0 ? mem_zalloc(sizeof *job) : NULL;

    if (!job && spawner->disks.n_jobs >= JOBS_MAX)
        (void)err_set(err, BRIG_E_LIMIT, 0, "disks: %u orders wait already", JOBS_MAX);
    else if (!job)
        (void)err_nomem(err);
    if (!job)
        return NULL;
    *job = (struct disk_job){.spawner = spawner, .task = task, .number = number, .sock = -1, .on_say = {.fd = -1}};
    while (!first && *at)
        at = &(*at)->next;
    job->next = *at;
    *at = job;
    spawner->disks.n_jobs++;
    return job;
}

/* Takes it off the list, before anybody is told of its end and asks for something else. */
static void job_take(struct disk_job *job)
{
    struct disk_job **at = &job->spawner->disks.jobs;

    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    job->spawner->disks.n_jobs--;
    loop_remove(job->spawner->loop, &job->on_say);
    loop_timer_clear(job->spawner->loop, &job->on_late);
    base_close_fd(&job->sock);
}

static bool is_upkeep(const struct disk_job *job)
{
    return job->task == TASK_BEGIN || job->task == TASK_MEASURE || job->task == TASK_GROW || job->task == TASK_CLOSE;
}

/* The name of the disk that it makes, or "". */
const char *disk_job_makes(const struct disk_job *job)
{
    return !job->claimed ? "" : job->run ? job->run->disk : job->name;
}

/* ... and of the one whose blocks it shares. */
const char *disk_job_shares(const struct disk_job *job)
{
    if (!job->judged)
        return "";
    return !job->run ? job->from : job->run->disk_from ? job->run->disk_from : "";
}

static void thaw(struct disk_job *job)
{
    struct sandbox *box = job->task == TASK_SNAP ? sandbox_by_run(job->spawner, job->box) : NULL;

    if (box && box->snapping)
        service_snapped(box);
}

/* A run whose disks are there is built like any other. */
static void build(struct disk_job *job, const struct disk_facts *facts, const struct brig_err *why)
{
    struct spawner *spawner = job->spawner;
    struct run_spec *run = job->run;
    struct brig_err err = {.code = BRIG_E_NONE};
    int r = 0;

    job->run = NULL;
    if (why) {
        err = *why;
        r = -EIO;
    } else if (job->cancelled) {
        r = err_set(&err, BRIG_E_REFUSED, 0, "it was ended before it was there");
    }
    if (r == 0 && run->disk) { /* a copy has the size of what it is a copy of */
        run->limits.disk = facts->size;
        run->limits.inodes = facts->inodes;
    }
    if (r == 0)
        r = sandbox_build(spawner, run, &err);
    if (r == 0)
        return;
    if (!why)
        disk_run_gone(spawner, run);
    spawner_fail(spawner, run, &err);
    run_spec_done(run);
}

static void upkeep_done(struct disk_job *job, const struct brig_err *err)
{
    struct spawner *spawner = job->spawner;

    spawner->disks.keeping = false;
    if (job->number != 0)
        disks_answer(spawner, job->number, err);
    if (!err || job->task == TASK_MEASURE)
        return;
    /* Whoever waits for room looks again, and is refused with what there is; without a place of disks all fail. */
    for (struct disk_job *other = spawner->disks.jobs, *next; other && job->task == TASK_BEGIN; other = next) {
        next = other->next;
        if (other->running)
            continue;
        job_take(other);
        if (other->task == TASK_MEASURE)
            disks_answer(spawner, other->number, err);
        else if (other->task == TASK_RUN)
            build(other, NULL, err);
        else
            disk_answer(spawner, other->number, NULL, err);
        mem_free(other);
    }
}

/* The last mount of it does not end, or the process was killed. Nobody else would ask for this again. */
static void remove_again(const struct disk_job *job, const struct brig_err *err)
{
    bool busy = err->code == BRIG_E_BUSY;
    struct disk_job *again =
        busy || job->tries + 1 < REMOVE_TRIES ? disk_job_add(job->spawner, TASK_REMOVE, 0, false, NULL) : NULL;

    if (!again)
        return; /* it stays until the next start, and is accounted for */
    str_assign(again->name, job->name);
    again->judged = true;
    again->tries = job->tries + !busy;
}

/* What the base has grown by is known now. If a measurement began meanwhile, what was added before is not in it. */
static void account(struct disk_job *job, const struct disk_made *made)
{
    struct spawner *spawner = job->spawner;
    const struct disk_facts *facts = &made->facts;

    if (disk_job_shares(job)[0] && spawner->host.disks.kind != DISKS_COPIES)
        disks_base_add(spawner, !disk_is_writable(disk_job_shares(job))   ? 0
                                : job->stamp > spawner->disks.measured_at ? made->shared - job->shares
                                                                          : made->shared);
    else
        disks_base_add(spawner, !disk_is_writable(facts->name) ? facts->used
                                : facts->used > facts->own     ? facts->used - facts->own
                                                           : 0); /* the kernel counts the two at different moments */
}

/* A process that says nothing more, but may take long to end: the last mount of a store may end with it. */
struct ending {
    struct ending *next;
    struct spawner *spawner;
    pid_t pid;
    int pidfd;
    struct loop_source on_end;
};

static void ending_done(struct ending *ending)
{
    struct ending **at = &ending->spawner->disks.endings;

    while (*at != ending)
        at = &(*at)->next;
    *at = ending->next;
    ending->spawner->disks.n_endings--;
    while (waitpid(ending->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    loop_remove(ending->spawner->loop, &ending->on_end);
    base_close_fd(&ending->pidfd);
    mem_free(ending);
}

static void on_ending(struct loop_source *source, uint32_t events UNUSED)
{
    struct ending *ending = source->ctx;
    struct spawner *spawner = ending->spawner;

    ending_done(ending);
    disks_go(spawner); /* a job may wait for its place */
}

static void reap(struct spawner *spawner, pid_t pid)
{
    struct ending *ending = waitpid(pid, NULL, WNOHANG) == 0 ? mem_zalloc(sizeof *ending) : NULL;

    if (!ending)
        return;
    *ending = (struct ending){.next = spawner->disks.endings,
                              .spawner = spawner,
                              .pid = pid,
                              .pidfd = sys_pidfd_open(pid),
                              .on_end = {.fd = -1, .fn = on_ending, .ctx = ending}};
    sandbox_move_up(&ending->pidfd);
    if (ending->pidfd < 0 || loop_add(spawner->loop, &ending->on_end, ending->pidfd, EPOLLIN, NULL) < 0) {
        base_close_fd(&ending->pidfd);
        mem_free(ending);
        return; /* it stays a zombie, which is better than to stand still for it */
    }
    spawner->disks.endings = ending;
    spawner->disks.n_endings++;
}

static bool upkeep(struct spawner *spawner, enum disk_task task, uint64_t grow_to, struct brig_err *err);

static void on_empty(struct loop_timer *timer)
{
    struct spawner *spawner = timer->ctx;

    if (!spawner->disks.entries && !spawner->disks.jobs && spawner->host.disks.kind == DISKS_POOL)
        (void)!upkeep(spawner, TASK_CLOSE, 0, NULL);
}

/* It has ended, well or not. */
static void job_done(struct disk_job *job, const struct disk_made *made, const struct brig_err *err)
{
    struct spawner *spawner = job->spawner;
    const struct disk_facts *facts = made ? &made->facts : NULL;
    struct disk_entry *entry;

    job_take(job);
    if (job->running) {
        spawner->disks.n_running--;
        reap(spawner, job->pid);
        job->running = false;
    }
    thaw(job);
    disk_entry_copied(spawner, disk_job_shares(job)); /* what was measured meanwhile is of before */
    entry = disk_job_makes(job)[0] ? disk_entry_find(spawner, disk_job_makes(job)) : NULL;
    if (entry && err) {
        if (job->pid > 0 && err->code != BRIG_E_CONFLICT) /* what was there already is not ours */
            disk_remove_half(&spawner->host.disks, disk_job_makes(job), job->pid);
        disk_entry_remove(spawner, disk_job_makes(job));
    } else if (entry) {
        account(job, made);
        entry->pending = false;
        entry->facts = *facts;
        entry->uses = job->uses;
        if (job->takes)
            disk_entry_remove(spawner, job->run->disk_from);
        /* a measurement that began before it was shared knows less */
        entry->copied_at = ++spawner->disks.stamp;
    }
    disk_tidy_after(job, err ? NULL : facts);
    if (job->task == TASK_REMOVE && (!err || err->code == BRIG_E_NOT_FOUND))
        disk_entry_remove(spawner, job->name);
    if (job->task == TASK_REMOVE && job->number == 0 && err && err->code != BRIG_E_NOT_FOUND)
        remove_again(job, err);
    if (is_upkeep(job))
        upkeep_done(job, err);
    else if (job->task == TASK_RUN)
        build(job, facts, err);
    else
        disk_answer(spawner, job->number, job->task == TASK_REMOVE ? NULL : facts, err);
    bool closing = job->task == TASK_CLOSE; /* if it could not, it is not tried again and again */
    mem_free(job);
    if (!closing && !spawner->disks.entries && !spawner->disks.jobs && spawner->host.disks.kind == DISKS_POOL) {
        spawner->disks.on_empty = (struct loop_timer){.fn = on_empty, .ctx = spawner};
        (void)!loop_timer_set(spawner->loop, &spawner->disks.on_empty, clock_mono_ns() + EMPTY_NS, NULL);
    }
    disks_go(spawner);
}

/* The descriptors of the place of disks. */
static int take_place(struct spawner *spawner, const struct disk_job *job, const struct disk_say *msg, int *fds,
                      size_t n_fds, struct brig_err *err)
{
    struct disk_store *store = &spawner->host.disks;
    int *places[DISK_OPEN_FDS] = {&store->fd, &store->mount_fd, &store->pool_fd, &store->loop_fd};
    size_t n = (size_t)__builtin_popcount(msg->opened & ((1u << DISK_OPEN_FDS) - 1));

    /* its descriptors are still the caller's if this fails: a mount that is held keeps the pool from being opened */
    int r = n + 1 != n_fds ? err_set(err, BRIG_E_HOST, EPROTO, "place of disks")
                           : disks_take_list(spawner, job, msg, fds[n], err);
    if (r < 0)
        return r;
    n = 0;
    for (unsigned i = 0; i < DISK_OPEN_FDS; i++)
        if (msg->opened & (1u << i))
            *places[i] = take_fd(&fds[n++]);
    store->kind = (enum disks_kind)msg->kind;
    str_assign(store->why, msg->why);
    return 0;
}

static void on_done(struct disk_job *job, struct disk_say *msg, int *fds, size_t n_fds)
{
    struct spawner *spawner = job->spawner;

    if (msg->err.code == BRIG_E_NONE && job->task == TASK_BEGIN)
        (void)!take_place(spawner, job, msg, fds, n_fds, &msg->err);
    if (msg->err.code == BRIG_E_NONE && job->task == TASK_MEASURE && n_fds == 1)
        (void)!disks_take_list(spawner, job, msg, fds[0], &msg->err);
    job_done(job, &msg->made, msg->err.code == BRIG_E_NONE ? NULL : &msg->err);
}

static void on_say(struct loop_source *source, uint32_t events UNUSED)
{
    struct disk_job *job = source->ctx;
    struct disk_say msg;
    int fds[DISK_OPEN_FDS + 1];
    size_t n_fds = 0;
    ssize_t n = fd_recv_nowait(job->sock, &msg, sizeof msg, fds, DISK_OPEN_FDS + 1, &n_fds);

    if (n == -EAGAIN)
        return;
    if (n != (ssize_t)sizeof msg) {
        struct brig_err err;
        (void)err_set(&err, BRIG_E_HOST, EPIPE, "the process that works on disks has died");
        job_done(job, NULL, &err);
        return;
    }
    if (job->task == TASK_SNAP)
        (void)!loop_timer_set(job->spawner->loop, &job->on_late, clock_mono_ns() + SNAP_PATIENCE_NS, NULL);
    if (msg.type == SAY_DONE) {
        on_done(job, &msg, fds, n_fds);
    } else if (msg.type == SAY_LET_GO) {
        pool_let_go(&job->spawner->host.disks);
        shutdown(job->sock, SHUT_WR);
    } else if (job->number != 0 && !job->run) {
        const struct wire_disk_progress tell = {
            {WIRE_MAGIC, WIRE_VERSION, WIRE_DISK_PROGRESS, job->number}, msg.at, msg.of};
        spawner_send(job->spawner, &tell, NULL, 0);
    }
    fd_close_all(fds, n_fds);
}

/* It cannot be waited for: it may sleep in the kernel. But its sandbox goes on. */
static void on_late(struct loop_timer *timer)
{
    struct disk_job *job = timer->ctx;

    kill(job->pid, SIGKILL);
    thaw(job);
}

static void job_start(struct disk_job *job)
{
    struct spawner *spawner = job->spawner;
    struct sandbox *box = job->task == TASK_SNAP ? sandbox_by_run(spawner, job->box) : NULL;
    const struct disk_work work = {.task = job->task,
                                   .name = job->name,
                                   .size = job->size,
                                   .inodes = job->inodes,
                                   .grow_to = job->grow_to,
                                   .box = box,
                                   .lasting = job->uses == 0,
                                   .takes = job->takes,
                                   .run = job->run};
    struct brig_err err = {.code = BRIG_E_NONE};

    job->stamp = ++spawner->disks.stamp;
    job->base_added = spawner->disks.base_added;
    if (job->task == TASK_MEASURE)
        spawner->disks.measured_at = job->stamp;
    disks_base_add(spawner, job->shares);
    disk_entry_copied(spawner, disk_job_shares(job));
    int r = disk_work_start(spawner, &work, &job->pid, &job->sock, &err);
    job->running = r == 0;
    spawner->disks.n_running += r == 0;
    if (r == 0 && box)
        box->snapping = true;
    job->on_say = (struct loop_source){.fd = -1, .fn = on_say, .ctx = job};
    job->on_late = (struct loop_timer){.fn = on_late, .ctx = job};
    if (r == 0 && (r = loop_add(spawner->loop, &job->on_say, job->sock, EPOLLIN, &err)) < 0)
        kill(job->pid, SIGKILL);
    if (r == 0 && box)
        (void)!loop_timer_set(spawner->loop, &job->on_late, clock_mono_ns() + SNAP_PATIENCE_NS, NULL);
    if (r < 0)
        job_done(job, NULL, &err);
}

/* ---- room ---------------------------------------------------------------------------------------------- */

static bool upkeep(struct spawner *spawner, enum disk_task task, uint64_t grow_to, struct brig_err *err)
{
    struct disk_job *job = spawner->disks.keeping ? NULL : disk_job_add(spawner, task, 0, true, err);

    if (!job)
        return spawner->disks.keeping;
    job->grow_to = grow_to;
    spawner->disks.keeping = true;
    job_start(job);
    return true;
}

/* The blocks of a source that may be its own when it is copied: it is written to until then. */
static uint64_t may_become_shared(const struct disk_job *job)
{
    const struct spawner *spawner = job->spawner;
    const struct disk_entry *old = disk_job_shares(job)[0] ? disk_entry_find(spawner, disk_job_shares(job)) : NULL;

    if (!old || !disk_is_writable(old->facts.name) || spawner->host.disks.kind == DISKS_COPIES)
        return 0;
    const struct disk_facts *facts = &old->facts;
    uint64_t used = disk_used(&spawner->host.disks, facts->name), grown = used > facts->used ? used - facts->used : 0;
    uint64_t own = job->measured ? facts->own + grown : used;
    return own < facts->bytes ? own : facts->bytes;
}

/* The new disk is in the list already. */
static int check_room(struct disk_job *job, bool *ret_wait, struct brig_err *err)
{
    struct spawner *spawner = job->spawner;
    struct disk_room room;
    int r = disks_room(&spawner->host.disks, &room, err);

    if (r < 0)
        return r;
    job->shares = may_become_shared(job);
    uint64_t need = disks_need(spawner, room.used) + job->shares;
    *ret_wait = false;
    if (need <= room.room)
        return 0;
    if (!job->measured) {
        job->measured = true;
        *ret_wait = upkeep(spawner, TASK_MEASURE, 0, err);
        return *ret_wait ? 0 : -ENOMEM;
    }
    if (need <= room.most && !job->grown) {
        job->grown = true;
        *ret_wait = upkeep(spawner, TASK_GROW, need + need / 16 + (need - room.room), err);
        return *ret_wait ? 0 : -ENOMEM;
    }
    return err_set(err, BRIG_E_LIMIT, 0,
                   "disks: %" PRIu64 " bytes are needed for all that they may hold, and %" PRIu64 " can be had", need,
                   room.most);
}

/* One copy of a box at a time; and who takes a disk waits for those who make copies of it. */
static bool must_wait(const struct disk_job *job)
{
    if (job->task == TASK_TIDY)
        return disk_tidy_must_wait(job);
    for (const struct disk_job *other = job->spawner->disks.jobs; other; other = other->next) {
        if (other == job)
            continue;
        if (job->task == TASK_SNAP && other->task == TASK_SNAP && other->running && other->box == job->box)
            return true;
        if (job->takes && str_eq(disk_job_shares(other), disk_job_shares(job)))
            return true;
    }
    return false;
}

/* A job may have waited: what it needs may be gone, or used otherwise. */
static int check_still(const struct disk_job *job, struct brig_err *err)
{
    const struct sandbox *box = job->task == TASK_SNAP ? sandbox_by_run(job->spawner, job->box) : NULL;

    if (job->judged && job->task == TASK_SNAP && (!box || box->verdict.cause != BRIG_CAUSE_MAX))
        return err_set(err, BRIG_E_GONE, 0, "the sandbox has ended");
    if (job->cancelled)
        return err_set(err, BRIG_E_REFUSED, 0, "it was ended before it was there");
    return 0;
}

static void try_start(struct disk_job *job)
{
    struct brig_err err = {.code = BRIG_E_NONE};
    bool wait = false;
    int r = check_still(job, &err);

    if (r == 0 && !job->judged)
        r = disk_job_judge(job, &err);
    if (r == 0 && must_wait(job))
        return;
    if (r == 0 && disk_job_makes(job)[0])
        r = check_room(job, &wait, &err);
    else if (r == 0 && job->task == TASK_TIDY)
        r = disk_tidy_check(job, &err);
    if (r < 0)
        job_done(job, NULL, &err);
    else if (!wait)
        job_start(job);
}

void disks_go(struct spawner *spawner)
{
    struct disks *disks = &spawner->disks;
    struct brig_err err;

    if (disks->going || spawner->stop)
        return;
    disks->going = true;
    for (bool again = true; again;) {
        again = false;
        for (struct disk_job *job = disks->jobs; job; job = job->next) {
            bool keep = disk_job_makes(job)[0] != '\0' || !job->judged || is_upkeep(job);
            if (job->running || disks->n_running + disks->n_endings >= RUNNING_MAX || (keep && disks->keeping))
                continue;
            if (spawner->host.disks.kind == DISKS_CLOSED) {
                (void)!upkeep(spawner, TASK_BEGIN, 0, &err);
                break;
            }
            if (must_wait(job))
                continue;
            if (is_upkeep(job))
                disks->keeping = true;
            again = true; /* the list may be another one now */
            try_start(job);
            break;
        }
    }
    disks->going = false;
}

/* Their sandboxes stand still, and an engine that takes over ends those that do not answer it. */
void disk_snaps_end(struct spawner *spawner)
{
    for (struct disk_job *job = spawner->disks.jobs; job; job = job->next) {
        if (job->task != TASK_SNAP)
            continue;
        job->cancelled = true;
        if (job->running)
            kill(job->pid, SIGKILL);
    }
    disks_go(spawner);
}

void disk_jobs_done(struct spawner *spawner)
{
    struct disks *disks = &spawner->disks;

    for (size_t i = 0; spawner->loop && i < 2; i++)
        loop_timer_clear(spawner->loop, i == 0 ? &disks->on_empty : &disks->on_quiet);
    while (disks->jobs) {
        struct disk_job *job = disks->jobs;
        if (job->running) {
            kill(job->pid, SIGKILL);
            while (waitpid(job->pid, NULL, 0) < 0 && errno == EINTR)
                ;
        }
        run_spec_done(job->run);
        job_take(job);
        mem_free(job);
    }
    while (disks->endings) {
        kill(disks->endings->pid, SIGKILL); /* it has said all, and is waited for */
        ending_done(disks->endings);
    }
    while (disks->entries) {
        const char *name = disks->entries->facts.name;
        if (disk_name_ok(name, DISK_PRE_BOX) && spawner->host.disks.fd >= 0)
            (void)!unlinkat(spawner->host.disks.fd, name, 0);
        disk_entry_remove(spawner, name);
    }
}
