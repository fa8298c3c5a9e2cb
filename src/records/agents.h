/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agents.h: agents: kind "agent", id "agent-<uuid4>": {name, project_id, tools: [ids], state: {"memory": {"blocks":
 * [{label, value, limit}]}, ...}, secrets (sealed, each with id "agent-env-<uuid4>"), other}. `other` has what else a
 * Letta agent has; it is kept and returned, and nothing here acts on it.
 */
#ifndef BRIG_RECORDS_AGENTS_H
#define BRIG_RECORDS_AGENTS_H

#include "records/configs.h"

#define AGENTS_PER_ORG 10000u
#define AGENT_STATE_MAX (1u << 20)

struct agents;
int agents_create(struct store *store, const struct keyring *ring, bool plain, struct agents **ret,
                  struct brig_err *err) MUST_CHECK;
void agents_destroy(struct agents *agents);
/* [tools] legacy_key: opens what Letta has stored ("" none). Copied. */
int agents_set_legacy_key(struct agents *agents, const char *key) MUST_CHECK;
struct objects *agents_objects(struct agents *agents);
/*
 * Makes an agent (id NULL) or changes one (BRIG_E_NOT_FOUND if there is none). A member that is given replaces the old
 * one; `secrets` and tool_exec_environment_variables replace the whole set, and {} clears it. A member that is absent
 * or null stays. `tools` or tool_ids has the ids of tools. memory_blocks are the blocks of `state` if there is no
 * `state`. Everything else goes to `other`. BRIG_E_INVALID names the member.
 */
int agents_put(struct agents *agents, const char *org, const char *actor, const char *id, const struct json_value *json,
               objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
int agents_attach(struct agents *agents, const char *org, const char *actor, const char *id, const char *tool_id,
                  bool on, objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
int agents_set_state(struct agents *agents, const char *org, const char *id, uint64_t version, const char *state,
                     size_t len, objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
/* Sets one secret, or removes it (secret NULL; BRIG_E_NOT_FOUND if there is none). The others stay. BRIG_E_CONFLICT if
 * there is no key to seal with; BRIG_E_INVALID; BRIG_E_LIMIT. */
struct agent_secret {
    const char *value; /* text; copied into wiping memory */
    size_t len;
    const char *description; /* NULL: as it was */
};
int agents_set_secret(struct agents *agents, const char *org, const char *actor, const char *id, const char *key,
                      const struct agent_secret *secret, objects_done_fn *done, void *ctx,
                      struct brig_err *err) MUST_CHECK;
/* Members of its document; or NULL. */
const char *agent_name(const struct object *agent);
const struct json_value *agent_tools(const struct object *agent); /* array of ids */
/* array of {id, key, sealed}, which no answer may show as it is */
const struct json_value *agent_secret_list(const struct object *agent);
bool agent_has_tool(const struct object *agent, const char *tool_id);
/* Calls each() for every secret. name and value are in memory that is wiped, and are valid during the call. */
int agent_secrets(const struct agents *agents, const struct object *agent,
                  int (*each)(void *ctx, const char *name, const char *value, size_t len), void *ctx,
                  struct brig_err *err) MUST_CHECK;
const struct json_value *agent_state(const struct object *agent); /* or NULL */
const char *agent_project(const struct object *agent);            /* or NULL */
int agents_rotate(struct agents *agents, void (*done)(void *ctx, uint64_t resealed, const struct brig_err *err),
                  void *ctx, struct brig_err *err) MUST_CHECK;

#endif
