/* SPDX-License-Identifier: Apache-2.0 */
/*
 * brig.h: the public library interface, and the vocabulary (limits, layers, causes) that every room shares.
 *
 * An engine owns one spawner process; runs are started through it. With the first run that has a network it starts a
 * brig-egress as well, which ends with it. The library never forks the calling process (the helpers are executed),
 * never touches SIGCHLD, keeps no global state and starts no threads. An engine and its runs belong to one thread at a
 * time; different engines are independent.
 *
 *   struct brig_engine *engine;
 *   struct brig_run *run;
 *   struct brig_err err;
 *   brig_engine_create(NULL, &engine, &err);
 *   brig_run_start(engine, &spec, &run, &err);
 *   brig_run_wait(run, &err);
 *   const struct brig_receipt *receipt = brig_run_receipt(run);
 *
 * Every fallible function returns 0 (or a count) or a negative errno, and fills *err, which may be NULL. Out-parameters
 * are untouched on failure. A destructor accepts NULL. Structs that may grow start with their own size, so that
 * programs built against an older header keep working.
 */
#ifndef BRIG_H
#define BRIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BRIG_API __attribute__((visibility("default")))
#define BRIG_CHECK __attribute__((warn_unused_result))
#else
#define BRIG_API
#define BRIG_CHECK
#endif

/* ---- errors ------------------------------------------------------------------------------------ */

enum brig_code {
    BRIG_E_NONE,
    BRIG_E_USAGE,       /* the caller's value breaks a rule; the message names both */
    BRIG_E_REFUSED,     /* a required layer is missing, or policy says no */
    BRIG_E_UNSUPPORTED, /* this host cannot do it */
    BRIG_E_HOST,        /* a system call failed */
    BRIG_E_NOMEM,
    BRIG_E_GONE, /* the spawner died */
    /* Only from the service: */
    BRIG_E_UNAUTHENTICATED, /* no key, or an unknown one */
    BRIG_E_FORBIDDEN,       /* the caller is known and may not do it */
    BRIG_E_NOT_FOUND,       /* it does not exist, or belongs to somebody else */
    BRIG_E_CONFLICT,        /* the present state does not allow it */
    BRIG_E_LIMIT,           /* a quota, a rate or a bounded queue is full; try later */
    BRIG_E_TOO_LARGE,
    BRIG_E_TIMEOUT,
    BRIG_E_BUSY,    /* shutting down, or a part of the service does not answer */
    BRIG_E_INVALID, /* well-formed, but the content breaks a rule of its purpose (a schema, a requirement) */
    BRIG_E_OFF,     /* known, and not enabled here; the message says what would turn it on */
    BRIG_E_MAX
};

struct brig_err {
    int code;   /* enum brig_code */
    int errnum; /* The errno behind it, or 0. */
    char message[256];
};

/* ---- limits: one object everywhere ----------------------------------------------------------- */

/* 0 means the default. Sizes are in bytes, times in milliseconds, cpus in thousandths of one CPU. */
struct brig_limits {
    uint64_t memory;
    uint64_t cpus;
    uint64_t cpu_time;
    uint64_t pids;
    /*
     * If images are possible, a run that asks for disk or io gets one. Otherwise memory backs the store, and disk is at
     * most half of memory.
     */
    uint64_t disk;
    uint64_t inodes;
    uint64_t open_files;
    uint64_t file_size;
    uint64_t io_read_bps;
    uint64_t io_write_bps;
    uint64_t timeout;
    uint64_t output;
    /* Towards the sandbox, in its whole life. For this and the next three, 0 means what the policy says. */
    uint64_t net_bytes_in;
    uint64_t net_bytes_out;
    uint64_t net_bps;     /* Both directions together. */
    uint64_t connections; /* Open at once. */
};

