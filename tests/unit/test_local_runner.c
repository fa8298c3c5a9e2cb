/* SPDX-License-Identifier: Apache-2.0 */
/* The provider of a runner against one that is played here: it may be silent for ever, or speak too late. */
#include "unit.h"

#include <sys/socket.h>

#include "base/fd.h"
#include "provider/provider.h"
#include "spawner/spawner_wire.h"

static unsigned n_found, n_recovered;

static bool on_found(void *ctx UNUSED, struct box *box UNUSED, const struct box_up *up UNUSED, struct box_events *ret)
{
    *ret = (struct box_events){0};
    n_found++;
    return true;
}

static void on_recovered(void *ctx UNUSED)
{
    n_recovered++;
}

static union wire_any next(int runner, enum wire_type type)
{
    union wire_any msg;
    int fds[WIRE_FDS];
    size_t n = 0;
    ssize_t len = fd_recv_nowait(runner, &msg, sizeof msg, fds, WIRE_FDS, &n);

    assert_true(len > 0);
    assert_int_equal(msg.head.type, type);
    fd_close_all(fds, n);
    return msg;
}

/* The service goes on without it. Its box, which nobody knows any more, is ended when it speaks at last. */
static void a_silent_runner(void **state UNUSED)
{
    int pair[2];
    struct loop *loop = NULL;
    struct provider *provider = NULL;
    struct box *box = NULL;
    const struct provider_spec spec = {0};
    const struct box_events events = {0};
    struct brig_err err;

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(loop_create(&loop, NULL), 0);
    assert_int_equal(provider_runner_create(loop, pair[0], "runc", &provider, NULL), 0);
    provider->list_ns = 1;
    assert_int_equal(provider->ops->recover(provider, on_found, on_recovered, NULL, NULL), 0);
    uint64_t list = next(pair[1], WIRE_LIST).head.run;
    while (n_recovered == 0)
        assert_int_equal(loop_run_once(loop, -1, NULL), 0);
    assert_true(provider->ops->create(provider, &spec, &events, &box, &err) < 0);
    assert_int_equal(err.code, BRIG_E_BUSY);
    assert_non_null(strstr(err.message, "the runner has not answered yet"));

    const struct wire_started listed = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_LISTED, 7}, .sandbox_id = "seven"};
    const struct wire_ready over = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_LIST_END, 7}, .list = list};
    assert_int_equal(fd_send(pair[1], &listed, sizeof listed, NULL, 0), 0);
    assert_int_equal(fd_send(pair[1], &over, sizeof over, NULL, 0), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_int_equal(next(pair[1], WIRE_KILL).head.run, 7);
    assert_true(n_recovered == 1 && n_found == 0);
    provider->ops->destroy(provider);
    loop_destroy(loop);
    close(pair[0]);
    close(pair[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_silent_runner)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
