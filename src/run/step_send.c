/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_send.c: the built-in provider: a parked child of the pool, or a new process in a sandbox that lives on; the
 * request that goes down its channel, and the done that comes back.
 */
#include <stdio.h>
#include <string.h>

#include "run/run_priv.h"

/* ---- the request ---------------------------------------------------------------------------------------- */

static int add_set(struct run *run, struct brig_err *err)
{
    char path[512];
    int r = 0;

    if (!run->set)
        return 0;
    if (run->set->venv) {
        r = str_format(path, sizeof path, "%s/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                       run->set->venv);
        if (r >= 0)
            r = environment_add(run->env, ENV_BASE, "PATH", path, strlen(path), false, err);
        if (r >= 0)
            r = environment_add(run->env, ENV_BASE, "VIRTUAL_ENV", run->set->venv, strlen(run->set->venv), false, err);
    }
    if (r >= 0 && run->set->node_path)
        r = environment_add(run->env, ENV_BASE, "NODE_PATH", run->set->node_path, strlen(run->set->node_path), false,
                            err);
    return r < 0 ? r : 0;
}

/* Proxies, certificates, placeholders: what the sandbox's network needs programs to know. */
static int add_network(struct run *run, struct brig_err *err)
{
    struct sbox_pair pairs[NETWORK_ENV_MAX];
    struct sbox *sbox = run->live ? run->live : run->child && run->has_network ? child_sbox(run->child) : NULL;
    int r = 0;

    for (int weak = 0; sbox && weak < 2; weak++) {
        size_t n = network_env(sbox, weak == 1, pairs);
        for (size_t i = 0; i < n && r == 0; i++)
            r = environment_add(run->env, ENV_BASE, pairs[i].name, pairs[i].value, strlen(pairs[i].value), false, err);
    }
    return r;
}

int run_request(struct run *run, struct buf *out, struct frame_request *ret, struct brig_err *err)
{
    int r = add_set(run, err);

    if (r == 0)
        r = add_network(run, err);
    if (r < 0)
        return r;
    *ret = (struct frame_request){.kind = run->kind,
                                  .tool = &run->tool,
                                  .schema = run->schema,
                                  .schema_len = run->schema_len,
                                  .args = run->args,
                                  .args_len = run->args_len,
                                  .agent_state = run->state_before,
                                  .agent_state_len = run->state_before_len,
                                  .agent_id = run->agent_id[0] ? run->agent_id : NULL,
                                  .site = !run->set                           ? NULL
                                          : run->tool.language == TOOL_PYTHON ? run->set->venv
                                                                              : run->set->node_path,
                                  .cwd = "/workspace",
                                  .files = run->files,
                                  .collect = run->collect};
    memcpy(ret->key, run->key, sizeof ret->key);
    ret->n_env = environment_pairs(run->env, &ret->env);
    /* One allocation, not one per doubling: the sizes are known but for escapes. */
    r = buf_reserve(out, 1024 + run->tool.source_len + run->tool.source_len / 8 + run->args_len + run->schema_len +
                             run->state_before_len + 96 * ret->n_env);
    if (r == 0)
        r = frame_request_put(ret, out);
    return r < 0 ? err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_TOO_LARGE, -r, "the request of the run") : 0;
}

/* ---- output --------------------------------------------------------------------------------------------- */

static void on_output(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct run *run = ctx;
    AUTO_BUF struct buf clean = BUF_INIT(TEXT_MAX);

    if (!run->events.output || stream < 1 || stream > 2)
        return;
    if (!run->scrub)
        run->events.output(run->events.ctx, stream, (const char *)data, len);
    else if (scrub_feed(run->scrub, &run->streams[stream], data, len, &clean) == 0 && clean.len)
        run->events.output(run->events.ctx, stream, clean.data, clean.len);
}

static void flush_output(struct run *run)
{
    for (unsigned i = 1; i < 3 && run->scrub && run->events.output; i++) {
        AUTO_BUF struct buf clean = BUF_INIT(TEXT_MAX);
        if (scrub_end(run->scrub, &run->streams[i], &clean) == 0 && clean.len)
            run->events.output(run->events.ctx, i, clean.data, clean.len);
    }
}

