/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dependency sets without a sandbox: what keys them, what locks say, where packages come from, what is collected, what
 * removing survives.
 */
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "deps/sets_priv.h"
#include "sandbox_rig.h"

#define H64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static char top[] = "/tmp/brig-sets-XXXXXX";
static int top_fd = -1;
static struct config config;

static char *text(const char *s)
{
    return (char *)(uintptr_t)s;
}

static int setup(void **state)
{
    (void)state;
    unit_put(top + sizeof top - 7, "XXXXXX", 6);
    if (!mkdtemp(top))
        return -1;
    top_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    config = (struct config){.tools_find_links = text(""),
                             .tools_npm_registry = text(""),
                             .tools_sets_bytes = 1u << 30,
                             .tools_sets_seconds = 86400};
    return top_fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    close(top_fd);
    return tree_remove(AT_FDCWD, top);
}

/* ---- keys ---------------------------------------------------------------------------------------------------- */

static const struct versions usual = {"cpython-3.11.2", "linux-x86_64", "v20.1.0"};

static void key_of(const struct set_want *want, const struct versions *versions, const struct set_index *index,
                   char key[SHA256_HEX])
{
    struct brig_err err = {0};
    struct wish wish;

    if (wish_init(&wish, want, false, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(wish_key(&wish, versions, index, &config, key), 0);
    wish_done(&wish);
}

static void test_keys(void **state)
{
    const char *const ab[] = {"a", "b"}, *const bab[] = {"b", "a", "b"}, *const joined[] = {"ab"}, *const npm[] = {"a"};
    const struct set_index none = {.pip = ""}, other = {.pip = "https://h/simple/"};
    const struct versions newer = {"cpython-3.12.1", "linux-x86_64", "v20.1.0"},
                          arm = {"cpython-3.11.2", "linux-aarch64", "v20.1.0"},
                          node = {"cpython-3.11.2", "linux-x86_64", "v22.0.0"};
    struct set_want want = {.org_id = "org-1", .pip = ab, .n_pip = 2},
                    same = {.org_id = "org-1", .pip = bab, .n_pip = 3};
    char keys[12][SHA256_HEX], again[SHA256_HEX];
    size_t n = 0;

    (void)state;
    key_of(&want, &usual, &none, keys[n++]);
    key_of(&same, &usual, &none, again);
    assert_string_equal(keys[0], again);
    key_of(&want, &node, &none, again); /* nothing of it runs in node */
    assert_string_equal(keys[0], again);
    key_of(&want, &newer, &none, keys[n++]);
    key_of(&want, &arm, &none, keys[n++]);
    key_of(&want, &usual, &other, keys[n++]);
    key_of(&(struct set_want){.org_id = "org-2", .pip = ab, .n_pip = 2}, &usual, &none, keys[n++]);
    key_of(&(struct set_want){.org_id = "org-1", .pip = joined, .n_pip = 1}, &usual, &none, keys[n++]);
    key_of(&(struct set_want){.org_id = "org-1", .pip = ab, .n_pip = 2, .venv_name = "mine"}, &usual, &none, keys[n++]);
    key_of(&(struct set_want){.org_id = "org-1", .pip = ab, .n_pip = 1, .npm = npm, .n_npm = 1}, &usual, &none,
           keys[n++]);
    key_of(&(struct set_want){.org_id = "org-1", .npm = npm, .n_npm = 1}, &usual, &none, keys[n++]);
    key_of(&(struct set_want){.org_id = "org-1", .npm = npm, .n_npm = 1}, &node, &none, keys[n++]);
    config.tools_find_links = text("/srv/wheels");
    key_of(&want, &usual, &none, keys[n++]);
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++)
            assert_string_not_equal(keys[i], keys[j]);
}

static void test_shared_keys(void **state)
{
    const char *const pip[] = {"a"};
    const struct set_index none = {.pip = ""};
    struct set_want one = {.org_id = "org-1", .requirements_txt = "a==1 --hash=sha256:" H64 "\n"}, two = one;
    char key[SHA256_HEX], other[SHA256_HEX];

    (void)state;
    two.org_id = "org-2";
    key_of(&one, &usual, &none, key);
    key_of(&two, &usual, &none, other);
    assert_string_not_equal(key, other); /* sharing is off */
    config.tools_share_sets = true;
    key_of(&one, &usual, &none, key);
    key_of(&two, &usual, &none, other);
    assert_string_equal(key, other);
    one.pip = two.pip = pip;
    one.n_pip = two.n_pip = 1;
    key_of(&one, &usual, &none, key);
    key_of(&two, &usual, &none, other);
    assert_string_not_equal(key, other); /* one of them has no hash */
}

static void test_wishes(void **state)
{
    const char *const bad[] = {"--pre"}, *const pip[] = {"one", "two", "three"};
    struct brig_err err = {0};
    struct wish wish;

    (void)state;
    assert_true(wish_init(&wish, &(struct set_want){.org_id = "o", .pip = bad, .n_pip = 1}, false, &err) < 0);
    assert_int_equal(err.code, BRIG_E_USAGE);
    static const char *const venvs[] = {"..", "a/b", ".x", "-x", "npm", "a b", "$(id)"};
    for (size_t i = 0; i < ARRAY_SIZE(venvs); i++)
        assert_true(wish_init(&wish, &(struct set_want){.org_id = "o", .pip = pip, .n_pip = 1, .venv_name = venvs[i]},
                              false, &err) < 0);
    assert_int_equal(
        wish_init(
            &wish,
            &(struct set_want){.org_id = "o", .pip = pip, .n_pip = 3, .n_config_pip = 1, .requirements_txt = "zero\n"},
            false, &err),
        0);
    AUTO_BUF struct buf out = BUF_INIT(4096);
    assert_int_equal(wish_sentence(&wish, false, &out), 0);
    assert_string_equal(
        out.data,
        "Failed to install pip packages (sandbox requirements: zero, one; tool requirements: two, three). This may be "
        "due to package version incompatibility. "
        "Consider updating package versions or removing version constraints.");
    wish_done(&wish);
}

static void test_versions(void **state)
{
    struct versions v;

    (void)state;
    assert_int_equal(versions_parse("cpython-3.11.2\nlinux-x86_64\nv20.1.0\n", &v), 0);
    assert_string_equal(v.platform, "linux-x86_64");
    assert_int_equal(versions_parse("\nLinux-x86_64\nv20.1.0\n", &v), 0);
    assert_true(versions_parse("\nLinux\n\n", &v) < 0);
    assert_true(versions_parse("a\nb\n", &v) < 0);
    assert_true(versions_parse("a\nb c\nd\n", &v) < 0);
}

/* ---- locks ---------------------------------------------------------------------------------------------------- */

static void test_locks(void **state)
{
    struct wish wish = {.venv = "venv"};
    struct brig_err err = {0};
    AUTO_BUF struct buf one = BUF_INIT(1u << 20), two = BUF_INIT(1u << 20), pip = BUF_INIT(1u << 20),
                        package = BUF_INIT(1u << 20), lock = BUF_INIT(1u << 20);
    struct lock_parts parts = {"[{\"name\":\"b\",\"version\":\"2\",\"sha256\":\"" H64
                               "\"},{\"name\":\"A\",\"version\":\"1.0\",\"sha256\":\"" H64 "\"}]",
                               "{\"private\":true}", "{\"lockfileVersion\":3,\"packages\":{}}"};

    (void)state;
    assert_int_equal(lock_make(&wish, &usual, &parts, &one, &err), 0);
    parts.pip = "[{\"name\":\"A\",\"sha256\":\"" H64
                "\",\"version\":\"1.0\"}, {\"name\":\"b\",\"version\":\"2\",\"sha256\":\"" H64 "\"}]";
    assert_int_equal(lock_make(&wish, &usual, &parts, &two, &err), 0);
    assert_string_equal(one.data, two.data); /* the same content is the same text */
    assert_int_equal(lock_read(one.data, one.len, &pip, &package, &lock, &err), 0);
    assert_string_equal(pip.data, "A==1.0 --hash=sha256:" H64 "\nb==2 --hash=sha256:" H64 "\n");
    assert_string_equal(package.data, "{\"private\":true}");
    assert_string_equal(lock.data, "{\"lockfileVersion\":3,\"packages\":{}}");
}

static void test_locks_without_hashes(void **state)
{
    struct wish wish = {.venv = "venv"};
    AUTO_BUF struct buf made = BUF_INIT(1u << 20), pip = BUF_INIT(4096), package = BUF_INIT(4096),
                        lock = BUF_INIT(4096);
    const struct lock_parts parts = {"[{\"name\":\"a\",\"version\":\"1\",\"sha256\":\"\"}]", NULL, NULL};

    (void)state;
    assert_int_equal(lock_make(&wish, &usual, &parts, &made, NULL), 0);
    assert_int_equal(lock_read(made.data, made.len, &pip, &package, &lock, NULL), 0);
    assert_int_equal(pip.len, 0); /* nothing to verify by: it is resolved again */
}

static void test_locks_that_are_none(void **state)
{
    static const char *const reports[] = {"",
                                          "{}",
                                          "[1]",
                                          "[{}]",
                                          "[{\"name\":\"a\",\"version\":\"1\"}]",
                                          "[{\"name\":\"a\",\"version\":\"1\",\"sha256\":\"zz\"}]",
                                          "[{\"name\":\"a\\n--pre\",\"version\":\"1\",\"sha256\":\"\"}]",
                                          "[{\"name\":\"--pre\",\"version\":\"1\",\"sha256\":\"\"}]",
                                          "[{\"name\":\"a\",\"version\":\"1 -r x\",\"sha256\":\"\"}]",
                                          "[{\"name\":\"a\",\"version\":\"1\",\"sha256\":\"" H64 "\"}"};
    static const char *const locks[] = {
        "", "{}", "{\"format\":2,\"pip\":[]}", "{\"format\":1}",
        "{\"format\":1,\"pip\":[{\"name\":\"../x\",\"version\":\"1\",\"sha256\":\"\"}]}"};
    struct wish wish = {.venv = "venv"};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(reports); i++) {
        AUTO_BUF struct buf made = BUF_INIT(4096);
        struct brig_err err = {0};
        assert_true(lock_make(&wish, &usual, &(struct lock_parts){reports[i], NULL, NULL}, &made, &err) < 0);
        assert_int_equal(err.code, BRIG_E_INVALID);
    }
    for (size_t i = 0; i < ARRAY_SIZE(locks); i++) {
        AUTO_BUF struct buf pip = BUF_INIT(4096), package = BUF_INIT(4096), lock = BUF_INIT(4096);
        assert_true(lock_read(locks[i], strlen(locks[i]), &pip, &package, &lock, NULL) < 0);
    }
    AUTO_BUF struct buf made = BUF_INIT(4096);
    assert_true(lock_make(&wish, &usual, &(struct lock_parts){NULL, "[]", "{}"}, &made, NULL) < 0);
}

