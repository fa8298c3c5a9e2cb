/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_rows.c: makes the rows: first the layers as a sandbox read them back, then the other limits, then the features
 * that all of it needs. A layer that is off has the fix of the feature that it needs.
 */
#include <string.h>

#include "base/str.h"
#include "engine/engine_doctor.h"

#define REPORT "this should not be: please report it with the output of `brig doctor -o json`"

/* ---- features ----------------------------------------------------------------------------------------- */

typedef void find_fn(const struct doctor *d, struct brig_doctor_row *row);

static const struct {
    const char *name;
    find_fn *find;
    bool vital;             /* no sandbox without it */
    const char *blame[5];   /* words of the engine's errors that point here */
    const char *blamed_fix; /* where its own look found nothing wrong */
} features[FEATURE_MAX] = {
    [FEATURE_KERNEL] = {"kernel",
                        find_kernel,
                        true,
                        {"Function not implemented"},
                        "boot Linux 5.14 or newer; in a container: --security-opt seccomp=unconfined"},
    [FEATURE_PIDFD] = {"pidfd", find_pidfd, true, {NULL}, ""},
    [FEATURE_SECCOMP] =
        {"seccomp_filter", find_seccomp, true, {"set-up, seccomp"}, "boot a kernel built with CONFIG_SECCOMP_FILTER=y"},
    [FEATURE_LANDLOCK] = {"landlock_abi", find_landlock, false, {"set-up, landlock"}, REPORT},
    [FEATURE_OVERLAYFS] =
        {"overlayfs", find_overlayfs, true, {": overlay"}, "modprobe overlay, as root; a plain user needs Linux 5.11"},
    [FEATURE_USER_NS] =
        {"user_namespaces",
         find_user_ns,
         true,
         {"user namespace", "id map", "host's mounts", "mount namespace", "set-up, sysctl"},
         "raise user.max_user_namespaces here and in every namespace around; in a container: --privileged, or "
         "--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"},
    [FEATURE_FULL_PROC] = {"full_proc",
                           find_full_proc,
                           true,
                           {"set-up, proc", "copy of /proc"},
                           "start the container with --security-opt systempaths=unconfined"},
    [FEATURE_SUBIDS] = {"subordinate_ids", find_subids, false, {NULL}, ""},
    [FEATURE_CGROUPS] = {"cgroups", find_cgroups, false, {NULL}, ""},
    [FEATURE_DELEGATION] =
        {"cgroup_delegation",
         find_delegation,
         false,
         {"cgroup", "memory.", "cpu.", "pids.max"},
         "run brig in a cgroup of its own: systemd-run --scope -p Delegate=yes brig run ... (a plain user: "
         "with --user)"},
    [FEATURE_IMAGES] =
        {"image_store",
         find_images,
         false,
         {"mkfs.ext4", "loop device", "store image", "ext4"},
         "free loop devices are listed by losetup; the state directory (/var/lib/brig) needs room and O_TMPFILE"},
    [FEATURE_DIRS] =
        {"directories", find_dirs, false, {" directory ", "mkdir "}, "set BRIG_RUN_DIR to a directory of your own"},
    [FEATURE_HELPERS] =
        {"helpers",
         find_helpers,
         true,
         {"brig-init", "brig-spawner", "helper directory"},
         "install brig with its helpers (meson install -C build), or set BRIG_LIBEXEC_DIR to where they are, not on a "
         "noexec mount"},
    [FEATURE_CORE_DUMPS] = {"core_dumps", find_core_dumps, false, {NULL}, ""},
    [FEATURE_FILTER_ROOM] = {"filter_room",
                             find_filter_room,
                             false,
                             {"bpf_jit_limit"},
                             "raise net.core.bpf_jit_limit (sysctl), or find who attaches so many filters to sockets"},
    [FEATURE_DISKS] = {"disks", find_disks, false, {"disks:"}, ""},
};

/* Later ones first: a path in an error may hold the words of an earlier one. */
static enum doctor_feature blame(const struct doctor_probe *probe)
{
    for (int i = FEATURE_MAX; !probe->usable && i-- > 0;)
        for (size_t k = 0; k < ARRAY_SIZE(features[i].blame) && features[i].blame[k]; k++)
            if (strstr(probe->error.message, features[i].blame[k]))
                return (enum doctor_feature)i;
    return FEATURE_MAX;
}

static void find_feature(struct doctor *d, enum doctor_feature i)
{
    struct brig_doctor_row *row = &d->features[i];

    row->name = features[i].name;
    features[i].find(d, row);
    if (row->on && d->blamed == i) {
        row_off(row, "%s", d->probe.error.message);
        row_fix(row, "%s", features[i].blamed_fix);
    }
}

