/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.h: what the verbs of the command share: the verb's entry, the exit statuses, and printing. A verb is one file: a
 * purpose comment, the code, and at the end its cli_verb entry.
 */
#ifndef BRIG_CLI_CLI_H
#define BRIG_CLI_CLI_H

#include <brig.h>

#include "base/base.h"
#include "base/buf.h"

#define CLI_FAILED 125  /* brig's own failure, or a refusal */
#define CLI_SIGPIPE 141 /* Nobody reads what the program prints; a shell reports a death by SIGPIPE so. */

struct listing;
struct removal;

/* A verb, or a verb of a verb, such as `ls` of `brig key ls`. It has one of main, list, remove and
 * subs; with main and subs, main is for a word that is none of them. */
struct cli_verb {
    const char *name, *summary;
    int (*main)(int argc, char **argv); /* argv[0] is the verb. Returns the exit status. */
    const struct listing *list;         /* It shows this list. */
    const struct removal *remove;       /* It deletes what its words name. */
    const struct cli_verb *subs;
    size_t n_subs;
};
#define CLI_SUBS(rows) .subs = (rows), .n_subs = ARRAY_SIZE(rows)

extern const struct cli_verb cli_verb_run;
extern const struct cli_verb cli_verb_doctor;
extern const struct cli_verb cli_verb_bench;
extern const struct cli_verb cli_verb_serve;
extern const struct cli_verb cli_verb_config;
extern const struct cli_verb cli_verb_version;

/* The verbs of the service, in the order of the help. */
#define CLI_SERVICE_VERBS(x)                                                                                         \
    x(create) x(ps) x(inspect) x(exec) x(shell) x(cp) x(ls) x(logs) x(service) x(stats) x(top) x(pause) x(resume)    \
        x(stop) x(rm) x(snapshot) x(restore) x(fork) x(commit) x(volume) x(prune) x(port) x(events) x(tool) x(agent) \
            x(env) x(approve) x(deny) x(pool) x(provider) x(receipt) x(key) x(org) x(policy) x(secret) x(template)   \
                x(audit) x(completion)
#define CLI_DECLARE(verb) extern const struct cli_verb cli_verb_##verb;
CLI_SERVICE_VERBS(CLI_DECLARE)
const struct cli_verb *cli_verb_at(size_t index); /* Lists all verbs; NULL at the end. */
int cli_config_reload(int argc, char **argv);     /* argv[0] is "reload" */

/* Prints one line on stderr, "brig: ...", with one write(2). Control bytes are escaped. Returns CLI_FAILED. */
int cli_error(const char *format, ...) PRINTF_LIKE(1, 2);

/* Writes all of it and waits where the descriptor would block. Returns 0 or a negative errno. */
int cli_write(int fd, const void *data, size_t len) MUST_CHECK;

/* Prints a buffer on stdout. Returns status, or CLI_FAILED (with a line) if it cannot be written. */
int cli_print(const struct buf *buf, int status);

/* Parses the value of -o: "text" is 0, "json" is 1, everything else -EINVAL. */
int cli_parse_format(const char *text);

#endif
