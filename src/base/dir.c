/* SPDX-License-Identifier: Apache-2.0 */
/* dir.c: opens and reads directories by descriptor. */
#include "base/dir.h"

#include <fcntl.h>

#include "base/str.h"

DIR *dir_of(int fd)
{
    AUTO_FD int own = fd;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (dir)
        (void)take_fd(&own);
    return dir;
}

DIR *dir_open(int dir_fd, const char *name)
{
    return dir_of(openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
}

const struct dirent *dir_next(DIR *dir)
{
    const struct dirent *entry = NULL;

    errno = 0;
    do
        entry = dir ? readdir(dir) : NULL;
    while (entry && (str_eq(entry->d_name, ".") || str_eq(entry->d_name, "..")));
    return entry;
}

void dir_close(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}
