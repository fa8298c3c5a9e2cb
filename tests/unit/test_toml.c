/* SPDX-License-Identifier: Apache-2.0 */
/* The TOML reader: values with their lines, exact refusals, bounds. (Everything else: tests/e2e/test_toml.py, against
 * tomllib.) */
#include "unit.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "codec/toml/toml.h"

static struct toml_doc *read_doc(const char *text)
{
    struct toml_doc *doc = NULL;
    struct brig_err err = {0};

    if (toml_read(text, strlen(text), &doc, &err) != 0)
        fail_msg("%s", err.message);
    return doc;
}

static void assert_refused(const char *text, const char *message)
{
    struct toml_doc *doc = NULL;
    struct brig_err err = {0};

    assert_int_equal(toml_read(text, strlen(text), &doc, &err), -EINVAL);
    assert_int_equal(err.code, BRIG_E_USAGE);
    assert_string_equal(err.message, message);
    assert_null(doc);
}

static void reads_values_with_lines(void **state)
{
    struct toml_doc *doc = read_doc("# one\n"
                                    "title = \"a\\u00e9\" \n"
                                    "[server]\n"
                                    "listen = '127.0.0.1:2744'\n"
                                    "n = 1_000\n"
                                    "x = -1.5e3\n"
                                    "on = true\n"
                                    "text = '''\n"
                                    "two\n"
                                    "lines'''\n"
                                    "list = [1,\n"
                                    "  2]\n"
                                    "since = 1979-05-27 07:32:00z\n"
                                    "[llm.vision]\n"
                                    "model.name = 'x'\n"
                                    "[[item]]\n"
                                    "[[item]]\n"
                                    "a = 1\n");
    const struct toml_value *root = toml_root(doc), *server = toml_get(root, "server"), *v;
    (void)state;

    assert_int_equal(root->count, 4);
    assert_string_equal(toml_get(root, "title")->string, "a\xc3\xa9");
    assert_int_equal(toml_get(root, "title")->len, 3);
    assert_int_equal(server->line, 3);
    assert_int_equal(server->count, 7);
    v = toml_get(server, "n");
    assert_int_equal(v->type, TOML_INTEGER);
    assert_int_equal(v->integer, 1000);
    assert_int_equal(v->line, 5);
    v = toml_get(server, "x");
    assert_int_equal(v->type, TOML_FLOAT);
    assert_true(v->number <= -1500 && v->number >= -1500);
    assert_true(toml_get(server, "on")->boolean);
    v = toml_get(server, "text");
    assert_int_equal(v->line, 8);
    assert_string_equal(v->string, "two\nlines");
    v = toml_get(server, "list");
    assert_int_equal(v->line, 11);
    assert_int_equal(v->count, 2);
    assert_int_equal(v->first->next->line, 12);
    v = toml_get(server, "since");
    assert_int_equal(v->type, TOML_DATETIME);
    assert_string_equal(v->string, "1979-05-27T07:32:00Z");
    assert_int_equal(v->line, 13);
    v = toml_get(toml_get(toml_get(root, "llm"), "vision"), "model");
    assert_string_equal(toml_get(v, "name")->string, "x");
    v = toml_get(root, "item");
    assert_int_equal(v->type, TOML_ARRAY);
    assert_int_equal(v->count, 2);
    assert_null(v->first->first);
    assert_int_equal(toml_get(v->first->next, "a")->line, 18);
    assert_null(toml_get(root, "none"));
    assert_null(toml_get(v, "a"));
    assert_null(toml_get(NULL, "a"));
    toml_free(doc);
    toml_free(NULL);
}

static void refusals_name_the_line(void **state)
{
    (void)state;
    assert_refused("a = 1\n\na = 2\n", "line 3: `a` is there twice");
    assert_refused("[a]\nx = 1\n[a]\n", "line 3: `a` is a table that was defined before");
    assert_refused("[a.b]\n[a]\nb.c = 1\n", "line 3: `b` is a table that was defined elsewhere");
    assert_refused("a = {}\na.b = 1\n", "line 2: `a` has a value already");
    assert_refused("a = 1\n[a.b]\n", "line 2: `a` has a value already, and is no table");
    assert_refused("a = []\n[[a]]\n", "line 2: `a` was defined before, and not by [[ ]]");
    assert_refused("x = 1\ny = \"open\nz = 2\n", "line 2: the string does not end on its line");
    assert_refused("x = 1\ny = \"\"\"open\nz = 2\n", "line 2: the string that begins here does not end");
    assert_refused("x = [\n1,\n\n", "line 4: the array that begins on line 1 does not end");
    assert_refused("x = 1 y = 2", "line 1: nothing may follow here but a comment");
    assert_refused("x 1", "line 1: `x` needs a `=` after it");
    assert_refused("x = \n", "line 1: a value is missing, or is none");
    assert_refused("[x\n", "line 1: `x` needs a `]` after it");
    assert_refused("\n\nx = \"\\q\"", "line 3: no such escape in a string (a literal one has single quotes)");
    assert_refused("x = '\x01'", "line 1: the control character U+0001 may not stand in a document");
    assert_refused("\nx = 1\ry = 2", "line 2: the control character U+000D may not stand in a document");
    assert_refused("x = '\xff'", "line 1: the text is not UTF-8");
    assert_refused("x = 1979-02-29", "line 1: there is no such date or time");
    assert_refused("x = 9223372036854775808", "line 1: the integer does not fit 64 bits");
}

