/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel wall: asks the real kernel, from inside a sandbox, every system call number there is
 * and some there are not, and compares each answer with src/jail/seccomp_table.h.
 *
 *      syscall_wall PROFILE              inside a sandbox of that profile
 *      syscall_wall --install PROFILE    anywhere; each probe puts the filter on itself first
 *
 * Every probe runs in a child of its own and leaves its result in a shared page, because some calls
 * end the caller and the wrong answer may be death. Arguments are chosen so that a call which gets
 * past the filter fails on them (-1 is a bad descriptor, address, flag word and id at once) with an
 * error the filter would not have given, or succeeds without effect. So:
 *
 *      allowed    anything but the filter's own refusals, and not SIGSYS
 *      refused    exactly the errno of the table
 *      killed     SIGSYS
 *
 * Without a filter, hundreds of lines disagree; the harness runs that too, to see that this bites.
 * Prints a line per disagreement, then "wall: N checked, M mismatches"; exit status 0 if M is 0.
 */

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jail/seccomp.h"
#include "jail/seccomp_table.h"

#define M1 UINT64_MAX
#define HIGH (0xa5a5a5a5ull << 32)

struct result {
    volatile int done;
    volatile long ret;
    volatile int install_error;
};

static struct result *shared;
static enum seccomp_filter filter;
static bool install, set_ids;
static enum jail_profile profile;
static unsigned checked, mismatches, absent;

/* ---- one probe ------------------------------------------------------------------------------- */

enum entry { ENTRY_SYSCALL, ENTRY_INT80 };

struct probe {
    enum entry entry;
    uint64_t nr; /* all of rax */
    uint64_t args[6];
};

static inline __attribute__((always_inline)) long raw(uint64_t nr, const uint64_t a[6])
{
    register uint64_t r10 __asm__("r10") = a[3];
    register uint64_t r8 __asm__("r8") = a[4];
    register uint64_t r9 __asm__("r9") = a[5];
    long ret;

    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}

static long raw_int80(uint64_t nr, const uint64_t a[6])
{
    long ret;

    __asm__ volatile("int $0x80"
                     : "=a"(ret)
                     : "a"(nr), "b"(a[0]), "c"(a[1]), "d"(a[2]), "S"(a[3]), "D"(a[4])
                     : "r8", "r9", "r10", "r11", "memory");
    return (long)(int)ret;
}

static void on_alarm(int sig)
{
    (void)sig;
}

static void arm_timer(long usec)
{
    const struct itimerval soon = {.it_value = {.tv_sec = usec / 1000000, .tv_usec = usec % 1000000}};

    if (setitimer(ITIMER_REAL, &soon, NULL))
        _exit(3);
}

/* The child. Nothing after the probe may depend on a call the filter could refuse but exit_group. */
static _Noreturn void child(const struct probe *p)
{
    static const uint64_t zero[6];
    long ret;

    if (install) {
        int rc = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -errno : jail_seccomp_install(profile, set_ids);

        if (rc) {
            shared->install_error = -rc;
            _exit(3);
        }
    }
    if (p->entry == ENTRY_SYSCALL && p->nr == SYS_vhangup)
        setsid(); /* so that there is no terminal to hang up when nothing stops it */
    if (p->entry == ENTRY_SYSCALL && p->nr == SYS_pause) {
        const struct sigaction sa = {.sa_handler = on_alarm};

        sigaction(SIGALRM, &sa, NULL);
        arm_timer(20000);
    } else {
        arm_timer(5000000); /* a call that blocks is killed by SIGALRM, which is an answer too */
    }
    ret = p->entry == ENTRY_INT80 ? raw_int80(p->nr, p->args) : raw(p->nr, p->args);
    if (ret == 0 && (p->nr == SYS_fork || p->nr == SYS_vfork))
        raw(SYS_exit_group, zero); /* the grandchild; with vfork on our stack, so it returns nowhere */
    shared->ret = ret;
    shared->done = 1;
    raw(SYS_exit_group, zero);
    __builtin_trap();
}

/* The wait status of the child; its result is in *shared. */
static int run(const struct probe *p)
{
    int status;
    pid_t pid;

    memset(shared, 0, sizeof *shared);
    pid = fork();
    if (pid < 0) {
        perror("fork");
        exit(2);
    }
    if (pid == 0)
        child(p);
    while (waitpid(pid, &status, 0) != pid)
        if (errno != EINTR) {
            perror("waitpid");
            exit(2);
        }
    if (shared->install_error) {
        fprintf(stderr, "cannot install the filter: %s\n", strerror(shared->install_error));
        exit(2);
    }
    return status;
}

