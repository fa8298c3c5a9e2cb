/* SPDX-License-Identifier: Apache-2.0 */
/* The provider's questions about template layers, against a spawner that is played here. */
#include "unit.h"

#include <sys/socket.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "provider/provider.h"
#include "spawner/spawner_wire.h"

#define NAME "new-abcdefghijklmnopqrstuvwxyz"
#define TO "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

struct test {
    struct loop *loop;
    struct provider *provider;
    int spawner, ours;
};

static char heard[1024];

static void PRINTF_LIKE(1, 2) note(const char *format, ...)
{
    size_t len = strlen(heard);
    va_list args;

    va_start(args, format);
    vsnprintf(heard + len, sizeof heard - len, format, args);
    va_end(args);
}

static void on_layer(void *ctx, const struct brig_err *err)
{
    note("%s:%s ", (const char *)ctx, err ? err->message : "ok");
}

static void on_layers(void *ctx, const char *const *names, size_t n, const struct brig_err *err)
{
    note("%s:%s", (const char *)ctx, err ? err->message : "");
    for (size_t i = 0; i < n; i++)
        note("%s,", names[i]);
    note(" ");
}

static bool on_found(void *ctx UNUSED, struct box *box UNUSED, const struct box_up *up UNUSED,
                     struct box_events *ret UNUSED)
{
    return false;
}

static void on_recovered(void *ctx UNUSED)
{
}

static union wire_any next(struct test *t, enum wire_type type)
{
    union wire_any msg;
    int fds[WIRE_FDS];
    size_t n = 0;
    ssize_t len = fd_recv_nowait(t->spawner, &msg, sizeof msg, fds, WIRE_FDS, &n);

    assert_true(len > 0);
    assert_int_equal(wire_check(&msg, (size_t)len), 0);
    assert_int_equal(msg.head.type, type);
    fd_close_all(fds, n);
    return msg;
}

static void tell(struct test *t, const void *msg, const int *fd)
{
    assert_int_equal(fd_send(t->spawner, msg, wire_size(((const struct wire_head *)msg)->type), fd, fd ? 1 : 0), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(loop_run_once(t->loop, 0, NULL), 0);
}

static void assert_heard(const char *what)
{
    assert_string_equal(heard, what);
    heard[0] = '\0';
}

static int begin(void **state)
{
    static struct test t;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    t = (struct test){.ours = pair[0], .spawner = pair[1]};
    assert_int_equal(loop_create(&t.loop, NULL), 0);
    assert_int_equal(provider_local_create(t.loop, t.ours, &t.provider, NULL), 0);
    assert_int_equal(t.provider->ops->recover(t.provider, on_found, on_recovered, NULL, NULL), 0);
    const struct wire_ready msg = {
        .head = {WIRE_MAGIC, WIRE_VERSION, WIRE_LIST_END, 4}, .layers = 1, .list = next(&t, WIRE_LIST).head.run};
    tell(&t, &msg, NULL);
    heard[0] = '\0';
    *state = &t;
    return 0;
}

static int end(void **state)
{
    struct test *t = *state;

    t->provider->ops->destroy(t->provider);
    loop_destroy(t->loop);
    close(t->ours);
    base_close_fd(&t->spawner);
    return 0;
}

static void answer(struct test *t, uint64_t number, const char *why)
{
    struct wire_answer msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_LAYER_DONE, number}};

    if (why)
        (void)err_set(&msg.err, BRIG_E_CONFLICT, 0, "%s", why);
    tell(t, &msg, NULL);
}

