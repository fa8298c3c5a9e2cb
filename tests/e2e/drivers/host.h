/* SPDX-License-Identifier: Apache-2.0 */
/* host.h: what the drivers of the library share: a failed expectation ends the program with its line on stderr. */
#ifndef BRIG_TESTS_HOST_H
#define BRIG_TESTS_HOST_H

#include <brig.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(what)                                                                                  \
    do {                                                                                              \
        if (!(what)) {                                                                                \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #what, host_err.message); \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

/* The last error of this thread, for the message above. */
static __thread struct brig_err host_err;

static inline size_t count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    size_t n = 0;

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

static inline struct brig_engine *make_engine(unsigned pool)
{
    const struct brig_engine_options options = {.size = sizeof options, .pool = pool};
    struct brig_engine *engine = NULL;

    EXPECT(brig_engine_create(&options, &engine, &host_err) == 0);
    return engine;
}

/* sh -c script; flags BRIG_RUN_*. */
static inline struct brig_run *start_shell(struct brig_engine *engine, const char *script, unsigned flags)
{
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    const struct brig_spec spec = {.size = sizeof spec, .argv = argv, .flags = flags};
    struct brig_run *run = NULL;

    EXPECT(brig_run_start(engine, &spec, &run, &host_err) == 0);
    return run;
}

static inline const struct brig_receipt *wait_for(struct brig_run *run)
{
    EXPECT(brig_run_wait(run, &host_err) == 0);
    EXPECT(brig_run_done(run));
    return brig_run_receipt(run);
}

static inline bool kept_is(const struct brig_receipt *receipt, enum brig_stream stream, const char *text)
{
    return receipt->output_len[stream] == strlen(text) && memcmp(receipt->output[stream], text, strlen(text)) == 0;
}

/* Tells the test that something is so, and waits for its word to go on. */
static inline void say_and_wait(const char *text)
{
    char line[16];

    printf("%s\n", text);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        exit(1);
}

#endif
