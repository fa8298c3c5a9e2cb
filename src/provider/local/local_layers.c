/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_layers.c: asks the spawner about template layers. Each question has a number that comes back in its answer; an
 * answer to a question of a predecessor finds nobody and is dropped.
 */
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "provider/local/local.h"

#define LIST_MAX (8u << 20)

struct layer_question {
    struct layer_question *next;
    uint64_t number;
    void (*layer)(void *ctx, const struct brig_err *err); /* NULL: it is about all of them. */
    void (*layers)(void *ctx, const char *const *names, size_t n, const struct brig_err *err);
    void *ctx;
};

static struct local *local_of(struct provider *provider)
{
    return (struct local *)provider;
}

static int ask(struct local *local, const void *msg, const struct layer_question *asked, struct brig_err *err)
{
    if (local->gone)
        return err_set(err, BRIG_E_GONE, EPIPE, "%s", local->gone_why.message);
    if (!local->recovered)
        return err_set(err, BRIG_E_BUSY, EAGAIN, "the spawner has not answered yet");
    struct layer_question *q = mem_alloc(sizeof *q);
    if (!q)
        return err_nomem(err);
    *q = *asked;
    int r = local_send(local, msg, NULL, 0, err);
    if (r < 0) {
        mem_free(q);
        return r;
    }
    q->next = local->layer_questions;
    local->layer_questions = q;
    return 0;
}

int local_layer(struct provider *provider, enum layer_op op, const char *name, const char *to,
                void (*done)(void *ctx, const struct brig_err *err), void *ctx, struct brig_err *err)
{
    static const enum wire_layer_op ops[] = {
        [LAYER_MAKE] = WIRE_LAYER_MAKE, [LAYER_COMMIT] = WIRE_LAYER_COMMIT, [LAYER_REMOVE] = WIRE_LAYER_REMOVE};
    struct local *local = local_of(provider);
    const struct layer_question q = {.number = local->next_layer_number++, .layer = done, .ctx = ctx};
    struct wire_layer msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_LAYER, q.number}, .op = ops[op]};

    if (str_copy(msg.name, sizeof msg.name, name) < 0 || str_copy(msg.to, sizeof msg.to, to ? to : "") < 0)
        return err_usage(err, "layer %s: the name is too long", msg.name[0] ? to : name);
    return ask(local, &msg, &q, err);
}

int local_layers(struct provider *provider,
                 void (*done)(void *ctx, const char *const *names, size_t n, const struct brig_err *err), void *ctx,
                 struct brig_err *err)
{
    struct local *local = local_of(provider);
    const struct layer_question q = {.number = local->next_layer_number++, .layers = done, .ctx = ctx};
    const struct wire_plain msg = {{WIRE_MAGIC, WIRE_VERSION, WIRE_LAYERS, q.number}};

    return ask(local, &msg, &q, err);
}

static struct layer_question *take(struct local *local, uint64_t number, bool one)
{
    for (struct layer_question **at = &local->layer_questions; *at; at = &(*at)->next)
        if ((*at)->number == number && one == ((*at)->layer != NULL)) {
            struct layer_question *q = *at;
            *at = q->next;
            return q;
        }
    return NULL;
}

static void fail(const struct layer_question *q, const struct brig_err *err)
{
    if (q->layer)
        q->layer(q->ctx, err);
    else
        q->layers(q->ctx, NULL, 0, err);
}

void local_on_layer(struct local *local, const struct wire_answer *msg)
{
    struct layer_question *q = take(local, msg->head.run, true);
    struct brig_err err = msg->err;

    if (!q)
        return;
    err.message[sizeof err.message - 1] = '\0';
    q->layer(q->ctx, err.code == BRIG_E_NONE ? NULL : &err);
    mem_free(q);
}

/* The names of the text, each with its NUL. */
static int split(const char *text, size_t len, const char ***ret, size_t *ret_n, struct brig_err *err)
{
    size_t n = 0;

    if (len > 0 && text[len - 1] != '\0')
        return err_set(err, BRIG_E_HOST, EPROTO, "the spawner's list of layers");
    for (size_t i = 0; i < len; i++)
        n += text[i] == '\0';
    const char **names = mem_realloc_array(NULL, n + 1, sizeof *names);
    if (!names)
        return err_nomem(err);
    for (size_t i = 0; i < n; i++, text += strlen(text) + 1)
        names[i] = text;
    *ret = names;
    *ret_n = n;
    return 0;
}

void local_on_layers(struct local *local, const struct wire_layers_are *msg, const int *fds, size_t n_fds)
{
    struct layer_question *q = take(local, msg->head.run, false);
    struct brig_err err = msg->err;
    AUTO_FREE char *text = NULL;
    AUTO_FREE const char **names = NULL;
    size_t len = 0, n = 0;
    int r = 0;

    if (!q)
        return;
    err.message[sizeof err.message - 1] = '\0';
    if (err.code != BRIG_E_NONE)
        r = -EIO;
    else if (n_fds != 1 || gate_memfd_read(fds[0], LIST_MAX, &text, &len) < 0 || len != msg->len)
        r = err_set(&err, BRIG_E_HOST, EPROTO, "the spawner's list of layers");
    else
        r = split(text, len, &names, &n, &err);
    if (r < 0)
        fail(q, &err);
    else
        q->layers(q->ctx, names, n, NULL);
    mem_free(q);
}

void local_fail_layers(struct local *local, const struct brig_err *err)
{
    for (struct layer_question *q; (q = local->layer_questions);) {
        local->layer_questions = q->next;
        fail(q, err);
        mem_free(q);
    }
}

void local_drop_layers(struct local *local)
{
    for (struct layer_question *next; local->layer_questions; local->layer_questions = next) {
        next = local->layer_questions->next;
        mem_free(local->layer_questions);
    }
}
