/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_priv.h: what the files behind build.h share.
 *
 *     builds.c        all builds: who may, who sees which, how long they are kept
 *     build_engine.c  one build: its context, its stages side by side, its end
 *     build_plan.c    from a Dockerfile to stages
 *     build_debian.c  FROM debian-mirror:SUITE
 *     build_stage.c   one stage: its base, and step after step
 *     build_image.c   what the image says about itself: ENV, USER, CMD ... and the record of the template
 *     build_settings.c  template.toml
 *     build_words.c   variables, lists and texts of steps
 *     build_key.c     the key of a step in the cache
 *     build_copy.c    COPY and ADD
 *     build_mount.c   RUN --mount
 *     build_bind.c    RUN --mount=type=bind: what is bound, as a layer for this RUN alone
 *     build_files.c   small files of ours as a tar
 *     build_command.c RUN: what runs, and the key of it
 *     build_cache.c   RUN --mount=type=cache: the volumes that keep them
 *     build_run.c     RUN: a sandbox, its output, and what it has changed
 *     build_sink.c    the tar of a layer, on its way into a file
 *     build_log.c     the log
 *     build_lock.c    the lock: what a build was made of, and whether another one is made of the same
 */
#ifndef BRIG_BUILD_BUILD_PRIV_H
#define BRIG_BUILD_BUILD_PRIV_H

#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/str.h"
#include "build/build.h"
#include "codec/dockerfile/dockerfile.h"
#include "codec/json/json.h"
#include "codec/json/json_read.h"
#include "codec/lock/template_lock.h"
#include "crypto/crypto.h"
#include "template/layer_make.h"
#include "template/layer_run.h"
#include "template/spool.h"

#define BUILD_ARENA_MAX (256u << 20)
#define BUILD_WORD_MAX (1u << 20) /* a word after its variables were replaced */
#define BUILD_STAGES_MAX 64u
#define BUILD_NAMES_MAX 16384u         /* variables, labels, ports and volumes: what is set, and what is asked for */
#define BUILD_EXPANDED_MAX (32u << 20) /* all words of a build, after their variables were replaced */
#define BUILD_SIDE_BY_SIDE 2u          /* stages that run at once */
#define BUILD_TAIL 4096u               /* bytes of output that a failure shows */

/* A list in an arena. */
struct build_list {
    const char *const *items;
    size_t n;
    size_t room; /* places of an array that is this list's alone; 0: it may be shared, and a change makes another one */
};

/* What the image says about itself. Copies share their texts. */
struct build_image {
    struct build_list env, args; /* "NAME=value"; args are those of the stage, which the image does not keep */
    struct build_list entrypoint, cmd, shell;
    bool has_entrypoint, has_cmd, has_shell, cmd_is_own;
    struct build_list exposed, volumes;
    struct build_list label_keys, label_values;
    const char *user, *workdir, *stop_signal, *platform;
    const char *health, *settings; /* JSON, or NULL */
};

struct build_layer {
    char name[TEMPLATE_LAYER_NAME], diff_id[LAYER_DIGEST];
    uint64_t bytes;
    unsigned line; /* The line of the step that made it, or of FROM. */
};

enum stage_base { BASE_TEMPLATE, BASE_STAGE, BASE_SCRATCH, BASE_DEBIAN };
enum stage_state {
    STAGE_WAITING,
    STAGE_RUNNING,
    STAGE_PAUSED /* until a stage that its step copies from is done */,
    STAGE_DONE
};

struct build_stage {
    struct build *build;
    size_t index;
    const char *name; /* "" without AS */
    const struct dockerfile_step *from;
    const char *base; /* expanded */
    enum stage_base kind;
    size_t base_stage;
    const struct dockerfile_step *steps;
    size_t n_steps;
    const struct dockerfile_step *last; /* one more, after those that are written; or NULL */
    bool needed, based;                 /* based: its FROM is done */
    bool binds_context;                 /* A RUN of it binds files of the context. */
    enum stage_state state;

