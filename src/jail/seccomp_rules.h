/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRIG_JAIL_SECCOMP_RULES_H
#define BRIG_JAIL_SECCOMP_RULES_H
/*
 * seccomp_rules.h: the argument rules of the system call filter, for calls whose answer depends on the arguments.
 *
 * tools/gen_seccomp.c compiles them to BPF at build time, and the tests use them; the running engine never reads them.
 *
 * A rule is a list of clauses that are tried in order. The first whose conditions all hold gives the answer; the last
 * has no condition. A condition looks at the LOW 32 BITS of one argument, masked, and asks whether they lie in a range.
 * That is not a short cut: every argument judged here is an int, unsigned or umode_t in the kernel, and clone's
 * unsigned long goes through lower_32_bits(). The kernel throws the upper half away, so a filter that looked at it
 * could be passed by setting it (CVE-2019-10063: TIOCSTI | 1<<32). A umode_t is cut to 16 bits, so modes are only ever
 * looked at through a mask.
 *
 * Where one call has many operations (ioctl, prctl, fcntl, setsockopt) the rule is an allow-list by class. An operation
 * in no class gets the answer that an old kernel gives to an unknown option (ENOTTY, EINVAL, ENOPROTOOPT), which every
 * library handles; a known operation that is refused gets EPERM. So an operation that a future kernel adds is closed.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/seccomp.h>

struct seccomp_cond {
    uint32_t arg;  /* 0..5 */
    uint32_t mask; /* It is applied to the low 32 bits. */
    uint32_t min;  /* The range is inclusive and unsigned. */
    uint32_t max;
};

struct seccomp_clause {
    uint32_t verdict; /* SECCOMP_RET_ALLOW or SECCOMP_RET_ERRNO | errno */
    uint32_t conds;
    struct seccomp_cond cond[3];
};

struct seccomp_rule {
    const char *name;
    const struct seccomp_clause *clauses;
    size_t count;
};

#define SC_ALLOW SECCOMP_RET_ALLOW
#define SC_DENY(e) (SECCOMP_RET_ERRNO | (uint32_t)(e))

/* clang-format off */
#define SC_RANGE(a, lo, hi)    { (a), 0xffffffffu, (uint32_t)(lo), (uint32_t)(hi) }
#define SC_EQ(a, v)            SC_RANGE(a, v, v)
#define SC_MASK(a, m, v)       { (a), (uint32_t)(m), (uint32_t)(v), (uint32_t)(v) }
#define SC_MASK_IN(a, m, l, h) { (a), (uint32_t)(m), (uint32_t)(l), (uint32_t)(h) }
#define SC_IF1(v, c1)          { (v), 1, { c1 } }
#define SC_IF2(v, c1, c2)      { (v), 2, { c1, c2 } }
#define SC_IF3(v, c1, c2, c3)  { (v), 3, { c1, c2, c3 } }
#define SC_ELSE(v)             { (v), 0, { { 0, 0, 0, 0 } } }

/*
 * clone: no new namespaces. A nested user namespace re-opens nftables, overlayfs and xfrm to a program (CVE-2022-0185,
 * CVE-2023-32233, CVE-2024-1086 and some forty more). CLONE_NEWTIME (0x80) lies inside the exit signal here and would
 * be ignored; refused all the same. clone3 is ENOSYS because its flags are behind a pointer; libc then uses clone.
 * A sign-extended CLONE_IO puts ones into the upper half: legitimate, and not looked at.
 *
 * CLONE_FILES (0x400) only with CLONE_THREAD (0x10000): a POSIX lock belongs to the table of descriptors, and where two
 * processes share one, it outlives the process that the kernel names as its taker (spawner/sandbox_locks.c).
 */
static const struct seccomp_clause seccomp_rule_clone[] = {
    SC_IF2(SC_ALLOW, SC_MASK(0, 0x7e020080, 0), SC_MASK(0, 0x400, 0)),
    SC_IF2(SC_ALLOW, SC_MASK(0, 0x7e020080, 0), SC_MASK(0, 0x10000, 0x10000)),
    SC_ELSE(SC_DENY(EPERM)),
};

