/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the compiled filters in a small BPF interpreter and holds them against the table, and the
 * table against a second, hand-written list of what must hold. No kernel is asked, so this works
 * under sanitizers and anywhere; tests/hostile/syscall_wall.c asks the kernel.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <linux/audit.h>
#include <linux/filter.h>
#include <sys/syscall.h>

#include "jail/seccomp.h"
#include "jail/seccomp_table.h"

#define ALLOW SC_ALLOW
#define DENY(e) SC_DENY(e)
#define KILL SECCOMP_RET_KILL_PROCESS

static uint32_t load(const struct seccomp_data *data, uint32_t offset)
{
    uint32_t word;

    assert_true(offset % 4 == 0 && offset + 4 <= sizeof *data);
    memcpy(&word, (const char *)data + offset, sizeof word);
    return word;
}

/* Only what the generator and libseccomp emit; anything else fails the test. */
static uint32_t run_filter(const struct sock_filter *f, size_t len, const struct seccomp_data *data)
{
    uint32_t acc = 0;

    for (size_t pc = 0; pc < len; pc++) {
        const struct sock_filter *in = &f[pc];
        int yes;

        switch (in->code) {
        case BPF_LD | BPF_W | BPF_ABS: acc = load(data, in->k); continue;
        case BPF_ALU | BPF_AND | BPF_K: acc &= in->k; continue;
        case BPF_RET | BPF_K: return in->k;
        case BPF_JMP | BPF_JA: pc += in->k; continue;
        case BPF_JMP | BPF_JEQ | BPF_K: yes = acc == in->k; break;
        case BPF_JMP | BPF_JGE | BPF_K: yes = acc >= in->k; break;
        case BPF_JMP | BPF_JGT | BPF_K: yes = acc > in->k; break;
        default: fail_msg("instruction 0x%x at %zu", in->code, pc); return 0;
        }
        pc += yes ? in->jt : in->jf;
    }
    fail_msg("ran off the end");
    return 0;
}

static bool set_ids; /* which of a profile's two filters is asked */
static bool kvm;     /* that of a monitor is asked instead of default */

static uint32_t ask(enum jail_profile profile, uint32_t arch, uint32_t nr, const uint64_t args[6])
{
    struct seccomp_data data = {.nr = (int)nr, .arch = arch, .instruction_pointer = 0};
    size_t len = 0;
    const struct sock_filter *f = kvm && profile == JAIL_PROFILE_DEFAULT ? jail_seccomp_filter_kvm(&len)
                                                                         : jail_seccomp_filter(profile, set_ids, &len);

    assert_non_null(f);
    for (int i = 0; i < 6; i++)
        data.args[i] = args[i];
    return run_filter(f, len, &data);
}

static enum seccomp_filter filter_of(enum jail_profile profile)
{
    if (profile == JAIL_PROFILE_PARANOID)
        return SECCOMP_FILTER_PARANOID;
    if (kvm && profile == JAIL_PROFILE_DEFAULT)
        return SECCOMP_FILTER_KVM;
    return set_ids ? SECCOMP_FILTER_SET_IDS : SECCOMP_FILTER_NORMAL;
}

static uint32_t ask_native(enum jail_profile profile, int nr, const uint64_t args[6])
{
    return ask(profile, AUDIT_ARCH_X86_64, (uint32_t)nr, args);
}

static void expect(enum jail_profile profile, int nr, const uint64_t args[6], uint32_t want)
{
    uint32_t got = ask_native(profile, nr, args);

    if (got != want)
        fail_msg("%s: call %d(%#llx, %#llx, %#llx, %#llx): 0x%08x, expected 0x%08x", jail_profile_name(profile), nr,
                 (unsigned long long)args[0], (unsigned long long)args[1], (unsigned long long)args[2],
                 (unsigned long long)args[3], got, want);
}

/* xorshift: the same "random" arguments in every run */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* ---- the program against the table ----------------------------------------------------------- */

static void test_every_number(void **state)
{
    static const uint64_t patterns[][6] = {
        {0},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX},
        {1ull << 32, 1ull << 32, 1ull << 32, 1ull << 32, 1ull << 32, 1ull << 32},
    };

    (void)state;
    for (int p = 0; p < JAIL_PROFILE_MAX; p++)
        for (int nr = -1; nr <= 4096; nr++)
            for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
                expect((enum jail_profile)p, nr, patterns[i],
                       seccomp_table_judge(filter_of((enum jail_profile)p), nr, patterns[i]));
}

