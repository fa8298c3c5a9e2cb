/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach.h: a program in a sandbox, on our own stdin, stdout, stderr, signals and terminal, over a WebSocket
 * (docs/API.md, attach). What run_loop.c is for a run in this process.
 */
#ifndef BRIG_CLI_ATTACH_H
#define BRIG_CLI_ATTACH_H

#include "cli/run/run.h"
#include "cli/service.h"

#define OUTPUT_BYTES (UINT64_C(10) << 20) /* of a command, where nobody says otherwise */

struct attach_options {
    bool interactive;      /* our stdin goes to the program */
    bool tty;              /* it has a PTY; with interactive ours is raw meanwhile */
    bool silent;           /* print nothing: the output is kept instead */
    bool detachable;       /* Ctrl-P Ctrl-Q leaves it running */
    uint64_t keep;         /* bytes kept for the receipt, both streams together; 0: none */
    uint64_t output;       /* bytes passed on, both together; more are dropped. 0: all */
    const char *on_cancel; /* the message that ends it: after a second signal, or two seconds after the first */
    const char *sandbox;   /* with number: where to attach again when the daemon was restarted; NULL: nowhere */
    uint64_t number;
};

struct attach {
    struct attach_options options;
    struct client *client;
    struct ws *ws;
    struct run_sink out, err_out;
    int signal_fd;
    char *input; /* RUN_INPUT bytes, while reading */
    bool begun, reading, ended, detached, cancelled, half_detach, eof_sent;
    unsigned n_signals;
    uint64_t cancel_at_ns, give_up_at_ns;
    uint64_t next[3]; /* offsets: what comes next */
    uint64_t passed;  /* of options.output */
    bool truncated[3];
    struct buf kept[3];
    struct json_doc *doc;             /* of the last message, */
    const struct json_value *receipt; /* and what it had; NULL: the sandbox went away */
};

/* Blocks the signals that are read here. Before the program is started, so that none is lost. */
int attach_init(struct attach *attach, struct client *client, const struct attach_options *options,
                struct brig_err *err) MUST_CHECK;
/* Over this ws, taken over, until the program has ended (receipt), or was left (detached). */
int attach_run(struct attach *attach, struct ws *ws, struct brig_err *err) MUST_CHECK;
void attach_done(struct attach *attach);

/* attach_run() on options.number of options.sandbox (exec.c). */
int attach_to(struct attach *attach, struct brig_err *err) MUST_CHECK;
/* After attach_run(): the line about its end, and the exit status (exec.c). */
int attach_finish(struct attach *attach, bool quiet);

/* The target of a process's WebSocket. */
int attach_target(struct buf *out, const char *sandbox, uint64_t number, const uint64_t next[3]) MUST_CHECK;

/* ---- receipts from the daemon --------------------------------------------------------------------- */

/* What exit status and last words need; strings are copied. */
void receipt_read(const struct json_value *json, struct brig_receipt *ret);
/* The receipt as one line of JSON with the kept output in it, as a run in this process would have written it. */
int receipt_with_output(const struct attach *attach, uint64_t output_limit, struct buf *out) MUST_CHECK;
/* The status in "... (status 127)" at the end of a message, which is cut off; else otherwise. */
int status_in_message(char *message, int otherwise);

#endif
