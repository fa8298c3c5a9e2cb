/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages to and from brig-init: golden bytes (the same as in docs/PROTOCOL.md), every cut, every field out of range.
 */
#include "unit.h"

#include "codec/wire/frame.h"
#include "codec/wire/guest_msg.h"

static const char golden_hello[] = "01000000 07000000";
static const char golden_signal[] = "0f000000";
static const char golden_exited[] = "00e1f505 00000000 00090000 00000000 00000000";
static const char golden_exited_not_found[] = "00e1f505 00000000 00000000 01000000 02000000";
static const char golden_leaf[] = "05000000";
static const char golden_leaf_ready[] = "05000000 0c000000";
static const char golden_leaf_gone[] =
    "05000000 01000000 02000000 01000000 8096980000000000 0000100000000000 0300000000000000";
static const char golden_start_service[] =
    "0c000000 e8030000 e8030000 0000 0000 00000000 05000000" /* flags, uid, gid, rows, cols, profile, store_by */
    "ffff0f00 00000000 00000000 00000000"                    /* require, skip */
    "00000040 00000000 00000100 00000000"                    /* disk, inodes */
    "01000000 02000000 03000000 04000000 05000000 06000000 07000000 08000000"
    "07000000 00000000 00000000 00000000" /* landlock_abi, writable_root, n_argv, n_env */
    "2f00";                               /* "/" */
static const char golden_start[] =
    "03000000 e8030000 e8030000 1800 5000 00000000 05000000" /* flags, uid, gid, rows, cols, profile, store_by */
    "ffff0f00 00000000 00000000 00000000"                    /* require, skip */
    "00000040 00000000 00000100 00000000"                    /* disk, inodes */
    "01000000 02000000 03000000 04000000 05000000 06000000 07000000 08000000"
    "07000000 00000000 02000000 01000000" /* landlock_abi, writable_root, n_argv, n_env */
    "2f776f726b737061636500"              /* "/workspace" */
    "6c7300 2d6c00 413d6200";             /* "ls", "-l", "A=b" */
static const char golden_started[] =
    "00e1f505 00000000 00000800 00000000 17000000 00000000"
    "01000000 00000000 01000000 00000000 01000000 00000000 01000000 00000000" /* user, mount, pid, net */
    "01000000 00000000 01000000 00000000 01000000 00000000"                   /* ipc, uts, cgroup */
    "01090000 00000000"                                                       /* uid_range: private uid range */
    "01000000 00000000 01000000 00000000 01000000 00000000"                   /* caps, no_new_privs, seccomp */
    "01000000 07000000"                                                       /* landlock: ABI 7 */
    "01000000 00000000 01070000 00000000 01000000 00000000"                   /* root_readonly, proc, fds */
    "01010000 00000000 01010000 00000000 01010000 00000000"                   /* memory, cpu, pids: cgroup v1 */
    "01050000 00000000"                                                       /* disk: ext4 image */
    "00050300 00000000"                                                       /* inodes: off, read-back differs */
    "00000100 00000000"                                                       /* time_ns: not asked for */
    "00000800 00000000"                                                       /* io: no block device */
    "00000f00 00000000";                                                      /* own_kernel: the host's */

static struct guest_start start_example(void)
{
    struct guest_start msg = {
        .flags = GUEST_START_TTY | GUEST_START_STDIN,
        .uid = 1000,
        .gid = 1000,
        .rows = 24,
        .cols = 80,
        .profile = BRIG_PROFILE_DEFAULT,
        .require = BRIG_REQUIRE_ALL,
        .disk = 1u << 30,
        .inodes = 65536,
        .ns_host = {1, 2, 3, 4, 5, 6, 7, 8},
        .store_by = BY_EXT4_IMAGE,
        .landlock_abi = 7,
        .n_argv = 2,
        .n_env = 1,
        .workdir = "/workspace",
    };
    return msg;
}

