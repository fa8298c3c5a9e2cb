/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h: the parts of `brig bench`. Every number is taken in this run, on this machine. Things that are compared are
 * measured in turns (one of each, again and again, in changing order), so that a slow second hits all of them.
 *
 *   bench.c             the verb: flags, groups, table and JSON
 *   bench_stats.c       samples -> p50, p95, p99; rows, ratios, skips
 *   bench_spawn.c       plain programs: posix_spawn(3), timed or with their output
 *   bench_peers.c       group standalone: brig run against bwrap, firejail, runc, docker
 *   bench_docker.c      Docker's engine on a private socket with a private data root
 *   bench_library.c     groups library, burst, python
 *   bench_memory.c      group memory
 *   bench_throughput.c  group throughput: the loops inside and outside
 *   bench_loops.c       the loops themselves (`brig bench --loop NAME`)
 */
#ifndef BRIG_CLI_BENCH_BENCH_H
#define BRIG_CLI_BENCH_BENCH_H

#include <brig.h>

#include "base/base.h"
#include "base/buf.h"

#define BENCH_ROWS 48
#define BENCH_SKIPS 24

struct bench_row {
    char name[40];
    const char *unit;
    size_t n;
    double p50, p95, p99;
    char against[40]; /* "" if the row is compared with nothing. */
    double ratio;     /* The ratio of the two p50. */
    double bound;     /* The bound of the ratio, or of p50 if there is no ratio; 0: no promise. */
    bool at_least;    /* The bound is a minimum. */
};

struct bench_skip {
    char name[40];
    char reason[160];
};

struct bench {
    uint64_t runs;
    const char *only; /* One group, or NULL. */
    const char *loop; /* Hidden: run this loop instead. */
    bool json;
    char self[4096]; /* the path of this program */
    uint64_t random;
    struct bench_row rows[BENCH_ROWS];
    size_t n_rows;
    struct bench_skip skips[BENCH_SKIPS];
    size_t n_skips;
};

struct bench_samples {
    double *values;
    size_t n, cap;
};

/* Those that are compared, one of each again and again, in changing order. */
struct bench_turns {
    const char *unit;
    const char *progress; /* What to call it on stderr every fifty turns; NULL: nothing is said. */
    size_t n;
    struct bench_side {
        const char *name;
        int (*measure)(const void *ctx, double *ret, struct brig_err *err);
        const void *ctx;
        unsigned against; /* The side that it is compared with, counted from 1; 0: none. */
        double bound;     /* As in its row. */
        bool at_least;
    } sides[3];
};

/* ---- bench_stats.c ------------------------------------------------------------------------------ */

int bench_samples_init(struct bench_samples *samples, size_t cap) MUST_CHECK;
void bench_samples_add(struct bench_samples *samples, double value); /* Samples past cap are dropped. */
void bench_samples_done(struct bench_samples *samples);
/*
 * Sorts the samples, the good end first: the unit "ops/s" is a speed, the others are costs. Returns NULL if there are
 * none. The bench owns the row; the caller fills in the later fields.
 */
struct bench_row *bench_add_row(struct bench *bench, const char *name, const char *unit, struct bench_samples *samples);
void bench_compare(struct bench_row *row, const struct bench_row *with);
/* Measures bench->runs times each and adds their rows. */
int bench_take_turns(struct bench *bench, const struct bench_turns *turns, struct brig_err *err) MUST_CHECK;
void bench_skip(struct bench *bench, const char *name, const char *format, ...) PRINTF_LIKE(3, 4);
/*
 * Writes 0 to n-1 in a new order, so that no candidate always follows the same other one and pays for what that left
 * behind.
 */
void bench_shuffle(struct bench *bench, unsigned *order, unsigned n);
void bench_nap(long ms);
/* Prints "bench: ..." on stderr. */
void bench_say(const char *format, ...) PRINTF_LIKE(1, 2);
bool bench_row_met(const struct bench_row *row);

/* ---- bench_spawn.c ------------------------------------------------------------------------------ */

double bench_now_us(void);
/* Runs it with nothing on its descriptors. Returns the exit status (128+n for a signal) or a negative errno. */
int bench_spawn(const char *const *argv, double *ret_us) MUST_CHECK;
/* Does the same with stdout and stderr into out, in the directory dir_fd if that is not -1. */
int bench_spawn_output(const char *const *argv, int dir_fd, struct buf *out) MUST_CHECK;
/* Starts it with stdout and stderr into a file. Returns the pid or a negative errno. */
pid_t bench_spawn_background(const char *const *argv, const char *log) MUST_CHECK;
/* Runs n of them at once and waits for all. */
int bench_spawn_many(const char *const *argv, size_t n, double *ret_us) MUST_CHECK;
bool bench_installed(const char *program); /* Is it somewhere in PATH? */
/* Makes a private directory; bench_remove_directory() removes it with its content. */
int bench_make_directory(char *path, size_t size) MUST_CHECK;
void bench_remove_directory(const char *path);
int bench_write_file(const char *directory, const char *name, const char *text) MUST_CHECK;

/* ---- groups: 0, or a negative errno with a message; what is absent is skipped, not failed -------- */

int bench_standalone(struct bench *bench, struct brig_err *err) MUST_CHECK;
int bench_library(struct bench *bench, struct brig_err *err) MUST_CHECK;
int bench_burst(struct bench *bench, struct brig_err *err) MUST_CHECK;
int bench_python(struct bench *bench, struct brig_err *err) MUST_CHECK;
int bench_memory(struct bench *bench, struct brig_err *err) MUST_CHECK;
int bench_throughput(struct bench *bench, struct brig_err *err) MUST_CHECK;

/* Makes an engine as an embedder has it: the helper is executed, not forked. */
int bench_engine(unsigned pool, struct brig_engine **ret, struct brig_err *err) MUST_CHECK;
/* Fails unless the run ended with exit status 0. */
int bench_check(const struct brig_run *run, struct brig_err *err) MUST_CHECK;

/* ---- bench_docker.c ----------------------------------------------------------------------------- */

struct bench_docker {
    char directory[64]; /* "" until it is started. */
    char host[96];      /* The value of docker's -H. */
    char cgroup[32];    /* The parent of its containers' cgroups. */
    pid_t engine;       /* 0 if it belongs to somebody else. */
};

/* Returns 0 if `docker run brig-bench /bin/true` can be tried; else a negative errno and the reason. */
int bench_docker_start(struct bench_docker *docker, char *reason, size_t size) MUST_CHECK;
void bench_docker_stop(struct bench_docker *docker);

/* ---- bench_loops.c ------------------------------------------------------------------------------ */

enum bench_loop { LOOP_CPU, LOOP_GETPPID, LOOP_PREAD, LOOP_CHECKED, LOOP_FILES, LOOP_MAX };

extern const char *const bench_loop_names[LOOP_MAX];
/* Runs a loop and prints "OPERATIONS NANOSECONDS". Returns the exit status. */
int bench_loop_main(const char *name);

#endif
