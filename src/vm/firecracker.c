/* SPDX-License-Identifier: Apache-2.0 */
/*
 * firecracker.c: the monitor Firecracker. Its command line names only its API socket; what it runs is told there, in
 * this order: the machine, the kernel, the image of the root, the vsock, entropy, and to start.
 *
 * The guest's brig-init listens on its vsock. Firecracker has a unix socket for that, and connects whoever writes
 * "CONNECT PORT\n" to it; what it answers to that line comes before the HELLO of brig-init, and is dropped with all
 * else that does. Both sockets lie in /run of the sandbox around it, where pid 1 has no right to a file of the user's:
 * so a shell makes them open to all that is in the sandbox, and becomes Firecracker.
 *
 * Firecracker's own filter is off, because the jail's filter lets no program put on another. It has no user-mode
 * network, and a sandbox has no tap device: its machines have no network.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/parse.h"
#include "base/str.h"
#include "guest/boot/boot.h"
#include "vm/fire.h"

#define MIB (UINT64_C(1) << 20)
#define FIRECRACKER_MEMORY (32 * MIB) /* it promises 5 MiB at most; the rest is the kernel's for the guest */
#define FIRECRACKER_PIDS 64u
#define API_SOCKET "/run/firecracker-api"
#define VSOCK_SOCKET "/run/firecracker-vsock"
#define GUEST_CID 3u /* the first that a guest can have */
#define VCPUS_MAX 32u
#define MINOR_MIN 8u /* 1.8 is the first whose devices a kernel finds by ACPI, as Debian's must */

/* ---- the command line --------------------------------------------------------------------------------- */

static int put_words(const struct vm_box *box, struct buf *out, uint32_t *ret_argv, uint32_t *ret_env)
{
    const char *const words[] = {
        "/bin/sh", "-c",          "umask 0; exec \"$0\" \"$@\"", vm_program_target, "--api-sock", API_SOCKET, "--id",
        box->id,   "--no-seccomp"};
    static const char path[] = "PATH=/usr/bin:/bin";
    int r = 0;

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(words); i++)
        r = buf_append(out, words[i], strlen(words[i]) + 1);
    *ret_argv = ARRAY_SIZE(words);
    *ret_env = 1;
    return r < 0 ? r : buf_append(out, path, sizeof path);
}

static struct brig_limits outer_limits(const struct brig_limits *guest)
{
    return (struct brig_limits){
        .memory = guest->memory + FIRECRACKER_MEMORY, .cpus = guest->cpus, .pids = FIRECRACKER_PIDS};
}

/* ---- requests ----------------------------------------------------------------------------------------- */

/* "1.15.0-dev" is 1 and 15. */
static bool read_version(const char *text, uint32_t *ret_major, uint32_t *ret_minor)
{
    char part[16];
    const size_t major = strcspn(text, ".");

    if (text[major] == '\0')
        return false;
    const size_t minor = strcspn(text + major + 1, ".-");
    return str_format(part, sizeof part, "%.*s", (int)major, text) >= 0 && parse_u32(part, ret_major) == 0 &&
           str_format(part, sizeof part, "%.*s", (int)minor, text + major + 1) >= 0 && parse_u32(part, ret_minor) == 0;
}

static int take_version(struct vm_box *box, const struct json_value *json, struct brig_err *err)
{
    uint32_t major = 0, minor = 0;

    if (!read_version(json_get_text(json, "firecracker_version", "."), &major, &minor))
        return err_set(err, BRIG_E_HOST, 0, "Firecracker does not tell its version");
    if (major != 1 || minor < MINOR_MIN)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "Firecracker %u.%u: must be 1.%u or a later 1", major, minor,
                       MINOR_MIN);
    (void)!str_format(box->vm->version, sizeof box->vm->version, "%u.%u", major, minor);
    return 0;
}

static void put_machine(const struct vm_box *box, struct json *json)
{
    uint64_t cpus = (box->facts.limits.cpus + 999) / 1000;

    json_key_u64(json, "vcpu_count", cpus < 1 ? 1 : cpus > VCPUS_MAX ? VCPUS_MAX : cpus);
    json_key_u64(json, "mem_size_mib", box->facts.limits.memory / MIB);
}

