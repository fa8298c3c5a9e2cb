/* SPDX-License-Identifier: Apache-2.0 */
/* rotate.h: every object that has something under an old key is written again, a few at a time, while the service goes
 * on. */
#ifndef BRIG_RECORDS_ROTATE_H
#define BRIG_RECORDS_ROTATE_H

#include "records/objects.h"

struct rotate_kind {
    bool (*stale)(void *ctx, const struct object *object);
    objects_make_fn *make; /* with ctx: the object with its values sealed anew; 1 when nothing is stale by then */
    void *ctx;             /* outlives it */
    bool keep_time;        /* updated_at stays: it is the value's */
};
typedef void rotate_done_fn(void *ctx, uint64_t resealed, const struct brig_err *err);
/* done: how many were; err: how many could not be, and why the first. Always from the loop. One that is gone meanwhile
 * is none that failed. */
int rotate_objects(struct objects *objects, const struct rotate_kind *kind, rotate_done_fn *done, void *ctx,
                   struct brig_err *err) MUST_CHECK;

#endif
