/* SPDX-License-Identifier: Apache-2.0 */
/* SOCKS5: a message is taken whole or not at all, a prefix of it is never enough, and a name is canonical. */
#include "fuzz.h"

#include "codec/socks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct socks_request request;
    enum socks_reply reply;
    char name[DNS_NAME_MAX];
    int greeting = socks_greeting_parse(data, size);
    int r = socks_request_parse(data, size, &request, &reply);

    FUZZ_CHECK(greeting >= 0 || greeting == -EPROTO || greeting == -EACCES);
    FUZZ_CHECK(greeting <= 0 || ((size_t)greeting <= size && socks_greeting_parse(data, (size_t)greeting - 1) == 0));
    FUZZ_CHECK(r >= 0 || r == -EPROTO || r == -EOPNOTSUPP || r == -EINVAL);
    FUZZ_CHECK((r < 0) == (reply != SOCKS_OK));
    if (r <= 0)
        return 0;
    FUZZ_CHECK((size_t)r <= size && r >= 10 - 2);
    if (request.is_name)
        FUZZ_CHECK(dns_name_canonical(request.name, strlen(request.name), name) == 0 &&
                   strcmp(name, request.name) == 0);
    FUZZ_CHECK(socks_request_parse(data, (size_t)r - 1, &request, &reply) == 0);
    return 0;
}
