/* SPDX-License-Identifier: Apache-2.0 */
/*
 * passwd.h: who a user is, as it is written in requests and images (`NAME`, `NAME:GROUP`, `UID`, `UID:GID`, in any
 * mixture), and what /etc/passwd and /etc/group of a sandbox say about it. The rules are those of container engines:
 *
 *     user   the first line that has this name, or this number if it is one; a number that no line has is good as it
 *            is, with group 0
 *     root   uid 0 and group 0, whatever the files say; a line of uid 0 only names its home
 *     group  the same; without one it is the group of the user's line, and the groups that list the user are added
 *
 * Both files are the sandbox's own, so anything may be in them: a line that is not well-formed counts as absent. This
 * file is compiled into brig-init: no C library but mem*() and strlen(), no allocation.
 */
#ifndef BRIG_CODEC_PASSWD_H
#define BRIG_CODEC_PASSWD_H

#include "base/base.h"

#define USER_PART_MAX 64u                       /* the bytes of a name */
#define USER_TEXT_MAX (2u * USER_PART_MAX + 2u) /* This includes the colon and the NUL. */
#define USER_ID_MAX 65535u                      /* the highest id that a sandbox has */
#define USER_GROUPS_MAX 64u
#define USER_HOME_MAX 256u

struct user_text {
    const char *user, *group; /* group is NULL if there is none. */
    size_t user_len, group_len;
};
/*
 * A part has 1 to USER_PART_MAX of [A-Za-z0-9._$-], and no `-` in front. Digits alone are a number of at most
 * USER_ID_MAX. Returns 0 or -EINVAL.
 */
int user_text_parse(const char *text, size_t len, struct user_text *ret) MUST_CHECK;
/* The user is called root, or has the number 0. The text must be good. */
bool user_text_is_root(const char *text);

struct user_found {
    uint32_t uid, gid;
    uint32_t n_groups, groups[USER_GROUPS_MAX]; /* Beside gid. */
    const char *name, *home; /* They point into passwd, or are root's own; NULL if no line names it. */
    size_t name_len, home_len;
};
/*
 * passwd and group are the content of the two files. Returns 0; -ESRCH if a name is in neither of them, -E2BIG if the
 * user has more groups than USER_GROUPS_MAX.
 */
int user_find(const struct user_text *text, const char *passwd, size_t passwd_len, const char *group, size_t group_len,
              struct user_found *ret) MUST_CHECK;

#endif
