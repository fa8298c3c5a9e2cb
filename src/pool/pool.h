/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h: parked children by pool key (organisation, provider, template, language and interpreter, lock hash of the
 * dependency set, strict, network and its shape, lower directory). They are refilled in the background and sized by
 * demand: each key aims at one and a half times the most claims of any second of the last ten, at least what a prewarm
 * asked for and at most `[tools] pool_max`; all keys together stay within `[tools] pool_memory`. Keys that are unused
 * for a minute shrink to nothing, unless their prewarm must be kept. A claim that finds no parked child waits for the
 * next one, and one more is begun. Every provider of the stream form has its children in sandboxes of its own; `[pool]
 * providers` bounds how many of each are parked.
 */
#ifndef BRIG_POOL_POOL_H
#define BRIG_POOL_POOL_H

#include "deps/sets.h"
#include "records/registry.h"
#include "sandbox/child/child.h"

struct pool;
struct pool_options {
    struct loop *loop;
    struct manager *manager;
    const struct config *config;
    /*
     * The dependency sets of the wants, which are held while there are children with them; it outlives the pool. NULL:
     * they are only names.
     */
    struct sets *sets;
};
int pool_create(const struct pool_options *options, struct pool **ret, struct brig_err *err) MUST_CHECK;
void pool_destroy(struct pool *pool);
void pool_configure(struct pool *pool, const struct config *config);

struct pool_want {
    const char *org_id, *template_name; /* template_name is NULL for host. */
    const char *provider;               /* What holds the children; NULL for the manager's own. */
    const char *template_id;            /* What the name means now: another one is another pool; or NULL. */
    enum tool_language language;
    const struct set *set; /* or NULL */
    bool strict, network, trust;
    enum gate_shape shape;     /* The shape of the network. */
    const char *workspace;     /* The host directory that is the lower layer of /workspace, or NULL. */
    bool persist;              /* Writes go through to it. */
    struct brig_limits limits; /* The limits that a claim cannot change (disk, open_files ...); 0 means the default. */
    bool keep;                 /* For a prewarm: it stays, used or not. */
};
struct pool_wait;
/* given gets a parked child, which the caller then owns, or NULL and why. It is never called from within. */
int pool_take(struct pool *pool, const struct pool_want *want,
              void (*given)(void *ctx, struct child *child, const struct brig_err *err), void *ctx,
              struct pool_wait **ret, struct brig_err *err) MUST_CHECK;
void pool_cancel(struct pool_wait *wait);
/* Does the same at once: returns a parked child, or NULL if there is none now; then pool_take() waits for one. */
struct child *pool_try(struct pool *pool, const struct pool_want *want);
/*
 * A run whose child came from pool_try() is over. The child is replaced when no other run goes on, or a few
 * milliseconds later, so that the refill does not take the processor from runs.
 */
void pool_breathe(struct pool *pool);
int pool_prewarm(struct pool *pool, const struct pool_want *want, unsigned count,
                 struct brig_err *err) MUST_CHECK; /* They stay until they are unused for a minute. */
/* Ends everything that is parked for it (NULL: for all), because a configuration has changed. */
void pool_retire(struct pool *pool, const char *org);
/* Writes one object for each key of the organisation (NULL: of all) into an open array. */
void pool_json(const struct pool *pool, const char *org, struct json *json);
/* What is kept for one provider, over all keys and organisations. */
struct pool_stats {
    const char *provider;
    uint64_t parked, making, claims, misses, failures;
};
bool pool_stats(const struct pool *pool, size_t index, struct pool_stats *ret); /* Returns false after the last one. */
/*
 * Returns the argv of the interpreter with our runtime. On host it is /usr/bin/python3 and the like; in a template it
 * is the one that the PATH of the image finds.
 */
const char *const *runtime_argv(enum tool_language language, bool template);

#endif
