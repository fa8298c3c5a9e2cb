/* SPDX-License-Identifier: Apache-2.0 */
/* base64.c: decodes base64 strictly: only letters, and only one spelling for every value. */
#include "base/base64.h"

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
