/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of a key ring. What is accepted has 1 to 32 keys with proper names, seals, and opens what it has sealed;
 * what is refused says which line, and nothing of what stands there.
 */
#include "fuzz.h"

#include <string.h>

#include "crypto/keyring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct keyring *ring = NULL;
    struct brig_err err = {0};
    char *text = malloc(size ? size : 1); /* exactly the bytes, so that reading past them is seen */

    FUZZ_CHECK(text);
    if (size)
        memcpy(text, data, size);
    if (keyring_parse(text, size, &ring, &err) < 0) {
        FUZZ_CHECK(!ring && strncmp(err.message, "key ring", 8) == 0);
    } else {
        struct sealed sealed = {0};
        uint8_t *value = NULL;
        size_t len = 0;
        const char *id = keyring_current(ring);
        FUZZ_CHECK(keyring_count(ring) >= 1 && keyring_count(ring) <= KEYRING_KEYS_MAX);
        FUZZ_CHECK(id[0] && strlen(id) < KEY_ID_MAX && strcmp(id, KEY_ID_PLAIN) != 0 && keyring_has(ring, id));
        FUZZ_CHECK(keyring_seal(ring, "context", "value", 5, &sealed) == 0);
        FUZZ_CHECK(keyring_open(ring, "context", &sealed, &value, &len) == 0 && len == 5 &&
                   memcmp(value, "value", 5) == 0);
        crypto_secret_free(value, len);
        sealed_done(&sealed);
        keyring_destroy(ring);
    }
    free(text);
    return 0;
}
