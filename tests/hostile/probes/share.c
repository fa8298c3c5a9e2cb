/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What two sandboxes, or a sandbox and its host, could share by accident: files, sockets, watches, locks, odd names,
 * freed blocks (F36 to F42, I07, I08, N03). Most come in pairs that run at once: NAME-hold in one, NAME in the other.
 */
#include "probe.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ftw.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

static void ready_then_wait(void)
{
    dprintf(STDOUT_FILENO, "READY\n");
    for (;;)
        pause();
}

/* The mark is a name, told to both sides; what is looked for is the file. */
static void f36_hold(int argc, char **argv)
{
    char path[PATH_MAX];
    const char *mark = argc > 1 ? argv[1] : "mark";

    for (const char *const *d = writable_dirs; *d; d++) {
        snprintf(path, sizeof(path), "%s/%s", *d, mark);
        int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
        if (fd < 0 || write(fd, "mine", 4) != 4)
            dprintf(STDERR_FILENO, "hold: %s: %s\n", path, strerror(errno));
        close(fd);
    }
    ready_then_wait();
}

static void f36_cross_file(int argc, char **argv)
{
    char path[PATH_MAX];
    const char *mark = argc > 1 ? argv[1] : "mark";

    for (const char *const *d = writable_dirs; *d; d++) {
        snprintf(path, sizeof(path), "%s/%s", *d, mark);
        REFUSED(nm("find-%s", *d), open(path, O_RDONLY | O_CLOEXEC), ENOENT);
        DIR *dir = opendir(*d);
        for (struct dirent *e; dir && (e = readdir(dir));) {
            if (strstr(e->d_name, mark))
                breach(nm("list-%s", *d), "shows %s", e->d_name);
        }
        if (dir)
            closedir(dir);
    }
}

static void connect_path(const char *name, const char *path, const int *allowed)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};

    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        int fd = socket(AF_UNIX, types[i] | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        errno = 0;
        int rc = connect(fd, (struct sockaddr *)&a, sizeof(a));
        judge_refused(nm("%s-%zu", name, i), rc, errno, allowed);
        if (rc == 0) {
            char buf[64] = "";
            struct pollfd p = {.fd = fd, .events = POLLIN};
            if (poll(&p, 1, 1000) > 0 && read(fd, buf, sizeof(buf) - 1) > 0)
                breach(nm("%s-%zu-read", name, i), "reads %s", buf);
        }
        close(fd);
    }
}

static int found_sockets;

static int visit_socket(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)flag;
    /* The template's own programs go deep and hold no sockets; procfs cannot. */
    if (strcmp(path, "/proc") == 0 || (strncmp(path, "/usr/", 5) == 0 && ftw->level > 3))
        return FTW_SKIP_SUBTREE;
    if (S_ISSOCK(st->st_mode)) {
        found_sockets++;
        connect_path(nm("found-%s", path), path, ERRS(ENOENT, EACCES, ECONNREFUSED));
    }
    return 0;
}

static void f37_unix_sock_path(int argc, char **argv)
{
    static const char *const known[] = {"/run/docker.sock",
                                        "/var/run/docker.sock",
                                        "/run/containerd/containerd.sock",
                                        "/run/dbus/system_bus_socket",
                                        "/run/systemd/private",
                                        "/run/systemd/journal/socket",
                                        "/dev/log",
                                        "/run/brig/brig.sock",
                                        "/tmp/.X11-unix/X0",
                                        "/run/nscd/socket",
                                        "/run/snapd.socket",
                                        "/run/podman/podman.sock"};
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(known) && !gentle(); i++)
        connect_path(nm("known-%s", known[i]), known[i], ERRS(ENOENT, EACCES));
    if (given("HOSTILE_SOCKET"))
        connect_path("canary", given("HOSTILE_SOCKET"), ERRS(ENOENT, EACCES));
    else
        untried("canary", "HOSTILE_SOCKET is not set");
    if (!gentle()) {
        nftw("/", visit_socket, 32, FTW_PHYS | FTW_ACTIONRETVAL);
        expect(found_sockets == 0, "walk", "%d sockets in the tree", found_sockets);
    }
}

