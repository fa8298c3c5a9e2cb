/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_svc.h: the service protocol between brigd and the brig-init of a long-lived sandbox (docs/PROTOCOL.md,
 * "Service"). It runs over any byte stream, in the frames of frame.h; nothing in it needs a descriptor.
 *
 * Theory of operation. brigd opens a *call*: one frame whose type says what it wants, with a `request` number that
 * is not in use on this connection (1 .. 2^31-1). Everything that belongs to the call carries the same number:
 *
 *     brigd -> init   open (one of SVC_PROC_START ...), then SVC_DATA, SVC_EOF, SVC_CREDIT, SVC_CANCEL
 *     init -> brigd   SVC_EVENT, SVC_DATA, SVC_EOF, SVC_CREDIT, and last of all exactly one SVC_REPLY
 *
 * After SVC_REPLY the number is free again; frames of brigd that cross it are ignored by init (they cannot open a
 * call by themselves). `stream` names a direction of bytes within the call: 0 goes in (stdin, an upload, to a port),
 * 1 comes out (stdout, a download, from a port), 2 comes out (stderr). A sender may have at most SVC_WINDOW bytes
 * of SVC_DATA on a stream that the other side has not given back with SVC_CREDIT; more is a protocol error.
 * Opens may be longer than one frame (FRAME_MORE, as START is); all else fits one.
 *
 * brig-init lives through any number of connections, one at a time: a new one (FRAME_ATTACH on the control socket, or a
 * reconnect) ends the calls of the old, never the processes. Process numbers are chosen by brigd, so that START,
 * ATTACH and WAIT travel in one write; they are unique in the life of a sandbox (LIST tells what is taken).
 *
 * All numbers are little-endian. Strings are u32 length + bytes, without NUL inside where they are paths or
 * arguments. Parsing never reads past what it was given; a message with bytes left over is malformed. This file is
 * compiled into brig-init too: no C library, no allocation.
 */
#ifndef BRIG_CODEC_WIRE_GUEST_SVC_H
#define BRIG_CODEC_WIRE_GUEST_SVC_H

#include "base/base.h"
#include "codec/wire/fields.h"
#include "codec/wire/frame.h"
#include "codec/wire/guest_msg.h"

#define SVC_VERSION 1u
#define SVC_WINDOW (1u << 20)
#define SVC_OPEN_MAX (GUEST_STRINGS_MAX + 16384u) /* The longest open, put together from its frames. */
#define SVC_PATH_MAX 4096u
/* The calls that are open at once on a connection; one more gets SVC_REPLY with EAGAIN. */
#define SVC_CALLS_MAX 1024u

/* The frame types of the service connection; those of frame.h are below 16. */
enum svc_type {
    SVC_HELLO = 16, /* both ways, first: struct svc_hello; request 0 */

    /* For any call: */
    SVC_DATA = 17,
    SVC_EOF = 18,    /* No more SVC_DATA follows on this stream. */
    SVC_CREDIT = 19, /* u32: the number of bytes of the stream that were consumed */
    SVC_EVENT = 20,  /* payload depends on the call */
    SVC_REPLY = 21,  /* struct svc_reply, then a payload that depends on the call (only when errnum is 0) */
    SVC_CANCEL = 22, /* The caller has lost interest. REPLY (ECANCELED, or what had happened before) still comes. */

