/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tar_sparse.c: the maps of sparse files. A map says where the pieces of data that an archive holds belong in the file;
 * all else is a hole. GNU tar has written it in four ways: in its own header and blocks behind it (type 'S'), as PAX
 * records GNU.sparse.offset and GNU.sparse.numbytes (0.0), as one record GNU.sparse.map (0.1), and as lines of numbers
 * before the data (1.0). Whatever the way, the pieces ascend, stay apart and within the file, and are together as long
 * as what is stored; any other map is refused.
 */
#include "codec/tar/tar.h"

enum {
    AT_TYPE = 156,
    AT_MAP = 386, /* four pairs, in GNU's own header */
    AT_MORE = 482,
    AT_REAL_SIZE = 483,
    AT_BLOCK_MORE = 504, /* behind the 21 pairs of a block */
    NUMBER = 12,
};

void tar_sparse_reset(struct tar_extra *extra)
{
    extra->n_pieces = 0;
    extra->form = TAR_SPARSE_IN_HEADERS;
    extra->real_size = extra->number = extra->expected = 0;
    extra->digits = 0;
    extra->has_size = extra->has_at = extra->counted = false;
}

enum tar_sparse_key tar_sparse_key(const char *key, size_t len)
{
    static const struct {
        const char *name;
        enum tar_sparse_key key;
    } keys[] = {{"GNU.sparse.size", TAR_SPARSE_SIZE}, {"GNU.sparse.realsize", TAR_SPARSE_SIZE},
                {"GNU.sparse.offset", TAR_SPARSE_AT}, {"GNU.sparse.numbytes", TAR_SPARSE_LEN},
                {"GNU.sparse.map", TAR_SPARSE_MAP},   {"GNU.sparse.major", TAR_SPARSE_MAJOR}};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (__builtin_strlen(keys[i].name) == len && __builtin_memcmp(keys[i].name, key, len) == 0)
            return keys[i].key;
    return TAR_SPARSE_NONE;
}

/* The numbers of a map come in turn: a place, a length. The place waits in `piece` behind the last one. */
static int add_number(struct tar_extra *extra, uint64_t value)
{
    if (extra->n_pieces == TAR_PIECES_MAX)
        return -E2BIG;
    if (!extra->has_at)
        extra->pieces[extra->n_pieces].at = value;
    else
        extra->pieces[extra->n_pieces++].size = value;
    extra->has_at = !extra->has_at;
    return 0;
}

int tar_sparse_value(struct tar_extra *extra, enum tar_sparse_key key, uint64_t value)
{
    switch (key) {
    case TAR_SPARSE_SIZE:
        extra->has_size = true;
        extra->real_size = value;
        return 0;
    case TAR_SPARSE_AT: return extra->has_at ? -EBADMSG : add_number(extra, value);
    case TAR_SPARSE_LEN: return extra->has_at ? add_number(extra, value) : -EBADMSG;
    case TAR_SPARSE_MAJOR:
        if (value > 1)
            return -EOPNOTSUPP;
        extra->form = value == 1 ? TAR_SPARSE_IN_CONTENT : TAR_SPARSE_IN_HEADERS;
        return 0;
    default: return -EBADMSG;
    }
}

static int add_digit(struct tar_extra *extra, uint8_t byte)
{
    if (byte < '0' || byte > '9' || __builtin_mul_overflow(extra->number, 10u, &extra->number) ||
        __builtin_add_overflow(extra->number, (uint64_t)(byte - '0'), &extra->number))
        return -EBADMSG;
    extra->digits++;
    return 0;
}

/* A number is complete. */
static int end_number(struct tar_extra *extra, uint64_t *ret)
{
    if (extra->digits == 0 || extra->number > INT64_MAX)
        return -EBADMSG;
    *ret = extra->number;
    extra->number = 0;
    extra->digits = 0;
    return 0;
}

