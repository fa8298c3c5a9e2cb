/* SPDX-License-Identifier: Apache-2.0 */
/*
 * id.h: random names of runs (122 bits) and sandboxes (128 bits), from the kernel's generator. The functions return 0
 * or a negative errno.
 */
#ifndef BRIG_BASE_ID_H
#define BRIG_BASE_ID_H

#include "base/base.h"

#define ID_BYTES 16u
#define ID_RUN_SIZE 41u /* "run-", a version 4 UUID and a NUL. */
/* 26 characters of [a-z2-7], a letter first, and a NUL. It can be a label of a host name. */
#define ID_SANDBOX_SIZE 27u

int id_run(char out[ID_RUN_SIZE]) MUST_CHECK;
int id_sandbox(char out[ID_SANDBOX_SIZE]) MUST_CHECK;

/* Make the same names from given bytes. */
void id_format_run(char out[ID_RUN_SIZE], const uint8_t bytes[ID_BYTES]);
void id_format_sandbox(char out[ID_SANDBOX_SIZE], const uint8_t bytes[ID_BYTES]);

#endif
