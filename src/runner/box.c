/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box.c: the life of a box, from a checked run to DONE (carrier.h has the order). What is the same in every sandbox is
 * the spawner's: the cgroup and its limits, the readings from outside, the gate, the verdict, the count, the answer.
 */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"
#include "jail/sys.h"
#include "runner/carrier.h"

#define CONNECT_RETRY_NS (2 * NS_PER_MS)
#define STREAM_BUFFER (1 << 20)

static void begin_opening(struct carried *box);

struct carried *carried_alloc(struct runner *runner)
{
    struct carried *box = mem_zalloc(sizeof *box);

    if (!box)
        return NULL;
    sandbox_init(&box->s, &runner->spawner);
    box->runner = runner;
    box->dir_fd = box->listen_fd = box->netns_fd = box->guest_fd = -1;
    box->opening = OPENING_INIT;
    box->opening.loop = runner->spawner.loop;
    box->child = RUNNER_CHILD_INIT;
    box->child.loop = runner->spawner.loop;
    box->s.service = true;
    box->s.cg.oom_one = true;
    return box;
}

/* ---- the end ------------------------------------------------------------------------------------------ */

void carried_removed(struct carried *box)
{
    struct loop *loop = box->runner->spawner.loop;

    loop_timer_clear(loop, &box->on_late);
    loop_timer_clear(loop, &box->on_retry);
    opening_drop(&box->opening);
    base_close_fd(&box->listen_fd);
    base_close_fd(&box->netns_fd);
    base_close_fd(&box->guest_fd);
    base_close_fd(&box->s.gate_ns_fd);
    image_release(&box->s.image);
    sandbox_finish(&box->s); /* and frees it, now or later */
}

/* Only now: a runner that is killed before this is followed by one that finds the directory, and so the cgroup. */
void carried_forgotten(struct sandbox *s)
{
    struct carried *box = carried_of(s);

    state_remove(box);
    base_close_fd(&box->dir_fd);
}

static void take_away(struct carried *box)
{
    if (box->state == CARRIED_REMOVING)
        return;
    box->state = CARRIED_REMOVING;
    loop_timer_clear(box->runner->spawner.loop, &box->on_late);
    loop_timer_clear(box->runner->spawner.loop, &box->on_retry);
    opening_drop(&box->opening);
    cg_kill(&box->s.cg);
    if (box->runner->ops->remove)
        box->runner->ops->remove(box);
    else
        carried_removed(box);
}

static void on_pidfd(struct loop_source *source, uint32_t events UNUSED)
{
    struct sandbox *s = source->ctx;

    loop_remove(s->spawner->loop, &s->on_pidfd);
    take_away(carried_of(s));
}

void carried_failed(struct carried *box, const struct brig_err *err)
{
    struct sandbox *s = &box->s;

    if (!s->failure.code)
        s->failure = *err;
    (void)verdict_pass(&s->verdict, BRIG_CAUSE_HOST_ERROR);
    take_away(box);
}

/* Once its pid 1 is watched, that tells the end. */
static void fail_made(struct carried *box)
{
    sandbox_end(&box->s, BRIG_CAUSE_HOST_ERROR);
}

void carried_end(struct carried *box, enum brig_cause cause)
{
    sandbox_end(&box->s, cause);
    if (box->state != CARRIED_STARTING) {
        if (box->runner->ops->release)
            box->runner->ops->release(box);
        return;
    }
    if (box->runner->ops->stop) {
        box->runner->ops->stop(box);
        return;
    }
    cg_kill(&box->s.cg);
    runner_child_kill(&box->child);
}

/* ---- START -------------------------------------------------------------------------------------------- */

int carried_connect(const struct carried *box, const char *name, struct brig_err *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int size = STREAM_BUFFER;
    AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return err_host(err, "socket");
    (void)snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d/%s", box->dir_fd, name);
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) < 0)
        return err_host(err, "connect to brig-init");
    /* a window of data and its credits must fit */
    (void)!setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
    return take_fd(&fd);
}

static int connect_init(struct carried *box, struct brig_err *err)
{
    return box->runner->ops->connect ? box->runner->ops->connect(box, err) : carried_connect(box, "s", err);
}

