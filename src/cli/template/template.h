/* SPDX-License-Identifier: Apache-2.0 */
/*
 * template.h: the parts of `brig template`: template.c has the verbs that ask and change, template_load.c sends an
 * archive, template_context.c reads the directory of a build, template_pull.c asks for an image of a registry and keeps
 * logins, template_recipes.c finds the recipes that came with brig, template_stream.c shows the lines that a job
 * answers with, template_build.c builds.
 */
#ifndef BRIG_CLI_TEMPLATE_TEMPLATE_H
#define BRIG_CLI_TEMPLATE_TEMPLATE_H

#include "cli/service.h"
#include "cli/verbs/cp.h"

/* What the verbs that make or name a template are told. */
struct template_options {
    const char *name, *platform;
    bool replace, shared, quiet, json;
};
/* clang-format off */
#define TEMPLATE_AT(field) offsetof(struct template_options, field)
/* The flags of a template that is made of an image, which is `of_what`. */
#define TEMPLATE_IMAGE_FLAGS(name_default, of_what)                                                            \
    {"name", "NAME", "the template's name (default: " name_default ")", flag_set_text, TEMPLATE_AT(name), 'n'}, \
    {"platform", "OS/ARCH", "of " of_what " with several (default: this machine's)", flag_set_text,             \
     TEMPLATE_AT(platform), 0},                                                                                 \
    TEMPLATE_REPLACE(TEMPLATE_AT(replace)), TEMPLATE_SHARED(TEMPLATE_AT(shared)), TEMPLATE_JOB_FLAGS
#define TEMPLATE_JOB_FLAGS FLAG_QUIET("no progress, no name", TEMPLATE_AT(quiet)), FLAG_TABLE(TEMPLATE_AT(json))
#define TEMPLATE_REPLACE(at) {"replace", NULL, "a template that has the name gives it up", flag_set_true, (at), 0}
#define TEMPLATE_SHARED(at) {"shared", NULL, "every organisation sees it", flag_set_true, (at), 0}
/* clang-format on */

/* What a job says, line by line: progress, then the template or why there is none. */
struct template_stream {
    bool quiet;
    struct buf line;
    struct json_doc *last; /* with the template or the error */
    struct cp_progress progress;
    char shown[160]; /* the layer that the progress is about */
};
#define TEMPLATE_STREAM_INIT(be_quiet) \
    ((struct template_stream){.quiet = (be_quiet), .line = BUF_INIT((size_t)32 << 20)})
/* data() of a struct client_request whose ctx begins with a struct template_stream. */
int template_stream_data(void *ctx, const void *data, size_t len, struct brig_err *err);
/* After the call, which returned r: prints the name of the template (or all of it), or why there is none. Returns the
 * exit status. */
int template_stream_end(struct template_stream *stream, int r, const struct brig_err *err, bool json);

/*
 * The directory that a build sends (template_context.c), as a tar. It owns dir, an open directory. dockerfile is the
 * path of the Dockerfile, absolute or below dir, or NULL; patterns may stand beside it. max_bytes bounds all files
 * together; 0 means no bound.
 */
struct template_context;
int template_context_open(int dir, const char *dockerfile, uint64_t max_bytes, struct template_context **ret,
                          struct brig_err *err) MUST_CHECK;
/* As tree_reader_read() and tree_reader_skipped(). */
ssize_t template_context_read(struct template_context *context, void *data, size_t size,
                              struct brig_err *err) MUST_CHECK;
uint64_t template_context_skipped(const struct template_context *context);
void template_context_close(struct template_context *context); /* takes NULL */

/*
 * The directory of a recipe that came with brig, share/brig/templates/NAME: false if there is none. template_recipes.c.
 */
bool template_recipe(const char *name, char out[4096]);
int template_recipes_main(int argc, char **argv);
int template_build_main(int argc, char **argv);
int template_export_main(int argc, char **argv);
int template_load_main(int argc, char **argv);
int template_pull_main(int argc, char **argv);
int template_rebuild_main(int argc, char **argv);
int template_login_main(int argc, char **argv);
/* Stores a login; returns the exit status. */
int template_send_login(const char *host, const char *user, const char *password, size_t len, bool quiet);
/* The logins of Docker's config.json, or the one of a host; returns the exit status. */
int template_login_docker(const char *path, const char *host, bool quiet);

#endif