static void test_foreign_and_x32_are_killed(void **state)
{
    static const uint32_t arches[] = {AUDIT_ARCH_I386, AUDIT_ARCH_AARCH64, 0, UINT32_MAX,
                                      AUDIT_ARCH_X86_64 & ~(uint32_t)__AUDIT_ARCH_LE};
    static const uint64_t args[6];

    (void)state;
    for (int p = 0; p < JAIL_PROFILE_MAX; p++) {
        for (uint32_t nr = 0; nr < 1024; nr++) {
            for (size_t a = 0; a < sizeof arches / sizeof arches[0]; a++)
                assert_int_equal(ask((enum jail_profile)p, arches[a], nr, args), KILL);
            assert_int_equal(ask((enum jail_profile)p, AUDIT_ARCH_X86_64, SECCOMP_TABLE_X32_BIT | nr, args), KILL);
            assert_int_equal(ask((enum jail_profile)p, AUDIT_ARCH_X86_64, 0x80000000u | nr, args), KILL);
        }
        assert_int_equal(ask((enum jail_profile)p, AUDIT_ARCH_X86_64, 0x3fffffff, args), DENY(ENOSYS));
        assert_int_equal(ask((enum jail_profile)p, AUDIT_ARCH_X86_64, 0xfffffffe, args), KILL);
        assert_int_equal(ask((enum jail_profile)p, AUDIT_ARCH_I386, UINT32_MAX, args), KILL);
    }
}

/* For each rule: both sides of every boundary it has, under every setting of the upper halves and
 * with the other arguments at boundaries too, in a pseudo-random walk. */
static void test_rules_at_their_boundaries(void **state)
{
    static const uint64_t upper[] = {0, 1ull << 32, 0xffffffffull << 32, 0xdeadbeefull << 32};
    uint64_t seed = 0x9e3779b97f4a7c15ull;

    (void)state;
    for (size_t i = 0; i < SECCOMP_TABLE_ROWS; i++) {
        for (int paranoid = 0; paranoid < 2; paranoid++) {
            enum jail_profile profile = paranoid ? JAIL_PROFILE_PARANOID : JAIL_PROFILE_DEFAULT;
            uint32_t v = seccomp_row_verdict(&seccomp_table[i], filter_of(profile));
            const struct seccomp_rule *rule;
            int nr = seccomp_table[i].nr;

            if ((v & SECCOMP_RET_ACTION_FULL) != SECCOMP_TABLE_RULE)
                continue;
            rule = &seccomp_rules[v & SECCOMP_RET_DATA];
            for (int round = 0; round < 20000; round++) {
                uint64_t args[6], clean[6];

                for (int k = 0; k < 6; k++)
                    args[k] = next_random(&seed);
                for (int k = 0; k < 6; k++) { /* overwrite with boundaries, three times out of four */
                    const struct seccomp_clause *cl = &rule->clauses[next_random(&seed) % rule->count];
                    const struct seccomp_cond *c = &cl->cond[k % 3];

                    if ((uint32_t)k % 3 >= cl->conds || next_random(&seed) % 4 == 0)
                        continue;
                    args[c->arg] = (next_random(&seed) % 2 ? c->min : c->max) + (uint32_t)(next_random(&seed) % 3) - 1;
                    args[c->arg] |= (uint32_t)next_random(&seed) & ~c->mask;
                    args[c->arg] =
                        (uint32_t)args[c->arg] | upper[next_random(&seed) % (sizeof upper / sizeof upper[0])];
                }
                expect(profile, nr, args, seccomp_rule_judge(rule, args));
                for (int k = 0; k < 6; k++) /* the upper halves must not matter at all */
                    clean[k] = (uint32_t)args[k];
                assert_int_equal(seccomp_rule_judge(rule, args), seccomp_rule_judge(rule, clean));
            }
        }
    }
}

/* ---- the table against what was decided ------------------------------------------------------ */

struct fact {
    int nr;
    uint64_t args[6];
    uint32_t normal;
    uint32_t paranoid;
};
#define BOTH(v) (v), (v)
#define HIGH (0x5aull << 32)

