/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Users by name: the first line is the user, what comes before a NUL is /etc/passwd, the rest /etc/group. Whatever they
 * hold, the ids are those that a sandbox has, and every text points into what was given.
 */
#include "fuzz.h"

#include <errno.h>

#include "codec/passwd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *end = text + size;
    const char *line = size ? memchr(text, '\n', size) : NULL;
    struct user_text parts;
    struct user_found found;

    if (!line || user_text_parse(text, (size_t)(line - text), &parts) < 0)
        return 0;
    const char *passwd = line + 1, *nul = passwd < end ? memchr(passwd, 0, (size_t)(end - passwd)) : NULL;
    const char *passwd_end = nul ? nul : end, *group = nul ? nul + 1 : end;
    int r = user_find(&parts, passwd, (size_t)(passwd_end - passwd), group, (size_t)(end - group), &found);

    FUZZ_CHECK(r == 0 || r == -ESRCH || r == -E2BIG);
    if (r < 0)
        return 0;
    FUZZ_CHECK(found.uid <= USER_ID_MAX && found.gid <= USER_ID_MAX && found.n_groups <= USER_GROUPS_MAX);
    FUZZ_CHECK(!parts.group || found.n_groups == 0);
    for (uint32_t i = 0; i < found.n_groups; i++)
        FUZZ_CHECK(found.groups[i] <= USER_ID_MAX && found.groups[i] != found.gid);
    /* What does not point into the file is root's own. */
    bool root = parts.user_len == 4 && memcmp(parts.user, "root", 4) == 0;
    FUZZ_CHECK(!root || (found.uid == 0 && found.name_len == 4 && memcmp(found.name, "root", 4) == 0));
    FUZZ_CHECK(root || !found.name || (found.name >= passwd && found.name + found.name_len <= passwd_end));
    FUZZ_CHECK(!found.home || (found.home >= passwd && found.home + found.home_len <= passwd_end) ||
               (root && found.home_len == 5 && memcmp(found.home, "/root", 5) == 0));
    FUZZ_CHECK(!found.home || (found.home_len < USER_HOME_MAX && found.home[0] == '/'));
    return 0;
}
