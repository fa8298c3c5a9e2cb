/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tty.c: the PTY of a run with a terminal. It is made inside the sandbox, from the sandbox's own devpts, by the
 * program's user, so that the slave belongs to that user and no terminal of the host is ever reachable from within.
 *
 * The slave is opened through the master (TIOCGPTPEER), never by a path that a root file system could redirect.
 */
#include <fcntl.h>
#include <sys/ioctl.h>

#include "guest/init/guest.h"
#include "jail/rawcall.h"

int tty_open(uint16_t rows, uint16_t cols)
{
    struct winsize size = {.ws_row = rows, .ws_col = cols};
    int locked = 0;
    long master = raw_call4(SYS_openat, AT_FDCWD, "/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC, 0);
    long slave, ret;

    if (raw_failed(master))
        return (int)master;
    if ((ret = raw_call3(SYS_ioctl, master, TIOCSPTLCK, &locked)) != 0)
        return (int)ret;
    slave = raw_call3(SYS_ioctl, master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
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
