/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flags.c: parses the flags of all verbs. It is strict where getopt is lenient: a sandbox that was asked for with a
 * mistyped limit must not start with another one. It reports the first mistake and stops; the flag's apply() knows what
 * a value means.
 */
#include "cli/flags.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/suggest.h"

#define SHOWN 80 /* bytes of a value in a message */

int flag_refuse(struct brig_err *err, const char *given, const char *value, const char *rule)
{
    if (*value == '\0')
        return err_usage(err, "%s \"\": %s", given, rule);
    return err_usage(err, "%s %.*s%s: %s", given, SHOWN, value, strlen(value) > SHOWN ? "..." : "", rule);
}

static int refuse_word(struct brig_err *err, const char *word, const char *rule)
{
    return err_usage(err, "%.*s%s: %s", SHOWN, word, strlen(word) > SHOWN ? "..." : "", rule);
}

static const struct flag *find_name(const struct flag_table *table, const char *name, size_t len)
{
    for (size_t i = 0; i < table->n_flags; i++) {
        const char *have = table->flags[i].name;
        if (have && strncmp(have, name, len) == 0 && have[len] == '\0')
            return &table->flags[i];
    }
    return NULL;
}

static const struct flag *find_letter(const struct flag_table *table, char letter)
{
    for (size_t i = 0; i < table->n_flags; i++)
        if (letter != 0 && table->flags[i].letter == letter)
            return &table->flags[i];
    return NULL;
}

/* -m VALUE, or letters without a value in one word. */
static int parse_letters(const struct flag_table *table, char **argv, int *at, void *ctx, struct brig_err *err)
{
    char *word = argv[*at];
    const struct flag *flag = find_letter(table, word[1]);
    if (flag && flag->value) {
        if (word[2] != '\0')
            return refuse_word(err, word, "a flag and its value are two words");
        char *value = argv[*at + 1];
        if (!value || strcmp(value, "--") == 0)
            return err_usage(err, "%s: needs a value, %s", word, flag->value);
        *at += 1;
        return flag->apply(ctx, flag, word, value, err);
    }
    for (const char *p = word + 1; *p != '\0'; p++) {
        if (*p == 'h')
            return FLAGS_HELP;
        flag = find_letter(table, *p);
        if (!flag)
            return refuse_word(err, word, "unknown flag");
        if (flag->value)
            return refuse_word(err, word, "only flags without a value can be bundled");
        int r = flag->apply(ctx, flag, word, NULL, err);
        if (r < 0)
            return r;
    }
    return FLAGS_DONE;
}

static int unknown_name(const struct flag_table *table, const char *word, size_t len, struct brig_err *err)
{
    struct suggestion near = {0};

    for (size_t i = 0; i < table->n_flags; i++)
        if (table->flags[i].name)
            suggest_try(&near, word + 2, len - 2, table->flags[i].name);
    if (near.word)
        return err_usage(err, "%.*s: unknown flag; did you mean --%s?", (int)(len < 64 ? len : 64), word, near.word);
    return refuse_word(err, word, "unknown flag");
}

/* --name, --name VALUE, --name=VALUE. */
static int parse_name(const struct flag_table *table, char **argv, int *at, void *ctx, struct brig_err *err)
{
    char *word = argv[*at];
    char *equals = strchr(word, '=');
    size_t len = equals ? (size_t)(equals - word) : strlen(word);
    if (strcmp(word, "--help") == 0)
        return FLAGS_HELP;
    const struct flag *flag = find_name(table, word + 2, len - 2);
    if (!flag)
        return unknown_name(table, word, len, err);

    char given[64];
    snprintf(given, sizeof(given), "--%s", flag->name);
    if (!flag->value) {
        if (equals)
            return refuse_word(err, word, "this flag takes no value");
        return flag->apply(ctx, flag, given, NULL, err);
    }
    if (equals)
        return flag->apply(ctx, flag, given, equals + 1, err);
    char *value = argv[*at + 1];
    if (!value || strcmp(value, "--") == 0)
        return err_usage(err, "%s: needs a value, %s", word, flag->value);
    *at += 1;
    return flag->apply(ctx, flag, given, value, err);
}

