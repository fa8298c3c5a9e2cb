/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim.h: one tool run as whoever carries it sees it: what is to be run and bounded (the claim), and how it ended (the
 * done). A parked child (sandbox/child/child.h) and a provider of the narrow form (provider.h) take the same claim and
 * give the same done, so the steps before and after do not ask who it was.
 */
#ifndef BRIG_PROVIDER_CLAIM_H
#define BRIG_PROVIDER_CLAIM_H

#include <brig.h>

#include "base/base.h"

#define CHILD_FRAME_MAX (64u << 20) /* either way; a claim may say less for the answer */

struct caller;
struct json_value;
struct sbox_secret;

/* How the run in it ended. Valid during the call. */
struct child_done {
    enum brig_cause cause; /* exited with code 0 when the answer came and nothing else ended it first */
    int exit_code, signal;
    uint32_t limits_hit;
    const char *detail;
    const char *answer; /* the payload of the answer frame, or NULL: none came */
    size_t answer_len;
    bool answer_too_large, answer_broken; /* none because of that; broken: not a frame, or more than one */
    const char *output[3];                /* [1], [2]: stdout, stderr, capped */
    size_t output_len[3];
    bool truncated[3];
    struct brig_usage usage;
    struct brig_limits limits;             /* as enforced */
    const struct brig_layer_state *layers; /* BRIG_LAYER_MAX */
    bool protection_complete;
    struct brig_network network;        /* name and version of the policy when it began; what it allowed and denied */
    const char *learned;                /* what it tried under the network `learn`, as a policy; else NULL */
    int64_t started_at_ns, ended_at_ns; /* wall; started: the claim */
    bool started;                       /* user code may have begun: the request was sent */
    bool unsupported;                   /* not started, and never will be: nothing on this host enforces such limits */
    const char *sandbox_id;
};

struct child_claim {
    const struct caller *caller;
    char run_id[48];
    const void *request; /* payload of the request frame; copied, into wiping memory (it may hold secrets) */
    size_t request_len;
    uint64_t timeout_ms; /* wall clock of the run; required */
    uint64_t output;     /* stdout and stderr together; 0: limits.output */
    bool kill_on_output;
    uint64_t answer_max;              /* 0: CHILD_FRAME_MAX */
    struct brig_limits limits;        /* zero members: as it was made */
    const struct json_value *network; /* with child_spec.network; NULL: deny all */
    /* refused (BRIG_E_UNSUPPORTED) unless none: an authority and its bundle are made with the sandbox */
    const struct sbox_secret *secrets;
    size_t n_secrets;
    bool keep_files; /* do not end it with the answer: child_release() does (fetching /workspace/out) */
    /* As it comes, before it is capped for the receipt; may be NULL. stream 1 or 2. */
    void (*output_data)(void *ctx, unsigned stream, const uint8_t *data, size_t len);
    /* exactly once; the child is dead afterwards (with keep_files: after child_release()) */
    void (*done)(void *ctx, const struct child_done *done);
    void *ctx;
};

#endif
