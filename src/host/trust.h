/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trust.h: puts another CA bundle for one sandbox in the place where programs look for the system's. Like the one that
 * it covers, it is read-only and belongs to root.
 */
#ifndef BRIG_HOST_TRUST_H
#define BRIG_HOST_TRUST_H

#include <brig.h>
#include <sys/types.h>

#include "base/base.h"
#include "jail/plan.h"

#define TRUST_MAX (4u << 20) /* bytes */

/* Checks that it is sealed and not too large. Returns 0 or -EPROTO. */
int trust_check(int fd, struct brig_err *err) MUST_CHECK;
/*
 * Puts the text of fd over TRUST_PLACE, and the other usual places of a bundle, in the mount namespace. name is the
 * sandbox's, for trust_forget() when it has ended or this has failed. owner is root inside, as we see it.
 */
int trust_attach(int mnt_fd, const char *name, int fd, uid_t owner, struct brig_err *err) MUST_CHECK;
void trust_forget(const char *name);
/*
 * The same in two steps, for a root that no process has entered yet. trust_make() returns a detached mount of the
 * bundle; trust_put() puts it over the places of the tree whose root is the working directory.
 */
int trust_make(const char *name, int fd, uid_t owner, struct brig_err *err) MUST_CHECK;
int trust_put(int tree, struct brig_err *err) MUST_CHECK;

#endif
