/* SPDX-License-Identifier: Apache-2.0 */
/* errors.h: what an error looks like over HTTP: status, code and hint of each enum brig_code, in one table. */
#ifndef BRIG_HTTP_ERRORS_H
#define BRIG_HTTP_ERRORS_H

#include <brig.h>

unsigned error_status(int brig_code);               /* 500 for what is not in the table */
const char *error_code(int brig_code);              /* "not_found" */
const char *error_hint(const struct brig_err *err); /* a line that says what to do, or NULL */

#endif
