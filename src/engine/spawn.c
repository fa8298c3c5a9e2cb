/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawn.c: starts the spawner and executes helpers. In a threaded host, a child that shares our memory and only makes
 * system calls (vfork semantics) executes the helper. This child is the child of another one that ends at once, so the
 * helper is not the host's child: no SIGCHLD reaches the host, and its waitpid(-1) finds nothing of ours. A
 * single-threaded caller may ask for a plain fork, which saves an execve.
 */
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/str.h"
#include "engine/engine.h"
#include "spawner/spawner.h"

#ifndef BRIG_LIBEXECDIR
#define BRIG_LIBEXECDIR "/usr/libexec/brig"
#endif

#define STACK_SIZE 32768u
#define SOCKET_FD 3

/* Beside the running program (a build tree), next to it (a copied installation), or as installed. */
int engine_find_helpers(const struct brig_engine_options *options, char *out, size_t size, struct brig_err *err)
{
    static const char *const beside[] = {"", "/../libexec/brig"};
    const char *given = options && options->helper_dir ? options->helper_dir : getenv("BRIG_LIBEXEC_DIR");
    char exe[PATH_MAX], probe[PATH_MAX + 64];

    if (given) {
        return given[0] == '/' && str_copy(out, size, given) == 0
                   ? 0
                   : err_usage(err, "helper directory %s: must be absolute", given);
    }
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    char *slash = n > 0 ? memrchr(exe, '/', (size_t)n) : NULL;
    for (size_t i = 0; slash && i < ARRAY_SIZE(beside); i++) {
        *slash = '\0';
        snprintf(probe, sizeof probe, "%s%s/brig-init", exe, beside[i]);
        if (access(probe, F_OK) == 0 && (size_t)snprintf(out, size, "%s%s", exe, beside[i]) < size)
            return 0;
    }
    return str_copy(out, size, BRIG_LIBEXECDIR) == 0 ? 0
                                                     : err_usage(err, "helper directory %s: too long", BRIG_LIBEXECDIR);
}

struct exec_args {
    const char *path;
    char *const *argv;
    int fd;
    bool bare, watched;
    int pidfd;
    char *stack; /* of the second child */
    volatile int errnum;
};

/* Between here and execve memory is shared with the host's threads: system calls only. */
static int exec_child(void *arg)
{
    struct exec_args *args = arg;
    char *const nothing[] = {NULL};
    sigset_t none;

    sigemptyset(&none);
    setsid();
    if (dup2(args->fd, SOCKET_FD) < 0 || (args->fd == SOCKET_FD && fcntl(SOCKET_FD, F_SETFD, 0) < 0)) {
        args->errnum = errno;
        _exit(125);
    }
    if (args->bare) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
            close_range(SOCKET_FD + 1, ~0u, 0) < 0 || chdir("/") < 0) {
            args->errnum = errno;
            _exit(125);
        }
    }
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* For the spawner: where directories are (XDG_*, BRIG_*); sandboxes see none of it. */
    execve(args->path, args->argv, args->bare ? nothing : environ);
    args->errnum = errno;
    _exit(125);
}

static int middle_child(void *arg)
{
    struct exec_args *args = arg;

    /* It has our table of descriptors where a pidfd is wanted: that is how it gets there without a race for the pid. */
    if (clone(exec_child, args->stack + STACK_SIZE,
              CLONE_VM | CLONE_VFORK | (args->watched ? CLONE_PIDFD : 0) | SIGCHLD, args, &args->pidfd) < 0)
        args->errnum = errno;
    _exit(0);
}

int engine_execute(const char *path, char *const argv[], int fd, bool bare, int *ret_pidfd, struct brig_err *err)
{
    sigset_t all, saved;

    char *stacks = mmap(NULL, 2 * STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stacks == MAP_FAILED)
        return err_host(err, "stack for a helper's start");
    struct exec_args args = {
        .path = path, .argv = argv, .fd = fd, .bare = bare, .watched = ret_pidfd, .pidfd = -1, .stack = stacks};
    /* No handler of the host's may run in a child that shares its memory. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    pid_t middle =
        clone(middle_child, stacks + 2 * STACK_SIZE, CLONE_VM | CLONE_VFORK | (ret_pidfd ? CLONE_FILES : 0), &args);
    int clone_errno = errno;
    if (middle > 0)
        (void)RETRY(waitpid(middle, NULL, __WALL));
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    munmap(stacks, 2 * STACK_SIZE);
    if (middle < 0)
        return err_set(err, BRIG_E_HOST, clone_errno, "start %s", path);
    AUTO_FD int pidfd = args.pidfd;
    if (args.errnum)
        return err_set(err, BRIG_E_HOST, args.errnum, "%s", path);
    if (ret_pidfd)
        *ret_pidfd = take_fd(&pidfd);
    return 0;
}

static int execute_spawner(const char *helper_dir, int fd, struct brig_err *err)
{
    char path[PATH_MAX];
    char *const argv[] = {(char *)"brig-spawner", (char *)helper_dir, NULL};

    if ((size_t)snprintf(path, sizeof path, "%s/brig-spawner", helper_dir) >= sizeof path)
        return err_usage(err, "helper directory: path too long");
    return engine_execute(path, argv, fd, false, NULL, err);
}

int engine_spawn(const struct brig_engine_options *options, int *ret_fd, pid_t *ret_forked, struct brig_err *err)
{
    char helper_dir[PATH_MAX];
    int pair[2];
    int r = engine_find_helpers(options, helper_dir, sizeof helper_dir, err);

    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_host(err, "socketpair");
    AUTO_FD int ours = pair[0];
    AUTO_FD int theirs = pair[1];
    if (!options || !(options->flags & BRIG_ENGINE_FORK)) {
        r = execute_spawner(helper_dir, theirs, err);
        if (r == 0)
            *ret_fd = take_fd(&ours);
        return r;
    }
    /* A fork without SIGCHLD at its end: the host's waitpid(-1) does not meet it. */
    pid_t pid = (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, NULL);
    if (pid < 0)
        return err_host(err, "fork the spawner");
    if (pid == 0) {
        setsid();
        close(ours);
        _exit(spawner_main(take_fd(&theirs), helper_dir));
    }
    *ret_forked = pid;
    *ret_fd = take_fd(&ours);
    return 0;
}
