/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_policies.c: the named network policies of an organisation, and what a policy would say. What is answered about
 * a policy comes from the same code that enforces it. A change is answered when the store has it, and is an event in
 * the audit log.
 */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

static void put_head(struct json *json, const char *name, bool preset, uint64_t version, int64_t created,
                     int64_t updated)
{
    json_object(json);
    json_key_string(json, "name", name);
    json_key_bool(json, "preset", preset);
    json_key_u64(json, "version", version);
    api_put_time(json, "created_at", created);
    api_put_time(json, "updated_at", updated);
}

/* json has all but the policy, whose text is canonical JSON already. */
static void answer_policy(struct request *rq, unsigned status, struct json *json, const char *policy)
{
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);

    json_end(json);
    int r = json_finish(json);
    if (r == 0)
        r = buf_append(&out, json->out->data, json->out->len - 1);
    if (r == 0)
        r = buf_printf(&out, ",\"policy\":%s}", policy);
    if (r < 0)
        request_refuse(rq, BRIG_E_NOMEM, "out of memory");
    else
        request_text(rq, status, "application/json", out.data, out.len);
}

static void put_named(struct json *json, const struct object *named)
{
    put_head(json, named->id, false, named->version, named->created_at_ns, named->updated_at_ns);
    json_end(json);
}

static void answer_named(struct request *rq, unsigned status, const struct object *named)
{
    AUTO_BUF struct buf head = BUF_INIT(4096);
    struct json json = JSON_INIT(&head);

    put_head(&json, named->id, false, named->version, named->created_at_ns, named->updated_at_ns);
    answer_policy(rq, status, &json, named->text);
}

/* ---- reading ------------------------------------------------------------------------------------------ */

void route_policy_list(struct request *rq)
{
    request_list_objects(rq, "policies", objects_first(policies_objects(rq->api->policies), rq->caller.org_id),
                         put_named);
}

static void answer_preset(struct request *rq, const char *name)
{
    const struct json_value word = {.type = JSON_STRING, .string = name, .len = strlen(name)};
    AUTO_BUF struct buf head = BUF_INIT(4096);
    struct json json = JSON_INIT(&head);
    struct network_choice choice;
    struct brig_err err;

    if (policies_choose(rq->api->policies, rq->caller.org_id, &word, &choice, &err) < 0)
        return request_fail(rq, &err);
    put_head(&json, name, true, choice.version, 0, 0);
    answer_policy(rq, 200, &json, choice.none ? "{\"default\":\"deny\"}" : choice.json);
    network_choice_done(&choice);
}

void route_policy_get(struct request *rq)
{
    const char *name = rq->arg[0];
    const struct object *named = policies_find(rq->api->policies, rq->caller.org_id, name);

    if (named)
        answer_named(rq, 200, named);
    else if (str_eq(name, "none") || str_eq(name, "packages") || str_eq(name, "open"))
        answer_preset(rq, name);
    else
        request_refuse(rq, BRIG_E_NOT_FOUND, "policy %.64s not found", name);
}

/* ---- writing ------------------------------------------------------------------------------------------ */

/* A change on its way to the store. */
struct change {
    struct request *rq;
    char name[POLICY_NAME_MAX];
    bool made; /* it was not there before */
};

static void audit_change(const struct change *change, const char *action, const char *detail)
{
    const struct request *rq = change->rq;

    request_audit_sync(rq, action, NULL, change->name, "ok", detail);
}

static void on_put(void *ctx, const struct object *named, const struct brig_err *failed)
{
    AUTO_FREE struct change *change = ctx;
    struct request *rq = change->rq;
    char detail[48];

    if (failed)
        return request_fail(rq, failed);
    if (!named) { /* the organisation was deleted meanwhile */
        request_refuse(rq, BRIG_E_CONFLICT, "policy %s was deleted meanwhile", change->name);
        return;
    }
    snprintf(detail, sizeof detail, "version %llu", (unsigned long long)named->version);
    audit_change(change, "policy.set", detail);
    answer_named(rq, change->made ? 201 : 200, named);
}

