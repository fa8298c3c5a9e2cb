/* SPDX-License-Identifier: Apache-2.0 */
/* secrets_priv.h: shared by secrets.c and secrets_expose.c. */
#ifndef BRIG_RECORDS_SECRETS_PRIV_H
#define BRIG_RECORDS_SECRETS_PRIV_H

#include "records/secrets.h"

/* The value itself: crypto_secret_free(). Nobody has asked who wants it; that is secrets_expose(). */
int secrets_reveal(const struct secrets *secrets, const char *org, const char *name, uint8_t **ret, size_t *ret_len,
                   struct brig_err *err) MUST_CHECK;

#endif
