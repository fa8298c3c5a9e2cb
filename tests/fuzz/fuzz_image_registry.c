/* SPDX-License-Identifier: Apache-2.0 */
/* What a registry and Docker's configuration say about logins: challenges, and config.json. */
#include "fuzz.h"

#include "template/distribution_priv.h"
#include "template/docker_login.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(1, size + 1);
    struct dist_challenge challenge;
    struct docker_login found = {0};
    struct brig_err err = {0};

    FUZZ_CHECK(text);
    if (size > 0)
        memcpy(text, data, size);
    if (dist_challenge_parse(text, &challenge) == 0) {
        FUZZ_CHECK(!challenge.bearer || challenge.realm[0]);
        FUZZ_CHECK(!strpbrk(challenge.realm, "\r\n") && !strpbrk(challenge.service, "\r\n"));
        FUZZ_CHECK(!strpbrk(challenge.scope, "\r\n"));
    }
    int r = docker_login_find(text, size, "docker.io", &found, &err);
    if (r == 1)
        FUZZ_CHECK((found.login.user && found.login.password) || found.login.identity_token);
    else
        FUZZ_CHECK(!found.memory && (r == 0 || err.message[0]));
    docker_login_done(&found);
    free(text);
    return 0;
}
