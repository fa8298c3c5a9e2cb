/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sha1.c: SHA-1 of a short text in one call. The command line links no crypto library for the twenty bytes of a
 * handshake.
 */
#include "client/sha1.h"

#include <string.h>

#define BLOCK 64u

static uint32_t rotate(uint32_t value, unsigned n)
{
    return value << n | value >> (32 - n);
}

static void mix(uint32_t state[5], const uint8_t block[BLOCK])
{
    uint32_t w[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];

    for (unsigned i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               block[4 * i + 3];
    for (unsigned i = 16; i < 80; i++)
        w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (unsigned i = 0; i < 80; i++) {
        uint32_t f, k;
        if (i < 20)
            f = (b & c) | (~b & d), k = 0x5a827999;
        else if (i < 40)
            f = b ^ c ^ d, k = 0x6ed9eba1;
        else if (i < 60)
            f = (b & c) | (b & d) | (c & d), k = 0x8f1bbcdc;
        else
            f = b ^ c ^ d, k = 0xca62c1d6;
        uint32_t next = rotate(a, 5) + f + e + k + w[i];
        e = d, d = c, c = rotate(b, 30), b = a, a = next;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
}

void sha1(const void *data, size_t len, uint8_t out[SHA1_SIZE])
{
    uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    uint8_t tail[2 * BLOCK] = {0};
    const uint8_t *at = data;
    size_t left = len;

    for (; left >= BLOCK; at += BLOCK, left -= BLOCK)
        mix(state, at);
    if (left > 0)
        memcpy(tail, at, left);
    tail[left] = 0x80;
    size_t padded = left + 9 <= BLOCK ? BLOCK : 2 * BLOCK;
    for (unsigned i = 0; i < 8; i++)
        tail[padded - 1 - i] = (uint8_t)((uint64_t)len * 8 >> (8 * i));
    for (size_t i = 0; i < padded; i += BLOCK)
        mix(state, tail + i);
    for (unsigned i = 0; i < SHA1_SIZE; i++)
        out[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}