void doctor_features(struct doctor *d)
{
    d->blamed = blame(&d->probe);
    find_feature(d, FEATURE_DIRS); /* others refer to it */
    for (int i = 0; i < FEATURE_MAX; i++)
        if (i != FEATURE_DIRS)
            find_feature(d, (enum doctor_feature)i);
    d->blocker = FEATURE_MAX;
    for (int i = 0; !d->probe.usable && i < FEATURE_MAX && d->blocker == FEATURE_MAX; i++)
        if (!d->features[i].on && features[i].vital)
            d->blocker = (enum doctor_feature)i;
    if (d->blocker == FEATURE_MAX)
        d->blocker = d->blamed;
    if (d->blocker == FEATURE_MAX && !d->probe.usable && !d->features[FEATURE_DIRS].on)
        d->blocker = FEATURE_DIRS;
}

/* ---- layers ------------------------------------------------------------------------------------------- */

static const struct {
    const char *what;            /* when it is on */
    enum doctor_feature feature; /* which brings it; FEATURE_MAX: every kernel with the others does */
} layers[BRIG_LAYER_MAX] = {
    [BRIG_LAYER_USER_NS] = {"a user namespace of its own", FEATURE_USER_NS},
    [BRIG_LAYER_MOUNT_NS] = {"a mount namespace of its own", FEATURE_USER_NS},
    [BRIG_LAYER_PID_NS] = {"a pid namespace of its own", FEATURE_USER_NS},
    [BRIG_LAYER_NET_NS] = {"a network namespace of its own", FEATURE_USER_NS},
    [BRIG_LAYER_IPC_NS] = {"an ipc namespace of its own", FEATURE_USER_NS},
    [BRIG_LAYER_UTS_NS] = {"a uts namespace of its own", FEATURE_USER_NS},
    [BRIG_LAYER_CGROUP_NS] = {"a cgroup namespace of its own", FEATURE_USER_NS},
    [BRIG_LAYER_UID_RANGE] = {"ids that nobody else has", FEATURE_SUBIDS},
    [BRIG_LAYER_CAPS] = {"no capability in any set", FEATURE_USER_NS},
    [BRIG_LAYER_NO_NEW_PRIVS] = {"no_new_privs is set", FEATURE_KERNEL},
    [BRIG_LAYER_SECCOMP] = {"a filter is in force, and it answers as ours does", FEATURE_SECCOMP},
    [BRIG_LAYER_LANDLOCK] = {"a domain is in force", FEATURE_LANDLOCK},
    [BRIG_LAYER_ROOT_READONLY] = {"the root cannot be written to", FEATURE_OVERLAYFS},
    [BRIG_LAYER_PROC] = {"nothing of the host is in /proc", FEATURE_FULL_PROC},
    [BRIG_LAYER_FDS] = {"no descriptors but those declared", FEATURE_KERNEL},
    [BRIG_LAYER_MEMORY] = {"bounded in sum", FEATURE_DELEGATION},
    [BRIG_LAYER_CPU] = {"throttled in sum", FEATURE_DELEGATION},
    [BRIG_LAYER_PIDS] = {"bounded in sum", FEATURE_DELEGATION},
    [BRIG_LAYER_DISK] = {"bounded in sum", FEATURE_IMAGES},
    [BRIG_LAYER_INODES] = {"bounded in sum", FEATURE_IMAGES},
    [BRIG_LAYER_TIME_NS] = {"a time namespace of its own", FEATURE_MAX},
    [BRIG_LAYER_IO] = {"io_read_bps and io_write_bps can be had", FEATURE_MAX},
    [BRIG_LAYER_OWN_KERNEL] = {"another kernel than the host's", FEATURE_MAX},
};

static void layer_without_sandbox(const struct doctor *d, struct brig_doctor_row *row)
{
    row_off(row, "not read: no sandbox could be made");
    if (!row->needed)
        return;
    if (d->blocker != FEATURE_MAX)
        row_fix(row, "as for %s below", features[d->blocker].name);
    else
        row_fix(row, "mend what the last line says");
}

static void io_row(const struct doctor *d, struct brig_doctor_row *row)
{
    const struct brig_layer_state *state = &d->probe.layers[BRIG_LAYER_IO];

    if (state->on) {
        row_on(row, "%s: %s", layers[BRIG_LAYER_IO].what, state->by);
        return;
    }
    if (str_eq(d->probe.layers[BRIG_LAYER_DISK].by, "memory-backed")) {
        row_off(row, "stores are memory-backed, there is nothing to throttle (see image_store)");
        return;
    }
    row_off(row, "%s", d->probe.io_error[0] ? d->probe.io_error : state->why);
    if (!d->features[FEATURE_DELEGATION].on)
        row_fix(row, "%s", d->features[FEATURE_DELEGATION].fix);
    else if (!((d->cgroup.v1 | d->cgroup.v2) & (1u << CONTROLLER_IO)))
        row_fix(row, "%s",
                d->cgroup.kind == CGROUP_V2
                    ? "boot a kernel built with CONFIG_BLK_CGROUP=y and CONFIG_BLK_DEV_THROTTLING=y"
                    : "mkdir -p /sys/fs/cgroup/blkio && mount -t cgroup -o blkio blkio /sys/fs/cgroup/blkio");
}

