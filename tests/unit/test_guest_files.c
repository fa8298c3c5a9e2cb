/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file worker, as brig-init runs it, in a directory of the test. Where the profile paranoid takes openat2 away, a
 * filter does so here, and everything about paths is asked both ways.
 */
#include "files_client.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "codec/wire/le.h"

#define SWAPS 10000

static const struct deny no_openat2 = {SYS_openat2, ENOSYS, 0, 0};
static const struct deny no_tmpfile = {SYS_openat, EOPNOTSUPP, 2, O_TMPFILE & ~O_DIRECTORY};
static const struct deny no_link = {SYS_linkat, EPERM, 0, 0};

/* Each test twice: as the kernel resolves, and by hand. */
static int setup_usual(void **state)
{
    static struct files f;

    files_spawn(&f, NULL, 0);
    *state = &f;
    return 0;
}

static int setup_by_hand(void **state)
{
    static struct files f;

    files_spawn(&f, &no_openat2, 1);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    files_stop(*state);
    return 0;
}

/* ---- what the test does itself -------------------------------------------------------------------------- */

static void put_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void expect_file(const char *path, const char *text)
{
    char got[4096];
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    ssize_t n = read(fd, got, sizeof(got) - 1);
    close(fd);
    assert_true(n >= 0);
    got[n] = 0;
    assert_string_equal(got, text);
}

