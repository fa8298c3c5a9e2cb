/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cp_up.c: copies into a sandbox: a file by PUT with its length, stdin without one, a tree as a tar stream that is made
 * on the way.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/str.h"
#include "cli/verbs/cp.h"
#include "client/tree.h"

struct source {
    int fd;
    struct tree_reader *tree;
    struct cp_progress progress;
    char first[2]; /* read before, to see what it is */
    size_t n_first;
};

static ssize_t read_fd(struct source *source, void *data, size_t size, struct brig_err *err)
{
    if (source->n_first > 0) {
        size_t n = source->n_first;
        memcpy(data, source->first, n);
        source->n_first = 0;
        return (ssize_t)n;
    }
    for (;;) {
        ssize_t n = read(source->fd, data, size);
        if (n >= 0)
            return n;
        if (errno != EINTR && errno != EAGAIN)
            return err_host(err, "reading");
    }
}

static ssize_t read_source(void *ctx, void *data, size_t size, struct brig_err *err)
{
    struct source *source = ctx;
    ssize_t n = source->tree ? tree_reader_read(source->tree, data, size, err) : read_fd(source, data, size, err);

    if (n > 0)
        cp_progress_add(&source->progress, (size_t)n);
    return n;
}

static int send(const struct cp *cp, struct source *source, const struct buf *target, const char *type, uint64_t length)
{
    struct brig_err err = {0};
    const struct client_request request = {
        .method = "PUT",
        .target = target->data,
        .content_type = type,
        .read = read_source,
        .read_fd = source->tree || length != CLIENT_LENGTH_UNKNOWN ? -1 : source->fd,
        .length = length,
        .ctx = source,
        .timeout_ms = length == CLIENT_LENGTH_UNKNOWN ? CLIENT_NO_TIMEOUT : 0,
    };

    cp_progress_begin(&source->progress, cp->quiet, cp->path, length);
    int r = client_call(cp->client, &request, &err);
    cp_progress_end(&source->progress);
    return r < 0 ? cp_failed(r, &err) : 0;
}

/* ---- files ---------------------------------------------------------------------------------------- */

static int send_file(const struct cp *cp, int fd, const struct stat *st)
{
    struct source source = {.fd = fd};
    AUTO_BUF struct buf target = BUF_INIT(64 << 10);
    struct cp_entry there;
    char base[NAME_MAX + 1], mode[8];
    const char *name = cp_base(cp->local, base, sizeof(base));

    if (!cp_stat(cp, &there) || !service_target(&target, "/v1/sandboxes/%s/files?path=%s", cp->sandbox, cp->path))
        return CLI_FAILED;
    bool inside = str_eq(there.type, "directory") || cp->path[strlen(cp->path) - 1] == '/';
    if (inside && !service_target(&target, cp->path[strlen(cp->path) - 1] == '/' ? "%s" : "%%2F%s", name))
        return CLI_FAILED;
    snprintf(mode, sizeof(mode), "%04o", (unsigned)st->st_mode & 0777);
    if (!service_target(&target, "&mode=%s", mode))
        return CLI_FAILED;
    return send(cp, &source, &target, "application/octet-stream", (uint64_t)st->st_size);
}

/* ---- trees ---------------------------------------------------------------------------------------- */

static bool make_directory(const struct cp *cp)
{
    AUTO_BUF struct buf body = BUF_INIT(64 << 10);
    struct json json = JSON_INIT(&body);
    bool text = json_utf8_valid(cp->path, strlen(cp->path));

    json_object(&json);
    json_key(&json, "path");
    if (text)
        json_string(&json, cp->path);
    else
        json_base64(&json, cp->path, strlen(cp->path));
    service_put_text(&json, "path_encoding", text ? NULL : "base64");
    json_key_bool(&json, "parents", true);
    json_end(&json);
    if (json_finish(&json) < 0)
        return cli_error("out of memory"), false;
    return service_call(cp->client, "POST", &body, NULL, "/v1/sandboxes/%s/files/mkdir", cp->sandbox);
}

static int send_stdin(const struct cp *cp)
{
    struct source source = {.fd = STDIN_FILENO};
    AUTO_BUF struct buf target = BUF_INIT(64 << 10);
    const char *type = "application/octet-stream";
    struct cp_entry there;

    if (cp->tar && (!cp_stat(cp, &there) || (there.type[0] == '\0' && !make_directory(cp))))
        return CLI_FAILED;
    if (!service_target(&target, cp->tar ? "/v1/sandboxes/%s/files/tar?path=%s" : "/v1/sandboxes/%s/files?path=%s",
                        cp->sandbox, cp->path))
        return CLI_FAILED;
    while (cp->tar && source.n_first < sizeof(source.first)) {
        ssize_t n = read(STDIN_FILENO, source.first + source.n_first, sizeof(source.first) - source.n_first);
        if (n <= 0)
            break;
        source.n_first += (size_t)n;
    }
    if (cp->tar)
        type =
            source.n_first == 2 && memcmp(source.first, "\x1f\x8b", 2) == 0 ? "application/gzip" : "application/x-tar";
    return send(cp, &source, &target, type, CLIENT_LENGTH_UNKNOWN);
}

static int send_tree(const struct cp *cp, int fd)
{
    struct source source = {.fd = -1};
    AUTO_BUF struct buf target = BUF_INIT(64 << 10);
    struct brig_err err = {0};
    struct cp_entry there;
    char base[NAME_MAX + 1];

    if (!cp_stat(cp, &there) || !service_target(&target, "/v1/sandboxes/%s/files/tar?path=%s", cp->sandbox, cp->path))
        return close(fd), CLI_FAILED;
    /* A directory that is there gets the tree inside; one that is not becomes the tree. */
    const char *prefix = there.type[0] != '\0' ? cp_base(cp->local, base, sizeof(base)) : "";
    if (there.type[0] == '\0' && !make_directory(cp))
        return close(fd), CLI_FAILED;
    if (tree_reader_create(fd, prefix, &source.tree, &err) < 0)
        return cli_error("%s", err.message);
    int status = send(cp, &source, &target, "application/x-tar", CLIENT_LENGTH_UNKNOWN);
    unsigned long long skipped = tree_reader_skipped(source.tree);
    tree_reader_destroy(source.tree);
    if (status == 0 && skipped > 0)
        status = cli_error("%llu %s left out: sockets, devices, or not readable", skipped,
                           skipped == 1 ? "entry was" : "entries were");
    return status;
}

int cp_up(const struct cp *cp)
{
    struct stat st;

    if (str_eq(cp->local, "-"))
        return send_stdin(cp);
    AUTO_FD int fd = open(cp->local, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return cli_error("%s: %s", cp->local, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return send_tree(cp, take_fd(&fd));
    if (!S_ISREG(st.st_mode))
        return cli_error("%s: neither a file nor a directory", cp->local);
    return send_file(cp, fd, &st);
}
