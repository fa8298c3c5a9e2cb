/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tar_make.c: makes the headers of a PAX archive. A ustar header says all that it can; a PAX header precedes it only
 * for the rest: long names, large sizes and ids, times with a fraction or outside of 1970 to 2242, extended attributes,
 * sparse files. Names are bytes: where a name in a PAX header is not UTF-8, hdrcharset=BINARY says so.
 */
#include "codec/tar/tar.h"

#define OCTAL_11 ((UINT64_C(1) << 33) - 1) /* what eleven digits hold */
#define OCTAL_7 ((UINT64_C(1) << 21) - 1)

struct records {
    uint8_t *at, *end;
    bool full;
};

/* ---- PAX ---------------------------------------------------------------------------------------------- */

static size_t decimal(char out[20], uint64_t value)
{
    char digits[20];
    size_t n = 0, len = 0;

    do
        digits[n++] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    while (n > 0)
        out[len++] = digits[--n];
    return len;
}

/* "LENGTH KEY=VALUE\n", where LENGTH counts itself. */
static void put_record2(struct records *out, const char *prefix, const char *key, const void *value, size_t value_len)
{
    size_t prefix_len = __builtin_strlen(prefix), key_len = __builtin_strlen(key);
    size_t rest = 1 + prefix_len + key_len + 1 + value_len + 1, digits = 1;
    char number[20];

    while (decimal(number, rest + digits) != digits)
        digits++;
    if (out->full || (size_t)(out->end - out->at) < rest + digits) {
        out->full = true;
        return;
    }
    __builtin_memcpy(out->at, number, digits);
    out->at += digits;
    *out->at++ = ' ';
    __builtin_memcpy(out->at, prefix, prefix_len);
    out->at += prefix_len;
    __builtin_memcpy(out->at, key, key_len);
    out->at += key_len;
    *out->at++ = '=';
    if (value_len > 0)
        __builtin_memcpy(out->at, value, value_len);
    out->at += value_len;
    *out->at++ = '\n';
}

static void put_record(struct records *out, const char *key, const char *value, size_t value_len)
{
    put_record2(out, "", key, value, value_len);
}

static void put_record_number(struct records *out, const char *key, uint64_t value)
{
    char text[20];

    put_record(out, key, text, decimal(text, value));
}

static void put_record_time(struct records *out, int64_t seconds, uint32_t ns)
{
    char text[40];
    size_t len = 0;

    if (seconds < 0) { /* -2 s and 0.5 s is "-1.5" */
        text[len++] = '-';
        if (ns > 0) {
            seconds++;
            ns = 1000000000 - ns;
        }
    }
    len += decimal(text + len, seconds < 0 ? -(uint64_t)seconds : (uint64_t)seconds);
    if (ns > 0) {
        text[len++] = '.';
        for (uint32_t scale = 100000000; ns > 0; ns %= scale, scale /= 10)
            text[len++] = (char)('0' + ns / scale);
    }
    put_record(out, "mtime", text, len);
}

static bool is_utf8(const char *text, size_t len)
{
    const uint8_t *at = (const uint8_t *)text, *end = at + len;

    while (at < end) {
        unsigned more = *at < 0x80                  ? 0
                        : *at >= 0xc2 && *at < 0xe0 ? 1
                        : *at >= 0xe0 && *at < 0xf0 ? 2
                        : *at >= 0xf0 && *at < 0xf5 ? 3
                                                    : 4;
        uint8_t first = *at++;

        if (more == 4 || (size_t)(end - at) < more)
            return false;
        for (unsigned i = 0; i < more; i++)
            if ((at[i] & 0xc0) != 0x80)
                return false;
        if ((first == 0xe0 && at[0] < 0xa0) || (first == 0xed && at[0] > 0x9f) || (first == 0xf0 && at[0] < 0x90) ||
            (first == 0xf4 && at[0] > 0x8f))
            return false;
        at += more;
    }
    return true;
}

static void put_records(struct records *out, const struct tar_member *member, size_t name_len)
{
    bool name = name_len > 100 && !member->sparse, link = member->link_len > 100;

    if ((name && !is_utf8(member->name, member->name_len)) || (link && !is_utf8(member->link, member->link_len)))
        put_record(out, "hdrcharset", "BINARY", 6);
    if (name)
        put_record(out, "path", member->name, member->name_len);
    if (link)
        put_record(out, "linkpath", member->link, member->link_len);
    if (member->size > OCTAL_11 && !member->sparse)
        put_record_number(out, "size", member->size);
    if (member->uid > OCTAL_7)
        put_record_number(out, "uid", member->uid);
    if (member->gid > OCTAL_7)
        put_record_number(out, "gid", member->gid);
    if (member->mtime_ns > 0 || member->mtime < 0 || (uint64_t)member->mtime > OCTAL_11)
        put_record_time(out, member->mtime, member->mtime_ns);
}

/* ---- ustar -------------------------------------------------------------------------------------------- */

/* digits octal digits and a NUL; what does not fit is in the PAX header. */
static void put_octal(uint8_t *at, unsigned digits, uint64_t value)
{
    if (digits < 21 && value >> (3 * digits))
        value = 0;
    at[digits] = 0;
    while (digits > 0) {
        at[--digits] = (uint8_t)('0' + (value & 7));
        value >>= 3;
    }
}

