/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builds.c: all builds of this service: who may begin one, what is copied of the request, who sees which, and how many
 * that are over are kept with their logs.
 */
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "build/build_priv.h"
#include "http/errors.h"

#define KEPT_PER_ORG 32u
#define KEPT 256u
#define ANSWER_MAX (64u << 10)                 /* the texts of one that is over */
#define CHARGE (UINT64_C(1) << 20)             /* quotas are asked for so many bytes at a time */
#define EXPIRE_NS (UINT64_C(600) * NS_PER_SEC) /* for the context to begin or to go on */

const char *build_state_name(enum build_state state)
{
    static const char *const names[BUILD_STATE_MAX] = {"waiting", "running", "done", "failed", "cancelled"};

    return names[state];
}

bool build_is_over(const struct build *build)
{
    return build->state != BUILD_WAITING && build->state != BUILD_RUNNING;
}

/* ---- life ---------------------------------------- */

static bool is_busy(void *ctx, const char *name)
{
    const struct builds *builds = ctx;

    for (const struct build *build = builds->first; build; build = build->next) {
        if (build->lister && layer_run_has_scratch(build->lister, name))
            return true;
        for (size_t i = 0; i < build->n_stages; i++)
            if (build->stages[i].tool && layer_run_has_scratch(build->stages[i].tool, name))
                return true;
    }
    return false;
}

/* ---- what their files take ---------------------------------------- */

static uint64_t bytes_of(void *ctx, const char *org_id, const char *key_id)
{
    const struct builds *builds = ctx;
    uint64_t bytes = 0;

    for (const struct build *build = builds->first; build; build = build->next)
        if (str_eq(build->caller.org_id, org_id) && (!key_id || str_eq(build->caller.key_id, key_id)))
            bytes += build->counted;
    return bytes;
}

int build_charge(struct build *build, uint64_t bytes, struct brig_err *err)
{
    const uint64_t wanted = (build->on_disk + bytes + CHARGE - 1) / CHARGE * CHARGE;
    int r = wanted > build->counted
                ? quota_check_disk(build->builds->o.manager, &build->caller, wanted - build->counted, err)
                : 0;

    if (r < 0)
        return r;
    build->on_disk += bytes;
    build->counted = wanted;
    return 0;
}

void build_uncharge(struct build *build, uint64_t bytes)
{
    build->on_disk -= bytes < build->on_disk ? bytes : build->on_disk;
    build->counted = (build->on_disk + CHARGE - 1) / CHARGE * CHARGE;
}

/* ---- their life ---------------------------------------- */

int builds_create(const struct builds_options *options, struct builds **ret, struct brig_err *err)
{
    struct builds *builds = mem_zalloc(sizeof *builds);

    if (!builds)
        return err_nomem(err);
    builds->o = *options;
    builds->user = (struct library_user){.is_busy = is_busy, .ctx = builds};
    library_add_user(options->library, &builds->user);
    builds->disk_user = (struct disk_user){.bytes = bytes_of, .ctx = builds};
    manager_add_disk_user(options->manager, &builds->disk_user);
    *ret = builds;
    return 0;
}

void builds_configure(struct builds *builds, const struct config *config)
{
    builds->o.config = config;
}

void builds_set_sources(struct builds *builds, char *sources)
{
    mem_free(builds->sources);
    builds->sources = sources;
}

bool build_is_idle(const struct build *build)
{
    return build->puts == 0 && build->keyings == 0 && !build->recording;
}

struct burning {
    struct job job;
    struct arena *arena;
};

/* An arena wipes all that it has given out: that takes too long for the loop if it is large. */
static void burn(struct job *job)
{
    arena_destroy(((struct burning *)job)->arena);
}

static void burnt(struct job *job)
{
    mem_free((struct burning *)job);
}

static void burn_arena(struct workers *workers, const char *org, struct arena *arena)
{
    struct burning *burning = mem_zalloc(sizeof *burning);

    if (!burning) {
        arena_destroy(arena);
        return;
    }
    *burning = (struct burning){.job = {.work = burn, .done = burnt}, .arena = arena};
    workers_add_bounded(workers, workers_owner(org), &burning->job);
}

void build_shrink(struct build *build)
{
    (void)!loop_timer_set(build->builds->o.loop, &build->on_expire, loop_now_ns(), NULL);
}

