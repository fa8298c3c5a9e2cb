/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h: what the spawner knows and holds of the machine: its ids, cgroups, directories and mount tree, and the work
 * that needs the host's tree after the spawner has left it.
 */
#ifndef BRIG_HOST_HOST_H
#define BRIG_HOST_HOST_H

#include <brig.h>
#include <sys/types.h>

#include "host/cgroup.h"
#include "host/disks.h"
#include "host/ids.h"
#include "host/layers.h"
#include "host/netns.h"
#include "host/owner.h"
#include "host/roots.h"
#include "jail/plan.h"

/* ---- the files of a zygote (host_zygote.c) --------------------------------------------------------- */

#define ZYGOTE_PYTHON "/usr/bin/python3"

/*
 * These are opened at the start, while the host's tree is visible. If one of them is missing there are no zygotes,
 * which is no error.
 */
struct zygote_files {
    int library_fd, runtime_fd, boot_fd; /* -1 if there are no zygotes here. */
    char missing[96];                    /* why */
};
#define ZYGOTE_FILES_INIT ((struct zygote_files){.library_fd = -1, .runtime_fd = -1, .boot_fd = -1})

void zygote_files_open(struct zygote_files *files, const char *helper_dir);
void zygote_files_done(struct zygote_files *files);

/* ---- the host ------------------------------------------------------------------------------------ */

struct host {
    bool privileged; /* It has CAP_SYS_ADMIN in the first user namespace. */
    enum ids_kind ids_kind;
    unsigned sub_ids;
    int mnt_fd;   /* The mount namespace with the host's tree, for sources of binds. */
    int root_fd;  /* Our root in it. */
    int proc_fd;  /* one full procfs */
    int probe_fd; /* see struct jail_plan */
    int init_fd;
    bool init_is_file;
    struct zygote_files zygote;
    struct layer_store layers; /* Attached at LAYERS_PLACE, if there is one. */
    struct disk_store disks;
    int run_fd, cache_fd, state_fd; /* -1 if there is none. */
    int etc_fd;                     /* The generated /etc, locked while we live. */
    int loop_control_fd;            /* -1 means that there are no image stores. */
    bool mknod_devices;
    bool kvm; /* A sandbox may have /dev/kvm. */
    bool settled;
    struct roots bind_roots, rootfs_roots; /* For long-lived sandboxes. */
    unsigned landlock_abi;
    uint32_t ns[NS_MAX];
    struct cg_host cg;
    struct owner owner; /* The owner of the cgroups. */
    int ids_fd;         /* The lock file of the ids, until ids owns it. */
    enum ids_scope ids_scope;
    struct ids ids;
    char lower_dirs[PLAN_LOWER_DIRS][16];
    char root_links[PLAN_LOWER_DIRS][2][32];
    unsigned n_lower_dirs, n_root_links;
};

#define HOST_INIT                                          \
    ((struct host){.mnt_fd = -1,                           \
                   .root_fd = -1,                          \
                   .proc_fd = -1,                          \
                   .probe_fd = -1,                         \
                   .init_fd = -1,                          \
                   .run_fd = -1,                           \
                   .cache_fd = -1,                         \
                   .state_fd = -1,                         \
                   .etc_fd = -1,                           \
                   .loop_control_fd = -1,                  \
                   .zygote = ZYGOTE_FILES_INIT,            \
                   .layers = LAYER_STORE_INIT,             \
                   .disks = DISK_STORE_INIT,               \
                   .ids_fd = -1,                           \
                   .ids = {.lock_fd = -1},                 \
                   .owner = {.dir_fd = -1, .lock_fd = -1}, \
                   .cg = {.v2_fd = -1, .v2_self_fd = -1, .v2_leaf_fd = -1}})

/* A runner has no disks and no zygotes, and reads template layers beside the spawner, which makes them. */
enum host_role { HOST_SPAWNER, HOST_RUNNER };
/* netns makes a network namespace beside the rest. */
int host_init(struct host *host, enum host_role role, struct netns_maker *netns, pid_t engine_pid,
              const char *helper_dir, struct brig_err *err) MUST_CHECK;
void host_done(struct host *host);
/*
 * Opens a file of the helper directory, or a sealed copy of it if somebody other than root could change it (then
 * *ret_is_file is false). Returns a descriptor or a negative errno.
 */
int host_open_helper(const char *helper_dir, const char *name, bool *ret_is_file, struct brig_err *err) MUST_CHECK;
/* The id, in our user namespace, that has the place of root in template layers. The gid is the same number. */
uid_t host_layer_owner(const struct host *host);
/* host_tree.c: builds the minimal mount namespace, the last step of host_init(). */
int host_build_tree(struct host *host, struct brig_err *err) MUST_CHECK;
/* Once the first sandbox is cloned: prepares what is needed only from then on, and lets go of the host's tree. */
int host_settle(struct host *host, struct brig_err *err) MUST_CHECK;
/* host_ids.c: enters the outer user namespace of a plain user, with subordinate ids where there are any. */
int host_enter_user_ns(struct host *host, struct brig_err *err) MUST_CHECK;

/* ---- things that need the host's tree (host_helper.c) --------------------------------------------- */

struct bind_source {
    int mount_fd;
    bool is_dir;
    uid_t uid;
    gid_t gid;
};

/*
 * Clones the source of a bind into a detached mount, in a short-lived child that joined the host's tree. below is NULL,
 * or the start of path that must not be left on the way, neither by symbolic links nor otherwise.
 */
int helper_clone_source(const struct host *host, const char *path, const char *below, struct bind_source *ret,
                        struct brig_err *err) MUST_CHECK;
/* Does the same for a root directory. */
int helper_clone_rootfs(const struct host *host, const char *path, const char *below, int *ret_mount_fd,
                        struct brig_err *err) MUST_CHECK;
/* Makes an ext4 file system in the file, which is empty and has its size. It runs mkfs.ext4 in the host's tree. */
struct image_shape;
int helper_mkfs(const struct host *host, int image_fd, const struct image_shape *shape,
                struct brig_err *err) MUST_CHECK;
/* Makes an XFS with shared blocks in the file. BRIG_E_UNSUPPORTED if this host has no mkfs.xfs. */
int helper_mkfs_xfs(const struct host *host, int file_fd, struct brig_err *err) MUST_CHECK;
/* Makes a user namespace with these maps, for idmapped mounts. */
int helper_idmap_ns(const struct host *host, const char *uid_map, const char *gid_map, int *ret_fd,
                    struct brig_err *err) MUST_CHECK;
/* Makes the mount appear with other ids. Returns -EOPNOTSUPP if the file system cannot do it. */
int helper_idmap(int mount_fd, int userns_fd) MUST_CHECK;

/* ---- stores (image.c) ----------------------------------------------------------------------------- */

struct image {
    int loop_fd;     /* It keeps the device until the sandbox has mounted it; then autoclear frees the device. */
    char node[32];   /* The block device node in the spawner's tree. */
    char device[16]; /* "7:3" */
};
#define IMAGE_INIT ((struct image){.loop_fd = -1})

bool image_possible(const struct host *host);
int image_take(const struct host *host, uint64_t disk, uint64_t inodes, struct image *ret,
               struct brig_err *err) MUST_CHECK;
/* Attaches a file of ours to a loop device. */
int image_attach(const struct host *host, int file, bool read_only, struct image *ret, struct brig_err *err) MUST_CHECK;
void image_release(struct image *image);

#endif
