/* SPDX-License-Identifier: Apache-2.0 */
/* Root inside, the relatives: its other users' processes, places that the set-up mounted, numbers of its choice. */
#include "probe.h"

#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif
#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#endif

/* ---- a process of another user inside ------------------------------------------------------------------- */

static pid_t start_other(uid_t uid)
{
    int pair[2];
    char byte;

    if (pipe2(pair, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        bool good = setresgid(uid, uid, uid) == 0 && setresuid(uid, uid, uid) == 0;
        (void)!write(pair[1], good ? "1" : "0", 1);
        for (;;)
            pause();
    }
    close(pair[1]);
    if (pid > 0 && (read(pair[0], &byte, 1) != 1 || byte != '1')) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        pid = -1;
    }
    close(pair[0]);
    return pid;
}

static void u47_other_users(int argc, char **argv)
{
    static const char *const files[] = {"mem", "root", "cwd", "exe", "fd", "environ", "maps", "ns/mnt", "syscall"};
    char word[8] = "";
    struct iovec here = {word, sizeof(word)}, there = {word, sizeof(word)};
    pid_t other = start_other(1000);
    (void)argc, (void)argv;

    if (other < 0) {
        untried("other", "no process of another user");
        return;
    }
    REFUSED("attach", ptrace(PTRACE_ATTACH, other, 0, 0), EPERM);
    REFUSED("seize", ptrace(PTRACE_SEIZE, other, 0, 0), EPERM);
    REFUSED("vm_readv", syscall(SYS_process_vm_readv, other, &here, 1, &there, 1, 0), EPERM);
    REFUSED("vm_writev", syscall(SYS_process_vm_writev, other, &here, 1, &there, 1, 0), EPERM);
    REFUSED("madvise", syscall(SYS_process_madvise, syscall(SYS_pidfd_open, other, 0), &there, 1, 21, 0), EPERM,
            ENOSYS);
    int fd = (int)syscall(SYS_pidfd_open, other, 0);
    if (fd >= 0)
        REFUSED("getfd", syscall(SYS_pidfd_getfd, fd, 1, 0), EPERM);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char path[64];
        snprintf(path, sizeof(path), "/proc/%d/%s", other, files[i]);
        REFUSED(nm("proc-%s", files[i]), open(path, O_RDONLY | O_CLOEXEC), ENOENT, EACCES, EPERM);
    }
    REFUSED("prlimit", syscall(SYS_prlimit64, other, RLIMIT_NOFILE, &(struct rlimit){4, 4}, NULL), EPERM);
    expect(kill(other, SIGKILL) == 0, "signals", "%s", strerror(errno));
    waitpid(other, NULL, 0);
}

/* ---- where the set-up mounted ---------------------------------------------------------------------------- */

static void u48_mount_points(int argc, char **argv)
{
    static const char *const places[] = {"/proc", "/dev", "/tmp", "/workspace", "/home/user", "/run", "/var/tmp"};
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        REFUSED(nm("rename-%s", places[i]), rename(places[i], "/elsewhere"), EBUSY);
        REFUSED(nm("rmdir-%s", places[i]), rmdir(places[i]), EBUSY);
        REFUSED(nm("exchange-%s", places[i]), syscall(SYS_renameat2, AT_FDCWD, places[i], AT_FDCWD, "/root", 2), EBUSY,
                EINVAL);
    }
    /* The directory above one may move, and takes it along: what is mounted there stays what it is. */
    struct stat before, after;
    if (stat("/home/user", &before) == 0 && rename("/home", "/home2") == 0) {
        expect(stat("/home2/user", &after) == 0 && after.st_dev == before.st_dev && after.st_ino == before.st_ino,
               "moves-along", "%s", strerror(errno));
        REFUSED("nothing-below", open("/home/user", O_RDONLY | O_CLOEXEC), ENOENT);
        (void)!rename("/home2", "/home");
    }
}

/* ---- numbers and modes of its choice ----------------------------------------------------------------------- */

static void u49_chosen_pid(int argc, char **argv)
{
    pid_t wanted = 12345;
    struct clone_args args = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&wanted, .set_tid_size = 1};
    (void)argc, (void)argv;

    errno = 0;
    long pid = syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0)
        _exit(0);
    judge_refused("set_tid", pid, errno, ERRS(ENOSYS, EPERM));
    REFUSED("ns_last_pid", open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC), ENOENT, EROFS, EACCES);
    int fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    REFUSED("timens", fd < 0 ? -1 : write(fd, "monotonic 1 0\n", 14), ENOENT, EACCES, EPERM);
}

static void u50_prctl(int argc, char **argv)
{
    (void)argc, (void)argv;
    REFUSED("mm-brk", prctl(PR_SET_MM, PR_SET_MM_BRK, 0x10000, 0, 0), EPERM);
    REFUSED("mm-exe", prctl(PR_SET_MM, PR_SET_MM_EXE_FILE, 0, 0, 0), EPERM, EBADF);
    REFUSED("io-flusher", prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0), EPERM);
    REFUSED("core-sched", prctl(PR_SCHED_CORE, 2, 1, 0, 0), EPERM, ENODEV, EINVAL, ESRCH);
    REFUSED("new-privs", prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), EINVAL);
    REFUSED("seccomp", prctl(PR_SET_SECCOMP, 0, 0, 0, 0), EINVAL, EPERM);
}

const struct probe_case inside_last_cases[] = {
    {"U47", u47_other_users}, {"U48", u48_mount_points}, {"U49", u49_chosen_pid}, {"U50", u50_prctl}, {NULL, NULL},
};
