/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that people write: what is taken, and above all what is not. */
#include "unit.h"

#include <locale.h>

#include "base/parse.h"

typedef int parse_fn(const char *text, uint64_t *ret);

struct good {
    const char *text;
    uint64_t value;
};

static void check_good(parse_fn *fn, const struct good *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t value = 0;
        int r = fn(cases[i].text, &value);
        if (r != 0 || value != cases[i].value)
            fail_msg("\"%s\": got %d, %llu", cases[i].text, r, (unsigned long long)value);
    }
}

static void check_bad(parse_fn *fn, int want, const char *const *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t value = 4711;
        int r = fn(cases[i], &value);
        if (r != want || value != 4711)
            fail_msg("\"%s\": got %d, %llu", cases[i] ? cases[i] : "(null)", r, (unsigned long long)value);
    }
}

#define CHECK_GOOD(fn, cases) check_good(fn, cases, ARRAY_SIZE(cases))
#define CHECK_BAD(fn, want, cases) check_bad(fn, want, cases, ARRAY_SIZE(cases))

/* What no kind of number may look like. */
static const char *const never[] = {
    NULL, "",   " ", "1 ",   " 1",    "+1",  "-1",  "-0",  "0x10",  "1e3",      "9e99G",     "inf", "nan", "1,5",
    ".5", "5.", ".", "1..5", "1.2.3", "1.x", "\t1", "1\n", "1_000", "\xd9\xa1", "1.0000001", "0",   "0.0", "000"};

static void size_good(void **state)
{
    static const struct good cases[] = {
        {"1", 1},
        {"4096", 4096},
        {"007", 7},
        {"512m", UINT64_C(512) << 20},
        {"512M", UINT64_C(512) << 20},
        {"1.5g", UINT64_C(3) << 29},
        {"1k", 1024},
        {"1kb", 1024},
        {"1KB", 1024},
        {"1KiB", 1024},
        {"1kib", 1024},
        {"2t", UINT64_C(2) << 40},
        {"0.5k", 512},
        {"0.001k", 1},
        {"1.999999k", 2047},
        {"9223372036854775807", INT64_MAX},
        {"8191.999999t", UINT64_C(9007199253641480)},
    };
    (void)state;
    CHECK_GOOD(brig_parse_size, cases);
}

static void size_bad(void **state)
{
    static const char *const bad[] = {"1b",
                                      "1ib",
                                      "1ki",
                                      "1kbb",
                                      "1kib ",
                                      "1p",
                                      "k",
                                      "1.5",
                                      "1mm",
                                      "1 k",
                                      "m1",
                                      "1k1",
                                      "0k",
                                      "0.000001k",
                                      "1s",
                                      "99999999999999999999x",
                                      "1e99999999999999999999"};
    static const char *const large[] = {
        "9223372036854775808", "18446744073709551615", "18446744073709551616", "99999999999999999999999999", "8388608t",
        "9007199254740992k"};
    (void)state;
    CHECK_BAD(brig_parse_size, -EINVAL, never);
    CHECK_BAD(brig_parse_size, -EINVAL, bad);
    CHECK_BAD(brig_parse_size, -ERANGE, large);
}

static void duration_good(void **state)
{
    static const struct good cases[] = {
        {"1", 1000},       {"1.5", 1500}, {"30s", 30000}, {"250ms", 250},  {"2m", 120000}, {"1h", 3600000},
        {"0.5h", 1800000}, {"0.001", 1},  {"0.0019s", 1}, {"1.5m", 90000}, {"1.9ms", 1},
    };
    (void)state;
    CHECK_GOOD(brig_parse_duration, cases);
}

static void duration_bad(void **state)
{
    static const char *const bad[] = {"0s", "0ms", "0.5ms", "0.0001s", "1d", "1M",
                                      "1S", "1 s", "1sec",  "1m30s",   "s",  "1g"};
    static const char *const large[] = {"9223372036854775808", "9223372036854775807", "99999999999999999999h",
                                        "2562047788016h"};
    (void)state;
    CHECK_BAD(brig_parse_duration, -EINVAL, never);
    CHECK_BAD(brig_parse_duration, -EINVAL, bad);
    CHECK_BAD(brig_parse_duration, -ERANGE, large);
}

static void cpus_good(void **state)
{
    static const struct good cases[] = {{"1", 1000}, {"0.5", 500}, {"2.25", 2250}, {"0.001", 1}, {"64", 64000}};
    (void)state;
    CHECK_GOOD(brig_parse_cpus, cases);
}

static void cpus_bad(void **state)
{
    static const char *const bad[] = {"0.0005", "1k", "1s", "50%", "1c"};
    static const char *const large[] = {"9223372036854775808", "9223372036854775.808", "99999999999999999999999"};
    (void)state;
    CHECK_BAD(brig_parse_cpus, -EINVAL, never);
    CHECK_BAD(brig_parse_cpus, -EINVAL, bad);
    CHECK_BAD(brig_parse_cpus, -ERANGE, large);
}

static void plain_integers(void **state)
{
    static const struct good cases[] = {{"0", 0}, {"128", 128}, {"9223372036854775807", INT64_MAX}};
    static const char *const bad[] = {NULL, "", "1.5", "1k", "-1", "+1", "0x1", " 1", "1 ", "1e1"};
    static const char *const large[] = {"9223372036854775808", "99999999999999999999"};
    uint32_t value = 7;
    (void)state;

    CHECK_GOOD(parse_u64, cases);
    CHECK_BAD(parse_u64, -EINVAL, bad);
    CHECK_BAD(parse_u64, -ERANGE, large);
    assert_int_equal(parse_u32("4294967296", &value), -ERANGE);
    assert_int_equal(parse_u32("x", &value), -EINVAL);
    assert_int_equal(value, 7);
    assert_int_equal(parse_u32("4294967295", &value), 0);
    assert_int_equal(value, UINT32_MAX);
}

static void fields_of_kernel_files(void **state)
{
    uint64_t v[3] = {0};
    (void)state;

    assert_int_equal(parse_fields("         0     100000      65536\n", v, 3), 3);
    assert_true(v[0] == 0 && v[1] == 100000 && v[2] == 65536);
    assert_int_equal(parse_fields("50000 100000\n", v, 3), 2);
    assert_true(v[0] == 50000 && v[1] == 100000);
    assert_int_equal(parse_fields("1 2 3 4", v, 2), 2);
    assert_int_equal(parse_fields("max 100000\n", v, 3), 0);
    assert_int_equal(parse_fields("", v, 3), 0);
    assert_int_equal(parse_fields("-1", v, 3), 0);
    assert_int_equal(parse_fields("7 8x", v, 3), 1);
    assert_int_equal(parse_fields("1.5", v, 3), 0);
    assert_int_equal(parse_fields("1\n2", v, 3), 1);
    assert_int_equal(parse_fields("18446744073709551615 18446744073709551616", v, 3), 1);
    assert_true(v[0] == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_good),      cmocka_unit_test(size_bad),
        cmocka_unit_test(duration_good),  cmocka_unit_test(duration_bad),
        cmocka_unit_test(cpus_good),      cmocka_unit_test(cpus_bad),
        cmocka_unit_test(plain_integers), cmocka_unit_test(fields_of_kernel_files),
    };
    /* A locale with a decimal comma, where there is one, must change nothing. */
    setlocale(LC_ALL, "de_DE.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
