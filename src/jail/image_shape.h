/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_shape.h: computes how large an image must be to hold `disk` bytes of file data beside what ext4 needs for
 * itself. There is always a little more; enter_store_size() takes it away once the sandbox's own directories are made.
 * The maker of the image, the check of limits and the self-check use it.
 */
#ifndef BRIG_JAIL_IMAGE_SHAPE_H
#define BRIG_JAIL_IMAGE_SHAPE_H

#include <stdint.h>

#define IMAGE_BLOCK UINT64_C(4096)
#define IMAGE_INODES_PER_BLOCK UINT64_C(16)    /* 256 bytes each */
#define IMAGE_INODES_PER_GROUP UINT64_C(32768) /* The bitmap of a group is one block. */

struct image_shape {
    uint64_t blocks; /* The blocks of the whole image. */
    uint64_t groups, inodes;
    uint64_t group_blocks; /* The blocks of each group except the last. */
    unsigned journal_mib;  /* 0 for no journal, as in all stores that die with their sandbox. */
};

void image_shape(uint64_t disk, uint64_t inodes, struct image_shape *ret);

/* Returns a limit of bytes in whole blocks; a tmpfs rounds up too. */
static inline uint64_t image_blocks(uint64_t disk)
{
    return (disk + IMAGE_BLOCK - 1) / IMAGE_BLOCK;
}

#endif
