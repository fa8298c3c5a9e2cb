/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dpkg_status.h: reads /var/lib/dpkg/status of an image: paragraphs of "Name: value" lines with an empty line between
 * them. The image wrote the file, so anything may be in it: a value that is taken has characters that Debian's policy
 * allows and a bounded length. All else of a paragraph is passed over, whatever it is.
 */
#ifndef BRIG_CODEC_LOCK_DPKG_STATUS_H
#define BRIG_CODEC_LOCK_DPKG_STATUS_H

#include <brig.h>

#include "base/base.h"

#define DPKG_VALUE 128u /* This includes the NUL. */

struct dpkg_package {
    char name[DPKG_VALUE], version[DPKG_VALUE], architecture[DPKG_VALUE];
};

/* Letters, digits and .+-~:_ : what names, versions and architectures of packages are made of; 1 to DPKG_VALUE - 1. */
bool dpkg_is_word(const char *text, size_t len);

/*
 * Calls `each` for every package that is installed, in the order of the file; its first error ends the reading and is
 * returned. BRIG_E_INVALID with the line and the rule if a value cannot be one of a package. A paragraph that lacks one
 * of the three values, or the state "installed", is no installed package.
 */
typedef int dpkg_each_fn(void *ctx, const struct dpkg_package *package, struct brig_err *err);
int dpkg_status_read(const char *text, size_t len, dpkg_each_fn *each, void *ctx, struct brig_err *err) MUST_CHECK;

#endif
