/* SPDX-License-Identifier: Apache-2.0 */
/*
 * messages.c: sends and receives the messages between supervisor and brigd: fixed-size packets with at most one
 * descriptor.
 */
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/str.h"
#include "supervisor/supervisor.h"

int sup_send(int sock, enum sup_type type, const char *name, int fd)
{
    struct sup_msg msg = {.magic = SUP_MAGIC, .type = (uint16_t)type};
    int r = str_copy(msg.name, sizeof msg.name, name ? name : "");

    return r < 0 ? r : fd_send_nowait(sock, &msg, sizeof msg, &fd, fd >= 0 ? 1 : 0);
}

int sup_send_text(int sock, enum sup_type type, const char *name, const char *text)
{
    AUTO_FD int fd = gate_memfd(name, text, strlen(text));

    return fd < 0 ? fd : sup_send(sock, type, name, fd);
}

int sup_receive(int sock, struct sup_msg *ret, int *ret_fd)
{
    size_t n_fds = 0;
    int fd = -1;
    ssize_t n = fd_recv_message(sock, ret, sizeof *ret, &fd, 1, &n_fds);

    if (n == 0)
        return -EPIPE;
    if (n < 0)
        return (int)n;
    if (n != sizeof *ret || ret->magic != SUP_MAGIC || ret->type == 0 || ret->type >= SUP_TYPE_MAX ||
        !memchr(ret->name, '\0', sizeof ret->name)) {
        base_close_fd(&fd);
        return -EPROTO;
    }
    *ret_fd = fd;
    return 0;
}