/* What build_json() shows goes to an arena of its own; all else is freed. Without memory for that it stays as it is. */
static void shrink(struct build *build)
{
    struct arena *small = arena_create(ANSWER_MAX), *old = build->arena;

    if (!small)
        return;
    build->arena = small;
    const char *name = build_keep(build, build->name), *target = build->target ? build_keep(build, build->target) : "",
               *output = build->err_output ? build_keep(build, build->err_output) : "";
    if (!name || !target || !output) {
        build->arena = old;
        arena_destroy(small);
        return;
    }
    build->name = name;
    build->target = build->target ? target : NULL;
    build->err_output = build->err_output ? output : NULL;
    build->path = build->network = build->text = NULL;
    build->ignores = (struct build_list){.items = NULL};
    build->settings = NULL;
    build->lock = NULL;
    build->args = build->label_keys = build->label_values = build->args_used = build->globals =
        (struct build_list){.items = NULL};
    build->secret_ids = build->secrets = build->secret_copies = (struct build_list){.items = NULL};
    build->stages = NULL;
    build->froms = NULL;
    build->n_stages = build->n_written = build->n_froms = build->n_members = build->members_cap = 0;
    build->limits = NULL;
    mem_free(take_ptr(&build->members));
    json_doc_free(take_ptr(&build->limits_doc));
    dockerfile_free(take_ptr(&build->file));
    burn_arena(build->builds->o.workers, build->caller.org_id, old);
}

void build_free(struct build *build)
{
    struct builds *builds = build->builds;

    for (struct build **at = &builds->first; *at; at = &(*at)->next)
        if (*at == build) {
            *at = build->next;
            break;
        }
    loop_timer_clear(builds->o.loop, &build->on_expire);
    log_free(build);
    buf_done(&build->lock_text);
    buf_done(&build->lock_paths);
    dockerfile_free(build->file);
    json_doc_free(build->limits_doc);
    mem_free(build->members);
    arena_destroy(build->arena);
    mem_free(build);
}

void builds_stop(struct builds *builds)
{
    if (!builds)
        return;
    builds->stopped = true;
    for (struct build *build = builds->first; build; build = build->next) {
        for (size_t i = 0; i < build->n_stages; i++)
            stage_stop(&build->stages[i]);
        if (build->lister)
            layer_run_forget(take_ptr(&build->lister));
        loop_timer_clear(builds->o.loop, &build->on_expire);
        spool_free(take_ptr(&build->spool));
        library_file_done(builds->o.library, take_ptr(&build->context));
    }
    runs_free(builds);
}

void builds_destroy(struct builds *builds)
{
    if (!builds)
        return;
    while (builds->first)
        build_free(builds->first);
    mem_free(builds->sources);
    mem_free(builds);
}

/* Those that are over and too many go, the oldest first. */
static void trim(struct builds *builds, const char *org)
{
    size_t all = 0, own = 0;

    for (struct build *build = builds->first, *next; build; build = next) {
        bool mine = str_eq(build->caller.org_id, org);

        next = build->next;
        all++;
        own += mine;
        if (build_is_over(build) && build_is_idle(build) && (all > KEPT || (mine && own > KEPT_PER_ORG)))
            build_free(build);
    }
}

/* ---- what is asked for ---------------------------------------- */

/* An object of texts as two lists. */
static int take_pairs(struct build *build, const char *what, const struct json_value *object, size_t max,
                      struct build_list *keys, struct build_list *values, struct brig_err *err)
{
    if (!object)
        return 0;
    if (object->type != JSON_OBJECT)
        return err_usage(err, "%s: must be an object of texts", what);
    if (object->count > 256)
        return err_usage(err, "%s: %zu of them, at most 256", what, object->count);
    for (const struct json_value *v = object->first; v; v = v->next) {
        if (v->type != JSON_STRING || strlen(v->string) != v->len || strlen(v->key) != v->key_len)
            return err_usage(err, "%s.%.64s: must be text", what, v->key);
        if (!v->key_len || v->key_len > BUILD_NAME_MAX || strchr(v->key, '='))
            return err_usage(err, "%s.%.64s: the name must have 1 to %u characters, none of them =", what, v->key,
                             BUILD_NAME_MAX);
        if (v->len > max)
            return err_usage(err, "%s.%.64s: longer than %zu bytes", what, v->key, max);
        if (list_add(build, keys, build_keep(build, v->key)) < 0 ||
            list_add(build, values, build_keep(build, v->string)) < 0)
            return err_nomem(err);
    }
    return 0;
}

static int take_args(struct build *build, const struct json_value *args, struct brig_err *err)
{
    struct build_list keys = {.items = NULL}, values = {.items = NULL};
    int r = take_pairs(build, "build_args", args, 65536, &keys, &values, err);

    for (size_t i = 0; r == 0 && i < keys.n; i++)
        if (list_set(build, &build->args, keys.items[i], values.items[i]) < 0)
            r = err_nomem(err);
    return r;
}

