/* SPDX-License-Identifier: Apache-2.0 */
/*
 * egress_lockdown.c: takes from brig-egress what it does not need once it serves. It is the only process that reads
 * bytes both from sandboxes and from the internet. It is locked down in four stages:
 *
 *   1  no core dumps, not traceable, no new privileges          (before anything is read)
 *   2  no user id 0, no groups, no capabilities
 *   3  Landlock: no file at all; no listening on TCP ports; no signals and no abstract sockets outside
 *   4  seccomp: sockets of IPv4 and IPv6, the loop, memory. No open, no exec, no fork, no executable memory
 *
 * One socket of another family stays open: rtnetlink, by which own.c asks for routes. Without capabilities the kernel
 * changes nothing through it; an attacker who takes the process over can read the host's addresses and routes.
 *
 * A call that is not in the list fails with EPERM; a call that only an attacker would make kills the process.
 */
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/call_filter.h"
#include "base/err.h"
#include "egress/egress_priv.h"

#define NOBODY 65534u

int lockdown_begin(struct brig_err *err)
{
    struct rlimit none = {0, 0}, files;

    if (setrlimit(RLIMIT_CORE, &none) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_host(err, "lock down");
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &files) < 0)
            return err_host(err, "RLIMIT_NOFILE");
    }
    return 0;
}

/* ---- stage 2 -------------------------------------------------------------------------------------------- */

static int drop_ids(struct brig_err *err)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0}};

    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    for (int cap = 0; cap <= 63; cap++)
        prctl(PR_CAPBSET_DROP, cap, 0, 0, 0); /* without CAP_SETPCAP there is nothing that could be gained either */
    /* In a user namespace that maps one id only there is no other to become: 0 is nobody special there. */
    if (geteuid() == 0 &&
        (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0) &&
        errno != EINVAL && errno != EPERM)
        return err_host(err, "drop the user id");
    if (syscall(SYS_capset, &header, none) < 0)
        return err_host(err, "drop capabilities");
    /* Changing ids makes a process dumpable by the rules of /proc/sys/fs/suid_dumpable. */
    return prctl(PR_SET_DUMPABLE, 0) < 0 ? err_host(err, "lock down") : 0;
}

/* ---- stage 3 -------------------------------------------------------------------------------------------- */

#define ALL_ABI1 ((UINT64_C(1) << 13) - 1) /* EXECUTE to MAKE_SYM */

/* The structure as of ABI 6; the headers of the build may be older. */
struct ruleset {
    uint64_t fs, net, scoped;
};

static int drop_files(struct brig_err *err)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    struct ruleset attr = {.fs = ALL_ABI1};
    size_t size = sizeof attr.fs;

    if (abi <= 0)
        return 0; /* seccomp says it as well */
    attr.fs |=
        (abi >= 2 ? UINT64_C(1) << 13 : 0) | (abi >= 3 ? UINT64_C(1) << 14 : 0) | (abi >= 5 ? UINT64_C(1) << 15 : 0);
    if (abi >= 4) {
        attr.net = 1; /* BIND_TCP */
        size += sizeof attr.net;
    }
    if (abi >= 6) {
        attr.scoped = 3; /* ABSTRACT_UNIX_SOCKET, SIGNAL */
        size += sizeof attr.scoped;
    }
    AUTO_FD int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
    if (ruleset < 0 || syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
        return err_host(err, "Landlock");
    return 0;
}

/* ---- stage 4 -------------------------------------------------------------------------------------------- */

/* The frequent ones first: the filter looks through the list in order. */
/* clang-format off */
static const unsigned short allowed[] = {
    SYS_epoll_pwait2, SYS_epoll_wait, SYS_recvfrom, SYS_sendto, SYS_splice, SYS_epoll_ctl, SYS_close, SYS_accept4,
    SYS_connect, SYS_setsockopt, SYS_getsockopt, SYS_getsockname, SYS_shutdown, SYS_sendmsg, SYS_recvmsg, SYS_read,
    SYS_write, SYS_writev, SYS_readv, SYS_getpeername, SYS_clock_gettime, SYS_epoll_pwait, SYS_munmap, SYS_mremap,
    SYS_brk, SYS_madvise, SYS_futex, SYS_getrandom, SYS_fcntl, SYS_memfd_create, SYS_fstat, SYS_newfstatat,
    SYS_pread64, SYS_lseek, SYS_ftruncate, SYS_mlock, SYS_munlock, SYS_getpid, SYS_gettid, SYS_getuid, SYS_geteuid,
    SYS_getgid, SYS_getegid, SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_rt_sigaction, SYS_sigaltstack, SYS_tgkill,
    SYS_exit, SYS_exit_group, SYS_restart_syscall, SYS_sched_yield, SYS_sched_getaffinity, SYS_nanosleep,
    SYS_clock_nanosleep, SYS_gettimeofday, SYS_time, SYS_clock_getres, SYS_getrusage, SYS_rseq, SYS_set_robust_list,
    SYS_epoll_create1, SYS_timerfd_create, SYS_timerfd_settime, SYS_poll, SYS_ppoll, SYS_sysinfo, SYS_uname,
};
/* clang-format on */

/* What nothing here ever does: not an error to go on from. */
/* clang-format off */
static const unsigned short deadly[] = {
    SYS_execve, SYS_execveat, SYS_fork, SYS_vfork, SYS_clone, SYS_clone3, SYS_ptrace, SYS_process_vm_readv,
    SYS_process_vm_writev, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_setns, SYS_unshare,
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_bpf, SYS_keyctl, SYS_add_key,
    SYS_setuid, SYS_setresuid, SYS_open_by_handle_at, SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup,
    SYS_listen,
};
/* clang-format on */

/* socket() of the internet's families only; memory that is never executable. */
static void put_arguments(struct call_filter *filter)
{
    const struct sock_filter code[] = {
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 5), BPF_STMT(BPF_LD | BPF_W | BPF_ABS, CALL_ARG(0)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 1, 0),    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 1, 0),   BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, CALL_ARG(2)),       BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),   BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };

    call_filter_put(filter, code, ARRAY_SIZE(code));
}

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

static int drop_calls(struct brig_err *err)
{
    struct call_filter filter;

    call_filter_init(&filter);
    call_filter_calls(&filter, allowed, ARRAY_SIZE(allowed), SECCOMP_RET_ALLOW);
    call_filter_calls(&filter, deadly, ARRAY_SIZE(deadly), SECCOMP_RET_KILL_PROCESS);
    put_arguments(&filter);
#ifdef SANITIZED
    return 0; /* the sanitizer opens files and makes threads of its own */
#endif
    return call_filter_install(&filter, err);
}

int lockdown_serve(struct brig_err *err)
{
    int r = drop_ids(err);

    if (r == 0)
        r = drop_files(err);
    return r == 0 ? drop_calls(err) : r;
}
