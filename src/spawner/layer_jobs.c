/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_jobs.c: what the engine asks about template layers (host/layers.h). Names are checked here, and a layer of a
 * live sandbox is refused. Every change of the store is one rename. Writing a layer to the disk and removing a tree may
 * take seconds, so processes of their own do that. They die with the spawner; the next start removes a layer that was
 * not committed yet, and goes on with what was to be removed.
 *
 *     MAKE     answered at once
 *     COMMIT   answered when the layer is on the disk and has its name
 *     REMOVE   answered at once: the layer is gone. One process at a time sweeps what is gone.
 */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "gate/gate_wire.h"
#include "host/layers.h"
#include "jail/sys.h"
#include "spawner/spawner.h"

#define COMMITS_MAX 16u
#define LIST_MAX (8u << 20)

struct layer_job {
    struct layer_job *next;
    struct spawner *spawner;
    bool commit;     /* Else it sweeps. */
    uint64_t number; /* The engine's, of a commit. */
    pid_t pid;
    int pidfd;
    struct loop_source on_end;
    char made[LAYER_MADE_SIZE], to[WIRE_LAYER_NAME];
};

static void sweep(struct spawner *spawner);

static void answer(struct spawner *spawner, uint64_t number, const struct brig_err *err)
{
    struct wire_answer msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_LAYER_DONE, number}};

    if (err)
        msg.err = *err;
    spawner_send(spawner, &msg, NULL, 0);
}

/* ---- processes ---------------------------------------------------------------------------------------- */

static _Noreturn void job_child(struct spawner *spawner, const struct layer_job *job, pid_t parent)
{
    const int store = spawner->host.layers.fd;

    prctl(PR_SET_NAME, job->commit ? "brig-commit" : "brig-sweep");
    reaper_close_others(&spawner->host.cg, &store, 1);
    if (!sys_die_with(parent))
        _exit(EPIPE);
    _exit(-(job->commit ? layers_commit(store, job->made, job->to) : layers_sweep(store)));
}

static void job_free(struct layer_job *job)
{
    struct layer_job **at = &job->spawner->layer_jobs;

    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    loop_remove(job->spawner->loop, &job->on_end);
    base_close_fd(&job->pidfd);
    mem_free(job);
}