static int take_limits(struct build *build, const struct json_value *limits, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(4096);
    struct json json = JSON_INIT(&text);

    if (!limits)
        return 0;
    if (limits->type != JSON_OBJECT)
        return err_usage(err, "limits: must be an object");
    json_value_put(&json, limits);
    if (json_finish(&json) < 0)
        return err_usage(err, "limits: too long");
    int r = json_read(text.data, text.len, 256, &build->limits_doc, err);
    if (r == 0)
        build->limits = json_root(build->limits_doc);
    return r;
}

static int copy_text(struct build *build, const char *text, const char **ret, struct brig_err *err)
{
    if (!text)
        return 0;
    *ret = build_keep(build, text);
    return *ret ? 0 : err_nomem(err);
}

/* FILE.dockerignore beside a Dockerfile FILE takes the place of .dockerignore. */
static int take_ignores(struct build *build, struct brig_err *err)
{
    static const char ignore[] = ".dockerignore";
    char own[4096];
    const char *kept = str_format(own, sizeof own, "%s%s", build->path, ignore) < 0 ? ignore : build_keep(build, own);

    if (!kept || list_add(build, &build->ignores, kept) < 0 || list_add(build, &build->ignores, ignore) < 0)
        return err_nomem(err);
    return 0;
}

static int take_want(struct build *build, const struct build_want *want, struct brig_err *err)
{
    char name[TEMPLATE_NAME_MAX];
    int r = template_name(want->name, name, err);

    if (r == 0)
        r = copy_text(build, name, &build->name, err);
    if (r == 0)
        r = copy_text(build, want->path ? want->path : "Dockerfile", &build->path, err);
    if (r == 0 && !want->no_dockerignore)
        r = take_ignores(build, err);
    if (r == 0)
        r = copy_text(build, want->target, &build->target, err);
    if (r == 0)
        r = copy_text(build, want->network ? want->network : "packages", &build->network, err);
    if (r == 0)
        r = take_args(build, want->args, err);
    if (r == 0)
        r = take_pairs(build, "labels", want->labels, 65536, &build->label_keys, &build->label_values, err);
    if (r == 0)
        r = take_pairs(build, "secrets", want->secrets, BUILD_SECRET_MAX, &build->secret_ids, &build->secrets, err);
    if (r == 0)
        r = take_limits(build, want->limits, err);
    if (r == 0 && want->settings)
        r = settings_read(build, want->settings, want->settings_len, err);
    if (r == 0 && want->lock && want->update_lock)
        r = err_usage(err, "lock, update_lock: a build is made from a lock, or it makes one");
    if (r == 0 && (want->lock || want->update_lock))
        r = lock_begin(build, want->lock, want->lock_len, err);
    if (r == 0 && want->dockerfile) {
        build->text = build_copy(build, want->dockerfile, want->dockerfile_len);
        build->text_len = want->dockerfile_len;
        r = build->text ? build_plan(build, err) : err_nomem(err);
    } else if (r == 0 && want->no_context) {
        r = err_usage(err, "dockerfile: without a context its text must be given");
    }
    return r;
}

int build_check_name(const struct build *build, struct brig_err *err)
{
    const struct object *other =
        objects_find(templates_objects(build->builds->o.templates), build->caller.org_id, build->name);

    /* Administrators use names too, with directories and secrets that a user key may not have. */
    if (!caller_is_admin(&build->caller) && sbox_template_check(build->name, build->builds->o.config,
                                                                build->builds->o.templates, &build->caller, NULL) == 0)
        return err_set(err, BRIG_E_FORBIDDEN, 0,
                       "template %s: the name means something already; only an administrator changes that",
                       build->name);
    return other && !build->replace
               ? err_set(err, BRIG_E_CONFLICT, 0,
                         "template %s: there is one of this name; replace it, or choose another", build->name)
               : 0;
}

static int check_count(struct builds *builds, const char *org, struct brig_err *err)
{
    size_t n = 0;

    for (const struct build *build = builds->first; build; build = build->next)
        n += !build_is_over(build) && str_eq(build->caller.org_id, org);
    return n >= BUILDS_AT_ONCE
               ? err_set(err, BRIG_E_LIMIT, 0, "%zu builds wait or run; at most %u do at once", n, BUILDS_AT_ONCE)
               : 0;
}

void build_expect(struct build *build)
{
    (void)!loop_timer_set(build->builds->o.loop, &build->on_expire, clock_mono_ns() + EXPIRE_NS, NULL);
}

static void on_expire(struct loop_timer *timer)
{
    struct build *build = timer->ctx;
    struct brig_err err;

    if (build_is_over(build)) {
        shrink(build);
        return;
    }
    (void)err_set(&err, BRIG_E_TIMEOUT, 0, "nothing of the context came for %llu minutes",
                  (unsigned long long)(EXPIRE_NS / NS_PER_SEC / 60));
    build_fail(build, &err, 0);
}

