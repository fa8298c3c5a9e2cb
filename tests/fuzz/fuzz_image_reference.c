/* SPDX-License-Identifier: Apache-2.0 */
/* Names of images and platforms. Whatever passes has one spelling that parses to itself and needs no escape in a URL;
 * what is refused has a message. */
#include "fuzz.h"

#include "template/platform.h"
#include "codec/reference.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(1, size + 1), spelling[IMAGE_REF_TEXT], words[PLATFORM_TEXT];
    struct image_ref ref, again;
    struct platform platform, same;
    struct brig_err err = {0};

    FUZZ_CHECK(text);
    if (size > 0)
        memcpy(text, data, size);
    if (image_ref_parse(text, &ref, &err) == 0) {
        image_ref_text(&ref, spelling);
        FUZZ_CHECK(spelling[0] && !strpbrk(spelling, " %?#&=\"'\\\n\r\t;,<>|"));
        FUZZ_CHECK(!strstr(spelling, "//") && !strstr(spelling, "/../"));
        FUZZ_CHECK(image_ref_parse(spelling, &again, &err) == 0 && memcmp(&ref, &again, sizeof ref) == 0);
        FUZZ_CHECK(image_ref_below(&ref, ref.host) && (ref.tag[0] || ref.digest[0]));
    } else {
        FUZZ_CHECK(err.code == BRIG_E_USAGE && err.message[0]);
    }
    if (platform_parse(text, &platform, &err) == 0) {
        platform_text(&platform, words);
        FUZZ_CHECK(platform_parse(words, &same, &err) == 0 && memcmp(&platform, &same, sizeof same) == 0);
        FUZZ_CHECK(platform_fit(&platform, &same) > 0);
    }
    free(text);
    return 0;
}
