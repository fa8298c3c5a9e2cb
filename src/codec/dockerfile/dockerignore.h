/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dockerignore.h: which paths of a directory do not belong to a build: .dockerignore, and COPY --exclude. The patterns
 * are those of path_match.h, and `**` matches any number of directories. A pattern that matches a directory matches all
 * below it. The last pattern that matches decides; `!` takes back what a pattern before it left out.
 */
#ifndef BRIG_CODEC_DOCKERFILE_DOCKERIGNORE_H
#define BRIG_CODEC_DOCKERFILE_DOCKERIGNORE_H

#include <brig.h>

#include "base/base.h"

#define DOCKERIGNORE_MAX_BYTES (1u << 20)
#define DOCKERIGNORE_MAX_PATTERNS 4096u
#define DOCKERIGNORE_PATTERN_MAX 4096u
#define DOCKERIGNORE_PATH_MAX 4096u /* A longer path matches nothing. */

struct dockerignore;
/* Reads the file: comments, empty lines, one pattern per line. The message is "line N: PATTERN: ...". */
int dockerignore_read(const char *text, size_t len, struct dockerignore **ret, struct brig_err *err) MUST_CHECK;
/* Or pattern by pattern. */
int dockerignore_create(struct dockerignore **ret, struct brig_err *err) MUST_CHECK;
int dockerignore_add(struct dockerignore *ignore, const char *pattern, struct brig_err *err) MUST_CHECK;
void dockerignore_free(struct dockerignore *ignore); /* takes NULL */

/* Is this path (relative, as path_clean() makes it) left out? NULL leaves nothing out; nothing leaves "" out. */
bool dockerignore_matches(const struct dockerignore *ignore, const char *path);
/* Is this directory left out, and can no `!` bring back anything below it? */
bool dockerignore_prunes(const struct dockerignore *ignore, const char *path);

#endif
