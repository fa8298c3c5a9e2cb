/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions as ECMA 262 writes them: what they match, what is no part of that language, and that work ends.
 */
#include "unit.h"

#include "base/mem.h"
#include "codec/schema/jsonschema.h"

static int match_n(const char *pattern_text, const char *text, size_t len)
{
    struct pattern *pattern = NULL;
    struct brig_err err = {0};

    if (pattern_compile(pattern_text, strlen(pattern_text), &pattern, &err) < 0)
        fail_msg("%s", err.message);
    uint64_t budget = pattern_budget(len);
    int r = pattern_match(pattern, text, len, &budget);
    pattern_free(pattern);
    return r;
}

struct sample {
    const char *pattern, *yes, *no;
};

static void means_what_ecma_means(void **state)
{
    static const struct sample cases[] = {
        {"b", "abc", "acd"},
        {"^abc$", "abc", "abc\n"},
        {"^$", "", "\n"},
        {"^a.c$",
         "a\xc3\xa9"
         "c",
         "a\nc"},
        {"^a.c$",
         "a\xf0\x9f\x9a\xa2"
         "c",
         "a\rc"},
        {"^a.c$", "axc",
         "a\xe2\x80\xa8"
         "c"}, /* U+2028 ends a line */
        {"^\\d$", "7", "\xdf\x80"},
        {"^\\w$", "_", "\xc3\xa9"},
        {"^\\s$", "\xc2\xa0", "x"},
        {"^\\s$", "\xef\xbb\xbf", "\x01"},
        {"^\\S$", "x", "\xe2\x80\x83"},
        {"^[\\s]$", "\xe2\x80\xa9", "s"},
        {"^[^\\s]$", "s", "\xe2\x80\xa9"},
        {"^[\\w-.]+$", "a-.b", "a+b"},
        {"^[+-\\d]+$", "+-7", "."},
        {"^[\\S\\s]$", "\xc2\xa0", ""},
        {"^\\v$", "\v", "\n"}, /* not pcre2's class */
        {"^[\\b]$", "\b", "b"},
        {"a\\b", "a b", "ab"},
        {"^\\cC$", "\x03", "cC"},
        {"^\\x41\\u0042\\u{43}$", "ABC", "abc"},
        {"^\\ud83d\\udea2*$", "\xf0\x9f\x9a\xa2\xf0\x9f\x9a\xa2", "D"},
        {"^\xf0\x9f\x9a\xa2{2}$", "\xf0\x9f\x9a\xa2\xf0\x9f\x9a\xa2", "\xf0\x9f\x9a\xa2"},
        {"^\\p{Letter}\\P{Lu}\\p{Script=Greek}$", "\xc3\xa9x\xce\xb1", "1x\xce\xb1"},
        {"^(a)(b)?\\2\\1$", "aa", "ab"}, /* a group that took no part is the empty string */
        {"^(?<year>\\d{4})-\\k<year>$", "2024-2024", "2024-2025"},
        {"^(?!x)(?=a)a(?<=a)(?<!b)$", "a", "x"},
        {"^[[:alpha:]$", ":", "b"}, /* no POSIX class */
        {"^a{,2}$", "a{,2}", "aa"},
        {"^{a}]$", "{a}]", "a"},
        {"^\\/\\@\\_\\-\\.$", "/@_-.", "/@_-x"},
        {"^a+?b??$", "aa", "c"},
        {"x|[^]", "\n", ""},
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (match_n(cases[i].pattern, cases[i].yes, strlen(cases[i].yes)) != 1)
            fail_msg("%s does not match %s", cases[i].pattern, cases[i].yes);
        if (match_n(cases[i].pattern, cases[i].no, strlen(cases[i].no)) != 0)
            fail_msg("%s matches %s", cases[i].pattern, cases[i].no);
    }
    assert_int_equal(match_n("[]", "x", 1), 0);
    assert_int_equal(match_n("^a\\0b$", "a\0b", 3), 1);
    assert_int_equal(match_n("", "", 0), 1);
}

