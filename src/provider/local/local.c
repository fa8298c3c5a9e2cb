/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local.c: the provider `local`: long-lived sandboxes of this machine, made by a spawner behind a socket.
 *
 * Theory of operation. The spawner and its sandboxes outlive this process: the supervisor keeps the socket, and the
 * next brigd takes it over in whatever state the last one left it. So the first message is LIST; everything that is
 * read before its answer was meant for the predecessor and is dropped. The answer names every sandbox that is up, the
 * facts of READY and the highest number ever used, after which ours go on. If a sandbox was being made for the
 * predecessor when LIST was answered, nobody knows it when it comes up: it is ended.
 *
 *     create ---RUN--> asked ---STARTED--> up ---DONE--> freed        end() at any time: KILL, then DONE
 *                        \---DONE (refused, failed)--> freed
 *     LISTED ------------------------------^
 *
 * Questions (attach, freeze, stats) of one box are answered in order; DONE answers what is still open with "gone". All
 * callbacks come from the loop. Only gone() may destroy the provider.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/provider_names.h"
#include "engine/engine.h"
#include "provider/local/local.h"

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
    list_push(&local->boxes, box);
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
    list_remove(&local->boxes, box);
    local_forget_kill(box);
    local_drop_questions(box);
    local_drop_listeners(box);
    mem_free(box);
}

struct local_box *local_box_find(struct local *local, uint64_t number)
{
    struct local_box *box = local->buckets[number % LOCAL_BUCKETS];

    while (box && box->number != number)
        box = box->same_bucket;
    return box;
}

/* ---- life and death --------------------------------------------------------------------------------- */

static int add_trust(const struct provider_gate *gate, struct wire_run *msg, int *ret_fd, struct brig_err *err)
{
    *ret_fd = fcntl(gate->trust_fd, F_DUPFD_CLOEXEC, 0);
    if (*ret_fd < 0)
        return err_host(err, "CA bundle");
    msg->trust = 1;
    return 0;
}

