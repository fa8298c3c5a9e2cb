/* SPDX-License-Identifier: Apache-2.0 */
/*
 * processes.h: what the files behind process.h share: one struct process per started program.
 *
 * Its life is that of program/program.h; here is who asked for it and who is told.
 */
#ifndef BRIG_SANDBOX_PROCESSES_H
#define BRIG_SANDBOX_PROCESSES_H

#include "program/program.h"
#include "sandbox/private.h"
#include "sandbox/process.h"

#define PROCESS_RUNNING_MAX 256u /* per sandbox */
#define PROCESS_KEEP 64u         /* The ended ones that are kept, per sandbox. */
#define PROCESS_WAITS_MAX 256u   /* The waiting requests, readers and writers of one process: each. */
#define SHELLS_MAX 64u
#define EARLY_MAX 64u             /* The processes of all sandboxes whose first output is kept: two windows each. */
#define EARLY_NS (2 * NS_PER_SEC) /* How long it is kept. */

struct process {
    struct sbox *sbox;
    struct process *next, *prev;
    unsigned pins;
    bool unlinked;
    bool forgotten; /* brig-init has no ring of it any more. */
    struct program prog;
    uint32_t pid;
    char run_id[48];
    struct caller caller;
    bool tty, stdin_open, kill_on_output;
    bool shell; /* It is a shell from its start, and counted apart. */
    uint32_t shell_number;
    bool unconfirmed; /* Recovery: it is known from the store only. */
    /* Recovery: it is known from brig-init only; its receipt is in the store already, under another number. */
    bool foreign;

    /* For the receipt: */
    char *memory; /* The memory of the lists. */
    const char **argv, **env_names, **env_layers;
    char *workdir;
    char *user;                         /* The one that it names; NULL for none. */
    int64_t started_at_ns, ended_at_ns; /* wall */
    uint64_t audit_seq;
    char *receipt;
    size_t receipt_len;

    enum brig_cause cause;
    struct gate_counts net;     /* The counts of the sandbox when it started. */
    struct brig_network policy; /* The name and version when it started. */

    struct call *feed;
    struct process_run *run;
    bool is_run; /* It belongs to process_run(): its output goes into the receipt. */

    /* stdin: one call for all writers (input.c) */
    struct buf input; /* process_run(): what has not been taken yet. */
    size_t input_at;
    bool input_eof, input_over, input_short;
    struct input *inputs;
    unsigned n_inputs;

    void (*start_done)(void *ctx, struct process *process, const struct brig_err *err);
    void *start_ctx;
    struct process_wait *waits;
    unsigned n_waits;
    struct output *outputs;
    unsigned n_outputs;
    struct early *early;
};

struct output {
    struct process *process;
    struct output *next, *prev;
    struct call *call; /* ATTACH, or LIST before it; NULL if all was delivered. */
    bool now;          /* only up to: */
    uint64_t limit[3];
    unsigned streams; /* The streams to attach to, once that is known. */
    uint64_t from[3];
    struct output_events events;
    uint64_t at[3];
    struct output **calling; /* It is set to NULL if the output is closed meanwhile. */
};

/* Output of a new process, kept for its first reader (early.c). */
struct early {
    struct call *call;     /* ATTACH from the very beginning; NULL if all has come. */
    struct output *output; /* The reader that has taken it over. */
    bool begun, replaying, pending;
    uint8_t begin[64]; /* The call's event, as it came. */
    size_t begin_len;
    struct buf data[3];
    struct loop_timer timer;
};

struct process_run {
    struct process *process;
    void (*done)(void *ctx, const char *receipt, size_t len, const struct brig_err *err);
    void *ctx;
};

/* ---- process.c ------------------------------------------------------------------------------------------- */
struct process *process_new(struct sbox *sbox, const struct caller *caller, bool shell);
void process_unlink(struct process *process); /* Takes it out of the list; it is freed when nobody has it pinned. */
void process_pin(struct process *process);
void process_unpin(struct process *process);
void process_ended(struct process *process); /* The receipt is there: everybody who waits is called. */
void processes_gone(struct sbox *sbox);      /* The box has ended, and so has everything in it. */
void processes_free(struct sbox *sbox);      /* nobody is told */
void processes_resumed(struct sbox *sbox, uint64_t paused_ns);
int process_store(struct process *process); /* Writes its row, as it is now. */

