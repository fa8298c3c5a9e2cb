/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zygote.h: interpreters that are forked into sandboxes and not executed there; the spawner's side.
 *
 * A zygote is a process of the trusted base: a child of the spawner, with its rights, that runs the host's own
 * /usr/bin/python3 and has loaded our runtime. It gets filled plans and nothing else, and clones each as a child of the
 * spawner (zygote_lib.c); it never gets a byte of a tenant. There is one per key, so that two organisations never share
 * what the children of one zygote have in common (hash seed, layout of the address space, stack canary). It is replaced
 * after ZYGOTE_CHILDREN children or ten minutes.
 *
 *     STARTING --READY--> serving --old, or used up--> leaving (no new jobs) --last answer--> socket closed, ends
 *         \------------------\---- does not answer: killed
 *
 * Nothing here waits. A job that is not answered in time, or whose zygote dies, fails its sandbox; the caller may then
 * ask for a sandbox without a zygote.
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
 * Gives the job of this sandbox to a zygote of the key, and starts one if there is none. On success sandbox_cloned() or
 * sandbox_not_cloned() follows, never from within. The caller still owns the job's descriptors.
 */
int zygote_ask(struct spawner *spawner, const char *key, struct sandbox *sandbox, struct zygote_job *job,
               struct brig_err *err) MUST_CHECK;
void zygotes_done(struct spawner *spawner); /* Ends them all and waits for that. */

#endif
