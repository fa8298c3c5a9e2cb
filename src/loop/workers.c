/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workers.c: the pool of threads. One lock protects two lists: the jobs that wait for a thread, and what waits for the
 * loop (finished jobs and posted calls, in the order in which they came). An eventfd wakes the loop; it is written only
 * when the second list was empty, so a burst costs one write.
 *
 * In its turn the loop handles as many entries as there were when the turn began, and takes them one at a time. So a
 * callback that posts again does not starve the loop, and a callback that runs the loop inside itself does not hide the
 * others.
 *
 * The jobs that wait are ordered by their turns. The first job of an owner has the next turn, and each further one the
 * turn after that of the one before. So a job waits for one job of each other owner, however many they have.
 */
#include "loop/workers.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

#define WORKERS_MAX 64u

struct list {
    struct job *first, **end;
    size_t n;
};

struct post {
    struct job job; /* first; its done() is run_post() */
    void (*fn)(void *ctx);
    void *ctx;
};

struct workers {
    struct loop *loop;
    struct loop_source source;
    pthread_mutex_t lock;
    pthread_cond_t wanted;
    struct list waiting, finished;
    uint64_t turn; /* of the job that was started last */
    bool stopping;
    int event_fd;
    unsigned n_threads;
    pthread_t threads[WORKERS_MAX];
};

static void list_add(struct list *list, struct job *job)
{
    job->next = NULL;
    if (!list->first)
        list->end = &list->first;
    *list->end = job;
    list->end = &job->next;
    list->n++;
}

static struct job *list_take(struct list *list)
{
    struct job *job = list->first;

    if (job) {
        list->first = job->next;
        list->n--;
    }
    return job;
}

/* The place of a job among those that wait: behind all of its turn. */
static struct job **place_of(struct list *list, const struct job *job)
{
    struct job **at = &list->first;

    while (*at && (*at)->turn <= job->turn)
        at = &(*at)->next;
    return at;
}

static void wake_loop(struct workers *workers)
{
    /* EAGAIN means that the counter is full, which wakes the loop as well. */
    ssize_t n = write(workers->event_fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)n;
}

/* With the lock held. */
static void finish(struct workers *workers, struct job *job)
{
    list_add(&workers->finished, job);
    if (workers->finished.n == 1)
        wake_loop(workers);
}

static void *worker_main(void *arg)
{
    struct workers *workers = arg;

    pthread_mutex_lock(&workers->lock);
    for (;;) {
        struct job *job = list_take(&workers->waiting);
        if (job) {
            workers->turn = job->turn;
            pthread_mutex_unlock(&workers->lock);
            job->work(job);
            pthread_mutex_lock(&workers->lock);
            finish(workers, job);
        } else if (workers->stopping) {
            break;
        } else {
            pthread_cond_wait(&workers->wanted, &workers->lock);
        }
    }
    pthread_mutex_unlock(&workers->lock);
    return NULL;
}

static struct job *take_finished(struct workers *workers)
{
    pthread_mutex_lock(&workers->lock);
    struct job *job = list_take(&workers->finished);
    pthread_mutex_unlock(&workers->lock);
    return job;
}

static void on_event(struct loop_source *source, UNUSED uint32_t events)
{
    struct workers *workers = source->ctx;
    uint64_t count;
    struct job *job;

    pthread_mutex_lock(&workers->lock);
    ssize_t n = read(workers->event_fd, &count, sizeof(count));
    (void)n; /* EAGAIN: a round inside a callback was faster */
    size_t left = workers->finished.n;
    pthread_mutex_unlock(&workers->lock);

    for (; left > 0 && (job = take_finished(workers)); left--)
        job->done(job);

    pthread_mutex_lock(&workers->lock);
    if (workers->finished.n > 0)
        wake_loop(workers);
    pthread_mutex_unlock(&workers->lock);
}

