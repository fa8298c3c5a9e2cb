/* SPDX-License-Identifier: Apache-2.0 */
/*
 * template_export.c: `brig template export`: writes a template as the archive of an image, to a file or stdout. A file
 * is written beside its place and takes its name when it is whole.
 */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/str.h"
#include "cli/template/template.h"

struct export_options {
    const char *output, *format;
    bool quiet;
};

#define AT(field) offsetof(struct export_options, field)

static const struct flag export_flags[] = {
    {"output", "FILE", "where the archive goes (default: - for stdout)", flag_set_text, AT(output), 'o'},
    {"format", "FORMAT", "docker (default: for docker load, skopeo and brig) or oci (an OCI layout alone)",
     flag_set_text, AT(format), 0},
    FLAG_QUIET("no progress", AT(quiet)),
};
static const struct flag_table export_table = {
    .usage = "brig template export [-o FILE] [--format FORMAT] [-q] NAME",
    .purpose = "Writes a template as the archive of an image. The same template gives the same bytes.\n\n"
               "  brig template export mine | docker load",
    FLAGS(export_flags),
};

struct receiving {
    int fd;
    struct cp_progress progress;
};

static int take_length(void *ctx, struct client *client, struct brig_err *err UNUSED)
{
    struct receiving *receiving = ctx;

    receiving->progress.total = client_length(client);
    return 0;
}

static int take_data(void *ctx, const void *data, size_t len, struct brig_err *err)
{
    struct receiving *receiving = ctx;
    int r = cli_write(receiving->fd, data, len);

    if (r < 0)
        return err_set(err, BRIG_E_HOST, -r, "writing");
    cp_progress_add(&receiving->progress, len);
    return 0;
}

static int receive(const char *name, const struct export_options *options, int fd)
{
    struct receiving receiving = {.fd = fd};
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf target = BUF_INIT(8192);
    struct brig_err err = {0};

    if (!service_target(&target, "/v1/templates/%s/export?format=%s", name,
                        options->format ? options->format : "docker") ||
        !service_open(&client))
        return CLI_FAILED;
    AUTO_FD int signals UNUSED = service_transfers(client);
    const struct client_request request = {.method = "GET",
                                           .target = target.data,
                                           .head = take_length,
                                           .data = take_data,
                                           .ctx = &receiving,
                                           .timeout_ms = CLIENT_NO_TIMEOUT};
    cp_progress_begin(&receiving.progress, options->quiet, name, CLIENT_LENGTH_UNKNOWN);
    int r = client_call(client, &request, &err);
    cp_progress_end(&receiving.progress);
    if (r == -ECANCELED)
        return 128 + SIGINT;
    return r < 0 ? cli_error("%s", err.message) : 0;
}

/* Only a whole archive gets the name. */
static int receive_file(const char *name, const struct export_options *options)
{
    char temporary[PATH_MAX];
    struct stat st;

    if (stat(options->output, &st) == 0 && !S_ISREG(st.st_mode))
        return cli_error("%s: not a file", options->output);
    if (str_format(temporary, sizeof temporary, "%s.brig-%ld", options->output, (long)getpid()) < 0)
        return cli_error("%s: too long", options->output);
    AUTO_FD int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return cli_error("%s: %s", options->output, strerror(errno));
    int status = receive(name, options, fd);
    if (status == 0 && rename(temporary, options->output) < 0)
        status = cli_error("%s: %s", options->output, strerror(errno));
    if (status != 0)
        unlink(temporary);
    return status;
}

int template_export_main(int argc, char **argv)
{
    struct export_options options = {0};
    int rest, status;

    if (!service_parse(&export_table, argc, argv, &options, 1, 1, "template", &rest, &status))
        return status;
    if (options.output && !str_eq(options.output, "-"))
        return receive_file(argv[rest], &options);
    if (isatty(STDOUT_FILENO) == 1)
        return cli_error("template export: an archive is not for a terminal; use -o FILE or a pipe");
    return receive(argv[rest], &options, STDOUT_FILENO);
}
