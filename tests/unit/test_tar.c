/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tar archives as bytes. Real archives of GNU tar and Python are read and written in tests/e2e/test_tar.py; here stand
 * the corners of the format, made by hand, one answer each.
 */
#include "unit.h"

#include "codec/tar/tar.h"

#define ARCHIVE_MAX (1u << 20)

static uint8_t archive[ARCHIVE_MAX];
static size_t archive_len;
static struct tar_parser parser;

/* ---- making --------------------------------------------------------------------------------------------- */

static void begin(void)
{
    memset(archive, 0, sizeof(archive));
    archive_len = 0;
}

static void sum_up(uint8_t *block)
{
    unsigned sum = 0;

    memset(block + 148, ' ', 8);
    for (unsigned i = 0; i < TAR_BLOCK; i++)
        sum += block[i];
    snprintf((char *)block + 148, 8, "%06o", sum);
}

/* Fields have no NUL at their end when they are full. */
static void put(uint8_t *at, const char *text, size_t max)
{
    for (size_t i = 0; i < max && text[i] != 0; i++)
        at[i] = (uint8_t)text[i];
}

/* A header as an honest writer makes it; `content` behind it. */
static uint8_t *add(char type, const char *name, const char *link, const char *content)
{
    uint8_t *block = archive + archive_len;
    size_t len = content ? strlen(content) : 0;

    put(block, name, 100);
    put(block + 100, "0000644", 8);
    put(block + 108, "0001750", 8);
    put(block + 116, "0001750", 8);
    snprintf((char *)block + 124, 12, "%011o", (unsigned)len);
    put(block + 136, "00000001234", 12);
    block[156] = (uint8_t)type;
    if (link)
        put(block + 157, link, 100);
    put(block + 257, "ustar", 5);
    put(block + 263, "00", 2);
    sum_up(block);
    if (len > 0)
        put(block + TAR_BLOCK, content, len);
    archive_len += TAR_BLOCK + (len + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    return block;
}

static void end(void)
{
    archive_len += 2 * TAR_BLOCK;
}

/* ---- reading -------------------------------------------------------------------------------------------- */

/* The first member of the archive, or how it is refused. */
static int first(void)
{
    const uint8_t *at = archive, *data;
    size_t len = archive_len, n;

    tar_parser_init(&parser);
    return tar_parse(&parser, &at, &len, &data, &n);
}

/* All of it: how many members, or how it is refused. */
static int all(size_t piece)
{
    const uint8_t *at = archive, *data;
    size_t left = archive_len, n;
    int ret = 0, members = 0;

    tar_parser_init(&parser);
    while (left > 0) {
        size_t len = left < piece ? left : piece;
        left -= len;
        while ((ret = tar_parse(&parser, &at, &len, &data, &n)) > 0)
            members += ret == TAR_MEMBER;
        if (ret < 0)
            return ret;
    }
    ret = tar_parse_end(&parser);
    return ret < 0 ? ret : members;
}

static void reads_every_kind(void **state)
{
    static const struct {
        const char *name, *link, *content;
        enum tar_kind kind;
        char type;
    } kinds[] = {{"f", NULL, "abc", TAR_FILE, '0'},     {"f", NULL, "abc", TAR_FILE, '\0'},
                 {"f", NULL, "abc", TAR_FILE, '7'},     {"f", "other", NULL, TAR_HARDLINK, '1'},
                 {"f", "../x", NULL, TAR_SYMLINK, '2'}, {"f", NULL, NULL, TAR_DEVICE, '3'},
                 {"f", NULL, NULL, TAR_DEVICE, '4'},    {"f", NULL, NULL, TAR_DIR, '5'},
                 {"f", NULL, NULL, TAR_FIFO, '6'},      {"f/", NULL, NULL, TAR_DIR, '\0'}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        begin();
        add(kinds[i].type, kinds[i].name, kinds[i].link, kinds[i].content);
        end();
        assert_int_equal(first(), TAR_MEMBER);
        assert_int_equal(parser.member.kind, kinds[i].kind);
        assert_string_equal(parser.member.name, "f");
        assert_string_equal(parser.member.link, kinds[i].link ? kinds[i].link : "");
        assert_int_equal(parser.member.size, kinds[i].content ? 3 : 0);
        assert_int_equal(parser.member.mode, 0644);
        assert_int_equal(parser.member.uid, 1000);
        assert_int_equal(parser.member.mtime, 01234);
        for (size_t piece = 1; piece < 1100; piece += 73)
            assert_int_equal(all(piece), 1);
    }
}

static void names_are_cleaned(void **state)
{
    static const struct {
        const char *name, *clean;
    } names[] = {{"/etc/passwd", "etc/passwd"}, {"//a///b//", "a/b"}, {"./a/./b/.", "a/b"},     {"...", "..."},
                 {"a/..b/c..", "a/..b/c.."},    {"..;/x", "..;/x"},   {"a\\..\\b", "a\\..\\b"}, {"\xff\n", "\xff\n"}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        begin();
        add('5', names[i].name, NULL, NULL);
        assert_int_equal(first(), TAR_MEMBER);
        assert_string_equal(parser.member.name, names[i].clean);
    }
    begin();
    add('5', "./", NULL, NULL);
    assert_int_equal(first(), TAR_MEMBER);
    assert_int_equal(parser.member.name_len, 0);
    for (const char *const *bad = (const char *const[]){"..", "../x", "a/../b", "a/..", "/..", "", NULL}; *bad; bad++) {
        begin();
        add('5', *bad, NULL, NULL);
        assert_int_equal(first(), -EINVAL);
        begin();
        add('1', "h", *bad, NULL);
        assert_int_equal(first(), -EINVAL);
    }
    begin();
    add('0', "./", NULL, NULL)[156] = '7'; /* a file that is the root */
    sum_up(archive);
    assert_int_equal(first(), -EINVAL);
    begin();
    add('2', "s", "", NULL);
    assert_int_equal(first(), -EINVAL);
}

static void prefix_only_in_ustar(void **state)
{
    (void)state;
    begin();
    memcpy(add('0', "name", NULL, NULL) + 345, "pre/fix", 7);
    sum_up(archive);
    assert_int_equal(first(), TAR_MEMBER);
    assert_string_equal(parser.member.name, "pre/fix/name");
    memcpy(archive + 257, "ustar  ", 8); /* GNU: times stand there */
    sum_up(archive);
    assert_int_equal(first(), TAR_MEMBER);
    assert_string_equal(parser.member.name, "name");
    memset(archive + 257, 0, 8); /* v7 */
    sum_up(archive);
    assert_int_equal(first(), TAR_MEMBER);
    assert_string_equal(parser.member.name, "name");
}

static void numbers_in_all_forms(void **state)
{
    static const struct {
        const char *field; /* 12 bytes of hex */
        int64_t value;
        int ret;
    } sizes[] = {{"30303030303030303031 3200", 012, TAR_MEMBER},
                 {"2020202020202020 31322000", 012, TAR_MEMBER},
                 {"373737373737373737373700", 077777777777, TAR_MEMBER},
                 {"373737373737373737373737", 0777777777777, TAR_MEMBER}, /* no room for a NUL */
                 {"800000000000000200000000", INT64_C(1) << 33, TAR_MEMBER},
                 {"800000007fffffffffffffff", INT64_MAX, TAR_MEMBER},
                 {"800000008000000000000000", 0, -EBADMSG},
                 {"800000010000000000000000", 0, -EBADMSG},
                 {"ffffffffffffffffffffffff", 0, -EBADMSG}, /* -1 */
                 {"303030303030303030382000", 0, -EBADMSG},
                 {"2d3030303030303030303100", 0, -EBADMSG},
                 {"000000000000000000000000", 0, TAR_MEMBER}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        begin();
        assert_int_equal(unit_hex(sizes[i].field, add('0', "n", NULL, NULL) + 124, 12), 12);
        sum_up(archive);
        assert_int_equal(first(), sizes[i].ret);
        if (sizes[i].ret == TAR_MEMBER)
            assert_true(parser.member.size == (uint64_t)sizes[i].value);
    }
    begin();
    unit_hex("fffffffffffffffffffffffb", add('0', "n", NULL, NULL) + 136, 12);
    sum_up(archive);
    assert_int_equal(first(), TAR_MEMBER);
    assert_true(parser.member.mtime == -5);
}

static void checksums_and_ends(void **state)
{
    (void)state;
    begin();
    add('0', "n", NULL, "x");
    assert_int_equal(all(4096), -EBADMSG); /* cut at a member */
    archive_len += TAR_BLOCK;
    assert_int_equal(all(4096), 1); /* one block of zeroes: some stop there */
    archive_len -= 1;
    assert_int_equal(all(4096), -EBADMSG);
    archive_len += 1 + TAR_BLOCK;
    assert_int_equal(all(4096), 1);
    memset(archive + archive_len, 'j', 3000); /* what follows the end */
    archive_len += 3000;
    assert_int_equal(all(4096), 1);
    archive[5]++;
    assert_int_equal(all(4096), -EBADMSG);
    for (archive_len = 0; archive_len < 2 * TAR_BLOCK; archive_len += 97)
        assert_int_equal(all(4096), -EBADMSG);

    begin(); /* one block of zeroes, then something */
    archive_len = TAR_BLOCK;
    add('0', "n", NULL, NULL);
    end();
    assert_int_equal(all(4096), -EBADMSG);

    begin(); /* a sum of signed bytes, as some wrote long ago */
    add('0', "\xff\xfe", NULL, NULL);
    unsigned sum = 0;
    memset(archive + 148, ' ', 8);
    for (unsigned i = 0; i < TAR_BLOCK; i++)
        sum += (unsigned)(int8_t)archive[i];
    snprintf((char *)archive + 148, 8, "%06o", sum);
    assert_int_equal(first(), TAR_MEMBER);
}

static void contents_where_none_belong(void **state)
{
    (void)state;
    for (const char *type = "123456"; *type; type++) {
        begin();
        add(*type, "n", "link", "content");
        assert_int_equal(first(), -EBADMSG);
    }
    for (const char *type = "SVDMNA"; *type; type++) {
        begin();
        add(*type, "n", "link", NULL);
        assert_int_equal(first(), -EOPNOTSUPP);
    }
}

static void pax_headers(void **state)
{
    (void)state;
    begin();
    add('x', "pax", NULL, "13 path=long\n19 linkpath=target\n11 size=10\n22 mtime=-1.250000000\n15 comment=a=b\n");
    add('2', "short", "x", NULL);
    assert_int_equal(first(), -EBADMSG); /* a size where none belongs */
    begin();
    add('x', "pax", NULL, "13 path=long\n21 mtime=1.500000000\n15 comment=a=b\n21 hdrcharset=BINARY\n");
    add('0', "short", NULL, "1");
    add('0', "next", NULL, "1");
    end();
    assert_int_equal(first(), TAR_MEMBER);
    assert_string_equal(parser.member.name, "long");
    assert_int_equal(parser.member.mtime, 1);
    assert_int_equal(parser.member.mtime_ns, 500000000);
    for (size_t piece = 1; piece < 2000; piece += 37)
        assert_int_equal(all(piece), 2);
    assert_string_equal(parser.member.name, "next"); /* it was for one member only */
    assert_int_equal(parser.member.mtime_ns, 0);

    begin();
    add('x', "pax", NULL, "17 mtime=-1.2500\n14 path=first\n14 path=later\n");
    add('5', "short", NULL, NULL);
    assert_int_equal(first(), TAR_MEMBER);
    assert_true(parser.member.mtime == -2);
    assert_int_equal(parser.member.mtime_ns, 750000000);
    assert_string_equal(parser.member.name, "later");

    begin(); /* an empty value takes it back */
    add('x', "pax", NULL, "14 path=first\n8 path=\n");
    add('5', "short", NULL, NULL);
    assert_int_equal(first(), TAR_MEMBER);
    assert_string_equal(parser.member.name, "short");

    static const struct {
        const char *records;
        int ret;
    } bad[] = {{"13 path=../x\n", -EINVAL},
               {"12 path=abcd\n", -EBADMSG},
               {"14 path=abcd\n", -EBADMSG},
               {"13 path=abcd ", -EBADMSG},
               {"013 path=abcd\n", -EBADMSG},
               {"x path=abcd\n", -EBADMSG},
               {"4 a\n", -EBADMSG},
               {"5 =a\n", -EBADMSG},
               {"11 size=1x\n", -EBADMSG},
               {"28 size=9223372036854775808\n", -EBADMSG},
               {"12 mtime=..\n", -EBADMSG},
               {"11 mtime=-\n", -EBADMSG},
               {"22 GNU.sparse.major=1\n", -EOPNOTSUPP},
               {"99999999 a=b\n", -EBADMSG},
               {"0 a=b\n", -EBADMSG},
               {" a=b\n", -EBADMSG}};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        begin();
        add('x', "pax", NULL, bad[i].records);
        add('5', "short", NULL, NULL);
        assert_int_equal(first(), bad[i].ret);
        if (bad[i].ret == -EBADMSG)
            assert_null(parser.member.name);
        else
            assert_string_equal(parser.member.name, bad[i].ret == -EINVAL ? "../x" : "short");
    }
    static const char *const sparse[] = {"22 GNU.sparse.major=1\n24 GNU.sparse.name=real\n13 path=made\n",
                                         "13 path=made\n24 GNU.sparse.name=real\n24 GNU.sparse.map=0,1,2\n"};
    for (size_t i = 0; i < ARRAY_SIZE(sparse); i++) {
        begin();
        add('x', "pax", NULL, sparse[i]);
        add('0', "short", NULL, NULL);
        assert_int_equal(first(), -EOPNOTSUPP);
        assert_string_equal(parser.member.name, "real");
    }
}

