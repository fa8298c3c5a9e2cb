/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provider `local` and networks, against a spawner that is played here: what RUN says of one, listeners that come
 * before the box is up and later, and that none of their descriptors is ever left behind.
 */
#include "unit.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "gate/gate_wire.h"
#include "provider/provider.h"
#include "spawner/spawner_wire.h"

static char heard[256], last_error[256];
static size_t last_n;
static struct box_listeners last;
static bool take_one;

struct test {
    struct loop *loop;
    struct provider *provider;
    int ours, spawner;
    size_t fds_before;
};

static void note(const char *what)
{
    size_t len = strlen(heard);

    snprintf(heard + len, sizeof heard - len, "%s", what);
}

static void note_listeners(struct box_listeners *listeners)
{
    last_n = listeners ? listeners->n : 0;
    if (listeners)
        last = *listeners;
    for (size_t i = 0; listeners && i < listeners->n; i++)
        assert_true(fcntl(listeners->fds[i], F_GETFD) >= 0);
    if (listeners && take_one)
        close(take_fd(&listeners->fds[0]));
}

static void on_up(void *ctx UNUSED, struct box_up *up)
{
    note("up ");
    note_listeners(up->listeners);
}

static void on_ended(void *ctx UNUSED, const struct box_end *end UNUSED)
{
    note("ended ");
}

static void on_gate(void *ctx UNUSED, struct box_listeners *listeners, const struct brig_err *err)
{
    note(err ? "ungate " : "gate ");
    snprintf(last_error, sizeof last_error, "%s", err ? err->message : "");
    assert_int_equal(listeners != NULL, err == NULL);
    note_listeners(listeners);
}

static bool on_found(void *ctx UNUSED, struct box *box UNUSED, const struct box_up *up UNUSED,
                     struct box_events *ret UNUSED)
{
    return false;
}

static void on_recovered(void *ctx UNUSED)
{
}

static struct wire_head head(enum wire_type type, uint64_t run)
{
    return (struct wire_head){WIRE_MAGIC, WIRE_VERSION, (uint16_t)type, run};
}

static void tell(struct test *t, const void *msg, const int *fds, size_t n)
{
    assert_int_equal(fd_send(t->spawner, msg, wire_size(((const struct wire_head *)msg)->type), fds, n), 0);
}

static union wire_any next(struct test *t, enum wire_type type, int *fds, size_t *n)
{
    union wire_any msg;
    ssize_t len = fd_recv_nowait(t->spawner, &msg, sizeof msg, fds, WIRE_FDS, n);

    assert_true(len > 0 && wire_check(&msg, (size_t)len) == 0);
    assert_int_equal(msg.head.type, type);
    return msg;
}

static void drain(struct test *t, enum wire_type type)
{
    int fds[WIRE_FDS];
    size_t n = 0;

    next(t, type, fds, &n);
    fd_close_all(fds, n);
}

static void assert_heard(struct test *t, const char *what)
{
    for (int i = 0; i < 4; i++)
        assert_int_equal(loop_run_once(t->loop, 0, NULL), 0);
    assert_string_equal(heard, what);
    heard[0] = '\0';
}

static void gate_open(struct test *t, uint64_t run, size_t n, size_t n_fds)
{
    struct wire_gate_open msg = {.head = head(WIRE_GATE_OPEN, run), .n = (uint32_t)n};
    int fds[GATE_LISTENERS_MAX];

    for (size_t i = 0; i < GATE_LISTENERS_MAX; i++) {
        msg.listeners[i] = (struct gate_listener){.port = (uint16_t)(1000 + i), .kind = GATE_TCP, .family = AF_INET6};
        fds[i] = t->spawner;
    }
    tell(t, &msg, fds, n_fds);
}

static void started(struct test *t, uint64_t run)
{
    struct wire_started msg = {.head = head(WIRE_STARTED, run), .sandbox_id = "box"};

    tell(t, &msg, &t->spawner, 1);
}

static void done(struct test *t, uint64_t run)
{
    const struct wire_done msg = {.head = head(WIRE_DONE, run), .cause = BRIG_CAUSE_CANCELLED};

    tell(t, &msg, NULL, 0);
}

static int begin(void **state)
{
    static struct test t;
    int pair[2];

    heard[0] = '\0';
    take_one = false;
    t = (struct test){.fds_before = unit_count_fds()};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    t.ours = pair[0];
    t.spawner = pair[1];
    assert_int_equal(loop_create(&t.loop, NULL), 0);
    assert_int_equal(provider_local_create(t.loop, t.ours, &t.provider, NULL), 0);
    assert_int_equal(t.provider->ops->recover(t.provider, on_found, on_recovered, NULL, NULL), 0);
    int fds[WIRE_FDS];
    size_t n = 0;
    const struct wire_ready end = {.head = head(WIRE_LIST_END, 0), .list = next(&t, WIRE_LIST, fds, &n).head.run};
    tell(&t, &end, NULL, 0);
    assert_heard(&t, "");
    *state = &t;
    return 0;
}

