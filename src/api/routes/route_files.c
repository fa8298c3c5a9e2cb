/* SPDX-License-Identifier: Apache-2.0 */
/* route_files.c: the file routes that answer with JSON: stat, list, mkdir, move, remove, watch. Content:
 * route_content.c. */
#include <string.h>
#include <sys/inotify.h>

#include "api/file_answers.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

#define CURSOR(buffer) ((struct svc_cursor){.at = (buffer), .end = (buffer) + sizeof(buffer)})
#define LIST_MAX 100000u

/* A client that leaves drops its call; every handler here has the call in rq->state. */
static void drop_call(struct request *rq)
{
    call_drop(rq->state);
    request_free(rq);
}

static void simple(struct request *rq, enum svc_type type, const struct svc_cursor *out, const uint8_t *start,
                   const struct call_events *events)
{
    struct call *call = NULL;

    if (!files_call(rq, type, out, start, events, &call))
        return;
    rq->state = call;
    rq->left = drop_call;
}

/* ---- one entry as the answer ----------------------------------------------------------------------------- */

static void reply_entry(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data, size_t len)
{
    struct request *rq = ctx;
    struct svc_reader in = {data, data + len, false};
    AUTO_BUF struct buf out = BUF_INIT(64u << 10);
    struct json json = JSON_INIT(&out);
    struct brig_err err;

    rq->left = NULL;
    struct svc_entry entry = errnum ? (struct svc_entry){0} : svc_get_entry(&in);
    if (errnum || svc_done(&in) < 0) {
        files_error(rq, errnum ? errnum : EIO, &err);
        request_fail(rq, &err);
        return;
    }
    files_name_entry(rq, &entry);
    files_entry_json(&json, &entry);
    request_json(rq, strcmp(rq->route->method, "POST") == 0 ? 201 : 200, &json);
}

static void reply_empty(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                        size_t len UNUSED)
{
    struct request *rq = ctx;
    struct brig_err err;

    rq->left = NULL;
    if (errnum == 0)
        return request_status(rq, 204);
    files_error(rq, errnum, &err);
    request_fail(rq, &err);
}

void route_file_stat(struct request *rq)
{
    const struct call_events events = {.reply = reply_entry, .ctx = rq};
    uint8_t buffer[FILE_OPEN_MAX];
    struct svc_cursor out = CURSOR(buffer);
    bool follow = true;

    if (request_query_bool(rq, "follow", &follow) && files_put_path(rq, &out, follow ? 0 : SVC_PATH_NOFOLLOW))
        simple(rq, SVC_FILE_STAT, &out, buffer, &events);
}

/* "0755", or the number 493 as JSON has no octals. */
static bool member_mode(struct request *rq, uint32_t *ret)
{
    const struct json_value *value = json_get(rq->json, "mode");

    if (!value)
        return true;
    if (value->type == JSON_NUMBER && value->integer && value->i64 >= 0 && value->i64 <= 0777) {
        *ret = (uint32_t)value->i64;
        return true;
    }
    char *end = NULL;
    unsigned long mode = value->type == JSON_STRING && value->len > 0 ? strtoul(value->string, &end, 8) : 1000000;
    if (mode > 0777 || !end || *end != '\0' || value->string[0] == '-' || value->string[0] == '+') {
        request_refuse(rq, BRIG_E_USAGE, "mode: must be octal text such as \"0755\", without set-id bits");
        return false;
    }
    *ret = (uint32_t)mode;
    return true;
}

void route_file_mkdir(struct request *rq)
{
    const struct call_events events = {.reply = reply_entry, .ctx = rq};
    uint8_t buffer[FILE_OPEN_MAX];
    struct svc_cursor out = CURSOR(buffer);
    uint32_t mode = 0755;
    bool parents = true;

    if (!api_only_members(rq, "path path_encoding mode parents") || !member_mode(rq, &mode) ||
        !api_bool(rq, "parents", &parents) || !files_put_member(rq, &out, "path", 0))
        return;
    svc_put_u32(&out, mode);
    svc_put_u32(&out, parents);
    request_audit(rq, "file.mkdir", sbox_id(rq->sbox), "ok", json_get(rq->json, "path")->string);
    simple(rq, SVC_FILE_MKDIR, &out, buffer, &events);
}

