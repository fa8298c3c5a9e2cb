/* SPDX-License-Identifier: Apache-2.0 */
/* dist_config.c: makes the registry client as the configuration says. */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/config.h"
#include "template/distribution.h"

#define WORDS_MAX 256u

/* Splits at blanks, in place. */
static int split(char *text, const char *words[WORDS_MAX], size_t *ret_n, struct brig_err *err)
{
    size_t n = 0;

    for (char *at = text + strspn(text, " "); *at; at += strspn(at, " ")) {
        if (n == WORDS_MAX)
            return err_usage(err, "[templates] mirrors, insecure: more than %u words", WORDS_MAX);
        words[n++] = at;
        at += strcspn(at, " ");
        if (*at)
            *at++ = '\0';
    }
    *ret_n = n;
    return 0;
}

int dist_open(const struct config *config, struct loop *loop, int blobs_fd, struct dist **ret, struct brig_err *err)
{
    AUTO_FREE char *mirrors = mem_strdup(config->templates_mirrors);
    AUTO_FREE char *insecure = mem_strdup(config->templates_insecure);
    AUTO_FREE struct dist_mirror *pairs = mem_zalloc(WORDS_MAX * sizeof *pairs);
    const char *mirror_words[WORDS_MAX], *insecure_words[WORDS_MAX];
    struct dist_options options = {
        .loop = loop, .blobs_fd = blobs_fd, .ca_file = config->gate_ca_bundle, .off = !config->templates_registries};

    if (!mirrors || !insecure || !pairs)
        return err_nomem(err);
    int r = split(mirrors, mirror_words, &options.n_mirrors, err);
    if (r == 0)
        r = split(insecure, insecure_words, &options.n_insecure, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < options.n_mirrors; i++) {
        char *equals = strchr(mirror_words[i], '=');
        if (!equals)
            return err_usage(err, "[templates] mirrors \"%.100s\": it must be HOST=URL", mirror_words[i]);
        *equals = '\0';
        pairs[i] = (struct dist_mirror){mirror_words[i], equals + 1};
    }
    options.mirrors = pairs;
    options.insecure = insecure_words;
    if (str_eq(config->templates_proxy, "none"))
        options.proxy = "";
    else if (config->templates_proxy[0])
        options.proxy = config->templates_proxy;
    return dist_create(&options, ret, err);
}
