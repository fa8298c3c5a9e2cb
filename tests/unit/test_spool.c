/* SPDX-License-Identifier: Apache-2.0 */
/* A spool writes what it is given, and stops before the file system is full. */
#include "unit.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/reserve.h"
#include "loop/loop.h"
#include "template/spool.h"

static struct statfs is; /* what every file system says of itself */

int fstatfs(int fd, struct statfs *fs)
{
    (void)fd;
    *fs = is;
    return 0;
}

struct told {
    unsigned n;
    size_t len;
    int error;
};

static void on_wrote(void *ctx, size_t len, int error)
{
    struct told *told = ctx;

    *told = (struct told){told->n + 1, len, error};
}

/* The error of writing a MiB, and how much of it is in the file. */
static int error_of(uint64_t blocks, uint64_t available, off_t *ret_size)
{
    static const char data[1u << 20];
    struct loop *loop = NULL;
    struct workers *workers = NULL;
    struct spool *spool = NULL;
    struct told told = {0};
    struct stat st;
    int fd = memfd_create("spool", MFD_CLOEXEC);

    is = (struct statfs){.f_bsize = 4096, .f_blocks = blocks, .f_bavail = available};
    assert_int_equal(loop_create(&loop, NULL), 0);
    assert_int_equal(workers_create(loop, 1, &workers, NULL), 0);
    assert_int_equal(spool_create(workers, "org", dup(fd), on_wrote, &told, &spool), 0);
    assert_int_equal(spool_write(spool, data, sizeof data), 0);
    while (told.n == 0)
        assert_int_equal(loop_run_once(loop, 20, NULL), 0);
    assert_int_equal(told.len, sizeof data);
    assert_int_equal(fstat(fd, &st), 0);
    spool_free(spool);
    workers_destroy(workers);
    loop_destroy(loop);
    close(fd);
    *ret_size = st.st_size;
    return told.error;
}

static void test_reserve(void **state)
{
    const uint64_t gib = (UINT64_C(1) << 30) / 4096, mib = 256;
    const struct {
        uint64_t blocks, available;
        int error;
    } cases[] = {
        {0, 0, 0},                              /* it does not say its size */
        {1000 * gib, 2 * gib, 0},               /* */
        {1000 * gib, gib + mib + 1, 0},         /* just */
        {1000 * gib, gib + mib, -ENOSPC},       /* one block too few */
        {1000 * gib, 0, -ENOSPC},               /* */
        {10 * gib, gib / 2 + mib + 1, 0},       /* a twentieth */
        {10 * gib, gib / 2 + mib / 2, -ENOSPC}, /* */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        off_t size;
        assert_int_equal(error_of(cases[i].blocks, cases[i].available, &size), cases[i].error);
        assert_int_equal(size, cases[i].error ? 0 : 1 << 20);
    }
}

/* A network file system transfers more at once than it counts in. */
static void test_unit_of_blocks(void **state)
{
    const uint64_t gib = (UINT64_C(1) << 30) / 4096;

    (void)state;
    is = (struct statfs){.f_bsize = 1 << 20, .f_frsize = 4096, .f_blocks = 1000 * gib, .f_bavail = gib - 1};
    assert_false(reserve_leaves(-1, 1));
    is.f_bavail = gib + 1;
    assert_true(reserve_leaves(-1, 1));
    is.f_bsize = is.f_frsize = 0;
    assert_true(reserve_leaves(-1, 1));
}

struct gate {
    struct job job;
    int fds[2];
};

static void wait_at_gate(struct job *job)
{
    char byte;

    if (read(((struct gate *)job)->fds[0], &byte, 1) != 1)
        abort();
}

static void through_gate(struct job *job)
{
    (void)job;
}

static char order[8];

static void note(void *ctx, size_t len, int error)
{
    size_t n = strlen(order);

    assert_int_equal(len, 1);
    assert_int_equal(error, 0);
    assert_true(n + 1 < sizeof order);
    order[n] = *(const char *)ctx;
}

/* Three files of one organisation wait for the thread when one of another comes: that is the second. */
static void test_turns(void **state)
{
    static const char *const orgs[] = {"a", "a", "a", "b"};
    struct loop *loop = NULL;
    struct workers *workers = NULL;
    struct spool *spools[ARRAY_SIZE(orgs)];
    struct gate gate = {.job = {.work = wait_at_gate, .done = through_gate}};

    (void)state;
    is = (struct statfs){.f_bsize = 4096};
    assert_int_equal(pipe(gate.fds), 0);
    assert_int_equal(loop_create(&loop, NULL), 0);
    assert_int_equal(workers_create(loop, 1, &workers, NULL), 0);
    workers_add(workers, &gate.job);
    for (size_t i = 0; i < ARRAY_SIZE(orgs); i++) {
        assert_int_equal(
            spool_create(workers, orgs[i], memfd_create("spool", MFD_CLOEXEC), note, (void *)orgs[i], &spools[i]), 0);
        assert_int_equal(spool_write(spools[i], "x", 1), 0);
    }
    assert_int_equal(write(gate.fds[1], "x", 1), 1);
    while (strlen(order) < ARRAY_SIZE(orgs))
        assert_int_equal(loop_run_once(loop, 20, NULL), 0);
    assert_string_equal(order, "abaa");
    for (size_t i = 0; i < ARRAY_SIZE(orgs); i++)
        spool_free(spools[i]);
    workers_destroy(workers);
    loop_destroy(loop);
    close(gate.fds[0]);
    close(gate.fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reserve), cmocka_unit_test(test_unit_of_blocks),
                                       cmocka_unit_test(test_turns)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
