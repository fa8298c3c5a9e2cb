/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_question.c: the questions to the spawner about layers and disks that are not answered yet. Each has a number
 * that comes back in its answer; an answer to a question of a predecessor finds nobody and is dropped.
 */
#include "base/err.h"
#include "base/mem.h"
#include "provider/local/local.h"

int local_question_ask(struct local *local, const void *msg, const struct local_question *asked, struct brig_err *err)
{
    if (local->gone)
        return err_set(err, BRIG_E_GONE, EPIPE, "%s", local->gone_why.message);
    if (!local->recovered)
        return err_set(err, BRIG_E_BUSY, EAGAIN, "the spawner has not answered yet");
    struct local_question *q = mem_alloc(sizeof *q);
    if (!q)
        return err_nomem(err);
    *q = *asked;
    int r = local_send(local, msg, NULL, 0, err);
    if (r < 0) {
        mem_free(q);
        return r;
    }
    q->next = local->questions;
    local->questions = q;
    return 0;
}

static struct local_question **find(struct local *local, uint64_t number, enum wire_type answer)
{
    struct local_question **at = &local->questions;

    while (*at && !((*at)->number == number && (*at)->answer == answer))
        at = &(*at)->next;
    return at;
}

const struct local_question *local_question_find(struct local *local, uint64_t number, enum wire_type answer)
{
    return *find(local, number, answer);
}

struct local_question *local_question_take(struct local *local, const struct wire_head *head)
{
    struct local_question **at = find(local, head->run, head->type), *q = *at;

    if (q)
        *at = q->next;
    return q;
}

void local_question_fail(const struct local_question *q, const struct brig_err *err)
{
    switch (q->answer) {
    case WIRE_LAYER_DONE: q->done.layer(q->ctx, err); break;
    case WIRE_LAYERS_ARE: q->done.layers(q->ctx, NULL, 0, err); break;
    case WIRE_DISK_DONE: q->done.disk(q->ctx, NULL, err); break;
    default: q->done.disks(q->ctx, NULL, 0, NULL, err);
    }
}

void local_question_fail_all(struct local *local, const struct brig_err *err)
{
    for (struct local_question *q; (q = local->questions);) {
        local->questions = q->next;
        local_question_fail(q, err);
        mem_free(q);
    }
}

void local_question_drop_all(struct local *local)
{
    for (struct local_question *next; local->questions; local->questions = next) {
        next = local->questions->next;
        mem_free(local->questions);
    }
}
