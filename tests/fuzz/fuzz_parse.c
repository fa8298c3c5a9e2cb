/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and names from the command line and from requests. */
#include "fuzz.h"

#include "base/parse.h"

static void check(int (*parse)(const char *text, uint64_t *ret), const char *text)
{
    uint64_t value = 0;
    int r = parse(text, &value);

    if (r == 0) {
        FUZZ_CHECK(value > 0 && value <= INT64_MAX);
        FUZZ_CHECK(strspn(text, "0123456789.kKmMgGtTiIbBsh") == strlen(text) && text[0] >= '0' && text[0] <= '9');
    } else {
        FUZZ_CHECK((r == -EINVAL || r == -ERANGE) && value == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    uint64_t value = 0;
    uint32_t small = 0;

    if (!text)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';

    check(brig_parse_size, text);
    check(brig_parse_duration, text);
    check(brig_parse_cpus, text);
    int r = parse_u64(text, &value);
    FUZZ_CHECK(r == 0 ? strtoull(text, NULL, 10) == value && value <= INT64_MAX : value == 0);
    r = parse_u32(text, &small);
    FUZZ_CHECK(r == 0 ? small == value : small == 0);

    int layer = brig_layer_parse(text), profile = brig_profile_parse(text);
    FUZZ_CHECK(layer == -EINVAL || strcmp(brig_layer_name((enum brig_layer)layer), text) == 0);
    FUZZ_CHECK(profile == -EINVAL || strcmp(brig_profile_name((enum brig_profile)profile), text) == 0);
    free(text);
    return 0;
}
