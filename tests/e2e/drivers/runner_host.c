/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runner_host.c: a brigd that was taken over: it starts a runner (argv[1], the provider argv[2]) and asks it for things
 * that it must not make. One line per case: its name, the code and the text of the refusal. At the end an honest run
 * shows that the runner still serves. argv[3] is a directory below a root that may be bound.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "spawner/spawner_wire.h"

#define PATIENCE_MS 30000

static int sock;
static uint64_t number;
static struct buf distrusted = BUF_INIT(65536); /* the names of what no honest brigd asks for, as the runner says */

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "runner_host: %s\n", what);
    exit(1);
}

static int sealed(const char *strings, size_t len, bool seal)
{
    int fd = memfd_create("strings", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || fd_write_all(fd, strings, len) < 0 ||
        (seal && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) < 0))
        die("memfd");
    return fd;
}

static size_t receive(union wire_any *msg, int *fds)
{
    struct pollfd wait = {.fd = sock, .events = POLLIN};
    size_t n_fds = 0;

    if (poll(&wait, 1, PATIENCE_MS) != 1)
        die("no answer");
    ssize_t n = fd_recv_message(sock, msg, sizeof *msg, fds, WIRE_FDS, &n_fds);
    if (n <= 0) {
        puts("the runner is gone");
        exit(0);
    }
    return n_fds;
}

/* Waits for a message of this type about this run; what comes before is dropped. */
static void await(uint16_t type, uint64_t run, union wire_any *msg)
{
    for (;;) {
        int fds[WIRE_FDS];
        size_t n_fds = receive(msg, fds);
        fd_close_all(fds, n_fds);
        if (msg->head.type == type && msg->head.run == run)
            return;
        if (msg->head.type == WIRE_DONE && msg->head.run == run)
            return; /* it ended before */
    }
}

static void list(void)
{
    const struct wire_plain msg = {{WIRE_MAGIC, WIRE_VERSION, WIRE_LIST, 77}};
    union wire_any in;
    int fds[WIRE_FDS];

    if (fd_send(sock, &msg, sizeof msg, NULL, 0) < 0)
        die("LIST");
    do
        fd_close_all(fds, receive(&in, fds));
    while (in.head.type != WIRE_LIST_END);
    if (in.ready.err.code != BRIG_E_NONE)
        die(in.ready.err.message);
}

struct attempt {
    const char *name;
    struct wire_run run;         /* beside what an honest one has */
    const char *rootfs;          /* or NULL */
    const char *source, *target; /* a bind, or NULL */
    const char *more;            /* one more string at the end, or NULL */
    bool open_strings;           /* not sealed */
    bool two_fds;
};

static void send_run(const struct attempt *a)
{
    struct wire_run run = a->run;
    struct buf strings = BUF_INIT(65536);
    const char *const head[] = {"/workspace", "", a->rootfs ? a->rootfs : ""};
    int r = 0;

    run.head = (struct wire_head){WIRE_MAGIC, WIRE_VERSION, WIRE_RUN, ++number};
    if (!run.flags)
        run.flags = WIRE_RUN_SERVICE;
    for (size_t i = 0; i < ARRAY_SIZE(head); i++)
        r |= buf_append(&strings, head[i], strlen(head[i]) + 1);
    if (run.flags & WIRE_RUN_NEW_LAYER)
        r |= buf_append(&strings, "new-aaaaaaaaaaaaaaaaaaaaaaaaaa", 31);
    if (run.flags & WIRE_RUN_DISK)
        r |= buf_append(&strings, "box-aaaaaaaaaaaaaaaaaaaaaaaaaa\0", 32);
    if (a->source) {
        run.n_binds = 1;
        r |= buf_append(&strings, a->source, strlen(a->source) + 1);
        r |= buf_append(&strings, a->target, strlen(a->target) + 1);
    }
    if (run.flags & WIRE_RUN_ZYGOTE)
        r |= buf_append(&strings, "key", 4);
    if (a->more)
        r |= buf_append(&strings, a->more, strlen(a->more) + 1);
    if (r < 0)
        die("strings");
    run.strings_len = (uint32_t)strings.len;
    int fds[2] = {sealed(strings.data, strings.len, !a->open_strings), open("/dev/null", O_RDONLY | O_CLOEXEC)};
    if (fd_send(sock, &run, sizeof run, fds, a->two_fds ? 2 : 1) < 0)
        die("RUN");
    fd_close_all(fds, 2);
    buf_done(&strings);
}

static void attempt(const struct attempt *a)
{
    union wire_any in;

    send_run(a);
    await(WIRE_STARTED, number, &in);
    if (in.head.type == WIRE_STARTED)
        printf("%s: MADE\n", a->name);
    else
        printf("%s: %s: %s\n", a->name, in.done.refused ? "refused" : "failed", in.done.detail);
    if (in.head.type == WIRE_DONE && in.done.distrust == 1 && buf_printf(&distrusted, "%s,", a->name) < 0)
        die("names");
    fflush(stdout);
}

