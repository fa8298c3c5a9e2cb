/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_audit.c: GET /v1/audit: the lines of the log after a sequence number, as they are on disk. The socket's
 * administrator gets them all and can verify the chain; a key gets those of its organisation, without their numbers and
 * hashes in the chain, which tell how much others do. `after` is a line's number (on the socket) or its time. Read on a
 * worker: files may be large.
 */
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
    char after_time[48]; /* "": by number */
    struct buf out;
    int error;
};

/* A line is {"seq":N,"time":"...",...,"prev":"<64 digits>"}: audit.h */
#define TIME_MEMBER "\"time\":\""
#define PREV_LEN (sizeof ",\"prev\":\"\"}" - 1 + 64)

static int add_line(struct reading_log *reading, const char *line, size_t len)
{
    if (!reading->org_id[0])
        return buf_append(&reading->out, line, len);
    const char *time = memmem(line, len, TIME_MEMBER, sizeof TIME_MEMBER - 1);
    if (!time || len < (size_t)(time - line) + PREV_LEN)
        return -EBADMSG;
    int r = buf_append(&reading->out, "{", 1);
    if (r == 0)
        r = buf_append(&reading->out, time, len - PREV_LEN - (size_t)(time - line));
    return r == 0 ? buf_append(&reading->out, "}", 1) : r;
}

static bool is_later(const struct reading_log *reading, const char *line, size_t len)
{
    const char *time = memmem(line, len, TIME_MEMBER, sizeof TIME_MEMBER - 1);

    if (!reading->after_time[0] || !time)
        return true;
    time += sizeof TIME_MEMBER - 1;
    const size_t left = len - (size_t)(time - line), digits = strlen(reading->after_time);
    return memcmp(time, reading->after_time, digits < left ? digits : left) > 0;
}

static bool take_line(void *ctx, uint64_t seq UNUSED, const char *org, const char *line, size_t len)
{
    struct reading_log *reading = ctx;

    if ((reading->org_id[0] && !str_eq(org, reading->org_id)) || !is_later(reading, line, len))
        return true;
    int r = add_line(reading, line, len);
    if (r == 0)
        r = buf_append(&reading->out, "\n", 1);
    reading->error = r;
    return r == 0 && --reading->limit > 0;
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

/* As the log writes it: 2024-02-29T12:00:00.123456789Z. */
static bool read_time(const char *after, char out[48])
{
    static const char shape[] = "0000-00-00T00:00:00.000000000Z";
    bool ok = after && strlen(after) == sizeof shape - 1;

    for (size_t i = 0; ok && shape[i]; i++)
        ok = shape[i] == '0' ? after[i] >= '0' && after[i] <= '9' : after[i] == shape[i];
    if (ok)
        memcpy(out, after, sizeof shape);
    return ok;
}

void route_audit(struct request *rq)
{
    const char *text = request_query(rq, "after");
    char after_time[48] = "";
    const bool by_time = read_time(text, after_time);
    uint64_t after = 0, limit = 1000;

    if (!by_time && !rq->caller.socket && text && !str_eq(text, "0"))
        return request_refuse(rq, BRIG_E_USAGE,
                              "after: must be the time of a line, such as 2024-02-29T12:00:00.000000000Z");
    if ((!by_time && !request_query_u64(rq, "after", 0, UINT64_MAX - 1, &after)) ||
        !request_query_u64(rq, "limit", 1, 100000, &limit))
        return;
    struct reading_log *reading = request_alloc(rq, sizeof *reading);
    if (!reading)
        return;
    *reading = (struct reading_log){.job = {.work = work, .done = done},
                                    .rq = rq,
                                    .dir_fd = rq->api->audit_dir_fd,
                                    .after = after,
                                    .limit = limit,
                                    .out = BUF_INIT(64u << 20)};
    str_assign(reading->after_time, after_time);
    if (!rq->caller.socket)
        str_assign(reading->org_id, rq->caller.org_id);
    if (workers_add_for(rq->api->workers, workers_owner(reading->org_id), &reading->job) == 0)
        return;
    mem_free(reading);
    request_refuse(rq, BRIG_E_LIMIT, "%u questions of the organisation wait for the log already", WORKERS_WAITING);
}
