/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls_hello.c: reads a ClientHello on behalf of somebody who is not the server. The server must not be able to read
 * another name out of the same bytes. So everything is refused on which implementations differ: repeated extensions,
 * several names, names with other bytes than a host name has, lengths that leave a rest, a hello that ends in the
 * middle of a record.
 *
 * The records are walked first, which costs nothing while bytes are missing. The message is put together only when it
 * is complete, and in place when one record holds it.
 */
#include "codec/tls_hello.h"

#define RECORD_HEADER 5u
#define RECORD_MAX 16384u
#define HANDSHAKE_HEADER 4u
#define EXTENSIONS_MAX 64u

enum { TYPE_HANDSHAKE = 22, CLIENT_HELLO = 1 };
enum {
    EXT_SERVER_NAME = 0,
    EXT_ALPN = 16,
    EXT_EARLY_DATA = 42,
    EXT_ECH = 0xfe0d,
    EXT_ECH_DRAFTS = 0xfe08,
    EXT_ESNI = 0xffce
};

/* What is left of a vector. Taking more than that is false and takes nothing. */
struct part {
    const uint8_t *data;
    size_t len;
};

static bool take(struct part *from, size_t len, struct part *ret)
{
    if (len > from->len)
        return false;
    *ret = (struct part){from->data, len};
    from->data += len;
    from->len -= len;
    return true;
}

static bool take_number(struct part *from, size_t bytes, uint32_t *ret)
{
    struct part p;
    uint32_t value = 0;

    if (!take(from, bytes, &p))
        return false;
    for (size_t i = 0; i < bytes; i++)
        value = value << 8 | p.data[i];
    *ret = value;
    return true;
}

/* A vector with a length of so many bytes before it. */
static bool take_vector(struct part *from, size_t length_bytes, struct part *ret)
{
    uint32_t len;

    return take_number(from, length_bytes, &len) && take(from, len, ret);
}

static bool read_server_name(struct part ext, struct tls_hello *ret)
{
    struct part list, name;
    uint32_t type;

    if (!take_vector(&ext, 2, &list) || ext.len > 0)
        return false;
    if (!take_number(&list, 1, &type) || type != 0 || !take_vector(&list, 2, &name) || list.len > 0)
        return false;
    if (dns_name_canonical((const char *)name.data, name.len, ret->name) < 0)
        return false;
    ret->has_name = true;
    return true;
}

static bool read_alpn(struct part ext, struct tls_hello *ret)
{
    struct part list, protocol;

    if (!take_vector(&ext, 2, &list) || ext.len > 0 || list.len == 0)
        return false;
    while (list.len > 0) {
        if (!take_vector(&list, 1, &protocol) || protocol.len == 0)
            return false;
        ret->n_alpn++;
        ret->alpn_h2 |= protocol.len == 2 && memcmp(protocol.data, "h2", 2) == 0;
        ret->alpn_http11 |= protocol.len == 8 && memcmp(protocol.data, "http/1.1", 8) == 0;
    }
    return true;
}

static bool read_extension(uint32_t type, struct part ext, struct tls_hello *ret)
{
    switch (type) {
    case EXT_SERVER_NAME: return read_server_name(ext, ret);
    case EXT_ALPN: return read_alpn(ext, ret);
    case EXT_EARLY_DATA: ret->early_data = true; return ext.len == 0;
    case EXT_ESNI: ret->ech = true; return true;
    default: ret->ech |= type >= EXT_ECH_DRAFTS && type <= EXT_ECH; return true;
    }
}

static bool read_extensions(struct part list, struct tls_hello *ret)
{
    uint16_t seen[EXTENSIONS_MAX];
    size_t n = 0;

    while (list.len > 0) {
        struct part ext;
        uint32_t type;

        if (n == EXTENSIONS_MAX || !take_number(&list, 2, &type) || !take_vector(&list, 2, &ext))
            return false;
        for (size_t i = 0; i < n; i++) {
            if (seen[i] == type)
                return false;
        }
        seen[n++] = (uint16_t)type;
        if (!read_extension(type, ext, ret))
            return false;
    }
    return true;
}

/* The message behind its four bytes of header (RFC 8446, 4.1.2; RFC 5246, 7.4.1.2). */
static bool read_hello(struct part body, struct tls_hello *ret)
{
    struct part random, session, suites, compression, extensions;
    uint32_t version;

    if (!take_number(&body, 2, &version) || version >> 8 != 3 || !take(&body, 32, &random))
        return false;
    if (!take_vector(&body, 1, &session) || session.len > 32)
        return false;
    if (!take_vector(&body, 2, &suites) || suites.len < 2 || suites.len % 2 != 0)
        return false;
    if (!take_vector(&body, 1, &compression) || compression.len == 0)
        return false;
    if (body.len == 0) /* before TLS 1.3 extensions could be missing */
        return true;
    return take_vector(&body, 2, &extensions) && body.len == 0 && read_extensions(extensions, ret);
}

/*
 * Walks the records. Returns how many bytes of `data` the hello takes, or 0 if more are needed, and the length of the
 * message. header gets the first bytes of the message, wherever the records cut them.
 */
static int walk_records(const uint8_t *data, size_t len, size_t *ret_message)
{
    uint8_t header[HANDSHAKE_HEADER];
    size_t at = 0, have = 0, message = 0;

    for (;;) {
        if (at < len && data[at] != TYPE_HANDSHAKE)
            return at == 0 ? -EPROTO : -EBADMSG;
        if (at + 1 < len && data[at + 1] != 3)
            return at == 0 ? -EPROTO : -EBADMSG;
        if (len - at < RECORD_HEADER)
            return 0;
        size_t size = (size_t)data[at + 3] << 8 | data[at + 4];
        if (size == 0 || size > RECORD_MAX || at + RECORD_HEADER + size > TLS_HELLO_MAX)
            return -EBADMSG;
        at += RECORD_HEADER;
        for (size_t i = 0; i < size && have + i < HANDSHAKE_HEADER && at + i < len; i++) {
            header[have + i] = data[at + i];
            if (header[0] != CLIENT_HELLO)
                return -EBADMSG;
        }
        if (len - at < size && have + (len - at) < HANDSHAKE_HEADER)
            return 0;
        have += size;
        if (have >= HANDSHAKE_HEADER) {
            message = HANDSHAKE_HEADER + ((size_t)header[1] << 16 | (size_t)header[2] << 8 | header[3]);
            if (have > message || message > TLS_HELLO_MAX)
                return -EBADMSG;
        }
        if (len - at < size)
            return 0;
        at += size;
        if (have == message && message > 0) {
            *ret_message = message;
            return (int)at;
        }
    }
}

int tls_hello_parse(const uint8_t *data, size_t len, struct tls_hello *ret)
{
    struct tls_hello hello = {0};
    uint8_t joined[TLS_HELLO_MAX];
    size_t message = 0;
    int taken = walk_records(data, len, &message);

    if (taken <= 0)
        return taken;
    const uint8_t *start = data + RECORD_HEADER;
    if ((size_t)taken != RECORD_HEADER + message) {
        size_t n = 0;
        for (size_t at = 0; at < (size_t)taken;) {
            size_t size = (size_t)data[at + 3] << 8 | data[at + 4];
            memcpy(joined + n, data + at + RECORD_HEADER, size);
            n += size;
            at += RECORD_HEADER + size;
        }
        start = joined;
    }
    if (!read_hello((struct part){start + HANDSHAKE_HEADER, message - HANDSHAKE_HEADER}, &hello))
        return -EBADMSG;
    *ret = hello;
    return taken;
}
