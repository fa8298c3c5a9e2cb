/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_control.c: frames over the one socket pid 1 has to the outside (descriptor 3).
 *
 * The receive buffer is untouched zero memory until the first byte arrives, so that a parked sandbox does not pay
 * for it, and is given back after START, which also wipes the environment from pid 1. Any process of the sandbox
 * that could reach this memory would have to be pid 1: it is not dumpable.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "guest/init/guest.h"
#include "jail/rawcall.h"

#define BUFFER_SIZE PAGE_ROUND(FRAME_HEADER + FRAME_PAYLOAD_MAX)

static uint8_t buffer[BUFFER_SIZE] __attribute__((aligned(GUEST_PAGE)));
static size_t begin, end; /* bytes received and not yet consumed */
static int passed[GUEST_STDIO_MAX];
static unsigned n_passed;

int control_send(enum frame_type type, const uint8_t *payload, size_t len, int pass_fd)
{
    uint8_t header[FRAME_HEADER];
    struct frame frame = {.length = (uint32_t)len, .type = (uint16_t)type};
    struct iovec iov[2] = {{header, FRAME_HEADER}, {(void *)(uintptr_t)payload, len}};
    union {
        struct cmsghdr head;
        uint8_t space[CMSG_SPACE(sizeof(int))];
    } beside = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

    if (len > FRAME_PAYLOAD_MAX)
        return -EMSGSIZE;
    frame_put_header(header, &frame);
    if (pass_fd >= 0) {
        __builtin_memcpy(CMSG_DATA(&beside.head), &pass_fd, sizeof(pass_fd));
        msg.msg_control = &beside;
        msg.msg_controllen = sizeof(beside.space);
    }
    while (msg.msg_iovlen > 0) {
        long sent = raw_call3(SYS_sendmsg, INIT_FD_CONTROL, &msg, MSG_NOSIGNAL);

        if (sent == -EINTR)
            continue;
        if (sent <= 0)
            return sent < 0 ? (int)sent : -EPIPE;
        msg.msg_control = NULL;
        msg.msg_controllen = 0;
        while (msg.msg_iovlen > 0 && (size_t)sent >= msg.msg_iov->iov_len) {
            sent -= (long)msg.msg_iov->iov_len;
            msg.msg_iov++;
            msg.msg_iovlen--;
        }
        if (msg.msg_iovlen > 0) {
            msg.msg_iov->iov_base = (uint8_t *)msg.msg_iov->iov_base + sent;
            msg.msg_iov->iov_len -= (size_t)sent;
        }
    }
    return 0;
}

/* The kernel gives at most one SCM_RIGHTS message per call. Too many descriptors are closed by our death. */
static int keep_fds(const struct msghdr *msg)
{
    const struct cmsghdr *head = CMSG_FIRSTHDR(msg);
    size_t count;

    if (msg->msg_flags & MSG_CTRUNC)
        return -EPROTO;
    if (!head)
        return 0;
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS || head->cmsg_len < CMSG_LEN(0))
        return -EPROTO;
    count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    if (count > GUEST_STDIO_MAX - n_passed)
        return -EPROTO;
    __builtin_memcpy(passed + n_passed, CMSG_DATA(head), count * sizeof(int));
    n_passed += (unsigned)count;
    return 0;
}

int control_receive(void)
{
    uint8_t beside[CMSG_SPACE(GUEST_STDIO_MAX * sizeof(int))] __attribute__((aligned(8))) = {0};
    struct iovec iov;
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    long got;

    if (begin > 0) {
        __builtin_memmove(buffer, buffer + begin, end - begin);
        end -= begin;
        begin = 0;
    }
    if (end == BUFFER_SIZE) /* a whole frame fits, so the caller left one unread */
        return -EPROTO;
    iov = (struct iovec){buffer + end, BUFFER_SIZE - end};
    do {
        msg.msg_control = beside;
        msg.msg_controllen = sizeof(beside);
        got = raw_call3(SYS_recvmsg, INIT_FD_CONTROL, &msg, MSG_CMSG_CLOEXEC);
    } while (got == -EINTR);
    if (got <= 0)
        return -EPIPE;
    end += (size_t)got;
    return keep_fds(&msg);
}

int control_next(struct frame *ret)
{
    int used = frame_parse(buffer + begin, end - begin, ret);

    if (used <= 0)
        return used;
    begin += (size_t)used;
    return 1;
}

unsigned control_take_fds(int fds[GUEST_STDIO_MAX])
{
    unsigned count = n_passed;

    for (unsigned i = 0; i < count; i++)
        fds[i] = passed[i];
    n_passed = 0;
    return count;
}

void control_forget(void)
{
    size_t left = end - begin; /* a SIGNAL may already have followed START in the same read */
    size_t kept = PAGE_ROUND(left);

    __builtin_memmove(buffer, buffer + begin, left);
    __builtin_memset(buffer + left, 0, kept - left);
    if (kept < BUFFER_SIZE)
        raw_call3(SYS_madvise, buffer + kept, BUFFER_SIZE - kept, MADV_DONTNEED);
    begin = 0;
    end = left;
}
