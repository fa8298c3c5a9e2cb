/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_logs.c: GET /v1/sandboxes/{id}/logs: what the processes of a sandbox have written, as far as their rings still
 * have it: one line of JSON per piece, process after process.
 */
#include <string.h>

#include "api/api.h"
#include "base/err.h"
#include "base/mem.h"

struct logs {
    struct request *rq;
    struct process *process; /* being read */
    struct output *output;
    struct buf piece;
    size_t owed[3];
    bool full;
};

static void logs_free(struct logs *logs)
{
    if (logs->output)
        output_close(logs->output);
    buf_done(&logs->piece);
    mem_free(logs);
}

static void logs_left(struct request *rq)
{
    logs_free(rq->state);
    request_free(rq);
}

static void give_back(struct logs *logs)
{
    for (unsigned stream = 1; stream <= 2; stream++)
        if (logs->owed[stream] > 0 && logs->output && !logs->full) {
            output_consumed(logs->output, stream, logs->owed[stream]);
            logs->owed[stream] = 0;
        }
}

static void on_drained(void *ctx, struct exchange *x UNUSED)
{
    struct logs *logs = ctx;

    logs->full = false;
    give_back(logs);
}

static void on_data(void *ctx, unsigned stream, uint64_t offset, const uint8_t *data, size_t len)
{
    struct logs *logs = ctx;
    struct json json = JSON_INIT(&logs->piece);

    logs->piece.len = 0;
    json_object(&json);
    json_key_u64(&json, "process", process_number(logs->process));
    json_key_string(&json, "stream", stream == 1 ? "stdout" : "stderr");
    json_key_u64(&json, "offset", offset);
    api_put_bytes(&json, "data", "encoding", json_is_text(data, len), data, len);
    json_end(&json);
    logs->owed[stream] += len;
    if (json_finish(&json) == 0 && buf_append(&logs->piece, "\n", 1) == 0 &&
        !exchange_write(logs->rq->x, logs->piece.data, logs->piece.len))
        logs->full = true;
    give_back(logs);
}

static void next(struct logs *logs, struct process *process);

static void on_end(void *ctx, const char *receipt UNUSED, size_t len UNUSED)
{
    struct logs *logs = ctx;

    logs->output = NULL;
    memset(logs->owed, 0, sizeof logs->owed);
    next(logs, logs->rq->sbox ? process_each(logs->rq->sbox, logs->process) : NULL);
}

/* A running process has no end to wait for: its output can be followed by itself. */
static void next(struct logs *logs, struct process *process)
{
    static const uint64_t start[3];
    const struct output_events events = {NULL, on_data, on_end, logs};
    struct request *rq = logs->rq;

    for (; process; process = process_each(rq->sbox, process)) {
        logs->process = process;
        if (output_open_now(process, (1u << 1) | (1u << 2), start, &events, &logs->output, NULL) == 0)
            return;
    }
    logs_free(logs);
    request_end(rq, true);
}

void route_sandbox_logs(struct request *rq)
{
    struct logs *logs = request_alloc(rq, sizeof *logs);

    if (!logs)
        return;
    *logs = (struct logs){.rq = rq, .piece = BUF_INIT(1u << 20)};
    rq->state = logs;
    rq->left = logs_left;
    exchange_begin(rq->x, 200, "application/jsonl", UINT64_MAX);
    exchange_on_drained(rq->x, on_drained, logs);
    next(logs, process_each(rq->sbox, NULL));
}