/* Readers would differ, or no honest writer does it. */
static void extensions_that_contradict(void **state)
{
    (void)state;
    begin();
    add('x', "pax", NULL, "13 path=long\n");
    add('x', "pax", NULL, "13 path=more\n");
    add('5', "short", NULL, NULL);
    assert_int_equal(first(), -EBADMSG);
    begin();
    add('x', "pax", NULL, "13 path=long\n");
    add('L', "././@LongLink", NULL, "gnu");
    add('5', "short", NULL, NULL);
    assert_int_equal(first(), -EBADMSG);
    begin();
    add('L', "././@LongLink", NULL, "one");
    add('L', "././@LongLink", NULL, "two");
    add('5', "short", NULL, NULL);
    assert_int_equal(first(), -EBADMSG);
    begin();
    add('x', "pax", NULL, "13 path=long\n");
    end();
    assert_int_equal(all(4096), -EBADMSG);
    for (const char *const *g = (const char *const[]){"13 path=long\n", "14 linkpath=x\n", "10 size=1\n", NULL}; *g;
         g++) {
        begin();
        add('g', "pax", NULL, *g);
        add('5', "short", NULL, NULL);
        assert_int_equal(first(), -EBADMSG);
    }
    begin();
    add('g', "pax", NULL, "13 comment=x\n12 mtime=77\n");
    add('5', "short", NULL, NULL);
    assert_int_equal(first(), TAR_MEMBER);
    assert_int_equal(parser.member.mtime, 77);
}

