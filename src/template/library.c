/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library.c: the library and its jobs (library.h): who may begin one, what its template will be called, how it ends,
 * and what is collected.
 */
#include "template/library.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/dir.h"
#include "base/id.h"
#include "codec/docker_login.h"
#include "template/export.h"
#include "template/library_priv.h"

#define JOBS_PER_ORG 16u /* each has a sandbox, and up to max_image bytes of the disk */
#define COLLECT_NS (UINT64_C(300) * NS_PER_SEC)
#define FIRST_COLLECT_NS (UINT64_C(2) * NS_PER_SEC) /* and then four times as long each, up to COLLECT_NS */
#define SETTLE_NS (UINT64_C(100) * NS_PER_MS)
#define PART_KEEP_S (INT64_C(7) * 86400) /* a download that nobody went on with */

/* ---- who may ---------------------------------------- */

/*
 * A word of [templates] allow: ORGANISATION=load, ORGANISATION=build, or ORGANISATION=PREFIX of the images that it may
 * pull.
 */
static bool word_allows(const char *word, size_t len, const char *org, const struct image_ref *ref, const char *verb)
{
    char prefix[IMAGE_REF_TEXT];
    size_t n = strlen(org);

    if (len <= n + 1 || memcmp(word, org, n) != 0 || word[n] != '=' || len - n - 1 >= sizeof prefix)
        return false;
    memcpy(prefix, word + n + 1, len - n - 1);
    prefix[len - n - 1] = '\0';
    return ref ? image_ref_below(ref, prefix) : str_eq(prefix, verb);
}

/* Has [templates] allow a word for the organisation? */
static bool words_allow(const struct library *library, const char *org, const struct image_ref *ref, const char *verb)
{
    for (const char *at = library->o.config->templates_allow; *(at += strspn(at, " "));) {
        size_t len = strcspn(at, " ");
        if (word_allows(at, len, org, ref, verb))
            return true;
        at += len;
    }
    return false;
}

static bool is_allowed(const struct library *library, const struct caller *caller, const struct image_ref *ref,
                       const char *verb)
{
    return caller_is_admin(caller) ||
           (caller->role == STORE_ROLE_USER && words_allow(library, caller->org_id, ref, verb));
}

int library_may_build(const struct library *library, const struct caller *caller, bool shared, struct brig_err *err)
{
    int r = library_may_share(library, caller, shared, err);

    if (r < 0 || is_allowed(library, caller, NULL, "build"))
        return r;
    return err_set(err, BRIG_E_FORBIDDEN, 0, "only an administrator may build templates ([templates] allow)");
}

bool library_may_private(const struct library *library, const struct caller *caller, const struct image_ref *ref)
{
    return policy_may_private(caller_standing(caller), library->o.config) ||
           words_allow(library, caller->org_id, ref, "load");
}

int library_may(const struct library *library, const struct caller *caller, const struct image_ref *ref,
                struct brig_err *err)
{
    if (is_allowed(library, caller, ref, "load"))
        return 0;
    return ref ? err_set(err, BRIG_E_FORBIDDEN, 0, "%s/%s: only an administrator may pull it ([templates] allow)",
                         ref->host, ref->repository)
               : err_set(err, BRIG_E_FORBIDDEN, 0, "only an administrator may load templates ([templates] allow)");
}

int library_may_load(const struct library *library, const struct caller *caller, struct brig_err *err)
{
    return library_may(library, caller, NULL, err);
}

int library_name_of(const struct image_ref *ref, char out[TEMPLATE_NAME_MAX])
{
    const char *slash = strrchr(ref->repository, '/'), *last = slash ? slash + 1 : ref->repository;
    bool plain = !ref->tag[0] || str_eq(ref->tag, "latest");
    char name[IMAGE_REPOSITORY + IMAGE_TAG];
    int r = str_format(name, sizeof name, "%s%s%s", last, plain ? "" : ":", plain ? "" : ref->tag);

    return r < 0 ? r : template_name(name, out, NULL);
}

/* ---- jobs ---------------------------------------- */

int job_set_name(struct library_job *job, const char *name, struct brig_err *err)
{
    int r = template_name(name, job->name, err);

    if (r < 0)
        return r;
    const struct object *other =
        objects_find(templates_objects(job->library->o.templates), job->caller.org_id, job->name);
    if (other && !job->replace && !job->follows)
        return err_set(err, BRIG_E_CONFLICT, 0, "template %s: there is one of this name; replace it, or choose another",
                       job->name);
    /* Administrators use names too, with directories and secrets that a user key may not have. */
    if (!caller_is_admin(&job->caller) && !job->follows &&
        sbox_template_check(job->name, job->library->o.config, job->library->o.templates, &job->caller, NULL) == 0)
        return err_set(err, BRIG_E_FORBIDDEN, 0,
                       "template %s: the name means something already; only an administrator changes that", job->name);
    return 0;
}

