/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_builds.c: builds of templates: begin one, send its context, look at it, follow its log, cancel it. A build
 * belongs to the key that began it; administrators see those of their organisation.
 */
#include <string.h>

#include "api/api.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "build/build.h"

/* ---- answers ---------------------------------------- */

static void answer(struct request *rq, unsigned status, const struct build *build)
{
    AUTO_BUF struct buf out = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&out);

    build_json(build, &json);
    request_json(rq, status, &json);
}

/* The build that the path names, if the caller sees it; NULL: the refusal was sent. */
static struct build *find(struct request *rq)
{
    struct build *build = builds_find(rq->api->builds, &rq->caller, rq->arg[0]);

    if (!build && builds_has(rq->api->builds, rq->caller.org_id, rq->arg[0]))
        request_refuse(rq, BRIG_E_FORBIDDEN, "build %.64s: only the key that began it and administrators may see it",
                       rq->arg[0]);
    else if (!build)
        request_refuse(rq, BRIG_E_NOT_FOUND, "build %.64s not found", rq->arg[0]);
    return build;
}

void route_build_list(struct request *rq)
{
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    request_list_begin(&json, "builds");
    for (struct build *at = builds_first(rq->api->builds, &rq->caller); at; at = builds_next(at, &rq->caller))
        build_json(at, &json);
    request_list_end(rq, &json);
}

void route_build_get(struct request *rq)
{
    const struct build *build = find(rq);

    if (build)
        answer(rq, 200, build);
}

void route_build_delete(struct request *rq)
{
    struct build *build = find(rq);

    if (!build)
        return;
    build_cancel(build);
    request_status(rq, 204);
}

void route_build_lock(struct request *rq)
{
    const struct build *build = find(rq);
    size_t len = 0;
    const char *text = build ? build_lock_text(build, &len) : NULL;

    if (text)
        request_text(rq, 200, "application/json", text, len);
    else if (build)
        request_refuse(rq, BRIG_E_NOT_FOUND, "build %.64s has no lock: it is not done, or was not asked for one",
                       rq->arg[0]);
}

/* ---- begin ---------------------------------------- */

static bool read_want(struct request *rq, struct build_want *want)
{
    bool context = true, dockerignore = true;

    if (!api_only_members(rq, "name dockerfile path target build_args labels secrets limits network context no_cache "
                              "replace shared template_toml lock update_lock dockerignore") ||
        !api_bool(rq, "dockerignore", &dockerignore) || !api_text(rq, "lock", &want->lock) ||
        !api_bool(rq, "update_lock", &want->update_lock) || !api_text(rq, "template_toml", &want->settings) ||
        !api_text(rq, "name", &want->name) || !api_text(rq, "dockerfile", &want->dockerfile) ||
        !api_text(rq, "path", &want->path) || !api_text(rq, "target", &want->target) ||
        !api_text(rq, "network", &want->network) || !api_bool(rq, "context", &context) ||
        !api_bool(rq, "no_cache", &want->no_cache) || !api_bool(rq, "replace", &want->replace) ||
        !api_bool(rq, "shared", &want->shared))
        return false;
    if (!want->name) {
        request_refuse(rq, BRIG_E_USAGE, "name: the template needs one");
        return false;
    }
    want->dockerfile_len = want->dockerfile ? strlen(want->dockerfile) : 0;
    want->settings_len = want->settings ? strlen(want->settings) : 0;
    want->lock_len = want->lock ? strlen(want->lock) : 0;
    want->no_context = !context;
    want->no_dockerignore = !dockerignore;
    want->args = json_get(rq->json, "build_args");
    want->labels = json_get(rq->json, "labels");
    want->secrets = json_get(rq->json, "secrets");
    want->limits = json_get(rq->json, "limits");
    return true;
}

void route_build_create(struct request *rq)
{
    struct build_want want = {.name = NULL};
    struct build *build = NULL;
    struct brig_err err;

    if (!read_want(rq, &want))
        return;
    int r = build_begin(rq->api->builds, &rq->caller, &want, &build, &err);
    if (r < 0)
        request_audit_sync(rq, "template.build", NULL, want.name, "failed", err.message);
    request_wipe_body(rq); /* it may have secrets */
    if (r < 0)
        request_fail(rq, &err);
    else
        answer(rq, 201, build);
}