/*
 * socket: unix, inet, inet6 and rtnetlink. Closes AF_ALG (CVE-2026-31431), AF_VSOCK (CVE-2021-26708, and a way to the
 * hypervisor), AF_PACKET (CVE-2020-14386; also by its old name, AF_INET with SOCK_PACKET), AF_RXRPC, AF_KEY, AF_XDP,
 * AF_TIPC (CVE-2022-0435), bluetooth, CAN, and in inet SCTP, DCCP, MPTCP, SMC, UDP-Lite and raw. rtnetlink keeps
 * SOCK_RAW because libc's getifaddrs and getaddrinfo ask for it; it is the same as SOCK_DGRAM there. The other netlink
 * protocols are netfilter (CVE-2023-32233), xfrm, audit, generic.
 */
static const struct seccomp_clause seccomp_rule_socket[] = {
    SC_IF3(SC_ALLOW, SC_EQ(0, 1), SC_MASK_IN(1, 0xf, 1, 2), SC_RANGE(2, 0, 1)),  /* unix, stream and dgram */
    SC_IF2(SC_DENY(EPROTONOSUPPORT), SC_EQ(0, 1), SC_MASK_IN(1, 0xf, 1, 2)),
    SC_IF3(SC_ALLOW, SC_EQ(0, 1), SC_MASK(1, 0xf, 5), SC_RANGE(2, 0, 1)),        /* and seqpacket */
    SC_IF2(SC_DENY(EPROTONOSUPPORT), SC_EQ(0, 1), SC_MASK(1, 0xf, 5)),
    SC_IF1(SC_DENY(ESOCKTNOSUPPORT), SC_EQ(0, 1)),
    SC_IF3(SC_ALLOW, SC_EQ(0, 2), SC_MASK(1, 0xf, 1), SC_EQ(2, 0)),              /* inet, TCP */
    SC_IF3(SC_ALLOW, SC_EQ(0, 2), SC_MASK(1, 0xf, 1), SC_EQ(2, 6)),
    SC_IF2(SC_DENY(EPROTONOSUPPORT), SC_EQ(0, 2), SC_MASK(1, 0xf, 1)),
    SC_IF3(SC_ALLOW, SC_EQ(0, 2), SC_MASK(1, 0xf, 2), SC_RANGE(2, 0, 1)),        /* UDP, and ping without privilege */
    SC_IF3(SC_ALLOW, SC_EQ(0, 2), SC_MASK(1, 0xf, 2), SC_EQ(2, 17)),
    SC_IF2(SC_DENY(EPROTONOSUPPORT), SC_EQ(0, 2), SC_MASK(1, 0xf, 2)),
    SC_IF2(SC_DENY(EPERM), SC_EQ(0, 2), SC_MASK(1, 0xf, 3)),                     /* raw */
    SC_IF1(SC_DENY(ESOCKTNOSUPPORT), SC_EQ(0, 2)),
    SC_IF3(SC_ALLOW, SC_EQ(0, 10), SC_MASK(1, 0xf, 1), SC_EQ(2, 0)),             /* inet6 */
    SC_IF3(SC_ALLOW, SC_EQ(0, 10), SC_MASK(1, 0xf, 1), SC_EQ(2, 6)),
    SC_IF2(SC_DENY(EPROTONOSUPPORT), SC_EQ(0, 10), SC_MASK(1, 0xf, 1)),
    SC_IF3(SC_ALLOW, SC_EQ(0, 10), SC_MASK(1, 0xf, 2), SC_EQ(2, 0)),
    SC_IF3(SC_ALLOW, SC_EQ(0, 10), SC_MASK(1, 0xf, 2), SC_EQ(2, 17)),
    SC_IF3(SC_ALLOW, SC_EQ(0, 10), SC_MASK(1, 0xf, 2), SC_EQ(2, 58)),
    SC_IF2(SC_DENY(EPROTONOSUPPORT), SC_EQ(0, 10), SC_MASK(1, 0xf, 2)),
    SC_IF2(SC_DENY(EPERM), SC_EQ(0, 10), SC_MASK(1, 0xf, 3)),
    SC_IF1(SC_DENY(ESOCKTNOSUPPORT), SC_EQ(0, 10)),
    SC_IF3(SC_ALLOW, SC_EQ(0, 16), SC_EQ(2, 0), SC_MASK_IN(1, 0xf, 2, 3)),       /* netlink, route only */
    SC_IF2(SC_DENY(ESOCKTNOSUPPORT), SC_EQ(0, 16), SC_EQ(2, 0)),
    SC_IF1(SC_DENY(EPROTONOSUPPORT), SC_EQ(0, 16)),
    SC_ELSE(SC_DENY(EAFNOSUPPORT)),
};