static void nests_to_its_limit(void **state)
{
    AUTO_BUF struct buf text = BUF_INIT(4096);
    struct toml_doc *doc = NULL;
    struct brig_err err;
    (void)state;

    assert_int_equal(buf_append_str(&text, "a="), 0);
    for (unsigned i = 0; i < TOML_MAX_DEPTH; i++)
        assert_int_equal(buf_append_str(&text, "["), 0);
    for (unsigned i = 0; i < TOML_MAX_DEPTH; i++)
        assert_int_equal(buf_append_str(&text, "]"), 0);
    assert_int_equal(toml_read(text.data, text.len, &doc, &err), 0);
    toml_free(doc);
    text.data[2 + TOML_MAX_DEPTH] = '[';
    assert_int_equal(toml_read(text.data, text.len, &doc, &err), -EINVAL);
    assert_string_equal(err.message, "line 1: arrays and tables are more than 64 deep");

    buf_consume(&text, text.len);
    for (unsigned i = 0; i < TOML_MAX_DEPTH - 1; i++)
        assert_int_equal(buf_append_str(&text, "a."), 0);
    assert_int_equal(buf_append_str(&text, "a=1"), 0);
    assert_int_equal(toml_read(text.data, text.len, &doc, &err), 0);
    toml_free(doc);
    text.len = 0;
    for (unsigned i = 0; i < TOML_MAX_DEPTH; i++)
        assert_int_equal(buf_append_str(&text, "a."), 0);
    assert_int_equal(buf_append_str(&text, "a=1"), 0);
    assert_int_equal(toml_read(text.data, text.len, &doc, &err), -EINVAL);
    assert_string_equal(err.message, "line 1: a key has more than 64 parts");
}

/* A table of a hundred thousand keys would take minutes if each were compared with all before it. */
static void takes_linear_time(void **state)
{
    AUTO_BUF struct buf text = BUF_INIT(TOML_MAX_BYTES);
    struct toml_doc *doc = NULL;
    struct brig_err err;
    unsigned n = 0;
    (void)state;

    while (buf_printf(&text, "k%x=1\n", n) == 0)
        n++;
    assert_true(n > 100000);
    uint64_t start = clock_mono_ns();
    assert_int_equal(toml_read(text.data, text.len, &doc, &err), 0);
    assert_true(clock_mono_ns() - start < 10 * NS_PER_SEC);
    assert_int_equal(toml_root(doc)->count, n);
    toml_free(doc);
    char *large = calloc(1, TOML_MAX_BYTES + 1);
    assert_non_null(large);
    assert_int_equal(toml_read(large, TOML_MAX_BYTES + 1, &doc, &err), -EFBIG);
    free(large);
}

static void survives_every_allocation_failure(void **state)
{
    static const char text[] = "[a]\nb = ['x', {c = 1}]\n[[d.e]]\n'f' = 1979-05-27\n";
    size_t n = 0;
    (void)state;

    for (;; n++) {
        struct toml_doc *doc = NULL;
        struct brig_err err = {0};
        mem_fail_after(n);
        int r = toml_read(text, strlen(text), &doc, &err);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        if (r == 0) {
            toml_free(doc);
            assert_false(failed);
            break;
        }
        assert_int_equal(r, -ENOMEM);
        assert_int_equal(err.code, BRIG_E_NOMEM);
        assert_null(doc);
    }
    assert_true(n >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_values_with_lines),
        cmocka_unit_test(refusals_name_the_line),
        cmocka_unit_test(nests_to_its_limit),
        cmocka_unit_test(takes_linear_time),
        cmocka_unit_test(survives_every_allocation_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