/* clang-format off */
static const struct fact facts[] = {
    { SYS_clone, { 0x01200011 }, BOTH(ALLOW) },                     /* fork of libc */
    { SYS_clone, { 0x003d0f00 }, BOTH(ALLOW) },                     /* a thread */
    { SYS_clone, { 0x00004111 }, BOTH(ALLOW) },                     /* posix_spawn */
    { SYS_clone, { 0x00000411 }, BOTH(DENY(EPERM)) },              /* FILES without THREAD */
    { SYS_clone, { HIGH | 0x00800700 }, BOTH(DENY(EPERM)) },
    { SYS_clone, { 0x10010f00 }, BOTH(DENY(EPERM)) },               /* a thread with NEWUSER */
    { SYS_clone, { 0xffffffff80000011 }, BOTH(ALLOW) },             /* CLONE_IO, sign-extended */
    { SYS_clone, { 0x10000011 }, BOTH(DENY(EPERM)) },               /* NEWUSER */
    { SYS_clone, { HIGH | 0x10000011 }, BOTH(DENY(EPERM)) },
    { SYS_clone, { 0x00020011 }, BOTH(DENY(EPERM)) },               /* NEWNS */
    { SYS_clone, { 0x02000011 }, BOTH(DENY(EPERM)) },               /* NEWCGROUP */
    { SYS_clone, { 0x04000011 }, BOTH(DENY(EPERM)) },               /* NEWUTS */
    { SYS_clone, { 0x08000011 }, BOTH(DENY(EPERM)) },               /* NEWIPC */
    { SYS_clone, { 0x20000011 }, BOTH(DENY(EPERM)) },               /* NEWPID */
    { SYS_clone, { 0x40000011 }, BOTH(DENY(EPERM)) },               /* NEWNET */
    { SYS_clone3, { 0 }, BOTH(DENY(ENOSYS)) },
    { SYS_unshare, { 0 }, BOTH(DENY(EPERM)) },
    { SYS_setns, { 0 }, BOTH(DENY(EPERM)) },
    { SYS_mount, { 0 }, BOTH(DENY(EPERM)) },
    { SYS_ptrace, { 0 }, BOTH(DENY(EPERM)) },
    { SYS_bpf, { 0 }, BOTH(DENY(EPERM)) },
    { SYS_io_uring_setup, { 0 }, BOTH(DENY(ENOSYS)) },
    { SYS_keyctl, { 0 }, BOTH(DENY(ENOSYS)) },
    { SYS_userfaultfd, { 0 }, BOTH(DENY(ENOSYS)) },
    { SYS_sync, { 0 }, BOTH(DENY(0)) },
    { SYS_syncfs, { 0 }, BOTH(DENY(0)) },
    { SYS_fsync, { 0 }, BOTH(ALLOW) },

    /* socket: family, type, protocol */
    { SYS_socket, { 1, 1, 0 }, BOTH(ALLOW) },
    { SYS_socket, { 1, 0x80805, 0 }, BOTH(ALLOW) },                 /* seqpacket, cloexec, nonblock */
    { SYS_socket, { 1, 3, 0 }, BOTH(DENY(ESOCKTNOSUPPORT)) },
    { SYS_socket, { 2, 0x80001, 6 }, BOTH(ALLOW) },
    { SYS_socket, { 2, 2, 17 }, BOTH(ALLOW) },
    { SYS_socket, { 2, 2, 1 }, BOTH(ALLOW) },                       /* ping */
    { SYS_socket, { 2, 2, 58 }, BOTH(DENY(EPROTONOSUPPORT)) },
    { SYS_socket, { 10, 1, 0 }, BOTH(ALLOW) },
    { SYS_socket, { 10, 2, 58 }, BOTH(ALLOW) },
    { SYS_socket, { 10, 2, 1 }, BOTH(DENY(EPROTONOSUPPORT)) },
    { SYS_socket, { 2, 3, 255 }, BOTH(DENY(EPERM)) },               /* raw */
    { SYS_socket, { 10, HIGH | 3, 58 }, BOTH(DENY(EPERM)) },
    { SYS_socket, { 2, 10, 0x300 }, BOTH(DENY(ESOCKTNOSUPPORT)) },  /* SOCK_PACKET becomes AF_PACKET */
    { SYS_socket, { 2, 5, 132 }, BOTH(DENY(ESOCKTNOSUPPORT)) },     /* SCTP */
    { SYS_socket, { 2, 1, 132 }, BOTH(DENY(EPROTONOSUPPORT)) },
    { SYS_socket, { 2, 1, 262 }, BOTH(DENY(EPROTONOSUPPORT)) },     /* MPTCP */
    { SYS_socket, { 2, 1, 256 }, BOTH(DENY(EPROTONOSUPPORT)) },     /* SMC */
    { SYS_socket, { 2, 2, 136 }, BOTH(DENY(EPROTONOSUPPORT)) },     /* UDP-Lite */
    { SYS_socket, { 16, 0x80003, 0 }, BOTH(ALLOW) },                /* rtnetlink as libc asks */
    { SYS_socket, { 16, 3, 12 }, BOTH(DENY(EPROTONOSUPPORT)) },     /* netfilter */
    { SYS_socket, { 16, 3, HIGH | 12 }, BOTH(DENY(EPROTONOSUPPORT)) },
    { SYS_socket, { 16, 3, 6 }, BOTH(DENY(EPROTONOSUPPORT)) },      /* xfrm */
    { SYS_socket, { 16, 3, 15 }, BOTH(DENY(EPROTONOSUPPORT)) },     /* uevent */
    { SYS_socket, { 16, 3, 16 }, BOTH(DENY(EPROTONOSUPPORT)) },     /* generic */
    { SYS_socket, { 38, 5, 0 }, BOTH(DENY(EAFNOSUPPORT)) },         /* AF_ALG */
    { SYS_socket, { HIGH | 38, 5, 0 }, BOTH(DENY(EAFNOSUPPORT)) },
    { SYS_socket, { 40, 1, 0 }, BOTH(DENY(EAFNOSUPPORT)) },         /* AF_VSOCK */
    { SYS_socket, { 17, 3, 0 }, BOTH(DENY(EAFNOSUPPORT)) },         /* AF_PACKET */
    { SYS_socket, { 0, 1, 0 }, BOTH(DENY(EAFNOSUPPORT)) },
    { SYS_socket, { 0xffffffff, 1, 0 }, BOTH(DENY(EAFNOSUPPORT)) },
    { SYS_socketpair, { 1, 0x80001 }, BOTH(ALLOW) },
    { SYS_socketpair, { 1, 5 }, BOTH(ALLOW) },
    { SYS_socketpair, { 30, 1 }, BOTH(DENY(EAFNOSUPPORT)) },        /* TIPC */

    /* ioctl: what pid 1 and shells need */
    { SYS_ioctl, { 0, 0x5401 }, BOTH(ALLOW) },                      /* TCGETS */
    { SYS_ioctl, { 0, 0x541b }, BOTH(ALLOW) },                      /* FIONREAD */
    { SYS_ioctl, { 0, 0x5413 }, BOTH(ALLOW) },                      /* TIOCGWINSZ */
    { SYS_ioctl, { 0, 0x5414 }, BOTH(ALLOW) },                      /* TIOCSWINSZ */
    { SYS_ioctl, { 0, 0x540e }, BOTH(ALLOW) },                      /* TIOCSCTTY */
    { SYS_ioctl, { 0, 0x5441 }, BOTH(ALLOW) },                      /* TIOCGPTPEER */
    { SYS_ioctl, { 0, 0x80045430 }, BOTH(ALLOW) },                  /* TIOCGPTN */
    { SYS_ioctl, { 0, 0xffffffff80045430 }, BOTH(ALLOW) },          /* the same, sign-extended */
    { SYS_ioctl, { 0, 0x40045431 }, BOTH(ALLOW) },                  /* TIOCSPTLCK */
    { SYS_ioctl, { 0, 0x5421 }, BOTH(ALLOW) },                      /* FIONBIO */
    { SYS_ioctl, { 0, 0x5451 }, BOTH(ALLOW) },                      /* FIOCLEX */
    { SYS_ioctl, { 0, 0x8912 }, BOTH(ALLOW) },                      /* SIOCGIFCONF */
    { SYS_ioctl, { 0, 0x40049409 }, BOTH(ALLOW) },                  /* FICLONE */
    /* and what nobody may */
    { SYS_ioctl, { 0, 0x5412 }, BOTH(DENY(EPERM)) },                /* TIOCSTI */
    { SYS_ioctl, { 0, (1ull << 32) | 0x5412 }, BOTH(DENY(EPERM)) }, /* CVE-2019-10063 */
    { SYS_ioctl, { 0, 0xffffffff00005412 }, BOTH(DENY(EPERM)) },
    { SYS_ioctl, { 0, HIGH | 0x541c }, BOTH(DENY(EPERM)) },         /* TIOCLINUX */
    { SYS_ioctl, { 0, 0x541d }, BOTH(DENY(EPERM)) },                /* TIOCCONS */
    { SYS_ioctl, { 0, 0x541f }, BOTH(DENY(EPERM)) },                /* TIOCSSERIAL */
    { SYS_ioctl, { 0, 0x5423 }, BOTH(DENY(EPERM)) },                /* TIOCSETD */
    { SYS_ioctl, { 0, 0x5437 }, BOTH(DENY(EPERM)) },                /* TIOCVHANGUP */
    { SYS_ioctl, { 0, 0x400454ca }, BOTH(DENY(EPERM)) },            /* TUNSETIFF */
    { SYS_ioctl, { 0, 0x4b4c }, BOTH(DENY(EPERM)) },                /* 'K' */
    { SYS_ioctl, { 0, 0x5606 }, BOTH(DENY(EPERM)) },                /* VT_ACTIVATE */
    { SYS_ioctl, { 0, 0x890b }, BOTH(DENY(EPERM)) },                /* SIOCADDRT */
    { SYS_ioctl, { 0, 0x8914 }, BOTH(DENY(EPERM)) },                /* SIOCSIFFLAGS */
    { SYS_ioctl, { 0, 0x8916 }, BOTH(DENY(EPERM)) },                /* SIOCSIFADDR */
    { SYS_ioctl, { 0, 0x894c }, BOTH(DENY(EPERM)) },                /* SIOCGSKNS */
    { SYS_ioctl, { 0, 1 }, BOTH(DENY(EPERM)) },                     /* FIBMAP */
    { SYS_ioctl, { 0, 0x40086602 }, BOTH(DENY(EPERM)) },            /* FS_IOC_SETFLAGS */
    { SYS_ioctl, { 0, 0x401c5820 }, BOTH(DENY(EPERM)) },            /* FS_IOC_FSSETXATTR */
    { SYS_ioctl, { 0, 0xc0502100 }, BOTH(DENY(EPERM)) },            /* SECCOMP_IOCTL_NOTIF_RECV */
    { SYS_ioctl, { 0, 0xb701 }, BOTH(DENY(EPERM)) },                /* NS_GET_USERNS */
    { SYS_ioctl, { 0, 0xae00 }, BOTH(DENY(ENOTTY)) },               /* KVM_GET_API_VERSION */

    { SYS_prctl, { 1 }, BOTH(ALLOW) },                              /* PDEATHSIG */
    { SYS_prctl, { 4 }, BOTH(ALLOW) },                              /* DUMPABLE */
    { SYS_prctl, { 15 }, BOTH(ALLOW) },                             /* NAME */
    { SYS_prctl, { 22, 1 }, BOTH(ALLOW) },                          /* SECCOMP, strict */
    { SYS_prctl, { 22, 2 }, BOTH(DENY(EINVAL)) },                   /* a filter of its own */
    { SYS_prctl, { HIGH | 22, HIGH | 2 }, BOTH(DENY(EINVAL)) },
    { SYS_prctl, { 24 }, BOTH(ALLOW) },                             /* CAPBSET_DROP */
    { SYS_prctl, { 36 }, BOTH(ALLOW) },                             /* CHILD_SUBREAPER */
    { SYS_prctl, { 38 }, BOTH(ALLOW) },                             /* NO_NEW_PRIVS */
    { SYS_prctl, { 47 }, BOTH(ALLOW) },                             /* CAP_AMBIENT */
    { SYS_prctl, { 0x53564d41 }, BOTH(ALLOW) },                     /* SET_VMA */
    { SYS_prctl, { 28 }, BOTH(DENY(EPERM)) },
    { SYS_prctl, { HIGH | 28 }, BOTH(DENY(EPERM)) },
    { SYS_prctl, { 35 }, BOTH(DENY(EPERM)) },
    { SYS_prctl, { 62 }, BOTH(DENY(EPERM)) },
    { SYS_prctl, { 67 }, BOTH(DENY(EPERM)) },
    { SYS_prctl, { HIGH | 0x59616d61 }, BOTH(DENY(EPERM)) },
    { SYS_prctl, { 200 }, BOTH(DENY(EINVAL)) },
    { SYS_madvise, { 0, 0, 4 }, BOTH(ALLOW) },
    { SYS_madvise, { 0, 0, 12 }, BOTH(DENY(EINVAL)) },
    { SYS_madvise, { 0, 0, HIGH | 12 }, BOTH(DENY(EINVAL)) },
    { SYS_madvise, { 0, 0, 21 }, BOTH(DENY(EINVAL)) },              /* PAGEOUT */
    { SYS_fadvise64, { 3, 0, 0, 3 }, BOTH(ALLOW) },                 /* WILLNEED */
    { SYS_fadvise64, { 3, 0, 0, 4 }, BOTH(DENY(0)) },               /* DONTNEED: answered, not done */
    { SYS_fadvise64, { 3, 0, 0, HIGH | 4 }, BOTH(DENY(0)) },
    { SYS_preadv2, { 3, 0, 1, 0, 0, 1 }, BOTH(ALLOW) },             /* RWF_HIPRI */
    { SYS_preadv2, { 3, 0, 1, 0, 0, 8 }, BOTH(DENY(EOPNOTSUPP)) },  /* RWF_NOWAIT */
    { SYS_preadv2, { 3, 0, 1, 0, 0, 0x81 }, BOTH(DENY(EOPNOTSUPP)) },

    /* the host's pool of huge pages */
    { SYS_mmap, { 0, 4096, 3, 0x22 }, BOTH(ALLOW) },
    { SYS_mmap, { 0, 4096, 3, 0xffffffffu & ~0x40000u }, BOTH(ALLOW) },
    { SYS_mmap, { 0, 4096, 3, 0x40022 }, BOTH(DENY(ENOMEM)) },
    { SYS_mmap, { 0, 4096, 3, HIGH | (30u << 26) | 0x40001 }, BOTH(DENY(ENOMEM)) },
    { SYS_shmget, { 0, 4096, 0x3b6 }, ALLOW, DENY(ENOSYS) },
    { SYS_shmget, { 0, 4096, 0xbb6 }, DENY(EPERM), DENY(ENOSYS) },
    { SYS_memfd_create, { 0, 3 }, BOTH(ALLOW) },
    { SYS_memfd_create, { 0, HIGH | 4 }, BOTH(DENY(EINVAL)) },
    { SYS_memfd_create, { 0, (21u << 26) | 5 }, BOTH(DENY(EINVAL)) },

    { SYS_setsockopt, { 0, 1, 2 }, BOTH(ALLOW) },                   /* SO_REUSEADDR */
    { SYS_setsockopt, { 0, 6, 1 }, BOTH(ALLOW) },                   /* TCP_NODELAY */
    { SYS_setsockopt, { 0, 41, 26 }, BOTH(ALLOW) },                 /* IPV6_V6ONLY */
    { SYS_setsockopt, { 0, 41, 67 }, BOTH(ALLOW) },                 /* IPV6_TCLASS */
    { SYS_setsockopt, { 0, 0, 1 }, BOTH(ALLOW) },                   /* IP_TOS */
    { SYS_setsockopt, { 0, 270, 1 }, BOTH(ALLOW) },                 /* NETLINK_ADD_MEMBERSHIP */
    { SYS_setsockopt, { 0, 6, 31 }, BOTH(DENY(EPERM)) },            /* TCP_ULP */
    { SYS_setsockopt, { 0, HIGH | 6, HIGH | 31 }, BOTH(DENY(EPERM)) },
    { SYS_setsockopt, { 0, 6, 19 }, BOTH(DENY(EPERM)) },            /* TCP_REPAIR */
    { SYS_setsockopt, { 0, 17, 100 }, BOTH(DENY(EPERM)) },          /* UDP_ENCAP */
    { SYS_setsockopt, { 0, 0, 64 }, BOTH(DENY(EPERM)) },            /* IPT_SO_SET_REPLACE */
    { SYS_setsockopt, { 0, 0, 67 }, BOTH(DENY(EPERM)) },
    { SYS_setsockopt, { 0, 0, 96 }, BOTH(DENY(EPERM)) },            /* arptables */
    { SYS_setsockopt, { 0, 41, 64 }, BOTH(DENY(EPERM)) },
    { SYS_setsockopt, { 0, 1, 26 }, BOTH(DENY(EPERM)) },            /* SO_ATTACH_FILTER */
    { SYS_setsockopt, { 0, HIGH | 1, HIGH | 26 }, BOTH(DENY(EPERM)) },
    { SYS_setsockopt, { 0, 1, 27 }, BOTH(ALLOW) },                  /* SO_DETACH_FILTER */
    { SYS_setsockopt, { 0, 1, 50 }, BOTH(DENY(EPERM)) },            /* SO_ATTACH_BPF */
    { SYS_setsockopt, { 0, 1, 51 }, BOTH(DENY(EPERM)) },            /* SO_ATTACH_REUSEPORT_CBPF */
    { SYS_setsockopt, { 0, 1, 52 }, BOTH(DENY(EPERM)) },            /* SO_ATTACH_REUSEPORT_EBPF */
    { SYS_setsockopt, { 0, 1, HIGH | 25 }, BOTH(DENY(EPERM)) },     /* SO_BINDTODEVICE */
    { SYS_setsockopt, { 0, 1, 62 }, BOTH(DENY(EPERM)) },            /* SO_BINDTOIFINDEX */
    { SYS_setsockopt, { 0, 279, 1 }, BOTH(DENY(ENOPROTOOPT)) },     /* SOL_ALG */

    { SYS_fcntl, { 0, 1 }, BOTH(ALLOW) },
    { SYS_fcntl, { 0, 1030 }, BOTH(ALLOW) },
    { SYS_fcntl, { 0, 6 }, BOTH(ALLOW) },
    { SYS_fcntl, { 0, 36 }, BOTH(DENY(EINVAL)) },                   /* OFD locks */
    { SYS_fcntl, { 0, 37 }, BOTH(DENY(EINVAL)) },
    { SYS_fcntl, { 0, HIGH | 38 }, BOTH(DENY(EINVAL)) },
    { SYS_fcntl, { 0, 1024 }, BOTH(DENY(EPERM)) },
    { SYS_fcntl, { 0, HIGH | 1024 }, BOTH(DENY(EPERM)) },
    { SYS_fcntl, { 0, 1026 }, BOTH(DENY(EPERM)) },
    { SYS_fcntl, { 0, 1040 }, BOTH(DENY(EPERM)) },

    { SYS_chmod, { 0, 0755 }, BOTH(ALLOW) },
    { SYS_chmod, { 0, 01777 }, BOTH(ALLOW) },
    { SYS_chmod, { 0, 04755 }, BOTH(DENY(EPERM)) },
    { SYS_chmod, { 0, HIGH | 0xffff0000 | 02755 }, BOTH(DENY(EPERM)) },
    { SYS_fchmod, { 0, 02755 }, BOTH(DENY(EPERM)) },
    { SYS_fchmodat, { 0, 0, 04000 }, BOTH(DENY(EPERM)) },
    { SYS_fchmodat, { 0, 04000, 0644 }, BOTH(ALLOW) },
    { 452, { 0, 0, 04000 }, BOTH(DENY(EPERM)) },                    /* fchmodat2 */
    { SYS_mknod, { 0, 0010644 }, BOTH(ALLOW) },                     /* FIFO */
    { SYS_mknod, { 0, 0644 }, BOTH(ALLOW) },
    { SYS_mknod, { 0, 0140644 }, BOTH(ALLOW) },                     /* socket */
    { SYS_mknod, { 0, 0020644 }, BOTH(DENY(EPERM)) },               /* character device */
    { SYS_mknod, { 0, 0x70000 | 0020644 }, BOTH(DENY(EPERM)) },     /* umode_t is 16 bits */
    { SYS_mknod, { 0, 0060644 }, BOTH(DENY(EPERM)) },
    { SYS_mknodat, { 0, 0, 0104755 }, BOTH(DENY(EPERM)) },
    { SYS_open, { 0, 0101, 04755 }, ALLOW, DENY(EPERM) },
    { SYS_open, { 0, 0, 04755 }, BOTH(ALLOW) },                     /* no O_CREAT: garbage in mode */
    { SYS_openat, { 0, 0, 0x400002 | 0x10000, 02644 }, ALLOW, DENY(EPERM) }, /* O_TMPFILE */
    { SYS_creat, { 0, 04755 }, ALLOW, DENY(EPERM) },
    { SYS_openat2, { 0 }, ALLOW, DENY(ENOSYS) },

    { SYS_personality, { 0 }, BOTH(ALLOW) },
    { SYS_personality, { 0xffffffff }, BOTH(ALLOW) },
    { SYS_personality, { UINT64_MAX }, BOTH(ALLOW) },
    { SYS_personality, { 0x40000 }, BOTH(DENY(EPERM)) },
    { SYS_personality, { HIGH | 0x400000 }, BOTH(DENY(EPERM)) },
    { SYS_seccomp, { 1, 0 }, BOTH(DENY(EINVAL)) },                  /* as a kernel without filters */
    { SYS_seccomp, { 1, 1 }, BOTH(DENY(EINVAL)) },
    { SYS_seccomp, { 2, 0 }, BOTH(ALLOW) },
    { SYS_seccomp, { 1, 8 }, BOTH(DENY(EPERM)) },
    { SYS_seccomp, { HIGH | 1, HIGH | 9 }, BOTH(DENY(EPERM)) },
    { SYS_seccomp, { 0, 0 }, BOTH(DENY(EPERM)) },

    { SYS_prlimit64, { 0 }, BOTH(ALLOW) },
    { SYS_prlimit64, { HIGH }, BOTH(ALLOW) },                       /* still pid 0 to the kernel */
    { SYS_prlimit64, { 1 }, BOTH(DENY(EPERM)) },
    { SYS_prlimit64, { HIGH | 1 }, BOTH(DENY(EPERM)) },
    { SYS_prlimit64, { 4711 }, BOTH(DENY(EPERM)) },
    { SYS_sched_setaffinity, { 0 }, BOTH(ALLOW) },
    { SYS_sched_setaffinity, { 2 }, BOTH(ALLOW) },
    { SYS_sched_setaffinity, { HIGH | 1 }, BOTH(DENY(EPERM)) },
    { SYS_setpriority, { 0, 0, 5 }, BOTH(ALLOW) },
    { SYS_setpriority, { 0, 2, 5 }, BOTH(ALLOW) },
    { SYS_setpriority, { HIGH, HIGH | 1, 5 }, BOTH(DENY(EPERM)) },
    { SYS_setpriority, { 1, 0, 5 }, BOTH(DENY(EPERM)) },
    { SYS_setpriority, { 2, 0, 5 }, BOTH(DENY(EPERM)) },
    { SYS_ioprio_set, { 1, 0, 0 }, BOTH(DENY(EPERM)) },

    { SYS_splice, { 0 }, ALLOW, DENY(EINVAL) },
    { SYS_tee, { 0 }, ALLOW, DENY(EINVAL) },
    { SYS_sendfile, { 0 }, ALLOW, DENY(EINVAL) },
    { SYS_vmsplice, { 0 }, DENY(ENOSYS), DENY(EINVAL) },
    { SYS_shmget, { 0 }, ALLOW, DENY(ENOSYS) },
    { SYS_semop, { 0 }, ALLOW, DENY(ENOSYS) },
    { SYS_msgrcv, { 0 }, ALLOW, DENY(ENOSYS) },
    { SYS_mq_open, { 0 }, ALLOW, DENY(ENOSYS) },

    { 462, { 0 }, BOTH(ALLOW) },                                    /* mseal */
    { 457, { 0 }, BOTH(DENY(ENOSYS)) },                             /* statmount */
    { 458, { 0 }, BOTH(DENY(ENOSYS)) },                             /* listmount */
    { 463, { 0 }, BOTH(ALLOW) },                                    /* setxattrat */
    { 467, { 0 }, BOTH(DENY(ENOSYS)) },                             /* open_tree_attr */
    { 469, { 0 }, BOTH(DENY(ENOSYS)) },                             /* file_setattr */
    { 470, { 0 }, BOTH(DENY(ENOSYS)) },                             /* listns */
    { 600, { 0 }, BOTH(DENY(ENOSYS)) },
};
/* clang-format on */

