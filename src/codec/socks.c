/* SPDX-License-Identifier: Apache-2.0 */
/*
 * socks.c: the server's side of SOCKS5. A refusal is sent as soon as it is certain; nothing is read past the end of a
 * message.
 */
#include "codec/socks.h"

enum { VERSION = 5, CONNECT = 1, TYPE_V4 = 1, TYPE_NAME = 3, TYPE_V6 = 4, NO_AUTHENTICATION = 0, NO_METHOD = 0xff };

int socks_greeting_parse(const uint8_t *data, size_t len)
{
    if (len > 0 && data[0] != VERSION)
        return -EPROTO;
    if (len < 2 || len < 2u + data[1])
        return len >= 2 && data[1] == 0 ? -EACCES : 0;
    if (!memchr(data + 2, NO_AUTHENTICATION, data[1]))
        return -EACCES;
    return 2 + data[1];
}

static int refuse(enum socks_reply reply, int r, enum socks_reply *ret_reply)
{
    *ret_reply = reply;
    return r;
}

/* How many bytes the address and the port take, from the first five; 0: not known yet. */
static int address_size(const uint8_t *data, size_t len)
{
    switch (data[3]) {
    case TYPE_V4: return 4 + 2;
    case TYPE_V6: return 16 + 2;
    case TYPE_NAME: return len < 5 ? 0 : 1 + data[4] + 2;
    default: return -EOPNOTSUPP;
    }
}

int socks_request_parse(const uint8_t *data, size_t len, struct socks_request *ret, enum socks_reply *ret_reply)
{
    struct socks_request request = {0};

    *ret_reply = SOCKS_OK;
    if ((len > 0 && data[0] != VERSION) || (len > 2 && data[2] != 0))
        return refuse(SOCKS_FAILURE, -EPROTO, ret_reply);
    if (len > 1 && data[1] != CONNECT)
        return refuse(SOCKS_BAD_COMMAND, -EOPNOTSUPP, ret_reply);
    if (len < 4)
        return 0;
    int size = address_size(data, len);
    if (size < 0)
        return refuse(SOCKS_BAD_ADDRESS, size, ret_reply);
    if (size == 0 || len < 4u + (size_t)size)
        return 0;
    const uint8_t *port = data + 4 + size - 2;
    request.port = (uint16_t)(port[0] << 8 | port[1]);
    request.is_name = data[3] == TYPE_NAME;
    request.v6 = data[3] == TYPE_V6;
    if (request.is_name) {
        if (dns_name_canonical((const char *)data + 5, data[4], request.name) < 0)
            return refuse(SOCKS_NOT_ALLOWED, -EINVAL, ret_reply);
    } else {
        memcpy(request.address, data + 4, (size_t)size - 2);
    }
    *ret = request;
    return 4 + size;
}

void socks_put_method(uint8_t out[2], bool accepted)
{
    out[0] = VERSION;
    out[1] = accepted ? NO_AUTHENTICATION : NO_METHOD;
}

/*
 * The bound address is 0.0.0.0:0. The real one would say something about this host, and no client needs it for CONNECT.
 */
void socks_put_reply(uint8_t out[10], enum socks_reply reply)
{
    memset(out, 0, 10);
    out[0] = VERSION;
    out[1] = (uint8_t)reply;
    out[3] = TYPE_V4;
}
