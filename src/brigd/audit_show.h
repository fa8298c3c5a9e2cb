/* SPDX-License-Identifier: Apache-2.0 */
/* audit_show.h: what the files of `brig audit` share. */
#ifndef BRIG_BRIGD_AUDIT_SHOW_H
#define BRIG_BRIGD_AUDIT_SHOW_H

#include "base/base.h"
#include "brigd/audit_verb.h"

#define AUDIT_SHOW_MAX 100000u /* The most lines of -n. */

enum { EXIT_OK = 0, EXIT_WRONG = 1, EXIT_TROUBLE = 2 };

struct audit_verb_options {
    const char *dir, *key, *head, *action, *org, *since, *from, *to, *format;
    uint64_t lines, known_cut;
    bool has_lines, follow, json;
};

int audit_trouble(const char *format, ...) PRINTF_LIKE(1, 2); /* Prints one line on stderr and returns EXIT_TROUBLE. */

/* These return exit statuses. */
int audit_show(const struct audit_verb_options *options, int dir_fd);
int audit_tail(const struct audit_verb_options *options, int dir_fd);
int audit_export(const struct audit_verb_options *options, int dir_fd);

#endif
