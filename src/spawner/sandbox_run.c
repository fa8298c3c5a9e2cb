/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_run.c: gives a sandbox its program. Limits are set and read back from outside, START is sent with the
 * descriptors, and the clocks (wall, CPU, store) are watched until the main process has ended.
 */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/statfs.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/parse.h"
#include "jail/image_shape.h"
#include "jail/sys.h"
#include "spawner/spawner.h"

#define GRACE_NS (500 * NS_PER_MS)  /* between SIGTERM and the end */
#define SAMPLE_NS (100 * NS_PER_MS) /* of the store's fill */
#define STORE_FULL_BLOCKS 4u
#define CPU_SAMPLE_MIN_NS (5 * NS_PER_MS)

/* A parked sandbox has everything that set-up decides at its default; cgroup limits can still be changed. */
bool sandbox_fits(const struct sandbox *s, const struct run_spec *run)
{
    const struct brig_limits *a = &s->limits, *b = &run->limits;

    return s->state == SANDBOX_PARKED && !run->rootfs && run->n_layers == 0 && !run->new_layer && !run->zygote &&
           !run_has_disks(run) && run->n_binds == 0 && run->n_tmpfs == 0 && !run->name &&
           run->profile == BRIG_PROFILE_DEFAULT &&
           !(run->flags & (BRIG_RUN_WRITABLE_ROOT | BRIG_RUN_ROOT | WIRE_RUN_ANY_USER)) && !run->image &&
           a->disk == b->disk && a->inodes == b->inodes && a->open_files == b->open_files &&
           a->file_size == b->file_size && a->io_read_bps == b->io_read_bps && a->io_write_bps == b->io_write_bps &&
           (s->spawner->host.cg.v2_fd >= 0 || s->spawner->host.cg.n_v1 > 0 ||
            (a->memory == b->memory && a->pids == b->pids));
}

uint64_t sandbox_measure(struct sandbox *s)
{
    struct statfs fs;

    if (s->store_fd < 0 || fstatfs(s->store_fd, &fs) < 0)
        return BRIG_USAGE_UNKNOWN;
    uint64_t unit = (uint64_t)fs.f_bsize, left = (uint64_t)fs.f_bavail;
    uint64_t used = (uint64_t)fs.f_blocks - (uint64_t)fs.f_bfree;
    if (s->store == STORE_IMAGE) { /* what ext4 and the set-up took is not the program's (enter_store_size) */
        uint64_t all = image_blocks(s->limits.disk);
        used = all > left ? all - left : 0;
    }
    used *= unit;
    if (used > s->disk_peak)
        s->disk_peak = used;
    /*
     * Both kinds of store take blocks one by one, so a write of any size is refused only when none is left. A few
     * blocks are allowed for what comes after the refusal: a program that closes, renames or truncates something before
     * it ends.
     */
    s->store_now = (left < STORE_FULL_BLOCKS && fs.f_blocks > 0 ? GUEST_STORE_FULL : 0) |
                   (fs.f_ffree == 0 && fs.f_files > 0 ? GUEST_STORE_NO_INODES : 0);
    s->store_seen |= s->store_now;
    return used;
}

void sandbox_end(struct sandbox *s, enum brig_cause verdict)
{
    if (!s->exited)
        (void)verdict_pass(&s->verdict, verdict);
    loop_timer_clear(s->spawner->loop, &s->on_timeout);
    loop_timer_clear(s->spawner->loop, &s->on_sample);
    loop_timer_clear(s->spawner->loop, &s->on_freeze); /* DONE answers it */
    if (s->pid == 0)
        return;
    cg_kill(&s->cg);
    (void)!sys_pidfd_send_signal(s->pidfd, SIGKILL);
}

int sandbox_send_frame(struct sandbox *s, enum frame_type type, const void *payload, size_t len, const int *fd)
{
    uint8_t packet[FRAME_HEADER + 64];
    struct frame frame = {.length = (uint32_t)len, .type = (uint16_t)type};

    if (len > sizeof packet - FRAME_HEADER)
        return -EMSGSIZE;
    frame_put_header(packet, &frame);
    if (len > 0)
        memcpy(packet + FRAME_HEADER, payload, len);
    return SYS(fd_send_nowait(s->control_fd, packet, FRAME_HEADER + len, fd, fd ? 1 : 0));
}

