/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runner_child.h: a runtime at work: a child process whose end is told, whose last words are kept, and which is killed
 * when it takes too long.
 */
#ifndef BRIG_RUNNER_RUNNER_CHILD_H
#define BRIG_RUNNER_RUNNER_CHILD_H

#include <brig.h>
#include <sys/types.h>

#include "loop/loop.h"

#define CHILD_WORDS 400u

struct runner_child {
    struct loop *loop;
    pid_t pid; /* 0 if none is at work */
    int pidfd, words_fd;
    struct loop_source on_end, on_words;
    struct loop_timer on_late;
    bool late;
    char words[CHILD_WORDS]; /* the end of what it wrote to stderr, in one line */
    size_t n_words;
    void (*done)(void *ctx, int status); /* as wait(2) gives it; called once */
    void *ctx;
};
#define RUNNER_CHILD_INIT \
    ((struct runner_child){.pidfd = -1, .words_fd = -1, .on_end = {.fd = -1}, .on_words = {.fd = -1}})

/*
 * Watches a child that was cloned, and kills it after timeout_ns. It owns pidfd and words_fd, the reading end of its
 * stderr, also on failure; then the child is killed and collected.
 */
int runner_child_watch(struct runner_child *child, pid_t pid, int pidfd, int words_fd, uint64_t timeout_ns,
                       struct brig_err *err) MUST_CHECK;
void runner_child_kill(struct runner_child *child); /* done follows */

#endif
