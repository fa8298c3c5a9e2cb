/* SPDX-License-Identifier: Apache-2.0 */
/* guest_driver.c: starts brig-init with the descriptors it expects, and speaks frames with it. */
#include "guest_driver.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

void guest_spawn(struct guest *g)
{
    const char *path = getenv("BRIG_INIT");
    int pair[2];

    if (!path) {
        fail_msg("BRIG_INIT must name the brig-init executable");
        return;
    }
    *g = (struct guest){.control = -1, .out = -1, .err = -1, .in = -1, .master = -1};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    g->pid = fork();
    assert_true(g->pid >= 0);
    if (g->pid == 0) {
        int control = fcntl(pair[1], F_DUPFD_CLOEXEC, 20);
        int probe = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        signal(SIGUSR2, SIG_IGN); /* must not reach the program */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int fd = 0; fd < 3; fd++)
            dup2(null, fd);
        probe = fcntl(probe, F_DUPFD_CLOEXEC, 21);
        dup2(control, 3);
        dup2(probe, 4);
        close_range(5, ~0u, 0);
        execl(path, "brig-init", (char *)NULL);
        _exit(99);
    }
    close(pair[1]);
    g->control = pair[0];
}

int guest_reap(struct guest *g)
{
    int status;

    assert_int_equal(waitpid(g->pid, &status, 0), g->pid);
    g->pid = 0;
    for (int *fd = (int[]){g->control, g->out, g->err, g->in, g->master, -2}; *fd != -2; fd++)
        if (*fd >= 0)
            close(*fd);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

void send_bytes(struct guest *g, const void *data, size_t len, const int *fds, size_t n_fds)
{
    uint8_t space[CMSG_SPACE(8 * sizeof(int))] __attribute__((aligned(8))) = {0};
    struct iovec iov = {(void *)(uintptr_t)data, len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (n_fds > 0) {
        msg.msg_control = space;
        msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(head), fds, n_fds * sizeof(int));
    }
    while (iov.iov_len > 0) {
        ssize_t n = sendmsg(g->control, &msg, MSG_NOSIGNAL);
        if (n < 0) /* init has judged already and gone */
            return;
        msg.msg_control = NULL;
        msg.msg_controllen = 0;
        iov.iov_base = (uint8_t *)iov.iov_base + n;
        iov.iov_len -= (size_t)n;
    }
}

size_t put_frame(uint8_t *out, enum frame_type type, unsigned flags, const void *payload, size_t len)
{
    const struct frame frame = {
        .length = (uint32_t)len, .type = (uint16_t)type, .flags = (uint16_t)flags, .request = 7};

    frame_put_header(out, &frame);
    memcpy(out + FRAME_HEADER, payload, len);
    return FRAME_HEADER + len;
}

size_t put_hello(uint8_t *out)
{
    const struct guest_hello hello = {FRAME_VERSION, GUEST_CAP_RUN};
    uint8_t wire[GUEST_HELLO_SIZE];

    assert_int_equal(guest_hello_put(wire, sizeof wire, &hello), (int)sizeof wire);
    return put_frame(out, FRAME_HELLO, 0, wire, sizeof wire);
}

void send_signal(struct guest *g, uint32_t signum)
{
    uint8_t wire[GUEST_SIGNAL_SIZE], out[FRAME_HEADER + GUEST_SIGNAL_SIZE];

    assert_int_equal(guest_signal_put(wire, sizeof wire, signum), (int)sizeof wire);
    send_bytes(g, out, put_frame(out, FRAME_SIGNAL, 0, wire, sizeof wire), NULL, 0);
}

/* HELLO and START in one go, cut into pieces of at most `piece` payload bytes. */
void send_start(struct guest *g, struct guest_start *start, const char *const *argv, const char *const *env,
                size_t piece, const int *fds, size_t n_fds)
{
    size_t size = 2u << 20, len, at = 0, used;
    uint8_t *message = malloc(size), *out = malloc(2 * size);

    assert_non_null(message);
    assert_non_null(out);
    start->n_argv = start->n_env = 0;
    for (const char *const *s = argv; *s; s++)
        start->n_argv++;
    for (const char *const *s = env; *s; s++)
        start->n_env++;
    int head = guest_start_put_head(message, size, start);
    assert_true(head > 0);
    len = (size_t)head;
    for (int v = 0; v < 2; v++)
        for (const char *const *s = v ? env : argv; *s; s++) {
            assert_true(len + strlen(*s) + 1 <= size);
            memcpy(message + len, *s, strlen(*s) + 1);
            len += strlen(*s) + 1;
        }
    used = put_hello(out);
    while (at < len) {
        size_t n = len - at < piece ? len - at : piece;
        used += put_frame(out + used, FRAME_START, at + n < len ? FRAME_MORE : 0, message + at, n);
        at += n;
    }
    send_bytes(g, out, used, fds, n_fds);
    free(message);
    free(out);
}

const char *const plain_env[] = {"PATH=/usr/bin:/bin", "MARK=here", NULL};

struct guest_start plain_start(void)
{
    return (struct guest_start){.uid = getuid(), .gid = getgid(), .workdir = "/tmp", .disk = 1 << 20, .inodes = 100};
}

void guest_start_with(struct guest *g, struct guest_start *start, const char *const *argv, const char *const *env,
                      size_t piece)
{
    int in[2] = {-1, -1}, out[2], err[2], fds[3];
    size_t n = 0;

    guest_spawn(g);
    if (start->flags & GUEST_START_TTY) {
        send_start(g, start, argv, env, piece, NULL, 0);
        return;
    }
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    if (start->flags & GUEST_START_STDIN) {
        assert_int_equal(pipe2(in, O_CLOEXEC), 0);
        fds[n++] = in[0];
    }
    fds[n++] = out[1];
    fds[n++] = err[1];
    send_start(g, start, argv, env, piece, fds, n);
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
    g->in = in[1];
    g->out = out[0];
    g->err = err[0];
}

void guest_start(struct guest *g, const char *const *argv)
{
    struct guest_start start = plain_start();

    guest_start_with(g, &start, argv, plain_env, FRAME_PAYLOAD_MAX);
}

void guest_start_lasting(struct guest *g)
{
    struct guest_start start = plain_start();

    start.flags = GUEST_START_STDIN;
    guest_start_with(g, &start, (const char *const[]){"cat", NULL}, plain_env, FRAME_PAYLOAD_MAX);
}

bool read_until(struct guest *g, enum frame_type until)
{
    static uint8_t buf[4096];
    static size_t len;
    struct frame frame;
    int used;

    if (until == FRAME_HELLO)
        len = 0;
    for (;;) {
        while ((used = frame_parse(buf, len, &frame)) > 0) {
            if (frame.type == FRAME_STARTED) {
                assert_int_equal(guest_started_parse(frame.payload, frame.length, &g->started), 0);
                g->started_seen = true;
            } else if (frame.type == FRAME_EXITED) {
                assert_int_equal(guest_exited_parse(frame.payload, frame.length, &g->exited), 0);
            }
            enum frame_type type = (enum frame_type)frame.type;
            memmove(buf, buf + used, len - (size_t)used);
            len -= (size_t)used;
            if (type == until)
                return true;
        }
        assert_int_equal(used, 0);

        uint8_t space[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
        struct iovec iov = {buf + len, sizeof buf - len};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
        ssize_t n = recvmsg(g->control, &msg, MSG_CMSG_CLOEXEC);
        if (n <= 0)
            return false;
        struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
        if (head && head->cmsg_type == SCM_RIGHTS)
            memcpy(&g->master, CMSG_DATA(head), sizeof g->master);
        len += (size_t)n;
    }
}

void guest_finish(struct guest *g)
{
    assert_true(read_until(g, FRAME_EXITED));
    assert_int_equal(guest_reap(g), 0);
}

void expect_hello(struct guest *g)
{
    assert_true(read_until(g, FRAME_HELLO));
}

void read_text(int fd, char *buf, size_t size)
{
    size_t len = 0;
    ssize_t n;

    while (len + 1 < size && (n = read(fd, buf + len, size - 1 - len)) > 0)
        len += (size_t)n;
    buf[len] = '\0';
}