/* ---- judging --------------------------------------------------------------------------------- */

static void describe(uint32_t verdict, char *buf, size_t size)
{
    uint32_t e = verdict & SECCOMP_RET_DATA;

    if (verdict == SECCOMP_RET_ALLOW)
        snprintf(buf, size, "allowed");
    else if (verdict == SECCOMP_RET_KILL_PROCESS)
        snprintf(buf, size, "killed");
    else
        snprintf(buf, size, "%s", e ? strerrorname_np((int)e) : "pretended success");
}

static void report(const char *name, const struct probe *p, uint32_t want, int status)
{
    char wanted[32], got[64];

    describe(want, wanted, sizeof wanted);
    if (shared->done && shared->ret < 0 && shared->ret >= -4095)
        snprintf(got, sizeof got, "%s", strerrorname_np((int)-shared->ret));
    else if (shared->done)
        snprintf(got, sizeof got, "result %#lx", (unsigned long)shared->ret);
    else if (WIFSIGNALED(status))
        snprintf(got, sizeof got, "death by %s", sigabbrev_np(WTERMSIG(status)));
    else
        snprintf(got, sizeof got, "exit %d", WEXITSTATUS(status));
    printf("mismatch: %s%s %#llx (%#llx, %#llx, %#llx, %#llx): table says %s, kernel says %s\n", name,
           p->entry == ENTRY_INT80 ? " int80" : "", (unsigned long long)p->nr, (unsigned long long)p->args[0],
           (unsigned long long)p->args[1], (unsigned long long)p->args[2], (unsigned long long)p->args[3], wanted, got);
    mismatches++;
}

/* Calls that answer EPERM themselves to a program without privileges, or ENOSYS because x86-64 or
 * this kernel's configuration lacks them: an answer that says nothing about the filter. */
static bool own_refusal(uint64_t nr, long ret)
{
    if (ret == -EPERM)
        return nr == SYS_setgroups || nr == SYS_mlock;
    switch (nr) {
    case SYS_set_thread_area: /* i386 only, in spite of their numbers */
    case SYS_get_thread_area:
    case SYS_mq_open ... SYS_mq_getsetattr:
    case SYS_shmget ... SYS_shmctl:
    case SYS_semget ... SYS_semctl:
    case SYS_shmdt ... SYS_msgctl:
    case SYS_pkey_mprotect ... SYS_pkey_free: return true;
    default: return nr >= SYS_landlock_create_ruleset;
    }
}

static bool rule_refuses_with(uint64_t nr, long ret)
{
    const struct seccomp_row *row = seccomp_table_row((int)nr);
    uint32_t v = row ? seccomp_row_verdict(row, filter) : 0;
    const struct seccomp_rule *rule;

    if (!row || (v & SECCOMP_RET_ACTION_FULL) != SECCOMP_TABLE_RULE)
        return false;
    rule = &seccomp_rules[v & SECCOMP_RET_DATA];
    for (size_t i = 0; i < rule->count; i++)
        if (rule->clauses[i].verdict == SC_DENY(-ret))
            return true;
    return false;
}

static bool as_allowed(const struct probe *p, int status)
{
    if (!shared->done) {
        if (p->nr == SYS_exit || p->nr == SYS_exit_group)
            return WIFEXITED(status) && WEXITSTATUS(status) == 255;
        if (p->nr == SYS_rt_sigreturn)
            return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
        return false;
    }
    if (shared->ret >= 0)
        return true;
    if (shared->ret == -EPERM || shared->ret == -ENOSYS) {
        if (!own_refusal(p->nr, shared->ret))
            return false;
        absent++;
        return true;
    }
    return !rule_refuses_with(p->nr, shared->ret);
}

/*
 * Since 6.14 the kernel does not ask filters about uretprobe, and later uprobe: their only honest
 * caller is a trampoline the kernel itself put there, which a filter used to kill. From anywhere
 * else they do nothing but fail in these ways.
 */
static bool past_all_filters(const struct probe *p, int status)
{
    if (p->entry != ENTRY_SYSCALL)
        return false;
    if (p->nr == 335)
        return !shared->done && WIFSIGNALED(status) && WTERMSIG(status) == SIGILL;
    return p->nr == 336 && shared->done && shared->ret == -ENXIO;
}