enum brig_limit {
    BRIG_LIMIT_MEMORY,
    BRIG_LIMIT_CPUS,
    BRIG_LIMIT_CPU_TIME,
    BRIG_LIMIT_PIDS,
    BRIG_LIMIT_DISK,
    BRIG_LIMIT_INODES,
    BRIG_LIMIT_OPEN_FILES,
    BRIG_LIMIT_FILE_SIZE,
    BRIG_LIMIT_IO_READ_BPS,
    BRIG_LIMIT_IO_WRITE_BPS,
    BRIG_LIMIT_TIMEOUT,
    BRIG_LIMIT_OUTPUT,
    BRIG_LIMIT_NET_BYTES_IN,
    BRIG_LIMIT_NET_BYTES_OUT,
    BRIG_LIMIT_NET_BPS,
    BRIG_LIMIT_CONNECTIONS,
    BRIG_LIMIT_MAX
};

/* ---- protection --------------------------------------------------------------------------------- */

/* `require: all` means BRIG_LAYER_USER_NS to BRIG_LAYER_INODES; the rest is only reported. */
enum brig_layer {
    BRIG_LAYER_USER_NS,
    BRIG_LAYER_MOUNT_NS,
    BRIG_LAYER_PID_NS,
    BRIG_LAYER_NET_NS,
    BRIG_LAYER_IPC_NS,
    BRIG_LAYER_UTS_NS,
    BRIG_LAYER_CGROUP_NS,
    BRIG_LAYER_UID_RANGE,
    BRIG_LAYER_CAPS,
    BRIG_LAYER_NO_NEW_PRIVS,
    BRIG_LAYER_SECCOMP,
    BRIG_LAYER_LANDLOCK,
    BRIG_LAYER_ROOT_READONLY,
    BRIG_LAYER_PROC,
    BRIG_LAYER_FDS,
    BRIG_LAYER_MEMORY,
    BRIG_LAYER_CPU,
    BRIG_LAYER_PIDS,
    BRIG_LAYER_DISK,
    BRIG_LAYER_INODES,
    BRIG_LAYER_TIME_NS,
    BRIG_LAYER_IO,
    BRIG_LAYER_OWN_KERNEL, /* Another kernel than the host's answers its system calls. */
    BRIG_LAYER_MAX
};

#define BRIG_REQUIRE_VERSION 1
#define BRIG_LAYER_BIT(layer) (UINT64_C(1) << (layer))
#define BRIG_REQUIRE_ALL (BRIG_LAYER_BIT(BRIG_LAYER_INODES + 1) - 1)

/* One layer as read back from the kernel. The strings are static and never NULL; "" if it does not apply. */
struct brig_layer_state {
    bool on;
    uint32_t abi;    /* Landlock: the ABI in force; otherwise 0. */
    const char *by;  /* What enforces it: "cgroup v1", "cgroup v2", "RLIMIT_AS", "ext4 image", "memory-backed", ... */
    const char *why; /* Why it is off or weaker. */
};

/* ---- what to run -------------------------------------------------------------------------------- */

enum brig_profile { BRIG_PROFILE_DEFAULT, BRIG_PROFILE_PARANOID, BRIG_PROFILE_COMPAT, BRIG_PROFILE_MAX };

enum brig_stream { BRIG_STDOUT = 1, BRIG_STDERR = 2 };

/* flags of struct brig_spec */
#define BRIG_RUN_STDIN (1u << 0)          /* brig_run_write() feeds the program's stdin; otherwise it is empty. */
#define BRIG_RUN_TTY (1u << 1)            /* stdin, stdout and stderr are one PTY; the output arrives as BRIG_STDOUT. */
#define BRIG_RUN_KEEP_OUTPUT (1u << 2)    /* Keeps the output for the receipt. */
#define BRIG_RUN_KILL_ON_OUTPUT (1u << 3) /* The output limit ends the run; without it, bytes are dropped. */
#define BRIG_RUN_WRITABLE_ROOT (1u << 4)  /* The root has an upper layer in the store. */
#define BRIG_RUN_PULL (1u << 5)           /* The output waits for brig_run_read() and does not go to on_output. */
/* What the network let through becomes a policy: struct brig_receipt.learned. */
#define BRIG_RUN_LEARN (1u << 6)
/*
 * The program is uid 0 of the sandbox, with the capabilities CHOWN, DAC_OVERRIDE, FOWNER, FSETID, SETUID, SETGID and
 * KILL over its own files and processes. It needs 65,536 ids (root, or subordinate ids), and the layer `caps` is off.
 */
