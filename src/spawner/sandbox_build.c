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
#include "spawner/spawner.h"

/* Descriptors that live only until the child has its copy. */
struct build {
    struct jail_plan plan;
    struct plan_bind binds[WIRE_BINDS_MAX];
    struct plan_volume volumes[WIRE_VOLUMES_MAX];
    int child_setup, child_control;
    int rootfs_fd;
    int ids_fd;    /* root inside: the map of its ids, for mounts */
    int cgroup_fd; /* where it is cloned into, when that is not the sandbox's own cgroup */
};

static void build_done(struct build *b)
{
    base_close_fd(&b->child_setup);
    base_close_fd(&b->child_control);
    base_close_fd(&b->rootfs_fd);
    base_close_fd(&b->ids_fd);
    base_close_fd(&b->cgroup_fd);
    for (unsigned i = 0; i < b->plan.n_binds; i++)
        base_close_fd(&b->binds[i].mount_fd);
}

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

static int highest_needed(const struct sandbox *s, const struct build *b)
{
    const struct host *host = &s->spawner->host;
    const int fds[] = {b->child_setup, b->child_control, b->rootfs_fd,  b->ids_fd,
                       host->init_fd,  host->probe_fd,   host->proc_fd, host->mnt_fd};
    int highest = SPAWNER_FD_MIN;

    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        highest = fds[i] > highest ? fds[i] : highest;
    for (unsigned i = 0; i < b->plan.n_binds; i++)
        highest = b->binds[i].mount_fd > highest ? b->binds[i].mount_fd : highest;
    return highest;
}

static bool has_root(const struct run_spec *run)
{
    return run && (run->flags & BRIG_RUN_ROOT);
}

/* Ids of the source's owner become the program's, where the kernel can: what it writes is then the owner's. */
static int map_owner(const struct host *host, uid_t program, const struct bind_source *source, struct brig_err *err)
{
    char uid_map[48], gid_map[48];
    AUTO_FD int ns = -1;

    if (!host->privileged)
        return 0;
    snprintf(uid_map, sizeof uid_map, "%u %u 1", source->uid, program);
    snprintf(gid_map, sizeof gid_map, "%u %u 1", source->gid, program);
    int r = helper_idmap_ns(host, uid_map, gid_map, &ns, err);
    if (r < 0)
        return r;
    r = helper_idmap(source->mount_fd, ns);
    return r == -EOPNOTSUPP ? 0 : r < 0 ? err_set(err, BRIG_E_HOST, -r, "ids of a bind") : 0;
}

/* Uppers of those who are not root, and of template layers, keep what overlay has to remember in user xattrs; tmpfs has
 * them since 6.6. A memfd is a file of one. */
static int check_xattrs(const char *what, struct brig_err *err)
{
    AUTO_FD int file = SYS(memfd_create("xattr", MFD_CLOEXEC));

    if (file < 0)
        return err_host(err, "memfd");
    if (fsetxattr(file, "user.brig", "", 0, 0) < 0)
        return err_set(err, BRIG_E_UNSUPPORTED, 0,
                       "%s needs user xattrs on tmpfs, which this kernel does not have (6.6 and later do)", what);
    return 0;
}

static int check_overlay(const struct host *host, const char *source, bool is_dir, struct brig_err *err)
{
    if (!is_dir)
        return err_usage(err, "bind source %s: an overlay needs a directory", source);
    if (host->privileged)
        return 0;
    char what[256];
    (void)snprintf(what, sizeof what, "bind source %.200s: an overlay without root", source);
    return check_xattrs(what, err);
}

static int prepare_binds(struct sandbox *s, const struct run_spec *run, struct build *b, struct brig_err *err)
{
    const struct host *host = &s->spawner->host;

    for (unsigned i = 0; run && i < run->n_binds; i++) {
        struct bind_source source;
        if (run->binds[i].inside) {
            b->binds[i] = (struct plan_bind){.mount_fd = -1, .target = run->binds[i].target, .read_only = true};
            b->plan.n_binds = i + 1;
            continue;
        }
        int r = helper_clone_source(host, run->binds[i].source, run->binds[i].below, &source, err);
        if (r < 0)
            return r;
        b->binds[i] = (struct plan_bind){source.mount_fd, run->binds[i].target, source.is_dir, run->binds[i].read_only,
                                         run->binds[i].overlay};
        b->plan.n_binds = i + 1;
        if (run->binds[i].overlay && (r = check_overlay(host, run->binds[i].source, source.is_dir, err)) < 0)
            return r;
        if ((r = map_owner(host, has_root(run) ? s->ids.root : s->ids.user, &source, err)) < 0)
            return r;
    }
    b->plan.binds = b->binds;
    return 0;
}

