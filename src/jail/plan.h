/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h: what jail_enter() needs to turn a freshly cloned process into pid 1 of a sandbox.
 *
 * The spawner fills a plan before the clone; the child only reads it. jail_enter() allocates nothing, logs nothing and
 * returns only on failure (with the failing stage reported on setup_fd), so it can be called from any process that
 * forked, not only from the spawner.
 */
#ifndef BRIG_JAIL_PLAN_H
#define BRIG_JAIL_PLAN_H

#include <brig.h>
#include <sys/types.h>

#include "codec/wire/guest_msg.h"

/* The descriptors that brig-init finds when it starts are INIT_FD_* below. */
/* The place where programs look for the CA bundle of the system. A sandbox may get another one there (host/trust.h). */
#define TRUST_PLACE "/etc/ssl/certs/ca-certificates.crt"

#define INIT_FD_CONTROL 3
#define INIT_FD_PROBE 4
#define INIT_FD_EXEC 5
/*
 * With GUEST_START_ADOPT: a program was forked into the sandbox beforehand. It has the pid INIT_ADOPT_PID there and is
 * a child of pid 1, or becomes one. Its stdout, stderr and channel (its descriptor 3) are open here: the reading ends
 * of the two pipes, and brig-init's end of the AF_UNIX stream. brig-init makes them non-blocking and close-on-exec,
 * treats the program as process number 1 of the service (running, flags CHANNEL and HOLD, no leaf), reaps it, and kills
 * whatever it left behind when it has ended.
 */
#define INIT_FD_ADOPT_OUT 6
#define INIT_FD_ADOPT_ERR 7
#define INIT_FD_ADOPT_CHANNEL 8
#define INIT_ADOPT_PID 2
/* That program has its own ends at these numbers until it moves them to where they belong. */
#define ADOPTED_FD_OUT 9
#define ADOPTED_FD_ERR 10
#define ADOPTED_FD_CHANNEL 11
/* The spawner keeps its own descriptors at or above this, so that the numbers above are free in the child. */
#define SPAWNER_FD_MIN 10

/* Template layers (layer_mount.c): the places of the store and of brig-layer in the spawner's tree (host_tree.c). */
#define LAYERS_PLACE "/layers"
#define LAYER_TOOL_PLACE "/layer-tool"
#define STORE_LOWER "lower"    /* in the store: where directories of the host are attached, below overlays of binds */
#define RAW_UPPER "upper/root" /* in the store: what was written to a root of layers */
#define LAYER_VIEW "/layer"    /* The place inside where a new layer is made. */
#define LAYER_NEW_DATA "d"     /* The upper directory of that view, in the directory of the new layer. */
#define LAYER_NEW_WORK "w"     /* Its work directory. */
#define LAYERS_MAX 128u        /* in one sandbox */

#define PLAN_PREPARED 8 /* A network namespace, and a `tasks` file per v1 hierarchy. */
#define PLAN_LOWER_DIRS 8

/* The ids inside the sandbox's user namespace. */
#define INSIDE_ROOT 0u /* pid 1, where two ids exist */
#define INSIDE_USER 1000u
#define INSIDE_RANGE 65536u

enum store_kind { STORE_MEMORY, STORE_IMAGE };

struct plan_bind {
    /* A detached mount of the source, made in the host's mount namespace; -1: the root's own files at the target. */
    int mount_fd;
    const char *target; /* absolute, inside */
    bool is_dir, read_only;
    bool overlay; /* It is the lower layer of an overlay whose upper lies in the store. */
};

struct plan_volume {
    const char *device; /* The block device node in the spawner's root. */
    const char *target; /* absolute, inside */
    bool read_only;
};

struct plan_tmpfs {
    const char *path;
    uint64_t size;
};

struct jail_plan {
    /* channels */
    int setup_fd;      /* A SOCK_SEQPACKET to the spawner: struct setup_msg, until brig-init runs. */
    int control_fd;    /* A SOCK_STREAM to the spawner: frames, once brig-init runs. */
    int init_fd;       /* brig-init, as a sealed memfd or a root-owned file. */
    int probe_fd;      /* A directory on a mount that is attached nowhere. Only Landlock forbids to open it. */
    bool init_is_file; /* It is not a memfd, so Landlock must allow to execute it. */
    bool shared_fds;   /* The descriptor table is the spawner's, so the first step is to get one of our own. */
    int highest_fd;    /* No descriptor above this one is needed. */