/* The example with these strings behind it (each with its NUL). Returns the length. */
static size_t start_bytes(uint8_t *out, size_t size, const struct guest_start *msg, const char *strings, size_t len)
{
    int n = guest_start_put_head(out, size, msg);

    assert_true(n > 0 && (size_t)n + len <= size);
    memcpy(out + n, strings, len);
    return (size_t)n + len;
}

static void hello(void **state)
{
    struct guest_hello msg = {FRAME_VERSION, GUEST_CAP_RUN | GUEST_CAP_TTY | GUEST_CAP_FDS}, back;
    uint8_t bytes[16] = {0};
    (void)state;

    assert_int_equal(guest_hello_put(bytes, 7, &msg), -EMSGSIZE);
    assert_int_equal(guest_hello_put(bytes, sizeof(bytes), &msg), GUEST_HELLO_SIZE);
    unit_assert_hex(bytes, GUEST_HELLO_SIZE, golden_hello);
    assert_int_equal(guest_hello_parse(bytes, GUEST_HELLO_SIZE, &back), 0);
    assert_memory_equal(&back, &msg, sizeof(msg));
    assert_int_equal(guest_hello_parse(bytes, GUEST_HELLO_SIZE + 4, &back), 0); /* a later version's is longer */
    for (size_t cut = 0; cut < GUEST_HELLO_SIZE; cut++)
        assert_int_equal(guest_hello_parse(bytes, cut, &back), -EPROTO);
    memset(bytes, 0, 4);
    assert_int_equal(guest_hello_parse(bytes, GUEST_HELLO_SIZE, &back), -EPROTO);
}

static void versions_may_differ_by_one(void **state)
{
    struct guest_hello theirs = {FRAME_VERSION, 0};
    uint32_t version = 0;
    (void)state;

    assert_int_equal(guest_hello_agree(&theirs, &version), 0);
    assert_int_equal(version, FRAME_VERSION);
    theirs.version = FRAME_VERSION + 1;
    assert_int_equal(guest_hello_agree(&theirs, &version), 0);
    assert_int_equal(version, FRAME_VERSION);
    theirs.version = FRAME_VERSION + 2;
    assert_int_equal(guest_hello_agree(&theirs, &version), -EPROTO);
    theirs.version = 0;
    assert_int_equal(guest_hello_agree(&theirs, &version), -EPROTO);
    theirs.version = UINT32_MAX;
    assert_int_equal(guest_hello_agree(&theirs, &version), -EPROTO);
}

static void start_golden(void **state)
{
    static const char strings[] = "ls\0-l\0A=b";
    struct guest_start msg = start_example(), back;
    uint8_t bytes[256], again[256];
    (void)state;

    size_t len = start_bytes(bytes, sizeof(bytes), &msg, strings, sizeof(strings));
    unit_assert_hex(bytes, len, golden_start);
    assert_int_equal(guest_start_parse(bytes, len, &back), 0);
    assert_string_equal(back.workdir, "/workspace");
    assert_memory_equal(back.strings, strings, sizeof(strings));
    assert_ptr_equal(back.strings, bytes + GUEST_START_HEAD + 11);
    assert_int_equal(back.require, BRIG_REQUIRE_ALL);
    assert_int_equal(back.ns_host[NS_TIME], 8);
    assert_int_equal(guest_start_put_head(again, sizeof(again), &back), GUEST_START_HEAD + 11);
    assert_memory_equal(again, bytes, GUEST_START_HEAD + 11);
    for (size_t cut = 0; cut < len; cut++)
        assert_int_equal(guest_start_parse(bytes, cut, &back), -EPROTO);
    bytes[len] = '\0';
    assert_int_equal(guest_start_parse(bytes, len + 1, &back), -EPROTO); /* one string too many */
}

