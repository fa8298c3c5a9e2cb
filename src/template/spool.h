/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spool.h: writes a stream to a file without making the loop wait for the disk: a thread writes one piece while the
 * next one is gathered. At most SPOOL_MAX bytes are gathered, so a caller with more waits for wrote(). Organisations
 * take turns at the threads. The reserve of the file system (base/reserve.h) stays free: there wrote() gets -ENOSPC.
 */
#ifndef BRIG_TEMPLATE_SPOOL_H
#define BRIG_TEMPLATE_SPOOL_H

#include "loop/workers.h"

#define SPOOL_MAX (4u << 20) /* the bytes that may wait */

/*
 * Opens a file that a run of brig-layer may read (layer_run.h). Everybody may read it: in a plain user's service root
 * inside has another id than the service. The directory that it lies in is only ours. Returns -1 with errno.
 */
int spool_file(int dir_fd, const char *name, int flags) MUST_CHECK;

struct spool;
/* wrote: so many bytes are in the file now; error is negative if they could not be written. Never from within. */
int spool_create(struct workers *workers, const char *org, int fd, void (*wrote)(void *ctx, size_t len, int error),
                 void *ctx, struct spool **ret) MUST_CHECK;                    /* -ENOMEM; it owns fd on success */
int spool_write(struct spool *spool, const void *data, size_t len) MUST_CHECK; /* -EMSGSIZE, -ENOMEM */
bool spool_is_idle(const struct spool *spool);                                 /* Everything is in the file. */
void spool_free(struct spool *spool); /* at any time; takes NULL. wrote() is not called any more. */

#endif
