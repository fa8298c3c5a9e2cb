/* SPDX-License-Identifier: Apache-2.0 */
/*
 * template_build.c: `brig template build`: sends a Dockerfile and, if it copies from it, the directory; then follows
 * the log. The daemon builds; this file asks and shows. A client that is interrupted cancels its build.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/escape.h"
#include "cli/secret_value.h"
#include "cli/template/template.h"

#define DOCKERFILE_BYTES (1u << 20)
#define LOCK_BYTES (8u << 20)
#define BODY_BYTES (32u << 20)

struct build_options {
    const char *file, *name, *target, *network, *progress, *lock;
    struct words args, labels, secrets;
    bool no_cache, update_lock, replace, shared, json;
};

#define AT(field) offsetof(struct build_options, field)

static const struct flag build_flags[] = {
    {"file", "FILE", "the Dockerfile (default: Dockerfile in DIR)", flag_set_text, AT(file), 'f'},
    {"tag", "NAME", "the template's name", flag_set_text, AT(name), 't'},
    {"target", "STAGE", "build up to this stage (default: the last one)", flag_set_text, AT(target), 0},
    {"build-arg", "NAME=VALUE", "a value for an ARG (repeatable)", flag_add_pair, AT(args), 0},
    {"label", "NAME=VALUE", "a label of the image (repeatable)", flag_add_pair, AT(labels), 0},
    {"net", "POLICY", "what RUN may reach (default: packages)", flag_set_text, AT(network), 0},
    {"secret", "id=ID,src=FILE", "a secret for RUN --mount=type=secret, or id=ID,env=NAME (repeatable)", flag_add_word,
     AT(secrets), 0},
    {"no-cache", NULL, "run every step", flag_set_true, AT(no_cache), 0},
    {"lock", "FILE", "the lock (default: template.lock beside the Dockerfile, if it is there)", flag_set_text, AT(lock),
     0},
    {"update-lock", NULL, "write the lock anew instead of building from it", flag_set_true, AT(update_lock), 0},
    {"progress", "HOW", "auto (default), plain (with all output) or quiet", flag_set_text, AT(progress), 0},
    TEMPLATE_REPLACE(AT(replace)),
    TEMPLATE_SHARED(AT(shared)),
    FLAG_TABLE(AT(json)),
};
static const struct flag_table build_table = {
    .usage = "brig template build [-t NAME] [-f FILE] [flags] DIR|RECIPE|-",
    .purpose = "Builds a template from a Dockerfile. Each RUN is a sandbox; steps that were done before are taken from "
               "the cache. With - the Dockerfile is read from stdin and there is no directory. A "
               "name that is no directory here is that of a recipe (brig template recipes). A build from a lock "
               "gives the same files as the build that wrote it, or fails and says what differs.\n\n"
               "  brig template build -t app .",
    FLAGS(build_flags),
};

/* ---- the request ---------------------------------------- */

/* id=ID,src=FILE or id=ID,env=NAME */
static bool put_secret(struct json *json, const char *word)
{
    AUTO_FREE struct secret_value *value = calloc(1, sizeof *value);
    char id[128] = "", file[4096] = "", variable[256] = "";
    bool good = value;

    for (const char *at = word; good && *at;) {
        size_t len = strcspn(at, ",");
        const char *equals = memchr(at, '=', len);
        size_t key = equals ? (size_t)(equals - at) : len, rest = equals ? len - key - 1 : 0;
        char *out = key == 2 && strncmp(at, "id", 2) == 0                                                 ? id
                    : (key == 3 && strncmp(at, "src", 3) == 0) || (key == 6 && !strncmp(at, "source", 6)) ? file
                    : key == 3 && strncmp(at, "env", 3) == 0                                              ? variable
                                                                                                          : NULL;
        size_t size = out == id ? sizeof id : out == file ? sizeof file : sizeof variable;
        good = out && rest > 0 && str_format(out, size, "%.*s", (int)rest, equals + 1) > 0;
        at += len + (at[len] == ',');
    }
    if (!good || !id[0] || (file[0] && variable[0])) {
        cli_error("--secret %s: expected id=ID,src=FILE or id=ID,env=NAME", word);
        return false;
    }
    const struct value_source from = {.file = file[0] ? file : NULL,
                                      .variable = variable[0] ? variable
                                                  : file[0]   ? NULL
                                                              : id};
    if (!secret_value_read(&from, id, value))
        return false;
    json_key(json, id);
    json_string_n(json, value->data, value->len);
    explicit_bzero(value, sizeof *value);
    return true;
}

