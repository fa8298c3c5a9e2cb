/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.h: the defaults and rules of a run's values, checked on both sides of the spawner's socket. A broken rule
 * gives one line that names the value and the rule.
 */
#ifndef BRIG_HOST_LIMITS_H
#define BRIG_HOST_LIMITS_H

#include <brig.h>

#include "base/base.h"

/*
 * Does this run need an image behind its store? Making and mounting one takes as long as the rest of a short run, so
 * only a run that asks for something that memory cannot give gets one.
 */
bool limits_want_image(const struct brig_limits *asked, bool writable_root);
/* Replaces zeros by defaults. image: the store is an image. A disk limit that was asked for stays as it is. */
void limits_fill(struct brig_limits *limits, bool image);
/* Checks the rules that hold for every store. */
int limits_check(const struct brig_limits *limits, struct brig_err *err) MUST_CHECK;
int limits_check_image(const struct brig_limits *limits, struct brig_err *err) MUST_CHECK;
/* A store in memory counts as memory, so it must fill before memory does. */
int limits_check_memory_store(const struct brig_limits *limits, struct brig_err *err) MUST_CHECK;

/*
 * Checks a path inside; what is "working directory" and the like. It must be absolute, without ".." and control bytes,
 * not in /proc, /dev or /sys, and at most 1023 bytes long.
 */
int check_inside_path(const char *what, const char *path, struct brig_err *err) MUST_CHECK;
/* The same; it must also be none of the places that the sandbox itself mounts. */
int check_mount_target(const char *what, const char *path, struct brig_err *err) MUST_CHECK;
/* A name is [A-Za-z0-9][A-Za-z0-9_.-]{0,62}. */
int check_name(const char *name, struct brig_err *err) MUST_CHECK;

#endif
