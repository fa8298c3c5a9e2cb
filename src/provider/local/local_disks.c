/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_disks.c: asks the spawner about disks. Each question has a number that comes back in its answer; an answer to a
 * question of a predecessor finds nobody and is dropped.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "host/disks.h"
#include "provider/local/local.h"

#define LIST_MAX (8u << 20)

_Static_assert(DISK_NAME_SIZE == WIRE_DISK_NAME && DISK_NAME_SIZE == DISK_NAME, "one name");
_Static_assert(PROVIDER_VOLUMES_MAX == WIRE_VOLUMES_MAX, "one number of volumes");

struct disk_question {
    struct disk_question *next;
    uint64_t number;
    void (*progress)(void *ctx, uint64_t at, uint64_t of);
    void (*disk)(void *ctx, const struct disk_info *info, const struct brig_err *err); /* NULL: it is about all. */
    void (*disks)(void *ctx, const struct disk_info *disks, size_t n, const struct disk_space *space,
                  const struct brig_err *err);
    bool remove;
    void *ctx;
};

static struct local *local_of(struct provider *provider)
{
    return (struct local *)provider;
}

static int ask(struct local *local, const void *msg, const struct disk_question *asked, struct brig_err *err)
{
    if (local->gone)
        return err_set(err, BRIG_E_GONE, EPIPE, "%s", local->gone_why.message);
    if (!local->recovered)
        return err_set(err, BRIG_E_BUSY, EAGAIN, "the spawner has not answered yet");
    struct disk_question *q = mem_alloc(sizeof *q);
    if (!q)
        return err_nomem(err);
    *q = *asked;
    int r = local_send(local, msg, NULL, 0, err);
    if (r < 0) {
        mem_free(q);
        return r;
    }
    q->next = local->disk_questions;
    local->disk_questions = q;
    return 0;
}

int local_disk(struct provider *provider, const struct disk_order *order,
               void (*progress)(void *ctx, uint64_t at, uint64_t of),
               void (*done)(void *ctx, const struct disk_info *info, const struct brig_err *err), void *ctx,
               struct brig_err *err)
{
    static const enum wire_disk_op ops[] = {[DISK_MAKE] = WIRE_DISK_MAKE,
                                            [DISK_SNAP] = WIRE_DISK_SNAP,
                                            [DISK_COPY] = WIRE_DISK_COPY,
                                            [DISK_REMOVE] = WIRE_DISK_REMOVE};
    struct local *local = local_of(provider);
    const struct disk_question q = {.number = local->next_layer_number++,
                                    .progress = progress,
                                    .disk = done,
                                    .remove = order->op == DISK_REMOVE,
                                    .ctx = ctx};
    struct wire_disk msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_DISK, q.number}, .op = ops[order->op]};

    if (order->op == DISK_SNAP)
        msg.box = ((const struct local_box *)order->box)->number;
    if (order->op == DISK_MAKE) {
        msg.size = order->size;
        msg.inodes = order->inodes;
    }
    const char *from = order->op == DISK_COPY ? order->from : "";
    if (str_copy(msg.name, sizeof msg.name, order->name) < 0 || str_copy(msg.from, sizeof msg.from, from) < 0)
        return err_usage(err, "disk %s: not the name of one", msg.name[0] ? from : order->name);
    return ask(local, &msg, &q, err);
}

int local_disks(struct provider *provider,
                void (*done)(void *ctx, const struct disk_info *disks, size_t n, const struct disk_space *space,
                             const struct brig_err *err),
                void *ctx, struct brig_err *err)
{
    struct local *local = local_of(provider);
    const struct disk_question q = {.number = local->next_layer_number++, .disks = done, .ctx = ctx};
    const struct wire_plain msg = {{WIRE_MAGIC, WIRE_VERSION, WIRE_DISKS, q.number}};

    return ask(local, &msg, &q, err);
}

static struct disk_question **find(struct local *local, uint64_t number, bool one)
{
    struct disk_question **at = &local->disk_questions;

