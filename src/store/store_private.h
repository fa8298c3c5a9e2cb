/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_private.h: the store's own insides, shared by store.c (life), store_write.c (what is asked for), store_writer.c
 * (the thread that does it), store_prune.c (writes of many steps), store_read.c and store_find.c.
 *
 *   loop's thread:  store_put_...()  --> queue --> writer thread: BEGIN, apply..., COMMIT --> finished --> eventfd
 *                                                                                                      --> done()
 *                   store_find_...() --> worker pool, with one of two reading connections --> done()
 */
#ifndef BRIG_STORE_STORE_PRIVATE_H
#define BRIG_STORE_STORE_PRIVATE_H

#include <pthread.h>

#include "store/store.h"
#include "store/store_ops.h"

#define STORE_READERS 2u
#define STORE_GROUP_MAX 512u           /* writes in one transaction */
#define STORE_GROUP_BYTES (4u << 20)   /* and about as many bytes */
#define STORE_QUEUE_BYTES (256u << 20) /* in all that waits; past it -EAGAIN as well */
#define STORE_PRUNE_BATCH 256u

enum write_kind {
    WRITE_PUT_ORG,
    WRITE_DELETE_ORG,
    WRITE_PUT_KEY,
    WRITE_FORGET_KEYS,
    WRITE_PUT_SANDBOX,
    WRITE_END_SANDBOX,
    WRITE_PUT_RUN,
    WRITE_PUT_IDEMPOTENCY,
    WRITE_PUT_OBJECT,
    WRITE_DELETE_OBJECT,
    WRITE_PUT_AUDIT_HEAD,
    WRITE_PRUNE,
    WRITE_CLOSE_RUNS,
    WRITE_NOTHING,
    WRITE_KIND_MAX
};

struct write {
    struct write *next;
    enum write_kind kind;
    store_done_fn *done; /* NULL: nobody waits, so it may wait for company, and outlives a failure (store_writer.c) */
    void *ctx;
    uint64_t queued_at_ns;
    size_t bytes;        /* of this allocation */
    bool patient;        /* It may wait for company although somebody waits for it. */
    bool again;          /* prune: there is more to do */
    bool own;            /* prune: the writer's, prune_if_over() */
    struct brig_err err; /* the outcome; code BRIG_E_NONE: committed */
    size_t n;
    struct store_value values[STORE_COLS_MAX]; /* parameters, pointing into data */
    char data[];
};

struct write_list {
    struct write *first, **last;
};

struct store {
    struct loop *loop;
    struct workers *workers;
    const struct store_ops *ops;
    char *url;
    int wake_fd; /* eventfd: something is in finished */
    struct loop_source wake;
    pthread_t writer;
    bool writer_runs;

    pthread_mutex_t lock; /* over what follows, up to the next empty line */
    pthread_cond_t work, readers_changed;
    struct write_list queue, finished;
    unsigned queued, urgent; /* in the queue; of these with done, and not patient */
    unsigned n_finished;
    size_t queued_bytes;
    bool stopping;
    struct store_health health; /* but for queued */
    struct store_conn *readers[STORE_READERS];
    bool reader_busy[STORE_READERS];
    unsigned reads; /* asked for and not worked off */

    /* the writer thread's alone once it runs */
    struct store_conn *conn; /* NULL: to be opened */
    uint64_t retry_at_ns;    /* after a failure: not before, unless somebody waits */
    unsigned retry_ms;
    uint64_t connect_at_ns; /* the server was not there: not before; until then its failure is repeated */
    struct brig_err connect_err;
    int connect_failed;
    bool doc_bytes_known;
    uint64_t doc_bytes;  /* of runs and certificates: at most this */
    uint64_t keep_bytes; /* what the last pruning was asked for; 0: as many as come, or none yet */
    int64_t keep_since_ns, keep_keys_since_ns;
    bool pruning; /* the writer has asked for one itself */
};

/* store_write.c: runs the statements of one write inside the transaction. */
int write_apply(struct store *store, struct write *write, struct brig_err *err) MUST_CHECK;
/* store_prune.c */
int write_prune(struct store *store, struct write *write, struct brig_err *err) MUST_CHECK;
int write_close_runs(struct store *store, struct write *write, struct brig_err *err) MUST_CHECK;

/* store_writer.c */
/* takes it over on success */
int writer_add(struct store *store, struct write *write, struct brig_err *err) MUST_CHECK;
void *writer_main(void *store);
void write_list_init(struct write_list *list);
struct write *write_list_take(struct write_list *list); /* the first, or NULL */

const struct store_ops *store_ops_for(const char *url); /* store.c; NULL: no such data base */

/* store_read.c: calls fn with one of the reading connections, and once more, after reset(), if that one was lost. */
typedef int read_fn(const struct store_ops *ops, struct store_conn *conn, void *ctx, struct brig_err *err);
int with_reader(struct store *store, read_fn *fn, void (*reset)(void *ctx), void *ctx, struct brig_err *err) MUST_CHECK;

/* store_doc.c: the document of a run that nobody will end, with an outcome and an end. */
int store_doc_close(const char *doc, const char *cause, int64_t ended_at_ns, struct buf *out) MUST_CHECK;

#endif
