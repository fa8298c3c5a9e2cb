/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_build.c: from a plan to a sandbox whose pid 1 says HELLO.
 *
 * The spawner prepares what needs names (cgroup, ids, store image, sources of binds), clones, and then only answers:
 * the child does all of its set-up by itself (enter.c), so that many sandboxes are built in parallel. If anything
 * fails, sandbox_finish() removes what was there.
 */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/xattr.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"
#include "host/limits.h"
#include "jail/sys.h"
#include "spawner/sandbox_plan.h"

/* The child shares our table until it has made its own: what it was given stays open until it has said something. */
static void lend(struct sandbox *s, struct build *b)
{
    s->lent[s->n_lent++] = take_fd(&b->child_setup);
    s->lent[s->n_lent++] = take_fd(&b->child_control);
    s->lent[s->n_lent++] = take_fd(&b->rootfs_fd);
    s->lent[s->n_lent++] = take_fd(&b->ids_fd);
    for (unsigned i = 0; i < b->plan.n_binds; i++)
        s->lent[s->n_lent++] = take_fd(&b->binds[i].mount_fd);
}

static int prepare_cgroup(struct sandbox *s, const struct run_spec *run, struct build *b, struct brig_err *err)
{
    char name[CG_NAME];
    const struct cg_host *cg = &s->spawner->host.cg;

    owner_cgroup_name(&s->spawner->host.owner, s->id, name);
    int r = cg_create(&s->cg, cg, name, err);
    s->cg.oom_one = s->service;
    if (r == 0 && (s->service || !run)) /* a parked one may become a service */
        b->cgroup_fd = cg_split(&s->cg);
    return r;
}

/* After the clone, beside the child's own work: it joins when it is done with its mounts. */
static int hand_over(struct sandbox *s, struct brig_err *err)
{
    struct setup_msg msg = {.type = SETUP_PREPARED};
    bool io = s->limits.io_read_bps || s->limits.io_write_bps;
    int fds[PLAN_PREPARED];
    int r = cg_create_v1(&s->cg, io, err);

    for (unsigned i = 0; i < CG_HIERARCHIES; i++)
        sandbox_move_up(&s->cg.v1_fd[i]);
    if (r == 0)
        r = cg_set_limits(&s->cg, &s->limits, NULL, s->image.device[0] ? s->image.device : NULL, s->spawner->off, err);
    sandbox_move_up(&s->cg.oom_event_fd);
    int n = r == 0 ? cg_open_tasks(&s->cg, fds + 1, PLAN_PREPARED - 1, err) : r;
    if (n < 0)
        return n;
    fds[0] = netns_take(&s->spawner->netns);
    msg.netns = fds[0] >= 0;
    r = SYS(fd_send(s->setup_fd, &msg, sizeof msg, fds + !msg.netns, (size_t)n + msg.netns));
    fd_close_all(fds, (size_t)n + 1);
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "hand prepared descriptors to the sandbox") : 0;
}

static int watch(struct sandbox *s, struct brig_err *err)
{
    struct loop *loop = s->spawner->loop;
    int r = s->job ? 0 : loop_add(loop, &s->on_pidfd, s->pidfd, EPOLLIN, err);

    if (r == 0)
        r = loop_add(loop, &s->on_control, s->control_fd, EPOLLIN, err);
    if (r == 0)
        r = loop_add(loop, &s->on_setup, s->setup_fd, EPOLLIN, err);
    return r;
}

static uint64_t clone_flags(const struct build *b)
{
    uint64_t flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD | CLONE_CLEAR_SIGHAND;
    static const struct {
        enum brig_layer layer;
        uint64_t flag;
    } can_be_off[] = {
        {BRIG_LAYER_PID_NS, CLONE_NEWPID}, {BRIG_LAYER_IPC_NS, CLONE_NEWIPC}, {BRIG_LAYER_UTS_NS, CLONE_NEWUTS}};

    for (size_t i = 0; i < ARRAY_SIZE(can_be_off); i++)
        if (plan_off(&b->plan, can_be_off[i].layer))
            flags &= ~can_be_off[i].flag;
    return flags;
}

static int cgroup_to_enter(const struct sandbox *s, const struct build *b)
{
    return s->cg.v2_fd < 0 ? -1 : b->cgroup_fd >= 0 ? b->cgroup_fd : s->cg.v2_fd;
}

/* What of the sandbox's own is needed no more below SANDBOX_FD_MIN. */
static void move_all_up(struct sandbox *s)
{
    sandbox_move_up(&s->pidfd);
    sandbox_move_up(&s->cg.v2_fd);
    sandbox_move_up(&s->image.loop_fd);
    for (size_t i = 0; i < ARRAY_SIZE(s->volumes); i++)
        sandbox_move_up(&s->volumes[i].loop_fd);
}

