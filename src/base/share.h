/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.h: divides one pool among many takers. A taker may take more while it has no more than what is still free
 * afterwards. So one taker alone can have half of the pool, n takers 1/(n + 1) each, and something is always left for a
 * taker that has nothing.
 */
#ifndef BRIG_BASE_SHARE_H
#define BRIG_BASE_SHARE_H

#include "base/base.h"

/* May a taker that has `own` take n more? left is what nobody has. */
static inline bool share_allows(size_t own, size_t left, size_t n)
{
    return n <= left && own <= left - n;
}

#endif
