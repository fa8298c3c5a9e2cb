/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local.c: the provider `local`: long-lived sandboxes of this machine, made by a spawner behind a socket.
 *
 * Theory of operation. The spawner and its sandboxes outlive this process: the supervisor keeps the socket, and the next
 * brigd takes it over in whatever state the last one left it. So the first thing said is LIST; what is read before its
 * answer was meant for somebody else and is dropped. The answer names every sandbox that is up, the facts of READY and
 * the highest number ever used, after which ours go on. A sandbox that was being made for the predecessor when LIST was
 * answered comes up unknown to anybody: it is ended.
 *
 *     create ---RUN--> asked ---STARTED--> up ---DONE--> freed        end() at any time: KILL, then DONE
 *                        \---DONE (refused, failed)--> freed
 *     LISTED ------------------------------^
 *
 * Questions (attach, freeze, stats) of one box are answered in order; DONE answers what is still open with "gone".
 * All callbacks come from the loop. A callback must not destroy the provider, but for gone().
 */
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "provider/local.h"

static struct local *local_of(struct provider *provider)
{
    return (struct local *)provider;
}

static struct local_box *box_of(struct box *box)
{
    return (struct local_box *)box;
}

/* ---- boxes ------------------------------------------------------------------------------------------ */

static struct local_box *box_add(struct local *local, uint64_t number)
{
    struct local_box *box = mem_zalloc(sizeof *box);

    if (!box)
        return NULL;
    box->box.provider = &local->provider;
    box->number = number;
    box->next = local->boxes;
    if (box->next)
        box->next->prev = box;
    local->boxes = box;
    struct local_box **bucket = &local->buckets[number % LOCAL_BUCKETS];
    box->same_bucket = *bucket;
    *bucket = box;
    return box;
}

static void box_free(struct local *local, struct local_box *box)
{
    for (struct local_box **at = &local->buckets[box->number % LOCAL_BUCKETS]; *at; at = &(*at)->same_bucket)
        if (*at == box) {
            *at = box->same_bucket;
            break;
        }
    if (box->prev)
        box->prev->next = box->next;
    else
        local->boxes = box->next;
    if (box->next)
        box->next->prev = box->prev;
    local_forget_kill(box);
    for (struct question *next; box->questions; box->questions = next) {
        next = box->questions->next;
        mem_free(box->questions);
    }
    mem_free(box);
}

static struct local_box *box_find(struct local *local, uint64_t number)
{
    struct local_box *box = local->buckets[number % LOCAL_BUCKETS];

    while (box && box->number != number)
        box = box->same_bucket;
    return box;
}

/* ---- questions -------------------------------------------------------------------------------------- */

static void fail_question(const struct question *q, const struct brig_err *err)
{
    if (q->answer == WIRE_ATTACHED)
        q->done.attach(q->ctx, -1, err);
    else if (q->answer == WIRE_FROZEN)
        q->done.freeze(q->ctx, err);
    else
        q->done.stats(q->ctx, NULL, err);
}

/* The oldest of its kind. */
static struct question *take_question(struct local_box *box, enum wire_type answer)
{
    for (struct question **at = &box->questions; *at; at = &(*at)->next)
        if ((*at)->answer == answer) {
            struct question *q = *at;
            *at = q->next;
            return q;
        }
    return NULL;
}

static int ask(struct local_box *box, const void *msg, const struct question *asked, struct brig_err *err)
{
    struct local *local = local_of(box->box.provider);
    struct question **end = &box->questions;

    if (local->gone || box->ending || !box->up)
        return err_set(err, local->gone ? BRIG_E_GONE : BRIG_E_CONFLICT, local->gone ? EPIPE : EAGAIN, "the sandbox is %s",
                       local->gone ? "gone" : box->ending ? "ending" : "not up yet");
    struct question *q = mem_alloc(sizeof *q);
    if (!q)
        return err_nomem(err);
    *q = *asked;
    q->next = NULL;
    int r = local_send(local, msg, -1, err);
    if (r < 0) {
        mem_free(q);
        return r;
    }
    while (*end)
        end = &(*end)->next;
    *end = q;
    return 0;
}

static int op_attach(struct box *box, void (*done)(void *ctx, int fd, const struct brig_err *err), void *ctx, struct brig_err *err)
{
    const struct question q = {.answer = WIRE_ATTACHED, .done.attach = done, .ctx = ctx};
    const struct wire_plain msg = {{WIRE_MAGIC, WIRE_VERSION, WIRE_ATTACH, box_of(box)->number}};

    return ask(box_of(box), &msg, &q, err);
}

