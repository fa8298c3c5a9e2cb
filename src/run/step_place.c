/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_place.c: who runs it. The order is: what the call wishes, what the tool wishes, what the organisation
 * wishes, then E2B where it is enabled, then local; each once. `fallback: none` (of the call, the tool, or `[tools]
 * fallback`) leaves only the first.
 *
 * The started boundary: a failure before the request was sent is, when the provider calls it transient (BRIG_E_BUSY, or
 * a child that died before it began), tried twice more with a pause, and then the next provider's turn; once the
 * request was sent nothing is run again, whatever happens. Everything that was passed over is in the receipt, with why.
 */
#include <stdio.h>
#include <string.h>

#include "run/run_priv.h"

static const struct run_provider *find(const struct executor *executor, const char *name)
{
    for (size_t i = 0; i < executor->n_providers; i++)
        if (str_eq(executor->providers[i].name, name))
            return &executor->providers[i];
    return NULL;
}

/* One of ours that is not built yet. A key or address that is this server's own is no remote provider. */
static int add_missing(struct executor *executor, const char *name, bool key, const char *variable,
                       struct brig_err *err)
{
    char *why = executor->why_off[executor->n_providers];
    const struct run_provider provider = {.name = name, .off = why};

    snprintf(why, sizeof executor->why_off[0], variable && !key ? "no key: %s" : "not built yet%.0s",
             variable ? variable : "");
    return executor_provider(executor, &provider, err);
}

int providers_init(struct executor *executor, struct brig_err *err)
{
    const struct config *c = executor->o.config;
    const struct run_provider local = {.name = "local", .off = executor->o.pool ? NULL : "there is no pool"};
    int r = executor_provider(executor, &local, err);

    if (r == 0)
        r = add_missing(executor, "modal", c->tools_modal_id[0] && c->tools_modal_secret[0],
                        "MODAL_TOKEN_ID, MODAL_TOKEN_SECRET", err);
    if (r == 0)
        r = add_missing(executor, "e2b", c->tools_e2b_key[0] != '\0', "E2B_API_KEY", err);
    if (r == 0)
        r = add_missing(executor, "daytona", false, NULL, err);
    return r == 0 ? add_missing(executor, "docker", false, NULL, err) : r;
}

int executor_provider(struct executor *executor, const struct run_provider *provider, struct brig_err *err)
{
    for (size_t i = 0; i < executor->n_providers; i++)
        if (str_eq(executor->providers[i].name, provider->name)) {
            executor->providers[i] = *provider; /* one that is built takes the place of the one that was not */
            return 0;
        }
    if (executor->n_providers >= PROVIDERS_MAX)
        return err_set(err, BRIG_E_LIMIT, 0, "more than %u providers", PROVIDERS_MAX);
    executor->providers[executor->n_providers++] = *provider;
    return 0;
}

void executor_providers_json(const struct executor *executor, struct json *json)
{
    json_array(json);
    for (size_t i = 0; i < executor->n_providers; i++) {
        const struct run_provider *p = &executor->providers[i];
        json_object(json);
        json_key(json, "name"), json_string(json, p->name);
        json_key(json, "enabled"), json_bool(json, p->off == NULL);
        json_key(json, "why"), p->off ? json_string(json, p->off) : json_null(json);
        json_end(json);
    }
    json_end(json);
}

/* ---- order ---------------------------------------------------------------------------------------------- */

static void wish(struct run *run, const char *name)
{
    if (!name || !name[0] || run->n_order >= ARRAY_SIZE(run->order))
        return;
    for (size_t i = 0; i < run->n_order; i++)
        if (str_eq(run->order[i], name))
            return;
    run->order[run->n_order++] = name;
}