static void layer_row(const struct doctor *d, enum brig_layer i, struct brig_doctor_row *row)
{
    const struct brig_layer_state *state = &d->probe.layers[i];
    enum doctor_feature feature = layers[i].feature;

    row->name = brig_layer_name(i);
    row->needed = (BRIG_REQUIRE_ALL & BRIG_LAYER_BIT(i)) != 0;
    if (!d->probe.usable) {
        layer_without_sandbox(d, row);
    } else if (i == BRIG_LAYER_IO) {
        io_row(d, row);
    } else if (state->on && state->abi) {
        row_on(row, "%s: ABI %u", layers[i].what, state->abi);
    } else if (state->on) {
        row_on(row, "%s%s%s", layers[i].what, state->by[0] ? ": " : "", state->by);
    } else {
        row_off(row, "%s%s%s", state->by, state->by[0] ? ": " : "", state->why[0] ? state->why : "it is not in force");
        if (row->needed) /* the feature may be well, and the layer off all the same */
            row_fix(row, "%s",
                    feature != FEATURE_MAX && d->features[feature].fix[0] ? d->features[feature].fix : REPORT);
    }
}

/* ---- limits that are no layers ------------------------------------------------------------------------ */

int doctor_limit_inside(const char *text, const char *name, uint64_t *ret)
{
    const char *at = strstr(text, name);

    if (!at)
        return -ENOENT;
    at += strlen(name);
    at += strspn(at, " ");
    if (str_starts(at, "unlimited"))
        *ret = UINT64_MAX;
    else if (*at >= '0' && *at <= '9')
        *ret = strtoull(at, NULL, 10);
    else
        return -ENOENT;
    return 0;
}

static void rlimit_row(const struct doctor *d, enum brig_limit limit, const char *line, uint64_t asked,
                       struct brig_doctor_row *row)
{
    uint64_t got = 0;

    row->name = brig_limit_name(limit);
    if (doctor_limit_inside(d->probe.inside, line, &got) < 0)
        row_off(row, "not read back: no /bin/cat in the sandbox");
    else if (got <= asked)
        row_on(row, "per process, by the kernel");
    else
        row_off(row, "the kernel reads back more than was set");
}

static void cpu_time_row(const struct doctor *d, struct brig_doctor_row *row)
{
    const struct doctor_cgroup *cg = &d->cgroup;

    row->name = brig_limit_name(BRIG_LIMIT_CPU_TIME);
    if (d->probe.cpu_ms != BRIG_USAGE_UNKNOWN) {
        row_on(row, "counted by %s",
               cg->v2_writable                                ? "cgroup v2 (cpu.stat)"
               : cg->v1_writable & (1u << CONTROLLER_CPUACCT) ? "cgroup v1 (cpuacct)"
                                                              : "the engine");
        return;
    }
    row_off(row, "nothing counts the CPU time of all processes here");
    row_fix(row, "%s", d->features[FEATURE_DELEGATION].fix);
}

static void limit_rows(const struct doctor *d, struct brig_doctor_row rows[5])
{
    static const enum brig_limit limits[5] = {BRIG_LIMIT_CPU_TIME, BRIG_LIMIT_OPEN_FILES, BRIG_LIMIT_FILE_SIZE,
                                              BRIG_LIMIT_TIMEOUT, BRIG_LIMIT_OUTPUT};

    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        rows[i].name = brig_limit_name(limits[i]);
        row_off(&rows[i], "not read: no sandbox could be made");
    }
    if (!d->probe.usable)
        return;
    cpu_time_row(d, &rows[0]);
    rlimit_row(d, BRIG_LIMIT_OPEN_FILES, "Max open files", d->probe.limits.open_files, &rows[1]);
    rlimit_row(d, BRIG_LIMIT_FILE_SIZE, "Max file size", d->probe.limits.file_size, &rows[2]);
    row_on(&rows[3], "by the engine's clock");
    row_on(&rows[4], "counted by the engine");
}

void doctor_rows(const struct doctor *d, struct brig_doctor *ret)
{
    _Static_assert(BRIG_LAYER_MAX + 5 + FEATURE_MAX <= ARRAY_SIZE(ret->rows), "room for every row");

    for (int i = 0; i < BRIG_LAYER_MAX; i++)
        layer_row(d, (enum brig_layer)i, &ret->rows[ret->n_rows++]);
    limit_rows(d, &ret->rows[ret->n_rows]);
    ret->n_rows += 5;
    for (int i = 0; i < FEATURE_MAX; i++)
        ret->rows[ret->n_rows++] = d->features[i];
}
