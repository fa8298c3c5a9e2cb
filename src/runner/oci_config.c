/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oci_config.c: config.json of a bundle. The root comes with every mount that it has, read-only where it must be, so
 * the runtime mounts nothing but /proc. It makes every namespace but the network's, which is ours. Landlock, seccomp
 * and the fixed rlimits are put on by brig-init itself (jail/confine.c), which the runtime executes with its five
 * capabilities and no more; with root inside, with those of jail/user.h too.
 */
#include <linux/capability.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "jail/user.h"
#include "runner/oci.h"

#define CONFIG_MAX 65536u

static const struct {
    unsigned cap;
    const char *name;
} cap_names[] = {{CAP_CHOWN, "CAP_CHOWN"},
                 {CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"},
                 {CAP_FOWNER, "CAP_FOWNER"},
                 {CAP_FSETID, "CAP_FSETID"},
                 {CAP_KILL, "CAP_KILL"},
                 {CAP_SETGID, "CAP_SETGID"},
                 {CAP_SETUID, "CAP_SETUID"},
                 {CAP_SETPCAP, "CAP_SETPCAP"},
                 {CAP_SYS_PTRACE, "CAP_SYS_PTRACE"}};

static void put_strings(struct json *json, const char *key, const char *const *strings)
{
    json_key_array(json, key);
    for (; *strings; strings++)
        json_string(json, *strings);
    json_end(json);
}

static void put_caps(struct json *json, uint64_t caps)
{
    static const char *const sets[] = {"bounding", "effective", "permitted"};

    json_key_object(json, "capabilities");
    for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
        json_key_array(json, sets[i]);
        for (size_t k = 0; k < ARRAY_SIZE(cap_names); k++)
            if (caps & (UINT64_C(1) << cap_names[k].cap))
                json_string(json, cap_names[k].name);
        json_end(json);
    }
    json_end(json);
}

static void put_rlimit(struct json *json, const char *type, uint64_t value)
{
    if (value == 0)
        return;
    json_object(json);
    json_key_string(json, "type", type);
    json_key_u64(json, "hard", value);
    json_key_u64(json, "soft", value);
    json_end(json);
}

static void put_process(struct json *json, const struct carried *box, bool guest)
{
    static const char *const args[] = {"/.brig/init", "carry", "--listen-fd", "3", NULL}, *const none[] = {NULL};
    static const char *const guest_args[] = {"/.brig/init", "carry", "--listen", STAGE_GUEST_PLACE "/s", NULL};
    const struct sandbox *s = &box->s;

    json_key_object(json, "process");
    json_key_bool(json, "terminal", false);
    json_key_object(json, "user");
    json_key_u64(json, "uid", INSIDE_ROOT);
    json_key_u64(json, "gid", INSIDE_ROOT);
    json_end(json);
    put_strings(json, "args", guest ? guest_args : args);
    put_strings(json, "env", none);
    json_key_string(json, "cwd", "/");
    put_caps(json, PID_1_CAPS | (s->run->flags & BRIG_RUN_ROOT ? ROOT_INSIDE_CAPS : 0));
    json_key_bool(json, "noNewPrivileges", true);
    json_key_i64(json, "oomScoreAdj", 500);
    json_key_array(json, "rlimits");
    put_rlimit(json, "RLIMIT_NOFILE", s->limits.open_files);
    put_rlimit(json, "RLIMIT_FSIZE", s->limits.file_size);
    json_end(json);
    json_end(json);
}

static void put_mount(struct json *json, const char *target, const char *type, const char *source,
                      const char *const *options)
{
    json_object(json);
    json_key_string(json, "destination", target);
    json_key_string(json, "type", type);
    json_key_string(json, "source", source);
    put_strings(json, "options", options);
    json_end(json);
}

/* A bind of /dev keeps the runtime from making one: ours is there. crun forgets what is mounted below a bind. */
static void put_mounts(struct json *json, bool compat)
{
    static const char *const bind[] = {"rbind", NULL}, *const pid_only[] = {"nosuid",     "noexec",
                                                                            "nodev",      "hidepid=ptraceable",
                                                                            "subset=pid", NULL},
                             *const whole[] = {"nosuid", "noexec", "nodev", "hidepid=ptraceable", NULL};

    json_key_array(json, "mounts");
    put_mount(json, "/proc", "proc", "proc", compat ? whole : pid_only);
    put_mount(json, "/dev", "bind", STAGE_ROOTFS "/dev", bind);
    put_mount(json, "/dev/pts", "bind", STAGE_ROOTFS "/dev/pts", bind);
    put_mount(json, "/dev/shm", "bind", STAGE_ROOTFS "/dev/shm", bind);
    json_end(json);
}

