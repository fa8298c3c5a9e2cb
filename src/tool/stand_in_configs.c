/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/agents.h"
#include "base/err.h"
const struct object *configs_by_type(const struct configs *configs, const char *org, const char *type) { (void)configs, (void)org, (void)type; return NULL; }
struct objects *configs_variables(struct configs *configs) { (void)configs; return NULL; }
int variable_reveal(const struct configs *configs, const struct object *variable, uint8_t **ret, size_t *ret_len, struct brig_err *err) { (void)configs, (void)variable, (void)ret, (void)ret_len; return err_nomem(err); }
int config_complete(const struct configs *configs, const char *type, const struct json_value *config, const struct json_value *old, struct buf *ret, struct brig_err *err) { (void)configs, (void)type, (void)config, (void)old, (void)ret; return err_nomem(err); }
int config_fingerprint(const char *type, const char *org, const struct json_value *config, char out[FINGERPRINT_MAX]) { (void)type, (void)org, (void)config, (void)out; return -ENOSYS; }
struct objects *agents_objects(struct agents *agents) { (void)agents; return NULL; }
int agents_set_state(struct agents *agents, const char *org, const char *id, uint64_t version, const char *state, size_t len, objects_done_fn *done, void *ctx, struct brig_err *err) { (void)agents, (void)org, (void)id, (void)version, (void)state, (void)len, (void)done, (void)ctx; return err_nomem(err); }
int agent_secrets(const struct agents *agents, const struct object *agent, int (*each)(void *ctx, const char *name, const char *value, size_t len), void *ctx, struct brig_err *err) { (void)agents, (void)agent, (void)each, (void)ctx; return err_nomem(err); }
const struct json_value *agent_state(const struct object *agent) { return json_get(agent->json, "state"); }
const char *agent_project(const struct object *agent) { (void)agent; return NULL; }
