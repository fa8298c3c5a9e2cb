/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fields.h: reads and writes the fields of a message, one by one or by a table. Numbers are little-endian; a string is
 * its length as u32 and then its bytes. A table names the fields in the order of the wire:
 *
 *   #define F(member) WIRE_FIELD(svc_reply, member)
 *   static const struct wire_field REPLY[] = {F(errnum), F(stage), {0}};
 *
 * The size of a field in its struct is its size on the wire: 1, 2, 4 or 8 for a number, otherwise a struct svc_bytes.
 * This is compiled into brig-init too: no C library, no allocation.
 */
#ifndef BRIG_CODEC_WIRE_FIELDS_H
#define BRIG_CODEC_WIRE_FIELDS_H

#include "base/base.h"

/* A bounded view of bytes. After parsing it points into the caller's buffer. */
struct svc_bytes {
    const char *data;
    uint32_t len;
};

/*
 * A cursor. Every put or get is safe after a failure: `bad` stays set, a get returns zeroes, and svc_put_done() or
 * svc_done() says at the end whether all was well. When reading, nothing may be left over.
 */
struct svc_cursor {
    uint8_t *at, *end;
    bool bad;
};
struct svc_reader {
    const uint8_t *at, *end;
    bool bad;
};

void svc_put_u8(struct svc_cursor *out, uint8_t value);
void svc_put_u16(struct svc_cursor *out, uint16_t value);
void svc_put_u32(struct svc_cursor *out, uint32_t value);
void svc_put_u64(struct svc_cursor *out, uint64_t value);
void svc_put_bytes(struct svc_cursor *out, struct svc_bytes bytes);     /* A u32 length, then the bytes. */
void svc_put_raw(struct svc_cursor *out, const void *data, size_t len); /* the bytes alone */
/* Returns the bytes since begin, or -EMSGSIZE. */
int svc_put_done(const struct svc_cursor *out, const uint8_t *begin) MUST_CHECK;
uint8_t svc_get_u8(struct svc_reader *in);
uint16_t svc_get_u16(struct svc_reader *in);
uint32_t svc_get_u32(struct svc_reader *in);
uint64_t svc_get_u64(struct svc_reader *in);
struct svc_bytes svc_get_bytes(struct svc_reader *in);
int svc_done(const struct svc_reader *in) MUST_CHECK; /* Returns 0 or -EPROTO. */

struct wire_field {
    uint16_t offset, size; /* A size of 0 ends a table. */
};
#define WIRE_FIELD(type, member)                                          \
    {                                                                     \
        offsetof(struct type, member), sizeof(((struct type *)0)->member) \
    }

void wire_put_fields(struct svc_cursor *out, const struct wire_field *fields, const void *msg);
void wire_get_fields(struct svc_reader *in, const struct wire_field *fields, void *msg); /* NULL: only skips them */
/* A message that is its fields and nothing else. wire_put() returns its length or -EMSGSIZE. */
int wire_put(uint8_t *out, size_t size, const struct wire_field *fields, const void *msg) MUST_CHECK;
/* Returns 0 or -EPROTO, also when bytes are left over; *ret is then untouched. */
int wire_get(const uint8_t *in, size_t len, const struct wire_field *fields, void *ret) MUST_CHECK;

#endif
