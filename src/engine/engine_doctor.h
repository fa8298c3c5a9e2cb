/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_doctor.h: the internal structures of brig_doctor().
 *
 *   facts       (doctor_host.c, doctor_cgroup.c) About the host. They are read before an engine exists,
 *               because the engine moves this process to another cgroup.
 *   the probe   (engine_doctor.c) Real sandboxes through the public interface, read back.
 *   features    (doctor_kernel.c, doctor_user.c, doctor_cgroup.c, doctor_places.c) What a sandbox needs, and
 *               the fix for each.
 *   rows        (doctor_rows.c) Layers and limits as the probe found them. Their fixes are those of the
 *               features that they need.
 *
 * Where sandboxes can be made, their own readings count, and the facts only explain what is off. Where none can be
 * made, there are only the facts, and the engine's error decides which of them is to blame.
 */
#ifndef BRIG_ENGINE_ENGINE_DOCTOR_H
#define BRIG_ENGINE_ENGINE_DOCTOR_H

#include <brig.h>
#include <sys/types.h>

#include "base/base.h"

enum doctor_feature {
    FEATURE_KERNEL,
    FEATURE_PIDFD,
    FEATURE_SECCOMP,
    FEATURE_LANDLOCK,
    FEATURE_OVERLAYFS,
    FEATURE_USER_NS,
    FEATURE_FULL_PROC,
    FEATURE_SUBIDS,
    FEATURE_CGROUPS,
    FEATURE_DELEGATION,
    FEATURE_IMAGES,
    FEATURE_DIRS,
    FEATURE_HELPERS,
    FEATURE_CORE_DUMPS,
    FEATURE_FILTER_ROOM,
    FEATURE_DISKS,
    FEATURE_MAX
};

struct doctor_host {
    uid_t uid;
    gid_t gid;
    bool privileged;             /* It has all ids and CAP_SYS_ADMIN, as the spawner sees it. */
    bool nested;                 /* It is in a user namespace that is not the first. */
    bool no_new_privs, filtered; /* For this process. filtered: it has somebody's seccomp filter. */
    bool systemd;
    const char *sudo;      /* The prefix of a command that needs root. */
    const char *host_sudo; /* The prefix of a command that needs the root of the first user namespace. */
    unsigned version[2];
    char release[65];
    int landlock; /* ABI, or a negative errno */
};

enum doctor_controller {
    CONTROLLER_MEMORY,
    CONTROLLER_CPU,
    CONTROLLER_PIDS,
    CONTROLLER_CPUACCT,
    CONTROLLER_IO,
    CONTROLLER_MAX
};
enum doctor_cgroup_kind { CGROUP_NONE, CGROUP_V1, CGROUP_HYBRID, CGROUP_V2 };

struct doctor_cgroup {
    enum doctor_cgroup_kind kind;
    bool v2_writable, v2_alone; /* Our v2 cgroup: we may divide it; nobody else is in it. */
    bool read_only;             /* The mount itself is read-only. */
    char v2_path[128];
    unsigned v2, v1, v1_writable, disabled; /* Masks of 1u << enum doctor_controller. */
};

struct doctor_probe {
    bool usable, complete;
    struct brig_err error; /* Why it is not usable. */
    struct brig_layer_state layers[BRIG_LAYER_MAX];
    char io_error[256]; /* The error of the second sandbox, which asks for io limits. */
    uint64_t cpu_ms;
    struct brig_limits limits;
    char inside[4096]; /* /proc/self/limits as a program in the sandbox read it. It may be empty. */
};

struct doctor {
    struct doctor_host host;
    struct doctor_cgroup cgroup;
    struct doctor_probe probe;
    const char *helper_dir;      /* The directory as it was given, or NULL. */
    enum doctor_feature blamed;  /* The feature that the engine's error names; FEATURE_MAX for none. */
    enum doctor_feature blocker; /* Why there is no sandbox; FEATURE_MAX for none, or unknown. */
    struct brig_doctor_row features[FEATURE_MAX];
};

/* Each writes one line in ASCII: a quotation from the host may hold anything. */
void row_on(struct brig_doctor_row *row, const char *format, ...) PRINTF_LIKE(2, 3);
void row_off(struct brig_doctor_row *row, const char *format, ...) PRINTF_LIKE(2, 3);
void row_fix(struct brig_doctor_row *row, const char *format, ...) PRINTF_LIKE(2, 3);

/* doctor_host.c */
void doctor_host_read(struct doctor_host *host);
bool doctor_host_is_at_least(const struct doctor_host *host, unsigned major, unsigned minor);
long doctor_number(const char *path); /* Returns the number in a sysctl, or -1 if there is none. */
/* doctor_kernel.c */
void find_kernel(const struct doctor *d, struct brig_doctor_row *row);
void find_pidfd(const struct doctor *d, struct brig_doctor_row *row);
void find_seccomp(const struct doctor *d, struct brig_doctor_row *row);
void find_filter_room(const struct doctor *d, struct brig_doctor_row *row);
void find_disks(const struct doctor *d, struct brig_doctor_row *row);
void doctor_filter_limit(uint64_t *ret_limit, uint64_t *ret_bytes); /* A limit of 0 means that it cannot be read. */
void find_landlock(const struct doctor *d, struct brig_doctor_row *row);
void find_overlayfs(const struct doctor *d, struct brig_doctor_row *row);
/* doctor_user.c */
void find_user_ns(const struct doctor *d, struct brig_doctor_row *row);
void find_full_proc(const struct doctor *d, struct brig_doctor_row *row);
void find_subids(const struct doctor *d, struct brig_doctor_row *row);
/*
 * Does mountinfo have a procfs with nothing over it? ret_mask gets what lies over the last one that is covered, if it
 * fits.
 */
bool doctor_proc_is_full(const char *mountinfo, char *ret_mask, size_t size);
/* doctor_cgroup.c */
void doctor_cgroup_read(struct doctor_cgroup *cgroup);
void find_cgroups(const struct doctor *d, struct brig_doctor_row *row);
void find_delegation(const struct doctor *d, struct brig_doctor_row *row);
/* doctor_places.c */
void find_images(const struct doctor *d, struct brig_doctor_row *row);
void find_dirs(const struct doctor *d, struct brig_doctor_row *row);
void find_helpers(const struct doctor *d, struct brig_doctor_row *row);
void find_core_dumps(const struct doctor *d, struct brig_doctor_row *row);
/* doctor_rows.c */
void doctor_features(struct doctor *d); /* Called after the probe. */
void doctor_rows(const struct doctor *d, struct brig_doctor *ret);
/* Reads the soft limit on a line of /proc/PID/limits; UINT64_MAX is unlimited. Returns -ENOENT if it is not there. */
int doctor_limit_inside(const char *text, const char *name, uint64_t *ret) MUST_CHECK;

#endif
