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
#include "base/str.h"
#include "brigd/daemon.h"
#include "provider/providers.h"
#include "vm/vm.h"

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

int machines_open(struct daemon_state *d, struct brig_err *err)
{
    const struct config *config = config_get(d->api.config);
    char path[4096], programs[4096];
    int r;

    if (!config->vm_kernel[0] && !config->vm_root[0])
        return 0;
    if (!config->vm_kernel[0] || !config->vm_root[0])
        return err_usage(err, "[vm] kernel and root: one is not set; brig-vm-prepare DIR makes both");
    if (access(config->vm_root, R_OK) < 0)
        return err_host(err, "[vm] root %s", config->vm_root);
    r = make_dir(d->state_dir, "service/vm", path, sizeof path, err);
    if (r == 0)
        r = make_dir(d->state_dir, "service/vm/boot", path, sizeof path, err);
    if (r == 0)
        r = make_dir(d->state_dir, "service/vm/boxes", path, sizeof path, err);
    if (r == 0)
        r = find_programs(programs, sizeof programs, err);
    if (r < 0)
        return r;
    d->vm_dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->vm_dir_fd < 0)
        return err_host(err, "%s", path);
    if (str_format(path, sizeof path, "%s/service/vm/boot/initrd", d->state_dir) < 0)
        return err_usage(err, "%s: too long", d->state_dir);
    return vm_initrd_make(config->vm_kernel, programs, path, err);
}

int machines_start(struct daemon_state *d, struct brig_err *err)
{
    const struct config *config = config_get(d->api.config);
    struct provider *vm = NULL;
    char initrd[4096];

    if (d->vm_dir_fd < 0)
        return 0;
    if (str_format(initrd, sizeof initrd, "%s/service/vm/boot/initrd", d->state_dir) < 0)
        return err_usage(err, "%s: too long", d->state_dir);
    const struct vm_options options = {.loop = d->api.loop,
                                       .local = d->api.provider,
                                       .monitor = &vm_qemu,
                                       .program = config->vm_qemu,
                                       .kernel = config->vm_kernel,
                                       .initrd = initrd,
                                       .root = config->vm_root,
                                       .kvm = str_eq(config->vm_accel, "kvm"),
                                       .kept_dir_fd = take_fd(&d->vm_dir_fd)};
    int r = vm_provider_create(&options, &vm, err);
    if (r < 0)
        return r;
    r = providers_add(d->api.providers, vm, err);
    if (r < 0)
        vm->ops->destroy(vm);
    return r;
}
