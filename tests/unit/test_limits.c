/* SPDX-License-Identifier: Apache-2.0 */
/* Defaults and rules of a run's values: both ends of every range, and a message that names value and rule. */
#include "unit.h"

#include "host/limits.h"
#include "jail/image_shape.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static struct brig_limits filled(bool image)
{
    struct brig_limits l = {0};

    limits_fill(&l, image);
    return l;
}

static void defaults(void **state UNUSED)
{
    struct brig_limits l = filled(true);

    assert_int_equal(l.memory, 512 * MIB);
    assert_int_equal(l.cpus, 1000);
    assert_int_equal(l.pids, 128);
    assert_int_equal(l.disk, GIB);
    assert_int_equal(l.open_files, 1024);
    assert_int_equal(l.timeout, 300 * 1000);
    assert_int_equal(l.output, 10 * MIB);
    assert_true(l.inodes > 0);
    /* Not limited unless asked for. */
    assert_int_equal(l.cpu_time, 0);
    assert_int_equal(l.file_size, 0);
    assert_int_equal(l.io_read_bps, 0);
    assert_int_equal(l.io_write_bps, 0);
    assert_int_equal(filled(false).disk, 256 * MIB); /* half of memory */
    assert_int_equal(limits_check(&l, NULL), 0);
}

static void what_was_asked_for_stays(void **state UNUSED)
{
    for (int image = 0; image < 2; image++) {
        struct brig_limits asked, l;
        uint64_t *words = (uint64_t *)&asked;
        for (size_t i = 0; i < BRIG_LIMIT_MAX; i++)
            words[i] = 1000000 + i;
        l = asked;
        limits_fill(&l, image);
        assert_memory_equal(&l, &asked, sizeof l);
    }
}

/* A memory-backed store follows the memory limit, in whole pages, and always passes its own rule. */
static void memory_store(void **state UNUSED)
{
    static const uint64_t sizes[] = {4 * MIB, 4 * MIB + 1, 5 * MIB + 4095, 100 * MIB, 3 * GIB};

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct brig_limits l = {.memory = sizes[i]};
        limits_fill(&l, false);
        assert_true(l.disk <= sizes[i] / 2 && l.disk % 4096 == 0 && l.disk > sizes[i] / 2 - 4096);
        assert_int_equal(limits_check_memory_store(&l, NULL), 0);
        l.disk = sizes[i] / 2 + 1;
        struct brig_err err;
        assert_int_equal(limits_check_memory_store(&l, &err), -EINVAL);
        assert_int_equal(err.code, BRIG_E_USAGE);
        assert_non_null(strstr(err.message, "disk"));
        assert_non_null(strstr(err.message, "half of memory"));
    }
}

/* Default inodes fit the disk they are for. */
static void inodes_follow_the_disk(void **state UNUSED)
{
    static const uint64_t disks[] = {1 * MIB, 2 * MIB, 8 * MIB, 64 * MIB, 512 * MIB, GIB, 100 * GIB};

    for (size_t i = 0; i < ARRAY_SIZE(disks); i++) {
        struct brig_limits l = {.disk = disks[i]};
        limits_fill(&l, true);
        assert_true(l.inodes * 256 <= disks[i] / 2 + disks[i] / 4); /* their table takes 256 bytes each */
        assert_true(l.inodes >= 64);
    }
}

static void check_range(enum brig_limit which, uint64_t min, uint64_t max, bool optional)
{
    const uint64_t bad[] = {min - 1, max + 1, UINT64_MAX};
    struct brig_limits l = filled(true);
    uint64_t *value = (uint64_t *)&l + which;
    struct brig_err err;

    *value = min;
    assert_int_equal(limits_check(&l, &err), 0);
    *value = max;
    assert_int_equal(limits_check(&l, &err), 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        char text[32];
        *value = bad[i];
        if (optional && bad[i] == 0)
            continue;
        if (bad[i] >= min && bad[i] <= max)
            continue;
        assert_int_equal(limits_check(&l, &err), -EINVAL);
        assert_int_equal(err.code, BRIG_E_USAGE);
        snprintf(text, sizeof text, "%llu", (unsigned long long)bad[i]);
        assert_non_null(strstr(err.message, brig_limit_name(which)));
        assert_non_null(strstr(err.message, text));
        assert_int_equal(limits_check(&l, NULL), -EINVAL);
    }
    *value = 0;
    assert_int_equal(limits_check(&l, &err), optional ? 0 : -EINVAL);
}

static void ranges(void **state UNUSED)
{
    check_range(BRIG_LIMIT_MEMORY, 4 * MIB, UINT64_C(1) << 46, false);
    check_range(BRIG_LIMIT_CPUS, 10, 4096 * 1000, false);
    check_range(BRIG_LIMIT_CPU_TIME, 1, UINT64_C(1) << 42, true);
    check_range(BRIG_LIMIT_PIDS, 1, 1 << 22, false);
    check_range(BRIG_LIMIT_DISK, 1 * MIB, UINT64_C(1) << 43, false);
    check_range(BRIG_LIMIT_FILE_SIZE, 1, UINT64_C(1) << 62, true);
    check_range(BRIG_LIMIT_IO_READ_BPS, 4096, UINT64_C(1) << 50, true);
    check_range(BRIG_LIMIT_IO_WRITE_BPS, 4096, UINT64_C(1) << 50, true);
    check_range(BRIG_LIMIT_TIMEOUT, 1, UINT64_C(1) << 42, false);
    check_range(BRIG_LIMIT_OUTPUT, 1, UINT64_C(1) << 40, false);
}