int library_may_share(const struct library *library, const struct caller *caller, bool shared, struct brig_err *err)
{
    if (!shared)
        return 0;
    if (!caller->socket || !str_eq(caller->org_id, templates_shared_org(library->o.templates)))
        return err_set(err, BRIG_E_FORBIDDEN, 0,
                       "shared: only the administrator of the host shares templates with all organisations");
    return 0;
}

static void on_turn(struct loop_timer *timer)
{
    struct library_job *job = timer->ctx;
    const struct library_events events = job->events;
    const struct brig_err err = job->err;

    job->library->failed++;
    job_free(job);
    events.done(events.ctx, NULL, &err);
}

static size_t jobs_of(const struct library *library, const char *org)
{
    size_t n = 0;

    for (const struct library_job *job = library->jobs; job; job = job->next)
        n += str_eq(job->caller.org_id, org);
    return n;
}

int job_new(struct library *library, const struct caller *caller, const struct library_want *want,
            const struct library_events *events, struct library_job **ret, struct brig_err *err)
{
    if (jobs_of(library, caller->org_id) >= JOBS_PER_ORG)
        return err_set(err, BRIG_E_LIMIT, 0, "the organisation makes %u templates already; wait for one of them",
                       JOBS_PER_ORG);
    struct library_job *job = mem_zalloc(sizeof *job);

    if (!job)
        return err_nomem(err);
    *job = (struct library_job){.library = library,
                                .caller = *caller,
                                .replace = want->replace,
                                .follows = want->follows,
                                .shared = want->shared,
                                .events = *events,
                                .left_bytes = library->o.config->templates_max_image,
                                .fd = -1,
                                .on_turn = {.fn = on_turn, .ctx = job},
                                .next = library->jobs};
    library->jobs = job;
    platform_host(&job->platform);
    int r = library_may_share(library, caller, want->shared, err);
    if (r == 0 && want->platform)
        r = platform_parse(want->platform, &job->platform, err);
    if (r == 0 && want->name)
        r = job_set_name(job, want->name, err);
    if (r < 0)
        job_free(job);
    else
        *ret = job;
    return r;
}

/* Mirrors and proxies are those of the configuration, once no job has a call of the old ones. */
static void renew_dist(struct library *library)
{
    struct dist *dist = NULL;

    if (!library->dist_old || library->jobs)
        return;
    if (library->o.config->templates_registries &&
        dist_open(library->o.config, library->o.loop, library->blobs_fd, &dist, NULL) < 0)
        return; /* the old one goes on; the next job tries again */
    dist_destroy(library->dist);
    library->dist = dist;
    library->dist_old = false;
}

void job_free(struct library_job *job)
{
    struct library *library = job->library;

    for (struct library_job **at = &library->jobs; *at; at = &(*at)->next)
        if (*at == job) {
            *at = job->next;
            break;
        }
    loop_timer_clear(library->o.loop, &job->on_turn);
    if (job->wait)
        layer_wait_cancel(job->wait);
    if (job->indexing)
        layer_run_forget(job->indexing);
    if (job_release(job) && !job->done)
        library_collect(library); /* what it had made is of no use */
    if (job->undo)
        job->undo(job);
    if (!library->jobs)
        renew_dist(library);
    spool_free(job->spool);
    base_close_fd(&job->fd);
    registry_login_done(&job->login);
    archive_free(job->archive);
    image_config_free(job->config);
    mem_free(job->layers);
    mem_free(job);
}

void job_fail(struct library_job *job, const struct brig_err *err)
{
    if (job->err.code)
        return; /* the first reason is the one that is told */
    job->err = *err;
    if (job->wait)
        layer_wait_cancel(take_ptr(&job->wait));
    if (job->indexing)
        layer_run_forget(take_ptr(&job->indexing));
    (void)!loop_timer_set(job->library->o.loop, &job->on_turn, clock_mono_ns(), NULL);
}

void library_cancel(struct library_job *job)
{
    job->cancelled = true;
    if (!job->recording) /* else who comes back frees it */
        job_free(job);
}

