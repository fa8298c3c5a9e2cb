/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workers.h: a small pool of threads for work that would block the loop (queries, gzip). A job's work() runs on one of
 * the threads; afterwards done() runs on the loop's thread. The jobs of a pool are started in order, but owners take
 * turns: whoever asks for much waits for himself, and others do not wait for him. The threads block every signal.
 */
#ifndef BRIG_LOOP_WORKERS_H
#define BRIG_LOOP_WORKERS_H

#include "loop/loop.h"

struct workers;
struct job {
    void (*work)(struct job *job); /* Runs on a thread of the pool. */
    void (*done)(struct job *job); /* Runs on the loop's thread and may free the job. */
    struct job *next;              /* This and the next two are private. */
    uint64_t owner, turn;
};
#define WORKERS_WAITING 1024u /* The jobs of one owner that may wait. */

int workers_create(struct loop *loop, unsigned threads, struct workers **ret, struct brig_err *err) MUST_CHECK;
/* Finishes the queued jobs and calls their done(). workers may be NULL. */
void workers_destroy(struct workers *workers);
void workers_add(struct workers *workers, struct job *job);
/* Does the same for an owner, any number but 0. -EAGAIN: so many of its jobs wait that this one is not taken. */
int workers_add_for(struct workers *workers, uint64_t owner, struct job *job) MUST_CHECK;
/* The same for a job whose number is bounded elsewhere: it waits for its turn, and is always taken. */
void workers_add_bounded(struct workers *workers, uint64_t owner, struct job *job);
/* An organisation as an owner. That of the administrator of all ("") is 0: it waits for nobody. */
uint64_t workers_owner(const char *org_id);
/*
 * Makes fn(ctx) run soon on the loop's thread. Any thread may call it, such as the store's and the audit log's writers.
 * Returns 0 or -ENOMEM.
 */
int workers_post(struct workers *workers, void (*fn)(void *ctx), void *ctx) MUST_CHECK;

#endif