static void start_head_must_fit(void **state)
{
    static char longest[GUEST_WORKDIR_MAX + 1];
    struct guest_start msg = start_example();
    uint8_t bytes[GUEST_START_HEAD + GUEST_WORKDIR_MAX + 16];
    (void)state;

    assert_int_equal(guest_start_put_head(bytes, GUEST_START_HEAD + 10, &msg), -EMSGSIZE);
    assert_int_equal(guest_start_put_head(bytes, GUEST_START_HEAD + 11, &msg), GUEST_START_HEAD + 11);
    msg.workdir = NULL;
    assert_int_equal(guest_start_put_head(bytes, sizeof(bytes), &msg), -EINVAL);
    memset(longest, '/', GUEST_WORKDIR_MAX);
    msg.workdir = longest;
    assert_int_equal(guest_start_put_head(bytes, sizeof(bytes), &msg), -EMSGSIZE);
    longest[GUEST_WORKDIR_MAX - 1] = '\0';
    assert_int_equal(guest_start_put_head(bytes, sizeof(bytes), &msg), GUEST_START_HEAD + GUEST_WORKDIR_MAX);
}

static int start_with(const struct guest_start *msg, const char *strings, size_t len)
{
    uint8_t bytes[256];
    struct guest_start back;

    return guest_start_parse(bytes, start_bytes(bytes, sizeof(bytes), msg, strings, len), &back);
}

static void start_refuses_fields_out_of_range(void **state)
{
    static const char good[] = "ls\0-l\0A=b";
    struct guest_start msg;
    (void)state;

#define REFUSED(change)                                                  \
    do {                                                                 \
        msg = start_example();                                           \
        change;                                                          \
        assert_int_equal(start_with(&msg, good, sizeof(good)), -EPROTO); \
    } while (0)
    msg = start_example();
    assert_int_equal(start_with(&msg, good, sizeof(good)), 0);
    REFUSED(msg.flags |= 1u << 2);
    REFUSED(msg.flags |= 1u << 31);
    REFUSED(msg.uid = UINT32_MAX);
    REFUSED(msg.gid = UINT32_MAX);
    REFUSED(msg.profile = BRIG_PROFILE_MAX);
    REFUSED(msg.store_by = BY_CGROUP_V1);
    REFUSED(msg.store_by = BY_MAX);
    REFUSED(msg.require |= BRIG_LAYER_BIT(BRIG_LAYER_MAX));
    REFUSED(msg.skip = BRIG_LAYER_BIT(63));
    REFUSED(msg.writable_root = 2);
    REFUSED(msg.n_argv = 0);
    REFUSED(msg.n_argv = 1);
    REFUSED(msg.n_argv = 3);
    REFUSED(msg.n_env = 0);
    REFUSED(msg.n_env = 2);
    REFUSED(msg.n_argv = UINT32_MAX);
    REFUSED((msg.n_argv = UINT32_MAX, msg.n_env = 4)); /* their sum as 32 bits would be 3 */
    REFUSED(msg.workdir = "workspace");
    REFUSED(msg.workdir = "");
#undef REFUSED
}

static void start_refuses_bad_strings(void **state)
{
    struct guest_start msg = start_example();
    (void)state;

#define STRINGS(text) start_with(&msg, text, sizeof(text) - 1)
    assert_int_equal(STRINGS("ls\0\0A=\0"), 0); /* empty arguments and values are fine */
    assert_int_equal(STRINGS("ls\0-l\0A=b=c\0"), 0);
    assert_int_equal(STRINGS("\0-l\0A=b\0"), -EPROTO);
    assert_int_equal(STRINGS("ls\0-l\0A\0"), -EPROTO);
    assert_int_equal(STRINGS("ls\0-l\0=b\0"), -EPROTO);
    assert_int_equal(STRINGS("ls\0-l\0\0"), -EPROTO);
    assert_int_equal(STRINGS("ls\0-l\0A=b"), -EPROTO);
    assert_int_equal(STRINGS("ls\0-l\0A=b\0x"), -EPROTO);
    assert_int_equal(STRINGS("ls\0"), -EPROTO);
    assert_int_equal(STRINGS(""), -EPROTO);
#undef STRINGS
}