static int op_freeze(struct box *box, bool on, void (*done)(void *ctx, const struct brig_err *err), void *ctx, struct brig_err *err)
{
    const struct question q = {.answer = WIRE_FROZEN, .done.freeze = done, .ctx = ctx};
    const struct wire_freeze msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_FREEZE, box_of(box)->number}, .on = on};

    return ask(box_of(box), &msg, &q, err);
}

static int op_stats(struct box *box, void (*done)(void *ctx, const struct box_stats *stats, const struct brig_err *err), void *ctx,
                    struct brig_err *err)
{
    const struct question q = {.answer = WIRE_STATS_ARE, .done.stats = done, .ctx = ctx};
    const struct wire_plain msg = {{WIRE_MAGIC, WIRE_VERSION, WIRE_STATS, box_of(box)->number}};

    return ask(box_of(box), &msg, &q, err);
}

static void on_answer(struct local_box *box, const struct wire_answer *msg, int *fds, size_t n_fds)
{
    struct question *q = take_question(box, (enum wire_type)msg->head.type);
    struct brig_err err = msg->err;

    err.message[sizeof err.message - 1] = '\0';
    if (!q)
        return; /* a predecessor's */
    if (err.code != BRIG_E_NONE)
        fail_question(q, &err);
    else if (q->answer == WIRE_FROZEN)
        q->done.freeze(q->ctx, NULL);
    else if (n_fds == 1)
        q->done.attach(q->ctx, take_fd(&fds[0]), NULL);
    else {
        (void)err_set(&err, BRIG_E_HOST, EPROTO, "the spawner sent no stream");
        fail_question(q, &err);
    }
    mem_free(q);
}

static void on_stats(struct local_box *box, const struct wire_stats *msg)
{
    struct question *q = take_question(box, WIRE_STATS_ARE);
    const struct box_stats stats = {msg->cpu_ns,           msg->memory_bytes, msg->memory_peak_bytes, msg->pids,      msg->pids_peak,   msg->disk_bytes,
                                    msg->disk_peak_bytes,  msg->read_bytes,   msg->written_bytes,     msg->oom_kills, msg->pids_refused};

    if (!q)
        return;
    q->done.stats(q->ctx, &stats, NULL);
    mem_free(q);
}

/* ---- life and death --------------------------------------------------------------------------------- */

static int op_create(struct provider *provider, const struct provider_spec *spec, const struct box_events *events, struct box **ret,
                     struct brig_err *err)
{
    struct local *local = local_of(provider);
    struct wire_run msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_RUN, local->next_number}};
    struct brig_spec wanted = {.size = sizeof wanted, .rootfs = spec->rootfs, .flags = spec->writable_root ? BRIG_RUN_WRITABLE_ROOT : 0,
                               .profile = spec->profile, .limits = spec->limits, .require = spec->require, .binds = spec->binds, .n_binds = spec->n_binds};
    struct stat st;
    int strings = -1;

    if (local->gone)
        return err_set(err, BRIG_E_GONE, EPIPE, "%s", local->gone_why.message);
    if (!local->recovered)
        return err_set(err, BRIG_E_BUSY, EAGAIN, "the spawner has not answered yet");
    if (spec->rootfs && stat(spec->rootfs, &st) == 0 && S_ISREG(st.st_mode))
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "rootfs %s: must be a directory; a tar is not unpacked for a long-lived sandbox", spec->rootfs);
    int r = spec_service(&wanted, provider->image_store, &msg, &strings, err);
    if (r < 0)
        return r;
    struct local_box *box = box_add(local, local->next_number);
    if (!box) {
        close(strings);
        return err_nomem(err);
    }
    r = local_send(local, &msg, strings, err);
    if (r < 0) {
        box_free(local, box);
        return r;
    }
    local->next_number++;
    box->box.events = *events;
    *ret = &box->box;
    return 0;
}

static void op_end(struct box *box)
{
    local_kill(box_of(box));
}

static void fill_up(struct box_up *up, struct brig_receipt *scratch, const struct wire_started *msg)
{
    run_readings(scratch, msg->readings);
    *up = (struct box_up){.id = msg->sandbox_id, .limits = msg->limits, .protection_complete = scratch->protection_complete, .stream_fd = -1};
    memcpy(up->layers, scratch->layers, sizeof up->layers);
}

