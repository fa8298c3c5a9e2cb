/* SPDX-License-Identifier: Apache-2.0 */
/* A receipt as JSON: the shape is a contract, so it is compared byte for byte, and its corners one by one. */
#include "unit.h"

#include <stdlib.h>

#include <brig.h>

#include "base/mem.h"

static struct brig_receipt plain(void)
{
    static const char *const names[] = {"PATH", "A", NULL}, *const layers[] = {"base", "run", NULL},
                             *const argv[] = {"/bin/echo", "\"x\"", NULL};
    struct brig_receipt r = {.size = sizeof r,
                             .id = "run-1",
                             .sandbox_id = "abc",
                             .cause = BRIG_CAUSE_EXITED,
                             .exit_code = 3,
                             .started = true,
                             .limits = {.memory = 1 << 20, .cpus = 1500, .timeout = 30000, .cpu_time = 250},
                             .usage = {.wall_ms = 12,
                                       .cpu_ms = 7,
                                       .memory_peak_bytes = BRIG_USAGE_UNKNOWN,
                                       .pids_peak = 2,
                                       .disk_bytes = BRIG_USAGE_UNKNOWN,
                                       .read_bytes = BRIG_USAGE_UNKNOWN,
                                       .written_bytes = 0},
                             .output = {NULL, "out\n", "\xff"},
                             .output_len = {0, 4, 1},
                             .truncated = {false, true, false},
                             .started_at_ns = INT64_C(1700000000123456789),
                             .ended_at_ns = INT64_C(1700000001000000000),
                             .env_names = names,
                             .env_layers = layers,
                             .argv = argv};

    for (int i = 0; i < BRIG_LAYER_MAX; i++)
        r.layers[i] = (struct brig_layer_state){.on = true, .by = "", .why = ""};
    r.layers[BRIG_LAYER_LANDLOCK].abi = 7;
    r.layers[BRIG_LAYER_MEMORY].by = "cgroup v2";
    r.layers[BRIG_LAYER_IO] = (struct brig_layer_state){.on = false, .by = "", .why = "it was not asked for"};
    r.layers[BRIG_LAYER_OWN_KERNEL] = (struct brig_layer_state){.on = false, .by = "", .why = "another reason"};
    r.protection_complete = true;
    return r;
}

static char *json_of(const struct brig_receipt *receipt)
{
    char *text = NULL;
    size_t len = 0;

    assert_int_equal(brig_receipt_json(receipt, &text, &len, NULL), 0);
    assert_int_equal(strlen(text), len);
    assert_int_equal(text[len - 1], '\n');
    return text;
}

static void expect(const struct brig_receipt *receipt, const char *part)
{
    char *text = json_of(receipt);

    if (!strstr(text, part))
        fail_msg("no %s in %s", part, text);
    free(text);
}

static void expect_not(const struct brig_receipt *receipt, const char *part)
{
    char *text = json_of(receipt);

    if (strstr(text, part))
        fail_msg("%s in %s", part, text);
    free(text);
}

static void golden(void **state UNUSED)
{
    struct brig_receipt r = plain();
    char *text = json_of(&r);
    static const char head[] =
        "{\"id\":\"run-1\",\"kind\":\"command\",\"via\":\"local\",\"sandbox_id\":\"abc\",\"provider\":\"local\","
        "\"providers_tried\":[],"
        "\"command\":[\"/bin/echo\",\"\\\"x\\\"\"],"
        "\"outcome\":{\"cause\":\"exited\",\"exit_code\":3,\"signal\":null,\"limits_hit\":[]},"
        "\"stdout\":\"out\\n\",\"stdout_encoding\":\"utf-8\",\"stderr\":\"/w==\",\"stderr_encoding\":\"base64\","
        "\"truncated\":{\"stdout\":true,\"stderr\":false},"
        "\"limits\":{\"memory\":1048576,\"cpus\":1.5,\"cpu_time\":0.25,\"timeout\":30},"
        "\"usage\":{\"wall_ms\":12,\"cpu_ms\":7,\"pids_peak\":2,\"written_bytes\":0,"
        "\"net_in_bytes\":0,\"net_out_bytes\":0},"
        "\"protection\":{\"complete\":true,\"require_version\":1,\"layers\":{\"user_ns\":{\"on\":true},";
    static const char tail[] =
        "\"io\":{\"on\":false,\"why\":\"it was not asked for\"},"
        "\"own_kernel\":{\"on\":false,\"why\":\"another reason\"}}},\"network\":{\"policy\":\"none\"},"
        "\"environment\":{\"PATH\":\"base\",\"A\":\"run\"},"
        "\"started_at\":\"2023-11-14T22:13:20.123456Z\",\"ended_at\":\"2023-11-14T22:13:21.000000Z\"}\n";

    assert_memory_equal(text, head, sizeof head - 1);
    assert_string_equal(text + strlen(text) - (sizeof tail - 1), tail);
    free(text);
}