bool job_login(void *ctx, const char *host, struct dist_login *ret)
{
    struct library_job *job = ctx;

    registry_login_done(&job->login);
    if (!job->library->o.registries ||
        registries_login(job->library->o.registries, job->caller.org_id, host, &job->login) <= 0)
        return false;
    if (str_eq(job->login.user, DOCKER_TOKEN_USER))
        *ret = (struct dist_login){.identity_token = job->login.password};
    else
        *ret = (struct dist_login){.user = job->login.user, .password = job->login.password};
    return true;
}

/* ---- collecting ---------------------------------------- */

/* Files of jobs that are over. owner: only those whose name begins with it. keep_s: how old a part may be that a
 * download left. */
static void sweep(const struct library *library, int dir_fd, const char *owner, int64_t keep_s)
{
    AUTO_DIR DIR *dir = dir_open(dir_fd, ".");
    struct stat st;

    for (const struct dirent *entry; (entry = dir_next(dir));) {
        bool ours = false;
        for (const struct library_job *job = library->jobs; job && !ours; job = job->next)
            ours = str_eq(job->upload, entry->d_name) || str_eq(job->packed, entry->d_name);
        for (const struct work_file *file = library->files; file && !ours; file = file->next)
            ours = str_eq(file->name, entry->d_name);
        if (ours || !str_starts(entry->d_name, owner) || entry->d_name[0] == '.' ||
            fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
            clock_real_ns() / (int64_t)NS_PER_SEC - st.st_mtime < keep_s)
            continue;
        (void)unlinkat(dir_fd, entry->d_name, 0);
    }
}

void library_collect(struct library *library)
{
    (void)!maker_collect(library->maker, NULL, NULL, NULL);
}

static void on_collect(struct loop_timer *timer)
{
    struct library *library = timer->ctx;

    const bool settled = manager_is_settled(library->o.manager); /* else sandboxes of an earlier life still end */

    if (settled) {
        sweep(library, library->work_fd, "", 0);
        (void)build_steps_forget(library->o.steps, NULL, false, NULL, NULL);
        library_collect(library);
        /* A layer that is in use just after a start stays, so the next times follow soon. */
        library->collect_ns = library->collect_ns == 0 ? FIRST_COLLECT_NS : library->collect_ns * 4;
        if (library->collect_ns > COLLECT_NS)
            library->collect_ns = COLLECT_NS;
    }
    (void)!loop_timer_set(library->o.loop, timer, clock_mono_ns() + (settled ? library->collect_ns : SETTLE_NS), NULL);
}

