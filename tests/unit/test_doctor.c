/* SPDX-License-Identifier: Apache-2.0 */
/* brig_doctor(): the hosts that this one is not, told to it by hand, and the words it finds for them. */
#include "unit.h"

#include "engine/engine_doctor.h"

/* A plain user on a host where everything else is well. */
static struct doctor plain(void)
{
    struct doctor d = {.host = {.uid = 1000,
                                .gid = 1000,
                                .sudo = "sudo ",
                                .host_sudo = "sudo ",
                                .version = {6, 8},
                                .release = "6.8.0",
                                .landlock = 4},
                       .cgroup = {.kind = CGROUP_V2,
                                  .v2 = 1u << CONTROLLER_MEMORY | 1u << CONTROLLER_PIDS,
                                  .v2_path = "/user.slice/x"},
                       .blamed = FEATURE_MAX,
                       .blocker = FEATURE_MAX};

    for (int i = 0; i < BRIG_LAYER_MAX; i++)
        d.probe.layers[i] = (struct brig_layer_state){.by = "", .why = ""};
    return d;
}

#define assert_has(text, word)                                    \
    do {                                                          \
        if (!strstr(text, word))                                  \
            fail_msg("\"%s\" does not say \"%s\"", (text), word); \
    } while (0)

/* ---- delegation ----------------------------------------------------------------------------------------- */

static void delegation_missing(void **state)
{
    (void)state;
    struct doctor d = plain();
    struct brig_doctor_row row = {0};

    d.probe.usable = true;
    d.host.systemd = true;
    find_delegation(&d, &row);
    assert_false(row.on);
    assert_has(row.state, "/user.slice/x is not this user's");
    assert_string_equal(row.fix, "systemd-run --user --scope -p Delegate=yes brig run ...");

    d.host.systemd = false;
    d.host.uid = d.host.gid = UINT32_MAX - 1; /* the longest */
    find_delegation(&d, &row);
    assert_has(row.fix, "systemd-run --user --scope -p Delegate=yes brig run ...");
    assert_has(row.fix, "--clear-groups brig run ...'"); /* not cut off */
}

static void delegation_half_given(void **state)
{
    (void)state;
    struct doctor d = plain();
    struct brig_doctor_row row = {0};

    d.probe.usable = d.cgroup.v2_writable = true;
    find_delegation(&d, &row);
    assert_has(row.state, "other processes share the cgroup");
    d.cgroup.v2_alone = true;
    find_delegation(&d, &row);
    assert_has(row.state, "has not been given: cpu");
    assert_has(row.fix, "Delegate=cpu memory pids io");
    assert_has(row.fix, "-p Delegate=yes brig run ..."); /* not cut off */
}

static void delegation_v1(void **state)
{
    (void)state;
    struct doctor d = plain();
    struct brig_doctor_row row = {0};

    d.cgroup = (struct doctor_cgroup){
        .kind = CGROUP_V1, .v1 = (1u << CONTROLLER_MAX) - 1, .v1_writable = 1u << CONTROLLER_PIDS};
    d.probe.usable = true;
    find_delegation(&d, &row);
    assert_has(row.state, "for: memory cpu");
    assert_has(row.fix, "for c in memory cpu pids cpuacct; do");
    assert_has(row.fix, "chown -R 1000");
    d.host.systemd = true;
    find_delegation(&d, &row);
    assert_has(row.fix, "systemd.unified_cgroup_hierarchy=1");
    d.probe.layers[BRIG_LAYER_MEMORY] = d.probe.layers[BRIG_LAYER_CPU] =
        (struct brig_layer_state){true, 0, "cgroup v1", ""};
    find_delegation(&d, &row);
    assert_true(row.on);
    assert_string_equal(row.fix, "");
}

static void no_cgroups(void **state)
{
    (void)state;
    struct doctor d = plain();
    struct brig_doctor_row row = {0};

    d.cgroup = (struct doctor_cgroup){.kind = CGROUP_NONE};
    find_cgroups(&d, &row);
    assert_false(row.on);
    assert_string_equal(row.fix, "sudo mount -t cgroup2 cgroup2 /sys/fs/cgroup");
    d = plain();
    d.cgroup.disabled = 1u << CONTROLLER_MEMORY;
    find_cgroups(&d, &row);
    assert_has(row.state, "switched off at boot: memory");
    assert_has(row.fix, "cgroup_enable=memory");
}

