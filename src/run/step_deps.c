/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_deps.c: the third step finds what is installed for the run: the organisation's local configuration with its
 * fingerprint, its directory and that directory's requirements.txt, and the dependency set of all packages that tool
 * and configuration name.
 *
 * The directory is only looked at: whether it is there and holds anything decides which pool a run comes from, so that
 * the common case, an empty one, shares one pool.
 */
#include <string.h>

#include "base/dir.h"
#include "deps/config_set.h"
#include "run/run_priv.h"

#define RUN_REQUIREMENTS_MAX 512u

static const struct object *config_object(const struct run *run)
{
    const struct executor_options *o = &run->executor->o;

    const struct object *config = o->configs ? configs_by_type(o->configs, run->caller.org_id, "local") : NULL;

    /* Its packages and its directory are code. A user key's are not put beside what only an administrator may give. */
    return config && run->needs > STANDING_USER && config_written_as(config) < run->needs ? NULL : config;
}

const struct json_value *run_config(const struct run *run)
{
    const struct object *object = config_object(run);

    return object ? json_get(object->json, "config") : NULL;
}

/* ---- fingerprint ---------------------------------------------------------------------------------------- */

static int of_default(const struct run *run, char out[FINGERPRINT_MAX])
{
    static const char empty[] = "{}";
    AUTO_BUF struct buf text = BUF_INIT(1u << 20);
    AUTO_JSON struct json_doc *asked = NULL, *whole = NULL;
    int r = json_read(empty, 2, 2, &asked, NULL);

    if (r == 0)
        r = config_complete(run->executor->o.configs, "local", json_root(asked), NULL, &text, NULL);
    if (r == 0)
        r = json_read(text.data, text.len, JSON_READ_VALUES, &whole, NULL);
    if (r == 0)
        r = config_fingerprint("local", run->caller.org_id, json_root(whole), out);
    return r;
}

void run_fingerprint(struct run *run)
{
    const struct object *object = config_object(run);
    struct fingerprint_of *slot = &run->executor->fingerprints[str_hash(run->caller.org_id, NULL) % FINGERPRINTS];
    const char *id = object ? object->id : "";
    uint64_t version = object ? object->version : 0;

    if (!run->executor->o.configs)
        return;
    if (!str_eq(slot->org, run->caller.org_id) || !str_eq(slot->id, id) || slot->version != version || !slot->text[0]) {
        struct fingerprint_of fresh = {.version = version};
        str_assign(fresh.org, run->caller.org_id);
        int r = str_copy(fresh.id, sizeof fresh.id, id);
        if (r < 0)
            return;
        r = object ? config_fingerprint("local", run->caller.org_id, json_get(object->json, "config"), fresh.text)
                   : of_default(run, fresh.text);
        if (r < 0)
            return; /* then the result has none */
        *slot = fresh;
    }
    str_assign(run->fingerprint, slot->text);
}

/* ---- the directory -------------------------------------------------------------------------------------- */

