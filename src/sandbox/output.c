/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.c: readers of a process's output. The bytes are in brig-init's ring; each reader is one ATTACH call with its
 * own offsets, and what it has not consumed is not sent: a slow reader slows its program, not brigd's memory.
 *
 * A reader's end is the end of the process: the last byte delivered (the call is answered) and the receipt there, in
 * either order. With end() the reader is gone. The first reader of a new process gets what early.c has kept for it. A
 * reader of output_open_now() ends where the output was when it was opened; brig-init's list says how much that is.
 */
#include "base/list.h"
#include "sandbox/processes.h"

static void detach(struct output *output)
{
    struct process *process = output->process;

    if (process->early && process->early->output == output)
        early_drop(process); /* its call was ours */
    else if (output->call)
        call_drop(output->call);
    output->call = NULL;
    list_remove(&process->outputs, output);
    process->n_outputs--;
    sbox_release(process->sbox);
}

static void end(struct output *output)
{
    struct process *process = output->process;
    const char *receipt = process->prog.state == PROGRAM_ENDED ? process->receipt : NULL;

    process_pin(process);
    detach(output);
    output->events.end(output->events.ctx, receipt, receipt ? process->receipt_len : 0);
    mem_free(output);
    process_unpin(process);
}

static bool all_now(const struct output *output)
{
    return output->now && output->at[1] >= output->limit[1] && output->at[2] >= output->limit[2];
}

void output_event(void *ctx, const uint8_t *data, size_t len)
{
    struct output *output = ctx;
    struct svc_attached msg;

    if (svc_attached_parse(data, len, &msg) < 0)
        return;
    memcpy(output->at, msg.first, sizeof output->at);
    output->calling = &output;
    if (output->events.begin)
        output->events.begin(output->events.ctx, msg.first);
    if (!output)
        return;
    output->calling = NULL;
    if (all_now(output)) /* what was there then is not there any more */
        end(output);
}

void output_data(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct output *output = ctx;
    uint64_t at = output->at[stream];
    size_t give = len;

    if (output->now && at + len > output->limit[stream])
        give = at < output->limit[stream] ? (size_t)(output->limit[stream] - at) : 0;
    output->at[stream] += len;
    if (give < len)
        call_consumed(output->call, stream, len - give);
    /* The last bytes first: whoever is told of them may close, and is asked no more. */
    struct process *process = output->process;
    bool last = all_now(output);
    process_pin(process);
    output->calling = &output;
    if (give > 0)
        output->events.data(output->events.ctx, stream, at, data, give);
    if (output) {
        output->calling = NULL;
        if (last)
            end(output);
    }
    process_unpin(process);
}

void output_reply(void *ctx, uint32_t errnum UNUSED, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                  size_t len UNUSED)
{
    struct output *output = ctx;

    output->call = NULL;
    /* Whatever the answer: no more comes. When the process is still on its way out, its end tells. */
    if (output->process->prog.state == PROGRAM_ENDED || output->now)
        end(output);
}

static int attach(struct output *output, unsigned streams, const uint64_t offset[3], struct brig_err *err)
{
    const struct svc_proc_attach msg = {
        .proc = output->process->prog.number, .streams = streams, .offset = {0, offset[1], offset[2]}};
    const struct call_events calls = {.event = output_event, .data = output_data, .reply = output_reply, .ctx = output};
    uint8_t message[64];
    int n = svc_proc_attach_put(message, sizeof message, &msg);

    if (n < 0)
        return err_usage(err, "streams %#x: must be 1, 2 or both", streams);
    return link_call(output->process->sbox->link, SVC_PROC_ATTACH, message, (size_t)n, &calls, &output->call, err);
}

/* ---- how much there is now ------------------------------------------------------------------------------ */

static void on_info(void *ctx, const uint8_t *data, size_t len)
{
    struct output *output = ctx;
    struct svc_proc_info info;

    if (svc_proc_info_parse(data, len, &info) < 0 || info.proc != output->process->prog.number)
        return;
    output->limit[1] = info.output[1];
    output->limit[2] = info.output[2];
}

