/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trust.h: another CA bundle for one sandbox, in the place where programs look for the system's. Read-only and root's,
 * like the one it covers.
 */
#ifndef BRIG_HOST_TRUST_H
#define BRIG_HOST_TRUST_H

#include <brig.h>
#include <sys/types.h>

#include "base/base.h"
#include "jail/plan.h"

#define TRUST_MAX (4u << 20) /* bytes */

/* Sealed, of a size we take. -EPROTO. */
int trust_check(int fd, struct brig_err *err) MUST_CHECK;
/* Puts the text of fd over TRUST_PLACE (and the other usual places of a bundle) of the mount namespace. name: the
 * sandbox's, for trust_forget() when it has ended or this has failed. owner: root inside, as we see it. */
int trust_attach(int mnt_fd, const char *name, int fd, uid_t owner, struct brig_err *err) MUST_CHECK;
void trust_forget(const char *name);

#endif
