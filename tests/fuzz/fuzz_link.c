/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link whose other side sends anything. Three calls are open (one of them dropped, one feeding input); the input's
 * bytes arrive in pieces as its own first bytes say. Whatever comes: every call has at most one reply, the link ends at
 * most once, after it nothing comes any more, and no call is ever given more than its window.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "link/link.h"
#include "loop/loop.h"

struct peer_call {
    struct call *call;
    unsigned replies;
    size_t held[3];
    bool eof[3];
    bool consume;
};

static unsigned hellos, gones;

static void on_hello(void *ctx, const struct svc_hello *hello)
{
    (void)ctx;
    FUZZ_CHECK(hello->version != 0 && hellos == 0 && gones == 0);
    hellos++;
}

static void on_gone(void *ctx, const struct brig_err *why)
{
    (void)ctx;
    FUZZ_CHECK(why->code != 0 && why->message[0] != '\0' && gones == 0);
    gones++;
}

static void on_event(void *ctx, const uint8_t *data, size_t len)
{
    const struct peer_call *call = ctx;

    FUZZ_CHECK(call->replies == 0 && gones == 0 && len <= FRAME_PAYLOAD_MAX);
    for (size_t i = 0; i < len; i++)
        (void)*(const volatile uint8_t *)(data + i);
}

static void on_data(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct peer_call *call = ctx;

    on_event(ctx, data, len);
    FUZZ_CHECK((stream == 1 || stream == 2) && len > 0 && !call->eof[stream]);
    call->held[stream] += len;
    FUZZ_CHECK(call->held[stream] <= SVC_WINDOW);
    if (call->consume) {
        call_consumed(call->call, stream, call->held[stream]);
        call->held[stream] = 0;
    }
}

static void on_eof(void *ctx, unsigned stream)
{
    struct peer_call *call = ctx;

    FUZZ_CHECK(call->replies == 0 && (stream == 1 || stream == 2) && !call->eof[stream]);
    call->eof[stream] = true;
}

static void on_writable(void *ctx)
{
    struct peer_call *call = ctx;

    FUZZ_CHECK(call->replies == 0 && gones == 0);
    FUZZ_CHECK(call_write(call->call, "more", 4) >= 0);
}

static void on_reply(void *ctx, uint32_t errnum, uint32_t stage, const uint8_t *data, size_t len)
{
    struct peer_call *call = ctx;

    (void)stage;
    FUZZ_CHECK(call->replies == 0 && gones == 0 && errnum <= 4095);
    for (size_t i = 0; i < len; i++)
        (void)*(const volatile uint8_t *)(data + i);
    call->replies++;
    call->call = NULL;
}

/* The fuzzer writes "#0", "#1", "#2" for the numbers of the calls: it could not guess them. */
static void name_requests(uint8_t *bytes, size_t size, const uint32_t requests[3])
{
    for (size_t at = 0; at + FRAME_HEADER <= size;) {
        uint32_t length, request;

        memcpy(&length, bytes + at, 4);
        memcpy(&request, bytes + at + 12, 4);
        if (request >= 1 && request <= 3)
            memcpy(bytes + at + 12, &requests[request - 1], 4);
        if (length > size - at - FRAME_HEADER)
            return;
        at += FRAME_HEADER + length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[1u << 18], sent[1u << 16];
    struct peer_call calls[3] = {{.consume = true}, {0}, {0}};
    const struct link_events link_events = {on_hello, on_gone, NULL};
    uint32_t requests[3] = {0};
    struct loop *loop;
    struct link *link;
    int pair[2];

    if (size < 2 || size > sizeof(bytes))
        return 0;
    size_t piece = 1 + data[0] * 16u;
    hellos = gones = 0;
    FUZZ_CHECK(loop_create(&loop, NULL) == 0);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    FUZZ_CHECK(link_create(loop, pair[0], &link_events, &link, NULL) == 0);
    for (unsigned i = 0; i < 3; i++) {
        const struct call_events events = {on_event, on_data, on_eof, on_writable, on_reply, &calls[i]};
        FUZZ_CHECK(link_call(link, SVC_PROC_INPUT, "abcd", 4, &events, &calls[i].call, NULL) == 0);
        requests[i] = (i + 1) * 1024 + i + 1; /* as link.c numbers them: generation and slot */
    }
    FUZZ_CHECK(call_write(calls[1].call, bytes, 1000) == 1000);
    call_drop(calls[2].call);

    memcpy(bytes, data + 1, size - 1);
    name_requests(bytes, size - 1, requests);
    for (size_t at = 0; at < size - 1 && !gones;) {
        size_t n = size - 1 - at < piece ? size - 1 - at : piece;
        ssize_t wrote = send(pair[1], bytes + at, n, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (wrote > 0)
            at += (size_t)wrote;
        FUZZ_CHECK(loop_run_once(loop, 0, NULL) == 0);
        while (recv(pair[1], sent, sizeof(sent), MSG_DONTWAIT) > 0)
            ;
    }
    close(pair[1]);
    for (unsigned i = 0; i < 20 && !gones; i++)
        FUZZ_CHECK(loop_run_once(loop, 10, NULL) == 0);
    FUZZ_CHECK(gones == 1 && calls[0].replies == 1 && calls[1].replies == 1 && calls[2].replies == 0);
    link_destroy(link);
    loop_destroy(loop);
    return 0;
}
