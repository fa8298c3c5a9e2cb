/* SPDX-License-Identifier: Apache-2.0 */
/* The service protocol: golden bytes (the same as in docs/PROTOCOL.md), every cut, every field out of range. */
#include "unit.h"

#include "codec/passwd.h"
#include "codec/wire/guest_svc.h"
#include "codec/wire/le.h"

static const char golden_svc_frame_data[] = "02000000 1100 0000 01000000 07000000 6869";
static const char golden_svc_hello[] = "01000000 01000000 8877665544332211";
static const char golden_svc_reply[] = "02000000 00000000";
static const char golden_svc_proc_start[] =
    "05000000 02000000 1800 5000 00000100 02000000 01000000" /* proc, flags, rows, cols, ring, n_argv, n_env */
    "0a000000 2f776f726b7370616365"                          /* "/workspace" */
    "6c7300 2d6c00 413d6200";                                /* "ls", "-l", "A=b" */
static const char golden_svc_proc_start_channel[] =
    "01000000 18000000 0000 0000 00000000 01000000 00000000" /* HOLD and CHANNEL */
    "01000000 2f 7800";                                      /* "/", "x" */
static const char golden_svc_proc_started[] = "2a000000 00e1f50500000000";
static const char golden_svc_proc_attach[] = "05000000 06000000 0a00000000000000 ffffffffffffffff";
static const char golden_svc_attached[] = "0a00000000000000 0000000000000000";
static const char golden_svc_proc_exit[] =
    "00090000 00e1f50500000000 00c2eb0b00000000"         /* status, started_ns, ended_ns */
    "0a00000000000000 0b00000000000000"                  /* output */
    "8096980000000000 0000100000000000 0300000000000000" /* cpu_ns, memory_peak, pids_peak */
    "01000000 02000000 01000000 00000000 01000000";      /* oom_kills, pids_refused, leaf, killed, store */
static const char golden_svc_proc_signal[] = "05000000 09000000 01000000";
static const char golden_svc_proc_info[] =
    "05000000 2a000000 01000000 01000000 00e1f50500000000"                /* proc, pid, flags, running, started_ns */
    "0a00000000000000 0000000000000000 0200000000000000 0000000000000000" /* output, oldest */
    "00000000 0000000000000000 0000000000000000"                          /* exit: all zeroes while it runs */
    "0000000000000000 0000000000000000"
    "0000000000000000 0000000000000000 0000000000000000"
    "00000000 00000000 00000000 00000000 00000000"
    "04000000 62617368"; /* "bash" */
static const char golden_svc_shell_result[] = "03000000 00000000 04000000 2f746d70";
static const char golden_svc_port[] = "901f 04 01 e8030000";
static const char golden_svc_units[] =
    "01000000"                                              /* one unit */
    "02000000 6462"                                         /* "db" */
    "01000000 01000000 38150000 30750000 10270000 00000000" /* restart, ready, port, ready_ms, stop_ms, after */
    "00000000"                                              /* path */
    "1f000000 01000000 00000000 0000 0000 00000000 01000000 00000000" /* start, a PROC_START */
    "01000000 2f 7800"
    "00000000"; /* probe */
static const char golden_svc_unit_info[] =
    "02000000 6462 02000000 00000000 0c000000 01000000"   /* name, state, why, pid, restarts */
    "00090000 00000000 00000000"                          /* status, errnum, stage */
    "00e1f50500000000 0a00000000000000 0400000000000000"; /* since_ns, output, oldest */
static const char golden_svc_unit_control[] = "02000000 02000000 6462";
static const char golden_svc_unit_log[] = "02000000 6462 0a00000000000000 01000000";
static const char golden_svc_path[] = "01000000 0a000000 2f776f726b7370616365 01000000 61";
static const char golden_svc_entry[] = "02000000 ff010000 e8030000 e8030000 01000000" /* type, mode, uid, gid, nlink */
                                       "0500000000000000 0000000000000000 0700000000000000" /* size, blocks, inode */
                                       "ffffffffffffffff 00e1f50500000000"                  /* mtime_ns, ctime_ns */
                                       "01000000 61 05000000 2f782f2f79";                   /* "a" -> "/x//y" */

