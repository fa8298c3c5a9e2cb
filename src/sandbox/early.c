/* SPDX-License-Identifier: Apache-2.0 */
/*
 * early.c: keeps the first output of a new process while its reader is still on the way. Between the answer to a start
 * and the client's attach, a program can write far more than a ring holds. So brigd attaches with the START itself, and
 * keeps what comes without giving it back: after a window (1 MiB per stream) the program is held by its pipe.
 *
 * The first reader that asks for everything takes the call over with the kept output. If none has come after EARLY_NS,
 * it is given up, and only the ring is left. There are at most EARLY_MAX at a time: past that a process starts without
 * it, as does a process whose caller chose the size of its ring.
 */
#include "sandbox/processes.h"

void early_drop(struct process *process)
{
    struct early *early = take_ptr(&process->early);

    if (!early)
        return;
    loop_timer_clear(process->sbox->manager->loop, &early->timer);
    if (early->call)
        call_drop(early->call);
    buf_done(&early->data[BRIG_STDOUT]);
    buf_done(&early->data[BRIG_STDERR]);
    process->sbox->manager->n_early--;
    mem_free(early);
}

/* ---- what comes ----------------------------------------------------------------------------------------- */

static bool direct(const struct early *early)
{
    return early->output && !early->replaying;
}

static void on_event(void *ctx, const uint8_t *data, size_t len)
{
    struct process *process = ctx;
    struct early *early = process->early;

    if (direct(early)) {
        output_event(early->output, data, len);
    } else if (len <= sizeof early->begin) {
        memcpy(early->begin, data, len);
        early->begin_len = len;
        early->begun = true;
    }
}

static void on_data(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct process *process = ctx;
    struct early *early = process->early;

    if (!direct(early) && buf_append(&early->data[stream], data, len) == 0)
        return;
    if (!early->output) {
        early_drop(process); /* no memory to be kind with */
        return;
    }
    early_flush(process); /* in order */
    if (process->early == early)
        output_data(early->output, stream, data, len);
}

static void on_reply(void *ctx, uint32_t errnum, uint32_t stage, const uint8_t *data, size_t len)
{
    struct process *process = ctx;
    struct early *early = process->early;
    struct output *output = early->output;

    early->call = NULL;
    if (output)
        output->call = NULL;
    if (direct(early)) {
        early->output = NULL;
        early_drop(process);
        output_reply(output, errnum, stage, data, len);
    } else {
        early->pending = true; /* the replay ends with it; or the timer with nothing */
    }
}

int early_open(struct process *process, struct brig_err *err)
{
    struct manager *manager = process->sbox->manager;
    const struct svc_proc_attach msg = {.proc = process->prog.number, .streams = 1u << BRIG_STDOUT | 1u << BRIG_STDERR};
    const struct call_events events = {.event = on_event, .data = on_data, .reply = on_reply, .ctx = process};
    uint8_t message[64];
    int n = svc_proc_attach_put(message, sizeof message, &msg);
    struct early *early = manager->n_early < EARLY_MAX && n > 0 ? mem_zalloc(sizeof *early) : NULL;

    if (!early)
        return 0; /* it starts without */
    early->data[1] = early->data[2] = BUF_INIT(SVC_WINDOW);
    int r = link_call(process->sbox->link, SVC_PROC_ATTACH, message, (size_t)n, &events, &early->call, err);
    if (r < 0) {
        mem_free(early);
        return r;
    }
    process->early = early;
    manager->n_early++;
    return 0;
}

/* ---- given up, or taken over ---------------------------------------------------------------------------- */

static void on_given_up(struct loop_timer *timer)
{
    early_drop(timer->ctx);
}

void early_arm(struct process *process)
{
    struct early *early = process->early;

    if (!early)
        return;
    early->timer = (struct loop_timer){.fn = on_given_up, .ctx = process};
    if (loop_timer_set(process->sbox->manager->loop, &early->timer, loop_now_ns() + EARLY_NS, NULL) < 0)
        early_drop(process);
}

/* One piece of what was kept; false: the reader has left meanwhile. */
static bool replay_piece(struct process *process, unsigned stream, size_t *at)
{
    struct early *early = process->early;
    size_t left = early->data[stream].len - *at, n = left < 65536 ? left : 65536;

    output_data(early->output, stream, (const uint8_t *)early->data[stream].data + *at, n);
    *at += n;
    return process->early == early;
}

void early_flush(struct process *process)
{
    struct early *early = process->early;
    struct output *output = early ? early->output : NULL;

    if (!output || !early->replaying)
        return;
    loop_timer_clear(process->sbox->manager->loop, &early->timer);
    process_pin(process);
    if (early->begun)
        output_event(output, early->begin, early->begin_len);
    for (unsigned stream = 1; stream <= 2 && process->early == early; stream++)
        for (size_t at = 0; process->early == early && at < early->data[stream].len;)
            if (!replay_piece(process, stream, &at))
                break;
    if (process->early == early) { /* else it was closed, and early_drop() has been there */
        early->replaying = false;
        buf_done(&early->data[1]);
        buf_done(&early->data[2]);
        if (early->pending || process->forgotten) {
            early->output = NULL;
            output->call = NULL;
            early_drop(process);
            output_reply(output, 0, 0, NULL, 0);
        }
    }
    process_unpin(process);
}

static void on_replay(struct loop_timer *timer)
{
    early_flush(timer->ctx);
}

bool early_adopt(struct output *output, unsigned streams, const uint64_t offset[3])
{
    struct process *process = output->process;
    struct early *early = process->early;

    if (!early || early->output || offset[1] != 0 || offset[2] != 0 ||
        streams != (1u << BRIG_STDOUT | 1u << BRIG_STDERR))
        return false;
    early->timer.fn = on_replay;
    if (loop_timer_set(process->sbox->manager->loop, &early->timer, loop_now_ns(), NULL) < 0)
        return false;
    early->output = output;
    early->replaying = true;
    output->call = early->call;
    return true;
}