/* The same clone, by a zygote: it has the interpreter, and we the answer later. */
static int ask_zygote(struct sandbox *s, const struct run_spec *run, struct build *b, struct brig_err *err)
{
    struct zygote_job job = {
        .clone_flags = clone_flags(b), .cgroup_fd = cgroup_to_enter(s, b), .plan = b->plan, .workdir = run->workdir};
    int r = host_settle(&s->spawner->host, err); /* the self-check compares with our namespaces */

    if (r < 0)
        return r;
    s->adopt = true;
    sandbox_start(s, run, &job.start);
    r = zygote_ask(s->spawner, run->zygote, s, &job, err);
    if (r == 0)
        move_all_up(s);
    return r;
}

static int clone_child(struct sandbox *s, struct build *b, struct brig_err *err)
{
    struct clone_args args = {.flags = clone_flags(b), .pidfd = (uint64_t)(uintptr_t)&s->pidfd, .exit_signal = SIGCHLD};
    int cgroup = cgroup_to_enter(s, b);

    if (b->plan.shared_fds)
        args.flags |= CLONE_FILES;
    if (cgroup >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (__u64)cgroup;
    }
    pid_t pid = SYS(sys_clone3(&args));
    if (pid < 0)
        return err_host(err, "clone");
    if (pid == 0)
        jail_enter(&b->plan);
    s->pid = pid;
    if (b->plan.shared_fds)
        lend(s, b);
    move_all_up(s);
    return 0;
}

static int make_channels(struct sandbox *s, struct build *b, struct brig_err *err)
{
    int setup[2], control[2];

    if (SYS(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, setup)) < 0)
        return err_host(err, "socketpair");
    s->setup_fd = setup[0];
    b->child_setup = setup[1];
    if (SYS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control)) < 0)
        return err_host(err, "socketpair");
    s->control_fd = control[0];
    b->child_control = control[1];
    /* Before the clone: a child with a copy of our ends would never notice our death. */
    sandbox_move_up(&s->setup_fd);
    sandbox_move_up(&s->control_fd);
    return 0;
}

static int build(struct sandbox *s, const struct run_spec *run, struct build *b, struct brig_err *err)
{
    int r = make_channels(s, b, err);

    if (r == 0)
        r = sandbox_plan(s, run, b, err);
    if (r == 0)
        r = prepare_cgroup(s, run, b, err);
    if (r < 0)
        return r;
    r = run && run->zygote ? ask_zygote(s, run, b, err) : clone_child(s, b, err);
    if (r == 0)
        r = watch(s, err); /* first: from here on the pidfd tells the end, whatever fails */
    if (r == 0)
        r = hand_over(s, err);
    if (r == 0)
        r = host_settle(&s->spawner->host, err);
    /* From now on somebody removes the cgroups even if we are killed. The fork goes on beside the child's set-up here;
     * until then a cgroup is left to the next spawner. */
    if (s->cg.host)
        reaper_start(&s->spawner->reaper, s->cg.host, &s->spawner->host.owner);
    return r;
}

void sandbox_init(struct sandbox *s, struct spawner *spawner)
{
    s->spawner = spawner;
    s->pidfd = s->control_fd = s->setup_fd = s->store_fd = s->mnt_fd = s->stream_fd = s->gate_ns_fd = -1;
    s->cg = CG_INIT;
    s->ids.slot = -1;
    s->image = IMAGE_INIT;
    for (size_t i = 0; i < ARRAY_SIZE(s->volumes); i++)
        s->volumes[i] = IMAGE_INIT;
    s->verdict = END_VERDICT_NONE;
    s->on_pidfd = (struct loop_source){.fd = -1, .fn = sandbox_on_pidfd, .ctx = s};
    s->on_control = (struct loop_source){.fd = -1, .fn = sandbox_on_control, .ctx = s};
    s->on_setup = (struct loop_source){.fd = -1, .fn = sandbox_on_setup, .ctx = s};
    s->on_oom = (struct loop_source){.fd = -1, .ctx = s};
    sandbox_list_add(spawner, s);
}

int sandbox_build(struct spawner *spawner, struct run_spec *run, struct brig_err *err)
{
    struct sandbox *s = mem_zalloc(sizeof *s);
    struct build b = BUILD_INIT;

    if (!s)
        return err_nomem(err);
    sandbox_init(s, spawner);
    if (id_sandbox(s->id) < 0)
        (void)err_set(&s->failure, BRIG_E_HOST, EIO, "random id");
    if (run)
        s->limits = run->limits;
    else
        spawner_default_limits(&s->limits);
    s->service = run && (run->flags & WIRE_RUN_SERVICE);
    int r = s->failure.code ? -EIO : build(s, run, &b, &s->failure);
    sandbox_plan_done(&b);
    if (r < 0) {
        *err = s->failure;
        sandbox_end(s, BRIG_CAUSE_HOST_ERROR);
        if (s->on_pidfd.fd < 0 && !s->job)
            sandbox_finish(s); /* nobody would tell of its end: finish waits for it itself */
        return r;
    }
    s->for_pool = !run;
    if (run) {
        sandbox_set_run(s, run);
        spawner->running++;
        s->busy = true;
    } else {
        spawner->building_parked++;
    }
    return 0;
}
