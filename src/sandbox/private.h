/* SPDX-License-Identifier: Apache-2.0 */
/*
 * private.h: what the files of this room share.
 *
 * Who owns what, because anything may vanish between two callbacks:
 *
 *   manager  owns every sbox, the idempotency table, the events, certificates that wait to be written.
 *   sbox     lives from the accepted create until its certificate is committed; freed in sbox_forget() only, which runs from the
 *            loop (a store's or provider's callback, a timer), never below a callback of a link. While priv->pins is not zero
 *            (a write of the store that will call back) it is not freed.
 *   link     priv->link; destroyed in a round of its own after it said `gone`, or with the sbox.
 *   process  belongs to the sbox; freed when it is out of the list and nobody has it pinned (process_pin()).
 *   waits, outputs, inputs, runs: their clients'; each knows its process, or has had its last call.
 */
#ifndef BRIG_SANDBOX_PRIVATE_H
#define BRIG_SANDBOX_PRIVATE_H

#include <brig.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/json.h"
#include "codec/json_read.h"
#include "sandbox/manager.h"

#define BUCKETS 1024u
#define IDEM_MAX 65536u                                  /* remembered at once; the oldest goes first */
#define IDEM_KEEP_NS (INT64_C(24) * 3600 * (int64_t)NS_PER_SEC)
#define EVENTS_MAX 1024u                                 /* lifecycle events kept for those who come back */
#define CERTS_MAX 4096u                                  /* certificates that wait for a store that works again */
#define RECREATE_MAX 5u                                  /* times in RECREATE_WINDOW; then it stays dead */
#define RECREATE_WINDOW_NS (60 * NS_PER_SEC)
#define PAIRS_MAX 64u                                    /* metadata */
#define PAIR_BYTES 4096u
#define ENV_MAX 1024u
#define DURATION_MAX_MS (UINT64_C(365) * 24 * 3600 * 1000)
#define PROC_RESERVE 4096u                               /* process numbers promised to the store at a time */
#define ROW_MAX (8u << 20)

struct process;
struct shell;
struct idem;
struct cert;
struct recovery;
struct update;

/* Why and by whom a sandbox ends. */
struct ending {
    char why[24];      /* "deleted", "timeout", ... ; "" : unasked */
    char by[80];       /* the caller's actor, or timeout, idle, shutdown, sandbox */
    char org[64], actor[80], request_id[40]; /* for the audit */
};

/* A provider's or store's callback that is on its way, with whom to tell. */
struct ticket {
    struct sbox *sbox;
    struct ticket *next, *prev;
    void (*stats_done)(void *ctx, const struct box_stats *stats, const struct brig_err *err);
    void *ctx;
};

/* One that is on its way to the store and back. */
struct store_op {
    struct manager *manager; /* NULL: destroyed */
    struct sbox *sbox;       /* pinned, or NULL */
    store_done_fn *done;
    store_rows_fn *rows;
    void *ctx;
    struct store_op *next, *prev;
};

struct sbox_private {
    struct box *box;             /* NULL: none (between death and recreation) */
    char box_id[32];             /* the provider's; differs from the sandbox's after a recreation */
    struct link *link;           /* also while it may not be used */
    bool link_gone;
    bool up;                     /* the box has come up */
    bool row;                    /* the store has, or will have, a row */
    bool retired;                /* out of the list and the tables: only memory, and a link that has not said goodbye */
    bool lingered;
    bool finishing;              /* the box has ended; the certificate is on its way */
    bool announced;              /* its create has been answered with success */
    unsigned pins;
    struct sbox *by_id, *by_name; /* chains of the tables */
    struct caller creator;
    struct loop_timer deadline;  /* age and idleness, whichever comes first */
    struct loop_timer later;     /* a link that is gone, a pause before the next attempt */
    struct sbox_watch *watches;
    struct ticket *tickets;
    struct update *updates;