static int end(void **state)
{
    struct test *t = *state;

    t->provider->ops->destroy(t->provider);
    loop_destroy(t->loop);
    close(t->ours);
    close(t->spawner);
    assert_int_equal(unit_count_fds(), t->fds_before);
    return 0;
}

static struct box *create(struct test *t, const struct provider_gate *gate)
{
    const struct provider_spec spec = {.gate = *gate};
    const struct box_events events = {.up = on_up, .ended = on_ended, .ctx = NULL};
    struct box *box = NULL;

    assert_int_equal(t->provider->ops->create(t->provider, &spec, &events, &box, NULL), 0);
    return box;
}

static const struct provider_gate web = {.on = true, .n_ports = 2, .ports = {80, 443}};

static struct box *create_up(struct test *t, const struct provider_gate *gate)
{
    struct box *box = create(t, gate);

    drain(t, WIRE_RUN);
    if (gate->on)
        gate_open(t, 1, 3, 3);
    started(t, 1);
    assert_heard(t, "up ");
    return box;
}

/* ---- tests -------------------------------------------------------------------------------------------- */

static void without(void **state)
{
    struct test *t = *state;
    int fds[WIRE_FDS];
    size_t n = 0;

    create(t, &(struct provider_gate){0});
    union wire_any msg = next(t, WIRE_RUN, fds, &n);
    const struct netgate_want none = {0};
    assert_memory_equal(&msg.run.gate, &none, sizeof none);
    assert_int_equal(msg.run.trust, 0);
    assert_int_equal(n, 1);
    fd_close_all(fds, n);
    started(t, 1);
    assert_heard(t, "up ");
    assert_int_equal(last_n, 0);
}

static void with(void **state)
{
    struct test *t = *state;
    struct provider_gate gate = web;
    int fds[WIRE_FDS];
    size_t n = 0;
    struct stat is, got;

    assert_true(t->provider->ops->caps & PROVIDER_GATE);
    gate.trust = true;
    gate.trust_fd = memfd_create("ca", MFD_CLOEXEC);
    create(t, &gate);
    union wire_any msg = next(t, WIRE_RUN, fds, &n);
    assert_int_equal(n, 2); /* strings, then the bundle */
    assert_true(msg.run.gate.on == 1 && msg.run.gate.any_port == 0 && msg.run.gate.n_ports == 2 &&
                msg.run.gate.ports[1] == 443);
    assert_int_equal(msg.run.trust, 1);
    assert_true(fstat(gate.trust_fd, &is) == 0 && fstat(fds[1], &got) == 0 && is.st_ino == got.st_ino);
    fd_close_all(fds, n);
    close(gate.trust_fd); /* still ours */
    gate_open(t, 1, GATE_LISTENERS_MAX, GATE_LISTENERS_MAX);
    assert_heard(t, "");
    take_one = true;
    started(t, 1);
    assert_heard(t, "up ");
    assert_int_equal(last_n, GATE_LISTENERS_MAX);
    assert_int_equal(last.what[69].port, 1069);
}

/* Whatever the spawner says: a network that nobody can serve does not come up. */
static void not_up_without_listeners(void **state)
{
    struct test *t = *state;

    create(t, &web);
    drain(t, WIRE_RUN);
    gate_open(t, 1, 3, 2);
    started(t, 1);
    assert_heard(t, "");
    drain(t, WIRE_KILL);
    done(t, 1);
    assert_heard(t, "ended ");
}

static void ended_before_up(void **state)
{
    struct test *t = *state;

    create(t, &web);
    drain(t, WIRE_RUN);
    gate_open(t, 1, 3, 3);
    gate_open(t, 1, 4, 4); /* twice */
    done(t, 1);
    assert_heard(t, "ended ");
    gate_open(t, 1, 3, 3); /* nobody's */
    assert_heard(t, "");
}

