/* SPDX-License-Identifier: Apache-2.0 */
/*
 * private.h: what the files of this room share.
 *
 * Who owns what, because anything may vanish between two callbacks:
 *
 *   manager  It owns every sbox, the idempotency table, the events, and certificates that wait to be written.
 *   sbox     It lives from the accepted create until its certificate is committed. It is freed in sbox_forget()
 *            only, which runs from the loop (a store's or provider's callback, a timer), never below a callback
 *            of a link. While priv->pins is not zero (a write of the store that will call back) it is not freed.
 *   link     priv->link; destroyed in a round of its own after it said `gone`, or with the sbox.
 *   process  It belongs to the sbox; freed when it is out of the list and nobody has it pinned (process_pin()).
 *   waits, outputs, inputs, runs: They belong to their clients; each knows its process, or has had its last call.
 */
#ifndef BRIG_SANDBOX_PRIVATE_H
#define BRIG_SANDBOX_PRIVATE_H

#include <brig.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "codec/json/json_read.h"
#include "gate/gate_client.h"
#include "records/policies.h"
#include "records/secrets.h"
#include "sandbox/manager.h"
#include "sandbox/spec.h"

#define BUCKETS 1024u
#define IDEM_MAX 65536u /* The keys that are remembered at once; an organisation has a share. */
#define IDEM_KEEP_NS (INT64_C(24) * 3600 * (int64_t)NS_PER_SEC)
#define EVENTS_MAX 1024u /* The lifecycle events that are kept for listeners that come back. */
#define CERTS_MAX 4096u  /* The certificates that wait for a store that works again. */
#define RECREATE_MAX 5u  /* How often in RECREATE_WINDOW; then it stays dead. */
#define RECREATE_WINDOW_NS (60 * NS_PER_SEC)
#define PAIRS_MAX 64u /* metadata */
#define PAIR_BYTES 4096u
#define ENV_MAX 1024u
#define DURATION_MAX_MS (UINT64_C(365) * 24 * 3600 * 1000)
#define PROC_RESERVE 4096u            /* The process numbers that are promised to the store at a time. */
#define OUTPUT_KEPT_MAX (64u << 20)   /* For one command, in brigd's own memory. */
#define KEPT_POOL ((size_t)512 << 20) /* For all commands; one organisation alone has half. */
#define ROW_MAX (8u << 20)

struct process;
struct shell;
struct idem;
struct idem_org;
struct cert;
struct recovery;
struct update;
struct kept_of;
struct disks;

/* Why and by whom a sandbox ends. */
struct ending {
    char why[24];                   /* "deleted", "timeout", ...; "" if it was unasked. */
    char by[80];                    /* The caller's actor, or timeout, idle, shutdown, sandbox. */
    char actor[80], request_id[40]; /* for the audit */
};

/* A callback of the provider or the store that is still to come, with whom to call. */
struct ticket {
    struct sbox *sbox;
    struct ticket *next, *prev;
    void (*stats_done)(void *ctx, const struct box_stats *stats, const struct brig_err *err);
    void (*limits_done)(void *ctx, const struct brig_limits *limits, const struct brig_err *err);
    void *ctx;
};

/* A request that is on its way to the store and back. */
struct store_op {
    struct manager *manager; /* NULL if it was destroyed. */
    struct sbox *sbox;       /* It is pinned, or NULL. */
    store_done_fn *done;
    store_rows_fn *rows;
    void *ctx;
    struct store_op *next, *prev;
};

/*
 * The network and the secrets of one sandbox (priv->network; NULL if it has neither). Its slot in brig-egress lives
 * from PREPARE until FORGET; a recreation gets a new one. `choice` is what is in force, or what the PREPARE on its way
 * asks for.
 */
