/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.c: makes one call: connects if needed, sends, reads, and decides whether the connection can be used again. It
 * can only if the whole request was sent and the whole answer was read.
 */
#include "client/client.h"

#include <poll.h>

#include "base/err.h"
#include "client/internal.h"

/* A kept connection that the daemon has closed meanwhile (or said something on) is of no use. */
bool client_is_fresh(const struct client *client)
{
    struct pollfd look = {.fd = client->fd, .events = POLLIN};
    return client->fd >= 0 && poll(&look, 1, 0) == 0;
}

static int exchange(struct client *client, const struct client_request *request, struct brig_err *err)
{
    int sent = request_send(client, request, err);
    if (sent < 0)
        return sent;
    int r = response_head(client, request->method, err);
    if (r < 0)
        return r;
    if (sent == 1) /* it answered early: what we still had to send would be taken for the next request */
        client->head.keep_alive = false;
    if (client->status >= 400)
        return response_refused(client, err);
    if (client->status < 200 || client->status >= 300)
        return err_set(err, BRIG_E_GONE, EPROTO, "%s: it answered %u", client->where, client->status);
    if (sent == 1)
        return err_set(err, BRIG_E_GONE, EPROTO, "%s: it answered before all was sent", client->where);
    return response_body(client, request, err);
}

int client_call(struct client *client, const struct client_request *request, struct brig_err *err)
{
    client->status = 0;
    client->error_code[0] = '\0';
    client->in.len = client->in_at = 0;
    client->timeout_ms = request->timeout_ms > 0 ? request->timeout_ms : CLIENT_TIMEOUT_MS;
    int r = client_is_fresh(client) ? 0 : client_connect(client, err);
    if (r < 0)
        return r;
    r = exchange(client, request, err);
    if ((r < 0 && client->status < 400) || !client->head.keep_alive)
        client_disconnect(client);
    return r;
}

int client_json(struct client *client, const struct client_request *request, struct json_doc **ret,
                struct brig_err *err)
{
    int r = client_call(client, request, err);

    if (r < 0)
        return r;
    *ret = NULL;
    if (client->reply.len == 0)
        return 0;
    return json_read(client->reply.data, client->reply.len, (size_t)1 << 22, ret, err);
}

unsigned client_status(const struct client *client)
{
    return client->status;
}

uint64_t client_length(const struct client *client)
{
    return client->head.body == HTTP_BODY_LENGTH ? client->head.content_length
           : client->head.body == HTTP_BODY_NONE ? 0
                                                 : CLIENT_LENGTH_UNKNOWN;
}

const struct buf *client_reply(const struct client *client)
{
    return &client->reply;
}

const char *client_error_code(const struct client *client)
{
    return client->error_code;
}
