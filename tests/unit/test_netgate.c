/* SPDX-License-Identifier: Apache-2.0 */
/* test_netgate.c: a gate namespace, on the real kernel: every address of a guest behind it is here. */
#include "host/netgate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "host/netns.h"
#include "unit.h"

#define ORIGINAL_DST 80 /* SO_ORIGINAL_DST, IP6T_SO_ORIGINAL_DST */
#define PATIENCE_MS 30000

struct rig {
    int proc_fd, gate_ns, guest_ns;
    struct netgate_place place;
    struct netgate *gate;
};

static int new_ns(void)
{
    static struct netns_maker maker;

    netns_start(&maker);
    return netns_take(&maker);
}

static void rig_open(struct rig *rig, const struct netgate_want *want)
{
    struct brig_err err = {.code = BRIG_E_NONE};
    struct stat st;

    if (geteuid() != 0)
        skip();
    *rig = (struct rig){
        .proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC), .gate_ns = new_ns(), .guest_ns = new_ns()};
    assert_true(rig->proc_fd >= 0 && rig->gate_ns >= 0 && rig->guest_ns >= 0);
    assert_int_equal(stat("/proc/self/ns/net", &st), 0);
    rig->place = (struct netgate_place){
        .ns_fd = rig->gate_ns, .behind = true, .proc_fd = rig->proc_fd, .host_ns = (uint32_t)st.st_ino};
    if (netgate_link(&rig->place, rig->guest_ns, &err) < 0 || netgate_open(&rig->gate, &rig->place, want, 3, &err) < 0)
        fail_msg("%s: %s", err.message, strerror(err.errnum));
}

static void rig_close(struct rig *rig)
{
    netgate_free(rig->gate);
    close(rig->gate_ns);
    close(rig->guest_ns);
    close(rig->proc_fd);
}

static socklen_t address(const char *text, uint16_t port, struct sockaddr_storage *ret)
{
    struct sockaddr_in *in = (struct sockaddr_in *)ret;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;

    *ret = (struct sockaddr_storage){0};
    if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        return sizeof *in;
    }
    assert_int_equal(inet_pton(AF_INET6, text, &in6->sin6_addr), 1);
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    return sizeof *in6;
}

/* A process in the guest's namespace: it sends its word, and ends with 0 if it hears one, else with the errno. */
static pid_t guest(const struct rig *rig, int type, const char *to, uint16_t port)
{
    struct sockaddr_storage at;
    socklen_t len = address(to, port, &at);
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    char word[4] = {0};
    int fd = setns(rig->guest_ns, CLONE_NEWNET) == 0 ? socket(at.ss_family, type, 0) : -1;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (fd < 0 || connect(fd, (const struct sockaddr *)&at, len) < 0 || send(fd, "ask", 3, 0) != 3 ||
        poll(&wait, 1, PATIENCE_MS) != 1 || recv(fd, word, sizeof word, 0) != 3)
        _exit(errno ? errno : 255);
    _exit(memcmp(word, "say", 3) == 0 ? 0 : 254);
}

static int ended(pid_t pid)
{
    int status = 0;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int listener(const struct netgate *gate, enum gate_kind kind, unsigned port, int family)
{
    for (unsigned i = 0; i < gate->n; i++)
        if (gate->what[i].kind == kind && (port == 0 || gate->what[i].port == port) &&
            (family == 0 || gate->what[i].family == family))
            return gate->fds[i];
    fail_msg("no listener");
    return -1;
}

static int accept_one(int fd, struct sockaddr_storage *ret_from)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    socklen_t len = sizeof *ret_from;

    assert_int_equal(poll(&wait, 1, PATIENCE_MS), 1);
    int got = accept4(fd, (struct sockaddr *)ret_from, &len, SOCK_CLOEXEC);
    assert_true(got >= 0);
    return got;
}

static void text_of(const struct sockaddr_storage *at, char *text, size_t size)
{
    const struct in6_addr *in6 = &((const struct sockaddr_in6 *)at)->sin6_addr;

    if (at->ss_family == AF_INET)
        assert_non_null(inet_ntop(AF_INET, &((const struct sockaddr_in *)at)->sin_addr, text, (socklen_t)size));
    else if (IN6_IS_ADDR_V4MAPPED(in6))
        assert_non_null(inet_ntop(AF_INET, (const uint8_t *)in6 + 12, text, (socklen_t)size));
    else
        assert_non_null(inet_ntop(AF_INET6, in6, text, (socklen_t)size));
}

static void expect_from_guest(const struct sockaddr_storage *from, bool v6)
{
    char text[INET6_ADDRSTRLEN];

    text_of(from, text, sizeof text);
    assert_string_equal(text, v6 ? "2001:2:0:ffff::2" : GATE_GUEST_V4);
}

static void answer(int fd)
{
    char word[4];

    assert_int_equal(recv(fd, word, sizeof word, 0), 3);
    assert_int_equal(send(fd, "say", 3, 0), 3);
    close(fd);
}

