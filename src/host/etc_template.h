/* SPDX-License-Identifier: Apache-2.0 */
/*
 * etc_template.h: the /etc that all sandboxes of the template `host` share as a lower layer. Half of it is
 * generated (passwd, group, nsswitch.conf, resolv.conf), half copied from the host by a list of names; hosts and
 * hostname are not in it, they differ by sandbox.
 *
 * It is kept in the cache directory as `etc-<hash of what it was made from>`. Whoever uses one keeps the returned
 * descriptor: it holds a shared lock, and templates that nobody holds are removed when a newer one is made.
 */
#ifndef BRIG_HOST_ETC_TEMPLATE_H
#define BRIG_HOST_ETC_TEMPLATE_H

#include <brig.h>

#include "base/base.h"

#define ETC_TEMPLATE_DEPTH 8u /* levels of directories copied from one in /etc */

/* The current template in the cache directory, made if need be: a read-only directory descriptor. */
int etc_template_open(int cache_fd, struct brig_err *err) MUST_CHECK;

/* The content into an empty directory, where there is no cache directory to keep it in (a tmpfs, say). */
int etc_template_build(int dir_fd, struct brig_err *err) MUST_CHECK;

/* The same with another directory in the place of the host's `/`. */
int etc_template_open_from(int host_fd, int cache_fd, struct brig_err *err) MUST_CHECK;
int etc_template_build_from(int host_fd, int dir_fd, struct brig_err *err) MUST_CHECK;

/*
 * A hash of all a template is made from: it differs when one made now might differ, and after every boot (what was
 * not yet on disk when the machine stopped is then never taken for a template).
 */
uint64_t etc_template_stamp(int host_fd) MUST_CHECK;

#endif
