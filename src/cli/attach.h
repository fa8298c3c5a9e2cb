/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach.h: attaches our own stdin, stdout, stderr, signals and terminal to a program in a sandbox, over a WebSocket
 * (docs/API.md, attach). run_loop.c does the same for a run in this process.
 */
#ifndef BRIG_CLI_ATTACH_H
#define BRIG_CLI_ATTACH_H

#include "cli/run/run.h"
#include "cli/service.h"

#define OUTPUT_BYTES (UINT64_C(10) << 20) /* The output of a command, unless another limit is given. */

struct attach_options {
    bool interactive;      /* Our stdin goes to the program. */
    bool tty;              /* It has a PTY; with interactive, our terminal is raw meanwhile. */
    bool silent;           /* Print nothing; the output is kept instead. */
    bool detachable;       /* Ctrl-P Ctrl-Q leaves it running. */
    uint64_t keep;         /* The bytes that are kept for the receipt, both streams together; 0 for none. */
    uint64_t output;       /* The bytes that are passed on, both together; more are dropped. 0 for all. */
    const char *on_cancel; /* The message that ends it, after a second signal or two seconds after the first. */
    const char *sandbox;   /* With number: where to attach again if the daemon was restarted; NULL for nowhere. */
    uint64_t number;
};

struct attach {
    struct attach_options options;
    struct client *client;
    struct ws *ws;
    struct run_sink out, err_out;
    int signal_fd;
    char *input; /* RUN_INPUT bytes, while it is reading. */
    bool begun, reading, ended, detached, cancelled, half_detach, eof_sent;
    unsigned n_signals;
    uint64_t cancel_at_ns, give_up_at_ns;
    uint64_t next[3]; /* The offsets of the next bytes. */
    uint64_t passed;  /* How much of options.output was passed on. */
    bool truncated[3];
    struct buf kept[3];
    struct json_doc *doc;             /* The last message, */
    const struct json_value *receipt; /* and its receipt; NULL if the sandbox is gone. */
};

/* Blocks the signals that are read here. Call it before the program is started, so that none is lost. */
int attach_init(struct attach *attach, struct client *client, const struct attach_options *options,
                struct brig_err *err) MUST_CHECK;
/* Runs over this ws, which it owns, until the program has ended (receipt) or was left (detached). */
int attach_run(struct attach *attach, struct ws *ws, struct brig_err *err) MUST_CHECK;
void attach_done(struct attach *attach);

/* Calls attach_run() on options.number of options.sandbox (exec.c). */
int attach_to(struct attach *attach, struct brig_err *err) MUST_CHECK;
/* After attach_run(): prints the line about its end and returns the exit status (exec.c). */
int attach_finish(struct attach *attach, bool quiet);

/* Writes the target of a process's WebSocket. */
int attach_target(struct buf *out, const char *sandbox, uint64_t number, const uint64_t next[3]) MUST_CHECK;

/* ---- receipts from the daemon --------------------------------------------------------------------- */

/* Reads what the exit status and the last line need; strings are copied. */
void receipt_read(const struct json_value *json, struct brig_receipt *ret);
/* Writes the receipt as one line of JSON with the kept output in it, as a run in this process would have written it. */
int receipt_with_output(const struct attach *attach, uint64_t output_limit, struct buf *out) MUST_CHECK;
/* Returns the status in "... (status 127)" at the end of a message, and cuts it off; or otherwise. */
int status_in_message(char *message, int otherwise);

#endif
