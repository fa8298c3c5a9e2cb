/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRIG_JAIL_SECCOMP_TABLE_H
#define BRIG_JAIL_SECCOMP_TABLE_H
/*
 * seccomp_table.h: the answer of the filter to every x86-64 system call. This is the one place to read or change the
 * policy: the filter (tools/gen_seccomp.c), its unit test and the test that runs every number inside a sandbox
 * (tests/hostile/syscall_wall.c) are all made from it.
 *
 *   OK          allowed whatever the arguments, so that the kernel (since 5.11) answers from its bitmap
 *   RULE(x)     depends on the arguments: seccomp_rules.h
 *   E(ENOSYS)   the caller has a way to do without: new interfaces with a fallback, and calls whose
 *               arguments lie behind pointers a filter cannot follow (clone3, io_uring)
 *   E(EPERM)    classics that need a privilege no program here has
 *   E(EINVAL)   calls that move page cache pages by reference, where tools fall back to read and write
 *               (Dirty Pipe CVE-2022-0847, Copy Fail CVE-2026-31431, Dirty Frag); sendfile into a pipe
 *               is splice by another name
 *   E(0)        pretended: sync and syncfs would flush the whole machine's disks; fsync stays
 *
 * A number that is not here, which includes every call of a future kernel, gets ENOSYS. Another architecture, or x32
 * (bit 30 of the number), kills the process: nothing honest gets there, and i386's socketcall and x32's doubled numbers
 * are how filters were passed before.
 *
 * Kernels since 6.14 do not ask filters about uretprobe and uprobe at all: their one honest caller is the kernel's own
 * trampoline. What stands here is for the kernels before.
 *
 * Profile compat uses the filter of default (it differs in /proc only).
 */
#include "jail/seccomp_rules.h"

struct seccomp_row {
    int nr;
    const char *name;
    uint32_t normal; /* The answer in default and compat: SECCOMP_RET_*, or SECCOMP_TABLE_RULE | id. */
    uint32_t paranoid;
};

/* The filter never answers this, so it can mark "see the rule with this id". */
#define SECCOMP_TABLE_RULE SECCOMP_RET_TRACE
#define SECCOMP_TABLE_UNKNOWN SC_DENY(ENOSYS)
#define SECCOMP_TABLE_X32_BIT 0x40000000u

/* clang-format off */
#define OK         SC_ALLOW
#define E(e)       SC_DENY(e)
#define RULE(id)   (SECCOMP_TABLE_RULE | (uint32_t)SECCOMP_RULE_##id)
#define ROW(nr, name, normal, paranoid) { nr, #name, normal, paranoid }