struct sbox_network {
    struct sbox *sbox;
    struct sbox_network *by_slot; /* The chain of the table. */
    bool gated;                   /* It has a network, even if that allows nothing. */
    uint64_t slot;                /* 0: none */
    uint64_t version;             /* The version of the slot's policy, which rises. */
    struct network_choice choice;
    bool any_port;
    size_t n_ports;
    uint16_t ports[POLICY_PORTS_MAX]; /* The ports with listeners. */
    /* The TLS certificate of the sandbox's own authority, in PEM; NULL if nothing is brokered. */
    char *ca;
    bool trust;                                /* It got a CA bundle. */
    char (*placeholders)[PLACEHOLDER_LEN + 1]; /* One per secret of the spec; "" for exposed ones. */
    uint8_t **exposed;                         /* One per secret; wiped when it is freed. */
    size_t *exposed_len;

    bool preparing, listening;       /* For a create: these are on their way. */
    bool unheard;                    /* brig-egress has no listeners of it, and they could not be fetched yet. */
    struct net_update *update;       /* The update that is under way. */
    bool stale;                      /* Its named policy changed meanwhile. */
    bool skipped;                    /* Its version was raised over one that brig-egress had. */
    struct learn *learn;             /* With the policy `learn`: what it tried; else NULL. */
    struct gate_counts before, now;  /* The counts of earlier brig-egress processes and slots, and of this one. */
    void (*over)(struct sbox *sbox); /* network_end(): it waits for the last counts. */
};

struct sbox {
    char id[32]; /* "" until the provider has chosen it */
    char org_id[64], key_id[64];
    char boot_id[32]; /* It is new with each (re)creation. */
    enum sbox_state state;
    struct sbox_spec spec;
    struct brig_limits limits; /* as enforced */
    struct brig_layer_state layers[BRIG_LAYER_MAX];
    bool protection_complete;
    int64_t created_at_ns, updated_at_ns; /* wall */
    uint64_t ends_at_boot_ns;             /* CLOCK_BOOTTIME; 0: none */
    uint64_t last_used_boot_ns;
    unsigned busy;      /* The requests, streams and terminals in flight. */
    unsigned processes; /* running */
    struct link *link;  /* NULL unless it can be talked to (running) */
    uint32_t next_proc; /* The next number of a process: struct svc_proc_start. */
    struct sbox *next, *prev;
    struct manager *manager;
    struct sbox_private *priv;
};

struct sbox_private {
    struct sbox_network *network;
    struct provider *provider; /* The one that has its box, or will make it. */
    struct box *box;           /* NULL between death and recreation. */
    char box_id[32];           /* The provider's id; it differs from the sandbox's after a recreation. */
    struct link *link;         /* It is set also while it may not be used. */
    bool link_gone;
    bool up;      /* The box has come up. */
    bool row;     /* The store has, or will have, a row. */
    bool retired; /* It is out of the list and the tables: only memory, and a link that has not ended yet. */
    bool lingered;
    bool finishing;         /* The box has ended; the certificate is on its way. */
    bool announced;         /* Its create has been answered with success. */
    bool internal;          /* As its spec says, until a create takes it over. */
    bool parked, pooled;    /* It waits for a create (parked/); its create took such a one. */
    struct child *children; /* child.c */
    unsigned pins;
    struct sbox *by_id, *by_name; /* The chains of the tables. */
    struct caller creator;
    struct loop_timer deadline; /* Age or idleness, whichever comes first. */
    struct loop_timer later;    /* For a link that is gone, or a pause before the next attempt. */
    struct sbox_watch *watches;
    struct ticket *tickets;
    struct update *updates;

    /* create */
    sbox_done_fn *create_done;
    void *create_ctx;
    struct idem *idem;
    unsigned commits; /* The writes of the create that have not called back. */
    bool settling;    /* They have been asked for, or none is needed. */
    bool again;       /* The parked box has died: another one is made once they are over. */
    struct brig_err create_err;
    struct call *mkdir; /* The call that makes the working directory. */
    struct call *find_user;
    struct soft_stop *soft_stop; /* It is being stopped, and its programs have been asked to end; or NULL. */

    bool services_wait; /* They are started once the network is there. */
    struct ask *asks;
    struct service_log *logs, *tail_log;
    char failed_service[64]; /* The one that did not come up, and its last output. */
    struct buf service_tail;