/* socketpair: unix only (cargo, node and python need it); TIPC pairs too reach a protocol with a CVE record. */
static const struct seccomp_clause seccomp_rule_socketpair[] = {
    SC_IF2(SC_ALLOW, SC_EQ(0, 1), SC_MASK_IN(1, 0xf, 1, 2)),
    SC_IF2(SC_ALLOW, SC_EQ(0, 1), SC_MASK(1, 0xf, 5)),
    SC_IF1(SC_DENY(ESOCKTNOSUPPORT), SC_EQ(0, 1)),
    SC_ELSE(SC_DENY(EAFNOSUPPORT)),
};

/*
 * ioctl, by class. A sandbox has terminals, sockets and files but no other devices, so nothing else has a use.
 *  - TIOCSTI types into the operator's terminal (CVE-2017-5226), TIOCLINUX pastes into a console (CVE-2023-28100),
 *    TIOCSETD loads line disciplines (CVE-2017-2636, CVE-2023-6546), TIOCCONS steals the console's output.
 *  - the rest of 'T' is serial lines, locked termios, vhangup, and from 0xc8 on tun (TUNSETIFF).
 *  - of the socket ioctls only those that read, and the owner of a signal; SIOCGSKNS would hand out a namespace.
 *    SIOCETHTOOL answers what lo answers, because psutil takes no other no.
 *  - 'f', 'X', 'v', 0x94 are file system controls: flags that make files immovable for their owner, freeze, resize,
 *    swap boot inodes, btrfs subvolumes. Reading flags and reflinks stay. FIBMAP and FIEMAP show disk addresses.
 *  - 'K' and 'V' are keyboard and virtual consoles; '!' seccomp listeners; 0xb7 and 0xff hand out namespaces.
 */
