/* SPDX-License-Identifier: Apache-2.0 */
/*
 * configs.h: sandbox configurations: kind "config", id "sandbox-<uuid4>", one per (organisation, type); their
 * variables: kind "variable", id "sandbox-env-<uuid4>", unique key per configuration; and the fingerprint
 *. A configuration's document: {"type", "config": {...}, "created_by_id", "last_updated_by_id"};
 * `config` is as stored (nulls removed, defaults included), and what the fingerprint is over.
 */
#ifndef BRIG_RECORDS_CONFIGS_H
#define BRIG_RECORDS_CONFIGS_H

#include "config/config.h"
#include "crypto/keyring.h"
#include "records/caller.h"
#include "records/objects.h"

#define CONFIG_TYPE_MAX 32u /* [a-z][a-z0-9_-]*: local, e2b, modal, docker, daytona, ... */
#define VARIABLES_MAX 1000u /* per configuration; names [A-Za-z_][A-Za-z0-9_]{0,255}, values 64 KiB without NUL */
#define FINGERPRINT_MAX 80u /* 78 digits */
#define VARIABLE_VALUE_MAX 65536u

struct configs;
/*
 * What the service's settings say: TOOL_EXEC_DIR and the like (config.h, [tools]). Outlives it. on_change: after each
 * commit, with the fingerprints before and after ("" none).
 */
struct configs_options {
    struct store *store;
    const struct keyring *ring;
    bool plain;
    const struct config *config;
    void (*on_change)(void *ctx, const char *org, const char *type, const char *id, const char *before,
                      const char *after);
    void *ctx;
};
int configs_create(const struct configs_options *options, struct configs **ret, struct brig_err *err) MUST_CHECK;
void configs_destroy(struct configs *configs);
struct objects *configs_objects(struct configs *configs);
struct objects *configs_variables(struct configs *configs);
void configs_configure(struct configs *configs, const struct config *config);

/*
 * Which type an object is of: its member `type`, or 2.4's intent: template or timeout alone: e2b; language or
 * npm_requirements: modal; pip as strings: e2b; else local.
 */
int config_resolve(const struct json_value *config, char type[CONFIG_TYPE_MAX], struct brig_err *err) MUST_CHECK;
/*
 * Checks an object against the fields of its type (2.3; lax as Letta: "60" is 60, "yes" is true; unknown keys
 * are dropped; requirement strings that are options, paths or URLs are refused unless `[tools] allow_urls`), adds
 * defaults, removes nulls. old: merged under it (PATCH); may be NULL. sandbox_dir: must be the default directory or
 * below one of `[sandbox] allowed_dirs`, else BRIG_E_FORBIDDEN naming it.
 */
int config_complete(const struct configs *configs, const char *type, const struct json_value *config,
                    const struct json_value *old, struct buf *ret, struct brig_err *err) MUST_CHECK;
/*
 * Whether a run may have this directory of the host under it: the default one, or one below `[sandbox] allowed_dirs`,
 * lexically. For whoever mounts: settings may have changed since.
 */
bool config_dir_allowed(const struct configs *configs, const char *path);
const char *configs_default_dir(const struct configs *configs); /* [tools] exec_dir, else <state>/tool_execution_dir */
/* Of a configuration's object. */
const char *config_type(const struct object *config);
const struct json_value *config_content(const struct object *config);
const char *config_object_fingerprint(const struct object *config);
enum standing config_written_as(const struct object *config); /* the weakest of those who wrote what is in it */
const struct object *configs_by_type(const struct configs *configs, const char *org, const char *type); /* or NULL */
/*
 * Create-or-update (id NULL: replaces what the one of this type has), or update by id (merges). One that is equal stays
 * as it is. default_only: an existing one is returned unchanged. config NULL: {}. type NULL: config's own
 * (config_resolve()); with an id it is the stored one unless config says otherwise by its member `type`, or has only
 * fields of another ("Mismatched type for sandbox config update: ...", BRIG_E_USAGE): so pass NULL with an id, that
 * {"timeout": 9} may be for any type.
 */
int configs_put(struct configs *configs, const char *org, const char *actor, enum standing as, const char *id,
                const char *type, const struct json_value *config, bool default_only, objects_done_fn *done, void *ctx,
                struct brig_err *err) MUST_CHECK;
/* with its variables */
int configs_delete(struct configs *configs, const char *org, const char *id, objects_done_fn *done, void *ctx,
                   struct brig_err *err) MUST_CHECK;

int config_fingerprint(const char *type, const char *org /* NULL: null */, const struct json_value *config,
                       char out[FINGERPRINT_MAX]) MUST_CHECK;

/* ---- variables: the document is {"config_id", "key", "description", "sealed": {...}}; values are sealed as secrets
 * are  */
const struct object *variables_by_key(const struct configs *configs, const char *org, const char *config_id,
                                      const char *key); /* or NULL */
/*
 * Upsert by key (id NULL; BRIG_E_CONFLICT without such a configuration) or update by id (BRIG_E_NOT_FOUND; config_id is
 * not looked at). NULL members stay. value NULL: stays. BRIG_E_CONFLICT: the key is another's; no key ring.
 */
struct variable_change {
    const char *key, *value, *description;
    size_t value_len;
    /* where value is NULL: as Letta stored it; opened with [tools] legacy_key (BRIG_E_CONFLICT without) and
     * sealed as ours at once */
    const char *value_enc;
};
int variables_put(struct configs *configs, const char *org, const char *actor, const char *config_id, const char *id,
                  const struct variable_change *change, objects_done_fn *done, void *ctx,
                  struct brig_err *err) MUST_CHECK;
int variables_delete(struct configs *configs, const char *org, const char *id, objects_done_fn *done, void *ctx,
                     struct brig_err *err) MUST_CHECK;
/* crypto_secret_free(). Reads Letta's stored form too. */
int variable_reveal(const struct configs *configs, const struct object *variable, uint8_t **ret, size_t *ret_len,
                    struct brig_err *err) MUST_CHECK;
bool variable_name_ok(const char *name);
const char *variable_config_id(const struct object *variable);
const char *variable_key(const struct object *variable);
const char *variable_description(const struct object *variable); /* or NULL */
/* The variables of one configuration, oldest first: the first after `after` (NULL: the first of all), or NULL. */
const struct object *variables_next(const struct configs *configs, const char *org, const char *config_id,
                                    const struct object *after);
/* Seals everything (variables) that is under another key than the current one again, in the background of the loop;
 * done with how many. For `brig secret rotate`. */
int configs_rotate(struct configs *configs, void (*done)(void *ctx, uint64_t resealed, const struct brig_err *err),
                   void *ctx, struct brig_err *err) MUST_CHECK;

#endif
