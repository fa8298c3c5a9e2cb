/* SPDX-License-Identifier: Apache-2.0 */
/* The pump: every byte once, stop and proceed, the end reported once, and what callbacks may do. */
#include "unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <termios.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "loop/pump.h"

struct sink {
    struct buf got;
    unsigned data_calls, end_calls;
    int error;
    bool stop, done; /* what on_data does to its pump */
};

static void on_data(struct pump *pump, const void *data, size_t len)
{
    struct sink *sink = pump->ctx;

    sink->data_calls++;
    assert_int_equal(buf_append(&sink->got, data, len), 0);
    if (sink->stop)
        pump_stop(pump);
    if (sink->done)
        pump_done(pump);
}

static void on_end(struct pump *pump, int error)
{
    struct sink *sink = pump->ctx;

    assert_int_equal(pump->fd, -1);
    assert_int_equal(pump->state, PUMP_ENDED);
    sink->end_calls++;
    sink->error = error;
}

static struct loop *loop;
static char chunk[4096];
static int fds[2];
static struct sink sink;
static struct pump pump;

static int set_up(void **state)
{
    (void)state;
    sink = (struct sink){.got = BUF_INIT(1u << 20)};
    if (loop_create(&loop, NULL) < 0 || pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return -1;
    pump_init(&pump, loop, fds[0], chunk, sizeof(chunk), on_data, on_end, &sink);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pump_done(&pump);
    loop_destroy(loop);
    buf_done(&sink.got);
    fd_close_all(fds, 2);
    return 0;
}

static void run(void)
{
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
}

static void pump_carries_every_byte(void **state)
{
    char data[10000];
    (void)state;

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (char)(i * 31);
    assert_int_equal(fd_write_all(fds[1], data, sizeof(data)), 0);
    run();
    assert_int_equal(sink.data_calls, 0); /* not before pump_proceed() */
    assert_int_equal(pump_proceed(&pump, NULL), 0);
    assert_int_equal(pump_proceed(&pump, NULL), 0);
    run();
    assert_int_equal(sink.data_calls, 1); /* one chunk per round while the writer is there */
    run();
    run();
    run();
    assert_int_equal(sink.data_calls, 3);
    assert_int_equal(pump.bytes, sizeof(data));
    assert_int_equal(sink.got.len, sizeof(data));
    assert_memory_equal(sink.got.data, data, sizeof(data));
    assert_int_equal(sink.end_calls, 0);
    base_close_fd(&fds[1]);
    run();
    assert_int_equal(sink.end_calls, 1);
    assert_int_equal(sink.error, 0);
    run();
    assert_int_equal(sink.end_calls, 1);
}

static void pump_reads_to_the_end_at_once_when_the_writer_is_gone(void **state)
{
    char data[50000] = {0};
    (void)state;

    assert_int_equal(fd_write_all(fds[1], data, sizeof(data)), 0);
    base_close_fd(&fds[1]);
    assert_int_equal(pump_proceed(&pump, NULL), 0);
    run();
    assert_int_equal(pump.bytes, sizeof(data));
    assert_int_equal(sink.end_calls, 1);
}

static void pump_stop_leaves_it_in_the_kernel(void **state)
{
    (void)state;
    assert_int_equal(pump_proceed(&pump, NULL), 0);
    pump_stop(&pump);
    pump_stop(&pump);
    assert_int_equal(fd_write_all(fds[1], "abc", 3), 0);
    base_close_fd(&fds[1]);
    run(); /* not even the end is seen, and nothing spins */
    assert_int_equal(sink.data_calls + sink.end_calls, 0);
    sink.stop = true;
    assert_int_equal(pump_proceed(&pump, NULL), 0);
    run();
    assert_int_equal(sink.data_calls, 1); /* stopped itself */
    assert_int_equal(sink.end_calls, 0);
    sink.stop = false;
    assert_int_equal(pump_proceed(&pump, NULL), 0);
    run();
    assert_int_equal(sink.end_calls, 1);
    assert_int_equal(pump_proceed(&pump, NULL), 0); /* after the end: nothing */
    pump_done(&pump);
}

static void pump_done_in_its_callback(void **state)
{
    char data[10000] = {0};
    (void)state;

    sink.done = true;
    assert_int_equal(fd_write_all(fds[1], data, sizeof(data)), 0);
    base_close_fd(&fds[1]);
    assert_int_equal(pump_proceed(&pump, NULL), 0);
    run();
    run();
    assert_int_equal(sink.data_calls, 1);
    assert_int_equal(sink.end_calls, 0); /* who ends it himself is not told */
}

static void pump_drain_takes_what_is_there(void **state)
{
    char data[10000] = {0};
    (void)state;

    /* The writer stays open, as a grandchild's copy would. */
    assert_int_equal(fd_write_all(fds[1], data, sizeof(data)), 0);
    pump_drain(&pump, 5000);
    assert_int_equal(pump.bytes, 8192); /* rounded up to a chunk */
    pump_drain(&pump, UINT64_MAX);
    assert_int_equal(pump.bytes, 10000);
    pump_drain(&pump, UINT64_MAX);
    assert_int_equal(sink.end_calls, 0);
    assert_int_equal(pump.state, PUMP_STOPPED);

    assert_int_equal(pump_proceed(&pump, NULL), 0);
    assert_int_equal(fd_write_all(fds[1], data, sizeof(data)), 0);
    sink.stop = true;
    pump_drain(&pump, UINT64_MAX);
    assert_int_equal(pump.bytes, 14096);
    sink.stop = false;
    base_close_fd(&fds[1]);
    pump_drain(&pump, UINT64_MAX);
    assert_int_equal(pump.bytes, 20000);
    assert_int_equal(sink.end_calls, 1);
    pump_drain(&pump, UINT64_MAX);
    assert_int_equal(sink.end_calls, 1);
}

static void pump_reads_regular_files(void **state)
{
    AUTO_FD int file = memfd_create("test", MFD_CLOEXEC);
    char data[10000] = {0};
    (void)state;

    assert_int_equal(fd_write_all(file, data, sizeof(data)), 0);
    lseek(file, 0, SEEK_SET);
    pump_init(&pump, loop, file, chunk, sizeof(chunk), on_data, on_end, &sink);
    assert_int_equal(pump_proceed(&pump, NULL), 0);
    assert_int_equal(loop_run_once(loop, -1, NULL), 0);
    assert_int_equal(sink.data_calls, 1); /* one chunk per round here as well */
    pump_stop(&pump);
    run();
    assert_int_equal(sink.data_calls, 1);
    assert_int_equal(pump_proceed(&pump, NULL), 0);
    while (sink.end_calls == 0)
        assert_int_equal(loop_run_once(loop, -1, NULL), 0);
    assert_int_equal(pump.bytes, sizeof(data));
    assert_int_equal(sink.error, 0);
}

static void pump_reports_errors(void **state)
{
    AUTO_FD int dir = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)state;

    pump_init(&pump, loop, dir, chunk, sizeof(chunk), on_data, on_end, &sink);
    assert_int_equal(pump_proceed(&pump, NULL), 0);
    run();
    assert_int_equal(sink.end_calls, 1);
    assert_int_equal(sink.error, -EISDIR);

    struct pump bad;
    pump_init(&bad, loop, -1, chunk, sizeof(chunk), on_data, on_end, &sink);
    assert_int_equal(pump_proceed(&bad, NULL), -EBADF);
    assert_int_equal(bad.state, PUMP_STOPPED);
}

