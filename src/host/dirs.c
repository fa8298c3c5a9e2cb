/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dirs.c: finds and makes the engine's directories. Their content is trusted later (id locks, store images, the
 * generated /etc). So a directory that somebody else could write to is refused and not repaired: they may have written
 * to it already.
 */
#include "host/dirs.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "base/dir.h"
#include "base/err.h"
#include "base/str.h"

#define LOCK_NAME ".lock"
#define LOCK_TRIES 200 /* two seconds: the children of a spawner that was killed have yet to close their copies */
#define LOCK_PAUSE_NS 10000000

static const struct place {
    const char *name, *override;
    const char *root_path;
    const char *xdg, *home_path; /* plain user: $xdg/brig, else $HOME/home_path/brig */
    mode_t root_mode;
} places[] = {
    [BRIG_DIR_STATE] = {"state", "BRIG_STATE_DIR", "/var/lib/brig", "XDG_STATE_HOME", ".local/state", 0700},
    [BRIG_DIR_RUN] = {"run", "BRIG_RUN_DIR", "/run/brig", "XDG_RUNTIME_DIR", NULL, 0755},
    [BRIG_DIR_CACHE] = {"cache", "BRIG_CACHE_DIR", "/var/cache/brig", "XDG_CACHE_HOME", ".cache", 0755},
};
_Static_assert(ARRAY_SIZE(places) == BRIG_DIR_MAX, "every directory has a place");

/* The variable's value if it is an absolute path. */
static const char *absolute_env(const char *name)
{
    const char *value = getenv(name);

    return value && value[0] == '/' ? value : NULL;
}

/* The override, without slashes at its end: behind one of those O_NOFOLLOW would follow a symlink. */
static int override_path(const struct place *place, const char *value, char *buf, size_t size, struct brig_err *err)
{
    if (value[0] != '/')
        return err_usage(err, "%s=%s: must be an absolute path", place->override, value);
    if (str_copy(buf, size, value) < 0)
        return err_set(err, BRIG_E_USAGE, ENAMETOOLONG, "%s", place->override);

    size_t len = strlen(buf);
    while (len > 0 && buf[len - 1] == '/')
        buf[--len] = '\0';
    const char *slash = strrchr(buf, '/');
    if (!slash || str_eq(slash, "/.") || str_eq(slash, "/.."))
        return err_usage(err, "%s=%s: must end in the name of a directory", place->override, value);
    return 0;
}

/* Whether $XDG_RUNTIME_DIR is really the caller's. */
static bool is_own_dir(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

int dirs_path(enum brig_dir which, char *buf, size_t size, struct brig_err *err)
{
    const struct place *place = &places[which];
    const char *value = getenv(place->override);
    int r;

    if (value && value[0])
        return override_path(place, value, buf, size, err);
    if (geteuid() == 0) {
        r = str_copy(buf, size, place->root_path);
    } else if ((value = absolute_env(place->xdg)) && (which != BRIG_DIR_RUN || is_own_dir(value))) {
        r = str_format(buf, size, "%s/brig", value);
    } else if (which == BRIG_DIR_RUN) {
        char state[PATH_MAX];
        r = dirs_path(BRIG_DIR_STATE, state, sizeof state, err);
        if (r < 0)
            return r;
        r = str_format(buf, size, "%s/run", state);
    } else if ((value = absolute_env("HOME"))) {
        r = str_format(buf, size, "%s/%s/brig", value, place->home_path);
    } else {
        return err_usage(err, "no place for the %s directory: set HOME, %s or %s", place->name, place->xdg,
                         place->override);
    }
    if (r < 0)
        return err_set(err, BRIG_E_USAGE, -r, "%s directory", place->name);
    return 0;
}

/* As mkdir() would answer, without making it. */
static int may_make(const char *path)
{
    const char *slash = strrchr(path, '/');
    char parent[PATH_MAX];

    if (access(path, F_OK) == 0) {
        errno = EEXIST;
        return -1;
    }
    if (str_format(parent, sizeof parent, "%.*s", slash == path ? 1 : (int)(slash - path), path) < 0) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return faccessat(AT_FDCWD, parent, W_OK | X_OK, AT_EACCESS);
}

/*
 * Makes all missing parents of path, or says why they could not be made. Without make, it only asks about the first
 * missing one: its parent must let us write.
 */
static int make_parents(char *path, mode_t mode, bool make, struct brig_err *err)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if ((make ? mkdir(path, mode) : may_make(path)) < 0 && errno != EEXIST) {
            /* A parent on a read-only file system, or in a directory we may not write to, can be there all the same. */
            int why = errno;
            if (access(path, F_OK) < 0)
                return err_set(err, BRIG_E_HOST, why, "mkdir %s", path);
        }
        bool missing = !make && access(path, F_OK) < 0;
        *slash = '/';
        if (missing)
            return 1; /* all below it is made with it */
    }
    return 0;
}