static const struct seccomp_row seccomp_table[] = {
    /*  number, name,                  default and compat,       paranoid */
    ROW(  0, read,                    OK,                      OK),
    ROW(  1, write,                   OK,                      OK),
    ROW(  2, open,                    OK,                      RULE(OPEN1)),
    ROW(  3, close,                   OK,                      OK),
    ROW(  4, stat,                    OK,                      OK),
    ROW(  5, fstat,                   OK,                      OK),
    ROW(  6, lstat,                   OK,                      OK),
    ROW(  7, poll,                    OK,                      OK),
    ROW(  8, lseek,                   OK,                      OK),
    ROW(  9, mmap,                    RULE(MMAP),              RULE(MMAP)),
    ROW( 10, mprotect,                OK,                      OK),
    ROW( 11, munmap,                  OK,                      OK),
    ROW( 12, brk,                     OK,                      OK),
    ROW( 13, rt_sigaction,            OK,                      OK),
    ROW( 14, rt_sigprocmask,          OK,                      OK),
    ROW( 15, rt_sigreturn,            OK,                      OK),
    ROW( 16, ioctl,                   RULE(IOCTL),             RULE(IOCTL)),
    ROW( 17, pread64,                 OK,                      OK),
    ROW( 18, pwrite64,                OK,                      OK),
    ROW( 19, readv,                   OK,                      OK),
    ROW( 20, writev,                  OK,                      OK),
    ROW( 21, access,                  OK,                      OK),
    ROW( 22, pipe,                    OK,                      OK),
    ROW( 23, select,                  OK,                      OK),
    ROW( 24, sched_yield,             OK,                      OK),
    ROW( 25, mremap,                  OK,                      OK),
    ROW( 26, msync,                   OK,                      OK),
    ROW( 27, mincore,                 OK,                      OK),
    ROW( 28, madvise,                 RULE(MADVISE),           RULE(MADVISE)),
    ROW( 29, shmget,                  RULE(SHMGET),            E(ENOSYS)),
    ROW( 30, shmat,                   OK,                      E(ENOSYS)),
    ROW( 31, shmctl,                  OK,                      E(ENOSYS)),
    ROW( 32, dup,                     OK,                      OK),
    ROW( 33, dup2,                    OK,                      OK),
    ROW( 34, pause,                   OK,                      OK),
    ROW( 35, nanosleep,               OK,                      OK),
    ROW( 36, getitimer,               OK,                      OK),
    ROW( 37, alarm,                   OK,                      OK),
    ROW( 38, setitimer,               OK,                      OK),
    ROW( 39, getpid,                  OK,                      OK),
    ROW( 40, sendfile,                OK,                      E(EINVAL)),
    ROW( 41, socket,                  RULE(SOCKET),            RULE(SOCKET)),
    ROW( 42, connect,                 OK,                      OK),
    ROW( 43, accept,                  OK,                      OK),
    ROW( 44, sendto,                  OK,                      OK),
    ROW( 45, recvfrom,                OK,                      OK),
    ROW( 46, sendmsg,                 OK,                      OK),
    ROW( 47, recvmsg,                 OK,                      OK),
    ROW( 48, shutdown,                OK,                      OK),
    ROW( 49, bind,                    OK,                      OK),
    ROW( 50, listen,                  OK,                      OK),
    ROW( 51, getsockname,             OK,                      OK),
    ROW( 52, getpeername,             OK,                      OK),
    ROW( 53, socketpair,              RULE(SOCKETPAIR),        RULE(SOCKETPAIR)),
    ROW( 54, setsockopt,              RULE(SETSOCKOPT),        RULE(SETSOCKOPT)),
    ROW( 55, getsockopt,              OK,                      OK),
    ROW( 56, clone,                   RULE(CLONE),             RULE(CLONE)),
    ROW( 57, fork,                    OK,                      OK),
    ROW( 58, vfork,                   OK,                      OK),
    ROW( 59, execve,                  OK,                      OK),
    ROW( 60, exit,                    OK,                      OK),
    ROW( 61, wait4,                   OK,                      OK),
    ROW( 62, kill,                    OK,                      OK),
    ROW( 63, uname,                   OK,                      OK),
    ROW( 64, semget,                  OK,                      E(ENOSYS)),
    ROW( 65, semop,                   OK,                      E(ENOSYS)),
    ROW( 66, semctl,                  OK,                      E(ENOSYS)),
    ROW( 67, shmdt,                   OK,                      E(ENOSYS)),
    ROW( 68, msgget,                  OK,                      E(ENOSYS)),
    ROW( 69, msgsnd,                  OK,                      E(ENOSYS)),
    ROW( 70, msgrcv,                  OK,                      E(ENOSYS)),
    ROW( 71, msgctl,                  OK,                      E(ENOSYS)),
    ROW( 72, fcntl,                   RULE(FCNTL),             RULE(FCNTL)),
    ROW( 73, flock,                   OK,                      OK),
    ROW( 74, fsync,                   OK,                      OK),
    ROW( 75, fdatasync,               OK,                      OK),
    ROW( 76, truncate,                OK,                      OK),
    ROW( 77, ftruncate,               OK,                      OK),
    ROW( 78, getdents,                OK,                      OK),
    ROW( 79, getcwd,                  OK,                      OK),
    ROW( 80, chdir,                   OK,                      OK),
    ROW( 81, fchdir,                  OK,                      OK),
    ROW( 82, rename,                  OK,                      OK),
    ROW( 83, mkdir,                   OK,                      OK),
    ROW( 84, rmdir,                   OK,                      OK),
    ROW( 85, creat,                   OK,                      RULE(MODE1)),
    ROW( 86, link,                    OK,                      OK),
    ROW( 87, unlink,                  OK,                      OK),
    ROW( 88, symlink,                 OK,                      OK),
    ROW( 89, readlink,                OK,                      OK),
    ROW( 90, chmod,                   RULE(MODE1),             RULE(MODE1)),
    ROW( 91, fchmod,                  RULE(MODE1),             RULE(MODE1)),
    ROW( 92, chown,                   OK,                      OK),
    ROW( 93, fchown,                  OK,                      OK),
    ROW( 94, lchown,                  OK,                      OK),
    ROW( 95, umask,                   OK,                      OK),
    ROW( 96, gettimeofday,            OK,                      OK),
    ROW( 97, getrlimit,               OK,                      OK),
    ROW( 98, getrusage,               OK,                      OK),
    ROW( 99, sysinfo,                 OK,                      OK),
    ROW(100, times,                   OK,                      OK),
    ROW(101, ptrace,                  E(EPERM),                E(EPERM)),
    ROW(102, getuid,                  OK,                      OK),
    ROW(103, syslog,                  E(EPERM),                E(EPERM)),
    ROW(104, getgid,                  OK,                      OK),
    ROW(105, setuid,                  OK,                      OK),
    ROW(106, setgid,                  OK,                      OK),
    ROW(107, geteuid,                 OK,                      OK),
    ROW(108, getegid,                 OK,                      OK),
    ROW(109, setpgid,                 OK,                      OK),
    ROW(110, getppid,                 OK,                      OK),
    ROW(111, getpgrp,                 OK,                      OK),
    ROW(112, setsid,                  OK,                      OK),
    ROW(113, setreuid,                OK,                      OK),
    ROW(114, setregid,                OK,                      OK),
    ROW(115, getgroups,               OK,                      OK),
    ROW(116, setgroups,               OK,                      OK),
    ROW(117, setresuid,               OK,                      OK),
    ROW(118, getresuid,               OK,                      OK),
    ROW(119, setresgid,               OK,                      OK),
    ROW(120, getresgid,               OK,                      OK),
    ROW(121, getpgid,                 OK,                      OK),
    ROW(122, setfsuid,                E(EPERM),                E(EPERM)),
    ROW(123, setfsgid,                E(EPERM),                E(EPERM)),
    ROW(124, getsid,                  OK,                      OK),
    ROW(125, capget,                  OK,                      OK),
    ROW(126, capset,                  OK,                      OK),
    ROW(127, rt_sigpending,           OK,                      OK),
    ROW(128, rt_sigtimedwait,         OK,                      OK),
    ROW(129, rt_sigqueueinfo,         OK,                      OK),
    ROW(130, rt_sigsuspend,           OK,                      OK),
    ROW(131, sigaltstack,             OK,                      OK),
    ROW(132, utime,                   OK,                      OK),
    ROW(133, mknod,                   RULE(MKNOD1),            RULE(MKNOD1)),
    ROW(134, uselib,                  E(EPERM),                E(EPERM)),
    ROW(135, personality,             RULE(PERSONALITY),       RULE(PERSONALITY)),
    ROW(136, ustat,                   E(EPERM),                E(EPERM)),
    ROW(137, statfs,                  OK,                      OK),
    ROW(138, fstatfs,                 OK,                      OK),
    ROW(139, sysfs,                   E(EPERM),                E(EPERM)),
    ROW(140, getpriority,             OK,                      OK),
    ROW(141, setpriority,             RULE(SETPRIORITY),       RULE(SETPRIORITY)),
    ROW(142, sched_setparam,          E(EPERM),                E(EPERM)),
    ROW(143, sched_getparam,          OK,                      OK),
    ROW(144, sched_setscheduler,      E(EPERM),                E(EPERM)),
    ROW(145, sched_getscheduler,      OK,                      OK),
    ROW(146, sched_get_priority_max,  OK,                      OK),
    ROW(147, sched_get_priority_min,  OK,                      OK),
    ROW(148, sched_rr_get_interval,   OK,                      OK),
    ROW(149, mlock,                   OK,                      OK),
    ROW(150, munlock,                 OK,                      OK),
    ROW(151, mlockall,                E(EPERM),                E(EPERM)),
    ROW(152, munlockall,              OK,                      OK),
    ROW(153, vhangup,                 E(EPERM),                E(EPERM)),
    ROW(154, modify_ldt,              E(ENOSYS),               E(ENOSYS)),
    ROW(155, pivot_root,              E(EPERM),                E(EPERM)),
    ROW(156, _sysctl,                 E(EPERM),                E(EPERM)),
    ROW(157, prctl,                   RULE(PRCTL),             RULE(PRCTL)),
    ROW(158, arch_prctl,              OK,                      OK),
    ROW(159, adjtimex,                E(EPERM),                E(EPERM)),
    ROW(160, setrlimit,               OK,                      OK),
    ROW(161, chroot,                  E(EPERM),                E(EPERM)),
    ROW(162, sync,                    E(0),                    E(0)),
    ROW(163, acct,                    E(EPERM),                E(EPERM)),
    ROW(164, settimeofday,            E(EPERM),                E(EPERM)),
    ROW(165, mount,                   E(EPERM),                E(EPERM)),
    ROW(166, umount2,                 E(EPERM),                E(EPERM)),
    ROW(167, swapon,                  E(EPERM),                E(EPERM)),
    ROW(168, swapoff,                 E(EPERM),                E(EPERM)),
    ROW(169, reboot,                  E(EPERM),                E(EPERM)),
    ROW(170, sethostname,             E(EPERM),                E(EPERM)),
    ROW(171, setdomainname,           E(EPERM),                E(EPERM)),
    ROW(172, iopl,                    E(EPERM),                E(EPERM)),
    ROW(173, ioperm,                  E(EPERM),                E(EPERM)),
    ROW(174, create_module,           E(ENOSYS),               E(ENOSYS)),
    ROW(175, init_module,             E(EPERM),                E(EPERM)),
    ROW(176, delete_module,           E(EPERM),                E(EPERM)),
    ROW(177, get_kernel_syms,         E(ENOSYS),               E(ENOSYS)),
    ROW(178, query_module,            E(ENOSYS),               E(ENOSYS)),
    ROW(179, quotactl,                E(EPERM),                E(EPERM)),
    ROW(180, nfsservctl,              E(EPERM),                E(EPERM)),
    ROW(181, getpmsg,                 E(ENOSYS),               E(ENOSYS)),
    ROW(182, putpmsg,                 E(ENOSYS),               E(ENOSYS)),
    ROW(183, afs_syscall,             E(ENOSYS),               E(ENOSYS)),
    ROW(184, tuxcall,                 E(ENOSYS),               E(ENOSYS)),
    ROW(185, security,                E(ENOSYS),               E(ENOSYS)),
    ROW(186, gettid,                  OK,                      OK),
    ROW(187, readahead,               OK,                      OK),
    ROW(188, setxattr,                OK,                      OK),
    ROW(189, lsetxattr,               OK,                      OK),
    ROW(190, fsetxattr,               OK,                      OK),
    ROW(191, getxattr,                OK,                      OK),
    ROW(192, lgetxattr,               OK,                      OK),
    ROW(193, fgetxattr,               OK,                      OK),
    ROW(194, listxattr,               OK,                      OK),
    ROW(195, llistxattr,              OK,                      OK),
    ROW(196, flistxattr,              OK,                      OK),
    ROW(197, removexattr,             OK,                      OK),
    ROW(198, lremovexattr,            OK,                      OK),
    ROW(199, fremovexattr,            OK,                      OK),
    ROW(200, tkill,                   OK,                      OK),
    ROW(201, time,                    OK,                      OK),
    ROW(202, futex,                   OK,                      OK),
    ROW(203, sched_setaffinity,       RULE(SCHED_SETAFFINITY), RULE(SCHED_SETAFFINITY)),
    ROW(204, sched_getaffinity,       OK,                      OK),
    ROW(205, set_thread_area,         OK,                      OK),
    ROW(206, io_setup,                E(ENOSYS),               E(ENOSYS)),
    ROW(207, io_destroy,              E(ENOSYS),               E(ENOSYS)),
    ROW(208, io_getevents,            E(ENOSYS),               E(ENOSYS)),
    ROW(209, io_submit,               E(ENOSYS),               E(ENOSYS)),
    ROW(210, io_cancel,               E(ENOSYS),               E(ENOSYS)),
    ROW(211, get_thread_area,         OK,                      OK),
    ROW(212, lookup_dcookie,          E(EPERM),                E(EPERM)),
    ROW(213, epoll_create,            OK,                      OK),
    ROW(214, epoll_ctl_old,           E(ENOSYS),               E(ENOSYS)),
    ROW(215, epoll_wait_old,          E(ENOSYS),               E(ENOSYS)),
    ROW(216, remap_file_pages,        E(ENOSYS),               E(ENOSYS)),
    ROW(217, getdents64,              OK,                      OK),
    ROW(218, set_tid_address,         OK,                      OK),
    ROW(219, restart_syscall,         OK,                      OK),
    ROW(220, semtimedop,              OK,                      E(ENOSYS)),
    ROW(221, fadvise64,               RULE(FADVISE64),         RULE(FADVISE64)),
    ROW(222, timer_create,            OK,                      OK),
    ROW(223, timer_settime,           OK,                      OK),
    ROW(224, timer_gettime,           OK,                      OK),
    ROW(225, timer_getoverrun,        OK,                      OK),
    ROW(226, timer_delete,            OK,                      OK),
    ROW(227, clock_settime,           E(EPERM),                E(EPERM)),
    ROW(228, clock_gettime,           OK,                      OK),
    ROW(229, clock_getres,            OK,                      OK),
    ROW(230, clock_nanosleep,         OK,                      OK),
    ROW(231, exit_group,              OK,                      OK),
    ROW(232, epoll_wait,              OK,                      OK),
    ROW(233, epoll_ctl,               OK,                      OK),
    ROW(234, tgkill,                  OK,                      OK),
    ROW(235, utimes,                  OK,                      OK),
    ROW(236, vserver,                 E(ENOSYS),               E(ENOSYS)),
    ROW(237, mbind,                   E(EPERM),                E(EPERM)),
    ROW(238, set_mempolicy,           E(EPERM),                E(EPERM)),
    ROW(239, get_mempolicy,           E(EPERM),                E(EPERM)),
    ROW(240, mq_open,                 OK,                      E(ENOSYS)),
    ROW(241, mq_unlink,               OK,                      E(ENOSYS)),
    ROW(242, mq_timedsend,            OK,                      E(ENOSYS)),
    ROW(243, mq_timedreceive,         OK,                      E(ENOSYS)),
    ROW(244, mq_notify,               OK,                      E(ENOSYS)),
    ROW(245, mq_getsetattr,           OK,                      E(ENOSYS)),
    ROW(246, kexec_load,              E(EPERM),                E(EPERM)),
    ROW(247, waitid,                  OK,                      OK),
    ROW(248, add_key,                 E(ENOSYS),               E(ENOSYS)),
    ROW(249, request_key,             E(ENOSYS),               E(ENOSYS)),
    ROW(250, keyctl,                  E(ENOSYS),               E(ENOSYS)),
    ROW(251, ioprio_set,              E(EPERM),                E(EPERM)),
    ROW(252, ioprio_get,              OK,                      OK),
    ROW(253, inotify_init,            OK,                      OK),
    ROW(254, inotify_add_watch,       OK,                      OK),
    ROW(255, inotify_rm_watch,        OK,                      OK),
    ROW(256, migrate_pages,           E(EPERM),                E(EPERM)),
    ROW(257, openat,                  OK,                      RULE(OPEN2)),
    ROW(258, mkdirat,                 OK,                      OK),
    ROW(259, mknodat,                 RULE(MKNOD2),            RULE(MKNOD2)),
    ROW(260, fchownat,                OK,                      OK),
    ROW(261, futimesat,               OK,                      OK),
    ROW(262, newfstatat,              OK,                      OK),
    ROW(263, unlinkat,                OK,                      OK),
    ROW(264, renameat,                OK,                      OK),
    ROW(265, linkat,                  OK,                      OK),
    ROW(266, symlinkat,               OK,                      OK),
    ROW(267, readlinkat,              OK,                      OK),
    ROW(268, fchmodat,                RULE(MODE2),             RULE(MODE2)),
    ROW(269, faccessat,               OK,                      OK),
    ROW(270, pselect6,                OK,                      OK),
    ROW(271, ppoll,                   OK,                      OK),
    ROW(272, unshare,                 E(EPERM),                E(EPERM)),
    ROW(273, set_robust_list,         OK,                      OK),
    ROW(274, get_robust_list,         OK,                      OK),
    ROW(275, splice,                  OK,                      E(EINVAL)),
    ROW(276, tee,                     OK,                      E(EINVAL)),
    ROW(277, sync_file_range,         OK,                      OK),
    ROW(278, vmsplice,                E(ENOSYS),               E(EINVAL)),
    ROW(279, move_pages,              E(EPERM),                E(EPERM)),
    ROW(280, utimensat,               OK,                      OK),
    ROW(281, epoll_pwait,             OK,                      OK),
    ROW(282, signalfd,                OK,                      OK),
    ROW(283, timerfd_create,          OK,                      OK),
    ROW(284, eventfd,                 OK,                      OK),
    ROW(285, fallocate,               OK,                      OK),
    ROW(286, timerfd_settime,         OK,                      OK),
    ROW(287, timerfd_gettime,         OK,                      OK),
    ROW(288, accept4,                 OK,                      OK),
    ROW(289, signalfd4,               OK,                      OK),
    ROW(290, eventfd2,                OK,                      OK),
    ROW(291, epoll_create1,           OK,                      OK),
    ROW(292, dup3,                    OK,                      OK),
    ROW(293, pipe2,                   OK,                      OK),
    ROW(294, inotify_init1,           OK,                      OK),
    ROW(295, preadv,                  OK,                      OK),
    ROW(296, pwritev,                 OK,                      OK),
    ROW(297, rt_tgsigqueueinfo,       OK,                      OK),
    ROW(298, perf_event_open,         E(EPERM),                E(EPERM)),
    ROW(299, recvmmsg,                OK,                      OK),
    ROW(300, fanotify_init,           E(EPERM),                E(EPERM)),
    ROW(301, fanotify_mark,           E(EPERM),                E(EPERM)),
    ROW(302, prlimit64,               RULE(PRLIMIT64),         RULE(PRLIMIT64)),
    ROW(303, name_to_handle_at,       E(ENOSYS),               E(ENOSYS)),
    ROW(304, open_by_handle_at,       E(ENOSYS),               E(ENOSYS)),
    ROW(305, clock_adjtime,           E(EPERM),                E(EPERM)),
    ROW(306, syncfs,                  E(0),                    E(0)),
    ROW(307, sendmmsg,                OK,                      OK),
    ROW(308, setns,                   E(EPERM),                E(EPERM)),
    ROW(309, getcpu,                  OK,                      OK),
    ROW(310, process_vm_readv,        E(EPERM),                E(EPERM)),
    ROW(311, process_vm_writev,       E(EPERM),                E(EPERM)),
    ROW(312, kcmp,                    E(EPERM),                E(EPERM)),
    ROW(313, finit_module,            E(EPERM),                E(EPERM)),
    ROW(314, sched_setattr,           E(EPERM),                E(EPERM)),
    ROW(315, sched_getattr,           OK,                      OK),
    ROW(316, renameat2,               OK,                      OK),
    ROW(317, seccomp,                 RULE(SECCOMP),           RULE(SECCOMP)),
    ROW(318, getrandom,               OK,                      OK),
    ROW(319, memfd_create,            RULE(MEMFD_CREATE),      RULE(MEMFD_CREATE)),
    ROW(320, kexec_file_load,         E(EPERM),                E(EPERM)),
    ROW(321, bpf,                     E(EPERM),                E(EPERM)),
    ROW(322, execveat,                OK,                      OK),
    ROW(323, userfaultfd,             E(ENOSYS),               E(ENOSYS)),
    ROW(324, membarrier,              OK,                      OK),
    ROW(325, mlock2,                  OK,                      OK),
    ROW(326, copy_file_range,         OK,                      OK),
    ROW(327, preadv2,                 RULE(PREADV2),           RULE(PREADV2)),
    ROW(328, pwritev2,                OK,                      OK),
    ROW(329, pkey_mprotect,           OK,                      OK),
    ROW(330, pkey_alloc,              OK,                      OK),
    ROW(331, pkey_free,               OK,                      OK),
    ROW(332, statx,                   OK,                      OK),
    ROW(333, io_pgetevents,           E(ENOSYS),               E(ENOSYS)),
    ROW(334, rseq,                    OK,                      OK),
    ROW(335, uretprobe,               E(ENOSYS),               E(ENOSYS)),
    ROW(336, uprobe,                  E(ENOSYS),               E(ENOSYS)),

    /* 337 to 423 are not used on x86-64 */
    ROW(424, pidfd_send_signal,       OK,                      OK),
    ROW(425, io_uring_setup,          E(ENOSYS),               E(ENOSYS)),
    ROW(426, io_uring_enter,          E(ENOSYS),               E(ENOSYS)),
    ROW(427, io_uring_register,       E(ENOSYS),               E(ENOSYS)),
    ROW(428, open_tree,               E(ENOSYS),               E(ENOSYS)),
    ROW(429, move_mount,              E(ENOSYS),               E(ENOSYS)),
    ROW(430, fsopen,                  E(ENOSYS),               E(ENOSYS)),
    ROW(431, fsconfig,                E(ENOSYS),               E(ENOSYS)),
    ROW(432, fsmount,                 E(ENOSYS),               E(ENOSYS)),
    ROW(433, fspick,                  E(ENOSYS),               E(ENOSYS)),
    ROW(434, pidfd_open,              OK,                      OK),
    ROW(435, clone3,                  E(ENOSYS),               E(ENOSYS)),
    ROW(436, close_range,             OK,                      OK),
    ROW(437, openat2,                 OK,                      E(ENOSYS)),
    ROW(438, pidfd_getfd,             E(EPERM),                E(EPERM)),
    ROW(439, faccessat2,              OK,                      OK),
    ROW(440, process_madvise,         E(ENOSYS),               E(ENOSYS)),
    ROW(441, epoll_pwait2,            OK,                      OK),
    ROW(442, mount_setattr,           E(ENOSYS),               E(ENOSYS)),
    ROW(443, quotactl_fd,             E(EPERM),                E(EPERM)),
    ROW(444, landlock_create_ruleset, OK,                      OK),
    ROW(445, landlock_add_rule,       OK,                      OK),
    ROW(446, landlock_restrict_self,  OK,                      OK),
    ROW(447, memfd_secret,            E(ENOSYS),               E(ENOSYS)),
    ROW(448, process_mrelease,        E(ENOSYS),               E(ENOSYS)),
    ROW(449, futex_waitv,             OK,                      OK),
    ROW(450, set_mempolicy_home_node, E(EPERM),                E(EPERM)),

    /* newer than the headers of Debian 12 */
    ROW(451, cachestat,               E(ENOSYS),               E(ENOSYS)),
    ROW(452, fchmodat2,               RULE(MODE2),             RULE(MODE2)),
    ROW(453, map_shadow_stack,        OK,                      OK),
    ROW(454, futex_wake,              OK,                      OK),
    ROW(455, futex_wait,              OK,                      OK),
    ROW(456, futex_requeue,           OK,                      OK),
    ROW(457, statmount,               E(ENOSYS),               E(ENOSYS)),
    ROW(458, listmount,               E(ENOSYS),               E(ENOSYS)),
    ROW(459, lsm_get_self_attr,       E(ENOSYS),               E(ENOSYS)),
    ROW(460, lsm_set_self_attr,       E(ENOSYS),               E(ENOSYS)),
    ROW(461, lsm_list_modules,        E(ENOSYS),               E(ENOSYS)),
    ROW(462, mseal,                   OK,                      OK),
    ROW(463, setxattrat,              OK,                      OK),
    ROW(464, getxattrat,              OK,                      OK),
    ROW(465, listxattrat,             OK,                      OK),
    ROW(466, removexattrat,           OK,                      OK),
    ROW(467, open_tree_attr,          E(ENOSYS),               E(ENOSYS)),
    ROW(468, file_getattr,            E(ENOSYS),               E(ENOSYS)),
    ROW(469, file_setattr,            E(ENOSYS),               E(ENOSYS)),
    ROW(470, listns,                  E(ENOSYS),               E(ENOSYS)),
    ROW(471, rseq_slice_yield,        E(ENOSYS),               E(ENOSYS)),
};
#undef OK
#undef E
#undef RULE
#undef ROW
/* clang-format on */

