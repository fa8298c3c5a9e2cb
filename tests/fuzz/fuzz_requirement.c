/* SPDX-License-Identifier: Apache-2.0 */
/* Requirements and requirements.txt. Whatever passes is one line of harmless characters that begins with a name; what
 * is refused has a message. */
#include "fuzz.h"

#include "base/str.h"
#include "deps/sets.h"
#include "records/requirement.h"

static int harmless(void *ctx, const char *line)
{
    unsigned *count = ctx;

    ++*count;
    FUZZ_CHECK(line[0] != '\0' && strlen(line) <= REQUIREMENT_LINE_MAX);
    /* a marker's quoted text may have a # */
    FUZZ_CHECK(!strpbrk(line, "\n\r\t\v\f\x1b\\/@$`|&#{}") || strchr(line, ';'));
    FUZZ_CHECK(!strpbrk(line, "\n\r\t\v\f\x1b\\/@$`|&{}"));
    FUZZ_CHECK(line[strspn(line, " ")] != '-' && line[strspn(line, " ")] != '.');
    for (const char *p = strstr(line, "--"); p; p = strstr(p + 2, "--"))
        /* versions may hold dashes; options may not follow a blank */
        FUZZ_CHECK(str_starts(p, "--hash=sha") || p > line);
    for (const char *p = strstr(line, " -"); p; p = strstr(p + 2, " -"))
        FUZZ_CHECK(str_starts(p, " --hash=sha") || strchr(line, ';'));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(1, size + 1);
    struct brig_err err = {0};
    unsigned count = 0;

    FUZZ_CHECK(text);
    memcpy(text, data, size);
    for (int npm = 0; npm < 2; npm++) {
        if (requirement_ok(text, npm, false, &err) == 0) {
            const char *p = text + strspn(text, " ");
            FUZZ_CHECK(!strpbrk(text, "\n\r\t\\:;$`&#(){}'\"") && (npm || !strpbrk(text, "@/|")) && *p != '-' &&
                       *p != '.' && *p != '/');
            FUZZ_CHECK(requirement_ok(text, npm, true, &err) == 0);
            FUZZ_CHECK(npm || requirement_line_ok(text, false, &err) == 0);
        } else {
            FUZZ_CHECK(err.code == BRIG_E_USAGE && err.message[0] != '\0');
        }
    }
    if (requirements_read(text, false, harmless, &count, &err) == 0)
        FUZZ_CHECK(count <= REQUIREMENTS_MAX);
    (void)requirement_pinned(text);
    free(text);
    return 0;
}