    /* create */
    sbox_done_fn *create_done;
    void *create_ctx;
    struct idem *idem;
    unsigned commits;            /* writes of the create that have not called back */
    struct brig_err create_err;
    struct call *mkdir;          /* of the working directory */

    /* pause, resume */
    sbox_done_fn *change_done;
    void *change_ctx;
    struct caller changer;
    bool paused_by_timeout;
    uint64_t paused_at_ns;       /* CLOCK_MONOTONIC */
    uint32_t change;             /* counts, so that a late answer is known as such */

    /* end */
    struct ending ending;
    sbox_done_fn *end_done;
    void *end_ctx;
    struct box_end end;
    struct brig_err link_why;
    char *metadata_memory;       /* of an update */

    /* recreation */
    uint64_t deaths[RECREATE_MAX]; /* when, CLOCK_BOOTTIME; a ring */
    unsigned n_deaths;
    uint32_t recreated;

    /* processes (process.c) */
    struct process *first, *last;
    unsigned running, ended;
    uint32_t reserved;           /* numbers up to here are the store's knowledge */
    struct shell *shells;
    unsigned n_shells;
    uint32_t next_shell;
    struct box_stats seen;       /* counters when they were last looked at: what rises later is news */
    bool has_seen;

    /* recovery */
    void (*attach_done)(struct sbox *sbox, const struct brig_err *err);
    struct call *list;
    bool unsettled;              /* ready() waits for it */
};

struct event_slot {
    uint64_t seq;
    char org_id[64];
    char *json;
    size_t len;
};

struct quota { /* 0: none */
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
    struct store *store;
    struct audit *audit;
    const struct config *config;
    struct suspicion *suspicion;
    struct sbox *first;
    size_t count, creating;
    unsigned n_early;
    struct sbox *by_id[BUCKETS], *by_name[BUCKETS];
    struct idem *idems[BUCKETS], *idem_first, *idem_last;
    size_t n_idems;
    struct quota_of *quotas[BUCKETS];
    struct event_slot events[EVENTS_MAX];
    uint64_t event_seq, event_base; /* it starts at the wall clock, so that numbers go on over a restart */
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
    bool is_ready, shutting_down;
    void (*shut_done)(void *ctx);
    void *shut_ctx;
};

/* ---- store_op.c ---------------------------------------------------------------------------------------- */
struct store_op *store_op_new(struct manager *manager, struct sbox *sbox, store_done_fn *done, store_rows_fn *rows, void *ctx);
void store_op_drop(struct store_op *op); /* it was never sent; takes NULL */
store_done_fn store_op_done;
store_rows_fn store_op_rows;
void store_ops_orphan(struct manager *manager);

/* ---- states.c ------------------------------------------------------------------------------------------ */
bool state_allows(enum sbox_state from, enum sbox_state to);
/* Moves it, or BRIG_E_CONFLICT and nothing has changed. Counts. */
int sbox_move(struct sbox *sbox, enum sbox_state to, struct brig_err *err) MUST_CHECK;
/* For a transition that the table allows by construction. */
void sbox_moved(struct sbox *sbox, enum sbox_state to);
/* BRIG_E_CONFLICT unless it runs and can be talked to. */
int sbox_usable(const struct sbox *sbox, struct brig_err *err) MUST_CHECK;

/* ---- manager.c ----------------------------------------------------------------------------------------- */
uint64_t sandbox_boot_ns(void); /* CLOCK_BOOTTIME; tests move it with sandbox_clock_skew */
#ifdef BRIG_TEST
extern uint64_t sandbox_clock_skew;
#endif
unsigned sandbox_bucket(const char *a, const char *b);
struct sbox *sbox_new(struct manager *manager); /* in the list, in no table, not counted */
void sbox_table_add(struct sbox *sbox);         /* by id, once it has one */
void sbox_name_add(struct sbox *sbox);
struct sbox *sbox_by_id(struct manager *manager, const char *id);
struct sbox *sbox_by_name(struct manager *manager, const char *org_id, const char *name); /* org_id NULL: of any */
void sbox_retire(struct sbox *sbox); /* nobody finds it any more */
void sbox_forget(struct sbox *sbox); /* frees it, when nothing holds it and its link has gone */
const char *sbox_label(const struct sbox *sbox); /* id, else name, else "(new)" */
uint64_t sandbox_audit(struct manager *manager, const struct caller *caller, const char *org, const char *action, const char *object,
                       const char *outcome, const char *detail, bool sync);
