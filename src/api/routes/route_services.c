/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_services.c: the services of a sandbox: what they are doing, start, stop and restart, and their output. The
 * answer to a start waits until the service is up or has failed. A client that follows the output and does not read
 * loses some of it; the service never waits for a client.
 */
#include <stdio.h>

#include "api/api.h"
#include "base/mem.h"
#include "sandbox/services/services.h"

static void on_left(struct request *rq)
{
    if (rq->sbox)
        services_drop(rq->sbox, rq);
    request_free(rq);
}

void route_service_list(struct request *rq)
{
    struct brig_err err;

    rq->left = on_left;
    if (services_list(rq->sbox, request_result, rq, &err) < 0)
        request_fail(rq, &err);
}

static void control(struct request *rq, enum svc_unit_op op)
{
    struct brig_err err;

    rq->left = on_left;
    if (service_control(rq->sbox, &rq->caller, rq->arg[1], op, request_result, rq, &err) < 0)
        request_fail(rq, &err);
}

void route_service_start(struct request *rq)
{
    control(rq, SVC_UNIT_START);
}

void route_service_stop(struct request *rq)
{
    control(rq, SVC_UNIT_STOP);
}

void route_service_restart(struct request *rq)
{
    control(rq, SVC_UNIT_RESTART);
}

/* ---- output ------------------------------------------------------------------------------------------------ */

struct log_reader {
    struct request *rq;
    struct service_log *log;
    bool begun, full;
    size_t owed;
};

static void give_back(struct log_reader *reader)
{
    if (reader->owed > 0 && reader->log)
        service_log_consumed(reader->log, reader->owed);
    reader->owed = 0;
}

static void on_drained(void *ctx, struct exchange *x UNUSED)
{
    struct log_reader *reader = ctx;

    reader->full = false;
    give_back(reader);
}

static void on_begin(void *ctx, uint64_t first)
{
    struct log_reader *reader = ctx;
    struct exchange *x = reader->rq->x;
    char offset[32];

    if (reader->begun)
        return;
    reader->begun = true;
    snprintf(offset, sizeof offset, "%llu", (unsigned long long)first);
    exchange_add_field(x, "Brig-Offset", offset);
    exchange_add_field(x, "Cache-Control", "no-store");
    exchange_begin(x, 200, "application/octet-stream", UINT64_MAX);
    exchange_on_drained(x, on_drained, reader);
}

static void on_data(void *ctx, const uint8_t *data, size_t len)
{
    struct log_reader *reader = ctx;

    on_begin(ctx, 0); /* it has begun, unless the sandbox has its own ideas */
    reader->owed += len;
    if (!exchange_write(reader->rq->x, data, len))
        reader->full = true;
    if (!reader->full)
        give_back(reader);
}

static void on_end(void *ctx, const struct brig_err *err)
{
    struct log_reader *reader = ctx;
    struct request *rq = reader->rq;
    bool begun = reader->begun;

    mem_free(reader);
    if (!begun && err) {
        request_fail(rq, err);
        return;
    }
    if (!begun)
        exchange_begin(rq->x, 200, "application/octet-stream", UINT64_MAX);
    exchange_on_drained(rq->x, NULL, NULL);
    request_end(rq, true);
}

static void log_left(struct request *rq)
{
    struct log_reader *reader = rq->state;

    service_log_close(reader->log);
    mem_free(reader);
    request_free(rq);
}

void route_service_log(struct request *rq)
{
    const struct service_log_events events = {.begin = on_begin, .data = on_data, .end = on_end};
    uint64_t offset = 0;
    bool follow = false;
    struct brig_err err;

    if (!request_query_u64(rq, "offset", 0, UINT64_MAX - 1, &offset) || !request_query_bool(rq, "follow", &follow))
        return;
    struct log_reader *reader = request_alloc(rq, sizeof *reader);
    if (!reader)
        return;
    reader->rq = rq;
    struct service_log_events mine = events;
    mine.ctx = reader;
    if (service_log_open(rq->sbox, rq->arg[1], offset, follow, &mine, &reader->log, &err) < 0) {
        mem_free(reader);
        request_fail(rq, &err);
        return;
    }
    rq->state = reader;
    rq->left = log_left;
}
