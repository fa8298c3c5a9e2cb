/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_setup.c: handles the messages of a cloned child until its brig-init runs, and its end. The child asks for its
 * maps, or says what failed. If a zygote has cloned it, its pid comes in the zygote's answer, perhaps after the child's
 * first message.
 */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/err.h"
#include "base/fd.h"
#include "jail/sys.h"
#include "spawner/spawner.h"

#define CONTROL_BATCH 160u /* bytes: eight requests for a cgroup */

static void take_back(struct sandbox *s)
{
    fd_close_all(s->lent, s->n_lent);
    s->n_lent = 0;
}

/* Out of the numbers that children get a copy of. Where there is none above, it stays: then the copies are larger. */
void sandbox_move_up(int *fd)
{
    int up = *fd >= 0 && *fd < SANDBOX_FD_MIN ? fcntl(*fd, F_DUPFD_CLOEXEC, SANDBOX_FD_MIN) : -1;

    if (up >= 0) {
        close(*fd);
        *fd = up;
    }
}

static int write_maps(struct sandbox *s)
{
    const struct host *host = &s->spawner->host;
    char map[96], path[32];
    int r = ids_map(&host->ids, &s->ids, map, sizeof map);

    if (s->spawner->off & BRIG_LAYER_BIT(BRIG_LAYER_USER_NS))
        return 0;
    snprintf(path, sizeof path, "%d/setgroups", (int)s->pid);
    if (host->ids_kind == IDS_ONE)
        r = SYS(fd_write_file(host->proc_fd, path, "deny"));
    snprintf(path, sizeof path, "%d/uid_map", (int)s->pid);
    if (r >= 0)
        r = SYS(fd_write_file(host->proc_fd, path, map));
    snprintf(path, sizeof path, "%d/gid_map", (int)s->pid);
    if (r >= 0)
        r = SYS(fd_write_file(host->proc_fd, path, map));
    return r;
}

/* The child has made its user namespace, and we know who it is. */
static void map_child(struct sandbox *s)
{
    struct setup_msg msg = {.type = SETUP_MAPPED};
    int r = write_maps(s);

    if (r >= 0)
        r = fd_send_nowait(s->setup_fd, &msg, sizeof msg, NULL, 0);
    if (r < 0) {
        (void)err_set(&s->failure, BRIG_E_HOST, -r, "set-up, id maps");
        sandbox_end(s, BRIG_CAUSE_HOST_ERROR);
        return;
    }
    char path[32];
    snprintf(path, sizeof path, "%d/ns/mnt", (int)s->pid);
    /* without it the end is slower, that is all */
    s->mnt_fd = openat(s->spawner->host.proc_fd, path, O_RDONLY | O_CLOEXEC);
    sandbox_move_up(&s->mnt_fd);
    /* START then waits in the socket for brig-init. Limits by rlimit can be read back only after its HELLO. */
    const struct cg_host *cg = &s->spawner->host.cg;
    if (s->run && cg_host_by(cg, CG_MEMORY) != BY_NONE && cg_host_by(cg, CG_PIDS) != BY_NONE)
        sandbox_begin(s, s->run);
}

static void setup_failed(struct sandbox *s, const struct setup_msg *msg)
{
    char what[sizeof msg->what + 1] = "";

    memcpy(what, msg->what, sizeof msg->what);
    (void)err_set(&s->failure, BRIG_E_HOST, msg->errnum, "set-up, %s%s%s",
                  setup_stage_name((enum setup_stage)msg->stage), what[0] ? ": " : "", what);
    sandbox_end(s, BRIG_CAUSE_HOST_ERROR);
}

/* No more is to come: brig-init was executed, and of a zygote's child pid 2 has checked itself. */
static void setup_over(struct sandbox *s)
{
    if (s->adopt && !s->checked && !s->job && !s->failure.code) { /* with a job open it is the zygote's end, and that is
                                                                     told */
        (void)err_set(&s->failure, BRIG_E_HOST, EPIPE, "set-up, the process of a zygote ended before its self-check");
        sandbox_end(s, BRIG_CAUSE_HOST_ERROR);
    }
    loop_remove(s->spawner->loop, &s->on_setup);
    base_close_fd(&s->setup_fd);
}

