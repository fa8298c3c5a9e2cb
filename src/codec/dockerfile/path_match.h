/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path_match.h: the patterns of paths in Dockerfiles, as Go's filepath.Match reads them: `*` and `?` match no slash,
 * `[a-c]` and `[^a-c]` are classes, `\` takes the next character as it is. A character is one of UTF-8; a byte that is
 * none counts as one. It allocates nothing.
 */
#ifndef BRIG_CODEC_DOCKERFILE_PATH_MATCH_H
#define BRIG_CODEC_DOCKERFILE_PATH_MATCH_H

#include "base/base.h"

bool path_pattern_valid(const char *pattern);
/* Does the pattern match the whole path? A pattern that is not valid matches nothing. */
bool path_match(const char *pattern, const char *path);
/* Has it one of * ? [ that no backslash precedes? The text need not end after len bytes. */
bool path_has_wildcard(const char *text, size_t len);

#endif
