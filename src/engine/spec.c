/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec.c: checks what the caller wants, completely and before anything is made, and packs it for the spawner: one fixed
 * struct, and the strings in a sealed memfd. The program's environment is built from nothing here: the base below, then
 * the caller's variables; the later one wins.
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <fcntl.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "engine/engine.h"
#include "host/limits.h"
#include "jail/plan.h"

#define SYSTEM_PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define N_BASE_ENV 6u

const char *const *engine_base_env(bool root)
{
    static const char *const user_env[N_BASE_ENV + 1] = {
        SYSTEM_PATH, "HOME=/home/user", "USER=user", "LOGNAME=user", "LANG=C.UTF-8", "TMPDIR=/tmp",
    };
    static const char *const root_env[N_BASE_ENV + 1] = {
        SYSTEM_PATH, "HOME=/root", "USER=root", "LOGNAME=root", "LANG=C.UTF-8", "TMPDIR=/tmp",
    };

    return root ? root_env : user_env;
}

static size_t count(const char *const *list)
{
    size_t n = 0;

    while (list && list[n])
        n++;
    return n;
}

static size_t name_len(const char *entry)
{
    return strcspn(entry, "=");
}

static bool same_name(const char *a, const char *b)
{
    size_t len = name_len(a);

    return len == name_len(b) && memcmp(a, b, len) == 0;
}

/* Is entry i of the caller's list the last of its name? */
static bool is_last(const char *const *env, size_t i)
{
    for (size_t j = i + 1; env[j]; j++)
        if (same_name(env[i], env[j]))
            return false;
    return true;
}

static bool overridden(const char *entry, const char *const *env)
{
    for (size_t i = 0; env && env[i]; i++)
        if (same_name(entry, env[i]))
            return true;
    return false;
}

static int check_env(const char *const *env, struct brig_err *err)
{
    for (size_t i = 0; env && env[i]; i++) {
        size_t len = name_len(env[i]);
        if (len == 0 || env[i][len] != '=')
            return err_usage(err, "environment %s: must be NAME=value", env[i]);
        for (size_t k = 0; k < len; k++)
            if ((unsigned char)env[i][k] <= 0x20 || env[i][k] == 0x7f)
                return err_usage(err, "environment %.*s: names must not hold spaces or control bytes", (int)len,
                                 env[i]);
    }
    return 0;
}

/* What a sandbox is made of, whether a program comes with it or not. */
static int check_sandbox(const struct brig_spec *spec, unsigned known, struct brig_err *err)
{
    struct brig_limits limits = spec->limits;

    if ((unsigned)spec->profile >= BRIG_PROFILE_MAX)
        return err_usage(err, "profile %d: unknown", (int)spec->profile);
    if (spec->flags & ~known)
        return err_usage(err, "flags %#x: unknown bits", spec->flags & ~known);
    if (spec->require >> BRIG_LAYER_MAX)
        return err_usage(err, "require: unknown layers");
    if ((spec->flags & BRIG_RUN_ROOT) && (spec->require & BRIG_LAYER_BIT(BRIG_LAYER_CAPS)))
        return err_set(err, BRIG_E_REFUSED, 0,
                       "user root: has capabilities inside, so the layer caps cannot be required (nor all layers)");
    if (spec->n_binds > WIRE_BINDS_MAX)
        return err_usage(err, "%zu binds: at most %u", spec->n_binds, WIRE_BINDS_MAX);
    if (spec->n_tmpfs > WIRE_TMPFS_MAX)
        return err_usage(err, "%zu tmpfs: at most %u", spec->n_tmpfs, WIRE_TMPFS_MAX);
    limits_fill(&limits, true);
    int r = limits_check(&limits, err);
    if (r == 0 && spec->workdir)
        r = check_inside_path("working directory", spec->workdir, err);
    if (r == 0 && spec->name)
        r = check_name(spec->name, err);
    for (size_t i = 0; r == 0 && i < spec->n_binds; i++) {
        const struct brig_bind *bind = &spec->binds[i];
        if (!bind->source || bind->source[0] != '/')
            return err_usage(err, "bind source %s: must be absolute", bind->source ? bind->source : "");
        r = check_mount_target("bind target", bind->target ? bind->target : "", err);
        if (r == 0 && bind->read_only && bind->overlay)
            r = err_usage(err, "bind source %s: read-only or an overlay, not both", bind->source);
    }
    for (size_t i = 0; r == 0 && i < spec->n_tmpfs; i++)
        r = check_mount_target("tmpfs", spec->tmpfs[i].path ? spec->tmpfs[i].path : "", err);
    return r;
}

