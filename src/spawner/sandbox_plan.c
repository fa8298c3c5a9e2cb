/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_plan.c: the plan of a sandbox's set-up (sandbox_plan.h). Everything that needs names is resolved here, once;
 * from then on there are descriptors.
 */
#include "spawner/sandbox_plan.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/xattr.h>

#include "base/err.h"
#include "base/str.h"
#include "host/limits.h"
#include "jail/sys.h"

void sandbox_plan_done(struct build *b)
{
    base_close_fd(&b->child_setup);
    base_close_fd(&b->child_control);
    base_close_fd(&b->rootfs_fd);
    base_close_fd(&b->ids_fd);
    base_close_fd(&b->cgroup_fd);
    for (unsigned i = 0; i < b->plan.n_binds; i++)
        base_close_fd(&b->binds[i].mount_fd);
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
    p->kvm = run && (run->flags & WIRE_RUN_KVM);
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
    p->rlimit_memory = cg_host_by(&host->cg, CG_MEMORY) == BY_NONE;
    p->rlimit_pids = cg_host_by(&host->cg, CG_PIDS) == BY_NONE;
    p->off = s->spawner->off;
    p->shared_fds = !plan_off(p, BRIG_LAYER_FDS);
    p->highest_fd = highest_needed(s, b);
}

static bool writes_binds(const struct run_spec *run)
{
    for (unsigned i = 0; run && i < run->n_binds; i++)
        if (!run->binds[i].read_only) /* also an overlay: what is copied up keeps its owner */
            return true;
    return false;
}

int sandbox_plan(struct sandbox *s, const struct run_spec *run, struct build *b, struct brig_err *err)
{
    struct host *host = &s->spawner->host;
    int r = run_has_layers(run) ? layers_check(s->spawner, run, err) : 0;

    if (r == 0 && s->spawner->host_ids)
        s->ids = (struct ids_claim){.slot = -1, .root = INSIDE_ROOT, .user = INSIDE_USER, .whole = true};
    else if (r == 0)
        r = ids_claim(&host->ids, has_root(run) || run_has_layers(run) || run_has_disks(run), &s->ids, err);
    /* Test builds: everybody shares one range. */
    if (r == 0 && (s->spawner->off & BRIG_LAYER_BIT(BRIG_LAYER_UID_RANGE)))
        ids_share(&host->ids, &s->ids);
    /* Subordinate ids could not write to the caller's files, and only root can map ids of a mount. */
    if (r == 0 && host->ids_kind == IDS_PAIR && writes_binds(run) && !has_root(run) && !run_has_layers(run))
        s->ids.user = 0;
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
    if (r < 0)
        return r;
    fill_plan(s, run, b);
    return 0;
}
