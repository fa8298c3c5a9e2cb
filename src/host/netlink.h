/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netlink.h: the netlink messages that give a sandbox's network namespace its routes (rtnetlink) and its redirect
 * (nfnetlink). Messages are put together in one bounded buffer; a message that does not fit is an error when it is
 * sent.
 */
#ifndef BRIG_HOST_NETLINK_H
#define BRIG_HOST_NETLINK_H

#include <linux/netlink.h>

#include "base/base.h"

#define NL_ROOM 8192u

struct nl {
    size_t len;
    bool full; /* Something did not fit. */
    uint32_t seq;
    _Alignas(NLMSG_ALIGNTO) uint8_t data[NL_ROOM];
};

/* Returns where a message, or a nest of attributes, began. The matching end fills in its length. */
size_t nl_begin(struct nl *nl, uint16_t type, uint16_t flags, const void *header, size_t header_len);
void nl_end(struct nl *nl, size_t began);
size_t nl_nest(struct nl *nl, uint16_t type);
void nl_unnest(struct nl *nl, size_t began);
void nl_put(struct nl *nl, uint16_t type, const void *data, size_t len);
void nl_put_raw(struct nl *nl, const void *data, size_t len); /* Without an attribute's head. */
void nl_put_u32(struct nl *nl, uint16_t type, uint32_t value);
void nl_put_be32(struct nl *nl, uint16_t type, uint32_t value);
void nl_put_text(struct nl *nl, uint16_t type, const char *text); /* Writes it with its NUL. */
/*
 * Sends all messages and reads the kernel's answers. Returns 0 if the last message that asked for an answer was
 * acknowledged and nothing failed.
 */
int nl_talk(int sock, const struct nl *nl) MUST_CHECK;

#endif
