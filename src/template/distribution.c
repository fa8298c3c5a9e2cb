/* SPDX-License-Identifier: Apache-2.0 */
/*
 * distribution.c: the loop's side of the registry client: options, calls, and who waits for which fetch.
 *
 * A fetch is in the list from its first call until its thread is done with it; only then is it freed. If its last call
 * is cancelled, the thread is told to stop. A call for the same blob may join it still: when the thread has stopped,
 * the fetch starts again for the calls that it has. The origin moves from a call to the fetch that it leads; when the
 * fetch fails, the calls of an equal origin are told, and the others get a start of their own.
 *
 * A server can take as long as it likes for an answer, so threads and calls are shared among owners as base/share.h
 * says: one owner alone has half of them, and something is always left for another. A fetch waits in the list until its
 * owner's share has a thread for it; the oldest one of the owner with the fewest threads is next.
 */
#include "template/distribution.h"

#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/share.h"
#include "base/str.h"
#include "crypto/keyring.h"
#include "template/distribution_priv.h"

#define CALLS_MAX 1024u
#define SMALL_THREADS 8u
#define BLOBS_AT_ONCE 4u /* of one owner that is alone: half of the threads */
#define TICK_NS (100 * NS_PER_MS)

struct dist_call {
    struct dist_call *next, *prev;
    struct dist_call **list; /* the one that it is in */
    struct dist *dist;
    struct dist_fetch *fetch;   /* NULL: it is about to be told */
    struct dist_origin *origin; /* NULL: it went to the fetch */
    bool led;                   /* the fetch is at its origin */
    void (*image_done)(void *ctx, struct dist_image *image, const struct brig_err *err);
    void (*done)(void *ctx, const struct brig_err *err);
    void (*progress)(void *ctx, uint64_t at, uint64_t of);
    void *ctx;
    uint64_t size; /* of its blob */
    uint64_t told_at;
    struct dist_image *image;
    bool failed;
    struct brig_err err;
};

/* ---- calls ------------------------------------------------------------------------------------------------ */

static void call_move(struct dist_call *call, struct dist_call **list)
{
    if (call->list)
        list_remove(call->list, call);
    call->list = list;
    if (list)
        list_push(list, call);
}

static void call_free(struct dist_call *call)
{
    call_move(call, NULL);
    call->dist->n_calls--;
    dist_origin_free(call->origin);
    dist_image_free(call->image);
    mem_free(call);
}

/* Nobody else has the finished ones: each is told by whoever takes it out. */
static void tell_finished(struct dist *dist)
{
    for (struct dist_call *call; (call = dist->finished);) {
        const struct dist_call told = *call;
        call->image = NULL;
        call_free(call);
        if (told.image_done)
            told.image_done(told.ctx, told.image, told.failed ? &told.err : NULL);
        else
            told.done(told.ctx, told.failed ? &told.err : NULL);
    }
}

static const char *owner_of(const struct dist_ask *ask)
{
    return ask->owner ? ask->owner : "";
}

static bool owner_ok(const char *owner)
{
    size_t len = strlen(owner);

    return len < DIST_OWNER && strspn(owner, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == len;
}

/* The calls of an owner that wait for an answer. */
static size_t calls_of(const struct dist *dist, const char *owner)
{
    size_t n = 0;

    for (const struct dist_fetch *fetch = dist->fetches; fetch; fetch = fetch->next)
        for (const struct dist_call *call = str_eq(fetch->owner, owner) ? fetch->calls : NULL; call; call = call->next)
            n++;
    return n;
}

static int call_make(struct dist *dist, const struct dist_ask *ask, const struct image_ref *ref, void *ctx,
                     struct dist_call **ret, struct brig_err *err)
{
    if (dist->off)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "[templates] registries = false: no registry is asked");
    if (!owner_ok(owner_of(ask)))
        return err_usage(err, "\"%.80s\" cannot own a call to a registry", owner_of(ask));
    if (!share_allows(calls_of(dist, owner_of(ask)), CALLS_MAX - dist->n_calls, 1))
        return err_set(err, BRIG_E_LIMIT, 0, "the organisation has its share of the %u calls that wait for registries",
                       CALLS_MAX);
    struct dist_call *call = mem_zalloc(sizeof *call);
    if (!call)
        return err_nomem(err);
    *call = (struct dist_call){.dist = dist, .ctx = ctx};
    int r = dist_origin_make(dist, ask, ref, &call->origin, err);
    if (r < 0) {
        mem_free(call);
        return r;
    }
    dist->n_calls++;
    *ret = call;
    return 0;
}