/* ---- /proc ---------------------------------------------------------------------------------------------- */

static void proc_full(void **state)
{
    (void)state;
    static const char *const full[] = {
        "22 27 0:21 / /proc rw,nosuid - proc proc rw\n",
        "22 27 0:21 / /proc rw shared:5 master:1 - proc proc rw\n23 22 0:40 / /proc/sys/fs/binfmt_misc rw - autofs "
        "systemd-1 rw\n",
        /* masked, but another one is whole */
        "22 27 0:21 / /proc rw - proc proc rw\n23 22 0:40 / /proc/kcore rw - tmpfs none rw\n30 27 0:21 / /mnt rw - "
        "proc proc rw\n",
    };
    static const char *const masked[][2] = {
        {"22 27 0:21 / /proc rw - proc proc rw\n23 22 0:40 / /proc/kcore rw - tmpfs none rw\n", "/proc/kcore"},
        {"22 27 0:21 / /proc rw - proc proc rw\n23 22 0:21 /sys /proc/sys ro - proc proc rw\n", "/proc/sys"},
        {"22 27 0:21 / /proc ro,nosuid - proc proc rw\n", "/proc (read-only)"},
        {"22 27 0:21 /sys /proc/sys rw - proc proc rw\n", ""},
        {"27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n", ""},
        {"", ""},
    };
    char mask[64];

    for (size_t i = 0; i < ARRAY_SIZE(full); i++)
        assert_true(doctor_proc_is_full(full[i], mask, sizeof mask));
    for (size_t i = 0; i < ARRAY_SIZE(masked); i++) {
        assert_false(doctor_proc_is_full(masked[i][0], mask, sizeof mask));
        assert_string_equal(mask, masked[i][1]);
    }
}

/* ---- the kernel ----------------------------------------------------------------------------------------- */

