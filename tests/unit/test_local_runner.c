/* SPDX-License-Identifier: Apache-2.0 */
/* The provider of a runner against one that is played here: it may be silent for ever, or speak too late. */
#include "unit.h"

#include <sys/socket.h>

#include "base/err.h"
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

/* ---- one that dies ------------------------------------------------------------------------------------- */

struct rig {
    int pair[2];
    struct loop *loop;
    struct provider *provider;
    struct box *box;
    struct box_end end;
    unsigned n_ended, n_frozen, n_gates;
    struct brig_err gate_err;
};

static void on_ended(void *ctx, const struct box_end *end)
{
    struct rig *rig = ctx;

    rig->end = *end;
    rig->n_ended++;
}

static void on_up(void *ctx UNUSED, struct box_up *up UNUSED)
{
}

static void on_frozen(void *ctx, const struct brig_err *err)
{
    assert_non_null(err);
    ((struct rig *)ctx)->n_frozen++;
}

static void on_gate(void *ctx, struct box_listeners *listeners, const struct brig_err *err)
{
    struct rig *rig = ctx;

    assert_null(listeners);
    rig->gate_err = *err;
    rig->n_gates++;
}

static void say(struct rig *rig, const void *msg)
{
    const struct wire_head *head = msg;

    assert_int_equal(fd_send(rig->pair[1], msg, wire_size(head->type), NULL, 0), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(loop_run_once(rig->loop, 0, NULL), 0);
}

static void rig_start(struct rig *rig)
{
    const struct provider_spec spec = {0};
    const struct box_events events = {.up = on_up, .ended = on_ended, .ctx = rig};

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, rig->pair), 0);
    assert_int_equal(loop_create(&rig->loop, NULL), 0);
    assert_int_equal(provider_runner_create(rig->loop, rig->pair[0], "runc", &rig->provider, NULL), 0);
    assert_int_equal(rig->provider->ops->recover(rig->provider, on_found, on_recovered, NULL, NULL), 0);
    const struct wire_ready over = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_LIST_END, 0},
                                    .list = next(rig->pair[1], WIRE_LIST).head.run};
    say(rig, &over);
    assert_int_equal(rig->provider->ops->create(rig->provider, &spec, &events, &rig->box, NULL), 0);
}

static void rig_end(struct rig *rig)
{
    rig->provider->ops->destroy(rig->provider);
    loop_destroy(rig->loop);
    close(rig->pair[0]);
    close(rig->pair[1]);
}

/* A question about a network is asked again; any other fails. */
static void a_new_runner_is_asked_for_networks(void **state UNUSED)
{
    struct rig rig = {0};
    const struct provider_gate want = {.on = true, .n_ports = 1, .ports = {443}, .trust_fd = -1};

    rig_start(&rig);
    uint64_t number = next(rig.pair[1], WIRE_RUN).head.run;
    const struct wire_started started = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_STARTED, number}, .sandbox_id = "a"};
    say(&rig, &started);
    assert_int_equal(rig.provider->ops->freeze(rig.box, true, on_frozen, &rig, NULL), 0);
    assert_int_equal(rig.provider->ops->gate(rig.box, &want, on_gate, &rig, NULL), 0);
    (void)next(rig.pair[1], WIRE_FREEZE);
    (void)next(rig.pair[1], WIRE_GATE);
    say(&rig, &(struct wire_ready){.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_READY, 0}});
    assert_true(rig.n_frozen == 1 && rig.n_gates == 0);
    uint64_t list = next(rig.pair[1], WIRE_LIST).head.run;
    struct wire_started listed = started;
    listed.head.type = WIRE_LISTED;
    say(&rig, &listed);
    say(&rig, &(struct wire_ready){.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_LIST_END, number}, .list = list});
    union wire_any again = next(rig.pair[1], WIRE_GATE);
    assert_true(again.head.run == number && again.gate.want.n_ports == 1 && again.gate.want.ports[0] == 443);
    struct wire_gate_open open = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_GATE_OPEN, number}};
    (void)err_set(&open.err, BRIG_E_CONFLICT, 0, "taken");
    say(&rig, &open);
    assert_true(rig.n_gates == 1 && rig.gate_err.code == BRIG_E_CONFLICT);
    rig_end(&rig);
}

/* What no honest service asks for is told as such. */
static void a_refusal_that_is_distrust(void **state UNUSED)
{
    struct rig rig = {0};

    rig_start(&rig);
    struct wire_done done = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_DONE, next(rig.pair[1], WIRE_RUN).head.run},
                             .code = BRIG_E_REFUSED,
                             .distrust = 1,
                             .detail = "bind source /"};
    say(&rig, &done);
    assert_true(rig.n_ended == 1 && rig.end.distrust);
    assert_string_equal(rig.end.detail, "bind source /");
    rig_end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_silent_runner),
                                       cmocka_unit_test(a_new_runner_is_asked_for_networks),
                                       cmocka_unit_test(a_refusal_that_is_distrust)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