static void asked_again(void **state)
{
    struct test *t = *state;
    struct box *box = create_up(t, &web);
    const struct provider_gate more = {.on = true, .n_ports = 3, .ports = {80, 443, 8080}};
    struct wire_gate_open failed = {.head = head(WIRE_GATE_OPEN, 1),
                                    .err = {.code = BRIG_E_CONFLICT, .message = "port 8080 is taken"}};
    int fds[WIRE_FDS];
    size_t n = 0;

    assert_int_equal(t->provider->ops->gate(box, &more, on_gate, NULL, NULL), 0);
    union wire_any msg = next(t, WIRE_GATE, fds, &n);
    assert_true(msg.gate.want.on == 1 && msg.gate.want.n_ports == 3 && msg.gate.want.ports[2] == 8080);
    gate_open(t, 1, 6, 6);
    assert_heard(t, "gate ");
    assert_int_equal(last_n, 6);
    assert_int_equal(t->provider->ops->gate(box, &more, on_gate, NULL, NULL), 0);
    tell(t, &failed, NULL, 0);
    assert_heard(t, "ungate ");
    assert_string_equal(last_error, "port 8080 is taken");
    assert_int_equal(t->provider->ops->gate(box, &more, on_gate, NULL, NULL), 0);
    gate_open(t, 1, 6, 0);
    assert_heard(t, "ungate ");
    gate_open(t, 1, 6, 6); /* nobody asked */
    assert_heard(t, "");
    assert_int_equal(t->provider->ops->gate(box, &more, on_gate, NULL, NULL), 0);
    done(t, 1);
    assert_heard(t, "ungate ended ");
}

static void bad_wants(void **state)
{
    struct test *t = *state;
    static const struct {
        struct provider_gate gate;
        const char *says;
    } cases[] = {
        {{.on = true, .n_ports = 1, .ports = {0}}, "port 0"},
        {{.on = true, .n_ports = 1, .ports = {53}}, "port 53"},
        {{.on = true, .n_ports = 2, .ports = {80, 80}}, "port 80 twice"},
        {{.on = true, .n_ports = POLICY_PORTS_MAX + 1}, "65 ports, at most 64"},
        {{.on = true, .trust = true, .trust_fd = -1}, "CA bundle"},
    };
    const struct box_events events = {.up = on_up, .ended = on_ended, .ctx = NULL};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct provider_spec spec = {.gate = cases[i].gate};
        struct box *box;
        struct brig_err err = {0};
        assert_true(t->provider->ops->create(t->provider, &spec, &events, &box, &err) < 0);
        assert_non_null(strstr(err.message, cases[i].says));
    }
    struct box *box = create_up(t, &web);
    struct brig_err err = {0};
    assert_true(t->provider->ops->gate(box, &cases[2].gate, on_gate, NULL, &err) < 0);
    assert_int_equal(err.code, BRIG_E_USAGE);
    assert_true(t->provider->ops->gate(box, &(struct provider_gate){0}, on_gate, NULL, &err) < 0);
    assert_heard(t, "");
}

/* Ports are not looked at. */
static void any_port(void **state)
{
    struct test *t = *state;
    int fds[WIRE_FDS];
    size_t n = 0;

    create(t, &(struct provider_gate){.on = true, .any_port = true, .n_ports = 99});
    union wire_any msg = next(t, WIRE_RUN, fds, &n);
    fd_close_all(fds, n);
    assert_true(msg.run.gate.on == 1 && msg.run.gate.any_port == 1 && msg.run.gate.n_ports == 0);
}

/* What the socket does not take waits with both of its descriptors. */
static void full_socket(void **state)
{
    struct test *t = *state;
    struct provider_gate gate = web;
    int fds[WIRE_FDS], sent = 400;
    size_t n = 0;

    gate.trust = true;
    gate.trust_fd = t->ours;
    for (int i = 0; i < sent; i++)
        create(t, &gate);
    for (int i = 0; i < sent; i++) {
        assert_int_equal(next(t, WIRE_RUN, fds, &n).head.run, i + 1);
        assert_int_equal(n, 2);
        fd_close_all(fds, n);
        assert_heard(t, "");
    }
    create(t, &gate);
}

static void out_of_memory(void **state UNUSED)
{
    for (size_t n = 0;; n++) {
        void *fresh;
        begin(&fresh);
        struct test *t = fresh;
        create(t, &web);
        drain(t, WIRE_RUN);
        mem_fail_after(n);
        gate_open(t, 1, 3, 3);
        started(t, 1);
        for (int i = 0; i < 4; i++)
            assert_int_equal(loop_run_once(t->loop, 0, NULL), 0);
        bool up = strcmp(heard, "up ") == 0;
        mem_fail_after(MEM_FAIL_NEVER);
        assert_true(up || heard[0] == '\0');
        end(&fresh);
        if (up)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without, begin, end),
        cmocka_unit_test_setup_teardown(with, begin, end),
        cmocka_unit_test_setup_teardown(not_up_without_listeners, begin, end),
        cmocka_unit_test_setup_teardown(ended_before_up, begin, end),
        cmocka_unit_test_setup_teardown(asked_again, begin, end),
        cmocka_unit_test_setup_teardown(bad_wants, begin, end),
        cmocka_unit_test_setup_teardown(any_port, begin, end),
        cmocka_unit_test_setup_teardown(full_socket, begin, end),
        cmocka_unit_test(out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
