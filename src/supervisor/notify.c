/* SPDX-License-Identifier: Apache-2.0 */
/* notify.c: speaks the service manager's notification protocol, sd_notify(3), directly: one datagram per state. */
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/parse.h"
#include "supervisor/supervisor.h"

void notify_state(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t len = path ? strlen(path) : 0;

    if (len < 2 || len >= sizeof addr.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(addr.sun_path, path, len);
    if (path[0] == '@')
        addr.sun_path[0] = '\0'; /* the abstract namespace */
    AUTO_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) /* nobody to tell that nobody could be told */
        (void)!sendto(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&addr,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
}

uint64_t notify_watchdog_ns(void)
{
    const char *text = getenv("WATCHDOG_USEC");
    const char *pid = getenv("WATCHDOG_PID");
    uint64_t usec = 0, owner = 0;

    if (!text || parse_u64(text, &usec) < 0 || usec == 0)
        return 0;
    if (pid && (parse_u64(pid, &owner) < 0 || owner != (uint64_t)getpid()))
        return 0;
    return usec / 2 * 1000;
}
