/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot.c: brig-boot, the first stage of a virtual machine: /init of an initramfs, which becomes a carried brig-init.
 *
 * Theory of operation. The kernel of a distribution has its virtio drivers as modules, and an initramfs has nothing
 * mounted. brig-boot mounts what a program expects to find, loads the modules that are listed in /modules/order (one
 * file name per line), waits until the port to the host is there or listens on its vsock, reads its words
 * (boot_words.c), enters the root that they name (boot_root.c), and executes brig-init as pid 1. What goes wrong is one
 * line in the kernel's log, and the machine is reset.
 *
 * Invariants: no C library and no heap, as in brig-init (jail/rawcall.h); it trusts its initramfs, which the provider
 * has made, and reads nothing of a tenant's. Nothing of it is left once brig-init runs.
 */
#include <fcntl.h>
#include <linux/reboot.h>
#include <sys/socket.h>
#include <linux/vm_sockets.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>

#include "guest/boot/boot.h"
#include "guest/init/guest.h"
#include "jail/rawcall.h"

#define PORT "/dev/vport0p1"
#define STREAM_FD 9
#define STREAM_TEXT "9"
#define MODULES "/modules"
#define PORT_PATIENCE_MS 20000
#define PORT_PAUSE_MS 2
#define LOADED ' ' /* instead of the first letter of a module in the list */

static char order[8192]; /* the list of modules */

__attribute__((noreturn)) void give_up(const char *what, const char *name)
{
    const char *pieces[] = {"<2>brig-boot: ", what, name ? " " : "", name ? name : "", "\n"};
    struct iovec iov[ARRAY_SIZE(pieces)];
    long log = raw_call4(SYS_openat, AT_FDCWD, "/dev/kmsg", O_WRONLY | O_CLOEXEC, 0);

    for (unsigned i = 0; i < ARRAY_SIZE(pieces); i++)
        iov[i] = (struct iovec){(void *)(uintptr_t)pieces[i], __builtin_strlen(pieces[i])};
    raw_call3(SYS_writev, raw_failed(log) ? 2 : log, iov, ARRAY_SIZE(iov));
    raw_call4(SYS_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_CMD_RESTART, NULL);
    guest_exit(GUEST_EXIT_BROKEN);
}

static void mount_all(void)
{
    static const struct {
        const char *type, *at, *options;
        unsigned long flags;
    } table[] = {
        {"devtmpfs", "/dev", "mode=755", MS_NOSUID | MS_NOEXEC},
        {"proc", "/proc", "hidepid=invisible", MS_NOSUID | MS_NODEV | MS_NOEXEC},
        {"devpts", "/dev/pts", "newinstance,ptmxmode=0666,mode=0620", MS_NOSUID | MS_NOEXEC},
        {"tmpfs", "/dev/shm", "mode=1777", MS_NOSUID | MS_NODEV},
        {"tmpfs", "/tmp", "mode=1777", MS_NOSUID | MS_NODEV},
        {"tmpfs", "/run", "mode=1777", MS_NOSUID | MS_NODEV},
        {"tmpfs", "/workspace", "mode=1777", MS_NOSUID | MS_NODEV},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(table); i++) {
        raw_call3(SYS_mkdirat, AT_FDCWD, table[i].at, 0755);
        long ret = raw_call5(SYS_mount, table[i].type, table[i].at, table[i].type, table[i].flags, table[i].options);
        if (ret != 0 && ret != -EBUSY) /* a kernel may have mounted /dev already */
            give_up("cannot mount", table[i].at);
    }
}

/* Returns whether it is loaded; false if it needs symbols of another one that is not. */
static bool load(const char *name)
{
    char path[128] = MODULES "/";
    size_t at = sizeof(MODULES), len = __builtin_strlen(name);

    if (len >= sizeof(path) - at)
        give_up("module: the name is too long:", name);
    __builtin_memcpy(path + at, name, len + 1);
    long fd = raw_call4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (raw_failed(fd))
        give_up("there is no module", path);
    long ret = raw_call3(SYS_finit_module, fd, "", 0);
    raw_call1(SYS_close, fd);
    if (ret != 0 && ret != -EEXIST && ret != -ENOENT)
        give_up("cannot load", path);
    return ret != -ENOENT;
}

