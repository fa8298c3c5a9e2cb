/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_work.c: a process that does one thing with disks (disk_work.h). It is a copy of the spawner, and first lets go
 * of all that it does not need. A control socket held here would keep a sandbox from noticing its end. A lock, or the
 * reaper's socket, would outlive a spawner that was killed for as long as this process sleeps in a mount or a sync,
 * where no signal ends it.
 */
#include "spawner/disk_work.h"

#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"
#include "gate/gate_wire.h"
#include "jail/sys.h"

#define LIST_MAX (8u << 20)
#define TELL_STEP (UINT64_C(16) << 20)

struct talk {
    int sock;
    uint64_t told;
};

/* A spawner that is gone does not listen; then neither does anybody else want the result. */
static void say(int sock, const struct disk_say *msg, const int *fds, size_t n_fds)
{
    if (fd_send(sock, msg, sizeof *msg, fds, n_fds) < 0)
        _exit(1);
}

static void tell(void *ctx, uint64_t at, uint64_t of)
{
    struct talk *talk = ctx;
    const struct disk_say msg = {.type = SAY_PROGRESS, .at = at, .of = of};

    if (at < talk->told + TELL_STEP && at < of)
        return;
    talk->told = at;
    say(talk->sock, &msg, NULL, 0);
}

/* The list of all disks in a memfd. */
static int list(const struct disk_store *store, struct disk_say *msg)
{
    AUTO_BUF struct buf all = BUF_INIT(LIST_MAX);
    int r = disks_measure(store, &all, &msg->used, &msg->err);

    if (r < 0)
        return r;
    int fd = gate_memfd("disks", all.data, all.len);
    msg->n = (uint32_t)(all.len / sizeof(struct disk_facts));
    return fd < 0 ? err_set(&msg->err, BRIG_E_HOST, -fd, "memfd") : fd;
}

static int begin(struct host *host, struct disk_say *msg, int fds[DISK_OPEN_FDS + 1])
{
    struct disk_store *store = &host->disks;
    int r = disks_begin(host, store, &msg->err);

    if (r < 0)
        return r;
    const int all[DISK_OPEN_FDS] = {store->fd, store->mount_fd, store->pool_fd, store->loop_fd};
    int n = 0;
    for (unsigned i = 0; i < DISK_OPEN_FDS; i++)
        if (all[i] >= 0) {
            msg->opened |= 1u << i;
            fds[n++] = all[i];
        }
    msg->kind = store->kind;
    str_assign(msg->why, store->why);
    fds[n] = list(store, msg);
    return fds[n] < 0 ? fds[n] : n + 1;
}

/* Not the lock of the place of disks: see above. */
static void keep_needed(const struct host *host, const struct cg *cg, int mount_fd, int sock)
{
    const struct disk_store *store = &host->disks;
    const int needed[] = {
        STDIN_FILENO,          STDOUT_FILENO, STDERR_FILENO, host->mnt_fd,    host->root_fd,
        host->loop_control_fd, store->dir_fd, store->fd,     store->mount_fd, store->pool_fd,
        store->loop_fd,        sock,          mount_fd,      cg->v2_fd,
    };
    int keep[ARRAY_SIZE(needed) + CG_HIERARCHIES];

    memcpy(keep, needed, sizeof needed);
    memcpy(keep + ARRAY_SIZE(needed), cg->v1_fd, sizeof cg->v1_fd);
    fd_keep_only(keep, ARRAY_SIZE(keep));
}

static int snap(const struct host *host, const struct disk_work *work, const struct sandbox *box, struct cg *cg,
                int mount_fd, struct talk *talk, struct disk_say *msg)
{
    const struct disk_teller teller = {tell, talk};
    const struct disk_snap what = {.name = work->name,
                                   .from = box->run->disk,
                                   .device = box->image.node,
                                   .memory = box->store == STORE_MEMORY,
                                   .first_id = box->ids.root,
                                   .mount_fd = mount_fd,
                                   .cg = cg,
                                   .stays_frozen = box->frozen,
                                   .lasting = work->lasting,
                                   .size = box->limits.disk,
                                   .inodes = box->limits.inodes};

    return disk_snap(host, &host->disks, &what, &teller, &msg->made, &msg->err);
}

