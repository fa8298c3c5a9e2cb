/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carry_words.c: the command line of a brig-init that is not started by our jail, and the descriptors that it begins
 * with: /dev/null as 0, 1 and 2, both ends of a control socket as 3 and 4, and the one it serves on.
 *
 * Whatever is wrong is one line on stderr with the value and the rule, and a status that is not 0. Nothing of the
 * carrier is believed: a descriptor is what fstat says, /dev/null is the kernel's.
 */
#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define SERVED_FD_MIN 10 /* Above everything that has a fixed number. */
#define BACKLOG 8
#define DEVICE_PATIENCE_MS 10000
#define DEVICE_PAUSE_MS 2

/* ---- words ------------------------------------------------------------------------------------------ */

static const char *errno_text(long ret)
{
    switch (-ret) {
    case ENOENT: return "no such file";
    case ECONNREFUSED: return "nobody listens there";
    case EACCES:
    case EPERM: return "permission denied";
    case EBADF: return "not an open descriptor";
    case EADDRINUSE: return "it exists already";
    case ENOTDIR: return "not below a directory";
    case EROFS: return "a read-only file system";
    case ENODEV:
    case ENXIO: return "there is no such device";
    default: return "a system call failed";
    }
}

__attribute__((noreturn)) void words_fail(int status, const char *what, const char *value, long ret)
{
    words_refuse(status, what, value, errno_text(ret));
}

__attribute__((noreturn)) void words_refuse(int status, const char *what, const char *value, const char *why)
{
    const char *pieces[] = {"brig-init: ", what, value ? " " : "", value ? value : "", ": ", why, "\n"};
    struct iovec iov[ARRAY_SIZE(pieces)];

    for (unsigned i = 0; i < ARRAY_SIZE(pieces); i++)
        iov[i] = (struct iovec){(void *)(uintptr_t)pieces[i], __builtin_strlen(pieces[i])};
    raw_call3(SYS_writev, 2, iov, ARRAY_SIZE(iov));
    guest_exit(status);
}

static bool same(const char *a, const char *b)
{
    size_t len = __builtin_strlen(a);

    return len == __builtin_strlen(b) && __builtin_memcmp(a, b, len) == 0;
}

/* A descriptor above 1,023 is nobody's. */
static int descriptor(const char *option, const char *text)
{
    int n = 0;

    for (const char *at = text; *at; at++) {
        if (*at < '0' || *at > '9' || at - text > 3)
            words_refuse(GUEST_EXIT_USAGE, option, text, "must be a number from 0 to 1023");
        n = n * 10 + (*at - '0');
    }
    if (text[0] == '\0' || n > 1023)
        words_refuse(GUEST_EXIT_USAGE, option, text, "must be a number from 0 to 1023");
    return n;
}

/* ---- what it serves on ------------------------------------------------------------------------------ */

static int moved_up(const char *option, const char *text, long fd)
{
    long up = raw_call3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, SERVED_FD_MIN);

    if (raw_failed(up))
        words_fail(GUEST_EXIT_USAGE, option, text, up);
    return (int)up;
}

static struct stat stat_of(const char *option, const char *text, int fd)
{
    struct stat st = {0};
    long ret = raw_call2(SYS_fstat, fd, &st);

    if (ret != 0)
        words_fail(GUEST_EXIT_USAGE, option, text, ret);
    return st;
}

static void do_not_block(int fd)
{
    long flags = raw_call3(SYS_fcntl, fd, F_GETFL, 0);

    if (raw_failed(flags) || raw_call3(SYS_fcntl, fd, F_SETFL, flags | O_NONBLOCK) != 0)
        guest_exit(GUEST_EXIT_BROKEN);
}

