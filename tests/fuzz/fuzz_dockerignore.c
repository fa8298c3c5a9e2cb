/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .dockerignore against a path: the first line of the input is the path, the rest the file. What is pruned is also left
 * out, and so is what is below it; a plain pattern matches itself; and the same file says the same again.
 */
#include "fuzz.h"

#include "base/path.h"
#include "codec/dockerfile/dockerignore.h"
#include "codec/dockerfile/path_match.h"

static void check(const struct dockerignore *ignore, const char *path)
{
    char below[DOCKERIGNORE_PATH_MAX];
    bool out = dockerignore_matches(ignore, path), pruned = dockerignore_prunes(ignore, path);

    FUZZ_CHECK(out || !pruned);
    if (pruned && (size_t)snprintf(below, sizeof(below), "%s/b/a", path) < sizeof(below))
        FUZZ_CHECK(dockerignore_matches(ignore, below));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char path[512], clean[512];
    struct dockerignore *ignore = NULL, *again = NULL;
    struct brig_err err = {0};
    const uint8_t *newline = size ? memchr(data, '\n', size) : NULL;
    size_t len = newline ? (size_t)(newline - data) : size, rest = size - len - (newline != NULL);
    char *text;
    int r;

    if (len >= sizeof(path))
        return 0;
    memcpy(path, data, len);
    path[len] = '\0';
    FUZZ_CHECK(path_clean(path, clean, sizeof(clean)) == (int)strlen(clean));
    if (!path_has_wildcard(path, strlen(path)) && !strchr(path, '\\'))
        FUZZ_CHECK(path_pattern_valid(path) && path_match(path, path));
    /* Exactly the bytes, so that reading past them is seen. */
    text = malloc(rest ? rest : 1);
    FUZZ_CHECK(text);
    memcpy(text, data + size - rest, rest);
    r = dockerignore_read(text, rest, &ignore, &err);
    FUZZ_CHECK(r == 0 || strncmp(err.message, "line ", 5) == 0);
    FUZZ_CHECK(dockerignore_read(text, rest, &again, NULL) == r);
    if (r == 0) {
        check(ignore, clean);
        FUZZ_CHECK(dockerignore_matches(ignore, clean) == dockerignore_matches(again, clean));
    }
    dockerignore_free(ignore);
    dockerignore_free(again);
    free(text);
    return 0;
}