static void test_facts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        uint64_t args[6] = {0};

        memcpy(args, facts[i].args, sizeof facts[i].args);
        expect(JAIL_PROFILE_DEFAULT, facts[i].nr, args, facts[i].normal);
        expect(JAIL_PROFILE_COMPAT, facts[i].nr, args, facts[i].normal);
        expect(JAIL_PROFILE_PARANOID, facts[i].nr, args, facts[i].paranoid);
    }
}

/* A rule nobody probes by hand is a rule nobody has thought through. */
static void test_every_rule_has_facts(void **state)
{
    int refused[SECCOMP_RULE_MAX] = {0}, granted[SECCOMP_RULE_MAX] = {0};

    (void)state;
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        const struct seccomp_row *row = seccomp_table_row(facts[i].nr);
        uint32_t verdicts[2][2] = {{row ? row->normal : 0, facts[i].normal},
                                   {row ? row->paranoid : 0, facts[i].paranoid}};

        for (int k = 0; k < 2; k++) {
            if ((verdicts[k][0] & SECCOMP_RET_ACTION_FULL) != SECCOMP_TABLE_RULE)
                continue;
            if (verdicts[k][1] == ALLOW)
                granted[verdicts[k][0] & SECCOMP_RET_DATA]++;
            else
                refused[verdicts[k][0] & SECCOMP_RET_DATA]++;
        }
    }
    granted[SECCOMP_RULE_IOCTL_KVM]++, refused[SECCOMP_RULE_IOCTL_KVM]++; /* test_kvm() */
    granted[SECCOMP_RULE_OPEN2]++;                                        /* shares its shape with OPEN1 */
    granted[SECCOMP_RULE_MKNOD2]++;                                       /* and MKNOD1 */
    for (int r = 0; r < SECCOMP_RULE_MAX; r++)
        if (!refused[r] || !granted[r])
            fail_msg("rule %s lacks a fact on one side", seccomp_rules[r].name);
}

