/* SPDX-License-Identifier: Apache-2.0 */
/* Packets of the gate: sizes, checks, descriptors beside them, and texts in sealed memfds. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/mem.h"
#include "gate/gate_wire.h"
#include "unit.h"

static struct gate_head head_of(uint16_t type, uint64_t slot)
{
    return (struct gate_head){GATE_MAGIC, GATE_VERSION, type, slot};
}

static void test_every_type_has_a_size(void **state UNUSED)
{
    for (uint16_t type = 1; type < GATE_TYPE_MAX; type++) {
        size_t size = gate_wire_size(type);
        assert_true(size >= sizeof(struct gate_head) && size <= sizeof(union gate_any));
    }
    assert_int_equal(gate_wire_size(0), 0);
    assert_int_equal(gate_wire_size(GATE_TYPE_MAX), 0);
    assert_int_equal(gate_wire_size(UINT16_MAX), 0);
}

/* The layout is what tests of other languages and other builds speak. */
static void test_layout(void **state UNUSED)
{
    assert_int_equal(sizeof(struct gate_head), 16);
    assert_int_equal(sizeof(struct gate_prepare), 32);
    assert_int_equal(sizeof(struct gate_prepared), 432);
    assert_int_equal(sizeof(struct gate_listen), 336);
    assert_int_equal(sizeof(struct gate_counted), 368);
    assert_int_equal(sizeof(struct gate_event), 584);
}

static void test_heads(void **state UNUSED)
{
    union gate_any msg;

    memset(&msg, 0, sizeof msg);
    msg.head = head_of(GATE_COUNT, 7);
    assert_int_equal(gate_wire_check(&msg, sizeof msg.plain), 0);
    assert_int_equal(gate_wire_check(&msg, sizeof msg.plain - 1), -EPROTO);
    assert_int_equal(gate_wire_check(&msg, sizeof msg.plain + 1), -EPROTO);
    assert_int_equal(gate_wire_check(&msg, 0), -EPROTO);
    msg.head.slot = 0;
    assert_int_equal(gate_wire_check(&msg, sizeof msg.plain), -EPROTO);
    msg.head = head_of(GATE_SYNC, 0);
    assert_int_equal(gate_wire_check(&msg, sizeof msg.plain), 0);
    msg.head.magic++;
    assert_int_equal(gate_wire_check(&msg, sizeof msg.plain), -EPROTO);
    msg.head = head_of(GATE_SYNC, 0);
    msg.head.version++;
    assert_int_equal(gate_wire_check(&msg, sizeof msg.plain), -EPROTO);
    msg.head = head_of(GATE_TYPE_MAX, 0);
    assert_int_equal(gate_wire_check(&msg, sizeof msg.plain), -EPROTO);
}

static void test_contents(void **state UNUSED)
{
    union gate_any msg;

    memset(&msg, 0, sizeof msg);
    msg.head = head_of(GATE_PREPARE, 1);
    assert_int_equal(gate_wire_check(&msg, sizeof msg.prepare), -EPROTO); /* version 0 */
    msg.prepare.policy_version = 1;
    assert_int_equal(gate_wire_check(&msg, sizeof msg.prepare), 0);

    memset(&msg, 0, sizeof msg);
    msg.head = head_of(GATE_LISTEN, 1);
    assert_int_equal(gate_wire_check(&msg, sizeof msg.listen), -EPROTO); /* none */
    msg.listen.n = GATE_LISTENERS_MAX;
    for (size_t i = 0; i < GATE_LISTENERS_MAX; i++)
        msg.listen.listeners[i].family = AF_INET;
    assert_int_equal(gate_wire_check(&msg, sizeof msg.listen), 0);
    msg.listen.n++;
    assert_int_equal(gate_wire_check(&msg, sizeof msg.listen), -EPROTO);
    msg.listen.n = 1;
    msg.listen.listeners[0].kind = GATE_KIND_MAX;
    assert_int_equal(gate_wire_check(&msg, sizeof msg.listen), -EPROTO);
    msg.listen.listeners[0] = (struct gate_listener){80, GATE_TCP, AF_UNIX};
    assert_int_equal(gate_wire_check(&msg, sizeof msg.listen), -EPROTO);
    msg.listen.listeners[0].family = AF_INET6;
    memset(msg.listen.sandbox_id, 'x', sizeof msg.listen.sandbox_id);
    assert_int_equal(gate_wire_check(&msg, sizeof msg.listen), -EPROTO);

    memset(&msg, 0, sizeof msg);
    msg.head = head_of(GATE_PREPARED, 1);
    msg.prepared.n_ports = POLICY_PORTS_MAX;
    assert_int_equal(gate_wire_check(&msg, sizeof msg.prepared), 0);
    msg.prepared.n_ports++;
    assert_int_equal(gate_wire_check(&msg, sizeof msg.prepared), -EPROTO);

    memset(&msg, 0, sizeof msg);
    msg.head = head_of(GATE_EVENT, 1);
    assert_int_equal(gate_wire_check(&msg, sizeof msg.event), 0);
    memset(msg.event.why, 'x', sizeof msg.event.why);
    assert_int_equal(gate_wire_check(&msg, sizeof msg.event), -EPROTO);
    msg.event.why[sizeof msg.event.why - 1] = '\0';
    assert_int_equal(gate_wire_check(&msg, sizeof msg.event), 0);
    msg.event.verdict = GATE_VERDICT_MAX;
    assert_int_equal(gate_wire_check(&msg, sizeof msg.event), -EPROTO);
}