static void try_abstract(const char *name)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "%s", name);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        int fd = socket(AF_UNIX, types[i] | SOCK_CLOEXEC, 0);
        errno = 0;
        int rc = connect(fd, (struct sockaddr *)&a, len);
        judge_refused(nm("connect-%zu", i), rc, errno, ERRS(ECONNREFUSED, EPERM));
        char buf[64] = "";
        if (rc == 0 && types[i] == SOCK_STREAM && read(fd, buf, sizeof(buf) - 1) > 0)
            breach("read", "reads %s", buf);
        close(fd);
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        REFUSED(nm("sendto-%zu", i), sendto(fd, "x", 1, 0, (struct sockaddr *)&a, len), ECONNREFUSED, EPERM);
        close(fd);
    }
}

static void f38_abstract_socket(int argc, char **argv)
{
    const char *name = given("HOSTILE_ABSTRACT");
    (void)argc, (void)argv;

    if (name)
        try_abstract(name);
    else
        untried("abstract", "HOSTILE_ABSTRACT is not set");
}

/* Where brig-init listens in a sandbox that has sudo, and nowhere else. */
static void f38_sudo(int argc, char **argv)
{
    (void)argc, (void)argv;
    try_abstract("brig/sudo");
}

static void n03_host_loopback(int argc, char **argv)
{
    static const char *const v4[] = {"127.0.0.1", "127.0.0.2", "127.1.2.3", "0.0.0.0"};
    static const char *const v6[] = {"::1", "::", "::ffff:127.0.0.1", "::ffff:0.0.0.0"};
    long port = given_long("HOSTILE_TCP_PORT", 0);
    const char *lan = given("HOSTILE_HOST_IP");
    struct if_nameindex *list = if_nameindex();
    (void)argc, (void)argv;

    for (size_t i = 0; port && i < ARRAY_LEN(v4) + ARRAY_LEN(v6) + 1; i++) {
        struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
        bool six = i >= ARRAY_LEN(v4) && i < ARRAY_LEN(v4) + ARRAY_LEN(v6);
        const char *text = i < ARRAY_LEN(v4) ? v4[i] : six ? v6[i - ARRAY_LEN(v4)] : lan;
        if (!text)
            continue;
        inet_pton(six ? AF_INET6 : AF_INET, text, six ? (void *)&a6.sin6_addr : (void *)&a4.sin_addr);
        int fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        errno = 0;
        int rc =
            fd < 0 ? -1
                   : connect(fd, six ? (struct sockaddr *)&a6 : (struct sockaddr *)&a4, six ? sizeof(a6) : sizeof(a4));
        judge_refused(nm("tcp-%s", text), rc, errno, ERRS(ECONNREFUSED, ENETUNREACH, EADDRNOTAVAIL, EAFNOSUPPORT));
        char buf[64] = "";
        if (rc == 0 && read(fd, buf, sizeof(buf) - 1) > 0)
            breach(nm("tcp-%s-read", text), "reads %s", buf);
        close(fd);
    }
    for (struct if_nameindex *n = list; n && n->if_index; n++)
        expect(strcmp(n->if_name, "lo") == 0, nm("interface-%s", n->if_name), "exists");
    if (!list)
        untried("interfaces", "%s", strerror(errno));
    static const char *const outside[] = {"1.1.1.1", "169.254.169.254", "10.0.0.1", "192.168.0.1", "100.100.100.200"};
    for (size_t i = 0; i < ARRAY_LEN(outside) && !gentle(); i++) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(80)};
        inet_pton(AF_INET, outside[i], &a.sin_addr);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        REFUSED(nm("tcp-%s", outside[i]), connect(fd, (struct sockaddr *)&a, sizeof(a)), ENETUNREACH, ECONNREFUSED);
        close(fd);
        fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        REFUSED(nm("udp-%s", outside[i]), sendto(fd, "x", 1, 0, (struct sockaddr *)&a, sizeof(a)), ENETUNREACH,
                ECONNREFUSED, EPERM);
        close(fd);
    }
}

