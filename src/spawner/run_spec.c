/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_spec.c: checks a run again as the engine asked for it. The engine checks to give good messages. The spawner
 * checks because somebody may have taken over the engine, an unprivileged process, while the spawner may be root.
 * Nothing is created here; sources of binds are checked where they are opened (host_helper.c).
 */
#include <fcntl.h>
#include <string.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/reference.h"
#include "host/limits.h"
#include "host/trust.h"
#include "spawner/spawner.h"

struct cursor {
    const char *at, *end;
};

static const char *next_string(struct cursor *c)
{
    const char *nul = c->at < c->end ? memchr(c->at, '\0', (size_t)(c->end - c->at)) : NULL;
    const char *out = c->at;

    if (!nul)
        return NULL;
    c->at = nul + 1;
    return out;
}

static int read_strings(struct run_spec *spec, int fd, uint32_t len, struct brig_err *err)
{
    /* Sealed, or the engine could change a string after it was checked. */
    if (len == 0 || len > WIRE_STRINGS_MAX || fcntl(fd, F_GET_SEALS) < 0 ||
        (fcntl(fd, F_GET_SEALS) & (F_SEAL_WRITE | F_SEAL_SHRINK)) != (F_SEAL_WRITE | F_SEAL_SHRINK))
        return err_set(err, BRIG_E_HOST, EPROTO, "strings of the run");
    spec->strings = mem_alloc(len);
    if (!spec->strings)
        return err_nomem(err);
    spec->strings_len = len;
    if (pread(fd, spec->strings, len, 0) != (ssize_t)len || spec->strings[len - 1] != '\0')
        return err_set(err, BRIG_E_HOST, EPROTO, "strings of the run");
    return 0;
}

static int check_counts(const struct wire_run *msg, struct brig_err *err)
{
    bool service = msg->flags & WIRE_RUN_SERVICE;
    const uint32_t of_services = WIRE_RUN_ZYGOTE | WIRE_RUN_NEW_LAYER | WIRE_RUN_RAW_UPPER | WIRE_RUN_ANY_USER |
                                 WIRE_RUN_DISK | WIRE_RUN_SUDO | WIRE_RUN_IMAGE | WIRE_RUN_KVM;
    bool program = service
                       ? msg->n_argv == 0 && msg->n_env == 0 &&
                             !(msg->flags & ~(WIRE_RUN_SERVICE | of_services | BRIG_RUN_WRITABLE_ROOT | BRIG_RUN_ROOT))
                       : msg->n_argv >= 1 && msg->n_layers == 0 && msg->n_volumes == 0 && !(msg->flags & of_services);
    bool good = program && msg->n_binds <= WIRE_BINDS_MAX && msg->n_tmpfs <= WIRE_TMPFS_MAX &&
                msg->n_layers <= LAYERS_MAX && msg->n_volumes <= WIRE_VOLUMES_MAX && msg->n_argv <= GUEST_STRINGS_MAX &&
                msg->n_env <= GUEST_STRINGS_MAX && msg->profile < BRIG_PROFILE_MAX &&
                (msg->require >> BRIG_LAYER_MAX) == 0 && msg->trust <= 1 && !(msg->binds_ro & msg->binds_overlay) &&
                !(msg->binds_inside & ~msg->binds_ro) && !(msg->binds_inside && msg->n_layers == 0) &&
                !((msg->flags & WIRE_RUN_ZYGOTE) && (msg->flags & BRIG_RUN_ROOT)) &&
                !((msg->flags & WIRE_RUN_SUDO) && !(msg->flags & BRIG_RUN_ROOT));

    return good ? 0 : err_set(err, BRIG_E_HOST, EPROTO, "counts of the run");
}