static int op_create(struct provider *provider, const struct provider_spec *spec, const struct box_events *events,
                     struct box **ret, struct brig_err *err)
{
    struct local *local = local_of(provider);
    struct wire_run msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_RUN, local->next_number}};
    struct brig_spec wanted = {.size = sizeof wanted,
                               .rootfs = spec->rootfs,
                               .workdir = spec->workdir,
                               .flags = (spec->writable_root ? BRIG_RUN_WRITABLE_ROOT : 0) |
                                        (spec->root_inside ? BRIG_RUN_ROOT : 0),
                               .profile = spec->profile,
                               .limits = spec->limits,
                               .require = spec->require,
                               .binds = spec->binds,
                               .n_binds = spec->n_binds,
                               .tmpfs = spec->tmpfs,
                               .n_tmpfs = spec->n_tmpfs};
    struct spec_volume volumes[PROVIDER_VOLUMES_MAX];
    const struct spec_more more = {.zygote = spec->zygote,
                                   .image = spec->image,
                                   .layers = spec->layers,
                                   .n_layers = spec->n_layers,
                                   .new_layer = spec->new_layer,
                                   .raw_upper = spec->raw_upper,
                                   .any_user = spec->any_user,
                                   .sudo = spec->sudo,
                                   .kvm = spec->kvm,
                                   .disk = spec->disk,
                                   .disk_from = spec->disk_from,
                                   .volumes = volumes,
                                   .binds_inside = spec->binds_inside,
                                   .n_volumes = spec->n_volumes};
    struct stat st;
    int fds[LOCAL_FDS] = {-1, -1};

    if (local->gone)
        return err_set(err, BRIG_E_GONE, EPIPE, "%s", local->gone_why.message);
    if (!local->recovered)
        return err_set(err, BRIG_E_BUSY, EAGAIN, "the %s has not answered yet", local->renews ? "runner" : "spawner");
    if (local->broken.code != BRIG_E_NONE)
        return err_set(err, (enum brig_code)local->broken.code, 0, "provider %s: %s", local->ops.name,
                       local->broken.message);
    if (spec->rootfs && stat(spec->rootfs, &st) == 0 && S_ISREG(st.st_mode))
        return err_set(err, BRIG_E_UNSUPPORTED, 0,
                       "rootfs %s: must be a directory; a tar is not unpacked for a long-lived sandbox", spec->rootfs);
    if (spec->n_volumes > PROVIDER_VOLUMES_MAX)
        return err_usage(err, "%zu volumes: at most %u", spec->n_volumes, PROVIDER_VOLUMES_MAX);
    for (size_t i = 0; i < spec->n_volumes; i++)
        volumes[i] = (struct spec_volume){spec->volumes[i].disk, spec->volumes[i].target, spec->volumes[i].read_only};
    if (spec->zygote && !(provider->ops->caps & PROVIDER_ZYGOTE))
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "zygote: there are none on this host");
    int r = local_gate_want(&spec->gate, &msg.gate, err);
    if (r == 0)
        r = spec_service(&wanted, &more, provider->image_store, &msg, &fds[0], err);
    if (r == 0 && spec->gate.trust)
        r = add_trust(&spec->gate, &msg, &fds[1], err);
    struct local_box *box = r == 0 ? box_add(local, local->next_number) : NULL;
    if (!box) {
        fd_close_all(fds, LOCAL_FDS);
        return r < 0 ? r : err_nomem(err);
    }
    box->gate = spec->gate.on;
    r = local_send(local, &msg, fds, 1 + msg.trust, err);
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
    *up = (struct box_up){.id = msg->sandbox_id,
                          .limits = msg->limits,
                          .protection_complete = scratch->protection_complete,
                          .stream_fd = -1};
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
    if (box->gate && !box->listeners) { /* a spawner of another mind: such a sandbox would run with a network that
                                           nobody serves */
        base_close_fd(&up.stream_fd);
        local_kill(box);
        return;
    }
    up.listeners = box->listeners;
    box->listeners = NULL; /* before the call: it may end the box */
    box->box.events.up(box->box.events.ctx, &up);
    base_close_fd(&up.stream_fd);
    local_listeners_free(up.listeners);
}

/* Calls whoever waits for something of it, and frees it. */
void local_box_ended(struct local *local, struct local_box *box, const struct box_end *end)
{
    struct box_events events = box->box.events;
    struct brig_err err;

    box->ending = true; /* nobody can ask any more */
    (void)err_set(&err, BRIG_E_GONE, 0, "the sandbox ended: %s",
                  end->detail[0] ? end->detail : brig_cause_name(end->cause));
    local_fail_questions(box, &err);
    if (events.ended)
        events.ended(events.ctx, end);
    box_free(local, box);
}

static void on_done(struct local *local, struct local_box *box, const struct wire_done *msg)
{
    struct box_end end = {.cause = msg->cause < BRIG_CAUSE_MAX ? (enum brig_cause)msg->cause : BRIG_CAUSE_HOST_ERROR,
                          .code = msg->code < BRIG_E_MAX ? (enum brig_code)msg->code : BRIG_E_HOST,
                          .distrust = msg->distrust == 1,
                          .limits_hit = msg->limits_hit,
                          .usage = msg->usage,
                          .ended_at_ns = msg->ended_at_ns};

    memcpy(end.detail, msg->detail, sizeof end.detail - 1);
    local_box_ended(local, box, &end);
}