    /* Calls for processes (guest/init/proc*.c): */
    SVC_PROC_START = 32,  /* struct svc_proc_start -> REPLY struct svc_proc_started */
    SVC_PROC_ATTACH = 33, /* struct svc_proc_attach -> EVENT svc_attached, DATA 1 and 2, EOF 1 and 2, REPLY */
    SVC_PROC_INPUT = 34,  /* u32 proc; DATA 0, EOF 0 -> REPLY; errnum EPIPE when it no longer reads */
    SVC_PROC_WAIT = 35,   /* u32 proc -> REPLY struct svc_proc_exit, once everything of the process is gone */
    SVC_PROC_SIGNAL = 36, /* struct svc_proc_signal -> REPLY */
    SVC_PROC_RESIZE = 37, /* u32 proc, u16 rows, u16 cols -> REPLY */
    SVC_PROC_LIST = 38,   /* -> EVENT struct svc_proc_info each, REPLY */
    SVC_PROC_FORGET = 39, /* u32 proc -> REPLY; its ring and status are dropped (EBUSY while it runs) */
    /*
     * u32 proc, string command -> EVENT svc_attached (where its output begins), DATA and EOF 1/2, REPLY
     * svc_shell_result
     */
    SVC_SHELL_RUN = 40,
    /*
     * u32 proc; DATA 0, EOF 0 -> DATA 1, EOF 1, and REPLY when the process has closed its end or is gone and all was
     * sent. EBUSY: another call has the channel. ENOTCONN: the process has no channel.
     */
    SVC_CHANNEL = 41,
    /*
     * string user -> REPLY. Processes and file calls are this user's from now on, as with SVC_PROC_USER. EBUSY once
     * there has been one.
     */
    SVC_USER = 42,

    /* Calls for ports: */
    SVC_PORT_LIST = 48,    /* -> EVENT struct svc_port each, REPLY */
    SVC_PORT_CONNECT = 49, /* u16 port, or 0 and the path of a unix socket -> EVENT (empty) when connected, DATA both
                              ways, EOF both ways, REPLY */

    /* Calls for units, the services of the sandbox (guest/init/units.c): */
    /* The list of units, once -> REPLY u32: 0 when all are up, else 1 + the index of the first that failed. */
    SVC_UNIT_SET = 56,
    SVC_UNIT_LIST = 57, /* -> EVENT struct svc_unit_info each, REPLY */
    /*
     * struct svc_unit_control -> REPLY u32 state, once it is up or has failed (start, restart), or has ended (stop).
     * ENOENT: there is none of that name. EBUSY: another such call is under way for it.
     */
    SVC_UNIT_CONTROL = 58,
    /*
     * struct svc_unit_log -> EVENT u64 offset of the first byte, DATA 1, EOF 1, REPLY. With follow it ends only when it
     * is cancelled. A reader that is too slow loses bytes; the unit never waits for it.
     */
    SVC_UNIT_LOG = 59,

    /* Calls for files (guest/files/, in the worker that has the user's ids). Each begins with struct svc_path. */
    SVC_FILE_STAT = 64,    /* path -> REPLY entry */
    SVC_FILE_LIST = 65,    /* path, u32 depth, u32 max -> EVENT entries, REPLY u32 more (1: cut at max) */
    SVC_FILE_READ = 66,    /* path, u64 offset, u64 length (0: to the end) -> EVENT entry, DATA 1, EOF 1, REPLY */
    SVC_FILE_WRITE = 67,   /* path, struct svc_file_write; DATA 0, EOF 0 -> REPLY entry */
    SVC_FILE_MKDIR = 68,   /* path, u32 mode, u32 parents -> REPLY entry; EEXIST unless parents and a directory */
    SVC_FILE_MOVE = 69,    /* path, string to, u32 replace -> REPLY entry */
    SVC_FILE_REMOVE = 70,  /* path, u32 recursive -> REPLY */
    SVC_FILE_WATCH = 71,   /* path, u32 recursive -> EVENT (empty) when armed, EVENT svc_file_change each, REPLY */
    SVC_FILE_TAR_GET = 72, /* path -> DATA 1 (a PAX tar), EOF 1, REPLY u64 members, u64 bytes */
    /*
     * path (a directory), svc_tar_limits; DATA 0, EOF 0 -> REPLY u64 members, u64 bytes. If it fails at a member, an
     * EVENT with the member's name (svc_bytes) precedes the REPLY.
     */
    SVC_FILE_TAR_PUT = 73,
    SVC_TYPE_MAX
};
/* From this number on a type opens a call. Numbers between the groups are answered with ENOSYS. */
#define SVC_CALL_MIN 32u
#define SVC_FILE_MIN 64u
#define SVC_REQUEST_MAX 0x7fffffffu

