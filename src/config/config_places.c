/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_places.c: finds the configuration file, and the default place of the socket. The run directory is that of
 * host/dirs.h. It is worked out here a second time because this room stands below `host` (a unit test compares the
 * two).
 *
 * A configuration says who may connect and where data is kept. So a file that was found and not named, for instance in
 * the working directory, must belong to the caller or to root, and no file may be one that everybody can write to.
 */
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/config_keys.h"

/* NULL when unset */
static const char *config_env(char *const *env, const char *name)
{
    size_t len = strlen(name);

    for (; env && *env; env++)
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
            return *env + len + 1;
    return NULL;
}

static const char *absolute_env(char *const *env, const char *name)
{
    const char *value = config_env(env, name);

    return value && value[0] == '/' ? value : NULL;
}

/* As the XDG specification asks: only a directory of the caller's (after `su` it is still the other user's). */
static const char *runtime_dir(char *const *env)
{
    const char *value = absolute_env(env, "XDG_RUNTIME_DIR");
    struct stat st;

    return value && stat(value, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() ? value : NULL;
}

static int run_dir(char *const *env, char *out, size_t size)
{
    const char *value = config_env(env, "BRIG_RUN_DIR");

    if (value && value[0] != '\0') {
        size_t len = strlen(value);
        while (len > 1 && value[len - 1] == '/')
            len--;
        return value[0] == '/' ? str_format(out, size, "%.*s", (int)len, value) : -EINVAL;
    }
    if (geteuid() == 0)
        return str_copy(out, size, "/run/brig");
    if ((value = runtime_dir(env)))
        return str_format(out, size, "%s/brig", value);
    if ((value = config_env(env, "BRIG_STATE_DIR")) && value[0] != '\0')
        return value[0] == '/' ? str_format(out, size, "%s/run", value) : -EINVAL;
    if ((value = absolute_env(env, "XDG_STATE_HOME")))
        return str_format(out, size, "%s/brig/run", value);
    if ((value = absolute_env(env, "HOME")))
        return str_format(out, size, "%s/.local/state/brig/run", value);
    return -ENOENT;
}

int config_socket_path(char *const *env, char *out, size_t size)
{
    char dir[PATH_MAX];
    int r = run_dir(env, dir, sizeof(dir));

    if (r >= 0)
        r = str_format(out, size, "%s/brig.sock", dir);
    return r < 0 ? r : 0;
}

/* ---- the file ---------------------------------------------------------------------------------------- */

static int check_file(int fd, const char *path, bool named, struct brig_err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_host(err, "stat %s", path);
    if (S_ISDIR(st.st_mode))
        return err_set(err, BRIG_E_USAGE, EISDIR, "%s", path);
    if (S_ISREG(st.st_mode) && (st.st_mode & S_IWOTH))
        return err_set(err, BRIG_E_REFUSED, EPERM, "%s may be written to by everybody (mode %04o)", path,
                       (unsigned)(st.st_mode & 07777));
    if (!named && st.st_uid != 0 && st.st_uid != geteuid())
        return err_set(err, BRIG_E_REFUSED, EPERM,
                       "%s belongs to uid %u, neither root nor the caller; name it with --config if it is meant", path,
                       (unsigned)st.st_uid);
    return 0;
}

/* 0, 1 when there is no such file and it was not named, or a negative errno. */
static int open_one(const char *path, bool named, int *ret_fd, struct brig_err *err)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (fd < 0 && !named && (errno == ENOENT || errno == ENOTDIR))
        return 1;
    if (fd < 0)
        return err_set(err, BRIG_E_USAGE, errno, "%s", path);
    int r = check_file(fd, path, named, err);
    if (r < 0)
        return r;
    *ret_fd = take_fd(&fd);
    return 0;
}

static int find_file(const char *named, char *const *env, char path[PATH_MAX], int *ret_fd, struct brig_err *err)
{
    const char *home = absolute_env(env, "HOME"), *variable = config_env(env, "BRIG_CONFIG");
    int r = 1;

    if (!named && variable && variable[0] != '\0')
        named = variable;
    if (named)
        return str_copy(path, PATH_MAX, named) < 0 ? err_usage(err, "the path of the configuration is too long")
                                                   : open_one(path, true, ret_fd, err);
    if (str_copy(path, PATH_MAX, "config/config.toml") == 0)
        r = open_one(path, false, ret_fd, err);
    if (r == 1 && home && str_format(path, PATH_MAX, "%s/.config/brig/config.toml", home) > 0)
        r = open_one(path, false, ret_fd, err);
    if (r == 1 && str_copy(path, PATH_MAX, "/etc/brig/config.toml") == 0)
        r = open_one(path, false, ret_fd, err);
    return r;
}

int config_open(const char *named, char *const *env, struct config_loaded *loaded, char **ret, size_t *ret_len,
                struct brig_err *err)
{
    char path[PATH_MAX];
    AUTO_FD int fd = -1;

    int r = find_file(named, env, path, &fd, err);
    if (r != 0)
        return r;
    const size_t size = TOML_MAX_BYTES + 2;
    AUTO_FREE char *text = mem_alloc(size);
    mem_free(loaded->path);
    loaded->path = mem_strdup(path);
    if (!text || !loaded->path)
        return err_nomem(err);
    ssize_t n = fd_read_all(fd, text, size);
    if (n < 0)
        return n == -EFBIG ? err_usage(err, "%s: a configuration has at most %u bytes", path, TOML_MAX_BYTES)
                           : err_set(err, BRIG_E_HOST, (int)-n, "read %s", path);
    *ret_len = (size_t)n;
    *ret = take_ptr(&text);
    return 0;
}