    /* pause, resume */
    sbox_done_fn *change_done;
    void *change_ctx;
    struct caller changer;
    bool paused_by_timeout;
    uint64_t paused_at_ns; /* CLOCK_MONOTONIC */
    uint32_t change;       /* It counts, so that a late answer is known as such. */

    /* end */
    struct ending ending;
    sbox_done_fn *end_done;
    void *end_ctx;
    struct box_end end;
    struct brig_err link_why;
    char *metadata_memory; /* The memory of an update. */

    /* recreation */
    uint64_t deaths[RECREATE_MAX]; /* When it died, CLOCK_BOOTTIME; a ring. */
    unsigned n_deaths;
    uint32_t recreated;

    /* processes (process.c) */
    struct process *first, *last;
    unsigned running, ended;
    uint32_t reserved; /* The store knows the numbers up to here. */
    struct shell *shells;
    unsigned n_shells;
    uint32_t next_shell;
    struct box_stats seen; /* The counters at the last look: what rises later is news. */
    bool has_seen;

    /* recovery */
    void (*attach_done)(struct sbox *sbox, const struct brig_err *err);
    struct call *list;
    bool unsettled; /* ready() waits for it. */
};

struct event_slot {
    uint64_t seq;
    char org_id[64];
    char *json;
    size_t len;
};

struct quota {                              /* 0: none */
    uint64_t sandboxes, cpus, memory, disk; /* cpus in thousandths */
};
struct quota_of {
    struct quota_of *next;
    char id[64];
    struct quota quota;
};

struct manager {
    struct loop *loop;
    struct provider *provider;
    struct providers *providers; /* or NULL */
    struct store *store;
    struct audit *audit;
    const struct config *config;
    struct suspicion *suspicion;
    struct templates *templates;
    struct volumes *volumes;
    struct snapshots *snapshots;
    struct disks *disks; /* disk/ */
    struct sbox *first;
    struct sbox *children; /* The internal ones. */
    size_t count, n_children, creating;
    size_t n_parked;       /* So many of the children are of parked/, in making and ending ones too. */
    struct parked *parked; /* parked/ */
    unsigned n_early;
    struct sbox *by_id[BUCKETS], *by_name[BUCKETS];
    struct idem *idems[BUCKETS], *idem_first, *idem_last;
    struct idem_org *idem_orgs[BUCKETS];
    size_t n_idems, idem_max;
    struct quota_of *quotas[BUCKETS];
    struct disk_user *disk_users;
    struct kept_of *kept[BUCKETS]; /* kept.c */
    size_t kept_bytes, kept_pool;
    struct event_slot events[EVENTS_MAX]; /* oldest first */
    size_t n_events;
    uint64_t event_seq; /* The last number, which is a time. */
    struct manager_listener *listeners, *listener_next, *replaying;
    struct manager_stats stats;
    struct loop_timer cleanup, retry, shut, start;
    struct sbox *retired;
    struct store_op *ops;
    struct cert *certs;
    size_t n_certs;
    struct recovery *recovery;
    void (*ready)(void *ctx);
    void *ready_ctx;
    struct network *network;               /* network.c */
    unsigned orphans;                      /* Those of an earlier life that must end and are not gone yet. */
    bool is_ready, shutting_down, leaving; /* leaving: sandboxes live on */
    void (*shut_done)(void *ctx);
    void *shut_ctx;
};

static inline const struct provider_ops *sbox_ops(const struct sbox *sbox)
{
    return sbox->priv->provider->ops;
}

/* ---- store_op.c ---------------------------------------------------------------------------------------- */
struct store_op *store_op_new(struct manager *manager, struct sbox *sbox, store_done_fn *done, store_rows_fn *rows,
                              void *ctx);
void store_op_drop(struct store_op *op); /* It was never sent. op may be NULL. */
store_done_fn store_op_done;
store_rows_fn store_op_rows;
void store_ops_orphan(struct manager *manager);

