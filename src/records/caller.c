/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caller.c: how much a caller may: one order of rights for every room that asks "is this an administrator". What a
 * caller makes keeps his standing, so that whoever uses it later is not taken for its maker: of the two the weaker
 * counts.
 */
#include "records/caller.h"

#include "base/base.h"
#include "base/str.h"

static const char *const names[] = {"none", "user", "admin", "socket"};
_Static_assert(ARRAY_SIZE(names) == STANDING_MAX, "a name for each");

enum standing caller_standing(const struct caller *caller)
{
    if (caller->socket)
        return STANDING_SOCKET;
    if (caller->role == STORE_ROLE_ADMIN)
        return STANDING_ADMIN;
    return caller->role == STORE_ROLE_USER ? STANDING_USER : STANDING_NONE;
}

const char *standing_name(enum standing standing)
{
    return names[standing];
}

enum standing standing_parse(const char *name)
{
    for (int i = 0; i < STANDING_MAX; i++)
        if (str_eq(name, names[i]))
            return (enum standing)i;
    return STANDING_NONE;
}

enum standing standing_weaker(enum standing a, enum standing b)
{
    return a < b ? a : b;
}
