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
#define BOOT_NET "brig.net="         /* 1: eth0 is on QEMU's user-mode network */
#define BOOT_MACHINE "brig.machine=" /* /etc/machine-id, 32 hexadecimal digits */
#define BOOT_WAIT "brig.wait="       /* 1: further words come in a line over the port, with these two: */
#define BOOT_TIME "brig.time="       /* nanoseconds since 1970 */
#define BOOT_SEED "brig.seed="       /* random bytes, in BOOT_SEED_DIGITS hexadecimal digits */
#define BOOT_SEED_DIGITS 128
/* A machine that waits answers this line, any number of times, before it gets its words. */
#define BOOT_QUESTION "?\n"
#define BOOT_WAITS "brig-boot waits\n"

/* One line in the kernel's log; then the machine is reset, which ends its monitor. */
__attribute__((noreturn)) void give_up(const char *what, const char *name);
void await_device(const char *path);

/* boot_words.c */
void boot_words_read(void);                                /* the kernel's command line */
const char *boot_word(const char *name);                   /* the value of a word, or "" */
const char *boot_behind(const char *at, const char *name); /* NULL if the text does not begin so */
int boot_words_await(const char *path);                    /* the line; returns the port, open */
void boot_seed(void);
void boot_clock(void);

/*
 * boot_root.c. The image is mounted and the network is up before a machine waits; the rest needs all words. Both do
 * nothing without brig.root.
 */
void boot_image(void);
void boot_root(void);

#endif
