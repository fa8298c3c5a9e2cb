/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation: the writer thread
 *
 * Groups. Whoever waits for an answer (done) is not kept waiting: if the thread is idle, what is in the queue is
 * committed at once, and all that arrives meanwhile is the next group. Under load the groups grow by themselves, and a
 * commit, which costs as much for a hundred rows as for one, is shared. Only writes that nobody waits for (receipts),
 * and those of patient callers (steps of a build, which only save work), are held back, at most STORE_GROUP_MS, and not
 * when somebody else's write goes anyway. Order is the queue's order, always.
 *
 * Failures. One bad row (a key that exists, an unknown organisation) must not fail its neighbours: the group is rolled
 * back and each write gets a transaction of its own. When the place failed (no space, no server), everybody of the
 * group who waits is told the same error; writes that nobody waits for stay at the head of the queue and are tried
 * again with growing pauses, or sooner when a new write comes. The queue is bounded, so this cannot grow without end.
 * After such a failure the thread probes the data base by itself, so that health.ok comes back without anybody writing.
 *
 * A lost connection is opened again at once and the group run again: every write is an upsert or a delete, so it does
 * not matter whether the first COMMIT had reached the server. If the server is not there, it is not looked for again
 * before a pause is over, and those who wait are told so without delay.
 */
#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/store_private.h"

#define RETRY_FIRST_MS 250u
#define RETRY_MAX_MS 5000u
#define PROBE_MS 1000u

/* ---- the queue ---------------------------------------------------------------------------------------- */

void write_list_init(struct write_list *list)
{
    list->first = NULL;
    list->last = &list->first;
}

static void list_add(struct write_list *list, struct write *write)
{
    write->next = NULL;
    *list->last = write;
    list->last = &write->next;
}

struct write *write_list_take(struct write_list *list)
{
    struct write *write = list->first;

    if (write && !(list->first = write->next))
        list->last = &list->first;
    return write;
}

static bool is_urgent(const struct write *write)
{
    return write->done && !write->patient;
}

/* With the lock held. */
static void count_in(struct store *store, const struct write *write)
{
    store->queued++;
    store->urgent += is_urgent(write);
    store->queued_bytes += write->bytes;
}

static void count_out(struct store *store, const struct write *write)
{
    store->queued--;
    store->urgent -= is_urgent(write);
    store->queued_bytes -= write->bytes;
}

int writer_add(struct store *store, struct write *write, struct brig_err *err)
{
    int r = 0;

    pthread_mutex_lock(&store->lock);
    if (store->stopping)
        r = err_set(err, BRIG_E_BUSY, 0, "the store is closing");
    else if (store->queued >= STORE_QUEUE_MAX || store->queued_bytes > STORE_QUEUE_BYTES - write->bytes)
        r = err_set(err, BRIG_E_LIMIT, EAGAIN, "%u writes wait for the database%s%.150s", store->queued,
                    store->health.ok ? "" : "; ", store->health.ok ? "" : store->health.last_error);
    if (r == 0) {
        list_add(&store->queue, write);
        count_in(store, write);
        pthread_cond_signal(&store->work);
    }
    pthread_mutex_unlock(&store->lock);
    return r;
}

/* The writes of one transaction, from the head of the queue. */
static unsigned take_group(struct store *store, struct write_list *group)
{
    size_t bytes = 0;
    unsigned n = 0;

    write_list_init(group);
    while (store->queue.first && n < STORE_GROUP_MAX &&
           (n == 0 || bytes + store->queue.first->bytes <= STORE_GROUP_BYTES)) {
        struct write *write = write_list_take(&store->queue);
        count_out(store, write);
        bytes += write->bytes;
        list_add(group, write);
        n++;
    }
    return n;
}

/* ---- transactions ------------------------------------------------------------------------------------- */

/* With the lock held. */
static void note_error(struct store *store, const struct brig_err *err)
{
    _Static_assert(sizeof store->health.last_error >= sizeof err->message, "a message fits");
    memcpy(store->health.last_error, err->message, sizeof err->message);
}

