/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate_host.c: an engine and a gate of a few lines, for tests of what the spawner makes: one run with a network over a
 * spawner's socket, and a gate that tells every connection where it landed and answers every datagram.
 *
 *     gate_host FD|spawn [name=value...] -- ARGV...     spawn: a spawner of its own, with the switches of test builds
 *
 *     ports=80,443  any=1  off=1 (no network)  trust=FILE  rootfs=DIR  pool=N  loops=N (timing)  service=1
 *     more=PORTS or more=any (asked for once it has started, before the gate serves)
 *     raw=WORD (a broken message, see broken())
 *
 * The program's output is ours; what happens is written to stderr. A connection gets the line "KIND ADDRESS PORT
 * FAMILY" and is closed.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include "base/fd.h"
#include "engine/engine.h"
#include "gate/address.h"
#include "spawner/spawner_wire.h"

#define SO_ORIGINAL_DST 80
#define MAX_WORDS 16

struct gate {
    unsigned n;
    struct gate_listener what[GATE_LISTENERS_MAX];
    int fds[GATE_LISTENERS_MAX];
};

static int sock;
static struct gate gate;
static const char *words[MAX_WORDS][2];
static unsigned n_words;
static char **program;
static bool started_at, without;

static const char *word(const char *name)
{
    for (unsigned i = 0; i < n_words; i++)
        if (strcmp(words[i][0], name) == 0)
            return words[i][1];
    return NULL;
}

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void want(struct netgate_want *ret, const char *ports)
{
    char copy[512], *save = NULL;

    *ret = (struct netgate_want){.on = 1};
    if (strcmp(ports, "any") == 0) {
        ret->any_port = 1;
        return;
    }
    snprintf(copy, sizeof copy, "%s", ports);
    for (char *at = strtok_r(copy, ",", &save); at; at = strtok_r(NULL, ",", &save))
        ret->ports[ret->n_ports++] = (uint16_t)strtoul(at, NULL, 10);
}

static int sealed(const void *data, size_t len)
{
    int fd = memfd_create("strings", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || fd_write_all(fd, data, len) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        abort();
    return fd;
}

static int sealed_file(const char *path)
{
    static char text[8 << 20];
    ssize_t n = fd_read_file(AT_FDCWD, path, text, sizeof text);

    if (n < 0)
        abort();
    return word("raw") && strcmp(word("raw"), "unsealed") == 0 ? open(path, O_RDONLY | O_CLOEXEC)
                                                               : sealed(text, (size_t)n);
}

/* Values that no engine sends. */
static void broken(struct wire_run *msg)
{
    const char *how = word("raw");

    if (!how)
        return;
    if (strcmp(how, "many") == 0)
        msg->gate.n_ports = POLICY_PORTS_MAX + 1;
    if (strcmp(how, "off") == 0)
        msg->gate.on = 0;
    if (strcmp(how, "two") == 0)
        msg->gate.on = 2;
}

static void send_run(uint64_t number)
{
    static char strings[65536];
    size_t len = 0;
    struct wire_run msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_RUN, number}, .rows = 24, .cols = 80};
    const char *fixed[] = {"/workspace", "", word("rootfs") ? word("rootfs") : ""};
    const char *env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/home/user"};
    int fds[5], n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
        len += (size_t)snprintf(strings + len, sizeof strings - len, "%s", fixed[i]) + 1;
    for (; !word("service") && program[msg.n_argv]; msg.n_argv++)
        len += (size_t)snprintf(strings + len, sizeof strings - len, "%s", program[msg.n_argv]) + 1;
    for (; !word("service") && msg.n_env < ARRAY_SIZE(env); msg.n_env++)
        len += (size_t)snprintf(strings + len, sizeof strings - len, "%s", env[msg.n_env]) + 1;
    msg.strings_len = (uint32_t)len;
    msg.flags = word("service") ? WIRE_RUN_SERVICE : 0;
    if (!word("off") && !without)
        want(&msg.gate, word("any") ? "any" : word("ports") ? word("ports") : "");
    broken(&msg);
    fds[n++] = sealed(strings, len);
    if (!word("service")) {
        fds[n++] = fcntl(1, F_DUPFD_CLOEXEC, 3);
        fds[n++] = fcntl(1, F_DUPFD_CLOEXEC, 3);
    }
    if (word("trust") && !without) {
        msg.trust = 1;
        fds[n++] = sealed_file(word("trust"));
    }
    if (fd_send(sock, &msg, sizeof msg, fds, (size_t)n) < 0)
        abort();
    fd_close_all(fds, (size_t)n);
}

/* ---- the gate ----------------------------------------------------------------------------------------- */

static const char *const kinds[] = {"tcp", "dns-udp", "dns-tcp", "proxy", "redirect"};

