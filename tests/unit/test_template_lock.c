/* SPDX-License-Identifier: Apache-2.0 */
/* Locks of templates, and dpkg's status file: what is taken, and each refusal with its line. */
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/str.h"
#include "codec/lock/dpkg_status.h"
#include "codec/lock/template_lock.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define DIGEST "\"sha256:" HEX "\""
#define HEAD "{\"format\": 1, \"platform\": \"linux/amd64\", \"source_date_epoch\": 5,\n"
#define BASES "\"bases\": [{\"from\": \"a\", \"layers\": [" DIGEST "]}],\n"
#define DASH "{\"name\":\"dash\",\"version\":\"1\",\"architecture\":\"amd64\",\"sha256\":\"" HEX "\",\"files\":\"\"}"
#define ZED "{\"name\":\"zed\",\"version\":\"1:2~3+b4\",\"architecture\":\"all\",\"sha256\":\"\",\"files\":\"" HEX "\"}"
#define PACKAGES "\"packages\": [\n" DASH ",\n" ZED "],\n"
#define LAYERS "\"layers\": [" DIGEST "],\n"
#define PATHS "\"paths\": [\"0123456789abcdef /a b\"]}\n"

/* ---- locks ---------------------------------------- */

static void reads(void **state)
{
    (void)state;
    static const char text[] = HEAD BASES PACKAGES LAYERS PATHS;
    struct arena *arena = arena_create(1u << 20);
    struct template_lock lock;

    assert_int_equal(template_lock_read(arena, text, sizeof text - 1, &lock, NULL), 0);
    assert_string_equal(lock.platform, "linux/amd64");
    assert_int_equal(lock.epoch, 5);
    assert_int_equal(lock.n_packages, 2);
    assert_string_equal(lock.packages[0].sha256, HEX);
    assert_string_equal(lock.packages[1].version, "1:2~3+b4");
    assert_string_equal(lock.packages[1].files, HEX);
    assert_string_equal(lock.layers->first->string, "sha256:" HEX);
    assert_string_equal(lock.paths->first->string + LOCK_HASH + 1, "/a b");
    assert_int_equal(lock.len, sizeof text - 1);
    arena_destroy(arena);
}

static void refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "lock: "},
        {"[]", "lock: line 1: format: must be 1"},
        {"{\"format\": 1}", "lock: line 1: platform: must be text"},
        {"{\"format\": 1, \"platform\": \"x\",\n\"source_date_epoch\": 1.5}",
         "lock: line 2: source_date_epoch: must be a number of seconds"},
        {HEAD "\"bases\": [\n{\"from\": 1}]}", "lock: line 3: bases: each must have from and layers"},
        {HEAD "\"bases\": {}}", "lock: line 1: bases: must be a list of at most 64"},
        {HEAD BASES "\"packages\": [\n" ZED ",\n" DASH "]}", "lock: line 5: packages: must be in the order"},
        {HEAD BASES "\"packages\": [\n" DASH ",\n" DASH "]}", "lock: line 5: packages: must be in the order"},
        {HEAD BASES "\"packages\": [{\"name\":\"dash\",\"version\":\"1\\n\",\"architecture\":\"a\",\"sha256\":\"\","
                    "\"files\":\"\"}]}",
         "lock: line 3: packages: each must have name"},
        {HEAD BASES "\"packages\": [{\"name\":\"dash\",\"version\":\"1\",\"architecture\":\"a\",\"sha256\":\"12\","
                    "\"files\":\"\"}]}",
         "lock: line 3: packages: each must have name"},
        {HEAD BASES PACKAGES "\"layers\": [" DIGEST ",\n\"sha256:1\"]}", "lock: line 7: layers: must be a list"},
        {HEAD BASES PACKAGES LAYERS "\"paths\": [\n\"0123456789abcdef a\"]}", "lock: line 8: paths: each must be 16"},
        {HEAD BASES PACKAGES LAYERS "\"paths\": [\n\"0123456789abcde /a\"]}", "lock: line 8: paths: each must be 16"},
        {HEAD BASES PACKAGES LAYERS "\"paths\": [\"0123456789abcdef /a\\u0000\"]}", "lock: line 7: paths: each must"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct arena *arena = arena_create(1u << 20);
        struct template_lock lock = {.epoch = -7};
        struct brig_err err = {0};
        assert_int_equal(template_lock_read(arena, cases[i].text, strlen(cases[i].text), &lock, &err), -EINVAL);
        assert_int_equal(err.code, BRIG_E_USAGE);
        if (!str_starts(err.message, cases[i].why))
            fail_msg("%s: expected %s", err.message, cases[i].why);
        assert_int_equal(lock.epoch, -7);
        arena_destroy(arena);
    }
}

