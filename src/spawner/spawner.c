/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawner.c: the spawner's main loop: messages in, sandboxes out.
 *
 * Theory of operation. One engine, one socket. Each packet is checked for shape (spawner_wire.c) and content
 * (run_spec.c) before anything is made. A run takes a parked sandbox that fits, or builds one. The pool is
 * refilled, and what dead sandboxes left is removed, when nothing runs and nobody has asked for anything for a moment:
 * building beside a burst would slow the burst. Under a load that has no such moments the pool waits REFILL_LATEST.
 * When the engine's end closes, every sandbox is killed, all of it is removed, and the process ends: nothing outlives
 * its engine, unless that gave us its end to keep (spawner_keep.c); and if the spawner itself is killed, closed control
 * sockets end every pid 1.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "host/limits.h"
#include "jail/sys.h"
#include "spawner/spawner.h"

#define POOL_MAX 2048
#define NOFILE_WANTED 65536u
/* The places in the table of descriptors from the start: 32 KB, and enough for some 500 sandboxes. */
#define FD_TABLE 4096
#define REFILL_AFTER_NS (20 * NS_PER_MS)
#define REFILL_LATEST_NS (500 * NS_PER_MS)
#define REFILL_BATCH 4 /* built side by side: as many as keep two cores busy */

void spawner_default_limits(struct brig_limits *limits)
{
    *limits = (struct brig_limits){0};
    limits_fill(limits, false);
}

/* When it is quiet, or at the latest. */
static uint64_t quiet_at(struct spawner *spawner)
{
    if (spawner->short_ns == 0)
        spawner->short_ns = clock_mono_ns();
    uint64_t latest = spawner->short_ns + REFILL_LATEST_NS;
    return spawner->quiet_ns < latest ? spawner->quiet_ns : latest;
}

static void on_refill(struct loop_timer *timer)
{
    struct spawner *spawner = timer->ctx;
    struct brig_err err;
    uint64_t when = quiet_at(spawner);

    if (when > clock_mono_ns()) { /* somebody asked for something meanwhile */
        (void)!loop_timer_set(spawner->loop, timer, when, NULL);
        return;
    }
    err.code = BRIG_E_NONE;
    while (!spawner->stop && spawner->parked + spawner->building_parked < spawner->pool &&
           spawner->building_parked < REFILL_BATCH)
        if (sandbox_build(spawner, NULL, &err) < 0) {
            spawner->pool = spawner->parked + spawner->building_parked;
            spawner->pool_err = err;
            break;
        }
}

void spawner_active(struct spawner *spawner)
{
    spawner->quiet_ns = clock_mono_ns() + REFILL_AFTER_NS;
}

void spawner_pool_changed(struct spawner *spawner)
{
    if (spawner->stop)
        return;
    if (spawner->parked >= spawner->pool) {
        spawner->short_ns = 0;
        if (!spawner->pool_announced) {
            struct wire_pool msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_POOL_FULL, 0},
                                    .count = spawner->parked,
                                    .err = spawner->pool_err};
            spawner->pool_announced = true;
            spawner_send(spawner, &msg, NULL, 0);
        }
        return;
    }
    spawner->on_refill.fn = on_refill;
    spawner->on_refill.ctx = spawner;
    uint64_t when = spawner->running ? clock_mono_ns() + REFILL_AFTER_NS : quiet_at(spawner);
    (void)!loop_timer_set(spawner->loop, &spawner->on_refill, when, NULL);
}

static void on_run(struct spawner *spawner, const struct wire_run *msg, int *fds, size_t n_fds)
{
    struct brig_err err = {.code = BRIG_E_NONE};

    spawner->pool_announced = false;
    struct run_spec *run = spawner_take_run(spawner, msg, fds, n_fds, &err);
    if (!run)
        return;
    int r = run_spec_check_kvm(run, spawner->host.kvm && spawner->host.mknod_devices, &err);
    if (r == 0 && run->engine_image)
        r = err_set(&err, BRIG_E_UNSUPPORTED, 0, "image %.100s: only an engine has images by name", run->engine_image);
    /* They are all alike: one that does not fit stands for the rest. */
    struct sandbox *parked = spawner->lists[SANDBOX_PARKED];
    if (r == 0 && run_has_disks(run) && (r = disk_run(spawner, run, &err)) == 0)
        return; /* it is built when they are there */
    if (r == 0 && parked && sandbox_fits(parked, run)) {
        sandbox_begin(parked, run);
        spawner_pool_changed(spawner);
        return;
    }
    if (r == 0)
        r = sandbox_build(spawner, run, &err);
    if (r == 0) {
        /* One run may be all there is; from the second on a namespace is made ahead for the next. */
        if (spawner->built++ > 0)
            netns_start(&spawner->netns);
        spawner_pool_changed(spawner);
        return;
    }
    spawner_fail(spawner, run, &err);
    run_spec_done(run);
}