static void landlock_reasons(void **state)
{
    (void)state;
    static const struct {
        int abi;
        unsigned minor;
        const char *words, *fix;
    } cases[] = {
        {2, 10, "ABI 2", ""},
        {-EOPNOTSUPP, 15, "not among the security modules", "lsm=landlock,"},
        {-ENOSYS, 10, "older than Landlock (5.13)", "boot Linux 5.14 or newer"},
        {-ENOSYS, 15, "built without", "CONFIG_SECURITY_LANDLOCK=y"},
        {-EPERM, 15, "filter forbids", "seccomp=unconfined"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct doctor d = plain();
        struct brig_doctor_row row = {0};
        d.host.version[0] = 5;
        d.host.version[1] = cases[i].minor;
        d.host.landlock = cases[i].abi;
        find_landlock(&d, &row);
        assert_int_equal(row.on, cases[i].abi > 0);
        assert_has(row.state, cases[i].words);
        assert_has(row.fix, cases[i].fix);
    }
}

static void old_kernel(void **state)
{
    (void)state;
    struct doctor d = plain();
    struct brig_doctor_row row = {0};

    d.host.version[0] = 5;
    d.host.version[1] = 4;
    snprintf(d.host.release, sizeof d.host.release, "5.4.0-42-generic");
    find_kernel(&d, &row); /* the calls are this kernel's, the rest goes by the version */
    assert_false(row.on);
    assert_has(row.state, "5.4.0-42-generic lacks");
    assert_has(row.state, "/proc with subset=pid (5.8), overlayfs for plain users (5.11)");
    assert_has(row.fix, "boot Linux 5.14 or newer");
    assert_true(doctor_host_is_at_least(&d.host, 5, 4) && doctor_host_is_at_least(&d.host, 4, 18));
    assert_false(doctor_host_is_at_least(&d.host, 5, 5) || doctor_host_is_at_least(&d.host, 6, 1));
}

/* ---- limits, rows ---------------------------------------------------------------------------------------- */

static void limits_inside(void **state)
{
    (void)state;
    static const char text[] = "Limit                     Soft Limit           Hard Limit           Units     \n"
                               "Max file size             unlimited            unlimited            bytes     \n"
                               "Max open files            1024                 4096                 files     \n";
    uint64_t value = 0;

    assert_int_equal(doctor_limit_inside(text, "Max open files", &value), 0);
    assert_int_equal(value, 1024);
    assert_int_equal(doctor_limit_inside(text, "Max file size", &value), 0);
    assert_true(value == UINT64_MAX);
    assert_int_equal(doctor_limit_inside(text, "Max core file size", &value), -ENOENT);
    assert_int_equal(doctor_limit_inside("Max open files", "Max open files", &value), -ENOENT);
    assert_int_equal(doctor_limit_inside("", "Max open files", &value), -ENOENT);
}

/* Without a sandbox every layer is off and says where to look: at the feature that the error names. */
static void no_sandbox(void **state)
{
    (void)state;
    static const struct {
        const char *error, *blocker;
    } cases[] = {
        {"user namespace for a plain user (see `brig doctor`): No space left on device", "user_namespaces"},
        {"/x/overlay/brig-init: No such file or directory", "helpers"},
        {"set-up, proc: proc: Operation not permitted", "full_proc"},
        {"set-up, template: overlay: No such device", "overlayfs"},
        {"mkfs.ext4: not installed", "image_store"},
        {"run directory /run/brig may be written to by others (mode 0777)", "directories"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct doctor *d = test_malloc(sizeof *d);
        struct brig_doctor *got = test_calloc(1, sizeof *got);
        char fix[64];

        *d = plain();
        d->host.privileged = true;
        snprintf(d->probe.error.message, sizeof d->probe.error.message, "%s", cases[i].error);
        doctor_features(d);
        doctor_rows(d, got);
        assert_int_equal(got->n_rows, BRIG_LAYER_MAX + 5 + FEATURE_MAX);
        snprintf(fix, sizeof fix, "as for %s below", cases[i].blocker);
        for (size_t k = 0; k < got->n_rows; k++) {
            assert_true(got->rows[k].name && got->rows[k].state[0]);
            if (got->rows[k].needed)
                assert_string_equal(got->rows[k].fix, fix);
            if (k < BRIG_LAYER_MAX)
                assert_false(got->rows[k].on);
            if (strcmp(got->rows[k].name, cases[i].blocker) == 0) {
                assert_false(got->rows[k].on);
                assert_true(got->rows[k].fix[0] != '\0');
            }
        }
        test_free(d);
        test_free(got);
    }
}

/* What the host says goes to terminals: no control bytes, one line, cut to size. */
static void rows_are_clean(void **state)
{
    (void)state;
    struct brig_doctor_row row = {0};
    char longer[400];

    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    row_off(&row, "a\033[2Jb\nc\xff %s", longer);
    assert_has(row.state, "a?[2Jb?c? x");
    assert_int_equal(strlen(row.state), sizeof row.state - 1);
    row_fix(&row, "%s", longer);
    assert_int_equal(strlen(row.fix), sizeof row.fix - 1);
    row_on(&row, "well");
    assert_true(row.on && row.fix[0] == '\0');
}

static void bad_arguments(void **state)
{
    (void)state;
    static struct brig_doctor got;
    const struct brig_engine_options tiny = {.size = 1};
    struct brig_err err;

    assert_int_equal(brig_doctor(NULL, NULL, &err), -EINVAL);
    assert_int_equal(brig_doctor(NULL, &got, &err), -EINVAL); /* its size is 0 */
    got.size = sizeof got;
    assert_int_equal(brig_doctor(&tiny, &got, &err), -EINVAL);
    assert_int_equal(err.code, BRIG_E_USAGE);
    assert_int_equal(got.n_rows, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delegation_missing), cmocka_unit_test(delegation_half_given),
        cmocka_unit_test(delegation_v1),      cmocka_unit_test(no_cgroups),
        cmocka_unit_test(proc_full),          cmocka_unit_test(landlock_reasons),
        cmocka_unit_test(old_kernel),         cmocka_unit_test(limits_inside),
        cmocka_unit_test(no_sandbox),         cmocka_unit_test(rows_are_clean),
        cmocka_unit_test(bad_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
