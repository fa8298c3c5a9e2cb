/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h: the parts of `brig run`.
 *
 *   run_flags.c    words -> struct run_options, run_env.c the environment among them
 *   run_loop.c     one poll loop: engine, signals, our stdin, our stdout and stderr
 *   run_sink.c     a descriptor of ours that takes the program's output and may be slow
 *   run_tty.c      our terminal while the program has a PTY
 *   run_receipt.c  --receipt FILE and -o json
 *   run_end.c      the line about how it ended
 *   run_code.c     a snippet instead of a command
 *   run_remote.c   all of it by a daemon, over attach.c
 *   run.c          the verb: brings them together and says how it ended
 */
#ifndef BRIG_CLI_RUN_RUN_H
#define BRIG_CLI_RUN_RUN_H

#include <brig.h>

#include "base/base.h"
#include "base/buf.h"
#include "cli/escape.h"
#include "cli/net_flags.h"

/* ---- what was asked for ------------------------------------------------------------------------- */

struct run_list { /* Strings with a NULL at the end once there is one. The strings are not owned. */
    const char **items;
    size_t n, cap;
};

struct run_owned { /* Memory that lives as long as the options. */
    struct run_owned *next;
    char bytes[];
};

struct run_options {
    struct brig_spec spec;
    bool interactive, tty, quiet, json;
    bool writable_root, sudo, kill_on_output, local;
    const char *receipt;
    const char *user;                   /* NULL: the default */
    const char *provider;               /* NULL: the default */
    const char *template, *entrypoint;  /* --template: the words are arguments of the image's entry point, or of this */
    struct run_list env_file, env_flag; /* -e wins over --env-file in any order. */
    struct brig_bind *binds;
    struct brig_tmpfs *tmpfs;
    size_t n_words; /* No list of flags can be longer. */
    struct run_owned *owned;
    struct net_flags net;
    struct buf policy; /* The network policy, for a run in this process. */
    char policy_name[NET_NAME_MAX];
    const struct run_language *language; /* --lang; NULL for a command. */
    struct buf code;                     /* Its text, with a zero byte behind it. */
};

/* It asks for a provider that only a daemon has. */
bool run_needs_provider(const struct run_options *options);
/*
 * Returns 0; 1 when it is over (help was printed and *ret_status is set, or the mistake was reported); or a negative
 * errno. It checks the syntax; brig_run_start() checks what a limit or a path may be.
 */
int run_options_parse(struct run_options *options, int argc, char **argv, int *ret_status,
                      struct brig_err *err) MUST_CHECK;
void run_options_done(struct run_options *options);
/* For a run in this process: writes the policy out. */
int run_options_local(struct run_options *options, struct brig_err *err) MUST_CHECK;
/* Returns zeroed memory, or NULL when memory is short. */
char *run_options_alloc(struct run_options *options, size_t size);

struct flag;
int run_env_flag(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);
int run_env_file(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);
/* Makes spec.env from the lists, and from TERM if there is a PTY. */
int run_env_finish(struct run_options *options, struct brig_err *err) MUST_CHECK;
const char *run_env_terminal(void); /* Our TERM, if it looks like one. */

/* ---- output ------------------------------------------------------------------------------------- */

/*
 * What cannot be written at once is kept, so that a slow reader of ours never delays the engine, and with it the run's
 * timeout. The run's own output limit bounds what is kept.
 */
struct run_sink {
    int fd;
    bool opened, terminal; /* These are set with the first byte, because most runs print nothing. */
    bool raw;              /* -t: the program owns the terminal, and nothing is escaped. */
    size_t chunk;          /* The bytes that can be written without blocking once poll() says POLLOUT. */
    struct escape escape;
    struct buf pending;
    size_t sent; /* How much of pending was sent. */
    int failed;  /* 0 or a negative errno; then everything is dropped. */
};

void run_sink_init(struct run_sink *sink, int fd, bool raw);
void run_sink_put(struct run_sink *sink, const void *data, size_t len);
void run_sink_flush(struct run_sink *sink); /* Writes as much as it can without blocking. */
void run_sink_end(struct run_sink *sink);   /* The program has ended: writes what the escape filter held. */
bool run_sink_waiting(const struct run_sink *sink);
void run_sink_done(struct run_sink *sink);

/* ---- terminal ----------------------------------------------------------------------------------- */

/* Sets the terminal on stdin to raw mode. run_tty_restore() and every signal that can be caught undo it. */
int run_tty_raw(struct brig_err *err) MUST_CHECK;
void run_tty_raw_again(void); /* Called after a stop, because the shell had its own modes. */
void run_tty_restore(void);
/* Finds the size of the window of stdin or stdout, or 24 x 80. */
void run_tty_size(uint16_t *ret_rows, uint16_t *ret_cols);

/* ---- the loop ----------------------------------------------------------------------------------- */

struct run_loop {
    struct brig_engine *engine;
    struct brig_run *run;
    struct run_sink out, err_out;
    int signal_fd;
    bool tty;
    bool reading;         /* Our stdin still has something for the program. */
    char *input;          /* RUN_INPUT bytes, while reading */
    size_t in_len, in_at; /* Read from stdin, and taken by the program. */
    int retry_ms;         /* The time until the program is offered more input. */
    unsigned n_signals;   /* The signals that ask for an end. */
    uint64_t cancel_at_ns;
};

#define RUN_INPUT ((size_t)64 << 10)

/* Blocks the signals that a run forwards, and with a terminal those of its size. *ret_fd is where they are read. */
int run_signals(bool tty, int *ret_fd, struct brig_err *err) MUST_CHECK;
/* Blocks the signals that the loop reads. It is called before the run starts, so that none is lost in between. */
int run_loop_init(struct run_loop *loop, struct brig_engine *engine, const struct run_options *options,
                  struct brig_err *err) MUST_CHECK;
/* This is spec.on_output, with the loop as ctx. */
void run_loop_output(void *ctx, struct brig_run *run, enum brig_stream stream, const void *data, size_t len);
/* Runs until the run is done and its output is written. */
int run_loop_until_done(struct run_loop *loop, struct brig_run *run, struct brig_err *err) MUST_CHECK;
void run_loop_done(struct run_loop *loop);

/* Prints one line about what ended the run, or about brig itself. quiet: none about limits. */
void run_end_say(const struct brig_receipt *receipt, bool quiet);
/* --net learn: prints the policy that was learned on stderr. */
void run_end_learned(const char *json, size_t len);

/* Runs it by a daemon, if there is one and it can (run_remote.c). Returns false if it must be done here. */
bool run_remote(const struct run_options *options, int *ret_status) MUST_CHECK;

/* Writes the member `limits`. */
void run_put_limits(struct json *json, const struct brig_limits *limits, const struct net_flags *net);

/*
 * --lang (run_code.c). run_code_read() reads the text, which becomes spec.argv; it returns 1 if that is not possible
 * and a line was printed. run_code() runs it by a service, if there is one and it can; it returns false if that argv
 * must be run as any other.
 */
int run_code_flag(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);
int run_code_read(struct run_options *options, int n, char *const *words, struct brig_err *err) MUST_CHECK;
bool run_code(const struct run_options *options, int *ret_status) MUST_CHECK;

/* ---- receipt ------------------------------------------------------------------------------------ */

/* Refuses a FILE that cannot be written, before anything runs. */
int run_receipt_check(const char *path, struct brig_err *err) MUST_CHECK;
int run_receipt_write(const char *path, const char *json, size_t len, struct brig_err *err) MUST_CHECK;
int run_receipt_print(const char *json, size_t len, struct brig_err *err) MUST_CHECK;

#endif