/* The map of its ids, for mounts. */
static int prepare_ids(struct sandbox *s, struct build *b, struct brig_err *err)
{
    char map[48];

    (void)snprintf(map, sizeof map, "0 %u %u", s->ids.root, INSIDE_RANGE);
    int r = helper_idmap_ns(&s->spawner->host, map, map, &b->ids_fd, err);
    b->plan.ids_fd = b->ids_fd;
    return r;
}

/*
 * Root inside must own the files of its root. As root every layer below it is idmapped; a plain user cannot do that, so
 * another root has to belong to the ids already, and the host's files never do.
 */
static int prepare_root_inside(struct sandbox *s, const struct run_spec *run, struct build *b, struct brig_err *err)
{
    const struct host *host = &s->spawner->host;
    struct stat st;
    int r = 0;

    if (!host->privileged && !run->rootfs && !run_has_layers(run))
        return err_set(err, BRIG_E_UNSUPPORTED, 0,
                       "user root: the files of the template host belong to an id that a sandbox of a plain user does "
                       "not map; use a rootfs that belongs to the subordinate ids, or run as root");
    for (unsigned i = 0; !host->privileged && i < run->n_binds; i++)
        if (!run->binds[i].read_only)
            return err_set(err, BRIG_E_UNSUPPORTED, 0,
                           "bind source %s: user root of a plain user's sandbox cannot own it; bind it read-only",
                           run->binds[i].source);
    if (host->privileged)
        r = prepare_ids(s, b, err);
    if (r < 0 || !run->rootfs)
        return r;
    r = helper_clone_rootfs(host, run->rootfs, run->rootfs_below, &b->rootfs_fd, err);
    if (r < 0)
        return r;
    b->plan.rootfs_fd = b->rootfs_fd;
    if (host->privileged) {
        r = helper_idmap(b->rootfs_fd, b->ids_fd);
        return r < 0 ? err_set(err, BRIG_E_UNSUPPORTED, 0,
                               "user root: rootfs %s: its file system or this kernel cannot map ids", run->rootfs)
                     : 0;
    }
    if (fstat(b->rootfs_fd, &st) < 0)
        return err_host(err, "rootfs %s", run->rootfs);
    if (st.st_uid < s->ids.root || st.st_uid - s->ids.root >= INSIDE_RANGE)
        return err_set(err, BRIG_E_UNSUPPORTED, 0,
                       "user root: rootfs %s does not belong to the sandbox's subordinate ids", run->rootfs);
    return 0;
}

static int prepare_rootfs(struct sandbox *s, const struct run_spec *run, struct build *b, struct brig_err *err)
{
    const struct host *host = &s->spawner->host;
    char map[48];
    AUTO_FD int ns = -1;

    if (has_root(run))
        return prepare_root_inside(s, run, b, err);
    if (!run || !run->rootfs)
        return 0;
    int r = helper_clone_rootfs(host, run->rootfs, run->rootfs_below, &b->rootfs_fd, err);
    if (r < 0)
        return r;
    b->plan.rootfs_fd = b->rootfs_fd;
    if (!host->privileged)
        return 0;
    snprintf(map, sizeof map, "0 %u %u", s->ids.root, INSIDE_RANGE);
    if ((r = helper_idmap_ns(host, map, map, &ns, err)) < 0)
        return r;
    r = helper_idmap(b->rootfs_fd, ns);
    return r == -EOPNOTSUPP ? 0 : r < 0 ? err_set(err, BRIG_E_HOST, -r, "ids of the rootfs") : 0;
}

/*
 * Template layers have the ids 0 to 65,535 on disk. As root the sandbox sees them as its own through idmapped mounts; a
 * plain user's sandboxes share the ids that are on disk, so that its own files are not among them.
 */