static void gnu_long_names(void **state)
{
    char name[TAR_NAME_MAX + 10];

    (void)state;
    memset(name, 'n', sizeof(name));
    for (size_t i = 200; i < sizeof(name); i += 200)
        name[i] = '/';
    for (unsigned over = 0; over < 2; over++) {
        name[TAR_NAME_MAX + over] = 0;
        begin();
        add('L', "././@LongLink", NULL, name);
        add('K', "././@LongLink", NULL, "the/link");
        add('2', "cut", "cut", NULL);
        /* GNU counts a NUL: one more byte may come, not be the name */
        assert_int_equal(first(), over ? -EBADMSG : TAR_MEMBER);
        name[TAR_NAME_MAX + over] = 'n';
    }
    begin();
    add('L', "././@LongLink", NULL, "d/long");
    add('K', "././@LongLink", NULL, "the/link");
    add('2', "cut", "cut", NULL);
    assert_int_equal(first(), TAR_MEMBER);
    assert_string_equal(parser.member.name, "d/long");
    assert_string_equal(parser.member.link, "the/link");
    begin();
    snprintf((char *)add('L', "././@LongLink", NULL, NULL) + 124, 12, "%011o", TAR_NAME_MAX + 2);
    sum_up(archive);
    assert_int_equal(first(), -ENAMETOOLONG);
    begin();
    snprintf((char *)add('x', "pax", NULL, NULL) + 124, 12, "%011o", TAR_EXTENSION_MAX + 1);
    sum_up(archive);
    assert_int_equal(first(), -EFBIG);
}

