/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_copy.c: COPY and ADD. brig-layer writes the layer in a sandbox: it reads the context, or the part of another
 * stage that it has packed before, and looks at the view of the layers below. Here only the words are read, and the key
 * is made: of all members of the context that a source can match, so that a change of any of them is noticed. A thread
 * does that, because a context may have half a million members.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "build/build_priv.h"

#define WORDS_MAX (DOCKERFILE_MAX_WORDS + 64u)
#define LOOKS_MAX (UINT64_C(1) << 30) /* bytes of sources that are compared with members, for one key: seconds */

struct copying {
    struct build_list sources, excludes;
    const char *dest, *chown, *chmod;
    const struct build_stage *from; /* NULL: the context, or here-documents */
    const struct build_file *here;  /* one for each source; or NULL */
    const char *above;              /* A bind has it (struct copy_bind); else it is NULL. */
};

static int expand_flag(struct build_stage *stage, const struct dockerfile_step *step, const char *name,
                       const char **ret, struct brig_err *err)
{
    const char *text = step_flag(step, name);

    *ret = NULL;
    return text ? stage_expand(stage, step, text, ret, err) : 0;
}

/* Relative to the working directory. What ends with a slash, or with ".", is a directory. */
static int read_dest(struct build_stage *stage, const struct dockerfile_step *step, const char *text,
                     struct copying *ret, struct brig_err *err)
{
    size_t len = strlen(text);
    bool is_dir = len > 0 && (text[len - 1] == '/' || str_eq(text, ".") || (len > 1 && str_eq(text + len - 2, "/.")));
    char path[4096];

    if (!len)
        return step_refuse(err, step, "the destination is empty");
    if (path_clean_absolute(stage->image.workdir, text, path, sizeof path) < 0)
        return step_refuse(err, step, "%.64s: the path is too long", text);
    if (is_dir && !str_eq(path, "/") && strlen(path) < 4095)
        memcpy(path + strlen(path), "/", 2);
    ret->dest = build_keep(stage->build, path);
    return ret->dest ? 0 : err_nomem(err);
}

/* A source is below the root of where it comes from, whatever it says. */
static int read_source(struct build_stage *stage, const struct dockerfile_step *step, const char *text,
                       struct copying *ret, struct brig_err *err)
{
    char path[4096];

    if (strstr(text, "://") || str_starts(text, "git@"))
        return step_refuse(err, step, "%.64s: sources of the network are not supported; use RUN", text);
    if (!text[0])
        return step_refuse(err, step, "a source is empty");
    if (path_clean_absolute("/", text, path, sizeof path) < 0)
        return step_refuse(err, step, "%.64s: the path is too long", text);
    const char *kept = build_keep(stage->build, path[1] ? path + 1 : ".");
    return kept && list_add(stage->build, &ret->sources, kept) == 0 ? 0 : err_nomem(err);
}

/* A here-document is a file that is called like it. */
static int read_here(struct build_stage *stage, const struct dockerfile_step *step, struct copying *ret,
                     struct brig_err *err)
{
    struct build_file *files = arena_alloc(stage->build->arena, step->n_here * sizeof *files);
    int r = files ? 0 : err_nomem(err);

    for (size_t i = 0; r == 0 && i < step->n_here; i++) {
        const struct dockerfile_here *here = &step->here[i];
        const char *text = here->text;
        if (here->expand)
            r = stage_expand_here(stage, step, text, &text, err);
        if (r == 0)
            r = read_source(stage, step, here->name, ret, err);
        if (r == 0)
            files[i] =
                (struct build_file){.name = ret->sources.items[i], .text = text, .len = strlen(text), .mode = 0644};
    }
    ret->here = files;
    return r;
}

static int read_step(struct build_stage *stage, const struct dockerfile_step *step, struct copying *ret,
                     struct brig_err *err)
{
    const char *word;
    size_t from = plan_from(stage->build, step, 0);
    int r = expand_flag(stage, step, "chown", &ret->chown, err);

