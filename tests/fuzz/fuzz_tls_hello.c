/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ClientHellos. One that is accepted is accepted with exactly the bytes it took, whatever follows, and not with fewer;
 * its name is in canonical form. More bytes never turn a refusal into something else.
 */
#include "fuzz.h"

#include "codec/tls_hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tls_hello hello, again;
    char name[DNS_NAME_MAX];
    int r = tls_hello_parse(data, size, &hello);

    FUZZ_CHECK(r >= 0 || r == -EBADMSG || r == -EPROTO);
    if (r > 0) {
        FUZZ_CHECK((size_t)r <= size && (size_t)r <= TLS_HELLO_MAX);
        FUZZ_CHECK(tls_hello_parse(data, (size_t)r, &again) == r);
        FUZZ_CHECK(strcmp(hello.name, again.name) == 0);
        FUZZ_CHECK(hello.has_name == (hello.name[0] != '\0'));
        if (hello.has_name)
            FUZZ_CHECK(dns_name_canonical(hello.name, strlen(hello.name), name) == 0 && strcmp(name, hello.name) == 0);
    }
    for (size_t n = 0; n < size && n < 600; n++) {
        int part = tls_hello_parse(data, n, &again);
        FUZZ_CHECK(r > 0 ? part == (n < (size_t)r ? 0 : r) : part == 0 || part == r);
    }
    FUZZ_CHECK(r != 0 || size < TLS_HELLO_MAX);
    return 0;
}