static int inherited_listener(const char *text)
{
    static const char option[] = "--listen-fd";
    int fd = moved_up(option, text, descriptor(option, text)), listens = 0;
    uint32_t size = sizeof(listens);

    if (raw_call5(SYS_getsockopt, fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens)
        words_refuse(GUEST_EXIT_USAGE, option, text, "must be a listening socket");
    do_not_block(fd);
    return fd;
}

static int inherited_stream(const char *text, bool *ret_plain)
{
    static const char option[] = "--stream-fd";
    int fd = moved_up(option, text, descriptor(option, text));
    uint32_t kind = stat_of(option, text, fd).st_mode & S_IFMT;

    if (kind != S_IFSOCK && kind != S_IFCHR)
        words_refuse(GUEST_EXIT_USAGE, option, text, "must be a socket or a character device");
    *ret_plain = kind != S_IFSOCK;
    if (*ret_plain)
        do_not_block(fd);
    return fd;
}

long words_address(const char *path, struct sockaddr_un *ret)
{
    size_t len = __builtin_strlen(path);

    if (len == 0 || len >= sizeof(ret->sun_path))
        return -ENAMETOOLONG;
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    __builtin_memcpy(ret->sun_path, path, len + 1);
    return 0;
}

/* A socket that an earlier life of this container has left is replaced; anything else is not ours. */
static int own_listener(const char *path)
{
    static const char option[] = "--listen";
    struct sockaddr_un address;
    struct stat st = {0};

    if (words_address(path, &address) != 0)
        words_refuse(GUEST_EXIT_USAGE, option, path, "must be a path of 1 to 107 bytes");
    if (raw_call4(SYS_newfstatat, AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(st.st_mode))
        raw_call3(SYS_unlinkat, AT_FDCWD, path, 0);
    long made = raw_call3(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = moved_up(option, path, made);
    long mask = raw_call1(SYS_umask, 0177);
    long ret = raw_call3(SYS_bind, fd, &address, sizeof(address));
    raw_call1(SYS_umask, mask);
    if (ret == 0)
        ret = raw_call2(SYS_listen, fd, BACKLOG);
    if (ret != 0)
        words_fail(GUEST_EXIT_USAGE, option, path, ret);
    do_not_block(fd);
    return fd;
}

/* The kernel may have made the node of a virtio port before the port itself (ENXIO). */
static int opened_device(const char *path)
{
    static const char option[] = "--device";
    const struct timespec pause = {.tv_nsec = DEVICE_PAUSE_MS * 1000000L};
    long opened = -ENXIO;

    for (int ms = 0; opened == -ENXIO && ms < DEVICE_PATIENCE_MS; ms += DEVICE_PAUSE_MS) {
        if (ms > 0)
            raw_call2(SYS_nanosleep, &pause, NULL);
        opened = raw_call4(SYS_openat, AT_FDCWD, path, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
    }
    if (raw_failed(opened))
        words_fail(GUEST_EXIT_USAGE, option, path, opened);
    int fd = moved_up(option, path, opened);
    if (!S_ISCHR(stat_of(option, path, fd).st_mode))
        words_refuse(GUEST_EXIT_USAGE, option, path, "must be a character device");
    return fd;
}

/* The port that the first stage of a virtual machine has read its own line from. */
static int inherited_device(const char *text)
{
    static const char option[] = "--device-fd";
    int fd = moved_up(option, text, descriptor(option, text));

    if (!S_ISCHR(stat_of(option, text, fd).st_mode))
        words_refuse(GUEST_EXIT_USAGE, option, text, "must be a character device");
    do_not_block(fd);
    return fd;
}

/* ---- the other descriptors ---------------------------------------------------------------------------- */

/* A root of somebody else's may have anything in /dev. */
static int kernels_null(void)
{
    static const char path[] = "/dev/null";
    long opened = raw_call4(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);

    if (raw_failed(opened))
        words_fail(GUEST_EXIT_BROKEN, "open", path, opened);
    int fd = moved_up("open", path, opened);
    struct stat st = stat_of("open", path, fd);
    if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3))
        words_refuse(GUEST_EXIT_BROKEN, "open", path, "must be the character device 1, 3");
    return fd;
}

static void arrange(int served)
{
    int null = kernels_null(), pair[2] = {-1, -1};
    long ret = 0;

    for (int fd = 0; fd < 3 && !raw_failed(ret); fd++)
        ret = raw_call3(SYS_dup3, null, fd, 0);
    if (!raw_failed(ret))
        ret = raw_call3(SYS_close_range, 3, served - 1, 0);
    if (ret == 0)
        ret = raw_close_from((unsigned)served + 1, 0);
    if (ret == 0)
        ret = raw_call4(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
    if (ret != 0 || pair[0] != INIT_FD_CONTROL || pair[1] != INIT_FD_CONTROL + 1)
        guest_exit(GUEST_EXIT_BROKEN);
}

/* ----------------------------------------------------------------------------------------------------- */

static const char usage[] = "expected carry (--listen-fd N | --listen PATH | --stream-fd N | --device PATH | "
                            "--device-fd N), or connect PATH";

__attribute__((noreturn)) static void carry(const char *option, const char *value)
{
    enum carrier kind = CARRIER_LISTENER;
    bool plain = false;
    int fd;

    if (same(option, "--listen-fd")) {
        fd = inherited_listener(value);
    } else if (same(option, "--listen")) {
        fd = own_listener(value);
    } else if (same(option, "--stream-fd")) {
        kind = CARRIER_STREAM;
        fd = inherited_stream(value, &plain);
    } else if (same(option, "--device")) {
        kind = CARRIER_DEVICE;
        plain = true;
        fd = opened_device(value);
    } else if (same(option, "--device-fd")) {
        kind = CARRIER_DEVICE;
        plain = true;
        fd = inherited_device(value);
    } else {
        words_refuse(GUEST_EXIT_USAGE, "carry", option, usage);
    }
    arrange(fd);
    guest_lock_down();
    /* Not in a pid namespace of its own, it takes care of what its programs leave behind. */
    if (raw_call0(SYS_getpid) != 1 && raw_call5(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        guest_exit(GUEST_EXIT_BROKEN);
    carry_serve(kind, fd, plain);
}

__attribute__((noreturn)) void words_main(int argc, char *const *argv)
{
    if (argc == 4 && same(argv[1], "carry"))
        carry(argv[2], argv[3]);
    if (argc == 3 && same(argv[1], "connect"))
        connect_main(argv[2]);
    words_refuse(GUEST_EXIT_USAGE, argv[1], NULL, usage);
}
