/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h: everything jail_enter() needs to turn a freshly cloned process into pid 1 of a sandbox.
 *
 * The spawner fills a plan before the clone; the child only reads it. jail_enter() allocates nothing, logs
 * nothing and returns only on failure (with the failing stage reported on setup_fd), so it can be called
 * from any process that forked, not only from the spawner.
 */
#ifndef BRIG_JAIL_PLAN_H
#define BRIG_JAIL_PLAN_H

#include <brig.h>
#include <sys/types.h>

#include "codec/wire/guest_msg.h"

/* Descriptors brig-init finds when it starts. */
/* Where programs look for the CA bundle of the system; a sandbox may get another one there (host/trust.h). */
#define TRUST_PLACE "/etc/ssl/certs/ca-certificates.crt"

#define INIT_FD_CONTROL 3
#define INIT_FD_PROBE 4
#define INIT_FD_EXEC 5
/*
 * With GUEST_START_ADOPT: a program that was forked into the sandbox beforehand (pid INIT_ADOPT_PID there, a child of
 * pid 1 or one that becomes its child), whose stdout, stderr and channel (its descriptor 3) are open here: the reading
 * ends of the two pipes and our end of the AF_UNIX stream. brig-init makes them non-blocking and CLOEXEC, has the
 * program as process number 1 of the service (running, flags CHANNEL and HOLD, no leaf), reaps it, and kills whatever
 * it left behind when it has ended.
 */
#define INIT_FD_ADOPT_OUT 6
#define INIT_FD_ADOPT_ERR 7
#define INIT_FD_ADOPT_CHANNEL 8
#define INIT_ADOPT_PID 2
/* That program has its own ends at these until it puts them where they belong. */
#define ADOPTED_FD_OUT 9
#define ADOPTED_FD_ERR 10
#define ADOPTED_FD_CHANNEL 11
/* The spawner keeps its own descriptors at or above this, so that the numbers above are free in the child. */
#define SPAWNER_FD_MIN 10

#define PLAN_PREPARED 8 /* a network namespace and a `tasks` file per v1 hierarchy */
#define PLAN_LOWER_DIRS 8

/* Ids inside the sandbox's user namespace. */
#define INSIDE_ROOT 0u /* pid 1, where two ids exist */
#define INSIDE_USER 1000u
#define INSIDE_RANGE 65536u

enum store_kind { STORE_MEMORY, STORE_IMAGE };

struct plan_bind {
    int mount_fd;       /* a detached mount of the source, made in the host's mount namespace */
    const char *target; /* absolute, inside */
    bool is_dir, read_only;
    bool overlay; /* the lower layer of an overlay whose upper lies in the store */
};

struct plan_tmpfs {
    const char *path;
    uint64_t size;
};

struct jail_plan {
    /* channels */
    int setup_fd;      /* SOCK_SEQPACKET to the spawner: struct setup_msg, until brig-init runs */
    int control_fd;    /* SOCK_STREAM to the spawner: frames, once brig-init runs */
    int init_fd;       /* brig-init: sealed memfd or root-owned file */
    int probe_fd;      /* a directory on a mount that is attached nowhere: only Landlock forbids to open it */
    bool init_is_file; /* not a memfd: Landlock must be told that it may be executed */
    bool shared_fds;   /* the descriptor table is the spawner's: the first thing is to get one of our own */
    int highest_fd;    /* nothing above it is needed */

    /* identity */
    uid_t outer_root, outer_user; /* ids of pid 1 and of the program in the spawner's user namespace */
    gid_t outer_root_gid, outer_user_gid;
    bool two_ids;
    const char *hostname;

    /* file systems */
    int host_proc_fd; /* the spawner's full procfs, O_PATH */
    bool own_sysctl;  /* see enter_proc() */
    int rootfs_fd;    /* a detached mount of another root (idmapped where possible), or -1: template host */
    bool writable_root;
    bool trust;         /* a CA bundle will be attached (trust.h): another root needs a place for it */
    bool mknod_devices; /* device nodes can be made; else they are bound from /d of the spawner's root */
    bool userxattr;     /* overlay uppers need it (no CAP_SYS_ADMIN in the first user namespace) */
    const char *lower_dirs[PLAN_LOWER_DIRS];    /* host directories of the template: "usr", or also "bin", "lib", ... */
    const char *root_links[PLAN_LOWER_DIRS][2]; /* host symlinks of the template: {"bin", "usr/bin"} ... */
    enum store_kind store;
    char store_device[32]; /* image: block device node in the spawner's root */
    const struct plan_bind *binds;
    unsigned n_binds;
    const struct plan_tmpfs *tmpfs;
    unsigned n_tmpfs;

    struct brig_limits limits;
    enum brig_profile profile;
    unsigned landlock_abi; /* 0: the kernel has none */
    bool rlimit_memory;    /* no memory cgroup: RLIMIT_AS is what remains */
    bool rlimit_pids;      /* no pids cgroup: RLIMIT_NPROC is what remains */
    int host_mnt_fd;       /* the host's mount namespace (test builds, mount_ns off) */
    uint64_t off;          /* layers switched off: always 0 outside test builds */
    bool adopt; /* pid 1 leaves its memory to a pid 2 before it executes brig-init, which then adopts it (zygote.h) */
    uint64_t tid_address; /* with adopt: where the C library has the number of the thread, or 0 */
};

