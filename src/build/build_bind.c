/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_bind.c: RUN --mount=type=bind. Theory of operation: what is bound is copied, as COPY would, into a layer of its
 * own that hides what the image has at the target. The sandbox of the RUN has these layers on top of the stage's, and
 * each target is mounted read-only over itself; with `rw` it is not, and what is written there is left out of the layer
 * that the RUN makes. So owners and modes are right, rootless too, and nothing of the host is mounted anywhere.
 *
 *     a key for each bind (of a context a thread makes it) -> the key of the RUN, of which they are a part
 *     -> if the RUN is not in the cache: a layer for each bind, from the cache or made -> the RUN
 *
 * The layers stand in stage->layers while the sandbox is made, then only their holds stay, until the build is over.
 */
#include <string.h>

#include "build/build_priv.h"

struct binding {
    const struct dockerfile_step *step;
    struct run_spec spec;
    size_t n, at; /* at: the one whose key or layer is made */
    struct copy_bind binds[MOUNTS_MAX];
    struct copying *copies[MOUNTS_MAX];
    char keys[MOUNTS_MAX][BUILD_STEP_KEY];
    char run_key[BUILD_STEP_KEY];
    size_t n_below; /* the layers of the stage itself */
};

static bool is_bind(struct build *build, const struct dockerfile_step *step, size_t flag, struct build_mount *ret)
{
    return str_eq(step->flags[flag].name, "mount") &&
           mount_read(build, step, step->flags[flag].value ? step->flags[flag].value : "", ret, NULL) == 0 &&
           ret->kind == MOUNT_BIND;
}

bool binds_any(struct build *build, const struct dockerfile_step *step)
{
    struct build_mount mount;

    for (size_t i = 0; i < step->n_flags; i++)
        if (is_bind(build, step, i, &mount))
            return true;
    return false;
}

/* ---- keys ---------------------------------------- */

void binds_key(const struct build_stage *stage, struct build_key *key)
{
    for (size_t i = 0; stage->binding && i < stage->binding->n; i++)
        key_text(key, "bound", stage->binding->keys[i]);
}

static int next_key(struct build_stage *stage, struct brig_err *err)
{
    struct binding *binding = stage->binding;

    while (binding->at < binding->n) {
        const size_t at = binding->at;
        binding->binds[at].above = at > 0 ? binding->keys[at - 1] : "";
        int r = copy_bind(stage, binding->step, &binding->binds[at], &binding->copies[at], err);
        if (r != 0)
            return r;
        str_assign(binding->keys[binding->at++], stage->key);
    }
    return run_with_key(stage, binding->step, &binding->spec, err);
}

int binds_keyed(struct build_stage *stage, struct brig_err *err)
{
    str_assign(stage->binding->keys[stage->binding->at++], stage->key);
    return next_key(stage, err);
}

int binds_start(struct build_stage *stage, const struct dockerfile_step *step, const struct run_spec *spec,
                struct brig_err *err)
{
    struct build *build = stage->build;
    struct binding *binding = arena_alloc(build->arena, sizeof *binding);
    struct build_mount mount;

    if (!binding)
        return err_nomem(err);
    *binding = (struct binding){.step = step, .spec = *spec};
    for (size_t i = 0; i < step->n_flags; i++) {
        if (!is_bind(build, step, i, &mount))
            continue;
        if (binding->n == MOUNTS_MAX)
            return step_refuse(err, step, "more than %u mounts", MOUNTS_MAX);
        const size_t from = plan_from(build, step, i + 1);
        binding->binds[binding->n++] =
            (struct copy_bind){.source = mount.source && mount.source[0] ? mount.source : "/",
                               .target = mount.target,
                               .from = from < build->n_stages ? &build->stages[from] : NULL};
    }
    stage->binding = binding;
    return next_key(stage, err);
}

/* ---- layers ---------------------------------------- */

/* The sandbox has taken the names: the stage goes on without these layers, which stay held. */
static int put_aside(struct build_stage *stage, struct brig_err *err)
{
    for (size_t i = stage->binding->n_below; i < stage->n_layers; i++) {
        const char *name = build_keep(stage->build, stage->layers[i].name);
        if (!name || list_add(stage->build, &stage->bound, name) < 0)
            return err_nomem(err);
    }
    stage->n_layers = stage->binding->n_below;
    stage->binding = NULL;
    return 1;
}

static int next_layer(struct build_stage *stage, struct brig_err *err)
{
    struct binding *binding = stage->binding;

    for (; binding->at < binding->n; binding->at++) {
        str_assign(stage->key, binding->keys[binding->at]);
        if (!stage_take(stage))
            return copy_make(stage, binding->copies[binding->at], err);
    }
    str_assign(stage->key, binding->run_key);
    int r = run_now(stage, binding->step, &binding->spec, err);
    return r < 0 ? r : put_aside(stage, err);
}

int binds_make(struct build_stage *stage, struct brig_err *err)
{
    struct binding *binding = stage->binding;

    str_assign(binding->run_key, stage->key);
    binding->n_below = stage->n_layers;
    binding->at = 0;
    return next_layer(stage, err);
}

int binds_made(struct build_stage *stage, struct brig_err *err)
{
    stage->binding->at++;
    return next_layer(stage, err);
}