static const struct seccomp_clause seccomp_rule_ioctl[] = {
    SC_IF1(SC_ALLOW, SC_RANGE(1, 0x5401, 0x5411)),        /* TCGETS .. TIOCOUTQ, with TIOCSCTTY, TIOCSPGRP */
    SC_IF1(SC_DENY(EPERM), SC_EQ(1, 0x5412)),             /* TIOCSTI */
    SC_IF1(SC_ALLOW, SC_RANGE(1, 0x5413, 0x541b)),        /* TIOCGWINSZ .. FIONREAD */
    SC_IF1(SC_DENY(EPERM), SC_RANGE(1, 0x541c, 0x541f)),  /* TIOCLINUX, TIOCCONS, TIOCGSERIAL, TIOCSSERIAL */
    SC_IF1(SC_ALLOW, SC_RANGE(1, 0x5420, 0x5422)),        /* TIOCPKT, FIONBIO, TIOCNOTTY */
    SC_IF1(SC_DENY(EPERM), SC_EQ(1, 0x5423)),             /* TIOCSETD */
    SC_IF1(SC_ALLOW, SC_RANGE(1, 0x5424, 0x5429)),        /* TIOCGETD .. TIOCGSID */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x5441)),                   /* TIOCGPTPEER */
    SC_IF1(SC_ALLOW, SC_RANGE(1, 0x5450, 0x5452)),        /* FIONCLEX, FIOCLEX, FIOASYNC */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x5460)),                   /* FIOQSIZE */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x40045431)),               /* TIOCSPTLCK */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x40045436)),               /* TIOCSIG, pty masters only */
    SC_IF1(SC_ALLOW, SC_RANGE(1, 0x402c542b, 0x402c542d)),/* TCSETS2, TCSETSW2, TCSETSF2 */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x802c542a)),               /* TCGETS2 */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x80045430)),               /* TIOCGPTN */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x80045432)),               /* TIOCGDEV */
    SC_IF1(SC_ALLOW, SC_RANGE(1, 0x80045438, 0x80045439)),/* TIOCGPKT, TIOCGPTLCK */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x80045440)),               /* TIOCGEXCL */

    SC_IF1(SC_ALLOW, SC_RANGE(1, 0x8901, 0x8907)),        /* FIOSETOWN .. SIOCGSTAMPNS */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x8910)),                   /* SIOCGIFNAME */
    SC_IF1(SC_ALLOW, SC_RANGE(1, 0x8912, 0x8913)),        /* SIOCGIFCONF, SIOCGIFFLAGS */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x8915)),                   /* SIOCGIFADDR */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x8917)),                   /* SIOCGIFDSTADDR */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x8919)),                   /* SIOCGIFBRDADDR */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x891b)),                   /* SIOCGIFNETMASK */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x891d)),                   /* SIOCGIFMETRIC */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x8921)),                   /* SIOCGIFMTU */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x8927)),                   /* SIOCGIFHWADDR */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x8933)),                   /* SIOCGIFINDEX */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x8942)),                   /* SIOCGIFTXQLEN */
    SC_IF1(SC_DENY(EOPNOTSUPP), SC_EQ(1, 0x8946)),        /* SIOCETHTOOL */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x894b)),                   /* SIOCOUTQNSD */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x8970)),                   /* SIOCGIFMAP */
    SC_IF1(SC_ALLOW, SC_RANGE(1, 0x80108906, 0x80108907)),/* SIOCGSTAMP_NEW, SIOCGSTAMPNS_NEW */

    SC_IF1(SC_DENY(EPERM), SC_EQ(1, 1)),                  /* FIBMAP */
    SC_IF1(SC_ALLOW, SC_EQ(1, 2)),                        /* FIGETBSZ */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x80086601)),               /* FS_IOC_GETFLAGS */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x80087601)),               /* FS_IOC_GETVERSION */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x801c581f)),               /* FS_IOC_FSGETXATTR */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x40049409)),               /* FICLONE */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x4020940d)),               /* FICLONERANGE */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x80045200)),               /* RNDGETENTCNT */

    SC_IF1(SC_DENY(EPERM), SC_MASK(1, 0xff00, 0x2100)),   /* seccomp listeners */
    SC_IF1(SC_DENY(EPERM), SC_MASK(1, 0xff00, 0x4b00)),   /* keyboard and console */
    SC_IF1(SC_DENY(EPERM), SC_MASK(1, 0xff00, 0x5400)),   /* the rest of the terminals, tun */
    SC_IF1(SC_DENY(EPERM), SC_MASK(1, 0xff00, 0x5600)),   /* virtual terminals */
    SC_IF1(SC_DENY(EPERM), SC_MASK(1, 0xff00, 0x5800)),   /* XFS and its generic heirs: freeze, trim, attributes */
    SC_IF1(SC_DENY(EPERM), SC_MASK(1, 0xff00, 0x6600)),   /* file flags, ext4, fscrypt, fsverity, fiemap */
    SC_IF1(SC_DENY(EPERM), SC_MASK(1, 0xff00, 0x7600)),   /* inode version */
    SC_IF1(SC_DENY(EPERM), SC_MASK(1, 0xff00, 0x8900)),   /* the rest of the sockets: routes, interfaces, bridges */
    SC_IF1(SC_DENY(EPERM), SC_MASK(1, 0xff00, 0x9400)),   /* btrfs, dedupe (a side channel) */
    SC_IF1(SC_DENY(EPERM), SC_MASK(1, 0xff00, 0xb700)),   /* namespaces from namespaces */
    SC_IF1(SC_DENY(EPERM), SC_MASK(1, 0xff00, 0xff00)),   /* namespaces from pidfds */
    SC_ELSE(SC_DENY(ENOTTY)),
};

/*
 * ioctl of the one program of a sandbox that has /dev/kvm: a monitor of virtual machines. All of KVM (0xae), and of the
 * rest only what a program does with its own descriptors.
 */
static const struct seccomp_clause seccomp_rule_ioctl_kvm[] = {
    SC_IF1(SC_ALLOW, SC_MASK(1, 0xff00, 0xae00)),
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x5401)),                   /* TCGETS: is it a terminal? */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x5413)),                   /* TIOCGWINSZ */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x541b)),                   /* FIONREAD */
    SC_IF1(SC_ALLOW, SC_EQ(1, 0x5421)),                   /* FIONBIO */
    SC_IF1(SC_ALLOW, SC_RANGE(1, 0x5450, 0x5451)),        /* FIONCLEX, FIOCLEX */
    SC_ELSE(SC_DENY(ENOTTY)),
};

/*
 * prctl. Refused: SET_SECUREBITS (set-up has locked them), SET_MM (forges /proc/self/exe and cmdline), SET_IO_FLUSHER
 * (dips into the machine's memory reserve), SCHED_CORE (can pin and probe sibling threads), SET_MEMORY_MERGE (KSM:
 * equal pages of two sandboxes become one, which timing shows; CVE-2015-2877), SET_PTRACER. A filter of the program's
 * own (SET_SECCOMP, mode 2) is answered as a kernel without filters does: see the rule seccomp. Past GET_MEMORY_MERGE,
 * the newest that matters to programs, only naming memory areas.
 */
