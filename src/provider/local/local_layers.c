/* SPDX-License-Identifier: Apache-2.0 */
/* local_layers.c: asks the spawner about template layers. */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "provider/local/local.h"

#define LIST_MAX (8u << 20)

int local_layer(struct provider *provider, enum layer_op op, const char *name, const char *to,
                void (*done)(void *ctx, const struct brig_err *err), void *ctx, struct brig_err *err)
{
    static const enum wire_layer_op ops[] = {
        [LAYER_MAKE] = WIRE_LAYER_MAKE, [LAYER_COMMIT] = WIRE_LAYER_COMMIT, [LAYER_REMOVE] = WIRE_LAYER_REMOVE};
    struct local *local = local_of(provider);
    const struct local_question q = {
        .number = local->next_question++, .answer = WIRE_LAYER_DONE, .done.layer = done, .ctx = ctx};
    struct wire_layer msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_LAYER, q.number}, .op = ops[op]};

    if (str_copy(msg.name, sizeof msg.name, name) < 0 || str_copy(msg.to, sizeof msg.to, to ? to : "") < 0)
        return err_usage(err, "layer %s: the name is too long", msg.name[0] ? to : name);
    return local_question_ask(local, &msg, &q, err);
}

int local_layers(struct provider *provider,
                 void (*done)(void *ctx, const char *const *names, size_t n, const struct brig_err *err), void *ctx,
                 struct brig_err *err)
{
    struct local *local = local_of(provider);
    const struct local_question q = {
        .number = local->next_question++, .answer = WIRE_LAYERS_ARE, .done.layers = done, .ctx = ctx};
    const struct wire_plain msg = {{WIRE_MAGIC, WIRE_VERSION, WIRE_LAYERS, q.number}};

    return local_question_ask(local, &msg, &q, err);
}

void local_on_layer(struct local *local, const struct wire_answer *msg)
{
    struct local_question *q = local_question_take(local, &msg->head);
    struct brig_err err = msg->err;

    if (!q)
        return;
    err.message[sizeof err.message - 1] = '\0';
    q->done.layer(q->ctx, err.code == BRIG_E_NONE ? NULL : &err);
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
    struct local_question *q = local_question_take(local, &msg->head);
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
        local_question_fail(q, &err);
    else
        q->done.layers(q->ctx, names, n, NULL);
    mem_free(q);
}
