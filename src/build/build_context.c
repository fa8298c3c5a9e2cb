/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_context.c: the context of a build: a plain tar in a file of ours. brig-layer lists it in a sandbox; here its
 * members are known by name, and a file of it (the Dockerfile) is read by the offset that the list gives.
 */
#include <fcntl.h>
#include <string.h>

#include "build/build_priv.h"

#define MEMBERS_MAX 500000u

/* ---- it comes ---------------------------------------- */

static void on_wrote(void *ctx, size_t len, int error)
{
    struct build *build = ctx;
    struct brig_err err;

    build->received += len;
    if (error < 0) {
        (void)err_set(&err, BRIG_E_HOST, -error, "the context could not be kept");
        build_fail(build, &err, 0);
    } else if (build->receiving && build->ready) {
        build_expect(build);
        build->ready(build->ready_ctx);
    }
}

int build_context_begin(struct build *build, void (*ready)(void *ctx), void *ctx, struct brig_err *err)
{
    struct builds *builds = build->builds;

    if (build->state != BUILD_WAITING || build->receiving)
        return err_set(err, BRIG_E_CONFLICT, 0, "build %s: does not wait for a context (it is %s)", build->id,
                       build->receiving ? "coming already" : build_state_name(build->state));
    int r = library_file(builds->o.library, "context", &build->context, err);
    AUTO_FD int copy = r == 0 ? fcntl(build->context->fd, F_DUPFD_CLOEXEC, 3) : -1;
    if (r == 0 && copy < 0)
        r = err_host(err, "a file for the context");
    if (r == 0 && spool_create(builds->o.workers, build->caller.org_id, copy, on_wrote, build, &build->spool) < 0)
        r = err_nomem(err);
    if (r < 0) {
        library_file_done(builds->o.library, take_ptr(&build->context));
        return r;
    }
    (void)take_fd(&copy);
    build->ready = ready;
    build->ready_ctx = ctx;
    build->receiving = true;
    return 0;
}

static int context_list(struct build *build, struct brig_err *err);

static int take_data(struct build *build, const void *data, size_t len, struct brig_err *err)
{
    const uint64_t max = build->builds->o.config->templates_max_image;

    if (build->received + len > max)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "the context has more than %llu MiB ([templates] max_image)",
                       (unsigned long long)(max >> 20));
    int r = build_charge(build, len, err);
    return r < 0 ? r : spool_write(build->spool, data, len) < 0 ? err_nomem(err) : 0;
}

int build_context_data(struct build *build, const void *data, size_t len, struct brig_err *err)
{
    if (build->state != BUILD_WAITING)
        return build->err.code ? err_set(err, (enum brig_code)build->err.code, 0, "%s", build->err.message)
                               : err_set(err, BRIG_E_CONFLICT, 0, "build %s: was cancelled", build->id);
    int r = take_data(build, data, len, err);
    if (r < 0)
        build_fail(build, err, 0); /* this is the reason that is kept, not the end of the request that it causes */
    return r;
}

void build_context_end(struct build *build)
{
    struct brig_err err = {0};

    build->receiving = false;
    build->ready = NULL;
    if (build->state != BUILD_WAITING)
        return;
    build->ended_upload = true;
    loop_timer_clear(build->builds->o.loop, &build->on_expire);
    build->state = BUILD_RUNNING;
    if (build->received == 0 || (build->text && !plan_needs_context(build)))
        build_listed(build);
    else if (context_list(build, &err) < 0)
        build_fail(build, &err, 0);
}

void build_context_left(struct build *build)
{
    struct brig_err err;

    build->receiving = false;
    build->ready = NULL;
    (void)err_set(&err, BRIG_E_CONFLICT, 0, "the context broke off");
    build_fail(build, &err, 0);
}

/* ---- its members ---------------------------------------- */

static const char *tidy(struct build *build, const char *name)
{
    while (str_starts(name, "./"))
        name += 2;
    name += strspn(name, "/");
    size_t len = strlen(name);
    while (len > 0 && name[len - 1] == '/')
        len--;
    return build_copy(build, name, len);
}

static int room(struct build *build)
{
    size_t cap = build->members_cap ? 2 * build->members_cap : 256;
    struct context_member *more;

    if (build->n_members < build->members_cap)
        return 0;
    if (build->n_members == MEMBERS_MAX)
        return -EMSGSIZE;
    more = mem_realloc(build->members, cap * sizeof *more);
    if (!more)
        return -ENOMEM;
    build->members = more;
    build->members_cap = cap;
    return 0;
}

