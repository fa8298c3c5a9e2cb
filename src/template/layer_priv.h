/* SPDX-License-Identifier: Apache-2.0 */
/* layer_priv.h: what the files behind layer_make.h share: wants, makings, and who holds which layer. */
#ifndef BRIG_TEMPLATE_LAYER_PRIV_H
#define BRIG_TEMPLATE_LAYER_PRIV_H

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "template/layer_make.h"

#define LAYER_NEW_NAME 32u /* "new-" and 26 characters */

/* A want with a memory of its own. */
struct want {
    struct layer_want is;
    char org[64], name[TEMPLATE_LAYER_NAME], diff_id[LAYER_DIGEST], format[16], blob[4096];
    char (*below)[TEMPLATE_LAYER_NAME];
    const char **list;
};

struct making {
    struct maker *maker;
    struct want *want;
    char fresh[LAYER_NEW_NAME];
    struct layer_run *run;
    struct loop_timer on_measure;
    uint64_t free_before;
    char name[TEMPLATE_LAYER_NAME], diff_id[LAYER_DIGEST];
    uint64_t bytes, files;
    bool reported; /* brig-layer said how it went */
    bool made;     /* the new layer is there */
    struct brig_err err;
    struct layer_wait *waits, *first; /* first: for whom it was begun, if it still waits */
    struct making *next;
};

struct layer_wait {
    struct maker *maker;
    struct making *making; /* NULL: it is there already, and on_turn says so */
    struct want *want;
    struct layer_events events;
    struct loop_timer on_turn;
    struct layer_wait *next;
};

/* A layer that is there for an organisation without a template that says so. */
struct hold {
    char org[64], name[TEMPLATE_LAYER_NAME], diff_id[LAYER_DIGEST];
    uint64_t bytes, files;
    unsigned count;
    struct hold *next;
};

/* Who waits for a collection. */
struct collector {
    maker_collected_fn *done;
    void *ctx;
    struct collector *next;
};

struct collection {
    struct maker *maker;
    struct collector *collectors;
    size_t removed, pending;
    bool listed;
    struct brig_err err;
};

struct maker {
    struct maker_options o;
    struct making *makings;
    struct hold *holds;
    struct collection *collection;
    struct collector *collectors; /* for the one after it */
    bool collect_again;
    bool closing;
};

/* ---- layer_holds.c ---- */
int want_copy(const struct layer_want *from, struct want **ret, struct brig_err *err) MUST_CHECK;
void want_free(struct want *want); /* takes NULL */
int hold_add(struct maker *maker, const char *org, const struct layer_made *made) MUST_CHECK;
/* Does the organisation have it? Then *ret points into memory that lives until the next turn. */
bool hold_or_template(struct maker *maker, const char *org, const char *name, struct layer_made *ret);

#endif
