/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli_config.c: `brig config check|show|sample`: shows a configuration without a daemon, read exactly as the daemon
 * reads it. `check` is for scripts: 0 if it is right (notes on stdout), 1 if it is not (one line on stderr).
 */
#include <string.h>

#include "cli/cli.h"
#include "cli/flags.h"
#include "codec/json/json.h"
#include "config/config.h"
#include "supervisor/supervisor.h"

enum { CONFIG_OK = 0, CONFIG_WRONG = 1 };

struct config_options {
    const char *config;
    bool json;
};

static int set_format(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err)
{
    bool json = strcmp(value, "json") == 0;

    if (!json && strcmp(value, "table") != 0)
        return flag_refuse(err, given, value, "must be table or json");
    *(bool *)((char *)ctx + flag->field) = json;
    return 0;
}

static const struct flag config_flags[] = {
    {"config", "FILE",
     "the file (default: BRIG_CONFIG, ./config/config.toml, ~/.config/brig/config.toml, /etc/brig/config.toml)",
     flag_set_text, offsetof(struct config_options, config), 0},
    {NULL, "FORMAT", "table (default) or json", set_format, offsetof(struct config_options, json), 'o'},
};

static const struct flag_table check_table = {
    .usage = "brig config check [--config FILE] [-o FORMAT]",
    .purpose =
        "Reads the configuration as the daemon would, and says what is wrong with it or has no effect. Tries the "
        "files and\n"
        "directories that it needs as the user that will open them; asks no database server.\n"
        "Exit status: 0 it is right, 1 it is not.",
    FLAGS(config_flags),
};

static const struct flag_table sample_table = {
    .usage = "brig config sample",
    .purpose =
        "Prints a configuration file with every setting, what it means, its variable and its default, all commented "
        "out.\n\n"
        "  brig config sample > /etc/brig/config.toml",
};

static const struct flag_table show_table = {
    .usage = "brig config show [--config FILE] [-o FORMAT]",
    .purpose =
        "Shows every setting with its value and where that came from: a line of the file, a variable, or the default.\n"
        "Passwords are not shown.",
    FLAGS(config_flags),
};

/* ---- check ------------------------------------------------------------------------------------------ */

static int put_check(struct buf *out, const struct config_loaded *loaded)
{
    const char *note;
    int r = 0;

    for (size_t i = 0; r == 0 && (note = config_note(loaded, i)); i++)
        r = buf_printf(out, "%s\n", note);
    if (r == 0)
        r = buf_printf(out, "%s: ok\n", config_path(loaded)[0] ? config_path(loaded) : "no file, all defaults");
    return r;
}

/* With an error: {"ok":false,"file":null,"error":...,"notes":[]}. */
static int put_check_json(struct buf *out, const struct config_loaded *loaded, const char *error)
{
    struct json json = JSON_INIT(out);
    const char *note;

    json_object(&json);
    json_key_bool(&json, "ok", !error);
    json_key_string(&json, "file", loaded && config_path(loaded)[0] ? config_path(loaded) : NULL);
    json_key_string(&json, "error", error);
    json_key_array(&json, "notes");
    for (size_t i = 0; loaded && (note = config_note(loaded, i)); i++)
        json_string(&json, note);
    json_end(&json);
    json_end(&json);
    int r = json_finish(&json);
    return r < 0 ? r : buf_append(out, "\n", 1);
}

static int check(const struct config_options *options, const struct config_loaded *loaded, const struct brig_err *err,
                 struct buf *out)
{
    int r = options->json ? put_check_json(out, loaded, loaded ? NULL : err->message)
            : loaded      ? put_check(out, loaded)
                          : 0;

    if (r < 0)
        return cli_error("config check: %s", strerror(-r));
    if (!loaded)
        cli_error("%s", err->message);
    return cli_print(out, loaded ? CONFIG_OK : CONFIG_WRONG);
}

/* ---- show ------------------------------------------------------------------------------------------- */

static int put_show(struct buf *out, const struct config_loaded *loaded)
{
    struct config_row row;
    const char *section = "";
    char origin[160];
    int r = 0;

    for (size_t i = 0; r == 0 && config_each(loaded, i, &row); i++) {
        if (strcmp(section, row.section) != 0)
            r = buf_printf(out, "%s[%s]\n", section[0] ? "\n" : "", row.section);
        section = row.section;
        config_origin(loaded, i, origin, sizeof(origin));
        if (r == 0)
            r = buf_printf(out, "%-26s %-24s %s\n", row.key, row.value[0] ? row.value : "\"\"", origin);
    }
    return r;
}

