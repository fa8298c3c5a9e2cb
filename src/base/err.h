/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.h: errors. One call fills in the message and returns the negative number.
 *
 *   return err_set(err, BRIG_E_HOST, errno, "mount %s", path);      -> -errno, "mount /x: Permission denied"
 *   return err_set(err, BRIG_E_USAGE, 0, "--pids %s: ...", value);  -> -EINVAL
 *
 * err may be NULL. A message that is too long is truncated. What could deceive in it is escaped.
 */
#ifndef BRIG_BASE_ERR_H
#define BRIG_BASE_ERR_H

#include <brig.h>

#include "base/base.h"

int err_set(struct brig_err *err, enum brig_code code, int errnum, const char *format, ...) PRINTF_LIKE(4, 5);
#define err_host(err, ...) err_set(err, BRIG_E_HOST, errno, __VA_ARGS__)
#define err_usage(err, ...) err_set(err, BRIG_E_USAGE, 0, __VA_ARGS__)
#define err_nomem(err) err_set(err, BRIG_E_NOMEM, ENOMEM, "out of memory")

#endif
