/* SPDX-License-Identifier: Apache-2.0 */
/* caller.h: who sends a request, and how much that caller may do. */
#ifndef BRIG_RECORDS_CALLER_H
#define BRIG_RECORDS_CALLER_H

#include "store/store.h"

/* Who sends a request. Whoever keeps it makes a copy. */
struct caller {
    char org_id[64];
    char key_id[64]; /* or "" : the socket's administrator */
    char actor[80];  /* for the audit: key id, or "socket:<uid>" */
    enum store_role role;
    bool socket; /* the request came over the unix socket: its caller administers everything */
    char request_id[40];
};
static inline bool caller_is_admin(const struct caller *caller)
{
    return caller->socket || caller->role == STORE_ROLE_ADMIN;
}

/* How much a caller may do, weakest first. A row keeps the standing of whoever made it, by name. */
enum standing { STANDING_NONE, STANDING_USER, STANDING_ADMIN, STANDING_SOCKET, STANDING_MAX };
enum standing caller_standing(const struct caller *caller);
const char *standing_name(enum standing standing);
enum standing standing_parse(const char *name); /* STANDING_NONE for any other text */
enum standing standing_weaker(enum standing a, enum standing b);

#endif
