/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.h: one pool, many who take from it. Whoever asks gets n more while all he has then is no more than what is still free. One alone
 * can have half; n of them a part of n + 1 each; and there is always something left for one that has nothing.
 */
#ifndef BRIG_BASE_SHARE_H
#define BRIG_BASE_SHARE_H

#include "base/base.h"

/* own: what he has; left: what nobody has. */
static inline bool share_allows(size_t own, size_t left, size_t n)
{
    return n <= left && own <= left - n;
}

#endif