/* With root inside: the same answers, except that set-id bits may be set; paranoid has them refused all the same. */
static void test_set_ids(void **state)
{
    static const struct {
        int nr, mode;
    } calls[] = {{90, 1}, {91, 1}, {268, 2}, {452, 2}};

    set_ids = true;
    test_every_number(state);
    test_rules_at_their_boundaries(state);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        uint64_t args[6] = {0};

        args[calls[i].mode] = 06755;
        expect(JAIL_PROFILE_DEFAULT, calls[i].nr, args, ALLOW);
        expect(JAIL_PROFILE_COMPAT, calls[i].nr, args, ALLOW);
        expect(JAIL_PROFILE_PARANOID, calls[i].nr, args, DENY(EPERM));
    }
    expect(JAIL_PROFILE_DEFAULT, 133, (const uint64_t[6]){0, 020666}, DENY(EPERM)); /* mknod, a whiteout */
    expect(JAIL_PROFILE_DEFAULT, 161, (const uint64_t[6]){0}, DENY(EPERM));         /* chroot */
    expect(JAIL_PROFILE_DEFAULT, 165, (const uint64_t[6]){0}, DENY(EPERM));         /* mount */
    set_ids = false;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        uint64_t args[6] = {0};

        args[calls[i].mode] = 04755;
        expect(JAIL_PROFILE_DEFAULT, calls[i].nr, args, DENY(EPERM));
    }
}

