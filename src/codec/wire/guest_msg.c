/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_msg.c: writes and parses the payloads between the spawner and brig-init. docs/PROTOCOL.md has the layouts.
 * Both directions are untrusted: the program beside brig-init may have taken it over,
 * and START carries what users wrote. So a parser accepts exactly what an encoder of this or the previous version can
 * make: every enum is in range, every string ends inside the payload, and nothing is left over at the end.
 *
 * brig-init links this file and frame.c without a C library: only mem*() and strlen() may be called here.
 */
#include "codec/wire/guest_msg.h"

#include "codec/wire/fields.h"
#include "codec/wire/frame.h"
#include "codec/wire/le.h"

#define LAYER_MASK (BRIG_LAYER_BIT(BRIG_LAYER_MAX) - 1)
#define START_FLAGS                                                                                       \
    (GUEST_START_TTY | GUEST_START_STDIN | GUEST_START_SERVICE | GUEST_START_LEAVES | GUEST_START_ADOPT | \
     GUEST_START_ROOT | GUEST_START_PLACES | GUEST_START_SUDO | GUEST_START_VOLUMES)
#define SIGNAL_MAX 64u
#define ERRNO_MAX 4095u

_Static_assert(BRIG_LAYER_MAX < 64, "the layers' mask is one number");

/* ---- readings ----------------------------------------------------------------------------------- */

static const char *const by_texts[] = {
    [BY_NONE] = "",
    [BY_CGROUP_V1] = "cgroup v1",
    [BY_CGROUP_V2] = "cgroup v2",
    [BY_RLIMIT_AS] = "RLIMIT_AS",
    [BY_RLIMIT_NPROC] = "RLIMIT_NPROC",
    [BY_EXT4_IMAGE] = "ext4 image",
    [BY_MEMORY] = "memory-backed",
    [BY_SUBSET_PID] = "subset=pid",
    [BY_MASKED] = "masked",
    [BY_UID_RANGE] = "private uid range",
    [BY_SUBIDS] = "subordinate ids",
    [BY_UID_RANGE_HERE] = "uid range, private in this container",
    [BY_GVISOR_SYSTRAP] = "gvisor systrap",
    [BY_GVISOR_PTRACE] = "gvisor ptrace",
    [BY_GVISOR_KVM] = "gvisor kvm",
};
_Static_assert(ARRAY_SIZE(by_texts) == BY_MAX, "a text for every reading_by");

static const char *const why_texts[] = {
    [WHY_NONE] = "",
    [WHY_NOT_ASKED] = "it was not asked for",
    [WHY_KERNEL] = "this kernel does not have it",
    [WHY_READ_BACK] = "the kernel does not read back what was set",
    [WHY_NO_DELEGATION] = "no cgroup of this kind may be made here",
    [WHY_PER_PROCESS] = "it bounds each process, not their sum",
    [WHY_ONE_ID] = "the program, pid 1 and the calling user share one id",
    [WHY_WRITABLE_ROOT] = "a writable root was asked for",
    [WHY_NO_DEVICE] = "the store is not on a block device",
    [WHY_NOT_SAMPLED] = "it was not read back",
    [WHY_SWITCHED_OFF] = "it was switched off for a test",
    [WHY_OWN_ID] = "with writable binds the program has the calling user's own id",
    [WHY_IDS_NOT_KNOWN] = "another service on this host may have given out the same ids",
    [WHY_ROOT_INSIDE] = ("root inside was asked for: chown, dac_override, fowner, fsetid, kill, setgid and setuid over "
                         "its own files and processes"),
    [WHY_SHARED_IDS] = "the calling user's sandboxes with root inside or of a template share its subordinate ids",
    [WHY_HOST_KERNEL] = "its system calls are answered by the host's kernel",
};
_Static_assert(ARRAY_SIZE(why_texts) == WHY_MAX, "a text for every reading_why");

const char *reading_by_text(enum reading_by by)
{
    return (size_t)by < ARRAY_SIZE(by_texts) ? by_texts[by] : "";
}

