/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trust.c: gives one sandbox a CA bundle. The text is copied into a file of a small file system of ours. A helper
 * (inside.c) goes into the sandbox's mount namespace and mounts this file over the bundle there. The file keeps its
 * name while the sandbox lives: some programs take a file without a name for a deleted one.
 *
 * One file system has the bundles of all sandboxes, because removing a file system costs more than all the rest. It is
 * unbounded on purpose: then statfs() says nothing, and no sandbox learns about another. TRUST_MAX bounds the content
 * for each sandbox; it is deleted with its name and the sandbox's mount namespace.
 */
#include "host/trust.h"

#include <stdio.h>
#include <sys/sendfile.h>

#include "base/err.h"
#include "host/inside.h"
#include "jail/plan.h"
#include "jail/sys.h"

#define ATTRIBUTES (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)
#define SHELF "/trust" /* in the spawner's tree */
#define SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW)

int trust_check(int fd, struct brig_err *err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0 || st.st_size < 1 || st.st_size > TRUST_MAX)
        return err_set(err, BRIG_E_HOST, EPROTO, "CA bundle of the run");
    return 0;
}

/* The file system of all bundles; made when first needed. */
static int shelf(void)
{
    static const struct mount_option options[] = {{"mode", "700"}, {"size", "0"}, {"nr_inodes", "0"}};
    static bool there;

    if (!there) {
        AUTO_FD int fd =
            mount_make("tmpfs", options, ARRAY_SIZE(options), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
        if (fd < 0 || mount_attach(fd, AT_FDCWD, SHELF) < 0)
            return -1;
        there = true;
    }
    return SYS(open(SHELF, O_PATH | O_DIRECTORY | O_CLOEXEC));
}

static int copy(int dir, const char *name, int from, uid_t owner)
{
    AUTO_FD int to = SYS(openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444));
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
static int make(int dir, const char *name, int from, uid_t owner)
{
    if (copy(dir, name, from, owner) < 0)
        return -1;
    AUTO_FD int tree = SYS(open_tree(dir, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
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

/* first: tree itself; else a copy of it, now that it is attached. 0 also when it is there already, through a link;
 * -ENODATA: there is no file. */
static int attach_at(int tree, const char *path, bool first)
{
    AUTO_FD int place = SYS(sys_openat2(AT_FDCWD, path, O_PATH, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS));
    AUTO_FD int again = -1;
    struct stat there, ours;

    if (place < 0 || fstat(place, &there) < 0 || !S_ISREG(there.st_mode))
        return -ENODATA;
    if (fstat(tree, &ours) == 0 && ours.st_dev == there.st_dev && ours.st_ino == there.st_ino)
        return 0;
    /* Not made before it is needed: to let go of a mount that is attached nowhere takes longer than all the rest. */
    if (!first && (again = SYS(open_tree(tree, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC))) < 0)
        return -errno;
    return SYS(move_mount(first ? tree : again, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)) < 0
               ? -errno
               : 0;
}

int trust_put(int tree, struct brig_err *err)
{
    int r = attach_at(tree, TRUST_PLACE, true);

    if (r == -ENODATA)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "%s: the root file system has no such file to put a CA bundle over",
                       TRUST_PLACE);
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(others); i++) {
        r = attach_at(tree, others[i], false);
        r = r == -ENODATA ? 0 : r;
    }
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "CA bundle: attach") : 0;
}

static int attach_inside(void *arg)
{
    const struct job *job = arg;

    if (SYS(setns(job->mnt_fd, CLONE_NEWNS)) < 0)
        return err_host(job->err, "CA bundle: enter the sandbox's tree");
    return trust_put(job->tree, job->err);
}

int trust_make(const char *name, int fd, uid_t owner, struct brig_err *err)
{
    AUTO_FD int dir = shelf();
    int tree = dir < 0 ? -1 : make(dir, name, fd, owner);

    return tree < 0 ? err_host(err, "CA bundle") : tree;
}

int trust_attach(int mnt_fd, const char *name, int fd, uid_t owner, struct brig_err *err)
{
    AUTO_FD int tree = trust_make(name, fd, owner, err);
    struct job job = {mnt_fd, tree, err};
    int r = tree;

    if (tree < 0)
        return r;
    err->code = BRIG_E_NONE;
    if ((r = inside_run(attach_inside, &job)) < 0 && err->code == BRIG_E_NONE)
        (void)err_set(err, BRIG_E_HOST, -r, "CA bundle: helper");
    return r;
}

void trust_forget(const char *name)
{
    AUTO_FD int dir = open(SHELF, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (dir >= 0)
        (void)!unlinkat(dir, name, 0);
}
