/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys.h: wraps the system calls of the set-up in SYS(), and declares the calls that glibc has no wrapper for. In test
 * builds SYS() can make the Nth call fail (BRIG_TEST_FAIL_SYSCALL=N). With it the tests show that a set-up which breaks
 * anywhere leaves nothing behind.
 */
#ifndef BRIG_JAIL_SYS_H
#define BRIG_JAIL_SYS_H

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

#ifdef BRIG_TEST
/* Returns the errno with which this call must fail, or 0. */
int sys_inject(const char *call);
#define SYS(call)                                                                       \
    __extension__({                                                                     \
        __typeof__(call) ret_;                                                          \
        int inject_ = sys_inject(#call);                                                \
        if (inject_) {                                                                  \
            errno = inject_;                                                            \
            ret_ = (__typeof__(call))-inject_; /* also what our own functions return */ \
        } else {                                                                        \
            ret_ = (call);                                                              \
        }                                                                               \
        ret_;                                                                           \
    })
#else
#define SYS(call) (call)
#endif

static inline int sys_openat2(int dirfd, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve)
{
    struct open_how how = {.flags = flags | O_CLOEXEC, .mode = mode, .resolve = resolve};

    return (int)syscall(SYS_openat2, dirfd, path, &how, sizeof how);
}

static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
    return (int)syscall(SYS_pivot_root, new_root, put_old);
}

static inline pid_t sys_clone3(struct clone_args *args)
{
    return (pid_t)syscall(SYS_clone3, args, sizeof *args);
}

static inline int sys_pidfd_open(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static inline int sys_pidfd_send_signal(int pidfd, int signum)
{
    return (int)syscall(SYS_pidfd_send_signal, pidfd, signum, NULL, 0);
}

/*
 * For a child that is in the pid namespace of its parent: from now on it is killed when the parent dies. Returns false
 * if that has happened already.
 */
static inline bool sys_die_with(pid_t parent)
{
    return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent;
}

static inline int sys_execveat(int fd, char *const argv[], char *const envp[])
{
    return (int)syscall(SYS_execveat, fd, "", argv, envp, AT_EMPTY_PATH);
}

#endif
