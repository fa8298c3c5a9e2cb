/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library_priv.h: what the files behind library.h share. A job goes through these, and only forwards:
 *
 *     the image's documents   library_load.c (from an archive), library_pull.c (from a registry)
 *     its layers, lowest first, each as soon as its bytes are there     library_image.c
 *     the record                                                        library_image.c
 */
#ifndef BRIG_TEMPLATE_LIBRARY_PRIV_H
#define BRIG_TEMPLATE_LIBRARY_PRIV_H

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "template/archive.h"
#include "template/distribution.h"
#include "template/layer_run.h"
#include "template/layer_make.h"
#include "template/library.h"
#include "template/manifest.h"
#include "template/platform.h"
#include "codec/reference.h"
#include "template/spool.h"

#define WORK_NAME 40u

struct library {
    struct library_options o;
    char path[4000];
    char empty[4096];
    int work_fd, blobs_fd;
    struct maker *maker;
    struct dist *dist; /* NULL: no registries are asked */
    bool dist_old;     /* The configuration says another one; it is made when no job uses this one. */
    struct library_job *jobs;
    struct work_file *files;
    struct library_user *users;
    struct export *exports; /* export.c */
    struct loop_timer on_collect;
    uint64_t collect_ns;        /* until the next time */
    struct library_job *wanted; /* library_wanted.c: the pull that is under way, or NULL */
    size_t wanted_at;           /* so many bytes of the list were looked at */
    char wanting[IMAGE_REF_TEXT];
    uint64_t made, failed;
};

struct job_layer {
    char digest[LAYER_DIGEST];  /* for progress; of the bytes as they came */
    char diff_id[LAYER_DIGEST]; /* "": not known before */
    char name[TEMPLATE_LAYER_NAME];
    char path[4096]; /* the file that has its bytes */
    uint64_t offset, size;
    const char *format; /* or NULL */
    bool whole;         /* all of the file, not a part */
    bool ready;         /* the bytes are there */
    bool held;
    bool early; /* It was there when the pull began, and is held since. */
    uint64_t bytes;
};

struct library_job {
    struct library *library;
    struct caller caller;
    char name[TEMPLATE_NAME_MAX]; /* "" until it is known */
    bool replace, shared;
    bool follows; /* the name is that of an earlier pull of the same reference */
    struct platform platform;
    const char *source; /* "load", "pull" */
    char reference[IMAGE_REF_TEXT], digest[LAYER_DIGEST];
    struct library_events events;
    struct image_config *config; /* NULL: a plain root file system */
    size_t n_layers, at;
    uint64_t left_bytes; /* of [templates] max_image */
    struct job_layer *layers;
    struct layer_wait *wait;
    bool recording, cancelled, done;
    struct loop_timer on_turn; /* the end is told in a turn of its own */
    struct brig_err err;
    void (*undo)(struct library_job *job); /* removes what the source of the image left; or NULL */

    /* load */
    char upload[WORK_NAME]; /* in work; "" when it is gone */
    int fd;
    uint64_t received;
    struct spool *spool;
    char packed[WORK_NAME]; /* the upload, while it is made plain into another file */
    bool many_members;
    void (*ready)(void *ctx);
    struct layer_run *indexing;
    struct archive *archive;

    struct pull *pull;           /* library_pull.c */
    struct registry_login login; /* while a call is asked for */

    struct library_job *next;
};

/* ---- library.c ---- */
int job_new(struct library *library, const struct caller *caller, const struct library_want *want,
            const struct library_events *events, struct library_job **ret, struct brig_err *err) MUST_CHECK;
void job_free(struct library_job *job);
/* It has failed: what it has is given back, and the reason is told in a turn of its own. */
void job_fail(struct library_job *job, const struct brig_err *err);
/* The name is chosen when the image is known. BRIG_E_CONFLICT if it is taken. */
int job_set_name(struct library_job *job, const char *name, struct brig_err *err) MUST_CHECK;

/* Only the host's administrator shares. BRIG_E_FORBIDDEN. */
int library_may_share(const struct library *library, const struct caller *caller, bool shared,
                      struct brig_err *err) MUST_CHECK;
/* May the caller load (ref NULL) or pull this image? BRIG_E_FORBIDDEN. */
int library_may(const struct library *library, const struct caller *caller, const struct image_ref *ref,
                struct brig_err *err) MUST_CHECK;
/*
 * May the image's registry have a private address? So it is for a caller whose policies may name private ranges, and
 * for images that [templates] allow names for the organisation.
 */
bool library_may_private(const struct library *library, const struct caller *caller, const struct image_ref *ref);
/* What an image is called here: the last part of its path, and the tag unless that is "latest". */
int library_name_of(const struct image_ref *ref, char out[TEMPLATE_NAME_MAX]) MUST_CHECK;

/* ---- library_wanted.c ---- */
void library_want_all(struct library *library);

/* The login of the job's organisation at a registry: for struct dist_ask; ctx is the job. */
bool job_login(void *ctx, const char *host, struct dist_login *ret);

/* ---- library_image.c ---- */
/* So many layers; fill them in, and call job_unpack() whenever one is ready. */
int job_layers(struct library_job *job, size_t n, struct brig_err *err) MUST_CHECK;
void job_unpack(struct library_job *job);
bool job_release(struct library_job *job); /* its holds; true: there were some */
/* Is the template of this name from a pull of the same reference? Whoever pulls it again means the name to follow. */
bool pull_follows(const struct library *library, const char *org, const char *name, const char *reference);

#endif