/* ---- kept.c -------------------------------------------------------------------------------------------- */
/* Keeps output of a program. Returns false if it is not kept: memory is short or the organisation has its share. */
bool kept_add(struct manager *manager, const char *org_id, struct buf *to, const uint8_t *data, size_t len) MUST_CHECK;
void kept_drop(struct manager *manager, const char *org_id, struct buf *kept);   /* frees it */
void kept_done(struct manager *manager, const char *org_id, struct buf kept[3]); /* frees both streams */

/* ---- states.c ------------------------------------------------------------------------------------------ */
bool state_allows(enum sbox_state from, enum sbox_state to);
/* Moves it, or returns BRIG_E_CONFLICT and nothing has changed. It counts. */
int sbox_move(struct sbox *sbox, enum sbox_state to, struct brig_err *err) MUST_CHECK;
/* For a transition that the table allows by construction. */
void sbox_moved(struct sbox *sbox, enum sbox_state to);

/* ---- manager.c ----------------------------------------------------------------------------------------- */
uint64_t sandbox_boot_ns(void); /* CLOCK_BOOTTIME; tests move it with sandbox_clock_skew */
#ifdef BRIG_TEST
extern uint64_t sandbox_clock_skew;
#endif
unsigned sandbox_bucket(const char *a, const char *b);
struct sbox *sbox_new(struct manager *manager, bool internal); /* It is in the list, in no table, and not counted. */
void sbox_table_add(struct sbox *sbox);                        /* By id, once it has one. */
void sbox_name_add(struct sbox *sbox);
struct sbox *sbox_by_name(struct manager *manager, const char *org_id, const char *name);
void sbox_retire(struct sbox *sbox);             /* Nobody finds it any more. */
void sbox_forget(struct sbox *sbox);             /* Frees it. */
const char *sbox_label(const struct sbox *sbox); /* id, else name, else "(new)" */
uint64_t sandbox_audit(struct manager *manager, const struct caller *caller, const char *org, const char *action,
                       const char *object, const char *outcome, const char *detail, bool sync);
/* One more failure or denial of this caller: many of them in a short time are an event. */
void sandbox_suspect(const struct sbox *sbox, const struct caller *caller, const char *outcome, const char *detail);

/* ---- spec_limits.c ------------------------------------------------------------------------------------- */
int spec_cpus(const struct json_value *v, const char *key, uint64_t *ret, struct brig_err *err) MUST_CHECK;
int spec_count(const struct json_value *v, const char *key, uint64_t min, uint64_t max, uint64_t *ret,
               struct brig_err *err) MUST_CHECK;
int spec_limits(const struct json_value *v, struct brig_limits *ret, struct brig_err *err) MUST_CHECK;
int spec_output(uint64_t output, const char *key, struct brig_err *err) MUST_CHECK; /* May so much be kept? */
int spec_bool(const struct json_value *v, const char *key, bool *ret, struct brig_err *err) MUST_CHECK;
/* Reads a string without NUL and, unless text, without control characters; at most max bytes. */
int spec_string(const struct json_value *v, const char *key, size_t max, bool text, const char **ret,
                struct brig_err *err) MUST_CHECK;
/* Reads one of the words. Returns its number, or an error that names them. */
int spec_word(const struct json_value *v, const char *key, const char *const *words, struct brig_err *err) MUST_CHECK;
int spec_pair_check(const char *what, const char *name, size_t name_len, const char *value, size_t value_len, bool env,
                    struct brig_err *err) MUST_CHECK;
/* Room for every string and array of the tree, from which they are cut. */
struct spec_memory {
    char *base;
    size_t used, size;
};
int spec_memory_init(struct spec_memory *memory, const struct json_value *json, size_t extra) MUST_CHECK;
void *spec_take(struct spec_memory *memory, size_t len, size_t align);
char *spec_copy(struct spec_memory *memory, const char *text, size_t len);
/* Reads {"NAME": "value"} into pairs. */
int spec_pairs(const struct json_value *v, const char *key, bool env, size_t max, struct spec_memory *memory,
               struct sbox_pair **ret, size_t *ret_n, struct brig_err *err) MUST_CHECK;