/* ---- where packages come from --------------------------------------------------------------------------------- */

static void test_index(void **state)
{
    struct set_index index;

    (void)state;
    unsetenv("PIP_INDEX_URL");
    unsetenv("PIP_EXTRA_INDEX_URL");
    unsetenv("PIP_TRUSTED_HOST");
    unsetenv("npm_config_registry");
    unsetenv("NPM_CONFIG_REGISTRY");
    set_index_read(&index,
                   "[global]\n# index-url = no\nindex-url = https://me:p%40ss@h.example/simple/ \nextra-index-url =\n"
                   "    https://u@x/a\n    https://y/b\ntrusted-host=h.example\r\n",
                   "fund=false\nregistry=https://n:p@npm.example/\n");
    assert_string_equal(index.pip, "https://h.example/simple/");
    assert_string_equal(index.extra, "https://x/a https://y/b");
    assert_string_equal(index.trusted, "h.example");
    assert_string_equal(index.npm, "https://npm.example/");
    setenv("PIP_INDEX_URL", "https://a:b@c@env.example/simple", 1);
    setenv("npm_config_registry", "https://env.example/", 1);
    set_index_read(&index, "[global]\nindex-url = https://h/\n", NULL);
    assert_string_equal(index.pip, "https://env.example/simple");
    assert_string_equal(index.npm, "https://env.example/");
    unsetenv("PIP_INDEX_URL");
    unsetenv("npm_config_registry");
    set_index_read(&index, NULL, NULL);
    assert_string_equal(index.pip, "");
}