    /* identity */
    uid_t outer_root, outer_user; /* The ids of pid 1 and of the program in the spawner's user namespace. */
    gid_t outer_root_gid, outer_user_gid;
    bool two_ids;
    /*
     * uid 0 of the sandbox may be a program's, with the capabilities of user.h. What the set-up makes belongs to that
     * id, and pid 1's securebits are those of a plain root.
     */
    bool root_inside;
    bool any_user; /* Programs have ids that are not known here: every one of them may write to /workspace. */
    bool sudo;     /* Its user has sudo: the program is placed (sudo_place.c). */
    bool set_ids;  /* The filter lets programs set set-id bits: root inside, and nothing of the host can be written. */
    /*
     * With root inside, where mounts can be idmapped: a user namespace with the sandbox's map of ids. The template and
     * the store's image have the ids 0 to 65,535 on disk. -1 if files have the sandbox's ids already.
     */
    int ids_fd;
    int disk_ids_fd; /* The same for its volumes and for a store that is a disk; -1 if there are none. */
    const char *hostname;

    /* file systems */
    int host_proc_fd; /* The spawner's full procfs, O_PATH. */
    bool own_sysctl;  /* see enter_proc() */
    bool with_proc;   /* jail_build_tree() mounts /proc too: the caller is in the sandbox's pid namespace. */
    int rootfs_fd;    /* A detached mount of another root (idmapped where possible), or -1 for the template host. */
    /* Template layers: their names, one after the other, lowest first. They are the root, unless a new one is made. */
    const char *layers;
    unsigned n_layers;
    const char *new_layer; /* The name of the layer that is made at LAYER_VIEW, or NULL. */
    const char *workdir;   /* A directory that is made, as root's, where the layers do not have it; or NULL. */
    bool raw_upper; /* The upper of the root is at /.brig/upper, and the places of the store are the root's own. */
    bool raw_top;   /* With new_layer: the topmost of layers is at /.brig/upper. */
    bool writable_root;
    bool trust;         /* A CA bundle will be attached (trust.h), so another root needs a place for it. */
    bool mknod_devices; /* Device nodes can be made; else they are bound from /d of the spawner's root. */
    bool kvm;           /* It has /dev/kvm, and a filter for the one program that uses it. Needs mknod_devices. */
    bool userxattr;     /* Upper layers of overlays need it (no CAP_SYS_ADMIN in the first user namespace). */
    /* The host directories of the template: "usr", or also "bin", "lib", ... */
    const char *lower_dirs[PLAN_LOWER_DIRS];
    const char *root_links[PLAN_LOWER_DIRS][2]; /* The host's symbolic links in the template: {"bin", "usr/bin"} ... */
    enum store_kind store;
    char store_device[32]; /* For an image: the block device node in the spawner's root. */
    bool disk;             /* It can be copied (host/disks.h). */
    bool disk_kept;        /* It is a copy: what the set-up makes there may be there already. */
    const struct plan_volume *volumes;
    unsigned n_volumes;
    const struct plan_bind *binds;
    unsigned n_binds;
    const struct plan_tmpfs *tmpfs;
    unsigned n_tmpfs;