/* Whatever passes can be multiplied into nanoseconds, microseconds and bytes without wrapping. */
static void no_overflow(void **state UNUSED)
{
    uint64_t product;

    /* milliseconds in nanoseconds */
    assert_false(__builtin_mul_overflow(UINT64_C(1) << 42, UINT64_C(1000000), &product));
    assert_false(__builtin_mul_overflow(UINT64_C(4096) * 1000, UINT64_C(100000), &product));
}

typedef int check_fn(const char *what, const char *path, struct brig_err *err);

static void refused(check_fn *fn, const char *path)
{
    struct brig_err err = {0};

    if (fn("thing", path, &err) != -EINVAL || err.code != BRIG_E_USAGE)
        fail_msg("\"%s\" passed", path);
    assert_non_null(strstr(err.message, "thing"));
    assert_int_equal(fn("thing", path, NULL), -EINVAL);
}

static void inside_paths(void **state UNUSED)
{
    static const char *const good[] = {"/",        "/a",       "/a/b",    "/a..b",   "/..a", "/a/...",
                                       "/process", "/devices", "/system", "/x/proc", "/a b", "/\xc3\xa4"};
    static const char *const bad[] = {"",        "a",       "./a",           "../a",    "/..",    "/a/..",
                                      "/a/../b", "/proc",   "/proc/",        "/proc/1", "/dev",   "/dev/x",
                                      "/sys",    "/sys/a",  "/a\nb",         "/a\x7f",  "/\x1b[", "/a\tb",
                                      "//proc",  "/./proc", "/.//proc/self", "///dev",  "/sys//x"};
    char longest[1025];

    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        if (check_inside_path("thing", good[i], NULL) != 0)
            fail_msg("\"%s\" was refused", good[i]);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        refused(check_inside_path, bad[i]);
    memset(longest, 'a', sizeof longest);
    longest[0] = '/';
    longest[1023] = '\0';
    assert_int_equal(check_inside_path("thing", longest, NULL), 0);
    longest[1023] = 'a';
    longest[1024] = '\0';
    refused(check_inside_path, longest);
}

static void mount_targets(void **state UNUSED)
{
    static const char *const good[] = {"/data",  "/workspace", "/workspace/x", "/tmp",  "/usr/local/x",
                                       "/etc/x", "/home/user", "/a/.b",        "/a/b.", "/.brigs"};
    static const char *const bad[] = {"/",      "/usr",    "/etc",    "/bin",  "/sbin",  "/lib",
                                      "/lib64", "/lib32",  "/libx32", "/proc", "/dev/x", "//a",
                                      "/a//",   "/a/",     "/a/./",   "/a/.",  "/a//b",  "/./a",
                                      "/.",     "/a/../b", "a",       "",      "/.brig", "/.brig/layer"};

    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        if (check_mount_target("thing", good[i], NULL) != 0)
            fail_msg("\"%s\" was refused", good[i]);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        refused(check_mount_target, bad[i]);
}

static void names(void **state UNUSED)
{
    static const char *const good[] = {
        "a", "A9", "0", "a.b", "a_b", "a-b", "a--", "123456789012345678901234567890123456789012345678901234567890123"};
    static const char *const bad[] = {"",
                                      ".a",
                                      "-a",
                                      "_a",
                                      "a b",
                                      "a/b",
                                      "a\n",
                                      "\xc3\xa4",
                                      "a\x01",
                                      "a:b",
                                      "1234567890123456789012345678901234567890123456789012345678901234"};

    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        assert_int_equal(check_name(good[i], NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct brig_err err;
        if (check_name(bad[i], &err) != -EINVAL)
            fail_msg("\"%s\" passed", bad[i]);
        assert_int_equal(err.code, BRIG_E_USAGE);
    }
}

/* Whatever can be asked for, mkfs.ext4 need not choose anything by itself: it would round up. */
static void every_image_keeps_its_inodes(void **state UNUSED)
{
    struct brig_err err;
    unsigned n = 0;

    for (uint64_t disk = MIB; disk < 64 * GIB; disk += disk / 7 + 12345)
        for (uint64_t each = 512; each < 65536; each += each / 3) {
            struct brig_limits l = {.disk = disk, .inodes = disk / each};
            struct image_shape shape;

            limits_fill(&l, true);
            if (limits_check_image(&l, &err) < 0)
                continue;
            image_shape(l.disk, l.inodes, &shape);
            assert_true(shape.inodes <= l.inodes && shape.inodes / shape.groups <= IMAGE_INODES_PER_GROUP);
            assert_int_equal(shape.inodes % (shape.groups * IMAGE_INODES_PER_BLOCK), 0);
            assert_int_equal((shape.blocks + shape.group_blocks - 1) / shape.group_blocks, shape.groups);
            assert_true(shape.group_blocks % 8 == 0 && shape.group_blocks <= 32768);
            n++;
        }
    assert_true(n > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_image_keeps_its_inodes),
        cmocka_unit_test(defaults),
        cmocka_unit_test(what_was_asked_for_stays),
        cmocka_unit_test(memory_store),
        cmocka_unit_test(inodes_follow_the_disk),
        cmocka_unit_test(ranges),
        cmocka_unit_test(no_overflow),
        cmocka_unit_test(inside_paths),
        cmocka_unit_test(mount_targets),
        cmocka_unit_test(names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