static const struct seccomp_clause seccomp_rule_prctl[] = {
    SC_IF1(SC_ALLOW, SC_EQ(0, 0x53564d41)),        /* PR_SET_VMA */
    SC_IF1(SC_DENY(EPERM), SC_EQ(0, 0x59616d61)),  /* PR_SET_PTRACER */
    SC_IF2(SC_DENY(EINVAL), SC_EQ(0, 22), SC_EQ(1, 2)), /* PR_SET_SECCOMP, SECCOMP_MODE_FILTER */
    SC_IF1(SC_DENY(EPERM), SC_EQ(0, 28)),          /* PR_SET_SECUREBITS */
    SC_IF1(SC_DENY(EPERM), SC_EQ(0, 35)),          /* PR_SET_MM */
    SC_IF1(SC_DENY(EPERM), SC_EQ(0, 57)),          /* PR_SET_IO_FLUSHER */
    SC_IF1(SC_DENY(EPERM), SC_EQ(0, 62)),          /* PR_SCHED_CORE */
    SC_IF1(SC_DENY(EPERM), SC_EQ(0, 67)),          /* PR_SET_MEMORY_MERGE */
    SC_IF1(SC_ALLOW, SC_RANGE(0, 1, 68)),
    SC_ELSE(SC_DENY(EINVAL)),
};

/*
 * madvise: not MADV_MERGEABLE, the other door to KSM, and not MADV_PAGEOUT, which drops pages of a file that others
 * share (see fadvise64). The answers are those of a kernel without them.
 */
static const struct seccomp_clause seccomp_rule_madvise[] = {
    SC_IF1(SC_DENY(EINVAL), SC_EQ(2, 12)),
    SC_IF1(SC_DENY(EINVAL), SC_EQ(2, 21)),
    SC_ELSE(SC_ALLOW),
};

/*
 * fadvise64: POSIX_FADV_DONTNEED drops pages of the host's page cache, which all sandboxes share: one drops and reads,
 * the other times its reads, and that is a channel of a kilobyte a second. It is advice, so it is answered 0 and not
 * done. preadv2 with RWF_NOWAIT (8) says without a clock, and without loading it, whether a page is in memory, and
 * RWF_DONTCACHE (0x80) reads a page without leaving it there; the answer is that of a file system that cannot do it,
 * and programs then read as usual.
 */
static const struct seccomp_clause seccomp_rule_fadvise64[] = {
    SC_IF1(SC_DENY(0), SC_EQ(3, 4)),
    SC_ELSE(SC_ALLOW),
};
static const struct seccomp_clause seccomp_rule_preadv2[] = {
    SC_IF1(SC_ALLOW, SC_MASK(5, 0x88, 0)),
    SC_ELSE(SC_DENY(EOPNOTSUPP)),
};

/*
 * mmap (flags 3), shmget (2), memfd_create (1): huge pages come out of a pool of the whole host, which the memory
 * limit does not count. MAP_HUGETLB is answered as by an empty pool, SHM_HUGETLB as to any user without the privilege,
 * MFD_HUGETLB as by a kernel before 4.14. Transparent huge pages are ordinary memory and stay.
 */
static const struct seccomp_clause seccomp_rule_mmap[] = {
    SC_IF1(SC_ALLOW, SC_MASK(3, 0x40000, 0)),
    SC_ELSE(SC_DENY(ENOMEM)),
};
static const struct seccomp_clause seccomp_rule_shmget[] = {
    SC_IF1(SC_ALLOW, SC_MASK(2, 04000, 0)),
    SC_ELSE(SC_DENY(EPERM)),
};
static const struct seccomp_clause seccomp_rule_memfd_create[] = {
    SC_IF1(SC_ALLOW, SC_MASK(1, 4, 0)),
    SC_ELSE(SC_DENY(EINVAL)),
};

