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
#include <sys/socket.h>
#include <sys/wait.h>

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
