/* SPDX-License-Identifier: Apache-2.0 */
/*
 * objects.h: what this directory keeps per organisation (policies, secrets, tools, configurations, variables, agents):
 * documents in the store's objects table, cached in memory, written through. One object has an id (its name in the
 * table), a document, and is found by id or by walking. A change is visible in memory from its commit on; until then it
 * is pending, and a second change of the same object waits for its turn (in order).
 */
#ifndef BRIG_RECORDS_OBJECTS_H
#define BRIG_RECORDS_OBJECTS_H

#include "base/buf.h"
#include "codec/json/json.h"
#include "codec/json/json_read.h"
#include "store/store.h"

#define OBJECT_DOC_MAX (16u << 20)
#define OBJECTS_ORG_BYTES (256u << 20)
#define OBJECTS_NEW UINT64_MAX /* expect_version: there must be none yet */

struct objects; /* all of one kind */

/* As it is at one version: a change makes another of it, and this one goes with the commit unless somebody holds it
 * (object_hold()). */
struct object {
    char org_id[64], id[128];
    uint64_t version; /* 1, 2, ... */
    int64_t created_at_ns, updated_at_ns;
    const char *text; /* the document: a JSON object */
    size_t len;
    const struct json_value *json; /* of it; NULL after loaded() with objects_kind.no_json */
    void *extra;                   /* the owner's: compiled schema and the like (objects_kind.loaded) */
    void *columns;                 /* of a kind with a table of its own (objects_kind.table); NULL */
    struct object *next, *prev;    /* private: of its organisation, oldest first (created_at, id), or by id */
};

struct objects_kind {
    const char *kind; /* of the store, at most 15 bytes */
    const char *many; /* what several are called in messages; NULL: "of <kind>" */
    size_t per_org;   /* most of them in one organisation: BRIG_E_LIMIT past it */
    /* most of their text in one organisation, since all of it is in memory: the same. 0: OBJECTS_ORG_BYTES */
    size_t org_bytes;
    bool secret;  /* documents are wiped when freed */
    bool by_id;   /* the lists are in the order of ids, not of making */
    bool no_json; /* loaded() keeps what it needs in extra: the parsed document is freed after it */
    /* Checks and completes a document that was read or is about to be written: fills object->extra. May be NULL. */
    int (*loaded)(void *ctx, struct object *object, struct brig_err *err);
    void (*unloaded)(void *ctx, struct object *object);
    /* What no two objects of an organisation may share (a tool's name): a string in the document or in extra. After
     * loaded(). May be NULL, and so may the answer. */
    const char *(*key)(void *ctx, const struct object *object);
    /* After each commit, before its done: either may be NULL. Not for objects_forget_org(). */
    void (*changed)(void *ctx, const struct object *before, const struct object *after);
    void *ctx;
    const struct objects_table *table; /* NULL: the table `objects` */
};

/*
 * A kind whose rows have a table of their own (keys, organisations). A row has columns beside its document: a struct of
 * `columns` bytes that a new version takes over from the one before. Ids, and what key() says, are unique over all
 * organisations: objects_find() and objects_by_key() ignore the organisation. The document "{}" has no json.
 */
struct objects_loading;
struct objects_table {
    size_t columns;
    size_t total; /* most of them in all organisations together: BRIG_E_LIMIT past it */
    /* Calls objects_load() for every row, by organisation, the oldest of each first. */
    int (*each)(struct store *store, struct objects_loading *loading, struct brig_err *err);
    int (*put)(struct store *store, const struct object *object, store_done_fn *done, void *ctx, struct brig_err *err);
    int (*remove)(struct store *store, const char *id, store_done_fn *done, void *ctx, struct brig_err *err);
    /* Is this row taken at the start? Without room the answer must be no. */
    bool (*take)(void *ctx, const struct object *row, bool room);
};
/* text is copied, columns too. Returns 0 for a row that is not taken. */
int objects_load(struct objects_loading *loading, const struct object *row) MUST_CHECK;

