/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_response.c: reads an answer. The head stays where it was parsed, so that its fields can be asked for while the
 * body is read in pieces. A body that ends early is an error, never a short file.
 */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "client/internal.h"

#define ERROR_MAX ((size_t)64 << 10)

static int malformed(struct client *client, struct brig_err *err, const struct brig_err *why)
{
    client_disconnect(client);
    return err_set(err, BRIG_E_GONE, 0, "%.80s: not an answer of brig: %.100s", client->where,
                   why->message[0] ? why->message : "malformed");
}

static int read_head(struct client *client, const char *method, struct brig_err *err)
{
    struct brig_err why = {0};
    size_t scanned = 0;

    for (;;) {
        int n = client->in.len > client->in_at
                    ? http_response_parse(client->in.data + client->in_at, client->in.len - client->in_at, method, NULL,
                                          &scanned, &client->head, &why)
                    : 0;
        if (n < 0)
            return malformed(client, err, &why);
        if (n > 0) {
            client->in_at += (size_t)n;
            return 0;
        }
        /* Reserved in one go: the head's pointers must not move. */
        if (buf_reserve(&client->in, client->in.max - client->in.len) < 0)
            return err_nomem(err);
        if (client->in.len == client->in.max)
            return malformed(client, err, &(struct brig_err){.message = "its head is too large"});
        ssize_t got = wire_receive(client, client->in.data + client->in.len, client->in.max - client->in.len, err);
        if (got == 0)
            got =
                err_set(err, BRIG_E_GONE, ECONNRESET, "%s: it closed the connection without an answer", client->where);
        if (got < 0)
            return (int)got;
        buf_commit(&client->in, (size_t)got);
    }
}

int response_head(struct client *client, const char *method, struct brig_err *err)
{
    do {
        int r = read_head(client, method, err);
        if (r < 0)
            return r;
    } while (client->head.status / 100 == 1 && client->head.status != 101);
    client->status = client->head.status;
    return 0;
}

/* ---- bodies --------------------------------------------------------------------------------------- */

typedef int take_fn(void *ctx, const void *data, size_t len, struct brig_err *err);

/* Gives the content of one piece of the stream to take. */
static int take_piece(struct http_body_reader *reader, const char *data, size_t len, size_t *ret_used, bool *ret_end,
                      take_fn *take, void *ctx, struct brig_err *err)
{
    size_t used = 0;

    while (used < len && !*ret_end) {
        const char *at = NULL;
        size_t n = 0;
        int took = http_body_take(reader, data + used, len - used, &at, &n, ret_end);
        if (took < 0)
            return err_set(err, BRIG_E_GONE, EPROTO, "the body of the answer");
        used += (size_t)took;
        int r = n > 0 ? take(ctx, at, n, err) : 0;
        if (r < 0)
            return r;
        if (took == 0 && n == 0 && !*ret_end)
            return err_set(err, BRIG_E_GONE, EPROTO, "the body of the answer");
    }
    *ret_used = used;
    return 0;
}

static int read_body(struct client *client, take_fn *take, void *ctx, struct brig_err *err)
{
    struct http_body_reader reader;
    bool end = client->head.body == HTTP_BODY_NONE ||
               (client->head.body == HTTP_BODY_LENGTH && client->head.content_length == 0);
    size_t used = 0;

    http_body_init(&reader, &client->head);
    if (!end && client->in_at < client->in.len) {
        int r = take_piece(&reader, client->in.data + client->in_at, client->in.len - client->in_at, &used, &end, take,
                           ctx, err);
        if (r < 0)
            return r;
        client->in_at += used;
    }
    while (!end) {
        ssize_t n = wire_receive(client, client->piece, CLIENT_PIECE, err);
        if (n == 0 && client->head.body == HTTP_BODY_UNTIL_CLOSE)
            break;
        if (n == 0)
            return err_set(err, BRIG_E_GONE, ECONNRESET, "%s: the answer was cut off", client->where);
        int r = n < 0 ? (int)n : take_piece(&reader, client->piece, (size_t)n, &used, &end, take, ctx, err);
        if (r < 0)
            return r;
        if (used < (size_t)n) /* nobody asked for more */
            client->head.keep_alive = false;
    }
    if (client->in_at < client->in.len || client->head.body == HTTP_BODY_UNTIL_CLOSE)
        client->head.keep_alive = false;
    return 0;
}

static int keep(void *ctx, const void *data, size_t len, struct brig_err *err)
{
    struct client *client = ctx;
    int r = buf_append(&client->reply, data, len);

    if (r == -EMSGSIZE)
        return err_set(err, BRIG_E_TOO_LARGE, EMSGSIZE, "the answer");
    return r < 0 ? err_nomem(err) : 0;
}

int response_body(struct client *client, const struct client_request *request, struct brig_err *err)
{
    int r = request->head ? request->head(request->ctx, client, err) : 0;
    if (r < 0)
        return r;
    client->reply.len = 0;
    client->reply.max = request->max_reply > 0 ? request->max_reply : (size_t)64 << 20;
    return request->data ? read_body(client, request->data, request->ctx, err) : read_body(client, keep, client, err);
}

