/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.c: readers of a process's output. The bytes are in brig-init's ring; each reader is one ATTACH call with its own
 * offsets, and what it has not consumed is not sent: a slow reader slows its program, not brigd's memory.
 *
 * A reader's end is the end of the process: the last byte delivered (the call is answered) and the receipt there, in either
 * order. Afterwards the reader has no process any more and only waits for output_close().
 */
#include "sandbox/processes.h"

struct output {
    struct process *process; /* NULL: it has had its end */
    struct output *next, *prev;
    struct call *call; /* NULL: all delivered */
    struct output_events events;
    uint64_t at[3];
};

static void detach(struct output *output)
{
    struct process *process = output->process;

    if (output->call)
        call_drop(take_ptr(&output->call));
    if (!process)
        return;
    if (output->prev)
        output->prev->next = output->next;
    else
        process->outputs = output->next;
    if (output->next)
        output->next->prev = output->prev;
    process->n_outputs--;
    output->process = NULL;
    sbox_release(process->sbox);
}

static void end(struct output *output)
{
    struct process *process = output->process;

    process_pin(process);
    detach(output);
    /* output may be freed in there */
    output->events.end(output->events.ctx, process->receipt, process->receipt ? process->receipt_len : 0);
    process_unpin(process);
}

static void on_event(void *ctx, const uint8_t *data, size_t len)
{
    struct output *output = ctx;
    struct svc_attached msg;

    if (svc_attached_parse(data, len, &msg) < 0)
        return;
    memcpy(output->at, msg.first, sizeof output->at);
    if (output->events.begin)
        output->events.begin(output->events.ctx, msg.first);
}

static void on_data(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct output *output = ctx;
    uint64_t at = output->at[stream];

    output->at[stream] += len;
    output->events.data(output->events.ctx, stream, at, data, len);
}

static void on_reply(void *ctx, uint32_t errnum UNUSED, uint32_t stage UNUSED, const uint8_t *data UNUSED, size_t len UNUSED)
{
    struct output *output = ctx;

    output->call = NULL;
    /* Whatever the answer: no more comes. When the process is still on its way out, its end tells. */
    if (output->process->state == PROCESS_ENDED)
        end(output);
}

int output_open(struct process *process, unsigned streams, const uint64_t offset[3], const struct output_events *events, struct output **ret,
                struct brig_err *err)
{
    struct svc_proc_attach msg = {.proc = process->number, .streams = streams & (1u << BRIG_STDOUT | 1u << BRIG_STDERR)};
    uint8_t message[64];
    int r = sbox_usable(process->sbox, err);

    if (r < 0)
        return r;
    if (process->forgotten)
        return err_set(err, BRIG_E_NOT_FOUND, 0, "process %u: its output is gone", process->number);
    if (process->n_outputs >= PROCESS_WAITS_MAX)
        return err_set(err, BRIG_E_LIMIT, 0, "process %u: has %u readers already", process->number, process->n_outputs);
    msg.offset[1] = offset[1];
    msg.offset[2] = offset[2];
    int n = svc_proc_attach_put(message, sizeof message, &msg);
    if (n < 0 || !msg.streams)
        return err_usage(err, "streams %#x: must be 1, 2 or both", streams);
    struct output *output = mem_zalloc(sizeof *output);
    if (!output)
        return err_nomem(err);
    const struct call_events calls = {.event = on_event, .data = on_data, .reply = on_reply, .ctx = output};
    output->events = *events;
    r = link_call(process->sbox->link, SVC_PROC_ATTACH, message, (size_t)n, &calls, &output->call, err);
    if (r < 0) {
        mem_free(output);
        return r;
    }
    output->process = process;
    output->next = process->outputs;
    if (output->next)
        output->next->prev = output;
    process->outputs = output;
    process->n_outputs++;
    sbox_hold(process->sbox);
    *ret = output;
    return 0;
}

void output_consumed(struct output *output, unsigned stream, size_t len)
{
    if (output->call)
        call_consumed(output->call, stream, len);
}

void output_close(struct output *output)
{
    detach(output);
    mem_free(output);
}

/* The first that gets no more bytes. */
static struct output *next_done(struct process *process)
{
    for (struct output *output = process->outputs; output; output = output->next) {
        if (process->forgotten && output->call)
            call_drop(take_ptr(&output->call)); /* nothing more comes from where it came */
        if (!output->call)
            return output;
    }
    return NULL;
}

void outputs_ended(struct process *process)
{
    struct output *output;

    process_pin(process);
    while ((output = next_done(process)) != NULL) /* from the start each time: whoever is told may close others */
        end(output);
    process_unpin(process);
}

void outputs_free(struct process *process)
{
    while (process->outputs)
        detach(process->outputs);
}
