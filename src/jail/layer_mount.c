/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_mount.c: overlays over template layers, which are directories of a store that only the spawner works in.
 *
 *     a root of layers     our directories as the top layer, the layers below them; the upper lies in the store
 *     a new layer          /layer is the merged view of the layers below, and its upper is the new layer; if the
 *                          raw upper is asked for, /.brig/upper is the topmost of the layers below
 *
 * The store of layers has the ids 0 to 65,535 on disk. As root each sandbox covers it with a copy of the mount that has
 * the sandbox's ids; a plain user's sandboxes share the ids that are on disk. All of them use `userxattr`, so that a
 * layer has one form whoever made it: a whiteout is a device 0:0, an opaque directory has user.overlay.opaque.
 *
 * mount(2) takes one page of options, while an option of fsconfig(2) has at most 256 bytes and a descriptor as a layer
 * is new in 6.13. So the layers are named by the descriptors of this process in /proc, 17 bytes each.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "codec/sudo_args.h"
#include "jail/plan.h"
#include "jail/sys.h"

#define OPTIONS_MAX 4096u
#define TOP "/r"    /* our own directories (enter_root) */
#define PROBE "/x2" /* the layers alone */
#define ROOT "/r2"
#define UPPER "/s/" RAW_UPPER
#define WORK "/s/work/root"
#define BRIG_DIR ".brig"
#define WORKDIR_DEPTH 64u

static const char *const own_files[][2] = {{TOP "/etc/hosts", "etc/hosts"},
                                           {TOP "/etc/hostname", "etc/hostname"},
                                           {TOP "/etc/resolv.conf", "etc/resolv.conf"}};

/* Lower layers, the topmost first, and perhaps an upper. */
struct layers_overlay {
    const char *top; /* A path that lies above the layers, or NULL. */
    int layers[LAYERS_MAX];
    unsigned n;
    const char *upper, *work; /* NULL: nobody can write. */
};

static int open_layers(struct enter *e, struct layers_overlay *overlay)
{
    const struct jail_plan *p = e->plan;
    const char *name = p->layers;

    TRY(e, "ids of the layers", owner_map_place(p, LAYERS_PLACE));
    AUTO_FD int store = SYS(open(LAYERS_PLACE, O_PATH | O_DIRECTORY | O_CLOEXEC));
    TRY(e, LAYERS_PLACE, store);
    for (; overlay->n < p->n_layers; overlay->n++, name += strlen(name) + 1) {
        int *fd = &overlay->layers[p->n_layers - 1 - overlay->n];
        *fd =
            SYS(sys_openat2(store, name, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS));
        TRY(e, name, *fd);
    }
    return 0;
}

/* Without an upper the kernel wants two lower layers, and with one it wants at least one: /empty has nothing. */
static int write_options(const struct layers_overlay *overlay, char out[OPTIONS_MAX])
{
    int len = snprintf(out, OPTIONS_MAX, "userxattr,index=off,lowerdir=%s", overlay->top ? overlay->top : "");

    for (unsigned i = 0; i < overlay->n && (size_t)len < OPTIONS_MAX; i++)
        len += snprintf(out + len, OPTIONS_MAX - (size_t)len, "%s/proc/self/fd/%d", i > 0 || overlay->top ? ":" : "",
                        overlay->layers[i]);
    if (!overlay->top && (size_t)len < OPTIONS_MAX)
        len += snprintf(out + len, OPTIONS_MAX - (size_t)len, "%s/empty", overlay->n > 0 ? ":" : "");
    if (overlay->upper && (size_t)len < OPTIONS_MAX)
        len += snprintf(out + len, OPTIONS_MAX - (size_t)len, ",upperdir=%s,workdir=%s", overlay->upper, overlay->work);
    errno = ENAMETOOLONG;
    return (size_t)len < OPTIONS_MAX ? 0 : -1;
}