static void pump_takes_a_closed_pty_for_the_end(void **state)
{
    char name[64];
    AUTO_FD int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    (void)state;

    if (master < 0)
        skip();
    assert_int_equal(fd_set_nonblock(master), 0);
    assert_int_equal(unlockpt(master), 0);
    assert_int_equal(ptsname_r(master, name, sizeof(name)), 0);
    int slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0)
        skip();
    assert_int_equal(fd_write_all(slave, "bye", 3), 0);
    close(slave);
    pump_init(&pump, loop, master, chunk, sizeof(chunk), on_data, on_end, &sink);
    assert_int_equal(pump_proceed(&pump, NULL), 0);
    while (sink.end_calls == 0)
        assert_int_equal(loop_run_once(loop, -1, NULL), 0);
    assert_string_equal(sink.got.data, "bye");
    assert_int_equal(sink.error, 0);
}

static void pump_proceed_without_memory(void **state)
{
    (void)state;
    mem_fail_after(0);
    int r = pump_proceed(&pump, NULL);
    mem_fail_after(MEM_FAIL_NEVER);
    assert_int_equal(r, -ENOMEM);
    assert_int_equal(pump.state, PUMP_STOPPED);
    assert_int_equal(pump_proceed(&pump, NULL), 0);
}

#define PUMP_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PUMP_TEST(pump_carries_every_byte),
        PUMP_TEST(pump_reads_to_the_end_at_once_when_the_writer_is_gone),
        PUMP_TEST(pump_stop_leaves_it_in_the_kernel),
        PUMP_TEST(pump_done_in_its_callback),
        PUMP_TEST(pump_drain_takes_what_is_there),
        PUMP_TEST(pump_reads_regular_files),
        PUMP_TEST(pump_reports_errors),
        PUMP_TEST(pump_takes_a_closed_pty_for_the_end),
        PUMP_TEST(pump_proceed_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
