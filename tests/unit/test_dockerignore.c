/* SPDX-License-Identifier: Apache-2.0 */
/* The patterns of Dockerfiles: Go's filepath.Match, and what .dockerignore leaves out, by Docker's own examples. */
#include "unit.h"

#include "base/mem.h"
#include "codec/dockerfile/dockerignore.h"
#include "codec/dockerfile/path_match.h"

/* ---- filepath.Match ---------------------------------------------------------------------------------------- */

static void patterns_match_as_in_go(void **state)
{
    static const struct {
        const char *pattern, *path;
        bool match;
    } cases[] = {
        {"abc", "abc", true},
        {"*", "abc", true},
        {"*c", "abc", true},
        {"a*", "a", true},
        {"a*", "abc", true},
        {"a*", "ab/c", false},
        {"a*/b", "abc/b", true},
        {"a*/b", "a/c/b", false},
        {"a*b*c*d*e*/f", "axbxcxdxe/f", true},
        {"a*b*c*d*e*/f", "axbxcxdxexxx/f", true},
        {"a*b*c*d*e*/f", "axbxcxdxe/xxx/f", false},
        {"a*b?c*x", "abxbbxdbxebxczzx", true},
        {"a*b?c*x", "abxbbxdbxebxczzy", false},
        {"ab[c]", "abc", true},
        {"ab[b-d]", "abc", true},
        {"ab[e-g]", "abc", false},
        {"ab[^c]", "abc", false},
        {"ab[^e-g]", "abc", true},
        {"a\\*b", "a*b", true},
        {"a\\*b", "ab", false},
        {"a?b", "a\u263ab", true},
        {"a[^a]b", "a\u263ab", true},
        {"a???b", "a\u263ab", false},
        {"[a-\u03b6]*", "\u03b1", true},
        {"*[a-\u03b6]", "A", false},
        {"a?b", "a/b", false},
        {"a*b", "a/b", false},
        {"[\\]a]", "]", true},
        {"[\\-]", "-", true},
        {"[x\\-]", "x", true},
        {"[x\\-]", "z", false},
        {"*x", "xxx", true},
        {"", "", true},
        {"*", "", true},
        {"a", "", false},
        {"?", "\xff", true},
        {"\xff", "\xff", true},
        {"\xff", "\xfe", false},
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (path_match(cases[i].pattern, cases[i].path) != cases[i].match)
            fail_msg("%s against %s", cases[i].pattern, cases[i].path);
}

static void malformed_patterns(void **state)
{
    static const char *const bad[] = {"[]a]", "[-]", "[x-]", "[-x]", "\\", "[a-b-c]", "[", "[^", "[^bc", "a[", "a/b["};
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_false(path_pattern_valid(bad[i]));
        assert_false(path_match(bad[i], bad[i]));
    }
    assert_true(path_pattern_valid("a]b-^"));
}

static void wildcards_are_seen(void **state)
{
    (void)state;

    assert_true(path_has_wildcard("a*", 2));
    assert_false(path_has_wildcard("a*", 1));
    assert_false(path_has_wildcard("a\\*\\[", 5));
}

/* ---- .dockerignore ------------------------------------------------------------------------------------------ */

static bool is_left_out(const char *text, const char *path)
{
    struct dockerignore *ignore = NULL;
    struct brig_err err = {0};
    bool matches;

    if (dockerignore_read(text, strlen(text), &ignore, &err) < 0)
        fail_msg("%s", err.message);
    matches = dockerignore_matches(ignore, path);
    if (dockerignore_prunes(ignore, path) && !matches)
        fail_msg("%s prunes what it does not match: %s", text, path);
    dockerignore_free(ignore);
    return matches;
}