/* Puts argv[from, end) before the words in argv[to, from); their order stays. */
static void move_before(char **argv, int to, int from, int end)
{
    for (; from < end; to++, from++) {
        char *moved = argv[from];
        memmove(&argv[to + 1], &argv[to], (size_t)(from - to) * sizeof(*argv));
        argv[to] = moved;
    }
}

int flags_parse(const struct flag_table *table, int argc, char **argv, void *ctx, int *ret_rest, struct brig_err *err)
{
    int first = 1, at = 1; /* argv[first, at) are words, all before them are flags */

    for (; at < argc; at++) {
        const char *word = argv[at];
        const int begin = at;
        const bool end = strcmp(word, "--") == 0;
        int r = FLAGS_DONE;
        if (word[0] != '-' || word[1] == '\0') {
            if (at - first + 1 == table->command)
                break;
            continue;
        }
        if (!end)
            r = word[1] == '-' ? parse_name(table, argv, &at, ctx, err) : parse_letters(table, argv, &at, ctx, err);
        if (r != FLAGS_DONE)
            return r;
        move_before(argv, first, begin, at + 1);
        first += at + 1 - begin;
        if (end)
            break;
    }
    *ret_rest = first;
    return FLAGS_DONE;
}

int flags_help(const struct flag_table *table)
{
    struct buf out = BUF_INIT(64 << 10);
    int r = buf_printf(&out, "usage: %s\n\n%s\n\n", table->usage, table->purpose);
    for (size_t i = 0; r == 0 && i < table->n_flags; i++) {
        const struct flag *flag = &table->flags[i];
        char left[64];
        if (!flag->help)
            continue;
        int n = flag->letter ? snprintf(left, sizeof(left), "-%c", flag->letter) : snprintf(left, sizeof(left), "  ");
        if (flag->name)
            n += snprintf(left + n, sizeof(left) - (size_t)n, "%s --%s", flag->letter ? "," : " ", flag->name);
        if (flag->value)
            snprintf(left + n, sizeof(left) - (size_t)n, " %s", flag->value);
        r = buf_printf(&out, "  %-31s %s\n", left, flag->help);
    }
    if (r == 0)
        r = buf_printf(&out, "  %-31s %s\n", "-h, --help", "this text");
    int status = r < 0 ? cli_error("help: %s", strerror(-r)) : cli_print(&out, 0);
    buf_done(&out);
    return status;
}

int flag_set_true(void *ctx, const struct flag *flag, const char *given UNUSED, char *value UNUSED,
                  struct brig_err *err UNUSED)
{
    *(bool *)((char *)ctx + flag->field) = true;
    return 0;
}

int flag_set_text(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err)
{
    if (*value == '\0')
        return flag_refuse(err, given, value, "the value is empty");
    *(const char **)(void *)((char *)ctx + flag->field) = value;
    return 0;
}

int flag_set_format(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err)
{
    int json = cli_parse_format(value);
    if (json < 0)
        return flag_refuse(err, given, value, "the format is text or json");
    *(bool *)((char *)ctx + flag->field) = json == 1;
    return 0;
}

int flag_set_count(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err)
{
    uint64_t n = 0;
    int r = parse_u64(value, &n);
    if (r == -ERANGE)
        return flag_refuse(err, given, value, "must be below 2^63");
    if (r < 0 || n == 0)
        return flag_refuse(err, given, value, "must be a whole number of 1 or more");
    *(uint64_t *)(void *)((char *)ctx + flag->field) = n;
    return 0;
}

int flag_set_size(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err)
{
    int r = brig_parse_size(value, (uint64_t *)(void *)((char *)ctx + flag->field));
    if (r == -ERANGE)
        return flag_refuse(err, given, value, "must be below 2^63 bytes");
    if (r < 0)
        return flag_refuse(err, given, value, "must be a size above zero: bytes, or a number with k, m, g or t");
    return 0;
}

bool flags_only(const struct flag_table *table, int argc, char **argv, void *ctx, const char *verb, int *ret_status)
{
    struct brig_err err;
    int rest = 1;
    int r = flags_parse(table, argc, argv, ctx, &rest, &err);

    if (r < 0)
        *ret_status = cli_error("%s", err.message);
    else if (r == FLAGS_HELP)
        *ret_status = flags_help(table);
    else if (rest < argc)
        *ret_status = cli_error("%.80s: %s takes no arguments", argv[rest], verb);
    else
        return true;
    return false;
}