/* What programs may write to beside the usual places: Landlock is put on inside, by these names. */
static int put_places(const struct run_spec *run, struct buf *out, uint32_t *ret_n)
{
    int r = 0;

    for (unsigned i = 0; r == 0 && i < run->n_binds; i++)
        if (!run->binds[i].read_only) {
            r = buf_append(out, run->binds[i].target, strlen(run->binds[i].target) + 1);
            ++*ret_n;
        }
    for (unsigned i = 0; r == 0 && i < run->n_tmpfs; i++) {
        r = buf_append(out, run->tmpfs[i].path, strlen(run->tmpfs[i].path) + 1);
        ++*ret_n;
    }
    return r;
}

static void on_started(void *ctx, int fd, const struct guest_started *started, const struct brig_err *err)
{
    struct carried *box = ctx;
    struct sandbox *s = &box->s;
    AUTO_FD int stream = fd;

    loop_timer_clear(s->spawner->loop, &box->on_late);
    if (err) {
        s->failure = *err;
        fail_made(box);
        return;
    }
    if (!sandbox_take_readings(s, started))
        return; /* a required layer is missing: it is ending */
    s->started = true;
    s->started_ns = clock_mono_ns();
    s->started_at_ns = clock_real_ns();
    box->state = CARRIED_UP;
    if (sandbox_watch_service(s, &s->failure) < 0 || state_write(box, &s->failure) < 0) {
        fail_made(box);
        return;
    }
    service_say_started(s, WIRE_STARTED, &stream, 1);
}

static void on_late(struct loop_timer *timer)
{
    struct carried *box = timer->ctx;
    uint64_t most = box->runner->start_timeout_ns / NS_PER_MS;

    opening_drop(&box->opening);
    (void)err_set(&box->s.failure, BRIG_E_HOST, ETIMEDOUT, "brig-init said nothing within start_timeout, %llu ms",
                  (unsigned long long)most);
    fail_made(box);
}

static void on_retry(struct loop_timer *timer)
{
    begin_opening(timer->ctx);
}

/* Whether it is tried again: brig-init makes its socket itself, and has not come to that. */
static bool retry(struct carried *box, int why)
{
    struct sandbox *s = &box->s;
    uint64_t now = clock_mono_ns();

    if ((why != -ENOENT && why != -ECONNREFUSED) || s->verdict.cause != BRIG_CAUSE_MAX)
        return false;
    if (box->open_by_ns == 0)
        box->open_by_ns = now + box->runner->start_timeout_ns;
    box->on_retry = (struct loop_timer){.fn = on_retry, .ctx = box};
    if (now > box->open_by_ns ||
        loop_timer_set(s->spawner->loop, &box->on_retry, now + CONNECT_RETRY_NS, &s->failure) < 0)
        return false;
    s->failure = (struct brig_err){.code = BRIG_E_NONE};
    return true;
}

static void begin_opening(struct carried *box)
{
    struct sandbox *s = &box->s;
    struct guest_start start;
    AUTO_BUF struct buf places = BUF_INIT(CARRY_START_MAX);
    uint32_t n = 0;

    box->state = CARRIED_OPENING;
    sandbox_start(s, s->run, &start);
    if (put_places(s->run, &places, &n) < 0)
        (void)err_set(&s->failure, BRIG_E_LIMIT, 0, "binds: longer than %u bytes", CARRY_START_MAX);
    start.flags =
        GUEST_START_SERVICE | (n > 0 ? GUEST_START_PLACES : 0) | (s->run->flags & BRIG_RUN_ROOT ? GUEST_START_ROOT : 0);
    start.n_argv = n;
    start.n_env = 0;
    start.strings = places.data;
    int fd = s->failure.code ? -EINVAL : connect_init(box, &s->failure);
    if (fd < 0 && retry(box, fd))
        return;
    box->opening.done = on_started;
    box->opening.ctx = box;
    box->on_late = (struct loop_timer){.fn = on_late, .ctx = box};
    uint64_t late = clock_mono_ns() + box->runner->start_timeout_ns;
    if (fd < 0 || opening_begin(&box->opening, fd, &start, places.len, &s->failure) < 0 ||
        loop_timer_set(s->spawner->loop, &box->on_late, late, &s->failure) < 0)
        fail_made(box);
}

