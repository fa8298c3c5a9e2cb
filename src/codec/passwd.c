/* SPDX-License-Identifier: Apache-2.0 */
/* passwd.c: reads users, and the two files that say who they are (passwd.h). */
#include "codec/passwd.h"

#include <errno.h>
#include <string.h>

struct piece {
    const char *at;
    size_t len;
};

/* Takes what comes before the next `end`, and steps over it. */
static struct piece take(struct piece *rest, char end)
{
    const char *found = rest->len ? memchr(rest->at, end, rest->len) : NULL;
    struct piece piece = {rest->at, found ? (size_t)(found - rest->at) : rest->len};
    size_t used = piece.len + (found ? 1 : 0);

    rest->at += used;
    rest->len -= used;
    return piece;
}

static bool same(struct piece a, const char *text, size_t len)
{
    return a.len == len && memcmp(a.at, text, len) == 0;
}

static bool is_root(const struct user_text *text)
{
    return text->user_len == 4 && memcmp(text->user, "root", 4) == 0;
}

static bool number_of(const char *text, size_t len, uint32_t *ret)
{
    uint32_t value = 0;

    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint32_t)(text[i] - '0');
        if (value > USER_ID_MAX)
            return false;
    }
    *ret = value;
    return len > 0;
}

/* ---- the text ------------------------------------------------------------------------------------------ */

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-' || c == '$';
}

static bool part_ok(const char *part, size_t len)
{
    bool digits = true;
    uint32_t id;

    if (len == 0 || len > USER_PART_MAX || part[0] == '-')
        return false;
    for (size_t i = 0; i < len; i++) {
        if (!is_plain(part[i]))
            return false;
        digits = digits && part[i] >= '0' && part[i] <= '9';
    }
    return !digits || number_of(part, len, &id);
}

int user_text_parse(const char *text, size_t len, struct user_text *ret)
{
    const char *colon = len ? memchr(text, ':', len) : NULL;
    size_t user_len = colon ? (size_t)(colon - text) : len;

    *ret = (struct user_text){.user = text, .user_len = user_len};
    if (colon) {
        ret->group = colon + 1;
        ret->group_len = len - user_len - 1;
    }
    return part_ok(text, user_len) && (!colon || part_ok(ret->group, ret->group_len)) ? 0 : -EINVAL;
}

bool user_text_is_root(const char *text)
{
    struct user_text parts;
    uint32_t uid = 1;

    if (user_text_parse(text, strlen(text), &parts) < 0)
        return false;
    return is_root(&parts) || (number_of(parts.user, parts.user_len, &uid) && uid == 0);
}

/* ---- the files ------------------------------------------------------------------------------------------ */

/* name:password:uid:gid:comment:home:shell */
static bool find_user(const struct user_text *text, struct piece file, struct user_found *ret)
{
    uint32_t asked = 0, uid, gid;
    bool by_number = is_root(text) || number_of(text->user, text->user_len, &asked);

    while (file.len > 0) {
        struct piece line = take(&file, '\n');
        struct piece name = take(&line, ':');
        (void)take(&line, ':');
        struct piece uid_text = take(&line, ':'), gid_text = take(&line, ':');
        (void)take(&line, ':');
        struct piece home = take(&line, ':');

        if (!number_of(uid_text.at, uid_text.len, &uid) || !number_of(gid_text.at, gid_text.len, &gid) ||
            name.len == 0 || !(by_number ? uid == asked : same(name, text->user, text->user_len)))
            continue;
        ret->uid = uid;
        ret->gid = uid == 0 ? 0 : gid;
        ret->name = name.at;
        ret->name_len = name.len;
        bool usable = home.len > 0 && home.len < USER_HOME_MAX && home.at[0] == '/' && !memchr(home.at, '\0', home.len);
        ret->home = usable ? home.at : NULL;
        ret->home_len = usable ? home.len : 0;
        return true;
    }
    return false;
}

/* name:password:gid:member,member */
static bool next_group(struct piece *file, struct piece *ret_name, uint32_t *ret_gid, struct piece *ret_members)
{
    while (file->len > 0) {
        struct piece line = take(file, '\n');
        *ret_name = take(&line, ':');
        (void)take(&line, ':');
        struct piece gid = take(&line, ':');
        *ret_members = take(&line, ':');
        if (ret_name->len > 0 && number_of(gid.at, gid.len, ret_gid))
            return true;
    }
    return false;
}

static int find_group(const struct user_text *text, struct piece file, uint32_t *ret)
{
    struct piece name, members;
    uint32_t asked = 0, gid;
    bool by_number = number_of(text->group, text->group_len, &asked);

    while (next_group(&file, &name, &gid, &members))
        if (same(name, text->group, text->group_len) || (by_number && gid == asked)) {
            *ret = gid;
            return 0;
        }
    if (by_number)
        *ret = asked;
    return by_number ? 0 : -ESRCH;
}

static bool has_group(const struct user_found *user, uint32_t gid)
{
    for (uint32_t i = 0; i < user->n_groups; i++)
        if (user->groups[i] == gid)
            return true;
    return gid == user->gid;
}

static bool is_member(struct piece members, const struct user_found *user)
{
    while (members.len > 0)
        if (same(take(&members, ','), user->name, user->name_len))
            return true;
    return false;
}

static int add_groups(struct piece file, struct user_found *user)
{
    struct piece name, members;
    uint32_t gid;

    while (next_group(&file, &name, &gid, &members)) {
        if (!is_member(members, user) || has_group(user, gid))
            continue;
        if (user->n_groups == USER_GROUPS_MAX)
            return -E2BIG;
        user->groups[user->n_groups++] = gid;
    }
    return 0;
}

int user_find(const struct user_text *text, const char *passwd, size_t passwd_len, const char *group, size_t group_len,
              struct user_found *ret)
{
    struct user_found user = {0};
    const struct piece groups = {group, group_len};
    bool root = is_root(text), found = find_user(text, (struct piece){passwd, passwd_len}, &user);

    if (!found && !root && !number_of(text->user, text->user_len, &user.uid))
        return -ESRCH;
    if (root) {
        user.name = "root";
        user.name_len = strlen(user.name);
    }
    if (root && !found) {
        user.home = "/root";
        user.home_len = strlen(user.home);
    }
    int r = 0;
    if (text->group)
        r = find_group(text, groups, &user.gid);
    else if (found)
        r = add_groups(groups, &user);
    if (r == 0)
        *ret = user;
    return r;
}
