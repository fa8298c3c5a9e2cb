/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_op.c: a request to the store whose answer comes later. The sandbox that it is about stays until then. A manager
 * that has been destroyed meanwhile is not called (the store delivers what it has when it is closed, which is after
 * us).
 */
#include "base/list.h"
#include "sandbox/private.h"

struct store_op *store_op_new(struct manager *manager, struct sbox *sbox, store_done_fn *done, store_rows_fn *rows,
                              void *ctx)
{
    struct store_op *op = mem_zalloc(sizeof *op);

    if (!op)
        return NULL;
    *op = (struct store_op){.manager = manager, .sbox = sbox, .done = done, .rows = rows, .ctx = ctx};
    list_push(&manager->ops, op);
    if (sbox)
        sbox->priv->pins++;
    return op;
}

/* Out of the list; the copy is what is left of it. */
static struct store_op take(struct store_op *op)
{
    struct store_op copy = *op;

    if (copy.manager)
        list_remove(&copy.manager->ops, op);
    mem_free(op);
    return copy;
}

void store_op_drop(struct store_op *op)
{
    struct store_op copy = op ? take(op) : (struct store_op){0};

    if (copy.sbox)
        copy.sbox->priv->pins--;
}

void store_op_done(void *ctx, const struct brig_err *err)
{
    struct store_op op = take(ctx);

    if (!op.manager)
        return;
    op.done(op.ctx, err);
    if (op.sbox)
        sbox_unpin(op.sbox);
}

void store_op_rows(void *ctx, const char *const *docs, const char *const *ids, size_t n, bool more,
                   const struct brig_err *err)
{
    struct store_op op = take(ctx);

    if (!op.manager)
        return;
    op.rows(op.ctx, docs, ids, n, more, err);
    if (op.sbox)
        sbox_unpin(op.sbox);
}

void store_ops_orphan(struct manager *manager)
{
    for (struct store_op *op = manager->ops, *next; op; op = next) {
        next = op->next;
        op->manager = NULL;
        op->sbox = NULL;
        op->next = op->prev = NULL;
    }
    manager->ops = NULL;
}