static int place_strings(struct run_spec *spec, const struct wire_run *msg, struct brig_err *err)
{
    struct cursor c = {spec->strings, spec->strings + spec->strings_len};
    bool good = (spec->workdir = next_string(&c)) && (spec->name = next_string(&c)) && (spec->rootfs = next_string(&c));

    spec->layers = c.at;
    for (unsigned i = 0; good && i < spec->n_layers; i++)
        good = next_string(&c) != NULL;
    if (good && (msg->flags & WIRE_RUN_NEW_LAYER))
        good = (spec->new_layer = next_string(&c)) != NULL;
    if (good && (msg->flags & WIRE_RUN_DISK))
        good = (spec->disk = next_string(&c)) && (spec->disk_from = next_string(&c));
    for (unsigned i = 0; good && i < spec->n_volumes; i++) {
        spec->volumes[i].disk = next_string(&c);
        spec->volumes[i].target = spec->volumes[i].disk ? next_string(&c) : NULL;
        spec->volumes[i].read_only = msg->volumes_ro & (1u << i);
        good = spec->volumes[i].target != NULL;
    }
    for (unsigned i = 0; good && i < spec->n_binds; i++) {
        spec->binds[i].source = next_string(&c);
        spec->binds[i].target = spec->binds[i].source ? next_string(&c) : NULL;
        spec->binds[i].read_only = msg->binds_ro & (1u << i);
        spec->binds[i].overlay = msg->binds_overlay & (1u << i);
        spec->binds[i].inside = msg->binds_inside & (1u << i);
        good = spec->binds[i].target != NULL;
    }
    for (unsigned i = 0; good && i < spec->n_tmpfs; i++) {
        spec->tmpfs[i].path = next_string(&c);
        spec->tmpfs[i].size = msg->tmpfs_size[i];
        good = spec->tmpfs[i].path != NULL;
    }
    if (good && (msg->flags & WIRE_RUN_ZYGOTE))
        good =
            (spec->zygote = next_string(&c)) && spec->zygote[0] != '\0' && strlen(spec->zygote) < WIRE_ZYGOTE_KEY_MAX;
    spec->argv = c.at;
    for (uint64_t i = 0; good && i < (uint64_t)spec->n_argv + spec->n_env; i++)
        good = next_string(&c) != NULL;
    if (!good || c.at != c.end)
        return err_set(err, BRIG_E_HOST, EPROTO, "strings of the run");
    if (spec->name[0] == '\0')
        spec->name = NULL;
    if (spec->flags & WIRE_RUN_IMAGE) {
        spec->engine_image = spec->rootfs;
        spec->rootfs = NULL;
    } else if (spec->rootfs[0] == '\0') {
        spec->rootfs = NULL;
    }
    if (spec->disk && spec->disk_from[0] == '\0')
        spec->disk_from = NULL;
    return 0;
}

/* Which of the roots a run can have go together, and the names of layers. */
static int check_layers(const struct run_spec *spec, struct brig_err *err)
{
    const char *layer = spec->layers;

    for (unsigned i = 0; i < spec->n_layers; i++, layer += strlen(layer) + 1)
        if (!layer_name_ok(layer))
            return err_usage(err, "layer %s: a name has %u hexadecimal digits", layer, LAYER_NAME_LEN);
    if (spec->new_layer && !layer_new_name_ok(spec->new_layer))
        return err_usage(err, "new layer %s: a name is new- and %u letters or digits", spec->new_layer,
                         ID_SANDBOX_SIZE - 1);
    bool layers = spec->n_layers > 0 || spec->new_layer;
    if (layers && (spec->rootfs || spec->zygote))
        return err_usage(err, "layers: not with a rootfs or a zygote");
    if (spec->new_layer && (!(spec->flags & BRIG_RUN_ROOT) || (spec->flags & BRIG_RUN_WRITABLE_ROOT)))
        return err_usage(err, "new layer %s: only with root inside, and not with a writable root", spec->new_layer);
    if ((spec->flags & WIRE_RUN_RAW_UPPER) &&
        (!spec->n_layers || (!spec->new_layer && !(spec->flags & BRIG_RUN_WRITABLE_ROOT))))
        return err_usage(err, "raw upper: only with layers, as a writable root or below a new layer");
    return 0;
}

