/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sse.c: reads server-sent events as the HTML standard says. Lines end in LF, CR or CRLF; an empty line ends an event;
 * data lines are joined by LF; a comment is ignored; an event that the stream cut off is dropped. `retry` is not used.
 */
#include <string.h>

#include "base/err.h"
#include "client/client.h"

static int put(struct buf *buf, const char *data, size_t len, struct brig_err *err)
{
    int r = buf_append(buf, data, len);

    if (r == -EMSGSIZE)
        return err_set(err, BRIG_E_TOO_LARGE, EMSGSIZE, "an event");
    return r < 0 ? err_nomem(err) : 0;
}

static int set(struct buf *buf, const char *data, size_t len, struct brig_err *err)
{
    buf->len = 0;
    return put(buf, data, len, err);
}

static const char *text(const struct buf *buf, const char *otherwise)
{
    return buf->len > 0 ? buf->data : otherwise;
}

static int dispatch(struct sse *sse, struct brig_err *err)
{
    int r = 0;

    if (sse->has_data)
        r = sse->on_event(sse->ctx, text(&sse->event, "message"), text(&sse->id, ""), text(&sse->data, ""),
                          sse->data.len, err);
    sse->data.len = sse->event.len = 0;
    sse->has_data = false;
    return r;
}

static bool is_field(const struct buf *line, size_t len, const char *name)
{
    return strlen(name) == len && memcmp(line->data, name, len) == 0;
}

static int end_line(struct sse *sse, struct brig_err *err)
{
    struct buf *line = &sse->line;
    int r = 0;

    if (line->len == 0)
        return dispatch(sse, err);
    const char *colon = memchr(line->data, ':', line->len);
    size_t name = colon ? (size_t)(colon - line->data) : line->len;
    size_t from = name + (colon != NULL);
    from += from < line->len && line->data[from] == ' ';
    const char *value = line->data + from;
    size_t len = line->len - from;

    if (is_field(line, name, "data")) {
        if (sse->has_data)
            r = put(&sse->data, "\n", 1, err);
        if (r == 0)
            r = put(&sse->data, value, len, err);
        sse->has_data = true;
    } else if (is_field(line, name, "event")) {
        r = set(&sse->event, value, len, err);
    } else if (is_field(line, name, "id") && !memchr(value, '\0', len)) {
        r = set(&sse->id, value, len, err);
    }
    line->len = 0;
    return r;
}

int sse_feed(struct sse *sse, const void *data, size_t len, struct brig_err *err)
{
    const char *at = data, *end = at + len;
    int r = 0;

    while (r >= 0 && at < end) {
        if (sse->after_cr && *at == '\n') { /* the second half of a CRLF */
            sse->after_cr = false;
            at++;
            continue;
        }
        sse->after_cr = false;
        const char *stop = at;
        while (stop < end && *stop != '\n' && *stop != '\r')
            stop++;
        r = put(&sse->line, at, (size_t)(stop - at), err);
        at = stop;
        if (r < 0 || at == end)
            break;
        sse->after_cr = *at == '\r';
        at++;
        r = end_line(sse, err);
    }
    return r < 0 ? r : 0;
}

void sse_done(struct sse *sse)
{
    buf_done(&sse->line);
    buf_done(&sse->data);
    buf_done(&sse->event);
    buf_done(&sse->id);
}
