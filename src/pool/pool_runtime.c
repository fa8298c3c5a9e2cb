/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_runtime.c: says how the interpreter of a language is started: its path on host, its name in a template, never
 * one of the daemon's PATH, and our runtime as arguments (runtimes/, made into runtimes.h by the build), so that no
 * file of ours must exist in a template. runtimes/README.md says what each argument is.
 */
#include "pool/pool.h"

#include <string.h>

#include "runtimes.h" /* generated from runtimes/ */

/* -I: nothing of the environment or the working directory; -S: no site-packages but those of the run; -B: no
 * __pycache__ in the workspace. */
static const char *const python_argv[] = {
    "/usr/bin/python3",    "-I", "-S", "-B", "-X", "utf8", "-c", runtime_python_core, runtime_python_values,
    runtime_python_schema, NULL};
/*
 * The flags are for vm.SourceTextModule, the only way to a module that is no file, and for import.meta.resolve() with a
 * parent, which older Nodes need to find packages (runtimes/node/serve.js). Without --no-warnings the warnings would be
 * in the stderr of every run.
 */
static const char *const node_argv[] = {"/usr/bin/node",
                                        "--experimental-vm-modules",
                                        "--experimental-import-meta-resolve",
                                        "--no-warnings",
                                        "-e",
                                        runtime_node,
                                        NULL};

static const char *const bash_argv[] = {"/bin/bash", "--norc", "--noprofile", "-c", runtime_bash, "brig", NULL};

static const char *const *on_host(enum tool_language language)
{
    switch (language) {
    case TOOL_PYTHON: return python_argv;
    case TOOL_JAVASCRIPT:
    case TOOL_TYPESCRIPT: return node_argv;
    case TOOL_BASH:
    case TOOL_COMMAND: return bash_argv;
    case TOOL_LANGUAGE_MAX: break;
    }
    return NULL;
}

/* An image has its interpreter where it likes: the name alone, which the PATH of the image finds. */
const char *const *runtime_argv(enum tool_language language, bool template)
{
    static const char *in_template[TOOL_LANGUAGE_MAX][16];
    const char *const *argv = on_host(language);

    if (!template || !argv)
        return argv;
    const char **own = in_template[language];
    _Static_assert(ARRAY_SIZE(python_argv) <= ARRAY_SIZE(in_template[0]) &&
                       ARRAY_SIZE(node_argv) <= ARRAY_SIZE(in_template[0]) &&
                       ARRAY_SIZE(bash_argv) <= ARRAY_SIZE(in_template[0]),
                   "there is room for each of them");
    for (size_t i = 0; argv[i]; i++)
        own[i] = i == 0 ? strrchr(argv[0], '/') + 1 : argv[i];
    return own;
}