static void check(const char *name, const struct probe *p, uint32_t want)
{
    int status = run(p);
    bool good;

    checked++;
    if (want == SECCOMP_RET_ALLOW)
        good = as_allowed(p, status);
    else if (want == SECCOMP_RET_KILL_PROCESS)
        good = !shared->done && WIFSIGNALED(status) &&
               (WTERMSIG(status) == SIGSYS ||
                /* int 0x80 in a kernel without 32-bit support: not even a system call */
                (p->entry == ENTRY_INT80 && WTERMSIG(status) == SIGSEGV));
    else
        good = shared->done && shared->ret == -(long)(want & SECCOMP_RET_DATA);
    if (!good && !past_all_filters(p, status))
        report(name, p, want, status);
}

/* ---- numbers whose answer does not depend on arguments --------------------------------------- */

/* Where -1 everywhere would not tell the filter from the kernel, or would do something. */
static const struct probe special[] = {
    /* unknown operations are ENOSYS to futex, EINVAL to splice and friends, ENOSYS to modify_ldt */
    {ENTRY_SYSCALL, SYS_futex, {0, 1, 1, 0, 0, 0}},
    {ENTRY_SYSCALL, SYS_modify_ldt, {0, M1, 1}},
    {ENTRY_SYSCALL, SYS_splice, {M1, 0, M1, 0, 1, 0}},
    {ENTRY_SYSCALL, SYS_tee, {M1, M1, 1, 0}},
    {ENTRY_SYSCALL, SYS_vmsplice, {M1, 0, 1, 0}},
    {ENTRY_SYSCALL, SYS_sendfile, {M1, M1, 0, 1}},
    {ENTRY_SYSCALL, SYS_kill, {0x7ffffffe, 0}},
    {ENTRY_SYSCALL, SYS_msgget, {0x62726967, 0}}, /* -1 would create a queue */
};

static void check_number(int nr)
{
    struct probe p = {ENTRY_SYSCALL, (uint64_t)nr, {M1, M1, M1, M1, M1, M1}};
    const struct seccomp_row *row = seccomp_table_row(nr);
    uint32_t want = row ? seccomp_row_verdict(row, filter) : SECCOMP_TABLE_UNKNOWN;

    if ((want & SECCOMP_RET_ACTION_FULL) == SECCOMP_TABLE_RULE)
        return; /* check_rules() */
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++)
        if (special[i].nr == (uint64_t)nr)
            p = special[i];
    check(row ? row->name : "unknown", &p, want);
}

/* ---- argument rules -------------------------------------------------------------------------- */

static unsigned rule_allowed[SECCOMP_RULE_MAX], rule_refused[SECCOMP_RULE_MAX];

/* The arguments that the rule looks at until it has its answer to these. */
static unsigned looked_at(const struct seccomp_rule *rule, const uint64_t args[6])
{
    unsigned judged = 0;

    for (size_t i = 0; i < rule->count; i++) {
        const struct seccomp_clause *clause = &rule->clauses[i];
        uint32_t k;

        for (k = 0; k < clause->conds; k++) {
            const struct seccomp_cond *c = &clause->cond[k];
            uint32_t v = (uint32_t)args[c->arg] & c->mask;

            judged |= 1u << c->arg;
            if (v < c->min || v > c->max)
                break;
        }
        if (k == clause->conds)
            break;
    }
    return judged;
}

/* Once as given and once with dirt in the upper half of every argument the rule looks at. */
static void check_rule6(struct probe p)
{
    int nr = (int)p.nr;
    const struct seccomp_row *row = seccomp_table_row(nr);
    uint32_t v = seccomp_row_verdict(row, filter);
    uint32_t want = seccomp_table_judge(filter, nr, p.args);
    const struct seccomp_rule *rule;
    unsigned judged;

    if ((v & SECCOMP_RET_ACTION_FULL) != SECCOMP_TABLE_RULE)
        return;
    rule = &seccomp_rules[v & SECCOMP_RET_DATA];
    if (want == SECCOMP_RET_ALLOW)
        rule_allowed[v & SECCOMP_RET_DATA]++;
    else
        rule_refused[v & SECCOMP_RET_DATA]++;
    check(row->name, &p, want);
    judged = looked_at(rule, p.args);
    for (int k = 0; k < 6; k++)
        if (judged & (1u << k))
            p.args[k] |= HIGH;
    check(row->name, &p, want);
}

static void check_rule(int nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3)
{
    check_rule6((struct probe){ENTRY_SYSCALL, (uint64_t)nr, {a0, a1, a2, a3, 0, 0}});
}

