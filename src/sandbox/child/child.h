/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.h: single-use interpreters: a sandbox of its own with one program in it that was started before anybody needs
 * it (parked), takes exactly one request on a private channel, answers, and is gone with its sandbox. No row in
 * `sandboxes`; it counts in max_runs and in the memory budget.
 *
 *     MAKING -> PARKED -> CLAIMED -> ENDING -> gone
 *
 * Theory of operation. The sandbox is an ephemeral one of the manager. The program is its process number 1: started by
 * brig-init (SVC_PROC_START with SVC_PROC_CHANNEL), or, where the provider has a zygote for it, forked into the sandbox
 * and adopted by brig-init; from here on both are the same. Channel: descriptor 3 of the program, carried by the call
 * SVC_CHANNEL in both directions; it carries frames of the runtime protocol (docs/PROTOCOL.md, "Runtime"): u32 length
 * (little-endian), payload. The first frame of the program is READY (`{"ready":1,...}`): it is parked. A claim names
 * who runs what: run id, limits, network, wall clock; the request goes down, and the first complete answer frame ends
 * the run, whatever else still holds a descriptor. Then, and also at the wall clock or a cancel, everything in the
 * sandbox is killed. The answer is handed out when the frame is there; stdout and stderr up to that moment have been
 * read by then (the runtime flushes before it answers, and brig-init sends what was written before the channel's bytes
 * before them: docs/PROTOCOL.md, CHANNEL), and what the sandbox has used has come from the spawner: by itself and
 * beside the answer (docs/PROTOCOL.md, COUNTED), or, when it did not, because it was asked. Between claim and done
 * nothing is stored, and with the limits and the network it was made with nothing else is asked.
 *
 * Whose numbers (child_done.usage, provider/claim.h): the kernel's counters of the whole sandbox, brig-init included;
 * cpu and io since it was parked, peaks of its whole life. In a long-lived sandbox those of the process's own cgroup.
 * None is the program's word.
 *
 * A child belongs to its creator until lost(), child_end(), a refused child_claim() or done() (keep_files:
 * child_release(), also from within done()). One that the manager is destroyed under is gone without a word. Its
 * sandbox is in no list, event, metric or quota of sandboxes; after a crash of brigd it is an orphan, and ended. CPU
 * time is counted since it was parked, by looking at its cgroup. Limits that cgroups can change on a live sandbox
 * (memory, cpus, pids) and the network policy are applied at the claim; others (disk, inodes, open_files, file_size,
 * binds, profile, whether there is a network at all) are those it was made with.
 */
#ifndef BRIG_SANDBOX_CHILD_CHILD_H
#define BRIG_SANDBOX_CHILD_CHILD_H

#include "provider/claim.h"
#include "sandbox/manager.h"

struct child;

/* What a gate must be made with, because it cannot be added later. A child is chosen by it too. */
enum gate_shape {
    GATE_SHAPE_PORTS, /* a listener per port; others can be added */
    GATE_SHAPE_PROXY, /* the same, and the policy names the port that elsewhere is our proxy's */
    GATE_SHAPE_ANY,   /* every port is redirected: `open`, `learn`, default allow, too many ports */
    GATE_SHAPE_MAX
};
/* Finds the shape that this `network` of a run needs; refuses a network that does not exist. */
int network_shape(struct manager *manager, const char *org, const struct json_value *network, enum gate_shape *ret,
                  struct brig_err *err) MUST_CHECK;

struct child_spec {
    char org_id[64];
    const char *const *argv; /* The interpreter and our runtime, with NULL at the end; copied. */
    const char *const *env;  /* "NAME=value": what the interpreter itself needs at its start; may be NULL. */
    /*
     * A key: the children of one zygote have the same key (organisation, language, interpreter). NULL: strict, a new
     * interpreter.
     */
    const char *zygote;
    /*
     * The read-only dependency set, the lower layer of /workspace ... The service chooses them, not the tenant; copied.
     */
    const struct brig_bind *binds;
    size_t n_binds;
    const char *template_name; /* NULL means host. */
    const char *provider;      /* What holds it; NULL means the manager's own. */
    struct brig_limits limits; /* 0 means the default of [sandbox]. */
    enum brig_profile profile;
    uint64_t require;
    /*
     * It will have one: routes and listeners are made now, with a policy that denies all. The claim's policy replaces
     * it.
     */
    bool network;
    enum gate_shape shape; /* The shape of that network; the claim's policy must fit it. */
    bool trust; /* With a CA bundle of its own (brokered secrets): not yet; only `[gate] ca_bundle` gives one. */
};

enum child_state { CHILD_MAKING, CHILD_PARKED, CHILD_CLAIMED, CHILD_ENDING };

struct child_events {
    void (*parked)(void *ctx, struct child *child);
    /*
     * It has ended before it was claimed (a failed start, a kill from outside), and why. The pointer must not be used
     * again. It never comes after child_claim().
     */
    void (*lost)(void *ctx, struct child *child, const struct brig_err *why);
    void *ctx;
};
int child_create(struct manager *manager, const struct child_spec *spec, const struct child_events *events,
                 struct child **ret, struct brig_err *err) MUST_CHECK;
void child_end(struct child *child); /* Ends a child that is not claimed; no callback follows. child may be NULL. */
enum child_state child_state(const struct child *child);
uint64_t child_memory(const struct child *child); /* The bytes, as measured when it was parked; an estimate before. */
const char *child_sandbox_id(const struct child *child);
bool child_of_zygote(const struct child *child);

/*
 * Claims a parked child. If it fails, the child is dead and done is not called; nothing was sent, so another may be
 * tried.
 */
int child_claim(struct child *child, const struct child_claim *claim, struct brig_err *err) MUST_CHECK;
/* Cancels a claimed child; done follows with BRIG_CAUSE_CANCELLED, unless it was over already. */
void child_cancel(struct child *child, const char *why);
/* For files after the end with keep_files, and for output while it runs. */
struct sbox *child_sbox(struct child *child);
void child_release(struct child *child);

/*
 * Does the same in a long-lived sandbox (`sandbox_id`, `reuse`): a new process there, with the same protocol; the
 * sandbox stays. It has the sandbox's own binds, limits and network.
 */
int child_in_sandbox(struct sbox *sbox, const struct child_spec *spec, const struct child_claim *claim,
                     struct child **ret, struct brig_err *err) MUST_CHECK;

#endif
