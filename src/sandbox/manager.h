/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager.h: the long-lived sandboxes of this daemon: made, found, paused, ended, reaped, recovered.
 *
 * The states and who may go where; the table in states.c is the only place that decides (a refused transition is
 * BRIG_E_CONFLICT and names both states):
 *
 *     creating -> running <-> paused          pausing and resuming are states of their own while the provider works
 *         \          |           |
 *          +------> stopping <---+ -> ended (forgotten here; its death certificate is in the store)
 *
 * Limits are checked in this order, under no lock but the single thread: max_sandboxes ("Maximum number of
 * sandboxes (<N>) reached"), the organisation's quota, the key's quota (BRIG_E_LIMIT, 429). A create counts from
 * the moment it is accepted. Deadlines are CLOCK_BOOTTIME; wall time is display.
 */
#ifndef BRIG_SANDBOX_MANAGER_H
#define BRIG_SANDBOX_MANAGER_H

#include <brig.h>

#include "audit/audit.h"
#include "codec/passwd.h"
#include "codec/reference.h"
#include "config/config.h"
#include "gate/slot_spec.h"
#include "link/link.h"
#include "provider/provider.h"
#include "records/caller.h"
#include "records/templates.h"
#include "store/store.h"

struct manager;

enum sbox_state {
    SBOX_CREATING,
    SBOX_RUNNING,
    SBOX_PAUSING,
    SBOX_PAUSED,
    SBOX_RESUMING,
    SBOX_STOPPING,
    SBOX_ENDED,
    SBOX_STATE_MAX
};
const char *sbox_state_name(enum sbox_state state);

enum sbox_on_timeout { SBOX_TIMEOUT_KILL, SBOX_TIMEOUT_PAUSE };
enum sbox_on_death { SBOX_DEATH_NONE, SBOX_DEATH_RECREATE };

/* A pair of strings. Lists have a length. */
struct sbox_pair {
    const char *name, *value;
};

/* A stored secret in a variable: as a placeholder that brig-egress replaces, or (expose) as it is. */
struct sbox_secret {
    const char *name, *env;
    bool expose;
};

/* A volume that a sandbox has at a path of its own. */
struct sbox_volume {
    char name[64];
    char disk[DISK_NAME_SIZE]; /* "" until the create is accepted */
    const char *target;
    bool read_only;
};

/* What a create asks for. sbox_spec_parse() makes it from JSON (sbox_spec.c), with its own memory. */
struct sbox_spec {
    char template_name[128];           /* "host", ... */
    char engine_image[IMAGE_REF_TEXT]; /* An engine's image instead of a template, in its one spelling; "": none. */
    char provider[32]; /* What holds it (config/provider_names.h); "": the one that keeps layers and disks. */
    /*
     * [A-Za-z0-9][A-Za-z0-9_.-]{0,62}. Reserved are "brig", "host" and the prefixes "brig-", "run-", "sandbox-",
     * "org-", "key-".
     */
    char name[64];
    bool writable_root;
    bool sudo; /* Its programs are not root, and may ask for it (docs/TEMPLATES.md). */
    struct sbox_pair *metadata, *env;
    size_t n_metadata, n_env;  /* At most 64 with 4096 bytes on each side; env 1024. */
    struct brig_limits limits; /* As asked, with the defaults of [sandbox] filled in. */
    uint64_t require;
    enum brig_profile profile;
    char workdir[4096];
    char user[USER_TEXT_MAX]; /* Whose its programs are: "user" (default), "root" (root inside), another. */
    struct brig_bind *binds;
    size_t n_binds;
    uint32_t binds_inside; /* As in struct provider_spec. No request can set it. */
    struct sbox_volume *volumes;
    size_t n_volumes;
    bool forkable; /* Its store is a disk that can be copied at once. */
    /* The disk whose copy its store is, and where that comes from; "": an empty store. No request can set these. */
    char disk_from[DISK_NAME_SIZE], restored_from[DISK_NAME_SIZE], forked_from[32];
    uint64_t timeout_ms, idle_timeout_ms; /* 0 means none. */
    enum sbox_on_timeout on_timeout;
    enum sbox_on_death on_death;
    bool idle_ignores_processes; /* idle_policy "requests": running processes do not keep it from being idle. */
    bool confine;                /* Files only below workdir. */
    char *network;               /* As asked, in JSON: a policy's name or a policy. It has its own memory. */
    struct sbox_secret *secrets;
    size_t n_secrets; /* At most SLOT_SECRETS_MAX. */
    bool internal;    /* For child.c: no list, event, metric or quota of sandboxes counts it; max_runs does. */
    bool parked;      /* With internal, for parked/: it waits for a create. max_runs does not count it. */
    /* The service works in it for an organisation: only the socket's administrator finds it or sees it in a list. */
    bool service;
    /* With internal: its gate is made for more than its first policy names (enum gate_shape). */
    bool any_port, proxy_port;
    bool trust;         /* With internal: a CA bundle of its own. */
    const char *zygote; /* With internal: as in struct provider_spec; it points into `memory`. */
    /* For run/reuse.c: what its runs have in common; "" for all others. No request can set it. */
    char reuse[40];
    char reuse_config[80]; /* With reuse: the configuration under which it was made. */
    bool ephemeral;        /* For one run (POST /v1/runs): not in the store, no certificate; an orphan after a crash. */
    char *memory;          /* It owns the strings. */
    char *services;        /* A JSON array (services.h) with its own memory; NULL: none. */
    char *service_names;   /* The names in it, with blanks between them: the text is long, and names are asked often. */
    bool services_keep;    /* If one does not come up, the sandbox stays all the same. */
    char note[256];        /* For example: python:3.12 was asked for and the host has python 3.11. */
    /* What the template's name meant when it was asked for, with a memory of its own; NULL: no template of layers. */
    struct template_copy *image;
    /* The image names the working directory, not the request: if it cannot be made, /workspace takes its place. */
    bool workdir_of_image;
    /*
     * With service, for template/layer_run.c: the root is the host's, and the merged view of these layers is at /layer
     * with its upper in the new one. They point to memory that lives until the create is over.
     */
    const char *new_layer;
    const char *const *below;
    size_t n_below;
    /*
     * With service, for build/build_run.c: no new layer, the layers `below` are the root, and what is written to it can
     * be read at /.brig/upper. With new_layer, for template/layer_run.c: the topmost layer below is there.
     */
    bool raw_upper;
    const struct brig_tmpfs *tmpfs; /* They live as long as `below`. */
    size_t n_tmpfs;
};
/*
 * Unknown keys, wrong types and values out of range are BRIG_E_USAGE with one line that names the key and the rule.
 * binds are for administrators only (BRIG_E_FORBIDDEN). templates may be NULL: there are none.
 */
struct json_value;
int sbox_spec_parse(const struct json_value *json, const struct config *config, const struct templates *templates,
                    const struct caller *caller, struct sbox_spec *ret, struct brig_err *err) MUST_CHECK;
/* A sandbox of the service's own: it has the template's image, but none of its settings (template.toml). */
int sbox_spec_parse_own(const struct json_value *json, const struct config *config, const struct templates *templates,
                        const struct caller *caller, struct sbox_spec *ret, struct brig_err *err) MUST_CHECK;
void sbox_spec_done(struct sbox_spec *spec);
/* The layers of `[sandbox] require`: every sandbox needs them, whatever was asked for. */
uint64_t sbox_required(const struct config *config);
/* Is there such a template, and may the caller name it? Paths are for administrators. */
int sbox_template_check(const char *name, const struct config *config, const struct templates *templates,
                        const struct caller *caller, struct brig_err *err) MUST_CHECK;
/*
 * Checks a request: what it binds must lie in a directory that the administrator named (BRIG_BIND_ROOTS), not in one of
 * those that the spawner lets this service bind for runs. BRIG_E_REFUSED.
 */
int sbox_spec_check_binds(const struct sbox_spec *spec, struct brig_err *err) MUST_CHECK;

/* A sandbox. Only this room knows its members (private.h); others ask by these functions: */
struct sbox;
const char *sbox_id(const struct sbox *sbox); /* "" until the provider has chosen it. */
const char *sbox_org(const struct sbox *sbox);
const char *sbox_provider(const struct sbox *sbox); /* The name of what holds it. */
enum sbox_state sbox_state(const struct sbox *sbox);
int64_t sbox_created(const struct sbox *sbox); /* Wall clock, in ns. */
const struct sbox_spec *sbox_spec(const struct sbox *sbox);
const struct brig_limits *sbox_limits(const struct sbox *sbox); /* As they are enforced. */
unsigned sbox_processes(const struct sbox *sbox);               /* The running ones. */
struct link *sbox_link(const struct sbox *sbox);                /* NULL unless it is running and can be reached. */

struct manager_options {
    struct loop *loop;
    struct provider *provider;   /* `local`: it also keeps template layers and disks, and makes the service's own. */
    struct providers *providers; /* All that can be named; NULL: there is only that one. */
    struct store *store;
    struct audit *audit;
    const struct config *config;
    struct suspicion *suspicion; /* Failed runs are noted there; NULL: not at all. */
    struct policies *policies;   /* These two outlive it. NULL: only the network `none`, and no secrets. */
    struct secrets *secrets;
    struct templates *templates; /* It outlives the manager; NULL: there are none. */
    struct volumes *volumes;     /* These two outlive it as well. NULL: nothing is kept. */
    struct snapshots *snapshots;
};
/*
 * Loads the store, recovers live boxes from the provider, ends orphans, writes certificates for those that are gone,
 * and then calls ready().
 */
/* manager_destroy() calls nobody; the provider and the store are closed after it. */
int manager_create(const struct manager_options *options, void (*ready)(void *ctx), void *ctx, struct manager **ret,
                   struct brig_err *err) MUST_CHECK;
void manager_destroy(struct manager *manager);
/* It is ready and every orphan is gone: no program of an earlier life runs that this manager does not know. */
bool manager_is_settled(const struct manager *manager);
struct templates *manager_templates(const struct manager *manager); /* or NULL */
/* Is this layer below a sandbox that lives, or one that can be restored? */
bool manager_uses_layer(const struct manager *manager, const char *layer);
/* How many sandboxes that live were made from this template of that organisation? */
size_t manager_uses_template(const struct manager *manager, const char *org, const char *name);
void manager_configure(struct manager *manager, const struct config *config);

/* err is NULL if it is done; sbox may be NULL on failure. */
typedef void sbox_done_fn(void *ctx, struct sbox *sbox, const struct brig_err *err);

/* idempotency_key may be NULL. fingerprint is that of the request. done comes after the store's commit. */
int manager_create_sandbox(struct manager *manager, const struct caller *caller,
                           struct sbox_spec *spec /* taken over */, const char *idempotency_key,
                           const uint8_t fingerprint[32], sbox_done_fn *done, void *ctx,
                           struct brig_err *err) MUST_CHECK;
/*
 * Returns NULL if there is none, or if it belongs to another organisation (then an audit event was written). The
 * socket's administrator finds those of all organisations by id.
 */
struct sbox *manager_find(struct manager *manager, const struct caller *caller, const char *id); /* By id or name. */
/* For every caller: finds one that the service made. */
struct sbox *sbox_by_id(struct manager *manager, const char *id);
/* Finds one that this key made in this organisation with this mark (sbox_spec.reuse), in any state; or NULL. */
struct sbox *sbox_by_reuse(struct manager *manager, const struct caller *caller, const char *mark);
/* BRIG_E_CONFLICT unless it runs and can be reached. */
int sbox_usable(const struct sbox *sbox, struct brig_err *err) MUST_CHECK;
/*
 * May the caller run programs in it, read its files or end it? Only a caller who could have created it may.
 * BRIG_E_FORBIDDEN.
 */
int sbox_check_use(const struct sbox *sbox, const struct caller *caller, struct brig_err *err) MUST_CHECK;
/*
 * Does it hold what only an administrator may give? Then its receipts are for administrators and for the key that ran
 * it; caller_reads() is how a receipt names those (receipt_service.readers).
 */
bool sbox_is_gifted(const struct sbox *sbox);
const char *caller_reads(const struct caller *caller);
/*
 * May the caller change its network? An administrator may, and any key if no administrator made it. BRIG_E_FORBIDDEN.
 */
int sbox_check_change(const struct sbox *sbox, const struct caller *caller, struct brig_err *err) MUST_CHECK;
/* The newest is first; the caller filters by organisation. */
struct sbox *manager_first(struct manager *manager);
struct sbox *sbox_next(const struct sbox *sbox); /* The one that was made before it, or NULL. */

int sbox_pause(struct sbox *sbox, const struct caller *caller, sbox_done_fn *done, void *ctx,
               struct brig_err *err) MUST_CHECK;
int sbox_resume(struct sbox *sbox, const struct caller *caller, sbox_done_fn *done, void *ctx,
                struct brig_err *err) MUST_CHECK;
/*
 * why is "deleted", "stopped", "timeout", "idle", "shutdown"... for the certificate. done comes after it is gone and
 * the certificate is committed.
 */
int sbox_end(struct sbox *sbox, const struct caller *caller, const char *why, sbox_done_fn *done, void *ctx,
             struct brig_err *err) MUST_CHECK;
/* The same as "stopped", after its programs had the stop signal of the image and ten seconds to end. */
int sbox_stop_softly(struct sbox *sbox, const struct caller *caller, sbox_done_fn *done, void *ctx,
                     struct brig_err *err) MUST_CHECK;
/* What its image says; NULL if it has none. */
const struct template_image *sbox_image(const struct sbox *sbox);
bool sbox_has_own_root(const struct sbox *sbox); /* Its programs are not those of the host's /usr. */
/* timeout_ms: UINT64_MAX leaves it, 0 removes it; else it is counted from now. metadata: NULL leaves it. */
int sbox_update(struct sbox *sbox, const struct caller *caller, uint64_t timeout_ms, const struct sbox_pair *metadata,
                size_t n_metadata, sbox_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
/*
 * Sets another policy: versioned, at once, for open connections too. A sandbox that was created without a network stays
 * without.
 */
int sbox_set_network(struct sbox *sbox, const struct caller *caller, const struct json_value *network,
                     sbox_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
/*
 * Asks for the counts of its network. Returns 1 if done follows, 0 if there is nothing to ask. Then sbox_network() has
 * them.
 */
int sbox_count_network(struct sbox *sbox, sbox_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
void sbox_network(const struct sbox *sbox, uint64_t *ret_in, uint64_t *ret_out);
#define NETWORK_ENV_MAX (SLOT_SECRETS_MAX + 16u)
/*
 * Writes the variables of its network and secrets, for programs; the values are valid until the next event. weak: those
 * that give way to the sandbox's own.
 */
size_t network_env(struct sbox *sbox, bool weak, struct sbox_pair out[NETWORK_ENV_MAX]);
int sbox_stats(struct sbox *sbox, void (*done)(void *ctx, const struct box_stats *stats, const struct brig_err *err),
               void *ctx, struct brig_err *err) MUST_CHECK;

/* It is in use and not idle until the same number of sbox_release(). Also marks it as used. */
void sbox_hold(struct sbox *sbox);
void sbox_release(struct sbox *sbox);

/*
 * Sets the quotas of one organisation or key over the configuration's: the members max_sandboxes, max_cpus, max_memory
 * and max_disk of its document (others are not looked at). NULL for none. Those in the store are read at the start;
 * code that changes them there calls this.
 */
int manager_set_quota(struct manager *manager, const char *id, const struct json_value *doc,
                      struct brig_err *err) MUST_CHECK;
/* Who else keeps bytes of an organisation, or of one key if key_id is given: they count in max_disk. */
struct disk_user {
    uint64_t (*bytes)(void *ctx, const char *org_id, const char *key_id);
    void *ctx;
    struct disk_user *next; /* private */
};
void manager_add_disk_user(struct manager *manager, struct disk_user *user); /* It stays until the manager ends. */
/* May so many more bytes be kept (volumes, snapshots, files of builds)? BRIG_E_LIMIT: max_disk. */
int quota_check_disk(struct manager *manager, const struct caller *caller, uint64_t bytes,
                     struct brig_err *err) MUST_CHECK;

/* Called before a sbox is freed, for code that holds a pointer (routes with open streams). */
struct sbox_watch {
    void (*ended)(void *ctx, struct sbox *sbox);
    void *ctx;
    struct sbox_watch *next, *prev; /* private */
};
void sbox_watch(struct sbox *sbox, struct sbox_watch *watch);
void sbox_unwatch(struct sbox *sbox, struct sbox_watch *watch);

/* The sandbox as JSON (docs/openapi.yaml, schema Sandbox). */
struct json;
void sbox_json(const struct sbox *sbox, struct json *json);

/* Lifecycle events for GET /v1/events: a bounded ring, each a JSON object with seq. */
struct manager_listener {
    void (*event)(void *ctx, const char *org_id, uint64_t seq, const char *json, size_t len);
    void *ctx;
    struct manager_listener *next, *prev;
};
void manager_listen(struct manager *manager, struct manager_listener *listener);
/* Does the same after the kept events with a number greater than since (UINT64_MAX: none of them). */
void manager_listen_since(struct manager *manager, struct manager_listener *listener, uint64_t since);
void manager_unlisten(struct manager *manager, struct manager_listener *listener);

/* Takes the control socket of brig-egress, a new one whenever either end is new; the manager owns it. */
int manager_gate(struct manager *manager, int sock, struct brig_err *err) MUST_CHECK;

struct network_stats {
    uint64_t bytes_in, bytes_out, allowed, denied, failed, names_refused, substituted, foreign;
    uint64_t sandboxes; /* Those with a network, now. */
    uint64_t restarts;  /* How often brig-egress was lost. */
    bool up;
};
void manager_network_stats(const struct manager *manager, struct network_stats *ret);

struct manager_stats {
    uint64_t sandboxes[SBOX_STATE_MAX], processes, created, ended, create_failures, quota_refusals, idle_reaped,
        timed_out, orphans, recovered;
};
void manager_stats(const struct manager *manager, struct manager_stats *ret);
/* Ends (or keeps, by config) every sandbox; done is called when the provider has none of those that must end. */
void manager_shut_down(struct manager *manager, void (*done)(void *ctx), void *ctx);
/* The same for one whose sandboxes live on: only those that wait for a create end, since nobody will take them. */
void manager_leave(struct manager *manager, void (*done)(void *ctx), void *ctx);
/* May a caller of this standing name private addresses ([gate] private_ranges)? */
bool policy_may_private(enum standing who, const struct config *config);
/* May a caller of this standing write a policy that allows these ranges (spec_network.c)? BRIG_E_FORBIDDEN. */
int policy_ranges_check(const struct json_value *policy, enum standing who, const struct config *config,
                        struct brig_err *err) MUST_CHECK;

#endif