static void put_place(struct json *json, const char *place)
{
    static const char *const bind[] = {"rbind", "rw", NULL};
    char source[sizeof STAGE_ROOTFS + 4096];

    if (str_format(source, sizeof source, STAGE_ROOTFS "%s", place) >= 0)
        put_mount(json, place, "bind", source, bind);
}

/*
 * gVisor has a /proc and a /dev of its own, and opens everything else through the mounts that it is told of: those that
 * can be written to, each as it is in the root. It would put a tmpfs over an empty /tmp of which it is not told.
 */
static void put_guest_mounts(struct json *json, const struct run_spec *run)
{
    static const char *const proc[] = {"nosuid", "noexec", "nodev", NULL};
    static const char *const places[] = GUEST_PLACES;

    json_key_array(json, "mounts");
    put_mount(json, "/proc", "proc", "proc", proc);
    for (size_t i = 0; i < ARRAY_SIZE(places); i++)
        put_place(json, places[i]);
    put_place(json, "/dev/shm");
    put_place(json, STAGE_GUEST_PLACE);
    for (unsigned i = 0; i < run->n_binds; i++)
        put_place(json, run->binds[i].target);
    for (unsigned i = 0; i < run->n_tmpfs; i++)
        put_place(json, run->tmpfs[i].path);
    json_end(json);
}

static void put_map(struct json *json, const char *key, uint32_t outside)
{
    json_key_array(json, key);
    json_object(json);
    json_key_u64(json, "containerID", INSIDE_ROOT);
    json_key_u64(json, "hostID", outside);
    json_key_u64(json, "size", INSIDE_RANGE);
    json_end(json);
    json_end(json);
}

static void put_linux(struct json *json, const struct carried *box)
{
    static const char *const made[] = {"user", "mount", "pid", "ipc", "uts", "cgroup", NULL};
    static const char *const masked[] = {"/proc/acpi",
                                         "/proc/asound",
                                         "/proc/kcore",
                                         "/proc/keys",
                                         "/proc/key-users",
                                         "/proc/latency_stats",
                                         "/proc/timer_list",
                                         "/proc/timer_stats",
                                         "/proc/sched_debug",
                                         "/proc/scsi",
                                         "/proc/kallsyms",
                                         "/proc/kmsg",
                                         "/proc/sysrq-trigger",
                                         "/proc/kpagecount",
                                         "/proc/kpageflags",
                                         "/proc/kpagecgroup",
                                         "/proc/modules",
                                         "/sys",
                                         NULL};
    static const char *const read_only[] = {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", NULL};
    char net[64];

    (void)snprintf(net, sizeof net, "/proc/%d/fd/%d", (int)box->runner->pid, box->netns_fd);
    json_key_object(json, "linux");
    put_map(json, "uidMappings", box->s.ids.root);
    put_map(json, "gidMappings", box->s.ids.root);
    json_key_array(json, "namespaces");
    for (size_t i = 0; made[i]; i++) {
        json_object(json);
        json_key_string(json, "type", made[i]);
        json_end(json);
    }
    json_object(json);
    json_key_string(json, "type", "network");
    json_key_string(json, "path", net);
    json_end(json);
    json_end(json);
    put_strings(json, "maskedPaths", masked);
    put_strings(json, "readonlyPaths", read_only);
    json_end(json);
}

int oci_write_config(struct carried *box, const struct stage *stage, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(CONFIG_MAX);
    struct json json = JSON_INIT(&text);
    const struct run_spec *run = box->s.run;

    json_object(&json);
    json_key_string(&json, "ociVersion", "1.0.2");
    put_process(&json, box, stage->guest_dir);
    json_key_object(&json, "root");
    json_key_string(&json, "path", STAGE_ROOTFS);
    json_key_bool(&json, "readonly", false); /* it is already, if it is to be */
    json_end(&json);
    json_key_string(&json, "hostname", run->name ? run->name : box->s.id);
    if (stage->guest_dir)
        put_guest_mounts(&json, run);
    else
        put_mounts(&json, run->profile == BRIG_PROFILE_COMPAT);
    put_linux(&json, box);
    json_end(&json);
    int r = json_finish(&json);
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "config.json")
                 : stage_write(stage, "config.json", text.data, text.len, err);
}
