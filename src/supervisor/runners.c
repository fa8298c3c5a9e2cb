/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runners.c: the supervisor's children for providers whose sandboxes a runtime or an engine makes. A runner is started
 * only if we are root, and its runtime is installed or its engine is named. We hold both ends of its socket, so brigd
 * keeps its end when a runner dies, and the next runner goes on with the same. Its sandboxes live on meanwhile. When we
 * end, the closed socket tells the runner to end them; if they are to be kept, the runner is killed instead, which no
 * sandbox notices.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/dir.h"
#include "base/err.h"
#include "base/id.h"
#include "base/str.h"
#include "config/provider_names.h"
#include "supervisor/supervisor.h"

#define GRACE_MS 10000

static void start_runner(struct sup_runner *runner);

/* Finds the socket of a container engine. Whoever has it is root: only one that an administrator names is used. */
static bool find_socket(const char *configured, const char *name UNUSED, char *out, size_t size)
{
    const char *host = getenv("DOCKER_HOST");

    str_cut(out, size, configured);
    if (!out[0] && host && str_starts(host, "unix://"))
        str_cut(out, size, host + strlen("unix://"));
    return out[0] != '\0';
}

static void on_end(struct loop_source *source, uint32_t events UNUSED)
{
    struct sup_runner *runner = source->ctx;
    char how[128];

    loop_remove(runner->all->loop, &runner->on_end);
    daemon_reap(&runner->daemon, how, sizeof how);
    if (runner->all->stopping || runner->leaving)
        return;
    runner->all->say("%s (%s); starting it again, its sandboxes run on", how, runner->name);
    (void)!loop_timer_set(runner->all->loop, &runner->on_restart,
                          clock_mono_ns() + daemon_restart_delay_ns(&runner->daemon), NULL);
}

static void on_restart(struct loop_timer *timer)
{
    start_runner(timer->ctx);
}

static int start(struct sup_runner *runner, struct brig_err *err)
{
    const struct sup_runners *all = runner->all;
    char ms[32], every[32];

    (void)snprintf(every, sizeof every, "%llu", (unsigned long long)all->config->cleanup_interval);
    (void)snprintf(ms, sizeof ms, "%llu", (unsigned long long)all->config->start_timeout);
    if (setenv("BRIG_RUNTIME_PATH", runner->path, 1) < 0 || setenv("BRIG_START_TIMEOUT", ms, 1) < 0 ||
        setenv("BRIG_RUNSC_PLATFORM", all->config->runsc_platform, 1) < 0 ||
        setenv("BRIG_ENGINE_IMAGE", all->config->docker_image, 1) < 0 ||
        setenv("BRIG_ENGINE_RUNTIME", all->config->docker_runtime, 1) < 0 ||
        setenv("BRIG_ENGINE_PULL", all->config->docker_pull, 1) < 0 || setenv("BRIG_ENGINE_SWEEP", every, 1) < 0)
        return err_nomem(err);
    int r = daemon_start(&runner->daemon, all->places->helpers, runner->name, (uid_t)-1, 0, err);
    (void)unsetenv("BRIG_RUNTIME_PATH"); /* no other child needs them */
    (void)unsetenv("BRIG_START_TIMEOUT");
    (void)unsetenv("BRIG_RUNSC_PLATFORM");
    (void)unsetenv("BRIG_ENGINE_IMAGE");
    (void)unsetenv("BRIG_ENGINE_RUNTIME");
    (void)unsetenv("BRIG_ENGINE_PULL");
    (void)unsetenv("BRIG_ENGINE_SWEEP");
    if (r < 0)
        return r;
    if (runner->leaving)
        base_close_fd(&runner->daemon.socket); /* so it ends all of them, and itself */
    runner->on_end = (struct loop_source){.fd = -1, .fn = on_end, .ctx = runner};
    return loop_add(all->loop, &runner->on_end, runner->daemon.pidfd, EPOLLIN, err);
}

static void start_runner(struct sup_runner *runner)
{
    struct brig_err err;

    if (runner->all->stopping || start(runner, &err) == 0)
        return;
    runner->all->say("%s; the provider %s waits for it", err.message, runner->name);
    runner->daemon.failures++;
    (void)!loop_timer_set(runner->all->loop, &runner->on_restart,
                          clock_mono_ns() + daemon_restart_delay_ns(&runner->daemon), NULL);
}

/* Whether an earlier service has left boxes of this provider, which nobody else would ever end. */
static bool has_boxes(const struct places *places, const char *name)
{
    char path[sizeof places->run + 32];

    if (str_format(path, sizeof path, "%s/runner-%s", places->run, name) < 0)
        return false;
    AUTO_DIR DIR *dir = dir_open(AT_FDCWD, path);
    for (const struct dirent *entry; (entry = dir_next(dir));)
        if (strlen(entry->d_name) == ID_SANDBOX_SIZE - 1)
            return true;
    return false;
}

void sup_runners_start(struct sup_runners *runners)
{
    const struct {
        const char *name, *path;
        bool (*find)(const char *configured, const char *name, char *out, size_t size);
    } known[] = {{"runc", runners->config->runc_path, provider_program},
                 {"crun", runners->config->crun_path, provider_program},
                 {"runsc", runners->config->runsc_path, provider_program},
                 {"docker", runners->config->docker_socket, find_socket}};

    for (size_t i = 0; geteuid() == 0 && i < ARRAY_SIZE(known); i++) {
        struct sup_runner *runner = &runners->runners[runners->n];
        *runner = (struct sup_runner){.all = runners, .name = known[i].name};
        runner->leaving = !known[i].find(known[i].path, known[i].name, runner->path, sizeof runner->path) ||
                          !provider_is_among(runners->config->providers_only, known[i].name);
        if (runner->leaving && !has_boxes(runners->places, known[i].name))
            continue;
        runner->daemon = DAEMON_INIT("brig-runner", false);
        runner->daemon.lasting = !runner->leaving;
        runner->on_restart = (struct loop_timer){.fn = on_restart, .ctx = runner};
        runners->n++;
        start_runner(runner);
    }
}

int sup_runners_give(const struct sup_runners *runners, int brigd_sock)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < runners->n; i++) {
        char name[SUP_NAME];
        if (str_format(name, sizeof name, SUP_RUNNER "%s", runners->runners[i].name) < 0)
            return -ENAMETOOLONG;
        if (runners->runners[i].daemon.socket >= 0)
            r = sup_send(brigd_sock, SUP_FD, name, runners->runners[i].daemon.socket);
    }
    return r;
}

void sup_runners_stop(struct sup_runners *runners, bool keep)
{
    runners->stopping = true;
    for (size_t i = 0; i < runners->n; i++) {
        struct sup_runner *runner = &runners->runners[i];
        loop_timer_clear(runners->loop, &runner->on_restart);
        if (keep && runner->daemon.pid)
            kill(runner->daemon.pid, SIGKILL);
        base_close_fd(&runner->daemon.socket);
        base_close_fd(&runner->daemon.theirs);
    }
    for (size_t i = 0; i < runners->n; i++) {
        struct sup_runner *runner = &runners->runners[i];
        struct pollfd ended = {.fd = runner->daemon.pidfd, .events = POLLIN};
        char how[128];
        if (!runner->daemon.pid)
            continue;
        if (poll(&ended, 1, GRACE_MS) != 1)
            kill(runner->daemon.pid, SIGKILL); /* what it has not ended, the next one does */
        loop_remove(runners->loop, &runner->on_end);
        daemon_reap(&runner->daemon, how, sizeof how);
    }
    runners->n = 0;
}