static void layers(void **state UNUSED)
{
    struct brig_receipt r = plain();
    char part[64];

    for (int i = 0; i < BRIG_LAYER_MAX; i++) {
        snprintf(part, sizeof part, "\"%s\":{\"on\":%s", brig_layer_name((enum brig_layer)i),
                 i == BRIG_LAYER_IO || i == BRIG_LAYER_OWN_KERNEL ? "false" : "true");
        expect(&r, part);
    }
    expect(&r, "\"landlock\":{\"on\":true,\"abi\":7}");
    expect(&r, "\"memory\":{\"on\":true,\"by\":\"cgroup v2\"}");
    for (int i = 0; i < BRIG_LAYER_MAX; i++) /* a receipt of a run that never was */
        r.layers[i] = (struct brig_layer_state){.by = NULL, .why = NULL};
    r.protection_complete = false;
    expect(&r, "\"complete\":false");
    expect(&r, "\"seccomp\":{\"on\":false}");
}

static void outcomes(void **state UNUSED)
{
    struct brig_receipt r = plain();

    for (int cause = 0; cause < BRIG_CAUSE_MAX; cause++) {
        char part[64];
        r.cause = (enum brig_cause)cause;
        snprintf(part, sizeof part, "\"cause\":\"%s\"", brig_cause_name(r.cause));
        expect(&r, part);
    }
    r.cause = BRIG_CAUSE_SIGNALLED;
    r.signal = 9;
    expect(&r, "\"exit_code\":null,\"signal\":9");
    r.cause = BRIG_CAUSE_POLICY;
    r.started = false;
    expect(&r, "\"exit_code\":null,\"signal\":null");
    r = plain();
    r.limits_hit = (1u << BRIG_LIMIT_MAX) - 1;
    expect(&r,
           "\"limits_hit\":[\"memory\",\"cpus\",\"cpu_time\",\"pids\",\"disk\",\"inodes\",\"open_files\",\"file_size\","
           "\"io_read_bps\",\"io_write_bps\","
           "\"timeout\",\"output\",\"net_bytes_in\",\"net_bytes_out\",\"net_bps\",\"connections\"]");
    expect_not(&r, "\"detail\"");
    snprintf(r.detail, sizeof r.detail, "because\n\"so\"");
    expect(&r, "\"detail\":\"because\\n\\\"so\\\"\"");
}

static void networks(void **state UNUSED)
{
    struct brig_receipt r = plain();

    expect(&r, "\"network\":{\"policy\":\"none\"},");
    snprintf(r.network.policy, sizeof r.network.policy, "none");
    expect(&r, "\"network\":{\"policy\":\"none\"},");
    r.network = (struct brig_network){.policy = "ci", .version = 3, .allowed = 2, .denied = 1};
    r.usage.net_in_bytes = 1000;
    r.usage.net_out_bytes = 10;
    expect(&r, "\"network\":{\"policy\":\"ci\",\"version\":3,\"decisions\":{\"allowed\":2,\"denied\":1}},");
    expect(&r, "\"net_in_bytes\":1000,\"net_out_bytes\":10}");
    r.learned = "{\"default\":\"deny\"}";
    expect(&r, "\"denied\":1},\"learned\":{\"default\":\"deny\"}},");
}