/* ---- sbox_spec.c -------------------------------------------------------------------------------------------- */
/* It comes from the store and was judged when it was asked for; its template may be gone by now. */
int spec_parse_stored(const struct json_value *json, const struct config *config, const struct caller *caller,
                      struct sbox_spec *ret, struct brig_err *err) MUST_CHECK;
int spec_name_check(const char *name, struct brig_err *err) MUST_CHECK; /* May a sandbox have this name? */
int spec_bind(struct spec_memory *memory, const struct json_value *v, struct brig_bind *ret,
              struct brig_err *err) MUST_CHECK; /* Reads one of `binds` (spec_binds.c). */

/* ---- spec_template.c ----------------------------------------------------------------------------------- */
struct template_place {
    const struct object *object; /* a template of layers, or NULL */
    char rootfs[4096 + 128];     /* else: a directory or tar of the host; "" is the host's own root */
    char note[256];
};
/* Where the template of this name comes from: the host, the organisation's, a shared one, the directory of [sandbox]
 * templates. Paths are for administrators. */
int spec_template(const char *name, const struct config *config, const struct templates *templates, const char *org,
                  bool admin, struct template_place *ret, struct brig_err *err) MUST_CHECK;
/* Fills in what the name of a spec means: image, note, and what the image says where the request says nothing. */
int spec_template_use(struct sbox_spec *spec, const struct config *config, const struct templates *templates,
                      const struct caller *caller, bool workdir_given, bool user_given,
                      struct brig_err *err) MUST_CHECK;
/* Its template has a disk: the store is a copy of that, and has its size. */
int spec_template_disk(struct sbox_spec *spec, bool disk_given, bool writable_root_given,
                       struct brig_err *err) MUST_CHECK;

/* ---- spec_network.c ------------------------------------------------------------------------------------ */
/* The question of spec_network() for a policy that was stored as text: may this caller have it? BRIG_E_FORBIDDEN. */
int spec_network_judge(const char *network, const struct caller *caller, const struct config *config,
                       struct brig_err *err) MUST_CHECK;
int spec_secrets(const struct json_value *v, struct spec_memory *memory, struct sbox_secret **ret, size_t *ret_n,
                 struct brig_err *err) MUST_CHECK;
/* spec_user.c */
int spec_user(const struct json_value *v, const char **ret, struct brig_err *err) MUST_CHECK; /* of a request */
/* The image's user, unless the request has named one. */
int spec_user_of_image(struct sbox_spec *spec, const char *user, struct brig_err *err) MUST_CHECK;
bool spec_has_root(const struct sbox_spec *spec);    /* Its programs are root inside. */
bool spec_root_inside(const struct sbox_spec *spec); /* They are, or may become it. */
int spec_sudo_check(const struct sbox_spec *spec, struct brig_err *err) MUST_CHECK;
/* The user that brig-init must look up for all of its programs and files; NULL: it is one of our own two. */
const char *spec_user_to_find(const struct sbox_spec *spec);
bool spec_has_users(const struct sbox_spec *spec); /* Its programs may name other users than the sandbox's. */
/* Why a user could not be found: errnum is brig-init's answer. */
int user_not_found(const char *user, uint32_t errnum, struct brig_err *err);
int spec_secrets_check(const struct sbox_spec *spec, struct brig_err *err) MUST_CHECK;

/* ---- network.c: a sandbox's slot in brig-egress ----------------------------------------------------------- */
struct network {
    struct manager *manager;
    struct gate_client *client;
    struct policies *policies;
    struct secrets *secrets;
    struct sbox_network *by_slot[BUCKETS];
    size_t n_slots;
    struct network_stats stats;
    struct loop_timer look; /* Counts are asked for now and then, while there are slots. */
};
int network_start(struct manager *manager, const struct manager_options *options, struct brig_err *err) MUST_CHECK;
void network_stop(struct manager *manager);
/*
 * For a create or recreation. Returns 0 if the box can be asked for, 1 if not before create_prepared(), which is called
 * with every network.
 */
