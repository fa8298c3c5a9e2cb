/* SPDX-License-Identifier: Apache-2.0 */
/* Capped buffers: the ceiling, content kept on failure, and every allocation failing once. */
#include "unit.h"

#include "base/buf.h"
#include "base/mem.h"

static void buf_grows_and_ends_in_nul(void **state)
{
    struct buf b = BUF_INIT(100000);
    (void)state;

    for (int i = 0; i < 10000; i++)
        assert_int_equal(buf_append(&b, "0123456789", 10), 0);
    assert_int_equal(b.len, 100000);
    assert_true(b.cap <= 100001);
    assert_int_equal(b.data[b.len], '\0');
    assert_memory_equal(b.data + 99990, "0123456789", 10);
    buf_done(&b);
    assert_null(b.data);
    buf_done(&b);
}

static void buf_refuses_past_its_ceiling(void **state)
{
    struct buf b = BUF_INIT(5);
    (void)state;

    assert_int_equal(buf_append(&b, "abc", 3), 0);
    assert_int_equal(buf_append(&b, "def", 3), -EMSGSIZE);
    assert_int_equal(buf_printf(&b, "%d", 123), -EMSGSIZE);
    assert_string_equal(b.data, "abc");
    assert_int_equal(b.len, 3);
    assert_int_equal(buf_append_str(&b, "de"), 0);
    assert_int_equal(buf_append(&b, "", 0), 0);
    assert_int_equal(buf_append(&b, "x", 1), -EMSGSIZE);
    assert_int_equal(buf_append(&b, NULL, SIZE_MAX), -EMSGSIZE);
    assert_string_equal(b.data, "abcde");
    buf_done(&b);

    b = BUF_INIT(0);
    assert_int_equal(buf_append(&b, "x", 1), -EMSGSIZE);
    assert_int_equal(buf_printf(&b, "%s", "x"), -EMSGSIZE);
    assert_int_equal(buf_append(&b, NULL, 0), 0);
    assert_int_equal(b.len, 0);
    buf_done(&b);

    b = BUF_INIT(SIZE_MAX);
    assert_int_equal(buf_append_str(&b, "x"), 0);
    assert_int_equal(buf_reserve(&b, SIZE_MAX - 1), -EMSGSIZE);
    assert_string_equal(b.data, "x");
    buf_done(&b);
}

static void buf_printf_formats_once_or_twice(void **state)
{
    struct buf b = BUF_INIT(4096);
    char text[1000];
    (void)state;

    memset(text, 'y', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(buf_printf(&b, "%d-%s", 7, "a"), 0);
    assert_string_equal(b.data, "7-a");
    assert_int_equal(buf_printf(&b, "%s", text), 0);
    assert_int_equal(b.len, 1002);
    assert_int_equal(buf_printf(&b, "%s", ""), 0);
    assert_int_equal(strlen(b.data), 1002);
    buf_done(&b);

    /* Exactly full. */
    b = BUF_INIT(4);
    assert_int_equal(buf_printf(&b, "%s", "abcd"), 0);
    assert_string_equal(b.data, "abcd");
    assert_int_equal(buf_printf(&b, "%s", "e"), -EMSGSIZE);
    assert_string_equal(b.data, "abcd");
    buf_done(&b);
}

static void buf_consumes_from_the_front(void **state)
{
    struct buf b = BUF_INIT(64);
    (void)state;

    buf_consume(&b, 10);
    assert_int_equal(buf_append_str(&b, "hello"), 0);
    buf_consume(&b, 2);
    assert_string_equal(b.data, "llo");
    buf_consume(&b, 0);
    assert_int_equal(b.len, 3);
    buf_consume(&b, 99);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.data, "");
    /* Room was given back: the ceiling counts what is there, not what was. */
    for (int i = 0; i < 20; i++) {
        assert_int_equal(buf_append_str(&b, "0123456789012345678901234567890123456789"), 0);
        buf_consume(&b, 40);
    }
    buf_done(&b);
}

static void buf_take_hands_over(void **state)
{
    struct buf b = BUF_INIT(64);
    size_t len = 99;
    (void)state;

    char *empty = buf_take(&b, &len);
    assert_non_null(empty);
    assert_string_equal(empty, "");
    assert_int_equal(len, 0);
    free(empty);

    assert_int_equal(buf_append_str(&b, "text"), 0);
    char *text = buf_take(&b, &len);
    assert_string_equal(text, "text");
    assert_int_equal(len, 4);
    assert_null(b.data);
    free(text);
    assert_int_equal(buf_append_str(&b, "again"), 0);
    buf_done(&b);
}

static int fill(struct buf *b)
{
    for (int i = 0; i < 200; i++) {
        int r = i % 2 ? buf_printf(b, "%08d", i) : buf_append_str(b, "abcdefgh");
        if (r < 0)
            return r;
    }
    return 0;
}

static void buf_survives_every_allocation_failure(void **state)
{
    size_t n = 0;
    (void)state;

    for (;; n++) {
        struct buf b = BUF_INIT(100000);
        mem_fail_after(n);
        int r = fill(&b);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        assert_int_equal(r, failed ? -ENOMEM : 0);
        assert_int_equal(b.len % 8, 0);
        if (b.data)
            assert_int_equal(strlen(b.data), b.len);
        buf_done(&b);
        if (!failed)
            break;
    }
    assert_in_range(n, 2, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buf_grows_and_ends_in_nul),
        cmocka_unit_test(buf_refuses_past_its_ceiling),
        cmocka_unit_test(buf_printf_formats_once_or_twice),
        cmocka_unit_test(buf_consumes_from_the_front),
        cmocka_unit_test(buf_take_hands_over),
        cmocka_unit_test(buf_survives_every_allocation_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
