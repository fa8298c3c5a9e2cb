/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a daemon (or whoever is on its socket) sends to the command line: WebSocket frames and server-sent events. The
 * first byte chooses; the rest comes in two pieces, cut where the second byte says. However it is cut, the same
 * messages come out.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "client/client.h"

#define SEEN_MAX 65536u

struct seen {
    uint64_t hash;
    size_t n, bytes;
};

static void note(struct seen *seen, unsigned kind, const void *data, size_t len)
{
    const uint8_t *at = data;

    seen->hash = (seen->hash ^ kind) * UINT64_C(1099511628211);
    for (size_t i = 0; i < len; i++)
        seen->hash = (seen->hash ^ at[i]) * UINT64_C(1099511628211);
    seen->n++;
    seen->bytes += len;
}

/* Until it would block, ends or breaks; the last return value. */
static int drain(struct ws *ws, struct seen *seen)
{
    struct ws_message message;
    struct brig_err err = {0};
    int r;

    while ((r = ws_receive(ws, &message, &err)) == 1) {
        FUZZ_CHECK(message.kind == WS_TEXT || message.kind == WS_BINARY || message.kind == WS_CLOSE);
        FUZZ_CHECK(message.len == 0 || message.data);
        if (message.kind != WS_CLOSE || message.code != 1006)
            note(seen, message.kind, message.data, message.len);
        if (message.kind == WS_CLOSE)
            return 1;
    }
    FUZZ_CHECK(r == 0 || (r < 0 && err.message[0] != '\0'));
    return r;
}

static void frames(const uint8_t *data, size_t size, size_t cut, struct seen *seen)
{
    struct brig_err err;
    struct ws *ws = NULL;
    int fds[2];

    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    FUZZ_CHECK(ws_adopt(fds[0], data, cut, &ws, &err) == 0);
    int r = drain(ws, seen);
    for (size_t at = cut; r == 0 && at < size;) {
        ssize_t n = write(fds[1], data + at, size - at);
        if (n > 0)
            at += (size_t)n;
        r = drain(ws, seen);
    }
    if (r == 0) {
        shutdown(fds[1], SHUT_RDWR);
        FUZZ_CHECK(drain(ws, seen) != 0);
    }
    ws_destroy(ws);
    close(fds[1]);
}

static int on_event(void *ctx, const char *event, const char *id, const char *data, size_t len, struct brig_err *err)
{
    (void)err;
    note(ctx, 1, event, strlen(event));
    note(ctx, 2, id, strlen(id));
    note(ctx, 3, data, len);
    FUZZ_CHECK(data[len] == '\0');
    return 0;
}

static void events(const uint8_t *data, size_t size, size_t cut, struct seen *seen)
{
    struct sse sse = SSE_INIT(on_event, seen);
    struct brig_err err;
    int r = sse_feed(&sse, data, cut, &err);

    if (r == 0)
        r = sse_feed(&sse, data + cut, size - cut, &err);
    FUZZ_CHECK(r == 0 || r == -EMSGSIZE);
    sse_done(&sse);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen whole = {0}, pieces = {0};

    if (size < 2 || size > SEEN_MAX)
        return 0;
    size_t cut = (size_t)data[1] * (size - 2) / 255;
    void (*parse)(const uint8_t *, size_t, size_t, struct seen *) = data[0] & 1 ? frames : events;
    parse(data + 2, size - 2, size - 2, &whole);
    parse(data + 2, size - 2, cut, &pieces);
    FUZZ_CHECK(whole.n == pieces.n && whole.bytes == pieces.bytes && whole.hash == pieces.hash);
    return 0;
}
