/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_root.c: enters the root of a virtual machine: an image that nobody can write to, as the kernel's command line
 * says (boot.h).
 *
 * The root is an overlay of /skel over the image: /skel has the directories that are mounted on and the files of /etc
 * that are this machine's own, as real files, so that a link of the image at their place leads nowhere. Everything that
 * can be written to is one tmpfs, whose size and number of files are the sandbox's limits.
 */
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_arp.h>
#include <linux/route.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "codec/wire/guest_msg.h"
#include "guest/boot/boot.h"
#include "jail/rawcall.h"

#define DEVICE "/dev/vda"
#define NEW "/new"
#define QUIET (MS_NOSUID | MS_NODEV)

static char text[1024]; /* what is being put together */

/* Puts the pieces together in `text`; the last is NULL. */
static const char *join(const char *const *pieces)
{
    size_t used = 0;

    for (; *pieces; pieces++) {
        size_t len = __builtin_strlen(*pieces);
        if (len >= sizeof(text) - used)
            give_up("the command line is too long", NULL);
        __builtin_memcpy(text + used, *pieces, len);
        used += len;
    }
    text[used] = '\0';
    return text;
}
#define JOIN(...) join((const char *const[]){__VA_ARGS__, NULL})

/* ---- files ------------------------------------------------------------------------------------------- */

static void make_dir(const char *path, mode_t mode)
{
    long ret = raw_call3(SYS_mkdirat, AT_FDCWD, path, mode);

    if ((ret != 0 && ret != -EEXIST) || raw_call3(SYS_fchmodat, AT_FDCWD, path, mode) != 0)
        give_up("cannot make", path);
}

