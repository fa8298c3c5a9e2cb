/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec.h: parts of a sandbox's specification that other requests have too: a tool's and a run's limits, network and
 * secrets are read and judged as those of a sandbox are. Errors are BRIG_E_USAGE, or BRIG_E_FORBIDDEN where the caller
 * may not ask for it, in one line that names the member and the rule.
 */
#ifndef BRIG_SANDBOX_SPEC_H
#define BRIG_SANDBOX_SPEC_H

#include "codec/json/json_read.h"
#include "sandbox/manager.h"

/* Reads a positive number of bytes, or text such as "512m". */
int spec_size(const struct json_value *v, const char *key, uint64_t *ret, struct brig_err *err) MUST_CHECK;
/* Reads seconds as a number, or text with a unit. */
int spec_duration(const struct json_value *v, const char *key, uint64_t *ret_ms, struct brig_err *err) MUST_CHECK;
/* Reads the members of `limits` that are there; the others of *ret stay. */
int spec_limits_asked(const struct json_value *v, struct brig_limits *ret, struct brig_err *err) MUST_CHECK;
/* Checks how many connections at once a caller may ask for; where is "limits.connections". */
int spec_connections(int64_t connections, const char *where, enum standing who, const struct config *config,
                     struct brig_err *err) MUST_CHECK;
/* who: `[gate] private_ranges` says from which standing on a policy may name private ranges. */
int spec_network(const struct json_value *v, enum standing who, const struct config *config, char **ret,
                 struct brig_err *err) MUST_CHECK;
int spec_network_default(const struct config *config, char **ret, struct brig_err *err) MUST_CHECK;
/* The list and its strings lie in *ret_memory, which the caller frees. */
int spec_secrets_read(const struct json_value *v, char **ret_memory, struct sbox_secret **ret, size_t *ret_n,
                      struct brig_err *err) MUST_CHECK;

#endif