static int connect_again(struct store *store, struct brig_err *err)
{
    uint64_t now = clock_mono_ns();

    if (store->conn && !store->conn->lost)
        return 0;
    store->ops->close(store->conn);
    store->conn = NULL;
    if (now < store->connect_at_ns) {
        *err = store->connect_err;
        return store->connect_failed;
    }
    int r = store->ops->open(store->url, true, &store->conn, err);
    if (r < 0) {
        store->connect_at_ns = clock_mono_ns() + PROBE_MS * NS_PER_MS;
        store->connect_err = *err;
        store->connect_failed = r;
    }
    return r;
}

/* All writes from `first` on, n of them, in one transaction. */
static int transact(struct store *store, struct write *first, unsigned n, struct brig_err *err)
{
    const uint64_t doc_bytes = store->doc_bytes;
    const bool known = store->doc_bytes_known;
    int r = connect_again(store, err);

    if (r == 0)
        r = store->ops->script(store->conn, store->ops->begin, err);
    if (r == 0) {
        struct write *write = first;
        for (unsigned i = 0; r == 0 && i < n; i++, write = write->next) {
            write->again = false;
            r = write_apply(store, write, err);
        }
        if (r == 0)
            r = store->ops->commit(store->conn, err);
        if (r < 0)
            store->ops->rollback(store->conn);
    }
    if (r < 0) { /* what was added may have been committed after all: too much does no harm, too little would */
        store->doc_bytes = store->doc_bytes > doc_bytes ? store->doc_bytes : doc_bytes;
        store->doc_bytes_known = known;
    }
    return r;
}

static int transact_and_count(struct store *store, struct write *first, unsigned n, struct brig_err *err)
{
    const bool was_connected = store->conn && !store->conn->lost;
    int r = transact(store, first, n, err);

    if (r < 0 && was_connected && store->conn && store->conn->lost && !store_err_is_of_row(err))
        r = transact(store, first, n, err);
    pthread_mutex_lock(&store->lock);
    if (r == 0) {
        store->health.commits++;
        store->health.ok = true;
        store->retry_ms = 0;
    } else if (!store_err_is_of_row(err)) {
        store->health.failures++;
        store->health.ok = false;
        store->retry_ms = store->retry_ms == 0                 ? RETRY_FIRST_MS
                          : store->retry_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS
                                                               : store->retry_ms * 2;
        store->retry_at_ns = clock_mono_ns() + store->retry_ms * NS_PER_MS;
        note_error(store, err);
    }
    pthread_mutex_unlock(&store->lock);
    return r;
}

static void run_group(struct store *store, struct write *first, unsigned n)
{
    struct brig_err err = {0};
    int r = transact_and_count(store, first, n, &err);

    if (r < 0 && n > 1 && store_err_is_of_row(&err)) {
        for (struct write *write = first; write; write = write->next) {
            r = transact_and_count(store, write, 1, &err);
            write->err = r < 0 ? err : (struct brig_err){0};
        }
        return;
    }
    for (struct write *write = first; write; write = write->next)
        write->err = r < 0 ? err : (struct brig_err){0};
}

/* ---- afterwards --------------------------------------------------------------------------------------- */

/* With the lock held. Back to the head, in their order. */
static void put_back(struct store *store, struct write_list *kept)
{
    if (!kept->first)
        return;
    for (struct write *write = kept->first; write; write = write->next)
        count_in(store, write);
    *kept->last = store->queue.first;
    if (!store->queue.first)
        store->queue.last = kept->last;
    store->queue.first = kept->first;
}

/* With the lock held. */
static void finish_group(struct store *store, struct write_list *group)
{
    struct write_list kept;
    struct write *write;
    bool wake = false;

    write_list_init(&kept);
    while ((write = write_list_take(group))) {
        const bool failed = write->err.code != BRIG_E_NONE;
        if (!failed && write->again && !store->stopping) {
            list_add(&store->queue, write);
            count_in(store, write);
        } else if (failed && !write->done && !store_err_is_of_row(&write->err) && !store->stopping) {
            list_add(&kept, write);
        } else if (!write->done) {
            store->pruning = store->pruning && !write->own;
            mem_free(write);
        } else {
            list_add(&store->finished, write);
            store->n_finished++;
            wake = true;
        }
    }
    put_back(store, &kept);
    if (wake) /* fails only when the counter is full, and then it is readable */
        eventfd_write(store->wake_fd, 1);
}

/*
 * With the lock held. Pruning is asked for by the clock; who writes much could fill the disk until then. So once there
 * is an eighth more than may be kept, the writer asks for it itself.
 */