static void honest(void)
{
    const struct attempt a = {.name = "honest"};
    union wire_any in;

    send_run(&a);
    await(WIRE_STARTED, number, &in);
    printf("honest: %s\n", in.head.type == WIRE_STARTED ? "made" : in.done.detail);
    const struct wire_limits limits = {{WIRE_MAGIC, WIRE_VERSION, WIRE_LIMITS, number}, UINT64_C(96) << 20, 500, 33};
    if (fd_send(sock, &limits, sizeof limits, NULL, 0) < 0)
        die("LIMITS");
    await(WIRE_LIMITS_ARE, number, &in);
    printf("limits: %llu %llu %llu\n", (unsigned long long)in.limits_are.memory, (unsigned long long)in.limits_are.cpus,
           (unsigned long long)in.limits_are.pids);
    const struct wire_kill kill = {{WIRE_MAGIC, WIRE_VERSION, WIRE_KILL, number}, BRIG_CAUSE_CANCELLED, 0};
    if (fd_send(sock, &kill, sizeof kill, NULL, 0) < 0)
        die("KILL");
    await(WIRE_DONE, number, &in);
    printf("end: %s\n", brig_cause_name((enum brig_cause)in.done.cause));
    fflush(stdout);
}

static void start(const char *program, const char *provider)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        die("socketpair");
    pid_t pid = fork();
    if (pid == 0) {
        if (pair[1] == 3 ? fcntl(3, F_SETFD, 0) < 0 : dup2(pair[1], 3) < 0)
            _exit(1);
        execl(program, "brig-runner", provider, (char *)NULL);
        _exit(1);
    }
    close(pair[1]);
    sock = pair[0];
}

int main(int argc, char **argv)
{
    if (argc != 4)
        die("PROGRAM PROVIDER DIRECTORY");
    const struct attempt cases[] = {
        {.name = "unknown flag", .run = {.flags = WIRE_RUN_SERVICE | 1u << 30}},
        {.name = "a program", .run = {.flags = BRIG_RUN_TTY, .n_argv = 1}, .more = "/bin/sh"},
        {.name = "arguments of a service", .run = {.n_argv = 1}, .more = "--privileged"},
        {.name = "a zygote", .run = {.flags = WIRE_RUN_SERVICE | WIRE_RUN_ZYGOTE}},
        {.name = "a new layer", .run = {.flags = WIRE_RUN_SERVICE | WIRE_RUN_NEW_LAYER | BRIG_RUN_ROOT}},
        {.name = "sudo", .run = {.flags = WIRE_RUN_SERVICE | WIRE_RUN_SUDO | BRIG_RUN_ROOT}},
        {.name = "a disk", .run = {.flags = WIRE_RUN_SERVICE | WIRE_RUN_DISK}},
        {.name = "another profile", .run = {.profile = 99}},
        {.name = "a layer that is none", .run = {.require = UINT64_C(1) << 60}},
        {.name = "a port of the host's", .run = {.gate = {.on = 1, .n_ports = 1, .ports = {53}}}},
        {.name = "no end of memory", .run = {.limits = {.memory = UINT64_MAX}}},
        {.name = "more strings", .run = {.flags = 0}, .more = "x"},
        {.name = "strings that can change", .run = {.flags = 0}, .open_strings = true},
        {.name = "one more descriptor", .run = {.flags = 0}, .two_fds = true},
        {.name = "bind /", .run = {.flags = 0}, .source = "/", .target = "/data"},
        {.name = "bind /proc", .run = {.flags = 0}, .source = "/proc", .target = "/data"},
        {.name = "bind /etc", .run = {.flags = 0}, .source = "/etc", .target = "/data"},
        {.name = "bind out of the root", .run = {.flags = 0}, .source = argv[3], .target = "/data"},
        {.name = "bind a relative path", .run = {.flags = 0}, .source = "etc", .target = "/data"},
        {.name = "bind over /proc", .run = {.flags = 0}, .source = "/etc", .target = "/proc"},
        {.name = "rootfs /", .run = {.flags = 0}, .rootfs = "/"},
        {.name = "rootfs /etc", .run = {.flags = 0}, .rootfs = "/etc"},
    };
    const struct wire_plain keep = {{WIRE_MAGIC, WIRE_VERSION, WIRE_KEEP, 0}};
    union wire_any in;
    int fds[WIRE_FDS];

    start(argv[1], argv[2]);
    list();
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        attempt(&cases[i]);
    printf("distrusted: %s\n", distrusted.data);
    honest();
    /* A word that only a supervisor says to a spawner: the runner ends. */
    if (fd_send(sock, &keep, sizeof keep, NULL, 0) < 0)
        die("KEEP");
    for (;;)
        fd_close_all(fds, receive(&in, fds));
}