const char *reading_why_text(enum reading_why why)
{
    return (size_t)why < ARRAY_SIZE(why_texts) ? why_texts[why] : "";
}

/* ---- the fields, in the order of the wire ------------------------------------------------------- */

#define F(member) WIRE_FIELD(guest_hello, member)
static const struct wire_field HELLO[] = {F(version), F(capabilities), {0}};
#undef F
#define F(member) WIRE_FIELD(guest_start, member)
static const struct wire_field START[] = {F(flags),    F(uid),     F(gid),  F(rows), F(cols),   F(profile),
                                          F(store_by), F(require), F(skip), F(disk), F(inodes), {0}};
/* Here come the namespaces, ns_host[NS_MAX]. */
static const struct wire_field START_REST[] = {F(landlock_abi), F(writable_root), F(n_argv), F(n_env), {0}};
/* workdir and the strings follow, each with a NUL. */
#undef F
#define F(member) WIRE_FIELD(guest_exited, member)
static const struct wire_field EXITED[] = {F(at_ns), F(status), F(failed), F(errnum), {0}};
#undef F
#define F(member) WIRE_FIELD(guest_leaf_ready, member)
static const struct wire_field LEAF_READY[] = {F(leaf), F(errnum), {0}};
#undef F
#define F(member) WIRE_FIELD(guest_leaf_gone, member)
static const struct wire_field LEAF_GONE[] = {F(leaf),   F(oom_kills),   F(pids_refused), F(store),
                                              F(cpu_ns), F(memory_peak), F(pids_peak),    {0}};
#undef F
/* SIGNAL, LEAF and LEAF_END are one number. */
static const struct wire_field NUMBER[] = {{0, sizeof(uint32_t)}, {0}};

/* ---- HELLO -------------------------------------------------------------------------------------- */

int guest_hello_put(uint8_t *out, size_t size, const struct guest_hello *msg)
{
    return wire_put(out, size, HELLO, msg);
}

/* The one message that a later version may make longer: it is how two versions find out about each other. */
int guest_hello_parse(const uint8_t *in, size_t len, struct guest_hello *ret)
{
    if (len < GUEST_HELLO_SIZE || le_get_u32(in) == 0)
        return -EPROTO;
    return wire_get(in, GUEST_HELLO_SIZE, HELLO, ret);
}

int guest_hello_agree(const struct guest_hello *theirs, uint32_t *ret_version)
{
    uint32_t ours = FRAME_VERSION;

    if (theirs->version == 0 || theirs->version > ours + 1 || theirs->version + 1 < ours)
        return -EPROTO;
    *ret_version = theirs->version < ours ? theirs->version : ours;
    return 0;
}

/* ---- START -------------------------------------------------------------------------------------- */

int guest_start_put_head(uint8_t *out, size_t size, const struct guest_start *msg)
{
    struct svc_cursor at = {out, out + size, false};

    if (!msg->workdir)
        return -EINVAL;
    size_t workdir_size = strlen(msg->workdir) + 1;
    if (workdir_size > GUEST_WORKDIR_MAX)
        return -EMSGSIZE;
    wire_put_fields(&at, START, msg);
    for (size_t i = 0; i < NS_MAX; i++)
        svc_put_u32(&at, msg->ns_host[i]);
    wire_put_fields(&at, START_REST, msg);
    svc_put_raw(&at, msg->workdir, workdir_size);
    return svc_put_done(&at, out);
}

/* A service brings no program, so nothing that describes one; leaves are for processes of a service. */
static bool start_kind_ok(const struct guest_start *msg)
{
    if ((msg->flags & GUEST_START_ROOT) && (msg->flags & GUEST_START_ADOPT))
        return false;
    if (msg->flags & GUEST_START_PLACES && (msg->n_argv == 0 || msg->n_argv > GUEST_PLACES_MAX))
        return false;
    if ((msg->flags & GUEST_START_SUDO) && (~msg->flags & (GUEST_START_ROOT | GUEST_START_SERVICE)))
        return false;
    if (msg->flags & GUEST_START_SERVICE)
        return (msg->flags & (GUEST_START_TTY | GUEST_START_STDIN)) == 0 && msg->n_env == 0 &&
               (msg->n_argv == 0 || msg->flags & GUEST_START_PLACES);
    return (msg->flags & (GUEST_START_LEAVES | GUEST_START_ADOPT | GUEST_START_PLACES | GUEST_START_VOLUMES)) == 0 &&
           msg->n_argv > 0;
}

