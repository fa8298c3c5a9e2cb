/* SPDX-License-Identifier: Apache-2.0 */
/*
 * utf8.h: reads and writes one well-formed UTF-8 sequence at a time (RFC 3629: no surrogates, no overlong forms, up to
 * U+10FFFF).
 */
#ifndef BRIG_BASE_UTF8_H
#define BRIG_BASE_UTF8_H

#include "base/base.h"

/* Returns the length (1 to 4) of the sequence at the start of data, or 0 if there is none. ret_point may be NULL. */
static inline size_t utf8_sequence(const void *data, size_t len, uint32_t *ret_point)
{
    const uint8_t *s = data;
    uint32_t point, min;
    size_t need;

    if (len == 0)
        return 0;
    if (s[0] < 0x80) {
        if (ret_point)
            *ret_point = s[0];
        return 1;
    }
    if ((s[0] & 0xe0) == 0xc0) {
        need = 2, min = 0x80, point = s[0] & 0x1fu;
    } else if ((s[0] & 0xf0) == 0xe0) {
        need = 3, min = 0x800, point = s[0] & 0x0fu;
    } else if ((s[0] & 0xf8) == 0xf0) {
        need = 4, min = 0x10000, point = s[0] & 0x07u;
    } else {
        return 0;
    }
    if (len < need)
        return 0;
    for (size_t i = 1; i < need; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        point = point << 6 | (s[i] & 0x3fu);
    }
    if (point < min || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
        return 0;
    if (ret_point)
        *ret_point = point;
    return need;
}

/* Writes a code point (at most U+10FFFF) as 1 to 4 bytes, and returns how many. */
static inline size_t utf8_put(void *out, uint32_t point)
{
    uint8_t *s = out;

    if (point < 0x80) {
        s[0] = (uint8_t)point;
        return 1;
    }
    if (point < 0x800) {
        s[0] = (uint8_t)(0xc0 | point >> 6);
        s[1] = (uint8_t)(0x80 | (point & 0x3f));
        return 2;
    }
    if (point < 0x10000) {
        s[0] = (uint8_t)(0xe0 | point >> 12);
        s[1] = (uint8_t)(0x80 | (point >> 6 & 0x3f));
        s[2] = (uint8_t)(0x80 | (point & 0x3f));
        return 3;
    }
    s[0] = (uint8_t)(0xf0 | point >> 18);
    s[1] = (uint8_t)(0x80 | (point >> 12 & 0x3f));
    s[2] = (uint8_t)(0x80 | (point >> 6 & 0x3f));
    s[3] = (uint8_t)(0x80 | (point & 0x3f));
    return 4;
}

/* Is it a control character (C0, DEL or C1)? Those could steer a terminal. */
static inline bool utf8_is_control(uint32_t point)
{
    return point < 0x20 || (point >= 0x7f && point <= 0x9f);
}

/*
 * Can it make a line look like another one? Controls, separators of lines, marks and overrides of the direction, and
 * characters that are not seen at all. The joiners U+200C and U+200D stay: words and pictures are written with them.
 */
static inline bool utf8_is_deceptive(uint32_t point)
{
    return utf8_is_control(point) || point == 0xad || point == 0x61c || point == 0x180e || point == 0x200b ||
           point == 0x200e || point == 0x200f || (point >= 0x2028 && point <= 0x202e) ||
           (point >= 0x2060 && point <= 0x206f) || point == 0xfeff || (point >= 0xfff9 && point <= 0xfffb) ||
           (point >= 0xe0000 && point <= 0xe007f);
}

#endif