static bool put_body(struct buf *body, const struct build_options *options, const struct buf *dockerfile,
                     const struct buf *settings, const struct buf *lock)
{
    struct json json = JSON_INIT(body);
    struct brig_err err = {0};
    int r;

    json_object(&json);
    json_key_string(&json, "name", options->name);
    json_key(&json, "dockerfile");
    json_string_n(&json, dockerfile->len ? dockerfile->data : "", dockerfile->len);
    if (settings->len > 0) {
        json_key(&json, "template_toml");
        json_string_n(&json, settings->data, settings->len);
    }
    json_key_bool(&json, "dockerignore", false); /* template_context.c has done it, maybe with a file elsewhere */
    if (options->update_lock) {
        json_key_bool(&json, "update_lock", true);
    } else if (lock->len > 0) {
        json_key(&json, "lock");
        json_string_n(&json, lock->data, lock->len);
    }
    service_put_text(&json, "target", options->target);
    service_put_text(&json, "network", options->network);
    r = service_put_pairs(&json, "build_args", options->args.items, options->args.n, &err);
    if (r == 0)
        r = service_put_pairs(&json, "labels", options->labels.items, options->labels.n, &err);
    if (r < 0) {
        cli_error("%s", err.message);
        return false;
    }
    json_key_object(&json, "secrets");
    for (size_t i = 0; i < options->secrets.n; i++)
        if (!put_secret(&json, options->secrets.items[i]))
            return false;
    json_end(&json);
    json_key_bool(&json, "no_cache", options->no_cache);
    json_key_bool(&json, "replace", options->replace);
    json_key_bool(&json, "shared", options->shared);
    json_end(&json);
    if (json_finish(&json) < 0) {
        cli_error("the request is too long");
        return false;
    }
    return true;
}

/* ---- the context ---------------------------------------- */

static ssize_t read_tree(void *ctx, void *data, size_t size, struct brig_err *err)
{
    return template_context_read(*(struct template_context **)ctx, data, size, err);
}

static ssize_t read_nothing(void *ctx UNUSED, void *data UNUSED, size_t size UNUSED, struct brig_err *err UNUSED)
{
    return 0;
}

/* Patterns may lie beside the Dockerfile, wherever it is. */
static int open_context(const char *dir, const char *file, struct template_context **ret, struct brig_err *err)
{
    AUTO_FREE char *path = file ? realpath(file, NULL) : NULL;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return err_host(err, "%s", dir);
    return template_context_open(fd, path ? path : "Dockerfile", 0, ret, err);
}

/* dir NULL, or nothing is copied from it: an empty one. */
static int send_context(struct client *client, const char *id, const char *dir, const char *file, struct brig_err *err)
{
    AUTO_BUF struct buf target = BUF_INIT(8192);
    struct template_context *tree = NULL;
    int r = client_target(&target, "/v1/templates/builds/%s/context", id) < 0 ? err_nomem(err) : 0;

    if (r == 0 && dir)
        r = open_context(dir, file, &tree, err);
    if (r < 0)
        return r;
    const struct client_request request = {.method = "PUT",
                                           .target = target.data,
                                           .content_type = "application/x-tar",
                                           .read = tree ? read_tree : read_nothing,
                                           .read_fd = -1,
                                           .length = tree ? CLIENT_LENGTH_UNKNOWN : 0,
                                           .ctx = &tree,
                                           .timeout_ms = CLIENT_NO_TIMEOUT};
    r = client_call(client, &request, err);
    template_context_close(tree);
    return r;
}

/* ---- the log ---------------------------------------- */

enum progress { PROGRESS_STEPS, PROGRESS_PLAIN, PROGRESS_QUIET };

struct following {
    enum progress how;
    struct buf line;
    struct escape escape;
    bool in_line; /* The last output did not end its line. */
    bool over;
    int64_t of;
};

