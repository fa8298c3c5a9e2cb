/* SPDX-License-Identifier: Apache-2.0 */
/* rates.h: limits how often a tool may be called. */
#ifndef BRIG_RUN_RATES_H
#define BRIG_RUN_RATES_H

#include <brig.h>

#include "base/base.h"

/*
 * There is one sliding window per tool and organisation: exact, with bounded memory, forgotten when it is empty. Agents
 * and keys have none of their own, because a caller who makes another agent would have another window.
 */
struct rates;
int rates_create(struct rates **ret, struct brig_err *err) MUST_CHECK;
void rates_destroy(struct rates *rates);
/* Counts the call. BRIG_E_LIMIT is "Rate limit exceeded for <n>"; *ret_retry_s is Retry-After, at least 1. */
int rates_take(struct rates *rates, const char *org, const char *tool, uint64_t max, uint64_t window_s, uint64_t now_ns,
               uint64_t *ret_retry_s, struct brig_err *err) MUST_CHECK;

#endif
