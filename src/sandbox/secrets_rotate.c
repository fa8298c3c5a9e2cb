/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secrets_rotate.c: every secret that is under another key than the current one is sealed again, a few at a time while
 * the service goes on. Names are taken down once; each is looked up again when its turn comes (secrets_reseal()), so
 * that what was set or deleted meanwhile stays so. One that does not open is counted and told, and stays as it is.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "sandbox/secrets_priv.h"

#define ROTATE_AT_ONCE 16u

struct name {
    char org[64], name[SECRET_NAME_MAX];
};

struct rotation {
    struct secrets *secrets;
    secrets_rotated_fn *done;
    void *ctx;
    struct name *names;
    size_t n, next, under_way;
    uint64_t resealed, failed;
    struct brig_err first;
};

static void rotation_free(struct rotation *rotation)
{
    mem_free(rotation->names);
    mem_free(rotation);
}

static void count_failure(struct rotation *rotation, const struct brig_err *err)
{
    if (rotation->failed++ == 0)
        rotation->first = *err;
}

static void end(struct rotation *rotation)
{
    struct brig_err err = {0};

    if (rotation->failed)
        (void)err_set(&err, (enum brig_code)rotation->first.code, 0, "%llu of secret could not be sealed again: %.300s",
                      (unsigned long long)rotation->failed, rotation->first.message);
    rotation->done(rotation->ctx, rotation->resealed, rotation->failed ? &err : NULL);
    rotation_free(rotation);
}

static void go_on(struct rotation *rotation);

static void on_resealed(void *ctx, const struct brig_err *err)
{
    struct rotation *rotation = ctx;

    rotation->under_way--;
    if (err)
        count_failure(rotation, err);
    else
        rotation->resealed++;
    go_on(rotation);
}

static void go_on(struct rotation *rotation)
{
    while (rotation->next < rotation->n && rotation->under_way < ROTATE_AT_ONCE) {
        const struct name *name = &rotation->names[rotation->next++];
        struct brig_err err = {0};
        int r = secrets_reseal(rotation->secrets, name->org, name->name, on_resealed, rotation, &err);
        if (r < 0)
            count_failure(rotation, &err);
        else if (r == 0)
            rotation->under_way++;
    }
    if (rotation->under_way == 0)
        end(rotation);
}

static void on_turn(void *ctx, const struct brig_err *err)
{
    (void)err; /* there was nothing to delete */
    go_on(ctx);
}

int secrets_rotate(struct secrets *secrets, secrets_rotated_fn *done, void *ctx, struct brig_err *err)
{
    struct rotation *rotation = mem_zalloc(sizeof *rotation);

    if (!rotation)
        return err_nomem(err);
    *rotation = (struct rotation){
        .secrets = secrets, .done = done, .ctx = ctx, .names = mem_alloc((secrets->n + 1) * sizeof(struct name))};
    int r = !rotation->names             ? err_nomem(err)
            : secrets_can_store(secrets) ? 0
                                         : err_set(err, BRIG_E_CONFLICT, 0, "no key to seal secrets with");
    for (size_t i = 0; i < secrets->n && r == 0; i++) {
        const struct entry *entry = secrets->entries[i];
        if (str_eq(entry->sealed.key_id, secrets->ring ? keyring_current(secrets->ring) : KEY_ID_PLAIN))
            continue;
        memcpy(rotation->names[rotation->n].org, entry->info.org_id, sizeof rotation->names->org);
        memcpy(rotation->names[rotation->n++].name, entry->info.name, sizeof rotation->names->name);
    }
    if (r == 0) /* nobody's: only for a turn of the loop */
        r = store_delete_object(secrets->store, "secret", "-", "-", on_turn, rotation, err);
    if (r < 0)
        rotation_free(rotation);
    return r;
}