/* Watches base directories until the harness, which has meanwhile read and run things there, closes our stdin. */
static void f39_inotify_host(int argc, char **argv)
{
    static const char *const dirs[] = {"/usr/bin",      "/usr/lib",   "/etc", "/usr/bin/env",
                                       "/usr/bin/true", "/usr/share", "/bin"};
    char buf[16384] __attribute__((aligned(8)));
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), watches = 0, events = 0;
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        watches += inotify_add_watch(fd, dirs[i], IN_ALL_EVENTS) >= 0;
    if (!watches) {
        untried("inotify", "no watch could be set: %s", strerror(errno));
        return;
    }
    dprintf(STDOUT_FILENO, "READY\n");
    char c;
    while (read(STDIN_FILENO, &c, 1) > 0)
        ;
    for (ssize_t n; (n = read(fd, buf, sizeof(buf))) > 0;)
        events++;
    expect(events == 0, "inotify", "saw others' activity on base files");
}

static const char *const lock_files[] = {"/usr/bin/env", "/usr/bin/true", "/etc/passwd", "/usr/lib/os-release"};

static void f40_hold(int argc, char **argv)
{
    (void)argc, (void)argv;
    for (size_t i = 0; i < ARRAY_LEN(lock_files); i++) {
        int fd = open(lock_files[i], O_RDONLY);
        struct flock fl = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
        if (fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) < 0 || fcntl(fd, F_SETLK, &fl) < 0))
            dprintf(STDERR_FILENO, "hold: %s: %s\n", lock_files[i], strerror(errno));
    }
    ready_then_wait();
}

static void f40_flock_covert(int argc, char **argv)
{
    (void)argc, (void)argv;
    for (size_t i = 0; i < ARRAY_LEN(lock_files); i++) {
        int fd = open(lock_files[i], O_RDONLY | O_CLOEXEC);
        struct flock ofd = {.l_type = F_WRLCK, .l_whence = SEEK_SET}, posix = ofd;
        if (fd < 0)
            continue;
        expect(flock(fd, LOCK_EX | LOCK_NB) == 0, nm("flock-%s", lock_files[i]), "is locked by another");
        if (fcntl(fd, F_OFD_GETLK, &ofd) == 0)
            expect(ofd.l_type == F_UNLCK, nm("ofd-%s", lock_files[i]), "is locked by another");
        if (fcntl(fd, F_GETLK, &posix) == 0)
            expect(posix.l_type == F_UNLCK, nm("posix-%s", lock_files[i]), "is locked by pid %d", posix.l_pid);
        REFUSED(nm("lease-%s", lock_files[i]), fcntl(fd, F_SETLEASE, F_RDLCK), EPERM, EACCES);
        fcntl(fd, F_SETLEASE, F_UNLCK);
        REFUSED(nm("dnotify-%s", lock_files[i]), fcntl(fd, 1026 /* F_NOTIFY */, 1), EPERM, EACCES, ENOTDIR);
        close(fd);
    }
}