static void say(struct following *following, const char *format, ...) PRINTF_LIKE(2, 3);
static void say(struct following *following, const char *format, ...)
{
    AUTO_BUF struct buf safe = BUF_INIT(65536);
    struct escape escape = ESCAPE_INIT(ESCAPE_LINE);
    char line[8192];
    va_list args;

    if (following->how == PROGRESS_QUIET)
        return;
    va_start(args, format);
    int len = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (len < 0 || (following->in_line && buf_append_str(&safe, "\n") < 0) ||
        escape_append(&escape, line, strlen(line), &safe) < 0 || escape_finish(&escape, &safe) < 0 ||
        buf_append_str(&safe, "\n") < 0)
        return;
    following->in_line = false;
    (void)!cli_write(STDERR_FILENO, safe.data, safe.len);
}

static void show_output(struct following *following, const struct json_value *line)
{
    AUTO_BUF struct buf data = BUF_INIT(1u << 20), safe = BUF_INIT(4u << 20);

    if (following->how != PROGRESS_PLAIN || service_get_bytes(line, "data", "encoding", &data) < 0 || data.len == 0)
        return;
    following->in_line = data.data[data.len - 1] != '\n';
    if (isatty(STDERR_FILENO) != 1)
        (void)!cli_write(STDERR_FILENO, data.data, data.len);
    else if (escape_append(&following->escape, data.data, data.len, &safe) == 0)
        (void)!cli_write(STDERR_FILENO, safe.data, safe.len);
}

static void show(struct following *following, const struct json_value *line)
{
    const char *event = get_text(line, "event", "");
    const long long step = (long long)get_i64(line, "step", 0);

    if (str_eq(event, "step")) {
        const char *stage = get_text(line, "stage", "");
        following->of = get_i64(line, "of", 0);
        say(following, "[%s%s%lld/%lld] %.2000s", stage, stage[0] ? " " : "", step, (long long)following->of,
            get_text(line, "text", ""));
    } else if (str_eq(event, "cached")) {
        say(following, "[%lld/%lld] cached", step, (long long)following->of);
    } else if (str_eq(event, "end") && get_i64(line, "ms", 0) >= 100) {
        char took[SHOW_SIZE];
        say(following, "[%lld/%lld] done in %s", step, (long long)following->of,
            show_duration(took, get_i64(line, "ms", 0)));
    } else if (str_eq(event, "output")) {
        show_output(following, line);
    } else if (str_eq(event, "warning") || str_eq(event, "note")) {
        say(following, "%s: %.2000s", event, get_text(line, "text", ""));
    } else if (str_eq(event, "done") || str_eq(event, "error")) {
        following->over = true;
    }
}

static int log_data(void *ctx, const void *data, size_t len, struct brig_err *err)
{
    struct following *following = ctx;
    char *newline;

    if (buf_append(&following->line, data, len) < 0)
        return err_nomem(err);
    while (following->line.len > 0 && (newline = memchr(following->line.data, '\n', following->line.len))) {
        size_t n = (size_t)(newline - following->line.data);
        struct json_doc *doc = NULL;
        if (json_read(following->line.data, n, JSON_READ_VALUES, &doc, NULL) == 0)
            show(following, json_root(doc));
        json_doc_free(doc);
        buf_consume(&following->line, n + 1);
    }
    return 0;
}

static int follow(struct client *client, const char *id, enum progress how, struct brig_err *err)
{
    AUTO_BUF struct buf target = BUF_INIT(8192);
    struct following following = {.how = how, .line = BUF_INIT(4u << 20), .escape = ESCAPE_INIT(ESCAPE_TERMINAL)};

    if (!service_target(&target, "/v1/templates/builds/%s/log?follow=true", id))
        return err_nomem(err);
    const struct client_request request = {
        .method = "GET", .target = target.data, .data = log_data, .ctx = &following, .timeout_ms = CLIENT_NO_TIMEOUT};
    int r = client_call(client, &request, err);
    buf_done(&following.line);
    return r;
}

/* ---- its end ---------------------------------------- */

/* The last lines of the step that failed, if they were not shown. */
static void show_tail(const char *output)
{
    AUTO_BUF struct buf safe = BUF_INIT(65536);
    struct escape escape = ESCAPE_INIT(ESCAPE_TERMINAL);
    const char *at = output + strlen(output);

    for (unsigned lines = 0; at > output && lines < 20; at--)
        lines += at[-1] == '\n' && at[0];
    if (at > output)
        at++;
    if (!*at || escape_append(&escape, at, strlen(at), &safe) < 0 || escape_finish(&escape, &safe) < 0)
        return;
    if (safe.data[safe.len - 1] != '\n' && buf_append_str(&safe, "\n") < 0)
        return;
    (void)!cli_write(STDERR_FILENO, safe.data, safe.len);
}