static void start_has_a_largest_size(void **state)
{
    struct guest_start msg = start_example(), back;
    size_t size = GUEST_START_HEAD + 11 + GUEST_STRINGS_MAX + 1;
    uint8_t *bytes = malloc(size);
    (void)state;

    assert_non_null(bytes);
    memset(bytes, 'x', size);
    msg.n_argv = 1;
    msg.n_env = 0;
    assert_int_equal(guest_start_put_head(bytes, size, &msg), GUEST_START_HEAD + 11);
    bytes[size - 2] = '\0';
    assert_int_equal(guest_start_parse(bytes, size - 1, &back), 0);
    bytes[size - 2] = 'x';
    bytes[size - 1] = '\0';
    assert_int_equal(guest_start_parse(bytes, size, &back), -EPROTO);
    free(bytes);
}

static struct guest_started started_example(void)
{
    struct guest_started msg = {.at_ns = 100000000, .missing = BRIG_LAYER_BIT(BRIG_LAYER_INODES)};

    for (size_t i = 0; i < BRIG_LAYER_INODES; i++)
        msg.readings[i].on = 1;
    msg.readings[BRIG_LAYER_UID_RANGE].by = BY_UID_RANGE;
    msg.readings[BRIG_LAYER_LANDLOCK].value = 7;
    msg.readings[BRIG_LAYER_PROC].by = BY_SUBSET_PID;
    msg.readings[BRIG_LAYER_MEMORY].by = BY_CGROUP_V1;
    msg.readings[BRIG_LAYER_CPU].by = BY_CGROUP_V1;
    msg.readings[BRIG_LAYER_PIDS].by = BY_CGROUP_V1;
    msg.readings[BRIG_LAYER_DISK].by = BY_EXT4_IMAGE;
    msg.readings[BRIG_LAYER_INODES] = (struct reading){0, BY_EXT4_IMAGE, WHY_READ_BACK, 0};
    msg.readings[BRIG_LAYER_TIME_NS].why = WHY_NOT_ASKED;
    msg.readings[BRIG_LAYER_IO].why = WHY_NO_DEVICE;
    msg.readings[BRIG_LAYER_OWN_KERNEL].why = WHY_HOST_KERNEL;
    return msg;
}

static void started(void **state)
{
    struct guest_started msg = started_example(), back;
    uint8_t bytes[GUEST_STARTED_SIZE + 8] = {0};
    (void)state;

    assert_int_equal(guest_started_put(bytes, GUEST_STARTED_SIZE - 1, &msg), -EMSGSIZE);
    assert_int_equal(guest_started_put(bytes, sizeof(bytes), &msg), GUEST_STARTED_SIZE);
    unit_assert_hex(bytes, GUEST_STARTED_SIZE, golden_started);
    assert_int_equal(guest_started_parse(bytes, GUEST_STARTED_SIZE, &back), 0);
    assert_memory_equal(&back, &msg, sizeof(msg));
    for (size_t cut = 0; cut < GUEST_STARTED_SIZE; cut++)
        assert_int_equal(guest_started_parse(bytes, cut, &back), -EPROTO);
    assert_int_equal(guest_started_parse(bytes, GUEST_STARTED_SIZE + 8, &back), -EPROTO);
}

static void started_refuses_fields_out_of_range(void **state)
{
    struct guest_started msg = started_example(), back;
    uint8_t bytes[GUEST_STARTED_SIZE];
    (void)state;

#define REFUSED(at, value)                                                              \
    do {                                                                                \
        assert_int_equal(guest_started_put(bytes, sizeof(bytes), &msg), sizeof(bytes)); \
        bytes[at] = (value);                                                            \
        assert_int_equal(guest_started_parse(bytes, sizeof(bytes), &back), -EPROTO);    \
    } while (0)
    REFUSED(8 + BRIG_LAYER_MAX / 8, 1u << BRIG_LAYER_MAX % 8); /* missing: a layer that is none */
    REFUSED(15, 0x80);
    REFUSED(16, BRIG_LAYER_MAX + 1);
    REFUSED(16, BRIG_LAYER_MAX - 1); /* then the length is wrong */
    REFUSED(19, 0x80);
    REFUSED(20, 1);
    REFUSED(24, 2);
    REFUSED(25, BY_MAX);
    REFUSED(26, WHY_MAX);
    REFUSED(27, 1);
    REFUSED(24 + 8 * (BRIG_LAYER_MAX - 1), 0xff);
#undef REFUSED
}