    ret->from = from < stage->build->n_stages ? &stage->build->stages[from] : NULL;
    if (r == 0)
        r = expand_flag(stage, step, "chmod", &ret->chmod, err);
    for (size_t i = 0; r == 0 && i < step->n_flags; i++)
        if (str_eq(step->flags[i].name, "exclude")) {
            r = stage_expand(stage, step, step->flags[i].value ? step->flags[i].value : "", &word, err);
            if (r == 0 && list_add(stage->build, &ret->excludes, word) < 0)
                r = err_nomem(err);
        }
    if (r == 0 && step->n_here > 0)
        r = read_here(stage, step, ret, err);
    for (size_t i = step->n_here; r == 0 && i < step->n_words; i++) {
        r = stage_expand(stage, step, step->words[i], &word, err);
        if (r == 0)
            r = i + 1 < step->n_words ? read_source(stage, step, word, ret, err)
                                      : read_dest(stage, step, word, ret, err);
    }
    return r;
}

/* ---- the key ---------------------------------------- */

/* Can the source match this member, or something above it? What is before the first wildcard decides. */
static bool may_match(const char *source, const char *name)
{
    size_t len = strcspn(source, "*?[\\");

    if (source[len]) /* a pattern: its directories that have no wildcard */
        while (len > 0 && source[len - 1] != '/')
            len--;
    else if (str_eq(source, "."))
        len = 0;
    if (len == 0)
        return true;
    if (source[len]) /* a pattern in a directory: all below that */
        return strncmp(name, source, len) == 0;
    return strncmp(name, source, len) == 0 && (name[len] == '\0' || name[len] == '/');
}

/* Is the member the source, or a directory on the way to it? */
static bool is_on_way(const char *source, const char *name)
{
    size_t len = strlen(name);

    return strncmp(source, name, len) == 0 && (source[len] == '\0' || source[len] == '/');
}

/*
 * Does the copy read something that has another name than the source says? A symbolic link is followed on the way to a
 * source and at its end, also where a pattern matches it; below a directory it is copied. A hard link has no content.
 */
static bool leads_elsewhere(const struct copying *copying, const struct context_member *member)
{
    for (size_t i = 0; (member->is_symlink || member->is_hardlink) && i < copying->sources.n; i++) {
        const char *source = copying->sources.items[i];
        bool pattern = source[strcspn(source, "*?[\\")];
        if (is_on_way(source, member->name) || ((member->is_hardlink || pattern) && may_match(source, member->name)))
            return true;
    }
    return false;
}

static bool counts(const struct copying *copying, const struct context_member *member)
{
    for (size_t i = 0; i < copying->sources.n; i++)
        if (may_match(copying->sources.items[i], member->name))
            return true;
    return false;
}

static int by_name(const void *a, const void *b)
{
    const struct context_member *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

struct keying {
    struct job job;
    struct build_stage *stage; /* the build stays until the job is done */
    struct build_key *key;
    int error;
    _Atomic bool stop; /* nobody waits for it any more */
};

/* Would it take too long to compare each source with each member? A thread does that, and others need it too. */
static bool takes_long(const struct build *build, const struct copying *copying)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < copying->sources.n; i++)
        bytes += strlen(copying->sources.items[i]) + 1;
    return build->n_members * bytes > LOOKS_MAX;
}

/*
 * The members that count, in the order of their names: the order in the archive makes no difference. All of them count
 * if a link leads somewhere else, or if it would take too long to find those that do.
 */
static int key_members(struct keying *keying)
{
    const struct build *build = keying->stage->build;
    const struct copying *copying = keying->stage->copying;
    AUTO_FREE const struct context_member **found = mem_zalloc((build->n_members + 1) * sizeof *found);
    size_t n = 0;
    bool all = takes_long(build, copying);

    if (!found)
        return -ENOMEM;
    for (size_t i = 0; i < build->n_members && !all && !keying->stop; i++)
        all = leads_elsewhere(copying, &build->members[i]);
    for (size_t i = 0; i < build->n_members && !keying->stop; i++)
        if (all || (!build->members[i].ignored && counts(copying, &build->members[i])))
            found[n++] = &build->members[i];
    qsort(found, n, sizeof *found, by_name);
    for (size_t i = 0; i < n && !keying->stop; i++) {
        key_text(keying->key, "member", found[i]->name);
        key_text(keying->key, "mark", found[i]->mark);
    }
    return 0;
}