static void absent_is_not_applicable(void **state UNUSED)
{
    struct brig_receipt r = plain();

    expect_not(&r, "\"name\"");
    expect_not(&r, "memory_peak_bytes");
    expect_not(&r, "disk_bytes");
    expect_not(&r, "\"io_read_bps\"");
    snprintf(r.name, sizeof r.name, "box");
    expect(&r, "\"name\":\"box\"");
    r.sandbox_id[0] = '\0';
    expect_not(&r, "sandbox_id");
    r.env_names = r.env_layers = r.argv = NULL;
    expect(&r, "\"environment\":{}");
    expect(&r, "\"command\":[]");
    r.output[1] = r.output[2] = NULL;
    r.output_len[1] = r.output_len[2] = 0;
    expect(&r, "\"stdout\":\"\",\"stdout_encoding\":\"utf-8\",\"stderr\":\"\"");
}

/* Whatever a program prints, the receipt is JSON. */
static void hostile_output(void **state UNUSED)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *want;
    } cases[] = {
        {"\0", 1, "\"stdout\":\"\\u0000\""},
        {"\"}],\\", 5, "\"stdout\":\"\\\"}],\\\\\""},
        {"\x1b[31m", 5, "\\u001b[31m"},
        {"\xc3\xa4", 2, "\"stdout\":\"\xc3\xa4\""},
        {"\xc3", 1, "\"stdout\":\"ww==\",\"stdout_encoding\":\"base64\""},
        {"\xed\xa0\x80", 3, "\"stdout_encoding\":\"base64\""},     /* a surrogate */
        {"\xf4\x90\x80\x80", 4, "\"stdout_encoding\":\"base64\""}, /* past Unicode */
        {"\xc0\xaf", 2, "\"stdout_encoding\":\"base64\""},         /* overlong */
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct brig_receipt r = plain();
        r.output[BRIG_STDOUT] = cases[i].bytes;
        r.output_len[BRIG_STDOUT] = cases[i].len;
        expect(&r, cases[i].want);
    }
}

static void exit_statuses(void **state UNUSED)
{
    struct brig_receipt r = plain();
    static const int by_cause[BRIG_CAUSE_MAX] = {
        [BRIG_CAUSE_HOST_ERROR] = 125,   [BRIG_CAUSE_SANDBOX_GONE] = 125, [BRIG_CAUSE_CANCELLED] = 125,
        [BRIG_CAUSE_POLICY] = 125,       [BRIG_CAUSE_TIMEOUT] = 124,      [BRIG_CAUSE_CPU_LIMIT] = 137,
        [BRIG_CAUSE_OUTPUT_LIMIT] = 137, [BRIG_CAUSE_OOM] = 137,          [BRIG_CAUSE_DISK_LIMIT] = 3,
        [BRIG_CAUSE_PIDS_LIMIT] = 3,     [BRIG_CAUSE_SIGNALLED] = 3,      [BRIG_CAUSE_EXITED] = 3,
    };

    for (int cause = 0; cause < BRIG_CAUSE_MAX; cause++) {
        r.cause = (enum brig_cause)cause;
        assert_int_equal(brig_exit_status(&r), by_cause[cause]);
    }
    r.signal = 9;
    for (int cause = BRIG_CAUSE_DISK_LIMIT; cause < BRIG_CAUSE_MAX; cause++) {
        r.cause = (enum brig_cause)cause;
        assert_int_equal(brig_exit_status(&r), 137);
    }
    assert_int_equal(brig_exit_status(NULL), 125);
}

static void out_of_memory(void **state UNUSED)
{
    struct brig_receipt r = plain();
    char *text = (char *)(uintptr_t)0x1234;
    size_t len = 4711, n = 0;
    struct brig_err err;

    for (;; n++) {
        mem_fail_after(n);
        int status = brig_receipt_json(&r, &text, &len, &err);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        if (!failed) {
            assert_int_equal(status, 0);
            break;
        }
        assert_int_equal(status, -ENOMEM);
        assert_int_equal(err.code, BRIG_E_NOMEM);
        assert_ptr_equal(text, (char *)(uintptr_t)0x1234);
        assert_int_equal(len, 4711);
    }
    assert_true(n > 0);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(layers),
        cmocka_unit_test(outcomes),
        cmocka_unit_test(networks),
        cmocka_unit_test(absent_is_not_applicable),
        cmocka_unit_test(hostile_output),
        cmocka_unit_test(exit_statuses),
        cmocka_unit_test(out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
