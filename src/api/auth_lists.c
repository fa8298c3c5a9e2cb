/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth_lists.c: which tools an organisation and a key may run: the member `tools` of their documents, as
 * records/rules.h reads it. Both lists must allow; an administrator of an organisation writes its own lists, and those
 * of its keys. Other members of a document stay as they are.
 */
#include <stdio.h>
#include <string.h>

#include "api/auth.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "records/rules.h"

#define LIST_NAMES_MAX 10000u
#define LIST_NAME_MAX 128u
#define DOC_MAX (1u << 20)
#define ORG_BYTES (16u << 20)

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

/* "{}" for nearly everybody: then there is nothing to read. */
static int read_lists(const char *text, struct json_doc **ret, struct brig_err *err)
{
    return str_eq(text, "{}") ? 0 : json_read(text, strlen(text), JSON_READ_VALUES, ret, err);
}

int auth_tool_allowed(struct api *api, const struct caller *caller, const char *name, struct brig_err *err)
{
    struct json_doc *org = NULL, *key = NULL;
    int r = read_lists(auth_org_doc(api->auth, caller->org_id), &org, err);

    if (r == 0)
        r = read_lists(auth_key_doc(api->auth, caller->key_id), &key, err);
    if (r == 0)
        r = tool_allowed(org ? json_root(org) : NULL, key ? json_root(key) : NULL,
                         str_eq(config_get(api->config)->tools_default, "deny"), name, err);
    json_doc_free(org);
    json_doc_free(key);
    return r;
}

int auth_may_bring(struct api *api, const struct caller *caller, struct brig_err *err)
{
    return caller_is_admin(caller) ? 0 : auth_tool_allowed(api, caller, TOOL_UNREGISTERED, err);
}

/* ---- what a list may be ---------------------------------------------------------------------------------- */

static bool check_names(struct request *rq, const struct json_value *list, const char *name)
{
    bool ok = !list || list->type == JSON_NULL || (list->type == JSON_ARRAY && list->count <= LIST_NAMES_MAX);

    for (const struct json_value *item = ok && list ? list->first : NULL; item && ok; item = item->next)
        ok = item->type == JSON_STRING && item->len > 0 && item->len <= LIST_NAME_MAX &&
             !memchr(item->string, '\0', item->len);
    if (!ok)
        request_refuse(rq, BRIG_E_USAGE, "%s: must be a list of at most %u names or patterns of 1 to %u bytes", name,
                       LIST_NAMES_MAX, LIST_NAME_MAX);
    return ok;
}

