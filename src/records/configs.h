/* SPDX-License-Identifier: Apache-2.0 */
/*
 * configs.h: sandbox configurations, their variables and their fingerprints. A configuration is of kind "config" with
 * the id "sandbox-<uuid4>"; an organisation has one of each type. A variable is of kind "variable" with the id
 * "sandbox-env-<uuid4>"; its key is unique in its configuration. A configuration's document is {"type", "config":
 * {...}, "created_by_id", "last_updated_by_id"}. `config` is stored with its defaults and without nulls, and the
 * fingerprint is made of it.
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
 * config has the service's settings, such as TOOL_EXEC_DIR (config.h, [tools]), and outlives the configurations.
 * on_change is called after each commit with the fingerprints before and after it ("": there was none).
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

bool config_type_ok(const char *type); /* Could it be the name of a provider? */
/*
 * The type of a configuration: its member `type`. Without one its members tell: only template or timeout is e2b,
 * language or npm_requirements is modal, pip requirements that are strings are e2b, everything else is local.
 */
int config_resolve(const struct json_value *config, char type[CONFIG_TYPE_MAX], struct brig_err *err) MUST_CHECK;
/*
 * Checks an object against the fields of its type, adds defaults and removes nulls. It is as lax as Letta: "60" is 60,
 * "yes" is true, and unknown keys are dropped. Requirements that are options, paths or URLs are refused unless
 * `[tools] allow_urls` is set. Members of old (or NULL) stay if config does not have them. sandbox_dir must be the
 * default directory or below one of `[sandbox] allowed_dirs`; otherwise BRIG_E_FORBIDDEN names it.
 */
int config_complete(const struct configs *configs, const char *type, const struct json_value *config,
                    const struct json_value *old, struct buf *ret, struct brig_err *err) MUST_CHECK;
/*
 * May a run mount this directory of the host? It must be the default one, or lexically below `[sandbox] allowed_dirs`.
 * Whoever mounts asks again, since the settings may have changed.
 */
bool config_dir_allowed(const struct configs *configs, const char *path);
/* Parts of a configuration's object. */
const struct json_value *config_content(const struct object *config);
const char *config_object_fingerprint(const struct object *config);
enum standing config_written_as(const struct object *config); /* the weakest of those who wrote what is in it */
const struct object *configs_by_type(const struct configs *configs, const char *org, const char *type); /* or NULL */
/*
 * Without an id it makes the configuration of this type or replaces it; with an id it merges config into that one. A
 * configuration that would stay equal is not written. default_only: one that is there is returned unchanged. config
 * NULL is {}. type NULL is config's own type (config_resolve()). With an id pass type NULL: then the stored type
 * counts, and {"timeout": 9} fits every type. If config has another `type`, or only fields of another type, the error
 * is BRIG_E_USAGE "Mismatched type for sandbox config update: ...".
 */
int configs_put(struct configs *configs, const char *org, const char *actor, enum standing as, const char *id,
                const char *type, const struct json_value *config, bool default_only, objects_done_fn *done, void *ctx,
                struct brig_err *err) MUST_CHECK;
/* Deletes its variables too. */
int configs_delete(struct configs *configs, const char *org, const char *id, objects_done_fn *done, void *ctx,
                   struct brig_err *err) MUST_CHECK;

int config_fingerprint(const char *type, const char *org /* NULL: null */, const struct json_value *config,
                       char out[FINGERPRINT_MAX]) MUST_CHECK;

/* ---- variables: {"config_id", "key", "description", "sealed": {...}}, sealed as secrets are ---- */
const struct object *variables_by_key(const struct configs *configs, const char *org, const char *config_id,
                                      const char *key); /* or NULL */
/*
 * Without an id it makes the variable of this key or changes it (BRIG_E_CONFLICT if there is no such configuration);
 * with an id it changes that one (BRIG_E_NOT_FOUND) and ignores config_id. Members that are NULL stay as they are.
 * BRIG_E_CONFLICT if another variable has the key, or if there is no key ring.
 */
struct variable_change {
    const char *key, *value, *description;
    size_t value_len;
    /* If value is NULL: the value as Letta stored it. It is opened with [tools] legacy_key (BRIG_E_CONFLICT without
     * one) and sealed with our key at once. */
    const char *value_enc;
};
int variables_put(struct configs *configs, const char *org, const char *actor, const char *config_id, const char *id,
                  const struct variable_change *change, objects_done_fn *done, void *ctx,
                  struct brig_err *err) MUST_CHECK;
/* The value; crypto_secret_free() it. Reads Letta's stored form too. */
int variable_reveal(const struct configs *configs, const struct object *variable, uint8_t **ret, size_t *ret_len,
                    struct brig_err *err) MUST_CHECK;
bool variable_name_ok(const char *name);
/* The variables of one configuration, oldest first: the first after `after` (NULL: the first of all), or NULL. */
const struct object *variables_next(const struct configs *configs, const char *org, const char *config_id,
                                    const struct object *after);
/* Seals again every variable that is sealed with an old key, while the service goes on (rotate.h). */
int configs_rotate(struct configs *configs, void (*done)(void *ctx, uint64_t resealed, const struct brig_err *err),
                   void *ctx, struct brig_err *err) MUST_CHECK;

#endif