void sandbox_signal(struct sandbox *s, int signum)
{
    uint8_t number[4] = {(uint8_t)signum, 0, 0, 0};

    if (s->service)
        return; /* it has no main process */
    if (s->state == SANDBOX_BUILDING)
        s->pending_signal = signum;
    else if (s->state == SANDBOX_RUNNING && !s->exited)
        (void)!sandbox_send_frame(s, FRAME_SIGNAL, number, sizeof number, NULL); /* it is dying otherwise */
}

/* Wall clock: SIGTERM, a short grace, then everything. */
static void on_timeout(struct loop_timer *timer)
{
    struct sandbox *s = timer->ctx;
    uint8_t signum[4] = {SIGTERM, 0, 0, 0};

    if (s->grace) {
        sandbox_end(s, BRIG_CAUSE_TIMEOUT);
        return;
    }
    s->grace = true;
    (void)verdict_pass(&s->verdict, BRIG_CAUSE_TIMEOUT);
    if (sandbox_send_frame(s, FRAME_SIGNAL, signum, sizeof signum, NULL) < 0 ||
        loop_timer_set(s->spawner->loop, &s->on_timeout, clock_mono_ns() + GRACE_NS, NULL) < 0)
        sandbox_end(s, BRIG_CAUSE_TIMEOUT);
}

/* Total CPU time and the store's fill; CPU is looked at again when it could be used up at the earliest. */
static void on_sample(struct loop_timer *timer)
{
    struct sandbox *s = timer->ctx;
    uint64_t wait = SAMPLE_NS;

    if (!sandbox_watch(s))
        return;
    sandbox_measure(s);
    if (s->run->limits.cpu_time) {
        uint64_t limit = s->run->limits.cpu_time * NS_PER_MS, used = cg_cpu_ns(&s->cg);
        if (used != BRIG_USAGE_UNKNOWN && used >= limit) {
            sandbox_end(s, BRIG_CAUSE_CPU_LIMIT);
            return;
        }
        uint64_t left = used == BRIG_USAGE_UNKNOWN
                            ? wait
                            : (limit - used) * 1000 / (s->run->limits.cpus > 1000 ? s->run->limits.cpus : 1000);
        wait = left < CPU_SAMPLE_MIN_NS ? CPU_SAMPLE_MIN_NS : left < wait ? left : wait;
    }
    if (loop_timer_set(s->spawner->loop, &s->on_sample, clock_mono_ns() + wait, NULL) < 0)
        sandbox_end(s, BRIG_CAUSE_HOST_ERROR);
}

/* v1: the limit was hit. A kill may follow or not; the counter says so, and then the whole sandbox is ended. */
static void on_oom(struct loop_source *source, uint32_t events UNUSED)
{
    struct sandbox *s = source->ctx;
    uint64_t count;

    (void)!read(s->cg.oom_event_fd, &count, sizeof count);
    if (cg_oom_killed(&s->cg))
        sandbox_end(s, BRIG_CAUSE_OOM);
    else /* the event comes before the kill: look again soon */
        (void)!loop_timer_set(s->spawner->loop, &s->on_oom_check, clock_mono_ns() + CPU_SAMPLE_MIN_NS, NULL);
}

static void on_oom_later(struct loop_timer *timer)
{
    struct sandbox *s = timer->ctx;

    if (s->state == SANDBOX_RUNNING && cg_oom_killed(&s->cg))
        sandbox_end(s, BRIG_CAUSE_OOM);
}

/* The places that a volume covers. */
static uint32_t volume_flags(const struct run_spec *run)
{
    static const char *const places[] = GUEST_PLACES;
    uint32_t flags = 0;

    for (unsigned i = 0; i < run->n_volumes; i++)
        for (unsigned k = 0; k < ARRAY_SIZE(places); k++) {
            size_t len = strlen(run->volumes[i].target);
            if (strncmp(places[k], run->volumes[i].target, len) == 0 &&
                (places[k][len] == '\0' || places[k][len] == '/'))
                flags |= GUEST_START_VOLUME(k);
        }
    return flags;
}

