/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_flags.c: the flags of `brig run`, one line each. Only syntax is judged here: is it a size, a duration,
 * SRC:DST, a layer's name? Ranges, paths and names are the library's rules, so that every caller meets the
 * same ones. Nothing is opened but --env-file.
 */
#include <string.h>

#include "base/err.h"
#include "cli/flags.h"
#include "cli/run/run.h"
#include "codec/passwd.h"

#define LIMIT(name) offsetof(struct run_options, spec.limits.name)
#define OPTION(name) offsetof(struct run_options, name)

typedef int apply_fn(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);
static apply_fn set_duration, set_cpus, set_profile, set_require, set_on_output, set_rootfs, set_user;
static apply_fn add_bind, add_tmpfs;

/* clang-format off */
static const struct flag run_flags[] = {
    {"env", "K=V", "set a variable of the program; it gets none of yours", run_env_flag, 0, 'e'},
    {"env-file", "FILE", "variables as K=V lines; # begins a comment, nothing is expanded", run_env_file, 0, 0},
    {"volume", "SRC:DST[:ro]", "show the file or directory SRC as DST inside", add_bind, 0, 'v'},
    {"workdir", "DIR", "where the program starts (default /workspace)", flag_set_text, OPTION(spec.workdir), 'w'},
    {"memory", "SIZE", "memory of the whole run (default 512m)", flag_set_size, LIMIT(memory), 'm'},
    {"cpus", "N", "CPUs, such as 0.5 (default 1)", set_cpus, LIMIT(cpus), 'c'},
    {"pids", "N", "processes and threads (default 128)", flag_set_count, LIMIT(pids), 0},
    {"disk", "SIZE", "sum of all that is written (default half the memory)", flag_set_size, LIMIT(disk), 0},
    {"inodes", "N", "files and directories", flag_set_count, LIMIT(inodes), 0},
    {"open-files", "N", "descriptors of each process (default 1024)", flag_set_count, LIMIT(open_files), 0},
    {"file-size", "SIZE", "size of one file", flag_set_size, LIMIT(file_size), 0},
    {"io-read-bps", "SIZE", "bytes read from disk per second", flag_set_size, LIMIT(io_read_bps), 0},
    {"io-write-bps", "SIZE", "bytes written to disk per second", flag_set_size, LIMIT(io_write_bps), 0},
    {"timeout", "TIME", "wall clock, such as 30s (default 300s)", set_duration, LIMIT(timeout), 0},
    {"cpu-time", "TIME", "CPU seconds of the whole run", set_duration, LIMIT(cpu_time), 0},
    {"output", "SIZE", "stdout and stderr together (default 10m)", flag_set_size, LIMIT(output), 0},
    {"on-output-limit", "drop|kill", "past --output: drop the rest (default), or end the run", set_on_output, 0, 0},
    {"profile", "NAME", "default, paranoid or compat", set_profile, 0, 0},
    {"rootfs", "DIR|TAR", "another root than this machine's /usr", set_rootfs, 0, 0},
    {"writable-root", NULL, "the root can be written to; changes are gone after the run", flag_set_true,
     OPTION(writable_root), 0},
    {"sudo", NULL, "with --template: the program may become root inside, by sudo", flag_set_true, OPTION(sudo), 0},
    {"template", "NAME", "a template as the root: ARGS follow its entry point in place of its command", flag_set_text,
     OPTION(template), 0},
    {"entrypoint", "CMD", "with --template: another program than the image's entry point", flag_set_text,
     OPTION(entrypoint), 0},
    {"provider", "NAME", "what holds it; others than local need a daemon (brig provider ls)", flag_set_text,
     OPTION(provider), 0},
    {"user", "USER", "user, or root for installing software; with --template any USER[:GROUP]", set_user, 0, 'u'},
    {"tmpfs", "PATH:SIZE", "a memory file system at PATH", add_tmpfs, 0, 0},
    {"require", "all|LAYER,...", "do not run unless these layers are on", set_require, 0, 0},
    NET_FLAG_ROWS(OPTION(net)),
    {"interactive", NULL, "forward stdin; without it the program's is empty", flag_set_true, OPTION(interactive), 'i'},
    {"tty", NULL, "give the program a terminal", flag_set_true, OPTION(tty), 't'},
    {"lang", "LANGUAGE", "a snippet instead of a command: python, node, typescript or bash", run_code_flag, 0, 0},
    {"local", NULL, "in this process, even if a daemon answers", flag_set_true, OPTION(local), 0},
    {"name", "NAME", "a name for people, in the receipt", flag_set_text, OPTION(spec.name), 0},
    FLAG_QUIET("do not say which limit ended the run", OPTION(quiet)),
    {NULL, "FORMAT", "text (default): output passes through; json: the receipt, output inside",
     flag_set_format, OPTION(json), 'o'},
    {"receipt", "FILE", "write the receipt there as well", flag_set_text, OPTION(receipt), 0},
};
/* clang-format on */

