/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store's life: opened with its schema brought up to date and the lock of the only writer taken, then the thread;
 * closed after everything that was queued. Callbacks come through an eventfd on the loop: unlike a posted job it needs
 * no memory and can be taken back when the store goes.
 */
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/store_private.h"

static const struct {
    const char *scheme;
    const struct store_ops *ops;
} back_ends[] = {
    {"sqlite:", &store_sqlite_ops},
    {"postgresql://", &store_pg_ops},
    {"postgres://", &store_pg_ops},
};

const struct store_ops *store_ops_for(const char *url)
{
    for (size_t i = 0; i < ARRAY_SIZE(back_ends); i++)
        if (str_starts(url, back_ends[i].scheme))
            return back_ends[i].ops;
    return NULL;
}

/*
 * Calls those whose write is through, as many as there were at the beginning (whoever comes later wakes us again), one
 * at a time: a callback may queue more, and may run the loop inside itself.
 */
static void deliver(struct store *store)
{
    pthread_mutex_lock(&store->lock);
    for (unsigned n = store->n_finished; n > 0 && store->finished.first; n--) {
        struct write *write = write_list_take(&store->finished);
        store->n_finished--;
        pthread_mutex_unlock(&store->lock);
        write->done(write->ctx, write->err.code == BRIG_E_NONE ? NULL : &write->err);
        mem_free(write);
        pthread_mutex_lock(&store->lock);
    }
    pthread_mutex_unlock(&store->lock);
}

static void on_wake(struct loop_source *source, uint32_t events UNUSED)
{
    struct store *store = source->ctx;
    eventfd_t count;

    eventfd_read(store->wake_fd, &count);
    deliver(store);
}

static int init_locks(struct store *store, struct brig_err *err)
{
    pthread_condattr_t attr;
    int r = pthread_condattr_init(&attr);

    if (r == 0)
        r = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (r == 0)
        r = pthread_cond_init(&store->work, &attr);
    if (r == 0)
        r = pthread_cond_init(&store->readers_changed, NULL);
    if (r == 0)
        r = pthread_mutex_init(&store->lock, NULL);
    return r ? err_set(err, BRIG_E_HOST, r, "store: locks") : 0;
}

static int start_writer(struct store *store, struct brig_err *err)
{
    sigset_t all, old;
    int r;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the loop's */
    r = pthread_create(&store->writer, NULL, writer_main, store);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (r)
        return err_set(err, BRIG_E_HOST, r, "store: thread");
    store->writer_runs = true;
    return 0;
}

static int set_up(struct store *store, const char *url, struct brig_err *err)
{
    int r;

    store->url = mem_strdup(url);
    if (!store->url)
        return err_nomem(err);
    store->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (store->wake_fd < 0)
        return err_host(err, "eventfd");
    r = store->ops->open(url, true, &store->conn, err);
    if (r == 0)
        r = store_migrate(store->ops, store->conn, err);
    if (r == 0)
        r = loop_add(store->loop, &store->wake, store->wake_fd, EPOLLIN, err);
    return r < 0 ? r : start_writer(store, err);
}

int store_open(struct loop *loop, struct workers *workers, const char *url, struct store **ret, struct brig_err *err)
{
    const struct store_ops *ops = store_ops_for(url);

    if (!ops) /* not the URL: it may hold a password */
        return err_usage(err, "database: the URL must start with sqlite:/ or postgresql://");
    struct store *store = mem_zalloc(sizeof *store);
    if (!store)
        return err_nomem(err);
    store->loop = loop;
    store->workers = workers;
    store->ops = ops;
    store->wake_fd = -1;
    store->wake = (struct loop_source){.fd = -1, .fn = on_wake, .ctx = store};
    store->health.ok = true;
    write_list_init(&store->queue);
    write_list_init(&store->finished);
    int r = init_locks(store, err);
    if (r < 0) {
        mem_free(store);
        return r;
    }
    r = set_up(store, url, err);
    if (r < 0)
        return store_close(store), r;
    *ret = store;
    return 0;
}

void store_close(struct store *store)
{
    if (!store)
        return;
    pthread_mutex_lock(&store->lock);
    store->stopping = true;
    pthread_cond_signal(&store->work);
    pthread_cond_broadcast(&store->readers_changed);
    pthread_mutex_unlock(&store->lock);
    if (store->writer_runs)
        pthread_join(store->writer, NULL);
    deliver(store);
    pthread_mutex_lock(&store->lock);
    while (store->reads > 0) /* they use our connections, but their callbacks need nothing of ours */
        pthread_cond_wait(&store->readers_changed, &store->lock);
    pthread_mutex_unlock(&store->lock);
    loop_remove(store->loop, &store->wake);
    base_close_fd(&store->wake_fd);
    for (size_t i = 0; i < STORE_READERS; i++)
        store->ops->close(store->readers[i]);
    store->ops->close(store->conn); /* last: SQLite's last connection tidies the log away */
    pthread_mutex_destroy(&store->lock);
    pthread_cond_destroy(&store->work);
    pthread_cond_destroy(&store->readers_changed);
    mem_free(store->url);
    mem_free(store);
}

void store_health(const struct store *store, struct store_health *ret)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&store->lock;

    pthread_mutex_lock(lock);
    *ret = store->health;
    ret->queued = store->queued;
    pthread_mutex_unlock(lock);
}