void route_file_move(struct request *rq)
{
    const struct call_events events = {.reply = reply_entry, .ctx = rq};
    uint8_t buffer[FILE_OPEN_MAX];
    struct svc_cursor out = CURSOR(buffer);
    bool replace = false;

    if (!api_only_members(rq, "from from_encoding to to_encoding replace") || !api_bool(rq, "replace", &replace) ||
        !files_put_member(rq, &out, "from", 0) || !files_put_bytes(rq, &out, "to"))
        return;
    svc_put_u32(&out, replace);
    request_audit(rq, "file.move", sbox_id(rq->sbox), "ok", json_get(rq->json, "from")->string);
    simple(rq, SVC_FILE_MOVE, &out, buffer, &events);
}

void route_file_delete(struct request *rq)
{
    const struct call_events events = {.reply = reply_empty, .ctx = rq};
    uint8_t buffer[FILE_OPEN_MAX];
    struct svc_cursor out = CURSOR(buffer);
    bool recursive = false;

    if (!request_query_bool(rq, "recursive", &recursive) || !files_put_path(rq, &out, SVC_PATH_NOFOLLOW))
        return;
    svc_put_u32(&out, recursive);
    request_audit(rq, "file.remove", sbox_id(rq->sbox), "ok", request_query(rq, "path"));
    simple(rq, SVC_FILE_REMOVE, &out, buffer, &events);
}

/* ---- list: streamed, as a directory may be large --------------------------------------------------------- */

struct listing {
    struct request *rq;
    struct call *call;
    struct buf piece;
    uint64_t n;
    bool begun;
};

static void listing_free(struct listing *listing)
{
    buf_done(&listing->piece);
    mem_free(listing);
}

static void listing_left(struct request *rq)
{
    struct listing *listing = rq->state;

    call_drop(listing->call);
    listing_free(listing);
    request_free(rq);
}

static void listing_begin(struct listing *listing)
{
    static const char head[] = "{\"entries\":[";

    if (listing->begun)
        return;
    listing->begun = true;
    exchange_begin(listing->rq->x, 200, "application/json", UINT64_MAX);
    exchange_write(listing->rq->x, head, sizeof head - 1);
}

/* One event holds as many entries as fitted into a frame. */
static void listing_event(void *ctx, const uint8_t *data, size_t len)
{
    struct listing *listing = ctx;
    struct svc_reader in = {data, data + len, false};

    listing_begin(listing);
    while (in.at < in.end && !in.bad) {
        struct svc_entry entry = svc_get_entry(&in);
        if (in.bad)
            break;
        struct json json = JSON_INIT(&listing->piece);
        listing->piece.len = 0;
        files_entry_json(&json, &entry);
        if (json_finish(&json) < 0)
            continue;
        if (listing->n++ > 0)
            exchange_write(listing->rq->x, ",", 1);
        exchange_write(listing->rq->x, listing->piece.data, listing->piece.len);
    }
}

static void listing_reply(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data, size_t len)
{
    struct listing *listing = ctx;
    struct request *rq = listing->rq;
    struct svc_reader in = {data, data + len, false};
    struct brig_err err;

    rq->left = NULL;
    if (errnum && !listing->begun) {
        listing_free(listing);
        files_error(rq, errnum, &err);
        request_fail(rq, &err);
        return;
    }
    listing_begin(listing);
    uint32_t more = errnum ? 1 : svc_get_u32(&in);
    const char *tail = more ? "],\"truncated\":true}" : "],\"truncated\":false}";
    exchange_write(rq->x, tail, strlen(tail));
    listing_free(listing);
    request_end(rq, true);
}

void route_file_list(struct request *rq)
{
    uint8_t buffer[FILE_OPEN_MAX];
    struct svc_cursor out = CURSOR(buffer);
    uint64_t depth = 1, limit = 10000;

    if (!request_query_u64(rq, "depth", 1, 1000, &depth) || !request_query_u64(rq, "limit", 1, LIST_MAX, &limit) ||
        !files_put_path(rq, &out, 0))
        return;
    svc_put_u32(&out, (uint32_t)depth);
    svc_put_u32(&out, (uint32_t)limit);
    struct listing *listing = request_alloc(rq, sizeof *listing);
    if (!listing)
        return;
    *listing = (struct listing){.rq = rq, .piece = BUF_INIT(64u << 10)};
    const struct call_events events = {.event = listing_event, .reply = listing_reply, .ctx = listing};
    if (!files_call(rq, SVC_FILE_LIST, &out, buffer, &events, &listing->call))
        return listing_free(listing);
    rq->state = listing;
    rq->left = listing_left;
}

