/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools.c: opens the parts of tool execution in the daemon, in the order in which they need each other:
 *
 *     kept      registry, configurations, agents   before the service is locked down; they end after the store,
 *                                                  whose writes come back to them
 *     deciding  rates, approvals
 *     running   webhook, sets, pool, executor      they need the manager and end before it
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "api/api.h"
#include "api/log.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "deps/config_set.h"
#include "run/execute.h"

/* Every change of a configuration is an event; what was kept warm for the old one goes. */
static void on_config_change(void *ctx, const char *org, const char *type, const char *id, const char *before,
                             const char *after)
{
    struct api *api = ctx;
    char detail[3 * FINGERPRINT_MAX];

    snprintf(detail, sizeof detail, "%s: %s -> %s", type, before[0] ? before : "none", after[0] ? after : "none");
    api_audit_system(api, "config.change", org, id, detail);
    if (api->pool)
        pool_retire(api->pool, org);
    if (api->executor && str_eq(type, "local"))
        executor_retire(api->executor, org, after);
}

/* A directory of the service, made where it is not there yet. */
static int open_dir(const char *state_dir, const char *name, char path[4096], int *ret_fd, struct brig_err *err)
{
    if (str_format(path, 4096, "%s/service/%s", state_dir, name) < 0)
        return err_usage(err, "%s: too long", state_dir);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_host(err, "%s", path);
    *ret_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return *ret_fd < 0 ? err_host(err, "%s", path) : 0;
}

