/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.h: starts, feeds, reads, waits for and judges programs in a sandbox, and makes the receipt of each. Every
 * started process is a run of kind `command` (a row in the store, GET /v1/runs) with a wall clock and an output limit.
 *
 * Output is in the ring of brig-init (link/link.h, SVC_PROC_ATTACH); brigd holds only what is on its way to a client,
 * or (process_run) what goes into the receipt, at most limits.output.
 */
#ifndef BRIG_SANDBOX_PROCESS_H
#define BRIG_SANDBOX_PROCESS_H

#include "sandbox/manager.h"

struct process_spec {
    const char *const *argv; /* NULL-terminated */
    const char *const *env;  /* "NAME=value" over the sandbox's, with NULL at the end; may be NULL. */
    const char *workdir;     /* NULL means the sandbox's. */
    const char *user;        /* As in codec/passwd.h; NULL means the sandbox's. */
    /* The wall clock; 0: the sandbox's limits.timeout for process_run(), none for process_start(). */
    uint64_t timeout_ms;
    uint64_t output; /* The bytes that are kept in the receipt of process_run(); 0 means limits.output. */
    bool kill_on_output;
    bool tty, stdin_open;
    bool hold; /* Its output waits for the first reader. */
    uint16_t rows, cols;
    uint32_t ring;
    const void *input; /* process_run(): its whole stdin; may be NULL. */
    size_t input_len;
};
/* Read from JSON (docs/openapi.yaml, schema ProcessSpec); the parsed spec owns the memory. */
struct process_spec_parsed {
    struct process_spec spec;
    char *memory;
};
int process_spec_parse(const struct json_value *json, const struct sbox *sbox, struct process_spec_parsed *ret,
                       struct brig_err *err) MUST_CHECK;
/* Reads only cwd and env, for a shell. */
int process_spec_parse_shell(const struct json_value *json, const struct sbox *sbox, struct process_spec_parsed *ret,
                             struct brig_err *err) MUST_CHECK;
void process_spec_done(struct process_spec_parsed *parsed);

/* A started process. It lives while it runs; PROCESS_KEEP ended ones are kept too (bounded per sandbox). */
struct process;

/*
 * Runs it and waits: done gets the receipt as JSON, once, and the run is gone. If it is cancelled
 * (process_run_cancel(): the client left) it is killed, and done is not called. No function of this file calls back
 * from within.
 */
struct process_run;
int process_run(struct sbox *sbox, const struct caller *caller, const struct process_spec *spec,
                void (*done)(void *ctx, const char *receipt, size_t len, const struct brig_err *err), void *ctx,
                struct process_run **ret, struct brig_err *err) MUST_CHECK;
void process_run_cancel(struct process_run *run);

/*
 * Starts it; done is called once it runs, or with why not (BRIG_E_USAGE: no such program, with the shell's status in
 * the message).
 */
int process_start(struct sbox *sbox, const struct caller *caller, const struct process_spec *spec,
                  void (*done)(void *ctx, struct process *process, const struct brig_err *err), void *ctx,
                  struct brig_err *err) MUST_CHECK;
struct process *process_find(struct sbox *sbox, uint32_t number);
struct process *process_each(struct sbox *sbox, struct process *after); /* after is NULL for the first. */
uint32_t process_number(const struct process *process);
uint32_t process_pid(const struct process *process);
const char *process_run_id(const struct process *process);
bool process_running(const struct process *process);
bool process_has_tty(const struct process *process);
void process_json(const struct process *process, struct json *json); /* Writes the schema Process. */
/* caller: who sends it, for the audit log. */
int process_signal(struct process *process, const struct caller *caller, int signum, unsigned svc_flags,
                   void (*done)(void *ctx, const struct brig_err *err), void *ctx, struct brig_err *err) MUST_CHECK;
int process_resize(struct process *process, uint16_t rows, uint16_t cols, struct brig_err *err) MUST_CHECK;
/*
 * done gets the receipt once it has ended (now, if it has). timeout_ms 0 means no limit; past it err is BRIG_E_TIMEOUT.
 */
struct process_wait;
int process_wait(struct process *process, uint64_t timeout_ms,
                 void (*done)(void *ctx, const char *receipt, size_t len, const struct brig_err *err), void *ctx,
                 struct process_wait **ret, struct brig_err *err) MUST_CHECK;
void process_wait_cancel(struct process_wait *wait);

/*
 * Reads output from an offset, for as many readers as there are clients. After end() it is gone: no output_close() any
 * more.
 */
struct output;
struct output_events {
    /* [1], [2]: where it starts; if that is more than asked for, bytes are lost. */
    void (*begin)(void *ctx, const uint64_t first[3]);
    /* Give the bytes back with output_consumed(). */
    void (*data)(void *ctx, unsigned stream, uint64_t offset, const uint8_t *data, size_t len);
    /* It has ended and all was delivered. This is the last call. receipt is NULL if the sandbox is gone. */
    void (*end)(void *ctx, const char *receipt, size_t len);
    void *ctx;
};
int output_open(struct process *process, unsigned streams, const uint64_t offset[3], const struct output_events *events,
                struct output **ret, struct brig_err *err) MUST_CHECK;
/*
 * Does the same up to what has been written when it is opened; then end(), with no receipt unless the process has
 * ended.
 */
int output_open_now(struct process *process, unsigned streams, const uint64_t offset[3],
                    const struct output_events *events, struct output **ret, struct brig_err *err) MUST_CHECK;
void output_consumed(struct output *output, unsigned stream, size_t len);
void output_close(struct output *output);

/* Input. After ended() it is gone: no input_close() any more. */
struct input;
struct input_events {
    void (*writable)(void *ctx);
    void (*ended)(void *ctx, int errnum); /* The last call. EPIPE: it does not read any more. */
    void *ctx;
};
int input_open(struct process *process, const struct input_events *events, struct input **ret,
               struct brig_err *err) MUST_CHECK;
/* Returns how many bytes were taken; if fewer, writable() follows. */
ssize_t input_write(struct input *input, const void *data, size_t len) MUST_CHECK;
void input_close(struct input *input, bool eof); /* eof: the program's stdin is closed too. */

/* ---- persistent shells ---------------------------------------------------------------------------------- */
/*
 * A bash (else sh) that takes commands one after the other, each with its own output, exit status and cwd; state
 * persists. If a command passes its timeout, its processes are killed. A shell that still does not come back is
 * replaced by a new one in the last known directory (`restarted: true` in the next answer).
 */
struct shell;
int shell_open(struct sbox *sbox, const struct caller *caller, const struct process_spec *spec /* argv NULL: bash */,
               void (*done)(void *ctx, struct shell *shell, const struct brig_err *err), void *ctx,
               struct brig_err *err) MUST_CHECK;
struct shell *shell_find(struct sbox *sbox, uint32_t number);
uint32_t shell_number(const struct shell *shell);
/*
 * The result is JSON {stdout, stderr, encodings, exit_code, cwd, timed_out, ended, restarted, truncated, duration_ms}.
 * BRIG_E_CONFLICT while another command runs.
 */
int shell_run(struct shell *shell, const struct caller *caller, const char *command, size_t len, uint64_t timeout_ms,
              void (*done)(void *ctx, const char *json, size_t len, const struct brig_err *err), void *ctx,
              struct brig_err *err) MUST_CHECK;
/* The client left: the command is ended as by a timeout. done still comes, perhaps from within. */
void shell_cancel(struct shell *shell);
int shell_close(struct shell *shell, struct brig_err *err) MUST_CHECK;

#endif
