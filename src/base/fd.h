/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fd.h: reads, writes and passes descriptors. Every function returns 0 or a count, or a negative errno. Every function
 * goes on after EINTR and opens files with O_CLOEXEC.
 */
#ifndef BRIG_BASE_FD_H
#define BRIG_BASE_FD_H

#include <sys/types.h>

#include "base/base.h"

/*
 * The largest number of descriptors in one message. The listeners of a sandbox with a network need the most
 * (spawner/spawner_wire.h).
 */
#define FD_MSG_MAX 80u

int fd_set_nonblock(int fd) MUST_CHECK;
int fd_set_cloexec(int fd, bool on) MUST_CHECK;

/*
 * Reads a whole small file into buf and ends it with a NUL. Returns its length, or -EFBIG if it needs more than size
 * minus 1 bytes.
 */
ssize_t fd_read_all(int fd, char *buf, size_t size) MUST_CHECK;
ssize_t fd_read_file(int dirfd, const char *path, char *buf, size_t size) MUST_CHECK;
int fd_write_all(int fd, const void *data, size_t len) MUST_CHECK;
/*
 * Writes into a new file; blocks of zeroes become holes (base/holes.h). fd_end_holes() then gives the file its length.
 */
int fd_write_holes(int fd, const void *data, size_t len) MUST_CHECK;
int fd_end_holes(int fd) MUST_CHECK;

int fd_openat_read(int dirfd, const char *path) MUST_CHECK;
/*
 * Writes text into an existing file with one write(2). The kernel's control files take a value in one piece, so a short
 * write is -EIO. A symbolic link is refused.
 */
int fd_write_file(int dirfd, const char *path, const char *text) MUST_CHECK;

/*
 * Sends one message with descriptors beside it (SCM_RIGHTS) over SOCK_SEQPACKET or SOCK_STREAM. len is at least 1.
 * There is no SIGPIPE. Returns 0 when all of it was sent. On a stream that does not block, -EAGAIN means that nothing
 * was sent, and -EIO that a part was sent and the connection cannot be used any more. fd_send_nowait() never blocks.
 */
int fd_send(int sock, const void *data, size_t len, const int *fds, size_t n_fds) MUST_CHECK;
int fd_send_nowait(int sock, const void *data, size_t len, const int *fds, size_t n_fds) MUST_CHECK;
/*
 * Receives a message. Returns the number of bytes, or 0 at the end. The descriptors belong to the caller and are
 * close-on-exec; fds[*ret_n_fds..max_fds) are -1. If there are more than max_fds descriptors, or if the message did not
 * fit, all descriptors are closed and the result is -EPROTO. ret_n_fds may be NULL when max_fds is 0.
 */
ssize_t fd_recv(int sock, void *data, size_t size, int *fds, size_t max_fds, size_t *ret_n_fds) MUST_CHECK;
ssize_t fd_recv_nowait(int sock, void *data, size_t size, int *fds, size_t max_fds, size_t *ret_n_fds) MUST_CHECK;
/*
 * Like fd_recv(), from a peer that is trusted not to send too many. If this process has no room for the descriptors
 * (EMFILE), they are lost but the message is not. Then *ret_n_fds is 0, so that only the matter of this message fails.
 */
ssize_t fd_recv_message(int sock, void *data, size_t size, int *fds, size_t max_fds, size_t *ret_n_fds) MUST_CHECK;

/* Closes every descriptor that is not -1, and sets it to -1. */
void fd_close_all(int *fds, size_t n_fds);
/* For a child that lives on its own: closes everything except these. Negative numbers are ignored. */
void fd_keep_only(const int *keep, size_t n_keep);

#endif