static void on_deleted(void *ctx, const struct object *was UNUSED, const struct brig_err *failed)
{
    AUTO_FREE struct change *change = ctx;

    if (failed)
        return request_fail(change->rq, failed);
    audit_change(change, "policy.delete", "");
    request_status(change->rq, 204);
}

static struct change *new_change(struct request *rq)
{
    struct change *change = request_alloc(rq, sizeof *change);

    if (!change)
        return NULL;
    change->rq = rq;
    if (str_copy(change->name, sizeof change->name, rq->arg[0]) < 0) {
        mem_free(change);
        request_refuse(rq, BRIG_E_USAGE, "policy %.64s: a name has at most %u characters", rq->arg[0],
                       POLICY_NAME_MAX - 1);
        return NULL;
    }
    return change;
}

void route_policy_put(struct request *rq)
{
    struct brig_err err;

    if (rq->body_len > POLICY_JSON_MAX)
        return request_refuse(rq, BRIG_E_TOO_LARGE, "a policy has at most %u bytes", POLICY_JSON_MAX);
    struct change *change = new_change(rq);
    if (!change)
        return;
    change->made = !policies_find(rq->api->policies, rq->caller.org_id, change->name);
    int r = policy_ranges_check(rq->json, caller_standing(&rq->caller), config_get(rq->api->config), &err);
    if (r == 0)
        r = policies_put(rq->api->policies, rq->caller.org_id, change->name, rq->json, on_put, change, &err);
    if (r < 0) {
        mem_free(change);
        request_fail(rq, &err);
    }
}

void route_policy_delete(struct request *rq)
{
    struct change *change = new_change(rq);
    struct brig_err err;

    if (!change)
        return;
    if (objects_delete(policies_objects(rq->api->policies), rq->caller.org_id, change->name, on_deleted, change, &err) <
        0) {
        mem_free(change);
        request_fail(rq, &err);
    }
}

/* ---- what would it say? ------------------------------------------------------------------------------- */

struct check {
    struct policy_question question;
    char name[DNS_NAME_MAX];
    struct gate_addr addr;
};

static const char *text_member(const struct request *rq, const char *key)
{
    const struct json_value *v = json_get(rq->json, key);

    return v && v->type == JSON_STRING && v->len > 0 && !memchr(v->string, '\0', v->len) ? v->string : NULL;
}

static int read_address(const char *text, struct gate_addr *ret)
{
    char bare[64];
    size_t len = strlen(text);

    if (len >= 2 && text[0] == '[' && text[len - 1] == ']')
        text++, len -= 2;
    if (len >= sizeof bare)
        return -EINVAL;
    memcpy(bare, text, len);
    bare[len] = '\0';
    return gate_addr_parse(bare, ret);
}

static int read_host(struct request *rq, struct check *check, struct brig_err *err)
{
    const char *host = text_member(rq, "host"), *address = text_member(rq, "address");
    const struct json_value *port = json_get(rq->json, "port");

    if (!host)
        return err_usage(err, "host: a host name or an IP address is needed");
    if (read_address(host, &check->addr) == 0) {
        check->question.addr = &check->addr;
    } else {
        if (policy_name(host, check->name) < 0)
            return err_usage(err, "host %.64s: neither a host name nor an IP address", host);
        check->question.name = check->name;
        if (address && read_address(address, &check->addr) < 0)
            return err_usage(err, "address %.64s: not an IP address", address);
        check->question.addr = address ? &check->addr : NULL;
    }
    if (!port || port->type != JSON_NUMBER || !port->integer || port->i64 < 1 || port->i64 > UINT16_MAX)
        return err_usage(err, "port: a number from 1 to 65535 is needed");
    check->question.port = (uint16_t)port->i64;
    return 0;
}