/* ---- watch ----------------------------------------------------------------------------------------------- */

struct watching {
    struct request *rq;
    struct call *call;
    struct buf piece;
    bool begun;
};

static void watching_left(struct request *rq)
{
    struct watching *watching = rq->state;

    if (watching->call)
        call_drop(watching->call);
    buf_done(&watching->piece);
    mem_free(watching);
    request_free(rq);
}

static const char *change_name(uint32_t mask)
{
    if (mask & IN_Q_OVERFLOW)
        return "overflow";
    if (mask & IN_CREATE)
        return "create";
    if (mask & (IN_DELETE | IN_DELETE_SELF))
        return "remove";
    if (mask & (IN_MOVED_FROM | IN_MOVED_TO | IN_MOVE_SELF))
        return "move";
    return mask & IN_ATTRIB ? "attributes" : "modify";
}

static void put_change(struct json *json, const struct svc_file_change *change)
{
    json_object(json);
    json_key_string(json, "type", change_name(change->mask));
    api_put_bytes(json, "path", "path_encoding", json_utf8_valid(change->path.data, change->path.len),
                  change->path.data, change->path.len);
    json_key_bool(json, "directory", change->mask & IN_ISDIR);
    if (change->cookie) {
        json_key_u64(json, "cookie", change->cookie);
        json_key_string(json, "moved", change->mask & IN_MOVED_FROM ? "from" : "to");
    }
    json_end(json);
}

static void watching_event(void *ctx, const uint8_t *data, size_t len)
{
    struct watching *watching = ctx;
    struct svc_reader in = {data, data + len, false};
    struct exchange *x = watching->rq->x;

    if (!watching->begun) { /* the first, empty one: it is armed */
        watching->begun = true;
        exchange_begin(x, 200, "text/event-stream", UINT64_MAX);
        exchange_write(x, ": armed\n\n", 9);
        return;
    }
    struct svc_file_change change = {.mask = svc_get_u32(&in), .cookie = svc_get_u32(&in), .path = svc_get_bytes(&in)};
    struct json json = JSON_INIT(&watching->piece);
    watching->piece.len = 0;
    put_change(&json, &change);
    if (svc_done(&in) < 0 || json_finish(&json) < 0)
        return;
    if (exchange_sse(x, change_name(change.mask), NULL, watching->piece.data, watching->piece.len))
        return;
    /* A client that does not read its events: it would have to start over anyway. */
    struct request *rq = watching->rq;
    exchange_on_gone(x, NULL, NULL);
    exchange_abort(take_ptr(&rq->x));
    watching_left(rq);
}

static void watching_reply(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                           size_t len UNUSED)
{
    struct watching *watching = ctx;
    struct request *rq = watching->rq;
    struct brig_err err;

    watching->call = NULL;
    if (watching->begun) {
        exchange_on_gone(rq->x, NULL, NULL);
        exchange_end(take_ptr(&rq->x));
        watching_left(rq);
        return;
    }
    files_error(rq, errnum ? errnum : EIO, &err);
    buf_done(&watching->piece);
    mem_free(watching);
    rq->left = NULL;
    request_fail(rq, &err);
}

void route_file_watch(struct request *rq)
{
    uint8_t buffer[FILE_OPEN_MAX];
    struct svc_cursor out = CURSOR(buffer);
    bool recursive = false;

    if (!request_query_bool(rq, "recursive", &recursive) || !files_put_path(rq, &out, 0))
        return;
    svc_put_u32(&out, recursive);
    struct watching *watching = request_alloc(rq, sizeof *watching);
    if (!watching)
        return;
    *watching = (struct watching){.rq = rq, .piece = BUF_INIT(64u << 10)};
    const struct call_events events = {.event = watching_event, .reply = watching_reply, .ctx = watching};
    if (!files_call(rq, SVC_FILE_WATCH, &out, buffer, &events, &watching->call))
        return mem_free(watching);
    rq->state = watching;
    rq->left = watching_left;
}
