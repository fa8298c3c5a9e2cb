/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_set.h: the dependency set of a local configuration alone: its pip requirements, and the requirements.txt of
 * its directory.
 */
#ifndef BRIG_DEPS_CONFIG_SET_H
#define BRIG_DEPS_CONFIG_SET_H

#include "base/buf.h"
#include "config/config.h"
#include "deps/sets.h"

#define CONFIG_TXT_MAX (64u << 10)

/* content is that of a configuration (config_content()), or NULL for the settings'. */
/* An absolute path, or NULL. */
const char *config_set_dir(const struct json_value *content, const struct config *settings);
/* The name of the venv. */
const char *config_set_venv(const struct json_value *content, const struct config *settings);
/* Reads requirements.txt of a directory, if it has one that lies in it. -EFBIG: it is longer than out takes. */
int config_set_file(const char *dir, struct buf *out) MUST_CHECK;
/* Builds it again (sets_get() with rebuild). Returns 1 if done follows, 0 if there is nothing to build. */
int config_set_rebuild(struct sets *sets, const struct config *settings, const struct caller *caller,
                       const struct json_value *content,
                       void (*done)(void *ctx, const struct set *set, const struct brig_err *err), void *ctx,
                       struct set_build **ret, struct brig_err *err) MUST_CHECK;

#endif
