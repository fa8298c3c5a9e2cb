/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suspicion.h: notices a key that is denied, or fails, again and again. Keeps the times of the last notes of each key;
 * when `count` of them lie within `seconds`, one event is to be raised, and for this key no other before `seconds` are
 * over. The table is bounded: of too many keys the one that was noted longest ago is forgotten. Used on one thread.
 */
#ifndef BRIG_AUDIT_SUSPICION_H
#define BRIG_AUDIT_SUSPICION_H

#include <brig.h>

#include "base/base.h"

struct suspicion;

int suspicion_create(struct suspicion **ret, struct brig_err *err) MUST_CHECK;
void suspicion_destroy(struct suspicion *suspicion); /* takes NULL */
/* True when one event is to be raised now. count: at least 2. */
bool suspicion_note(struct suspicion *suspicion, const char *key, uint64_t now_ns, unsigned count, unsigned seconds);
uint64_t suspicion_count(const struct suspicion *suspicion); /* raised so far */

#endif