/* ---- fetches ---------------------------------------------------------------------------------------------- */

static void fetch_free(struct dist_fetch *fetch)
{
    list_remove(&fetch->dist->fetches, fetch);
    if (fetch->multi)
        curl_multi_cleanup(fetch->multi);
    dist_origin_free(fetch->origin);
    dist_image_free(fetch->image);
    mem_free(fetch);
}

static unsigned running(const struct dist *dist, bool blobs, const char *owner)
{
    unsigned n = 0;

    for (const struct dist_fetch *fetch = dist->fetches; fetch; fetch = fetch->next)
        n += fetch->running && (fetch->kind == FETCH_BLOB) == blobs && (!owner || str_eq(fetch->owner, owner));
    return n;
}

/* The oldest of those that may start; newer ones are before it in the list. */
static struct dist_fetch *next_fetch(const struct dist *dist, bool blobs)
{
    const unsigned left = (blobs ? dist->large_threads : SMALL_THREADS) - running(dist, blobs, NULL);
    struct dist_fetch *next = NULL;
    unsigned fewest = UINT_MAX;

    for (struct dist_fetch *fetch = left > 0 ? dist->fetches : NULL; fetch; fetch = fetch->next) {
        if (fetch->running || (fetch->kind == FETCH_BLOB) != blobs)
            continue;
        const unsigned own = running(dist, blobs, fetch->owner);
        if (own <= fewest && share_allows(own, left, 1)) {
            fewest = own;
            next = fetch;
        }
    }
    return next;
}

static void dispatch(struct dist *dist)
{
    for (unsigned blobs = 0; blobs < 2; blobs++)
        for (struct dist_fetch *fetch; (fetch = next_fetch(dist, blobs));) {
            fetch->running = true;
            workers_add(blobs ? dist->large : dist->small, &fetch->job);
        }
}

/* The origin of one of its calls becomes the fetch's. */
static void fetch_start(struct dist_fetch *fetch)
{
    struct dist_call *leader = fetch->calls;

    while (leader->next) /* the oldest */
        leader = leader->next;
    dist_origin_free(fetch->origin);
    fetch->origin = take_ptr(&leader->origin);
    leader->led = true;
    fetch->size = leader->size;
    fetch->err = (struct brig_err){0};
    atomic_store(&fetch->stop, false);
    atomic_store(&fetch->at, 0);
    dispatch(fetch->dist);
}

static void fetch_stop(struct dist_fetch *fetch)
{
    atomic_store(&fetch->stop, true);
    curl_multi_wakeup(fetch->multi);
}

static void fetch_work(struct job *job)
{
    static int (*const work[])(struct dist_fetch * fetch, struct brig_err * err) = {
        [FETCH_MANIFEST] = dist_work_manifest, [FETCH_BLOB] = dist_work_blob};
    struct dist_fetch *fetch = (struct dist_fetch *)job;

    fetch->result = atomic_load(&fetch->stop) ? -ECANCELED : work[fetch->kind](fetch, &fetch->err);
}

static bool is_told(const struct dist_call *call, const struct dist_fetch *fetch)
{
    if (fetch->result == -ECANCELED || call->size != fetch->size)
        return false;
    return fetch->result == 0 || call->led || dist_origin_equal(call->origin, fetch->origin);
}

