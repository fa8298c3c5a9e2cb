/* SPDX-License-Identifier: Apache-2.0 */
/* net_policy.h: what the files behind net_flags.h share. */
#ifndef BRIG_CLI_NET_POLICY_H
#define BRIG_CLI_NET_POLICY_H

#include "cli/net_flags.h"

int net_policy_read(const char *path, struct json_doc **ret, struct brig_err *err) MUST_CHECK;
#define AUTO_NET_DOC __attribute__((cleanup(net_doc_free)))
static inline void net_doc_free(struct json_doc **doc)
{
    json_doc_free(*doc);
}

/*
 * Writes one object of all parts and the rules of the flags. If several parts have a member, the last one counts.
 * extends: that member stays.
 */
void net_policy_merge(const struct net_flags *flags, const struct json_value *const *parts, size_t n, bool extends,
                      struct json *json);
void net_policy_put(const struct net_flags *flags, struct json *json);

#endif
