/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.h: what the verbs of the command share: the verb entry, the exit statuses, and how the command speaks.
 * A verb is one file: a purpose comment, its cli_verb entry, then the code.
 */
#ifndef BRIG_CLI_CLI_H
#define BRIG_CLI_CLI_H

#include <brig.h>

#include "base/base.h"
#include "base/buf.h"

#define CLI_FAILED 125  /* brig's own failure, or a refusal (DESIGN: exit contract) */
#define CLI_SIGPIPE 141 /* nobody reads what the program prints: as a shell reports a death by SIGPIPE */

struct cli_verb {
    const char *name;
    const char *summary;
    int (*main)(int argc, char **argv); /* argv[0] is the verb; returns the exit status */
};

extern const struct cli_verb cli_verb_run;
extern const struct cli_verb cli_verb_doctor;
extern const struct cli_verb cli_verb_bench;
extern const struct cli_verb cli_verb_serve;
extern const struct cli_verb cli_verb_config;
extern const struct cli_verb cli_verb_version;

/* One line on stderr, "brig: ...", by one write(2). Control bytes are shown escaped. Returns CLI_FAILED. */
int cli_error(const char *format, ...) PRINTF_LIKE(1, 2);

/* Writes all of it, waiting where the descriptor would block. 0 or a negative errno. */
int cli_write(int fd, const void *data, size_t len) MUST_CHECK;

/* Prints a buffer on stdout. Returns status, or CLI_FAILED (with a line) when it cannot be written. */
int cli_print(const struct buf *buf, int status);

/* A JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
int cli_json_string(struct buf *buf, const char *text) MUST_CHECK;

/* The value of -o: "text" is 0, "json" is 1, all else -EINVAL. */
int cli_parse_format(const char *text);

#endif
