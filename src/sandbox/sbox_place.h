/* SPDX-License-Identifier: Apache-2.0 */
/* sbox_place.h: which provider holds a sandbox, which layers it needs, and what of its statement is believed. */
#ifndef BRIG_SANDBOX_SBOX_PLACE_H
#define BRIG_SANDBOX_SBOX_PLACE_H

#include "sandbox/private.h"

/* BRIG_E_INVALID: there is no such provider. BRIG_E_OFF: it cannot be used. name may be "". */
int place_find(const struct manager *manager, const char *name, struct provider **ret, struct brig_err *err) MUST_CHECK;
struct provider *place_at(const struct manager *manager, size_t index); /* All that can be used; NULL at the end. */
/* Puts what a box says of itself into the sandbox. What is only the provider's word is off. */
void place_take(struct sbox *sbox, const struct box_up *up);
/* Adds to the mask: "all", a layer, several of them as in the configuration, or an array. */
int place_require(const struct json_value *v, uint64_t *mask, struct brig_err *err) MUST_CHECK;

#endif