static void on_message(struct spawner *spawner, const union wire_any *msg, int *fds, size_t n_fds)
{
    struct sandbox *s = sandbox_by_run(spawner, msg->head.run);

    if ((msg->head.type == WIRE_KILL && s && s->service) ||
        (msg->head.type == WIRE_RUN && (msg->run.flags & WIRE_RUN_SERVICE)))
        spawner_active(spawner);
    switch (msg->head.type) {
    case WIRE_RUN:
        if (s || msg->head.run == 0 || disk_run_is(spawner, msg->head.run)) { /* numbers name runs: two of one name, and
                                                                                 neither could be spoken of */
            spawner->stop = true;
            break;
        }
        if (msg->head.run > spawner->highest_run)
            spawner->highest_run = msg->head.run;
        on_run(spawner, &msg->run, fds, n_fds);
        break;
    case WIRE_KILL:
        if (s && (msg->kill.cause == BRIG_CAUSE_CANCELLED || msg->kill.cause == BRIG_CAUSE_OUTPUT_LIMIT))
            sandbox_end(s, (enum brig_cause)msg->kill.cause);
        else if (!s)
            disk_run_kill(spawner, msg->head.run);
        break;
    case WIRE_SIGNAL:
        if (s && msg->signal.signum >= 1 && msg->signal.signum <= 64)
            sandbox_signal(s, (int)msg->signal.signum);
        break;
    case WIRE_POOL:
        spawner->pool = msg->pool.count < POOL_MAX ? msg->pool.count : POOL_MAX;
        spawner->pool_err.code = BRIG_E_NONE;
        spawner->pool_announced = false;
        spawner_pool_changed(spawner);
        break;
    case WIRE_ATTACH:
        if (s)
            service_attach(s);
        break;
    case WIRE_FREEZE:
        if (s)
            service_freeze(s, msg->freeze.on);
        break;
    case WIRE_STATS:
        if (s)
            service_stats(s, WIRE_STATS_ARE);
        break;
    case WIRE_LIMITS:
        if (s)
            service_limits(s, &msg->limits);
        break;
    case WIRE_GATE:
        if (s)
            sandbox_gate_more(s, &msg->gate.want);
        break;
    case WIRE_LIST: /* an engine begins; what another one has asked for finds nobody */
        disk_snaps_end(spawner);
        service_list(spawner, msg->head.run);
        break;
    case WIRE_LAYER: layer_obey(spawner, &msg->layer); break;
    case WIRE_LAYERS: layers_tell(spawner, msg->head.run); break;
    case WIRE_DISK: disk_obey(spawner, &msg->disk); break;
    case WIRE_DISKS: disks_tell(spawner, msg->head.run); break;
    case WIRE_KEEP: spawner_keep(spawner, fds, n_fds); break;
    default: spawner->stop = true; /* only an engine talks to us, and it would not say this */
    }
}

static void on_engine(struct loop_source *source, uint32_t events)
{
    spawner_receive(source->ctx, events, on_message);
}

/* The engine is gone, or talks nonsense: end everything, and wait until the kernel has let go of it. */
static void shut_down(struct spawner *spawner)
{
    spawner_keep_done(spawner);
    loop_remove(spawner->loop, &spawner->on_engine);
    base_close_fd(&spawner->engine_fd);
    spawner_drop_queue(spawner);
    spawner->pool = 0;
    for (int state = 0; state < SANDBOX_STATE_MAX; state++)
        for (struct sandbox *s = spawner->lists[state]; s; s = s->next)
            sandbox_end(s, BRIG_CAUSE_CANCELLED);
    while (spawner->n_sandboxes > 0)
        if (loop_run_once(spawner->loop, 100, NULL) < 0)
            break;
}

static void harden(void)
{
    struct rlimit limit;

    prctl(PR_SET_NAME, "brig-spawner");
    /* Its life is the socket's: what is sent to the engine's whole group must not cut the clean-up short. */
    static const int ignored[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGPIPE,  SIGTERM,
                                  SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH, SIGTSTP};

    for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
        signal(ignored[i], SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    /* Eight for each sandbox, and thousands of those; root may have more than it was given. */
    limit = (struct rlimit){NOFILE_WANTED, NOFILE_WANTED};
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/*
 * Grows the table of descriptors while nobody shares it. Growing it later, beside a child or a helper that was cloned
 * with CLONE_FILES, makes the kernel wait for an RCU grace period: ten milliseconds of a run.
 */
static void grow_fd_table(int fd)
{
    struct rlimit limit;
    int last = FD_TABLE - 1;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur <= (rlim_t)last)
        last = (int)limit.rlim_cur - 1;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, last); /* where it fails, the table grows when it must */
    if (high >= 0)
        close(high);
}

