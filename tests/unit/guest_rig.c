/* SPDX-License-Identifier: Apache-2.0 */
/* guest_rig.c: see guest_rig.h. */
#include "guest_rig.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codec/wire/le.h"

/* ---- the spawner's part ------------------------------------------------------------------------- */

static void send_control(struct rig *rig, enum frame_type type, const void *payload, size_t len)
{
    uint8_t out[128];

    send_bytes(&rig->g, out, put_frame(out, type, 0, payload, len), NULL, 0);
}

static void on_leaf(struct rig *rig, uint32_t leaf, pid_t pid)
{
    const struct guest_leaf_ready ready = {leaf, rig->leaf_errnum};
    uint8_t wire[GUEST_LEAF_READY_SIZE];

    assert_true(leaf < 64 && pid > 0);
    rig->leaf_pids[leaf] = pid;
    rig->n_leaf++;
    if (rig->mute_leaves)
        return;
    assert_int_equal(guest_leaf_ready_put(wire, sizeof(wire), &ready), sizeof(wire));
    send_control(rig, FRAME_LEAF_READY, wire, sizeof(wire));
}

/* There is no cgroup here: the main process's session stands for it. */
static void on_leaf_end(struct rig *rig, uint32_t leaf)
{
    const struct guest_leaf_gone gone = {leaf, 1, 2, GUEST_STORE_NO_INODES, 3000, 4000, 5};
    uint8_t wire[GUEST_LEAF_GONE_SIZE];

    rig->n_leaf_end++;
    if (rig->leaf_pids[leaf] > 0)
        kill(-rig->leaf_pids[leaf], SIGKILL);
    assert_int_equal(guest_leaf_gone_put(wire, sizeof(wire), &gone), sizeof(wire));
    send_control(rig, FRAME_LEAF_GONE, wire, sizeof(wire));
}

static void on_control(struct loop_source *source, uint32_t events)
{
    struct rig *rig = source->ctx;
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(struct ucred))];
    } beside;
    struct iovec iov = {rig->control_in + rig->control_len, sizeof(rig->control_in) - rig->control_len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &beside, .msg_controllen = sizeof(beside)};
    ssize_t n = recvmsg(rig->g.control, &msg, MSG_DONTWAIT);
    struct ucred from = {0};
    struct frame frame;
    uint32_t leaf;
    int used;

    (void)events;
    if (n <= 0) {
        loop_remove(rig->loop, &rig->control);
        return;
    }
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
        if (c->cmsg_type == SCM_CREDENTIALS)
            memcpy(&from, CMSG_DATA(c), sizeof(from));
    rig->control_len += (size_t)n;
    while ((used = frame_parse(rig->control_in, rig->control_len, &frame)) > 0) {
        if (frame.type == FRAME_COUNT) {
            assert_int_equal(frame.length, 0);
            rig->n_count++;
        } else {
            assert_true(frame.type == FRAME_LEAF || frame.type == FRAME_LEAF_END);
            assert_int_equal(guest_leaf_parse(frame.payload, frame.length, &leaf), 0);
            if (frame.type == FRAME_LEAF)
                on_leaf(rig, leaf, from.pid);
            else
                on_leaf_end(rig, leaf);
        }
        rig->control_len -= (size_t)used;
        memmove(rig->control_in, rig->control_in + used, rig->control_len);
    }
    assert_int_equal(used, 0);
}

/* ---- the stream --------------------------------------------------------------------------------- */

static void on_hello(void *ctx, const struct svc_hello *hello)
{
    struct rig *rig = ctx;

    rig->hellos++;
    rig->hello = *hello;
}

static void on_gone(void *ctx, const struct brig_err *why)
{
    struct rig *rig = ctx;

    (void)why;
    rig->gones++;
}

