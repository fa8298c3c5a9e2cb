/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of template layers: which names there are, what each step leaves, and that a sweep removes any tree and
 * nothing else.
 */
#include "unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "host/layers.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define HEX2 "f123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define NEW "new-abcdefghijklmnopqrstuvwxyz"

static char path[64], helpers[64];
static struct layer_store store;

static int open_store(void **state UNUSED)
{
    char tool[96];

    snprintf(path, sizeof path, "/tmp/brig-layers-XXXXXX");
    snprintf(helpers, sizeof helpers, "/tmp/brig-helpers-XXXXXX");
    store = LAYER_STORE_INIT;
    if (!mkdtemp(path) || !mkdtemp(helpers))
        return -1;
    snprintf(tool, sizeof tool, "%s/brig-layer", helpers);
    int fd = open(tool, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    close(fd);
    layers_open(&store, path, helpers, true);
    return store.fd < 0;
}

static int close_store(void **state UNUSED)
{
    DIR *dir = opendir(path);

    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (layer_name_ok(entry->d_name) || layer_new_name_ok(entry->d_name))
            (void)!layers_remove(&store, entry->d_name, NULL);
    closedir(dir);
    assert_int_equal(layers_sweep(store.fd), 0);
    assert_int_equal(unlinkat(store.fd, ".lock", 0), 0);
    layers_done(&store);
    char tool[96];
    snprintf(tool, sizeof tool, "%s/brig-layer", helpers);
    assert_int_equal(unlink(tool), 0);
    assert_int_equal(rmdir(helpers), 0);
    return rmdir(path); /* so nothing else is there */
}

static void names(void **state UNUSED)
{
    static const char *const bad[] = {"",
                                      ".",
                                      "..",
                                      "/",
                                      "new-",
                                      "lock",
                                      ".lock",
                                      "gone-abcd",
                                      HEX "0",
                                      HEX "/",
                                      "new-../../x",
                                      NEW "0",
                                      NEW "/",
                                      "new-ABCDEFGHIJKLMNOPQRSTUVWXYZ",
                                      "new-abcdefghijklmnopqrstuvwx/z"};

    assert_true(layer_name_ok(HEX));
    assert_true(layer_new_name_ok(NEW));
    assert_false(layer_name_ok(NEW));
    assert_false(layer_new_name_ok(HEX));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_false(layer_name_ok(bad[i]));
        assert_false(layer_new_name_ok(bad[i]));
    }
    for (unsigned at = 0; at < LAYER_NAME_LEN; at++)
        for (unsigned byte = 1; byte < 256; byte++) {
            char name[] = HEX;
            name[at] = (char)byte;
            assert_int_equal(layer_name_ok(name), strchr("0123456789abcdef", (int)byte) != NULL);
        }
}