static void prune_if_over(struct store *store)
{
    const struct store_value values[] = {{.type = STORE_INT, .number = store->keep_since_ns},
                                         {.type = STORE_INT, .number = (int64_t)store->keep_bytes},
                                         {.type = STORE_INT, .number = store->keep_keys_since_ns}};

    if (store->keep_bytes == 0 || store->pruning || store->stopping ||
        store->doc_bytes <= store->keep_bytes + store->keep_bytes / 8)
        return;
    struct write *write = mem_alloc(sizeof *write);
    if (!write)
        return; /* the clock's comes */
    *write = (struct write){.kind = WRITE_PRUNE,
                            .queued_at_ns = clock_mono_ns(),
                            .bytes = sizeof *write,
                            .own = true,
                            .n = ARRAY_SIZE(values)};
    memcpy(write->values, values, sizeof values);
    store->pruning = true;
    list_add(&store->queue, write);
    count_in(store, write);
}

/* ---- the thread --------------------------------------------------------------------------------------- */

/* When the thread should look again although nobody calls it; UINT64_MAX: never. With the lock held. */
static uint64_t next_look(const struct store *store, uint64_t now)
{
    if (store->queue.first) {
        if (store->stopping || store->urgent > 0)
            return now;
        uint64_t due =
            store->queued >= STORE_GROUP_MAX ? now : store->queue.first->queued_at_ns + STORE_GROUP_MS * NS_PER_MS;
        return !store->health.ok && due < store->retry_at_ns ? store->retry_at_ns : due;
    }
    if (store->stopping)
        return now;
    if (!store->health.ok)
        return now + PROBE_MS * NS_PER_MS;
    return store->ops->ping_ms ? now + store->ops->ping_ms * NS_PER_MS : UINT64_MAX;
}

/* With the lock held. Waits until there is a group to write (true) or the data base should be looked after (false). */
static bool wait_for_work(struct store *store)
{
    uint64_t idle_until = 0;

    for (;;) {
        uint64_t now = clock_mono_ns(), at = next_look(store, now);
        if (store->queue.first || store->stopping) {
            idle_until = 0;
            if (at <= now)
                return true;
        } else if (idle_until == 0) {
            idle_until = at;
        } else {
            at = idle_until;
            if (at <= now)
                return false;
        }
        if (at == UINT64_MAX) {
            pthread_cond_wait(&store->work, &store->lock);
        } else {
            const struct timespec until = {.tv_sec = (time_t)(at / NS_PER_SEC), .tv_nsec = (long)(at % NS_PER_SEC)};
            pthread_cond_timedwait(&store->work, &store->lock, &until);
        }
    }
}

/* Nobody writes: is the data base there? A failed one is asked to write, since that is what failed. */
static void look_after(struct store *store)
{
    struct brig_err err = {0};
    bool ok;

    pthread_mutex_lock(&store->lock);
    ok = store->health.ok;
    pthread_mutex_unlock(&store->lock);
    int r = connect_again(store, &err);
    if (r == 0)
        r = store->ops->script(store->conn, ok ? "SELECT 1" : store->ops->begin, &err);
    if (r == 0 && !ok) {
        r = store->ops->run(store->conn, SQL_PROBE, NULL, 0, NULL, NULL, &err);
        if (r == 0)
            r = store->ops->commit(store->conn, &err);
        if (r < 0)
            store->ops->rollback(store->conn);
    }
    if (r < 0 && ok && store->conn && store->conn->lost) {
        err = (struct brig_err){0};
        r = connect_again(store, &err);
    }
    pthread_mutex_lock(&store->lock);
    store->health.ok = r == 0;
    if (r < 0)
        note_error(store, &err);
    pthread_mutex_unlock(&store->lock);
}

void *writer_main(void *arg)
{
    struct store *store = arg;
    struct write_list group;

    pthread_mutex_lock(&store->lock);
    while (!store->stopping || store->queue.first) {
        bool work = wait_for_work(store);
        unsigned n = work ? take_group(store, &group) : 0;
        if (work && n == 0)
            continue;
        pthread_mutex_unlock(&store->lock);
        if (work)
            run_group(store, group.first, n);
        else
            look_after(store);
        pthread_mutex_lock(&store->lock);
        if (work) {
            finish_group(store, &group);
            prune_if_over(store);
        }
    }
    pthread_mutex_unlock(&store->lock);
    return NULL;
}
