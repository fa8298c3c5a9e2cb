/* SPDX-License-Identifier: Apache-2.0 */
/* caller.h: who asks, and how much that one may do. */
#ifndef BRIG_RECORDS_CALLER_H
#define BRIG_RECORDS_CALLER_H

#include "store/store.h"

/* Who asks. Copied where it is kept. */
struct caller {
    char org_id[64];
    char key_id[64]; /* or "" : the socket's administrator */
    char actor[80];  /* for the audit: key id, or "socket:<uid>" */
    enum store_role role;
    bool socket; /* came over the unix socket: the administrator of everything */
    char request_id[40];
};
static inline bool caller_is_admin(const struct caller *caller)
{
    return caller->socket || caller->role == STORE_ROLE_ADMIN;
}

/* What a caller may, weakest first; a row keeps its maker's by name. */
enum standing { STANDING_NONE, STANDING_USER, STANDING_ADMIN, STANDING_SOCKET, STANDING_MAX };
enum standing caller_standing(const struct caller *caller);
const char *standing_name(enum standing standing);
enum standing standing_parse(const char *name); /* STANDING_NONE for what is no name of one */
enum standing standing_weaker(enum standing a, enum standing b);

#endif