/* What we write we read, at the edges of every field. */
static void writes_what_it_reads(void **state)
{
    static const uint64_t sizes[] = {0, 1, 511, 512, 077777777777, 0100000000000, UINT64_C(1) << 40, INT64_MAX};
    static const size_t lens[] = {1, 99, 100, 101, 255, 256, 3000, TAR_NAME_MAX};
    static const struct {
        int64_t s;
        uint32_t ns;
    } times[] = {{0, 0}, {1700000000, 123456789},   {-1, 0}, {-2, 500000000}, {INT64_C(1) << 33, 0},
                 {1, 1}, {INT64_MIN + 1, 999999999}};
    static char name[TAR_NAME_MAX + 1];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(sizes) * ARRAY_SIZE(lens) * ARRAY_SIZE(times) * 3; i++) {
        struct tar_member member = {.mode = 0751, .uid = i % 2 ? 4000000000u : 7, .gid = 3, .name = name};
        member.kind = i % 3 == 0 ? TAR_FILE : i % 3 == 1 ? TAR_DIR : TAR_SYMLINK;
        member.size = member.kind == TAR_FILE ? sizes[i % ARRAY_SIZE(sizes)] : 0;
        member.name_len = lens[i / 3 % ARRAY_SIZE(lens)];
        member.mtime = times[i / 24 % ARRAY_SIZE(times)].s;
        member.mtime_ns = times[i / 24 % ARRAY_SIZE(times)].ns;
        memset(name, i % 5 == 0 ? '\xfe' : 'n', member.name_len);
        name[member.name_len] = 0;
        if (member.kind == TAR_SYMLINK)
            member.link = name, member.link_len = member.name_len;
        int len = tar_put_header(archive, &member);
        assert_true(len > 0 && len % (int)TAR_BLOCK == 0 && len <= (int)TAR_HEADER_MAX);
        archive_len = (size_t)len;
        assert_int_equal(first(), TAR_MEMBER);
        assert_int_equal(parser.member.kind, member.kind);
        assert_true(parser.member.size == member.size);
        assert_true(parser.member.mtime == member.mtime && parser.member.mtime_ns == member.mtime_ns);
        assert_string_equal(parser.member.name, name);
        assert_string_equal(parser.member.link, member.kind == TAR_SYMLINK ? name : "");
    }
    struct tar_member longer = {.name = name, .name_len = TAR_NAME_MAX + 1};
    assert_int_equal(tar_put_header(archive, &longer), -ENAMETOOLONG);
}

