/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of sudo: words that end with a NUL, and after an empty one the environment. Whatever they are, all
 * that comes out points into what was given, and an entry that the command line sets is never kept.
 */
#include "fuzz.h"

#include <errno.h>

#include "codec/sudo_args.h"

#define WORDS_MAX 128

static bool is_word(const char *at, char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (at >= words[i] && at <= words[i] + strlen(words[i]))
            return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[4096];
    char *words[WORDS_MAX + 1], *at = text;
    int n = 0;
    struct sudo_args args;

    if (size + 2 >= sizeof text)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    for (; at < text + size && *at && n < WORDS_MAX; at += strlen(at) + 1)
        words[n++] = at;
    words[n] = NULL;
    int r = sudo_args_read(n, words, &args);
    FUZZ_CHECK(r == 0 || r == -EINVAL);
    if (r < 0) {
        FUZZ_CHECK(args.why[0] && (!args.word[0] || is_word(args.word, words, n)));
        return 0;
    }
    FUZZ_CHECK(args.n_set <= SUDO_SETTINGS_MAX && args.n_argv <= (unsigned)n && !args.argv[args.n_argv]);
    FUZZ_CHECK(args.user[0] && (!strcmp(args.user, "root") || is_word(args.user, words, n)));
    FUZZ_CHECK(args.does != SUDO_RUN || args.n_argv > 0 || args.shell);
    for (unsigned i = 0; i < args.n_set; i++)
        FUZZ_CHECK(is_word(args.set[i], words, n) && args.set[i][0] != '=' && strchr(args.set[i], '=') &&
                   !sudo_args_keeps(&args, args.set[i]));
    for (at++; at < text + size; at += strlen(at) + 1)
        FUZZ_CHECK(!sudo_args_keeps(&args, at) || (strchr(at, '=') && strncmp(at, "PATH=", 5) != 0 &&
                                                   strncmp(at, "SUDO_", 5) != 0 && !sudo_args_sets(&args, at)));
    return 0;
}
