/* SPDX-License-Identifier: Apache-2.0 */
/*
 * template_context.c: the directory that a build sends, as a tar that is made on the way: without what its
 * .dockerignore leaves out. Directories of which nothing can come back are not even read. Links are sent as links;
 * sockets and devices are counted; what cannot be read ends it, since a build without it would be another one.
 */
#include <fcntl.h>
#include <string.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/template/template.h"
#include "client/tree.h"
#include "codec/dockerfile/dockerignore.h"

#define IGNORE_FILE ".dockerignore"

struct template_context {
    struct dockerignore *ignore; /* or NULL */
    struct tree_reader *tree;
};

static enum tree_verdict judge(void *ctx, const char *path, bool is_dir)
{
    const struct template_context *context = ctx;

    if (!dockerignore_matches(context->ignore, path))
        return TREE_SEND;
    return is_dir && !dockerignore_prunes(context->ignore, path) ? TREE_LOOK : TREE_LEAVE;
}

/* Reads the file with patterns: FILE.dockerignore for a Dockerfile of that name, else .dockerignore, else none. */
static int read_ignore(int dir, const char *dockerfile, struct dockerignore **ret, struct brig_err *err)
{
    AUTO_FREE char *text = mem_alloc(DOCKERIGNORE_MAX_BYTES + 2);
    char own[4096];
    const char *name = own;
    struct brig_err why = {0};
    ssize_t len = -ENOENT;

    if (!text)
        return err_nomem(err);
    if (dockerfile && str_format(own, sizeof own, "%s" IGNORE_FILE, dockerfile) > 0)
        len = fd_read_file(dir, own, text, DOCKERIGNORE_MAX_BYTES + 2);
    if (len == -ENOENT) {
        name = IGNORE_FILE;
        len = fd_read_file(dir, name, text, DOCKERIGNORE_MAX_BYTES + 2);
    }
    if (len == -ENOENT)
        return 0;
    if (len < 0)
        return err_set(err, BRIG_E_USAGE, (int)-len, "%.150s", name);
    if (dockerignore_read(text, (size_t)len, ret, &why) < 0)
        return err_set(err, BRIG_E_USAGE, 0, "%.80s: %s", name, why.message);
    return 0;
}

int template_context_open(int dir, const char *dockerfile, uint64_t max_bytes, struct template_context **ret,
                          struct brig_err *err)
{
    AUTO_FD int root = dir;
    struct template_context *context = mem_zalloc(sizeof *context);
    int r = context ? read_ignore(root, dockerfile, &context->ignore, err) : err_nomem(err);

    if (r == 0)
        r = tree_reader_create(take_fd(&root), "", &context->tree, err);
    if (r < 0) {
        template_context_close(context);
        return r;
    }
    tree_reader_judge(context->tree, judge, context, max_bytes);
    *ret = context;
    return 0;
}

ssize_t template_context_read(struct template_context *context, void *data, size_t size, struct brig_err *err)
{
    return tree_reader_read(context->tree, data, size, err);
}

uint64_t template_context_skipped(const struct template_context *context)
{
    return tree_reader_skipped(context->tree);
}

void template_context_close(struct template_context *context)
{
    if (!context)
        return;
    tree_reader_destroy(context->tree);
    dockerignore_free(context->ignore);
    mem_free(context);
}
