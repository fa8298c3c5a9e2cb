/* SPDX-License-Identifier: Apache-2.0 */
/* agent_doc.h: an agent as Letta's clients send and read it, and as records/agents.h keeps it. */
#ifndef BRIG_LETTA_AGENT_DOC_H
#define BRIG_LETTA_AGENT_DOC_H

#include "letta/letta.h"
#include "records/agents.h"

#define AGENT_DOC_MAX (4u << 20)

/* The body of a create or an update as agents_put() takes it: tools as ids, memory blocks as state, secrets under one
 * name. false: the refusal was sent. out may hold secrets. */
bool agent_body_build(struct request *rq, bool update, struct buf *out) MUST_CHECK;
/*
 * The agent, with its tools in full; secrets without values unless the administrator wants them shown. ctx: struct
 * request.
 */
void agent_doc_put(void *ctx, struct json *json, const struct object *agent);
/* A member of Letta's agent that is only kept (`other` in records/agents.h); or NULL. */
const struct json_value *agent_besides(const struct object *agent, const char *name);
/* Is it the rule that runs of this tool need an approval? */
bool agent_rule_is(const struct json_value *rule, const char *tool_name);
/* Do the agent's tool_rules ask for an approval of this tool? */
bool agent_wants_approval(const struct object *agent, const char *tool_name);

#endif