void provider_order(struct run *run, const struct run_ask *ask)
{
    const struct executor *executor = run->executor;
    const struct json_value *own = json_get(json_get(ask->org_doc, "tools"), "provider");
    const struct run_provider *e2b = find(executor, "e2b");

    snprintf(run->wish, sizeof run->wish, "%s", ask->provider ? ask->provider : "");
    snprintf(run->org_wish, sizeof run->org_wish, "%s", own && own->type == JSON_STRING ? own->string : "");
    wish(run, run->wish);
    wish(run, run->tool.provider);
    wish(run, run->org_wish);
    if (!run->sandbox_id[0] && run->reuse == REUSE_NONE && e2b && !e2b->off)
        wish(run, "e2b");
    wish(run, "local");
    run->no_fallback = (ask->fallback ? str_eq(ask->fallback, "none") : run->tool.no_fallback) ||
                       (!ask->fallback && str_eq(executor->o.config->tools_fallback, "none"));
    if (run->sandbox_id[0]) { /* a live sandbox is where it is */
        run->order[0] = "local";
        run->n_order = 1;
    }
}

static void passed_over(struct run *run, const char *name, const char *why)
{
    if (run->n_tried >= TRIED_MAX)
        return;
    struct tried *t = &run->tried[run->n_tried++];
    snprintf(t->provider, sizeof t->provider, "%.31s", name);
    snprintf(t->why, sizeof t->why, "%.*s", (int)sizeof t->why - 1, why);
}

/* ---- starting ------------------------------------------------------------------------------------------- */

static int remote_start(struct run *run, const struct run_provider *provider, struct brig_err *err)
{
    AUTO_BUF struct buf buf = BUF_INIT(CHILD_FRAME_MAX);
    struct frame_request request;
    struct child_claim claim;
    int r = run_request(run, &buf, &request, err);

    if (r == 0) {
        run_claim(run, &claim, &buf);
        run->provider = provider;
        r = provider->start(provider->ctx, &claim, &request, &run->provider_run, err);
    }
    if (r < 0)
        run->provider = NULL;
    if (buf.data)
        crypto_wipe(buf.data, buf.len);
    return r;
}

static void pause_before(struct run *run)
{
    uint64_t ms = RETRY_FIRST_MS;

    for (unsigned i = 1; i < run->attempts; i++)
        ms *= 4;
    if (loop_timer_set(run->executor->o.loop, &run->later, loop_now_ns() + ms * NS_PER_MS, NULL) < 0)
        run_advance(run);
}

/* 1: a pause, then the same again; 0: the next, if there is one; or there is none. */
static int failed(struct run *run, const char *name, const struct brig_err *why, bool transient, struct brig_err *err)
{
    passed_over(run, name, why->message);
    run->provider = NULL;
    run->provider_run = NULL;
    if (transient && ++run->attempts < ATTEMPTS_MAX) {
        pause_before(run);
        return 1;
    }
    run->attempts = 0;
    run->at++;
    if (run->at < run->n_order && !run->no_fallback)
        return 0;
    *err = *why;
    return -(why->errnum ? why->errnum : EIO);
}

int step_provider(struct run *run, struct brig_err *err)
{
    struct executor *executor = run->executor;

    for (;;) {
        const char *name = run->order[run->at];
        const struct run_provider *provider = find(executor, name);
        struct brig_err why = {0};
        int r;

        run->step = STEP_PROVIDER;
        if (!provider)
            r = err_set(&why, BRIG_E_USAGE, 0, "provider %.31s: there is no such one", name);
        else if (provider->off)
            r = err_set(&why, BRIG_E_UNSUPPORTED, 0, "provider %s: %s", name, provider->off);
        else if (str_eq(name, "local") && !provider->start)
            r = local_start(run, &why);
        else
            r = remote_start(run, provider, &why);
        if (r >= 0) {
            run->step = STEP_RUNNING;
            return 1;
        }
        r = failed(run, name, &why, why.code == BRIG_E_BUSY, err);
        if (r != 0)
            return r;
    }
}

void provider_failed(struct run *run, const struct brig_err *why, bool transient)
{
    struct brig_err err = {0};

    run->step = STEP_PROVIDER;
    int r = failed(run, run->order[run->at], why, transient, &err);
    if (r == 0)
        run_advance(run);
    else if (r < 0)
        run_refuse(run, &err, 0);
}