    while (*at && !((*at)->number == number && one == ((*at)->disk != NULL)))
        at = &(*at)->next;
    return at;
}

static struct disk_question *take(struct local *local, uint64_t number, bool one)
{
    struct disk_question **at = find(local, number, one), *q = *at;

    if (q)
        *at = q->next;
    return q;
}

static void fail(const struct disk_question *q, const struct brig_err *err)
{
    if (q->disk)
        q->disk(q->ctx, NULL, err);
    else
        q->disks(q->ctx, NULL, 0, NULL, err);
}

static void read_info(const struct wire_disk_info *msg, struct disk_info *ret)
{
    *ret = (struct disk_info){.size = msg->size,
                              .inodes = msg->inodes,
                              .used = msg->used,
                              .own = msg->own,
                              .writers = msg->writers,
                              .readers = msg->readers};
    memcpy(ret->name, msg->name, sizeof ret->name - 1);
}

void local_on_disk_progress(struct local *local, const struct wire_disk_progress *msg)
{
    const struct disk_question *q = *find(local, msg->head.run, true);

    if (q && q->progress)
        q->progress(q->ctx, msg->at, msg->of);
}

void local_on_disk(struct local *local, const struct wire_disk_done *msg)
{
    struct disk_question *q = take(local, msg->head.run, true);
    struct brig_err err = msg->err;
    struct disk_info info;

    if (!q)
        return;
    err.message[sizeof err.message - 1] = '\0';
    read_info(&msg->info, &info);
    if (err.code != BRIG_E_NONE)
        fail(q, &err);
    else
        q->disk(q->ctx, q->remove ? NULL : &info, NULL);
    mem_free(q);
}

static int read_list(const struct wire_disks_are *msg, const int *fds, size_t n_fds, struct disk_info **ret,
                     struct brig_err *err)
{
    AUTO_FREE char *data = NULL;
    size_t len = 0;

    if (n_fds != 1 || gate_memfd_read(fds[0], LIST_MAX, &data, &len) < 0 ||
        len != msg->n * sizeof(struct wire_disk_info))
        return err_set(err, BRIG_E_HOST, EPROTO, "the spawner's list of disks");
    struct disk_info *all = mem_realloc_array(NULL, msg->n + (size_t)1, sizeof *all);
    if (!all)
        return err_nomem(err);
    for (uint32_t i = 0; i < msg->n; i++) {
        struct wire_disk_info one;
        memcpy(&one, data + i * sizeof one, sizeof one);
        read_info(&one, &all[i]);
    }
    *ret = all;
    return 0;
}

void local_on_disks(struct local *local, const struct wire_disks_are *msg, const int *fds, size_t n_fds)
{
    static const char *const kinds[DISKS_KIND_MAX] = {
        [DISKS_CLOSED] = "", [DISKS_POOL] = "pool", [DISKS_SHARED] = "shared blocks", [DISKS_COPIES] = "copies"};
    struct disk_question *q = take(local, msg->head.run, false);
    struct brig_err err = msg->err;
    AUTO_FREE struct disk_info *all = NULL;
    const struct disk_space space = {.kind = msg->kind < DISKS_KIND_MAX ? kinds[msg->kind] : "",
                                     .size = msg->size,
                                     .used = msg->used,
                                     .reserved = msg->reserved};

    if (!q)
        return;
    err.message[sizeof err.message - 1] = '\0';
    int r = err.code != BRIG_E_NONE ? -EIO : read_list(msg, fds, n_fds, &all, &err);
    if (r < 0)
        fail(q, &err);
    else
        q->disks(q->ctx, all, msg->n, &space, NULL);
    mem_free(q);
}

void local_fail_disks(struct local *local, const struct brig_err *err)
{
    for (struct disk_question *q; (q = local->disk_questions);) {
        local->disk_questions = q->next;
        fail(q, err);
        mem_free(q);
    }
}

void local_drop_disks(struct local *local)
{
    for (struct disk_question *next; local->disk_questions; local->disk_questions = next) {
        next = local->disk_questions->next;
        mem_free(local->disk_questions);
    }
}
