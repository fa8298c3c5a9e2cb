/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environment.h: the environment of a run, in layers; later wins: base allow-list < sandbox variables < webhook
 * credentials and PROJECT_ID < agent variables < runtime variables of the call < forced ids (LETTA_AGENT_ID,
 * LETTA_PROJECT_ID, LETTA_TOOL_ID, BRIG_RUN_ID). Never the daemon's own, but for TOOL_* where `[tools] pass_tool_env`
 * is on. The fixed ones of Letta (PYTHONWARNINGS=ignore, NO_COLOR=1, TERM=dumb, PYTHONUNBUFFERED=1) are base.
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
/* What every run has; with pass_tool_env also TOOL_* of environ (as secrets), but for the service's own settings
 * TOOL_EXEC_* and TOOL_SANDBOX_*. */
int environment_add_base(struct environment *env, bool pass_tool_env, struct brig_err *err) MUST_CHECK;
/* BRIG_E_USAGE: a name that is none, a NUL, too many, too large; names the name, never the value. secret: its value is
 * scrubbed from output (environment_each). */
int environment_add(struct environment *env, enum env_layer layer, const char *name, const char *value, size_t len,
                    bool secret, struct brig_err *err) MUST_CHECK;
/* An object of strings (env_vars of a call); null members are dropped; others than strings: BRIG_E_USAGE. */
int environment_add_json(struct environment *env, enum env_layer layer, const struct json_value *object,
                         struct brig_err *err) MUST_CHECK;
/* The winners, in the order of their names. Valid until the next add. */
size_t environment_pairs(struct environment *env, const struct sbox_pair **ret);
/* {"NAME": "layer it came from"}; with all: {"NAME": {"layer": ..., "over": ["base", ...]}}. Values never. */
struct json;
void environment_json(const struct environment *env, bool all, struct json *json);
void environment_each_secret(const struct environment *env, void (*each)(void *ctx, const char *value, size_t len),
                             void *ctx);

#endif
