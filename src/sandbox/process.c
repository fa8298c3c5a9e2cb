/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.c: makes, finds, describes and forgets the processes of a sandbox. At most PROCESS_RUNNING_MAX run, and
 * PROCESS_KEEP ended ones are kept; among those the oldest that nobody reads is forgotten first, and its ring in
 * brig-init with it.
 */
#include <signal.h>

#include "base/id.h"
#include "base/list.h"
#include "receipt/receipt.h"
#include "sandbox/processes.h"

struct process *process_new(struct sbox *sbox, const struct caller *caller, bool shell)
{
    struct sbox_private *priv = sbox->priv;
    struct process *process = mem_zalloc(sizeof *process);

    if (!process || id_run(process->run_id) < 0) {
        mem_free(process);
        return NULL;
    }
    process->sbox = sbox;
    process->caller = *caller;
    program_init(&process->prog, sbox->manager->loop, &sbox->link, &process_events, process);
    process->cause = BRIG_CAUSE_HOST_ERROR;
    list_append(&priv->first, &priv->last, process);
    priv->running++;
    process->shell = shell;
    if (!shell) /* a shell that waits for a command does not keep its sandbox from being idle */
        sbox->processes++;
    sbox->manager->stats.processes++;
    return process;
}

static void process_free(struct process *process)
{
    program_done(&process->prog);
    process_drop_calls(process);
    network_process_free(process);
    waits_free(process);
    outputs_free(process);
    early_drop(process);
    inputs_free(process);
    kept_done(process->sbox->manager, process->sbox->org_id, process->prog.kept);
    input_done(process);
    mem_free(process->run);
    mem_free(process->memory);
    mem_free(process->workdir);
    mem_free(process->user);
    mem_free(process->receipt);
    mem_free(process);
}

void process_pin(struct process *process)
{
    process->pins++;
}

void process_unpin(struct process *process)
{
    if (--process->pins == 0 && process->unlinked)
        process_free(process);
}

static void stops_running(struct process *process)
{
    struct sbox *sbox = process->sbox;

    sbox->priv->running--;
    if (!process->shell)
        sbox->processes--;
    sbox->manager->stats.processes--;
}

void process_unlink(struct process *process)
{
    struct sbox_private *priv = process->sbox->priv;

    if (process->unlinked)
        return;
    list_take(&priv->first, &priv->last, process);
    if (process->prog.state == PROGRAM_ENDED)
        priv->ended--;
    else
        stops_running(process);
    process->unlinked = true;
    if (process->pins == 0)
        process_free(process);
}

/* brig-init may drop its ring; nobody waits for the answer. */
static void forget_inside(struct process *process)
{
    struct sbox *sbox = process->sbox;
    uint8_t message[4];
    struct svc_cursor out = {message, message + sizeof message, false};
    const struct call_events none = {0};
    struct call *call;

    if (process->forgotten || process->prog.start_errnum || !sbox->link)
        return;
    process->forgotten = true;
    svc_put_u32(&out, process->prog.number);
    (void)!link_call(sbox->link, SVC_PROC_FORGET, message, sizeof message, &none, &call, NULL);
}

static void evict(struct sbox *sbox)
{
    for (struct process *p = sbox->priv->first, *next; p && sbox->priv->ended > PROCESS_KEEP; p = next) {
        next = p->next;
        if (p->prog.state == PROGRAM_ENDED && !p->outputs && !p->waits && p->pins == 0) {
            forget_inside(p);
            process_unlink(p);
        }
    }
}

/* ---- the end of one ------------------------------------------------------------------------------------------ */

static void tell_start(struct process *process)
{
    void (*done)(void *ctx, struct process *p, const struct brig_err *err) = process->start_done;
    struct brig_err err = {0};

    process->start_done = NULL;
    if (!done)
        return;
    process_start_failure(process, &err);
    done(process->start_ctx, NULL, &err);
}

static void tell_run(struct process *process)
{
    struct process_run *run = take_ptr(&process->run);
    struct brig_err err = {0};

    if (!run)
        return;
    sbox_release(process->sbox);
    if (process->receipt)
        run->done(run->ctx, process->receipt, process->receipt_len, NULL);
    else {
        (void)err_nomem(&err);
        run->done(run->ctx, NULL, 0, &err);
    }
    mem_free(run);
}

static void audit_exit(struct process *process)
{
    char detail[160];

    snprintf(detail, sizeof detail, "%s process %u", process->run_id, process->prog.number);
    uint64_t seq = sandbox_audit(process->sbox->manager, &process->caller, process->sbox->org_id, "process.exit",
                                 process->sbox->id, brig_cause_name(process->cause), detail, false);
    if (seq)
        process->audit_seq = seq;
}

/* A run that did not end as its caller wished: many of them in a short time are an event. */
static void note_failure(const struct process *process)
{
    bool well = process->cause == BRIG_CAUSE_CANCELLED ||
                (process->cause == BRIG_CAUSE_EXITED && process->prog.has_exit && process->prog.exit.status == 0);

    if (!well)
        sandbox_suspect(process->sbox, &process->caller, "failed", "repeated failed runs");
}

