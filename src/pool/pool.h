/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h: parked children by pool key (organisation, template, language and interpreter, lock hash of the requirement
 * set, strict, network and its shape, lower directory), refilled in the background, sized by demand: each key aims at
 * the most claims of any second of the last ten plus one half, at least what a prewarm asked for and at most `[tools]
 * pool_max`, all keys together within `[tools] pool_memory`; keys unused for a minute shrink to nothing, unless their
 * prewarm is to be kept. A claim that finds none parked waits for the next one that is, and one more is begun.
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
    /* of the wants' sets, which are held while there are children with them; outlives it. NULL: sets are only names */
    struct sets *sets;
};
int pool_create(const struct pool_options *options, struct pool **ret, struct brig_err *err) MUST_CHECK;
void pool_destroy(struct pool *pool);
void pool_configure(struct pool *pool, const struct config *config);

struct pool_want {
    const char *org_id, *template_name; /* template NULL: host */
    enum tool_language language;
    const struct set *set; /* or NULL */
    bool strict, network, trust;
    enum gate_shape shape;     /* of the network */
    const char *workspace;     /* host directory that is the lower layer of /workspace, or NULL */
    bool persist;              /* writes go through to it */
    struct brig_limits limits; /* those that a claim cannot change (disk, open_files ...); zero: defaults */
    bool keep;                 /* of a prewarm: it stays, used or not */
};
struct pool_wait;
/* given: a parked child that is the caller's now, or NULL and why; never from within. */
int pool_take(struct pool *pool, const struct pool_want *want,
              void (*given)(void *ctx, struct child *child, const struct brig_err *err), void *ctx,
              struct pool_wait **ret, struct brig_err *err) MUST_CHECK;
void pool_cancel(struct pool_wait *wait);
/* The same at once: a parked child, or NULL: there is none now, pool_take() waits for one. */
struct child *pool_try(struct pool *pool, const struct pool_want *want);
/* A run whose child came from pool_try() is over. What it took is made again when no other goes on, or a few
 * milliseconds after: so the refill does not take the processor from runs. */
void pool_breathe(struct pool *pool);
int pool_prewarm(struct pool *pool, const struct pool_want *want, unsigned count,
                 struct brig_err *err) MUST_CHECK;    /* until it is unused for a minute */
void pool_retire(struct pool *pool, const char *org); /* everything parked for it goes: a configuration has changed */
void pool_json(const struct pool *pool, const char *org /* NULL: all */, struct json *json); /* keys, parked, making,
                                                                                                target, claims, misses,
                                                                                                bytes */
/* argv of the interpreter with our runtime, as found inside the template: /usr/bin/python3 ... */
const char *const *runtime_argv(enum tool_language language);

#endif