static int watch_init(struct carried *box, pid_t pid, struct brig_err *err)
{
    struct sandbox *s = &box->s;
    char path[32];

    AUTO_FD int pidfd = sys_pidfd_open(pid);
    if (pidfd < 0)
        return err_host(err, "pid 1 of the container");
    /* The number is the runtime's word. Nobody outside of our cgroup is ever watched or killed for it. */
    if (!cg_holds(&s->cg, s->spawner->host.proc_fd, pid))
        return err_set(err, BRIG_E_HOST, 0, "pid %d, which %s says is its container, is not in our cgroup", (int)pid,
                       box->runner->ops->name);
    s->pidfd = take_fd(&pidfd);
    s->pid = pid;
    s->on_pidfd.fn = on_pidfd;
    sandbox_move_up(&s->pidfd);
    (void)snprintf(path, sizeof path, "%d/ns/mnt", (int)pid);
    s->mnt_fd = openat(s->spawner->host.proc_fd, path, O_RDONLY | O_CLOEXEC);
    sandbox_move_up(&s->mnt_fd);
    int r = box->runner->ops->judge ? box->runner->ops->judge(box, err) : 0;
    return r < 0 ? r : loop_add(s->spawner->loop, &s->on_pidfd, s->pidfd, EPOLLIN, err);
}

void carried_made(struct carried *box, pid_t pid)
{
    struct sandbox *s = &box->s;
    const char *device = s->image.device[0] ? s->image.device : NULL;

    base_close_fd(&box->listen_fd);
    int r = watch_init(box, pid, &s->failure);
    if (r < 0) {
        carried_failed(box, &(struct brig_err){.code = BRIG_E_NONE}); /* s->failure says why */
        return;
    }
    sandbox_list_move(s, SANDBOX_RUNNING);
    if (s->verdict.cause != BRIG_CAUSE_MAX) { /* it was ended before there was anybody to kill */
        sandbox_end(s, s->verdict.cause);
        return;
    }
    r = cg_set_limits(&s->cg, &s->limits, NULL, device, s->spawner->off, &s->failure);
    cg_mark(&s->cg);
    if (r == 0 && !sandbox_outside_holds(s))
        return;               /* a required layer is missing: it is ending */
    image_release(&s->image); /* the mount holds the device now */
    if (r == 0)
        r = sandbox_trust_begin(s, &s->failure);
    if (r == 0)
        r = sandbox_gate_begin(s, &s->failure);
    base_close_fd(&s->run->trust_fd);
    if (r == 0)
        r = state_write(box, &s->failure);
    if (r < 0)
        fail_made(box);
    else
        begin_opening(box);
}

/* ---- a run -------------------------------------------------------------------------------------------- */

/* What only our own jail can make. */
static int check_run(const struct runner *runner, const struct run_spec *run, struct brig_err *err)
{
    const struct {
        bool wanted;
        const char *what;
    } not_here[] = {{!(run->flags & WIRE_RUN_SERVICE), "runs of one program"},
                    {run->zygote, "zygotes"},
                    {run->engine_image && !runner->ops->images, "images by name"},
                    {run->new_layer, "new layers"},
                    {run->flags & WIRE_RUN_RAW_UPPER, "raw uppers"},
                    {run->flags & WIRE_RUN_SUDO, "sudo"},
                    {run->flags & WIRE_RUN_KVM, "/dev/kvm"},
                    {run->disk || run->n_volumes > 0, "disks"}};

    if (runner->broken) {
        *err = runner->spawner.facts.err;
        return -EIO;
    }
    for (size_t i = 0; i < ARRAY_SIZE(not_here); i++)
        if (not_here[i].wanted)
            return err_set(err, BRIG_E_UNSUPPORTED, 0, "the provider %s has no %s", runner->ops->name,
                           not_here[i].what);
    return 0;
}

static int make(struct carried *box, struct brig_err *err)
{
    struct sandbox *s = &box->s;
    char name[CG_NAME];
    bool io = s->limits.io_read_bps || s->limits.io_write_bps;
    int r = id_sandbox(s->id) < 0 ? err_set(err, BRIG_E_HOST, EIO, "random id") : 0;

    if (r == 0)
        r = state_make(box, err);
    (void)snprintf(name, sizeof name, CARRIED_CGROUP, s->id);
    if (r == 0)
        r = cg_create(&s->cg, &s->spawner->host.cg, name, err);
    s->cg.oom_one = true;
    if (r == 0)
        r = cg_create_v1(&s->cg, io, err);
    if (r == 0)
        r = state_write(box, err);
    return r < 0 ? r : box->runner->ops->start(box, err);
}