static bool start_fields_ok(const struct guest_start *msg)
{
    return (msg->flags & ~START_FLAGS) == 0 && msg->uid != UINT32_MAX && msg->gid != UINT32_MAX &&
           msg->profile < BRIG_PROFILE_MAX &&
           (msg->store_by == BY_NONE || msg->store_by == BY_EXT4_IMAGE || msg->store_by == BY_MEMORY) &&
           ((msg->require | msg->skip) & ~LAYER_MASK) == 0 && msg->writable_root <= 1 && start_kind_ok(msg);
}

bool guest_strings_ok(const void *strings, size_t len, uint32_t n_argv, uint32_t n_env)
{
    uint64_t n = (uint64_t)n_argv + n_env;
    const char *at = strings, *end = at + len;

    if (n == 0)
        return at == end;
    /* Every string has a NUL at least: a count that cannot be true is refused before it is walked. */
    if (n > (size_t)(end - at) || at[0] == '\0')
        return false;
    for (uint64_t i = 0; i < n; i++) {
        const char *nul = memchr(at, '\0', (size_t)(end - at));
        if (!nul)
            return false;
        if (i >= n_argv && (*at == '=' || !memchr(at, '=', (size_t)(nul - at))))
            return false;
        at = nul + 1;
    }
    return at == end;
}

/* The strings were seen to be n_argv terminated ones. */
static bool places_ok(const struct guest_start *msg)
{
    const char *at = msg->strings;

    for (uint32_t i = 0; i < msg->n_argv; i++, at += strlen(at) + 1)
        if (at[0] != '/' || strlen(at) >= GUEST_WORKDIR_MAX)
            return false;
    return true;
}

int guest_start_parse(const uint8_t *in, size_t len, struct guest_start *ret)
{
    struct svc_reader at = {in, in + len, false};
    struct guest_start msg = {0};

    wire_get_fields(&at, START, &msg);
    for (size_t i = 0; i < NS_MAX; i++)
        msg.ns_host[i] = svc_get_u32(&at);
    wire_get_fields(&at, START_REST, &msg);
    if (at.bad || !start_fields_ok(&msg))
        return -EPROTO;
    const char *text = (const char *)at.at, *end = (const char *)at.end;
    size_t left = (size_t)(end - text);
    const char *nul = memchr(text, '\0', left < GUEST_WORKDIR_MAX ? left : GUEST_WORKDIR_MAX);
    if (!nul || text[0] != '/')
        return -EPROTO;
    msg.workdir = text;
    msg.strings = nul + 1;
    if ((size_t)(end - msg.strings) > GUEST_STRINGS_MAX ||
        !guest_strings_ok(msg.strings, (size_t)(end - msg.strings), msg.n_argv, msg.n_env) ||
        (msg.flags & GUEST_START_PLACES && !places_ok(&msg)))
        return -EPROTO;
    *ret = msg;
    return 0;
}

/* ---- STARTED ------------------------------------------------------------------------------------ */

int guest_started_put(uint8_t *out, size_t size, const struct guest_started *msg)
{
    if (size < GUEST_STARTED_SIZE)
        return -EMSGSIZE;
    le_put_u64(out, msg->at_ns);
    le_put_u64(out + 8, msg->missing);
    le_put_u32(out + 16, BRIG_LAYER_MAX);
    le_put_u32(out + 20, 0);
    for (size_t i = 0; i < BRIG_LAYER_MAX; i++) {
        uint8_t *at = out + 24 + 8 * i;
        at[0] = msg->readings[i].on;
        at[1] = msg->readings[i].by;
        le_put_u16(at + 2, msg->readings[i].why);
        le_put_u32(at + 4, msg->readings[i].value);
    }
    return GUEST_STARTED_SIZE;
}

