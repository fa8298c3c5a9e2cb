/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_mount.c: mounts the one bounded file system that a sandbox may write to. All writable places are directories of
 * it, so that `disk` and `inodes` are one sum. An ext4 image (root) does not count as memory and fills with ENOSPC. A
 * tmpfs counts as memory, so its size is at most half of the memory limit (host/limits.c).
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>

#include "jail/image_shape.h"
#include "jail/plan.h"
#include "jail/sys.h"

static const struct {
    const char *name, *place;
    mode_t mode;
    bool passing; /* What is in it belongs to running programs, and is not kept with a disk. */
} places[] = {
    {"workspace", "workspace", 0755, false}, {"home", "home/user", 0755, false}, {"tmp", "tmp", 01777, false},
    {"vartmp", "var/tmp", 01777, false},     {"run", "run", 0755, true},         {"shm", "dev/shm", 01777, true},
};

static bool is_directory(int dir_fd, const char *name)
{
    struct stat st;

    return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

int enter_store_dir(struct enter *e, const char *path, mode_t mode)
{
    return e->plan->disk_kept && is_directory(AT_FDCWD, path) ? 0 : SYS(mkdirat(AT_FDCWD, path, mode));
}

bool store_passes(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(places); i++)
        if (strcmp(places[i].name, name) == 0)
            return places[i].passing;
    return strcmp(name, STORE_LOWER) == 0;
}

int store_take_rest(int store_fd, uint64_t blocks)
{
    AUTO_FD int fd = SYS(openat(store_fd, "rest", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));

    if (fd < 0)
        return -1;
    return blocks > 0 ? SYS(fallocate(fd, 0, 0, (off_t)(blocks * IMAGE_BLOCK))) : 0;
}

static int mount_store(struct enter *e)
{
    char size[32], inodes[32];
    struct mount_option memory[] = {{"mode", "755"}, {"size", size}, {"nr_inodes", inodes}};
    /* nobarrier: it dies with the sandbox, so a flush of the host's disk on unmount would be for nothing */
    struct mount_option image[] = {{"source", e->plan->store_device}, {"noinit_itable", NULL}, {"nobarrier", NULL}};
    bool loose = plan_off(e->plan, BRIG_LAYER_DISK);

    if (e->plan->store == STORE_IMAGE)
        return mount_make("ext4", image, ARRAY_SIZE(image), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
    snprintf(size, sizeof size, "%llu", loose ? 0ULL : (unsigned long long)e->plan->limits.disk);
    snprintf(inodes, sizeof inodes, "%llu",
             plan_off(e->plan, BRIG_LAYER_INODES) ? 0ULL : (unsigned long long)e->plan->limits.inodes);
    return mount_make("tmpfs", memory, ARRAY_SIZE(memory), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

/*
 * A writable root that is a copy has what the last set-up made there. The device nodes are made again; and where we
 * mount something there must be a directory, whatever programs have put in its place.
 */
static int renew_root(struct enter *e)
{
    static const char *const mounted_on[] = {"dev", "proc", "run", "tmp", "var", "home", "workspace"};

    for (size_t i = 0; i < ARRAY_SIZE(mounted_on); i++) {
        char path[32];
        struct stat st;
        snprintf(path, sizeof path, "upper/root/%s", mounted_on[i]);
        if (fstatat(e->store_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (!S_ISDIR(st.st_mode))
            TRY(e, mounted_on[i], SYS(unlinkat(e->store_fd, path, 0)));
        else if (i == 0) {
            TRY(e, "dev", store_clear(e->store_fd, path));
            TRY(e, "dev", SYS(unlinkat(e->store_fd, path, AT_REMOVEDIR)));
        }
    }
    return 0;
}

int enter_store(struct enter *e)
{
    const struct jail_plan *p = e->plan;

    e->store_fd = mount_store(e);
    TRY(e, p->store == STORE_IMAGE ? "ext4 image" : "tmpfs", e->store_fd);
    if (p->store == STORE_IMAGE)
        TRY(e, "ids of the image", p->disk ? owner_map_disk(p, e->store_fd) : owner_map(p, e->store_fd));
    TRY(e, "/s", mount_attach(e->store_fd, AT_FDCWD, "/s"));
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        bool open = p->any_user && strcmp(places[i].name, "workspace") == 0;
        if (p->disk_kept && is_directory(e->store_fd, places[i].name)) {
            if (places[i].passing)
                TRY(e, places[i].name, store_clear(e->store_fd, places[i].name));
            continue;
        }
        TRY(e, places[i].name, SYS(mkdirat(e->store_fd, places[i].name, open ? 01777 : places[i].mode)));
        uid_t owner = strcmp(places[i].name, "home") == 0 ? p->outer_user : plan_owner(p);
        TRY(e, places[i].name, SYS(fchownat(e->store_fd, places[i].name, owner, owner, AT_SYMLINK_NOFOLLOW)));
    }
    bool overlays = false;
    for (unsigned i = 0; i < p->n_binds; i++)
        overlays = overlays || p->binds[i].overlay;
    if (p->writable_root || overlays) {
        TRY(e, "upper", enter_store_dir(e, "/s/upper", 0755));
        TRY(e, "work", enter_store_dir(e, "/s/work", 0700));
    }
    if (overlays)
        TRY(e, STORE_LOWER, enter_store_dir(e, "/s/" STORE_LOWER, 0700));
    return p->disk_kept ? renew_root(e) : 0;
}

/*
 * An image has room for all that the set-up may put there. What the set-up did not need is given to a file that no
 * program sees, so that exactly the limit is left for data.
 */
int enter_store_size(struct enter *e)
{
    const struct jail_plan *p = e->plan;
    uint64_t want = image_blocks(p->limits.disk);
    struct statfs fs;

    if (p->store != STORE_IMAGE || p->disk_kept) /* a copy has it already */
        return 0;
    TRY(e, "size", SYS(fstatfs(e->store_fd, &fs)));
    if ((uint64_t)fs.f_bavail < want) {
        e->what = "size: the image is too small";
        return -ENOSPC;
    }
    TRY(e, "rest", store_take_rest(e->store_fd, (uint64_t)fs.f_bavail - want));
    return 0;
}

int enter_store_places(struct enter *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        /* What is written to /tmp or /run belongs to the layer that comes of the upper, as in other builders. */
        if (e->plan->raw_upper && strcmp(places[i].name, "shm") != 0)
            continue;
        AUTO_FD int fd = SYS(open_tree(e->store_fd, places[i].name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
        TRY(e, places[i].name, fd);
        TRY(e, places[i].place, mount_attach(fd, e->root_fd, places[i].place));
    }
    return 0; /* store_fd goes to the spawner, which measures it */
}
