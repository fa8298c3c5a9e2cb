/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_template_export.c: sends a template as the archive of an image. The answer begins when its length is known, so
 * whatever fails before is an ordinary answer with its status; the client's own pace is that of the archive.
 */
#include <string.h>

#include "api/api.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "template/export.h"

struct sending {
    struct request *rq;
    struct export *export;
    bool begun, full;
    char name[TEMPLATE_NAME_MAX];
};

static void sending_left(struct request *rq)
{
    struct sending *sending = rq->state;

    if (sending->export)
        export_cancel(sending->export);
    mem_free(sending);
    request_free(rq);
}

static void on_drained(void *ctx, struct exchange *x UNUSED)
{
    struct sending *sending = ctx;

    if (!sending->full)
        return;
    sending->full = false;
    if (sending->export)
        export_next(sending->export);
}

static void on_ready(void *ctx, uint64_t length)
{
    struct sending *sending = ctx;

    sending->begun = true;
    exchange_begin(sending->rq->x, 200, "application/x-tar", length);
    exchange_on_drained(sending->rq->x, on_drained, sending);
    export_next(sending->export);
}

static void on_data(void *ctx, const void *data, size_t len)
{
    struct sending *sending = ctx;

    sending->full = !exchange_write(sending->rq->x, data, len);
    if (!sending->full)
        export_next(sending->export);
}

static void on_done(void *ctx, const struct brig_err *err)
{
    struct sending *sending = ctx;
    struct request *rq = sending->rq;
    const bool begun = sending->begun;

    rq->left = NULL;
    request_audit_sync(rq, "template.export", NULL, sending->name, err ? "failed" : "ok", err ? err->message : "");
    mem_free(sending);
    if (begun)
        request_end(rq, !err);
    else
        request_fail(rq, err);
}

void route_template_export(struct request *rq)
{
    const char *format = request_query(rq, "format");
    struct brig_err err = {0};

    if (format && !str_eq(format, "docker") && !str_eq(format, "oci")) {
        request_refuse(rq, BRIG_E_USAGE, "format: must be docker or oci");
        return;
    }
    struct sending *sending = request_alloc(rq, sizeof *sending);
    if (!sending)
        return;
    *sending = (struct sending){.rq = rq};
    str_cut(sending->name, sizeof sending->name, rq->arg[0]);
    const struct export_events events = {.ready = on_ready, .data = on_data, .done = on_done, .ctx = sending};
    if (library_export(rq->api->library, &rq->caller, rq->arg[0], !format || str_eq(format, "docker"), &events,
                       &sending->export, &err) < 0) {
        request_audit_sync(rq, "template.export", NULL, sending->name, "failed", err.message);
        mem_free(sending);
        request_fail(rq, &err);
        return;
    }
    rq->state = sending;
    rq->left = sending_left;
}
