/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_steps.h: what steps of builds gave: kind "build-step", whose id is the key of the step (64 hexadecimal digits:
 * a hash of everything that it depends on). A record says which layer the step made, or that it made none. It holds
 * its layer against collection, and only its own organisation ever finds it. An organisation has at most
 * BUILD_STEPS_PER_ORG of them: the oldest go, and so do those that are older than BUILD_STEP_OLD_NS.
 */
#ifndef BRIG_RECORDS_IMAGES_BUILD_STEPS_H
#define BRIG_RECORDS_IMAGES_BUILD_STEPS_H

#include "records/objects.h"

#define BUILD_STEPS_PER_ORG 2000u
#define BUILD_STEP_KEY 65u
#define BUILD_STEP_OLD_NS (INT64_C(30) * 86400 * INT64_C(1000000000))

struct build_steps;

struct build_step_info {
    const char *layer; /* its name; "" if the step changed nothing */
    const char *diff_id;
    uint64_t bytes, files;
};

int build_steps_create(struct store *store, struct build_steps **ret, struct brig_err *err) MUST_CHECK; /* loads */
void build_steps_destroy(struct build_steps *steps); /* after store_close(); takes NULL */
struct objects *build_steps_objects(struct build_steps *steps);

/* What the step gave; NULL: it is not known. The texts live until the record changes. */
const struct build_step_info *build_steps_find(const struct build_steps *steps, const char *org, const char *key);
/*
 * Keeps what a step gave; the oldest record makes room. Whoever holds the layer does so until done, also on failure.
 * Records of several steps share a commit. A crash before it costs a step that runs again, and nothing else.
 */
int build_steps_put(struct build_steps *steps, const char *org, const char *key, const struct build_step_info *info,
                    void (*done)(void *ctx), void *ctx, struct brig_err *err) MUST_CHECK;
void build_steps_hurry(struct build_steps *steps); /* The commit comes at once: no step follows. */
/* A record of this organisation (NULL: of any) that has this layer; or NULL. */
const struct build_step_info *build_steps_with_layer(const struct build_steps *steps, const char *org,
                                                     const char *layer);
/*
 * Forgets those of the organisation (NULL: some of all) that are too old; all: every one. True if there are some: then
 * done (or NULL) follows, with how many went.
 */
bool build_steps_forget(struct build_steps *steps, const char *org, bool all, void (*done)(void *ctx, size_t removed),
                        void *ctx);

#endif
