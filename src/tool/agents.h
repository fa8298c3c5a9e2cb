/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agents.h: agents: kind "agent", id "agent-<uuid4>": {name, project_id, tools: [ids], state: {"memory": {"blocks": [{label, value, limit}]}, ...}, secrets (sealed, each with
 * id "agent-env-<uuid4>"), other: what a full Letta agent has besides, kept and returned, never acted on}.
 */
#ifndef BRIG_TOOL_AGENTS_H
#define BRIG_TOOL_AGENTS_H

#include "tool/configs.h"

#define AGENTS_PER_ORG 10000u
#define AGENT_STATE_MAX (1u << 20)

struct agents;
int agents_create(struct store *store, const struct keyring *ring, bool plain, struct agents **ret, struct brig_err *err) MUST_CHECK;
void agents_destroy(struct agents *agents);
struct objects *agents_objects(struct agents *agents);
/* Create (id NULL) or PATCH: members given replace (secrets or tool_exec_environment_variables: the whole set; {} clears), others stay. */
int agents_put(struct agents *agents, const char *org, const char *actor, const char *id, const struct json_value *json, objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
int agents_attach(struct agents *agents, const char *org, const char *actor, const char *id, const char *tool_id, bool on, objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
int agents_set_state(struct agents *agents, const char *org, const char *id, uint64_t version, const char *state, size_t len, objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
bool agent_has_tool(const struct object *agent, const char *tool_id);
/* Each secret: name and value in wiping memory, valid during the call. */
int agent_secrets(const struct agents *agents, const struct object *agent, int (*each)(void *ctx, const char *name, const char *value, size_t len), void *ctx, struct brig_err *err) MUST_CHECK;
const struct json_value *agent_state(const struct object *agent); /* or NULL */
const char *agent_project(const struct object *agent);            /* or NULL */
int agents_rotate(struct agents *agents, void (*done)(void *ctx, uint64_t resealed, const struct brig_err *err), void *ctx, struct brig_err *err) MUST_CHECK;

#endif