/*
 * Parses one frame at the start of buf, as frame_parse() does. Returns the number of bytes, 0 when more are needed, or
 * -EPROTO, which the header alone decides: an unknown type, a length over the limit, FRAME_MORE on anything but an open
 * with a payload, a stream above 2 or on a frame that has none, a request of 0 (HELLO: any other) or above
 * SVC_REQUEST_MAX.
 */
int svc_frame_parse(const uint8_t *buf, size_t len, struct frame *ret) MUST_CHECK;

/* ---- the messages --------------------------------------------------------------------------------- */
/* X_put returns the number of bytes or -EMSGSIZE; X_parse returns 0 or -EPROTO. */

#define SVC_CAP_LEAVES (1u << 0) /* Every process has a cgroup of its own. */
struct svc_hello {
    uint32_t version;      /* SVC_VERSION */
    uint32_t capabilities; /* From init SVC_CAP_*, from brigd 0. */
    uint64_t boot;         /* From init a random number, chosen at its start; from brigd 0. */
};
int svc_hello_put(uint8_t *out, size_t size, const struct svc_hello *msg) MUST_CHECK;
int svc_hello_parse(const uint8_t *in, size_t len, struct svc_hello *ret) MUST_CHECK;

struct svc_reply {
    uint32_t errnum; /* 0: done */
    uint32_t stage;  /* PROC_START: enum guest_stage where it stopped; otherwise 0 */
};
#define SVC_REPLY_SIZE 8u
int svc_reply_put(uint8_t *out, size_t size, const struct svc_reply *msg) MUST_CHECK;
/* The payload of the call follows the first SVC_REPLY_SIZE bytes; with an errnum there is none. */
int svc_reply_parse(const uint8_t *in, size_t len, struct svc_reply *ret) MUST_CHECK;

/* flags of struct svc_proc_start */
#define SVC_PROC_TTY (1u << 0) /* It has a PTY, and its output is stream 1. */
/* stdin is a pipe that SVC_PROC_INPUT feeds, else /dev/null. A TTY always has input. */
#define SVC_PROC_STDIN (1u << 1)
#define SVC_PROC_SHELL \
    (1u << 2) /* A persistent shell: argv is the interpreter (bash or sh), and SVC_SHELL_RUN sends commands. */
#define SVC_PROC_HOLD (1u << 3) /* Somebody is about to attach. Until then a full ring waits and forgets nothing. */
/*
 * Descriptor 3 of the program is a stream socket, which SVC_CHANNEL carries; not with SHELL. Without a call, or without
 * credit, its writes wait and nothing is forgotten. What the program wrote to stdout and stderr before it wrote to the
 * channel is sent first, to those who are attached.
 */
#define SVC_PROC_CHANNEL (1u << 4)
/*
 * It is the process of this user (codec/passwd.h), whom init looks up in the sandbox's own files; REPLY with stage IDS
 * and ESRCH, or EPERM for uid 0 without root inside. HOME, USER and LOGNAME are added unless the environment has them.
 * (Bit 5 was ids as numbers.)
 */
#define SVC_PROC_USER (1u << 6)

struct svc_proc_start {
    uint32_t proc; /* brigd chooses it. It is not 0 and was never used before in this sandbox. */
    uint32_t flags;
    uint16_t rows, cols;
    /* The bytes of output that are kept per stream for those who come back; 0 means 256 KiB; at most 64 MiB. */
    uint32_t ring;
    uint32_t n_argv, n_env;
    struct svc_bytes workdir; /* absolute */
    struct svc_bytes user;    /* With SVC_PROC_USER, else it is not sent. */
    const uint8_t *strings;   /* When parsed: n_argv + n_env strings with NULs, one after the other, to the end. */
    size_t strings_len;
};
int svc_proc_start_put(uint8_t *out, size_t size, const struct svc_proc_start *msg) MUST_CHECK;
int svc_proc_start_parse(const uint8_t *in, size_t len, struct svc_proc_start *ret) MUST_CHECK;

struct svc_proc_started {
    uint32_t pid;   /* The pid inside the sandbox. */
    uint64_t at_ns; /* CLOCK_MONOTONIC just before execve */
};
int svc_proc_started_put(uint8_t *out, size_t size, const struct svc_proc_started *msg) MUST_CHECK;
int svc_proc_started_parse(const uint8_t *in, size_t len, struct svc_proc_started *ret) MUST_CHECK;