static int make_link(struct rig *rig)
{
    const struct link_events events = {on_hello, on_gone, rig};
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(fcntl(pair[0], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(link_create(rig->loop, pair[0], &events, &rig->link, NULL), 0);
    return pair[1];
}

void rig_open(struct rig *rig, unsigned extra_flags)
{
    rig_open_with(rig, extra_flags, guest_spawn);
}

void rig_open_with(struct rig *rig, unsigned extra_flags, void (*spawn)(struct guest *g))
{
    struct guest_start start = plain_start();
    int fd, on = 1;

    memset(rig, 0, sizeof(*rig));
    start.flags = GUEST_START_SERVICE | extra_flags;
    start.workdir = "/";
    rig->leaves = extra_flags & GUEST_START_LEAVES;
    assert_int_equal(loop_create(&rig->loop, NULL), 0);
    spawn(&rig->g);
    fd = make_link(rig);
    send_start(&rig->g, &start, ARGV(NULL), ARGV(NULL), FRAME_PAYLOAD_MAX, &fd, 1);
    close(fd);
    expect_hello(&rig->g);
    assert_true(read_until(&rig->g, FRAME_STARTED));
    if (rig->leaves) {
        assert_int_equal(setsockopt(rig->g.control, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
        rig->control.fn = on_control;
        rig->control.ctx = rig;
        assert_int_equal(loop_add(rig->loop, &rig->control, rig->g.control, EPOLLIN, NULL), 0);
    }
    rig_wait_for(rig, rig->hellos == 1);
    assert_int_equal(rig->hello.version, SVC_VERSION);
    assert_int_equal(rig->hello.capabilities, rig->leaves ? SVC_CAP_LEAVES : 0);
}

void rig_attach(struct rig *rig)
{
    uint8_t out[FRAME_HEADER];
    int fd;

    link_destroy(rig->link);
    rig->hellos = 0;
    fd = make_link(rig);
    send_bytes(&rig->g, out, put_frame(out, FRAME_ATTACH, 0, "", 0), &fd, 1);
    close(fd);
    rig_wait_for(rig, rig->hellos == 1);
}

void rig_close(struct rig *rig)
{
    link_destroy(rig->link);
    loop_remove(rig->loop, &rig->control);
    loop_destroy(rig->loop);
    /* Outside of a pid namespace its end takes nobody along; its shepherds see it. */
    shutdown(rig->g.control, SHUT_RDWR);
    assert_int_equal(guest_reap(&rig->g), 1);
}

void rig_run(struct rig *rig, int ms)
{
    uint64_t end = loop_now_ns() + (uint64_t)ms * 1000000u;

    do {
        assert_int_equal(loop_run_once(rig->loop, ms > 10 ? 10 : ms, NULL), 0);
    } while (loop_now_ns() < end);
}

void rig_until(struct rig *rig, const bool *flag)
{
    uint64_t end = loop_now_ns() + UINT64_C(120000000000); /* only what hangs takes so long, however busy it is */

    while (!*flag) {
        assert_true(loop_now_ns() < end);
        assert_int_equal(loop_run_once(rig->loop, 1000, NULL), 0);
    }
}

/* ---- calls -------------------------------------------------------------------------------------- */

static void on_event(void *ctx, const uint8_t *data, size_t len)
{
    struct answer *answer = ctx;
    uint8_t head[4];

    answer->n_events++;
    le_put_u32(head, (uint32_t)len);
    assert_int_equal(buf_append(&answer->events, head, 4), 0);
    assert_int_equal(buf_append(&answer->events, data, len), 0);
}

static void on_data(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct answer *answer = ctx;

    assert_int_equal(buf_append(&answer->out[stream], data, len), 0);
    if (answer->hold)
        answer->held[stream] += len;
    else
        call_consumed(answer->call, stream, len);
}

static void on_eof(void *ctx, unsigned stream)
{
    struct answer *answer = ctx;

    answer->eof[stream] = true;
}

static void on_writable(void *ctx)
{
    struct answer *answer = ctx;

    answer->n_writable++;
}

static void on_reply(void *ctx, uint32_t errnum, uint32_t stage, const uint8_t *data, size_t len)
{
    struct answer *answer = ctx;

    answer->done = true;
    answer->errnum = errnum;
    answer->stage = stage;
    assert_true(len <= sizeof(answer->data));
    if (len > 0)
        memcpy(answer->data, data, len);
    answer->len = len;
    answer->call = NULL;
}

void rig_call(struct rig *rig, struct answer *answer, enum svc_type type, const void *payload, size_t len)
{
    const struct call_events events = {on_event, on_data, on_eof, on_writable, on_reply, answer};

    answer->rig = rig;
    answer->out[1] = answer->out[2] = answer->events = BUF_INIT(512u << 20);
    assert_int_equal(link_call(rig->link, type, payload, len, &events, &answer->call, NULL), 0);
}

void rig_ask(struct rig *rig, struct answer *answer, enum svc_type type, const void *payload, size_t len)
{
    rig_call(rig, answer, type, payload, len);
    rig_until(rig, &answer->done);
}

void rig_forget(struct answer *answer)
{
    if (answer->call)
        call_drop(answer->call);
    buf_done(&answer->out[1]);
    buf_done(&answer->out[2]);
    buf_done(&answer->events);
    memset(answer, 0, sizeof(*answer));
}

void rig_start_with(struct rig *rig, struct answer *answer, uint32_t proc, const struct start_opts *opts,
                    const char *const *argv)
{
    static uint8_t wire[SVC_OPEN_MAX], strings[GUEST_STRINGS_MAX];
    const char *const *env = opts->env ? opts->env : plain_env;
    const char *workdir = opts->workdir ? opts->workdir : "/tmp";
    struct svc_proc_start msg = {
        .proc = proc,
        .flags = opts->flags,
        .rows = opts->rows,
        .cols = opts->cols,
        .ring = opts->ring,
        .workdir = {workdir, (uint32_t)strlen(workdir)},
        .strings = strings,
    };

    for (int v = 0; v < 2; v++)
        for (const char *const *s = v ? env : argv; *s; s++) {
            size_t len = strlen(*s) + 1;
            assert_true(msg.strings_len + len <= sizeof(strings));
            memcpy(strings + msg.strings_len, *s, len);
            msg.strings_len += len;
            *(v ? &msg.n_env : &msg.n_argv) += 1;
        }
    int len = svc_proc_start_put(wire, sizeof(wire), &msg);
    assert_true(len > 0);
    rig_call(rig, answer, SVC_PROC_START, wire, (size_t)len);
}

void rig_start(struct rig *rig, uint32_t proc, uint32_t flags, const char *const *argv)
{
    struct answer answer = {0};

    rig_start_with(rig, &answer, proc, &(struct start_opts){.flags = flags}, argv);
    rig_until(rig, &answer.done);
    assert_int_equal(answer.errnum, 0);
    rig_forget(&answer);
}

void rig_attach_proc(struct rig *rig, struct answer *answer, uint32_t proc, unsigned streams, uint64_t offset)
{
    const struct svc_proc_attach msg = {proc, streams, {0, offset, offset}};
    uint8_t wire[64];
    int len = svc_proc_attach_put(wire, sizeof(wire), &msg);

    assert_true(len > 0);
    rig_call(rig, answer, SVC_PROC_ATTACH, wire, (size_t)len);
}

void rig_number(struct rig *rig, struct answer *answer, enum svc_type type, uint32_t proc)
{
    uint8_t wire[4];

    le_put_u32(wire, proc);
    rig_call(rig, answer, type, wire, sizeof(wire));
}

void rig_channel(struct rig *rig, struct answer *answer, uint32_t proc, uint32_t frames)
{
    uint8_t wire[8];

    le_put_u32(wire, proc);
    le_put_u32(wire + 4, frames);
    rig_call(rig, answer, SVC_CHANNEL, wire, sizeof(wire));
}

struct svc_proc_exit rig_wait_exit(struct rig *rig, uint32_t proc)
{
    struct answer answer = {0};
    struct svc_proc_exit exit = {0};

    rig_number(rig, &answer, SVC_PROC_WAIT, proc);
    rig_until(rig, &answer.done);
    assert_int_equal(answer.errnum, 0);
    assert_int_equal(svc_proc_exit_parse(answer.data, answer.len, &exit), 0);
    rig_forget(&answer);
    return exit;
}

uint32_t rig_signal(struct rig *rig, uint32_t proc, uint32_t signum, uint32_t flags)
{
    const struct svc_proc_signal msg = {proc, signum, flags};
    struct answer answer = {0};
    uint8_t wire[16];
    int len = svc_proc_signal_put(wire, sizeof(wire), &msg);

    assert_true(len > 0);
    rig_ask(rig, &answer, SVC_PROC_SIGNAL, wire, (size_t)len);
    uint32_t errnum = answer.errnum;
    rig_forget(&answer);
    return errnum;
}

struct svc_attached answer_attached(const struct answer *answer)
{
    struct svc_attached attached = {{0}};

    assert_true(answer->n_events > 0);
    assert_int_equal(svc_attached_parse((const uint8_t *)answer->events.data + 4, 16, &attached), 0);
    return attached;
}

struct svc_proc_exit rig_sh(struct rig *rig, uint32_t proc, const char *script, struct answer *output)
{
    struct answer start = {0};

    rig_start_with(rig, &start, proc, &(struct start_opts){0}, ARGV("sh", "-c", script));
    rig_attach_proc(rig, output, proc, 6, 0);
    rig_until(rig, &output->done);
    assert_int_equal(start.errnum, 0);
    assert_int_equal(output->errnum, 0);
    rig_forget(&start);
    return rig_wait_exit(rig, proc);
}

void answer_write(struct answer *answer, const void *data, size_t len)
{
    const char *at = data;

    while (len > 0 && answer->call) {
        ssize_t took = call_write(answer->call, at, len);
        assert_true(took >= 0);
        at += took;
        len -= (size_t)took;
        rig_run(answer->rig, 0);
    }
}

bool pid_alive(pid_t pid)
{
    char path[64], text[256] = "";
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (!file)
        return false;
    (void)!fgets(text, sizeof(text), file);
    fclose(file);
    const char *bracket = strrchr(text, ')');
    return bracket && bracket[2] != 'Z';
}