static void text_of(const struct sockaddr_storage *from, char *out, size_t size)
{
    char ip[INET6_ADDRSTRLEN];

    if (from->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;
        snprintf(out, size, "%s %u", inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof ip), ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)from;
        snprintf(out, size, "%s %u", inet_ntop(AF_INET, &in->sin_addr, ip, sizeof ip), ntohs(in->sin_port));
    }
}

static void serve_tcp(const struct gate_listener *what, int fd)
{
    AUTO_FD int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    struct sockaddr_storage to = {0};
    socklen_t len = sizeof to;
    char where[128], line[192];

    if (conn < 0)
        return;
    int r = what->kind != GATE_REDIRECT
                ? getsockname(conn, (struct sockaddr *)&to, &len)
                : getsockopt(conn, what->family == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP, SO_ORIGINAL_DST, &to, &len);
    if (r < 0)
        snprintf(where, sizeof where, "errno %d", errno);
    else
        text_of(&to, where, sizeof where);
    int n = snprintf(line, sizeof line, "%s %s %s\n", kinds[what->kind], where, what->family == AF_INET6 ? "6" : "4");
    fputs(line, stderr);
    (void)!write(conn, line, (size_t)n);
}

/* Sends back what was asked, and where, from the address that was asked. */
static void serve_udp(const struct gate_listener *what, int fd)
{
    char data[512], control[256], ip[INET6_ADDRSTRLEN] = "?", line[768];
    struct sockaddr_storage from;
    struct iovec iov = {data, sizeof data};
    struct msghdr msg = {.msg_name = &from,
                         .msg_namelen = sizeof from,
                         .msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = sizeof control};
    ssize_t n = recvmsg(fd, &msg, 0);

    if (n < 0)
        return;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo *info = (struct in_pktinfo *)CMSG_DATA(c);
            info->ipi_spec_dst = info->ipi_addr;
            info->ipi_ifindex = 0;
            inet_ntop(AF_INET, &info->ipi_addr, ip, sizeof ip);
        } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo *info = (struct in6_pktinfo *)CMSG_DATA(c);
            info->ipi6_ifindex = 0;
            inet_ntop(AF_INET6, &info->ipi6_addr, ip, sizeof ip);
        }
    }
    iov = (struct iovec){
        line, (size_t)snprintf(line, sizeof line, "%s %s %u %.*s", kinds[what->kind], ip, what->port, (int)n, data)};
    fprintf(stderr, "%s\n", line);
    if (sendmsg(fd, &msg, 0) < 0)
        fprintf(stderr, "sendmsg errno %d\n", errno);
}

/* ---- messages ----------------------------------------------------------------------------------------- */

static void on_open(const struct wire_gate_open *msg, int *fds, size_t n_fds)
{
    if (msg->err.code != BRIG_E_NONE) {
        fprintf(stderr, "open error %u %s\n", msg->err.code, msg->err.message);
        return;
    }
    fd_close_all(gate.fds, gate.n);
    gate.n = msg->n;
    if (msg->n != n_fds)
        abort();
    fprintf(stderr, "open");
    for (unsigned i = 0; i < msg->n; i++) {
        int shared = 0, port = 0;
        socklen_t len = sizeof shared;
        gate.what[i] = msg->listeners[i];
        gate.fds[i] = take_fd(&fds[i]);
        getsockopt(gate.fds[i], SOL_SOCKET, SO_REUSEADDR, &shared, &len);
        getsockopt(gate.fds[i], SOL_SOCKET, SO_REUSEPORT, &port, &len);
        if (shared || port || !(fcntl(gate.fds[i], F_GETFL) & O_NONBLOCK))
            fprintf(stderr, " BAD");
        fprintf(stderr, " %s:%u:%s", kinds[gate.what[i].kind], gate.what[i].port,
                gate.what[i].family == AF_INET6 ? "6" : "4");
    }
    fprintf(stderr, "\n");
}

static void ask_more(uint64_t number)
{
    struct wire_gate msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_GATE, number}};

    want(&msg.want, word("more"));
    if (word("raw") && strcmp(word("raw"), "zero") == 0)
        msg.want.ports[0] = 0;
    if (fd_send(sock, &msg, sizeof msg, NULL, 0) < 0)
        abort();
}

/* The next message of the spawner; its type. */
static enum wire_type hear(union wire_any *msg, bool quiet)
{
    int fds[WIRE_FDS];
    size_t n_fds = 0;
    ssize_t n = fd_recv(sock, msg, sizeof *msg, fds, WIRE_FDS, &n_fds);