#define SVC_FROM_NOW UINT64_MAX /* As an offset: only what comes from now on. */

/*
 * While somebody is attached, a program that writes faster than they read is slowed down: init stops reading its pipe
 * when the ring holds only bytes that they have not had. With nobody attached the ring forgets its oldest bytes (with
 * SVC_PROC_HOLD only after somebody has been attached). Then `first` of svc_attached is greater than the offset that
 * was asked for: the bytes between are lost, and the caller sees how many.
 */
struct svc_proc_attach {
    uint32_t proc;
    uint32_t streams;   /* bit 1: stdout, bit 2: stderr */
    uint64_t offset[3]; /* [1] and [2]: the offsets to go on from. */
};
int svc_proc_attach_put(uint8_t *out, size_t size, const struct svc_proc_attach *msg) MUST_CHECK;
int svc_proc_attach_parse(const uint8_t *in, size_t len, struct svc_proc_attach *ret) MUST_CHECK;

struct svc_attached {
    uint64_t first[3]; /* [1] and [2]: the offset of the first byte that will come */
};
int svc_attached_put(uint8_t *out, size_t size, const struct svc_attached *msg) MUST_CHECK;
int svc_attached_parse(const uint8_t *in, size_t len, struct svc_attached *ret) MUST_CHECK;

struct svc_proc_exit {
    uint32_t status;               /* as wait(2) gives it */
    uint64_t started_ns, ended_ns; /* CLOCK_MONOTONIC */
    uint64_t output[3];            /* [1] and [2]: the bytes that were ever written. */
    /* From its leaf cgroup, or from wait4's rusage; UINT64_MAX if it is not known. */
    uint64_t cpu_ns, memory_peak, pids_peak;
    uint32_t oom_kills, pids_refused; /* The counters of its leaf; 0 without a leaf. */
    uint32_t leaf;                    /* 1 if it had a cgroup of its own. */
    uint32_t killed; /* 1 if SVC_PROC_SIGNAL with SVC_SIGNAL_ALL and SIGKILL ended it, before it ended by itself. */
    uint32_t store;  /* GUEST_STORE_*: what the sandbox's store had run out of at its end; 0 without a leaf. */
};
int svc_proc_exit_put(uint8_t *out, size_t size, const struct svc_proc_exit *msg) MUST_CHECK;
int svc_proc_exit_parse(const uint8_t *in, size_t len, struct svc_proc_exit *ret) MUST_CHECK;

/* Everything that the process has started, wherever it went; only with SIGKILL. */
#define SVC_SIGNAL_ALL (1u << 0)
#define SVC_SIGNAL_CHILDREN (1u << 1) /* The same without the main process. */
#define SVC_SIGNAL_GROUP (1u << 2)    /* The foreground process group of a TTY, else the main process's group. */
#define SVC_SHELL_STOP 64u /* For a shell: its command line ends, the shell goes on (guest/init/guest_shell.c). */
#define SVC_SHELL_STOP_TEXT "64"
struct svc_proc_signal {
    uint32_t proc, signum, flags;
};
int svc_proc_signal_put(uint8_t *out, size_t size, const struct svc_proc_signal *msg) MUST_CHECK;
int svc_proc_signal_parse(const uint8_t *in, size_t len, struct svc_proc_signal *ret) MUST_CHECK;

struct svc_proc_info {
    uint32_t proc, pid, flags;
    uint32_t running;
    uint64_t started_ns;
    uint64_t output[3], oldest[3]; /* The bytes written, and the oldest offset that the ring still has. */
    struct svc_proc_exit exit;     /* This is valid if it is not running. */
    struct svc_bytes command;      /* argv[0], cut at 255 */
};
int svc_proc_info_put(uint8_t *out, size_t size, const struct svc_proc_info *msg) MUST_CHECK;
int svc_proc_info_parse(const uint8_t *in, size_t len, struct svc_proc_info *ret) MUST_CHECK;

