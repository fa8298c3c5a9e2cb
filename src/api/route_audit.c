/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_audit.c: GET /v1/audit: the lines of the log after a sequence number, as they are on disk. The socket's administrator
 * gets them all and can verify the chain; a key gets those of its organisation. Read on a worker: files may be large.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "audit/read.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

struct reading_log {
    struct job job;
    struct request *rq;
    int dir_fd;
    char org_id[64]; /* "": all */
    uint64_t after, limit;
    struct buf out;
    int error;
};

static bool take_line(void *ctx, uint64_t seq UNUSED, const char *org, const char *line, size_t len)
{
    struct reading_log *reading = ctx;

    if (reading->org_id[0] && !str_eq(org, reading->org_id))
        return true;
    if (buf_append(&reading->out, line, len) < 0 || buf_append(&reading->out, "\n", 1) < 0) {
        reading->error = -ENOMEM;
        return false;
    }
    return --reading->limit > 0;
}

static void work(struct job *job)
{
    struct reading_log *reading = (struct reading_log *)job;

    audit_settle(reading->rq->api->audit); /* what the caller did before it asks is there */
    int r = audit_read(reading->dir_fd, reading->after, take_line, reading);
    if (reading->error == 0)
        reading->error = r;
}

static void done(struct job *job)
{
    struct reading_log *reading = (struct reading_log *)job;
    struct request *rq = reading->rq;

    if (reading->error < 0)
        request_refuse(rq, BRIG_E_HOST, "read the audit log: %s", strerror(-reading->error));
    else
        request_text(rq, 200, "application/jsonl", reading->out.data, reading->out.len);
    buf_done(&reading->out);
    mem_free(reading);
}

void route_audit(struct request *rq)
{
    struct reading_log *reading = mem_zalloc(sizeof *reading);

    if (!reading) {
        request_refuse(rq, BRIG_E_NOMEM, "out of memory");
        return;
    }
    *reading = (struct reading_log){.job = {work, done, NULL}, .rq = rq, .dir_fd = rq->api->audit_dir_fd, .limit = 1000, .out = BUF_INIT(64u << 20)};
    if (!rq->caller.socket)
        memcpy(reading->org_id, rq->caller.org_id, sizeof reading->org_id);
    if (!request_query_u64(rq, "after", 0, UINT64_MAX - 1, &reading->after) || !request_query_u64(rq, "limit", 1, 100000, &reading->limit)) {
        mem_free(reading);
        return;
    }
    workers_add(rq->api->workers, &reading->job);
}
