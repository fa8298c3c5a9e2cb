/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netlink.c: sends messages to the kernel's configuration. The kernel answers within sendmsg(), so the answer is there
 * when it returns, and nothing here ever waits.
 */
#include "host/netlink.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

#include "jail/sys.h"

#define ATTR_HEAD sizeof(struct nlattr) /* NLA_HDRLEN is an int */
#define ANSWER_ROOM 16384u

static void *room(struct nl *nl, size_t len)
{
    size_t aligned = NLMSG_ALIGN(len);

    if (nl->full || aligned > NL_ROOM - nl->len) {
        nl->full = true;
        return NULL;
    }
    uint8_t *at = nl->data + nl->len;
    memset(at, 0, aligned);
    nl->len += aligned;
    return at;
}

size_t nl_begin(struct nl *nl, uint16_t type, uint16_t flags, const void *header, size_t header_len)
{
    size_t began = nl->len;
    uint8_t *at = room(nl, NLMSG_HDRLEN + header_len);

    if (at) {
        const struct nlmsghdr head = {.nlmsg_type = type, .nlmsg_flags = flags, .nlmsg_seq = ++nl->seq};
        memcpy(at, &head, sizeof head);
        memcpy(at + NLMSG_HDRLEN, header, header_len);
    }
    return began;
}

void nl_end(struct nl *nl, size_t began)
{
    uint32_t len = (uint32_t)(nl->len - began);

    if (!nl->full)
        memcpy(nl->data + began + offsetof(struct nlmsghdr, nlmsg_len), &len, sizeof len);
}

size_t nl_nest(struct nl *nl, uint16_t type)
{
    size_t began = nl->len;

    nl_put(nl, type | NLA_F_NESTED, NULL, 0);
    return began;
}

void nl_unnest(struct nl *nl, size_t began)
{
    uint16_t len = (uint16_t)(nl->len - began);

    if (!nl->full)
        memcpy(nl->data + began + offsetof(struct nlattr, nla_len), &len, sizeof len);
}

void nl_put(struct nl *nl, uint16_t type, const void *data, size_t len)
{
    const struct nlattr head = {.nla_len = (uint16_t)(ATTR_HEAD + len), .nla_type = type};
    uint8_t *at = room(nl, ATTR_HEAD + len);

    if (!at)
        return;
    memcpy(at, &head, sizeof head);
    if (len > 0)
        memcpy(at + ATTR_HEAD, data, len);
}

void nl_put_raw(struct nl *nl, const void *data, size_t len)
{
    uint8_t *at = room(nl, len);

    if (at)
        memcpy(at, data, len);
}

void nl_put_u32(struct nl *nl, uint16_t type, uint32_t value)
{
    nl_put(nl, type, &value, sizeof value);
}

void nl_put_be32(struct nl *nl, uint16_t type, uint32_t value)
{
    nl_put_u32(nl, type, htonl(value));
}

void nl_put_text(struct nl *nl, uint16_t type, const char *text)
{
    nl_put(nl, type, text, strlen(text) + 1);
}

/* Looks through one datagram of answers; *acked is set by an acknowledgement. */
static int read_answers(const uint8_t *data, size_t len, bool *acked)
{
    while (len >= NLMSG_HDRLEN) {
        struct nlmsghdr head;
        struct nlmsgerr error;

        memcpy(&head, data, sizeof head);
        if (head.nlmsg_len < NLMSG_HDRLEN || head.nlmsg_len > len)
            return -EPROTO;
        if (head.nlmsg_type == NLMSG_ERROR) {
            if (head.nlmsg_len < NLMSG_HDRLEN + sizeof error)
                return -EPROTO;
            memcpy(&error, data + NLMSG_HDRLEN, sizeof error);
            if (error.error < 0)
                return error.error;
            *acked = true;
        }
        size_t step = NLMSG_ALIGN(head.nlmsg_len);
        data += step < len ? step : len;
        len -= step < len ? step : len;
    }
    return 0;
}

int nl_talk(int sock, const struct nl *nl)
{
    static uint8_t answer[ANSWER_ROOM]; /* one caller at a time */
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    bool acked = false;

    if (nl->full)
        return -EMSGSIZE;
    if (SYS(sendto(sock, nl->data, nl->len, 0, (const struct sockaddr *)&kernel, sizeof kernel)) < 0)
        return -errno;
    for (;;) {
        ssize_t n = RETRY(recv(sock, answer, sizeof answer, MSG_DONTWAIT));
        if (n < 0)
            return errno != EAGAIN ? -errno : acked ? 0 : -EPROTO;
        int r = read_answers(answer, (size_t)n, &acked);
        if (r < 0)
            return r;
    }
}
