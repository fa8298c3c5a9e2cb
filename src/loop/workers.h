/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workers.h: a small pool of threads for what would block the loop (queries, gzip). A job's work() runs on some
 * thread; done() afterwards on the loop's thread. Jobs of one pool are started in order. Threads have every signal
 * blocked.
 */
#ifndef BRIG_LOOP_WORKERS_H
#define BRIG_LOOP_WORKERS_H

#include "loop/loop.h"

struct workers;
struct job {
    void (*work)(struct job *job); /* not on the loop's thread */
    void (*done)(struct job *job); /* on the loop's thread; may free the job */
    struct job *next;              /* private */
};

int workers_create(struct loop *loop, unsigned threads, struct workers **ret, struct brig_err *err) MUST_CHECK;
void workers_destroy(struct workers *workers); /* finishes what is queued, calls done() for it; takes NULL */
void workers_add(struct workers *workers, struct job *job);
/* From any thread: fn(ctx) on the loop's thread, soon. -ENOMEM. For threads of one's own (store's writer, audit's). */
int workers_post(struct workers *workers, void (*fn)(void *ctx), void *ctx) MUST_CHECK;

#endif
