/* SPDX-License-Identifier: Apache-2.0 */
/* objects_priv.h: shared by objects.c (what is there) and objects_change.c (what is on its way). */
#ifndef BRIG_RECORDS_OBJECTS_PRIV_H
#define BRIG_RECORDS_OBJECTS_PRIV_H

#include "base/table.h"
#include "records/objects.h"

struct objects_org {
    char id[64];
    struct object *first, *last;
    size_t bytes, count; /* of the documents in the list, and how many they are */
    size_t bytes_coming; /* what the changes that are being written add to them */
    size_t coming;       /* how many of those changes make a new one */
    size_t changes;      /* how many there are: while there is one, this stays */
    struct table_link link;
};

struct node {
    struct object public; /* first: an object is its node */
    struct objects *objects;
    char *text;
    struct json_doc *doc;
    struct objects_org *org; /* while it is in the lists */
    const char *key;         /* or NULL */
    unsigned refs;
    struct table_link by_id, by_key;
    /* the columns follow */
};

struct objects {
    struct store *store;
    struct objects_kind kind;
    struct table orgs; /* (id, "") to struct objects_org: stays once it is there, empty or not, until it is forgotten */
    struct table by_id;  /* (scope, id) to struct node: objects_scope() */
    struct table by_key; /* (scope, key) to struct node */
    /* (organisation, id) to the struct change that is being written; others of the same id wait behind it */
    struct table active;
    struct table claims; /* (scope, key) to the same, for what it will be called */
    size_t coming;       /* new ones that are being written, in all organisations */
};

/* Where an id or a key is unique: in the organisation, or ("") everywhere. */
static inline const char *objects_scope(const struct objects *objects, const char *org)
{
    return objects->kind.table ? "" : org;
}

struct node *node_find(const struct objects *objects, const char *org, const char *id);
/* Parsed, and approved by the kind. like: ids, version and times. text: taken over when this succeeds. */
int node_create(struct objects *objects, const struct object *like, char *text, size_t len, struct node **ret,
                struct brig_err *err) MUST_CHECK;
void node_release(struct node *node);
/* makes it; -ENOMEM, -ENAMETOOLONG */
int objects_org_get(struct objects *objects, const char *id, struct objects_org **ret) MUST_CHECK;
/* Into the lists, in the place of old where there is one. Neither needs memory. */
void node_link(struct node *node, struct objects_org *org, struct node *old);
void node_unlink(struct node *node);

#endif