static int check(int fd, const struct place *place, const char *path, struct brig_err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_host(err, "stat %s", path);
    if (st.st_uid != geteuid())
        return err_set(err, BRIG_E_REFUSED, EPERM, "%s directory %s belongs to uid %u, not to the caller (uid %u)",
                       place->name, path, (unsigned)st.st_uid, (unsigned)geteuid());
    if ((st.st_mode & 0022) != 0)
        return err_set(err, BRIG_E_REFUSED, EPERM, "%s directory %s may be written to by others (mode %04o)",
                       place->name, path, (unsigned)(st.st_mode & 07777));
    return 0;
}

static int open_place(const struct place *place, char *path, bool make, int *ret, struct brig_err *err)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    bool is_root = geteuid() == 0, made = false;
    AUTO_FD int fd = open(path, flags);
    int r = 0;

    if (fd < 0 && errno == ENOENT) {
        r = make_parents(path, is_root ? 0755 : 0700, make, err);
        if (r != 0)
            return r < 0 ? r : 0;
        made = (make ? mkdir(path, 0700) : may_make(path)) == 0;
        if (!made && errno != EEXIST)
            return err_host(err, "mkdir %s", path);
        if (made && !make)
            return 0;
        fd = open(path, flags);
    }
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return err_set(err, BRIG_E_REFUSED, ENOTDIR, "%s directory %s (a symlink there is not followed)", place->name,
                       path);
    if (fd < 0)
        return err_host(err, "open %s", path);
    r = check(fd, place, path, err);
    if (r < 0)
        return r;
    /* By descriptor and after the check; mkdir() alone would be at the mercy of the umask. */
    if (made && fchmod(fd, is_root ? place->root_mode : 0700) < 0)
        return err_host(err, "chmod %s", path);
    *ret = take_fd(&fd);
    return 0;
}

int dirs_open(enum brig_dir which, struct brig_err *err)
{
    char path[PATH_MAX];
    int fd = -1, r = dirs_path(which, path, sizeof path, err);

    if (r == 0)
        r = open_place(&places[which], path, true, &fd, err);
    return r < 0 ? r : fd;
}

int dirs_look(enum brig_dir which, int *ret_fd, struct brig_err *err)
{
    char path[PATH_MAX];
    int r = dirs_path(which, path, sizeof path, err);

    *ret_fd = -1;
    return r < 0 ? r : open_place(&places[which], path, false, ret_fd, err);
}

void dirs_remove_content(int dir_fd, unsigned depth)
{
    AUTO_DIR DIR *dir = dir_open(dir_fd, ".");

    for (const struct dirent *entry; (entry = dir_next(dir));) {
        if (unlinkat(dirfd(dir), entry->d_name, 0) == 0 || depth == 0)
            continue;
        AUTO_FD int sub = openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub < 0)
            continue;
        dirs_remove_content(sub, depth - 1);
        unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
    }
}

int dirs_lock(int dir_fd)
{
    struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
    AUTO_FD int fd = openat(dir_fd, LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    int r = fd < 0 ? -1 : flock(fd, LOCK_EX | LOCK_NB);

    for (int i = 0; r < 0 && fd >= 0 && errno == EWOULDBLOCK && i < LOCK_TRIES; i++) {
        nanosleep(&pause, NULL);
        r = flock(fd, LOCK_EX | LOCK_NB);
    }
    return r < 0 ? -1 : take_fd(&fd);
}