static void fetch_done(struct job *job)
{
    struct dist_fetch *fetch = (struct dist_fetch *)job;
    struct dist *dist = fetch->dist;

    fetch->running = false;
    for (struct dist_call *call = fetch->calls, *next; call; call = next) {
        next = call->next;
        if (!is_told(call, fetch))
            continue;
        call->fetch = NULL;
        call->image = take_ptr(&fetch->image);
        call->failed = fetch->result < 0;
        call->err = fetch->err;
        call_move(call, &dist->finished);
    }
    if (fetch->calls)
        fetch_start(fetch);
    else
        fetch_free(fetch);
    dispatch(dist);
    tell_finished(dist);
}

static int fetch_make(struct dist *dist, enum fetch_kind kind, const char *owner, struct dist_fetch **ret,
                      struct brig_err *err)
{
    struct dist_fetch *fetch = mem_zalloc(sizeof *fetch);

    if (!fetch)
        return err_nomem(err);
    *fetch = (struct dist_fetch){.job = {.work = fetch_work, .done = fetch_done}, .dist = dist, .kind = kind};
    fetch->multi = curl_multi_init();
    if (!fetch->multi || str_copy(fetch->owner, sizeof fetch->owner, owner) < 0) {
        mem_free(fetch);
        return err_nomem(err);
    }
    list_push(&dist->fetches, fetch);
    *ret = fetch;
    return 0;
}

static void fetch_join(struct dist_fetch *fetch, struct dist_call *call)
{
    call->fetch = fetch;
    call_move(call, &fetch->calls);
}

void dist_cancel(struct dist_call *call)
{
    struct dist_fetch *fetch = call->fetch;

    call_free(call);
    if (fetch && !fetch->calls && fetch->running)
        fetch_stop(fetch);
    else if (fetch && !fetch->calls)
        fetch_free(fetch);
}

/* ---- progress --------------------------------------------------------------------------------------------- */

/* The next call that has not seen what its fetch has. A callback may cancel any call, so each search begins anew. */
static struct dist_call *next_to_show(const struct dist *dist)
{
    for (const struct dist_fetch *fetch = dist->fetches; fetch; fetch = fetch->next)
        for (struct dist_call *call = fetch->calls; call; call = call->next)
            if (call->progress && call->told_at != fetch->shown)
                return call;
    return NULL;
}

static void on_tick(struct loop_timer *timer)
{
    struct dist *dist = timer->ctx;
    bool blobs = false;

    for (struct dist_fetch *fetch = dist->fetches; fetch; fetch = fetch->next) {
        fetch->shown = atomic_load(&fetch->at);
        blobs |= fetch->kind == FETCH_BLOB;
    }
    if (blobs)
        (void)!loop_timer_set(dist->loop, timer, clock_mono_ns() + TICK_NS, NULL);
    for (struct dist_call *call; (call = next_to_show(dist));) {
        call->told_at = call->fetch->shown;
        call->progress(call->ctx, call->told_at, call->fetch->size);
    }
}

/* ---- what can be asked ------------------------------------------------------------------------------------ */

int dist_manifest(struct dist *dist, const struct dist_ask *ask, const struct platform *platform,
                  void (*done)(void *ctx, struct dist_image *image, const struct brig_err *err), void *ctx,
                  struct dist_call **ret, struct brig_err *err)
{
    struct dist_fetch *fetch = NULL;
    struct dist_call *call = NULL;
    int r = call_make(dist, ask, ask->ref, ctx, &call, err);

    if (r < 0)
        return r;
    r = fetch_make(dist, FETCH_MANIFEST, owner_of(ask), &fetch, err);
    if (r < 0) {
        call_free(call);
        return r;
    }
    if (platform)
        fetch->platform = *platform;
    else
        platform_host(&fetch->platform);
    call->image_done = done;
    fetch_join(fetch, call);
    fetch_start(fetch);
    *ret = call;
    return 0;
}

static struct dist_fetch *find_blob(const struct dist *dist, const char *owner, const char *digest)
{
    for (struct dist_fetch *fetch = dist->fetches; fetch; fetch = fetch->next)
        if (fetch->kind == FETCH_BLOB && str_eq(fetch->owner, owner) && str_eq(fetch->digest, digest))
            return fetch;
    return NULL;
}

