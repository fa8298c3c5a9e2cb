/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_msg.h: the payloads of the frames between the spawner and brig-init (docs/PROTOCOL.md).
 *
 * An encoder writes into a caller's buffer and returns the number of bytes, or -EMSGSIZE. A parser checks every count
 * and length against what was received and returns 0 or -EPROTO. Strings point into the payload, and each ends with a
 * NUL within it. All numbers are little-endian.
 */
#ifndef BRIG_CODEC_WIRE_GUEST_MSG_H
#define BRIG_CODEC_WIRE_GUEST_MSG_H

#include <brig.h>

#include "base/base.h"

/* ---- one layer, as read back from the kernel: 8 bytes on the wire ------------------------------- */

enum reading_by {
    BY_NONE,
    BY_CGROUP_V1,
    BY_CGROUP_V2,
    BY_RLIMIT_AS,
    BY_RLIMIT_NPROC,
    BY_EXT4_IMAGE,
    BY_MEMORY,         /* A tmpfs, which counts as memory. */
    BY_SUBSET_PID,     /* /proc with subset=pid */
    BY_MASKED,         /* /proc, full but masked */
    BY_UID_RANGE,      /* Ids that nobody else has. */
    BY_SUBIDS,         /* the user's subordinate ids */
    BY_UID_RANGE_HERE, /* Ids that nobody else in this container has; what the host's root gives out is not known. */
    BY_GVISOR_SYSTRAP, /* own_kernel: gVisor, and how it holds its programs */
    BY_GVISOR_PTRACE,
    BY_GVISOR_KVM,
    BY_MAX
};

enum reading_why {
    WHY_NONE,
    WHY_NOT_ASKED,
    WHY_KERNEL,        /* The kernel does not have it. */
    WHY_READ_BACK,     /* The kernel's answer differs from what was set; value holds an errno or 0. */
    WHY_NO_DELEGATION, /* There is no cgroup of ours to put it in. */
    WHY_PER_PROCESS,   /* It bounds each process, not the sum. */
    WHY_ONE_ID,        /* The program, pid 1 and the calling user share one id. */
    WHY_WRITABLE_ROOT,
    WHY_NO_DEVICE, /* There is no block device behind the store. */
    WHY_NOT_SAMPLED,
    WHY_SWITCHED_OFF,  /* Only in test builds. */
    WHY_OWN_ID,        /* Writable binds: the program has the id of the calling user. */
    WHY_IDS_NOT_KNOWN, /* There is no lock that all services of the host share. */
    WHY_ROOT_INSIDE,   /* The sandbox has root inside, with the capabilities of jail/user.h and no others. */
    WHY_SHARED_IDS, /* The sandboxes of one plain user with root inside or of a template share its subordinate ids. */
    WHY_HOST_KERNEL,
    WHY_MAX
};

struct reading {
    uint8_t on;     /* 0 or 1 */
    uint8_t by;     /* enum reading_by */
    uint16_t why;   /* enum reading_why */
    uint32_t value; /* Landlock ABI, errno, ... */
};

const char *reading_by_text(enum reading_by by);
const char *reading_why_text(enum reading_why why);

/* ---- HELLO -------------------------------------------------------------------------------------- */

struct guest_hello {
    uint32_t version;      /* FRAME_VERSION */
    uint32_t capabilities; /* GUEST_CAP_* */
};
#define GUEST_CAP_RUN (1u << 0)
#define GUEST_CAP_TTY (1u << 1)
#define GUEST_CAP_FDS (1u << 2) /* Descriptors may travel beside frames (a local socket). */
#define GUEST_CAP_SERVICE (1u << 3)
#define GUEST_CAP_CARRIED (1u << 4) /* It was not started by our jail (guest_carry.h). */
#define GUEST_CAP_RUNNING (1u << 5) /* A carried one that has had its START. */

#define GUEST_HELLO_SIZE 8u
int guest_hello_put(uint8_t *out, size_t size, const struct guest_hello *msg) MUST_CHECK;
int guest_hello_parse(const uint8_t *in, size_t len, struct guest_hello *ret) MUST_CHECK;

