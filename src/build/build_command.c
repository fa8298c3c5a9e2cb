/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_command.c: what a RUN runs, from its words: the command, its variables, its user and directory; and the key of
 * all that. build_run.c has its sandbox.
 */
#include <string.h>

#include "build/build_priv.h"

#define EPOCH "SOURCE_DATE_EPOCH" /* Many programs write this instead of the present time. */

/* A here-document that is all of the command is the script itself. */
static bool is_script(const struct dockerfile_step *step)
{
    return step->n_here == 1 && str_starts(step->words[0], "<<") && !strpbrk(step->words[0], " \t;&|");
}

/* The text of the shell form with its here-documents behind it. */
static int script_of(struct build_stage *stage, const struct dockerfile_step *step, const char **ret,
                     struct brig_err *err)
{
    AUTO_BUF struct buf out = BUF_INIT(BUILD_WORD_MAX);
    const char *text = step->words[0];
    int r = 0;

    *ret = text;
    if (step->n_here == 0)
        return 0;
    if (is_script(step)) {
        *ret = step->here[0].text;
        return 0;
    }
    r = buf_append_str(&out, text);
    if (r == 0)
        r = buf_append_str(&out, "\n");
    for (size_t i = 0; r == 0 && i < step->n_here; i++) {
        r = buf_append(&out, step->here[i].text, step->here[i].len);
        if (r == 0)
            r = buf_append_str(&out, step->here[i].name);
        if (r == 0)
            r = buf_append_str(&out, "\n");
    }
    if (r < 0)
        return err_nomem(err);
    *ret = build_copy(stage->build, out.data, out.len);
    return *ret ? 0 : err_nomem(err);
}

/* A script that names its interpreter is a file, and the command is its path. */
static int own_script(struct build_stage *stage, const struct dockerfile_step *step, struct run_spec *ret,
                      struct brig_err *err)
{
    char path[256];

    if (str_format(path, sizeof path, SCRIPT_DIR "/%s", step->here[0].name) < 0)
        return step_refuse(err, step, "the name of the here-document is too long");
    ret->script = &step->here[0];
    return list_add(stage->build, &ret->argv, build_keep(stage->build, path)) < 0 ? err_nomem(err) : 0;
}

static int run_spec_of(struct build_stage *stage, const struct dockerfile_step *step, struct run_spec *ret,
                       struct brig_err *err)
{
    static const char *const shell[] = {"/bin/sh", "-c"};
    struct build *build = stage->build;
    const struct build_image *image = &stage->image;
    const char *network = step_flag(step, "network"), *script;
    int r = 0;

    *ret = (struct run_spec){.workdir = image->workdir[0] ? image->workdir : "/",
                             .user = image->user,
                             .network = network && str_eq(network, "none") ? "none" : build->network};
    if (step->exec_form) {
        if (list_take(build, &ret->argv, step->words, step->n_words) < 0)
            return err_nomem(err);
    } else if (is_script(step) && str_starts(step->here[0].text, "#!")) {
        r = own_script(stage, step, ret, err);
    } else {
        r = script_of(stage, step, &script, err);
        ret->argv =
            image->has_shell ? list_share(&image->shell) : (struct build_list){.items = shell, .n = ARRAY_SIZE(shell)};
        if (r == 0 && list_add(build, &ret->argv, script) < 0)
            r = err_nomem(err);
    }
    ret->env = list_share(&image->args);
    for (size_t i = 0; r == 0 && i < image->env.n; i++)
        if (list_add(build, &ret->env, image->env.items[i]) < 0) /* the last of a name counts */
            r = err_nomem(err);
    if (r == 0 && build->lock && !list_get(&ret->env, EPOCH, strlen(EPOCH)) &&
        list_set(build, &ret->env, EPOCH, build->lock->epoch) < 0)
        r = err_nomem(err);
    return r;
}

int run_now(struct build_stage *stage, const struct dockerfile_step *step, struct run_spec *spec, struct brig_err *err)
{
    int r = mounts_of(stage, step, spec, err);

    if (r == 0)
        r = run_start(stage, spec, err);
    return r < 0 ? r : 1;
}

int run_with_key(struct build_stage *stage, const struct dockerfile_step *step, struct run_spec *spec,
                 struct brig_err *err)
{
    struct build_key *key = NULL;

    if (key_begin(stage, "run", &key) < 0)
        return err_nomem(err);
    for (size_t i = 0; i < step->n_flags; i++)
        if (str_eq(step->flags[i].name, "mount")) /* without the values of secrets */
            key_text(key, "mount", step->flags[i].value ? step->flags[i].value : "");
    binds_key(stage, key);
    key_list(key, "argv", &spec->argv);
    if (spec->script)
        key_text(key, "script", spec->script->text);
    key_list(key, "env", &spec->env);
    key_text(key, "workdir", spec->workdir);
    key_text(key, "user", spec->user);
    key_text(key, "network", spec->network);
    if (key_end(key, stage->key) < 0)
        return err_nomem(err);
    if (stage_cached(stage)) {
        stage->binding = NULL;
        return 0;
    }
    return stage->binding ? binds_make(stage, err) : run_now(stage, step, spec, err);
}

int run_step(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    struct run_spec spec;
    int r = run_spec_of(stage, step, &spec, err);

    if (r < 0)
        return r;
    if (stage->n_layers == 0)
        return step_refuse(err, step, "the stage has no files yet, so there is no program to run");
    return binds_any(stage->build, step) ? binds_start(stage, step, &spec, err) : run_with_key(stage, step, &spec, err);
}
