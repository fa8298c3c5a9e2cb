/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fd.h: reading, writing and passing descriptors. Everything returns 0 (or a count) or a negative errno, goes
 * on after EINTR, and opens with O_CLOEXEC.
 */
#ifndef BRIG_BASE_FD_H
#define BRIG_BASE_FD_H

#include <sys/types.h>

#include "base/base.h"

#define FD_MSG_MAX                                                                                                     \
    80u /* descriptors in one message: the listeners of a sandbox with a network are the most (spawner/spawner_wire.h) \
         */

int fd_set_nonblock(int fd) MUST_CHECK;
int fd_set_cloexec(int fd, bool on) MUST_CHECK;

/* A whole small file into buf, NUL-terminated. Returns its length, or -EFBIG when it needs more than size - 1 bytes. */
ssize_t fd_read_all(int fd, char *buf, size_t size) MUST_CHECK;
ssize_t fd_read_file(int dirfd, const char *path, char *buf, size_t size) MUST_CHECK;
int fd_write_all(int fd, const void *data, size_t len) MUST_CHECK;
/* The same into a new file; blocks of zeroes become holes (base/holes.h). fd_end_holes() gives the file its length. */
int fd_write_holes(int fd, const void *data, size_t len) MUST_CHECK;
int fd_end_holes(int fd) MUST_CHECK;

int fd_openat_read(int dirfd, const char *path) MUST_CHECK;
/*
 * One write(2) of text into an existing file that is not a symlink: the kernel's control files take a value in
 * one piece, so a short write is -EIO.
 */
int fd_write_file(int dirfd, const char *path, const char *text) MUST_CHECK;

/*
 * One message with descriptors beside it (SCM_RIGHTS), over SOCK_SEQPACKET or SOCK_STREAM; len > 0. No SIGPIPE.
 * Returns 0 when all of it was sent. On a stream that does not block, -EAGAIN means nothing was sent, -EIO that part
 * of it was and the connection is of no more use. The _nowait variants never block.
 */
int fd_send(int sock, const void *data, size_t len, const int *fds, size_t n_fds) MUST_CHECK;
int fd_send_nowait(int sock, const void *data, size_t len, const int *fds, size_t n_fds) MUST_CHECK;
/*
 * Bytes received, 0 at the end. The descriptors are CLOEXEC and the caller's; fds[*ret_n_fds..max_fds) are -1.
 * More than max_fds of them, or a message that did not fit, is -EPROTO with all of them closed. ret_n_fds may be
 * NULL when max_fds is 0.
 */
ssize_t fd_recv(int sock, void *data, size_t size, int *fds, size_t max_fds, size_t *ret_n_fds) MUST_CHECK;
ssize_t fd_recv_nowait(int sock, void *data, size_t size, int *fds, size_t max_fds, size_t *ret_n_fds) MUST_CHECK;
/*
 * The same from a peer that is trusted not to send too many: descriptors that this process has no room for (EMFILE) are
 * lost, the message is not. *ret_n_fds is 0 then, so that whatever it was about fails, and nothing else.
 */
ssize_t fd_recv_message(int sock, void *data, size_t size, int *fds, size_t max_fds, size_t *ret_n_fds) MUST_CHECK;

/* Closes every descriptor that is not -1, and sets it to -1. */
void fd_close_all(int *fds, size_t n_fds);

#endif