int guest_started_parse(const uint8_t *in, size_t len, struct guest_started *ret)
{
    struct guest_started msg = {0};

    if (len < 24)
        return -EPROTO;
    msg.at_ns = le_get_u64(in);
    msg.missing = le_get_u64(in + 8);
    uint32_t n = le_get_u32(in + 16);
    if (n > BRIG_LAYER_MAX || le_get_u32(in + 20) != 0 || len != 24 + 8 * (size_t)n || (msg.missing & ~LAYER_MASK) != 0)
        return -EPROTO;
    for (uint32_t i = 0; i < BRIG_LAYER_MAX; i++) {
        struct reading *reading = &msg.readings[i];
        /* A layer that an older brig-init does not know was not read back, so it is not claimed. */
        if (i >= n) {
            *reading = (struct reading){.why = WHY_NOT_SAMPLED};
            continue;
        }
        const uint8_t *at = in + 24 + 8 * (size_t)i;
        *reading = (struct reading){at[0], at[1], le_get_u16(at + 2), le_get_u32(at + 4)};
        if (reading->on > 1 || reading->by >= BY_MAX || reading->why >= WHY_MAX)
            return -EPROTO;
    }
    *ret = msg;
    return 0;
}

/* ---- EXITED, SIGNAL ----------------------------------------------------------------------------- */

int guest_exited_put(uint8_t *out, size_t size, const struct guest_exited *msg)
{
    return wire_put(out, size, EXITED, msg);
}

int guest_exited_parse(const uint8_t *in, size_t len, struct guest_exited *ret)
{
    struct guest_exited msg = {0};

    if (wire_get(in, len, EXITED, &msg) < 0 || msg.status > 0xffff || msg.failed > STAGE_MAX || msg.errnum > ERRNO_MAX)
        return -EPROTO;
    *ret = msg;
    return 0;
}

int guest_signal_put(uint8_t *out, size_t size, uint32_t signum)
{
    return wire_put(out, size, NUMBER, &signum);
}

int guest_signal_parse(const uint8_t *in, size_t len, uint32_t *ret)
{
    uint32_t signum = 0;

    if (wire_get(in, len, NUMBER, &signum) < 0 || signum == 0 || signum > SIGNAL_MAX)
        return -EPROTO;
    *ret = signum;
    return 0;
}

/* ---- leaves ------------------------------------------------------------------------------------- */

int guest_leaf_put(uint8_t *out, size_t size, uint32_t leaf)
{
    return wire_put(out, size, NUMBER, &leaf);
}

int guest_leaf_parse(const uint8_t *in, size_t len, uint32_t *ret)
{
    if (len != GUEST_LEAF_SIZE || le_get_u32(in) == 0)
        return -EPROTO;
    *ret = le_get_u32(in);
    return 0;
}

int guest_leaf_ready_put(uint8_t *out, size_t size, const struct guest_leaf_ready *msg)
{
    return wire_put(out, size, LEAF_READY, msg);
}

int guest_leaf_ready_parse(const uint8_t *in, size_t len, struct guest_leaf_ready *ret)
{
    if (len != GUEST_LEAF_READY_SIZE || le_get_u32(in) == 0 || le_get_u32(in + 4) > ERRNO_MAX)
        return -EPROTO;
    return wire_get(in, len, LEAF_READY, ret);
}

int guest_leaf_gone_put(uint8_t *out, size_t size, const struct guest_leaf_gone *msg)
{
    return wire_put(out, size, LEAF_GONE, msg);
}

int guest_leaf_gone_parse(const uint8_t *in, size_t len, struct guest_leaf_gone *ret)
{
    if (len != GUEST_LEAF_GONE_SIZE || le_get_u32(in) == 0 || (le_get_u32(in + 12) & ~GUEST_STORE_ALL))
        return -EPROTO;
    return wire_get(in, len, LEAF_GONE, ret);
}