/* Mounts it at a place and opens that. */
static int mount_overlay(struct enter *e, const struct layers_overlay *overlay, const char *place, int *ret_fd)
{
    char options[OPTIONS_MAX];
    unsigned long flags = MS_NOSUID | MS_NODEV | (overlay->upper ? 0 : MS_RDONLY);

    TRY(e, "options of the overlay", write_options(overlay, options));
    TRY(e, "overlay of layers", SYS(mount("overlay", place, "overlay", flags, options)));
    AUTO_FD int fd = SYS(open(place, O_PATH | O_DIRECTORY | O_CLOEXEC));
    TRY(e, place, fd);
    if (overlay->upper)
        TRY(e, "overlay of layers", mount_is_writable(fd));
    *ret_fd = take_fd(&fd);
    return 0;
}

/* Attaches a copy of a place of the inherited tree, read-only. */
static int attach_copy(struct enter *e, const char *from, const char *to, uint64_t attributes)
{
    AUTO_FD int fd = SYS(open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));

    TRY(e, to, fd);
    TRY(e, to, mount_attributes(fd, attributes | MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, false));
    TRY(e, to, mount_attach(fd, e->root_fd, to));
    return 0;
}

/* brig-layer, and the upper of the root: only the sandbox's root gets there. They lie in our own top layer. */
static int make_brig_dir(struct enter *e)
{
    TRY(e, BRIG_DIR, SYS(mkdirat(e->root_fd, BRIG_DIR, 0700)));
    TRY(e, BRIG_DIR, SYS(mkdirat(e->root_fd, BRIG_DIR "/upper", 0700)));
    AUTO_FD int file = SYS(openat(e->root_fd, BRIG_DIR "/layer", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700));
    TRY(e, BRIG_DIR, file);
    return 0;
}

static int attach_tool(struct enter *e)
{
    return attach_copy(e, LAYER_TOOL_PLACE, BRIG_DIR "/layer", 0);
}

/*
 * A directory of our layer stands before that of the image. Where what is written becomes a layer, it has the image's
 * mode, owner and time, or the layer would change them.
 */