static void work(struct job *job)
{
    struct keying *keying = (struct keying *)job;

    keying->error = key_members(keying);
}

static int begin_key(struct build_stage *stage, const struct dockerfile_step *step, struct build_key **ret)
{
    const struct copying *copying = stage->copying;
    int r = key_begin(stage, copying->above ? "bind" : step->op == DOCKERFILE_ADD ? "add" : "copy", ret);

    if (r < 0)
        return r;
    if (copying->above)
        key_text(*ret, "above", copying->above);
    key_text(*ret, "dest", copying->dest);
    key_text(*ret, "chown", copying->chown ? copying->chown : "");
    key_text(*ret, "chmod", copying->chmod ? copying->chmod : "");
    key_list(*ret, "exclude", &copying->excludes);
    key_list(*ret, "source", &copying->sources);
    for (size_t i = 0; copying->here && i < copying->sources.n; i++)
        key_text(*ret, "here", copying->here[i].text);
    return 0;
}

/* ---- the work ---------------------------------------- */

static int start_copy(struct build_stage *stage, const char *blob, struct brig_err *err)
{
    const struct copying *copying = stage->copying;
    AUTO_FREE const char **argv = mem_zalloc(WORDS_MAX * sizeof *argv);
    size_t n = 0;

    if (!argv)
        return err_nomem(err);
    if (2 * copying->excludes.n + copying->sources.n + 24 > WORDS_MAX)
        return err_usage(err, "too many sources");
    argv[n++] = "copy";
    if (copying->chown)
        argv[n++] = "--chown", argv[n++] = copying->chown;
    else if (copying->from)
        argv[n++] = "--keep-owner";
    if (copying->chmod)
        argv[n++] = "--chmod", argv[n++] = copying->chmod;
    if (stage->build->lock && !copying->from) /* files of a context have the time of their checkout */
        argv[n++] = "--mtime", argv[n++] = stage->build->lock->epoch;
    if (copying->above)
        argv[n++] = "--over";
    if (stage->steps[stage->at].op == DOCKERFILE_ADD)
        argv[n++] = "--archives";
    for (size_t i = 0; i < copying->excludes.n; i++)
        argv[n++] = "--exclude", argv[n++] = copying->excludes.items[i];
    for (size_t i = 0; !copying->from && !copying->here && i < stage->build->ignores.n; i++)
        argv[n++] = "--ignore", argv[n++] = stage->build->ignores.items[i];
    argv[n++] = "/blob";
    argv[n++] = "/layer";
    argv[n++] = copying->dest;
    for (size_t i = 0; i < copying->sources.n; i++)
        argv[n++] = copying->sources.items[i];
    return stage_tool(stage, stage, argv, blob, NULL, &stage->sink, stage_layer, err);
}

static void on_packed(struct build_stage *stage)
{
    struct brig_err err = stage->packed->err;

    if (err.code || start_copy(stage, stage->packed->file->path, &err) < 0)
        stage_fail(stage, &err);
}

/* What the sources need of the other stage, as an archive. */
static int start_pack(struct build_stage *stage, struct brig_err *err)
{
    const struct copying *copying = stage->copying;
    AUTO_FREE const char **argv = mem_zalloc((2 * copying->sources.n + 8) * sizeof *argv);
    size_t n = 0;

    if (!argv)
        return err_nomem(err);
    argv[n++] = "pack";
    for (size_t i = 0; i < copying->sources.n; i++)
        argv[n++] = "--only", argv[n++] = copying->sources.items[i];
    argv[n++] = "/layer";
    return stage_tool(stage, copying->from, argv, NULL, NULL, &stage->packed, on_packed, err);
}

static void here_wrote(struct build_stage *stage UNUSED, size_t len UNUSED)
{
}

static int start_here(struct build_stage *stage, struct brig_err *err)
{
    const struct copying *copying = stage->copying;
    AUTO_BUF struct buf tar = BUF_INIT(SPOOL_MAX);
    int r = 0;

    for (size_t i = 0; r == 0 && i < copying->sources.n; i++)
        r = files_add(&tar, &copying->here[i]);
    if (r == 0)
        r = files_end(&tar);
    if (r < 0)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "the here-documents have more than %u MiB", SPOOL_MAX >> 20);
    r = sink_create(stage, here_wrote, on_packed, &stage->packed, err);
    if (r < 0)
        return r;
    sink_write(stage->packed, tar.data, tar.len);
    sink_end(stage->packed);
    return 0;
}