#define BRIG_RUN_ROOT (1u << 7)

struct brig_bind {
    const char *source; /* absolute host path */
    const char *target; /* absolute path inside */
    bool read_only;
    /*
     * For a directory: what is written lies in the sandbox's own store, counts against `disk`, and is deleted with it;
     * the source is only read.
     */
    bool overlay;
};

struct brig_tmpfs {
    const char *path;
    uint64_t size;
};

struct brig_run;

struct brig_spec {
    size_t size; /* sizeof(struct brig_spec) */
    const char *const *argv;
    const char *const *env; /* "NAME=value", over the base environment; ends with NULL; may be NULL. */
    const char *name;       /* A name for people: [A-Za-z0-9][A-Za-z0-9_.-]{0,62}; may be NULL. */
    const char *workdir;    /* Absolute; the default is /workspace. */
    const char *rootfs;     /* A directory or a tar; NULL is the template `host`. */
    unsigned flags;
    enum brig_profile profile;
    struct brig_limits limits;
    uint64_t require; /* A mask of BRIG_LAYER_BIT(); the run is refused unless these layers are on. */
    const struct brig_bind *binds;
    size_t n_binds;
    const struct brig_tmpfs *tmpfs;
    size_t n_tmpfs;
    uint16_t tty_rows, tty_cols;
    /* A policy as JSON (docs/NETWORK.md); NULL for no network. A wrong policy ends the run with the cause policy. */
    const char *network;
    const char *network_name; /* The name of the policy in the receipt; NULL means "custom". */
    /*
     * These are called from brig_engine_dispatch() and brig_run_wait(), never concurrently. Data is valid during the
     * call. They may call any function on this run except destroy.
     */
    void (*on_output)(void *ctx, struct brig_run *run, enum brig_stream stream, const void *data, size_t len);
    void (*on_done)(void *ctx, struct brig_run *run);
    void *ctx;
};

/* ---- how it ended ------------------------------------------------------------------------------- */

/* In order of precedence. */
enum brig_cause {
    BRIG_CAUSE_HOST_ERROR,
    BRIG_CAUSE_SANDBOX_GONE,
    BRIG_CAUSE_CANCELLED,
    BRIG_CAUSE_POLICY,
    BRIG_CAUSE_TIMEOUT,
    BRIG_CAUSE_CPU_LIMIT,
    BRIG_CAUSE_OUTPUT_LIMIT,
    BRIG_CAUSE_OOM,
    BRIG_CAUSE_DISK_LIMIT,
    BRIG_CAUSE_PIDS_LIMIT,
    BRIG_CAUSE_SIGNALLED,
    BRIG_CAUSE_EXITED,
    BRIG_CAUSE_MAX
};

#define BRIG_USAGE_UNKNOWN UINT64_MAX

struct brig_usage {
    uint64_t wall_ms, cpu_ms;
    uint64_t memory_peak_bytes, pids_peak, disk_bytes; /* BRIG_USAGE_UNKNOWN where the kernel does not say. */
    uint64_t read_bytes, written_bytes;
    uint64_t net_in_bytes, net_out_bytes; /* 0 without a network */
};