    size_t at;     /* the step under way */
    size_t number; /* of it, among all that are done */
    uint64_t began_ns;
    struct build_image image;
    struct build_layer *layers; /* TEMPLATE_LAYERS_MAX of them; each is held */
    size_t n_layers, n_base;    /* n_base: those of its FROM */
    char key[BUILD_STEP_KEY];
    char tail[BUILD_TAIL + 1]; /* the last output of the step */

    /* what is under way */
    struct library_job *pull;
    struct own_run *own; /* mmdebstrap */
    char said[1024];     /* a line of it that has not ended yet, */
    size_t said_len;     /* and its length */
    struct build_run *run;
    struct layer_run *tool;
    struct build_sink *tool_sink;     /* where its output goes: one of the next two */
    struct build_sink *sink, *packed; /* the layer; what it copies of another stage */
    struct copying *copying;
    struct binding *binding; /* the binds of a RUN are made, and then it runs */
    struct build_list bound; /* layers that only a RUN had, held until the build is over */
    struct keying *keying;   /* a thread makes the key of its copy */
    struct layer_wait *wait;
    struct loop_timer on_turn; /* it goes on in the next turn of the loop */
};

struct build_line_log {
    struct buf text;
    uint64_t first; /* the offset of its first byte */
};

struct build {
    struct builds *builds;
    char id[BUILD_ID_SIZE];
    struct caller caller;
    enum build_state state;
    struct arena *arena; /* has all texts; it is wiped */
    const char *name, *path, *target, *network;
    struct build_list args, label_keys, label_values;
    struct build_list args_used; /* build arguments that an ARG has asked for */
    struct build_list secret_ids, secrets;
    struct build_list secret_copies; /* in variables of a RUN; they and the secrets are wiped at the end */
    const struct json_value *limits;
    struct json_doc *limits_doc;
    bool no_cache, replace, shared;
    int64_t created_ns, ended_ns;

    struct build_settings *settings; /* What template.toml says; NULL without one. */
    const char *text;                /* the Dockerfile */
    size_t text_len;
    struct dockerfile *file;
    struct build_list globals; /* ARGs before the first FROM: "NAME=value" */
    struct build_stage *stages;
    size_t n_stages, n_written, goal; /* n_written: those of the Dockerfile; images that are copied from follow */
    struct plan_from *froms;
    size_t n_froms;
    size_t n_steps; /* of all needed stages, for people */
    size_t steps_begun, steps_cached;
    size_t names, expanded; /* what counts for BUILD_NAMES_MAX and BUILD_EXPANDED_MAX */

    /* the context */
    struct work_file *context;
    struct build_list ignores; /* names of files with patterns: the first that is there counts */
    struct spool *spool;
    uint64_t received;
    void (*ready)(void *ctx);
    void *ready_ctx;
    bool receiving, ended_upload;
    struct layer_run *lister;
    struct context_member *members;
    size_t n_members, members_cap;

    uint64_t on_disk, counted; /* the bytes of its files, and those that count in max_disk for them */
    unsigned puts;             /* records of steps on their way */
    unsigned keyings;          /* keys that threads make */
    bool recording;
    struct build_lock *lock;     /* or NULL */
    struct buf lock_text;        /* the lock of a build that is done */
    struct buf lock_paths;       /* the paths of a lock that is made */
    struct loop_timer on_expire; /* while it waits; of one that is over it frees what nobody asks for any more */
    struct brig_err err;
    unsigned err_line;
    const char *err_output; /* the last output of the step that failed; or NULL */
    struct build_line_log log;
    struct build_reader *readers;
    struct build *next;
};

struct builds {
    struct builds_options o;
    struct library_user user;
    struct disk_user disk_user;
    struct build *first; /* the newest */
    struct build_run *runs;
    char *sources; /* the host's apt sources, or NULL */
    bool stopped;  /* The library is gone, or goes. */
    uint64_t done, failed, steps, cached;
};

