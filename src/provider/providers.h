/* SPDX-License-Identifier: Apache-2.0 */
/*
 * providers.h: the one list of providers: their names, whether each can be used or why not, and its functions. The code
 * that needs a sandbox (sandbox/) or a place for a tool run (run/step_place.c) asks here, and so does the code that
 * shows the list (GET /v1/providers). To add a provider, write a folder beside local/ that fills in a struct
 * provider_ops, and call providers_add() at the start.
 */
#ifndef BRIG_PROVIDER_PROVIDERS_H
#define BRIG_PROVIDER_PROVIDERS_H

#include "provider/provider.h"

#define PROVIDERS_MAX 16u

struct config;
struct json;
struct providers;

/* Knows all names. None of them can be used until it is added. */
int providers_create(const struct config *config, struct providers **ret, struct brig_err *err) MUST_CHECK;
void providers_destroy(struct providers *providers); /* Destroys also those that were added. providers may be NULL. */
/*
 * The provider can be used from now on under its own name; it replaces an entry that could not be used. The list
 * destroys it.
 */
int providers_add(struct providers *providers, struct provider *provider, struct brig_err *err) MUST_CHECK;
/*
 * name may be an alias (config/provider_names.h). BRIG_E_INVALID: there is no such name. BRIG_E_OFF: it cannot be used;
 * the message says why.
 */
int providers_find(const struct providers *providers, const char *name, struct provider **ret,
                   struct brig_err *err) MUST_CHECK;
struct provider *providers_at(const struct providers *providers, size_t index); /* Those in use; NULL at the end. */
/*
 * Writes [{name, enabled, why}]; of one that can be used also `can`, names of capabilities, and `layers`, those that it
 * can show.
 */
void providers_json(const struct providers *providers, struct json *json);
/* Writes {name, usable, version, missing, install, took_ms, can, layers}; `layers` were on in the attempt. */
void provider_check_json(const struct provider_ops *ops, const struct provider_check *check, struct json *json);

/*
 * Can it make such a sandbox? BRIG_E_UNSUPPORTED names the first thing that it does not have, or the first required
 * layer that it cannot put on.
 */
int provider_fits(const struct provider_ops *ops, const struct provider_spec *spec, struct brig_err *err) MUST_CHECK;

#endif