int network_begin(struct sbox *sbox, struct brig_err *err) MUST_CHECK;
/*
 * Fills in what the provider must be asked for. *ret_trust is a descriptor that must be closed after
 * provider->create(), or -1.
 */
int network_want(struct sbox *sbox, struct provider_gate *ret, int *ret_trust, struct brig_err *err) MUST_CHECK;
/*
 * The box is up. While network_waits() the create is not over: create_prepared() and create_listening() follow. Returns
 * 0 or an error.
 */
int network_listen(struct sbox *sbox, struct box_listeners *listeners, struct brig_err *err) MUST_CHECK;
bool network_waits(const struct sbox *sbox);
void network_running(struct sbox *sbox);   /* It has been announced. */
void network_recovered(struct sbox *sbox); /* Its box has been found again. */
void network_forget(struct sbox *sbox);    /* Forgets the slot and what is on its way; the counts stay. */
/* Returns true if over() comes once the last counts are there. */
bool network_end(struct sbox *sbox, void (*over)(struct sbox *sbox));
void network_free(struct sbox *sbox);
struct sbox_network *network_by_slot(const struct network *network, uint64_t slot);
void network_adopt(struct sbox_network *net, uint64_t slot); /* The slot of an earlier brigd. */
/* Writes the member `network` of a sandbox or a certificate. */
void network_put(struct json *json, const struct sbox *sbox);

/* ---- network_row.c ------------------------------------------------------------------------------------------ */
void network_put_row(struct json *json, const struct sbox *sbox); /* Writes the member `gate`, or nothing. */
/* gate is NULL if there is none. */
int network_read_row(struct sbox *sbox, const struct json_value *gate, struct brig_err *err) MUST_CHECK;

/* ---- network_slot.c: what a slot is made of ---------------------------------------------------------------- */
int slot_choose(struct manager *manager, const char *org, const char *network, struct network_choice *ret,
                struct brig_err *err) MUST_CHECK;
/* Makes placeholders and takes exposed values. */
int slot_secrets(struct sbox_network *net, struct brig_err *err) MUST_CHECK;
struct secret_use slot_use(const struct sbox *sbox, size_t i); /* Its i-th secret, for its creator. */
int slot_check_secrets(const struct sbox *sbox, const struct network_choice *choice, struct brig_err *err) MUST_CHECK;
int slot_json(const struct sbox_network *net, const struct network_choice *choice, struct buf *out,
              struct brig_err *err) MUST_CHECK;
int slot_trust(const struct sbox_network *net, struct brig_err *err) MUST_CHECK; /* Returns a sealed memfd. */
/* It has neither a network nor secrets. */
bool slot_is_none(const struct sbox_spec *spec);

/* ---- network_update.c -------------------------------------------------------------------------------------- */
struct net_update;
void network_policy_changed(void *ctx, const struct object *policy);
void network_drop_update(struct sbox_network *net, const struct brig_err *why); /* Calls those who wait. */
void network_look_again(struct sbox_network *net); /* If it is stale: has its named policy changed? */

/* ---- network_events.c -------------------------------------------------------------------------------------- */
void network_event(void *ctx, const struct gate_event *event);
/* Updates its counts and the sums of the daemon. */
void network_counted(struct sbox_network *net, const struct gate_counts *counts);
void network_restarted(struct sbox_network *net); /* Its counters begin again. */
void network_totals(const struct sbox_network *net, struct gate_counts *ret);
/* What went through while a process ran is counted at its start and its end. */
void network_name(const struct sbox *sbox, bool own_child, struct brig_network *ret); /* The name and the version. */
void network_process_started(struct process *process);
bool network_process_ending(struct process *process); /* Returns true if process_ended() follows. */
void network_process_free(struct process *process);
/* learned is the memory for its text. */
void network_fill(const struct sbox *sbox, const struct gate_counts *before, struct brig_receipt *r,
                  struct buf *learned);
void network_process_fill(const struct process *process, struct brig_receipt *r, struct buf *learned);

/* ---- access.c ------------------------------------------------------------------------------------------ */
/* sbox_check_use() of what a spec holds. binds: it has directories that a request named. label: what it is called. */
int spec_check_use(const struct sbox_spec *spec, bool binds, const char *label, const struct caller *caller,
                   const struct config *config, struct brig_err *err) MUST_CHECK;