    struct brig_limits limits;
    enum brig_profile profile;
    unsigned landlock_abi; /* 0 if the kernel has none. */
    bool rlimit_memory;    /* There is no memory cgroup, so RLIMIT_AS has to do. */
    bool rlimit_pids;      /* There is no pids cgroup, so RLIMIT_NPROC has to do. */
    int host_mnt_fd;       /* The host's mount namespace (test builds with mount_ns off). */
    uint64_t off;          /* The layers that are switched off; always 0 outside test builds. */
    /* pid 1 leaves its memory to a pid 2 before it executes brig-init, which then adopts pid 2 (zygote.h). */
    bool adopt;
    uint64_t tid_address; /* With adopt: the address where the C library has the number of the thread, or 0. */
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
    SETUP_VOLUMES,
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

/*
 * The child sends MAP_ME (with the store's mount beside it) and FAILED. The spawner sends PREPARED and MAPPED. Beside
 * PREPARED travel a network namespace, if msg.netns is 1, and `tasks` of its v1 cgroups, open for writing.
 */
struct setup_msg {
    uint32_t type;
    uint32_t stage;
    int32_t errnum;
    uint32_t netns;
    char what[48];
};

/* Sent by pid 2 of a plan with adopt once it is what a program is: what it has read back about itself. */
struct setup_checked {
    uint32_t type; /* SETUP_CHECKED */
    uint32_t unused;
    struct reading readings[BRIG_LAYER_MAX];
};

/* Goes the whole way from the clone to execve of brig-init. It does not return. */
_Noreturn void jail_enter(const struct jail_plan *plan);
/* The same for a plan with adopt. It returns only in pid 2, where setup_fd and everything else is still open. */
void jail_enter_adopt(const struct jail_plan *plan);
/*
 * tree.c: only the file systems, for a sandbox whose namespaces somebody else makes: a detached tree (without /proc
 * unless plan.with_proc), with an empty file /.brig/init, an empty directory /.brig/run, and the mount of its store.
 * What fails is reported on setup_fd. Returns 0 or a negative errno.
 */
int jail_build_tree(const struct jail_plan *plan, int *ret_tree, int *ret_store) MUST_CHECK;
/* With root inside, its programs may have ports below 1024. The caller is in the sandbox's network namespace. */
int jail_low_ports(const struct jail_plan *plan) MUST_CHECK;
/* Reports on setup_fd what has failed. */
void jail_report(const struct jail_plan *plan, enum setup_stage stage, const char *what, int errnum);
const char *setup_stage_name(enum setup_stage stage);

/*
 * The stages, in the files that are named after them (mounts.c, dev.c, store_mount.c, landlock.c, privileges.c). Each
 * returns 0 or a negative errno and names what failed in *what.
 */
struct enter {
    const struct jail_plan *plan;
    const char *what;
    int root_fd;                 /* The mount of the new root, attached at /r of the inherited tree until the pivot. */
    int store_fd;                /* The mount of the store, attached at /s. */
    int sysctl_fd;               /* /proc/sys of a full procfs, O_PATH */
    int prepared[PLAN_PREPARED]; /* What the spawner made: first the network namespace if has_netns, then v1 cgroups. */
    size_t n_prepared;
    bool has_netns;
};

/* Notes what was tried, for the failure report. */
#define TRY(enter, text, call)            \
    do {                                  \
        if ((call) < 0) {                 \
            (enter)->what = (text);       \
            return errno ? -errno : -EIO; \
        }                                 \
    } while (0)

int enter_owner(struct enter *e) MUST_CHECK; /* file_owner.c: whom the files of the set-up belong to */
int enter_root(struct enter *e) MUST_CHECK;
int enter_template(struct enter *e) MUST_CHECK;
int enter_layers(struct enter *e) MUST_CHECK;    /* layer_mount.c: a root of template layers */
int enter_new_layer(struct enter *e) MUST_CHECK; /* ... and the view where one is made */
/* Makes, in our own layer, the places for binds and tmpfs that another root does not have. */
int enter_missing(struct enter *e, int other_root) MUST_CHECK;
/* sudo_place.c: lays sudo into our own layer of the root; template_root is what will be below it. */
int enter_sudo(struct enter *e, int template_root) MUST_CHECK;
int enter_etc(struct enter *e) MUST_CHECK;
int enter_proc(struct enter *e) MUST_CHECK;
int enter_proc_compat(struct enter *e, int proc_fd) MUST_CHECK; /* proc_compat.c: masks and generated files */
int enter_dev(struct enter *e) MUST_CHECK;
int enter_store(struct enter *e) MUST_CHECK; /* Mounts it at /s and makes its directories. */
/* Makes a directory of it, at a path below /s, unless it is there already in a store that is a copy. */
int enter_store_dir(struct enter *e, const char *path, mode_t mode) MUST_CHECK;
int enter_store_places(struct enter *e) MUST_CHECK; /* Binds them to the places where programs write. */
int enter_store_size(struct enter *e) MUST_CHECK;   /* Leaves exactly the limit free. */
/* Whether what is in this directory of a store belongs to running programs or to the host, and no copy has it. */
bool store_passes(const char *name);
/* Gives so many blocks to a file that no program sees. */
int store_take_rest(int store_fd, uint64_t blocks) MUST_CHECK;
int store_clear(int store_fd, const char *name) MUST_CHECK; /* store_clear.c: removes what is in this directory */
int enter_binds(struct enter *e) MUST_CHECK;
int enter_volumes(struct enter *e) MUST_CHECK; /* volume_mount.c */
/* mounts.c: makes the place where the root does not have it, and attaches a mount there. */
int enter_attach(struct enter *e, int mount_fd, const char *path, bool is_dir) MUST_CHECK;
int enter_tmpfs(struct enter *e) MUST_CHECK;
int enter_pivot(struct enter *e) MUST_CHECK;
int enter_sysctl(struct enter *e) MUST_CHECK;
int enter_session(struct enter *e) MUST_CHECK;
int enter_rlimits(struct enter *e) MUST_CHECK;
int enter_caps(struct enter *e) MUST_CHECK;
int enter_low_ports(struct enter *e) MUST_CHECK;   /* privileges.c: in the sandbox's network namespace */
int enter_pids_of_all(struct enter *e) MUST_CHECK; /* ... before the user namespace */
int enter_landlock(struct enter *e) MUST_CHECK;

/* file_owner.c: makes the effective capabilities those that are permitted, which a change of ids has taken away. */
int owner_raise_effective(void) MUST_CHECK;
/* Gives a detached mount the sandbox's ids. Without plan.ids_fd it does nothing. */
int owner_map(const struct jail_plan *plan, int mount_fd) MUST_CHECK;
/* The same for a disk. */
int owner_map_disk(const struct jail_plan *plan, int mount_fd) MUST_CHECK;
/* Covers a place of the inherited tree with a copy of itself that has the sandbox's ids. */
int owner_map_place(const struct jail_plan *plan, const char *path) MUST_CHECK;

/* mount_util.c: small pieces of the new mount API, all relative to descriptors. */
struct mount_option {
    const char *key, *value; /* A flag has no value (NULL). */
};
/* Makes a new, detached mount of a file system. attr_flags are MOUNT_ATTR_*. Returns a descriptor, or -1 with errno. */
int mount_make(const char *fstype, const struct mount_option *options, unsigned n_options,
               unsigned attr_flags) MUST_CHECK;
/* Opens the place to mount on (O_PATH). It stays below root_fd and follows no magic links. */
int mount_target(int root_fd, const char *path) MUST_CHECK;
/* Makes every missing component of path below root_fd; the last is a directory or an empty file. */
int mount_make_target(int root_fd, const char *path, bool is_dir) MUST_CHECK;
int mount_attach(int mount_fd, int root_fd, const char *path) MUST_CHECK;
/* Sets MOUNT_ATTR_* and makes the mount private. */
int mount_attributes(int mount_fd, uint64_t set, bool recursive) MUST_CHECK;
/* Where an overlay cannot make its work directory the kernel makes it read-only and says nothing (file_owner.c). */
int mount_is_writable(int mount_fd) MUST_CHECK;

/* The id, in the spawner's user namespace, that places where programs write belong to. The gid is the same number. */
static inline uid_t plan_owner(const struct jail_plan *plan)
{
    return plan->root_inside ? plan->outer_root : plan->outer_user;
}

/* Whether what the set-up makes belongs to the sandbox's root (file_owner.c). */
static inline bool plan_owns(const struct jail_plan *plan)
{
    return plan->root_inside || plan->n_layers > 0 || plan->disk;
}

/* Whether the root is not the template host. */
static inline bool plan_other_root(const struct jail_plan *plan)
{
    return plan->rootfs_fd >= 0 || (plan->n_layers > 0 && !plan->new_layer);
}

static inline bool plan_off(const struct jail_plan *plan, enum brig_layer layer)
{
    return (plan->off & BRIG_LAYER_BIT(layer)) != 0;
}

#endif
