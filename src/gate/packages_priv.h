/* SPDX-License-Identifier: Apache-2.0 */
/* packages_priv.h: how configuration files of package managers are read: packages.c and apt_sources.c. */
#ifndef BRIG_GATE_PACKAGES_PRIV_H
#define BRIG_GATE_PACKAGES_PRIV_H

#include "base/base.h"

/* A line without its end; *at goes to the next. */
bool config_next_line(const char **at, const char **line, size_t *len);
/* "key = value": the length of the key, and where the value begins. 0: no such line. */
size_t config_split_key(const char *line, size_t len, char separator, size_t *ret_value);

typedef void config_read_fn(void *ctx, const char *text);
/* A regular file of at most 256 KiB; any other is not read. */
void config_read_file(int dir, const char *path, config_read_fn *read_text, void *ctx);
/* The files of /etc/apt/sources.list.d below root: *.list, and *.sources. */
void config_read_apt_dir(int root, config_read_fn *read_list, config_read_fn *read_sources, void *ctx);

#endif
