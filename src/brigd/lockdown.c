/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lockdown.c: takes from brigd what it does not need once it serves.
 *
 * The list of system calls stands here, beside the filter that is made from it: sockets that exist, files below its own
 * directories, threads, memory, time. brigd cannot execute, fork, trace, mount, change ids, load modules or open
 * namespaces. A call that is not in the list fails with EPERM (a library that probes goes on); a call that only an
 * attacker would make kills the process.
 */
#include "brigd/lockdown.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/call_filter.h"
#include "base/err.h"

/* ---- stage 1 --------------------------------------------------------------------------------------------- */

int lockdown_early(struct brig_err *err)
{
    struct rlimit none = {0, 0};

    if (setrlimit(RLIMIT_CORE, &none) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_host(err, "lock down");
    return 0;
}

/* ---- stage 2: Landlock ----------------------------------------------------------------------------------- */

#define READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define WRITE                                                                                         \
    (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | \
     LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR)
#define ALL_ABI1 ((UINT64_C(1) << 13) - 1) /* EXECUTE to MAKE_SYM */

static int allow(int ruleset, const char *path, uint64_t access, struct brig_err *err)
{
    struct stat st;
    AUTO_FD int fd = open(path, O_PATH | O_CLOEXEC);

    if (fd < 0)
        return errno == ENOENT ? 0 : err_host(err, "%s", path);
    if (fstat(fd, &st) < 0)
        return err_host(err, "%s", path);
    if (!S_ISDIR(st.st_mode))
        access &= LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | UINT64_C(1) << 14;
    struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = fd};
    return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0
               ? err_host(err, "Landlock rule for %s", path)
               : 0;
}

/* Each directory of a list "a:b:c". */
static int allow_list(int ruleset, const char *list, struct brig_err *err)
{
    char path[4096];
    int r = 0;

    for (const char *at = list; r == 0 && *at; at += at[0] == ':') {
        size_t len = strcspn(at, ":");
        if (len > 0 && len < sizeof path) {
            memcpy(path, at, len);
            path[len] = '\0';
            r = allow(ruleset, path, READ, err);
        }
        at += len;
    }
    return r;
}

int lockdown_files(const struct lockdown *what, unsigned *ret_abi, struct brig_err *err)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    int r = 0;

    *ret_abi = abi > 0 ? (unsigned)abi : 0;
    if (abi <= 0)
        return 0;
    uint64_t handled =
        ALL_ABI1 | (abi >= 2 ? UINT64_C(1) << 13 : 0) | (abi >= 3 ? UINT64_C(1) << 14 : 0); /* REFER, TRUNCATE */
    struct landlock_ruleset_attr attr = {.handled_access_fs = handled};
    AUTO_FD int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
    if (ruleset < 0)
        return err_host(err, "Landlock");
    for (size_t i = 0; r == 0 && what->writable[i]; i++)
        r = allow(ruleset, what->writable[i], (READ | WRITE | UINT64_C(1) << 14) & handled, err);
    for (size_t i = 0; r == 0 && what->readable[i]; i++)
        r = allow(ruleset, what->readable[i], READ, err);
    for (size_t i = 0; r == 0 && what->dir_lists && what->dir_lists[i]; i++)
        r = allow_list(ruleset, what->dir_lists[i], err);
    if (r == 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
        r = err_host(err, "Landlock");
    return r;
}

/* ---- stage 3: seccomp ------------------------------------------------------------------------------------ */

