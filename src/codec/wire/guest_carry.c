/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_carry.c: reads and writes the opening of a connection with a carried brig-init. The other side is untrusted in
 * both directions. brig-init links this file without a C library.
 */
#include "codec/wire/guest_carry.h"

#include "codec/wire/fields.h"
#include "codec/wire/le.h"

#define F(member) WIRE_FIELD(carry_hello, member)
static const struct wire_field HELLO[] = {F(version), F(capabilities), F(nonce), {0}};
#undef F

int carry_hello_put(uint8_t *out, size_t size, const struct carry_hello *msg)
{
    const struct frame frame = {.type = FRAME_HELLO, .length = CARRY_HELLO_SIZE};

    if (size < CARRY_HELLO_FRAME)
        return -EMSGSIZE;
    frame_put_header(out, &frame);
    return wire_put(out + FRAME_HEADER, size - FRAME_HEADER, HELLO, msg) < 0 ? -EMSGSIZE : (int)CARRY_HELLO_FRAME;
}

int carry_hello_take(const uint8_t *buf, size_t len, struct carry_hello *ret)
{
    struct frame frame;
    struct guest_hello hello;
    uint32_t version;

    if (len < FRAME_HEADER)
        return 0;
    frame_get_header(buf, &frame);
    if (frame.type != FRAME_HELLO || frame.request != 0 || frame.length < CARRY_HELLO_SIZE ||
        frame.length > CARRY_HELLO_MAX)
        return -EPROTO;
    int used = frame_parse(buf, len, &frame);
    if (used <= 0)
        return used;
    if (guest_hello_parse(frame.payload, frame.length, &hello) != 0 || guest_hello_agree(&hello, &version) != 0 ||
        wire_get(frame.payload, CARRY_HELLO_SIZE, HELLO, ret) != 0)
        return -EPROTO;
    return used;
}

int carry_order_take(const uint8_t *buf, size_t len, struct carry_order *ret)
{
    struct frame frame;

    if (len < FRAME_HEADER)
        return 0;
    frame_get_header(buf, &frame);
    bool attach = frame.type == FRAME_ATTACH;
    if (!attach && frame.type != FRAME_START)
        return -EPROTO;
    if (frame.flags != 0 || frame.length > (attach ? 0 : CARRY_START_MAX))
        return -EPROTO;
    int used = frame_parse(buf, len, &frame);
    if (used <= 0)
        return used;
    struct carry_order order = {.attach = attach};
    if (!attach && guest_start_parse(frame.payload, frame.length, &order.start) != 0)
        return -EPROTO;
    *ret = order;
    return used;
}

int carry_start_refusal(const struct guest_start *start)
{
    bool ok = (start->flags & GUEST_START_SERVICE) &&
              !(start->flags & (GUEST_START_LEAVES | GUEST_START_ADOPT | GUEST_START_SUDO));

    return ok ? 0 : EOPNOTSUPP;
}
