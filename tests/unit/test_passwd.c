/* SPDX-License-Identifier: Apache-2.0 */
/* Users by name: their text, and what a sandbox's own passwd and group say. */
#include "unit.h"

#include <errno.h>

#include "base/str.h"
#include "codec/passwd.h"

static const char passwd[] = "# a comment\n"
                             "root:x:0:0:root:/root:/bin/sh\n"
                             "broken:x:not:5::/:\n"
                             "high:x:65536:5::/:\n"
                             "short:x:7\n"
                             ":x:8:8::/:\n"
                             "app:x:1001:50:App:/srv/app:/bin/sh\n"
                             "app:x:9:9::/:\n"
                             "77:x:78:79::relative:/bin/sh\n"
                             "last:x:12:13";
static const char group[] =
    "root:x:0:\nstaff:x:50:app\ndisk:x:6:app,last\nbad:x:zz:app\naudio:x:29:other,app\nraw:x:70000:app\n"
    "twice:x:6:app\nwheel:x:10:root";

static int find(const char *text, struct user_found *ret)
{
    struct user_text parts;

    assert_int_equal(user_text_parse(text, strlen(text), &parts), 0);
    return user_find(&parts, passwd, sizeof passwd - 1, group, sizeof group - 1, ret);
}

static void texts(void **state)
{
    (void)state;
    static const char *const good[] = {"root", "0", "65535:65535", "a.b_c-d$", "www-data:33", "1:staff"};
    static const char *const bad[] = {"",        ":",   "a:",   ":a",  "a:b:c",       "-a",       "a:-b", "65536",
                                      "1:65536", "a b", "a\nb", "a/b", "99999999999", "\xc3\xbc", "a:b\t"};
    char name[USER_TEXT_MAX + 1];
    struct user_text parts;

    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        assert_int_equal(user_text_parse(good[i], strlen(good[i]), &parts), 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(user_text_parse(bad[i], strlen(bad[i]), &parts), -EINVAL);
    assert_int_equal(user_text_parse("a\0b", 3, &parts), -EINVAL);
    memset(name, 'a', sizeof name);
    assert_int_equal(user_text_parse(name, USER_PART_MAX, &parts), 0);
    assert_int_equal(user_text_parse(name, USER_PART_MAX + 1, &parts), -EINVAL);
    assert_true(user_text_is_root("root") && user_text_is_root("root:staff") && user_text_is_root("0") &&
                user_text_is_root("000:5"));
    assert_false(user_text_is_root("rooty") || user_text_is_root("user") || user_text_is_root("1:0") ||
                 user_text_is_root("root:"));
}

static void users(void **state)
{
    (void)state;
    struct user_found found;

    assert_int_equal(find("app", &found), 0); /* the first line of the name; its groups once each */
    assert_true(found.uid == 1001 && found.gid == 50 && found.n_groups == 2);
    assert_true(found.groups[0] == 6 && found.groups[1] == 29);
    assert_int_equal(found.home_len, 8);
    assert_memory_equal(found.home, "/srv/app", 8);
    assert_int_equal(find("1001", &found), 0); /* a number has the same groups */
    assert_true(found.uid == 1001 && found.gid == 50 && found.n_groups == 2 && found.name_len == 3);
    assert_int_equal(find("app:audio", &found), 0); /* with a group there are no others */
    assert_true(found.uid == 1001 && found.gid == 29 && found.n_groups == 0);
    assert_int_equal(find("app:7", &found), 0);
    assert_true(found.gid == 7 && found.n_groups == 0);
    assert_int_equal(find("4711", &found), 0); /* whom no line names */
    assert_true(found.uid == 4711 && found.gid == 0 && found.n_groups == 0 && !found.name && !found.home);
    assert_int_equal(find("77", &found), 0); /* a number is never a name */
    assert_true(found.uid == 77 && found.gid == 0 && !found.name);
    assert_int_equal(find("78", &found), 0); /* a home that is none */
    assert_true(found.uid == 78 && found.gid == 79 && !found.home);
    assert_int_equal(find("last", &found), 0); /* a line that just ends */
    assert_true(found.uid == 12 && found.gid == 13 && found.n_groups == 1 && found.groups[0] == 6);
    assert_int_equal(find("root", &found), 0);
    assert_true(found.uid == 0 && found.n_groups == 1 && found.groups[0] == 10);
}

/* Files that say that root is somebody else, and that somebody else is root. */
static void root_is_zero(void **state)
{
    (void)state;
    static const char lies[] = "root:x:1000:1000::/tmp/mine:/bin/sh\n0:x:1001:1001::/:\ntoor:x:0:1000::/toor:/bin/sh\n";
    static const char groups[] = "root:x:1000:\nwheel:x:10:root\nmine:x:11:toor\n";
    struct user_found found;
    struct user_text parts;

    assert_int_equal(user_text_parse("root", 4, &parts), 0);
    assert_int_equal(user_find(&parts, lies, sizeof lies - 1, groups, sizeof groups - 1, &found), 0);
    assert_true(found.uid == 0 && found.gid == 0 && found.n_groups == 1 && found.groups[0] == 10);
    assert_true(found.name_len == 4 && memcmp(found.name, "root", 4) == 0);
    assert_true(found.home_len == 5 && memcmp(found.home, "/toor", 5) == 0);
    assert_int_equal(user_find(&parts, NULL, 0, NULL, 0, &found), 0); /* without any file */
    assert_true(found.uid == 0 && found.gid == 0 && found.home_len == 5 && memcmp(found.home, "/root", 5) == 0);
    assert_int_equal(user_text_parse("0", 1, &parts), 0);
    assert_int_equal(user_find(&parts, lies, sizeof lies - 1, NULL, 0, &found), 0);
    assert_true(found.uid == 0 && found.gid == 0);
    assert_int_equal(user_text_parse("root:7", 6, &parts), 0); /* a group that was asked for */
    assert_int_equal(user_find(&parts, lies, sizeof lies - 1, NULL, 0, &found), 0);
    assert_true(found.uid == 0 && found.gid == 7 && found.n_groups == 0);
}

static void absent(void **state)
{
    (void)state;
    static const char *const none[] = {"nobody", "broken", "high", "short", "app:nogroup", "app:raw", "comment"};
    struct user_found found;
    struct user_text parts;

    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        assert_int_equal(find(none[i], &found), -ESRCH);
    assert_int_equal(user_text_parse("5", 1, &parts), 0); /* without any file */
    assert_int_equal(user_find(&parts, NULL, 0, NULL, 0, &found), 0);
    assert_true(found.uid == 5 && found.gid == 0);
}

static void too_many_groups(void **state)
{
    (void)state;
    char groups[4096];
    size_t len = 0;
    struct user_text parts;
    struct user_found found;

    assert_int_equal(user_text_parse("app", 3, &parts), 0);
    for (unsigned i = 0; i < USER_GROUPS_MAX; i++)
        len += (size_t)snprintf(groups + len, sizeof groups - len, "g%u:x:%u:app\n", i, 100 + i);
    assert_int_equal(user_find(&parts, passwd, sizeof passwd - 1, groups, len, &found), 0);
    assert_int_equal(found.n_groups, USER_GROUPS_MAX);
    len += (size_t)snprintf(groups + len, sizeof groups - len, "more:x:5:app\n");
    assert_int_equal(user_find(&parts, passwd, sizeof passwd - 1, groups, len, &found), -E2BIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(users), cmocka_unit_test(absent),
                                       cmocka_unit_test(root_is_zero), cmocka_unit_test(too_many_groups)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
