/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oci.c: runc and crun, and what runsc.c shares with them. A container is made by `run --detach` in a stage of ours
 * (stage.h), from a bundle of ours (oci_config.c); no process of the runtime stays, and the runtime is never asked
 * again: limits, freezing, counting and the end are those of our cgroup, and what the runtime wrote is gone with the
 * mount namespace.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "jail/sys.h"
#include "runner/carrier.h"
#include "runner/oci.h"
#include "runner/stage.h"

#define VERSION_MS 10000

/* ---- the runtime -------------------------------------------------------------------------------------- */

/* In the host's tree, which we have left. */
static _Noreturn void ask_child(const struct runner *runner, const char *word, int out)
{
    const struct host *host = &runner->spawner.host;
    char *argv[] = {(char *)(uintptr_t)runner->program, (char *)(uintptr_t)word, NULL};
    char *environment[] = {(char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};

    if (stage_enter_host(host) == 0 && dup2(out, 1) >= 0 && dup2(out, 2) >= 0 &&
        close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) == 0)
        execve(argv[0], argv, environment);
    _exit(errno == ENOENT ? 127 : 126);
}

/* "runc version 1.1.5+ds1\n...", "crun version 1.8.1\n..." */
static void take_version(struct runner *runner, char *text)
{
    text[strcspn(text, "\r\n")] = '\0';
    const char *at = strstr(text, "version ");
    str_cut(runner->version, sizeof runner->version, at ? at + strlen("version ") : text);
}

int oci_ask(struct runner *runner, const char *word, char *text, size_t size, struct brig_err *err)
{
    int out[2], status = 0;

    if (pipe2(out, O_CLOEXEC) < 0)
        return err_host(err, "pipe");
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGALRM, SIG_DFL); /* The runner ignores it, and execve would keep that. */
        (void)alarm(VERSION_MS / 1000);
        ask_child(runner, word, out[1]);
    }
    close(out[1]);
    AUTO_FD int in = out[0];
    ssize_t n = pid < 0 ? -1 : fd_read_all(in, text, size - 1);
    if (pid > 0)
        (void)RETRY(waitpid(pid, &status, __WALL));
    if (pid < 0 || n <= 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "%s %s does not work (install it: apt-get install %s)",
                       runner->program, word, runner->ops->name);
    text[n] = '\0';
    return 0;
}

int oci_open(struct runner *runner, struct brig_err *err)
{
    const char *path = getenv("BRIG_RUNTIME_PATH");

    if (!path || path[0] != '/' || str_copy(runner->program, sizeof runner->program, path) < 0)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "%s: not found (install it: apt-get install %s)", runner->ops->name,
                       runner->ops->name);
    char text[512];
    int r = oci_ask(runner, "--version", text, sizeof text, err);
    if (r == 0)
        take_version(runner, text);
    return r;
}

/* ---- a container -------------------------------------------------------------------------------------- */

static void own_free(struct carried *box)
{
    struct stage *stage = box->own;

    if (!stage)
        return;
    stage_done(stage);
    mem_free(stage);
    box->own = NULL;
}

static void on_runtime_done(void *ctx, int status)
{
    struct carried *box = ctx;
    struct brig_err err;
    pid_t pid = stage_result(box, box->own, status, &err);

    own_free(box);
    base_close_fd(&box->netns_fd);
    if (pid < 0)
        carried_failed(box, &err);
    else
        carried_made(box, pid);
}

static void runc_argv(const struct carried *box, const char **argv)
{
    const char *const words[] = {box->runner->program,
                                 "--root",
                                 STAGE_STATE,
                                 "--rootless=true", /* of cgroups: ours are not its to make */
                                 "run",
                                 "--detach",
                                 "--preserve-fds",
                                 "1",
                                 "--pid-file",
                                 STAGE_PID,
                                 "--bundle",
                                 STAGE_BUNDLE,
                                 box->s.id,
                                 NULL};

    memcpy(argv, words, sizeof words);
}

static void crun_argv(const struct carried *box, const char **argv)
{
    const char *const words[] = {
        box->runner->program, "--root=" STAGE_STATE,   "--cgroup-manager=disabled", "run",     "--detach",
        "--preserve-fds=1",   "--pid-file=" STAGE_PID, "--bundle=" STAGE_BUNDLE,    box->s.id, NULL};

    memcpy(argv, words, sizeof words);
}

static int start(struct carried *box, struct brig_err *err)
{
    const struct oci_runtime *runtime = box->runner->ops->oci;
    struct stage *stage = box->own;
    const char *argv[OCI_ARGS];
    int r = stage_prepare(box, stage, err);

    if (r == 0 && runtime->prepare)
        r = runtime->prepare(box, stage, err);
    if (r == 0)
        r = oci_write_config(box, stage, err);
    if (r < 0)
        return r;
    runtime->argv(box, argv);
    stage->argv = argv;
    stage->hide_v2 = runtime->hide_v2;
    box->child.done = on_runtime_done;
    box->child.ctx = box;
    return stage_start(box, stage, err);
}

int oci_start(struct carried *box, struct brig_err *err)
{
    struct stage *stage = mem_alloc(sizeof *stage);

    if (!stage)
        return err_nomem(err);
    *stage = STAGE_INIT;
    box->own = stage;
    int r = start(box, err);
    if (r < 0)
        own_free(box);
    return r;
}

static const struct oci_runtime runc = {.argv = runc_argv}, crun = {.argv = crun_argv, .hide_v2 = true};

const struct carrier_ops carrier_runc = {.name = "runc", .oci = &runc, .open = oci_open, .start = oci_start};
const struct carrier_ops carrier_crun = {.name = "crun", .oci = &crun, .open = oci_open, .start = oci_start};
