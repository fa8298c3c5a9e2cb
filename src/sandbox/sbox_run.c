/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_run.c: what requests do with processes: run and wait for the receipt, start, wait, signal, resize. Nothing here
 * calls back from within the call that asked.
 */
#include <signal.h>

#include "base/list.h"
#include "sandbox/processes.h"

static int check_spec(struct sbox *sbox, const struct process_spec *spec, struct brig_err *err)
{
    int r = sbox_usable(sbox, err);

    if (r < 0)
        return r;
    if (!spec->argv || !spec->argv[0] || !spec->argv[0][0])
        return err_usage(err, "argv: must not be empty");
    if (spec->workdir && spec->workdir[0] != '/')
        return err_usage(err, "cwd %.64s: must be absolute", spec->workdir);
    return 0;
}

static void refused(struct sbox *sbox, const struct caller *caller, const struct brig_err *why)
{
    sandbox_audit(sbox->manager, caller, sbox->org_id, "process.start", sbox->id, "failed", why->message, false);
}

int process_run(struct sbox *sbox, const struct caller *caller, const struct process_spec *spec,
                void (*done)(void *ctx, const char *receipt, size_t len, const struct brig_err *err), void *ctx,
                struct process_run **ret, struct brig_err *err)
{
    struct process_spec asked = *spec;
    struct brig_err why = {0};
    int r = check_spec(sbox, spec, err);

    if (r < 0)
        return r;
    if (!asked.timeout_ms)
        asked.timeout_ms = sbox->limits.timeout        ? sbox->limits.timeout
                           : sbox->spec.limits.timeout ? sbox->spec.limits.timeout
                                                       : 300000;
    struct process_run *run = mem_zalloc(sizeof *run);
    struct process *process = run ? process_new(sbox, caller, false) : NULL;
    if (!process) {
        mem_free(run);
        return err_nomem(err);
    }
    *run = (struct process_run){process, done, ctx};
    process->is_run = true;
    r = process_launch(process, &asked, true, &why);
    if (r < 0) {
        refused(sbox, caller, &why);
        process_unlink(process);
        mem_free(run);
        if (err)
            *err = why;
        return r;
    }
    process->run = run;
    sbox_hold(sbox);
    *ret = run;
    return 0;
}

void process_run_cancel(struct process_run *run)
{
    struct process *process = run->process;

    process->run = NULL;
    mem_free(run);
    sbox_release(process->sbox);
    process_end(process, BRIG_CAUSE_CANCELLED, "the caller left");
}

int process_start(struct sbox *sbox, const struct caller *caller, const struct process_spec *spec,
                  void (*done)(void *ctx, struct process *process, const struct brig_err *err), void *ctx,
                  struct brig_err *err)
{
    struct brig_err why = {0};
    int r = check_spec(sbox, spec, err);

    if (r < 0)
        return r;
    struct process *process = process_new(sbox, caller, false);
    if (!process)
        return err_nomem(err);
    r = process_launch(process, spec, spec->kill_on_output, &why);
    if (r < 0) {
        refused(sbox, caller, &why);
        process_unlink(process);
        if (err)
            *err = why;
        return r;
    }
    process->start_done = done;
    process->start_ctx = ctx;
    return 0;
}

/* ---- signals and sizes ---------------------------------------------------------------------------------- */

struct signalling {
    void (*done)(void *ctx, const struct brig_err *err);
    void *ctx;
};

static void on_signalled(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                         size_t len UNUSED)
{
    struct signalling s = *(struct signalling *)ctx;
    struct brig_err err = {0};

    mem_free(ctx);
    if (errnum == 0) {
        s.done(s.ctx, NULL);
        return;
    }
    (void)err_set(&err,
                  errnum == ENOTCONN ? BRIG_E_GONE
                  : errnum == ESRCH  ? BRIG_E_CONFLICT
                  : errnum == EINVAL ? BRIG_E_USAGE
                                     : BRIG_E_HOST,
                  (int)errnum, "signal");
    s.done(s.ctx, &err);
}

int process_signal(struct process *process, const struct caller *caller, int signum, unsigned svc_flags,
                   void (*done)(void *ctx, const struct brig_err *err), void *ctx, struct brig_err *err)
{
    struct sbox *sbox = process->sbox;
    char detail[128];
    int r = sbox_usable(sbox, err);

    if (r < 0)
        return r;
    if (signum < 1 || signum > 64)
        return err_usage(err, "signal %d: must be between 1 and 64", signum);
    if (!process_running(process))
        return err_set(err, BRIG_E_CONFLICT, 0, "process %u has ended", process->prog.number);
    struct signalling *s = mem_zalloc(sizeof *s);
    if (!s)
        return err_nomem(err);
    *s = (struct signalling){done, ctx};
    const struct call_events events = {.reply = done ? on_signalled : NULL, .ctx = s};
    r = program_signal(&process->prog, signum, svc_flags, &events, err);
    if (r < 0 || !done)
        mem_free(s);
    if (r < 0)
        return r;
    snprintf(detail, sizeof detail, "%s process %u: signal %d", process->run_id, process->prog.number, signum);
    sandbox_audit(sbox->manager, caller, sbox->org_id, "process.signal", sbox->id, "ok", detail, false);
    if (signum == SIGKILL && (svc_flags & SVC_SIGNAL_ALL)) {
        (void)program_verdict(&process->prog, BRIG_CAUSE_CANCELLED, "it was killed by request");
        process->prog.state = PROGRAM_KILL_SENT;
        program_arm(&process->prog);
    }
    return 0;
}

