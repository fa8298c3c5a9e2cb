/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_templates.c: the templates of an organisation: list, look at, name, remove. Every key of the organisation sees
 * its own and the shared ones; changes are for administrators, and a shared template changes only in the organisation
 * that it is of. route_template_jobs.c has what makes templates.
 */
#include <stdio.h>
#include <string.h>

#include "api/template_answers.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "records/images/build_steps.h"
#include "sandbox/sbox_disks.h"
#include "template/library.h"

/* ---- answers ------------------------------------------------------------------------------------------- */

/* The bytes of layers that no other template has which the caller sees. */
static uint64_t own_bytes(const struct templates *templates, const char *org, const struct object *object)
{
    const struct template_info *info = template_of(object);
    uint64_t bytes = info->bytes;

    for (size_t i = 0; i < info->n_layers; i++)
        for (const struct object *at = templates_first(templates, org); at; at = templates_next(templates, org, at)) {
            const struct template_info *other = template_of(at);
            size_t k = 0;
            while (at != object && k < other->n_layers && !str_eq(other->layers[k], info->layers[i]))
                k++;
            if (at != object && k < other->n_layers) {
                bytes -= info->sizes[i];
                break;
            }
        }
    return bytes;
}

static void put_layers(struct json *json, const struct template_info *info)
{
    json_key_array(json, "layers");
    for (size_t i = 0; i < info->n_layers; i++) {
        json_object(json);
        json_key_string(json, "id", info->layers[i]);
        json_key_string(json, "diff_id", info->diff_ids[i]);
        json_key_u64(json, "bytes", info->sizes[i]);
        json_end(json);
    }
    json_end(json);
}

void template_answer_put(const struct request *rq, struct json *json, const struct object *object)
{
    const struct template_info *info = template_of(object);

    json_object(json);
    json_key_string(json, "name", object->id);
    json_key_string(json, "organization_id", object->org_id);
    json_key_bool(json, "shared", info->shared);
    json_key_string(json, "source", info->source);
    json_key_string(json, "reference", info->reference);
    json_key_string(json, "digest", info->digest);
    json_key_u64(json, "bytes", info->bytes);
    json_key_u64(json, "own_bytes", own_bytes(rq->api->templates, rq->caller.org_id, object));
    put_layers(json, info);
    if (info->disk[0]) {
        json_key_object(json, "disk");
        json_key_u64(json, "bytes", info->disk_size);
        json_key_bool(json, "writable_root", info->writable_root);
        if (info->base[0])
            json_key_string(json, "base", info->base);
        json_end(json);
    }
    template_image_put(&info->image, json);
    if (info->settings) {
        json_key(json, "settings");
        json_value_put(json, info->settings);
    }
    api_put_time(json, "created_at", info->made_at_ns);
    api_put_time(json, "used_at", info->used_at_ns);
    if (clock_real_ns() - info->made_at_ns > TEMPLATE_OLD_NS)
        json_key_string(json, "warning", "older than 30 days: its packages may have known holes; rebuild it");
    json_end(json);
}

