/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parked.h: sandboxes of templates that are made ahead, with their services up, and wait for a create (`[pool]
 * templates`, docs/TEMPLATES.md). The manager owns them; sbox_create.c takes one where a create fits.
 *
 * A parked sandbox is an internal one: no list, event, metric or quota of sandboxes counts it, it has no row in the
 * store and no organisation. A create takes it over: it becomes a sandbox of the caller with the caller's own spec, and
 * from then on nothing remembers that it was parked but the member `pooled`. It is given away once, and never back.
 *
 * What it is made of is its shape: everything of a spec that the provider, brig-init or a service has been told. A
 * create fits if its own spec, which was judged for its own caller, has the very same shape. So a name that means
 * another template by now, other limits or another user never fits, whoever asks.
 */
#ifndef BRIG_SANDBOX_PARKED_PARKED_H
#define BRIG_SANDBOX_PARKED_PARKED_H

#include "sandbox/manager.h"

#define PARKED_SHAPE_MAX (4u << 20)

/* ---- for those who look after the service -------------------------------------------------------------------- */

struct parked_stats {
    uint64_t waiting, making; /* now */
    uint64_t claims;          /* how many creates took one */
    uint64_t misses;          /* how many would have, and none was there */
    uint64_t failures;        /* how many could not be made */
};
void manager_parked_stats(const struct manager *manager, struct parked_stats *ret);
/* Writes one object for each entry of `[pool] templates` of the organisation (NULL: of all) into an open array. */
struct json;
void manager_parked_json(const struct manager *manager, const char *org, struct json *json);

/* ---- for this room ------------------------------------------------------------------------------------------- */

struct parked;
int parked_start(struct manager *manager, struct brig_err *err) MUST_CHECK;
void parked_stop(struct manager *manager);
void parked_configure(struct manager *manager); /* The configuration is another one. */
void parked_look(struct manager *manager);      /* Something may be missing or stale: looks soon, from the loop. */
/*
 * Takes one that fits the spec of a create, or returns NULL. It is then no internal sandbox any more but one in the
 * state `creating`, with an id, whose spec is empty; what its making has found out is in *spec.
 */
struct sbox *parked_take(struct manager *manager, struct sbox_spec *spec);
/* A parked one becomes a sandbox like others, in the state `creating` (manager.c). Its spec is still to come. */
void sbox_adopt(struct sbox *sbox);
/* There is to be one sandbox more: if `max_sandboxes` has no room for all, parked ones end. */
void parked_give_way(struct manager *manager);
/* Writes the shape of a spec; -ENOMEM, or -EMSGSIZE if it is too long. */
struct buf;
int parked_shape(const struct sbox_spec *spec, struct buf *out) MUST_CHECK;
/* Can one of this spec be kept ready? BRIG_E_UNSUPPORTED with the reason. */
int parked_can(const struct sbox_spec *spec, struct brig_err *err) MUST_CHECK;

#endif
