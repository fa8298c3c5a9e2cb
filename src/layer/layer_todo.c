/* SPDX-License-Identifier: Apache-2.0 */
/* layer_todo.c: the names of a path that are still to be walked. The text of a symbolic link is put before them. */
#include <string.h>

#include "layer/layer.h"

#define LINKS_MAX 40u /* as the kernel */

int todo_init(struct layer_todo *todo, const char *path, size_t len)
{
    todo->at = 0;
    todo->links = 0;
    if (len >= sizeof(todo->text))
        return -ENAMETOOLONG;
    memcpy(todo->text, path, len);
    todo->text[len] = '\0';
    return 0;
}

size_t todo_next(struct layer_todo *todo, const char **ret_name)
{
    size_t len = 0;

    while (todo->text[todo->at]) {
        const char *name = todo->text + todo->at;

        len = strcspn(name, "/");
        todo->at += len + (name[len] == '/');
        *ret_name = name;
        if (len > 1 || (len == 1 && *name != '.'))
            return len;
    }
    return 0;
}

int todo_link(struct layer_todo *todo, const char *link, size_t len)
{
    size_t rest = strlen(todo->text + todo->at);

    if (++todo->links > LINKS_MAX)
        return -ELOOP;
    if (len + 1 + rest >= sizeof(todo->text))
        return -ENAMETOOLONG;
    memmove(todo->text + len + 1, todo->text + todo->at, rest + 1);
    memcpy(todo->text, link, len);
    todo->text[len] = '/';
    todo->at = 0;
    return 0;
}
