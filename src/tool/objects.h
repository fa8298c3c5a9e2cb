/* SPDX-License-Identifier: Apache-2.0 */
/*
 * objects.h: what the rooms of this directory keep per organisation (tools, configurations, variables, agents): documents in the store's objects
 * table, cached in memory, written through. One object has an id (its name in the table), a document, and is found by id or by walking.
 * A change is visible in memory from its commit on; until then it is pending, and a second change of the same object waits for its turn (in order).
 */
#ifndef BRIG_TOOL_OBJECTS_H
#define BRIG_TOOL_OBJECTS_H

#include "codec/json.h"
#include "codec/json_read.h"
#include "store/store.h"

struct objects; /* all of one kind */

struct object {
    char org_id[64], id[128];
    uint64_t version; /* 1, 2, ... */
    int64_t created_at_ns, updated_at_ns;
    const char *text; /* the document: a JSON object */
    size_t len;
    const struct json_value *json; /* of it */
    void *extra; /* the owner's: compiled schema and the like (objects_kind.loaded) */
    struct object *next, *prev; /* private: of its organisation, oldest first (created_at, id) */
};

struct objects_kind {
    const char *kind; /* of the store, at most 15 bytes */
    size_t per_org;   /* most of them in one organisation: BRIG_E_LIMIT past it */
    bool secret;      /* documents are wiped when freed */
    /* Checks and completes a document that was read or is about to be written: fills object->extra. May be NULL. */
    int (*loaded)(void *ctx, struct object *object, struct brig_err *err);
    void (*unloaded)(void *ctx, struct object *object);
    void *ctx;
};

int objects_create(struct store *store, const struct objects_kind *kind, struct objects **ret, struct brig_err *err) MUST_CHECK; /* loads */
void objects_destroy(struct objects *objects); /* after store_close(); takes NULL */
const struct object *objects_find(const struct objects *objects, const char *org, const char *id); /* or NULL */
/* The first of an organisation, oldest first; follow ->next; objects_last() and ->prev for the other order. */
const struct object *objects_first(const struct objects *objects, const char *org);
const struct object *objects_last(const struct objects *objects, const char *org);
size_t objects_count(const struct objects *objects, const char *org);
/* Makes or replaces. doc: copied. expect_version: 0 any; else BRIG_E_CONFLICT when it is another by then. done after the commit; the object as it now is. */
typedef void objects_done_fn(void *ctx, const struct object *object, const struct brig_err *err);
int objects_put(struct objects *objects, const char *org, const char *id, const char *doc, size_t len, uint64_t expect_version, objects_done_fn *done, void *ctx,
                struct brig_err *err) MUST_CHECK;
int objects_delete(struct objects *objects, const char *org, const char *id, objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK; /* BRIG_E_NOT_FOUND */
void objects_forget_org(struct objects *objects, const char *org);
/* "<prefix>-<uuid4>" */
int objects_new_id(const char *prefix, char out[128]) MUST_CHECK;
/* The letter of specs: ^<prefix>-<uuid4 of version 4>$ */
bool objects_id_ok(const char *prefix, const char *id);

#endif
