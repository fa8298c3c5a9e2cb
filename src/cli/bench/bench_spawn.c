/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_spawn.c: runs plain programs without a sandbox: the peers, the outside half of every comparison, and the few
 * tools that a measurement needs. It always uses posix_spawn(3), which does not copy our page tables.
 */
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "cli/bench/bench.h"
#include "cli/cli.h"

extern char **environ;

double bench_now_us(void)
{
    return (double)clock_mono_ns() / 1000.0;
}

static int wait_status(pid_t pid)
{
    int status = 0;

    if (RETRY(waitpid(pid, &status, 0)) < 0)
        return -errno;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* stdin from nowhere; stdout and stderr to out (or nowhere), in dir_fd if not -1. */
static int spawn(const char *const *argv, int out, int dir_fd, pid_t *ret)
{
    posix_spawn_file_actions_t actions;
    int r = posix_spawn_file_actions_init(&actions);
    if (r != 0)
        return -r;
    r = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(&actions, out >= 0 ? out : 0, 1);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (r == 0 && dir_fd >= 0)
        r = posix_spawn_file_actions_addfchdir_np(&actions, dir_fd);
    if (r == 0)
        r = posix_spawnp(ret, argv[0], &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return -r;
}

int bench_spawn(const char *const *argv, double *ret_us)
{
    pid_t pid = 0;
    double start = bench_now_us();
    int r = spawn(argv, -1, -1, &pid);
    if (r == 0)
        r = wait_status(pid);
    if (ret_us)
        *ret_us = bench_now_us() - start;
    return r;
}

int bench_spawn_many(const char *const *argv, size_t n, double *ret_us)
{
    pid_t *pids = calloc(n, sizeof(*pids));
    if (!pids)
        return -ENOMEM;
    int result = 0;
    double start = bench_now_us();
    size_t started = 0;
    while (started < n && result == 0) {
        result = spawn(argv, -1, -1, &pids[started]);
        started += result == 0;
    }
    for (size_t i = 0; i < started; i++) {
        int r = wait_status(pids[i]);
        if (result == 0)
            result = r;
    }
    *ret_us = bench_now_us() - start;
    free(pids);
    return result;
}

int bench_spawn_output(const char *const *argv, int dir_fd, struct buf *out)
{
    AUTO_FD int reader = -1;
    AUTO_FD int writer = -1;
    int ends[2];
    pid_t pid = 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    reader = ends[0];
    writer = ends[1];
    int r = spawn(argv, writer, dir_fd, &pid);
    if (r < 0)
        return r;
    base_close_fd(&writer);
    for (;;) {
        char chunk[4096];
        ssize_t n = RETRY(read(reader, chunk, sizeof(chunk)));
        if (n <= 0)
            break;
        if (buf_append(out, chunk, (size_t)n) < 0)
            continue; /* past the ceiling: read on, so that the program can end */
    }
    return wait_status(pid);
}

pid_t bench_spawn_background(const char *const *argv, const char *log)
{
    pid_t pid = 0;
    AUTO_FD int out = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (out < 0)
        return -errno;
    int r = spawn(argv, out, -1, &pid);
    return r < 0 ? r : pid;
}

bool bench_installed(const char *program)
{
    const char *path = getenv("PATH");
    for (const char *at = path ? path : "/usr/sbin:/usr/bin:/sbin:/bin"; *at != '\0';) {
        char candidate[PATH_MAX];
        size_t len = strcspn(at, ":");
        int n = snprintf(candidate, sizeof(candidate), "%.*s/%s", (int)len, at, program);
        if (n > 0 && (size_t)n < sizeof(candidate) && access(candidate, X_OK) == 0)
            return true;
        at += len + (at[len] == ':');
    }
    return false;
}

int bench_make_directory(char *path, size_t size)
{
    const char *base = getenv("TMPDIR");
    int n = snprintf(path, size, "%s/brig-bench-XXXXXX", base && *base == '/' && strlen(base) < 32 ? base : "/tmp");
    if (n < 0 || (size_t)n >= size || !mkdtemp(path)) {
        path[0] = '\0';
        return errno > 0 ? -errno : -ENAMETOOLONG;
    }
    return 0;
}

void bench_remove_directory(const char *path)
{
    const char *const argv[] = {"rm", "-rf", "--one-file-system", "--", path, NULL};
    if (path[0] != '\0' && bench_spawn(argv, NULL) != 0)
        bench_say("%s could not be removed", path);
}

int bench_write_file(const char *directory, const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    return cli_write(fd, text, strlen(text));
}