/* ---- sbox_start.c --------------------------------------------------------------------------------------------- */
int process_launch(struct process *process, const struct process_spec *spec, bool collect,
                   struct brig_err *err) MUST_CHECK;
/*
 * Writes argv, then the environment of a program: its own over the sandbox's, the network's and the base; each with its
 * NUL. Returns -E2BIG, -EMSGSIZE or -ENOMEM.
 */
int process_strings(struct sbox *sbox, const struct process_spec *spec, struct process *keep, struct buf *out,
                    struct svc_proc_start *ret) MUST_CHECK;
/* Takes the number of a new process. */
int sbox_take_number(struct sbox *sbox, uint32_t *ret, struct brig_err *err) MUST_CHECK;
/* A verdict of ours, and everything it has is killed; a clock runs until brig-init says so. */
void process_end(struct process *process, enum brig_cause cause, const char *detail);
extern const struct program_events process_events;
void process_drop_calls(struct process *process);
/* Why it did not start. */
void process_start_failure(const struct process *process, struct brig_err *err);

/*
 * Fills in what a program's START says: ids, working directory, argv and environment; keep as in process_strings().
 * What the sandbox cannot give is BRIG_E_REFUSED.
 */
int process_message(struct sbox *sbox, const struct process_spec *spec, const char *workdir, struct process *keep,
                    struct buf *strings, struct svc_proc_start *ret, struct brig_err *err) MUST_CHECK;

/* ---- spec_services.c, sbox_services.c ------------------------------------------------------------------------- */
struct service_def;
/* The program of a service, or (probe) the command that says whether it is up. */
int service_process(const struct service_def *def, bool probe, const struct sbox *sbox, struct process_spec_parsed *ret,
                    struct brig_err *err) MUST_CHECK;

/* ---- sbox_judge.c --------------------------------------------------------------------------------------------- */
void process_judge(struct process *process);      /* It may ask for statistics first; ends in process_ended(). */
void process_judge_gone(struct process *process); /* the sandbox took it along */

/* ---- sbox_receipt.c ------------------------------------------------------------------------------------------- */
int process_receipt(struct process *process);                         /* Fills receipt; -ENOMEM. */
int process_open_doc(const struct process *process, struct buf *out); /* The document of a run that goes on. */
/*
 * A run that the store has as open: its process is found again if its sandbox lives; else it is closed as host-error.
 */
void process_recover(struct manager *manager, const char *doc, const char *run_id);

/* ---- early.c --------------------------------------------------------------------------------------------- */
int early_open(struct process *process, struct brig_err *err) MUST_CHECK; /* Sent with START, in the same write. */
bool early_adopt(struct output *output, unsigned streams, const uint64_t offset[3]);
void early_arm(struct process *process);
void early_flush(struct process *process); /* Gives what was kept to the reader that has taken it over. */
void early_drop(struct process *process);  /* There may be none. */

/* ---- output.c, input.c, sbox_run.c, sbox_shell.c -------------------------------------------------------- */
void output_event(void *ctx, const uint8_t *data, size_t len);
void output_data(void *ctx, unsigned stream, const uint8_t *data, size_t len);
void output_reply(void *ctx, uint32_t errnum, uint32_t stage, const uint8_t *data, size_t len);
void outputs_ended(struct process *process);
void outputs_free(struct process *process);
int input_feed(struct process *process, const void *data, size_t len,
               struct brig_err *err) MUST_CHECK; /* process_run(): writes all of it, then the end. */
void inputs_ended(struct process *process, int errnum);
void inputs_free(struct process *process);
void input_done(struct process *process); /* frees what was kept for it */
void waits_ended(struct process *process);
void waits_free(struct process *process);
void shells_free(struct sbox *sbox, bool tell);
void shell_process_ended(struct process *process);
void shell_recovered(struct process *process);

/* ---- list.c: after a restart ------------------------------------------------------------------------------ */
/* Asks brig-init what runs there; known processes are followed again. priv->attach_done is called at the end. */
int processes_list(struct sbox *sbox, struct brig_err *err) MUST_CHECK;

#endif