static unsigned count_names(const char *path)
{
    DIR *dir = opendir(path);
    unsigned n = 0;

    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

static int read_call(struct files *f, uint32_t flags, const char *path, uint64_t offset, uint64_t length,
                     struct outcome *out)
{
    uint8_t rest[16];

    le_put_u64(rest, offset);
    le_put_u64(rest + 8, length);
    return files_call(f, SVC_FILE_READ, flags, path, rest, sizeof(rest), out);
}

static void expect_read(struct files *f, uint32_t flags, const char *path, const char *text)
{
    struct outcome out = {0};

    assert_int_equal(read_call(f, flags, path, 0, 0, &out), 0);
    assert_int_equal(out.data_len, strlen(text));
    assert_memory_equal(out.data ? out.data : (uint8_t *)"", text, out.data_len);
    assert_int_equal(out.events, 1);
    assert_int_equal(out.eofs, 1);
    outcome_done(&out);
}

static int list_call(struct files *f, const char *path, uint32_t depth, uint32_t max, struct outcome *out)
{
    uint8_t rest[8];

    le_put_u32(rest, depth);
    le_put_u32(rest + 4, max);
    return files_call(f, SVC_FILE_LIST, 0, path, rest, sizeof(rest), out);
}

static int stat_call(struct files *f, uint32_t flags, const char *path, struct outcome *out)
{
    return files_call(f, SVC_FILE_STAT, flags, path, NULL, 0, out);
}

/* ---- paths ---------------------------------------------------------------------------------------------- */

static void paths_that_lead_out_are_refused(void **state)
{
    static const char *const bad[] = {"..", "../x", "a/..", "a/../b", "/..", "/a/../../b", "a//..", "./.."};
    struct files *f = *state;
    char longer[SVC_PATH_MAX + 2];
    uint8_t message[64];
    struct svc_cursor out = {message, message + sizeof(message), false};
    struct outcome got = {0};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(stat_call(f, 0, bad[i], NULL), EINVAL);
        assert_int_equal(files_write(f, bad[i], 0, "", 0), EINVAL);
        assert_int_equal(files_remove(f, bad[i], 1), EINVAL);
        assert_int_equal(files_move(f, bad[i], "z", 0), EINVAL);
    }
    assert_int_equal(files_move(f, ".", "../z", 0), EINVAL);
    assert_int_equal(stat_call(f, 0, "", NULL), EINVAL);
    assert_int_equal(stat_call(f, 8, ".", NULL), EINVAL);
    memset(longer, 'a', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = 0;
    assert_int_equal(stat_call(f, 0, longer, NULL), EINVAL);
    longer[SVC_PATH_MAX] = 0;
    assert_int_equal(stat_call(f, 0, longer, NULL), ENAMETOOLONG);
    svc_put_path(&out, &(struct svc_path){0, {"/", 1}, {"a\0b", 3}});
    files_send(f, SVC_FILE_STAT, 0, 900, message, (size_t)(out.at - message));
    assert_int_equal(files_finish(f, 900, &got), EINVAL);
    out.at = message;
    svc_put_path(&out, &(struct svc_path){0, {"tmp", 3}, {"a", 1}});
    files_send(f, SVC_FILE_STAT, 0, 901, message, (size_t)(out.at - message));
    assert_int_equal(files_finish(f, 901, &got), EINVAL);
    files_send(f, SVC_FILE_STAT, 0, 902, message, 5);
    assert_int_equal(files_finish(f, 902, &got), EINVAL);
    outcome_done(&got);
}

/* `..;` and a backslash are names like others. */
static void names_are_bytes(void **state)
{
    static const char *const names[] = {"..;", "a\\b", "-rf", "new\nline", "\xff\xfe", "%2e%2e%2f", " ", "...", "\x01"};
    struct files *f = *state;
    struct outcome out = {0};
    char longest[256];
    unsigned seen = 0;

    memset(longest, 'n', 255);
    longest[255] = 0;
    for (size_t i = 0; i <= ARRAY_SIZE(names); i++) {
        const char *name = i < ARRAY_SIZE(names) ? names[i] : longest;
        assert_int_equal(files_write(f, name, SVC_WRITE_ATOMIC, name, strlen(name)), 0);
        expect_read(f, 0, name, name);
    }
    assert_int_equal(list_call(f, ".", 1, 0, &out), 0);
    assert_int_equal(out.events, ARRAY_SIZE(names) + 1);
    for (unsigned i = 0; i < out.events; i++) {
        struct svc_entry entry = outcome_event(&out, i);
        for (size_t j = 0; j <= ARRAY_SIZE(names); j++) {
            const char *name = j < ARRAY_SIZE(names) ? names[j] : longest;
            seen += entry.path.len == strlen(name) && memcmp(entry.path.data, name, entry.path.len) == 0;
        }
    }
    assert_int_equal(seen, out.events);
    outcome_done(&out);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_int_equal(files_remove(f, names[i], 0), 0);
}

static void confined_paths_stay_inside(void **state)
{
    struct files *f = *state;
    const char *name = strrchr(f->dir, '/') + 1;
    char up[256];

    assert_int_equal(files_write(f, "a/b/file", SVC_WRITE_PARENTS, "in", 2), 0);
    snprintf(up, sizeof(up), "../%s/a", name);
    assert_int_equal(symlink(up, files_at(f, "over-the-fence")), 0);
    assert_int_equal(symlink("/tmp", files_at(f, "absolute")), 0);
    assert_int_equal(symlink("/tmp/brig-canary", files_at(f, "passwd")), 0);
    assert_int_equal(symlink("../../a/b/file", files_at(f, "a/b/down-and-up")), 0);
    assert_int_equal(symlink("../../../brig-canary", files_at(f, "a/b/too-far")), 0);
    assert_int_equal(symlink("a/b", files_at(f, "short")), 0);
    assert_int_equal(symlink("loop", files_at(f, "loop")), 0);
    assert_int_equal(symlink("chain2", files_at(f, "chain1")), 0);
    assert_int_equal(symlink("short/../b/file", files_at(f, "chain2")), 0);
    expect_read(f, SVC_PATH_CONFINE, "a/b/file", "in");
    expect_read(f, SVC_PATH_CONFINE, "./a//b/./file", "in");
    expect_read(f, SVC_PATH_CONFINE, "short/file", "in");
    expect_read(f, SVC_PATH_CONFINE, "chain1", "in");
    expect_read(f, SVC_PATH_CONFINE, "a/b/down-and-up", "in");
    expect_read(f, 0, "over-the-fence/b/file", "in");
    static const char *const out[] = {"over-the-fence/b/file", "absolute/brig-canary", "passwd", "a/b/too-far",
                                      "/tmp/brig-canary"};
    for (size_t i = 0; i < ARRAY_SIZE(out); i++) {
        assert_int_equal(stat_call(f, SVC_PATH_CONFINE, out[i], NULL), EXDEV);
        assert_int_equal(read_call(f, SVC_PATH_CONFINE, out[i], 0, 0, NULL), EXDEV);
        assert_int_equal(files_write_flags(f, SVC_PATH_CONFINE, out[i], SVC_WRITE_ATOMIC, 0, "x", 1), EXDEV);
    }
    assert_int_equal(stat_call(f, SVC_PATH_CONFINE, "loop", NULL), ELOOP);
    assert_int_equal(stat_call(f, SVC_PATH_CONFINE, "loop/x", NULL), ELOOP);
    assert_int_equal(stat_call(f, SVC_PATH_CONFINE, "a/b/file/x", NULL), ENOTDIR);
    assert_int_equal(stat_call(f, SVC_PATH_CONFINE, "a/b/file/", NULL), ENOTDIR);
    assert_int_equal(stat_call(f, SVC_PATH_CONFINE, "none/x", NULL), ENOENT);
    assert_int_equal(stat_call(f, SVC_PATH_CONFINE | SVC_PATH_NOFOLLOW, "passwd", NULL), 0);
    assert_int_equal(files_write_flags(f, SVC_PATH_CONFINE, "absolute/new/x", SVC_WRITE_PARENTS, 0, "x", 1), EXDEV);
}

struct swapper {
    const struct files *f;
    atomic_bool stop;
    atomic_int swaps;
};

/* `door` is a directory, then a link to one outside, then a directory again; never nothing. */
static void *swap_door(void *arg)
{
    struct swapper *swapper = arg;
    char door[128], link[128];

    snprintf(door, sizeof(door), "%s/base/door", swapper->f->dir);
    snprintf(link, sizeof(link), "%s/base/link", swapper->f->dir);
    while (!swapper->stop && renameat2(AT_FDCWD, door, AT_FDCWD, link, RENAME_EXCHANGE) == 0)
        swapper->swaps++;
    return NULL;
}

/* The outside is beside base, so that a write that slips through is seen. */
static void a_swapped_directory_does_not_lead_out(void **state)
{
    struct files *f = *state;
    struct swapper swapper = {.f = f};
    char base[80], outside[80];
    unsigned landed = 0, refused = 0;
    pthread_t thread;

    snprintf(base, sizeof(base), "%s/base", f->dir);
    snprintf(outside, sizeof(outside), "%s/outside", f->dir);
    assert_int_equal(mkdir(base, 0755) | mkdir(outside, 0755) | mkdir(files_at(f, "base/door"), 0755), 0);
    assert_int_equal(symlink("../outside", files_at(f, "base/link")), 0);
    put_file(files_at(f, "outside/secret"), "");
    struct files confined = *f;
    assert_true(strlen(base) < sizeof(confined.dir));
    memcpy(confined.dir, base, strlen(base) + 1);
    assert_int_equal(pthread_create(&thread, NULL, swap_door, &swapper), 0);
    for (unsigned i = 0; (i < 1500 || swapper.swaps < SWAPS) && i < 100000; i++) {
        uint32_t how = i % 3 == 0 ? SVC_WRITE_ATOMIC : i % 3 == 1 ? SVC_WRITE_PARENTS : 0;
        int ret =
            files_write_flags(&confined, SVC_PATH_CONFINE, i % 3 == 1 ? "door/deep/file" : "door/file", how, 0, "x", 1);
        landed += ret == 0;
        refused += ret != 0;
        if (ret != 0 && ret != EXDEV && ret != ENOENT && ret != EAGAIN)
            fail_msg("errno %d", ret);
    }
    for (unsigned i = 0; i < 2500; i++) { /* seen as a directory, entered as a link? */
        struct outcome out = {0};
        assert_int_equal(list_call(&confined, ".", 9, 0, &out), 0);
        for (unsigned j = 0; j < out.events; j++)
            assert_null(memmem(outcome_event(&out, j).path.data, outcome_event(&out, j).path.len, "secret", 6));
        outcome_done(&out);
    }
    swapper.stop = true;
    pthread_join(thread, NULL);
    assert_true(swapper.swaps >= SWAPS);
    assert_true(landed > 0 && refused > 0);
    assert_int_equal(count_names(outside), 1);
    f->request = confined.request;
    f->in_len = confined.in_len;
    f->in_taken = confined.in_taken;
    assert_int_equal(files_remove(f, "base", 1), 0);
}

/* ---- contents ------------------------------------------------------------------------------------------- */

static void reads_ranges(void **state)
{
    struct files *f = *state;
    struct outcome out = {0};

    put_file(files_at(f, "t"), "0123456789");
    assert_int_equal(read_call(f, 0, "t", 3, 4, &out), 0);
    assert_int_equal(out.data_len, 4);
    assert_memory_equal(out.data, "3456", 4);
    struct svc_entry entry = outcome_event(&out, 0);
    assert_int_equal(entry.type, SVC_FILE);
    assert_int_equal(entry.size, 10);
    outcome_done(&out);
    out = (struct outcome){0};
    assert_int_equal(read_call(f, 0, "t", 8, 100, &out), 0);
    assert_int_equal(out.data_len, 2);
    assert_int_equal(read_call(f, 0, "t", 10, 0, &out), 0);
    assert_int_equal(read_call(f, 0, "t", 99, 0, &out), 0);
    assert_int_equal(out.data_len, 2);
    assert_int_equal(read_call(f, 0, "t", UINT64_MAX, 0, &out), EINVAL);
    outcome_done(&out);
}

static void a_sparse_file_past_4_gib(void **state)
{
    struct files *f = *state;
    const uint64_t far = (UINT64_C(5) << 30) + 3;
    struct outcome out = {0};
    struct stat st;

    assert_int_equal(files_write_flags(f, 0, "big", SVC_WRITE_AT, far, "end", 3), 0);
    assert_int_equal(stat(files_at(f, "big"), &st), 0);
    assert_int_equal(st.st_size, far + 3);
    assert_true(st.st_blocks < 1000);
    assert_int_equal(read_call(f, 0, "big", far - 2, 0, &out), 0);
    assert_int_equal(out.data_len, 5);
    assert_memory_equal(out.data, "\0\0end", 5);
    struct svc_entry entry = outcome_event(&out, 0);
    assert_int_equal(entry.size, far + 3);
    assert_int_equal(entry.blocks, st.st_blocks);
    outcome_done(&out);
}

/* More than the window, both ways, with credit given back in pieces. */
static void many_bytes_both_ways(void **state)
{
    struct files *f = *state;
    size_t len = (24u << 20) + 12345;
    uint8_t *bytes = malloc(len);
    struct outcome out = {0};

    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    assert_int_equal(files_write(f, "many", SVC_WRITE_ATOMIC, bytes, len), 0);
    assert_int_equal(read_call(f, 0, "many", 0, 0, &out), 0);
    assert_int_equal(out.data_len, len);
    assert_memory_equal(out.data, bytes, len);
    outcome_done(&out);
    free(bytes);
}

static void writes_in_every_way(void **state)
{
    struct files *f = *state;
    struct stat st;

    assert_int_equal(files_write(f, "w", 0, "12345", 5), 0);
    assert_int_equal(files_write(f, "w", 0, "ab", 2), 0);
    expect_file(files_at(f, "w"), "ab");
    assert_int_equal(files_write(f, "w", SVC_WRITE_APPEND, "cd", 2), 0);
    assert_int_equal(files_write_flags(f, 0, "w", SVC_WRITE_AT, 1, "XY", 2), 0);
    expect_file(files_at(f, "w"), "aXYd");
    assert_int_equal(files_write(f, "w", SVC_WRITE_EXCL, "", 0), EEXIST);
    assert_int_equal(files_write(f, "w", SVC_WRITE_EXCL | SVC_WRITE_ATOMIC, "", 0), EEXIST);
    assert_int_equal(files_write(f, "w2", SVC_WRITE_EXCL | SVC_WRITE_ATOMIC, "new", 3), 0);
    expect_file(files_at(f, "w2"), "new");
    assert_int_equal(files_write(f, "none/w", SVC_WRITE_ATOMIC, "", 0), ENOENT);
    assert_int_equal(files_write(f, "made/of/w", SVC_WRITE_ATOMIC | SVC_WRITE_PARENTS, "p", 1), 0);
    expect_file(files_at(f, "made/of/w"), "p");
    assert_int_equal(files_write(f, "made", SVC_WRITE_ATOMIC, "", 0), EISDIR);
    assert_int_equal(files_write(f, "new/", 0, "", 0), EISDIR);
    assert_int_equal(files_write(f, "w", SVC_WRITE_ATOMIC | SVC_WRITE_AT, "", 0), EINVAL);
    assert_int_equal(files_write(f, "w", SVC_WRITE_APPEND | SVC_WRITE_AT, "", 0), EINVAL);
    assert_int_equal(files_write(f, "w", 1u << 9, "", 0), EINVAL);
    assert_int_equal(stat(files_at(f, "w2"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
}

/* The file behind a link is replaced, the link stays; so does the mode. Set-id bits are not made. */
static void atomic_keeps_mode_and_link(void **state)
{
    struct files *f = *state;
    uint8_t rest[16] = {0};
    struct outcome out = {0};
    struct stat before, after;

    assert_int_equal(files_mkdir(f, "d", 0), 0);
    put_file(files_at(f, "d/real"), "old");
    assert_int_equal(chmod(files_at(f, "d/real"), 0751), 0);
    assert_int_equal(symlink("d/real", files_at(f, "link")), 0);
    assert_int_equal(stat(files_at(f, "link"), &before), 0);
    assert_int_equal(files_write_flags(f, SVC_PATH_CONFINE, "link", SVC_WRITE_ATOMIC, 0, "new", 3), 0);
    expect_file(files_at(f, "d/real"), "new");
    assert_int_equal(stat(files_at(f, "link"), &after), 0);
    assert_int_equal(after.st_mode, before.st_mode);
    assert_true(after.st_ino != before.st_ino);
    assert_int_equal(lstat(files_at(f, "link"), &after), 0);
    assert_true(S_ISLNK(after.st_mode));
    assert_int_equal(files_write_flags(f, SVC_PATH_NOFOLLOW, "link", SVC_WRITE_ATOMIC, 0, "new", 3), ELOOP);
    assert_int_equal(count_names(files_at(f, "d")), 1);

    le_put_u32(rest, SVC_WRITE_ATOMIC);
    le_put_u32(rest + 4, 06755);
    assert_int_equal(files_upload(f, files_open(f, SVC_FILE_WRITE, 0, "setid", rest, 16), "x", 1, &out), 0);
    assert_int_equal(outcome_entry(&out).mode, 0755);
    assert_int_equal(outcome_entry(&out).size, 1);
    outcome_done(&out);
}

static void a_cancelled_atomic_write_changes_nothing(void **state)
{
    struct files *f = *state;
    uint8_t rest[16] = {SVC_WRITE_ATOMIC};
    struct outcome out = {0};

    assert_int_equal(files_mkdir(f, "c", 0), 0);
    put_file(files_at(f, "c/kept"), "kept");
    for (int i = 0; i < 2; i++) {
        uint32_t request = files_open(f, SVC_FILE_WRITE, 0, i ? "c/new" : "c/kept", rest, sizeof(rest));
        files_send(f, SVC_DATA, 0, request, "half", 4);
        files_send(f, SVC_CANCEL, 0, request, NULL, 0);
        files_send(f, SVC_DATA, 0, request, "late", 4); /* crosses the REPLY */
        files_send(f, SVC_EOF, 0, request, NULL, 0);
        assert_int_equal(files_finish(f, request, &out), ECANCELED);
        assert_int_equal(count_names(files_at(f, "c")), 1);
        expect_file(files_at(f, "c/kept"), "kept");
    }
    /* and one that never ends, with the worker */
    files_open(f, SVC_FILE_WRITE, 0, "c/new", rest, sizeof(rest));
    files_send(f, SVC_DATA, 0, f->request, "half", 4);
    assert_int_equal(stat_call(f, 0, "c", &out), 0);
    outcome_done(&out);
}

/* Where O_TMPFILE cannot be made or not be named, the file has a name from the start, and it goes. */
static void atomic_without_tmpfile(void **state)
{
    const struct deny *const without[] = {&no_tmpfile, &no_link};
    struct files f;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(without); i++) {
        files_spawn(&f, without[i], 1);
        for (int j = 0; j < 2; j++) {
            assert_int_equal(files_write(&f, "x", SVC_WRITE_ATOMIC, "one", 3), 0);
            assert_int_equal(files_write(&f, "x", SVC_WRITE_ATOMIC, "two", 3), 0);
            expect_file(files_at(&f, "x"), "two");
            assert_int_equal(files_write(&f, "x", SVC_WRITE_ATOMIC | SVC_WRITE_EXCL, "no", 2), EEXIST);
            assert_int_equal(files_write(&f, "y", SVC_WRITE_ATOMIC | SVC_WRITE_EXCL, "yes", 3), j ? EEXIST : 0);
            assert_int_equal(count_names(f.dir), 2);
            a_cancelled_atomic_write_changes_nothing((void *[]){&f});
            assert_int_equal(files_remove(&f, "c", 1), 0);
        }
        files_stop(&f);
    }
}

/* ---- special files -------------------------------------------------------------------------------------- */

static void special_files_never_block(void **state)
{
    struct files *f = *state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct outcome out = {0};
    int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    static const struct {
        const char *name;
        enum svc_file_type type;
        int errnum;
    } special[] = {{"fifo", SVC_FIFO, ENXIO},
                   {"sock", SVC_SOCKET, ENXIO},
                   {"/dev/zero", SVC_CHAR, ENXIO},
                   {"dangling", SVC_SYMLINK, ELOOP},
                   {"dir", SVC_DIR, EISDIR}};

    assert_int_equal(mkfifo(files_at(f, "fifo"), 0600), 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/sock", f->dir);
    assert_int_equal(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
    close(sock);
    assert_int_equal(symlink("nowhere", files_at(f, "dangling")), 0);
    assert_int_equal(mkdir(files_at(f, "dir"), 0755), 0);
    for (size_t i = 0; i < ARRAY_SIZE(special); i++) {
        struct outcome got = {0};
        assert_int_equal(read_call(f, SVC_PATH_NOFOLLOW, special[i].name, 0, 0, &got), special[i].errnum);
        assert_int_equal(got.events, 1);
        assert_int_equal(outcome_event(&got, 0).type, special[i].type);
        assert_int_equal(got.data_len + got.eofs, 0);
        assert_int_equal(files_write_flags(f, SVC_PATH_NOFOLLOW, special[i].name, 0, 0, "x", 1), special[i].errnum);
        assert_int_equal(files_write_flags(f, SVC_PATH_NOFOLLOW, special[i].name, SVC_WRITE_ATOMIC, 0, "x", 1),
                         special[i].errnum);
        outcome_done(&got);
    }
    assert_int_equal(list_call(f, ".", 9, 0, &out), 0);
    assert_int_equal(out.events, 4);
    assert_int_equal(files_call(f, SVC_FILE_TAR_GET, 0, ".", NULL, 0, &out), 0);
    assert_int_equal(le_get_u64(out.reply), 4); /* ".", fifo, dangling, dir */
    assert_int_equal(files_call(f, SVC_FILE_TAR_GET, 0, "sock", NULL, 0, NULL), ENXIO);
    outcome_done(&out);
}

/* ---- trees ---------------------------------------------------------------------------------------------- */

static void deep_trees(void **state)
{
    struct files *f = *state;
    struct outcome out = {0};
    int dir = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (int i = 0; i < 10000; i++) {
        assert_int_equal(mkdirat(dir, "d", 0755), 0);
        if (i % 50 == 0)
            close(openat(dir, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
        int next = openat(dir, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        close(dir);
        dir = next;
    }
    close(dir);
    assert_int_equal(list_call(f, "d", UINT32_MAX, 0, &out), 0);
    assert_true(out.events > 2000 && out.events < 2200); /* as far as paths go */
    assert_int_equal(le_get_u32(out.reply), 1);
    outcome_done(&out);
    out = (struct outcome){0};
    assert_int_equal(files_call(f, SVC_FILE_TAR_GET, 0, "d", NULL, 0, &out), ENAMETOOLONG);
    assert_int_equal(out.eofs, 1);
    outcome_done(&out);
    assert_int_equal(files_remove(f, "d", 0), ENOTEMPTY);
    assert_int_equal(files_remove(f, "d", 1), 0);
    assert_int_equal(access(files_at(f, "d"), F_OK), -1);
}

/*
 * While a walk is at the bottom, a directory above it is moved to another tree. `..` then leads there; the walk must
 * not. It is held at the bottom by many long names that nobody reads.
 */
static void a_walk_does_not_stray(void **state)
{
    struct files *f = *state;
    struct outcome out = {0};
    uint8_t rest[8] = {99};
    char path[64] = "t", name[200];

    for (int i = 0; i < 20; i++) {
        memcpy(path + strlen(path), "/d", 3);
        assert_int_equal(files_mkdir(f, path, 1), 0);
    }
    int dir = open(files_at(f, path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 4000; i++) {
        snprintf(name, sizeof(name), "%0180d", i);
        close(openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    }
    close(dir);
    assert_int_equal(files_write(f, "elsewhere/secret", SVC_WRITE_PARENTS, "", 0), 0);
    uint32_t request = files_open(f, SVC_FILE_LIST, 0, "t", rest, sizeof(rest));
    files_until(f, request, SVC_EVENT, &out);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); /* clock: for it to be deep in the tree */
    assert_int_equal(rename(files_at(f, "t/d/d/d/d/d"), files_at(f, "elsewhere/d")), 0);
    assert_int_equal(files_finish(f, request, &out), ESTALE);
    for (unsigned i = 0; i < out.events; i++)
        assert_null(memmem(outcome_event(&out, i).path.data, outcome_event(&out, i).path.len, "secret", 6));
    outcome_done(&out);
}

static void lists_with_depth_and_limit(void **state)
{
    struct files *f = *state;
    struct outcome out = {0};
    char path[72];

    for (int i = 0; i < 40; i++) { /* deeper than the walk keeps open, with something to find on the way back */
        snprintf(path, sizeof(path), "t/%.*s", 2 * i, "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/");
        if (strlen(path) > 58)
            break;
        assert_int_equal(files_mkdir(f, path, 1), 0);
        for (int j = 0; j < 3; j++) {
            snprintf(path + strlen(path), 8, "/%c", 'x' + j);
            assert_int_equal(files_write(f, path, 0, "", 0), 0);
            path[strlen(path) - 2] = 0;
        }
    }
    assert_int_equal(list_call(f, "t", 1, 0, &out), 0);
    assert_int_equal(out.events, 4);
    assert_int_equal(list_call(f, "t", 2, 0, &out), 0);
    assert_int_equal(out.events, 4 + 8);
    assert_int_equal(le_get_u32(out.reply), 0);
    assert_int_equal(list_call(f, "t", 9, 5, &out), 0);
    assert_int_equal(out.events, 12 + 5);
    assert_int_equal(le_get_u32(out.reply), 1);
    outcome_done(&out);
    out = (struct outcome){0};
    assert_int_equal(list_call(f, "t", 99, 0, &out), 0);
    assert_int_equal(out.events, 29 * 4 - 1);
    assert_int_equal(list_call(f, "t/x", 1, 0, &out), ENOTDIR);
    assert_int_equal(list_call(f, "none", 1, 0, &out), ENOENT);
    outcome_done(&out);
    assert_int_equal(files_remove(f, "t", 1), 0);
}

static void remove_follows_nothing(void **state)
{
    struct files *f = *state;

    assert_int_equal(files_write(f, "safe/file", SVC_WRITE_PARENTS, "s", 1), 0);
    assert_int_equal(files_write(f, "tree/sub/file", SVC_WRITE_PARENTS, "t", 1), 0);
    assert_int_equal(symlink("../../safe", files_at(f, "tree/sub/link")), 0);
    assert_int_equal(symlink("../safe", files_at(f, "tree/link")), 0);
    assert_int_equal(link(files_at(f, "safe/file"), files_at(f, "tree/hard")), 0);
    assert_int_equal(symlink("safe", files_at(f, "top")), 0);
    assert_int_equal(files_remove(f, "tree", 1), 0);
    assert_int_equal(files_remove(f, "top", 1), 0);
    expect_file(files_at(f, "safe/file"), "s");
    assert_int_equal(count_names(f->dir), 1);
    assert_int_equal(files_remove(f, ".", 1), EBUSY);
    assert_int_equal(files_remove(f, "/", 1), EBUSY);
    assert_int_equal(files_remove(f, "none", 1), ENOENT);
}

static void moves(void **state)
{
    struct files *f = *state;
    char far[] = "/dev/shm/brig-files-XXXXXX", path[64];
    struct stat here, there;

    put_file(files_at(f, "one"), "1");
    put_file(files_at(f, "two"), "2");
    assert_int_equal(files_move(f, "one", "two", 0), EEXIST);
    assert_int_equal(files_move(f, "one", "three", 0), 0);
    expect_file(files_at(f, "three"), "1");
    assert_int_equal(files_move(f, "three", "two", 1), 0);
    expect_file(files_at(f, "two"), "1");
    assert_int_equal(files_move(f, "none", "x", 0), ENOENT);
    assert_int_equal(files_mkdir(f, "dir/sub", 1), 0);
    assert_int_equal(files_move(f, "dir", "dir/sub/x", 0), EINVAL);
    assert_int_equal(files_move(f, "dir", "moved", 0), 0);
    assert_int_equal(files_move(f, "two", "moved/", 0), ENOTDIR);
    assert_int_equal(files_move(f, ".", "x", 0), EBUSY);

    assert_non_null(mkdtemp(far));
    assert_int_equal(stat(f->dir, &here) | stat(far, &there), 0);
    if (here.st_dev != there.st_dev) {
        assert_int_equal(chmod(files_at(f, "two"), 0640), 0);
        snprintf(path, sizeof(path), "%s/two", far);
        assert_int_equal(files_move(f, "two", path, 0), 0);
        expect_file(path, "1");
        assert_int_equal(stat(path, &there), 0);
        assert_int_equal(there.st_mode & 07777, 0640);
        assert_int_equal(access(files_at(f, "two"), F_OK), -1);
        put_file(files_at(f, "two"), "again");
        assert_int_equal(files_move(f, "two", path, 0), EEXIST);
        expect_file(files_at(f, "two"), "again");
        assert_int_equal(files_move(f, "two", path, 1), 0);
        expect_file(path, "again");
        assert_int_equal(symlink("x", files_at(f, "link")), 0);
        assert_int_equal(files_move(f, "link", path, 1), 0);
        assert_int_equal(lstat(path, &there), 0);
        assert_true(S_ISLNK(there.st_mode));
        assert_int_equal(count_names(far), 1);
        assert_int_equal(files_move(f, "moved", path, 1), EXDEV);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(far), 0);
}

/* A file system that knows no RENAME_NOREPLACE. */
static void moves_without_noreplace(void **state)
{
    const struct deny deny = {SYS_renameat2, EINVAL, 4, 1};
    struct files f;

    (void)state;
    files_spawn(&f, &deny, 1);
    moves((void *[]){&f});
    files_stop(&f);
}

static void makes_directories(void **state)
{
    struct files *f = *state;

    assert_int_equal(files_mkdir(f, "a", 0), 0);
    assert_int_equal(files_mkdir(f, "a", 0), EEXIST);
    assert_int_equal(files_mkdir(f, "a", 1), 0);
    assert_int_equal(files_mkdir(f, "x/y", 0), ENOENT);
    assert_int_equal(files_mkdir(f, "x/y", 1), 0);
    assert_int_equal(symlink("x", files_at(f, "link")), 0);
    assert_int_equal(files_mkdir(f, "link", 0), EEXIST);
    assert_int_equal(files_mkdir(f, "link", 1), 0);
    put_file(files_at(f, "file"), "");
    assert_int_equal(files_mkdir(f, "file", 1), EEXIST);
    assert_int_equal(files_mkdir(f, "file/x", 1), ENOTDIR);
}

#define BOTH(test)                                                \
    cmocka_unit_test_setup_teardown(test, setup_usual, teardown), \
    {                                                             \
        "by_hand_" #test, test, setup_by_hand, teardown, NULL     \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(paths_that_lead_out_are_refused),
        BOTH(names_are_bytes),
        BOTH(confined_paths_stay_inside),
        BOTH(a_swapped_directory_does_not_lead_out),
        cmocka_unit_test_setup_teardown(reads_ranges, setup_usual, teardown),
        cmocka_unit_test_setup_teardown(a_sparse_file_past_4_gib, setup_usual, teardown),
        cmocka_unit_test_setup_teardown(many_bytes_both_ways, setup_usual, teardown),
        BOTH(writes_in_every_way),
        BOTH(atomic_keeps_mode_and_link),
        cmocka_unit_test_setup_teardown(a_cancelled_atomic_write_changes_nothing, setup_usual, teardown),
        cmocka_unit_test(atomic_without_tmpfile),
        BOTH(special_files_never_block),
        cmocka_unit_test_setup_teardown(deep_trees, setup_usual, teardown),
        cmocka_unit_test_setup_teardown(a_walk_does_not_stray, setup_usual, teardown),
        cmocka_unit_test_setup_teardown(lists_with_depth_and_limit, setup_usual, teardown),
        BOTH(remove_follows_nothing),
        BOTH(moves),
        cmocka_unit_test(moves_without_noreplace),
        BOTH(makes_directories),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