static const struct svc_proc_exit example_exit = {
    .status = 9 << 8,
    .started_ns = 100000000,
    .ended_ns = 200000000,
    .output = {0, 10, 11},
    .cpu_ns = 10000000,
    .memory_peak = 1 << 20,
    .pids_peak = 3,
    .oom_kills = 1,
    .pids_refused = 2,
    .leaf = 1,
    .store = GUEST_STORE_FULL,
};

/* ---- every message: golden bytes, too small a buffer, every cut, one byte too many --------------- */

typedef int put_fn(uint8_t *out, size_t size, const void *msg);
typedef int parse_fn(const uint8_t *in, size_t len, void *ret);

/* longer_ok: a later version may have more (HELLO). */
static void check(const char *golden, const void *msg, put_fn *put, parse_fn *parse, size_t size, bool longer_ok)
{
    uint8_t bytes[512] = {0}, want[512], again[512];
    uint8_t back[512] __attribute__((aligned(16)));
    size_t len = unit_hex(golden, want, sizeof(want));

    for (size_t room = 0; room < len; room++)
        assert_int_equal(put(bytes, room, msg), -EMSGSIZE);
    assert_int_equal(put(bytes, sizeof(bytes), msg), (int)len);
    assert_memory_equal(bytes, want, len);
    assert_int_equal(parse(bytes, len, back), 0);
    assert_int_equal(put(again, sizeof(again), back), (int)len);
    assert_memory_equal(again, want, len);
    memset(back, 0x5a, size);
    memcpy(again, back, size);
    for (size_t cut = 0; cut < len; cut++) {
        assert_int_equal(parse(bytes, cut, back), -EPROTO);
        assert_memory_equal(back, again, size); /* untouched */
    }
    assert_int_equal(parse(bytes, len + 1, back), longer_ok ? 0 : -EPROTO);
}

