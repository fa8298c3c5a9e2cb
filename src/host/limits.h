/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.h: defaults and rules of a run's values, checked on both sides of the spawner's socket. A broken rule
 * is one line that names the value and the rule.
 */
#ifndef BRIG_HOST_LIMITS_H
#define BRIG_HOST_LIMITS_H

#include <brig.h>

#include "base/base.h"

/*
 * Does this run want an image behind its store? Making and mounting one takes as long as everything else of a
 * short run, so only those get it who ask for something that memory cannot give.
 */
bool limits_want_image(const struct brig_limits *asked, bool writable_root);
/* Replaces zeros by defaults. image: the store is an image. A disk limit asked for stays as it is. */
void limits_fill(struct brig_limits *limits, bool image);
/* Rules that hold whatever the store is. */
int limits_check(const struct brig_limits *limits, struct brig_err *err) MUST_CHECK;
int limits_check_image(const struct brig_limits *limits, struct brig_err *err) MUST_CHECK;
/* A memory-backed store is charged to memory: it must fill before memory does. */
int limits_check_memory_store(const struct brig_limits *limits, struct brig_err *err) MUST_CHECK;

/*
 * what: "working directory", ... Absolute, no "..", no control bytes, not in /proc, /dev or /sys, at most 1023 bytes.
 */
int check_inside_path(const char *what, const char *path, struct brig_err *err) MUST_CHECK;
/* The same, and not one of the places the sandbox itself mounts. */
int check_mount_target(const char *what, const char *path, struct brig_err *err) MUST_CHECK;
/* [A-Za-z0-9][A-Za-z0-9_.-]{0,62} */
int check_name(const char *name, struct brig_err *err) MUST_CHECK;

#endif