/* The exit status is an errno. */
static int job_wait(const struct layer_job *job)
{
    int status = 0;

    (void)RETRY(waitpid(job->pid, &status, 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

static void on_job_end(struct loop_source *source, uint32_t events UNUSED)
{
    struct layer_job *job = source->ctx;
    struct spawner *spawner = job->spawner;
    struct brig_err err;
    int errnum = job_wait(job);
    bool more = job->commit || spawner->sweep_again;

    if (job->commit && errnum)
        (void)err_set(&err, BRIG_E_HOST, errnum, "layer %s: commit", job->to);
    if (job->commit)
        answer(spawner, job->number, errnum ? &err : NULL);
    job_free(job);
    if (more)
        sweep(spawner);
}

/* made and msg are NULL for a sweep. */
static int job_start(struct spawner *spawner, const char *made, const struct wire_layer *msg, struct brig_err *err)
{
    struct layer_job *job = mem_zalloc(sizeof *job);
    struct clone_args args = {.flags = CLONE_PIDFD, .exit_signal = SIGCHLD};
    pid_t self = getpid();

    if (!job)
        return err_nomem(err);
    *job = (struct layer_job){.next = spawner->layer_jobs,
                              .spawner = spawner,
                              .commit = msg != NULL,
                              .pidfd = -1,
                              .on_end = {.fd = -1, .fn = on_job_end, .ctx = job}};
    if (msg) {
        job->number = msg->head.run;
        (void)!str_copy(job->made, sizeof job->made, made);
        str_assign(job->to, msg->to);
    }
    args.pidfd = (uint64_t)(uintptr_t)&job->pidfd;
    job->pid = SYS(sys_clone3(&args));
    if (job->pid == 0)
        job_child(spawner, job, self);
    if (job->pid < 0) {
        (void)err_host(err, "process for layers");
        mem_free(job);
        return -EAGAIN;
    }
    spawner->layer_jobs = job;
    sandbox_move_up(&job->pidfd);
    int r = loop_add(spawner->loop, &job->on_end, job->pidfd, EPOLLIN, err);
    if (r < 0) {
        (void)sys_pidfd_send_signal(job->pidfd, SIGKILL);
        (void)job_wait(job);
        job_free(job);
    }
    return r;
}

static bool sweeping(const struct spawner *spawner)
{
    for (const struct layer_job *job = spawner->layer_jobs; job; job = job->next)
        if (!job->commit)
            return true;
    return false;
}

/* What cannot be swept now is swept at the next occasion. */
static void sweep(struct spawner *spawner)
{
    spawner->sweep_again = sweeping(spawner);
    if (!spawner->sweep_again)
        (void)!job_start(spawner, NULL, NULL, NULL);
}

void layer_jobs_start(struct spawner *spawner)
{
    if (spawner->host.layers.fd >= 0 && layers_start(&spawner->host.layers))
        sweep(spawner);
}

void layer_jobs_done(struct spawner *spawner)
{
    while (spawner->layer_jobs) {
        (void)sys_pidfd_send_signal(spawner->layer_jobs->pidfd, SIGKILL);
        (void)job_wait(spawner->layer_jobs);
        job_free(spawner->layer_jobs);
    }
}

/* ---- questions ---------------------------------------------------------------------------------------- */

static bool uses(const struct run_spec *run, const char *name)
{
    if (run->new_layer && str_eq(run->new_layer, name))
        return true;
    const char *layer = run->layers;
    for (unsigned i = 0; i < run->n_layers; i++, layer += strlen(layer) + 1)
        if (str_eq(layer, name))
            return true;
    return false;
}

static int check_unused(const struct spawner *spawner, const char *name, struct brig_err *err)
{
    for (int state = 0; state < SANDBOX_STATE_MAX; state++)
        for (const struct sandbox *s = spawner->lists[state]; s; s = s->next)
            if (s->run && uses(s->run, name))
                return err_set(err, BRIG_E_CONFLICT, EBUSY, "layer %s: sandbox %s uses it", name, s->id);
    return 0;
}

int layers_check(const struct spawner *spawner, const struct run_spec *run, struct brig_err *err)
{
    const struct layer_store *store = &spawner->host.layers;
    const char *layer = run->layers;

    if (store->fd < 0)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "layers: %s", store->why);
    for (unsigned i = 0; i < run->n_layers; i++, layer += strlen(layer) + 1)
        if (!layers_have(store, layer))
            return err_usage(err, "layer %s: not there", layer);
    if (run->new_layer && !layers_have(store, run->new_layer))
        return err_usage(err, "new layer %s: not there", run->new_layer);
    return run->new_layer ? check_unused(spawner, run->new_layer, err) : 0;
}

static int commit(struct spawner *spawner, const struct wire_layer *msg, struct brig_err *err)
{
    char made[LAYER_MADE_SIZE];
    unsigned n = 0;

    for (const struct layer_job *job = spawner->layer_jobs; job; job = job->next)
        n += job->commit;
    if (n >= COMMITS_MAX)
        return err_set(err, BRIG_E_LIMIT, EAGAIN, "layers: %u are being committed", n);
    int r = layers_finish(&spawner->host.layers, msg->name, made, err);
    if (r < 0)
        return r;
    r = job_start(spawner, made, msg, err);
    if (r < 0 && layers_remove(&spawner->host.layers, made, NULL) == 0)
        sweep(spawner);
    return r < 0 ? r : 1;
}

/* Returns 1 if the answer comes later. */
static int obey(struct spawner *spawner, const struct wire_layer *msg, struct brig_err *err)
{
    const struct layer_store *store = &spawner->host.layers;
    bool is_new = layer_new_name_ok(msg->name);
    bool good = msg->op == WIRE_LAYER_REMOVE ? is_new || layer_name_ok(msg->name) : is_new;

    if (!good || (msg->op == WIRE_LAYER_COMMIT ? !layer_name_ok(msg->to) : msg->to[0] != '\0'))
        return err_usage(err, "layer %s%s%s: not the name of one", msg->name, msg->to[0] ? " to " : "", msg->to);
    if (store->fd < 0)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "layers: %s", store->why);
    if (msg->op == WIRE_LAYER_MAKE)
        return layers_make(store, msg->name, host_layer_owner(&spawner->host), err);
    int r = check_unused(spawner, msg->name, err);
    if (r < 0)
        return r;
    if (msg->op == WIRE_LAYER_COMMIT)
        return commit(spawner, msg, err);
    r = layers_remove(store, msg->name, err);
    if (r == 0)
        sweep(spawner);
    return r;
}

void layer_obey(struct spawner *spawner, const struct wire_layer *msg)
{
    struct brig_err err;
    int r = memchr(msg->name, '\0', sizeof msg->name) && memchr(msg->to, '\0', sizeof msg->to) &&
                    msg->op < WIRE_LAYER_OP_MAX
                ? obey(spawner, msg, &err)
                : err_set(&err, BRIG_E_HOST, EPROTO, "message about a layer");

    if (r <= 0)
        answer(spawner, msg->head.run, r < 0 ? &err : NULL);
}

void layers_tell(struct spawner *spawner, uint64_t number)
{
    struct wire_layers_are msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_LAYERS_ARE, number}};
    const struct layer_store *store = &spawner->host.layers;
    AUTO_BUF struct buf names = BUF_INIT(LIST_MAX);
    int r = store->fd < 0 ? err_set(&msg.err, BRIG_E_UNSUPPORTED, 0, "layers: %s", store->why)
                          : layers_list(store, &names, &msg.err);
    AUTO_FD int fd = r < 0 ? -1 : gate_memfd("layers", names.data, names.len);

    if (r == 0 && fd < 0)
        (void)err_set(&msg.err, BRIG_E_HOST, -fd, "memfd");
    msg.len = fd < 0 ? 0 : (uint32_t)names.len;
    spawner_send(spawner, &msg, &fd, fd >= 0);
}
