/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_carry.h: the opening of a connection with a carried brig-init (docs/PROTOCOL.md, "Carried"): HELLO with a
 * nonce, then START or ATTACH. The frames are those of frame.h; what follows is the service (guest_svc.h).
 *
 * A *_take() looks at the first frame of buf. It returns the number of its bytes, 0 when more are needed, or -EPROTO.
 * The header alone decides whether the rest is waited for, and an opening never has more than CARRY_OPENING_MAX bytes.
 */
#ifndef BRIG_CODEC_WIRE_GUEST_CARRY_H
#define BRIG_CODEC_WIRE_GUEST_CARRY_H

#include "codec/wire/frame.h"
#include "codec/wire/guest_msg.h"

#define CARRY_HELLO_SIZE 16u
#define CARRY_HELLO_MAX 64u /* A later version's may be longer. */
#define CARRY_START_MAX 16384u
#define CARRY_OPENING_MAX (2 * FRAME_HEADER + CARRY_HELLO_MAX + CARRY_START_MAX)

struct carry_hello {
    uint32_t version, capabilities;
    uint64_t nonce; /* The host's side chooses it; brig-init gives it back. */
};
/* Writes the whole frame. */
#define CARRY_HELLO_FRAME (FRAME_HEADER + CARRY_HELLO_SIZE)
int carry_hello_put(uint8_t *out, size_t size, const struct carry_hello *msg) MUST_CHECK;
int carry_hello_take(const uint8_t *buf, size_t len, struct carry_hello *ret) MUST_CHECK;

/* What the host's side wants: ATTACH, or START, whose strings point into the buffer. */
struct carry_order {
    bool attach;
    struct guest_start start;
};
int carry_order_take(const uint8_t *buf, size_t len, struct carry_order *ret) MUST_CHECK;
/* Returns the errno with which a START that makes sense is refused by one that is carried; 0 if it is not. */
int carry_start_refusal(const struct guest_start *start);

#endif
