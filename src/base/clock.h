/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.h: the two clocks, in nanoseconds. Durations and deadlines use the monotonic clock; receipts show the real
 * time.
 */
#ifndef BRIG_BASE_CLOCK_H
#define BRIG_BASE_CLOCK_H

#include "base/base.h"

#define NS_PER_SEC UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)

static inline uint64_t clock_mono_ns(void)
{
    struct timespec ts = {0};
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static inline int64_t clock_real_ns(void)
{
    struct timespec ts = {0};
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * (int64_t)NS_PER_SEC + ts.tv_nsec;
}

#define CLOCK_TEXT 40u
/*
 * RFC 3339 in UTC with 0, 3, 6 or 9 digits of the second: "2026-01-31T12:00:00.000Z". "" for a year that has no date.
 */
void clock_text(int64_t real_ns, unsigned digits, char out[CLOCK_TEXT]);

#endif