static int prepare_run(const struct host *host, const struct disk_work *work, struct talk *talk, struct disk_say *msg)
{
    const struct disk_teller teller = {tell, talk};
    const struct run_spec *run = work->run;
    int r = 0;

    for (unsigned i = 0; r == 0 && i < run->n_volumes; i++)
        r = disk_prepare(host, &host->disks, run->volumes[i].disk, run->volumes[i].read_only, &msg->err);
    if (r < 0 || !run->disk)
        return r;
    if (work->takes)
        return disk_take(&host->disks, run->disk, run->disk_from, &msg->made, &msg->err);
    return run->disk_from ? disk_copy(&host->disks, run->disk, run->disk_from, &teller, &msg->made, &msg->err)
                          : disk_make(host, &host->disks, run->disk, run->limits.disk, run->limits.inodes, false,
                                      &msg->made.facts, &msg->err);
}

/*
 * The last one who has the pool open unmounts it, which takes a while. A pool without a name would lose what is put
 * into it, so the spawner lets go of it first; if this process dies, the pool is still there.
 */
static int close_pool(struct disk_store *store, int sock, struct disk_say *msg)
{
    const struct disk_say let_go = {.type = SAY_LET_GO};
    char none;

    if (!pool_is_empty(store))
        return err_set(&msg->err, BRIG_E_CONFLICT, 0, "pool of disks: it is not empty");
    say(sock, &let_go, NULL, 0);
    if (RETRY(read(sock, &none, sizeof none)) != 0)
        return err_host(&msg->err, "pool of disks");
    return pool_remove(store, &msg->err);
}

static int do_it(struct host *host, const struct disk_work *work, struct talk *talk, struct disk_say *msg)
{
    struct disk_store *store = &host->disks;

    switch (work->task) {
    case TASK_CLOSE: return close_pool(store, talk->sock, msg);
    case TASK_GROW: return disks_grow(store, work->grow_to, &msg->err);
    case TASK_MAKE:
        return disk_make(host, store, work->name, work->size, work->inodes, true, &msg->made.facts, &msg->err);
    case TASK_REMOVE: return disk_remove(store, work->name, &msg->err);
    case TASK_TIDY: return disk_tidy(store, work->name, &msg->err);
    case TASK_RUN: return prepare_run(host, work, talk, msg);
    default: return err_set(&msg->err, BRIG_E_HOST, EINVAL, "work on disks");
    }
}

static _Noreturn void child(struct spawner *spawner, const struct disk_work *work, int sock, pid_t parent)
{
    struct host *host = &spawner->host;
    struct disk_say msg = {.type = SAY_DONE};
    struct talk talk = {.sock = sock};
    struct cg cg = CG_INIT;
    int mount_fd = -1, fds[DISK_OPEN_FDS + 1], n = 0;

    prctl(PR_SET_NAME, "brig-disk");
    if (work->box) {
        cg = work->box->cg;
        mount_fd = work->box->store_fd;
    }
    keep_needed(host, &cg, mount_fd, sock);
    if (!sys_die_with(parent))
        _exit(1);
    if (work->task == TASK_BEGIN)
        n = begin(host, &msg, fds);
    else if (work->task == TASK_MEASURE)
        n = (fds[0] = list(&host->disks, &msg)) < 0 ? fds[0] : 1;
    else if (work->task == TASK_SNAP)
        n = snap(host, work, work->box, &cg, mount_fd, &talk, &msg);
    else
        n = do_it(host, work, &talk, &msg);
    /* If the sandbox has ended, this unmounts its store: not while the spawner waits for our end. */
    base_close_fd(&mount_fd);
    if (n < 0 && msg.err.code == BRIG_E_NONE)
        (void)err_set(&msg.err, BRIG_E_HOST, -n, "work on disks");
    say(sock, &msg, fds, n > 0 ? (size_t)n : 0);
    _exit(0);
}

int disk_work_start(struct spawner *spawner, const struct disk_work *work, pid_t *ret_pid, int *ret_sock,
                    struct brig_err *err)
{
    int pair[2];
    pid_t self = getpid();

    if (SYS(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) < 0)
        return err_host(err, "socketpair");
    AUTO_FD int ours = pair[0];
    AUTO_FD int theirs = pair[1];
    pid_t pid = SYS(fork());
    if (pid < 0)
        return err_host(err, "process for disks");
    if (pid == 0)
        child(spawner, work, theirs, self);
    *ret_pid = pid;
    *ret_sock = take_fd(&ours);
    sandbox_move_up(ret_sock);
    return 0;
}