static int open_engine(int engine_fd, bool keep_others, pid_t *ret_pid)
{
    struct ucred peer;
    socklen_t len = sizeof peer;

    grow_fd_table(engine_fd);
    int fd = fcntl(engine_fd, F_DUPFD_CLOEXEC, SPAWNER_FD_MIN);

    if (fd < 0 || getsockopt(engine_fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return -1;
    *ret_pid = peer.pid;
    close(engine_fd);
    /* 0 .. SPAWNER_FD_MIN-1 stay occupied, so that nothing of ours lands on the numbers a sandbox is given. */
    close_range(0, SPAWNER_FD_MIN - 1, 0);
    if (!keep_others) {
        if (fd > SPAWNER_FD_MIN)
            close_range(SPAWNER_FD_MIN, (unsigned)fd - 1, 0);
        close_range((unsigned)fd + 1, ~0u, 0);
    }
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = null; i >= 0 && i < SPAWNER_FD_MIN - 1;)
        i = fcntl(null, F_DUPFD_CLOEXEC, 0);
    return fd;
}

#ifdef BRIG_TEST
static uint64_t layers_off(void)
{
    const char *list = getenv("BRIG_TEST_OFF");
    char copy[512], *save = NULL;
    uint64_t off = 0;

    str_cut(copy, sizeof copy, list);
    for (char *name = strtok_r(copy, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        int layer = brig_layer_parse(name);
        if (strcmp(name, "all") == 0)
            off |= BRIG_REQUIRE_ALL;
        else if (layer >= 0)
            off |= BRIG_LAYER_BIT(layer);
    }
    return off;
}
#endif

int spawner_main(int engine_fd, const char *helper_dir)
{
    static struct spawner spawner; /* zeroed; too large for a stack that every clone copies */
    struct wire_ready *ready = &spawner.facts;

    ready->head = (struct wire_head){WIRE_MAGIC, WIRE_VERSION, WIRE_READY, 0};
    spawner.engine_fd = -1;
    spawner.keep = KEEP_INIT;
    spawner.reaper = REAPER_INIT;
    spawner.mover = (struct movers){.fd = -1, .on_answer = {.fd = -1}};
    harden();
#ifdef BRIG_TEST
    spawner.off = layers_off();
#endif
    spawner.engine_fd = open_engine(engine_fd, spawner.off & BRIG_LAYER_BIT(BRIG_LAYER_FDS), &spawner.engine_pid);
    if (spawner.engine_fd < 0)
        return 125;
    int r = host_init(&spawner.host, HOST_SPAWNER, &spawner.netns, spawner.engine_pid, helper_dir, &ready->err);
    prctl(PR_SET_DUMPABLE, 0); /* not before: a plain user's id maps are written through /proc/self */
    if (r == 0)
        r = loop_create(&spawner.loop, &ready->err);
    spawner.on_engine = (struct loop_source){.fd = -1, .fn = on_engine, .ctx = &spawner};
    spawner.engine_events = EPOLLIN;
    if (r == 0)
        r = loop_add(spawner.loop, &spawner.on_engine, spawner.engine_fd, EPOLLIN, &ready->err);
    ready->rootless = (uint32_t)(spawner.host.ids_kind == IDS_RANGE ? 0 : spawner.host.ids_kind == IDS_ONE ? 1 : 2);
    ready->cgroup = cg_host_by(&spawner.host.cg, CG_MEMORY);
    ready->image_store = image_possible(&spawner.host);
    ready->landlock_abi = spawner.host.landlock_abi;
    ready->zygotes = spawner.host.zygote.boot_fd >= 0;
    ready->layers = spawner.host.layers.fd >= 0;
    ready->disks = spawner.host.disks.dir_fd >= 0;
    if (r == 0)
        layer_jobs_start(&spawner);
    spawner_send(&spawner, ready, NULL, 0);
    while (r == 0 && !spawner.stop)
        r = loop_run_once(spawner.loop, -1, NULL);
    if (spawner.loop)
        shut_down(&spawner);
    netns_done(&spawner.netns);
    zygotes_done(&spawner);
    service_mover_done(&spawner);
    layer_jobs_done(&spawner);
    disk_jobs_done(&spawner);
    /* it must have left the cgroup we go back from */
    reaper_done(&spawner.reaper, &spawner.host.owner, spawner.n_sandboxes == 0, spawner.host.cg.v2_self_fd >= 0);
    loop_destroy(spawner.loop);
    host_done(&spawner.host);
    return r < 0 ? 125 : 0;
}