/*
 * setsockopt. Refused: programs on sockets (SO_ATTACH_FILTER, SO_ATTACH_BPF and both of SO_ATTACH_REUSEPORT_*: their
 * machine code counts against net.core.bpf_jit_limit, one number for the whole host that no cgroup divides; when it is
 * used up no new sandbox gets its own filter), SO_BINDTODEVICE and its sibling SO_BINDTOIFINDEX (around the gate's
 * routes), the netfilter tables (CVE-2021-22555: 64 and up for IPv4; for IPv6 64 and 65 only, since 66 and 67 are the
 * traffic class that ssh and node set; 200 and up multicast routing), ipsec policies (the xfrm half of Dirty Frag),
 * TCP_MD5SIG, TCP_REPAIR and its helpers, TCP_ULP (kTLS: CVE-2023-0461, CVE-2025-38616), TCP_AO, UDP_ENCAP (its ESP
 * half), flow labels (the host has 4,096, for all namespaces together). Levels of families that cannot be opened do not
 * exist.
 */
static const struct seccomp_clause seccomp_rule_setsockopt[] = {
    SC_IF2(SC_DENY(EPERM), SC_EQ(1, 1), SC_EQ(2, 25)),           /* SO_BINDTODEVICE */
    SC_IF2(SC_DENY(EPERM), SC_EQ(1, 1), SC_EQ(2, 26)),           /* SO_ATTACH_FILTER */
    SC_IF2(SC_DENY(EPERM), SC_EQ(1, 1), SC_RANGE(2, 50, 52)),    /* SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF, _EBPF */
    SC_IF2(SC_DENY(EPERM), SC_EQ(1, 1), SC_EQ(2, 62)),           /* SO_BINDTOIFINDEX */
    SC_IF1(SC_ALLOW, SC_EQ(1, 1)),
    SC_IF2(SC_DENY(EPERM), SC_EQ(1, 6), SC_EQ(2, 14)),           /* TCP_MD5SIG */
    SC_IF2(SC_DENY(EPERM), SC_EQ(1, 6), SC_RANGE(2, 19, 22)),    /* TCP_REPAIR* */
    SC_IF2(SC_DENY(EPERM), SC_EQ(1, 6), SC_EQ(2, 29)),           /* TCP_REPAIR_WINDOW */
    SC_IF2(SC_DENY(EPERM), SC_EQ(1, 6), SC_RANGE(2, 31, 32)),    /* TCP_ULP, TCP_MD5SIG_EXT */
    SC_IF2(SC_ALLOW, SC_EQ(1, 6), SC_RANGE(2, 0, 37)),
    SC_IF2(SC_DENY(EPERM), SC_EQ(1, 6), SC_RANGE(2, 38, 42)),    /* TCP_AO_* */
    SC_IF1(SC_DENY(ENOPROTOOPT), SC_EQ(1, 6)),
    SC_IF2(SC_DENY(EPERM), SC_EQ(1, 0), SC_RANGE(2, 16, 17)),    /* IP_IPSEC_POLICY, IP_XFRM_POLICY */
    SC_IF2(SC_ALLOW, SC_EQ(1, 0), SC_RANGE(2, 0, 63)),
    SC_IF1(SC_DENY(EPERM), SC_EQ(1, 0)),
    SC_IF2(SC_DENY(EPERM), SC_EQ(1, 41), SC_EQ(2, 32)),          /* IPV6_FLOWLABEL_MGR */
    SC_IF2(SC_DENY(EPERM), SC_EQ(1, 41), SC_RANGE(2, 34, 35)),   /* IPV6_IPSEC_POLICY, IPV6_XFRM_POLICY */
    SC_IF2(SC_DENY(EPERM), SC_EQ(1, 41), SC_RANGE(2, 64, 65)),   /* IP6T_SO_SET_* */
    SC_IF2(SC_ALLOW, SC_EQ(1, 41), SC_RANGE(2, 0, 199)),
    SC_IF1(SC_DENY(EPERM), SC_EQ(1, 41)),
    SC_IF2(SC_DENY(EPERM), SC_EQ(1, 17), SC_EQ(2, 100)),         /* UDP_ENCAP */
    SC_IF1(SC_ALLOW, SC_EQ(1, 17)),
    SC_IF1(SC_ALLOW, SC_EQ(1, 58)),                              /* ICMPv6 */
    SC_IF1(SC_ALLOW, SC_EQ(1, 270)),                             /* netlink */
    SC_ELSE(SC_DENY(ENOPROTOOPT)),
};

