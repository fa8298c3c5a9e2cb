/* SPDX-License-Identifier: Apache-2.0 */
/*
 * template_load.c: `brig template load`: sends an archive of an image (an OCI layout, `docker save`, or the tar of a
 * root file system), stdin, or a directory as a tar that is made on the way. What it is, the daemon finds out.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/str.h"
#include "cli/template/template.h"
#include "client/tree.h"

static const struct flag load_flags[] = {TEMPLATE_IMAGE_FLAGS("what the archive says", "an archive")};
static const struct flag_table load_table = {
    .usage = "brig template load [-n NAME] [flags] FILE|DIR|-",
    .purpose =
        "Makes a template from an image: an OCI layout, the archive of `docker save`, or a root file system, as a tar "
        "(also gzip or zstd), a directory or stdin.\n\n"
        "  docker save debian:12 | brig template load -",
    FLAGS(load_flags),
};

struct sending {
    struct template_stream stream; /* first: template_stream_data() */
    int fd;
    struct tree_reader *tree;
    struct cp_progress progress;
};

static ssize_t read_fd(int fd, void *data, size_t size, struct brig_err *err)
{
    for (;;) {
        ssize_t n = read(fd, data, size);
        if (n >= 0)
            return n;
        if (errno != EINTR && errno != EAGAIN)
            return err_host(err, "reading");
    }
}

static ssize_t read_source(void *ctx, void *data, size_t size, struct brig_err *err)
{
    struct sending *sending = ctx;
    ssize_t n =
        sending->tree ? tree_reader_read(sending->tree, data, size, err) : read_fd(sending->fd, data, size, err);

    if (n > 0)
        cp_progress_add(&sending->progress, (size_t)n);
    if (n == 0)
        cp_progress_end(&sending->progress);
    return n;
}

static bool put_target(struct buf *target, const struct template_options *options)
{
    return service_target(target, "/v1/templates/load?replace=%s&shared=%s", options->replace ? "true" : "false",
                          options->shared ? "true" : "false") &&
           (!options->name || service_target(target, "&name=%s", options->name)) &&
           (!options->platform || service_target(target, "&platform=%s", options->platform));
}

static int send(struct sending *sending, const struct template_options *options, const char *what, uint64_t length)
{
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf target = BUF_INIT(8192);
    struct brig_err err = {0};

    if (!put_target(&target, options) || !service_open(&client))
        return CLI_FAILED;
    AUTO_FD int signals UNUSED = service_transfers(client);
    const struct client_request request = {
        .method = "POST",
        .target = target.data,
        .content_type = "application/x-tar",
        .read = read_source,
        .read_fd = sending->tree || length != CLIENT_LENGTH_UNKNOWN ? -1 : sending->fd,
        .length = length,
        .data = template_stream_data,
        .ctx = sending,
        .timeout_ms = CLIENT_NO_TIMEOUT,
    };
    cp_progress_begin(&sending->progress, options->quiet, what, length);
    int r = client_call(client, &request, &err);
    cp_progress_end(&sending->progress);
    return template_stream_end(&sending->stream, r, &err, options->json);
}

static int send_tree(struct sending *sending, const struct template_options *options, const char *path, int fd)
{
    struct brig_err err = {0};

    if (tree_reader_create(fd, "", &sending->tree, &err) < 0)
        return cli_error("%s", err.message);
    int status = send(sending, options, path, CLIENT_LENGTH_UNKNOWN);
    unsigned long long skipped = tree_reader_skipped(sending->tree);
    tree_reader_destroy(sending->tree);
    if (status == 0 && skipped > 0)
        cli_error("%llu %s left out: sockets, devices, or not readable", skipped,
                  skipped == 1 ? "entry was" : "entries were");
    return status;
}

int template_load_main(int argc, char **argv)
{
    struct template_options options = {0};
    struct stat st;
    int rest, status;

    if (!service_parse(&load_table, argc, argv, &options, 1, 1, "FILE, DIR or -", &rest, &status))
        return status;
    struct sending sending = {.stream = TEMPLATE_STREAM_INIT(options.quiet), .fd = STDIN_FILENO};
    const char *path = argv[rest];
    if (str_eq(path, "-"))
        return send(&sending, &options, "stdin", CLIENT_LENGTH_UNKNOWN);
    AUTO_FD int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return cli_error("%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return send_tree(&sending, &options, path, take_fd(&fd));
    if (!S_ISREG(st.st_mode))
        return cli_error("%s: neither a file nor a directory", path);
    sending.fd = fd;
    return send(&sending, &options, path, (uint64_t)st.st_size);
}
