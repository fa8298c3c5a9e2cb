/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_engine.c: one build on its way: the plan, the stages side by side, the template, and the end, whatever it is.
 * A stage begins when those that it needs are done, and only those that the target needs begin at all.
 */
#include <string.h>

#include "base/clock.h"
#include "build/build_priv.h"

/* ---- its end ---------------------------------------- */

void build_release(struct build *build)
{
    if (!build_is_over(build) || !build_is_idle(build) || build->builds->stopped)
        return; /* what holds a layer instead is not written yet */
    for (size_t i = 0; i < build->n_stages; i++)
        stage_release(&build->stages[i]);
    library_collect(build->builds->o.library);
    build_shrink(build); /* in a turn of its own: whoever calls may still look at a stage */
}

static void audit(const struct build *build)
{
    static const char *const outcomes[BUILD_STATE_MAX] = {
        [BUILD_DONE] = "ok", [BUILD_FAILED] = "failed", [BUILD_CANCELLED] = "cancelled"};
    const struct audit_event event = {.action = "template.build",
                                      .actor = build->caller.actor,
                                      .org = build->caller.org_id,
                                      .object = build->name,
                                      .outcome = outcomes[build->state],
                                      .detail = build->state == BUILD_DONE ? build->id : build->err.message,
                                      .request_id = build->caller.request_id};

    (void)audit_add(build->builds->o.audit, &event, NULL, NULL);
}

/* Arguments that no ARG has asked for are a mistake as a rule. */
static void warn_unused(struct build *build)
{
    for (size_t i = 0; i < build->args.n; i++) {
        const char *arg = build->args.items[i];
        size_t len = strcspn(arg, "="), k = 0;
        char text[256];

        while (k < build->args_used.n &&
               !(strlen(build->args_used.items[k]) == len && strncmp(build->args_used.items[k], arg, len) == 0))
            k++;
        if (k == build->args_used.n &&
            str_format(text, sizeof text, "the build argument %.*s is not used: no ARG names it",
                       len < 100 ? (int)len : 100, arg) > 0)
            log_note(build, "warning", text);
    }
}

/* Nobody starts with them any more, and the build itself is kept for a while. */
static void wipe(const struct build_list *texts)
{
    for (size_t i = 0; i < texts->n; i++)
        crypto_wipe((void *)(uintptr_t)texts->items[i], strlen(texts->items[i]));
}

static void finish(struct build *build, enum build_state state)
{
    struct library *library = build->builds->o.library;

    if (state == BUILD_DONE)
        warn_unused(build);
    build->state = state;
    build->ended_ns = clock_real_ns();
    loop_timer_clear(build->builds->o.loop, &build->on_expire);
    for (size_t i = 0; i < build->n_stages; i++)
        stage_stop(&build->stages[i]);
    if (build->lister)
        layer_run_forget(take_ptr(&build->lister));
    wipe(&build->secrets);
    wipe(&build->secret_copies);
    spool_free(take_ptr(&build->spool));
    if (build->receiving && build->ready)
        build->ready(build->ready_ctx); /* the next piece is refused */
    library_file_done(library, take_ptr(&build->context));
    build->on_disk = build->counted = 0;
    build->builds->done += state == BUILD_DONE;
    build->builds->failed += state != BUILD_DONE;
    audit(build);
    if (build->puts > 0)
        build_steps_hurry(build->builds->o.steps);
    log_over(build);
    build_release(build);
}

void build_fail(struct build *build, const struct brig_err *err, unsigned line)
{
    if (build_is_over(build))
        return; /* the first reason is the one that is told */
    build->err = *err;
    build->err_line = line;
    finish(build, BUILD_FAILED);
}

void build_cancel(struct build *build)
{
    if (build_is_over(build)) {
        if (build_is_idle(build))
            build_free(build);
        return;
    }
    if (build->recording)
        return; /* the record of the template is on its way: it is done, or it fails, in a moment */
    (void)err_set(&build->err, BRIG_E_CONFLICT, 0, "the build was cancelled");
    finish(build, BUILD_CANCELLED);
}

/* ---- stages ---------------------------------------- */

static void on_recorded(void *ctx, const struct object *object, const struct brig_err *err)
{
    struct build *build = ctx;
    struct brig_err why;

    build->recording = false;
    if (build->builds->stopped)
        return;
    if (!err && !object) {
        (void)err_set(&why, BRIG_E_CONFLICT, 0, "template %s was deleted meanwhile", build->name);
        err = &why;
    }
    if (err)
        build_fail(build, err, 0);
    else
        finish(build, BUILD_DONE);
}

static bool can_start(const struct build_stage *stage)
{
    const struct build *build = stage->build;

    if (!stage->needed || stage->state != STAGE_WAITING)
        return false;
    return stage->kind != BASE_STAGE || build->stages[stage->base_stage].state == STAGE_DONE;
}

/* A stage that starts may be over at once and come back here. */
void build_go_on(struct build *build)
{
    struct brig_err err;
    size_t running = 0;

    for (size_t i = 0; i < build->n_stages; i++)
        running += build->stages[i].state == STAGE_RUNNING;
    for (size_t i = 0; i < build->n_stages && running < BUILD_SIDE_BY_SIDE; i++)
        if (build->state == BUILD_RUNNING && build->stages[i].state == STAGE_PAUSED &&
            !stage_is_blocked(&build->stages[i])) {
            stage_resume(&build->stages[i]);
            return build_go_on(build);
        } else if (build->state == BUILD_RUNNING && can_start(&build->stages[i])) {
            stage_start(&build->stages[i]);
            return build_go_on(build);
        }
    if (build->state != BUILD_RUNNING || build->recording || build->stages[build->goal].state != STAGE_DONE)
        return;
    if (build->lock && !build->lock->settled) {
        if (!build->lister && lock_settle(build, &err) < 0)
            build_fail(build, &err, 0);
        return;
    }
    build->recording = true;
    if (build_check_name(build, &err) < 0 || image_record(&build->stages[build->goal], on_recorded, build, &err) < 0) {
        build->recording = false;
        build_fail(build, &err, 0);
    }
}

void build_listed(struct build *build)
{
    AUTO_BUF struct buf text = BUF_INIT(0);
    struct brig_err err = {0};
    int r = 0;

    if (!build->text) {
        r = context_read(build, build->path, DOCKERFILE_MAX_BYTES, &text, &err);
        build->text = r < 0 ? NULL : build_copy(build, text.len ? text.data : "", text.len);
        build->text_len = text.len;
        if (r == 0 && !build->text)
            r = err_nomem(&err);
        if (r == 0)
            r = build_plan(build, &err);
        if (r == 0 && !build->settings)
            r = settings_from_context(build, &err);
    }
    if (r < 0)
        build_fail(build, &err, 0);
    else
        build_go_on(build);
}
