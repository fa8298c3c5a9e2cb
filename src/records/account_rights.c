/* SPDX-License-Identifier: Apache-2.0 */
/*
 * account_rights.c: what the documents of organisations and keys allow: which tools may run (the member `tools`, as
 * rules.h reads it), and the rights that the socket's administrator gives. Both lists must allow a tool; an
 * administrator of an organisation writes its own lists, and those of its keys.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "records/accounts_priv.h"
#include "records/rules.h"

#define LIST_NAMES_MAX 10000u
#define LIST_NAME_MAX 128u
#define DOC_MAX (1u << 20)
#define ORG_BYTES (16u << 20)

static const struct json_value *json_of(const struct object *object)
{
    return object ? object->json : NULL;
}

bool key_has(const struct accounts *accounts, const char *id, const char *right)
{
    const struct json_value *value = json_get(json_of(key_find(accounts, id)), right);

    return value && value->type == JSON_BOOL && value->boolean;
}

void caller_choose_org(const struct accounts *accounts, const char *org, struct caller *caller)
{
    if (!caller->socket && !key_has(accounts, caller->key_id, "user_ids"))
        return; /* the key says whose it is, whatever the request says */
    if (org_find(accounts, org))
        (void)!str_copy(caller->org_id, sizeof caller->org_id, org); /* what is found has an id that fits */
}

int caller_may_run(const struct accounts *accounts, const struct caller *caller, bool default_deny, const char *name,
                   struct brig_err *err)
{
    return tool_allowed(json_of(org_find(accounts, caller->org_id)), json_of(key_find(accounts, caller->key_id)),
                        default_deny, name, err);
}

/* ---- what a list may be ------------------------------------------------------------------------------- */

static int check_names(const struct json_value *list, const char *name, struct brig_err *err)
{
    bool ok = !list || list->type == JSON_NULL || (list->type == JSON_ARRAY && list->count <= LIST_NAMES_MAX);

    for (const struct json_value *item = ok && list ? list->first : NULL; item && ok; item = item->next)
        ok = item->type == JSON_STRING && item->len > 0 && item->len <= LIST_NAME_MAX &&
             !memchr(item->string, '\0', item->len);
    return ok ? 0
              : err_usage(err, "%s: must be a list of at most %u names or patterns of 1 to %u bytes", name,
                          LIST_NAMES_MAX, LIST_NAME_MAX);
}

int lists_check(const struct json_value *tools, struct brig_err *err)
{
    const struct json_value *word = json_get(tools, "default");
    int r = check_names(json_get(tools, "allow"), "allow", err);

    if (r == 0)
        r = check_names(json_get(tools, "deny"), "deny", err);
    if (r == 0 && word &&
        (word->type != JSON_STRING || !(str_eq(word->string, "allow") || str_eq(word->string, "deny"))))
        r = err_usage(err, "default: must be \"allow\" or \"deny\"");
    return r;
}

/* ---- other lists -------------------------------------------------------------------------------------- */

struct list_change {
    const struct accounts *accounts;
    char org_id[64];
    const struct json_value *tools;
};

/*
 * All lists of an organisation and its keys are in memory: so many bytes of them. One that gets no larger is always
 * taken.
 */
static int check_bytes(const struct list_change *change, size_t was, size_t len, struct brig_err *err)
{
    size_t bytes = 0;

    if (len <= was)
        return 0;
    (void)objects_expected(change->accounts->keys, change->org_id, &bytes);
    bytes += strlen(org_doc(change->accounts, change->org_id)) + len - was;
    return bytes <= ORG_BYTES ? 0
                              : err_set(err, BRIG_E_LIMIT, 0,
                                        "an organisation and its keys have at most %u bytes of lists", ORG_BYTES);
}

/* The document with other lists. */
static int make_lists(void *make_ctx, const struct object *current, struct buf *doc, struct brig_err *err)
{
    const struct list_change *change = make_ctx;
    struct json json = JSON_INIT(doc);

    if (!current)
        return err_set(err, BRIG_E_NOT_FOUND, 0, "it was removed meanwhile");
    json_object(&json);
    for (const struct json_value *m = current->json ? current->json->first : NULL; m; m = m->next)
        if (!str_eq(m->key, "tools"))
            json_key_raw(&json, m->key, m->raw, m->raw_len);
    if (change->tools->count > 0)
        json_key_raw(&json, "tools", change->tools->raw, change->tools->raw_len);
    json_end(&json);
    if (json_finish(&json) < 0)
        return err_nomem(err);
    if (doc->len > DOC_MAX)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "the lists have %zu bytes, at most %u are kept", doc->len, DOC_MAX);
    return check_bytes(change, current->len, doc->len, err);
}

int lists_put(struct accounts *accounts, const char *org, const char *key, const struct json_value *tools,
              objects_done_fn *done, void *ctx, struct brig_err *err)
{
    struct list_change *make = mem_zalloc(sizeof *make);

    if (!make)
        return err_nomem(err);
    *make = (struct list_change){.accounts = accounts, .tools = tools};
    if (str_copy(make->org_id, sizeof make->org_id, org) < 0) {
        mem_free(make);
        return err_set(err, BRIG_E_NOT_FOUND, 0, "organisation %.64s not found", org);
    }
    const struct objects_change change = {.org = key ? org : "",
                                          .id = key ? key : org,
                                          .make = make_lists,
                                          .end = mem_free,
                                          .make_ctx = make,
                                          .done = done,
                                          .ctx = ctx};
    return objects_change(key ? accounts->keys : accounts->orgs, &change, err);
}