/*
 * Returns the version that both sides use from now on: the lower of the two, which may differ by one. Otherwise
 * -EPROTO.
 */
int guest_hello_agree(const struct guest_hello *theirs, uint32_t *ret_version) MUST_CHECK;

/* ---- START: a program ---------------------------------------------------------------------------- */

#define GUEST_START_TTY (1u << 0) /* Makes a PTY inside; its master goes back beside STARTED. */
/* stdin, stdout and stderr travel beside START. Without the flag the last two do; with a TTY none does. */
#define GUEST_START_STDIN (1u << 1)
/*
 * There is no program: init serves processes on a stream (guest_svc.h), the one descriptor beside START. n_argv and
 * n_env are 0 (but see PLACES), and TTY and STDIN are off. STARTED has what a process with the program's ids has read
 * back.
 */
#define GUEST_START_SERVICE (1u << 2)
/* With SERVICE: the spawner makes a cgroup for every process that asks for one (LEAF). */
#define GUEST_START_LEAVES (1u << 3)
/*
 * With SERVICE: a program that was forked into the sandbox beforehand is process number 1 of the service (jail/plan.h,
 * INIT_FD_ADOPT_*).
 */
#define GUEST_START_ADOPT (1u << 4)
/*
 * The sandbox has root inside: processes with uid 0 keep the capabilities of jail/user.h, and all others have none.
 * Not with ADOPT.
 */
#define GUEST_START_ROOT (1u << 5)
/*
 * With SERVICE, and only to a carried brig-init (guest_carry.h): argv has absolute paths that programs may write to,
 * beside GUEST_PLACES.
 */
#define GUEST_START_PLACES (1u << 6)
#define GUEST_PLACES_MAX 64u
/* With SERVICE and ROOT: init runs as root what the sandbox's user asks for by sudo. */
#define GUEST_START_SUDO (1u << 7)
/*
 * With SERVICE: these places are volumes, which are bounded by sizes of their own and not by the store's. The bits are
 * in the order of GUEST_PLACES.
 */
#define GUEST_START_VOLUME(place) (1u << (8 + (place)))
#define GUEST_START_VOLUMES (0x1fu << 8)
#define GUEST_PLACES                                           \
    {                                                          \
        "/workspace", "/home/user", "/tmp", "/var/tmp", "/run" \
    }
#define GUEST_STRINGS_MAX (1u << 20) /* For argv and environment together. */

#define GUEST_START_HEAD 104u   /* The length of the fixed part; workdir follows. */
#define GUEST_WORKDIR_MAX 4096u /* This includes the NUL. */

enum guest_ns { NS_USER, NS_MNT, NS_PID, NS_NET, NS_IPC, NS_UTS, NS_CGROUP, NS_TIME, NS_MAX };

struct guest_start {
    uint32_t flags;
    uint32_t uid, gid; /* The ids of the program, as seen inside. */
    uint16_t rows, cols;
    uint32_t profile; /* enum brig_profile */
    uint64_t require; /* The layers that the program's process must read back as on; otherwise it is not executed. */
    /*
     * The layers that are switched off on purpose (test builds). They are not checked, and are reported as
     * WHY_SWITCHED_OFF.
     */
    uint64_t skip;
    uint64_t disk, inodes;
    uint32_t ns_host[NS_MAX]; /* The inode numbers of the spawner's own namespaces; the sandbox's must differ. */
    uint32_t store_by;        /* enum reading_by: BY_EXT4_IMAGE or BY_MEMORY */
    uint32_t landlock_abi;    /* The ABI that was asked for. */
    uint32_t writable_root;
    uint32_t n_argv, n_env;
    const char *workdir; /* When parsed: the first string; argv and env follow. */
    const char *strings; /* When parsed: the start of argv[0]; n_argv + n_env strings with NULs follow each other. */
};

