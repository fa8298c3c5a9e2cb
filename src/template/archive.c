/* SPDX-License-Identifier: Apache-2.0 */
/* archive.c: the members of an image archive by name (archive.h). Names and links are data from strangers: they are
 * compared, and never given to the file system. */
#include "template/archive.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/path.h"
#include "base/str.h"
#include "codec/json/json_read.h"

#define LINKS_MAX 8

struct archive {
    struct archive_member *members;
    size_t n, cap;
};

int archive_create(struct archive **ret)
{
    *ret = mem_zalloc(sizeof **ret);
    return *ret ? 0 : -ENOMEM;
}

void archive_free(struct archive *archive)
{
    if (!archive)
        return;
    for (size_t i = 0; i < archive->n; i++) {
        mem_free((char *)(uintptr_t)archive->members[i].name);
        mem_free((char *)(uintptr_t)archive->members[i].link);
    }
    mem_free(archive->members);
    mem_free(archive);
}

static const char *text_of(const struct json_value *line, const char *key)
{
    const struct json_value *v = json_get(line, key);

    return v && v->type == JSON_STRING && strlen(v->string) == v->len ? v->string : NULL;
}

static int64_t number_of(const struct json_value *line, const char *key)
{
    const struct json_value *v = json_get(line, key);

    return v && v->type == JSON_NUMBER && v->integer ? v->i64 : -1;
}

static int add(struct archive *archive, const struct json_value *line)
{
    const char *name = text_of(line, "name"), *type = text_of(line, "type"), *link = text_of(line, "link");
    int64_t offset = number_of(line, "offset"), size = number_of(line, "size");
    char plain[ARCHIVE_NAME_MAX];

    if (!name || !type || offset < 0 || size < 0)
        return -EINVAL;
    bool is_link = link && link[0] && !str_eq(type, "file");
    if ((!str_eq(type, "file") && !is_link) || path_clean(name, plain, sizeof plain) < 0 ||
        strlen(link ? link : "") >= ARCHIVE_NAME_MAX)
        return 0; /* a directory, or nothing that an image names */
    struct archive_member member = {.name = mem_strdup(plain),
                                    .link = mem_strdup(is_link ? link : ""),
                                    .offset = (uint64_t)offset,
                                    .size = (uint64_t)size,
                                    .is_file = !is_link};
    if (is_link && member.link && str_eq(type, "hardlink")) { /* the target of a hard link is a name of the archive */
        mem_free((char *)(uintptr_t)member.link);
        char *absolute = mem_alloc(strlen(link) + 2);
        if (absolute) {
            absolute[0] = '/';
            memcpy(absolute + 1, link, strlen(link) + 1);
        }
        member.link = absolute;
    }
    if (!member.name || !member.link) {
        mem_free((char *)(uintptr_t)member.name);
        mem_free((char *)(uintptr_t)member.link);
        return -ENOMEM;
    }
    archive->members[archive->n++] = member;
    return 0;
}

int archive_add(struct archive *archive, const char *line, size_t len)
{
    struct json_doc *doc = NULL;

    if (archive->n == ARCHIVE_MEMBERS_MAX)
        return -EMSGSIZE;
    if (MEM_GROW(archive->members, archive->n, archive->cap) < 0)
        return -ENOMEM;
    int r = json_read(line, len, 64, &doc, NULL);
    if (r < 0)
        return r == -ENOMEM ? r : -EINVAL;
    r = add(archive, json_root(doc));
    json_doc_free(doc);
    return r;
}

/* If two have the same name, the later one is meant, as in tar. */
static const struct archive_member *find(const struct archive *archive, const char *plain)
{
    for (size_t i = archive->n; i-- > 0;)
        if (str_eq(archive->members[i].name, plain))
            return &archive->members[i];
    return NULL;
}

const struct archive_member *archive_find(const struct archive *archive, const char *name)
{
    char plain[ARCHIVE_NAME_MAX], base[ARCHIVE_NAME_MAX];

    if (path_clean(name, plain, sizeof plain) < 0)
        return NULL;
    for (int i = 0; i < LINKS_MAX; i++) {
        const struct archive_member *member = find(archive, plain);
        if (!member || member->is_file)
            return member;
        const char *slash = strrchr(member->name, '/');
        size_t len = slash ? (size_t)(slash - member->name) : 0;
        memcpy(base, member->name, len);
        base[len] = '\0';
        if (path_clean_below(base, member->link, plain, sizeof plain) < 0)
            return NULL;
    }
    return NULL;
}