/* Where dependency sets are, and the files that runs leave. */
static int open_dirs(struct api *api, const char *state_dir, struct brig_err *err)
{
    const char *given = getenv(SETS_DIR_ENV);
    char path[4096];
    int r = open_dir(state_dir, "artifacts", path, &api->artifacts_fd, err);

    if (r == 0 && !given)
        r = open_dir(state_dir, "sets", path, &api->sets_dir_fd, err);
    if (r < 0)
        return r;
    if (given) {
        api->sets_dir_fd = open(given, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (api->sets_dir_fd < 0)
            return err_host(err, "%s", given);
    }
    api->sets_path = mem_strdup(given ? given : path);
    return api->sets_path ? 0 : err_nomem(err);
}

int api_tools_open(struct api *api, const struct keyring *ring, const char *state_dir, struct brig_err *err)
{
    const struct config *config = config_get(api->config);
    const struct configs_options options = {.store = api->store,
                                            .ring = ring,
                                            .plain = config->secrets_plaintext,
                                            .config = config,
                                            .on_change = on_config_change,
                                            .ctx = api};
    int r = registry_create(api->store, &api->registry, err);

    if (r == 0)
        r = configs_create(&options, &api->configs, err);
    if (r == 0)
        r = agents_create(api->store, ring, config->secrets_plaintext, &api->agents, err);
    if (r == 0 && agents_set_legacy_key(api->agents, config->tools_legacy_key) < 0)
        r = err_nomem(err);
    if (r == 0)
        r = rates_create(&api->rates, err);
    if (r == 0)
        r = approvals_create(api->loop, &api->approvals, err);
    return r == 0 ? open_dirs(api, state_dir, err) : r;
}

static int start_webhook(struct api *api, struct brig_err *err)
{
    const struct config *config = config_get(api->config);
    const struct webhook_options options = {.loop = api->loop,
                                            .url = config->tools_webhook_url,
                                            .key = config->tools_webhook_key,
                                            .timeout_ms = config->tools_webhook_timeout,
                                            .cache_ms = config->tools_webhook_cache,
                                            .ca_bundle = config->gate_ca_bundle[0] ? config->gate_ca_bundle : NULL};

    return config->tools_webhook_url[0] ? webhook_create(&options, &api->webhook, err) : 0;
}

int api_tools_start(struct api *api, struct brig_err *err)
{
    const struct config *config = config_get(api->config);
    const struct sets_options sets = {.loop = api->loop,
                                      .manager = api->manager,
                                      .config = config,
                                      .cache_dir_fd = api->sets_dir_fd,
                                      .cache_path = api->sets_path};
    int r = start_webhook(api, err);

    if (r == 0)
        r = sets_create(&sets, &api->sets, err);
    const struct pool_options pool = {.loop = api->loop, .manager = api->manager, .config = config, .sets = api->sets};
    if (r == 0)
        r = pool_create(&pool, &api->pool, err);
    if (r < 0)
        return r;
    const struct executor_options options = {.loop = api->loop,
                                             .manager = api->manager,
                                             .providers = api->providers,
                                             .store = api->store,
                                             .audit = api->audit,
                                             .config = config,
                                             .configs = api->configs,
                                             .agents = api->agents,
                                             .secrets = api->secrets,
                                             .sets = api->sets,
                                             .pool = api->pool,
                                             .webhook = api->webhook,
                                             .rates = api->rates,
                                             .approvals = api->approvals,
                                             .accounts = api->accounts,
                                             .artifacts_fd = api->artifacts_fd};
    return executor_create(&options, &api->executor, err);
}

static void on_reloaded(void *ctx, const struct set *set, const struct brig_err *err)
{
    struct api *api = ctx;

    if (err)
        log_line(LOG_ERROR, "tools", "autoreload_venv: %s", err->message);
    else
        set_release(api->sets, set); /* it is there for the first run */
}

/* [tools] autoreload_venv: what the default organisation's runs find installed is built again, in the background; a run
 * that comes before has the old one. */
static void reload(struct api *api, const struct object *object)
{
    const struct config *config = config_get(api->config);
    struct caller caller = {.role = STORE_ROLE_ADMIN, .org_id = ACCOUNTS_DEFAULT_ORG, .actor = "system"};
    struct set_build *build = NULL;
    struct brig_err err = {0};

    if (api->sets && config->tools_autoreload_venv && config->tools_venv_name[0] &&
        config_set_rebuild(api->sets, config, &caller, config_content(object), on_reloaded, api, &build, &err) < 0)
        log_line(LOG_ERROR, "tools", "autoreload_venv: %s", err.message);
}

static void on_default(void *ctx, const struct object *object, const struct brig_err *err)
{
    if (err)
        log_line(LOG_ERROR, "tools", "the default configuration: %s", err->message);
    else
        reload(ctx, object);
}

int api_tools_ready(struct api *api, struct brig_err *err)
{
    static const struct json_value none = {.type = JSON_OBJECT, .raw = "{}", .raw_len = 2};
    const struct config *config = config_get(api->config);
    const struct pool_want want = {
        .org_id = ACCOUNTS_DEFAULT_ORG, .language = TOOL_PYTHON, .strict = config->tools_strict, .keep = true};
    struct brig_err failed = {0};

    /* Made once; Letta wrote it again at every start, and undid what had been changed. */
    if (configs_put(api->configs, ACCOUNTS_DEFAULT_ORG, "user-00000000-0000-4000-8000-000000000000", STANDING_SOCKET,
                    NULL, "local", &none, true, on_default, api, &failed) < 0)
        log_line(LOG_ERROR, "tools", "the default configuration: %s", failed.message);
    return config->tools_prewarm > 0 ? pool_prewarm(api->pool, &want, (unsigned)config->tools_prewarm, err) : 0;
}

void api_tools_configure(struct api *api, const struct config *config)
{
    configs_configure(api->configs, config);
    sets_configure(api->sets, config);
    pool_configure(api->pool, config);
    executor_configure(api->executor, config);
}

void api_tools_stop(struct api *api)
{
    executor_destroy(take_ptr(&api->executor));
    pool_destroy(take_ptr(&api->pool));
    sets_destroy(take_ptr(&api->sets));
    webhook_destroy(take_ptr(&api->webhook));
    approvals_destroy(take_ptr(&api->approvals));
    rates_destroy(take_ptr(&api->rates));
}

void api_tools_close(struct api *api)
{
    agents_destroy(take_ptr(&api->agents));
    configs_destroy(take_ptr(&api->configs));
    objects_destroy(take_ptr(&api->registry));
    base_close_fd(&api->sets_dir_fd);
    base_close_fd(&api->artifacts_fd);
    mem_free(api->sets_path);
}

void api_tools_forget_org(struct api *api, const char *org)
{
    pool_retire(api->pool, org);
    objects_forget_org(agents_objects(api->agents), org);
    objects_forget_org(configs_variables(api->configs), org);
    objects_forget_org(configs_objects(api->configs), org);
    objects_forget_org(api->registry, org);
}
