/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sudo_args.h: the command line of the program sudo of a sandbox (guest/init/sudo_ask.c), and which variables of its
 * caller the command gets. Options mean what they mean to the sudo that everybody knows; those that are about passwords
 * and prompts have no effect, because there is never a question. An option that we do not have is refused, not ignored.
 *
 * This file is compiled into brig-init: no C library but mem*() and strlen(), no allocation. Everything points into the
 * vector that it was read from.
 */
#ifndef BRIG_CODEC_SUDO_ARGS_H
#define BRIG_CODEC_SUDO_ARGS_H

#include "base/base.h"

#define SUDO_DIR "usr/local/bin"
#define SUDO_PLACE "/" SUDO_DIR "/sudo"
#define SUDO_NOT_ALLOWED "this sandbox does not allow it: make it with sudo (brig create --sudo)"
#define SUDO_SETTINGS_MAX 64u

enum sudo_does {
    SUDO_RUN,
    SUDO_CHECK, /* -v: may the caller at all? */
    SUDO_LIST,  /* -l: the same, and says so */
    SUDO_HELP,
    SUDO_VERSION,
    SUDO_NOTHING, /* -k or -K alone: there is no password to forget */
};

struct sudo_args {
    enum sudo_does does;
    const char *user;       /* Whose the command is; root unless -u says another. A number has no # any more. */
    const char *keep_names; /* --preserve-env=LIST, or NULL. */
    bool keep_env;          /* -E */
    bool shell, login;      /* -s, or with both -i */
    const char *set[SUDO_SETTINGS_MAX]; /* NAME=value words. */
    unsigned n_set;
    char *const *argv; /* The command; empty only with a shell, or when nothing is run. */
    unsigned n_argv;
    /* If it was refused: the rule, and the word that breaks it ("": none does). */
    const char *why, *word;
};

/* argv ends with NULL and has argc words, of which the first is not looked at. Returns 0, or -EINVAL with ret->why. */
int sudo_args_read(int argc, char *const *argv, struct sudo_args *ret) MUST_CHECK;
/* Does the command get this entry of the caller's environment? Those of args->set take the place of an entry. */
bool sudo_args_keeps(const struct sudo_args *args, const char *entry);
/* Is a variable set by a word of the command line? entry is NAME=anything. */
bool sudo_args_sets(const struct sudo_args *args, const char *entry);
/* With -s and -i the command is one line for the shell: must this byte have a backslash there? */
bool sudo_args_escapes(char byte);

#endif