static bool has(const char *name)
{
    return faccessat(store.fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static unsigned count(const char *prefix)
{
    DIR *dir = opendir(path);
    unsigned n = 0;

    for (struct dirent *entry; dir && (entry = readdir(dir));)
        n += str_starts(entry->d_name, prefix);
    closedir(dir);
    return n;
}

/* The error of a call that must have failed. */
static enum brig_code code_of(int r, const struct brig_err *err)
{
    assert_true(r < 0);
    return (enum brig_code)err->code;
}

static void commit(const char *to)
{
    char made[LAYER_MADE_SIZE];
    struct brig_err err;

    assert_int_equal(layers_make(&store, NEW, getuid(), &err), 0);
    assert_int_equal(mkdirat(store.fd, NEW "/d/x", 0755), 0);
    assert_int_equal(layers_finish(&store, NEW, made, &err), 0);
    assert_false(layers_have(&store, NEW));
    assert_int_equal(layers_commit(store.fd, made, to), 0);
}

static void made_and_committed(void **state UNUSED)
{
    char made[LAYER_MADE_SIZE];
    struct brig_err err;
    struct stat st;

    assert_int_equal(layers_make(&store, NEW, getuid(), &err), 0);
    assert_true(layers_have(&store, NEW));
    assert_int_equal(fstatat(store.fd, NEW "/d", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    assert_int_equal(code_of(layers_make(&store, NEW, getuid(), &err), &err), BRIG_E_CONFLICT);
    assert_int_equal(layers_remove(&store, NEW, &err), 0);
    assert_int_equal(code_of(layers_remove(&store, NEW, &err), &err), BRIG_E_NOT_FOUND);
    assert_int_equal(code_of(layers_finish(&store, NEW, made, &err), &err), BRIG_E_NOT_FOUND);
    commit(HEX);
    assert_true(has(HEX "/x"));
    assert_int_equal(unlinkat(store.fd, HEX "/x", AT_REMOVEDIR), 0);
    commit(HEX); /* the first stays */
    assert_false(has(HEX "/x"));
    assert_int_equal(layers_sweep(store.fd), 0);
    assert_int_equal(count("gone-") + count("made-") + count("new-"), 0);
}

/* A commit that fails leaves nothing but work for the sweep. */
static void failed_commit(void **state UNUSED)
{
    char made[LAYER_MADE_SIZE];
    struct brig_err err;

    assert_int_equal(layers_make(&store, NEW, getuid(), &err), 0);
    assert_int_equal(unlinkat(store.fd, NEW "/d", AT_REMOVEDIR), 0);
    assert_int_equal(layers_finish(&store, NEW, made, &err), 0);
    assert_int_equal(layers_commit(store.fd, made, HEX), -ENOENT);
    assert_false(has(HEX));
    assert_int_equal(count("made-"), 0);
    assert_int_equal(count("gone-"), 1);
}

static void listed(void **state UNUSED)
{
    AUTO_BUF struct buf out = BUF_INIT(4096), small = BUF_INIT(10);
    struct brig_err err;

    assert_int_equal(layers_list(&store, &out, &err), 0);
    assert_int_equal(out.len, 0);
    commit(HEX);
    assert_int_equal(layers_make(&store, NEW, getuid(), &err), 0);
    assert_int_equal(layers_list(&store, &out, &err), 0); /* what the commit left is not in it */
    assert_int_equal(out.len, sizeof HEX + sizeof NEW);
    assert_int_equal(code_of(layers_list(&store, &small, &err), &err), BRIG_E_TOO_LARGE);
}

static void swept(void **state UNUSED)
{
    struct brig_err err;

    commit(HEX);
    commit(HEX2);
    assert_int_equal(symlinkat("/", store.fd, HEX "/root"), 0);
    assert_int_equal(symlinkat("../" HEX2, store.fd, HEX "/other"), 0);
    assert_int_equal(mkdirat(store.fd, HEX "/x/closed", 0), 0);
    assert_int_equal(mkfifoat(store.fd, HEX "/fifo", 0600), 0);
    assert_int_equal(layers_remove(&store, HEX, &err), 0);
    assert_false(has(HEX));
    assert_int_equal(layers_sweep(store.fd), 0);
    assert_int_equal(count("gone-"), 0);
    assert_true(has(HEX2 "/x"));
}

/* What an earlier spawner left: only layers stay. */
static void started_again(void **state UNUSED)
{
    struct brig_err err;

    commit(HEX);
    assert_int_equal(layers_sweep(store.fd), 0);
    assert_false(layers_start(&store));
    assert_int_equal(layers_make(&store, NEW, getuid(), &err), 0);
    assert_int_equal(mkdirat(store.fd, "made-x", 0700), 0);
    assert_true(layers_start(&store));
    assert_false(has(NEW));
    assert_int_equal(count("gone-"), 2);
    assert_int_equal(layers_sweep(store.fd), 0);
    assert_int_equal(count("gone-"), 0);
    assert_true(has(HEX "/x"));
}

static void who_may_have_it(void **state UNUSED)
{
    struct layer_store other = LAYER_STORE_INIT;

    assert_int_equal(chmod(path, 0750), 0);
    layers_open(&other, path, helpers, true);
    assert_int_equal(other.fd, -1);
    assert_non_null(strstr(other.why, "mode 0700"));
    layers_done(&other);
    assert_int_equal(chmod(path, 0700), 0);
    layers_open(&other, path, "/nonexistent", true);
    assert_int_equal(other.fd, -1);
    assert_string_equal(other.why, "/nonexistent/brig-layer: No such file or directory");
    layers_open(&other, "/nonexistent", helpers, true);
    assert_int_equal(other.fd, -1);
    assert_string_equal(other.why, "/nonexistent: No such file or directory");
    layers_open(&other, path, helpers, true); /* the first holds it */
    assert_int_equal(other.fd, -1);
    assert_non_null(strstr(other.why, "another spawner uses this store"));
    layers_done(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test_setup_teardown(made_and_committed, open_store, close_store),
        cmocka_unit_test_setup_teardown(failed_commit, open_store, close_store),
        cmocka_unit_test_setup_teardown(listed, open_store, close_store),
        cmocka_unit_test_setup_teardown(swept, open_store, close_store),
        cmocka_unit_test_setup_teardown(started_again, open_store, close_store),
        cmocka_unit_test_setup_teardown(who_may_have_it, open_store, close_store),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