#define SECCOMP_TABLE_ROWS (sizeof(seccomp_table) / sizeof(seccomp_table[0]))

/* Returns the row of a call of this architecture, or NULL for a number that the table does not know. */
static inline const struct seccomp_row *seccomp_table_row(int nr)
{
    for (size_t i = 0; i < SECCOMP_TABLE_ROWS; i++)
        if (seccomp_table[i].nr == nr)
            return &seccomp_table[i];
    return NULL;
}

/*
 * The filters. SET_IDS is that of default for a sandbox with root inside that has nothing of the host to write to:
 * package managers set set-id bits, nosuid and no_new_privs make them inert, and the files die with the sandbox or
 * become a layer. KVM is that of default with the ioctls of a monitor instead of a program's, for a sandbox that has
 * /dev/kvm.
 */
enum seccomp_filter {
    SECCOMP_FILTER_NORMAL,
    SECCOMP_FILTER_PARANOID,
    SECCOMP_FILTER_SET_IDS,
    SECCOMP_FILTER_KVM,
    SECCOMP_FILTER_MAX
};

static inline uint32_t seccomp_row_verdict(const struct seccomp_row *row, enum seccomp_filter filter)
{
    const uint32_t mode1 = SECCOMP_TABLE_RULE | (uint32_t)SECCOMP_RULE_MODE1;
    const uint32_t mode2 = SECCOMP_TABLE_RULE | (uint32_t)SECCOMP_RULE_MODE2;

    if (filter == SECCOMP_FILTER_PARANOID)
        return row->paranoid;
    if (filter == SECCOMP_FILTER_KVM && row->normal == (SECCOMP_TABLE_RULE | (uint32_t)SECCOMP_RULE_IOCTL))
        return SECCOMP_TABLE_RULE | (uint32_t)SECCOMP_RULE_IOCTL_KVM;
    return filter == SECCOMP_FILTER_SET_IDS && (row->normal == mode1 || row->normal == mode2) ? SC_ALLOW : row->normal;
}

static inline uint32_t seccomp_table_judge(enum seccomp_filter filter, int nr, const uint64_t args[6])
{
    const struct seccomp_row *row = seccomp_table_row(nr);
    uint32_t verdict;

    if (!row)
        return SECCOMP_TABLE_UNKNOWN;
    verdict = seccomp_row_verdict(row, filter);
    if ((verdict & SECCOMP_RET_ACTION_FULL) == SECCOMP_TABLE_RULE)
        return seccomp_rule_judge(&seccomp_rules[verdict & SECCOMP_RET_DATA], args);
    return verdict;
}

#endif