struct brig_receipt {
    size_t size;
    char id[48];         /* run-<uuid4> */
    char sandbox_id[32]; /* 26 of [a-z0-9] */
    char name[64];
    enum brig_cause cause;
    int exit_code;       /* This is valid if signal is 0 and the main process ended. */
    int signal;          /* The signal that ended the main process, or 0. */
    bool started;        /* The program was executed. */
    uint32_t limits_hit; /* A mask of 1u << enum brig_limit. */
    char detail[256];    /* One line for people; "" if there is nothing to add. */
    struct brig_limits limits;
    struct brig_usage usage;
    struct brig_layer_state layers[BRIG_LAYER_MAX];
    bool protection_complete; /* Every layer of `require: all` is on. */
    const void *output[3];    /* [BRIG_STDOUT], [BRIG_STDERR]; kept with BRIG_RUN_KEEP_OUTPUT. The run owns it. */
    size_t output_len[3];
    bool truncated[3];
    int64_t started_at_ns, ended_at_ns; /* CLOCK_REALTIME */
    /* The names of the program's environment, with NULL at the end, and for each name: */
    const char *const *env_names;
    const char *const *env_layers; /* "base" or "run" */
    const char *const *argv;
    struct brig_network {
        char policy[64]; /* "none" without a policy. */
        uint64_t version;
        uint64_t allowed, denied; /* Connections and requests; refused names count as denied. */
    } network;
    const char *learned; /* BRIG_RUN_LEARN: a minimal policy as JSON; else NULL. The run owns it. */
};

/* ---- engine ------------------------------------------------------------------------------------- */

/* flags of struct brig_engine_options */
/*
 * The caller has one thread: fork the spawner, do not execute the helper, and do not wait for it. Then the first run,
 * and not brig_engine_create(), reports what is wrong with the host.
 */
#define BRIG_ENGINE_FORK (1u << 0)

struct brig_engine_options {
    size_t size; /* sizeof(struct brig_engine_options) */
    unsigned flags;
    unsigned pool; /* The sandboxes that are kept ready; 0 for none. */
    /* The directory of brig-spawner, brig-init and brig-egress; NULL: BRIG_LIBEXEC_DIR, else as installed. */
    const char *helper_dir;
};

struct brig_engine;

BRIG_API BRIG_CHECK int brig_engine_create(const struct brig_engine_options *options, struct brig_engine **ret,
                                           struct brig_err *err);
/* Ends every run that is still going, and the spawner. Runs that were not destroyed before are destroyed with it. */
BRIG_API void brig_engine_destroy(struct brig_engine *engine);
/* Returns a descriptor that is readable when brig_engine_dispatch() has something to do. The engine owns it. */
BRIG_API int brig_engine_fd(const struct brig_engine *engine);
/*
 * Handles what is ready, and waits up to timeout_ms (-1: without limit) for the first event. Returns 0 or a negative
 * errno.
 */
BRIG_API BRIG_CHECK int brig_engine_dispatch(struct brig_engine *engine, int timeout_ms, struct brig_err *err);
/* Waits until the pool is full. */
BRIG_API BRIG_CHECK int brig_engine_fill(struct brig_engine *engine, struct brig_err *err);

/* Checks everything about a spec that can be known without making anything: the rules, and that named files exist. */
BRIG_API BRIG_CHECK int brig_spec_check(const struct brig_spec *spec, struct brig_err *err);
/* Checks the spec completely and asks for the run. If the spec is bad, nothing is created. */
BRIG_API BRIG_CHECK int brig_run_start(struct brig_engine *engine, const struct brig_spec *spec, struct brig_run **ret,
                                       struct brig_err *err);
/* Dispatches until this run is done. A run that could not be started is done, with the cause host-error or policy. */
BRIG_API BRIG_CHECK int brig_run_wait(struct brig_run *run, struct brig_err *err);
BRIG_API bool brig_run_done(const struct brig_run *run);
/* Returns NULL until the run is done. The run owns the receipt. */
BRIG_API const struct brig_receipt *brig_run_receipt(const struct brig_run *run);
/*
 * Returns the number of bytes taken (at most len; 0 if the pipe is full), or a negative errno: -EPIPE if the program no
 * longer reads.
 */