/* The frequent ones first: the filter looks through the list in order. */
/* clang-format off */
static const unsigned short allowed[] = {
    SYS_epoll_wait, SYS_read, SYS_write, SYS_recvmsg, SYS_sendmsg, SYS_writev, SYS_sendto, SYS_recvfrom,
    SYS_epoll_ctl, SYS_accept4, SYS_close, SYS_futex, SYS_clock_gettime, SYS_epoll_pwait, SYS_readv, SYS_fdatasync,
    SYS_fsync, SYS_pwrite64, SYS_pread64, SYS_poll, SYS_ppoll, SYS_madvise, SYS_mmap, SYS_munmap, SYS_mprotect,
    SYS_mremap, SYS_brk, SYS_lseek, SYS_fstat, SYS_newfstatat, SYS_openat, SYS_openat2, SYS_getrandom, SYS_gettid,
    SYS_getpid, SYS_getsockopt, SYS_setsockopt, SYS_getsockname, SYS_getpeername, SYS_shutdown, SYS_fcntl,
    SYS_timerfd_settime, SYS_timerfd_create, SYS_eventfd2, SYS_epoll_create1, SYS_signalfd4, SYS_memfd_create,
    SYS_pipe2, SYS_dup, SYS_dup3, SYS_stat, SYS_lstat, SYS_access, SYS_faccessat, SYS_faccessat2, SYS_statx,
    SYS_unlink, SYS_unlinkat, SYS_rename, SYS_renameat, SYS_renameat2, SYS_mkdir, SYS_mkdirat, SYS_ftruncate,
    SYS_fallocate, SYS_flock, SYS_fchmod, SYS_fchmodat, SYS_getdents64, SYS_readlink, SYS_readlinkat, SYS_getcwd,
    SYS_geteuid, SYS_getuid, SYS_getgid, SYS_getegid, SYS_uname, SYS_sysinfo, SYS_fstatfs, SYS_statfs,
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigtimedwait, SYS_sigaltstack, SYS_nanosleep,
    SYS_clock_nanosleep, SYS_sched_yield, SYS_sched_getaffinity, SYS_set_robust_list, SYS_rseq, SYS_exit,
    SYS_exit_group, SYS_restart_syscall, SYS_prlimit64, SYS_getrusage, SYS_times, SYS_tgkill, SYS_get_robust_list,
    SYS_membarrier, SYS_splice, SYS_open, SYS_pselect6, SYS_select, SYS_fadvise64, SYS_utimensat, SYS_umask,
    SYS_chmod, SYS_fchown, SYS_ioctl, SYS_getppid, SYS_mlock, SYS_munlock, SYS_time, SYS_gettimeofday,
    SYS_clock_getres, SYS_fchownat, SYS_epoll_pwait2, SYS_getitimer, SYS_socketpair, SYS_copy_file_range,
    SYS_sync_file_range, SYS_linkat, SYS_link,
};
/* clang-format on */

/* Only with a server elsewhere. A name is looked up over UDP, and a server reached over any of the three families. */
static const unsigned short network_calls[] = {SYS_socket, SYS_connect, SYS_bind, SYS_sendmmsg, SYS_recvmmsg};

/* What nothing in brigd ever does: not an error to go on from. */
/* clang-format off */
static const unsigned short deadly[] = {
    SYS_execve, SYS_execveat, SYS_fork, SYS_vfork, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_mount,
    SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_setns, SYS_unshare, SYS_init_module, SYS_finit_module,
    SYS_delete_module, SYS_kexec_load, SYS_bpf, SYS_keyctl, SYS_add_key, SYS_setuid, SYS_setresuid,
    SYS_open_by_handle_at, SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup,
};
/* clang-format on */

/* clone only as pthread_create does it; clone3 (whose flags a filter cannot see) is ENOSYS, and libc falls back. */
static void put_clone(struct call_filter *filter)
{
    const struct sock_filter code[] = {
        CALL_IS(SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };

    call_filter_put(filter, code, ARRAY_SIZE(code));
}

int lockdown_calls(const struct lockdown *what, struct brig_err *err)
{
    struct call_filter filter;

    call_filter_init(&filter);
    call_filter_calls(&filter, allowed, ARRAY_SIZE(allowed), SECCOMP_RET_ALLOW);
    if (what->network)
        call_filter_calls(&filter, network_calls, ARRAY_SIZE(network_calls), SECCOMP_RET_ALLOW);
    call_filter_calls(&filter, deadly, ARRAY_SIZE(deadly), SECCOMP_RET_KILL_PROCESS);
    put_clone(&filter);
    return call_filter_install(&filter, err);
}
