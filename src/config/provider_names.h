/* SPDX-License-Identifier: Apache-2.0 */
/*
 * provider_names.h: the names of all providers that there are words for, whether this version has them or not. A
 * request for one that cannot be used gets the reason, and not "there is no such one".
 */
#ifndef BRIG_CONFIG_PROVIDER_NAMES_H
#define BRIG_CONFIG_PROVIDER_NAMES_H

#include "base/base.h"

struct provider_known {
    const char *name;
    const char *alias; /* Another word for it, or NULL. */
    const char *what;  /* What holds a sandbox of it, for people. */
    const char *off;   /* Why it cannot be used before it is added. */
};

const struct provider_known *provider_known_at(size_t index); /* NULL at the end. */
bool provider_is_known(const char *word);
/* The name that this word stands for: `gvisor` is `runsc`. A word that is none is returned as it is. */
const char *provider_known_name(const char *word);

/* Does another kernel than the host's answer the programs of this provider, whether it can be used here or not? */
bool provider_has_own_kernel(const char *word);

/* Is this name of a provider one of `[providers] only`, which has spaces between them? Without any, all are. */
bool provider_is_among(const char *names, const char *name);

/* The count of this provider in a list of NAME=COUNT, with blanks between them. Returns false if it is not in it. */
bool provider_count(const char *list, const char *name, uint64_t *ret);

/*
 * The program behind a provider: where the configuration says, or where such programs usually are. Returns false if
 * there is none.
 */
bool provider_program(const char *configured, const char *name, char *out, size_t size);

#endif
