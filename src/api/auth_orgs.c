/* SPDX-License-Identifier: Apache-2.0 */
/* auth_orgs.c: organisations: made, listed and deleted by the administrator; and who may act for another one. */
#include <stdio.h>
#include <string.h>

#include "api/auth.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"

#define ORGS_MAX 10000u

int auth_org_room(struct auth *auth, size_t coming, struct brig_err *err)
{
    if (auth->n_orgs + coming >= ORGS_MAX)
        return err_set(err, BRIG_E_LIMIT, 0, "there are %u organisations already, and no more than that are kept",
                       ORGS_MAX);
    return auth_grow((void **)&auth->orgs, auth->n_orgs + coming, &auth->cap_orgs, sizeof *auth->orgs, err);
}

void auth_add_org(struct auth *auth, const struct store_org *org)
{
    auth->orgs[auth->n_orgs++] = *org;
}

bool auth_key_has(struct auth *auth, const char *id, const char *member)
{
    const char *doc = auth_key_doc(auth, id);
    struct json_doc *parsed = NULL;

    if (json_read(doc, strlen(doc), JSON_READ_VALUES, &parsed, NULL) < 0)
        return false;
    const struct json_value *value = json_get(json_root(parsed), member);
    bool has = value && value->type == JSON_BOOL && value->boolean;
    json_doc_free(parsed);
    return has;
}

void auth_choose_org(struct auth *auth, const char *org, struct caller *caller)
{
    if (!caller->socket && !auth_key_has(auth, caller->key_id, "user_ids"))
        return; /* the key says whose it is, whatever the request says */
    if (auth_find_org(auth, org))
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
    AUTO_BUF struct buf out = BUF_INIT(4096);
    struct json json = JSON_INIT(&out);

    rq->api->auth->making_orgs--;
    if (failed) {
        mem_free((char *)(uintptr_t)made->org.doc);
        request_fail(rq, failed);
    } else {
        auth_add_org(rq->api->auth, &made->org); /* there is room: it was asked for before the write */
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
    if (!name || name->type != JSON_STRING || name->len == 0 || name->len >= sizeof((struct store_org *)0)->name ||
        memchr(name->string, '\0', name->len)) {
        request_refuse(rq, BRIG_E_USAGE, "name: must be text of 1 to %zu bytes",
                       sizeof((struct store_org *)0)->name - 1);
        return;
    }
    struct new_org *made = mem_zalloc(sizeof *made);
    if (!made || id_run(uuid) < 0) {
        mem_free(made);
        request_refuse(rq, BRIG_E_NOMEM, "out of memory");
        return;
    }
    made->rq = rq;
    made->org = (struct store_org){.created_at_ns = clock_real_ns()};
    snprintf(made->org.id, sizeof made->org.id, "org-%s", uuid + 4);
    memcpy(made->org.name, name->string, name->len);
    int r = auth_org_room(rq->api->auth, rq->api->auth->making_orgs, &err);
    if (r == 0)
        r = auth_set_doc(&made->org.doc, "{}", &err);
    if (r == 0)
        r = store_put_org(rq->api->store, &made->org, on_org_stored, made, &err);
    if (r == 0) {
        rq->api->auth->making_orgs++;
        return;
    }
    mem_free((char *)(uintptr_t)made->org.doc);
    mem_free(made);
    request_fail(rq, &err);
}

void route_org_list(struct request *rq)
{
    const struct auth *auth = rq->api->auth;
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    request_list_begin(&json, "orgs");
    for (size_t i = 0; i < auth->n_orgs; i++)
        org_json(&auth->orgs[i], &json);
    request_list_end(rq, &json);
}

/* An organisation that is being deleted. Its keys are refused at once, and are keys again if the store refuses. */
struct deletion {
    struct request *rq;
    char org_id[64], name[128];
    int64_t at_ns;
};

static void refuse_keys(struct request *rq, const struct deletion *deletion, int64_t from_ns, int64_t to_ns)
{
    struct auth *auth = rq->api->auth;

    for (size_t i = 0; i < auth->n_keys; i++)
        if (str_eq(auth->keys[i].org_id, deletion->org_id) && auth->keys[i].revoked_at_ns == from_ns) {
            auth->keys[i].revoked_at_ns = to_ns;
            server_cut(rq->api->server, auth->keys[i].id, rq->x);
        }
}

static void forget_org(struct auth *auth, const char *id)
{
    size_t n = 0;

    for (size_t i = 0; i < auth->n_keys; i++) {
        if (str_eq(auth->keys[i].org_id, id))
            mem_free((char *)(uintptr_t)auth->keys[i].doc);
        else
            auth->keys[n++] = auth->keys[i];
    }
    auth->n_keys = n;
    if (auth->by_hash)
        auth_index_keys(auth);
    struct store_org *org = auth_find_org(auth, id);
    if (org) {
        mem_free((char *)(uintptr_t)org->doc);
        *org = auth->orgs[--auth->n_orgs];
    }
}

static void on_org_deleted(void *ctx, const struct brig_err *failed)
{
    struct deletion *deletion = ctx;
    struct request *rq = deletion->rq;

    if (failed) {
        refuse_keys(rq, deletion, deletion->at_ns, 0);
        request_fail(rq, failed);
    } else {
        request_audit(rq, "org.delete", deletion->org_id, "ok", deletion->name);
        secrets_forget_org(rq->api->secrets, deletion->org_id);
        policies_forget_org(rq->api->policies, deletion->org_id);
        api_tools_forget_org(rq->api, deletion->org_id);
        forget_org(rq->api->auth, deletion->org_id);
        request_status(rq, 204);
    }
    mem_free(deletion);
}

/* Its keys die with it; sandboxes must be gone before. */
void route_org_delete(struct request *rq)
{
    const struct store_org *org = auth_find_org(rq->api->auth, rq->arg[0]);
    struct brig_err err;

    if (!org) {
        request_refuse(rq, BRIG_E_NOT_FOUND, "organisation %.64s not found", rq->arg[0]);
        return;
    }
    if (str_eq(org->id, API_DEFAULT_ORG)) {
        request_refuse(rq, BRIG_E_CONFLICT, "the first organisation stays");
        return;
    }
    for (const struct sbox *s = manager_first(rq->api->manager); s; s = sbox_next(s))
        if (str_eq(sbox_org(s), org->id)) {
            request_refuse(rq, BRIG_E_CONFLICT, "organisation %s has sandboxes; delete them first", org->id);
            return;
        }
    struct deletion *deletion = mem_zalloc(sizeof *deletion);
    if (!deletion) {
        request_refuse(rq, BRIG_E_NOMEM, "out of memory");
        return;
    }
    *deletion = (struct deletion){.rq = rq, .at_ns = clock_real_ns()};
    memcpy(deletion->org_id, org->id, sizeof deletion->org_id);
    memcpy(deletion->name, org->name, sizeof deletion->name);
    if (store_delete_org(rq->api->store, org->id, on_org_deleted, deletion, &err) < 0) {
        mem_free(deletion);
        request_fail(rq, &err);
        return;
    }
    refuse_keys(rq, deletion, 0, deletion->at_ns);
}
