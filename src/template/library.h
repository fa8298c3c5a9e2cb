/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library.h: makes templates from images: it loads an archive that a client sends, or pulls from a registry. A job is
 * one of these: it reports progress, ends with a template or with one line that says why not, and leaves nothing but
 * the template (a pull that fails also leaves its downloads, for the next one). The record of a template is written
 * last, so a name never stands for layers that are not there.
 */
#ifndef BRIG_TEMPLATE_LIBRARY_H
#define BRIG_TEMPLATE_LIBRARY_H

#include "loop/workers.h"
#include "records/images/registries.h"
#include "records/templates.h"
#include "sandbox/manager.h"

struct library;
struct library_options {
    struct loop *loop;
    struct workers *workers;
    struct manager *manager;
    struct provider *provider;
    struct templates *templates;
    const struct config *config;
    struct registries *registries; /* logins */
    struct build_steps *steps;     /* what builds have kept */
    const char *path;              /* STATE/templates, whose directories `blobs` and `work` are ours */
    /* A template of `[templates] pull` is there now, or why not. name is "" on failure. */
    void (*wanted)(void *ctx, const char *reference, const char *name, const struct brig_err *err);
    void *ctx;
};
int library_create(const struct library_options *options, struct library **ret, struct brig_err *err) MUST_CHECK;
/* The manager knows what lives: what an earlier life left is removed. */
void library_ready(struct library *library);
void library_configure(struct library *library, const struct config *config);
void library_destroy(struct library *library); /* before the manager */

/* May the caller load archives, and so make templates of its own? BRIG_E_FORBIDDEN. */
int library_may_load(const struct library *library, const struct caller *caller, struct brig_err *err) MUST_CHECK;

struct library_want {
    const char *name;     /* NULL: what the archive or the reference says */
    const char *platform; /* "linux/arm64"; NULL: this machine's */
    bool replace;         /* A template that has the name gives it up. */
    bool shared;          /* Every organisation sees it: only for the socket's administrator. */
    bool follows;         /* library_pull() sets it: the name is that of an earlier pull of the same reference. */
};

struct library_progress {
    const char *step;  /* "download", "unpack", "unpacked", "found" */
    const char *layer; /* its digest */
    size_t number, of; /* 1 to of */
    uint64_t at, size; /* bytes; size 0: not known */
};

struct library_events {
    void (*progress)(void *ctx, const struct library_progress *progress);
    /* The last call: the template, or why there is none. Never from within another call. */
    void (*done)(void *ctx, const struct object *object, const struct brig_err *err);
    void *ctx;
};

struct library_job;
/* done is not called. What it made is removed; a download that was begun stays for the next time. */
void library_cancel(struct library_job *job);

/*
 * Loads an archive: an OCI layout, `docker save`, or the tar of a root file system. BRIG_E_FORBIDDEN if the caller may
 * not, BRIG_E_CONFLICT if the name is taken. The bytes are given one piece after the other: after each, the next when
 * ready() was called, and library_load_end() after the last.
 */
int library_load(struct library *library, const struct caller *caller, const struct library_want *want,
                 const struct library_events *events, struct library_job **ret, struct brig_err *err) MUST_CHECK;
int library_load_data(struct library_job *job, const void *data, size_t len, void (*ready)(void *ctx),
                      struct brig_err *err) MUST_CHECK;
void library_load_end(struct library_job *job);

/* Pulls an image from a registry. Pulling the same image again moves its name to what the registry has by now. */
int library_pull(struct library *library, const struct caller *caller, const char *reference,
                 const struct library_want *want, const struct library_events *events, struct library_job **ret,
                 struct brig_err *err) MUST_CHECK;

/* ---- for the room above, which builds templates -------------------------------------------------------- */

struct maker *library_maker(const struct library *library);
/* May the caller build (`[templates] allow` ORGANISATION=build) and share? BRIG_E_FORBIDDEN. */
int library_may_build(const struct library *library, const struct caller *caller, bool shared,
                      struct brig_err *err) MUST_CHECK;

/* A file of `work`, which is gone after a crash or library_file_done(). */
struct work_file {
    char name[40], path[4096];
    int fd;
    struct work_file *next; /* private */
};
int library_file(struct library *library, const char *prefix, struct work_file **ret, struct brig_err *err) MUST_CHECK;
void library_file_done(struct library *library, struct work_file *file); /* takes NULL */

/* An empty directory, for overlays over nothing. */
const char *library_empty(const struct library *library);

/* Somebody whose runs of brig-layer have a new layer of their own. */
struct library_user {
    bool (*is_busy)(void *ctx, const char *new_layer);
    void *ctx;
    struct library_user *next; /* private */
};
void library_add_user(struct library *library, struct library_user *user); /* for as long as the library lives */

/* How many templates there are, how many bytes their layers have, each counted once. */
struct library_stats {
    uint64_t templates, layers, bytes, jobs, made, failed;
};
void library_stats(const struct library *library, struct library_stats *ret);
void library_collect(struct library *library); /* soon, and quietly: layers that nothing needs */
/* Removes layers that nothing needs, and what the caller's organisation (for the socket: all) downloaded and did not
 * use. */
int library_prune(struct library *library, const struct caller *caller,
                  void (*done)(void *ctx, size_t layers, const struct brig_err *err), void *ctx,
                  struct brig_err *err) MUST_CHECK;

#endif
