/* SPDX-License-Identifier: Apache-2.0 */
/*
 * derive_schema.c: derives a tool's schema from its source. The source is parsed, never run, and even that inside a
 * child, because a parser can be attacked too. The result is remembered by the hash of the request: a client that
 * registers its tools at every start costs one child per change.
 */
#include <string.h>

#include "base/list.h"
#include "run/run_priv.h"

#define CACHE 128u

typedef void schema_done_fn(void *ctx, const char *json, size_t len, const struct brig_err *err);

struct schema_cache {
    uint8_t key[CACHE][SHA256_SIZE];
    char *json[CACHE];
    size_t len[CACHE];
    size_t next;
};

struct schema_job {
    struct executor *executor;
    struct schema_job *next, *prev;
    struct loop_timer timer; /* of one that was remembered */
    struct run *run;
    uint8_t key[SHA256_SIZE];
    schema_done_fn *done;
    void *ctx;
};

static void job_free(struct schema_job *job)
{
    struct executor *executor = job->executor;

    loop_timer_clear(executor->o.loop, &job->timer);
    list_remove(&executor->schemas, job);
    mem_free(job);
}

static int key_of(const char *org, const char *source, size_t len, const char *args, uint8_t out[SHA256_SIZE])
{
    struct crypto_hash *hash = NULL;
    int r = crypto_hash_create(&hash);

    if (r == 0)
        r = crypto_hash_add(hash, org, strlen(org) + 1);
    if (r == 0)
        r = crypto_hash_add(hash, args ? args : "", args ? strlen(args) + 1 : 1);
    if (r == 0)
        r = crypto_hash_add(hash, source, len);
    if (r == 0)
        r = crypto_hash_end(hash, out);
    crypto_hash_destroy(hash);
    return r;
}

static void remember(struct executor *executor, const uint8_t key[SHA256_SIZE], const char *json, size_t len)
{
    struct schema_cache *cache = executor->schema_cache;

    if (!cache)
        cache = executor->schema_cache = mem_zalloc(sizeof *cache);
    char *copy = cache ? mem_alloc(len + 1) : NULL;
    if (!copy)
        return; /* it is derived again next time */
    memcpy(copy, json, len);
    copy[len] = '\0';
    size_t at = cache->next++ % CACHE;
    mem_free(cache->json[at]);
    cache->json[at] = copy;
    cache->len[at] = len;
    memcpy(cache->key[at], key, SHA256_SIZE);
}

static const char *recall(const struct executor *executor, const uint8_t key[SHA256_SIZE], size_t *ret_len)
{
    const struct schema_cache *cache = executor->schema_cache;

    for (size_t i = 0; cache && i < CACHE; i++)
        if (cache->json[i] && memcmp(cache->key[i], key, SHA256_SIZE) == 0) {
            *ret_len = cache->len[i];
            return cache->json[i];
        }
    return NULL;
}

static void on_recalled(struct loop_timer *timer)
{
    struct schema_job job = *(struct schema_job *)timer->ctx;
    size_t len = 0;
    const char *json = recall(job.executor, job.key, &len);
    struct brig_err err = {0};

    job_free(timer->ctx);
    if (!json)
        (void)err_set(&err, BRIG_E_BUSY, 0, "try again");
    job.done(job.ctx, json, len, json ? NULL : &err);
}

static void on_derived(void *ctx, const struct run_result *result, const struct brig_err *refused,
                       uint64_t retry_s UNUSED)
{
    struct schema_job job = *(struct schema_job *)ctx;
    struct brig_err err = {0};

    job_free(ctx);
    if (refused) {
        job.done(job.ctx, NULL, 0, refused);
    } else if (!result->ok) {
        const char *message = strstr(result->text, ": "); /* "ValueError: what is wrong" */
        (void)err_set(&err, BRIG_E_INVALID, 0, "%s", message ? message + 2 : result->text);
        job.done(job.ctx, NULL, 0, &err);
    } else {
        remember(job.executor, job.key, result->func_return, result->func_return_len);
        job.done(job.ctx, result->func_return, result->func_return_len, NULL);
    }
}

static int derive(struct schema_job *job, const struct caller *caller, const char *source, size_t len, const char *args,
                  struct brig_err *err)
{
    struct arena *arena = arena_create(RUN_ARENA_MAX);
    struct tool tool = {.source = arena ? arena_copy(arena, source, len) : NULL, .source_len = len};
    const struct run_ask ask = {.arena = &arena, .caller = caller, .kind = FRAME_SCHEMA, .tool = &tool};
    const struct run_events events = {.done = on_derived, .ctx = job};
    int r = tool.source ? 0 : err_nomem(err);

    if (r == 0 && args)
        r = json_read_in(arena, args, strlen(args), JSON_READ_VALUES, &tool.json_schema, err);
    if (r == 0)
        r = executor_run(job->executor, &ask, &events, &job->run, err);
    arena_destroy(arena);
    return r;
}

int executor_schema(struct executor *executor, const struct caller *caller, const char *source, size_t len,
                    const char *language, const char *args_json_schema,
                    void (*done)(void *ctx, const char *json, size_t len, const struct brig_err *err), void *ctx,
                    struct brig_err *err)
{
    enum tool_language which = TOOL_PYTHON;
    size_t known = 0;

    if (language && (tool_language_parse(language, &which) < 0 || which != TOOL_PYTHON))
        return err_set(err, BRIG_E_INVALID, 0, "%.32s: a schema can be derived from Python only; give json_schema",
                       language);
    struct schema_job *job = mem_zalloc(sizeof *job);
    if (!job)
        return err_nomem(err);
    *job = (struct schema_job){.executor = executor, .timer = {.fn = on_recalled}, .done = done, .ctx = ctx};
    job->timer.ctx = job;
    list_push(&executor->schemas, job);
    int r = key_of(caller->org_id, source, len, args_json_schema, job->key);
    if (r < 0)
        r = err_nomem(err);
    else if (recall(executor, job->key, &known))
        r = loop_timer_set(executor->o.loop, &job->timer, loop_now_ns(), err);
    else
        r = derive(job, caller, source, len, args_json_schema, err);
    if (r < 0)
        job_free(job);
    return r;
}

void schemas_free(struct executor *executor)
{
    while (executor->schemas)
        job_free(executor->schemas);
    for (size_t i = 0; executor->schema_cache && i < CACHE; i++)
        mem_free(executor->schema_cache->json[i]);
    mem_free(executor->schema_cache);
}
