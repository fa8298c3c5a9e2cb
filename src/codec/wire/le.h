/* SPDX-License-Identifier: Apache-2.0 */
/* le.h: little-endian numbers at any address. */
#ifndef BRIG_CODEC_WIRE_LE_H
#define BRIG_CODEC_WIRE_LE_H

#include <endian.h>

#include "base/base.h"

static inline void le_put_u16(uint8_t *out, uint16_t value)
{
    value = htole16(value);
    memcpy(out, &value, sizeof(value));
}

static inline void le_put_u32(uint8_t *out, uint32_t value)
{
    value = htole32(value);
    memcpy(out, &value, sizeof(value));
}

static inline void le_put_u64(uint8_t *out, uint64_t value)
{
    value = htole64(value);
    memcpy(out, &value, sizeof(value));
}

static inline uint16_t le_get_u16(const uint8_t *in)
{
    uint16_t value;
    memcpy(&value, in, sizeof(value));
    return le16toh(value);
}

static inline uint32_t le_get_u32(const uint8_t *in)
{
    uint32_t value;
    memcpy(&value, in, sizeof(value));
    return le32toh(value);
}

static inline uint64_t le_get_u64(const uint8_t *in)
{
    uint64_t value;
    memcpy(&value, in, sizeof(value));
    return le64toh(value);
}

#endif
