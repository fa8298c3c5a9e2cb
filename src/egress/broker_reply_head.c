/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_reply_head.c: writes the heads of replies again and scans them. What an upstream says about framing and the
 * next hop ends here. A compressed body cannot be scanned, so it is refused; it was not asked for.
 */
#include <strings.h>

#include "base/err.h"
#include "egress/broker_priv.h"

/* Not passed on: of one hop, or written by us; and what would lead a client around the gate. */
static const char *const reply_drops[] = {
    "connection",        "keep-alive",     "proxy-connection", "te",      "trailer",
    "transfer-encoding", "content-length", "upgrade",          "alt-svc",
};

static int put_scanned(struct scan *scan, const char *text, size_t len, struct buf *out)
{
    return scan_feed(scan, text, len, true, out);
}

static int put_reply_field(struct scan *scan, const struct http_field *field, struct buf *out)
{
    AUTO_BUF struct buf name = BUF_INIT(BROKER_HEAD_MAX);
    uint64_t hits = scan->hits;
    int r = put_scanned(scan, field->name, field->name_len, &name);

    if (r < 0 || scan->hits > hits)
        return r; /* a name that is the value has no meaning: dropped */
    r = buf_append(out, field->name, field->name_len);
    if (r == 0)
        r = buf_append(out, ": ", 2);
    if (r == 0)
        r = put_scanned(scan, field->value, field->value_len, out);
    return r == 0 ? buf_append(out, "\r\n", 2) : r;
}

static bool is_encoded(const struct http_head *head)
{
    for (size_t i = 0; i < head->n_fields; i++) {
        const struct http_field *field = &head->fields[i];
        if (strcasecmp(field->name, "content-encoding") == 0 && field->value_len > 0 &&
            strcasecmp(field->value, "identity") != 0)
            return true;
    }
    return false;
}

static enum reply_body choose_body(const struct http_head *head, unsigned client_minor)
{
    if (head->body == HTTP_BODY_NONE)
        return REPLY_NONE;
    return client_minor == 0 ? REPLY_UNTIL_CLOSE : REPLY_CHUNKED;
}

int rewrite_reply(const struct http_head *head, struct scan *scan, unsigned client_minor, bool close, bool websocket,
                  struct buf *out, enum reply_body *ret_body, struct brig_err *err)
{
    enum reply_body body = choose_body(head, client_minor);

    if (body != REPLY_NONE && is_encoded(head)) {
        err_set(err, BRIG_E_REFUSED, 0, "the response is encoded, so it cannot be looked through for secrets");
        return -EPERM;
    }
    if (websocket && http_field(head, "sec-websocket-extensions")) {
        err_set(err, BRIG_E_REFUSED, 0, "the WebSocket has extensions nobody asked for");
        return -EPERM;
    }
    int r = buf_printf(out, "HTTP/1.1 %u ", head->status);
    if (r == 0)
        r = put_scanned(scan, head->reason, strlen(head->reason), out);
    if (r == 0)
        r = buf_append(out, "\r\n", 2);
    for (size_t i = 0; i < head->n_fields && r == 0; i++) {
        const struct http_field *field = &head->fields[i];
        bool length = body == REPLY_NONE && head->status >= 200 && strcasecmp(field->name, "content-length") == 0;
        if (length ||
            (!broker_listed(reply_drops, ARRAY_SIZE(reply_drops), field->name) && !broker_of_this_hop(head, field)))
            r = put_reply_field(scan, field, out);
    }
    if (r == 0 && body == REPLY_CHUNKED)
        r = buf_append_str(out, "Transfer-Encoding: chunked\r\n");
    if (r == 0 && websocket)
        r = buf_append_str(out, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    else if (r == 0 && (close || body == REPLY_UNTIL_CLOSE))
        r = buf_append_str(out, "Connection: close\r\n");
    if (r == 0)
        r = http_put_end(out);
    *ret_body = body;
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "the response could not be written") : 0;
}