struct svc_shell_result {
    uint32_t status;      /* the command's $? (0 to 255) */
    uint32_t ended;       /* 1 if the shell itself ended (exit, exec, killed); status is then as wait(2) gives it. */
    struct svc_bytes cwd; /* empty when ended */
};
int svc_shell_result_put(uint8_t *out, size_t size, const struct svc_shell_result *msg) MUST_CHECK;
int svc_shell_result_parse(const uint8_t *in, size_t len, struct svc_shell_result *ret) MUST_CHECK;

struct svc_port {
    uint16_t port;
    uint8_t family;   /* 4 or 6 */
    uint8_t loopback; /* 1 if it is bound to loopback only. */
    uint32_t uid;
};
int svc_port_put(uint8_t *out, size_t size, const struct svc_port *msg) MUST_CHECK;
int svc_port_parse(const uint8_t *in, size_t len, struct svc_port *ret) MUST_CHECK;

/* ---- units: the services of a sandbox (guest_svc_unit.c) ---------------------------------------------- */

#define SVC_UNITS_MAX 32u
#define SVC_UNIT_NAME_MAX 63u
#define SVC_UNIT_RING (64u * 1024)    /* The bytes of output that are kept per unit. */
#define SVC_UNIT_TIME_MAX 600000u     /* The longest ready_ms and stop_ms. */
#define SVC_UNIT_PROC_MIN 0x40000000u /* Numbers of processes from here on are brig-init's own, for units. */

enum svc_restart { SVC_RESTART_NO, SVC_RESTART_ON_FAILURE, SVC_RESTART_ALWAYS, SVC_RESTART_MAX };
/* NONE: it is up as soon as it has executed. The others are probed as the unit's own user. */
enum svc_ready { SVC_READY_NONE, SVC_READY_PORT, SVC_READY_SOCKET, SVC_READY_FILE, SVC_READY_COMMAND, SVC_READY_MAX };

struct svc_unit {
    struct svc_bytes name; /* [A-Za-z0-9][A-Za-z0-9_.-]* */
    uint32_t restart;      /* enum svc_restart */
    uint32_t ready;        /* enum svc_ready */
    uint32_t port;         /* SVC_READY_PORT: 1 to 65535, else 0 */
    uint32_t ready_ms;     /* The time that it has to get up; not 0. */
    uint32_t stop_ms;      /* The time between SIGTERM and SIGKILL; not 0. */
    uint32_t after; /* A bit for each unit that must be up before; only of lower numbers, so there is no cycle. */
    struct svc_bytes path; /* SVC_READY_SOCKET, SVC_READY_FILE: absolute, else "" */
    /* Messages struct svc_proc_start without a terminal, stdin, shell or channel; their number is not used. */
    struct svc_bytes start, probe; /* probe: SVC_READY_COMMAND, else "" */
};
/* The whole list. Strings point into the payload. Returns how many, or -EPROTO. */
int svc_units_parse(const uint8_t *in, size_t len, struct svc_unit ret[SVC_UNITS_MAX]) MUST_CHECK;
/* The list begins with its count (svc_put_u32()). */
void svc_put_unit(struct svc_cursor *out, const struct svc_unit *unit);
bool svc_unit_name_ok(const char *name, size_t len);

enum svc_unit_state {
    SVC_UNIT_WAITING,  /* for those that it comes after */
    SVC_UNIT_STARTING, /* It runs, and is not up yet. */
    SVC_UNIT_READY,
    SVC_UNIT_BACKOFF, /* It has ended and will be started again. */
    SVC_UNIT_STOPPING,
    SVC_UNIT_STOPPED, /* by request, or it has ended well */
    SVC_UNIT_FAILED,
    SVC_UNIT_STATE_MAX
};
enum svc_unit_why {
    SVC_WHY_NONE,
    SVC_WHY_EXITED,  /* It has ended; see status. */
    SVC_WHY_TIMEOUT, /* It was not up in time. */
    SVC_WHY_EXEC,    /* It could not be executed; see errnum and stage. */
    SVC_WHY_BLOCKED, /* A unit that it comes after has failed. */
    SVC_WHY_MAX
};
struct svc_unit_info {
    struct svc_bytes name;
    uint32_t state, why;
    uint32_t pid;      /* 0: it does not run. */
    uint32_t restarts; /* How often it was started again by itself. */
    uint32_t status;   /* The status of its last end, as wait(2) gives it. */
    uint32_t errnum, stage;
    uint64_t since_ns;       /* CLOCK_MONOTONIC: when it came into its state. */
    uint64_t output, oldest; /* The bytes ever written, and the oldest offset that is kept. */
};
int svc_unit_info_put(uint8_t *out, size_t size, const struct svc_unit_info *msg) MUST_CHECK;
int svc_unit_info_parse(const uint8_t *in, size_t len, struct svc_unit_info *ret) MUST_CHECK;

