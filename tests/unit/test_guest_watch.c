/* SPDX-License-Identifier: Apache-2.0 */
/* Watches of the file worker: what happens in a tree is told, also where directories come, go and move meanwhile. */
#include "files_client.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/wire/le.h"

static int setup(void **state)
{
    static struct files f;

    files_spawn(&f, NULL, 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    files_stop(*state);
    return 0;
}

/* Opened, and armed. */
static uint32_t watch(struct files *f, const char *path, uint32_t recursive, struct outcome *out)
{
    uint8_t rest[4];

    le_put_u32(rest, recursive);
    uint32_t request = files_open(f, SVC_FILE_WATCH, 0, path, rest, sizeof(rest));
    files_until(f, request, SVC_EVENT, out);
    assert_int_equal(out->event_len, 0);
    return request;
}

static bool event_is(const struct outcome *out, unsigned i, uint32_t mask, const char *path)
{
    size_t end = i + 1 < out->events ? out->event_at[i + 1] : out->event_len;
    struct svc_reader in = {out->event + out->event_at[i], out->event + end, false};
    uint32_t got = svc_get_u32(&in);

    if (in.bad)
        return false;
    svc_get_u32(&in);
    struct svc_bytes name = svc_get_bytes(&in);
    assert_int_equal(svc_done(&in), 0);
    return (got & mask) == mask && name.len == strlen(path) && memcmp(name.data, path, name.len) == 0;
}

static unsigned count(const struct outcome *out, uint32_t mask, const char *path)
{
    unsigned n = 0;

    for (unsigned i = 0; i < out->events; i++)
        n += event_is(out, i, mask, path);
    return n;
}

/* Waits until it has been told. */
static void expect(struct files *f, uint32_t request, struct outcome *out, uint32_t mask, const char *path)
{
    while (count(out, mask, path) == 0)
        files_until(f, request, SVC_EVENT, out);
}

static void finish(struct files *f, uint32_t request, struct outcome *out)
{
    files_send(f, SVC_CANCEL, 0, request, NULL, 0);
    assert_int_equal(files_finish(f, request, out), ECANCELED);
    outcome_done(out);
}

static void touch(const struct files *f, const char *path)
{
    int fd = open(files_at(f, path), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    close(fd);
}

static void make(const struct files *f, const char *path)
{
    assert_int_equal(mkdir(files_at(f, path), 0755), 0);
}

static void swap_names(const struct files *f, const char *from, const char *to)
{
    assert_int_equal(rename(files_at(f, from), files_at(f, to)), 0);
}

static void tells_what_happens(void **state)
{
    struct files *f = *state;
    struct outcome out = {0};

    make(f, "w");
    make(f, "w/sub");
    touch(f, "w/old");
    uint32_t request = watch(f, "w", 0, &out);
    touch(f, "w/sub/unseen");
    touch(f, "w/new");
    expect(f, request, &out, IN_CREATE, "new");
    expect(f, request, &out, IN_CLOSE_WRITE, "new");
    swap_names(f, "w/new", "w/newer");
    expect(f, request, &out, IN_MOVED_FROM, "new");
    expect(f, request, &out, IN_MOVED_TO, "newer");
    assert_int_equal(unlink(files_at(f, "w/newer")), 0);
    expect(f, request, &out, IN_DELETE, "newer");
    assert_int_equal(count(&out, 0, "sub/unseen") + count(&out, 0, "old"), 0);
    finish(f, request, &out);
}

/* Whole trees appear at once, and nothing in them is missed. */
static void new_directories_are_seen(void **state)
{
    struct files *f = *state;
    struct outcome out = {0};
    char path[64];

    make(f, "w");
    uint32_t request = watch(f, "w", 1, &out);
    for (int i = 0; i < 50; i++) {
        snprintf(path, sizeof(path), "w/d%d", i);
        make(f, path);
        snprintf(path, sizeof(path), "w/d%d/e", i);
        make(f, path);
        snprintf(path, sizeof(path), "w/d%d/e/file", i);
        touch(f, path);
    }
    for (int i = 0; i < 50; i++) {
        snprintf(path, sizeof(path), "d%d/e/file", i);
        expect(f, request, &out, IN_CREATE, path);
    }
    touch(f, "w/d7/e/later");
    expect(f, request, &out, IN_CLOSE_WRITE, "d7/e/later");
    finish(f, request, &out);
}

static void directories_that_move(void **state)
{
    struct files *f = *state;
    struct outcome out = {0};

    for (const char *const *p = (const char *const[]){"w", "w/a", "w/a/b", "w/a/b/c", "w/z", "out", "out/in", NULL}; *p;
         p++)
        make(f, *p);
    touch(f, "out/in/there");
    uint32_t request = watch(f, "w", 1, &out);
    swap_names(f, "w/a/b", "w/z/moved");
    touch(f, "w/z/moved/c/one");
    expect(f, request, &out, IN_CREATE, "z/moved/c/one");
    assert_int_equal(count(&out, 0, "a/b/c/one"), 0);
    swap_names(f, "w/z/moved", "gone"); /* out of the tree */
    expect(f, request, &out, IN_MOVED_FROM | IN_ISDIR, "z/moved");
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* clock: what left is given up after a pause of ours */
    touch(f, "gone/c/unseen");
    swap_names(f, "out/in", "w/in"); /* into it */
    expect(f, request, &out, IN_MOVED_TO | IN_ISDIR, "in");
    expect(f, request, &out, IN_CREATE, "in/there");
    touch(f, "w/in/new");
    expect(f, request, &out, IN_CREATE, "in/new");
    swap_names(f, "gone", "w/back");
    expect(f, request, &out, IN_CREATE, "back/c/unseen");
    assert_int_equal(count(&out, IN_CLOSE_WRITE, "z/moved/c/unseen"), 0);
    finish(f, request, &out);
}

/* The kernel has lost events: that is told, and what was made meanwhile is watched from then on. */
static void an_overflow_is_told_and_healed(void **state)
{
    struct files *f = *state;
    struct outcome out = {0};
    char line[64];
    unsigned queue = 16384;
    int fd = open("/proc/sys/fs/inotify/max_queued_events", O_RDONLY | O_CLOEXEC);

    if (fd >= 0 && read(fd, line, sizeof(line)) > 0)
        queue = (unsigned)strtoul(line, NULL, 10);
    close(fd);
    if (queue > 100000)
        skip();
    make(f, "w");
    make(f, "w/busy");
    uint32_t request = watch(f, "w", 1, &out);
    /* Until the socket is full and the worker stops reading inotify, then until that is full. */
    for (unsigned i = 0; i < (queue + 60000) / 3; i++) {
        touch(f, "w/busy/x");
        assert_int_equal(unlink(files_at(f, "w/busy/x")), 0);
    }
    make(f, "w/late");
    make(f, "w/late/er");
    bool told = false;
    while (!told) {
        out.events = 0;
        out.event_len = 0;
        files_until(f, request, SVC_EVENT, &out);
        told = event_is(&out, 0, IN_Q_OVERFLOW, "");
    }
    out.events = 0;
    out.event_len = 0;
    touch(f, "w/late/marker"); /* so that there is always an event to wait for */
    for (int i = 0; i < 200 && count(&out, IN_CREATE, "late/er/seen") == 0; i++) {
        unlink(files_at(f, "w/late/er/seen"));
        touch(f, "w/late/er/seen");
        touch(f, "w/busy/marker");
        files_until(f, request, SVC_EVENT, &out);
    }
    assert_true(count(&out, IN_CREATE, "late/er/seen") > 0);
    finish(f, request, &out);
}

static void the_end_of_what_is_watched(void **state)
{
    struct files *f = *state;
    struct outcome out = {0};

    make(f, "w");
    uint32_t request = watch(f, "w", 1, &out);
    assert_int_equal(rmdir(files_at(f, "w")), 0);
    assert_int_equal(files_finish(f, request, &out), ENOENT);
    assert_int_equal(count(&out, IN_DELETE_SELF, ""), 1);
    outcome_done(&out);

    out = (struct outcome){0};
    make(f, "w");
    request = watch(f, "w", 1, &out);
    swap_names(f, "w", "elsewhere");
    assert_int_equal(files_finish(f, request, &out), ENOENT);
    assert_int_equal(count(&out, IN_MOVE_SELF, ""), 1);
    outcome_done(&out);

    out = (struct outcome){0};
    touch(f, "file");
    request = watch(f, "file", 1, &out);
    touch(f, "file");
    expect(f, request, &out, IN_CLOSE_WRITE, "");
    assert_int_equal(unlink(files_at(f, "file")), 0);
    assert_int_equal(files_finish(f, request, &out), ENOENT);
    outcome_done(&out);
    uint8_t rest[4] = {1};
    assert_int_equal(files_call(f, SVC_FILE_WATCH, 0, "none", rest, sizeof(rest), NULL), ENOENT);
}

static void more_directories_than_watches(void **state)
{
    struct files *f = *state;
    struct outcome out = {0};
    uint8_t rest[4] = {1};
    char path[64];

    make(f, "w");
    for (int i = 0; i < 8191; i++) {
        snprintf(path, sizeof(path), "w/%d", i);
        make(f, path);
    }
    uint32_t request = watch(f, "w", 1, &out);
    make(f, "w/one-more");
    assert_int_equal(files_finish(f, request, &out), ENOSPC);
    assert_int_equal(files_call(f, SVC_FILE_WATCH, 0, "w", rest, sizeof(rest), &out), ENOSPC);
    outcome_done(&out);
    out = (struct outcome){0};
    request = watch(f, "w", 0, &out);
    finish(f, request, &out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tells_what_happens, setup, teardown),
        cmocka_unit_test_setup_teardown(new_directories_are_seen, setup, teardown),
        cmocka_unit_test_setup_teardown(directories_that_move, setup, teardown),
        cmocka_unit_test_setup_teardown(an_overflow_is_told_and_healed, setup, teardown),
        cmocka_unit_test_setup_teardown(the_end_of_what_is_watched, setup, teardown),
        cmocka_unit_test_setup_teardown(more_directories_than_watches, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
