/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zygote_msg.h: the messages between the spawner and its zygotes, over SOCK_SEQPACKET: READY once, then jobs down and
 * answers up, in order. A job is a filled plan, flat: struct zygote_head, binds, tmpfs, strings; its descriptors travel
 * beside it.
 *
 * Both ends are ours and of one build (the spawner opens the library when it starts, and the head names its size), so
 * structs travel as they are, without their pointers. Counts and strings are checked all the same.
 */
#ifndef BRIG_SPAWNER_ZYGOTE_MSG_H
#define BRIG_SPAWNER_ZYGOTE_MSG_H

#include "jail/plan.h"
#include "spawner/spawner_wire.h"

#define ZYGOTE_MAGIC 0x6f67797au /* "zygo" */
#define ZYGOTE_MSG_MAX (64u << 10)
#define ZYGOTE_FDS (7u + WIRE_BINDS_MAX)

/*
 * The descriptors that a zygote finds when it starts. From NULL to MIN all are /dev/null: a job never has the numbers
 * that a sandbox gets later.
 */
#define ZYGOTE_FD_NULL 3
#define ZYGOTE_FD_MIN 20
#define ZYGOTE_FD_SOCKET 20
#define ZYGOTE_FD_LIBRARY 21
#define ZYGOTE_FD_RUNTIME 22
#define ZYGOTE_FD_MNT 23 /* the spawner's mount namespace */
_Static_assert(ZYGOTE_FD_MIN > ADOPTED_FD_CHANNEL, "a job's descriptors lie above those of pid 2");

struct zygote_job {
    uint64_t number;
    uint64_t clone_flags;
    int cgroup_fd; /* -1 if there is none to clone into. */
    struct jail_plan plan;
    struct guest_start start; /* For the self-check, without its strings. */
    const char *workdir;
    struct plan_bind binds[WIRE_BINDS_MAX]; /* plan.binds and plan.tmpfs of a job that was read point here. */
    struct plan_tmpfs tmpfs[WIRE_TMPFS_MAX];
};

enum zygote_answer_type { ZYGOTE_READY = 1, ZYGOTE_CLONED };

struct zygote_answer {
    uint32_t magic;
    uint32_t type;   /* enum zygote_answer_type */
    uint64_t number; /* The number of the job. */
    int32_t pid;     /* A pidfd is beside it. */
    int32_t errnum;  /* This is set instead of a pid. */
};

/* Returns the bytes used, or -EMSGSIZE. The descriptors are the job's own, not copies. */
int zygote_job_put(uint8_t *out, size_t size, const struct zygote_job *job, int fds[ZYGOTE_FDS],
                   size_t *ret_n_fds) MUST_CHECK;
/*
 * Returns 0 or -EPROTO. Strings point into the message; the job's descriptors are those of fds, which the caller still
 * owns.
 */
int zygote_job_parse(const uint8_t *in, size_t len, const int *fds, size_t n_fds, struct zygote_job *ret) MUST_CHECK;

#endif
