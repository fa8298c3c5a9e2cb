/* SPDX-License-Identifier: Apache-2.0 */
/* Requirements: names with extras and versions pass, everything else that an installer would understand is refused by
 * name. */
#include "unit.h"

#include "base/str.h"
#include "deps/sets.h"
#include "records/requirement.h"

static void passes(const char *text, bool npm)
{
    struct brig_err err = {0};

    if (requirement_ok(text, npm, false, &err) < 0)
        fail_msg("%s: %s", text, err.message);
}

static void refused(const char *text, bool npm, const char *why)
{
    struct brig_err err = {0};

    if (requirement_ok(text, npm, false, &err) == 0)
        fail_msg("\"%s\" passed", text);
    assert_int_equal(err.code, BRIG_E_USAGE);
    if (!strstr(err.message, why))
        fail_msg("%s: not \"%s\"", err.message, why);
}

static void test_pip_names(void **state)
{
    static const char *const good[] = {"requests",
                                       "numpy==1.26.4",
                                       "a",
                                       "Zope.Interface",
                                       "uvicorn[standard]",
                                       "uvicorn[standard,extra_1]>=0.20,<1",
                                       "x ~= 1.4.2",
                                       "x!=2.*",
                                       "x===1.0+local.1",
                                       "x==1!2.0",
                                       " x ",
                                       "x [a , b] >= 1 , < 2",
                                       "x<2",
                                       "x==1.0-1"};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        passes(good[i], false);
}

static void test_pip_tricks(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "empty"},
        {"   ", "empty"},
        {"-r other.txt", "options"},
        {"--index-url=https://evil.example/", "options"},
        {" -e .", "options"},
        {"-", "options"},
        {"./here", "paths"},
        {"/etc", "paths"},
        {"~/x", "paths"},
        {"a/b", "paths"},
        {"..", "paths"},
        {"a\\b", "paths"},
        {"evil.whl", "paths"},
        {"x==1.zip", "paths"},
        {"x.TAR.GZ[e]", "not a name"},
        {"https://evil.example/x.whl", "URLs"},
        {"git+ssh://h/x", "URLs"},
        {"GIT+file:///x", "URLs"},
        {"x @ https://h/x.whl", "URLs"},
        {"x@git+https://h/x", "URLs"},
        {"x @ file:///etc", "URLs"},
        {"x@evil", "URLs"},
        {"x; python_version<'3'", "markers"},
        {"x;y", "markers"},
        {"x==1; --pre", "markers"},
        {"x y", "not a name"},
        {"x --pre", "not a name"},
        {"x==1 --hash=sha256:00", "not a name"},
        {"x==", "not a name"},
        {"x==1,", "not a name"},
        {"x[", "not a name"},
        {"x[]", "not a name"},
        {"x[a", "not a name"},
        {"x-", "not a name"},
        {"x=1", "not a name"},
        {"x==$(id)", "not a name"},
        {"${HOME}", "not a name"},
        {"x`id`", "not a name"},
        {"x#y", "not a name"},
        {"x|y", "not a name"},
        {"x==1\n--pre", "control"},
        {"x\r", "control"},
        {"x\t", "control"},
        {"x\x1b[2J", "control"},
        {"x\x7f", "control"},
        {"x\xe2\x80\xa8y", "control"},
        {"x\xc2\x85", "control"},
        {"x\xff", "not UTF-8"},
        {"\xd0\xb0", "not a name"},
        {"x==1\\", "paths"},
    };
    char big[REQUIREMENT_MAX + 2];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        refused(bad[i].text, false, bad[i].why);
    memset(big, 'a', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    refused(big, false, "at most");
    big[sizeof big - 2] = '\0';
    passes(big, false);
}