/* The name has the one spelling of images, so nothing of it can mean something else to an engine. */
static int check_image(const struct run_spec *spec, struct brig_err *err)
{
    struct image_ref ref;
    char text[IMAGE_REF_TEXT];

    if (!spec->engine_image)
        return 0;
    int r = image_ref_parse(spec->engine_image, &ref, err);
    if (r < 0)
        return r;
    image_ref_text(&ref, text);
    if (!str_eq(text, spec->engine_image))
        return err_usage(err, "image %.100s: must be written %.100s", spec->engine_image, text);
    return spec->n_layers > 0 || spec->new_layer || spec->zygote ? err_usage(err, "image: not with layers or a zygote")
                                                                 : 0;
}

/* The disk of its store, and its volumes. Each is named once. */
static int check_disks(const struct run_spec *spec, struct brig_err *err)
{
    if (spec->disk && !disk_name_ok(spec->disk, DISK_PRE_BOX))
        return err_usage(err, "disk %s: not the name of one", spec->disk);
    if (spec->disk_from && !disk_name_ok(spec->disk_from, DISK_PRE_SNAP) &&
        !disk_name_ok(spec->disk_from, DISK_PRE_VOLUME))
        return err_usage(err, "disk %s: not the name of one that can be copied", spec->disk_from);
    if ((spec->disk && (spec->zygote || spec->new_layer)) || (spec->n_volumes > 0 && spec->zygote))
        return err_usage(err, "disks: not with a zygote or a new layer");
    for (unsigned i = 0; i < spec->n_volumes; i++) {
        /* brig-layer reads the disk of a template. It never writes to one. */
        bool template = spec->new_layer && spec->volumes[i].read_only;
        if (template ? !disk_name_ok(spec->volumes[i].disk, DISK_PRE_SNAP)
                     : spec->new_layer || !disk_name_ok(spec->volumes[i].disk, DISK_PRE_VOLUME))
            return err_usage(err, "volume %s: not the name of one", spec->volumes[i].disk);
        int r = check_mount_target("volume target", spec->volumes[i].target, err);
        if (r < 0)
            return r;
        for (unsigned j = 0; j < i; j++)
            if (str_eq(spec->volumes[i].disk, spec->volumes[j].disk) ||
                str_eq(spec->volumes[i].target, spec->volumes[j].target))
                return err_usage(err, "volume %s: twice in one sandbox", spec->volumes[i].disk);
    }
    return 0;
}

static int check_values(const struct run_spec *spec, struct brig_err *err)
{
    int r = limits_check(&spec->limits, err);

    if (r == 0)
        r = check_layers(spec, err);
    if (r == 0)
        r = check_image(spec, err);
    if (r == 0)
        r = check_disks(spec, err);
    if (r == 0)
        r = check_inside_path("working directory", spec->workdir, err);
    if (r == 0 && spec->name)
        r = check_name(spec->name, err);
    if (r == 0 && spec->rootfs && spec->rootfs[0] != '/')
        r = err_usage(err, "rootfs %s: must be absolute", spec->rootfs);
    if (r == 0 && spec->rootfs && spec->zygote)
        r = err_usage(err, "rootfs %s: a zygote is of the template host", spec->rootfs);
    for (unsigned i = 0; r == 0 && i < spec->n_binds; i++) {
        r = check_mount_target("bind target", spec->binds[i].target, err);
        if (r == 0 && spec->binds[i].source[0] != '/')
            r = err_usage(err, "bind source %s: must be absolute", spec->binds[i].source);
    }
    for (unsigned i = 0; r == 0 && i < spec->n_tmpfs; i++) {
        r = check_mount_target("tmpfs", spec->tmpfs[i].path, err);
        if (r == 0 && (spec->tmpfs[i].size < 4096 || spec->tmpfs[i].size > spec->limits.memory))
            r = err_usage(err, "tmpfs %s: size must be at least 4096 and at most the memory limit",
                          spec->tmpfs[i].path);
    }
    return r;
}

int run_spec_parse(struct run_spec *spec, const struct wire_run *msg, bool image, int *fds, size_t n_fds,
                   struct brig_err *err)
{
    bool bare = msg->flags & (BRIG_RUN_TTY | WIRE_RUN_SERVICE);
    bool has_stdin = !bare && (msg->flags & BRIG_RUN_STDIN);
    size_t want = (bare ? 1u : has_stdin ? 4u : 3u) + (msg->trust ? 1u : 0u);

