/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c: the words that all rooms share, as text: one table per enum, each checked against the enum's length.
 * Receipts, flags and the API contain these names, so a name may be added but never changed.
 */
#include <brig.h>

#include "base/base.h"

static const char *const layer_names[] = {
    [BRIG_LAYER_USER_NS] = "user_ns",
    [BRIG_LAYER_MOUNT_NS] = "mount_ns",
    [BRIG_LAYER_PID_NS] = "pid_ns",
    [BRIG_LAYER_NET_NS] = "net_ns",
    [BRIG_LAYER_IPC_NS] = "ipc_ns",
    [BRIG_LAYER_UTS_NS] = "uts_ns",
    [BRIG_LAYER_CGROUP_NS] = "cgroup_ns",
    [BRIG_LAYER_UID_RANGE] = "uid_range",
    [BRIG_LAYER_CAPS] = "caps",
    [BRIG_LAYER_NO_NEW_PRIVS] = "no_new_privs",
    [BRIG_LAYER_SECCOMP] = "seccomp",
    [BRIG_LAYER_LANDLOCK] = "landlock",
    [BRIG_LAYER_ROOT_READONLY] = "root_readonly",
    [BRIG_LAYER_PROC] = "proc",
    [BRIG_LAYER_FDS] = "fds",
    [BRIG_LAYER_MEMORY] = "memory",
    [BRIG_LAYER_CPU] = "cpu",
    [BRIG_LAYER_PIDS] = "pids",
    [BRIG_LAYER_DISK] = "disk",
    [BRIG_LAYER_INODES] = "inodes",
    [BRIG_LAYER_TIME_NS] = "time_ns",
    [BRIG_LAYER_IO] = "io",
    [BRIG_LAYER_OWN_KERNEL] = "own_kernel",
};
_Static_assert(ARRAY_SIZE(layer_names) == BRIG_LAYER_MAX, "a name for every layer");
_Static_assert(BRIG_LAYER_INODES == 19 && BRIG_LAYER_MAX <= 64, "`require: all` is the first twenty, in one mask");

static const char *const limit_names[] = {
    [BRIG_LIMIT_MEMORY] = "memory",
    [BRIG_LIMIT_CPUS] = "cpus",
    [BRIG_LIMIT_CPU_TIME] = "cpu_time",
    [BRIG_LIMIT_PIDS] = "pids",
    [BRIG_LIMIT_DISK] = "disk",
    [BRIG_LIMIT_INODES] = "inodes",
    [BRIG_LIMIT_OPEN_FILES] = "open_files",
    [BRIG_LIMIT_FILE_SIZE] = "file_size",
    [BRIG_LIMIT_IO_READ_BPS] = "io_read_bps",
    [BRIG_LIMIT_IO_WRITE_BPS] = "io_write_bps",
    [BRIG_LIMIT_TIMEOUT] = "timeout",
    [BRIG_LIMIT_OUTPUT] = "output",
    [BRIG_LIMIT_NET_BYTES_IN] = "net_bytes_in",
    [BRIG_LIMIT_NET_BYTES_OUT] = "net_bytes_out",
    [BRIG_LIMIT_NET_BPS] = "net_bps",
    [BRIG_LIMIT_CONNECTIONS] = "connections",
};
_Static_assert(ARRAY_SIZE(limit_names) == BRIG_LIMIT_MAX, "a name for every limit");
_Static_assert(sizeof(struct brig_limits) == BRIG_LIMIT_MAX * sizeof(uint64_t), "a limit for every name");
_Static_assert(BRIG_LIMIT_MAX <= 32, "limits_hit is a mask of 32 bits");

static const char *const cause_names[] = {
    [BRIG_CAUSE_HOST_ERROR] = "host-error",     [BRIG_CAUSE_SANDBOX_GONE] = "sandbox-gone",
    [BRIG_CAUSE_CANCELLED] = "cancelled",       [BRIG_CAUSE_POLICY] = "policy",
    [BRIG_CAUSE_TIMEOUT] = "timeout",           [BRIG_CAUSE_CPU_LIMIT] = "cpu-limit",
    [BRIG_CAUSE_OUTPUT_LIMIT] = "output-limit", [BRIG_CAUSE_OOM] = "oom",
    [BRIG_CAUSE_DISK_LIMIT] = "disk-limit",     [BRIG_CAUSE_PIDS_LIMIT] = "pids-limit",
    [BRIG_CAUSE_SIGNALLED] = "signalled",       [BRIG_CAUSE_EXITED] = "exited",
};
_Static_assert(ARRAY_SIZE(cause_names) == BRIG_CAUSE_MAX, "a name for every cause");

static const char *const profile_names[] = {
    [BRIG_PROFILE_DEFAULT] = "default",
    [BRIG_PROFILE_PARANOID] = "paranoid",
    [BRIG_PROFILE_COMPAT] = "compat",
};
_Static_assert(ARRAY_SIZE(profile_names) == BRIG_PROFILE_MAX, "a name for every profile");

static const char *name_of(const char *const *names, size_t n, unsigned value)
{
    return value < n ? names[value] : "unknown";
}

static int value_of(const char *const *names, size_t n, const char *name)
{
    if (!name)
        return -EINVAL;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0)
            return (int)i;
    }
    return -EINVAL;
}

const char *brig_layer_name(enum brig_layer layer)
{
    return name_of(layer_names, ARRAY_SIZE(layer_names), layer);
}

const char *brig_limit_name(enum brig_limit limit)
{
    return name_of(limit_names, ARRAY_SIZE(limit_names), limit);
}

const char *brig_cause_name(enum brig_cause cause)
{
    return name_of(cause_names, ARRAY_SIZE(cause_names), cause);
}

const char *brig_profile_name(enum brig_profile profile)
{
    return name_of(profile_names, ARRAY_SIZE(profile_names), profile);
}

int brig_layer_parse(const char *name)
{
    return value_of(layer_names, ARRAY_SIZE(layer_names), name);
}

int brig_profile_parse(const char *name)
{
    return value_of(profile_names, ARRAY_SIZE(profile_names), name);
}

#define STATUS_TIMEOUT 124
#define STATUS_BRIG 125
#define STATUS_KILLED 137

int brig_exit_status(const struct brig_receipt *receipt)
{
    if (!receipt)
        return STATUS_BRIG;
    switch (receipt->cause) {
    case BRIG_CAUSE_TIMEOUT: return STATUS_TIMEOUT;
    case BRIG_CAUSE_CPU_LIMIT:
    case BRIG_CAUSE_OUTPUT_LIMIT:
    case BRIG_CAUSE_OOM: return STATUS_KILLED;
    case BRIG_CAUSE_DISK_LIMIT:
    case BRIG_CAUSE_PIDS_LIMIT:
    case BRIG_CAUSE_SIGNALLED:
    case BRIG_CAUSE_EXITED:
        /* The program's own, 126 and 127 for one that could not be executed included. */
        return receipt->signal != 0 ? 128 + (receipt->signal & 127) : receipt->exit_code & 255;
    case BRIG_CAUSE_HOST_ERROR:
    case BRIG_CAUSE_SANDBOX_GONE:
    case BRIG_CAUSE_CANCELLED:
    case BRIG_CAUSE_POLICY:
    case BRIG_CAUSE_MAX: break;
    }
    return STATUS_BRIG;
}
