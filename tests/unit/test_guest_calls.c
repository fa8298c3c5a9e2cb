/* SPDX-License-Identifier: Apache-2.0 */
/* Many calls on one connection to the file worker: whose turn it is, credit, opens in pieces, and what ends it. */
#include "files_client.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/wire/le.h"
#include "guest/init/guest.h"

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

static uint32_t open_read(struct files *f, const char *path)
{
    const uint8_t rest[16] = {0};

    return files_open(f, SVC_FILE_READ, 0, path, rest, sizeof(rest));
}

static uint32_t open_write(struct files *f, const char *path)
{
    const uint8_t rest[16] = {SVC_WRITE_ATOMIC};

    return files_open(f, SVC_FILE_WRITE, 0, path, rest, sizeof(rest));
}

static void make_big(const struct files *f, const char *path, off_t size)
{
    int fd = open(files_at(f, path), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, size), 0);
    close(fd);
}

/* Downloads that nobody reads stop at their window, and stop nobody else. */
static void a_download_waits_for_credit(void **state)
{
    struct files *f = *state;
    struct outcome stalled = {.keep_credit = true};
    uint8_t credit[4];

    make_big(f, "big", 8 << 20);
    uint32_t first = open_read(f, "big");
    while (stalled.data_len < SVC_WINDOW)
        files_until(f, first, SVC_DATA, &stalled);
    assert_int_equal(stalled.data_len, SVC_WINDOW);
    for (int i = 0; i < 20; i++) {
        struct outcome out = {0};
        assert_int_equal(files_finish(f, open_read(f, "big"), &out), 0);
        assert_int_equal(out.data_len, 8 << 20);
        outcome_done(&out);
    }
    le_put_u32(credit, 1);
    files_send(f, SVC_CREDIT, 1, first, credit, 4);
    files_until(f, first, SVC_DATA, &stalled);
    assert_int_equal(stalled.data_len, SVC_WINDOW + 1);
    files_send(f, SVC_CANCEL, 0, first, NULL, 0);
    assert_int_equal(files_finish(f, first, &stalled), ECANCELED);
    assert_int_equal(stalled.data_len, SVC_WINDOW + 1);
    assert_int_equal(stalled.eofs, 0);
    outcome_done(&stalled);
}

/* Two at once: neither is done before the other has begun. */
static void downloads_take_turns(void **state)
{
    struct files *f = *state;
    struct outcome a = {0}, b = {0};

    make_big(f, "a", 64 << 20);
    make_big(f, "b", 1 << 20);
    uint32_t first = open_read(f, "a"), second = open_read(f, "b");
    /*
     * files_until() drops frames of other requests: so the small one is awaited, and the large one must not have ended.
     */
    assert_int_equal(files_finish(f, second, &b), 0);
    assert_int_equal(b.data_len, 1 << 20);
    files_send(f, SVC_CANCEL, 0, first, NULL, 0);
    assert_int_equal(files_finish(f, first, &a), ECANCELED);
    outcome_done(&a);
    outcome_done(&b);
}

static void uploads_interleave(void **state)
{
    struct files *f = *state;
    uint32_t requests[8];
    char name[16], bytes[8][1000];
    struct stat st;

    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof(name), "u%d", i);
        requests[i] = open_write(f, name);
        memset(bytes[i], 'a' + i, sizeof(bytes[i]));
    }
    for (int round = 0; round < 50; round++)
        for (int i = 0; i < 8; i++)
            files_send(f, SVC_DATA, 0, requests[i], bytes[i], sizeof(bytes[i]));
    for (int i = 7; i >= 0; i--) {
        struct outcome out = {0};
        files_send(f, SVC_EOF, 0, requests[i], NULL, 0);
        assert_int_equal(files_finish(f, requests[i], &out), 0);
        outcome_done(&out);
        snprintf(name, sizeof(name), "u%d", i);
        assert_int_equal(stat(files_at(f, name), &st), 0);
        assert_int_equal(st.st_size, 50000);
    }
}

static void credit_comes_back_in_batches(void **state)
{
    struct files *f = *state;
    static uint8_t bytes[FRAME_PAYLOAD_MAX];
    struct outcome out = {0};
    uint32_t request = open_write(f, "x");

    for (int i = 0; i < 7; i++)
        files_send(f, SVC_DATA, 0, request, bytes, sizeof(bytes));
    files_until(f, request, SVC_CREDIT, &out);
    assert_int_equal(out.credit, 4 * sizeof(bytes));
    files_send(f, SVC_EOF, 0, request, NULL, 0);
    assert_int_equal(files_finish(f, request, &out), 0);
    assert_int_equal(out.credit, 4 * sizeof(bytes));
    outcome_done(&out);
}

static void data_where_none_belongs(void **state)
{
    struct files *f = *state;
    struct outcome out = {.keep_credit = true};
    uint8_t four[4];

    make_big(f, "big", 8 << 20);
    uint32_t request = open_read(f, "big");
    files_send(f, SVC_DATA, 0, request, "x", 1);
    assert_int_equal(files_finish(f, request, &out), EPROTO);
    request = open_read(f, "big");
    le_put_u32(four, SVC_WINDOW + 1); /* more than was ever sent */
    files_send(f, SVC_CREDIT, 1, request, four, 4);
    assert_int_equal(files_finish(f, request, &out), EPROTO);
    request = open_write(f, "w");
    files_send(f, SVC_DATA, 1, request, "x", 1);
    assert_int_equal(files_finish(f, request, &out), EPROTO);
    request = open_write(f, "w");
    files_send(f, SVC_EOF, 0, request, NULL, 0);
    files_send(f, SVC_DATA, 0, request, "x", 1); /* crosses */
    assert_int_equal(files_finish(f, request, &out), 0);
    outcome_done(&out);
}