/* The wanted address is the connection's own. */
static void test_every_address_is_the_gate(void **state UNUSED)
{
    static const char *const wanted[] = {"93.184.216.34", "10.0.0.1",         "198.19.0.7",  "198.18.0.1",
                                         "127.0.0.2",     "2606:2800:220::1", "fd00::1:2:3", "2001:2::7"};
    const struct netgate_want want = {.on = 1, .n_ports = 2, .ports = {443, 8080}};
    struct rig rig;

    rig_open(&rig, &want);
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        struct sockaddr_storage own, from;
        socklen_t len = sizeof own;
        char text[INET6_ADDRSTRLEN];

        if (strcmp(wanted[i], "127.0.0.2") == 0) { /* the guest's own loopback never leaves it */
            assert_int_equal(ended(guest(&rig, SOCK_STREAM, wanted[i], 443)), ECONNREFUSED);
            continue;
        }
        pid_t pid = guest(&rig, SOCK_STREAM, wanted[i], 443);
        int fd = accept_one(listener(rig.gate, GATE_TCP, 443, 0), &from);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &len), 0);
        text_of(&own, text, sizeof text);
        assert_string_equal(text, wanted[i]);
        expect_from_guest(&from, strchr(wanted[i], ':') != NULL);
        answer(fd);
        assert_int_equal(ended(pid), 0);
    }
    assert_int_equal(ended(guest(&rig, SOCK_STREAM, "93.184.216.34", 80)), ECONNREFUSED);
    assert_int_equal(ended(guest(&rig, SOCK_STREAM, "2606:2800:220::1", 80)), ECONNREFUSED);
    assert_int_equal(ended(guest(&rig, SOCK_DGRAM, "93.184.216.34", 123)), ECONNREFUSED);
    rig_close(&rig);
}

static void test_a_port_is_added(void **state UNUSED)
{
    struct netgate_want want = {.on = 1, .n_ports = 1, .ports = {443}};
    struct brig_err err;
    struct sockaddr_storage from;
    struct rig rig;

    rig_open(&rig, &want);
    assert_int_equal(ended(guest(&rig, SOCK_STREAM, "192.0.2.1", 8443)), ECONNREFUSED);
    want = (struct netgate_want){.on = 1, .n_ports = 2, .ports = {443, 8443}};
    assert_int_equal(netgate_open(&rig.gate, &rig.place, &want, 3, &err), 0);
    pid_t pid = guest(&rig, SOCK_STREAM, "192.0.2.1", 8443);
    answer(accept_one(listener(rig.gate, GATE_TCP, 8443, 0), &from));
    assert_int_equal(ended(pid), 0);
    rig_close(&rig);
}

static void test_dns_is_answered_from_the_address_that_was_asked(void **state UNUSED)
{
    static const char *const wanted[] = {"198.18.0.1", "8.8.8.8", "2001:4860:4860::8888"};
    const struct netgate_want want = {.on = 1};
    struct rig rig;

    rig_open(&rig, &want);
    int fd = listener(rig.gate, GATE_DNS_UDP, 53, 0);
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        struct sockaddr_storage from;
        char word[4];
        _Alignas(struct cmsghdr) char control[256];
        struct iovec iov = {word, sizeof word};
        struct msghdr msg = {.msg_name = &from,
                             .msg_namelen = sizeof from,
                             .msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
        pid_t pid = guest(&rig, SOCK_DGRAM, wanted[i], 53);

        assert_int_equal(poll(&wait, 1, PATIENCE_MS), 1);
        assert_int_equal(recvmsg(fd, &msg, 0), 3);
        iov = (struct iovec){(char *)"say", 3};
        assert_int_equal(sendmsg(fd, &msg, 0), 3); /* the address it was sent to is still beside it */
        assert_int_equal(ended(pid), 0);
    }
    rig_close(&rig);
}

static void test_any_port(void **state UNUSED)
{
    static const struct {
        const char *to;
        uint16_t port;
    } wanted[] = {{"93.184.216.34", 22}, {"10.1.2.3", 65001}, {"2606:2800:220::1", 5432}};
    const struct netgate_want want = {.on = 1, .any_port = 1};
    struct rig rig;

    rig_open(&rig, &want);
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        bool v6 = strchr(wanted[i].to, ':') != NULL;
        struct sockaddr_storage original, from;
        socklen_t len = sizeof original;
        char text[INET6_ADDRSTRLEN];
        pid_t pid = guest(&rig, SOCK_STREAM, wanted[i].to, wanted[i].port);

        int fd = accept_one(listener(rig.gate, GATE_REDIRECT, 0, v6 ? AF_INET6 : AF_INET), &from);
        assert_int_equal(getsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, ORIGINAL_DST, &original, &len), 0);
        text_of(&original, text, sizeof text);
        assert_string_equal(text, wanted[i].to);
        assert_int_equal(ntohs(((struct sockaddr_in *)&original)->sin_port), wanted[i].port);
        answer(fd);
        assert_int_equal(ended(pid), 0);
    }
    rig_close(&rig);
}

static void test_the_hosts_namespace_is_refused(void **state UNUSED)
{
    struct stat st;
    struct brig_err err;
    AUTO_FD int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD int host = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    AUTO_FD int guest_ns = new_ns();

    if (geteuid() != 0)
        skip();
    assert_int_equal(fstat(host, &st), 0);
    struct netgate_place place = {.ns_fd = host, .behind = true, .proc_fd = proc, .host_ns = (uint32_t)st.st_ino};
    assert_true(netgate_link(&place, guest_ns, &err) < 0);
    assert_int_equal(err.code, BRIG_E_REFUSED);
    AUTO_FD int gate_ns = new_ns();
    place.ns_fd = gate_ns;
    assert_true(netgate_link(&place, host, &err) < 0);
    assert_int_equal(err.code, BRIG_E_REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_address_is_the_gate),
        cmocka_unit_test(test_a_port_is_added),
        cmocka_unit_test(test_dns_is_answered_from_the_address_that_was_asked),
        cmocka_unit_test(test_any_port),
        cmocka_unit_test(test_the_hosts_namespace_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
