/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cp_down.c: copies out of a sandbox: a file into a temporary one beside its place, which then takes its name; a tree
 * through client/tree.h, which lets nothing out of its directory.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/verbs/cp.h"
#include "client/tree.h"

struct sink {
    int fd;
    bool holes;          /* fd is a new file */
    uint64_t max, taken; /* 0: any number */
    struct tree_writer *tree;
    struct cp_progress progress;
};

static int too_large(struct brig_err *err, const char *what, uint64_t max)
{
    return err_set(err, BRIG_E_TOO_LARGE, 0, "%s: more than %llu bytes; --max allows more", what,
                   (unsigned long long)max);
}

static int write_sink(void *ctx, const void *data, size_t len, struct brig_err *err)
{
    struct sink *sink = ctx;
    int r;

    if (sink->tree) {
        r = tree_writer_write(sink->tree, data, len, err);
    } else {
        sink->taken += len;
        if (sink->max > 0 && sink->taken > sink->max)
            return too_large(err, "the file", sink->max);
        r = sink->holes ? fd_write_holes(sink->fd, data, len) : cli_write(sink->fd, data, len);
        if (r < 0)
            err_set(err, BRIG_E_HOST, -r, "writing");
    }
    if (r == 0)
        cp_progress_add(&sink->progress, len);
    return r;
}

static int take_length(void *ctx, struct client *client, struct brig_err *err UNUSED)
{
    struct sink *sink = ctx;

    sink->progress.total = client_length(client);
    return 0;
}

/* The whole answer into the sink. */
static int receive(const struct cp *cp, struct sink *sink, bool tree, struct brig_err *err)
{
    AUTO_BUF struct buf target = BUF_INIT(64 << 10);

    if (client_target(&target, tree ? "/v1/sandboxes/%s/files/tar?path=%s" : "/v1/sandboxes/%s/files?path=%s",
                      cp->sandbox, cp->path) < 0)
        return err_nomem(err);
    const struct client_request request = {
        .method = "GET", .target = target.data, .head = take_length, .data = write_sink, .ctx = sink};
    cp_progress_begin(&sink->progress, cp->quiet, cp->path, CLIENT_LENGTH_UNKNOWN);
    int r = client_call(cp->client, &request, err);
    cp_progress_end(&sink->progress);
    return r;
}

/* Where it goes: into a directory that is there under its own name, else to that very path. */
static bool find_place(const struct cp *cp, char *out, size_t size)
{
    struct stat st;
    char base[NAME_MAX + 1];
    size_t len = strlen(cp->local);
    bool inside = (stat(cp->local, &st) == 0 && S_ISDIR(st.st_mode)) || cp->local[len - 1] == '/';
    const char *name = inside ? cp_base(cp->path, base, sizeof(base)) : "";
    const char *slash = *name == '\0' || cp->local[len - 1] == '/' ? "" : "/";

    if (str_format(out, size, "%s%s%s", cp->local, slash, name) < 0)
        return cli_error("%s: too long", cp->local), false;
    return true;
}

static int receive_file(const struct cp *cp, const struct cp_entry *entry)
{
    char path[PATH_MAX], temporary[PATH_MAX + 32];
    struct brig_err err = {0};
    struct stat st;

    if (!find_place(cp, path, sizeof(path)))
        return CLI_FAILED;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) { /* a device or a pipe is written to, never replaced */
        AUTO_FD int through = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
        struct sink sink = {.fd = through};
        int r = through < 0 ? err_host(&err, "%.200s", path) : receive(cp, &sink, false, &err);
        return r < 0 ? cp_failed(r, &err) : 0;
    }
    const char *slash = strrchr(path, '/');
    snprintf(temporary, sizeof(temporary), "%.*s.brig-cp-%ld", slash ? (int)(slash + 1 - path) : 0, path,
             (long)getpid());
    AUTO_FD int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return cli_error("%s: %s", path, strerror(errno));
    struct sink sink = {.fd = fd, .holes = true, .max = cp->max};
    int r = receive(cp, &sink, false, &err);
    if (r == 0 && (r = fd_end_holes(fd)) < 0)
        r = err_set(&err, BRIG_E_HOST, -r, "%.200s", path);
    if (r == 0 && (fchmod(fd, entry->mode & 0777) < 0 || rename(temporary, path) < 0))
        r = err_host(&err, "%.200s", path);
    if (r < 0)
        unlink(temporary);
    return r < 0 ? cp_failed(r, &err) : 0;
}

static int receive_tree(const struct cp *cp)
{
    char path[PATH_MAX];
    struct brig_err err = {0};
    struct sink sink = {.fd = -1};

    if (!find_place(cp, path, sizeof(path)))
        return CLI_FAILED;
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return cli_error("%s: %s", path, strerror(errno));
    int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return cli_error("%s: %s", path, strerror(errno));
    int r = tree_writer_create(root, &sink.tree, &err);
    if (r == 0)
        tree_writer_limit(sink.tree, cp->max, cp->max_names);
    if (r == 0)
        r = receive(cp, &sink, true, &err);
    if (r == 0)
        r = tree_writer_finish(sink.tree, &err);
    unsigned long long skipped = r == 0 ? tree_writer_skipped(sink.tree) : 0;
    tree_writer_destroy(sink.tree);
    if (r < 0)
        return cp_failed(r, &err);
    if (skipped > 0)
        return cli_error("%llu %s left out: devices or fifos", skipped, skipped == 1 ? "entry was" : "entries were");
    return 0;
}

/*
 * What a sandbox could have written, unless the user says otherwise: a file with holes may claim to be of any size, and
 * a tree to have any number of files. No sandbox has more of them than one for each 512 bytes.
 */
static bool find_limit(struct cp *cp)
{
    AUTO_JSON struct json_doc *doc = NULL;

    cp->max_names = cp->max / 512 + 1;
    if (cp->max > 0)
        return true;
    if (!service_call(cp->client, "GET", NULL, &doc, "/v1/sandboxes/%s", cp->sandbox))
        return false;
    const struct json_value *limits = doc ? json_get(json_root(doc), "limits") : NULL;
    const int64_t disk = get_i64(limits, "disk", 0), inodes = get_i64(limits, "inodes", 0);
    cp->max = disk > 0 ? (uint64_t)disk : 0;
    cp->max_names = inodes > 0 ? (uint64_t)inodes : 0;
    return true;
}

int cp_down(struct cp *cp)
{
    struct cp_entry entry;
    struct brig_err err = {0};

    if (!find_limit(cp) || !cp_stat(cp, &entry))
        return CLI_FAILED;
    bool tree = str_eq(entry.type, "directory") || cp->tar;
    if (entry.type[0] == '\0')
        return cli_error("%s:%s: there is no such file", cp->sandbox, cp->path);
    if (!tree && !str_eq(entry.type, "file"))
        return cli_error("%s:%s: a %s cannot be copied", cp->sandbox, cp->path, entry.type);
    if (!tree && cp->max > 0 && entry.size > cp->max) {
        char what[512];
        snprintf(what, sizeof what, "%.100s:%.300s", cp->sandbox, cp->path);
        return cp_failed(too_large(&err, what, cp->max), &err);
    }
    if (!str_eq(cp->local, "-"))
        return tree ? receive_tree(cp) : receive_file(cp, &entry);
    if (tree && isatty(STDOUT_FILENO))
        return cli_error("standard output is a terminal; a tar archive is not for it");
    struct sink sink = {.fd = STDOUT_FILENO};
    int r = receive(cp, &sink, tree, &err);
    return r < 0 ? cp_failed(r, &err) : 0;
}
