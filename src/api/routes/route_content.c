/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_content.c: bytes into and out of a sandbox: files with ranges, trees as tar. Streamed in both directions; what
 * waits here is one piece, and the side that is slower sets the pace.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "api/file_answers.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "http/gunzip.h"

#define CURSOR(buffer) ((struct svc_cursor){.at = (buffer), .end = (buffer) + sizeof(buffer)})
#define TAR_BYTES (UINT64_C(16) << 30)
#define TAR_MEMBERS 1000000u

/* ---- out of the sandbox ---------------------------------------------------------------------------------- */

struct download {
    struct request *rq;
    struct call *call;
    size_t owed;
    bool full, begun, tar, head_only, ranged;
    uint64_t from, length; /* of the range; length UINT64_MAX: to the end */
};

static void download_left(struct request *rq)
{
    struct download *down = rq->state;

    if (down->call)
        call_drop(down->call);
    mem_free(down);
    request_free(rq);
}

static size_t take_owed(struct download *down)
{
    size_t owed = down->owed;

    down->owed = 0;
    return owed;
}

static void download_drained(void *ctx, struct exchange *x UNUSED)
{
    struct download *down = ctx;

    down->full = false;
    if (down->call && down->owed > 0)
        call_consumed(down->call, 1, take_owed(down));
}

static void download_data(void *ctx, unsigned stream UNUSED, const uint8_t *data, size_t len)
{
    struct download *down = ctx;

    if (!down->begun && down->tar) {
        down->begun = true;
        exchange_begin(down->rq->x, 200, "application/x-tar", UINT64_MAX);
        exchange_on_drained(down->rq->x, download_drained, down);
    }
    down->owed += len;
    if (!exchange_write(down->rq->x, data, len))
        down->full = true;
    if (!down->full)
        call_consumed(down->call, 1, take_owed(down));
}

/* READ says first what it is: now the head of the answer is known. */
static void download_event(void *ctx, const uint8_t *data, size_t len)
{
    struct download *down = ctx;
    struct request *rq = down->rq;
    struct svc_reader in = {data, data + len, false};
    struct svc_entry entry = svc_get_entry(&in);
    char range[96];

    if (down->begun || svc_done(&in) < 0 || entry.type != SVC_FILE)
        return; /* its REPLY says ENXIO or EISDIR */
    uint64_t left = down->from < entry.size ? entry.size - down->from : 0;
    uint64_t length = down->length < left ? down->length : left;
    if (down->ranged && length == 0) {
        snprintf(range, sizeof range, "bytes */%llu", (unsigned long long)entry.size);
        exchange_add_field(rq->x, "Content-Range", range);
        exchange_reply(rq->x, 416, NULL, NULL, 0);
        rq->x = NULL;
        download_left(rq);
        return;
    }
    exchange_add_field(rq->x, "Accept-Ranges", "bytes");
    if (down->ranged) {
        snprintf(range, sizeof range, "bytes %llu-%llu/%llu", (unsigned long long)down->from,
                 (unsigned long long)(down->from + length - 1), (unsigned long long)entry.size);
        exchange_add_field(rq->x, "Content-Range", range);
    }
    down->begun = true;
    exchange_add_field(rq->x, "X-Content-Type-Options", "nosniff"); /* what a sandbox wrote is not a page of ours */
    exchange_begin(rq->x, down->ranged ? 206 : 200, "application/octet-stream", length);
    exchange_on_drained(rq->x, download_drained, down);
    if (down->head_only) {
        call_drop(down->call);
        mem_free(down);
        request_end(rq, true);
    }
}

static void download_reply(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                           size_t len UNUSED)
{
    struct download *down = ctx;
    struct request *rq = down->rq;
    struct brig_err err;

    down->call = NULL;
    rq->left = NULL;
    if (!down->begun) {
        mem_free(down);
        files_error(rq, errnum ? errnum : EISDIR, &err);
        request_fail(rq, &err);
        return;
    }
    mem_free(down);
    request_end(rq, errnum == 0); /* a short answer must not look like a whole one */
}

