/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library_wanted.c: the templates that `[templates] pull` names. Those that are not there are pulled, one after the
 * other, when the service has started and when the configuration was read again. They belong to the organisation of the
 * host's administrator, and everybody sees them. A pull that fails is told and not repeated before the next start.
 */
#include <string.h>

#include "template/library_priv.h"

static void next(struct library *library);

/* NAME=REFERENCE, or REFERENCE alone. */
static int split(const char *word, size_t len, char name[TEMPLATE_NAME_MAX], char reference[IMAGE_REF_TEXT])
{
    const char *equals = memchr(word, '=', len);
    size_t name_len = equals ? (size_t)(equals - word) : 0, rest = len - (equals ? name_len + 1 : 0);

    if (name_len >= TEMPLATE_NAME_MAX || rest >= IMAGE_REF_TEXT)
        return -ENAMETOOLONG;
    memcpy(name, word, name_len);
    name[name_len] = '\0';
    memcpy(reference, word + len - rest, rest);
    reference[rest] = '\0';
    return 0;
}

static void tell(const struct library *library, const char *name, const struct brig_err *err)
{
    if (library->o.wanted)
        library->o.wanted(library->o.ctx, library->wanting, name, err);
}

static void on_pulled(void *ctx, const struct object *object, const struct brig_err *err)
{
    struct library *library = ctx;

    library->wanted = NULL;
    tell(library, object ? object->id : "", err);
    next(library);
}

/* Begins a pull unless the template is there. 1: it is waited for. */
static int begin(struct library *library, char *name, struct brig_err *err)
{
    struct caller caller = {.role = STORE_ROLE_ADMIN, .socket = true};
    const struct library_events events = {.done = on_pulled, .ctx = library};
    const struct library_want want = {.name = name[0] ? name : NULL, .shared = true};
    struct image_ref ref;
    int r = str_copy(caller.org_id, sizeof caller.org_id, templates_shared_org(library->o.templates));

    str_cut(caller.actor, sizeof caller.actor, "config");
    if (r == 0)
        r = image_ref_parse(library->wanting, &ref, err);
    if (r == 0 && !name[0] && library_name_of(&ref, name) < 0)
        r = err_usage(err, "%s: gives no name that can be used; write NAME=%s", library->wanting, library->wanting);
    if (r < 0 || templates_find(library->o.templates, caller.org_id, name))
        return r;
    r = library_pull(library, &caller, library->wanting, &want, &events, &library->wanted, err);
    return r < 0 ? r : 1;
}

static void next(struct library *library)
{
    const char *list = library->o.config->templates_pull;
    size_t size = strlen(list);

    while (library->wanted_at < size) {
        const char *word = list + library->wanted_at;
        size_t blanks = strspn(word, " "), len = strcspn(word + blanks, " ");
        char name[TEMPLATE_NAME_MAX];
        struct brig_err err = {0};
        library->wanted_at += blanks + len;
        if (len == 0)
            continue;
        int r = split(word + blanks, len, name, library->wanting) < 0
                    ? err_usage(&err, "[templates] pull: a word is too long")
                    : begin(library, name, &err);
        if (r > 0)
            return;
        if (r < 0)
            tell(library, "", &err);
    }
}

void library_want_all(struct library *library)
{
    library->wanted_at = 0;
    if (!library->wanted)
        next(library);
}
