/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trust.c: a CA bundle of one sandbox. Its text is copied into a file of a small file system of ours, unlinked at once and
 * mounted, as a file, over the bundle inside: a helper (inside.c) goes into the sandbox's mount namespace for that.
 *
 * One file system has the bundles of all sandboxes, because to take one apart again costs more than all the rest. It is
 * unbounded on purpose: then statfs() tells nothing, and no sandbox learns of another. What is in it is bounded by TRUST_MAX for each
 * sandbox, and goes with the sandbox's mount namespace.
 */
#include "jail/trust.h"

#include <stdio.h>
#include <sys/sendfile.h>

#include "base/err.h"
#include "jail/inside.h"
#include "jail/plan.h"
#include "jail/sys.h"

#define ATTRIBUTES (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)
#define SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW)

int trust_check(int fd, struct brig_err *err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0 || st.st_size < 1 || st.st_size > TRUST_MAX)
        return err_set(err, BRIG_E_HOST, EPROTO, "CA bundle of the run");
    return 0;
}

/* The file system of all bundles, at /trust of the spawner's tree; made when first needed. */
static int shelf(void)
{
    static const struct mount_option options[] = {{"mode", "700"}, {"size", "0"}, {"nr_inodes", "0"}};
    static bool there;

    if (!there) {
        AUTO_FD int fd = mount_make("tmpfs", options, ARRAY_SIZE(options), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
        if (fd < 0 || mount_attach(fd, AT_FDCWD, "/trust") < 0)
            return -1;
        there = true;
    }
    return SYS(open("/trust", O_PATH | O_DIRECTORY | O_CLOEXEC));
}

static int copy(int dir, int from, uid_t owner)
{
    AUTO_FD int to = SYS(openat(dir, "ca", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444));
    off_t at = 0;
    ssize_t n;

    if (to < 0)
        return -1;
    while ((n = SYS(sendfile(to, from, &at, TRUST_MAX))) > 0)
        ;
    if (n < 0 || SYS(fchown(to, owner, owner)) < 0)
        return -1;
    return 0;
}

/* A detached mount of the new file, or -1 with errno. */
static int make(int from, uid_t owner)
{
    AUTO_FD int dir = shelf();

    if (dir < 0)
        return -1;
    AUTO_FD int tree = -1;
    if (copy(dir, from, owner) == 0)
        tree = SYS(open_tree(dir, "ca", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
    int saved = errno;
    (void)!unlinkat(dir, "ca", 0);
    errno = saved;
    if (tree < 0 || mount_attributes(tree, ATTRIBUTES, false) < 0)
        return -1;
    return take_fd(&tree);
}

struct job {
    int mnt_fd, tree;
    struct brig_err *err;
};

/* Where other distributions keep theirs. */
static const char *const others[] = {
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
};

/* 0 also when it is there already, through a link; -ENOENT: no such file. */
static int attach_at(int tree, const char *path)
{
    AUTO_FD int place = SYS(sys_openat2(AT_FDCWD, path, O_PATH, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS));
    struct stat there, ours;

    if (place < 0 || fstat(place, &there) < 0 || !S_ISREG(there.st_mode))
        return -ENOENT;
    if (fstat(tree, &ours) == 0 && ours.st_dev == there.st_dev && ours.st_ino == there.st_ino)
        return 0;
    return SYS(move_mount(tree, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)) < 0 ? -errno : 0;
}

static int attach_inside(void *arg)
{
    const struct job *job = arg;

    if (SYS(setns(job->mnt_fd, CLONE_NEWNS)) < 0)
        return err_host(job->err, "CA bundle: enter the sandbox's tree");
    int r = attach_at(job->tree, TRUST_PLACE);
    if (r == -ENOENT)
        return err_set(job->err, BRIG_E_UNSUPPORTED, 0, "%s: the root file system has no such file to put a CA bundle over", TRUST_PLACE);
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(others); i++) {
        /* A copy of what is attached now; links between the places were followed already. */
        AUTO_FD int again = SYS(open_tree(job->tree, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
        r = again < 0 ? -errno : attach_at(again, others[i]);
        r = r == -ENOENT ? 0 : r;
    }
    return r < 0 ? err_set(job->err, BRIG_E_HOST, -r, "CA bundle: attach") : 0;
}

int trust_attach(int mnt_fd, int fd, uid_t owner, struct brig_err *err)
{
    AUTO_FD int tree = make(fd, owner);
    struct job job = {mnt_fd, tree, err};

    if (tree < 0)
        return err_host(err, "CA bundle");
    err->code = BRIG_E_NONE;
    int r = inside_run(attach_inside, &job);
    if (r < 0 && err->code == BRIG_E_NONE)
        (void)err_set(err, BRIG_E_HOST, -r, "CA bundle: helper");
    return r;
}
