/* SPDX-License-Identifier: Apache-2.0 */
/*
 * docker_sweep.c: finds what is left over. Everything that we make has the label of this installation, a random name
 * that lies in the state directory, so that two of us can share an engine and containers are still ours after a reboot.
 * What has the label and is no box of ours is removed: at the start, after every interval, and soon after a create to
 * which no answer came. Nothing without the label is ever touched, and the engine is asked by the id of the very
 * container that was listed.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/ascii.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/str.h"
#include "host/dirs.h"
#include "jail/sys.h"
#include "runner/engine/docker.h"

#define SWEEP_SOON_NS (2 * NS_PER_SEC)
#define NAME_FILE "docker-installation"

/* The state directory lies in the host's tree, which we have left. It is root's own. */
static int open_state(const struct docker *d, struct brig_err *err)
{
    char path[4096];
    int r = dirs_path(BRIG_DIR_STATE, path, sizeof path, err);

    if (r < 0)
        return r;
    int fd = sys_openat2(d->runner->spawner.host.root_fd, path, O_RDONLY | O_DIRECTORY, 0,
                         RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
    return fd < 0 ? err_host(err, "the state directory %.200s", path) : fd;
}

int docker_installation(struct docker *d, struct brig_err *err)
{
    AUTO_FD int dir = open_state(d, err);
    ssize_t n = dir < 0 ? -1 : fd_read_file(dir, NAME_FILE, d->installation, sizeof d->installation);

    if (dir < 0)
        return dir;
    if (n == ID_SANDBOX_SIZE - 1 && strspn(d->installation, ASCII_LOWER ASCII_DIGITS) == (size_t)n)
        return 0;
    if (id_sandbox(d->installation) < 0)
        return err_set(err, BRIG_E_HOST, EIO, "random id");
    AUTO_FD int fd = openat(dir, NAME_FILE ".new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || fd_write_all(fd, d->installation, strlen(d->installation)) < 0 || fsync(fd) < 0 ||
        renameat(dir, NAME_FILE ".new", dir, NAME_FILE) < 0 || fsync(dir) < 0)
        return err_host(err, "the name of this installation");
    return 0;
}

static bool is_ours(const char *id)
{
    for (int state = 0; state < SANDBOX_STATE_MAX; state++)
        for (const struct sandbox *s = docker.runner->spawner.lists[state]; s; s = s->next)
            if (str_eq(s->id, id))
                return true;
    return false;
}

static void on_gone(void *ctx UNUSED, const struct dock_answer *answer UNUSED, const struct brig_err *err UNUSED)
{
    docker.sweeping--;
}

static void on_list(void *ctx UNUSED, const struct dock_answer *answer, const struct brig_err *err)
{
    char target[DOCK_TARGET_MAX];

    docker.sweeping--;
    if (err || !answer->json || answer->json->type != JSON_ARRAY)
        return;
    for (const struct json_value *item = answer->json->first; item; item = item->next) {
        const struct json_value *labels = json_get(item, "Labels");
        const struct dock_request request = {.method = "DELETE", .target = target, .done = on_gone};

        if (!json_get_is(labels, DOCK_LABEL_INSTALLATION, docker.installation) ||
            is_ours(json_get_text(labels, DOCK_LABEL_SANDBOX, "")) ||
            dock_target(target, "/containers/", json_get_text(item, "Id", ""), "?force=1&v=1") < 0)
            continue;
        if (dock_ask(&docker.dock, &request, NULL, NULL) == 0)
            docker.sweeping++;
    }
    /* Two boxes at a time may have imported the empty image. */
    const struct dock_request prune = {.method = "POST", .target = target, .done = on_gone};
    if (dock_prune_target(target, docker.installation) == 0 && dock_ask(&docker.dock, &prune, NULL, NULL) == 0)
        docker.sweeping++;
}

static void on_version(void *ctx UNUSED, const struct dock_answer *answer, const struct brig_err *err)
{
    docker.sweeping--;
    if (!err && dock_settle(&docker.dock, answer->json, &docker.engine, &(struct brig_err){0}) == 0)
        docker_sweep(docker.runner);
}

static void on_time(struct loop_timer *timer UNUSED)
{
    docker_sweep(docker.runner);
}

void docker_sweep(struct runner *runner)
{
    char target[DOCK_TARGET_MAX] = "/version";
    struct dock_request request = {.method = "GET", .target = target, .done = on_version};

    docker.sweep.fn = on_time;
    (void)!loop_timer_set(runner->spawner.loop, &docker.sweep, clock_mono_ns() + docker.sweep_ns, NULL);
    if (docker.sweeping > 0)
        return;
    if (docker.dock.api[0]) {
        request.done = on_list;
        if (dock_list_target(target, docker.installation) < 0)
            return;
    }
    if (dock_ask(&docker.dock, &request, NULL, NULL) == 0)
        docker.sweeping++;
}

void docker_sweep_soon(void)
{
    docker.sweep.fn = on_time;
    (void)!loop_timer_set(docker.dock.loop, &docker.sweep, clock_mono_ns() + SWEEP_SOON_NS, NULL);
}
