/* SPDX-License-Identifier: Apache-2.0 */
/* id.c: random ids. If the generator fails, that is an error; no weaker id is made. */
#include "base/id.h"

#include <sys/random.h>

static int random_bytes(uint8_t out[ID_BYTES])
{
    size_t have = 0;

    while (have < ID_BYTES) {
        ssize_t n = RETRY(getrandom(out + have, ID_BYTES - have, 0));
        if (n < 0)
            return -errno;
        have += (size_t)n;
    }
    return 0;
}

void id_format_run(char out[ID_RUN_SIZE], const uint8_t bytes[ID_BYTES])
{
    static const char hex[] = "0123456789abcdef";
    size_t at = 4;

    memcpy(out, "run-", 4);
    for (size_t i = 0; i < ID_BYTES; i++) {
        uint8_t b = bytes[i];
        if (i == 6)
            b = (uint8_t)((b & 0x0f) | 0x40); /* RFC 9562: version 4 */
        if (i == 8)
            b = (uint8_t)((b & 0x3f) | 0x80); /* and its variant */
        if (i == 4 || i == 6 || i == 8 || i == 10)
            out[at++] = '-';
        out[at++] = hex[b >> 4];
        out[at++] = hex[b & 15];
    }
    out[at] = '\0';
}

void id_format_sandbox(char out[ID_SANDBOX_SIZE], const uint8_t bytes[ID_BYTES])
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";
    uint32_t bits = 0;
    unsigned n_bits = 2; /* two zero bits in front make 26 groups of five, the first of them a letter */
    size_t at = 0;

    for (size_t i = 0; i < ID_BYTES; i++) {
        bits = bits << 8 | bytes[i];
        n_bits += 8;
        while (n_bits >= 5) {
            n_bits -= 5;
            out[at++] = alphabet[bits >> n_bits & 31];
        }
    }
    out[at] = '\0';
}

int id_run(char out[ID_RUN_SIZE])
{
    uint8_t bytes[ID_BYTES];
    int r = random_bytes(bytes);

    if (r == 0)
        id_format_run(out, bytes);
    return r;
}

int id_sandbox(char out[ID_SANDBOX_SIZE])
{
    uint8_t bytes[ID_BYTES];
    int r = random_bytes(bytes);

    if (r == 0)
        id_format_sandbox(out, bytes);
    return r;
}
