/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handed.h: the files of a configuration, which the supervisor opens and gives before the configuration itself
 * (supervisor/hand.c): the log file, the TLS certificate and its key, or the reason why one of them is not there.
 */
#ifndef BRIG_BRIGD_HANDED_H
#define BRIG_BRIGD_HANDED_H

#include <brig.h>

#include "config/config.h"

struct server;

struct handed {
    int log; /* -1 */
    char *cert, *key;
    size_t cert_len, key_len;
    char problem[512];
};
#define HANDED_INIT ((struct handed){.log = -1})

/* Returns 1 if it was one of them, 0 if not, or a negative errno. */
int handed_take(struct handed *handed, const char *name, int *fd) MUST_CHECK;
int handed_check(const struct handed *handed, struct brig_err *err) MUST_CHECK; /* Returns the reason as an error. */
/* The log is written there from now on. */
void handed_log(struct handed *handed, const struct config *config);
int handed_tls(const struct handed *handed, const struct config *config, struct server *server,
               struct brig_err *err) MUST_CHECK;
void handed_done(struct handed *handed); /* Wipes it and leaves it empty. */

#endif