int objects_create(struct store *store, const struct objects_kind *kind, struct objects **ret,
                   struct brig_err *err) MUST_CHECK; /* loads */
void objects_destroy(struct objects *objects); /* after store_close(): writes under way come back here; takes NULL */
const struct object *objects_find(const struct objects *objects, const char *org, const char *id); /* or NULL */
/* The first of an organisation, oldest first or by id; follow ->next; objects_last() and ->prev for the other order. */
const struct object *objects_first(const struct objects *objects, const char *org);
const struct object *objects_last(const struct objects *objects, const char *org);
/* The first whose id is greater, of a kind whose lists are by id; after NULL: the first. */
const struct object *objects_after(const struct objects *objects, const char *org, const char *after);
size_t objects_count(const struct objects *objects, const char *org);
/* The same with those that are being written; and the bytes of all their documents. */
size_t objects_expected(const struct objects *objects, const char *org, size_t *ret_bytes);
/* Makes or replaces. doc: copied. expect_version: 0 any; else BRIG_E_CONFLICT when it is another by then. done after
 * the commit; the object as it now is. */
typedef void objects_done_fn(void *ctx, const struct object *object, const struct brig_err *err);
int objects_put(struct objects *objects, const char *org, const char *id, const char *doc, size_t len,
                uint64_t expect_version, objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
/* BRIG_E_NOT_FOUND. done gets the object as it was. */
int objects_delete(struct objects *objects, const char *org, const char *id, objects_done_fn *done, void *ctx,
                   struct brig_err *err) MUST_CHECK;
/*
 * A change that is made of what is there when its turn comes: make writes the new document; current is NULL when there
 * is none. It returns 0, 1 (nothing to change: done comes all the same, with the object as it is), or fails, and then
 * so does the change: at once when it is called at once, through done when it had to wait. end (or NULL) comes once,
 * after the last use of make_ctx, also when this fails.
 */
typedef int objects_make_fn(void *make_ctx, const struct object *current, struct buf *doc, struct brig_err *err);
struct objects_change {
    const char *org, *id;
    uint64_t expect_version;
    bool keep_time;        /* updated_at of what is there stays */
    const void *columns;   /* of a new one, in a kind with a table of its own; stays as long as make_ctx */
    objects_make_fn *make; /* NULL: it is deleted */
    void (*end)(void *make_ctx);
    void *make_ctx;
    objects_done_fn *done; /* or NULL */
    void *ctx;
};
int objects_change(struct objects *objects, const struct objects_change *change, struct brig_err *err) MUST_CHECK;
/* By its key (objects_kind.key). */
const struct object *objects_by_key(const struct objects *objects, const char *org, const char *key); /* or NULL */
/*
 * The id of the object that has this key, or is about to; else a new one with the prefix. So two that make the same
 * thing at once make one thing, one after the other.
 */
int objects_id_for(const struct objects *objects, const char *org, const char *key, const char *prefix,
                   char out[128], struct brig_err *err) MUST_CHECK;
/* All of them, of all organisations; not changed from within; false ends it. */
void objects_each(const struct objects *objects, bool (*each)(void *ctx, const struct object *object), void *ctx);
/* Keeps it as it is over changes (its next and prev are then nothing to follow). Released before objects_destroy(). */
const struct object *object_hold(const struct object *object);
void object_release(const struct object *object); /* takes NULL */
void objects_forget_org(struct objects *objects, const char *org);
/* Removes from memory those for which over() is true, of one organisation or ("") of all. The store does the same by a
 * statement of its own. */
void objects_forget_if(struct objects *objects, const char *org, bool (*over)(void *ctx, const struct object *object),
                       void *ctx);
/* "<prefix>-<uuid4>" */
int objects_new_id(const char *prefix, char out[128]) MUST_CHECK;
/* The letter of specs: ^<prefix>-<uuid4 of version 4>$ */
bool objects_id_ok(const char *prefix, const char *id);

#endif
