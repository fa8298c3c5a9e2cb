/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spool.c: two buffers that change places: one is written by a thread, the other is filled (spool.h). The data base and
 * the audit log lie on the same file system as a rule, so what strangers send never fills it.
 */
#include "template/spool.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/reserve.h"

struct spool {
    struct job job;
    struct workers *workers;
    uint64_t owner;
    int fd;
    struct buf filling, writing; /* the thread has the second one while busy */
    bool busy, dead;
    int error;
    void (*wrote)(void *ctx, size_t len, int error);
    void *ctx;
};

static void destroy(struct spool *spool)
{
    buf_done(&spool->filling);
    buf_done(&spool->writing);
    base_close_fd(&spool->fd);
    mem_free(spool);
}

static struct spool *spool_of(struct job *job)
{
    return (struct spool *)(void *)((char *)job - offsetof(struct spool, job));
}

static void work(struct job *job)
{
    struct spool *spool = spool_of(job);

    spool->error = reserve_leaves(spool->fd, spool->writing.len)
                       ? fd_write_all(spool->fd, spool->writing.data, spool->writing.len)
                       : -ENOSPC;
}

static void done(struct job *job);

static void start(struct spool *spool)
{
    struct buf full = spool->filling;

    spool->filling = spool->writing;
    spool->filling.len = 0;
    spool->writing = full;
    spool->busy = true;
    spool->job = (struct job){.work = work, .done = done};
    workers_add_bounded(spool->workers, spool->owner, &spool->job);
}

static void done(struct job *job)
{
    struct spool *spool = spool_of(job);
    const size_t len = spool->writing.len;
    const int error = spool->error;

    spool->busy = false;
    if (spool->dead) {
        destroy(spool);
        return;
    }
    spool->writing.len = 0;
    if (error == 0 && spool->filling.len > 0)
        start(spool);
    spool->wrote(spool->ctx, len, error);
}

int spool_file(int dir_fd, const char *name, int flags)
{
    AUTO_FD int fd = openat(dir_fd, name, flags | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);

    if (fd >= 0 && fchmod(fd, 0644) < 0) /* whatever the umask is */
        return -1;
    return take_fd(&fd);
}

int spool_create(struct workers *workers, const char *org, int fd, void (*wrote)(void *ctx, size_t len, int error),
                 void *ctx, struct spool **ret)
{
    struct spool *spool = mem_zalloc(sizeof *spool);

    if (!spool)
        return -ENOMEM;
    *spool = (struct spool){.workers = workers,
                            .owner = workers_owner(org),
                            .fd = fd,
                            .filling = BUF_INIT(SPOOL_MAX),
                            .writing = BUF_INIT(SPOOL_MAX),
                            .wrote = wrote,
                            .ctx = ctx};
    *ret = spool;
    return 0;
}

int spool_write(struct spool *spool, const void *data, size_t len)
{
    int r = buf_append(&spool->filling, data, len);

    if (r == 0 && !spool->busy && spool->filling.len > 0)
        start(spool);
    return r;
}

bool spool_is_idle(const struct spool *spool)
{
    return !spool->busy && spool->filling.len == 0;
}

void spool_free(struct spool *spool)
{
    if (!spool)
        return;
    spool->dead = true;
    if (!spool->busy)
        destroy(spool);
}