static void make_file(const char *path, const char *content)
{
    long fd = raw_call4(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    if (raw_failed(fd) || raw_call3(SYS_write, fd, content, __builtin_strlen(content)) < 0)
        give_up("cannot write", path);
    raw_call1(SYS_close, fd);
}

/* A file of the kernel's: it must have exactly this text afterwards. */
static void set_file(const char *path, const char *value)
{
    char now[32] = "";
    long fd = raw_call4(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    bool fine = !raw_failed(fd) && raw_call3(SYS_write, fd, value, __builtin_strlen(value)) > 0 &&
                raw_call4(SYS_pread64, fd, now, sizeof(now) - 1, 0) > 0;
    const char *rest = boot_behind(now, value);

    raw_call1(SYS_close, fd);
    if (!fine || !rest || *rest != '\n')
        give_up("cannot set", path);
}

static void mount_at(const char *type, const char *source, const char *at, unsigned long flags, const char *options)
{
    if (raw_call5(SYS_mount, source, at, type, flags, options) != 0)
        give_up("cannot mount", at);
}

/* ---- the root ---------------------------------------------------------------------------------------- */

static const char *const places[] = GUEST_PLACES;

static void fill_skel(void)
{
    static const char *const dirs[] = {"/skel",           "/skel/.brig",   "/skel/dev",      "/skel/proc", "/skel/sys",
                                       "/skel/etc",       "/skel/home",    "/skel/var",      "/skel/tmp",  "/skel/run",
                                       "/skel/workspace", "/skel/var/tmp", "/skel/home/user"};
    const char *host = boot_word(BOOT_HOST);

    for (unsigned i = 0; i < ARRAY_SIZE(dirs); i++)
        make_dir(dirs[i], 0755);
    if (*host == '\0')
        host = "brig";
    raw_call2(SYS_sethostname, host, __builtin_strlen(host));
    make_file("/skel/etc/hostname", JOIN(host, "\n"));
    make_file("/skel/etc/hosts", JOIN("127.0.0.1 localhost\n::1 localhost\n127.0.1.1 ", host, "\n"));
    if (*boot_word(BOOT_MACHINE) != '\0')
        make_file("/skel/etc/machine-id", JOIN(boot_word(BOOT_MACHINE), "\n"));
    make_file("/skel/etc/resolv.conf", *boot_word(BOOT_NET) == '1' ? "nameserver 10.0.2.3\n" : "");
}

static void mount_root(void)
{
    bool writable = *boot_word(BOOT_WRITABLE) == '1';

    make_dir("/store", 0755);
    make_dir(NEW, 0755);
    mount_at("tmpfs", "tmpfs", "/store", QUIET,
             JOIN("mode=755,size=", boot_word(BOOT_DISK), ",nr_inodes=", boot_word(BOOT_INODES)));
    make_dir("/store/upper", 0755);
    make_dir("/store/work", 0755);
    mount_at("overlay", "overlay", NEW, QUIET | (writable ? 0 : MS_RDONLY),
             writable ? "lowerdir=/skel:/image,upperdir=/store/upper,workdir=/store/work" : "lowerdir=/skel:/image");
}

static void bind_place(const char *place, const char *number)
{
    const char *from = JOIN("/store/", number);
    static char source[32];

    __builtin_memcpy(source, from, __builtin_strlen(from) + 1);
    make_dir(source, 01777);
    mount_at(NULL, source, JOIN(NEW, place), MS_BIND, NULL);
}

/* A devtmpfs has none of them, and shells need them: `<(...)` of bash is a name below /dev/fd. */
static void link_streams(void)
{
    static const char *const links[][2] = {{"/proc/self/fd", NEW "/dev/fd"},
                                           {"/proc/self/fd/0", NEW "/dev/stdin"},
                                           {"/proc/self/fd/1", NEW "/dev/stdout"},
                                           {"/proc/self/fd/2", NEW "/dev/stderr"}};

    for (unsigned i = 0; i < ARRAY_SIZE(links); i++) {
        long ret = raw_call3(SYS_symlinkat, links[i][0], AT_FDCWD, links[i][1]);
        if (ret != 0 && ret != -EEXIST)
            give_up("cannot make", links[i][1]);
    }
}

static void mount_inside(void)
{
    char number[2] = "0";

    mount_at("devtmpfs", "devtmpfs", NEW "/dev", MS_NOSUID | MS_NOEXEC, "mode=755");
    mount_at("devpts", "devpts", NEW "/dev/pts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620");
    link_streams();
    mount_at("proc", "proc", NEW "/proc", QUIET | MS_NOEXEC, "hidepid=invisible,subset=pid");
    for (unsigned i = 0; i < ARRAY_SIZE(places); i++, number[0]++)
        bind_place(places[i], number);
    bind_place("/dev/shm", number);
}

/* ---- processes --------------------------------------------------------------------------------------- */

/*
 * A cgroup bounds the number of processes. pid 1 is in it with all that it will start, and after the root is entered
 * nobody finds its files.
 */
static void bound_pids(void)
{
    static const char control[] = "/cgroup/cgroup.subtree_control";
    const char *limit = boot_word(BOOT_PIDS);

    if (*limit == '\0')
        return;
    make_dir("/cgroup", 0755);
    mount_at("cgroup2", "cgroup2", "/cgroup", QUIET | MS_NOEXEC, NULL);
    long fd = raw_call4(SYS_openat, AT_FDCWD, control, O_WRONLY | O_CLOEXEC, 0);
    if (raw_failed(fd) || raw_call3(SYS_write, fd, "+pids", 5) != 5)
        give_up("cannot write", control);
    raw_call1(SYS_close, fd);
    make_dir("/cgroup/sandbox", 0755);
    set_file("/cgroup/sandbox/pids.max", limit);
    fd = raw_call4(SYS_openat, AT_FDCWD, "/cgroup/sandbox/cgroup.procs", O_WRONLY | O_CLOEXEC, 0);
    if (raw_failed(fd) || raw_call3(SYS_write, fd, "0", 1) != 1)
        give_up("cannot enter", "/cgroup/sandbox");
    raw_call1(SYS_close, fd);
}

/* ---- the network ------------------------------------------------------------------------------------- */

static struct sockaddr address(uint32_t number)
{
    union {
        struct sockaddr plain;
        struct sockaddr_in in;
    } it = {.in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(number)}};

    return it.plain;
}

static void set_up(int fd, const char *name, uint32_t own, uint32_t mask)
{
    struct ifreq request = {0};

    __builtin_memcpy(request.ifr_name, name, __builtin_strlen(name) + 1);
    request.ifr_addr = address(own);
    bool fine = raw_call3(SYS_ioctl, fd, SIOCSIFADDR, &request) == 0;
    request.ifr_netmask = address(mask);
    fine = fine && raw_call3(SYS_ioctl, fd, SIOCSIFNETMASK, &request) == 0;
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    if (!fine || raw_call3(SYS_ioctl, fd, SIOCSIFFLAGS, &request) != 0)
        give_up("no network device", name);
}

/* The addresses are those of QEMU's user-mode network. */
static void connect_network(void)
{
    long fd = raw_call3(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (raw_failed(fd))
        give_up("no sockets", NULL);
    set_up((int)fd, "lo", INADDR_LOOPBACK, 0xff000000u);
    if (*boot_word(BOOT_NET) == '1') {
        struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
        set_up((int)fd, "eth0", 0x0a00020fu, 0xffffff00u); /* 10.0.2.15 */
        route.rt_dst = address(0);
        route.rt_genmask = address(0);
        route.rt_gateway = address(0x0a000202u); /* 10.0.2.2 */
        if (raw_call3(SYS_ioctl, fd, SIOCADDRT, &route) != 0)
            give_up("no route", "10.0.2.2");
    }
    raw_call1(SYS_close, fd);
}

void boot_image(void)
{
    if (*boot_word(BOOT_ROOT) == '\0')
        return;
    make_dir("/image", 0755);
    await_device(DEVICE);
    mount_at(boot_word(BOOT_ROOT), DEVICE, "/image", QUIET | MS_RDONLY, NULL);
    connect_network();
}

void boot_root(void)
{
    if (*boot_word(BOOT_ROOT) == '\0')
        return;
    fill_skel();
    mount_root();
    mount_inside();
    bound_pids();
    if (raw_call1(SYS_chdir, NEW) != 0)
        give_up("cannot enter", NEW);
    mount_at(NULL, ".", "/", MS_MOVE, NULL);
    if (raw_call1(SYS_chroot, ".") != 0 || raw_call1(SYS_chdir, "/") != 0)
        give_up("cannot enter", "/");
}