static bool check_list(struct request *rq)
{
    static const char *const known[] = {"allow", "deny", "default", NULL};
    const struct json_value *word = json_get(rq->json, "default");

    if (!api_only_members(rq, rq->json, known) || !check_names(rq, json_get(rq->json, "allow"), "allow") ||
        !check_names(rq, json_get(rq->json, "deny"), "deny"))
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
    for (const struct json_value *m = json_root(old)->type == JSON_OBJECT ? json_root(old)->first : NULL; m;
         m = m->next)
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

/* The row's, or NULL and the refusal was sent: another organisation's is not there. */
static struct store_org *own_org(struct request *rq)
{
    struct store_org *org = auth_find_org(rq->api->auth, rq->arg[0]);

    if (org && auth_visible(rq, org->id))
        return org;
    if (org)
        api_denied_others(rq->api, &rq->caller, org->id, "another organisation's lists");
    request_refuse(rq, BRIG_E_NOT_FOUND, "organisation %.64s not found", rq->arg[0]);
    return NULL;
}

static struct store_key *own_key(struct request *rq)
{
    struct store_key *key = auth_find_key(rq->api->auth, rq->arg[0]);

    if (key && auth_visible(rq, key->org_id))
        return key;
    if (key)
        api_denied_others(rq->api, &rq->caller, key->id, "another organisation's key");
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

/* Another document of an organisation or a key, on its way to the store. It is in force when it is stored. */
struct new_list {
    struct request *rq;
    char org_id[64], key_id[64]; /* key_id "": of the organisation itself */
    const char *doc;
};

static void list_free(struct new_list *list)
{
    mem_free((char *)(uintptr_t)list->doc);
    mem_free(list);
}

static void on_stored(void *ctx, const struct brig_err *err)
{
    struct new_list *list = ctx;
    struct request *rq = list->rq;
    struct auth *auth = rq->api->auth;
    struct store_key *key = list->key_id[0] ? auth_find_key(auth, list->key_id) : NULL;
    struct store_org *org = list->key_id[0] ? NULL : auth_find_org(auth, list->org_id);
    const char **doc = key ? &key->doc : org ? &org->doc : NULL;

    if (err) {
        request_fail(rq, err);
    } else if (!doc) {
        request_refuse(rq, BRIG_E_NOT_FOUND, "it was removed meanwhile");
    } else {
        const struct audit_event event = {.action = "tools.lists",
                                          .actor = rq->caller.actor,
                                          .org = list->org_id,
                                          .object = key ? key->id : org->id,
                                          .outcome = "ok",
                                          .detail = "",
                                          .request_id = rq->caller.request_id,
                                          .sync = true};
        mem_free((char *)(uintptr_t)*doc);
        *doc = take_ptr(&list->doc);
        audit_add(rq->api->audit, &event, NULL, NULL);
        if (rq->x)
            answer_list(rq, *doc);
        else
            request_free(rq);
    }
    list_free(list);
}

/*
 * All lists of an organisation and its keys are in memory: so many bytes of them. One that gets no larger is always
 * taken.
 */
static int check_bytes(const struct auth *auth, const char *org, size_t was, size_t len, struct brig_err *err)
{
    size_t sum = len - was;

    if (len <= was)
        return 0;
    for (size_t i = 0; i < auth->n_orgs; i++)
        sum += str_eq(auth->orgs[i].id, org) ? strlen(auth->orgs[i].doc) : 0;
    for (size_t i = 0; i < auth->n_keys; i++)
        sum += str_eq(auth->keys[i].org_id, org) ? strlen(auth->keys[i].doc) : 0;
    return sum <= ORG_BYTES ? 0
                            : err_set(err, BRIG_E_LIMIT, 0,
                                      "an organisation and its keys have at most %u bytes of lists", ORG_BYTES);
}

static struct new_list *make_list(struct request *rq, const char *org_id, const char *doc, struct brig_err *err)
{
    struct new_list *list = mem_zalloc(sizeof *list);
    AUTO_BUF struct buf out = BUF_INIT(DOC_MAX);
    int r = list ? rebuild(doc, rq->json, &out, err) : err_nomem(err);

    if (r == 0)
        r = check_bytes(rq->api->auth, org_id, strlen(doc), strlen(out.data), err);
    if (r == 0)
        r = auth_set_doc(&list->doc, out.data, err);
    if (r < 0) {
        mem_free(list);
        return NULL;
    }
    list->rq = rq;
    snprintf(list->org_id, sizeof list->org_id, "%s", org_id);
    return list;
}

void route_org_tools_put(struct request *rq)
{
    const struct store_org *org = own_org(rq);
    struct brig_err err;

    if (!org || !check_list(rq))
        return;
    struct new_list *list = make_list(rq, org->id, org->doc, &err);
    struct store_org row = *org;
    row.doc = list ? list->doc : NULL;
    if (!list || store_put_org(rq->api->store, &row, on_stored, list, &err) < 0) {
        if (list)
            list_free(list);
        request_fail(rq, &err);
    }
}

void route_key_tools_put(struct request *rq)
{
    const struct store_key *key = own_key(rq);
    struct brig_err err;

    if (!key || !check_list(rq))
        return;
    struct new_list *list = make_list(rq, key->org_id, key->doc, &err);
    struct store_key row = *key;
    row.doc = list ? list->doc : NULL;
    if (list)
        memcpy(list->key_id, key->id, sizeof list->key_id);
    if (!list || store_put_key(rq->api->store, &row, on_stored, list, &err) < 0) {
        if (list)
            list_free(list);
        request_fail(rq, &err);
    }
}
