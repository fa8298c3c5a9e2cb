/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.h: the file worker of a long-lived sandbox: files, trees as tar, watches (codec/wire/guest_svc.h, SVC_FILE_*).
 *
 * brig-init forks it. It has become the sandbox's user by then, so no call may do what a program of that user may not
 * do, and it has no privilege that a path could be tricked into using. Beyond the header, the answers mean:
 *
 *   any call    EINVAL: a component `..`, a NUL, an empty path, a path or base over SVC_PATH_MAX, unknown flags.
 *               EXDEV with SVC_PATH_CONFINE: an absolute path, or a symbolic link that leads out of `base`.
 *               EAGAIN: too many calls at once, or the tree was changed under the path again and again.
 *               EPROTO: DATA on a call that takes none, or credit for what was never sent.
 *               DATA is consumed as it comes.
 *   STAT        Symbolic links are followed unless SVC_PATH_NOFOLLOW.
 *   LIST        One entry per EVENT, in the directory's order, each directory before its content. depth 0 and 1:
 *               the directory alone; max 0: no limit. A directory that cannot be read is listed and not entered.
 *               An entry with a path over SVC_PATH_MAX is left out, and `more` says so. Symbolic links are not
 *               followed, except for the path itself.
 *   READ        EVENT entry comes for whatever is there; then EISDIR (directory), ELOOP (symbolic link, with
 *               NOFOLLOW) or ENXIO (FIFO, socket, device: they are never opened). A file that ends early ends
 *               the stream, without an error.
 *   WRITE       Without ATOMIC, AT and APPEND the file is truncated and written in place, and stays as it is
 *               when the call fails. ATOMIC with AT or APPEND, AT with APPEND: EINVAL. A symbolic link is
 *               written through. ATOMIC keeps the mode of the file that it replaces; set-id bits are never made.
 *   MOVE        Neither end is followed. To another file system, regular files and symbolic links are copied
 *               and removed; everything else is EXDEV.
 *   REMOVE      Nothing is followed. It stops at the first error; what was removed by then is gone.
 *   WATCH       ENOSPC: more than 8,192 directories. Events of directories that appear while they are being
 *               looked at may come twice (IN_CREATE). For a directory that is moved within the tree only the two
 *               IN_MOVED_* come. ENOENT: what was watched is gone or has moved away, after its IN_DELETE_SELF or
 *               IN_MOVE_SELF.
 *   TAR_GET     The archive is well formed whatever the tree does. errnum then names the first thing that is
 *               not in it as it should be: EACCES, ESTALE (a file shrank and was filled up with zeroes),
 *               ENAMETOOLONG. Sockets and devices are left out. Holes are sent as zeroes. The first 8,192 files
 *               with several names become hard links.
 *   TAR_PUT     EBADMSG: not an archive, a wrong checksum, cut off. EINVAL: a name or a hard link with `..`.
 *               EPERM: a device. ELOOP: through a symbolic link. EISDIR: a file where a directory is. EFBIG: a
 *               limit. EOPNOTSUPP: sparse, multi-volume, unknown types. An EVENT before the REPLY has the name
 *               of the member at fault, if there is one. Leading slashes are stripped. What came before the
 *               error stays; half a file does not.
 */
#ifndef BRIG_GUEST_FILES_FILES_H
#define BRIG_GUEST_FILES_FILES_H

/*
 * Serves until `fd` (a stream socket) ends. It has one thread, changes the working directory, and makes raw system
 * calls only.
 */
__attribute__((noreturn)) void files_worker(int fd);

#endif