/* ---- refusals ------------------------------------------------------------------------------------- */

static const struct {
    unsigned status;
    enum brig_code code;
    int errnum;
} codes[] = {
    {400, BRIG_E_USAGE, EINVAL},     {401, BRIG_E_UNAUTHENTICATED, EACCES}, {403, BRIG_E_FORBIDDEN, EPERM},
    {404, BRIG_E_NOT_FOUND, ENOENT}, {408, BRIG_E_TIMEOUT, ETIMEDOUT},      {409, BRIG_E_CONFLICT, EBUSY},
    {413, BRIG_E_TOO_LARGE, EFBIG},  {429, BRIG_E_LIMIT, EDQUOT},           {503, BRIG_E_BUSY, EAGAIN},
};

static const char *text_of(const struct json_value *object, const char *key)
{
    const struct json_value *value = json_get(object, key);
    return value && value->type == JSON_STRING ? value->string : "";
}

/*
 * Letta writes its list of errors as Python would print it: [{'type': 'missing', 'loc': ('body', 'key'), 'msg': 'Field
 * required'}]. The first message is written to out, with the field before it unless the message names the field itself.
 * Returns false if the text is no such list.
 */
static bool plain_detail(const char *text, char *out, size_t size)
{
    static const char loc[] = "'loc': (", msg[] = "'msg': ", more[] = "}, {'type': ";
    const char *at = str_starts(text, "[{'type': ") ? strstr(text, loc) : NULL, *said = at ? strstr(at, msg) : NULL;
    const char *field = at ? strstr(at, "', '") : NULL, *field_end = field ? strchr(field + 4, '\'') : NULL;
    const char *end = said ? strstr(said, more) : NULL;
    size_t tail = strlen("\"}]");

    if (!said || strlen(said) < strlen(msg) + 1 + tail)
        return false;
    said += strlen(msg) + 1;                          /* behind the quote */
    end = end ? end - 1 : said + strlen(said) - tail; /* before the other one */
    int len = (int)(end - said), field_len = field_end && field_end < said ? (int)(field_end - field - 4) : 0;
    if (field_len > 0 && strncmp(said, field + 4, (size_t)field_len) != 0)
        snprintf(out, size, "%.*s: %.*s", field_len, field + 4, len, said);
    else
        snprintf(out, size, "%.*s", len, said);
    return true;
}

/*
 * Reads {"detail": text} or {"detail": [{"loc": ["body", name], "msg"}]} of Letta's routes. People correct one error at
 * a time, so only the first is shown.
 */
static const char *detail_of(const struct json_value *root, char where[128])
{
    const struct json_value *detail = json_get(root, "detail"),
                            *first = detail && detail->type == JSON_ARRAY ? detail->first : NULL,
                            *loc = first ? json_get(first, "loc") : NULL,
                            *name = loc && loc->type == JSON_ARRAY && loc->first ? loc->first->next : NULL;

    if (name && name->type == JSON_STRING)
        snprintf(where, 128, "%.120s: ", name->string);
    return first ? text_of(first, "msg") : text_of(root, "detail");
}

/* {"error":{"code","message","hint","request_id"}} */
static void explain(struct client *client, enum brig_code code, struct brig_err *err)
{
    struct json_doc *doc = NULL;
    const char *message = "", *hint = "";
    char where[128] = "", plain[sizeof err->message];

    if (client->reply.len > 0 && json_read(client->reply.data, client->reply.len, 256, &doc, NULL) == 0) {
        const struct json_value *error = json_get(json_root(doc), "error");
        message = error ? text_of(error, "message") : detail_of(json_root(doc), where);
        hint = text_of(error, "hint");
        (void)!str_copy(client->error_code, sizeof(client->error_code), text_of(error, "code")); /* too long: no code of
                                                                                                    ours */
    }
    if (plain_detail(message, plain, sizeof plain))
        message = plain;
    if (*message == '\0')
        err_set(err, code, 0, "%s: it answered %u %s", client->where, client->status, http_reason(client->status));
    else if (*hint == '\0')
        err_set(err, code, 0, "%s%s", where, message);
    else
        err_set(err, code, 0, "%s (%s)", message, hint);
    json_doc_free(doc);
}

int response_refused(struct client *client, struct brig_err *err)
{
    enum brig_code code = client->status < 500 ? BRIG_E_USAGE : BRIG_E_HOST;
    int errnum = client->status < 500 ? EINVAL : EIO;
    struct brig_err ignored;

    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        if (codes[i].status == client->status) {
            code = codes[i].code;
            errnum = codes[i].errnum;
        }
    }
    client->reply.len = 0;
    client->reply.max = ERROR_MAX;
    if (read_body(client, keep, client, &ignored) < 0) {
        client->reply.len = 0;
        client->head.keep_alive = false;
    }
    explain(client, code, err);
    return -errnum;
}