/* Answers come in any order; one that nobody has asked for is dropped. */
static void asked_and_answered(void **state)
{
    struct test *t = *state;
    const struct provider_ops *ops = t->provider->ops;

    assert_true(ops->caps & PROVIDER_LAYERS);
    assert_int_equal(ops->layer(t->provider, LAYER_MAKE, NAME, NULL, on_layer, (void *)"make", NULL), 0);
    assert_int_equal(ops->layer(t->provider, LAYER_COMMIT, NAME, TO, on_layer, (void *)"commit", NULL), 0);
    union wire_any make = next(t, WIRE_LAYER), commit = next(t, WIRE_LAYER);
    assert_int_equal(make.layer.op, WIRE_LAYER_MAKE);
    assert_string_equal(make.layer.name, NAME);
    assert_string_equal(make.layer.to, "");
    assert_int_equal(commit.layer.op, WIRE_LAYER_COMMIT);
    assert_string_equal(commit.layer.to, TO);
    answer(t, commit.head.run + 1, NULL);
    answer(t, 7, NULL);
    assert_heard("");
    answer(t, commit.head.run, "in use");
    answer(t, make.head.run, NULL);
    answer(t, make.head.run, NULL);
    assert_heard("commit:in use make:ok ");
}

static void listed(void **state)
{
    struct test *t = *state;
    struct wire_layers_are msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_LAYERS_ARE, 0}};
    static const struct {
        const char *text;
        size_t len;
        uint32_t said;
        const char *heard;
    } cases[] = {{"a\0bc", 5, 5, "list:a,bc, "},
                 {"", 0, 0, "list: "},
                 {"ab", 2, 2, "list:the spawner's list of layers: Protocol error "},
                 {"ab", 3, 2, "list:the spawner's list of layers: Protocol error "}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(t->provider->ops->layers(t->provider, on_layers, (void *)"list", NULL), 0);
        msg.head.run = next(t, WIRE_LAYERS).head.run;
        msg.len = cases[i].said;
        AUTO_FD int fd = gate_memfd("layers", cases[i].text, cases[i].len);
        assert_true(fd >= 0);
        tell(t, &msg, &fd);
        assert_heard(cases[i].heard);
    }
    assert_int_equal(t->provider->ops->layers(t->provider, on_layers, (void *)"list", NULL), 0);
    msg.head.run = next(t, WIRE_LAYERS).head.run;
    (void)err_set(&msg.err, BRIG_E_UNSUPPORTED, 0, "none here");
    tell(t, &msg, NULL);
    assert_heard("list:none here ");
}

static void the_spawner_dies(void **state)
{
    struct test *t = *state;
    struct brig_err err;

    assert_int_equal(t->provider->ops->layer(t->provider, LAYER_REMOVE, TO, NULL, on_layer, (void *)"gone", NULL), 0);
    assert_int_equal(t->provider->ops->layers(t->provider, on_layers, (void *)"list", NULL), 0);
    base_close_fd(&t->spawner);
    for (int i = 0; i < 4; i++)
        assert_int_equal(loop_run_once(t->loop, 0, NULL), 0);
    assert_heard("list:the spawner died, and every sandbox with it gone:the spawner died, and every sandbox with it ");
    assert_true(t->provider->ops->layer(t->provider, LAYER_REMOVE, TO, NULL, on_layer, NULL, &err) < 0);
    assert_int_equal(err.code, BRIG_E_GONE);
}

static void names_that_do_not_fit(void **state)
{
    struct test *t = *state;
    struct brig_err err;
    char longer[WIRE_LAYER_NAME + 1];

    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_true(t->provider->ops->layer(t->provider, LAYER_REMOVE, longer, NULL, on_layer, NULL, &err) < 0);
    assert_int_equal(err.code, BRIG_E_USAGE);
    assert_true(t->provider->ops->layer(t->provider, LAYER_COMMIT, NAME, longer, on_layer, NULL, &err) < 0);
    assert_int_equal(err.code, BRIG_E_USAGE);
}

static void destroyed_with_questions(void **state)
{
    struct test *t = *state;

    assert_int_equal(t->provider->ops->layers(t->provider, on_layers, (void *)"list", NULL), 0);
    /* end() destroys it, and nobody is told */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(asked_and_answered, begin, end),
        cmocka_unit_test_setup_teardown(listed, begin, end),
        cmocka_unit_test_setup_teardown(the_spawner_dies, begin, end),
        cmocka_unit_test_setup_teardown(names_that_do_not_fit, begin, end),
        cmocka_unit_test_setup_teardown(destroyed_with_questions, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
