/* SPDX-License-Identifier: Apache-2.0 */
/* local_disks.c: asks the spawner about disks. */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "host/disks.h"
#include "provider/local/local.h"

#define LIST_MAX (8u << 20)

_Static_assert(DISK_NAME_SIZE == WIRE_DISK_NAME && DISK_NAME_SIZE == DISK_NAME, "one name");
_Static_assert(PROVIDER_VOLUMES_MAX == WIRE_VOLUMES_MAX, "one number of volumes");

int local_disk(struct provider *provider, const struct disk_order *order,
               void (*progress)(void *ctx, uint64_t at, uint64_t of),
               void (*done)(void *ctx, const struct disk_info *info, const struct brig_err *err), void *ctx,
               struct brig_err *err)
{
    static const enum wire_disk_op ops[] = {
        [DISK_MAKE] = WIRE_DISK_MAKE, [DISK_SNAP] = WIRE_DISK_SNAP, [DISK_REMOVE] = WIRE_DISK_REMOVE};
    struct local *local = local_of(provider);
    const struct local_question q = {.number = local->next_question++,
                                     .answer = WIRE_DISK_DONE,
                                     .done.disk = done,
                                     .progress = progress,
                                     .remove = order->op == DISK_REMOVE,
                                     .ctx = ctx};
    struct wire_disk msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_DISK, q.number}, .op = ops[order->op]};

    if (order->op == DISK_SNAP) {
        msg.box = ((const struct local_box *)order->box)->number;
        msg.uses = order->uses;
    }
    if (order->op == DISK_MAKE) {
        msg.size = order->size;
        msg.inodes = order->inodes;
    }
    if (str_copy(msg.name, sizeof msg.name, order->name) < 0)
        return err_usage(err, "disk %s: not the name of one", order->name);
    return local_question_ask(local, &msg, &q, err);
}

int local_disks(struct provider *provider,
                void (*done)(void *ctx, const struct disk_info *disks, size_t n, const struct disk_space *space,
                             const struct brig_err *err),
                void *ctx, struct brig_err *err)
{
    struct local *local = local_of(provider);
    const struct local_question q = {
        .number = local->next_question++, .answer = WIRE_DISKS_ARE, .done.disks = done, .ctx = ctx};
    const struct wire_plain msg = {{WIRE_MAGIC, WIRE_VERSION, WIRE_DISKS, q.number}};

    return local_question_ask(local, &msg, &q, err);
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
    const struct local_question *q = local_question_find(local, msg->head.run, WIRE_DISK_DONE);

    if (q && q->progress)
        q->progress(q->ctx, msg->at, msg->of);
}

void local_on_disk(struct local *local, const struct wire_disk_done *msg)
{
    struct local_question *q = local_question_take(local, &msg->head);
    struct brig_err err = msg->err;
    struct disk_info info;

    if (!q)
        return;
    err.message[sizeof err.message - 1] = '\0';
    read_info(&msg->info, &info);
    if (err.code != BRIG_E_NONE)
        local_question_fail(q, &err);
    else
        q->done.disk(q->ctx, q->remove ? NULL : &info, NULL);
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
    struct local_question *q = local_question_take(local, &msg->head);
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
        local_question_fail(q, &err);
    else
        q->done.disks(q->ctx, all, msg->n, &space, NULL);
    mem_free(q);
}