/* Writes only the fixed part and workdir. The caller appends the strings of argv and env with their NULs. */
int guest_start_put_head(uint8_t *out, size_t size, const struct guest_start *msg) MUST_CHECK;
/* Parses the whole message, put together from its frames. */
/* Exactly n_argv + n_env strings, no empty command, and a name before the '=' of every variable. */
bool guest_strings_ok(const void *strings, size_t len, uint32_t n_argv, uint32_t n_env);
int guest_start_parse(const uint8_t *in, size_t len, struct guest_start *ret) MUST_CHECK;

/* ---- STARTED, EXITED ----------------------------------------------------------------------------- */

struct guest_started {
    uint64_t at_ns; /* CLOCK_MONOTONIC just before execve */
    /* The required layers that are not on. If there are any, nothing was executed and EXITED follows. */
    uint64_t missing;
    struct reading readings[BRIG_LAYER_MAX];
};
#define GUEST_STARTED_SIZE (24u + 8u * BRIG_LAYER_MAX)
int guest_started_put(uint8_t *out, size_t size, const struct guest_started *msg) MUST_CHECK;
int guest_started_parse(const uint8_t *in, size_t len, struct guest_started *ret) MUST_CHECK;

enum guest_stage { STAGE_EXEC, STAGE_WORKDIR, STAGE_IDS, STAGE_TTY, STAGE_CHECK, STAGE_FORK, STAGE_MAX };

struct guest_exited {
    uint64_t at_ns;  /* CLOCK_MONOTONIC when the main process had ended */
    uint32_t status; /* as wait(2) gives it */
    uint32_t failed; /* 0, or 1 + enum guest_stage if the program was not executed. */
    uint32_t errnum; /* The error of that stage. */
};
#define GUEST_EXITED_SIZE 20u
int guest_exited_put(uint8_t *out, size_t size, const struct guest_exited *msg) MUST_CHECK;
int guest_exited_parse(const uint8_t *in, size_t len, struct guest_exited *ret) MUST_CHECK;

/* ---- SIGNAL -------------------------------------------------------------------------------------- */

#define GUEST_SIGNAL_SIZE 4u
int guest_signal_put(uint8_t *out, size_t size, uint32_t signum) MUST_CHECK;
int guest_signal_parse(const uint8_t *in, size_t len, uint32_t *ret) MUST_CHECK; /* 1 to 64 */

/* ---- LEAF, LEAF_READY, LEAF_END, LEAF_GONE: a cgroup per process of a service ----------------------- */

/* The length of LEAF and LEAF_END. They carry the number of the leaf, which is that of its process and not 0. */
#define GUEST_LEAF_SIZE 4u
int guest_leaf_put(uint8_t *out, size_t size, uint32_t leaf) MUST_CHECK;
int guest_leaf_parse(const uint8_t *in, size_t len, uint32_t *ret) MUST_CHECK;

struct guest_leaf_ready {
    uint32_t leaf;
    uint32_t errnum; /* 0 if the process is in it. */
};
#define GUEST_LEAF_READY_SIZE 8u
int guest_leaf_ready_put(uint8_t *out, size_t size, const struct guest_leaf_ready *msg) MUST_CHECK;
int guest_leaf_ready_parse(const uint8_t *in, size_t len, struct guest_leaf_ready *ret) MUST_CHECK;

/* What a store has run out of. */
#define GUEST_STORE_FULL (1u << 0)
#define GUEST_STORE_NO_INODES (1u << 1)
#define GUEST_STORE_ALL (GUEST_STORE_FULL | GUEST_STORE_NO_INODES)

struct guest_leaf_gone {
    uint32_t leaf;
    uint32_t oom_kills, pids_refused;
    /* GUEST_STORE_*: the state of the sandbox's store when the leaf was gone. */
    uint32_t store;
    uint64_t cpu_ns, memory_peak, pids_peak; /* UINT64_MAX means that it is not known. */
};
#define GUEST_LEAF_GONE_SIZE 40u
int guest_leaf_gone_put(uint8_t *out, size_t size, const struct guest_leaf_gone *msg) MUST_CHECK;
int guest_leaf_gone_parse(const uint8_t *in, size_t len, struct guest_leaf_gone *ret) MUST_CHECK;

#endif