/* Signals belong to the loop's thread: it has the handlers or the signalfd. */
static int start_threads(struct workers *workers, unsigned threads)
{
    sigset_t all, before;
    int r = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (r == 0 && workers->n_threads < threads) {
        r = pthread_create(&workers->threads[workers->n_threads], NULL, worker_main, workers);
        if (r == 0)
            pthread_setname_np(workers->threads[workers->n_threads++], "brig-worker");
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -r;
}

int workers_create(struct loop *loop, unsigned threads, struct workers **ret, struct brig_err *err)
{
    if (threads == 0 || threads > WORKERS_MAX)
        return err_usage(err, "%u worker threads: 1 to %u are possible", threads, WORKERS_MAX);
    struct workers *workers = mem_zalloc(sizeof(*workers));
    if (!workers)
        return err_nomem(err);
    workers->loop = loop;
    workers->source.fn = on_event;
    workers->source.ctx = workers;
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->wanted, NULL);

    int r = 0;
    workers->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (workers->event_fd < 0)
        r = err_host(err, "eventfd");
    else
        r = loop_add(loop, &workers->source, workers->event_fd, EPOLLIN, err);
    if (r == 0) {
        r = start_threads(workers, threads);
        if (r < 0)
            err_set(err, BRIG_E_HOST, -r, "start a worker thread");
    }
    if (r < 0) {
        workers_destroy(workers);
        return r;
    }
    *ret = workers;
    return 0;
}

void workers_destroy(struct workers *workers)
{
    struct job *job;

    if (!workers)
        return;
    pthread_mutex_lock(&workers->lock);
    workers->stopping = true;
    pthread_cond_broadcast(&workers->wanted);
    pthread_mutex_unlock(&workers->lock);
    for (unsigned i = 0; i < workers->n_threads; i++)
        pthread_join(workers->threads[i], NULL);

    /* What a done() adds now has no thread any more: it is worked off here. */
    for (;;) {
        job = take_finished(workers);
        if (!job) {
            job = list_take(&workers->waiting);
            if (!job)
                break;
            job->work(job);
        }
        job->done(job);
    }
    loop_remove(workers->loop, &workers->source);
    base_close_fd(&workers->event_fd);
    pthread_cond_destroy(&workers->wanted);
    pthread_mutex_destroy(&workers->lock);
    mem_free(workers);
}

static int add(struct workers *workers, uint64_t owner, struct job *job, size_t max)
{
    struct list *list = &workers->waiting;
    size_t n = 0;

    pthread_mutex_lock(&workers->lock);
    job->owner = owner;
    job->turn = workers->turn + 1;
    for (const struct job *other = list->first; owner && other; other = other->next)
        if (other->owner == owner) {
            job->turn = other->turn + 1; /* the last of them has the latest */
            n++;
        }
    if (n < max) {
        struct job **at = place_of(list, job);
        job->next = *at;
        if (!*at)
            list->end = &job->next;
        *at = job;
        list->n++;
        pthread_cond_signal(&workers->wanted);
    }
    pthread_mutex_unlock(&workers->lock);
    return n < max ? 0 : -EAGAIN;
}

int workers_add_for(struct workers *workers, uint64_t owner, struct job *job)
{
    return add(workers, owner, job, WORKERS_WAITING);
}

void workers_add_bounded(struct workers *workers, uint64_t owner, struct job *job)
{
    (void)!add(workers, owner, job, SIZE_MAX);
}

void workers_add(struct workers *workers, struct job *job)
{
    (void)!add(workers, 0, job, SIZE_MAX);
}

uint64_t workers_owner(const char *org_id)
{
    return *org_id ? str_hash(org_id, NULL) + UINT64_C(1) : 0;
}

static void run_post(struct job *job)
{
    struct post *post = (struct post *)job;
    void (*fn)(void *ctx) = post->fn;
    void *ctx = post->ctx;

    mem_free(post);
    fn(ctx);
}

int workers_post(struct workers *workers, void (*fn)(void *ctx), void *ctx)
{
    struct post *post = mem_alloc(sizeof(*post));

    if (!post)
        return -ENOMEM;
    *post = (struct post){.job = {.done = run_post}, .fn = fn, .ctx = ctx};
    pthread_mutex_lock(&workers->lock);
    finish(workers, &post->job);
    pthread_mutex_unlock(&workers->lock);
    return 0;
}