void local_on_gone(struct local *local, const struct brig_err *why)
{
    struct provider *provider = &local->provider;
    struct box_end end = {.cause = why->code == BRIG_E_GONE ? BRIG_CAUSE_SANDBOX_GONE : BRIG_CAUSE_HOST_ERROR,
                          .ended_at_ns = clock_real_ns(),
                          .usage = {BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN,
                                    BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, 0, 0}};
    bool recovering = local->recovery.done && !local->recovered;

    local->gone = true;
    local->gone_why = *why;
    loop_timer_clear(local->provider.loop, &local->on_silent);
    local_io_done(local);
    memcpy(end.detail, why->message, sizeof end.detail - 1);
    while (local->boxes)
        local_box_ended(local, local->boxes, &end);
    local_question_fail_all(local, why);
    if (recovering)
        local->recovery.done(local->recovery.ctx);
    if (provider->gone)
        provider->gone(provider->ctx, &local->gone_why);
}

/* ---- an earlier life -------------------------------------------------------------------------------- */

static int op_recover(struct provider *provider,
                      bool (*found)(void *ctx, struct box *box, const struct box_up *up, struct box_events *ret),
                      void (*done)(void *ctx), void *ctx, struct brig_err *err)
{
    struct local *local = local_of(provider);

    if (local->gone)
        return err_set(err, BRIG_E_GONE, EPIPE, "%s", local->gone_why.message);
    if (local->recovery.list != 0)
        return err_set(err, BRIG_E_CONFLICT, EALREADY, "recover: once is enough");
    int r = local_list(local, err);
    if (r < 0)
        return r;
    local->recovery.each = found;
    local->recovery.done = done;
    local->recovery.ctx = ctx;
    return local->renews ? local_wait_for_list(local, err) : 0;
}

int local_list(struct local *local, struct brig_err *err)
{
    uint64_t list = clock_mono_ns() | 1; /* not a predecessor's, whose answer may still be on its way */
    const struct wire_plain msg = {{WIRE_MAGIC, WIRE_VERSION, WIRE_LIST, list}};
    int r = local_send(local, &msg, NULL, 0, err);

    if (r == 0)
        local->recovery.list = list;
    return r;
}

static void on_listed(struct local *local, const struct wire_started *msg)
{
    if (local->recovered)
        return;
    if (MEM_GROW(local->recovery.found, local->recovery.n, local->recovery.room) < 0) {
        local->recovery.failed = true;
        return;
    }
    local->recovery.found[local->recovery.n++] = *msg;
    local->recovery.found[local->recovery.n - 1].sandbox_id[sizeof msg->sandbox_id - 1] = '\0';
}

void local_kill_number(struct local *local, uint64_t number)
{
    struct wire_kill kill = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_KILL, number}, .cause = BRIG_CAUSE_CANCELLED};

    (void)!local_send(local, &kill, NULL, 0, NULL);
}

/* Without its record a sandbox cannot be used; it is ended, like one that nobody knows. */
static void give_out(struct local *local, const struct wire_started *msg)
{
    struct brig_receipt scratch = {0};
    struct local_box *box = box_add(local, msg->head.run);
    struct box_up up;

    if (!box) {
        local_kill_number(local, msg->head.run);
        return;
    }
    box->up = true;
    fill_up(&up, &scratch, msg);
    const struct provider *p = &local->provider;
    if (p->claim && p->claim(p->claim_ctx, &box->box, &up, &box->box.events))
        return;
    if (!local->recovery.each(local->recovery.ctx, &box->box, &up, &box->box.events))
        local_kill(box);
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
    local->next_number = msg->head.run >= local->next_number ? msg->head.run + 1 : local->next_number;
    if (local->renews)
        local_take_facts(local, msg);
    local->provider.rootless = msg->rootless;
    local->provider.image_store = msg->image_store;
    if (msg->zygotes)
        local->ops.caps |= PROVIDER_ZYGOTE;
    if (msg->layers)
        local->ops.caps |= PROVIDER_LAYERS;
    if (msg->disks)
        local->ops.caps |= PROVIDER_DISKS;
    if (local->recovery.done) {
        void (*done)(void *ctx) = local->recovery.done;
        local->recovery.done = NULL;
        loop_timer_clear(local->provider.loop, &local->on_silent);
        for (size_t i = 0; i < n; i++)
            give_out(local, &found[i]);
        if (local->provider.claim)
            (void)!local->provider.claim(local->provider.claim_ctx, NULL, NULL, NULL);
        done(local->recovery.ctx);
    } else {
        local_renewed(local, found, n);
    }
    mem_free(found);
}