BRIG_API BRIG_CHECK int brig_run_write(struct brig_run *run, const void *data, size_t len, struct brig_err *err);
BRIG_API void brig_run_close_stdin(struct brig_run *run);
BRIG_API BRIG_CHECK int brig_run_resize(struct brig_run *run, uint16_t rows, uint16_t cols, struct brig_err *err);
/* Sends a signal to the main process. */
BRIG_API BRIG_CHECK int brig_run_signal(struct brig_run *run, int signum, struct brig_err *err);
/* Kills everything in the sandbox. The cause is `cancelled`, unless the run had ended before. */
BRIG_API void brig_run_cancel(struct brig_run *run);
/*
 * With BRIG_RUN_PULL: reads up to size bytes of what came so far. Returns 0 if there is nothing now, and -ENODATA at
 * the end. To wait for more, poll brig_engine_fd() and dispatch; the output limit bounds what is held.
 */
BRIG_API BRIG_CHECK int brig_run_read(struct brig_run *run, enum brig_stream stream, void *data, size_t size);
BRIG_API void brig_run_destroy(struct brig_run *run);

/* Writes the receipt as the JSON of docs/RECEIPT.md. Free *ret with free(). */
BRIG_API BRIG_CHECK int brig_receipt_json(const struct brig_receipt *receipt, char **ret, size_t *ret_len,
                                          struct brig_err *err);

/* ---- this host ---------------------------------------------------------------------------------- */

struct brig_doctor_row {
    const char *name; /* The name of a layer, a limit or a feature. */
    bool on;
    bool needed;     /* It is part of `require: all`. */
    char state[160]; /* What is in force, or why it is not. */
    char fix[320];   /* The exact command or setting; "" if nothing must be done. */
};

struct brig_doctor {
    size_t size;
    bool complete; /* This user can make a sandbox with every layer of `require: all` here. */
    bool usable;   /* A sandbox can be made at all. */
    char summary[256];
    size_t n_rows;
    struct brig_doctor_row rows[64];
    uint64_t filter_limit; /* net.core.bpf_jit_limit, for the filters of the whole host; 0: only root can read it. */
    uint64_t filter_bytes; /* What one sandbox takes of it. */
};

/* Makes a real sandbox and reads it back, then explains what is missing. */
BRIG_API BRIG_CHECK int brig_doctor(const struct brig_engine_options *options, struct brig_doctor *ret,
                                    struct brig_err *err);

/* ---- names -------------------------------------------------------------------------------------- */

BRIG_API const char *brig_version(void);  /* "0.1.0" */
BRIG_API const char *brig_commit(void);   /* The git commit, or "unknown". */
BRIG_API const char *brig_features(void); /* Separated by spaces. */
BRIG_API unsigned brig_protocol(void);    /* The version of the protocol with brig-init. */
BRIG_API const char *brig_layer_name(enum brig_layer layer);
BRIG_API const char *brig_limit_name(enum brig_limit limit);
BRIG_API const char *brig_cause_name(enum brig_cause cause);
BRIG_API const char *brig_profile_name(enum brig_profile profile);
/* Returns the value, or -EINVAL. */
BRIG_API int brig_layer_parse(const char *name);
BRIG_API int brig_profile_parse(const char *name);
/*
 * Parse "512m", "1.5g", "4096" into bytes; "30s", "2m", "1.5" into milliseconds; "0.5" into thousandths. Return 0,
 * -EINVAL (also for zero) or -ERANGE.
 */
BRIG_API BRIG_CHECK int brig_parse_size(const char *text, uint64_t *ret);
BRIG_API BRIG_CHECK int brig_parse_duration(const char *text, uint64_t *ret);
BRIG_API BRIG_CHECK int brig_parse_cpus(const char *text, uint64_t *ret);
/* Returns the exit status that the command line gives for this receipt. */
BRIG_API int brig_exit_status(const struct brig_receipt *receipt);

#ifdef __cplusplus
}
#endif
#endif
