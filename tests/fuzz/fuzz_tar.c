/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An archive as a caller uploads it. However it is cut into pieces, the parser must say the same; what it hands out
 * leads nowhere outside; the pieces of content add up; and a member written by us is read back as it was. All of it is
 * read twice, the second time with extended attributes and sparse files.
 */
#include "fuzz.h"

#include "codec/tar/tar.h"

/* What an archive came to, to compare two readings of it. */
struct summary {
    int ret; /* how it ended */
    uint64_t members, content, hash;
};

static void mix(struct summary *sum, const void *data, size_t len)
{
    const uint8_t *at = data;

    for (size_t i = 0; i < len; i++)
        sum->hash = (sum->hash ^ at[i]) * UINT64_C(1099511628211);
}

static void mix_number(struct summary *sum, uint64_t value)
{
    for (int i = 0; i < 8; i++, value >>= 8)
        sum->hash = (sum->hash ^ (value & 0xff)) * UINT64_C(1099511628211);
}

/* No `..`, no `.`, no empty part, no slash at either end. */
static void check_name(const char *name, size_t len)
{
    const char *part = name;

    FUZZ_CHECK(len <= TAR_NAME_MAX && strlen(name) == len);
    while (len > 0) {
        const char *end = strchr(part, '/');
        size_t n = end ? (size_t)(end - part) : strlen(part);

        FUZZ_CHECK(n > 0 && !(n == 1 && part[0] == '.') && !(n == 2 && part[0] == '.' && part[1] == '.'));
        if (!end)
            break;
        part = end + 1;
    }
}

/* Names and values add up to what is there; pieces ascend and lie within the file. Returns the stored bytes. */
static uint64_t check_extra(struct summary *sum, const struct tar_extra *extra, const struct tar_member *member)
{
    const char *name;
    const uint8_t *value;
    uint32_t at = 0, len;
    uint64_t end = 0, stored = 0;

    while (tar_xattr_next(extra, &at, &name, &value, &len)) {
        FUZZ_CHECK(*name && value + len <= extra->xattrs + extra->xattrs_len);
        mix(sum, name, strlen(name));
        mix(sum, value, len);
    }
    FUZZ_CHECK(at == extra->xattrs_len);
    if (!member->sparse)
        return member->size;
    for (uint32_t i = 0; i < extra->n_pieces; i++) {
        FUZZ_CHECK(extra->pieces[i].at >= end && extra->pieces[i].size <= INT64_MAX);
        end = extra->pieces[i].at + extra->pieces[i].size;
        FUZZ_CHECK(end >= extra->pieces[i].at && end <= member->size);
        stored += extra->pieces[i].size;
        mix_number(sum, extra->pieces[i].at);
        mix_number(sum, extra->pieces[i].size);
    }
    return stored;
}

static void check_again(const struct tar_member *member, const struct tar_extra *extra)
{
    static struct tar_parser parser;
    static struct tar_extra again;
    static uint8_t header[TAR_EXTRA_MAX];
    const uint8_t *at = header, *data;
    struct tar_member wanted = *member;
    size_t len, n;
    int made;

    if (wanted.kind == TAR_DEVICE || (int64_t)wanted.uid < 0 || (int64_t)wanted.gid < 0)
        return;
    if (wanted.name_len == 0)
        wanted.name = ".", wanted.name_len = 1;
    if (wanted.kind != TAR_SYMLINK && wanted.kind != TAR_HARDLINK)
        wanted.link_len = 0;
    made = tar_put_extra(header, sizeof(header), &wanted, extra);
    FUZZ_CHECK(made >= (int)TAR_BLOCK && made % (int)TAR_BLOCK == 0);
    len = (size_t)made;
    tar_parser_init(&parser);
    parser.extra = extra ? &again : NULL;
    FUZZ_CHECK(tar_parse(&parser, &at, &len, &data, &n) == TAR_MEMBER);
    FUZZ_CHECK(!extra || (again.xattrs_len == extra->xattrs_len && parser.member.sparse == member->sparse &&
                          memcmp(again.xattrs, extra->xattrs, extra->xattrs_len) == 0));
    FUZZ_CHECK(!member->sparse || again.n_pieces == extra->n_pieces);
    FUZZ_CHECK(parser.member.kind == wanted.kind && parser.member.mode == wanted.mode &&
               parser.member.size == wanted.size);
    FUZZ_CHECK(parser.member.mtime == wanted.mtime && parser.member.mtime_ns == wanted.mtime_ns);
    FUZZ_CHECK(parser.member.name_len == member->name_len &&
               memcmp(parser.member.name, member->name, member->name_len) == 0);
    FUZZ_CHECK(parser.member.link_len == wanted.link_len &&
               memcmp(parser.member.link, member->link, wanted.link_len) == 0);
}

