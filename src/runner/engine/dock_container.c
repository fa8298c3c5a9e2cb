/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dock_container.c: writes the body of POST /containers/create.
 *
 * Every limit is named, also where the engine has a default: Podman's own bound on processes cannot be raised without a
 * capability that its service may not have. The container has no network but lo, no log (its output is brig-init's
 * business), no init of the engine's, and private namespaces for ipc, cgroups and processes. Its capabilities are the
 * five of brig-init (jail/user.h). Its root is the image as it is, and nothing of it can be written: the sandbox's own
 * file systems are put in their place (docker_root.c).
 */
#include "codec/json/json.h"
#include "runner/engine/dock.h"
#include "runner/engine/dock_container.h"

#define NANO_PER_THOUSANDTH 1000000u

static void put_limits(struct json *json, const struct brig_limits *limits)
{
    if (limits->memory == 0)
        return;
    json_key_u64(json, "Memory", limits->memory);
    json_key_u64(json, "MemorySwap", limits->memory); /* both together: no swap */
    json_key_u64(json, "NanoCpus", limits->cpus * NANO_PER_THOUSANDTH);
    json_key_u64(json, "PidsLimit", limits->pids);
}

static void put_ulimit(struct json *json, const char *name, uint64_t value)
{
    json_object(json);
    json_key_string(json, "Name", name);
    json_key_u64(json, "Soft", value);
    json_key_u64(json, "Hard", value);
    json_end(json);
}

static void put_volumes(struct json *json, const struct dock_container *container)
{
    json_key_object(json, "Tmpfs");
    for (size_t i = 0; i < container->n_volumes; i++) /* Podman would copy the image's files into it. */
        json_key_string(json, container->volumes[i],
                        container->podman ? "rw,nosuid,nodev,size=4096,notmpcopyup" : "rw,nosuid,nodev,size=4096");
    json_end(json);
}

/* Mounts and not Binds: a source that is not there is refused, and no path has a colon that means something. */
static void put_bind(struct json *json, const char *source, const char *target, bool read_only)
{
    json_object(json);
    json_key_string(json, "Type", "bind");
    json_key_string(json, "Source", source);
    json_key_string(json, "Target", target);
    json_key_bool(json, "ReadOnly", read_only);
    json_key_object(json, "BindOptions"), json_key_string(json, "Propagation", "rprivate"), json_end(json);
    json_end(json);
}

static int put_security(struct json *json, const struct dock_container *container)
{
    static const char *const caps[] = {"KILL", "SETUID", "SETGID", "SETPCAP", "SYS_PTRACE"};
    AUTO_BUF struct buf profile = BUF_INIT(256u << 10);
    int r = buf_printf(&profile, "seccomp=%s", container->seccomp);

    if (r < 0)
        return r;
    json_key_bool(json, "Privileged", false);
    json_key_array(json, "CapDrop"), json_string(json, "ALL"), json_end(json);
    json_key_array(json, "CapAdd");
    for (size_t i = 0; i < ARRAY_SIZE(caps); i++)
        json_string(json, caps[i]);
    json_end(json);
    json_key_array(json, "SecurityOpt");
    json_string(json, "no-new-privileges");
    json_string(json, profile.data);
    json_end(json);
    json_key_bool(json, "ReadonlyRootfs", true);
    return 0;
}

static int put_host_config(struct json *json, const struct dock_container *container)
{
    json_key_object(json, "HostConfig");
    put_limits(json, &container->limits);
    json_key_array(json, "Ulimits"); /* nproc counts all containers of a uid together, so it bounds nothing here */
    put_ulimit(json, "nofile", container->limits.open_files);
    put_ulimit(json, "nproc", container->processes);
    json_end(json);
    int r = put_security(json, container);
    put_volumes(json, container);
    json_key_array(json, "Mounts");
    put_bind(json, container->init, DOCK_INIT_INSIDE, true);
    put_bind(json, container->dir, DOCK_DIR_INSIDE, false);
    json_end(json);
    json_key_string(json, "NetworkMode", "none");
    json_key_string(json, "IpcMode", "private");
    json_key_string(json, "CgroupnsMode", "private");
    json_key_bool(json, "Init", false);
    json_key_bool(json, "AutoRemove", false);
    json_key_object(json, "RestartPolicy"), json_key_string(json, "Name", "no"), json_end(json);
    json_key_object(json, "LogConfig"), json_key_string(json, "Type", "none"), json_end(json);
    json_key_i64(json, "OomScoreAdj", 500); /* as the sandboxes of local: the host's OOM killer takes these first */
    if (container->runtime)
        json_key_string(json, "Runtime", container->runtime);
    if (container->cgroup_parent)
        json_key_string(json, "CgroupParent", container->cgroup_parent);
    json_end(json);
    return r;
}

int dock_container_json(const struct dock_container *container, struct buf *out)
{
    static const char *const words[] = {DOCK_INIT_INSIDE, "carry", "--listen", DOCK_DIR_INSIDE "/" DOCK_SOCKET_NAME};
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_string(&json, "Image", container->image);
    json_key_string(&json, "Hostname", container->host_name);
    json_key_string(&json, "User", "0:0"); /* brig-init; its programs have another id */
    json_key_string(&json, "WorkingDir", "/");
    json_key_array(&json, "Entrypoint");
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        json_string(&json, words[i]);
    json_end(&json);
    json_key_array(&json, "Cmd"), json_end(&json);
    json_key_bool(&json, "Tty", false);
    json_key_bool(&json, "OpenStdin", false);
    json_key_bool(&json, "NetworkDisabled", true);
    json_key_object(&json, "Healthcheck");
    json_key_array(&json, "Test"), json_string(&json, "NONE"), json_end(&json);
    json_end(&json);
    json_key_object(&json, "Labels");
    json_key_string(&json, DOCK_LABEL_INSTALLATION, container->installation);
    json_key_string(&json, DOCK_LABEL_SANDBOX, container->sandbox);
    json_end(&json);
    int r = put_host_config(&json, container);
    json_end(&json);
    return r < 0 ? r : json_finish(&json);
}