int library_prune(struct library *library, const struct caller *caller,
                  void (*done)(void *ctx, size_t layers, const struct brig_err *err), void *ctx, struct brig_err *err)
{
    AUTO_FD int blobs = openat(library->blobs_fd, "sha256", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    sweep(library, library->work_fd, "", 0);
    if (blobs >= 0 && !library->jobs)
        sweep(library, blobs, caller->socket ? "" : caller->org_id, 0);
    return maker_collect(library->maker, done, ctx, err);
}

/* ---- life ---------------------------------------- */

/* The directory above them is root's: it can be passed, and not read. */
static int open_dir(const struct library *library, const char *name, int *ret, struct brig_err *err)
{
    char path[4096];

    if (str_format(path, sizeof path, "%s/%s", library->path, name) < 0)
        return err_usage(err, "%s: too long", library->path);
    *ret = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return *ret < 0 ? err_host(err, "%s", path) : 0;
}

static int open_dirs(struct library *library, struct brig_err *err)
{
    int r = open_dir(library, "work", &library->work_fd, err);

    if (r == 0)
        r = open_dir(library, "blobs", &library->blobs_fd, err);
    if (r == 0 && mkdirat(library->blobs_fd, ".empty", 0755) < 0 && errno != EEXIST)
        r = err_host(err, "%s/blobs/.empty", library->path);
    if (r == 0 && str_format(library->empty, sizeof library->empty, "%s/blobs/.empty", library->path) < 0)
        r = err_usage(err, "%s: too long", library->path);
    return r;
}

/* The new layer of a run that reads an archive. */
static bool is_busy(void *ctx, const char *name)
{
    const struct library *library = ctx;

    for (const struct library_job *job = library->jobs; job; job = job->next)
        if (job->indexing && layer_run_has_scratch(job->indexing, name))
            return true;
    for (const struct library_user *user = library->users; user; user = user->next)
        if (user->is_busy(user->ctx, name))
            return true;
    return export_has_scratch(library, name);
}

void library_add_user(struct library *library, struct library_user *user)
{
    user->next = library->users;
    library->users = user;
}

struct maker *library_maker(const struct library *library)
{
    return library->maker;
}

const char *library_empty(const struct library *library)
{
    return library->empty;
}

/* ---- files of others ---------------------------------------- */

int library_file(struct library *library, const char *prefix, struct work_file **ret, struct brig_err *err)
{
    struct work_file *file = mem_zalloc(sizeof *file);
    char id[ID_SANDBOX_SIZE];

    if (!file)
        return err_nomem(err);
    int r = id_sandbox(id) < 0 || str_format(file->name, sizeof file->name, "%s-%s", prefix, id) < 0 ||
                    str_format(file->path, sizeof file->path, "%s/work/%s", library->path, file->name) < 0
                ? err_set(err, BRIG_E_HOST, EIO, "the name of a file")
                : 0;
    if (r == 0) {
        file->fd = spool_file(library->work_fd, file->name, O_RDWR | O_EXCL); /* root inside has another id */
        r = file->fd < 0 ? err_host(err, "a file for a layer") : 0;
    }
    if (r < 0) {
        mem_free(file);
        return r;
    }
    file->next = library->files;
    library->files = file;
    *ret = file;
    return 0;
}

void library_file_done(struct library *library, struct work_file *file)
{
    if (!file)
        return;
    for (struct work_file **at = &library->files; *at; at = &(*at)->next)
        if (*at == file) {
            *at = file->next;
            break;
        }
    (void)unlinkat(library->work_fd, file->name, 0);
    base_close_fd(&file->fd);
    mem_free(file);
}

int library_create(const struct library_options *options, struct library **ret, struct brig_err *err)
{
    struct library *library = mem_zalloc(sizeof *library);

    if (!library)
        return err_nomem(err);
    library->o = *options;
    library->work_fd = library->blobs_fd = -1;
    library->on_collect = (struct loop_timer){.fn = on_collect, .ctx = library};
    int r = str_copy(library->path, sizeof library->path, options->path) < 0
                ? err_usage(err, "%s: too long", options->path)
                : open_dirs(library, err);
    if (r == 0) {
        const struct maker_options maker = {.loop = options->loop,
                                            .manager = options->manager,
                                            .provider = options->provider,
                                            .templates = options->templates,
                                            .steps = options->steps,
                                            .config = options->config,
                                            .work_dir_fd = library->work_fd,
                                            .is_busy = is_busy,
                                            .ctx = library};
        r = maker_create(&maker, &library->maker, err);
    }
    if (r == 0 && options->config->templates_registries)
        r = dist_open(options->config, options->loop, library->blobs_fd, &library->dist, err);
    if (r < 0)
        library_destroy(library);
    else
        *ret = library;
    return r;
}

void library_ready(struct library *library)
{
    AUTO_FD int blobs = openat(library->blobs_fd, "sha256", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (blobs >= 0)
        sweep(library, blobs, "", PART_KEEP_S);
    on_collect(&library->on_collect);
    library_want_all(library);
}

void library_configure(struct library *library, const struct config *config)
{
    library->o.config = config;
    maker_configure(library->maker, config);
    library->dist_old = library->dist != NULL; /* brigd may connect only if it could from its start */
    renew_dist(library);
    library_want_all(library);
}

void library_destroy(struct library *library)
{
    if (!library)
        return;
    library->dist_old = false;
    while (library->jobs)
        job_free(library->jobs);
    while (library->exports)
        export_cancel(library->exports);
    loop_timer_clear(library->o.loop, &library->on_collect);
    maker_destroy(library->maker);
    dist_destroy(library->dist);
    base_close_fd(&library->work_fd);
    base_close_fd(&library->blobs_fd);
    mem_free(library);
}

/* ---- numbers ---------------------------------------- */

struct counting {
    const struct library *library;
    struct library_stats *out;
};

static bool count(void *ctx, const struct object *object)
{
    const struct counting *counting = ctx;
    const struct template_info *info = template_of(object);
    size_t index;

    counting->out->templates++;
    for (size_t i = 0; i < info->n_layers; i++) {
        /* A layer is counted with the first template that has it. */
        if (templates_with_layer(counting->library->o.templates, NULL, info->layers[i], &index) != object || index != i)
            continue;
        counting->out->layers++;
        counting->out->bytes += info->sizes[i];
    }
    return true;
}

void library_stats(const struct library *library, struct library_stats *ret)
{
    struct counting counting = {.library = library, .out = ret};

    *ret = (struct library_stats){.made = library->made, .failed = library->failed};
    for (const struct library_job *job = library->jobs; job; job = job->next)
        ret->jobs++;
    objects_each(templates_objects(library->o.templates), count, &counting);
}
