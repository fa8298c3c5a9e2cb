/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suspicion.h: notices a key that is denied, or fails, again and again. It keeps the times of the last notes of each
 * key. When `count` of them lie within `seconds`, one event is to be raised, and no other for this key before `seconds`
 * are over. The table is bounded: when it is full, the key that was noted longest ago is forgotten. One thread uses it.
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