static bool look(const char *path)
{
    AUTO_DIR DIR *dir = opendir(path);

    return dir_next(dir) != NULL;
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

/* requirements: gets the text of its requirements.txt; or NULL */
static int find_workspace(struct run *run, struct buf *requirements)
{
    const struct json_value *config = run_config(run), *persist = json_get(config, "persist");
    const char *path = config_set_dir(config, run->executor->o.config);

    if (path && run->executor->o.configs && !config_dir_allowed(run->executor->o.configs, path))
        return -EACCES; /* the administrator has changed his mind since it was stored */
    if (!path || !dir_filled(run->executor, path))
        return 0;
    run->workspace = arena_copy(run->arena, path, strlen(path));
    if (!run->workspace)
        return -ENOMEM;
    run->persist = persist && persist->type == JSON_BOOL && persist->boolean;
    return requirements ? config_set_file(path, requirements) : 0;
}

/* ---- the dependency set --------------------------------------------------------------------------------- */

struct wants {
    const char *pip[RUN_REQUIREMENTS_MAX], *npm[REQUIREMENTS_MAX];
    size_t n_pip, n_config_pip, n_npm;
};

static int add(struct run *run, const char **list, size_t *n, const char *name, const char *version, bool npm)
{
    char text[512];
    bool bare = !version || !version[0], compared = !bare && strchr("=<>~!", version[0]);

    if (*n >= RUN_REQUIREMENTS_MAX)
        return -E2BIG;
    int r = str_format(text, sizeof text, "%s%s%s", name,
                       bare       ? ""
                       : npm      ? "@"
                       : compared ? ""
                                  : "==",
                       bare ? "" : version);
    if (r < 0)
        return r;
    list[*n] = arena_copy(run->arena, text, strlen(text));
    if (!list[*n])
        return -ENOMEM;
    (*n)++;
    return 0;
}

/* Adds the requirements of a configuration: [{name, version}] or ["name==1"]. */
static int add_json(struct run *run, const struct json_value *list, const char **out, size_t *n, bool npm)
{
    int r = 0;

    for (const struct json_value *v = list && list->type == JSON_ARRAY ? list->first : NULL; v && r == 0; v = v->next) {
        const struct json_value *name = v->type == JSON_OBJECT ? json_get(v, "name") : v,
                                *version = json_get(v, "version");
        if (name && name->type == JSON_STRING)
            r = add(run, out, n, name->string, version && version->type == JSON_STRING ? version->string : NULL, npm);
    }
    return r;
}

static int collect(struct run *run, struct wants *wants, const struct json_value *config)
{
    int r = run->tool.language == TOOL_PYTHON
                ? add_json(run, json_get(config, "pip_requirements"), wants->pip, &wants->n_pip, false)
                : 0;

    wants->n_config_pip = wants->n_pip;
    for (size_t i = 0; r == 0 && i < run->tool.n_pip; i++)
        r = add(run, wants->pip, &wants->n_pip, run->tool.pip[i].name, run->tool.pip[i].version, false);
    for (size_t i = 0; r == 0 && i < run->tool.n_npm; i++)
        r = add(run, wants->npm, &wants->n_npm, run->tool.npm[i].name, run->tool.npm[i].version, true);
    if (r == 0 && (run->tool.language == TOOL_JAVASCRIPT || run->tool.language == TOOL_TYPESCRIPT))
        r = add_json(run, json_get(config, "npm_requirements"), wants->npm, &wants->n_npm, true);
    return r;
}

static void on_set(void *ctx, const struct set *set, const struct brig_err *why)
{
    struct run *run = ctx;

    struct set_build *build = take_ptr(&run->build);
    if (!set && why->code == BRIG_E_INVALID) {
        const char *whole = build ? set_build_error(build) : NULL;
        run_result_error(run, BRIG_CAUSE_POLICY, "RuntimeError", whole && whole[0] ? whole : why->message);
        return;
    }
    if (!set) {
        run_refuse(run, why);
        return;
    }
    run->set = set;
    run_next(run);
}

int step_deps(struct run *run, struct brig_err *err)
{
    const struct executor_options *o = &run->executor->o;
    const struct json_value *config = run_config(run);
    struct wants wants = {.n_pip = 0};
    AUTO_BUF struct buf text = BUF_INIT(CONFIG_TXT_MAX);

    if (run->sandbox_id[0] || run->reuse != REUSE_NONE || run->kind == FRAME_SCHEMA)
        return 0; /* a live sandbox has what it has */
    int r = find_workspace(run, run->tool.language == TOOL_PYTHON ? &text : NULL);
    if (r == -EACCES)
        return err_set(err, BRIG_E_FORBIDDEN, 0,
                       "sandbox_dir %.200s: is not below a directory of [sandbox] allowed_dirs any more",
                       config_set_dir(config, o->config));
    if (r == 0)
        r = collect(run, &wants, config);
    if (r < 0)
        return r == -ENOMEM ? err_nomem(err)
                            : err_set(err, BRIG_E_TOO_LARGE, -r, "requirements: too many, or too long");
    if (wants.n_pip + wants.n_npm + text.len == 0)
        return 0;
    if (!o->sets)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "requirements cannot be installed here");
    const struct set_want want = {.org_id = run->caller.org_id,
                                  .pip = wants.pip,
                                  .n_pip = wants.n_pip,
                                  .n_config_pip = wants.n_config_pip,
                                  .npm = wants.npm,
                                  .n_npm = wants.n_npm,
                                  .venv_name = config_set_venv(config, o->config),
                                  .python = run->template_name[0] ? "python3" : "/usr/bin/python3",
                                  .template_name = run->template_name,
                                  .template_id = run->template_id,
                                  .requirements_txt = text.len ? text.data : NULL};
    r = sets_get(o->sets, &run->caller, &want, false, on_set, run, &run->build, err);
    if (r < 0 && err->code == BRIG_E_INVALID) {
        struct brig_err why = *err;
        run_result_error(run, BRIG_CAUSE_POLICY, "RuntimeError", why.message);
        return 1;
    }
    return r < 0 ? r : 1;
}
