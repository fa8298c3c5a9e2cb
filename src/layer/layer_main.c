/* SPDX-License-Identifier: Apache-2.0 */
/* layer_main.c: brig-layer's command line (layer.h has it whole). Anything it does not know is refused. */
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/str.h"
#include "layer/layer.h"

static const char usage[] =
    "usage: brig-layer unpack|diff|store|pack|index|plain|copy|mkdir|packages [OPTION VALUE]... PATH...";

struct verb {
    const char *name;
    int (*run)(const struct layer_options *options, struct brig_err *err);
    int paths;         /* how many; a negative number is the least */
    const char *flags; /* the options that it takes, each with a blank behind it */
};

static const struct verb verbs[] = {
    {"unpack", layer_unpack, 2,
     "--offset --size --max-bytes --max-files --max-ratio --diff-id --format --one-id --reserve "},
    {"diff", layer_diff, 1, "--latest --exclude "},
    {"store", layer_store, 1, "--latest "},
    {"pack", layer_pack, 1, "--only "},
    {"index", layer_index, 1, "--offset --size --max-files --hash --ignore "},
    {"plain", layer_plain, 1, "--offset --size --max-bytes --max-ratio --format "},
    {"copy", layer_copy, -4,
     "--chown --keep-owner --chmod --exclude --archives --over --max-files --max-bytes --max-ratio "
     "--mtime --ignore "},
    {"mkdir", layer_mkdir, 2, "--chown --mtime "},
    {"packages", layer_packages, 1, ""},
};

static const struct {
    const char *name;
    size_t at;
} switches[] = {
    {"--one-id", offsetof(struct layer_options, one_id)},
    {"--reserve", offsetof(struct layer_options, reserve)},
    {"--hash", offsetof(struct layer_options, hash)},
    {"--keep-owner", offsetof(struct layer_options, keep_owner)},
    {"--archives", offsetof(struct layer_options, archives)},
    {"--over", offsetof(struct layer_options, over)},
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

static int set_chmod(const char *text, struct layer_options *options, struct brig_err *err)
{
    size_t len = strlen(text);
    int mode = 0;

    if (len == 0 || len > 5 || strspn(text, "01234567") != len)
        return err_usage(err, "--chmod %.40s: an octal number of at most 07777", text);
    for (size_t i = 0; i < len; i++)
        mode = mode * 8 + (text[i] - '0');
    if (mode > 07777)
        return err_usage(err, "--chmod %.40s: an octal number of at most 07777", text);
    options->chmod = mode;
    return 0;
}

static int set_time(const char *flag, const char *text, int64_t *ret, struct brig_err *err)
{
    uint64_t value;
    int r = set_number(flag, text, 0, &value, err);

    if (r == 0 && value > INT64_MAX)
        r = err_usage(err, "%s %s: too late", flag, text);
    if (r == 0)
        *ret = (int64_t)value;
    return r;
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
    if (str_eq(flag, "--exclude") || str_eq(flag, "--only")) {
        options->list[options->n_list++] = value;
        return 0;
    }
    if (str_eq(flag, "--chown")) {
        options->chown = value;
        return 0;
    }
    if (str_eq(flag, "--chmod"))
        return set_chmod(value, options, err);
    if (str_eq(flag, "--ignore")) {
        if (options->n_ignore == LAYER_IGNORES)
            return err_usage(err, "--ignore %.80s: at most %u times", value, LAYER_IGNORES);
        options->ignore[options->n_ignore++] = value;
        return 0;
    }
    if (str_eq(flag, "--mtime"))
        return set_time(flag, value, &options->mtime, err);
    if (str_eq(flag, "--latest"))
        return set_time(flag, value, &options->latest, err);
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

static bool set_switch(const char *flag, struct layer_options *options)
{
    for (size_t i = 0; i < ARRAY_SIZE(switches); i++)
        if (str_eq(flag, switches[i].name)) {
            *(bool *)((char *)options + switches[i].at) = true;
            return true;
        }
    return false;
}

/* The words behind the options. */
static int set_paths(int n, char **paths, const struct verb *verb, struct layer_options *options, struct brig_err *err)
{
    if (verb->paths < 0 ? n < -verb->paths : n != verb->paths)
        return err_usage(err, "%s", usage);
    options->blob = paths[0];
    options->directory = n > 1 ? paths[1] : NULL;
    if (verb->run == layer_mkdir) {
        options->directory = paths[0];
        options->dest = paths[1];
    } else if (verb->run == layer_copy) {
        options->dest = paths[2];
        options->sources = (const char *const *)paths + 3;
        options->n_sources = (size_t)n - 3;
    }
    if (str_eq(options->blob, "-") && (options->offset > 0 || options->size != UINT64_MAX))
        return err_usage(err, "--offset and --size need a file, not the standard input");
    return 0;
}

static int read_words(int argc, char **argv, const struct verb *verb, struct layer_options *options,
                      struct brig_err *err)
{
    int at = 2, r = 0;

    for (; at < argc && str_starts(argv[at], "--") && r == 0; at++) {
        if (!takes(verb, argv[at]))
            return err_usage(err, "brig-layer %s has no option %.80s", verb->name, argv[at]);
        if (!set_switch(argv[at], options)) {
            if (at + 1 == argc)
                return err_usage(err, "%s needs a value", argv[at]);
            r = set_flag(argv[at], argv[at + 1], options, err);
            at++;
        }
    }
    return r < 0 ? r : set_paths(argc - at, argv + at, verb, options, err);
}

static int run(int argc, char **argv, struct brig_err *err)
{
    struct layer_options options = {.size = UINT64_MAX,
                                    .max_bytes = LAYER_BYTES_MAX,
                                    .max_files = LAYER_FILES_MAX,
                                    .max_ratio = LAYER_RATIO_MAX,
                                    .chmod = -1,
                                    .mtime = -1,
                                    .latest = -1};
    const struct verb *verb = NULL;
    int r;

    for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(verbs); i++)
        if (str_eq(argv[1], verbs[i].name))
            verb = &verbs[i];
    if (!verb)
        return err_usage(err, "%s", usage);
    options.list = mem_zalloc((size_t)argc * sizeof(*options.list));
    r = options.list ? read_words(argc, argv, verb, &options, err) : err_nomem(err);
    if (r == 0)
        r = verb->run(&options, err);
    mem_free(options.list);
    return r;
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
