/* SPDX-License-Identifier: Apache-2.0 */
/* layer_main.c: brig-layer's command line (layer.h has it whole). Anything it does not know is refused. */
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/parse.h"
#include "base/str.h"
#include "layer/layer.h"

static const char usage[] = "usage: brig-layer unpack|diff|pack|index|plain [OPTION VALUE]... PATH...";

static int run_diff(const struct layer_options *options, struct brig_err *err)
{
    return layer_diff(options->blob, true, err);
}

static int run_pack(const struct layer_options *options, struct brig_err *err)
{
    return layer_diff(options->blob, false, err);
}

struct verb {
    const char *name;
    int (*run)(const struct layer_options *options, struct brig_err *err);
    int paths;
    const char *flags; /* the options that it takes, each with a blank behind it */
};

static const struct verb verbs[] = {
    {"unpack", layer_unpack, 2, "--offset --size --max-bytes --max-files --max-ratio --diff-id --format --one-id "},
    {"diff", run_diff, 1, ""},
    {"pack", run_pack, 1, ""},
    {"index", layer_index, 1, "--offset --size --max-files "},
    {"plain", layer_plain, 1, "--offset --size --max-bytes --max-ratio --format "},
};

static bool takes(const struct verb *verb, const char *flag)
{
    size_t len = strlen(flag);

    for (const char *at = verb->flags; (at = strstr(at, flag)); at += len)
        if (len > 2 && at[len] == ' ')
            return true;
    return false;
}

static int set_number(const char *flag, const char *text, uint64_t min, uint64_t *ret, struct brig_err *err)
{
    if (parse_u64(text, ret) < 0 || *ret < min)
        return err_usage(err, "%s %s: a number of at least %llu", flag, text, (unsigned long long)min);
    return 0;
}

static int set_diff_id(const char *text, struct layer_options *options, struct brig_err *err)
{
    const char *hex = str_starts(text, "sha256:") ? text + 7 : "";

    if (strlen(hex) != 64 || strspn(hex, "0123456789abcdef") != 64)
        return err_usage(err, "--diff-id %.80s: sha256: and 64 hexadecimal digits", text);
    options->diff_id = hex;
    return 0;
}

static int set_flag(const char *flag, const char *value, struct layer_options *options, struct brig_err *err)
{
    if (str_eq(flag, "--diff-id"))
        return set_diff_id(value, options, err);
    if (str_eq(flag, "--format")) {
        if (!str_eq(value, "tar") && !str_eq(value, "gzip") && !str_eq(value, "zstd"))
            return err_usage(err, "--format %.40s: tar, gzip or zstd", value);
        options->format = value;
        return 0;
    }
    if (str_eq(flag, "--offset"))
        return set_number(flag, value, 0, &options->offset, err);
    if (str_eq(flag, "--size"))
        return set_number(flag, value, 0, &options->size, err);
    if (str_eq(flag, "--max-bytes"))
        return set_number(flag, value, 0, &options->max_bytes, err);
    if (str_eq(flag, "--max-files"))
        return set_number(flag, value, 0, &options->max_files, err);
    return set_number(flag, value, 1, &options->max_ratio, err);
}

static int read_words(int argc, char **argv, const struct verb *verb, struct layer_options *options,
                      struct brig_err *err)
{
    int at = 2, r = 0;

    for (; at < argc && str_starts(argv[at], "--") && r == 0; at++) {
        if (!takes(verb, argv[at]))
            return err_usage(err, "brig-layer %s has no option %.80s", verb->name, argv[at]);
        if (str_eq(argv[at], "--one-id")) {
            options->one_id = true;
        } else {
            if (at + 1 == argc)
                return err_usage(err, "%s needs a value", argv[at]);
            r = set_flag(argv[at], argv[at + 1], options, err);
            at++;
        }
    }
    if (r < 0)
        return r;
    if (argc - at != verb->paths)
        return err_usage(err, "%s", usage);
    options->blob = argv[at];
    options->directory = verb->paths == 2 ? argv[at + 1] : NULL;
    if (str_eq(options->blob, "-") && (options->offset > 0 || options->size != UINT64_MAX))
        return err_usage(err, "--offset and --size need a file, not the standard input");
    return 0;
}

static int run(int argc, char **argv, struct brig_err *err)
{
    struct layer_options options = {
        .size = UINT64_MAX, .max_bytes = LAYER_BYTES_MAX, .max_files = LAYER_FILES_MAX, .max_ratio = LAYER_RATIO_MAX};
    const struct verb *verb = NULL;
    int r;

    for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(verbs); i++)
        if (str_eq(argv[1], verbs[i].name))
            verb = &verbs[i];
    if (!verb)
        return err_usage(err, "%s", usage);
    r = read_words(argc, argv, verb, &options, err);
    return r < 0 ? r : verb->run(&options, err);
}

int main(int argc, char **argv)
{
    struct brig_err err = {0};

    umask(0);
    (void)!signal(SIGPIPE, SIG_IGN);
    if (run(argc, argv, &err) == 0)
        return 0;
    fprintf(stderr, "%s\n", err.message);
    return 1;
}