/* "bytes=0-99", "bytes=100-"; other forms are ignored, as RFC 9110 allows. */
static void read_range(struct download *down, const char *text)
{
    uint64_t from = 0, to = UINT64_MAX - 1;
    const char *second = text && str_starts(text, "bytes=") ? api_number(text + 6, '-', &from) : NULL;

    if (!second || (*second && !api_number(second, '\0', &to)) || to < from)
        return;
    down->ranged = true;
    down->from = from;
    down->length = *second ? to - from + 1 : UINT64_MAX;
}

static void download_start(struct download *down, enum svc_type type, const struct svc_cursor *out,
                           const uint8_t *start)
{
    struct request *rq = down->rq;
    const struct call_events events = {
        .event = down->tar ? NULL : download_event, .data = download_data, .reply = download_reply, .ctx = down};

    if (!files_call(rq, type, out, start, &events, &down->call))
        return mem_free(down);
    rq->state = down;
    rq->left = download_left;
    request_audit(rq, "file.read", sbox_id(rq->sbox), "ok", request_query(rq, "path"));
}

void route_file_get(struct request *rq)
{
    uint8_t buffer[FILE_OPEN_MAX];
    struct svc_cursor out = CURSOR(buffer);
    struct download *down = files_put_path(rq, &out, 0) ? request_alloc(rq, sizeof *down) : NULL;

    if (!down)
        return;
    *down = (struct download){
        .rq = rq, .length = UINT64_MAX, .head_only = strcmp(exchange_head(rq->x)->method, "HEAD") == 0};
    read_range(down, http_field(exchange_head(rq->x), "Range"));
    svc_put_u64(&out, down->from);
    svc_put_u64(&out, down->length == UINT64_MAX ? 0 : down->length);
    download_start(down, SVC_FILE_READ, &out, buffer);
}

void route_tar_get(struct request *rq)
{
    uint8_t buffer[FILE_OPEN_MAX];
    struct svc_cursor out = CURSOR(buffer);
    struct download *down = files_put_path(rq, &out, 0) ? request_alloc(rq, sizeof *down) : NULL;

    if (!down)
        return;
    *down = (struct download){.rq = rq, .length = UINT64_MAX, .tar = true};
    download_start(down, SVC_FILE_TAR_GET, &out, buffer);
}

/* ---- into the sandbox ------------------------------------------------------------------------------------ */

struct upload {
    struct request *rq;
    struct call *call;
    struct gunzip *gunzip; /* NULL: as it comes */
    struct buf waiting;    /* not yet taken by the call; at most one piece, or what it inflates to */
    uint64_t left;         /* of what the body may have */
    bool ended, eof_sent, tar;
    char entry[128]; /* of the archive, at which it was refused; cut off where it is too long: for people */
};

static void upload_free(struct upload *up)
{
    gunzip_destroy(up->gunzip);
    buf_done(&up->waiting);
    mem_free(up);
}

static void upload_left(struct request *rq)
{
    struct upload *up = rq->state;

    if (up->call)
        call_drop(up->call); /* an atomic write that was not finished leaves nothing */
    upload_free(up);
    request_free(rq);
}

static void upload_fail(struct upload *up, const struct brig_err *err)
{
    struct request *rq = up->rq;

    if (up->call)
        call_drop(up->call);
    upload_free(up);
    rq->left = NULL;
    request_fail(rq, err);
}

static void upload_push(struct upload *up)
{
    if (up->waiting.len > 0) {
        ssize_t n = call_write(up->call, up->waiting.data, up->waiting.len);
        if (n < 0)
            return; /* its REPLY tells */
        buf_consume(&up->waiting, (size_t)n);
        if (up->waiting.len > 0)
            return; /* upload_writable() */
    }
    if (!up->ended)
        return exchange_body_proceed(up->rq->x);
    if (!up->eof_sent) {
        up->eof_sent = true;
        (void)!call_eof(up->call);
    }
}