static void files_are_left_out(void **state)
{
    static const struct {
        const char *text, *path;
        bool out;
    } cases[] = {
        /* the examples of Docker's documentation */
        {"# comment\n*/temp*\n*/*/temp*\ntemp?\n", "somedir/temporary.txt", true},
        {"*/temp*", "somedir/temp", true},
        {"*/temp*", "temp", false},
        {"*/temp*", "a/b/temp", false},
        {"*/*/temp*", "somedir/subdir/temporary.txt", true},
        {"temp?", "tempa", true},
        {"temp?", "temp", false},
        {"**/*.go", "main.go", true},
        {"**/*.go", "a/b/c.go", true},
        {"*.md\n!README.md", "README.md", false},
        {"*.md\n!README.md", "NEWS.md", true},
        {"*.md\n!README*.md\nREADME-secret.md", "README-secret.md", true},
        {"*.md\n!README*.md\nREADME-secret.md", "README-public.md", false},
        {"*.md\nREADME-secret.md\n!README*.md", "README-secret.md", false},
        {"*\n!src", "src/deep/file", false},
        {"*\n!src", "other/file", true},
        /* lines */
        {"\xef\xbb\xbfone\n", "one", true},
        {" one \r\n\n  two", "two", true},
        {" one \r\n", "one", true},
        {"#one", "#one", false},
        {" #one", "#one", true},
        {"/one/", "one", true},
        {"./a/../one", "one", true},
        {"a\n! a", "a", false},
        {".\n/", "x", false},
        {"**", "a/b", true},
        /* the cases that Docker itself tests */
        {"**/", "file", true},
        {"**/", "dir/file", true},
        {"**/**", "dir/file", true},
        {"dir/**", "dir/file", true},
        {"dir/**", "dir", false},
        {"**/dir", "dir", true},
        {"**/dir", "dir/file", true},
        {"**/dir2/*", "dir/dir2/file", true},
        {"**/dir2/**", "dir/dir2/dir2/file", true},
        {"**file", "file", true},
        {"**file", "dir/file", true},
        {"**/file", "dir/dir/file", true},
        {"**/file*", "dir/dir/file.txt", true},
        {"**/file*txt", "dir/dir/file.txt", true},
        {"**/file*.txt*", "dir/dir/file.txt", true},
        {"**/**/*.txt", "dir/dir/file.txt", true},
        {"**/**/*.txt2", "dir/dir/file.txt", false},
        {"**/*.txt", "file.txt", true},
        {"a**/*.txt", "a/file.txt", true},
        {"a**/*.txt", "a/dir/dir/file.txt", true},
        {"a/*.txt", "a/file.txts", false},
        {"a[b-d]e", "ae", false},
        {"a[b-d]e", "ace", true},
        {"a[b-d]e", "aae", false},
        {"a[^b-d]e", "aze", true},
        {".*", ".foo", true},
        {".*", "foo", false},
        {"abc.def", "abcdef", false},
        {"abc.def", "abc.def", true},
        {"abc?def", "abcZdef", true},
        {"a\\\\", "a\\", true},
        {"**/foo/bar", "foo/bar", true},
        {"**/foo/bar", "dir/dir2/foo/bar", true},
        {"abc/**", "abc", false},
        {"abc/**", "abc/def/ghi", true},
        {"**/.foo", ".foo", true},
        {"**/.foo", "bar.foo", false},
        {"a(b)c/def", "a(b)c/def", true},
        {"a.|)$(}+{bc", "a.|)$(}+{bc", true},
        {"dist/**/*.js", "dist/proxy.js", true},
        {"dist/**/*.js", "dist/a/b.js", true},
        {"a/b/c", "a/b", false},
        {"a/b", "a/b/c/d", true},
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (is_left_out(cases[i].text, cases[i].path) != cases[i].out)
            fail_msg("%s against %s", cases[i].text, cases[i].path);
    assert_false(dockerignore_matches(NULL, "a"));
    assert_false(is_left_out("**", ""));
}

static void directories_are_pruned_where_nothing_comes_back(void **state)
{
    static const struct {
        const char *text, *path;
        bool prunes;
    } cases[] = {
        {"node_modules", "node_modules", true},
        {"a\n!b", "a", true},
        {"a\n!a/b", "a", false},
        {"a\n!a/b/c", "a/b", false},
        {"a\n!a/b/c", "a/x", true},
        {"a\n!**/x", "a", false},
        {"a\n!a/*", "a/b", false},
        {"*\n!src", "lib", true},
        {"*\n!src", "src", false},
        {"*\n!src/x", "src", false},
        {"ab\n!a", "ab", true},
        {"a\n!ab/c", "a", true},
        {"a\n!ab*", "a", true},
        {"x", "a", false},
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct dockerignore *ignore = NULL;

        assert_int_equal(dockerignore_read(cases[i].text, strlen(cases[i].text), &ignore, NULL), 0);
        if (dockerignore_prunes(ignore, cases[i].path) != cases[i].prunes)
            fail_msg("%s against %s", cases[i].text, cases[i].path);
        dockerignore_free(ignore);
    }
}

static void refusals(void **state)
{
    static char many[DOCKERIGNORE_MAX_PATTERNS * 2 + 8], large[DOCKERIGNORE_MAX_BYTES + 2], wide[8200];
    struct dockerignore *ignore = NULL;
    struct brig_err err = {0};
    (void)state;

    assert_int_equal(dockerignore_read("a\n\n[b\n", 6, &ignore, &err), -EINVAL);
    assert_string_equal(err.message, "line 3: [b: the pattern is malformed");
    assert_int_equal(dockerignore_read("!", 1, &ignore, &err), -EINVAL);
    assert_string_equal(err.message, "line 1: !: a pattern must follow");
    assert_int_equal(dockerignore_read("a\0b", 3, &ignore, &err), -EINVAL);
    assert_string_equal(err.message, "line 1: a: the pattern is malformed");
    for (size_t i = 0; i <= DOCKERIGNORE_MAX_PATTERNS; i++)
        memcpy(many + 2 * i, "a\n", 2);
    assert_true(dockerignore_read(many, 2 * ((size_t)DOCKERIGNORE_MAX_PATTERNS + 1), &ignore, &err) < 0);
    assert_string_equal(err.message, "line 4097: a: more than 4096 patterns");
    memset(wide, 'a', sizeof(wide));
    assert_true(dockerignore_read(wide, sizeof(wide), &ignore, &err) < 0);
    assert_string_equal(err.message,
                        "line 1: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...: a pattern has at most 4095 bytes");
    memset(large, '\n', sizeof(large));
    assert_true(dockerignore_read(large, DOCKERIGNORE_MAX_BYTES + 1, &ignore, &err) < 0);
    assert_string_equal(err.message, "line 1: the file has more than 1048576 bytes");
    assert_null(ignore);
}

static void memory_runs_out(void **state)
{
    bool failed = true;
    (void)state;

    for (size_t n = 0; failed; n++) {
        struct dockerignore *ignore = NULL;
        int r;

        mem_fail_after(n);
        r = dockerignore_read("a\nb*\n!c", 7, &ignore, NULL);
        failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        assert_int_equal(r, failed ? -ENOMEM : 0);
        dockerignore_free(ignore);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_match_as_in_go),
        cmocka_unit_test(malformed_patterns),
        cmocka_unit_test(wildcards_are_seen),
        cmocka_unit_test(files_are_left_out),
        cmocka_unit_test(directories_are_pruned_where_nothing_comes_back),
        cmocka_unit_test(refusals),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