void carried_run(struct runner *runner, struct run_spec *run)
{
    struct brig_err err;
    int r = check_run(runner, run, &err);
    struct carried *box = r == 0 ? carried_alloc(runner) : NULL;

    if (!box) {
        if (r == 0)
            (void)err_nomem(&err);
        if (r < 0 && !runner->broken) /* brigd knows what this provider can do */
            spawner_refuse(&runner->spawner, run, &err);
        else
            spawner_fail(&runner->spawner, run, &err);
        run_spec_done(run);
        return;
    }
    box->s.limits = run->limits;
    sandbox_set_run(&box->s, run);
    r = make(box, &err);
    if (r < 0)
        carried_failed(box, &err);
}

/* ---- ATTACH ------------------------------------------------------------------------------------------- */

static void answer_attach(struct carried *box, int fd, const struct brig_err *err)
{
    struct wire_answer msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_ATTACHED, box->s.run->number}};

    if (err)
        msg.err = *err;
    spawner_send(&box->runner->spawner, &msg, &fd, fd >= 0 ? 1 : 0);
}

static void on_attached(void *ctx, int fd, const struct guest_started *started UNUSED, const struct brig_err *err)
{
    struct carried *box = ctx;
    AUTO_FD int stream = fd;

    loop_timer_clear(box->runner->spawner.loop, &box->on_late);
    answer_attach(box, stream, err);
    box->attaching = false;
    if (box->attach_more > 0) {
        box->attach_more--;
        carried_attach(box);
    }
}

/* A frozen brig-init answers when it is thawed; whoever asks can wait, or not. */
static void on_attach_late(struct loop_timer *timer)
{
    struct carried *box = timer->ctx;
    struct brig_err err;

    opening_drop(&box->opening);
    (void)err_set(&err, BRIG_E_BUSY, ETIMEDOUT, "brig-init does not take a stream");
    on_attached(box, -1, NULL, &err);
}

void carried_attach(struct carried *box)
{
    struct sandbox *s = &box->s;
    struct brig_err err;

    if (box->attaching) {
        box->attach_more++;
        return;
    }
    if (box->state != CARRIED_UP || s->verdict.cause != BRIG_CAUSE_MAX) {
        (void)err_set(&err, BRIG_E_CONFLICT, EAGAIN, "the sandbox is not up");
        answer_attach(box, -1, &err);
        return;
    }
    box->attaching = true;
    box->opening.done = on_attached;
    box->opening.ctx = box;
    box->on_late = (struct loop_timer){.fn = on_attach_late, .ctx = box};
    int fd = connect_init(box, &err);
    uint64_t late = clock_mono_ns() + box->runner->start_timeout_ns;
    if (fd < 0 || opening_begin(&box->opening, fd, NULL, 0, &err) < 0 ||
        loop_timer_set(s->spawner->loop, &box->on_late, late, &err) < 0) {
        opening_drop(&box->opening);
        on_attached(box, -1, NULL, &err);
    }
}

/* ---- an earlier runner's ------------------------------------------------------------------------------ */

void carried_found(struct carried *box, pid_t pid)
{
    struct sandbox *s = &box->s;
    struct brig_err err;
    s->found = true;
    int r = watch_init(box, pid, &err);

    if (r == 0 && box->runner->ops->find)
        r = box->runner->ops->find(box, &err);
    if (r == 0)
        r = sandbox_watch_service(s, &err);
    if (r < 0) { /* nobody is told: brigd does not find it in the list */
        if (s->pid)
            (void)!sys_pidfd_send_signal(s->pidfd, SIGKILL);
        carried_failed(box, &err);
        return;
    }
    /* One of its places is the store itself: what it has used can be measured again. */
    char path[48];
    (void)snprintf(path, sizeof path, "%d/root/workspace", (int)pid);
    s->store_fd = openat(s->spawner->host.proc_fd, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    sandbox_move_up(&s->store_fd);
    sandbox_list_move(s, SANDBOX_RUNNING);
    box->state = CARRIED_UP;
}