static int put_show_json(struct buf *out, const struct config_loaded *loaded)
{
    static const char *const sources[] = {"default", "file", "environment", "flag"};
    _Static_assert(ARRAY_SIZE(sources) == CONFIG_SOURCE_MAX, "every source has a name");
    struct json json = JSON_INIT(out);
    struct config_row row;
    char origin[160];

    json_array(&json);
    for (size_t i = 0; config_each(loaded, i, &row); i++) {
        config_origin(loaded, i, origin, sizeof(origin));
        json_object(&json);
        json_key_string(&json, "section", row.section);
        json_key_string(&json, "key", row.key);
        json_key_string(&json, "value", row.value);
        json_key_string(&json, "source", sources[row.source]);
        json_key_string(&json, "origin", origin);
        json_key_string(&json, "variable", row.env);
        json_key_bool(&json, "reloadable", row.reloadable);
        json_key_string(&json, "help", row.help);
        json_end(&json);
    }
    json_end(&json);
    int r = json_finish(&json);
    return r < 0 ? r : buf_append(out, "\n", 1);
}

static int show(const struct config_options *options, const struct config_loaded *loaded, const struct brig_err *err,
                struct buf *out)
{
    if (!loaded)
        return cli_error("%s", err->message);
    int r = options->json ? put_show_json(out, loaded) : put_show(out, loaded);
    if (config_get(loaded)->secrets_plaintext)
        cli_error("warning: [secrets] insecure_plaintext = true: without a key, secrets are stored UNENCRYPTED");
    return r < 0 ? cli_error("config show: %s", strerror(-r)) : cli_print(out, 0);
}

/* ---- sample --------------------------------------------------------------------------------------------- */

static bool is_bare(const char *value)
{
    return strcmp(value, "true") == 0 || strcmp(value, "false") == 0 ||
           (value[0] && value[strspn(value, "0123456789")] == '\0');
}

static int put_sample(struct buf *out, const struct config_loaded *defaults)
{
    struct config_row row;
    const char *section = "";
    int r = buf_append_str(
        out, "# Every setting with its default. A line without its # sets it; so does the variable, which wins over "
             "this file.\n");

    for (size_t i = 0; r == 0 && config_each(defaults, i, &row); i++) {
        if (strcmp(section, row.section) != 0)
            r = buf_printf(out, "\n[%s]\n", row.section);
        section = row.section;
        const char *quote = is_bare(row.value) ? "" : "\"";
        if (r == 0)
            r = buf_printf(out, "# %s; %s%s\n#%s = %s%s%s\n", row.help, row.env,
                           row.reloadable ? "" : "; needs a restart", row.key, quote, row.value, quote);
    }
    return r;
}

static int sample(const struct config_options *options UNUSED, const struct config_loaded *loaded UNUSED,
                  const struct brig_err *err UNUSED, struct buf *out)
{
    char *no_env[] = {NULL};
    struct config_loaded *defaults = NULL;
    struct brig_err why = {0};

    if (config_load_text("", NULL, 0, no_env, &defaults, &why) < 0)
        return cli_error("%s", why.message);
    int r = put_sample(out, defaults);
    config_free(defaults);
    return r < 0 ? cli_error("config sample: %s", strerror(-r)) : cli_print(out, 0);
}

/* ---- all ------------------------------------------------------------------------------------------- */

static const struct action {
    const char *name;
    const struct flag_table *table;
    int (*run)(const struct config_options *options, const struct config_loaded *loaded, const struct brig_err *err,
               struct buf *out);
} actions[] = {
    {"check", &check_table, check},
    {"show", &show_table, show},
    {"sample", &sample_table, sample},
};

static int help(void)
{
    struct buf out = BUF_INIT(4096);
    int r = buf_append_str(&out, "usage: brig config check|show|sample|reload [--config FILE] [-o FORMAT]\n\n"
                                 "  check  says what is wrong with the configuration or has no effect\n"
                                 "  show   every setting, its value and where that came from\n"
                                 "  sample a configuration file with every setting and its default, commented out\n"
                                 "  reload the daemon reads its configuration again\n");
    int status = r < 0 ? cli_error("help: %s", strerror(-r)) : cli_print(&out, 0);
    buf_done(&out);
    return status;
}

static int run_action(const struct action *action, int argc, char **argv)
{
    struct config_options options = {0};
    struct config_loaded *loaded = NULL;
    struct brig_err err = {0};
    int rest = 1;

    int r = flags_parse(action->table, argc, argv, &options, &rest, &err);
    if (r < 0)
        return cli_error("%s", err.message);
    if (r == FLAGS_HELP)
        return flags_help(action->table);
    if (rest < argc)
        return cli_error("%s: config %s takes no arguments", argv[rest], action->name);
    r = config_load(options.config, environ, &loaded, &err);
    if (r == 0 && action->run == check && (r = supervisor_probe(config_get(loaded), &err)) < 0)
        config_free(take_ptr(&loaded));
    struct buf out = BUF_INIT((size_t)1 << 20);
    int status = action->run(&options, r < 0 ? NULL : loaded, &err, &out);
    buf_done(&out);
    config_free(loaded);
    return status;
}

static int config_main(int argc, char **argv)
{
    if (argc < 2)
        return cli_error("config: what to do is missing: check, show, sample or reload");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help();
    for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
        if (strcmp(argv[1], actions[i].name) == 0)
            return run_action(&actions[i], argc - 1, argv + 1);
    return cli_error("config %s: must be check, show, sample or reload", argv[1]);
}

const struct cli_verb cli_verb_config = {"config", "check, show and reload the configuration", .main = config_main};
