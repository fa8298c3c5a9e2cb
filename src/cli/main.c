/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c: finds the verb and hands over. Nothing is set up here that a verb does not need (no locale, no stdio),
 * because every `brig run` pays for it.
 */
#include <fcntl.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/listing.h"
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

static int sub_help(const struct cli_verb *verb)
{
    struct buf out = BUF_INIT(16 << 10);
    int r = buf_printf(&out, "usage: brig %s VERB [flags] [ARGS]\n\n", verb->name);
    for (size_t i = 0; r == 0 && i < verb->n_subs; i++)
        r = buf_printf(&out, "  %-10s %s\n", verb->subs[i].name, verb->subs[i].summary);
    if (r == 0)
        r = buf_printf(&out, "\n`brig %s VERB --help` lists the flags.\n", verb->name);
    int status = r < 0 ? cli_error("help: %s", strerror(-r)) : cli_print(&out, 0);
    buf_done(&out);
    return status;
}

static int run_verb(const struct cli_verb *verb, int argc, char **argv)
{
    const char *name = verb->name, *word = argc > 1 ? argv[1] : NULL;
    struct suggestion near = {0};

    if (verb->list)
        return listing_main(verb->list, argc, argv);
    if (verb->remove)
        return listing_remove(verb->remove, argc, argv);
    if (!verb->subs)
        return verb->main(argc, argv);
    if (!word && !verb->main)
        return cli_error("%s: no verb given; brig %s --help lists them", name, name);
    for (size_t i = 0; word && i < verb->n_subs; i++) {
        if (strcmp(word, verb->subs[i].name) == 0)
            return run_verb(&verb->subs[i], argc - 1, argv + 1);
        suggest_try(&near, word, strlen(word), verb->subs[i].name);
    }
    if (verb->main)
        return verb->main(argc, argv);
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return sub_help(verb);
    if (near.word)
        return cli_error("%s %s: no such verb; did you mean `brig %s %s`?", name, word, name, near.word);
    return cli_error("%s %s: no such verb; brig %s --help lists them", name, word, name);
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
            return run_verb(verbs[i], sub ? 3 : 2, argv);
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
            return run_verb(verbs[i], argc - 1, argv + 1);
    if (argc > 2 && strcmp(argv[1], "help") == 0)
        return help_of(argv[2], argc > 3 ? argv[3] : NULL);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
        return help(0);
    if (strcmp(argv[1], "--version") == 0)
        return cli_verb_version.main(1, argv + 1);
    return no_such_verb(argv[1]);
}