enum setup_stage {
    SETUP_FDS,
    SETUP_OOM_SCORE,
    SETUP_HOST_NAME,
    SETUP_ROOT,
    SETUP_TEMPLATE,
    SETUP_ETC,
    SETUP_PROC,
    SETUP_DEV,
    SETUP_STORE,
    SETUP_BINDS,
    SETUP_TMPFS,
    SETUP_PIVOT,
    SETUP_TAKE_PREPARED,
    SETUP_NETWORK,
    SETUP_CGROUP,
    SETUP_CGROUP_NS,
    SETUP_USER_NS,
    SETUP_IDS,
    SETUP_SYSCTL,
    SETUP_SESSION,
    SETUP_RLIMITS,
    SETUP_CAPS,
    SETUP_NO_NEW_PRIVS,
    SETUP_LANDLOCK,
    SETUP_SECCOMP,
    SETUP_FORK,
    SETUP_WORKDIR,
    SETUP_CHECK,
    SETUP_EXEC,
    SETUP_STAGE_MAX
};

enum setup_type { SETUP_MAP_ME = 1, SETUP_MAPPED, SETUP_FAILED, SETUP_PREPARED, SETUP_CHECKED };

/* Child to spawner: MAP_ME (beside it the store's mount), FAILED. Spawner to child: PREPARED (beside it a network
 * namespace if msg.netns is 1, and `tasks` of its v1 cgroups, open for writing), MAPPED. */
struct setup_msg {
    uint32_t type;
    uint32_t stage;
    int32_t errnum;
    uint32_t netns;
    char what[48];
};

/* Of pid 2 of a plan with adopt, once it is what a program is: what it has read back of itself. */
struct setup_checked {
    uint32_t type; /* SETUP_CHECKED */
    uint32_t unused;
    struct reading readings[BRIG_LAYER_MAX];
};

/* The whole path from the clone to execve of brig-init. Does not return. */
_Noreturn void jail_enter(const struct jail_plan *plan);
/* The same for a plan with adopt: returns in pid 2, and there only. setup_fd and everything else is still open. */
void jail_enter_adopt(const struct jail_plan *plan);
/* Says on setup_fd what has failed. */
void jail_report(const struct jail_plan *plan, enum setup_stage stage, const char *what, int errnum);
const char *setup_stage_name(enum setup_stage stage);

/*
 * Stages, in the files named after them; each returns 0 or -errno and names what failed in *what.
 * mounts.c, dev.c, store_mount.c, landlock.c, privileges.c.
 */
struct enter {
    const struct jail_plan *plan;
    const char *what;
    int root_fd;                 /* the new root's mount, attached at /r of the inherited tree until the pivot */
    int store_fd;                /* the store's mount, attached at /s */
    int sysctl_fd;               /* /proc/sys of a full procfs, O_PATH */
    int prepared[PLAN_PREPARED]; /* what the spawner made: first the network namespace, if has_netns, then v1 cgroups */
    size_t n_prepared;
    bool has_netns;
};

/* Remembers what was tried, for the failure report. */
#define TRY(enter, text, call)            \
    do {                                  \
        if ((call) < 0) {                 \
            (enter)->what = (text);       \
            return errno ? -errno : -EIO; \
        }                                 \
    } while (0)

int enter_root(struct enter *e) MUST_CHECK;
int enter_template(struct enter *e) MUST_CHECK;
int enter_etc(struct enter *e) MUST_CHECK;
int enter_proc(struct enter *e) MUST_CHECK;
int enter_proc_compat(struct enter *e, int proc_fd) MUST_CHECK; /* proc_compat.c: masks and generated files */
int enter_dev(struct enter *e) MUST_CHECK;
int enter_store(struct enter *e) MUST_CHECK;        /* mounts it at /s and makes its directories */
int enter_store_places(struct enter *e) MUST_CHECK; /* binds them to where programs write */
int enter_store_size(struct enter *e) MUST_CHECK;   /* leaves the limit, and no more */
int enter_binds(struct enter *e) MUST_CHECK;
int enter_tmpfs(struct enter *e) MUST_CHECK;
int enter_pivot(struct enter *e) MUST_CHECK;
int enter_sysctl(struct enter *e) MUST_CHECK;
int enter_session(struct enter *e) MUST_CHECK;
int enter_rlimits(struct enter *e) MUST_CHECK;
int enter_caps(struct enter *e) MUST_CHECK;
uint64_t enter_kept_caps(void); /* what pid 1 keeps, also in its bounding set */
int enter_landlock(struct enter *e) MUST_CHECK;

/* mount_util.c: small pieces of the new mount API, all relative to descriptors. */
struct mount_option {
    const char *key, *value; /* value NULL: a flag */
};
/* A new, detached mount of a file system; attr_flags MOUNT_ATTR_*. Returns an fd or -1 with errno. */
int mount_make(const char *fstype, const struct mount_option *options, unsigned n_options,
               unsigned attr_flags) MUST_CHECK;
/* Opens the place to mount on, staying below root_fd and following no magic links; O_PATH. */
int mount_target(int root_fd, const char *path) MUST_CHECK;
/* Makes every missing component of path below root_fd; the last is a directory or an empty file. */
int mount_make_target(int root_fd, const char *path, bool is_dir) MUST_CHECK;
int mount_attach(int mount_fd, int root_fd, const char *path) MUST_CHECK;
/* Sets MOUNT_ATTR_*, and makes it private. */
int mount_attributes(int mount_fd, uint64_t set, bool recursive) MUST_CHECK;

static inline bool plan_off(const struct jail_plan *plan, enum brig_layer layer)
{
    return (plan->off & BRIG_LAYER_BIT(layer)) != 0;
}

#endif
