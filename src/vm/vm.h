/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm.h: the providers `vm` and `firecracker`: sandboxes that are virtual machines. Each is a monitor in a sandbox of
 * `local`, as its only program, and the stream of the box goes to the brig-init of the guest.
 */
#ifndef BRIG_VM_VM_H
#define BRIG_VM_VM_H

#include "provider/provider.h"

/* What runs a machine (vm_private.h). */
struct vm_monitor;
extern const struct vm_monitor vm_qemu, vm_firecracker;

/* The strings are copied. */
struct vm_options {
    struct loop *loop;
    struct provider *local;
    const struct vm_monitor *monitor;
    const char *program;       /* the monitor; as a sandbox of `local` sees it, unless it is bound there */
    const char *kernel;        /* .../boot/vmlinuz-VERSION, with .../lib/modules/VERSION beside it */
    const char *initrd;        /* made by vm_initrd_make() */
    const char *root;          /* an image with erofs: the template `host` of virtual machines */
    bool kvm;                  /* or emulation */
    int kept_dir_fd;           /* a directory of ours, for what must be known after a restart; the provider owns it */
    unsigned snapshots;        /* how many machines are kept saved, for warm starts; 0: all machines boot */
    const char *snapshots_dir; /* where: a directory of ours alone; NULL without any */
    int snapshots_dir_fd;      /* the same directory, or -1; the provider owns it */
};
/* On failure both descriptors are closed, too. */
int vm_provider_create(const struct vm_options *options, struct provider **ret, struct brig_err *err) MUST_CHECK;

/*
 * initrd.c: writes the initramfs of that kernel into a new file at `out`: brig-boot and brig-init of the directory
 * `programs`, and the modules that the machine needs. vsock: it is for a machine whose brig-init listens there.
 */
int vm_initrd_make(const char *kernel, const char *programs, bool vsock, const char *out,
                   struct brig_err *err) MUST_CHECK;

#endif
