/* SPDX-License-Identifier: Apache-2.0 */
/* dpkg's status file of an image. Whatever it holds, the values of a package are words, and a refusal has its line. */
#include "fuzz.h"

#include "codec/lock/dpkg_status.h"

static int each(void *ctx, const struct dpkg_package *package, struct brig_err *err)
{
    (void)err;
    FUZZ_CHECK(dpkg_is_word(package->name, strlen(package->name)));
    FUZZ_CHECK(dpkg_is_word(package->version, strlen(package->version)));
    FUZZ_CHECK(dpkg_is_word(package->architecture, strlen(package->architecture)));
    ++*(size_t *)ctx;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct brig_err err = {0};
    size_t n = 0, again = 0;
    char *text = malloc(size ? size : 1); /* exactly the bytes, so that reading past them is seen */

    FUZZ_CHECK(text);
    memcpy(text, data, size);
    int r = dpkg_status_read(text, size, each, &n, &err);
    FUZZ_CHECK(r == 0 || strncmp(err.message, "line ", 5) == 0);
    FUZZ_CHECK(n <= size / 30); /* three names and a state need that much */
    FUZZ_CHECK(dpkg_status_read(text, size, each, &again, NULL) == r && again == n);
    free(text);
    return 0;
}
