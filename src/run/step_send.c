/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_send.c: the fifth step sends the request of the run as one frame to its place: a parked child, a new process in
 * a sandbox that lives on, or a provider of the narrow form. All take the same claim, and all answer with the same
 * done.
 */
#include <string.h>

#include "codec/wire/le.h"
#include "run/run_priv.h"

/* ---- the request ---------------------------------------------------------------------------------------- */

static int add_set(struct run *run, struct brig_err *err)
{
    const struct set *set = run->set;
    char path[512] = "";

    if (!set)
        return 0;
    if (set->venv && str_format(path, sizeof path,
                                "%s/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", set->venv) < 0)
        return -ENAMETOOLONG;
    int r = environment_add_text(run->env, ENV_BASE, "PATH", path, err);
    if (r == 0)
        r = environment_add_text(run->env, ENV_BASE, "VIRTUAL_ENV", set->venv, err);
    return r == 0 ? environment_add_text(run->env, ENV_BASE, "NODE_PATH", set->node_path, err) : r;
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

static int build_frame(struct run *run, struct buf *out, struct brig_err *err)
{
    struct frame_request request;
    int r = add_set(run, err);

    if (r == 0)
        r = add_network(run, err);
    if (r < 0)
        return r;
    request = (struct frame_request){.kind = run->kind,
                                     .tool = &run->tool,
                                     .args = run->args,
                                     .args_len = run->args_len,
                                     .agent_state = run->state,
                                     .agent_id = run->agent_id[0] ? run->agent_id : NULL,
                                     .site = !run->set                           ? NULL
                                             : run->tool.language == TOOL_PYTHON ? run->set->venv
                                                                                 : run->set->node_path,
                                     .cwd = "/workspace",
                                     .files = run->files,
                                     .collect = run->collect};
    memcpy(request.key, run->key, sizeof request.key);
    request.n_env = environment_pairs(run->env, &request.env);
    /* One allocation, not one per doubling: the sizes are known but for escapes. */
    const size_t tool = run->tool_object ? run->tool_object->len : run->tool.source_len + run->tool.source_len / 8;
    r = buf_reserve(out, 1024 + tool + run->args_len + (run->agent ? run->agent->len : 0) + 96 * request.n_env);
    if (r == 0) {
        buf_commit(out, CHILD_FRAME_HEAD);
        r = frame_request_put(&request, out);
    }
    if (r == 0)
        le_put_u32((uint8_t *)out->data, (uint32_t)(out->len - CHILD_FRAME_HEAD));
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

/* ---- the answer ----------------------------------------------------------------------------------------- */

static void on_answer(void *ctx, const struct child_done *done)
{
    run_answered(ctx, done);
}

static void on_answered(void *ctx, const struct child_done *done)
{
    struct run *run = ctx;
    struct brig_err why = {0};

    run->provider_run = NULL;
    if (done->started || run->cancelled ||
        (done->cause != BRIG_CAUSE_HOST_ERROR && done->cause != BRIG_CAUSE_SANDBOX_GONE)) {
        step_result(run, done);
        return;
    }
    struct child *child = take_ptr(&run->child);
    if (child && run->keep_files)
        child_release(child);
    (void)err_set(&why, done->unsupported ? BRIG_E_UNSUPPORTED : BRIG_E_BUSY, 0, "%.200s",
                  done->detail && done->detail[0] ? done->detail : "it ended before it began");
    place_failed(run, &why, !done->unsupported);
}

/* ---- the claim ------------------------------------------------------------------------------------------ */

static void fill_claim(struct run *run, struct child_claim *ret, struct buf *request)
{
    *ret = (struct child_claim){.caller = &run->caller,
                                .request = request,
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
                                .answered = on_answer,
                                .done = on_answered,
                                .ctx = run};
    str_assign(ret->run_id, run->id);
}

/* The sandbox has its own template, network and limits. */
static int send_live(struct run *run, struct sbox *sbox, struct child_claim *claim, struct brig_err *err)
{
    struct child_spec spec = {.argv = runtime_argv(run->tool.language, sbox_has_own_root(sbox))};

    str_assign(spec.org_id, run->caller.org_id);
    claim->network = NULL;
    claim->n_secrets = 0;
    claim->limits = (struct brig_limits){0};
    return child_in_sandbox(sbox, &spec, claim, &run->child, err);
}

int step_send(struct run *run, struct brig_err *err UNUSED)
{
    AUTO_BUF struct buf buf = BUF_INIT(CHILD_FRAME_HEAD + CHILD_FRAME_MAX);
    const bool parked = run->child != NULL;
    struct brig_err why = {0};
    struct child_claim claim;
    int r = build_frame(run, &buf, &why);
    struct sbox *live = take_ptr(&run->live);

    if (r == 0) {
        fill_claim(run, &claim, &buf);
        r = parked ? child_claim(run->child, &claim, &why)
            : live ? send_live(run, live, &claim, &why)
                   : run->place->ops->run(run->place, &claim, &run->provider_run, &why);
    } else if (parked) {
        child_end(run->child);
    }
    if (buf.data)
        crypto_wipe(buf.data, buf.len);
    run->provider = run->place;
    if (r < 0) { /* the child is gone, and nothing was sent */
        run->child = NULL;
        place_failed(run, &why, why.code == BRIG_E_BUSY || (parked && why.code == BRIG_E_GONE));
    }
    return 1;
}
