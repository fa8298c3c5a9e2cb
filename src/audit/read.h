/* SPDX-License-Identifier: Apache-2.0 */
/* read.h: the lines of a log as they are on disk, oldest first, also while it is being written. What is no audit line
 * is left out. */
#ifndef BRIG_AUDIT_READ_H
#define BRIG_AUDIT_READ_H

#include "base/base.h"

/* line: without its newline. Return false to stop. */
typedef bool audit_read_fn(void *ctx, uint64_t seq, const char *org, const char *line, size_t len);

/* Every line with a sequence number over `after`. 0 or a negative errno. */
int audit_read(int dir_fd, uint64_t after, audit_read_fn *take, void *ctx) MUST_CHECK;

#endif