int build_begin(struct builds *builds, const struct caller *caller, const struct build_want *want, struct build **ret,
                struct brig_err *err)
{
    char id[ID_SANDBOX_SIZE];
    int r = library_may_build(builds->o.library, caller, want->shared, err);

    if (r == 0)
        r = check_count(builds, caller->org_id, err);
    if (r < 0)
        return r;
    struct build *build = mem_zalloc(sizeof *build);
    if (!build)
        return err_nomem(err);
    *build = (struct build){.builds = builds,
                            .caller = *caller,
                            .arena = arena_create(BUILD_ARENA_MAX),
                            .no_cache = want->no_cache,
                            .replace = want->replace,
                            .shared = want->shared,
                            .created_ns = clock_real_ns(),
                            .on_expire = {.fn = on_expire, .ctx = build},
                            .log = {.text = BUF_INIT(BUILD_LOG_MAX)},
                            .lock_text = BUF_INIT(LOCK_MAX),
                            .lock_paths = BUF_INIT(LOCK_PATHS_BYTES),
                            .next = builds->first};
    builds->first = build;
    r = !build->arena ? err_nomem(err)
        : id_sandbox(id) < 0 || str_format(build->id, sizeof build->id, "build-%s", id) < 0
            ? err_set(err, BRIG_E_HOST, EIO, "random name")
            : take_want(build, want, err);
    if (r == 0)
        r = build_check_name(build, err);
    if (r < 0) {
        build_free(build);
        return r;
    }
    trim(builds, caller->org_id);
    if (want->no_context) {
        build->state = BUILD_RUNNING;
        build_go_on(build);
    } else {
        build_expect(build);
    }
    *ret = build;
    return 0;
}

/* ---- who sees which ---------------------------------------- */

static bool sees(const struct caller *caller, const struct build *build)
{
    if (caller->socket)
        return true;
    return str_eq(caller->org_id, build->caller.org_id) &&
           (caller_is_admin(caller) || str_eq(caller->key_id, build->caller.key_id));
}

static struct build *seen_from(struct build *build, const struct caller *caller)
{
    while (build && !sees(caller, build))
        build = build->next;
    return build;
}

struct build *builds_first(struct builds *builds, const struct caller *caller)
{
    return seen_from(builds->first, caller);
}

struct build *builds_next(const struct build *build, const struct caller *caller)
{
    return seen_from(build->next, caller);
}

struct build *builds_find(struct builds *builds, const struct caller *caller, const char *id)
{
    struct build *build = builds_first(builds, caller);

    while (build && !str_eq(build->id, id))
        build = builds_next(build, caller);
    return build;
}

bool builds_has(const struct builds *builds, const char *org, const char *id)
{
    for (const struct build *build = builds->first; build; build = build->next)
        if (str_eq(build->id, id) && str_eq(build->caller.org_id, org))
            return true;
    return false;
}

void build_json(const struct build *build, struct json *json)
{
    json_object(json);
    json_key_string(json, "id", build->id);
    json_key_string(json, "organization_id", build->caller.org_id);
    json_key_string(json, "name", build->name);
    json_key_string(json, "state", build_state_name(build->state));
    json_key_text(json, "target", build->target);
    json_key_bool(json, "needs_context", build->state == BUILD_WAITING && (!build->text || plan_needs_context(build)));
    json_key_u64(json, "steps", build->n_steps);
    json_key_u64(json, "steps_begun", build->steps_begun);
    json_key_u64(json, "steps_cached", build->steps_cached);
    json_key_time(json, "created_at", build->created_ns, 3);
    if (build->ended_ns)
        json_key_time(json, "ended_at", build->ended_ns, 3);
    else
        json_key_null(json, "ended_at");
    if (build->err.code) {
        json_key_object(json, "error");
        json_key_string(json, "code", error_code(build->err.code));
        json_key_string(json, "message", build->err.message);
        if (build->err_line)
            json_key_u64(json, "line", build->err_line);
        else
            json_key_null(json, "line");
        json_key_string(json, "output", build->err_output ? build->err_output : "");
        json_end(json);
    } else {
        json_key_null(json, "error");
    }
    json_end(json);
}

void builds_stats(const struct builds *builds, struct builds_stats *ret)
{
    *ret = (struct builds_stats){
        .done = builds->done, .failed = builds->failed, .steps = builds->steps, .cached = builds->cached};
    for (const struct build *build = builds->first; build; build = build->next)
        ret->running += !build_is_over(build);
}
