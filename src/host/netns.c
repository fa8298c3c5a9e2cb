/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netns.c: the helper that makes a network namespace. It shares the spawner's memory and descriptors, so that it costs
 * no copy and its descriptor is there at once. It runs beside the spawner and errno is shared too, so it makes raw
 * system calls only.
 */
#include "host/netns.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/str.h"
#include "jail/rawcall.h"

static int make(void *arg)
{
    struct netns_maker *maker = arg;
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    long r = raw_call1(SYS_unshare, CLONE_NEWNET); /* here, not by clone(): that would make the spawner wait for it */
    long fd = r < 0 ? r : raw_call3(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    r = fd < 0 ? fd : raw_call3(SYS_ioctl, fd, SIOCSIFFLAGS, &request);

    if (fd >= 0)
        raw_call1(SYS_close, fd);
    maker->result = r < 0 ? r : raw_call4(SYS_openat, AT_FDCWD, "/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC, 0);
    raw_call1(SYS_exit, 0);
    return 0;
}

void netns_start(struct netns_maker *maker)
{
    if (maker->pid > 0)
        return;
    maker->result = -ECHILD;
    maker->pid = clone(make, maker->stack + NETNS_STACK, CLONE_VM | CLONE_FILES | SIGCHLD, maker);
    if (maker->pid < 0)
        maker->pid = 0;
}

int netns_take(struct netns_maker *maker)
{
    if (maker->pid <= 0)
        return -1;
    (void)RETRY(waitpid(maker->pid, NULL, 0));
    maker->pid = 0;
    return maker->result >= 0 ? (int)maker->result : -1;
}

void netns_done(struct netns_maker *maker)
{
    int fd = netns_take(maker);

    base_close_fd(&fd);
}

/* ---- who has a port ----------------------------------------------------------------------------------- */

/* A line is "0: ADDRESS:PORT ADDRESS:PORT STATE QUEUES TIMER RETRIES UID ...", with the port in hexadecimal. */
static bool is_ours(char *line, const char *port)
{
    char *words[8], *rest = NULL;
    size_t n = 0;

    for (char *word = strtok_r(line, " ", &rest); word && n < ARRAY_SIZE(words); word = strtok_r(NULL, " ", &rest))
        words[n++] = word;
    const char *at = n == ARRAY_SIZE(words) ? strchr(words[1], ':') : NULL;
    return at && str_eq(at, port) && str_eq(words[7], "0");
}

bool netns_has_ours(int proc_fd, bool udp, bool v6, uint16_t port)
{
    static char text[65536]; /* of one helper at a time, whose stack is small */
    char path[32], number[16], *save = NULL;

    (void)snprintf(path, sizeof path, "thread-self/net/%s%s", udp ? "udp" : "tcp", v6 ? "6" : "");
    (void)snprintf(number, sizeof number, ":%04X", port);
    if (fd_read_file(proc_fd, path, text, sizeof text) <= 0)
        return false;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (is_ours(line, number))
            return true;
    return false;
}
