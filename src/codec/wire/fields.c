/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fields.c: the numbers and strings of a message, and the tables that name its fields in their order. No function reads
 * or writes past the buffer that it was given.
 */
#include "codec/wire/fields.h"

#include "codec/wire/le.h"

/* The place for n bytes, or NULL once and for all. */
static uint8_t *room(struct svc_cursor *out, size_t n)
{
    if (out->bad || (size_t)(out->end - out->at) < n) {
        out->bad = true;
        return NULL;
    }
    out->at += n;
    return out->at - n;
}

static const uint8_t *take(struct svc_reader *in, size_t n)
{
    if (in->bad || (size_t)(in->end - in->at) < n) {
        in->bad = true;
        return NULL;
    }
    in->at += n;
    return in->at - n;
}

static void put_number(struct svc_cursor *out, uint64_t value, size_t size)
{
    uint8_t bytes[8];

    le_put_u64(bytes, value);
    svc_put_raw(out, bytes, size);
}

static uint64_t get_number(struct svc_reader *in, size_t size)
{
    const uint8_t *at = take(in, size);
    uint8_t bytes[8] = {0};

    if (at)
        memcpy(bytes, at, size);
    return le_get_u64(bytes);
}

void svc_put_u8(struct svc_cursor *out, uint8_t value)
{
    put_number(out, value, 1);
}

void svc_put_u16(struct svc_cursor *out, uint16_t value)
{
    put_number(out, value, 2);
}

void svc_put_u32(struct svc_cursor *out, uint32_t value)
{
    put_number(out, value, 4);
}

void svc_put_u64(struct svc_cursor *out, uint64_t value)
{
    put_number(out, value, 8);
}

void svc_put_raw(struct svc_cursor *out, const void *data, size_t len)
{
    uint8_t *at = room(out, len);

    if (at && len > 0)
        memcpy(at, data, len);
}

void svc_put_bytes(struct svc_cursor *out, struct svc_bytes bytes)
{
    svc_put_u32(out, bytes.len);
    svc_put_raw(out, bytes.data, bytes.len);
}

int svc_put_done(const struct svc_cursor *out, const uint8_t *begin)
{
    return out->bad ? -EMSGSIZE : (int)(out->at - begin);
}

uint8_t svc_get_u8(struct svc_reader *in)
{
    return (uint8_t)get_number(in, 1);
}

uint16_t svc_get_u16(struct svc_reader *in)
{
    return (uint16_t)get_number(in, 2);
}

uint32_t svc_get_u32(struct svc_reader *in)
{
    return (uint32_t)get_number(in, 4);
}

uint64_t svc_get_u64(struct svc_reader *in)
{
    return get_number(in, 8);
}

struct svc_bytes svc_get_bytes(struct svc_reader *in)
{
    uint32_t len = svc_get_u32(in);
    const uint8_t *at = take(in, len);

    return at ? (struct svc_bytes){(const char *)at, len} : (struct svc_bytes){"", 0};
}

int svc_done(const struct svc_reader *in)
{
    return in->bad || in->at != in->end ? -EPROTO : 0;
}

/* ---- tables ------------------------------------------------------------------------------------- */

union member {
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    struct svc_bytes bytes;
};

void wire_put_fields(struct svc_cursor *out, const struct wire_field *fields, const void *msg)
{
    for (; fields->size > 0; fields++) {
        union member member = {0};
        memcpy(&member, (const uint8_t *)msg + fields->offset, fields->size);
        switch (fields->size) {
        case 1: svc_put_u8(out, member.u8); break;
        case 2: svc_put_u16(out, member.u16); break;
        case 4: svc_put_u32(out, member.u32); break;
        case 8: svc_put_u64(out, member.u64); break;
        default: svc_put_bytes(out, member.bytes);
        }
    }
}

void wire_get_fields(struct svc_reader *in, const struct wire_field *fields, void *msg)
{
    for (; fields->size > 0; fields++) {
        union member member = {0};
        switch (fields->size) {
        case 1: member.u8 = svc_get_u8(in); break;
        case 2: member.u16 = svc_get_u16(in); break;
        case 4: member.u32 = svc_get_u32(in); break;
        case 8: member.u64 = svc_get_u64(in); break;
        default: member.bytes = svc_get_bytes(in);
        }
        if (msg)
            memcpy((uint8_t *)msg + fields->offset, &member, fields->size);
    }
}

int wire_put(uint8_t *out, size_t size, const struct wire_field *fields, const void *msg)
{
    struct svc_cursor at = {out, out + size, false};

    wire_put_fields(&at, fields, msg);
    return svc_put_done(&at, out);
}

int wire_get(const uint8_t *in, size_t len, const struct wire_field *fields, void *ret)
{
    struct svc_reader at = {in, in + len, false}, look = at;

    wire_get_fields(&look, fields, NULL);
    if (svc_done(&look) < 0)
        return -EPROTO;
    wire_get_fields(&at, fields, ret);
    return 0;
}