static void on_started(struct local *local, struct local_box *box, struct wire_started *msg, int *fds, size_t n_fds)
{
    struct brig_receipt scratch = {0};
    struct box_up up;

    if (!box) {
        /* Made for a predecessor, and nobody's now. Before LIST is answered it may still be listed. */
        if (local->recovered && (box = box_add(local, msg->head.run)))
            local_kill(box);
        return;
    }
    if (box->up || box->ending)
        return;
    msg->sandbox_id[sizeof msg->sandbox_id - 1] = '\0';
    box->up = true;
    fill_up(&up, &scratch, msg);
    if (n_fds == 1)
        up.stream_fd = take_fd(&fds[0]);
    box->box.events.up(box->box.events.ctx, &up);
    base_close_fd(&up.stream_fd);
}

/* Calls whoever waits for something of it, and frees it. */
static void box_ended(struct local *local, struct local_box *box, const struct box_end *end)
{
    struct box_events events = box->box.events;
    struct brig_err err;

    box->ending = true; /* nobody can ask any more */
    (void)err_set(&err, BRIG_E_GONE, 0, "the sandbox ended: %s", end->detail[0] ? end->detail : brig_cause_name(end->cause));
    for (struct question *q; (q = box->questions);) {
        box->questions = q->next;
        fail_question(q, &err);
        mem_free(q);
    }
    if (events.ended)
        events.ended(events.ctx, end);
    box_free(local, box);
}

static void on_done(struct local *local, struct local_box *box, const struct wire_done *msg)
{
    struct box_end end = {.cause = msg->cause < BRIG_CAUSE_MAX ? (enum brig_cause)msg->cause : BRIG_CAUSE_HOST_ERROR,
                          .limits_hit = msg->limits_hit, .usage = msg->usage, .ended_at_ns = msg->ended_at_ns};

    memcpy(end.detail, msg->detail, sizeof end.detail - 1);
    box_ended(local, box, &end);
}

void local_on_gone(struct local *local, const struct brig_err *why)
{
    struct provider *provider = &local->provider;
    struct box_end end = {.cause = why->code == BRIG_E_GONE ? BRIG_CAUSE_SANDBOX_GONE : BRIG_CAUSE_HOST_ERROR, .ended_at_ns = clock_real_ns(),
                          .usage = {BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN,
                                    BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN}};
    bool recovering = local->recovery.list != 0 && !local->recovered;

    local->gone = true;
    local->gone_why = *why;
    local_io_done(local);
    memcpy(end.detail, why->message, sizeof end.detail - 1);
    while (local->boxes)
        box_ended(local, local->boxes, &end);
    if (recovering)
        local->recovery.done(local->recovery.ctx);
    if (provider->gone)
        provider->gone(provider->ctx, &local->gone_why);
}

/* ---- an earlier life -------------------------------------------------------------------------------- */

static int op_recover(struct provider *provider, bool (*found)(void *ctx, struct box *box, const struct box_up *up, struct box_events *ret),
                      void (*done)(void *ctx), void *ctx, struct brig_err *err)
{
    struct local *local = local_of(provider);
    uint64_t list = clock_mono_ns() | 1; /* not a predecessor's, whose answer may still be on its way */
    const struct wire_plain msg = {{WIRE_MAGIC, WIRE_VERSION, WIRE_LIST, list}};

    if (local->gone)
        return err_set(err, BRIG_E_GONE, EPIPE, "%s", local->gone_why.message);
    if (local->recovery.list != 0)
        return err_set(err, BRIG_E_CONFLICT, EALREADY, "recover: once is enough");
    int r = local_send(local, &msg, -1, err);
    if (r < 0)
        return r;
    local->recovery.list = list;
    local->recovery.each = found;
    local->recovery.done = done;
    local->recovery.ctx = ctx;
    return 0;
}

static void on_listed(struct local *local, const struct wire_started *msg)
{
    if (local->recovered)
        return;
    if (local->recovery.n == local->recovery.room) {
        size_t room = local->recovery.room ? 2 * local->recovery.room : 64;
        struct wire_started *more = mem_realloc_array(local->recovery.found, room, sizeof *more);
        if (!more) {
            local->recovery.failed = true;
            return;
        }
        local->recovery.found = more;
        local->recovery.room = room;
    }
    local->recovery.found[local->recovery.n++] = *msg;
    local->recovery.found[local->recovery.n - 1].sandbox_id[sizeof msg->sandbox_id - 1] = '\0';
}