static void upload_writable(void *ctx)
{
    upload_push(ctx);
}

static void upload_data(void *ctx, struct exchange *x UNUSED, const char *data, size_t len)
{
    struct upload *up = ctx;
    struct brig_err err;
    int r = 0;

    if (len > up->left) {
        (void)err_set(&err, BRIG_E_TOO_LARGE, 0, "the body is larger than server.max_body allows");
        upload_fail(up, &err);
        return;
    }
    up->left -= len;
    /* The usual case, without a copy: nothing waits, and the call takes it all. */
    if (!up->gunzip && up->waiting.len == 0) {
        ssize_t n = call_write(up->call, data, len);
        if (n < 0)
            return;
        data += n;
        len -= (size_t)n;
    }
    r = up->gunzip                                           ? gunzip_add(up->gunzip, data, len, &up->waiting, &err)
        : len > 0 && buf_append(&up->waiting, data, len) < 0 ? err_nomem(&err)
                                                             : 0;
    if (r < 0)
        upload_fail(up, &err);
    else
        upload_push(up);
}

static void upload_end(void *ctx, struct exchange *x UNUSED)
{
    struct upload *up = ctx;
    struct brig_err err;

    up->ended = true;
    if (up->gunzip && gunzip_end(up->gunzip, &err) < 0)
        upload_fail(up, &err);
    else
        upload_push(up);
}

static void answer_upload(struct upload *up, const uint8_t *data, size_t len)
{
    struct request *rq = up->rq;
    struct svc_reader in = {data, data + len, false};
    AUTO_BUF struct buf out = BUF_INIT(64u << 10);
    struct json json = JSON_INIT(&out);

    if (up->tar) {
        json_object(&json);
        json_key_u64(&json, "members", svc_get_u64(&in));
        json_key_u64(&json, "bytes", svc_get_u64(&in));
        json_end(&json);
    } else {
        struct svc_entry entry = svc_get_entry(&in);
        files_name_entry(rq, &entry);
        files_entry_json(&json, &entry);
    }
    upload_free(up);
    request_json(rq, 200, &json);
}

/* A member's name comes before the REPLY that refuses it. */
static void upload_event(void *ctx, const uint8_t *data, size_t len)
{
    struct upload *up = ctx;
    struct svc_reader in = {data, data + len, false};
    struct svc_bytes name = svc_get_bytes(&in);

    if (up->tar && svc_done(&in) == 0)
        snprintf(up->entry, sizeof up->entry, "%.*s", (int)name.len, name.data);
}

static void upload_reply(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data, size_t len)
{
    struct upload *up = ctx;
    struct request *rq = up->rq;
    struct brig_err err;

    up->call = NULL;
    rq->left = NULL;
    request_audit(rq, "file.write", rq->sbox ? sbox_id(rq->sbox) : "", errnum ? "failed" : "ok",
                  request_query(rq, "path"));
    if (errnum == 0)
        return answer_upload(up, data, len);
    if (up->tar)
        files_tar_error(rq, errnum, up->entry, &err);
    else
        files_error(rq, errnum, &err);
    upload_free(up);
    request_fail(rq, &err);
}

/* Takes gunzip over; NULL: the body is not compressed. */
static void upload_start(struct request *rq, enum svc_type type, const struct svc_cursor *out, const uint8_t *start,
                         struct gunzip *gunzip)
{
    const uint64_t max = config_get(rq->api->config)->max_body;
    struct upload *up = request_alloc(rq, sizeof *up);
    uint64_t length = 0;
    struct brig_err err;

