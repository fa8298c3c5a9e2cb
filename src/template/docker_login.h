/* SPDX-License-Identifier: Apache-2.0 */
/*
 * docker_login.h: reads logins from Docker's config.json: {"auths": {"HOST": {"auth": base64 of USER:PASSWORD,
 * "identitytoken": TOKEN}}}. Programs that keep logins (credHelpers, credsStore) are not run: brigd executes nothing.
 */
#ifndef BRIG_TEMPLATE_DOCKER_LOGIN_H
#define BRIG_TEMPLATE_DOCKER_LOGIN_H

#include "template/distribution.h"

#define DOCKER_CONFIG_BYTES (1u << 20)

struct docker_login {
    struct dist_login login;
    char *memory; /* private; wiping memory that has the texts */
    size_t size;
};

/*
 * Finds the login for a host as a reference has it ("docker.io" also under Docker's https://index.docker.io/v1/).
 * Returns 1 and the login, or 0 if the file has none for this host. A login that only a helper program has is
 * BRIG_E_UNSUPPORTED; a file that is none of Docker's is BRIG_E_INVALID. No message has a part of a login.
 */
int docker_login_find(const char *text, size_t len, const char *host, struct docker_login *ret,
                      struct brig_err *err) MUST_CHECK;
void docker_login_done(struct docker_login *login);

#endif