static void answer(struct request *rq, unsigned status, const struct object *object)
{
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    template_answer_put(rq, &json, object);
    request_json(rq, status, &json);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

void route_template_list(struct request *rq)
{
    const struct templates *templates = rq->api->templates;
    const char *org = rq->caller.org_id;
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    request_list_begin(&json, "templates");
    for (const struct object *at = templates_first(templates, org); at; at = templates_next(templates, org, at))
        template_answer_put(rq, &json, at);
    request_list_end(rq, &json);
}

/* The template that the path names, if the caller sees it; NULL: the refusal was sent. */
static const struct object *find(struct request *rq)
{
    const struct object *object = templates_find(rq->api->templates, rq->caller.org_id, rq->arg[0]);

    if (!object)
        request_refuse(rq, BRIG_E_NOT_FOUND, "template %.128s not found", rq->arg[0]);
    return object;
}

void route_template_get(struct request *rq)
{
    const struct object *object = find(rq);

    if (object)
        answer(rq, 200, object);
}

void route_template_du(struct request *rq)
{
    const struct templates *templates = rq->api->templates;
    const char *org = rq->caller.org_id;
    uint64_t bytes = 0, shared = 0, count = 0, layers = 0, disks = 0;
    AUTO_BUF struct buf out = BUF_INIT(64u << 10);
    struct json json = JSON_INIT(&out);

    for (const struct object *at = templates_first(templates, org); at; at = templates_next(templates, org, at)) {
        const struct template_info *info = template_of(at);
        count++;
        disks += info->disk_size;
        for (size_t i = 0; i < info->n_layers; i++) {
            size_t index;
            /* counted with the first that has it */
            if (templates_with_layer(templates, org, info->layers[i], &index) == at && index == i) {
                layers++;
                bytes += info->sizes[i];
            } else {
                shared += info->sizes[i];
            }
        }
    }
    json_object(&json);
    json_key_u64(&json, "templates", count);
    json_key_u64(&json, "layers", layers);
    json_key_u64(&json, "bytes", bytes);
    json_key_u64(&json, "saved_bytes", shared);
    json_key_u64(&json, "disk_bytes", disks);
    json_end(&json);
    request_json(rq, 200, &json);
}

/* ---- changes ------------------------------------------------------------------------------------------- */

/* A change on its way to the store. */
struct change {
    struct request *rq;
    char name[TEMPLATE_NAME_MAX], of[TEMPLATE_NAME_MAX];
};

static struct change *new_change(struct request *rq, const char *name)
{
    struct change *change = mem_zalloc(sizeof *change);
    struct brig_err err;

    if (!change) {
        request_refuse(rq, BRIG_E_NOMEM, "out of memory");
        return NULL;
    }
    change->rq = rq;
    if (template_name(name, change->name, &err) < 0) {
        mem_free(change);
        request_fail(rq, &err);
        return NULL;
    }
    return change;
}

static void on_tagged(void *ctx, const struct object *object, const struct brig_err *failed)
{
    AUTO_FREE struct change *change = ctx;
    struct request *rq = change->rq;

    if (failed) {
        request_fail(rq, failed);
        return;
    }
    if (!object) {
        request_refuse(rq, BRIG_E_CONFLICT, "template %s was deleted meanwhile", change->name);
        return;
    }
    request_audit_sync(rq, "template.tag", NULL, change->name, "ok", change->of);
    answer(rq, 201, object);
}

void route_template_tag(struct request *rq)
{
    char name[TEMPLATE_NAME_MAX + 64];
    bool replace = false;
    struct brig_err err;

    if (!api_only_members(rq, "name replace shared") || !api_name(rq, json_get(rq->json, "name"), name, sizeof name) ||
        !api_bool(rq, "replace", &replace))
        return;
    const struct object *object = find(rq);
    if (!object)
        return;
    struct template_info info = *template_of(object);
    info.shared = info.shared && str_eq(object->org_id, rq->caller.org_id) && rq->caller.socket;
    if (!api_bool(rq, "shared", &info.shared))
        return;
    if (info.shared && (!rq->caller.socket || !str_eq(rq->caller.org_id, templates_shared_org(rq->api->templates)))) {
        request_refuse(rq, BRIG_E_FORBIDDEN,
                       "shared: only the administrator of the host shares templates with all organisations");
        return;
    }
    struct change *change = new_change(rq, name);
    if (!change)
        return;
    str_assign(change->of, object->id);
    if (templates_put(rq->api->templates, rq->caller.org_id, change->name, &info, replace, on_tagged, change, &err) <
        0) {
        mem_free(change);
        request_fail(rq, &err);
    }
}

static void on_deleted(void *ctx, const struct object *was UNUSED, const struct brig_err *failed)
{
    AUTO_FREE struct change *change = ctx;

    if (failed) {
        request_fail(change->rq, failed);
        return;
    }
    request_audit_sync(change->rq, "template.remove", NULL, change->name, "ok", "");
    library_collect(change->rq->api->library);
    disks_collect(change->rq->api->manager);
    request_status(change->rq, 204);
}

/* What keeps it: a sandbox that lives, or the configuration. */
static bool is_kept(struct request *rq, const struct object *object)
{
    const char *image = config_get(rq->api->config)->image;
    size_t users = manager_uses_template(rq->api->manager, object->org_id, object->id);

    if (users > 0) {
        request_refuse(rq, BRIG_E_CONFLICT, "template %s: in use by %zu sandbox%s", object->id, users,
                       users == 1 ? "" : "es");
        return true;
    }
    if (image && templates_find(rq->api->templates, object->org_id, image) == object) {
        request_refuse(rq, BRIG_E_CONFLICT, "template %s: [sandbox] image names it", object->id);
        return true;
    }
    return false;
}

void route_template_delete(struct request *rq)
{
    const struct object *object = find(rq);
    struct brig_err err;

    if (!object)
        return;
    if (!str_eq(object->org_id, rq->caller.org_id)) {
        request_refuse(rq, BRIG_E_FORBIDDEN, "template %s: is shared by another organisation, which alone removes it",
                       object->id);
        return;
    }
    if (is_kept(rq, object))
        return;
    struct change *change = new_change(rq, object->id);
    if (change && templates_delete(rq->api->templates, rq->caller.org_id, change->name, on_deleted, change, &err) < 0) {
        mem_free(change);
        request_fail(rq, &err);
    }
}

static void on_pruned(void *ctx, size_t layers, const struct brig_err *err)
{
    struct request *rq = ctx;
    AUTO_BUF struct buf out = BUF_INIT(4096);
    struct json json = JSON_INIT(&out);
    char detail[48];

    if (err) {
        request_fail(rq, err);
        return;
    }
    const size_t caches = volume_prune_caches(rq->api->manager, &rq->caller);
    snprintf(detail, sizeof detail, "%zu layers, %zu caches", layers, caches);
    request_audit_sync(rq, "template.prune", NULL, "", "ok", detail);
    json_object(&json);
    json_key_u64(&json, "layers", layers);
    json_key_u64(&json, "caches", caches);
    json_end(&json);
    request_json(rq, 200, &json);
}

static void prune_layers(void *ctx, size_t steps UNUSED)
{
    struct request *rq = ctx;
    struct brig_err err;

    if (library_prune(rq->api->library, &rq->caller, on_pruned, rq, &err) < 0)
        request_fail(rq, &err);
}

/* What builds have kept goes first: it holds layers. */
void route_template_prune(struct request *rq)
{
    if (!build_steps_forget(rq->api->build_steps, rq->caller.org_id, true, prune_layers, rq))
        prune_layers(rq, 0);
}