static struct tar_extra extra;

/* The first member as a reader of layers gets it. */
static int first_extra(void)
{
    const uint8_t *at = archive, *data;
    size_t len = archive_len, n;

    tar_parser_init(&parser);
    parser.extra = &extra;
    return tar_parse(&parser, &at, &len, &data, &n);
}

static void attributes_are_collected(void **state)
{
    const char *name;
    const uint8_t *value;
    uint32_t at = 0, len;

    (void)state;
    begin();
    add('x', "pax", NULL, "30 SCHILY.xattr.user.a=one=1\n\n26 SCHILY.xattr.user.b=\nx\n9 uid=99\n");
    add('0', "f", NULL, "abc");
    add('0', "g", NULL, NULL);
    end();
    assert_int_equal(first(), TAR_MEMBER);
    assert_int_equal(parser.member.uid, 99);
    assert_int_equal(first_extra(), TAR_MEMBER);
    assert_true(tar_xattr_next(&extra, &at, &name, &value, &len));
    assert_string_equal(name, "user.a");
    assert_int_equal(len, 6);
    assert_memory_equal(value, "one=1\n", 6);
    assert_true(tar_xattr_next(&extra, &at, &name, &value, &len));
    assert_string_equal(name, "user.b");
    assert_int_equal(len, 2);
    assert_false(tar_xattr_next(&extra, &at, &name, &value, &len));
    /* The next member has none. */
    const uint8_t *in = archive, *data;
    size_t left = archive_len, n;
    tar_parser_init(&parser);
    parser.extra = &extra;
    for (int members = 0; members < 2;)
        members += tar_parse(&parser, &in, &left, &data, &n) == TAR_MEMBER;
    assert_string_equal(parser.member.name, "g");
    assert_int_equal(extra.xattrs_len, 0);
}

