/* SPDX-License-Identifier: Apache-2.0 */
/* files_client.c: starts the file worker, with system calls that fail when asked to, and speaks frames with it. */
#include "files_client.h"

#include <fcntl.h>
#include <ftw.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codec/wire/le.h"

#define IN_SIZE (1u << 20)
#define PATIENCE_MS 120000

/* ---- the process ------------------------------------------------------------------------------------- */

static void install(const struct deny *deny, size_t n)
{
    struct sock_filter code[64] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    size_t len = 1;

    for (size_t i = 0; i < n; i++) {
        uint32_t at = (uint32_t)(offsetof(struct seccomp_data, args) + 8 * deny[i].arg);

        code[len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)deny[i].nr, 0, 5);
        code[len++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at);
        code[len++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, deny[i].mask);
        code[len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, deny[i].mask, 0, 1);
        code[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)deny[i].errnum);
        code[len++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    }
    code[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {(unsigned short)len, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(98);
}

void files_spawn(struct files *f, const struct deny *deny, size_t n)
{
    char path[4096];
    ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 64);
    int pair[2];

    assert_true(len > 0);
    while (path[len - 1] != '/')
        len--;
    memcpy(path + len, "files_worker_driver", 20);
    *f = (struct files){.dir = "/tmp/brig-files-XXXXXX", .in = malloc(IN_SIZE)};
    assert_non_null(f->in);
    assert_non_null(mkdtemp(f->dir));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    f->pid = fork();
    assert_true(f->pid >= 0);
    if (f->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(pair[1], 3);
        fcntl(3, F_SETFD, 0);
        if (n > 0)
            install(deny, n);
        execl(path, "files_worker", (char *)NULL);
        _exit(99);
    }
    close(pair[1]);
    f->fd = pair[0];
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

int files_status(struct files *f)
{
    int status;

    assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
    close(f->fd);
    free(f->in);
    nftw(f->dir, remove_one, 32, FTW_DEPTH | FTW_PHYS);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

void files_stop(struct files *f)
{
    shutdown(f->fd, SHUT_WR);
    assert_int_equal(files_status(f), 0);
}

const char *files_at(const struct files *f, const char *path)
{
    static char buffers[8][8192];
    static unsigned next;
    char *out = buffers[next++ % 8];

    snprintf(out, sizeof(buffers[0]), "%s/%s", f->dir, path);
    return out;
}

/* ---- frames ------------------------------------------------------------------------------------------- */

void files_send_raw(struct files *f, const void *data, size_t len)
{
    const uint8_t *at = data;

    while (len > 0) {
        ssize_t n = send(f->fd, at, len, MSG_NOSIGNAL);
        if (n <= 0) /* it has judged already and gone */
            return;
        at += n;
        len -= (size_t)n;
    }
}

void files_send(struct files *f, enum svc_type type, uint32_t stream, uint32_t request, const void *payload, size_t len)
{
    static uint8_t out[FRAME_HEADER + FRAME_PAYLOAD_MAX];
    const struct frame frame = {.length = (uint32_t)len, .type = (uint16_t)type, .stream = stream, .request = request};

    assert_true(len <= FRAME_PAYLOAD_MAX);
    frame_put_header(out, &frame);
    if (len > 0)
        memcpy(out + FRAME_HEADER, payload, len);
    files_send_raw(f, out, FRAME_HEADER + len);
}

uint32_t files_open(struct files *f, enum svc_type type, uint32_t flags, const char *path, const void *rest, size_t len)
{
    static uint8_t message[65536];
    struct svc_cursor out = {message, message + sizeof(message), false};
    const struct svc_path p = {flags, {f->dir, (uint32_t)strlen(f->dir)}, {path, (uint32_t)strlen(path)}};

    svc_put_path(&out, &p);
    svc_put_raw(&out, rest, len);
    assert_false(out.bad);
    files_send(f, type, 0, ++f->request, message, (size_t)(out.at - message));
    return f->request;
}

static void next_frame(struct files *f, struct frame *ret)
{
    int used;

    while ((used = svc_frame_parse(f->in + f->in_taken, f->in_len - f->in_taken, ret)) == 0) {
        struct pollfd poll_in = {.fd = f->fd, .events = POLLIN};
        memmove(f->in, f->in + f->in_taken, f->in_len - f->in_taken);
        f->in_len -= f->in_taken;
        f->in_taken = 0;
        assert_int_equal(poll(&poll_in, 1, PATIENCE_MS), 1);
        ssize_t n = recv(f->fd, f->in + f->in_len, IN_SIZE - f->in_len, 0);
        assert_true(n > 0);
        f->in_len += (size_t)n;
    }
    assert_true(used > 0);
    f->in_taken += (size_t)used;
}

static uint8_t *append(uint8_t *to, size_t *len, const struct frame *frame)
{
    uint8_t *more = realloc(to, *len + frame->length + 1);

    assert_non_null(more);
    memcpy(more + *len, frame->payload, frame->length);
    *len += frame->length;
    return more;
}

static void take(struct files *f, const struct frame *frame, struct outcome *out)
{
    uint8_t credit[4];
    struct svc_reply reply;

    if (frame->type == SVC_DATA) {
        assert_int_equal(frame->stream, 1);
        out->data = append(out->data, &out->data_len, frame);
        le_put_u32(credit, frame->length);
        if (!out->keep_credit)
            files_send(f, SVC_CREDIT, 1, frame->request, credit, 4);
    } else if (frame->type == SVC_EVENT) {
        assert_true(out->events < ARRAY_SIZE(out->event_at));
        out->event_at[out->events++] = out->event_len;
        out->event = append(out->event, &out->event_len, frame);
    } else if (frame->type == SVC_EOF) {
        out->eofs++;
    } else if (frame->type == SVC_CREDIT) {
        out->credit += le_get_u32(frame->payload);
    } else {
        assert_int_equal(frame->type, SVC_REPLY);
        assert_int_equal(svc_reply_parse(frame->payload, frame->length, &reply), 0);
        out->errnum = (int)reply.errnum;
        out->reply_len = frame->length - SVC_REPLY_SIZE;
        assert_true(out->reply_len <= sizeof(out->reply));
        for (size_t i = 0; i < out->reply_len; i++)
            out->reply[i] = frame->payload[SVC_REPLY_SIZE + i];
    }
}

void files_until(struct files *f, uint32_t request, enum svc_type type, struct outcome *out)
{
    struct frame frame;

    do {
        next_frame(f, &frame);
        if (frame.request == request)
            take(f, &frame, out);
    } while (frame.request != request || frame.type != type);
}

int files_finish(struct files *f, uint32_t request, struct outcome *out)
{
    files_until(f, request, SVC_REPLY, out);
    return out->errnum;
}

void outcome_done(struct outcome *out)
{
    free(out->data);
    free(out->event);
}

static struct svc_entry entry_in(const uint8_t *at, size_t len)
{
    struct svc_reader in = {at, at + len, false};
    struct svc_entry entry = svc_get_entry(&in);

    assert_int_equal(svc_done(&in), 0);
    return entry;
}

struct svc_entry outcome_entry(const struct outcome *out)
{
    return entry_in(out->reply, out->reply_len);
}

struct svc_entry outcome_event(const struct outcome *out, unsigned i)
{
    assert_true(i < out->events);
    size_t end = i + 1 < out->events ? out->event_at[i + 1] : out->event_len;
    return entry_in(out->event + out->event_at[i], end - out->event_at[i]);
}

/* ---- calls -------------------------------------------------------------------------------------------- */

int files_call(struct files *f, enum svc_type type, uint32_t flags, const char *path, const void *rest, size_t len,
               struct outcome *out)
{
    static struct outcome ignored;

    if (!out) {
        outcome_done(&ignored);
        ignored = (struct outcome){0};
        out = &ignored;
    }
    return files_finish(f, files_open(f, type, flags, path, rest, len), out);
}

int files_upload(struct files *f, uint32_t request, const void *data, size_t len, struct outcome *out)
{
    const uint8_t *at = data;
    size_t sent = 0;

    while (len > 0) {
        size_t n = len < FRAME_PAYLOAD_MAX ? len : FRAME_PAYLOAD_MAX;
        while (sent + n > SVC_WINDOW + out->credit) {
            struct frame frame;
            next_frame(f, &frame);
            if (frame.request == request)
                take(f, &frame, out);
            if (frame.request == request && frame.type == SVC_REPLY)
                return out->errnum;
        }
        files_send(f, SVC_DATA, 0, request, at, n);
        at += n;
        sent += n;
        len -= n;
    }
    files_send(f, SVC_EOF, 0, request, NULL, 0);
    return files_finish(f, request, out);
}

int files_write_flags(struct files *f, uint32_t flags, const char *path, uint32_t how, uint64_t offset,
                      const void *data, size_t len)
{
    uint8_t rest[16];
    struct outcome out = {0};

    le_put_u32(rest, how);
    le_put_u32(rest + 4, 0);
    le_put_u64(rest + 8, offset);
    int ret = files_upload(f, files_open(f, SVC_FILE_WRITE, flags, path, rest, sizeof(rest)), data, len, &out);
    outcome_done(&out);
    return ret;
}

int files_write(struct files *f, const char *path, uint32_t how, const void *data, size_t len)
{
    return files_write_flags(f, 0, path, how, 0, data, len);
}

int files_mkdir(struct files *f, const char *path, uint32_t parents)
{
    uint8_t rest[8];

    le_put_u32(rest, 0755);
    le_put_u32(rest + 4, parents);
    return files_call(f, SVC_FILE_MKDIR, 0, path, rest, sizeof(rest), NULL);
}

int files_remove(struct files *f, const char *path, uint32_t recursive)
{
    uint8_t rest[4];

    le_put_u32(rest, recursive);
    return files_call(f, SVC_FILE_REMOVE, 0, path, rest, sizeof(rest), NULL);
}

int files_move(struct files *f, const char *path, const char *to, uint32_t replace)
{
    uint8_t rest[8192];
    struct svc_cursor out = {rest, rest + sizeof(rest), false};

    svc_put_bytes(&out, (struct svc_bytes){to, (uint32_t)strlen(to)});
    svc_put_u32(&out, replace);
    return files_call(f, SVC_FILE_MOVE, 0, path, rest, (size_t)(out.at - rest), NULL);
}
