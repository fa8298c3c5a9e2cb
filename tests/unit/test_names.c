/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary, and the exit status of the command line for every cause. */
#include "unit.h"

#include <brig.h>

static void layers_have_their_names(void **state)
{
    static const char all[] =
        "user_ns mount_ns pid_ns net_ns ipc_ns uts_ns cgroup_ns uid_range caps no_new_privs seccomp "
        "landlock root_readonly proc fds memory cpu pids disk inodes time_ns io own_kernel ";
    char text[sizeof(all) + 64] = "";
    size_t at = 0;
    (void)state;

    for (unsigned i = 0; i < BRIG_LAYER_MAX; i++) {
        const char *name = brig_layer_name((enum brig_layer)i);
        assert_int_equal(brig_layer_parse(name), (int)i);
        int n = snprintf(text + at, sizeof(text) - at, "%s ", name);
        at += (size_t)n;
    }
    assert_string_equal(text, all);
    assert_int_equal(BRIG_REQUIRE_ALL, (1u << 20) - 1);
    assert_string_equal(brig_layer_name(BRIG_LAYER_MAX), "unknown");
    assert_string_equal(brig_layer_name((enum brig_layer) - 1), "unknown");
    assert_int_equal(brig_layer_parse("nonsense"), -EINVAL);
    assert_int_equal(brig_layer_parse(""), -EINVAL);
    assert_int_equal(brig_layer_parse("unknown"), -EINVAL);
    assert_int_equal(brig_layer_parse("USER_NS"), -EINVAL);
    assert_int_equal(brig_layer_parse(NULL), -EINVAL);
}

static void limits_have_their_names(void **state)
{
    static const char *const names[] = {"memory",       "cpus",          "cpu_time",   "pids",
                                        "disk",         "inodes",        "open_files", "file_size",
                                        "io_read_bps",  "io_write_bps",  "timeout",    "output",
                                        "net_bytes_in", "net_bytes_out", "net_bps",    "connections"};
    (void)state;
    assert_int_equal(ARRAY_SIZE(names), BRIG_LIMIT_MAX);
    for (unsigned i = 0; i < BRIG_LIMIT_MAX; i++)
        assert_string_equal(brig_limit_name((enum brig_limit)i), names[i]);
    assert_string_equal(brig_limit_name(BRIG_LIMIT_MAX), "unknown");
    /* The struct is the same list in the same order. */
    assert_int_equal(offsetof(struct brig_limits, memory), BRIG_LIMIT_MEMORY * 8);
    assert_int_equal(offsetof(struct brig_limits, pids), BRIG_LIMIT_PIDS * 8);
    assert_int_equal(offsetof(struct brig_limits, file_size), BRIG_LIMIT_FILE_SIZE * 8);
    assert_int_equal(offsetof(struct brig_limits, output), BRIG_LIMIT_OUTPUT * 8);
}

static void causes_have_their_names(void **state)
{
    static const char *const names[] = {"host-error", "sandbox-gone", "cancelled",    "policy",
                                        "timeout",    "cpu-limit",    "output-limit", "oom",
                                        "disk-limit", "pids-limit",   "signalled",    "exited"};
    (void)state;
    assert_int_equal(ARRAY_SIZE(names), BRIG_CAUSE_MAX);
    for (unsigned i = 0; i < BRIG_CAUSE_MAX; i++)
        assert_string_equal(brig_cause_name((enum brig_cause)i), names[i]);
    assert_string_equal(brig_cause_name(BRIG_CAUSE_MAX), "unknown");
}

static void profiles_have_their_names(void **state)
{
    (void)state;
    assert_int_equal(brig_profile_parse("default"), BRIG_PROFILE_DEFAULT);
    assert_int_equal(brig_profile_parse("paranoid"), BRIG_PROFILE_PARANOID);
    assert_int_equal(brig_profile_parse("compat"), BRIG_PROFILE_COMPAT);
    assert_int_equal(brig_profile_parse("Default"), -EINVAL);
    assert_int_equal(brig_profile_parse(NULL), -EINVAL);
    for (unsigned i = 0; i < BRIG_PROFILE_MAX; i++)
        assert_int_equal(brig_profile_parse(brig_profile_name((enum brig_profile)i)), (int)i);
}

static int status_of(enum brig_cause cause, int exit_code, int signal)
{
    struct brig_receipt receipt = {.size = sizeof(receipt), .cause = cause, .exit_code = exit_code, .signal = signal};
    return brig_exit_status(&receipt);
}

static void exit_status_of_every_cause(void **state)
{
    (void)state;
    assert_int_equal(status_of(BRIG_CAUSE_EXITED, 0, 0), 0);
    assert_int_equal(status_of(BRIG_CAUSE_EXITED, 3, 0), 3);
    assert_int_equal(status_of(BRIG_CAUSE_EXITED, 137, 0), 137);
    assert_int_equal(status_of(BRIG_CAUSE_EXITED, 126, 0), 126); /* found but not executable */
    assert_int_equal(status_of(BRIG_CAUSE_EXITED, 127, 0), 127); /* not found */
    assert_int_equal(status_of(BRIG_CAUSE_SIGNALLED, 0, 15), 143);
    assert_int_equal(status_of(BRIG_CAUSE_SIGNALLED, 0, 9), 137);
    assert_int_equal(status_of(BRIG_CAUSE_TIMEOUT, 0, 0), 124); /* even if the program obeyed SIGTERM and exited 0 */
    assert_int_equal(status_of(BRIG_CAUSE_TIMEOUT, 0, 9), 124);
    assert_int_equal(status_of(BRIG_CAUSE_CPU_LIMIT, 0, 9), 137);
    assert_int_equal(status_of(BRIG_CAUSE_OUTPUT_LIMIT, 0, 9), 137);
    assert_int_equal(status_of(BRIG_CAUSE_OOM, 0, 9), 137);
    assert_int_equal(status_of(BRIG_CAUSE_DISK_LIMIT, 1, 0), 1);
    assert_int_equal(status_of(BRIG_CAUSE_DISK_LIMIT, 0, 25), 153);
    assert_int_equal(status_of(BRIG_CAUSE_PIDS_LIMIT, 2, 0), 2);
    assert_int_equal(status_of(BRIG_CAUSE_HOST_ERROR, 0, 0), 125);
    assert_int_equal(status_of(BRIG_CAUSE_SANDBOX_GONE, 0, 0), 125);
    assert_int_equal(status_of(BRIG_CAUSE_CANCELLED, 0, 9), 125);
    assert_int_equal(status_of(BRIG_CAUSE_POLICY, 0, 0), 125);
    assert_int_equal(status_of(BRIG_CAUSE_MAX, 0, 0), 125);
    assert_int_equal(brig_exit_status(NULL), 125);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_have_their_names),    cmocka_unit_test(limits_have_their_names),
        cmocka_unit_test(causes_have_their_names),    cmocka_unit_test(profiles_have_their_names),
        cmocka_unit_test(exit_status_of_every_cause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