/*
 * Which of two modules needs the other differs between kernels: what is not loaded is tried again as long as others
 * were.
 */
static void load_list(char *begin, const char *end)
{
    for (bool progress = true, left = true; left;) {
        if (!progress)
            give_up("modules miss symbols; the first of them is", begin);
        progress = left = false;
        for (char *at = begin; at < end; at += __builtin_strlen(at) + 1) {
            if (*at == '\0' || *at == LOADED)
                continue;
            if (load(at)) {
                *at = LOADED;
                progress = true;
            } else if (!left) {
                left = true;
                begin = at;
            }
        }
    }
}

static void load_modules(void)
{
    long fd = raw_call4(SYS_openat, AT_FDCWD, MODULES "/order", O_RDONLY | O_CLOEXEC, 0);

    if (fd == -ENOENT)
        return;
    long len = raw_failed(fd) ? fd : raw_call3(SYS_read, fd, order, sizeof(order) - 1);
    if (len < 0 || len == (long)sizeof(order) - 1)
        give_up("cannot read", MODULES "/order");
    raw_call1(SYS_close, fd);
    for (long i = 0; i < len; i++)
        if (order[i] == '\n')
            order[i] = '\0';
    load_list(order, order + len);
}

void await_device(const char *path)
{
    const struct timespec pause = {.tv_nsec = PORT_PAUSE_MS * 1000000L};
    struct stat st = {0};

    for (int ms = 0; raw_call2(SYS_stat, path, &st) != 0; ms += PORT_PAUSE_MS) {
        if (ms > PORT_PATIENCE_MS)
            give_up("the machine has no", path);
        raw_call2(SYS_nanosleep, &pause, NULL);
    }
}

/* The socket that brig-init will serve on, which keeps its number: only it has one. Firecracker has no virtio port. */
static void listen_vsock(void)
{
    const struct sockaddr_vm address = {.svm_family = AF_VSOCK, .svm_port = BOOT_VSOCK_PORT, .svm_cid = VMADDR_CID_ANY};
    long fd = raw_call3(SYS_socket, AF_VSOCK, SOCK_STREAM, 0);

    if (raw_failed(fd) || raw_call3(SYS_dup3, fd, STREAM_FD, 0) != STREAM_FD ||
        raw_call3(SYS_bind, STREAM_FD, &address, sizeof(address)) != 0 || raw_call2(SYS_listen, STREAM_FD, 8) != 0)
        give_up("no vsock to listen on", NULL);
    raw_call1(SYS_close, fd);
}

/* The line of a machine that waits comes over the port, which brig-init gets as it is then: open. */
static void await_words(void)
{
    int fd = boot_words_await(PORT);

    if (fd != STREAM_FD && raw_call3(SYS_dup3, fd, STREAM_FD, 0) != STREAM_FD)
        give_up("cannot keep the port", NULL);
    if (fd != STREAM_FD)
        raw_call1(SYS_close, fd);
    boot_seed();
    boot_clock();
}

__attribute__((noreturn)) void guest_main(int argc, char *const *argv, char *const *env)
{
    static char *const of_port[] = {(char *)"brig-init", (char *)"carry", (char *)"--device", (char *)PORT, NULL};
    static char *const of_vsock[] = {(char *)"brig-init", (char *)"carry", (char *)"--listen-fd", (char *)STREAM_TEXT,
                                     NULL};
    static char *const of_open[] = {(char *)"brig-init", (char *)"carry", (char *)"--device-fd", (char *)STREAM_TEXT,
                                    NULL};
    static char *const nothing[] = {NULL};

    (void)argc, (void)argv, (void)env;
    mount_all();
    load_modules();
    boot_words_read();
    bool vsock = *boot_word(BOOT_STREAM) == 'v';
    if (vsock)
        listen_vsock();
    else
        await_device(PORT);
    raw_call2(SYS_sethostname, "brig", 4);
    boot_image();
    bool waits = *boot_word(BOOT_WAIT) == '1';
    if (waits)
        await_words();
    boot_root();
    raw_call3(SYS_execve, "/.brig/init", vsock ? of_vsock : waits ? of_open : of_port, nothing);
    give_up("cannot execute", "/.brig/init");
}
