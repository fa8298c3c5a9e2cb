/* SPDX-License-Identifier: Apache-2.0 */
/* Trees of this machine as tar: what is sent comes back the same, and an archive made by an enemy reaches nothing
 * outside. */
#include "unit.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/buf.h"
#include "client/tree.h"
#include "codec/tar/tar.h"

/* A private place with "out" (where archives go), "in" (where they come from) and "secret" beside them. */
struct place {
    char path[64];
    int fd;
};

static int make_place(void **state)
{
    static struct place place;

    snprintf(place.path, sizeof(place.path), "/tmp/brig-test-tree-XXXXXX");
    assert_non_null(mkdtemp(place.path));
    place.fd = open(place.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(place.fd >= 0);
    assert_int_equal(mkdirat(place.fd, "in", 0755), 0);
    assert_int_equal(mkdirat(place.fd, "out", 0755), 0);
    int fd = openat(place.fd, "secret", O_WRONLY | O_CREAT, 0644);
    assert_int_equal(write(fd, "secret", 6), 6);
    close(fd);
    *state = &place;
    return 0;
}

static void remove_all(int dir, const char *name)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return;
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, 0700), 0);
    DIR *opened = fdopendir(dup(fd));
    const struct dirent *entry;
    while ((entry = readdir(opened)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_all(fd, entry->d_name);
    closedir(opened);
    close(fd);
    unlinkat(dir, name, AT_REMOVEDIR);
}

static int remove_place(void **state)
{
    struct place *place = *state;

    close(place->fd);
    remove_all(AT_FDCWD, place->path);
    return 0;
}

static void put_file(int dir, const char *path, const char *text, mode_t mode)
{
    int fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void assert_file(int dir, const char *path, const char *text, mode_t mode)
{
    char have[4096];
    struct stat st;
    int fd = openat(dir, path, O_RDONLY | O_NOFOLLOW);

    if (fd < 0)
        fail_msg("%s: %s", path, strerror(errno));
    ssize_t n = read(fd, have, sizeof(have));
    assert_int_equal(n, strlen(text));
    assert_memory_equal(have, text, (size_t)n);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 07777, mode);
    close(fd);
}

static int sub(const struct place *place, const char *name)
{
    int fd = openat(place->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

/* Everything that the reader gives, step bytes at a time, goes to the writer. */
static uint64_t copy(const struct place *place, const char *prefix, size_t step)
{
    struct tree_reader *reader = NULL;
    struct tree_writer *writer = NULL;
    struct brig_err err = {0};
    char piece[70000];
    ssize_t n;

    assert_int_equal(tree_reader_create(sub(place, "in"), prefix, &reader, &err), 0);
    assert_int_equal(tree_writer_create(sub(place, "out"), &writer, &err), 0);
    while ((n = tree_reader_read(reader, piece, step, &err)) > 0)
        if (tree_writer_write(writer, piece, (size_t)n, &err) < 0)
            fail_msg("%s", err.message);
    assert_int_equal(n, 0);
    if (tree_writer_finish(writer, &err) < 0)
        fail_msg("%s", err.message);
    uint64_t skipped = tree_reader_skipped(reader);
    tree_reader_destroy(reader);
    tree_writer_destroy(writer);
    return skipped;
}

static void comes_back_the_same(void **state)
{
    static const size_t steps[] = {1, 511, 512, 513, 70000};
    struct place *place = *state;
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct stat st;
    char link[64], long_name[201];
    int in = sub(place, "in");

    memset(long_name, 'n', 200);
    long_name[200] = '\0';
    put_file(in, "plain", "text\n", 0644);
    put_file(in, "empty", "", 0600);
    put_file(in, "run", "#!", 0755);
    put_file(in, "not \xff utf-8\n", "x", 0640);
    put_file(in, long_name, "long", 0644);
    assert_int_equal(mkdirat(in, "d", 0755), 0);
    put_file(in, "d/inner", "inner", 0444);
    assert_int_equal(symlinkat("../nowhere", in, "link"), 0);
    assert_int_equal(mkfifoat(in, "fifo", 0644), 0);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/in/sock", place->path);
    int sock = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(mkdirat(in, "locked", 0700), 0);
    put_file(in, "locked/f", "f", 0600);
    assert_int_equal(fchmodat(in, "locked", 0500, 0), 0);
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1000000000, .tv_nsec = 500}};
    assert_int_equal(utimensat(in, "d", times, 0), 0);
    assert_int_equal(utimensat(in, "plain", times, 0), 0);

    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {    /* the second time over what is there */
        assert_int_equal(copy(place, "", steps[i]), 2); /* the fifo and the socket */
        int out = sub(place, "out");
        assert_file(out, "plain", "text\n", 0644);
        assert_file(out, "empty", "", 0600);
        assert_file(out, "run", "#!", 0755);
        assert_file(out, "not \xff utf-8\n", "x", 0640);
        assert_file(out, long_name, "long", 0644);
        assert_file(out, "d/inner", "inner", 0444);
        assert_file(out, "locked/f", "f", 0600);
        ssize_t n = readlinkat(out, "link", link, sizeof(link));
        assert_int_equal(n, 10);
        assert_memory_equal(link, "../nowhere", 10);
        assert_int_equal(fstatat(out, "locked", &st, 0), 0);
        assert_int_equal(st.st_mode & 07777, 0500);
        assert_int_equal(fstatat(out, "d", &st, 0), 0);
        assert_int_equal(st.st_mtim.tv_sec, 1000000000);
        assert_int_equal(st.st_mtim.tv_nsec, 500);
        assert_int_equal(fstatat(out, "plain", &st, 0), 0);
        assert_int_equal(st.st_mtim.tv_sec, 1000000000);
        assert_int_equal(fstatat(out, "fifo", &st, 0), -1);
        close(out);
    }
    close(sock);
    close(in);
}

static void puts_a_name_before(void **state)
{
    struct place *place = *state;
    int in = sub(place, "in");

    put_file(in, "f", "f", 0644);
    assert_int_equal(copy(place, "name", 70000), 0);
    assert_file(place->fd, "out/name/f", "f", 0644);
    close(in);
}

static void a_file_that_shrinks_leaves_the_archive_whole(void **state)
{
    struct place *place = *state;
    struct tree_reader *reader = NULL;
    struct brig_err err = {0};
    static char piece[1 << 20];
    int in = sub(place, "in");
    size_t total = 0;
    ssize_t n;

    memset(piece, 'x', 5000);
    piece[5000] = '\0';
    put_file(in, "f", piece, 0644);
    assert_int_equal(tree_reader_create(dup(in), "", &reader, &err), 0);
    assert_int_equal(tree_reader_read(reader, piece, 600, &err), 600);
    int fd = openat(in, "f", O_WRONLY | O_TRUNC);
    close(fd);
    total = 600;
    while ((n = tree_reader_read(reader, piece, sizeof(piece), &err)) > 0)
        total += (size_t)n;
    assert_int_equal(n, 0);
    assert_int_equal(total % 512, 0);
    tree_reader_destroy(reader);
    close(in);
}

/* ---- enemies -------------------------------------------------------------------------------------- */

static void add(struct buf *archive, enum tar_kind kind, const char *name, const char *link, const char *content,
                unsigned mode)
{
    uint8_t head[TAR_HEADER_MAX];
    const struct tar_member member = {.kind = kind,
                                      .mode = mode,
                                      .size = strlen(content),
                                      .name = name,
                                      .name_len = strlen(name),
                                      .link = link,
                                      .link_len = strlen(link)};
    static const char zeroes[TAR_BLOCK];
    int n = tar_put_header(head, &member);

    assert_true(n > 0);
    assert_int_equal(buf_append(archive, head, (size_t)n), 0);
    assert_int_equal(buf_append(archive, content, member.size), 0);
    assert_int_equal(buf_append(archive, zeroes, tar_padding(member.size)), 0);
}

static int unpack(const struct place *place, struct buf *archive)
{
    static const char end[2 * TAR_BLOCK];
    struct tree_writer *writer = NULL;
    struct brig_err err = {0};

    assert_int_equal(buf_append(archive, end, sizeof(end)), 0);
    assert_int_equal(tree_writer_create(sub(place, "out"), &writer, &err), 0);
    int r = tree_writer_write(writer, archive->data, archive->len, &err);
    if (r == 0)
        r = tree_writer_finish(writer, &err);
    tree_writer_destroy(writer);
    assert_file(place->fd, "secret", "secret", 0644); /* whatever it was */
    return r;
}

/* Names without content cost the sandbox nothing when it takes each away again, but they stay here. */
static void names_have_an_end(void **state)
{
    struct place *place = *state;
    AUTO_BUF struct buf archive = BUF_INIT(1 << 20);
    struct tree_writer *writer = NULL;
    struct brig_err err = {0};

    add(&archive, TAR_DIR, "a", "", "", 0755);
    add(&archive, TAR_SYMLINK, "b", "a", "", 0777);
    add(&archive, TAR_FILE, "c", "", "", 0644);
    add(&archive, TAR_FILE, "d", "", "", 0644);
    assert_int_equal(tree_writer_create(sub(place, "out"), &writer, &err), 0);
    tree_writer_limit(writer, 0, 3);
    assert_true(tree_writer_write(writer, archive.data, archive.len, &err) < 0);
    assert_int_equal(err.code, BRIG_E_TOO_LARGE);
    assert_string_equal(err.message, "d: with it there are more than 3 names; --max allows more");
    tree_writer_destroy(writer);
    assert_int_equal(faccessat(place->fd, "out/c", F_OK, 0), 0);
    assert_int_equal(faccessat(place->fd, "out/d", F_OK, 0), -1);
}

static void stays_in_its_directory(void **state)
{
    struct place *place = *state;
    AUTO_BUF struct buf archive = BUF_INIT(1 << 20);

    /* through a symlink of the archive itself */
    add(&archive, TAR_SYMLINK, "up", "..", "", 0777);
    add(&archive, TAR_FILE, "up/secret", "", "gotcha", 0644);
    assert_true(unpack(place, &archive) < 0);
    /* over a symlink: it is replaced, not followed */
    archive.len = 0;
    add(&archive, TAR_SYMLINK, "s", "../secret", "", 0777);
    add(&archive, TAR_FILE, "s", "", "mine", 0644);
    assert_int_equal(unpack(place, &archive), 0);
    assert_file(place->fd, "out/s", "mine", 0644);
    /* a directory over a symlink to one: its mode is not set on the target */
    archive.len = 0;
    add(&archive, TAR_SYMLINK, "d", "..", "", 0777);
    add(&archive, TAR_DIR, "d", "", "", 0777);
    add(&archive, TAR_FILE, "d/x", "", "x", 0644);
    assert_int_equal(unpack(place, &archive), 0);
    assert_file(place->fd, "out/d/x", "x", 0644);
    /* a hard link through a symlink */
    archive.len = 0;
    add(&archive, TAR_SYMLINK, "e", "..", "", 0777);
    add(&archive, TAR_HARDLINK, "stolen", "e/secret", "", 0644);
    assert_true(unpack(place, &archive) < 0);
}

/* A symlink that somebody put there before. */
static void does_not_follow_what_was_there(void **state)
{
    struct place *place = *state;
    AUTO_BUF struct buf archive = BUF_INIT(1 << 20);

    assert_int_equal(symlinkat("../secret", sub(place, "out"), "f"), 0);
    assert_int_equal(symlinkat("..", sub(place, "out"), "d"), 0);
    add(&archive, TAR_FILE, "f", "", "mine", 0644);
    assert_int_equal(unpack(place, &archive), 0);
    assert_file(place->fd, "out/f", "mine", 0644);
    archive.len = 0;
    add(&archive, TAR_FILE, "d/secret", "", "gotcha", 0644);
    assert_true(unpack(place, &archive) < 0);
}

static void drops_rights_and_devices(void **state)
{
    struct place *place = *state;
    AUTO_BUF struct buf archive = BUF_INIT(1 << 20);
    struct stat st;

    add(&archive, TAR_FILE, "suid", "", "x", 06755);
    add(&archive, TAR_FIFO, "fifo", "", "", 0666);
    assert_int_equal(unpack(place, &archive), 0);
    assert_file(place->fd, "out/suid", "x", 0755);
    assert_int_equal(fstatat(place->fd, "out/fifo", &st, 0), -1);
}

static void refuses_what_is_no_archive(void **state)
{
    struct place *place = *state;
    AUTO_BUF struct buf archive = BUF_INIT(1 << 20);
    struct tree_writer *writer = NULL;
    struct brig_err err = {0};
    struct stat st;

    assert_int_equal(tree_writer_create(sub(place, "out"), &writer, &err), 0);
    char junk[600];
    memset(junk, 'j', sizeof(junk));
    assert_true(tree_writer_write(writer, junk, sizeof(junk), &err) < 0);
    tree_writer_destroy(writer);

    /* cut off in the middle of a file: it is not left there */
    add(&archive, TAR_FILE, "half", "", "a file of some length", 0644);
    assert_int_equal(tree_writer_create(sub(place, "out"), &writer, &err), 0);
    assert_int_equal(tree_writer_write(writer, archive.data, 520, &err), 0);
    assert_int_equal(fstatat(place->fd, "out/half", &st, 0), 0);
    assert_true(tree_writer_finish(writer, &err) < 0);
    tree_writer_destroy(writer);
    assert_int_equal(fstatat(place->fd, "out/half", &st, 0), -1);
}

#define IN_A_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_PLACE(comes_back_the_same),
        IN_A_PLACE(puts_a_name_before),
        IN_A_PLACE(a_file_that_shrinks_leaves_the_archive_whole),
        IN_A_PLACE(names_have_an_end),
        IN_A_PLACE(stays_in_its_directory),
        IN_A_PLACE(does_not_follow_what_was_there),
        IN_A_PLACE(drops_rights_and_devices),
        IN_A_PLACE(refuses_what_is_no_archive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
