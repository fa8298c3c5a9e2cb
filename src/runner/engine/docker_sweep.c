/* SPDX-License-Identifier: Apache-2.0 */
/*
 * docker_sweep.c: finds what is left over. Everything that we make has the label of this installation, a random name
 * that lies in our run directory, so that two of us can share an engine. What has the label and is no box of ours is
 * removed, at the start and after every interval. Nothing without the label is ever touched, and the engine is asked
 * by the id of the very container that was listed.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/str.h"
#include "runner/engine/docker.h"

#define SWEEP_NS (60 * NS_PER_SEC)
#define NAME_FILE "installation"

int docker_installation(struct docker *d, struct brig_err *err)
{
    int dir = d->runner->dir_fd;
    ssize_t n = fd_read_file(dir, NAME_FILE, d->installation, sizeof d->installation);

    if (n == ID_SANDBOX_SIZE - 1)
        return 0;
    if (id_sandbox(d->installation) < 0)
        return err_set(err, BRIG_E_HOST, EIO, "random id");
    AUTO_FD int fd = openat(dir, NAME_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || fd_write_all(fd, d->installation, strlen(d->installation)) < 0)
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
    (void)!loop_timer_set(runner->spawner.loop, &docker.sweep, clock_mono_ns() + SWEEP_NS, NULL);
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