    if (!up)
        return gunzip_destroy(gunzip);
    *up = (struct upload){.rq = rq,
                          .gunzip = gunzip,
                          .waiting = BUF_INIT(GUNZIP_PIECE_MAX),
                          .left = max ? max : UINT64_MAX,
                          .tar = type == SVC_FILE_TAR_PUT};
    const struct call_events events = {
        .event = upload_event, .writable = upload_writable, .reply = upload_reply, .ctx = up};
    const struct body_events body = {upload_data, upload_end, up};
    if (exchange_body_known(rq->x, &length) && length > up->left) {
        upload_free(up);
        return request_refuse(rq, BRIG_E_TOO_LARGE, "the body has %llu bytes; server.max_body allows %llu",
                              (unsigned long long)length, (unsigned long long)max);
    }
    if (!files_call(rq, type, out, start, &events, &up->call))
        return upload_free(up);
    rq->state = up;
    rq->left = upload_left;
    if (exchange_read(rq->x, &body, &err) < 0)
        upload_fail(up, &err);
}

static bool read_mode(struct request *rq, uint32_t *ret)
{
    const char *text = request_query(rq, "mode");
    char *end = NULL;

    if (!text)
        return true;
    unsigned long mode = isdigit((unsigned char)text[0]) ? strtoul(text, &end, 8) : 1000000;
    if (mode > 0777 || !end || *end != '\0') {
        request_refuse(rq, BRIG_E_USAGE, "mode=%.32s: must be octal, such as 0644, without set-id bits", text);
        return false;
    }
    *ret = (uint32_t)mode;
    return true;
}

/* How to write, from the query; false: the refusal was sent. */
static bool read_how(struct request *rq, struct svc_file_write *how)
{
    bool append = false, parents = true, exclusive = false;

    if (!request_query_bool(rq, "append", &append) || !request_query_bool(rq, "parents", &parents) ||
        !request_query_bool(rq, "exclusive", &exclusive) ||
        !request_query_u64(rq, "offset", 0, INT64_MAX, &how->offset) || !read_mode(rq, &how->mode))
        return false;
    bool at = request_query(rq, "offset") != NULL;
    if (at && append)
        return request_refuse(rq, BRIG_E_USAGE, "offset and append: only one of them"), false;
    how->flags = (append ? SVC_WRITE_APPEND
                  : at   ? SVC_WRITE_AT
                         : SVC_WRITE_ATOMIC) |
                 (parents ? SVC_WRITE_PARENTS : 0) | (exclusive ? SVC_WRITE_EXCL : 0);
    return true;
}

void route_file_put(struct request *rq)
{
    struct svc_file_write how = {0};
    uint8_t buffer[FILE_OPEN_MAX];
    struct svc_cursor out = CURSOR(buffer);

    if (!read_how(rq, &how) || !files_put_path(rq, &out, 0))
        return;
    svc_put_u32(&out, how.flags);
    svc_put_u32(&out, how.mode);
    svc_put_u64(&out, how.offset);
    upload_start(rq, SVC_FILE_WRITE, &out, buffer, NULL);
}

void route_tar_put(struct request *rq)
{
    const char *type = http_field(exchange_head(rq->x), "Content-Type");
    bool gzip = type && (str_eq(type, "application/gzip") || str_eq(type, "application/x-gzip"));
    uint64_t bytes = TAR_BYTES, members = TAR_MEMBERS;
    uint8_t buffer[FILE_OPEN_MAX];
    struct svc_cursor out = CURSOR(buffer);
    struct gunzip *gunzip = NULL;
    struct brig_err err;

    if (type && !gzip && !str_eq(type, "application/x-tar") && !str_eq(type, "application/octet-stream"))
        return request_refuse(rq, BRIG_E_USAGE, "Content-Type %.64s: must be application/x-tar or application/gzip",
                              type);
    if (!request_query_u64(rq, "max_bytes", 1, UINT64_MAX - 1, &bytes) ||
        !request_query_u64(rq, "max_members", 1, TAR_MEMBERS, &members) || !files_put_path(rq, &out, 0))
        return;
    if (gzip && gunzip_create(&gunzip, &err) < 0)
        return request_fail(rq, &err);
    svc_put_u64(&out, bytes);
    svc_put_u64(&out, members);
    upload_start(rq, SVC_FILE_TAR_PUT, &out, buffer, gunzip);
}