/* ---- build_words.c ---------------------------------------- */
const char *build_copy(struct build *build, const char *text, size_t len); /* or NULL: out of memory */
static inline const char *build_keep(struct build *build, const char *text)
{
    return build_copy(build, text, strlen(text));
}
int list_add(struct build *build, struct build_list *list, const char *text) MUST_CHECK; /* text is kept, not copied */
/* Puts another text in the place of one. */
int list_put(struct build *build, struct build_list *list, size_t at, const char *text) MUST_CHECK;
/* The same list for another owner, who copies the array before a change. The first owner must not change it again. */
static inline struct build_list list_share(const struct build_list *list)
{
    return (struct build_list){.items = list->items, .n = list->n};
}
int list_take(struct build *build, struct build_list *list, const char *const *items, size_t n) MUST_CHECK; /* copies */
/* Sets NAME=value in a list of such; the place of a name that is there stays. */
int list_set(struct build *build, struct build_list *list, const char *name, const char *value) MUST_CHECK;
const char *list_get(const struct build_list *list, const char *name, size_t len); /* the value, or NULL */
/* Replaces the variables of a word of this step. The message begins with its line. */
int stage_expand(struct build_stage *stage, const struct dockerfile_step *step, const char *text, const char **ret,
                 struct brig_err *err) MUST_CHECK;
/* The same for a here-document, whose quotes stay. */
int stage_expand_here(struct build_stage *stage, const struct dockerfile_step *step, const char *text, const char **ret,
                      struct brig_err *err) MUST_CHECK;
int build_expand_global(struct build *build, const struct dockerfile_step *step, const char *text, const char **ret,
                        struct brig_err *err) MUST_CHECK;
const char *platform_arg(const char *name, size_t len); /* TARGETARCH and its like; or NULL. Until the next call. */
/* A refusal with the line of the step. */
int step_refuse(struct brig_err *err, const struct dockerfile_step *step, const char *format, ...) PRINTF_LIKE(3, 4);
/* Counts what the step sets, for BUILD_NAMES_MAX. */
int step_count(struct build *build, const struct dockerfile_step *step, struct brig_err *err) MUST_CHECK;
const char *step_flag(const struct dockerfile_step *step, const char *name); /* its value, "" without one; or NULL */

/* ---- build_plan.c ---------------------------------------- */
int build_plan(struct build *build, struct brig_err *err) MUST_CHECK;
/* The stage that a step copies from. */
struct plan_from {
    const struct dockerfile_step *step;
    size_t mount; /* the number of a RUN's flag, from 1; 0 for COPY */
    size_t stage;
};
size_t plan_from(const struct build *build, const struct dockerfile_step *step, size_t mount); /* or n_stages */
/* Does a needed stage copy from the context, or bind it? */
bool plan_needs_context(const struct build *build);

/* ---- build_image.c ---------------------------------------- */
/* Takes what a template says. */
int image_from_template(struct build *build, const struct template_info *info, struct build_image *ret,
                        struct brig_err *err) MUST_CHECK;