/* An open in pieces of one byte; another call comes between. */
static void opens_in_pieces(void **state)
{
    struct files *f = *state;
    uint8_t message[256], frame[FRAME_HEADER + 1];
    struct svc_cursor out = {message, message + sizeof(message), false};
    struct outcome got = {0};

    svc_put_path(&out, &(struct svc_path){0, {f->dir, (uint32_t)strlen(f->dir)}, {".", 1}});
    for (uint8_t *at = message; at < out.at; at++) {
        frame_put_header(
            frame, &(struct frame){
                       .length = 1, .type = SVC_FILE_STAT, .flags = at + 1 < out.at ? FRAME_MORE : 0, .request = 77});
        frame[FRAME_HEADER] = *at;
        files_send_raw(f, frame, sizeof(frame));
        if (at == message + 5)
            assert_int_equal(files_mkdir(f, "between", 0), 0);
    }
    assert_int_equal(files_finish(f, 77, &got), 0);
    assert_int_equal(outcome_entry(&got).type, SVC_DIR);

    /* one that never ends, cancelled; and one that is too long for any path */
    frame_put_header(frame, &(struct frame){.length = 1, .type = SVC_FILE_STAT, .flags = FRAME_MORE, .request = 78});
    files_send_raw(f, frame, sizeof(frame));
    files_send(f, SVC_CANCEL, 0, 78, NULL, 0);
    assert_int_equal(files_finish(f, 78, &got), ECANCELED);
    static uint8_t large[FRAME_HEADER + FRAME_PAYLOAD_MAX];
    for (int i = 0; i < 10; i++) {
        frame_put_header(large, &(struct frame){.length = FRAME_PAYLOAD_MAX,
                                                .type = SVC_FILE_STAT,
                                                .flags = i < 9 ? FRAME_MORE : 0,
                                                .request = 79});
        files_send_raw(f, large, sizeof(large));
    }
    assert_int_equal(files_finish(f, 79, &got), EINVAL);
    outcome_done(&got);
}

static void more_calls_than_places(void **state)
{
    struct files *f = *state;
    struct outcome out = {0};
    uint32_t first = 0, last = 0;

    for (int i = 0; i < 300 && out.errnum == 0; i++) {
        last = open_write(f, "same");
        first = first ? first : last;
    }
    assert_int_equal(files_finish(f, last, &out), EAGAIN);
    files_send(f, SVC_CANCEL, 0, first, NULL, 0);
    assert_int_equal(files_finish(f, first, &out), ECANCELED);
    assert_int_equal(files_finish(f, open_read(f, "none"), &out), ENOENT);
    outcome_done(&out);
}

/* Nobody reads what it says: it neither grows nor blocks, and goes on where it stopped. */
static void a_reader_that_sleeps(void **state)
{
    struct files *f = *state;
    struct outcome out = {0};
    uint8_t rest[8] = {1};
    char name[16];

    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        make_big(f, name, 0);
    }
    uint32_t request = 0;
    for (int i = 0; i < 20; i++) /* some seven megabytes of entries */
        request = files_open(f, SVC_FILE_LIST, 0, ".", rest, sizeof(rest));
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); /* clock: a reader that lags behind */
    assert_int_equal(files_finish(f, request, &out), 0);
    assert_int_equal(out.events, 3000);
    outcome_done(&out);
}

static void what_ends_the_worker(void **state)
{
    static const struct frame bad[] = {
        {.type = 3, .request = 1},             /* not of the service */
        {.type = SVC_PROC_LIST, .request = 1}, /* a call of somebody else */
        {.type = SVC_HELLO, .request = 0},
        {.type = SVC_FILE_STAT, .request = 0},
        {.type = SVC_FILE_STAT, .request = 1, .length = FRAME_PAYLOAD_MAX + 1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad) + 1; i++) {
        struct files f;
        uint8_t header[FRAME_HEADER];

        files_spawn(&f, NULL, 0);
        uint32_t request = open_write(&f, "half");
        files_send(&f, SVC_DATA, 0, request, "x", 1);
        if (i < ARRAY_SIZE(bad)) {
            frame_put_header(header, &bad[i]);
            files_send_raw(&f, header, sizeof(header));
        } else {
            files_send(&f, SVC_FILE_STAT, 0, request, "", 0); /* a number that is taken */
        }
        assert_int_equal(files_status(&f), GUEST_EXIT_MALFORMED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_download_waits_for_credit, setup, teardown),
        cmocka_unit_test_setup_teardown(downloads_take_turns, setup, teardown),
        cmocka_unit_test_setup_teardown(uploads_interleave, setup, teardown),
        cmocka_unit_test_setup_teardown(credit_comes_back_in_batches, setup, teardown),
        cmocka_unit_test_setup_teardown(data_where_none_belongs, setup, teardown),
        cmocka_unit_test_setup_teardown(opens_in_pieces, setup, teardown),
        cmocka_unit_test_setup_teardown(more_calls_than_places, setup, teardown),
        cmocka_unit_test_setup_teardown(a_reader_that_sleeps, setup, teardown),
        cmocka_unit_test(what_ends_the_worker),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