/* ---- disk/ (sbox_disks.h) ------------------------------------------------------------------------------ */
int disks_start(struct manager *manager, struct brig_err *err) MUST_CHECK;
void disks_stop(struct manager *manager);
/* What is kept for an organisation, or (key_id) for one of its keys. */
uint64_t disks_bytes(const struct manager *manager, const char *org_id, const char *key_id);
/* Finds the volumes of a spec and checks that it may have them. without: a sandbox that is about to end; or NULL. */
int volumes_attach(struct manager *manager, const char *org, struct sbox_spec *spec, const struct sbox *without,
                   struct brig_err *err) MUST_CHECK;
const char *spec_disk_from(const struct sbox_spec *spec); /* The disk that its store is a copy of, or "". */
bool spec_has_disk(const struct sbox_spec *spec);         /* Its store is a disk. */
struct disk_wanted {                                      /* the memory for what asked points to */
    char disk[DISK_NAME_SIZE];
    struct provider_volume volumes[PROVIDER_VOLUMES_MAX];
};
int disk_want(const struct sbox_spec *spec, struct disk_wanted *wanted, struct provider_spec *asked,
              struct brig_err *err) MUST_CHECK;

/* ---- quota.c ------------------------------------------------------------------------------------------- */
/* May there be `count` new ones of this spec? In the order of manager.h. without: one that is about to end; or NULL. */
int quota_check(struct manager *manager, const struct caller *caller, const struct sbox_spec *spec, unsigned count,
                const struct sbox *without, struct brig_err *err) MUST_CHECK;
int quota_load(struct manager *manager, struct brig_err *err) MUST_CHECK;
void quota_done(struct manager *manager);

/* ---- idempotency.c ------------------------------------------------------------------------------------- */
bool idem_is_known(struct manager *manager, const struct caller *caller, const char *key); /* It was used before. */
/*
 * Returns 1 if this key answers (done will be called), 0 if it is new (*ret_idem has it and must be settled), or an
 * error.
 */
int idem_begin(struct manager *manager, const struct caller *caller, const char *key, const uint8_t fingerprint[32],
               sbox_done_fn *done, void *ctx, struct idem **ret, struct brig_err *err) MUST_CHECK;
int idem_write(struct manager *manager, struct idem *idem, struct sbox *sbox, store_done_fn *done, void *ctx,
               struct brig_err *err) MUST_CHECK;
/* The create is over: sbox, or NULL with err. Waiters are called; a failed one is forgotten. */
void idem_settle(struct manager *manager, struct idem *idem, struct sbox *sbox, const struct brig_err *err);
int idem_load(struct manager *manager, struct brig_err *err) MUST_CHECK;
void idem_expire(struct manager *manager, int64_t before_ns);
void idem_done(struct manager *manager);

/* ---- sbox_create.c ------------------------------------------------------------------------------------------ */
int create_box(struct sbox *sbox, struct brig_err *err) MUST_CHECK; /* Asks the provider; also for a recreation. */
/* brig-egress is ready for it, or not (network.c). */
void create_prepared(struct sbox *sbox, const struct brig_err *err);
void create_listening(struct sbox *sbox, const struct brig_err *err); /* It has its listeners. */
void create_ended(struct sbox *sbox);                                 /* The box ended before the create was over. */
int sbox_connect(struct sbox *sbox, int fd, struct brig_err *err) MUST_CHECK; /* Makes a link over the stream. */

/* Creates one for child.c. done is as for manager_create_sandbox(); *ret is there at once. It owns spec always. */
int manager_create_internal(struct manager *manager, const struct caller *caller, struct sbox_spec *spec,
                            sbox_done_fn *done, void *ctx, struct sbox **ret, struct brig_err *err) MUST_CHECK;

