/* SPDX-License-Identifier: Apache-2.0 */
/* base64.c: writes base64, and decodes it strictly: only letters, and only one spelling for every value. */
#include "base/base64.h"

size_t base64_encode(const void *data, size_t len, const char last[2], bool pad, char *out)
{
    char letters[65] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    const uint8_t *in = data;
    char *at = out;

    memcpy(letters + 62, last, 2);
    for (; len >= 3; len -= 3, in += 3) {
        uint32_t bits = (uint32_t)in[0] << 16 | (uint32_t)in[1] << 8 | in[2];
        *at++ = letters[bits >> 18];
        *at++ = letters[bits >> 12 & 63];
        *at++ = letters[bits >> 6 & 63];
        *at++ = letters[bits & 63];
    }
    if (len > 0) {
        uint32_t bits = (uint32_t)in[0] << 16 | (len == 2 ? (uint32_t)in[1] << 8 : 0);
        for (size_t k = 0; k <= len; k++)
            *at++ = letters[bits >> (18 - 6 * k) & 63];
        for (size_t k = len; pad && k < 3; k++)
            *at++ = '=';
    }
    return (size_t)(at - out);
}

size_t base64_unpadded(const char *text, size_t len)
{
    if (len % 4 != 0 || len == 0 || text[len - 1] != '=')
        return len;
    return text[len - 2] == '=' ? len - 2 : len - 1;
}

ssize_t base64_decode(const char *text, size_t len, const char *last, void *out, size_t size)
{
    uint8_t *to = out;
    uint32_t bits = 0;
    unsigned n_bits = 0;
    size_t at = 0;

    if (len % 4 == 1)
        return -EINVAL;
    for (size_t i = 0; i < len; i++) {
        int value = last ? base64_value(text[i], last) : base64_value_any(text[i]);
        if (value < 0)
            return -EINVAL;
        bits = bits << 6 | (uint32_t)value;
        n_bits += 6;
        if (n_bits < 8)
            continue;
        n_bits -= 8;
        if (at == size)
            return -EMSGSIZE;
        to[at++] = (uint8_t)(bits >> n_bits);
        bits &= (1u << n_bits) - 1;
    }
    return bits == 0 ? (ssize_t)at : -EINVAL;
}

ssize_t base64_decode_padded(const char *text, size_t len, void *out, size_t size)
{
    return len % 4 == 0 ? base64_decode(text, base64_unpadded(text, len), "+/", out, size) : -EINVAL;
}
