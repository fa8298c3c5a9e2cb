/* SPDX-License-Identifier: Apache-2.0 */
/*
 * docker_login.h: reads the logins of Docker's config.json: {"auths": {"HOST": {"auth": base64 of USER:PASSWORD,
 * "identitytoken": TOKEN}}}. Programs that keep logins (credHelpers, credsStore) are not run.
 */
#ifndef BRIG_CODEC_DOCKER_LOGIN_H
#define BRIG_CODEC_DOCKER_LOGIN_H

#include <brig.h>

#include "base/base.h"

#define DOCKER_CONFIG_BYTES (1u << 20)
#define DOCKER_AUTH_MAX 16384u /* USER:PASSWORD, or a token */
#define DOCKER_HOST_MAX 256u
/* Docker's own word for a user whose password is an OAuth2 refresh token. */
#define DOCKER_TOKEN_USER "<token>"

/* It lives during the call, and is wiped after it. */
struct docker_login {
    const char *host; /* As references have it: without scheme and path, and Docker's own is docker.io. */
    const char *user, *password;
};
/*
 * Calls each() for every login, until it fails. Returns how many there were; or BRIG_E_INVALID for a file that is none
 * of Docker's, BRIG_E_UNSUPPORTED if it names hosts and a helper program has all of their logins, or what each()
 * returned. No message has a part of a login.
 */
typedef int docker_login_fn(void *ctx, const struct docker_login *login, struct brig_err *err);
int docker_logins_read(const char *text, size_t len, docker_login_fn *each, void *ctx, struct brig_err *err) MUST_CHECK;
/* Docker's registry has several names; references have one. */
const char *docker_login_host(const char *host);

#endif