void run_child_done(void *ctx, const struct child_done *done)
{
    struct run *run = ctx;
    struct brig_err why = {0};
    struct child *child = take_ptr(&run->child);

    run->provider_run = NULL;
    if (!done->started && !run->cancelled &&
        (done->cause == BRIG_CAUSE_HOST_ERROR || done->cause == BRIG_CAUSE_SANDBOX_GONE)) {
        if (child && run->keep_files)
            child_release(child);
        (void)err_set(&why, done->unsupported ? BRIG_E_UNSUPPORTED : BRIG_E_BUSY, 0, "%.200s",
                      done->detail && done->detail[0] ? done->detail : "it ended before it began");
        provider_failed(run, &why, !done->unsupported);
        return;
    }
    flush_output(run);
    run->child = child; /* its sandbox and its zygote are looked at */
    char org[64], id[48];
    struct executor *executor = run->executor;
    bool keep = run->keep_files;
    snprintf(org, sizeof org, "%s", run->caller.org_id);
    snprintf(id, sizeof id, "%s", run->id);
    bool look = run_result(run, done) && keep;
    run->child = NULL;
    struct sbox *own = run->own_sandbox[0] ? sbox_by_id(executor->o.manager, run->own_sandbox) : NULL;
    run_over(run); /* the answer first: files can wait */
    if (own)
        (void)!sbox_end(own, NULL, "over", NULL, NULL, NULL);
    if (child && look)
        artifact_fetch(executor, org, id, child);
    else if (child && keep)
        child_release(child);
}

void run_claim(struct run *run, struct child_claim *ret, const struct buf *request)
{
    *ret = (struct child_claim){.caller = &run->caller,
                                .request = request->data,
                                .request_len = request->len,
                                .timeout_ms = run->timeout_ms,
                                .output = run->limits.output,
                                .answer_max = 2 * (uint64_t)RESULT_MAX,
                                .limits = {.memory = run->limits.memory,
                                           .cpus = run->limits.cpus,
                                           .pids = run->limits.pids,
                                           .cpu_time = run->limits.cpu_time},
                                .network = run->network,
                                .keep_files = run->keep_files,
                                .output_data = run->events.output ? on_output : NULL,
                                .done = run_child_done,
                                .ctx = run};
    snprintf(ret->run_id, sizeof ret->run_id, "%s", run->id);
}

/* ---- local ---------------------------------------------------------------------------------------------- */

/* On a negative return the child is gone, and nothing was sent. */
static int claim(struct run *run, struct child *child, struct brig_err *err)
{
    AUTO_BUF struct buf buf = BUF_INIT(CHILD_FRAME_MAX);
    struct frame_request request;
    struct child_claim claim;

    run->child = child;
    int r = run_request(run, &buf, &request, err);
    if (r < 0) {
        child_end(child);
    } else {
        run_claim(run, &claim, &buf);
        r = child_claim(child, &claim, err);
    }
    if (buf.data)
        crypto_wipe(buf.data, buf.len);
    if (r < 0)
        run->child = NULL;
    else
        run->provider = &run->executor->providers[0];
    return r;
}

static void on_given(void *ctx, struct child *child, const struct brig_err *why)
{
    struct run *run = ctx;
    struct brig_err err = {0};

    run->wait = NULL;
    if (!child) {
        provider_failed(run, why, why->code == BRIG_E_BUSY);
        return;
    }
    if (claim(run, child, &err) < 0)
        provider_failed(run, &err, err.code == BRIG_E_BUSY || err.code == BRIG_E_GONE);
}

/* What a claim cannot change: it is part of the key. */
static struct brig_limits fixed_limits(const struct brig_limits *limits)
{
    struct brig_limits fixed = *limits;

    fixed.memory = fixed.cpus = fixed.pids = fixed.cpu_time = fixed.timeout = fixed.output = 0;
    return fixed;
}

int local_start(struct run *run, struct brig_err *err)
{
    struct pool *pool = run->executor->o.pool;
    struct pool_want want = {.org_id = run->caller.org_id,
                             .language = run->tool.language,
                             .set = run->set,
                             .strict = run->strict,
                             .network = run->has_network,
                             .workspace = run->workspace,
                             .persist = run->persist,
                             .limits = fixed_limits(&run->limits)};

    if (!run->fingerprint[0])
        run_fingerprint(run);
    if (run->sandbox_id[0] || run->reuse != REUSE_NONE || run->secrets_json)
        return reuse_start(run, err);
    int r = run->has_network
                ? network_shape(run->executor->o.manager, run->caller.org_id, run->network, &want.shape, err)
                : 0;
    if (r < 0)
        return r;
    run->keep_files = run->executor->o.artifacts_fd >= 0 && run->kind != FRAME_SCHEMA;
    struct child *child = pool_try(pool, &want);
    if (child) {
        if (run->breathes)
            pool_breathe(pool); /* the second one: the first is gone */
        run->breathes = true;
        return claim(run, child, err);
    }
    return pool_take(pool, &want, on_given, run, &run->wait, err);
}
