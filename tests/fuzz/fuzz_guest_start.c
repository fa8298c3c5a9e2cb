/* SPDX-License-Identifier: Apache-2.0 */
/*
 * START as brig-init reads it: what is accepted has just the strings it promises and encodes to the same bytes again.
 */
#include "fuzz.h"

#include "codec/wire/guest_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t again[GUEST_START_HEAD + GUEST_WORKDIR_MAX];
    struct guest_start msg;
    int r = guest_start_parse(data, size, &msg);

    if (r < 0) {
        FUZZ_CHECK(r == -EPROTO);
        return 0;
    }
    const char *end = (const char *)data + size, *at = msg.strings;
    FUZZ_CHECK(msg.workdir[0] == '/' && msg.workdir + strlen(msg.workdir) + 1 == msg.strings);
    if (msg.flags & GUEST_START_SERVICE) /* It has no program; the places of a carried one are in its place. */
        FUZZ_CHECK(msg.n_env == 0 && (msg.flags & GUEST_START_PLACES ? msg.n_argv > 0 && msg.n_argv <= GUEST_PLACES_MAX
                                                                     : msg.n_argv == 0));
    else
        FUZZ_CHECK(msg.n_argv > 0 && msg.strings[0] != '\0');
    for (uint64_t i = 0; i < (uint64_t)msg.n_argv + msg.n_env; i++) {
        FUZZ_CHECK(at < end);
        FUZZ_CHECK(i < msg.n_argv || (at[0] != '=' && strchr(at, '=')));
        at += strlen(at) + 1;
    }
    FUZZ_CHECK(at == end);
    int n = guest_start_put_head(again, sizeof(again), &msg);
    FUZZ_CHECK(n > 0 && (const char *)data + n == msg.strings);
    FUZZ_CHECK(memcmp(again, data, (size_t)n) == 0);
    return 0;
}