static uint32_t start_flags(const struct sandbox *s)
{
    uint32_t root = s->run->flags & BRIG_RUN_ROOT ? GUEST_START_ROOT : 0;

    if (s->service)
        return root | GUEST_START_SERVICE | (s->has_leaves ? GUEST_START_LEAVES : 0) |
               (s->adopt ? GUEST_START_ADOPT : 0) | (s->run->flags & WIRE_RUN_SUDO ? GUEST_START_SUDO : 0) |
               volume_flags(s->run);
    return root | (s->run->flags & BRIG_RUN_TTY ? GUEST_START_TTY : 0) |
           (s->run->stdio[0] >= 0 ? GUEST_START_STDIN : 0);
}

void sandbox_start(const struct sandbox *s, const struct run_spec *run, struct guest_start *ret)
{
    const struct host *host = &s->spawner->host;
    /* Test builds: without its own user namespace and ids the program is the spawner's user. */
    const uint64_t ids = BRIG_LAYER_BIT(BRIG_LAYER_USER_NS) | BRIG_LAYER_BIT(BRIG_LAYER_UID_RANGE);
    bool as_root = (s->spawner->off & ids) == ids || (run->flags & BRIG_RUN_ROOT);
    *ret = (struct guest_start){
        .uid = as_root ? INSIDE_ROOT : INSIDE_USER,
        .gid = as_root ? INSIDE_ROOT : INSIDE_USER,
        .rows = run->rows,
        .cols = run->cols,
        .profile = run->profile,
        .require = run->require & ~sandbox_outside(s),
        .skip = s->spawner->off,
        .disk = run->limits.disk,
        .inodes = run->limits.inodes,
        .store_by = s->store == STORE_IMAGE ? BY_EXT4_IMAGE : BY_MEMORY,
        .landlock_abi = host->landlock_abi,
        .writable_root = (run->flags & BRIG_RUN_WRITABLE_ROOT) != 0,
        .n_argv = run->n_argv,
        .n_env = run->n_env,
        /* Each program of a service names its own; of layers it may be one that only some users may enter. */
        .workdir = (run->flags & WIRE_RUN_SERVICE) && run->n_layers > 0 ? "/" : run->workdir,
    };
    if (!s->own_kernel)
        memcpy(ret->ns_host, host->ns, sizeof ret->ns_host);
}

static int send_start(struct sandbox *s, const int *fds, size_t n_fds)
{
    const struct run_spec *run = s->run;
    struct guest_start start;
    /* single-threaded; too large for the stack of a small process */
    static uint8_t packet[FRAME_HEADER + FRAME_PAYLOAD_MAX];
    size_t left = run->strings_len - (size_t)(run->argv - run->strings);
    const char *strings = run->argv;

    sandbox_start(s, run, &start);
    start.flags = start_flags(s);
    int used = guest_start_put_head(packet + FRAME_HEADER, FRAME_PAYLOAD_MAX, &start);
    if (used < 0)
        return used;
    for (bool first = true; first || left > 0; first = false) {
        size_t room = FRAME_PAYLOAD_MAX - (size_t)used, part = left < room ? left : room;
        struct frame frame = {
            .type = FRAME_START, .length = (uint32_t)((size_t)used + part), .flags = part < left ? FRAME_MORE : 0};
        memcpy(packet + FRAME_HEADER + used, strings, part);
        frame_put_header(packet, &frame);
        int r = SYS(fd_send(s->control_fd, packet, FRAME_HEADER + frame.length, fds, first ? n_fds : 0));
        if (r < 0)
            return r;
        strings += part;
        left -= part;
        used = 0;
    }
    return 0;
}

