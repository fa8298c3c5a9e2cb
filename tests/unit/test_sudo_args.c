/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of the sudo of a sandbox, and what it keeps of an environment. */
#include "unit.h"

#include <errno.h>

#include "base/str.h"
#include "codec/sudo_args.h"

#define WORDS_MAX 100

/* Reads one line, in which blanks divide words. */
static int read_line(const char *line, struct sudo_args *ret)
{
    static char text[512];
    static char *argv[WORDS_MAX];
    int argc = 0;

    assert_true(str_copy(text, sizeof text, line) >= 0);
    for (char *at = text; *at;) {
        assert_true(argc < WORDS_MAX - 1);
        argv[argc++] = at;
        at += strcspn(at, " ");
        if (*at)
            *at++ = '\0';
    }
    argv[argc] = NULL;
    return sudo_args_read(argc, argv, ret);
}

static void good(const char *line, struct sudo_args *ret)
{
    if (read_line(line, ret) != 0)
        fail_msg("%s: %s %s", line, ret->why, ret->word);
}

static void refused(const char *line, const char *why)
{
    struct sudo_args args;

    assert_int_equal(read_line(line, &args), -EINVAL);
    assert_string_equal(args.why, why);
}

static void commands(void **state)
{
    (void)state;
    struct sudo_args args;

    good("sudo id -u", &args);
    assert_int_equal(args.does, SUDO_RUN);
    assert_string_equal(args.user, "root");
    assert_int_equal(args.n_argv, 2);
    assert_string_equal(args.argv[0], "id");
    assert_string_equal(args.argv[1], "-u"); /* options of the command stay with it */
    assert_null(args.argv[2]);
    assert_false(args.keep_env || args.shell || args.login || args.keep_names || args.n_set);

    good("sudo -nEH -S -A -B -p prompt -uapp A=1 id", &args);
    assert_string_equal(args.user, "app");
    assert_true(args.keep_env);
    assert_int_equal(args.n_argv, 1);
    assert_int_equal(args.n_set, 1);
    assert_string_equal(args.set[0], "A=1");

    good("sudo A=1 -u #33 B=2 id C=3", &args); /* in any order up to the command */
    assert_string_equal(args.user, "33");
    assert_int_equal(args.n_set, 2);
    assert_string_equal(args.set[1], "B=2");
    assert_int_equal(args.n_argv, 2);

    good("sudo -- A=1 id", &args); /* what follows -- is the command */
    assert_int_equal(args.n_set, 0);
    assert_string_equal(args.argv[0], "A=1");
    good("sudo - x", &args);
    assert_string_equal(args.argv[0], "-");
    good("sudo =x", &args);
    assert_string_equal(args.argv[0], "=x");
    good("sudo --user=app --preserve-env=A,B --non-interactive --prompt x --set-home id", &args);
    assert_string_equal(args.user, "app");
    assert_string_equal(args.keep_names, "A,B");
    assert_false(args.keep_env);
    good("sudo --user app --preserve-env id", &args);
    assert_string_equal(args.user, "app");
    assert_true(args.keep_env && args.n_argv == 1);
}

static void without_a_command(void **state)
{
    (void)state;
    struct sudo_args args;
    static const struct {
        const char *line;
        enum sudo_does does;
    } rows[] = {{"sudo -v", SUDO_CHECK},    {"sudo -nv", SUDO_CHECK},    {"sudo -l", SUDO_LIST},
                {"sudo -k", SUDO_NOTHING},  {"sudo -K", SUDO_NOTHING},   {"sudo -V", SUDO_VERSION},
                {"sudo -h", SUDO_HELP},     {"sudo --help", SUDO_HELP},  {"sudo --validate", SUDO_CHECK},
                {"sudo -k id", SUDO_RUN},   {"sudo -s", SUDO_RUN},       {"sudo -i", SUDO_RUN},
                {"sudo -s id x", SUDO_RUN}, {"sudo -i -u app", SUDO_RUN}};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        good(rows[i].line, &args);
        assert_int_equal(args.does, rows[i].does);
    }
    good("sudo -i", &args);
    assert_true(args.shell && args.login && args.n_argv == 0);
    good("sudo -s", &args);
    assert_true(args.shell && !args.login);
}