static int prepare_layers(struct sandbox *s, const struct run_spec *run, struct build *b, struct brig_err *err)
{
    const struct host *host = &s->spawner->host;
    struct jail_plan *p = &b->plan;

    if (!run_has_layers(run))
        return 0;
    int r = 0;
    if ((run->flags & BRIG_RUN_WRITABLE_ROOT) && s->store == STORE_MEMORY)
        r = check_xattrs("layers: a writable root in memory", err);
    for (unsigned i = 0; r == 0 && !host->privileged && i < run->n_binds; i++)
        if (!run->binds[i].read_only)
            r = err_set(err, BRIG_E_UNSUPPORTED, 0,
                        "bind source %s: a plain user's sandbox of template layers cannot own it; bind it read-only",
                        run->binds[i].source);
    if (r == 0 && host->privileged && b->ids_fd < 0)
        r = prepare_ids(s, b, err);
    p->layers = run->layers;
    p->n_layers = run->n_layers;
    p->new_layer = run->new_layer;
    /* The set-up makes /workspace anyway. */
    p->workdir = run->new_layer || strcmp(run->workdir, "/") == 0 || strcmp(run->workdir, "/workspace") == 0
                     ? NULL
                     : run->workdir;
    p->raw_upper = (run->flags & WIRE_RUN_RAW_UPPER) && !run->new_layer;
    p->raw_top = (run->flags & WIRE_RUN_RAW_UPPER) && run->new_layer;
    return r;
}

/* Disks have the ids 0 to 65,535, so that each can be mounted with any range. */
static int prepare_disks(struct sandbox *s, const struct run_spec *run, struct build *b, struct brig_err *err)
{
    struct jail_plan *p = &b->plan;

    if (!run_has_disks(run))
        return 0;
    int r = disks_attach(s, run, err);
    if (r == 0 && b->ids_fd < 0) {
        r = prepare_ids(s, b, err);
        p->ids_fd = -1; /* of the template, whose files stay the host's */
    }
    p->disk_ids_fd = b->ids_fd;
    for (unsigned i = 0; r == 0 && i < run->n_volumes; i++)
        b->volumes[i] = (struct plan_volume){s->volumes[i].node, run->volumes[i].target, run->volumes[i].read_only};
    p->volumes = b->volumes;
    p->n_volumes = run->n_volumes;
    return r;
}

/* An image for those who want one (run_spec.c); else memory, which must not be the smaller bound. */
static int prepare_store(struct sandbox *s, const struct run_spec *run, struct build *b, struct brig_err *err)
{
    const uint64_t bounds = BRIG_LAYER_BIT(BRIG_LAYER_DISK) | BRIG_LAYER_BIT(BRIG_LAYER_INODES);
    bool memory = !run || !run->image || (s->spawner->off & bounds);

    s->store = memory ? STORE_MEMORY : STORE_IMAGE;
    b->plan.store = s->store;
    if (memory)
        return limits_check_memory_store(&s->limits, err);
    int r = limits_check_image(&s->limits, err);
    if (r < 0)
        return r;
    if (run->disk) {
        str_assign(b->plan.store_device, s->image.node);
        b->plan.disk = true;
        b->plan.disk_kept = run->disk_from != NULL;
        return 0;
    }
    r = image_take(&s->spawner->host, s->limits.disk, s->limits.inodes, &s->image, err);
    if (r == 0)
        str_assign(b->plan.store_device, s->image.node);
    return r;
}