static void test_npm(void **state)
{
    static const char *const good[] = {"left-pad",      "left-pad@1.3.0",  "@types/node", "@types/node@^20",
                                       "lodash@latest", "x@>=1 <2 || ~3",  "x@*",         "x.y",
                                       "JSONStream",    "x@1.0.0-beta.1+5"};
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "empty"},
        {"-g", "options"},
        {"--registry=http://h", "options"},
        {".", "paths"},
        {"./x", "paths"},
        {"user/repo", "paths"},
        {"/x", "paths"},
        {"~/x", "paths"},
        {"x.tgz", "paths"},
        {"x.tgz@1", "not a name"},
        {"x@y.tgz", "paths"},
        {"x@.", "not a name"},
        {"x@./y", "paths"},
        {"x@-g", "not a name"},
        {"x@", "not a name"},
        {"@scope", "not a name"},
        {"@/x", "not a name"},
        {"@s/", "not a name"},
        {"@s/x/y", "not a name"},
        {"@s/..", "not a name"},
        {"@../x", "not a name"},
        {"_x", "not a name"},
        {"x@npm:evil@1", "URLs"},
        {"x@file:../y", "URLs"},
        {"x@github:u/r", "URLs"},
        {"x@git+ssh://h", "URLs"},
        {"https://h/x.tgz", "URLs"},
        {"x@http://h/y", "URLs"},
        {"x@1 ", "not a name"},
        {"x y", "not a name"},
        {"x;y", "not a name"},
        {"x@1\n", "control"},
        {"node_modules", "not a name"},
        {"x@1@2", "not a name"},
        {"x@$(id)", "not a name"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        passes(good[i], true);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        refused(bad[i].text, true, bad[i].why);
}

static void test_urls_allowed(void **state)
{
    struct brig_err err = {0};

    (void)state;
    assert_int_equal(requirement_ok("x @ https://h/x.whl", false, true, &err), 0);
    assert_int_equal(requirement_ok("./x", false, true, &err), 0);
    assert_int_equal(requirement_ok("--pre", false, true, &err), 0);
    assert_int_equal(requirement_ok("x@file:/srv/x.tgz", true, true, &err), 0);
    assert_true(requirement_ok("x\n--pre", false, true, &err) < 0);
    assert_true(requirement_ok("x\\", false, true, &err) < 0);
    assert_true(requirement_ok("x\xff", false, true, &err) < 0);
}

#define H64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static int put(void *ctx, const char *line)
{
    char *all = ctx;

    size_t len = strlen(all);

    assert_true(str_format(all + len, 1024 - len, "%s|", line) > 0);
    return 0;
}

static void test_lines(void **state)
{
    struct brig_err err = {0};
    char all[1024] = "";

    (void)state;
    assert_int_equal(
        requirements_read(
            "# comment\n\nnumpy==1.26 # why\r\n  \nx>=1 ; python_version < '3.12' and sys_platform == \"linux\"\n"
            "y==1 \\\n  --hash=sha256:" H64 " \\\n --hash=sha256:" H64 "\nlast",
            false, put, all, &err),
        0);
    assert_string_equal(
        all, "numpy==1.26|x>=1 ; python_version < '3.12' and sys_platform == \"linux\"|y==1   --hash=sha256:" H64
             "  --hash=sha256:" H64 "|last|");
    static const char *const bad[] = {"-r x",
                                      "--index-url http://h",
                                      "x\n-e .",
                                      "x \\\n--pre",
                                      "x @ http://h",
                                      "x; 'a",
                                      "x; a #b\\\n-r y\nz --pre",
                                      "x==1 --hash=md5:00",
                                      "x==1 --hash=sha256:zz",
                                      "./x",
                                      "x==1 --hash=sha256:" H64 " --pre",
                                      "x\x01"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        all[0] = '\0';
        if (requirements_read(bad[i], false, put, all, &err) == 0)
            fail_msg("\"%s\" passed", bad[i]);
    }
    all[0] = '\0';
    assert_int_equal(requirements_read("-r x\n", true, put, all, &err), 0);
}

static void test_pinned(void **state)
{
    (void)state;
    assert_true(requirement_pinned("x==1.0 --hash=sha256:" H64));
    assert_true(requirement_pinned("x[a]==1.0; python_version<'4' --hash=sha256:" H64));
    assert_false(requirement_pinned("x==1.0"));
    assert_false(requirement_pinned("x==1.* --hash=sha256:" H64));
    assert_false(requirement_pinned("x>=1.0 --hash=sha256:" H64));
    assert_false(requirement_pinned("x --hash=sha256:" H64));
    assert_false(requirement_pinned("-r x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pip_names),    cmocka_unit_test(test_pip_tricks), cmocka_unit_test(test_npm),
        cmocka_unit_test(test_urls_allowed), cmocka_unit_test(test_lines),      cmocka_unit_test(test_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