/* A new file that then takes the place of the old one: a lock is whole or as it was. */
static bool write_lock(const char *path, const struct buf *text)
{
    char beside_it[4096];
    AUTO_FD int fd = str_format(beside_it, sizeof beside_it, "%s.new", path) < 0
                         ? -1
                         : open(beside_it, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);

    if (fd < 0 || fd_write_all(fd, text->data, text->len) < 0 || rename(beside_it, path) < 0) {
        cli_error("%s: %s", path, strerror(errno));
        return false;
    }
    return true;
}

static int lock_data(void *ctx, const void *data, size_t len, struct brig_err *err)
{
    return buf_append(ctx, data, len) < 0 ? err_nomem(err) : 0;
}

static bool fetch_lock(struct client *client, const char *id, const char *path)
{
    AUTO_BUF struct buf target = BUF_INIT(8192), text = BUF_INIT(LOCK_BYTES);
    struct brig_err err = {0};

    if (!service_target(&target, "/v1/templates/builds/%s/lock", id))
        return false;
    const struct client_request request = {.method = "GET", .target = target.data, .data = lock_data, .ctx = &text};
    if (client_call(client, &request, &err) < 0) {
        cli_error("%s", err.message);
        return false;
    }
    return write_lock(path, &text);
}

static int conclude(struct client *client, const char *id, enum progress how, const struct build_options *options)
{
    AUTO_JSON struct json_doc *doc = NULL, *template = NULL;

    if (!service_call(client, "GET", NULL, &doc, "/v1/templates/builds/%s", id))
        return CLI_FAILED;
    const struct json_value *root = json_root(doc), *error = json_get(root, "error");
    if (!str_eq(get_text(root, "state", ""), "done")) {
        if (how != PROGRESS_PLAIN)
            show_tail(get_text(error, "output", ""));
        return cli_error("%s", get_text(error, "message", "the build did not end"));
    }
    if (options->update_lock && !fetch_lock(client, id, options->lock))
        return CLI_FAILED;
    if (!options->json)
        return service_say("%s", get_text(root, "name", options->name));
    if (!service_call(client, "GET", NULL, &template, "/v1/templates/%s", get_text(root, "name", "")))
        return CLI_FAILED;
    return service_print_json(template);
}

static int cancel(const char *id)
{
    struct brig_err err;

    (void)!service_try(NULL, "DELETE", NULL, NULL, &err, "/v1/templates/builds/%s", id);
    return 128 + SIGINT;
}

/* A context that could not be sent: if that is because the build has failed, its reason is the one to tell. */
static int not_sent(const char *id, int r, const struct brig_err *err)
{
    AUTO_JSON struct json_doc *doc = NULL;
    struct brig_err why;

    if (r != -ECANCELED) {
        (void)!service_try(NULL, "GET", NULL, &doc, &why, "/v1/templates/builds/%s", id);
        const struct json_value *root = doc ? json_root(doc) : NULL;
        const bool failed = str_eq(get_text(root, "state", ""), "failed");
        cli_error("%s", failed ? get_text(json_get(root, "error"), "message", err->message) : err->message);
    }
    (void)cancel(id);
    return r == -ECANCELED ? 128 + SIGINT : CLI_FAILED;
}

static int build(struct client *client, const struct build_options *options, const struct buf *body, const char *dir,
                 enum progress how)
{
    AUTO_JSON struct json_doc *doc = NULL;
    struct brig_err err = {0};

    if (!service_call(client, "POST", body, &doc, "/v1/templates/builds"))
        return CLI_FAILED;
    const char *id = get_text(json_root(doc), "id", "");
    AUTO_FD int signals = service_signals();
    client_set_cancel(client, signals);
    int r = send_context(client, id, json_get_bool(json_root(doc), "needs_context") ? dir : NULL, options->file, &err);
    if (r < 0)
        return not_sent(id, r, &err);
    r = follow(client, id, how, &err);
    if (r == -ECANCELED)
        return cancel(id);
    if (r < 0)
        return cli_error("%s", err.message);
    return conclude(client, id, how, options);
}

