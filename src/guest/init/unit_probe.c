/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit_probe.c: waits until a unit can be used, in a child that has become the unit's user, and exits with 0 then. It
 * may take any time: pid 1 kills it when the unit ends or its time is over.
 *
 * A file or a socket is waited for with inotify on the nearest directory that is there; what inotify does not show
 * (links, other mounts, a socket that is bound but does not listen yet) is found by a look now and then. The kernel
 * tells nobody when a program begins to listen on a port, so a port is tried with connect(2): at once, then after 2 ms,
 * then after twice as long, up to 100 ms.
 */
#include <fcntl.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define PORT_MIN_MS 2
#define PORT_MAX_MS 100
#define BLIND_MS 100 /* without inotify */
#define LOOK_MS 1000 /* beside inotify */
#define LISTEN_MS 10 /* for a socket that is there and refuses */

static char path[SVC_PATH_MAX], near[SVC_PATH_MAX];

static void nap(int fd, int ms)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    raw_call3(SYS_poll, &wait, 1, ms);
}

/* ---- ports ------------------------------------------------------------------------------------------ */

/*
 * A socket that gets the very port that it connects to as its own is connected with itself: nobody listens there. It
 * ends without TIME_WAIT, which would keep the port from whoever is waited for.
 */
static bool is_itself(long fd, uint16_t port)
{
    const struct linger at_once = {.l_onoff = 1};
    struct sockaddr_in6 own = {0}; /* The port of an IPv4 address is at the same place. */
    socklen_t size = sizeof(own);

    if (raw_call3(SYS_getsockname, fd, &own, &size) != 0 || own.sin6_port != htons(port))
        return false;
    raw_call5(SYS_setsockopt, fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    return true;
}

static bool port_listens(uint16_t port, bool v6)
{
    long fd = raw_call3(SYS_socket, v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), ret;

    if (raw_failed(fd))
        return false;
    ret = connect_loopback(fd, port, v6);
    if (ret == 0 && is_itself(fd, port))
        ret = -ECONNREFUSED;
    raw_call1(SYS_close, fd);
    return ret == 0;
}

static void await_port(uint16_t port)
{
    for (int ms = PORT_MIN_MS; !port_listens(port, false) && !port_listens(port, true);) {
        nap(-1, ms);
        ms = ms * 2 < PORT_MAX_MS ? ms * 2 : PORT_MAX_MS;
    }
}

/* ---- paths ------------------------------------------------------------------------------------------ */

static bool path_is_there(struct stat *st)
{
    return raw_call4(SYS_newfstatat, AT_FDCWD, path, st, 0) == 0;
}

/* One of another type than a stream refuses in its own words, and is there all the same. */
static bool socket_listens(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = __builtin_strlen(path);
    long fd, ret;

    if (len >= sizeof(address.sun_path))
        return false;
    fd = raw_call3(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (raw_failed(fd))
        return false;
    __builtin_memcpy(address.sun_path, path, len + 1);
    ret = raw_call3(SYS_connect, fd, &address, sizeof(address));
    raw_call1(SYS_close, fd);
    return ret == 0 || ret == -EAGAIN || ret == -EPROTOTYPE;
}

/* Watches the nearest directory above the path. Returns the watch or a negative errno. */
static long watch_near(long fd)
{
    size_t len = __builtin_strlen(path);
    long ret = -ENOENT;

    __builtin_memcpy(near, path, len + 1);
    while (raw_failed(ret) && len > 0) {
        while (len > 0 && near[len - 1] != '/')
            len--;
        while (len > 1 && near[len - 1] == '/')
            len--;
        near[len] = 0;
        ret = raw_call3(SYS_inotify_add_watch, fd, near,
                        IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ATTRIB | IN_ONLYDIR);
        if (len == 1)
            break;
    }
    return ret;
}

static void drain(long fd)
{
    static uint8_t events[4096];

    while (raw_call3(SYS_read, fd, events, sizeof(events)) > 0)
        ;
}

static void await_path(bool socket)
{
    long fd = raw_call1(SYS_inotify_init1, IN_CLOEXEC | IN_NONBLOCK);

    for (;;) {
        struct stat st = {0};
        /* The watch comes first: whatever appears after the look is an event. */
        long watch = raw_failed(fd) ? fd : watch_near(fd);
        bool there = path_is_there(&st);

        if (there && (!socket || (S_ISSOCK(st.st_mode) && socket_listens())))
            return;
        if (there && socket && S_ISSOCK(st.st_mode))
            nap(-1, LISTEN_MS);
        else
            nap(raw_failed(watch) ? -1 : (int)fd, raw_failed(watch) ? BLIND_MS : LOOK_MS);
        if (!raw_failed(watch)) {
            raw_call2(SYS_inotify_rm_watch, fd, watch);
            drain(fd);
        }
    }
}

__attribute__((noreturn)) void unit_probe(const struct svc_unit *unit)
{
    uint32_t ready = unit->ready, port = unit->port;

    __builtin_memcpy(path, unit->path.data, unit->path.len); /* shorter than SVC_PATH_MAX; zeroes follow */
    units_let_go();
    raw_call5(SYS_prctl, PR_SET_NAME, "brig-probe", 0, 0, 0);
    if (raw_close_from(3, 0) != 0)
        guest_exit(GUEST_EXIT_BROKEN);
    if (ready == SVC_READY_PORT)
        await_port((uint16_t)port);
    else
        await_path(ready == SVC_READY_SOCKET);
    guest_exit(0);
}