/* With /dev/kvm: the same answers but for ioctl, which has KVM's and what a program does with its own descriptors. */
static void test_kvm(void **state)
{
    static const struct {
        uint64_t request;
        uint32_t normal, monitor;
    } requests[] = {{0xae00, DENY(ENOTTY), ALLOW},     /* KVM_GET_API_VERSION */
                    {0xae80, DENY(ENOTTY), ALLOW},     /* KVM_RUN */
                    {0x4020ae46, DENY(ENOTTY), ALLOW}, /* KVM_SET_USER_MEMORY_REGION */
                    {0x5401, ALLOW, ALLOW},            /* TCGETS */
                    {0x5421, ALLOW, ALLOW},            /* FIONBIO */
                    {0x5412, DENY(EPERM), DENY(ENOTTY)},
                    {0x5441, ALLOW, DENY(ENOTTY)},
                    {0x400454ca, DENY(EPERM), DENY(ENOTTY)}}; /* TUNSETIFF */

    kvm = true;
    test_every_number(state);
    test_rules_at_their_boundaries(state);
    test_foreign_and_x32_are_killed(state);
    for (int on = 1; on >= 0; on--) {
        kvm = on;
        for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++)
            expect(JAIL_PROFILE_DEFAULT, SYS_ioctl, (const uint64_t[6]){3, requests[i].request},
                   on ? requests[i].monitor : requests[i].normal);
    }
}

static void test_profile_names(void **state)
{
    (void)state;
    for (int p = 0; p < JAIL_PROFILE_MAX; p++)
        assert_int_equal(jail_profile_from_name(jail_profile_name((enum jail_profile)p)), p);
    assert_int_equal(jail_profile_from_name("none"), -EINVAL);
    assert_int_equal(jail_profile_from_name(""), -EINVAL);
    assert_null(jail_profile_name(JAIL_PROFILE_MAX));
    assert_int_equal(jail_seccomp_install(JAIL_PROFILE_MAX, false), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number),
        cmocka_unit_test(test_foreign_and_x32_are_killed),
        cmocka_unit_test(test_rules_at_their_boundaries),
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_every_rule_has_facts),
        cmocka_unit_test(test_set_ids),
        cmocka_unit_test(test_kvm),
        cmocka_unit_test(test_profile_names),
    };

    return cmocka_run_group_tests_name("seccomp", tests, NULL, NULL);
}
