/* SPDX-License-Identifier: Apache-2.0 */
/*
 * providers.h: the one list of providers: their names, whether each can be used or why not, and its functions. Whoever
 * needs a sandbox (sandbox/) or a place for a tool run (run/step_place.c), and whoever shows the list (GET
 * /v1/providers), asks here. To add a provider: a folder beside local/ that fills in a struct provider_ops, and a call
 * of providers_add() at the start.
 */
#ifndef BRIG_PROVIDER_PROVIDERS_H
#define BRIG_PROVIDER_PROVIDERS_H

#include "provider/provider.h"

#define PROVIDERS_MAX 16u

struct config;
struct json;
struct providers;

/* Knows all names; none of them can be used until it is added. */
int providers_create(const struct config *config, struct providers **ret, struct brig_err *err) MUST_CHECK;
void providers_destroy(struct providers *providers); /* and those that were added. Takes NULL */
/* It can be used from now on, under its own name, in the place of one that could not. The list destroys it. */
int providers_add(struct providers *providers, struct provider *provider, struct brig_err *err) MUST_CHECK;
/* BRIG_E_USAGE: there is no such name. BRIG_E_UNSUPPORTED: it cannot be used, and why. */
int providers_find(const struct providers *providers, const char *name, struct provider **ret,
                   struct brig_err *err) MUST_CHECK;
void providers_json(const struct providers *providers, struct json *json); /* [{name, enabled, why}] */

/* Whether it can make such a sandbox: BRIG_E_UNSUPPORTED names the first thing that it has not, or the first required
 * layer that it cannot put on. */
int provider_fits(const struct provider_ops *ops, const struct provider_spec *spec, struct brig_err *err) MUST_CHECK;

#endif