static void refuses_what_ecma_has_not(void **state)
{
    static const char *const bad[] = {"(",
                                      ")",
                                      "[a",
                                      "a\\",
                                      "*a",
                                      "a**",
                                      "a++",
                                      "a?+",
                                      "a{2}{3}",
                                      "a{3,2}",
                                      "\\a",
                                      "\\A",
                                      "\\Z",
                                      "\\z",
                                      "\\G",
                                      "\\K",
                                      "\\Qa\\E",
                                      "\\R",
                                      "\\X",
                                      "\\C",
                                      "\\h",
                                      "\\N",
                                      "\\g1",
                                      "\\012",
                                      "\\1",
                                      "\\k<x>",
                                      "\\kx",
                                      "\\c1",
                                      "\\x4",
                                      "\\u12",
                                      "\\u{}",
                                      "\\u{110000}",
                                      "\\ud83d",
                                      "\\ud83d\\u0041",
                                      "\\p",
                                      "\\p{",
                                      "\\p{Nonsense}",
                                      "(?i)a",
                                      "(?P<n>a)",
                                      "(?#c)",
                                      "(?>a)",
                                      "(?|a)",
                                      "(?R)",
                                      "(?1)",
                                      "(?C1)",
                                      "(?(1)a)",
                                      "(?'n'a)",
                                      "(*FAIL)",
                                      "(*UCP)a",
                                      "(?<1a>b)",
                                      "(?<=a+)b",
                                      "a{5000}",
                                      "[z-a]",
                                      "\xff"};
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct pattern *pattern = NULL;
        struct brig_err err = {0};
        if (pattern_compile(bad[i], strlen(bad[i]), &pattern, &err) == 0)
            fail_msg("taken: %s", bad[i]);
        assert_int_equal(err.code, BRIG_E_USAGE);
        assert_non_null(strstr(err.message, "is not a regular expression (ECMA 262): "));
    }
}

static void patterns_are_bounded(void **state)
{
    static char text[5000];
    struct pattern *pattern = NULL;
    struct brig_err err = {0};
    (void)state;

    memset(text, 'a', 4097);
    assert_int_equal(pattern_compile(text, 4096, &pattern, &err), 0);
    pattern_free(pattern);
    assert_int_equal(pattern_compile(text, 4097, &pattern, &err), -EINVAL);
    memset(text, '(', 200);
    memset(text + 200, ')', 200);
    assert_int_equal(pattern_compile(text, 400, &pattern, &err), -EINVAL);
    assert_int_equal(pattern_compile("((a{999}){999}){999}", 20, &pattern, &err), -EINVAL);
}

static void work_ends(void **state)
{
    static const char *const bombs[] = {"^(a+)+$",
                                        "(a|aa)+$",
                                        "(a*)*[bc]",
                                        "a+[bc]",
                                        "[^bc]*[bc]",
                                        "(?=a*)[bc]",
                                        "(?=a*)[bc]|(?=a*c)a*[bc]",
                                        "(?:a{4096}|x)[bc]",
                                        "(a?){50}a{50}[bc]",
                                        "^(?:a?a?)*[bc]$",
                                        "(a)*\\1+[bc]"};
    size_t size = 200000;
    char *text = mem_alloc(size);
    (void)state;

    assert_non_null(text);
    memset(text, 'a', size);
    text[size - 1] = '!';
    for (size_t i = 0; i < ARRAY_SIZE(bombs); i++) {
        int r = match_n(bombs[i], text, size);
        if (r != -EOVERFLOW)
            fail_msg("%s: %d", bombs[i], r);
    }
    assert_int_equal(match_n("^[a-z]+!$", text, size), 1);
    assert_int_equal(match_n("zzz", text, size), 0);
    assert_int_equal(match_n("a!$", text, size), 1);
    mem_free(text);
}

static void no_text_is_no_answer(void **state)
{
    (void)state;
    assert_int_equal(match_n("a", "\xff", 1), -EOVERFLOW); /* not UTF-8: neither yes nor no */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_what_ecma_means), cmocka_unit_test(refuses_what_ecma_has_not),
        cmocka_unit_test(patterns_are_bounded),  cmocka_unit_test(work_ends),
        cmocka_unit_test(no_text_is_no_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
