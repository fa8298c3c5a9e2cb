/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path.h: makes paths short by their text alone: no double slash and none at the end, no `.`; a `..` takes the name
 * before it away, and none leads out of the root. Nothing is looked at, so a symbolic link is a name like any other.
 */
#ifndef BRIG_BASE_PATH_H
#define BRIG_BASE_PATH_H

#include "base/base.h"

/* Relative to the root, which is "". Returns the length or -ENAMETOOLONG. */
int path_clean(const char *path, char *out, size_t size) MUST_CHECK;
/* The same for a path that is below base unless it begins with a slash. */
int path_clean_below(const char *base, const char *path, char *out, size_t size) MUST_CHECK;
/* The same, with a slash at the front; the root is "/". */
int path_clean_absolute(const char *base, const char *path, char *out, size_t size) MUST_CHECK;
/* Is an absolute path, as these make it, the directory or something below it? */
bool path_is_in(const char *path, const char *dir);

#endif
