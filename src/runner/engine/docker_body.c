/* SPDX-License-Identifier: Apache-2.0 */
/*
 * docker_body.c: from a checked run to the container that the engine is asked for. Nothing of its file systems but
 * brig-init and the directory of its socket is of use: the sandbox's own are put in their place (docker_root.c).
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "host/limits.h"
#include "runner/engine/dock_container.h"
#include "runner/engine/docker.h"
#include "seccomp_profiles.h"

#define PROFILE_DEFAULT "seccomp-default.json"
#define PROFILE_PARANOID "seccomp-paranoid.json"
#define CGROUP_MOUNT "/sys/fs/cgroup"

void docker_image_done(struct docker_image *image)
{
    for (size_t i = 0; i < image->n_volumes; i++)
        mem_free(image->volumes[i]);
    *image = (struct docker_image){0};
}

int docker_image_read(const struct json_value *json, const char *name, struct docker_image *ret, struct brig_err *err)
{
    const struct json_value *volumes = json_get(json_get(json, "Config"), "Volumes");
    const char *arch = json_get_text(json, "Architecture", ""), *os = json_get_text(json, "Os", "linux");

    docker_image_done(ret);
    if (str_copy(ret->id, sizeof ret->id, json_get_text(json, "Id", "")) < 0 || !ret->id[0])
        return err_set(err, BRIG_E_HOST, 0, "image %.100s: the engine shows no id of it", name);
    if ((arch[0] && !str_eq(arch, "amd64")) || !str_eq(os, "linux"))
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "image %.100s is for %.20s/%.20s, and this machine is linux/amd64",
                       name, os, arch);
    for (const struct json_value *v = volumes ? volumes->first : NULL; v; v = v->next) {
        struct brig_err why = {0};
        if (ret->n_volumes == DOCKER_VOLUMES_MAX)
            return err_set(err, BRIG_E_UNSUPPORTED, 0, "image %.100s: more than %u volumes", name, DOCKER_VOLUMES_MAX);
        if (check_mount_target("volume", v->key, &why) < 0)
            return err_set(err, BRIG_E_INVALID, 0, "image %.100s: %.120s", name, why.message);
        ret->volumes[ret->n_volumes] = mem_strdup(v->key);
        if (!ret->volumes[ret->n_volumes])
            return err_nomem(err);
        ret->n_volumes++;
    }
    return 0;
}

static int write_text(int dir_fd, const char *name, const char *text, struct brig_err *err)
{
    AUTO_FD int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);

    if (fd < 0 || fchmod(fd, 0644) < 0 || fd_write_all(fd, text, strlen(text)) < 0)
        return err_host(err, "the runner's file %s", name);
    return 0;
}

/* Podman takes a profile by the path of a file, Docker the text itself. */
int docker_profiles_write(const struct runner *runner, struct brig_err *err)
{
    int r = write_text(runner->dir_fd, PROFILE_DEFAULT, brig_profile_default, err);

    return r < 0 ? r : write_text(runner->dir_fd, PROFILE_PARANOID, brig_profile_paranoid, err);
}

/* Where all controllers are of version 2: our leaf as the engine has to name it; else "". */
static int cgroup_parent(const struct sandbox *s, char *out, size_t size, struct brig_err *err)
{
    char link[32], path[4096];

    out[0] = '\0';
    if (s->spawner->host.cg.n_v1 > 0)
        return 0;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", s->cg.v2_fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    /* Its tree may not be ours: then the kernel names it from the top of the hierarchy. */
    const char *from_top = str_starts(path, CGROUP_MOUNT "/") ? path + strlen(CGROUP_MOUNT) : path;
    const char *last = strrchr(path, '/');
    if (!last || !str_eq(last + 1, s->cg.name) || str_copy(out, size, from_top) < 0)
        return err_set(err, BRIG_E_HOST, 0, "the path of the sandbox's cgroup");
    return 0;
}

int docker_body(const struct carried *box, const char *dir, const struct docker_image *image, struct buf *out,
                struct brig_err *err)
{
    const struct sandbox *s = &box->s;
    const struct run_spec *run = s->run;
    const bool paranoid = run->profile == BRIG_PROFILE_PARANOID;
    char init[4096], sockets[4096], parent[4096], profile[4096];

    if (str_format(init, sizeof init, "%s/init", box->runner->dir) < 0 ||
        str_format(sockets, sizeof sockets, "%s/" DOCKER_SOCKET_DIR, dir) < 0 ||
        str_format(profile, sizeof profile, "%s/%s", box->runner->dir, paranoid ? PROFILE_PARANOID : PROFILE_DEFAULT) <
            0)
        return err_usage(err, "the run directory %.100s: its path is too long", dir);
    int r = cgroup_parent(s, parent, sizeof parent, err);
    if (r < 0)
        return r;
    struct dock_container container = {
        .podman = docker.engine.podman,
        .image = image->id,
        .host_name = run->name ? run->name : s->id,
        .init = init,
        .dir = sockets,
        .seccomp = docker.engine.podman ? profile
                   : paranoid           ? brig_profile_paranoid
                                        : brig_profile_default,
        .runtime = docker.runtime,
        .cgroup_parent = parent[0] ? parent : NULL,
        .installation = docker.installation,
        .sandbox = s->id,
        .limits = s->limits,
        .processes = docker.processes,
        .volumes = image->volumes,
        .n_volumes = image->n_volumes,
    };
    if (parent[0]) /* ours hold, and can be changed without the engine */
        container.limits.memory = 0;
    r = dock_container_json(&container, out);
    return r < 0 ? err_set(err, BRIG_E_INVALID, -r, "the container of sandbox %s cannot be written", s->id) : 0;
}