void manager_check_shut(struct manager *manager);

/* ---- spec_limits.c ------------------------------------------------------------------------------------- */
int spec_size(const struct json_value *v, const char *key, uint64_t *ret, struct brig_err *err) MUST_CHECK;
int spec_duration(const struct json_value *v, const char *key, uint64_t *ret_ms, struct brig_err *err) MUST_CHECK;
int spec_cpus(const struct json_value *v, const char *key, uint64_t *ret, struct brig_err *err) MUST_CHECK;
int spec_count(const struct json_value *v, const char *key, uint64_t min, uint64_t max, uint64_t *ret, struct brig_err *err) MUST_CHECK;
int spec_limits(const struct json_value *v, struct brig_limits *ret, struct brig_err *err) MUST_CHECK;
int spec_bool(const struct json_value *v, const char *key, bool *ret, struct brig_err *err) MUST_CHECK;
/* A string without NUL and, unless text, without control characters; at most max bytes. */
int spec_string(const struct json_value *v, const char *key, size_t max, bool text, const char **ret, struct brig_err *err) MUST_CHECK;
/* One of the words; their number, or an error that names them. */
int spec_word(const struct json_value *v, const char *key, const char *const *words, struct brig_err *err) MUST_CHECK;
int spec_pair_check(const char *what, const char *name, size_t name_len, const char *value, size_t value_len, bool env, struct brig_err *err) MUST_CHECK;
/* Room for every string and array of the tree, and a place to cut them from. */
struct arena {
    char *base;
    size_t used, size;
};
int arena_init(struct arena *arena, const struct json_value *json, size_t extra) MUST_CHECK;
void *arena_take(struct arena *arena, size_t len, size_t align);
char *arena_copy(struct arena *arena, const char *text, size_t len);
/* {"NAME": "value"} into pairs. */
int spec_pairs(const struct json_value *v, const char *key, bool env, size_t max, struct arena *arena, struct sbox_pair **ret, size_t *ret_n,
               struct brig_err *err) MUST_CHECK;

/* ---- spec.c -------------------------------------------------------------------------------------------- */
/* stored: from the store, judged when it was asked for; its template may be gone by now. */
int spec_parse(const struct json_value *json, const struct config *config, const struct caller *caller, bool stored, struct sbox_spec *ret,
               struct brig_err *err) MUST_CHECK;
/* The template's place: *ret_rootfs "" is the host's. */
int spec_template(const char *name, const struct config *config, bool admin, char *ret_rootfs, size_t size, char *note, size_t note_size,
                  struct brig_err *err) MUST_CHECK;

/* ---- quota.c ------------------------------------------------------------------------------------------- */
/* The order of manager.h. NULL sbox: a new one. */
int quota_check(struct manager *manager, const struct caller *caller, const struct sbox_spec *spec, struct brig_err *err) MUST_CHECK;
int quota_load(struct manager *manager, struct brig_err *err) MUST_CHECK;
void quota_done(struct manager *manager);

/* ---- idempotency.c ------------------------------------------------------------------------------------- */
/*
 * 1: this key answers (done was taken over), 0: it is new (*ret_idem has it, to be settled), or an error.
 */
int idem_begin(struct manager *manager, const struct caller *caller, const char *key, const uint8_t fingerprint[32], sbox_done_fn *done, void *ctx,
               struct idem **ret, struct brig_err *err) MUST_CHECK;