/* ---- messages --------------------------------------------------------------------------------------- */

void local_on_message(struct local *local, const union wire_any *msg, int *fds, size_t n_fds)
{
    struct local_box *box = msg->head.run ? local_box_find(local, msg->head.run) : NULL;
    struct wire_started started;

    switch (msg->head.type) {
    case WIRE_STARTED:
        started = msg->started;
        on_started(local, box, &started, fds, n_fds);
        break;
    case WIRE_READY:
        if (local->renews)
            local_on_ready(local, &msg->ready);
        break;
    case WIRE_LISTED: on_listed(local, &msg->started); break;
    case WIRE_LIST_END: on_list_end(local, &msg->ready); break;
    case WIRE_DONE:
        if (box)
            on_done(local, box, &msg->done);
        break;
    case WIRE_ATTACHED:
    case WIRE_FROZEN:
        if (box)
            local_on_answer(box, &msg->answer, fds, n_fds);
        break;
    case WIRE_STATS_ARE:
    case WIRE_COUNTED:
        if (box)
            local_on_stats(box, &msg->stats);
        break;
    case WIRE_LIMITS_ARE:
        if (box)
            local_on_limits(box, &msg->limits_are);
        break;
    case WIRE_GATE_OPEN:
        if (box)
            local_on_gate(box, &msg->gate_open, fds, n_fds);
        break;
    case WIRE_LAYER_DONE: local_on_layer(local, &msg->answer); break;
    case WIRE_LAYERS_ARE: local_on_layers(local, &msg->layers_are, fds, n_fds); break;
    case WIRE_DISK_PROGRESS: local_on_disk_progress(local, &msg->disk_progress); break;
    case WIRE_DISK_DONE: local_on_disk(local, &msg->disk_done); break;
    case WIRE_DISKS_ARE: local_on_disks(local, &msg->disks_are, fds, n_fds); break;
    default: break; /* READY and POOL_FULL say nothing that LIST_END did not */
    }
}

static int op_pool(struct provider *provider, unsigned count, struct brig_err *err)
{
    const struct wire_pool msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_POOL, 0}, .count = count};

    return local_of(provider)->gone ? err_set(err, BRIG_E_GONE, EPIPE, "pool")
                                    : local_send(local_of(provider), &msg, NULL, 0, err);
}

static void op_destroy(struct provider *provider)
{
    struct local *local = local_of(provider);

    if (!provider)
        return;
    loop_timer_clear(provider->loop, &local->on_silent);
    local_io_done(local);
    while (local->boxes)
        box_free(local, local->boxes);
    local_question_drop_all(local);
    mem_free(local->recovery.found);
    mem_free(local);
}

static int op_check(struct provider *provider, provider_checked_fn *done, void *ctx, struct brig_err *err)
{
    return provider_attempt(provider, local_of(provider)->version, done, ctx, err);
}

/*
 * gVisor has no Landlock, no time namespaces and no /proc of processes only. Its sentry has no cgroup namespace of its
 * own. A root that cannot be written and the limits of the store hold, but are not read back inside.
 */
#define RUNSC_LACKS                                                                                               \
    (BRIG_LAYER_BIT(BRIG_LAYER_LANDLOCK) | BRIG_LAYER_BIT(BRIG_LAYER_PROC) | BRIG_LAYER_BIT(BRIG_LAYER_TIME_NS) | \
     BRIG_LAYER_BIT(BRIG_LAYER_CGROUP_NS) | BRIG_LAYER_BIT(BRIG_LAYER_ROOT_READONLY) |                            \
     BRIG_LAYER_BIT(BRIG_LAYER_DISK) | BRIG_LAYER_BIT(BRIG_LAYER_INODES))