/* A call with its flags in the last argument, on a descriptor that is none. */
static void check_flags5(int nr, uint64_t flags)
{
    check_rule6((struct probe){ENTRY_SYSCALL, (uint64_t)nr, {M1, 0, 0, 0, 0, flags}});
}

/* Both sides of every boundary of a rule over one argument, on a descriptor that is none. */
static void check_boundaries(int nr, enum seccomp_rule_id id)
{
    const struct seccomp_rule *rule = &seccomp_rules[id];

    for (size_t i = 0; i + 1 < rule->count; i++) {
        const struct seccomp_cond *c = &rule->clauses[i].cond[0];

        check_rule(nr, M1, c->min, 0, 0);
        check_rule(nr, M1, (uint32_t)(c->min - 1), 0, 0);
        if (c->max != c->min)
            check_rule(nr, M1, c->max, 0, 0);
        check_rule(nr, M1, (uint32_t)(c->max + 1), 0, 0);
    }
}

static void check_sockets(void)
{
    static const uint32_t levels[] = {0, 1, 6, 17, 41, 58, 270, 279, 282, UINT32_MAX};
    static const uint16_t protocols[] = {0, 1, 6, 12, 15, 16, 17, 58, 132, 136, 255, 256, 262};

    for (uint32_t family = 0; family <= 46; family++) {
        /* AF_INET6 may be off in the kernel, which then answers like the filter does */
        for (uint32_t type = 1; type <= 10 && family != 10; type++)
            check_rule(SYS_socketpair, family, type, 0, 0);
        for (size_t i = 0; i < sizeof protocols / sizeof protocols[0]; i++) {
            uint64_t args[6] = {family, 1, protocols[i]};

            for (args[1] = 1; args[1] <= 10; args[1]++) {
                bool live = family == 2 || family == 10 || family == 16;
                uint32_t want = seccomp_table_judge(filter, SYS_socket, args);

                if (!live && i > 2)
                    continue;
                /* allowed but perhaps not there, with the same errno: IPv6, netlink in odd kernels */
                if (want == SECCOMP_RET_ALLOW && family != 1 && family != 2)
                    continue;
                check_rule(SYS_socket, args[0], args[1], args[2], 0);
            }
        }
    }
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        for (uint32_t opt = 0; opt <= 104; opt++)
            check_rule(SYS_setsockopt, M1, levels[i], opt, 0);
        check_rule(SYS_setsockopt, M1, levels[i], 200, 0);
        check_rule(SYS_setsockopt, M1, levels[i], UINT32_MAX, 0);
    }
}

static void check_modes(void)
{
    static const uint32_t modes[] = {
        0,       0755,    01777,   02755,   04755,   06755,   0100644,    0104755,           0010644,
        0140644, 0020644, 0060644, 0040755, 0120777, 0170644, 0x10020644, 0x70000000 | 04755};

    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        check_rule(SYS_chmod, M1, modes[i], 0, 0);
        check_rule(SYS_fchmod, M1, modes[i], 0, 0);
        check_rule(SYS_fchmodat, M1, M1, modes[i], 0);
        check_rule(SYS_mknod, M1, modes[i], 0, 0);
        check_rule(SYS_mknodat, M1, M1, modes[i], 0);
        check_rule(SYS_creat, M1, modes[i], 0, 0);
        check_rule(SYS_open, M1, 0, modes[i], 0);
        check_rule(SYS_open, M1, 0x41, modes[i], 0);
        check_rule(SYS_openat, M1, M1, 0, modes[i]);
        check_rule(SYS_openat, M1, M1, 0x410002, modes[i]);
        if (seccomp_table_judge(filter, 452, (uint64_t[6]){M1, M1, modes[i]}) != SC_ALLOW)
            check_rule(452, M1, M1, modes[i], 0); /* fchmodat2 is not in every kernel */
    }
}

