/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_wire.c: frames between the file worker and pid 1, which passes them on as they are.
 *
 * Neither direction ever waits: a program that fills its disk or a caller that does not read must not stop the other
 * calls. Output is made in place in one buffer, so that the bytes of a file are copied by nobody but the kernel;
 * several frames leave in one system call. Frames are taken from the input only while the output has WIRE_RESERVE left,
 * which is more than the answer to any one frame.
 */
#include <sys/socket.h>

#include "guest/files/files_int.h"

#define OUT_SIZE (8 * WIRE_PIECE + WIRE_RESERVE)
#define IN_SIZE (8 * WIRE_PIECE)

static int wire_fd;
static uint8_t out[OUT_SIZE] __attribute__((aligned(GUEST_PAGE)));
static uint8_t in[IN_SIZE] __attribute__((aligned(GUEST_PAGE)));
static size_t out_begin, out_end, in_begin, in_end;

void wire_init(int fd)
{
    wire_fd = fd;
    out_begin = out_end = in_begin = in_end = 0;
}

/* ---- out ------------------------------------------------------------------------------------------ */

void wire_flush(void)
{
    while (out_begin < out_end) {
        long sent =
            raw_call6(SYS_sendto, wire_fd, out + out_begin, out_end - out_begin, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);

        if (sent == -EINTR)
            continue;
        if (sent == -EAGAIN)
            return;
        if (sent <= 0)
            files_end(GUEST_EXIT_GONE);
        out_begin += (size_t)sent;
    }
    out_begin = out_end = 0;
}

bool wire_pending(void)
{
    return out_begin < out_end;
}

/* Moved to the front only when the room behind does not do for another piece. */
size_t wire_room(void)
{
    if (out_begin > 0 && OUT_SIZE - out_end < WIRE_PIECE + WIRE_RESERVE) {
        __builtin_memmove(out, out + out_begin, out_end - out_begin);
        out_end -= out_begin;
        out_begin = 0;
    }
    return OUT_SIZE - out_end;
}

struct svc_cursor wire_open(void)
{
    size_t room = wire_room(), max = room < FRAME_HEADER ? 0 : room - FRAME_HEADER;
    uint8_t *at = out + out_end + (room < FRAME_HEADER ? 0 : FRAME_HEADER);

    if (max > FRAME_PAYLOAD_MAX)
        max = FRAME_PAYLOAD_MAX;
    return (struct svc_cursor){at, at + max, room < FRAME_HEADER};
}

static void put_header(const struct call *call, enum svc_type type, uint32_t stream, size_t len)
{
    const struct frame frame = {
        .length = (uint32_t)len, .type = (uint16_t)type, .stream = stream, .request = call->request};

    frame_put_header(out + out_end, &frame);
    out_end += FRAME_HEADER + len;
}

/* A frame that did not fit was not foreseen by whoever began it: better no worker than a stream with a hole. */
void wire_close(const struct call *call, enum svc_type type, const struct svc_cursor *cursor)
{
    if (cursor->bad)
        files_end(GUEST_EXIT_BROKEN);
    put_header(call, type, 0, (size_t)(cursor->at - (out + out_end + FRAME_HEADER)));
}

void wire_send(const struct call *call, enum svc_type type, uint32_t stream, const void *payload, size_t len)
{
    if (wire_room() < FRAME_HEADER + len)
        files_end(GUEST_EXIT_BROKEN);
    if (len > 0)
        __builtin_memcpy(out + out_end + FRAME_HEADER, payload, len);
    put_header(call, type, stream, len);
}

uint8_t *wire_data_open(const struct call *call, size_t *ret_max)
{
    size_t max = call->credit < FRAME_PAYLOAD_MAX ? call->credit : FRAME_PAYLOAD_MAX;

    if (wire_room() < WIRE_PIECE + WIRE_RESERVE)
        max = 0;
    *ret_max = max;
    return out + out_end + FRAME_HEADER;
}

void wire_data_close(struct call *call, size_t len)
{
    if (len == 0)
        return;
    put_header(call, SVC_DATA, 1, len);
    call->credit -= (uint32_t)len;
}

/* ---- in ------------------------------------------------------------------------------------------- */

void wire_receive(void)
{
    long got;

    if (in_begin > 0) {
        __builtin_memmove(in, in + in_begin, in_end - in_begin);
        in_end -= in_begin;
        in_begin = 0;
    }
    if (in_end == IN_SIZE) /* whole frames are there still */
        return;
    got = raw_call6(SYS_recvfrom, wire_fd, in + in_end, IN_SIZE - in_end, MSG_DONTWAIT, NULL, NULL);
    if (got == -EINTR || got == -EAGAIN)
        return;
    if (got <= 0)
        files_end(got == 0 ? GUEST_EXIT_DONE : GUEST_EXIT_GONE);
    in_end += (size_t)got;
}

bool wire_next(struct frame *ret)
{
    int used = svc_frame_parse(in + in_begin, in_end - in_begin, ret);

    if (used < 0)
        files_end(GUEST_EXIT_MALFORMED);
    in_begin += (size_t)used;
    return used > 0;
}
