/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of Dockerfiles: instructions with their lines, words and flags, here-documents, exact refusals; and the
 * variables of a word. */
#include "unit.h"

#include "base/mem.h"
#include "codec/dockerfile/dockerfile.h"

static struct dockerfile *read_file(const char *text, const struct dockerfile_step **ret_steps, size_t *ret_n)
{
    struct dockerfile *file = NULL;
    struct brig_err err = {0};

    if (dockerfile_read(text, strlen(text), &file, &err) != 0)
        fail_msg("%s", err.message);
    *ret_steps = dockerfile_steps(file, ret_n);
    return file;
}

static void assert_refused(const char *text, const char *message)
{
    struct dockerfile *file = NULL;
    struct brig_err err = {0};

    assert_int_equal(dockerfile_read(text, strlen(text), &file, &err), -EINVAL);
    assert_int_equal(err.code, BRIG_E_USAGE);
    assert_string_equal(err.message, message);
    assert_null(file);
}

static void assert_words(const struct dockerfile_step *step, const char *const *words)
{
    size_t n = 0;

    for (; words[n]; n++) {
        assert_true(n < step->n_words);
        assert_string_equal(step->words[n], words[n]);
    }
    assert_int_equal(step->n_words, n);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void instructions_have_lines_and_words(void **state)
{
    const struct dockerfile_step *s;
    size_t n;
    struct dockerfile *file = read_file("\n# comment\nARG V=1\n"
                                        "from --platform=linux/arm64 debian:$V as Base\n"
                                        "RUN apt-get update \\\n"
                                        "   # a comment between\n"
                                        "\n"
                                        "  && apt-get install x  \n"
                                        "COPY a 'b c' d\\ e /dst/\n"
                                        "COPY [\"a b\", \"/x\"]\n"
                                        "CMD [\"top\", \"-b\"]\n"
                                        "ENTRYPOINT [not json\n"
                                        "HEALTHCHECK --interval=5s --retries=3 CMD curl -f x\n"
                                        "HEALTHCHECK none\r\n"
                                        "EXPOSE 80/tcp 443",
                                        &s, &n);

    (void)state;
    assert_int_equal(n, 10);
    assert_int_equal(s[0].op, DOCKERFILE_ARG);
    assert_int_equal(s[0].line, 3);
    assert_int_equal(s[1].line, 4);
    assert_words(&s[1], WORDS("debian:$V", "as", "Base"));
    assert_string_equal(s[1].flags[0].name, "platform");
    assert_string_equal(s[1].flags[0].value, "linux/arm64");
    assert_int_equal(s[2].line, 5);
    assert_words(&s[2], WORDS("apt-get update   && apt-get install x"));
    assert_false(s[2].exec_form);
    assert_int_equal(s[3].line, 9);
    assert_words(&s[3], WORDS("a", "'b c'", "d\\ e", "/dst/"));
    assert_true(s[4].exec_form);
    assert_words(&s[4], WORDS("a b", "/x"));
    assert_words(&s[5], WORDS("top", "-b"));
    assert_true(s[5].exec_form);
    assert_words(&s[6], WORDS("[not json"));
    assert_false(s[6].exec_form);
    assert_words(&s[7], WORDS("CMD", "curl -f x"));
    assert_int_equal(s[7].n_flags, 2);
    assert_string_equal(s[7].flags[1].name, "retries");
    assert_words(&s[8], WORDS("NONE"));
    assert_words(&s[9], WORDS("80/tcp", "443"));
    dockerfile_free(file);
}

static void pairs_of_env_label_and_arg(void **state)
{
    const struct dockerfile_step *s;
    size_t n;
    struct dockerfile *file = read_file("FROM x\n"
                                        "ENV A=1 B=\"two words\" C='=' D=\n"
                                        "ENV OLD the rest = of it  \n"
                                        "LABEL \"com.example/x\"=y\n"
                                        "ARG ONE TWO=2\n",
                                        &s, &n);

    (void)state;
    assert_int_equal(n, 5);
    assert_int_equal(s[1].n_pairs, 4);
    assert_string_equal(s[1].pairs[1].name, "B");
    assert_string_equal(s[1].pairs[1].value, "\"two words\"");
    assert_string_equal(s[1].pairs[2].value, "'='");
    assert_string_equal(s[1].pairs[3].value, "");
    assert_string_equal(s[2].pairs[0].name, "OLD");
    assert_string_equal(s[2].pairs[0].value, "the rest = of it");
    assert_string_equal(s[3].pairs[0].name, "\"com.example/x\"");
    assert_null(s[4].pairs[0].value);
    assert_string_equal(s[4].pairs[1].value, "2");
    dockerfile_free(file);
}

static void here_documents(void **state)
{
    const struct dockerfile_step *s;
    size_t n;
    struct dockerfile *file = read_file("FROM x\n"
                                        "RUN <<EOF\n"
                                        "# no comment\n"
                                        "echo \\\n"
                                        "EOF\n"
                                        "COPY <<-A <<'B' /dst/\n"
                                        "\t\tone\n"
                                        "\tA\n"
                                        "$two\n"
                                        "B\n"
                                        "RUN cat <<< no && x 3<<Z > /y\n"
                                        "Z\n"
                                        "ENV A=<<EOF\n",
                                        &s, &n);

    (void)state;
    assert_int_equal(n, 5);
    assert_int_equal(s[1].n_here, 1);
    assert_string_equal(s[1].here[0].text, "# no comment\necho \\\n");
    assert_true(s[1].here[0].expand);
    assert_words(&s[1], WORDS("<<EOF"));
    assert_int_equal(s[2].line, 6);
    assert_int_equal(s[2].n_here, 2);
    assert_string_equal(s[2].here[0].text, "one\n");
    assert_string_equal(s[2].here[1].name, "B");
    assert_string_equal(s[2].here[1].text, "$two\n");
    assert_false(s[2].here[1].expand);
    assert_int_equal(s[3].line, 11);
    assert_int_equal(s[3].n_here, 1);
    assert_string_equal(s[3].here[0].text, "");
    assert_int_equal(s[4].n_here, 0);
    dockerfile_free(file);
}

static void directives(void **state)
{
    const struct dockerfile_step *s;
    size_t n;
    struct dockerfile *file = read_file("\xef\xbb\xbf# syntax=docker/dockerfile:1\n# escape = `\nFROM x\n"
                                        "RUN a \\\nRUN b `\n c\n",
                                        &s, &n);

    (void)state;
    assert_int_equal(dockerfile_escape(file), '`');
    assert_int_equal(n, 3);
    assert_words(&s[1], WORDS("a \\"));
    assert_words(&s[2], WORDS("b  c"));
    dockerfile_free(file);
    file = read_file("# a comment\n# escape=`\nFROM x\nRUN a \\\n b\n", &s, &n);
    assert_int_equal(dockerfile_escape(file), '\\'); /* a comment before it, so it is one too */
    assert_int_equal(n, 2);
    dockerfile_free(file);
    file = read_file("FROM x\nRUN a \\\\\nRUN b\n", &s, &n); /* an escaped escape does not continue */
    assert_int_equal(n, 3);
    dockerfile_free(file);
}

static void refusals_name_the_line(void **state)
{
    (void)state;
    assert_refused("", "line 1: there is no FROM");
    assert_refused("ARG A\n\n", "line 2: there is no FROM");
    assert_refused("RUN x\n", "line 1: RUN: the first instruction must be FROM (only ARG may stand before it)");
    assert_refused("FROM x\n\nFOO y\n", "line 3: the instruction FOO is not supported");
    assert_refused("FROM x\nONBUILD RUN y\n", "line 2: the instruction ONBUILD is not supported");
    assert_refused("FROM x\nMAINTAINER me\n", "line 2: MAINTAINER is not supported: use LABEL");
    assert_refused("FROM\n", "line 1: FROM: expected IMAGE [AS NAME]");
    assert_refused("FROM a b\n", "line 1: FROM: expected IMAGE [AS NAME]");
    assert_refused("FROM a AS 1b\n", "line 1: FROM: the name 1b must be a letter and then letters, digits, - _ or .");
    assert_refused("FROM x\nRUN\n", "line 2: RUN: expected a command");
    assert_refused("FROM x\nRUN --security=insecure y\n", "line 2: RUN: the flag --security is not supported");
    assert_refused("FROM x\nCOPY a\n", "line 2: COPY: expected at least one source and a destination");
    assert_refused("FROM x\nCOPY --=b a /\n", "line 2: COPY: the flag -- is not supported");
    assert_refused("FROM x\nCMD [1]\n", "line 2: CMD: the array must have strings only");
    assert_refused("FROM x\nSHELL /bin/sh\n", "line 2: SHELL: expected a JSON array of strings that is not empty");
    assert_refused("FROM x\nSHELL []\n", "line 2: SHELL: expected a JSON array of strings that is not empty");
    assert_refused("FROM x\nENV\n", "line 2: ENV: expected NAME=VALUE");
    assert_refused("FROM x\nENV A\n", "line 2: ENV A: expected a value");
    assert_refused("FROM x\nENV A=1 B\n", "line 2: ENV B: expected NAME=VALUE");
    assert_refused("FROM x\nENV =1\n", "line 2: ENV: =1 has no name");
    assert_refused("FROM x\nARG\n", "line 2: ARG: expected NAME or NAME=VALUE");
    assert_refused("FROM x\nHEALTHCHECK CMD\n", "line 2: HEALTHCHECK: expected NONE, or CMD and a command");
    assert_refused("FROM x\nHEALTHCHECK curl\n", "line 2: HEALTHCHECK: expected NONE, or CMD and a command");
    assert_refused("FROM x\nRUN <<EOF\nx\n", "line 2: the here-document EOF has no end");
    assert_refused("FROM x\nRUN <<$(x)\n",
                   "line 2: RUN: the name of a here-document must be letters, digits, _ - or .");
    assert_refused("# escape=x\nFROM x\n", "line 1: escape: must be \\ or `, not x");
    assert_refused("# escape=`\n# escape=`\nFROM x\n", "line 2: escape: it was set before");
}

static void a_file_has_bounds(void **state)
{
    AUTO_BUF struct buf text = BUF_INIT(2u << 20);
    struct dockerfile *file = NULL;
    struct brig_err err = {0};

    (void)state;
    assert_int_equal(buf_append_str(&text, "FROM x\n"), 0);
    for (unsigned i = 0; i < DOCKERFILE_MAX_STEPS; i++)
        assert_int_equal(buf_append_str(&text, "RUN y\n"), 0);
    assert_int_equal(dockerfile_read(text.data, text.len, &file, &err), -EFBIG);
    assert_string_equal(err.message, "line 1001: more than 1000 instructions");
    text.len = 0;
    assert_int_equal(buf_append_str(&text, "FROM x\nEXPOSE"), 0);
    for (unsigned i = 0; i <= DOCKERFILE_MAX_WORDS; i++)
        assert_int_equal(buf_append_str(&text, " 1"), 0);
    assert_int_equal(dockerfile_read(text.data, text.len, &file, &err), -EFBIG);
    assert_string_equal(err.message, "line 2: EXPOSE: too long");
    assert_int_equal(buf_reserve(&text, DOCKERFILE_MAX_BYTES), 0);
    memset(text.data + text.len, ' ', DOCKERFILE_MAX_BYTES);
    buf_commit(&text, DOCKERFILE_MAX_BYTES);
    assert_int_equal(dockerfile_read(text.data, text.len, &file, &err), -EFBIG);
    assert_string_equal(err.message, "line 1: the file has more than 1048576 bytes");
}

/* ---- variables -------------------------------------------------------------------------------------------------- */

static const char *look_up(void *ctx, const char *name, size_t len)
{
    (void)ctx;
    if (len == 1 && *name == 'A')
        return "one";
    if (len == 5 && strncmp(name, "EMPTY", 5) == 0)
        return "";
    if (len == 6 && strncmp(name, "QUOTED", 6) == 0)
        return "'\"$A\\";
    return NULL;
}

static void expands(const char *text, const char *wanted, char escape, bool keep_quotes)
{
    const struct dockerfile_scope scope = {.lookup = look_up, .escape = escape, .keep_quotes = keep_quotes};
    AUTO_BUF struct buf out = BUF_INIT(4096);
    struct brig_err err = {0};

    if (dockerfile_expand(text, &scope, &out, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    assert_string_equal(out.data ? out.data : "", wanted);
}

static void variables_are_replaced_as_by_a_shell(void **state)
{
    static const char *const cases[][2] = {
        {"$A", "one"},
        {"x${A}y", "xoney"},
        {"$AB", ""},
        {"$A-B$", "one-B$"},
        {"${A:-two}${NO:-two}${EMPTY:-two}${EMPTY-two}", "onetwotwo"},
        {"${A:+x}${NO:+x}${EMPTY:+x}${EMPTY+x}", "xx"},
        {"${NO:-${EMPTY:-${A}}}", "one"},
        {"${NO:-'a }b'}", "a }b"},
        {"${A:?must be set}", "one"},
        {"${A:-${NO:?unused}}", "one"},
        {"<${NO:+${NO:?unused}$A}>", "<>"},
        {"'$A'", "$A"},
        {"\"$A 'x'\"", "one 'x'"},
        {"\"\\$A\\\"\\x\"", "$A\"\\x"},
        {"\\$A\\\\\\x", "$A\\x"},
        {"a\\", "a"},
        {"$QUOTED", "'\"$A\\"}, /* a value is not read again */
        {"$1$@", ""},
        {"", ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        expands(cases[i][0], cases[i][1], '\\', false);
    expands("`$A\\$A", "$A\\one", '`', false);
    expands("'$A' \"\\$A\" \\n \\\\", "'one' \"$A\" \\n \\", '\\', true);
}

static void a_bad_variable_is_named(void **state)
{
    static const char *const cases[][2] = {
        {"${A", "${A: the } is missing"},
        {"${}", "${}: expected the name of a variable"},
        {"${A#x}", "${A#x}: expected }, or one of :- :+ :? - + ? behind the name"},
        {"${A:-x", "the } behind x is missing"},
        {"${NO:?must be set}", "NO: must be set"},
        {"${EMPTY:?}", "EMPTY: it is not set"},
        {"'abc", "the ' that ends 'abc is missing"},
        {"\"abc", "the \" that ends \"abc is missing"},
    };
    const struct dockerfile_scope scope = {.lookup = look_up, .escape = '\\'};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO_BUF struct buf out = BUF_INIT(4096);
        struct brig_err err = {0};

        assert_int_equal(dockerfile_expand(cases[i][0], &scope, &out, &err), -EINVAL);
        assert_string_equal(err.message, cases[i][1]);
    }
    AUTO_BUF struct buf deep = BUF_INIT(4096), out = BUF_INIT(4096), small = BUF_INIT(2);
    struct brig_err err = {0};
    for (int i = 0; i < 40; i++)
        assert_int_equal(buf_append_str(&deep, "${NO:-"), 0);
    assert_int_equal(dockerfile_expand(deep.data, &scope, &out, &err), -EINVAL);
    assert_string_equal(err.message, "variables are nested more than 32 deep");
    assert_int_equal(dockerfile_expand("$A", &scope, &small, &err), -EFBIG);
    assert_string_equal(err.message, "the text is too long");
}

static void memory_may_run_out_anywhere(void **state)
{
    static const char text[] =
        "FROM --platform=x a AS b\nENV A=1\nENV B 2\nCOPY <<E [\"x\"] /\nt\nE\nCMD [\"a\", \"b\"]\n";

    (void)state;
    for (size_t n = 0;; n++) {
        struct dockerfile *file = NULL;
        struct brig_err err = {0};

        mem_fail_after(n);
        int r = dockerfile_read(text, sizeof text - 1, &file, &err);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        dockerfile_free(file);
        if (!failed) {
            assert_int_equal(r, 0);
            break;
        }
        assert_true(r < 0);
        assert_true(err.code == BRIG_E_NOMEM || err.code == BRIG_E_TOO_LARGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instructions_have_lines_and_words),
        cmocka_unit_test(pairs_of_env_label_and_arg),
        cmocka_unit_test(here_documents),
        cmocka_unit_test(directives),
        cmocka_unit_test(refusals_name_the_line),
        cmocka_unit_test(a_file_has_bounds),
        cmocka_unit_test(variables_are_replaced_as_by_a_shell),
        cmocka_unit_test(a_bad_variable_is_named),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
