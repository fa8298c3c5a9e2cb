/* SPDX-License-Identifier: Apache-2.0 */
/*
 * etc_template.h: the /etc that all sandboxes of the template `host` share as a lower layer. Half of it is generated
 * (passwd, group, nsswitch.conf, resolv.conf), half is copied from the host by a list of names. hosts and hostname are
 * not in it, because they differ by sandbox.
 *
 * It is kept in the cache directory as `etc-<hash of what it was made from>`. A user of it keeps the returned
 * descriptor, which holds a shared lock. Templates that nobody holds are removed when a newer one is made.
 */
#ifndef BRIG_HOST_ETC_TEMPLATE_H
#define BRIG_HOST_ETC_TEMPLATE_H

#include <brig.h>

#include "base/base.h"

#define ETC_TEMPLATE_DEPTH 8u /* The levels of directories that are copied from one in /etc. */

/*
 * Returns the current template in the cache directory, as a read-only directory descriptor. It is made if it is
 * missing.
 */
int etc_template_open(int cache_fd, struct brig_err *err) MUST_CHECK;

/*
 * Makes the content in an empty directory, where there is no cache directory to keep it in (for instance on a tmpfs).
 */
int etc_template_build(int dir_fd, struct brig_err *err) MUST_CHECK;

/* The same with another directory instead of the host's `/`. */
int etc_template_open_from(int host_fd, int cache_fd, struct brig_err *err) MUST_CHECK;
int etc_template_build_from(int host_fd, int dir_fd, struct brig_err *err) MUST_CHECK;

/*
 * Returns a hash of all that a template is made from. It differs when a new one might differ, and after every boot, so
 * that a directory which was not completely on disk when the machine stopped is never taken for a template.
 */
uint64_t etc_template_stamp(int host_fd) MUST_CHECK;

#endif