/*
 * fcntl. Leases and directory notifications (1024, 1026) stall other openers of a file, beyond the sandbox when the
 * file is in a bind; delegations (1040, Linux 6.19) are leases on directories. OFD locks (36 to 38) name no process, so
 * nobody could tell whose they are (spawner/sandbox_locks.c); they are answered as Linux before 3.15 does.
 */
static const struct seccomp_clause seccomp_rule_fcntl[] = {
    SC_IF1(SC_ALLOW, SC_RANGE(1, 0, 35)),        /* POSIX, owners, signals */
    SC_IF1(SC_ALLOW, SC_RANGE(1, 1027, 1038)),   /* DUPFD_CLOEXEC, pipe size, seals, hints */
    SC_IF1(SC_ALLOW, SC_EQ(1, 1025)),            /* F_GETLEASE */
    SC_IF1(SC_DENY(EPERM), SC_EQ(1, 1024)),
    SC_IF1(SC_DENY(EPERM), SC_EQ(1, 1026)),
    SC_IF1(SC_DENY(EPERM), SC_RANGE(1, 1039, 1040)),
    SC_ELSE(SC_DENY(EINVAL)),
};

/*
 * chmod, fchmod, creat (mode is argument 1), fchmodat, fchmodat2 (argument 2): no set-id bits, so that no set-id file
 * is left in a directory the host sees. Inside, nosuid and no_new_privs already make them inert. In `default` the bits
 * can still be asked for when a file is created (open, and openat2, whose mode is behind a pointer): there the rule
 * stops archives and copies, not an attacker. `paranoid` closes the whole class and pays with an argument check on
 * open.
 */
static const struct seccomp_clause seccomp_rule_mode1[] = {
    SC_IF1(SC_ALLOW, SC_MASK(1, 06000, 0)),
    SC_ELSE(SC_DENY(EPERM)),
};
static const struct seccomp_clause seccomp_rule_mode2[] = {
    SC_IF1(SC_ALLOW, SC_MASK(2, 06000, 0)),
    SC_ELSE(SC_DENY(EPERM)),
};

/* open (flags 1, mode 2), openat (2, 3): the mode counts only with O_CREAT (0x40) or O_TMPFILE (0x400000). */
static const struct seccomp_clause seccomp_rule_open1[] = {
    SC_IF1(SC_ALLOW, SC_MASK(1, 0x400040, 0)),
    SC_IF1(SC_ALLOW, SC_MASK(2, 06000, 0)),
    SC_ELSE(SC_DENY(EPERM)),
};
static const struct seccomp_clause seccomp_rule_open2[] = {
    SC_IF1(SC_ALLOW, SC_MASK(2, 0x400040, 0)),
    SC_IF1(SC_ALLOW, SC_MASK(3, 06000, 0)),
    SC_ELSE(SC_DENY(EPERM)),
};

/*
 * mknod (mode 1), mknodat (2): regular files, FIFOs and sockets, without set-id bits. Device nodes need a capability
 * nobody has and nodev mounts hide them; character device 0:0 is an overlay whiteout and needs none (Linux 5.8).
 */
static const struct seccomp_clause seccomp_rule_mknod1[] = {
    SC_IF2(SC_ALLOW, SC_MASK(1, 06000, 0), SC_MASK_IN(1, 0170000, 0, 0010000)),
    SC_IF2(SC_ALLOW, SC_MASK(1, 06000, 0), SC_MASK(1, 0170000, 0100000)),
    SC_IF2(SC_ALLOW, SC_MASK(1, 06000, 0), SC_MASK(1, 0170000, 0140000)),
    SC_ELSE(SC_DENY(EPERM)),
};
static const struct seccomp_clause seccomp_rule_mknod2[] = {
    SC_IF2(SC_ALLOW, SC_MASK(2, 06000, 0), SC_MASK_IN(2, 0170000, 0, 0010000)),
    SC_IF2(SC_ALLOW, SC_MASK(2, 06000, 0), SC_MASK(2, 0170000, 0100000)),
    SC_IF2(SC_ALLOW, SC_MASK(2, 06000, 0), SC_MASK(2, 0170000, 0140000)),
    SC_ELSE(SC_DENY(EPERM)),
};

/* personality: ask, or the plain one. ADDR_NO_RANDOMIZE and READ_IMPLIES_EXEC make exploits easy. */
static const struct seccomp_clause seccomp_rule_personality[] = {
    SC_IF1(SC_ALLOW, SC_EQ(0, 0)),
    SC_IF1(SC_ALLOW, SC_EQ(0, 0xffffffff)),
    SC_ELSE(SC_DENY(EPERM)),
};

