/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of a runtime that has been taken over: with a good code, since the key is in its process. */
#include "fuzz.h"

#include <string.h>

#include "crypto/crypto.h"
#include "run/runtime_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t key[FRAME_KEY] = {1};
    uint8_t code[SHA256_SIZE];
    struct frame_answer a;
    char *text = malloc(size + 66);

    if (!text)
        return 0;
    if (frame_answer_read(key, (const char *)data, size, &a) == 0) /* as it is: no code fits by chance */
        abort();
    if (crypto_hmac_sha256(key, sizeof key, data, size, code) < 0)
        abort();
    crypto_hex(code, sizeof code, text);
    text[64] = '\n';
    if (size)
        memcpy(text + 65, data, size);
    if (frame_answer_read(key, text, size + 65, &a) == 0) {
        struct json_doc *doc = NULL;
        /* The bytes that are handed out as the result are JSON, and lie in the payload. */
        if (json_read(a.result, a.result_len, ANSWER_VALUES, &doc, NULL) < 0)
            abort();
        if (a.result_value && (a.result < text + 65 || a.result + a.result_len > text + 65 + size))
            abort();
        if (a.result_value && json_root(doc)->type != a.result_value->type)
            abort();
        json_doc_free(doc);
        frame_answer_done(&a);
    }
    free(text);
    return 0;
}