static void put_block(uint8_t *block, uint8_t type, const char *name, size_t name_len, const struct tar_member *member)
{
    unsigned sum = 0;

    __builtin_memset(block, 0, TAR_BLOCK);
    __builtin_memcpy(block, name, name_len < 100 ? name_len : 100);
    put_octal(block + 100, 7, member->mode & 07777);
    put_octal(block + 108, 7, member->uid);
    put_octal(block + 116, 7, member->gid);
    put_octal(block + 124, 11, member->size);
    put_octal(block + 136, 11, member->mtime < 0 ? 0 : (uint64_t)member->mtime);
    __builtin_memset(block + 148, ' ', 8);
    block[156] = type;
    if (member->link_len > 0)
        __builtin_memcpy(block + 157, member->link, member->link_len < 100 ? member->link_len : 100);
    __builtin_memcpy(block + 257,
                     "ustar\0"
                     "00",
                     8);
    for (unsigned i = 0; i < TAR_BLOCK; i++)
        sum += block[i];
    put_octal(block + 148, 6, sum);
}

static void put_extra_records(struct records *out, const struct tar_member *member, const struct tar_extra *extra,
                              uint64_t stored)
{
    const char *name;
    const uint8_t *value;
    uint32_t at = 0, len;

    if (member->sparse) {
        put_record(out, "GNU.sparse.major", "1", 1);
        put_record(out, "GNU.sparse.minor", "0", 1);
        put_record(out, "GNU.sparse.name", member->name, member->name_len);
        put_record_number(out, "GNU.sparse.realsize", member->size);
        if (stored > OCTAL_11)
            put_record_number(out, "size", stored);
    }
    while (tar_xattr_next(extra, &at, &name, &value, &len))
        put_record2(out, "SCHILY.xattr.", name, value, len);
}

/* A number and a newline; how long they are where there is no room to write them. */
static size_t put_line(uint8_t *at, uint64_t value)
{
    char digits[20];
    size_t len = decimal(digits, value);

    if (at) {
        __builtin_memcpy(at, digits, len);
        at[len] = '\n';
    }
    return len + 1;
}

/* The map of a sparse file, in whole blocks; its length if `at` is NULL. */
static size_t put_map(uint8_t *at, const struct tar_extra *extra)
{
    size_t used = put_line(at, extra->n_pieces);

    for (uint32_t i = 0; i < extra->n_pieces; i++) {
        used += put_line(at ? at + used : NULL, extra->pieces[i].at);
        used += put_line(at ? at + used : NULL, extra->pieces[i].size);
    }
    if (at)
        __builtin_memset(at + used, 0, tar_padding(used));
    return used + tar_padding(used);
}

static uint64_t stored_size(const struct tar_extra *extra, size_t map)
{
    uint64_t size = map;

    for (uint32_t i = 0; i < extra->n_pieces; i++)
        size += extra->pieces[i].size;
    return size;
}

int tar_put_extra(uint8_t *out, size_t size, const struct tar_member *member, const struct tar_extra *extra)
{
    static const char types[TAR_KIND_MAX] = {'0', '5', '2', '1', '6', '3'};
    static const char pax_name[] = "PaxHeaders/member", sparse_name[] = "GNUSparseFile.0/member";
    /* A directory has a slash behind its name where there is room; readers of v7 know it by that. */
    bool slash = member->kind == TAR_DIR && member->name_len < 100;
    struct records records = {out + TAR_BLOCK, out + size - 2 * TAR_BLOCK, false};
    struct tar_member plain = *member; /* as the ustar header has it */
    char name[101];
    size_t name_len = member->name_len, used = 0, map = 0;

    if (member->name_len > TAR_NAME_MAX || member->link_len > TAR_NAME_MAX)
        return -ENAMETOOLONG;
    __builtin_memcpy(name, member->name, name_len < 100 ? name_len : 100);
    if (slash)
        name[name_len++] = '/';
    if (member->sparse) {
        map = put_map(NULL, extra);
        plain.size = stored_size(extra, map);
        name_len = sizeof(sparse_name) - 1;
        __builtin_memcpy(name, sparse_name, name_len);
    }
    put_records(&records, member, name_len);
    if (extra)
        put_extra_records(&records, member, extra, plain.size);
    if (records.full)
        return -ENAMETOOLONG;
    if (records.at > out + TAR_BLOCK) {
        size_t len = (size_t)(records.at - out) - TAR_BLOCK;
        const struct tar_member pax = {.mode = 0644, .size = len};

        put_block(out, 'x', pax_name, sizeof(pax_name) - 1, &pax);
        __builtin_memset(records.at, 0, tar_padding(len));
        used = TAR_BLOCK + len + tar_padding(len);
    }
    if (size - used < TAR_BLOCK + map)
        return -ENAMETOOLONG;
    put_block(out + used, (uint8_t)types[member->kind], name, name_len, &plain);
    used += TAR_BLOCK;
    if (map > 0)
        put_map(out + used, extra);
    return (int)(used + map);
}

int tar_put_header(uint8_t out[TAR_HEADER_MAX], const struct tar_member *member)
{
    return tar_put_extra(out, TAR_HEADER_MAX, member, NULL);
}
