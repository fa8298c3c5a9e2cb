/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_receipt.c: writes the receipt. A receipt file appears whole or not at all (a temporary file beside it, then
 * rename), readable by its owner only, since a program's output is in it. An existing FILE that is no regular file (a
 * pipe, a device, a link) is written to, never replaced. /dev/stderr and /dev/fd/N are that descriptor itself: opening
 * them again would overwrite the log file behind them.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/run/run.h"

/* Directory and name of a path: "a/b" is "a" and "b", "b" is "." and "b", "/b" is "/" and "b". */
static int open_directory(const char *path, const char **ret_name, struct brig_err *err)
{
    const char *slash = strrchr(path, '/');
    *ret_name = slash ? slash + 1 : path;
    char *directory = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    if (!directory)
        return err_nomem(err);
    int fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    free(directory);
    if (fd < 0)
        return err_set(err, BRIG_E_USAGE, errno, "--receipt %.120s: its directory", path);
    return fd;
}

static bool is_replaced(int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISREG(st.st_mode);
}

/* The descriptor that a path stands for, or -1. */
static int named_fd(const char *path)
{
    static const char *const prefixes[] = {"/dev/fd/", "/proc/self/fd/"};
    uint32_t fd = 0;
    if (strcmp(path, "/dev/stdout") == 0)
        return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0)
        return STDERR_FILENO;
    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
        if (strncmp(path, prefixes[i], strlen(prefixes[i])) == 0 && parse_u32(path + strlen(prefixes[i]), &fd) == 0 &&
            fd <= INT_MAX)
            return (int)fd;
    return -1;
}

int run_receipt_check(const char *path, struct brig_err *err)
{
    const char *name = NULL;
    struct stat st;
    if (strcmp(path, "-") == 0)
        return err_usage(err, "--receipt -: must be a file; the receipt on standard output is -o json");
    if (named_fd(path) >= 0) /* now: later that number could be something of ours */
        return fcntl(named_fd(path), F_GETFD) < 0 ? err_set(err, BRIG_E_USAGE, errno, "--receipt %.120s", path) : 0;
    AUTO_FD int dir = open_directory(path, &name, err);
    if (dir < 0)
        return dir;
    if (*name == '\0' || (fstatat(dir, name, &st, 0) == 0 && S_ISDIR(st.st_mode)))
        return err_usage(err, "--receipt %.120s: is a directory, must be a file", path);
    if (is_replaced(dir, name) && faccessat(dir, ".", W_OK | X_OK, AT_EACCESS) < 0)
        return err_set(err, BRIG_E_USAGE, errno, "--receipt %.120s: its directory", path);
    return 0;
}

static int replace_file(int dir, const char *name, const char *path, const char *json, size_t len, struct brig_err *err)
{
    char temporary[64];
    snprintf(temporary, sizeof(temporary), ".brig-receipt-%ld", (long)getpid());
    unlinkat(dir, temporary, 0); /* of a dead brig with our pid, if any */
    AUTO_FD int fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_host(err, "--receipt %.120s", path);
    int r = cli_write(fd, json, len);
    if (r == 0 && renameat(dir, temporary, dir, name) < 0)
        r = -errno;
    if (r < 0) {
        unlinkat(dir, temporary, 0);
        return err_set(err, BRIG_E_HOST, r, "--receipt %.120s", path);
    }
    return 0;
}

static int write_through(int dir, const char *name, const char *path, const char *json, size_t len,
                         struct brig_err *err)
{
    AUTO_FD int fd = openat(dir, name, O_WRONLY | O_TRUNC | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return err_host(err, "--receipt %.120s", path);
    int r = cli_write(fd, json, len);
    return r < 0 ? err_set(err, BRIG_E_HOST, r, "--receipt %.120s", path) : 0;
}

static bool ends_line(const char *json, size_t len)
{
    return len > 0 && json[len - 1] == '\n';
}

int run_receipt_write(const char *path, const char *json, size_t len, struct brig_err *err)
{
    const char *name = NULL;
    int fd = named_fd(path);
    if (fd >= 0) {
        int r = cli_write(fd, json, len);
        return r < 0 ? err_set(err, BRIG_E_HOST, r, "--receipt %.120s", path) : 0;
    }
    AUTO_FD int dir = open_directory(path, &name, err);
    if (dir < 0)
        return dir;
    return is_replaced(dir, name) ? replace_file(dir, name, path, json, len, err)
                                  : write_through(dir, name, path, json, len, err);
}

int run_receipt_print(const char *json, size_t len, struct brig_err *err)
{
    struct buf shown = BUF_INIT(SIZE_MAX / 2);
    int r = 0;
    if (isatty(STDOUT_FILENO)) { /* JSON may hold DEL and C1 as they are */
        struct escape escape = ESCAPE_INIT(ESCAPE_JSON);
        r = escape_append(&escape, json, len, &shown);
        if (r == 0)
            r = escape_finish(&escape, &shown);
        json = shown.data;
        len = shown.len;
    }
    if (r == 0)
        r = cli_write(STDOUT_FILENO, json, len);
    if (r == 0 && !ends_line(json, len))
        r = cli_write(STDOUT_FILENO, "\n", 1);
    buf_done(&shown);
    return r < 0 ? err_set(err, BRIG_E_HOST, r, "standard output") : 0;
}
