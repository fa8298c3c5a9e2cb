/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve.c: `brig serve`: reads the configuration, then becomes the supervisor of the service (supervisor/supervisor.h).
 */

#include "cli/cli.h"
#include "cli/flags.h"
#include "config/config.h"
#include "supervisor/supervisor.h"

struct serve_options {
    const char *config, *listen, *socket;
};

/* Also "": nowhere. */
static int set_listen(void *ctx, const struct flag *flag, const char *given UNUSED, char *value,
                      struct brig_err *err UNUSED)
{
    *(const char **)(void *)((char *)ctx + flag->field) = value;
    return 0;
}

static const struct flag serve_flags[] = {
    {"config", "FILE",
     "configuration (default: BRIG_CONFIG, ./config/config.toml, ~/.config/brig/config.toml, /etc/brig/config.toml)",
     flag_set_text, offsetof(struct serve_options, config), 0},
    {"listen", "ADDRESS:PORT", "where to listen beside the socket (default 127.0.0.1:2744; \"\" nowhere)", set_listen,
     offsetof(struct serve_options, listen), 0},
    {"socket", "PATH", "the unix socket (default: BRIG_SOCKET, else brig.sock in the run directory)", flag_set_text,
     offsetof(struct serve_options, socket), 0},
};

static const struct flag_table serve_table = {
    .usage = "brig serve [--listen ADDRESS:PORT] [--socket PATH] [--config FILE]",
    .purpose = "Starts the service and stays in the foreground. SIGTERM drains and ends it, SIGHUP reloads the "
               "configuration,\n"
               "SIGUSR1 reopens the log file, SIGUSR2 replaces brigd without touching the sandboxes.",
    FLAGS(serve_flags),
};

static int apply_flags(struct config_loaded *loaded, const struct serve_options *options, struct brig_err *err)
{
    int r = options->listen ? config_override(loaded, "server.listen", options->listen, err) : 0;

    return r == 0 && options->socket ? config_override(loaded, "server.socket", options->socket, err) : r;
}

static int serve_main(int argc, char **argv)
{
    struct serve_options options = {0};
    struct config_loaded *loaded = NULL;
    struct brig_err err;
    int status;

    if (!flags_only(&serve_table, argc, argv, &options, "serve", &status))
        return status;
    if (config_load(options.config, environ, &loaded, &err) < 0)
        return cli_error("%s", err.message);
    /* brigd reads the same environment: a flag must reach it, and every restart of it, too. */
    int r = apply_flags(loaded, &options, &err);
    if (r == 0)
        r = config_check(loaded, &err);
    if (options.listen)
        unsetenv("BRIG_SERVER_LISTEN"); /* the same setting by its long name */
    if (options.socket)
        unsetenv("BRIG_SERVER_SOCKET");
    if (r == 0 && ((options.listen && setenv("BRIG_LISTEN", options.listen, 1) < 0) ||
                   (options.socket && setenv("BRIG_SOCKET", options.socket, 1) < 0)))
        r = -ENOMEM;
    status = CLI_FAILED;
    if (r == 0) {
        const struct supervisor_options supervisor = {.config_path = config_path(loaded), .config = config_get(loaded)};
        status = supervisor_run(&supervisor, &err);
        r = status == 0 ? 0 : -EIO;
    }
    if (r < 0)
        cli_error("%s", err.message);
    config_free(loaded);
    return status;
}

const struct cli_verb cli_verb_serve = {"serve", "the service: long-lived sandboxes over a local API",
                                        .main = serve_main};