/* Kind, mode, hashes of content and attributes, the target of a link; times and owners make no difference to a copy. */
static const char *mark_of(struct build *build, const struct json_value *root)
{
    AUTO_BUF struct buf out = BUF_INIT(16384);
    const struct json_value *mode = json_get(root, "mode");

    if (buf_printf(&out, "%s %llo %s %s %s", json_get_text(root, "type", ""),
                   mode && mode->type == JSON_NUMBER ? (unsigned long long)mode->i64 : 0ULL,
                   json_get_text(root, "sha256", ""), json_get_text(root, "xattrs", ""),
                   json_get_text(root, "link", "")) < 0)
        return NULL;
    return build_copy(build, out.data, out.len);
}

static uint64_t number(const struct json_value *root, const char *key)
{
    const struct json_value *v = json_get(root, key);

    return v && v->type == JSON_NUMBER && v->i64 > 0 ? (uint64_t)v->i64 : 0;
}

static void on_line(void *ctx, const char *line, size_t len)
{
    struct build *build = ctx;
    struct json_doc *doc = NULL;
    struct brig_err err = {0};
    int r = json_read(line, len, 4096, &doc, NULL);

    if (r == 0)
        r = room(build);
    if (r == 0) {
        const struct json_value *root = json_root(doc);
        struct context_member *member = &build->members[build->n_members];
        *member = (struct context_member){.name = tidy(build, json_get_text(root, "name", "")),
                                          .mark = mark_of(build, root),
                                          .offset = number(root, "offset"),
                                          .size = number(root, "size"),
                                          .is_file = str_eq(json_get_text(root, "type", ""), "file"),
                                          .is_symlink = str_eq(json_get_text(root, "type", ""), "symlink"),
                                          .is_hardlink = str_eq(json_get_text(root, "type", ""), "hardlink"),
                                          .ignored = json_get_bool(root, "ignored")};
        r = member->name && member->mark ? 0 : -ENOMEM;
        build->n_members += r == 0;
    }
    json_doc_free(doc);
    if (r == 0)
        return;
    if (r == -EMSGSIZE)
        (void)err_set(&err, BRIG_E_TOO_LARGE, 0, "the context has more than %u files", MEMBERS_MAX);
    else
        (void)err_nomem(&err);
    layer_run_stop(build->lister, &err);
}

static void on_listed(void *ctx, const struct layer_run_result *result)
{
    struct build *build = ctx;
    struct brig_err err = {0};

    build->lister = NULL;
    if (result->good) {
        build_listed(build);
        return;
    }
    if (result->err)
        err = *result->err;
    else
        (void)err_set(&err, result->said[0] ? BRIG_E_INVALID : BRIG_E_HOST, 0, "the context: %.400s",
                      result->said[0] ? result->said : result->cause);
    build_fail(build, &err, 0);
}

static int context_list(struct build *build, struct brig_err *err)
{
    const struct builds_options *o = &build->builds->o;
    const char *argv[8] = {"index", "--hash"};
    size_t n = 2;
    for (size_t i = 0; i < build->ignores.n; i++)
        argv[n++] = "--ignore", argv[n++] = build->ignores.items[i];
    argv[n] = "/blob";
    const struct layer_run_spec spec = {.org = build->caller.org_id,
                                        .argv = argv,
                                        .blob = build->context->path,
                                        .timeout_ms = o->config->templates_timeout};
    const struct layer_run_events events = {.line = on_line, .done = on_listed, .ctx = build};

    return layer_run_start(o->manager, o->provider, o->config, &spec, &events, &build->lister, err);
}

int context_read(const struct build *build, const char *name, size_t max, struct buf *out, struct brig_err *err)
{
    size_t i = build->n_members;

    while (i > 0 && !str_eq(build->members[i - 1].name, name))
        i--;
    const struct context_member *member = i > 0 ? &build->members[i - 1] : NULL;
    if (!member || !member->is_file)
        return err_set(err, BRIG_E_NOT_FOUND, 0, "%.200s: the context has no such file", name);
    if (member->size > max)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "%.200s: has more than %zu bytes", name, max);
    *out = BUF_INIT(max + 1);
    if (buf_reserve(out, (size_t)member->size + 1) < 0)
        return err_nomem(err);
    for (size_t at = 0; at < member->size;) {
        ssize_t n =
            pread(build->context->fd, out->data + out->len, (size_t)member->size - at, (off_t)(member->offset + at));
        if (n <= 0)
            return err_set(err, BRIG_E_INVALID, 0, "%.200s: the context ends in it", name);
        buf_commit(out, (size_t)n);
        at += (size_t)n;
    }
    return 0;
}
