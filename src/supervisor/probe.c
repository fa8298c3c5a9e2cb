/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.c: whether a start would find what it needs: `brig config check` tries it as the users that will, without
 * making anything. brigd's directories, database and log file are tried as brigd's user, the files that the supervisor
 * reads as who we are.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/str.h"
#include "supervisor/supervisor.h"

#define SQLITE "sqlite:"

struct probe {
    const char *path;
    int flags;       /* of the file, if it is there */
    bool missing_ok; /* it is made by brigd, in its directory, or by root on the way to it */
};

/* Each directory on the way that is there can be passed. */
static int pass_through(const char *path)
{
    char dir[4096];

    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(dir, sizeof dir, "%.*s", (int)(slash - path), path);
        if (faccessat(AT_FDCWD, dir, X_OK, AT_EACCESS) < 0)
            return -errno;
    }
    return 0;
}

static int try_path(void *ctx, int *ret_fd UNUSED)
{
    const struct probe *probe = ctx;
    int r = pass_through(probe->path);
    AUTO_FD int fd = r == 0 ? open(probe->path, probe->flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) : -1;

    if (r == 0 && fd < 0)
        r = -errno;
    return r == -ENOENT && probe->missing_ok ? 0 : r;
}

/* The child's words do not reach us: where it failed is found by asking again for each directory. */
static int probe_as_brigd(const struct places *places, const char *what, const char *path, int flags,
                          struct brig_err *err)
{
    struct probe probe = {.path = path, .flags = flags, .missing_ok = true};
    int fd = -1; /* none comes: only log files are handed over */
    int r = places_try(places, try_path, &probe, &fd);

    if (r == 0)
        return 0;
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        char dir[4096];
        struct probe way = {.path = dir, .flags = O_PATH | O_DIRECTORY, .missing_ok = true};
        snprintf(dir, sizeof dir, "%.*s/.", (int)(slash - path), path);
        if (places_try(places, try_path, &way, &fd) < 0)
            return err_set(err, BRIG_E_REFUSED, -r, "%s %s: user %u, which brigd runs as, may not pass through %.*s",
                           what,
                           path, (unsigned)places->uid, (int)(slash - path), path);
    }
    return err_set(err, BRIG_E_REFUSED, -r, "%s %s, opened by user %u, which brigd runs as", what, path,
                   (unsigned)places->uid);
}

static int probe_ours(const char *what, const char *path, struct brig_err *err)
{
    AUTO_FD int fd = path[0] ? open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) : -1;

    return path[0] && fd < 0 ? err_host(err, "%s %s", what, path) : 0;
}

static int dir_of(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');

    return !slash ? -EINVAL : str_format(out, size, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

static int try_writing(void *ctx, int *ret_fd UNUSED)
{
    return faccessat(AT_FDCWD, ctx, W_OK | X_OK, AT_EACCESS) < 0 ? -errno : 0;
}

/* A file that brigd opens for writing, and makes where it is not. */
static int probe_written(const struct places *places, const char *what, const char *path, bool ours,
                         struct brig_err *err)
{
    char dir[4096];
    int fd = -1, r = probe_as_brigd(places, what, path, O_WRONLY | O_APPEND | O_NOFOLLOW, err);

    if (r < 0 || access(path, F_OK) == 0 || ours)
        return r;
    if (dir_of(path, dir, sizeof dir) < 0)
        return err_usage(err, "%s %s: must be an absolute path", what, path);
    r = places_try(places, try_writing, dir, &fd);
    if (r == 0)
        return 0;
    return err_set(err, BRIG_E_REFUSED, -r, "%s %s: user %u, which brigd runs as, cannot make a file in %s", what, path,
                   (unsigned)places->uid, dir);
}

static int probe_database(const struct places *places, const struct config *config, struct brig_err *err)
{
    char path[4096], dir[4096];
    int fd = -1;

    if (strncmp(config->database_url, SQLITE, strlen(SQLITE)) == 0)
        return probe_written(places, "store.database_url", config->database_url + strlen(SQLITE), false, err);
    if (config->database_url[0])
        return 0; /* a server, which is asked at the start */
    if (str_format(dir, sizeof dir, "%s/service", places->state) < 0 || str_format(path, sizeof path, "%s/brig.db", dir) < 0)
        return err_usage(err, "%s: too long", places->state);
    if (places_try(places, try_writing, dir, &fd) < 0)
        return 0; /* the start makes it, or gives it to brigd */
    return probe_written(places, "the database", path, true, err);
}

int supervisor_probe(const struct config *config, struct brig_err *err)
{
    static struct places places; /* its paths are large */
    int r = places_find(&places, err);

    if (r == 0)
        r = probe_as_brigd(&places, "the state directory", places.state, O_PATH | O_DIRECTORY, err);
    if (r == 0)
        r = probe_database(&places, config, err);
    if (r == 0 && config->log_file[0])
        r = probe_written(&places, "log_file", config->log_file, false, err);
    if (r == 0)
        r = probe_ours("server.tls_cert", config->tls_cert, err);
    if (r == 0)
        r = probe_ours("server.tls_key", config->tls_key, err);
    if (r == 0)
        r = probe_ours("secrets.key_file", config->secrets_key_file, err);
    return r == 0 ? probe_ours("gate.ca_bundle", config->gate_ca_bundle, err) : r;
}