static const struct flag_table run_table = {
    .usage =
        "brig run [flags] -- CMD [ARGS]\n       brig run --template NAME [flags] [-- ARGS]\n       brig run --lang "
        "LANGUAGE [flags] FILE|-",
    .purpose =
        "Runs CMD in a sandbox of its own. Its output and exit status pass through. 124 means that the\n"
        "timeout ended it, 137 another limit, 128+n a signal, 125 that brig refused or failed,\n"
        "126 or 127 that CMD could not be executed or found. A daemon does it if one answers; with --local, -v,\n"
        "--rootfs, --tmpfs or --cpu-time it is done here. --template needs a daemon.\n"
        "There is no network but what --net, --policy and --allow open; --net learn prints the policy CMD needs.\n"
        "With --lang the text of FILE (- is stdin) is run by that interpreter; without -i its stdin is empty.\n"
        "SIZE: bytes, or a number with k, m, g or t. TIME: seconds, or a number with ms, s, m or h.",
    FLAGS(run_flags),
    .command = 1,
};

static uint64_t *number_field(void *ctx, const struct flag *flag)
{
    return (uint64_t *)(void *)((char *)ctx + flag->field);
}

static int set_duration(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err)
{
    int r = brig_parse_duration(value, number_field(ctx, flag));
    if (r == -ERANGE)
        return flag_refuse(err, given, value, "must be below 2^63 ms");
    if (r < 0)
        return flag_refuse(err, given, value,
                           "must be a time of 1 ms or more: seconds, or a number with ms, s, m or h");
    return 0;
}

static int set_cpus(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err)
{
    int r = brig_parse_cpus(value, number_field(ctx, flag));
    if (r == -ERANGE)
        return flag_refuse(err, given, value, "must be below 2^63 / 1000");
    if (r < 0)
        return flag_refuse(err, given, value, "must be a number of CPUs above zero, such as 0.5 or 2");
    return 0;
}

static int set_profile(void *ctx, const struct flag *flag UNUSED, const char *given, char *value, struct brig_err *err)
{
    struct run_options *options = ctx;
    int profile = brig_profile_parse(value);
    if (profile < 0)
        return flag_refuse(err, given, value, "the profile is default, paranoid or compat");
    options->spec.profile = (enum brig_profile)profile;
    return 0;
}

static int set_user(void *ctx, const struct flag *flag UNUSED, const char *given, char *value, struct brig_err *err)
{
    struct run_options *options = ctx;
    struct user_text parts;

    if (user_text_parse(value, strlen(value), &parts) < 0)
        return flag_refuse(err, given, value, "must be NAME or UID, and :GROUP or :GID if you like");
    options->user = value;
    return 0;
}

static int set_on_output(void *ctx, const struct flag *flag UNUSED, const char *given, char *value,
                         struct brig_err *err)
{
    struct run_options *options = ctx;
    if (strcmp(value, "drop") != 0 && strcmp(value, "kill") != 0)
        return flag_refuse(err, given, value, "must be drop or kill");
    options->kill_on_output = strcmp(value, "kill") == 0;
    return 0;
}

/* Collects: a second --require adds to the first. */
static int set_require(void *ctx, const struct flag *flag UNUSED, const char *given, char *value, struct brig_err *err)
{
    struct run_options *options = ctx;
    const char *at = value;
    for (;;) {
        char name[32];
        size_t len = strcspn(at, ",");
        int layer = -EINVAL;
        if (len < sizeof(name)) {
            memcpy(name, at, len);
            name[len] = '\0';
            layer = brig_layer_parse(name);
            if (strcmp(name, "all") == 0)
                options->spec.require |= BRIG_REQUIRE_ALL;
            else if (layer >= 0)
                options->spec.require |= BRIG_LAYER_BIT(layer);
        }
        if (layer < 0 && !(len == 3 && memcmp(at, "all", 3) == 0))
            return flag_refuse(err, given, value,
                               "must be all, or names of layers with commas; brig doctor lists them");
        if (at[len] == '\0')
            return 0;
        at += len + 1;
    }
}

