/* SPDX-License-Identifier: Apache-2.0 */
/* secret_value.h: reads a value that nobody else may see. The caller wipes it. */
#ifndef BRIG_CLI_SECRET_VALUE_H
#define BRIG_CLI_SECRET_VALUE_H

#include <stdbool.h>
#include <stddef.h>

#define SECRET_VALUE_BYTES (64u << 10)

struct secret_value {
    size_t len;
    char data[SECRET_VALUE_BYTES + 2];
};
struct value_source { /* If both are NULL: stdin, or the terminal. */
    const char *file, *variable;
};
/* Prints what is wrong and returns false. */
bool secret_value_read(const struct value_source *from, const char *name, struct secret_value *out);

#endif