static void f42_weird_names(int argc, char **argv)
{
    char longname[300], path[8192];
    (void)argc, (void)argv;

    memset(longname, 'n', sizeof(longname));
    longname[255] = 0;
    const char *const names[] = {"new\nline", "\xff\xfe\x80", "\xc0\xaf",     "-rf", "\x1b[2J\x1b]0;x\a",
                                 " ",         "'\"`$(id)",    "\xed\xa0\x80", "*",   longname};
    (void)!chdir(scratch());
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        int fd = open(names[i], O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
        expect(fd >= 0, nm("create-%zu", i), "%s", strerror(errno));
        close(fd);
    }
    longname[255] = 'n', longname[256] = 0;
    REFUSED("name-256", open(longname, O_CREAT | O_WRONLY, 0600), ENAMETOOLONG);
    memset(path, '/', sizeof(path) - 1);
    path[sizeof(path) - 1] = 0;
    REFUSED("path-8191", open(path, O_RDONLY), ENAMETOOLONG);
    /* A tree deeper than any path: whoever cleans it up by path gets stuck. */
    int depth = 0;
    longname[200] = 0;
    for (; depth < 200; depth++) {
        if (mkdir(longname, 0700) < 0 || chdir(longname) < 0)
            break;
    }
    expect(depth > 0, "deep-tree", "%s", strerror(errno));
    /* For F43's heirs: things that block whoever opens them. */
    (void)!mkfifo("fifo", 0600);
    (void)!symlink("nowhere", "dangling");
    (void)!symlink("loop", "loop");
}

/* Fills the store with a mark and deletes it again. The mark is made here, so that it is nowhere else. */
static void i08_plant(int argc, char **argv)
{
    static char block[1 << 16];
    char path[PATH_MAX];
    long mib = argc > 1 ? atol(argv[1]) : 8;

    memset(block, 0xa7, sizeof(block));
    snprintf(path, sizeof(path), "%s/plant", scratch());
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    for (long i = 0; i < mib * 16; i++) {
        if (write(fd, block, sizeof(block)) < 0)
            break;
    }
    fsync(fd);
    close(fd);
    unlink(path);
    held("planted");
}

static size_t count_nonzero(const unsigned char *p, size_t n)
{
    size_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad += p[i] != 0;
    return bad;
}

static void i08_fresh_blocks(int argc, char **argv)
{
    size_t size = (size_t)(argc > 1 ? atol(argv[1]) : 8) * MIB;
    char path[PATH_MAX];
    (void)argc, (void)argv;

    for (const char *const *d = writable_dirs; *d; d++) {
        snprintf(path, sizeof(path), "%s/fresh", *d);
        for (int how = 0; how < 3; how++) {
            static const char *const hows[] = {"fallocate", "truncate", "keep-size"};
            int fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
            int rc = how == 0   ? fallocate(fd, 0, 0, (off_t)size)
                     : how == 1 ? ftruncate(fd, (off_t)size)
                                : fallocate(fd, 1, 0, (off_t)size);
            if (how == 2 && rc == 0)
                rc = ftruncate(fd, (off_t)size);
            void *p = rc == 0 ? mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
            if (p == MAP_FAILED) {
                untried(nm("%s-%s", hows[how], *d), "%s", strerror(errno));
            } else {
                size_t bad = count_nonzero(p, size);
                expect(bad == 0, nm("%s-%s", hows[how], *d), "%zu bytes were not zero", bad);
                munmap(p, size);
            }
            close(fd);
            unlink(path);
        }
    }
    void *p = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(p != MAP_FAILED && count_nonzero(p, 4 * MIB) == 0, "pages", "fresh pages are not zero");
    void *raw =
        mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | 0x4000000 /* MAP_UNINITIALIZED */, -1, 0);
    expect(raw == MAP_FAILED || count_nonzero(raw, MIB) == 0, "uninitialized", "MAP_UNINITIALIZED is honoured");
}

const struct probe_case share_cases[] = {
    {"F36-hold", f36_hold},
    {"F36", f36_cross_file},
    {"F37", f37_unix_sock_path},
    {"F38", f38_abstract_socket},
    {"F38-sudo", f38_sudo},
    {"N03", n03_host_loopback},
    {"F39", f39_inotify_host},
    {"F40-hold", f40_hold},
    {"F40", f40_flock_covert},
    {"F42", f42_weird_names},
    {"I08-plant", i08_plant},
    {"I08", i08_fresh_blocks},
    {NULL, NULL},
};