/* The host's path, made absolute: the library takes no other, and has no idea of our directory. */
static const char *absolute_path(struct run_options *options, const char *path, struct brig_err *err)
{
    if (*path == '/' || *path == '\0')
        return path;
    AUTO_FREE char *here = getcwd(NULL, 0);
    if (!here) {
        err_host(err, "the current directory");
        return NULL;
    }
    size_t size = strlen(here) + 1 + strlen(path) + 1;
    char *joined = run_options_alloc(options, size);
    if (!joined) {
        err_nomem(err);
        return NULL;
    }
    snprintf(joined, size, "%s/%s", here, path);
    return joined;
}

static int set_rootfs(void *ctx, const struct flag *flag UNUSED, const char *given, char *value, struct brig_err *err)
{
    struct run_options *options = ctx;
    if (*value == '\0')
        return flag_refuse(err, given, value, "the value is empty");
    options->spec.rootfs = absolute_path(options, value, err);
    return options->spec.rootfs ? 0 : -EINVAL;
}

/* A plain word as SRC would be a typing error, or Docker's named volume; "./word" is what it says. */
static bool is_source(const char *text)
{
    return *text == '/' || strncmp(text, "./", 2) == 0 || strncmp(text, "../", 3) == 0 || strcmp(text, ".") == 0 ||
           strcmp(text, "..") == 0;
}

static int add_bind(void *ctx, const struct flag *flag UNUSED, const char *given, char *value, struct brig_err *err)
{
    struct run_options *options = ctx;
    char *target = strchr(value, ':');
    char *mode = target ? strchr(target + 1, ':') : NULL;
    if (!target || target == value || target[1] == '\0' || target[1] == ':')
        return flag_refuse(err, given, value, "must be SRC:DST, SRC:DST:ro or SRC:DST:overlay");
    if (mode && strcmp(mode + 1, "ro") != 0 && strcmp(mode + 1, "overlay") != 0)
        return flag_refuse(err, given, value, "after SRC:DST there can only be :ro or :overlay");
    *target = '\0';
    bool known = is_source(value);
    *target = ':';
    if (!known)
        return flag_refuse(err, given, value, "SRC must begin with / or ./ or ../");

    if (!options->binds)
        options->binds = (void *)run_options_alloc(options, options->n_words * sizeof(*options->binds));
    if (!options->binds)
        return err_nomem(err);
    *target = '\0';
    if (mode)
        *mode = '\0';
    struct brig_bind *bind = &options->binds[options->spec.n_binds];
    bind->source = absolute_path(options, value, err);
    if (!bind->source)
        return -EINVAL;
    bind->target = target + 1;
    bind->overlay = mode && mode[1] == 'o';
    bind->read_only = mode && !bind->overlay;
    options->spec.binds = options->binds;
    options->spec.n_binds++;
    return 0;
}

static int add_tmpfs(void *ctx, const struct flag *flag UNUSED, const char *given, char *value, struct brig_err *err)
{
    struct run_options *options = ctx;
    char *size = strrchr(value, ':');
    uint64_t bytes = 0;
    if (!size || size == value)
        return flag_refuse(err, given, value, "must be PATH:SIZE");
    int r = brig_parse_size(size + 1, &bytes);
    if (r == -ERANGE)
        return flag_refuse(err, given, value, "SIZE must be below 2^63 bytes");
    if (r < 0)
        return flag_refuse(err, given, value, "SIZE must be above zero: bytes, or a number with k, m, g or t");

    if (!options->tmpfs)
        options->tmpfs = (void *)run_options_alloc(options, options->n_words * sizeof(*options->tmpfs));
    if (!options->tmpfs)
        return err_nomem(err);
    *size = '\0';
    options->tmpfs[options->spec.n_tmpfs++] = (struct brig_tmpfs){.path = value, .size = bytes};
    options->spec.tmpfs = options->tmpfs;
    return 0;
}

bool run_needs_provider(const struct run_options *options)
{
    return options->provider && strcmp(options->provider, "local") != 0;
}