/* What a policy may say is known to brig-egress, which judges it before anything is made (run_gate.c). */
static int check_network(const struct brig_spec *spec, struct brig_err *err)
{
    const struct brig_limits *l = &spec->limits;
    const uint64_t limits[] = {l->net_bytes_in, l->net_bytes_out, l->net_bps, l->connections};

    for (int i = 0; !spec->network && i < (int)ARRAY_SIZE(limits); i++)
        if (limits[i] > 0)
            return err_usage(err, "%s: there is no network to limit",
                             brig_limit_name((enum brig_limit)(BRIG_LIMIT_NET_BYTES_IN + i)));
    if (!spec->network && (spec->flags & BRIG_RUN_LEARN))
        return err_usage(err, "learning: there is no network to learn from");
    if (spec->network && strlen(spec->network) > POLICY_JSON_MAX)
        return err_usage(err, "network: a policy has at most %u bytes", POLICY_JSON_MAX);
    return spec->network && spec->network_name ? check_name(spec->network_name, err) : 0;
}

static int check_spec(const struct brig_spec *spec, struct brig_err *err)
{
    static const unsigned known = BRIG_RUN_STDIN | BRIG_RUN_TTY | BRIG_RUN_KEEP_OUTPUT | BRIG_RUN_KILL_ON_OUTPUT |
                                  BRIG_RUN_WRITABLE_ROOT | BRIG_RUN_PULL | BRIG_RUN_LEARN | BRIG_RUN_ROOT;

    if (!spec->argv || !spec->argv[0] || !spec->argv[0][0])
        return err_usage(err, "command: must not be empty");
    int r = check_sandbox(spec, known, err);
    if (r == 0)
        r = check_network(spec, err);
    return r < 0 ? r : check_env(spec->env, err);
}

