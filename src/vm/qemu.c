/* SPDX-License-Identifier: Apache-2.0 */
/*
 * qemu.c: the machine: QEMU's command line, the words for the kernel, and what both may have.
 *
 * The machine has no firmware, no PCI and no devices but these: a serial line that only the kernel's messages go to, a
 * virtio port to brig-init, the image of the root, and with a network one card on QEMU's user-mode network. QEMU's own
 * filter (-sandbox) is not on: the jail's lets no program put on another. Its one socket listens on ::1, and its
 * network has no IPv6: what the guest asks for at 10.0.2.2 is 127.0.0.1 of the sandbox, where nobody listens.
 */
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "base/err.h"
#include "base/str.h"
#include "guest/boot/boot.h"
#include "host/limits.h"
#include "vm/vm_private.h"

#define MIB (UINT64_C(1) << 20)
#define MEMORY_MIN (128 * MIB)
#define CACHE_MIB 64u          /* of translated code, with emulation */
#define QEMU_MEMORY (96 * MIB) /* QEMU itself, measured: 60 to 75 MiB */
#define QEMU_PIDS 64u
#define MACHINE_BYTES 16u /* /etc/machine-id */
#define MEASURE_NS (10 * NS_PER_MS)

#define PORT 2744u /* QEMU's, on ::1 of its sandbox */

const char vm_root_target[] = "/vm/root", vm_kernel_target[] = "/vm/kernel", vm_initrd_target[] = "/vm/initrd",
           vm_program_target[] = "/vm/monitor";

/* ---- limits ------------------------------------------------------------------------------------------- */

int vm_guest_limits(struct brig_limits *limits, struct brig_err *err)
{
    limits_fill(limits, false);
    int r = limits_check(limits, err);
    if (r == 0)
        r = limits_check_memory_store(limits, err);
    if (r == 0 && limits->memory < MEMORY_MIN)
        r = err_usage(err, "memory %" PRIu64 ": a virtual machine needs at least %" PRIu64, limits->memory, MEMORY_MIN);
    limits->memory &= ~(MIB - 1); /* a machine has whole mebibytes */
    return r;
}

static struct brig_limits outer_limits(const struct brig_limits *guest)
{
    return (struct brig_limits){
        .memory = guest->memory + QEMU_MEMORY + CACHE_MIB * MIB, .cpus = guest->cpus, .pids = QEMU_PIDS};
}

/* ---- the counter -------------------------------------------------------------------------------------- */

/*
 * An emulated kernel measures the time stamp counter against the timer of the machine. On a busy host it fails one
 * time in three, and hangs; so it is told.
 */
uint64_t vm_tsc_khz(void)
{
#if defined(__x86_64__)
    const struct timespec pause = {.tv_nsec = (long)MEASURE_NS};
    uint64_t from_ns = clock_mono_ns(), from = __rdtsc();

    (void)!nanosleep(&pause, NULL);
    uint64_t to_ns = clock_mono_ns(), to = __rdtsc();
    return to > from && to_ns > from_ns ? (uint64_t)((double)(to - from) * 1e6 / (double)(to_ns - from_ns)) : 0;
#else
    return 0;
#endif
}

/* ---- words -------------------------------------------------------------------------------------------- */

struct words {
    struct buf *out;
    uint32_t n;
    bool failed;
};

/* One word. */
static void put(struct words *words, const char *text)
{
    if (buf_append(words->out, text, strlen(text) + 1) < 0)
        words->failed = true;
    words->n++;
}

#define PUT_TEXT(words, ...)                                  \
    do {                                                      \
        char text_[1024];                                     \
        if (str_format(text_, sizeof text_, __VA_ARGS__) < 0) \
            (words)->failed = true;                           \
        put((words), text_);                                  \
    } while (0)

static void put_machine(struct words *words, const struct vm_box *box)
{
    static const char *const fixed[] = {"-M",
                                        "microvm,acpi=on,rtc=on",
                                        "-cpu",
                                        "max",
                                        "-nodefaults",
                                        "-no-user-config",
                                        "-no-reboot",
                                        "-display",
                                        "none",
                                        "-serial",
                                        "stdio",
                                        "-device",
                                        "virtio-serial-device",
                                        "-device",
                                        "virtserialport,chardev=stream,name=brig",
                                        "-device",
                                        "virtio-blk-device,drive=root",
                                        "-kernel",
                                        vm_kernel_target,
                                        "-initrd",
                                        vm_initrd_target};

    if (box->from) { /* The shell becomes QEMU; all that it does is to open the file. */
        put(words, "/bin/sh");
        put(words, "-c");
        put(words, "exec \"$0\" \"$@\" 9<" VM_STATE_TARGET);
    }
    put(words, box->vm->program);
    if (box->from) {
        put(words, "-incoming");
        put(words, "fd:9");
    }
    put(words, "-accel");
    if (box->vm->kvm)
        put(words, "kvm");
    else
        PUT_TEXT(words, "tcg,tb-size=%u", CACHE_MIB);
    PUT_TEXT(words, "-chardev");
    PUT_TEXT(words, "socket,id=stream,host=::1,port=%u,server=on,wait=off,ipv4=off,ipv6=on", PORT);
    if (box->template) {
        put(words, "-chardev");
        PUT_TEXT(words, "socket,id=qmp,host=::1,port=%u,server=on,wait=off,ipv4=off,ipv6=on", VM_QMP_PORT);
        put(words, "-mon");
        put(words, "chardev=qmp,mode=control");
    }
    for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
        put(words, fixed[i]);
    put(words, "-drive");
    PUT_TEXT(words, "if=none,id=root,format=raw,readonly=on,file=%s", vm_root_target);
    put(words, "-m");
    PUT_TEXT(words, "%" PRIu64, box->facts.limits.memory / MIB);
    if (box->facts.network) {
        put(words, "-netdev");
        put(words, "user,id=net,ipv6=off");
        put(words, "-device");
        put(words, "virtio-net-device,netdev=net");
    }
}

