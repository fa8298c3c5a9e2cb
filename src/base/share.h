/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.h: one pool, and many who take from it. A taker gets more while what it has is no more than what is then still
 * free. So one alone can have half of the pool, n of them 1/(n + 1) each, and there is always something left for
 * one that has nothing.
 */
#ifndef BRIG_BASE_SHARE_H
#define BRIG_BASE_SHARE_H

#include "base/base.h"

/* May one that has `own` take n more? left: what nobody has. */
static inline bool share_allows(size_t own, size_t left, size_t n)
{
    return n <= left && own <= left - n;
}

#endif