static void bounds(void **state)
{
    (void)state;
    const size_t len = LOCK_MAX + 1;
    char *text = malloc(len);
    struct arena *arena = arena_create(64u << 20);
    struct template_lock lock;
    struct brig_err err = {0};

    assert_non_null(text);
    memset(text, ' ', len);
    assert_true(template_lock_read(arena, text, len, &lock, &err) < 0);
    assert_int_equal(err.code, BRIG_E_TOO_LARGE);
    assert_string_equal(err.message, "lock: longer than 8388608 bytes");
    arena_destroy(arena);
    free(text);
}

/* A directory, what is in it, then its sibling. */
static void order_of_paths(void **state)
{
    (void)state;
    static const char *const paths[] = {"/a", "/a/b", "/a/b/c", "/a/b-", "/a-b", "/aa", "/b"};

    for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
        for (size_t k = 0; k < ARRAY_SIZE(paths); k++) {
            int r = lock_path_order(paths[i], paths[k]);
            assert_true(i < k ? r < 0 : i > k ? r > 0 : r == 0);
        }
}

/* ---- dpkg ---------------------------------------- */

static char seen[512];

static int note(void *ctx, const struct dpkg_package *package, struct brig_err *err)
{
    (void)ctx;
    (void)err;
    size_t len = strlen(seen);

    snprintf(seen + len, sizeof seen - len, "%s=%s/%s ", package->name, package->version, package->architecture);
    return 0;
}

static void installed(void **state)
{
    (void)state;
    static const char text[] = "Package: dash\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:0.5~2\n"
                               "Description: a\n Version: 9\n .\n\n\n"
                               "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\nArchitecture: all\n\n"
                               "Package: half\nStatus: install ok half-installed\nVersion: 1\nArchitecture: all\n\n"
                               "Package: nameless\nStatus: install ok installed\nArchitecture: all\n\n"
                               "Status: hold ok installed\nVersion:\t2 \nPackage: last\nArchitecture: all";

    seen[0] = '\0';
    assert_int_equal(dpkg_status_read(text, sizeof text - 1, note, NULL, NULL), 0);
    assert_string_equal(seen, "dash=1:0.5~2/amd64 last=2/all ");
    assert_int_equal(dpkg_status_read("", 0, note, NULL, NULL), 0);
}

static void not_of_dpkg(void **state)
{
    (void)state;
    static const char *const values[] = {"", "a b", "a/b", "\"", "a\\", "\xc3\xbc", "..\x01"};
    char text[512], word[DPKG_VALUE + 1];
    struct brig_err err = {0};

    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        int len = snprintf(text, sizeof text, "Status: x\nPackage: %s\n", values[i]);
        assert_int_equal(dpkg_status_read(text, (size_t)len, note, NULL, &err), -EINVAL);
        assert_string_equal(err.message, "line 2: Package: must have 1 to 127 letters, digits or .+-~:_");
    }
    assert_int_equal(dpkg_status_read("\nVersion: a\0b", 13, note, NULL, &err), -EINVAL);
    memset(word, 'a', sizeof word);
    word[DPKG_VALUE] = '\0';
    assert_true(dpkg_is_word(word, DPKG_VALUE - 1));
    assert_false(dpkg_is_word(word, DPKG_VALUE) || dpkg_is_word(word, 0));
}

static int stop(void *ctx, const struct dpkg_package *package, struct brig_err *err)
{
    (void)package;
    (void)err;
    ++*(int *)ctx;
    return -E2BIG;
}

static void first_error_ends_it(void **state)
{
    (void)state;
    static const char one[] = "Package: a\nStatus: install ok installed\nVersion: 1\nArchitecture: all\n\n";
    char two[2 * sizeof one];
    int calls = 0;

    snprintf(two, sizeof two, "%s%s", one, one);
    assert_int_equal(dpkg_status_read(two, strlen(two), stop, &calls, NULL), -E2BIG);
    assert_int_equal(calls, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads),
        cmocka_unit_test(refuses),
        cmocka_unit_test(bounds),
        cmocka_unit_test(order_of_paths),
        cmocka_unit_test(installed),
        cmocka_unit_test(not_of_dpkg),
        cmocka_unit_test(first_error_ends_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