static void test_packets_and_descriptors(void **state UNUSED)
{
    size_t before = unit_count_fds(), n = GATE_LISTENERS_MAX;
    struct gate_listen out;
    union gate_any in;
    int pair[2], fds[GATE_LISTENERS_MAX], got[GATE_LISTENERS_MAX];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    memset(&out, 0, sizeof out);
    out.head = head_of(GATE_LISTEN, 9);
    out.n = GATE_LISTENERS_MAX;
    for (size_t i = 0; i < GATE_LISTENERS_MAX; i++) {
        out.listeners[i] = (struct gate_listener){(uint16_t)i, GATE_TCP, AF_INET};
        fds[i] = pair[0];
    }
    assert_int_equal(gate_receive(pair[1], &in, got, &n), -EAGAIN);
    assert_int_equal(gate_send(pair[0], &out, fds, GATE_LISTENERS_MAX), 0);
    assert_int_equal(gate_receive(pair[1], &in, got, &n), 0);
    assert_int_equal(n, GATE_LISTENERS_MAX);
    assert_memory_equal(&in, &out, sizeof out);
    for (size_t i = 0; i < n; i++)
        assert_true((fcntl(got[i], F_GETFD) & FD_CLOEXEC) != 0);
    fd_close_all(got, n);

    /* More than there is room for, or a packet that is none: nothing stays open. */
    n = 1;
    assert_int_equal(gate_send(pair[0], &out, fds, 3), 0);
    assert_int_equal(gate_receive(pair[1], &in, got, &n), -EPROTO);
    n = 4;
    assert_int_equal(fd_send(pair[0], "x", 1, fds, 2), 0);
    assert_int_equal(gate_receive(pair[1], &in, got, &n), -EPROTO);
    out.head.type = 0;
    assert_int_equal(gate_send(pair[0], &out, NULL, 0), -EINVAL);

    close(pair[0]);
    n = 1;
    assert_int_equal(gate_receive(pair[1], &in, got, &n), -EPIPE);
    out.head.type = GATE_LISTEN;
    assert_int_equal(gate_send(pair[1], &out, NULL, 0), -EPIPE);
    close(pair[1]);
    assert_int_equal(unit_count_fds(), before);
}

static void test_a_full_socket_does_not_block(void **state UNUSED)
{
    struct gate_plain msg = {.head = head_of(GATE_PING, 0)};
    int pair[2], r;

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    while ((r = gate_send(pair[0], &msg, NULL, 0)) == 0)
        ;
    assert_int_equal(r, -EAGAIN);
    close(pair[0]);
    close(pair[1]);
}

static void test_texts(void **state UNUSED)
{
    char *text = NULL;
    size_t len = 0;
    int fd = gate_memfd("text", "hello", 5);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "x", 1), -1);
    assert_int_equal(gate_memfd_read(fd, 5, &text, &len), 0);
    assert_int_equal(len, 5);
    assert_string_equal(text, "hello");
    mem_free(text);
    assert_int_equal(gate_memfd_read(fd, 4, &text, &len), -EMSGSIZE);
    mem_fail_after(0);
    assert_int_equal(gate_memfd_read(fd, 5, &text, &len), -ENOMEM);
    mem_fail_after(MEM_FAIL_NEVER);
    close(fd);

    fd = gate_memfd("empty", "", 0);
    assert_int_equal(gate_memfd_read(fd, 5, &text, &len), 0);
    assert_string_equal(text, "");
    mem_free(text);
    close(fd);
}

static void test_what_is_not_sealed_is_refused(void **state UNUSED)
{
    char *text = NULL;
    size_t len = 0;
    int fd = memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_int_equal(gate_memfd_read(fd, 5, &text, &len), -EINVAL);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    assert_int_equal(gate_memfd_read(fd, 5, &text, &len), -EINVAL);
    close(fd);
    fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    assert_int_equal(gate_memfd_read(fd, 5, &text, &len), -EINVAL);
    close(fd);
    assert_null(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_has_a_size),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_contents),
        cmocka_unit_test(test_packets_and_descriptors),
        cmocka_unit_test(test_a_full_socket_does_not_block),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_what_is_not_sealed_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
