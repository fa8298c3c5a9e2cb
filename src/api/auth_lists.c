/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth_lists.c: which tools an organisation and a key may run: the member `tools` of their documents, as tool/rules.h reads it. Both lists must allow; an administrator of an
 * organisation writes its own lists, and those of its keys. Other members of a document stay as they are.
 */
#include <stdio.h>
#include <string.h>

#include "api/auth.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

#define LIST_NAMES_MAX 10000u
#define LIST_NAME_MAX 128u
#define DOC_MAX (1u << 20)

const char *auth_org_doc(struct auth *auth, const char *id)
{
    const struct store_org *org = auth_find_org(auth, id);

    return org ? org->doc : "{}";
}

const char *auth_key_doc(struct auth *auth, const char *id)
{
    const struct store_key *key = id[0] ? auth_find_key(auth, id) : NULL;

    return key ? key->doc : "{}";
}

/* ---- what a list may be ---------------------------------------------------------------------------------- */

static bool check_names(struct request *rq, const struct json_value *list, const char *name)
{
    bool ok = !list || list->type == JSON_NULL || (list->type == JSON_ARRAY && list->count <= LIST_NAMES_MAX);

    for (const struct json_value *item = ok && list ? list->first : NULL; item && ok; item = item->next)
        ok = item->type == JSON_STRING && item->len > 0 && item->len <= LIST_NAME_MAX && !memchr(item->string, '\0', item->len);
    if (!ok)
        request_refuse(rq, BRIG_E_USAGE, "%s: must be a list of at most %u names or patterns of 1 to %u bytes", name, LIST_NAMES_MAX, LIST_NAME_MAX);
    return ok;
}

static bool check_list(struct request *rq)
{
    static const char *const known[] = {"allow", "deny", "default", NULL};
    const struct json_value *word = json_get(rq->json, "default");

    if (!api_only_members(rq, rq->json, known) || !check_names(rq, json_get(rq->json, "allow"), "allow") || !check_names(rq, json_get(rq->json, "deny"), "deny"))
        return false;
    if (!word || (word->type == JSON_STRING && (str_eq(word->string, "allow") || str_eq(word->string, "deny"))))
        return true;
    request_refuse(rq, BRIG_E_USAGE, "default: must be \"allow\" or \"deny\"");
    return false;
}

/* The document with other lists. */
static int rebuild(const char *doc, const struct json_value *tools, struct buf *out, struct brig_err *err)
{
    struct json json = JSON_INIT(out);
    struct json_doc *old = NULL;
    int r = json_read(doc, strlen(doc), JSON_READ_VALUES, &old, err);

    if (r < 0)
        return r;
    json_object(&json);
    for (const struct json_value *m = json_root(old)->type == JSON_OBJECT ? json_root(old)->first : NULL; m; m = m->next)
        if (!str_eq(m->key, "tools"))
            json_key(&json, m->key), json_raw(&json, m->raw, m->raw_len);
    if (tools->count > 0)
        json_key(&json, "tools"), json_raw(&json, tools->raw, tools->raw_len);
    json_end(&json);
    json_doc_free(old);
    if (json_finish(&json) < 0 || buf_append(out, "", 1) < 0)
        return err_nomem(err);
    return 0;
}

/* ---- answers --------------------------------------------------------------------------------------------- */

static void answer_list(struct request *rq, const char *doc)
{
    AUTO_BUF struct buf out = BUF_INIT(2 * DOC_MAX);
    struct json json = JSON_INIT(&out);
    struct json_doc *parsed = NULL;
    struct brig_err err;

    if (json_read(doc, strlen(doc), JSON_READ_VALUES, &parsed, &err) < 0) {
        request_fail(rq, &err);
        return;
    }
    const struct json_value *tools = json_get(json_root(parsed), "tools");
    if (tools) {
        json_raw(&json, tools->raw, tools->raw_len);
    } else {
        json_object(&json);
        json_end(&json);
    }
    request_json(rq, 200, &json);
    json_doc_free(parsed);
}

static void on_stored(void *ctx, const struct brig_err *err)
{
    struct request *rq = ctx;

    if (err)
        request_fail(rq, err);
    else if (!rq->x)
        request_free(rq); /* its argument went with the client */
    else if (rq->route->fn == route_key_tools_put)
        answer_list(rq, auth_key_doc(rq->api->auth, rq->arg[0]));
    else
        answer_list(rq, auth_org_doc(rq->api->auth, rq->arg[0]));
}

/* The row's, or NULL and the refusal was sent: another organisation's is not there. */
static struct store_org *own_org(struct request *rq)
{
    struct store_org *org = auth_find_org(rq->api->auth, rq->arg[0]);

    if (org && auth_visible(rq, org->id))
        return org;
    if (org)
        api_denied(rq->api, &rq->caller, org->id, "another organisation's lists");
    request_refuse(rq, BRIG_E_NOT_FOUND, "organisation %.64s not found", rq->arg[0]);
    return NULL;
}

static struct store_key *own_key(struct request *rq)
{
    struct store_key *key = auth_find_key(rq->api->auth, rq->arg[0]);

    if (key && auth_visible(rq, key->org_id))
        return key;
    if (key)
        api_denied(rq->api, &rq->caller, key->id, "another organisation's key");
    request_refuse(rq, BRIG_E_NOT_FOUND, "key %.64s not found", rq->arg[0]);
    return NULL;
}

void route_org_tools_get(struct request *rq)
{
    const struct store_org *org = own_org(rq);

    if (org)
        answer_list(rq, org->doc);
}

void route_key_tools_get(struct request *rq)
{
    const struct store_key *key = own_key(rq);

    if (key)
        answer_list(rq, key->doc);
}

/* In force at once, and stays so when the store is slow: a tool that was just forbidden does not run once more. */
static int change(struct request *rq, const char **doc, struct brig_err *err)
{
    AUTO_BUF struct buf out = BUF_INIT(DOC_MAX);
    int r = rebuild(*doc, rq->json, &out, err);

    return r == 0 ? auth_set_doc(doc, out.data, err) : r;
}

static void audit_change(struct request *rq, const char *object, const char *org)
{
    const struct audit_event event = {.action = "tools.lists", .actor = rq->caller.actor, .org = org, .object = object, .outcome = "ok", .detail = "",
                                      .request_id = rq->caller.request_id, .sync = true};

    audit_add(rq->api->audit, &event, NULL, NULL);
}

void route_org_tools_put(struct request *rq)
{
    struct store_org *org = own_org(rq);
    struct brig_err err;

    if (!org || !check_list(rq))
        return;
    int r = change(rq, &org->doc, &err);
    if (r == 0) {
        audit_change(rq, org->id, org->id);
        r = store_put_org(rq->api->store, org, on_stored, rq, &err);
    }
    if (r < 0)
        request_fail(rq, &err);
}

void route_key_tools_put(struct request *rq)
{
    struct store_key *key = own_key(rq);
    struct brig_err err;

    if (!key || !check_list(rq))
        return;
    int r = change(rq, &key->doc, &err);
    if (r == 0) {
        audit_change(rq, key->id, key->org_id);
        r = store_put_key(rq->api->store, key, on_stored, rq, &err);
    }
    if (r < 0)
        request_fail(rq, &err);
}