/* ---- the directory ---------------------------------------------------------------------------------------------- */

static void make_file(int dir, const char *name, size_t size)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    assert_true(fd >= 0 && ftruncate(fd, 0) == 0);
    for (size_t i = 0; i < size; i += 4096) {
        static const char block[4096] = "x";
        assert_int_equal(write(fd, block, sizeof block), sizeof block);
    }
    close(fd);
}

static void test_trees(void **state)
{
    AUTO_BUF struct buf out = BUF_INIT(100);
    int dir = top_fd;

    (void)state;
    assert_int_equal(mkdirat(top_fd, "tree", 0755), 0);
    make_file(top_fd, "tree/file", 8192);
    make_file(top_fd, "kept", 4096);
    assert_int_equal(symlinkat("../kept", top_fd, "tree/link"), 0);
    assert_int_equal(symlinkat("..", top_fd, "tree/up"), 0);
    assert_int_equal(mkfifoat(top_fd, "tree/fifo", 0600), 0);
    assert_true(tree_size(top_fd, "tree") >= 8192 && tree_size(top_fd, "tree") < 65536);
    assert_int_equal(tree_read(top_fd, "tree/fifo", 10, &out), -EINVAL); /* and does not wait */
    assert_int_equal(tree_read(top_fd, "tree/link", 10, &out), -ELOOP);
    assert_int_equal(tree_read(top_fd, "tree/file", 10, &out), -EFBIG);
    dir = openat(top_fd, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 3000; i++) { /* deeper than any path may be long */
        assert_int_equal(mkdirat(dir, "deep", 0755), 0);
        make_file(dir, "f", 0);
        int next = openat(dir, "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        close(dir);
        dir = next;
    }
    assert_int_equal(fchmod(dir, 0), 0);
    close(dir);
    assert_true(tree_size(top_fd, "tree") == UINT64_MAX);
    assert_int_equal(fchmodat(top_fd, "tree/deep", 0, 0), 0);
    assert_int_equal(tree_remove(top_fd, "tree"), 0);
    assert_int_equal(faccessat(top_fd, "kept", F_OK, 0), 0);
    assert_int_equal(tree_remove(top_fd, "tree"), 0); /* none is as good as gone */
    assert_int_equal(tree_remove(top_fd, "kept"), 0);
    assert_int_equal(tree_write(top_fd, "whole", "abc", 3), 0);
    assert_int_equal(tree_read(top_fd, "whole", 10, &out), 0);
    assert_string_equal(out.data, "abc");
}

#define NOBODY 65534u

static int swaps_left; /* so often an openat() that is refused is followed by the attacker's turn */

static void attacker(void)
{
    if (swaps_left == 0)
        return;
    swaps_left--;
    if (renameat2(top_fd, "race/d", top_fd, "race/link", RENAME_EXCHANGE) < 0)
        _exit(2);
    errno = EACCES;
}

/* See meson.build: what the product calls, by either of its names. */
int __real_openat(int dir, const char *path, int flags, ...);
int __real_openat64(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, mode_t mode);
int __wrap_openat64(int dir, const char *path, int flags, mode_t mode);

int __wrap_openat(int dir, const char *path, int flags, mode_t mode)
{
    int fd = __real_openat(dir, path, flags, mode);

    if (fd < 0 && errno == EACCES)
        attacker();
    return fd;
}

int __wrap_openat64(int dir, const char *path, int flags, mode_t mode)
{
    int fd = __real_openat64(dir, path, flags, mode);

    if (fd < 0 && errno == EACCES)
        attacker();
    return fd;
}

/*
 * A directory that cannot be read changes places with a link between the look at it and what is done about it: no mode
 * is changed through the link.
 */
static void test_swapped_link(void **state)
{
    const uid_t uid = geteuid() == 0 ? NOBODY : geteuid();
    static const char *const names[] = {"race", "race/d", "victim"};
    struct stat st;
    int status;

    (void)state;
    assert_int_equal(fchmod(top_fd, 0755), 0);
    make_file(top_fd, "victim", 1);
    assert_int_equal(fchmodat(top_fd, "victim", 0644, 0), 0);
    assert_int_equal(mkdirat(top_fd, "race", 0755), 0);
    assert_int_equal(mkdirat(top_fd, "race/d", 0), 0);
    assert_int_equal(symlinkat("../victim", top_fd, "race/link"), 0);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_int_equal(fchownat(top_fd, names[i], uid, (gid_t)-1, 0), 0);
    pid_t walker = fork();
    if (walker == 0) { /* without root's rights, so that a mode of 0 means something */
        swaps_left = 1;
        if (setresuid(uid, uid, uid) < 0)
            _exit(1);
        (void)tree_size(top_fd, "race");
        _exit(swaps_left == 0 ? 0 : 3);
    }
    assert_int_equal(waitpid(walker, &status, 0), walker);
    assert_int_equal(status, 0);
    assert_int_equal(fstatat(top_fd, "victim", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
}

static void make_set(const char *key, const char *org, uint64_t bytes, int64_t age)
{
    const char *lock = "{\"format\":1,\"venv\":\"venv\",\"pip\":[]}";
    char name[SHA256_HEX + 16], used[128];
    int64_t then = clock_real_ns() / (int64_t)NS_PER_SEC - age;

    assert_int_equal(mkdirat(top_fd, key, 0755), 0);
    assert_true(str_format(name, sizeof name, "%s/root", key) > 0);
    assert_int_equal(mkdirat(top_fd, name, 0755), 0);
    assert_true(str_format(name, sizeof name, "%s/lock.json", key) > 0);
    assert_int_equal(tree_write(top_fd, name, lock, strlen(lock)), 0);
    assert_true(str_format(name, sizeof name, "%s/used", key) > 0);
    int len = str_format(used, sizeof used, "%s\n%llu\n", org, (unsigned long long)bytes);
    assert_int_equal(tree_write(top_fd, name, used, (size_t)len), 0);
    const struct timespec times[2] = {{then, 0}, {then, 0}};
    assert_int_equal(utimensat(top_fd, name, times, 0), 0);
}

static const char *key(char digit)
{
    static char keys[4][SHA256_HEX];
    static unsigned at;
    char *out = keys[at++ % 4];

    memset(out, digit, SHA256_HEX - 1);
    out[SHA256_HEX - 1] = '\0';
    return out;
}

static bool there(char digit)
{
    return faccessat(top_fd, key(digit), F_OK, 0) == 0;
}

static void test_collection(void **state)
{
    struct brig_err err = {0};
    struct loop *loop = NULL;
    struct sets *sets = NULL;

    (void)state;
    make_set(key('a'), "org-1", 400, 10);
    make_set(key('b'), "org-1", 400, 1000);
    make_set(key('c'), "org-2", 400, 2000);
    make_set(key('d'), "org-2", 1, 90000);                /* over its age */
    assert_int_equal(mkdirat(top_fd, key('e'), 0755), 0); /* not a set */
    config.tools_sets_bytes = 1000;
    assert_int_equal(loop_create(&loop, &err), 0);
    const struct sets_options options = {.loop = loop, .config = &config, .cache_dir_fd = top_fd, .cache_path = top};
    assert_int_equal(sets_create(&options, &sets, &err), 0);
    struct entry *held = entry_ready(sets, key('c'));
    assert_non_null(held);
    assert_string_equal(held->set.venv, SET_PATH "/venv");
    assert_null(held->set.node_path);
    assert_string_equal(held->org, "org-2");
    held->users = 1; /* the oldest that is not over its age, but somebody has it */
    sets_collect(sets);
    assert_false(there('d'));
    assert_true(there('c') && there('a'));
    assert_false(there('b'));
    set_release(sets, &held->set);
    config.tools_sets_bytes = 100;
    held = entry_ready(sets, key('c'));
    held->used_at -= 3000;
    sets_collect(sets);
    assert_false(there('c') || there('a'));
    sets_destroy(sets); /* waits for its thread: what was put aside is removed */
    assert_false(there('e'));
    loop_destroy(loop);
}

/* What a rebuild replaces stays for those who have it, and goes with them. */
static void test_retiring(void **state)
{
    struct brig_err err = {0};
    struct loop *loop = NULL;
    struct sets *sets = NULL;

    (void)state;
    make_set(key('a'), "org-1", 1, 0);
    assert_int_equal(loop_create(&loop, &err), 0);
    const struct sets_options options = {.loop = loop, .config = &config, .cache_dir_fd = top_fd, .cache_path = top};
    assert_int_equal(sets_create(&options, &sets, &err), 0);
    struct entry *old = entry_ready(sets, key('a'));
    old->users = 2;
    assert_int_equal(entry_retire(sets, old), 0);
    assert_null(entry_ready(sets, key('a')));
    assert_false(there('a'));
    assert_int_equal(access(old->set.host_path, F_OK), 0); /* its place has changed with it */
    char path[sizeof old->path];
    snprintf(path, sizeof path, "%s", old->path);
    set_release(sets, &old->set);
    assert_int_equal(access(path, F_OK), 0);
    set_release(sets, &old->set);
    assert_null(sets->entries);
    sets_destroy(sets);
    assert_int_equal(access(path, F_OK), -1);
    loop_destroy(loop);
}

static bool is_there(const char *name)
{
    return faccessat(top_fd, name, F_OK, 0) == 0;
}

/* What a build of an earlier life left is not touched while an orphan of that life lives: it may be the installer. */
static void test_remains(void **state)
{
    struct rig *rig = rig_create();
    struct sets *sets = NULL;
    struct brig_err err = {0};

    (void)state;
    assert_int_equal(mkdirat(top_fd, "rest.tmp-x", 0755), 0);
    rig_stop_manager(rig);
    struct fake_box *orphan = fake_add(&rig->fake, NULL);
    rig->fake.hold_end = true;
    rig_start(rig); /* ready without waiting for the orphan's end */
    assert_int_equal(rig->fake.orphans_ended, 1);
    const struct sets_options options = {
        .loop = rig->loop, .manager = rig->manager, .config = &config, .cache_dir_fd = top_fd, .cache_path = top};
    assert_int_equal(sets_create(&options, &sets, &err), 0);
    rig_run(rig, 10);
    sets_destroy(sets); /* waits for its thread */
    assert_true(is_there("rest.tmp-x"));
    assert_int_equal(sets_create(&options, &sets, &err), 0);
    rig_run(rig, 10);
    fake_die(orphan, BRIG_CAUSE_CANCELLED, "");
    RIG_UNTIL(rig, !is_there("rest.tmp-x"));
    sets_destroy(sets);
    rig_done(rig);
}

struct told {
    unsigned n;
    enum brig_code code;
};

static void on_told(void *ctx, const struct set *set, const struct brig_err *err)
{
    struct told *told = ctx;

    assert_null(set);
    told->n++;
    told->code = (enum brig_code)err->code;
}

static void want(struct sets *sets, const char *org, const char *python, struct told *told)
{
    const char *const pip[] = {"one"};
    const struct set_want what = {.org_id = org, .pip = pip, .n_pip = 1, .python = python};
    struct caller caller = {.role = STORE_ROLE_USER};
    struct set_build *build = NULL;
    struct brig_err err = {0};

    assert_int_equal(str_copy(caller.org_id, sizeof caller.org_id, org), 0);
    if (sets_get(sets, &caller, &what, false, on_told, told, &build, &err) < 0)
        fail_msg("%s", err.message);
}

/* The question of one organisation neither keeps another waiting nor fails for it. */
static void test_each_organisation_asks(void **state)
{
    struct rig *rig = rig_create();
    struct sets *sets = NULL;
    struct brig_err err = {0};
    struct told one = {0}, second = {0}, two = {0};

    (void)state;
    const struct sets_options options = {
        .loop = rig->loop, .manager = rig->manager, .config = &rig->config, .cache_dir_fd = top_fd, .cache_path = top};
    assert_int_equal(sets_create(&options, &sets, &err), 0);
    rig->fake.hold_up = true;
    want(sets, ORG, "/usr/bin/python3", &one);
    want(sets, ORG, "/usr/bin/python4", &second);
    RIG_UNTIL(rig, rig->fake.made == 1);
    struct fake_box *first = rig->fake.boxes;
    want(sets, ORG2, "/usr/bin/python3", &two);
    RIG_UNTIL(rig, rig->fake.made == 2);
    rig_run(rig, 10);
    assert_int_equal(rig->fake.made, 2); /* each of them one at a time */
    fake_die(first, BRIG_CAUSE_HOST_ERROR, "no");
    RIG_UNTIL(rig, one.n == 1);
    RIG_UNTIL(rig, rig->fake.made == 3);
    assert_int_equal(second.n, 0);
    assert_int_equal(two.n, 0);
    sets_destroy(sets);
    for (struct fake_box *box = rig->fake.boxes; box; box = box->next)
        fake_die(box, BRIG_CAUSE_HOST_ERROR, "no");
    RIG_UNTIL(rig, !rig->fake.boxes); /* what was forgotten goes with its sandbox */
    rig_done(rig);
}

/* One organisation does not take all places of those that wait. */
static void test_each_organisation_waits(void **state)
{
    const char *const pip[] = {"one"};
    const struct set_want what = {.org_id = ORG, .pip = pip, .n_pip = 1, .python = "/usr/bin/python3"};
    struct caller caller = {.role = STORE_ROLE_USER, .org_id = ORG};
    struct rig *rig = rig_create();
    struct set_build *build = NULL;
    struct sets *sets = NULL;
    struct brig_err err = {0};
    struct told one = {0}, two = {0};

    (void)state;
    const struct sets_options options = {
        .loop = rig->loop, .manager = rig->manager, .config = &rig->config, .cache_dir_fd = top_fd, .cache_path = top};
    assert_int_equal(sets_create(&options, &sets, &err), 0);
    rig->fake.hold_up = true;
    for (unsigned i = 0; i < 5000; i++)
        want(sets, ORG, "/usr/bin/python3", &one);
    assert_int_equal(sets_get(sets, &caller, &what, false, on_told, &one, &build, &err), -EAGAIN);
    assert_string_equal(err.message, "5000 runs of the organisation wait for dependency sets already");
    want(sets, ORG2, "/usr/bin/python3", &two);
    sets_destroy(sets);
    rig_done(rig);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_keys),
        TEST(test_shared_keys),
        TEST(test_wishes),
        TEST(test_versions),
        TEST(test_locks),
        TEST(test_locks_without_hashes),
        TEST(test_locks_that_are_none),
        TEST(test_index),
        TEST(test_trees),
        TEST(test_swapped_link),
        TEST(test_collection),
        TEST(test_retiring),
        TEST(test_remains),
        TEST(test_each_organisation_asks),
        TEST(test_each_organisation_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
