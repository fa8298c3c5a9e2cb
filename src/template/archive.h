/* SPDX-License-Identifier: Apache-2.0 */
/*
 * archive.h: the table of contents of an image archive, as brig-layer reads it in a sandbox: one JSON line per member.
 * Nothing is unpacked: members are found by name and read by offset. A member may be a link to another one (`docker
 * save` stores equal layers so); links are followed in this table only.
 */
#ifndef BRIG_TEMPLATE_ARCHIVE_H
#define BRIG_TEMPLATE_ARCHIVE_H

#include <brig.h>

#include "base/base.h"

#define ARCHIVE_MEMBERS_MAX 8192u /* An archive with more of them is no image, but a root file system. */
#define ARCHIVE_NAME_MAX 512u

struct archive;
struct archive_member {
    const char *name, *link; /* link is "" for what is not a link */
    uint64_t offset, size;
    bool is_file;
};

int archive_create(struct archive **ret) MUST_CHECK; /* -ENOMEM */
void archive_free(struct archive *archive);          /* takes NULL */
/* Takes one line of `brig-layer index`. -EMSGSIZE: there are too many members; -EINVAL: it is no such line. */
int archive_add(struct archive *archive, const char *line, size_t len) MUST_CHECK;
/* The file of this name, through links; or NULL. "./x" and "x" are one name. */
const struct archive_member *archive_find(const struct archive *archive, const char *name);

#endif
