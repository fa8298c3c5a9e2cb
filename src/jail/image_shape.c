/* SPDX-License-Identifier: Apache-2.0 */
/* image_shape.c: computes the shape of an ext4 image (image_shape.h). It uses no libc, because brig-init has it too. */
#include "jail/image_shape.h"

#define GROUP_BLOCKS UINT64_C(32768)
#define RESERVED_MAX UINT64_C(4096) /* ext4 keeps 2 % back, and at most so many blocks, for the maps of files */
#define SPARE_BLOCKS UINT64_C(512)  /* directories of the set-up: six places, four for every overlay */

void image_shape(uint64_t disk, uint64_t inodes, struct image_shape *ret)
{
    uint64_t data = image_blocks(disk) + SPARE_BLOCKS;
    uint64_t table = inodes / IMAGE_INODES_PER_BLOCK + 1;
    uint64_t reserved = (data + table) / 40 < RESERVED_MAX ? (data + table) / 40 : RESERVED_MAX;
    uint64_t content = data + table + reserved, group = GROUP_BLOCKS;
    uint64_t needed = (inodes + IMAGE_INODES_PER_GROUP - 1) / IMAGE_INODES_PER_GROUP;

    /* Two bitmaps and a descriptor for every group, and the superblock. */
    uint64_t total = content + 3 * (content / GROUP_BLOCKS + 2) + 64;
    /*
     * More than one inode per 4 KiB needs more groups than that makes, so smaller ones. mkfs would choose them by
     * itself, and would then round up to more inodes than were asked for.
     */
    if ((total + GROUP_BLOCKS - 1) / GROUP_BLOCKS < needed) {
        total = content + 3 * (needed + 2) + 64;
        group = total / needed / 8 * 8;
    }
    /* mkfs leaves out a last group that is too small. */
    uint64_t per_group = table / (total / group + 1) + 128;
    if (total > group && total % group < per_group)
        total += per_group;
    uint64_t groups = (total + group - 1) / group;
    /* mkfs rounds up to whole blocks of inodes in every group; a limit rounds down. */
    uint64_t each = inodes / groups / IMAGE_INODES_PER_BLOCK * IMAGE_INODES_PER_BLOCK;

    *ret = (struct image_shape){.blocks = total,
                                .groups = groups,
                                .group_blocks = group,
                                .inodes = (each ? each : IMAGE_INODES_PER_BLOCK) * groups};
}