static void mistakes(void **state)
{
    (void)state;
    struct sudo_args args;
    char line[512] = "sudo";

    refused("sudo", "there is no command");
    refused("sudo --", "there is no command");
    refused("sudo A=1", "there is no command");
    refused("sudo -u", "it needs a value:");
    refused("sudo --user", "it needs a value:");
    refused("sudo -u # id", "-u: names a user");
    refused("sudo --user= id", "-u: names a user");
    refused("sudo -x id", "there is no such option:");
    refused("sudo -nb id", "there is no such option:");
    refused("sudo -e /etc/passwd", "there is no such option:");
    refused("sudo --users=x id", "there is no such option:");
    refused("sudo --use=x id", "there is no such option:");
    refused("sudo --login=x id", "it has no value:");
    for (unsigned i = 0; i <= SUDO_SETTINGS_MAX; i++)
        memcpy(line + 4 + 4 * i, " A=1", 5);
    refused(line, "too many variables:");
    memcpy(line + 4 + 4 * SUDO_SETTINGS_MAX, " id", 4);
    good(line, &args);
    assert_int_equal(args.n_set, SUDO_SETTINGS_MAX);
}

static void environment(void **state)
{
    (void)state;
    struct sudo_args args;
    static const char *const kept[] = {"TERM=x", "LANG=C", "LC_ALL=C", "TZ=", "https_proxy=p", "SSL_CERT_FILE=/x"};
    static const char *const lost[] = {"A=1", "LD_PRELOAD=x", "BASH_ENV=x", "TERMX=1", "PYTHONPATH=x", "LANGUAGE=x"};
    static const char *const others[] = {"HOME=/x",    "USER=x",  "LOGNAME=x", "PATH=/x",
                                         "SUDO_UID=0", "no-name", "=x",        ""};

    good("sudo id", &args);
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        assert_true(sudo_args_keeps(&args, kept[i]));
    for (size_t i = 0; i < ARRAY_SIZE(lost); i++)
        assert_false(sudo_args_keeps(&args, lost[i]));
    good("sudo -E id", &args);
    for (size_t i = 0; i < ARRAY_SIZE(lost); i++)
        assert_true(sudo_args_keeps(&args, lost[i]));
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        assert_false(sudo_args_keeps(&args, others[i]));
    good("sudo --preserve-env=A,HOME,,PATH,SUDO_UID B=2 id", &args);
    assert_true(sudo_args_keeps(&args, "A=1") && sudo_args_keeps(&args, "HOME=/x"));
    assert_false(sudo_args_keeps(&args, "AA=1") || sudo_args_keeps(&args, "PATH=/x") ||
                 sudo_args_keeps(&args, "SUDO_UID=0"));
    /* What the command line sets takes the place of what the caller has. */
    good("sudo -E TERM=y AB=1 id", &args);
    assert_false(sudo_args_keeps(&args, "TERM=x") || sudo_args_keeps(&args, "AB=x"));
    assert_true(sudo_args_keeps(&args, "A=x") && sudo_args_keeps(&args, "ABC=x"));
    assert_true(sudo_args_sets(&args, "TERM=") && !sudo_args_sets(&args, "PATH=/bin"));
}

static void escapes(void **state)
{
    (void)state;
    for (const char *at = "azAZ09_-$"; *at; at++)
        assert_false(sudo_args_escapes(*at));
    for (const char *at = " \t;|&<>'\"\\()*?[]#~=%!{}/.\x80\xff"; *at; at++)
        assert_true(sudo_args_escapes(*at));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands),    cmocka_unit_test(without_a_command), cmocka_unit_test(mistakes),
        cmocka_unit_test(environment), cmocka_unit_test(escapes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