void process_ended(struct process *process)
{
    struct sbox *sbox = process->sbox;

    process_pin(process);
    process_drop_calls(process);
    loop_timer_clear(sbox->manager->loop, &process->prog.timer);
    stops_running(process);
    process->prog.state = PROGRAM_ENDED;
    sbox->priv->ended++;
    sbox->last_used_boot_ns = sandbox_boot_ns();
    if (process->ended_at_ns == 0)
        process->ended_at_ns = clock_real_ns();
    if (process->started_at_ns == 0 || process->prog.start_errnum)
        process->started_at_ns = process->ended_at_ns;
    if (!process->foreign) {
        audit_exit(process);
        note_failure(process);
    }
    (void)!process_receipt(process);
    bool of_start = process->start_done != NULL;
    tell_run(process);
    tell_start(process);
    waits_ended(process);
    outputs_ended(process);
    inputs_ended(process, EPIPE);
    if (process->shell)
        shell_process_ended(process);
    if (!process->foreign)
        (void)!process_store(process);
    kept_done(process->sbox->manager, process->sbox->org_id, process->prog.kept);
    /* Its receipt was the answer, or it never was: nobody comes back for it. */
    if ((process->is_run || of_start) && !process->outputs) {
        forget_inside(process);
        process_unlink(process);
    }
    evict(sbox);
    process_unpin(process);
    soft_stop_check(sbox);
}

void processes_gone(struct sbox *sbox)
{
    struct sbox_private *priv = sbox->priv;

    /* Each is pinned while it and its neighbours are told: whoever is told may look at others, but not free them. */
    for (struct process *p = priv->first, *next; p; p = next) {
        process_pin(p);
        process_drop_calls(p);
        p->forgotten = true;
        if (p->prog.state != PROGRAM_ENDED)
            process_judge_gone(p);
        else {
            waits_ended(p);
            outputs_ended(p);
        }
        early_drop(p);
        next = p->next;
        process_unpin(p);
    }
    shells_free(sbox, true);
}

void processes_free(struct sbox *sbox)
{
    shells_free(sbox, false);
    while (sbox->priv->first) {
        sbox->priv->first->pins = 0;
        process_unlink(sbox->priv->first);
    }
}

void processes_resumed(struct sbox *sbox, uint64_t paused_ns)
{
    for (struct process *p = sbox->priv->first; p; p = p->next)
        if (p->prog.state < PROGRAM_JUDGING) {
            if (p->prog.deadline_ns)
                p->prog.deadline_ns += paused_ns;
            program_arm(&p->prog);
        }
}

/* ---- the store ----------------------------------------------------------------------------------------------- */

int process_store(struct process *process)
{
    struct sbox *sbox = process->sbox;
    struct store_run row = {.started_at_ns = process->started_at_ns};
    AUTO_BUF struct buf doc = BUF_INIT(ROW_MAX);
    struct brig_err err = {0};
    bool ended = process->prog.state == PROGRAM_ENDED;
    int r = 0;

    str_assign(row.id, process->run_id);
    str_assign(row.org_id, sbox->org_id);
    str_assign(row.sandbox_id, sbox->id);
    snprintf(row.kind, sizeof row.kind, "command");
    if (ended) {
        (void)!str_copy(row.cause, sizeof row.cause, brig_cause_name(process->cause));
        row.ended_at_ns = process->ended_at_ns;
        row.doc = process->receipt;
        r = process->receipt ? 0 : -ENOMEM;
    } else {
        r = process_open_doc(process, &doc);
        row.doc = doc.data;
    }
    if (r == 0)
        r = store_put_run(sbox->manager->store, &row, NULL, NULL, &err);
    if (r < 0) /* the run is not undone for it; the log says that its record is missing */
        sandbox_audit(sbox->manager, NULL, sbox->org_id, "run.store", process->run_id, "failed", err.message, false);
    return r;
}

/* ---- the public side ----------------------------------------------------------------------------------------- */

struct process *process_find(struct sbox *sbox, uint32_t number)
{
    struct process *process = sbox->priv->first;

    while (process && process->prog.number != number)
        process = process->next;
    return process;
}

struct process *process_each(struct sbox *sbox, struct process *after)
{
    return after ? after->next : sbox->priv->first;
}

uint32_t process_number(const struct process *process)
{
    return process->prog.number;
}

uint32_t process_pid(const struct process *process)
{
    return process->pid;
}

const char *process_run_id(const struct process *process)
{
    return process->run_id;
}

bool process_running(const struct process *process)
{
    return process->prog.state < PROGRAM_JUDGING;
}

bool process_has_tty(const struct process *process)
{
    return process->tty;
}

void process_json(const struct process *process, struct json *json)
{
    json_object(json);
    json_key_u64(json, "number", process->prog.number);
    json_key_u64(json, "pid", process->pid);
    json_key_string(json, "run_id", process->run_id);
    json_key_array(json, "argv");
    for (size_t i = 0; process->argv && process->argv[i]; i++)
        json_string(json, process->argv[i]);
    json_end(json);
    json_key_bool(json, "running", process_running(process));
    json_key_bool(json, "tty", process->tty);
    if (process->shell)
        json_key_u64(json, "shell", process->shell_number);
    if (process->started_at_ns)
        receipt_put_time(json, "started_at", process->started_at_ns);
    if (process->prog.state == PROGRAM_ENDED) {
        const struct brig_receipt outcome = {
            .cause = process->cause,
            .started = process->prog.has_exit,
            .limits_hit = process->prog.limits_hit,
            .signal = program_exit_signal(&process->prog),
            .exit_code = program_exit_code(&process->prog),
        };
        receipt_put_time(json, "ended_at", process->ended_at_ns);
        receipt_put_outcome(json, &outcome);
        json_key_object(json, "output");
        json_key_u64(json, "stdout", process->prog.exit.output[1]);
        json_key_u64(json, "stderr", process->prog.exit.output[2]);
        json_end(json);
    }
    json_end(json);
}
