/* SPDX-License-Identifier: Apache-2.0 */
/* What a registry and Docker's configuration say about logins: challenges, and config.json. */
#include "fuzz.h"

#include "codec/docker_login.h"
#include "template/distribution_priv.h"

static int each(void *ctx, const struct docker_login *login, struct brig_err *err)
{
    (void)err;
    ++*(int *)ctx;
    FUZZ_CHECK(login->host[0] && !strchr(login->host, '/') && login->user[0] && login->password[0]);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(1, size + 1);
    struct dist_challenge challenge;
    int found = 0;
    struct brig_err err = {0};

    FUZZ_CHECK(text);
    if (size > 0)
        memcpy(text, data, size);
    if (dist_challenge_parse(text, &challenge) == 0) {
        FUZZ_CHECK(!challenge.bearer || challenge.realm[0]);
        FUZZ_CHECK(!strpbrk(challenge.realm, "\r\n") && !strpbrk(challenge.service, "\r\n"));
        FUZZ_CHECK(!strpbrk(challenge.scope, "\r\n"));
    }
    int r = docker_logins_read(text, size, each, &found, &err);
    FUZZ_CHECK(r < 0 ? err.message[0] != '\0' : r == found);
    free(text);
    return 0;
}
