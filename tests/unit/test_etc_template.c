/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The generated /etc and the directories it is kept in. Each test has a small host of its own in a temporary
 * directory, with things in it that must not be copied; one test uses the machine's /etc. Runs as any user.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/fd.h"
#include "base/str.h"
#include "host/dirs.h"
#include "host/etc_template.h"

struct fixture {
    char top[64];
    int top_fd, host_fd, cache_fd, out_fd;
};

static void make_dir(int fd, const char *path, mode_t mode)
{
    assert_return_code(mkdirat(fd, path, 0700), errno);
    assert_return_code(fchmodat(fd, path, mode, 0), errno);
}

static void make_file(int fd, const char *path, const char *text, mode_t mode)
{
    AUTO_FD int file = openat(fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_return_code(file, errno);
    assert_int_equal(fd_write_all(file, text, strlen(text)), 0);
    assert_return_code(fchmod(file, mode), errno);
}

static void make_link(int fd, const char *target, const char *path)
{
    assert_return_code(symlinkat(target, fd, path), errno);
}

static void assert_content(int fd, const char *path, const char *text)
{
    char buf[4096];

    assert_return_code(fd_read_file(fd, path, buf, sizeof buf), 0);
    assert_string_equal(buf, text);
}

static void assert_link(int fd, const char *path, const char *target)
{
    char buf[256] = "";

    assert_return_code(readlinkat(fd, path, buf, sizeof buf - 1), errno);
    assert_string_equal(buf, target);
}

static void assert_mode(int fd, const char *path, mode_t mode)
{
    struct stat st;

    assert_return_code(fstatat(fd, path, &st, AT_SYMLINK_NOFOLLOW), errno);
    assert_int_equal(st.st_mode, mode);
}

static bool exists(int fd, const char *path)
{
    struct stat st;

    return fstatat(fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static int open_dir(int fd, const char *path)
{
    int dir = openat(fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_return_code(dir, errno);
    return dir;
}

/* Names in the cache that start with prefix. */
static int count(int fd, const char *prefix)
{
    DIR *dir = fdopendir(open_dir(fd, "."));
    int n = 0;

    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        n += str_starts(entry->d_name, prefix);
    closedir(dir);
    return n;
}

/* A host with a bit of everything. "SECRET" stands in every file that must not be copied. */
static void make_host(int fd)
{
    static const char *const dirs[] = {
        "bin",
        "etc",
        "etc/ssl",
        "etc/ssl/certs",
        "etc/ssl/private",
        "etc/ssh",
        "etc/alternatives",
        "etc/fonts",
        "etc/fonts/conf.d",
        "etc/python3.99",
        "etc/java-17-openjdk",
        "etc/pythonx",
        "etc/cron.d",
        "etc/pki",
    };

    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        make_dir(fd, dirs[i], 0755);
    make_file(fd, "bin/bash", "#!", 0755);
    make_file(fd, "etc/ld.so.cache", "cache", 0644);
    make_file(fd, "etc/timezone", "Etc/UTC\n", 0644);
    make_file(fd, "etc/profile", "SECRET", 0640); /* in the list, but not for everyone */
    make_file(fd, "etc/shadow", "SECRET", 0644);  /* for everyone, but not in the list */
    make_file(fd, "etc/machine-id", "SECRET", 0644);
    make_file(fd, "etc/passwd", "SECRET", 0644);
    make_file(fd, "etc/resolv.conf", "SECRET", 0644);
    make_file(fd, "etc/ssh/ssh_host_key", "SECRET", 0644);
    make_file(fd, "etc/ssl/private/key.pem", "SECRET", 0644);
    make_file(fd, "etc/ssl/openssl.cnf", "conf", 0644);
    make_file(fd, "etc/pythonx/x", "SECRET", 0644);
    make_file(fd, "etc/cron.d/x", "SECRET", 0644);
    make_link(fd, "/usr/share/zoneinfo/Etc/UTC", "etc/localtime");
    make_link(fd, "../usr/lib/os-release", "etc/os-release");
    make_link(fd, "/usr/bin/vim.basic", "etc/alternatives/vi");
    make_file(fd, "etc/ssl/certs/one.pem", "one", 0644);
    make_file(fd, "etc/ssl/certs/key.pem", "SECRET", 0600);
    make_link(fd, "one.pem", "etc/ssl/certs/0123abcd.0");
    make_file(fd, "etc/pki/bundle", "bundle", 0644);
    make_link(fd, "/etc/pki/bundle", "etc/ssl/certs/ca-certificates.crt");
    make_file(fd, "etc/python3.99/sitecustomize.py", "py", 0644);
    make_file(fd, "etc/fonts/fonts.conf", "fonts", 0644);
    make_file(fd, "etc/fonts/conf.d/run", "x", 0775);
    make_dir(fd, "etc/fonts/private", 0750);
    make_file(fd, "etc/fonts/private/x", "SECRET", 0644); /* nobody else can get there */
    make_link(fd, "../ssh", "etc/fonts/ssh");
    make_link(fd, "shadow", "etc/shells"); /* a link stays a link: what it leads to is not there */
    make_link(fd, "cron.d", "etc/perl");   /* a directory of the list must be one */
    assert_return_code(mkfifoat(fd, "etc/fonts/fifo", 0644), errno);
    assert_return_code(mkfifoat(fd, "etc/magic", 0644), errno);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    if (!f || str_copy(f->top, sizeof f->top, "/tmp/brig-etc-XXXXXX") < 0 || !mkdtemp(f->top))
        return -1;
    f->top_fd = open_dir(AT_FDCWD, f->top);
    make_dir(f->top_fd, "host", 0755);
    make_dir(f->top_fd, "cache", 0700);
    make_dir(f->top_fd, "out", 0755);
    f->host_fd = open_dir(f->top_fd, "host");
    f->cache_fd = open_dir(f->top_fd, "cache");
    f->out_fd = open_dir(f->top_fd, "out");
    make_host(f->host_fd);
    *state = f;
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    close(f->out_fd);
    close(f->cache_fd);
    close(f->host_fd);
    close(f->top_fd);
    nftw(f->top, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(f);
    unsetenv("BRIG_STATE_DIR");
    unsetenv("BRIG_RUN_DIR");
    unsetenv("BRIG_CACHE_DIR");
    return 0;
}

/* ---- content -------------------------------------------------------------------------------------------- */

static void content_is_generated_and_copied(void **state)
{
    struct fixture *f = *state;
    struct brig_err err = {0};
    mode_t mask = umask(077);

    assert_int_equal(etc_template_build_from(f->host_fd, f->out_fd, &err), 0);
    umask(mask);
    assert_content(f->out_fd, "passwd",
                   "root:x:0:0:root:/root:/bin/bash\n"
                   "user:x:1000:1000:user:/home/user:/bin/bash\n"
                   "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
    assert_content(f->out_fd, "resolv.conf", "nameserver 198.18.0.1\noptions timeout:2 attempts:1\n");
    assert_true(exists(f->out_fd, "group"));
    assert_true(exists(f->out_fd, "nsswitch.conf"));
    assert_content(f->out_fd, "ld.so.cache", "cache");
    assert_content(f->out_fd, "timezone", "Etc/UTC\n");
    assert_content(f->out_fd, "ssl/openssl.cnf", "conf");
    assert_content(f->out_fd, "python3.99/sitecustomize.py", "py");
    assert_content(f->out_fd, "fonts/fonts.conf", "fonts");
    assert_link(f->out_fd, "localtime", "/usr/share/zoneinfo/Etc/UTC");
    assert_link(f->out_fd, "os-release", "../usr/lib/os-release");
    assert_link(f->out_fd, "alternatives/vi", "/usr/bin/vim.basic");
    assert_true(exists(f->out_fd, "java-17-openjdk"));
    assert_mode(f->out_fd, "passwd", S_IFREG | 0644);
    assert_mode(f->out_fd, "timezone", S_IFREG | 0644);
    assert_mode(f->out_fd, "fonts/conf.d", S_IFDIR | 0755);
    assert_mode(f->out_fd, "fonts/conf.d/run", S_IFREG | 0755);
    assert_mode(f->out_fd, "ssl/certs", S_IFDIR | 0755);
}

static void bundle_is_found_through_links_and_has_its_names(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(etc_template_build_from(f->host_fd, f->out_fd, NULL), 0);
    assert_content(f->out_fd, "ssl/certs/one.pem", "one");
    assert_link(f->out_fd, "ssl/certs/0123abcd.0", "one.pem");
    assert_mode(f->out_fd, "ssl/certs/ca-certificates.crt", S_IFREG | 0644);
    assert_content(f->out_fd, "ssl/certs/ca-certificates.crt", "bundle");
    assert_content(f->out_fd, "ssl/cert.pem", "bundle");
    assert_content(f->out_fd, "pki/tls/certs/ca-bundle.crt", "bundle");
    assert_content(f->out_fd, "pki/tls/cert.pem", "bundle");
}

static void bundle_of_another_distribution(void **state)
{
    struct fixture *f = *state;

    assert_return_code(unlinkat(f->host_fd, "etc/ssl/certs/ca-certificates.crt", 0), errno);
    make_file(f->host_fd, "etc/ssl/ca-bundle.pem", "suse", 0644);
    assert_int_equal(etc_template_build_from(f->host_fd, f->out_fd, NULL), 0);
    assert_content(f->out_fd, "ssl/certs/ca-certificates.crt", "suse");
}

static void no_bundle_is_an_empty_one(void **state)
{
    struct fixture *f = *state;

    assert_return_code(unlinkat(f->host_fd, "etc/ssl/certs/ca-certificates.crt", 0), errno);
    assert_int_equal(etc_template_build_from(f->host_fd, f->out_fd, NULL), 0);
    assert_content(f->out_fd, "ssl/certs/ca-certificates.crt", "");
    assert_mode(f->out_fd, "ssl/certs/ca-certificates.crt", S_IFREG | 0644);
    assert_content(f->out_fd, "ssl/cert.pem", "");
    assert_content(f->out_fd, "ssl/certs/one.pem", "one");
}

static int find_secret(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    char buf[16];

    (void)type, (void)ftw;
    if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode) && !S_ISLNK(st->st_mode))
        fail_msg("%s is neither file, directory nor link", path);
    if (S_ISREG(st->st_mode) && fd_read_file(AT_FDCWD, path, buf, sizeof buf) >= 0)
        assert_string_not_equal(buf, "SECRET");
    return 0;
}

static void nothing_private_and_nothing_unlisted_is_copied(void **state)
{
    static const char *const absent[] = {
        "shadow",     "machine-id",    "ssh",        "ssl/private",       "cron.d", "pythonx",  "profile",
        "magic",      "fonts/private", "fonts/fifo", "ssl/certs/key.pem", "hosts",  "hostname", "perl",
        "pki/bundle",
    };
    struct fixture *f = *state;
    char path[128];

    assert_int_equal(etc_template_build_from(f->host_fd, f->out_fd, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(absent); i++) {
        if (exists(f->out_fd, absent[i]))
            fail_msg("%s is in the template", absent[i]);
    }
    assert_link(f->out_fd, "shells", "shadow");
    assert_link(f->out_fd, "fonts/ssh", "../ssh");
    assert_return_code(str_format(path, sizeof path, "%s/out", f->top), 0);
    assert_int_equal(nftw(path, find_secret, 16, FTW_PHYS), 0);
}

static void what_is_too_large_is_left_out(void **state)
{
    struct fixture *f = *state;
    AUTO_FD int big = openat(f->host_fd, "etc/fonts/big", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    assert_return_code(ftruncate(big, 17 << 20), errno);
    assert_return_code(fchmod(big, 0644), errno);
    assert_int_equal(etc_template_build_from(f->host_fd, f->out_fd, NULL), 0);
    assert_false(exists(f->out_fd, "fonts/big"));
    assert_true(exists(f->out_fd, "fonts/fonts.conf"));
}

static void deep_directories_are_cut_off(void **state)
{
    struct fixture *f = *state;
    char path[128] = "etc/fonts";

    for (size_t i = 1; i < ETC_TEMPLATE_DEPTH + 4; i++) {
        size_t len = strlen(path);
        assert_return_code(str_format(path + len, sizeof path - len, "/d"), 0);
        make_dir(f->host_fd, path, 0755);
    }
    assert_int_equal(etc_template_build_from(f->host_fd, f->out_fd, NULL), 0);
    assert_true(exists(f->out_fd, "fonts/d/d"));
    assert_false(exists(f->out_fd, path + strlen("etc/")));
}

static int check_public(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)type, (void)ftw;
    if (S_ISREG(st->st_mode) && (st->st_mode & 07777) != 0644 && (st->st_mode & 07777) != 0755)
        fail_msg("%s has mode %04o", path, (unsigned)(st->st_mode & 07777));
    return 0;
}

static void this_machines_etc(void **state)
{
    struct fixture *f = *state;
    struct brig_err err = {0};
    char path[128];

    if (etc_template_build(f->out_fd, &err) < 0)
        fail_msg("%s", err.message);
    assert_true(exists(f->out_fd, "alternatives"));
    assert_true(exists(f->out_fd, "ssl/certs"));
    assert_false(exists(f->out_fd, "shadow"));
    assert_return_code(str_format(path, sizeof path, "%s/out", f->top), 0);
    assert_int_equal(nftw(path, check_public, 16, FTW_PHYS), 0);
}

/* ---- the cache ------------------------------------------------------------------------------------------ */

static ino_t inode(int fd)
{
    struct stat st;

    assert_return_code(fstat(fd, &st), errno);
    return st.st_ino;
}

static int open_template(struct fixture *f)
{
    struct brig_err err = {0};
    int fd = etc_template_open_from(f->host_fd, f->cache_fd, &err);

    if (fd < 0)
        fail_msg("%s", err.message);
    return fd;
}

static void second_open_finds_the_first(void **state)
{
    struct fixture *f = *state;
    AUTO_FD int one = open_template(f);
    AUTO_FD int two = open_template(f);

    assert_int_equal(inode(one), inode(two));
    assert_content(two, "timezone", "Etc/UTC\n");
    assert_mode(two, ".", S_IFDIR | 0755);
    assert_int_equal(count(f->cache_fd, "etc-"), 1);
    assert_int_equal(count(f->cache_fd, "etc-tmp-"), 0);
    assert_true((fcntl(one, F_GETFD) & FD_CLOEXEC) != 0);
}

static void change_builds_anew_and_removes_what_nobody_uses(void **state)
{
    struct fixture *f = *state;
    AUTO_FD int one = open_template(f);

    make_file(f->host_fd, "etc/timezone", "Europe/Paris\n", 0644);
    AUTO_FD int two = open_template(f); /* `one` is in use: stays */
    assert_int_not_equal(inode(one), inode(two));
    assert_content(one, "timezone", "Etc/UTC\n");
    assert_content(two, "timezone", "Europe/Paris\n");
    assert_int_equal(count(f->cache_fd, "etc-"), 2);

    close(take_fd(&one));
    make_link(f->host_fd, "x", "etc/alternatives/x");
    AUTO_FD int three = open_template(f); /* now `one` goes, `two` stays */
    assert_link(three, "alternatives/x", "x");
    assert_int_equal(count(f->cache_fd, "etc-"), 2);
    assert_content(two, "timezone", "Europe/Paris\n");
}

static void withdrawn_permission_is_a_change(void **state)
{
    struct fixture *f = *state;
    AUTO_FD int one = open_template(f);

    assert_true(exists(one, "timezone"));
    assert_return_code(fchmodat(f->host_fd, "etc/timezone", 0600, 0), errno);
    AUTO_FD int two = open_template(f);
    assert_false(exists(two, "timezone"));
}

static void other_things_in_the_cache_are_left_alone(void **state)
{
    struct fixture *f = *state;

    make_dir(f->cache_fd, "etc-tmp-00000000000000aa", 0700); /* of a builder that died */
    make_file(f->cache_fd, "etc-tmp-00000000000000aa/x", "x", 0600);
    make_dir(f->cache_fd, "etc-mine", 0700);
    make_dir(f->cache_fd, "other", 0700);
    make_link(f->cache_fd, "other", "etc-00000000000000bb");
    AUTO_FD int one = open_template(f);
    assert_true(one >= 0);
    assert_false(exists(f->cache_fd, "etc-tmp-00000000000000aa"));
    assert_true(exists(f->cache_fd, "etc-mine"));
    assert_true(exists(f->cache_fd, "other"));
    assert_true(exists(f->cache_fd, "etc-00000000000000bb"));
}

static void one_being_removed_is_not_used(void **state)
{
    struct fixture *f = *state;
    AUTO_FD int one = open_template(f);
    AUTO_FD int remover = open_dir(one, ".");
    char name[64];

    close(take_fd(&one));
    assert_return_code(flock(remover, LOCK_EX | LOCK_NB), errno);
    /* Its name is the remover's to take away first; while it is there, nobody gets in. */
    int fd = etc_template_open_from(f->host_fd, f->cache_fd, NULL);
    assert_int_equal(fd, -EBUSY);
    assert_return_code(str_format(name, sizeof name, "etc-%016llx", (unsigned long long)etc_template_stamp(f->host_fd)),
                       0);
    assert_return_code(renameat(f->cache_fd, name, f->cache_fd, "etc-tmp-00000000000000cc"), errno);
    AUTO_FD int two = open_template(f);
    assert_int_not_equal(inode(two), inode(remover));
}

static void no_place_for_it_is_an_error(void **state)
{
    struct fixture *f = *state;
    struct brig_err err = {0};
    AUTO_FD int file = openat(f->host_fd, "etc/timezone", O_RDONLY | O_CLOEXEC);

    assert_int_equal(etc_template_open_from(f->host_fd, file, &err), -ENOTDIR);
    assert_int_equal(err.code, BRIG_E_HOST);
    assert_int_equal(etc_template_open_from(f->host_fd, -1, &err), -EBADF);
    assert_int_equal(etc_template_build_from(f->cache_fd, f->out_fd, &err), -ENOENT);
}

/* ---- directories ---------------------------------------------------------------------------------------- */

static void point_at(struct fixture *f, const char *name)
{
    char path[PATH_MAX];

    assert_return_code(str_format(path, sizeof path, "%s/%s", f->top, name), 0);
    assert_return_code(setenv("BRIG_STATE_DIR", path, 1), errno);
}

static void dirs_are_made_with_their_parents(void **state)
{
    struct fixture *f = *state;
    struct brig_err err = {0};
    mode_t mask = umask(0);

    point_at(f, "a/b/c//");
    AUTO_FD int one = dirs_open(BRIG_DIR_STATE, &err);
    umask(mask);
    if (one < 0)
        fail_msg("%s", err.message);
    AUTO_FD int two = dirs_open(BRIG_DIR_STATE, &err);
    assert_int_equal(inode(one), inode(two));
    assert_mode(f->top_fd, "a/b/c", S_IFDIR | 0700);
    assert_mode(f->top_fd, "a/b", S_IFDIR | (geteuid() == 0 ? 0755 : 0700));
    assert_true((fcntl(one, F_GETFD) & FD_CLOEXEC) != 0);
}

static void refused(struct fixture *f, const char *name, int expected)
{
    struct brig_err err = {0};

    point_at(f, name);
    assert_int_equal(dirs_open(BRIG_DIR_STATE, &err), expected);
    assert_int_equal(err.code, BRIG_E_REFUSED);
    assert_non_null(strstr(err.message, name));
}

static void dirs_others_could_have_made_are_refused(void **state)
{
    struct fixture *f = *state;

    make_dir(f->top_fd, "group", 0770);
    make_dir(f->top_fd, "world", 01777);
    make_dir(f->top_fd, "good", 0755);
    make_file(f->top_fd, "file", "", 0600);
    make_link(f->top_fd, "good", "link");
    refused(f, "group", -EPERM);
    refused(f, "world", -EPERM);
    refused(f, "file", -ENOTDIR);
    refused(f, "link", -ENOTDIR);
    point_at(f, "link/");
    assert_int_equal(dirs_open(BRIG_DIR_STATE, NULL), -ENOTDIR);
    if (geteuid() == 0) {
        assert_return_code(fchownat(f->top_fd, "good", 65534, 65534, 0), errno);
        refused(f, "good", -EPERM);
    }
}

static void overrides_must_name_a_directory(void **state)
{
    static const char *const wrong[] = {"relative/path", ".", "/", "//", "/tmp/..", "/tmp/.", "/tmp/./"};
    struct brig_err err;
    char path[PATH_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        assert_return_code(setenv("BRIG_CACHE_DIR", wrong[i], 1), errno);
        assert_int_equal(dirs_path(BRIG_DIR_CACHE, path, sizeof path, &err), -EINVAL);
        assert_int_equal(err.code, BRIG_E_USAGE);
        assert_non_null(strstr(err.message, wrong[i]));
    }
}

static void assert_path(enum brig_dir which, const char *expected)
{
    char path[PATH_MAX];

    assert_int_equal(dirs_path(which, path, sizeof path, NULL), 0);
    assert_string_equal(path, expected);
}

static void default_places(void **state)
{
    struct fixture *f = *state;
    char path[PATH_MAX];

    if (geteuid() == 0) {
        assert_path(BRIG_DIR_STATE, "/var/lib/brig");
        assert_path(BRIG_DIR_RUN, "/run/brig");
        assert_path(BRIG_DIR_CACHE, "/var/cache/brig");
        if (seteuid(65534) < 0)
            return; /* a user namespace with one id */
    }
    setenv("HOME", "/home/joe", 1);
    setenv("XDG_STATE_HOME", "not-absolute", 1);
    setenv("XDG_CACHE_HOME", "/x/cache", 1);
    unsetenv("XDG_RUNTIME_DIR");
    assert_path(BRIG_DIR_STATE, "/home/joe/.local/state/brig");
    assert_path(BRIG_DIR_RUN, "/home/joe/.local/state/brig/run");
    assert_path(BRIG_DIR_CACHE, "/x/cache/brig");
    setenv("XDG_RUNTIME_DIR", "/", 1); /* not ours */
    assert_path(BRIG_DIR_RUN, "/home/joe/.local/state/brig/run");
    unsetenv("HOME");
    assert_int_equal(dirs_path(BRIG_DIR_STATE, path, sizeof path, NULL), -EINVAL);
    assert_int_equal(dirs_path(BRIG_DIR_CACHE, path, 4, NULL), -ENAMETOOLONG);
    if (getuid() == 0)
        assert_return_code(seteuid(0), errno);
    if (geteuid() != 0) {
        setenv("XDG_RUNTIME_DIR", f->top, 1);
        assert_return_code(str_format(path, sizeof path, "%s/brig", f->top), 0);
        assert_path(BRIG_DIR_RUN, path);
    }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    static const char *const variables[] = {"BRIG_STATE_DIR", "BRIG_RUN_DIR", "BRIG_CACHE_DIR"};
    const struct CMUnitTest tests[] = {
        TEST(content_is_generated_and_copied),
        TEST(bundle_is_found_through_links_and_has_its_names),
        TEST(bundle_of_another_distribution),
        TEST(no_bundle_is_an_empty_one),
        TEST(nothing_private_and_nothing_unlisted_is_copied),
        TEST(what_is_too_large_is_left_out),
        TEST(deep_directories_are_cut_off),
        TEST(this_machines_etc),
        TEST(second_open_finds_the_first),
        TEST(change_builds_anew_and_removes_what_nobody_uses),
        TEST(withdrawn_permission_is_a_change),
        TEST(other_things_in_the_cache_are_left_alone),
        TEST(one_being_removed_is_not_used),
        TEST(no_place_for_it_is_an_error),
        TEST(dirs_are_made_with_their_parents),
        TEST(dirs_others_could_have_made_are_refused),
        TEST(overrides_must_name_a_directory),
        TEST(default_places),
    };

    for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
        unsetenv(variables[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