static void check_processes(void)
{
    static char name[] = "wall";

    /* CLONE_SIGHAND without CLONE_VM: EINVAL to the kernel, so nothing is ever born here */
    check_rule(SYS_clone, 0x800, 0, 0, 0);
    check_rule(SYS_clone, 0x80000800, 0, 0, 0);
    for (int bit = 0; bit < 32; bit++)
        if (0x7e020080u & (1u << bit))
            check_rule(SYS_clone, 0x800u | (1u << bit), 0, 0, 0);
    check_rule(SYS_clone, 0xc00, 0, 0, 0);   /* with CLONE_FILES */
    check_rule(SYS_clone, 0x10c00, 0, 0, 0); /* and of a thread, which EINVAL stops too: it has no CLONE_VM */

    check_rule(SYS_prctl, PR_SET_PDEATHSIG, 0, 0, 0);
    check_rule(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0);
    check_rule(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0);
    check_rule(SYS_prctl, PR_SET_NAME, (uint64_t)(uintptr_t)name, 0, 0);
    check_rule(SYS_prctl, PR_CAPBSET_READ, 0, 0, 0);
    check_rule(SYS_prctl, PR_SET_CHILD_SUBREAPER, 0, 0, 0);
    check_rule(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0);
    check_rule(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 0, 0);
    check_rule(SYS_prctl, PR_SET_SECCOMP, 2, 0, 0);
    check_rule(SYS_prctl, PR_SET_SECUREBITS, 0, 0, 0);
    check_rule(SYS_prctl, PR_SET_MM, 0, 0, 0);
    check_rule(SYS_prctl, 57, M1, 0, 0); /* PR_SET_IO_FLUSHER */
    check_rule(SYS_prctl, 62, M1, 0, 0); /* PR_SCHED_CORE */
    check_rule(SYS_prctl, 67, M1, 0, 0); /* PR_SET_MEMORY_MERGE */
    check_rule(SYS_prctl, PR_SET_PTRACER, 0, 0, 0);
    check_rule(SYS_prctl, 0x7fffffff, 0, 0, 0);

    for (uint32_t advice = 0; advice <= 25; advice++) {
        uint64_t args[6] = {0, 0, advice};

        /* advice this kernel does not know is EINVAL as well */
        if (advice <= 4 || seccomp_table_judge(filter, SYS_madvise, args) != SC_ALLOW)
            check_rule(SYS_madvise, 0, 0, advice, 0);
    }

    check_rule(SYS_personality, 0, 0, 0, 0);
    check_rule(SYS_personality, UINT32_MAX, 0, 0, 0);
    check_rule(SYS_personality, 0x40000, 0, 0, 0);  /* ADDR_NO_RANDOMIZE */
    check_rule(SYS_personality, 0x400000, 0, 0, 0); /* READ_IMPLIES_EXEC */
    check_rule(SYS_personality, 8, 0, 0, 0);

    for (uint64_t op = 0; op <= 4; op++)
        for (uint64_t flags = 0; flags < 64; flags++)
            if (op != 2 || flags == 0) /* the kernel's own answer to other flags is EINVAL too */
                check_rule(SYS_seccomp, op, flags, 0, 0);

    check_rule(SYS_prlimit64, 0, UINT32_MAX, 0, 0);
    check_rule(SYS_prlimit64, 1, RLIMIT_NOFILE, 0, 0);
    check_rule(SYS_prlimit64, 0x7ffffffe, RLIMIT_NOFILE, 0, 0);
    check_rule(SYS_prlimit64, (uint32_t)getpid(), RLIMIT_NOFILE, 0, 0);
    check_rule(SYS_sched_setaffinity, 0, 0, 0, 0);
    check_rule(SYS_sched_setaffinity, 0x7ffffffe, 0, 0, 0);
    check_rule(SYS_sched_setaffinity, 1, 0, 0, 0);
    check_rule(SYS_setpriority, 0, 0x7ffffffe, 0, 0);
    check_rule(SYS_setpriority, 0, 0, 0, 0);
    check_rule(SYS_setpriority, 0, 1, (uint64_t)getpriority(PRIO_PROCESS, 1), 0); /* as it is */
    check_rule(SYS_setpriority, 1, 0x7ffffffe, 0, 0);
    check_rule(SYS_setpriority, 2, 0x7ffffffe, 0, 0);
    check_rule(SYS_setpriority, 3, 0, 0, 0);
}

/* What the whole host shares: huge pages, the page cache. */
static void check_memory(void)
{
    static const uint64_t advice[] = {0, 1, 2, 3, 4, 5};

    check_rule(SYS_mmap, 0, 0, 0, 0x22); /* a length of 0 is EINVAL to the kernel */
    check_rule(SYS_mmap, 0, 0, 0, 0x40022);
    check_rule(SYS_mmap, 0, 0, 0, 0x40001);
    check_rule(SYS_shmget, 0x62726967, 1, 0, 0);
    check_rule(SYS_shmget, 0x62726967, 1, 04000, 0);
    check_rule(SYS_memfd_create, M1, 0, 0, 0); /* a bad address to the kernel */
    check_rule(SYS_memfd_create, M1, 4, 0, 0);
    for (size_t i = 0; i < sizeof advice / sizeof advice[0]; i++)
        check_rule(SYS_fadvise64, M1, 0, 0, advice[i]);
    check_flags5(SYS_preadv2, 0);
    check_flags5(SYS_preadv2, 8);
    check_flags5(SYS_preadv2, 0x80);
}