/* Each way to write a map comes to the same pieces; a reader that wants none refuses them all. */
static void maps_in_all_forms(void **state)
{
    static const char *const headers[] = {
        ("22 GNU.sparse.size=99\n26 GNU.sparse.numblocks=2\n23 GNU.sparse.offset=0\n25 GNU.sparse.numbytes=3\n"
         "24 GNU.sparse.offset=50\n25 GNU.sparse.numbytes=4\n"),
        "22 GNU.sparse.size=99\n27 GNU.sparse.map=0,3,50,4\n21 GNU.sparse.name=s\n",
        "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n21 GNU.sparse.name=s\n26 GNU.sparse.realsize=99\n",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
        begin();
        add('x', "pax", NULL, headers[i]);
        uint8_t *member = add('0', i == 0 ? "s" : "GNUSparseFile.0/s", NULL, i < 2 ? "abcdefg" : "2\n0\n3\n50\n4\n");
        if (i == 2) {
            snprintf((char *)member + 124, 12, "%011o", TAR_BLOCK + 7);
            sum_up(member);
            archive_len += TAR_BLOCK;
        }
        end();
        assert_int_equal(first(), -EOPNOTSUPP);
        assert_int_equal(first_extra(), TAR_MEMBER);
        assert_string_equal(parser.member.name, "s");
        assert_true(parser.member.sparse && parser.member.size == 99);
        assert_int_equal(extra.n_pieces, 2);
        assert_true(extra.pieces[1].at == 50 && extra.pieces[1].size == 4);
        assert_int_equal(tar_skip(&parser), TAR_BLOCK);
    }
}

static void writes_extras_that_it_reads(void **state)
{
    static uint8_t out[TAR_EXTRA_MAX];
    static struct tar_extra made;
    struct tar_member member = {
        .kind = TAR_FILE, .sparse = true, .size = UINT64_C(1) << 40, .name = "s", .name_len = 1};
    int len;

    (void)state;
    for (uint32_t i = 0; i < TAR_PIECES_MAX; i++)
        made.pieces[made.n_pieces++] = (struct tar_piece){(uint64_t)i << 26, i % 3};
    assert_int_equal(tar_xattr_add(&made, "user.x", "value", 5), 0);
    len = tar_put_extra(out, sizeof(out), &member, &made);
    assert_true(len > 0 && len % (int)TAR_BLOCK == 0 && len <= (int)sizeof(archive));
    begin();
    memcpy(archive, out, (size_t)len);
    archive_len = (size_t)len;
    assert_int_equal(first_extra(), TAR_MEMBER);
    assert_true(parser.member.sparse && parser.member.size == member.size);
    assert_int_equal(extra.n_pieces, TAR_PIECES_MAX);
    assert_memory_equal(extra.pieces, made.pieces, sizeof(made.pieces));
    assert_int_equal(extra.xattrs_len, made.xattrs_len);
    assert_memory_equal(extra.xattrs, made.xattrs, made.xattrs_len);
    assert_int_equal(tar_xattr_add(&made, "user.y", out, TAR_XATTRS_MAX), -E2BIG);
    assert_int_equal(tar_put_extra(out, TAR_HEADER_MAX, &member, &made), -ENAMETOOLONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attributes_are_collected),    cmocka_unit_test(maps_in_all_forms),
        cmocka_unit_test(writes_extras_that_it_reads), cmocka_unit_test(reads_every_kind),
        cmocka_unit_test(names_are_cleaned),           cmocka_unit_test(prefix_only_in_ustar),
        cmocka_unit_test(numbers_in_all_forms),        cmocka_unit_test(checksums_and_ends),
        cmocka_unit_test(contents_where_none_belong),  cmocka_unit_test(pax_headers),
        cmocka_unit_test(extensions_that_contradict),  cmocka_unit_test(gnu_long_names),
        cmocka_unit_test(writes_what_it_reads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