/* Names of files: what is wrong with them now is known before anything is made; the spawner looks again. */
static int check_files(const struct brig_spec *spec, struct brig_err *err)
{
    struct stat st;

    for (size_t i = 0; i < spec->n_binds; i++)
        if (stat(spec->binds[i].source, &st) < 0)
            return err_usage(err, "bind source %s: %s", spec->binds[i].source, strerror(errno));
    if (spec->rootfs && stat(spec->rootfs, &st) < 0)
        return err_usage(err, "rootfs %s: %s", spec->rootfs, strerror(errno));
    if (spec->rootfs && !S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
        return err_usage(err, "rootfs %s: must be a directory or a tar file", spec->rootfs);
    return 0;
}

int spec_read(const struct brig_spec *spec, struct brig_spec *ret, struct brig_err *err)
{
    if (!spec || spec->size < offsetof(struct brig_spec, ctx) || spec->size > STRUCT_SIZE_MAX)
        return err_usage(err, "struct brig_spec: size %zu is not a size of it", spec ? spec->size : 0);
    *ret = (struct brig_spec){0};
    memcpy(ret, spec, spec->size < sizeof *ret ? spec->size : sizeof *ret);
    return 0;
}

int brig_spec_check(const struct brig_spec *spec, struct brig_err *err)
{
    struct brig_spec known;
    int r = spec_read(spec, &known, err);

    if (r == 0)
        r = check_spec(&known, err);
    return r < 0 ? r : check_files(&known, err);
}

static int put(struct buf *buf, const char *text)
{
    return buf_append(buf, text, strlen(text) + 1);
}

static int pack_layers(const struct spec_more *more, struct wire_run *msg, struct buf *out)
{
    int r = 0;

    for (size_t i = 0; r >= 0 && i < more->n_layers; i++)
        r = put(out, more->layers[i]);
    if (r >= 0 && more->new_layer)
        r = put(out, more->new_layer);
    msg->n_layers = (uint32_t)more->n_layers;
    msg->flags |= (more->new_layer ? WIRE_RUN_NEW_LAYER : 0) | (more->raw_upper ? WIRE_RUN_RAW_UPPER : 0);
    return r;
}

static int pack_disks(const struct spec_more *more, struct wire_run *msg, struct buf *out)
{
    int r = more->disk ? put(out, more->disk) : 0;

    if (r >= 0 && more->disk)
        r = put(out, more->disk_from ? more->disk_from : "");
    for (size_t i = 0; r >= 0 && i < more->n_volumes; i++) {
        r = put(out, more->volumes[i].disk);
        r = r < 0 ? r : put(out, more->volumes[i].target);
        if (more->volumes[i].read_only)
            msg->volumes_ro |= 1u << i;
    }
    msg->n_volumes = (uint32_t)more->n_volumes;
    msg->flags |= more->disk ? WIRE_RUN_DISK : 0;
    return r;
}

static int pack_sandbox(const struct brig_spec *spec, const struct spec_more *more, struct wire_run *msg,
                        struct buf *out)
{
    int r = put(out, spec->workdir ? spec->workdir : more->raw_upper ? "/" : "/workspace");

    r = r < 0 ? r : put(out, spec->name ? spec->name : "");
    r = r < 0 ? r : put(out, more->image ? more->image : spec->rootfs ? spec->rootfs : "");
    r = r < 0 ? r : pack_layers(more, msg, out);
    r = r < 0 ? r : pack_disks(more, msg, out);
    for (size_t i = 0; r >= 0 && i < spec->n_binds; i++) {
        r = put(out, spec->binds[i].source);
        r = r < 0 ? r : put(out, spec->binds[i].target);
        if (spec->binds[i].read_only)
            msg->binds_ro |= 1u << i;
        if (spec->binds[i].overlay)
            msg->binds_overlay |= 1u << i;
    }
    for (size_t i = 0; r >= 0 && i < spec->n_tmpfs; i++) {
        r = put(out, spec->tmpfs[i].path);
        msg->tmpfs_size[i] = spec->tmpfs[i].size;
    }
    msg->binds_inside = more->binds_inside;
    msg->profile = spec->profile;
    msg->require = spec->require;
    msg->limits = spec->limits;
    msg->n_binds = (uint32_t)spec->n_binds;
    msg->n_tmpfs = (uint32_t)spec->n_tmpfs;
    return r;
}

static int pack(const struct brig_spec *spec, struct wire_run *msg, struct buf *out)
{
    const char *const *base = engine_base_env(spec->flags & BRIG_RUN_ROOT);
    int r = pack_sandbox(spec, &(struct spec_more){0}, msg, out);
    size_t before = out->len;

    for (size_t i = 0; r >= 0 && spec->argv[i]; i++, msg->n_argv++)
        r = put(out, spec->argv[i]);
    for (size_t i = 0; r >= 0 && i < N_BASE_ENV; i++)
        if (!overridden(base[i], spec->env)) {
            r = put(out, base[i]);
            msg->n_env++;
        }
    for (size_t i = 0; r >= 0 && spec->env && spec->env[i]; i++)
        if (is_last(spec->env, i)) {
            r = put(out, spec->env[i]);
            msg->n_env++;
        }
    return r >= 0 && out->len - before > GUEST_STRINGS_MAX ? -EMSGSIZE : r;
}

/* Names and layers of the environment, and argv, kept for the receipt. */
static int keep_lists(struct brig_run *run, const struct brig_spec *spec)
{
    size_t n_env = count(spec->env) + N_BASE_ENV, n_argv = count(spec->argv), bytes = 0;
    const char *const *base_env = engine_base_env(spec->flags & BRIG_RUN_ROOT);

    for (size_t i = 0; i < n_argv; i++)
        bytes += strlen(spec->argv[i]) + 1;
    for (size_t i = 0; spec->env && spec->env[i]; i++)
        bytes += name_len(spec->env[i]) + 1;
    for (size_t i = 0; i < N_BASE_ENV; i++)
        bytes += name_len(base_env[i]) + 1;
    run->strings = mem_alloc(bytes);
    run->lists = mem_realloc_array(NULL, 2 * (n_env + 1) + n_argv + 1, sizeof *run->lists);
    if (!run->strings || !run->lists)
        return -ENOMEM;
    char *at = run->strings;
    const char **names = run->lists, **layers = names + n_env + 1, **argv = layers + n_env + 1;
    size_t n = 0;
    for (size_t i = 0; i < N_BASE_ENV + count(spec->env); i++) {
        bool base = i < N_BASE_ENV;
        const char *entry = base ? base_env[i] : spec->env[i - N_BASE_ENV];
        if (base ? overridden(entry, spec->env) : !is_last(spec->env, i - N_BASE_ENV))
            continue;
        size_t len = name_len(entry);
        memcpy(at, entry, len);
        at[len] = '\0';
        names[n] = at;
        layers[n++] = base ? "base" : "run";
        at += len + 1;
    }
    names[n] = layers[n] = NULL;
    for (size_t i = 0; i < n_argv; i++) {
        size_t len = strlen(spec->argv[i]) + 1;
        memcpy(at, spec->argv[i], len);
        argv[i] = at;
        at += len;
    }
    argv[n_argv] = NULL;
    run->receipt.env_names = names;
    run->receipt.env_layers = layers;
    run->receipt.argv = argv;
    return 0;
}

static int seal(const struct buf *strings, int *ret, struct brig_err *err)
{
    AUTO_FD int fd = memfd_create("brig-run", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return err_host(err, "memfd");
    int r = fd_write_all(fd, strings->data, strings->len);
    if (r < 0)
        return err_set(err, BRIG_E_HOST, -r, "memfd");
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return err_host(err, "memfd");
    *ret = take_fd(&fd);
    return 0;
}

int engine_spec(struct brig_run *run, const struct brig_spec *spec, struct wire_run *msg, int *ret_strings_fd,
                struct brig_err *err)
{
    struct buf strings = BUF_INIT(WIRE_STRINGS_MAX);
    struct brig_limits limits = spec->limits;
    int r = check_spec(spec, err);

    if (r < 0)
        return r;
    r = pack(spec, msg, &strings);
    if (r >= 0)
        r = keep_lists(run, spec);
    if (r < 0) {
        buf_done(&strings);
        return r == -EMSGSIZE ? err_usage(err, "command and environment: longer than %u bytes", GUEST_STRINGS_MAX)
                              : err_nomem(err);
    }
    limits_fill(&limits, true);
    run->output_limit = limits.output;
    run->kept[BRIG_STDOUT] = BUF_INIT((size_t)limits.output);
    run->kept[BRIG_STDERR] = BUF_INIT((size_t)limits.output);
    run->receipt.limits = limits;
    if (spec->name)
        (void)!str_copy(run->receipt.name, sizeof run->receipt.name, spec->name); /* check_name() knows the length */
    msg->flags = spec->flags & ~BRIG_RUN_LEARN; /* which is between us and brig-egress */
    msg->rows = spec->tty_rows;
    msg->cols = spec->tty_cols;
    msg->strings_len = (uint32_t)strings.len;
    r = seal(&strings, ret_strings_fd, err);
    buf_done(&strings);
    return r;
}

/* The spawner judges again, and last; this is so that what is wrong is said before anything is asked for. */
static int check_store(const struct brig_spec *spec, const struct spec_more *more, bool images, struct brig_err *err)
{
    struct brig_limits limits = spec->limits;
    bool image = images && (limits_want_image(&limits, spec->flags & BRIG_RUN_WRITABLE_ROOT) || more->disk);

    limits_fill(&limits, image);
    return image ? limits_check_image(&limits, err) : limits_check_memory_store(&limits, err);
}

int spec_service(const struct brig_spec *spec, const struct spec_more *more, bool images, struct wire_run *msg,
                 int *ret_strings_fd, struct brig_err *err)
{
    const char *zygote = more->zygote;
    struct buf strings = BUF_INIT(WIRE_STRINGS_MAX);
    int r = check_sandbox(spec, BRIG_RUN_WRITABLE_ROOT | BRIG_RUN_ROOT, err);

    if (r == 0 && spec->rootfs && spec->rootfs[0] != '/')
        r = err_usage(err, "rootfs %s: must be absolute", spec->rootfs);
    if (r == 0)
        r = check_store(spec, more, images, err);
    if (r == 0 && more->n_volumes > WIRE_VOLUMES_MAX)
        r = err_usage(err, "%zu volumes: at most %u", more->n_volumes, WIRE_VOLUMES_MAX);
    if (r == 0 && more->n_layers > LAYERS_MAX)
        r = err_usage(err, "%zu layers: at most %u", more->n_layers, LAYERS_MAX);
    if (r == 0 && zygote && (zygote[0] == '\0' || strlen(zygote) >= WIRE_ZYGOTE_KEY_MAX))
        r = err_usage(err, "zygote: a key has 1 to %u bytes", WIRE_ZYGOTE_KEY_MAX - 1);
    if (r < 0)
        return r;
    r = pack_sandbox(spec, more, msg, &strings);
    if (r >= 0 && zygote)
        r = put(&strings, zygote);
    if (r >= 0) {
        msg->flags |= spec->flags | WIRE_RUN_SERVICE | (zygote ? WIRE_RUN_ZYGOTE : 0) |
                      (more->any_user ? WIRE_RUN_ANY_USER : 0) | (more->sudo ? WIRE_RUN_SUDO : 0) |
                      (more->image ? WIRE_RUN_IMAGE : 0) | (more->kvm ? WIRE_RUN_KVM : 0);
        msg->strings_len = (uint32_t)strings.len;
        r = seal(&strings, ret_strings_fd, err);
    } else {
        r = r == -EMSGSIZE ? err_usage(err, "paths of binds: longer than %u bytes", WIRE_STRINGS_MAX) : err_nomem(err);
    }
    buf_done(&strings);
    return r;
}
