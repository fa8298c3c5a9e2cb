/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zygote.h: interpreters that are forked into sandboxes instead of being executed there; the spawner's side.
 *
 * A zygote is a process of the trusted base: a child of the spawner, with its rights, that runs the host's own
 * /usr/bin/python3 and has loaded our runtime. It is given filled plans, clones each as a child of the spawner
 * (zygote_lib.c), and is told nothing else; no byte of a tenant ever reaches it. One per key, so that what children of
 * one zygote have in common (hash seed, layout of the address space, stack canary) is never shared by two
 * organisations; and it is replaced after ZYGOTE_CHILDREN children or ten minutes.
 *
 *     STARTING --READY--> serving --old, or used up--> leaving (no new jobs) --last answer--> socket closed, ends
 *         \------------------\---- does not answer: killed
 *
 * Nothing here waits. A job that is not answered in time, or whose zygote dies, fails its sandbox; the caller may then
 * have one the other way.
 */
#ifndef BRIG_SPAWNER_ZYGOTE_H
#define BRIG_SPAWNER_ZYGOTE_H

#include "loop/loop.h"
#include "spawner/spawner_wire.h"
#include "spawner/zygote_msg.h"

#define ZYGOTES_MAX 32u
#define ZYGOTE_CHILDREN 1000u

struct spawner;
struct sandbox;
struct zygote;

/*
 * Hands the job of this sandbox to a zygote of the key, starting one where there is none. On success sandbox_cloned()
 * or sandbox_not_cloned() follows, never from within. The job's descriptors stay the caller's.
 */
int zygote_ask(struct spawner *spawner, const char *key, struct sandbox *sandbox, struct zygote_job *job,
               struct brig_err *err) MUST_CHECK;
void zygotes_done(struct spawner *spawner); /* ends them all and waits for that */

#endif