static int start_program(struct sandbox *s, struct brig_err *err)
{
    int *stdio = s->run->stdio, first = stdio[0] >= 0 ? 0 : 1;
    AUTO_FD int stream = -1;
    int r = s->service ? service_begin(s, &stream, err) : 0;
    if (r < 0)
        return r;
    if (s->service)
        r = send_start(s, &stream, 1);
    else
        r = send_start(s, stdio + first, s->run->flags & BRIG_RUN_TTY ? 0 : (size_t)(3 - first));
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "send the program to brig-init") : 0;
}

/* A service has none: it lives until it is ended, and its store is looked at when something happens in it. */
static int start_clocks(struct sandbox *s, struct brig_err *err)
{
    struct loop *loop = s->spawner->loop;
    uint64_t now = clock_mono_ns();

    s->started_ns = now;
    s->has_leaves = s->service && cg_has_leaves(&s->cg);
    if (s->service)
        return sandbox_watch_service(s, err);
    s->on_timeout = (struct loop_timer){.fn = on_timeout, .ctx = s};
    s->on_sample = (struct loop_timer){.fn = on_sample, .ctx = s};
    s->on_oom_check = (struct loop_timer){.fn = on_oom_later, .ctx = s};
    int r = loop_timer_set(loop, &s->on_timeout, now + s->run->limits.timeout * NS_PER_MS, err);
    if (r == 0)
        r = loop_timer_set(loop, &s->on_sample, now + (s->run->limits.cpu_time ? CPU_SAMPLE_MIN_NS : SAMPLE_NS), err);
    if (r == 0 && s->cg.oom_event_fd >= 0) {
        s->on_oom.fn = on_oom;
        r = loop_add(loop, &s->on_oom, s->cg.oom_event_fd, EPOLLIN, err);
    }
    return r;
}

static int check_clocks(const struct sandbox *s, struct brig_err *err)
{
    if (s->run->limits.cpu_time && cg_cpu_ns(&s->cg) == BRIG_USAGE_UNKNOWN)
        return err_set(err, BRIG_E_UNSUPPORTED, 0,
                       "cpu_time: no cgroup of this user counts CPU time (see `brig doctor`)");
    return 0;
}

void sandbox_begin(struct sandbox *s, struct run_spec *run)
{
    bool parked = s->state == SANDBOX_PARKED;
    int r = 0;

    sandbox_list_move(s, SANDBOX_RUNNING);
    if (parked) {
        sandbox_set_run(s, run);
        s->spawner->parked--;
        s->spawner->running++;
        s->busy = true;
        s->service = run->flags & WIRE_RUN_SERVICE;
        s->cg.oom_one = s->service;
        r = cg_set_limits(&s->cg, &run->limits, &s->limits, s->image.device[0] ? s->image.device : NULL,
                          s->spawner->off, &s->failure);
    }
    s->limits = run->limits;
    cg_mark(&s->cg);
    if (r == 0 && !sandbox_outside_holds(s))
        return;
    if (r == 0)
        r = check_clocks(s, &s->failure);
    if (r == 0)
        r = sandbox_trust_begin(s, &s->failure);
    if (r == 0 && !s->service)
        r = sandbox_gate_begin(s, &s->failure);
    if (r == 0)
        r = start_clocks(s, &s->failure);
    if (r == 0)
        r = start_program(s, &s->failure);
    /* A service runs nothing of the caller's before STARTED, which this loop reads after it has returned: so the gate
     * is opened while brig-init checks itself, and not before it. */
    if (r == 0 && s->service)
        r = sandbox_gate_begin(s, &s->failure);
    if (r == 0 && s->pending_signal)
        sandbox_signal(s, s->pending_signal);
    fd_close_all(run->stdio, 3); /* the sandbox has them now */
    base_close_fd(&run->trust_fd);
    if (r < 0)
        sandbox_end(s, BRIG_CAUSE_HOST_ERROR);
}