static void put_boot_source(const struct vm_box *box, struct json *json)
{
    char words[VM_BOOT_WORDS], line[VM_BOOT_WORDS + 160];

    vm_boot_words(box, words);
    if (str_format(line, sizeof line,
                   "console=ttyS0 quiet reboot=k panic=-1 oops=panic pci=off random.trust_cpu=on " BOOT_STREAM
                   "vsock %s",
                   words) < 0)
        json->error = -EMSGSIZE;
    json_key_string(json, "kernel_image_path", vm_kernel_target);
    json_key_string(json, "initrd_path", vm_initrd_target);
    json_key_string(json, "boot_args", line);
}

/* The only drive that is read from or written to. */
static void put_drive(const struct vm_box *box, struct json *json)
{
    const uint64_t rate = box->facts.limits.io_read_bps;

    json_key_string(json, "drive_id", "root");
    json_key_string(json, "path_on_host", vm_root_target);
    json_key_bool(json, "is_root_device", false);
    json_key_bool(json, "is_read_only", true);
    if (rate == 0)
        return;
    json_key_object(json, "rate_limiter");
    json_key_object(json, "bandwidth");
    json_key_u64(json, "size", rate);
    json_key_u64(json, "refill_time", 1000); /* ms */
    json_end(json);
    json_end(json);
}

static void put_vsock(const struct vm_box *box UNUSED, struct json *json)
{
    json_key_u64(json, "guest_cid", GUEST_CID);
    json_key_string(json, "uds_path", VSOCK_SOCKET);
}

static void put_nothing(const struct vm_box *box UNUSED, struct json *json UNUSED)
{
}

static void put_start(const struct vm_box *box UNUSED, struct json *json)
{
    json_key_string(json, "action_type", "InstanceStart");
}

static int drive(struct vm_box *box, struct brig_err *err)
{
    static const struct fire_step steps[] = {
        {"GET", "/version", NULL, take_version},
        {"PUT", "/machine-config", put_machine, NULL},
        {"PUT", "/boot-source", put_boot_source, NULL},
        {"PUT", "/drives/root", put_drive, NULL},
        {"PUT", "/vsock", put_vsock, NULL},
        {"PUT", "/entropy", put_nothing, NULL},
        {"PUT", "/actions", put_start, NULL},
    };

    return fire_talk_create(box, API_SOCKET, steps, ARRAY_SIZE(steps), vm_driven, &box->talk, err);
}

/* ---- the monitor -------------------------------------------------------------------------------------- */

int fire_connect(struct link *link, const char *path, const struct call_events *events, struct call **ret,
                 struct brig_err *err)
{
    uint8_t payload[2 + 108] = {0, 0}; /* no port: a path follows */
    size_t len = strlen(path);

    if (len > sizeof payload - 2)
        return err_set(err, BRIG_E_HOST, ENAMETOOLONG, "%s", path);
    memcpy(payload + 2, path, len);
    return link_call(link, SVC_PORT_CONNECT, payload, 2 + len, events, ret, err);
}

static int reach(struct link *link, const struct call_events *events, struct call **ret, struct brig_err *err)
{
    return fire_connect(link, VSOCK_SOCKET, events, ret, err);
}

static const char *by(const struct vm *vm UNUSED)
{
    return "firecracker";
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
const struct vm_monitor vm_firecracker = {
    .name = "Firecracker",
    .provider = "firecracker",
    .caps = PROVIDER_PAUSE | PROVIDER_WRITABLE_ROOT | PROVIDER_RECOVER | PROVIDER_OWN_KERNEL,
    .install = "[firecracker] path must be its program",
    .bound = true,
    .kvm = true,
    .probed = true,
    .greeting = "CONNECT " TEXT(BOOT_VSOCK_PORT) "\n",
    .by = by,
    .limits = outer_limits,
    .words = put_words,
    .drive = drive,
    .reach = reach,
};
