/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fd.c: descriptors. Code inside and outside of sandboxes uses these functions, so nothing here allocates memory, and
 * no message of a peer can leave a descriptor behind: the caller gets every descriptor of a message, or all of them are
 * closed.
 */
#include "base/fd.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/holes.h"

int fd_set_nonblock(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0)
        return -errno;
    if ((flags & O_NONBLOCK) != 0)
        return 0;
    return fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

int fd_set_cloexec(int fd, bool on)
{
    return fcntl(fd, F_SETFD, on ? FD_CLOEXEC : 0) < 0 ? -errno : 0;
}

ssize_t fd_read_all(int fd, char *buf, size_t size)
{
    size_t have = 0;

    if (size == 0)
        return -EINVAL;
    for (;;) {
        /* The byte for the NUL is read into as well: filling it means that the file is too large. */
        ssize_t n = RETRY(read(fd, buf + have, size - have));
        if (n < 0)
            return -errno;
        if (n == 0) {
            buf[have] = '\0';
            return (ssize_t)have;
        }
        have += (size_t)n;
        if (have == size)
            return -EFBIG;
    }
}

int fd_openat_read(int dirfd, const char *path)
{
    int fd = RETRY(openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY));

    return fd < 0 ? -errno : fd;
}

ssize_t fd_read_file(int dirfd, const char *path, char *buf, size_t size)
{
    AUTO_FD int fd = fd_openat_read(dirfd, path);

    if (fd < 0)
        return fd;
    return fd_read_all(fd, buf, size);
}

int fd_write_all(int fd, const void *data, size_t len)
{
    const char *at = data;

    while (len > 0) {
        ssize_t n = RETRY(write(fd, at, len));
        if (n < 0)
            return -errno;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

int fd_write_holes(int fd, const void *data, size_t len)
{
    const uint8_t *from = data;
    off_t at = lseek(fd, 0, SEEK_CUR);
    int r = at < 0 ? -errno : 0;

    while (r == 0 && len > 0) {
        bool zero;
        size_t n = hole_run(from, len, (uint64_t)at, &zero);
        if (zero)
            r = lseek(fd, (off_t)n, SEEK_CUR) < 0 ? -errno : 0;
        else
            r = fd_write_all(fd, from, n);
        at += (off_t)n;
        from += n;
        len -= n;
    }
    return r;
}

int fd_end_holes(int fd)
{
    off_t at = lseek(fd, 0, SEEK_CUR);

    return at < 0 || ftruncate(fd, at) < 0 ? -errno : 0;
}

int fd_write_file(int dirfd, const char *path, const char *text)
{
    size_t len = strlen(text);
    AUTO_FD int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW);

    if (fd < 0)
        return -errno;
    ssize_t n = RETRY(write(fd, text, len));
    if (n < 0)
        return -errno;
    return (size_t)n == len ? 0 : -EIO;
}

void fd_close_all(int *fds, size_t n_fds)
{
    for (size_t i = 0; i < n_fds; i++)
        base_close_fd(&fds[i]);
}

void fd_keep_only(const int *keep, size_t n_keep)
{
    for (int at = 0, next; at != INT_MAX; at = next == INT_MAX ? INT_MAX : next + 1) {
        next = INT_MAX;
        for (size_t i = 0; i < n_keep; i++)
            if (keep[i] >= at && keep[i] < next)
                next = keep[i];
        if (next > at)
            close_range((unsigned)at, next == INT_MAX ? ~0u : (unsigned)next - 1, 0);
    }
}

/* Control data, aligned as CMSG_FIRSTHDR wants it. */
union fd_control {
    struct cmsghdr align;
    char space[CMSG_SPACE(FD_MSG_MAX * sizeof(int))];
};

static int send_message(int sock, const void *data, size_t len, const int *fds, size_t n_fds, int flags)
{
    union fd_control control;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    size_t sent = 0;

    if (len == 0 || n_fds > FD_MSG_MAX)
        return -EINVAL;
    if (n_fds > 0) {
        memset(&control, 0, sizeof(control));
        msg.msg_control = control.space;
        msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, n_fds * sizeof(int));
    }
    while (sent < len) {
        ssize_t n = RETRY(sendmsg(sock, &msg, flags | MSG_NOSIGNAL));
        if (n < 0)
            return sent > 0 && errno == EAGAIN ? -EIO : -errno;
        /* A stream may take part of it; the descriptors went with the first byte. */
        sent += (size_t)n;
        iov.iov_base = (char *)iov.iov_base + n;
        iov.iov_len -= (size_t)n;
        msg.msg_control = NULL;
        msg.msg_controllen = 0;
    }
    return 0;
}

int fd_send(int sock, const void *data, size_t len, const int *fds, size_t n_fds)
{
    return send_message(sock, data, len, fds, n_fds, 0);
}

int fd_send_nowait(int sock, const void *data, size_t len, const int *fds, size_t n_fds)
{
    return send_message(sock, data, len, fds, n_fds, MSG_DONTWAIT);
}

/* Collects every descriptor of the message: the array has room for all that fit into the control buffer. */
static size_t collect_fds(struct msghdr *msg, int *all)
{
    size_t n = 0;

    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
        if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count && n < FD_MSG_MAX; i++) {
            memcpy(&all[n], CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
            n++;
        }
    }
    return n;
}

static ssize_t recv_message(int sock, void *data, size_t size, int *fds, size_t max_fds, size_t *ret_n_fds, int flags,
                            bool lossy)
{
    union fd_control control;
    struct iovec iov = {.iov_base = data, .iov_len = size};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    int all[FD_MSG_MAX];
    ssize_t n;
    bool reset = false;

    if (max_fds > FD_MSG_MAX || (max_fds > 0 && !ret_n_fds))
        return -EINVAL;
    do {
        msg.msg_control = control.space;
        msg.msg_controllen = sizeof(control.space);
        n = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
        /* A peer that ended with a message of ours unread: told once, and its own last words are still to be read. */
        reset = n < 0 && errno == ECONNRESET && !reset;
    } while (n < 0 && (errno == EINTR || reset));
    if (n < 0)
        return -errno;

    size_t count = collect_fds(&msg, all);
    if (lossy && (msg.msg_flags & MSG_CTRUNC) != 0) {
        fd_close_all(all, count);
        count = 0;
        msg.msg_flags &= ~MSG_CTRUNC;
    }
    if (count > max_fds || (msg.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0) {
        fd_close_all(all, count);
        return -EPROTO;
    }
    for (size_t i = 0; i < max_fds; i++)
        fds[i] = i < count ? all[i] : -1;
    if (ret_n_fds)
        *ret_n_fds = count;
    return n;
}

ssize_t fd_recv(int sock, void *data, size_t size, int *fds, size_t max_fds, size_t *ret_n_fds)
{
    return recv_message(sock, data, size, fds, max_fds, ret_n_fds, 0, false);
}

ssize_t fd_recv_nowait(int sock, void *data, size_t size, int *fds, size_t max_fds, size_t *ret_n_fds)
{
    return recv_message(sock, data, size, fds, max_fds, ret_n_fds, MSG_DONTWAIT, false);
}

ssize_t fd_recv_message(int sock, void *data, size_t size, int *fds, size_t max_fds, size_t *ret_n_fds)
{
    return recv_message(sock, data, size, fds, max_fds, ret_n_fds, MSG_DONTWAIT, true);
}
