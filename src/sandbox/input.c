/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input.c: writers to a process's stdin. They share one INPUT call per process. A writer that leaves without closing
 * stdin must not take back bytes that are on their way, so the call lives as long as the process reads. The end of
 * stdin is sent once for all.
 */
#include "base/list.h"
#include "sandbox/processes.h"

struct input {
    struct process *process;
    struct input *next, *prev;
    struct input_events events;
    bool wants; /* a write was cut short */
};

static void detach(struct input *input)
{
    struct process *process = input->process;

    list_remove(&process->inputs, input);
    process->n_inputs--;
    sbox_release(process->sbox);
}

void inputs_ended(struct process *process, int errnum)
{
    process_pin(process);
    process->input_over = true;
    while (process->inputs) {
        struct input *input = process->inputs;
        detach(input);
        if (input->events.ended)
            input->events.ended(input->events.ctx, errnum);
        mem_free(input);
    }
    process_unpin(process);
}

void inputs_free(struct process *process)
{
    while (process->inputs) {
        struct input *input = process->inputs;
        detach(input);
        mem_free(input);
    }
}

void input_done(struct process *process)
{
    kept_drop(process->sbox->manager, process->sbox->org_id, &process->input);
}

/* process_run(): goes on with what was not taken, and then says that it was all. */
static void feed_rest(struct process *process)
{
    while (process->input_at < process->input.len) {
        ssize_t n =
            call_write(process->feed, process->input.data + process->input_at, process->input.len - process->input_at);
        if (n < 0)
            break;
        process->input_at += (size_t)n;
        if (process->input_at < process->input.len)
            return; /* writable() follows */
    }
    input_done(process);
    process->input_at = 0;
    if (!process->input_eof) {
        process->input_eof = true;
        (void)!call_eof(process->feed);
    }
}

static void on_writable(void *ctx)
{
    struct process *process = ctx;

    process_pin(process);
    if (process->input.data)
        feed_rest(process);
    for (;;) {
        struct input *input = process->inputs;
        while (input && !input->wants)
            input = input->next;
        if (!input || !process->feed)
            break;
        input->wants = false;
        process->input_short = false;
        if (input->events.writable)
            input->events.writable(input->events.ctx); /* it may close itself or others */
        if (process->input_short)
            break; /* no room again: link says when there is */
    }
    process_unpin(process);
}

static void on_reply(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED, size_t len UNUSED)
{
    struct process *process = ctx;

    process->feed = NULL;
    input_done(process);
    inputs_ended(process, (int)errnum);
}

static int open_call(struct process *process, struct brig_err *err)
{
    const struct call_events events = {.writable = on_writable, .reply = on_reply, .ctx = process};
    uint8_t message[4];
    struct svc_cursor out = {message, message + sizeof message, false};

    if (process->feed)
        return 0;
    svc_put_u32(&out, process->prog.number);
    return link_call(process->sbox->link, SVC_PROC_INPUT, message, sizeof message, &events, &process->feed, err);
}

int input_feed(struct process *process, const void *data, size_t len, struct brig_err *err)
{
    int r = open_call(process, err);

    if (r < 0)
        return r;
    ssize_t n = call_write(process->feed, data, len);
    if (n < 0)
        return err_set(err, BRIG_E_GONE, (int)-n, "stdin");
    process->input = BUF_INIT(SIZE_MAX / 2);
    if ((size_t)n < len && !kept_add(process->sbox->manager, process->sbox->org_id, &process->input,
                                     (const uint8_t *)data + n, len - (size_t)n))
        return err_set(err, BRIG_E_LIMIT, 0, "stdin: the organisation's commands keep their share of brigd's memory");
    if (!process->input.data) {
        process->input_eof = true;
        return call_eof(process->feed) < 0 ? err_set(err, BRIG_E_GONE, 0, "stdin") : 0;
    }
    return 0;
}

int input_open(struct process *process, const struct input_events *events, struct input **ret, struct brig_err *err)
{
    int r = sbox_usable(process->sbox, err);

    if (r < 0)
        return r;
    if (!process_running(process))
        return err_set(err, BRIG_E_CONFLICT, 0, "process %u has ended", process->prog.number);
    if (!process->stdin_open)
        return err_set(err, BRIG_E_CONFLICT, 0, "process %u: was started without stdin_open", process->prog.number);
    if (process->input_eof || process->input_over || process->is_run)
        return err_set(err, BRIG_E_CONFLICT, 0, "process %u: its stdin is closed", process->prog.number);
    if (process->n_inputs >= PROCESS_WAITS_MAX)
        return err_set(err, BRIG_E_LIMIT, 0, "process %u: has %u writers already", process->prog.number,
                       process->n_inputs);
    struct input *input = mem_zalloc(sizeof *input);
    if (!input)
        return err_nomem(err);
    r = open_call(process, err);
    if (r < 0) {
        mem_free(input);
        return r;
    }
    input->process = process;
    input->events = *events;
    list_push(&process->inputs, input);
    process->n_inputs++;
    sbox_hold(process->sbox);
    *ret = input;
    return 0;
}

ssize_t input_write(struct input *input, const void *data, size_t len)
{
    struct process *process = input->process;

    if (!process->feed || process->input_eof)
        return -EPIPE;
    ssize_t n = call_write(process->feed, data, len);
    if (n >= 0 && (size_t)n < len)
        input->wants = process->input_short = true;
    return n;
}

void input_close(struct input *input, bool eof)
{
    struct process *process = input->process;

    if (eof && process->feed && !process->input_eof) {
        process->input_eof = true;
        (void)!call_eof(process->feed);
    }
    detach(input);
    mem_free(input);
}