static void check_rules(void)
{
    check_memory();
    check_boundaries(SYS_ioctl, SECCOMP_RULE_IOCTL);
    check_boundaries(SYS_fcntl, SECCOMP_RULE_FCNTL);
    check_sockets();
    check_modes();
    check_processes();

    /* A rule in the table of this profile that nothing above asked from both sides is a hole here. */
    for (size_t i = 0; i < SECCOMP_TABLE_ROWS; i++) {
        uint32_t v = seccomp_row_verdict(&seccomp_table[i], filter);
        uint32_t id = v & SECCOMP_RET_DATA;

        if ((v & SECCOMP_RET_ACTION_FULL) != SECCOMP_TABLE_RULE)
            continue;
        if (!rule_allowed[id] || !rule_refused[id]) {
            printf("mismatch: %s has no probe on one side\n", seccomp_table[i].name);
            mismatches++;
        }
    }
}

/* ---- other ways into the kernel -------------------------------------------------------------- */

static void check_foreign(void)
{
    static const uint16_t i386[] = {5, 11, 20, 24, 26, 102, 117, 199, 359, 425, 500};
    static const uint32_t odd[] = {0x7fffffff, 0x80000000, 0x80000065, 0xc0000000, 0xfffffffe};
    struct probe p = {ENTRY_SYSCALL, 0, {M1, M1, M1, M1, M1, M1}};

    for (uint32_t nr = 0; nr <= 600; nr++) {
        /* x32's own numbers, and of the shared ones a selection: each death is a line in a log */
        if ((nr < 512 || nr > 547) && nr % 16 && nr != SYS_ptrace && nr != SYS_socket)
            continue;
        p.nr = SECCOMP_TABLE_X32_BIT | nr;
        check("x32", &p, SECCOMP_RET_KILL_PROCESS);
    }
    p.nr = (1ull << 32) | SECCOMP_TABLE_X32_BIT | SYS_ptrace;
    check("x32", &p, SECCOMP_RET_KILL_PROCESS);
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        p.nr = odd[i];
        check("out of range", &p, SECCOMP_RET_KILL_PROCESS);
    }
    /* the upper half of rax is no part of the number */
    p.nr = HIGH | SYS_ptrace;
    check("ptrace", &p, SC_DENY(EPERM));
    p.nr = HIGH | SYS_clone3;
    check("clone3", &p, SC_DENY(ENOSYS));
    p.nr = UINT32_MAX;
    check("-1", &p, SC_DENY(ENOSYS));

    p.entry = ENTRY_INT80;
    for (size_t i = 0; i < sizeof i386 / sizeof i386[0]; i++) {
        p.nr = i386[i];
        check("i386", &p, SECCOMP_RET_KILL_PROCESS);
    }
}

int main(int argc, char **argv)
{
    const struct rlimit no_core = {0, 0};
    int found;

    if (argc > 1 && strcmp(argv[1], "--install") == 0) {
        install = true;
        argc--;
        argv++;
    }
    if (argc > 1 && strcmp(argv[1], "--set-ids") == 0) {
        set_ids = true;
        argc--;
        argv++;
    }
    found = argc == 2 ? jail_profile_from_name(argv[1]) : -1;
    if (found < 0) {
        fprintf(stderr, "usage: syscall_wall [--install] [--set-ids] default|paranoid|compat\n");
        return 2;
    }
    profile = (enum jail_profile)found;
    filter = profile == JAIL_PROFILE_PARANOID ? SECCOMP_FILTER_PARANOID
             : set_ids                        ? SECCOMP_FILTER_SET_IDS
                                              : SECCOMP_FILTER_NORMAL;
    setrlimit(RLIMIT_CORE, &no_core);
    setvbuf(stdout, NULL, _IOLBF, 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return 2;
    }
    for (int nr = 0; nr <= 600; nr++)
        check_number(nr);
    check_rules();
    check_foreign();
    if (absent)
        printf("note: %u allowed calls this kernel does not have or refuses by itself\n", absent);
    printf("wall: %u checked, %u mismatches\n", checked, mismatches);
    return mismatches != 0;
}
