/* SPDX-License-Identifier: Apache-2.0 */
/* Error messages: the number that comes back, the reason behind it, escaping and truncation. */
#include "unit.h"

#include "base/err.h"
#include "base/utf8.h"

static void err_carries_errno(void **state)
{
    struct brig_err err;
    (void)state;

    errno = EACCES;
    assert_int_equal(err_host(&err, "mount %s", "/x"), -EACCES);
    assert_int_equal(err.code, BRIG_E_HOST);
    assert_int_equal(err.errnum, EACCES);
    assert_string_equal(err.message, "mount /x: Permission denied");
    assert_int_equal(errno, EACCES);
}

static void err_takes_a_negative_errno(void **state)
{
    struct brig_err err;
    (void)state;

    assert_int_equal(err_set(&err, BRIG_E_HOST, -ENOENT, "open"), -ENOENT);
    assert_int_equal(err.errnum, ENOENT);
    assert_string_equal(err.message, "open: No such file or directory");
}

static void err_without_errno_follows_the_code(void **state)
{
    static const struct {
        enum brig_code code;
        int errnum;
    } cases[] = {{BRIG_E_USAGE, EINVAL}, {BRIG_E_REFUSED, EPERM}, {BRIG_E_UNSUPPORTED, EOPNOTSUPP},
                 {BRIG_E_NOMEM, ENOMEM}, {BRIG_E_GONE, EPIPE},    {BRIG_E_HOST, EIO}};
    struct brig_err err;
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(err_set(&err, cases[i].code, 0, "text"), -cases[i].errnum);
        assert_int_equal(err.errnum, 0);
        assert_string_equal(err.message, "text");
    }
    assert_int_equal(err_usage(&err, "--pids %s: not a number", "x"), -EINVAL);
    assert_string_equal(err.message, "--pids x: not a number");
    assert_int_equal(err_nomem(&err), -ENOMEM);
    assert_string_equal(err.message, "out of memory");
}

static void err_may_be_null(void **state)
{
    (void)state;
    errno = EPERM;
    assert_int_equal(err_host(NULL, "x"), -EPERM);
    assert_int_equal(err_usage(NULL, "x"), -EINVAL);
}

static void err_escapes_control_bytes(void **state)
{
    struct brig_err err;
    (void)state;

    err_usage(&err, "a\x1b[31m\nb\x7f");
    assert_string_equal(err.message, "a\\x1b[31m\\x0ab\\x7f");
    err_usage(&err, "C1: \xc2\x9b, broken: \xff\xc3, good: \xc3\xa9 \xf0\x9f\x9a\xa2");
    assert_string_equal(err.message, "C1: \\xc2\\x9b, broken: \\xff\\xc3, good: \xc3\xa9 \xf0\x9f\x9a\xa2");
}

/* A name that runs backwards, or has something that nobody sees; letters of other scripts stay. */
static void err_escapes_what_deceives(void **state)
{
    static const char *const hidden[] = {"\u00ad", "\u061c", "\u200b", "\u200e", "\u200f", "\u2028", "\u202a",
                                         "\u202e", "\u2060", "\u2066", "\u2069", "\ufeff", "\ufff9", "\U000e0041"};
    struct brig_err err;
    (void)state;

    err_usage(&err, "user %s: unknown", "\u202etoor");
    assert_string_equal(err.message, "user \\xe2\\x80\\xaetoor: unknown");
    for (size_t i = 0; i < ARRAY_SIZE(hidden); i++) {
        err_usage(&err, "a%sb", hidden[i]);
        assert_null(strstr(err.message, hidden[i]));
        assert_int_equal(strlen(err.message), 2 + 4 * strlen(hidden[i]));
    }
    err_usage(&err, "\u05e9\u05dc \u0633\u0644 \u0915\u094d\u200d\u0937");
    assert_string_equal(err.message, "\u05e9\u05dc \u0633\u0644 \u0915\u094d\u200d\u0937");
}

static void err_truncates_between_characters(void **state)
{
    struct brig_err err;
    char text[1024];
    (void)state;

    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'x', sizeof(text));
        for (size_t i = shift; i + 4 < sizeof(text); i += 3)
            memcpy(text + i, "\xe2\x82\xac", 3);
        text[sizeof(text) - 1] = '\0';
        err_set(&err, BRIG_E_HOST, EIO, "%s", text);
        size_t len = strlen(err.message), at = 0;
        assert_in_range(len, sizeof(err.message) - 4, sizeof(err.message) - 1);
        while (at < len) {
            size_t n = utf8_sequence(err.message + at, len - at, NULL);
            assert_int_not_equal(n, 0);
            at += n;
        }
    }
    /* An escape is whole or not there. */
    memset(text, 1, sizeof(text));
    text[sizeof(text) - 1] = '\0';
    err_usage(&err, "%s", text);
    assert_int_equal(strlen(err.message), (sizeof(err.message) - 1) / 4 * 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(err_carries_errno),
        cmocka_unit_test(err_takes_a_negative_errno),
        cmocka_unit_test(err_without_errno_follows_the_code),
        cmocka_unit_test(err_may_be_null),
        cmocka_unit_test(err_escapes_control_bytes),
        cmocka_unit_test(err_escapes_what_deceives),
        cmocka_unit_test(err_truncates_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
