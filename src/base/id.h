/* SPDX-License-Identifier: Apache-2.0 */
/* id.h: names for runs and sandboxes, 122 and 128 bits from the kernel's generator. 0 or a negative errno. */
#ifndef BRIG_BASE_ID_H
#define BRIG_BASE_ID_H

#include "base/base.h"

#define ID_BYTES 16u
#define ID_RUN_SIZE 41u     /* "run-", a version 4 UUID, NUL */
#define ID_SANDBOX_SIZE 27u /* 26 of [a-z2-7], the first a letter, NUL: usable as a label of a host name */

int id_run(char out[ID_RUN_SIZE]) MUST_CHECK;
int id_sandbox(char out[ID_SANDBOX_SIZE]) MUST_CHECK;

/* The same from given bytes. */
void id_format_run(char out[ID_RUN_SIZE], const uint8_t bytes[ID_BYTES]);
void id_format_sandbox(char out[ID_SANDBOX_SIZE], const uint8_t bytes[ID_BYTES]);

#endif