static int read_speech(struct request *rq, struct check *check, struct brig_err *err)
{
    static const char *const names[] = {
        [POLICY_SEEN_TLS] = "tls", [POLICY_SEEN_HTTP] = "http", [POLICY_SEEN_OTHER] = "tcp"};
    const char *protocol = text_member(rq, "protocol"), *method = text_member(rq, "method"),
               *path = text_member(rq, "path");

    if ((json_get(rq->json, "method") && !method) || (json_get(rq->json, "path") && !path))
        return err_usage(err, "method, path: must be text");
    if (path && strpbrk(path, "?#"))
        return err_usage(err, "path: without a query; rules see what is before the \"?\"");
    if (method || path)
        check->question.seen = POLICY_SEEN_HTTP;
    for (int i = POLICY_SEEN_TLS; protocol && i <= POLICY_SEEN_OTHER; i++) {
        if (str_eq(protocol, names[i]))
            check->question.seen = (enum policy_seen)i;
    }
    if (json_get(rq->json, "protocol") &&
        (!protocol || !str_eq(protocol, check->question.seen ? names[check->question.seen] : "")))
        return err_usage(err, "protocol: must be tls, http or tcp");
    if ((method || path) && check->question.seen != POLICY_SEEN_HTTP)
        return err_usage(err, "protocol %s: method and path are about http", protocol);
    check->question.method = method ? method : "GET";
    check->question.path = path ? path : "/";
    return 0;
}

/* A rule about requests allows nothing where they cannot be seen: who asks about https must hear that. */
static void put_note(struct json *json, const struct network_choice *choice, const struct check *check,
                     const struct policy_answer *answer)
{
    struct policy_question closed = check->question;
    struct policy_answer then;

    if (choice->none || !answer->allow || check->question.seen != POLICY_SEEN_HTTP)
        return;
    closed.seen = POLICY_SEEN_TLS;
    closed.method = closed.path = NULL;
    policy_judge(choice->policy, &closed, &then);
    if (then.allow)
        return;
    json_key_string(
        json, "note",
        "for plain HTTP, and for hosts with a brokered secret; other TLS is not opened, and is denied there");
}

static void answer_check(struct request *rq, const struct network_choice *choice, const struct check *check)
{
    struct policy_answer answer = {.allow = false, .rule = -2, .why = "there is no network"};
    AUTO_BUF struct buf out = BUF_INIT(16384);
    struct json json = JSON_INIT(&out);

    if (!choice->none)
        policy_judge(choice->policy, &check->question, &answer);
    json_object(&json);
    json_key_bool(&json, "allow", answer.allow);
    json_key(&json, "rule"), answer.rule >= 0 ? json_i64(&json, answer.rule) : json_null(&json);
    json_key_string(&json, "why", answer.why);
    put_note(&json, choice, check, &answer);
    json_key_string(&json, "network", choice->name);
    json_key_u64(&json, "version", choice->version);
    json_key(&json, "host");
    char address[GATE_ADDR_TEXT] = "";
    if (!check->question.name)
        gate_addr_text(check->question.addr, address);
    json_string(&json, check->question.name ? check->question.name : address);
    json_key_u64(&json, "port", check->question.port);
    json_end(&json);
    request_json(rq, 200, &json);
}

void route_policy_check(struct request *rq)
{
    struct check check = {.question = {.seen = POLICY_SEEN_NOTHING}};
    struct network_choice choice = {.policy = NULL};
    struct brig_err err;

    if (!api_only_members(rq, "network host port address protocol method path"))
        return;
    int r = read_host(rq, &check, &err);
    if (r == 0)
        r = read_speech(rq, &check, &err);
    if (r == 0 && !json_get(rq->json, "network"))
        r = err_usage(&err, "network: a policy's name or a policy object is needed");
    if (r == 0)
        r = policies_choose(rq->api->policies, rq->caller.org_id, json_get(rq->json, "network"), &choice, &err);
    if (r < 0)
        return request_fail(rq, &err);
    answer_check(rq, &choice, &check);
    network_choice_done(&choice);
}