/* The child asks for its maps, or says what failed. After execve the socket is closed: HELLO comes on the other one. */
void sandbox_on_setup(struct loop_source *source, uint32_t events UNUSED)
{
    struct sandbox *s = source->ctx;
    union {
        struct setup_msg msg;
        struct setup_checked checked;
    } in;
    int fd = -1;
    size_t n_fds = 0;
    ssize_t n = fd_recv_nowait(s->setup_fd, &in, sizeof in, &fd, 1, &n_fds);

    if (n == -EAGAIN)
        return;
    take_back(s);
    if (n == (ssize_t)sizeof in.msg && in.msg.type == SETUP_MAP_ME) {
        if (n_fds) {
            s->store_fd = fd;
            sandbox_move_up(&s->store_fd);
        }
        disks_release(s); /* the mounts hold the devices now */
        if (s->pid)
            map_child(s);
        else
            s->wants_maps = true; /* a zygote's, whose answer is yet to be read */
        return;
    }
    if (n_fds)
        close(fd);
    if (n == (ssize_t)sizeof in.checked && in.checked.type == SETUP_CHECKED)
        sandbox_checked(s, &in.checked);
    else if (n == (ssize_t)sizeof in.msg && in.msg.type == SETUP_FAILED)
        setup_failed(s, &in.msg);
    setup_over(s);
}

void sandbox_on_pidfd(struct loop_source *source, uint32_t events UNUSED)
{
    struct sandbox *s = source->ctx;

    loop_remove(s->spawner->loop, &s->on_pidfd);
    take_back(s);
    /* Its last words may still be in the sockets: the end of the process is noticed first at times. */
    if (s->on_setup.fd >= 0)
        sandbox_on_setup(&s->on_setup, 0);
    if (s->on_control.fd >= 0)
        s->on_control.fn(&s->on_control, 0);
    sandbox_finish(s);
}

void sandbox_cloned(struct sandbox *s, pid_t pid, int pidfd)
{
    s->job = 0;
    s->pid = pid;
    s->pidfd = pidfd;
    sandbox_move_up(&s->pidfd);
    if (loop_add(s->spawner->loop, &s->on_pidfd, s->pidfd, EPOLLIN, &s->failure) < 0) {
        sandbox_end(s, BRIG_CAUSE_HOST_ERROR);
        sandbox_finish(s); /* nobody would tell of its end */
    } else if (s->verdict.cause != BRIG_CAUSE_MAX) {
        sandbox_end(s, s->verdict.cause); /* it was ended before there was anybody to kill */
    } else if (s->wants_maps) {
        map_child(s);
    }
}

void sandbox_not_cloned(struct sandbox *s, const struct brig_err *err)
{
    s->job = 0;
    if (!s->failure.code)
        s->failure = *err;
    cg_kill(&s->cg); /* there may be a child that it could not tell of */
    sandbox_end(s, BRIG_CAUSE_HOST_ERROR);
    sandbox_finish(s);
}

/* Bytes of brig-init, or its end. */
void sandbox_on_control(struct loop_source *source, uint32_t events UNUSED)
{
    struct sandbox *s = source->ctx;
    int fds[2] = {-1, -1};
    size_t n_fds = 0;
    size_t room = sizeof s->in - s->in_len;
    pid_t from = 0;
    ssize_t n;

    if (s->has_leaves && s->started) /* a few frames at a time: each may cost a millisecond, and others wait */
        n = service_recv(s->control_fd, s->in + s->in_len, room < CONTROL_BATCH ? room : CONTROL_BATCH, &from);
    else
        n = fd_recv_nowait(s->control_fd, s->in + s->in_len, room, fds, 2, &n_fds);
    if (n == -EAGAIN)
        return;
    if (n <= 0) {
        loop_remove(s->spawner->loop, &s->on_control); /* the pidfd tells the rest */
        if (n == -EPROTO)
            sandbox_broken(s);
        else if (n < 0)
            sandbox_end(s, BRIG_CAUSE_SANDBOX_GONE);
        return;
    }
    s->in_len += (size_t)n;
    for (;;) {
        struct frame frame;
        int used = frame_parse(s->in, s->in_len, &frame);
        if (used < 0 || (used == 0 && s->in_len == sizeof s->in)) {
            sandbox_broken(s);
            break;
        }
        if (used == 0)
            break;
        sandbox_on_frame(s, &frame, fds, n_fds, from);
        s->in_len -= (size_t)used;
        memmove(s->in, s->in + used, s->in_len);
    }
    fd_close_all(fds, 2);
}
