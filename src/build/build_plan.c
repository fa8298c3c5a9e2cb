/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_plan.c: the front end for Dockerfiles. The text becomes stages with their steps; what a stage is made from is
 * known afterwards, and everything that is not supported is refused with its line, before anything runs. Variables of
 * steps are replaced when their turn comes, since they depend on the image below.
 */
#include <string.h>
#include <strings.h>

#include "base/parse.h"
#include "base/ascii.h"
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
    int r = step_count(build, step, err);

    if (r == 0 && build->globals.n > TEMPLATE_ENV_MAX)
        r = step_refuse(err, step, "%zu of them, and at most %u are allowed", build->globals.n, TEMPLATE_ENV_MAX);
    if (r < 0)
        return r;
    for (size_t i = 0; i < step->n_pairs; i++) {
        const struct dockerfile_pair *pair = &step->pairs[i];
        const char *value = list_get(&build->args, pair->name, strlen(pair->name));

        if (value && list_add(build, &build->args_used, pair->name) < 0)
            return err_nomem(err);
        if (!value && pair->value) {
            r = build_expand_global(build, step, pair->value, &value, err);
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

static int check_suite(struct build_stage *stage, struct brig_err *err)
{
    const char *suite = stage->base + strlen(DEBIAN_MIRROR);

    if (!str_is_name(suite, strlen(suite), ASCII_ALNUM, ASCII_ALNUM ".-") || strlen(suite) > 63)
        return step_refuse(err, stage->from, "%.64s: expected the name of a suite, such as " DEBIAN_MIRROR "bookworm",
                           stage->base);
    stage->kind = BASE_DEBIAN;
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
    else if (str_starts(stage->base, DEBIAN_MIRROR))
        return check_suite(stage, err);
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

static int add_from(struct build_stage *stage, const struct dockerfile_step *step, const char *name, size_t mount,
                    struct brig_err *err);

static int check_mounts(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    struct build_mount mount;
    int r = 0;

    for (size_t i = 0; r == 0 && i < step->n_flags; i++) {
        if (!str_eq(step->flags[i].name, "mount"))
            continue;
        r = mount_read(stage->build, step, step->flags[i].value ? step->flags[i].value : "", &mount, err);
        if (r == 0 && mount.kind == MOUNT_BIND && !mount.from)
            stage->binds_context = true;
        if (r == 0 && mount.from)
            r = add_from(stage, step, mount.from, i + 1, err);
    }
    return r;
}

static int check_run(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    const char *network = step_flag(step, "network");
    int r = check_mounts(stage, step, err);

    if (r < 0)
        return r;
    if (!network || str_eq(network, "default") || str_eq(network, "none"))
        return 0;
    return str_eq(network, "host")
               ? step_refuse(err, step, "--network=host: a build never gets the host's network; use none or default")
               : step_refuse(err, step, "--network=%.32s: expected none or default", network);
}

/* An image that is copied from is a stage without steps. */
static int add_image(struct build *build, const struct dockerfile_step *step, const char *name, size_t *ret,
                     struct brig_err *err)
{
    struct dockerfile_step *from = arena_alloc(build->arena, sizeof *from);
    char written[256];

    for (size_t i = build->n_written; i < build->n_stages; i++)
        if (str_eq(build->stages[i].base, name)) {
            *ret = i;
            return 0;
        }
    if (build->n_stages == BUILD_STAGES_MAX)
        return step_refuse(err, step, "more than %u stages", BUILD_STAGES_MAX);
    if (str_format(written, sizeof written, "FROM %s", name) < 0)
        return step_refuse(err, step, "--from=%.64s: the name is too long", name);
    if (!from)
        return err_nomem(err);
    *from = (struct dockerfile_step){
        .op = DOCKERFILE_FROM, .line = step->line, .written = build_keep(build, written), .words = NULL};
    struct build_stage *stage = &build->stages[build->n_stages];
    *stage = (struct build_stage){
        .build = build, .index = build->n_stages, .name = "", .from = from, .base = name, .kind = BASE_TEMPLATE};
    if (!from->written)
        return err_nomem(err);
    if (str_eq(name, "host") || str_eq(name, "scratch"))
        return step_refuse(err, step, "--from=%s: it has no layers to copy from", name);
    *ret = build->n_stages++;
    return 0;
}

static int add_from(struct build_stage *stage, const struct dockerfile_step *step, const char *name, size_t mount,
                    struct brig_err *err)
{
    struct build *build = stage->build;
    size_t found = find_stage(build, name, stage->index);
    int r = 0;

    if (!name[0])
        return step_refuse(err, step, "--from: expected a stage or an image");
    if (found == build->n_stages && strspn(name, "0123456789") == strlen(name))
        return step_refuse(err, step, "--from=%.32s: there is no such stage before this one", name);
    if (found == build->n_stages)
        r = add_image(build, step, name, &found, err);
    if (r < 0)
        return r;
    if (build->n_froms == DOCKERFILE_MAX_STEPS)
        return step_refuse(err, step, "more than %u copies", DOCKERFILE_MAX_STEPS);
    build->froms[build->n_froms++] = (struct plan_from){step, mount, found};
    return 0;
}

static int check_copy(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    const char *from = step_flag(step, "from");

    if (step_flag(step, "checksum"))
        return step_refuse(err, step, "--checksum is for sources of the network, which are not supported");
    if (step->n_here > 0 && (from || step->n_here + 1 != step->n_words))
        return step_refuse(err, step, "here-documents and other sources need an instruction each");
    for (size_t i = 0; i < step->n_words; i++)
        if (strstr(step->words[i], "://") || str_starts(step->words[i], "git@"))
            return step_refuse(err, step, "%.64s: sources of the network are not supported; use RUN", step->words[i]);
    return from ? add_from(stage, step, from, 0, err) : 0;
}

size_t plan_from(const struct build *build, const struct dockerfile_step *step, size_t mount)
{
    for (size_t i = 0; i < build->n_froms; i++)
        if (build->froms[i].step == step && build->froms[i].mount == mount)
            return build->froms[i].stage;
    return build->n_stages;
}

static int check_step(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    switch (step->op) {
    case DOCKERFILE_RUN:
        if (stage->kind == BASE_SCRATCH && step == stage->steps)
            return step_refuse(err, step, "FROM scratch has no program to run");
        return check_run(stage, step, err);
    case DOCKERFILE_COPY:
    case DOCKERFILE_ADD: return check_copy(stage, step, err);
    default: return 0;
    }
}

static int check_steps(struct build *build, struct brig_err *err)
{
    int r = 0;

    build->n_written = build->n_stages;
    build->froms = arena_alloc(build->arena, DOCKERFILE_MAX_STEPS * sizeof *build->froms);
    if (!build->froms)
        return err_nomem(err);
    for (size_t i = 0; r == 0 && i < build->n_written; i++)
        for (size_t k = 0; r == 0 && k < build->stages[i].n_steps; k++)
            r = check_step(&build->stages[i], &build->stages[i].steps[k], err);
    return r;
}

/* ---- what the target needs ---------------------------------------- */

bool plan_needs_context(const struct build *build)
{
    for (size_t i = 0; i < build->n_written; i++) {
        if (build->stages[i].needed && build->stages[i].binds_context)
            return true;
        for (size_t k = 0; build->stages[i].needed && k < build->stages[i].n_steps; k++) {
            const struct dockerfile_step *step = &build->stages[i].steps[k];
            if ((step->op == DOCKERFILE_COPY || step->op == DOCKERFILE_ADD) &&
                plan_from(build, step, 0) == build->n_stages && step->n_here == 0)
                return true;
        }
    }
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
    for (size_t i = 0; i < build->n_froms; i++)
        if (build->froms[i].step >= stage->steps && build->froms[i].step < stage->steps + stage->n_steps)
            need(build, build->froms[i].stage);
}

static int choose_goal(struct build *build, struct brig_err *err)
{
    build->goal = build->n_written - 1;
    if (build->target)
        build->goal = find_stage(build, build->target, build->n_written);
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
    if (r == 0)
        r = choose_goal(build, err);
    if (r == 0)
        settings_plan(build);
    return r;
}