int process_resize(struct process *process, uint16_t rows, uint16_t cols, struct brig_err *err)
{
    uint8_t message[8];
    struct svc_cursor out = {message, message + sizeof message, false};
    const struct call_events none = {0};
    struct call *call;
    int r = sbox_usable(process->sbox, err);

    if (r < 0)
        return r;
    if (!process->tty)
        return err_set(err, BRIG_E_CONFLICT, 0, "process %u has no terminal", process->prog.number);
    if (!process_running(process))
        return err_set(err, BRIG_E_CONFLICT, 0, "process %u has ended", process->prog.number);
    if (rows == 0 || cols == 0)
        return err_usage(err, "rows and cols: must be at least 1");
    svc_put_u32(&out, process->prog.number);
    svc_put_u16(&out, rows);
    svc_put_u16(&out, cols);
    return link_call(process->sbox->link, SVC_PROC_RESIZE, message, sizeof message, &none, &call, err);
}

/* ---- waiting -------------------------------------------------------------------------------------------- */

struct process_wait {
    struct process *process;
    struct process_wait *next, *prev;
    struct loop_timer timer;
    void (*done)(void *ctx, const char *receipt, size_t len, const struct brig_err *err);
    void *ctx;
};

static void wait_free(struct process_wait *wait)
{
    struct process *process = wait->process;

    list_remove(&process->waits, wait);
    process->n_waits--;
    loop_timer_clear(process->sbox->manager->loop, &wait->timer);
    sbox_release(process->sbox);
    mem_free(wait);
}

static void wait_tell(struct process_wait *wait)
{
    struct process_wait copy = *wait;
    struct process *process = wait->process;
    struct brig_err err = {0};

    process_pin(process);
    wait_free(wait);
    if (process->prog.state != PROGRAM_ENDED)
        (void)err_set(&err, BRIG_E_TIMEOUT, 0, "process %u still runs", process->prog.number);
    else if (!process->receipt)
        (void)err_nomem(&err);
    if (err.code)
        copy.done(copy.ctx, NULL, 0, &err);
    else
        copy.done(copy.ctx, process->receipt, process->receipt_len, NULL);
    process_unpin(process);
}

static void on_wait_timer(struct loop_timer *timer)
{
    wait_tell(timer->ctx);
}

int process_wait(struct process *process, uint64_t timeout_ms,
                 void (*done)(void *ctx, const char *receipt, size_t len, const struct brig_err *err), void *ctx,
                 struct process_wait **ret, struct brig_err *err)
{
    struct loop *loop = process->sbox->manager->loop;

    if (process->n_waits >= PROCESS_WAITS_MAX)
        return err_set(err, BRIG_E_LIMIT, 0, "process %u: %u requests wait for it already", process->prog.number,
                       process->n_waits);
    struct process_wait *wait = mem_zalloc(sizeof *wait);
    if (!wait)
        return err_nomem(err);
    *wait = (struct process_wait){.process = process, .timer = {.fn = on_wait_timer}, .done = done, .ctx = ctx};
    wait->timer.ctx = wait;
    if (process->prog.state == PROGRAM_ENDED || timeout_ms) {
        uint64_t wait_ns = process->prog.state == PROGRAM_ENDED ? 0
                           : timeout_ms < DURATION_MAX_MS       ? timeout_ms * NS_PER_MS
                                                                : DURATION_MAX_MS * NS_PER_MS;
        int r = loop_timer_set(loop, &wait->timer, loop_now_ns() + wait_ns, err);
        if (r < 0) {
            mem_free(wait);
            return r;
        }
    }
    list_push(&process->waits, wait);
    process->n_waits++;
    sbox_hold(process->sbox);
    *ret = wait;
    return 0;
}

void process_wait_cancel(struct process_wait *wait)
{
    wait_free(wait);
}

void waits_ended(struct process *process)
{
    process_pin(process);
    while (process->waits)
        wait_tell(process->waits);
    process_unpin(process);
}

void waits_free(struct process *process)
{
    while (process->waits)
        wait_free(process->waits);
}