static int prepare_cgroup(struct sandbox *s, const struct run_spec *run, struct build *b, struct brig_err *err)
{
    char name[CG_NAME];
    const struct cg_host *cg = &s->spawner->host.cg;

    b->plan.rlimit_memory = cg_host_by(cg, CG_MEMORY) == BY_NONE;
    b->plan.rlimit_pids = cg_host_by(cg, CG_PIDS) == BY_NONE;
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

/* Whether a program can change a file of the host: not through an overlay. */
static bool writes_host(const struct run_spec *run)
{
    for (unsigned i = 0; run && i < run->n_binds; i++)
        if (!run->binds[i].read_only && !run->binds[i].overlay)
            return true;
    return false;
}

static void fill_plan(struct sandbox *s, const struct run_spec *run, struct build *b)
{
    const struct host *host = &s->spawner->host;
    struct jail_plan *p = &b->plan;

    p->setup_fd = b->child_setup;
    p->control_fd = b->child_control;
    p->init_fd = host->init_fd;
    p->probe_fd = host->probe_fd;
    p->init_is_file = host->init_is_file;
    p->two_ids = host->ids_kind != IDS_ONE;
    p->root_inside = has_root(run);
    p->sudo = run && (run->flags & WIRE_RUN_SUDO);
    p->any_user = run && (run->flags & WIRE_RUN_ANY_USER);
    p->set_ids = p->root_inside && !writes_host(run);
    p->outer_root = p->outer_root_gid = s->ids.root;
    p->outer_user = p->outer_user_gid = s->ids.user;
    p->hostname = run && run->name ? run->name : s->id;
    p->host_proc_fd = host->proc_fd;
    p->own_sysctl = s->spawner->n_sandboxes > MANY_SANDBOXES;
    p->host_mnt_fd = host->mnt_fd;
    p->writable_root = run && (run->flags & BRIG_RUN_WRITABLE_ROOT);
    p->mknod_devices = host->mknod_devices;
    /* The upper of a sandbox with root inside may become a layer, and those of root and of users have one form. */
    p->userxattr = !host->privileged || (p->root_inside && s->store == STORE_IMAGE) || p->disk;
    for (unsigned i = 0; i < host->n_lower_dirs; i++)
        p->lower_dirs[i] = host->lower_dirs[i];
    for (unsigned i = 0; i < host->n_root_links; i++) {
        p->root_links[i][0] = host->root_links[i][0];
        p->root_links[i][1] = host->root_links[i][1];
    }
    p->trust = run && run->trust_fd >= 0;
    p->tmpfs = run ? run->tmpfs : NULL;
    p->n_tmpfs = run ? run->n_tmpfs : 0;
    p->limits = s->limits;
    p->profile = run ? run->profile : BRIG_PROFILE_DEFAULT;
    p->landlock_abi = host->landlock_abi;
    p->off = s->spawner->off;
    p->shared_fds = !plan_off(p, BRIG_LAYER_FDS);
    p->highest_fd = highest_needed(s, b);
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

static bool writes_binds(const struct run_spec *run)
{
    for (unsigned i = 0; run && i < run->n_binds; i++)
        if (!run->binds[i].read_only) /* also an overlay: what is copied up keeps its owner */
            return true;
    return false;
}

static int build(struct sandbox *s, const struct run_spec *run, struct build *b, struct brig_err *err)
{
    struct host *host = &s->spawner->host;
    int r = run_has_layers(run) ? layers_check(s->spawner, run, err) : 0;

    if (r == 0)
        r = ids_claim(&host->ids, has_root(run) || run_has_layers(run) || run_has_disks(run), &s->ids, err);
    /* Test builds: everybody shares one range. */
    if (r == 0 && (s->spawner->off & BRIG_LAYER_BIT(BRIG_LAYER_UID_RANGE)))
        ids_share(&host->ids, &s->ids);
    /* Subordinate ids could not write to the caller's files, and only root can map ids of a mount. */
    if (r == 0 && host->ids_kind == IDS_PAIR && writes_binds(run) && !has_root(run) && !run_has_layers(run))
        s->ids.user = 0;
    if (r == 0)
        r = make_channels(s, b, err);
    if (r == 0)
        r = prepare_binds(s, run, b, err);
    if (r == 0)
        r = prepare_rootfs(s, run, b, err);
    s->store = run && run->image ? STORE_IMAGE : STORE_MEMORY; /* prepare_layers() asks */
    if (r == 0)
        r = prepare_layers(s, run, b, err);
    if (r == 0)
        r = prepare_disks(s, run, b, err);
    if (r == 0)
        r = prepare_store(s, run, b, err);
    if (r == 0)
        r = prepare_cgroup(s, run, b, err);
    if (r < 0)
        return r;
    fill_plan(s, run, b);
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

static struct sandbox *sandbox_alloc(struct spawner *spawner)
{
    struct sandbox *s = mem_zalloc(sizeof *s);

    if (!s)
        return NULL;
    s->spawner = spawner;
    s->pidfd = s->control_fd = s->setup_fd = s->store_fd = s->mnt_fd = s->stream_fd = -1;
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
    return s;
}

int sandbox_build(struct spawner *spawner, struct run_spec *run, struct brig_err *err)
{
    struct sandbox *s = sandbox_alloc(spawner);
    struct build b = {.plan = {.rootfs_fd = -1, .ids_fd = -1, .disk_ids_fd = -1},
                      .child_setup = -1,
                      .child_control = -1,
                      .rootfs_fd = -1,
                      .ids_fd = -1,
                      .cgroup_fd = -1};

    if (!s)
        return err_nomem(err);
    if (id_sandbox(s->id) < 0)
        (void)err_set(&s->failure, BRIG_E_HOST, EIO, "random id");
    if (run)
        s->limits = run->limits;
    else
        spawner_default_limits(&s->limits);
    s->service = run && (run->flags & WIRE_RUN_SERVICE);
    int r = s->failure.code ? -EIO : build(s, run, &b, &s->failure);
    build_done(&b);
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