/* ---- the context ---------------------------------------- */

/* The build is looked for again each time: it may have been cancelled and forgotten while the body comes. */
static struct build *receiving(struct request *rq)
{
    return builds_find(rq->api->builds, &rq->caller, rq->arg[0]);
}

static void context_left(struct request *rq)
{
    struct build *build = receiving(rq);

    if (build)
        build_context_left(build);
    request_free(rq);
}

static void on_ready(void *ctx)
{
    struct request *rq = ctx;

    exchange_body_proceed(rq->x);
}

static void context_data(void *ctx, struct exchange *x UNUSED, const char *data, size_t len)
{
    struct request *rq = ctx;
    struct build *build = receiving(rq);
    struct brig_err err;

    if (build && build_context_data(build, data, len, &err) == 0)
        return;
    if (!build)
        (void)err_set(&err, BRIG_E_NOT_FOUND, 0, "build %.64s not found", rq->arg[0]);
    else
        build_context_left(build);
    rq->left = NULL;
    request_fail(rq, &err);
}

static void context_end(void *ctx, struct exchange *x UNUSED)
{
    struct request *rq = ctx;
    struct build *build = receiving(rq);

    rq->left = NULL;
    if (!build) {
        request_refuse(rq, BRIG_E_NOT_FOUND, "build %.64s not found", rq->arg[0]);
        return;
    }
    build_context_end(build);
    answer(rq, 202, build);
}

void route_build_context(struct request *rq)
{
    struct build *build = find(rq);
    const struct body_events body = {context_data, context_end, rq};
    struct brig_err err;

    if (!build)
        return;
    if (build_context_begin(build, on_ready, rq, &err) < 0) {
        request_fail(rq, &err);
        return;
    }
    rq->left = context_left;
    if (exchange_read(rq->x, &body, &err) < 0) {
        rq->left = NULL;
        build_context_left(build);
        request_fail(rq, &err);
    }
}

/* ---- the log ---------------------------------------- */

struct following {
    struct request *rq;
    struct build *build; /* NULL: it was forgotten */
    struct build_reader reader;
    uint64_t at;
    bool full;
};

static void following_end(struct following *following)
{
    struct request *rq = following->rq;

    if (following->build)
        build_unfollow(following->build, &following->reader);
    mem_free(following);
    rq->left = NULL;
    exchange_on_drained(rq->x, NULL, NULL);
    request_end(rq, true);
}

static void log_left(struct request *rq)
{
    struct following *following = rq->state;

    if (following->build)
        build_unfollow(following->build, &following->reader);
    mem_free(following);
    request_free(rq);
}

static void send_more(struct following *following)
{
    size_t len = 0;
    const char *text = "";

    if (following->full)
        return;
    if (following->build)
        text = build_log(following->build, &following->at, &len);
    if (len > 0 && !exchange_write(following->rq->x, text, len))
        following->full = true;
}

static void on_more(void *ctx)
{
    struct following *following = ctx;

    send_more(following);
    if (!following->full && build_is_over(following->build))
        following_end(following);
}

static void on_forgotten(void *ctx)
{
    struct following *following = ctx;

    following->build = NULL;
    following_end(following);
}

static void on_drained(void *ctx, struct exchange *x UNUSED)
{
    struct following *following = ctx;

    following->full = false;
    if (following->build)
        on_more(following);
}

void route_build_log(struct request *rq)
{
    struct build *build = find(rq);
    bool follow = false;

    if (!build || !request_query_bool(rq, "follow", &follow))
        return;
    struct following *following = request_alloc(rq, sizeof *following);
    if (!following)
        return;
    *following = (struct following){
        .rq = rq, .build = build, .reader = {.more = on_more, .gone = on_forgotten, .ctx = following}};
    rq->state = following;
    rq->left = log_left;
    exchange_begin(rq->x, 200, "application/x-ndjson", UINT64_MAX);
    exchange_on_drained(rq->x, on_drained, following);
    build_follow(build, &following->reader);
    send_more(following);
    if (!follow || (build_is_over(build) && !following->full))
        following_end(following);
}
