/* SPDX-License-Identifier: Apache-2.0 */
/* Ports of a serving brig-init: the list, and bytes both ways. The servers are the test's own. */
#include "guest_rig.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "codec/wire/le.h"

static int listen_on(int family, bool loopback, uint16_t *ret_port)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY)};
    socklen_t len = family == AF_INET ? sizeof(v4) : sizeof(v6);
    struct sockaddr *addr = family == AF_INET ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;

    if (fd < 0)
        return -1;
    if (loopback)
        v6.sin6_addr = in6addr_loopback;
    if (family == AF_INET6)
        assert_int_equal(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)), 0);
    if (bind(fd, addr, len) != 0) {
        close(fd);
        return -1; /* no IPv6 here */
    }
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, addr, &len), 0);
    *ret_port = ntohs(family == AF_INET ? v4.sin_port : v6.sin6_port);
    return fd;
}

static void the_list_has_who_listens(void **state)
{
    struct rig rig;
    struct answer list = {0};
    uint16_t ports[3] = {0};
    int fds[3] = {listen_on(AF_INET, true, &ports[0]), listen_on(AF_INET, false, &ports[1]),
                  listen_on(AF_INET6, true, &ports[2])};
    unsigned seen[3] = {0};
    (void)state;

    rig_open(&rig, 0);
    rig_ask(&rig, &list, SVC_PORT_LIST, NULL, 0);
    assert_int_equal(list.errnum, 0);
    const uint8_t *at = (const uint8_t *)list.events.data;
    for (unsigned i = 0; i < list.n_events; i++, at += 4 + le_get_u32(at)) {
        struct svc_port port;

        assert_int_equal(svc_port_parse(at + 4, le_get_u32(at), &port), 0);
        for (unsigned k = 0; k < 3; k++)
            if (port.port == ports[k] && port.family == (k == 2 ? 6 : 4)) {
                seen[k]++;
                assert_int_equal(port.loopback, k != 1);
                assert_int_equal(port.uid, getuid());
            }
    }
    assert_int_equal(seen[0], 1);
    assert_int_equal(seen[1], 1);
    assert_int_equal(seen[2], fds[2] >= 0);
    for (unsigned i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    rig_forget(&list);
    rig_close(&rig);
}

static void connect_to(struct rig *rig, struct answer *answer, uint16_t port)
{
    uint8_t wire[2];

    le_put_u16(wire, port);
    rig_call(rig, answer, SVC_PORT_CONNECT, wire, 2);
}

static int accept_one(struct rig *rig, int server)
{
    struct pollfd ready = {.fd = server, .events = POLLIN};

    rig_wait_for(rig, poll(&ready, 1, 0) > 0);
    return accept4(server, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

static void bytes_go_both_ways(void **state)
{
    int families[] = {AF_INET, AF_INET6};
    struct rig rig;
    (void)state;

    rig_open(&rig, 0);
    for (unsigned f = 0; f < 2; f++) {
        struct answer call = {0};
        uint16_t port = 0;
        int server = listen_on(families[f], true, &port);
        char text[64];

        if (server < 0)
            continue;
        connect_to(&rig, &call, port);
        assert_int_equal(call_write(call.call, "early ", 6), 6); /* before there is a connection */
        int fd = accept_one(&rig, server);
        assert_true(fd >= 0);
        rig_wait_for(&rig, call.n_events == 1);
        answer_write(&call, "hello", 5);
        rig_run(&rig, 50);
        assert_int_equal(read(fd, text, sizeof(text)), 11);
        assert_memory_equal(text, "early hello", 11);
        assert_int_equal(write(fd, "back", 4), 4);
        rig_wait_for(&rig, call.out[1].len == 4);
        /* Each direction ends by itself. */
        assert_int_equal(call_eof(call.call), 0);
        rig_run(&rig, 50);
        assert_int_equal(read(fd, text, sizeof(text)), 0);
        assert_false(call.done);
        assert_int_equal(write(fd, "more", 4), 4);
        close(fd);
        rig_until(&rig, &call.done);
        assert_int_equal(call.errnum, 0);
        assert_true(call.eof[1]);
        assert_memory_equal(call.out[1].data, "backmore", 8);
        close(server);
        rig_forget(&call);
    }
    rig_close(&rig);
}

static int ask_path(struct rig *rig, struct answer *answer, const void *path, size_t len)
{
    uint8_t wire[256] = {0, 0};

    memcpy(wire + 2, path, len);
    rig_call(rig, answer, SVC_PORT_CONNECT, wire, 2 + len);
    rig_wait_for(rig, answer->done || answer->n_events == 1);
    return answer->done ? (int)answer->errnum : 0;
}

static void a_unix_socket_by_its_path(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct rig rig;
    struct answer call = {0};
    char dir[] = "/tmp/test_guest_ports.XXXXXX", longer[120], text[8];
    (void)state;

    assert_non_null(mkdtemp(dir));
    int len = snprintf(address.sun_path, sizeof address.sun_path, "%s/s", dir);
    rig_open(&rig, 0);
    assert_int_equal(ask_path(&rig, &call, address.sun_path, (size_t)len), ENOENT);
    rig_forget(&call);
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(ask_path(&rig, &call, address.sun_path, (size_t)len), ECONNREFUSED);
    rig_forget(&call);
    assert_int_equal(listen(server, 8), 0);
    assert_int_equal(ask_path(&rig, &call, address.sun_path, (size_t)len), 0);
    int fd = accept_one(&rig, server);
    answer_write(&call, "hello", 5);
    rig_run(&rig, 50);
    assert_int_equal(read(fd, text, sizeof(text)), 5);
    assert_int_equal(write(fd, "back", 4), 4);
    close(fd);
    rig_wait_for(&rig, call.eof[1]);
    assert_memory_equal(call.out[1].data, "back", 4);
    rig_forget(&call);
    memset(longer, '/', sizeof longer);
    const struct {
        const char *path;
        size_t len;
    } bad[] = {{"s", 1}, {"/a\0b", 4}, {longer, 108}, {"\0abstract", 9}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ask_path(&rig, &call, bad[i].path, bad[i].len), EINVAL);
        rig_forget(&call);
    }
    close(server);
    assert_int_equal(unlink(address.sun_path), 0);
    assert_int_equal(rmdir(dir), 0);
    rig_close(&rig);
}

static void nobody_there(void **state)
{
    struct rig rig;
    struct answer call = {0};
    uint16_t port = 0;
    int server = listen_on(AF_INET, true, &port);
    (void)state;

    close(server);
    rig_open(&rig, 0);
    connect_to(&rig, &call, port);
    rig_until(&rig, &call.done);
    assert_int_equal(call.errnum, ECONNREFUSED);
    assert_int_equal(call.n_events, 0);
    rig_forget(&call);
    connect_to(&rig, &call, 0);
    rig_until(&rig, &call.done);
    assert_int_equal(call.errnum, EINVAL);
    rig_forget(&call);
    rig_close(&rig);
}

static void neither_side_overruns_the_other(void **state)
{
    struct rig rig;
    struct answer call = {.hold = true};
    uint16_t port = 0;
    int server = listen_on(AF_INET, true, &port);
    static char block[65536];
    size_t sent = 0, total = 0;
    (void)state;

    rig_open(&rig, 0);
    connect_to(&rig, &call, port);
    int fd = accept_one(&rig, server);
    for (size_t i = 0; i < sizeof(block); i++)
        block[i] = (char)(i * 7);
    for (int idle = 0; idle < 30;) {
        ssize_t n = write(fd, block, sizeof(block));
        idle = n > 0 ? 0 : idle + 1;
        sent += n > 0 ? (size_t)n : 0;
        rig_run(&rig, 10);
    }
    assert_int_equal(call.out[1].len, SVC_WINDOW);
    assert_true(sent < 64u << 20); /* it was stopped */
    call.hold = false;
    call_consumed(call.call, 1, call.held[1]);
    rig_wait_for(&rig, call.out[1].len == sent);
    /* And the other way: nobody reads. */
    for (int idle = 0; idle < 30;) {
        ssize_t n = call_write(call.call, block, sizeof(block));
        assert_true(n >= 0);
        total += (size_t)n;
        idle = n > 0 ? 0 : idle + 1;
        rig_run(&rig, 5);
    }
    assert_true(total >= SVC_WINDOW && total < 64u << 20);
    size_t got = 0;
    for (int idle = 0; idle < 100 && got < total;) {
        ssize_t n = read(fd, block, sizeof(block));
        got += n > 0 ? (size_t)n : 0;
        idle = n > 0 ? 0 : idle + 1;
        rig_run(&rig, n > 0 ? 0 : 5);
    }
    assert_int_equal(got, total);
    close(fd);
    rig_run(&rig, 50);
    rig_forget(&call); /* cancelled with one direction open */
    rig_run(&rig, 50);
    assert_int_equal(rig.gones, 0);
    close(server);
    rig_close(&rig);
}

static void a_server_that_stops_reading_still_answers(void **state)
{
    struct rig rig;
    struct answer call = {0};
    uint16_t port = 0;
    int server = listen_on(AF_INET, true, &port);
    static char block[300000];
    (void)state;

    rig_open(&rig, 0);
    connect_to(&rig, &call, port);
    int fd = accept_one(&rig, server);
    rig_wait_for(&rig, call.n_events == 1);
    shutdown(fd, SHUT_RD);
    assert_int_equal(write(fd, "413", 3), 3);
    assert_true(call_write(call.call, block, sizeof(block)) > 0);
    rig_wait_for(&rig, call.out[1].len == 3);
    close(fd);
    rig_wait_for(&rig, call.eof[1]);
    if (!call.done) {
        (void)!call_eof(call.call);
        rig_until(&rig, &call.done);
    }
    assert_int_equal(call.errnum, 0);
    rig_forget(&call);
    close(server);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_has_who_listens),        cmocka_unit_test(bytes_go_both_ways),
        cmocka_unit_test(a_unix_socket_by_its_path),       cmocka_unit_test(nobody_there),
        cmocka_unit_test(neither_side_overruns_the_other), cmocka_unit_test(a_server_that_stops_reading_still_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