void vm_boot_words(const struct vm_box *box, char out[VM_BOOT_WORDS])
{
    const struct brig_limits *limits = &box->facts.limits;

    /* Numbers and an id: they fit. */
    (void)!str_format(out, VM_BOOT_WORDS,
                      BOOT_ROOT "erofs " BOOT_DISK "%" PRIu64 " " BOOT_INODES "%" PRIu64 " " BOOT_PIDS "%" PRIu64
                                " " BOOT_HOST "%s " BOOT_WRITABLE "%u " BOOT_NET "%u",
                      limits->disk, limits->inodes, (uint64_t)limits->pids, box->id, box->facts.writable_root,
                      box->facts.network);
}

/* These are of the shape of a machine (vm_warm.c), never of one sandbox. */
static void put_kernel(struct words *words, const struct vm_box *box)
{
    char rate[48] = "";

    if (!box->vm->kvm && box->vm->tsc_khz > 0)
        (void)!str_format(rate, sizeof rate, " tsc_early_khz=%" PRIu64, box->vm->tsc_khz);
    put(words, "-append");
    PUT_TEXT(words,
             "console=ttyS0 quiet panic=-1 oops=panic mitigations=off random.trust_cpu=on reboot=t%s " BOOT_ROOT
             "erofs " BOOT_NET "%u " BOOT_WAIT "1",
             rate, box->facts.network);
}

static void put_hex(const uint8_t *bytes, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        *out++ = digits[bytes[i] >> 4];
        *out++ = digits[bytes[i] & 15];
    }
    *out = '\0';
}

static int put_line(const struct vm_box *box, char *out, size_t size)
{
    const struct brig_limits *limits = &box->facts.limits;
    uint8_t random[BOOT_SEED_DIGITS / 2 + MACHINE_BYTES];
    char seed[BOOT_SEED_DIGITS + 1], machine[2 * MACHINE_BYTES + 1];

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return -EIO;
    put_hex(random, BOOT_SEED_DIGITS / 2, seed);
    put_hex(random + BOOT_SEED_DIGITS / 2, MACHINE_BYTES, machine);
    int r = str_format(out, size,
                       BOOT_DISK "%" PRIu64 " " BOOT_INODES "%" PRIu64 " " BOOT_PIDS "%" PRIu64 " " BOOT_HOST
                                 "%s " BOOT_WRITABLE "%u " BOOT_MACHINE "%s " BOOT_TIME "%" PRIi64 " " BOOT_SEED "%s\n",
                       limits->disk, limits->inodes, (uint64_t)limits->pids, box->id, box->facts.writable_root, machine,
                       clock_real_ns(), seed);
    explicit_bzero(random, sizeof random);
    explicit_bzero(seed, sizeof seed);
    return r < 0 ? r : (int)strlen(out);
}

static int put_words(const struct vm_box *box, struct buf *out, uint32_t *ret_argv, uint32_t *ret_env)
{
    struct words words = {.out = out};

    put_machine(&words, box);
    put_kernel(&words, box);
    *ret_argv = words.n;
    put(&words, "PATH=/usr/bin:/bin");
    *ret_env = words.n - *ret_argv;
    return words.failed ? -ENOMEM : 0;
}

/* ---- the monitor -------------------------------------------------------------------------------------- */

static const char *accelerated_by(const struct vm *vm)
{
    return vm->kvm ? "qemu kvm" : "qemu tcg";
}

static int reach(struct link *link, const struct call_events *events, struct call **ret, struct brig_err *err)
{
    const uint8_t port[2] = {PORT & 0xff, PORT >> 8};

    return link_call(link, SVC_PORT_CONNECT, port, sizeof port, events, ret, err);
}

const struct vm_monitor vm_qemu = {
    .name = "QEMU",
    .provider = "vm",
    .caps = PROVIDER_PAUSE | PROVIDER_WRITABLE_ROOT | PROVIDER_RECOVER | PROVIDER_GATE | PROVIDER_OWN_KERNEL,
    .install = "apt-get install qemu-system-x86",
    .by = accelerated_by,
    .limits = outer_limits,
    .words = put_words,
    .reach = reach,
    .line = put_line,
};