static bool read_dockerfile(const struct build_options *options, const char *dir, struct buf *out)
{
    char path[4096];

    if (!options->file && str_format(path, sizeof path, "%s/Dockerfile", dir) < 0) {
        cli_error("%s: too long", dir);
        return false;
    }
    return service_read_file(str_eq(dir, "-") ? "-" : options->file ? options->file : path, out);
}

/* The path of a file beside the Dockerfile; "" if there is no such place. */
static void beside(const struct build_options *options, const char *dir, const char *name, char path[4096])
{
    const char *slash = options->file ? strrchr(options->file, '/') : NULL;
    int r = slash ? str_format(path, 4096, "%.*s/%s", (int)(slash - options->file), options->file, name)
                  : str_format(path, 4096, "%s/%s", options->file ? "." : dir, name);

    if (str_eq(dir, "-") || r < 0)
        path[0] = '\0';
}

static bool is_there(const char *path)
{
    return path[0] && !(access(path, F_OK) < 0 && errno == ENOENT);
}

/* template.toml beside the Dockerfile, if there is one. */
static bool read_settings(const struct build_options *options, const char *dir, struct buf *out)
{
    char path[4096];

    beside(options, dir, "template.toml", path);
    return !is_there(path) || service_read_file(path, out);
}

/* The lock that --lock names must be there, unless it is written; the one beside the Dockerfile need not. */
static bool read_lock(struct build_options *options, const char *dir, char place[4096], struct buf *out)
{
    if (!options->lock) {
        beside(options, dir, "template.lock", place);
        if (options->update_lock && !place[0]) {
            cli_error("--update-lock: without a directory, --lock FILE says where");
            return false;
        }
        if (options->update_lock || is_there(place))
            options->lock = place;
    }
    if (!options->lock || options->update_lock)
        return true;
    if (service_read_file(options->lock, out) && out->len == 0)
        cli_error("%s: is empty; --update-lock writes it", options->lock);
    return out->len > 0;
}

static int build_main(struct build_options *options, const char *dir)
{
    static const char *const words[] = {"auto", "plain", "quiet"};
    AUTO_BUF struct buf dockerfile = BUF_INIT(DOCKERFILE_BYTES), body = BUF_INIT(BODY_BYTES);
    AUTO_BUF struct buf settings = BUF_INIT(DOCKERFILE_BYTES), lock = BUF_INIT(LOCK_BYTES);
    char place[4096];
    AUTO_CLIENT struct client *client = NULL;
    size_t how = 0;

    while (options->progress && how < ARRAY_SIZE(words) && !str_eq(options->progress, words[how]))
        how++;
    if (how == ARRAY_SIZE(words))
        return cli_error("--progress %s: must be auto, plain or quiet", options->progress);
    if (!options->name)
        return cli_error("-t NAME: the template needs a name");
    if (!read_dockerfile(options, dir, &dockerfile) || !read_settings(options, dir, &settings) ||
        !read_lock(options, dir, place, &lock) || !put_body(&body, options, &dockerfile, &settings, &lock) ||
        !service_open(&client))
        return CLI_FAILED;
    signal(SIGPIPE, SIG_IGN);
    int status = build(client, options, &body, str_eq(dir, "-") ? NULL : dir,
                       how == 0 ? (isatty(STDERR_FILENO) == 1 ? PROGRESS_STEPS : PROGRESS_PLAIN) : (enum progress)how);
    explicit_bzero(body.data, body.len); /* it may have secrets */
    return status;
}

/* A name that is no directory here may be a recipe; the template is then called so too. */
static const char *take_recipe(struct build_options *options, const char *dir, char place[4096])
{
    if (options->file || str_eq(dir, "-") || access(dir, F_OK) == 0 || !template_recipe(dir, place))
        return dir;
    if (!options->name)
        options->name = dir;
    if (!options->progress || !str_eq(options->progress, "quiet"))
        fprintf(stderr, "recipe %s: %s\n", dir, place);
    return place;
}

int template_build_main(int argc, char **argv)
{
    struct build_options options = {0};
    char place[4096];
    int rest, status;

    if (service_parse(&build_table, argc, argv, &options, 1, 1, "DIR, RECIPE or -", &rest, &status))
        status = build_main(&options, take_recipe(&options, argv[rest], place));
    words_done(&options.args);
    words_done(&options.labels);
    words_done(&options.secrets);
    return status;
}
