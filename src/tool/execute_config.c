/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execute_config.c: what a run is bounded and fed by: limits and wall clock (call over tool over configuration over settings), network and secrets, and the organisation's local
 * configuration: its fingerprint, its directory and that directory's requirements.txt.
 *
 * The directory is only looked at: whether it is there and holds anything decides which pool a run comes from, so that the common case, an empty one, shares one pool.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "sandbox/private.h"
#include "tool/config_set.h"
#include "tool/execute_priv.h"

static const struct object *config_object(const struct run *run)
{
    const struct executor_options *o = &run->executor->o;

    return o->configs ? configs_by_type(o->configs, run->caller.org_id, "local") : NULL;
}

const struct json_value *run_config(const struct run *run)
{
    const struct object *object = config_object(run);

    return object ? json_get(object->json, "config") : NULL;
}

/* ---- fingerprint --------------------------------------------------------------------------------------------------------- */

static int of_default(const struct run *run, char out[FINGERPRINT_MAX])
{
    static const char empty[] = "{}";
    AUTO_BUF struct buf text = BUF_INIT(1u << 20);
    struct json_doc *asked = NULL, *whole = NULL;
    int r = json_read(empty, 2, 2, &asked, NULL);

    if (r == 0)
        r = config_complete(run->executor->o.configs, "local", json_root(asked), NULL, &text, NULL);
    if (r == 0)
        r = json_read(text.data, text.len, JSON_READ_VALUES, &whole, NULL);
    if (r == 0)
        r = config_fingerprint("local", run->caller.org_id, json_root(whole), out);
    json_doc_free(asked);
    json_doc_free(whole);
    return r;
}

void run_fingerprint(struct run *run)
{
    const struct object *object = config_object(run);
    struct fingerprint_of *slot = &run->executor->fingerprints[sandbox_bucket(run->caller.org_id, "") % FINGERPRINTS];
    const char *id = object ? object->id : "";
    uint64_t version = object ? object->version : 0;

    if (!run->executor->o.configs)
        return;
    if (!str_eq(slot->org, run->caller.org_id) || !str_eq(slot->id, id) || slot->version != version || !slot->text[0]) {
        struct fingerprint_of fresh = {.version = version};
        snprintf(fresh.org, sizeof fresh.org, "%s", run->caller.org_id);
        snprintf(fresh.id, sizeof fresh.id, "%s", id);
        int r = object ? config_fingerprint("local", run->caller.org_id, json_get(object->json, "config"), fresh.text) : of_default(run, fresh.text);
        if (r < 0)
            return; /* then the result has none */
        *slot = fresh;
    }
    snprintf(run->fingerprint, sizeof run->fingerprint, "%s", slot->text);
}

/* ---- limits -------------------------------------------------------------------------------------------------------------- */

/* Those that are given win over those before. */
int run_limits(struct run *run, const struct run_ask *ask, struct brig_err *err)
{
    const struct config *config = run->executor->o.config;
    const struct json_value *own = json_get(run_config(run), "timeout");
    uint64_t of_config = 0;
    int r = 0;

    if (ask->tool->limits && ask->tool->limits->type != JSON_NULL)
        r = spec_limits(ask->tool->limits, &run->limits, err);
    uint64_t of_tool = run->limits.timeout;
    if (r == 0 && ask->limits && ask->limits->type != JSON_NULL) {
        run->limits.timeout = 0;
        r = spec_limits(ask->limits, &run->limits, err);
    }
    if (r < 0)
        return r;
    uint64_t of_call = ask->timeout_ms ? ask->timeout_ms : ask->limits ? run->limits.timeout : 0;
    if (own && own->type == JSON_NUMBER && spec_duration(own, "timeout", &of_config, NULL) < 0)
        of_config = 0;
    run->timeout_ms = of_call ? of_call : of_tool ? of_tool : of_config ? of_config : config->tools_timeout;
    if (run->timeout_ms > config->tools_max_timeout)
        run->timeout_ms = config->tools_max_timeout;
    run->limits.timeout = 0; /* the claim has it */
    return 0;
}

/* ---- network and secrets ------------------------------------------------------------------------------------------------- */

static bool is_none(const struct json_value *network)
{
    return !network || network->type == JSON_NULL || (network->type == JSON_STRING && str_eq(network->string, "none"));
}

int run_network(struct run *run, const struct run_ask *ask, struct brig_err *err)
{
    const struct config *config = run->executor->o.config;
    const struct json_value *asked = ask->network ? ask->network : ask->tool->network, *secrets = ask->secrets ? ask->secrets : ask->tool->secrets;
    AUTO_FREE char *text = NULL;
    int r = 0;

    if (secrets && secrets->type != JSON_NULL && secrets->count) {
        struct arena arena;
        if (arena_init(&arena, secrets, 256) < 0)
            return err_nomem(err);
        run->secrets_memory = arena.base;
        r = spec_secrets(secrets, &arena, &run->secrets, &run->n_secrets, err);
    }
    for (size_t i = 0; r == 0 && i < run->n_secrets; i++)
        if (!run->secrets[i].expose && !run->secrets_json && run_keep(run, secrets, &run->secrets_json) < 0)
            return err_nomem(err);
    if (r < 0 || run->kind == FRAME_SCHEMA)
        return r;
    /* A tool's own policy was written by who registered it; only an administrator's may name private ranges. */
    bool admin = caller_is_admin(&run->caller);
    r = asked && asked->type != JSON_NULL ? spec_network(asked, admin, config, &text, err) : spec_network_default(config, &text, err);
    if (r < 0 || !text)
        return r;
    if (run->n_docs >= ARRAY_SIZE(run->docs) || json_read(text, strlen(text), JSON_READ_VALUES, &run->docs[run->n_docs], NULL) < 0)
        return err_nomem(err);
    run->network = json_root(run->docs[run->n_docs++]);
    run->has_network = !is_none(run->network);
    if (!run->has_network)
        run->network = NULL;
    return 0;
}

/* ---- the directory ------------------------------------------------------------------------------------------------------- */

static bool look(const char *path)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    bool filled = false;

    if (!dir)
        return false;
    while (!filled && (entry = readdir(dir)))
        filled = !str_eq(entry->d_name, ".") && !str_eq(entry->d_name, "..");
    closedir(dir);
    return filled;
}

/* Not looked at again within a second: a run costs no system call for it. */
static bool dir_filled(struct executor *executor, const char *path)
{
    uint64_t now = loop_now_ns();

    if (executor->dir.seen_ns && now - executor->dir.seen_ns < DIR_LOOK_NS && str_eq(executor->dir.path, path))
        return executor->dir.filled;
    if (str_copy(executor->dir.path, sizeof executor->dir.path, path) < 0)
        return false;
    executor->dir.seen_ns = now;
    executor->dir.filled = look(path);
    return executor->dir.filled;
}

int run_workspace(struct run *run, struct buf *requirements)
{
    const struct json_value *config = run_config(run), *persist = json_get(config, "persist");
    const char *path = config_set_dir(config, run->executor->o.config);

    if (path && run->executor->o.configs && !config_dir_allowed(run->executor->o.configs, path))
        return -EACCES; /* the administrator has changed his mind since it was stored */
    if (!path || !dir_filled(run->executor, path))
        return 0;
    run->workspace = run_copy_text(run, path);
    if (!run->workspace)
        return -ENOMEM;
    run->persist = persist && persist->type == JSON_BOOL && persist->boolean;
    return requirements ? config_set_file(path, requirements) : 0;
}
