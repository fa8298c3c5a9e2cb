/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c: finds the verb and hands over. Nothing is set up here that a verb does not need (no locale, no stdio),
 * because every `brig run` pays for it.
 */
#include <fcntl.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/suggest.h"

#define ENTRY(verb) &cli_verb_##verb,

static const struct cli_verb *const verbs[] = {
    &cli_verb_run,     CLI_SERVICE_VERBS(ENTRY) & cli_verb_config, &cli_verb_serve, &cli_verb_doctor, &cli_verb_bench,
    &cli_verb_version,
};

const struct cli_verb *cli_verb_at(size_t index)
{
    return index < ARRAY_SIZE(verbs) ? verbs[index] : NULL;
}

static int help(int status)
{
    struct buf out = BUF_INIT(16 << 10);
    int r = buf_append_str(&out, "usage: brig VERB [flags] [--] [ARGS]\n\n"
                                 "Runs programs in sandboxes, and says truthfully what holds them.\n\n");
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(verbs); i++)
        r = buf_printf(&out, "  %-10s %s\n", verbs[i]->name, verbs[i]->summary);
    if (r == 0)
        r = buf_append_str(&out, "\n`brig VERB --help` lists the flags of a verb; the manual is brig(1).\n");
    if (r < 0)
        status = cli_error("help: %s", strerror(-r));
    else
        status = cli_print(&out, status);
    buf_done(&out);
    return status;
}

static int sub_help(const char *verb, const struct cli_sub *subs, size_t n)
{
    struct buf out = BUF_INIT(16 << 10);
    int r = buf_printf(&out, "usage: brig %s VERB [flags] [ARGS]\n\n", verb);
    for (size_t i = 0; r == 0 && i < n; i++)
        r = buf_printf(&out, "  %-10s %s\n", subs[i].name, subs[i].summary);
    if (r == 0)
        r = buf_printf(&out, "\n`brig %s VERB --help` lists the flags.\n", verb);
    int status = r < 0 ? cli_error("help: %s", strerror(-r)) : cli_print(&out, 0);
    buf_done(&out);
    return status;
}

int cli_sub_main(const char *verb, const struct cli_sub *subs, size_t n, int argc, char **argv)
{
    if (argc < 2)
        return cli_error("%s: no verb given; brig %s --help lists them", verb, verb);
    for (size_t i = 0; i < n; i++)
        if (strcmp(argv[1], subs[i].name) == 0)
            return subs[i].main(argc - 1, argv + 1);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return sub_help(verb, subs, n);
    struct suggestion near = {0};
    for (size_t i = 0; i < n; i++)
        suggest_try(&near, argv[1], strlen(argv[1]), subs[i].name);
    if (near.word)
        return cli_error("%s %s: no such verb; did you mean `brig %s %s`?", verb, argv[1], verb, near.word);
    return cli_error("%s %s: no such verb; brig %s --help lists them", verb, argv[1], verb);
}

/* A descriptor 0, 1 or 2 that is closed would become the next thing that we open, and the program's output
 * would be written into it. */
static int open_standard_fds(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            return -1;
    return 0;
}

static int no_such_verb(const char *word)
{
    struct suggestion near = {0};

    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
        suggest_try(&near, word, strlen(word), verbs[i]->name);
    if (near.word)
        return cli_error("%s: no such verb; did you mean `brig %s`?", word, near.word);
    return cli_error("%s: no such verb; brig --help lists them", word);
}

/* brig help VERB is brig VERB --help, and brig help VERB SUB is brig VERB SUB --help. */
static int help_of(char *word, char *sub)
{
    char flag[] = "--help", *argv[] = {word, sub ? sub : flag, sub ? flag : NULL, NULL};

    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
        if (strcmp(word, verbs[i]->name) == 0)
            return verbs[i]->main(sub ? 3 : 2, argv);
    return no_such_verb(word);
}

int main(int argc, char **argv)
{
    if (open_standard_fds() < 0)
        return CLI_FAILED;
    if (argc < 2)
        return cli_error("no verb given; brig --help lists them");
    if (argc > 2 && strcmp(argv[1], "config") == 0 && strcmp(argv[2], "reload") == 0)
        return cli_config_reload(argc - 2, argv + 2);
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
        if (strcmp(argv[1], verbs[i]->name) == 0)
            return verbs[i]->main(argc - 1, argv + 1);
    if (argc > 2 && strcmp(argv[1], "help") == 0)
        return help_of(argv[2], argc > 3 ? argv[3] : NULL);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
        return help(0);
    if (strcmp(argv[1], "--version") == 0)
        return cli_verb_version.main(1, argv + 1);
    return no_such_verb(argv[1]);
}
