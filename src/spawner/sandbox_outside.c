/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_outside.c: the part of the protection statement that is read from outside, in the kernel's files: limits,
 * ids, and whether another kernel than the host's answers. The rest is what brig-init has read back (jail/selfcheck.c).
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/parse.h"
#include "spawner/spawner.h"

static enum reading_by by_of_ids(const struct ids *ids)
{
    if (ids->kind == IDS_ONE)
        return BY_NONE;
    return ids->kind == IDS_PAIR ? BY_SUBIDS : ids->scope == IDS_HOST ? BY_UID_RANGE : BY_UID_RANGE_HERE;
}

static void read_uid_range(struct sandbox *s)
{
    const struct host *host = &s->spawner->host;
    struct reading *out = &s->readings[BRIG_LAYER_UID_RANGE];
    char path[32], text[256], *line = text;
    bool own = false;
    uint64_t ids = 0;

    snprintf(path, sizeof path, "%d/uid_map", (int)s->pid);
    if (fd_read_file(host->proc_fd, path, text, sizeof text) <= 0)
        line = NULL;
    for (; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        uint64_t map[3]; /* inside, outside, count */
        if (parse_fields(line, map, 3) != 3)
            break;
        ids += map[2];
        own |= map[1] == 0 || map[1] == geteuid(); /* the spawner's own id, hence its user's */
    }
    bool known = host->ids.scope != IDS_RUN_DIR; /* else another spawner may hold the same slot */
    bool on = ids >= 2 && !own && s->ids.slot >= 0 && known;
    *out = (struct reading){.on = on, .by = (uint8_t)by_of_ids(&host->ids), .why = WHY_NONE};
    if (!on)
        out->why = host->ids_kind == IDS_ONE ? WHY_ONE_ID
                   : s->ids.user == 0        ? WHY_OWN_ID
                   : s->ids.shared           ? WHY_SHARED_IDS
                   : !known                  ? WHY_IDS_NOT_KNOWN
                                             : WHY_READ_BACK;
}

/* What remains without cgroups, read back from the process. */
static void read_rlimits(struct sandbox *s)
{
    static const struct {
        enum brig_layer layer;
        const char *name;
        enum reading_by by;
    } rest[] = {{BRIG_LAYER_MEMORY, "Max address space", BY_RLIMIT_AS},
                {BRIG_LAYER_PIDS, "Max processes", BY_RLIMIT_NPROC}};
    char path[32], text[4096];

    snprintf(path, sizeof path, "%d/limits", (int)s->pid);
    if (fd_read_file(s->spawner->host.proc_fd, path, text, sizeof text) <= 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(rest); i++) {
        struct reading *out = &s->readings[rest[i].layer];
        const char *line = strstr(text, rest[i].name);
        uint64_t limit, asked = i == 0 ? s->run->limits.memory : s->run->limits.pids;
        if (out->on || out->why != WHY_NO_DELEGATION || !line ||
            parse_fields(line + strlen(rest[i].name), &limit, 1) != 1)
            continue;
        if (limit <= asked) {
            out->by = (uint8_t)rest[i].by;
            out->why = rest[i].layer == BRIG_LAYER_MEMORY ? WHY_PER_PROCESS : WHY_NONE;
            out->on = rest[i].layer == BRIG_LAYER_PIDS; /* counted per user namespace, and that is the sandbox's own */
        }
    }
}

/* The layers only somebody outside can read. */
static const enum brig_layer outside[] = {BRIG_LAYER_UID_RANGE, BRIG_LAYER_MEMORY, BRIG_LAYER_CPU,
                                          BRIG_LAYER_PIDS,      BRIG_LAYER_IO,     BRIG_LAYER_OWN_KERNEL};

/* Namespaces of another kernel say nothing about the host: those of the process that is that kernel do. */
static const struct {
    const char *name;
    enum guest_ns ns;
    enum brig_layer layer;
} kernel_ns[] = {
    {"user", NS_USER, BRIG_LAYER_USER_NS},       {"mnt", NS_MNT, BRIG_LAYER_MOUNT_NS},
    {"pid", NS_PID, BRIG_LAYER_PID_NS},          {"net", NS_NET, BRIG_LAYER_NET_NS},
    {"ipc", NS_IPC, BRIG_LAYER_IPC_NS},          {"uts", NS_UTS, BRIG_LAYER_UTS_NS},
    {"cgroup", NS_CGROUP, BRIG_LAYER_CGROUP_NS},
};

uint64_t sandbox_outside(const struct sandbox *s)
{
    uint64_t mask = 0;

    for (size_t i = 0; i < ARRAY_SIZE(outside); i++)
        mask |= BRIG_LAYER_BIT(outside[i]);
    for (size_t i = 0; s->own_kernel && i < ARRAY_SIZE(kernel_ns); i++)
        mask |= BRIG_LAYER_BIT(kernel_ns[i].layer);
    return mask;
}

static void read_kernel(struct sandbox *s)
{
    const struct host *host = &s->spawner->host;

    s->readings[BRIG_LAYER_OWN_KERNEL] =
        s->own_kernel ? (struct reading){.on = 1, .by = s->own_kernel} : (struct reading){.why = WHY_HOST_KERNEL};
    for (size_t i = 0; s->own_kernel && i < ARRAY_SIZE(kernel_ns); i++) {
        char path[48];
        struct stat st;
        (void)snprintf(path, sizeof path, "%d/ns/%s", (int)s->pid, kernel_ns[i].name);
        bool on = fstatat(host->proc_fd, path, &st, 0) == 0 && host->ns[kernel_ns[i].ns] != 0 &&
                  (uint32_t)st.st_ino != host->ns[kernel_ns[i].ns];
        s->readings[kernel_ns[i].layer] = (struct reading){.on = on, .why = on ? WHY_NONE : WHY_READ_BACK};
    }
}

/* Reads them, after the limits of this run were set. Returns what is required and missing. */
static uint64_t read_outside(struct sandbox *s)
{
    uint64_t missing = 0;

    cg_read_back(&s->cg, &s->run->limits, s->image.device[0] ? s->image.device : NULL, s->spawner->host.proc_fd, s->pid,
                 s->readings);
    read_uid_range(s);
    read_rlimits(s);
    read_kernel(s);
    for (int i = 0; i < BRIG_LAYER_MAX; i++)
        if (!s->readings[i].on)
            missing |= BRIG_LAYER_BIT(i);
    return missing & s->run->require & sandbox_outside(s);
}

void sandbox_refuse_missing(struct sandbox *s, uint64_t missing)
{
    for (int i = 0; i < BRIG_LAYER_MAX; i++)
        if (missing & BRIG_LAYER_BIT(i)) {
            const char *why = reading_why_text((enum reading_why)s->readings[i].why);
            (void)err_set(&s->failure, BRIG_E_REFUSED, 0, "required layer %s is not on%s%s",
                          brig_layer_name((enum brig_layer)i), why[0] ? ": " : "", why);
            break;
        }
    sandbox_end(s, BRIG_CAUSE_POLICY);
}

bool sandbox_outside_holds(struct sandbox *s)
{
    uint64_t missing = read_outside(s);

    if (missing)
        sandbox_refuse_missing(s, missing);
    return missing == 0;
}

bool sandbox_take_readings(struct sandbox *s, const struct guest_started *started)
{
    for (int i = 0; i < BRIG_LAYER_MAX; i++)
        if (!(sandbox_outside(s) & BRIG_LAYER_BIT(i)))
            s->readings[i] = started->readings[i];
    if (started->missing)
        sandbox_refuse_missing(s, started->missing);
    return started->missing == 0;
}
