/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_plan.c: the front end for Dockerfiles. The text becomes stages with their steps; what a stage is made from is
 * known afterwards, and everything that is not supported is refused with its line, before anything runs. Variables of
 * steps are replaced when their turn comes, since they depend on the image below.
 */
#include <string.h>
#include <strings.h>

#include "base/parse.h"
#include "build/build_priv.h"
#include "template/platform.h"

/* The stage of this name or number among those before `before`; n_stages if there is none. */
static size_t find_stage(const struct build *build, const char *name, size_t before)
{
    uint64_t number;

    for (size_t i = before; i-- > 0;)
        if (build->stages[i].name[0] && strcasecmp(build->stages[i].name, name) == 0)
            return i;
    return parse_u64(name, &number) == 0 && number < before ? (size_t)number : build->n_stages;
}

/* ---- arguments before the first FROM ---------------------------------------- */

static int global_arg(struct build *build, const struct dockerfile_step *step, struct brig_err *err)
{
    for (size_t i = 0; i < step->n_pairs; i++) {
        const struct dockerfile_pair *pair = &step->pairs[i];
        const char *value = list_get(&build->args, pair->name, strlen(pair->name));

        if (value && list_add(build, &build->args_used, pair->name) < 0)
            return err_nomem(err);
        if (!value && pair->value) {
            int r = build_expand_global(build, step, pair->value, &value, err);
            if (r < 0)
                return r;
        }
        if (value && list_set(build, &build->globals, pair->name, value) < 0)
            return err_nomem(err);
    }
    return 0;
}

/* ---- stages ---------------------------------------- */

/* The machine is what it is: only its own platform can be built for. */
static int check_platform(struct build *build, const struct dockerfile_step *step, struct brig_err *err)
{
    const char *flag = step_flag(step, "platform"), *text;
    struct platform asked, host;

    if (!flag)
        return 0;
    int r = build_expand_global(build, step, flag, &text, err);
    if (r < 0)
        return r;
    platform_host(&host);
    if (platform_parse(text, &asked, NULL) < 0 || platform_fit(&asked, &host) == 0)
        return step_refuse(err, step, "--platform=%.64s: this machine runs no programs of that platform", text);
    return 0;
}

static int find_base(struct build_stage *stage, struct brig_err *err)
{
    struct build *build = stage->build;
    const struct dockerfile_step *from = stage->from;

    if (!stage->base[0])
        return step_refuse(err, from, "%.64s: expected an image, but it is empty", from->words[0]);
    stage->base_stage = find_stage(build, stage->base, stage->index);
    if (str_eq(stage->base, "scratch"))
        stage->kind = BASE_SCRATCH;
    else if (stage->base_stage < build->n_stages && !(stage->base[0] >= '0' && stage->base[0] <= '9'))
        stage->kind = BASE_STAGE;
    else if (str_eq(stage->base, "host"))
        return step_refuse(err, from,
                           "host is this machine's /usr and has no layers; use an image or a template with layers");
    else
        stage->kind = BASE_TEMPLATE;
    return 0;
}

static int add_stage(struct build *build, const struct dockerfile_step *step, struct brig_err *err)
{
    struct build_stage *stage = &build->stages[build->n_stages];
    const char *base;

    if (build->n_stages == BUILD_STAGES_MAX)
        return step_refuse(err, step, "more than %u stages", BUILD_STAGES_MAX);
    int r = build_expand_global(build, step, step->words[0], &base, err);
    if (r == 0)
        r = check_platform(build, step, err);
    if (r < 0)
        return r;
    *stage = (struct build_stage){.build = build,
                                  .index = build->n_stages,
                                  .name = step->n_words == 3 ? step->words[2] : "",
                                  .from = step,
                                  .base = base,
                                  .steps = step + 1};
    if (stage->name[0] && find_stage(build, stage->name, build->n_stages) < build->n_stages)
        return step_refuse(err, step, "there is a stage %.64s already", stage->name);
    r = find_base(stage, err);
    build->n_stages += r == 0;
    return r;
}

/* ---- what can be checked before anything runs ---------------------------------------- */

static int check_run(const struct dockerfile_step *step, struct brig_err *err)
{
    const char *network = step_flag(step, "network");

    if (step_flag(step, "mount"))
        return step_refuse(err, step, "--mount is not supported");
    if (!network || str_eq(network, "default") || str_eq(network, "none"))
        return 0;
    return str_eq(network, "host")
               ? step_refuse(err, step, "--network=host: a build never gets the host's network; use none or default")
               : step_refuse(err, step, "--network=%.32s: expected none or default", network);
}

static int check_step(const struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    switch (step->op) {
    case DOCKERFILE_RUN:
        if (stage->kind == BASE_SCRATCH && step == stage->steps)
            return step_refuse(err, step, "FROM scratch has no program to run");
        return check_run(step, err);
    case DOCKERFILE_COPY:
    case DOCKERFILE_ADD: return step_refuse(err, step, "is not supported");
    default: return 0;
    }
}

static int check_steps(const struct build *build, struct brig_err *err)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < build->n_stages; i++)
        for (size_t k = 0; r == 0 && k < build->stages[i].n_steps; k++)
            r = check_step(&build->stages[i], &build->stages[i].steps[k], err);
    return r;
}

/* ---- what the target needs ---------------------------------------- */

bool plan_needs_context(const struct build *build UNUSED)
{
    return false;
}

static void need(struct build *build, size_t index)
{
    struct build_stage *stage = &build->stages[index];

    if (stage->needed)
        return;
    stage->needed = true;
    build->n_steps += stage->n_steps + 1; /* and its FROM */
    if (stage->kind == BASE_STAGE)
        need(build, stage->base_stage); /* an earlier one: this ends */
}

static int choose_goal(struct build *build, struct brig_err *err)
{
    build->goal = build->n_stages - 1;
    if (build->target)
        build->goal = find_stage(build, build->target, build->n_stages);
    if (build->goal == build->n_stages)
        return err_usage(err, "target %.64s: the Dockerfile has no such stage", build->target);
    need(build, build->goal);
    return 0;
}

int build_plan(struct build *build, struct brig_err *err)
{
    size_t n = 0;
    int r = dockerfile_read(build->text, build->text_len, &build->file, err);
    const struct dockerfile_step *steps = r == 0 ? dockerfile_steps(build->file, &n) : NULL;

    build->stages = arena_alloc(build->arena, BUILD_STAGES_MAX * sizeof *build->stages);
    if (r == 0 && !build->stages)
        r = err_nomem(err);
    for (size_t i = 0; r == 0 && i < n; i++) {
        if (steps[i].op == DOCKERFILE_FROM)
            r = add_stage(build, &steps[i], err);
        else if (build->n_stages == 0)
            r = global_arg(build, &steps[i], err); /* the reader lets nothing else stand there */
        else
            build->stages[build->n_stages - 1].n_steps++;
    }
    if (r == 0)
        r = check_steps(build, err);
    return r == 0 ? choose_goal(build, err) : r;
}