static void started_of_an_older_version_claims_less(void **state)
{
    struct guest_started msg = started_example(), back;
    uint8_t bytes[GUEST_STARTED_SIZE];
    (void)state;

    assert_int_equal(guest_started_put(bytes, sizeof(bytes), &msg), sizeof(bytes));
    bytes[16] = 18; /* without disk, inodes, time_ns, io, own_kernel */
    assert_int_equal(guest_started_parse(bytes, 24 + 18 * 8, &back), 0);
    assert_int_equal(back.readings[17].on, 1);
    for (size_t i = 18; i < BRIG_LAYER_MAX; i++) {
        assert_int_equal(back.readings[i].on, 0);
        assert_int_equal(back.readings[i].why, WHY_NOT_SAMPLED);
    }
}

static void exited(void **state)
{
    struct guest_exited msg = {.at_ns = 100000000, .status = 9 << 8}, back;
    uint8_t bytes[GUEST_EXITED_SIZE + 4] = {0};
    (void)state;

    assert_int_equal(guest_exited_put(bytes, GUEST_EXITED_SIZE - 1, &msg), -EMSGSIZE);
    assert_int_equal(guest_exited_put(bytes, sizeof(bytes), &msg), GUEST_EXITED_SIZE);
    unit_assert_hex(bytes, GUEST_EXITED_SIZE, golden_exited);
    assert_int_equal(guest_exited_parse(bytes, GUEST_EXITED_SIZE, &back), 0);
    assert_int_equal(back.status, 9 << 8);
    for (size_t len = 0; len < sizeof(bytes); len++)
        assert_int_equal(guest_exited_parse(bytes, len, &back), len == GUEST_EXITED_SIZE ? 0 : -EPROTO);

    msg = (struct guest_exited){.at_ns = 100000000, .failed = 1 + STAGE_EXEC, .errnum = ENOENT};
    assert_int_equal(guest_exited_put(bytes, sizeof(bytes), &msg), GUEST_EXITED_SIZE);
    unit_assert_hex(bytes, GUEST_EXITED_SIZE, golden_exited_not_found);
    msg.failed = STAGE_MAX;
    assert_int_equal(guest_exited_put(bytes, sizeof(bytes), &msg), GUEST_EXITED_SIZE);
    assert_int_equal(guest_exited_parse(bytes, GUEST_EXITED_SIZE, &back), 0);

    struct guest_exited bad[] = {{.status = 0x10000}, {.failed = STAGE_MAX + 1}, {.failed = 1, .errnum = 4096}};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(guest_exited_put(bytes, sizeof(bytes), &bad[i]), GUEST_EXITED_SIZE);
        assert_int_equal(guest_exited_parse(bytes, GUEST_EXITED_SIZE, &back), -EPROTO);
    }
}

static void signals(void **state)
{
    uint8_t bytes[8] = {0};
    uint32_t signum = 0;
    (void)state;

    assert_int_equal(guest_signal_put(bytes, 3, 15), -EMSGSIZE);
    assert_int_equal(guest_signal_put(bytes, sizeof(bytes), 15), GUEST_SIGNAL_SIZE);
    unit_assert_hex(bytes, GUEST_SIGNAL_SIZE, golden_signal);
    assert_int_equal(guest_signal_parse(bytes, GUEST_SIGNAL_SIZE, &signum), 0);
    assert_int_equal(signum, 15);
    assert_int_equal(guest_signal_parse(bytes, 3, &signum), -EPROTO);
    assert_int_equal(guest_signal_parse(bytes, 5, &signum), -EPROTO);
    static const uint32_t bad[] = {0, 65, UINT32_MAX};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(guest_signal_put(bytes, sizeof(bytes), bad[i]), GUEST_SIGNAL_SIZE);
        assert_int_equal(guest_signal_parse(bytes, GUEST_SIGNAL_SIZE, &signum), -EPROTO);
    }
    assert_int_equal(signum, 15);
}