static void on_hello(struct sandbox *s, const struct frame *frame)
{
    struct guest_hello hello;

    bool expected = s->state == SANDBOX_BUILDING || (s->state == SANDBOX_RUNNING && !s->started);

    if (guest_hello_parse(frame->payload, frame->length, &hello) < 0 || hello.version != FRAME_VERSION || !expected) {
        (void)err_set(&s->failure, BRIG_E_HOST, EPROTO, "brig-init speaks another protocol");
        sandbox_end(s, BRIG_CAUSE_HOST_ERROR);
        return;
    }
    if (!s->adopt) { /* pid 2 of a zygote's still has something to say there */
        loop_remove(s->spawner->loop, &s->on_setup);
        base_close_fd(&s->setup_fd);
    }
    if (s->run) {
        if (s->state == SANDBOX_BUILDING)
            sandbox_begin(s, s->run);
        return;
    }
    sandbox_list_move(s, SANDBOX_PARKED);
    s->spawner->building_parked--;
    s->spawner->parked++;
    spawner_pool_changed(s->spawner);
}

void sandbox_broken(struct sandbox *s)
{
    (void)err_set(&s->failure, BRIG_E_HOST, EPROTO, "brig-init broke the protocol");
    sandbox_end(s, BRIG_CAUSE_HOST_ERROR);
}

/* What pid 2 of a zygote's sandbox has read back of itself. brig-init has no probe there. */
static void take_readings(struct sandbox *s)
{
    uint64_t missing = 0;

    for (int i = 0; i < BRIG_LAYER_MAX; i++) {
        if (sandbox_outside(s) & BRIG_LAYER_BIT(i))
            continue;
        s->readings[i] = s->checked_readings[i];
        if (!s->readings[i].on)
            missing |= BRIG_LAYER_BIT(i);
    }
    if (missing & s->run->require)
        sandbox_refuse_missing(s, missing & s->run->require);
}

static void now_started(struct sandbox *s, int *fds, size_t n_fds)
{
    if (s->adopt)
        take_readings(s);
    if (s->failure.code)
        return;
    s->started = true;
    s->started_at_ns = clock_real_ns();
    if (!s->service) {
        service_say_started(s, WIRE_STARTED, fds, n_fds);
        return;
    }
    service_say_started(s, WIRE_STARTED, &s->stream_fd, 1);
    base_close_fd(&s->stream_fd);
    sandbox_not_busy(s); /* it waits: others may be built beside it */
}

void sandbox_checked(struct sandbox *s, const struct setup_checked *msg)
{
    if (s->checked || !s->adopt)
        return;
    s->checked = true;
    memcpy(s->checked_readings, msg->readings, sizeof s->checked_readings);
    if (s->said_started)
        now_started(s, NULL, 0);
}

static void on_started(struct sandbox *s, const struct frame *frame, int *fds, size_t n_fds)
{
    struct guest_started started;

    if (!s->run || s->said_started || guest_started_parse(frame->payload, frame->length, &started) < 0 ||
        (s->service && n_fds > 0)) {
        sandbox_broken(s);
        return;
    }
    if (!sandbox_take_readings(s, &started))
        return;
    s->said_started = true;
    if (s->adopt && !s->checked)
        return; /* pid 2 has yet to tell */
    now_started(s, fds, n_fds);
}

void sandbox_on_frame(struct sandbox *s, const struct frame *frame, int *fds, size_t n_fds, pid_t from)
{
    uint32_t leaf;

    switch (frame->type) {
    case FRAME_HELLO: on_hello(s, frame); return;
    case FRAME_STARTED: on_started(s, frame, fds, n_fds); return;
    case FRAME_EXITED:
        if (!s->exited && guest_exited_parse(frame->payload, frame->length, &s->exit) == 0) {
            s->exited = true;
            return;
        }
        break;
    case FRAME_LEAF:
        if (guest_leaf_parse(frame->payload, frame->length, &leaf) == 0 && service_leaf(s, leaf, from) == 0)
            return;
        break;
    case FRAME_LEAF_END:
        if (guest_leaf_parse(frame->payload, frame->length, &leaf) == 0 && service_leaf_end(s, leaf) == 0)
            return;
        break;
    case FRAME_COUNT:
        if (frame->length == 0 && service_count(s) == 0)
            return;
        break;
    default: break;
    }
    sandbox_broken(s);
}