static int look_alike(struct enter *e, int probe, const char *path)
{
    char part[256];

    for (const char *end = path + strspn(path, "/"); *end;) {
        struct stat st;

        end += strcspn(end, "/");
        if ((size_t)(end - path) >= sizeof part)
            return 0;
        memcpy(part, path, (size_t)(end - path));
        part[end - path] = '\0';
        end += strspn(end, "/");
        const char *name = part + strspn(part, "/");
        if (fstatat(probe, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
            return 0;
        const struct timespec times[2] = {st.st_atim, st.st_mtim};
        if (SYS(fchownat(e->root_fd, name, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW)) < 0 && errno == ENOENT)
            return 0; /* it is not in our layer */
        TRY(e, name, SYS(fchmodat(e->root_fd, name, st.st_mode & 07777, 0)));
        TRY(e, name, SYS(utimensat(e->root_fd, name, times, AT_SYMLINK_NOFOLLOW)));
    }
    return 0;
}

static int look_alikes(struct enter *e, int probe)
{
    const struct jail_plan *p = e->plan;
    int r = look_alike(e, probe, "etc");

    for (unsigned i = 0; r == 0 && i < p->n_binds; i++)
        r = look_alike(e, probe, p->binds[i].target);
    for (unsigned i = 0; r == 0 && i < p->n_tmpfs; i++)
        r = look_alike(e, probe, p->tmpfs[i].path);
    for (unsigned i = 0; r == 0 && i < p->n_volumes; i++)
        r = look_alike(e, probe, p->volumes[i].target);
    return r == 0 && p->trust ? look_alike(e, probe, TRUST_PLACE) : r;
}

/*
 * The working directory of an image that has none is made by root, as container engines do. A link on the way leads to
 * where our directory would hide it, and a very long way has no room in our layer: then nothing is made here, and
 * brig-init tries as the sandbox's user.
 */
static int make_workdir(struct enter *e, int probe)
{
    const char *path = e->plan->workdir;
    const uint64_t inside = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS;
    AUTO_FD int there = SYS(sys_openat2(probe, path, O_PATH, 0, inside));
    unsigned depth = 0;

    if (there >= 0 || errno != ENOENT)
        return 0;
    for (const char *at = path; *at; at++)
        depth += *at == '/';
    if (depth > WORKDIR_DEPTH)
        return 0;
    TRY(e, path, mount_make_target(e->root_fd, path, true));
    return look_alike(e, probe, path);
}

/* What is to be mounted on must be in our layer, unless the layers have it. */
static int make_places(struct enter *e, const struct layers_overlay *overlay)
{
    const struct jail_plan *p = e->plan;
    AUTO_FD int probe = -1;
    int r = 0;

    if (p->n_binds > 0 || p->n_tmpfs > 0 || p->n_volumes > 0 || p->trust || p->raw_upper || p->sudo || p->workdir) {
        r = mount_overlay(e, overlay, PROBE, &probe);
        if (r == 0)
            r = enter_missing(e, probe);
        if (r == 0 && p->raw_upper)
            r = look_alikes(e, probe);
        if (r == 0 && p->sudo)
            r = look_alike(e, probe, SUDO_DIR);
        if (r == 0 && p->workdir)
            r = make_workdir(e, probe);
    }
    return r == 0 && p->raw_upper ? make_brig_dir(e) : r;
}

int enter_layers(struct enter *e)
{
    const struct jail_plan *p = e->plan;
    struct layers_overlay overlay = {0};
    int root, r = open_layers(e, &overlay);

    if (r == 0)
        r = make_places(e, &overlay);
    if (r < 0)
        return r;
    overlay.top = TOP;
    if (p->writable_root) {
        overlay.upper = UPPER;
        overlay.work = WORK;
        TRY(e, UPPER, enter_store_dir(e, UPPER, 0755));
        TRY(e, WORK, enter_store_dir(e, WORK, 0755));
    }
    r = mount_overlay(e, &overlay, ROOT, &root);
    fd_close_all(overlay.layers, overlay.n);
    if (r < 0)
        return r;
    close(e->root_fd);
    e->root_fd = root;
    if (!p->raw_upper)
        return 0;
    r = attach_copy(e, UPPER, BRIG_DIR "/upper", MOUNT_ATTR_NOEXEC);
    /* Nothing that is ours gets into the layer: these cannot be changed or replaced. */
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(own_files); i++)
        r = attach_copy(e, own_files[i][0], own_files[i][1], MOUNT_ATTR_NOEXEC);
    return r < 0 ? r : attach_tool(e);
}

/* The directory of the topmost layer as it is in the store, which open_layers() has given the sandbox's ids. */
static int attach_top(struct enter *e)
{
    const char *name = e->plan->layers;
    char path[128];

    for (unsigned i = 1; i < e->plan->n_layers; i++)
        name += strlen(name) + 1;
    snprintf(path, sizeof path, LAYERS_PLACE "/%s", name);
    return attach_copy(e, path, BRIG_DIR "/upper", MOUNT_ATTR_NOEXEC);
}

int enter_new_layer(struct enter *e)
{
    const struct jail_plan *p = e->plan;
    struct layers_overlay overlay = {0};
    char upper[128], work[128];
    AUTO_FD int view = -1;

    if (!p->new_layer)
        return 0;
    snprintf(upper, sizeof upper, LAYERS_PLACE "/%s/" LAYER_NEW_DATA, p->new_layer);
    snprintf(work, sizeof work, LAYERS_PLACE "/%s/" LAYER_NEW_WORK, p->new_layer);
    overlay.upper = upper;
    overlay.work = work;
    TRY(e, LAYER_VIEW, SYS(mkdirat(e->root_fd, &LAYER_VIEW[1], 0755)));
    int r = make_brig_dir(e);
    if (r == 0)
        r = open_layers(e, &overlay);
    if (r == 0)
        r = mount_overlay(e, &overlay, TOP LAYER_VIEW, &view);
    fd_close_all(overlay.layers, overlay.n);
    if (r == 0 && p->raw_top)
        r = attach_top(e);
    return r < 0 ? r : attach_tool(e);
}
