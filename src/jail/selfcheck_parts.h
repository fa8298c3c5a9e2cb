/* SPDX-License-Identifier: Apache-2.0 */
/* selfcheck_parts.h: what the files of the self-check share, and the parsers that its tests call. */
#ifndef BRIG_JAIL_SELFCHECK_PARTS_H
#define BRIG_JAIL_SELFCHECK_PARTS_H

#include "codec/wire/guest_msg.h"

struct check {
    const struct guest_start *start;
    struct reading *readings;
    long self_fd; /* /proc/self (O_PATH) on a real procfs, or a negative errno. */
};

/* Notes one layer. In detail, `by` counts when it is on and `why` when it is off. */
void check_put(struct check *check, enum brig_layer layer, bool on, struct reading detail);

/* The file system layers (selfcheck_places.c): */
void check_root(struct check *check);
void check_proc(struct check *check);
void check_store(struct check *check);

uint64_t check_ns_inode(const char *link, size_t len);
bool check_status_field(const char *text, size_t len, const char *name, unsigned base, uint64_t *ret) MUST_CHECK;

#endif