#define RUNSC_PROTECTS ((BRIG_LAYER_BIT(BRIG_LAYER_MAX) - 1) & ~RUNSC_LACKS)

static const struct provider_ops local_ops = {
    .name = "local",
    .caps = PROVIDER_PAUSE | PROVIDER_BINDS | PROVIDER_ROOTFS | PROVIDER_WRITABLE_ROOT | PROVIDER_ROOT_INSIDE |
            PROVIDER_RECOVER | PROVIDER_POOL | PROVIDER_GATE | PROVIDER_LIMITS,
    .protects = (BRIG_LAYER_BIT(BRIG_LAYER_MAX) - 1) & ~BRIG_LAYER_BIT(BRIG_LAYER_OWN_KERNEL),
    .destroy = op_destroy,
    .check = op_check,
    .create = op_create,
    .attach = local_attach,
    .freeze = local_freeze,
    .stats = local_stats,
    .limits = local_limits,
    .end = op_end,
    .recover = op_recover,
    .pool = op_pool,
    .gate = local_gate,
    .layer = local_layer,
    .layers = local_layers,
    .disk = local_disk,
    .disks = local_disks,
};

static int create(struct loop *loop, int fd, const struct provider_ops *ops, struct local **ret, struct brig_err *err)
{
    struct local *local = mem_zalloc(sizeof *local);

    if (!local)
        return err_nomem(err);
    local->ops = *ops;
    local->provider.ops = &local->ops;
    local->provider.loop = loop;
    local->fd = fd;
    local->next_number = 1;
    local->next_question = clock_mono_ns(); /* not a predecessor's */
    local->events = EPOLLIN;
    local->on_spawner = (struct loop_source){.fd = -1, .fn = local_on_spawner, .ctx = local};
    int r = loop_add(loop, &local->on_spawner, fd, EPOLLIN, err);
    if (r < 0) {
        mem_free(local);
        return r;
    }
    *ret = local;
    return 0;
}

int provider_local_create(struct loop *loop, int spawner_fd, struct provider **ret, struct brig_err *err)
{
    struct local *local = NULL;
    int r = create(loop, spawner_fd, &local_ops, &local, err);

    if (r < 0)
        return r;
    str_cut(local->version, sizeof local->version, brig_version());
    local->provider.counts = true;
    *ret = &local->provider;
    return 0;
}

int provider_runner_create(struct loop *loop, int runner_fd, const char *name, struct provider **ret,
                           struct brig_err *err)
{
    struct provider_ops ops = local_ops;
    struct local *local = NULL;

    ops.name = provider_known_name(name);
    ops.caps &= ~(uint32_t)PROVIDER_POOL;
    if (str_eq(ops.name, "runsc")) {
        /* root inside could open the socket of brig-init, and gVisor does not tell it from the runner. */
        ops.caps &= ~(uint32_t)PROVIDER_ROOT_INSIDE;
        ops.caps |= PROVIDER_OWN_KERNEL;
        ops.protects = RUNSC_PROTECTS;
    }
    ops.pool = NULL;
    ops.layer = NULL;
    ops.layers = NULL;
    ops.disk = NULL;
    ops.disks = NULL;
    /* Its namespaces are the engine's, and an engine makes none for users (runner/engine/): root is the host's. */
    if (str_eq(ops.name, "docker")) {
        ops.caps &= ~(uint32_t)PROVIDER_ROOT_INSIDE;
        ops.caps |= PROVIDER_IMAGE;
        ops.protects &= ~(BRIG_LAYER_BIT(BRIG_LAYER_USER_NS) | BRIG_LAYER_BIT(BRIG_LAYER_UID_RANGE));
    }
    int r = create(loop, runner_fd, &ops, &local, err);
    if (r < 0)
        return r;
    local->renews = true;
    *ret = &local->provider;
    return 0;
}
