/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_jobs.h: what the files about disks share: the list of disks (disk_list.c), the jobs (disk_jobs.c, which explains
 * all of it), and the orders that they come from (disk_orders.c).
 */
#ifndef BRIG_SPAWNER_DISK_JOBS_H
#define BRIG_SPAWNER_DISK_JOBS_H

#include "spawner/disk_work.h"

struct disk_entry {
    struct disk_entry *next;
    struct disk_facts facts;
    bool pending;       /* It is being made. */
    uint32_t uses;      /* So many runs are still to come; the last one takes it. 0: it stays. */
    bool taken;         /* A run is about to. */
    uint64_t copied_at; /* The stamp of its last copy. */
};

struct disk_job {
    struct disk_job *next;
    struct spawner *spawner;
    enum disk_task task;
    uint64_t number; /* of the question; 0 if nobody waits for an answer */
    char name[DISK_NAME], from[DISK_NAME];
    uint64_t size, inodes;
    uint64_t box;         /* SNAP: the number of the run */
    struct run_spec *run; /* RUN: owned until it is built */
    uint64_t grow_to;
    uint64_t stamp;      /* when it began */
    uint64_t shares;     /* What its source may lose of its own, and the base has grown by. */
    uint64_t base_added; /* The spawner's, when it began. */
    bool judged;         /* It can be done, by what is there. */
    bool claimed;        /* The disk that it makes is in the list. */
    uint32_t uses;       /* SNAP: see struct wire_disk */
    bool takes;          /* RUN: its disk is what it would be a copy of */
    bool running, measured, grown, cancelled;
    bool again;     /* TIDY: it was stopped, and is to go on later */
    unsigned tries; /* REMOVE, if nobody waits for an answer: how often it failed before */
    pid_t pid;
    int sock;
    struct loop_source on_say;
    struct loop_timer on_late;
};

/* ---- disk_list.c --------------------------------------------------------------------------------------- */

struct disk_entry *disk_entry_find(const struct spawner *spawner, const char *name);
int disk_entry_add(struct spawner *spawner, const struct disk_facts *facts, bool pending,
                   struct brig_err *err) MUST_CHECK;
void disk_entry_remove(struct spawner *spawner, const char *name);
void disk_entry_copied(struct spawner *spawner, const char *name); /* It shares all of its blocks from now on. */
/* What all of them may take together in the end, if they have this much now. */
uint64_t disks_need(const struct spawner *spawner, uint64_t used);
/* Adds to what nobody has for himself; may be a negative number. */
void disks_base_add(struct spawner *spawner, uint64_t bytes);
/* Takes over what the measurement of this job has found. */
int disks_take_list(struct spawner *spawner, const struct disk_job *job, const struct disk_say *msg, int fd,
                    struct brig_err *err) MUST_CHECK;
/* Answer DISK and DISKS; err is NULL if it is done. */
void disk_answer(struct spawner *spawner, uint64_t number, const struct disk_facts *facts, const struct brig_err *err);
void disks_answer(struct spawner *spawner, uint64_t number, const struct brig_err *err);

/* ---- disk_jobs.c --------------------------------------------------------------------------------------- */

/* number: of the question; 0 if nobody waits for an answer. first: before all others. */
struct disk_job *disk_job_add(struct spawner *spawner, enum disk_task task, uint64_t number, bool first,
                              struct brig_err *err) MUST_CHECK;
const char *disk_job_makes(const struct disk_job *job);  /* The name of the disk that it makes, or "". */
const char *disk_job_shares(const struct disk_job *job); /* ... and of the one whose blocks it shares. */
void disks_go(struct spawner *spawner);                  /* Starts what can be started. */

/* ---- disk_tidies.c ------------------------------------------------------------------------------------- */

/* This job has ended; made is NULL if it failed. What has too many extents is made tidy later. */
void disk_tidy_after(const struct disk_job *job, const struct disk_facts *made);
void disk_tidy_stop(struct spawner *spawner); /* Somebody wants something else. */
bool disk_tidy_must_wait(const struct disk_job *job);
int disk_tidy_check(struct disk_job *job, struct brig_err *err) MUST_CHECK; /* Is it there, and is there room? */

/* ---- disk_orders.c ------------------------------------------------------------------------------------- */

/* Whether it can be done, by what is there. Nothing is known of that before the place of disks is open. */
int disk_job_judge(struct disk_job *job, struct brig_err *err) MUST_CHECK;

#endif