static void texts_are_there(void **state)
{
    (void)state;
    assert_string_equal(reading_by_text(BY_NONE), "");
    assert_string_equal(reading_by_text(BY_CGROUP_V1), "cgroup v1");
    assert_string_equal(reading_by_text(BY_CGROUP_V2), "cgroup v2");
    assert_string_equal(reading_by_text(BY_RLIMIT_AS), "RLIMIT_AS");
    assert_string_equal(reading_by_text(BY_RLIMIT_NPROC), "RLIMIT_NPROC");
    assert_string_equal(reading_by_text(BY_EXT4_IMAGE), "ext4 image");
    assert_string_equal(reading_by_text(BY_MEMORY), "memory-backed");
    assert_string_equal(reading_by_text(BY_SUBSET_PID), "subset=pid");
    assert_string_equal(reading_by_text(BY_MASKED), "masked");
    assert_string_equal(reading_by_text(BY_UID_RANGE), "private uid range");
    assert_string_equal(reading_by_text(BY_SUBIDS), "subordinate ids");
    assert_string_equal(reading_by_text(BY_MAX), "");
    assert_string_equal(reading_why_text(WHY_NONE), "");
    for (unsigned why = WHY_NONE + 1; why < WHY_MAX; why++)
        assert_true(strlen(reading_why_text((enum reading_why)why)) > 5);
    assert_string_equal(reading_why_text(WHY_MAX), "");
}