static int check_template(const struct run_options *options, struct brig_err *err)
{
    const struct brig_spec *spec = &options->spec;
    const char *user = options->user ? options->user : "user";
    const char *other = options->language       ? "--lang"
                        : options->local        ? "--local"
                        : spec->n_binds > 0     ? "-v"
                        : spec->rootfs          ? "--rootfs"
                        : spec->n_tmpfs > 0     ? "--tmpfs"
                        : spec->limits.cpu_time ? "--cpu-time"
                                                : NULL;

    if (options->template && other)
        return err_usage(err, "--template %s: not with %s", options->template, other);
    if (run_needs_provider(options) && other)
        return err_usage(err, "--provider %s: not with %s", options->provider, other);
    if (options->entrypoint && !options->template)
        return err_usage(err, "--entrypoint %s: only with --template", options->entrypoint);
    if (options->sudo && !options->template)
        return err_usage(err, "--sudo: only with --template, which makes a sandbox of the service; or use --user root");
    if (!options->template && strcmp(user, "user") != 0 && strcmp(user, "root") != 0)
        return err_usage(err, "--user \"%s\": the user is user or root; others need --template", user);
    return 0;
}

/* What only the flags together can be right or wrong about. */
static int check_together(const struct run_options *options, struct brig_err *err)
{
    if (options->tty && options->json)
        return err_usage(err, "-t -o json: a terminal has no room for the receipt; use --receipt FILE");
    if (options->tty && options->interactive && !isatty(STDIN_FILENO))
        return err_usage(err, "-i -t: standard input is not a terminal; leave out -t, or -i");
    int r = check_template(options, err);
    if (r == 0 && options->receipt)
        r = run_receipt_check(options->receipt, err);
    return r;
}

int run_options_parse(struct run_options *options, int argc, char **argv, int *ret_status, struct brig_err *err)
{
    int rest = 1;
    options->n_words = (size_t)argc;
    options->spec.size = sizeof(options->spec);
    int r = flags_parse(&run_table, argc, argv, options, &rest, err);
    if (r < 0)
        return r;
    if (r == FLAGS_HELP) {
        *ret_status = flags_help(&run_table);
        return 1;
    }
    r = net_flags_finish(&options->net, err);
    if (r < 0)
        return r;
    if (rest >= argc && !options->language && !options->template)
        return err_usage(err, "no command given: brig run [flags] -- CMD [ARGS]");
    options->spec.argv = (const char *const *)(argv + rest);

    r = check_together(options, err);
    if (r == 0 && options->language)
        r = run_code_read(options, argc - rest, argv + rest, err);
    if (r != 0)
        return r;
    unsigned flags = 0;
    flags |= options->interactive ? BRIG_RUN_STDIN : 0;
    flags |= options->tty ? BRIG_RUN_TTY : 0;
    flags |= options->json || options->receipt ? BRIG_RUN_KEEP_OUTPUT : 0;
    flags |= options->kill_on_output ? BRIG_RUN_KILL_ON_OUTPUT : 0;
    flags |= options->writable_root ? BRIG_RUN_WRITABLE_ROOT : 0;
    flags |= options->user && strcmp(options->user, "root") == 0 ? BRIG_RUN_ROOT : 0;
    options->spec.flags = flags;
    if (options->tty)
        run_tty_size(&options->spec.tty_rows, &options->spec.tty_cols);
    return run_env_finish(options, err);
}

int run_options_local(struct run_options *options, struct brig_err *err)
{
    const struct net_flags *net = &options->net;
    options->policy = BUF_INIT(512u << 10);
    int r = net_flags_policy(net, &options->policy, options->policy_name, err);
    if (r < 0 || options->policy.len == 0)
        return r;
    struct brig_spec *spec = &options->spec;
    spec->network = options->policy.data;
    spec->network_name = options->policy_name;
    spec->flags |= net_flags_learn(net) ? BRIG_RUN_LEARN : 0;
    spec->limits.net_bytes_in = net->bytes_in;
    spec->limits.net_bytes_out = net->bytes_out;
    spec->limits.net_bps = net->bps;
    spec->limits.connections = net->connections;
    return 0;
}

char *run_options_alloc(struct run_options *options, size_t size)
{
    if (size > SIZE_MAX - sizeof(struct run_owned))
        return NULL;
    struct run_owned *owned = calloc(1, sizeof(*owned) + size);
    if (!owned)
        return NULL;
    owned->next = options->owned;
    options->owned = owned;
    return owned->bytes;
}

void run_options_done(struct run_options *options)
{
    while (options->owned) {
        struct run_owned *next = options->owned->next;
        free(options->owned);
        options->owned = next;
    }
    net_flags_done(&options->net);
    buf_done(&options->policy);
    buf_done(&options->code);
    free(options->env_file.items);
    free(options->env_flag.items);
}