    *spec = (struct run_spec){.number = msg->head.run,
                              .flags = msg->flags,
                              .profile = (enum brig_profile)msg->profile,
                              .require = msg->require,
                              .limits = msg->limits,
                              .rows = msg->rows,
                              .cols = msg->cols,
                              .n_binds = msg->n_binds,
                              .n_tmpfs = msg->n_tmpfs,
                              .n_layers = msg->n_layers,
                              .n_volumes = msg->n_volumes,
                              .n_argv = msg->n_argv,
                              .n_env = msg->n_env,
                              .stdio = {-1, -1, -1},
                              .gate = msg->gate,
                              .trust_fd = -1};
    if (n_fds != want) {
        fd_close_all(fds, n_fds);
        return err_set(err, BRIG_E_HOST, EPROTO, "descriptors of the run");
    }
    AUTO_FD int strings = take_fd(&fds[0]);
    if (!bare) {
        spec->stdio[0] = has_stdin ? take_fd(&fds[1]) : -1;
        spec->stdio[1] = take_fd(&fds[has_stdin ? 2 : 1]);
        spec->stdio[2] = take_fd(&fds[has_stdin ? 3 : 2]);
    }
    if (msg->trust)
        spec->trust_fd = take_fd(&fds[want - 1]);
    spec->image =
        image && (limits_want_image(&msg->limits, msg->flags & BRIG_RUN_WRITABLE_ROOT) || (msg->flags & WIRE_RUN_DISK));
    limits_fill(&spec->limits, spec->image);
    int r = check_counts(msg, err);
    if (r == 0)
        r = netgate_check(&spec->gate, err);
    if (r == 0 && spec->trust_fd >= 0)
        r = trust_check(spec->trust_fd, err);
    if (r == 0)
        r = read_strings(spec, strings, msg->strings_len, err);
    if (r == 0)
        r = place_strings(spec, msg, err);
    if (r == 0)
        r = check_values(spec, err);
    if (r == 0 && (msg->flags & WIRE_RUN_SERVICE))
        /* of programs; nothing here enforces them */
        spec->limits.timeout = spec->limits.cpu_time = spec->limits.output = 0;
    return r;
}

int run_spec_check_roots(struct run_spec *spec, const struct roots *binds, const struct roots *rootfs,
                         struct brig_err *err)
{
    for (unsigned i = 0; i < spec->n_binds; i++) {
        spec->binds[i].below = spec->binds[i].inside ? NULL : roots_find(binds, spec->binds[i].source);
        if (!spec->binds[i].below && !spec->binds[i].inside)
            return err_set(err, BRIG_E_REFUSED, 0,
                           "bind source %s: not in a directory that this service may share (BRIG_BIND_ROOTS)",
                           spec->binds[i].source);
    }
    spec->rootfs_below = spec->rootfs ? roots_find(rootfs, spec->rootfs) : NULL;
    if (spec->rootfs && !spec->rootfs_below)
        return err_set(err, BRIG_E_REFUSED, 0,
                       "rootfs %s: not in a directory that this service may use (BRIG_ROOTFS_ROOTS)", spec->rootfs);
    return 0;
}

int run_spec_check_kvm(const struct run_spec *spec, bool allowed, struct brig_err *err)
{
    if (!(spec->flags & WIRE_RUN_KVM))
        return 0;
    if (!allowed)
        return err_set(err, BRIG_E_REFUSED, 0,
                       "/dev/kvm: only for a service of root whose configuration has a monitor for it (BRIG_KVM)");
    if (spec->rootfs || spec->n_layers > 0 || spec->new_layer || spec->zygote || spec->disk || spec->n_volumes > 0 ||
        (spec->flags & (BRIG_RUN_ROOT | BRIG_RUN_WRITABLE_ROOT)) || spec->profile != BRIG_PROFILE_DEFAULT)
        return err_usage(err, "/dev/kvm: only in the template host with the profile default, without root inside");
    return 0;
}

void run_spec_done(struct run_spec *spec)
{
    if (!spec)
        return;
    fd_close_all(spec->stdio, 3);
    base_close_fd(&spec->trust_fd);
    mem_free(spec->strings);
    mem_free(spec);
}