int copy_make(struct build_stage *stage, struct copying *copying, struct brig_err *err)
{
    int r;

    stage->copying = copying;
    r = stage->copying->from   ? start_pack(stage, err)
        : stage->copying->here ? start_here(stage, err)
                               : start_copy(stage, stage->build->context->path, err);
    return r < 0 ? r : 1;
}

/* The key is known. 0 if the step is done, 1 if it is under way. */
static int with_key(struct build_stage *stage, struct brig_err *err)
{
    return stage_cached(stage) ? 0 : copy_make(stage, stage->copying, err);
}

static void on_keyed(struct job *job)
{
    AUTO_FREE struct keying *keying = (struct keying *)job;
    struct build_stage *stage = keying->stage;
    struct build *build = stage->build;
    struct brig_err err = {0};
    int ended = key_end(keying->key, stage->key);

    build->keyings--;
    if (keying->stop) {
        build_release(build); /* it is over, and may have waited for this */
        return;
    }
    stage->keying = NULL;
    stage_go_on(stage,
                keying->error < 0 || ended < 0 ? err_nomem(&err)
                : stage->binding               ? binds_keyed(stage, &err)
                                               : with_key(stage, &err),
                &err);
}

void copy_forget(struct keying *keying)
{
    keying->stop = true;
}

/* A thread makes the key of the files of the context. */
static int key_of_context(struct build_stage *stage, struct build_key *key, struct brig_err *err)
{
    struct keying *keying = mem_zalloc(sizeof *keying);

    if (!keying) {
        (void)!key_end(key, stage->key);
        return err_nomem(err);
    }
    *keying = (struct keying){.job = {.work = work, .done = on_keyed}, .stage = stage, .key = key};
    stage->keying = keying;
    stage->build->keyings++;
    workers_add_bounded(stage->build->builds->o.workers, workers_owner(stage->build->caller.org_id), &keying->job);
    return 1;
}

/* 0 if the key of stage->copying is made, 1 if a thread makes it. */
static int start_key(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    const struct copying *copying = stage->copying;
    const bool of_context = !copying->from && !copying->here;
    struct build_key *key = NULL;

    if (of_context && !stage->build->context)
        return step_refuse(err, step, "the build has no context to copy from");
    if (begin_key(stage, step, &key) < 0)
        return err_nomem(err);
    if (of_context)
        return key_of_context(stage, key, err);
    for (size_t i = 0; copying->from && i < copying->from->n_layers; i++)
        key_text(key, "from", copying->from->layers[i].name);
    return key_end(key, stage->key) < 0 ? err_nomem(err) : 0;
}

int copy_step(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    struct copying *copying = arena_alloc(stage->build->arena, sizeof *copying);

    if (!copying)
        return err_nomem(err);
    *copying = (struct copying){.dest = NULL};
    stage->copying = copying;
    int r = read_step(stage, step, copying, err);
    if (r == 0)
        r = start_key(stage, step, err);
    return r != 0 ? r : with_key(stage, err);
}

/* A source that is a path, not a pattern. */
static const char *quote(struct build *build, const char *text)
{
    AUTO_BUF struct buf out = BUF_INIT(16384);

    for (; *text; text++)
        if ((strchr("*?[\\", *text) && buf_append_str(&out, "\\") < 0) || buf_append(&out, text, 1) < 0)
            return NULL;
    return build_copy(build, out.len > 0 ? out.data : "", out.len);
}

int copy_bind(struct build_stage *stage, const struct dockerfile_step *step, const struct copy_bind *bind,
              struct copying **ret, struct brig_err *err)
{
    struct copying *copying = arena_alloc(stage->build->arena, sizeof *copying);
    const char *source = quote(stage->build, bind->source);

    if (!copying || !source)
        return err_nomem(err);
    *copying = (struct copying){.dest = bind->target, .from = bind->from, .above = bind->above};
    stage->copying = *ret = copying;
    int r = read_source(stage, step, source, copying, err);
    return r < 0 ? r : start_key(stage, step, err);
}
