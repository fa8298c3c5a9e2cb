/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dir.h: walks a directory.
 *
 *   AUTO_DIR DIR *dir = dir_open(dir_fd, name);
 *   for (const struct dirent *entry; (entry = dir_next(dir));)
 *       ...
 */
#ifndef BRIG_BASE_DIR_H
#define BRIG_BASE_DIR_H

#include <dirent.h>

#include "base/base.h"

#define AUTO_DIR __attribute__((cleanup(dir_close)))

/* Opens a directory below dir_fd; its own name may not be a symbolic link. Returns NULL with errno. */
DIR *dir_open(int dir_fd, const char *name) MUST_CHECK;
DIR *dir_of(int fd) MUST_CHECK; /* The directory of a descriptor, which it takes over; -1 with an errno gives NULL. */
/* Returns the next entry except "." and "..". NULL: there is none, or errno is not 0. A dir of NULL has no entries. */
const struct dirent *dir_next(DIR *dir);
void dir_close(DIR **dir);

#endif