enum svc_unit_op { SVC_UNIT_START, SVC_UNIT_STOP, SVC_UNIT_RESTART, SVC_UNIT_OP_MAX };
struct svc_unit_control {
    uint32_t op; /* enum svc_unit_op */
    struct svc_bytes name;
};
int svc_unit_control_put(uint8_t *out, size_t size, const struct svc_unit_control *msg) MUST_CHECK;
int svc_unit_control_parse(const uint8_t *in, size_t len, struct svc_unit_control *ret) MUST_CHECK;

struct svc_unit_log {
    struct svc_bytes name;
    uint64_t offset;
    uint32_t follow; /* 0: only what there is now. */
};
int svc_unit_log_put(uint8_t *out, size_t size, const struct svc_unit_log *msg) MUST_CHECK;
int svc_unit_log_parse(const uint8_t *in, size_t len, struct svc_unit_log *ret) MUST_CHECK;

/* Every file call begins with a path. A component `..`, a NUL, or more than SVC_PATH_MAX bytes: REPLY with EINVAL. */
#define SVC_PATH_CONFINE (1u << 0)  /* Only below base, whatever symbolic links say: EXDEV. */
#define SVC_PATH_NOFOLLOW (1u << 1) /* The last component is not followed. */
struct svc_path {
    uint32_t flags;
    struct svc_bytes base; /* The working directory, which is absolute. Relative paths start there. */
    struct svc_bytes path;
};
void svc_put_path(struct svc_cursor *out, const struct svc_path *path);
struct svc_path svc_get_path(struct svc_reader *in);

enum svc_file_type { SVC_FILE, SVC_DIR, SVC_SYMLINK, SVC_FIFO, SVC_SOCKET, SVC_CHAR, SVC_BLOCK, SVC_FILE_TYPE_MAX };
struct svc_entry {
    uint32_t type, mode, uid, gid, nlink;
    uint64_t size, blocks, inode; /* blocks has units of 512 bytes, so sparse files show. */
    int64_t mtime_ns, ctime_ns;
    struct svc_bytes path;   /* As listed, relative to the directory that was asked for; "" for a single file. */
    struct svc_bytes target; /* The target of a symbolic link. */
};
void svc_put_entry(struct svc_cursor *out, const struct svc_entry *entry);
struct svc_entry svc_get_entry(struct svc_reader *in);

/* A new file beside it is renamed over it at EOF. If the call is cancelled, nothing has changed. */
#define SVC_WRITE_ATOMIC (1u << 0)
/* Writes into the existing file at `offset`; a missing file is made. It excludes ATOMIC. */
#define SVC_WRITE_AT (1u << 1)
#define SVC_WRITE_APPEND (1u << 2)
#define SVC_WRITE_PARENTS (1u << 3) /* Missing directories are made. */
#define SVC_WRITE_EXCL (1u << 4)    /* The file must not exist. */
struct svc_file_write {
    uint32_t flags, mode; /* mode is that of a new file; 0 is 0644. */
    uint64_t offset;
};

struct svc_tar_limits {
    /* The most bytes of content and entries. Past them: REPLY with EFBIG, and nothing more is made. */
    uint64_t bytes, members;
};

struct svc_file_change {
    uint32_t mask; /* IN_* of inotify(7); IN_Q_OVERFLOW: some were lost */
    uint32_t cookie;
    struct svc_bytes path; /* Relative to the directory that is watched. */
};

#endif
