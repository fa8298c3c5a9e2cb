/* SPDX-License-Identifier: Apache-2.0 */
/* sockaddr.c: addresses of sockets, see sockaddr.h. */
#include "base/sockaddr.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/str.h"

socklen_t sock_addr_parse(const char *host, uint16_t port, union sock_addr *ret)
{
    char number[INET6_ADDRSTRLEN];
    size_t len = strlen(host);

    memset(ret, 0, sizeof *ret);
    if (inet_pton(AF_INET, host, &ret->v4.sin_addr) == 1) {
        ret->v4.sin_family = AF_INET;
        ret->v4.sin_port = htons(port);
        return sizeof ret->v4;
    }
    if (len < 2 || host[0] != '[' || host[len - 1] != ']' ||
        str_format(number, sizeof number, "%.*s", (int)(len - 2), host + 1) < 0 ||
        inet_pton(AF_INET6, number, &ret->v6.sin6_addr) != 1)
        return 0;
    ret->v6.sin6_family = AF_INET6;
    ret->v6.sin6_port = htons(port);
    return sizeof ret->v6;
}
