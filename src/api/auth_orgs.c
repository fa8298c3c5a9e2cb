/* SPDX-License-Identifier: Apache-2.0 */
/* auth_orgs.c: organisations: made, listed and deleted by the administrator; and which one a user of the original's interface is of. */
#include <stdio.h>
#include <string.h>

#include "api/auth.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"

#define ORGS_MAX 10000u

int auth_add_org(struct auth *auth, const struct store_org *org, struct brig_err *err)
{
    int r = auth_grow((void **)&auth->orgs, auth->n_orgs, &auth->cap_orgs, sizeof *auth->orgs, ORGS_MAX, err);

    if (r == 0) {
        struct store_org *row = &auth->orgs[auth->n_orgs];
        *row = *org;
        row->doc = NULL;
        r = auth_set_doc(&row->doc, org->doc, err);
        auth->n_orgs += r == 0;
    }
    return r;
}

void auth_user(struct auth *auth, const char *user, struct caller *caller)
{
    const char *doc = auth_key_doc(auth, caller->key_id);
    char org[sizeof caller->org_id];
    struct json_doc *parsed = NULL;
    bool may = caller->socket;

    if (!may && json_read(doc, strlen(doc), JSON_READ_VALUES, &parsed, NULL) == 0) {
        const struct json_value *users = json_get(json_root(parsed), "user_ids");
        may = users && users->type == JSON_BOOL && users->boolean;
        json_doc_free(parsed);
    }
    if (!may)
        return; /* the key says whose it is, whatever the header says */
    if (str_format(org, sizeof org, "org-%s", user + strlen("user-")) > 0 && auth_find_org(auth, org))
        snprintf(caller->org_id, sizeof caller->org_id, "%s", org);
}

/* ---- organisations --------------------------------------------------------------------------------------- */

static void org_json(const struct store_org *org, struct json *json)
{
    char time[48];

    json_object(json);
    json_key(json, "id");
    json_string(json, org->id);
    json_key(json, "name");
    json_string(json, org->name);
    json_key(json, "created_at");
    if (api_time(org->created_at_ns, time, sizeof time) == 0)
        json_string(json, time);
    else
        json_null(json);
    json_end(json);
}

struct new_org {
    struct request *rq;
    struct store_org org;
};

static void on_org_stored(void *ctx, const struct brig_err *failed)
{
    struct new_org *made = ctx;
    struct request *rq = made->rq;
    struct brig_err err;
    AUTO_BUF struct buf out = BUF_INIT(4096);
    struct json json = JSON_INIT(&out);

    if (failed) {
        request_fail(rq, failed);
    } else if (auth_add_org(rq->api->auth, &made->org, &err) < 0) {
        request_fail(rq, &err);
    } else {
        request_audit(rq, "org.create", made->org.id, "ok", made->org.name);
        org_json(&made->org, &json);
        request_json(rq, 201, &json);
    }
    mem_free(made);
}

void route_org_create(struct request *rq)
{
    static const char *const known[] = {"name", NULL};
    const struct json_value *name = json_get(rq->json, "name");
    char uuid[ID_RUN_SIZE];
    struct brig_err err;

    if (!api_only_members(rq, rq->json, known))
        return;
    if (!name || name->type != JSON_STRING || name->len == 0 || name->len >= sizeof((struct store_org *)0)->name || memchr(name->string, '\0', name->len)) {
        request_refuse(rq, BRIG_E_USAGE, "name: must be text of 1 to %zu bytes", sizeof((struct store_org *)0)->name - 1);
        return;
    }
    struct new_org *made = mem_zalloc(sizeof *made);
    if (!made || id_run(uuid) < 0) {
        mem_free(made);
        request_refuse(rq, BRIG_E_NOMEM, "out of memory");
        return;
    }
    made->rq = rq;
    made->org = (struct store_org){.created_at_ns = clock_real_ns(), .doc = "{}"};
    snprintf(made->org.id, sizeof made->org.id, "org-%s", uuid + 4);
    memcpy(made->org.name, name->string, name->len);
    if (store_put_org(rq->api->store, &made->org, on_org_stored, made, &err) < 0) {
        mem_free(made);
        request_fail(rq, &err);
    }
}

void route_org_list(struct request *rq)
{
    const struct auth *auth = rq->api->auth;
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    json_object(&json);
    json_key(&json, "orgs");
    json_array(&json);
    for (size_t i = 0; i < auth->n_orgs; i++)
        org_json(&auth->orgs[i], &json);
    json_end(&json);
    json_end(&json);
    request_json(rq, 200, &json);
}

/* Its keys die with it; sandboxes must be gone before. */
void route_org_delete(struct request *rq)
{
    struct auth *auth = rq->api->auth;
    struct store_org *org = auth_find_org(auth, rq->arg[0]);
    struct brig_err err;

    if (!org) {
        request_refuse(rq, BRIG_E_NOT_FOUND, "organisation %.64s not found", rq->arg[0]);
        return;
    }
    if (str_eq(org->id, API_DEFAULT_ORG)) {
        request_refuse(rq, BRIG_E_CONFLICT, "the first organisation stays");
        return;
    }
    for (const struct sbox *s = manager_first(rq->api->manager); s; s = s->next)
        if (str_eq(s->org_id, org->id)) {
            request_refuse(rq, BRIG_E_CONFLICT, "organisation %s has sandboxes; delete them first", org->id);
            return;
        }
    for (size_t i = 0; i < auth->n_keys; i++)
        if (str_eq(auth->keys[i].org_id, org->id) && !auth->keys[i].revoked_at_ns) {
            auth->keys[i].revoked_at_ns = clock_real_ns();
            server_cut(rq->api->server, auth->keys[i].id, rq->x);
            if (store_put_key(rq->api->store, &auth->keys[i], NULL, NULL, &err) < 0) {
                request_fail(rq, &err);
                return;
            }
        }
    request_audit(rq, "org.delete", org->id, "ok", org->name);
    secrets_forget_org(rq->api->secrets, org->id);
    api_tools_forget_org(rq->api, org->id);
    if (store_delete_org(rq->api->store, org->id, request_done, rq, &err) < 0) {
        request_fail(rq, &err);
        return;
    }
    mem_free((char *)(uintptr_t)org->doc);
    *org = auth->orgs[--auth->n_orgs];
}