#define CHECK(name, msg) CHECK_LONGER(name, msg, false)
#define CHECK_LONGER(name, msg, longer_ok) \
    check(golden_svc_##name, &(msg), put_##name, parse_##name, sizeof(msg), longer_ok)

#define WRAP(name)                                                    \
    static int put_##name(uint8_t *out, size_t size, const void *msg) \
    {                                                                 \
        return svc_##name##_put(out, size, msg);                      \
    }                                                                 \
    static int parse_##name(const uint8_t *in, size_t len, void *ret) \
    {                                                                 \
        return svc_##name##_parse(in, len, ret);                      \
    }
WRAP(hello)
WRAP(reply)
WRAP(proc_start)
WRAP(proc_started)
WRAP(proc_attach)
WRAP(attached)
WRAP(proc_exit)
WRAP(proc_signal)
WRAP(proc_info)
WRAP(shell_result)
WRAP(port)
WRAP(unit_info)
WRAP(unit_control)
WRAP(unit_log)

static void golden_messages(void **state)
{
    const struct svc_hello hello = {1, SVC_CAP_LEAVES, 0x1122334455667788};
    const struct svc_reply reply = {ENOENT, STAGE_EXEC};
    const struct svc_proc_start start = {
        .proc = 5,
        .flags = SVC_PROC_STDIN,
        .rows = 24,
        .cols = 80,
        .ring = 65536,
        .n_argv = 2,
        .n_env = 1,
        .workdir = {"/workspace", 10},
        .strings = (const uint8_t *)"ls\0-l\0A=b",
        .strings_len = 10,
    };
    const struct svc_proc_start start_channel = {
        .proc = 1,
        .flags = SVC_PROC_HOLD | SVC_PROC_CHANNEL,
        .n_argv = 1,
        .workdir = {"/", 1},
        .strings = (const uint8_t *)"x",
        .strings_len = 2,
    };
    const struct svc_proc_started started = {42, 100000000};
    const struct svc_proc_attach attach = {5, 6, {0, 10, SVC_FROM_NOW}};
    const struct svc_attached attached = {{0, 10, 0}};
    const struct svc_proc_exit exit = example_exit;
    const struct svc_proc_signal signal = {5, 9, SVC_SIGNAL_ALL};
    const struct svc_proc_info info = {.proc = 5,
                                       .pid = 42,
                                       .flags = 1,
                                       .running = 1,
                                       .started_ns = 100000000,
                                       .output = {0, 10, 0},
                                       .oldest = {0, 2, 0},
                                       .command = {"bash", 4}};
    const struct svc_shell_result result = {3, 0, {"/tmp", 4}};
    const struct svc_port port = {8080, 4, 1, 1000};
    const struct svc_unit_info unit_info = {.name = {"db", 2},
                                            .state = SVC_UNIT_READY,
                                            .pid = 12,
                                            .restarts = 1,
                                            .status = 9 << 8,
                                            .since_ns = 100000000,
                                            .output = 10,
                                            .oldest = 4};
    const struct svc_unit_control unit_control = {SVC_UNIT_RESTART, {"db", 2}};
    const struct svc_unit_log unit_log = {{"db", 2}, 10, 1};
    (void)state;

    CHECK_LONGER(hello, hello, true);
    CHECK(reply, reply);
    CHECK(proc_start, start);
    check(golden_svc_proc_start_channel, &start_channel, put_proc_start, parse_proc_start, sizeof(start_channel),
          false);
    CHECK(proc_started, started);
    CHECK(proc_attach, attach);
    CHECK(attached, attached);
    CHECK(proc_exit, exit);
    CHECK(proc_signal, signal);
    CHECK(proc_info, info);
    CHECK(shell_result, result);
    CHECK(port, port);
    CHECK(unit_info, unit_info);
    CHECK(unit_control, unit_control);
    CHECK(unit_log, unit_log);
}

/* ---- the list of units: whole or not at all -------------------------------------------------------- */

static int units_with(size_t offset, uint32_t value)
{
    struct svc_unit units[SVC_UNITS_MAX];
    uint8_t bytes[256];
    size_t len = unit_hex(golden_svc_units, bytes, sizeof(bytes));

    le_put_u32(bytes + offset, value);
    return svc_units_parse(bytes, len, units);
}

static void lists_of_units(void **state)
{
    struct svc_unit units[SVC_UNITS_MAX];
    uint8_t bytes[256], again[256];
    size_t len = unit_hex(golden_svc_units, bytes, sizeof(bytes));
    (void)state;

    assert_int_equal(svc_units_parse(bytes, len, units), 1);
    struct svc_cursor out = {again, again + sizeof(again), false};
    svc_put_u32(&out, 1);
    svc_put_unit(&out, &units[0]);
    assert_int_equal(svc_put_done(&out, again), (int)len);
    assert_memory_equal(again, bytes, len);
    for (size_t cut = 0; cut < len; cut++)
        assert_int_equal(svc_units_parse(bytes, cut, units), -EPROTO);
    assert_int_equal(svc_units_parse(bytes, len + 1, units), -EPROTO);

    assert_int_equal(units_with(0, 0), -EPROTO);
    assert_int_equal(units_with(0, SVC_UNITS_MAX + 1), -EPROTO);
    assert_int_equal(units_with(4, 0), -EPROTO); /* no name */
    assert_int_equal(units_with(10, SVC_RESTART_MAX), -EPROTO);
    assert_int_equal(units_with(14, SVC_READY_NONE), -EPROTO); /* with a port */
    assert_int_equal(units_with(14, SVC_READY_FILE), -EPROTO); /* without a path */
    assert_int_equal(units_with(14, SVC_READY_MAX), -EPROTO);
    assert_int_equal(units_with(18, 0), -EPROTO);
    assert_int_equal(units_with(18, 65535), 1);
    assert_int_equal(units_with(18, 65536), -EPROTO);
    assert_int_equal(units_with(22, 0), -EPROTO);
    assert_int_equal(units_with(22, SVC_UNIT_TIME_MAX), 1);
    assert_int_equal(units_with(22, SVC_UNIT_TIME_MAX + 1), -EPROTO);
    assert_int_equal(units_with(26, 0), -EPROTO);
    assert_int_equal(units_with(30, 1), -EPROTO); /* after itself */
    assert_int_equal(units_with(46, SVC_PROC_TTY), -EPROTO);
    assert_int_equal(units_with(46, SVC_PROC_STDIN), -EPROTO);
}

static void names_of_units(void **state)
{
    char longest[SVC_UNIT_NAME_MAX + 1];
    (void)state;

    memset(longest, 'a', sizeof(longest));
    assert_true(svc_unit_name_ok("a.b_c-9", 7));
    assert_true(svc_unit_name_ok(longest, SVC_UNIT_NAME_MAX));
    assert_false(svc_unit_name_ok(longest, SVC_UNIT_NAME_MAX + 1));
    assert_false(svc_unit_name_ok("", 0));
    assert_false(svc_unit_name_ok(".a", 2));
    assert_false(svc_unit_name_ok("a/b", 3));
    assert_false(svc_unit_name_ok("a\0b", 3));
}

static void golden_files(void **state)
{
    const struct svc_path path = {SVC_PATH_CONFINE, {"/workspace", 10}, {"a", 1}};
    const struct svc_entry entry = {.type = SVC_SYMLINK,
                                    .mode = 0777,
                                    .uid = 1000,
                                    .gid = 1000,
                                    .nlink = 1,
                                    .size = 5,
                                    .inode = 7,
                                    .mtime_ns = -1,
                                    .ctime_ns = 100000000,
                                    .path = {"a", 1},
                                    .target = {"/x//y", 5}};
    uint8_t bytes[256];
    (void)state;

    struct svc_cursor out = {bytes, bytes + sizeof(bytes), false};
    svc_put_path(&out, &path);
    unit_assert_hex(bytes, (size_t)(out.at - bytes), golden_svc_path);
    struct svc_reader in = {bytes, out.at, false};
    struct svc_path path_back = svc_get_path(&in);
    assert_int_equal(svc_done(&in), 0);
    assert_int_equal(path_back.flags, SVC_PATH_CONFINE);
    assert_int_equal(path_back.path.len, 1);

    out = (struct svc_cursor){bytes, bytes + sizeof(bytes), false};
    svc_put_entry(&out, &entry);
    size_t len = (size_t)(out.at - bytes);
    unit_assert_hex(bytes, len, golden_svc_entry);
    in = (struct svc_reader){bytes, bytes + len, false};
    struct svc_entry back = svc_get_entry(&in);
    assert_int_equal(svc_done(&in), 0);
    assert_true(back.mtime_ns == -1 && back.ctime_ns == 100000000 && back.inode == 7);
    assert_memory_equal(back.target.data, "/x//y", 5);
    for (size_t cut = 0; cut < len; cut++) {
        in = (struct svc_reader){bytes, bytes + cut, false};
        svc_get_entry(&in);
        assert_int_equal(svc_done(&in), -EPROTO);
    }
    bytes[0] = SVC_FILE_TYPE_MAX;
    in = (struct svc_reader){bytes, bytes + len, false};
    svc_get_entry(&in);
    assert_int_equal(svc_done(&in), -EPROTO);
}

/* ---- fields ------------------------------------------------------------------------------------- */

static void a_failure_sticks(void **state)
{
    uint8_t bytes[16] = {0};
    struct svc_cursor out = {bytes, bytes + 6, false};
    struct svc_reader in = {bytes, bytes + 6, false};
    (void)state;

    svc_put_u32(&out, 1);
    svc_put_u32(&out, 2); /* does not fit */
    svc_put_u8(&out, 3);  /* would */
    assert_true(out.bad);
    assert_int_equal(out.at - bytes, 4);
    assert_int_equal(bytes[4], 0);
    assert_int_equal(svc_put_done(&out, bytes), -EMSGSIZE);

    assert_int_equal(svc_get_u32(&in), 1);
    assert_int_equal(svc_get_u64(&in), 0);
    bytes[4] = 9;
    assert_int_equal(svc_get_u8(&in), 0); /* not 9 */
    assert_int_equal(svc_done(&in), -EPROTO);

    /* A length that says more than there is. */
    le_put_u32(bytes, UINT32_MAX);
    in = (struct svc_reader){bytes, bytes + sizeof(bytes), false};
    struct svc_bytes view = svc_get_bytes(&in);
    assert_int_equal(view.len, 0);
    assert_non_null(view.data);
    assert_true(in.bad);
}

/* ---- frames ------------------------------------------------------------------------------------- */

#define WHOLE ((int)FRAME_HEADER + 1)

static int parse_header(uint32_t length, unsigned type, unsigned flags, uint32_t stream, uint32_t request)
{
    static uint8_t bytes[FRAME_HEADER + FRAME_PAYLOAD_MAX];
    struct frame frame = {
        .length = length, .type = (uint16_t)type, .flags = (uint16_t)flags, .stream = stream, .request = request};

    frame_put_header(bytes, &frame);
    return svc_frame_parse(bytes, sizeof(bytes), &frame);
}

static void frames(void **state)
{
    uint8_t bytes[64];
    struct frame frame = {.request = 4711};
    size_t len = unit_hex(golden_svc_frame_data, bytes, sizeof(bytes));
    (void)state;

    for (size_t cut = 0; cut < len; cut++) {
        assert_int_equal(svc_frame_parse(bytes, cut, &frame), 0);
        assert_int_equal(frame.request, 4711);
    }
    assert_int_equal(svc_frame_parse(bytes, sizeof(bytes), &frame), len);
    assert_int_equal(frame.type, SVC_DATA);
    assert_int_equal(frame.stream, 1);
    assert_int_equal(frame.request, 7);
    assert_memory_equal(frame.payload, "hi", 2);

    for (unsigned type = 0; type < 300; type++) {
        bool known = (type >= SVC_HELLO && type <= SVC_CANCEL) || (type >= SVC_CALL_MIN && type < SVC_TYPE_MAX);
        bool has_stream = type == SVC_DATA || type == SVC_EOF || type == SVC_CREDIT;
        uint32_t request = type == SVC_HELLO ? 0 : 1;

        assert_int_equal(parse_header(1, type, 0, 0, request), known ? WHOLE : -EPROTO);
        assert_int_equal(parse_header(1, type, FRAME_MORE, 0, request),
                         known && type >= SVC_CALL_MIN ? WHOLE : -EPROTO);
        assert_int_equal(parse_header(0, type, FRAME_MORE, 0, request), -EPROTO);
        for (uint32_t stream = 1; stream < 5; stream++)
            assert_int_equal(parse_header(1, type, 0, stream, request), has_stream && stream <= 2 ? WHOLE : -EPROTO);
        assert_int_equal(parse_header(1, type, 0, 0, 1 - request), -EPROTO);
        assert_int_equal(parse_header(1, type, 0, 0, 0x80000000u), -EPROTO);
        for (unsigned bit = 1; bit < 16; bit++)
            assert_int_equal(parse_header(1, type, 1u << bit, 0, request), -EPROTO);
    }
    assert_int_equal(parse_header(FRAME_PAYLOAD_MAX, SVC_DATA, 0, 1, 1), FRAME_HEADER + FRAME_PAYLOAD_MAX);
    assert_int_equal(parse_header(FRAME_PAYLOAD_MAX + 1, SVC_DATA, 0, 1, 1), -EPROTO);
    assert_int_equal(parse_header(0, SVC_EOF, 0, 1, SVC_REQUEST_MAX), FRAME_HEADER);
}

/* ---- fields out of range ------------------------------------------------------------------------ */

/* The golden bytes with one number changed. */
static size_t changed(const char *golden, uint8_t *out, size_t size, size_t offset, uint32_t value)
{
    size_t len = unit_hex(golden, out, size);

    le_put_u32(out + offset, value);
    return len;
}

static int start_with(size_t offset, uint32_t value)
{
    uint8_t bytes[256];
    struct svc_proc_start msg;
    size_t len = changed(golden_svc_proc_start, bytes, sizeof(bytes), offset, value);

    return svc_proc_start_parse(bytes, len, &msg);
}

static int start_strings(uint32_t n_argv, uint32_t n_env, const char *strings, size_t len)
{
    struct svc_proc_start msg = {.proc = 1,
                                 .n_argv = n_argv,
                                 .n_env = n_env,
                                 .workdir = {"/", 1},
                                 .strings = (const uint8_t *)strings,
                                 .strings_len = len};
    uint8_t bytes[256];
    int size = svc_proc_start_put(bytes, sizeof(bytes), &msg);

    assert_true(size > 0);
    return svc_proc_start_parse(bytes, (size_t)size, &msg);
}

static int start_workdir(const char *workdir, uint32_t len)
{
    struct svc_proc_start msg = {
        .proc = 1, .n_argv = 1, .workdir = {workdir, len}, .strings = (const uint8_t *)"a", .strings_len = 2};
    static uint8_t bytes[8192];
    int size = svc_proc_start_put(bytes, sizeof(bytes), &msg);

    assert_true(size > 0);
    return svc_proc_start_parse(bytes, (size_t)size, &msg);
}

/* A user travels only with its flag, and only one that a request could name. */
static void starts_with_user(void **state)
{
    static char long_name[USER_TEXT_MAX];
    const struct {
        struct svc_bytes user;
        int result;
    } users[] = {{{"app:staff", 9}, 0},
                 {{long_name, USER_TEXT_MAX - 1}, 0},
                 {{long_name, USER_TEXT_MAX}, -EPROTO},
                 {{"", 0}, -EPROTO}};
    uint8_t bytes[512];
    (void)state;

    memset(long_name, 'a', sizeof(long_name));
    for (size_t i = 0; i < ARRAY_SIZE(users); i++) {
        struct svc_proc_start msg = {.proc = 1,
                                     .flags = SVC_PROC_USER,
                                     .n_argv = 1,
                                     .workdir = {"/", 1},
                                     .user = users[i].user,
                                     .strings = (const uint8_t *)"ls",
                                     .strings_len = 3};
        int size = svc_proc_start_put(bytes, sizeof(bytes), &msg);

        assert_true(size > 0);
        assert_int_equal(svc_proc_start_parse(bytes, (size_t)size, &msg), users[i].result);
        if (users[i].result == 0) {
            assert_int_equal(msg.user.len, users[i].user.len);
            assert_int_equal(msg.strings_len, 3);
        }
        assert_int_equal(svc_proc_start_parse(bytes, (size_t)size - 8, &msg), -EPROTO);
    }
}

static void starts_out_of_range(void **state)
{
    static char path[5000];
    (void)state;

    assert_int_equal(start_with(0, 0), -EPROTO); /* proc */
    assert_int_equal(start_with(4, 15), 0);
    assert_int_equal(start_with(4, 32), -EPROTO); /* flags */
    assert_int_equal(start_with(4, 128), -EPROTO);
    assert_int_equal(start_with(12, 64u << 20), 0);
    assert_int_equal(start_with(12, (64u << 20) + 1), -EPROTO); /* ring */
    assert_int_equal(start_with(16, 0), -EPROTO);               /* n_argv */
    assert_int_equal(start_with(16, 3), -EPROTO);
    assert_int_equal(start_with(16, UINT32_MAX), -EPROTO);
    assert_int_equal(start_with(20, 0), -EPROTO);
    assert_int_equal(start_with(20, UINT32_MAX), -EPROTO);

    assert_int_equal(start_strings(1, 0, "ls", 3), 0);
    assert_int_equal(start_strings(1, 0, "ls", 2), -EPROTO);    /* not terminated */
    assert_int_equal(start_strings(1, 0, "ls\0x", 5), -EPROTO); /* left over */
    assert_int_equal(start_strings(1, 0, "", 1), -EPROTO);      /* an empty command */
    assert_int_equal(start_strings(2, 0, "ls\0", 4), 0);        /* an empty argument */
    assert_int_equal(start_strings(1, 1, "ls\0A=", 6), 0);
    assert_int_equal(start_strings(1, 1, "ls\0A", 5), -EPROTO);  /* no value */
    assert_int_equal(start_strings(1, 1, "ls\0=A", 6), -EPROTO); /* no name */

    memset(path, '/', sizeof(path));
    assert_int_equal(start_workdir("/", 1), 0);
    assert_int_equal(start_workdir("", 0), -EPROTO);
    assert_int_equal(start_workdir("tmp", 3), -EPROTO);
    assert_int_equal(start_workdir("/a\0b", 4), -EPROTO);
    assert_int_equal(start_workdir(path, SVC_PATH_MAX - 1), 0);
    assert_int_equal(start_workdir(path, SVC_PATH_MAX), -EPROTO);
}

static void the_rest_out_of_range(void **state)
{
    uint8_t bytes[256];
    size_t len;
    (void)state;

#define REFUSED(name, offset, value)                                               \
    do {                                                                           \
        struct svc_##name msg;                                                     \
        len = changed(golden_svc_##name, bytes, sizeof(bytes), (offset), (value)); \
        assert_int_equal(svc_##name##_parse(bytes, len, &msg), -EPROTO);           \
    } while (0)
    REFUSED(hello, 0, 0);
    REFUSED(reply, 0, 4096);
    REFUSED(reply, 4, STAGE_MAX);
    REFUSED(proc_attach, 0, 0);
    REFUSED(proc_attach, 4, 0);
    REFUSED(proc_attach, 4, 1);
    REFUSED(proc_attach, 4, 14);
    REFUSED(proc_exit, 0, 0x10000);
    REFUSED(proc_exit, 68, 2); /* leaf */
    REFUSED(proc_exit, 72, 2); /* killed */
    REFUSED(proc_signal, 0, 0);
    REFUSED(proc_signal, 4, 0);
    REFUSED(proc_signal, 4, 65);
    REFUSED(proc_signal, 8, 3); /* two at once */
    REFUSED(proc_signal, 8, 8);
    REFUSED(proc_info, 0, 0);
    REFUSED(proc_info, 8, 32);
    REFUSED(proc_info, 12, 2);
    REFUSED(proc_info, 40, 11); /* older than written */
    REFUSED(shell_result, 0, 256);
    REFUSED(shell_result, 4, 1); /* ended, and a directory */
    REFUSED(shell_result, 4, 2);
    REFUSED(unit_info, 6, SVC_UNIT_STATE_MAX);
    REFUSED(unit_info, 10, SVC_WHY_MAX);
    REFUSED(unit_info, 22, 0x10000);
    REFUSED(unit_info, 26, 4096);
    REFUSED(unit_info, 30, STAGE_MAX);
    REFUSED(unit_info, 50, 11); /* older than written */
    REFUSED(unit_control, 0, SVC_UNIT_OP_MAX);
    REFUSED(unit_log, 14, 2);
    REFUSED(port, 0, 0x01040000); /* port 0 */
    REFUSED(port, 0, 0x01051f90);
    REFUSED(port, 0, 0x02041f90);

    struct svc_reply reply;
    len = unit_hex("00000000 00000000 01", bytes, sizeof(bytes)); /* a payload, when it worked */
    assert_int_equal(svc_reply_parse(bytes, len, &reply), 0);
    struct svc_proc_info info = {.proc = 1, .command = {"x", 256}};
    assert_int_equal(svc_proc_info_put(bytes, sizeof(bytes), &info), -EMSGSIZE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_messages),       cmocka_unit_test(golden_files),
        cmocka_unit_test(a_failure_sticks),      cmocka_unit_test(frames),
        cmocka_unit_test(starts_out_of_range),   cmocka_unit_test(starts_with_user),
        cmocka_unit_test(the_rest_out_of_range), cmocka_unit_test(lists_of_units),
        cmocka_unit_test(names_of_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
