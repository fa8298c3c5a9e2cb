/* SPDX-License-Identifier: Apache-2.0 */
/*
 * objects.h: the one cache of what organisations keep: policies, secrets, tools, configurations, variables, agents,
 * keys and the organisations themselves. An object has an id and a document; the store has a row of it. All of them are
 * in memory, and a change is written to the store first: it is visible in memory from its commit on. A second change of
 * the same object waits until the first has been committed.
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

struct objects; /* all objects of one kind */

/* One version of an object. A change makes a new version, and its commit frees this one unless somebody holds it
 * (object_hold()). */
struct object {
    char org_id[64], id[128];
    uint64_t version; /* 1, 2, ... */
    int64_t created_at_ns, updated_at_ns;
    const char *text; /* the document: a JSON object */
    size_t len;
    const struct json_value *json; /* the document, parsed; NULL after loaded() if the kind says no_json */
    void *extra;                   /* what the kind's loaded() made of it, such as a compiled schema */
    void *columns;                 /* its other columns, if the kind has a table of its own; else NULL */
    struct object *next, *prev;    /* its neighbours in the organisation's list: oldest first, or by id */
};

struct objects_kind {
    const char *kind; /* its name in the store, at most 15 bytes */
    const char *many; /* what several are called in messages; NULL: "of <kind>" */
    size_t per_org;   /* an organisation has at most so many of them: BRIG_E_LIMIT */
    /* Their documents have at most so many bytes in one organisation, since all are in memory: BRIG_E_LIMIT. 0 is
     * OBJECTS_ORG_BYTES. */
    size_t org_bytes;
    bool secret;  /* documents are wiped when freed */
    bool by_id;   /* lists are in the order of ids; otherwise the oldest object is first */
    bool patient; /* A commit may wait a moment for others: losing the newest ones in a crash only costs work. */
    bool no_json; /* the parsed document is freed after loaded(), which keeps what it needs in extra */
    /* Checks a document that was read or is about to be written, and fills object->extra. NULL if there is nothing to
     * do. */
    int (*loaded)(void *ctx, struct object *object, struct brig_err *err);
    void (*unloaded)(void *ctx, struct object *object); /* frees object->extra; NULL: it is one block */
    /* A string of the document or of extra that no two objects of an organisation may share, such as a tool's name.
     * It is asked after loaded(). NULL if the kind has none; an object without one answers NULL. */
    const char *(*key)(void *ctx, const struct object *object);
    /* Called after each commit and before its done. before is NULL for a new object, after for a deleted one.
     * objects_forget_org() does not call it. */
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
/* The first object of an organisation's list; ->next leads on. objects_last() and ->prev walk the other way. */
const struct object *objects_first(const struct objects *objects, const char *org);
const struct object *objects_last(const struct objects *objects, const char *org);
/* The first object whose id is greater than `after` (NULL: the first of all), for a kind whose lists are by id. */
const struct object *objects_after(const struct objects *objects, const char *org, const char *after);
size_t objects_count(const struct objects *objects, const char *org);
/* The same with those that are being written; and the bytes of all their documents. */
size_t objects_expected(const struct objects *objects, const char *org, size_t *ret_bytes);
/* Makes or replaces an object. doc is copied. If expect_version is not 0 and the object has another version when its
 * turn comes, the change fails with BRIG_E_CONFLICT. done is called after the commit with the object as it is then. */
typedef void objects_done_fn(void *ctx, const struct object *object, const struct brig_err *err);
int objects_put(struct objects *objects, const char *org, const char *id, const char *doc, size_t len,
                uint64_t expect_version, objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
/* What a patient kind has queued is committed at once. */
void objects_hurry(struct objects *objects);
/* BRIG_E_NOT_FOUND if there is none. done gets the object as it was. */
int objects_delete(struct objects *objects, const char *org, const char *id, objects_done_fn *done, void *ctx,
                   struct brig_err *err) MUST_CHECK;
/*
 * A change that depends on what is there when its turn comes. make writes the new document; current is NULL if there is
 * no object. It returns 0, or 1 if there is nothing to change (done is called all the same, with the object as it is),
 * or an error. Then the change fails: objects_change() returns the error if the change did not have to wait, otherwise
 * done gets it. end (or NULL) is called once, after the last use of make_ctx, also if this fails.
 */
typedef int objects_make_fn(void *make_ctx, const struct object *current, struct buf *doc, struct brig_err *err);
struct objects_change {
    const char *org, *id;
    uint64_t expect_version;
    bool keep_time;        /* updated_at stays as it is */
    const void *columns;   /* of a new one, in a kind with a table of its own; stays as long as make_ctx */
    objects_make_fn *make; /* NULL: it is deleted */
    void (*end)(void *make_ctx);
    void *make_ctx;
    objects_done_fn *done; /* or NULL */
    void *ctx;
};
int objects_change(struct objects *objects, const struct objects_change *change, struct brig_err *err) MUST_CHECK;
/* The object with this key (objects_kind.key). */
const struct object *objects_by_key(const struct objects *objects, const char *org, const char *key); /* or NULL */
/*
 * The id of the object that has this key or is about to get it; otherwise a new id with the prefix. So two requests
 * that make the same thing at once make one object, one after the other.
 */
int objects_id_for(const struct objects *objects, const char *org, const char *key, const char *prefix, char out[128],
                   struct brig_err *err) MUST_CHECK;
/* Calls each() for every object of every organisation until it returns false. each() must not change them. */
void objects_each(const struct objects *objects, bool (*each)(void *ctx, const struct object *object), void *ctx);
/* Keeps this version when a change replaces it; do not follow its next and prev then. Release it before
 * objects_destroy(). */
const struct object *object_hold(const struct object *object);
void object_release(const struct object *object); /* takes NULL */
void objects_forget_org(struct objects *objects, const char *org);
/* Removes from memory those for which over() is true, of one organisation or ("") of all. The store does the same by a
 * statement of its own. */
void objects_forget_if(struct objects *objects, const char *org, bool (*over)(void *ctx, const struct object *object),
                       void *ctx);
/* "<prefix>-<uuid4>" */
int objects_new_id(const char *prefix, char out[128]) MUST_CHECK;
/* Is it "<prefix>-" and a UUID of version 4 in lower case? */
bool objects_id_ok(const char *prefix, const char *id);

#endif
