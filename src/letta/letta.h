/* SPDX-License-Identifier: Apache-2.0 */
/*
 * letta.h: what the routes of Letta's interface have in common: errors are {"detail": ...}, ids are checked by their
 * pattern, lists have cursors that are ids, and a change is made in the name of a user.
 * docs/COMPATIBILITY.md says what is the same and what is not.
 */
#ifndef BRIG_LETTA_LETTA_H
#define BRIG_LETTA_LETTA_H

#include "api/api.h"
#include "records/objects.h"

#define LETTA_LIST_DEFAULT 50u
#define LETTA_LIST_MAX 100000u

extern const struct adapter letta_adapter;
extern const struct route_table letta_table; /* letta_routes.c */

/* ---- errors: each answers, and the request is gone ---- */
void letta_refuse(struct request *rq, unsigned status, const char *format, ...) PRINTF_LIKE(3, 4);
/* 422. where: "body", "path" or "query"; field: the member, or NULL. Never shows what was sent: it may be a secret. */
void letta_invalid(struct request *rq, const char *where, const char *field, const char *type, const char *format, ...)
    PRINTF_LIKE(5, 6);
/* Are values of variables and of agents' secrets in answers ([tools] reveal_secrets)? Not for read-only keys. */
bool letta_shows_values(const struct request *rq);
void letta_not_found(struct request *rq, const char *kind, const char *id);

/* ---- the request ---- */
const char *letta_user(const struct request *rq, char out[API_AUTHOR]); /* who it is in the documents */
bool letta_path_id(struct request *rq, const char *prefix, const char *param, const char *id) MUST_CHECK;
/* Whether the query has this name with this value (repeated names are lists); *ret_given: the name is there at all. */
bool letta_query_has(const struct request *rq, const char *name, const char *value, bool *ret_given);
/* Every member of the body is one of the words; else the refusal was sent. */
bool letta_only_members(struct request *rq, const char *known) MUST_CHECK;
/* A member of that type, or NULL when absent or null: *ret. false: the refusal was sent. */
bool letta_member(struct request *rq, const char *name, enum json_type type, bool required,
                  const struct json_value **ret) MUST_CHECK;

/* The object that the path names first, by its id; NULL: the refusal was sent. */
const struct object *letta_find(struct request *rq, const struct objects *objects, const char *prefix,
                                const char *param, const char *kind);

/* ---- the answer ---- */
void letta_answer_null(struct request *rq); /* 200 null */
typedef void letta_put_fn(void *ctx, struct json *json, const struct object *object);
/* 200 and the object as put writes it. The text is wiped: it may have values. */
void letta_answer(struct request *rq, letta_put_fn *put, void *ctx, const struct object *object);
/* Begins an object: authors, times and id. */
void letta_put_head(struct json *json, const struct object *object);

struct letta_list {
    const struct objects *objects;
    const char *kind;                                       /* "Tool", for messages */
    bool (*wanted)(void *ctx, const struct object *object); /* NULL: all */
    letta_put_fn *put;
    void *ctx;
    uint64_t limit; /* when the query does not say */
    bool descending;
};
/* after, before and limit are read from the query. Answers. */
void letta_list(struct request *rq, const struct letta_list *list);

/* The configuration that the path names first; NULL: the refusal was sent. */
const struct object *letta_find_config(struct request *rq);

objects_done_fn letta_deleted; /* 204, or why not; ctx is the request */

#endif
