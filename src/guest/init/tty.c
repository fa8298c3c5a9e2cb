/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tty.c: the PTY of a run with a terminal. It is made inside the sandbox, from the sandbox's own devpts, by the
 * program's user, so that the slave belongs to that user and no terminal of the host is ever reachable from within.
 *
 * The slave is opened through the master (TIOCGPTPEER), never by a path that a root file system could redirect. gVisor
 * does not know that call: there a path is opened, and must be the slave of that number on a devpts.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include "guest/init/guest.h"
#include "jail/rawcall.h"

#define OPEN_FLAGS (O_RDWR | O_NOCTTY | O_CLOEXEC)
#define SLAVE_MAJOR 136u /* UNIX98 PTYs have 136 to 143. */

static bool is_slave(long fd, unsigned number)
{
    struct stat st = {0};
    struct statfs fs = {0};

    return raw_call2(SYS_fstat, fd, &st) == 0 && S_ISCHR(st.st_mode) &&
           st.st_rdev == makedev(SLAVE_MAJOR + number / 256, number % 256) && raw_call2(SYS_fstatfs, fd, &fs) == 0 &&
           fs.f_type == DEVPTS_SUPER_MAGIC;
}

static long open_by_path(long master)
{
    char path[] = "/dev/pts/\0\0\0\0\0";
    size_t at = sizeof("/dev/pts/") - 1;
    unsigned number = 0, unit = 1;
    long ret = raw_call3(SYS_ioctl, master, TIOCGPTN, &number);

    if (ret != 0 || number > 9999)
        return ret != 0 ? ret : -ENOSPC;
    while (number / unit >= 10)
        unit *= 10;
    for (; unit > 0; unit /= 10)
        path[at++] = (char)('0' + number / unit % 10);
    long fd = raw_call4(SYS_openat, AT_FDCWD, path, OPEN_FLAGS | O_NOFOLLOW, 0);
    return raw_failed(fd) || is_slave(fd, number) ? fd : -ENODEV;
}

int tty_open(uint16_t rows, uint16_t cols)
{
    struct winsize size = {.ws_row = rows, .ws_col = cols};
    int locked = 0;
    long master = raw_call4(SYS_openat, AT_FDCWD, "/dev/ptmx", OPEN_FLAGS, 0);
    long slave, ret;

    if (raw_failed(master))
        return (int)master;
    if ((ret = raw_call3(SYS_ioctl, master, TIOCSPTLCK, &locked)) != 0)
        return (int)ret;
    slave = raw_call3(SYS_ioctl, master, TIOCGPTPEER, OPEN_FLAGS);
    if (slave == -ENOTTY)
        slave = open_by_path(master);
    if (raw_failed(slave))
        return (int)slave;
    if (rows != 0 && cols != 0 && (ret = raw_call3(SYS_ioctl, master, TIOCSWINSZ, &size)) != 0)
        return (int)ret;
    if ((ret = raw_call3(SYS_ioctl, slave, TIOCSCTTY, 0)) != 0)
        return (int)ret;
    for (int fd = 0; fd <= 2; fd++)
        if (raw_failed(ret = raw_call3(SYS_dup3, slave, fd, 0)))
            return (int)ret;
    return (int)master;
}
