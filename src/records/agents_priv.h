/* SPDX-License-Identifier: Apache-2.0 */
/* agents_priv.h: shared by agents.c, agent_put.c and agent_state.c. */
#ifndef BRIG_RECORDS_AGENTS_PRIV_H
#define BRIG_RECORDS_AGENTS_PRIV_H

#include "records/agents.h"
#include "records/sealed_value.h"

#define AGENT_TOOLS_MAX 1000u
#define AGENT_SECRETS_MAX 1000u

struct agents {
    struct objects *objects;
    struct sealer sealer;
    char *legacy_key; /* wiping memory */
    size_t legacy_len;
};

/* agent_state.c */
int agent_state_check(const struct json_value *state, struct brig_err *err) MUST_CHECK;
int agent_blocks_check(const struct json_value *blocks, struct brig_err *err) MUST_CHECK;

#endif
