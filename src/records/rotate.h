/* SPDX-License-Identifier: Apache-2.0 */
/* rotate.h: seals again what is sealed with an old key: object after object, a few at a time, while the service goes
 * on. */
#ifndef BRIG_RECORDS_ROTATE_H
#define BRIG_RECORDS_ROTATE_H

#include "records/objects.h"

struct rotate_kind {
    bool (*stale)(void *ctx, const struct object *object);
    objects_make_fn *make; /* gets ctx and writes the object with its values sealed again; 1 if nothing is stale */
    void *ctx;             /* stays until done */
    bool keep_time;        /* updated_at stays: it says when the value was set */
};
typedef void rotate_done_fn(void *ctx, uint64_t resealed, const struct brig_err *err);
/* done is called from the loop with the number of objects that were sealed again. err says how many could not be, and
 * why the first could not. An object that was deleted meanwhile is not a failure. */
int rotate_objects(struct objects *objects, const struct rotate_kind *kind, rotate_done_fn *done, void *ctx,
                   struct brig_err *err) MUST_CHECK;

#endif
