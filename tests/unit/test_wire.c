/* SPDX-License-Identifier: Apache-2.0 */
/* The packets between engine and spawner: what has the right shape, and everything that has not. */
#include "unit.h"

#include "base/fd.h"
#include "spawner/spawner.h"
#include "spawner/spawner_wire.h"

static const struct {
    uint16_t type;
    size_t size;
} types[] = {
    {WIRE_READY, sizeof(struct wire_ready)},
    {WIRE_RUN, sizeof(struct wire_run)},
    {WIRE_STARTED, sizeof(struct wire_started)},
    {WIRE_DONE, sizeof(struct wire_done)},
    {WIRE_KILL, sizeof(struct wire_kill)},
    {WIRE_SIGNAL, sizeof(struct wire_signal)},
    {WIRE_POOL, sizeof(struct wire_pool)},
    {WIRE_POOL_FULL, sizeof(struct wire_pool)},
    {WIRE_ATTACH, sizeof(struct wire_plain)},
    {WIRE_ATTACHED, sizeof(struct wire_answer)},
    {WIRE_FREEZE, sizeof(struct wire_freeze)},
    {WIRE_FROZEN, sizeof(struct wire_answer)},
    {WIRE_STATS, sizeof(struct wire_plain)},
    {WIRE_STATS_ARE, sizeof(struct wire_stats)},
    {WIRE_LIST, sizeof(struct wire_plain)},
    {WIRE_LISTED, sizeof(struct wire_started)},
    {WIRE_LIST_END, sizeof(struct wire_ready)},
    {WIRE_GATE, sizeof(struct wire_gate)},
    {WIRE_GATE_OPEN, sizeof(struct wire_gate_open)},
    {WIRE_KEEP, sizeof(struct wire_plain)},
    {WIRE_KEPT, sizeof(struct wire_kept)},
    {WIRE_TAKE, sizeof(struct wire_plain)},
    {WIRE_LIMITS, sizeof(struct wire_limits)},
    {WIRE_LIMITS_ARE, sizeof(struct wire_limits_are)},
    {WIRE_COUNTED, sizeof(struct wire_stats)},
    {WIRE_LAYER, sizeof(struct wire_layer)},
    {WIRE_LAYER_DONE, sizeof(struct wire_answer)},
    {WIRE_LAYERS, sizeof(struct wire_plain)},
    {WIRE_LAYERS_ARE, sizeof(struct wire_layers_are)},
    {WIRE_DISK, sizeof(struct wire_disk)},
    {WIRE_DISK_PROGRESS, sizeof(struct wire_disk_progress)},
    {WIRE_DISK_DONE, sizeof(struct wire_disk_done)},
    {WIRE_DISKS, sizeof(struct wire_plain)},
    {WIRE_DISKS_ARE, sizeof(struct wire_disks_are)},
};
_Static_assert(ARRAY_SIZE(types) == WIRE_TYPE_MAX - 1, "every type");

static union wire_any packet(uint16_t type)
{
    return (union wire_any){.head = {WIRE_MAGIC, WIRE_VERSION, type, 1}};
}

static void good(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        union wire_any msg = packet(types[i].type);
        assert_int_equal(wire_size(types[i].type), types[i].size);
        assert_int_equal(wire_check(&msg, types[i].size), 0);
    }
}

static void every_other_size(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        union wire_any msg = packet(types[i].type);
        for (size_t len = 0; len <= sizeof msg; len++)
            assert_int_equal(wire_check(&msg, len), len == types[i].size ? 0 : -EPROTO);
    }
}

static void unknown_types(void **state UNUSED)
{
    for (unsigned type = 0; type <= UINT16_MAX; type++) {
        bool known = type >= 1 && type < WIRE_TYPE_MAX;
        union wire_any msg = packet((uint16_t)type);

        assert_int_equal(wire_size((uint16_t)type) != 0, known);
        if (!known) {
            assert_int_equal(wire_check(&msg, sizeof msg), -EPROTO);
            assert_int_equal(wire_check(&msg, sizeof msg.head), -EPROTO);
            assert_int_equal(wire_check(&msg, 0), -EPROTO);
        }
    }
}

static void magic_and_version(void **state UNUSED)
{
    union wire_any msg = packet(WIRE_KILL);

    for (unsigned bit = 0; bit < 32; bit++) {
        msg.head.magic = WIRE_MAGIC ^ 1u << bit;
        assert_int_equal(wire_check(&msg, sizeof msg.kill), -EPROTO);
    }
    msg.head.magic = WIRE_MAGIC;
    for (unsigned version = 0; version <= UINT16_MAX; version++) {
        msg.head.version = (uint16_t)version;
        assert_int_equal(wire_check(&msg, sizeof msg.kill), version == WIRE_VERSION ? 0 : -EPROTO);
    }
}

/* A packet never needs more than the kernel gives a unix socket by default, and its strings travel beside it. */
static void bounded(void **state UNUSED)
{
    assert_true(sizeof(union wire_any) < 4096);
    assert_true(WIRE_STRINGS_MAX >= GUEST_STRINGS_MAX);
    assert_true(WIRE_FDS >= 5); /* strings, stdin, stdout, stderr, a CA bundle */
    assert_true(WIRE_FDS >= GATE_LISTENERS_MAX && WIRE_FDS <= FD_MSG_MAX);
    assert_true(WIRE_BINDS_MAX <= 32); /* binds_ro has a bit for each */
}

/* What the engine cannot have, whatever it asks for. */
static void kvm_is_for_a_monitor_alone(void **state UNUSED)
{
    const struct run_spec good = {.flags = WIRE_RUN_SERVICE | WIRE_RUN_KVM};
    const struct {
        struct run_spec spec;
        const char *what;
    } bad[] = {{{.flags = good.flags | BRIG_RUN_ROOT}, "root inside"},
               {{.flags = good.flags | BRIG_RUN_WRITABLE_ROOT}, "a writable root"},
               {{.flags = good.flags, .rootfs = "/"}, "another root"},
               {{.flags = good.flags, .n_layers = 1}, "layers"},
               {{.flags = good.flags, .zygote = "k"}, "a zygote"},
               {{.flags = good.flags, .disk = "box-x"}, "a disk"},
               {{.flags = good.flags, .n_volumes = 1}, "a volume"},
               {{.flags = good.flags, .profile = BRIG_PROFILE_COMPAT}, "another profile"}};
    struct brig_err err = {0};

    assert_int_equal(run_spec_check_kvm(&good, true, &err), 0);
    assert_true(run_spec_check_kvm(&good, false, &err) < 0);
    assert_int_equal(err.code, BRIG_E_REFUSED);
    assert_string_equal(err.message,
                        "/dev/kvm: only for a service of root whose configuration has a monitor for it (BRIG_KVM)");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (run_spec_check_kvm(&bad[i].spec, true, &err) == 0)
            fail_msg("%s and /dev/kvm", bad[i].what);
    const struct run_spec other = {.flags = WIRE_RUN_SERVICE | BRIG_RUN_ROOT};
    assert_int_equal(run_spec_check_kvm(&other, false, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good),          cmocka_unit_test(every_other_size),
        cmocka_unit_test(unknown_types), cmocka_unit_test(magic_and_version),
        cmocka_unit_test(bounded),       cmocka_unit_test(kvm_is_for_a_monitor_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