static uint64_t on_member(struct summary *sum, const struct tar_member *member, const struct tar_extra *extra)
{
    sum->members++;
    FUZZ_CHECK(member->kind < TAR_KIND_MAX && member->mode <= 07777 && member->size <= INT64_MAX &&
               member->mtime_ns < 1000000000);
    FUZZ_CHECK(member->kind == TAR_FILE || member->size == 0);
    FUZZ_CHECK(member->kind == TAR_DIR || member->name_len > 0);
    check_name(member->name, member->name_len);
    FUZZ_CHECK(member->link_len <= TAR_NAME_MAX && strlen(member->link) == member->link_len);
    if (member->kind == TAR_HARDLINK)
        check_name(member->link, member->link_len);
    mix_number(sum, member->kind);
    mix_number(sum, member->mode);
    mix_number(sum, member->uid);
    mix_number(sum, member->gid);
    mix_number(sum, member->size);
    mix_number(sum, (uint64_t)member->mtime);
    mix_number(sum, member->mtime_ns);
    mix(sum, member->name, member->name_len + 1);
    mix(sum, member->link, member->link_len + 1);
    FUZZ_CHECK(extra || !member->sparse);
    check_again(member, extra);
    return extra ? check_extra(sum, extra, member) : member->size;
}

static struct summary read_archive(const uint8_t *data, size_t size, size_t piece, struct tar_extra *extra)
{
    static struct tar_parser parser;
    struct summary sum = {.hash = UINT64_C(14695981039346656037)};
    uint64_t left = 0;

    tar_parser_init(&parser);
    parser.extra = extra;
    while (size > 0 && sum.ret >= 0) {
        const uint8_t *at = data, *content = NULL;
        size_t len = size < piece ? size : piece, n = 0;

        size -= len;
        data += len;
        while ((sum.ret = tar_parse(&parser, &at, &len, &content, &n)) > TAR_NEED) {
            if (sum.ret == TAR_MEMBER) {
                left = on_member(&sum, &parser.member, extra);
            } else if (sum.ret == TAR_CONTENT) {
                FUZZ_CHECK(n > 0 && n <= left && content >= data - piece && content + n <= at);
                left -= n;
                sum.content += n;
                mix(&sum, content, n);
            } else {
                FUZZ_CHECK(left == 0);
            }
        }
        FUZZ_CHECK(sum.ret < 0 || len == 0);
    }
    if (sum.ret >= 0)
        sum.ret = tar_parse_end(&parser);
    FUZZ_CHECK(sum.ret == 0 || sum.ret == -EBADMSG || sum.ret == -EINVAL || sum.ret == -ENAMETOOLONG ||
               sum.ret == -EOPNOTSUPP || sum.ret == -EFBIG || (extra && (sum.ret == -E2BIG || sum.ret == -ENODATA)));
    return sum;
}

static void check_both_ways(const uint8_t *data, size_t size, struct tar_extra *extra)
{
    struct summary whole = read_archive(data, size, size > 0 ? size : 1, extra);
    struct summary pieces = read_archive(data, size, 1 + (size > 0 ? data[0] % 61 : 0), extra);

    FUZZ_CHECK(whole.ret == pieces.ret && whole.members == pieces.members && whole.hash == pieces.hash &&
               whole.content == pieces.content);
}

/* A fuzzer does not find checksums. Every block gets one; in content it does no harm. */
static void mend(uint8_t *block)
{
    unsigned sum = 8 * ' ';

    for (unsigned i = 0; i < TAR_BLOCK; i++)
        sum += i < 148 || i >= 156 ? block[i] : 0;
    if (sum == 8 * ' ')
        return;
    for (unsigned i = 0; i < 6; i++, sum >>= 3)
        block[153 - i] = (uint8_t)('0' + (sum & 7));
    block[154] = 0;
    block[155] = ' ';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t mended[1u << 16];
    static struct tar_extra extra;

    check_both_ways(data, size, NULL);
    check_both_ways(data, size, &extra);
    if (size <= sizeof(mended)) {
        memcpy(mended, data, size);
        for (size_t at = 0; at + TAR_BLOCK <= size; at += TAR_BLOCK)
            mend(mended + at);
        check_both_ways(mended, size, NULL);
        check_both_ways(mended, size, &extra);
    }
    return 0;
}