/*
 * seccomp: programs may ask which actions exist (libseccomp does). No filters of their own: each thread could hold
 * 32,768 instructions of them, and their machine code counts against net.core.bpf_jit_limit (see setsockopt). EINVAL is
 * the answer of a kernel built without filters, which programs that would narrow themselves expect (man-db, OpenSSH,
 * systemd's units go on without). A listener (flag 8) would besides let one process answer for another.
 */
static const struct seccomp_clause seccomp_rule_seccomp[] = {
    SC_IF2(SC_DENY(EINVAL), SC_EQ(0, 1), SC_MASK(1, 8, 0)),
    SC_IF1(SC_ALLOW, SC_EQ(0, 2)),
    SC_ELSE(SC_DENY(EPERM)),
};

/*
 * prlimit64, sched_setaffinity, setpriority: where pid 1 shares the program's id (rootless without subordinate ids)
 * these would let a program cripple it: take away its descriptors, pin it, starve it. Groups and users of processes
 * would include it.
 */
static const struct seccomp_clause seccomp_rule_prlimit64[] = {
    SC_IF1(SC_ALLOW, SC_EQ(0, 0)),
    SC_ELSE(SC_DENY(EPERM)),
};
static const struct seccomp_clause seccomp_rule_sched_setaffinity[] = {
    SC_IF1(SC_DENY(EPERM), SC_EQ(0, 1)),
    SC_ELSE(SC_ALLOW),
};
static const struct seccomp_clause seccomp_rule_setpriority[] = {
    SC_IF2(SC_DENY(EPERM), SC_EQ(0, 0), SC_EQ(1, 1)),
    SC_IF1(SC_ALLOW, SC_EQ(0, 0)),
    SC_ELSE(SC_DENY(EPERM)),
};

/* One line per rule: the name the table uses, and the clauses. */
#define SECCOMP_RULES(X) \
    X(CLONE, clone) \
    X(SOCKET, socket) \
    X(SOCKETPAIR, socketpair) \
    X(IOCTL, ioctl) \
    X(IOCTL_KVM, ioctl_kvm) \
    X(PRCTL, prctl) \
    X(MADVISE, madvise) \
    X(FADVISE64, fadvise64) \
    X(PREADV2, preadv2) \
    X(MMAP, mmap) \
    X(SHMGET, shmget) \
    X(MEMFD_CREATE, memfd_create) \
    X(SETSOCKOPT, setsockopt) \
    X(FCNTL, fcntl) \
    X(MODE1, mode1) \
    X(MODE2, mode2) \
    X(OPEN1, open1) \
    X(OPEN2, open2) \
    X(MKNOD1, mknod1) \
    X(MKNOD2, mknod2) \
    X(PERSONALITY, personality) \
    X(SECCOMP, seccomp) \
    X(PRLIMIT64, prlimit64) \
    X(SCHED_SETAFFINITY, sched_setaffinity) \
    X(SETPRIORITY, setpriority)

enum seccomp_rule_id {
#define X(id, name) SECCOMP_RULE_##id,
    SECCOMP_RULES(X)
#undef X
    SECCOMP_RULE_MAX
};

static const struct seccomp_rule seccomp_rules[SECCOMP_RULE_MAX] = {
#define X(id, name) { #name, seccomp_rule_##name, sizeof(seccomp_rule_##name) / sizeof(seccomp_rule_##name[0]) },
    SECCOMP_RULES(X)
#undef X
};
/* clang-format on */

/* Returns the answer of a rule to these arguments. The tests compare the compiled filter with it. */
static inline uint32_t seccomp_rule_judge(const struct seccomp_rule *rule, const uint64_t args[6])
{
    for (size_t i = 0; i < rule->count; i++) {
        const struct seccomp_clause *clause = &rule->clauses[i];
        uint32_t k;

        for (k = 0; k < clause->conds; k++) {
            const struct seccomp_cond *c = &clause->cond[k];
            uint32_t v = (uint32_t)args[c->arg] & c->mask;

            if (v < c->min || v > c->max)
                break;
        }
        if (k == clause->conds)
            return clause->verdict;
    }
    return SECCOMP_RET_KILL_PROCESS; /* not reached: the generator refuses a rule that does not end in SC_ELSE */
}

#endif