int idem_write(struct manager *manager, struct idem *idem, struct sbox *sbox, store_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
/* The create is over: sbox, or NULL with err. Waiters are told; a failed one is forgotten. */
void idem_settle(struct manager *manager, struct idem *idem, struct sbox *sbox, const struct brig_err *err);
int idem_load(struct manager *manager, struct brig_err *err) MUST_CHECK;
void idem_expire(struct manager *manager, int64_t before_ns);
void idem_done(struct manager *manager);

/* ---- create.c ------------------------------------------------------------------------------------------ */
int create_box(struct sbox *sbox, struct brig_err *err) MUST_CHECK; /* asks the provider; also of a recreation */
void create_ended(struct sbox *sbox);                               /* the box ended before the create was over */
int sbox_connect(struct sbox *sbox, int fd, struct brig_err *err) MUST_CHECK; /* a link over the stream */

/* ---- death.c ------------------------------------------------------------------------------------------- */
void sbox_box_ended(void *ctx, const struct box_end *end);
void sbox_link_gone(void *ctx, const struct brig_err *why);
void sbox_stop(struct sbox *sbox, const struct caller *caller, const char *why, const char *by); /* state is STOPPING already */
void sbox_linger(struct sbox *sbox); /* a while for its link to say that it is gone; then sbox_forget() again */
void sbox_finish(struct sbox *sbox);                                                             /* the certificate, then forgotten */
int sbox_park_later(struct sbox *sbox) MUST_CHECK;
void sbox_tell_watches(struct sbox *sbox);
void sbox_unpin(struct sbox *sbox); /* of priv->pins; may free it */

/* ---- lifecycle.c --------------------------------------------------------------------------------------- */
int sbox_pause_by(struct sbox *sbox, const struct caller *caller, bool by_timeout, sbox_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
void sbox_drop_updates(struct sbox *sbox);
void sbox_fail_tickets(struct sbox *sbox);
void sbox_fail_change(struct sbox *sbox, const struct brig_err *err);

/* ---- idle.c -------------------------------------------------------------------------------------------- */
void idle_arm(struct sbox *sbox);
void idle_start(struct manager *manager);
bool sbox_is_idle(const struct sbox *sbox, uint64_t now);

/* ---- certificate.c ------------------------------------------------------------------------------------- */
/* Writes the certificate and takes the sandbox's row away; done when committed. */
int certificate_write(struct sbox *sbox, store_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
/* Of a row whose sandbox is not there any more. */
int certificate_write_gone(struct manager *manager, const struct store_sandbox *row, const char *detail, struct brig_err *err) MUST_CHECK;
/* A certificate that could not be written is kept, and tried again. */
void certificate_keep(struct sbox *sbox);
void certificates_done(struct manager *manager);

/* ---- events.c ------------------------------------------------------------------------------------------ */
void sandbox_event(struct sbox *sbox, const char *type, const char *detail);
void events_done(struct manager *manager);

/* ---- json.c, row.c ------------------------------------------------------------------------------------- */
void json_pairs(struct json *json, const struct sbox_pair *pairs, size_t n);
void json_spec(struct json *json, const struct sbox_spec *spec, bool values); /* members, into an open object */
int row_write(struct sbox *sbox, store_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
int row_read(struct manager *manager, const struct store_sandbox *row, struct sbox *sbox, struct brig_err *err) MUST_CHECK;

/* ---- recover.c ----------------------------------------------------------------------------------------- */
int recover_start(struct manager *manager, struct brig_err *err) MUST_CHECK;
void recover_sbox_settled(struct sbox *sbox); /* it has been listed, or will never be */
void recover_done(struct manager *manager);
void recover_late(struct manager *manager);   /* those that have not answered yet are ended */
int recover_attach(struct sbox *sbox, void (*done)(struct sbox *sbox, const struct brig_err *err), struct brig_err *err) MUST_CHECK;

#endif