static void on_listed(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED, size_t len UNUSED)
{
    struct output *output = ctx;

    output->call = NULL;
    memcpy(output->at, output->from, sizeof output->at);
    for (unsigned i = 1; i <= 2; i++)
        if (!(output->streams & 1u << i))
            output->limit[i] = 0;
    if (errnum || all_now(output) || !output->process->sbox->link ||
        attach(output, output->streams, output->from, NULL) < 0)
        end(output);
}

static int list(struct output *output, struct brig_err *err)
{
    const struct call_events calls = {.event = on_info, .reply = on_listed, .ctx = output};

    return link_call(output->process->sbox->link, SVC_PROC_LIST, "", 0, &calls, &output->call, err);
}

/* ---- opening -------------------------------------------------------------------------------------------- */

static int open_reader(struct process *process, const struct output_events *events, struct output **ret,
                       struct brig_err *err)
{
    int r = sbox_usable(process->sbox, err);

    if (r < 0)
        return r;
    if (process->forgotten || process->prog.start_errnum)
        return err_set(err, BRIG_E_NOT_FOUND, 0, "process %u: its output is gone", process->prog.number);
    if (process->n_outputs >= PROCESS_WAITS_MAX)
        return err_set(err, BRIG_E_LIMIT, 0, "process %u: has %u readers already", process->prog.number,
                       process->n_outputs);
    struct output *output = mem_zalloc(sizeof *output);
    if (!output)
        return err_nomem(err);
    output->events = *events;
    output->process = process;
    list_push(&process->outputs, output);
    process->n_outputs++;
    sbox_hold(process->sbox);
    *ret = output;
    return 0;
}

int output_open(struct process *process, unsigned streams, const uint64_t offset[3], const struct output_events *events,
                struct output **ret, struct brig_err *err)
{
    struct output *output = NULL;
    int r = open_reader(process, events, &output, err);

    if (r < 0)
        return r;
    r = early_adopt(output, streams, offset) ? 0 : attach(output, streams, offset, err);
    if (r < 0) {
        output_close(output);
        return r;
    }
    *ret = output;
    return 0;
}

int output_open_now(struct process *process, unsigned streams, const uint64_t offset[3],
                    const struct output_events *events, struct output **ret, struct brig_err *err)
{
    struct output *output = NULL;
    int r;

    if (process->prog.state == PROGRAM_ENDED)
        return output_open(process, streams, offset, events, ret, err);
    r = open_reader(process, events, &output, err);
    if (r < 0)
        return r;
    output->now = true;
    output->streams = streams;
    memcpy(output->from, offset, sizeof output->from);
    r = list(output, err);
    if (r < 0) {
        output_close(output);
        return r;
    }
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
    if (output->calling)
        *output->calling = NULL;
    detach(output);
    mem_free(output);
}

/* The first that gets no more bytes. */
static struct output *next_done(struct process *process)
{
    for (struct output *output = process->outputs; output; output = output->next) {
        bool adopted = process->early && process->early->output == output;
        if (adopted && process->early->replaying)
            continue;                             /* what was kept for it comes first */
        if (process->forgotten && output->call) { /* nothing more comes from where it came */
            if (adopted)
                early_drop(process);
            else
                call_drop(output->call);
            output->call = NULL;
        }
        if (!output->call)
            return output;
    }
    return NULL;
}

void outputs_ended(struct process *process)
{
    struct output *output;

    process_pin(process);
    if (process->forgotten)
        early_flush(process);
    while ((output = next_done(process)) != NULL) /* from the start each time: whoever is told may close others */
        end(output);
    process_unpin(process);
}

void outputs_free(struct process *process)
{
    while (process->outputs) {
        struct output *output = process->outputs;
        detach(output);
        mem_free(output);
    }
}
