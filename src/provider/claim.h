/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim.h: one tool run as its carrier sees it: what must be run and bounded (the claim), and how it ended (the done).
 * A parked child (sandbox/child/child.h) and a provider of the narrow form (provider.h) take the same claim and give
 * the same done, so the steps before and after do not ask who it was.
 */
#ifndef BRIG_PROVIDER_CLAIM_H
#define BRIG_PROVIDER_CLAIM_H

#include <brig.h>

#include "base/base.h"

#define CHILD_FRAME_HEAD 4u         /* The length of a frame of the channel, little-endian. */
#define CHILD_FRAME_MAX (64u << 20) /* Its payload, in either direction; a claim may set less for the answer. */

struct buf;
struct caller;
struct json_value;
struct sbox_secret;

/* How the run ended. It is valid during the call. */
struct child_done {
    enum brig_cause cause; /* BRIG_CAUSE_EXITED with code 0 if the answer came and nothing else ended it first. */
    int exit_code, signal;
    uint32_t limits_hit;
    const char *detail;
    const char *answer; /* The payload of the answer frame; NULL if none came. */
    size_t answer_len;
    bool answer_too_large, answer_broken; /* Why there is none. broken: it was no frame, or more than one. */
    const char *output[3];                /* [1], [2]: stdout and stderr, cut at the limit. */
    size_t output_len[3];
    bool truncated[3];
    struct brig_usage usage;
    struct brig_limits limits;             /* as enforced */
    const struct brig_layer_state *layers; /* BRIG_LAYER_MAX */
    bool protection_complete;
    /* The name and version of the policy when it began, and what it allowed and denied. */
    struct brig_network network;
    const char *learned;                /* With the network `learn`: what it tried, as a policy; else NULL. */
    int64_t started_at_ns, ended_at_ns; /* Wall clock. started is the time of the claim. */
    bool started;                       /* User code may have begun: the request was sent. */
    /* It was not started and never will be: nothing on this host enforces such limits. */
    bool unsupported;
    const char *sandbox_id;
};

struct child_claim {
    const struct caller *caller;
    char run_id[48];
    /* The request frame, its length first. A claim that succeeds may take its memory, which it wipes. */
    struct buf *request;
    uint64_t timeout_ms; /* The wall clock of the run; it must be set. */
    uint64_t output;     /* stdout and stderr together; 0 means limits.output. */
    bool kill_on_output;
    uint64_t answer_max;              /* 0 means CHILD_FRAME_MAX. */
    struct brig_limits limits;        /* Members that are zero stay as it was made. */
    const struct json_value *network; /* With child_spec.network; NULL means deny all. */
    /*
     * It is refused (BRIG_E_UNSUPPORTED) unless there are none: an authority and its bundle are made with the sandbox.
     */
    const struct sbox_secret *secrets;
    size_t n_secrets;
    bool keep_files; /* Do not end it with the answer; child_release() does (to fetch /workspace/out). */
    /* Gets the output as it comes, before it is cut for the receipt; stream is 1 or 2. May be NULL. */
    void (*output_data)(void *ctx, unsigned stream, const uint8_t *data, size_t len);
    /*
     * Called at most once, before done(): the answer is complete, and only numbers are still to come. What it gets is
     * that part of done()'s that cannot change any more: the cause, the answer, the output. May be NULL.
     */
    void (*answered)(void *ctx, const struct child_done *done);
    /* Called exactly once. The child is dead afterwards (with keep_files: after child_release()). */
    void (*done)(void *ctx, const struct child_done *done);
    void *ctx;
};

#endif