int dist_blob(struct dist *dist, const struct dist_ask *ask, const char *digest, uint64_t size,
              void (*progress)(void *ctx, uint64_t at, uint64_t of),
              void (*done)(void *ctx, const struct brig_err *err), void *ctx, struct dist_call **ret,
              struct brig_err *err)
{
    struct dist_call *call = NULL;

    if (!digest_ok(digest) || size > IMAGE_LAYER_BYTES)
        return err_usage(err, "blob %.80s of %llu bytes: a blob has a digest and at most %llu bytes", digest,
                         (unsigned long long)size, (unsigned long long)IMAGE_LAYER_BYTES);
    int r = call_make(dist, ask, ask->ref, ctx, &call, err);
    if (r < 0)
        return r;
    call->done = done;
    call->progress = progress;
    call->told_at = UINT64_MAX;
    call->size = size;
    struct dist_fetch *fetch = find_blob(dist, owner_of(ask), digest);
    const bool joined = fetch != NULL;
    if (!fetch)
        r = fetch_make(dist, FETCH_BLOB, owner_of(ask), &fetch, err);
    if (r == 0 && dist->tick.pos == 0)
        r = loop_timer_set(dist->loop, &dist->tick, clock_mono_ns() + TICK_NS, err);
    if (r < 0) {
        if (fetch && !joined)
            fetch_free(fetch);
        call_free(call);
        return r;
    }
    fetch_join(fetch, call);
    if (!joined) {
        (void)!str_copy(fetch->digest, sizeof fetch->digest, digest);
        fetch_start(fetch);
    }
    *ret = call;
    return 0;
}

/* ---- life ------------------------------------------------------------------------------------------------- */

static int open_blobs(struct dist *dist, int blobs_fd, struct brig_err *err)
{
    if (mkdirat(blobs_fd, "sha256", 0700) < 0 && errno != EEXIST)
        return err_host(err, "make the directory of blobs");
    dist->blobs_fd = openat(blobs_fd, "sha256", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return dist->blobs_fd < 0 ? err_host(err, "open the directory of blobs") : 0;
}

int dist_create(const struct dist_options *options, struct dist **ret, struct brig_err *err)
{
    struct dist *dist = mem_zalloc(sizeof *dist);

    if (!dist)
        return err_nomem(err);
    *dist = (struct dist){.loop = options->loop, .blobs_fd = -1, .tick = {.fn = on_tick}};
    dist->tick.ctx = dist;
    pthread_mutex_init(&dist->lock, NULL);
    int r = curl_global_init(CURL_GLOBAL_DEFAULT) == 0 ? dist_options_copy(dist, options, err) : err_nomem(err);
    if (r == 0)
        r = open_blobs(dist, options->blobs_fd, err);
    if (r == 0)
        r = workers_create(options->loop, SMALL_THREADS, &dist->small, err);
    dist->large_threads = 2 * (options->blobs_at_once ? options->blobs_at_once : BLOBS_AT_ONCE);
    if (r == 0)
        r = workers_create(options->loop, dist->large_threads, &dist->large, err);
    if (r < 0)
        dist_destroy(dist);
    else
        *ret = dist;
    return r;
}

void dist_destroy(struct dist *dist)
{
    if (!dist)
        return;
    for (struct dist_fetch *fetch = dist->fetches, *next; fetch; fetch = next) {
        next = fetch->next;
        while (fetch->calls)
            call_free(fetch->calls);
        if (fetch->running)
            fetch_stop(fetch);
        else
            fetch_free(fetch);
    }
    while (dist->finished)
        call_free(dist->finished);
    workers_destroy(dist->small); /* frees the fetches */
    workers_destroy(dist->large);
    loop_timer_clear(dist->loop, &dist->tick);
    dist_tokens_free(dist);
    pthread_mutex_destroy(&dist->lock);
    dist_options_free(dist);
    base_close_fd(&dist->blobs_fd);
    mem_free(dist);
}