    if (n <= 0 || wire_check(msg, (size_t)n) < 0) {
        fprintf(stderr, "the spawner is gone\n");
        exit(3);
    }
    if (msg->head.type == WIRE_GATE_OPEN && !quiet)
        on_open(&msg->gate_open, fds, n_fds);
    if (msg->head.type == WIRE_STARTED && !quiet) {
        fprintf(stderr, "started %s\n", msg->started.sandbox_id);
        started_at = true;
        if (word("more"))
            ask_more(msg->head.run);
    }
    fd_close_all(fds, n_fds);
    return (enum wire_type)msg->head.type;
}

static void pool(void)
{
    const struct wire_pool ask = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_POOL, 0},
                                  .count = (uint32_t)strtoul(word("pool"), NULL, 10)};
    union wire_any msg;

    if (fd_send(sock, &ask, sizeof ask, NULL, 0) < 0)
        abort();
    while (hear(&msg, true) != WIRE_POOL_FULL)
        ;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

/* From RUN to STARTED out of a full pool, or -1. */
static int64_t one_start(uint64_t number)
{
    union wire_any msg;

    pool();
    uint64_t began = now_ns();
    send_run(number);
    while (hear(&msg, true) != WIRE_STARTED)
        if (msg.head.type == WIRE_DONE) {
            fprintf(stderr, "done %u %s\n", msg.done.cause, msg.done.detail);
            return -1;
        }
    int64_t took = (int64_t)(now_ns() - began);
    while (hear(&msg, true) != WIRE_DONE)
        ;
    return took;
}

/* Without and with a network in turn, since the machine's speed changes. */
static int measure(unsigned loops)
{
    static int64_t took[2][4096];

    loops = loops < ARRAY_SIZE(took[0]) ? loops : (unsigned)ARRAY_SIZE(took[0]);
    for (unsigned i = 0; i < 2 * loops; i++) {
        without = i % 2 == 0;
        took[i % 2][i / 2] = one_start(i + 1);
        if (took[i % 2][i / 2] < 0)
            return 4;
    }
    qsort(took[0], loops, sizeof took[0][0], by_size);
    qsort(took[1], loops, sizeof took[1][0], by_size);
    printf("without p50 %.0f us, with p50 %.0f us; p10 %.0f %.0f\n", (double)took[0][loops / 2] / 1e3,
           (double)took[1][loops / 2] / 1e3, (double)took[0][loops / 10] / 1e3, (double)took[1][loops / 10] / 1e3);
    return 0;
}

static int serve(void)
{
    for (;;) {
        struct pollfd fds[1 + GATE_LISTENERS_MAX] = {{.fd = sock, .events = POLLIN}};
        for (unsigned i = 0; i < gate.n; i++)
            fds[1 + i] = (struct pollfd){.fd = gate.fds[i], .events = POLLIN};
        unsigned n = 1 + gate.n;
        if (poll(fds, n, -1) < 0)
            abort();
        for (unsigned i = 1; i < n; i++)
            if (fds[i].revents)
                (gate.what[i - 1].kind == GATE_DNS_UDP ? serve_udp : serve_tcp)(&gate.what[i - 1], gate.fds[i - 1]);
        if (!fds[0].revents)
            continue;
        union wire_any msg;
        if (hear(&msg, false) == WIRE_DONE) {
            fprintf(stderr, "done %u exit=%d started=%u refused=%u %s\n", msg.done.cause, msg.done.exit_code,
                    msg.done.started, msg.done.refused, msg.done.detail);
            return 0;
        }
        if (word("service") &&
            ((msg.head.type == WIRE_STARTED && !word("more")) || (msg.head.type == WIRE_GATE_OPEN && started_at))) {
            const struct wire_kill kill = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_KILL, 1},
                                           .cause = BRIG_CAUSE_CANCELLED};
            if (fd_send(sock, &kill, sizeof kill, NULL, 0) < 0)
                abort();
        }
    }
}

int main(int argc, char **argv)
{
    int i = 2;

    if (argc < 3)
        return 2;
    const struct brig_engine_options options = {.size = sizeof options, .flags = BRIG_ENGINE_FORK};
    struct brig_err err;
    pid_t forked;
    if (strcmp(argv[1], "spawn") != 0) {
        sock = (int)strtol(argv[1], NULL, 10);
    } else if (engine_spawn(&options, &sock, &forked, &err) < 0) {
        fprintf(stderr, "no spawner: %s\n", err.message);
        return 3;
    }
    for (; i < argc && strcmp(argv[i], "--") != 0 && n_words < MAX_WORDS; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals)
            return 2;
        *equals = '\0';
        words[n_words][0] = argv[i];
        words[n_words++][1] = equals + 1;
    }
    program = argv + (i < argc ? i + 1 : i);
    setvbuf(stderr, NULL, _IOLBF, 0);
    if (word("loops"))
        return measure((unsigned)strtoul(word("loops"), NULL, 10));
    if (word("pool"))
        pool();
    send_run(1);
    return serve();
}
