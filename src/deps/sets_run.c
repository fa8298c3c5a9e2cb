/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets_run.c: runs one script in an ephemeral sandbox of its own (sandbox/own_run.h), and returns what it printed.
 */
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "deps/sets_priv.h"

int sets_run(struct sets *sets, const struct sets_run_spec *spec,
             void (*done)(void *ctx, const struct own_run_result *result), void *ctx, struct own_run **ret,
             struct brig_err *err)
{
    const char *argv[REQUIREMENTS_MAX + 5] = {"/bin/sh", "-s", "--"}, *env[32] = {NULL};
    const struct own_run_spec own = {.org = spec->org,
                                     .actor = "requirement-sets",
                                     .sandbox = spec->spec,
                                     .program = {.argv = argv,
                                                 .env = env,
                                                 .timeout_ms = spec->timeout_ms,
                                                 .output = 16384,
                                                 .input = spec->script,
                                                 .input_len = strlen(spec->script)}};
    const struct own_run_events events = {.done = done, .ctx = ctx};
    struct own_run *run = NULL;

    /* A name may have moved since it was looked up. */
    if (!templates_stands(manager_templates(sets->options.manager), spec->org, spec->wish->template_name,
                          spec->wish->template_id))
        return err_set(err, BRIG_E_BUSY, 0, "template %s: has been replaced meanwhile", spec->wish->template_name);
    for (size_t i = 0; i < spec->args.n && i < REQUIREMENTS_MAX; i++)
        argv[3 + i] = spec->args.items[i];
    for (size_t i = 0; i < spec->env.n && i < ARRAY_SIZE(env) - 1; i++)
        env[i] = spec->env.items[i];
    int r = own_run_create(sets->options.manager, sets->config, &own, &events, &run, err);
    if (r == 0)
        r = own_run_start(run, err);
    if (r < 0)
        own_run_destroy(run);
    else
        *ret = run;
    return r;
}

const char *sets_run_output(const struct own_run_result *result)
{
    bool text = json_get_is(result->receipt, "stdout_encoding", "utf-8");

    return text ? json_get_text(result->receipt, "stdout", "") : "";
}
