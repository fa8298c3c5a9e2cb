/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machines.c: the provider of virtual machines as a part of brigd. What it boots is made before the lockdown, because
 * afterwards neither the kernel's modules nor our own programs can be read.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"
#include "brigd/daemon.h"
#include "config/provider_names.h"
#include "provider/providers.h"
#include "vm/vm.h"

#define SNAPSHOTS "service/vm/snapshots"

static int make_dir(const char *state_dir, const char *name, char *path, size_t size, struct brig_err *err)
{
    if (str_format(path, size, "%s/%s", state_dir, name) < 0)
        return err_usage(err, "%s: too long", state_dir);
    return mkdir(path, 0700) < 0 && errno != EEXIST ? err_host(err, "%s", path) : 0;
}

/* The directory of this very program: brig-init and brig-boot lie beside it. */
static int find_programs(char *out, size_t size, struct brig_err *err)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);

    if (n < 0)
        return err_host(err, "/proc/self/exe");
    out[n] = '\0';
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = '\0';
    return 0;
}

#define VM_INITRD "initrd"
#define FIRE_INITRD "initrd-firecracker"

static int initrd_path(const struct daemon_state *d, const char *name, char *out, size_t size, struct brig_err *err)
{
    return str_format(out, size, "%s/service/vm/boot/%s", d->state_dir, name) < 0
               ? err_usage(err, "%s: too long", d->state_dir)
               : 0;
}

/* The directory for what is kept of boxes, and the initramfs. */
static int open_place(struct daemon_state *d, const char *dir, const char *initrd, bool vsock, int *ret_fd,
                      struct brig_err *err)
{
    char path[4096], programs[4096], boxes[64];
    int r = make_dir(d->state_dir, "service/vm", path, sizeof path, err);

    if (r == 0)
        r = make_dir(d->state_dir, "service/vm/boot", path, sizeof path, err);
    if (r == 0)
        r = make_dir(d->state_dir, dir, path, sizeof path, err);
    if (r == 0)
        r = str_format(boxes, sizeof boxes, "%s/boxes", dir) < 0
                ? err_usage(err, "%s: too long", dir)
                : make_dir(d->state_dir, boxes, path, sizeof path, err);
    if (r == 0)
        r = find_programs(programs, sizeof programs, err);
    if (r < 0)
        return r;
    *ret_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret_fd < 0)
        return err_host(err, "%s", path);
    r = initrd_path(d, initrd, path, sizeof path, err);
    return r < 0 ? r : vm_initrd_make(config_get(d->api.config)->vm_kernel, programs, vsock, path, err);
}

/* Firecracker takes no compressed kernel. */
static int check_elf(const char *path, struct brig_err *err)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    char magic[4] = "";

    if (fd < 0)
        return err_host(err, "[firecracker] kernel %s", path);
    if (read(fd, magic, sizeof magic) != (ssize_t)sizeof magic || memcmp(magic, "\177ELF", sizeof magic) != 0)
        return err_usage(err, "[firecracker] kernel %s: must be an uncompressed ELF file", path);
    return 0;
}

/* The program need not be there: then the provider is off, and the rest of the service works. */
static int open_fire(struct daemon_state *d, struct brig_err *err)
{
    const struct config *config = config_get(d->api.config);

    if (!config->firecracker_path[0] || !provider_is_among(config->providers_only, "firecracker"))
        return 0;
    if (!config->firecracker_kernel[0] || !config->vm_kernel[0])
        return err_usage(err, "[firecracker] path: needs [firecracker] kernel, and [vm] kernel and root");
    int r = check_elf(config->firecracker_kernel, err);
    return r < 0 || access(config->firecracker_path, X_OK) < 0
               ? r
               : open_place(d, "service/firecracker", FIRE_INITRD, true, &d->fire_dir_fd, err);
}

int machines_open(struct daemon_state *d, struct brig_err *err)
{
    const struct config *config = config_get(d->api.config);
    char path[4096];
    int r = 0;

    if (!config->vm_kernel[0] != !config->vm_root[0])
        return err_usage(err, "[vm] kernel and root: one is not set; brig-vm-prepare DIR makes both");
    if (config->vm_root[0] && access(config->vm_root, R_OK) < 0)
        return err_host(err, "[vm] root %s", config->vm_root);
    if (config->vm_kernel[0])
        r = open_place(d, "service/vm", VM_INITRD, false, &d->vm_dir_fd, err);
    if (r == 0 && config->vm_kernel[0])
        r = make_dir(d->state_dir, SNAPSHOTS, path, sizeof path, err);
    return r < 0 ? r : open_fire(d, err);
}

/* *dir_fd is -1 where there are no such machines. */
static int start(struct daemon_state *d, const char *name, int *dir_fd, struct vm_options options, struct brig_err *err)
{
    AUTO_FD int snapshots_fd = -1;
    struct provider *provider = NULL;
    char initrd[4096];

    if (*dir_fd < 0)
        return 0;
    int r = initrd_path(d, name, initrd, sizeof initrd, err);
    if (r < 0)
        return r;
    if (options.snapshots_dir && (snapshots_fd = open(options.snapshots_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return err_host(err, "%s", options.snapshots_dir);
    options.loop = d->api.loop;
    options.local = d->api.provider;
    options.initrd = initrd;
    options.root = config_get(d->api.config)->vm_root;
    options.kept_dir_fd = take_fd(dir_fd);
    options.snapshots_dir_fd = take_fd(&snapshots_fd);
    r = vm_provider_create(&options, &provider, err);
    if (r < 0)
        return r;
    r = providers_add(d->api.providers, provider, err);
    if (r < 0)
        provider->ops->destroy(provider);
    return r;
}

int machines_start(struct daemon_state *d, struct brig_err *err)
{
    const struct config *config = config_get(d->api.config);
    char snapshots[4096];

    if (str_format(snapshots, sizeof snapshots, "%s/" SNAPSHOTS, d->state_dir) < 0)
        return err_usage(err, "%s: too long", d->state_dir);
    const struct vm_options qemu = {.monitor = &vm_qemu,
                                    .program = config->vm_qemu,
                                    .kernel = config->vm_kernel,
                                    .kvm = str_eq(config->vm_accel, "kvm"),
                                    .snapshots = (unsigned)config->vm_snapshots,
                                    .snapshots_dir = snapshots};
    const struct vm_options fire = {
        .monitor = &vm_firecracker, .program = config->firecracker_path, .kernel = config->firecracker_kernel};
    int r = start(d, VM_INITRD, &d->vm_dir_fd, qemu, err);

    return r < 0 ? r : start(d, FIRE_INITRD, &d->fire_dir_fd, fire, err);
}
