/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cp.c: the words of `brig cp` and `brig volume cp`, and `brig cp` itself: copies files and trees into and out of a
 * sandbox. Bytes stream and are never held whole. A file appears whole or not at all on either side.
 */
#include "base/str.h"
#include "cli/verbs/cp.h"

#include <signal.h>
#include <string.h>

struct cp_options {
    bool quiet, tar;
    uint64_t max;
};

const struct flag cp_flags[] = {
    {"tar", NULL, "- is a tar archive (gzip too, on the way in)", flag_set_true, offsetof(struct cp_options, tar), 0},
    {"max", "SIZE", "bytes of files to write here (default: the sandbox's disk limit)", flag_set_size,
     offsetof(struct cp_options, max), 0},
    FLAG_QUIET("no progress line", offsetof(struct cp_options, quiet)),
};

/* PLACE:PATH, as against ./a:b or /a:b. */
static char *colon_of(char *word)
{
    char *colon = strchr(word, ':');
    return colon && colon != word && !memchr(word, '/', (size_t)(colon - word)) && word[0] != '.' ? colon : NULL;
}

bool cp_stat(const struct cp *cp, struct cp_entry *ret)
{
    AUTO_JSON struct json_doc *doc = NULL;
    struct brig_err err = {0};

    *ret = (struct cp_entry){.mode = 0644};
    if (service_try(cp->client, "GET", NULL, &doc, &err, "/v1/sandboxes/%s/files/stat?path=%s&follow=1", cp->sandbox,
                    cp->path) < 0) {
        /* Nothing there, as against no such sandbox. */
        if (client_status(cp->client) == 404 && strncmp(err.message, "Sandbox ", 8) != 0)
            return true;
        return cli_error("%s", err.message), false;
    }
    const struct json_value *entry = doc ? json_root(doc) : NULL;
    str_cut(ret->type, sizeof(ret->type), get_text(entry, "type", ""));
    ret->size = (uint64_t)get_i64(entry, "size", 0);
    ret->mode = (unsigned)strtoul(get_text(entry, "mode", "644"), NULL, 8);
    return true;
}

const char *cp_base(const char *path, char *out, size_t size)
{
    size_t len = strlen(path);

    while (len > 1 && path[len - 1] == '/')
        len--;
    const char *slash = memrchr(path, '/', len);
    const char *base = slash ? slash + 1 : path;
    snprintf(out, size, "%.*s", (int)(path + len - base), base);
    if (strcmp(out, ".") == 0 || strcmp(out, "..") == 0)
        out[0] = '\0';
    return out;
}

int cp_failed(int r, const struct brig_err *err)
{
    if (r == -ECANCELED)
        return 128 + SIGINT;
    if (r == -EPIPE)
        return CLI_SIGPIPE;
    return cli_error("%s", err->message);
}

int cp_verb_main(const struct cp_verb *verb, int argc, char **argv)
{
    struct cp_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    int rest, status;

    if (!service_parse(verb->words, argc, argv, &options, 2, 2, "source and destination", &rest, &status))
        return status;
    char *from = argv[rest], *to = argv[rest + 1], *from_colon = colon_of(from), *to_colon = colon_of(to);
    if (from_colon && to_colon)
        return cli_error("from one %s to another: copy to - and from there, or by way of a file", verb->thing);
    if (!from_colon && !to_colon)
        return cli_error("neither is %s: %s", verb->place, verb->usage);
    char *colon = from_colon ? from_colon : to_colon;
    *colon = '\0';
    struct cp cp = {
        .quiet = options.quiet,
        .tar = options.tar,
        .max = options.max,
        .sandbox = from_colon ? from : to,
        .path = colon + 1,
        .local = from_colon ? to : from,
    };
    if (cp.tar && strcmp(cp.local, "-") != 0)
        return cli_error("--tar is for -: a tree is sent as such");
    if (!service_open(&client))
        return CLI_FAILED;
    cp.client = client;
    AUTO_FD int signals UNUSED = service_transfers(client);
    return verb->copy(&cp, from_colon != NULL);
}

static int copy(struct cp *cp, bool out)
{
    if (cp->path[0] == '\0')
        cp->path = ".";
    return out ? cp_down(cp) : cp_up(cp);
}

static const struct flag_table cp_table = {
    .usage = "brig cp [flags] SRC DST   (one of them SANDBOX:PATH; - is stdin or stdout)",
    .purpose = "Copies a file or a tree. A directory that is there gets the copy inside; SRC/. copies what is in SRC.\n"
               "A relative PATH begins in the sandbox's working directory. Blocks of zeroes are written as holes.\n\n"
               "  brig cp data.csv build:/workspace/\n"
               "  brig cp ./src build:.\n"
               "  brig cp build:dist ./dist\n"
               "  brig cp build:result.json - | jq .\n"
               "  tar cz . | brig cp --tar - build:/workspace",
    FLAGS(cp_flags),
};
static const struct cp_verb cp_words = {
    .words = &cp_table,
    .usage = "brig cp SRC DST",
    .thing = "sandbox",
    .place = "SANDBOX:PATH",
    .copy = copy,
};

static int cp_main(int argc, char **argv)
{
    return cp_verb_main(&cp_words, argc, argv);
}

const struct cli_verb cli_verb_cp = {"cp", "copy files and trees into and out of a sandbox", .main = cp_main};