/* ---- child.c ------------------------------------------------------------------------------------------- */
void children_gone(struct sbox *sbox);                           /* Its box has ended. */
void children_free(struct sbox *sbox);                           /* nobody is told */
void children_counted(void *ctx, const struct box_stats *stats); /* For struct box_events; ctx is the sbox. */

/* ---- death.c ------------------------------------------------------------------------------------------- */
void sbox_box_ended(void *ctx, const struct box_end *end);
void sbox_link_gone(void *ctx, const struct brig_err *why);
void create_failure(const struct sbox *sbox, struct brig_err *err); /* Why a create whose box has ended failed. */
/* The state is STOPPING already. */
void sbox_stop(struct sbox *sbox, const struct caller *caller, const char *why, const char *by);
/* soft_stop.c */
void soft_stop_check(struct sbox *sbox); /* A program of it has ended. */
void soft_stop_drop(struct sbox *sbox);  /* Nobody is told. */
void sbox_linger(struct sbox *sbox);     /* Waits a while for its link to end, then calls sbox_forget() again. */
void sbox_finish(struct sbox *sbox);     /* Writes the certificate, then forgets it. */
int sbox_park_later(struct sbox *sbox) MUST_CHECK;
void sbox_tell_watches(struct sbox *sbox);
void sbox_unpin(struct sbox *sbox); /* Lowers priv->pins; may free it. */

/* ---- sbox_lifecycle.c --------------------------------------------------------------------------------------- */
int sbox_pause_by(struct sbox *sbox, const struct caller *caller, bool by_timeout, sbox_done_fn *done, void *ctx,
                  struct brig_err *err) MUST_CHECK;
void sbox_drop_updates(struct sbox *sbox);
void sbox_fail_tickets(struct sbox *sbox);
/* Nobody waits any more for sbox_stats() and sbox_set_limits(). */
void sbox_drop_stats(struct sbox *sbox, const void *ctx);
/* Sets memory, cpus and pids, all three. done is called once they are in force, with those that are. */
int sbox_set_limits(struct sbox *sbox, const struct brig_limits *limits,
                    void (*done)(void *ctx, const struct brig_limits *limits, const struct brig_err *err), void *ctx,
                    struct brig_err *err) MUST_CHECK;
void sbox_fail_change(struct sbox *sbox, const struct brig_err *err);

/* ---- idle.c -------------------------------------------------------------------------------------------- */
void idle_arm(struct sbox *sbox);
void idle_start(struct manager *manager);

/* ---- certificate.c ------------------------------------------------------------------------------------- */
/* Writes the certificate and removes the sandbox's row; done is called when that is committed. */
int certificate_write(struct sbox *sbox, store_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
/* For a row whose sandbox is not there any more. */
int certificate_write_gone(struct manager *manager, const struct store_sandbox *row, const char *detail,
                           struct brig_err *err) MUST_CHECK;
/* A certificate that could not be written waits here and is tried again. */
void certificate_keep(struct sbox *sbox);
void certificates_done(struct manager *manager);

/* ---- sbox_events.c ------------------------------------------------------------------------------------------ */
void sandbox_event(struct sbox *sbox, const char *type, const char *detail);
void events_done(struct manager *manager);

/* ---- sbox_json.c, row.c ------------------------------------------------------------------------------------- */
void json_pairs(struct json *json, const struct sbox_pair *pairs, size_t n);
void json_spec(struct json *json, const struct sbox_spec *spec, bool values); /* Writes members into an open object. */
int row_write(struct sbox *sbox, store_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
int row_read(struct manager *manager, const struct store_sandbox *row, struct sbox *sbox,
             struct brig_err *err) MUST_CHECK;

/* ---- recover.c ----------------------------------------------------------------------------------------- */
int recover_start(struct manager *manager, struct brig_err *err) MUST_CHECK;
void recover_sbox_settled(struct sbox *sbox); /* It has been listed, or will never be. */
void recover_done(struct manager *manager);
void recover_late(struct manager *manager); /* Those that have not answered yet are ended. */
int recover_attach(struct sbox *sbox, void (*done)(struct sbox *sbox, const struct brig_err *err),
                   struct brig_err *err) MUST_CHECK;

#endif
