/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build.h: builds templates: a list of steps in stages, each over the layers of the ones before it. A front end makes
 * the list (build_plan.c does it from a Dockerfile); the engine runs what the target needs, independent stages side by
 * side, and ends with a template or with one line that says why not.
 *
 *     begin -> WAITING   for the context, if it is to come
 *           -> RUNNING   stages wait for the stages that they need, then go step by step
 *           -> DONE, FAILED, CANCELLED    it is kept for a while, with its log
 *
 * Every step that changes files gives the tar of a layer, and template/layer_make.h makes a layer of it. A RUN is a
 * sandbox of its own. What a step gave is kept per organisation under a key of everything that it depends on
 * (records/images/build_steps.h), so a step whose key is known does not run again. The values of secrets are in no key,
 * no log and no layer, and are wiped when the build is over.
 *
 * A build holds its layers until its template has them; a crash leaves records of steps whose layers are there, and
 * nothing else.
 */
#ifndef BRIG_BUILD_BUILD_H
#define BRIG_BUILD_BUILD_H

#include "audit/audit.h"
#include "records/images/build_steps.h"
#include "template/library.h"

#define BUILD_ID_SIZE 40u
#define BUILD_LOG_MAX (1u << 20) /* One build keeps so many bytes of its log; the oldest lines are dropped. */
#define BUILDS_AT_ONCE 16u       /* that wait or run, in one organisation: BRIG_E_LIMIT */
#define BUILD_NAME_MAX 128u
#define BUILD_SECRET_MAX (64u << 10)

enum build_state { BUILD_WAITING, BUILD_RUNNING, BUILD_DONE, BUILD_FAILED, BUILD_CANCELLED, BUILD_STATE_MAX };
const char *build_state_name(enum build_state state);

struct builds; /* all of this service */
struct build;

struct builds_options {
    struct loop *loop;
    struct workers *workers;
    struct manager *manager;
    struct provider *provider;
    struct templates *templates;
    struct build_steps *steps;
    struct library *library;
    struct audit *audit;
    const struct config *config;
};
int builds_create(const struct builds_options *options, struct builds **ret, struct brig_err *err) MUST_CHECK;
void builds_configure(struct builds *builds, const struct config *config);
/* Where FROM debian-mirror:SUITE comes from (gate/apt_sources.h); takes the text, or NULL. */
void builds_set_sources(struct builds *builds, char *sources);
void builds_stop(struct builds *builds); /* before the library goes; takes NULL */
/* After the store and the workers: what was on its way comes back. Takes NULL. */
void builds_destroy(struct builds *builds);

/* What is asked for. Everything is copied. */
struct build_want {
    const char *name;       /* The template gets this name. */
    const char *dockerfile; /* its text; NULL: it is in the context, */
    size_t dockerfile_len;
    const char *path;     /* there */
    const char *settings; /* the text of template.toml; NULL: with a Dockerfile of the context, the one beside it */
    size_t settings_len;
    const char *target;  /* a stage; NULL: the last one */
    const char *network; /* RUN has this policy; NULL: "packages". */
    /* Objects of texts, or NULL: build arguments, labels over the image's own, secrets by id. */
    const struct json_value *args, *labels, *secrets;
    const struct json_value *limits; /* The sandboxes of RUN have these, as in a create; or NULL. */
    bool no_context;                 /* it begins at once, with an empty one */
    bool no_dockerignore;            /* the context is without what its .dockerignore leaves out already */
    bool no_cache;                   /* no step is taken from the cache */
    const char *lock;                /* the text of a lock: the build must give what it says; or NULL */
    size_t lock_len;
    bool update_lock; /* a lock is made */
    bool replace, shared;
};
/* BRIG_E_FORBIDDEN if the caller may not, BRIG_E_CONFLICT if the name is taken, BRIG_E_LIMIT, BRIG_E_USAGE. */
int build_begin(struct builds *builds, const struct caller *caller, const struct build_want *want, struct build **ret,
                struct brig_err *err) MUST_CHECK;

/*
 * The context, a tar, piece by piece: after each, the next when ready() was called, and build_context_end() after the
 * last. A client that leaves before: build_context_left(). BRIG_E_CONFLICT if it does not wait for one.
 */
int build_context_begin(struct build *build, void (*ready)(void *ctx), void *ctx, struct brig_err *err) MUST_CHECK;
int build_context_data(struct build *build, const void *data, size_t len, struct brig_err *err) MUST_CHECK;
void build_context_end(struct build *build);
void build_context_left(struct build *build);

/* The caller's own builds; an administrator's are those of the organisation, the socket's all. NULL: there is none. */
struct build *builds_find(struct builds *builds, const struct caller *caller, const char *id);
bool builds_has(const struct builds *builds, const char *org, const char *id);  /* Is it one of the organisation's? */
struct build *builds_first(struct builds *builds, const struct caller *caller); /* the newest */
struct build *builds_next(const struct build *build, const struct caller *caller);
/* Ends one that waits or runs; one that is over is forgotten. */
void build_cancel(struct build *build);
void build_json(const struct build *build, struct json *json); /* schema Build */
/* The lock of a build that is done and was asked for one or was made from one; NULL otherwise. */
const char *build_lock_text(const struct build *build, size_t *ret_len);

/* ---- its log: JSON lines ---------------------------------------- */

/* Who follows it. more() is called for every new line, and when the build is over; gone() when it is forgotten. */
struct build_reader {
    void (*more)(void *ctx);
    void (*gone)(void *ctx);
    void *ctx;
    struct build_reader *next, *prev; /* private */
};
void build_follow(struct build *build, struct build_reader *reader);
void build_unfollow(struct build *build, struct build_reader *reader);
/* The lines from *at on, until the next event; *at moves to their end. Lines that are gone are left out. */
const char *build_log(const struct build *build, uint64_t *at, size_t *ret_len);
bool build_is_over(const struct build *build);

struct builds_stats {
    uint64_t running, done, failed, steps, cached;
};
void builds_stats(const struct builds *builds, struct builds_stats *ret);

#endif
