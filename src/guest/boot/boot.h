/* SPDX-License-Identifier: Apache-2.0 */
/* boot.h: what the files of brig-boot share, and the words that its provider writes on the kernel's command line. */
#ifndef BRIG_GUEST_BOOT_BOOT_H
#define BRIG_GUEST_BOOT_BOOT_H

#include "base/base.h"

/*
 * The words. Without brig.root the machine stays in its initramfs. The first device has the image of the root, and is
 * never written to.
 */
#define BOOT_ROOT "brig.root="         /* the type of its file system */
#define BOOT_DISK "brig.disk="         /* bytes that can be written, in memory */
#define BOOT_INODES "brig.inodes="     /* files that can be made */
#define BOOT_PIDS "brig.pids="         /* processes and threads at once, brig-init's own included */
#define BOOT_HOST "brig.host="         /* the name of the machine */
#define BOOT_WRITABLE "brig.writable=" /* 1: the root has an upper layer, which counts as what is written */
#define BOOT_STREAM "brig.stream="     /* vsock: brig-init listens on its port; else it has a virtio port */
#define BOOT_VSOCK_PORT 2744
#define BOOT_NET "brig.net=" /* 1: eth0 is on QEMU's user-mode network */

/* One line in the kernel's log; then the machine is reset, which ends its monitor. */
__attribute__((noreturn)) void give_up(const char *what, const char *name);
void await_device(const char *path);
void boot_words_read(void);              /* before the next two */
const char *boot_word(const char *name); /* its value, or "" */
void boot_root(void);

#endif
