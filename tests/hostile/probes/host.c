/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the whole host shares (S01 to S06): kernel resources that are one number for the machine, charged to no cgroup.
 * The probes take little: one success is the proof, and nothing is used up on a machine whose sandbox does not work.
 */
#include "probe.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

static struct sock_filter pass[] = {BPF_STMT(BPF_RET | BPF_K, 0x7fff0000)};
static struct sock_fprog program = {1, pass};

/* Machine code of filters: net.core.bpf_jit_limit is the host's, and without it no new sandbox gets its filter. */
static void s01_bpf_jit(int argc, char **argv)
{
    static const struct {
        const char *name;
        int family, type;
    } sockets[] = {{"udp", AF_INET, SOCK_DGRAM},  {"tcp", AF_INET, SOCK_STREAM},    {"unix", AF_UNIX, SOCK_DGRAM},
                   {"udp6", AF_INET6, SOCK_DGRAM}, {"netlink", AF_NETLINK, SOCK_RAW}};
    static const struct {
        const char *name;
        int option;
    } options[] = {{"attach-filter", 26}, {"attach-bpf", 50}, {"reuseport-cbpf", 51}, {"reuseport-ebpf", 52}};
    int on = 1;
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(sockets); i++) {
        int fd = socket(sockets[i].family, sockets[i].type | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            untried(sockets[i].name, "%s", strerror(errno));
            continue;
        }
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
        for (size_t k = 0; k < ARRAY_LEN(options); k++) {
            /* With nothing in the way the eBPF ones take a descriptor that we do not have. */
            if (gentle() && options[k].option % 2 == 0 && options[k].option != 26)
                continue;
            REFUSED(nm("%s-%s", options[k].name, sockets[i].name),
                    setsockopt(fd, SOL_SOCKET, options[k].option, &program, sizeof(program)), EPERM);
            REFUSED(nm("%s-wide-%s", options[k].name, sockets[i].name),
                    syscall(SYS_setsockopt, fd, 0x100000000UL | SOL_SOCKET, 0x500000000UL | (unsigned)options[k].option,
                            &program, sizeof(program)),
                    EPERM);
        }
        close(fd);
    }
    REFUSED("seccomp", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), EINVAL);
    REFUSED("seccomp-log", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_LOG, &program), EINVAL);
    REFUSED("prctl", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), EINVAL);
    REFUSED("bpf", syscall(SYS_bpf, 5 /* BPF_PROG_LOAD */, NULL, 0), EPERM);
}

/* One huge page each way, from a pool that the harness has filled. */
static void s02_hugetlb(int argc, char **argv)
{
    size_t page = 2 * MIB;
    (void)argc, (void)argv;

    static const int sizes[] = {0, 21 << 26, 30 << 26}; /* the default, 2 MiB, 1 GiB */
    for (size_t i = 0; i < ARRAY_LEN(sizes) && (i < 2 || !gentle()); i++) {
        char *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | sizes[i], -1, 0);
        judge_refused(nm("mmap-%zu", i), p == MAP_FAILED ? -1 : 0, errno, ERRS(ENOMEM));
        p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB | sizes[i], -1, 0);
        judge_refused(nm("mmap-shared-%zu", i), p == MAP_FAILED ? -1 : 0, errno, ERRS(ENOMEM));
        REFUSED(nm("memfd-%zu", i), memfd_create("huge", 4u /* MFD_HUGETLB */ | (unsigned)sizes[i]), EINVAL);
        REFUSED(nm("shmget-%zu", i), syscall(SYS_shmget, 0, page, 04000 | sizes[i] | 0600), EPERM, ENOSYS);
    }
}

/* Drops the pages of a file that everybody shares, or asks which are there. The harness looks from outside. */
static void s06_page_cache(int argc, char **argv)
{
    char byte;
    struct iovec iov = {&byte, 1};
    int fd = argc > 1 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;

    if (fd < 0 || read(fd, &byte, 1) != 1) {
        untried("file", "%s", strerror(errno));
        return;
    }
    /* Advice is answered well even where it is not taken. */
    expect(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0, "dontneed-answers", "%s", strerror(errno));
    REFUSED("nowait", syscall(SYS_preadv2, fd, &iov, 1, 0, 0, 8 /* RWF_NOWAIT */), EOPNOTSUPP);
    REFUSED("dontcache", syscall(SYS_preadv2, fd, &iov, 1, 0, 0, 0x80 /* RWF_DONTCACHE */), EOPNOTSUPP);
    void *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (!gentle())
        REFUSED("pageout", madvise(p, 4096, 21 /* MADV_PAGEOUT */), EINVAL);
    munmap(p, 4096);
    dprintf(STDOUT_FILENO, "DROPPED\n");
}

const struct probe_case host_cases[] = {
    {"S01", s01_bpf_jit}, {"S02", s02_hugetlb}, {"S06", s06_page_cache}, {NULL, NULL},
};
