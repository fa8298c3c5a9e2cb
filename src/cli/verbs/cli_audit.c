/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli_audit.c: `brig audit tail|show|verify|export`: becomes `brigd audit ...`, which has the hashes and signatures;
 * the command line links no crypto library. It works on the log's files, so no daemon need be there.
 */
#include <limits.h>
#include <string.h>

#include "cli/cli.h"
#include "client/client.h"

static int audit_main(int argc, char **argv)
{
    char directory[PATH_MAX], path[PATH_MAX + 16], name[] = "brigd";
    struct brig_err err = {0};

    if (client_find_libexec(directory, sizeof(directory), &err) < 0)
        return cli_error("%s", err.message);
    snprintf(path, sizeof(path), "%s/brigd", directory);
    char **words = calloc((size_t)argc + 2, sizeof(*words));
    if (!words)
        return cli_error("out of memory");
    words[0] = name;
    for (int i = 0; i < argc; i++)
        words[1 + i] = argv[i];
    execv(path, words);
    int why = errno;
    free(words);
    return cli_error("%s: %s", path, strerror(why));
}

const struct cli_verb cli_verb_audit = {"audit", "the audit log: tail, show, verify, export", .main = audit_main};