static void start_of_a_service(void **state)
{
    struct guest_start msg = start_example(), back;
    uint8_t bytes[512];
    (void)state;

    msg.flags = GUEST_START_SERVICE | GUEST_START_LEAVES;
    msg.rows = msg.cols = 0;
    msg.n_argv = msg.n_env = 0;
    msg.workdir = "/";
    size_t len = start_bytes(bytes, sizeof(bytes), &msg, "", 0);
    unit_assert_hex(bytes, len, golden_start_service);
    assert_int_equal(guest_start_parse(bytes, len, &back), 0);
    assert_int_equal(back.flags, msg.flags);
    for (size_t cut = 0; cut < len; cut++)
        assert_int_equal(guest_start_parse(bytes, cut, &back), -EPROTO);
    bytes[len] = 'x';
    assert_int_equal(guest_start_parse(bytes, len + 1, &back), -EPROTO);

    /* No program, and nothing that would describe one. */
    static const struct {
        uint32_t flags, n_argv, n_env;
    } wrong[] = {
        {GUEST_START_SERVICE, 1, 0},
        {GUEST_START_SERVICE, 0, 1},
        {GUEST_START_SERVICE | GUEST_START_TTY, 0, 0},
        {GUEST_START_SERVICE | GUEST_START_STDIN, 0, 0},
        {GUEST_START_LEAVES, 1, 0},
        {0, 0, 0},
        {GUEST_START_ADOPT, 1, 0},
        {GUEST_START_SERVICE | GUEST_START_ADOPT | GUEST_START_ROOT, 0, 0},
        {GUEST_START_SERVICE | GUEST_START_SUDO, 0, 0},
        {GUEST_START_ROOT | GUEST_START_SUDO, 1, 0},
        {GUEST_START_SERVICE | (1u << 13), 0, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        msg.flags = wrong[i].flags;
        msg.n_argv = wrong[i].n_argv;
        msg.n_env = wrong[i].n_env;
        len = start_bytes(bytes, sizeof(bytes), &msg, "A=b", wrong[i].n_argv + wrong[i].n_env > 0 ? 4 : 0);
        assert_int_equal(guest_start_parse(bytes, len, &back), -EPROTO);
    }
}

static void leaves(void **state)
{
    const struct guest_leaf_ready ready = {5, ENOMEM};
    const struct guest_leaf_gone gone = {5, 1, 2, GUEST_STORE_FULL, 10000000, 1 << 20, 3};
    struct guest_leaf_ready ready_back;
    struct guest_leaf_gone gone_back;
    uint8_t bytes[64] = {0};
    uint32_t leaf = 0;
    (void)state;

    assert_int_equal(guest_leaf_put(bytes, 3, 5), -EMSGSIZE);
    assert_int_equal(guest_leaf_put(bytes, sizeof(bytes), 5), GUEST_LEAF_SIZE);
    unit_assert_hex(bytes, GUEST_LEAF_SIZE, golden_leaf);
    assert_int_equal(guest_leaf_parse(bytes, GUEST_LEAF_SIZE, &leaf), 0);
    assert_int_equal(leaf, 5);
    assert_int_equal(guest_leaf_parse(bytes, 3, &leaf), -EPROTO);
    assert_int_equal(guest_leaf_parse(bytes, 5, &leaf), -EPROTO);
    memset(bytes, 0, 4);
    assert_int_equal(guest_leaf_parse(bytes, 4, &leaf), -EPROTO);

    assert_int_equal(guest_leaf_ready_put(bytes, 7, &ready), -EMSGSIZE);
    assert_int_equal(guest_leaf_ready_put(bytes, sizeof(bytes), &ready), GUEST_LEAF_READY_SIZE);
    unit_assert_hex(bytes, GUEST_LEAF_READY_SIZE, golden_leaf_ready);
    assert_int_equal(guest_leaf_ready_parse(bytes, 8, &ready_back), 0);
    assert_memory_equal(&ready_back, &ready, sizeof(ready));
    assert_int_equal(guest_leaf_ready_parse(bytes, 7, &ready_back), -EPROTO);
    assert_int_equal(guest_leaf_ready_parse(bytes, 9, &ready_back), -EPROTO);
    bytes[5] = 0x10; /* errno 4108 */
    assert_int_equal(guest_leaf_ready_parse(bytes, 8, &ready_back), -EPROTO);
    memset(bytes, 0, 8);
    assert_int_equal(guest_leaf_ready_parse(bytes, 8, &ready_back), -EPROTO);

    assert_int_equal(guest_leaf_gone_put(bytes, 39, &gone), -EMSGSIZE);
    assert_int_equal(guest_leaf_gone_put(bytes, sizeof(bytes), &gone), GUEST_LEAF_GONE_SIZE);
    unit_assert_hex(bytes, GUEST_LEAF_GONE_SIZE, golden_leaf_gone);
    assert_int_equal(guest_leaf_gone_parse(bytes, 40, &gone_back), 0);
    assert_int_equal(gone_back.leaf, 5);
    assert_int_equal(gone_back.oom_kills, 1);
    assert_int_equal(gone_back.pids_refused, 2);
    assert_int_equal(gone_back.store, GUEST_STORE_FULL);
    assert_int_equal(gone_back.cpu_ns, 10000000);
    assert_int_equal(gone_back.memory_peak, 1 << 20);
    assert_int_equal(gone_back.pids_peak, 3);
    assert_int_equal(guest_leaf_gone_parse(bytes, 39, &gone_back), -EPROTO);
    assert_int_equal(guest_leaf_gone_parse(bytes, 41, &gone_back), -EPROTO);
    bytes[12] = 4; /* no such bit */
    assert_int_equal(guest_leaf_gone_parse(bytes, 40, &gone_back), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello),
        cmocka_unit_test(versions_may_differ_by_one),
        cmocka_unit_test(start_golden),
        cmocka_unit_test(start_head_must_fit),
        cmocka_unit_test(start_refuses_fields_out_of_range),
        cmocka_unit_test(start_refuses_bad_strings),
        cmocka_unit_test(start_has_a_largest_size),
        cmocka_unit_test(started),
        cmocka_unit_test(started_refuses_fields_out_of_range),
        cmocka_unit_test(started_of_an_older_version_claims_less),
        cmocka_unit_test(exited),
        cmocka_unit_test(signals),
        cmocka_unit_test(start_of_a_service),
        cmocka_unit_test(leaves),
        cmocka_unit_test(texts_are_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