/* Without its record a sandbox cannot be used; it is ended, like one that nobody knows. */
static void give_out(struct local *local, const struct wire_started *msg)
{
    struct brig_receipt scratch = {0};
    struct local_box *box = box_add(local, msg->head.run);
    struct box_up up;

    if (!box) {
        struct wire_kill kill = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_KILL, msg->head.run}, .cause = BRIG_CAUSE_CANCELLED};
        (void)!local_send(local, &kill, -1, NULL);
        return;
    }
    box->up = true;
    fill_up(&up, &scratch, msg);
    if (!local->recovery.each(local->recovery.ctx, &box->box, &up, &box->box.events)) {
        box->box.events = (struct box_events){0};
        local_kill(box);
    }
}

static void on_list_end(struct local *local, const struct wire_ready *msg)
{
    struct wire_started *found = local->recovery.found;
    size_t n = local->recovery.n;
    struct brig_err why;

    local->recovery.found = NULL;
    local->recovery.n = local->recovery.room = 0;
    if (local->recovered || msg->list != local->recovery.list) {
        mem_free(found);
        local->recovery.failed = false;
        return; /* a predecessor's */
    }
    if (local->recovery.failed) {
        /* Sandboxes would run on unknown: better none of this at all. The supervisor starts us again. */
        mem_free(found);
        (void)err_nomem(&why);
        local_on_gone(local, &why);
        return;
    }
    local->recovered = true;
    local->next_number = msg->head.run + 1;
    local->provider.rootless = msg->rootless;
    local->provider.image_store = msg->image_store;
    for (size_t i = 0; i < n; i++)
        give_out(local, &found[i]);
    mem_free(found);
    local->recovery.done(local->recovery.ctx);
}

/* ---- messages --------------------------------------------------------------------------------------- */

void local_on_message(struct local *local, const union wire_any *msg, int *fds, size_t n_fds)
{
    struct local_box *box = msg->head.run ? box_find(local, msg->head.run) : NULL;
    struct wire_started started;

    switch (msg->head.type) {
    case WIRE_STARTED:
        started = msg->started;
        on_started(local, box, &started, fds, n_fds);
        break;
    case WIRE_LISTED:
        on_listed(local, &msg->started);
        break;
    case WIRE_LIST_END:
        on_list_end(local, &msg->ready);
        break;
    case WIRE_DONE:
        if (box)
            on_done(local, box, &msg->done);
        break;
    case WIRE_ATTACHED:
    case WIRE_FROZEN:
        if (box)
            on_answer(box, &msg->answer, fds, n_fds);
        break;
    case WIRE_STATS_ARE:
        if (box)
            on_stats(box, &msg->stats);
        break;
    default:
        break; /* READY and POOL_FULL say nothing that LIST_END did not */
    }
}

static int op_pool(struct provider *provider, unsigned count, struct brig_err *err)
{
    const struct wire_pool msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_POOL, 0}, .count = count};

    return local_of(provider)->gone ? err_set(err, BRIG_E_GONE, EPIPE, "pool") : local_send(local_of(provider), &msg, -1, err);
}

static void op_destroy(struct provider *provider)
{
    struct local *local = local_of(provider);

    if (!provider)
        return;
    local_io_done(local);
    while (local->boxes)
        box_free(local, local->boxes);
    mem_free(local->recovery.found);
    mem_free(local);
}

static const struct provider_ops local_ops = {
    .name = "local",
    .caps = PROVIDER_PAUSE | PROVIDER_BINDS | PROVIDER_ROOTFS | PROVIDER_WRITABLE_ROOT | PROVIDER_RECOVER | PROVIDER_POOL,
    .destroy = op_destroy,
    .create = op_create,
    .attach = op_attach,
    .freeze = op_freeze,
    .stats = op_stats,
    .end = op_end,
    .recover = op_recover,
    .pool = op_pool,
};

int provider_local_create(struct loop *loop, int spawner_fd, struct provider **ret, struct brig_err *err)
{
    struct local *local = mem_zalloc(sizeof *local);

    if (!local)
        return err_nomem(err);
    local->provider.ops = &local_ops;
    local->provider.loop = loop;
    local->fd = spawner_fd;
    local->next_number = 1;
    local->events = EPOLLIN;
    local->on_spawner = (struct loop_source){.fd = -1, .fn = local_on_spawner, .ctx = local};
    int r = loop_add(loop, &local->on_spawner, spawner_fd, EPOLLIN, err);
    if (r < 0) {
        mem_free(local);
        return r;
    }
    *ret = &local->provider;
    return 0;
}
