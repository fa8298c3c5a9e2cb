/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environment.h: the environment of a run, in layers. The order is: base allow-list < sandbox variables < webhook
 * credentials and PROJECT_ID < agent variables < runtime variables of the call < forced ids (LETTA_AGENT_ID,
 * LETTA_PROJECT_ID, LETTA_TOOL_ID, BRIG_RUN_ID); a later layer wins. It never has the daemon's own variables, except
 * TOOL_* if `[tools] pass_tool_env` is on. Letta's fixed variables (PYTHONWARNINGS=ignore, NO_COLOR=1, TERM=dumb,
 * PYTHONUNBUFFERED=1) are in the base. Values are in wiping memory.
 */
#ifndef BRIG_RUN_ENVIRONMENT_H
#define BRIG_RUN_ENVIRONMENT_H

#include "sandbox/manager.h"

enum env_layer { ENV_BASE, ENV_SANDBOX, ENV_WEBHOOK, ENV_AGENT, ENV_RUNTIME, ENV_FORCED, ENV_LAYER_MAX };
const char *env_layer_name(enum env_layer layer); /* base, sandbox, webhook, agent, runtime, forced */

#define ENVIRONMENT_MAX 2000u
#define ENVIRONMENT_BYTES (1u << 20)

struct arena;
struct environment;
/* Names and values lie in the arena. */
int environment_create(struct arena *arena, struct environment **ret) MUST_CHECK;
void environment_destroy(struct environment *env); /* before its arena; takes NULL */
/*
 * Adds what every run has; with pass_tool_env also TOOL_* of environ (as secrets), except the service's own settings
 * TOOL_EXEC_* and TOOL_SANDBOX_*.
 */
int environment_add_base(struct environment *env, bool pass_tool_env, struct brig_err *err) MUST_CHECK;
/*
 * BRIG_E_USAGE: a bad name, a NUL, too many, too large. The message has the name, never the value. secret: its value is
 * scrubbed from output (environment_each_secret()).
 */
int environment_add(struct environment *env, enum env_layer layer, const char *name, const char *value, size_t len,
                    bool secret, struct brig_err *err) MUST_CHECK;
/* The same for a text that is no secret; NULL and "" add nothing. */
int environment_add_text(struct environment *env, enum env_layer layer, const char *name, const char *text,
                         struct brig_err *err) MUST_CHECK;
/* Adds an object of strings (env_vars of a call). null members are dropped; other types are BRIG_E_USAGE. */
int environment_add_json(struct environment *env, enum env_layer layer, const struct json_value *object,
                         struct brig_err *err) MUST_CHECK;
/* Returns the winners in the order of their names. They are valid until the next add. */
size_t environment_pairs(struct environment *env, const struct sbox_pair **ret);
/*
 * Writes {"NAME": "layer it came from"}; with all: {"NAME": {"layer": ..., "over": ["base", ...]}}. It never writes
 * values.
 */
struct json;
void environment_json(const struct environment *env, bool all, struct json *json);
void environment_each_secret(const struct environment *env, void (*each)(void *ctx, const char *value, size_t len),
                             void *ctx);

#endif