/* ENV, ARG, USER, LABEL, EXPOSE, VOLUME, ENTRYPOINT, CMD, SHELL, HEALTHCHECK, STOPSIGNAL. */
int image_apply(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err) MUST_CHECK;
/* Writes the record of the template. */
int image_record(struct build_stage *stage, objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;

/* ---- build_settings.c ---------------------------------------- */
/* Reads the text of template.toml and judges it as far as it can be without the base: BRIG_E_USAGE with the line. */
int settings_read(struct build *build, const char *text, size_t len, struct brig_err *err) MUST_CHECK;
/* The one beside the Dockerfile of the context, if there is one. After build_plan(). */
int settings_from_context(struct build *build, struct brig_err *err) MUST_CHECK;
/* Its workdir is made as WORKDIR does, after the last step. Nothing happens without settings. */
void settings_plan(struct build *build);
/* Puts them over what the image says, and over the settings of its base. */
int settings_apply(struct build_stage *stage, struct brig_err *err) MUST_CHECK;

/* ---- build_key.c ---------------------------------------- */
struct build_key;
int key_begin(const struct build_stage *stage, const char *kind, struct build_key **ret) MUST_CHECK;
void key_text(struct build_key *key, const char *what, const char *text);
void key_list(struct build_key *key, const char *what, const struct build_list *list);
int key_end(struct build_key *key, char out[BUILD_STEP_KEY]) MUST_CHECK; /* frees it */

/* ---- build_sink.c ---------------------------------------- */
/*
 * Writes the tar of a layer to a file of ours and hashes it. wrote: so many bytes are in the file; more may come. Never
 * from within.
 */
struct build_sink {
    struct build_stage *stage;
    struct work_file *file;
    struct spool *spool;
    struct crypto_hash *hash;
    uint64_t bytes;
    bool any; /* It has a member. */
    bool ended, over;
    void (*wrote)(struct build_stage *stage, size_t len);
    void (*done)(struct build_stage *stage); /* all of it is in the file */
    struct brig_err err;
};
int sink_create(struct build_stage *stage, void (*wrote)(struct build_stage *stage, size_t len),
                void (*done)(struct build_stage *stage), struct build_sink **ret, struct brig_err *err) MUST_CHECK;
void sink_write(struct build_sink *sink, const void *data, size_t len);
void sink_end(struct build_sink *sink);  /* done() follows */
void sink_free(struct build_sink *sink); /* takes NULL */

/* ---- build_files.c ---------------------------------------- */
struct build_file {
    const char *name, *text;
    size_t len;
    uint32_t mode, uid, gid;
};
int files_add(struct buf *out, const struct build_file *file) MUST_CHECK; /* behind what is there */
int files_end(struct buf *out) MUST_CHECK;                                /* nothing, if there are no files */

/* ---- build_run.c ---------------------------------------- */
/* A RUN: stage_ran() follows, or build_fail(). */
enum mount_kind { MOUNT_BIND, MOUNT_TMPFS, MOUNT_CACHE, MOUNT_SECRET, MOUNT_KIND_MAX };
#define MOUNTS_MAX 16u
#define SECRETS_DIR "/run/secrets"
#define SCRIPT_DIR "/run/script"
struct build_mount {
    enum mount_kind kind;
    bool has_target, required, writable;
    bool own;                      /* A cache that another step has is empty for this one. */
    const char *target, *id, *env; /* id and env: of a secret; or NULL */
    const char *source, *from;     /* A bind may have them; NULL means the root and the context. */
    uint64_t size;
    uint32_t mode, uid, gid;
};
struct run_spec {
    const struct build_mount *mounts; /* of secrets only those that are files */
    size_t n_mounts;
    struct build_list argv, env;
    const struct dockerfile_here *script; /* a file that argv names; or NULL */
    const char *workdir, *user, *network;
};
/* Reads one flag --mount. */
int mount_read(struct build *build, const struct dockerfile_step *step, const char *text, struct build_mount *ret,
               struct brig_err *err) MUST_CHECK;
int mounts_of(struct build_stage *stage, const struct dockerfile_step *step, struct run_spec *ret,
              struct brig_err *err) MUST_CHECK;
/* The secrets that are files, as a tar of SECRETS_DIR; nothing if there are none. */
int mounts_secrets(const struct build *build, const struct run_spec *spec, struct buf *out) MUST_CHECK;
int run_start(struct build_stage *stage, const struct run_spec *spec, struct brig_err *err) MUST_CHECK;

/* ---- build_cache.c ---------------------------------------- */
struct run_cache {
    const char *target;
    char name[64]; /* The name of its volume; "" if it is not kept. */
    bool own;      /* it does not wait for another step */
};
struct run_caches {
    struct run_cache items[MOUNTS_MAX];
    size_t n, at;
    struct cache_wait *wait; /* the volume of items[at] is made */
    char failed[200];        /* why it was not; or "" */
    struct loop_timer timer; /* a volume is another step's */
    void (*ready)(void *ctx);
    void *ctx;
};
/* Adds what a mount asks for. target lives as long as the caches. */
int cache_add(const struct build_stage *stage, const struct build_mount *mount, const char *target,
              struct run_caches *caches) MUST_CHECK;
/* Are all of them there, and no other step's? If not, ready() comes when it is worth to ask again. */
bool caches_ready(struct build *build, struct run_caches *caches);
void caches_forget(struct loop *loop, struct run_caches *caches); /* ready() does not come any more. */

/* ---- build_bind.c ---------------------------------------- */
/* Has the RUN binds? */
bool binds_any(struct build *build, const struct dockerfile_step *step);
/* A RUN with binds: their keys, its own, then their layers, then it. 0 if it is done, 1 if it is under way. */
int binds_start(struct build_stage *stage, const struct dockerfile_step *step, const struct run_spec *spec,
                struct brig_err *err) MUST_CHECK;
int binds_keyed(struct build_stage *stage, struct brig_err *err) MUST_CHECK; /* A thread has made stage->key. */
int binds_make(struct build_stage *stage, struct brig_err *err) MUST_CHECK;  /* The RUN is not in the cache. */
int binds_made(struct build_stage *stage, struct brig_err *err) MUST_CHECK;  /* A layer is on top of the stage. */
void binds_key(const struct build_stage *stage, struct build_key *key);      /* adds what is bound */
void run_forget(struct build_run *run);                                      /* It ends; nobody is called. */
void runs_free(struct builds *builds);

/* ---- build_lock.c ---------------------------------------- */
struct lock_packages {
    struct lock_package *items;
    size_t n, room;
};
struct build_lock {
    char epoch[24];                   /* SOURCE_DATE_EPOCH: no file of the build is younger */
    const struct template_lock *want; /* the lock that it is made from; NULL: a new one is made */
    struct lock_packages have;        /* what the image has at its end, by name */
    struct lock_packages mirror;      /* what FROM debian-mirror:SUITE took, with hashes */
    const struct json_value *path;    /* the next path of the lock that the image should have */
    const char *other_path;           /* the first that differs, and how; or NULL */
    unsigned n_paths;                 /* The paths of a new lock. */
    bool settled;
};
/* text: the lock to build from; NULL: one is made. */
int lock_begin(struct build *build, const char *text, size_t len, struct brig_err *err) MUST_CHECK;
/* The target is done: the packages are read, and all is compared; build_go_on() follows, or the build fails. */
int lock_settle(struct build *build, struct brig_err *err) MUST_CHECK;
int lock_add(struct build *build, struct lock_packages *packages, const struct lock_package *package) MUST_CHECK;
/* The versions that the lock has of the mirror, as apt's preferences; "" without. */
int lock_pins(struct build *build, const char **ret) MUST_CHECK;

/* ---- build_debian.c ---------------------------------------- */
#define DEBIAN_MIRROR "debian-mirror:"
/* Makes the base of the stage. Returns 0 if it was in the cache, 1 if stage_layer() follows. */
int debian_start(struct build_stage *stage, struct brig_err *err) MUST_CHECK;

/* ---- build_stage.c ---------------------------------------- */
void stage_start(struct build_stage *stage);
/* build_copy.c: 0 if it is done, 1 if it is under way. */
int copy_step(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err) MUST_CHECK;
void copy_forget(struct keying *keying); /* Nobody waits for its key any more. */
/* What a RUN binds: it stands over what the image has at its target. */
struct copy_bind {
    const char *source, *target, *above; /* above: the key of the bind before it, or "" */
    const struct build_stage *from;      /* or NULL: the context */
};
/* Makes its key: 0 if stage->key is it, 1 if binds_keyed() follows. *ret is for copy_make(). */
int copy_bind(struct build_stage *stage, const struct dockerfile_step *step, const struct copy_bind *bind,
              struct copying **ret, struct brig_err *err) MUST_CHECK;
int copy_make(struct build_stage *stage, struct copying *copying, struct brig_err *err) MUST_CHECK; /* its layer */
/* What a step came to later, as copy_step() would return it. */
void stage_go_on(struct build_stage *stage, int r, const struct brig_err *err);
/* build_command.c: the same for RUN. */
int run_step(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err) MUST_CHECK;
/* What it binds is known by its keys: it is in the cache, or binds_make() follows. */
int run_with_key(struct build_stage *stage, const struct dockerfile_step *step, struct run_spec *spec,
                 struct brig_err *err) MUST_CHECK;
/* All that it needs is there. */
int run_now(struct build_stage *stage, const struct dockerfile_step *step, struct run_spec *spec,
            struct brig_err *err) MUST_CHECK;
bool stage_is_blocked(const struct build_stage *stage); /* Does its step wait for another stage? */
void stage_resume(struct build_stage *stage);
bool stage_cached(struct build_stage *stage); /* Is it known what the step with stage->key gives? Then it is done. */
bool stage_take(struct build_stage *stage);   /* The same for a part of a step: nobody is told. */
/*
 * brig-layer writes to *sink, with the layers of `view` (or NULL) at /layer, a file of ours at /blob and the disk of a
 * template at OWN_RUN_DISK (each may be NULL). done follows, or the stage fails.
 */
int stage_tool(struct build_stage *stage, const struct build_stage *view, const char *const *argv, const char *blob,
               const char *disk, struct build_sink **sink, void (*done)(struct build_stage *stage),
               struct brig_err *err) MUST_CHECK;
void stage_stop(struct build_stage *stage);    /* What is under way ends. */
void stage_release(struct build_stage *stage); /* its layers */
/* The tar of a layer is complete in stage->sink. */
void stage_layer(struct build_stage *stage);
void stage_unchanged(struct build_stage *stage); /* The step has made no layer. */
void stage_fail(struct build_stage *stage, const struct brig_err *err);

/* ---- build_engine.c ---------------------------------------- */
void build_start(struct build *build); /* the plan is made */
void build_go_on(struct build *build); /* a stage is over */
void build_fail(struct build *build, const struct brig_err *err, unsigned line);
void build_release(struct build *build); /* Nothing is under way any more: the layers of a build that is over go. */

/* ---- build_context.c ---------------------------------------- */
/* A member of the context. */
struct context_member {
    const char *name; /* without "./" and without a slash at either end */
    const char *mark; /* what a copy of it depends on: its kind, mode, attributes, content or target */
    uint64_t offset, size;
    bool is_file, is_symlink, is_hardlink;
    bool ignored; /* .dockerignore leaves it out: no copy has it; a Dockerfile is read all the same */
};
/* Reads a file of it. BRIG_E_NOT_FOUND, BRIG_E_TOO_LARGE. */
int context_read(const struct build *build, const char *name, size_t max, struct buf *out,
                 struct brig_err *err) MUST_CHECK;
void build_listed(struct build *build);

/* ---- builds.c ---------------------------------------- */
void build_free(struct build *build);
/* May the template be called so? It is asked at the beginning, and again at the end: names change meanwhile. */
int build_check_name(const struct build *build, struct brig_err *err) MUST_CHECK;
void build_expect(struct build *build); /* The context begins or goes on within some minutes, or the build fails. */
bool build_is_idle(const struct build *build); /* Nothing of it comes back any more. */
void build_shrink(struct build *build);        /* One that is over keeps its answer and its log only, in a moment. */
/* So many bytes more in its files, or less. BRIG_E_LIMIT: max_disk. */
int build_charge(struct build *build, uint64_t bytes, struct brig_err *err) MUST_CHECK;
void build_uncharge(struct build *build, uint64_t bytes);

/* ---- build_log.c ---------------------------------------- */
void log_step(const struct build_stage *stage, const struct dockerfile_step *step);
void log_cached(const struct build_stage *stage);
void log_ended(const struct build_stage *stage, const struct build_layer *layer); /* layer: NULL for none */
void log_output(struct build_stage *stage, unsigned stream, const void *data, size_t len);
void log_note(struct build *build, const char *event, const char *text);
void log_over(struct build *build);
void log_free(struct build *build);

#endif