int tar_sparse_map_byte(struct tar_extra *extra, uint8_t byte, bool last)
{
    uint64_t value;
    int ret;

    if (!last && byte != ',')
        return add_digit(extra, byte);
    if (last && extra->digits == 0 && extra->n_pieces == 0 && !extra->has_at)
        return 0; /* a file without data */
    ret = end_number(extra, &value);
    return ret < 0 ? ret : add_number(extra, value);
}

/* ---- the map before the data -------------------------------------------------------------------------- */

/* The first line says how many pieces there are; two lines follow for each. */
static int on_line(struct tar_extra *extra)
{
    uint64_t value;
    int ret = end_number(extra, &value);

    if (ret < 0)
        return ret;
    if (extra->counted) {
        extra->expected--;
        return add_number(extra, value);
    }
    if (value > TAR_PIECES_MAX)
        return -E2BIG;
    extra->counted = true;
    extra->expected = value * 2;
    return 0;
}

static int content_block(struct tar_extra *extra, const uint8_t *block)
{
    int ret = 0;

    for (unsigned i = 0; i < TAR_BLOCK && ret == 0; i++) {
        if (extra->counted && extra->expected == 0)
            return 0; /* the rest of the block is padding */
        ret = block[i] == '\n' ? on_line(extra) : add_digit(extra, block[i]);
    }
    return ret < 0 ? ret : !extra->counted || extra->expected > 0;
}

/* ---- GNU's own ---------------------------------------------------------------------------------------- */

static int gnu_pairs(struct tar_extra *extra, const uint8_t *at, unsigned pairs)
{
    int64_t place, len;
    int ret;

    for (unsigned i = 0; i < pairs; i++, at += (size_t)2 * NUMBER) {
        if (at[0] == 0)
            return 0;
        if (tar_number(at, NUMBER, &place) < 0 || tar_number(at + NUMBER, NUMBER, &len) < 0 || place < 0 || len < 0)
            return -EBADMSG;
        if ((ret = add_number(extra, (uint64_t)place)) < 0 || (ret = add_number(extra, (uint64_t)len)) < 0)
            return ret;
    }
    return 0;
}

static int gnu_header(struct tar_extra *extra, const uint8_t *header)
{
    int64_t size;
    int ret;

    tar_sparse_reset(extra);
    extra->form = TAR_SPARSE_IN_BLOCKS;
    if (tar_number(header + AT_REAL_SIZE, NUMBER, &size) < 0 || size < 0)
        return -EBADMSG;
    extra->has_size = true;
    extra->real_size = (uint64_t)size;
    ret = gnu_pairs(extra, header + AT_MAP, 4);
    return ret < 0 ? ret : header[AT_MORE] != 0;
}

/* ---- all ---------------------------------------------------------------------------------------------- */

int tar_sparse_begin(struct tar_extra *extra, const uint8_t *header)
{
    if (header[AT_TYPE] == 'S')
        return gnu_header(extra, header);
    if (!extra->has_size)
        return -EBADMSG;
    return extra->form == TAR_SPARSE_IN_CONTENT;
}

int tar_sparse_block(struct tar_extra *extra, const uint8_t *block)
{
    int ret;

    if (extra->form == TAR_SPARSE_IN_CONTENT)
        return content_block(extra, block);
    ret = gnu_pairs(extra, block, 21);
    return ret < 0 ? ret : block[AT_BLOCK_MORE] != 0;
}

int tar_sparse_check(const struct tar_extra *extra, uint64_t stored)
{
    uint64_t end = 0;

    if (extra->has_at)
        return -EBADMSG;
    for (uint32_t i = 0; i < extra->n_pieces; i++) {
        const struct tar_piece *piece = &extra->pieces[i];

        if (piece->at < end || piece->size > stored || __builtin_add_overflow(piece->at, piece->size, &end) ||
            end > extra->real_size)
            return -EBADMSG;
        stored -= piece->size;
    }
    return stored == 0 ? 0 : -EBADMSG;
}
