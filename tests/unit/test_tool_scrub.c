/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets out of streams: every form, every border between two pieces, words that overlap. */
#include "unit.h"

#include <stdlib.h>

#include "run/scrub.h"

static struct scrub *with(const char *const *values)
{
    struct scrub *scrub;

    assert_int_equal(scrub_create(&scrub), 0);
    for (; *values; values++)
        assert_int_equal(scrub_add(scrub, *values, strlen(*values)), 0);
    assert_int_equal(scrub_ready(scrub), 0);
    return scrub;
}

/* In pieces of every size. */
static void gives(const char *const *values, const char *text, const char *expected, uint64_t count)
{
    size_t len = strlen(text);

    for (size_t piece = 1; piece <= len; piece++) {
        struct scrub *scrub = with(values);
        struct scrub_stream stream = {0};
        struct buf out = BUF_INIT(65536);
        for (size_t at = 0; at < len; at += piece)
            assert_int_equal(scrub_feed(scrub, &stream, text + at, len - at < piece ? len - at : piece, &out), 0);
        assert_int_equal(scrub_end(scrub, &stream, &out), 0);
        assert_string_equal(out.data, expected);
        assert_int_equal(scrub_count(scrub), count);
        buf_done(&out);
        scrub_destroy(scrub);
    }
}

static void forms(void **state UNUSED)
{
    const char *const secret[] = {"s3cr3t/Value+1?", NULL};

    gives(secret, "nothing to see", "nothing to see", 0);
    gives(secret, "a s3cr3t/Value+1? b", "a [secret] b", 1);
    gives(secret, "s3cr3t/Value+1?s3cr3t/Value+1?", "[secret][secret]", 2);
    gives(secret, "s3cr3t/Values3cr3t/Value+1?", "s3cr3t/Value[secret]", 1);
    gives(secret, "url=s3cr3t%2FValue%2B1%3F&", "url=[secret]&", 1);
    gives(secret, "url=s3cr3t%2fValue%2b1%3f&", "url=[secret]&", 1);
    gives(secret, "733363723374 7333637233742f56616c75652b313f", "733363723374 [secret]", 1);
    gives(secret, "7333637233742F56616C75652B313F", "[secret]", 1);
    /* base64.b64encode(x + secret + b"yy") for x of 0, 1, 2 bytes; what is left shares bits with a neighbour */
    gives(secret, "czNjcjN0L1ZhbHVlKzE/eXk=", "[secret]eXk=", 1);
    gives(secret, "eHMzY3IzdC9WYWx1ZSsxP3l5", "eH[secret]3l5", 1);
    gives(secret, "eHhzM2NyM3QvVmFsdWUrMT95eQ==", "eHh[secret]95eQ==", 1);
    gives(secret, "czNjcjN0L1ZhbHVlKzE_", "[secret]", 1);
}

static void escapes(void **state UNUSED)
{
    const char *const secret[] = {"line \"one\"\nline\\two\001", NULL};

    gives(secret, "{\"a\": \"line \\\"one\\\"\\nline\\\\two\\u0001\"}", "{\"a\": \"[secret]\"}", 1);
    gives(secret, "'line \"one\"\\nline\\\\two\\x01'", "'[secret]'", 1);
}

static void several(void **state UNUSED)
{
    const char *const nested[] = {"abcdef", "abcdefgh", NULL};
    const char *const overlapping[] = {"aaabbb", "bbbccc", NULL};
    const char *const suffix[] = {"xxabcdefyy", "abcdef", NULL};

    gives(nested, "1 abcdefgh 2 abcdef 3 abcdefg", "1 [secret] 2 [secret] 3 [secret]g", 3);
    gives(overlapping, "-aaabbbccc-", "-[secret]-", 1);
    gives(overlapping, "-aaabbb-bbbccc-", "-[secret]-[secret]-", 2);
    gives(suffix, "xxabcdefy.", "xx[secret]y.", 1);
    gives(suffix, "xxabcdefyy.", "[secret].", 1);
}

static void short_ones(void **state UNUSED)
{
    const char *const tiny[] = {"ab", "12345", NULL};

    gives(tiny, "ab 12345", "ab 12345", 0);
}

static void bounds(void **state UNUSED)
{
    struct scrub *scrub;
    size_t len = 1u << 20;
    char *value = malloc(len);
    struct buf out = BUF_INIT(4u << 20);

    assert_non_null(value);
    memset(value, 'x', len);
    assert_int_equal(scrub_create(&scrub), 0);
    assert_int_equal(scrub_add(scrub, value, len), -E2BIG);
    for (size_t i = 0; i < 65536; i++)
        value[i] = (char)('a' + i % 23);
    assert_int_equal(scrub_add(scrub, value, 65536), 0);
    assert_int_equal(scrub_ready(scrub), 0);
    assert_int_equal(scrub_text(scrub, value, 65536, &out), 0);
    assert_string_equal(out.data, "[secret]");
    buf_done(&out);
    scrub_destroy(scrub);
    free(value);
}

static void cut(void **state UNUSED)
{
    static const struct {
        const char *text, *clean;
    } cases[] = {{"plain text", "plain text"},
                 {"x hunter2-h", "x "},
                 {"x hunter2-hunter2", "x [secret]"},
                 {"hunter2-hunter2hunter", "[secret]"},
                 {"hunter2-hunter2 end", "[secret] end"},
                 {"", ""}};
    struct scrub *scrub;

    assert_int_equal(scrub_create(&scrub), 0);
    assert_int_equal(scrub_add(scrub, "hunter2-hunter2", 15), 0);
    assert_int_equal(scrub_ready(scrub), 0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct buf out = BUF_INIT(4096);
        assert_int_equal(scrub_text_cut(scrub, cases[i].text, strlen(cases[i].text), &out), 0);
        assert_string_equal(out.data ? out.data : "", cases[i].clean);
        buf_done(&out);
    }
    scrub_destroy(scrub);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),      cmocka_unit_test(escapes), cmocka_unit_test(several),
        cmocka_unit_test(short_ones), cmocka_unit_test(bounds),  cmocka_unit_test(cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
