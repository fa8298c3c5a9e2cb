/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.h: the parts of `brig doctor`.
 *
 *   doctor.c          the verb: layers and limits, as the library finds them
 *   doctor_tools.c    --tools: what tools need: directories, keys
 *   doctor_probe.c    --tools: what is found from inside a sandbox: interpreters, installers, package indexes
 */
#ifndef BRIG_CLI_VERBS_DOCTOR_H
#define BRIG_CLI_VERBS_DOCTOR_H

#include <brig.h>

#include "base/base.h"

#define TOOL_ROWS_MAX 16u

struct tool_rows {
    struct brig_doctor_row rows[TOOL_ROWS_MAX]; /* on means that it is fine. */
    size_t n;
};

void doctor_tools(struct tool_rows *out);
void doctor_probe(struct tool_rows *out);

/* Returns the next row, or the last one again if there are too many. */
struct brig_doctor_row *tool_row(struct tool_rows *rows, const char *name);
void tool_row_ok(struct brig_doctor_row *row, const char *format, ...) PRINTF_LIKE(2, 3);
void tool_row_warn(struct brig_doctor_row *row, const char *fix, const char *format, ...) PRINTF_LIKE(3, 4);

#endif
